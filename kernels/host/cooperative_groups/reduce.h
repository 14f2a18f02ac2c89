// `cooperative_groups/reduce.h` on the host: it is in cooperative_groups.h.
#include "../cooperative_groups.h"

// `cooperative_groups/scan.h` on the host: it is in cooperative_groups.h.
#include "../cooperative_groups.h"

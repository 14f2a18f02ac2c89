// What CuPy's binding needs of the runtime. NVIDIA's own file includes parts of its compiler.
#include <cuda_runtime_api.h>
#include <driver_functions.h>

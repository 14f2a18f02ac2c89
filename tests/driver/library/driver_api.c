// The driver's functions that CuPy calls, and the devices.
#define _GNU_SOURCE
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- devices -------------------------------------------------------------------------------------

static int number_from(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    return text && *text ? atoi(text) : otherwise;
}

int device_count(void)
{
    static int known = -1;
    if (known < 0) known = number_from("LUCID_DRIVER_DEVICES", 2);
    return known < MOST_DEVICES ? known : MOST_DEVICES;
}

static _Thread_local int current = -1;

int context_device(void) { return current; }
void set_context(int device) { current = device; }

// An H100, but for its name.
int device_attribute(int attribute, int device)
{
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X: return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y: return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: return 49152;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY: return 65536;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH: return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK: return 65536;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: return 1980000;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT: return 512;
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP: return 1;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return 132;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY: return 1;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS: return 1;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: return 1 + device;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: return 2619000;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: return 5120;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: return 52428800;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: return 2048;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: return 3;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: return 1;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return number_from("LUCID_DRIVER_CAPABILITY", 90) / 10;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        return number_from("LUCID_DRIVER_CAPABILITY", 90) % 10;
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED: return 1;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: return 233472;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: return 65536;
    case CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID: return device;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED: return 1;
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH: return 1;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: return 232448;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: return 32;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK: return 1024;
    default: return 0;
    }
}

static int possible;                             // whether devices can reach each other at all
static int reach[MOST_DEVICES][MOST_DEVICES];    // and who was allowed to

EXPORTED void driver_set_peer_access_possible(int yes)
{
    lock_driver();
    possible = yes;
    if (!yes) memset(reach, 0, sizeof reach);
    unlock_driver(CUDA_SUCCESS);
}

int peer_access_possible(int from, int to) { return possible && from != to; }
int peer_access(int from, int to) { return reach[from][to]; }
void set_peer_access(int from, int to, int allowed) { reach[from][to] = allowed; }

// --- errors --------------------------------------------------------------------------------------

EXPORTED CUresult cuGetErrorName(CUresult error, const char **name)
{
    *name = driver_error_name(error);
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuGetErrorString(CUresult error, const char **text)
{
    *text = error_text(error);
    return CUDA_SUCCESS;
}

// --- contexts: a handle is the device's number and one -------------------------------------------

static CUcontext handle_of(int device) { return (CUcontext)(uintptr_t)(device + 1); }

EXPORTED CUresult cuCtxGetCurrent(CUcontext *context)
{
    *context = handle_of(current);
    return LOCKED(CUDA_SUCCESS);
}

EXPORTED CUresult cuCtxSetCurrent(CUcontext context)
{
    const int device = (int)(uintptr_t)context - 1;
    if (device >= device_count()) return LOCKED(CUDA_ERROR_INVALID_CONTEXT);
    current = device;
    return LOCKED(CUDA_SUCCESS);
}

EXPORTED CUresult cuCtxGetDevice(CUdevice *device)
{
    count_device_question();
    if (current < 0) return LOCKED(CUDA_ERROR_INVALID_CONTEXT);
    *device = current;
    return LOCKED(CUDA_SUCCESS);
}

EXPORTED CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    (void)device;
    return LOCKED(CUDA_SUCCESS);
}

// Contexts beside the primary ones are not there.
EXPORTED CUresult cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device)
{
    (void)context, (void)flags, (void)device;
    return LOCKED(CUDA_ERROR_NOT_SUPPORTED);
}

EXPORTED CUresult cuCtxDestroy(CUcontext context)
{
    (void)context;
    return LOCKED(CUDA_ERROR_NOT_SUPPORTED);
}

// --- linking, which nothing here needs -----------------------------------------------------------

EXPORTED CUresult cuLinkCreate(unsigned count, CUjit_option *options, void **values,
                               CUlinkState *state)
{
    (void)count, (void)options, (void)values, (void)state;
    return LOCKED(CUDA_ERROR_NOT_SUPPORTED);
}

EXPORTED CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t size,
                                const char *name, unsigned count, CUjit_option *options,
                                void **values)
{
    (void)state, (void)type, (void)data, (void)size;
    (void)name, (void)count, (void)options, (void)values;
    return LOCKED(CUDA_ERROR_NOT_SUPPORTED);
}

EXPORTED CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char *path,
                                unsigned count, CUjit_option *options, void **values)
{
    (void)state, (void)type, (void)path, (void)count, (void)options, (void)values;
    return LOCKED(CUDA_ERROR_NOT_SUPPORTED);
}

EXPORTED CUresult cuLinkComplete(CUlinkState state, void **code, size_t *size)
{
    (void)state, (void)code, (void)size;
    return LOCKED(CUDA_ERROR_NOT_SUPPORTED);
}

EXPORTED CUresult cuLinkDestroy(CUlinkState state)
{
    (void)state;
    return LOCKED(CUDA_ERROR_NOT_SUPPORTED);
}

// --- modules and launches ------------------------------------------------------------------------

// What loading and finding say, in the order of a GPU's driver: no context, an error that stays.
static CUresult obstacle(void)
{
    return LOCKED(current < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS);
}

EXPORTED CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    const CUresult before = obstacle();
    return before ? before : load_module(image, 0, current, (struct module **)module);
}

static char *contents(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    *size = ftell(file);
    rewind(file);
    char *bytes = calloc(1, *size + 64);
    const size_t got = fread(bytes, 1, *size, file);
    fclose(file);
    if (got == *size) return bytes;
    free(bytes);
    return NULL;
}

EXPORTED CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    const CUresult before = obstacle();
    if (before) return before;
    size_t size;
    char *image = contents(path, &size);
    if (!image) return CUDA_ERROR_FILE_NOT_FOUND;
    const CUresult result = load_module(image, size, current, (struct module **)module);
    free(image);
    return result;
}

EXPORTED CUresult cuModuleUnload(CUmodule module)
{
    (void)module;
    return LOCKED(CUDA_SUCCESS);
}

EXPORTED CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    const CUresult before = obstacle();
    if (before) return before;
    return find_function((struct module *)module, name, (struct function **)function);
}

EXPORTED CUresult cuModuleGetGlobal(CUdeviceptr *start, size_t *size, CUmodule module,
                                    const char *name)
{
    (void)start, (void)size, (void)module, (void)name;
    return LOCKED(CUDA_ERROR_NOT_FOUND);  // variables of kernels' sources lie in their libraries
}

EXPORTED CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    return LOCKED(function_attribute((struct function *)function, attribute, value));
}

EXPORTED CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    return LOCKED(set_function_attribute((struct function *)function, attribute, value));
}

static CUresult launch_on(CUfunction function, struct extent grid, struct extent block,
                          unsigned shared, CUstream handle, void **arguments)
{
    if (current < 0) return CUDA_ERROR_INVALID_CONTEXT;
    struct stream *stream = stream_of(handle);
    if (!function || !stream) return CUDA_ERROR_INVALID_HANDLE;
    return launch((struct function *)function, grid, block, shared, stream, arguments);
}

EXPORTED CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                 unsigned grid_z, unsigned block_x, unsigned block_y,
                                 unsigned block_z, unsigned shared, CUstream stream,
                                 void **arguments, void **extra)
{
    if (extra) return LOCKED(CUDA_ERROR_NOT_SUPPORTED);
    const struct extent grid = {grid_x, grid_y, grid_z}, block = {block_x, block_y, block_z};
    return LOCKED(launch_on(function, grid, block, shared, stream, arguments));
}

EXPORTED CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                            unsigned grid_z, unsigned block_x, unsigned block_y,
                                            unsigned block_z, unsigned shared, CUstream stream,
                                            void **arguments)
{
    (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y;
    (void)block_z, (void)shared, (void)stream, (void)arguments;
    return LOCKED(CUDA_ERROR_NOT_SUPPORTED);  // blocks run one after another
}

EXPORTED CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function,
                                                              int threads, size_t shared)
{
    if (threads < 1) return LOCKED(CUDA_ERROR_INVALID_VALUE);
    *blocks = active_blocks((struct function *)function, threads, shared);
    return LOCKED(CUDA_SUCCESS);
}

EXPORTED CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction function,
                                                   CUoccupancyB2DSize shared_of, size_t shared,
                                                   int limit)
{
    (void)function, (void)shared_of, (void)shared, (void)limit;
    *grid = 264;
    *block = 256;
    return LOCKED(CUDA_SUCCESS);
}

EXPORTED CUresult cuStreamGetCtx(CUstream handle, CUcontext *context)
{
    lock_driver();
    const struct stream *stream = stream_of(handle);
    if (!stream) return unlock_driver(CUDA_ERROR_INVALID_HANDLE);
    *context = handle_of(stream_device(stream));
    return unlock_driver(CUDA_SUCCESS);
}

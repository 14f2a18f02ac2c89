// The CUDA runtime as far as CuPy's module cupy_backends.cuda.api.runtime calls it. It is linked into
// that module, as NVIDIA's own is; what is not here answers that it is not supported.
#include "driver.h"

#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#define RUNTIME_VERSION 12090

// The device a thread has chosen. Its context is made current by the first call that needs one.
static _Thread_local int chosen;

static void need_context(void)
{
    if (context_device() != chosen) set_context(chosen);
}

// Runs one expression under the lock with the chosen device's context.
#define CALL(expression) \
    (need_context(), lock_driver(), (cudaError_t)unlock_driver((CUresult)(expression)))

static struct stream *stream(cudaStream_t handle) { return stream_of(handle); }

// --- errors and versions -------------------------------------------------------------------------

const char *cudaGetErrorName(cudaError_t error) { return runtime_error_name((CUresult)error); }
const char *cudaGetErrorString(cudaError_t error) { return error_text((CUresult)error); }
cudaError_t cudaGetLastError(void) { return CALL(CUDA_SUCCESS); }

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = RUNTIME_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = RUNTIME_VERSION;
    return cudaSuccess;
}

cudaError_t cudaProfilerStart(void) { return cudaSuccess; }
cudaError_t cudaProfilerStop(void) { return cudaSuccess; }

// --- devices -------------------------------------------------------------------------------------

static int is_device(int device) { return device >= 0 && device < device_count(); }

cudaError_t cudaGetDeviceCount(int *number)
{
    *number = device_count();
    return *number ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaGetDevice(int *device)
{
    count_device_question();
    *device = chosen;
    return cudaSuccess;
}

// Since CUDA 12 this makes the context as well. It does no work, so it notices no failed kernel.
cudaError_t cudaSetDevice(int device)
{
    if (!is_device(device)) return cudaErrorInvalidDevice;
    chosen = device;
    set_context(device);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    if (!is_device(device)) return cudaErrorInvalidDevice;
    *value = device_attribute(attribute, device);
    return cudaSuccess;
}

static int figure(enum cudaDeviceAttr attribute, int device)
{
    return device_attribute(attribute, device);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    if (!is_device(device)) return cudaErrorInvalidDevice;
    size_t available;
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "driver stand-in %d (no GPU)", device);
    lock_driver();
    memory_figures(device, &available, &p->totalGlobalMem);
    unlock_driver(CUDA_SUCCESS);
    p->sharedMemPerBlock = figure(cudaDevAttrMaxSharedMemoryPerBlock, device);
    p->sharedMemPerBlockOptin = figure(cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    p->sharedMemPerMultiprocessor = figure(cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
    p->reservedSharedMemPerBlock = figure(cudaDevAttrReservedSharedMemoryPerBlock, device);
    p->regsPerBlock = figure(cudaDevAttrMaxRegistersPerBlock, device);
    p->regsPerMultiprocessor = figure(cudaDevAttrMaxRegistersPerMultiprocessor, device);
    p->warpSize = figure(cudaDevAttrWarpSize, device);
    p->maxThreadsPerBlock = figure(cudaDevAttrMaxThreadsPerBlock, device);
    p->maxThreadsPerMultiProcessor = figure(cudaDevAttrMaxThreadsPerMultiProcessor, device);
    p->maxThreadsDim[0] = figure(cudaDevAttrMaxBlockDimX, device);
    p->maxThreadsDim[1] = figure(cudaDevAttrMaxBlockDimY, device);
    p->maxThreadsDim[2] = figure(cudaDevAttrMaxBlockDimZ, device);
    p->maxGridSize[0] = figure(cudaDevAttrMaxGridDimX, device);
    p->maxGridSize[1] = figure(cudaDevAttrMaxGridDimY, device);
    p->maxGridSize[2] = figure(cudaDevAttrMaxGridDimZ, device);
    p->major = figure(cudaDevAttrComputeCapabilityMajor, device);
    p->minor = figure(cudaDevAttrComputeCapabilityMinor, device);
    p->multiProcessorCount = figure(cudaDevAttrMultiProcessorCount, device);
    p->l2CacheSize = figure(cudaDevAttrL2CacheSize, device);
    p->clockRate = figure(cudaDevAttrClockRate, device);
    p->memoryClockRate = figure(cudaDevAttrMemoryClockRate, device);
    p->memoryBusWidth = figure(cudaDevAttrGlobalMemoryBusWidth, device);
    p->asyncEngineCount = figure(cudaDevAttrAsyncEngineCount, device);
    p->totalConstMem = figure(cudaDevAttrTotalConstantMemory, device);
    p->pciBusID = figure(cudaDevAttrPciBusId, device);
    p->concurrentKernels = p->unifiedAddressing = p->canMapHostMemory = 1;
    p->cooperativeLaunch = p->streamPrioritiesSupported = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device)
{
    if (!is_device(device)) return cudaErrorInvalidDevice;
    snprintf(text, size, "0000:%02x:00.0", figure(cudaDevAttrPciBusId, device));
    return cudaSuccess;
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *text)
{
    char own[32];
    for (*device = 0; *device < device_count(); ++*device) {
        cudaDeviceGetPCIBusId(own, sizeof own, *device);
        if (strcmp(own, text) == 0) return cudaSuccess;
    }
    return cudaErrorInvalidDevice;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    if (!is_device(device) || !is_device(peer)) return cudaErrorInvalidDevice;
    *can = peer_access_possible(device, peer);
    return cudaSuccess;
}

static CUresult enable_peer(int peer)
{
    if (!is_device(peer) || peer == chosen) return CUDA_ERROR_INVALID_DEVICE;
    if (!peer_access_possible(chosen, peer)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (peer_access(chosen, peer)) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    set_peer_access(chosen, peer, 1);
    return CUDA_SUCCESS;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    return flags ? cudaErrorInvalidValue : CALL(enable_peer(peer));
}

static CUresult disable_peer(int peer)
{
    if (!is_device(peer) || !peer_access(chosen, peer)) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    set_peer_access(chosen, peer, 0);
    return CUDA_SUCCESS;
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) { return CALL(disable_peer(peer)); }

static CUresult synchronize_device(void)
{
    count(1, "synchronize device");
    return finish_device(chosen);
}

cudaError_t cudaDeviceSynchronize(void) { return CALL(synchronize_device()); }

// --- memory --------------------------------------------------------------------------------------

cudaError_t cudaMalloc(void **start, size_t size) { return CALL(allocate(chosen, size, start)); }

// Memory is closed when it is given back, so work that may use it is done first, as CUDA does it.
static CUresult release_device(void *start)
{
    if (!start) return CUDA_SUCCESS;
    const int place = place_of(start);
    if (place == PAGEABLE || place == HOST_MEMORY) return CUDA_ERROR_INVALID_VALUE;
    finish_device(place);
    return release(start);
}

cudaError_t cudaFree(void *start) { return CALL(release_device(start)); }

cudaError_t cudaHostAlloc(void **start, size_t size, unsigned flags)
{
    (void)flags;
    return CALL(allocate(HOST_MEMORY, size, start));
}

static CUresult release_host(void *start)
{
    if (start && place_of(start) != HOST_MEMORY) return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < device_count(); ++i) finish_device(i);
    return release(start);
}

cudaError_t cudaFreeHost(void *start) { return CALL(release_host(start)); }

static CUresult figures(size_t *available, size_t *total)
{
    memory_figures(chosen, available, total);
    return CUDA_SUCCESS;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    return CALL(figures(available, total));
}

// The sides that a copy was declared to have must be those it has.
static CUresult checked_copy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                             cudaStream_t handle, int blocking)
{
    struct stream *s = stream(handle);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    const int target = place_of(to), source = place_of(from);
    const int to_device = target != PAGEABLE && target != HOST_MEMORY;
    const int from_device = source != PAGEABLE && source != HOST_MEMORY;
    const int wants_to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const int wants_from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (size && kind != cudaMemcpyDefault && (to_device != wants_to || from_device != wants_from)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return copy(to, from, size, s, blocking);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind)
{
    return CALL(checked_copy(to, from, size, kind, NULL, 1));
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                            cudaStream_t handle)
{
    return CALL(checked_copy(to, from, size, kind, handle, 0));
}

static CUresult peer_copy(void *to, int target, const void *from, int source, size_t size,
                          cudaStream_t handle)
{
    if (size && (place_of(to) != target || place_of(from) != source)) return CUDA_ERROR_INVALID_VALUE;
    return checked_copy(to, from, size, cudaMemcpyDeviceToDevice, handle, 0);
}

cudaError_t cudaMemcpyPeer(void *to, int target, const void *from, int source, size_t size)
{
    return CALL(peer_copy(to, target, from, source, size, NULL));
}

cudaError_t cudaMemcpyPeerAsync(void *to, int target, const void *from, int source, size_t size,
                                cudaStream_t handle)
{
    return CALL(peer_copy(to, target, from, source, size, handle));
}

static CUresult checked_fill(void *to, int value, size_t size, cudaStream_t handle)
{
    struct stream *s = stream(handle);
    return s ? fill(to, value, size, s) : CUDA_ERROR_INVALID_HANDLE;
}

cudaError_t cudaMemset(void *to, int value, size_t size)
{
    return CALL(checked_fill(to, value, size, NULL));
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t handle)
{
    return CALL(checked_fill(to, value, size, handle));
}

static CUresult attributes(struct cudaPointerAttributes *a, const void *address)
{
    const struct allocation *held = allocation_at(address);
    *a = (struct cudaPointerAttributes){.type = cudaMemoryTypeUnregistered, .device = cudaInvalidDeviceId};
    if (!held || !held->live) return CUDA_SUCCESS;
    const int on_host = held->place == HOST_MEMORY;
    a->type = on_host ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    a->device = on_host ? chosen : held->place;
    a->devicePointer = (void *)address;
    a->hostPointer = on_host ? (void *)address : NULL;
    return CUDA_SUCCESS;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *address)
{
    return CALL(attributes(a, address));
}

// --- streams -------------------------------------------------------------------------------------

static CUresult new_stream(cudaStream_t *handle, unsigned flags, int priority)
{
    *handle = (cudaStream_t)create_stream(flags, priority);
    return CUDA_SUCCESS;
}

cudaError_t cudaStreamCreate(cudaStream_t *handle) { return CALL(new_stream(handle, 0, 0)); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *handle, unsigned flags)
{
    return CALL(new_stream(handle, flags, 0));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *handle, unsigned flags, int priority)
{
    return CALL(new_stream(handle, flags, priority));
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) { return CALL(destroy_stream(handle)); }

static CUresult read_flags(cudaStream_t handle, unsigned *flags)
{
    const struct stream *s = stream(handle);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    *flags = stream_flags(s);
    return CUDA_SUCCESS;
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned *flags)
{
    return CALL(read_flags(handle, flags));
}

static CUresult read_priority(cudaStream_t handle, int *priority)
{
    const struct stream *s = stream(handle);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    *priority = stream_priority(s);
    return CUDA_SUCCESS;
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *priority)
{
    return CALL(read_priority(handle, priority));
}

// Calls a function with a stream, or says that the handle is none.
static CUresult with_stream(cudaStream_t handle, CUresult (*call)(struct stream *))
{
    struct stream *s = stream(handle);
    return s ? call(s) : CUDA_ERROR_INVALID_HANDLE;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    return CALL(with_stream(handle, finish_stream));
}

cudaError_t cudaStreamQuery(cudaStream_t handle) { return CALL(with_stream(handle, query_stream)); }

static CUresult wait(cudaStream_t handle, cudaEvent_t event)
{
    struct stream *s = stream(handle);
    return s ? wait_for_event(s, (struct event *)event) : CUDA_ERROR_INVALID_HANDLE;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags)
{
    (void)flags;
    return CALL(wait(handle, event));
}

struct host_function {
    cudaHostFn_t call;
    void *with;
};

static CUresult run_host_function(void *closure)
{
    const struct host_function *f = closure;
    f->call(f->with);
    return CUDA_SUCCESS;
}

static CUresult queue_host_function(cudaStream_t handle, cudaHostFn_t call, void *with)
{
    struct stream *s = stream(handle);
    const struct host_function f = {call, with};
    return s ? submit(s, run_host_function, &f, sizeof f) : CUDA_ERROR_INVALID_HANDLE;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t call, void *with)
{
    return CALL(queue_host_function(handle, call, with));
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode)
{
    (void)mode;
    return CALL(with_stream(handle, begin_capture));
}

static CUresult finish_capture(cudaStream_t handle, cudaGraph_t *graph)
{
    struct stream *s = stream(handle);
    return s ? end_capture(s, (struct graph **)graph) : CUDA_ERROR_INVALID_HANDLE;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph)
{
    return CALL(finish_capture(handle, graph));
}

static CUresult read_capturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status)
{
    const struct stream *s = stream(handle);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    *status = is_capturing(s) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return CUDA_SUCCESS;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status)
{
    return CALL(read_capturing(handle, status));
}

// A graph that can be launched is the very graph: it goes when that goes.
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *made, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    *made = (cudaGraphExec_t)graph;
    return CALL(CUDA_SUCCESS);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph)
{
    (void)graph;
    return CALL(CUDA_SUCCESS);
}

static CUresult remove_graph(cudaGraph_t graph)
{
    destroy_graph((struct graph *)graph);
    return CUDA_SUCCESS;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return CALL(remove_graph(graph)); }

static CUresult start_graph(cudaGraphExec_t graph, cudaStream_t handle)
{
    struct stream *s = stream(handle);
    return s ? launch_graph((struct graph *)graph, s) : CUDA_ERROR_INVALID_HANDLE;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t handle)
{
    return CALL(start_graph(graph, handle));
}

// --- events --------------------------------------------------------------------------------------

static CUresult new_event(cudaEvent_t *event, unsigned flags)
{
    *event = (cudaEvent_t)create_event(flags);
    return CUDA_SUCCESS;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) { return CALL(new_event(event, 0)); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    return CALL(new_event(event, flags));
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    return CALL(destroy_event((struct event *)event));
}

static CUresult record(cudaEvent_t event, cudaStream_t handle)
{
    struct stream *s = stream(handle);
    return s ? record_event((struct event *)event, s) : CUDA_ERROR_INVALID_HANDLE;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle)
{
    return CALL(record(event, handle));
}

cudaError_t cudaEventQuery(cudaEvent_t event) { return CALL(query_event((struct event *)event)); }

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return CALL(finish_event((struct event *)event));
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to)
{
    return CALL(elapsed_time(milliseconds, (struct event *)from, (struct event *)to));
}

// What the parts of the driver stand-in share: device memory, streams, kernels, counts.
//
// All state lives in libcuda.so.1. The runtime (runtime_api.c, linked into CuPy's own module) and
// cuBLAS (cublas.c) are thin and call the functions below. Codes are CUresult throughout: where the
// runtime has an error of its own for a thing, its number is the same.
//
// One lock guards everything. Functions that take it are the public ones of driver_api.c,
// runtime_api.c and cublas.c; those declared here expect it to be held, unless they say otherwise.
#ifndef DRIVER_H
#define DRIVER_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORTED __attribute__((visibility("default")))
#define MOST_DEVICES 8

// --- the lock, and the error that stays ----------------------------------------------------------

EXPORTED void lock_driver(void);

// Releases the lock. The answer is the call's own result, or the error that every call gives since
// a kernel failed.
EXPORTED CUresult unlock_driver(CUresult result);

// Runs one expression under the lock; its value is the call's result.
#define LOCKED(expression) (lock_driver(), unlock_driver(expression))

// From now on every call fails with this error, until the process ends.
void break_driver(CUresult error);

EXPORTED const char *driver_error_name(CUresult error);
EXPORTED const char *runtime_error_name(CUresult error);
EXPORTED const char *error_text(CUresult error);

// --- counts --------------------------------------------------------------------------------------

// Adds to the count of a name, such as "launch softmax_rows".
EXPORTED void count(uint64_t amount, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Counts a call that asks which device is current; it takes no lock, as there may be thousands.
EXPORTED void count_device_question(void);

// --- devices (driver_api.c) ----------------------------------------------------------------------

EXPORTED int device_count(void);

// The device whose context the calling thread has, or -1 where it has none.
EXPORTED int context_device(void);

// Makes the context of a device the calling thread's; -1 takes it away.
EXPORTED void set_context(int device);

// What cuDeviceGetAttribute answers.
EXPORTED int device_attribute(int attribute, int device);

// Whether kernels of one device may use memory of another.
EXPORTED int peer_access(int from, int to);
EXPORTED int peer_access_possible(int from, int to);
EXPORTED void set_peer_access(int from, int to, int allowed);

// --- memory (memory.c) ---------------------------------------------------------------------------

enum { HOST_MEMORY = MOST_DEVICES, PAGEABLE = -1 };

struct allocation {
    char *start;
    size_t size;
    int place;  // the device's number, or HOST_MEMORY where it is page-locked
    int live;
};

// Fresh memory holds 0xFF bytes. The page behind it can be neither read nor written, and neither
// can it be once it is free: no address is ever given out a second time.
EXPORTED CUresult allocate(int place, size_t size, void **start);
EXPORTED CUresult release(void *start);

// The allocation that an address lies in, freed ones too, or null.
EXPORTED const struct allocation *allocation_at(const void *address);

// The number of the device whose addresses include this one, HOST_MEMORY, or PAGEABLE.
EXPORTED int place_of(const void *address);

// Whether a range may be copied: all of it in one live allocation, or in ordinary host memory.
EXPORTED int is_whole(const void *address, size_t size);

EXPORTED void memory_figures(int device, size_t *available, size_t *total);

// --- streams (streams.c) -------------------------------------------------------------------------

struct stream;
struct event;
struct graph;

// The stream behind a handle, for the calling thread's device; null where there is none such.
// Handles 0 and 1 are the legacy default stream, 2 the default stream of a thread.
EXPORTED struct stream *stream_of(void *handle);
EXPORTED struct stream *create_stream(unsigned flags, int priority);
EXPORTED CUresult destroy_stream(void *handle);
EXPORTED int stream_device(const struct stream *stream);
EXPORTED unsigned stream_flags(const struct stream *stream);
EXPORTED int stream_priority(const struct stream *stream);

// Queues work: `run` is called with a copy of the closure when the stream comes to it, with the
// lock held. A result other than CUDA_SUCCESS breaks the driver.
EXPORTED CUresult submit(struct stream *stream, CUresult (*run)(void *closure), const void *closure,
                         size_t size);

// Runs work until a stream, or every stream of a device, has none left.
EXPORTED CUresult finish_stream(struct stream *stream);
EXPORTED CUresult finish_device(int device);

// CUDA_SUCCESS where a stream has nothing left to do, else CUDA_ERROR_NOT_READY; some work is done
// at each such question, so that who asks again and again gets through.
EXPORTED CUresult query_stream(struct stream *stream);

EXPORTED struct event *create_event(unsigned flags);
EXPORTED CUresult destroy_event(struct event *event);
EXPORTED CUresult record_event(struct event *event, struct stream *stream);
EXPORTED CUresult wait_for_event(struct stream *stream, struct event *event);
EXPORTED CUresult query_event(struct event *event);
EXPORTED CUresult finish_event(struct event *event);
EXPORTED CUresult elapsed_time(float *milliseconds, struct event *from, struct event *to);

// A captured stream runs nothing: what is queued becomes the graph's.
EXPORTED CUresult begin_capture(struct stream *stream);
EXPORTED CUresult end_capture(struct stream *stream, struct graph **graph);
EXPORTED int is_capturing(const struct stream *stream);
EXPORTED CUresult launch_graph(struct graph *graph, struct stream *stream);
EXPORTED void destroy_graph(struct graph *graph);

// Copies and fills. `blocking` copies end before the call does where the host is one of the sides.
EXPORTED CUresult copy(void *to, const void *from, size_t size, struct stream *stream, int blocking);
EXPORTED CUresult fill(void *to, int value, size_t size, struct stream *stream);

// --- kernels (modules.c) -------------------------------------------------------------------------

struct module;
struct function;

// A kernel compiled for the host, as lucid_gpu/launch/host.py does it.
typedef int (*host_kernel)(void **arguments, char *stacks, unsigned grid_x, unsigned grid_y,
                           unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                           unsigned shared, unsigned order);

// Finds what runs in place of a kernel of an image; 0 where there is nothing. `stack` is what a
// thread that cooperates with others of its block needs, 0 where none do. Called without the lock.
typedef int (*compiler)(const void *image, size_t size, const char *name, host_kernel *kernel,
                        size_t *stack);

// Neither takes nor needs the lock, since the compiler is Python.
CUresult load_module(const void *image, size_t size, int device, struct module **module);
CUresult find_function(struct module *module, const char *name, struct function **function);

struct extent {
    unsigned x, y, z;
};

CUresult launch(struct function *function, struct extent grid, struct extent block, unsigned shared,
                struct stream *stream, void **arguments);
CUresult function_attribute(const struct function *function, int attribute, int *value);
CUresult set_function_attribute(struct function *function, int attribute, int value);
const char *last_kernel(void);  // the name of the one that ran last
int active_blocks(const struct function *function, int threads, size_t shared);

#endif

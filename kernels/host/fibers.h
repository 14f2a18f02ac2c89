// Threads of a block that cooperate: one fiber a thread, switched at __syncthreads and shuffles.
//
// A barrier opens when every thread of the block has come to it, a shuffle when every thread of the
// warp has. Threads that part ways, which would hang or be undefined on a GPU, are an error.
#ifndef LUCID_FIBERS_H
#define LUCID_FIBERS_H

#include <setjmp.h>
#include <stdlib.h>
#include <ucontext.h>

enum lucid_state { LUCID_READY, LUCID_AT_SHUFFLE, LUCID_AT_BARRIER, LUCID_DONE };

struct lucid_fiber {
    lucid_state state;
    bool started;
    int shuffles;                  // so far; two places in turn hold the values exchanged
    unsigned long long place[2];
    jmp_buf here;
    ucontext_t start;
};

enum { LUCID_FIBER_STACK = 64 * 1024 };

static lucid_fiber* lucid_fibers;
static int lucid_running;
static jmp_buf lucid_scheduler;
static void (*lucid_body)();

inline void lucid_wait(lucid_state state)
{
    lucid_fiber& fiber = lucid_fibers[lucid_running];
    fiber.state = state;
    if (!_setjmp(fiber.here)) _longjmp(lucid_scheduler, 1);
}

inline void __syncthreads() { lucid_wait(LUCID_AT_BARRIER); }

template <typename T>
inline T __shfl_down_sync(unsigned, T value, int step, int width)
{
    const int me = lucid_running, turn = lucid_fibers[me].shuffles++ & 1;
    __builtin_memcpy(&lucid_fibers[me].place[turn], &value, sizeof(T));
    lucid_wait(LUCID_AT_SHUFFLE);
    const int other = me % width + step < width ? me + step : me;
    __builtin_memcpy(&value, &lucid_fibers[other].place[turn], sizeof(T));
    return value;
}

static void lucid_enter()
{
    lucid_body();
    lucid_fibers[lucid_running].state = LUCID_DONE;
    _longjmp(lucid_scheduler, 1);
}

// Runs a fiber until it waits or ends.
static void lucid_resume(int number)
{
    lucid_fiber& fiber = lucid_fibers[number];
    lucid_running = number;
    threadIdx = {number % blockDim.x, number / blockDim.x, 0};
    if (_setjmp(lucid_scheduler)) return;
    if (fiber.started) _longjmp(fiber.here, 1);
    fiber.started = true;
    setcontext(&fiber.start);
}

// Runs one warp until all its threads wait for the block or have ended; false if they part.
static bool lucid_run_warp(int first, int last)
{
    for (;;) {
        int at[4] = {0, 0, 0, 0};
        for (int i = first; i < last; ++i) {
            if (lucid_fibers[i].state == LUCID_READY) lucid_resume(i);
            ++at[lucid_fibers[i].state];
        }
        if (at[LUCID_AT_SHUFFLE] == 0) return true;
        if (at[LUCID_AT_SHUFFLE] != last - first) return false;
        for (int i = first; i < last; ++i) lucid_fibers[i].state = LUCID_READY;
    }
}

static bool lucid_run_block(int threads)
{
    for (;;) {
        for (int first = 0; first < threads; first += 32)
            if (!lucid_run_warp(first, first + 32 < threads ? first + 32 : threads)) return false;
        int waiting = 0;
        for (int i = 0; i < threads; ++i) waiting += lucid_fibers[i].state == LUCID_AT_BARRIER;
        if (waiting == 0) return true;
        if (waiting != threads) return false;
        for (int i = 0; i < threads; ++i) lucid_fibers[i].state = LUCID_READY;
    }
}

static void lucid_make_fiber(lucid_fiber& fiber, char* stack)
{
    fiber.state = LUCID_READY;
    fiber.started = false;
    fiber.shuffles = 0;
    getcontext(&fiber.start);
    fiber.start.uc_stack.ss_sp = stack;
    fiber.start.uc_stack.ss_size = LUCID_FIBER_STACK;
    fiber.start.uc_link = nullptr;
    makecontext(&fiber.start, lucid_enter, 0);
}

// 0, or 1 where memory is short, 2 where threads of a block parted at a barrier or shuffle.
template <typename K>
inline int lucid_host_grid(K kernel, void** arguments)
{
    static K the_kernel;
    static void** the_arguments;
    the_kernel = kernel;
    the_arguments = arguments;
    lucid_body = [] { lucid_host_thread(the_kernel, the_arguments); };
    const int threads = blockDim.x * blockDim.y;
    lucid_fibers = (lucid_fiber*)malloc(threads * sizeof(lucid_fiber));
    char* stacks = (char*)malloc((size_t)threads * LUCID_FIBER_STACK);
    int failure = lucid_fibers && stacks ? 0 : 1;
    for (blockIdx.y = 0; !failure && blockIdx.y < gridDim.y; ++blockIdx.y)
        for (blockIdx.x = 0; !failure && blockIdx.x < gridDim.x; ++blockIdx.x) {
            for (int i = 0; i < threads; ++i)
                lucid_make_fiber(lucid_fibers[i], stacks + (size_t)i * LUCID_FIBER_STACK);
            if (!lucid_run_block(threads)) failure = 2;
        }
    free(stacks);
    free(lucid_fibers);
    return failure;
}

#endif

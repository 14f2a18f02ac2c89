// Threads of a block that cooperate: one fiber a thread, switched at barriers and warp operations.
//
// A barrier opens when every thread of the block has come to it, a warp operation when every lane
// its mask names has come to that operation with that mask. As on a GPU, nobody waits for threads
// that have ended. Threads that part ways, which would hang or be undefined there, are an error.
// Fibers are made once a launch and run block after block, so that a block of 1024 threads costs a
// thousand longjmps.
#ifndef LUCID_FIBERS_H
#define LUCID_FIBERS_H

#include <setjmp.h>
#include <ucontext.h>

enum lucid_host_state { LUCID_READY, LUCID_AT_WARP, LUCID_AT_BARRIER, LUCID_DONE };
enum lucid_host_operation {
    LUCID_BARRIER, LUCID_SYNCWARP, LUCID_SHUFFLE, LUCID_VOTE, LUCID_MATCH
};

struct lucid_host_fiber {
    lucid_host_state state;
    lucid_host_operation operation;     // the one it waits at
    unsigned mask;                 // of the lanes it waits for
    unsigned there;                // of these, those that came
    unsigned long long offered[2];  // what it brings to an operation
    unsigned long long given[2];    // the same once the operation is open: others read it here
    jmp_buf here;
    bool started;
    ucontext_t start;
};

static lucid_host_fiber* lucid_host_fibers;
static int lucid_host_threads;  // of a block
static int lucid_host_there;    // of these, those that came to the barrier
static int lucid_host_running;
static jmp_buf lucid_host_scheduler;
static void (*lucid_host_body)();

static lucid_host_fiber& lucid_host_me() { return lucid_host_fibers[lucid_host_running]; }
static int lucid_host_first_lane() { return lucid_host_running & ~31; }

// The lanes of a mask that the warp has: the last warp of a block may be short.
static unsigned lucid_host_lanes(unsigned mask)
{
    const int lanes = lucid_host_threads - lucid_host_first_lane();
    return lanes < 32 ? mask & ((1u << lanes) - 1) : mask;
}

static void lucid_host_wait(lucid_host_state state, lucid_host_operation operation, unsigned mask)
{
    lucid_host_fiber& fiber = lucid_host_me();
    fiber.state = state;
    fiber.operation = operation;
    fiber.mask = mask;
    if (!_setjmp(fiber.here)) _longjmp(lucid_host_scheduler, 1);
}

template <typename T>
inline void lucid_host_offer(const T& value)
{
    static_assert(sizeof(T) <= 16, "more than a shuffle moves");
    __builtin_memcpy(lucid_host_me().offered, &value, sizeof(T));
}

template <typename T>
inline T lucid_host_given(int thread)
{
    T value;
    __builtin_memcpy(&value, lucid_host_fibers[thread].given, sizeof(T));
    return value;
}

// --- barriers of a block -------------------------------------------------------------------------

inline void __syncthreads() { lucid_host_wait(LUCID_AT_BARRIER, LUCID_BARRIER, 0); }

inline int __syncthreads_count(int predicate)
{
    lucid_host_offer(predicate);
    __syncthreads();
    int count = 0;
    for (int i = 0; i < lucid_host_threads; ++i) count += lucid_host_given<int>(i) != 0;
    return count;
}

inline int __syncthreads_or(int predicate) { return __syncthreads_count(predicate) != 0; }
inline int __syncthreads_and(int predicate)
{
    return __syncthreads_count(predicate) == lucid_host_there;
}

// --- operations of a warp ------------------------------------------------------------------------

inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    lucid_host_wait(LUCID_AT_WARP, LUCID_SYNCWARP, lucid_host_lanes(mask));
}

// Lanes are counted inside a group of `width`; `from` says which of the group, or -1 for this one.
template <typename T>
inline T lucid_host_shuffle(unsigned mask, T value, int from, int width)
{
    const int lane = lucid_host_running & 31, group = lane & ~(width - 1);
    lucid_host_offer(value);
    lucid_host_wait(LUCID_AT_WARP, LUCID_SHUFFLE, lucid_host_lanes(mask));
    const int source = from < 0 || from >= width ? lane : group + from;
    // From a lane that takes no part the value is undefined: make that seen.
    if (!(lucid_host_me().there >> source & 1)) {
        __builtin_memset(&value, 0xff, sizeof(T));
        return value;
    }
    return lucid_host_given<T>(lucid_host_first_lane() + source);
}

inline int lucid_host_lane_of(int width) { return lucid_host_running & (width - 1); }

template <typename T>
inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32)
{
    return lucid_host_shuffle(mask, value, lane & (width - 1), width);
}

template <typename T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned step, int width = 32)
{
    return lucid_host_shuffle(mask, value, lucid_host_lane_of(width) - (int)step, width);
}

template <typename T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned step, int width = 32)
{
    return lucid_host_shuffle(mask, value, lucid_host_lane_of(width) + (int)step, width);
}

template <typename T>
inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32)
{
    return lucid_host_shuffle(mask, value, lucid_host_lane_of(width) ^ bits, width);
}

inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    lucid_host_offer(predicate);
    lucid_host_wait(LUCID_AT_WARP, LUCID_VOTE, lucid_host_lanes(mask));
    const unsigned lanes = lucid_host_me().there;
    unsigned found = 0;
    for (int i = 0; i < 32; ++i)
        if (lanes >> i & 1 && lucid_host_given<int>(lucid_host_first_lane() + i)) found |= 1u << i;
    return found;
}

inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) == lucid_host_me().there;
}

template <typename T>
inline unsigned __match_any_sync(unsigned mask, T value)
{
    lucid_host_offer(value);
    lucid_host_wait(LUCID_AT_WARP, LUCID_MATCH, lucid_host_lanes(mask));
    const unsigned lanes = lucid_host_me().there;
    unsigned found = 0;
    for (int i = 0; i < 32; ++i)
        if (lanes >> i & 1 && lucid_host_given<T>(lucid_host_first_lane() + i) == value)
            found |= 1u << i;
    return found;
}

// --- scheduling ----------------------------------------------------------------------------------

static void lucid_host_enter()
{
    for (;;) {  // a turn is one block
        lucid_host_body();
        lucid_host_wait(LUCID_DONE, LUCID_BARRIER, 0);
    }
}

// Runs a fiber until it waits or ends.
static void lucid_host_resume(int number)
{
    lucid_host_fiber& fiber = lucid_host_fibers[number];
    lucid_host_running = number;
    threadIdx = lucid_host_thread(number);
    if (_setjmp(lucid_host_scheduler)) return;
    if (fiber.started) _longjmp(fiber.here, 1);
    fiber.started = true;
    setcontext(&fiber.start);
}

static void lucid_host_open(lucid_host_fiber& fiber)
{
    fiber.state = LUCID_READY;
    fiber.given[0] = fiber.offered[0];
    fiber.given[1] = fiber.offered[1];
}

// Opens the warp operations all of whose lanes have come to them; false if there is none.
static bool lucid_host_open_warp(lucid_host_fiber* warp, int lanes)
{
    bool opened = false;
    for (int i = 0; i < lanes; ++i) {
        if (warp[i].state != LUCID_AT_WARP) continue;
        const unsigned mask = warp[i].mask;
        bool complete = mask >> i & 1;
        unsigned there = 0;
        for (int k = 0; complete && k < lanes; ++k) {
            if (!(mask >> k & 1) || warp[k].state == LUCID_DONE) continue;
            there |= 1u << k;
            complete = warp[k].state == LUCID_AT_WARP && warp[k].mask == mask &&
                       warp[k].operation == warp[i].operation;
        }
        if (!complete) continue;
        for (int k = 0; k < lanes; ++k) {
            if (!(there >> k & 1)) continue;
            warp[k].there = there;
            lucid_host_open(warp[k]);
        }
        opened = true;
    }
    return opened;
}

// Runs one warp until all its threads wait for the block or have ended; false if they part.
static bool lucid_host_run_warp(int first, int lanes)
{
    lucid_host_fiber* const warp = lucid_host_fibers + first;
    for (;;) {
        bool waiting = false;
        lucid_host_each(lanes, [&](int i) {
            if (warp[i].state == LUCID_READY) lucid_host_resume(first + i);
            waiting |= warp[i].state == LUCID_AT_WARP;
        });
        if (!waiting) return true;
        if (!lucid_host_open_warp(warp, lanes)) return false;
    }
}

static bool lucid_host_run_block()
{
    for (;;) {
        bool together = true;
        lucid_host_each((lucid_host_threads + 31) / 32, [&](int number) {
            const int left = lucid_host_threads - 32 * number;
            if (together) together = lucid_host_run_warp(32 * number, left < 32 ? left : 32);
        });
        if (!together) return false;
        int waiting = 0, ended = 0;
        for (int i = 0; i < lucid_host_threads; ++i) {
            waiting += lucid_host_fibers[i].state == LUCID_AT_BARRIER;
            ended += lucid_host_fibers[i].state == LUCID_DONE;
        }
        if (waiting + ended != lucid_host_threads) return false;
        lucid_host_there = waiting;
        for (int i = 0; i < lucid_host_threads; ++i) {
            lucid_host_fiber& fiber = lucid_host_fibers[i];
            if (waiting == 0 || fiber.state == LUCID_AT_BARRIER)
                lucid_host_open(fiber);
            else
                fiber.given[0] = 0;  // of no count
        }
        if (waiting == 0) return true;
    }
}

// A context is saved by a system call; fibers differ in their stacks only.
static void lucid_host_make_fibers(char* stacks)
{
    static ucontext_t common;
    getcontext(&common);
    for (int i = 0; i < lucid_host_threads; ++i) {
        lucid_host_fiber& fiber = lucid_host_fibers[i];
        fiber.state = LUCID_READY;
        fiber.started = false;
        fiber.start = common;
        fiber.start.uc_stack.ss_sp = stacks + (size_t)i * LUCID_FIBER_STACK;
        fiber.start.uc_stack.ss_size = LUCID_FIBER_STACK;
        fiber.start.uc_link = nullptr;
        makecontext(&fiber.start, lucid_host_enter, 0);
    }
}

// 0, or 1 where threads of a block parted at a barrier or a warp operation.
template <typename K>
inline int lucid_host_grid(K kernel, void** arguments, char* stacks, unsigned shared)
{
    static K the_kernel;
    static void** the_arguments;
    static lucid_host_fiber fibers[1024];
    the_kernel = kernel;
    the_arguments = arguments;
    lucid_host_body = [] { lucid_host_thread(the_kernel, the_arguments); };
    lucid_host_threads = blockDim.x * blockDim.y * blockDim.z;
    lucid_host_fibers = fibers;
    lucid_host_make_fibers(stacks);
    bool together = true;
    lucid_host_each_block(shared, [&] {
        if (together) together = lucid_host_run_block();
    });
    return together ? 0 : 1;
}

#endif

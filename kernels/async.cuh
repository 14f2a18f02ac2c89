// Copies from global to shared memory that go on while a thread computes (cp.async, from sm_80 on;
// elsewhere they are over at once). `lucid_copies_wait` waits for those the calling thread began: a
// barrier after it tells that all threads' copies have arrived.
#ifndef LUCID_ASYNC_CUH
#define LUCID_ASYNC_CUH

#include "types.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define LUCID_ASYNC 1
#else
#define LUCID_ASYNC 0
#endif

#ifndef __CUDA_ARCH__
// On the host half of the copies are made at once and half when they are waited for: a kernel that
// waits too late or fills too early is wrong in either half.
struct lucid_awaited {
    char* to;
    const char* from;
    int bytes, taken;
};
static lucid_awaited lucid_copies[1024][64];
static int lucid_copies_begun[1024];

LUCID_HOST_UNSEEN void lucid_make_copy(const lucid_awaited& copy)
{
    for (int i = 0; i < copy.bytes; ++i) copy.to[i] = copy.taken ? copy.from[i] : 0;
}
#endif

// BYTES (4, 8 or 16, to and from multiples of as many), or zeros in their place.
template <int BYTES>
LUCID_FN void lucid_copy(void* to, const void* from, bool taken)
{
#if LUCID_ASYNC
    const unsigned place = (unsigned)__cvta_generic_to_shared(to);
    const int bytes = taken ? BYTES : 0;
    if constexpr (BYTES == 16)  // past the first-level cache
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :: "r"(place), "l"(from), "r"(bytes) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                     :: "r"(place), "l"(from), "n"(BYTES), "r"(bytes) : "memory");
#elif defined(__CUDA_ARCH__)
    if constexpr (BYTES == 16)
        *(uint4*)to = taken ? __ldg((const uint4*)from) : uint4{0, 0, 0, 0};
    else if constexpr (BYTES == 8)
        *(uint2*)to = taken ? __ldg((const uint2*)from) : uint2{0, 0};
    else
        *(unsigned*)to = taken ? __ldg((const unsigned*)from) : 0u;
#else
    const lucid_awaited copy = {(char*)to, (const char*)from, BYTES, taken};
    if (taken) lucid_host_access(from, BYTES, false);
    lucid_host_access(to, BYTES, true);
    int& begun = lucid_copies_begun[threadIdx.x];
    if (begun < 64 && ((unsigned long long)to / BYTES + threadIdx.x) % 2)
        lucid_copies[threadIdx.x][begun++] = copy;
    else
        lucid_make_copy(copy);
#endif
}

LUCID_FN void lucid_copies_wait()
{
#if LUCID_ASYNC
    asm volatile("cp.async.wait_all;" ::: "memory");
#elif !defined(__CUDA_ARCH__)
    int& begun = lucid_copies_begun[threadIdx.x];
    for (int i = 0; i < begun; ++i) lucid_make_copy(lucid_copies[threadIdx.x][i]);
    begun = 0;
#endif
}

// After the wait and before the barrier: wgmma sees what has arrived. It reads shared memory by
// another way (PTX ISA, "Async proxy").
LUCID_FN void lucid_copies_to_products()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

#endif

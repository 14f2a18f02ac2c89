// Reductions over the threads of a warp or of a block, whose result every thread gets, and the sums
// of what stands before each thread.
//
// Blocks are one-dimensional, of 32 to 1024 threads, whole warps. All threads of the warp (or block)
// take part: no thread has returned, and the call stands in no branch that only some of them take.
// A warp reduces by exchanges (a butterfly), the warps of a block through shared memory; the order
// is fixed, so the same values give the same bits. A block's reduction costs two barriers.
#ifndef LUCID_BLOCK_CUH
#define LUCID_BLOCK_CUH

#include "types.cuh"

// --- what is merged ------------------------------------------------------------------------------

struct lucid_add {
    template <typename T> LUCID_FN T operator()(T a, T b) const { return a + b; }
};

// NaN wins, whichever side it is on.
struct lucid_greater {
    template <typename T> LUCID_FN T operator()(T a, T b) const { return a >= b || a != a ? a : b; }
};
struct lucid_smaller {
    template <typename T> LUCID_FN T operator()(T a, T b) const { return a <= b || a != a ? a : b; }
};

// Two sums at once.
template <typename T>
struct lucid_pair {
    T first, second;
    LUCID_FN lucid_pair operator+(const lucid_pair& b) const
    {
        return {first + b.first, second + b.second};
    }
};

// The largest number so far and the sum of exp(x - top): Milakov and Gimelshein, "Online normalizer
// calculation for softmax" (2018), algorithm 3. Start from {lucid_lowest<T>(), 0}: the lowest finite
// number, because -inf - -inf would be NaN.
template <typename T>
struct lucid_online {
    T top, sum;
    LUCID_FN void take(T x)
    {
        if (x <= top) {
            sum += exp(x - top);
        } else {  // also NaN, which stays; x - x makes one of infinity
            sum = sum * exp(top - x) + (1 + (x - x));
            top = x;
        }
    }
    LUCID_FN lucid_online operator+(const lucid_online& b) const
    {
        const T highest = lucid_greater()(top, b.top);
        return {highest, sum * exp(top - highest) + b.sum * exp(b.top - highest)};
    }
    LUCID_FN T logarithm() const { return top + log(sum); }
};

// Count, mean and sum of squared distances from the mean: Welford (1962) for one number more, Chan,
// Golub and LeVeque, "Updating formulae and a pairwise algorithm" (1979), eq. 2.1, for two groups.
// Start from {0, 0, 0}.
template <typename T>
struct lucid_welford {
    T count, mean, spread;
    LUCID_FN void take(T x)
    {
        const T apart = x - mean;
        count += 1;
        mean += apart / count;
        spread += apart * (x - mean);
    }
    LUCID_FN lucid_welford operator+(const lucid_welford& b) const
    {
        const T all = count + b.count, apart = b.mean - mean;
        const T share = all > 0 ? b.count / all : (T)0;
        return {all, mean + apart * share, spread + b.spread + apart * apart * count * share};
    }
};

// The lowest finite number.
template <typename T>
LUCID_FN T lucid_lowest()
{
    if constexpr (sizeof(T) == 8) return (T)-1.7976931348623157e308;
    else return (T)-3.402823466e38f;
}

// --- the walk ------------------------------------------------------------------------------------

// A value of the thread whose number in the warp differs in the bits of `mask`; V is a number or a
// plain structure of whole 4-byte words.
template <typename V>
LUCID_FN V lucid_shuffle_xor(V value, int mask)
{
    union {
        V value;
        unsigned word[sizeof(V) / 4];
    } mine, other;
    mine.value = value;
    #pragma unroll
    for (int k = 0; k < (int)(sizeof(V) / 4); ++k)
        other.word[k] = __shfl_xor_sync(0xffffffffu, mine.word[k], mask);
    return other.value;
}

// Over each group of LANES neighboring threads, a power of two of at most 32. The lower thread's
// value stands left, so that all threads get the same bits even from a merge that rounds unevenly.
template <int LANES = 32, typename V, typename Merge>
LUCID_FN V lucid_warp_merge(V value, Merge merge)
{
    #pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) {
        const V other = lucid_shuffle_xor(value, step);
        value = threadIdx.x & step ? merge(other, value) : merge(value, other);
    }
    return value;
}

// Over the block. `neutral` changes nothing that it is merged with.
template <typename V, typename Merge>
LUCID_FN V lucid_block_merge(V value, Merge merge, V neutral)
{
    value = lucid_warp_merge(value, merge);
    if (blockDim.x <= 32) return value;
    __shared__ V of_warp[32];
    const int lane = threadIdx.x % 32;
    __syncthreads();  // the reduction before this one may still be read
    if (lane == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    return lucid_warp_merge(lane < (int)blockDim.x / 32 ? of_warp[lane] : neutral, merge);
}

// --- the reductions ------------------------------------------------------------------------------

// Sums of numbers, pairs, online softmaxes or Welfords over a warp or part of one.
template <int LANES = 32, typename V>
LUCID_FN V lucid_warp_sum(V value)
{
    return lucid_warp_merge<LANES>(value, lucid_add());
}

template <int LANES = 32, typename T>
LUCID_FN T lucid_warp_max(T value)
{
    return lucid_warp_merge<LANES>(value, lucid_greater());
}

template <int LANES = 32, typename T>
LUCID_FN T lucid_warp_min(T value)
{
    return lucid_warp_merge<LANES>(value, lucid_smaller());
}

template <typename T>
LUCID_FN T lucid_block_sum(T value)
{
    return lucid_block_merge(value, lucid_add(), (T)0);
}

template <typename T>
LUCID_FN lucid_pair<T> lucid_block_sum(lucid_pair<T> value)
{
    return lucid_block_merge(value, lucid_add(), lucid_pair<T>{0, 0});
}

template <typename T>
LUCID_FN lucid_online<T> lucid_block_sum(lucid_online<T> value)
{
    return lucid_block_merge(value, lucid_add(), lucid_online<T>{lucid_lowest<T>(), 0});
}

template <typename T>
LUCID_FN lucid_welford<T> lucid_block_sum(lucid_welford<T> value)
{
    return lucid_block_merge(value, lucid_add(), lucid_welford<T>{0, 0, 0});
}

// A value that every block has anyway is neutral to a maximum: the thread's own.
template <typename T>
LUCID_FN T lucid_block_max(T value)
{
    return lucid_block_merge(value, lucid_greater(), value);
}

template <typename T>
LUCID_FN T lucid_block_min(T value)
{
    return lucid_block_merge(value, lucid_smaller(), value);
}

// --- running sums ---------------------------------------------------------------------------------

// The sums over the lanes up to this one (Kogge and Stone, 1973).
template <typename A>
LUCID_FN A lucid_warp_scan(A value)
{
    #pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const A before = __shfl_up_sync(0xffffffffu, value, step);
        if (threadIdx.x % 32 >= step) value = before + value;
    }
    return value;
}

// The sum over the threads before this one, in a warp or, with WARPS > 1, in a block of that many;
// `total` becomes the sum over all.
template <int WARPS, typename A>
LUCID_FN A lucid_sum_before(A value, A& total)
{
    const int lane = threadIdx.x % 32;
    const A inclusive = lucid_warp_scan(value);
    A before = __shfl_up_sync(0xffffffffu, inclusive, 1);
    if (lane == 0) before = 0;
    if constexpr (WARPS == 1) {
        total = __shfl_sync(0xffffffffu, inclusive, 31);
        return before;
    } else {
        __shared__ A of_warp[WARPS];
        const int warp = threadIdx.x / 32;
        __syncthreads();  // those of the tile before may still be read
        if (lane == 31) of_warp[warp] = inclusive;
        __syncthreads();
        A all = 0, warps_before = 0;
        #pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            if (w == warp) warps_before = all;
            all += of_warp[w];
        }
        total = all;
        return warps_before + before;
    }
}

// --- over blocks ----------------------------------------------------------------------------------

// Whether this block is the last of `blocks` to come here; if so, it sees what all of them wrote.
//
// All threads of a block call it. The ordering is that of threadFenceReduction (CUDA C++ Programming
// Guide, "Memory Fence Functions"): the barrier puts the block's writes before thread 0's fence, and
// the fence before its ticket, so that who takes a later ticket, and passes a fence and a barrier of
// its own, sees them. What is read then was written by this kernel: never by __ldg nor __restrict__.
// atomicInc turns to 0 with the last ticket: the counter is ready for the stream's next launch. Only
// a kernel that fails leaves it otherwise, and after one of those CUDA runs no other.
LUCID_FN bool lucid_is_last_block(unsigned* counter, unsigned blocks)
{
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) {
        __threadfence();
        last = atomicInc(counter, blocks - 1) == blocks - 1;
        if (last) __threadfence();
    }
    __syncthreads();
    return last;
}

#endif

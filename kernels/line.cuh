// A row of memory and the group of threads that works on it: LANES neighboring threads of a warp, a
// power of two, or the whole block where LANES is 0. Blocks are one-dimensional.
#ifndef LUCID_LINE_CUH
#define LUCID_LINE_CUH

#include "block.cuh"
#include "pack.cuh"

// --- the group -----------------------------------------------------------------------------------

template <int LANES>
LUCID_FN int lucid_lane()
{
    if constexpr (LANES == 0) return threadIdx.x;
    else return threadIdx.x % LANES;
}

template <int LANES>
LUCID_FN int lucid_lanes()
{
    if constexpr (LANES == 0) return blockDim.x;
    else return LANES;
}

// The group's number among all groups, and how many there are.
template <int LANES>
LUCID_FN long long lucid_group()
{
    if constexpr (LANES == 0) return blockIdx.x;
    else return (long long)blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES;
}

template <int LANES>
LUCID_FN long long lucid_groups()
{
    if constexpr (LANES == 0) return gridDim.x;
    else return (long long)gridDim.x * (blockDim.x / LANES);
}

template <int LANES, typename V>
LUCID_FN V lucid_group_sum(V value)
{
    if constexpr (LANES == 0) return lucid_block_sum(value);
    else return lucid_warp_sum<LANES>(value);
}

template <int LANES, typename T>
LUCID_FN T lucid_group_max(T value)
{
    if constexpr (LANES == 0) return lucid_block_max(value);
    else return lucid_warp_max<LANES>(value);
}

// --- a row that the group holds in registers, ITEMS packs a thread --------------------------------

template <typename T, int W, int ITEMS, int LANES>
struct lucid_held {
    lucid_pack<T, W> pack[ITEMS];

    // Where a pack stands in the row; `columns` is a multiple of W.
    LUCID_FN static int at(int item) { return (lucid_lane<LANES>() + item * lucid_lanes<LANES>()) * W; }

    // All loads before the first use.
    LUCID_FN void load(const T* row, int columns)
    {
        #pragma unroll
        for (int i = 0; i < ITEMS; ++i)
            if (at(i) < columns) pack[i] = lucid_load<W>(row + at(i));
    }

    LUCID_FN void store(T* row, int columns) const
    {
        #pragma unroll
        for (int i = 0; i < ITEMS; ++i)
            if (at(i) < columns) lucid_store<W>(row + at(i), pack[i]);
    }

    // function(item, k, column) for each element this thread holds.
    template <typename F>
    LUCID_FN static void each(int columns, F function)
    {
        #pragma unroll
        for (int i = 0; i < ITEMS; ++i)
            if (at(i) < columns) {
                #pragma unroll
                for (int k = 0; k < W; ++k) function(i, k, at(i) + k);
            }
    }
};

// --- a row of any length --------------------------------------------------------------------------

// work.at<N>(column) for the columns from `first` up to `last`, N of them at a time: W where the
// address row + column is aligned for it, 1 at the ragged ends. A walk BACK begins with what a walk
// before it read last, which the caches still have.
template <int W, int LANES, bool BACK = false, typename T, typename Work>
LUCID_FN void lucid_walk(const T* row, int first, int last, Work& work)
{
    const int lane = lucid_lane<LANES>(), lanes = lucid_lanes<LANES>();
    if constexpr (W == 1) {
        #pragma unroll 4
        for (int c = lane; c < last - first; c += lanes)
            work.template at<1>(BACK ? last - 1 - c : first + c);
    } else {
        const int past = (int)((unsigned long long)(row + first) / sizeof(T) % W);
        const int head = min(last, first + (W - past) % W);
        const int packs = (last - head) / W, tail = head + packs * W;
        for (int c = first + lane; c < head; c += lanes) work.template at<1>(c);
        #pragma unroll 4
        for (int p = lane; p < packs; p += lanes)
            work.template at<W>(head + (BACK ? packs - 1 - p : p) * W);
        for (int c = tail + lane; c < last; c += lanes) work.template at<1>(c);
    }
}

// A pack of the row joins an online softmax: one exponential more than it has elements.
template <typename R, typename T, int W>
LUCID_FN void lucid_take(lucid_online<R>& online, const lucid_pack<T, W>& pack)
{
    R highest = online.top;
    #pragma unroll
    for (int k = 0; k < W; ++k) highest = lucid_greater()(highest, lucid_cast<R>(pack[k]));
    R sum = online.sum * exp(online.top - highest);
    #pragma unroll
    for (int k = 0; k < W; ++k) sum += exp(lucid_cast<R>(pack[k]) - highest);
    online = {highest, sum};
}

// --- a line of elements that stand apart ----------------------------------------------------------

// Along a dimension of `columns` elements, `inner` apart in memory. A block works on 32 neighboring
// lines; a thread of warp w has the elements w, w + warps, w + 2 warps, ... of its line.
struct lucid_column {
    long long line, start, inner;  // the line's number, its first element, the step
    int warp, warps;
    bool real;  // not past the last line

    LUCID_FN lucid_column(long long lines, int columns, long long step) : inner(step)
    {
        const long long wanted = blockIdx.x * 32ll + threadIdx.x % 32;
        real = wanted < lines;
        line = real ? wanted : lines - 1;
        start = line / inner * inner * columns + line % inner;
        warp = threadIdx.x / 32;
        warps = blockDim.x / 32;
    }
    LUCID_FN long long at(int column) const { return start + column * inner; }
};

// function(item, column) for each element of a thread that holds at most ITEMS of them.
template <int ITEMS, typename F>
LUCID_FN void lucid_each_held(const lucid_column& line, int columns, F function)
{
    #pragma unroll
    for (int i = 0; i < ITEMS; ++i)
        if (line.warp + i * line.warps < columns) function(i, line.warp + i * line.warps);
}

// Over the threads of a block that have the same place in their warps; all of them get the sum.
template <typename V>
LUCID_FN V lucid_sum_over_warps(V value)
{
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    if (warps == 1) return value;
    __shared__ V part[32][32];
    __syncthreads();  // the sum before this one may still be read
    part[threadIdx.x / 32][lane] = value;
    __syncthreads();
    value = part[0][lane];
    for (int w = 1; w < warps; ++w) value = value + part[w][lane];
    return value;
}

template <typename R, typename T>
LUCID_FN R lucid_read(const T* address)
{
    return lucid_cast<R>(lucid_load<1>(address)[0]);
}

#endif

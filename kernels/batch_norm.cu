// Mean and variance of each channel of (rows, channels, inner), in one pass over x and a small
// reduction of what the blocks leave: Welford's recurrence within a thread, Chan's rule between
// groups (see block.cuh). Each block writes its count, mean and spread as three numbers of `parts`.
// Until the end means are kept as distances from the channel's first element: beside a large mean
// their own rounding would be large.
// The gradients need no kernel here: their two sums and the rest fuse with what is around them.
#include "block.cuh"
#include "pack.cuh"

// A thread's WIDTH groups, which take their elements in step and so share the count.
template <typename A, int WIDTH>
struct lucid_groups {
    A count, base[WIDTH], mean[WIDTH], spread[WIDTH];

    template <typename T>
    LUCID_FN void take(const lucid_pack<T, WIDTH>& pack)
    {
        count += 1;
        const A share = 1 / count;
        #pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
            const A x = lucid_cast<A>(pack[k]) - base[k], apart = x - mean[k];
            mean[k] += apart * share;
            spread[k] += apart * (x - mean[k]);
        }
    }

    LUCID_FN lucid_welford<A> group(int k) const { return {count, mean[k], spread[k]}; }
};

template <typename A>
LUCID_FN void lucid_put_part(A* part, const lucid_welford<A>& group)
{
    part[0] = group.count;
    part[1] = group.mean;
    part[2] = group.spread;
}

// blockIdx.x is the channel, blockIdx.y the share of the rows, blockIdx.z the share of a row. Of the
// 256 threads `lanes` neighbors walk a row's WIDTH elements each. parts[share, channel, 3].
template <typename T, typename A, int WIDTH>
LUCID_FN void batch_norm_rows(
    const T* x, A* parts, int channels, long long rows, long long inner, long long rows_each,
    long long inner_each, int lanes)
{
    const int channel = blockIdx.x, lane = threadIdx.x % lanes, slot = threadIdx.x / lanes;
    const long long begin = blockIdx.z * inner_each, end = min(begin + inner_each, inner);
    const long long first = blockIdx.y * rows_each, last = min(first + rows_each, rows);
    lucid_groups<A, WIDTH> groups = {};
    #pragma unroll
    for (int k = 0; k < WIDTH; ++k) groups.base[k] = lucid_cast<A>(x[channel * inner]);
    for (long long row = first + slot; row < last; row += 256 / lanes) {
        const T* from = x + (row * channels + channel) * inner;
        #pragma unroll 4
        for (long long i = begin + lane * WIDTH; i < end; i += lanes * WIDTH)
            groups.take(lucid_load<WIDTH>(from + i));
    }
    lucid_welford<A> all = groups.group(0);
    #pragma unroll
    for (int k = 1; k < WIDTH; ++k) all = all + groups.group(k);
    all = lucid_block_sum(all);
    const long long share = (long long)blockIdx.z * gridDim.y + blockIdx.y;
    if (threadIdx.x == 0) lucid_put_part(parts + (share * channels + channel) * 3, all);
}

// The same where inner is small: x as (rows, columns), a group for each column. Of the 256 threads
// `lanes` neighbors take WIDTH columns each, the others further rows. parts[share, column, 3].
template <typename T, typename A, int WIDTH>
LUCID_FN void batch_norm_columns(
    const T* x, A* parts, long long rows, long long columns, int inner, long long rows_each,
    int lanes)
{
    __shared__ lucid_welford<A> of_thread[256];
    const int lane = threadIdx.x % lanes, slot = threadIdx.x / lanes;
    const long long column = ((long long)blockIdx.x * lanes + lane) * WIDTH;
    const long long first = blockIdx.y * rows_each, last = min(first + rows_each, rows);
    lucid_groups<A, WIDTH> groups = {};
    if (column < columns) {
        #pragma unroll
        for (int k = 0; k < WIDTH; ++k)
            groups.base[k] = lucid_cast<A>(x[(column + k) / inner * inner]);
        #pragma unroll 4
        for (long long row = first + slot; row < last; row += 256 / lanes)
            groups.take(lucid_load<WIDTH>(x + row * columns + column));
    }
    #pragma unroll
    for (int k = 0; k < WIDTH; ++k) {
        of_thread[threadIdx.x] = groups.group(k);
        for (int half = 128; half >= lanes; half /= 2) {
            __syncthreads();
            if ((int)threadIdx.x < half)
                of_thread[threadIdx.x] = of_thread[threadIdx.x] + of_thread[threadIdx.x + half];
        }
        if (slot == 0 && column < columns) {
            const long long place = (long long)blockIdx.y * columns + column + k;
            lucid_put_part(parts + place * 3, of_thread[lane]);
        }
        __syncthreads();  // before the next column overwrites them
    }
}

// A channel a block: its parts [share, channel, width] together. Running figures, where there
// are any, move toward the batch's by `momentum`, the variance unbiased.
template <typename T, typename A, typename M, typename V>
LUCID_FN void batch_norm_finish(
    const T* x, const A* parts, A* mean, A* variance, M* running_mean, V* running_variance,
    int channels, long long inner, int shares, int width, A momentum)
{
    const int channel = blockIdx.x;
    lucid_welford<A> all = {0, 0, 0};
    for (int i = threadIdx.x; i < shares * width; i += blockDim.x) {
        const int share = i / width, k = i - share * width;
        const A* part = parts + (((long long)share * channels + channel) * width + k) * 3;
        all = all + lucid_welford<A>{part[0], part[1], part[2]};
    }
    all = lucid_block_sum(all);
    if (threadIdx.x != 0) return;
    all.mean += lucid_cast<A>(x[channel * inner]);
    mean[channel] = all.mean;
    variance[channel] = all.spread / all.count;
    if (running_mean) {
        const A old = lucid_cast<A>(running_mean[channel]);
        running_mean[channel] = lucid_cast<M>((1 - momentum) * old + momentum * all.mean);
    }
    if (running_variance) {
        const A old = lucid_cast<A>(running_variance[channel]), now = all.spread / (all.count - 1);
        running_variance[channel] = lucid_cast<V>((1 - momentum) * old + momentum * now);
    }
}

// Sums over the threads of a block of 256, the order of additions fixed.
#ifndef LUCID_SUM_CUH
#define LUCID_SUM_CUH

#include "types.cuh"

template <typename T>
LUCID_FN T lucid_shuffle_down(T value, int step, int width)
{
    if constexpr (lucid_is_complex<T>)
        return T(__shfl_down_sync(0xffffffffu, value.re, step, width),
                 __shfl_down_sync(0xffffffffu, value.im, step, width));
    else if constexpr (sizeof(T) < 4)
        return (T)__shfl_down_sync(0xffffffffu, (int)value, step, width);
    else
        return __shfl_down_sync(0xffffffffu, value, step, width);
}

// Neighbours first.
template <typename T, int W>
LUCID_FN T lucid_sum_of(T (&part)[W])
{
    #pragma unroll
    for (int half = W / 2; half > 0; half /= 2) {
        #pragma unroll
        for (int k = 0; k < half; ++k) part[k] = part[2 * k] + part[2 * k + 1];
    }
    return part[0];
}

// Over threadIdx.x, a power of two of them; the sum is with threadIdx.x == 0.
template <typename T>
LUCID_FN T lucid_sum_over_x(T value)
{
    const int lanes = min((int)blockDim.x, 32);
    for (int step = lanes / 2; step > 0; step /= 2)
        value += lucid_shuffle_down(value, step, lanes);
    if (blockDim.x <= 32) return value;

    __shared__ T of_warp[8];
    const int warp = (threadIdx.y * blockDim.x + threadIdx.x) / 32;
    __syncthreads();  // the sum before this one may still be read
    if (threadIdx.x % 32 == 0) of_warp[warp] = value;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int next = 1; next < (int)blockDim.x / 32; ++next) value += of_warp[warp + next];
    return value;
}

// Over threadIdx.y, a power of two of them; the sum is with threadIdx.y == 0.
template <typename T>
LUCID_FN T lucid_sum_over_y(T value)
{
    __shared__ T of_thread[256];
    const int thread = threadIdx.y * blockDim.x + threadIdx.x;
    __syncthreads();  // the sum before this one may still be read
    of_thread[thread] = value;
    for (int half = blockDim.y / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half) of_thread[thread] += of_thread[thread + half * blockDim.x];
    }
    return of_thread[thread];
}

#endif

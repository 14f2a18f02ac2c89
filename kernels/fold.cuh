// The states of reductions: what takes values in one by one, and is added to others of its kind.
//
// How a state begins, so that it changes nothing it is added to, stands in the table of reductions
// (lucid_gpu/fusion/reduction_table.py). The order of takes and additions is fixed by the kernel, so
// the same input gives the same bits. States are whole words, which shuffles move. Two more states are in block.cuh: Welford's moments, and the
// running logarithm of a sum of exponentials.
#ifndef LUCID_FOLD_CUH
#define LUCID_FOLD_CUH

#include "block.cuh"
#include "elementwise.cuh"


template <typename T>
struct alignas(alignof(T) < 4 ? 4 : alignof(T)) lucid_total {
    T total;
    LUCID_FN void take(T value) { total += value; }
    LUCID_FN lucid_total operator+(lucid_total other) const { return {total + other.total}; }
};

template <typename T>
struct alignas(alignof(T) < 4 ? 4 : alignof(T)) lucid_product {
    T product;
    LUCID_FN void take(T value) { product = product * value; }
    LUCID_FN lucid_product operator+(lucid_product other) const { return {product * other.product}; }
};

// The end of a type's range: below (or above) everything, infinity for floats.
template <typename T>
LUCID_FN T lucid_below_all()
{
    if constexpr (lucid_is_float<T>)
        return (T)-__uint_as_float(0x7f800000u);
    else if constexpr (lucid_is_signed_integer<T>)
        return (T)(1ull << (8 * sizeof(T) - 1));
    else
        return (T)0;
}

template <typename T>
LUCID_FN T lucid_above_all()
{
    if constexpr (lucid_is_float<T>)
        return (T)__uint_as_float(0x7f800000u);
    else if constexpr (lucid_is_signed_integer<T>)
        return (T)((1ull << (8 * sizeof(T) - 1)) - 1);
    else
        return (T)~0ull;
}

// NaN is larger and smaller than everything, as in PyTorch.
template <typename T>
struct alignas(alignof(T) < 4 ? 4 : alignof(T)) lucid_largest {
    T value;
    LUCID_FN void take(T other) { value = lucid_maximum(value, other); }
    LUCID_FN lucid_largest operator+(lucid_largest other) const
    {
        return {lucid_maximum(value, other.value)};
    }
};

template <typename T>
struct alignas(alignof(T) < 4 ? 4 : alignof(T)) lucid_smallest {
    T value;
    LUCID_FN void take(T other) { value = lucid_minimum(value, other); }
    LUCID_FN lucid_smallest operator+(lucid_smallest other) const
    {
        return {lucid_minimum(value, other.value)};
    }
};

struct alignas(4) lucid_any {
    bool found;
    LUCID_FN void take(bool value) { found = found || value; }
    LUCID_FN lucid_any operator+(lucid_any other) const { return {found || other.found}; }
};

struct alignas(4) lucid_all {
    bool holds;
    LUCID_FN void take(bool value) { holds = holds && value; }
    LUCID_FN lucid_all operator+(lucid_all other) const { return {holds && other.holds}; }
};

// Where the best value stands: the first of equals, the first NaN before all.
template <typename T, bool LARGEST>
struct lucid_place_of {
    long long place;  // -1: nothing taken yet
    T value;
    LUCID_FN bool beaten_by(T other) const
    {
        if (lucid_isnan(value)) return false;
        return lucid_isnan(other) || (LARGEST ? other > value : other < value);
    }
    LUCID_FN bool equals(T other) const
    {
        return other == value || (lucid_isnan(other) && lucid_isnan(value));
    }
    LUCID_FN void take(T other, long long at)
    {
        if (at < 0) return;
        if (place < 0 || beaten_by(other) || (equals(other) && at < place)) {
            place = at;
            value = other;
        }
    }
    LUCID_FN lucid_place_of operator+(lucid_place_of other) const
    {
        other.take(value, place);
        return other;
    }
};

// The logarithm of a sum of exponentials, which infinity makes infinite.
template <typename T>
struct alignas(alignof(T) < 4 ? 4 : alignof(T)) lucid_exponentials {
    lucid_online<T> finite;
    T infinite;  // how many
    LUCID_FN void take(T value)
    {
        if (value == lucid_above_all<T>()) infinite += (T)1;
        else finite.take(value);
    }
    LUCID_FN lucid_exponentials operator+(lucid_exponentials other) const
    {
        return {finite + other.finite, infinite + other.infinite};
    }
    LUCID_FN T logarithm() const
    {
        const T value = finite.logarithm();
        return infinite > (T)0 && value == value ? lucid_above_all<T>() : value;
    }
};

// --- over the threads of a block ------------------------------------------------------------------

// A state from the lane `step` above, word by word.
template <typename S>
LUCID_FN S lucid_shuffle_down(S state, int step, int width)
{
    static_assert(sizeof(S) % 4 == 0, "a state is whole words");
    unsigned* words = reinterpret_cast<unsigned*>(&state);
    #pragma unroll
    for (int i = 0; i < (int)(sizeof(S) / 4); ++i)
        words[i] = __shfl_down_sync(0xffffffffu, words[i], step, width);
    return state;
}

// Neighbors first.
template <typename S, int W>
LUCID_FN S lucid_fold_of(S (&part)[W])
{
    #pragma unroll
    for (int half = W / 2; half > 0; half /= 2) {
        #pragma unroll
        for (int k = 0; k < half; ++k) part[k] = part[2 * k] + part[2 * k + 1];
    }
    return part[0];
}

// Over threadIdx.x, a power of two of them; the result is with threadIdx.x == 0.
template <typename S>
LUCID_FN S lucid_fold_over_x(S state)
{
    const int lanes = min((int)blockDim.x, 32);
    for (int step = lanes / 2; step > 0; step /= 2)
        state = state + lucid_shuffle_down(state, step, lanes);
    if (blockDim.x <= 32) return state;

    __shared__ S of_warp[8];
    const int warp = (threadIdx.y * blockDim.x + threadIdx.x) / 32;
    __syncthreads();  // the one before this may still be read
    if (threadIdx.x % 32 == 0) of_warp[warp] = state;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int next = 1; next < (int)blockDim.x / 32; ++next) state = state + of_warp[warp + next];
    return state;
}

// Over threadIdx.y, a power of two of them; the result is with threadIdx.y == 0.
template <typename S>
LUCID_FN S lucid_fold_over_y(S state)
{
    __shared__ S of_thread[256];
    const int thread = threadIdx.y * blockDim.x + threadIdx.x;
    __syncthreads();  // the one before this may still be read
    of_thread[thread] = state;
    for (int half = blockDim.y / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half)
            of_thread[thread] = of_thread[thread] + of_thread[thread + half * blockDim.x];
    }
    return of_thread[thread];
}

#endif

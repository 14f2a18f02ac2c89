// The norm of many tensors together, and scaling them by what clips it: three launches, however many
// tensors there are, up to what the table in the arguments holds (lucid_rows), and no word to the
// host in between. No atomics: a block leaves its share, one block adds the shares in their order.
#include "block.cuh"
#include "pack.cuh"
#include "rows.cuh"

// What is added up, by KIND: 1 magnitudes, 2 squares, 3 powers; 4 the largest, 5 the smallest.
template <int KIND, typename A>
LUCID_FN A lucid_norm_start()
{
    return KIND == 5 ? (A)__uint_as_float(0x7f800000u) : (A)0;
}

template <int KIND, typename A>
LUCID_FN A lucid_norm_term(A x, A order)
{
    if constexpr (KIND == 2) return x * x;
    if constexpr (KIND == 3) return pow(fabs(x), order);
    return fabs(x);
}

template <int KIND, typename A>
LUCID_FN A lucid_norm_merge(A a, A b)
{
    if constexpr (KIND == 4) return lucid_greater()(a, b);
    if constexpr (KIND == 5) return lucid_smaller()(a, b);
    return a + b;
}

template <int KIND, typename A>
LUCID_FN A lucid_norm_of_block(A value)
{
    if constexpr (KIND == 4) return lucid_block_max(value);
    if constexpr (KIND == 5) return lucid_block_min(value);
    return lucid_block_sum(value);
}

template <int KIND, typename A>
LUCID_FN A lucid_norm_root(A value, A order)
{
    if constexpr (KIND == 2) return sqrt(value);
    if constexpr (KIND == 3) return pow(value, (A)1 / order);
    return value;
}

// A block of 256 threads takes TILE elements of one tensor and leaves its share of the norm. Reads
// every element once, in packs of WIDTH where all tensors of the launch are aligned for that.
template <typename T, typename A, int ROWS, int WIDTH, int TILE, int KIND>
LUCID_FN void multi_tensor_norm(lucid_rows<1, ROWS> rows, A* shares, A order)
{
    const int row = rows.row_of(blockIdx.x);
    const long long start = (long long)(blockIdx.x - rows.first[row]) * TILE;
    const int count = (int)min((long long)TILE, rows.size[row] - start);
    const int whole = count / WIDTH * WIDTH;
    const T* x = (const T*)rows.at[0][row] + start;
    A value = lucid_norm_start<KIND, A>();
    #pragma unroll 4
    for (int i = threadIdx.x * WIDTH; i < whole; i += blockDim.x * WIDTH) {
        const lucid_pack<T, WIDTH> pack = lucid_load<WIDTH>(x + i);
        #pragma unroll
        for (int k = 0; k < WIDTH; ++k)
            value = lucid_norm_merge<KIND>(
                value, lucid_norm_term<KIND>(lucid_cast<A>(pack[k]), order));
    }
    for (int i = whole + threadIdx.x; i < count; i += blockDim.x)
        value = lucid_norm_merge<KIND>(value, lucid_norm_term<KIND>(lucid_cast<A>(x[i]), order));
    value = lucid_norm_of_block<KIND>(value);
    if (threadIdx.x == 0) shares[blockIdx.x] = value;
}

// One block merges the shares of all launches and takes the root.
template <typename R, typename A, int KIND>
LUCID_FN void multi_tensor_norm_finish(const A* shares, int count, A order, R* norm)
{
    A value = lucid_norm_start<KIND, A>();
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        value = lucid_norm_merge<KIND>(value, shares[i]);
    value = lucid_norm_of_block<KIND>(value);
    if (threadIdx.x == 0) *norm = lucid_cast<R>(lucid_norm_root<KIND>(value, order));
}

// Multiplies every element by a factor, and notes in `found` where one was infinite or NaN; all
// that write there write the same.
template <typename T, typename A, int ROWS, int WIDTH, int TILE>
LUCID_FN void multi_tensor_unscale(lucid_rows<1, ROWS> rows, const float* factor, float* found)
{
    const A by = lucid_cast<A>(*factor);
    const int row = rows.row_of(blockIdx.x);
    const long long start = (long long)(blockIdx.x - rows.first[row]) * TILE;
    const int count = (int)min((long long)TILE, rows.size[row] - start);
    const int whole = count / WIDTH * WIDTH;
    T* x = (T*)rows.at[0][row] + start;
    bool broken = false;
    #pragma unroll 4
    for (int i = threadIdx.x * WIDTH; i < whole; i += blockDim.x * WIDTH) {
        lucid_pack<T, WIDTH> pack = lucid_load_written<WIDTH>(x + i);
        #pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
            const A value = lucid_cast<A>(pack[k]);
            broken |= !isfinite(value);
            pack[k] = lucid_cast<T>(value * by);
        }
        lucid_store<WIDTH>(x + i, pack);
    }
    for (int i = whole + threadIdx.x; i < count; i += blockDim.x) {
        const A value = lucid_cast<A>(x[i]);
        broken |= !isfinite(value);
        x[i] = lucid_cast<T>(value * by);
    }
    if (broken) *found = 1.0f;
}

// Multiplies every element by limit / (norm + 1e-6) where that is less than 1, a block TILE elements
// of a tensor; else nothing is read or written but the norm.
template <typename T, typename R, typename A, int ROWS, int WIDTH, int TILE>
LUCID_FN void multi_tensor_clip(lucid_rows<1, ROWS> rows, const R* norm, A limit)
{
    const A factor = limit / (lucid_cast<A>(*norm) + (A)1e-6);
    if (factor >= 1) return;  // not where it is NaN
    const int row = rows.row_of(blockIdx.x);
    const long long start = (long long)(blockIdx.x - rows.first[row]) * TILE;
    const int count = (int)min((long long)TILE, rows.size[row] - start);
    const int whole = count / WIDTH * WIDTH;
    T* x = (T*)rows.at[0][row] + start;
    #pragma unroll 4
    for (int i = threadIdx.x * WIDTH; i < whole; i += blockDim.x * WIDTH) {
        lucid_pack<T, WIDTH> pack = lucid_load_written<WIDTH>(x + i);
        #pragma unroll
        for (int k = 0; k < WIDTH; ++k)
            pack[k] = lucid_cast<T>(lucid_cast<A>(pack[k]) * factor);
        lucid_store<WIDTH>(x + i, pack);
    }
    for (int i = whole + threadIdx.x; i < count; i += blockDim.x)
        x[i] = lucid_cast<T>(lucid_cast<A>(x[i]) * factor);
}

// Cross entropy of scores with a class number a row, and the gradient of the scores. With the classes'
// weights w (1 without) and smoothing s, a row of scores x with target t has the loss
//
//     a (lse - x[t]) + b sum_k w[k] (lse - x[k]),    a = (1 - s) w[t],  b = s / columns
//
// and, for a cotangent g, the gradient g ((a + b sum w) exp(x - lse) - a onehot(t) - b w). Rows whose
// target is to be ignored have neither. T is stored, R computed in.
//
// The losses are written, or their sum where they shall be reduced; and `lse`, one number a row, of
// which kernels of their own compute the gradient for any cotangent. With GRADIENT it is written at
// once, for a cotangent of 1: the scores of a row are read again while the caches have them.
//
// A target that is no class makes its loss NaN and leaves {1, target, columns} at the address `fault`,
// in memory that the host can read without waiting.
#include "line.cuh"

LUCID_FN bool cross_entropy_is_class(long long target, int columns, long long fault)
{
    if (target >= 0 && target < columns) return true;
    volatile long long* record = reinterpret_cast<long long*>(fault);
    record[1] = target;
    record[2] = columns;
    record[0] = 1;
    return false;
}

template <typename R>
LUCID_FN R cross_entropy_nan()
{
    return (R)__uint_as_float(0x7fc00000u);
}

// exp(x) for x <= 0, in fewer instructions: off by as much as x is when rounded, 0 for denormals.
template <typename R>
LUCID_FN R cross_entropy_exp(R x)
{
    x *= (R)1.4426950408889634074;
#ifdef __CUDA_ARCH__
    if constexpr (sizeof(R) == 4) {
        float y;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
        return y;
    }
#endif
    return exp2(x);
}

// --- the gradient of a row -----------------------------------------------------------------------

// The factors of one row's gradient: exp(x - lse) total - own onehot(target) - spread w. `scale` is
// the cotangent of its loss, `weights` the sum of all w.
template <typename R>
struct cross_entropy_factors {
    R lse, total, own, spread;
    int target;  // below 0: none

    static constexpr int IGNORED = -2;

    LUCID_FN bool ignored() const { return target == IGNORED; }

    template <typename T>
    LUCID_FN static cross_entropy_factors of(
        R lse, long long target, const T* weight, R weights, R scale, int columns,
        long long ignore, R smoothing)
    {
        if (target == ignore) return {0, 0, 0, 0, IGNORED};
        if (target < 0 || target >= columns) {
            const R nan = cross_entropy_nan<R>();
            return {nan, nan, nan, nan, -1};
        }
        const R own = scale * (1 - smoothing) * (weight ? lucid_read<R>(weight + target) : (R)1);
        const R spread = scale * smoothing / columns;
        return {lse, own + spread * weights, own, spread, (int)target};
    }

    // Of N neighboring scores.
    template <int N, typename T>
    LUCID_FN lucid_pack<T, N> at(const lucid_pack<T, N>& x, int column, const T* weight) const
    {
        const int place = target - column;
        lucid_pack<T, N> pack;
        #pragma unroll
        for (int k = 0; k < N; ++k) {
            const R w = weight ? lucid_read<R>(weight + column + k) : (R)1;
            const R share = spread * w + (k == place ? own : (R)0);
            pack[k] = lucid_cast<T>(cross_entropy_exp(lucid_cast<R>(x[k]) - lse) * total - share);
        }
        return pack;
    }
};

template <typename T, typename R>
struct cross_entropy_descending {
    const T *x, *weight;
    T* dx;
    const cross_entropy_factors<R>& factors;
    template <int N> LUCID_FN void at(int column)
    {
        lucid_store_streamed(dx + column, factors.at(lucid_load<N>(x + column), column, weight));
    }
};

template <typename T>
struct cross_entropy_nothing {
    T* dx;
    template <int N> LUCID_FN void at(int column)
    {
        lucid_pack<T, N> pack;
        #pragma unroll
        for (int k = 0; k < N; ++k) pack[k] = lucid_cast<T>(0.0f);
        lucid_store_streamed(dx + column, pack);
    }
};

// Some columns of a row of contiguous scores; those of an ignored row may be infinite.
template <int W, int LANES, bool BACK, typename T, typename R>
LUCID_FN void cross_entropy_descend(
    const T* x, const T* weight, T* dx, const cross_entropy_factors<R>& factors, int first, int last)
{
    cross_entropy_nothing<T> nothing = {dx};
    cross_entropy_descending<T, R> descending = {x, weight, dx, factors};
    if (factors.ignored()) lucid_walk<W, LANES, BACK>(x, first, last, nothing);
    else lucid_walk<W, LANES, BACK>(x, first, last, descending);
}

// A line of scores that stand apart.
template <typename T, typename R>
LUCID_FN void cross_entropy_descend(
    const lucid_column& line, int columns, const T* x, const T* weight, T* dx,
    const cross_entropy_factors<R>& factors)
{
    #pragma unroll 4
    for (int c = line.warp; c < columns; c += line.warps) {
        const long long at = line.at(c);
        if (factors.ignored()) dx[at] = lucid_cast<T>(0.0f);
        else lucid_store(dx + at, factors.at(lucid_load<1>(x + at), c, weight));
    }
}

// --- the losses ----------------------------------------------------------------------------------

// What one pass over a row gathers: the online softmax; with smoothing sum w x and sum w.
template <typename R>
struct cross_entropy_row {
    lucid_online<R> online;
    lucid_pair<R> spread;
};

template <typename T, typename R, bool SMOOTH>
struct cross_entropy_taking {
    const T *x, *weight;
    cross_entropy_row<R> row;
    template <int N> LUCID_FN void at(int column)
    {
        const lucid_pack<T, N> pack = lucid_load<N>(x + column);
        R top = row.online.top;
        #pragma unroll
        for (int k = 0; k < N; ++k) top = max(top, lucid_cast<R>(pack[k]));
        R sum = row.online.sum * cross_entropy_exp(row.online.top - top);
        #pragma unroll
        for (int k = 0; k < N; ++k) sum += cross_entropy_exp(lucid_cast<R>(pack[k]) - top);
        row.online = {top, sum};  // NaN is in the sum
        if constexpr (SMOOTH) {
            #pragma unroll
            for (int k = 0; k < N; ++k) {
                const R w = weight ? lucid_read<R>(weight + column + k) : (R)1;
                row.spread = row.spread + lucid_pair<R>{w * lucid_cast<R>(pack[k]), w};
            }
        }
    }
};

// The loss of a row whose scores have been gathered.
template <typename R, bool SMOOTH, typename T>
LUCID_FN R cross_entropy_loss(
    const cross_entropy_row<R>& row, R lse, const T* own_score, long long target, const T* weight,
    int columns, long long ignore, R smoothing, long long fault)
{
    if (target == ignore) return 0;
    if (!cross_entropy_is_class(target, columns, fault)) return cross_entropy_nan<R>();
    R own = weight ? lucid_read<R>(weight + target) : (R)1;
    if constexpr (SMOOTH) own *= 1 - smoothing;
    R loss = own * (lse - lucid_read<R>(own_score));
    if constexpr (SMOOTH)
        loss += smoothing / columns * (lse * row.spread.second - row.spread.first);
    return loss;
}

// The loss of this block's rows joins the sum, divided by `count` where that is wanted. Whichever
// block comes last adds up all `parts`, in the order of the blocks' numbers. `ticket` was 0.
template <typename T, typename R>
LUCID_FN void cross_entropy_add_up(R loss, const R* count, T* total, R* parts, int* ticket)
{
    loss = lucid_block_sum(loss);
    if (threadIdx.x == 0) parts[blockIdx.x] = loss;
    if (!lucid_is_last_block((unsigned*)ticket, gridDim.x)) return;
    R sum = 0;
    #pragma unroll 4
    for (unsigned part = threadIdx.x; part < gridDim.x; part += blockDim.x)
        sum += __ldcg(parts + part);
    sum = lucid_block_sum(sum);
    if (threadIdx.x == 0) *total = lucid_cast<T>(count ? sum / *count : sum);
}

// Before the losses: the sum of the targets' weights, where the mean is wanted, in one block.
template <typename T, typename R>
LUCID_FN void cross_entropy_count(
    const long long* target, const T* weight, R* count, int* ticket, long long rows, int columns,
    long long ignore)
{
    if (threadIdx.x == 0) *ticket = 0;
    if (!count) return;
    R sum = 0;
    #pragma unroll 4
    for (long long row = threadIdx.x; row < rows; row += blockDim.x) {
        const long long own = target[row];
        if (own != ignore && own >= 0 && own < columns)
            sum += weight ? lucid_read<R>(weight + own) : (R)1;
    }
    sum = lucid_block_sum(sum);
    if (threadIdx.x == 0) *count = sum;
}

// A group of threads a row of contiguous scores. `loss` is one a row, or with `parts` the sum.
template <typename T, typename R, int W, int LANES, bool SMOOTH, bool GRADIENT>
LUCID_FN void cross_entropy_rows(
    const T* x, const long long* target, const T* weight, const R* count, T* losses, R* lses, T* dx,
    R* parts, int* ticket, long long rows, int columns, long long ignore, R smoothing,
    long long fault)
{
    const long long group = lucid_group<LANES>(), at = min(group, rows - 1);
    const T* scores = x + at * columns;
    const long long own = target[at];
    cross_entropy_taking<T, R, SMOOTH> taking = {scores, weight, {{lucid_lowest<R>(), 0}, {0, 0}}};
    lucid_walk<W, LANES>(scores, 0, columns, taking);
    cross_entropy_row<R> row = {lucid_group_sum<LANES>(taking.row.online), taking.row.spread};
    if constexpr (SMOOTH) row.spread = lucid_group_sum<LANES>(row.spread);
    const R lse = row.online.logarithm();
    R loss = 0;
    if (group < rows && lucid_lane<LANES>() == 0) {
        loss = cross_entropy_loss<R, SMOOTH>(
            row, lse, scores + own, own, weight, columns, ignore, smoothing, fault);
        if (lses) lses[at] = lse;
        if (!parts) losses[at] = lucid_cast<T>(loss);
    }
    if constexpr (GRADIENT) {
        if (group < rows) {
            const auto factors = cross_entropy_factors<R>::of(
                lse, own, weight, row.spread.second, count ? 1 / *count : (R)1, columns, ignore,
                smoothing);
            cross_entropy_descend<W, LANES, true>(
                scores, SMOOTH ? weight : nullptr, dx + at * columns, factors, 0, columns);
        }
    }
    if (parts) cross_entropy_add_up(loss, count, losses, parts, ticket);
}

// The same where the scores of a row stand `inner` apart (see lucid_column).
template <typename T, typename R, bool SMOOTH, bool GRADIENT>
LUCID_FN void cross_entropy_columns(
    const T* x, const long long* target, const T* weight, const R* count, T* losses, R* lses, T* dx,
    R* parts, int* ticket, long long lines, int columns, long long inner, long long ignore,
    R smoothing, long long fault)
{
    const lucid_column line(lines, columns, inner);
    const long long own = target[line.line];
    cross_entropy_row<R> row = {{lucid_lowest<R>(), 0}, {0, 0}};
    #pragma unroll 4
    for (int c = line.warp; c < columns; c += line.warps) {
        const R score = lucid_read<R>(x + line.at(c));
        row.online.take(score);
        if constexpr (SMOOTH) {
            const R w = weight ? lucid_read<R>(weight + c) : (R)1;
            row.spread = row.spread + lucid_pair<R>{w * score, w};
        }
    }
    row.online = lucid_sum_over_warps(row.online);
    if constexpr (SMOOTH) row.spread = lucid_sum_over_warps(row.spread);
    const R lse = row.online.logarithm();
    R loss = 0;
    if (line.real && line.warp == 0) {
        loss = cross_entropy_loss<R, SMOOTH>(
            row, lse, x + line.start + own * inner, own, weight, columns, ignore, smoothing, fault);
        if (lses) lses[line.line] = lse;
        if (!parts) losses[line.line] = lucid_cast<T>(loss);
    }
    if constexpr (GRADIENT) {
        if (line.real) {
            const auto factors = cross_entropy_factors<R>::of(
                lse, own, weight, row.spread.second, count ? 1 / *count : (R)1, columns, ignore,
                smoothing);
            cross_entropy_descend(line, columns, x, SMOOTH ? weight : nullptr, dx, factors);
        }
    }
    if (parts) cross_entropy_add_up(loss, count, losses, parts, ticket);
}

// --- the gradient for any cotangent --------------------------------------------------------------

// The cotangent of a row's loss: one number (g[0], or `factor` where g is null) or one a row, divided
// by `count` where there is one.
template <typename R, typename T>
LUCID_FN R cross_entropy_scale(const T* g, R factor, const R* count, long long row, bool each)
{
    return (g ? lucid_read<R>(g + (each ? row : 0)) : factor) / (count ? *count : (R)1);
}

// A group of threads a row; blocks (.., y) share a long one, `span` columns each. x and dx are aligned
// alike.
template <typename T, typename R, int W, int LANES>
LUCID_FN void cross_entropy_backward_rows(
    const T* x, const R* lses, const long long* target, const T* weight, const R* weights, const T* g,
    const R* count, T* dx, R factor, long long rows, int columns, long long ignore, R smoothing, bool each,
    int span)
{
    const long long row = lucid_group<LANES>();
    if (row >= rows) return;
    const auto factors = cross_entropy_factors<R>::of(
        lses[row], target[row], weight, weights ? *weights : (R)columns,
        cross_entropy_scale(g, factor, count, row, each), columns, ignore, smoothing);
    const int first = blockIdx.y * span;
    cross_entropy_descend<W, LANES, false>(
        x + row * columns, smoothing != 0 ? weight : nullptr, dx + row * columns, factors, first,
        min(columns, first + span));
}

template <typename T, typename R>
LUCID_FN void cross_entropy_backward_columns(
    const T* x, const R* lses, const long long* target, const T* weight, const R* weights, const T* g,
    const R* count, T* dx, R factor, long long lines, int columns, long long inner, long long ignore,
    R smoothing, bool each)
{
    const lucid_column line(lines, columns, inner);
    if (!line.real) return;
    const auto factors = cross_entropy_factors<R>::of(
        lses[line.line], target[line.line], weight, weights ? *weights : (R)columns,
        cross_entropy_scale(g, factor, count, line.line, each), columns, ignore, smoothing);
    cross_entropy_descend(line, columns, x, smoothing != 0 ? weight : nullptr, dx, factors);
}

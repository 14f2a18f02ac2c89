// Cross entropy of scores with a class number a row, and the gradient of the scores. With the classes'
// weights w (1 without) and smoothing s, a row of scores x with target t has the loss
//
//     a (lse - x[t]) + b sum_k w[k] (lse - x[k]),    a = (1 - s) w[t],  b = s / columns
//
// and, for a cotangent g, the gradient g ((a + b sum w) exp(x - lse) - a onehot(t) - b w). Rows whose
// target is to be ignored have neither. Scores are read once each way; what is kept between is `lse`,
// one number a row. T is stored, R computed in, O is the type of the losses.
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
        lucid_take(row.online, pack);
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

// A group of threads a row of contiguous scores.
template <typename T, typename R, typename O, int W, int LANES, bool SMOOTH>
LUCID_FN void cross_entropy_rows(
    const T* x, const long long* target, const T* weight, O* losses, R* lses, long long rows,
    int columns, long long ignore, R smoothing, long long fault)
{
    const long long group = lucid_group<LANES>(), at = min(group, rows - 1);
    const T* scores = x + at * columns;
    cross_entropy_taking<T, R, SMOOTH> taking = {scores, weight, {{lucid_lowest<R>(), 0}, {0, 0}}};
    lucid_walk<W, LANES>(scores, 0, columns, taking);
    cross_entropy_row<R> row = {lucid_group_sum<LANES>(taking.row.online), taking.row.spread};
    if constexpr (SMOOTH) row.spread = lucid_group_sum<LANES>(row.spread);
    if (group >= rows || lucid_lane<LANES>() != 0) return;
    const R lse = row.online.logarithm();
    const long long own = target[at];
    lses[at] = lse;
    losses[at] = lucid_cast<O>(cross_entropy_loss<R, SMOOTH>(
        row, lse, scores + own, own, weight, columns, ignore, smoothing, fault));
}

// The same where the scores of a row stand `inner` apart (see lucid_column).
template <typename T, typename R, typename O, bool SMOOTH>
LUCID_FN void cross_entropy_columns(
    const T* x, const long long* target, const T* weight, O* losses, R* lses, long long lines,
    int columns, long long inner, long long ignore, R smoothing, long long fault)
{
    const lucid_column line(lines, columns, inner);
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
    if (!line.real || line.warp != 0) return;
    const R lse = row.online.logarithm();
    const long long own = target[line.line];
    lses[line.line] = lse;
    losses[line.line] = lucid_cast<O>(cross_entropy_loss<R, SMOOTH>(
        row, lse, x + line.start + own * inner, own, weight, columns, ignore, smoothing, fault));
}

// The sum of all losses, divided by the sum of the targets' weights where that is wanted: `count`
// keeps it for the gradient. One block, whose order of additions is fixed.
template <typename T, typename R>
LUCID_FN void cross_entropy_total(
    const R* losses, const long long* target, const T* weight, T* total, R* count, long long rows,
    int columns, long long ignore)
{
    lucid_pair<R> sum = {0, 0};
    for (long long row = threadIdx.x; row < rows; row += blockDim.x) {
        sum.first += losses[row];
        const long long own = target[row];
        if (count && own != ignore && own >= 0 && own < columns)
            sum.second += weight ? lucid_read<R>(weight + own) : (R)1;
    }
    sum = lucid_block_sum(sum);
    if (threadIdx.x != 0) return;
    *total = lucid_cast<T>(count ? sum.first / sum.second : sum.first);
    if (count) *count = sum.second;
}

// --- the gradient --------------------------------------------------------------------------------

// The factors of one row's gradient: exp(x - lse) total - own onehot(target) - spread w.
template <typename R>
struct cross_entropy_factors {
    R lse, total, own, spread;
    long long target;  // below 0: none

    static constexpr long long IGNORED = -2;

    template <typename T>
    LUCID_FN static cross_entropy_factors of(
        long long row, const R* lses, const long long* targets, const T* weight, const R* weights,
        const T* g, R factor, bool each, const R* count, int columns, long long ignore,
        R smoothing)
    {
        const long long target = targets[row];
        if (target == ignore) return {0, 0, 0, 0, IGNORED};
        if (target < 0 || target >= columns) {
            const R nan = cross_entropy_nan<R>();
            return {nan, nan, nan, nan, -1};
        }
        const R scale =
            (g ? lucid_read<R>(g + (each ? row : 0)) : factor) / (count ? *count : (R)1);
        const R own = scale * (1 - smoothing) * (weight ? lucid_read<R>(weight + target) : (R)1);
        const R spread = scale * smoothing / columns;
        return {lses[row], own + spread * (weights ? *weights : (R)columns), own, spread, target};
    }

    LUCID_FN R at(R x, int column, R w) const
    {
        if (target == IGNORED) return 0;  // its scores may be infinite
        return exp(x - lse) * total - (column == target ? own : (R)0) - spread * w;
    }
};

template <typename T, typename R>
struct cross_entropy_descending {
    const T *x, *weight;
    T* dx;
    cross_entropy_factors<R> factors;
    template <int N> LUCID_FN void at(int column)
    {
        lucid_pack<T, N> pack = lucid_load<N>(x + column);
        #pragma unroll
        for (int k = 0; k < N; ++k) {
            const R w = weight ? lucid_read<R>(weight + column + k) : (R)1;
            pack[k] = lucid_cast<T>(factors.at(lucid_cast<R>(pack[k]), column + k, w));
        }
        lucid_store(dx + column, pack);
    }
};

// A group of threads a row; blocks (.., y) share a long one, `span` columns each. The cotangent is one
// number (g[0], or `factor` where g is null) or one a row; x and dx are aligned alike.
template <typename T, typename R, int W, int LANES>
LUCID_FN void cross_entropy_backward_rows(
    const T* x, const R* lses, const long long* target, const T* weight, const R* weights, const T* g,
    const R* count, T* dx, R factor, long long rows, int columns, long long ignore, R smoothing, bool each,
    int span)
{
    const long long row = lucid_group<LANES>();
    if (row >= rows) return;
    cross_entropy_descending<T, R> descending = {
        x + row * columns, smoothing != 0 ? weight : nullptr, dx + row * columns,
        cross_entropy_factors<R>::of(
            row, lses, target, weight, weights, g, factor, each, count, columns, ignore, smoothing)};
    const int first = blockIdx.y * span;
    lucid_walk<W, LANES>(descending.x, first, min(columns, first + span), descending);
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
        line.line, lses, target, weight, weights, g, factor, each, count, columns, ignore, smoothing);
    #pragma unroll 4
    for (int c = line.warp; c < columns; c += line.warps) {
        const R w = weight && smoothing != 0 ? lucid_read<R>(weight + c) : (R)1;
        dx[line.at(c)] = lucid_cast<T>(factors.at(lucid_read<R>(x + line.at(c)), c, w));
    }
}

// Layer normalization, y = (x - mean) rstd w + b over rows of contiguous elements, and root mean square
// normalization (RMS: mean is 0, rstd = 1 / sqrt(mean of x^2 + eps), no b): Ba, Kiros and Hinton (2016),
// Zhang and Sennrich (2019). T is stored, R computed in; statistics are kept in R: the means of all rows,
// which RMS has not, and then all rstds.
#include "line.cuh"

template <typename R, bool RMS>
struct layer_norm_known {
    const R *means, *rstds;
    LUCID_FN layer_norm_known(const R* statistics, long long rows)
        : means(statistics), rstds(RMS ? statistics : statistics + rows)
    {
    }
    LUCID_FN R mean(long long row) const { return RMS ? (R)0 : means[row]; }
    LUCID_FN R rstd(long long row) const { return rstds[row]; }
};

template <typename R, bool RMS>
LUCID_FN void layer_norm_know(R* statistics, long long row, long long rows, R mean, R rstd)
{
    if (!RMS) statistics[row] = mean;
    statistics[RMS ? row : rows + row] = rstd;
}

// What a row is divided by. Two passes over registers, the mean first: nothing cancels, as it would in
// mean(x^2) - mean^2, and no division a number is needed, as it is in Welford's update.
template <typename R, bool RMS, int LANES, typename Held>
LUCID_FN void layer_norm_statistics(const Held& held, int columns, R eps, R& mean, R& rstd)
{
    mean = 0;
    if constexpr (!RMS) {
        Held::each(columns, [&](int i, int k, int) { mean += lucid_cast<R>(held.pack[i][k]); });
        mean = lucid_group_sum<LANES>(mean) / columns;
    }
    R spread = 0;
    Held::each(columns, [&](int i, int k, int) {
        const R apart = lucid_cast<R>(held.pack[i][k]) - mean;
        spread += apart * apart;
    });
    rstd = rsqrt(lucid_group_sum<LANES>(spread) / columns + eps);
}

// Rows of at most LANES * ITEMS * W columns, a group of threads a row: x is read once, y written once.
// `weight` and `bias` may be null.
template <typename T, typename R, int W, int LANES, int ITEMS, bool RMS>
LUCID_FN void layer_norm_held(
    const T* x, const T* weight, const T* bias, T* y, R* statistics, long long rows, int columns, R eps)
{
    typedef lucid_held<T, W, ITEMS, LANES> Held;
    const long long group = lucid_group<LANES>(), row = min(group, rows - 1);
    Held held;
    held.load(x + row * columns, columns);
    R mean, rstd;
    layer_norm_statistics<R, RMS, LANES>(held, columns, eps, mean, rstd);
    if (group >= rows) return;
    #pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const int at = Held::at(i);
        if (at >= columns) continue;
        lucid_pack<T, W> w, b;
        if (weight) w = lucid_load<W>(weight + at);
        if (bias) b = lucid_load<W>(bias + at);
        #pragma unroll
        for (int k = 0; k < W; ++k) {
            R value = (lucid_cast<R>(held.pack[i][k]) - mean) * rstd;
            if (weight) value *= lucid_cast<R>(w[k]);
            if (bias) value += lucid_cast<R>(b[k]);
            held.pack[i][k] = lucid_cast<T>(value);
        }
        lucid_store(y + row * columns + at, held.pack[i]);
    }
    if (lucid_lane<LANES>() == 0) layer_norm_know<R, RMS>(statistics, row, rows, mean, rstd);
}

// --- rows of any length, a block a row -------------------------------------------------------------

// Mean and squared distances of a pack, then of the packs so far (lucid_welford): one division a pack.
template <typename T, typename R, bool RMS>
struct layer_norm_taking {
    const T* x;
    lucid_welford<R> seen;
    template <int N> LUCID_FN void at(int column)
    {
        const lucid_pack<T, N> pack = lucid_load<N>(x + column);
        lucid_welford<R> here = {(R)N, 0, 0};
        if constexpr (!RMS) {
            #pragma unroll
            for (int k = 0; k < N; ++k) here.mean += lucid_cast<R>(pack[k]) / N;
        }
        #pragma unroll
        for (int k = 0; k < N; ++k) {
            const R apart = lucid_cast<R>(pack[k]) - here.mean;
            here.spread += apart * apart;
        }
        if constexpr (RMS) seen.spread += here.spread;
        else seen = seen + here;
    }
};

template <typename T, typename R>
struct layer_norm_giving {
    const T *x, *weight, *bias;
    T* y;
    R mean, rstd;
    template <int N> LUCID_FN void at(int column)
    {
        lucid_pack<T, N> pack = lucid_load<N>(x + column);
        #pragma unroll
        for (int k = 0; k < N; ++k) {
            R value = (lucid_cast<R>(pack[k]) - mean) * rstd;
            if (weight) value *= lucid_read<R>(weight + column + k);
            if (bias) value += lucid_read<R>(bias + column + k);
            pack[k] = lucid_cast<T>(value);
        }
        lucid_store(y + column, pack);
    }
};

// x is read twice, the second time perhaps from cache; x and y are aligned alike.
template <typename T, typename R, int W, bool RMS>
LUCID_FN void layer_norm_walked(
    const T* x, const T* weight, const T* bias, T* y, R* statistics, int columns, R eps)
{
    const long long row = blockIdx.x, start = row * columns;
    layer_norm_taking<T, R, RMS> taking = {x + start, {0, 0, 0}};
    lucid_walk<W, 0>(x + start, 0, columns, taking);
    const lucid_welford<R> all = lucid_block_sum(taking.seen);
    const R rstd = rsqrt(all.spread / columns + eps);
    layer_norm_giving<T, R> giving = {x + start, weight, bias, y + start, all.mean, rstd};
    lucid_walk<W, 0>(x + start, 0, columns, giving);
    if (threadIdx.x == 0) layer_norm_know<R, RMS>(statistics, row, gridDim.x, all.mean, rstd);
}

// --- gradients -------------------------------------------------------------------------------------
//
// With n = (x - mean) rstd and h = g w: dx = rstd (h - mean(h) - n mean(h n)), without mean(h) for RMS;
// dw = sum over rows of g n, db = sum over rows of g.

template <typename R, bool RMS>
LUCID_FN R layer_norm_gradient(R n, R h, const lucid_pair<R>& means, R rstd)
{
    return rstd * (RMS ? h - n * means.second : h - means.first - n * means.second);
}

// Groups of threads take rows in turn, and keep the columns' sums of g n and of g in registers from row
// to row: x and g are read once, dx is written once. Each group leaves its sums in a row of the parts,
// which layer_norm_parts adds up: all of the weight first, if `of_weights`, and then all of the bias, if
// `of_biases`.
template <typename T, typename R, int W, int LANES, int ITEMS, bool RMS>
LUCID_FN void layer_norm_backward_held(
    const T* x, const T* g, const T* weight, const R* statistics, T* dx, R* parts, bool of_weights,
    bool of_biases, long long rows, int columns)
{
    typedef lucid_held<T, W, ITEMS, LANES> Held;
    const long long groups = lucid_groups<LANES>(), group = lucid_group<LANES>();
    const layer_norm_known<R, RMS> known(statistics, rows);
    R of_weight[ITEMS][W] = {}, of_bias[ITEMS][W] = {};
    Held w;
    if (weight) w.load(weight, columns);
    // all groups of a block make as many turns: they exchange values
    for (long long first = 0; first < rows; first += groups) {
        const bool mine = first + group < rows;
        const long long row = mine ? first + group : rows - 1;
        Held input, cotangent;
        input.load(x + row * columns, columns);
        cotangent.load(g + row * columns, columns);
        const R mean = known.mean(row), rstd = known.rstd(row);
        lucid_pair<R> sums = {0, 0};
        Held::each(columns, [&](int i, int k, int) {
            const R n = (lucid_cast<R>(input.pack[i][k]) - mean) * rstd;
            const R given = lucid_cast<R>(cotangent.pack[i][k]);
            const R h = weight ? given * lucid_cast<R>(w.pack[i][k]) : given;
            sums = sums + lucid_pair<R>{h, h * n};
            if (mine) {
                of_weight[i][k] += given * n;
                of_bias[i][k] += given;
            }
        });
        if (!dx) continue;
        sums = lucid_group_sum<LANES>(sums);
        sums = {sums.first / columns, sums.second / columns};
        Held::each(columns, [&](int i, int k, int) {
            const R n = (lucid_cast<R>(input.pack[i][k]) - mean) * rstd;
            const R given = lucid_cast<R>(cotangent.pack[i][k]);
            const R h = weight ? given * lucid_cast<R>(w.pack[i][k]) : given;
            input.pack[i][k] = lucid_cast<T>(layer_norm_gradient<R, RMS>(n, h, sums, rstd));
        });
        if (mine) input.store(dx + row * columns, columns);
    }
    R* bias_parts = of_weights ? parts + groups * columns : parts;
    Held::each(columns, [&](int i, int k, int column) {
        if (of_weights) parts[group * columns + column] = of_weight[i][k];
        if (of_biases) bias_parts[group * columns + column] = of_bias[i][k];
    });
}

// The sums of the parts' columns, 32 of them a block, in a fixed order; `dweight` or `dbias` is null where
// there are no parts of it.
template <typename T, typename R>
LUCID_FN void layer_norm_parts(const R* parts, T* dweight, T* dbias, int count, int columns)
{
    const R* bias_parts = dweight ? parts + (long long)count * columns : parts;
    const int column = blockIdx.x * 32 + threadIdx.x % 32, warps = blockDim.x / 32;
    lucid_pair<R> sum = {0, 0};
    if (column < columns) {
        #pragma unroll 4
        for (long long part = threadIdx.x / 32; part < count; part += warps) {
            if (dweight) sum.first += parts[part * columns + column];
            if (dbias) sum.second += bias_parts[part * columns + column];
        }
    }
    sum = lucid_sum_over_warps(sum);
    if (column >= columns || threadIdx.x >= 32) return;
    if (dweight) dweight[column] = lucid_cast<T>(sum.first);
    if (dbias) dbias[column] = lucid_cast<T>(sum.second);
}

// --- gradients of longer rows ----------------------------------------------------------------------

template <typename T, typename R>
struct layer_norm_summing {
    const T *x, *g, *weight;
    R mean, rstd;
    lucid_pair<R> sums;
    template <int N> LUCID_FN void at(int column)
    {
        const lucid_pack<T, N> input = lucid_load<N>(x + column), given = lucid_load<N>(g + column);
        #pragma unroll
        for (int k = 0; k < N; ++k) {
            R h = lucid_cast<R>(given[k]);
            if (weight) h *= lucid_read<R>(weight + column + k);
            sums = sums + lucid_pair<R>{h, h * (lucid_cast<R>(input[k]) - mean) * rstd};
        }
    }
};

template <typename T, typename R, bool RMS>
struct layer_norm_descending {
    const T *x, *g, *weight;
    T* dx;
    R mean, rstd;
    lucid_pair<R> means;
    template <int N> LUCID_FN void at(int column)
    {
        lucid_pack<T, N> input = lucid_load<N>(x + column);
        const lucid_pack<T, N> given = lucid_load<N>(g + column);
        #pragma unroll
        for (int k = 0; k < N; ++k) {
            R h = lucid_cast<R>(given[k]);
            if (weight) h *= lucid_read<R>(weight + column + k);
            const R n = (lucid_cast<R>(input[k]) - mean) * rstd;
            input[k] = lucid_cast<T>(layer_norm_gradient<R, RMS>(n, h, means, rstd));
        }
        lucid_store(dx + column, input);
    }
};

// dx, a block a row: x and g are read twice. All arrays are aligned alike.
template <typename T, typename R, int W, bool RMS>
LUCID_FN void layer_norm_backward_walked(
    const T* x, const T* g, const T* weight, const R* statistics, T* dx, int columns)
{
    const long long row = blockIdx.x, start = row * columns;
    const layer_norm_known<R, RMS> known(statistics, gridDim.x);
    const R mean = known.mean(row), rstd = known.rstd(row);
    layer_norm_summing<T, R> summing = {x + start, g + start, weight, mean, rstd, {0, 0}};
    lucid_walk<W, 0>(x + start, 0, columns, summing);
    const lucid_pair<R> sums = lucid_block_sum(summing.sums);
    layer_norm_descending<T, R, RMS> descending = {
        x + start, g + start, weight, dx + start, mean, rstd,
        {sums.first / columns, sums.second / columns}};
    lucid_walk<W, 0>(x + start, 0, columns, descending);
}

// The sums of g n and of g over the rows blockIdx.y, blockIdx.y + gridDim.y, ...: a thread a column.
template <typename T, typename R, bool RMS>
LUCID_FN void layer_norm_column_parts(
    const T* x, const T* g, const R* statistics, R* parts, bool of_weights, bool of_biases, long long rows,
    int columns)
{
    const layer_norm_known<R, RMS> known(statistics, rows);
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    R of_weight = 0, of_bias = 0;
    #pragma unroll 4
    for (long long row = blockIdx.y; row < rows; row += gridDim.y) {
        const R given = lucid_read<R>(g + row * columns + column);
        const R apart = lucid_read<R>(x + row * columns + column) - known.mean(row);
        of_weight += given * apart * known.rstd(row);
        of_bias += given;
    }
    const long long at = blockIdx.y * (long long)columns + column;
    if (of_weights) parts[at] = of_weight;
    if (of_biases) parts[of_weights ? gridDim.y * (long long)columns + at : at] = of_bias;
}

// Softmax and its logarithm. Rows in contiguous memory: held in registers by a group of threads, or
// walked where they are longer; any other dimension: by columns. T is stored, R computed in.
#include "line.cuh"

// y = softmax(x), or its logarithm, of rows of at most LANES * ITEMS * W columns. A group of threads a
// row; x is read once and y written once.
template <typename T, typename R, int W, int LANES, int ITEMS, bool LOG>
LUCID_FN void softmax_held(const T* x, T* y, long long rows, int columns)
{
    typedef lucid_held<T, W, ITEMS, LANES> Held;
    const long long group = lucid_group<LANES>(), row = min(group, rows - 1);
    Held held;
    held.load(x + row * columns, columns);
    R top = lucid_lowest<R>(), sum = 0;
    Held::each(columns, [&](int i, int k, int) {
        top = lucid_greater()(top, lucid_cast<R>(held.pack[i][k]));
    });
    top = lucid_group_max<LANES>(top);
    Held::each(columns, [&](int i, int k, int) {
        const R power = exp(lucid_cast<R>(held.pack[i][k]) - top);
        if constexpr (lucid_same<T, R> && !LOG) held.pack[i][k] = power;
        sum += power;
    });
    sum = lucid_group_sum<LANES>(sum);
    const R shift = LOG ? top + log(sum) : top, scale = 1 / sum;
    Held::each(columns, [&](int i, int k, int) {
        const R value = lucid_cast<R>(held.pack[i][k]);
        if constexpr (LOG) held.pack[i][k] = lucid_cast<T>(value - shift);
        else if constexpr (lucid_same<T, R>) held.pack[i][k] = value * scale;
        else held.pack[i][k] = lucid_cast<T>(exp(value - top) * scale);
    });
    if (group < rows) held.store(y + row * columns, columns);
}

template <typename T, typename R>
struct softmax_taking {
    const T* x;
    lucid_online<R> online;
    template <int N> LUCID_FN void at(int column) { lucid_take(online, lucid_load<N>(x + column)); }
};

template <typename T, typename R, bool LOG>
struct softmax_giving {
    const T* x;
    T* y;
    R shift, scale;
    template <int N> LUCID_FN void at(int column)
    {
        lucid_pack<T, N> pack = lucid_load<N>(x + column);
        #pragma unroll
        for (int k = 0; k < N; ++k) {
            const R apart = lucid_cast<R>(pack[k]) - shift;
            pack[k] = lucid_cast<T>(LOG ? apart : exp(apart) * scale);
        }
        lucid_store(y + column, pack);
    }
};

// The same for rows of any length, a block a row: x is read twice, the second time perhaps from cache.
// One pass finds maximum and sum together (Milakov and Gimelshein 2018). x and y are aligned alike.
template <typename T, typename R, int W, bool LOG>
LUCID_FN void softmax_walked(const T* x, T* y, int columns)
{
    x += blockIdx.x * (long long)columns;
    y += blockIdx.x * (long long)columns;
    softmax_taking<T, R> taking = {x, {lucid_lowest<R>(), 0}};
    lucid_walk<W, 0>(x, 0, columns, taking);
    const lucid_online<R> online = lucid_block_sum(taking.online);
    const R shift = LOG ? online.logarithm() : online.top;
    softmax_giving<T, R, LOG> giving = {x, y, shift, 1 / online.sum};
    lucid_walk<W, 0>(x, 0, columns, giving);
}

// Along a dimension of `columns` elements that stand `inner` apart (see lucid_column). Up to ITEMS
// elements a thread are held, and x is read once; with ITEMS 0 it is read twice.
template <typename T, typename R, int ITEMS, bool LOG>
LUCID_FN void softmax_columns(const T* x, T* y, long long lines, int columns, long long inner)
{
    const lucid_column line(lines, columns, inner);
    lucid_online<R> online = {lucid_lowest<R>(), 0};
    R held[ITEMS > 0 ? ITEMS : 1];
    if constexpr (ITEMS > 0) {
        lucid_each_held<ITEMS>(line, columns, [&](int i, int c) {
            held[i] = lucid_read<R>(x + line.at(c));
        });
        lucid_each_held<ITEMS>(line, columns, [&](int i, int) {
            online.top = lucid_greater()(online.top, held[i]);
        });
        lucid_each_held<ITEMS>(line, columns, [&](int i, int) {
            online.sum += exp(held[i] - online.top);
        });
    } else {
        #pragma unroll 4
        for (int c = line.warp; c < columns; c += line.warps)
            online.take(lucid_read<R>(x + line.at(c)));
    }
    online = lucid_sum_over_warps(online);
    const R shift = LOG ? online.logarithm() : online.top, scale = 1 / online.sum;
    auto give = [&](int c, R value) {
        const R apart = value - shift;
        y[line.at(c)] = lucid_cast<T>(LOG ? apart : exp(apart) * scale);
    };
    if (!line.real) return;
    if constexpr (ITEMS > 0) {
        lucid_each_held<ITEMS>(line, columns, [&](int i, int c) { give(c, held[i]); });
    } else {
        #pragma unroll 4
        for (int c = line.warp; c < columns; c += line.warps) give(c, lucid_read<R>(x + line.at(c)));
    }
}

// --- gradients -----------------------------------------------------------------------------------
//
// From the result y and the cotangent g: y (g - sum(y g)), of the logarithm g - exp(y) sum(g).

template <bool LOG, typename R>
LUCID_FN R softmax_part(R y, R g)
{
    return LOG ? g : y * g;
}

template <bool LOG, typename R>
LUCID_FN R softmax_gradient(R y, R g, R sum)
{
    if constexpr (LOG) return g - exp(y) * sum;
    else return y * (g - sum);
}

// Of rows of at most LANES * ITEMS * W columns: y and g are read once.
template <typename T, typename R, int W, int LANES, int ITEMS, bool LOG>
LUCID_FN void softmax_backward_held(const T* y, const T* g, T* dx, long long rows, int columns)
{
    typedef lucid_held<T, W, ITEMS, LANES> Held;
    const long long group = lucid_group<LANES>(), row = min(group, rows - 1);
    Held result, cotangent;
    result.load(y + row * columns, columns);
    cotangent.load(g + row * columns, columns);
    R sum = 0;
    Held::each(columns, [&](int i, int k, int) {
        sum += softmax_part<LOG>(
            lucid_cast<R>(result.pack[i][k]), lucid_cast<R>(cotangent.pack[i][k]));
    });
    sum = lucid_group_sum<LANES>(sum);
    Held::each(columns, [&](int i, int k, int) {
        result.pack[i][k] = lucid_cast<T>(softmax_gradient<LOG>(
            lucid_cast<R>(result.pack[i][k]), lucid_cast<R>(cotangent.pack[i][k]), sum));
    });
    if (group < rows) result.store(dx + row * columns, columns);
}

template <typename T, typename R, bool LOG>
struct softmax_summing {
    const T *y, *g;
    R sum;
    template <int N> LUCID_FN void at(int column)
    {
        const lucid_pack<T, N> cotangent = lucid_load<N>(g + column);
        lucid_pack<T, N> result = cotangent;
        if constexpr (!LOG) result = lucid_load<N>(y + column);
        #pragma unroll
        for (int k = 0; k < N; ++k)
            sum += softmax_part<LOG>(lucid_cast<R>(result[k]), lucid_cast<R>(cotangent[k]));
    }
};

template <typename T, typename R, bool LOG>
struct softmax_descending {
    const T *y, *g;
    T* dx;
    R sum;
    template <int N> LUCID_FN void at(int column)
    {
        const lucid_pack<T, N> cotangent = lucid_load<N>(g + column);
        lucid_pack<T, N> result = lucid_load<N>(y + column);
        #pragma unroll
        for (int k = 0; k < N; ++k)
            result[k] = lucid_cast<T>(softmax_gradient<LOG>(
                lucid_cast<R>(result[k]), lucid_cast<R>(cotangent[k]), sum));
        lucid_store(dx + column, result);
    }
};

// Of rows of any length, a block a row: y and g are read twice (of the logarithm only g). All three
// arrays are aligned alike.
template <typename T, typename R, int W, bool LOG>
LUCID_FN void softmax_backward_walked(const T* y, const T* g, T* dx, int columns)
{
    const long long start = blockIdx.x * (long long)columns;
    softmax_summing<T, R, LOG> summing = {y + start, g + start, 0};
    lucid_walk<W, 0>(g + start, 0, columns, summing);
    const R sum = lucid_block_sum(summing.sum);
    softmax_descending<T, R, LOG> descending = {y + start, g + start, dx + start, sum};
    lucid_walk<W, 0>(g + start, 0, columns, descending);
}

// Along a dimension whose elements stand apart: y and g are read twice where there are more than
// ITEMS of them a thread.
template <typename T, typename R, int ITEMS, bool LOG>
LUCID_FN void softmax_backward_columns(
    const T* y, const T* g, T* dx, long long lines, int columns, long long inner)
{
    const lucid_column line(lines, columns, inner);
    R sum = 0, result[ITEMS > 0 ? ITEMS : 1], cotangent[ITEMS > 0 ? ITEMS : 1];
    if constexpr (ITEMS > 0) {
        lucid_each_held<ITEMS>(line, columns, [&](int i, int c) {
            result[i] = lucid_read<R>(y + line.at(c));
            cotangent[i] = lucid_read<R>(g + line.at(c));
        });
        lucid_each_held<ITEMS>(line, columns, [&](int i, int) {
            sum += softmax_part<LOG>(result[i], cotangent[i]);
        });
    } else {
        #pragma unroll 4
        for (int c = line.warp; c < columns; c += line.warps)
            sum += softmax_part<LOG>(
                LOG ? (R)0 : lucid_read<R>(y + line.at(c)), lucid_read<R>(g + line.at(c)));
    }
    sum = lucid_sum_over_warps(sum);
    auto give = [&](int c, R of_y, R of_g) {
        dx[line.at(c)] = lucid_cast<T>(softmax_gradient<LOG>(of_y, of_g, sum));
    };
    if (!line.real) return;
    if constexpr (ITEMS > 0) {
        lucid_each_held<ITEMS>(line, columns, [&](int i, int c) {
            give(c, result[i], cotangent[i]);
        });
    } else {
        #pragma unroll 4
        for (int c = line.warp; c < columns; c += line.warps)
            give(c, lucid_read<R>(y + line.at(c)), lucid_read<R>(g + line.at(c)));
    }
}

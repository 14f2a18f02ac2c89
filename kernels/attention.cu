// Attention by tiles: softmax(q k^T scale) v, forward and backward, with no matrix of scores in
// global memory. Dao, Fu, Ermon, Rudra and Re, "FlashAttention" (2022), and Dao, "FlashAttention-2"
// (2023), algorithms 1 and 2: an online softmax forward, which keeps one number a row; backward
// computes the weights again from it. Sums are taken in a fixed order, without atomics: one kernel
// walks the keys for each tile of queries (dq), another the queries for each tile of keys (dk, dv).
//
// A block has 128 threads and a tile of M rows of its own (queries, or keys in the last kernel); it
// walks the tiles of N rows on the other side. Heads of any width up to D are padded with zeros.
// While it computes on one tile the next one is on its way (async.cuh): each tile is filled as soon
// as all threads are done with it, and waited for when it is needed.
// Products of tiles come in two kinds, MMA 0 by ordinary arithmetic in float, MMA 1 by the tensor
// cores (16-bit types, M = 64), which differ in who holds what.
#include "async.cuh"
#include "block.cuh"
#include "mma.cuh"
#include "pack.cuh"

enum { LUCID_ATTENTION_THREADS = 128 };

LUCID_FN float lucid_infinity() { return __uint_as_float(0x7f800000u); }

// Steps of batch, head and row, in elements; columns lie side by side.
struct lucid_walk {
    long long batch, head, row;
    LUCID_FN long long to(int in_batch, int in_head) const
    {
        return in_batch * batch + in_head * head;
    }
};

// `group` heads of queries share a head of keys. `scale` is `unit` times log2(e): powers are of 2.
struct lucid_attention {
    lucid_walk q, k, v, o, g, dq, dk, dv;
    int heads, group, queries, keys, width, causal;
    float scale, unit;
};

// --- products of tiles ---------------------------------------------------------------------------

// A thread holds ROWS x COLUMNS scores of its block's M x N, and ROWS x DEPTHS of sums of M x D;
// LANES neighboring threads share the rows. `multiply` adds own other^T, `accumulate` p other.
template <int MMA, typename T, int D, int M, int N> struct lucid_tiles;

template <typename T, int D, int M, int N>
struct lucid_tiles<0, T, D, M, N> {
    typedef float element;
    static constexpr int LANES = 8, ROWS = M / 16, COLUMNS = N / 8, DEPTHS = D / 8;
    static constexpr int PITCH = D + 4, SCRATCH = M * (N + 4);  // rows of a quarter warp lie apart

    static LUCID_FN int row(int i) { return threadIdx.x / LANES + 16 * i; }
    static LUCID_FN int column(int j) { return threadIdx.x % LANES + LANES * j; }
    static LUCID_FN int depth(int j) { return threadIdx.x % LANES * 4 + j / 4 * 32 + j % 4; }

    static LUCID_FN void multiply(float (&s)[ROWS][COLUMNS], const float* own, const float* other)
    {
        #pragma unroll 2
        for (int d = 0; d < D; d += 4) {
            lucid_pack<float, 4> a[ROWS];
            #pragma unroll
            for (int i = 0; i < ROWS; ++i) a[i] = lucid_load_written<4>(own + row(i) * PITCH + d);
            #pragma unroll
            for (int j = 0; j < COLUMNS; ++j) {
                const lucid_pack<float, 4> b = lucid_load_written<4>(other + column(j) * PITCH + d);
                #pragma unroll
                for (int i = 0; i < ROWS; ++i)
                    #pragma unroll
                    for (int k = 0; k < 4; ++k) s[i][j] += a[i][k] * b[k];
            }
        }
    }

    // The weights of a row are with its lanes; a warp lays its rows out in shared memory.
    static LUCID_FN void accumulate(float (&sum)[ROWS][DEPTHS], const float (&p)[ROWS][COLUMNS],
                                    const float* other, float* scratch)
    {
        __syncwarp();
        #pragma unroll
        for (int i = 0; i < ROWS; ++i)
            #pragma unroll
            for (int j = 0; j < COLUMNS; ++j) scratch[row(i) * (N + 4) + column(j)] = p[i][j];
        __syncwarp();
        #pragma unroll 2
        for (int n = 0; n < N; n += 4) {
            lucid_pack<float, 4> a[ROWS];
            #pragma unroll
            for (int i = 0; i < ROWS; ++i)
                a[i] = lucid_load_written<4>(scratch + row(i) * (N + 4) + n);
            #pragma unroll
            for (int k = 0; k < 4; ++k)
                #pragma unroll
                for (int j = 0; j < DEPTHS; j += 4) {
                    const lucid_pack<float, 4> b =
                        lucid_load_written<4>(other + (n + k) * PITCH + depth(j));
                    #pragma unroll
                    for (int i = 0; i < ROWS; ++i)
                        #pragma unroll
                        for (int c = 0; c < 4; ++c) sum[i][j + c] += a[i][k] * b[c];
                }
        }
    }

    static LUCID_FN void put(element* tile, int i, int j, const float (&sum)[ROWS][DEPTHS])
    {
        tile[row(i) * PITCH + depth(j)] = sum[i][j];
    }
};

template <typename T, int D, int M, int N>
struct lucid_tiles<1, T, D, M, N> {
    typedef T element;
    static constexpr int LANES = 4, ROWS = 2, COLUMNS = N / 4, DEPTHS = D / 4;
    static constexpr int PITCH = D + 8, SCRATCH = 0;

    static LUCID_FN int first_row() { return threadIdx.x / 32 * 16; }
    static LUCID_FN int lane() { return threadIdx.x % 32; }
    static LUCID_FN int row(int i) { return first_row() + lane() / 4 + 8 * i; }
    static LUCID_FN int column(int j) { return j / 2 * 8 + lane() % 4 * 2 + j % 2; }
    static LUCID_FN int depth(int j) { return column(j); }

    // Two neighboring 16 x 8 pieces of a sum, whose elements a thread holds side by side.
    template <int C>
    static LUCID_FN void add(float (&sum)[2][C], int j, const unsigned (&a)[4],
                             const unsigned (&b)[4])
    {
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int at = j + 2 * half;
            float c[4] = {sum[0][at], sum[0][at + 1], sum[1][at], sum[1][at + 1]};
            lucid_mma_16816<T>(c, a, b[2 * half], b[2 * half + 1]);
            sum[0][at] = c[0];
            sum[0][at + 1] = c[1];
            sum[1][at] = c[2];
            sum[1][at + 1] = c[3];
        }
    }

    static LUCID_FN void multiply(float (&s)[2][COLUMNS], const T* own, const T* other)
    {
        const T* mine = own + (first_row() + lane() % 16) * PITCH + lane() / 16 * 8;
        const T* theirs = other + (lane() / 16 * 8 + lane() % 8) * PITCH + lane() / 8 % 2 * 8;
        #pragma unroll
        for (int d = 0; d < D; d += 16) {
            unsigned a[4], b[4];
            lucid_load_matrices<false>(a, mine + d);
            #pragma unroll
            for (int n = 0; n < N; n += 16) {
                lucid_load_matrices<false>(b, theirs + n * PITCH + d);
                add(s, n / 4, a, b);
            }
        }
    }

    // A sum's pieces are, rounded, the left operand of the next product as they lie.
    static LUCID_FN void accumulate(float (&sum)[2][DEPTHS], const float (&p)[2][COLUMNS],
                                    const T* other, float*)
    {
        const T* theirs = other + lane() % 16 * PITCH + lane() / 16 * 8;
        #pragma unroll
        for (int n = 0; n < N; n += 16) {
            const int j = n / 4;
            const unsigned a[4] = {
                lucid_two<T>(p[0][j], p[0][j + 1]), lucid_two<T>(p[1][j], p[1][j + 1]),
                lucid_two<T>(p[0][j + 2], p[0][j + 3]), lucid_two<T>(p[1][j + 2], p[1][j + 3])};
            #pragma unroll
            for (int d = 0; d < D; d += 16) {
                unsigned b[4];
                lucid_load_matrices<true>(b, theirs + n * PITCH + d);
                add(sum, d / 4, a, b);
            }
        }
    }

    static LUCID_FN void put(T* tile, int i, int j, const float (&sum)[2][DEPTHS])
    {
        tile[row(i) * PITCH + depth(j)] = lucid_cast<T>(sum[i][j]);
    }
};

// --- tiles in shared memory ----------------------------------------------------------------------

// R rows from `first` on of the `count` there are, zeros beyond them and beyond `width`; W elements
// an access. They may arrive later: see lucid_copies_wait.
template <typename E, int D, int R, int W, typename T>
LUCID_FN void lucid_fill(typename E::element* tile, const T* rows, long long step, int first,
                         int count, int width)
{
    constexpr int PACKS = D / W;
    constexpr bool COPIED = lucid_same<typename E::element, T> && W * sizeof(T) == 16;
    constexpr int AHEAD = COPIED && LUCID_ASYNC ? 1 : 4;  // loads in flight, where a thread waits
    #pragma unroll AHEAD
    for (int at = 0; at < R * PACKS; at += LUCID_ATTENTION_THREADS) {
        const int mine = at + threadIdx.x;
        if (R * PACKS % LUCID_ATTENTION_THREADS && mine >= R * PACKS) break;
        const int row = mine / PACKS, column = mine % PACKS * W;
        const bool taken = first + row < count && column < width;
        const T* from = rows + (taken ? (first + row) * step + column : 0);
        typename E::element* place = tile + row * E::PITCH + column;
        if constexpr (COPIED) {
            lucid_copy<16>(place, from, taken);
        } else {
            lucid_pack<T, W> pack;
            if (taken) pack = lucid_load<W>(from);
            #pragma unroll
            for (int k = 0; k < W; ++k)
                place[k] = taken ? lucid_cast<typename E::element>(pack[k])
                                 : lucid_cast<typename E::element>(0.0f);
        }
    }
}

// The rows of a tile to global memory, rounded where the tile is float and the memory is not.
template <typename E, int D, int R, int W, typename T>
LUCID_FN void lucid_empty(T* rows, const typename E::element* tile, long long step, int first,
                          int count, int width)
{
    constexpr int PACKS = D / W;
    for (int mine = threadIdx.x; mine < R * PACKS; mine += LUCID_ATTENTION_THREADS) {
        const int row = mine / PACKS, column = mine % PACKS * W;
        if (first + row >= count || column >= width) continue;
        const typename E::element* place = tile + row * E::PITCH + column;
        lucid_pack<T, W> pack;
        #pragma unroll
        for (int k = 0; k < W; ++k) pack[k] = lucid_cast<T>(place[k]);
        lucid_store<W>(rows + (first + row) * step + column, pack);
    }
}

// Sums times a factor for each row, through a tile that nobody reads any more.
template <typename E, int D, int M, int W, typename T>
LUCID_FN void lucid_deliver(T* rows, long long step, int first, int count, int width,
                            typename E::element* tile, float (&sum)[E::ROWS][E::DEPTHS],
                            const float (&factor)[E::ROWS])
{
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < E::ROWS; ++i)
        #pragma unroll
        for (int j = 0; j < E::DEPTHS; ++j) {
            sum[i][j] *= factor[i];
            E::put(tile, i, j, sum);
        }
    __syncthreads();
    lucid_empty<E, D, M, W>(rows, tile, step, first, count, width);
}

template <int R, int C>
LUCID_FN void lucid_clear(float (&x)[R][C])
{
    #pragma unroll
    for (int i = 0; i < R; ++i)
        #pragma unroll
        for (int j = 0; j < C; ++j) x[i][j] = 0;
}

// --- the kernels ---------------------------------------------------------------------------------

// Grid: tiles of queries, heads of queries, batches. Reads q once, k and v once a tile of queries
// (from the cache, mostly); writes o, and for each row log2 of the sum of 2^score.
template <typename T, int D, int M, int N, int W, int MMA>
LUCID_FN void attention_forward(const T* q, const T* k, const T* v, T* o, float* lse,
                                lucid_attention at)
{
    typedef lucid_tiles<MMA, T, D, M, N> E;
    typedef typename E::element element;
    extern __shared__ __align__(16) char lucid_shared[];
    element* q_tile = (element*)lucid_shared;
    element* k_tile = q_tile + M * E::PITCH;
    element* v_tile = k_tile + N * E::PITCH;
    float* scratch = (float*)(v_tile + N * E::PITCH);

    // Later tiles of a causal head are longer: they start first.
    const int first = (gridDim.x - 1 - blockIdx.x) * M, head = blockIdx.y, batch = blockIdx.z;
    const T* my_k = k + at.k.to(batch, head / at.group);
    const T* my_v = v + at.v.to(batch, head / at.group);
    lucid_fill<E, D, M, W>(q_tile, q + at.q.to(batch, head), at.q.row, first, at.queries, at.width);
    lucid_fill<E, D, N, W>(k_tile, my_k, at.k.row, 0, at.keys, at.width);

    float sum[E::ROWS][E::DEPTHS], top[E::ROWS], total[E::ROWS];
    lucid_clear(sum);
    #pragma unroll
    for (int i = 0; i < E::ROWS; ++i) {
        top[i] = lucid_lowest<float>();
        total[i] = 0;
    }
    const int end = at.causal ? min(at.keys, first + M) : at.keys;
    for (int from = 0; from < end; from += N) {
        lucid_copies_wait();
        __syncthreads();  // these keys have come, and the values before are done with
        lucid_fill<E, D, N, W>(v_tile, my_v, at.v.row, from, at.keys, at.width);
        float s[E::ROWS][E::COLUMNS];
        lucid_clear(s);
        E::multiply(s, q_tile, k_tile);
        lucid_copies_wait();
        __syncthreads();  // their values have come, and the keys are done with
        if (from + N < end)
            lucid_fill<E, D, N, W>(k_tile, my_k, at.k.row, from + N, at.keys, at.width);
        const bool whole = from + N <= (at.causal ? min(at.keys, first + 1) : at.keys);
        #pragma unroll
        for (int i = 0; i < E::ROWS; ++i) {
            const int visible = at.causal ? min(at.keys, first + E::row(i) + 1) : at.keys;
            float highest = top[i];
            #pragma unroll
            for (int j = 0; j < E::COLUMNS; ++j) {
                s[i][j] *= at.scale;
                if (!whole && from + E::column(j) >= visible) s[i][j] = -lucid_infinity();
                highest = fmax(highest, s[i][j]);
            }
            highest = lucid_warp_max<E::LANES>(highest);
            const float fading = exp2(top[i] - highest);
            top[i] = highest;
            total[i] *= fading;
            #pragma unroll
            for (int j = 0; j < E::COLUMNS; ++j) {
                s[i][j] = exp2(s[i][j] - highest);
                total[i] += s[i][j];
            }
            #pragma unroll
            for (int j = 0; j < E::DEPTHS; ++j) sum[i][j] *= fading;
        }
        E::accumulate(sum, s, v_tile, scratch);
    }
    float factor[E::ROWS];
    #pragma unroll
    for (int i = 0; i < E::ROWS; ++i) {
        const float all = lucid_warp_sum<E::LANES>(total[i]);
        const int row = first + E::row(i);
        factor[i] = 1 / all;
        if (threadIdx.x % E::LANES == 0 && row < at.queries)
            lse[((long long)batch * at.heads + head) * at.queries + row] = top[i] + log2(all);
    }
    lucid_deliver<E, D, M, W>(o + at.o.to(batch, head), at.o.row, first, at.queries, at.width,
                              q_tile, sum, factor);
}

// Grid as forward. Also leaves delta, the sum of each row of g o, for the other kernel.
// ds = p (g v^T - delta), dq = ds k scale.
template <typename T, int D, int M, int N, int W, int MMA>
LUCID_FN void attention_queries(const T* q, const T* k, const T* v, const T* o, const T* g,
                                const float* lse, T* dq, float* delta, lucid_attention at)
{
    typedef lucid_tiles<MMA, T, D, M, N> E;
    typedef typename E::element element;
    extern __shared__ __align__(16) char lucid_shared[];
    element* q_tile = (element*)lucid_shared;
    element* g_tile = q_tile + M * E::PITCH;
    element* k_tile = g_tile + M * E::PITCH;
    element* v_tile = k_tile + N * E::PITCH;
    float* scratch = (float*)(v_tile + N * E::PITCH);

    const int first = (gridDim.x - 1 - blockIdx.x) * M, head = blockIdx.y, batch = blockIdx.z;
    const T* my_k = k + at.k.to(batch, head / at.group);
    const T* my_v = v + at.v.to(batch, head / at.group);
    const T* my_o = o + at.o.to(batch, head);
    const long long line = ((long long)batch * at.heads + head) * at.queries;
    lucid_fill<E, D, M, W>(q_tile, q + at.q.to(batch, head), at.q.row, first, at.queries, at.width);
    lucid_fill<E, D, M, W>(g_tile, g + at.g.to(batch, head), at.g.row, first, at.queries, at.width);
    lucid_fill<E, D, N, W>(v_tile, my_v, at.v.row, 0, at.keys, at.width);
    lucid_copies_wait();
    __syncthreads();
    lucid_fill<E, D, N, W>(k_tile, my_k, at.k.row, 0, at.keys, at.width);

    float sum[E::ROWS][E::DEPTHS], my_lse[E::ROWS], my_delta[E::ROWS];
    lucid_clear(sum);
    #pragma unroll
    for (int i = 0; i < E::ROWS; ++i) {
        const int row = first + E::row(i);
        float part = 0;
        if (row < at.queries)
            for (int c = threadIdx.x % E::LANES * W; c < at.width; c += E::LANES * W) {
                const lucid_pack<T, W> pack = lucid_load<W>(my_o + row * at.o.row + c);
                #pragma unroll
                for (int e = 0; e < W; ++e)
                    part += lucid_cast<float>(pack[e]) *
                            lucid_cast<float>(g_tile[E::row(i) * E::PITCH + c + e]);
            }
        my_delta[i] = lucid_warp_sum<E::LANES>(part);
        my_lse[i] = row < at.queries ? lse[line + row] : lucid_infinity();  // which makes weights zero
        if (threadIdx.x % E::LANES == 0 && row < at.queries) delta[line + row] = my_delta[i];
    }
    const int end = at.causal ? min(at.keys, first + M) : at.keys;
    for (int from = 0; from < end; from += N) {
        float s[E::ROWS][E::COLUMNS], ds[E::ROWS][E::COLUMNS];
        lucid_clear(s);
        lucid_clear(ds);
        E::multiply(ds, g_tile, v_tile);
        lucid_copies_wait();
        __syncthreads();  // these keys have come, and their values are done with
        const int next = from + N;
        if (next < end) lucid_fill<E, D, N, W>(v_tile, my_v, at.v.row, next, at.keys, at.width);
        E::multiply(s, q_tile, k_tile);
        const bool whole = from + N <= (at.causal ? min(at.keys, first + 1) : at.keys);
        #pragma unroll
        for (int i = 0; i < E::ROWS; ++i) {
            const int visible = at.causal ? min(at.keys, first + E::row(i) + 1) : at.keys;
            #pragma unroll
            for (int j = 0; j < E::COLUMNS; ++j) {
                const bool seen = whole || from + E::column(j) < visible;
                const float weight = exp2(s[i][j] * at.scale - my_lse[i]);
                ds[i][j] = seen ? weight * (ds[i][j] - my_delta[i]) : 0;
            }
        }
        E::accumulate(sum, ds, k_tile, scratch);
        lucid_copies_wait();
        __syncthreads();  // the next values have come, and the keys are done with
        if (next < end) lucid_fill<E, D, N, W>(k_tile, my_k, at.k.row, next, at.keys, at.width);
    }
    float factor[E::ROWS];
    #pragma unroll
    for (int i = 0; i < E::ROWS; ++i) factor[i] = at.unit;
    lucid_deliver<E, D, M, W>(dq + at.dq.to(batch, head), at.dq.row, first, at.queries, at.width,
                              q_tile, sum, factor);
}

// Grid: tiles of keys, heads of keys, batches. Scores stand on their side, keys by queries, so that
// both sums come from the same two products: dv = p^T g, dk = ds^T q scale.
template <typename T, int D, int M, int N, int W, int MMA>
LUCID_FN void attention_keys(const T* q, const T* k, const T* v, const T* g, const float* lse,
                             const float* delta, T* dk, T* dv, lucid_attention at)
{
    typedef lucid_tiles<MMA, T, D, M, N> E;
    typedef typename E::element element;
    extern __shared__ __align__(16) char lucid_shared[];
    element* k_tile = (element*)lucid_shared;
    element* v_tile = k_tile + M * E::PITCH;
    element* q_tile = v_tile + M * E::PITCH;
    element* g_tile = q_tile + N * E::PITCH;
    float* lse_tile = (float*)(g_tile + N * E::PITCH);
    float* delta_tile = lse_tile + N;
    float* scratch = delta_tile + N;

    const int first = blockIdx.x * M, head = blockIdx.y, batch = blockIdx.z;
    lucid_fill<E, D, M, W>(k_tile, k + at.k.to(batch, head), at.k.row, first, at.keys, at.width);
    lucid_fill<E, D, M, W>(v_tile, v + at.v.to(batch, head), at.v.row, first, at.keys, at.width);
    float dk_sum[E::ROWS][E::DEPTHS], dv_sum[E::ROWS][E::DEPTHS];
    lucid_clear(dk_sum);
    lucid_clear(dv_sum);

    // Steps: the tiles of queries that see these keys, of each head that shares them.
    const int start = at.causal ? first / N * N : 0;
    const int tiles = start < at.queries ? (at.queries - start + N - 1) / N : 0;
    const int steps = tiles * at.group;
    const auto fill_q = [&](int step) {
        const T* rows = q + at.q.to(batch, head * at.group + step / tiles);
        const int from = start + step % tiles * N;
        lucid_fill<E, D, N, W>(q_tile, rows, at.q.row, from, at.queries, at.width);
    };
    const auto fill_g = [&](int step) {
        const int one = head * at.group + step / tiles, from = start + step % tiles * N;
        const T* rows = g + at.g.to(batch, one);
        lucid_fill<E, D, N, W>(g_tile, rows, at.g.row, from, at.queries, at.width);
        if (threadIdx.x < N) {  // zeros for rows beyond the last, whose q and g are zeros too
            const int row = from + threadIdx.x;
            const bool taken = row < at.queries;
            const long long line = ((long long)batch * at.heads + one) * at.queries;
            lucid_copy<4>(lse_tile + threadIdx.x, lse + line + (taken ? row : 0), taken);
            lucid_copy<4>(delta_tile + threadIdx.x, delta + line + (taken ? row : 0), taken);
        }
    };
    if (steps > 0) fill_g(0);
    lucid_copies_wait();
    __syncthreads();
    if (steps > 0) fill_q(0);
    for (int step = 0; step < steps; ++step) {
        const int from = start + step % tiles * N;
        float s[E::ROWS][E::COLUMNS], ds[E::ROWS][E::COLUMNS];
        lucid_clear(s);
        lucid_clear(ds);
        E::multiply(ds, v_tile, g_tile);
        lucid_copies_wait();
        __syncthreads();  // these queries have come
        E::multiply(s, k_tile, q_tile);
        #pragma unroll
        for (int j = 0; j < E::COLUMNS; ++j) {
            const float my_lse = lse_tile[E::column(j)], my_delta = delta_tile[E::column(j)];
            #pragma unroll
            for (int i = 0; i < E::ROWS; ++i) {
                const bool seen = !at.causal || first + E::row(i) <= from + E::column(j);
                s[i][j] = seen ? exp2(s[i][j] * at.scale - my_lse) : 0;
                ds[i][j] = seen ? s[i][j] * (ds[i][j] - my_delta) : 0;
            }
        }
        E::accumulate(dv_sum, s, g_tile, scratch);
        __syncthreads();  // the gradients are done with
        if (step + 1 < steps) fill_g(step + 1);
        E::accumulate(dk_sum, ds, q_tile, scratch);
        lucid_copies_wait();
        __syncthreads();  // the next gradients have come, and the queries are done with
        if (step + 1 < steps) fill_q(step + 1);
    }
    float factor[E::ROWS];
    #pragma unroll
    for (int i = 0; i < E::ROWS; ++i) factor[i] = 1;
    lucid_deliver<E, D, M, W>(dv + at.dv.to(batch, head), at.dv.row, first, at.keys, at.width,
                              k_tile, dv_sum, factor);
    #pragma unroll
    for (int i = 0; i < E::ROWS; ++i) factor[i] = at.unit;
    lucid_deliver<E, D, M, W>(dk + at.dk.to(batch, head), at.dk.row, first, at.keys, at.width,
                              v_tile, dk_sum, factor);
}

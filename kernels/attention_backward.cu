// Attention by tiles (attention.cuh): the gradients, by five products of each tile of queries with
// each tile of keys. p = 2^(q k^T scale - lse), ds = p (g v^T - delta), where delta is the sum of
// each row of g o; dv = p^T g, dk = ds^T q unit, dq = ds k unit.
//
// A block owns tiles of keys: dk and dv stay in its registers while it walks the queries. What it
// adds to dq goes into a float copy of dq that no other block of that head writes, for the blocks
// that share the keys of a head (gridDim.x of them) have a copy each; `attention_dq` adds the copies
// in their order. No atomics, so that the same numbers give the same bits.
#include "attention.cuh"

// Columns of dq, dk and dv whose sums a block has: of wide heads half, for registers do not hold more.
template <int D> constexpr int lucid_columns = D > 128 ? D / 2 : D;

// --- the product whose rows are queries ----------------------------------------------------------

// ds stands on its side, keys by queries, and lies in shared memory because each warp needs the keys
// of all: `keep` puts a thread's part there (the plain kind's `accumulate` has left it already) and
// `accumulate` adds ds^T k to N x C sums, of which a thread holds ROWS x DEPTHS.
template <int MMA, typename T, int D, int M, int N> struct lucid_turned;

template <typename T, int D, int M, int N>
struct lucid_turned<0, T, D, M, N> {
    typedef lucid_tiles<0, T, D, M, N> E;
    typedef float element;
    static constexpr int THREADS = E::THREADS, PITCH = E::PITCH, KEPT = 0;
    static constexpr int LANES = N < 16 ? 16 : 8, ROWS = N * LANES / THREADS;
    static constexpr int DEPTHS = lucid_columns<D> / LANES;

    static LUCID_FN int row(int i) { return threadIdx.x / LANES + THREADS / LANES * i; }
    static LUCID_FN int depth(int j)
    {
        return threadIdx.x % LANES * 4 + j / 4 * (4 * LANES) + j % 4;
    }
    static LUCID_FN float& part(float (&sum)[ROWS][DEPTHS], int e)
    {
        return sum[e / DEPTHS][e % DEPTHS];
    }

    static LUCID_FN void keep(float*, const float (&)[E::ROWS][E::COLUMNS]) { }

    static LUCID_FN void accumulate(float (&sum)[ROWS][DEPTHS], const float* ds, const float* keys)
    {
        #pragma unroll 4
        for (int m = 0; m < M; ++m) {
            float a[ROWS];
            #pragma unroll
            for (int i = 0; i < ROWS; ++i) a[i] = ds[m * (N + 4) + row(i)];
            #pragma unroll
            for (int j = 0; j < DEPTHS; j += 4) {
                const lucid_pack<float, 4> b = lucid_load_written<4>(keys + m * PITCH + depth(j));
                #pragma unroll
                for (int i = 0; i < ROWS; ++i)
                    #pragma unroll
                    for (int c = 0; c < 4; ++c) sum[i][j + c] += a[i] * b[c];
            }
        }
    }

    static LUCID_FN void put(float* tile, int i, int j, const float (&sum)[ROWS][DEPTHS])
    {
        tile[row(i) * PITCH + depth(j)] = sum[i][j];
    }
};

template <typename T, int D, int M, int N>
struct lucid_turned<1, T, D, M, N> {
    typedef lucid_tiles<1, T, D, M, N, M / 16> E;
    typedef T element;
    static constexpr int THREADS = E::THREADS;
    static constexpr int DOWN = N / 16, ACROSS = THREADS / 32 / DOWN;  // warps
    static constexpr int WIDE = lucid_columns<D> / ACROSS;
    static_assert(WIDE % 16 == 0, "two pieces at once");
    static constexpr int ROWS = 2, DEPTHS = WIDE / 4, PITCH = E::PITCH;
    static constexpr int STEP = N + 8, KEPT = M * STEP;  // elements of ds in shared memory

    static LUCID_FN int first_row() { return threadIdx.x / 32 % DOWN * 16; }
    static LUCID_FN int first_depth() { return threadIdx.x / 32 / DOWN * WIDE; }
    static LUCID_FN int row(int i) { return first_row() + E::lane() / 4 + 8 * i; }
    static LUCID_FN int depth(int j) { return first_depth() + E::column(j); }
    static LUCID_FN float& part(float (&sum)[2][DEPTHS], int e)  // as the tensor cores want it
    {
        return sum[e / 2 % 2][e / 4 * 2 + e % 2];
    }

    static LUCID_FN void keep(T* ds, const float (&part)[2][E::COLUMNS])
    {
        #pragma unroll
        for (int i = 0; i < 2; ++i)
            #pragma unroll
            for (int j = 0; j < E::COLUMNS; j += 2)
                *(unsigned*)(ds + E::row(i) * STEP + E::column(j)) =
                    lucid_two<T>(part[i][j], part[i][j + 1]);
    }

    static LUCID_FN void accumulate(float (&sum)[2][DEPTHS], const T* ds, const T* keys)
    {
        const int lane = E::lane();
        const T* mine = ds + (lane / 16 * 8 + lane % 8) * STEP + lane / 8 % 2 * 8 + first_row();
        const T* theirs = keys + lane % 16 * PITCH + lane / 16 * 8 + first_depth();
        #pragma unroll
        for (int m = 0; m < M; m += 16) {
            unsigned a[4], b[4];
            lucid_load_matrices<true>(a, mine + m * STEP);
            #pragma unroll
            for (int d = 0; d < WIDE; d += 16) {
                lucid_load_matrices<true>(b, theirs + m * PITCH + d);
                E::add(sum, 0, d / 4, a, b);
            }
        }
    }

    static LUCID_FN void put(T* tile, int i, int j, const float (&sum)[2][DEPTHS])
    {
        tile[row(i) * PITCH + depth(j)] = lucid_cast<T>(sum[i][j]);
    }
};

template <typename T, int D, int M, int N>
struct lucid_turned<2, T, D, M, N> {
    typedef lucid_tiles<2, T, D, M, N, M / 16> E;
    typedef float element;
    static constexpr int THREADS = E::THREADS;
    static constexpr int DOWN = N / 16, ACROSS = THREADS / 32 / DOWN;  // warps
    static constexpr int WIDE = lucid_columns<D> / ACROSS;
    static constexpr int ROWS = 2, DEPTHS = WIDE / 4, PITCH = E::PITCH;
    static constexpr int STEP = N + 8, KEPT = M * STEP;  // elements of ds in shared memory

    static LUCID_FN int first_row() { return threadIdx.x / 32 % DOWN * 16; }
    static LUCID_FN int first_depth() { return threadIdx.x / 32 / DOWN * WIDE; }
    static LUCID_FN int row(int i) { return first_row() + E::lane() / 4 + 8 * i; }
    static LUCID_FN int depth(int j) { return first_depth() + E::column(j); }
    static LUCID_FN float& part(float (&sum)[2][DEPTHS], int e)
    {
        return sum[e / 2 % 2][e / 4 * 2 + e % 2];
    }

    static LUCID_FN void keep(float* ds, const float (&part)[2][E::COLUMNS])
    {
        #pragma unroll
        for (int i = 0; i < 2; ++i)
            #pragma unroll
            for (int j = 0; j < E::COLUMNS; ++j)
                ds[E::row(i) * STEP + E::column(j)] = part[i][j];
    }

    static LUCID_FN void accumulate(float (&sum)[2][DEPTHS], const float* ds, const float* keys)
    {
        const int lane = E::lane();
        const float* mine = ds + lane % 4 * STEP + first_row() + lane / 4;
        const float* theirs = keys + lane % 4 * PITCH + first_depth() + lane / 4;
        #pragma unroll
        for (int m = 0; m < M; m += 8) {
            unsigned a[4];
            #pragma unroll
            for (int k = 0; k < 4; ++k)
                a[k] = lucid_tf32(mine[(m + k / 2 * 4) * STEP + k % 2 * 8]);
            #pragma unroll
            for (int d = 0; d < WIDE; d += 8)
                E::add(sum, 0, d / 4, a, lucid_tf32(theirs[m * PITCH + d]),
                       lucid_tf32(theirs[(m + 4) * PITCH + d]));
        }
    }

    static LUCID_FN void put(float* tile, int i, int j, const float (&sum)[2][DEPTHS])
    {
        tile[row(i) * PITCH + depth(j)] = sum[i][j];
    }
};

// Where the sums of a tile of queries lie in a copy of dq: as the threads hold them, 16 bytes each.
template <int N, int D>
LUCID_FN long long lucid_place(const lucid_attention& at, int copy, int batch, int head, int tile,
                               int part)
{
    const long long line = ((long long)copy * gridDim.z + batch) * at.heads + head;
    const long long before = (line * ((at.queries + N - 1) / N) + tile) * (D / lucid_columns<D>);
    return (before + part) * (N * lucid_columns<D>) + lucid_thread() * 4;
}

// --- kernels -------------------------------------------------------------------------------------

enum { LUCID_DELTA_LANES = 8 };

// Grid: rows of queries, heads of queries, batches; 8 threads a row. Of each row its lse and delta,
// side by side.
template <typename T, int W>
LUCID_FN void attention_delta(const T* o, const T* g, const float* lse, float* lines,
                              lucid_attention at)
{
    const int row = (blockIdx.x * blockDim.x + threadIdx.x) / LUCID_DELTA_LANES;
    const int head = blockIdx.y, batch = blockIdx.z;
    float sum = 0;
    if (row < at.queries) {
        const T* my_o = o + at.o.to(batch, head) + row * at.o.row;
        const T* my_g = g + at.g.to(batch, head) + row * at.g.row;
        for (int c = threadIdx.x % LUCID_DELTA_LANES * W; c < at.width; c += LUCID_DELTA_LANES * W) {
            const lucid_pack<T, W> a = lucid_load<W>(my_o + c), b = lucid_load<W>(my_g + c);
            #pragma unroll
            for (int e = 0; e < W; ++e) sum += lucid_cast<float>(a[e]) * lucid_cast<float>(b[e]);
        }
    }
    sum = lucid_warp_sum<LUCID_DELTA_LANES>(sum);
    if (threadIdx.x % LUCID_DELTA_LANES == 0 && row < at.queries) {
        const long long line = ((long long)batch * at.heads + head) * at.queries + row;
        lucid_pack<float, 2> pair;
        pair[0] = lse[line];
        pair[1] = sum;
        lucid_store<2>(lines + 2 * line, pair);
    }
}

// The weights and the gradients of the scores, of scores s and of g v^T in ds. EDGE: some are not
// seen, for this key comes after that query or after the last key, or there is no such query. The
// weights left in s are those that dropout keeps.
template <bool EDGE, int DROPS, typename E, typename B>
LUCID_FN void lucid_slopes(float (&s)[E::ROWS][E::COLUMNS], float (&ds)[E::ROWS][E::COLUMNS],
                           const float* lines, const unsigned (&kept)[E::ROWS], const B* mask,
                           int batch, int head, int first, int from, const lucid_attention& at)
{
    #pragma unroll
    for (int j = 0; j < E::COLUMNS; ++j) {
        const lucid_pack<float, 2> line = lucid_load_written<2>(lines + 2 * E::column(j));
        const int query = from + E::column(j);
        int last = at.causal ? min(query + 1, at.keys) : at.keys;
        if (!lucid_same<B, void> && query >= at.queries) last = 0;  // whose lse would not fit
        const B* row = lucid_mask_row(mask, at, batch, head, query);
        #pragma unroll
        for (int i = 0; i < E::ROWS; ++i) {
            const int key = first + E::row(i);
            const bool seen = !EDGE || key < last;
            float score = s[i][j] * at.scale;
            if (seen) score = lucid_masked(score, row, at, key);
            const float weight = seen ? lucid_exp2(score - line[0]) : 0;
            const float factor = !DROPS ? 1 : kept[i] >> j & 1 ? at.kept : 0;
            s[i][j] = weight * factor;
            ds[i][j] = weight * (ds[i][j] * factor - line[1]);
        }
    }
}

// Grid: blocks that share the keys of a head (for each part of the columns), heads of keys, batches.
// Scores stand on their side,
// keys by queries, so that dv and dk come from the products as they lie.
template <typename T, int D, int M, int N, int W, int MMA, typename B, int DROPS>
LUCID_FN void attention_gradients(const T* q, const T* k, const T* v, const T* g,
                                  const float* lines, float* dq, T* dk, T* dv, const B* mask,
                                  long long seed, long long draw, lucid_attention at)
{
    typedef lucid_tiles<MMA, T, D, M, N, MMA ? M / 16 : 4> E;
    typedef lucid_turned<MMA, T, D, M, N> Turned;
    typedef typename E::element element;
    constexpr int C = lucid_columns<D>, PARTS = D / C;
    typedef lucid_tiles<MMA, T, C, M, N, MMA ? M / 16 : 4> Sums;
    extern __shared__ __align__(16) char lucid_shared[];
    element* k_tile = (element*)lucid_shared;
    element* v_tile = k_tile + M * E::PITCH;
    element* q_tile = v_tile + M * E::PITCH;
    element* g_tile = q_tile + N * E::PITCH;
    element* ds_tile = g_tile + N * E::PITCH;
    float* line_tile = (float*)(ds_tile + Turned::KEPT);
    float* scratch = line_tile + 2 * N;  // of the plain kind, which has ds there

    const int head = blockIdx.y, batch = blockIdx.z;
    const int copy = blockIdx.x / PARTS, part = blockIdx.x % PARTS;
    for (int first = copy * M; first < at.keys; first += gridDim.x / PARTS * M) {
        __syncthreads();  // the tiles of the keys before are done with
        lucid_fill<E, D, M, W>(k_tile, k + at.k.to(batch, head), at.k.row, first, at.keys, at.width);
        lucid_fill<E, D, M, W>(v_tile, v + at.v.to(batch, head), at.v.row, first, at.keys, at.width);
        float dk_sum[E::ROWS][Sums::DEPTHS], dv_sum[E::ROWS][Sums::DEPTHS];
        lucid_clear(dk_sum);
        lucid_clear(dv_sum);

        // Steps: the tiles of queries that see these keys, of each head that shares them.
        const int start = at.causal ? first / N * N : 0;
        int member = start < at.queries ? 0 : at.group, from = start;  // of the group, and of rows
        const auto fill_q = [&](int member, int row) {
            const int one = head * at.group + member;
            lucid_fill<E, D, N, W>(q_tile, q + at.q.to(batch, one), at.q.row, row, at.queries,
                                   at.width);
        };
        const auto fill_g = [&](int member, int row) {
            const int one = head * at.group + member;
            lucid_fill<E, D, N, W>(g_tile, g + at.g.to(batch, one), at.g.row, row, at.queries,
                                   at.width);
            if (threadIdx.x < N) {  // zeros for rows beyond the last, whose q and g are zeros too
                const int mine = row + threadIdx.x;
                const long long line = ((long long)batch * at.heads + one) * at.queries + mine;
                lucid_copy<8>(line_tile + 2 * threadIdx.x, lines + 2 * line, mine < at.queries);
            }
        };
        if (member < at.group) fill_g(member, from);
        lucid_copies_wait();
        __syncthreads();
        if (member < at.group) fill_q(member, from);
        while (member < at.group) {
            const int one = head * at.group + member;
            float s[E::ROWS][E::COLUMNS], ds[E::ROWS][E::COLUMNS];
            lucid_clear(s);
            lucid_clear(ds);
            E::multiply(ds, v_tile, g_tile);
            lucid_copies_wait();
            __syncthreads();  // these queries have come
            E::multiply(s, k_tile, q_tile);
            unsigned kept[E::ROWS];
            if constexpr (DROPS)
                lucid_keep<E, true>(kept, at, seed, draw, batch, one, first, from);
            const bool masked = !lucid_same<B, void>;
            if (first + M <= (at.causal ? min(from + 1, at.keys) : at.keys) &&
                (!masked || from + N <= at.queries))
                lucid_slopes<false, DROPS, E>(s, ds, line_tile, kept, mask, batch, one, first, from,
                                              at);
            else
                lucid_slopes<true, DROPS, E>(s, ds, line_tile, kept, mask, batch, one, first, from,
                                             at);
            Turned::keep(ds_tile, ds);
            E::accumulate(dv_sum, s, g_tile + part * C, scratch);
            __syncthreads();  // the gradients are done with, and ds is there
            const int tile = from / N;
            from += N;
            if (from >= at.queries) {  // the next head
                from = start;
                ++member;
            }
            if (member < at.group) fill_g(member, from);
            float dq_sum[Turned::ROWS][Turned::DEPTHS];
            float* const place = dq + lucid_place<N, D>(at, copy, batch, one, tile, part);
            if (first == copy * M) {  // whose queries are all that later keys meet
                lucid_clear(dq_sum);
            } else {
                #pragma unroll
                for (int e = 0; e < Turned::ROWS * Turned::DEPTHS; e += 4) {
                    const lucid_pack<float, 4> pack =
                        lucid_load_written<4>(place + e * Turned::THREADS);
                    #pragma unroll
                    for (int c = 0; c < 4; ++c) Turned::part(dq_sum, e + c) = pack[c];
                }
            }
            E::accumulate(dk_sum, ds, q_tile + part * C, scratch);
            if constexpr (MMA) {
                Turned::accumulate(dq_sum, ds_tile, k_tile + part * C);
            } else {
                __syncthreads();  // ds is there
                Turned::accumulate(dq_sum, scratch, k_tile + part * C);
            }
            #pragma unroll
            for (int e = 0; e < Turned::ROWS * Turned::DEPTHS; e += 4) {
                lucid_pack<float, 4> pack;
                #pragma unroll
                for (int c = 0; c < 4; ++c) pack[c] = Turned::part(dq_sum, e + c);
                lucid_store<4>(place + e * Turned::THREADS, pack);
            }
            lucid_copies_wait();
            __syncthreads();  // the next gradients have come, and the queries are done with
            if (member < at.group) fill_q(member, from);
        }
        float factor[E::ROWS];
        #pragma unroll
        for (int i = 0; i < E::ROWS; ++i) factor[i] = 1;
        const int width = at.width - part * C;
        lucid_deliver<Sums, C, M, W>(dv + at.dv.to(batch, head) + part * C, at.dv.row, first,
                                     at.keys, width, v_tile, dv_sum, factor);
        #pragma unroll
        for (int i = 0; i < E::ROWS; ++i) factor[i] = at.unit;
        lucid_deliver<Sums, C, M, W>(dk + at.dk.to(batch, head) + part * C, at.dk.row, first,
                                     at.keys, width, k_tile, dk_sum, factor);
    }
}

// Grid: tiles of queries, heads of queries, batches. The copies of dq together, in their order; a
// causal copy holds the queries from its first key on.
template <typename T, int D, int M, int N, int W, int MMA>
LUCID_FN void attention_dq(const float* copies, T* dq, int count, lucid_attention at)
{
    typedef lucid_turned<MMA, T, D, M, N> Turned;
    constexpr int C = lucid_columns<D>;
    extern __shared__ __align__(16) char lucid_shared[];
    const int first = blockIdx.x * N, head = blockIdx.y, batch = blockIdx.z;
    if (at.causal) count = min(count, (first + N - 1) / M + 1);
    float factor[Turned::ROWS];
    #pragma unroll
    for (int i = 0; i < Turned::ROWS; ++i) factor[i] = at.unit;
    #pragma unroll
    for (int part = 0; part < D / C; ++part) {
        float sum[Turned::ROWS][Turned::DEPTHS];
        lucid_clear(sum);
        for (int copy = 0; copy < count; ++copy) {
            const float* const place =
                copies + lucid_place<N, D>(at, copy, batch, head, blockIdx.x, part);
            #pragma unroll
            for (int e = 0; e < Turned::ROWS * Turned::DEPTHS; e += 4) {
                const lucid_pack<float, 4> pack = lucid_load<4>(place + e * Turned::THREADS);
                #pragma unroll
                for (int c = 0; c < 4; ++c) Turned::part(sum, e + c) += pack[c];
            }
        }
        lucid_deliver<Turned, C, N, W>(dq + at.dq.to(batch, head) + part * C, at.dq.row, first,
                                       at.queries, at.width - part * C,
                                       (typename Turned::element*)lucid_shared, sum, factor);
    }
}

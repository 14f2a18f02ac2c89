// Attention by tiles (attention.cuh): the gradients.
#include "attention.cuh"

// Grid as forward. Also leaves delta, the sum of each row of g o, for the other kernel.
// ds = p (g v^T - delta), dq = ds k scale.
template <typename T, int D, int M, int N, int W, int MMA, typename B, int DROPS>
LUCID_FN void attention_queries(const T* q, const T* k, const T* v, const T* o, const T* g,
                                const float* lse, T* dq, float* delta, const B* mask,
                                long long seed, long long draw, lucid_attention at)
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
        unsigned kept[E::ROWS];
        if constexpr (DROPS) lucid_keep<E, false>(kept, at, seed, draw, batch, head, first, from);
        const bool whole = from + N <= (at.causal ? min(at.keys, first + 1) : at.keys);
        #pragma unroll
        for (int i = 0; i < E::ROWS; ++i) {
            const int visible = at.causal ? min(at.keys, first + E::row(i) + 1) : at.keys;
            const B* row = lucid_mask_row(mask, at, batch, head, first + E::row(i));
            #pragma unroll
            for (int j = 0; j < E::COLUMNS; ++j) {
                const int key = from + E::column(j);
                const bool seen = whole || key < visible;
                float score = s[i][j] * at.scale;
                if (seen) score = lucid_masked(score, row, at, key);
                const float weight = lucid_exp2(score - my_lse[i]);
                if (DROPS) ds[i][j] *= kept[i] >> E::bit(j) & 1 ? at.kept : 0;
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
template <typename T, int D, int M, int N, int W, int MMA, typename B, int DROPS>
LUCID_FN void attention_keys(const T* q, const T* k, const T* v, const T* g, const float* lse,
                             const float* delta, T* dk, T* dv, const B* mask, long long seed,
                             long long draw, lucid_attention at)
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
        unsigned kept[E::ROWS];
        if constexpr (DROPS)
            lucid_keep<E, true>(kept, at, seed, draw, batch, head * at.group + step / tiles, first,
                                from);
        #pragma unroll
        for (int j = 0; j < E::COLUMNS; ++j) {
            const int query = from + E::column(j);
            const B* row =
                lucid_mask_row(mask, at, batch, head * at.group + step / tiles, query);
            const float my_lse = lse_tile[E::column(j)], my_delta = delta_tile[E::column(j)];
            #pragma unroll
            for (int i = 0; i < E::ROWS; ++i) {
                const int key = first + E::row(i);
                const bool there = lucid_same<B, void> || (query < at.queries && key < at.keys);
                const bool seen = there && (!at.causal || key <= query);
                float score = s[i][j] * at.scale;
                if (seen) score = lucid_masked(score, row, at, key);
                const float weight = seen ? lucid_exp2(score - my_lse) : 0;
                const float factor = !DROPS ? 1 : kept[i] >> j & 1 ? at.kept : 0;
                s[i][j] = weight * factor;
                ds[i][j] = weight * (ds[i][j] * factor - my_delta);
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

// Attention by tiles (attention.cuh): forward.
#include "attention.cuh"

// Grid: tiles of queries, heads of queries, batches. Reads q once, k and v once a tile of queries
// (from the cache, mostly); writes o, and for each row log2 of the sum of 2^score.
template <typename T, int D, int M, int N, int W, int MMA, typename B, int DROPS>
LUCID_FN void attention_forward(const T* q, const T* k, const T* v, T* o, float* lse, const B* mask,
                                long long seed, long long draw, lucid_attention at)
{
    typedef lucid_tiles<MMA, T, D, M, N> E;
    typedef typename E::element element;
    constexpr bool MASKED = !lucid_same<B, void>;
    constexpr int BUFFER = 2 * N * E::PITCH;  // keys and values
    // With tensor cores the queries are in registers: while one tile of keys and values is computed
    // with, the next is on its way to a second buffer, over queries. Else there is one buffer, and
    // keys come while values are computed with.
    constexpr int QUERIES = MMA && M < 4 * N ? (4 * N - M) * E::PITCH : 0;
    constexpr bool APART = MMA && M > 2 * N;  // whether the first buffer is over queries too
    extern __shared__ __align__(16) char lucid_shared[];
    element* q_tile = (element*)lucid_shared + QUERIES;
    element* buffers = (element*)lucid_shared + (MMA ? 0 : M * E::PITCH);
    float* scratch = (float*)(buffers + BUFFER);

    // Later tiles of a causal head are longer: they start first.
    const int first = (gridDim.x - 1 - blockIdx.x) * M, head = blockIdx.y, batch = blockIdx.z;
    const T* my_k = k + at.k.to(batch, head / at.group);
    const T* my_v = v + at.v.to(batch, head / at.group);
    const auto fill_k = [&](element* tile, int from) {
        lucid_fill<E, D, N, W>(tile, my_k, at.k.row, from, at.keys, at.width);
    };
    const auto fill_v = [&](element* tile, int from) {
        lucid_fill<E, D, N, W>(tile + N * E::PITCH, my_v, at.v.row, from, at.keys, at.width);
    };
    lucid_fill<E, D, M, W>(q_tile, q + at.q.to(batch, head), at.q.row, first, at.queries, at.width);
    if (APART) {
        lucid_copies_wait();
        __syncthreads();
    } else {
        fill_k(buffers, 0);
        if (MMA) fill_v(buffers, 0);
    }
    lucid_copies_wait();
    __syncthreads();
    const typename E::held queries = E::hold(q_tile);
    if (APART) {
        __syncthreads();  // all have read theirs
        fill_k(buffers, 0);
        fill_v(buffers, 0);
    }

    float sum[E::ROWS][E::DEPTHS], top[E::ROWS], total[E::ROWS];
    lucid_clear(sum);
    #pragma unroll
    for (int i = 0; i < E::ROWS; ++i) {
        top[i] = lucid_lowest<float>();
        total[i] = 0;
    }
    // Scores are scaled where they are exponentiated, unless a mask is added before. The scale is
    // positive; what is taken from them is rounded, and the same wherever it is taken.
    const float scale = MASKED ? 1 : at.scale;
    const auto scaled = [&](float score) { return MASKED ? score : __fmul_rn(score, scale); };
    const int end = at.causal ? min(at.keys, first + M) : at.keys;
    element* tile = buffers;
    for (int from = 0; from < end; from += N) {
        lucid_copies_wait();
        if (lucid_cores<E>) lucid_copies_to_products();
        __syncthreads();  // these keys have come, and the values before are done with
        element* next = !MMA ? buffers : tile == buffers ? buffers + BUFFER : buffers;
        if (MMA && from + N < end) {
            fill_k(next, from + N);
            fill_v(next, from + N);
        }
        if (!MMA) fill_v(tile, from);
        const element *keys = tile, *values = tile + N * E::PITCH;
        tile = next;
        float s[E::ROWS][E::COLUMNS];
        unsigned kept[E::ROWS];
        if (at.causal && from > first + E::last_row()) continue;  // a warp that sees none of these
        if constexpr (DROPS) lucid_keep<E, false>(kept, at, seed, draw, batch, head, first, from);
        lucid_clear(s);
        E::multiply(s, queries, keys);
        if (!MMA) {
            lucid_copies_wait();
            __syncthreads();  // their values have come, and the keys are done with
            if (from + N < end) fill_k(tile, from + N);
        }
        if constexpr (MASKED) {
            #pragma unroll
            for (int i = 0; i < E::ROWS; ++i) {
                const B* row = lucid_mask_row(mask, at, batch, head, first + E::row(i));
                #pragma unroll
                for (int j = 0; j < E::COLUMNS; ++j) {
                    const int key = min(from + E::column(j), at.keys - 1);
                    s[i][j] = lucid_masked(s[i][j] * at.scale, row, at, key);
                }
            }
        }
        if (from + N > (at.causal ? min(at.keys, first + E::first_row() + 1) : at.keys)) {
            #pragma unroll
            for (int i = 0; i < E::ROWS; ++i) {
                const int row = first + E::row(i) - from;
                const int visible = at.causal ? min(at.keys - from, row + 1) : at.keys - from;
                #pragma unroll
                for (int j = 0; j < E::COLUMNS; ++j)
                    if (E::column(j) >= visible) s[i][j] = -lucid_infinity();
            }
        }
        float fading[E::ROWS];
        bool faded = false;
        #pragma unroll
        for (int i = 0; i < E::ROWS; ++i) {
            float highest = top[i];
            #pragma unroll
            for (int j = 0; j < E::COLUMNS; ++j) highest = fmax(highest, s[i][j]);
            #pragma unroll
            for (int step = E::LANES / 2; step > 0; step /= 2)
                highest = fmax(highest, lucid_shuffle_xor(highest, step));
            const float less = scaled(highest);
            fading[i] = lucid_exp2(scaled(top[i]) - less);
            faded |= fading[i] != 1;
            top[i] = highest;
            total[i] *= fading[i];
            #pragma unroll
            for (int j = 0; j < E::COLUMNS; ++j) {
                s[i][j] = lucid_exp2(s[i][j] * scale - less);
                total[i] += s[i][j];
                if (DROPS && !(kept[i] >> E::bit(j) & 1)) s[i][j] = 0;
            }
        }
        if (__any_sync(0xffffffffu, faded)) {
            #pragma unroll
            for (int i = 0; i < E::ROWS; ++i)
                #pragma unroll
                for (int j = 0; j < E::DEPTHS; ++j) sum[i][j] *= fading[i];
        }
        E::accumulate(sum, s, values, scratch);
    }
    float factor[E::ROWS];
    #pragma unroll
    for (int i = 0; i < E::ROWS; ++i) {
        const float all = lucid_warp_sum<E::LANES>(total[i]);
        const int row = first + E::row(i);
        const bool hidden = MASKED && all == 0;  // by the mask: its weights are 0
        factor[i] = hidden ? 0 : at.kept / all;
        if (threadIdx.x % E::LANES == 0 && row < at.queries)
            lse[((long long)batch * at.heads + head) * at.queries + row] =
                hidden ? lucid_infinity() : scaled(top[i]) + log2(all);
    }
    lucid_deliver<E, D, M, W>(o + at.o.to(batch, head), at.o.row, first, at.queries, at.width,
                              (element*)lucid_shared, sum, factor);
}

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
        unsigned kept[E::ROWS];
        if constexpr (DROPS) lucid_keep<E, false>(kept, at, seed, draw, batch, head, first, from);
        const bool whole = from + N <= (at.causal ? min(at.keys, first + 1) : at.keys);
        #pragma unroll
        for (int i = 0; i < E::ROWS; ++i) {
            const int visible = at.causal ? min(at.keys, first + E::row(i) + 1) : at.keys;
            const B* row = lucid_mask_row(mask, at, batch, head, first + E::row(i));
            float highest = top[i];
            #pragma unroll
            for (int j = 0; j < E::COLUMNS; ++j) {
                const int key = from + E::column(j);
                s[i][j] *= at.scale;
                if (!whole && key >= visible) s[i][j] = -lucid_infinity();
                else s[i][j] = lucid_masked(s[i][j], row, at, key);
                highest = fmax(highest, s[i][j]);
            }
            highest = lucid_warp_max<E::LANES>(highest);
            const float fading = lucid_exp2(top[i] - highest);
            top[i] = highest;
            total[i] *= fading;
            #pragma unroll
            for (int j = 0; j < E::COLUMNS; ++j) {
                s[i][j] = lucid_exp2(s[i][j] - highest);
                total[i] += s[i][j];
                if (DROPS && !(kept[i] >> E::bit(j) & 1)) s[i][j] = 0;
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
        const bool hidden = !lucid_same<B, void> && all == 0;  // by the mask: its weights are 0
        factor[i] = hidden ? 0 : at.kept / all;
        if (threadIdx.x % E::LANES == 0 && row < at.queries)
            lse[((long long)batch * at.heads + head) * at.queries + row] =
                hidden ? lucid_infinity() : top[i] + log2(all);
    }
    lucid_deliver<E, D, M, W>(o + at.o.to(batch, head), at.o.row, first, at.queries, at.width,
                              q_tile, sum, factor);
}

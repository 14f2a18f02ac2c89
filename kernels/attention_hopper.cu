// Attention forward by Hopper's warp groups, for heads of 64 and 128 columns in 16 bits.
//
// No GPU has run this. The host shows which element is multiplied with which. A GPU must confirm what
// it cannot show: that the fence between copies and products (lucid_copies_to_products) is enough for
// wgmma to see what cp.async has brought, that a buffer is not refilled before it has been read, and
// the speed. Until then it is taken only with LUCID_WGMMA=1.
#include "attention_forward.cu"
#include "wgmma.cuh"

template <typename T, int D, int M, int N>
constexpr bool lucid_cores<lucid_tiles<3, T, D, M, N, 4>> = true;

template <typename T, int D, int M, int N>
struct lucid_tiles<3, T, D, M, N, 4> : lucid_pieces<D, M, N, 4> {
    static_assert(M == 64, "one product has 64 rows");
    typedef lucid_pieces<D, M, N, 4> P;
    typedef T element;
    static constexpr int ROWS = P::ROWS, COLUMNS = P::COLUMNS, DEPTHS = P::DEPTHS, PITCH = D;
    static constexpr int ACROSS = 128, DOWN = 16 * D;  // bytes to the core matrix beside and below
    using P::lane;

    struct held {
        unsigned words[D / 16][4];
    };
    static LUCID_FN held hold(const T* own)
    {
        held rows;
        #pragma unroll
        for (int d = 0; d < D; d += 16) {
            const int row = P::first_row() + lane() % 16, column = d + lane() / 16 * 8;
            lucid_load_matrices<false>(rows.words[d / 16], own + lucid_place<lucid_tiles>(row, column));
        }
        return rows;
    }

    static LUCID_FN void multiply(float (&s)[ROWS][COLUMNS], const held& own, const T* other)
    {
        lucid_hold_still(s);
        lucid_products_begin();
        #pragma unroll
        for (int d = 0; d < D; d += 16)
            lucid_wgmma<T, false>(s, own.words[d / 16],
                                  lucid_descriptor(other + d * 8, ACROSS, DOWN));
        lucid_products_end();
        lucid_hold_still(s);
    }

    // Scores are, rounded, the left operand as they lie.
    static LUCID_FN void accumulate(float (&sum)[ROWS][DEPTHS], const float (&p)[ROWS][COLUMNS],
                                    const T* other, float*)
    {
        unsigned a[N / 16][4];
        #pragma unroll
        for (int n = 0; n < N / 16; ++n)
            #pragma unroll
            for (int k = 0; k < 4; ++k) {
                const float* two = &p[k % 2][4 * n + k / 2 * 2];
                a[n][k] = lucid_two<T>(two[0], two[1]);
            }
        lucid_hold_still(a);
        lucid_hold_still(sum);
        lucid_products_begin();
        #pragma unroll
        for (int n = 0; n < N / 16; ++n)
            lucid_wgmma<T, true>(sum, a[n], lucid_descriptor(other + n * 16 * D, DOWN, ACROSS));
        lucid_products_end();
        lucid_hold_still(sum);
    }

    static LUCID_FN void put(T* tile, int i, int j, const float (&sum)[ROWS][DEPTHS])
    {
        tile[lucid_place<lucid_tiles>(P::row(i), P::depth(j))] = lucid_cast<T>(sum[i][j]);
    }
};

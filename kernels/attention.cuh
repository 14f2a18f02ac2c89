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
#ifndef LUCID_ATTENTION_CUH
#define LUCID_ATTENTION_CUH

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

#endif

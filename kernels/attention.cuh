// Attention by tiles: softmax(q k^T scale) v, forward and backward, with no matrix of scores in
// global memory. Dao, Fu, Ermon, Rudra and Re, "FlashAttention" (2022), and Dao, "FlashAttention-2"
// (2023), algorithms 1 and 2: an online softmax forward, which keeps one number a row; backward
// computes the weights again from it. Sums are taken in a fixed order, without atomics.
//
// A block has a tile of M rows of its own (queries, or keys backward); it walks the tiles of N rows on
// the other side. Heads of any width up to D are padded with zeros.
// While it computes on one tile the next one is on its way (async.cuh): each tile is filled as soon
// as all threads are done with it, and waited for when it is needed.
// Products of tiles come in four kinds, which differ in who holds what: MMA 0 by ordinary arithmetic
// in float, MMA 1 by the tensor cores of 16-bit types, MMA 2 by those of floats rounded to TF32, MMA 3
// by Hopper's of 16-bit types (attention_hopper.cu).
#ifndef LUCID_ATTENTION_CUH
#define LUCID_ATTENTION_CUH

#include "async.cuh"
#include "block.cuh"
#include "mma.cuh"
#include "pack.cuh"
#include "philox.cuh"

LUCID_FN float lucid_infinity() { return __uint_as_float(0x7f800000u); }

// 2^x. Off by two units in the last place at most (PTX ISA, ex2.approx.ftz.f32), as CUDA's exp2f is,
// which is the same instruction with a way around for results below 2^-126. Here they are 0: weights
// are at most 1, and one so small changes no sum that holds it.
LUCID_FN float lucid_exp2(float x)
{
#ifdef __CUDA_ARCH__
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
#else
    return exp2(x);
#endif
}

// Steps of batch, head and row, in elements; columns lie side by side.
struct lucid_walk {
    long long batch, head, row;
    LUCID_FN long long to(int in_batch, int in_head) const
    {
        return in_batch * batch + in_head * head;
    }
};

// `group` heads of queries share a head of keys. `scale` is `unit` times log2(e): powers are of 2.
// The mask's steps are 0 where it is broadcast; `column` is 0 or 1. Dropout keeps a weight whose
// random word is above `limit`, times `kept`.
struct lucid_attention {
    lucid_walk q, k, v, o, g, dq, dk, dv, mask;
    int heads, group, queries, keys, width, causal, column;
    unsigned limit;
    float scale, unit, kept;
};

// --- masks ---------------------------------------------------------------------------------------

// The row of a mask for a query; of the last query for those beyond it. B is void without a mask.
template <typename B>
LUCID_FN const B* lucid_mask_row(const B* mask, const lucid_attention& at, int batch, int head,
                                 int query)
{
    if constexpr (lucid_same<B, void>) return mask;
    else return mask + at.mask.to(batch, head) + min(query, at.queries - 1) * at.mask.row;
}

// A score, in powers of 2, of a key that there is. A bool tells whether the key takes part, a number
// is added: a finite one, however low, hides no row whole.
template <typename B>
LUCID_FN float lucid_masked(float score, const B* row, const lucid_attention& at, int key)
{
    if constexpr (lucid_same<B, void>) {
        return score;
    } else if constexpr (lucid_same<B, bool>) {
        return row[key * at.column] ? score : -lucid_infinity();
    } else {
        const float given = lucid_cast<float>(row[key * at.column]);
        const float added = given * 1.44269504088896340736f;
        const bool overflown = added < lucid_lowest<float>() && given >= lucid_lowest<float>();
        return score + (overflown ? lucid_lowest<float>() : added);
    }
}

// --- dropout -------------------------------------------------------------------------------------

// Which of a thread's scores are kept: bit E::bit(j) (for TURNED tiles j) of kept[i]. A TURNED tile
// stands on its side, rows are keys. The numbers are those of a draw for the matrix of all scores
// (batch, heads, queries, keys). Where rows of it begin with a call of Philox, which gives four
// numbers, each call is made by one thread, and those that hold the four scores exchange its bits.
template <typename E, bool TURNED>
LUCID_FN void lucid_keep(unsigned (&kept)[E::ROWS], const lucid_attention& at, long long seed,
                         long long draw, int batch, int head, int first_row, int first_column)
{
    const long long line = ((long long)batch * at.heads + head) * at.queries;
    #pragma unroll
    for (int i = 0; i < E::ROWS; ++i) kept[i] = 0;
    if (at.keys % 4) {
        #pragma unroll
        for (int i = 0; i < E::ROWS; ++i)
            #pragma unroll 1
            for (int j = 0; j < E::COLUMNS; ++j) {
                const int row = first_row + E::row(i), column = first_column + E::column(j);
                const long long at_query = (line + (TURNED ? column : row)) * at.keys;
                const long long index = at_query + (TURNED ? row : column);
                const bool taken = lucid_random_word(index, seed, draw) > at.limit;
                kept[i] |= (unsigned)taken << (TURNED ? j : E::bit(j));
            }
        return;
    }
    E::template keep<TURNED>(kept, [&](int row, int column) {
        const int query = TURNED ? first_column + column : first_row + row;
        const int key = TURNED ? first_row + row : first_column + column;
        const unsigned long long block = ((line + query) * at.keys + key) >> 2;
        const uint4 words = lucid_random_block(block, seed, draw);
        return (unsigned)(words.x > at.limit) | (unsigned)(words.y > at.limit) << 1 |
               (unsigned)(words.z > at.limit) << 2 | (unsigned)(words.w > at.limit) << 3;
    });
}

// For four threads of a warp that hold a score each of every four: thread `from + t * step` has the
// t-th of each, and asks for those of its columns t, t + 4, ...
template <typename E, typename Four>
LUCID_FN unsigned lucid_keep_by_four(int t, int from, int step, const Four& four)
{
    unsigned mine = 0, kept = 0;
    #pragma unroll 1
    for (int j = t; j < E::COLUMNS; j += 4) mine |= four(j) << j / 4 * 4;
    #pragma unroll
    for (int other = 0; other < 4; ++other) {
        const unsigned theirs = __shfl_sync(0xffffffffu, mine, from + other * step);
        kept |= (theirs >> t & 0x11111111u) << other;
    }
    return kept;
}

// --- products of tiles ---------------------------------------------------------------------------

// A thread holds ROWS x COLUMNS scores of its block's M x N, and ROWS x DEPTHS of sums of M x D;
// LANES neighboring threads share the rows. `multiply` adds own other^T, `accumulate` p other, of as
// many columns as a sum has.
template <int MMA, typename T, int D, int M, int N, int WARPS = 4> struct lucid_tiles;

// Where an element of a tile lies: rows side by side, or cores of 8 x 8, each row by row.
template <typename E> constexpr bool lucid_cores = false;
template <typename E>
LUCID_FN int lucid_place(int row, int column)
{
    if constexpr (lucid_cores<E>)
        return row / 8 * 8 * E::PITCH + column / 8 * 64 + row % 8 * 8 + column % 8;
    else return row * E::PITCH + column;
}

template <typename T, int D, int M, int N>
struct lucid_tiles<0, T, D, M, N, 4> {
    typedef float element;
    static constexpr int THREADS = 128;
    static constexpr int LANES = 8, ROWS = M / 16, COLUMNS = N / 8, DEPTHS = D / 8;
    static constexpr int PITCH = D + 4, SCRATCH = M * (N + 4);  // rows of a quarter warp lie apart

    typedef const float* held;
    static LUCID_FN held hold(const float* tile) { return tile; }

    static LUCID_FN int first_row() { return 0; }  // of a warp, and its last
    static LUCID_FN int last_row() { return M - 1; }
    static LUCID_FN int row(int i) { return threadIdx.x / LANES + 16 * i; }
    static LUCID_FN int column(int j) { return threadIdx.x % LANES + LANES * j; }
    static LUCID_FN int depth(int j) { return threadIdx.x % LANES * 4 + j / 4 * 32 + j % 4; }
    static LUCID_FN int bit(int j) { return j; }

    // Four keys side by side are with lanes side by side, on the side with every eighth.
    template <bool TURNED, typename Four>
    static LUCID_FN void keep(unsigned (&kept)[ROWS], const Four& four)
    {
        const int lane = threadIdx.x % 32, t = TURNED ? lane / LANES : lane % 4;
        #pragma unroll
        for (int i = 0; i < ROWS; ++i)
            kept[i] = lucid_keep_by_four<lucid_tiles>(
                t, TURNED ? lane % LANES : lane - t, TURNED ? LANES : 1, [&](int j) {
                    return TURNED ? four(row(i) - t, column(j)) : four(row(i), column(j) - t);
                });
    }

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
    template <int C>
    static LUCID_FN void accumulate(float (&sum)[ROWS][C], const float (&p)[ROWS][COLUMNS],
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
                for (int j = 0; j < C; j += 4) {
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

// What a thread holds of 16 x 8 pieces, as the tensor cores have them.
template <int D, int M, int N, int WARPS>
struct lucid_pieces {
    static constexpr int THREADS = 32 * WARPS;
    static constexpr int PIECES = M / (16 * WARPS);  // of 16 rows that a warp has
    static constexpr int LANES = 4, ROWS = 2 * PIECES, COLUMNS = N / 4, DEPTHS = D / 4;
    static constexpr int SCRATCH = 0;

    static LUCID_FN int first_row() { return threadIdx.x / 32 * (16 * PIECES); }
    static LUCID_FN int last_row() { return first_row() + 16 * PIECES - 1; }
    static LUCID_FN int lane() { return threadIdx.x % 32; }
    static LUCID_FN int row(int i) { return first_row() + lane() / 4 + 8 * i; }
    static LUCID_FN int column(int j) { return j / 2 * 8 + lane() % 4 * 2 + j % 2; }
    static LUCID_FN int depth(int j) { return column(j); }
    static LUCID_FN int bit(int j) { return j / 2 * 4 + j % 2; }

    // Four keys side by side are two by two with two lanes. The first two lanes of the four of a row
    // make the numbers of its 8 columns, the others those of the row 8 rows below. On the side they
    // are with every fourth lane.
    template <bool TURNED, typename Four>
    static LUCID_FN void keep(unsigned (&kept)[ROWS], const Four& four)
    {
        static_assert(N <= 64, "bits of a word");
        const int part = lane() % 4, t = lane() / 4 % 4;
        if constexpr (TURNED) {
            #pragma unroll
            for (int i = 0; i < ROWS; ++i)
                kept[i] = lucid_keep_by_four<lucid_pieces>(t, lane() - 4 * t, 4, [&](int j) {
                    return four(row(i) - t, column(j));
                });
        } else {
            #pragma unroll
            for (int i = 0; i < ROWS; i += 2) {
                unsigned mine = 0;
                #pragma unroll 1
                for (int n = 0; n < N; n += 8)
                    mine |= four(row(i) + part / 2 * 8, n + part % 2 * 4) << n / 2;
                #pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int owner = lane() - part + half * 2 + part / 2;
                    const unsigned theirs = __shfl_sync(0xffffffffu, mine, owner);
                    kept[i + half] = theirs >> part % 2 * 2 & 0x33333333u;
                }
            }
        }
    }
};

template <typename T, int D, int M, int N, int WARPS>
struct lucid_tiles<1, T, D, M, N, WARPS> : lucid_pieces<D, M, N, WARPS> {
    typedef lucid_pieces<D, M, N, WARPS> P;
    typedef T element;
    static constexpr int PIECES = P::PIECES, ROWS = P::ROWS, COLUMNS = P::COLUMNS;
    static constexpr int DEPTHS = P::DEPTHS, PITCH = D + 8;
    using P::lane;
    using P::first_row;
    using P::row;
    using P::depth;

    // Two neighboring 16 x 8 pieces of a sum, whose elements a thread holds side by side.
    template <int C>
    static LUCID_FN void add(float (&sum)[ROWS][C], int i, int j, const unsigned (&a)[4],
                             const unsigned (&b)[4])
    {
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int at = j + 2 * half;
            float c[4] = {sum[i][at], sum[i][at + 1], sum[i + 1][at], sum[i + 1][at + 1]};
            lucid_mma_16816<T>(c, a, b[2 * half], b[2 * half + 1]);
            sum[i][at] = c[0];
            sum[i][at + 1] = c[1];
            sum[i + 1][at] = c[2];
            sum[i + 1][at + 1] = c[3];
        }
    }

    // A warp's own rows at `d`, as left operands.
    static LUCID_FN void take(unsigned (&a)[PIECES][4], const T* own, int d)
    {
        const T* mine = own + (first_row() + lane() % 16) * PITCH + lane() / 16 * 8 + d;
        #pragma unroll
        for (int i = 0; i < PIECES; ++i) lucid_load_matrices<false>(a[i], mine + 16 * i * PITCH);
    }

    // Rows that stay in registers.
    struct held {
        unsigned words[D / 16][PIECES][4];
    };
    static LUCID_FN held hold(const T* own)
    {
        held rows;
        #pragma unroll
        for (int d = 0; d < D; d += 16) take(rows.words[d / 16], own, d);
        return rows;
    }

    static LUCID_FN void multiply(float (&s)[ROWS][COLUMNS], const unsigned (&a)[PIECES][4],
                                  const T* other, int d)
    {
        const T* theirs = other + (lane() / 16 * 8 + lane() % 8) * PITCH + lane() / 8 % 2 * 8 + d;
        #pragma unroll
        for (int n = 0; n < N; n += 16) {
            unsigned b[4];
            lucid_load_matrices<false>(b, theirs + n * PITCH);
            #pragma unroll
            for (int i = 0; i < PIECES; ++i) add(s, 2 * i, n / 4, a[i], b);
        }
    }

    static LUCID_FN void multiply(float (&s)[ROWS][COLUMNS], const held& own, const T* other)
    {
        #pragma unroll
        for (int d = 0; d < D; d += 16) multiply(s, own.words[d / 16], other, d);
    }

    static LUCID_FN void multiply(float (&s)[ROWS][COLUMNS], const T* own, const T* other)
    {
        #pragma unroll
        for (int d = 0; d < D; d += 16) {
            unsigned a[PIECES][4];
            take(a, own, d);
            multiply(s, a, other, d);
        }
    }

    // A sum's pieces are, rounded, the left operand of the next product as they lie.
    template <int C>
    static LUCID_FN void accumulate(float (&sum)[ROWS][C], const float (&p)[ROWS][COLUMNS],
                                    const T* other, float*)
    {
        const T* theirs = other + lane() % 16 * PITCH + lane() / 16 * 8;
        #pragma unroll
        for (int n = 0; n < N; n += 16) {
            const int j = n / 4;
            unsigned a[PIECES][4];
            #pragma unroll
            for (int i = 0; i < PIECES; ++i)
                #pragma unroll
                for (int k = 0; k < 4; ++k) {
                    const float (&row)[COLUMNS] = p[2 * i + k % 2];
                    a[i][k] = lucid_two<T>(row[j + k / 2 * 2], row[j + k / 2 * 2 + 1]);
                }
            #pragma unroll
            for (int d = 0; d < 4 * C; d += 16) {
                unsigned b[4];
                lucid_load_matrices<true>(b, theirs + n * PITCH + d);
                #pragma unroll
                for (int i = 0; i < PIECES; ++i) add(sum, 2 * i, d / 4, a[i], b);
            }
        }
    }

    static LUCID_FN void put(T* tile, int i, int j, const float (&sum)[ROWS][DEPTHS])
    {
        tile[row(i) * PITCH + depth(j)] = lucid_cast<T>(sum[i][j]);
    }
};

template <typename T, int D, int M, int N, int WARPS>
struct lucid_tiles<2, T, D, M, N, WARPS> : lucid_pieces<D, M, N, WARPS> {
    typedef lucid_pieces<D, M, N, WARPS> P;
    typedef float element;
    static constexpr int PIECES = P::PIECES, ROWS = P::ROWS, COLUMNS = P::COLUMNS;
    static constexpr int DEPTHS = P::DEPTHS, PITCH = D + 4;  // a warp's words lie in 32 banks
    using P::lane;
    using P::first_row;
    using P::row;
    using P::depth;

    template <int C>
    static LUCID_FN void add(float (&sum)[ROWS][C], int i, int j, const unsigned (&a)[4],
                             unsigned b0, unsigned b1)
    {
        float c[4] = {sum[i][j], sum[i][j + 1], sum[i + 1][j], sum[i + 1][j + 1]};
        lucid_mma_1688(c, a, b0, b1);
        sum[i][j] = c[0];
        sum[i][j + 1] = c[1];
        sum[i + 1][j] = c[2];
        sum[i + 1][j + 1] = c[3];
    }

    // A warp's own rows at `d`, as left operands.
    static LUCID_FN void take(unsigned (&a)[PIECES][4], const float* own, int d)
    {
        const float* mine = own + (first_row() + lane() / 4) * PITCH + lane() % 4 + d;
        #pragma unroll
        for (int i = 0; i < PIECES; ++i)
            #pragma unroll
            for (int k = 0; k < 4; ++k)
                a[i][k] = lucid_tf32(mine[(16 * i + k % 2 * 8) * PITCH + k / 2 * 4]);
    }

    struct held {
        unsigned words[D / 8][PIECES][4];
    };
    static LUCID_FN held hold(const float* own)
    {
        held rows;
        #pragma unroll
        for (int d = 0; d < D; d += 8) take(rows.words[d / 8], own, d);
        return rows;
    }

    static LUCID_FN void multiply(float (&s)[ROWS][COLUMNS], const unsigned (&a)[PIECES][4],
                                  const float* other, int d)
    {
        const float* theirs = other + lane() / 4 * PITCH + lane() % 4 + d;
        #pragma unroll
        for (int n = 0; n < N; n += 8) {
            const unsigned b0 = lucid_tf32(theirs[n * PITCH]);
            const unsigned b1 = lucid_tf32(theirs[n * PITCH + 4]);
            #pragma unroll
            for (int i = 0; i < PIECES; ++i) add(s, 2 * i, n / 4, a[i], b0, b1);
        }
    }

    static LUCID_FN void multiply(float (&s)[ROWS][COLUMNS], const held& own, const float* other)
    {
        #pragma unroll
        for (int d = 0; d < D; d += 8) multiply(s, own.words[d / 8], other, d);
    }

    static LUCID_FN void multiply(float (&s)[ROWS][COLUMNS], const float* own, const float* other)
    {
        #pragma unroll
        for (int d = 0; d < D; d += 8) {
            unsigned a[PIECES][4];
            take(a, own, d);
            multiply(s, a, other, d);
        }
    }

    // Of 8 columns a thread has 2 p and 2 p + 1, p = lane % 4: for p and p + 4, in any order that
    // both operands have.
    template <int C>
    static LUCID_FN void accumulate(float (&sum)[ROWS][C], const float (&p)[ROWS][COLUMNS],
                                    const float* other, float*)
    {
        const float* theirs = other + lane() % 4 * 2 * PITCH + lane() / 4;
        #pragma unroll
        for (int n = 0; n < N; n += 8) {
            unsigned a[PIECES][4];
            #pragma unroll
            for (int i = 0; i < PIECES; ++i)
                #pragma unroll
                for (int k = 0; k < 4; ++k) a[i][k] = lucid_tf32(p[2 * i + k % 2][n / 4 + k / 2]);
            #pragma unroll
            for (int d = 0; d < 4 * C; d += 8) {
                const unsigned b0 = lucid_tf32(theirs[n * PITCH + d]);
                const unsigned b1 = lucid_tf32(theirs[(n + 1) * PITCH + d]);
                #pragma unroll
                for (int i = 0; i < PIECES; ++i) add(sum, 2 * i, d / 4, a[i], b0, b1);
            }
        }
    }

    static LUCID_FN void put(float* tile, int i, int j, const float (&sum)[ROWS][DEPTHS])
    {
        tile[row(i) * PITCH + depth(j)] = sum[i][j];
    }
};

// --- tiles in shared memory ----------------------------------------------------------------------

// The thread's number, read anew: what follows from it takes no registers all through a loop.
LUCID_FN int lucid_thread()
{
#ifdef __CUDA_ARCH__
    int number;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(number));
    return number;
#else
    return threadIdx.x;
#endif
}

// R rows from `first` on of the `count` there are, zeros beyond them and beyond `width`; W elements
// an access. They may arrive later: see lucid_copies_wait.
template <typename E, int D, int R, int W, typename T>
LUCID_FN void lucid_fill(typename E::element* tile, const T* rows, long long step, int first,
                         int count, int width)
{
    constexpr int PACKS = D / W, THREADS = E::THREADS;
    constexpr bool COPIED = lucid_same<typename E::element, T> && W * sizeof(T) == 16;
    if constexpr (COPIED) {  // a thread has one column
        constexpr int MOST = THREADS / PACKS;
        constexpr int STEP = MOST >= 32 ? 32 : MOST >= 16 ? 16 : MOST >= 8 ? 8 : MOST >= 4 ? 4 : 2;
        const int thread = lucid_thread();
        // Eight lanes fill a core, from as many rows.
        const int row = lucid_cores<E> ? thread / (8 * PACKS) * 8 + thread % 8 : thread / PACKS;
        const int column = (lucid_cores<E> ? thread / 8 : thread) % PACKS * W;
        const T* from = rows + first * step + (row * step + column);  // not read beyond the last row
        typename E::element* place = tile + lucid_place<E>(row, column);
        const int there = column < width ? count - first : 0;
        if (STEP * PACKS < THREADS && row >= STEP) return;
        #pragma unroll
        for (int r = 0; r < R; r += STEP, from += STEP * step)
            if (R % STEP == 0 || row + r < R)
                lucid_copy<16>(place + r * E::PITCH, from, row + r < there);
    } else {
        #pragma unroll 4  // loads in flight
        for (int at = 0; at < R * PACKS; at += THREADS) {
            const int mine = at + threadIdx.x;
            if (R * PACKS % THREADS && mine >= R * PACKS) break;
            const int row = mine / PACKS, column = mine % PACKS * W;
            const bool taken = first + row < count && column < width;
            lucid_pack<T, W> pack;
            if (taken) pack = lucid_load<W>(rows + (first + row) * step + column);
            #pragma unroll
            for (int k = 0; k < W; ++k)
                tile[lucid_place<E>(row, column) + k] =
                    lucid_cast<typename E::element>(taken ? lucid_cast<float>(pack[k]) : 0.0f);
        }
    }
}

// The rows of a tile to global memory, rounded where the tile is float and the memory is not.
template <typename E, int D, int R, int W, typename T>
LUCID_FN void lucid_empty(T* rows, const typename E::element* tile, long long step, int first,
                          int count, int width)
{
    constexpr int PACKS = D / W;
    for (int mine = threadIdx.x; mine < R * PACKS; mine += E::THREADS) {
        const int row = mine / PACKS, column = mine % PACKS * W;
        if (first + row >= count || column >= width) continue;
        const typename E::element* place = tile + lucid_place<E>(row, column);
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

// Row numbers in order: sorted[0, count) are the keys, sorted[count, 2 count) is where each was; equal
// keys keep their order. A key outside [0, rows) and the key `skip` count as `rows`: they come last.
//
// Many keys are put in order digit by digit of 8 bits, the lowest first, as far as `rows` has bits (a
// radix sort: D. Knuth, "The Art of Computer Programming", volume 3, 5.2.5). A digit
// is two launches: `key_order_counts` counts the digits of each block's run of keys, and
// `key_order_move` puts each key behind all of smaller digits and those of its own digit that stand
// before it. What a block reads of the others are their counts, which are complete: no block waits
// for another, and nothing depends on who comes first.
#include "block.cuh"
#include "pack.cuh"

enum {
    LUCID_DIGITS = 256,  // and threads of a block, one for each
    LUCID_KEYS_A_THREAD = 4,
};

template <typename S, typename K>
LUCID_FN S lucid_row_of(K key, long long rows, long long skip)
{
    return key >= 0 && key < rows && key != skip ? (S)key : (S)rows;
}

// A key as it is read: in the FIRST pass from the user's, later from keys already seen.
template <bool FIRST, typename S, typename K>
LUCID_FN S lucid_read_key(const K* keys, long long at, long long rows, long long skip)
{
    if constexpr (FIRST) return lucid_row_of<S>(keys[at], rows, skip);
    else return keys[at];
}

// How often each digit occurs in each block's run: counts[block, digit].
template <typename K, typename S, bool FIRST>
LUCID_FN void key_order_counts(
    const K* keys, int* counts, long long count, long long run, long long rows, long long skip,
    int shift)
{
    __shared__ int seen[LUCID_DIGITS];
    seen[threadIdx.x] = 0;
    __syncthreads();
    const long long first = blockIdx.x * run, last = min(first + run, count);
    for (long long at = first + threadIdx.x; at < last; at += LUCID_DIGITS) {
        const S key = lucid_read_key<FIRST, S>(keys, at, rows, skip);
        atomicAdd(&seen[(int)(key >> shift) & (LUCID_DIGITS - 1)], 1);
    }
    __syncthreads();
    counts[blockIdx.x * LUCID_DIGITS + threadIdx.x] = seen[threadIdx.x];
}

// Each block moves its run, tile by tile: a warp takes LUCID_KEYS_A_THREAD times 32 neighbors, and
// lanes of equal digits find each other by `__match_any_sync`.
template <typename K, typename S, bool FIRST>
LUCID_FN void key_order_move(
    const K* keys, const int* counts, S* sorted, long long count, long long run, long long rows,
    long long skip, int shift)
{
    const int WARPS = LUCID_DIGITS / 32, AHEAD = LUCID_KEYS_A_THREAD;
    __shared__ S next[LUCID_DIGITS];  // where the tile's first key of a digit goes
    __shared__ int of_warp[WARPS][LUCID_DIGITS];
    const int mine = threadIdx.x, warp = mine / 32, lane = mine % 32;
    S before = 0, all = 0, total;
    #pragma unroll 8
    for (int block = 0; block < (int)gridDim.x; ++block) {
        const int seen = counts[block * LUCID_DIGITS + mine];
        if (block < (int)blockIdx.x) before += seen;
        all += seen;
    }
    next[mine] = before + lucid_sum_before<WARPS>(all, total);
    const long long first = blockIdx.x * run, last = min(first + run, count);
    for (long long start = first; start < last; start += AHEAD * LUCID_DIGITS) {
        #pragma unroll
        for (int w = 0; w < WARPS; ++w) of_warp[w][mine] = 0;
        S key[AHEAD], from[AHEAD];
        int rank[AHEAD];  // among the warp's keys of the same digit
        const long long begin = start + warp * 32 * AHEAD + lane;
        #pragma unroll
        for (int k = 0; k < AHEAD; ++k) {
            const long long at = min(begin + k * 32, last - 1);
            key[k] = lucid_read_key<FIRST, S>(keys, at, rows, skip);
            if constexpr (FIRST) from[k] = at;
            else from[k] = keys[count + at];
        }
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < AHEAD; ++k) {
            const bool inside = begin + k * 32 < last;
            const int digit = (int)(key[k] >> shift) & (LUCID_DIGITS - 1);
            const unsigned alike = __match_any_sync(0xffffffffu, inside ? digit : LUCID_DIGITS);
            const int lower = __popc(alike & ((1u << lane) - 1));
            rank[k] = of_warp[warp][digit] + lower;
            __syncwarp();
            if (inside && lower == 0) of_warp[warp][digit] += __popc(alike);
            __syncwarp();
        }
        __syncthreads();
        int in_tile = 0;
        #pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            const int seen = of_warp[w][mine];
            of_warp[w][mine] = in_tile;
            in_tile += seen;
        }
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < AHEAD; ++k) {
            if (begin + k * 32 >= last) continue;
            const int digit = (int)(key[k] >> shift) & (LUCID_DIGITS - 1);
            const S place = next[digit] + of_warp[warp][digit] + rank[k];
            sorted[place] = key[k];
            sorted[count + place] = from[k];
        }
        __syncthreads();
        next[mine] += in_tile;
    }
}

// A few keys in one launch, each by counting those that come before it: for few of them n^2
// comparisons are shorter than several launches. Blocks of LUCID_DIGITS threads have 32 keys, one a
// lane, and each warp counts among its share of all others: those before the block's keys come first
// also where they are equal, those behind do not.
template <typename K, typename S>
LUCID_FN void key_order_few(const K* keys, S* sorted, int count, long long rows, long long skip)
{
    const int WARPS = LUCID_DIGITS / 32, SHARE = 128, WIDE = 16 / sizeof(S);
    __shared__ lucid_pack<S, WIDE> tile[WARPS * SHARE / WIDE];
    __shared__ int of_warp[WARPS][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int first = blockIdx.x * 32, me = first + lane;
    const S mine = me < count ? lucid_row_of<S>(keys[me], rows, skip) : (S)0;
    int place = 0;
    for (int start = 0; start < count; start += WARPS * SHARE) {
        __syncthreads();  // the tile before may still be read
        #pragma unroll
        for (int i = threadIdx.x; i < WARPS * SHARE; i += LUCID_DIGITS)  // past the last: none is less
            tile[i / WIDE][i % WIDE] =
                start + i < count ? lucid_row_of<S>(keys[start + i], rows, skip) : (S)rows;
        __syncthreads();
        const int begin = start + warp * SHARE;
        const lucid_pack<S, WIDE>* share = tile + warp * SHARE / WIDE;
        if (begin + SHARE <= first) {
            #pragma unroll 8
            for (int i = 0; i < SHARE / WIDE; ++i)
                #pragma unroll
                for (int k = 0; k < WIDE; ++k) place += share[i][k] <= mine;
        } else if (begin >= first + 32) {
            #pragma unroll 8
            for (int i = 0; i < SHARE / WIDE; ++i)
                #pragma unroll
                for (int k = 0; k < WIDE; ++k) place += share[i][k] < mine;
        } else {
            #pragma unroll 8
            for (int i = 0; i < SHARE; ++i) {
                const S key = share[i / WIDE][i % WIDE];
                place += key < mine || (key == mine && begin + i < me);
            }
        }
    }
    of_warp[warp][lane] = place;
    __syncthreads();
    if (warp != 0 || me >= count) return;
    place = 0;
    #pragma unroll
    for (int w = 0; w < WARPS; ++w) place += of_warp[w][lane];
    sorted[place] = mine;
    sorted[count + place] = me;
}

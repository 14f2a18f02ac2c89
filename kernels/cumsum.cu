// Running sums along a dimension of (outer, length, inner), forwards or backwards.
//
// A sum longer than one block (rows) or one thread (columns) takes in turn is cut into chunks and
// done in two passes (reduce, then scan: G. Blelloch, "Prefix sums and their applications", 1990):
// `cumsum_*_totals` adds up each chunk, the totals are summed in the same way, and each chunk then
// begins with the sum of those before it. A single pass that looks back at its neighbors would read
// x once, not twice, but add in an order that depends on who came first.
//
// x is read once, or twice where there are chunks, and y written once. Sums are kept in A: float for
// 16-bit floats, long long for integers.
//
// "Place" counts in the order of summation: with REVERSE, place p is element length - 1 - p.
#include "block.cuh"
#include "pack.cuh"

// WIDTH elements of a row from a place on, in the order of summation; 0 beyond `end`.
template <int WIDTH, bool REVERSE, typename From, typename A>
LUCID_FN void lucid_take_places(
    const From* row, long long length, long long place, long long end, A (&part)[WIDTH])
{
    lucid_pack<From, WIDTH> pack;
    const bool inside = place < end;
    if (inside) pack = lucid_load<WIDTH>(row + (REVERSE ? length - place - WIDTH : place));
    #pragma unroll
    for (int k = 0; k < WIDTH; ++k)
        part[k] = inside ? lucid_cast<A>(pack[REVERSE ? WIDTH - 1 - k : k]) : (A)0;
}

// A row (inner == 1) a block of 32 WARPS threads, or with WARPS == 1 a row a warp, threadIdx.y
// counting the warps; blockIdx.y is the chunk. Tile by tile: WIDTH neighbors a thread, the next
// tile's reads under way while this one is summed. WIDTH divides length and chunk.
template <typename From, typename To, typename A, int WIDTH, int WARPS, bool REVERSE>
LUCID_FN void cumsum_rows(
    const From* x, To* y, const A* before, long long rows, long long length, long long chunk)
{
    const long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;  // a whole warp; or nobody
    const long long begin = blockIdx.y * chunk, end = min(begin + chunk, length);
    const int tile = 32 * WARPS * WIDTH;
    const From* from = x + row * length;
    To* to = y + row * length;
    A carry = before && blockIdx.y ? before[row * gridDim.y + blockIdx.y - 1] : (A)0;
    A next[WIDTH];
    lucid_take_places<WIDTH, REVERSE>(from, length, begin + threadIdx.x * WIDTH, end, next);
    for (long long start = begin; start < end; start += tile) {
        const long long place = start + threadIdx.x * WIDTH;
        A part[WIDTH];
        #pragma unroll
        for (int k = 0; k < WIDTH; ++k) part[k] = k ? part[k - 1] + next[k] : next[k];
        lucid_take_places<WIDTH, REVERSE>(from, length, place + tile, end, next);
        A total;
        const A lead = carry + lucid_sum_before<WARPS>(part[WIDTH - 1], total);
        carry += total;
        if (place >= end) continue;
        lucid_pack<To, WIDTH> pack;
        #pragma unroll
        for (int k = 0; k < WIDTH; ++k)
            pack[REVERSE ? WIDTH - 1 - k : k] = lucid_cast<To>(lead + part[k]);
        lucid_store(to + (REVERSE ? length - place - WIDTH : place), pack);
    }
}

// The sum of each chunk of a row; grid and block as in `cumsum_rows`, of 256 threads.
template <typename From, typename A, int WIDTH, bool REVERSE>
LUCID_FN void cumsum_rows_totals(const From* x, A* totals, long long length, long long chunk)
{
    const long long begin = blockIdx.y * chunk, end = min(begin + chunk, length);
    A sum = 0;
    #pragma unroll 4
    for (long long place = begin + threadIdx.x * WIDTH; place < end; place += blockDim.x * WIDTH) {
        A part[WIDTH];
        lucid_take_places<WIDTH, REVERSE>(x + blockIdx.x * length, length, place, end, part);
        #pragma unroll
        for (int k = 0; k < WIDTH; ++k) sum += part[k];
    }
    const A total = lucid_block_sum(sum);
    if (threadIdx.x == 0) totals[(long long)blockIdx.x * gridDim.y + blockIdx.y] = total;
}

// WIDTH neighboring columns a thread, walked place by place, four reads under way at a time;
// blockIdx.y is the chunk. With TOTALS only its sum is stored, as y[outer, chunk, inner].
template <typename From, typename To, typename A, int WIDTH, bool REVERSE, bool TOTALS>
LUCID_FN void cumsum_columns(
    const From* x, To* y, const A* before, long long outer,
    long long length, long long inner, long long chunk)
{
    const int AHEAD = 4;
    const long long packs = inner / WIDTH;
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (thread >= outer * packs) return;
    const long long o = thread / packs, column = (thread - o * packs) * WIDTH;
    const long long begin = blockIdx.y * chunk, end = min(begin + chunk, length);
    const long long step = REVERSE ? -inner : inner;
    const long long start = (o * length + (REVERSE ? length - 1 - begin : begin)) * inner + column;
    x += start;
    y += TOTALS ? (o * gridDim.y + blockIdx.y) * inner + column : start;
    A sum[WIDTH] = {};
    if (before && blockIdx.y) {
        #pragma unroll
        for (int k = 0; k < WIDTH; ++k)
            sum[k] = before[(o * gridDim.y + blockIdx.y - 1) * inner + column + k];
    }
    for (int left = (int)(end - begin); left > 0; left -= AHEAD) {
        lucid_pack<From, WIDTH> read[AHEAD];
        #pragma unroll
        for (int i = 0; i < AHEAD; ++i) read[i] = lucid_load<WIDTH>(x + min(i, left - 1) * step);
        #pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
            if (i >= left) break;
            #pragma unroll
            for (int k = 0; k < WIDTH; ++k) sum[k] += lucid_cast<A>(read[i][k]);
            if constexpr (!TOTALS) {
                lucid_pack<To, WIDTH> pack;
                #pragma unroll
                for (int k = 0; k < WIDTH; ++k) pack[k] = lucid_cast<To>(sum[k]);
                lucid_store(y + i * step, pack);
            }
        }
        x += AHEAD * step;
        if constexpr (!TOTALS) y += AHEAD * step;
    }
    if constexpr (TOTALS) {
        #pragma unroll
        for (int k = 0; k < WIDTH; ++k) y[k] = lucid_cast<To>(sum[k]);
    }
}

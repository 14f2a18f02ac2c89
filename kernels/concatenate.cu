// Tensors joined along a dimension: one launch for as many parts as the table in the arguments holds
// (lucid_rows).
//
// Seen from that dimension each tensor is runs of contiguous words: the result's are `total` words
// long, a part's lie `pitch` words apart, 0 where one run is all of them. A word has as many bytes,
// up to 16, as all that begins somewhere is aligned for.
#include "index.cuh"
#include "pack.cuh"
#include "rows.cuh"

// A block takes REPEAT words a thread of one part. The columns of the table: where a part is, at which
// word of the result it begins, its pitch, and how its runs are divided: length << 32 | multiplier.
// With two columns each part is one run. `abreast`: all parts have as many blocks, and blocks that
// write neighboring runs follow each other, so that a sector written in pieces is still in the cache.
template <int BYTES, int COLUMNS, int ROWS, int REPEAT>
LUCID_FN void concatenate(
    lucid_rows<COLUMNS, ROWS> parts, unsigned char* y, long long total, int abreast)
{
    typedef typename lucid_word<BYTES>::type word;
    const int block = blockIdx.x;
    const int row = abreast ? block % parts.count : parts.row_of(block);
    const int tile = abreast ? block / parts.count : block - parts.first[row];
    const word* x = (const word*)parts.at[0][row];
    word* to = (word*)y + (long long)parts.at[1][row];
    const int size = parts.size[row];
    const int first = tile * (REPEAT * (int)blockDim.x) + threadIdx.x;
    word taken[REPEAT];
    long long place[REPEAT];
    #pragma unroll
    for (int u = 0; u < REPEAT; ++u) {
        const int i = first + u * blockDim.x;
        long long from = place[u] = i;
        if constexpr (COLUMNS == 4) {
            const unsigned long long division = (unsigned long long)parts.at[3][row];
            const unsigned length = (unsigned)(division >> 32);
            const lucid_divider<int> run = {
                length, (unsigned)division, 32u - (unsigned)__clz((int)(length - 1))};
            const long long k = run.quotient(i);
            const int rest = run.rest(i, (int)k);
            from = k * (long long)parts.at[2][row] + rest;
            place[u] = k * total + rest;
        }
        if (i < size) taken[u] = x[from];
    }
    #pragma unroll
    for (int u = 0; u < REPEAT; ++u)
        if (first + u * (int)blockDim.x < size) to[place[u]] = taken[u];
}

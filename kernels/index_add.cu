// out[outer, keys[i], column] += values[outer, i, column], without atomics: keys are sorted first,
// and the values of a key are added in the order in which they stand.
//
// Sorted places are cut into pieces of a fixed length. `index_add_pieces` adds up each piece; a key
// whose places lie in one piece is done, one that goes on across the border leaves its parts as
// `edges`, which `index_add_edges` adds up. So a million values of one key are spread over the GPU
// as a million keys are, and the order of additions depends on the keys and shapes only. Sums are
// kept in float32 for 16-bit floats and rounded once.
//
// `sorted` comes from key_order.cu: `count` keys in order, and behind them where each was. Those that
// are left out are `rows` there. Values are read once, touched rows of out are written once (with
// ADD also read).
#include "pack.cuh"
#include "fold.cuh"

template <int WIDTH, bool ADD, typename T, typename A>
LUCID_FN void lucid_put_row(T* out, const A (&sum)[WIDTH])
{
    lucid_pack<T, WIDTH> pack;
    if constexpr (ADD) pack = lucid_load_written<WIDTH>(out);
    #pragma unroll
    for (int k = 0; k < WIDTH; ++k)
        pack[k] = lucid_cast<T>(ADD ? (A)(lucid_cast<A>(pack[k]) + sum[k]) : sum[k]);
    // As an instruction of its own: a plain store of sums that were just added is taken apart.
    __stwb(reinterpret_cast<typename lucid_word<sizeof(T) * WIDTH>::type*>(out), pack.word);
}

// The columns of all outer rows, with steps of the grid's y and z: neither may exceed 65535.
#define LUCID_EACH_OUTER_COLUMN(o, column, first, step) \
    for (long long o = blockIdx.z; o < outer; o += gridDim.z) \
        for (long long column = (first); column < columns; column += (step) * gridDim.y)

// threadIdx.x, blockIdx.y: packs of columns; threadIdx.y, blockIdx.x: pieces; blockIdx.z: outer.
// edges[outer, piece, 0] is the sum of what belongs to a key that began in an earlier piece,
// edges[outer, piece, 1] of a key that begins here and goes on.
template <typename T, typename A, typename K, int WIDTH, bool ADD>
LUCID_FN void index_add_pieces(
    const T* values, const K* sorted, T* out, A* edges, long long count, int length, long long rows,
    long long columns, long long outer)
{
    const K* order = sorted + count;
    const int AHEAD = 4;  // reads under way at the same time
    const long long mine = ((long long)blockIdx.y * blockDim.x + threadIdx.x) * WIDTH;
    const long long across = (long long)blockDim.x * WIDTH;
    const long long piece = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    const long long pieces = (count + length - 1) / length;
    if (piece >= pieces) return;
    const long long first = piece * length, last = min(first + length, count);
    LUCID_EACH_OUTER_COLUMN(o, column, mine, across)
    {
        const T* from = values + o * count * columns + column;
        A sum[WIDTH] = {};
        bool began = first > 0 && sorted[first - 1] == sorted[first];
        A* edge = edges + (o * pieces + piece) * 2 * columns + column;
        for (long long i = first; i < last; i += AHEAD) {
            lucid_pack<T, WIDTH> part[AHEAD];
            bool ends[AHEAD];  // the last place of its key
            #pragma unroll
            for (int k = 0; k < AHEAD; ++k) {
                const long long at = min(i + k, last - 1);
                part[k] = lucid_load<WIDTH>(from + (long long)order[at] * columns);
                ends[k] = at + 1 == count || sorted[at + 1] != sorted[at];
            }
            #pragma unroll
            for (int k = 0; k < AHEAD; ++k) {
                if (i + k >= last) break;
                #pragma unroll
                for (int w = 0; w < WIDTH; ++w) sum[w] += lucid_cast<A>(part[k][w]);
                if (!ends[k]) continue;
                const K key = sorted[i + k];
                if (began) {
                    #pragma unroll
                    for (int w = 0; w < WIDTH; ++w) edge[w] = sum[w];
                } else if (key < rows) {
                    lucid_put_row<WIDTH, ADD>(out + (o * rows + key) * columns + column, sum);
                }
                #pragma unroll
                for (int w = 0; w < WIDTH; ++w) sum[w] = 0;
                began = false;
            }
        }
        if (last == count || sorted[last - 1] != sorted[last]) continue;
        if (!began) edge += columns;
        #pragma unroll
        for (int w = 0; w < WIDTH; ++w) edge[w] = sum[w];
    }
}

// The place after the last of a key's, which is among [low, high).
template <typename K>
LUCID_FN long long lucid_end_of(const K* sorted, K key, long long low, long long high)
{
    while (low < high) {
        const long long middle = low + (high - low) / 2;
        if (sorted[middle] <= key) low = middle + 1;
        else high = middle;
    }
    return low;
}

// A block a piece (blockIdx.x) in which a key begins that goes on; threadIdx.x, blockIdx.y: columns;
// threadIdx.y: the pieces after it, in turn; blockIdx.z: outer. 256 threads.
template <typename T, typename A, typename K, bool ADD>
LUCID_FN void index_add_edges(
    const A* edges, const K* sorted, T* out, long long count, int length, long long rows,
    long long columns, long long outer)
{
    const long long piece = blockIdx.x, first = piece * length, last = first + length;
    if (last >= count) return;
    const K key = sorted[last - 1];
    if (sorted[last] != key || (first > 0 && sorted[first - 1] == key)) return;
    if (key >= rows) return;
    const long long pieces = (count + length - 1) / length;
    const long long end = lucid_end_of(sorted, key, last, count), stop = (end - 1) / length;
    const long long across = blockDim.x;
    LUCID_EACH_OUTER_COLUMN(o, block, blockIdx.y * across, across)
    {
        const long long column = block + threadIdx.x;
        const A* edge = edges + o * pieces * 2 * columns + column;
        A sum[1] = {0};
        if (column < columns) {
            if (threadIdx.y == 0) sum[0] = edge[(piece * 2 + 1) * columns];
            #pragma unroll 4
            for (long long next = piece + 1 + threadIdx.y; next <= stop; next += blockDim.y)
                sum[0] += edge[next * 2 * columns];
        }
        sum[0] = lucid_fold_over_y(lucid_total<A>{sum[0]}).total;
        if (threadIdx.y == 0 && column < columns)
            lucid_put_row<1, ADD>(out + (o * rows + key) * columns + column, sum);
    }
}

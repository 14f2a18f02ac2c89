// Positions of an index that lie outside [low, size): one of them is left as {1, position, dim, size}
// at the address `fault`, in memory that the host can read without waiting. Reads the index once.
#include "types.cuh"

template <typename K>
LUCID_FN void bounds_check(
    const K* index, long long count, long long low, long long size, long long dim, long long fault)
{
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        const long long position = index[i];
        if (position >= low && position < size) continue;
        volatile long long* record = reinterpret_cast<long long*>(fault);
        record[1] = position;
        record[2] = dim;
        record[3] = size;
        record[0] = 1;
    }
}

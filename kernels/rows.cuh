// Many tensors in one launch: their addresses and sizes as an argument, with no copy to the GPU.
#ifndef LUCID_ROWS_CUH
#define LUCID_ROWS_CUH

#include "types.cuh"

// N rows of C tensors each; the tensors of a row have one size, at most 2^30.
template <int C, int N>
struct lucid_rows {
    void* at[C][N];
    int size[N];
    int first[N];  // the block each row begins with
    int count;

    // The row a block works on: the last that begins at or before it.
    LUCID_FN int row_of(int block) const
    {
        int low = 0;
        for (int high = count; high - low > 1;) {
            const int middle = (low + high) / 2;
            if (first[middle] <= block) low = middle;
            else high = middle;
        }
        return low;
    }
};

#endif

// `cooperative_groups.h` on the host: the block, tiles of a warp, and what they compute together.
//
// `grid.sync()` and `coalesced_threads()` end the launch: blocks run one after another here, and
// nobody knows which threads run side by side on a GPU.
#ifndef LUCID_COOPERATIVE_GROUPS_H
#define LUCID_COOPERATIVE_GROUPS_H

namespace cooperative_groups {

struct thread_block {
    static void sync() { __syncthreads(); }
    static unsigned thread_rank()
    {
        return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    }
    static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
    static unsigned num_threads() { return size(); }
    static dim3 group_index() { return blockIdx; }
    static dim3 thread_index() { return threadIdx; }
    static dim3 group_dim() { return blockDim; }
    static dim3 dim_threads() { return blockDim; }
};
inline thread_block this_thread_block() { return {}; }

struct grid_group {
    static bool is_valid() { return false; }
    static void sync() { lucid_host_fail(5); }
    static unsigned long long thread_rank() { return block_rank() * thread_block::size() + thread_block::thread_rank(); }
    static unsigned long long block_rank()
    {
        return blockIdx.x + (unsigned long long)gridDim.x * (blockIdx.y + (unsigned long long)gridDim.y * blockIdx.z);
    }
    static unsigned long long num_blocks() { return (unsigned long long)gridDim.x * gridDim.y * gridDim.z; }
    static unsigned long long size() { return num_blocks() * thread_block::size(); }
    static unsigned long long num_threads() { return size(); }
    static dim3 group_dim() { return gridDim; }
    static dim3 dim_blocks() { return gridDim; }
    static dim3 block_index() { return blockIdx; }
};
inline grid_group this_grid() { return {}; }

// Lanes of a warp whose number is a power of 2.
template <unsigned Size, typename Parent = void>
struct thread_block_tile {
    static_assert(Size <= 32 && (Size & (Size - 1)) == 0, "a tile is a part of a warp");
    static unsigned mask()
    {
        const unsigned lanes = Size == 32 ? ~0u : (1u << Size % 32) - 1;
        return lanes << (thread_block::thread_rank() & 31 & ~(Size - 1));
    }
    static void sync() { __syncwarp(mask()); }
    static unsigned thread_rank() { return thread_block::thread_rank() & (Size - 1); }
    static constexpr unsigned size() { return Size; }
    static constexpr unsigned num_threads() { return Size; }
    static unsigned meta_group_rank() { return thread_block::thread_rank() / Size; }
    static unsigned meta_group_size() { return (thread_block::size() + Size - 1) / Size; }
    template <typename T> static T shfl(T value, int rank) { return __shfl_sync(mask(), value, rank, Size); }
    template <typename T> static T shfl_up(T value, unsigned step) { return __shfl_up_sync(mask(), value, step, Size); }
    template <typename T> static T shfl_down(T value, unsigned step) { return __shfl_down_sync(mask(), value, step, Size); }
    template <typename T> static T shfl_xor(T value, int bits) { return __shfl_xor_sync(mask(), value, bits, Size); }
    static int any(int predicate) { return __any_sync(mask(), predicate); }
    static int all(int predicate) { return __all_sync(mask(), predicate); }
    static unsigned ballot(int predicate) { return lowered(__ballot_sync(mask(), predicate)); }
    template <typename T> static unsigned match_any(T value) { return lowered(__match_any_sync(mask(), value)); }

private:
    static unsigned lowered(unsigned lanes) { return lanes >> (thread_block::thread_rank() & 31 & ~(Size - 1)); }
};
template <unsigned Size, typename Parent>
inline thread_block_tile<Size, Parent> tiled_partition(const Parent&) { return {}; }

struct coalesced_group : thread_block_tile<32> {};
inline coalesced_group coalesced_threads() { lucid_host_fail(5); return {}; }

template <typename Group> inline void sync(const Group&) { Group::sync(); }

#define LUCID_HOST_JOINS(name, value) \
    template <typename T> struct name { T operator()(T x, T y) const { return value; } };
LUCID_HOST_JOINS(plus, x + y) LUCID_HOST_JOINS(less, y < x ? y : x) LUCID_HOST_JOINS(greater, x < y ? y : x)
LUCID_HOST_JOINS(bit_and, x & y) LUCID_HOST_JOINS(bit_or, x | y) LUCID_HOST_JOINS(bit_xor, x ^ y)

// The values of a tile's lanes joined, for all of them.
template <unsigned Size, typename Parent, typename T, typename Op>
inline T reduce(const thread_block_tile<Size, Parent>& tile, T value, Op join)
{
    for (unsigned step = Size / 2; step; step /= 2) value = join(value, tile.shfl_xor(value, step));
    return value;
}

// Those of the lanes up to this one; without it in exclusive_scan, where the first has zero.
template <unsigned Size, typename Parent, typename T, typename Op>
inline T inclusive_scan(const thread_block_tile<Size, Parent>& tile, T value, Op join)
{
    for (unsigned step = 1; step < Size; step *= 2) {
        const T before = tile.shfl_up(value, step);
        if (tile.thread_rank() >= step) value = join(before, value);
    }
    return value;
}
template <unsigned Size, typename Parent, typename T>
inline T inclusive_scan(const thread_block_tile<Size, Parent>& tile, T value)
{
    return inclusive_scan(tile, value, plus<T>());
}
template <unsigned Size, typename Parent, typename T>
inline T exclusive_scan(const thread_block_tile<Size, Parent>& tile, T value)
{
    const T before = tile.shfl_up(inclusive_scan(tile, value), 1);
    return tile.thread_rank() ? before : T(0);
}

}  // namespace cooperative_groups

#endif

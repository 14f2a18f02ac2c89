// Products by Hopper's warp groups: m64nNk16 of 16-bit matrices, sums in float (PTX ISA, "Asynchronous
// warpgroup level matrix multiply-accumulate"). Four warps take part. The left operand is in
// registers: of its 64 rows each warp has 16, a thread what it holds in lucid_mma_16816, of the sums
// too. The right one lies in shared memory in core matrices, 8 rows of 16 bytes one after another.
// Compiled for sm_90a (lucid_gpu/launch/nvrtc.py); the host does it by ordinary arithmetic.
#ifndef LUCID_WGMMA_CUH
#define LUCID_WGMMA_CUH

#include "mma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define LUCID_WARP_GROUPS 1
#else
#define LUCID_WARP_GROUPS 0
#endif

// Tells where a right operand is, and how many bytes lie between neighboring core matrices along K,
// the dimension that is summed, and along N (PTX ISA, "Matrix descriptor", no swizzling: leading and
// stride dimension byte offset).
LUCID_FN unsigned long long lucid_descriptor(const void* at, int along_k, int along_n)
{
#ifdef __CUDA_ARCH__
    const unsigned address = (unsigned)__cvta_generic_to_shared(at);
#else
    const unsigned address = (const char*)at - lucid_host_dynamic;
#endif
    return (address & 0x3ffff) >> 4 | (unsigned long long)(along_k >> 4) << 16 |
           (unsigned long long)(along_n >> 4) << 32;
}

// Words that products read or add to are as they shall be before this, and are not read or written
// from here on to lucid_products_end.
template <typename X, int R, int C>
LUCID_FN void lucid_hold_still(X (&x)[R][C])
{
#if LUCID_WARP_GROUPS
    #pragma unroll
    for (int i = 0; i < R; ++i)
        #pragma unroll
        for (int j = 0; j < C; ++j)
            if constexpr (lucid_same<X, float>) asm volatile("" : "+f"(x[i][j]) :: "memory");
            else asm volatile("" : "+r"(x[i][j]) :: "memory");
#endif
}

LUCID_FN void lucid_products_begin()
{
#if LUCID_WARP_GROUPS
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

LUCID_FN void lucid_products_end()
{
#if LUCID_WARP_GROUPS
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
}

#define LUCID_32_SUMS \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, " \
    "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define LUCID_64_SUMS \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, " \
    "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, " \
    "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, " \
    "%62, %63"
#define LUCID_4_SUMS(j) "+f"(c[0][j]), "+f"(c[0][j + 1]), "+f"(c[1][j]), "+f"(c[1][j + 1])
#define LUCID_16_SUMS(j) \
    LUCID_4_SUMS(j), LUCID_4_SUMS(j + 2), LUCID_4_SUMS(j + 4), LUCID_4_SUMS(j + 6)
#define LUCID_WGMMA(type, columns, names, sums, operands) \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type \
                 " {" names "}, " operands ";" \
                 : sums \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(TURNED))
#define LUCID_WGMMA_OF(type) \
    if constexpr (C == 16) \
        LUCID_WGMMA(type, "64", LUCID_32_SUMS, LUCID_32_OF(0), \
                    "{%32, %33, %34, %35}, %36, 1, 1, 1, %37"); \
    else \
        LUCID_WGMMA(type, "128", LUCID_64_SUMS, LUCID_64_OF, \
                    "{%64, %65, %66, %67}, %68, 1, 1, 1, %69")
#define LUCID_32_OF(j) LUCID_16_SUMS(j), LUCID_16_SUMS(j + 8)
#define LUCID_64_OF LUCID_32_OF(0), LUCID_32_OF(16)

// c += a b, b of 16 x 4 C. Rows of core matrices go along K, or along N if TURNED: the 8 elements of
// one lie along the other dimension.
template <typename T, bool TURNED, int C>
LUCID_FN void lucid_wgmma(float (&c)[2][C], const unsigned (&a)[4], unsigned long long b)
{
    static_assert(C == 16 || C == 32, "64 or 128 columns");
#if LUCID_WARP_GROUPS
    if constexpr (lucid_same<T, lucid_float16>) {
        LUCID_WGMMA_OF("f16");
    } else {
        LUCID_WGMMA_OF("bf16");
    }
#elif defined(__CUDA_ARCH__)
    __trap();  // never launched elsewhere
#else
    static unsigned of_a[32][32][4];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int i = 0; i < 4; ++i) of_a[warp][lane][i] = a[i];
    __syncwarp();
    const char* const at = lucid_host_dynamic + ((b & 0x3fff) << 4);
    const int along_k = (b >> 16 & 0x3fff) << 4, along_n = (b >> 32 & 0x3fff) << 4;
    for (int half = 0; half < 2; ++half)
        for (int j = 0; j < C; ++j) {
            const int n = j / 2 * 8 + lane % 4 * 2 + j % 2;
            for (int k = 0; k < 16; ++k) {
                const unsigned left = of_a[warp][lane / 4 * 4 + k % 8 / 2][half + k / 8 * 2];
                const T* core = (const T*)(at + k / 8 * along_k + n / 8 * along_n);
                const T right = TURNED ? core[k % 8 * 8 + n % 8] : core[n % 8 * 8 + k % 8];
                c[half][j] += lucid_half_of<T>(left, k % 2) * lucid_widen(right);
            }
        }
    __syncwarp();
#endif
}

#endif

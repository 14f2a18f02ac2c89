// Products of matrices by the tensor cores, sums in float: m16n8k16 of 16 bits, and m16n8k8 of floats
// rounded to TF32 (PTX ISA, "Matrix fragments for mma.m16n8k16" and "mma.m16n8k8"). A warp holds a matrix in pieces, each lane a few words of two
// neighboring elements; the words and lanes are those of PTX, on the host too, where ordinary
// arithmetic does the same. Needs sm_80; all lanes of the warp take part.
#ifndef LUCID_MMA_CUH
#define LUCID_MMA_CUH

#include "types.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define LUCID_TENSOR_CORES 1
#else
#define LUCID_TENSOR_CORES 0
#endif

template <typename T>
LUCID_FN float lucid_half_of(unsigned word, int which)
{
    T x;
    x.bits = (unsigned short)(word >> 16 * which);
    return lucid_widen(x);
}

// Two numbers rounded to a word, the first in the lower half.
template <typename T>
LUCID_FN unsigned lucid_two(float first, float second)
{
#if LUCID_TENSOR_CORES
    unsigned word;
    if constexpr (lucid_same<T, lucid_float16>)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
#else
    return lucid_cast<T>(first).bits | (unsigned)lucid_cast<T>(second).bits << 16;
#endif
}

// Four matrices of 8 x 8 from shared memory. Lane 8 m + r brings the address of row r of matrix m, a
// multiple of 16 bytes; words[m] becomes its elements 2 c and 2 c + 1 of row lane / 4, c = lane % 4.
// TURNED: of column lane / 4, the matrix being transposed on its way.
template <bool TURNED, typename T>
LUCID_FN void lucid_load_matrices(unsigned (&words)[4], const T* row)
{
#if LUCID_TENSOR_CORES
    const unsigned address = (unsigned)__cvta_generic_to_shared(row);
    if constexpr (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(address) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(address) : "memory");
#elif defined(__CUDA_ARCH__)
    __trap();  // never launched before sm_80
#else
    static const T* rows[32][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    lucid_host_access(row, 16, false);
    rows[warp][lane] = row;
    __syncwarp();
    for (int m = 0; m < 4; ++m) {
        const int at = lane / 4, pair = lane % 4 * 2;
        const T* const* const of = rows[warp] + 8 * m;
        const T first = lucid_host_peek(TURNED ? of[pair] + at : of[at] + pair);
        const T second = lucid_host_peek(TURNED ? of[pair + 1] + at : of[at] + pair + 1);
        words[m] = first.bits | (unsigned)second.bits << 16;
    }
    __syncwarp();
#endif
}

// c += a b with a of 16 x 16 and b of 16 x 8. With r = lane / 4 and p = lane % 4 * 2:
// a[0..3] hold rows r, r + 8, r, r + 8 and columns p, p + 1 (the latter two: + 8),
// b[0..1] rows p, p + 1 (+ 8) of column r, and c rows r, r, r + 8, r + 8 of columns p, p + 1.
template <typename T>
LUCID_FN void lucid_mma_16816(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
#if LUCID_TENSOR_CORES
    if constexpr (lucid_same<T, lucid_float16>)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#elif defined(__CUDA_ARCH__)
    __trap();  // never launched before sm_80
#else
    static unsigned of_a[32][32][4], of_b[32][32][2];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int i = 0; i < 4; ++i) of_a[warp][lane][i] = a[i];
    of_b[warp][lane][0] = b0;
    of_b[warp][lane][1] = b1;
    __syncwarp();
    for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        for (int k = 0; k < 16; ++k) {
            const int pair = k % 8 / 2;
            const unsigned left = of_a[warp][row % 8 * 4 + pair][row / 8 + k / 8 * 2];
            const unsigned right = of_b[warp][column * 4 + pair][k / 8];
            c[i] += lucid_half_of<T>(left, k % 2) * lucid_half_of<T>(right, k % 2);
        }
    }
    __syncwarp();
#endif
}

// A float rounded to 10 bits of mantissa, ties away from zero, as bits.
LUCID_FN unsigned lucid_tf32(float x)
{
#if LUCID_TENSOR_CORES
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
#else
    const unsigned bits = __float_as_uint(x);
    return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & ~0x1fffu;
#endif
}

// c += a b with a of 16 x 8 and b of 8 x 8, of TF32. With r = lane / 4 and p = lane % 4: a[0..3] hold
// rows r, r + 8, r, r + 8 of columns p, p, p + 4, p + 4, b0 and b1 rows p and p + 4 of column r, and c
// what it holds in lucid_mma_16816.
LUCID_FN void lucid_mma_1688(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
#if LUCID_TENSOR_CORES
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#elif defined(__CUDA_ARCH__)
    __trap();  // never launched before sm_80
#else
    static unsigned of_a[32][32][4], of_b[32][32][2];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int i = 0; i < 4; ++i) of_a[warp][lane][i] = a[i];
    of_b[warp][lane][0] = b0;
    of_b[warp][lane][1] = b1;
    __syncwarp();
    for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        for (int k = 0; k < 8; ++k)
            c[i] += __uint_as_float(of_a[warp][row % 8 * 4 + k % 4][row / 8 + k / 4 * 2]) *
                    __uint_as_float(of_b[warp][column * 4 + k % 4][k / 4]);
    }
    __syncwarp();
#endif
}

#endif

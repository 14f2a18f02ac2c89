// Stands in for the CUDA built-ins, so that a kernel source compiles unchanged as C++17 and its
// arithmetic runs on machines without a GPU. Included ahead of the source by the compiler's command
// line. It includes no system header: a kernel compiles in a twentieth of a second.
#ifndef LUCID_CUDA_ON_HOST_H
#define LUCID_CUDA_ON_HOST_H

#define __global__
#define __device__
#define __shared__ static  // blocks run one after another
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(threads)

struct dim3 { unsigned x, y, z; };
struct uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };

static dim3 threadIdx, blockIdx, blockDim, gridDim;

template <typename T> inline T __ldg(const T* address) { return *address; }
template <typename T> inline T min(T a, T b) { return a < b ? a : b; }

inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned long long)a * b >> 32; }

inline float __uint_as_float(unsigned bits)
{
    float x;
    __builtin_memcpy(&x, &bits, 4);
    return x;
}

inline unsigned __float_as_uint(float x)
{
    unsigned bits;
    __builtin_memcpy(&bits, &x, 4);
    return bits;
}

// --- the mathematical functions, overloaded as CUDA overloads them -------------------------------

#define LUCID_HOST_1(name) \
    inline float name(float x) { return __builtin_##name##f(x); } \
    inline double name(double x) { return __builtin_##name(x); }
#define LUCID_HOST_2(name) \
    inline float name(float x, float y) { return __builtin_##name##f(x, y); } \
    inline double name(double x, double y) { return __builtin_##name(x, y); }

LUCID_HOST_1(exp) LUCID_HOST_1(exp2) LUCID_HOST_1(expm1)
LUCID_HOST_1(log) LUCID_HOST_1(log2) LUCID_HOST_1(log10) LUCID_HOST_1(log1p)
LUCID_HOST_1(sin) LUCID_HOST_1(cos) LUCID_HOST_1(tan)
LUCID_HOST_1(asin) LUCID_HOST_1(acos) LUCID_HOST_1(atan)
LUCID_HOST_1(sinh) LUCID_HOST_1(cosh) LUCID_HOST_1(tanh)
LUCID_HOST_1(asinh) LUCID_HOST_1(acosh) LUCID_HOST_1(atanh)
LUCID_HOST_1(sqrt) LUCID_HOST_1(fabs) LUCID_HOST_1(erf) LUCID_HOST_1(erfc)
LUCID_HOST_1(floor) LUCID_HOST_1(ceil) LUCID_HOST_1(rint) LUCID_HOST_1(trunc)
LUCID_HOST_2(pow) LUCID_HOST_2(fmod) LUCID_HOST_2(atan2) LUCID_HOST_2(hypot)
LUCID_HOST_2(copysign) LUCID_HOST_2(fmin) LUCID_HOST_2(fmax)

inline float rsqrt(float x) { return 1.0f / sqrt(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }

// --- float16, which the GPU converts by an instruction -------------------------------------------

inline float lucid_host_widen(unsigned short half)
{
    const unsigned sign = (half & 0x8000u) << 16, exponent = (half >> 10) & 31, bits = half & 0x3ff;
    if (exponent == 0) {  // zero and subnormal: bits * 2^-24, exact in float
        const float size = bits * 0x1p-24f;
        return sign ? -size : size;
    }
    const unsigned wide = exponent == 31 ? 255 : exponent + 112;
    return __uint_as_float(sign | wide << 23 | bits << 13);
}

inline unsigned short lucid_host_narrow(float x)
{
    const unsigned all = __float_as_uint(x), sign = (all >> 16) & 0x8000u, size = all & 0x7fffffffu;
    if (size > 0x7f800000u) return sign | 0x7e00u;
    if (size >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and beyond round to infinity
    if (size < 0x38800000u) {  // subnormal: adding 0.5 leaves the rounded bits at the low end
        return sign | (__float_as_uint(__uint_as_float(size) + 0.5f) - 0x3f000000u);
    }
    return sign | ((size - 0x38000000u + 0xfffu + ((size >> 13) & 1u)) >> 13);
}

// --- launching -----------------------------------------------------------------------------------

// Calls a kernel with arguments read from an array of pointers to them, as cuLaunchKernel does.
template <int... N> struct lucid_host_numbers {};

template <typename... A, int... N>
inline void lucid_host_call(void (*kernel)(A...), void** arguments, lucid_host_numbers<N...>)
{
    kernel(*(A*)arguments[N]...);
}

template <typename... A>
inline void lucid_host_thread(void (*kernel)(A...), void** arguments)
{
    lucid_host_call(kernel, arguments, lucid_host_numbers<__integer_pack(sizeof...(A))...>());
}

#ifdef LUCID_HOST_COOPERATIVE
#include "fibers.h"
#else
template <typename K>
inline int lucid_host_grid(K kernel, void** arguments)
{
    for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)
        for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
            for (threadIdx.y = 0; threadIdx.y < blockDim.y; ++threadIdx.y)
                for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x)
                    lucid_host_thread(kernel, arguments);
    return 0;
}
#endif

#define LUCID_HOST_ENTRY(kernel) \
    extern "C" int lucid_host_launch( \
        void** arguments, unsigned grid_x, unsigned grid_y, unsigned block_x, unsigned block_y) \
    { \
        gridDim = {grid_x, grid_y, 1}; \
        blockDim = {block_x, block_y, 1}; \
        return lucid_host_grid(kernel, arguments); \
    }

#endif

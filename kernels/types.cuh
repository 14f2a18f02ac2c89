// Element types C++ lacks, and conversion between all element types.
//
// No CUDA header is included: images with only the driver and NVRTC have none, and a kernel that
// includes nothing compiles in milliseconds.
#ifndef LUCID_TYPES_CUH
#define LUCID_TYPES_CUH

#define LUCID_FN __device__ __forceinline__

// 16-bit floats are storage only: arithmetic is done in float and rounded once, when stored.
struct lucid_float16 {
    unsigned short bits;
};
struct lucid_bfloat16 {
    unsigned short bits;
};

#ifdef __CUDACC__
#define LUCID_ALIGN(bytes) alignas(bytes)
#else
#define LUCID_ALIGN(bytes)  // NumPy aligns complex numbers no better than their parts
#endif

template <typename R>
struct LUCID_ALIGN(2 * sizeof(R)) lucid_complex {
    R re, im;
    lucid_complex() = default;
    LUCID_FN lucid_complex(R real, R imaginary = 0) : re(real), im(imaginary) {}
};

// --- what a type is, told at compile time --------------------------------------------------------

template <typename A, typename B> constexpr bool lucid_same = false;
template <typename A> constexpr bool lucid_same<A, A> = true;

template <typename T> constexpr bool lucid_is_float = lucid_same<T, float> || lucid_same<T, double>;
template <typename T> constexpr bool lucid_is_narrow =
    lucid_same<T, lucid_float16> || lucid_same<T, lucid_bfloat16>;
template <typename T> constexpr bool lucid_is_complex = false;
template <typename R> constexpr bool lucid_is_complex<lucid_complex<R>> = true;
template <typename T> constexpr bool lucid_is_signed_integer =
    lucid_same<T, signed char> || lucid_same<T, short> || lucid_same<T, int> ||
    lucid_same<T, long long>;

// --- angles --------------------------------------------------------------------------------------

// An angle of few turns. From 105615 on CUDA's sin, cos and tan of a float reduce by many digits of
// 2 / pi, with local memory and a double; here the compiler is told that it never comes to that.
template <typename T>
LUCID_FN T lucid_small_angle(T x)
{
#ifdef __CUDA_ARCH__
    __builtin_assume(!(fabs(x) >= (T)105615));
#endif
    return x;
}

// --- 16-bit floats -------------------------------------------------------------------------------

LUCID_FN float lucid_widen(lucid_float16 x)
{
#ifdef __CUDA_ARCH__
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
    return wide;
#else
    return lucid_host_widen(x.bits);
#endif
}

LUCID_FN float lucid_widen(lucid_bfloat16 x)
{
    return __uint_as_float((unsigned)x.bits << 16);
}

LUCID_FN void lucid_narrow(float x, lucid_float16& narrow)
{
#ifdef __CUDA_ARCH__
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
#else
    narrow.bits = lucid_host_narrow(x);
#endif
}

// To nearest, ties to even; in integers where there is no instruction for it.
LUCID_FN void lucid_narrow(float x, lucid_bfloat16& narrow)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
#else
    const unsigned bits = __float_as_uint(x);
    const unsigned rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    narrow.bits = (unsigned short)(x != x ? (bits >> 16) | 0x40u : rounded >> 16);
#endif
}

// What arithmetic on a type is done in.
template <typename T> struct lucid_wide_of { typedef T type; };
template <> struct lucid_wide_of<lucid_float16> { typedef float type; };
template <> struct lucid_wide_of<lucid_bfloat16> { typedef float type; };
template <typename T> using lucid_wide = typename lucid_wide_of<T>::type;

// --- conversion ----------------------------------------------------------------------------------

// As C does: toward zero from float to integer, the real part of a complex number.
template <typename To, typename From>
LUCID_FN To lucid_cast(From x)
{
    if constexpr (lucid_same<To, From>) {
        return x;
    } else if constexpr (lucid_is_narrow<From>) {
        return lucid_cast<To>(lucid_widen(x));
    } else if constexpr (lucid_is_narrow<To>) {
        To narrow;
        lucid_narrow(lucid_cast<float>(x), narrow);
        return narrow;
    } else if constexpr (lucid_is_complex<From> && lucid_is_complex<To>) {
        return To(x.re, x.im);
    } else if constexpr (lucid_is_complex<From>) {
        if constexpr (lucid_same<To, bool>)
            return x.re != 0 || x.im != 0;
        else
            return lucid_cast<To>(x.re);
    } else if constexpr (lucid_is_float<From> && sizeof(To) < 4 && !lucid_same<To, bool>) {
        return (To)(int)x;  // -1.0f is 255 as uint8, on every machine
    } else {
        return (To)x;
    }
}

#endif

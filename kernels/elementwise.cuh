// Device functions that the op table (lucid_gpu/fusion/optable.py) names, for real element types.
// They give what NumPy gives where C++ differs: NaN in maximum, Python's floor division, integer
// division by zero (0, not a trap), shifts as wide as the type.
#ifndef LUCID_ELEMENTWISE_CUH
#define LUCID_ELEMENTWISE_CUH

#include "types.cuh"

template <typename T>
LUCID_FN T lucid_abs(T x)
{
    if constexpr (lucid_is_float<T>)
        return fabs(x);
    else if constexpr (lucid_is_signed_integer<T>)
        return x < 0 ? (T)-x : x;
    else
        return x;
}

template <typename T>
LUCID_FN T lucid_sign(T x)
{
    if constexpr (lucid_is_float<T> || lucid_is_signed_integer<T>)
        return (T)((x > 0) - (x < 0));  // 0 for NaN
    else
        return (T)(x != 0);
}

template <typename T>
LUCID_FN T lucid_conj(T x)
{
    return x;
}

template <typename T>
LUCID_FN T lucid_invert(T x)
{
    if constexpr (lucid_same<T, bool>)
        return !x;
    else
        return (T)~x;
}

template <typename T>
LUCID_FN T lucid_rsqrt(T x)
{
    return rsqrt(x);
}

// gelu by tanh, x / (1 + exp(-z)) with z = a x + b x^3, and its slope.
#define LUCID_GELU_A 1.59576912160573071176
#define LUCID_GELU_B 0.07135481627260024869

template <typename T>
LUCID_FN T lucid_gelu_tanh(T x)
{
    return x / (1 + exp(-x * ((T)LUCID_GELU_A + (T)LUCID_GELU_B * x * x)));
}

template <typename T>
LUCID_FN T lucid_gelu_tanh_slope(T x)
{
    const T s = 1 / (1 + exp(-x * ((T)LUCID_GELU_A + (T)LUCID_GELU_B * x * x)));
    return s * (1 + (1 - s) * x * ((T)LUCID_GELU_A + (T)(3 * LUCID_GELU_B) * x * x));
}

// x^2 / 2, and beyond a bound on either side the line that goes on from there.
template <typename T>
LUCID_FN T lucid_bent(T x, T bound)
{
    const T far = x < 0 ? -x : x;
    const T near = far < bound ? far : bound;
    return (T)0.5 * near * (far + (far - near));
}

// x times a ramp that rises from zero at -3 to one at 3; NaN stays NaN.
template <typename T>
LUCID_FN T lucid_hardswish(T x)
{
    const T ramp = x + (T)3;
    return x * (ramp < 0 ? (T)0 : ramp > 6 ? (T)6 : ramp) / (T)6;
}

// --- rounding: integers are whole already --------------------------------------------------------

template <typename T>
LUCID_FN T lucid_floor(T x)
{
    if constexpr (lucid_is_float<T>) return floor(x);
    else return x;
}

template <typename T>
LUCID_FN T lucid_ceil(T x)
{
    if constexpr (lucid_is_float<T>) return ceil(x);
    else return x;
}

template <typename T>
LUCID_FN T lucid_trunc(T x)
{
    if constexpr (lucid_is_float<T>) return trunc(x);
    else return x;
}

// To nearest, ties to even.
template <typename T>
LUCID_FN T lucid_rint(T x)
{
    if constexpr (lucid_is_float<T>) return rint(x);
    else return x;
}

// --- tests ---------------------------------------------------------------------------------------

template <typename T>
LUCID_FN bool lucid_isnan(T x)
{
    if constexpr (lucid_is_float<T>) return x != x;
    else return false;
}

template <typename T>
LUCID_FN bool lucid_isfinite(T x)
{
    if constexpr (lucid_is_float<T>) return x - x == 0;
    else return true;
}

template <typename T>
LUCID_FN bool lucid_isinf(T x)
{
    return !lucid_isfinite(x) && !lucid_isnan(x);
}

// --- two operands --------------------------------------------------------------------------------

// NaN wins, whichever side it is on.
template <typename T>
LUCID_FN T lucid_maximum(T a, T b)
{
    return a >= b || lucid_isnan(a) ? a : b;
}

template <typename T>
LUCID_FN T lucid_minimum(T a, T b)
{
    return a <= b || lucid_isnan(a) ? a : b;
}

// The remainder of division toward zero: the sign of the dividend.
template <typename T>
LUCID_FN T lucid_fmod(T a, T b)
{
    if constexpr (lucid_is_float<T>) {
        return fmod(a, b);
    } else if constexpr (lucid_is_signed_integer<T>) {
        return b == 0 || b == -1 ? (T)0 : (T)(a % b);  // min % -1 would trap
    } else {
        return b == 0 ? (T)0 : (T)(a % b);
    }
}

// The remainder of floor division: the sign of the divisor; a zero that of the dividend.
template <typename T>
LUCID_FN T lucid_remainder(T a, T b)
{
    const T rest = lucid_fmod(a, b);
    if constexpr (lucid_is_float<T> || lucid_is_signed_integer<T>) {
        if (rest != 0 && (rest < 0) != (b < 0)) return (T)(rest + b);
    }
    return rest;
}

template <typename T>
LUCID_FN T lucid_floor_divide(T a, T b)
{
    if constexpr (lucid_is_float<T>) {
        if (b == 0) return a / b;
        const T rest = fmod(a, b);
        T quotient = (a - rest) / b;
        if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
        if (quotient == 0) return copysign((T)0, a / b);
        const T whole = floor(quotient);  // `quotient` is within rounding of a whole number
        return quotient - whole > (T)0.5 ? whole + 1 : whole;
    } else {
        if (b == 0) return (T)0;
        if constexpr (lucid_is_signed_integer<T>) {
            if (b == -1) return (T)(0 - a);
            return (T)(a / b - (a % b != 0 && (a < 0) != (b < 0)));
        } else {
            return (T)(a / b);
        }
    }
}

template <typename T>
LUCID_FN T lucid_pow(T base, T exponent)
{
    if constexpr (lucid_is_float<T>) {
        return pow(base, exponent);
    } else {
        if constexpr (lucid_is_signed_integer<T>) {
            if (exponent < 0) {  // 1/base, rounded toward zero
                const T odd = exponent & 1;
                return base == 1 ? (T)1 : base == -1 ? (T)(odd ? -1 : 1) : (T)0;
            }
        }
        unsigned long long power = base, result = 1;
        for (unsigned long long left = exponent; left != 0; left >>= 1) {
            if (left & 1) result *= power;
            power *= power;
        }
        return (T)result;
    }
}

// log(exp(a) + exp(b)) without overflow.
template <typename T>
LUCID_FN T lucid_logaddexp(T a, T b)
{
    if (a == b) return a + (T)0.69314718055994530942;  // also of two infinities
    const T apart = a - b;
    if (apart > 0) return a + log1p(exp(-apart));
    if (apart <= 0) return b + log1p(exp(apart));
    return apart;  // NaN
}

// Is a shift less than the type's width? (Negative counts are huge when read as unsigned.)
template <typename T>
LUCID_FN bool lucid_is_inside(T count)
{
    return (unsigned long long)count < 8 * sizeof(T);
}

template <typename T>
LUCID_FN T lucid_left_shift(T x, T count)
{
    return lucid_is_inside<T>(count) ? (T)(x << count) : (T)0;
}

template <typename T>
LUCID_FN T lucid_right_shift(T x, T count)
{
    if (lucid_is_inside<T>(count)) return (T)(x >> count);
    if constexpr (lucid_is_signed_integer<T>) return (T)(x < 0 ? -1 : 0);
    else return (T)0;
}

#endif

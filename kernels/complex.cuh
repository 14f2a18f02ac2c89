// Complex arithmetic and functions, with the branch cuts of C99 and NumPy, and the values that C99
// (annex G.6) gives for infinities and NaN.
// The inverse functions follow W. Kahan, "Branch cuts for complex elementary functions" (1987).
#ifndef LUCID_COMPLEX_CUH
#define LUCID_COMPLEX_CUH

#include "elementwise.cuh"

#define LUCID_COMPLEX_FN template <typename R> LUCID_FN lucid_complex<R>

// --- arithmetic ----------------------------------------------------------------------------------

LUCID_COMPLEX_FN operator-(lucid_complex<R> z) { return {-z.re, -z.im}; }

LUCID_COMPLEX_FN operator+(lucid_complex<R> a, lucid_complex<R> b)
{
    return {a.re + b.re, a.im + b.im};
}

LUCID_COMPLEX_FN operator-(lucid_complex<R> a, lucid_complex<R> b)
{
    return {a.re - b.re, a.im - b.im};
}

LUCID_COMPLEX_FN operator*(lucid_complex<R> a, lucid_complex<R> b)
{
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

// Scaled by the larger part of the divisor, which neither overflows nor vanishes (Smith, 1962).
LUCID_COMPLEX_FN operator/(lucid_complex<R> a, lucid_complex<R> b)
{
    if (fabs(b.re) >= fabs(b.im)) {
        if (b.re == 0 && b.im == 0) return {a.re / fabs(b.re), a.im / fabs(b.re)};
        const R ratio = b.im / b.re, scale = 1 / (b.re + b.im * ratio);
        return {(a.re + a.im * ratio) * scale, (a.im - a.re * ratio) * scale};
    }
    const R ratio = b.re / b.im, scale = 1 / (b.im + b.re * ratio);
    return {(a.re * ratio + a.im) * scale, (a.im * ratio - a.re) * scale};
}

LUCID_COMPLEX_FN operator*(R a, lucid_complex<R> b) { return {a * b.re, a * b.im}; }

LUCID_COMPLEX_FN& operator+=(lucid_complex<R>& a, lucid_complex<R> b) { return a = a + b; }

template <typename R>
LUCID_FN bool operator==(lucid_complex<R> a, lucid_complex<R> b)
{
    return a.re == b.re && a.im == b.im;
}

template <typename R>
LUCID_FN bool operator!=(lucid_complex<R> a, lucid_complex<R> b)
{
    return !(a == b);
}

LUCID_COMPLEX_FN lucid_conj(lucid_complex<R> z) { return {z.re, -z.im}; }

// i z and -i z, with no product that could turn an infinity into NaN.
LUCID_COMPLEX_FN lucid_turn_left(lucid_complex<R> z) { return {-z.im, z.re}; }
LUCID_COMPLEX_FN lucid_turn_right(lucid_complex<R> z) { return {z.im, -z.re}; }

template <typename R>
LUCID_FN R lucid_abs(lucid_complex<R> z)
{
    return hypot(z.re, z.im);
}

template <typename R>
LUCID_FN bool lucid_isnan(lucid_complex<R> z)
{
    return lucid_isnan(z.re) || lucid_isnan(z.im);
}

template <typename R>
LUCID_FN bool lucid_isinf(lucid_complex<R> z)
{
    return lucid_isinf(z.re) || lucid_isinf(z.im);
}

template <typename R>
LUCID_FN bool lucid_isfinite(lucid_complex<R> z)
{
    return lucid_isfinite(z.re) && lucid_isfinite(z.im);
}

// Without a direction where a part is infinite or NaN, as PyTorch's.
LUCID_COMPLEX_FN lucid_sign(lucid_complex<R> z)
{
    const R size = lucid_abs(z);
    if (size == 0) return {0, 0};
    if (!lucid_isfinite(size)) return {size - size, size - size};
    return {z.re / size, z.im / size};
}

// --- exponentials and logarithms -----------------------------------------------------------------

LUCID_COMPLEX_FN exp(lucid_complex<R> z)
{
    const R size = exp(z.re);
    if (z.im == 0) return {size, z.im};
    if (lucid_isinf(z.re) && !lucid_isfinite(z.im))
        return {size, size == 0 ? copysign(size, z.im) : z.im - z.im};
    return {size * cos(z.im), size * sin(z.im)};
}

LUCID_COMPLEX_FN exp2(lucid_complex<R> z) { return exp((R)0.69314718055994530942 * z); }

LUCID_COMPLEX_FN expm1(lucid_complex<R> z)
{
    const R half = sin(z.im / 2);  // cos y - 1 = -2 sin^2(y/2)
    return {expm1(z.re) * cos(z.im) - 2 * half * half, exp(z.re) * sin(z.im)};
}

LUCID_COMPLEX_FN log(lucid_complex<R> z)
{
    const R x = fmax(fabs(z.re), fabs(z.im)), y = fmin(fabs(z.re), fabs(z.im));
    const R angle = atan2(z.im, z.re);
    if (x > (R)0.5 && x < (R)2 && !lucid_isnan(z))  // near the unit circle log|z| would cancel
        return {(R)0.5 * log1p((x - 1) * (x + 1) + y * y), angle};
    return {log(hypot(z.re, z.im)), angle};
}

LUCID_COMPLEX_FN log2(lucid_complex<R> z) { return (R)1.44269504088896340736 * log(z); }
LUCID_COMPLEX_FN log10(lucid_complex<R> z) { return (R)0.43429448190325182765 * log(z); }

LUCID_COMPLEX_FN log1p(lucid_complex<R> z)
{
    const R size = hypot(z.re + 1, z.im), angle = atan2(z.im, z.re + 1);
    if (size > 2) return {log(size), angle};
    return {(R)0.5 * log1p(z.re * (2 + z.re) + z.im * z.im), angle};
}

// log(exp(a) + exp(b)) from the operand with the larger real part.
LUCID_COMPLEX_FN lucid_logaddexp(lucid_complex<R> a, lucid_complex<R> b)
{
    const R sum = a.re + a.im + b.re + b.im;
    if (lucid_isnan(a) || lucid_isnan(b)) return {sum, sum};
    const bool swap = a.re < b.re;
    const lucid_complex<R> top = swap ? b : a, other = swap ? a : b;
    if (lucid_isinf(top.re) && a.re == b.re) return top.re < 0 ? other : log(exp(a) + exp(b));
    return top + log1p(exp(other - top));
}

LUCID_COMPLEX_FN sqrt(lucid_complex<R> z)
{
    if (z.re == 0 && z.im == 0) return {0, z.im};
    if (lucid_isinf(z.im)) return {fabs(z.im), z.im};
    if (lucid_isinf(z.re)) {
        const R other = lucid_isnan(z.im) ? z.im : 0;
        return z.re > 0 ? lucid_complex<R>(z.re, copysign(other, z.im))
                        : lucid_complex<R>(other, copysign(z.re, z.im));
    }
    const R root = sqrt((fabs(z.re) + hypot(z.re, z.im)) / 2);
    if (z.re >= 0) return {root, z.im / (2 * root)};
    return {fabs(z.im) / (2 * root), copysign(root, z.im)};
}

LUCID_COMPLEX_FN lucid_rsqrt(lucid_complex<R> z) { return lucid_complex<R>(1) / sqrt(z); }

// Small whole powers by multiplication, which is exact where the result is.
LUCID_COMPLEX_FN lucid_pow(lucid_complex<R> base, lucid_complex<R> exponent)
{
    if (exponent.re == 0 && exponent.im == 0) return {1, 0};
    if (base.re == 0 && base.im == 0)
        return exponent.re > 0 && exponent.im == 0 ? base : lucid_complex<R>(0) / base;
    const int n = fabs(exponent.re) < 100 ? (int)exponent.re : 0;
    if (exponent.im != 0 || n == 0 || n != exponent.re) return exp(exponent * log(base));
    lucid_complex<R> result(1), power = base;
    for (int left = n < 0 ? -n : n; left != 0; left >>= 1) {
        if (left & 1) result = result * power;
        power = power * power;
    }
    return n < 0 ? lucid_complex<R>(1) / result : result;
}

// --- trigonometric and hyperbolic functions ------------------------------------------------------

// A product that is NaN because an angle is, or because an infinity meets a zero, is that zero or
// infinity.
LUCID_COMPLEX_FN sinh(lucid_complex<R> z)
{
    R re = sinh(z.re) * cos(z.im), im = cosh(z.re) * sin(z.im);
    if (lucid_isnan(re) && (z.re == 0 || lucid_isinf(z.re))) re = z.re;
    if (lucid_isnan(im) && z.im == 0) im = z.im;
    return {re, im};
}

LUCID_COMPLEX_FN cosh(lucid_complex<R> z)
{
    R re = cosh(z.re) * cos(z.im), im = sinh(z.re) * sin(z.im);
    if (lucid_isnan(re) && lucid_isinf(z.re)) re = fabs(z.re);
    if (lucid_isnan(im) && (z.re == 0 || z.im == 0))
        im = copysign((R)0, z.re) * copysign((R)1, z.im);
    return {re, im};
}

LUCID_COMPLEX_FN tanh(lucid_complex<R> z)
{
    const bool angle = lucid_isfinite(z.im);
    if (lucid_isinf(z.re))
        return {copysign((R)1, z.re), copysign((R)0, angle ? tan(z.im) : z.im)};
    if (z.im == 0 && lucid_isnan(z.re)) return z;
    if (z.re == 0 && !angle) return {z.re, z.im - z.im};
    const R t = tan(z.im), s = sinh(z.re), beta = 1 + t * t;
    if (angle && fabs(z.re) > 20)
        return {copysign((R)1, z.re), 4 * t / beta * exp(-2 * fabs(z.re))};
    const R below = 1 + beta * s * s;
    return {beta * sqrt(1 + s * s) * s / below, t / below};
}

LUCID_COMPLEX_FN sin(lucid_complex<R> z) { return lucid_turn_right(sinh(lucid_turn_left(z))); }
LUCID_COMPLEX_FN cos(lucid_complex<R> z) { return cosh(lucid_turn_left(z)); }
LUCID_COMPLEX_FN tan(lucid_complex<R> z) { return lucid_turn_right(tanh(lucid_turn_left(z))); }

LUCID_COMPLEX_FN asin(lucid_complex<R> z)
{
    if (lucid_isinf(z)) return {atan2(z.re, fabs(z.im)), copysign(lucid_abs(z), z.im)};
    if (z.re == 0 && lucid_isnan(z.im)) return z;
    const lucid_complex<R> below = sqrt(lucid_complex<R>(1 - z.re, -z.im));
    const lucid_complex<R> above = sqrt(lucid_complex<R>(1 + z.re, z.im));
    return {atan2(z.re, (below * above).re), asinh((lucid_conj(below) * above).im)};
}

LUCID_COMPLEX_FN acos(lucid_complex<R> z)
{
    if (lucid_isinf(z)) return {atan2(fabs(z.im), z.re), -copysign(lucid_abs(z), z.im)};
    if (z.re == 0 && lucid_isnan(z.im)) return {(R)1.57079632679489661923, z.im};
    const lucid_complex<R> below = sqrt(lucid_complex<R>(1 - z.re, -z.im));
    const lucid_complex<R> above = sqrt(lucid_complex<R>(1 + z.re, z.im));
    return {2 * atan2(below.re, above.re), asinh((lucid_conj(above) * below).im)};
}

LUCID_COMPLEX_FN asinh(lucid_complex<R> z) { return lucid_turn_right(asin(lucid_turn_left(z))); }

LUCID_COMPLEX_FN acosh(lucid_complex<R> z)
{
    if (lucid_isinf(z)) return {lucid_abs(z), atan2(z.im, z.re)};
    if (z.re == 0 && lucid_isnan(z.im)) return {z.im, (R)1.57079632679489661923};
    const lucid_complex<R> below = sqrt(lucid_complex<R>(z.re - 1, z.im));
    const lucid_complex<R> above = sqrt(lucid_complex<R>(z.re + 1, z.im));
    return {asinh((lucid_conj(below) * above).re), 2 * atan2(below.im, above.re)};
}

LUCID_COMPLEX_FN atanh(lucid_complex<R> z)
{
    if (lucid_isinf(z)) {
        const R angle = lucid_isnan(z.im) ? z.im : (R)1.57079632679489661923;
        return {copysign((R)0, z.re), copysign(angle, z.im)};
    }
    if (z.re == 0 && lucid_isnan(z.im)) return z;
    const R aside = 1 - z.re, square = z.im * z.im;
    return {(R)0.25 * log1p(4 * z.re / (aside * aside + square)),
            (R)0.5 * atan2(2 * z.im, aside * (1 + z.re) - square)};
}

LUCID_COMPLEX_FN atan(lucid_complex<R> z) { return lucid_turn_right(atanh(lucid_turn_left(z))); }

#endif

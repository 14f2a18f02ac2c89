// Special functions that CUDA C lacks, or that the host compiler lacks: of the gamma family and of the
// normal distribution. lucid_gpu/fusion/special_functions.py computes the same by NumPy, and says
// where the formulas come from.
#ifndef LUCID_SPECIAL_CUH
#define LUCID_SPECIAL_CUH

#include "elementwise.cuh"

#define LUCID_PI 3.14159265358979323846

LUCID_FN double lucid_infinity_of(double) { return __longlong_as_double(0x7ff0000000000000ll); }
LUCID_FN float lucid_infinity_of(float) { return __uint_as_float(0x7f800000u); }

template <typename T>
LUCID_FN T lucid_nan_of(T x)
{
    return lucid_infinity_of(x) - lucid_infinity_of(x);
}

// A polynomial, its lowest coefficient first.
template <typename T>
LUCID_FN T lucid_horner(T x, double c)
{
    return (T)c;
}

template <typename T, typename... Rest>
LUCID_FN T lucid_horner(T x, double c, Rest... rest)
{
    return (T)c + x * lucid_horner(x, rest...);
}

template <typename T>
LUCID_FN T lucid_digamma(T x)
{
    if (x == 0) return copysign(lucid_infinity_of(x), -x);
    T result = 0;
    if (x < 0) {
        if (x == floor(x)) return lucid_nan_of(x);
        result = -(T)LUCID_PI / tan(lucid_small_angle((T)LUCID_PI * (x - rint(x))));
        x = 1 - x;
    }
    for (; x < 10; x += 1) result -= 1 / x;
    const T z = 1 / (x * x);
    const T series = z * lucid_horner(z, 1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132,
                                      -691.0 / 32760, 1.0 / 12);
    return result + (lucid_isinf(x) ? x : log(x) - (T)0.5 / x - series);
}

template <typename T>
LUCID_FN T lucid_trigamma(T x)
{
    T result = 0, sign = 1;
    if (x < (T)0.5) {
        const T sine = sin(lucid_small_angle((T)LUCID_PI * (x - rint(x))));
        result = -(T)(LUCID_PI * LUCID_PI) / (sine * sine);
        sign = -1;
        x = 1 - x;
    }
    for (; x < 10; x += 1) result += 1 / (x * x);
    const T z = 1 / (x * x);
    const T series = lucid_horner(z, 1.0, 1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66,
                                  -691.0 / 2730, 7.0 / 6);
    return sign * (result + series / x + z / 2);
}

// sum_(k >= 0) (q + k)**-s
template <typename T>
LUCID_FN T lucid_zeta(T s, T q)
{
    if (s == 1) return lucid_infinity_of(q);
    if (!(s > 1) || q != q) return lucid_nan_of(q);
    if (q <= 0) {
        if (q == floor(q)) return lucid_infinity_of(q);
        if (s != floor(s) || q < -10000) return lucid_nan_of(q);
    }
    T sum = 0, power = pow(q, -s);
    for (int i = 0; i < 9 || q <= 9; ++i) {
        sum += power;
        q += 1;
        power = pow(q, -s);
    }
    if (power == 0) return sum;
    sum += power * q / (s - 1) + power / 2;
    const double divisors[12] = {
        12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.8924375803183791606e9, 7.47242496e10,
        -2.950130727918164224e12, 1.1646782814350067249e14, -4.5979787224074726105e15,
        1.8152105401943546773e17, -7.1661652561756670113e18};
    T term = power;
    for (int k = 0; k < 12; ++k) {
        term *= (s + 2 * k) / q;
        sum += term / (T)divisors[k];
        term *= (s + 2 * k + 1) / q;
    }
    return sum;
}

// The quantile of the normal distribution at 1/2 + q, whose smaller tail is r.
template <typename T>
LUCID_FN T lucid_quantile(T q, T r)
{
    if (fabs(q) <= (T)0.425) {
        const T z = (T)0.180625 - q * q;
        return q * lucid_horner(z, 3.3871328727963666080, 1.3314166789178437745e2,
                   1.9715909503065514427e3, 1.3731693765509461125e4, 4.5921953931549871457e4,
                   6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3)
            / lucid_horner(z, 1.0, 4.2313330701600911252e1, 6.8718700749205790830e2,
                   5.3941960214247511077e3, 2.1213794301586595867e4, 3.9307895800092710610e4,
                   2.8729085735721942674e4, 5.2264952788528545610e3);
    }
    if (!(r > 0)) return r == 0 ? copysign(lucid_infinity_of(q), q) : lucid_nan_of(q);
    const T far = sqrt(-log(r));
    T size;
    if (far <= 5) {
        const T z = far - (T)1.6;
        size = lucid_horner(z, 1.42343711074968357734, 4.63033784615654529590,
                   5.76949722146069140550, 3.64784832476320460504, 1.27045825245236838258,
                   2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4)
            / lucid_horner(z, 1.0, 2.05319162663775882187, 1.67638483018380384940,
                   6.89767334985100004550e-1, 1.48103976427480074590e-1, 1.51986665636164571966e-2,
                   5.47593808499534494600e-4, 1.05075007164441684324e-9);
    } else {
        const T z = far - 5;
        size = lucid_horner(z, 6.65790464350110377720, 5.46378491116411436990,
                   1.78482653991729133580, 2.96560571828504891230e-1, 2.65321895265761230930e-2,
                   1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7)
            / lucid_horner(z, 1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1,
                   1.48753612908506148525e-2, 7.86869131145613259100e-4, 1.84631831751005468180e-5,
                   1.42151175831644588870e-7, 2.04426310338993978564e-15);
    }
    return copysign(size, q);
}

template <typename T>
LUCID_FN T lucid_ndtri(T p)
{
    return lucid_quantile(p - (T)0.5, p < (T)0.5 ? p : 1 - p);
}

template <typename T>
LUCID_FN T lucid_erfinv(T y)
{
    return (T)0.70710678118654752440 * lucid_quantile(y / 2, (1 - fabs(y)) / 2);
}

// exp(x * x) * erfc(x)
template <typename T>
LUCID_FN T lucid_erfcx(T x)
{
    if (x < (T)0.46875) return exp(x * x) * erfc(x);
    if (x <= 4)
        return lucid_horner(x, 1.23033935479799725e3, 2.05107837782607147e3, 1.71204761263407058e3,
                   8.81952221241769090e2, 2.98635138197400131e2, 6.61191906371416295e1,
                   8.88314979438837594, 5.64188496988670089e-1, 2.15311535474403846e-8)
            / lucid_horner(x, 1.23033935480374942e3, 3.43936767414372164e3, 4.36261909014324716e3,
                   3.29079923573345963e3, 1.62138957456669019e3, 5.37181101862009858e2,
                   1.17693950891312499e2, 1.57449261107098347e1, 1.0);
    const T z = 1 / (x * x);
    const T tail = z * lucid_horner(z, 6.58749161529837803e-4, 1.60837851487422766e-2,
                       1.25781726111229246e-1, 3.60344899949804439e-1, 3.05326634961232344e-1,
                       1.63153871373020978e-2)
        / lucid_horner(z, 2.33520497626869185e-3, 6.05183413124413191e-2, 5.27905102951428412e-1,
                       1.87295284992346725, 2.56852019228982242, 1.0);
    return ((T)5.6418958354775628695e-1 - tail) / x;
}

// exp(-x) times the modified Bessel function of order 0 or 1, for x >= 0.
template <typename T>
LUCID_FN T lucid_scaled_bessel(T x, int order)
{
    T sum = 1;
    if (x < 20) {
        const T t = x * x / 4;
        for (int k = 40; k > 0; --k) sum = 1 + sum * t / (T)(k * (k + order));
        return exp(-x) * (order ? x / 2 * sum : sum);
    }
    for (int k = 30; k > 0; --k)
        sum = 1 + sum * (T)((2 * k - 1) * (2 * k - 1) - 4 * order) / ((T)(8 * k) * x);
    return (T)0.39894228040143267794 / sqrt(x) * sum;
}

// exp(x) alone would be infinite too soon.
template <typename T>
LUCID_FN T lucid_bessel(T x, int order)
{
    x = x > 1000 ? (T)1000 : x;
    const T half = exp(x / 2);
    return half * lucid_scaled_bessel(x, order) * half;
}

template <typename T>
LUCID_FN T lucid_i0(T x)
{
    return lucid_bessel(fabs(x), 0);
}

template <typename T>
LUCID_FN T lucid_i0e(T x)
{
    return lucid_scaled_bessel(fabs(x), 0);
}

template <typename T>
LUCID_FN T lucid_i1(T x)
{
    return copysign(lucid_bessel(fabs(x), 1), x);
}

template <typename T>
LUCID_FN T lucid_i1e(T x)
{
    return copysign(lucid_scaled_bessel(fabs(x), 1), x);
}

template <typename T>
LUCID_FN T lucid_entr(T x)
{
    if (x > 0) return -x * log(x);
    return x < 0 ? log((T)0) : x;  // minus infinity; 0 and NaN stay
}

template <typename T>
LUCID_FN T lucid_xlogy(T x, T y)
{
    if (y != y) return y;
    return x == 0 ? (T)0 : x * log(y);
}

#endif

// Functions of CUDA that CuPy's own kernels call and lucid_gpu's do not.
#ifndef DRIVER_FUNCTIONS_ON_HOST_H
#define DRIVER_FUNCTIONS_ON_HOST_H

#define NULL __null
#define assert(condition)  // as NVRTC has it

typedef __PTRDIFF_TYPE__ ptrdiff_t;

LUCID_HOST_1(cbrt) LUCID_HOST_1(round) LUCID_HOST_1(tgamma) LUCID_HOST_1(nearbyint)
LUCID_HOST_2(nextafter) LUCID_HOST_2(remainder)

LUCID_HOST_F(acoshf) LUCID_HOST_F(asinhf) LUCID_HOST_F(atanhf)
extern "C" float frexpf(float, int*);
extern "C" float ldexpf(float, int);

inline float frexp(float x, int* exponent) { return __builtin_frexpf(x, exponent); }
inline double frexp(double x, int* exponent) { return __builtin_frexp(x, exponent); }
inline float modf(float x, float* whole) { return __builtin_modff(x, whole); }
inline double modf(double x, double* whole) { return __builtin_modf(x, whole); }
inline float exp10(float x) { return __builtin_powf(10.0f, x); }
inline double exp10(double x) { return __builtin_pow(10.0, x); }
inline float abs(float x) { return __builtin_fabsf(x); }
inline double abs(double x) { return __builtin_fabs(x); }
inline long long abs(long long x) { return x < 0 ? -x : x; }
inline long abs(long x) { return x < 0 ? -x : x; }

// CUDA's min and max take operands of different types.
#define DRIVER_MIXED(a, b, type) \
    inline type min(a x, b y) { return min((type)x, (type)y); } \
    inline type max(a x, b y) { return max((type)x, (type)y); }
DRIVER_MIXED(int, long long, long long) DRIVER_MIXED(long long, int, long long)
DRIVER_MIXED(int, unsigned, unsigned) DRIVER_MIXED(unsigned, int, unsigned)
DRIVER_MIXED(float, double, double) DRIVER_MIXED(double, float, double)
DRIVER_MIXED(long, long long, long long) DRIVER_MIXED(long long, long, long long)
DRIVER_MIXED(int, long, long) DRIVER_MIXED(long, int, long)

inline double __hiloint2double(int high, int low)
{
    return __longlong_as_double((long long)((unsigned long long)(unsigned)high << 32 | (unsigned)low));
}
inline int __double2hiint(double x) { return __double_as_longlong(x) >> 32; }
inline int __double2loint(double x) { return (int)__double_as_longlong(x); }

#endif

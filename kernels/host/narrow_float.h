// 16-bit floats on the host, as CUDA's headers have them: every operation in float, rounded once.
#ifndef LUCID_NARROW_FLOAT_H
#define LUCID_NARROW_FLOAT_H

// A number as a float whose further rounding to 16 bits is right: rounded to odd.
inline float lucid_host_to_odd(double x)
{
    const float near = (float)x;
    if ((double)near == x || near != near || __float_as_int(near) & 1) return near;
    return __int_as_float(__float_as_int(near) + (((double)near < x) == (x > 0) ? 1 : -1));
}

// `to` rounds a float to 16 bits, `from` gives one back.
#define LUCID_HOST_NARROW_FLOAT(type, type2, raw, to, from) \
    struct raw { \
        unsigned short x; \
    }; \
    struct type { \
        unsigned short bits; \
        type() = default; \
        type(float value) : bits(to(value)) {} \
        type(double value) : bits(to(lucid_host_to_odd((double)value))) {} \
        type(int value) : bits(to(lucid_host_to_odd((double)value))) {} \
        type(unsigned value) : bits(to(lucid_host_to_odd((double)value))) {} \
        type(long long value) : bits(to(lucid_host_to_odd((double)value))) {} \
        type(unsigned long long value) : bits(to(lucid_host_to_odd((double)value))) {} \
        type(const raw& value) : bits(value.x) {} \
        operator float() const { return from(bits); } \
        operator raw() const { return {bits}; } \
        type& operator+=(type y) { return *this = type((float)*this + (float)y); } \
        type& operator-=(type y) { return *this = type((float)*this - (float)y); } \
        type& operator*=(type y) { return *this = type((float)*this * (float)y); } \
        type& operator/=(type y) { return *this = type((float)*this / (float)y); } \
    }; \
    struct alignas(4) type2 { \
        type x, y; \
        type2() = default; \
        type2(type a, type b) : x(a), y(b) {} \
    }; \
    inline type operator+(type x, type y) { return type((float)x + (float)y); } \
    inline type operator-(type x, type y) { return type((float)x - (float)y); } \
    inline type operator*(type x, type y) { return type((float)x * (float)y); } \
    inline type operator/(type x, type y) { return type((float)x / (float)y); } \
    inline type operator-(type x) { type y = x; y.bits ^= 0x8000u; return y; } \
    inline bool operator==(type x, type y) { return (float)x == (float)y; } \
    inline bool operator!=(type x, type y) { return (float)x != (float)y; } \
    inline bool operator<(type x, type y) { return (float)x < (float)y; } \
    inline bool operator>(type x, type y) { return (float)x > (float)y; } \
    inline bool operator<=(type x, type y) { return (float)x <= (float)y; } \
    inline bool operator>=(type x, type y) { return (float)x >= (float)y; } \
    inline type __hadd(type x, type y) { return x + y; } \
    inline type __hsub(type x, type y) { return x - y; } \
    inline type __hmul(type x, type y) { return x * y; } \
    inline type __hdiv(type x, type y) { return x / y; } \
    inline type __hneg(type x) { return -x; } \
    inline type __habs(type x) { x.bits &= 0x7fffu; return x; } \
    inline type __hfma(type x, type y, type z) { return type((double)(float)x * (float)y + (float)z); } \
    inline type __hmax(type x, type y) { return type(fmax((float)x, (float)y)); } \
    inline type __hmin(type x, type y) { return type(fmin((float)x, (float)y)); } \
    inline bool __heq(type x, type y) { return x == y; } \
    inline bool __hne(type x, type y) { return x != y; } \
    inline bool __hlt(type x, type y) { return x < y; } \
    inline bool __hle(type x, type y) { return x <= y; } \
    inline bool __hgt(type x, type y) { return x > y; } \
    inline bool __hge(type x, type y) { return x >= y; } \
    inline bool __hisnan(type x) { return isnan((float)x); } \
    inline int __hisinf(type x) { return isinf((float)x) ? ((float)x < 0 ? -1 : 1) : 0; } \
    LUCID_HOST_NARROW_1(type, hexp, exp) LUCID_HOST_NARROW_1(type, hexp2, exp2) \
    LUCID_HOST_NARROW_1(type, hlog, log) LUCID_HOST_NARROW_1(type, hlog2, log2) \
    LUCID_HOST_NARROW_1(type, hsin, sin) LUCID_HOST_NARROW_1(type, hcos, cos) \
    LUCID_HOST_NARROW_1(type, hsqrt, sqrt) LUCID_HOST_NARROW_1(type, hrsqrt, rsqrt) \
    LUCID_HOST_NARROW_1(type, hrcp, 1.0f /) LUCID_HOST_NARROW_1(type, hfloor, floor) \
    LUCID_HOST_NARROW_1(type, hceil, ceil) LUCID_HOST_NARROW_1(type, htrunc, trunc) \
    LUCID_HOST_NARROW_1(type, hrint, rint) \
    LUCID_HOST_NARROW_2(type, type2, __hadd2, x + y) LUCID_HOST_NARROW_2(type, type2, __hsub2, x - y) \
    LUCID_HOST_NARROW_2(type, type2, __hmul2, x * y) LUCID_HOST_NARROW_2(type, type2, __h2div, x / y) \
    LUCID_HOST_NARROW_2(type, type2, __hmax2, __hmax(x, y)) \
    LUCID_HOST_NARROW_2(type, type2, __hmin2, __hmin(x, y)) \
    LUCID_HOST_NARROW_2(type, type2, operator+, x + y) LUCID_HOST_NARROW_2(type, type2, operator-, x - y) \
    LUCID_HOST_NARROW_2(type, type2, operator*, x * y) LUCID_HOST_NARROW_2(type, type2, operator/, x / y) \
    inline type2 __hfma2(type2 a, type2 b, type2 c) \
    { \
        return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; \
    } \
    inline type2 __hneg2(type2 a) { return {-a.x, -a.y}; } \
    inline type2 __habs2(type2 a) { return {__habs(a.x), __habs(a.y)}; } \
    inline float __low2float(type2 a) { return a.x; } \
    inline float __high2float(type2 a) { return a.y; }

#define LUCID_HOST_NARROW_1(type, name, function) \
    inline type name(type x) { return type(function((float)x)); }
#define LUCID_HOST_NARROW_2(type, type2, name, value) \
    inline type2 name(type2 a, type2 b) \
    { \
        const auto one = [](type x, type y) -> type { return value; }; \
        return {one(a.x, b.x), one(a.y, b.y)}; \
    }

#endif

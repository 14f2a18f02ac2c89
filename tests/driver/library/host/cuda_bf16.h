// bfloat16 on the host, as far as CuPy's own kernels use it: every operation in float, rounded once.
#ifndef DRIVER_CUDA_BF16_H
#define DRIVER_CUDA_BF16_H

inline unsigned short driver_narrow_bfloat16(float value)
{
    const unsigned all = __float_as_uint(value);
    if ((all & 0x7fffffffu) > 0x7f800000u) return all >> 16 | 0x40;
    return (all + 0x7fffu + (all >> 16 & 1)) >> 16;
}

struct __nv_bfloat16_raw {
    unsigned short x;
};

struct __nv_bfloat16 {
    unsigned short bits;

    __nv_bfloat16() = default;
    __nv_bfloat16(float value) : bits(driver_narrow_bfloat16(value)) {}
    __nv_bfloat16(const __nv_bfloat16_raw& raw) : bits(raw.x) {}
    operator float() const { return __uint_as_float((unsigned)bits << 16); }
    operator __nv_bfloat16_raw() const { return {bits}; }
};

inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) { return value.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    return __nv_bfloat16(__nv_bfloat16_raw{bits});
}
inline bool __hisnan(__nv_bfloat16 value) { return (value.bits & 0x7fff) > 0x7f80; }
inline bool __hisinf(__nv_bfloat16 value) { return (value.bits & 0x7fff) == 0x7f80; }
inline float __bfloat162float(__nv_bfloat16 value) { return value; }
inline __nv_bfloat16 __float2bfloat16(float value) { return value; }

#endif

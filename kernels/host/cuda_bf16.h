// `cuda_bf16.h` on the host: `__nv_bfloat16`, `__nv_bfloat162` and their functions.
#ifndef LUCID_CUDA_BF16_H
#define LUCID_CUDA_BF16_H

#include "narrow_float.h"

inline float lucid_host_widen_bfloat16(unsigned short bits)
{
    return __uint_as_float((unsigned)bits << 16);
}
inline unsigned short lucid_host_narrow_bfloat16(float x)
{
    const unsigned all = __float_as_uint(x);
    if (x != x) return all >> 16 | 0x40u;
    return (all + 0x7fffu + (all >> 16 & 1u)) >> 16;
}
LUCID_HOST_NARROW_FLOAT(
    __nv_bfloat16, __nv_bfloat162, __nv_bfloat16_raw, lucid_host_narrow_bfloat16,
    lucid_host_widen_bfloat16)
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

inline unsigned short __bfloat16_as_ushort(nv_bfloat16 x) { return x.bits; }
inline nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    return nv_bfloat16(__nv_bfloat16_raw{bits});
}
inline float __bfloat162float(nv_bfloat16 x) { return x; }
inline nv_bfloat16 __float2bfloat16(float x) { return nv_bfloat16(x); }
inline nv_bfloat16 __float2bfloat16_rn(float x) { return nv_bfloat16(x); }
inline nv_bfloat16 __double2bfloat16(double x) { return nv_bfloat16(x); }
inline nv_bfloat162 __halves2bfloat162(nv_bfloat16 x, nv_bfloat16 y) { return {x, y}; }
inline nv_bfloat162 __bfloat162bfloat162(nv_bfloat16 x) { return {x, x}; }
inline nv_bfloat162 __float2bfloat162_rn(float x) { return {nv_bfloat16(x), nv_bfloat16(x)}; }
inline nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return {nv_bfloat16(x), nv_bfloat16(y)};
}
inline float2 __bfloat1622float2(nv_bfloat162 x) { return {(float)x.x, (float)x.y}; }
inline nv_bfloat16 __low2bfloat16(nv_bfloat162 x) { return x.x; }
inline nv_bfloat16 __high2bfloat16(nv_bfloat162 x) { return x.y; }

#endif

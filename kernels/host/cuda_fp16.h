// `cuda_fp16.h` on the host: `__half`, `__half2` and their functions.
#ifndef LUCID_CUDA_FP16_H
#define LUCID_CUDA_FP16_H

#include "narrow_float.h"

LUCID_HOST_NARROW_FLOAT(__half, __half2, __half_raw, lucid_host_narrow, lucid_host_widen)
typedef __half half;
typedef __half2 half2;

inline unsigned short __half_as_ushort(half x) { return x.bits; }
inline short __half_as_short(half x) { return x.bits; }
inline half __ushort_as_half(unsigned short bits) { return half(__half_raw{bits}); }
inline half __short_as_half(short bits) { return half(__half_raw{(unsigned short)bits}); }
inline float __half2float(half x) { return x; }
inline half __float2half(float x) { return half(x); }
inline half __float2half_rn(float x) { return half(x); }
inline half __double2half(double x) { return half(x); }
inline half __int2half_rn(int x) { return half(x); }
inline int __half2int_rn(half x) { return (int)rint((float)x); }
inline int __half2int_rz(half x) { return (int)(float)x; }
inline half2 __halves2half2(half x, half y) { return {x, y}; }
inline half2 make_half2(half x, half y) { return {x, y}; }
inline half2 __half2half2(half x) { return {x, x}; }
inline half2 __float2half2_rn(float x) { return {half(x), half(x)}; }
inline half2 __floats2half2_rn(float x, float y) { return {half(x), half(y)}; }
inline half2 __float22half2_rn(float2 x) { return {half(x.x), half(x.y)}; }
inline float2 __half22float2(half2 x) { return {(float)x.x, (float)x.y}; }
inline half __low2half(half2 x) { return x.x; }
inline half __high2half(half2 x) { return x.y; }

#endif

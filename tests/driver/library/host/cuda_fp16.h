// float16 on the host, as far as CuPy's own kernels use it: every operation in float, rounded once.
#ifndef DRIVER_CUDA_FP16_H
#define DRIVER_CUDA_FP16_H

struct __half_raw {
    unsigned short x;
};

struct __half {
    unsigned short bits;

    __half() = default;
    __half(float value) : bits(lucid_host_narrow(value)) {}
    __half(double value) : bits(lucid_host_narrow((float)value)) {}
    __half(int value) : bits(lucid_host_narrow((float)value)) {}
    __half(unsigned value) : bits(lucid_host_narrow((float)value)) {}
    __half(long long value) : bits(lucid_host_narrow((float)value)) {}
    __half(unsigned long long value) : bits(lucid_host_narrow((float)value)) {}
    __half(const __half_raw& raw) : bits(raw.x) {}
    operator float() const { return lucid_host_widen(bits); }
    operator __half_raw() const { return {bits}; }
};
typedef __half half;

inline unsigned short __half_as_ushort(half value) { return value.bits; }
inline half __ushort_as_half(unsigned short bits) { return half(__half_raw{bits}); }
inline float __half2float(half value) { return value; }
inline half __float2half_rn(float value) { return half(value); }

#endif

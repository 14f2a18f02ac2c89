// What users' kernels are given: 16-bit floats that convert by themselves, and strided arrays.
#ifndef LUCID_USER_CUH
#define LUCID_USER_CUH

#include "strided.cuh"

// Storage that reads as float and rounds when it is written.
template <typename Storage>
struct lucid_converting : Storage {
    lucid_converting() = default;
    LUCID_FN lucid_converting(float x) { lucid_narrow(x, *this); }
    LUCID_FN operator float() const { return lucid_widen((Storage) * this); }
};
typedef lucid_converting<lucid_float16> float16;
typedef lucid_converting<lucid_bfloat16> bfloat16;

// The type arithmetic on T is done in.
template <typename T> struct lucid_compute { typedef T type; };
template <> struct lucid_compute<float16> { typedef float type; };
template <> struct lucid_compute<bfloat16> { typedef float type; };

#endif

// From the number of an element to where it lies: strides, and division by a number that only the
// launch knows.
#ifndef LUCID_INDEX_CUH
#define LUCID_INDEX_CUH

#include "types.cuh"

template <typename I, int N>
struct lucid_strides {
    I at[N];
};

template <typename I> struct lucid_divider;

// n / divisor for 0 <= n < 2^31 by a multiplication and a shift (Granlund and Montgomery, 1994):
// shift = ceil(log2 divisor), multiplier = floor(2^32 (2^shift - divisor) / divisor) + 1.
template <>
struct lucid_divider<int> {
    unsigned divisor, multiplier, shift;
    LUCID_FN int quotient(int n) const
    {
        return (int)((__umulhi((unsigned)n, multiplier) + (unsigned)n) >> shift);
    }
    LUCID_FN int rest(int n, int quotient) const { return n - quotient * (int)divisor; }
};

template <>
struct lucid_divider<long long> {
    long long divisor;
    LUCID_FN long long quotient(long long n) const { return n / divisor; }
    LUCID_FN long long rest(long long n, long long quotient) const { return n - quotient * divisor; }
};

#endif

// An array with any strides: what a parameter declared `strided<const T, 2> x` is in C.
#ifndef LUCID_STRIDED_CUH
#define LUCID_STRIDED_CUH

#include "types.cuh"

template <typename T, int N>
struct strided {
    T* data;
    long long shape[N];
    long long stride[N];  // in elements; 0 where the array is expanded, negative where it is flipped

    // The element at some indices: x(row, column).
    template <typename... I>
    LUCID_FN T& operator()(I... index) const
    {
        static_assert(sizeof...(I) == N, "as many indices as the array has dimensions");
        const long long at[N] = {(long long)index...};
        long long place = 0;
        #pragma unroll
        for (int d = 0; d < N; ++d) place += at[d] * stride[d];
        return data[place];
    }

    // The element with a number in row-major order: x[i].
    LUCID_FN T& operator[](long long number) const
    {
        long long place = 0;
        #pragma unroll
        for (int d = N - 1; d >= 0; --d) {
            place += number % shape[d] * stride[d];
            number /= shape[d];
        }
        return data[place];
    }

    LUCID_FN long long size() const
    {
        long long count = 1;
        #pragma unroll
        for (int d = 0; d < N; ++d) count *= shape[d];
        return count;
    }
};

#endif

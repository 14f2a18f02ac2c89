// Random numbers from a counter: Philox 4x32-10 (Salmon, Moraes, Dror, Shaw, SC 2011), in the stream
// that lucid_gpu/devices/philox.py defines. A number is a function of its index, a seed and the
// number of the draw, so a kernel makes it where it is used, and again in backward: no bytes move.
//
// Four neighbors share one call of the rounds. Where a loop over a pack is unrolled and the pack
// begins at a multiple of four, the compiler sees that and computes the rounds once.
#ifndef LUCID_PHILOX_CUH
#define LUCID_PHILOX_CUH

#include "types.cuh"

// The ten rounds: four random words of a counter and a key.
LUCID_FN uint4 lucid_philox(uint4 counter, uint2 key)
{
    #pragma unroll
    for (int round = 0; round < 10; ++round) {
        const unsigned low0 = 0xD2511F53u * counter.x, high0 = __umulhi(0xD2511F53u, counter.x);
        const unsigned low1 = 0xCD9E8D57u * counter.z, high1 = __umulhi(0xCD9E8D57u, counter.z);
        counter.x = high1 ^ counter.y ^ key.x;
        counter.y = low1;
        counter.z = high0 ^ counter.w ^ key.y;
        counter.w = low0;
        key.x += 0x9E3779B9u;
        key.y += 0xBB67AE85u;
    }
    return counter;
}

// Words 4 block ... 4 block + 3 of a draw.
LUCID_FN uint4 lucid_random_block(unsigned long long block, long long seed, long long draw)
{
    uint4 counter;
    counter.x = (unsigned)block;
    counter.y = (unsigned)(block >> 32);
    counter.z = (unsigned)draw;
    counter.w = (unsigned)((unsigned long long)draw >> 32);
    uint2 key;
    key.x = (unsigned)seed;
    key.y = (unsigned)((unsigned long long)seed >> 32);
    return lucid_philox(counter, key);
}

LUCID_FN unsigned lucid_random_word(long long index, long long seed, long long draw)
{
    const uint4 words = lucid_random_block((unsigned long long)index >> 2, seed, draw);
    if (index & 2) return index & 1 ? words.w : words.z;
    return index & 1 ? words.y : words.x;
}

LUCID_FN unsigned long long lucid_join(unsigned low, unsigned high)
{
    return (unsigned long long)high << 32 | low;
}

LUCID_FN unsigned long long lucid_random_double_word(long long index, long long seed, long long draw)
{
    const uint4 words = lucid_random_block((unsigned long long)index >> 1, seed, draw);
    return index & 1 ? lucid_join(words.z, words.w) : lucid_join(words.x, words.y);
}

// x * scale + shift, rounded twice: the same bits as where nothing fuses the two.
LUCID_FN float lucid_scaled(float x, float scale, float shift)
{
    return __fadd_rn(__fmul_rn(x, scale), shift);
}

LUCID_FN double lucid_scaled(double x, double scale, double shift)
{
    return __dadd_rn(__dmul_rn(x, scale), shift);
}

// Uniform: a word, or for double a double word, without its last `spare` bits, scaled and shifted.
template <typename T>
LUCID_FN T lucid_random_uniform(
    long long index, long long seed, long long draw, long long spare, T scale, T shift)
{
    if constexpr (lucid_same<T, double>)
        return lucid_scaled((T)(lucid_random_double_word(index, seed, draw) >> spare), scale, shift);
    else
        return lucid_scaled((T)(lucid_random_word(index, seed, draw) >> spare), scale, shift);
}

// Standard normal: Box and Muller (1958). A pair of words, or of double words, gives two neighbors.
template <typename T>
LUCID_FN T lucid_random_normal(long long index, long long seed, long long draw, T scale, T shift)
{
    T u, angle;
    if constexpr (lucid_same<T, double>) {
        const uint4 words = lucid_random_block((unsigned long long)index >> 1, seed, draw);
        u = (T)(lucid_join(words.x, words.y) >> 11) * (T)0x1p-53 + (T)0x1p-54;
        angle = (T)(lucid_join(words.z, words.w) >> 11) * (T)(6.283185307179586477 * 0x1p-53);
    } else {
        const uint4 words = lucid_random_block((unsigned long long)index >> 2, seed, draw);
        u = (T)(index & 2 ? words.z : words.x) * (T)0x1p-32f + (T)0x1p-33f;
        angle = (T)(index & 2 ? words.w : words.y) * (T)(6.283185307179586477 * 0x1p-32);
    }
    angle = lucid_small_angle(angle);
    const T radius = sqrt(log(u) * (T)-2);
    return lucid_scaled(radius * (index & 1 ? sin(angle) : cos(angle)), scale, shift);
}

// Exponential of rate 1, never 0: -log((word + 1/2) / 2^32). In float the upper half of the words is
// counted from their end, as 1 - u, which keeps the small results' digits: u itself would round to 1.
template <typename T>
LUCID_FN T lucid_random_exponential(long long index, long long seed, long long draw)
{
    const unsigned word = lucid_random_word(index, seed, draw);
    if constexpr (lucid_same<T, double>)
        return -log((word + 0.5) * 0x1p-32);
    else if (word >> 31)
        return -log1p(((T)~word + (T)0.5) * (T)-0x1p-32f);
    else
        return -log(((T)word + (T)0.5) * (T)0x1p-32f);
}

// Whole numbers from [0, span); a span of 0 stands for 2^64.
LUCID_FN long long lucid_random_below(long long index, long long seed, long long draw, long long span)
{
    const unsigned long long n = (unsigned long long)span;
    if (n - 1 < 1ull << 16)  // 32 bits are enough: no probability is off by 2^-16
        return (long long)(lucid_random_word(index, seed, draw) * n >> 32);
    const unsigned long long word = lucid_random_double_word(index, seed, draw);
    return (long long)(n == 0 ? word : word % n);
}

#endif

// Packs: W neighboring elements moved by one access of at most 16 bytes.
#ifndef LUCID_PACK_CUH
#define LUCID_PACK_CUH

#include "types.cuh"

// The machine word of a number of bytes.
template <int Bytes> struct lucid_word;
template <> struct lucid_word<1> { typedef unsigned char type; };
template <> struct lucid_word<2> { typedef unsigned short type; };
template <> struct lucid_word<4> { typedef unsigned int type; };
template <> struct lucid_word<8> { typedef uint2 type; };
template <> struct lucid_word<16> { typedef uint4 type; };

template <typename T, int W>
union lucid_pack {
    typename lucid_word<sizeof(T) * W>::type word;
    T at[W];
    lucid_pack() = default;
    LUCID_FN T& operator[](int k) { return at[k]; }
    LUCID_FN const T& operator[](int k) const { return at[k]; }
};

// `address` is a multiple of the pack's size.
template <int W, typename T>
LUCID_FN lucid_pack<T, W> lucid_load(const T* address)
{
    lucid_pack<T, W> pack;
    pack.word = __ldg(reinterpret_cast<const typename lucid_word<sizeof(T) * W>::type*>(address));
    return pack;
}

// The same where this kernel also writes the memory, which the read-only path must not see.
template <int W, typename T>
LUCID_FN lucid_pack<T, W> lucid_load_written(const T* address)
{
    lucid_pack<T, W> pack;
    pack.word = *reinterpret_cast<const typename lucid_word<sizeof(T) * W>::type*>(address);
    return pack;
}

template <int W, typename T>
LUCID_FN void lucid_store(T* address, const lucid_pack<T, W>& pack)
{
    *reinterpret_cast<typename lucid_word<sizeof(T) * W>::type*>(address) = pack.word;
}

// The same for what is moved once and not needed soon: it leaves the caches first.
template <int W, typename T>
LUCID_FN lucid_pack<T, W> lucid_load_streamed(const T* address)
{
    lucid_pack<T, W> pack;
    pack.word = __ldcs(reinterpret_cast<const typename lucid_word<sizeof(T) * W>::type*>(address));
    return pack;
}

template <int W, typename T>
LUCID_FN void lucid_store_streamed(T* address, const lucid_pack<T, W>& pack)
{
    __stcs(reinterpret_cast<typename lucid_word<sizeof(T) * W>::type*>(address), pack.word);
}

#endif

// Stands in for the CUDA built-ins, so that a kernel source compiles unchanged as C++17 and its
// arithmetic runs on machines without a GPU. Included ahead of the source by the compiler's command
// line. It includes no system header: a kernel compiles in a twentieth of a second.
#ifndef LUCID_CUDA_ON_HOST_H
#define LUCID_CUDA_ON_HOST_H

#define __global__
#define __device__
#define __host__
#define __constant__ static
// Blocks run one after another. Nothing else here is thread_local: the static shared memory of a
// library, that of templates too, is one piece that can be found. `used`: what no thread writes is
// not taken for zero.
#define __shared__ static thread_local __attribute__((used))
#define __noinline__ __attribute__((noinline))
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)

typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
#define NULL __null
struct dim3 { unsigned x, y, z; };
static dim3 threadIdx, blockIdx, blockDim, gridDim;
static const int warpSize = 32;

// Dynamic shared memory. `extern __shared__ T x[];` is rewritten to a pointer to it.
alignas(1024) static char lucid_host_dynamic[LUCID_SHARED];

// --- failing and printing ------------------------------------------------------------------------

static void* lucid_before_launch[5];
static int lucid_host_failure;  // what a launch that ends early says: see FAILURES of launch/host.py
extern "C" int printf(const char*, ...);  // of the C library: CUDA's own has the same formats
extern "C" int fflush(void*);

// Ends the launch, from within any thread.
inline void lucid_host_fail(int failure)
{
    lucid_host_failure = failure;
    __builtin_longjmp(lucid_before_launch, 1);
}

inline void lucid_host_assertion(const char* condition, int line)
{
    printf(
        "line %d: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n", line, blockIdx.x,
        blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z, condition);
    lucid_host_fail(4);
}
#ifdef NDEBUG
#define assert(condition) ((void)0)
#else
#define assert(condition) ((condition) ? (void)0 : lucid_host_assertion(#condition, __LINE__))
#endif

// Where accesses are recorded (accesses.h): a function whose own accesses are not a GPU's, and one
// instruction that stands for what such a function does.
#ifdef LUCID_HOST_ACCESSES
#define LUCID_HOST_UNSEEN __attribute__((noinline, no_sanitize("thread")))
static void lucid_host_access(const volatile void* address, unsigned char size, bool write);
#else
#define LUCID_HOST_UNSEEN inline
inline void lucid_host_access(const volatile void*, unsigned char, bool) {}
#endif
template <typename T> LUCID_HOST_UNSEEN T lucid_host_peek(const T* address) { return *address; }

// --- vectors -------------------------------------------------------------------------------------

#define LUCID_HOST_VECTORS(type, name, wide) \
    struct alignas(2 * sizeof(type)) name##2 { type x, y; }; \
    struct name##3 { type x, y, z; }; \
    struct alignas(wide) name##4 { type x, y, z, w; }; \
    inline name##2 make_##name##2(type x, type y) { return {x, y}; } \
    inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; } \
    inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

LUCID_HOST_VECTORS(signed char, char, 4) LUCID_HOST_VECTORS(unsigned char, uchar, 4)
LUCID_HOST_VECTORS(short, short, 8) LUCID_HOST_VECTORS(unsigned short, ushort, 8)
LUCID_HOST_VECTORS(int, int, 16) LUCID_HOST_VECTORS(unsigned, uint, 16)
LUCID_HOST_VECTORS(long long, longlong, 16) LUCID_HOST_VECTORS(unsigned long long, ulonglong, 16)
LUCID_HOST_VECTORS(float, float, 16) LUCID_HOST_VECTORS(double, double, 16)

// --- memory --------------------------------------------------------------------------------------

// What a cache keeps is no difference here.
#define LUCID_HOST_LOAD(name) \
    template <typename T> inline T name(const T* address) { return *address; }
#define LUCID_HOST_STORE(name) \
    template <typename T> inline void name(T* address, T value) { *address = value; }

LUCID_HOST_LOAD(__ldg) LUCID_HOST_LOAD(__ldca) LUCID_HOST_LOAD(__ldcg) LUCID_HOST_LOAD(__ldcs)
LUCID_HOST_LOAD(__ldlu) LUCID_HOST_LOAD(__ldcv)
LUCID_HOST_STORE(__stwb) LUCID_HOST_STORE(__stcg) LUCID_HOST_STORE(__stcs) LUCID_HOST_STORE(__stwt)

inline void __threadfence() {}
inline void __threadfence_block() {}

// One thread runs at a time: reading and writing is atomic as it is. The old value is returned.
#define LUCID_HOST_ATOMIC(name, next) \
    template <typename T> struct name##_of { \
        static T run(T* address, T value) { const T old = *address; *address = next; return old; } \
    }; \
    template <typename T, typename V> inline T name(T* address, V value) \
    { \
        return name##_of<T>::run(address, (T)value); \
    }

LUCID_HOST_ATOMIC(atomicAdd, old + value) LUCID_HOST_ATOMIC(atomicSub, old - value)
LUCID_HOST_ATOMIC(atomicExch, value)
LUCID_HOST_ATOMIC(atomicMax, old > value ? old : value)
LUCID_HOST_ATOMIC(atomicMin, old < value ? old : value)
LUCID_HOST_ATOMIC(atomicAnd, old & value) LUCID_HOST_ATOMIC(atomicOr, old | value)
LUCID_HOST_ATOMIC(atomicXor, old ^ value)
LUCID_HOST_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
LUCID_HOST_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)

template <typename T, typename A, typename B> inline T atomicCAS(T* address, A expected, B value)
{
    const T old = *address;
    if (old == (T)expected) *address = (T)value;
    return old;
}

// --- integers and bits ---------------------------------------------------------------------------

template <typename T> inline T min(T a, T b) { return a < b ? a : b; }
template <typename T> inline T max(T a, T b) { return a < b ? b : a; }
inline int abs(int x) { return x < 0 ? -x : x; }
inline long long llabs(long long x) { return x < 0 ? -x : x; }

inline int __mulhi(int a, int b) { return (long long)a * b >> 32; }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned long long)a * b >> 32; }
inline long long __mul64hi(long long a, long long b) { return (__int128)a * b >> 64; }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned __int128)a * b >> 64;
}

inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
inline int __popcll(unsigned long long x)  // the compiler's own may call a library
{
    int count = 0;
    for (; x; x &= x - 1) ++count;
    return count;
}
inline int __popc(unsigned x) { return __popcll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x)
{
    unsigned turned = 0;
    for (int i = 0; i < 32; ++i) turned |= (x >> i & 1u) << (31 - i);
    return turned;
}

template <typename To, typename From>
inline To lucid_host_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "");
    To to;
    __builtin_memcpy(&to, &from, sizeof(To));
    return to;
}

inline float __uint_as_float(unsigned bits) { return lucid_host_bits<float>(bits); }
inline float __int_as_float(int bits) { return lucid_host_bits<float>(bits); }
inline unsigned __float_as_uint(float x) { return lucid_host_bits<unsigned>(x); }
inline int __float_as_int(float x) { return lucid_host_bits<int>(x); }
inline double __longlong_as_double(long long bits) { return lucid_host_bits<double>(bits); }
inline long long __double_as_longlong(double x) { return lucid_host_bits<long long>(x); }

// --- the mathematical functions, overloaded as CUDA overloads them -------------------------------

#define LUCID_HOST_1(name) \
    inline float name(float x) { return __builtin_##name##f(x); } \
    inline double name(double x) { return __builtin_##name(x); }
#define LUCID_HOST_2(name) \
    inline float name(float x, float y) { return __builtin_##name##f(x, y); } \
    inline double name(double x, double y) { return __builtin_##name(x, y); }

LUCID_HOST_1(exp) LUCID_HOST_1(exp2) LUCID_HOST_1(expm1)
LUCID_HOST_1(log) LUCID_HOST_1(log2) LUCID_HOST_1(log10) LUCID_HOST_1(log1p)
LUCID_HOST_1(sin) LUCID_HOST_1(cos) LUCID_HOST_1(tan)
LUCID_HOST_1(asin) LUCID_HOST_1(acos) LUCID_HOST_1(atan)
LUCID_HOST_1(sinh) LUCID_HOST_1(cosh) LUCID_HOST_1(tanh)
LUCID_HOST_1(asinh) LUCID_HOST_1(acosh) LUCID_HOST_1(atanh)
LUCID_HOST_1(sqrt) LUCID_HOST_1(fabs) LUCID_HOST_1(erf) LUCID_HOST_1(erfc)
LUCID_HOST_1(lgamma)
LUCID_HOST_1(floor) LUCID_HOST_1(ceil) LUCID_HOST_1(rint) LUCID_HOST_1(trunc)
LUCID_HOST_2(pow) LUCID_HOST_2(fmod) LUCID_HOST_2(atan2) LUCID_HOST_2(hypot)
LUCID_HOST_2(copysign) LUCID_HOST_2(fmin) LUCID_HOST_2(fmax)

inline float rsqrt(float x) { return 1.0f / sqrt(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
inline float ldexp(float x, int n) { return __builtin_ldexpf(x, n); }
inline double ldexp(double x, int n) { return __builtin_ldexp(x, n); }

#define LUCID_HOST_TEST(name, builtin) \
    inline bool name(float x) { return builtin(x); } \
    inline bool name(double x) { return builtin(x); }
LUCID_HOST_TEST(isnan, __builtin_isnan) LUCID_HOST_TEST(isinf, __builtin_isinf)
LUCID_HOST_TEST(isfinite, __builtin_isfinite) LUCID_HOST_TEST(signbit, __builtin_signbit)

// C's names of the float functions.
#define LUCID_HOST_F(name) extern "C" float name(float);
LUCID_HOST_F(expf) LUCID_HOST_F(exp2f) LUCID_HOST_F(expm1f) LUCID_HOST_F(logf) LUCID_HOST_F(log2f)
LUCID_HOST_F(log10f) LUCID_HOST_F(log1pf) LUCID_HOST_F(sinf) LUCID_HOST_F(cosf) LUCID_HOST_F(tanf)
LUCID_HOST_F(asinf) LUCID_HOST_F(acosf) LUCID_HOST_F(atanf) LUCID_HOST_F(sinhf) LUCID_HOST_F(coshf)
LUCID_HOST_F(tanhf) LUCID_HOST_F(sqrtf) LUCID_HOST_F(cbrtf) LUCID_HOST_F(fabsf) LUCID_HOST_F(erff)
LUCID_HOST_F(erfcf) LUCID_HOST_F(floorf) LUCID_HOST_F(ceilf) LUCID_HOST_F(rintf)
LUCID_HOST_F(truncf) LUCID_HOST_F(roundf) LUCID_HOST_F(lgammaf) LUCID_HOST_F(tgammaf)
extern "C" float powf(float, float);
extern "C" float fmodf(float, float);
extern "C" float atan2f(float, float);
extern "C" float hypotf(float, float);
extern "C" float copysignf(float, float);
extern "C" float fminf(float, float);
extern "C" float fmaxf(float, float);
extern "C" float fmaf(float, float, float);
inline float rsqrtf(float x) { return rsqrt(x); }

// A result that is contracted with nothing, where the compiler is told to contract.
template <typename T> inline T lucid_host_rounded(T x)
{
#ifdef LUCID_HOST_CONTRACTED
    const volatile T rounded = x;
    return rounded;
#else
    return x;
#endif
}

// Arithmetic rounded to nearest, which is what C++ does. The approximations (__expf, __logf,
// __fdividef and others) are not here: they round otherwise than anything the host has, so a source
// that uses one must give IEEE's function where __CUDA_ARCH__ is not defined.
inline float __fadd_rn(float x, float y) { return lucid_host_rounded(x + y); }
inline float __fsub_rn(float x, float y) { return lucid_host_rounded(x - y); }
inline float __fmul_rn(float x, float y) { return lucid_host_rounded(x * y); }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrt(x); }
inline float __fmaf_rn(float x, float y, float z) { return fma(x, y, z); }
inline double __dadd_rn(double x, double y) { return lucid_host_rounded(x + y); }
inline double __dmul_rn(double x, double y) { return lucid_host_rounded(x * y); }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
inline int __float2int_rn(float x) { return (int)__builtin_rintf(x); }
inline int __float2int_rz(float x) { return (int)x; }
inline int __float2int_rd(float x) { return (int)floor(x); }
inline int __float2int_ru(float x) { return (int)ceil(x); }
inline float __int2float_rn(int x) { return (float)x; }
inline float __uint2float_rn(unsigned x) { return (float)x; }

// --- float16, which the GPU converts by an instruction -------------------------------------------

inline float lucid_host_widen(unsigned short half)
{
    const unsigned sign = (half & 0x8000u) << 16, exponent = (half >> 10) & 31, bits = half & 0x3ff;
    if (exponent == 0) {  // zero and subnormal: bits * 2^-24, exact in float
        const float size = bits * 0x1p-24f;
        return sign ? -size : size;
    }
    const unsigned wide = exponent == 31 ? 255 : exponent + 112;
    return __uint_as_float(sign | wide << 23 | bits << 13);
}

inline unsigned short lucid_host_narrow(float x)
{
    const unsigned all = __float_as_uint(x), sign = (all >> 16) & 0x8000u, size = all & 0x7fffffffu;
    if (size > 0x7f800000u) return sign | 0x7e00u;
    if (size >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and beyond round to infinity
    if (size < 0x38800000u) {  // subnormal: adding 0.5 leaves the rounded bits at the low end
        return sign | (__float_as_uint(__uint_as_float(size) + 0.5f) - 0x3f000000u);
    }
    return sign | ((size - 0x38000000u + 0xfffu + ((size >> 13) & 1u)) >> 13);
}

// --- launching -----------------------------------------------------------------------------------

// Calls a kernel with arguments read from an array of pointers to them, as cuLaunchKernel does.
template <int... N> struct lucid_host_numbers {};

template <typename... A, int... N>
LUCID_HOST_UNSEEN void lucid_host_call(void (*kernel)(A...), void** arguments, lucid_host_numbers<N...>)
{
    kernel(*(A*)arguments[N]...);
}

template <typename... A>
inline void lucid_host_thread(void (*kernel)(A...), void** arguments)
{
    lucid_host_call(kernel, arguments, lucid_host_numbers<__integer_pack(sizeof...(A))...>());
}

inline dim3 lucid_host_thread(unsigned number)
{
    const unsigned rest = number / blockDim.x;
    return {number % blockDim.x, rest % blockDim.y, rest / blockDim.y};
}

// 0: blocks, warps and lanes run first to last; 1: last to first; else mixed, a number a mixture.
static unsigned lucid_host_order;
static unsigned long long lucid_host_random;

inline size_t lucid_host_draw(size_t below)
{
    lucid_host_random = lucid_host_random * 6364136223846793005u + 1442695040888963407u;
    return (lucid_host_random >> 33) % below;
}

// Calls a function with every number below a count, in the order of this launch. Mixed is a walk in
// steps that have no divisor with the count in common, another one each time.
template <typename F>
inline void lucid_host_each(size_t count, F call)
{
    size_t at = 0, step = 1;
    if (lucid_host_order == 1) at = step = count - 1;
    if (lucid_host_order > 1) {
        at = lucid_host_draw(count);
        for (size_t divisor = 0; divisor != 1;) {
            step = divisor = 1 + lucid_host_draw(count);
            for (size_t other = count; other;) {
                const size_t rest = divisor % other;
                divisor = other;
                other = rest;
            }
        }
    }
    for (size_t done = 0; done < count; ++done) {
        call(at);
        at += step;
        if (at >= count) at -= count;
    }
}

// A loaded library and a segment of it, as <link.h> has them, which takes long to compile.
struct lucid_host_segment {
    unsigned type, flags;
    size_t place, address, physical, in_file, size, alignment;
};
struct lucid_host_library {
    size_t address;
    const char* name;
    const lucid_host_segment* segments;
    unsigned short count;
    unsigned long long added, removed;
    size_t module;
    char* local;  // this thread's copy of what is thread_local
};
extern "C" int dl_iterate_phdr(int (*)(lucid_host_library*, size_t, void*), void*);

__shared__ char lucid_host_mark;  // somewhere in the static shared memory
static size_t lucid_host_before_mark, lucid_host_static;  // bytes before it, and in all

// The mark's address is an argument: finding it here can take the loader's lock, which a thread that
// loads a library holds while it waits for the one that dl_iterate_phdr holds.
static LUCID_HOST_UNSEEN int lucid_host_find_static(lucid_host_library* library, size_t, void* mark)
{
    const size_t before = (char*)mark - library->local;
    for (int i = 0; i < library->count; ++i) {  // type 7: what is thread_local
        if (library->segments[i].type != 7 || before >= library->segments[i].size) continue;
        lucid_host_before_mark = before;
        lucid_host_static = library->segments[i].size;
        return 1;
    }
    return 0;
}

// What a GPU leaves in shared memory is not zero: NaN as a float, -1 as an integer.
static void lucid_host_spoil(unsigned dynamic)
{
    if (!lucid_host_static) dl_iterate_phdr(lucid_host_find_static, &lucid_host_mark);
    __builtin_memset(&lucid_host_mark - lucid_host_before_mark, 0xff, lucid_host_static);
    __builtin_memset(lucid_host_dynamic, 0xff, dynamic);
}

template <typename F>
inline void lucid_host_each_block(unsigned shared, F run)
{
    lucid_host_each((size_t)gridDim.x * gridDim.y * gridDim.z, [&](size_t number) {
        const size_t rest = number / gridDim.x;
        blockIdx.x = number % gridDim.x;
        blockIdx.y = rest % gridDim.y;
        blockIdx.z = rest / gridDim.y;
        lucid_host_spoil(shared);
        run();
    });
}

#ifdef LUCID_HOST_ACCESSES
#include "accesses.h"
#endif
#ifdef LUCID_HOST_COOPERATIVE
#include "fibers.h"
#else
template <typename K>
inline int lucid_host_grid(K kernel, void** arguments, char*, unsigned shared)
{
    lucid_host_each_block(shared, [=] {
        lucid_host_each(blockDim.x * blockDim.y * blockDim.z, [=](size_t number) {
            threadIdx = lucid_host_thread(number);
            lucid_host_thread(kernel, arguments);
        });
    });
    return 0;
}
#endif

// How many bytes each argument of a kernel has: they are copied when it is launched.
template <typename... A>
inline int lucid_host_sizes_of(void (*)(A...), int* sizes)
{
    const int found[] = {(int)sizeof(A)..., 0};
    for (int i = 0; i < (int)sizeof...(A); ++i) sizes[i] = found[i];
    return sizeof...(A);
}

// Called before an access at an address that its type cannot have: the launch fails, as on a GPU.
extern "C" __attribute__((used, noinline, visibility("hidden")))
void __ubsan_handle_type_mismatch_v1(void*, void*) { lucid_host_fail(2); }

// Denormal numbers are zero until the launch is over. Returns what was set before; 0 where the
// processor is not one of Intel's kind, whose word is never 0.
static unsigned lucid_host_before_flush;
static unsigned lucid_host_flush()
{
#ifdef __x86_64__
    const unsigned before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(before | 0x8040);
    return before;
#else
    return 0;
#endif
}

static void lucid_host_end_flush()
{
#ifdef __x86_64__
    __builtin_ia32_ldmxcsr(lucid_host_before_flush);
#endif
}

#define LUCID_HOST_SEEN extern "C" __attribute__((visibility("default")))
#define LUCID_HOST_ENTRY(kernel) \
    LUCID_HOST_SEEN int lucid_host_sizes(int* sizes) \
    { \
        return lucid_host_sizes_of(kernel, sizes); \
    } \
    LUCID_HOST_SEEN int lucid_host_launch( \
        void** arguments, char* stacks, unsigned grid_x, unsigned grid_y, unsigned grid_z, \
        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared, \
        unsigned order, unsigned flushed) \
    { \
        lucid_host_random = lucid_host_order = order; \
        gridDim = {grid_x, grid_y, grid_z}; \
        blockDim = {block_x, block_y, block_z}; \
        lucid_host_before_flush = flushed ? lucid_host_flush() : 0; \
        if (flushed && !lucid_host_before_flush) return 3; \
        if (!__builtin_setjmp(lucid_before_launch)) \
            lucid_host_failure = lucid_host_grid(kernel, arguments, stacks, shared); \
        if (lucid_host_before_flush) lucid_host_end_flush(); \
        fflush(nullptr); \
        return lucid_host_failure; \
    }

#endif

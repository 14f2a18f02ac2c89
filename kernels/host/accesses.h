// Records every access of a kernel to global and to shared memory. The compiler calls a function
// before each (GCC's -fsanitize=thread), which are defined here in place of its library's.
#ifndef LUCID_ACCESSES_H
#define LUCID_ACCESSES_H

struct lucid_host_recorded {
    const volatile void* address;
    const void* at;  // the place in the code
    unsigned block;
    unsigned short thread;
    unsigned char size, kind;  // 1: a write; 2: to shared memory
};
extern "C" {
__attribute__((visibility("default"))) lucid_host_recorded* lucid_host_records;
__attribute__((visibility("default"))) size_t lucid_host_most, lucid_host_count;
extern char __ehdr_start[] __attribute__((visibility("hidden")));  // this library, from here
extern char _end[] __attribute__((visibility("hidden")));          // to here
}
#define LUCID_HOST_INSIDE(start, bytes) ((size_t)((const char*)address - (start)) < (bytes))

// Adds one access, but none to what a thread keeps for itself and to what this library has.
__attribute__((noinline, no_sanitize("thread")))
static void lucid_host_record(const volatile void* address, const void* at, int size, bool write)
{
    if (LUCID_HOST_INSIDE((char*)__builtin_frame_address(0), LUCID_FIBER_STACK)) return;
    const bool shared =
        LUCID_HOST_INSIDE(lucid_host_dynamic, LUCID_SHARED) ||
        LUCID_HOST_INSIDE(&lucid_host_mark - lucid_host_before_mark, lucid_host_static);
    if (!shared && LUCID_HOST_INSIDE(__ehdr_start, (size_t)(_end - __ehdr_start))) return;
    if (lucid_host_count < lucid_host_most)
        lucid_host_records[lucid_host_count] = {
            address, at, blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z),
            (unsigned short)(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)),
            (unsigned char)size, (unsigned char)(write + 2 * shared)};
    ++lucid_host_count;
}

__attribute__((noinline, no_sanitize("thread")))
static void lucid_host_access(const volatile void* address, unsigned char size, bool write)
{
    lucid_host_record(address, __builtin_return_address(0), size, write);
}

#define LUCID_HOST_HOOK(name, ...) \
    extern "C" __attribute__((used, noinline, visibility("hidden"), no_sanitize("thread"))) \
    void __tsan_##name(__VA_ARGS__)
#define LUCID_HOST_SIZE(bytes) \
    LUCID_HOST_HOOK(read##bytes, void* address) \
    { \
        lucid_host_record(address, __builtin_return_address(0), bytes, false); \
    } \
    LUCID_HOST_HOOK(write##bytes, void* address) \
    { \
        lucid_host_record(address, __builtin_return_address(0), bytes, true); \
    }
LUCID_HOST_SIZE(1) LUCID_HOST_SIZE(2) LUCID_HOST_SIZE(4) LUCID_HOST_SIZE(8) LUCID_HOST_SIZE(16)
LUCID_HOST_HOOK(read_range, void* address, size_t size)
{
    lucid_host_record(address, __builtin_return_address(0), size, false);
}
LUCID_HOST_HOOK(write_range, void* address, size_t size)
{
    lucid_host_record(address, __builtin_return_address(0), size, true);
}
LUCID_HOST_HOOK(init) {}

#endif

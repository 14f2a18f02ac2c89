// Memory of the devices, and page-locked memory of the host.
//
// Each has a range of addresses of its own, reserved at once. An allocation ends where a page ends,
// and the next page stays closed: whoever reads or writes beyond the end stops there. Addresses are
// never used again, so that memory that was freed stays closed, too. Where very many allocations live,
// more of them follow each other without a closed page, since the system counts such boundaries.
#define _GNU_SOURCE
#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE ((size_t)4096)
#define ALIGNMENT ((size_t)512)
#define ADDRESSES ((size_t)1 << 40)
#define POISON 0xFF
#define MOST_SEPARATE 10000
#define MOST_POISONED ((size_t)64 << 20)  // of longer ones the beginning and the end are enough

struct place {
    char *first;             // of its addresses
    size_t taken;            // how far they were given out
    size_t used, most;       // bytes in live allocations, and allowed
    size_t live;             // how many there are
    struct allocation *all;  // in the order of their addresses
    size_t count, room;
};

static struct place places[MOST_DEVICES + 1];
static long until_failure, failures;  // allocations on devices that still succeed, and then fail

static size_t rounded(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

static struct place *opened(int number)
{
    struct place *place = &places[number];
    if (!place->first) {
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void *first = mmap(NULL, ADDRESSES, PROT_NONE, flags, -1, 0);
        if (first == MAP_FAILED) abort();  // nothing can be tested on such a machine
        place->first = first;
        place->taken = (size_t)64 << 20;  // who goes back too far shall not leave the range
        if (!place->most) place->most = (size_t)8 << 30;
    }
    return place;
}

static void poison(char *start, size_t size)
{
    if (size <= MOST_POISONED) {
        memset(start, POISON, size);
    } else {
        memset(start, POISON, MOST_POISONED / 2);
        memset(start + size - MOST_POISONED / 2, POISON, MOST_POISONED / 2);
    }
}

static int fails_now(int number)
{
    if (number == HOST_MEMORY || !failures) return 0;
    if (until_failure) {
        --until_failure;
        return 0;
    }
    --failures;
    return 1;
}

CUresult allocate(int number, size_t size, void **start)
{
    struct place *place = opened(number);
    const size_t whole = rounded(size, ALIGNMENT), pages = rounded(whole, PAGE);
    *start = NULL;
    if (size == 0) return CUDA_SUCCESS;
    count(1, number == HOST_MEMORY ? "allocate host" : "allocate device");
    if (fails_now(number)) return CUDA_ERROR_OUT_OF_MEMORY;
    if (whole > place->most - place->used) return CUDA_ERROR_OUT_OF_MEMORY;
    if (pages + PAGE > ADDRESSES - place->taken) return CUDA_ERROR_OUT_OF_MEMORY;
    char *at = place->first + place->taken;
    if (mprotect(at, pages, PROT_READ | PROT_WRITE)) return CUDA_ERROR_OUT_OF_MEMORY;
    if (place->count == place->room) {
        place->room = place->room ? 2 * place->room : 256;
        place->all = realloc(place->all, place->room * sizeof *place->all);
    }
    place->taken += pages + (place->live < MOST_SEPARATE ? PAGE : 0);
    place->used += whole;
    ++place->live;
    *start = at + pages - whole;
    place->all[place->count++] = (struct allocation){*start, whole, number, 1};
    poison(*start, whole);
    return CUDA_SUCCESS;
}

int place_of(const void *address)
{
    const char *at = address;
    for (int i = 0; i <= MOST_DEVICES; ++i) {
        if (places[i].first && at >= places[i].first && at < places[i].first + ADDRESSES) return i;
    }
    return PAGEABLE;
}

static struct allocation *found(const char *at)
{
    const int number = place_of(at);
    if (number == PAGEABLE) return NULL;
    const struct place *place = &places[number];
    size_t low = 0, high = place->count;  // the last one that starts no later than the address
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (place->all[middle].start <= at) low = middle + 1;
        else high = middle;
    }
    if (low == 0) return NULL;
    struct allocation *last = &place->all[low - 1];
    return at < last->start + last->size ? last : NULL;
}

const struct allocation *allocation_at(const void *address) { return found(address); }

CUresult release(void *start)
{
    if (!start) return CUDA_SUCCESS;
    struct allocation *held = found(start);
    if (!held || held->start != start || !held->live) return CUDA_ERROR_INVALID_VALUE;
    count(1, held->place == HOST_MEMORY ? "free host" : "free device");
    char *page = (char *)((uintptr_t)held->start & ~(PAGE - 1));
    const size_t length = held->start + held->size - page;
    madvise(page, length, MADV_DONTNEED);
    mprotect(page, length, PROT_NONE);
    places[held->place].used -= held->size;
    --places[held->place].live;
    held->live = 0;
    return CUDA_SUCCESS;
}

int is_whole(const void *address, size_t size)
{
    if (size == 0 || place_of(address) == PAGEABLE) return 1;
    const struct allocation *held = found(address);
    const char *end = (const char *)address + size;
    return held && held->live && end <= held->start + held->size;
}

void memory_figures(int device, size_t *available, size_t *total)
{
    const struct place *place = opened(device);
    *available = place->most - place->used;
    *total = place->most;
}

// After so many more allocations on devices, the next ones fail: as many as `times` says.
EXPORTED void driver_fail_allocations(long after, long times)
{
    lock_driver();
    until_failure = after;
    failures = times;
    unlock_driver(CUDA_SUCCESS);
}

// How many bytes a device has.
EXPORTED void driver_set_memory(int device, size_t bytes)
{
    lock_driver();
    opened(device)->most = bytes > places[device].used ? bytes : places[device].used;
    unlock_driver(CUDA_SUCCESS);
}

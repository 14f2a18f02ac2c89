// Counts by name, for tests to read.
#define _GNU_SOURCE
#include "driver.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    char *name;
    uint64_t amount;
};

static struct entry *entries;
static size_t used, room;

void count(uint64_t amount, const char *format, ...)
{
    char name[512];
    va_list rest;
    va_start(rest, format);
    vsnprintf(name, sizeof name, format, rest);
    va_end(rest);
    for (size_t i = 0; i < used; ++i) {
        if (strcmp(entries[i].name, name) == 0) {
            entries[i].amount += amount;
            return;
        }
    }
    if (used == room) {
        room = room ? 2 * room : 64;
        entries = realloc(entries, room * sizeof *entries);
    }
    entries[used++] = (struct entry){strdup(name), amount};
}

static _Atomic uint64_t device_questions;

void count_device_question(void) { ++device_questions; }

// Writes lines of "amount name" and returns how many bytes all of them need. It takes the lock.
EXPORTED size_t driver_counts(char *text, size_t size)
{
    lock_driver();
    size_t needed = 0;
    if (device_questions) {
        needed = snprintf(text, size, "%llu ask for the device\n",
                          (unsigned long long)device_questions);
    }
    for (size_t i = 0; i < used; ++i) {
        const size_t left = needed < size ? size - needed : 0;
        needed += snprintf(left ? text + needed : NULL, left, "%llu %s\n",
                           (unsigned long long)entries[i].amount, entries[i].name);
    }
    unlock_driver(CUDA_SUCCESS);
    return needed;
}

EXPORTED void driver_reset_counts(void)
{
    lock_driver();
    while (used) free(entries[--used].name);
    device_questions = 0;
    unlock_driver(CUDA_SUCCESS);
}

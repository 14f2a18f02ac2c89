// Modules, kernels and their launches.
//
// What a kernel takes and needs is read from the code that NVRTC made for the GPU: the size of each
// parameter, registers, static shared memory. In its place runs the same source compiled for the
// host, if the compiler that was set finds one; else the launch is counted as not executed.
#define _GNU_SOURCE
#include "driver.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MOST_SHARED 232448  // bytes of a block that has asked for more than the usual 48 KiB
#define USUAL_SHARED 49152
#define RESERVED 1024       // bytes that the system takes of each block
#define REGISTERS 65536     // of a block
#define MOST_PARAMETERS 1024

struct module {
    char *image;
    size_t size;
    int device;
};

struct parameter {
    unsigned offset, size;
};

struct function {
    struct module *module;
    char *name;
    struct parameter parameters[MOST_PARAMETERS];
    unsigned symbol;
    int parameter_count, argument_size;
    int registers, static_shared, most_dynamic, most_threads, local;
    host_kernel kernel;
    size_t stack;
};

static compiler compile;
static unsigned kernel_order;

// Set by the tests. Takes effect for kernels that are found from then on.
EXPORTED void driver_set_compiler(compiler found)
{
    lock_driver();
    compile = found;
    unlock_driver(CUDA_SUCCESS);
}

// In which order blocks and threads run; see lucid_host_order in kernels/host/cuda_on_host.h.
EXPORTED void driver_set_kernel_order(unsigned order)
{
    lock_driver();
    kernel_order = order;
    unlock_driver(CUDA_SUCCESS);
}

// --- the code for the GPU, an ELF file -----------------------------------------------------------

// Kinds of entries of a section .nv.info: two bytes of format and kind, then two bytes of value, or
// of the size of what follows.
enum {
    SIZED = 4,
    MOST_THREADS_IS = 0x05, REQUIRED_THREADS_IS = 0x10, FRAME_IS = 0x11, PARAMETER_IS = 0x17,
    REGISTERS_ARE = 0x2f
};

static const Elf64_Shdr *sections(const struct module *m, unsigned *number)
{
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)m->image;
    *number = head->e_shnum;
    return (const Elf64_Shdr *)(m->image + head->e_shoff);
}

static const Elf64_Shdr *section(const struct module *m, const char *kind, const char *name)
{
    char wanted[1024];
    snprintf(wanted, sizeof wanted, "%s%s", kind, name);
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)m->image;
    unsigned number;
    const Elf64_Shdr *all = sections(m, &number);
    const char *names = m->image + all[head->e_shstrndx].sh_offset;
    for (unsigned i = 0; i < number; ++i) {
        if (strcmp(names + all[i].sh_name, wanted) == 0) return &all[i];
    }
    return NULL;
}

// How long an ELF file in memory is: what lies last in it is a section, its list, or a segment.
static size_t image_size(const char *image)
{
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)image;
    const Elf64_Shdr *all = (const Elf64_Shdr *)(image + head->e_shoff);
    size_t end = head->e_shoff + (size_t)head->e_shnum * head->e_shentsize;
    const size_t segments = head->e_phoff + (size_t)head->e_phnum * head->e_phentsize;
    if (segments > end) end = segments;
    for (unsigned i = 0; i < head->e_shnum; ++i) {
        const size_t last = all[i].sh_offset + all[i].sh_size;
        if (all[i].sh_type != SHT_NOBITS && last > end) end = last;
    }
    return end;
}

static unsigned word(const char *at)
{
    unsigned value;
    memcpy(&value, at, sizeof value);
    return value;
}

static unsigned half(const char *at)
{
    unsigned short value;
    memcpy(&value, at, sizeof value);
    return value;
}

static void read_entry(struct function *f, int kind, const char *value)
{
    if (kind == PARAMETER_IS) {  // index of the symbol, number, offset, then the size and flags
        const unsigned number = half(value + 4);
        if (number >= MOST_PARAMETERS) return;
        f->parameters[number] = (struct parameter){half(value + 6), word(value + 8) >> 18};
        if ((int)number >= f->parameter_count) f->parameter_count = number + 1;
    } else if (kind == MOST_THREADS_IS || kind == REQUIRED_THREADS_IS) {
        f->most_threads = word(value) * word(value + 4) * word(value + 8);
    } else if (word(value) == f->symbol && kind == REGISTERS_ARE) {
        f->registers = word(value + 4);
    } else if (word(value) == f->symbol && kind == FRAME_IS) {
        f->local = word(value + 4);
    }
}

static void read_entries(struct function *f, const Elf64_Shdr *info)
{
    const char *at = info ? f->module->image + info->sh_offset : NULL;
    const char *end = info ? at + info->sh_size : NULL;
    while (at && at + 4 <= end) {
        const int format = (unsigned char)at[0], kind = (unsigned char)at[1];
        if (format == SIZED) read_entry(f, kind, at + 4);
        at += 4 + (format == SIZED ? half(at + 2) : 0);
    }
}

static void read_description(struct function *f)
{
    read_entries(f, section(f->module, ".nv.info", ""));  // of all functions, by their symbols
    read_entries(f, section(f->module, ".nv.info.", f->name));
    for (int i = 0; i < f->parameter_count; ++i) {
        const int last = f->parameters[i].offset + f->parameters[i].size;
        if (last > f->argument_size) f->argument_size = last;
    }
}

// --- loading -------------------------------------------------------------------------------------

CUresult load_module(const void *image, size_t size, int device, struct module **module)
{
    const Elf64_Ehdr *head = image;
    if (memcmp(head->e_ident, ELFMAG, SELFMAG) != 0) return CUDA_ERROR_INVALID_IMAGE;
    if (size == 0) size = image_size(image);
    const int major = CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
    const int minor = CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR;
    const unsigned made_for = head->e_flags & 0xff;
    const unsigned own = 10 * device_attribute(major, device) + device_attribute(minor, device);
    if (made_for / 10 != own / 10 || made_for > own) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    struct module *m = calloc(1, sizeof *m);
    m->image = malloc(size);
    memcpy(m->image, image, size);
    m->size = size;
    m->device = device;
    lock_driver();
    count(1, "load module");
    *module = m;
    return unlock_driver(CUDA_SUCCESS);
}

// Functions stay: CuPy unloads a module when its object dies, work that is queued may need it.
CUresult find_function(struct module *m, const char *name, struct function **function)
{
    const Elf64_Shdr *text = section(m, ".text.", name);
    if (!text) return CUDA_ERROR_NOT_FOUND;
    struct function *f = calloc(1, sizeof *f);
    f->module = m;
    f->name = strdup(name);
    f->symbol = text->sh_info & 0xffffff;
    f->most_dynamic = USUAL_SHARED;
    f->most_threads = 1024;
    const Elf64_Shdr *shared = section(m, ".nv.shared.", name);
    f->static_shared = shared ? shared->sh_size : 0;
    // Code for newer GPUs counts what the system takes of each block, and says so by a section.
    if (shared && section(m, ".nv.shared.", "reserved.0")) f->static_shared -= RESERVED;
    read_description(f);
    if (compile && !compile(m->image, m->size, name, &f->kernel, &f->stack)) f->kernel = NULL;
    *function = f;
    return CUDA_SUCCESS;
}

CUresult function_attribute(const struct function *f, int attribute, int *value)
{
    const unsigned made_for = ((const Elf64_Ehdr *)f->module->image)->e_flags & 0xff;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = f->most_threads; break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = f->static_shared; break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: *value = 0; break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = f->local; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = f->registers; break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION: *value = made_for; break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = made_for; break;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA: *value = 0; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = f->most_dynamic; break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: *value = -1; break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult set_function_attribute(struct function *f, int attribute, int value)
{
    if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) return CUDA_SUCCESS;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_ERROR_INVALID_VALUE;
    if (value < 0 || value + f->static_shared > MOST_SHARED) return CUDA_ERROR_INVALID_VALUE;
    f->most_dynamic = value;
    return CUDA_SUCCESS;
}

int active_blocks(const struct function *f, int threads, size_t shared)
{
    const int by_threads = 2048 / threads;
    const int by_registers = f->registers ? REGISTERS / (f->registers * threads) : by_threads;
    const size_t bytes = f->static_shared + shared + RESERVED;
    const int by_shared = 233472 / bytes;
    int least = by_threads < by_registers ? by_threads : by_registers;
    return least < by_shared ? least : by_shared;
}

// --- launching -----------------------------------------------------------------------------------

struct launching {
    struct function *function;
    struct extent grid, block;
    unsigned shared;
    _Alignas(16) char arguments[];
};

static const char *running = "no kernel";  // for whoever asks what failed

const char *last_kernel(void) { return running; }

static char *stacks(size_t size)
{
    static char *memory;
    static size_t held;
    if (size > held) {
        if (memory) munmap(memory, held);
        memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) abort();
        held = size;
    }
    return memory;
}

// Whether an argument is an address that the device cannot reach, or a structure that begins with
// one and holds another. In other structures a word may be anything: CuPy's indexers have words that
// nobody sets, where addresses of before are left over.
static int reaches_elsewhere(const struct launching *l)
{
    const struct function *f = l->function;
    const int here = f->module->device;
    for (int i = 0; i < f->parameter_count; ++i) {
        const char *argument = l->arguments + f->parameters[i].offset;
        for (unsigned at = 0; at + 8 <= f->parameters[i].size; at += 8) {
            void *address;
            memcpy(&address, argument + at, sizeof address);
            const struct allocation *held = allocation_at(address);
            if (!held && at == 0) break;
            if (!held || !held->live || held->place == HOST_MEMORY || held->place == here) continue;
            if (!peer_access(here, held->place)) return 1;
        }
    }
    return 0;
}

static CUresult run_launch(void *closure)
{
    struct launching *l = closure;
    const struct function *f = l->function;
    if (reaches_elsewhere(l)) {
        count(1, "illegal address: another device's, in %s", f->name);
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    running = f->name;
    if (!f->kernel) {
        count(1, "not executed %s", f->name);
        return CUDA_SUCCESS;
    }
    void *arguments[MOST_PARAMETERS];
    for (int i = 0; i < f->parameter_count; ++i) {
        arguments[i] = l->arguments + f->parameters[i].offset;
    }
    char *memory = f->stack ? stacks(f->stack * l->block.x * l->block.y * l->block.z) : NULL;
    const int failure = f->kernel(arguments, memory, l->grid.x, l->grid.y, l->grid.z, l->block.x,
                                  l->block.y, l->block.z, l->shared, kernel_order);
    if (failure == 2) return CUDA_ERROR_MISALIGNED_ADDRESS;
    return failure ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
}

static int is_within(struct extent e, unsigned x, unsigned y, unsigned z)
{
    return e.x && e.y && e.z && e.x <= x && e.y <= y && e.z <= z;
}

CUresult launch(struct function *f, struct extent grid, struct extent block, unsigned shared,
                struct stream *stream, void **given)
{
    const unsigned threads = block.x * block.y * block.z;
    if (!is_within(grid, 2147483647, 65535, 65535)) return CUDA_ERROR_INVALID_VALUE;
    if (!is_within(block, 1024, 1024, 64)) return CUDA_ERROR_INVALID_VALUE;
    if (threads > (unsigned)f->most_threads) return CUDA_ERROR_INVALID_VALUE;
    const unsigned most = f->most_dynamic < USUAL_SHARED ? USUAL_SHARED : f->most_dynamic;
    if (shared > most) return CUDA_ERROR_INVALID_VALUE;
    const unsigned all = shared + f->static_shared;
    if (all > USUAL_SHARED && all > most + (most > USUAL_SHARED ? f->static_shared : 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (f->registers * threads > REGISTERS) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    if (f->module->device != context_device()) return CUDA_ERROR_INVALID_HANDLE;
    if (stream_device(stream) != context_device()) return CUDA_ERROR_INVALID_HANDLE;
    if (f->parameter_count && !given) return CUDA_ERROR_INVALID_VALUE;
    count(1, "launch %s", f->name);
    const size_t size = sizeof(struct launching) + f->argument_size;
    struct launching *l = calloc(1, size);
    *l = (struct launching){f, grid, block, shared};
    for (int i = 0; i < f->parameter_count; ++i) {
        memcpy(l->arguments + f->parameters[i].offset, given[i], f->parameters[i].size);
    }
    const CUresult result = submit(stream, run_launch, l, size);
    free(l);
    return result;
}

// cuBLAS: matrix products, as plain loops that run when their stream comes to them.
//
// Only products are here. Every other function that CuPy links answers CUBLAS_STATUS_NOT_SUPPORTED:
// build.py writes those.
#include "driver.h"

#include <complex.h>
#include <stdlib.h>
#include <string.h>

enum status { OK = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum operation { AS_IS = 0, TRANSPOSED = 1, CONJUGATED = 2 };

// cudaDataType, as far as there are products of it.
enum type { FLOAT32 = 0, FLOAT64 = 1, FLOAT16 = 2, COMPLEX64 = 4, COMPLEX128 = 5, BFLOAT16 = 14 };

// cublasComputeType_t, which arithmetic is done in.
enum compute {
    IN_FLOAT16 = 64, IN_FLOAT16_EXACTLY = 65, IN_FLOAT32 = 68, IN_FLOAT32_EXACTLY = 69,
    IN_FLOAT64 = 70, IN_FLOAT64_EXACTLY = 71, BY_FLOAT16 = 74, BY_BFLOAT16 = 75, BY_TF32 = 77
};

struct handle {
    int device, pointers_to_device, math_mode;
    void *stream;
};

// --- elements ------------------------------------------------------------------------------------

static float widened(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31;
    const uint32_t bits = half & 0x3ff;
    float value;
    if (exponent == 0) {
        value = bits * 0x1p-24f;
        return sign ? -value : value;
    }
    const uint32_t all = sign | (exponent == 31 ? 255 : exponent + 112) << 23 | bits << 13;
    memcpy(&value, &all, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t all;
    memcpy(&all, &value, sizeof all);
    return all;
}

// Rounded to nearest, ties to even.
static uint16_t narrowed(float value)
{
    const uint32_t all = bits_of(value), sign = all >> 16 & 0x8000, size = all & 0x7fffffff;
    if (size > 0x7f800000) return sign | 0x7e00;
    if (size >= 0x477ff000) return sign | 0x7c00;
    if (size < 0x38800000) {  // beside 0.5 a float's last bit is float16's smallest number
        float small;
        memcpy(&small, &size, sizeof small);
        return sign | (bits_of(small + 0.5f) - 0x3f000000);
    }
    return sign | (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13;
}

static float widened_bfloat16(uint16_t half)
{
    const uint32_t all = (uint32_t)half << 16;
    float value;
    memcpy(&value, &all, sizeof value);
    return value;
}

static uint16_t narrowed_bfloat16(float value)
{
    const uint32_t all = bits_of(value);
    if ((all & 0x7fffffff) > 0x7f800000) return all >> 16 | 0x40;
    return (all + 0x7fff + (all >> 16 & 1)) >> 16;
}

static size_t size_of(int type)
{
    switch (type) {
    case FLOAT16: case BFLOAT16: return 2;
    case FLOAT32: return 4;
    case FLOAT64: case COMPLEX64: return 8;
    case COMPLEX128: return 16;
    default: return 0;
    }
}

static double complex element(const void *array, size_t index, int type)
{
    switch (type) {
    case FLOAT16: return widened(((const uint16_t *)array)[index]);
    case BFLOAT16: return widened_bfloat16(((const uint16_t *)array)[index]);
    case FLOAT32: return ((const float *)array)[index];
    case FLOAT64: return ((const double *)array)[index];
    case COMPLEX64: return ((const float complex *)array)[index];
    default: return ((const double complex *)array)[index];
    }
}

static void store(void *array, size_t index, int type, double complex value)
{
    switch (type) {
    case FLOAT16: ((uint16_t *)array)[index] = narrowed((float)creal(value)); break;
    case BFLOAT16: ((uint16_t *)array)[index] = narrowed_bfloat16((float)creal(value)); break;
    case FLOAT32: ((float *)array)[index] = (float)creal(value); break;
    case FLOAT64: ((double *)array)[index] = creal(value); break;
    case COMPLEX64: ((float complex *)array)[index] = (float complex)value; break;
    default: ((double complex *)array)[index] = value; break;
    }
}

// --- products ------------------------------------------------------------------------------------

struct matrix {
    const void *start;
    int64_t leading, step;
    int operation, type;
};

struct product {
    struct matrix a, b, c;
    int64_t m, n, k, batch;
    int in_double;
    double complex alpha, beta;
    const void *alpha_place, *beta_place;  // on the device, read when the product runs
    int scale_type;
};

static size_t place_in(const struct matrix *x, int64_t row, int64_t column)
{
    return x->operation == AS_IS ? row + column * x->leading : column + row * x->leading;
}

static double complex value_in(const struct matrix *x, size_t start, int64_t row, int64_t column)
{
    const double complex value = element(x->start, start + place_in(x, row, column), x->type);
    return x->operation == CONJUGATED ? conj(value) : value;
}

static int is_complex(int type) { return type == COMPLEX64 || type == COMPLEX128; }

// A matrix's values as numbers of one type, row after row (`by_column`: column after column).
static void gather(double *out, const struct matrix *x, size_t start, int64_t rows, int64_t columns,
                   int by_column)
{
    for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
            const size_t at = by_column ? j * rows + i : i * columns + j;
            out[at] = creal(element(x->start, start + place_in(x, i, j), x->type));
        }
    }
}

static double dot(const double *a, const double *b, int64_t count, int in_double)
{
    if (in_double) {
        double sum = 0;
        for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
        return sum;
    }
    float sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += (float)a[i] * (float)b[i];
    return sum;
}

static double complex complex_dot(const struct product *p, size_t a, size_t b, int64_t i, int64_t j)
{
    double complex sum = 0;
    for (int64_t l = 0; l < p->k; ++l) sum += value_in(&p->a, a, i, l) * value_in(&p->b, b, l, j);
    return sum;
}

static void multiply_one(const struct product *p, int64_t number, double *rows, double *columns)
{
    const size_t a = number * p->a.step, b = number * p->b.step, c = number * p->c.step;
    const int plain = !is_complex(p->c.type);
    if (plain) {
        gather(rows, &p->a, a, p->m, p->k, 0);
        gather(columns, &p->b, b, p->k, p->n, 1);
    }
    for (int64_t j = 0; j < p->n; ++j) {
        for (int64_t i = 0; i < p->m; ++i) {
            double complex value =
                plain ? dot(rows + i * p->k, columns + j * p->k, p->k, p->in_double)
                      : complex_dot(p, a, b, i, j);
            const size_t at = c + i + j * p->c.leading;
            value *= p->alpha;
            if (p->beta != 0) value += p->beta * element(p->c.start, at, p->c.type);
            store((void *)p->c.start, at, p->c.type, value);
        }
    }
}

// Whether a matrix lies in memory that can be read or written.
static int is_there(const struct matrix *x, int64_t rows, int64_t columns, int64_t batch)
{
    if (!rows || !columns || !batch) return 1;
    const int64_t across = x->operation == AS_IS ? columns : rows;
    const int64_t along = x->operation == AS_IS ? rows : columns;
    const size_t last = (across - 1) * x->leading + along + (batch - 1) * x->step;
    return place_of(x->start) != PAGEABLE && is_whole(x->start, last * size_of(x->type));
}

static CUresult run_product(void *closure)
{
    struct product *p = closure;
    if (p->alpha_place) {
        p->alpha = element(p->alpha_place, 0, p->scale_type);
        p->beta = element(p->beta_place, 0, p->scale_type);
    }
    const int whole = is_there(&p->a, p->m, p->k, p->batch) && is_there(&p->b, p->k, p->n, p->batch);
    if (!whole || !is_there(&p->c, p->m, p->n, p->batch)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    double *rows = malloc((p->m * p->k + 1) * sizeof *rows);
    double *columns = malloc((p->n * p->k + 1) * sizeof *columns);
    for (int64_t i = 0; i < p->batch; ++i) multiply_one(p, i, rows, columns);
    free(rows);
    free(columns);
    return CUDA_SUCCESS;
}

// The type of alpha and beta, or -1 where cuBLAS does not multiply such matrices so.
static int scale_type_of(int type, int compute)
{
    switch (compute) {
    case IN_FLOAT16: case IN_FLOAT16_EXACTLY: return type == FLOAT16 ? FLOAT16 : -1;
    case IN_FLOAT64: case IN_FLOAT64_EXACTLY:
        return type == FLOAT64 || type == COMPLEX128 ? type : -1;
    case IN_FLOAT32: case IN_FLOAT32_EXACTLY:
        return type == COMPLEX64 ? COMPLEX64 : type == FLOAT64 || type == COMPLEX128 ? -1 : FLOAT32;
    case BY_FLOAT16: case BY_BFLOAT16: case BY_TF32:
        return type == COMPLEX64 ? COMPLEX64 : type == FLOAT32 ? FLOAT32 : -1;
    default: return -1;
    }
}

static int is_right(const struct matrix *x, int64_t rows, int64_t columns)
{
    const int64_t along = x->operation == AS_IS ? rows : columns;
    return x->operation >= AS_IS && x->operation <= CONJUGATED && x->leading >= (along ? along : 1);
}

static enum status multiply(struct handle *handle, struct product *p, int compute, const void *alpha,
                            const void *beta)
{
    if (!handle) return NOT_INITIALIZED;
    if (p->m < 0 || p->n < 0 || p->k < 0 || p->batch < 0) return INVALID_VALUE;
    const int right = is_right(&p->a, p->m, p->k) && is_right(&p->b, p->k, p->n);
    if (!right || !is_right(&p->c, p->m, p->n)) return INVALID_VALUE;
    const int narrow_to_wide = (p->a.type == FLOAT16 || p->a.type == BFLOAT16) && p->c.type == FLOAT32;
    if (p->a.type != p->b.type || (p->a.type != p->c.type && !narrow_to_wide)) return NOT_SUPPORTED;
    p->scale_type = scale_type_of(p->a.type, compute);
    if (p->scale_type < 0 || !size_of(p->a.type)) return NOT_SUPPORTED;
    p->in_double = p->a.type == FLOAT64;
    if (handle->pointers_to_device) {
        p->alpha_place = alpha;
        p->beta_place = beta;
    } else {
        p->alpha = element(alpha, 0, p->scale_type);
        p->beta = element(beta, 0, p->scale_type);
    }
    lock_driver();
    struct stream *stream = stream_of(handle->stream);
    CUresult result = CUDA_ERROR_INVALID_HANDLE;
    if (stream && context_device() == handle->device) {
        count(1, "multiply type %d", p->a.type);
        result = submit(stream, run_product, p, sizeof *p);
    }
    return unlock_driver(result) ? EXECUTION_FAILED : OK;
}

// --- handles -------------------------------------------------------------------------------------

EXPORTED int cublasCreate_v2(struct handle **handle)
{
    if (context_device() < 0) return NOT_INITIALIZED;
    *handle = calloc(1, sizeof **handle);
    (*handle)->device = context_device();
    return OK;
}

EXPORTED int cublasDestroy_v2(struct handle *handle)
{
    free(handle);
    return OK;
}

EXPORTED int cublasGetVersion_v2(struct handle *handle, int *version)
{
    *version = 120900;
    return handle ? OK : NOT_INITIALIZED;
}

EXPORTED int cublasSetStream_v2(struct handle *handle, void *stream)
{
    if (!handle) return NOT_INITIALIZED;
    handle->stream = stream;
    return OK;
}

EXPORTED int cublasGetStream_v2(struct handle *handle, void **stream)
{
    if (!handle) return NOT_INITIALIZED;
    *stream = handle->stream;
    return OK;
}

// A graph's products write there long after the call, so it has to be the GPU's own memory.
EXPORTED int cublasSetWorkspace_v2(struct handle *handle, void *workspace, size_t size)
{
    if (!handle) return NOT_INITIALIZED;
    lock_driver();
    const int there = place_of(workspace) == handle->device && is_whole(workspace, size);
    return unlock_driver(CUDA_SUCCESS) || !there ? INVALID_VALUE : OK;
}

EXPORTED int cublasSetPointerMode_v2(struct handle *handle, int on_device)
{
    if (!handle) return NOT_INITIALIZED;
    handle->pointers_to_device = on_device;
    return OK;
}

EXPORTED int cublasGetPointerMode_v2(struct handle *handle, int *on_device)
{
    if (!handle) return NOT_INITIALIZED;
    *on_device = handle->pointers_to_device;
    return OK;
}

EXPORTED int cublasSetMathMode(struct handle *handle, int mode)
{
    if (!handle) return NOT_INITIALIZED;
    handle->math_mode = mode;
    return OK;
}

EXPORTED int cublasGetMathMode(struct handle *handle, int *mode)
{
    if (!handle) return NOT_INITIALIZED;
    *mode = handle->math_mode;
    return OK;
}

// --- the ways to ask for a product ---------------------------------------------------------------

EXPORTED int cublasGemmStridedBatchedEx(
    struct handle *handle, int of_a, int of_b, int m, int n, int k, const void *alpha, const void *a,
    int a_type, int a_leading, long long a_step, const void *b, int b_type, int b_leading,
    long long b_step, const void *beta, void *c, int c_type, int c_leading, long long c_step,
    int batch, int compute, int algorithm)
{
    (void)algorithm;
    struct product p = {
        .a = {a, a_leading, a_step, of_a, a_type},
        .b = {b, b_leading, b_step, of_b, b_type},
        .c = {c, c_leading, c_step, AS_IS, c_type},
        .m = m, .n = n, .k = k, .batch = batch,
    };
    return multiply(handle, &p, compute, alpha, beta);
}

EXPORTED int cublasGemmEx(struct handle *handle, int of_a, int of_b, int m, int n, int k,
                          const void *alpha, const void *a, int a_type, int a_leading, const void *b,
                          int b_type, int b_leading, const void *beta, void *c, int c_type,
                          int c_leading, int compute, int algorithm)
{
    return cublasGemmStridedBatchedEx(handle, of_a, of_b, m, n, k, alpha, a, a_type, a_leading, 0, b,
                                      b_type, b_leading, 0, beta, c, c_type, c_leading, 0, 1, compute,
                                      algorithm);
}

EXPORTED int cublasSgemmEx(struct handle *handle, int of_a, int of_b, int m, int n, int k,
                           const float *alpha, const void *a, int a_type, int a_leading,
                           const void *b, int b_type, int b_leading, const float *beta, void *c,
                           int c_type, int c_leading)
{
    return cublasGemmEx(handle, of_a, of_b, m, n, k, alpha, a, a_type, a_leading, b, b_type,
                        b_leading, beta, c, c_type, c_leading, IN_FLOAT32, 0);
}

#define GEMM(letter, type, compute) \
    EXPORTED int cublas##letter##gemm_v2( \
        struct handle *handle, int of_a, int of_b, int m, int n, int k, const void *alpha, \
        const void *a, int a_leading, const void *b, int b_leading, const void *beta, void *c, \
        int c_leading) \
    { \
        return cublasGemmEx(handle, of_a, of_b, m, n, k, alpha, a, type, a_leading, b, type, \
                            b_leading, beta, c, type, c_leading, compute, 0); \
    } \
    EXPORTED int cublas##letter##gemmStridedBatched( \
        struct handle *handle, int of_a, int of_b, int m, int n, int k, const void *alpha, \
        const void *a, int a_leading, long long a_step, const void *b, int b_leading, \
        long long b_step, const void *beta, void *c, int c_leading, long long c_step, int batch) \
    { \
        return cublasGemmStridedBatchedEx(handle, of_a, of_b, m, n, k, alpha, a, type, a_leading, \
                                          a_step, b, type, b_leading, b_step, beta, c, type, \
                                          c_leading, c_step, batch, compute, 0); \
    }

GEMM(S, FLOAT32, IN_FLOAT32)
GEMM(D, FLOAT64, IN_FLOAT64)
GEMM(C, COMPLEX64, IN_FLOAT32)
GEMM(Z, COMPLEX128, IN_FLOAT64)

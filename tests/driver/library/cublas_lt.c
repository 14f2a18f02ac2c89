// cuBLASLt: products with a bias or the gradient of one in their epilogue, by cuBLAS's loops.
#include "cublas.c"

#define ALIGNED 16  // what an algorithm wants of every pointer

enum epilogue { DEFAULT = 1, BIAS = 4, BGRADB = 512 };

struct description {
    int compute, scale_type;
    int32_t operation_a, operation_b;
    uint32_t epilogue;
    void *vector;
};

struct layout {
    int type;
    uint64_t rows, columns;
    int64_t leading;
};

struct preference {
    uint64_t workspace;
    uint32_t reductions, alignments[4];
};

struct algorithm {
    uint64_t data[8];  // the first: that it was chosen here; the second: its epilogue
};

struct heuristic {
    struct algorithm algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

struct fused {
    struct product product;
    uint32_t epilogue;
    void *vector;
};

EXPORTED int cublasLtCreate(struct handle **handle) { return cublasCreate_v2(handle); }

EXPORTED int cublasLtMatmulDescCreate(struct description **made, int compute, int scale_type)
{
    *made = calloc(1, sizeof **made);
    (*made)->compute = compute;
    (*made)->scale_type = scale_type;
    (*made)->epilogue = DEFAULT;
    return OK;
}

EXPORTED int cublasLtMatmulDescDestroy(struct description *made) { free(made); return OK; }

static enum status set(void *field, size_t wanted, const void *value, size_t size)
{
    if (!value || size != wanted) return INVALID_VALUE;
    memcpy(field, value, size);
    return OK;
}

EXPORTED int cublasLtMatmulDescSetAttribute(struct description *made, int attribute,
                                            const void *value, size_t size)
{
    switch (attribute) {
    case 3: return set(&made->operation_a, sizeof made->operation_a, value, size);
    case 4: return set(&made->operation_b, sizeof made->operation_b, value, size);
    case 7: return set(&made->epilogue, sizeof made->epilogue, value, size);
    case 8: return set(&made->vector, sizeof made->vector, value, size);
    default: return INVALID_VALUE;
    }
}

EXPORTED int cublasLtMatrixLayoutCreate(struct layout **made, int type, uint64_t rows,
                                        uint64_t columns, int64_t leading)
{
    *made = malloc(sizeof **made);
    **made = (struct layout){type, rows, columns, leading};
    return OK;
}

EXPORTED int cublasLtMatrixLayoutDestroy(struct layout *made) { free(made); return OK; }

EXPORTED int cublasLtMatmulPreferenceCreate(struct preference **made)
{
    *made = calloc(1, sizeof **made);
    for (int i = 0; i < 4; ++i) (*made)->alignments[i] = 256;
    return OK;
}

EXPORTED int cublasLtMatmulPreferenceDestroy(struct preference *made) { free(made); return OK; }

EXPORTED int cublasLtMatmulPreferenceSetAttribute(struct preference *made, int attribute,
                                                  const void *value, size_t size)
{
    switch (attribute) {
    case 1: return set(&made->workspace, sizeof made->workspace, value, size);
    case 3: return set(&made->reductions, sizeof made->reductions, value, size);
    case 5: case 6: case 7: case 8:
        return set(&made->alignments[attribute - 5], sizeof made->alignments[0], value, size);
    default: return INVALID_VALUE;
    }
}

static struct matrix matrix_of(const struct layout *x, const void *start, int operation)
{
    return (struct matrix){start, x->leading, 0, operation, x->type};
}

// The product that descriptors say, or a reason why there is none.
static enum status product_of(struct product *p, const struct description *how, const struct layout *a,
                              const struct layout *b, const struct layout *d)
{
    p->a = matrix_of(a, 0, how->operation_a);
    p->b = matrix_of(b, 0, how->operation_b);
    p->c = matrix_of(d, 0, AS_IS);
    const int turned_a = how->operation_a != AS_IS, turned_b = how->operation_b != AS_IS;
    p->m = turned_a ? a->columns : a->rows;
    p->k = turned_a ? a->rows : a->columns;
    p->n = turned_b ? b->rows : b->columns;
    p->batch = 1;
    const int64_t other = turned_b ? b->columns : b->rows;
    if (p->k != other || p->m != (int64_t)d->rows || p->n != (int64_t)d->columns) return INVALID_VALUE;
    const int right = is_right(&p->a, p->m, p->k) && is_right(&p->b, p->k, p->n);
    if (!right || !is_right(&p->c, p->m, p->n)) return INVALID_VALUE;
    if (a->type != b->type || a->type != d->type) return NOT_SUPPORTED;
    p->scale_type = scale_type_of(a->type, how->compute);
    if (p->scale_type < 0 || p->scale_type != how->scale_type) return NOT_SUPPORTED;
    return OK;
}

static int is_aligned(const void *place) { return (uintptr_t)place % ALIGNED == 0; }

EXPORTED int cublasLtMatmulAlgoGetHeuristic(struct handle *handle, struct description *how,
                                            struct layout *a, struct layout *b, struct layout *c,
                                            struct layout *d, struct preference *wishes, int most,
                                            struct heuristic *found, int *count)
{
    struct product p = {0};
    *count = 0;
    if (!handle) return NOT_INITIALIZED;
    if (most < 1 || memcmp(c, d, sizeof *c)) return INVALID_VALUE;
    const enum status status = product_of(&p, how, a, b, d);
    if (status) return status;
    if (how->epilogue != DEFAULT && how->epilogue != BIAS && how->epilogue != BGRADB)
        return NOT_SUPPORTED;
    if (how->epilogue != DEFAULT && (!how->vector || !is_aligned(how->vector))) return NOT_SUPPORTED;
    for (int i = 0; i < 4; ++i)
        if (wishes->alignments[i] < ALIGNED) return NOT_SUPPORTED;
    *found = (struct heuristic){.algorithm = {{1, how->epilogue}}, .workspace = 4096, .waves = 1};
    if (wishes->workspace < found->workspace) return NOT_SUPPORTED;
    *count = 1;
    return OK;
}

static CUresult run_fused(void *closure)
{
    struct fused *f = closure;
    const struct product *p = &f->product;
    const int type = p->c.type;
    const int64_t length = f->epilogue == BIAS ? p->m : p->n;
    if (!is_whole(f->vector, length * size_of(type))) return CUDA_ERROR_ILLEGAL_ADDRESS;
    const int whole = is_there(&p->a, p->m, p->k, 1) && is_there(&p->b, p->k, p->n, 1);
    if (!whole || !is_there(&p->c, p->m, p->n, 1)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    double *rows = malloc((p->m * p->k + 1) * sizeof *rows);
    double *columns = malloc((p->n * p->k + 1) * sizeof *columns);
    gather(rows, &p->a, 0, p->m, p->k, 0);
    gather(columns, &p->b, 0, p->k, p->n, 1);
    for (int64_t j = 0; j < p->n; ++j) {
        float sum = 0;
        for (int64_t l = 0; l < p->k; ++l) sum += (float)columns[j * p->k + l];
        if (f->epilogue == BGRADB) store(f->vector, j, type, sum);
        for (int64_t i = 0; i < p->m; ++i) {
            float value = (float)dot(rows + i * p->k, columns + j * p->k, p->k, 0);
            if (f->epilogue == BIAS) value += (float)creal(element(f->vector, i, type));
            store((void *)p->c.start, i + j * p->c.leading, type, value);
        }
    }
    free(rows);
    free(columns);
    return CUDA_SUCCESS;
}

EXPORTED int cublasLtMatmul(struct handle *handle, struct description *how, const float *alpha,
                            const void *a, struct layout *of_a, const void *b, struct layout *of_b,
                            const float *beta, const void *c, struct layout *of_c, void *d,
                            struct layout *of_d, const struct algorithm *algorithm, void *workspace,
                            size_t size, void *on)
{
    struct fused f = {.epilogue = how->epilogue, .vector = how->vector};
    if (!handle) return NOT_INITIALIZED;
    const enum status status = product_of(&f.product, how, of_a, of_b, of_d);
    if (status) return status;
    if (!algorithm || algorithm->data[0] != 1 || algorithm->data[1] != how->epilogue) return INVALID_VALUE;
    if (*alpha != 1 || *beta != 0 || c != d || of_c != of_d || size < 4096) return NOT_SUPPORTED;
    if (!is_aligned(a) || !is_aligned(b) || !is_aligned(d) || !is_aligned(how->vector))
        return NOT_SUPPORTED;
    f.product.a.start = a;
    f.product.b.start = b;
    f.product.c.start = d;
    lock_driver();
    struct stream *stream = stream_of(on);
    CUresult result = CUDA_ERROR_INVALID_HANDLE;
    const int ours = place_of(workspace) == handle->device && is_whole(workspace, size);
    if (stream && context_device() == handle->device && ours) {
        count(1, "multiply with epilogue %u", how->epilogue);
        result = submit(stream, run_fused, &f, sizeof f);
    }
    return unlock_driver(result) ? EXECUTION_FAILED : OK;
}

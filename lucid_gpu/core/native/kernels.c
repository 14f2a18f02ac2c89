/* Small kernels on NumPy's loops: `Walk`, `Ready`, `Reduced`. */
#include "core.h"

/* --- Walk: a recording of calls --------------------------------------------------------------- */

static void
walk_dealloc(Walk *self)
{
    Py_XDECREF(self->constants);
    PyMem_Free(self->call);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* Read a tuple of integers, at most `most`. Returns how many, or -1 with an error set. */
static int
read_numbers(PyObject *tuple, npy_intp *numbers, int most)
{
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) > most) {
        PyErr_Format(PyExc_ValueError, "expected a tuple of at most %d numbers", most);
        return -1;
    }
    int count = (int)PyTuple_GET_SIZE(tuple);
    for (int i = 0; i < count; ++i) {
        numbers[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(tuple, i));
        if (numbers[i] == -1 && PyErr_Occurred()) {
            return -1;
        }
    }
    return count;
}

/* Read one call: loop, data, operands, offsets, strides and, where it is made once, elements. */
static int
read_call(Walk *self, PyObject *tuple, Call *call)
{
    Py_ssize_t loop, data;
    PyObject *operands, *offsets, *strides;
    npy_intp operand[MOST_ARGUMENTS];
    if (!PyTuple_Check(tuple) || !PyArg_ParseTuple(tuple, "nnOOO|n:Walk", &loop, &data, &operands,
                                                   &offsets, &strides, &call->elements)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "Walk(): a call is a tuple");
        }
        return -1;
    }
    call->loop = (PyUFuncGenericFunction)loop;
    call->data = (void *)data;
    call->count = read_numbers(operands, operand, MOST_ARGUMENTS);
    if (call->count < 0 || read_numbers(offsets, call->offset, MOST_ARGUMENTS) < 0 ||
        read_numbers(strides, call->stride, MOST_ARGUMENTS) < 0) {
        return -1;
    }
    if (PyTuple_GET_SIZE(offsets) != call->count || PyTuple_GET_SIZE(strides) != call->count) {
        PyErr_SetString(PyExc_ValueError, "Walk(): an offset and a stride for each operand");
        return -1;
    }
    for (int i = 0; i < call->count; ++i) {
        if (operand[i] < 0 || operand[i] >= self->operands) {
            PyErr_SetString(PyExc_ValueError, "Walk(): there is no such operand");
            return -1;
        }
        call->operand[i] = (int)operand[i];
    }
    return 0;
}

/* The bytes of an element of a kind that is walked; 0 for others. */
static npy_intp
item_of(int kind)
{
    switch (kind) {
    case 'd':
        return 8;
    case 'f':
        return 4;
    case '?':
    case 'b':
    case 'B':
        return 1;
    case 'h':
        return sizeof(npy_short);
    case 'i':
        return sizeof(npy_int);
    case 'l':
        return sizeof(npy_long);
    default:
        return 0;
    }
}

/* Read the inputs: kind, move, step. */
static int
read_inputs(Walk *self, PyObject *inputs)
{
    for (self->inputs = 0; self->inputs < PyTuple_GET_SIZE(inputs); ++self->inputs) {
        int kind, i = self->inputs;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(inputs, i), "Cnn:Walk", &kind, &self->move[i],
                              &self->step[i])) {
            return -1;
        }
        if (item_of(kind) == 0 || self->move[i] < 0 || self->step[i] < 0) {
            PyErr_SetString(PyExc_ValueError, "Walk(): an input is of no type that is walked");
            return -1;
        }
        self->kind[i] = (char)kind;
    }
    self->operands = self->inputs;
    return 0;
}

/* Read what is its own: arrays of constants, or sizes of scratch memory. */
static int
read_own(Walk *self, PyObject *own)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(own); ++i, ++self->operands) {
        PyObject *one = PyTuple_GET_ITEM(own, i);
        npy_intp size;
        if (PyArray_CheckExact(one)) {
            self->constant[self->operands] = PyArray_DATA((PyArrayObject *)one);
            continue;
        }
        if (!PyTuple_Check(one) ||
            !PyArg_ParseTuple(one, "nn:Walk", &size, &self->move[self->operands]) || size < 0 ||
            self->move[self->operands] < 0) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_ValueError, "Walk(): scratch memory has a size and a move");
            }
            return -1;
        }
        self->scratch[self->operands] = (size + 63) & ~(npy_intp)63; /* lines of the cache */
        self->room += self->scratch[self->operands];
    }
    Py_INCREF(own);
    self->constants = own;
    return 0;
}

PyDoc_STRVAR(walk_doc,
"Walk(inputs, own, once, calls, width)\n"
"--\n\n"
"Calls of NumPy's loops on lines of ``width`` elements, and again on the lines after them.\n\n"
"Parameters\n"
"----------\n"
"inputs : tuple of (kind, move, step)\n"
"    Letter of the type, bytes from line to line, bytes from element to element.\n"
"own : tuple of (bytes, move) or array\n"
"    Scratch memory, or constants; operands are numbered through inputs and these.\n"
"once : tuple of (loop, data, operands, offsets, strides, elements)\n"
"    Calls that are made before the lines. The last operand is written.\n"
"calls : tuple of (loop, data, operands, offsets, strides)");

static PyObject *
walk_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(names))
{
    PyObject *inputs, *own, *once, *calls;
    Py_ssize_t width;
    if (!PyArg_ParseTuple(args, "O!O!O!O!n:Walk", &PyTuple_Type, &inputs, &PyTuple_Type, &own,
                          &PyTuple_Type, &once, &PyTuple_Type, &calls, &width)) {
        return NULL;
    }
    if (PyTuple_GET_SIZE(inputs) + PyTuple_GET_SIZE(own) > MOST_OPERANDS || width < 1) {
        PyErr_SetString(PyExc_ValueError, "Walk(): too many operands, or no elements");
        return NULL;
    }
    Walk *self = (Walk *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->width = width;
    self->once = PyTuple_GET_SIZE(once);
    self->calls = self->once + PyTuple_GET_SIZE(calls);
    self->call = PyMem_Calloc((size_t)self->calls + 1, sizeof(Call));
    int status = self->call == NULL ? (PyErr_NoMemory(), -1) : 0;
    status = status < 0 || read_inputs(self, inputs) < 0 || read_own(self, own) < 0 ? -1 : 0;
    for (Py_ssize_t i = 0; status == 0 && i < self->calls; ++i) {
        PyObject *one = i < self->once ? PyTuple_GET_ITEM(once, i)
                                       : PyTuple_GET_ITEM(calls, i - self->once);
        status = read_call(self, one, &self->call[i]);
    }
    if (status < 0) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

PyTypeObject WalkType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "lucid_gpu._core.Walk",
    .tp_doc = walk_doc,
    .tp_basicsize = sizeof(Walk),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = walk_new,
    .tp_dealloc = (destructor)walk_dealloc,
};

/* Make a call on so many elements of operands that begin at `base`. */
static inline void
make_call(const Call *call, char *const *base, npy_intp count)
{
    char *arguments[MOST_ARGUMENTS];
    for (int k = 0; k < call->count; ++k) {
        arguments[k] = base[call->operand[k]] + call->offset[k];
    }
    call->loop(arguments, &count, call->stride, call->data);
}

/* Make the calls on one line. */
static void
walk_line(const Walk *self, char *const *base, npy_intp count)
{
    for (Py_ssize_t i = self->once; i < self->calls; ++i) {
        make_call(self->call + i, base, count);
    }
}

/* Make all calls: once, on so many lines, and on the rest of one. `base` is moved on. */
static void
walk_lines(const Walk *self, char **base, npy_intp lines, npy_intp rest)
{
    for (Py_ssize_t i = 0; i < self->once; ++i) {
        make_call(self->call + i, base, self->call[i].elements);
    }
    for (; lines > 0; --lines) {
        walk_line(self, base, self->width);
        for (int i = 0; i < self->operands; ++i) {
            base[i] += self->move[i];
        }
    }
    if (rest > 0) {
        walk_line(self, base, rest);
    }
}

/* --- Ready: a plan on its leaves -------------------------------------------------------------- */

static void
ready_dealloc(Ready *self)
{
    Py_XDECREF(self->walk);
    Py_XDECREF(self->layouts);
    for (int i = 0; i < self->stores; ++i) {
        Py_DECREF(self->type[i]);
    }
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* How many bytes of an input lines read. */
static npy_intp
bytes_read(const Walk *walk, int input, npy_intp lines, npy_intp rest)
{
    npy_intp item = item_of(walk->kind[input]), most = 0;
    if (lines > 0) {
        most = (lines - 1) * walk->move[input] + (walk->width - 1) * walk->step[input] + item;
    }
    if (rest > 0) {
        npy_intp last = lines * walk->move[input] + (rest - 1) * walk->step[input] + item;
        most = last > most ? last : most;
    }
    return most;
}

/* Whether all of a tuple are None, or a shape and strides. */
static int
are_layouts(PyObject *layouts)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(layouts); ++i) {
        PyObject *one = PyTuple_GET_ITEM(layouts, i);
        if (one != Py_None &&
            !(PyTuple_Check(one) && PyTuple_GET_SIZE(one) == 2 &&
              PyTuple_Check(PyTuple_GET_ITEM(one, 0)) && PyTuple_Check(PyTuple_GET_ITEM(one, 1)) &&
              PyTuple_GET_SIZE(PyTuple_GET_ITEM(one, 0)) ==
                  PyTuple_GET_SIZE(PyTuple_GET_ITEM(one, 1)))) {
            return 0;
        }
    }
    return 1;
}

/* Whether an array lies as a shape and strides say. */
static int
lies_as(PyArrayObject *array, PyObject *layout)
{
    PyObject *shape = PyTuple_GET_ITEM(layout, 0), *strides = PyTuple_GET_ITEM(layout, 1);
    int lies = PyArray_NDIM(array) == PyTuple_GET_SIZE(shape) && PyArray_ISALIGNED(array) &&
               PyArray_ISNOTSWAPPED(array);
    for (int i = 0; lies && i < PyArray_NDIM(array); ++i) {
        lies = number_of(PyTuple_GET_ITEM(shape, i)) == PyArray_DIM(array, i) &&
               PyLong_AsSsize_t(PyTuple_GET_ITEM(strides, i)) == PyArray_STRIDE(array, i);
    }
    return lies;
}

PyDoc_STRVAR(ready_doc,
"Ready(walk, arrays, numbers, shape, types, layouts)\n"
"--\n\n"
"A plan whose kernel is a Walk.\n\n"
"Parameters\n"
"----------\n"
"walk : Walk\n"
"    Its inputs are the arrays, the numbers, and what is stored.\n"
"arrays, numbers : tuple of int\n"
"    Which leaves these are; -1, -2, ... are the results of the reduction whose tail it is.\n"
"shape : tuple of int\n"
"    Of what is stored.\n"
"types : tuple of numpy.dtype\n"
"    A type for each array that is stored.\n"
"layouts : tuple of (tuple of int, tuple of int) or None\n"
"    Of each array that is read its shape and strides; None for one that is row-major.");

static PyObject *
ready_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(names))
{
    PyObject *arrays, *numbers, *shape, *types, *layouts;
    Walk *walk;
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!O!:Ready", &WalkType, &walk, &PyTuple_Type, &arrays,
                          &PyTuple_Type, &numbers, &PyTuple_Type, &shape, &PyTuple_Type, &types,
                          &PyTuple_Type, &layouts)) {
        return NULL;
    }
    if (PyTuple_GET_SIZE(layouts) != PyTuple_GET_SIZE(arrays) || !are_layouts(layouts)) {
        PyErr_SetString(PyExc_ValueError, "Ready(): a layout an array, of shape and strides or None");
        return NULL;
    }
    Ready *self = (Ready *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    Py_INCREF(walk);
    self->walk = walk;
    self->layouts = Py_NewRef(layouts);
    self->arrays = read_numbers(arrays, self->leaf, MOST_OPERANDS);
    if (self->arrays >= 0) {
        self->numbers =
            read_numbers(numbers, self->leaf + self->arrays, MOST_OPERANDS - self->arrays);
        self->rank = read_numbers(shape, self->shape, NPY_MAXDIMS);
    }
    Py_ssize_t stores = PyTuple_GET_SIZE(types);
    if (PyErr_Occurred()) {
        goto failed;
    }
    if (stores > MOST_STORES || self->arrays + self->numbers + stores != walk->inputs) {
        PyErr_SetString(PyExc_ValueError, "Ready(): the inputs are not those of the walk");
        goto failed;
    }
    npy_intp total = 1;
    for (int i = 0; i < self->rank; ++i) {
        total *= self->shape[i];
    }
    self->lines = total / walk->width;
    self->rest = total % walk->width;
    for (int i = 0; i < self->arrays; ++i) {
        self->bytes[i] = bytes_read(walk, i, self->lines, self->rest);
    }
    for (Py_ssize_t i = 0; i < stores; ++i) {
        int input = self->arrays + self->numbers + (int)i;
        PyObject *one = PyTuple_GET_ITEM(types, i);
        if (!PyArray_DescrCheck(one) || ((PyArray_Descr *)one)->type != walk->kind[input] ||
            total < 1 || bytes_read(walk, input, self->lines, self->rest) >
                             total * PyDataType_ELSIZE((PyArray_Descr *)one)) {
            PyErr_SetString(PyExc_ValueError, "Ready(): a type or a shape is not the walk's");
            goto failed;
        }
        Py_INCREF(one);
        self->type[self->stores++] = (PyArray_Descr *)one;
    }
    return (PyObject *)self;
failed:
    Py_DECREF(self);
    return NULL;
}

PyTypeObject ReadyType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "lucid_gpu._core.Ready",
    .tp_doc = ready_doc,
    .tp_basicsize = sizeof(Ready),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = ready_new,
    .tp_dealloc = (destructor)ready_dealloc,
};

/* A number as a kernel's argument. */
typedef union {
    float single;
    double full;
} Number;

/* Convert a float or an int as `lucid_gpu.fusion.blocked.as_number`. Returns whether that is plain. */
static int
convert(PyObject *value, char kind, Number *number)
{
    const double largest = 65504.0; /* no conversion to floats overflows up to here */
    if (value == NULL || !(PyFloat_CheckExact(value) || PyLong_CheckExact(value))) {
        return 0;
    }
    int overflow = 0;
    double given = PyFloat_CheckExact(value)
                       ? PyFloat_AS_DOUBLE(value)
                       : (double)PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow || !(given >= -largest && given <= largest) || kind == '?') {
        return 0;
    }
    if (kind == 'f') {
        number->single = (float)given;
    }
    else {
        number->full = given;
    }
    return 1;
}

/* The leaf of a plan in a slot of its leaves, borrowed; NULL for one that waits for its array. Slots
 * below 0 are the results of a reduction. */
static inline PyObject *
content_of(PyObject *leaves, PyObject *const *reduced, npy_intp number)
{
    if (number < 0 || number >= PyTuple_GET_SIZE(leaves)) {
        return number < 0 && reduced != NULL ? reduced[-1 - number] : NULL;
    }
    PyObject *leaf = PyTuple_GET_ITEM(leaves, number);
    return PyObject_TypeCheck(leaf, known.cell) ? get(leaf, known.cell_array) : NULL;
}

/* A run of a plan: where its operands begin, and what has to live until the end. */
typedef struct {
    char *base[MOST_OPERANDS];
    PyObject *held[MOST_OPERANDS];
    Number numbers[MOST_OPERANDS];
    char *memory;
    _Alignas(64) char stack[ON_STACK];
} Running;

/* Find the arrays and numbers that a plan reads. Returns 0 where this is not the way. */
static int
find_inputs(const Ready *self, PyObject *leaves, PyObject *const *reduced, Running *run)
{
    const Walk *walk = self->walk;
    for (int i = 0; i < self->arrays; ++i) {
        PyObject *array = content_of(leaves, reduced, self->leaf[i]);
        PyObject *layout = PyTuple_GET_ITEM(self->layouts, i);
        if (array == NULL || !PyArray_CheckExact(array) ||
            PyArray_DESCR((PyArrayObject *)array)->type != walk->kind[i] ||
            !(layout == Py_None ? PyArray_ISCARRAY_RO((PyArrayObject *)array) &&
                                      PyArray_NBYTES((PyArrayObject *)array) >= self->bytes[i]
                                : lies_as((PyArrayObject *)array, layout))) {
            return 0;
        }
        run->base[i] = PyArray_DATA((PyArrayObject *)array);
        run->held[i] = array;
    }
    for (int i = self->arrays; i < self->arrays + self->numbers; ++i) {
        PyObject *number = content_of(leaves, NULL, self->leaf[i]);
        if (!convert(number, walk->kind[i], &run->numbers[i])) {
            return 0;
        }
        run->base[i] = (char *)&run->numbers[i];
    }
    return 1;
}

/* Take scratch memory, and so many bytes before it. Returns -1 with an error set. */
static int
take_memory(const Walk *walk, npy_intp before, Running *run)
{
    run->memory = run->stack;
    if (walk->room + before > ON_STACK) {
        run->memory = PyMem_RawMalloc((size_t)(walk->room + before));
        if (run->memory == NULL) {
            PyErr_NoMemory();
            return -1;
        }
    }
    char *next = run->memory + before;
    for (int i = walk->inputs; i < walk->operands; ++i) {
        run->base[i] = walk->constant[i] != NULL ? walk->constant[i] : next;
        next += walk->scratch[i];
    }
    return 0;
}

static void
give_back(Running *run)
{
    if (run->memory != run->stack) {
        PyMem_RawFree(run->memory);
    }
}

/* Make the calls of a plan; other threads run meanwhile if they are many. */
static void
make_calls(Ready *self, Running *run)
{
    Walk *walk = self->walk;
    npy_intp work = (self->lines * walk->width + self->rest) * walk->calls;
    if (work < LET_GO) {
        walk_lines(walk, run->base, self->lines, self->rest);
        return;
    }
    for (int i = 0; i < self->arrays; ++i) { /* others may give the leaves other arrays */
        Py_INCREF(run->held[i]);
    }
    Py_INCREF(self);
    Py_BEGIN_ALLOW_THREADS
    walk_lines(walk, run->base, self->lines, self->rest);
    Py_END_ALLOW_THREADS
    for (int i = 0; i < self->arrays; ++i) {
        Py_DECREF(run->held[i]);
    }
    Py_DECREF(self);
}

/* A new array, or NULL with an error set. */
static PyObject *
new_array(PyArray_Descr *type, int rank, npy_intp *shape)
{
    Py_INCREF(type);
    return PyArray_NewFromDescr(&PyArray_Type, type, rank, shape, NULL, NULL, 0, NULL);
}

/* Run a plan into new arrays. Returns 1, or 0 where this is not the way, or -1 with an error set.
 * The usual case of `lucid_gpu.fusion.realize.execute`. */
int
run_ready(Ready *self, PyObject *leaves, PyObject *const *reduced, PyObject **results)
{
    Running run;
    int done = 0, first = self->arrays + self->numbers;
    if (!find_inputs(self, leaves, reduced, &run)) {
        return 0;
    }
    for (; done < self->stores; ++done) {
        results[done] = new_array(self->type[done], self->rank, self->shape);
        if (results[done] == NULL) {
            break;
        }
        run.base[first + done] = PyArray_DATA((PyArrayObject *)results[done]);
    }
    if (done < self->stores || take_memory(self->walk, 0, &run) < 0) {
        while (done > 0) {
            Py_DECREF(results[--done]);
        }
        return -1;
    }
    make_calls(self, &run);
    give_back(&run);
    return 1;
}

/* --- Reduced: a plan that reduces ------------------------------------------------------------- */

static void
reduced_dealloc(Reduced *self)
{
    Py_XDECREF(self->values);
    Py_XDECREF(self->tail);
    for (int i = 0; i < self->folds; ++i) {
        Py_DECREF(self->fold[i].type);
    }
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* The bytes that values take in scratch memory: lines of the cache. */
static npy_intp
room_for(const Fold *fold)
{
    return (fold->outer * fold->length * fold->inner * fold->item + 63) & ~(npy_intp)63;
}

/* Whether an input of the walk is reduced. */
static int
is_reduced(const Reduced *self, int input)
{
    for (int i = 0; i < self->folds; ++i) {
        if (self->fold[i].source == input) {
            return 1;
        }
    }
    return 0;
}

/* Whether values are computed, and for the first time: not for a result before this one. */
static int
is_first_of(const Reduced *self, int number)
{
    int source = self->fold[number].source;
    for (int i = 0; i < number; ++i) {
        if (self->fold[i].source == source) {
            return 0;
        }
    }
    return source >= self->values->arrays;
}

/* Read the number that a fold starts from, and the one that its results are divided by. Returns -1
 * with an error set. */
static int
read_ends(Fold *fold, PyObject *start, PyObject *divisor)
{
    if (start != Py_None) {
        if (!PyArray_CheckExact(start) || PyArray_NBYTES((PyArrayObject *)start) != fold->item ||
            PyArray_DESCR((PyArrayObject *)start)->type != fold->type->type) {
            PyErr_SetString(PyExc_ValueError, "Reduced(): a start is a number of the results' type");
            return -1;
        }
        memcpy(fold->start, PyArray_DATA((PyArrayObject *)start), (size_t)fold->item);
        fold->starts = 1;
    }
    if (divisor != Py_None) {
        fold->divides = 1;
        fold->divisor = PyFloat_AsDouble(divisor);
        if (fold->type->type != 'f' && fold->type->type != 'd' && !PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "Reduced(): only floats are divided");
        }
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* Read one fold. Returns -1 with an error set. */
static int
read_fold(Reduced *self, PyObject *tuple, Fold *fold)
{
    Ready *values = self->values;
    Py_ssize_t loop, data;
    PyObject *start, *divisor, *shape;
    PyArray_Descr *type;
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "Reduced(): a result is a tuple");
        return -1;
    }
    if (!PyArg_ParseTuple(tuple, "innnnnOOOO!:Reduced", &fold->source, &loop, &data, &fold->outer,
                          &fold->length, &fold->inner, &start, &divisor, &shape, &PyArrayDescr_Type,
                          &type)) {
        return -1;
    }
    fold->loop = (PyUFuncGenericFunction)loop;
    fold->data = (void *)data;
    fold->item = item_of(type->type);
    fold->type = type;
    fold->rank = read_numbers(shape, fold->shape, NPY_MAXDIMS);
    if (fold->rank < 0 || read_ends(fold, start, divisor) < 0) {
        return -1;
    }
    npy_intp count = 1, total = fold->outer * fold->inner, number = fold->source;
    for (int i = 0; i < fold->rank; ++i) {
        count *= fold->shape[i];
    }
    int computed = (int)number - values->arrays - values->numbers;
    if (number < 0 || number >= values->walk->inputs || (number >= values->arrays && computed < 0) ||
        values->walk->kind[number] != type->type || fold->outer < 1 || fold->length < 1 ||
        fold->inner < 1 || count != total) {
        PyErr_SetString(PyExc_ValueError, "Reduced(): a result is not one of these values");
        return -1;
    }
    total *= fold->length * fold->item;
    if (computed < 0) { /* an array that is read */
        values->bytes[number] = total > values->bytes[number] ? total : values->bytes[number];
    }
    else if (total < bytes_read(values->walk, (int)number, values->lines, values->rest)) {
        PyErr_SetString(PyExc_ValueError, "Reduced(): more is computed than is reduced");
        return -1;
    }
    return 0;
}

PyDoc_STRVAR(reduced_doc,
"Reduced(values, results, tail)\n"
"--\n\n"
"A plan that reduces, with NumPy's loops in the order of a ufunc's ``reduce``.\n\n"
"Parameters\n"
"----------\n"
"values : Ready\n"
"    What it stores goes to scratch memory, and is reduced. No other plan has it.\n"
"results : tuple of (source, loop, data, outer, length, inner, start, divisor, shape, type)\n"
"    Which input of the walk is reduced, by a loop of two arrays; ``length`` values become one for\n"
"    each of ``outer`` and ``inner``. ``start`` is an array of one element, or None where a fold\n"
"    begins with the first value; ``divisor`` a number or None; then those of the result.\n"
"tail : Ready or None\n"
"    What goes on with the results.");

static PyObject *
reduced_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(names))
{
    PyObject *results, *tail;
    Ready *values;
    if (!PyArg_ParseTuple(args, "O!O!O:Reduced", &ReadyType, &values, &PyTuple_Type, &results,
                          &tail)) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(results);
    int stores = tail == Py_None                ? 0
                 : Py_TYPE(tail) == &ReadyType ? ((Ready *)tail)->stores
                                               : MOST_STORES;
    if (count < 1 || count + stores > MOST_STORES) {
        PyErr_SetString(PyExc_ValueError, "Reduced(): too few results, or too many");
        return NULL;
    }
    Reduced *self = (Reduced *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->values = (Ready *)Py_NewRef((PyObject *)values);
    self->tail = tail == Py_None ? NULL : (Ready *)Py_NewRef(tail);
    for (; self->folds < count; ++self->folds) {
        Fold *fold = self->fold + self->folds;
        if (read_fold(self, PyTuple_GET_ITEM(results, self->folds), fold) < 0) {
            Py_DECREF(self);
            return NULL;
        }
        Py_INCREF(fold->type);
        self->room += is_first_of(self, self->folds) ? room_for(fold) : 0;
    }
    for (int i = values->walk->inputs - values->stores; i < values->walk->inputs; ++i) {
        if (!is_reduced(self, i)) { /* it would have no memory */
            PyErr_SetString(PyExc_ValueError, "Reduced(): what is computed is reduced");
            Py_DECREF(self);
            return NULL;
        }
    }
    for (int i = 0; self->tail != NULL && i < self->tail->arrays; ++i) {
        if (self->tail->leaf[i] < -count) {
            PyErr_SetString(PyExc_ValueError, "Reduced(): there is no such result");
            Py_CLEAR(self);
            break;
        }
    }
    return (PyObject *)self;
}

PyTypeObject ReducedType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "lucid_gpu._core.Reduced",
    .tp_doc = reduced_doc,
    .tp_basicsize = sizeof(Reduced),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = reduced_new,
    .tp_dealloc = (destructor)reduced_dealloc,
};

/* Fold `length` rows of `inner` elements into one, as NumPy does: neighbors by one call of the loop,
 * which adds in pairs, rows by one call for each. */
static void
fold_one(const Fold *fold, char *from, char *to)
{
    npy_intp count = fold->inner, item = fold->item, left = fold->length;
    npy_intp strides[] = {item, item, item};
    if (fold->starts) {
        for (npy_intp i = 0; i < count; ++i) {
            memcpy(to + i * item, fold->start, (size_t)item);
        }
    }
    else {
        memcpy(to, from, (size_t)(count * item));
        from += count * item;
        --left;
    }
    if (count == 1) {
        strides[0] = strides[2] = 0;
        count = left;
        left = left > 0;
    }
    for (; left > 0; --left, from += count * item) {
        char *arguments[] = {to, from, to};
        fold->loop(arguments, &count, strides, fold->data);
    }
}

/* Compute one result: as `Executable._finished` of lucid_gpu.fusion.blocked. */
static void
fold_all(const Fold *fold, char *from, char *to)
{
    npy_intp row = fold->inner * fold->item, count = fold->outer * fold->inner;
    for (npy_intp i = 0; i < fold->outer; ++i) {
        fold_one(fold, from + i * fold->length * row, to + i * row);
    }
    if (fold->divides && fold->type->type == 'f') {
        const float divisor = (float)fold->divisor;
        for (npy_intp i = 0; i < count; ++i) {
            ((float *)to)[i] /= divisor;
        }
    }
    else if (fold->divides) {
        for (npy_intp i = 0; i < count; ++i) {
            ((double *)to)[i] /= fold->divisor;
        }
    }
}

/* As `run_ready`, of a plan that reduces: its results, then those of the tail. */
static int
run_reduced(Reduced *self, PyObject *leaves, PyObject **results)
{
    Ready *values = self->values;
    Running run;
    int done = 0, status = -1;
    if (!find_inputs(values, leaves, NULL, &run)) {
        return 0;
    }
    for (; done < self->folds; ++done) {
        Fold *fold = self->fold + done;
        results[done] = new_array(fold->type, fold->rank, fold->shape);
        if (results[done] == NULL) {
            goto failed;
        }
    }
    if (take_memory(values->walk, self->room, &run) < 0) {
        goto failed;
    }
    char *next = run.memory, *source[MOST_STORES];
    for (int i = 0; i < self->folds; ++i) {
        const Fold *fold = self->fold + i;
        if (is_first_of(self, i)) {
            run.base[fold->source] = next;
            next += room_for(fold);
        }
        source[i] = run.base[fold->source]; /* the run moves on from there */
    }
    for (int i = 0; i < values->arrays; ++i) { /* until the last of them was read */
        Py_INCREF(run.held[i]);
    }
    make_calls(values, &run);
    for (int i = 0; i < self->folds; ++i) {
        fold_all(self->fold + i, source[i], PyArray_DATA((PyArrayObject *)results[i]));
    }
    for (int i = 0; i < values->arrays; ++i) {
        Py_DECREF(run.held[i]);
    }
    give_back(&run);
    status = self->tail == NULL ? 1 : run_ready(self->tail, leaves, results, results + done);
failed:
    while (status != 1 && done > 0) {
        Py_DECREF(results[--done]);
    }
    return status;
}

/* How many arrays a plan gives that is ready, of either kind; -1 for anything else. */
int
results_of(PyObject *ready)
{
    if (Py_TYPE(ready) == &ReadyType) {
        return ((Ready *)ready)->stores;
    }
    if (Py_TYPE(ready) != &ReducedType) {
        return -1;
    }
    Reduced *reduced = (Reduced *)ready;
    return reduced->folds + (reduced->tail == NULL ? 0 : reduced->tail->stores);
}

/* Run a plan of either kind. */
int
run_plan(PyObject *ready, PyObject *leaves, PyObject **results)
{
    Py_INCREF(ready); /* programs may be forgotten meanwhile */
    int status = Py_TYPE(ready) == &ReadyType ? run_ready((Ready *)ready, leaves, NULL, results)
                                              : run_reduced((Reduced *)ready, leaves, results);
    Py_DECREF(ready);
    return status;
}

PyDoc_STRVAR(run_doc,
"run(ready, leaves)\n"
"--\n\n"
"The arrays of a plan, Ready or Reduced, on a tuple of leaves; None where this is not the way.");

static PyObject *
run(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    int stores = count == 2 && PyTuple_Check(args[1]) ? results_of(args[0]) : -1;
    if (stores < 0) {
        PyErr_SetString(PyExc_TypeError, "run() takes a Ready or a Reduced, and a tuple of leaves");
        return NULL;
    }
    PyObject *results[MOST_STORES];
    int status = closed ? 0 : run_plan(args[0], args[1], results);
    if (status <= 0) {
        return status < 0 ? NULL : Py_NewRef(Py_None);
    }
    PyObject *list = PyList_New(stores);
    for (int i = 0; i < stores; ++i) {
        if (list == NULL) {
            Py_DECREF(results[i]);
        }
        else {
            PyList_SET_ITEM(list, i, results[i]);
        }
    }
    return list;
}

PyMethodDef kernels_methods[] = {
    {"run", (PyCFunction)(void (*)(void))run, METH_FASTCALL, run_doc},
    {NULL, NULL, 0, NULL},
};

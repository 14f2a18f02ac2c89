/* What each launch and each allocation of a GPU asks of the host, without the interpreter.
 *
 * `Start` packs the numbers of a launch and hands them to cuLaunchKernel; `Guarded` is an allocator
 * that calls another one where the first fails. Both decline what is unusual, having done nothing,
 * and the Python function that they are a short cut of does it (lucid_gpu/launch/cuda.py,
 * lucid_gpu/devices/cuda_memory.py).
 *
 * The module is optional: where it is missing, Python does the same.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <structmember.h>

enum { SLOT = 16, MOST_VARYING = 64, MOST_CONSTANT = 64 };

/* --- launches ------------------------------------------------------------------------------- */

typedef int (*Launch)(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      unsigned shared, void *stream, void **arguments, void **extra);

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    Launch launch;       /* cuLaunchKernel */
    void *function;
    unsigned extents[6]; /* of the grid, of a block */
    unsigned shared;     /* bytes */
    PyObject *stream_of; /* the current stream of a device */
    PyObject *device;    /* its number */
    int varying, constant;
    char letters[MOST_VARYING + 1];      /* `struct`'s, of the numbers that a call gives */
    unsigned places[MOST_CONSTANT];      /* of the others, in `values` */
    char *memory, *values;               /* `values` begins in `memory`, and is aligned */
} Start;

static PyObject *stream_pointer; /* "ptr" */

/* Write a number as `struct` does; false, perhaps with an error set, where it does not fit. */
static int
pack(char letter, PyObject *number, char *slot)
{
    if (letter == 'f' || letter == 'd') {
        double value = PyFloat_CheckExact(number) ? PyFloat_AS_DOUBLE(number)
                                                  : PyFloat_AsDouble(number);
        if (value == -1.0 && PyErr_Occurred()) {
            return 0;
        }
        if (letter == 'd') {
            *(double *)slot = value;
            return 1;
        }
        *(float *)slot = (float)value;
        return isfinite(*(float *)slot) || !isfinite(value);
    }
    if (letter == '?') {
        *slot = number == Py_True;
        return PyBool_Check(number);
    }
    if (!PyLong_Check(number)) {
        return 0;
    }
    if (letter == 'Q') {
        *(unsigned long long *)slot = PyLong_AsUnsignedLongLong(number);
        return !PyErr_Occurred();
    }
    long long value = PyLong_AsLongLong(number);
    if (value == -1 && PyErr_Occurred()) {
        return 0;
    }
    if (letter == 'q') {
        *(long long *)slot = value;
        return 1;
    }
    *(int *)slot = (int)value; /* 'i' */
    return value >= INT32_MIN && value <= INT32_MAX;
}

static PyObject *
start_call(Start *self, PyObject *const *arguments, size_t flags, PyObject *names)
{
    if (PyVectorcall_NARGS(flags) != 1 || names != NULL) {
        PyErr_SetString(PyExc_TypeError, "a launch takes one sequence of numbers");
        return NULL;
    }
    PyObject *numbers = PySequence_Fast(arguments[0], "a launch takes a sequence of numbers");
    if (numbers == NULL) {
        return NULL;
    }
    _Alignas(SLOT) char slots[MOST_VARYING * SLOT];
    void *table[MOST_VARYING + MOST_CONSTANT];
    int fits = PySequence_Fast_GET_SIZE(numbers) == self->varying;
    for (int i = 0; fits && i < self->varying; ++i) {
        table[i] = slots + i * SLOT;
        fits = pack(self->letters[i], PySequence_Fast_GET_ITEM(numbers, i), table[i]);
    }
    Py_DECREF(numbers);
    if (!fits) { /* Python says which number it is */
        PyErr_Clear();
        Py_RETURN_FALSE;
    }
    for (int i = 0; i < self->constant; ++i) {
        table[self->varying + i] = self->values + self->places[i];
    }
    PyObject *stream = PyObject_CallOneArg(self->stream_of, self->device);
    PyObject *address = stream == NULL ? NULL : PyObject_GetAttr(stream, stream_pointer);
    Py_XDECREF(stream);
    if (address == NULL) {
        return NULL;
    }
    void *queue = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
    if (queue == NULL && PyErr_Occurred()) {
        return NULL;
    }
    int failed;
    const unsigned *n = self->extents;
    Py_BEGIN_ALLOW_THREADS
    failed = self->launch(self->function, n[0], n[1], n[2], n[3], n[4], n[5], self->shared, queue,
                          table, NULL);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(!failed); /* Python meets the failure again, and tells it */
}

PyDoc_STRVAR(start_doc,
"Start(launch, function, extents, shared, stream_of, device, letters, sizes, values)\n"
"--\n\n"
"What starts a kernel on the current stream of a device, called with the numbers that vary.\n\n"
"A call gives True, or False where nothing was started.\n\n"
"Parameters\n"
"----------\n"
"launch, function : int\n"
"    The addresses of cuLaunchKernel and of the kernel.\n"
"extents : tuple of six int\n"
"    Of the grid and of a block.\n"
"shared : int\n"
"    Bytes of dynamic shared memory.\n"
"stream_of : callable\n"
"    ``stream_of(device).ptr`` is the address of the current stream.\n"
"device : int\n"
"letters : str\n"
"    The type of each number that varies, among struct's ``Q q i f d ?``.\n"
"sizes : tuple of int\n"
"    Bytes of each argument after those, a multiple of 16.\n"
"values : bytes\n"
"    These arguments, one after another.\n\n"
"Raises\n"
"------\n"
"ValueError\n"
"    For other letters, more arguments than there is room for, and sizes that are not those of\n"
"    the values.");

static int
start_takes(Start *self, const char *letters, PyObject *sizes, const char *values,
            Py_ssize_t length)
{
    size_t varying = strlen(letters);
    Py_ssize_t constant = PyTuple_GET_SIZE(sizes), at = 0;
    if (varying > MOST_VARYING || constant > MOST_CONSTANT
        || strspn(letters, "Qqifd?") != varying) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < constant; ++i) {
        Py_ssize_t size = PyLong_AsSsize_t(PyTuple_GET_ITEM(sizes, i));
        if (size <= 0 || size % SLOT || at + size > length) {
            return 0;
        }
        self->places[i] = (unsigned)at;
        at += size;
    }
    self->memory = PyMem_Malloc(length + SLOT);
    if (at != length || self->memory == NULL) {
        return 0;
    }
    self->values = self->memory + (-(uintptr_t)self->memory & (SLOT - 1));
    memcpy(self->values, values, length);
    memcpy(self->letters, letters, varying + 1);
    self->varying = (int)varying;
    self->constant = (int)constant;
    return 1;
}

static PyObject *
start_new(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    unsigned long long launch, function;
    unsigned n[6], shared;
    PyObject *stream_of, *device, *sizes;
    const char *letters, *values;
    Py_ssize_t length;
    if (named != NULL && PyDict_GET_SIZE(named)) {
        PyErr_SetString(PyExc_TypeError, "Start takes no arguments by name");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "KK(IIIIII)IOO!sO!y#", &launch, &function, &n[0], &n[1],
                          &n[2], &n[3], &n[4], &n[5], &shared, &stream_of, &PyLong_Type, &device,
                          &letters, &PyTuple_Type, &sizes, &values, &length)) {
        return NULL;
    }
    Start *self = (Start *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->call = (vectorcallfunc)start_call;
    self->launch = (Launch)(uintptr_t)launch;
    self->function = (void *)(uintptr_t)function;
    memcpy(self->extents, n, sizeof n);
    self->shared = shared;
    self->stream_of = Py_NewRef(stream_of);
    self->device = Py_NewRef(device);
    if (!start_takes(self, letters, sizes, values, length)) {
        Py_DECREF(self);
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "such arguments are packed by Python");
        }
        return NULL;
    }
    return (PyObject *)self;
}

static void
start_dealloc(Start *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(self->stream_of);
    Py_XDECREF(self->device);
    PyMem_Free(self->memory);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef start_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Start, call), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot start_slots[] = {
    {Py_tp_doc, (void *)start_doc},
    {Py_tp_new, (void *)start_new},
    {Py_tp_dealloc, (void *)start_dealloc},
    {Py_tp_call, (void *)PyVectorcall_Call},
    {Py_tp_members, start_members},
    {0, NULL},
};

static PyType_Spec start_spec = {
    .name = "lucid_gpu._gpu.Start",
    .basicsize = sizeof(Start),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = start_slots,
};

/* --- allocations ---------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *allocate, *otherwise;
} Guarded;

/* The error that is set, which is so no more. */
static PyObject *
raised(void)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyErr_GetRaisedException();
#else
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(error, traceback);
    }
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return error;
#endif
}

static PyObject *
guarded_call(Guarded *self, PyObject *const *arguments, size_t flags, PyObject *names)
{
    if (PyVectorcall_NARGS(flags) != 1 || names != NULL) {
        PyErr_SetString(PyExc_TypeError, "an allocator takes a number of bytes");
        return NULL;
    }
    PyObject *memory = PyObject_CallOneArg(self->allocate, arguments[0]);
    if (memory != NULL || !PyErr_ExceptionMatches(PyExc_Exception)) {
        return memory;
    }
    PyObject *error = raised();
    memory = PyObject_CallFunctionObjArgs(self->otherwise, arguments[0], error, NULL);
    Py_DECREF(error);
    return memory;
}

PyDoc_STRVAR(guarded_doc,
"Guarded(allocate, otherwise)\n"
"--\n\n"
"An allocator: ``allocate(size)``, and where that raises ``otherwise(size, error)``.");

static PyObject *
guarded_new(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    PyObject *allocate, *otherwise;
    if (named != NULL && PyDict_GET_SIZE(named)) {
        PyErr_SetString(PyExc_TypeError, "Guarded takes no arguments by name");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "OO", &allocate, &otherwise)) {
        return NULL;
    }
    Guarded *self = (Guarded *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->call = (vectorcallfunc)guarded_call;
        self->allocate = Py_NewRef(allocate);
        self->otherwise = Py_NewRef(otherwise);
    }
    return (PyObject *)self;
}

static int
guarded_traverse(Guarded *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->allocate);
    Py_VISIT(self->otherwise);
    return 0;
}

static int
guarded_clear(Guarded *self)
{
    Py_CLEAR(self->allocate);
    Py_CLEAR(self->otherwise);
    return 0;
}

static void
guarded_dealloc(Guarded *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    guarded_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef guarded_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Guarded, call), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot guarded_slots[] = {
    {Py_tp_doc, (void *)guarded_doc},
    {Py_tp_new, (void *)guarded_new},
    {Py_tp_dealloc, (void *)guarded_dealloc},
    {Py_tp_traverse, (void *)guarded_traverse},
    {Py_tp_clear, (void *)guarded_clear},
    {Py_tp_call, (void *)PyVectorcall_Call},
    {Py_tp_members, guarded_members},
    {0, NULL},
};

static PyType_Spec guarded_spec = {
    .name = "lucid_gpu._gpu.Guarded",
    .basicsize = sizeof(Guarded),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = guarded_slots,
};

/* --- the module ----------------------------------------------------------------------------- */

static int
prepare(PyObject *module)
{
    if (stream_pointer == NULL) {
        stream_pointer = PyUnicode_InternFromString("ptr");
    }
    PyType_Spec *specs[] = {&start_spec, &guarded_spec};
    for (size_t i = 0; stream_pointer != NULL && i < sizeof specs / sizeof *specs; ++i) {
        PyObject *type = PyType_FromSpec(specs[i]);
        if (type == NULL || PyModule_AddType(module, (PyTypeObject *)type) < 0) {
            Py_XDECREF(type);
            return -1;
        }
        Py_DECREF(type);
    }
    return stream_pointer == NULL ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)prepare},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED}, /* nor by CuPy */
#endif
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED}, /* what a launch writes is on its stack */
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_gpu",
    .m_doc = "What launches and allocations of a GPU ask of the host, without the interpreter.",
    .m_size = 0,
    .m_slots = slots,
};

/* What an import calls; `prepare` does the rest. */
PyMODINIT_FUNC
PyInit__gpu(void)
{
    return PyModuleDef_Init(&definition);
}

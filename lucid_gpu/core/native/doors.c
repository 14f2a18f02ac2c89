/* Callables that stand before functions of Python: `Door`, and what it has in common with `Method`. */
#include "core.h"

/* --- callables as functions are: attributes, binding, pickling -------------------------------- */

/* As of a function: bound to an instance, itself on the class. */
PyObject *
bound(PyObject *self, PyObject *instance, PyObject *Py_UNUSED(type))
{
    if (instance == NULL || instance == Py_None) {
        return Py_NewRef(self);
    }
    return PyMethod_New(self, instance);
}

PyObject *
named(PyObject *self)
{
    PyObject *name = PyObject_GetAttrString(self, "__qualname__");
    PyObject *text = name == NULL ? NULL : PyUnicode_FromFormat("<function %U>", name);
    Py_XDECREF(name);
    return text;
}

/* Pickle finds it by name, as it finds functions. */
static PyObject *
by_name(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    return PyObject_GetAttrString(self, "__qualname__");
}

PyMethodDef callable_methods[] = {
    {"__reduce__", by_name, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

PyGetSetDef callable_attributes[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* An attribute; those of code are those of the function inside, as tools look for them. */
PyObject *
attribute_of(PyObject *self, PyObject *inside, PyObject *name)
{
    PyObject *value = PyObject_GenericGetAttr(self, name);
    if (value == NULL && inside != NULL && PyErr_ExceptionMatches(PyExc_AttributeError) &&
        PyUnicode_GET_LENGTH(name) > 2 && PyUnicode_READ_CHAR(name, 0) == '_' &&
        PyUnicode_READ_CHAR(name, 1) == '_') {
        PyErr_Clear();
        value = PyObject_GetAttr(inside, name);
    }
    return value;
}

PyMemberDef callable_members[] = {
    {"__name__", T_OBJECT, offsetof(Function, name), 0, NULL},
    {"__qualname__", T_OBJECT, offsetof(Function, qualname), 0, NULL},
    {"__doc__", T_OBJECT, offsetof(Function, doc), 0, NULL},
    {"__module__", T_OBJECT, offsetof(Function, module), 0, NULL},
    {"__annotations__", T_OBJECT, offsetof(Function, annotations), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

int
callable_traverse(Function *self, visitproc visit, void *arg)
{
    Py_VISIT(self->name);
    Py_VISIT(self->qualname);
    Py_VISIT(self->doc);
    Py_VISIT(self->module);
    Py_VISIT(self->annotations);
    Py_VISIT(self->attributes);
    return 0;
}

void
callable_clear(Function *self)
{
    Py_CLEAR(self->name);
    Py_CLEAR(self->qualname);
    Py_CLEAR(self->doc);
    Py_CLEAR(self->module);
    Py_CLEAR(self->annotations);
    Py_CLEAR(self->attributes);
}

/* Free a Method or a Door; `clear` drops what it refers to. */
void
callable_dealloc(Function *self)
{
    PyObject_GC_UnTrack(self);
    if (self->references != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    (void)Py_TYPE(self)->tp_clear((PyObject *)self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* --- Door ------------------------------------------------------------------------------------- */

typedef struct {
    Function function;
    PyObject *body, *slow, *failed;
    PyObject *kinds;          /* of exceptions, a tuple */
    PyObject *first, *second; /* lists or tuples: empty while nobody is to see the call */
    PyObject *careful;        /* keywords that `slow` sees to, a frozenset */
    PyObject *plain;          /* numbers: a tuple of (name, place, types) */
    Py_ssize_t most;          /* positional arguments; -1 for any */
} Door;

/* The arguments of a call as a tuple and a dictionary; both are NULL with an error set. */
static int
pack(PyObject *const *args, Py_ssize_t count, PyObject *names, PyObject **tuple, PyObject **dict)
{
    *tuple = PyTuple_New(count);
    *dict = PyDict_New();
    for (Py_ssize_t i = 0; *tuple != NULL && i < count; ++i) {
        PyTuple_SET_ITEM(*tuple, i, Py_NewRef(args[i]));
    }
    Py_ssize_t named_ones = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    int status = *tuple == NULL || *dict == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; status == 0 && i < named_ones; ++i) {
        status = PyDict_SetItem(*dict, PyTuple_GET_ITEM(names, i), args[count + i]);
    }
    if (status < 0) {
        Py_CLEAR(*tuple);
        Py_CLEAR(*dict);
    }
    return status;
}

/* Call a function of a call's arguments, and of the error that it raised if there is one. */
static PyObject *
told(PyObject *function, PyObject *error, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *tuple, *dict, *answer;
    if (pack(args, count, names, &tuple, &dict) < 0) {
        return NULL;
    }
    PyObject *all[] = {error, tuple, dict};
    answer = error == NULL ? PyObject_Vectorcall(function, all + 1, 2, NULL)
                           : PyObject_Vectorcall(function, all, 3, NULL);
    Py_DECREF(tuple);
    Py_DECREF(dict);
    return answer;
}

/* The exception that is raised, taken from the thread as `except` does, with its traceback. */
PyObject *
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

/* Whether a number is of a type that is taken as it is, so that `checked_numbers` has no say. */
static int
is_taken(PyObject *types, PyObject *number)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(types); ++i) {
        if (PyTuple_GET_ITEM(types, i) == (PyObject *)Py_TYPE(number)) {
            return 1;
        }
    }
    return 0;
}

/* Whether `slow` sees to a call because of a number at a place. */
static int
sees_to_numbers(const Door *self, PyObject *const *args, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->plain); ++i) {
        PyObject *one = PyTuple_GET_ITEM(self->plain, i);
        Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(one, 1));
        if (place < count && !is_taken(PyTuple_GET_ITEM(one, 2), args[place])) {
            return 1;
        }
    }
    return 0;
}

/* Whether it sees to a call because of a keyword. -1 with an error set. */
static int
sees_to(const Door *self, PyObject *name, PyObject *value)
{
    int found = PySet_Contains(self->careful, name);
    for (Py_ssize_t i = 0; found > 0 && i < PyTuple_GET_SIZE(self->plain); ++i) {
        PyObject *one = PyTuple_GET_ITEM(self->plain, i);
        if (PyUnicode_Compare(PyTuple_GET_ITEM(one, 0), name) == 0) {
            return !is_taken(PyTuple_GET_ITEM(one, 2), value);
        }
    }
    return found;
}

/* Call the body; what fails of a kind that is known goes on as in an `except` block. */
static PyObject *
door_call(PyObject *object, PyObject *const *args, size_t flags, PyObject *names)
{
    Door *self = (Door *)object;
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    int seen = Py_SIZE(self->first) != 0 || Py_SIZE(self->second) != 0;
    if (!seen && self->most >= 0 && count > self->most) {
        seen = sees_to_numbers(self, args, count);
    }
    Py_ssize_t named_ones = names == NULL || PySet_GET_SIZE(self->careful) == 0
                                ? 0
                                : PyTuple_GET_SIZE(names);
    for (Py_ssize_t i = 0; seen == 0 && i < named_ones; ++i) {
        seen = sees_to(self, PyTuple_GET_ITEM(names, i), args[count + i]);
    }
    if (seen != 0) {
        return seen < 0 ? NULL : told(self->slow, NULL, args, count, names);
    }
    PyObject *result = PyObject_Vectorcall(self->body, args, flags, names);
    if (result != NULL || !PyErr_ExceptionMatches(self->kinds)) {
        return result;
    }
    PyObject *error = raised(), *type, *before, *traceback;
    PyErr_GetExcInfo(&type, &before, &traceback);
    PyErr_SetExcInfo(Py_NewRef((PyObject *)Py_TYPE(error)), Py_NewRef(error),
                     PyException_GetTraceback(error));
    result = told(self->failed, error, args, count, names);
    PyErr_SetExcInfo(type, before, traceback);
    Py_DECREF(error);
    return result;
}

PyDoc_STRVAR(door_doc,
"Door(body, slow, failed, kinds, first, second, most, careful, plain)\n"
"--\n\n"
"What `lucid_gpu.tape.short.short` returns; ``most`` is -1 for any arguments.");

static PyObject *
door_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(names))
{
    PyObject *body, *slow, *failed, *kinds, *first, *second, *careful, *plain, *one, *name, *types;
    Py_ssize_t most, place;
    if (!PyArg_ParseTuple(args, "OOOO!OOnO!O!:Door", &body, &slow, &failed, &PyTuple_Type, &kinds,
                          &first, &second, &most, &PyFrozenSet_Type, &careful, &PyTuple_Type,
                          &plain)) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(plain); ++i) {
        one = PyTuple_GET_ITEM(plain, i);
        if (!PyTuple_Check(one) ||
            !PyArg_ParseTuple(one, "UnO!:Door", &name, &place, &PyTuple_Type, &types)) {
            PyErr_SetString(PyExc_TypeError, "Door(): a number is a name, a place and types");
            return NULL;
        }
    }
    if (!(PyList_CheckExact(first) || PyTuple_CheckExact(first)) ||
        !(PyList_CheckExact(second) || PyTuple_CheckExact(second)) || !PyCallable_Check(body)) {
        PyErr_SetString(PyExc_TypeError, "Door(): a function, and two lists or tuples");
        return NULL;
    }
    Door *self = (Door *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->function.call = door_call;
        self->body = Py_NewRef(body);
        self->slow = Py_NewRef(slow);
        self->failed = Py_NewRef(failed);
        self->kinds = Py_NewRef(kinds);
        self->first = Py_NewRef(first);
        self->second = Py_NewRef(second);
        self->careful = Py_NewRef(careful);
        self->plain = Py_NewRef(plain);
        self->most = most;
    }
    return (PyObject *)self;
}

static int
door_traverse(Door *self, visitproc visit, void *arg)
{
    Py_VISIT(self->body);
    Py_VISIT(self->slow);
    Py_VISIT(self->failed);
    Py_VISIT(self->kinds);
    Py_VISIT(self->first);
    Py_VISIT(self->second);
    Py_VISIT(self->careful);
    Py_VISIT(self->plain);
    return callable_traverse(&self->function, visit, arg);
}

static int
door_clear(Door *self)
{
    Py_CLEAR(self->body);
    Py_CLEAR(self->slow);
    Py_CLEAR(self->failed);
    Py_CLEAR(self->kinds);
    Py_CLEAR(self->first);
    Py_CLEAR(self->second);
    Py_CLEAR(self->careful);
    Py_CLEAR(self->plain);
    callable_clear(&self->function);
    return 0;
}

static PyObject *
door_attribute(PyObject *self, PyObject *name)
{
    return attribute_of(self, ((Door *)self)->body, name);
}

PyTypeObject DoorType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "lucid_gpu._core.Door",
    .tp_doc = door_doc,
    .tp_basicsize = sizeof(Door),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_new = door_new,
    .tp_traverse = (traverseproc)door_traverse,
    .tp_clear = (inquiry)door_clear,
    .tp_dealloc = (destructor)callable_dealloc,
    .tp_vectorcall_offset = offsetof(Function, call),
    .tp_call = PyVectorcall_Call,
    .tp_descr_get = bound,
    .tp_repr = named,
    .tp_getattro = door_attribute,
    .tp_dictoffset = offsetof(Function, attributes),
    .tp_weaklistoffset = offsetof(Function, references),
    .tp_members = callable_members,
    .tp_methods = callable_methods,
    .tp_getset = callable_attributes,
};

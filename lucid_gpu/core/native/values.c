/* Values, leaves and tensors: what is read and made of Python's classes. */
#include "core.h"

struct Known known;

int closed; /* streams are followed, or nothing is known yet: all is declined */

/* Where a class of Python keeps an attribute that it names in `__slots__`. */
int
slot_of(PyTypeObject *type, const char *name, Slot *slot)
{
    PyObject *member = PyObject_GetAttrString((PyObject *)type, name);
    if (member == NULL) {
        return -1;
    }
    int known_kind = Py_TYPE(member) == &PyMemberDescr_Type &&
                     ((PyMemberDescrObject *)member)->d_member->type == T_OBJECT_EX;
    if (known_kind) {
        *slot = ((PyMemberDescrObject *)member)->d_member->offset;
    }
    else {
        PyErr_Format(PyExc_TypeError, "bind(): %s has no slot %s", type->tp_name, name);
    }
    Py_DECREF(member);
    return known_kind ? 0 : -1;
}

/* Whether an attribute is what it is nearly always; -1 with an error set. */
int
has(PyObject *object, PyObject *name, PyObject *usual)
{
    PyObject *value = PyObject_GetAttr(object, name);
    Py_XDECREF(value);
    return value == NULL ? -1 : value == usual;
}

/* What a function of Python does, where C has no way. */
PyObject *
in_general(PyObject *function, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (function == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "bind() comes first");
        return NULL;
    }
    return PyObject_Vectorcall(function, args, (size_t)count, names);
}

/* What a weak reference refers to, a new reference; NULL for what is gone. */
PyObject *
referent(PyObject *reference)
{
    PyObject *object = NULL;
    if (PyWeakref_Check(reference)) {
#if PY_VERSION_HEX >= 0x030D0000
        (void)PyWeakref_GetRef(reference, &object);
#else
        object = PyWeakref_GET_OBJECT(reference);
        object = object == Py_None ? NULL : Py_NewRef(object);
#endif
    }
    return object;
}

/* Whether a weak reference refers to an object, or if that is NULL to any. */
int
refers_to(PyObject *reference, PyObject *object)
{
    PyObject *there = referent(reference);
    Py_XDECREF(there);
    return there != NULL && (object == NULL || there == object);
}

/* Append a weak reference to a list. Who keeps the list may be given another one meanwhile. */
int
note_in(PyObject *list, PyObject *object)
{
    Py_INCREF(list);
    PyObject *reference = PyWeakref_NewRef(object, NULL);
    int status = reference == NULL ? -1 : PyList_Append(list, reference);
    Py_XDECREF(reference);
    Py_DECREF(list);
    return status;
}

/* The value of a tensor if it is an Expr and no other thing, a new reference; else NULL. One whose
 * memory was written is asked for: see `Unread` in lucid_gpu/core/value.py. */
PyObject *
value_of(PyObject *tensor)
{
    PyObject *value = get(tensor, known.tensor_expr);
    if (value != NULL && Py_TYPE(value) == known.unread) {
        Py_INCREF(value);
        PyObject *found = read_unread(value);
        if (found == NULL && !PyErr_Occurred()) {
            found = PyObject_CallMethodNoArgs(value, s_read);
        }
        Py_SETREF(value, found);
        Py_XDECREF(value);
        value = value == NULL ? NULL : get(tensor, known.tensor_expr);
    }
    if (value == NULL || Py_TYPE(value) != known.expr || get(value, known.expr_program) == NULL) {
        return NULL;
    }
    PyObject *leaves = get(value, known.expr_leaves), *shape = get(value, known.expr_shape);
    if (leaves == NULL || !PyTuple_Check(leaves) || shape == NULL || !PyTuple_Check(shape)) {
        return NULL;
    }
    return Py_NewRef(value);
}

/* As `Expr.__init__`, for a stored value (`since` is ALWAYS) or, where that is NULL, a pending one:
 * it is of the step that there is once there is an object, as making that may begin another. */
PyObject *
new_expr(PyObject *program, PyObject *leaves, PyObject *made_by, PyObject *shape, PyObject *since)
{
    Py_XINCREF(since); /* of another value, which may be given another step meanwhile */
    PyObject *value = known.expr->tp_alloc(known.expr, 0);
    if (value != NULL) {
        set(value, known.expr_program, program);
        set(value, known.expr_leaves, leaves);
        set(value, known.expr_made_by, made_by);
        set(value, known.expr_shape, shape);
        set(value, known.expr_node, Py_None);
        set(value, known.expr_variable, Py_None);
        set(value, known.expr_also, known.no_tuple);
        set(value, known.expr_since, since == NULL ? get(known.steps, known.steps_count) : since);
    }
    Py_XDECREF(since);
    return value;
}

/* As `Cell.__init__`, while nobody watches. */
PyObject *
new_cell(PyObject *array, PyObject *node, PyObject *output)
{
    Py_INCREF(array); /* of another leaf, which may be given others meanwhile */
    Py_INCREF(node);
    Py_INCREF(output);
    PyObject *cell = known.cell->tp_alloc(known.cell, 0);
    if (cell != NULL) {
        set(cell, known.cell_array, array);
        set(cell, known.cell_node, node);
        set(cell, known.cell_output, output);
        set(cell, known.cell_variable, Py_None);
        set(cell, known.cell_version, known.zero);
    }
    Py_DECREF(array);
    Py_DECREF(node);
    Py_DECREF(output);
    return cell;
}

/* Set the variable and version of a pending value or of a leaf. */
void
mark(PyObject *holder, PyObject *variable, PyObject *version)
{
    int is_leaf = Py_TYPE(holder) != known.expr;
    set(holder, is_leaf ? known.cell_variable : known.expr_variable, variable);
    set(holder, is_leaf ? known.cell_version : known.expr_version, version);
}

/* Set the values of a variable to one pending value. */
int
set_values(PyObject *variable, PyObject *value)
{
    PyObject *values = PyList_New(0);
    int status = values == NULL || note_in(values, value) < 0
                     ? -1
                     : PyObject_SetAttr(variable, s_values, values);
    Py_XDECREF(values);
    return status;
}

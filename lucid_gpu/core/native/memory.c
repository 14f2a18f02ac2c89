/* Views, and writes in place, where nothing is recorded. */
#include "core.h"

/* --- memory: views, and writes in place ------------------------------------------------------- */

struct Memory memory;

enum { OUTSIDE = 1 }; /* the mark SHARED: others may write the memory */

enum { A_LOAD = 1 << 8, WITHOUT_GRAD = 1 << 9 }; /* what `Entry.high` says of loads */

enum { MOST_NAMED = 2, MOST_WAITING = 512 }; /* WRITES_OF_A_NAME, MOST_WRITTEN of the scheduler */

/* Whether a list is so long that who adds to it forgets the dead first. */
static inline int
is_due(PyObject *list)
{
    Py_ssize_t count = PyList_GET_SIZE(list);
    return count > 8 && (count & (count - 1)) == 0;
}

/* Forget the dead of a list that is due. */
static int
tidy(PyObject *list)
{
    if (!is_due(list)) {
        return 0;
    }
    Py_INCREF(list);
    PyObject *living = PyList_New(0);
    int status = living == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; status == 0 && i < PyList_GET_SIZE(list); ++i) {
        PyObject *reference = PyList_GET_ITEM(list, i);
        if (refers_to(reference, NULL)) {
            status = PyList_Append(living, reference);
        }
    }
    if (status == 0) {
        status = PyList_SetSlice(list, 0, PyList_GET_SIZE(list), living);
    }
    Py_XDECREF(living);
    Py_DECREF(list);
    return status;
}

/* Whether an attribute is there and another object than `usual`; -1 with an error set. */
static int
has_other(PyObject *object, PyObject *name, PyObject *usual)
{
    int same = has(object, name, usual);
    return same < 0 ? -1 : !same;
}

/* The record that has the lists of a storage, borrowed; NULL for one that shows bits. */
static PyObject *
lists_of(PyObject *storage)
{
    if (Py_TYPE(storage) == memory.same_memory) {
        storage = get(storage, memory.memory);
    }
    return storage != NULL && Py_TYPE(storage) == memory.storage ? storage : NULL;
}

/* The storage of a tensor, made now if there was none; a new reference. NULL with an error set. */
static PyObject *
storage_of(PyObject *tensor)
{
    PyObject *storage = PyObject_GetAttr(tensor, s_storage);
    if (storage == Py_None) {
        Py_SETREF(storage, PyObject_CallMethodNoArgs(tensor, s_memory));
    }
    return storage;
}

/* `lucid_gpu.core.saved.variable_on`. */
static PyObject *
variable_on(PyObject *storage)
{
    PyObject *variable = known.variable->tp_alloc(known.variable, 0);
    if (variable != NULL && PyObject_SetAttr(variable, s_storage, storage) < 0) {
        Py_CLEAR(variable);
    }
    return variable;
}

/* `lucid_gpu.core.saved.counted`, of a leaf or of a pending value; a new reference. */
static PyObject *
counted(PyObject *holder, PyObject *storage)
{
    int is_leaf = Py_TYPE(holder) != known.expr;
    PyObject *variable = get(holder, is_leaf ? known.cell_variable : known.expr_variable);
    PyObject *own = NULL;
    if (variable != NULL && variable != Py_None) {
        Py_INCREF(variable);
        own = PyObject_GetAttr(variable, s_storage);
        Py_XDECREF(own);
        if (own == NULL || (own == Py_None && PyObject_SetAttr(variable, s_storage, storage) < 0)) {
            Py_DECREF(variable);
            return NULL;
        }
    }
    if (own == NULL || (own != Py_None && own != storage)) {
        if (own != NULL) {
            Py_DECREF(variable);
        }
        variable = variable_on(storage);
    }
    if (variable != NULL && !is_leaf) {
        int has_values = has_other(variable, s_values, Py_None);
        if (has_values < 0 || (has_values == 0 && set_values(variable, holder) < 0)) {
            Py_CLEAR(variable);
        }
    }
    if (variable != NULL) {
        mark(holder, variable, get(storage, memory.version));
    }
    return variable;
}

/* `lucid_gpu.core.saved.note_written`. */
static int
note_written(PyObject *object)
{
    PyObject *discard = PyObject_GetAttr(region.written, s_discard), *reference = NULL;
    if (discard != NULL) {
        reference = PyWeakref_NewRef(object, discard);
        Py_DECREF(discard);
    }
    int status = reference == NULL ? -1 : PySet_Add(region.written, reference);
    Py_XDECREF(reference);
    return status;
}

/* The same of a node that saved its own value, where there is such a one. */
static int
note_node(PyObject *node)
{
    if (node == NULL || node == Py_None) {
        return 0;
    }
    Py_INCREF(node);
    int saved = has_other(node, s_result, Py_None);
    int status = saved > 0 ? note_written(node) : saved;
    Py_DECREF(node);
    return status;
}

/* `lucid_gpu.core.saved.ended`, of a leaf; a new reference. */
static PyObject *
ended(PyObject *leaf, PyObject *storage)
{
    if (note_node(get(leaf, known.cell_node)) < 0) {
        return NULL;
    }
    PyObject *variable = get(leaf, known.cell_variable), *own, *values;
    if (variable == NULL || variable == Py_None) {
        return variable_on(storage);
    }
    Py_INCREF(variable);
    own = PyObject_GetAttr(variable, s_storage);
    values = own == NULL ? NULL : PyObject_GetAttr(variable, s_values);
    int status = values == NULL ? -1 : own != storage, noted = 0;
    for (Py_ssize_t i = 0; status == 0 && values != Py_None && i < PyList_GET_SIZE(values); ++i) {
        PyObject *one = referent(PyList_GET_ITEM(values, i));
        if (one != NULL) {
            noted = 1;
            status = note_written(one);
            Py_DECREF(one);
        }
    }
    if (status == 0 && !noted && values != Py_None) {
        status = PyObject_SetAttr(variable, s_values, Py_None);
    }
    Py_XDECREF(own);
    Py_XDECREF(values);
    if (status != 0 || noted) {
        Py_SETREF(variable, status < 0 ? NULL : variable_on(storage));
    }
    return variable;
}

/* `Storage.add_cell`. */
int
add_cell(PyObject *storage, PyObject *leaf)
{
    PyObject *record = lists_of(storage);
    int plain = record != NULL && tidy(get(record, memory.cells)) == 0 &&
                !has_other(leaf, s_sharers, Py_None) && !has_other(leaf, s_borrowed, Py_False);
    if (PyErr_Occurred()) {
        return -1;
    }
    if (!plain) {
        PyObject *args[] = {storage, leaf};
        PyObject *none = PyObject_VectorcallMethod(s_add_cell, args, 2, NULL);
        Py_XDECREF(none);
        return none == NULL ? -1 : 0;
    }
    PyObject *own = PyWeakref_NewRef(record, NULL);
    int there = own == NULL ? -1 : has_other(leaf, s_home, own);
    int status = there <= 0 ? there : PyObject_SetAttr(leaf, s_home, own);
    Py_XDECREF(own);
    return status < 0 || there == 0 ? status : note_in(get(record, memory.cells), leaf);
}

/* Whether a leaf has its array, and is of no kind that has more to say. */
static int
is_plain_leaf(PyObject *leaf)
{
    if (Py_TYPE(leaf) != known.cell || get(leaf, known.cell_array) == NULL) {
        return 0;
    }
    int waits = has_other(leaf, s_source, Py_None);
    return waits < 0 ? -1 : !waits;
}

/* `Cell.twin` of a plain leaf, while nobody watches. */
PyObject *
twin_of(PyObject *leaf, PyObject *node, PyObject *output)
{
    PyObject *other = new_cell(get(leaf, known.cell_array), node, output), *sharers = NULL;
    PyObject *home = other == NULL ? NULL : PyObject_GetAttr(leaf, s_home);
    PyObject *storage = home == NULL ? NULL : referent(home);
    int status = home == NULL || (storage != NULL && add_cell(storage, other) < 0) ? -1 : 0;
    Py_XDECREF(home);
    Py_XDECREF(storage);
    sharers = status < 0 ? NULL : PyObject_GetAttr(leaf, s_sharers);
    if (sharers == NULL) {
        Py_XDECREF(other);
        return NULL;
    }
    if (sharers != Py_None && !is_due(sharers)) { /* it has others */
        int borrowed = has_other(leaf, s_borrowed, Py_False);
        status = borrowed < 0 || note_in(sharers, other) < 0 ||
                         PyObject_SetAttr(other, s_sharers, sharers) < 0 ||
                         (borrowed && PyObject_SetAttr(other, s_borrowed, Py_True) < 0)
                     ? -1
                     : 0;
    }
    else if (sharers != Py_None) {
        PyObject *args[] = {leaf, other};
        PyObject *same = PyObject_VectorcallMethod(s_shares_with, args, 2, NULL);
        status = same == NULL ? -1 : 0;
        Py_XDECREF(same);
    }
    else {
        Py_SETREF(sharers, PyList_New(0));
        if (sharers == NULL || note_in(sharers, leaf) < 0 || note_in(sharers, other) < 0 ||
            PyObject_SetAttr(leaf, s_sharers, sharers) < 0 ||
            PyObject_SetAttr(other, s_sharers, sharers) < 0) {
            status = -1;
        }
        int borrowed = status < 0 ? -1 : has_other(leaf, s_borrowed, Py_False);
        status = borrowed > 0 ? PyObject_SetAttr(other, s_borrowed, Py_True) : borrowed;
    }
    Py_XDECREF(sharers);
    if (status < 0) {
        Py_CLEAR(other);
    }
    return other;
}

/* Whether nothing but tensors and arrays is about: no watcher, no level. */
static int
undisturbed(void)
{
    return !closed && PyList_GET_SIZE(made.open_levels) == 0 &&
           PyDict_GetItemWithError(known.watched, s_by) == Py_None;
}

/* Whether ops are recorded, 1, or not, 0, in the usual way; -1 in others, or with an error set. */
static int
recording(void)
{
    PyObject *now = mode(s_mode);
    return now == known.recorded ? 1 : now == known.off ? 0 : -1;
}

/* The same of ops on a value: inside `Function.forward` those are not that depend on constants alone. */
static int
recording_of(PyObject *value)
{
    int recorded = recording();
    if (recorded < 0 && mode(s_mode) == known.forward &&
        get(get(value, known.expr_program), known.program_independent) == Py_True) {
        return 0;
    }
    return recorded;
}

/* The leaf of a realized value, borrowed, where that is plain; NULL else, or with an error set. */
static PyObject *
leaf_of(PyObject *value)
{
    PyObject *leaves = get(value, known.expr_leaves);
    if (get(get(value, known.expr_program), known.program_is_load) != Py_True ||
        PyTuple_GET_SIZE(leaves) != 1) {
        return NULL;
    }
    PyObject *leaf = PyTuple_GET_ITEM(leaves, 0);
    return is_plain_leaf(leaf) > 0 ? leaf : NULL;
}

/* The usual case of `Unread.read`: the value, which is given to its tensor; a new reference. NULL
 * without an error where this is not the way. */
PyObject *
read_unread(PyObject *unread)
{
    if (closed) {
        return NULL;
    }
    PyObject *leaf = get(unread, memory.unread_leaf), *loads = get(unread, memory.unread_loads);
    PyObject *tensor = get(unread, memory.unread_found) == Py_None && is_plain_leaf(leaf) > 0
                           ? referent(get(unread, memory.unread_tensor))
                           : NULL;
    if (tensor == NULL || get(tensor, known.tensor_expr) != unread) {
        Py_XDECREF(tensor);
        return NULL;
    }
    PyObject *storage = storage_of(tensor), *variable = NULL, *base, *value = NULL;
    PyObject *record = storage == NULL ? NULL : lists_of(storage);
    PyObject *leaves = record == NULL ? NULL : PyTuple_Pack(1, leaf);
    if (leaves != NULL) {
        value = new_expr(loads, leaves, Py_None, get(unread, known.expr_shape), known.always);
        Py_DECREF(leaves);
    }
    if (value != NULL) {
        set(unread, memory.unread_found, value);
        set(tensor, known.tensor_expr, value);
        if (note_in(get(record, memory.read), tensor) < 0 || add_cell(storage, leaf) < 0 ||
            (variable = counted(leaf, storage)) == NULL) {
            Py_CLEAR(value);
        }
    }
    base = value == NULL ? NULL : PyObject_GetAttr(tensor, s_base);
    if (base != NULL && base != Py_None) {
        PyObject *version = get(unread, known.expr_version);
        PyObject *recorded = PyObject_GetAttr(base, s_recorded);
        int lost = get(loads, known.program_needs_grad) == Py_True &&
                   number_of(get(storage, memory.unrecorded)) > number_of(version);
        if (recorded == NULL) {
            Py_CLEAR(value);
        }
        else if (lost || number_of(recorded) > number_of(version)) {
            PyObject *args[] = {tensor, version};
            PyObject *none = PyObject_VectorcallMethod(s_catch_up, args, 2, NULL);
            if (none == NULL) {
                Py_CLEAR(value);
            }
            Py_XDECREF(none);
        }
        Py_XDECREF(recorded);
    }
    else if (base == NULL) {
        Py_CLEAR(value);
    }
    if (value != NULL) {
        Py_SETREF(value, Py_NewRef(get(tensor, known.tensor_expr)));
        set(unread, memory.unread_found, value);
    }
    Py_XDECREF(base);
    Py_XDECREF(variable);
    Py_XDECREF(storage);
    Py_DECREF(tensor);
    return value;
}

PyDoc_STRVAR(settled_doc,
"settled(tensor, value, array)\n"
"--\n\n"
"Give a tensor the array of its value, which a kernel computed: `Tensor._settle` and\n"
"`lucid_gpu.fusion.scheduler.mark_computed`. False where this is not the way; all is as it was.");

static PyObject *
settled(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "settled() takes a tensor, a value and an array");
        return NULL;
    }
    PyObject *value = args[1], *program = NULL, *load, *storage = NULL, *leaves;
    if (undisturbed() && PyObject_TypeCheck(args[0], known.tensor) &&
        Py_TYPE(value) == known.expr && PyArray_CheckExact(args[2]) &&
        PyArray_IS_C_CONTIGUOUS((PyArrayObject *)args[2])) {
        program = get(value, known.expr_program);
        leaves = get(value, known.expr_leaves);
        load = get(program, known.program_stored);
        Py_ssize_t last = PyTuple_GET_SIZE(leaves) - 1;
        if (load != NULL && load != Py_None && get(program, known.program_laid) == Py_False &&
            (get(program, known.program_is_boundary) != Py_True ||
             (last >= 0 && Py_TYPE(PyTuple_GET_ITEM(leaves, last)) == known.cell))) {
            storage = own_storage(args[0]);
        }
    }
    if (storage == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_False);
    }
    Py_INCREF(program);
    load = Py_NewRef(get(program, known.program_stored));
    int status = mark_computed(value, 0) < 0 ||
                         settle(args[0], storage, value, program, load, args[2]) < 0
                     ? -1
                     : 1;
    Py_DECREF(load);
    Py_DECREF(program);
    Py_DECREF(storage);
    return status < 0 ? NULL : Py_NewRef(Py_True);
}

/* --- views ------------------------------------------------------------------------------------ */

/* What is viewed; new references. */
typedef struct {
    PyObject *value, *storage, *base, *steps;
    PyObject *creation; /* why recorded ops must not write the view, or NULL; not counted */
    int follows;        /* whether it requires grad because its base does */
    int recorded;
} Viewed;

static void
forget_viewed(Viewed *viewed)
{
    Py_CLEAR(viewed->value);
    Py_CLEAR(viewed->storage);
    Py_CLEAR(viewed->base);
    Py_CLEAR(viewed->steps);
}

/* Note why recorded ops must not write a tensor, where that is usual. -1 with an error set. */
static int
find_creation(PyObject *input, Viewed *viewed)
{
    PyObject *creation = PyObject_GetAttr(input, s_creation);
    int usual = creation == NULL ? -1 : creation == Py_None;
    PyObject *const reasons[] = {s_no_grad, s_multiple};
    for (int i = 0; usual == 0 && i < 2; ++i) {
        if (PyUnicode_Check(creation) && PyUnicode_Compare(creation, reasons[i]) == 0) {
            viewed->creation = reasons[i];
            usual = 1;
        }
    }
    Py_XDECREF(creation);
    return usual;
}

/* Look at a tensor that is to be viewed, once or in several parts, or where the view may be recorded.
 * Returns whether that is usual, or -1 with an error set. */
static int
look_at(PyObject *input, Viewed *viewed, int several, int records)
{
    *viewed = (Viewed){NULL, NULL, NULL, NULL, NULL, 0, 0};
    if (undisturbed() && PyObject_TypeCheck(input, known.tensor)) {
        viewed->value = value_of(input);
    }
    int grad = viewed->value == NULL ? -1 : recording_of(viewed->value);
    if (grad < 0) {
        forget_viewed(viewed);
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *program = get(viewed->value, known.expr_program);
    int needs = get(program, known.program_needs_grad) != Py_False;
    PyObject *watchers = PyDict_GetItemWithError(made.modes, s_watchers);
    int usual = leaf_of(viewed->value) != NULL &&
                (number_of(get(program, known.program_marks)) & ~OUTSIDE) == 0 &&
                get(program, known.program_free) == Py_False &&
                (!needs || (get(program, known.program_needs_grad) == Py_True &&
                            (!grad || (records && get(program, known.program_marks) == known.zero)))) &&
                watchers != NULL && (watchers == known.zero || mode(s_off) == known.off);
    if (usual) {
        viewed->storage = storage_of(input);
        viewed->base = viewed->storage == NULL ? NULL : PyObject_GetAttr(input, s_base);
        viewed->steps = viewed->base == NULL ? NULL : PyObject_GetAttr(input, s_steps);
        usual = viewed->steps != NULL && lists_of(viewed->storage) != NULL &&
                find_creation(input, viewed) > 0;
    }
    viewed->creation = !grad ? s_no_grad : several ? s_multiple : viewed->creation;
    viewed->follows = needs && !grad;
    viewed->recorded = needs && grad;
    if (!usual || PyErr_Occurred()) {
        forget_viewed(viewed);
        return PyErr_Occurred() ? -1 : 0;
    }
    return 1;
}

/* The program of an array that reads the memory of another one, a new reference. */
static PyObject *
program_of_view(PyObject *program, PyArrayObject *array)
{
    int rank = PyArray_NDIM(array), strided = !PyArray_IS_C_CONTIGUOUS(array);
    Entry key = {.op = memory.load_program, .a = program, .high = A_LOAD | (uint64_t)rank << 1};
    key.high |= (uint64_t)strided;
    for (int i = 0; i < rank; ++i) {
        key.low |= class_of(PyArray_DIM(array, i)) << (2 * i);
    }
    PyObject *load = rank > 32 ? NULL : found(&key);
    if (load == NULL) {
        PyObject *shape = PyObject_GetAttr((PyObject *)array, s_shape);
        PyObject *args[] = {get(program, known.program_dtype), shape, strided ? Py_True : Py_False,
                            Py_False, get(program, known.program_device), get(program, known.program_marks)};
        load = shape == NULL ? NULL : PyObject_Vectorcall(memory.load_program, args, 6, NULL);
        Py_XDECREF(shape);
        if (load != NULL && rank <= 32) {
            remember(&key, load);
        }
    }
    return load;
}

/* Note a tensor on a storage, and its leaf if there is one: `Storage.add`. */
static int
add_to(PyObject *storage, PyObject *tensor, PyObject *leaf)
{
    PyObject *record = lists_of(storage);
    if (tidy(get(record, memory.tensors)) < 0 || tidy(get(record, memory.read)) < 0 ||
        note_in(get(record, memory.tensors), tensor) < 0 ||
        note_in(get(record, memory.read), tensor) < 0) {
        return -1;
    }
    return leaf == NULL ? 0 : add_cell(storage, leaf);
}

/* Give a view what it knows of its memory and its base: `lucid_gpu.ops.shape._share`. */
static int
share(PyObject *input, const Viewed *viewed, PyObject *tensor, PyObject *leaf, PyObject *step)
{
    PyObject *storage = viewed->storage, *version, *variable;
    int first = viewed->base == Py_None;
    PyObject *steps = PyTuple_Pack(2, first ? known.no_tuple : viewed->steps, step);
    int status = steps == NULL || PyObject_SetAttr(tensor, s_storage, storage) < 0 ||
                 PyObject_SetAttr(tensor, s_base, first ? input : viewed->base) < 0 ||
                 PyObject_SetAttr(tensor, s_steps, steps) < 0 || add_to(storage, tensor, leaf) < 0;
    Py_XDECREF(steps);
    variable = status ? NULL : variable_on(storage);
    if (variable == NULL) {
        return -1;
    }
    version = get(storage, memory.version);
    mark(leaf, variable, version);
    Py_DECREF(variable);
    if (number_of(version) != 0 && PyObject_SetAttr(tensor, s_since, version) < 0) {
        return -1;
    }
    if (viewed->creation != NULL && PyObject_SetAttr(tensor, s_creation, viewed->creation) < 0) {
        return -1;
    }
    PyObject *none = viewed->follows ? PyObject_CallOneArg(memory.follow_base, tensor) : NULL;
    Py_XDECREF(none);
    return viewed->follows && none == NULL ? -1 : 0;
}

/* A view of what was looked at, whose array is this. */
static PyObject *
viewing(PyObject *input, const Viewed *viewed, PyObject *array, PyObject *step)
{
    PyObject *program = get(viewed->value, known.expr_program), *leaf, *leaves, *shape;
    PyObject *tensor = NULL;
    PyObject *load = program_of_view(program, (PyArrayObject *)array), *value = NULL;
    leaf = load == NULL ? NULL : new_cell(array, Py_None, known.zero);
    leaves = leaf == NULL ? NULL : PyTuple_Pack(1, leaf);
    shape = leaves == NULL ? NULL : PyObject_GetAttr(array, s_shape);
    if (shape != NULL) {
        value = new_expr(load, leaves, Py_None, shape, known.always);
        Py_DECREF(shape);
    }
    if (value != NULL) {
        tensor = new_tensor(value);
        Py_DECREF(value);
    }
    if (tensor != NULL && share(input, viewed, tensor, leaf, step) < 0) {
        Py_CLEAR(tensor);
    }
    Py_XDECREF(load);
    Py_XDECREF(leaf);
    Py_XDECREF(leaves);
    return tensor;
}

PyDoc_STRVAR(base_array_doc,
"base_array(input)\n"
"--\n\n"
"The array to take a view of: `lucid_gpu.ops.shape._base_array`.");

static PyObject *
base_array(PyObject *Py_UNUSED(module), PyObject *input)
{
    PyObject *value = NULL, *leaf = NULL, *storage = NULL, *array = NULL;
    if (undisturbed() && PyObject_TypeCheck(input, known.tensor)) {
        storage = PyObject_GetAttr(input, s_storage);
        if (storage == Py_None || (storage != NULL && lists_of(storage) != NULL)) {
            value = value_of(input);
        }
        Py_XDECREF(storage);
    }
    if (value != NULL && get(get(value, known.expr_program), known.program_is_load) != Py_True) {
        PyObject *stored = store(NULL, input);
        Py_SETREF(value, stored == Py_True ? value_of(input) : NULL);
        Py_XDECREF(stored);
    }
    leaf = value == NULL ? NULL : leaf_of(value);
    if (leaf != NULL && !PyTuple_Check(get(get(value, known.expr_program), known.program_free)) &&
        has_other(leaf, s_borrowed, Py_False) == 0) {
        array = Py_NewRef(get(leaf, known.cell_array));
    }
    Py_XDECREF(value);
    return array != NULL ? array : in_general(memory.base_array, &input, 1, NULL);
}

/* A view of what was looked at that is recorded, by the arguments of `view_of`. */
static PyObject *
recorded_view(const Viewed *viewed, PyObject *const *args, PyObject *names)
{
    enum { GIVEN = 8, MOST = 24 };
    Py_ssize_t others = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    PyObject *program = get(viewed->value, known.expr_program);
    PyObject *inputs = PyTuple_Pack(1, args[0]), *view = NULL, *value = NULL;
    PyObject *given[MOST] = {args[1], args[2], inputs, args[3], known.no_tuple,
                             get(program, known.program_dtype), Py_False, Py_True};
    if (inputs != NULL && others <= MOST - GIVEN) {
        memcpy(given + GIVEN, args + 5, (size_t)others * sizeof *args);
        view = record(NULL, given, GIVEN, names);
        value = view == NULL ? NULL : value_of(view);
    }
    PyObject *leaf = value == NULL ? NULL : PyTuple_GET_ITEM(get(value, known.expr_leaves), 0);
    if (leaf == NULL || Py_TYPE(leaf) != known.cell ||
        share(args[0], viewed, view, leaf, args[4]) < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_RuntimeError, "view_of(): a view that has no leaf of its own");
        }
        Py_CLEAR(view);
    }
    Py_XDECREF(inputs);
    Py_XDECREF(value);
    return view;
}

PyDoc_STRVAR(view_of_doc,
"view_of(input, name, array, vjp, step, **attributes)\n"
"--\n\n"
"A view: the usual case of `lucid_gpu.ops.shape._view_of`.");

static PyObject *
view_of(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    int usual = count == 5 && PyArray_CheckExact(args[2]);
    for (Py_ssize_t i = 0; usual && names != NULL && i < PyTuple_GET_SIZE(names); ++i) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        usual = PyUnicode_Compare(name, s_dtype) != 0 && PyUnicode_Compare(name, s_bits) != 0;
    }
    Viewed viewed;
    int status = usual ? look_at(args[0], &viewed, 0, 1) : 0;
    if (status <= 0) {
        return in_general(memory.view_of, args, count, names);
    }
    PyObject *view = viewed.recorded ? recorded_view(&viewed, args, names)
                                     : viewing(args[0], &viewed, args[2], args[4]);
    forget_viewed(&viewed);
    return view;
}

/* A part of a dimension of an array, or one position of it where `length` is 0. */
static PyObject *
part_of(PyArrayObject *array, int dim, npy_intp start, npy_intp length)
{
    npy_intp shape[NPY_MAXDIMS], strides[NPY_MAXDIMS];
    int rank = 0, flags = PyArray_FLAGS(array) & NPY_ARRAY_WRITEABLE;
    for (int i = 0; i < PyArray_NDIM(array); ++i) {
        if (i != dim || length != 0) {
            shape[rank] = i == dim ? length : PyArray_DIM(array, i);
            strides[rank++] = PyArray_STRIDE(array, i);
        }
    }
    Py_INCREF(PyArray_DESCR(array));
    PyObject *part = PyArray_NewFromDescr(
        &PyArray_Type, PyArray_DESCR(array), rank, shape, strides,
        PyArray_BYTES(array) + start * PyArray_STRIDE(array, dim), flags, NULL);
    if (part != NULL &&
        PyArray_SetBaseObject((PyArrayObject *)part, Py_NewRef((PyObject *)array)) < 0) {
        Py_CLEAR(part);
    }
    return part;
}

/* The index of such a part: slices before it, and an ellipsis. */
static PyObject *
index_of_part(int dim, npy_intp start, npy_intp length)
{
    PyObject *index = PyTuple_New(dim + 2), *all = PySlice_New(NULL, NULL, NULL);
    PyObject *from = PyLong_FromSsize_t(start), *to = PyLong_FromSsize_t(start + length), *own;
    own = length == 0 ? Py_XNewRef(from)
                      : from != NULL && to != NULL ? PySlice_New(from, to, NULL) : NULL;
    if (index != NULL && all != NULL && own != NULL) {
        for (int i = 0; i < dim; ++i) {
            PyTuple_SET_ITEM(index, i, Py_NewRef(all));
        }
        PyTuple_SET_ITEM(index, dim, Py_NewRef(own));
        PyTuple_SET_ITEM(index, dim + 1, Py_NewRef(Py_Ellipsis));
    }
    else {
        Py_CLEAR(index);
    }
    Py_XDECREF(all);
    Py_XDECREF(from);
    Py_XDECREF(to);
    Py_XDECREF(own);
    return index;
}

/* One of several views of an array. */
static PyObject *
view_part(PyObject *input, const Viewed *viewed, PyArrayObject *array, PyObject *const *function,
          const npy_intp *where)
{
    PyObject *part = part_of(array, (int)where[0], where[1], where[2]), *view = NULL;
    PyObject *index = part == NULL ? NULL : index_of_part((int)where[0], where[1], where[2]);
    PyObject *arguments = index == NULL ? NULL : PyTuple_Pack(2, index, function[1]);
    PyObject *step = arguments == NULL ? NULL : PyTuple_Pack(2, function[0], arguments);
    if (step != NULL) {
        view = viewing(input, viewed, part, step);
    }
    Py_XDECREF(part);
    Py_XDECREF(index);
    Py_XDECREF(arguments);
    Py_XDECREF(step);
    return view;
}

PyDoc_STRVAR(parts_doc,
"parts(input, dim, size, function, name)\n"
"--\n\n"
"Views of consecutive parts of a dimension, of one size, or of its positions where that is 0. Each\n"
"is ``function(input, index, name)``: the usual case of `lucid_gpu.ops.splitting._views_of`. None\n"
"where this is not the way.");

static PyObject *
parts(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    npy_intp where[3] = {0, 0, 0}, extent, size, number;
    if (count != 5 || !PyLong_Check(args[1]) || !PyLong_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "parts() takes a tensor, a dimension, a size, and how");
        return NULL;
    }
    where[0] = PyLong_AsSsize_t(args[1]);
    size = PyLong_AsSsize_t(args[2]);
    Viewed viewed;
    int status = PyErr_Occurred() ? -1 : size < 0 ? 0 : look_at(args[0], &viewed, 1, 0);
    if (status <= 0) {
        return status < 0 ? NULL : Py_NewRef(Py_None);
    }
    PyObject *leaf = leaf_of(viewed.value);
    PyObject *array = leaf == NULL ? NULL : Py_NewRef(get(leaf, known.cell_array));
    PyObject *all = NULL;
    if (array != NULL && PyArray_CheckExact(array) && has_other(leaf, s_borrowed, Py_False) == 0 &&
        where[0] >= 0 && where[0] < PyArray_NDIM((PyArrayObject *)array) &&
        PyArray_SIZE((PyArrayObject *)array) != 0) {
        extent = PyArray_DIM((PyArrayObject *)array, (int)where[0]);
        size = size > extent ? extent : size;
        number = size == 0 ? extent : (extent - 1) / size + 1;
        all = PyTuple_New(number);
        for (npy_intp i = 0; all != NULL && i < number; ++i) {
            where[1] = size == 0 ? i : i * size;
            where[2] = where[1] + size > extent ? extent - where[1] : size;
            PyObject *view = view_part(args[0], &viewed, (PyArrayObject *)array, args + 3, where);
            if (view == NULL) {
                Py_CLEAR(all);
            }
            else {
                PyTuple_SET_ITEM(all, i, view);
            }
        }
    }
    Py_XDECREF(array);
    forget_viewed(&viewed);
    return all != NULL || PyErr_Occurred() ? all : Py_NewRef(Py_None);
}

/* The extents of a shape argument, ints or one tuple of them, one of which may be -1, for so many
 * elements. Returns how many there are, or -1 where this is not the way. */
static int
read_extents(PyObject *sizes, npy_intp elements, npy_intp *extents)
{
    if (PyTuple_GET_SIZE(sizes) == 1 && PyTuple_CheckExact(PyTuple_GET_ITEM(sizes, 0))) {
        sizes = PyTuple_GET_ITEM(sizes, 0);
    }
    Py_ssize_t rank = PyTuple_GET_SIZE(sizes), inferred = -1;
    npy_intp known_ones = 1;
    for (Py_ssize_t i = 0; rank <= 32 && i < rank; ++i) {
        long long extent = number_of(PyTuple_GET_ITEM(sizes, i));
        if (extent == -1 && inferred < 0) {
            inferred = i;
        }
        else if (extent < 1 || extent > elements / known_ones) { /* or no int */
            return -1;
        }
        else {
            known_ones *= extents[i] = (npy_intp)extent;
        }
    }
    if (inferred >= 0) {
        extents[inferred] = elements / known_ones;
        known_ones *= extents[inferred];
    }
    return rank > 32 || known_ones != elements ? -1 : (int)rank;
}

PyDoc_STRVAR(reshaped_doc,
"reshaped(input, sizes, reshape)\n"
"--\n\n"
"A row-major tensor in another shape, not recorded: `lucid_gpu.ops.shape._in_shape`. None where\n"
"this is not the way.");

static PyObject *
reshaped(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 3 || !PyTuple_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "reshaped() takes a tensor, a tuple and a function");
        return NULL;
    }
    Viewed viewed;
    int status = look_at(args[0], &viewed, 0, 0), rank = -1;
    if (status <= 0) {
        return status < 0 ? NULL : Py_NewRef(Py_None);
    }
    npy_intp extents[NPY_MAXDIMS];
    PyObject *leaf = leaf_of(viewed.value);
    PyObject *array = leaf == NULL ? NULL : get(leaf, known.cell_array);
    PyObject *part = NULL, *view = NULL, *shape, *arguments, *step;
    if (array != NULL && PyArray_CheckExact(array) &&
        PyArray_IS_C_CONTIGUOUS((PyArrayObject *)array) &&
        has_other(leaf, s_borrowed, Py_False) == 0) {
        rank = read_extents(args[1], PyArray_SIZE((PyArrayObject *)array), extents);
    }
    if (rank >= 0) {
        PyArray_Dims dims = {extents, rank};
        part = PyArray_Newshape((PyArrayObject *)array, &dims, NPY_CORDER);
    }
    shape = part == NULL ? NULL : PyObject_GetAttr(part, s_shape);
    arguments = shape == NULL ? NULL : PyTuple_Pack(1, shape);
    step = arguments == NULL ? NULL : PyTuple_Pack(2, args[2], arguments);
    if (step != NULL) {
        view = viewing(args[0], &viewed, part, step);
    }
    Py_XDECREF(part);
    Py_XDECREF(shape);
    Py_XDECREF(arguments);
    Py_XDECREF(step);
    forget_viewed(&viewed);
    return view != NULL || PyErr_Occurred() ? view : Py_NewRef(Py_None);
}

static int is_plain_index(PyObject *index, PyObject *shape);

static PyObject *selected(PyObject *array, PyObject *index);

PyDoc_STRVAR(picked_doc,
"picked(input, index, function)\n"
"--\n\n"
"``input[index]`` for ints and slices by one, not recorded: `lucid_gpu.ops.indexing.picked`. That\n"
"is ``function(input, index, name)``. None where this is not the way.");

static PyObject *
picked(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "picked() takes a tensor, an index and a function");
        return NULL;
    }
    PyObject *leaf, *array = NULL, *part = NULL, *index = NULL, *pair = NULL, *step = NULL;
    PyObject *view = NULL;
    Viewed viewed;
    int seen = closed || PyList_GET_SIZE(engine.interpreters) != 0;
    int status = seen ? 0 : look_at(args[0], &viewed, 0, 0), of_one = 0;
    if (status <= 0) {
        return status < 0 ? NULL : Py_NewRef(Py_None);
    }
    leaf = leaf_of(viewed.value);
    if (leaf != NULL && has_other(leaf, s_borrowed, Py_False) == 0 &&
        is_plain_index(args[1], get(viewed.value, known.expr_shape))) {
        array = Py_NewRef(get(leaf, known.cell_array));
        part = PyArray_CheckExact(array) ? selected(array, args[1]) : NULL;
        Py_DECREF(array);
    }
    if (part != NULL && PyArray_SIZE((PyArrayObject *)part) != 0) {
        index = PyTuple_CheckExact(args[1]) ? Py_NewRef(args[1]) : PyTuple_Pack(1, args[1]);
    }
    for (Py_ssize_t i = 0; index != NULL && i < PyTuple_GET_SIZE(index); ++i) {
        of_one = of_one || PyLong_Check(PyTuple_GET_ITEM(index, i));
    }
    pair = index == NULL ? NULL : PyTuple_Pack(2, index, of_one ? s_select : s_slice);
    step = pair == NULL ? NULL : PyTuple_Pack(2, args[2], pair);
    if (step != NULL) {
        view = viewing(args[0], &viewed, part, step);
    }
    Py_XDECREF(part);
    Py_XDECREF(index);
    Py_XDECREF(pair);
    Py_XDECREF(step);
    forget_viewed(&viewed);
    return view != NULL || PyErr_Occurred() ? view : Py_NewRef(Py_None);
}

/* The program of a load without its gradient, a new reference. */
static PyObject *
load_without_grad(PyObject *program)
{
    if (get(program, known.program_independent) == Py_True) {
        return Py_NewRef(program);
    }
    Entry key = {.op = memory.load_program, .a = program, .high = A_LOAD | WITHOUT_GRAD};
    PyObject *load = found(&key);
    if (load == NULL) {
        load = PyObject_CallOneArg(memory.without_grad, program);
        if (load != NULL) {
            remember(&key, load);
        }
    }
    return load;
}

PyDoc_STRVAR(detached_doc,
"detached(tensor, record)\n"
"--\n\n"
"The same elements and memory, where they were computed: `lucid_gpu.tensor._detached`.");

static PyObject *
detached(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    PyObject *value = NULL, *leaf = NULL, *storage = NULL, *program = NULL, *tensor = NULL;
    int usual = count >= 1 && count <= 2 && undisturbed() &&
                PyObject_TypeCheck(args[0], known.tensor);
    value = usual ? value_of(args[0]) : NULL;
    leaf = value == NULL ? NULL : leaf_of(value);
    if (leaf != NULL &&
        (number_of(get(get(value, known.expr_program), known.program_marks)) & ~OUTSIDE) == 0 &&
        get(get(value, known.expr_program), known.program_free) == Py_False &&
        has_other(leaf, s_borrowed, Py_False) == 0) {
        storage = storage_of(args[0]);
    }
    if (storage == NULL || lists_of(storage) == NULL || (leaf = leaf_of(value)) == NULL) {
        Py_XDECREF(value);
        Py_XDECREF(storage);
        return in_general(memory.detached, args, count, NULL);
    }
    PyObject *other = twin_of(leaf, Py_None, known.zero), *leaves, *variable = NULL;
    leaves = other == NULL ? NULL : PyTuple_Pack(1, other);
    program = leaves == NULL ? NULL : load_without_grad(get(value, known.expr_program));
    if (program != NULL) {
        PyObject *apart = new_expr(program, leaves, Py_None, get(value, known.expr_shape),
                                   known.always);
        tensor = apart == NULL ? NULL : new_tensor(apart);
        Py_XDECREF(apart);
        Py_DECREF(program);
    }
    Py_XDECREF(leaves);
    Py_DECREF(value);
    if (tensor != NULL && count == 2 && args[1] != Py_None) {
        Py_SETREF(storage, PyObject_CallOneArg(args[1], storage));
    }
    int status = tensor == NULL || storage == NULL ||
                         PyObject_SetAttr(tensor, s_storage, storage) < 0 ||
                         add_to(storage, tensor, NULL) < 0
                     ? -1
                     : has_other(other, s_home, Py_None);
    if (status < 0 || (status == 0 && add_cell(storage, other) < 0) ||
        (variable = counted(other, storage)) == NULL) {
        Py_CLEAR(tensor);
    }
    Py_XDECREF(variable);
    Py_XDECREF(storage);
    Py_XDECREF(other);
    return tensor;
}

/* --- writes ----------------------------------------------------------------------------------- */

/* Store what this thread wrote in place, if that is one value: `lucid_gpu.tensor.store_written`.
 * Returns whether it did, or -1 with an error set. */
static int
store_one_written(PyObject *entries)
{
    PyObject *id, *entry, *tensor;
    Py_ssize_t place = 0;
    if (PyDict_GET_SIZE(entries) != 1 || !PyDict_Next(entries, &place, &id, &entry)) {
        return 0;
    }
    tensor = referent(PyTuple_GET_ITEM(entry, 0));
    if (tensor == NULL) {
        return 0;
    }
    PyObject *none = PyDict_New();
    int status = none == NULL || PyObject_SetAttr(known.state, s_written, none) < 0 ||
                         store_anyhow(tensor) < 0 /* it waits no longer */
                     ? -1
                     : 1;
    Py_XDECREF(none);
    Py_DECREF(tensor);
    return status;
}

PyDoc_STRVAR(store_written_doc,
"store_written()\n"
"--\n\n"
"Store what this thread wrote in place, if that is one value. False where this is not the way.");

static PyObject *
store_written(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    PyObject *entries = undisturbed() ? mode(s_written) : NULL;
    int status = entries == NULL ? (PyErr_Occurred() ? -1 : 0) : store_one_written(entries);
    return status < 0 ? NULL : PyBool_FromLong(status);
}

/* What a thread wrote of a tensor, borrowed: a tuple of a reference and a list; or NULL. */
static PyObject *
entry_of(PyObject *entries, PyObject *tensor)
{
    PyObject *id = PyLong_FromVoidPtr(tensor);
    PyObject *entry = id == NULL ? NULL : PyDict_GetItemWithError(entries, id);
    Py_XDECREF(id);
    return entry != NULL && refers_to(PyTuple_GET_ITEM(entry, 0), tensor) ? entry : NULL;
}

/* `lucid_gpu.fusion.scheduler.full`; -1 with an error set. */
static int
is_full(PyObject *entries, PyObject *tensor, PyObject *name)
{
    PyObject *entry = entry_of(entries, tensor);
    if (entry == NULL) {
        return PyErr_Occurred() ? -1 : PyDict_GET_SIZE(entries) >= MOST_WAITING;
    }
    PyObject *names = PyTuple_GET_ITEM(entry, 1);
    int times = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names); ++i) {
        PyObject *other = PyList_GET_ITEM(names, i);
        times += other == name || PyUnicode_Compare(other, name) == 0;
    }
    return times >= MOST_NAMED;
}

/* `lucid_gpu.fusion.scheduler.note_write`. */
static int
note_write(PyObject *entries, PyObject *tensor, PyObject *name)
{
    PyObject *entry = entry_of(entries, tensor);
    if (entry != NULL || PyErr_Occurred()) {
        return entry == NULL ? -1 : PyList_Append(PyTuple_GET_ITEM(entry, 1), name);
    }
    PyObject *reference = PyWeakref_NewRef(tensor, NULL), *names = PyList_New(0), *id = NULL;
    if (reference != NULL && names != NULL && PyList_Append(names, name) == 0) {
        id = PyLong_FromVoidPtr(tensor);
        entry = id == NULL ? NULL : PyTuple_Pack(2, reference, names);
    }
    int status = entry == NULL ? -1 : PyDict_SetItem(entries, id, entry);
    Py_XDECREF(reference);
    Py_XDECREF(names);
    Py_XDECREF(id);
    Py_XDECREF(entry);
    return status;
}

/* `lucid_gpu.ops.in_place._may_be_recorded`, of one operand; -1 with an error set. */
static int
is_recorded(PyObject *operand)
{
    if (!PyObject_TypeCheck(operand, known.tensor)) {
        return PyTuple_Check(operand) || PyList_Check(operand);
    }
    PyObject *value = value_of(operand);
    if (value == NULL) {
        return PyErr_Occurred() ? -1 : 1;
    }
    PyObject *program = get(value, known.expr_program);
    int may = get(program, known.program_needs_grad) != Py_False ||
              (number_of(get(program, known.program_marks)) & ~OUTSIDE) != 0;
    Py_DECREF(value);
    return may;
}

/* Whether no two elements of an array are one, as far as its steps tell. */
static int
is_apart(PyArrayObject *array)
{
    npy_intp reach = PyArray_ITEMSIZE(array) - 1, before = -1;
    if (PyArray_IS_C_CONTIGUOUS(array) || PyArray_SIZE(array) < 2) {
        return 1;
    }
    for (int n = PyArray_NDIM(array); n > 0; --n) { /* the narrowest step first */
        npy_intp least = NPY_MAX_INTP, span = 0;
        for (int i = 0; i < PyArray_NDIM(array); ++i) {
            npy_intp step = PyArray_STRIDE(array, i);
            step = step < 0 ? -step : step;
            if (PyArray_DIM(array, i) > 1 && step > before && step <= least) {
                if (step == least) {
                    return 0; /* two dimensions with one step */
                }
                least = step;
                span = step * (PyArray_DIM(array, i) - 1);
            }
        }
        if (least == NPY_MAX_INTP) {
            return 1;
        }
        if (least <= reach) {
            return 0;
        }
        reach += span;
        before = least;
    }
    return 1;
}

/* Whether an op in place may refuse a tensor, as several of its elements are one; -1 with an error
 * set. */
static int
may_repeat(PyObject *tensor)
{
    PyObject *value = value_of(tensor);
    if (value == NULL) {
        return PyErr_Occurred() ? -1 : 1;
    }
    PyObject *program = get(value, known.expr_program), *leaf;
    int may = 0;
    if (get(program, known.program_is_load) == Py_True &&
        PyTuple_GET_SIZE(get(program, known.program_strided)) != 0) {
        leaf = leaf_of(value);
        may = leaf == NULL || !PyArray_CheckExact(get(leaf, known.cell_array)) ||
              !is_apart((PyArrayObject *)get(leaf, known.cell_array));
    }
    Py_DECREF(value);
    return PyErr_Occurred() ? -1 : may;
}

PyDoc_STRVAR(before_write_doc,
"before_write(tensor, name, *beside)\n"
"--\n\n"
"The operand of an op in place, where nothing is recorded: `lucid_gpu.ops.in_place._before_write`.");

PyObject *
before_write(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    int usual = count >= 2 && undisturbed() && PyObject_TypeCheck(args[0], known.tensor) &&
                PyUnicode_Check(args[1]);
    PyObject *entries = usual ? mode(s_written) : NULL;
    int grad = entries != NULL && PyDict_Check(entries) ? recording() : -1;
    if (grad >= 0 && PyDict_GET_SIZE(entries) != 0) {
        int full = is_full(entries, args[0], args[1]);
        full = full > 0 ? store_one_written(entries) - 1 : full;
        if (full < 0 && !PyErr_Occurred()) { /* there are several */
            PyObject *none = PyObject_CallNoArgs(memory.store_written);
            Py_XDECREF(none);
        }
    }
    int recorded = PyErr_Occurred() || (grad >= 0 && may_repeat(args[0])) ? -1 : grad;
    if (recorded > 0) {
        recorded = is_recorded(args[0]);
    }
    for (Py_ssize_t i = 2; recorded == 0 && grad > 0 && i < count; ++i) {
        recorded = is_recorded(args[i]);
    }
    if (recorded == 0) {
        return Py_NewRef(args[0]);
    }
    return in_general(memory.before_write, args, count, NULL);
}

/* The usual case of `lucid_gpu.ops.in_place.read_anew`, of a realized tensor; `written` is the
 * record that has counted a write. */
static int
read_anew(PyObject *tensor, PyObject *written)
{
    PyObject *value = get(tensor, known.tensor_expr), *leaf = NULL, *storage, *variable;
    storage = PyObject_GetAttr(tensor, s_storage);
    leaf = Py_TYPE(value) == known.expr && storage != NULL ? leaf_of(value) : NULL;
    if (leaf == NULL || lists_of(storage) == NULL) {
        Py_XDECREF(storage);
        PyObject *args[] = {tensor, written};
        PyObject *none = in_general(memory.read_anew, args, 2, NULL);
        Py_XDECREF(none);
        return none == NULL ? -1 : 0;
    }
    Py_INCREF(value);
    Py_INCREF(leaf);
    variable = ended(leaf, storage);
    PyObject *fresh = variable == NULL ? NULL
                                       : new_cell(get(leaf, known.cell_array),
                                                  get(leaf, known.cell_node),
                                                  get(leaf, known.cell_output));
    PyTypeObject *type = known.unread;
    PyObject *unread = fresh == NULL ? NULL : type->tp_alloc(type, 0), *reference = NULL;
    PyObject *version = unread == NULL ? NULL
                                       : PyLong_FromLongLong(
                                             number_of(get(storage, memory.version)) -
                                             (storage == written));
    reference = version == NULL ? NULL : PyWeakref_NewRef(tensor, NULL);
    if (reference != NULL) {
        set(fresh, known.cell_variable, variable);
        set(unread, memory.unread_tensor, reference);
        set(unread, memory.unread_loads, get(value, known.expr_program));
        set(unread, memory.unread_leaf, fresh);
        set(unread, memory.unread_found, Py_None);
        set(unread, known.expr_version, version);
        set(unread, known.expr_shape, get(value, known.expr_shape));
        set(unread, known.expr_made_by, Py_None);
        set(unread, known.expr_node, Py_None);
        set(unread, known.expr_variable, Py_None);
        set(unread, known.expr_also, known.no_tuple);
        set(unread, known.expr_since, known.always);
        set(tensor, known.tensor_expr, unread);
    }
    int status = reference == NULL ? -1 : 0;
    Py_DECREF(value);
    Py_DECREF(leaf);
    Py_DECREF(storage);
    Py_XDECREF(variable);
    Py_XDECREF(fresh);
    Py_XDECREF(unread);
    Py_XDECREF(version);
    Py_XDECREF(reference);
    return status;
}

/* Whether those who have read a memory since the last write can be protected from one without
 * asking more: they are realized, and hold no gradient. Returns -1 with an error set. */
static int
are_plain(PyObject *references)
{
    int plain = 1;
    Py_INCREF(references);
    for (Py_ssize_t i = 0; plain == 1 && i < PyList_GET_SIZE(references); ++i) {
        PyObject *tensor = referent(PyList_GET_ITEM(references, i));
        PyObject *value = tensor == NULL ? NULL : get(tensor, known.tensor_expr);
        if (value != NULL && Py_TYPE(value) == known.expr) {
            PyObject *program = get(value, known.expr_program);
            plain = get(program, known.program_is_load) == Py_True;
            if (plain && get(program, known.program_needs_grad) == Py_True) {
                PyObject *own = PyObject_GenericGetDict(tensor, NULL);
                int retains = own == NULL ? -1 : PyDict_Contains(own, s_retains);
                plain = retains < 0 ? -1 : !retains;
                Py_XDECREF(own);
            }
        }
        else if (value != NULL) {
            plain = Py_TYPE(value) == known.unread &&
                    get(value, memory.unread_found) == Py_None;
        }
        Py_XDECREF(tensor);
    }
    Py_DECREF(references);
    return plain;
}

/* The usual case of `lucid_gpu.ops.in_place._protect_readers`, of those that `are_plain`, after a
 * write was counted. */
static int
protect_readers(PyObject *record, PyObject *storage)
{
    PyObject *fresh = PyList_New(0), *cells, *references;
    if (fresh == NULL) {
        return -1;
    }
    references = Py_NewRef(get(record, memory.read));
    set(record, memory.read, fresh);
    Py_DECREF(fresh);
    int status = 0;
    for (Py_ssize_t i = 0; status == 0 && i < PyList_GET_SIZE(references); ++i) {
        PyObject *tensor = referent(PyList_GET_ITEM(references, i));
        PyObject *own = tensor == NULL ? NULL : PyObject_GetAttr(tensor, s_storage);
        if (own != NULL && own != Py_None && lists_of(own) == record &&
            Py_TYPE(get(tensor, known.tensor_expr)) != known.unread) {
            status = read_anew(tensor, storage);
        }
        status = PyErr_Occurred() ? -1 : status;
        Py_XDECREF(own);
        Py_XDECREF(tensor);
    }
    Py_DECREF(references);
    fresh = status == 0 ? PyList_New(0) : NULL;
    if (fresh == NULL) {
        return -1;
    }
    cells = Py_NewRef(get(record, memory.cells));
    set(record, memory.cells, fresh);
    Py_DECREF(fresh);
    int living = 0; /* leaves that somebody holds, who gets a copy */
    for (Py_ssize_t i = 0; !living && i < PyList_GET_SIZE(cells); ++i) {
        living = refers_to(PyList_GET_ITEM(cells, i), NULL);
    }
    if (living) {
        PyObject *none = PyObject_CallOneArg(memory.copy_readers, cells);
        status = none == NULL ? -1 : 0;
        Py_XDECREF(none);
    }
    Py_DECREF(cells);
    return status;
}

/* Count a write by the op of this name: `Storage.count`. */
static int
count_write(PyObject *storage, PyObject *name)
{
    PyObject *version = PyLong_FromLongLong(number_of(get(storage, memory.version)) + 1);
    if (version == NULL) {
        return -1;
    }
    set(storage, memory.version, version);
    set(storage, memory.writer, name);
    Py_DECREF(version);
    return 0;
}

/* Where the elements of an array lie: the first byte and the one behind the last. */
static void
bounds_of(PyArrayObject *array, char **first, char **end)
{
    *first = PyArray_BYTES(array);
    *end = *first + PyArray_ITEMSIZE(array);
    for (int i = 0; i < PyArray_NDIM(array); ++i) {
        npy_intp span = PyArray_STRIDE(array, i) * (PyArray_DIM(array, i) - 1);
        *(span < 0 ? first : end) += span;
    }
}

/* The usual case of `lucid_gpu.devices.copies.write`, of arrays of one shape and type. */
static int
write_array(PyObject *out, PyObject *source)
{
    PyArrayObject *to = (PyArrayObject *)out, *from = (PyArrayObject *)source;
    if (!PyArray_CheckExact(source) || !PyArray_IS_C_CONTIGUOUS(from)) {
        PyObject *args[] = {out, source};
        PyObject *none = PyObject_Vectorcall(memory.put, args, 2, NULL);
        Py_XDECREF(none);
        return none == NULL ? -1 : 0;
    }
    if (PyArray_SIZE(to) == 0) {
        return 0;
    }
    char *a, *behind_a, *b, *behind_b;
    bounds_of(to, &a, &behind_a);
    bounds_of(from, &b, &behind_b);
    if (a >= behind_b || b >= behind_a) {
        return PyArray_CopyInto(to, from);
    }
    PyObject *copy = PyArray_NewCopy(from, NPY_CORDER); /* NumPy's own way is wrong for some */
    int status = copy == NULL ? -1 : PyArray_CopyInto(to, (PyArrayObject *)copy);
    Py_XDECREF(copy);
    return status;
}

/* What is written, and what by; new references. */
typedef struct {
    PyObject *old, *new, *storage;
    PyObject *record; /* the storage's, borrowed */
    int grad;
    int shared; /* whether others lie on the memory */
} Write;

static void
forget_write(Write *w)
{
    Py_CLEAR(w->old);
    Py_CLEAR(w->new);
    Py_CLEAR(w->storage);
}

/* Whether a program's elements are computed in their own type; -1 with an error set. */
static int
computes_itself(PyObject *program)
{
    PyObject *type = get(program, known.program_dtype);
    int other = has_other(type, s_compute, type);
    return other < 0 ? -1 : !other;
}

/* Whether gradients are no affair of a base; -1 with an error set. */
static int
is_without_grad(PyObject *base)
{
    PyObject *value = get(base, known.tensor_expr), *program;
    int unread = value != NULL && Py_TYPE(value) == known.unread;
    if (value == NULL || (!unread && Py_TYPE(value) != known.expr)) {
        return 0;
    }
    program = unread ? get(value, memory.unread_loads) : get(value, known.expr_program);
    return get(program, known.program_needs_grad) == Py_False;
}

/* See who lies on the memory beside a tensor. Returns 1, or 0 where that is to be looked at, or -1
 * with an error set. */
static int
look_beside(PyObject *tensor, PyObject *base, Write *w)
{
    PyObject *tensors = get(w->record, memory.tensors);
    int base_alone = 0;
    w->shared = 0;
    for (Py_ssize_t i = 0; !w->shared && i < PyList_GET_SIZE(tensors); ++i) {
        PyObject *other = referent(PyList_GET_ITEM(tensors, i));
        if (other != NULL && other != tensor) {
            int held = other != base || Py_REFCNT(other) > 3; /* the attribute, the caller, we */
            base_alone = base_alone || !held; /* which is let go of */
            w->shared = held;
        }
        Py_XDECREF(other);
    }
    return w->shared || !base_alone;
}

/* `Storage.is_lent`; -1 with an error set. */
static int
is_lent(PyObject *record)
{
    if (get(record, memory.owner) == Py_None) {
        return 0;
    }
    PyObject *lent = PyObject_CallMethodNoArgs(record, s_is_lent);
    Py_XDECREF(lent);
    return lent == NULL ? -1 : lent == Py_True;
}

/* The storage of a tensor that is to be written, made as `_write` does if there was none. */
static PyObject *
storage_to_write(PyObject *tensor, PyObject *value)
{
    PyObject *storage = PyObject_GetAttr(tensor, s_storage), *args[] = {tensor, known.no_tuple};
    if (storage != Py_None) {
        return storage;
    }
    int stored = get(get(value, known.expr_program), known.program_is_load) == Py_True;
    PyObject *holder = stored ? PyTuple_GET_ITEM(get(value, known.expr_leaves), 0) : value;
    Py_SETREF(storage, PyObject_Vectorcall((PyObject *)memory.storage, args, 2, NULL));
    PyObject *variable = storage == NULL || PyObject_SetAttr(tensor, s_storage, storage) < 0
                             ? NULL
                             : counted(holder, storage);
    if (variable == NULL) {
        Py_CLEAR(storage);
    }
    Py_XDECREF(variable);
    return storage;
}

/* Whether a write is usual. Returns -1 with an error set. */
static int
look_at_write(PyObject *tensor, PyObject *value, Write *w)
{
    *w = (Write){NULL, NULL, NULL, NULL, -1, 0};
    if (!undisturbed() || PyDict_GET_SIZE(memory.held) || tensor == value ||
        !PyObject_TypeCheck(tensor, known.tensor) || !PyObject_TypeCheck(value, known.tensor) ||
        (w->grad = recording()) < 0 || (w->new = value_of(value)) == NULL ||
        (w->old = value_of(tensor)) == NULL || w->old == w->new ||
        get(value, known.tensor_expr) != w->new) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *a = get(w->old, known.expr_program), *b = get(w->new, known.expr_program);
    PyObject *base, *shape = get(w->old, known.expr_shape), *other = get(w->new, known.expr_shape);
    int usual = (number_of(get(a, known.program_marks)) & ~OUTSIDE) == 0 &&
                (number_of(get(b, known.program_marks)) & ~OUTSIDE) == 0 &&
                get(b, known.program_independent) == Py_True &&
                (!w->grad || get(a, known.program_needs_grad) == Py_False) &&
                get(a, known.program_dtype) == get(b, known.program_dtype) &&
                get(a, known.program_device) == get(b, known.program_device);
    if (usual && shape != other) {
        usual = PyObject_RichCompareBool(shape, other, Py_EQ);
    }
    usual = usual > 0 ? computes_itself(a) : usual;
    if (usual <= 0) {
        return usual;
    }
    w->storage = storage_to_write(tensor, w->old);
    w->record = w->storage == NULL ? NULL : lists_of(w->storage);
    int lent = w->record == NULL ? -1 : is_lent(w->record);
    int shown = lent < 0 || get(w->record, memory.mirrors) != Py_None;
    base = shown ? NULL : PyObject_GetAttr(tensor, s_base);
    if (base == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    usual = base == Py_None || !w->grad || is_without_grad(base);
    w->shared = lent;
    usual = usual && !lent ? look_beside(tensor, base, w) : usual;
    Py_DECREF(base);
    return usual && (!w->shared || lent || number_of(get(a, known.program_marks)) == 0);
}

/* A value that is written where it was read: through a leaf of its own, in `w->new`. As of
 * `lucid_gpu.ops.in_place._reading_afresh`. Returns whether that is usual, -1 with an error set. */
static int
read_afresh(Write *w, PyObject *leaf)
{
    PyObject *leaves = get(w->new, known.expr_leaves), *program = get(w->new, known.expr_program);
    Py_ssize_t count = PyTuple_GET_SIZE(leaves), reads = 0;
    if (get(program, known.program_is_load) == Py_True &&
        (count != 1 || Py_TYPE(PyTuple_GET_ITEM(leaves, 0)) != known.cell ||
         get(PyTuple_GET_ITEM(leaves, 0), known.cell_node) != Py_None)) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; ++i) {
        reads += PyTuple_GET_ITEM(leaves, i) == leaf;
    }
    if (!reads) {
        return 1;
    }
    PyObject *twin = twin_of(leaf, get(leaf, known.cell_node), get(leaf, known.cell_output));
    PyObject *own = twin == NULL ? NULL : PyTuple_New(count), *value = NULL;
    for (Py_ssize_t i = 0; own != NULL && i < count; ++i) {
        PyObject *one = PyTuple_GET_ITEM(leaves, i);
        PyTuple_SET_ITEM(own, i, Py_NewRef(one == leaf ? twin : one));
    }
    if (own != NULL) {
        int stored = get(program, known.program_is_load) == Py_True;
        value = new_expr(program, own, get(w->new, known.expr_made_by),
                         get(w->new, known.expr_shape), stored ? known.always : NULL);
        Py_DECREF(own);
    }
    Py_XDECREF(twin);
    if (value == NULL) {
        return -1;
    }
    Py_SETREF(w->new, value);
    return 1;
}

/* The edge of a leaf that requires grad, whose history stays what it was; new references. Returns
 * whether that is usual, -1 with an error set. */
static int
find_edge(PyObject *value, PyObject **node, PyObject **output)
{
    PyObject *program = get(value, known.expr_program), *leaves = get(value, known.expr_leaves);
    if (get(program, known.program_is_load) != Py_True &&
        get(program, known.program_is_boundary) != Py_True) {
        return 0;
    }
    PyObject *leaf = PyTuple_GET_ITEM(leaves, PyTuple_GET_SIZE(leaves) - 1);
    PyObject *found = Py_TYPE(leaf) == known.cell ? get(leaf, known.cell_node) : NULL;
    if (found == NULL || (PyObject *)Py_TYPE(found) != (PyObject *)engine.leaf) {
        return 0;
    }
    int hooked = has_other(found, s_hooks, Py_None);
    if (hooked == 0) {
        *node = Py_NewRef(found);
        *output = Py_NewRef(get(leaf, known.cell_output));
    }
    return hooked < 0 ? -1 : !hooked;
}

/* Send the gradient of a tensor that was written, and took a value, to this node: as of
 * `Tensor._attach`. */
static int
attach(PyObject *tensor, PyObject *value, PyObject *node, PyObject *output)
{
    PyObject *program = get(value, known.expr_program);
    PyObject *pair = NULL, *leaves = NULL, *cell = NULL, *own = NULL;
    PyObject *args[] = {tensor, node, output};
    int stored = get(program, known.program_is_load) == Py_True;
    if (!stored && get(tensor, known.tensor_expr) == value) {
        pair = PyDict_GetItemWithError(custom.boundaries, program);
        Py_XINCREF(pair); /* programs may be forgotten meanwhile */
    }
    if (pair == NULL) {
        PyObject *none =
            PyErr_Occurred() ? NULL : PyObject_VectorcallMethod(s_attach, args, 3, NULL);
        Py_XDECREF(none);
        if (none == NULL) {
            return -1;
        }
    }
    else {
        PyObject *before = get(value, known.expr_leaves), *kept = PyTuple_GET_ITEM(pair, 1);
        Py_ssize_t count = PyTuple_GET_SIZE(kept == Py_None ? before : kept);
        cell = new_cell(Py_None, node, output);
        leaves = cell == NULL ? NULL : PyTuple_New(count + 1);
        for (Py_ssize_t i = 0; leaves != NULL && i < count; ++i) {
            Py_ssize_t at = kept == Py_None ? i : PyLong_AsSsize_t(PyTuple_GET_ITEM(kept, i));
            PyTuple_SET_ITEM(leaves, i, Py_NewRef(PyTuple_GET_ITEM(before, at)));
        }
        if (leaves != NULL) {
            PyTuple_SET_ITEM(leaves, count, Py_NewRef(cell));
        }
        own = leaves == NULL ? NULL
                             : new_expr(PyTuple_GET_ITEM(pair, 0), leaves, Py_None,
                                        get(value, known.expr_shape), NULL);
        Py_XDECREF(cell);
        Py_XDECREF(leaves);
        Py_DECREF(pair);
        if (own == NULL) {
            return -1;
        }
        mark(own, get(value, known.expr_variable), get(value, known.expr_version));
        set(tensor, known.tensor_expr, own);
        Py_DECREF(own);
    }
    if (!stored) { /* `lucid_gpu.fusion.scheduler.mark_written` */
        set(get(tensor, known.tensor_expr), known.expr_since, known.leaf_written);
    }
    return 0;
}

/* Have a value be what a tensor holds from now on: `lucid_gpu.core.saved.taken`. */
static int
take(PyObject *value, PyObject *variable, PyObject *version)
{
    int stored = get(get(value, known.expr_program), known.program_is_load) == Py_True;
    PyObject *holder = stored ? PyTuple_GET_ITEM(get(value, known.expr_leaves), 0) : value;
    PyObject *before = get(holder, stored ? known.cell_variable : known.expr_variable);
    if (before != NULL && before != Py_None) {
        PyObject *args[] = {value, variable, version};
        PyObject *none = PyObject_Vectorcall(memory.taken, args, 3, NULL);
        Py_XDECREF(none);
        return none == NULL ? -1 : 0;
    }
    mark(holder, variable, version);
    return stored ? 0 : set_values(variable, value);
}

/* The variable of a tensor after a write, and the values that the one before had; new. */
static int
next_variable(const Write *w, PyObject *holder, int stored, PyObject **variable, PyObject **values)
{
    PyObject *before = get(holder, stored ? known.cell_variable : known.expr_variable);
    int counts = before == NULL || before == Py_None ? 1 : has_other(before, s_storage, w->storage);
    before = counts < 0 ? NULL : counts ? counted(holder, w->storage) : Py_NewRef(before);
    *values = before == NULL ? NULL : PyObject_GetAttr(before, s_values);
    if (*values == NULL) {
        Py_XDECREF(before);
        return -1;
    }
    if (stored && *values == Py_None) {
        *variable = before;
        return 0;
    }
    *variable = stored ? ended(holder, w->storage) : variable_on(w->storage);
    Py_DECREF(before);
    return *variable == NULL ? -1 : 0;
}

/* Note, as among the written, the values of a variable that are alive. */
static int
note_values(PyObject *values)
{
    int status = 0;
    for (Py_ssize_t i = 0; status == 0 && values != Py_None && i < PyList_GET_SIZE(values); ++i) {
        PyObject *one = referent(PyList_GET_ITEM(values, i));
        status = one == NULL ? 0 : note_written(one);
        Py_XDECREF(one);
    }
    return status;
}

/* Let a tensor have the new value, whose variable and version that has. */
static int
give_value(PyObject *tensor, Write *w, PyObject *name)
{
    PyObject *program = get(w->new, known.expr_program), *leaves = get(w->new, known.expr_leaves);
    set(tensor, known.tensor_expr, w->new);
    if (get(program, known.program_is_load) == Py_True) {
        PyObject *leaf = PyTuple_GET_ITEM(leaves, 0);
        int borrowed = has_other(leaf, s_borrowed, Py_False);
        PyObject *cells = get(w->record, memory.cells);
        return borrowed <= 0 || is_due(cells) ? add_cell(w->storage, leaf) : note_in(cells, leaf);
    }
    if (PyTuple_GET_SIZE(leaves) == 0 && PyObject_Size(get(program, known.program_instructions)) <= 2) {
        return 0;
    }
    PyObject *entries = mode(s_written);
    return entries == NULL ? -1 : note_write(entries, tensor, name);
}

/* The write to a tensor that is alone on its memory. Returns 0 where this is not the way. */
static int
write_alone(PyObject *tensor, Write *w, PyObject *name)
{
    PyObject *a = get(w->old, known.expr_program), *b = get(w->new, known.expr_program);
    PyObject *node = NULL, *output = NULL, *variable = NULL, *values = NULL, *leaf = NULL, *fresh;
    int stored = get(a, known.program_is_load) == Py_True;
    if (w->storage != w->record || get(a, known.program_laid) != Py_False ||
        get(b, known.program_laid) != Py_False || number_of(get(b, known.program_marks)) != 0 ||
        PyTuple_GET_SIZE(get(a, known.program_strided)) ||
        (stored && (leaf = leaf_of(w->old)) == NULL)) {
        return PyErr_Occurred() ? -1 : 0;
    }
    int status = get(a, known.program_needs_grad) == Py_True ? find_edge(w->old, &node, &output) : 1;
    if (status > 0 && stored) {
        status = read_afresh(w, leaf);
    }
    else if (status > 0 && get(b, known.program_is_load) == Py_True) {
        status = Py_TYPE(PyTuple_GET_ITEM(get(w->new, known.expr_leaves), 0)) == known.cell;
    }
    if (status > 0 &&
        next_variable(w, stored ? leaf : w->old, stored, &variable, &values) < 0) {
        status = -1;
    }
    if (status > 0 && PyList_GET_SIZE(get(w->record, memory.cells)) > 1) {
        fresh = PyList_New(0);
        status = fresh == NULL ? -1 : 1;
        if (fresh != NULL) {
            set(w->record, memory.cells, fresh); /* the tensor leaves their arrays */
            Py_DECREF(fresh);
        }
    }
    if (status > 0 && (count_write(w->storage, name) < 0 ||
                       take(w->new, variable, get(w->storage, memory.version)) < 0 ||
                       give_value(tensor, w, name) < 0 ||
                       (node != NULL && attach(tensor, w->new, node, output) < 0) ||
                       (!stored && note_node(get(w->old, known.expr_node)) < 0))) {
        status = -1;
    }
    Py_XDECREF(node);
    Py_XDECREF(output);
    Py_XDECREF(variable);
    if (status > 0 && !stored) {
        Py_CLEAR(w->old); /* unless others hold it */
        status = note_values(values) < 0 ? -1 : 1;
    }
    Py_XDECREF(values);
    return status;
}

/* Whether an array may be written elsewhere than through its tensor alone: `_writable`. */
static int
may_write(PyObject *array, const Write *w)
{
    return PyArray_CheckExact(array) && PyArray_ISWRITEABLE((PyArrayObject *)array) &&
           get(w->record, memory.read_only) == Py_False && is_apart((PyArrayObject *)array);
}

/* Count a write to memory that others may read, who keep what is there. */
static int
count_and_protect(Write *w, PyObject *name)
{
    if (count_write(w->storage, name) < 0 || protect_readers(w->record, w->storage) < 0) {
        return -1;
    }
    set(w->storage, memory.unrecorded, get(w->storage, memory.version)); /* `refuse_views` */
    return 0;
}

/* The array of a value, computed now if it is pending; a new reference. NULL with an error set. */
static PyObject *
array_of(PyObject *tensor)
{
    PyObject *value = get(tensor, known.tensor_expr);
    if (Py_TYPE(value) == known.expr &&
        get(get(value, known.expr_program), known.program_is_load) != Py_True) {
        PyObject *stored = store(NULL, tensor);
        Py_XDECREF(stored);
        if (stored == NULL) {
            return NULL;
        }
    }
    return PyObject_GetAttr(tensor, s_array);
}

/* The write to memory on which others lie. Returns 0 where this is not the way. */
static int
write_shared(PyObject *tensor, PyObject *value, Write *w, PyObject *name)
{
    PyObject *leaf = leaf_of(w->old);
    PyObject *array = leaf == NULL ? NULL : Py_NewRef(get(leaf, known.cell_array));
    int status = array != NULL && may_write(array, w) ? are_plain(get(w->record, memory.read)) : 0;
    status = status > 0 ? !has_other(leaf, s_borrowed, Py_False) : status;
    if (status <= 0 || PyErr_Occurred()) {
        Py_XDECREF(array);
        return PyErr_Occurred() ? -1 : 0;
    }
    Py_CLEAR(w->new); /* whose leaves are read no longer */
    PyObject *source = array_of(value);
    status = source == NULL ? -1 : get(tensor, known.tensor_expr) == w->old;
    status = status > 0 ? are_plain(get(w->record, memory.read)) : status;
    Py_CLEAR(w->old);
    if (status > 0 && (count_and_protect(w, name) < 0 || write_array(array, source) < 0)) {
        status = -1;
    }
    Py_XDECREF(source);
    Py_DECREF(array);
    return status;
}

PyDoc_STRVAR(write_doc,
"write(tensor, value, name)\n"
"--\n\n"
"Write a tensor: `lucid_gpu.ops.in_place._write`, which does what is recorded.");

static PyObject *
write_value(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Write w;
    int usual = count == 3 && PyUnicode_Check(args[2]) && PyUnicode_GET_LENGTH(args[2]) > 0;
    int status = usual ? look_at_write(args[0], args[1], &w) : 0;
    if (usual && status > 0) {
        status = w.shared ? write_shared(args[0], args[1], &w, args[2])
                          : write_alone(args[0], &w, args[2]);
    }
    if (usual) {
        forget_write(&w);
    }
    return status > 0 ? Py_NewRef(args[0]) : in_general(memory.write, args, count, NULL);
}

/* A pending value, or the leaf of a stored one, for a tensor that takes it: as an alias has it. The
 * usual case of `lucid_gpu.ops.elementwise.spread_copy`. Returns whether that is usual, -1 with an
 * error set. */
static int
alias(PyObject *source, Write *w)
{
    PyObject *program = get(w->new, known.expr_program), *leaf, *value, *leaves;
    if (get(program, known.program_is_load) != Py_True) {
        if (has(source, s_siblings, Py_None) <= 0) {
            return PyErr_Occurred() ? -1 : 0;
        }
        value = new_expr(program, get(w->new, known.expr_leaves), get(w->new, known.expr_made_by),
                         get(w->new, known.expr_shape), get(w->new, known.expr_since));
        if (value != NULL) {
            set(value, known.expr_also, get(w->new, known.expr_also));
        }
    }
    else if ((leaf = leaf_of(w->new)) == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    else {
        PyObject *twin = twin_of(leaf, Py_None, known.zero);
        leaves = twin == NULL || PyObject_SetAttr(twin, s_borrowed, Py_True) < 0
                     ? NULL
                     : PyTuple_Pack(1, twin);
        value = leaves == NULL ? NULL
                               : new_expr(program, leaves, Py_None, get(w->new, known.expr_shape),
                                          known.always);
        Py_XDECREF(twin);
        Py_XDECREF(leaves);
    }
    if (value == NULL) {
        return -1;
    }
    Py_SETREF(w->new, value);
    return 1;
}

PyDoc_STRVAR(copy_doc,
"copy(tensor, source)\n"
"--\n\n"
"Write another tensor's values, where nothing is recorded: `lucid_gpu.ops.elementwise._copy_`.\n"
"False where this is not the way; all is as it was then.");

static PyObject *
copy(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "copy() takes two tensors");
        return NULL;
    }
    Write w;
    int status = look_at_write(args[0], args[1], &w);
    if (status > 0 && w.shared) {
        status = write_shared(args[0], args[1], &w, s_copy);
    }
    else if (status > 0) {
        PyObject *a = get(w.old, known.expr_program), *b = get(w.new, known.expr_program);
        status = get(b, known.program_laid) == Py_False && number_of(get(b, known.program_marks)) == 0 &&
                 PyTuple_GET_SIZE(get(b, known.program_strided)) == 0 &&
                 get(a, known.program_is_load) == Py_True && get(a, known.program_laid) == Py_False;
        status = status && w.storage == w.record && get(a, known.program_needs_grad) == Py_False
                     ? alias(args[1], &w)
                     : 0;
        status = status > 0 ? write_alone(args[0], &w, s_copy) : status;
    }
    forget_write(&w);
    return status < 0 ? NULL : PyBool_FromLong(status);
}

/* Whether an index is ints that exist and slices by one: `lucid_gpu.ops.indexing._plain`. */
static int
is_plain_index(PyObject *index, PyObject *shape)
{
    PyObject *one[] = {index}, **parts = one;
    Py_ssize_t count = 1;
    if (PyTuple_CheckExact(index)) {
        parts = ((PyTupleObject *)index)->ob_item;
        count = PyTuple_GET_SIZE(index);
    }
    for (Py_ssize_t i = 0; i < count; ++i) {
        if (i >= PyTuple_GET_SIZE(shape)) {
            return 0;
        }
        if (PyLong_CheckExact(parts[i])) {
            int overflow;
            long long n = PyLong_AsLongLongAndOverflow(parts[i], &overflow);
            long long extent = number_of(PyTuple_GET_ITEM(shape, i));
            if (overflow || n < -extent || n >= extent) {
                return 0;
            }
        }
        else if (PySlice_Check(parts[i])) {
            PySliceObject *slice = (PySliceObject *)parts[i];
            if (slice->step != Py_None ||
                (slice->start != Py_None && !PyLong_CheckExact(slice->start)) ||
                (slice->stop != Py_None && !PyLong_CheckExact(slice->stop))) {
                return 0;
            }
        }
        else {
            return 0;
        }
    }
    return 1;
}

/* What a plain index selects of an array, as an array; a new reference. */
static PyObject *
selected(PyObject *array, PyObject *index)
{
    PyObject *part = PyObject_GetItem(array, index);
    if (part == NULL || PyArray_CheckExact(part)) {
        return part;
    }
    Py_ssize_t count = PyTuple_CheckExact(index) ? PyTuple_GET_SIZE(index) : 1;
    PyObject *whole = PyTuple_New(count + 1); /* a single element: no view yet */
    for (Py_ssize_t i = 0; whole != NULL && i <= count; ++i) {
        PyObject *one = PyTuple_CheckExact(index) ? (i < count ? PyTuple_GET_ITEM(index, i) : NULL)
                                                  : (i < count ? index : NULL);
        PyTuple_SET_ITEM(whole, i, Py_NewRef(one == NULL ? Py_Ellipsis : one));
    }
    Py_SETREF(part, whole == NULL ? NULL : PyObject_GetItem(array, whole));
    Py_XDECREF(whole);
    return part;
}

/* Whether an array holds a number as `lucid_gpu.ops.number_ranges.number_in` gives it. */
static int
holds(PyArrayObject *array, PyObject *number)
{
    int type = PyArray_TYPE(array), overflow = 0;
    int real = type == NPY_FLOAT || type == NPY_DOUBLE;
    if (PyFloat_CheckExact(number)) {
        double size = fabs(PyFloat_AS_DOUBLE(number));
        return real && size <= 65504.0;
    }
    if (!PyLong_CheckExact(number) || (!real && !PyTypeNum_ISINTEGER(type))) {
        return 0;
    }
    long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    return !overflow && value >= 0 && value < 128;
}

/* Whether nobody but a tensor reads its memory: `lucid_gpu.ops.in_place._alone`. We hold its value. */
static int
is_unread(PyObject *tensor, const Write *w, PyObject *leaf)
{
    PyObject *leaves = get(w->old, known.expr_leaves), *lists[2];
    PyObject *own[] = {tensor, leaf};
    lists[0] = get(w->record, memory.tensors);
    lists[1] = get(w->record, memory.cells);
    int there[] = {0, 0};
    for (int k = 0; k < 2; ++k) {
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(lists[k]); ++i) {
            PyObject *one = referent(PyList_GET_ITEM(lists[k], i));
            Py_XDECREF(one);
            if (one != NULL && one != own[k]) {
                return 0;
            }
            there[k] = there[k] || one != NULL;
        }
    }
    return there[0] && there[1] && Py_REFCNT(w->old) == 2 && Py_REFCNT(leaves) == 1 &&
           Py_REFCNT(leaf) == 1;
}

/* Count a write to memory that nobody but a tensor reads, whose leaf stands for what is there then:
 * `lucid_gpu.ops.in_place._goes_on`. */
static int
count_and_go_on(const Write *w, PyObject *leaf)
{
    int failed = count_write(w->storage, s_index_put) < 0;
    PyObject *variable = failed ? NULL : counted(leaf, w->storage);
    Py_XDECREF(variable);
    variable = variable == NULL ? NULL : ended(leaf, w->storage);
    if (variable == NULL) {
        return -1;
    }
    set(leaf, known.cell_variable, variable);
    Py_DECREF(variable);
    return 0;
}

/* Look at a tensor of which a part is to be written, stored by now. Returns whether that is usual,
 * or -1 with an error set. */
static int
look_at_whole(PyObject *tensor, Write *w)
{
    *w = (Write){NULL, NULL, NULL, NULL, -1, 1};
    if (!undisturbed() || PyDict_GET_SIZE(memory.held) ||
        !PyObject_TypeCheck(tensor, known.tensor) || (w->grad = recording()) < 0 ||
        (w->old = value_of(tensor)) == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *program = get(w->old, known.expr_program), *base, *leaf;
    if ((number_of(get(program, known.program_marks)) & ~OUTSIDE) ||
        (w->grad && get(program, known.program_needs_grad) != Py_False) ||
        (leaf = leaf_of(w->old)) == NULL || has_other(leaf, s_borrowed, Py_False)) {
        return PyErr_Occurred() ? -1 : 0;
    }
    w->storage = storage_of(tensor);
    w->record = w->storage == NULL ? NULL : lists_of(w->storage);
    base = w->record == NULL ? NULL : PyObject_GetAttr(tensor, s_base);
    int lent = base == NULL ? -1 : is_lent(w->record);
    int usual = lent >= 0 && (lent || number_of(get(program, known.program_marks)) == 0) &&
                get(w->record, memory.mirrors) == Py_None &&
                (base == Py_None || !w->grad || is_without_grad(base));
    Py_XDECREF(base);
    usual = usual ? computes_itself(program) : usual;
    return PyErr_Occurred() ? -1 : usual > 0 ? are_plain(get(w->record, memory.read)) : usual;
}

/* The array of what is written to a part, of whose shape or of none it is; NULL where this is not
 * the way, or with an error set. */
static PyObject *
source_for(PyObject *value, PyArrayObject *part, const Write *w)
{
    PyObject *own = value_of(value), *program, *like = get(w->old, known.expr_program);
    program = own == NULL ? NULL : get(own, known.expr_program);
    int usual = program != NULL && (number_of(get(program, known.program_marks)) & ~OUTSIDE) == 0 &&
                get(program, known.program_independent) == Py_True &&
                get(program, known.program_dtype) == get(like, known.program_dtype) &&
                get(program, known.program_device) == get(like, known.program_device);
    PyObject *shape = usual ? get(own, known.expr_shape) : NULL;
    Py_ssize_t rank = shape == NULL ? 0 : PyTuple_GET_SIZE(shape);
    usual = usual && (rank == 0 || rank == PyArray_NDIM(part));
    for (Py_ssize_t i = 0; usual && i < rank; ++i) {
        usual = number_of(PyTuple_GET_ITEM(shape, i)) == PyArray_DIM(part, (int)i);
    }
    Py_XDECREF(own);
    return usual ? array_of(value) : NULL;
}

PyDoc_STRVAR(assign_doc,
"assign(tensor, index, value)\n"
"--\n\n"
"Write a part, where nothing is recorded: `lucid_gpu.ops.indexing.setitem`. False where this is\n"
"not the way; all is as it was then.");

static PyObject *
assign(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "assign() takes a tensor, an index and a value");
        return NULL;
    }
    Write w;
    PyObject *part = NULL, *source = NULL, *array = NULL, *leaf = NULL;
    int status = look_at_whole(args[0], &w), of_tensor = 0;
    if (status > 0) {
        leaf = leaf_of(w.old);
        array = leaf == NULL ? NULL : Py_NewRef(get(leaf, known.cell_array));
        status = array != NULL && is_plain_index(args[1], get(w.old, known.expr_shape)) &&
                 PyArray_CheckExact(array) && PyArray_ISWRITEABLE((PyArrayObject *)array) &&
                 get(w.record, memory.read_only) == Py_False;
    }
    part = status > 0 ? selected(array, args[1]) : NULL;
    Py_XDECREF(array);
    if (part != NULL && is_apart((PyArrayObject *)part)) {
        of_tensor = PyObject_TypeCheck(args[2], known.tensor);
        source = of_tensor ? source_for(args[2], (PyArrayObject *)part, &w)
                           : holds((PyArrayObject *)part, args[2]) ? Py_NewRef(args[2]) : NULL;
    }
    status = PyErr_Occurred() ? -1 : source != NULL && get(args[0], known.tensor_expr) == w.old;
    if (status > 0) {
        status = are_plain(get(w.record, memory.read));
    }
    if (status > 0) {
        if (is_unread(args[0], &w, leaf)) {
            status = count_and_go_on(&w, leaf);
        }
        else {
            Py_CLEAR(w.old); /* whose leaf is read no longer */
            status = count_and_protect(&w, s_index_put);
        }
        if (status == 0) {
            status = of_tensor ? write_array(part, source)
                               : PyArray_FillWithScalar((PyArrayObject *)part, source);
        }
        status = status < 0 ? -1 : 1;
    }
    Py_XDECREF(part);
    Py_XDECREF(source);
    forget_write(&w);
    return status < 0 ? NULL : PyBool_FromLong(status);
}

PyMethodDef memory_methods[] = {
    {"base_array", base_array, METH_O, base_array_doc},
    {"before_write", (PyCFunction)(void (*)(void))before_write, METH_FASTCALL, before_write_doc},
    {"assign", (PyCFunction)(void (*)(void))assign, METH_FASTCALL, assign_doc},
    {"copy", (PyCFunction)(void (*)(void))copy, METH_FASTCALL, copy_doc},
    {"detached", (PyCFunction)(void (*)(void))detached, METH_FASTCALL, detached_doc},
    {"picked", (PyCFunction)(void (*)(void))picked, METH_FASTCALL, picked_doc},
    {"reshaped", (PyCFunction)(void (*)(void))reshaped, METH_FASTCALL, reshaped_doc},
    {"parts", (PyCFunction)(void (*)(void))parts, METH_FASTCALL, parts_doc},
    {"settled", (PyCFunction)(void (*)(void))settled, METH_FASTCALL, settled_doc},
    {"store_written", store_written, METH_NOARGS, store_written_doc},
    {"view_of", (PyCFunction)(void (*)(void))view_of, METH_FASTCALL | METH_KEYWORDS, view_of_doc},
    {"write", (PyCFunction)(void (*)(void))write_value, METH_FASTCALL, write_doc},
    {NULL, NULL, 0, NULL},
};

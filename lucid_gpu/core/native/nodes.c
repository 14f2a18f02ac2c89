/* Ops recorded, and the nodes of regions. */
#include "core.h"

/* --- nodes ------------------------------------------------------------------------------------ */

struct Made made;

PyObject *field_name[FIELDS]; /* interned */

typedef struct {
    PyObject *field[FIELDS]; /* borrowed; NULL where it was not given */
    PyObject *const *values; /* of keywords */
    PyObject *names;         /* of these, or NULL */
    Py_ssize_t others;       /* how many of them are attributes */
} Recorded;

/* Which field a keyword is, or FIELDS. */
static int
field_of(PyObject *name)
{
    int field = SAVED;
    while (field < FIELDS && field_name[field] != name) {
        ++field;
    }
    return field;
}

/* Sort the arguments. Returns whether there are those that are needed, by names that are interned. */
static int
sort_arguments(Recorded *call, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    memset(call, 0, sizeof *call);
    if (count <= VJP || count > FIELDS) {
        return 0;
    }
    memcpy(call->field, args, (size_t)count * sizeof *args);
    call->names = names;
    call->values = args + count;
    for (Py_ssize_t i = 0; names != NULL && i < PyTuple_GET_SIZE(names); ++i) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        int field = field_of(name);
        if (!PyUnicode_CHECK_INTERNED(name) || (field < FIELDS && call->field[field] != NULL)) {
            return 0;
        }
        if (field < FIELDS) {
            call->field[field] = args[count + i];
        }
        else {
            ++call->others;
        }
    }
    return 1;
}

/* A field, or what it is where it was not given. */
static inline PyObject *
field_or(const Recorded *call, int field, PyObject *other)
{
    return call->field[field] == NULL ? other : call->field[field];
}

/* Whether nobody is to see what is recorded or saved: no level, no hooks, no watcher, nor inference
 * mode. -1 with an error set. */
int
is_unseen(void)
{
    PyObject *watchers = PyDict_GetItemWithError(made.modes, s_watchers);
    if (watchers == NULL || PyList_GET_SIZE(made.open_levels) ||
        PyDict_GetItemWithError(known.watched, s_by) != Py_None) {
        return PyErr_Occurred() ? -1 : 0;
    }
    int plain = watchers == known.zero ? 1 : has(known.state, s_state_hooks, known.no_tuple);
    if (plain > 0 && watchers != known.zero) {
        plain = has(known.state, s_off, known.off);
    }
    return plain > 0 ? has(made.watching, s_by, Py_None) : plain;
}

/* As `Saved.__init__` of a tensor that is kept. */
static PyObject *
save_tensor(PyObject *tensor)
{
    PyObject *value = value_of(tensor), *storage = NULL, *version = NULL, *saved = NULL;
    if (value == NULL) {
        return NULL;
    }
    storage = PyObject_GetAttr(tensor, s_storage);
    if (storage != NULL) {
        version = storage == Py_None ? Py_NewRef(known.zero) : PyObject_GetAttr(storage, s_version);
    }
    saved = version == NULL ? NULL : made.saved->tp_alloc(made.saved, 0);
    if (saved != NULL) {
        set(saved, made.saved_program, get(value, known.expr_program));
        set(saved, made.saved_shape, get(value, known.expr_shape));
        set(saved, made.saved_variable, tensor);
        set(saved, made.saved_version, version);
        set(saved, made.saved_tensor, tensor);
        set(saved, made.saved_output, Py_None);
        set(saved, made.saved_only, Py_None);
    }
    Py_XDECREF(version);
    Py_XDECREF(storage);
    Py_DECREF(value);
    return saved;
}

/* As `lucid_gpu.ops.record.save`. */
PyObject *
save_all(PyObject *tensors)
{
    Py_ssize_t count = PyTuple_GET_SIZE(tensors);
    PyObject *saved = PyTuple_New(count);
    for (Py_ssize_t i = 0; saved != NULL && i < count; ++i) {
        PyObject *tensor = PyTuple_GET_ITEM(tensors, i);
        PyObject *one = tensor == Py_None ? Py_NewRef(Py_None) : save_tensor(tensor);
        if (one == NULL) {
            Py_CLEAR(saved);
            break;
        }
        PyTuple_SET_ITEM(saved, i, one);
    }
    return saved;
}

/* Where the gradient of a leaf goes. A view's leaf finds it now. */
static PyObject *
edge_of_leaf(PyObject *leaf)
{
    PyObject *node = PyObject_GetAttr(leaf, s_node);
    PyObject *output = node == NULL ? NULL : PyObject_GetAttr(leaf, s_output);
    PyObject *edge = output == NULL ? NULL : PyTuple_Pack(2, node, output);
    Py_XDECREF(node);
    Py_XDECREF(output);
    return edge;
}

/* Where the gradient of a value goes: as `lucid_gpu.fusion.region.edge_of`. */
PyObject *
edge_of(PyObject *value)
{
    PyObject *program = get(value, known.expr_program), *edge;
    PyObject *leaves = get(value, known.expr_leaves);
    Py_ssize_t last = PyTuple_GET_SIZE(leaves) - 1;
    if (get(program, known.program_needs_grad) != Py_True) {
        return PyTuple_Pack(2, Py_None, known.zero);
    }
    if (last >= 0 && (get(program, known.program_is_load) == Py_True ||
                      get(program, known.program_is_boundary) == Py_True)) {
        PyObject *leaf = Py_NewRef(PyTuple_GET_ITEM(leaves, last));
        edge = edge_of_leaf(leaf);
        Py_DECREF(leaf);
        return edge;
    }
    PyObject *node = region_node(NULL, value);
    edge = node == NULL ? NULL : PyTuple_Pack(2, node, known.zero);
    Py_XDECREF(node);
    return edge;
}

PyDoc_STRVAR(edge_of_doc,
"edge_of(value)\n"
"--\n\n"
"Where the gradient of a value goes: `lucid_gpu.fusion.region.edge_of`.");

static PyObject *
edge_of_value(PyObject *Py_UNUSED(module), PyObject *value)
{
    if (closed || Py_TYPE(value) != known.expr) {
        return in_general(made.edge_of, &value, 1, NULL);
    }
    return edge_of(value);
}

/* Find where the gradients of inputs go, and which of them need one. */
static int
find_edges(PyObject *inputs, PyObject *edges, PyObject *needs)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs); ++i) {
        PyObject *value = value_of(PyTuple_GET_ITEM(inputs, i));
        PyObject *edge = value == NULL ? NULL : edge_of(value);
        if (edge != NULL) {
            PyObject *needed = get(get(value, known.expr_program), known.program_needs_grad);
            PyTuple_SET_ITEM(edges, i, edge);
            PyTuple_SET_ITEM(needs, i, Py_NewRef(needed));
        }
        Py_XDECREF(value);
        if (edge == NULL) {
            return -1;
        }
    }
    return 0;
}

/* Give a node its attributes: those of every recorded op, and those that this one was given. */
static int
give_attributes(PyObject *node, const Recorded *call, PyObject *edges, PyObject *needs,
                PyObject *saved)
{
    PyObject *sequence = PyIter_Next(made.sequence);
    if (sequence == NULL) {
        return -1;
    }
    int status = PyObject_SetAttr(node, s_sequence, sequence) < 0 ||
                 PyObject_SetAttr(node, s_edges, edges) < 0 ||
                 PyObject_SetAttr(node, s_needs, needs) < 0 ||
                 PyObject_SetAttr(node, s_function, call->field[VJP]) < 0 ||
                 (PyTuple_GET_SIZE(saved) && PyObject_SetAttr(node, field_name[SAVED], saved) < 0);
    Py_DECREF(sequence);
    if (status || call->others == 0) {
        return status ? -1 : 0;
    }
    PyObject *given = PyTuple_New(call->others);
    for (Py_ssize_t i = 0, at = 0; given != NULL && i < PyTuple_GET_SIZE(call->names); ++i) {
        PyObject *name = PyTuple_GET_ITEM(call->names, i);
        if (field_of(name) == FIELDS) {
            PyTuple_SET_ITEM(given, at++, Py_NewRef(name));
            if (PyObject_SetAttr(node, name, call->values[i]) < 0) {
                Py_CLEAR(given);
            }
        }
    }
    status = given == NULL ? -1 : PyObject_SetAttr(node, s_given, given);
    Py_XDECREF(given);
    return status;
}

/* The node of a call: as `OpNode.__init__`, in a class that is there already. */
static PyObject *
new_node(const Recorded *call, PyTypeObject *kind, PyObject *inputs, PyObject *tensors)
{
    PyObject *edges = PyTuple_New(PyTuple_GET_SIZE(inputs)), *node = NULL;
    PyObject *needs = PyTuple_New(PyTuple_GET_SIZE(inputs)), *saved = NULL;
    if (edges != NULL && needs != NULL && find_edges(inputs, edges, needs) == 0) {
        saved = save_all(tensors);
    }
    if (saved != NULL) {
        node = kind->tp_new(kind, known.no_tuple, NULL);
    }
    if (node != NULL && give_attributes(node, call, edges, needs, saved) < 0) {
        Py_CLEAR(node);
    }
    Py_XDECREF(edges);
    Py_XDECREF(needs);
    Py_XDECREF(saved);
    return node;
}

/* Whether a sequence is of tensors, and of None where that may be, whose values are usual. */
int
all_tensors(PyObject *tensors, int none)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tensors); ++i) {
        PyObject *tensor = PyTuple_GET_ITEM(tensors, i);
        if (none && tensor == Py_None) {
            continue;
        }
        PyObject *value = PyObject_TypeCheck(tensor, known.tensor) ? value_of(tensor) : NULL;
        int usual = value != NULL &&
                    !(number_of(get(get(value, known.expr_program), known.program_marks)) & INFERENCE);
        Py_XDECREF(value);
        if (!usual) {
            return 0;
        }
    }
    return 1;
}

/* Whether inputs depend on constants alone. */
static int
all_independent(PyObject *inputs)
{
    int independent = 1;
    for (Py_ssize_t i = 0; independent && i < PyTuple_GET_SIZE(inputs); ++i) {
        PyObject *value = value_of(PyTuple_GET_ITEM(inputs, i));
        independent = value != NULL && get(get(value, known.expr_program),
                                           known.program_independent) == Py_True;
        Py_XDECREF(value);
    }
    return independent;
}

/* Whether one of the inputs needs a gradient; -1 where one has no usual value any more. */
static int
any_needs(PyObject *inputs)
{
    int needs = 0;
    for (Py_ssize_t i = 0; needs == 0 && i < PyTuple_GET_SIZE(inputs); ++i) {
        PyObject *value = value_of(PyTuple_GET_ITEM(inputs, i));
        needs = value == NULL ? -1
                : get(get(value, known.expr_program), known.program_needs_grad) == Py_True;
        Py_XDECREF(value);
    }
    return needs;
}

/* The program of an array on the device of the first input's value, a new reference. */
static PyObject *
load_for(const Recorded *call, PyArrayObject *array, PyObject *first, PyObject *needs)
{
    PyObject *type = field_or(call, DTYPE, Py_None), *like = get(first, known.expr_program);
    Entry key = {.op = type == Py_None ? (PyObject *)PyArray_DESCR(array) : type, .mode = needs};
    key.a = get(like, known.program_device);
    key.high = (uint64_t)PyArray_NDIM(array) << 1 | !PyArray_IS_C_CONTIGUOUS(array);
    for (int i = 0; i < PyArray_NDIM(array); ++i) {
        key.low = key.low << 2 | class_of(PyArray_DIM(array, i));
    }
    PyObject *program = PyArray_NDIM(array) > 32 ? NULL : found(&key);
    if (program == NULL) {
        PyObject *device = Py_NewRef(key.a);
        PyObject *args[] = {(PyObject *)array, type, device, needs};
        program = PyObject_Vectorcall(made.load, args, 4, NULL);
        if (program != NULL && PyArray_NDIM(array) <= 32) {
            remember(&key, program);
        }
        Py_DECREF(device);
    }
    return program;
}

/* Note what the only output of a node looks like. */
static int
note_output(PyObject *node, PyObject *program, PyObject *shape)
{
    PyObject *meta = PyTuple_Pack(2, program, shape);
    PyObject *metas = meta == NULL ? NULL : PyTuple_Pack(1, meta);
    int status = metas == NULL ? -1 : PyObject_SetAttr(node, s_metas, metas);
    Py_XDECREF(meta);
    Py_XDECREF(metas);
    return status;
}

/* A tensor of a call's reduction, which waits, an output of a node or of None. */
static PyObject *
output_of_pending(const Recorded *call, PyObject *node)
{
    PyObject *args[] = {call->field[ARRAY], node, known.zero};
    PyObject *tensor = of_pending(NULL, args, 3), *value = tensor == NULL ? NULL : value_of(tensor);
    if (node != Py_None && tensor != NULL &&
        (value == NULL || note_output(node, get(value, known.expr_program),
                                      get(value, known.expr_shape)) < 0)) {
        Py_CLEAR(tensor);
    }
    Py_XDECREF(value);
    return tensor;
}

/* A tensor of a call's array, an output of a node or of None. */
static PyObject *
output_of(const Recorded *call, PyObject *first, PyObject *node)
{
    PyObject *array = call->field[ARRAY], *results = field_or(call, RESULTS, Py_None);
    if (Py_TYPE(array) == known.pending) {
        return output_of_pending(call, node);
    }
    PyObject *needs = node == Py_None ? Py_False : Py_True, *tensor = NULL;
    PyObject *shape = PyObject_GetAttr(array, s_shape), *program = NULL;
    if (shape != NULL) {
        program = results == Py_None
                      ? load_for(call, (PyArrayObject *)array, first, needs)
                      : Py_NewRef(PyTuple_GET_ITEM(results, node != Py_None));
    }
    if (program != NULL) {
        PyObject *to = get(program, known.program_needs_grad) == Py_True ? node : Py_None;
        tensor = stored_tensor(program, array, to, known.zero, shape);
    }
    if (tensor != NULL && node != Py_None && note_output(node, program, shape) < 0) {
        Py_CLEAR(tensor);
    }
    Py_XDECREF(program);
    Py_XDECREF(shape);
    return tensor;
}

/* The class of a call's node, borrowed; None where nothing is recorded; NULL where this is not the
 * way, or with an error set. */
static PyObject *
node_class(const Recorded *call, PyObject *inputs)
{
    PyObject *now = mode(s_mode);
    int needs = now == known.recorded ? any_needs(inputs) : 0;
    if (now == known.off || (now == known.recorded && needs == 0) ||
        (now == known.forward && all_independent(inputs))) {
        return Py_None;
    }
    if (now != known.recorded || needs < 0) {
        return NULL;
    }
    int saves = PySet_Contains(made.save_result, call->field[NAME]);
    return saves != 0 ? NULL : PyDict_GetItemWithError(made.classes, call->field[NAME]);
}

/* Whether a call is usual: one array that is not saved, and where its programs are not given NumPy's
 * and row-major or as somebody chose; or a reduction that waits. */
static int
is_usual(const Recorded *call)
{
    PyObject *array = call->field[ARRAY], *results = field_or(call, RESULTS, Py_None);
    if (field_or(call, KEEPS_OUTPUT, Py_False) != Py_False) {
        return 0;
    }
    if (results != Py_None) {
        return PyTuple_Check(results) && PyTuple_GET_SIZE(results) == 2 && !PyTuple_Check(array);
    }
    return Py_TYPE(array) == known.pending ||
           (PyArray_CheckExact(array) && (PyArray_IS_C_CONTIGUOUS((PyArrayObject *)array) ||
                                          field_or(call, CHOSEN, Py_False) == Py_True));
}

/* What is to be recorded of a usual call; NULL where this is not the way, or with an error set. */
static PyObject *
record_usual(const Recorded *call, PyObject *inputs, PyObject *saved)
{
    if (PyTuple_GET_SIZE(inputs) == 0 || !all_tensors(inputs, 0) || !all_tensors(saved, 1)) {
        return NULL;
    }
    PyObject *kind = node_class(call, inputs), *node = NULL, *result = NULL;
    PyObject *first = kind == NULL ? NULL : value_of(PyTuple_GET_ITEM(inputs, 0));
    if (first != NULL) { /* which an input may have no longer once there is a node */
        node = kind == Py_None ? Py_NewRef(Py_None)
                               : new_node(call, (PyTypeObject *)kind, inputs, saved);
        result = node == NULL ? NULL : output_of(call, first, node);
    }
    Py_XDECREF(node);
    Py_XDECREF(first);
    return result;
}

PyDoc_STRVAR(record_doc,
"record(name, array, inputs, vjp, saved=(), dtype=None, keeps_output=False, chosen=False,\n"
"       results=None, **attributes)\n"
"--\n\n"
"The usual case of `lucid_gpu.ops.record.record`: one array, or a reduction that waits.");

PyObject *
record(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Recorded call;
    int usual = !closed && sort_arguments(&call, args, count, names) &&
                is_usual(&call);
    usual = usual ? is_unseen() : 0;
    PyObject *result = NULL;
    if (usual > 0) {
        PyObject *inputs = PySequence_Tuple(call.field[INPUTS]);
        PyObject *saved =
            inputs == NULL ? NULL : PySequence_Tuple(field_or(&call, SAVED, known.no_tuple));
        result = saved == NULL ? NULL : record_usual(&call, inputs, saved);
        Py_XDECREF(inputs);
        Py_XDECREF(saved);
    }
    if (result == NULL && !PyErr_Occurred()) {
        result = PyObject_Vectorcall(made.record, args, (size_t)count, names);
    }
    return result;
}

/* --- a region's node -------------------------------------------------------------------------- */

struct Region region;

/* As `lucid_gpu.core.saved.saved`, of a pending value. */
static PyObject *
saved_value(PyObject *value)
{
    if (share_variable(value, NULL) < 0) {
        return NULL;
    }
    PyObject *saved = made.saved->tp_alloc(made.saved, 0);
    if (saved != NULL) {
        set(saved, made.saved_program, get(value, known.expr_program));
        set(saved, made.saved_shape, get(value, known.expr_shape));
        set(saved, made.saved_variable, get(value, known.expr_variable));
        PyObject *version = get(value, known.expr_version); /* which another thread may set next */
        set(saved, made.saved_version, version == NULL ? known.zero : version);
        set(saved, made.saved_tensor, Py_None);
        set(saved, made.saved_output, Py_None);
        set(saved, made.saved_only, Py_None);
    }
    return saved;
}

/* Where the gradients of leaves with these numbers go. */
static PyObject *
edges_of_leaves(PyObject *leaves, PyObject *numbers)
{
    PyObject *edges = PyTuple_New(PyList_GET_SIZE(numbers));
    for (Py_ssize_t i = 0; edges != NULL && i < PyTuple_GET_SIZE(edges); ++i) {
        PyObject *leaf = PySequence_GetItem(leaves, PyLong_AsSsize_t(PyList_GET_ITEM(numbers, i)));
        PyObject *edge = leaf == NULL ? NULL : edge_of_leaf(leaf);
        Py_XDECREF(leaf);
        if (edge == NULL) {
            Py_CLEAR(edges);
            break;
        }
        PyTuple_SET_ITEM(edges, i, edge);
    }
    return edges;
}

/* Give the node of a value its attributes: as `RegionNode.__init__`. */
static int
fill_region(PyObject *node, PyObject *value, PyObject *facts)
{
    PyObject *numbers = PyObject_GetAttr(facts, s_gradient_leaves), *edges = NULL, *saved = NULL;
    PyObject *sequence = NULL;
    int saves = numbers == NULL || !PyList_Check(numbers) ? -1 : has(facts, s_saves_result, Py_True);
    if (saves >= 0) {
        edges = edges_of_leaves(get(value, known.expr_leaves), numbers);
        sequence = edges == NULL ? NULL : PyIter_Next(made.sequence);
        saved = saves ? saved_value(value) : NULL;
    }
    const struct {
        PyObject *name, *value;
    } attributes[] = {
        {s_facts, facts},
        {s_edges, edges},
        {s_sequence, sequence},
        {s_made_by, get(value, known.expr_made_by)},
        {s_program, get(value, known.expr_program)},
        {s_leaves, get(value, known.expr_leaves)},
        {s_shape, get(value, known.expr_shape)},
        {s_also, known.no_tuple},
    };
    int status = sequence == NULL || (saves && saved == NULL) ? -1 : 0;
    for (size_t i = 0; status == 0 && i < sizeof attributes / sizeof *attributes; ++i) {
        status = PyObject_SetAttr(node, attributes[i].name, attributes[i].value);
    }
    if (status == 0 && saves) {
        status = PyObject_SetAttr(node, s_result, saved);
    }
    Py_XDECREF(numbers);
    Py_XDECREF(edges);
    Py_XDECREF(sequence);
    Py_XDECREF(saved);
    return status;
}

/* What regions of a value's program have in common, a new reference; NULL where its node is not a
 * usual one, or with an error set. */
static PyObject *
usual_facts(PyObject *value)
{
    PyObject *facts = get(get(value, known.expr_program), known.program_region);
    if (facts == NULL || facts == Py_None || get(value, known.expr_also) != known.no_tuple) {
        return NULL;
    }
    Py_INCREF(facts);
    if (has(made.watching, s_by, Py_None) <= 0) {
        Py_CLEAR(facts);
    }
    return facts;
}

PyDoc_STRVAR(region_node_doc,
"region_node(value)\n"
"--\n\n"
"The node of a pending value: `lucid_gpu.fusion.region.region_node`.");

PyObject *
region_node(PyObject *Py_UNUSED(module), PyObject *value)
{
    if (closed || Py_TYPE(value) != known.expr) {
        return in_general(region.general, &value, 1, NULL);
    }
    PyObject *node = get(value, known.expr_node);
    if (node != NULL && node != Py_None) {
        return Py_NewRef(node);
    }
    PyObject *facts = usual_facts(value);
    PyObject *kind = facts == NULL ? NULL : PyObject_GetAttr(facts, s_kind);
    node = NULL;
    if (kind != NULL && PyType_Check(kind)) {
        node = ((PyTypeObject *)kind)->tp_new((PyTypeObject *)kind, known.no_tuple, NULL);
        if (node != NULL && fill_region(node, value, facts) < 0) {
            Py_CLEAR(node);
        }
        if (node != NULL) {
            set(value, known.expr_node, node);
        }
    }
    Py_XDECREF(kind);
    Py_XDECREF(facts);
    if (node == NULL && !PyErr_Occurred()) {
        node = in_general(region.general, &value, 1, NULL);
    }
    return node;
}

PyMethodDef nodes_methods[] = {
    {"edge_of", edge_of_value, METH_O, edge_of_doc},
    {"record", (PyCFunction)(void (*)(void))record, METH_FASTCALL | METH_KEYWORDS, record_doc},
    {"region_node", region_node, METH_O, region_node_doc},
    {NULL, NULL, 0, NULL},
};

/* Going back: through regions, custom Functions and the whole graph. */
#include "core.h"

/* --- a region going back ---------------------------------------------------------------------- */

/* Whether what has a version has another one than its variable; -1 with an error set. */
static int
is_written(PyObject *variable, PyObject *version)
{
    if (variable == NULL || variable == Py_None) {
        return 0;
    }
    Py_XINCREF(version); /* a storage may tell its own by Python, and others move what was saved */
    PyObject *storage = PyObject_GetAttr(variable, s_storage), *now = NULL;
    int written = storage == NULL ? -1 : 0;
    if (storage != NULL && storage != Py_None) {
        now = PyObject_GetAttr(storage, s_version);
        written = now == NULL || version == NULL ? -1 : PyObject_RichCompareBool(now, version, Py_NE);
    }
    Py_XDECREF(version);
    Py_XDECREF(storage);
    Py_XDECREF(now);
    return written;
}

/* Whether what PyTorch's ops save of a region was written: as `RegionNode._check_versions`. */
static int
any_written(PyObject *node, PyObject *facts, PyObject *leaves)
{
    PyObject *saved = PyObject_GetAttr(facts, field_name[SAVED]);
    int written = saved == NULL || !PyTuple_Check(saved) ? -1 : 0;
    for (Py_ssize_t i = 0; written == 0 && i < PyTuple_GET_SIZE(saved); ++i) {
        Py_ssize_t number = PyLong_AsSsize_t(PyTuple_GET_ITEM(saved, i));
        if (number >= 0 && number < PyTuple_GET_SIZE(leaves)) {
            PyObject *leaf = PyTuple_GET_ITEM(leaves, number);
            written = PyObject_TypeCheck(leaf, known.cell)
                          ? is_written(get(leaf, known.cell_variable), get(leaf, known.cell_version))
                          : 1;
            continue;
        }
        PyObject *result = PyObject_GetAttr(node, s_result);
        if (result == NULL) {
            written = -1;
        }
        else if (result != Py_None) {
            written = Py_TYPE(result) == made.saved ? is_written(get(result, made.saved_variable),
                                                                 get(result, made.saved_version))
                                                    : 1;
        }
        Py_XDECREF(result);
    }
    Py_XDECREF(saved);
    return written;
}

/* Whether a region goes back as most do: nothing of it is recorded, released, written or shown. */
static int
goes_straight(PyObject *node, PyObject *leaves)
{
    if (mode(s_mode) != known.off || PySet_GET_SIZE(region.written)) {
        return PyErr_Occurred() ? -1 : 0;
    }
    int usual = has(node, s_alone, Py_None);
    usual = usual > 0 ? has(node, s_joint, Py_None) : usual;
    usual = usual > 0 ? has(node, s_released, Py_False) : usual;
    usual = usual > 0 ? has(node, s_also, known.no_tuple) : usual;
    if (usual <= 0) {
        return usual;
    }
    PyObject *facts = PyObject_GetAttr(node, s_facts);
    usual = facts == NULL ? -1 : has(facts, s_converts, Py_False);
    if (usual > 0) {
        int written = any_written(node, facts, leaves);
        usual = written < 0 ? -1 : !written;
    }
    Py_XDECREF(facts);
    return usual;
}

/* The leaves of a region, and the one of its value where its gradient reads that and it lies row by
 * row; a new reference. NULL where it does not, or with an error set. */
static PyObject *
leaves_read(PyObject *node, PyObject *leaves, int *with_output)
{
    PyObject *output = PyObject_GetAttr(node, s_output), *all = NULL;
    *with_output = output != Py_None;
    if (output == Py_None) {
        all = Py_NewRef(leaves);
    }
    else if (output != NULL && PyObject_TypeCheck(output, known.cell)) {
        PyObject *array = get(output, known.cell_array);
        int plain = array != NULL && PyArray_Check(array) &&
                    PyArray_IS_C_CONTIGUOUS((PyArrayObject *)array) &&
                    has(node, s_output_free, Py_False) > 0;
        PyObject *one = plain ? PyTuple_Pack(1, output) : NULL;
        all = one == NULL ? NULL : PySequence_Concat(leaves, one);
        Py_XDECREF(one);
    }
    Py_XDECREF(output);
    return all;
}

/* The same leaves with a twin in the place of that of a region's value; steals the tuple. */
static PyObject *
with_twin(PyObject *leaves, Py_ssize_t place)
{
    PyObject *twin = PyObject_CallMethodNoArgs(PyTuple_GET_ITEM(leaves, place), s_twin);
    PyObject *all = twin == NULL ? NULL : PyTuple_New(PyTuple_GET_SIZE(leaves));
    for (Py_ssize_t i = 0; all != NULL && i < PyTuple_GET_SIZE(all); ++i) {
        PyTuple_SET_ITEM(all, i, Py_NewRef(i == place ? twin : PyTuple_GET_ITEM(leaves, i)));
    }
    Py_XDECREF(twin);
    Py_DECREF(leaves);
    return all;
}

/* The way back through a region for a cotangent, a `WayBack` or None: a new reference. It is asked of
 * Python once. */
static PyObject *
way_of(PyObject *node, PyObject *value, Entry *key, int with_output, PyObject *shape)
{
    enum { WITH_OUTPUT = 62 };
    key->op = region.way_back;
    key->b = get(value, known.expr_program);
    key->mode = Py_False;
    key->high |= (uint64_t)with_output << WITH_OUTPUT;
    npy_intp count = 1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(shape); ++i) {
        long long extent = number_of(PyTuple_GET_ITEM(shape, i));
        count = extent < 0 || extent > STORED_FROM ? STORED_FROM : count * extent;
        count = count > STORED_FROM ? STORED_FROM : count;
    }
    if (count == 0 || count >= STORED_FROM) { /* of large ones parts are stored: `scheduler.worth_storing` */
        return Py_NewRef(Py_None);
    }
    PyObject *way = found(key);
    if (way == NULL) {
        PyObject *args[] = {node, value};
        Py_INCREF(key->a);
        Py_INCREF(key->b);
        way = PyObject_Vectorcall(region.way_back, args, 2, NULL);
        if (way != NULL) {
            remember(key, way);
        }
        Py_DECREF(key->a);
        Py_DECREF(key->b);
    }
    return way;
}

/* Some of the leaves: those with these numbers, or all where that is None. */
static PyObject *
chosen_leaves(PyObject *leaves, PyObject *numbers)
{
    if (numbers == Py_None) {
        return Py_NewRef(leaves);
    }
    PyObject *chosen = PyTuple_New(PyTuple_GET_SIZE(numbers));
    for (Py_ssize_t i = 0; chosen != NULL && i < PyTuple_GET_SIZE(numbers); ++i) {
        Py_ssize_t number = PyLong_AsSsize_t(PyTuple_GET_ITEM(numbers, i));
        if (number < 0 || number >= PyTuple_GET_SIZE(leaves)) {
            PyErr_SetString(PyExc_IndexError, "a gradient reads a leaf that there is not");
            Py_CLEAR(chosen);
            break;
        }
        PyTuple_SET_ITEM(chosen, i, Py_NewRef(PyTuple_GET_ITEM(leaves, number)));
    }
    return chosen;
}

/* What a `WayBack` has, and a part of one. */
enum { RESULTS_OF, STEPS_OF, SHARED_OF, AT_ONCE };
enum { PROGRAM, READS, AXES, NUMBER, SUMMED, DIMS };

/* A field of a tuple, borrowed. */
static inline PyObject *
of(PyObject *tuple, Py_ssize_t field)
{
    return PyTuple_GET_ITEM(tuple, field);
}

/* `lucid_gpu.core.program.extents_at`; the space itself where the axes are None. */
static PyObject *
extents_at(PyObject *axes, PyObject *space)
{
    PyObject *extents = axes == Py_None ? Py_NewRef(space) : PyTuple_New(PyTuple_GET_SIZE(axes));
    for (Py_ssize_t i = 0; axes != Py_None && extents != NULL && i < PyTuple_GET_SIZE(axes); ++i) {
        long long axis = number_of(of(axes, i));
        Py_ssize_t place = PyTuple_GET_SIZE(space) + 1 - (Py_ssize_t)axis;
        PyObject *extent = axis > 1 && place >= 0 && place < PyTuple_GET_SIZE(space)
                               ? of(space, place)
                               : of(axes, i);
        PyTuple_SET_ITEM(extents, i, Py_NewRef(extent));
    }
    return extents;
}

/* A part as a value of the leaves that it reads. */
static PyObject *
value_of_part(PyObject *part, PyObject *leaves, PyObject *space)
{
    PyObject *program = of(part, PROGRAM), *value = NULL;
    PyObject *own = chosen_leaves(leaves, of(part, READS));
    PyObject *shape = own == NULL ? NULL : extents_at(of(part, AXES), space);
    if (shape != NULL) {
        int stored = get(program, known.program_is_load) == Py_True || PyTuple_GET_SIZE(own) == 0;
        value = new_expr(program, own, Py_None, shape, stored ? known.always : NULL);
    }
    Py_XDECREF(own);
    Py_XDECREF(shape);
    return value;
}

/* The same as a tensor. */
static PyObject *
tensor_of_part(PyObject *part, PyObject *leaves, PyObject *space)
{
    PyObject *value = value_of_part(part, leaves, space);
    PyObject *tensor = value == NULL ? NULL : new_tensor(value);
    Py_XDECREF(value);
    return tensor;
}

/* How many nodes read the part with a number as their cotangent, and the first that is such a part. */
static int
readers_of(PyObject *results, PyObject *edges, long long number, PyObject **part)
{
    int readers = 0;
    *part = NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(results); ++i) {
        PyObject *node = of(of(edges, i), 0);
        if (number_of(of(of(results, i), NUMBER)) == number && node != Py_None) {
            int reads = has(node, s_reads_cotangent, Py_True);
            *part = of(results, i);
            readers += reads;
            if (reads < 0) {
                return -1;
            }
        }
    }
    return readers;
}

/* The number of the part that is stored before the others, -1 if none is: as
 * `RegionNode._stored_anyway` chooses them. -2 where there are several, or with an error set. */
static long long
stored_first(PyObject *way, PyObject *edges, PyObject **part)
{
    PyObject *shared = of(way, SHARED_OF), *one = NULL;
    long long chosen = -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(shared); ++i) {
        PyObject *numbers = of(of(shared, i), 0);
        long long wanted = number_of(of(of(shared, i), 1));
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(numbers); ++k) {
            long long number = number_of(of(numbers, k));
            int readers = number == chosen ? 0 : readers_of(of(way, RESULTS_OF), edges, number, &one);
            if (readers < 0 || (readers >= wanted && number != chosen && chosen >= 0)) {
                return -2;
            }
            if (readers >= wanted && number != chosen) {
                chosen = number;
                *part = one;
            }
        }
    }
    return chosen;
}

/* The leaf that has the sum of a step's value, or waits for it. `shared` says whether others may have
 * its memory. */
static PyObject *
leaf_of_sum(PyObject *step, PyObject *value, int at_once, PyObject *space, int *shared)
{
    *shared = 0;
    PyObject *program = get(value, known.expr_program), *leaf = NULL, *done = NULL;
    PyObject *shape = extents_at(of(step, SUMMED), space);
    if (shape == NULL) {
        return NULL;
    }
    if (at_once && get(program, known.program_is_load) == Py_True) {
        PyObject *args[] = {value, shape};
        done = PyObject_Vectorcall(region.summed_to, args, 2, NULL);
        leaf = done == NULL ? NULL : new_cell(done, Py_None, known.zero);
    }
    else if (get(program, known.program_barred) == known.zero) {
        PyObject *args[] = {value, s_sum, of(step, DIMS), shape, Py_None};
        PyObject *recipe = PyObject_Vectorcall(region.recipe_of, args, 5, NULL);
        PyObject *given[] = {value, recipe, Py_None};
        done = recipe == NULL ? NULL : start(NULL, given, 3);
        leaf = done == NULL ? NULL : new_reduced_cell(done, Py_None, known.zero);
        Py_XDECREF(recipe);
    }
    else {
        PyObject *tensor = new_tensor(value), *stored = NULL;
        *shared = 1;
        PyObject *args[] = {tensor, shape};
        done = tensor == NULL ? NULL : PyObject_VectorcallMethod(s_sum_to_shape, args, 2, NULL);
        stored = done == NULL ? NULL : PyObject_CallMethodNoArgs(done, s_load);
        leaf = stored == NULL ? NULL : Py_NewRef(of(get(stored, known.expr_leaves), 0));
        Py_XDECREF(tensor);
        Py_XDECREF(stored);
    }
    Py_XDECREF(done);
    Py_DECREF(shape);
    return leaf;
}

/* Leaves, and behind them those of sums; steals the tuple. `early` is the part that is stored. Bits of
 * `taken` say which sums are no result's own. */
static PyObject *
with_sums(PyObject *leaves, PyObject *way, PyObject *early, long long number, PyObject *space,
          uint64_t *taken)
{
    int shared;
    PyObject *steps = of(way, STEPS_OF);
    for (Py_ssize_t i = 0; leaves != NULL && i < PyTuple_GET_SIZE(steps); ++i) {
        PyObject *step = of(steps, i), *leaf = NULL, *one = NULL;
        PyObject *value = early != NULL && number_of(of(step, NUMBER)) == number
                              ? value_of(early)
                              : value_of_part(step, leaves, space);
        if (value != NULL) {
            leaf = leaf_of_sum(step, value, of(way, AT_ONCE) == Py_True, space, &shared);
            *taken |= (uint64_t)(shared && i < 64) << (i & 63);
        }
        one = leaf == NULL ? NULL : PyTuple_Pack(1, leaf);
        Py_SETREF(leaves, one == NULL ? NULL : PySequence_Concat(leaves, one));
        Py_XDECREF(one);
        Py_XDECREF(leaf);
        Py_XDECREF(value);
    }
    return leaves;
}

/* A result that is a leaf: the first of a sum takes its memory, others share what is somebody's. */
static PyObject *
result_of_leaf(PyObject *part, PyObject *leaves, Py_ssize_t sums_from, uint64_t *taken,
               PyObject *space)
{
    PyObject *reads = of(part, READS), *shape = extents_at(of(part, AXES), space), *tensor = NULL;
    Py_ssize_t place = reads == Py_None ? 0 : PyLong_AsSsize_t(of(reads, 0));
    PyObject *leaf = of(leaves, place), *own = NULL, *value = NULL;
    Py_ssize_t sum = place - sums_from;
    if (sum >= 0 && sum < 64 && !(*taken >> sum & 1)) {
        *taken |= (uint64_t)1 << sum;
        own = Py_NewRef(leaf);
    }
    else {
        PyObject *args[] = {leaf, get(leaf, known.cell_node), get(leaf, known.cell_output)};
        own = PyObject_VectorcallMethod(s_twin, args, 3, NULL);
        if (own != NULL && PyObject_SetAttr(own, s_borrowed, Py_True) < 0) {
            Py_CLEAR(own);
        }
    }
    PyObject *one = own == NULL ? NULL : PyTuple_Pack(1, own);
    if (one != NULL && shape != NULL) {
        value = new_expr(of(part, PROGRAM), one, Py_None, shape, known.always);
        tensor = value == NULL ? NULL : new_tensor(value);
    }
    Py_XDECREF(shape);
    Py_XDECREF(own);
    Py_XDECREF(one);
    Py_XDECREF(value);
    return tensor;
}

/* The gradients, a list of tensors: all of a way but what is stored first. */
static PyObject *
results_on(PyObject *way, PyObject *leaves, Py_ssize_t sums_from, PyObject *early, long long number,
           PyObject *space, uint64_t *taken)
{
    PyObject *results = of(way, RESULTS_OF), *list = PyList_New(PyTuple_GET_SIZE(results));
    for (Py_ssize_t i = 0; list != NULL && i < PyTuple_GET_SIZE(results); ++i) {
        PyObject *part = of(results, i), *tensor;
        if (early != NULL && number_of(of(part, NUMBER)) == number) {
            tensor = Py_NewRef(early);
        }
        else if (get(of(part, PROGRAM), known.program_is_load) == Py_True) {
            tensor = result_of_leaf(part, leaves, sums_from, taken, space);
        }
        else {
            tensor = tensor_of_part(part, leaves, space);
        }
        if (tensor == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, i, tensor);
    }
    return list;
}

/* Whether `lucid_gpu.fusion.scheduler.computed_together` finds at most one of these: -1 with an error
 * set. A program that fills a kernel is left to that. */
static int
one_at_most(PyObject *cotangent, PyObject *results, PyObject *edges)
{
    int members = 0, stored;
    stored = get(get(cotangent, known.expr_program), known.program_is_load) == Py_True;
    if (PyList_GET_SIZE(results) == 1) {
        return 1;
    }
    for (Py_ssize_t i = 0; stored && members < 2 && i < PyList_GET_SIZE(results); ++i) {
        PyObject *node = of(of(edges, i), 0);
        PyObject *value = value_of(PyList_GET_ITEM(results, i));
        PyObject *program = value == NULL ? NULL : get(value, known.expr_program);
        if (program == NULL) {
            return PyErr_Occurred() ? -1 : 0;
        }
        if (node != Py_None && get(program, known.program_is_load) != Py_True) {
            enum { SMALL = 32 };
            int alone = Py_TYPE(node) == engine.leaf ? 1 : has(node, s_reads_alone, Py_True);
            Py_ssize_t length = PyObject_Size(get(program, known.program_instructions));
            members += alone < 0 ? 0 : alone || length > SMALL;
        }
        Py_DECREF(value);
        if (PyErr_Occurred()) {
            return -1;
        }
    }
    return stored && members < 2;
}

/* Have what is to be computed together be: as `RegionNode._group`. */
static int
group(PyObject *node, PyObject *cotangent, PyObject *results, PyObject *edges)
{
    int alone = one_at_most(cotangent, results, edges);
    alone = alone > 0 ? has(node, s_root, Py_None) : alone;
    if (alone == 0) {
        PyObject *args[] = {node, get(cotangent, known.expr_program), results};
        PyObject *grouped = PyObject_VectorcallMethod(s_group, args, 3, NULL);
        alone = grouped == NULL ? -1 : 1;
        Py_XDECREF(grouped);
    }
    return alone < 0 ? -1 : 0;
}

/* Store a part of a region's gradient that nodes will read; a new reference. */
static PyObject *
store_part(PyObject *part, PyObject *leaves, PyObject *space)
{
    PyObject *tensor = tensor_of_part(part, leaves, space);
    if (tensor != NULL && store_anyhow(tensor) < 0) {
        Py_CLEAR(tensor);
    }
    return tensor;
}

/* Whether a way is gone here: of steps nobody is to see the sums. -1 with an error set. */
static int
may_go(PyObject *way)
{
    if (PyTuple_GET_SIZE(of(way, STEPS_OF)) == 0) {
        return 1;
    }
    return PyList_GET_SIZE(made.open_levels) || PyList_GET_SIZE(engine.interpreters)
               ? 0
               : has(known.eager, s_on, Py_False);
}

/* The gradients of a region of these leaves for a cotangent. */
static PyObject *
go_back(PyObject *node, PyObject *value, PyObject *own, PyObject *space)
{
    Entry key = {0};
    int with_output = 0;
    long long number = -2;
    uint64_t taken = 0;
    PyObject *program = PyObject_GetAttr(node, s_program), *list = NULL, *early = NULL, *part = NULL;
    PyObject *leaves = program == NULL ? NULL : leaves_read(node, own, &with_output);
    PyObject *edges = leaves == NULL ? NULL : PyObject_GetAttr(node, s_edges);
    PyObject *all = edges == NULL ? NULL : merged(leaves, get(value, known.expr_leaves), &key);
    PyObject *way = NULL;
    if (all != NULL) {
        key.a = program;
        way = way_of(node, value, &key, with_output, space);
    }
    if (way != NULL && way != Py_None &&
        PyTuple_GET_SIZE(of(way, RESULTS_OF)) == PyTuple_GET_SIZE(edges) && may_go(way) > 0) {
        number = stored_first(way, edges, &part);
    }
    if (number >= -1) {
        Py_ssize_t sums_from = PyTuple_GET_SIZE(all);
        all = with_output ? with_twin(all, PyTuple_GET_SIZE(own)) : all;
        early = all == NULL || number < 0 ? NULL : store_part(part, all, space);
        if (all != NULL && (number < 0 || early != NULL)) {
            all = with_sums(all, way, early, number, space, &taken);
        }
        if (all != NULL && !PyErr_Occurred()) {
            list = results_on(way, all, sums_from, early, number, space, &taken);
        }
    }
    if (list != NULL &&
        (group(node, value, list, edges) < 0 ||
         PyObject_SetAttr(node, s_gives_new, early == NULL ? Py_True : Py_False) < 0)) {
        Py_CLEAR(list);
    }
    Py_XDECREF(program);
    Py_XDECREF(leaves);
    Py_XDECREF(edges);
    Py_XDECREF(all);
    Py_XDECREF(way);
    Py_XDECREF(early);
    return list;
}

/* The usual case of `RegionNode.vjp`: the gradients of a region that is small, of which at most one
 * part is stored first. NULL where this is not the way, or with an error set. */
static PyObject *
region_back(PyObject *node, PyObject *cotangents)
{
    PyObject *cotangent = PyList_GET_SIZE(cotangents) == 1 ? PyList_GET_ITEM(cotangents, 0) : NULL;
    if (cotangent == NULL || Py_TYPE(cotangent) != known.tensor) {
        return NULL;
    }
    PyObject *value = value_of(cotangent), *list = NULL;
    if (value == NULL || get(get(value, known.expr_program), known.program_marks) != known.zero) {
        Py_XDECREF(value);
        return NULL;
    }
    PyObject *leaves = PyObject_GetAttr(node, s_leaves);
    PyObject *shape = leaves == NULL ? NULL : PyObject_GetAttr(node, s_shape);
    if (shape != NULL && PyTuple_Check(leaves) && PyTuple_Check(shape) &&
        goes_straight(node, leaves) > 0) {
        list = go_back(node, value, leaves, shape);
    }
    Py_XDECREF(leaves);
    Py_XDECREF(shape);
    Py_DECREF(value);
    return list;
}

/* --- custom Functions ------------------------------------------------------------------------- */

struct Custom custom;

/* A pending value whose gradient goes to a node: as `lucid_gpu.fusion.building.boundary`. */
static PyObject *
boundary(PyObject *value, PyObject *node)
{
    PyObject *program = get(value, known.expr_program), *leaves = NULL, *all = NULL, *bound = NULL;
    Entry key = {.op = custom.boundary_of, .a = program};
    PyObject *pair = found(&key);
    if (pair == NULL) {
        pair = PyObject_CallOneArg(custom.boundary_of, program);
        if (pair == NULL) {
            return NULL;
        }
        remember(&key, pair);
    }
    leaves = chosen_leaves(get(value, known.expr_leaves), PyTuple_GET_ITEM(pair, 1));
    PyObject *cell = leaves == NULL ? NULL : new_cell(Py_None, node, known.zero);
    PyObject *one = cell == NULL ? NULL : PyTuple_Pack(1, cell);
    all = one == NULL ? NULL : PySequence_Concat(leaves, one);
    if (all != NULL) {
        bound = new_expr(PyTuple_GET_ITEM(pair, 0), all, Py_None, get(value, known.expr_shape), NULL);
    }
    Py_XDECREF(all);
    Py_XDECREF(one);
    Py_XDECREF(cell);
    Py_XDECREF(leaves);
    Py_DECREF(pair);
    return bound;
}

/* A program and a shape. */
static PyObject *
looks_of(PyObject *value)
{
    return PyTuple_Pack(2, get(value, known.expr_program), get(value, known.expr_shape));
}

/* Note where each argument's gradient goes, and how it looks: as `connect`. -1 where one has no usual
 * value any more, and nothing is noted, or with an error set. */
static int
connect_arguments(PyObject *ctx, PyObject *args)
{
    PyObject *edges = PyList_New(0), *inputs = PyList_New(0);
    int status = edges == NULL || inputs == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; status == 0 && i < PyTuple_GET_SIZE(args); ++i) {
        PyObject *one = PyTuple_GET_ITEM(args, i);
        if (!PyObject_TypeCheck(one, known.tensor)) {
            status = PyList_Append(inputs, Py_None);
            continue;
        }
        PyObject *value = value_of(one);
        PyObject *edge = value == NULL ? NULL : edge_of(value);
        PyObject *looks = edge == NULL ? NULL : looks_of(value);
        status = looks == NULL ? -1 : PyList_Append(edges, edge) | PyList_Append(inputs, looks);
        Py_XDECREF(looks);
        Py_XDECREF(edge);
        Py_XDECREF(value);
    }
    PyObject *to = status == 0 ? PyList_AsTuple(edges) : NULL;
    PyObject *wanted = to == NULL ? NULL : PyList_AsTuple(inputs);
    status = wanted == NULL || PyObject_SetAttr(ctx, s_edges, to) < 0 ||
             PyObject_SetAttr(ctx, s_inputs, wanted) < 0;
    Py_XDECREF(to);
    Py_XDECREF(wanted);
    Py_XDECREF(edges);
    Py_XDECREF(inputs);
    return status ? -1 : 0;
}

/* Whether all that are saved are arrays by now, and no argument waits to be stored with others:
 * then `_store_together` has nothing to do. -1 with an error set. */
static int
is_stored(PyObject *saved, PyObject *args)
{
    int stored = 1;
    for (Py_ssize_t i = 0; stored > 0 && i < PyTuple_GET_SIZE(saved); ++i) {
        PyObject *one = PyTuple_GET_ITEM(saved, i);
        PyObject *tensor = Py_TYPE(one) == made.saved ? get(one, made.saved_tensor) : NULL;
        PyObject *value = tensor == NULL ? NULL : value_of(tensor);
        stored = one == Py_None ||
                 (value != NULL &&
                  get(get(value, known.expr_program), known.program_is_load) == Py_True);
        Py_XDECREF(value);
    }
    for (Py_ssize_t i = 0; stored > 0 && i < PyTuple_GET_SIZE(args); ++i) {
        PyObject *one = PyTuple_GET_ITEM(args, i);
        stored = PyObject_TypeCheck(one, known.tensor) ? has(one, s_siblings, Py_None) : 1;
    }
    return PyErr_Occurred() ? -1 : stored;
}

/* Which item of a tuple an object is, or -1. */
static Py_ssize_t
place_in(PyObject *tuple, PyObject *object)
{
    Py_ssize_t i = PyTuple_GET_SIZE(tuple) - 1;
    while (i >= 0 && PyTuple_GET_ITEM(tuple, i) != object) {
        --i;
    }
    return i;
}

/* Keep what was saved of what `save_for_backward` was given: of tensors, of which none is the output. */
static int
keep_saved(PyObject *ctx, PyObject *args, PyObject *output, PyObject *saved)
{
    int stored = PyObject_SetAttr(ctx, s_to_save, Py_None) < 0 ||
                         PyObject_SetAttr(ctx, s_saved, saved) < 0
                     ? -1
                     : is_stored(saved, args);
    PyObject *results = stored == 0 ? PyTuple_Pack(1, output) : NULL;
    if (stored == 0) {
        PyObject *all[] = {saved, args, results};
        PyObject *done =
            results == NULL ? NULL : PyObject_Vectorcall(custom.store_together, all, 3, NULL);
        stored = done == NULL ? -1 : 1;
        Py_XDECREF(done);
    }
    Py_XDECREF(results);
    return stored < 0 ? -1 : 0;
}

/* Whether a Function gave a new pending tensor, of which nobody knows, and saved tensors that nobody
 * is to see. `saved` is what it saved or None. -1 with an error set. */
static int
is_plainly_finished(PyObject *args, PyObject *output, PyObject *value, PyObject *saved)
{
    PyObject *program = get(value, known.expr_program);
    if (Py_TYPE(output) != known.tensor || place_in(args, output) >= 0 ||
        get(program, known.program_is_load) == Py_True ||
        get(program, known.program_needs_grad) == Py_True ||
        get(value, known.expr_variable) != Py_None) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
        PyObject *one = PyTuple_GET_ITEM(args, i);
        PyObject *read = PyObject_TypeCheck(one, known.tensor) ? value_of(one) : Py_NewRef(one);
        Py_XDECREF(read);
        if (read == NULL) {
            return PyErr_Occurred() ? -1 : 0;
        }
    }
    if (saved != Py_None && (!PyTuple_Check(saved) || !all_tensors(saved, 1) ||
                             place_in(saved, output) >= 0)) {
        return PyErr_Occurred() ? -1 : 0;
    }
    int plain = has(output, s_base, Py_None);
    plain = plain > 0 ? has(output, s_storage, Py_None) : plain;
    return plain > 0 ? is_unseen() : plain;
}

/* Tie a tensor to the node of a call that gave it. Returns 1, or 0 where this is not the way, or -1
 * with an error set. */
static int
finish_plainly(PyObject *ctx, PyObject *args, PyObject *output, PyObject *value, PyObject *saved)
{
    PyObject *looks = looks_of(value), *outputs = looks == NULL ? NULL : PyTuple_Pack(1, looks);
    PyObject *kept = outputs == NULL    ? NULL
                     : saved == Py_None ? Py_NewRef(known.no_tuple)
                                        : save_all(saved);
    PyObject *bound = NULL;
    if (kept != NULL && connect_arguments(ctx, args) == 0 &&
        PyObject_SetAttr(ctx, s_of_outputs, outputs) == 0) {
        bound = boundary(value, ctx);
    }
    int status = bound != NULL ? 1 : PyErr_Occurred() ? -1 : 0;
    if (bound != NULL) {
        set(output, known.tensor_expr, bound);
        if (PyTuple_GET_SIZE(kept) && keep_saved(ctx, args, output, kept) < 0) {
            status = -1;
        }
    }
    Py_XDECREF(looks);
    Py_XDECREF(outputs);
    Py_XDECREF(kept);
    Py_XDECREF(bound);
    return status;
}

PyDoc_STRVAR(finish_one_doc,
"finish_one(ctx, args, output)\n"
"--\n\n"
"The usual case of `lucid_gpu.autograd.outputs.finish_one`: a new pending tensor.");

static PyObject *
finish_one(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (closed || count != 3 || !PyTuple_Check(args[1]) ||
        !PyObject_TypeCheck(args[2], known.tensor)) {
        return in_general(custom.finish_one, args, count, NULL);
    }
    PyObject *value = value_of(args[2]), *saved = NULL;
    int done = 0;
    if (value != NULL) {
        saved = PyObject_GetAttr(args[0], s_to_save);
        done = saved == NULL ? -1 : is_plainly_finished(args[1], args[2], value, saved);
    }
    if (done > 0) {
        done = finish_plainly(args[0], args[1], args[2], value, saved);
    }
    Py_XDECREF(saved);
    Py_XDECREF(value);
    if (done < 0 || PyErr_Occurred()) {
        return NULL;
    }
    return done ? Py_NewRef(args[2]) : in_general(custom.finish_one, args, count, NULL);
}

/* The tensor that an entry keeps, borrowed, if it is no output, and was neither written nor cut from
 * its graph; else NULL, or with an error set. */
static PyObject *
usual_tensor(PyObject *entry)
{
    if (Py_TYPE(entry) != made.saved || get(entry, made.saved_output) != Py_None ||
        is_written(get(entry, made.saved_variable), get(entry, made.saved_version)) != 0) {
        return NULL;
    }
    PyObject *tensor = get(entry, made.saved_tensor);
    return has(tensor, s_left, Py_None) > 0 ? tensor : NULL;
}

PyDoc_STRVAR(unpack_doc,
"unpack(saved, reader)\n"
"--\n\n"
"The usual case of `lucid_gpu.ops.record.unpack`: tensors that were not written, and None.");

static PyObject *
unpack(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (closed || count != 2 || !PyTuple_Check(args[0])) {
        return in_general(custom.unpack, args, count, NULL);
    }
    PyObject *tensors = PyTuple_New(PyTuple_GET_SIZE(args[0]));
    for (Py_ssize_t i = 0; tensors != NULL && i < PyTuple_GET_SIZE(args[0]); ++i) {
        PyObject *one = PyTuple_GET_ITEM(args[0], i);
        PyObject *tensor = one == Py_None ? Py_None : usual_tensor(one);
        if (tensor == NULL) {
            Py_DECREF(tensors);
            return PyErr_Occurred() ? NULL : in_general(custom.unpack, args, count, NULL);
        }
        PyTuple_SET_ITEM(tensors, i, Py_NewRef(tensor));
    }
    return tensors;
}

/* Whether two shapes are one. */
static inline int
same_shape(PyObject *a, PyObject *b)
{
    return a == b || PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

/* Whether a gradient fits what an argument looked like: 1, or 0 for who says why not. */
static int
fits(PyObject *gradient, PyObject *looks)
{
    PyObject *value = Py_TYPE(gradient) == known.tensor && PyTuple_Check(looks)
                          ? value_of(gradient)
                          : NULL;
    if (value == NULL) {
        return 0;
    }
    PyObject *program = get(value, known.expr_program), *wanted = PyTuple_GET_ITEM(looks, 0);
    int fitting = get(program, known.program_dtype) == get(wanted, known.program_dtype) &&
                  get(program, known.program_device) == get(wanted, known.program_device) &&
                  same_shape(get(value, known.expr_shape), PyTuple_GET_ITEM(looks, 1));
    Py_DECREF(value);
    return fitting;
}

/* The gradients of a Function's arguments that are tensors, as `FunctionCtx._checked` gives them. */
static PyObject *
checked_gradients(PyObject *ctx, PyObject *given)
{
    PyObject *inputs = PyObject_GetAttr(ctx, s_inputs), *chosen = PyList_New(0);
    PyObject *results = PyTuple_Check(given) ? Py_NewRef(given) : PyTuple_Pack(1, given);
    int plain = inputs != NULL && PyTuple_Check(inputs) && chosen != NULL && results != NULL &&
                PyTuple_GET_SIZE(results) == PyTuple_GET_SIZE(inputs);
    for (Py_ssize_t i = 0; plain && i < PyTuple_GET_SIZE(inputs); ++i) {
        PyObject *one = PyTuple_GET_ITEM(results, i), *looks = PyTuple_GET_ITEM(inputs, i);
        plain = one == Py_None || fits(one, looks);
        if (plain && looks != Py_None) {
            plain = PyList_Append(chosen, one) == 0;
        }
    }
    if (!plain) {
        Py_CLEAR(chosen);
    }
    Py_XDECREF(inputs);
    Py_XDECREF(results);
    if (chosen == NULL && !PyErr_Occurred()) {
        PyObject *args[] = {ctx, given};
        chosen = PyObject_VectorcallMethod(s_checked, args, 2, NULL);
    }
    return chosen;
}

/* Whether a Function's backward is called as it is: nothing else computes for this pass, all
 * gradients are there, nothing is recorded, and forward was inside of nothing. */
static int
is_called_plainly(PyObject *pass, PyObject *ctx, PyObject *cotangents)
{
    if (mode(s_mode) != known.off) {
        return PyErr_Occurred() ? -1 : 0;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(cotangents); ++i) {
        if (PyList_GET_ITEM(cotangents, i) == Py_None) {
            return 0;
        }
    }
    PyObject *background = PyObject_GetAttr(pass, s_background);
    int plain = background == NULL ? -1 : PyList_Check(background) && !PyList_GET_SIZE(background);
    Py_XDECREF(background);
    return plain > 0 ? has(ctx, s_surroundings, known.no_tuple) : plain;
}

/* The usual case of `FunctionCtx.vjp`. NULL where this is not the way, or with an error set. */
static PyObject *
function_back(PyObject *pass, PyObject *ctx, PyObject *cotangents)
{
    enum { MOST_GRADIENTS = 8 };
    Py_ssize_t count = PyList_GET_SIZE(cotangents);
    if (count > MOST_GRADIENTS || is_called_plainly(pass, ctx, cotangents) <= 0) {
        return NULL;
    }
    PyObject *args[MOST_GRADIENTS + 1] = {ctx};
    for (Py_ssize_t i = 0; i < count; ++i) {
        args[i + 1] = PyList_GET_ITEM(cotangents, i);
    }
    PyObject *given = PyObject_VectorcallMethod(s_run_backward, args, (size_t)count + 1, NULL);
    if (given == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyObject *error = raised(), *told_it = PyObject_CallOneArg(custom.tell, error);
        if (told_it != NULL) {
            PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        }
        Py_XDECREF(told_it);
        Py_DECREF(error);
    }
    PyObject *gradients = given == NULL ? NULL : checked_gradients(ctx, given);
    Py_XDECREF(given);
    return gradients;
}

/* --- a pass back ------------------------------------------------------------------------------ */

struct Engine engine;

/* A pass: what `run_nodes` holds of it, all but `pass` with a reference of its own. */
typedef struct {
    PyObject *pass;                          /* borrowed */
    PyObject *waiting, *buffers, *ready, *ends, *watcher;
    int retains;
    Py_ssize_t order; /* how many nodes became ready */
    PyObject *leaves; /* (leaf, gradients, whether nobody else holds these): their turn is next */
    PyObject *node, *cotangents; /* whose turn is then, or NULL, unless another is ready */
    Py_ssize_t turn;
} Going;

/* An entry of the heap of nodes that are ready: as `Pass.ready`. */
static PyObject *
ready_entry(PyObject *node, PyObject *cotangents, Py_ssize_t order)
{
    PyObject *sequence = PyObject_GetAttr(node, s_sequence), *entry = NULL;
    PyObject *minus = sequence == NULL ? NULL : PyNumber_Negative(sequence);
    if (minus != NULL) {
        entry = Py_BuildValue("(OnOO)", minus, order, node, cotangents);
    }
    Py_XDECREF(sequence);
    Py_XDECREF(minus);
    return entry;
}

/* Take an entry of that heap as the next turn; steals it. */
static int
take_entry(Going *going, PyObject *entry)
{
    if (entry == NULL || !PyTuple_Check(entry) || PyTuple_GET_SIZE(entry) != 4) {
        Py_XDECREF(entry);
        return -1;
    }
    Py_XSETREF(going->node, Py_NewRef(PyTuple_GET_ITEM(entry, 2)));
    Py_XSETREF(going->cotangents, Py_NewRef(PyTuple_GET_ITEM(entry, 3)));
    Py_DECREF(entry);
    return 0;
}

/* The gradients that a node has with one more, a new list; `alone` says whether nobody holds it. */
static PyObject *
with_gradient(Going *going, PyObject *target, PyObject *output, PyObject *result, PyObject *left,
              int *alone)
{
    PyObject *have = PyDict_GET_SIZE(going->buffers)
                         ? PyDict_GetItemWithError(going->buffers, target)
                         : NULL;
    if (have == NULL) {
        PyObject *outputs = PyErr_Occurred() ? NULL : PyObject_GetAttr(target, s_output_count);
        long count = outputs == NULL ? -1 : PyLong_AsLong(outputs);
        Py_XDECREF(outputs);
        if (count == -1 && PyErr_Occurred()) {
            return NULL;
        }
        if (count == 1) {
            PyObject *list = PyList_New(1);
            if (list != NULL) {
                PyList_SET_ITEM(list, 0, Py_NewRef(result));
            }
            return list;
        }
        have = Py_NewRef(Py_None);
    }
    else {
        Py_INCREF(have);
        if (PyDict_DelItem(going->buffers, target) < 0) {
            Py_DECREF(have);
            return NULL;
        }
    }
    *alone = 0;
    PyObject *args[] = {have, target, output, result, left};
    PyObject *sum = PyObject_Vectorcall(engine.added, args, 5, NULL);
    Py_DECREF(have);
    return sum;
}

/* Let a node wait for more gradients. */
static int
go_on_waiting(Going *going, PyObject *target, PyObject *have, long left)
{
    PyObject *fewer = PyLong_FromLong(left - 1);
    int status = fewer == NULL || PyDict_SetItem(going->waiting, target, fewer) < 0 ||
                 PyDict_SetItem(going->buffers, target, have) < 0;
    Py_XDECREF(fewer);
    return status ? -1 : 0;
}

/* Note that a node has all its gradients. */
static int
note_ready(Going *going, PyObject *target, PyObject *have, int alone)
{
    PyObject *entry;
    int status;
    if (Py_TYPE(target) == engine.leaf) {
        entry = PyTuple_Pack(3, target, have, alone ? Py_True : Py_False);
        status = entry == NULL ? -1 : PyList_Append(going->leaves, entry);
        Py_XDECREF(entry);
        return status;
    }
    ++going->order;
    if (going->node == NULL) {
        going->node = Py_NewRef(target);
        going->cotangents = Py_NewRef(have);
        going->turn = going->order;
        return 0;
    }
    entry = ready_entry(target, have, going->order);
    PyObject *args[] = {going->ready, entry};
    PyObject *pushed = entry == NULL ? NULL : PyObject_Vectorcall(engine.push, args, 2, NULL);
    Py_XDECREF(entry);
    Py_XDECREF(pushed);
    return pushed == NULL ? -1 : 0;
}

/* Send a gradient along an edge. `alone` says whether nobody else holds it. */
static int
send(Going *going, PyObject *edge, PyObject *result, int alone)
{
    if (!PyTuple_Check(edge) || PyTuple_GET_SIZE(edge) != 2) {
        PyErr_SetString(PyExc_TypeError, "an edge is a node and the number of an output");
        return -1;
    }
    PyObject *target = PyTuple_GET_ITEM(edge, 0);
    PyObject *left = PyDict_GetItemWithError(going->waiting, target);
    if (left == NULL) { /* nothing there wants a gradient */
        return PyErr_Occurred() ? -1 : 0;
    }
    long count = PyLong_AsLong(left);
    if (count == -1 && PyErr_Occurred()) {
        return -1;
    }
    Py_INCREF(left);
    PyObject *have = with_gradient(going, target, PyTuple_GET_ITEM(edge, 1), result, left, &alone);
    Py_DECREF(left);
    int status = have == NULL ? -1
                 : count > 1  ? go_on_waiting(going, target, have, count)
                              : note_ready(going, target, have, alone);
    Py_XDECREF(have);
    return status;
}

/* Send gradients along edges, as many as there are of both. */
static int
send_all(Going *going, PyObject *edges, PyObject *results, int alone)
{
    PyObject *to = PySequence_Fast(edges, "the edges of a node are a tuple");
    PyObject *what = to == NULL ? NULL : PySequence_Fast(results, "gradients are a sequence");
    int status = what == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; status == 0 && i < PySequence_Fast_GET_SIZE(to) &&
                           i < PySequence_Fast_GET_SIZE(what); ++i) {
        PyObject *edge = Py_NewRef(PySequence_Fast_GET_ITEM(to, i));
        PyObject *result = Py_NewRef(PySequence_Fast_GET_ITEM(what, i));
        status = send(going, edge, result, alone);
        Py_DECREF(edge);
        Py_DECREF(result);
    }
    Py_XDECREF(to);
    Py_XDECREF(what);
    return status;
}

/* Whether a pass ends at a node. -1 with an error set. */
static int
ends_at(Going *going, PyObject *node, PyObject *have)
{
    if (going->ends == Py_None) {
        return 0;
    }
    PyObject *outputs = PyObject_GetAttr(going->ends, s_outputs);
    int found = outputs == NULL ? -1 : PySequence_Contains(outputs, node);
    Py_XDECREF(outputs);
    if (found <= 0) {
        return found;
    }
    PyObject *args[] = {going->ends, node, have};
    PyObject *reached = PyObject_VectorcallMethod(s_reached, args, 3, NULL);
    found = reached == NULL ? -1 : PyObject_IsTrue(reached);
    Py_XDECREF(reached);
    return found;
}

/* Whether a tensor is, as it is, the gradient of a leaf that lies row by row: nothing of it is recorded,
 * and nobody else has its memory. See `Tensor.as_gradient`. */
static int
is_gradient(PyObject *tensor)
{
    PyObject *value = Py_TYPE(tensor) == known.tensor ? get(tensor, known.tensor_expr) : NULL;
    if (value == NULL || Py_TYPE(value) != known.expr) {
        return 0;
    }
    PyObject *program = get(value, known.expr_program), *leaves = get(value, known.expr_leaves);
    int stored = get(program, known.program_is_load) == Py_True;
    int plain = get(program, known.program_marks) == known.zero &&
                get(program, known.program_independent) == Py_True &&
                (stored ? PyTuple_GET_SIZE(get(program, known.program_strided)) == 0 &&
                              get(program, known.program_free) == Py_False
                        : get(program, known.program_laid) == Py_False &&
                              get(value, known.expr_made_by) == Py_None);
    for (Py_ssize_t i = 0; plain && i < PyTuple_GET_SIZE(leaves); ++i) {
        PyObject *leaf = PyTuple_GET_ITEM(leaves, i), *node;
        node = Py_TYPE(leaf) == known.cell || Py_TYPE(leaf) == known.reduced
                   ? get(leaf, known.cell_node)
                   : NULL;
        plain = node == Py_None || (!stored && node != NULL && Py_TYPE(node) == engine.leaf);
        plain = plain && (!stored || has(leaf, s_borrowed, Py_False) > 0);
    }
    return plain;
}

/* The usual case of `AccumulateGrad.take`: the first gradient of a leaf that nobody watches, found by
 * a pass that is not recorded, and held by nobody else. Returns 0 where this is not the way. */
static int
take_first(PyObject *leaf, PyObject *have, PyObject *new)
{
    PyObject *const names[] = {s_aside, s_hooks, s_post, s_order, s_shape};
    int usual = new == Py_True && Py_TYPE(leaf) == engine.leaf && PyList_CheckExact(have) &&
                PyList_GET_SIZE(have) == 1 && mode(s_mode) == known.off &&
                PyDict_GetItemWithError(engine.nodes, s_before_gradient) == Py_None &&
                is_gradient(PyList_GET_ITEM(have, 0));
    for (size_t i = 0; usual > 0 && i < sizeof names / sizeof *names; ++i) {
        usual = has(leaf, names[i], Py_None);
    }
    PyObject *lock = usual > 0 ? PyDict_GetItemWithError(engine.nodes, s_accumulating) : NULL, *done;
    if (lock == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    done = PyObject_CallMethodNoArgs(lock, s_acquire); /* another thread may add to the leaf */
    if (done == NULL) {
        return -1;
    }
    usual = has(leaf, s_grad, Py_None);
    if (usual > 0) {
        usual = PyObject_SetAttr(leaf, s_grad, PyList_GET_ITEM(have, 0)) < 0 ? -1 : 1;
    }
    Py_SETREF(done, PyObject_CallMethodNoArgs(lock, s_release));
    Py_XDECREF(done);
    return PyErr_Occurred() ? -1 : usual;
}

/* Give the leaves their gradients. */
static int
feed_leaves(Going *going)
{
    PyObject *leaves = going->leaves;
    if (PyList_GET_SIZE(leaves) == 0) {
        return 0;
    }
    going->leaves = PyList_New(0);
    int status = going->leaves == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; status == 0 && i < PyList_GET_SIZE(leaves); ++i) {
        PyObject *entry = PyList_GET_ITEM(leaves, i);
        PyObject *leaf = PyTuple_GET_ITEM(entry, 0), *have = PyTuple_GET_ITEM(entry, 1);
        status = PyObject_SetAttr(going->pass, s_node, leaf);
        int ended = status < 0 ? -1 : ends_at(going, leaf, have);
        int taken_first = ended == 0 ? take_first(leaf, have, PyTuple_GET_ITEM(entry, 2)) : 0;
        if (taken_first < 0) {
            ended = -1;
        }
        else if (ended == 0 && !taken_first) {
            PyObject *args[] = {leaf, have, going->pass, PyTuple_GET_ITEM(entry, 2)};
            PyObject *taken = PyObject_VectorcallMethod(s_take, args, 4, NULL);
            Py_XDECREF(taken);
            ended = taken == NULL ? -1 : 0;
        }
        status = ended < 0 ? -1 : 0;
    }
    Py_DECREF(leaves);
    return status;
}

/* Choose whose turn is next. Returns 0 where there is none. */
static int
choose(Going *going)
{
    PyObject *entry = NULL, *next;
    if (going->node == NULL) {
        if (PyList_GET_SIZE(going->ready) == 0) {
            return 0;
        }
        return take_entry(going, PyObject_CallOneArg(engine.pop, going->ready)) < 0 ? -1 : 1;
    }
    if (PyList_GET_SIZE(going->ready) != 0) {
        entry = ready_entry(going->node, going->cotangents, going->turn);
        PyObject *args[] = {going->ready, entry};
        next = entry == NULL ? NULL : PyObject_Vectorcall(engine.push_pop, args, 2, NULL);
        Py_XDECREF(entry);
        return take_entry(going, next) < 0 ? -1 : 1;
    }
    return 1;
}

/* Whether attributes of an object are what they are nearly always: pairs that a NULL ends; -1 with an
 * error set. */
static int
has_all(PyObject *object, PyObject *const *pairs)
{
    int usual = 1;
    for (; usual > 0 && *pairs != NULL; pairs += 2) {
        usual = has(object, pairs[0], pairs[1]);
    }
    return usual;
}

/* The usual case of `OpNode.vjp`: an op of one output, of which nothing was written since. NULL where
 * this is not the way, or with an error set. */
static PyObject *
op_back(PyObject *node, PyObject *cotangents)
{
    PyObject *const usual[] = {s_released, Py_False, s_also, known.no_tuple, s_result, Py_None,
                               s_back_order, Py_None, s_ties, Py_None, NULL};
    PyObject *args[] = {node, NULL}, *function = NULL, *results = NULL;
    if (PyList_GET_SIZE(cotangents) != 1 || PyList_GET_ITEM(cotangents, 0) == Py_None ||
        has_all(node, usual) <= 0) {
        return NULL;
    }
    PyObject *outputs = PyObject_GetAttr(node, s_output_count);
    if (number_of(outputs) == 1) {
        function = PyObject_GetAttr(node, s_function);
    }
    if (function != NULL) {
        args[1] = Py_NewRef(PyList_GET_ITEM(cotangents, 0));
        results = PyObject_Vectorcall(function, args, 2, NULL);
        Py_DECREF(args[1]);
    }
    Py_XDECREF(outputs);
    Py_XDECREF(function);
    return results;
}

/* Drop from a node the attributes that its op was given, but for what a pass asks after it. */
static int
forget_given(PyObject *node, PyObject *given)
{
    PyObject *own = PyObject_GenericGetDict(node, NULL);
    int status = own == NULL || !PyTuple_Check(given) ? -1 : 0;
    for (Py_ssize_t i = 0; status == 0 && i < PyTuple_GET_SIZE(given); ++i) {
        PyObject *name = PyTuple_GET_ITEM(given, i);
        if (name != s_gives_new && PyUnicode_Compare(name, s_gives_new) != 0) {
            PyObject *gone = PyDict_GetItemWithError(own, name);
            status = gone != NULL ? PyDict_DelItem(own, name) : PyErr_Occurred() ? -1 : 0;
        }
    }
    Py_XDECREF(own);
    return status;
}

/* The usual case of `OpNode.release`. Returns 0 where this is not the way, -1 with an error set. */
static int
op_release(PyObject *node)
{
    PyObject *const usual[] = {s_stays, Py_False, s_holds_indices, Py_False,
                               s_also, known.no_tuple, NULL};
    int status = Py_TYPE(node)->tp_base == engine.op ? has_all(node, usual) : 0;
    PyObject *saved = status > 0 ? PyObject_GetAttr(node, field_name[SAVED]) : NULL, *given = NULL;
    if (saved == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    status = PyObject_SetAttr(node, s_released, Py_True);
    if (status == 0 && PyObject_Size(saved) > 0) {
        PyObject *none = PyTuple_Pack(1, Py_None);
        given = none == NULL ? NULL : PyObject_GetAttr(node, s_given);
        status = given == NULL || PyObject_SetAttr(node, field_name[SAVED], none) < 0 ||
                         PyObject_SetAttr(node, s_function, Py_None) < 0 ||
                         (given != known.no_tuple && (forget_given(node, given) < 0 ||
                                                      PyObject_SetAttr(node, s_given,
                                                                       known.no_tuple) < 0))
                     ? -1
                     : 0;
        Py_XDECREF(none);
        Py_XDECREF(given);
    }
    Py_DECREF(saved);
    return status < 0 ? -1 : 1;
}

/* What a pass does with a node: the usual case of `lucid_gpu.core.engine._turn`, where nobody looks
 * on. */
static PyObject *
run_node(Going *going, PyObject *node, PyObject *cotangents)
{
    int plain = going->watcher == Py_None && PyList_GET_SIZE(engine.handling) == 0 &&
                PyList_GET_SIZE(engine.interpreters) == 0;
    plain = plain ? has(node, s_hooks, Py_None) : 0;
    plain = plain > 0 ? has(node, s_look_around, Py_None) : plain;
    if (plain <= 0) {
        PyObject *args[] = {node, cotangents, going->pass};
        return plain < 0 ? NULL : PyObject_Vectorcall(engine.turn, args, 3, NULL);
    }
    PyObject *args[] = {node, cotangents}, *results = NULL;
    if (PyObject_TypeCheck(node, region.node) && PyList_Check(cotangents)) {
        results = region_back(node, cotangents);
    }
    else if (PyObject_TypeCheck(node, custom.node) && PyList_Check(cotangents)) {
        results = function_back(going->pass, node, cotangents);
    }
    else if (PyObject_TypeCheck(node, engine.op) && PyList_Check(cotangents)) {
        results = op_back(node, cotangents);
    }
    if (results == NULL && !PyErr_Occurred()) {
        results = PyObject_VectorcallMethod(s_vjp, args, 2, NULL);
    }
    if (results != NULL && !going->retains) {
        int done = op_release(node);
        PyObject *released = done == 0 ? PyObject_CallMethodNoArgs(node, s_release) : NULL;
        if (done < 0 || (done == 0 && released == NULL)) {
            Py_CLEAR(results);
        }
        Py_XDECREF(released);
    }
    return results;
}

/* Whether nobody else holds the gradients that a node gave; -1 with an error set. */
static int
gives_new(PyObject *node)
{
    PyObject *value = PyObject_GetAttr(node, s_gives_new);
    int truth = value == NULL ? -1 : PyObject_IsTrue(value);
    Py_XDECREF(value);
    if (truth > 0) {
        truth = PyList_GET_SIZE(engine.interpreters) ? 0 : has(node, s_hooks, Py_None);
    }
    return truth;
}

/* Run the node whose turn it is, and send its gradients on. */
static int
go_through(Going *going)
{
    PyObject *node = going->node, *cotangents = going->cotangents;
    PyObject *edges = NULL, *results = NULL;
    going->node = going->cotangents = NULL;
    int status = PyObject_SetAttr(going->pass, s_node, node);
    status = status < 0 ? -1 : ends_at(going, node, cotangents);
    if (status == 0) {
        edges = PyObject_GetAttr(node, s_edges);
        results = edges == NULL ? NULL : run_node(going, node, cotangents);
        status = results == NULL ? -1 : gives_new(node);
    }
    if (results != NULL && status >= 0) {
        Py_CLEAR(cotangents); /* who reads a gradient may be the last to hold it */
        status = send_all(going, edges, results, status);
    }
    Py_XDECREF(edges);
    Py_XDECREF(results);
    Py_XDECREF(cotangents);
    Py_DECREF(node);
    return status < 0 ? -1 : 0;
}

/* Ask a pass for what is used of it. */
static int
begin_going(Going *going, PyObject *pass)
{
    const struct {
        PyObject **to;
        PyObject *name;
    } parts[] = {
        {&going->waiting, s_waiting}, {&going->buffers, s_buffers}, {&going->ready, s_ready},
        {&going->ends, s_ends},       {&going->watcher, s_watcher},
    };
    memset(going, 0, sizeof *going);
    going->pass = pass;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; ++i) {
        *parts[i].to = PyObject_GetAttr(pass, parts[i].name);
        if (*parts[i].to == NULL) {
            return -1;
        }
    }
    PyObject *retains = PyObject_GetAttr(pass, s_retain_graph);
    going->retains = retains == NULL ? -1 : PyObject_IsTrue(retains);
    Py_XDECREF(retains);
    going->leaves = PyList_New(0);
    if (!PyDict_Check(going->waiting) || !PyDict_Check(going->buffers) ||
        !PyList_Check(going->ready)) {
        PyErr_SetString(PyExc_TypeError, "run_nodes() takes a pass");
        return -1;
    }
    return going->retains < 0 || going->leaves == NULL ? -1 : 0;
}

PyDoc_STRVAR(run_nodes_doc,
"run_nodes(this, edges, results)\n"
"--\n\n"
"Run the nodes of a pass: as `lucid_gpu.core.engine._run_nodes`.");

static PyObject *
run_nodes(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (closed || count != 3) {
        return in_general(engine.run_nodes, args, count, NULL);
    }
    Going going;
    int status = begin_going(&going, args[0]);
    status = status < 0 ? -1 : send_all(&going, args[1], args[2], 0);
    while (status == 0) {
        status = feed_leaves(&going);
        int next = status < 0 ? -1 : choose(&going);
        if (next == 0) {
            break;
        }
        status = next < 0 ? -1 : go_through(&going);
    }
    Py_XDECREF(going.waiting);
    Py_XDECREF(going.buffers);
    Py_XDECREF(going.ready);
    Py_XDECREF(going.ends);
    Py_XDECREF(going.watcher);
    Py_XDECREF(going.leaves);
    Py_XDECREF(going.node);
    Py_XDECREF(going.cotangents);
    return status < 0 ? NULL : Py_NewRef(Py_None);
}

PyMethodDef passes_methods[] = {
    {"finish_one", (PyCFunction)(void (*)(void))finish_one, METH_FASTCALL, finish_one_doc},
    {"run_nodes", (PyCFunction)(void (*)(void))run_nodes, METH_FASTCALL, run_nodes_doc},
    {"unpack", (PyCFunction)(void (*)(void))unpack, METH_FASTCALL, unpack_doc},
    {NULL, NULL, 0, NULL},
};

/* Pending values computed, and reductions that wait. */
#include "core.h"

/* --- storing a value -------------------------------------------------------------------------- */

/* Mark what lies inside of a value and is of this step. A program bounds how deep that goes. */
static void
mark_inside(PyObject *made_by, long long step, long long always)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(made_by); ++i) {
        PyObject *inner = PyTuple_GET_ITEM(made_by, i);
        if (Py_TYPE(inner) != known.expr) {
            continue;
        }
        long long since = number_of(get(inner, known.expr_since));
        if (step <= since && since < always) {
            set(inner, known.expr_since, known.computed);
            PyObject *deeper = get(inner, known.expr_made_by);
            if (deeper != NULL && PyTuple_Check(deeper)) {
                mark_inside(deeper, step, always);
            }
        }
    }
}

/* As `lucid_gpu.fusion.scheduler.mark_computed`, while nobody watches. Returns -1 with an error set. */
int
mark_computed(PyObject *value, int itself)
{
    PyObject *task = mode(s_task), *now = task == Py_None ? mode(s_step) : NULL;
    if (now == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    long long step = number_of(now), since = number_of(get(value, known.expr_since));
    if (since < step && since != number_of(known.leaf_written)) {
        return 0;
    }
    if (itself && since >= 0 && since < number_of(known.always)) {
        set(value, known.expr_since, known.computed);
    }
    PyObject *made_by = get(value, known.expr_made_by);
    if (made_by != NULL && PyTuple_Check(made_by)) {
        mark_inside(made_by, step, number_of(known.always));
    }
    return 0;
}

/* What is saved inside a region, a tuple or a list; None where somebody can look in there. */
static PyObject *
saved_within(PyObject *node, PyObject *made_by)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(made_by); ++i) {
        PyObject *one = PyTuple_GET_ITEM(made_by, i);
        if (PyObject_TypeCheck(one, known.expr) &&
            (Py_TYPE(one) != known.expr ||
             get(get(one, known.expr_program), known.program_is_load) != Py_True)) {
            return PyObject_CallOneArg(region.saved_inside, node);
        }
    }
    return Py_NewRef(known.no_tuple);
}

/* Whether there is an array behind one of the leaves with these numbers; -1 where one is of an unusual
 * kind. */
static int
any_filled(PyObject *leaves, PyObject *numbers)
{
    int filled = 0;
    for (Py_ssize_t i = 0; filled >= 0 && i < PyTuple_GET_SIZE(numbers); ++i) {
        PyObject *leaf = PyTuple_GET_ITEM(leaves, number_of(PyTuple_GET_ITEM(numbers, i)));
        if (Py_TYPE(leaf) != known.cell && Py_TYPE(leaf) != known.reduced) {
            filled = -1;
        }
        else {
            filled = filled || Py_TYPE(leaf) == known.reduced ||
                     get(leaf, known.cell_array) != Py_None;
        }
    }
    return filled;
}

/* A place where the gradient of a leaf passes: `Cell(None, node, output)`, and of the same value where
 * that is `saved`. */
static PyObject *
place_of(PyObject *leaf, int saved)
{
    PyObject *place = new_cell(Py_None, get(leaf, known.cell_node), get(leaf, known.cell_output));
    PyObject *variable = get(leaf, known.cell_variable);
    if (place != NULL && saved && variable == Py_None) {
        variable = known.variable->tp_alloc(known.variable, 0);
        if (variable == NULL) {
            Py_CLEAR(place);
            return NULL;
        }
        mark(leaf, variable, known.zero);
        Py_DECREF(variable);
    }
    if (place != NULL && saved) {
        mark(place, get(leaf, known.cell_variable), get(leaf, known.cell_version));
    }
    return place;
}

/* Leaves without the arrays of those with these numbers. */
static PyObject *
without_arrays(PyObject *leaves, PyObject *numbers, PyObject *saved)
{
    Py_ssize_t count = PyTuple_GET_SIZE(leaves);
    PyObject *kept = PyTuple_New(count);
    for (Py_ssize_t i = 0; kept != NULL && i < count; ++i) {
        PyTuple_SET_ITEM(kept, i, Py_NewRef(PyTuple_GET_ITEM(leaves, i)));
    }
    for (Py_ssize_t i = 0; kept != NULL && i < PyTuple_GET_SIZE(numbers); ++i) {
        PyObject *number = PyTuple_GET_ITEM(numbers, i);
        Py_ssize_t at = (Py_ssize_t)number_of(number);
        PyObject *place = place_of(PyTuple_GET_ITEM(leaves, at), PySequence_Contains(saved, number));
        if (place == NULL) {
            Py_CLEAR(kept);
            break;
        }
        PyObject *before = PyTuple_GET_ITEM(kept, at);
        PyTuple_SET_ITEM(kept, at, place);
        Py_DECREF(before);
    }
    return kept;
}

/* The usual case of `RegionNode.keep_output`: nobody is left inside, and nothing is saved there, of a
 * region that was computed into an array that lies row by row. Returns 0 where this is not the way;
 * -1 with an error set. */
static int
keep_usual(PyObject *node, PyObject *cell)
{
    PyObject *made_by = PyObject_GetAttr(node, s_made_by), *array = get(cell, known.cell_array);
    PyObject *facts = made_by == NULL ? NULL : PyObject_GetAttr(node, s_facts);
    PyObject *leaves = facts == NULL ? NULL : PyObject_GetAttr(node, s_leaves);
    PyObject *unread = leaves == NULL ? NULL : PyObject_GetAttr(facts, s_unread), *twin, *kept = NULL;
    PyObject *saved = unread == NULL ? NULL : PyObject_GetAttr(facts, s_of_saved);
    int usual = saved != NULL && PyTuple_Check(made_by) &&
                PySet_GET_SIZE(region.written) == 0 && PyObject_Size(region.held) == 0 &&
                PyArray_CheckExact(array) && PyArray_IS_C_CONTIGUOUS((PyArrayObject *)array) &&
                PyTuple_Check(unread) && has(node, s_alone, Py_None) > 0 &&
                has(node, s_released, Py_False) > 0 && has(facts, s_converts, Py_False) > 0;
    int filled = usual ? any_filled(leaves, unread) : -1;
    if (filled > 0) {
        PyObject *inside = saved_within(node, made_by);
        filled = inside != NULL && inside != Py_None && PyObject_Size(inside) == 0 ? 1 : -1;
        Py_XDECREF(inside);
    }
    int reads = filled < 0 ? -1 : has(facts, s_reads_output, Py_True);
    if (reads > 0) {
        twin = twin_of(cell, Py_None, known.zero);
        reads = twin == NULL || PyObject_SetAttr(node, s_output, twin) < 0 ||
                        PyObject_SetAttr(node, s_output_free, Py_False) < 0
                    ? -1
                    : 1;
        Py_XDECREF(twin);
    }
    if (reads >= 0 && filled) {
        kept = without_arrays(leaves, unread, saved);
        reads = kept == NULL || PyObject_SetAttr(node, s_made_by, Py_None) < 0 ||
                        PyObject_SetAttr(node, s_leaves, kept) < 0
                    ? -1
                    : 1;
        Py_XDECREF(kept);
    }
    Py_XDECREF(made_by);
    Py_XDECREF(facts);
    Py_XDECREF(leaves);
    Py_XDECREF(unread);
    Py_XDECREF(saved);
    return PyErr_Occurred() ? -1 : reads >= 0;
}

/* The leaf of a value that was computed and needs grad, a new reference. */
static PyObject *
leaf_of_graph(PyObject *value, PyObject *program, PyObject *array)
{
    if (get(program, known.program_is_boundary) == Py_True) {
        PyObject *leaves = get(value, known.expr_leaves);
        PyObject *last = PyTuple_GET_ITEM(leaves, PyTuple_GET_SIZE(leaves) - 1);
        PyObject *node = Py_XNewRef(get(last, known.cell_node));
        PyObject *output = Py_XNewRef(get(last, known.cell_output));
        PyObject *leaf = new_cell(array, node == NULL ? Py_None : node,
                                  output == NULL ? known.zero : output);
        Py_XDECREF(node);
        Py_XDECREF(output);
        return leaf;
    }
    PyObject *node = get(value, known.expr_node);
    node = node == NULL || node == Py_None ? region_node(NULL, value) : Py_NewRef(node);
    PyObject *cell = node == NULL ? NULL : new_cell(array, node, known.zero);
    if (cell != NULL) {
        int kept = get(program, known.program_laid) == Py_False ? keep_usual(node, cell) : 0;
        if (kept == 0) {
            PyObject *args[] = {node, value, cell};
            PyObject *none = PyObject_VectorcallMethod(s_keep_output, args, 3, NULL);
            kept = none == NULL ? -1 : 1;
            Py_XDECREF(none);
        }
        if (kept < 0) {
            Py_CLEAR(cell);
        }
    }
    Py_XDECREF(node);
    return cell;
}

/* Give a leaf, if there is one, the variable of the value that it stores, made now if there was none:
 * as of `lucid_gpu.core.value.mark_of`. */
int
share_variable(PyObject *value, PyObject *cell)
{
    PyObject *variable = get(value, known.expr_variable);
    if (variable == NULL || variable == Py_None) {
        variable = known.variable->tp_alloc(known.variable, 0);
        if (variable == NULL) {
            return -1;
        }
        mark(value, variable, known.zero);
        Py_DECREF(variable);
        if (set_values(variable, value) < 0) {
            return -1;
        }
        variable = get(value, known.expr_variable);
    }
    if (cell != NULL) {
        PyObject *version = get(value, known.expr_version);
        mark(cell, variable, version == NULL ? known.zero : version);
    }
    return 0;
}

/* Give a tensor a computed array as its value, by the program of a load. The usual case of
 * `Tensor._settle`: a row-major array, and a tensor that is alone on its storage or has None. Returns
 * -1 with an error set. */
int
settle(PyObject *tensor, PyObject *storage, PyObject *value, PyObject *program, PyObject *load,
       PyObject *array)
{
    PyObject *cell = get(program, known.program_needs_grad) == Py_True
                         ? leaf_of_graph(value, program, array)
                         : new_cell(array, Py_None, known.zero);
    if (cell == NULL || share_variable(value, cell) < 0) {
        Py_XDECREF(cell);
        return -1;
    }
    PyObject *leaves = PyTuple_Pack(1, cell), *stored = NULL;
    int status = -1;
    if (leaves != NULL) {
        stored = new_expr(load, leaves, Py_None, get(value, known.expr_shape), known.always);
        Py_DECREF(leaves);
    }
    if (stored != NULL) {
        if (get(tensor, known.tensor_expr) == value) {
            set(tensor, known.tensor_expr, stored);
        }
        status = storage == Py_None ? 0 : add_cell(storage, cell);
        Py_DECREF(stored);
    }
    Py_DECREF(cell);
    return status;
}

/* The storage of a tensor that is alone on it, or None; a new reference. NULL where others lie there,
 * or with an error set. */
PyObject *
own_storage(PyObject *tensor)
{
    PyObject *storage = PyObject_GetAttr(tensor, s_storage);
    if (storage == NULL || storage == Py_None) {
        return storage;
    }
    PyObject *tensors = PyObject_GetAttr(storage, s_tensors);
    int alone = tensors != NULL && PyList_Check(tensors);
    for (Py_ssize_t i = 0; alone && i < PyList_GET_SIZE(tensors); ++i) {
        PyObject *other = referent(PyList_GET_ITEM(tensors, i));
        alone = other == NULL || other == tensor;
        Py_XDECREF(other);
    }
    Py_XDECREF(tensors);
    if (!alone) {
        Py_CLEAR(storage);
    }
    return storage;
}

/* Whether nobody looks on while kernels run. */
static int
nobody_looks(void)
{
    return PyDict_GetItemWithError(known.watched, s_by) == Py_None &&
           PyList_GET_SIZE(known.observers) == 0;
}

/* Whether nothing that was written waits for a kernel of this thread. -1 with an error set. */
static int
nothing_written(void)
{
    PyObject *written = mode(s_written);
    return written == NULL ? -1 : PyDict_Check(written) && PyDict_GET_SIZE(written) == 0;
}

/* What the plan of a value is found by: its shape, and the strides of leaves that are not row-major. As
 * `lucid_gpu.fusion.realize.plan_for`; a new reference. NULL where a leaf has no array. */
static PyObject *
key_of_plan(PyObject *value, PyObject *strided)
{
    PyObject *shape = get(value, known.expr_shape), *leaves = get(value, known.expr_leaves);
    Py_ssize_t count = PyTuple_GET_SIZE(strided);
    PyObject *key = count == 0 ? Py_NewRef(shape) : PyTuple_New(count + 1);
    if (key == NULL || count == 0) {
        return key;
    }
    PyTuple_SET_ITEM(key, 0, Py_NewRef(shape));
    for (Py_ssize_t i = 0; key != NULL && i < count; ++i) {
        long long number = number_of(PyTuple_GET_ITEM(strided, i));
        PyObject *leaf = PyTuple_GET_ITEM(leaves, number);
        PyObject *array = Py_TYPE(leaf) == known.cell ? get(leaf, known.cell_array) : NULL;
        PyObject *strides = array == NULL || !PyArray_CheckExact(array)
                                ? NULL
                                : PyObject_GetAttr(array, s_strides);
        if (strides == NULL) {
            Py_CLEAR(key);
        }
        else {
            PyTuple_SET_ITEM(key, i + 1, strides);
        }
    }
    return key;
}

/* What runs the plan of a value, which then lies row by row; NULL where there is no such thing. */
static Ready *
ready_of(PyObject *value)
{
    PyObject *program = get(value, known.expr_program), *strided, *plans, *plan, *ready, *key;
    strided = get(program, known.program_strided);
    plans = get(program, known.program_plans);
    if (!PyTuple_Check(strided) || !PyDict_Check(plans) || get(program, known.program_stored) == NULL ||
        get(program, known.program_stored) == Py_None) {
        return NULL;
    }
    key = key_of_plan(value, strided);
    plan = key == NULL ? NULL : PyDict_GetItemWithError(plans, key);
    Py_XDECREF(key);
    ready = plan == NULL ? NULL : PyObject_GetAttr(plan, s_ready);
    Py_XDECREF(ready); /* the plan holds it */
    return ready != NULL && Py_TYPE(ready) == &ReadyType ? (Ready *)ready : NULL;
}

/* --- reductions that wait --------------------------------------------------------------------- */

/* The reduction that waits if it is the only one, a new reference, and how many there are. */
static Py_ssize_t
only_one(PyObject **one)
{
    Py_ssize_t count = 0;
    *one = NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(known.waiting) && count < 2; ++i) {
        PyObject *found = referent(PyList_GET_ITEM(known.waiting, i));
        if (found != NULL && found != *one) {
            Py_XSETREF(*one, found);
            ++count;
        }
        else {
            Py_XDECREF(found);
        }
    }
    if (count != 1) {
        Py_CLEAR(*one);
    }
    return count;
}

/* Take a reduction off the list, and those that are gone. Returns -1 with an error set. */
static int
wait_no_longer(PyObject *pending)
{
    for (Py_ssize_t i = PyList_GET_SIZE(known.waiting) - 1; i >= 0; --i) {
        if (i >= PyList_GET_SIZE(known.waiting)) {
            continue; /* another thread has taken some */
        }
        PyObject *found = referent(PyList_GET_ITEM(known.waiting, i));
        int gone = found == NULL || found == pending;
        Py_XDECREF(found);
        if (gone && PyList_SetSlice(known.waiting, i, i + 1, NULL) < 0) {
            return -1;
        }
    }
    return 0;
}

/* The value that is reduced as its tensor has it, or as it was: see `Pending.reduced`. */
static PyObject *
reduced_value(PyObject *pending)
{
    PyObject *value = get(pending, known.pending_value), *now = NULL;
    PyObject *tensor = PyObject_CallNoArgs(get(pending, known.pending_tensor));
    if (tensor != NULL && PyObject_TypeCheck(tensor, known.tensor)) {
        now = get(tensor, known.tensor_expr);
        if (now == NULL || Py_TYPE(now) != known.expr ||
            get(now, known.expr_program) != get(value, known.expr_program)) {
            now = NULL;
        }
    }
    PyErr_Clear();
    now = Py_NewRef(now == NULL ? value : now);
    Py_XDECREF(tensor);
    return now;
}

/* Give the leaves of a reduction their arrays: `Pending.settle`. Returns -1 with an error set. */
static int
give_results(PyObject *pending, PyObject **results, int count)
{
    PyObject *cells = get(pending, known.pending_cells);
    if (number_of(get(get(pending, known.pending_value), known.expr_since)) !=
        number_of(known.always)) {
        PyObject *value = reduced_value(pending);
        int status = mark_computed(value, 1);
        Py_DECREF(value);
        if (status < 0) {
            return -1;
        }
    }
    for (Py_ssize_t i = 0; PyList_Check(cells) && i < PyList_GET_SIZE(cells); ++i) {
        PyObject *cell = referent(PyList_GET_ITEM(cells, i));
        PyObject *source = cell == NULL ? NULL : get(cell, known.reduced_source);
        long long number = cell == NULL ? -1 : number_of(get(cell, known.reduced_result));
        if (source == pending && number >= 0 && number < count) {
            set(cell, known.cell_array, results[number]);
            set(cell, known.reduced_source, Py_None);
        }
        Py_XDECREF(cell);
    }
    return 0;
}

/* The plan of a table that reduces in C, borrowed; NULL where there is no such thing. */
static Reduced *
reduced_in(PyObject *plans, PyObject *key)
{
    PyObject *plan = PyDict_Check(plans) ? PyDict_GetItemWithError(plans, key) : NULL;
    PyObject *ready = plan == NULL ? NULL : PyObject_GetAttr(plan, s_ready);
    Py_XDECREF(ready); /* the plan holds it */
    return ready != NULL && Py_TYPE(ready) == &ReducedType ? (Reduced *)ready : NULL;
}

/* Run a plan for a reduction that waits; what is computed beyond its results goes to `rest`, an
 * array or NULL. Returns 1, or 0 where this is not the way, or -1 with an error set. */
static int
run_waiting(PyObject *pending, Reduced *ready, PyObject *leaves, PyObject **rest)
{
    PyObject *results[MOST_STORES];
    int own, count = ready == NULL ? 0 : results_of((PyObject *)ready), status = 0;
    own = ready == NULL ? 0 : ready->folds;
    if (ready != NULL && count == own + (rest != NULL)) {
        status = run_plan((PyObject *)ready, leaves, results);
    }
    if (status > 0) {
        if (give_results(pending, results, own) < 0 || wait_no_longer(pending) < 0) {
            status = -1;
        }
        if (rest != NULL) {
            *rest = results[own];
        }
        for (int i = 0; i < own; ++i) {
            Py_DECREF(results[i]);
        }
        if (status < 0 && rest != NULL) {
            Py_CLEAR(*rest);
        }
    }
    return PyErr_Occurred() ? -1 : status;
}

/* Compute a reduction by itself. The usual case of `_compute` in
 * lucid_gpu/fusion/pending_reductions.py. */
static int
run_waiting_alone(PyObject *pending)
{
    PyObject *value = Py_NewRef(get(pending, known.pending_value));
    PyObject *leaves = Py_NewRef(get(value, known.expr_leaves));
    PyObject *strided = get(get(value, known.expr_program), known.program_strided);
    int status = 0;
    if (PyTuple_Check(strided) && PyTuple_GET_SIZE(strided) == 0) {
        PyObject *plans = get(get(pending, known.pending_recipe), known.recipe_plans);
        status = run_waiting(pending, reduced_in(plans, known.no_tuple), leaves, NULL);
    }
    Py_DECREF(leaves);
    Py_DECREF(value);
    return status;
}

/* Where a leaf is among others; -1 where it is not. */
static Py_ssize_t
index_of(PyObject *leaves, PyObject *leaf)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(leaves); ++i) {
        if (PyTuple_GET_ITEM(leaves, i) == leaf) {
            return i;
        }
    }
    return -1;
}

/* Join the leaves of a reduction and of what goes on with it, a new tuple, and set `key` to what the
 * plan of both is found by: see `_remember_tail` in lucid_gpu/fusion/pending_reductions.py. */
static PyObject *
joined(PyObject *pending, PyObject *value, PyObject **key)
{
    PyObject *first = get(get(pending, known.pending_value), known.expr_leaves);
    PyObject *own = get(value, known.expr_leaves), *all = Py_NewRef(first);
    Py_ssize_t count = PyTuple_GET_SIZE(own);
    *key = PyTuple_New(count + 1);
    for (Py_ssize_t i = 0; i < count && *key != NULL && all != NULL; ++i) {
        PyObject *leaf = PyTuple_GET_ITEM(own, i);
        Py_ssize_t place = index_of(all, leaf);
        if (place < 0) {
            place = PyTuple_GET_SIZE(all);
            PyObject *more = PyTuple_New(place + 1);
            for (Py_ssize_t j = 0; more != NULL && j < place; ++j) {
                PyTuple_SET_ITEM(more, j, Py_NewRef(PyTuple_GET_ITEM(all, j)));
            }
            if (more != NULL) {
                PyTuple_SET_ITEM(more, place, Py_NewRef(leaf));
            }
            Py_SETREF(all, more);
        }
        int result = Py_TYPE(leaf) == known.reduced && get(leaf, known.reduced_source) == pending;
        PyObject *number = PyLong_FromSsize_t(result ? -1 - place : place);
        if (number == NULL) {
            Py_CLEAR(all);
        }
        else {
            PyTuple_SET_ITEM(*key, i + 1, number);
        }
    }
    if (*key == NULL || all == NULL) {
        Py_CLEAR(*key);
        Py_CLEAR(all);
        return NULL;
    }
    PyTuple_SET_ITEM(*key, 0, Py_NewRef(get(value, known.expr_program)));
    return all;
}

/* Whether a value is made of the results of a reduction, and of their shape. */
static int
goes_on_with(PyObject *value, PyObject *pending)
{
    PyObject *leaves = get(value, known.expr_leaves);
    PyObject *shape = get(get(pending, known.pending_recipe), known.recipe_shape);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(leaves); ++i) {
        PyObject *leaf = PyTuple_GET_ITEM(leaves, i);
        if (Py_TYPE(leaf) == known.reduced && get(leaf, known.reduced_source) == pending) {
            return PyObject_RichCompareBool(get(value, known.expr_shape), shape, Py_EQ);
        }
    }
    return 0;
}

/* Whether a value is what a reduction reduces; see `Pending.reads`. */
static int
is_what_it_reduces(PyObject *value, PyObject *pending)
{
    PyObject *own = get(pending, known.pending_value);
    PyObject *leaves = get(own, known.expr_leaves), *others = get(value, known.expr_leaves);
    return get(own, known.expr_program) == get(value, known.expr_program) &&
           same_leaves(leaves, others);
}

/* Whether it is an operand of that. */
static int
is_operand_of(PyObject *value, PyObject *pending)
{
    PyObject *made_by = get(get(pending, known.pending_value), known.expr_made_by);
    return PyTuple_Check(made_by) && index_of(made_by, value) >= 0;
}

/* Whether this thread started a reduction. */
static int
is_of_this_thread(PyObject *pending)
{
    unsigned long thread = PyLong_AsUnsignedLong(get(pending, known.pending_thread));
    return !PyErr_Occurred() && thread == PyThread_get_thread_ident();
}

/* Give a tensor the array that a kernel has computed of its value, while which others may have come
 * to lie on its memory. Returns -1 with an error set. */
static int
settle_now(PyObject *tensor, PyObject *value, PyObject *program, PyObject *load, PyObject *array)
{
    PyObject *storage = mark_computed(value, 0) < 0 ? NULL : own_storage(tensor);
    if (storage != NULL) {
        int status = settle(tensor, storage, value, program, load, array);
        Py_DECREF(storage);
        return status;
    }
    PyObject *args[] = {tensor, value, array};
    PyObject *stored = PyErr_Occurred() ? NULL : PyObject_VectorcallMethod(s_settle, args, 3, NULL);
    Py_XDECREF(stored);
    return stored == NULL ? -1 : 0;
}

/* Compute a value by the kernel of the one reduction that waits. */
static int
compute_with(PyObject *tensor, PyObject *value, PyObject *pending)
{
    PyObject *program = get(value, known.expr_program), *load = get(program, known.program_stored);
    PyObject *key, *array = NULL, *leaves = NULL;
    int status = 0;
    if (get(program, known.program_laid) == Py_False && load != NULL && load != Py_None) {
        leaves = joined(pending, value, &key);
        status = leaves == NULL ? -1 : 0;
    }
    if (leaves != NULL) {
        PyObject *tails = get(get(pending, known.pending_recipe), known.recipe_tails);
        Py_INCREF(program);
        Py_INCREF(load);
        status = run_waiting(pending, reduced_in(tails, key), leaves, &array);
        if (status > 0 && settle_now(tensor, value, program, load, array) < 0) {
            status = -1;
        }
        Py_XDECREF(array);
        Py_DECREF(program);
        Py_DECREF(load);
        Py_DECREF(key);
        Py_DECREF(leaves);
    }
    return status;
}

/* Compute a value and give it to its tensor. Returns 1, or 0 where this is not the way, or -1 with an
 * error set. */
static int
compute(PyObject *tensor, PyObject *value, Ready *ready)
{
    PyObject *array, *program = Py_NewRef(get(value, known.expr_program));
    PyObject *load = Py_NewRef(get(program, known.program_stored));
    Py_INCREF(ready); /* programs may be forgotten meanwhile */
    int status = run_ready(ready, get(value, known.expr_leaves), NULL, &array);
    if (status > 0) {
        if (settle_now(tensor, value, program, load, array) < 0) {
            status = -1;
        }
        Py_DECREF(array);
    }
    Py_DECREF(program);
    Py_DECREF(load);
    Py_DECREF(ready);
    return status;
}

/* Compute the value that a reduction waits to reduce; it goes on with what was stored: the usual case
 * of `reread` in lucid_gpu/fusion/pending_reductions.py. Returns 2, or 0 where this is not the way. */
static int
store_reduced(PyObject *tensor, PyObject *value, PyObject *pending)
{
    Ready *ready = ready_of(value);
    int status = ready != NULL && ready->stores == 1 ? compute(tensor, value, ready) : 0;
    PyObject *stored = status > 0 ? value_of(tensor) : NULL, *recipe = NULL, *apart = NULL;
    if (stored != NULL && get(get(stored, known.expr_program), known.program_is_load) == Py_True) {
        recipe = PyObject_CallMethodOneArg(get(pending, known.pending_recipe), s_on, stored);
        apart = new_expr(get(stored, known.expr_program), get(stored, known.expr_leaves), Py_None,
                         get(stored, known.expr_shape), known.always);
    }
    if (recipe != NULL && apart != NULL) {
        set(pending, known.pending_value, apart);
        set(pending, known.pending_recipe, recipe);
    }
    Py_XDECREF(stored);
    Py_XDECREF(recipe);
    Py_XDECREF(apart);
    return PyErr_Occurred() ? -1 : 2 * status;
}

/* Compute what waits before a value is, where that is one reduction of this thread. Returns 2 where
 * the value was computed with it, 1 where the value is next, 0 where this is not the way. */
static int
compute_waiting(PyObject *tensor, PyObject *value)
{
    PyObject *pending;
    Py_ssize_t count = only_one(&pending);
    if (count != 1) {
        return count != 0           ? 0
               : wait_no_longer(NULL) < 0 ? -1
                                          : 1;
    }
    int status = 0;
    if (is_what_it_reduces(value, pending)) {
        status = is_of_this_thread(pending) ? store_reduced(tensor, value, pending) : 0;
    }
    else if (is_of_this_thread(pending) && !is_operand_of(value, pending)) {
        int together = goes_on_with(value, pending);
        if (together > 0) {
            status = compute_with(tensor, value, pending);
            status = status > 0 ? 2 : status;
        }
        else {
            status = together < 0 ? -1 : run_waiting_alone(pending);
        }
    }
    Py_DECREF(pending);
    return status;
}

PyDoc_STRVAR(fill_doc,
"fill(leaf)\n"
"--\n\n"
"Compute the reduction that a leaf waits for; False where this is not the way.");

/* The usual case of `ReducedCell.fill`. */
static PyObject *
fill(PyObject *Py_UNUSED(module), PyObject *leaf)
{
    int status = 0;
    if (!closed && Py_TYPE(leaf) == known.reduced) {
        PyObject *source = get(leaf, known.reduced_source), *one = NULL;
        Py_XINCREF(source);
        if (source != NULL && Py_TYPE(source) == known.pending && nobody_looks()) {
            Py_ssize_t count = only_one(&one);
            if (count == 0 || one == source) {
                status = run_waiting_alone(source);
            }
        }
        Py_XDECREF(one);
        Py_XDECREF(source);
    }
    return status < 0 || PyErr_Occurred() ? NULL : PyBool_FromLong(status);
}

/* A leaf that holds the first result of a reduction, an output of a node or None:
 * `ReducedCell.__init__`. */
PyObject *
new_reduced_cell(PyObject *pending, PyObject *node, PyObject *output)
{
    PyObject *cell = known.reduced->tp_alloc(known.reduced, 0), *reference = NULL;
    if (cell != NULL) {
        set(cell, known.cell_node, node);
        set(cell, known.cell_output, output);
        set(cell, known.cell_variable, Py_None);
        set(cell, known.cell_version, known.zero);
        set(cell, known.reduced_source, pending);
        set(cell, known.reduced_result, known.zero);
        reference = PyWeakref_NewRef(cell, NULL);
    }
    if (reference == NULL || PyList_Append(get(pending, known.pending_cells), reference) < 0) {
        Py_CLEAR(cell);
    }
    Py_XDECREF(reference);
    return cell;
}

/* A reduction that waits: `start` in lucid_gpu/fusion/pending_reductions.py. */
static PyObject *
new_pending(PyObject *tensor, PyObject *value, PyObject *recipe)
{
    PyObject *pending = known.pending->tp_alloc(known.pending, 0), *program, *reference;
    if (pending == NULL) {
        return NULL;
    }
    program = get(value, known.expr_program);
    PyObject *apart = Py_NewRef(value);
    if (get(program, known.program_is_load) != Py_True) { /* without its node */
        PyObject *made_by = get(value, known.expr_made_by);
        Py_SETREF(apart, new_expr(program, get(value, known.expr_leaves), made_by,
                                  get(value, known.expr_shape), get(value, known.expr_since)));
    }
    PyObject *of_tensor = tensor == Py_None ? Py_NewRef(known.nobody)
                                            : PyWeakref_NewRef(tensor, NULL);
    PyObject *cells = PyList_New(0);
    PyObject *thread = PyLong_FromUnsignedLong(PyThread_get_thread_ident());
    reference = PyWeakref_NewRef(pending, NULL);
    int status = apart == NULL || of_tensor == NULL || cells == NULL || thread == NULL ||
                         reference == NULL
                     ? -1
                     : 0;
    if (status == 0) {
        set(pending, known.pending_value, apart);
        set(pending, known.pending_tensor, of_tensor);
        set(pending, known.pending_cells, cells);
        set(pending, known.pending_thread, thread);
        set(pending, known.pending_recipe, recipe);
        status = PyList_Append(known.waiting, reference);
    }
    Py_XDECREF(apart);
    Py_XDECREF(of_tensor);
    Py_XDECREF(cells);
    Py_XDECREF(thread);
    Py_XDECREF(reference);
    if (status < 0) {
        Py_CLEAR(pending);
    }
    return pending;
}

/* Whether a value has so many elements that its reduction waits only beside others. */
static int
is_large(PyObject *value)
{
    PyObject *shape = get(value, known.expr_shape);
    long long elements = 1;
    for (Py_ssize_t i = 0; elements < LARGE && i < PyTuple_GET_SIZE(shape); ++i) {
        long long extent = number_of(PyTuple_GET_ITEM(shape, i));
        if (extent <= 0) {
            return 0;
        }
        elements = extent < LARGE ? elements * extent : LARGE;
    }
    return elements >= LARGE;
}

/* The usual cases of `lucid_gpu.fusion.pending_reductions.make_room`: all go on waiting, or the only
 * one is what the value is made of. Returns 0 where this is not the way, -1 with an error set. */
static int
make_room(PyObject *value)
{
    PyObject *leaves = get(value, known.expr_leaves), *source = NULL, *only = NULL;
    for (Py_ssize_t i = 0; source == NULL && i < PyTuple_GET_SIZE(leaves); ++i) {
        PyObject *leaf = PyTuple_GET_ITEM(leaves, i);
        source = Py_TYPE(leaf) == known.reduced ? get(leaf, known.reduced_source) : NULL;
        source = source == Py_None ? NULL : source;
    }
    Py_ssize_t waiting = PyList_GET_SIZE(known.waiting);
    if (source == NULL || waiting == 0) {
        return waiting == 0 || (waiting < MOST_REDUCTIONS && !is_large(value));
    }
    int status = 0;
    if (nobody_looks() && only_one(&only) == 1 && is_of_this_thread(only)) {
        status = run_waiting_alone(only);
    }
    Py_XDECREF(only);
    return PyErr_Occurred() ? -1 : status;
}

PyDoc_STRVAR(start_doc,
"start(value, recipe, tensor)\n"
"--\n\n"
"Let a reduction of a tensor's value wait: `lucid_gpu.fusion.pending_reductions.start`.");

PyObject *
start(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (closed || count != 3 || Py_TYPE(args[0]) != known.expr ||
        Py_TYPE(args[1]) != known.recipe ||
        (args[2] != Py_None && !PyObject_TypeCheck(args[2], known.tensor))) {
        return in_general(known.start, args, count, NULL);
    }
    int room = make_room(args[0]);
    if (room == 0) { /* some may not go on waiting */
        PyObject *nothing = PyObject_CallOneArg(known.make_room, args[0]);
        room = nothing == NULL ? -1 : 1;
        Py_XDECREF(nothing);
    }
    if (room < 0) {
        return NULL;
    }
    return new_pending(args[2], args[0], args[1]);
}

PyDoc_STRVAR(of_pending_doc,
"of_pending(pending, node, output)\n"
"--\n\n"
"A tensor of the first result of a reduction: `lucid_gpu.tensor._of_pending`.");

PyObject *
of_pending(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (closed || count != 3 || Py_TYPE(args[0]) != known.pending) {
        return in_general(known.of_pending, args, count, NULL);
    }
    PyObject *recipe = get(args[0], known.pending_recipe), *tensor = NULL, *leaves;
    PyObject *plain = get(recipe, known.recipe_results), *loads = get(recipe, known.recipe_recorded);
    PyObject *load = PyTuple_GET_ITEM(args[1] == Py_None ? plain : loads, 0);
    int recorded = load != PyTuple_GET_ITEM(plain, 0); /* whole numbers never are */
    PyObject *cell = new_reduced_cell(args[0], recorded ? args[1] : Py_None,
                                      recorded ? args[2] : known.zero);
    leaves = cell == NULL ? NULL : PyTuple_Pack(1, cell);
    if (leaves != NULL) {
        PyObject *shape = get(recipe, known.recipe_shape);
        PyObject *value = new_expr(load, leaves, Py_None, shape, known.always);
        tensor = value == NULL ? NULL : new_tensor(value);
        Py_XDECREF(value);
    }
    Py_XDECREF(leaves);
    Py_XDECREF(cell);
    return tensor;
}

/* --- storing a value: what is called ---------------------------------------------------------- */

PyDoc_STRVAR(store_doc,
"store(tensor)\n"
"--\n\n"
"Compute the pending value of a tensor. False where this is not the way; all is as it was then.");

/* Whether a tensor's value is computed without others that it was made or written with, into a leaf
 * as others are. -1 with an error set. */
static int
is_alone(PyObject *tensor, PyObject *value)
{
    PyObject *program = get(value, known.expr_program), *leaves = get(value, known.expr_leaves);
    Py_ssize_t last = PyTuple_GET_SIZE(leaves) - 1;
    if (get(program, known.program_is_load) != Py_False ||
        (get(program, known.program_is_boundary) == Py_True &&
         (last < 0 || Py_TYPE(PyTuple_GET_ITEM(leaves, last)) != known.cell))) {
        return 0;
    }
    int alone = has(tensor, s_siblings, Py_None);
    return alone > 0 && nobody_looks() ? nothing_written() : alone < 0 ? -1 : 0;
}

/* The usual case of `Tensor._realize`. */
PyObject *
store(PyObject *Py_UNUSED(module), PyObject *tensor)
{
    if (closed || !PyObject_TypeCheck(tensor, known.tensor)) {
        Py_RETURN_FALSE;
    }
    PyObject *value = value_of(tensor); /* others may give the tensor another one meanwhile */
    if (value == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_False);
    }
    int status = is_alone(tensor, value);
    PyObject *storage = status > 0 ? own_storage(tensor) : NULL;
    int waited = storage == NULL || !PyList_GET_SIZE(known.waiting)
                     ? 1
                     : compute_waiting(tensor, value);
    Ready *ready = storage == NULL || waited != 1 ? NULL : ready_of(value);
    if (waited != 1) {
        status = waited < 0 ? -1 : waited > 0;
    }
    else if (ready != NULL && ready->stores == 1) {
        status = compute(tensor, value, ready);
    }
    else {
        status = status < 0 || PyErr_Occurred() ? -1 : 0;
    }
    Py_XDECREF(storage);
    Py_DECREF(value);
    return status < 0 ? NULL : PyBool_FromLong(status);
}

PyDoc_STRVAR(array_doc,
"array(tensor)\n"
"--\n\n"
"The attribute of this name of a tensor.");

static PyObject *
array(PyObject *Py_UNUSED(module), PyObject *tensor)
{
    PyObject *value = NULL, *found = NULL;
    if (!closed && nobody_looks() && PyObject_TypeCheck(tensor, known.tensor)) {
        value = value_of(tensor);
    }
    if (value != NULL && get(get(value, known.expr_program), known.program_is_load) != Py_True) {
        PyObject *stored = store(NULL, tensor);
        Py_SETREF(value, stored == Py_True ? value_of(tensor) : NULL);
        Py_XDECREF(stored);
    }
    if (value != NULL && get(get(value, known.expr_program), known.program_is_load) == Py_True) {
        PyObject *leaf = PyTuple_GET_ITEM(get(value, known.expr_leaves), 0);
        found = PyObject_GetAttr(leaf, s_array);
    }
    Py_XDECREF(value);
    return found != NULL ? found : in_general(known.array_of, &tensor, 1, NULL);
}

PyDoc_STRVAR(grad_doc,
"grad(tensor)\n"
"--\n\n"
"The attribute of this name of a tensor.");

static PyObject *
grad(PyObject *Py_UNUSED(module), PyObject *tensor)
{
    PyObject *value = !closed && PyObject_TypeCheck(tensor, known.tensor) ? value_of(tensor) : NULL;
    PyObject *found = NULL, *program = value == NULL ? NULL : get(value, known.expr_program);
    if (program != NULL && get(program, known.program_is_load) == Py_True &&
        get(program, known.program_marks) == known.zero &&
        get(program, known.program_needs_grad) == Py_True) {
        PyObject *leaf = PyTuple_GET_ITEM(get(value, known.expr_leaves), 0);
        PyObject *node = Py_TYPE(leaf) == known.cell ? get(leaf, known.cell_node) : NULL;
        if (node != NULL && Py_TYPE(node) == engine.leaf) {
            found = PyObject_GetAttr(node, s_grad);
        }
    }
    Py_XDECREF(value);
    return found != NULL ? found : in_general(known.grad_of, &tensor, 1, NULL);
}

PyDoc_STRVAR(as_method_doc,
"as_method(function)\n"
"--\n\n"
"One of these functions as a method.");

static PyObject *
as_method(PyObject *Py_UNUSED(module), PyObject *function)
{
    return PyInstanceMethod_New(function);
}

/* Compute the pending value of a tensor, in Python where this is not the way. -1 with an error set. */
int
store_anyhow(PyObject *tensor)
{
    PyObject *stored = store(NULL, tensor);
    if (stored == Py_False) {
        Py_SETREF(stored, PyObject_CallMethodNoArgs(tensor, s_realize));
    }
    Py_XDECREF(stored);
    return stored == NULL ? -1 : 0;
}

PyDoc_STRVAR(of_value_doc,
"of_value(value)\n"
"--\n\n"
"A tensor with this value: `lucid_gpu.tensor._of_value`.");

static PyObject *
of_value(PyObject *Py_UNUSED(module), PyObject *value)
{
    if (closed || !PyObject_TypeCheck(value, known.expr)) {
        return in_general(known.of_value, &value, 1, NULL);
    }
    return new_tensor(value);
}

/* A tensor that reads an array by the program of a load, an output of a node or of None. */
PyObject *
stored_tensor(PyObject *program, PyObject *array, PyObject *node, PyObject *output, PyObject *shape)
{
    PyObject *cell = new_cell(array, node, output), *tensor = NULL;
    PyObject *leaves = cell == NULL ? NULL : PyTuple_Pack(1, cell);
    PyObject *value =
        leaves == NULL ? NULL : new_expr(program, leaves, Py_None, shape, known.always);
    if (value != NULL) {
        tensor = new_tensor(value);
        Py_DECREF(value);
    }
    Py_XDECREF(leaves);
    Py_XDECREF(cell);
    return tensor;
}

PyDoc_STRVAR(of_array_doc,
"of_array(program, array, node, output, shape)\n"
"--\n\n"
"A tensor that reads an array by the program of a load: `lucid_gpu.tensor._of_array`.");

static PyObject *
of_array(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (closed || count != 5 || !PyTuple_Check(args[4]) ||
        PyDict_GetItemWithError(known.watched, s_by) != Py_None) {
        return in_general(known.of_array, args, count, NULL);
    }
    return stored_tensor(args[0], args[1], args[2], args[3], args[4]);
}

PyMethodDef storing_methods[] = {
    {"array", array, METH_O, array_doc},
    {"as_method", as_method, METH_O, as_method_doc},
    {"fill", fill, METH_O, fill_doc},
    {"grad", grad, METH_O, grad_doc},
    {"of_array", (PyCFunction)(void (*)(void))of_array, METH_FASTCALL, of_array_doc},
    {"of_pending", (PyCFunction)(void (*)(void))of_pending, METH_FASTCALL, of_pending_doc},
    {"of_value", of_value, METH_O, of_value_doc},
    {"start", (PyCFunction)(void (*)(void))start, METH_FASTCALL, start_doc},
    {"store", store, METH_O, store_doc},
    {NULL, NULL, 0, NULL},
};

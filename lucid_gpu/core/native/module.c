/* The usual case of what the core does most often, without the interpreter between its steps.
 *
 * The classes (Tensor, Expr, Cell, Program) are Python's, declared once; these files read and
 * write their slots, whose places `bind` asks for. Each function names the Python function whose usual
 * case it is. It declines anything else, having changed nothing, and that function then runs: so
 * the Python is complete without these files and gives the same bits, and each rule stands there.
 *
 *     values.c   what is read and made of Python's classes
 *     doors.c    Door: calls an op that nobody is to see first, `lucid_gpu.tape.short.short`
 *     methods.c  Method: applies a row of the op table, `lucid_gpu.tensor.apply`
 *     kernels.c  Walk, Ready, Reduced: run small plans on NumPy's loops, `lucid_gpu.fusion.realize.execute`
 *     storing.c  store, settle: `Tensor._realize`; reductions that wait, `fusion.pending_reductions`
 *     nodes.c    record: `lucid_gpu.ops.record.record`; the nodes of regions, `fusion.region`
 *     passes.c   run_nodes: `lucid_gpu.core.engine._run_nodes`, through regions and custom Functions
 *     memory.c   views, `lucid_gpu.ops.shape._view_of`, and writes, `lucid_gpu.ops.in_place._write`
 *     module.c   what is told once, and the module
 *
 * It relies on the GIL and is not built where Python has none. The module is optional. An object that
 * is borrowed is not used after anything was allocated: a collection may run code that frees it.
 */
#define IMPORTS_NUMPY
#include "core.h"

#define DEFINE(name, text) PyObject *name;
NAMES(DEFINE)
#undef DEFINE

/* Everything that is told: its name, where it is kept, and of which type it is, if of one. */
static const struct {
    const char *name;
    void *place;
    PyTypeObject *type;
} told_once[] = {
    {"tensor", &known.tensor, &PyType_Type},
    {"expr", &known.expr, &PyType_Type},
    {"cell", &known.cell, &PyType_Type},
    {"variable", &known.variable, &PyType_Type},
    {"program", &known.program, &PyType_Type},
    {"steps", &known.steps, NULL},
    {"state", &known.state, NULL},
    {"waiting", &known.waiting, &PyList_Type},
    {"observers", &known.observers, &PyList_Type},
    {"watched", &known.watched, &PyDict_Type},
    {"eager", &known.eager, NULL},
    {"unread", &known.unread, &PyType_Type},
    {"of_value", &known.of_value, NULL},
    {"of_array", &known.of_array, NULL},
    {"met", &known.met, NULL},
    {"store_first", &known.store_first, NULL},
    {"identity", &known.identity, NULL},
    {"expand", &known.expand, NULL},
    {"pending", &known.pending, &PyType_Type},
    {"recipe", &known.recipe, &PyType_Type},
    {"reduced", &known.reduced, &PyType_Type},
    {"of_pending", &known.of_pending, NULL},
    {"start", &known.start, NULL},
    {"make_room", &known.make_room, NULL},
    {"nobody", &known.nobody, NULL},
    {"always", &known.always, &PyLong_Type},
    {"computed", &known.computed, &PyLong_Type},
    {"leaf_written", &known.leaf_written, &PyLong_Type},
    {"recorded", &known.recorded, NULL},
    {"off", &known.off, NULL},
    {"forward", &known.forward, NULL},
    {"record", &made.record, NULL},
    {"edge_of", &made.edge_of, NULL},
    {"load", &made.load, NULL},
    {"classes", &made.classes, &PyDict_Type},
    {"save_result", &made.save_result, &PyFrozenSet_Type},
    {"open_levels", &made.open_levels, &PyList_Type},
    {"modes", &made.modes, &PyDict_Type},
    {"watching", &made.watching, NULL},
    {"sequence", &made.sequence, NULL},
    {"saved", &made.saved, &PyType_Type},
    {"region_node", &region.general, NULL},
    {"way_back", &region.way_back, NULL},
    {"summed_to", &region.summed_to, NULL},
    {"recipe_of", &region.recipe_of, NULL},
    {"written", &region.written, &PySet_Type},
    {"regions_held", &region.held, NULL},
    {"saved_inside", &region.saved_inside, NULL},
    {"region", &region.node, &PyType_Type},
    {"run_nodes", &engine.run_nodes, NULL},
    {"turn", &engine.turn, NULL},
    {"added", &engine.added, NULL},
    {"leaf", &engine.leaf, &PyType_Type},
    {"op_node", &engine.op, &PyType_Type},
    {"nodes", &engine.nodes, &PyDict_Type},
    {"storage", &memory.storage, &PyType_Type},
    {"same_memory", &memory.same_memory, &PyType_Type},
    {"held", &memory.held, &PyDict_Type},
    {"load_program", &memory.load_program, NULL},
    {"without_grad", &memory.without_grad, NULL},
    {"taken", &memory.taken, NULL},
    {"put", &memory.put, NULL},
    {"store_written", &memory.store_written, NULL},
    {"copy_readers", &memory.copy_readers, NULL},
    {"base_array", &memory.base_array, NULL},
    {"view_of", &memory.view_of, NULL},
    {"before_write", &memory.before_write, NULL},
    {"detached", &memory.detached, NULL},
    {"read_anew", &memory.read_anew, NULL},
    {"follow_base", &memory.follow_base, NULL},
    {"write", &memory.write, NULL},
    {"array", &known.array_of, NULL},
    {"grad", &known.grad_of, NULL},
    {"finish_one", &custom.finish_one, NULL},
    {"store_together", &custom.store_together, NULL},
    {"boundary_of", &custom.boundary_of, NULL},
    {"boundaries", &custom.boundaries, &PyDict_Type},
    {"unpack", &custom.unpack, NULL},
    {"tell", &custom.tell, NULL},
    {"function", &custom.node, &PyType_Type},
    {"handling", &engine.handling, &PyList_Type},
    {"interpreters", &engine.interpreters, &PyList_Type},
    {"push", &engine.push, NULL},
    {"pop", &engine.pop, NULL},
    {"push_pop", &engine.push_pop, NULL},
};
enum { TOLD = sizeof told_once / sizeof *told_once };

/* What is told of one of them, borrowed, or NULL. */
static PyObject *
told_of(size_t i)
{
    PyObject *value; /* kept as a pointer to an object or to a type */
    memcpy(&value, told_once[i].place, sizeof value);
    return value;
}

/* Whether all is told. */
static int
knows_all(void)
{
    for (size_t i = 0; i < TOLD; ++i) {
        if (told_of(i) == NULL) {
            return 0;
        }
    }
    return 1;
}

/* Find all slots of classes, once these are known. */
static int
find_slots(void)
{
    PyTypeObject *tensor = known.tensor, *expr = known.expr, *cell = known.cell;
    PyTypeObject *program = known.program, *steps = Py_TYPE(known.steps), *saved = made.saved;
    PyTypeObject *storage = memory.storage, *unread = known.unread;
    PyTypeObject *pending = known.pending, *recipe = known.recipe, *reduced = known.reduced;
    const struct {
        PyTypeObject *type;
        const char *name;
        Slot *slot;
    } places[] = {
        {tensor, "_expr", &known.tensor_expr},
        {expr, "program", &known.expr_program},
        {expr, "leaves", &known.expr_leaves},
        {expr, "shape", &known.expr_shape},
        {expr, "made_by", &known.expr_made_by},
        {expr, "node", &known.expr_node},
        {expr, "variable", &known.expr_variable},
        {expr, "also", &known.expr_also},
        {expr, "since", &known.expr_since},
        {expr, "version", &known.expr_version},
        {cell, "array", &known.cell_array},
        {cell, "node", &known.cell_node},
        {cell, "output", &known.cell_output},
        {cell, "variable", &known.cell_variable},
        {cell, "version", &known.cell_version},
        {program, "is_load", &known.program_is_load},
        {program, "is_boundary", &known.program_is_boundary},
        {program, "needs_grad", &known.program_needs_grad},
        {program, "device", &known.program_device},
        {program, "dtype", &known.program_dtype},
        {program, "marks", &known.program_marks},
        {program, "region", &known.program_region},
        {program, "free", &known.program_free},
        {program, "independent", &known.program_independent},
        {program, "instructions", &known.program_instructions},
        {storage, "cells", &memory.cells},
        {storage, "owner", &memory.owner},
        {storage, "mirrors", &memory.mirrors},
        {storage, "read", &memory.read},
        {storage, "read_only", &memory.read_only},
        {storage, "tensors", &memory.tensors},
        {storage, "unrecorded", &memory.unrecorded},
        {storage, "version", &memory.version},
        {storage, "writer", &memory.writer},
        {memory.same_memory, "memory", &memory.memory},
        {unread, "found", &memory.unread_found},
        {unread, "leaf", &memory.unread_leaf},
        {unread, "loads", &memory.unread_loads},
        {unread, "tensor", &memory.unread_tensor},
        {program, "laid", &known.program_laid},
        {program, "strided", &known.program_strided},
        {program, "barred", &known.program_barred},
        {program, "plans", &known.program_plans},
        {program, "stored", &known.program_stored},
        {pending, "value", &known.pending_value},
        {pending, "recipe", &known.pending_recipe},
        {pending, "tensor", &known.pending_tensor},
        {pending, "thread", &known.pending_thread},
        {pending, "cells", &known.pending_cells},
        {recipe, "results", &known.recipe_results},
        {recipe, "recorded", &known.recipe_recorded},
        {recipe, "shape", &known.recipe_shape},
        {recipe, "plans", &known.recipe_plans},
        {recipe, "tails", &known.recipe_tails},
        {reduced, "source", &known.reduced_source},
        {reduced, "result", &known.reduced_result},
        {steps, "count", &known.steps_count},
        {steps, "fresh", &known.steps_fresh},
        {saved, "program", &made.saved_program},
        {saved, "shape", &made.saved_shape},
        {saved, "variable", &made.saved_variable},
        {saved, "version", &made.saved_version},
        {saved, "tensor", &made.saved_tensor},
        {saved, "output", &made.saved_output},
        {saved, "only", &made.saved_only},
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; ++i) {
        if (slot_of(places[i].type, places[i].name, places[i].slot) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Keep what is told under a name, as long as the process lives. */
static int
tell(PyObject *name, PyObject *value)
{
    for (size_t i = 0; i < TOLD; ++i) {
        if (PyUnicode_CompareWithASCIIString(name, told_once[i].name) == 0) {
            PyTypeObject *type = told_once[i].type;
            if (told_of(i) != NULL || (type != NULL && !PyObject_TypeCheck(value, type))) {
                PyErr_Format(PyExc_TypeError, "bind(): %U is told already, or of another type", name);
                return -1;
            }
            memcpy(told_once[i].place, &value, sizeof value);
            Py_INCREF(value);
            return 0;
        }
    }
    PyErr_Format(PyExc_TypeError, "bind(): nobody asks for %U", name);
    return -1;
}

PyDoc_STRVAR(bind_doc,
"bind(**known)\n"
"--\n\n"
"Tell of Python's classes and functions, and of what is shared with them. Before all is told, all is\n"
"declined.");

static PyObject *
bind(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (count || names == NULL) {
        PyErr_SetString(PyExc_TypeError, "bind() takes keywords");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
        if (tell(PyTuple_GET_ITEM(names, i), args[i]) < 0) {
            return NULL;
        }
    }
    if (knows_all()) {
        if (find_slots() < 0) {
            return NULL;
        }
        closed = 0;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(close_doc,
"close(yes)\n"
"--\n\n"
"Decline everything from now on, or nothing that is usual.");

static PyObject *
close_all(PyObject *Py_UNUSED(module), PyObject *yes)
{
    int truth = PyObject_IsTrue(yes);
    if (truth < 0) {
        return NULL;
    }
    closed = truth || !knows_all();
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"bind", (PyCFunction)(void (*)(void))bind, METH_FASTCALL | METH_KEYWORDS, bind_doc},
    {"close", close_all, METH_O, close_doc},
    {NULL, NULL, 0, NULL},
};

/* Intern the names that are asked for. */
static int
intern_names(void)
{
#define NAME_AND_TEXT(name, text) {&name, text},
    const struct {
        PyObject **name;
        const char *text;
    } names[] = {
        NAMES(NAME_AND_TEXT)
        {&field_name[NAME], "name"},         {&field_name[ARRAY], "array"},
        {&field_name[INPUTS], "inputs"},     {&field_name[VJP], "vjp"},
        {&field_name[SAVED], "saved"},       {&field_name[DTYPE], "dtype"},
        {&field_name[CHOSEN], "chosen"},     {&field_name[RESULTS], "results"},
        {&field_name[KEEPS_OUTPUT], "keeps_output"},
    };
#undef NAME_AND_TEXT
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
        *names[i].name = PyUnicode_InternFromString(names[i].text);
        if (*names[i].name == NULL) {
            return -1;
        }
    }
    known.zero = PyLong_FromLong(0);
    known.no_tuple = PyTuple_New(0);
    return known.zero == NULL || known.no_tuple == NULL ? -1 : 0;
}

static int
prepare(PyObject *module)
{
    import_array1(-1);
    import_umath1(-1);
    PyMethodDef *functions[] = {
        methods_methods, kernels_methods, storing_methods, nodes_methods,
        passes_methods, memory_methods,
    };
    closed = 1;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; ++i) {
        if (PyModule_AddFunctions(module, functions[i]) < 0) {
            return -1;
        }
    }
    if (intern_names() < 0 || PyModule_AddType(module, &DoorType) < 0 ||
        PyModule_AddType(module, &MethodType) < 0 ||
        PyModule_AddType(module, &WalkType) < 0 || PyModule_AddType(module, &ReadyType) < 0 ||
        PyModule_AddType(module, &ReducedType) < 0 ||
        PyModule_AddIntMacro(module, MOST_OPERANDS) < 0 ||
        PyModule_AddIntMacro(module, MOST_STORES) < 0 ||
        PyModule_AddIntMacro(module, STORED_FROM) < 0 ||
        PyModule_AddIntMacro(module, MOST_REDUCTIONS) < 0 ||
        PyModule_AddIntMacro(module, LARGE) < 0 ||
        PyModule_AddIntMacro(module, INFERENCE) < 0) {
        return -1;
    }
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)prepare},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED}, /* nor by NumPy */
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_core",
    .m_doc = "The usual case of what the core does most often, without the interpreter.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

/* What an import calls; `prepare` does the rest. */
PyMODINIT_FUNC
PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}

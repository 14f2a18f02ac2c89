/* What the files beside this one share: see `module.c`. */
#ifndef LUCID_CORE_H
#define LUCID_CORE_H

#define PY_SSIZE_T_CLEAN
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL lucid_core_arrays
#define PY_UFUNC_UNIQUE_SYMBOL lucid_core_ufuncs
#ifndef IMPORTS_NUMPY /* `module.c` does, for all */
#define NO_IMPORT_ARRAY
#define NO_IMPORT_UFUNC
#endif
#include <Python.h>
#include <structmember.h>
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>
#include <math.h>
#include <stdint.h>

#ifdef Py_GIL_DISABLED
#error "what is here relies on the GIL; setup.py leaves it out where Python has none"
#endif

#pragma GCC visibility push(hidden)

/* --- what is known of Python's classes -------------------------------------------------------- */

/* Where a class keeps an attribute: bytes into its instances. */
typedef Py_ssize_t Slot;

extern struct Known {
    PyTypeObject *tensor, *expr, *cell, *variable, *program, *pending, *recipe, *reduced;
    Slot tensor_expr;
    Slot expr_program, expr_leaves, expr_shape, expr_made_by, expr_node, expr_variable, expr_also,
        expr_since, expr_version;
    Slot cell_array, cell_node, cell_output, cell_variable, cell_version;
    Slot program_is_load, program_is_boundary, program_needs_grad, program_device,
        program_dtype, program_marks, program_region, program_free, program_independent,
        program_instructions, program_laid, program_strided, program_barred, program_plans,
        program_stored;
    Slot pending_value, pending_recipe, pending_tensor, pending_thread, pending_cells;
    Slot recipe_results, recipe_recorded, recipe_shape, recipe_plans, recipe_tails;
    Slot reduced_source, reduced_result;
    Slot steps_count, steps_fresh;
    PyObject *steps;       /* lucid_gpu.core.planning.steps */
    PyObject *state;       /* lucid_gpu.tape.modes.state */
    PyObject *waiting;     /* the reductions that wait, a list */
    PyObject *observers;   /* of launches, a list */
    PyObject *watched;     /* the namespace of lucid_gpu.tape.watched */
    PyObject *eager;       /* the class lucid_gpu.fusion.Eager */
    PyTypeObject *unread;  /* the class lucid_gpu.core.value.Unread */
    PyObject *of_value, *of_array, *of_pending; /* what makes tensors: of lucid_gpu.tensor */
    PyObject *array_of, *grad_of; /* attributes of Tensor */
    PyObject *met;         /* lucid_gpu.fusion.scheduler.met */
    PyObject *store_first; /* lucid_gpu.tensor._store */
    PyObject *identity;    /* a row of the op table */
    PyObject *expand;      /* lucid_gpu.ops.reductions._expanded */
    PyObject *start, *make_room, *nobody; /* of lucid_gpu.fusion.pending_reductions */
    PyObject *always, *computed, *leaf_written; /* what `Expr.since` is in place of a step */
    /* Modes, of lucid_gpu.tape.modes: where ops are recorded, not, and inside `Function.forward`. */
    PyObject *recorded, *off, *forward;
    PyObject *zero, *no_tuple;
} known;

extern int closed;  /* streams are followed, or nothing is known yet: all is declined */

/* The object in a slot, borrowed; NULL where it is not set. */
static inline PyObject *
get(PyObject *object, Slot slot)
{
    return *(PyObject **)((char *)object + slot);
}

/* Put an object into a slot. */
static inline void
set(PyObject *object, Slot slot, PyObject *value)
{
    PyObject **place = (PyObject **)((char *)object + slot);
    PyObject *before = *place;
    Py_INCREF(value);
    *place = value;
    Py_XDECREF(before);
}

/* A step's number; those that stand for none are the least or the largest. */
static inline long long
number_of(PyObject *step)
{
    return step != NULL && PyLong_CheckExact(step) ? PyLong_AsLongLong(step) : -3;
}

/* The class of an extent, two bits of a key: 0, 1 or more. As `lucid_gpu.core.program.axes_of`. */
static inline uint64_t
class_of(long long extent)
{
    return extent < 2 ? (uint64_t)extent : 2;
}

/* An attribute of the thread's state, borrowed: the state holds it. NULL with an error set. */
static inline PyObject *
mode(PyObject *name)
{
    PyObject *value = PyObject_GetAttr(known.state, name);
    Py_XDECREF(value);
    return value;
}

/* --- callables as functions are: attributes, binding, pickling -------------------------------- */

extern PyMethodDef callable_methods[];

extern PyGetSetDef callable_attributes[];

/* What a function has beside its attributes; Method and Door begin with it. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *name, *qualname, *doc, *module, *annotations;
    PyObject *attributes, *references;
} Function;

extern PyMemberDef callable_members[];

/* --- Door ------------------------------------------------------------------------------------- */

extern PyTypeObject DoorType;

/* --- Programs of ops: the table --------------------------------------------------------------- */

/* The program that an op on programs gave. Two operands: `low` and `high` say which leaves of the
 * first those of the second are. A number: `b` is NULL, `low` has its bits, `high` its kind. */
typedef struct {
    PyObject *op, *a, *b, *mode; /* the mode is one of few objects that live on: not counted */
    uint64_t low, high;
    PyObject *program; /* NULL where the place is free */
} Entry;

/* --- leaves and shapes ------------------------------------------------------------------------ */

/* As in lucid_gpu.fusion.scheduler; a test compares them. */
enum { STORED_FROM = 1 << 15, MOST_REDUCTIONS = 8, LARGE = 1 << 22 };

/* --- Method ----------------------------------------------------------------------------------- */

extern PyTypeObject MethodType;

/* --- Walk: a recording of calls --------------------------------------------------------------- */

enum { MOST_ARGUMENTS = 4, MOST_OPERANDS = 64, ON_STACK = 1 << 14, LET_GO = 1 << 16 };

/* One call of a ufunc's loop along a line. */
typedef struct {
    PyUFuncGenericFunction loop;
    void *data;
    npy_intp elements; /* of a call that is made once */
    int count;
    int operand[MOST_ARGUMENTS];
    npy_intp offset[MOST_ARGUMENTS], stride[MOST_ARGUMENTS];
} Call;

typedef struct {
    PyObject_HEAD
    int inputs, operands;        /* operands are the inputs, and then what is its own */
    char kind[MOST_OPERANDS];    /* of an input: a letter of NumPy's */
    npy_intp move[MOST_OPERANDS]; /* bytes from line to line */
    npy_intp step[MOST_OPERANDS]; /* of an input: bytes from element to element */
    npy_intp scratch[MOST_OPERANDS]; /* of its own: bytes; 0 for constants */
    char *constant[MOST_OPERANDS];
    PyObject *constants; /* the arrays of these */
    npy_intp width;      /* elements of a call */
    npy_intp room;       /* bytes of scratch memory in all */
    Py_ssize_t calls, once; /* the first are made once, on numbers of elements of their own */
    Call *call;
} Walk;

extern PyTypeObject WalkType;

/* --- Ready: a plan on its leaves -------------------------------------------------------------- */

enum { MOST_STORES = 8 };

typedef struct {
    PyObject_HEAD
    Walk *walk;
    int arrays, numbers, stores, rank; /* inputs are arrays, numbers, and what is stored */
    npy_intp leaf[MOST_OPERANDS];      /* of arrays and numbers */
    npy_intp bytes[MOST_OPERANDS];     /* of arrays that lie row by row: how many are read */
    PyObject *layouts; /* a tuple: None for these, else shape and strides */
    npy_intp shape[NPY_MAXDIMS];
    PyArray_Descr *type[MOST_STORES];
    npy_intp lines, rest;
} Ready;

extern PyTypeObject ReadyType;

/* --- Reduced: a plan that reduces ------------------------------------------------------------- */

/* One result: what a ufunc's loop folds values into, in the order of NumPy's `reduce`. */
typedef struct {
    int source; /* the input of the walk whose values are reduced */
    PyUFuncGenericFunction loop;
    void *data;
    npy_intp outer, length, inner, item;
    char start[16];
    int starts, divides; /* from a number, or from the first values; whether a mean's */
    double divisor;
    PyArray_Descr *type;
    int rank;
    npy_intp shape[NPY_MAXDIMS];
} Fold;

typedef struct {
    PyObject_HEAD
    Ready *values, *tail; /* what is stored by the first is reduced; the second may be NULL */
    int folds;
    npy_intp room; /* bytes of the values that are computed */
    Fold fold[MOST_STORES];
} Reduced;

extern PyTypeObject ReducedType;

/* --- nodes ------------------------------------------------------------------------------------ */

extern struct Made {
    PyObject *record;      /* lucid_gpu.ops.record.record */
    PyObject *edge_of;     /* lucid_gpu.fusion.region.edge_of */
    PyObject *load;        /* lucid_gpu.ops.record.load_of: the program of a row-major array */
    PyObject *classes;     /* of nodes, a dict by name */
    PyObject *save_result; /* the names of those that save theirs, a frozenset */
    PyObject *open_levels; /* a list */
    PyObject *modes;       /* the namespace of lucid_gpu.tape.modes */
    PyObject *watching;    /* lucid_gpu.core.node.watching */
    PyObject *sequence;    /* counts nodes */
    PyTypeObject *saved;
    Slot saved_program, saved_shape, saved_variable, saved_version, saved_tensor, saved_output,
        saved_only;
} made;

/* What `record` is given. Other keywords are attributes of the node. */
enum { NAME, ARRAY, INPUTS, VJP, SAVED, DTYPE, KEEPS_OUTPUT, CHOSEN, RESULTS, FIELDS };

extern PyObject *field_name[FIELDS];  /* interned */

enum { INFERENCE = 8 }; /* the mark of what was made in inference mode, as in lucid_gpu.core.program */

/* --- a region's node -------------------------------------------------------------------------- */

extern struct Region {
    PyObject *general;  /* lucid_gpu.fusion.region.region_node */
    PyObject *way_back; /* lucid_gpu.fusion.region.way_back */
    PyObject *summed_to, *recipe_of; /* of lucid_gpu.fusion.pending_reductions */
    PyObject *written;  /* lucid_gpu.core.saved.written_values, a set */
    PyObject *held;     /* lucid_gpu.fusion.region._held, a deque */
    PyObject *saved_inside; /* lucid_gpu.fusion.inside.saved_inside */
    PyTypeObject *node; /* the class RegionNode */
} region;

/* --- custom Functions ------------------------------------------------------------------------- */

extern struct Custom {
    PyObject *finish_one;     /* of lucid_gpu.autograd.outputs, as is the next */
    PyObject *store_together;
    PyObject *boundary_of;    /* lucid_gpu.fusion.building.boundary_of */
    PyObject *boundaries;     /* lucid_gpu.fusion.building.boundaries, a dict */
    PyObject *unpack;         /* lucid_gpu.ops.record.unpack */
    PyObject *tell;           /* lucid_gpu.devices.cuda_errors.tell_what_to_write */
    PyTypeObject *node;       /* the class FunctionCtx */
} custom;

/* --- a pass back ------------------------------------------------------------------------------ */

extern struct Engine {
    PyObject *run_nodes;    /* of lucid_gpu.core.engine, as are the next two */
    PyObject *turn, *added;
    PyTypeObject *leaf;     /* the class AccumulateGrad */
    PyTypeObject *op;       /* the class OpNode */
    PyObject *nodes;        /* the namespace of lucid_gpu.core.node */
    PyObject *handling, *interpreters; /* lists */
    PyObject *push, *pop, *push_pop;   /* of heapq */
} engine;

/* --- memory: views, and writes in place ------------------------------------------------------- */

/* What is told of memory. The classes are those of lucid_gpu/core/owner.py. */
extern struct Memory {
    PyTypeObject *storage, *same_memory;
    Slot cells, owner, mirrors, read, read_only, tensors, unrecorded, version, writer, memory;
    Slot unread_found, unread_leaf, unread_loads, unread_tensor;
    PyObject *held; /* a dictionary, empty as a rule */
    PyObject *load_program, *without_grad, *follow_base, *taken, *put, *store_written, *copy_readers;
    PyObject *base_array, *view_of, *before_write, *detached, *read_anew, *write; /* for what is unusual */
} memory;

/* --- names ------------------------------------------------------------------------------------ */

/* Interned strings: `s_` and the name. */
#define NAMES(X) \
    X(s_add_cell, "add_cell") X(s_alone, "alone") X(s_also, "also") X(s_array, "array") \
    X(s_attach, "_attach") X(s_background, "background") X(s_base, "_base") X(s_bits, "bits") \
    X(s_borrowed, "borrowed") X(s_buffers, "buffers") X(s_by, "by") \
    X(s_catch_up, "_catch_up") X(s_checked, "_checked") X(s_compute, "compute") \
    X(s_converts, "converts") X(s_copy, "copy_") X(s_creation, "_creation") \
    X(s_discard, "discard") X(s_dtype, "dtype") X(s_edges, "_edges") X(s_ends, "ends") \
    X(s_facts, "facts") X(s_function, "function") X(s_given, "given") X(s_gives_new, "gives_new") \
    X(s_mode, "mode") X(s_gradient_leaves, "gradient_leaves") X(s_group, "_group") \
    X(s_home, "home") X(s_hooks, "_hooks") X(s_index_put, "index_put_") X(s_inputs, "_inputs") \
    X(s_is_lent, "is_lent") X(s_joint, "joint") X(s_keep_output, "keep_output") X(s_kind, "kind") \
    X(s_leaves, "leaves") X(s_left, "_left") X(s_look_around, "look_around") \
    X(s_made_by, "made_by") X(s_memory, "_memory") X(s_metas, "metas") X(s_multiple, "multiple") \
    X(s_needs, "needs_input_grad") X(s_no_grad, "no_grad") X(s_node, "node") \
    X(s_of_outputs, "_outputs") X(s_off, "off") X(s_on, "on") X(s_output, "output") \
    X(s_output_count, "_output_count") X(s_output_free, "output_free") X(s_outputs, "outputs") \
    X(s_program, "program") X(s_reached, "reached") X(s_read, "read") X(s_ready, "ready") \
    X(s_realize, "_realize") X(s_recorded, "_recorded") \
    X(s_released, "_released") X(s_result, "result") X(s_retain_graph, "retain_graph") \
    X(s_retains, "_retains_grad") X(s_root, "root") X(s_run_backward, "_run_backward") \
    X(s_saved, "_saved") X(s_saves_result, "saves_result") X(s_select, "SelectBackward0") \
    X(s_sequence, "_sequence") X(s_settle, "_settle") X(s_shape, "shape") X(s_sharers, "sharers") \
    X(s_shares_with, "_shares_with") X(s_siblings, "_siblings") X(s_since, "_since") \
    X(s_slice, "SliceBackward0") X(s_source, "source") X(s_state_hooks, "hooks") X(s_step, "step") \
    X(s_strides, "strides") X(s_sum, "sum") X(s_sum_to_shape, "_sum_to_shape") X(s_load, "_load") \
    X(s_unread, "unread") X(s_of_saved, "saved") X(s_reads_output, "reads_output") \
    X(s_back_order, "back_order") X(s_ties, "ties") X(s_stays, "stays") \
    X(s_holds_indices, "holds_indices") X(s_aside, "aside") X(s_post, "post_accumulate") X(s_grad, "grad") X(s_order, "order") \
    X(s_before_gradient, "_before_gradient") X(s_accumulating, "_accumulating") \
    X(s_acquire, "acquire") X(s_release, "release") \
    X(s_reads_alone, "reads_alone") X(s_reads_cotangent, "reads_cotangent") \
    X(s_steps, "_steps") X(s_storage, "_storage") X(s_surroundings, "_surroundings") \
    X(s_take, "take") X(s_task, "task") X(s_tensors, "tensors") X(s_to_save, "_to_save") \
    X(s_twin, "twin") X(s_values, "values") X(s_version, "version") X(s_vjp, "vjp") \
    X(s_waiting, "waiting") X(s_watcher, "watcher") X(s_watchers, "watchers") \
    X(s_write, "_write") X(s_written, "written")

#define DECLARE(name, text) extern PyObject *name;
NAMES(DECLARE)
#undef DECLARE

/* --- functions -------------------------------------------------------------------------------- */

/* values.c */
int slot_of(PyTypeObject *type, const char *name, Slot *slot);
int has(PyObject *object, PyObject *name, PyObject *usual);
PyObject *in_general(PyObject *function, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *referent(PyObject *reference);
int refers_to(PyObject *reference, PyObject *object);
int note_in(PyObject *list, PyObject *object);
void mark(PyObject *holder, PyObject *variable, PyObject *version);
int set_values(PyObject *variable, PyObject *value);
PyObject *value_of(PyObject *tensor);
PyObject *new_expr(PyObject *program, PyObject *leaves, PyObject *made_by, PyObject *shape,
                   PyObject *since);
PyObject *new_cell(PyObject *array, PyObject *node, PyObject *output);

/* doors.c */
PyObject *bound(PyObject *self, PyObject *instance, PyObject *type);
PyObject *named(PyObject *self);
PyObject *attribute_of(PyObject *self, PyObject *inside, PyObject *name);
int callable_traverse(Function *self, visitproc visit, void *arg);
void callable_clear(Function *self);
void callable_dealloc(Function *self);
PyObject *raised(void);

/* methods.c */
int same_leaves(PyObject *a, PyObject *b);
PyObject *found(const Entry *key);
void remember(const Entry *key, PyObject *program);
PyObject *merged(PyObject *a, PyObject *b, Entry *key);
PyObject *new_tensor(PyObject *value);

/* kernels.c */
int run_ready(Ready *self, PyObject *leaves, PyObject *const *reduced, PyObject **results);
int results_of(PyObject *ready);
int run_plan(PyObject *ready, PyObject *leaves, PyObject **results);

/* storing.c */
int mark_computed(PyObject *value, int itself);
int share_variable(PyObject *value, PyObject *cell);
int settle(PyObject *tensor, PyObject *storage, PyObject *value, PyObject *program,
           PyObject *load, PyObject *array);
PyObject *own_storage(PyObject *tensor);
PyObject *store(PyObject *module, PyObject *tensor);
int store_anyhow(PyObject *tensor);
PyObject *start(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *of_pending(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *new_reduced_cell(PyObject *pending, PyObject *node, PyObject *output);
PyObject *stored_tensor(PyObject *program, PyObject *array, PyObject *node, PyObject *output,
                        PyObject *shape);

/* nodes.c */
int is_unseen(void);
PyObject *save_all(PyObject *tensors);
PyObject *record(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *edge_of(PyObject *value);
int all_tensors(PyObject *tensors, int none);
PyObject *region_node(PyObject *module, PyObject *value);

/* memory.c */
int add_cell(PyObject *storage, PyObject *leaf);
PyObject *before_write(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *twin_of(PyObject *leaf, PyObject *node, PyObject *output);
PyObject *read_unread(PyObject *unread);

/* What each file gives the module. */
extern PyMethodDef methods_methods[], kernels_methods[], storing_methods[], nodes_methods[],
    passes_methods[], memory_methods[];

#pragma GCC visibility pop
#endif

/* Rows of the op table applied to tensors: `Method`, and its table of programs. */
#include "core.h"

/* --- Programs of ops: the table --------------------------------------------------------------- */

enum { MOST_ENTRIES = 1 << 16 }; /* then all start anew; half of them are used at most */

static struct {
    Entry *entries;
    size_t size, used; /* a power of two, or 0 */
} table;

static void
forget_entries(void)
{
    Entry *entries = table.entries;
    size_t size = table.size;
    table.entries = NULL;
    table.size = table.used = 0;
    for (size_t i = 0; i < size; ++i) {
        if (entries[i].program != NULL) {
            Py_DECREF(entries[i].op);
            Py_DECREF(entries[i].a);
            Py_XDECREF(entries[i].b);
            Py_DECREF(entries[i].program);
        }
    }
    PyMem_Free(entries);
}

static inline uint64_t
mixed(uint64_t hash, uint64_t with)
{
    hash = (hash ^ with) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ (hash >> 29);
}

/* The place of a key, where its entry is or will be. The table is not full. */
static Entry *
place_of(const Entry *key, Entry *entries, size_t size)
{
    uint64_t hash = mixed(mixed((uintptr_t)key->op, (uintptr_t)key->a), (uintptr_t)key->b);
    hash = mixed(mixed(mixed(hash, (uintptr_t)key->mode), key->low), key->high);
    for (size_t i = hash & (size - 1);; i = (i + 1) & (size - 1)) {
        Entry *e = entries + i;
        if (e->program == NULL ||
            (e->a == key->a && e->b == key->b && e->op == key->op && e->mode == key->mode &&
             e->low == key->low && e->high == key->high)) {
            return e;
        }
    }
}

/* The program of a key, a new reference, or NULL. */
PyObject *
found(const Entry *key)
{
    return table.size == 0 ? NULL : Py_XNewRef(place_of(key, table.entries, table.size)->program);
}

/* Double the table, or make it. Returns whether there was memory. */
static int
grow(void)
{
    size_t size = table.size == 0 ? 256 : 2 * table.size;
    Entry *entries = PyMem_Calloc(size, sizeof(Entry));
    if (entries == NULL) {
        return 0;
    }
    for (size_t i = 0; i < table.size; ++i) {
        if (table.entries[i].program != NULL) {
            *place_of(&table.entries[i], entries, size) = table.entries[i];
        }
    }
    PyMem_Free(table.entries);
    table.entries = entries;
    table.size = size;
    return 1;
}

/* Remember a program. Without memory nothing is remembered, and the slow way is taken again. */
void
remember(const Entry *key, PyObject *program)
{
    Py_INCREF(program);
    if (2 * table.used >= MOST_ENTRIES) {
        forget_entries();
    }
    if (2 * table.used >= table.size && !grow()) {
        Py_DECREF(program);
        return;
    }
    Entry *place = place_of(key, table.entries, table.size);
    if (place->program == NULL) {
        *place = *key;
        Py_INCREF(place->op);
        Py_INCREF(place->a);
        Py_XINCREF(place->b);
        place->program = program;
        ++table.used;
    }
    else {
        Py_DECREF(program);
    }
}

PyDoc_STRVAR(forget_doc, "forget()\n--\n\nForget the programs that ops on programs gave.");

static PyObject *
forget(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    forget_entries();
    Py_RETURN_NONE;
}

/* --- leaves and shapes ------------------------------------------------------------------------ */

enum { MOST_LEAVES = 24, BITS_OF_A_LEAF = 5, LEAVES_IN_A_WORD = 12 };

/* As `lucid_gpu.core.value.merge`: the leaves of two operands, and in `key` where those of the
 * second are. NULL without an error where there are too many. */
PyObject *
merged(PyObject *a, PyObject *b, Entry *key)
{
    Py_ssize_t n = PyTuple_GET_SIZE(a), m = PyTuple_GET_SIZE(b), total = n;
    PyObject *fresh[MOST_LEAVES];
    if (n + (a == b ? 0 : m) > MOST_LEAVES) {
        return NULL;
    }
    key->low = key->high = 0;
    for (Py_ssize_t i = 0; i < m; ++i) {
        PyObject *leaf = PyTuple_GET_ITEM(b, i);
        Py_ssize_t at = 0;
        while (at < n && PyTuple_GET_ITEM(a, at) != leaf) {
            ++at;
        }
        if (at == n) {
            while (at < total && fresh[at - n] != leaf) {
                ++at;
            }
            if (at == total) {
                fresh[total++ - n] = leaf;
            }
        }
        uint64_t *word = i < LEAVES_IN_A_WORD ? &key->low : &key->high;
        *word |= (uint64_t)at << (BITS_OF_A_LEAF * (i % LEAVES_IN_A_WORD));
    }
    if (total == n) {
        Py_INCREF(a);
        return a;
    }
    PyObject *leaves = PyTuple_New(total);
    for (Py_ssize_t i = 0; leaves != NULL && i < total; ++i) {
        PyObject *leaf = i < n ? PyTuple_GET_ITEM(a, i) : fresh[i - n];
        Py_INCREF(leaf);
        PyTuple_SET_ITEM(leaves, i, leaf);
    }
    return leaves;
}

/* Whether two tuples hold the same leaves in the same order. */
int
same_leaves(PyObject *a, PyObject *b)
{
    if (a == b) {
        return 1;
    }
    if (!PyTuple_Check(a) || PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b)) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a); ++i) {
        if (PyTuple_GET_ITEM(a, i) != PyTuple_GET_ITEM(b, i)) {
            return 0;
        }
    }
    return 1;
}

/* The shape to which two broadcast, as of `lucid_gpu.fusion.assembling.shape_of`; a new reference.
 * NULL where they do not: the slow way says so. */
static PyObject *
broadcast(PyObject *a, PyObject *b)
{
    if (a == b) {
        Py_INCREF(a);
        return a;
    }
    if (PyTuple_GET_SIZE(a) < PyTuple_GET_SIZE(b)) {
        PyObject *other = a;
        a = b;
        b = other;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(a), lead = n - PyTuple_GET_SIZE(b);
    PyObject *shape = PyTuple_New(n);
    int as_a = 1;
    for (Py_ssize_t i = 0; shape != NULL && i < n; ++i) {
        PyObject *extent = PyTuple_GET_ITEM(a, i);
        long long own = number_of(extent), other = 1;
        if (i >= lead) {
            other = number_of(PyTuple_GET_ITEM(b, i - lead));
            if (own != other && own == 1) {
                extent = PyTuple_GET_ITEM(b, i - lead);
                as_a = 0;
            }
        }
        if (own < 0 || other < 0 || (own != other && own != 1 && other != 1)) {
            Py_DECREF(shape);
            return NULL;
        }
        Py_INCREF(extent);
        PyTuple_SET_ITEM(shape, i, extent);
    }
    if (shape != NULL && as_a) { /* the tuple that is there already */
        Py_INCREF(a);
        Py_SETREF(shape, a);
    }
    return shape;
}

/* --- Method ----------------------------------------------------------------------------------- */

typedef struct {
    Function function;
    PyObject *general; /* the Python function */
    PyObject *op;      /* the row of the table */
    int arity;
    int reflected; /* whether it is for `2 - x` */
    int power;     /* whether numbers are exponents */
    PyObject *straight, *name; /* of one in place: the row's method, and what it is called; or NULL */
} Method;

/* What `Entry.high` says of a number: its kind, whether it is one leaf more of the program, and
 * whether it comes first. */
enum { OF_FLOAT = 1, OF_INT = 2, ARGUMENT = 4, FIRST = 8 };

/* Whether an exponent other than 0 and 1 never becomes an argument: ROOTS in lucid_gpu/fusion/building.py. */
static int
is_root(double exponent)
{
    double size = exponent < 0 ? -exponent : exponent;
    return size == 0.5 || size == 1.5 || size == 2.5;
}

/* A tensor with a value, as of `object.__new__`. */
PyObject *
new_tensor(PyObject *value)
{
    PyObject *tensor = known.tensor->tp_alloc(known.tensor, 0);
    if (tensor != NULL) {
        set(tensor, known.tensor_expr, value);
    }
    return tensor;
}

/* A tensor with a new pending value; steals all, of which `leaves`, `made_by` and `shape` may be
 * NULL. */
static PyObject *
pending(PyObject *program, PyObject *leaves, PyObject *made_by, PyObject *shape)
{
    PyObject *tensor = NULL, *value = NULL;
    if (leaves != NULL && made_by != NULL && shape != NULL) {
        PyObject *since = PyTuple_GET_SIZE(leaves) ? NULL : known.always; /* a constant */
        value = new_expr(program, leaves, made_by, shape, since);
    }
    if (value != NULL) {
        tensor = new_tensor(value);
        Py_DECREF(value);
    }
    Py_DECREF(program);
    Py_XDECREF(leaves);
    Py_XDECREF(made_by);
    Py_XDECREF(shape);
    return tensor;
}

/* Whether a value is of this step, so that `scheduler.old` has no say. */
static inline int
is_fresh(PyObject *value)
{
    return number_of(get(value, known.expr_since)) >=
           number_of(get(known.steps, known.steps_fresh));
}

/* Whether a program bars the straight path: see `Program.barred`. */
static inline int
is_barred(PyObject *program)
{
    return get(program, known.program_barred) != known.zero;
}

/* Remember the program that the Python function gave for values: under `key` if its leaves are
 * these, under `slot` if there is one and the number is one leaf more. */
static void
learn(PyObject *result, PyObject *a, PyObject *b, PyObject *leaves, const Entry *key,
      const Entry *slot)
{
    PyObject *value = Py_TYPE(result) == known.tensor ? value_of(result) : NULL;
    if (value == NULL) {
        return;
    }
    PyObject *program = get(value, known.expr_program);
    PyObject *made_by = get(value, known.expr_made_by), *own = get(value, known.expr_leaves);
    int barred = is_barred(key->a) || (b != NULL && (is_barred(key->b) || is_barred(program)));
    if (!barred && made_by != NULL && PyTuple_Check(made_by)) {
        if (same_leaves(own, leaves)) {
            remember(key, program);
        }
        else if (slot != NULL && PyTuple_GET_SIZE(made_by) == 3 &&
                 PyTuple_GET_SIZE(own) == PyTuple_GET_SIZE(leaves) + 1 &&
                 (PyTuple_GET_ITEM(made_by, 1) == a || PyTuple_GET_ITEM(made_by, 2) == a)) {
            remember(slot, program);
        }
    }
    Py_DECREF(value);
}

/* What the Python function gives, which is remembered, unless every op is computed at once. */
static PyObject *
generally(Method *self, PyObject *const *args, PyObject *a, PyObject *b, PyObject *leaves,
          const Entry *key, const Entry *slot)
{
    Py_INCREF(key->a);
    Py_XINCREF(key->b);
    PyObject *result = PyObject_Vectorcall(self->general, args, (size_t)self->arity, NULL);
    PyObject *eager = result == NULL ? NULL : PyObject_GetAttr(known.eager, s_on);
    if (result != NULL && eager == NULL) {
        Py_CLEAR(result);
    }
    else if (eager == Py_False && get(args[0], known.tensor_expr) == a &&
             (b == NULL || get(args[1], known.tensor_expr) == b)) {
        learn(result, a, b, leaves, key, slot);
    }
    Py_XDECREF(eager);
    Py_DECREF(key->a);
    Py_XDECREF(key->b);
    return result;
}

/* A row on a tensor. */
static PyObject *
of_one(Method *self, PyObject *const *args, PyObject *a, PyObject *now)
{
    Entry key = {.op = self->op, .a = get(a, known.expr_program), .mode = now};
    PyObject *program = is_fresh(a) ? found(&key) : NULL;
    PyObject *leaves = get(a, known.expr_leaves), *shape = get(a, known.expr_shape);
    if (program == NULL) {
        Py_INCREF(leaves);
        PyObject *result = generally(self, args, a, NULL, leaves, &key, NULL);
        Py_DECREF(leaves);
        return result;
    }
    Py_INCREF(leaves);
    Py_INCREF(shape);
    return pending(program, leaves, PyTuple_Pack(2, self->op, a), shape);
}

/* A reduction that one value waits for and that shares leaves with another, which is pending: the one
 * is borrowed. See `lucid_gpu.fusion.scheduler.met`. */
static PyObject *
met_by(PyObject *other, PyObject *value)
{
    PyObject *leaves = get(other, known.expr_leaves), *own = get(value, known.expr_leaves);
    if (number_of(get(value, known.expr_since)) == number_of(known.always)) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(leaves); ++i) {
        PyObject *leaf = PyTuple_GET_ITEM(leaves, i), *source, *read;
        source = Py_TYPE(leaf) == known.reduced ? get(leaf, known.reduced_source) : Py_None;
        if (source == Py_None) {
            continue;
        }
        read = get(get(source, known.pending_value), known.expr_leaves);
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(own); ++k) {
            if (PySequence_Contains(read, PyTuple_GET_ITEM(own, k)) > 0) {
                return source;
            }
        }
    }
    return NULL;
}

/* Store the value of a tensor, which a reduction waits to reduce. Returns 1, or 0 where it is not what
 * that reduces or is another tensor's, or -1 with an error set. */
static int
store_what_waits(PyObject *tensor, PyObject *value, PyObject *pending)
{
    PyObject *reduced = referent(get(pending, known.pending_tensor));
    int same = reduced == tensor && get(get(pending, known.pending_value), known.expr_program) ==
                                        get(value, known.expr_program);
    Py_XDECREF(reduced);
    if (!same) {
        return 0;
    }
    return store_anyhow(tensor) < 0 ? -1 : get(tensor, known.tensor_expr) != value;
}

/* Store those of two tensors that are to be stored first, as the other waits for a reduction that
 * shares ops with them: see `lucid_gpu.fusion.scheduler.met`. Returns whether there were any, -1
 * where the Python function sees to that, or with an error set. */
static int
store_met(PyObject *const *args, PyObject *a, PyObject *b)
{
    PyObject *of_a = met_by(b, a), *of_b = met_by(a, b);
    if (of_a == NULL && of_b == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *task = mode(s_task);
    if (task != Py_None) {
        return task == NULL ? -1 : 0;
    }
    if ((of_a == NULL || of_b == NULL) && is_fresh(a) && is_fresh(b)) {
        int stored = of_a != NULL ? store_what_waits(args[0], a, of_a)
                                  : store_what_waits(args[1], b, of_b);
        if (stored != 0) {
            return stored;
        }
    }
    PyObject *both = PyTuple_Pack(2, a, b), *operands = NULL, *none = NULL;
    PyObject *found = both == NULL ? NULL : PyObject_CallOneArg(known.met, both);
    int any = found == NULL ? -1 : PyObject_IsTrue(found);
    if (any > 0) {
        any = -1;
        operands = is_fresh(a) && is_fresh(b) ? PyTuple_Pack(2, args[0], args[1]) : NULL;
    }
    if (operands != NULL) {
        PyObject *given[] = {operands, found};
        none = PyObject_Vectorcall(known.store_first, given, 2, NULL);
        any = none == NULL || (get(args[0], known.tensor_expr) == a &&
                               get(args[1], known.tensor_expr) == b)
                  ? -1
                  : 1;
    }
    Py_XDECREF(both);
    Py_XDECREF(found);
    Py_XDECREF(operands);
    Py_XDECREF(none);
    return any;
}

/* A row on two tensors. */
static PyObject *
of_two(Method *self, PyObject *const *args, PyObject *a, PyObject *b, PyObject *now)
{
    Entry key = {.op = self->op, .mode = now};
    key.a = get(a, known.expr_program);
    key.b = get(b, known.expr_program);
    PyObject *of_a = get(a, known.expr_leaves), *of_b = get(b, known.expr_leaves);
    int met = of_a != of_b && PyList_GET_SIZE(known.waiting) != 0 ? store_met(args, a, b) : 0;
    if (met > 0) { /* they have other values now */
        return PyObject_Vectorcall((PyObject *)self, args, 2, NULL);
    }
    PyObject *leaves = met < 0 ? NULL : merged(of_a, of_b, &key);
    if (leaves == NULL) {
        return PyErr_Occurred() ? NULL : PyObject_Vectorcall(self->general, args, 2, NULL);
    }
    PyObject *program = is_fresh(a) && is_fresh(b) ? found(&key) : NULL, *shape = NULL;
    if (program != NULL) {
        shape = broadcast(get(a, known.expr_shape), get(b, known.expr_shape));
    }
    if (shape != NULL) {
        return pending(program, leaves, PyTuple_Pack(3, self->op, a, b), shape);
    }
    Py_XDECREF(program);
    PyObject *result = NULL;
    if (!PyErr_Occurred()) {
        result = generally(self, args, a, b, leaves, &key, NULL);
    }
    Py_DECREF(leaves);
    return result;
}

/* Whether a shape broadcasts to another one; writes the other's axes into a key, as `axes_of`. */
static int
fits_shape(PyObject *shape, PyObject *space, Entry *key)
{
    Py_ssize_t rank = PyTuple_GET_SIZE(space), more = rank - PyTuple_GET_SIZE(shape);
    int fits = more >= 0 && rank <= 32;
    key->high = (uint64_t)rank;
    for (Py_ssize_t i = 0; fits && i < rank; ++i) {
        long long wanted = number_of(PyTuple_GET_ITEM(space, i)), own;
        own = i < more ? 1 : number_of(PyTuple_GET_ITEM(shape, i - more));
        fits = wanted >= 0 && (own == 1 || own == wanted);
        key->low = key->low << 2 | class_of(wanted);
    }
    return fits;
}

PyDoc_STRVAR(expand_doc,
"expand(tensor, shape)\n"
"--\n\n"
"Broadcast without memory, as a pending value: `lucid_gpu.ops.reductions.expand_lazily`.");

static PyObject *
expand(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    int usual = !closed && count == 2 && PyTuple_Check(args[1]) &&
                PyObject_TypeCheck(args[0], known.tensor);
    PyObject *a = usual ? value_of(args[0]) : NULL, *program = NULL, *result = NULL;
    Entry key = {.op = known.identity, .mode = a == NULL ? NULL : mode(s_mode)};
    if (a != NULL && key.mode != NULL && is_fresh(a) && !is_barred(get(a, known.expr_program)) &&
        fits_shape(get(a, known.expr_shape), args[1], &key)) {
        key.a = get(a, known.expr_program);
        program = found(&key);
    }
    if (program != NULL) {
        PyObject *made_by = PyTuple_Pack(2, known.identity, a);
        result = pending(program, Py_NewRef(get(a, known.expr_leaves)), made_by, Py_NewRef(args[1]));
    }
    else if (!PyErr_Occurred()) {
        PyObject *leaves = a == NULL ? NULL : Py_NewRef(get(a, known.expr_leaves));
        PyObject *eager = PyObject_GetAttr(known.eager, s_on);
        result = eager == NULL ? NULL : in_general(known.expand, args, count, NULL);
        if (result != NULL && result != args[0] && key.a != NULL && eager == Py_False &&
            get(args[0], known.tensor_expr) == a) {
            learn(result, a, NULL, leaves, &key, NULL);
        }
        Py_XDECREF(eager);
        Py_XDECREF(leaves);
    }
    Py_XDECREF(a);
    return result;
}

/* Leaves and a number as one more, a new reference. */
static PyObject *
with_number(PyObject *leaves, PyObject *number)
{
    Py_ssize_t n = PyTuple_GET_SIZE(leaves);
    PyObject *more = PyTuple_New(n + 1);
    PyObject *cell = more == NULL ? NULL : new_cell(number, Py_None, known.zero);
    if (cell == NULL) {
        Py_XDECREF(more);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; ++i) {
        PyObject *leaf = PyTuple_GET_ITEM(leaves, i);
        Py_INCREF(leaf);
        PyTuple_SET_ITEM(more, i, leaf);
    }
    PyTuple_SET_ITEM(more, n, cell);
    return more;
}

/* Write the bits of a float or an int, and its kind. Returns whether it fits and, in `varies`,
 * whether it may become an argument. As `_is_argument` in lucid_gpu/fusion/building.py: which
 * exponents do depends on those met before, and powers then have other bits, so that is asked. */
static int
note_number(const Method *self, PyObject *number, Entry *key, int *varies)
{
    if (PyFloat_CheckExact(number)) {
        double value = PyFloat_AS_DOUBLE(number);
        value = value != value ? Py_NAN : value; /* one NaN for all */
        memcpy(&key->low, &value, sizeof value); /* 0.0 and -0.0 differ */
        key->high = OF_FLOAT;
        *varies = value != 0 && value != 1;
        if (self->power && *varies && !is_root(value)) {
            return 0;
        }
    }
    else {
        int overflow;
        long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
        key->low = (uint64_t)value;
        key->high = OF_INT;
        *varies = value != 0 && value != 1;
        if (overflow) {
            return 0;
        }
    }
    *varies = *varies && !self->power;
    key->high |= self->reflected ? FIRST : 0;
    return 1;
}

/* A row on a tensor and a float or an int. */
static PyObject *
of_number(Method *self, PyObject *const *args, PyObject *a, PyObject *now)
{
    Entry key = {.op = self->op, .a = get(a, known.expr_program), .mode = now};
    int varies;
    if (!note_number(self, args[1], &key, &varies)) {
        return PyObject_Vectorcall(self->general, args, 2, NULL);
    }
    Entry slot = key;
    slot.low = 0;
    slot.high |= ARGUMENT;
    PyObject *program = NULL, *leaves = get(a, known.expr_leaves), *shape;
    Py_INCREF(leaves);
    if (is_fresh(a)) {
        program = found(&key);
        if (program == NULL && varies) {
            program = found(&slot);
            if (program != NULL) {
                PyObject *more = with_number(leaves, args[1]);
                Py_DECREF(leaves);
                leaves = more;
            }
        }
    }
    if (program == NULL) {
        PyObject *result = generally(self, args, a, NULL, leaves, &key, varies ? &slot : NULL);
        Py_DECREF(leaves);
        return result;
    }
    shape = get(a, known.expr_shape);
    Py_INCREF(shape);
    PyObject *made_by = self->reflected ? PyTuple_Pack(3, self->op, args[1], a)
                                        : PyTuple_Pack(3, self->op, a, args[1]);
    return pending(program, leaves, made_by, shape);
}

/* The row in place: as of `_in_place` in lucid_gpu/ops/elementwise.py. */
static PyObject *
in_place(const Method *self, PyObject *const *args)
{
    PyObject *asked[] = {args[0], self->name, self->arity > 1 ? args[1] : NULL};
    PyObject *before = before_write(NULL, asked, self->arity + 1), *written = NULL;
    PyObject *operands[] = {before, asked[2]};
    PyObject *value = before == NULL ? NULL
                                     : PyObject_Vectorcall(self->straight, operands,
                                                           (size_t)self->arity, NULL);
    if (value != NULL) {
        PyObject *given[] = {args[0], value, self->name};
        written = PyObject_VectorcallMethod(s_write, given, 3, NULL);
    }
    Py_XDECREF(before);
    Py_XDECREF(value);
    return written;
}

/* Apply the row, by the table of programs where operands are a tensor, or two, or one and a float
 * or an int. The usual case of `lucid_gpu.tensor.apply`. */
static PyObject *
method_call(PyObject *object, PyObject *const *args, size_t flags, PyObject *names)
{
    Method *self = (Method *)object;
    PyObject *a = NULL, *b = NULL, *result = NULL, *now;
    int numeric = 0, usual;
    if (self->name != NULL) {
        usual = !closed && names == NULL && PyVectorcall_NARGS(flags) == self->arity &&
                PyObject_TypeCheck(args[0], known.tensor);
        return usual ? in_place(self, args) : PyObject_Vectorcall(self->general, args, flags, names);
    }
    if (!closed && names == NULL && PyVectorcall_NARGS(flags) == self->arity &&
        PyObject_TypeCheck(args[0], known.tensor)) {
        a = value_of(args[0]);
    }
    if (a != NULL && self->arity == 2) {
        if (PyObject_TypeCheck(args[1], known.tensor)) {
            b = self->reflected ? NULL : value_of(args[1]);
        }
        else {
            numeric = PyFloat_CheckExact(args[1]) || PyLong_CheckExact(args[1]);
        }
    }
    usual = a != NULL && (self->arity == 1 || b != NULL || numeric);
    if (usual && b != NULL) { /* to ask for the second may have given the first another value */
        usual = get(args[0], known.tensor_expr) == a;
    }
    if (!PyErr_Occurred() && !usual) {
        result = PyObject_Vectorcall(self->general, args, flags, names);
    }
    else if (!PyErr_Occurred() && (now = mode(s_mode)) != NULL) {
        result = self->arity == 1 ? of_one(self, args, a, now)
                 : numeric        ? of_number(self, args, a, now)
                                  : of_two(self, args, a, b, now);
    }
    Py_XDECREF(a); /* meanwhile the operands may have been given other values */
    Py_XDECREF(b);
    return result;
}

PyDoc_STRVAR(method_doc,
"Method(general, op, arity, reflected, power, straight=None, name=None)\n"
"--\n\n"
"A row of the op table as a method: ``general`` is the Python function that it is a short cut of. One\n"
"in place has the row's method and a name.");

static PyObject *
method_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    static char *keywords[] = {"general", "op",       "arity", "reflected",
                               "power",   "straight", "name",  NULL};
    PyObject *general, *op, *straight = NULL, *name = NULL;
    int arity, reflected, power;
    if (!PyArg_ParseTupleAndKeywords(args, names, "OOipp|OU:Method", keywords, &general, &op, &arity,
                                     &reflected, &power, &straight, &name)) {
        return NULL;
    }
    if (arity < 1 || arity > 2 || !PyCallable_Check(general) ||
        (straight == NULL) != (name == NULL)) {
        PyErr_SetString(PyExc_ValueError, "Method(): a function of one or two operands");
        return NULL;
    }
    Method *self = (Method *)type->tp_alloc(type, 0);
    if (self != NULL) {
        Py_INCREF(general);
        Py_INCREF(op);
        self->function.call = method_call;
        self->general = general;
        self->op = op;
        self->arity = arity;
        self->reflected = reflected;
        self->power = power;
        self->straight = Py_XNewRef(straight);
        self->name = Py_XNewRef(name);
    }
    return (PyObject *)self;
}

static int
method_traverse(Method *self, visitproc visit, void *arg)
{
    Py_VISIT(self->general);
    Py_VISIT(self->op);
    Py_VISIT(self->straight);
    return callable_traverse(&self->function, visit, arg);
}

static int
method_clear(Method *self)
{
    Py_CLEAR(self->general);
    Py_CLEAR(self->op);
    Py_CLEAR(self->straight);
    Py_CLEAR(self->name);
    callable_clear(&self->function);
    return 0;
}

static PyObject *
method_attribute(PyObject *self, PyObject *name)
{
    return attribute_of(self, ((Method *)self)->general, name);
}

/* Set an attribute. A name is the Python function's too: in it, Python says what was called. */
static int
method_set_attribute(PyObject *self, PyObject *name, PyObject *value)
{
    PyObject *general = ((Method *)self)->general;
    int status = PyObject_GenericSetAttr(self, name, value);
    if (status == 0 && value != NULL && general != NULL && PyFunction_Check(general) &&
        (PyUnicode_CompareWithASCIIString(name, "__name__") == 0 ||
         PyUnicode_CompareWithASCIIString(name, "__qualname__") == 0)) {
        status = PyObject_SetAttr(general, name, value);
    }
    return status;
}

PyTypeObject MethodType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "lucid_gpu._core.Method",
    .tp_doc = method_doc,
    .tp_basicsize = sizeof(Method),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_new = method_new,
    .tp_traverse = (traverseproc)method_traverse,
    .tp_clear = (inquiry)method_clear,
    .tp_dealloc = (destructor)callable_dealloc,
    .tp_vectorcall_offset = offsetof(Function, call),
    .tp_call = PyVectorcall_Call,
    .tp_descr_get = bound,
    .tp_repr = named,
    .tp_getattro = method_attribute,
    .tp_setattro = method_set_attribute,
    .tp_dictoffset = offsetof(Function, attributes),
    .tp_weaklistoffset = offsetof(Function, references),
    .tp_members = callable_members,
    .tp_methods = callable_methods,
    .tp_getset = callable_attributes,
};

PyMethodDef methods_methods[] = {
    {"expand", (PyCFunction)(void (*)(void))expand, METH_FASTCALL, expand_doc},
    {"forget", forget, METH_NOARGS, forget_doc},
    {NULL, NULL, 0, NULL},
};

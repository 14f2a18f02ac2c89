/* NumPy's compiled loops, called one after another without the interpreter between them.
 *
 * A ufunc holds compiled loops, one a combination of types, all of one C signature:
 *
 *     loop(char **arguments, npy_intp const *counts, npy_intp const *steps, void *data)
 *
 * `walk` calls those of a table in turn, without the GIL. A table is an array of intp, five words an
 * entry (`Entry`); Python writes it (lucid_gpu/devices/recording.py). The arithmetic is NumPy's to
 * the last bit. What goes away is the interpreter between two calls, and its lock.
 *
 * `windows` copies what the windows of convolutions read, with zeros around the images: in NumPy that
 * is a padded copy, and a call for each tap.
 *
 * `product_ufunc` makes a ufunc like NumPy's matmul, whose products another BLAS computes.
 *
 * The module is optional: where it is missing, the same calls are made from Python.
 */
#define PY_SSIZE_T_CLEAN
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <Python.h>
#include <limits.h>
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>

enum { MOST_OPERANDS = 32 };

/* An entry of a table, as Python writes it. */
typedef struct {
    npy_intp loop;      /* a PyUFuncGenericFunction; 0 where the entry stands for another table */
    npy_intp arguments; /* char **; or that table */
    npy_intp counts;    /* npy_intp *; or how many entries of it */
    npy_intp steps;     /* npy_intp *; or how many times */
    npy_intp data;      /* what the ufunc keeps beside the loop */
} Entry;

enum { WORDS = sizeof(Entry) / sizeof(npy_intp) };

/* Call the loops of a table in turn, and again; tables nest by a few levels. */
static void
walk_entries(const Entry *table, npy_intp entries, npy_intp times)
{
    for (; times > 0; --times) {
        for (npy_intp i = 0; i < entries; ++i) {
            const Entry *entry = table + i;
            if (entry->loop == 0) {
                walk_entries((const Entry *)entry->arguments, entry->counts, entry->steps);
            }
            else {
                ((PyUFuncGenericFunction)entry->loop)(
                    (char **)entry->arguments, (const npy_intp *)entry->counts,
                    (const npy_intp *)entry->steps, (void *)entry->data);
            }
        }
    }
}

PyDoc_STRVAR(walk_doc,
"walk(table, entries, times)\n"
"--\n\n"
"Call the loops of the first ``entries`` of a table in turn, without the GIL; so many times.\n\n"
"Parameters\n"
"----------\n"
"table : numpy.ndarray of intp, contiguous, at least ``5 * entries`` long\n"
"entries, times : int\n\n"
"Raises\n"
"------\n"
"TypeError, ValueError\n"
"    For another table. What its words point to cannot be checked here.");

static PyObject *
walk(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 3) {
        PyErr_Format(PyExc_TypeError,
                     "walk() takes a table, how many entries, and how many times; got %zd arguments",
                     nargs);
        return NULL;
    }
    if (!PyArray_CheckExact(args[0])) {
        PyErr_SetString(PyExc_TypeError, "walk(): the table is an array");
        return NULL;
    }
    PyArrayObject *table = (PyArrayObject *)args[0];
    Py_ssize_t entries = PyLong_AsSsize_t(args[1]);
    if (entries == -1 && PyErr_Occurred()) {
        return NULL;
    }
    Py_ssize_t times = PyLong_AsSsize_t(args[2]);
    if (times == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (PyArray_TYPE(table) != NPY_INTP || !PyArray_IS_C_CONTIGUOUS(table) ||
        !PyArray_ISALIGNED(table) || !PyArray_ISNOTSWAPPED(table) || entries < 0 ||
        entries > PyArray_SIZE(table) / WORDS) {
        PyErr_SetString(PyExc_ValueError, "walk(): the table is no array of so many entries");
        return NULL;
    }
    const Entry *first = (const Entry *)PyArray_DATA(table);
    Py_BEGIN_ALLOW_THREADS
    walk_entries(first, entries, times);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* The words of an array of intp, as Python writes them; NULL with an error set for another one. */
static npy_intp *
words_of(PyObject *object, npy_intp *count)
{
    if (PyArray_CheckExact(object)) {
        PyArrayObject *array = (PyArrayObject *)object;
        if (PyArray_TYPE(array) == NPY_INTP && PyArray_ISCARRAY(array)) {
            *count = PyArray_SIZE(array);
            return PyArray_DATA(array);
        }
    }
    PyErr_SetString(PyExc_TypeError, "point(): expected a contiguous array of intp");
    return NULL;
}

PyDoc_STRVAR(point_doc,
"point(addresses, bases, operands, offsets, arguments)\n"
"--\n\n"
"Write the addresses over the first bases; then ``arguments = bases[operands] + offsets``.\n\n"
"Parameters\n"
"----------\n"
"addresses : sequence of int\n"
"bases, operands, offsets, arguments : numpy.ndarray of intp, contiguous\n"
"    The last three are equally long.\n\n"
"Raises\n"
"------\n"
"TypeError, ValueError\n"
"    For other arrays, too many addresses, or an operand that has no base.");

static PyObject *
point(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    npy_intp *words[4], counts[4];
    if (nargs != 5) {
        PyErr_Format(PyExc_TypeError, "point() takes 5 arguments, got %zd", nargs);
        return NULL;
    }
    for (int i = 0; i < 4; ++i) {
        words[i] = words_of(args[i + 1], &counts[i]);
        if (words[i] == NULL) {
            return NULL;
        }
    }
    PyObject *addresses = PySequence_Tuple(args[0]); /* no list: another thread may change that */
    if (addresses == NULL) {
        return NULL;
    }
    Py_ssize_t known = PyTuple_GET_SIZE(addresses);
    if (known > counts[0] || counts[1] != counts[2] || counts[1] != counts[3]) {
        PyErr_SetString(PyExc_ValueError, "point(): the arrays do not belong together");
        Py_DECREF(addresses);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < known; ++i) {
        Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(addresses, i));
        if (at == -1 && PyErr_Occurred()) {
            Py_DECREF(addresses);
            return NULL;
        }
        words[0][i] = at;
    }
    Py_DECREF(addresses);
    for (npy_intp i = 0; i < counts[1]; ++i) {
        npy_intp operand = words[1][i];
        if (operand < 0 || operand >= counts[0]) {
            PyErr_SetString(PyExc_ValueError, "point(): an operand has no base");
            return NULL;
        }
        words[3][i] = (npy_intp)((npy_uintp)words[0][operand] + (npy_uintp)words[2][i]);
    }
    Py_RETURN_NONE;
}

/* Whether the loop numbered `number` takes and gives the types named by `kinds`, one letter each. */
static int
has_types(const PyUFuncObject *ufunc, int number, const char *kinds)
{
    for (int i = 0; i < ufunc->nargs; ++i) {
        PyArray_Descr *type = PyArray_DescrFromType(ufunc->types[number * ufunc->nargs + i]);
        if (type == NULL) {
            PyErr_Clear(); /* a type of somebody else's, which no letter names */
            return 0;
        }
        int same = type->type == kinds[i];
        Py_DECREF(type);
        if (!same) {
            return 0;
        }
    }
    return 1;
}

PyDoc_STRVAR(find_loop_doc,
"find_loop(ufunc, types)\n"
"--\n\n"
"The address and the data of a ufunc's loop for types such as ``\"ff->f\"``; None where it has none.");

static PyObject *
find_loop(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *object;
    const char *types;
    if (!PyArg_ParseTuple(args, "O!s:find_loop", &PyUFunc_Type, &object, &types)) {
        return NULL;
    }
    const PyUFuncObject *ufunc = (PyUFuncObject *)object;
    char kinds[MOST_OPERANDS];
    int count = 0;
    for (; *types != '\0'; ++types) {
        if (*types == '-' || *types == '>') {
            continue;
        }
        if (count == MOST_OPERANDS) {
            Py_RETURN_NONE;
        }
        kinds[count++] = *types;
    }
    if (count != ufunc->nargs || ufunc->functions == NULL || ufunc->types == NULL) {
        Py_RETURN_NONE;
    }
    for (int i = 0; i < ufunc->ntypes; ++i) {
        if (ufunc->functions[i] != NULL && has_types(ufunc, i, kinds)) {
            void *data = ufunc->data == NULL ? NULL : (void *)ufunc->data[i];
            return Py_BuildValue("nn", (Py_ssize_t)ufunc->functions[i], (Py_ssize_t)data);
        }
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(address_doc,
"address(array)\n"
"--\n\n"
"Where the first element of an array lies; TypeError for anything but a NumPy array.");

static PyObject *
address(PyObject *Py_UNUSED(module), PyObject *array)
{
    if (!PyArray_Check(array)) {
        PyErr_Format(PyExc_TypeError, "expected a NumPy array, got %s", Py_TYPE(array)->tp_name);
        return NULL;
    }
    return PyLong_FromSsize_t((Py_ssize_t)PyArray_DATA((PyArrayObject *)array));
}

PyDoc_STRVAR(addresses_doc,
"addresses(arrays)\n"
"--\n\n"
"A list of where each array of a sequence begins.");

static PyObject *
addresses(PyObject *module, PyObject *arrays)
{
    PyObject *items = PySequence_Tuple(arrays); /* no list: another thread may change that */
    if (items == NULL) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(items);
    PyObject *result = PyList_New(count);
    for (Py_ssize_t i = 0; result != NULL && i < count; ++i) {
        PyObject *one = address(module, PyTuple_GET_ITEM(items, i));
        if (one == NULL) {
            Py_CLEAR(result);
            break;
        }
        PyList_SET_ITEM(result, i, one);
    }
    Py_DECREF(items);
    return result;
}

/* --- loops of our own, as those of a ufunc: what no ufunc computes ----------------------------- */

/* Choose elements of 4 bytes where a condition holds, and others elsewhere. */
static void
choose_4(char **arguments, npy_intp const *counts, npy_intp const *steps, void *Py_UNUSED(data))
{
    const char *condition = arguments[0], *x = arguments[1], *y = arguments[2];
    char *out = arguments[3];
    if (steps[0] == 1 && steps[1] == 4 && steps[2] == 0 && steps[3] == 4) {
        const npy_uint32 other = *(const npy_uint32 *)y; /* most often nothing */
        for (npy_intp i = 0; i < counts[0]; ++i) {
            npy_uint32 chosen = ((const npy_uint32 *)x)[i];
            ((npy_uint32 *)out)[i] = condition[i] ? chosen : other;
        }
        return;
    }
    if (steps[0] == 1 && steps[1] == 4 && steps[2] == 4 && steps[3] == 4) {
        for (npy_intp i = 0; i < counts[0]; ++i) {
            npy_uint32 chosen = ((const npy_uint32 *)x)[i], other = ((const npy_uint32 *)y)[i];
            ((npy_uint32 *)out)[i] = condition[i] ? chosen : other;
        }
        return;
    }
    for (npy_intp i = 0; i < counts[0]; ++i) {
        *(npy_uint32 *)out = *(const npy_uint32 *)(*condition ? x : y);
        condition += steps[0];
        x += steps[1];
        y += steps[2];
        out += steps[3];
    }
}

/* The same of 8 bytes. */
static void
choose_8(char **arguments, npy_intp const *counts, npy_intp const *steps, void *Py_UNUSED(data))
{
    const char *condition = arguments[0], *x = arguments[1], *y = arguments[2];
    char *out = arguments[3];
    for (npy_intp i = 0; i < counts[0]; ++i) {
        npy_uint64 chosen = *(const npy_uint64 *)x, other = *(const npy_uint64 *)y;
        *(npy_uint64 *)out = *condition ? chosen : other;
        condition += steps[0];
        x += steps[1];
        y += steps[2];
        out += steps[3];
    }
}

/* Take a truth value for 1 or 0. */
static void
truth_as_float(char **arguments, npy_intp const *counts, npy_intp const *steps, void *Py_UNUSED(d))
{
    const char *x = arguments[0];
    char *out = arguments[1];
    for (npy_intp i = 0; i < counts[0]; ++i, x += steps[0], out += steps[1]) {
        *(npy_float *)out = *x ? 1.0f : 0.0f;
    }
}

static void
truth_as_double(char **arguments, npy_intp const *counts, npy_intp const *steps, void *Py_UNUSED(d))
{
    const char *x = arguments[0];
    char *out = arguments[1];
    for (npy_intp i = 0; i < counts[0]; ++i, x += steps[0], out += steps[1]) {
        *(npy_double *)out = *x ? 1.0 : 0.0;
    }
}

static void
truth_as_long(char **arguments, npy_intp const *counts, npy_intp const *steps, void *Py_UNUSED(d))
{
    const char *x = arguments[0];
    char *out = arguments[1];
    for (npy_intp i = 0; i < counts[0]; ++i, x += steps[0], out += steps[1]) {
        *(npy_long *)out = *x ? 1 : 0;
    }
}

/* Copy elements of 1, 4 or 8 bytes. */
static void
copy_1(char **arguments, npy_intp const *counts, npy_intp const *steps, void *Py_UNUSED(data))
{
    const char *x = arguments[0];
    char *out = arguments[1];
    for (npy_intp i = 0; i < counts[0]; ++i, x += steps[0], out += steps[1]) {
        *out = *x;
    }
}

static void
copy_4(char **arguments, npy_intp const *counts, npy_intp const *steps, void *Py_UNUSED(data))
{
    const char *x = arguments[0];
    char *out = arguments[1];
    for (npy_intp i = 0; i < counts[0]; ++i, x += steps[0], out += steps[1]) {
        *(npy_uint32 *)out = *(const npy_uint32 *)x;
    }
}

static void
copy_8(char **arguments, npy_intp const *counts, npy_intp const *steps, void *Py_UNUSED(data))
{
    const char *x = arguments[0];
    char *out = arguments[1];
    for (npy_intp i = 0; i < counts[0]; ++i, x += steps[0], out += steps[1]) {
        *(npy_uint64 *)out = *(const npy_uint64 *)x;
    }
}

/* -1, 0 or 1; 0 for NaN. */
static void
sign_float(char **arguments, npy_intp const *counts, npy_intp const *steps, void *Py_UNUSED(data))
{
    const char *x = arguments[0];
    char *out = arguments[1];
    for (npy_intp i = 0; i < counts[0]; ++i, x += steps[0], out += steps[1]) {
        npy_float value = *(const npy_float *)x;
        *(npy_float *)out = (npy_float)((value > 0) - (value < 0));
    }
}

static void
sign_double(char **arguments, npy_intp const *counts, npy_intp const *steps, void *Py_UNUSED(data))
{
    const char *x = arguments[0];
    char *out = arguments[1];
    for (npy_intp i = 0; i < counts[0]; ++i, x += steps[0], out += steps[1]) {
        npy_double value = *(const npy_double *)x;
        *(npy_double *)out = (npy_double)((value > 0) - (value < 0));
    }
}

PyDoc_STRVAR(own_loops_doc,
"own_loops()\n"
"--\n\n"
"A dictionary of the loops that no ufunc has: by name and types, their addresses.");

static PyObject *
own_loops(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    const struct {
        const char *name, *types;
        PyUFuncGenericFunction loop;
    } loops[] = {
        {"where", "?ff->f", choose_4},       {"where", "?dd->d", choose_8},
        {"cast", "?->f", truth_as_float},    {"cast", "?->d", truth_as_double},
        {"cast", "?->?", copy_1},            {"cast", "f->f", copy_4},
        {"cast", "d->d", copy_8},            {"sign", "f->f", sign_float},
        {"sign", "d->d", sign_double},       {"cast", "?->l", truth_as_long},
    };
    PyObject *found = PyDict_New();
    for (size_t i = 0; found != NULL && i < sizeof loops / sizeof *loops; ++i) {
        PyObject *key = Py_BuildValue("ss", loops[i].name, loops[i].types);
        PyObject *address = PyLong_FromSsize_t((Py_ssize_t)loops[i].loop);
        if (key == NULL || address == NULL || PyDict_SetItem(found, key, address) < 0) {
            Py_CLEAR(found);
        }
        Py_XDECREF(key);
        Py_XDECREF(address);
    }
    return found;
}

/* --- windows of images, as the columns of a matrix --------------------------------------------- */

/* An axis of what is written: places before `low` and from `high` on lie outside of the image. */
typedef struct {
    npy_intp extent, low, high;
    npy_intp step; /* bytes of the image from one place to the next */
} Axis;

/* How one axis of filters slides: tap t of window p reads pixel `start + p stride + t dilation`. */
typedef struct {
    npy_intp number, start, stride, dilation, steps;
} Taps;

/* The windows along an axis of an image, as a tap sees them whose first one reads pixel `start`. */
static Axis
seen(npy_intp start, const Taps *taps, npy_intp size, npy_intp step)
{
    npy_intp low = start < 0 ? (taps->stride - 1 - start) / taps->stride : 0;
    npy_intp high = start < size ? (size - 1 - start) / taps->stride + 1 : 0;
    low = low < taps->steps ? low : taps->steps;
    high = high < taps->steps ? high : taps->steps;
    return (Axis){taps->steps, low, high > low ? high : low, step * taps->stride};
}

/* Join axes whose places follow one another in the image; how many are left. */
static int
join(Axis *axes, int count)
{
    for (int i = count - 1; i > 0; --i) {
        Axis *outer = axes + i - 1, inner = axes[i];
        if (inner.high - inner.low != inner.extent ||
            (inner.extent != 1 && outer->step != inner.extent * inner.step)) {
            continue;
        }
        outer->extent *= inner.extent;
        outer->low *= inner.extent;
        outer->high *= inner.extent;
        outer->step = inner.extent == 1 ? outer->step : inner.step;
        memmove(axes + i, axes + i + 1, (size_t)(--count - i) * sizeof *axes);
    }
    return count;
}

/* Write so many zero bytes; the address behind them. Mostly there are none. */
static char *
lay_zeros(npy_intp bytes, char *out)
{
    if (bytes != 0) {
        memset(out, 0, (size_t)bytes);
    }
    return out + bytes;
}

/* Write what lies at the places of some axes, and zeros outside; the address behind it. */
static char *
lay(const Axis *axes, int count, npy_intp item, char *x, char *out)
{
    npy_intp size = item, inside = axes->high - axes->low;
    for (int i = 1; i < count; ++i) {
        size *= axes[i].extent;
    }
    out = lay_zeros(axes->low * size, out);
    x += axes->low * axes->step;
    if (count > 1) {
        for (npy_intp i = 0; i < inside; ++i, x += axes->step) {
            out = lay(axes + 1, count - 1, item, x, out);
        }
    }
    else if (axes->step == item) {
        memcpy(out, x, (size_t)(inside * item));
        out += inside * item;
    }
    else if (item == 4 || item == 8) {
        char *arguments[] = {x, out};
        npy_intp steps[] = {axes->step, item};
        (item == 4 ? copy_4 : copy_8)(arguments, &inside, steps, NULL);
        out += inside * item;
    }
    else {
        for (npy_intp i = 0; i < inside; ++i, x += axes->step, out += item) {
            memcpy(out, x, (size_t)item);
        }
    }
    return lay_zeros((axes->extent - axes->high) * size, out);
}

PyDoc_STRVAR(windows_doc,
"windows(x, down, across, images_last, out)\n"
"--\n\n"
"Write for each channel and tap what the windows of images read, zeros where there is no pixel.\n\n"
"Parameters\n"
"----------\n"
"x : numpy.ndarray of numbers, shape (n, c, h, w)\n"
"down, across : lucid_gpu.kernels.windows.Taps\n"
"images_last : bool\n"
"out : numpy.ndarray, contiguous, of x's type\n"
"    Of shape (c, kh, kw, down, across, n) where images are last, else (c, kh, kw, n, down, across).\n\n"
"Raises\n"
"------\n"
"TypeError, ValueError\n"
"    For other arrays.");

static PyObject *
windows(PyObject *Py_UNUSED(module), PyObject *args)
{
    enum { FURTHEST = 0x7fffffff }; /* products of two such numbers fit npy_intp */
    PyArrayObject *x, *out;
    int last;
    Taps taps[2];
    if (!PyArg_ParseTuple(args, "O!(nnnnn)(nnnnn)pO!:windows", &PyArray_Type, &x, &taps[0].number,
                          &taps[0].start, &taps[0].stride, &taps[0].dilation, &taps[0].steps,
                          &taps[1].number, &taps[1].start, &taps[1].stride, &taps[1].dilation,
                          &taps[1].steps, &last, &PyArray_Type, &out)) {
        return NULL;
    }
    int fits = PyArray_NDIM(x) == 4 && PyArray_NDIM(out) == 6 && PyArray_ISCARRAY(out) &&
               PyArray_ISNUMBER(x) && PyArray_EquivTypes(PyArray_DESCR(x), PyArray_DESCR(out));
    const npy_intp *shape = PyArray_DIMS(out), *size = PyArray_DIMS(x), *steps = PyArray_STRIDES(x);
    fits = fits && shape[0] == size[1] && shape[last ? 5 : 3] == size[0];
    for (int i = 0; fits && i < 2; ++i) {
        const Taps *along = taps + i;
        fits = shape[1 + i] == along->number && shape[(last ? 3 : 4) + i] == along->steps &&
               along->stride > 0 && along->stride < FURTHEST && size[2 + i] < FURTHEST &&
               -FURTHEST < along->start && along->start < FURTHEST && along->number < FURTHEST &&
               -FURTHEST < along->dilation && along->dilation < FURTHEST;
    }
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "windows(): the arrays do not belong together");
        return NULL;
    }
    const Axis images = {size[0], 0, size[0], steps[0]};
    const npy_intp item = PyArray_ITEMSIZE(x), channels = PyArray_SIZE(out) == 0 ? 0 : size[1];
    char *channel = PyArray_DATA(x), *to = PyArray_DATA(out);
    Py_BEGIN_ALLOW_THREADS
    for (npy_intp c = 0; c < channels; ++c, channel += steps[1]) {
        for (npy_intp i = 0; i < taps[0].number; ++i) {
            const npy_intp row = taps[0].start + i * taps[0].dilation;
            const Axis down = seen(row, &taps[0], size[2], steps[2]);
            for (npy_intp j = 0; j < taps[1].number; ++j) {
                const npy_intp column = taps[1].start + j * taps[1].dilation;
                const Axis across = seen(column, &taps[1], size[3], steps[3]);
                Axis axes[] = {last ? down : images, last ? across : down, last ? images : across};
                char *first = channel + row * steps[2] + column * steps[3];
                to = lay(axes, join(axes, 3), item, first, to);
            }
        }
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* --- products of matrices by another BLAS than NumPy's ------------------------------------------ */

enum { ROW_MAJOR = 101, AS_IT_LIES = 111, TURNED = 112 }; /* of CBLAS */
enum { MOST_LOOPS = 64 };
static const double WORTH_IT = 65536.0; /* multiplications from which its calls cost little beside */

typedef void (*Sgemm)(int, int, int, int, int, int, float, const float *, int, const float *, int,
                      float, float *, int);
typedef void (*Dgemm)(int, int, int, int, int, int, double, const double *, int, const double *,
                      int, double, double *, int);

/* The library's functions: pointers to which nothing is written after `product_ufunc`. */
static Sgemm sgemm;
static Dgemm dgemm;
static int (*threads_here)(int); /* sets how many threads this one uses, returns what it was */

/* NumPy's own loop of one element type, for what the library does not compute. */
typedef struct {
    PyUFuncGenericFunction loop;
    void *data;
} Usual;

static Usual usual[MOST_LOOPS];

/* How BLAS is told of a matrix: 0 where neither its rows nor its columns are dense. */
static int
laid(npy_intp rows, npy_intp columns, npy_intp row, npy_intp column, npy_intp item, int *leading)
{
    npy_intp along = column == item ? row : column, across = column == item ? columns : rows;
    if ((column != item && row != item) || along % item != 0 || along / item < across ||
        along / item > INT_MAX) {
        return 0;
    }
    *leading = (int)(along / item);
    return column == item ? AS_IT_LIES : TURNED;
}

/* The loop of ``(m,n),(n,p)->(m,p)`` for float and double; `data` is NumPy's own one. */
static void
product(char **arguments, npy_intp const *counts, npy_intp const *steps, npy_intp item, void *data)
{
    const npy_intp m = counts[1], n = counts[2], p = counts[3];
    int a_leading = 0, b_leading = 0, out_leading = 0;
    int a = laid(m, n, steps[3], steps[4], item, &a_leading);
    int b = laid(n, p, steps[5], steps[6], item, &b_leading);
    int out = laid(m, p, steps[7], steps[8], item, &out_leading);
    if ((double)m * (double)n * (double)p < WORTH_IT || m == 1 || n == 1 || p == 1 ||
        m > INT_MAX || n > INT_MAX || p > INT_MAX || !a || !b || out != AS_IT_LIES) {
        const Usual *own = data;
        own->loop(arguments, counts, steps, own->data);
        return;
    }
    int before = threads_here(1);
    for (npy_intp i = 0; i < counts[0]; ++i) {
        const void *x = arguments[0] + i * steps[0], *y = arguments[1] + i * steps[1];
        void *to = arguments[2] + i * steps[2];
        if (item == sizeof(float)) {
            sgemm(ROW_MAJOR, a, b, (int)m, (int)p, (int)n, 1.0f, x, a_leading, y, b_leading, 0.0f,
                  to, out_leading);
        }
        else {
            dgemm(ROW_MAJOR, a, b, (int)m, (int)p, (int)n, 1.0, x, a_leading, y, b_leading, 0.0,
                  to, out_leading);
        }
    }
    threads_here(before);
}

static void
product_of_floats(char **arguments, npy_intp const *counts, npy_intp const *steps, void *data)
{
    product(arguments, counts, steps, sizeof(float), data);
}

static void
product_of_doubles(char **arguments, npy_intp const *counts, npy_intp const *steps, void *data)
{
    product(arguments, counts, steps, sizeof(double), data);
}

PyDoc_STRVAR(product_ufunc_doc,
"product_ufunc(matmul, sgemm, dgemm, threads_here)\n"
"--\n\n"
"`numpy.matmul` once more, whose products of floats and doubles are computed by CBLAS functions.\n\n"
"Parameters\n"
"----------\n"
"matmul : numpy.ufunc\n"
"sgemm, dgemm : int\n"
"    Addresses of functions with CBLAS's parameters and integers of 32 bits.\n"
"threads_here : int\n"
"    Address of a function that sets how many threads the calling one uses, and returns the last.");

static PyObject *
product_ufunc(PyObject *Py_UNUSED(module), PyObject *args)
{
    static PyUFuncGenericFunction loops[MOST_LOOPS];
    static void *data[MOST_LOOPS];
    PyObject *object;
    Py_ssize_t floats, doubles, threads;
    if (!PyArg_ParseTuple(args, "O!nnn:product_ufunc", &PyUFunc_Type, &object, &floats, &doubles,
                          &threads)) {
        return NULL;
    }
    const PyUFuncObject *matmul = (PyUFuncObject *)object;
    if (matmul->nargs != 3 || matmul->core_enabled == 0 || matmul->ntypes > MOST_LOOPS) {
        PyErr_SetString(PyExc_ValueError, "product_ufunc() takes numpy.matmul");
        return NULL;
    }
    sgemm = (Sgemm)floats;
    dgemm = (Dgemm)doubles;
    threads_here = (int (*)(int))threads;
    for (int i = 0; i < matmul->ntypes; ++i) {
        char type = matmul->types[3 * i];
        usual[i] = (Usual){matmul->functions[i], matmul->data ? (void *)matmul->data[i] : NULL};
        int ours = type == NPY_FLOAT || type == NPY_DOUBLE;
        loops[i] = type == NPY_FLOAT    ? product_of_floats
                   : type == NPY_DOUBLE ? product_of_doubles
                                        : usual[i].loop;
        data[i] = ours ? (void *)&usual[i] : usual[i].data;
    }
    return PyUFunc_FromFuncAndDataAndSignature(loops, data, matmul->types, matmul->ntypes, 2, 1,
                                               PyUFunc_None, "matmul", matmul->doc, 0,
                                               matmul->core_signature);
}

static PyMethodDef methods[] = {
    {"own_loops", own_loops, METH_NOARGS, own_loops_doc},
    {"walk", (PyCFunction)(void (*)(void))walk, METH_FASTCALL, walk_doc},
    {"point", (PyCFunction)(void (*)(void))point, METH_FASTCALL, point_doc},
    {"find_loop", find_loop, METH_VARARGS, find_loop_doc},
    {"windows", windows, METH_VARARGS, windows_doc},
    {"product_ufunc", product_ufunc, METH_VARARGS, product_ufunc_doc},
    {"address", address, METH_O, address_doc},
    {"addresses", addresses, METH_O, addresses_doc},
    {NULL, NULL, 0, NULL},
};

/* Both macros return -1 with an error set where NumPy's C interface cannot be had. */
static int
prepare(PyObject *Py_UNUSED(module))
{
    import_array1(-1);
    import_umath1(-1);
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)prepare},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED}, /* nor by NumPy */
#endif
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED}, /* nothing is kept between calls */
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "NumPy's compiled loops, called one after another without the interpreter.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

/* What an import calls; `prepare` does the rest. */
PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}

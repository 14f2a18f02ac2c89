"""The functions that are no ufuncs: CuPy's signatures over NumPy's arithmetic.

A row is a signature as `inspect` prints the real function's (`test_names.py` compares). Arguments
named in `_ARRAYS` must be device arrays; the result is placed on the device, or is a view where
NumPy gave one.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy

from cupy import _core, _counts
from cupy._array import ndarray
from cupy._loops import WHERE
from cupy._ufunc import ufunc

SIGNATURES = """
all(a, axis=None, out=None, keepdims=False)
allclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False)
amax(a, axis=None, out=None, keepdims=False)
amin(a, axis=None, out=None, keepdims=False)
any(a, axis=None, out=None, keepdims=False)
argmax(a, axis=None, dtype=None, out=None, keepdims=False)
argmin(a, axis=None, dtype=None, out=None, keepdims=False)
argsort(a, axis=-1, kind=None)
argwhere(a)
around(a, decimals=0, out=None)
array_equal(a1, a2, equal_nan=False)
array_split(ary, indices_or_sections, axis=0)
bincount(x, weights=None, minlength=None)
broadcast_to(array, shape)
clip(a, a_min, a_max, out=None)
column_stack(tup)
concatenate(tup, axis=0, out=None, *, dtype=None, casting='same_kind')
count_nonzero(a, axis=None)
cumprod(a, axis=None, dtype=None, out=None)
cumsum(a, axis=None, dtype=None, out=None)
diag(v, k=0)
diagonal(a, offset=0, axis1=0, axis2=1)
diff(a, n=1, axis=-1, prepend=None, append=None)
digitize(x, bins, right=False)
dot(a, b, out=None)
expand_dims(a, axis)
flatnonzero(a)
flip(a, axis=None)
fliplr(a)
flipud(a)
hstack(tup, *, dtype=None, casting='same_kind')
imag(val)
inner(a, b)
isclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False)
isin(element, test_elements, assume_unique=False, invert=False)
kron(a, b)
lexsort(keys)
max(a, axis=None, out=None, keepdims=False)
mean(a, axis=None, dtype=None, out=None, keepdims=False)
min(a, axis=None, out=None, keepdims=False)
moveaxis(a, source, destination)
nan_to_num(x, copy=True, nan=0.0, posinf=None, neginf=None)
nanmax(a, axis=None, out=None, keepdims=False)
nanmin(a, axis=None, out=None, keepdims=False)
nansum(a, axis=None, dtype=None, out=None, keepdims=False)
nonzero(a)
outer(a, b, out=None)
pad(array, pad_width, mode='constant', **kwargs)
partition(a, kth, axis=-1)
permute_dims(a, axes=None)
prod(a, axis=None, dtype=None, out=None, keepdims=False)
ptp(a, axis=None, out=None, keepdims=False)
put_along_axis(arr, indices, values, axis)
ravel(a, order='C')
real(val)
repeat(a, repeats, axis=None)
reshape(a, newshape, order='C', *, copy=None)
roll(a, shift, axis=None)
rot90(a, k=1, axes=(0, 1))
round(a, decimals=0, out=None)
searchsorted(a, v, side='left', sorter=None)
sort(a, axis=-1, kind=None)
split(ary, indices_or_sections, axis=0)
squeeze(a, axis=None)
stack(tup, axis=0, out=None, *, dtype=None, casting='same_kind')
std(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False)
sum(a, axis=None, dtype=None, out=None, keepdims=False)
swapaxes(a, axis1, axis2)
take_along_axis(a, indices, axis)
tensordot(a, b, axes=2)
tile(A, reps)
trace(a, offset=0, axis1=0, axis2=1, dtype=None, out=None)
transpose(a, axes=None)
tril(m, k=0)
triu(m, k=0)
unravel_index(indices, dims, order='C')
var(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False)
vdot(a, b)
vstack(tup, *, dtype=None, casting='same_kind')
where(condition, x=None, y=None)
"""

_ARRAYS = frozenset(
    ("a", "arr", "array", "ary", "v", "m", "val", "tup", "keys", "condition", "indices")
    + ("element", "test_elements", "A", "x", "a1", "a2", "weights", "bins")
)
_NUMBERS_TOO = frozenset(
    ("x", "y", "b", "a1", "a2", "a_min", "a_max", "values", "prepend", "append")
)
_NAMES = {"permute_dims": "transpose", "amax": "max", "amin": "min", "around": "round"}
_WIDENED = frozenset(
    ("sum", "mean", "prod", "var", "std", "cumsum", "cumprod", "nansum", "dot", "inner")
)
# How often the host waits in it: for how many there are, or the largest.
_WAITS = {"nonzero": 1, "argwhere": 1, "flatnonzero": 1, "where": 1, "bincount": 2}
_OWN: dict[str, Callable[..., Any]] = {}


def _host(name: str, value: Any, takes_numbers: bool) -> Any:
    """An argument as NumPy takes it; what CuPy refuses is refused."""
    if isinstance(value, ndarray):
        return _core.host_of(value)
    if isinstance(value, (list, tuple)) and name in ("tup", "keys"):
        if not all(isinstance(x, ndarray) for x in value):
            bad = next(type(x) for x in value if not isinstance(x, ndarray))
            raise TypeError(f"Only cupy arrays can be concatenated: got {bad}")
        return [_core.host_of(x) for x in value]
    if value is None or (takes_numbers and isinstance(value, _core.SCALARS)):
        return value
    raise TypeError(f"{name} must be a cupy.ndarray: Unsupported type {type(value)}")


def _back(found: Any, inputs: list[ndarray]) -> Any:
    """A result of NumPy's on the device: a view where it looks at an argument's memory."""
    if isinstance(found, (tuple, list)):
        return type(found)([_back(f, inputs) for f in found])
    if isinstance(found, numpy.ndarray) and found.base is not None:
        for x in inputs:
            if x.size and found.size and numpy.may_share_memory(found, x._a):
                return x._view(found)
    elif isinstance(found, numpy.ndarray):
        for x in inputs:
            if found is x._a:
                return x
    return _core.place(found)


def _compute(name: str, given: dict[str, Any], parameters: dict[str, Any]) -> Any:
    if name == "where" and given["x"] is not None and given["y"] is not None:
        _host("condition", given["condition"], False)
        return _where(given["condition"].astype(bool, copy=False), given["x"], given["y"])
    for _ in range(_WAITS.get(name, 0)):
        _counts.note("wait", name)
    out = given.pop("out", None)
    inputs: list[ndarray] = []
    positional, named = [], dict(given.pop("kwargs", {}))
    for key, value in given.items():
        if isinstance(value, ndarray):
            inputs.append(value)
        elif isinstance(value, (list, tuple)):
            inputs += [x for x in value if isinstance(x, ndarray)]
        p = parameters[key]
        if (key in _ARRAYS or key in _NUMBERS_TOO) and not (
            p.default is not p.empty and value is p.default
        ):
            value = _host(key, value, key in _NUMBERS_TOO)
        elif isinstance(value, ndarray):
            value = _core.host_of(value)
        elif isinstance(value, numpy.ndarray) and value.ndim:
            raise TypeError(f"{name}: Unsupported type {type(value)} for {key}")
        if p.default is p.empty:
            positional.append(value)
        elif not _same(value, p.default):
            named[key] = value
    with numpy.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = _run(name, positional, named)
    if out is None:
        return _back(found, inputs)
    if not isinstance(out, ndarray):
        raise TypeError(f"Argument 'out' has incorrect type (expected ndarray, got {type(out)})")
    found = numpy.asarray(found)
    if out.shape != found.shape:
        raise ValueError(f"Output shape mismatch: {out.shape} and {found.shape}")
    _core.write(out, found)
    return out


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and value == default)


def _run(name: str, positional: list[Any], named: dict[str, Any]) -> Any:
    function = _OWN.get(name) or getattr(numpy, _NAMES.get(name, name))
    narrow = [x.dtype for x in positional if isinstance(x, numpy.ndarray) and _is_narrow(x.dtype)]
    if name in _WIDENED and narrow and named.get("dtype") is None:  # accumulated in float32
        wide = [x.astype("f") if isinstance(x, numpy.ndarray) else x for x in positional]
        return numpy.asarray(function(*wide, **named)).astype(narrow[0])
    return function(*positional, **named)


def _is_narrow(d: numpy.dtype[Any]) -> bool:
    return d == numpy.float16 or d == _core.bfloat16


def _own(function: Callable[..., Any]) -> Callable[..., Any]:
    _OWN[function.__name__.strip("_")] = function
    return function


# Its loops have no bfloat16: the result of two bfloat16 arrays is float32.
_where = ufunc("where", "cupy_where", 3, 1, WHERE.split())


@_own
def where_(condition: Any, x: Any = None, y: Any = None) -> Any:
    if (x is None) != (y is None):
        raise ValueError("Must provide both 'x' and 'y' or neither.")
    return numpy.nonzero(condition)


@_own
def take_along_axis_(a: Any, indices: Any, axis: Any) -> Any:
    """Indices wrap around."""
    if indices.dtype.kind not in "iu":
        raise IndexError("`indices` must be an integer array")
    size = a.size if axis is None else a.shape[axis]
    places = indices.astype(numpy.int64) % size if size else indices
    return numpy.take_along_axis(a, places, axis)


@_own
def argsort_(a: Any, axis: Any = -1, kind: Any = None) -> Any:
    _check_sort(kind, a)
    return numpy.argsort(numpy.atleast_1d(a), axis, kind="stable")


@_own
def sort_(a: Any, axis: Any = -1, kind: Any = None) -> Any:
    _check_sort(kind, a)
    return numpy.sort(a, axis, kind="stable")


def _check_sort(kind: Any, a: Any) -> None:
    """CuPy sorts by Thrust, of which it builds no bfloat16."""
    if a.dtype == _core.bfloat16:
        raise TypeError("Unsupported dtype ID: Thrust sorts no bfloat16")
    if kind not in (None, "stable"):
        raise ValueError("kind can only be None or 'stable'")


@_own
def argmax_(a: Any, axis: Any = None, keepdims: Any = False, dtype: Any = None) -> Any:
    return numpy.argmax(a, axis, keepdims=keepdims)


@_own
def argmin_(a: Any, axis: Any = None, keepdims: Any = False, dtype: Any = None) -> Any:
    return numpy.argmin(a, axis, keepdims=keepdims)


def _function(line: str) -> Callable[..., Any]:
    """A function of the row's signature; it is written out, so that calling it costs little."""
    name, _, rest = line.partition("(")
    space: dict[str, Any] = {"_compute": _compute}
    exec(f"def {name}({rest}:\n    return _compute({name!r}, locals(), _parameters)", space)
    made: Callable[..., Any] = space[name]
    space["_parameters"] = dict(inspect.signature(made).parameters)
    made.__module__ = "cupy"
    return made


FUNCTIONS = {line.partition("(")[0]: _function(line) for line in SIGNATURES.strip().splitlines()}

_METHODS = {
    "sum": "axis=None, dtype=None, out=None, keepdims=False",
    "prod": "axis=None, dtype=None, out=None, keepdims=False",
    "mean": "axis=None, dtype=None, out=None, keepdims=False",
    "max": "axis=None, out=None, keepdims=False",
    "min": "axis=None, out=None, keepdims=False",
    "argmax": "axis=None, out=None, dtype=None, keepdims=False",
    "argmin": "axis=None, out=None, dtype=None, keepdims=False",
    "any": "axis=None, out=None, keepdims=False",
    "all": "axis=None, out=None, keepdims=False",
    "var": "axis=None, dtype=None, out=None, ddof=0, keepdims=False",
    "std": "axis=None, dtype=None, out=None, ddof=0, keepdims=False",
    "ptp": "axis=None, out=None, keepdims=False",
    "cumsum": "axis=None, dtype=None, out=None",
    "cumprod": "axis=None, dtype=None, out=None",
    "round": "decimals=0, out=None",
    "clip": "min=None, max=None, out=None",
    "argsort": "axis=-1, kind=None",
    "squeeze": "axis=None",
    "swapaxes": "axis1, axis2",
    "repeat": "repeats, axis=None",
    "diagonal": "offset=0, axis1=0, axis2=1",
    "trace": "offset=0, axis1=0, axis2=1, dtype=None, out=None",
    "nonzero": "",
    "searchsorted": "v, side='left', sorter=None",
    "ravel": "order='C'",
    "dot": "b, out=None",
}
_OTHER_NAMES = {("clip", "min"): "a_min", ("clip", "max"): "a_max"}  # in the function


def _method(name: str, parameters: str) -> Any:
    names = [p.partition("=")[0].strip() for p in parameters.split(",") if p.strip()]
    passed = "".join(f", {_OTHER_NAMES.get((name, n), n)}={n}" for n in names)
    space: dict[str, Any] = {"_f": FUNCTIONS[name]}
    exec(f"def {name}(self, {parameters}):\n    return _f(self{passed})", space)
    return space[name]


def _reshape(self: ndarray, *shape: Any, order: Any = "C", copy: Any = None) -> ndarray:
    wanted = shape[0] if len(shape) == 1 else shape
    same = self._a.reshape(wanted, order=order)
    if not same.size or numpy.may_share_memory(same, self._a):  # a view, on whatever GPU
        return self._view(same)
    found: ndarray = _back(_core.host_of(self).reshape(wanted, order=order), [self])
    return found


def _transpose(self: ndarray, *axes: Any) -> ndarray:
    return self._view(self._a.transpose(*axes))


def _flatten(self: ndarray, order: Any = "C") -> ndarray:
    found: ndarray = _core.place(_core.host_of(self).flatten(order))
    return found


def _sort(self: ndarray, axis: int = -1, kind: Any = None) -> None:
    if not self._a.flags.c_contiguous:
        raise NotImplementedError("Sorting non-contiguous array is not supported.")
    _check_sort(kind, self)
    _core.write(self, numpy.sort(_core.host_of(self), axis, kind="stable"))


def _conj(self: ndarray) -> ndarray:
    if self.dtype.kind != "c":
        return self
    found: ndarray = _core.place(numpy.conj(_core.host_of(self)))
    return found


def _part(name: str) -> property:
    def get(self: ndarray) -> Any:
        if self.dtype.kind != "c":
            if name == "real":
                return self
            return _core.place(numpy.zeros(self.shape, self.dtype))
        return self._view(getattr(self._a, name))

    def put(self: ndarray, value: Any) -> None:
        get(self)[...] = value

    return property(get, put)


def install() -> None:
    """The functions that are methods as well."""
    made: Any = ndarray
    for name, parameters in _METHODS.items():
        setattr(made, name, _method(name, parameters))
    made.reshape, made.transpose, made.flatten = _reshape, _transpose, _flatten
    made.sort, made.conj, made.conjugate = _sort, _conj, _conj
    made.real, made.imag = _part("real"), _part("imag")

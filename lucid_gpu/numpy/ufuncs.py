"""NumPy's ufuncs on tensors: which op each is, in which types it computes.

Operators (`OPERATORS`) promote as PyTorch's do, for ``a + t`` and ``t + a`` must not differ. All
others compute in the types that NumPy's own loop would.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import backend, backend_of_array
from lucid_gpu.func.trees import tree_map
from lucid_gpu.fusion.optable import TABLE
from lucid_gpu.numpy.operands import alike, as_tensor, as_tensors, first_tensor
from lucid_gpu.numpy.refusals import no_gradient, unsupported, write_into
from lucid_gpu.ops.array_methods import laid_out
from lucid_gpu.ops.linalg.matrices import conj
from lucid_gpu.tape.door import body_of
from lucid_gpu.tape.modes import is_grad_enabled
from lucid_gpu.tensor import Tensor, apply, binary, from_array, unary


def _row(name: str) -> Callable[..., Any]:
    return functools.partial(apply, TABLE[name])


def _cbrt(x: Tensor) -> Tensor:
    return x.sign() * x.abs() ** (1 / 3)


def _step(name: str) -> Callable[..., Any]:
    return lambda x: x.clone() if x.dtype.category == 0 else _row(name)(x)


def _whole_inverse(x: Tensor) -> Tensor:
    return (1 / x.to(dt.float64)).trunc().to(x.dtype)


def _by_parts(name: str, x: Tensor) -> Any:
    """A step function of the real and of the imaginary part."""
    if x.dtype.category < 3:
        return _row(name)(x)
    from lucid_gpu.ops.complex_views import complex as joined

    return joined(_row(name)(x.real), _row(name)(x.imag))


def _fmax(a: Any, b: Any) -> Any:
    return b.where(a.isnan(), a.where(b.isnan(), _row("maximum")(a, b)))


def _fmin(a: Any, b: Any) -> Any:
    return b.where(a.isnan(), a.where(b.isnan(), _row("minimum")(a, b)))


def _product(a: Any, b: Any) -> Any:
    a, b = alike(a, b)
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(
            "matmul: both operands need at least one dimension, got shapes "
            f"{tuple(a.shape)} and {tuple(b.shape)}"
        )
    return a.matmul(b)


def _with_core(name: str, of_a: int, of_b: int, product: Callable[..., Any]) -> Callable[..., Any]:
    """A product of vectors and matrices in the last axes, which must agree in what is summed."""

    def function(a: Any, b: Any) -> Any:
        a, b = alike(a, b)
        if a.ndim < of_a or b.ndim < of_b or a.shape[-1] != b.shape[-of_b]:
            raise ValueError(
                f"{name}: operands of shapes {tuple(a.shape)} and {tuple(b.shape)} have a mismatch "
                f"in the dimension that is summed, or fewer than {of_a} and {of_b} dimensions"
            )
        return product(a, b)

    return function


ROWS = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "floor_divide": "floor_divide",
    "remainder": "remainder",
    "power": "pow",
    "equal": "eq",
    "not_equal": "ne",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or",
    "bitwise_xor": "bitwise_xor",
    "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift",
    "invert": "bitwise_not",
    "negative": "neg",
    "absolute": "abs",
}
OPERATORS: dict[str, Callable[..., Any]] = {name: _row(row) for name, row in ROWS.items()}
OPERATORS["positive"] = lambda x: +x
OPERATORS["matmul"] = _product
OPERATORS["divmod"] = lambda a, b: (_row("floor_divide")(a, b), _row("remainder")(a, b))

# NumPy's names: rows of the op table, or short compositions of them; SciPy's: `lucid_gpu.scipy`
LOOPS: dict[str, Callable[..., Any]] = {
    name: _row(row)
    for name, row in {
        "arccos": "acos",
        "arccosh": "acosh",
        "arcsin": "asin",
        "arcsinh": "asinh",
        "arctan": "atan",
        "arctan2": "atan2",
        "arctanh": "atanh",
        "conjugate": "conj_physical",
        "fabs": "abs",
    }.items()
}
SAME = (
    "copysign cos cosh exp exp2 expm1 fmod hypot isfinite isinf isnan log log10 log1p log2 "
    "logaddexp logical_and logical_not logical_or logical_xor maximum minimum sin sinh sqrt square "
    "tan tanh"
)


def _positive(x: Tensor) -> Tensor:
    """Return 1 where ``x`` is above 0, else 0; NaN where it is NaN, which PyTorch's has not."""
    return x.where(x != x, (x > 0).to(x.dtype))


LOOPS |= {name: _row(name) for name in SAME.split()}
LOOPS |= {name: _step(name) for name in ("ceil", "floor", "trunc")}
LOOPS |= {
    "cbrt": _cbrt,
    "degrees": lambda x: x * (180 / math.pi),
    "rad2deg": lambda x: x * (180 / math.pi),
    "radians": lambda x: x * (math.pi / 180),
    "deg2rad": lambda x: x * (math.pi / 180),
    "float_power": _row("pow"),
    "fmax": _fmax,
    "fmin": _fmin,
    "heaviside": lambda x, at_zero: at_zero.where(x == 0, _positive(x.detach())),
    "ldexp": lambda x, exponent: x * _row("exp2")(as_tensor(exponent, x).to(x.dtype)),
    "logaddexp2": lambda a, b: a.logaddexp2(b),
    "reciprocal": lambda x: _row("reciprocal")(x) if x.dtype.category > 1 else _whole_inverse(x),
    "sign": lambda x: x.sgn() if x.dtype.category == 3 else x.sign(),
    "rint": lambda x: _by_parts("round", x),
    "modf": lambda x: (x - x.trunc(), x.trunc()),
    "vecdot": _with_core("vecdot", 1, 1, lambda a, b: (conj(a) * b).sum(-1).to(a.dtype)),
    "matvec": _with_core("matvec", 2, 1, lambda a, x: (a @ x.unsqueeze(-1)).squeeze(-1)),
    "vecmat": _with_core("vecmat", 1, 2, lambda x, a: (conj(x).unsqueeze(-2) @ a).squeeze(-2)),
}

# ufunc.reduce and ufunc.accumulate, as functions of the reductions' file
REDUCE = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}
ACCUMULATE = {"add": "cumsum", "multiply": "cumprod"}


# The straight path, of programs that call ufuncs in loops: rows as methods of tensors have it, in
# the types that NumPy's loop would have: autocast does not look.
DIRECTLY = {
    getattr(np, name): (
        body_of(binary(TABLE[row], f"__{row}__")),
        body_of(binary(TABLE[row], f"__r{row}__", reflected=True)),
    )
    for name, row in ROWS.items()
    if getattr(np, name).nin == 2
}
OFTEN = "absolute cos cosh exp expm1 log log1p negative sin sinh sqrt square tanh"
OF_FLOATS = {
    getattr(np, name): body_of(unary(TABLE[ROWS.get(name, name)])) for name in OFTEN.split()
}
_KEPT = (dt.float64, dt.float32)  # what those give is of the type they are given


def _array_ufunc(self: Tensor, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """What `Tensor.__array_ufunc__` is, as an attribute of the class."""
    if method == "__call__" and not options:
        first = inputs[0]
        if len(inputs) == 1:
            of_floats = OF_FLOATS.get(ufunc)
            if of_floats is not None and first._expr.program.dtype in _KEPT:
                return of_floats(first)
        elif ufunc in DIRECTLY:
            plain, reflected = DIRECTLY[ufunc]
            ours = isinstance(first, Tensor)
            one, other = inputs if ours else inputs[::-1]
            if isinstance(other, np.generic):  # weak beside an operator
                number = ufunc is np.subtract and isinstance(other, np.bool_)
                other = int(other) if number else other.item()
            if isinstance(other, (Tensor, float, int)):
                return plain(one, other) if ours else reflected(one, other)
    return _answer(ufunc, method, inputs, options)


def _answer(ufunc: Any, method: str, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
    """The result, or NotImplemented for other libraries'.

    Raises
    ------
    TypeError
        For a ufunc or method that tensors do not have; the message names it.
    RuntimeError
        For ``out=`` where a gradient is wanted.
    """
    out = options.pop("out", None)
    if not all(map(_understood, (*inputs, *(out or ())))):
        return NotImplemented
    if method == "__call__":
        result = _called(ufunc, inputs, options)
    elif method == "reduce":
        options.setdefault("axis", 0)
        result = _by_family(ufunc, "reduce", REDUCE)(*inputs, **options)
    elif method == "accumulate":
        options.setdefault("axis", 0)
        result = _by_family(ufunc, "accumulate", ACCUMULATE)(*inputs, **options)
    elif method == "outer":
        a, b = as_tensors(inputs)
        wide = a.reshape(tuple(a.shape) + (1,) * b.ndim)
        result = _called(ufunc, (wide, b), options)
    else:
        raise unsupported(f"numpy.{ufunc.__name__}.{method}")
    if not out or all(o is None for o in out):
        return result
    if not isinstance(result, tuple):
        return write_into(out[0], result, f"numpy.{ufunc.__name__}")
    return tuple([write_into(o, r, ufunc.__name__) for o, r in zip(out, result, strict=True)])


def __cupy_override_elementwise_kernel__(
    self: Tensor, kernel: Any, *args: Any, **options: Any
) -> Any:
    """What CuPy asks of a tensor that one of its ufuncs or kernels is given.

    ``cupy.sin(t)`` is ``numpy.sin(t)``, so it has a gradient. A user's ``ElementwiseKernel`` has
    none and takes the tensor's array, as it would any library's.

    Raises
    ------
    TypeError
        For a ufunc that tensors do not have; the message names it.
    """
    name = kernel.name.rpartition("cupy_")[2].removeprefix("cupyx_scipy_").removeprefix("special_")
    if type(kernel).__name__ == "ElementwiseKernel":
        return kernel(*[a.cupy() if isinstance(a, Tensor) else a for a in args], **options)
    of_numpy = getattr(np, name, None) if kernel.name.startswith("cupy_") else None
    if isinstance(of_numpy, np.ufunc):
        inputs, written = args[: kernel.nin], args[kernel.nin :] or options.pop("out", None)
        if written is not None:
            options["out"] = written if isinstance(written, tuple) else (written,)
        # Not by NumPy, which would ask an array on the left first, and that this method again.
        answer = _answer(of_numpy, "__call__", inputs, options)
        if answer is NotImplemented:
            raise TypeError(
                f"cupy.{name} of a tensor does not take "
                f"{', '.join(type(a).__name__ for a in args if not _understood(a))}"
            )
        return answer
    if of_numpy is not None:
        return of_numpy(*args, **options)
    operation = LOOPS.get(name) or _of_scipy(name)
    if operation is None:
        raise unsupported(f"cupyx.scipy.special.{name}")
    return operation(*as_tensors(args), **options)


def _understood(value: Any) -> bool:
    """Numbers, lists and arrays are; classes of other libraries answer for themselves."""
    if value is None or isinstance(value, (Tensor, bool, int, float, complex, list, tuple)):
        return True
    return backend_of_array(value) is not None or not hasattr(type(value), "__array_ufunc__")


def _by_family(ufunc: Any, method: str, names: dict[str, str]) -> Callable[..., Any]:
    name = names.get(ufunc.__name__)
    if name is None:
        raise unsupported(f"numpy.{ufunc.__name__}.{method}")
    from lucid_gpu.numpy import reductions, running

    function: Callable[..., Any] = getattr(reductions, name, None) or getattr(running, name)
    return function


def _called(ufunc: Any, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
    d, where = options.pop("dtype", None), options.pop("where", True)
    casting, order = options.pop("casting", "same_kind"), options.pop("order", "K")
    options.pop("subok", None)  # tensors have no subclasses
    name = ufunc.__name__
    if options:
        raise TypeError(f"numpy.{name}: {', '.join(options)} is not taken where tensors come in")
    if where is not True:
        raise TypeError(
            f"numpy.{name}: where= leaves elements unset; write numpy.where(mask, result, other)"
        )
    like = first_tensor(inputs)
    promoted = name in OPERATORS and d is None and casting == "same_kind"
    inputs = [_operand(value, like, promoted) for value in inputs]
    operands: Sequence[Any] | None
    operands = inputs if promoted else _in_loop_types(ufunc, inputs, d, casting)
    operation = OPERATORS.get(name) or LOOPS.get(name) or _of_scipy(name)
    if operation is None or operands is None:
        result = _on_values(ufunc, inputs if operands is None else operands)
    else:
        result = operation(*operands)
    return result if order in ("K", "A") else tree_map(lambda t: laid_out(t, order), result)


def _of_scipy(name: str) -> Callable[..., Any] | None:
    """Return the function of `lucid_gpu.scipy.special` that stands for SciPy's ufunc `name`."""
    if hasattr(np, name):
        return None
    from lucid_gpu.scipy import rows, special

    return getattr(special, name) if f"special.{name}" in rows.ROWS else None


def _operand(value: Any, like: Tensor | None, weak: bool) -> Any:
    """Numbers stay numbers, which are weak; all else becomes a tensor.

    NumPy's own scalars are weak only beside an operator, as its zero-dimensional arrays are.
    """
    if isinstance(value, np.generic) and weak:
        return value.item()
    number = isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic)
    return value if number else as_tensor(value, like)


def _in_loop_types(ufunc: Any, inputs: Sequence[Any], d: Any, casting: str) -> list[Any] | None:
    """The operands in the types of NumPy's loop; None where tensors have no such type."""
    types = tuple([v.dtype.numpy if isinstance(v, Tensor) else type(v) for v in inputs])
    asked = d.numpy if isinstance(d, dt.dtype) else None if d is None else np.dtype(d)
    wanted = _loop_types(ufunc, types, asked, casting)
    if wanted is None:
        return None
    like = first_tensor(inputs)
    return [as_tensor(v, like).to(d) for v, d in zip(inputs, wanted, strict=True)]


@functools.lru_cache(maxsize=1024)
def _loop_types(
    ufunc: Any, types: tuple[Any, ...], asked: Any, casting: str
) -> list[dt.dtype] | None:
    """The types of NumPy's loop, where it was asked for a result's type too.

    Raises
    ------
    TypeError
        If there is no such loop, or not for these types.
    """
    if dt.bfloat16.numpy in types:  # which is not NumPy's
        return None if len(set(types)) > 1 else [dt.from_numpy_dtype(one) for one in types]
    rest = (None,) * ufunc.nout
    types = tuple([np.dtype(np.bool) if one is bool else one for one in types])
    signature = (None,) * ufunc.nin + (asked,) * ufunc.nout
    options = {} if asked is None else {"signature": signature}
    loop = ufunc.resolve_dtypes((*types, *rest), casting=casting, **options)
    try:
        return [dt.from_numpy_dtype(one) for one in loop[: ufunc.nin]]
    except TypeError:  # no tensor has its uint16
        return None


def _title(ufunc: Any) -> str:
    """What a ufunc is called in a sentence; SciPy's do not tell where they are from."""
    name = ufunc.__name__
    return f"numpy.{name}" if getattr(np, name, None) is ufunc else f"the ufunc {name}"


def _on_values(ufunc: Any, inputs: Sequence[Any]) -> Any:
    """A ufunc without a gradient, computed by the array library."""
    operands = [v for v in inputs if isinstance(v, Tensor)]
    where = operands[0].device
    function = getattr(backend(where).xp, ufunc.__name__, None)
    if function is None and where.type == "cpu" and not ufunc.types[0].endswith("O"):
        function = ufunc  # SciPy's, and others'
    if function is None:
        raise unsupported(_title(ufunc))
    arrays = [v.detach().array if isinstance(v, Tensor) else v for v in inputs]
    result = function(*arrays)
    results = result if isinstance(result, tuple) else (result,)
    wanted = is_grad_enabled() and any(v.requires_grad for v in operands)
    if wanted and any(r.dtype.kind in "fc" for r in results):
        raise no_gradient(_title(ufunc))
    tensors = tuple([from_array(r if r.ndim else np.asarray(r), None, where) for r in results])
    return tensors if isinstance(result, tuple) else tensors[0]


def _matmul_of_arrays(a: Any, b: Any) -> Tensor:
    """A tensor times an array, in either order, in the types that NumPy gives to both."""
    product: Tensor = OPERATORS["matmul"](a, b)
    return product


METHODS = (_array_ufunc, __cupy_override_elementwise_kernel__, _matmul_of_arrays)

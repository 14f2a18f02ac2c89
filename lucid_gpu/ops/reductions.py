"""Sums, means, extrema and other reductions.

A sum takes in the elementwise expression that feeds it: the summed values are never stored. The
others are compositions of sums and extrema wherever their definition is one.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.core.layout import repeated
from lucid_gpu.core.program import SHARED, WRAPPED, Program, Shape, derived, load_program
from lucid_gpu.core.value import Cell, Expr
from lucid_gpu.devices import backend, backend_of_array, xp_of
from lucid_gpu.devices.threads import run_quietly
from lucid_gpu.dtypes import as_dtype, dtype
from lucid_gpu.fusion import Eager, building, realize
from lucid_gpu.fusion.costs import costs_of
from lucid_gpu.fusion.optable import TABLE
from lucid_gpu.fusion.pending_reductions import Pending, Recipe, plan_of, recipe_of, start
from lucid_gpu.fusion.plan import Plan
from lucid_gpu.fusion.reduction_table import TABLE as TABLE_OF_REDUCTIONS
from lucid_gpu.fusion.scheduler import mark_computed
from lucid_gpu.ops.arguments import guarded, is_number, one_by_one, public, require_tensor
from lucid_gpu.ops.elementwise import piecewise
from lucid_gpu.ops.named_results import values_and_indices
from lucid_gpu.ops.record import composes, keeps, record, was_replaced
from lucid_gpu.ops.registry import attach
from lucid_gpu.ops.user_warnings import warn_user
from lucid_gpu.tape.door import body_of, op
from lucid_gpu.tape.levels import open_levels
from lucid_gpu.tape.modes import FORWARD, OFF, is_grad_enabled, state
from lucid_gpu.tape.native import core
from lucid_gpu.tape.rules import Batch, Call, batching, jvp
from lucid_gpu.tensor import Tensor, _tensor, apply, binary, from_array, of_pending

Dims = Any


def normalize_dim(dim: int, rank: int) -> int:
    """A dimension as a number from 0.

    Raises
    ------
    IndexError
        With PyTorch's sentence, where there is no such dimension.
    TypeError
        If it is no integer.
    """
    if type(dim) is not int:
        dim = _integer(dim)
    extent = rank or 1  # a 0-d tensor may be reduced over dim 0 or -1
    if not -extent <= dim < extent:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-extent}, {extent - 1}], but "
            f"got {dim})"
        )
    return dim % extent


def along_dim(level: Batch, f: Any, *args: Any, **named: Any) -> Any:
    """The batching rule of ops along a dimension ``dim`` of their ``input``: it is one further."""
    given = arguments_of(f, args, named)
    x = given.pop("input")
    if not x.ndim:
        return NotImplemented
    dim = normalize_dim(given.pop("dim"), x.ndim) + 1
    return level.wrap_all(f(level.value(x), dim=dim, **given))


def arguments_of(f: Any, args: Sequence[Any], named: dict[str, Any]) -> dict[str, Any]:
    """A call's arguments by an op's names, with the defaults of those that may be positional."""
    signature = _signature(body_of(f))
    given = signature.bind(*args, **named).arguments
    known = [p for p in signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    return {**{p.name: p.default for p in known}, **given}


_signature = functools.lru_cache(inspect.signature)


def _integer(dim: Any) -> int:
    try:
        if not isinstance(dim, bool):
            return operator.index(dim)
    except TypeError:
        pass
    raise TypeError(f"argument 'dim' must be int, not {type(dim).__name__}")


def existing_dim(dim: int, rank: int) -> int:
    """As `normalize_dim`, for ops that do not take one number for a vector."""
    if not rank:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    return normalize_dim(dim, rank)


def normalize_dims(dims: Dims, rank: int) -> tuple[int, ...]:
    """A ``dim`` argument (None, a number or several) as sorted numbers from 0."""
    if dims is None:
        return tuple(range(rank))
    if is_number(dims):
        return (normalize_dim(dims, rank),)
    wanted = tuple(dims) or range(rank)
    axes = sorted(normalize_dim(d, rank) for d in wanted)
    for a, b in zip(axes, axes[1:], strict=False):
        if a == b:
            raise RuntimeError(f"dim {a} appears multiple times in the list of dims")
    return tuple(axes)


def kept_shape(shape: Sequence[int], dims: Sequence[int]) -> tuple[int, ...]:
    """The shape with the reduced dimensions at extent 1."""
    return tuple([1 if i in dims else n for i, n in enumerate(shape)])


def dropped_shape(shape: Sequence[int], dims: Sequence[int]) -> tuple[int, ...]:
    """The shape without the reduced dimensions."""
    return tuple([n for i, n in enumerate(shape) if i not in dims])


def reshape_lazily(input: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`reshape` for gradients: what is pending and reads no array stays so, in no memory."""
    value = input._expr
    uniform = None if value.program.is_load else building.reshaped_uniform(value, shape)
    return input.reshape(shape) if uniform is None else _tensor(uniform)


def constant_number(input: Tensor) -> Any:
    """The number a pending constant is full of, or None."""
    program = input._expr.program
    if program.leaves or len(program.instructions) > 2:
        return None
    first = program.instructions[0]
    if first.op != "constant" or program.root.op not in ("constant", "identity"):
        return None
    return first.value[1]


def _expanded(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Broadcast without memory, as a pending value."""
    return t if t._expr.shape == shape else apply(TABLE["identity"], t, shape=shape)


expand_lazily: Callable[[Tensor, tuple[int, ...]], Tensor] = _expanded
if core is not None:
    expand_lazily = core.expand
    core.bind(identity=TABLE["identity"], expand=_expanded)


# --- sum ------------------------------------------------------------------------------------------


@op(autocast={"cuda": "float32"})
def sum(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: dtype | None = None
) -> Tensor:
    """Sum of all elements, or over dimensions.

    Parameters
    ----------
    input : Tensor, any shape
    dim : int or sequence of int, optional
    keepdim : bool
        Keep the reduced dimensions with extent 1.
    dtype : dtype, optional
        Type to add in; by default int64 for integers and bools.

    Returns
    -------
    Tensor
        Of the input's dtype, or int64 for integers.

    Raises
    ------
    IndexError
        For a dimension that there is not.
    RuntimeError
        For one given twice.
    """
    if input._is_sparse:
        return input.sum(dim, keepdim, dtype=dtype)
    if dtype is not None:
        input = input.to(as_dtype(dtype))
    elif input._expr.program.dtype.category < 2:
        input = input.to(dt.int64)
    return _sum_body(input, dim, keepdim)


@op
def _sum(input: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    """`sum` for ops, in the input's own type."""
    value = input._expr
    if not value.shape:
        normalize_dims(dim, 0)
        return input.clone()
    recipe = _recipe("sum", value, dim, keepdim)
    name = "SumBackward0" if dim is None else "SumBackward1"
    return _reduced(name, input, recipe, _sum_vjp, dims=recipe.axes, shape=value.shape)


_sum_body = body_of(_sum)


@functools.lru_cache(1 << 12)
def result_shape(shape: tuple[int, ...], dims: tuple[int, ...], keepdim: bool) -> tuple[int, ...]:
    """The shape after a reduction."""
    return kept_shape(shape, dims) if keepdim else dropped_shape(shape, dims)


_PLAIN = frozenset((int, type(None)))  # no truth values: they equal numbers, and are refused


def _recipe(row: str, value: Expr, dim: Dims, keepdim: bool) -> Recipe:
    """How a value of at least one dimension is reduced over ``dim``, an argument as users give it.

    A mean is divided by the number of what is added.
    """
    key = None
    kinds = map(type, dim) if type(dim) is tuple else (type(dim),)
    if _PLAIN.issuperset(kinds) and state.off is OFF:
        key = (value.program, row, dim, keepdim, value.shape)
        found = _recipes.get(key)
        if found is not None:
            return found
    shape = value.shape
    dims = normalize_dims(dim, len(shape))
    count = math.prod(map(shape.__getitem__, dims)) if row == "mean" else None
    recipe = recipe_of(value, row, dims, result_shape(shape, dims, keepdim), count)
    if key is not None:
        _recipes[key] = recipe
    return recipe


_recipes: dict[tuple[Program, str, int | Shape | None, bool, Shape], Recipe] = derived(
    "reductions as called"
)


def _started(input: Tensor, recipe: Recipe) -> Any:
    """The results of a reduction, for `record`: pending, and computed with others over the same
    values or with what consumes them.

    Where ops are realized on their own lines they are arrays; tensors where nothing is reduced.
    """
    value = input._expr
    program = value.program
    if 0 in value.shape:
        nothing, where = TABLE_OF_REDUCTIONS[recipe.row].of_nothing, program.device
        return [
            _tensor(building.of_constant(nothing, load.dtype, recipe.shape, where))
            for load in recipe.results
        ]
    pending = start(value, recipe, input)
    if Eager.on or program.barred or open_levels:
        results = [pending.result(number=i) for i in range(len(recipe.results))]
        return [result.leaves[0].array for result in results]
    return pending


def _reduced(
    name: str, input: Tensor, recipe: Recipe, vjp: Any, saved: Any = (), **attributes: Any
) -> Tensor:
    """The result of a row of `fusion.reduction_table`, recorded."""
    value = input._expr
    program = value.program
    recorded = state.mode is FORWARD or (state.grad and program.needs_grad)
    if not (recorded or Eager.on or program.barred or open_levels or 0 in value.shape):
        return of_pending(start(value, recipe, input), None, 0)
    started = _started(input, recipe)
    if type(started) is list:
        (started,) = started
    d = recipe.results[0].dtype
    result: Tensor = record(name, started, (input,), vjp, saved, d, **attributes)
    return result


def _in_one_kernel(input: Tensor) -> bool:
    """Can CUDA C reduce it by a state of several parts?"""
    program = input._expr.program
    return (
        program.dtype.category == 2
        and 0 not in input._expr.shape
        and not program.barred & ~SHARED
        and costs_of(program.device).reduces_states
    )


SMALL = 1 << 14  # elements up to which a few calls of NumPy beat fused kernels


def _at_once(input: Tensor) -> bool:
    """Whether a few calls of NumPy reduce it: it is small, and on the host."""
    program = input._expr.program
    return (
        program.dtype.category == 2
        and program.dtype.compute is program.dtype
        and 0 < math.prod(input._expr.shape) <= SMALL
        and not program.barred & ~SHARED  # who else holds it may change before a checkpoint's call
        and not costs_of(program.device).fuses_small
    )


def _sum_vjp(node: Any, g: Tensor) -> Any:
    if g._expr.shape and len(g._expr.shape) != len(node.shape):  # else they were kept
        g = reshape_lazily(g, kept_shape(node.shape, node.dims))
    return (expand_lazily(g, node.shape),)


@jvp(_sum_vjp)
def _sum_jvp(call: Call) -> Any:
    total = sum(call.tangent(), call.attributes["dims"])
    return [total.reshape(tuple(call.results[0].shape))]


@op
def sum_to_shape(input: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Sum over whatever broadcasting ``shape`` to the input's shape repeated."""
    dims = repeated(input._expr.shape, shape)
    if not dims:
        return reshape_lazily(input, shape)
    value = input._expr
    recipe = recipe_of(value, "sum", dims, shape, None)
    return _reduced("SumBackward1", input, recipe, _sum_vjp, dims=dims, shape=value.shape)


@batching(sum_to_shape)
def _sum_to_shape_batched(level: Batch, f: Any, x: Tensor, shape: tuple[int, ...]) -> Any:
    missing = x.ndim - len(shape)
    summed = f(level.value(x), (level.size, *[1] * missing, *shape))
    return level.wrap(summed.reshape((level.size, *shape)))


@op
def mean(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: dtype | None = None
) -> Tensor:
    """Arithmetic mean of all elements, or over dimensions; shapes are those of `sum`.

    Parameters
    ----------
    dim : int or sequence of int, optional
    keepdim : bool
        Keep the reduced dimensions with extent 1.
    dtype : dtype, optional
        What the input is cast to first.

    Raises
    ------
    RuntimeError
        For integers and bool.
    IndexError
        For a dimension that there is not.
    """
    if dtype is not None:
        input = input.to(as_dtype(dtype))
    program = input._expr.program
    if program.dtype.category < 2:
        which = "Input" if dtype is None else "Optional"
        raise RuntimeError(
            f"mean(): could not infer output dtype. {which} dtype must be either a floating point "
            f"or complex dtype. Got: {input.dtype.type_name}; write x.float().mean()"
        )
    value = input._expr
    if not value.shape:
        normalize_dims(dim, 0)
        return input.clone()
    recipe = _recipe("mean", value, dim, keepdim)
    return _reduced(
        "MeanBackward0" if dim is None else "MeanBackward1", input, recipe, _mean_vjp,
        dims=recipe.axes, shape=value.shape, count=recipe.divisor,
    )  # fmt: skip


def _mean_vjp(node: Any, g: Tensor) -> Any:
    if g._expr.shape and len(g._expr.shape) != len(node.shape):  # else they were kept
        g = reshape_lazily(g, kept_shape(node.shape, node.dims))
    g = g / (node.count or 1)
    # PyTorch divides what it has spread out, which then lies row by row
    value = None if g.ndim else building.reshaped_uniform(g._expr, node.shape)
    return (expand_lazily(g, node.shape) if value is None else _tensor(value),)


@batching(sum, _sum, mean)
def _sum_batched(
    level: Batch, f: Any, x: Tensor, dim: Dims = None, keepdim: bool = False, **options: Any
) -> Any:
    value, dims, keepdim = _inner(level, x, dim, keepdim)
    return level.wrap(f(value, dims, keepdim, **options))


def _inner(level: Batch, x: Tensor, dim: Dims, keepdim: bool) -> tuple[Tensor, Any, bool]:
    """The value with at least one dimension after the batch, and the dimensions of it to reduce."""
    dims = tuple([d + 1 for d in normalize_dims(dim, x.ndim)]) or (1,)
    value = level.value(x)
    return value if x.ndim else value.unsqueeze(1), dims, keepdim and x.ndim > 0


@op
def var(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """Variance of all elements, or over dimensions; shapes are those of `sum`.

    The mean squared distance from the mean, divided by ``n - correction`` instead of ``n``.

    Parameters
    ----------
    dim : int or sequence of int, optional
    unbiased : bool, optional
        Another form of ``correction``: 1 where true, else 0.
    keepdim : bool
        Keep the reduced dimensions with extent 1.
    correction : float, optional
        By default 1.

    Raises
    ------
    RuntimeError
        For integers and bool.
    IndexError
        For a dimension that there is not.
    """
    return _var_body(input, dim, unbiased, keepdim, correction)


@op
def _var(
    input: Tensor, dim: Dims, unbiased: bool | None, keepdim: bool, correction: float | None = None
) -> Tensor:
    """`var` for ops."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if correction is None:
        correction = 0 if unbiased is False else 1
    d, shape = input._expr.program.dtype, input._expr.shape
    if d.category < 2:
        raise RuntimeError(
            "std and var only support floating point and complex dtypes, got "
            f"{d.name}; write x.float()"
        )
    if d.compute is not d:  # squares of 16-bit floats are out of their range
        return keeps(_var(input.to(d.compute), dim, None, keepdim, correction).to(d), input)
    if d.is_complex:
        parts = [_var(part, dim, None, keepdim, correction) for part in _parts(input)]
        return keeps(parts[0] + parts[1], input)
    dims = normalize_dims(dim, len(shape))
    count = math.prod(map(shape.__getitem__, dims)) if shape else 1
    divisor = builtins.max(count - correction, 0)  # nothing left: inf, or NaN of equal numbers
    if not divisor:
        warn_user(
            "var(), std(): degrees of freedom is <= 0. Correction should be strictly less than the "
            "reduction factor (input numel divided by output numel)."
        )
    if shape and divisor > 0:
        in_one_kernel = _in_one_kernel(input)
        if in_one_kernel or _at_once(input):
            return _var_in_one_kernel(input, dims, keepdim, divisor, in_one_kernel)
    centered = input - mean(input, dims or None, keepdim=True) if shape else input - input
    total = sum(centered * centered, dims, keepdim) if shape else centered
    return keeps(total / divisor, input)


_var_body = body_of(_var)


def _parts(input: Tensor) -> tuple[Tensor, Tensor]:
    return input.real, input.imag


def _var_mean_at_once(
    array: Any, dims: tuple[int, ...], shape: tuple[int, ...], divisor: float, d: dtype
) -> tuple[Any, ...]:
    owner = backend_of_array(array)
    assert owner is not None
    xp = owner.xp
    x = array.astype(d.compute.numpy, copy=False)
    center = x.mean(axis=dims, keepdims=True)
    apart = x - center
    value = xp.square(apart, apart).sum(axis=dims) / divisor
    return tuple(xp.asarray(a, d.numpy, order="C").reshape(shape) for a in (value, center))


def _var_in_one_kernel(
    input: Tensor, dims: tuple[int, ...], keepdim: bool, divisor: float, by_welford: bool
) -> Any:
    """Variance and mean in one pass by Welford's algorithm, or of a small array on the host."""
    d, where = input._expr.program.dtype, input._expr.program.device
    shape = result_shape(input._expr.shape, dims, keepdim)
    kept = result_shape(input._expr.shape, dims, True)
    if by_welford:
        both = _started(input, recipe_of(input._expr, "var_mean", dims, shape, divisor))
        if type(both) is Pending:
            both = [_tensor(both.result(number=i)) for i in (0, 1)]
        value, center = both
    elif math.prod(input._expr.shape) <= IN_PAIRS and not input._load().program.strided:
        value, center = _var_mean_by_plans(input._expr, dims, shape, divisor)
    else:
        settings, there = (dims, shape, divisor, d), backend(where)
        value, center = run_quietly(there.call, "var", _var_mean_at_once, input.array, *settings)
    if not isinstance(center, Tensor):
        center = from_array(center, d, where)
    known = center if center._expr.shape == kept else reshape_lazily(center, kept)
    return record(
        "VarBackward0", value, (input,), _var_vjp, (input,), d,
        dims=dims, divisor=divisor, mean=known,
    )  # fmt: skip


IN_PAIRS = 4096  # elements up to which plans add as a ufunc's ``reduce`` does, not by BLAS


def _var_mean_by_plans(
    value: Expr, dims: tuple[int, ...], shape: tuple[int, ...], divisor: float
) -> tuple[Any, Any]:
    """Variance and mean of a row-major array, by two plans."""
    key = (value.program, dims, shape, divisor, value.shape)
    plans = _plans_of_var.get(key)
    if plans is None:
        program, kept = value.program, result_shape(value.shape, dims, True)
        plain = load_program(program.dtype, value.shape, False, False, program.device)
        x = Expr(plain, value.leaves, None, value.shape)
        count = math.prod(map(value.shape.__getitem__, dims))
        mean_of = recipe_of(x, "mean", dims, kept, count)
        center = Expr(mean_of.results[0], (Cell(None),), None, kept)
        apart = building.build(TABLE["sub"], [x, center], OFF, scheduled=False)
        square = building.build(TABLE["square"], [apart], OFF, scheduled=False)
        spread = recipe_of(square, "mean", dims, shape, divisor)
        plans = [plan_of([Pending(*pair)])[0] for pair in ((x, mean_of), (square, spread))]
        _plans_of_var[key] = plans
    (center,) = realize.execute(plans[0], value.leaves)
    (variance,) = realize.execute(plans[1], (*value.leaves, Cell(center)))
    return variance, center


_plans_of_var: dict[tuple[Program, Shape, Shape, float, Shape], list[Plan]] = derived(
    "plans of a mean and a variance"
)


def _var_vjp(node: Any, g: Tensor) -> Any:
    (x,) = node.saved_values
    again = is_grad_enabled() or was_replaced(x)
    center = mean(x, node.dims, keepdim=True) if again else node.mean
    g = g.reshape(kept_shape(tuple(x.shape), node.dims))
    return (g * (x - center) * (2 / node.divisor),)


@op
def std(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """Standard deviation, the square root of `var`; parameters, shapes and errors as there."""
    d = input._expr.program.dtype
    if d.compute is d:
        return _root(_var(input, dim, unbiased, keepdim, correction))
    # the variance of 16-bit floats may be out of their range
    root = _root(_var(input.to(d.compute), dim, unbiased, keepdim, correction))
    return keeps(root.to(d.to_real()), input, output=True)


@op(autocast="float32")
def prod(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: dtype | None = None
) -> Tensor:
    """Product of all elements, or over one dimension.

    Parameters
    ----------
    dim : int, optional
    keepdim : bool
        Keep the reduced dimension with extent 1.
    dtype : dtype, optional
        Type to multiply in; by default int64 for integers and bools.

    Raises
    ------
    IndexError
        For a ``dim`` that there is not.
    """
    if dtype is not None:
        input = input.to(as_dtype(dtype))
    elif input.dtype.category < 2:
        input = input.to(dt.int64)
    if not input.ndim:
        if dim is not None:
            normalize_dim(dim, 0)
        return input.clone()
    name = "ProdBackward1"
    if dim is None and keepdim:
        return prod(input).reshape((1,) * input.ndim)
    if dim is None:
        input, dim, name = input.reshape(-1), 0, "ProdBackward0"
    dim = normalize_dim(dim, input.ndim)
    recipe = _recipe("prod", input._expr, dim, keepdim)
    return _reduced(name, input, recipe, _prod_vjp, (input,), dim=dim, keepdim=keepdim)


def _prod_vjp(node: Any, g: Tensor) -> Any:
    (x,) = node.saved_values
    g = g if node.keepdim else g.unsqueeze(node.dim)
    if node.observed and not (x == 0).any():
        y = node.result_of(prod(x.detach(), node.dim, node.keepdim))
        y = y if node.keepdim else y.unsqueeze(node.dim)
        return (g * (y / x).conj_physical(),)
    return (g * x._products_of_others(node.dim).conj_physical(),)


@batching(prod)
def _prod_batched(
    level: Batch, f: Any, x: Tensor, dim: int | None = None, keepdim: bool = False, **options: Any
) -> Any:
    if dim is None or not x.ndim:
        return level.wrap(f(level.value(x).reshape((level.size, x.numel())), 1, **options))
    return level.wrap(f(level.value(x), normalize_dim(dim, x.ndim) + 1, keepdim, **options))


@op(autocast={"cuda": "float32"}, whole=True)
def norm(
    input: Tensor,
    p: Any = "fro",
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: dtype | None = None,
) -> Tensor:
    """Vector norm of all elements, or over dimensions; ``p`` is a number, inf or ``"fro"``.

    ``p="nuc"`` is the sum of singular values of a matrix, or of those in two dimensions.

    RuntimeError for integers and bool; IndexError for a dimension that there is not.
    """
    if dtype is not None:
        input = input.to(as_dtype(dtype))
    return _norm_body(input, p, dim, keepdim)


@op(whole=True)
def _norm(input: Tensor, p: Any, dim: Dims, keepdim: bool) -> Tensor:
    """`norm` for ops."""
    if p in ("fro", None):
        p = 2
    elif p == "nuc":
        return input._nuclear_norm(dim, keepdim)
    elif isinstance(p, str):
        raise RuntimeError(f"only valid string values are 'fro' and 'nuc', found {p}")
    d = input._expr.program.dtype
    if d.category < 2:
        raise RuntimeError(
            "linalg.vector_norm: Expected a floating point or complex tensor as input. Got "
            f"{d.type_name}; write x.float().norm()"
        )
    if (p < 0 or p == math.inf) and 0 in input.shape:
        empty = [d for d in normalize_dims(dim, input.ndim) if not input.shape[d]]
        if empty:
            where = (
                "an empty tensor" if dim is None else f"the dimension {empty[0]}, which is empty,"
            )
            raise RuntimeError(
                f"linalg.vector_norm cannot compute the {p} norm on {where} because the operation "
                "does not have an identity"
            )
    if d.category == 3:
        input = input.abs()
        d = input._expr.program.dtype
    if d.compute is not d:  # powers of 16-bit floats are out of their range
        return keeps(_norm(input.to(d.compute), p, dim, keepdim).to(d), input, output=True)
    if p == 2:
        return _root(_sum(input * input, dim, keepdim))
    if p in (math.inf, -math.inf):
        return _extremum("amax" if p > 0 else "amin", input.abs(), dim, keepdim, nan_takes=True)
    if p == 1:
        return keeps(_sum(input.abs(), dim, keepdim), output=True)
    if p == 0:
        one = input.sign() * 0 + 1  # part of the graph, flat
        return _sum(apply(TABLE["where"], input != 0, one, 0.0), dim, keepdim)
    size = input.abs()
    if p > 1:
        return _root(_sum(composes(size**p, input), dim, keepdim), 1.0 / p)
    zero = size.detach() == 0  # the slope of the power is infinite there: no gradient, no tangent
    powers = apply(TABLE["where"], zero, 1.0, size) ** p
    powers = apply(TABLE["where"], zero, 0.0 if p > 0 else math.inf, powers)
    return _root(_sum(powers, dim, keepdim), 1.0 / p)


_norm_body = body_of(_norm)


def _root(total: Tensor, exponent: float = 0.5) -> Tensor:
    """A root, with a gradient of zero at zero."""
    root: Tensor = (_ROOT if exponent > 0 else _POWER)(total, exponent)
    return root


_ROOT, _POWER = binary(TABLE["root"], ""), binary(TABLE["pow"], "")


@op(autocast={"cuda": "float32"})
def logsumexp(input: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """``log(sum(exp(input)))`` over dimensions, without overflow.

    IndexError for a dimension that there is not; RuntimeError for one given twice.

    The result has the shape that `sum` gives it.
    """
    dims = normalize_dims(dim, input.ndim)
    if input.dtype.category < 2:
        input = input.to(dt.get_default_dtype())
    if not input.ndim:
        if input.dtype.is_complex:
            return logsumexp(input.reshape(1), 0)
        return piecewise(input).clone()
    wide = input.dtype.compute
    if wide is not input.dtype:
        total = logsumexp(input.to(wide), dims, keepdim)
        return keeps(total.to(input.dtype), input, output=True)
    if _in_one_kernel(input) or _at_once(input):
        shape = result_shape(input.shape, dims, keepdim)
        if _in_one_kernel(input):
            recipe = recipe_of(input._expr, "logsumexp", dims, shape, None)
            return _reduced(
                "LogsumexpBackward0", input, recipe, _logsumexp_vjp, (input,),
                dims=dims, keepdim=keepdim,
            )  # fmt: skip
        else:
            value = run_quietly(_logsumexp_on_host, input, dims, shape)
        result: Tensor = record(
            "LogsumexpBackward0", value, (input,), _logsumexp_vjp, (input,), input.dtype,
            dims=dims, keepdim=keepdim,
        )  # fmt: skip
        return result
    if 0 in input.shape:
        return sum(input.exp(), dims, keepdim).log()
    sizes = input.detach().real if input.dtype.is_complex else input.detach()
    top = _extremum("amax", sizes, dims, keepdim=True)
    top = apply(TABLE["where"], top.isfinite(), top, 0.0)
    total = sum((input - top).exp(), dims, keepdim=True).log() + top
    if not keepdim:
        total = total.reshape(dropped_shape(tuple(input.shape), dims))
    return keeps(total, input, output=True)


def _logsumexp_on_host(input: Tensor, dims: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    xp = xp_of(input)
    x = input.array.astype(input.dtype.compute.numpy, copy=False)
    top = x.max(axis=dims, keepdims=True)
    top[~xp.isfinite(top)] = 0
    apart = x - top
    value = xp.log(xp.exp(apart, apart).sum(axis=dims, keepdims=True)) + top
    return xp.asarray(value, input.dtype.numpy, order="C").reshape(shape)


def _logsumexp_vjp(node: Any, g: Tensor) -> Any:
    (x,) = node.saved_values
    kept = kept_shape(tuple(x.shape), node.dims)
    if node.observed:
        y = node.result_of(logsumexp(x.detach(), node.dims, node.keepdim)).reshape(kept)
    else:
        y = logsumexp(x, node.dims, keepdim=True)
    return (g.reshape(kept) * (x - y).exp(),)


# --- extrema --------------------------------------------------------------------------------------


@op
def _extremum(
    name: str, input: Tensor, dim: Dims, keepdim: bool, nan_takes: bool = False, title: str = ""
) -> Tensor:
    """Largest or smallest; the gradient is shared evenly by ties.

    ``nan_takes``: NaNs are ties of a NaN; else the gradient is NaN everywhere.
    """
    value = input._expr
    program, shape = value.program, value.shape
    title = title or f"{name.capitalize()}Backward0"
    if not shape or 0 in shape:
        dims = normalize_dims(dim, len(shape))
        if shape:
            _refuse_nothing(name, shape, None if dim in (None, (), []) else dims)
        else:
            result: Tensor = record(
                title, input.detach().clone().array, (input,), _extremum_vjp, (input,),
                program.dtype, dims=dims, name_of_op=name, nan_takes=nan_takes,
            )  # fmt: skip
            return result
    recipe = _recipe(name, value, dim, keepdim)
    return _reduced(
        title, input, recipe, _extremum_vjp, (input,),
        dims=recipe.axes, name_of_op=name, nan_takes=nan_takes,
    )  # fmt: skip


def _extremum_vjp(node: Any, g: Tensor) -> Any:
    x, *best = [t.detach() for t in node.saved_values]
    if not x._expr.program.marks & WRAPPED:
        x._realize()  # computed twice, in two kernels and unrounded, the best might equal none
    shape = kept_shape(tuple(x.shape), node.dims)
    extremum = best[0] if best else _extremum(node.name_of_op, x, node.dims, True)
    same = x == extremum
    if node.nan_takes:
        same = same.logical_or(x.isnan().logical_and(extremum.isnan()))
    hit = same.to(g.dtype.compute)  # which counts more than float16 can
    share = hit / sum(hit, node.dims, keepdim=True)
    return ((share * g.reshape(shape)).to(g.dtype),)


@batching(_extremum)
def _extremum_batched(
    level: Batch, f: Any, name: str, x: Tensor, dim: Dims, keepdim: bool, *rest: Any, **more: Any
) -> Any:
    value, dims, keepdim = _inner(level, x, dim, keepdim)
    return level.wrap(f(name, value, dims, keepdim, *rest, **more))


def _refuse_nothing(
    name: str,
    shape: Sequence[int],
    dims: Sequence[int] | None,
    kind: type[Exception] = RuntimeError,
) -> None:
    """Refuse to choose among no elements; ``kind`` is raised where no dimension was named."""
    if dims is None:
        raise kind(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
            "reduction dim with the 'dim' argument."
        )
    for d in dims:
        if shape[d] == 0:
            raise IndexError(
                f"{name}(): Expected reduction dim {d} to have non-zero size. Got shape "
                f"{list(shape)}"
            )


@op
def amax(input: Tensor, dim: Dims = (), keepdim: bool = False) -> Tensor:
    """Largest element over dimensions; ties share the gradient. Shapes as in `sum`.

    NotImplementedError for complex tensors.
    """
    return _extremum("amax", _in_order("amax", _rounded_later(input)), dim, keepdim)


@op
def amin(input: Tensor, dim: Dims = (), keepdim: bool = False) -> Tensor:
    """Smallest element over dimensions; ties share the gradient. Shapes as in `sum`.

    NotImplementedError for complex tensors.
    """
    return _extremum("amin", _in_order("amin", _rounded_later(input)), dim, keepdim)


def _rounded_later(input: Tensor) -> Tensor:
    """The input; what is computed with pending 16-bit numbers from now on reads them rounded.

    So ``x - x.amax()`` is zero where x has its extremum, which is rounded, and never above.
    """
    expr = input._expr
    d = expr.program.dtype
    if d.compute is not d and not expr.program.marks & WRAPPED:
        if state.task is None:
            mark_computed(expr, itself=True)
        else:  # a pass back computes again what it wants
            input._realize()
    return input


def _in_order(name: str, input: Tensor) -> Tensor:
    """The input, unless its numbers are complex."""
    if input._expr.program.dtype.category == 3:
        raise dt.unimplemented(name, input.dtype)
    return input


@op
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Position of the (first) largest element, int64; of the flat tensor without ``dim``.

    RuntimeError for bool and complex; IndexError for a ``dim`` that there is not.
    """
    return _checked_position("argmax", input, dim, keepdim)


@op
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Position of the (first) smallest element, int64; of the flat tensor without ``dim``.

    RuntimeError for bool and complex; IndexError for a ``dim`` that there is not.
    """
    return _checked_position("argmin", input, dim, keepdim)


def _checked_position(name: str, input: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    d = input._expr.program.dtype
    if d is dt.bool or d.category == 3:
        kind = "bool" if d is dt.bool else "complex"
        raise RuntimeError(f"{name}(): does not support {kind} input; convert it with .int()")
    return _position(name, input, dim, keepdim)


@op
def _position(name: str, input: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    shape, where = input._expr.shape, input._expr.program.device
    axis = None if dim is None else normalize_dim(dim, len(shape))
    if 0 in shape:
        axes = None if axis is None else (axis,)
        _refuse_nothing(name, shape, axes, IndexError)
    if shape and costs_of(where).reduces_states:
        if input.dtype.itemsize == 2 and not open_levels:
            input._realize()  # the first of equals is so after rounding
        places = _started(input, _recipe(name, input._expr, axis, keepdim))
        places = places if type(places) is Pending else places[0]
        position: Tensor = record(name, places, (input.detach(),), _nothing)
        return position
    x, xp = input.array, backend(where).xp
    if axis is not None and not shape:
        x = x.reshape(1)
        keepdim = False
    array = getattr(xp, name)(x, axis=axis, keepdims=keepdim)
    return from_array(xp.asarray(array, dtype="int64"), dt.int64, where)


@batching(_position)
def _position_batched(
    level: Batch, f: Any, name: str, x: Tensor, dim: int | None, keepdim: bool
) -> Any:
    if dim is None or not x.ndim:
        positions = f(name, level.value(x).reshape((level.size, x.numel())), 1, False)
        kept = [1] if keepdim and x.ndim else []  # one for all, as in PyTorch
        return level.wrap(positions.reshape((level.size, *kept)))
    return level.wrap(f(name, level.value(x), normalize_dim(dim, x.ndim) + 1, keepdim))


def _nothing(node: Any, *cotangents: Tensor) -> Any:
    return (None,)


@op
def max(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """Largest element of all, with indices along ``dim``, or elementwise with another tensor.

    NotImplementedError for complex tensors; IndexError for a ``dim`` that there is not;
    RuntimeError for an empty tensor without ``dim``.
    """
    return _max_or_min("max", input, dim, keepdim)


@op
def min(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """Smallest element of all, with indices along ``dim``, or elementwise with another tensor.

    NotImplementedError for complex tensors; IndexError for a ``dim`` that there is not;
    RuntimeError for an empty tensor without ``dim``.
    """
    return _max_or_min("min", input, dim, keepdim)


def _max_or_min(name: str, input: Tensor, dim: Any, keepdim: bool) -> Any:
    if isinstance(dim, Tensor):
        require_tensor(name, "input", 1, input)
        return apply(TABLE[f"{name}imum"], input, dim)
    shape = _in_order(name, input)._expr.shape
    if 0 in shape:
        axes = None if dim is None else (normalize_dim(dim, len(shape)),)
        _refuse_nothing(name, shape, axes)
    if dim is None:
        title = f"{name.capitalize()}Backward1"
        whole = _rounded_later(input)
        return _extremum(f"a{name}", whole, None, keepdim, nan_takes=True, title=title)
    dim = normalize_dim(dim, len(shape))
    if not shape:
        return values_and_indices(name, input.clone(), _position("argmax", input, None, False))
    where = _position(f"arg{name}", input, dim, True)
    return input._values_at(dim, where, keepdim, f"{name.capitalize()}Backward0")


# --- medians --------------------------------------------------------------------------------------


@op
def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of all elements, with indices along ``dim``; NaN where there is one.

    Of all elements, ties share the gradient; along a dimension it goes to the element at
    ``indices``.

    NotImplementedError for bool and complex; IndexError for an empty dimension.
    """
    return _median(input, dim, keepdim, ignore_nan=False)


@op
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """`median` of the elements that are not NaN.

    NotImplementedError for bool and complex; IndexError for an empty dimension.
    """
    return _median(input, dim, keepdim, ignore_nan=True)


PARTITIONED = ("float32", "float64", "int32", "int64")


@op
def _median(input: Tensor, dim: int | None, keepdim: bool, ignore_nan: bool) -> Any:
    if input.dtype is dt.bool or input.dtype.is_complex:
        raise dt.unimplemented("median", input.dtype)
    if dim is None and keepdim:
        return _median(input, None, False, ignore_nan).reshape((1,) * input.ndim)
    if dim is None:
        flat = input.reshape(-1)
        if not flat.numel():
            return input.new_full((), _of_nothing(input.dtype))
        name = "NanmedianBackward0" if ignore_nan else "MedianBackward0"
        return _shared_by_ties(name, flat, _median_of_all(flat.detach(), ignore_nan))
    dim = normalize_dim(dim, input.ndim)
    name = "NanmedianBackward1" if ignore_nan else "MedianBackward1"
    if not input.ndim:
        return values_and_indices(name, input.clone(), _position("argmax", input, None, False))
    if not input.shape[dim]:
        raise IndexError(
            f"median(): Expected reduction dim {dim} to have non-zero size. Got shape "
            f"{list(input.shape)}"
        )
    xp, array = xp_of(input), input.detach().array
    order = backend(input.device).argsort(array, dim)  # NaNs last
    count = xp.full((), array.shape[dim])
    missing = xp.isnan(array).sum(axis=dim, keepdims=True)
    if ignore_nan:
        position = xp.maximum(count - missing - 1, 0) // 2
    else:
        position = xp.where(missing > 0, count - missing, (count - 1) // 2)
    indices = xp.take_along_axis(order, position.astype("int64"), dim)
    where = from_array(indices.astype("int64"), dt.int64, input.device)
    return input._values_at(dim, where, keepdim, name)


@batching(_median)
def _median_batched(
    level: Batch, f: Any, x: Tensor, dim: int | None, keepdim: bool, ignore_nan: bool
) -> Any:
    if not level.size and dim is None:
        shape = (0, *[1] * (x.ndim if keepdim else 0))
        nothing = level.value(x).reshape((0, x.numel())).sum(1, dtype=x.dtype)
        return level.wrap(nothing.reshape(shape))
    if dim is None or not x.ndim:
        return NotImplemented
    axis = normalize_dim(dim, x.ndim) + 1
    return level.wrap_all(f(level.value(x), axis, keepdim, ignore_nan))


def _median_of_all(flat: Tensor, ignore_nan: bool) -> Tensor:
    """Without its place; NumPy finds it without sorting the others."""
    if flat.device.type != "cpu" or flat.dtype.name not in PARTITIONED or not flat.numel():
        values: Tensor = _median(flat, 0, False, ignore_nan)[0]
        return values
    xp, array = xp_of(flat), flat.array
    missing = int(xp.count_nonzero(array != array))
    if (missing and not ignore_nan) or missing == array.size:
        return flat.new_full((), math.nan)
    position = (array.size - missing - 1) // 2
    value = xp.partition(array, position)[position : position + 1].reshape(())
    return from_array(value, flat.dtype, flat.device)


def _of_nothing(d: dtype) -> float:
    """What the median of no elements is in PyTorch."""
    return math.nan if d.category > 1 else -(1 << (8 * d.itemsize - 1)) if d.is_signed else 0


def _shared_by_ties(name: str, flat: Tensor, value: Tensor) -> Tensor:
    result: Tensor = record(
        name, value.array, (flat,), _extremum_vjp, (flat, value), flat.dtype,
        dims=(0,), nan_takes=True,
    )  # fmt: skip
    return result


# --- truth ----------------------------------------------------------------------------------------


@op
def all(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether all elements are true, or those over dimensions; shapes and errors as in `sum`."""
    return _truth("all", input, dim, keepdim)


@op
def any(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether any element is true, or one over dimensions; shapes and errors as in `sum`."""
    return _truth("any", input, dim, keepdim)


@op
def _truth(name: str, input: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    d = input._expr.program.dtype
    if d is not dt.bool or open_levels:
        input = input.detach()
    truth = input if d is dt.bool else input != 0
    if not input._expr.shape or dim in ((), []):
        normalize_dims(dim, input.ndim)
        result = truth.clone()
    else:
        result = _reduced(name, truth, _recipe(name, truth._expr, dim, keepdim), _nothing)
    return result.to(d) if d is dt.uint8 else result  # as in PyTorch


@batching(_truth)
def _truth_batched(level: Batch, f: Any, name: str, x: Tensor, dim: Dims, keepdim: bool) -> Any:
    if dim in ((), []):
        return level.wrap(f(name, level.value(x), (), keepdim))
    return level.wrap(f(name, *_inner(level, x, dim, keepdim)))


@op
def count_nonzero(input: Tensor, dim: Dims = None) -> Tensor:
    """How many elements are not zero."""
    return sum(input != 0, dim)


_OPS: tuple[Any, ...] = (
    sum, mean, var, std, prod, norm, logsumexp, amax, amin, argmax, argmin, max, min, median,
    nanmedian, all, any, count_nonzero,
)  # fmt: skip
METHODS = tuple([public(op) for op in _OPS])
attach(Tensor, *METHODS, _sum_to_shape=sum_to_shape)
attach(Tensor, count_nonzero=guarded(one_by_one(count_nonzero)))

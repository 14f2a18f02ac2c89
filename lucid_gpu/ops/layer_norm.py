"""Layer normalization and root mean square normalization: rows and their statistics.

One op, whose gradients of input, weight and bias come from one pass over the rows.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import ml_dtypes

from lucid_gpu.core.engine import adding
from lucid_gpu.core.program import Program, load_program, loads_of, when_forgotten
from lucid_gpu.core.value import Like
from lucid_gpu.dtypes import dtype, unimplemented
from lucid_gpu.fusion.building import one_device
from lucid_gpu.kernels import layer_norm as kernels
from lucid_gpu.kernels.layer_norm import Wanted
from lucid_gpu.ops.arguments import as_float, extents, require_parameter_types, require_tensor
from lucid_gpu.ops.laying import lay
from lucid_gpu.ops.memory_formats import channels_order
from lucid_gpu.ops.normalization import moments
from lucid_gpu.ops.record import leads_back, record, saves_for
from lucid_gpu.ops.reductions import arguments_of
from lucid_gpu.tape.door import op
from lucid_gpu.tape.levels import open_levels
from lucid_gpu.tape.modes import state
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import Tensor, of_kept

__all__ = ["layer_norm", "rms_norm"]


@op(autocast={"cuda": "float32"})
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize over the last dimensions, then scale and shift.

    Parameters
    ----------
    input : Tensor, shape (*, *normalized_shape)
    normalized_shape : sequence of int
    weight, bias : Tensor, shape normalized_shape, optional
    eps : float

    Returns
    -------
    Tensor, of input's shape and dtype; 16-bit floats are computed in float32

    Raises
    ------
    RuntimeError
        For shapes that do not fit together.
    TypeError, NotImplementedError
        For a ``normalized_shape`` that is not a sequence, an ``eps`` that is no number, and for
        integers.
    """
    return _normalized("layer_norm", input, normalized_shape, weight, bias, eps)


@op(autocast={"cuda": "float32"})
def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Divide by the root of the mean square over the last dimensions, then scale.

    Parameters
    ----------
    input : Tensor, shape (*, *normalized_shape)
    normalized_shape : sequence of int
    weight : Tensor, shape normalized_shape, optional
    eps : float, optional
        Added to the mean square; by default that of the type computed in: 16-bit floats take
        float32's, as PyTorch does.

    Returns
    -------
    Tensor, of input's shape and dtype; 16-bit floats are computed in float32

    Raises
    ------
    RuntimeError
        For shapes that do not fit together.
    TypeError, NotImplementedError
        For a ``normalized_shape`` that is not a sequence, and for integers.
    """
    return _normalized("rms_norm", input, normalized_shape, weight, None, eps)


@batching(layer_norm, rms_norm)
def _norms_batched(level: Batch, f: Any, *args: Any, **named: Any) -> Any:
    given = arguments_of(f, args, named)
    x, weight, bias = given.pop("input"), given["weight"], given.get("bias")
    if level.holds(x) and not (level.holds(weight) or level.holds(bias)):
        return level.wrap(f(level.value(x), **given))
    y = f(level.value(x), **{k: None if k in ("weight", "bias") else v for k, v in given.items()})
    y = level.wrap(y) if level.holds(x) else y
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


class _Plan(NamedTuple):
    """What follows from the programs of the operands: checked and looked up once.

    Attributes
    ----------
    name : str
        Of the node.
    rms, has_weight, has_bias : bool
    shape : tuple of int
        Of a row.
    columns : int
        Its elements.
    groups : bool
        Whether rows are no dimensions of the input.
    by_rows : bool
        Whether kernels of rows compute it.
    results : pair of Program
        Of a result that is not recorded, and of one that is.
    statistics, gradient, of_weight : Program
        Of what is known of each row, of the input's gradient, and of the weight's and the bias's.
    needs_grad : bool
        Whether the input's gradient is asked for.
    """

    name: str
    rms: bool
    has_weight: bool
    has_bias: bool
    shape: tuple[int, ...]
    columns: int
    groups: bool
    by_rows: bool
    results: tuple[Program, Program]
    statistics: Program
    gradient: Program
    of_weight: Program
    needs_grad: bool


@functools.lru_cache(maxsize=1024)
def _plan(
    name: str,
    input: Program,
    shape: tuple[int, ...],
    weight: tuple[Program, tuple[int, ...]] | None,
    bias: tuple[Program, tuple[int, ...]] | None,
    size: tuple[int, ...],
) -> _Plan:
    """The plan of rows of a shape in values of a size; raises for all that can be wrong."""
    parameters = [Like(*pair) for pair in (weight, bias) if pair is not None]
    others = [p.program for p in parameters]
    if any(p.device is not input.device for p in others):
        one_device(name, [Like(input, size), *parameters])
    if not shape:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one "
            "element, but got normalized_shape = []"
        )
    d, where = input.dtype, input.device
    if d.category < 2:
        raise unimplemented(name, d)
    if size[-len(shape) :] != shape:
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape "
            f"[*{''.join(f', {n}' for n in shape)}], but got input of size{list(size)}"
        )
    for role, pair in (("weight", weight), ("bias", bias)):
        if pair is not None and pair[1] != shape:
            raise RuntimeError(
                f"Expected {role} to be of same shape as normalized_shape, but got {role} of shape "
                f"{list(pair[1])} and normalized_shape = {list(shape)}"
            )
    rms = name == "rms_norm"
    if not rms:
        require_parameter_types(d, [p.dtype for p in others])
    rows = prod(size[: -len(shape)])
    return _Plan(
        "FusedRmsNormBackward0" if rms else "NativeLayerNormBackward0",
        rms,
        weight is not None,
        bias is not None,
        shape,
        prod(shape),
        False,
        d.is_floating_point and 0 not in shape and all(p.dtype is d for p in others),
        loads_of(input),
        load_program(d.compute, (2 - rms, rows, 1), False, False, where),
        load_program(d, size, False, False, where),
        load_program(d, shape, False, False, where),
        bool(input.needs_grad),
    )


when_forgotten.append(_plan.cache_clear)


def _normalized(
    name: str,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float | None,
) -> Tensor:
    if type(input) is not Tensor:
        require_tensor(name, "input", 1, input)
    if not isinstance(normalized_shape, (tuple, Sequence)):  # of a tuple the second costs much
        raise TypeError(
            f"{name}(): argument 'normalized_shape' (position 2) must be tuple of ints, not "
            f"{type(normalized_shape).__name__}"
        )
    program, shape = input._expr.program, tuple(normalized_shape)
    for n in shape:
        if type(n) is not int:
            shape = extents(name, (shape,))
            break
    of_weight = None if weight is None else (weight._expr.program, weight._expr.shape)
    of_bias = None if bias is None else (bias._expr.program, bias._expr.shape)
    plan = _plan(name, program, shape, of_weight, of_bias, input._expr.shape)
    d, rms = program.dtype, plan.rms
    if eps is None and rms:
        eps = _least(d.compute)
    elif type(eps) is not float:
        eps = as_float(name, "eps", 4 if rms else 5, eps)
    if plan.by_rows:
        return _by_rows(plan, input, weight, bias, eps)
    if not d.is_floating_point or d.compute is d:
        result = _composed(input, shape, weight, bias, eps, rms)
        return result if result.dtype is d else result.to(d)
    wide = [None if t is None else t.to(d.compute) for t in (input, weight, bias)]
    assert wide[0] is not None
    return _composed(wide[0], shape, wide[1], wide[2], eps, rms).to(d)


@functools.cache
def _least(d: dtype) -> float:
    """The step of a type above one."""
    return float(ml_dtypes.finfo(d.numpy).eps)


@op
def _normalized_groups(input: Tensor, groups: int, eps: float) -> Tensor:
    """`layer_norm` of so many rows of elements that follow each other, which there are."""
    plan = _plan_of_groups(input._expr.program, groups, input._expr.shape)
    if plan.by_rows:
        return _by_rows(plan, input, None, None, eps)
    rows = input.reshape(groups, plan.columns)
    return _composed(rows, plan.shape, None, None, eps, False).reshape(input._expr.shape)


@batching(_normalized_groups)
def _groups_batched(level: Batch, f: Any, x: Tensor, groups: int, eps: float) -> Any:
    values = level.value(x)
    return level.wrap(f(values, groups * values.shape[0], eps))


@functools.lru_cache(maxsize=1024)
def _plan_of_groups(input: Program, groups: int, size: tuple[int, ...]) -> _Plan:
    columns = prod(size) // groups
    rows = load_program(input.dtype, (groups, columns), False, input.needs_grad, input.device)
    plan = _plan("layer_norm", rows, (columns,), None, None, (groups, columns))
    return plan._replace(
        name="NativeGroupNormBackward0",
        groups=True,
        results=loads_of(input),
        gradient=loads_of(input)[0],
    )


when_forgotten.append(_plan_of_groups.cache_clear)


def _by_rows(
    plan: _Plan, input: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """All of it as one op."""
    x = input.array
    w = None if weight is None else weight.array
    b = None if bias is None else bias.array
    y, statistics = kernels.normalized(x, w, b, eps, plan.rms, plan.columns)
    saved: tuple[Tensor | None, ...] = ()
    if state.grad or open_levels:
        saved = (input, weight, of_kept(plan.statistics, statistics))
    inputs = [input]
    if weight is not None:
        inputs.append(weight)
    if bias is not None:
        inputs.append(bias)
    adds = plan.needs_grad and kernels.adds_earlier(plan.gradient.device)
    result: Tensor = record(
        plan.name,
        y,
        inputs,
        _gradients,
        saved,
        results=plan.results,
        look_around=adding if adds else None,
        gives_new=True,
        plan=plan,
        eps=eps,
    )
    if plan.rms and not x.flags.c_contiguous:  # in PyTorch elementwise ops
        result = leads_back(lay(result, channels_order(input)), channels_order)
    if plan.rms and weight is not None:  # in PyTorch several ops
        saves_for(result, {0: (0,), 1: (0, 1) if plan.needs_grad else ()})
    return result


def _gradients(node: Any, g: Tensor) -> list[Tensor | None]:
    x, w, known = node.saved_values
    plan, shape = node.plan, g._expr.shape
    wanted = _wanted(node.needs_input_grad, plan.has_weight, plan.has_bias)
    if state.grad or open_levels:
        if plan.groups:
            x, g = x.reshape(-1, plan.columns), g.reshape(-1, plan.columns)
        dx, dw, db = _recorded_gradients(x, g, w, plan.shape, node.eps, plan.rms, wanted)
        if plan.groups and dx is not None:
            dx = dx.reshape(shape)
    else:
        earlier = node.earlier
        if earlier is not None:
            earlier, node.earlier = earlier.array, None
        dx, dw, db = kernels.gradients(
            x.array,
            g.array,
            None if w is None else w.array,
            known.array,
            wanted,
            earlier,
            plan.columns,
        )
        flat = plan.shape == (plan.columns,)
        if dx is not None:
            dx = of_kept(plan.gradient, dx)
        if dw is not None:
            dw = of_kept(plan.of_weight, dw if flat else dw.reshape(plan.shape))
        if db is not None:
            db = of_kept(plan.of_weight, db if flat else db.reshape(plan.shape))
    gradients = [dx]
    if plan.has_weight:
        gradients.append(dw)
    if plan.has_bias:
        gradients.append(db)
    return gradients


@functools.lru_cache(maxsize=64)
def _wanted(needs: tuple[bool, ...], has_weight: bool, has_bias: bool) -> Wanted:
    """Which gradients are asked for, of what each input needs."""
    return Wanted(needs[0], has_weight and needs[1], has_bias and needs[-1])


def _recorded_gradients(
    x: Tensor,
    g: Tensor,
    weight: Tensor | None,
    shape: tuple[int, ...],
    eps: float,
    rms: bool,
    wanted: Wanted,
) -> list[Tensor | None]:
    """The gradients written with tensor ops."""
    dims = tuple(range(-len(shape), 0))
    n, rstd = _standardized(x, dims, eps, rms)
    h = g if weight is None else g * weight
    dx = h - n * (h * n).mean(dims, keepdim=True)
    if not rms:
        dx = dx - h.mean(dims, keepdim=True)
    lead = tuple(range(x.ndim - len(shape)))

    def summed(t: Tensor) -> Tensor:
        return t.sum(lead) if lead else t.alias()  # writes to it leave the cotangent alone

    return [
        dx * rstd if wanted.x else None,
        summed(g * n) if wanted.weight else None,
        summed(g) if wanted.bias else None,
    ]


def _standardized(x: Tensor, dims: Sequence[int], eps: float, rms: bool) -> tuple[Tensor, Tensor]:
    if rms:
        rstd = (x.square().mean(dims, keepdim=True) + eps).rsqrt()
        return x * rstd, rstd
    mean, variance = moments(x, dims)
    rstd = (variance + eps).rsqrt()
    return (x - mean) * rstd, rstd


def _composed(
    input: Tensor,
    shape: tuple[int, ...],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    rms: bool,
) -> Tensor:
    y, _ = _standardized(input, range(-len(shape), 0), eps, rms)
    if weight is not None:
        y = y * weight
    return y if bias is None else y + bias

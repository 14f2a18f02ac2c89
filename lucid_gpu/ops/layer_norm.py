"""Layer normalization and root mean square normalization: rows and their statistics.

One op, whose gradients of input, weight and bias come from one pass over the rows.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import ml_dtypes

from lucid_gpu.devices import capturing
from lucid_gpu.devices.copies import reshaped
from lucid_gpu.dtypes import dtype
from lucid_gpu.fusion.expression import of_row_major, one_device
from lucid_gpu.fusion.program import Program, load_program, when_forgotten
from lucid_gpu.kernels import layer_norm as kernels
from lucid_gpu.kernels.layer_norm import Wanted
from lucid_gpu.ops.arguments import as_float, require_tensor
from lucid_gpu.ops.normalization import moments
from lucid_gpu.ops.record import record, saves_for
from lucid_gpu.tape.door import op
from lucid_gpu.tape.engine import adding
from lucid_gpu.tape.levels import open_levels
from lucid_gpu.tape.modes import state
from lucid_gpu.tape.rules import Batch, batching
from lucid_gpu.tensor import Tensor, _tensor

__all__ = ["layer_norm", "rms_norm"]

_NAMES = {False: "NativeLayerNormBackward0", True: "FusedRmsNormBackward0"}


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


@batching(layer_norm)
def _layer_norm_batched(
    level: Batch,
    f: Any,
    x: Tensor,
    shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    if not level.holds(x):
        y = f(x, shape, None, None, eps)
    elif level.holds(weight) or level.holds(bias):
        y = level.wrap(f(level.value(x), shape, None, None, eps))
    else:
        return level.wrap(f(level.value(x), shape, weight, bias, eps))
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


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


@batching(rms_norm)
def _rms_norm_batched(
    level: Batch,
    f: Any,
    x: Tensor,
    shape: Any,
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Any:
    if not level.holds(x):
        y = f(x, shape, None, eps)
    elif level.holds(weight):
        y = level.wrap(f(level.value(x), shape, None, eps))
    else:
        return level.wrap(f(level.value(x), shape, weight, eps))
    return y if weight is None else y * weight


class _Plan(NamedTuple):
    """What follows from the programs of the operands: checked and looked up once.

    Attributes
    ----------
    columns : int
    by_rows : bool
        Whether kernels of rows compute it.
    seen : bool
        Whether the input is rows as it is, and weight and bias are vectors.
    statistics, gradient, of_weight : Program
        Of the mean of each row, of the input's gradient, and of the weight's and the bias's.
    """

    columns: int
    by_rows: bool
    seen: bool
    statistics: Program
    gradient: Program
    of_weight: Program


@functools.lru_cache(maxsize=1024)
def _plan(
    name: str,
    input: Program,
    shape: tuple[int, ...],
    weight: Program | None,
    bias: Program | None,
) -> _Plan:
    """The plan of rows of a shape; raises for all that can be wrong."""
    others = [p for p in (weight, bias) if p is not None]
    if any(p.device is not input.device for p in others):
        one_device(name, [input, *others])
    if not shape:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one "
            "element, but got normalized_shape = []"
        )
    d, where = input.dtype, input.device
    if d.category < 2:
        raise NotImplementedError(f'"{name}" not implemented for {d.name}')
    if input.shape[-len(shape) :] != shape:
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape "
            f"[*{''.join(f', {n}' for n in shape)}], but got input of size{list(input.shape)}"
        )
    for role, p in (("weight", weight), ("bias", bias)):
        if p is not None and p.shape != shape:
            raise RuntimeError(
                f"Expected {role} to be of same shape as normalized_shape, but got {role} of shape "
                f"{list(p.shape)} and normalized_shape = {list(shape)}"
            )
    return _Plan(
        prod(shape),
        d.is_floating_point and 0 not in shape and all(p.dtype is d for p in others),
        len(shape) == 1 and len(input.shape) == 2,
        load_program(d.compute, (prod(input.shape[: -len(shape)]), 1), None, False, where),
        load_program(d, input.shape, None, False, where),
        load_program(d, shape, None, False, where),
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
    of_weight = None if weight is None else weight._expr.program
    plan = _plan(name, program, shape, of_weight, None if bias is None else bias._expr.program)
    d, rms = program.dtype, name == "rms_norm"
    if eps is None and rms:
        eps = _least(d.compute)
    elif type(eps) is not float:
        eps = as_float(name, "eps", 4 if rms else 5, eps)
    if plan.by_rows:
        return _by_rows(plan, input, shape, weight, bias, eps, rms)
    if not d.is_floating_point or d.compute is d:
        return _composed(input, shape, weight, bias, eps, rms)
    wide = [None if t is None else t.to(d.compute) for t in (input, weight, bias)]
    assert wide[0] is not None
    return _composed(wide[0], shape, wide[1], wide[2], eps, rms).to(d)


@functools.cache
def _least(d: dtype) -> float:
    """The step of a type above one."""
    return float(ml_dtypes.finfo(d.numpy).eps)


def _by_rows(
    plan: _Plan,
    input: Tensor,
    shape: tuple[int, ...],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    rms: bool,
) -> Tensor:
    """All of it as one op."""
    columns, seen = plan.columns, plan.seen
    x, w, b = input.array, _array(weight), _array(bias)
    if not seen:
        x, w, b = _rows(x, columns), _flat(w), _flat(b)
    y, (mean, rstd) = kernels.normalized(x, w, b, eps, rms)
    statistics = [
        None if a is None else _tensor(of_row_major(plan.statistics, a)) for a in (mean, rstd)
    ]
    inputs = [t for t in (input, weight, bias) if t is not None]

    def vjp(node: Any, g: Tensor) -> list[Tensor | None]:
        x, w, mean, rstd = node.saved_tensors
        wanted = _wanted(node.needs_input_grad, w is not None, has_bias)
        if state.grad or open_levels:
            gradients = _recorded_gradients(x, g, w, shape, eps, rms, wanted)
        else:
            known = _array(mean), rstd.array
            rows, cotangents, scale = x.array, g.array, _array(w)
            if not seen:
                rows, cotangents = _rows(rows, columns), _rows(cotangents, columns)
                scale = _flat(scale)
            earlier = node.earlier
            if earlier is not None:
                earlier, node.earlier = _rows(earlier.array, columns), None
            dx, dw, db = kernels.gradients(rows, cotangents, scale, known, wanted, earlier)
            if not seen:
                dx, dw, db = (
                    None if a is None else a.reshape(size)
                    for a, size in ((dx, plan.gradient.shape), (dw, shape), (db, shape))
                )
            gradients = [
                None if dx is None else _tensor(of_row_major(plan.gradient, dx)),
                None if dw is None else _tensor(of_row_major(plan.of_weight, dw)),
                None if db is None else _tensor(of_row_major(plan.of_weight, db)),
            ]
        if not has_bias:
            del gradients[2]
        if w is None:
            del gradients[1]
        return gradients

    has_bias = bias is not None
    program = plan.gradient
    saved = (input, weight, *statistics)
    needs_grad = input._expr.program.needs_grad
    adds = needs_grad and kernels.adds_earlier(program.device)
    if not seen:
        y = y.reshape(program.shape)
    look_around = adding if adds else None
    d = program.dtype
    result: Tensor = record(_NAMES[rms], y, inputs, vjp, saved, d, look_around=look_around)
    if rms and weight is not None:  # in PyTorch several ops
        saves_for(result, {0: (0,), 1: (0, 1) if needs_grad else ()})
    return result


def _rows(array: Any, columns: int) -> Any:
    if capturing.recorder is None:
        return array.reshape(-1, columns)
    return reshaped(array, (-1, columns))


@functools.lru_cache(maxsize=64)
def _wanted(needs: tuple[bool, ...], has_weight: bool, has_bias: bool) -> Wanted:
    """Which gradients are asked for, of what each input needs."""
    return Wanted(needs[0], has_weight and needs[1], has_bias and needs[-1])


def _array(t: Tensor | None) -> Any:
    return None if t is None else t.array


def _flat(array: Any) -> Any:
    return None if array is None else array.reshape(-1)


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
        return t.sum(lead) if lead else t

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

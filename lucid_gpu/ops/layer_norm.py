"""Layer normalization and root mean square normalization: rows and their statistics.

One op, whose gradients of input, weight and bias come from one pass over the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import ml_dtypes

from lucid_gpu.devices import capturing
from lucid_gpu.devices.copies import reshaped
from lucid_gpu.devices.threads import run_quietly
from lucid_gpu.fusion.expression import of_array
from lucid_gpu.kernels import layer_norm as kernels
from lucid_gpu.kernels.layer_norm import Statistics, Wanted
from lucid_gpu.ops.arguments import as_float, require_one_device, require_tensor
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
    if type(eps) is not float:
        eps = as_float("layer_norm", "eps", 5, eps)
    shape = _checked("layer_norm", input, normalized_shape, weight, bias)
    return _normalized(input, shape, weight, bias, eps, False)


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
    shape = _checked("rms_norm", input, normalized_shape, weight, None)
    if eps is None:
        eps = float(ml_dtypes.finfo(input.dtype.compute.numpy).eps)
    elif type(eps) is not float:
        eps = as_float("rms_norm", "eps", 4, eps)
    return _normalized(input, shape, weight, None, eps, True)


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


def _checked(
    name: str,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
) -> tuple[int, ...]:
    """The shape of the rows, after all that can be wrong."""
    require_tensor(name, "input", 1, input)
    require_one_device(name, input, weight, bias)
    if not isinstance(normalized_shape, (tuple, Sequence)):  # of a tuple the second costs much
        raise TypeError(
            f"{name}(): argument 'normalized_shape' (position 2) must be tuple of ints, not "
            f"{type(normalized_shape).__name__}"
        )
    shape = tuple(normalized_shape)
    if not shape:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one "
            "element, but got normalized_shape = []"
        )
    program = input._expr.program
    if program.dtype.category < 2:
        raise NotImplementedError(f'"{name}" not implemented for {input.dtype.name}')
    if program.shape[-len(shape) :] != shape:
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape "
            f"[*{''.join(f', {n}' for n in shape)}], but got input of size{list(input.shape)}"
        )
    for role, t in (("weight", weight), ("bias", bias)):
        if t is not None and t._expr.program.shape != shape:
            raise RuntimeError(
                f"Expected {role} to be of same shape as normalized_shape, but got {role} of shape "
                f"{list(t.shape)} and normalized_shape = {list(shape)}"
            )
    return shape


def _normalized(
    input: Tensor,
    shape: tuple[int, ...],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    rms: bool,
) -> Tensor:
    d = input._expr.program.dtype
    others = [t for t in (weight, bias) if t is not None and t._expr.program.dtype is not d]
    if not others and d.is_floating_point and 0 not in shape:
        return _by_rows(input, shape, weight, bias, eps, rms)
    if not d.is_floating_point or d.compute is d:
        return _composed(input, shape, weight, bias, eps, rms)
    wide = [None if t is None else t.to(d.compute) for t in (input, weight, bias)]
    assert wide[0] is not None
    return _composed(wide[0], shape, wide[1], wide[2], eps, rms).to(d)


def _by_rows(
    input: Tensor,
    shape: tuple[int, ...],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    rms: bool,
) -> Tensor:
    """All of it as one op."""
    columns, program = prod(shape), input._expr.program
    where, d = program.device, program.dtype
    w, b = _flat(weight), _flat(bias)
    y, known = run_quietly(kernels.normalized, _rows(input.array, columns), w, b, eps, rms)
    wide = d.compute
    statistics = [None if a is None else _tensor(of_array(a, wide, where)) for a in known]
    inputs = [t for t in (input, weight, bias) if t is not None]

    def vjp(node: Any, g: Tensor) -> list[Tensor | None]:
        x, w, mean, rstd = node.saved_tensors
        needs = node.needs_input_grad
        wanted = Wanted(needs[0], w is not None and needs[1], has_bias and needs[-1])
        if state.grad or open_levels:
            gradients = _recorded_gradients(x, g, w, shape, eps, rms, wanted)
        else:
            known = Statistics(None if mean is None else mean.array, rstd.array)
            rows, cotangents = _rows(x.array, columns), _rows(g.array, columns)
            arguments: tuple[Any, ...] = (rows, cotangents, _flat(w), known, wanted)
            if node.earlier is not None:
                arguments = (*arguments, _rows(node.earlier.array, columns))
                node.earlier = None
            dx, dw, db = run_quietly(kernels.gradients, *arguments)
            gradients = [
                None if a is None else _tensor(of_array(_shaped(a, size), d, where))
                for a, size in ((dx, program.shape), (dw, shape), (db, shape))
            ]
        if not has_bias:
            del gradients[2]
        if w is None:
            del gradients[1]
        return gradients

    has_bias = bias is not None
    saved = (input, weight, *statistics)
    look_around = adding if program.needs_grad and kernels.adds_earlier(where) else None
    y = _shaped(y, program.shape)
    result: Tensor = record(_NAMES[rms], y, inputs, vjp, saved, d, look_around=look_around)
    if rms and weight is not None:  # in PyTorch several ops
        saves_for(result, {0: (0,), 1: (0, 1) if program.needs_grad else ()})
    return result


def _rows(array: Any, columns: int) -> Any:
    if array.shape[1:] == (columns,):
        return array
    if capturing.recorder is None:
        return array.reshape(-1, columns)
    return reshaped(array, (-1, columns))


def _shaped(array: Any, shape: tuple[int, ...]) -> Any:
    """An array seen in a shape; `reshape` costs microseconds on a GPU where nothing changes too."""
    return array if array.shape == shape else array.reshape(shape)


def _flat(t: Tensor | None) -> Any:
    if t is None:
        return None
    array = t.array
    return array if array.ndim == 1 else array.reshape(-1)


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

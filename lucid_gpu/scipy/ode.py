"""Derivatives of ordinary differential equations: by adjoint equations, or through the steps.

Pontryagin et al., "The Mathematical Theory of Optimal Processes", 1962; Chen et al., "Neural
Ordinary Differential Equations", 2018, appendix B: the adjoint is integrated backward from one
time to the one before together with the state, which begins there at what went forward.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu.func.forward import jvp as pushed
from lucid_gpu.numpy.operands import as_tensor
from lucid_gpu.ops.creation import tensor, zeros
from lucid_gpu.ops.record import full_tangents, record
from lucid_gpu.ops.shape import cat, stack
from lucid_gpu.scipy.callbacks import called_with_arrays, driven, on_host, one_by_one, pulled_by
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import Call, batching, jvp
from lucid_gpu.tensor import Tensor
from lucid_gpu.utils.checkpoint import checkpoint

Slope = Callable[..., Tensor]


class Flow(NamedTuple):
    """An equation ``dy/dt = slope(t, y, *tensors)``.

    Attributes
    ----------
    name : str
        Of the function that solves it.
    slope : callable
    solve : callable
        From a function of arrays, the first state, `times` and `end` to the states at `times`.
    times : array
        The first is that of the first state.
    end : float
        How far the solver goes.
    """

    name: str
    slope: Slope
    solve: Callable[..., Any]
    times: Any
    end: float


def slope_of(name: str, function: Callable[..., Any], put: Callable[[Any], Any]) -> Slope:
    """Return the user's function as one of tensors, its result checked; it may return a list."""

    def slope(t: Tensor, y: Tensor, *tensors: Tensor) -> Tensor:
        found = as_tensor(function(t, y, *put(tensors)), y)
        if found.shape != y.shape or found.dtype.is_complex:
            raise ValueError(
                f"scipy.{name}: the function must return real slopes of shape {tuple(y.shape)}, as "
                f"the state; it returned {found.dtype} of shape {tuple(found.shape)}"
            )
        return found.to(dt.float64)

    return slope


@op
def states(y0: Tensor, flow: Flow, *tensors: Tensor) -> Tensor:
    """Return the ``(times, n)`` states of an equation that begins at `y0`."""
    where = y0.device

    def compute(first: Any, *arrays: Any) -> Any:
        slope = called_with_arrays(flow.name, flow.slope, where, arrays)
        found = flow.solve(slope, on_host(as_tensor(first)), flow.times, flow.end)
        return tensor(found, device=where).array

    array = driven(flow.name, compute, y0, *tensors)
    result: Tensor = record(
        "OdeBackward0", array, (y0, *tensors), _vjp, tensors, dt.float64, True, flow=flow
    )
    return result


def _backward(slope: Slope, n: int, by: list[int]) -> Slope:
    """The equation of state, adjoint and gradients by some tensors, of which time goes down."""

    def back(t: Tensor, z: Tensor, *tensors: Tensor) -> Tensor:
        of_all = [0, *[i + 1 for i in by]]
        value, pull = pulled_by(lambda *every: slope(t, *every), (z[:n], *tensors), of_all)
        return cat([value, *[-g.reshape(-1) for g in pull(z[n : 2 * n])]])

    return back


def _vjp(node: Any, g: Tensor) -> tuple[Any, ...]:
    *tensors, found = node.saved_values
    flow, n = node.flow, found.shape[1]
    by = [i for i, needed in enumerate(node.needs_input_grad[1:]) if needed]
    sizes = [n, n, *[tensors[i].numel() for i in by]]
    back = flow._replace(slope=_backward(flow.slope, n, by))
    adjoint, rest = g[-1], zeros(sum(sizes[2:]), dtype=g.dtype, device=g.device)
    for i in range(len(flow.times) - 1, 0, -1):
        span = back._replace(times=flow.times[[i, i - 1]], end=flow.times[i - 1])
        end = states(cat([found[i], adjoint, rest]), span, *tensors)[-1]
        adjoint, rest = end[n : 2 * n] + g[i - 1], end[2 * n :]
    slopes: list[Any] = [None] * len(tensors)
    for i, part in zip(by, rest.split(sizes[2:]), strict=True):
        slopes[i] = part.reshape(tensors[i].shape)
    return adjoint, *slopes


@jvp(_vjp)
def _jvp(call: Call) -> list[Any]:
    """Sensitivity equations: the state's tangent is integrated beside it."""
    y0, *tensors = call.inputs
    start, *tangents = full_tangents(call)
    flow, n, count = call.attributes["flow"], y0.shape[0], len(tensors)

    def slope(t: Tensor, z: Tensor, *both: Tensor) -> Tensor:
        primals, along = (z[:n], *both[:count]), (z[n:], *both[count:])
        return cat(pushed(lambda y, *rest: flow.slope(t, y, *rest), primals, along))

    found = states(cat([y0, start]), flow._replace(slope=slope), *tensors, *tangents)
    return [found[:, n:]]


batching(states)(one_by_one)


def replayed(flow: Flow, kind: Any, steps: Any, y0: Tensor, tensors: list[Tensor]) -> Tensor:
    """Return the states at ``flow.times`` through the steps of a Runge-Kutta method.

    Parameters
    ----------
    kind : class
        SciPy's, with the coefficients A, B, C of the method and P of its interpolation.
    steps : array
        The times at which steps ended, the first time first. About ``sqrt(steps)`` states are kept
        for the way back, which computes those between again.
    y0, tensors
        As of `states`.
    """
    size = max(1, math.isqrt(len(steps)))
    sign = np.sign(steps[-1] - steps[0])
    state, found = y0, [y0[None]]
    for begin in range(0, len(steps) - 1, size):
        part = steps[begin : begin + size + 1]
        inside = (sign * flow.times > sign * part[0]) & (sign * flow.times <= sign * part[-1])
        across = (_across, flow.slope, kind, part, flow.times[inside], state, *tensors)
        state, outputs = checkpoint(*across, use_reentrant=False)
        found.append(outputs)
    return cat(found)


def _across(
    slope: Slope, kind: Any, steps: Any, times: Any, y: Tensor, *tensors: Tensor
) -> tuple[Tensor, Tensor]:
    """The state after some steps, and those at `times` among them."""
    found, sign = [y[None][:0]], np.sign(steps[-1] - steps[0])
    for t, end in zip(steps[:-1], steps[1:], strict=True):
        h, stages = end - t, [slope(_time(t, y), y, *tensors)]
        for weights, c in zip(kind.A[1:], kind.C[1:], strict=True):
            moved = y + h * _weighted(weights, stages)
            stages.append(slope(_time(t + c * h, y), moved, *tensors))
        after = y + h * _weighted(kind.B, stages)
        stages.append(slope(_time(end, y), after, *tensors))
        inside = times[(sign * times > sign * t) & (sign * times <= sign * end)]
        for x in (inside - t) / h:
            powers = np.cumprod(np.full(kind.P.shape[1], x))
            found.append((y + h * _weighted(kind.P @ powers, stages))[None])
        y = after
    return y, cat(found)


def _weighted(weights: Any, stages: list[Tensor]) -> Tensor:
    used = tensor(np.asarray(weights[: len(stages)]), device=stages[0].device)
    return used @ stack(stages)


def _time(t: Any, like: Tensor) -> Tensor:
    return tensor(float(t), dtype=like.dtype, device=like.device)

"""Derivatives of solutions of equations, by the implicit function theorem.

SciPy finds the ``x`` with ``F(x, p) = 0``. Two of Newton's steps from there, which do not move it,
depend on ``p`` as the solution does: each doubles the order to which its Taylor series in ``p`` is
right (Griewank and Walther, "Evaluating Derivatives", 2008, chapter 15), so that two give third
derivatives, too, in both modes. The Jacobian by ``x`` is dense: n^2 numbers for n unknowns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lucid_gpu import dtypes as dt
from lucid_gpu import linalg
from lucid_gpu.func.transforms import vjp
from lucid_gpu.numpy.operands import on_memory_of
from lucid_gpu.ops.creation import eye, tensor
from lucid_gpu.ops.shape import stack
from lucid_gpu.scipy.callbacks import driven, on_host, one_by_one
from lucid_gpu.tape.door import op
from lucid_gpu.tape.rules import batching
from lucid_gpu.tensor import Tensor, from_array

NEAR = 1e-4  # how far from the solution, beside its size, a step of Newton's may still lead


class Equation(NamedTuple):
    """An equation and how SciPy solves it.

    Attributes
    ----------
    name : str
    residual : callable
        Of ``(x, *tensors)``, of the shape of `x`; zero at the solution, for its derivatives.
    solve : callable
        Of ``(start, *tensors)``, detached, in float64; gives the solution as an array.
    """

    name: str
    residual: Callable[..., Tensor]
    solve: Callable[..., Any]


@op
def _found(start: Tensor, equation: Equation, checked: bool, *tensors: Tensor) -> Tensor:
    where = start.device

    def compute(*arrays: Any) -> Any:
        first, *rest = [on_memory_of(a) for a in arrays]
        x = tensor(np.asarray(equation.solve(first, *rest), np.float64), device=where)
        if checked:
            _check(equation, x, rest)
        return x.array

    return from_array(driven(equation.name, compute, start, *tensors), dt.float64, where)


batching(_found)(one_by_one)


def _check(equation: Equation, x: Tensor, tensors: list[Tensor]) -> None:
    """Refuse a solution that has no derivative, or that is not near enough for one."""
    value = on_host(equation.residual(x, *tensors)).reshape(-1)
    slopes = on_host(jacobian(equation.residual)(x, *tensors))
    says = f"scipy.{equation.name}: there is no derivative of the solution"
    condition = np.linalg.cond(slopes) if np.isfinite(slopes).all() else np.inf
    if not condition < 1 / np.finfo(float).eps:
        raise RuntimeError(
            f"{says} where the Jacobian (of a minimum, the Hessian) is singular: its condition "
            f"number is {condition:.1e}"
        )
    step = np.abs(np.linalg.solve(slopes, value)).max()
    if step > NEAR * (1 + np.abs(on_host(x)).max()):
        raise RuntimeError(
            f"{says} that far from it: the residual (of a minimum, the gradient) is "
            f"{np.abs(value).max():.1e}, and the solution still {step:.1e} away; give smaller "
            "tolerances"
        )


def jacobian(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the function that computes the Jacobian of a vector by the vector `x`, row by row.

    `func.jacrev` is for what runs outside of an op: inside, its batches are those of open vmaps.
    """

    def rows(x: Tensor, *tensors: Tensor) -> Tensor:
        pull = vjp(lambda x: function(x, *tensors).reshape(-1), x)
        units = eye(pull[0].numel(), dtype=x.dtype, device=x.device)
        return stack([pull[1](unit)[0].reshape(-1) for unit in units])

    return rows


def _differentiated(value: Tensor) -> bool:
    """Whether a value is recorded, or has a tangent."""
    wrapper = value._wrapper
    while wrapper is not None:
        if not wrapper.level.batches:
            return True
        wrapper = wrapper.below
    return bool(value.requires_grad)


def solved(equation: Equation, start: Tensor, tensors: list[Tensor]) -> Tensor:
    """Return the solution, with derivatives by `tensors` and what the residual closes over.

    Raises
    ------
    RuntimeError
        Where a derivative may be asked for, for a singular Jacobian, and a solution that is not
        near enough.
    """
    start = start.detach()
    wanted = _differentiated(equation.residual(start, *tensors))
    x = found = _found(start, equation, wanted, *[t.detach() for t in tensors])
    if not wanted:
        return x
    for _ in range(2):
        slopes = jacobian(equation.residual)(x, *tensors)
        value = equation.residual(x, *tensors).reshape(-1)
        x = x - linalg.solve(slopes, value).reshape(x.shape)
    return found + (x - x.detach())

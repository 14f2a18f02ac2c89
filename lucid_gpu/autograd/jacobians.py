"""Jacobians three ways, for `gradcheck`: by finite differences, backward, and forward.

A function is looked at as a map from real numbers to real numbers. A complex output stands for two
real ones, looked at in turn; a complex input has a gradient ``ds/dx + i ds/dy`` for its parts x and
y, as autograd gives it. Jacobians have a row an element of the input, a column an element of the
output. Arithmetic is done on host arrays in double precision.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from lucid_gpu.autograd.grad import grad
from lucid_gpu.core.value import give
from lucid_gpu.device import CPU
from lucid_gpu.devices import backend
from lucid_gpu.tape.overrides import fields
from lucid_gpu.tensor import Tensor, from_array

xp = backend(CPU).xp


class Part(NamedTuple):
    """What of a number is looked at: a real one, or one part of a complex one."""

    unit: complex
    name: str

    def of(self, array: Any) -> Any:
        return array.imag if self.unit == 1j else array.real


REAL = (Part(1, ""),)
COMPLEX = (Part(1, "real"), Part(1j, "imaginary"))


def parts_of(t: Tensor) -> tuple[Part, ...]:
    """What is looked at in turn of a tensor's elements."""
    return COMPLEX if t.dtype.is_complex else REAL


def sequence(value: Any) -> tuple[Any, ...]:
    """Arguments or results given as one, a tuple or a list."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def floats(outputs: Any) -> list[Tensor]:
    """The results that have slopes."""
    return [o for o in sequence(outputs) if isinstance(o, Tensor) and o.dtype.category >= 2]


def host(t: Tensor) -> Any:
    """A double precision copy on the host."""
    kind = xp.complex128 if t.dtype.is_complex else xp.float64
    t = t.detach()
    return (t.to_dense() if t._is_sparse else t).cpu().array.astype(kind)


def like(array: Any, t: Tensor) -> Tensor:
    """A host array as a tensor of another's type and device."""
    made = from_array(array.astype(t.dtype.numpy), t.dtype, CPU)
    return made.to(t.device)


class Case:
    """A function, its inputs, and which of its results take part."""

    def __init__(self, func: Callable[..., Any], inputs: Sequence[Any]) -> None:
        self.func = func
        self.inputs = tuple(inputs)
        self.positions = [
            i for i, t in enumerate(inputs) if isinstance(t, Tensor) and t.requires_grad
        ]
        outputs = floats(func(*inputs))
        self.count = len(outputs)
        self.results = [i for i, o in enumerate(outputs) if o.requires_grad]

    def targets(self) -> list[Tensor]:
        return [self.inputs[i] for i in self.positions]

    @property
    def still(self) -> dict[int, Any]:
        """Directions in which nothing moves: in forward mode every input is a dual."""
        return {
            position: xp.zeros(tuple(self.inputs[position].shape)) for position in self.positions
        }

    def fresh_outputs(self) -> list[Tensor]:
        """The differentiable outputs of another call, with a graph of their own."""
        outputs = floats(self.func(*self.inputs))
        return [outputs[i] for i in self.results]

    def values_at(self, position: int, array: Any) -> list[Tensor]:
        """The outputs with other numbers in one input, wherever the function finds it."""
        with moved(self.inputs[position], array):
            outputs = floats(self.func(*self.inputs))
            for o in outputs:
                o.array  # noqa: B018  what is pending would read the input later
            return [o.alias() for o in outputs]  # one may be the input, which moves back


@contextlib.contextmanager
def moved(t: Tensor, array: Any) -> Iterator[None]:
    """The same tensor, with the same place in the graph, holds other numbers for a while."""
    value, kept = t._expr, dict(fields(t))
    node, output = t._edge()
    try:
        t.data = like(array, t)
        t._attach(node, output)
        yield
    finally:
        fields(t).clear()
        fields(t).update(kept)
        give(t, value)


# --- by finite differences ------------------------------------------------------------------------


def slopes(case: Case, position: int, toward: Any, eps: float, at: str = "") -> list[Any]:
    """How fast each output changes when one input moves in a direction: central differences."""
    base = host(case.inputs[position])
    below = case.values_at(position, base - eps * toward)
    above = case.values_at(position, base + eps * toward)
    for a, b in zip(below, above, strict=True):
        for what, one, other in (("shape", a.shape, b.shape), ("dtype", a.dtype, b.dtype)):
            if one != other:
                raise AssertionError(
                    f"Expected `func` to return outputs with the same {what} when inputs are "
                    f"perturbed {at}by {eps}, but got: {what}s {one} and {other}."
                )
    return [(host(b) - host(a)) / (2 * eps) for a, b in zip(below, above, strict=True)]


def numerical(case: Case, position: int, eps: float) -> list[list[Any]]:
    """Per output: flat slopes for a move of each element; real, then imaginary, if it is complex.

    The list of an output holds one such list a part of the input.
    """
    target = case.inputs[position]
    shape = tuple(target.shape)
    differences: list[list[Any]] = [[[] for _ in parts_of(target)] for _ in range(case.count)]
    for element in range(target.numel()):
        index = tuple(int(i) for i in xp.unravel_index(element, shape)) if shape else ()
        for k, part in enumerate(parts_of(target)):
            toward = xp.zeros(shape, xp.complex128 if part.unit == 1j else xp.float64)
            toward[index] = part.unit
            moves = slopes(case, position, toward, eps, f"on index {index} ")
            for lists, slope in zip(differences, moves, strict=True):
                lists[k].append(slope.reshape(-1))
    return differences


def backward_form(rows: list[Any], part: Part, size: int) -> Any:
    """Slopes of one part of an output, by a complex input's two moves or a real one's."""
    tables = [xp.array([part.of(r) for r in lists], xp.float64) for lists in rows]
    tables = [t.reshape(len(lists), size) for t, lists in zip(tables, rows, strict=True)]
    return tables[0] if len(tables) == 1 else tables[0] + 1j * tables[1]


# --- by autograd ----------------------------------------------------------------------------------


def cotangent(output: Tensor, array: Any, part: Part) -> Tensor:
    """The gradient to send back so that one part of an output is looked at."""
    return like(array * part.unit if part.unit == 1j else array, output)


def pull(output: Tensor, targets: Sequence[Tensor], sent: Tensor) -> tuple[Any, ...]:
    """Gradients of one output; None where there are none."""
    return grad(output, targets, sent, retain_graph=True, allow_unused=True)


def backward_jacobians(output: Tensor, targets: Sequence[Tensor], part: Part) -> list[Any]:
    """Jacobians of one output by one pass for each of its elements."""
    count = output.numel()
    jacobians = [
        xp.zeros((t.numel(), count), xp.complex128 if t.dtype.is_complex else xp.float64)
        for t in targets
    ]
    for element in range(count):
        one = xp.zeros(tuple(output.shape))
        one.reshape(-1)[element] = 1
        gradients = pull(output, targets, cotangent(output, one, part))
        for jacobian, gradient in zip(jacobians, gradients, strict=True):
            if gradient is not None:
                jacobian[:, element] = host(gradient).reshape(-1)
    return jacobians


def tangents(case: Case, toward: dict[int, Any]) -> list[tuple[Tensor, Any]]:
    """The outputs and their tangents when inputs (by position) move in directions."""
    from lucid_gpu.autograd import forward_ad

    with forward_ad.dual_level():
        inputs = list(case.inputs)
        for position in case.positions:
            inputs[position] = inputs[position].detach()
        for position, direction in toward.items():
            direction = like(xp.asarray(direction), inputs[position])
            inputs[position] = forward_ad.make_dual(inputs[position], direction)
        duals = [forward_ad.unpack_dual(o) for o in floats(case.func(*inputs))]
        return [(d.primal, None if d.tangent is None else host(d.tangent)) for d in duals]


def forward_rows(case: Case, position: int, part: Part) -> list[Any]:
    """Per output: its tangents when each element of an input moves by a part's unit."""
    target = case.inputs[position]
    rows: list[Any] = [[] for _ in range(case.count)]
    for element in range(target.numel()):
        toward = xp.zeros(tuple(target.shape), xp.complex128 if part.unit == 1j else xp.float64)
        toward.reshape(-1)[element] = part.unit
        for row, (value, tangent) in zip(
            rows, tangents(case, {**case.still, position: toward}), strict=True
        ):
            row.append(xp.zeros(value.numel()) if tangent is None else tangent.reshape(-1))
    return rows

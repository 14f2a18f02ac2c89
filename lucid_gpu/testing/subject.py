"""What `check_function` checks: a function, inputs to call it with, and what its backward wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucid_gpu import dtypes as dt
from lucid_gpu.autograd.function import Function
from lucid_gpu.autograd.grad import grad
from lucid_gpu.autograd.jacobians import host, like, sequence, xp
from lucid_gpu.ops.creation import zeros
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

_LEAF = "a leaf Variable that requires grad"  # how the errors of in-place writes begin
_SEED = 27  # of cotangents: a check gives the same answer every time


class NotApplicable(Exception):
    """A check has nothing to look at; the message says why."""


class Subject:
    """A function and its inputs.

    Attributes
    ----------
    function : Function class or callable
        As the user gave it.
    call : callable
        From inputs to outputs.
    positions : list of int
        The inputs that get gradients.
    written : list of int
        Output numbers of cotangents that a backward changed.
    """

    def __init__(self, function: Any, inputs: Sequence[Any], dtype: dt.dtype | None) -> None:
        if not callable(function):
            raise TypeError(
                "check_function expected a Function class or a function of its inputs, got "
                f"{type(function).__name__}: write check_function(MyFunction, *inputs)"
            )
        self.function = function
        self.inputs = tuple(inputs)
        self.dtype = dtype
        self.name = getattr(function, "__name__", type(function).__name__)
        self.written: list[int] = []
        self.positions = _differentiable_positions(inputs)
        if isinstance(function, type) and issubclass(function, Function):
            self.call: Callable[..., Any] = _watched(function, self.written).apply
        else:
            self.call = function
        if self._writes_leaves():
            direct = self.call
            self.call = lambda *args: direct(*[_no_leaf(a) for a in args])

    @property
    def custom(self) -> type[Function] | None:
        """The Function, if it is one."""
        function = self.function
        return function if isinstance(function, type) and issubclass(function, Function) else None

    def _writes_leaves(self) -> bool:
        try:
            self.call(*self.fresh())
        except Exception as error:  # others come again where a row reports them
            return _LEAF in str(error)
        return False

    # --- inputs -----------------------------------------------------------------------------------

    def fresh(
        self,
        change: Callable[[Tensor], Tensor] | None = None,
        positions: Sequence[int] | None = None,
        dtype: dt.dtype | None = None,
        device: Any = None,
    ) -> list[Any]:
        """Inputs to call the function with: copies, of which those at ``positions`` are leaves."""
        wanted = self.positions if positions is None else positions
        return [
            self._copy(value, i, i in wanted, change, dtype or self.dtype, device)
            for i, value in enumerate(self.inputs)
        ]

    def _copy(
        self,
        value: Any,
        position: int,
        is_leaf: bool,
        change: Callable[[Tensor], Tensor] | None,
        dtype: dt.dtype | None,
        device: Any,
    ) -> Any:
        if not isinstance(value, Tensor):
            return value
        with no_grad():
            copy = value.detach().clone()
            if dtype is not None and position in self.positions:
                copy = copy.to(_as_precise(copy.dtype, dtype))
            if device is not None:
                copy = copy.to(device)
            if change is not None and position in self.positions:
                copy = change(copy)
        return copy.requires_grad_() if is_leaf else copy

    # --- outputs and gradients --------------------------------------------------------------------

    def outputs(self, args: Sequence[Any]) -> list[Tensor]:
        """The outputs that have gradients."""
        results = sequence(self.call(*args))
        return [o for o in results if isinstance(o, Tensor) and o.requires_grad]

    def cotangents(self, outputs: Sequence[Tensor]) -> list[Tensor]:
        """Random gradients of outputs, the same ones in every call."""
        random = xp.random.default_rng(_SEED)
        return [_random(random, o) for o in outputs]

    def run(
        self, args: Sequence[Any], cotangents: Callable[[Sequence[Tensor]], Sequence[Tensor]]
    ) -> tuple[list[Any], list[Any]]:
        """Outputs and gradients on the host; None for inputs that got none."""
        outputs = self.outputs(args)
        targets = [a for a in args if isinstance(a, Tensor) and a.requires_grad]
        grads: Sequence[Any] = [None] * len(targets)
        if outputs:
            grads = grad(outputs, targets, cotangents(outputs), allow_unused=True)
        return [host(o) for o in outputs], [None if g is None else host(g) for g in grads]


def _differentiable_positions(inputs: Sequence[Any]) -> list[int]:
    tensors = [(i, t) for i, t in enumerate(inputs) if isinstance(t, Tensor)]
    marked = [i for i, t in tensors if t.requires_grad]
    positions = marked or [i for i, t in tensors if t.dtype.category >= 2]
    if not positions:
        raise ValueError(
            "check_function needs at least one floating point or complex tensor among the inputs, "
            f"got {[type(i).__name__ for i in inputs]}"
        )
    return positions


def _as_precise(d: dt.dtype, wanted: dt.dtype) -> dt.dtype:
    return dt.complex128 if d.is_complex and wanted is dt.float64 else wanted


def _no_leaf(value: Any) -> Any:
    """A function that writes its input cannot be given a leaf."""
    return value.clone() if isinstance(value, Tensor) and value.requires_grad else value


def _random(random: Any, output: Tensor) -> Tensor:
    shape = tuple(output.shape)
    numbers = random.standard_normal(shape)
    if output.dtype.is_complex:
        numbers = numbers + 1j * random.standard_normal(shape)
    return like(xp.asarray(numbers), output)


def with_gaps(t: Tensor) -> Tensor:
    """The same numbers, laid out in reverse order of dimensions and with gaps."""
    gaps = zeros((*reversed(t.shape), 2), dtype=t.dtype, device=t.device)
    view = gaps[..., 0].permute(*reversed(range(t.ndim)))
    view.copy_(t)
    return view.detach()


def _watched(function: type[Function], written: list[int]) -> Any:
    """The same Function, whose backward is watched for writes to what it is given."""
    own = "backward" if function.backward is not Function.backward else "vjp"
    backward = getattr(function, own)

    def watching(ctx: Any, *cotangents: Any) -> Any:
        before = [host(c) if _is_dense(c) else None for c in cotangents]
        results = backward(ctx, *cotangents)
        for i, (c, kept) in enumerate(zip(cotangents, before, strict=True)):
            if kept is not None and not xp.array_equal(host(c), kept, equal_nan=True):
                written.append(i)
        return results

    kind: Any = type(function)
    return kind(function.__name__, (function,), {own: staticmethod(watching)})


def _is_dense(value: Any) -> bool:
    return isinstance(value, Tensor) and not value._is_sparse

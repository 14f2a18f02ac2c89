"""Forward-mode AD: `dual_level`, `make_dual`, `unpack_dual`.

>>> with forward_ad.dual_level():
...     dual = forward_ad.make_dual(x, direction)
...     value, derivative = forward_ad.unpack_dual(function(dual))

As in PyTorch there is one level. `lucid_gpu.func.jvp` nests.
"""

from __future__ import annotations

from contextlib import ContextDecorator
from typing import Any, NamedTuple

from lucid_gpu.autograd.dual import DualLevel
from lucid_gpu.ops.mirrors import is_batched
from lucid_gpu.ops.shape import view_as
from lucid_gpu.ops.wrapping import bared, wrapper_at
from lucid_gpu.tape.levels import open_levels
from lucid_gpu.tape.modes import FORWARD, state
from lucid_gpu.tensor import Tensor

__all__ = [
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "make_dual",
    "unpack_dual",
]

_levels: list[DualLevel] = []  # at most one


def __getattr__(name: str) -> int:
    if name == "_current_level":  # the number of the open level, -1 where none is
        return len(_levels) - 1
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def enter_dual_level() -> int:
    """Open the level; `dual_level` does it for a ``with`` block.

    Returns
    -------
    int
        Its number, 0.

    Raises
    ------
    RuntimeError
        If one is open: this does not nest, `lucid_gpu.func.jvp` does.
    """
    if _levels:
        raise RuntimeError(
            "Nested forward mode AD is not supported at the moment. lucid_gpu.func.jvp nests."
        )
    level = DualLevel()
    open_levels.append(level)
    _levels.append(level)
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Close the level: every tangent is gone.

    RuntimeError if none is open.
    """
    if not _levels or level not in (None, 0):
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. This "
            "is not supported."
        )
    _levels.pop().close()


class dual_level(ContextDecorator):
    """Forward-mode AD for a ``with`` block, at whose end all tangents vanish."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *_: object) -> None:
        exit_dual_level()


def _is_fwd_grad_enabled() -> bool:
    """Whether ops act on tangents: not inside of `Function.forward`."""
    return state.tangents and state.mode is not FORWARD


class _set_fwd_grad_enabled(ContextDecorator):
    """Set whether ops act on tangents, from now on or, as a ``with``, for a block."""

    def __init__(self, mode: bool) -> None:
        self.before, state.tangents = state.tangents, bool(mode)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        state.tangents = self.before


def _level(number: int | None, purpose: str) -> DualLevel | None:
    if number not in (None, 0, -1):
        raise RuntimeError(f"Invalid level given to {purpose}: {number}; there is level 0 only")
    return _levels[-1] if _levels else None


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A view of a tensor that carries a tangent.

    Parameters
    ----------
    tensor, tangent : Tensor
        Of one shape, floating point or complex.

    Returns
    -------
    Tensor
        Its tangent is the very ``tangent``, unless that is laid out differently from ``tensor``.

    Raises
    ------
    RuntimeError
        If no level is open, for shapes or devices that differ, and where one of the two carries
        a tangent already.
    TypeError
        For anything but a tensor.
    ValueError
        For integers and bool.
    """
    current = _level(level, "make_dual")
    if current is None:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to "
            "enter_dual_level() first."
        )
    _check(tensor, "primal")
    _check(tangent, "tangent")
    if tensor.shape != tangent.shape:
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original "
            f"Tensor, this is not supported. Tensor is of size {list(tensor.shape)} while the "
            f"given forward gradient is of size {list(tangent.shape)}."
        )
    if tensor.device != tangent.device:
        raise RuntimeError(
            "Expected tangent to be on the device of its primal: got "
            f"{tangent.device} and {tensor.device}; move it with .to(...)"
        )
    if wrapper_at(tangent, current) is not None:
        raise RuntimeError(
            "Setting a forward grad that itself has a forward gradient at the same level 0 is not "
            "supported."
        )
    if wrapper_at(tensor, current) is not None:
        raise RuntimeError(
            "Making a dual Tensor based on a Tensor that already has a forward gradient at the "
            "same level 0 is not supported."
        )
    return current.enter(tensor, tangent)


def _check(tensor: Any, role: str) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"make_dual(): {role} must be Tensor, not {type(tensor).__name__}")
    if tensor.dtype.category < 2:
        raise ValueError(
            f"Expected {role} to be floating point or complex, but got: {tensor.dtype}"
        )


class UnpackedDualTensor(NamedTuple):
    """What `unpack_dual` gives."""

    primal: Tensor
    tangent: Tensor | None


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The value and the tangent, of one shape, of a dual; the tangent of other tensors is None.

    Returns
    -------
    UnpackedDualTensor
        ``primal`` is a view without tangent.

    Raises
    ------
    TypeError
        For anything but a tensor.
    RuntimeError
        For another level than 0.
    """
    current = _level(level, "unpack_dual")
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"unpack_dual(): argument 'dual' must be Tensor, not {type(tensor).__name__}"
        )
    dual = None if current is None else wrapper_at(tensor, current)
    if current is not None and is_batched(tensor):
        return UnpackedDualTensor(*current.leave(tensor))
    if current is None or dual is None:
        return UnpackedDualTensor(tensor, None)
    with bared(tensor, current):
        primal = view_as(tensor, tensor)
    return UnpackedDualTensor(primal, dual.tangent)

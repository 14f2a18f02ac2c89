"""How autocast casts the arguments of an op, which declares that it wants it (`tape.door.op`).

While autocast is on anywhere, the arguments of each op are looked at first. What an op calls inside
is its own affair, and is not cast again. Which ops are cast is what the reference on automatic
mixed precision says (docs.pytorch.org/docs/stable/amp.html).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lucid_gpu.amp.state import cast, eligible, state
from lucid_gpu.core.node import run_node
from lucid_gpu.dtypes import float32
from lucid_gpu.tape.door import AUTOCAST, Cast, Watch
from lucid_gpu.tape.modes import state as modes
from lucid_gpu.tensor import Tensor

UNSAFE = (
    "nn.functional.binary_cross_entropy and nn.BCELoss are unsafe to autocast.\n"
    "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
    "In this case, combine the two layers using nn.functional.binary_cross_entropy_with_logits\n"
    "or nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
    "safe to autocast."
)


def _cast_first(
    op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], go_on: Callable[..., Any]
) -> Any:
    if modes.in_op or (op is run_node and args[0].runs_user_code):
        return go_on(*args, **kwargs)
    where = _device_type(args, kwargs)
    if where is not None and state.enabled.get(where) and kwargs.get("out") is None:
        kind = op.autocast.get(where)
        if kind is not None:
            args, kwargs = _CASTS[kind](args, kwargs, where)
    modes.in_op = True
    try:
        return go_on(*args, **kwargs)
    finally:
        modes.in_op = False


def _device_type(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    return next((t.device.type for t in _tensors((*args, *kwargs.values()))), None)


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _to(args: Any, kwargs: Any, to: Any, where: str) -> tuple[Any, Any]:
    return cast(args, to, where), {k: cast(v, to, where) for k, v in kwargs.items()}


def _lower(args: Any, kwargs: Any, where: str) -> tuple[Any, Any]:
    return _to(args, kwargs, state.dtype[where], where)


def _float32(args: Any, kwargs: Any, where: str) -> tuple[Any, Any]:
    asked = kwargs.get("dtype") is not None  # then the op is done in that type
    return (args, kwargs) if asked else _to(args, kwargs, float32, where)


def _promote(args: Any, kwargs: Any, where: str) -> tuple[Any, Any]:
    some = [t for t in _tensors((*args, *kwargs.values())) if eligible(t, where)]
    wide = any(t.dtype is float32 for t in some)
    return _to(args, kwargs, float32 if wide else state.dtype[where], where)


def _refuse(args: Any, kwargs: Any, where: str) -> tuple[Any, Any]:
    raise RuntimeError(UNSAFE)


_CASTS: dict[Cast, Callable[[Any, Any, str], tuple[Any, Any]]] = {
    "lower": _lower,
    "float32": _float32,
    "promote": _promote,
    "refuse": _refuse,
}


watching = Watch(AUTOCAST, lambda: _cast_first)

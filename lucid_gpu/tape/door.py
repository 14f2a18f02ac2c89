"""The door of ops: autocast, vmap and others (`NAMES` to `CAPTURE`) see a call before its body.

A function marked with `op` may be called from anywhere, by any name. In ordinary programs nobody is
behind the door and a call goes straight to the body. While `interpreters` holds something, the
call goes to the first of them; each calls the next, and the last calls the body.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, cast, get_args, overload

__all__ = ["Cast", "Interpreter", "Watch", "body_of", "interpret", "interpreters", "op", "op_of"]

F = TypeVar("F", bound=Callable[..., Any])
Next = Callable[..., Any]
Interpreter = Callable[[Any, tuple[Any, ...], dict[str, Any], Next], Any]
"""Called as ``(op, args, kwargs, go_on)``; ``go_on(*args, **kwargs)`` is what comes after it."""

NAMES, AUTOCAST, VMAP, DEVICE, CAPTURE = range(5)  # the order in which they see a call
interpreters: list[Interpreter] = []
_ranks: list[int] = []
_changing = threading.Lock()


Cast = Literal["lower", "float32", "promote", "refuse"]
Autocast = Cast | Mapping[str, Cast] | None


@overload
def op(body: F, /, *, autocast: Autocast = None) -> F: ...
@overload
def op(*, autocast: Autocast) -> Callable[[F], F]: ...
def op(body: Any = None, /, *, autocast: Autocast = None) -> Any:
    """Let interpreters see each call of a function.

    The result has the function as ``body``, and as ``autocast`` a mapping from device types to what
    autocast does there.

    Parameters
    ----------
    body : callable
    autocast : {"lower", "float32", "promote", "refuse"} or mapping, optional
        What autocast does with floating point arguments: "lower" casts them to its 16-bit type,
        "float32" to that type, "promote" to the widest type among them, "refuse" raises. A mapping
        says it of "cpu" and of "cuda"; on a device type that it leaves out, nothing is cast.

    Raises
    ------
    ValueError
        For another word.
    """
    if body is None:
        return functools.partial(op, autocast=autocast)
    casts = dict.fromkeys(("cpu", "cuda"), autocast) if isinstance(autocast, str) else autocast
    for kind in (casts or {}).values():
        if kind not in get_args(Cast):
            words = ", ".join(get_args(Cast))
            raise ValueError(f"op(): autocast of {body.__name__} is {kind!r}; it is one of {words}")

    @functools.wraps(body)
    def call(*args: Any, **kwargs: Any) -> Any:
        if interpreters:
            return interpret(call, args, kwargs)
        return body(*args, **kwargs)

    call.body = body  # type: ignore[attr-defined]
    call.autocast = casts or {}  # type: ignore[attr-defined]
    return call


def interpret(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a call of an op gives, by all interpreters of this moment."""
    chain = tuple(interpreters)
    if len(chain) == 1:
        return chain[0](op, args, kwargs, op.body)
    return chain[0](op, args, kwargs, _go_on(op, chain, 1))


def _go_on(op: Any, chain: tuple[Any, ...], index: int) -> Next:
    """What an op is for the interpreter before this one."""
    if index == len(chain):
        body: Next = op.body
        return body

    def call(*args: Any, **kwargs: Any) -> Any:
        return chain[index](op, args, kwargs, _go_on(op, chain, index + 1))

    return call


def body_of(function: F) -> F:
    """What an op leads to where nobody is behind the door; any other function as it is."""
    inner = getattr(function, "__wrapped__", None)
    is_op = inner is not None and function.__dict__.get("body") is inner
    return cast(F, inner) if is_op else function


def op_of(function: Any) -> Any:
    """The op that a public function calls: itself, or what it wraps; None if there is none."""
    while function is not None and body_of(function) is function:
        function = getattr(function, "__wrapped__", None)
    return function


class Watch:
    """Keeps an interpreter behind the door while any thread is inside a ``with`` of this.

    Parameters
    ----------
    rank : int
        `NAMES`, `AUTOCAST`, `VMAP`, `DEVICE` or `CAPTURE`.
    make : callable
        Gives the interpreter, when it is first wanted.
    """

    def __init__(self, rank: int, make: Callable[[], Interpreter]) -> None:
        self.rank, self.make = rank, make
        self.users = 0
        self.interpreter: Interpreter | None = None

    def __enter__(self) -> None:
        if self.interpreter is None:
            self.interpreter = self.make()
        with _changing:
            if not self.users:
                at = sum(rank < self.rank for rank in _ranks)
                _ranks.insert(at, self.rank)
                interpreters.insert(at, self.interpreter)
            self.users += 1

    def __exit__(self, *_: object) -> None:
        with _changing:
            self.users -= 1
            if not self.users:
                at = _ranks.index(self.rank)
                del _ranks[at], interpreters[at]

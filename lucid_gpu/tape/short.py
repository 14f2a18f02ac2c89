"""Calls that nobody is to see first: functions around bodies, as short as they can be."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from lucid_gpu.tape.native import core

Failed = Callable[[Exception, tuple[Any, ...], dict[str, Any]], Any]
Slow = Callable[[tuple[Any, ...], dict[str, Any]], Any]


def short(
    body: Callable[..., Any],
    slow: Slow,
    failed: Failed,
    kinds: tuple[type[Exception], ...],
    seen: tuple[Sequence[Any], Sequence[Any]],
    most: int | None = None,
    careful: frozenset[str] = frozenset(),
    plain: tuple[Any, ...] = (),
) -> Any:
    """Return a function that calls `body` while nobody is to see the call first.

    Parameters
    ----------
    body : callable
    slow : callable
        Called as ``slow(args, kwargs)`` while one of the lists `seen` is not empty, with more than
        `most` positional arguments if that is a number, and with keywords among `careful`.
    plain : tuple of (name, place, types)
        Among these arguments, those for which it need not be called where they are of these types.
    failed : callable
        ``failed(error, args, kwargs)`` says what a call of `body` gives that raised one of `kinds`.
    """
    if core is not None:
        door = core.Door(
            body, slow, failed, kinds, *seen, -1 if most is None else most, careful, plain
        )
        return functools.update_wrapper(door, body)
    first, second = seen

    @functools.wraps(body)
    def call(*args: Any, **kwargs: Any) -> Any:
        if first or second or (most is not None and args[most:]):
            return slow(args, kwargs)
        if kwargs and not careful.isdisjoint(kwargs):
            return slow(args, kwargs)
        try:
            return body(*args, **kwargs)
        except kinds as error:
            return failed(error, args, kwargs)

    return call

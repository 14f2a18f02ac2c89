"""Where batched tensors are noticed: at the door of each op that is not elementwise.

Such a function looks at shapes and asks for arrays at once; so while a `vmap` runs, its arguments
are looked at first (`tape.door`).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

from lucid_gpu.func.batching import BatchLevel, NeedsArray, batch_levels
from lucid_gpu.func.trees import flatten, unflatten
from lucid_gpu.ops.shape import stack
from lucid_gpu.ops.user_warnings import warn_user
from lucid_gpu.tape.door import VMAP, Interpreter, Watch
from lucid_gpu.tape.levels import innermost
from lucid_gpu.tape.rules import BATCHING, UNBATCHED
from lucid_gpu.tensor import Tensor


class Entry:
    """What a call of one op comes to while some `vmap` runs.

    Attributes
    ----------
    function : function
        The op; calling it comes here.
    body : function
        What it does otherwise.
    fewest, most : int
        How many arguments the function takes by position.
    """

    def __init__(self, function: Any) -> None:
        self.function = function
        self.body = function.body
        parameters = inspect.signature(self.body).parameters.values()
        positional = [
            p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        many = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        self.most = sys.maxsize if many else len(positional)
        self.fewest = sum(p.default is p.empty for p in positional)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], go_on: Callable[..., Any]) -> Any:
        """The result; ``go_on`` is what the call comes to where nothing is batched."""
        level = innermost(_tensors(args, kwargs))
        if level is None:
            return go_on(*args, **kwargs)
        if not isinstance(level, BatchLevel):
            return level.call(self.function, go_on, args, kwargs)
        try:
            rule = BATCHING.get(self.function)
            if rule is not None:
                positional, named = self.bound(args, kwargs)
                result = rule(level, self.function, *positional, **named)
                if result is not NotImplemented:
                    return result
            return go_on(*args, **kwargs)  # written with other ops, perhaps
        except NeedsArray:
            return one_by_one(level, self.function, args, kwargs)

    def bound(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments where the function's own names put them; what does not fit raises its error."""
        if not kwargs and self.fewest <= len(args) <= self.most:
            return args, kwargs
        try:
            bound = inspect.signature(self.body).bind(*args, **kwargs)
        except TypeError:
            self.body(*args, **kwargs)
            raise
        return bound.args, bound.kwargs


class RandomEntry(Entry):
    """Comes to the innermost `vmap` of the thread, batched arguments or not."""

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], go_on: Callable[..., Any]) -> Any:
        awake = [level for level in batch_levels() if not level.asleep]
        if not awake:
            return go_on(*args, **kwargs)
        return BATCHING[self.function](awake[-1], self.function, *args, **kwargs)


def _tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
    """The tensors among arguments, also inside sequences."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, (list, tuple)):
            yield from value
        else:
            yield value


def one_by_one(
    level: BatchLevel, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]
) -> Any:
    """Run an op on each example, and stack the results."""
    if not level.size:
        raise RuntimeError(
            f"vmap: {function.__name__} has no batching rule, and the fallback path does not "
            "support vmap over dims of size 0"
        )
    _warn(function.__name__)
    leaves, structure = flatten((args, kwargs))
    columns: list[list[Any]] = []
    for b in range(level.size):
        picked = [level.value(leaf)[b] if level.holds(leaf) else leaf for leaf in leaves]
        own_args, own_kwargs = unflatten(picked, structure)
        results, of_result = flatten(function(*own_args, **own_kwargs))
        columns.append(results)
    return unflatten([_joined(level, function, row) for row in zip(*columns)], of_result)


def _joined(level: BatchLevel, function: Callable[..., Any], row: tuple[Any, ...]) -> Any:
    if not isinstance(row[0], Tensor):
        if any(r != row[0] for r in row[1:]):
            raise RuntimeError(f"vmap: {function.__name__} answers differently for each example")
        return row[0]
    if len({tuple(r.shape) for r in row}) > 1:
        raise RuntimeError(
            f"vmap: {function.__name__} gives each example another shape "
            f"({list(row[0].shape)}, ...); results of vmap must have one"
        )
    return level.wrap(stack(row))


_warned: set[str] = set()


def _warn(name: str) -> None:
    if name not in _warned:
        _warned.add(name)
        warn_user(
            f"There is a performance drop because we have not yet implemented the batching rule "
            f"for {name}: it runs once for each example.",
        )


def _interpreter() -> Interpreter:
    entries: dict[Any, Entry] = {}

    def batched(
        op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], go_on: Callable[..., Any]
    ) -> Any:
        entry = entries.get(op)
        if entry is None:
            entry = entries[op] = (RandomEntry if op in UNBATCHED else Entry)(op)
        return entry.run(args, kwargs, go_on)

    return batched


watching = Watch(VMAP, _interpreter)

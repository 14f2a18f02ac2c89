"""Hooks of a node: what is called with gradients, in which order, and what it may answer."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

if TYPE_CHECKING:
    from lucid_gpu.tensor import Tensor

Gradient: TypeAlias = "Tensor | None"  # None: undefined
Hook = Callable[..., object]


class RemovableHandle:
    """What registering a hook returns; `remove` takes the hook away.

    ``extra_dict`` is a table, or several, that says more about some hooks, under the same number.
    """

    id: int
    next_id: ClassVar[int] = 0

    def __init__(self, hooks_dict: OrderedDict[int, Any], *, extra_dict: Any = None) -> None:
        marks = [extra_dict] if isinstance(extra_dict, dict) else extra_dict or ()
        self._refer(hooks_dict, marks)
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1

    def _refer(self, hooks: Any, marks: Sequence[Any]) -> None:
        # a handle that is kept does not keep the hooks of what is gone
        self.hooks_dict_ref = weakref.ref(hooks)
        self.extra_dict_ref = tuple([weakref.ref(table) for table in marks])

    def remove(self) -> None:
        for table in (self.hooks_dict_ref(), *[ref() for ref in self.extra_dict_ref]):
            if table is not None:
                table.pop(self.id, None)

    def __getstate__(self) -> Any:
        marks = [ref() for ref in self.extra_dict_ref]
        return self.hooks_dict_ref(), self.id, tuple([m for m in marks if m is not None])

    def __setstate__(self, state: Any) -> None:
        hooks, self.id, marks = state
        self._refer(OrderedDict() if hooks is None else hooks, marks)
        RemovableHandle.next_id = max(RemovableHandle.next_id, self.id + 1)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class Hooks:
    """The hooks of one node, made when the first is registered.

    ``tensor`` and ``retain`` hold, for each output, what is called with that output's gradient;
    ``pre`` sees all gradients before the node runs, ``post`` its results after.
    """

    __slots__ = ("post", "pre", "retain", "tensor")

    def __init__(self) -> None:
        self.tensor: dict[int, OrderedDict[int, Callable[[Gradient], Gradient]]] = {}
        self.retain: dict[int, Hook] = {}
        self.pre: OrderedDict[int, Hook] = OrderedDict()
        self.post: OrderedDict[int, Hook] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self.pre or self.post or self.retain or any(self.tensor.values()))


def add_hook(
    hooks: OrderedDict[int, Hook], hook: Hook, *marks: OrderedDict[int, bool]
) -> RemovableHandle:
    """Register a hook among others, and in the tables that mark it; it runs after the others."""
    handle = RemovableHandle(hooks, extra_dict=marks)
    hooks[handle.id] = hook
    for table in marks:
        table[handle.id] = True
    return handle


def show_to_tensors(hooks: Hooks, cotangents: list[Gradient]) -> None:
    """Run the hooks of the tensors a node computed, then keep what `retain_grad` asked for.

    Each hook sees the answer of the one before. An undefined gradient is shown as None.
    """
    for output, some in hooks.tensor.items():
        for hook in tuple(some.values()):  # it may remove itself or another
            answer = hook(cotangents[output])
            if answer is not None:
                cotangents[output] = _fit(hook, answer, cotangents[output])
    for output, keep in tuple(hooks.retain.items()):
        if cotangents[output] is not None:
            keep(cotangents[output])


def run_before(hooks: Hooks, cotangents: list[Gradient]) -> list[Gradient]:
    """Run what is asked before a node runs: its tensors' hooks, then its own."""
    show_to_tensors(hooks, cotangents)
    for hook in tuple(hooks.pre.values()):
        answer = hook(tuple(cotangents))
        if answer is not None:
            cotangents = list(_fit_all(hook, answer, cotangents))
    return cotangents


def run_after(
    hooks: Hooks, results: Sequence[Gradient], cotangents: Sequence[Gradient]
) -> Sequence[Gradient]:
    """Show a node's results, and what it was given, to its posthooks."""
    for hook in tuple(hooks.post.values()):
        answer = hook(tuple(results), tuple(cotangents))
        if answer is not None:
            results = _fit_all(hook, answer, results)
    return results


def _fit_all(hook: Hook, answer: object, gradients: Sequence[Gradient]) -> Sequence[Gradient]:
    if not isinstance(answer, tuple):
        raise TypeError(
            f"expected tuple, but hook returned '{type(answer).__name__}': hook {_name(hook)} of a "
            f"node answers with None or with all {len(gradients)} gradients, as a tuple"
        )
    if len(answer) != len(gradients):
        raise RuntimeError(
            f"hook {_name(hook)} has returned an incorrect number of values (got {len(answer)}, "
            f"but expected {len(gradients)})"
        )
    return tuple(
        [None if a is None else _fit(hook, a, g) for a, g in zip(answer, gradients, strict=True)]
    )


def _fit(hook: Hook, answer: Any, gradient: Gradient) -> Gradient:
    """A hook's answer, if it can stand where the gradient stood."""
    if gradient is None:
        raise RuntimeError(
            f"can't replace a None gradient with a non-None value: hook {_name(hook)} returned "
            f"{type(answer).__name__} for an undefined gradient"
        )
    if not isinstance(answer, type(gradient)) and not isinstance(gradient, type(answer)):
        raise TypeError(
            f"expected Variable, but hook returned '{type(answer).__name__}': hook {_name(hook)} "
            "answers with None or with a tensor"
        )
    for what, attribute in (("type", "dtype"), ("type", "device"), ("size", "shape")):
        before, now = getattr(gradient, attribute, None), getattr(answer, attribute, None)
        if before != now:
            raise RuntimeError(
                f"hook {_name(hook)} has changed the {what} of value (was {before} got {now})"
            )
    return answer


def _name(hook: Hook) -> str:
    return f"'{getattr(hook, '__name__', hook)}'"

"""What nodes that are being traced are told of themselves: `Node.meta` from outside.

Inside `preserve_node_meta`, `Tracer.create_node` gives each node what `get_current_meta` holds.
`Interpreter` puts there what the node it runs has, so that a graph traced from a graph keeps it.
"""

from __future__ import annotations

import copy
import functools
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from lucid_gpu.fx.node import Node

__all__ = [
    "annotate",
    "annotate_fn",
    "format_stack",
    "get_current_meta",
    "get_current_replay_node",
    "has_preserved_node_meta",
    "preserve_node_meta",
    "reset_grad_fn_seq_nr",
    "set_current_meta",
    "set_current_replay_node",
    "set_grad_fn_seq_nr",
    "set_stack_trace",
]

F = TypeVar("F", bound=Callable[..., Any])
COPIED = (
    *("nn_module_stack", "source_fn_stack", "from_node", "quantization_tag", "custom"),
    *("torch_fn", "original_aten", "recompute", "partitioner_tag", "stack_trace"),
)


class _State:
    """What is set at the moment."""

    meta: dict[str, Any] = {}
    preserves = False
    replayed: Node | None = None


_state = _State()


def has_preserved_node_meta() -> bool:
    """Whether `preserve_node_meta` is on."""
    return _state.preserves


@contextmanager
def preserve_node_meta(enable: bool = True) -> Iterator[None]:
    """Give nodes traced in the block what is set for them; what is set in it ends with it."""
    before = _state.preserves, dict(_state.meta)
    _state.preserves = enable
    try:
        yield
    finally:
        _state.preserves, _state.meta = before


def get_current_meta() -> dict[str, Any]:
    """What is set for nodes."""
    return _state.meta


@contextmanager
def set_current_meta(node: Node, pass_name: str = "") -> Iterator[None]:
    """Set what a node has, for the nodes traced in the block, while metas are preserved."""
    before = _state.meta
    if _state.preserves and node.meta:
        _state.meta = dict(node.meta)
    try:
        yield
    finally:
        _state.meta = before


def copied_meta() -> dict[str, Any]:
    """What a new node is given."""
    if not _state.preserves:
        return {}
    return {key: copy.copy(_state.meta[key]) for key in COPIED if key in _state.meta}


def set_stack_trace(stack: list[str]) -> None:
    """Set where nodes come from, while metas are preserved; an empty list unsets it."""
    if _state.preserves:
        _state.meta.pop("stack_trace", None)
        if stack:
            _state.meta["stack_trace"] = "".join(stack)


def format_stack() -> list[str]:
    """What `set_stack_trace` set, while metas are preserved; else where the program stands."""
    if _state.preserves:
        return [_state.meta.get("stack_trace", "")]
    return traceback.format_list(traceback.extract_stack()[:-1])


@contextmanager
def annotate(annotation_dict: dict[str, Any]) -> Iterator[None]:
    """Add entries to ``meta["custom"]`` of nodes traced in the block, while metas are preserved."""
    before = _state.meta.get("custom")
    _state.meta["custom"] = {**(before or {}), **annotation_dict}
    try:
        yield
    finally:
        if before is None:
            _state.meta.pop("custom", None)
        else:
            _state.meta["custom"] = before


def annotate_fn(annotation_dict: dict[str, Any]) -> Callable[[F], F]:
    """`annotate` for all calls of a function."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def annotated(*args: Any, **kwargs: Any) -> Any:
            with annotate(annotation_dict):
                return function(*args, **kwargs)

        return annotated  # type: ignore[return-value]

    return decorate


def set_grad_fn_seq_nr(seq_nr: int) -> None:
    """Say which node of the backward graph nodes belong to, while metas are preserved."""
    if _state.preserves:
        meta = _state.meta
        meta["grad_fn_seq_nr"] = [*meta.get("grad_fn_seq_nr", []), seq_nr]
        meta["in_grad_fn"] = meta.get("in_grad_fn", 0) + 1


def reset_grad_fn_seq_nr() -> None:
    """Take back the last `set_grad_fn_seq_nr`; AssertionError where there was none."""
    if not _state.preserves:
        return
    meta = _state.meta
    level = meta.get("in_grad_fn", 0)
    if level <= 0:
        raise AssertionError(f"Expected current_level > 0, got {level}")
    meta["in_grad_fn"] = level - 1
    meta["grad_fn_seq_nr"] = meta["grad_fn_seq_nr"][:-1]
    if level == 1:
        del meta["in_grad_fn"], meta["grad_fn_seq_nr"]


def get_current_replay_node() -> Node | None:
    """The node that is being traced again."""
    return _state.replayed


@contextmanager
def set_current_replay_node(node: Node | None) -> Iterator[None]:
    """Say which node is being traced again."""
    before, _state.replayed = _state.replayed, node
    try:
        yield
    finally:
        _state.replayed = before

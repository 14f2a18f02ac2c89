"""`torch._functorch.partitioners`: how a graph of gradients would be divided; none is traced."""

from __future__ import annotations

from typing import Any, NoReturn

from .aot_autograd import refuse

__all__ = ["default_partition", "min_cut_rematerialization_partition"]


def _is_primal(node: Any) -> bool:
    """Whether a node of a graph is an input that is no cotangent."""
    return node.op == "placeholder" and "tangents" not in str(node.target)


def _is_tangent(node: Any) -> bool:
    """Whether a node of a graph is an input that is a cotangent."""
    return node.op == "placeholder" and "tangents" in str(node.target)


def default_partition(joint_module: Any, *args: Any, **settings: Any) -> NoReturn:
    """Refuse with a RuntimeError that says what to write instead."""
    refuse("functorch.compile.default_partition")


def min_cut_rematerialization_partition(joint_module: Any, *args: Any, **settings: Any) -> NoReturn:
    """Refuse with a RuntimeError that says what to write instead."""
    refuse("functorch.compile.min_cut_rematerialization_partition")

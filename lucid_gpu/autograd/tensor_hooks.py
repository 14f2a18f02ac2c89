"""Hooks of tensors, and `retain_grad`: what users have done with gradients on their way."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from lucid_gpu.core.node import AccumulateGrad, RemovableHandle, add_hook, new_grad
from lucid_gpu.fusion import region
from lucid_gpu.ops.registry import attach
from lucid_gpu.tape.levels import MARKED_INSIDE
from lucid_gpu.tape.modes import state
from lucid_gpu.tape.overrides import fields
from lucid_gpu.tensor import Tensor

__all__ = ["register_hook", "register_post_accumulate_grad_hook", "retain_grad"]


def register_hook(self: Tensor, hook: Callable[[Tensor], Any]) -> RemovableHandle:
    """Call ``hook(grad)`` when the gradient, of this shape, is known; it may return another.

    RuntimeError for tensors that do not require grad.
    """
    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    node, output = self._edge()
    region.observe(node)
    hooks = node.all_hooks().tensor.setdefault(output, OrderedDict())
    return add_hook(hooks, hook)


def _backward_hooks(self: Tensor) -> Any:
    """The hooks of `register_hook` by their handles' numbers, None before the first."""
    if not self.requires_grad:
        return fields(self).get("_idle_hooks")
    node, output = self._edge()
    return None if node._hooks is None else node._hooks.tensor.get(output)


def _set_backward_hooks(self: Tensor, hooks: Any) -> None:
    if self.requires_grad:
        node, output = self._edge()
        region.observe(node)
        node.all_hooks().tensor[output] = OrderedDict() if hooks is None else hooks
    elif hooks:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    else:
        fields(self)["_idle_hooks"] = hooks


def _delete_backward_hooks(self: Tensor) -> None:
    raise RuntimeError("Deletion of _backwards_hooks not allowed!")


def register_post_accumulate_grad_hook(
    self: Tensor, hook: Callable[[Tensor], None]
) -> RemovableHandle:
    """Call ``hook(tensor)`` after a gradient was added to this leaf's ``.grad``, of its shape.

    RuntimeError for tensors that are not leaves or do not require grad.
    """
    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    node = self._edge()[0]
    if type(node) is not AccumulateGrad:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    if node.post_accumulate is None:
        node.post_accumulate = OrderedDict()
        node.held = self  # hooks get it, also if nothing else holds it
    return add_hook(node.post_accumulate, hook)


def retain_grad(self: Tensor) -> None:
    """Keep the gradient of this non-leaf in ``.grad`` too.

    RuntimeError for tensors that do not require grad, and inside of a function that is being
    transformed.
    """
    if state.transforms:
        raise RuntimeError(MARKED_INSIDE.replace("requires_grad_()", "retain_grad()", 1))
    if not self.requires_grad:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    node, output = self._edge()
    if type(node) is AccumulateGrad or "_retains_grad" in fields(self):
        return
    region.observe(node)
    reference = weakref.ref(self)

    def keep(gradient: Tensor) -> None:
        tensor = reference()
        if tensor is not None:
            earlier = fields(tensor).get("_kept_grad")
            fresh = gradient.as_gradient(None, None) if earlier is None else earlier + gradient
            new_grad(tensor)
            tensor._kept_grad = fresh

    fields(self)["_retains_grad"] = True
    node.all_hooks().retain[output] = keep


def _retains_grad(self: Tensor) -> bool:
    """Whether `retain_grad` was called, and the tensor is no leaf."""
    return "_retains_grad" in fields(self)


attach(
    Tensor,
    register_hook,
    register_post_accumulate_grad_hook,
    retain_grad,
    retains_grad=property(_retains_grad),
    _backward_hooks=property(_backward_hooks, _set_backward_hooks, _delete_backward_hooks),
)

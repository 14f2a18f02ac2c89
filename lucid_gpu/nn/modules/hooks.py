"""Hooks of modules: what is called around forward and backward, for one module or for all.

A full backward hook stands on two nodes that pass everything on: one the inputs go through and one
the outputs go through. What arrives at the second is ``grad_output``, what leaves the first is
``grad_input``. A regular one stands on the node of the first output, and is told that node's.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lucid_gpu.autograd import Function
from lucid_gpu.core.node import RemovableHandle, add_hook
from lucid_gpu.tape.modes import is_grad_enabled
from lucid_gpu.tensor import Tensor

__all__ = [
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]

Table = OrderedDict[int, Any]


class Hook(NamedTuple):
    """A function and how it is called."""

    function: Callable[..., Any]
    with_kwargs: bool = False
    always: bool = False


class LoadHook:
    """A hook before loading, which may be told its module and does not keep it alive."""

    def __init__(self, hook: Callable[..., Any], module: Any = None) -> None:
        self.hook = hook
        self.with_module = module is not None
        self.module = None if module is None else weakref.ref(module)

    def __call__(self, *args: Any) -> Any:
        if self.module is None:
            return self.hook(*args)
        module = self.module()
        if module is None:
            raise RuntimeError("You are trying to call the hook of a dead Module!")
        return self.hook(module, *args)

    def __getstate__(self) -> Any:
        return self.hook, self.module and self.module()

    def __setstate__(self, state: Any) -> None:
        self.__init__(*state)  # type: ignore[misc]


# Of all modules, by kind; one table, so that a call has one thing to look at.
EVERYWHERE: Table = OrderedDict()


def register(
    hooks: Table, hook: Any, prepend: bool = False, marks: Sequence[Table] = ()
) -> RemovableHandle:
    """Add a hook to a table, and its number to ``marks``; ``prepend`` puts it before the others."""
    handle = add_hook(hooks, hook, *marks)
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def everywhere(kind: str) -> list[tuple[int, Any]]:
    """The hooks of a kind that hold for all modules."""
    return [(key, hook) for key, (of, hook) in EVERYWHERE.items() if of == kind]


class Everywhere(Mapping[int, Any]):
    """The hooks of a kind that hold for all modules, as packages read them."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __getitem__(self, key: int) -> Any:
        return dict(everywhere(self.kind))[key]

    def __iter__(self) -> Iterator[int]:
        return iter(dict(everywhere(self.kind)))

    def __len__(self) -> int:
        return len(everywhere(self.kind))


def _hooks(module: Any, kind: str) -> list[tuple[int, Any]]:
    return [*(everywhere(kind) if EVERYWHERE else ()), *getattr(module, f"_{kind}_hooks").items()]


def _marked(module: Any, kind: str) -> list[tuple[int, Hook]]:
    """The hooks of a kind that runs in forward, with how each is called."""
    named = getattr(module, f"_{kind}_hooks_with_kwargs")
    always = module._forward_hooks_always_called
    return [
        (key, hook if isinstance(hook, Hook) else Hook(hook, key in named, key in always))
        for key, hook in _hooks(module, kind)
    ]


def called(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a call of a module gives: what stands for all calls says so, or `ran`."""
    for _, instead in reversed(everywhere("call") if EVERYWHERE else ()):
        return instead(module, args, kwargs)
    return ran(module, args, kwargs)


def read_as(module: Any, name: str, value: Any) -> Any:
    """What reading a parameter, buffer or submodule gives while reads are watched."""
    for _, instead in reversed(everywhere("read")):
        return instead(module, name, value)
    return value


def ran(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``module.forward(*args, **kwargs)`` with all hooks around it."""
    late, result = dict(_marked(module, "forward")), None
    try:
        for _, hook in _marked(module, "forward_pre"):
            args, kwargs = _before(module, hook, args, kwargs)
        after, regular = _after_backward(module)
        before = [f for _, f in _hooks(module, "backward_pre")]
        watch = _Watch(module, after, before) if after or before else None
        if watch is not None:
            args = watch.inputs(args)
        result = module.forward(*args, **kwargs)
        for key, hook in tuple(late.items()):
            del late[key]
            extra = (kwargs,) if hook.with_kwargs else ()
            changed = hook.function(module, args, *extra, result)
            result = result if changed is None else changed
        result = result if watch is None else watch.outputs(result)
        if regular:
            _on_last_node(module, regular, args, result)
        return result
    except Exception:
        for hook in late.values():
            if hook.always:
                extra = (kwargs,) if hook.with_kwargs else ()
                try:
                    hook.function(module, args, *extra, result)
                except Exception as error:
                    warnings.warn(
                        "module forward hook with ``always_call=True`` raised an exception that "
                        f"was silenced as another error was raised in forward: {error}",
                        stacklevel=3,
                    )
        raise


def _after_backward(module: Any) -> tuple[list[Any], list[Any]]:
    """The hooks that are called after a module's backward: full ones, and regular ones."""
    kinds: tuple[list[Any], list[Any]] = [], []
    for regular, kind in enumerate(("backward", "regular_backward")):
        kinds[regular].extend([f for _, f in everywhere(kind)])
    kinds[module._is_full_backward_hook is False].extend(module._backward_hooks.values())
    return kinds


def _on_last_node(module: Any, hooks: Sequence[Any], args: Any, result: Any) -> None:
    """Put regular backward hooks on the node of a module's first output."""
    first = result
    while not isinstance(first, Tensor):
        first = next(iter(first.values())) if isinstance(first, dict) else first[0]
    node = first.grad_fn
    if node is None:
        return
    for hook in hooks:
        node.register_hook(functools.partial(hook, module))
    what = _what_regular_hooks_miss(node, args, result)
    if what:
        warnings.warn(
            f"Using {what} is deprecated and will be removed in future versions. Please use "
            "register_full_backward_hook to get the documented behavior.",
            FutureWarning,
            stacklevel=4,
        )


def _what_regular_hooks_miss(node: Any, args: Any, result: Any) -> str:
    """Why a hook on one node sees but a part of the gradients; "" if it sees all of them."""
    results = (result,) if isinstance(result, Tensor) else result
    for values, does in ((results, "return"), (args, "take as input")):
        if not (isinstance(values, tuple) and all(isinstance(v, Tensor) for v in values)):
            return (
                f"non-full backward hooks on a Module that does not {does} a single Tensor or a "
                "tuple of Tensors"
            )
    nodes = {r.grad_fn for r in results} - {None}
    if len(nodes) > 1:
        return "a non-full backward hook when outputs are generated by different autograd Nodes"
    if {a.grad_fn for a in args} - {None} != {n for n, _ in node.next_functions}:
        return "a non-full backward hook when the forward contains multiple autograd Nodes"
    return ""


def _before(
    module: Any, hook: Hook, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not hook.with_kwargs:
        changed = hook.function(module, args)
        if changed is None:
            return args, kwargs
        return (changed if isinstance(changed, tuple) else (changed,)), kwargs
    changed = hook.function(module, args, kwargs)
    if changed is None:
        return args, kwargs
    if not (isinstance(changed, tuple) and len(changed) == 2):
        raise RuntimeError(
            "forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got "
            f"{changed}."
        )
    return changed[0], changed[1]


# --- backward -------------------------------------------------------------------------------------


def _refuse_both(others: object, where: str) -> None:
    if others:
        raise RuntimeError(
            f"Cannot use both regular backward hooks and full backward hooks {where}. Please use "
            "only one of them."
        )


def register_backward(module: Any, hook: Any, full: bool, prepend: bool = False) -> RemovableHandle:
    """Add a backward hook to a module whose others are of the same kind."""
    _refuse_both(module._is_full_backward_hook is (not full), "on a single Module")
    module._is_full_backward_hook = full
    return register(module._backward_hooks, hook, prepend)


class BackwardHookFunction(Function):
    """Passes tensors on, so that one node sees all of their gradients."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.mark_non_differentiable(*[t for t in tensors if not t.requires_grad])
        return tensors

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        return gradients


class _Watch:
    """The two nodes of one call, and the hooks that are told what passes them."""

    def __init__(self, module: Any, after: Sequence[Any], before: Sequence[Any]) -> None:
        self.module, self.after, self.before = module, after, before
        self.into: list[int] | None = None  # which of the inputs have a gradient
        self.gradients: Any = None  # of the outputs, while the module is passed

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self.count = len(args)
        args, self.into, node = _through(args)
        if node is not None:
            node.register_hook(self._leaving)
        return args

    def outputs(self, result: Any) -> Any:
        if not isinstance(result, (Tensor, tuple)):
            warnings.warn(
                "For backward hooks to be called, module output should be a Tensor or a tuple of "
                f"Tensors but received {type(result)}",
                stacklevel=4,
            )
            return result
        results = result if isinstance(result, tuple) else (result,)
        passed, self.out_of, node = _through(results)
        self.width = len(results)
        if node is not None:
            node.register_hook(self._arriving)
        return passed if isinstance(result, tuple) else passed[0]

    def _arriving(self, _: Any, grad_output: Sequence[Any]) -> Any:
        gradients = _spread(self.out_of, grad_output, self.width)
        for hook in self.before:
            changed = hook(self.module, gradients)
            if changed is None:
                continue
            changed = changed if isinstance(changed, tuple) else (changed,)
            _same_number("pre hook returned an invalid number of grad_output", changed, self.width)
            gradients = changed
        self.gradients = gradients
        if self.into is None:
            self._without_inputs()
        assert self.out_of is not None
        return tuple([gradients[i] for i in self.out_of])

    def _without_inputs(self) -> None:
        nothing = (None,) * self.count
        if self.after:
            warnings.warn(
                "Full backward hook is firing when gradients are computed with respect to module "
                "outputs since no inputs require gradients.",
                stacklevel=2,
            )
        for hook in self.after:
            changed = hook(self.module, nothing, self.gradients)
            if changed is not None and not (
                isinstance(changed, tuple) and all(g is None for g in changed)
            ):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always "
                    "return None or None for all gradients."
                )
        self.gradients = None

    def _leaving(self, grad_input: Sequence[Any], _: Any) -> Any:
        if self.gradients is None:
            return None  # the gradient came past the outputs
        grads = _spread(self.into, grad_input, self.count)
        for hook in self.after:
            changed = hook(self.module, grads, self.gradients)
            if changed is None:
                continue
            changed = changed if isinstance(changed, tuple) else (changed,)
            _same_number("hook returned an invalid number of grad_input", changed, self.count)
            grads = changed
        self.gradients = None
        assert self.into is not None
        return tuple([grads[i] for i in self.into])


def _through(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[int] | None, Any]:
    """The values with their tensors passed through a node, where they are, and the node."""
    positions = [i for i, v in enumerate(values) if isinstance(v, Tensor)]
    tensors = [values[i] for i in positions]
    if not is_grad_enabled() or not any(t.requires_grad for t in tensors):
        return values, None, None
    passed = BackwardHookFunction.apply(*tensors)
    replaced = list(values)
    for i, t in zip(positions, passed, strict=True):
        replaced[i] = t
    node = next(t.grad_fn for t in passed if t.grad_fn is not None)
    kind = type(values)
    made = kind(*replaced) if hasattr(values, "_fields") else tuple(replaced)
    return made, positions, node


def _spread(positions: list[int] | None, gradients: Sequence[Any], count: int) -> tuple[Any, ...]:
    spread: list[Any] = [None] * count
    for i, g in zip(positions or (), gradients, strict=False):
        spread[i] = g
    return tuple(spread)


def _same_number(what: str, changed: tuple[Any, ...], count: int) -> None:
    if len(changed) != count:
        raise RuntimeError(f"Backward {what}, got {len(changed)}, but expected {count}")


# --- of all modules -------------------------------------------------------------------------------


def _everywhere(kind: str, hook: Any) -> RemovableHandle:
    return register(EVERYWHERE, (kind, hook))


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, args)`` before the forward of every module."""
    return _everywhere("forward_pre", Hook(hook))


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call ``hook(module, args, output)`` after the forward of every module."""
    return _everywhere("forward", Hook(hook, with_kwargs, always_call))


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, grad_output)`` when a gradient arrives at any module."""
    return _everywhere("backward_pre", hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, grad_input, grad_output)`` when a gradient has passed any module."""
    _refuse_both(everywhere("regular_backward"), "as a global Module hook")
    return _everywhere("backward", hook)


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, grad_input, grad_output)`` for the last node of any module's forward."""
    _refuse_both(everywhere("backward"), "as a global Module hook")
    return _everywhere("regular_backward", hook)


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, name, buffer)`` when a buffer is registered; what it returns is kept."""
    return _everywhere("buffer", hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, name, child)`` when a child is registered; what it returns is kept."""
    return _everywhere("module", hook)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, name, parameter)`` at a registration; what it returns is kept."""
    return _everywhere("parameter", hook)


def registered(module: Any, kind: str, name: str, value: Any) -> Any:
    """What the hooks of all modules make of a value that is being registered."""
    for _, hook in everywhere(kind):
        changed = hook(module, name, value)
        value = value if changed is None else changed
    return value

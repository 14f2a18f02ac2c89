"""Custom functions under vmap: by a ``vmap`` of their own, or by running their methods under it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from lucid_gpu.autograd.dual_function import Called, not_in_place, tangents_of
from lucid_gpu.autograd.dual_function import call as run
from lucid_gpu.autograd.function import Function, FunctionCtx
from lucid_gpu.func.trees import flatten, spread, tree_map, unflatten
from lucid_gpu.ops.record import save
from lucid_gpu.ops.shape import movedim
from lucid_gpu.tape.levels import innermost
from lucid_gpu.tensor import Tensor

if TYPE_CHECKING:
    from lucid_gpu.func.batching import BatchLevel


class VmapInfo(NamedTuple):
    """What a Function's ``vmap`` is told of the batch."""

    batch_size: int
    randomness: str


def call(level: BatchLevel, cls: type[Function], args: Sequence[Any]) -> Called:
    """Run a Function on arguments that are batched at ``level``."""
    own = cls.vmap is not Function.vmap
    if own and cls.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and "
            "an overridden vmap staticmethod. Please set generate_vmap_rule=False or delete the "
            "overridden vmap staticmethod to avoid ambiguity."
        )
    if own:
        return _by_own_rule(level, cls, args)
    if cls.generate_vmap_rule:
        return _by_running(level, cls, args)
    if not cls._methods_of().separate:
        if level.alike:
            return _by_one_example(level, cls, args)
        raise RuntimeError(
            "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, "
            f"jacrev, ...), it must override the setup_context staticmethod: {cls.__name__} is "
            "called under vmap. Give it forward(...) without ctx, setup_context(ctx, inputs, "
            "output), and a vmap staticmethod or generate_vmap_rule=True."
        )
    raise RuntimeError(
        f"You tried to vmap over {cls.__name__}, but it does not have vmap support. Please "
        "override and implement the vmap staticmethod or set generate_vmap_rule=True: write "
        f"`generate_vmap_rule = True` in class {cls.__name__} if its forward and backward are made "
        "of tensor ops."
    )


# --- a rule of the user's -------------------------------------------------------------------------


def _by_own_rule(level: BatchLevel, cls: type[Function], args: Sequence[Any]) -> Called:
    in_dims = tree_map(lambda a: 0 if level.holds(a) else None, tuple(args))
    values = tree_map(level.value, tuple(args))
    returned = cls.vmap(VmapInfo(level.size, level.randomness), in_dims, *values)
    if not (isinstance(returned, tuple) and len(returned) == 2):
        raise RuntimeError(
            "Expected the vmap staticmethod to have two returns, an output and out_dims with "
            f"pytree structure compatible with the output. Got a {type(returned)} instead"
        )
    output, out_dims = returned
    leaves, structure = flatten(output)
    places = spread(out_dims, structure)
    if places is None:
        raise RuntimeError(
            "The autograd.Function's vmap staticmethod returned an incompatible (output, out_dims) "
            f"tuple. Expected out_dims={out_dims} to be compatible with the structure of `output`. "
            f"out_dims has structure {flatten(out_dims)[1]} but output has structure {structure}."
        )
    wrapped = [_wrapped_at(level, o, d) for o, d in zip(leaves, places, strict=True)]
    result = unflatten(wrapped, structure)
    return Called(cls._node(), result, tuple(wrapped), (), ())


def _wrapped_at(level: BatchLevel, output: Any, out_dim: int | None) -> Any:
    if out_dim is None or not isinstance(output, Tensor):
        return output
    return level.wrap(movedim(output, out_dim, 0))


# --- examples that differ in their tangents alone ------------------------------------------------


def _by_one_example(level: BatchLevel, cls: type[Function], args: Sequence[Any]) -> Called:
    """Run forward once, on what the examples have in common, and jvp on all tangents together."""
    values = [level.value(a) for a in args]
    duals = innermost(values)
    if duals is None:
        raise RuntimeError(
            f"{cls.__name__} is called under vmap with no argument that has a tangent"
        )
    held = [level.holds(a) for a in args]
    primals = [duals.primal(v) for v in values]
    primals = [p[0] if batched else p for p, batched in zip(primals, held, strict=True)]
    tangents = [
        level.wrap(t) if batched and t is not None else t
        for t, batched in zip(map(duals.tangent, values), held, strict=True)
    ]
    called = run(cls, primals)
    if called.dirty:
        raise RuntimeError(not_in_place(cls))
    results = [
        r if t is None else level.wrap(duals.make(level.full(r).clone(), level.full(t)))
        for r, t in zip(called.results, tangents_of(called, cls, primals, tangents), strict=True)
    ]
    result = tuple(results) if isinstance(called.result, tuple) else results[0]
    return called._replace(result=result)


# --- forward and backward under vmap --------------------------------------------------------------


def _by_running(level: BatchLevel, cls: type[Function], args: Sequence[Any]) -> Called:
    """A Function of the values, whose forward and backward run the user's on batched tensors."""
    run = _Run(cls, level, [level.holds(a) for a in args])

    class Vmapped(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(ctx: Any, *values: Any) -> Any:
            return run.forward(ctx, values)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return run.backward(ctx, gradients)

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            return run.jvp(ctx, tangents)

    Vmapped._node.__name__ = f"Vmapped{cls.__name__}Backward"
    values = Vmapped.apply(*[level.value(a) for a in args])
    outputs = values if isinstance(values, tuple) else (values,)
    wrapped = [
        level.wrap(o) if batched else o for o, batched in zip(outputs, run.batched, strict=True)
    ]
    result = tuple(wrapped) if isinstance(values, tuple) else wrapped[0]
    constant = tuple([o for o, c in zip(wrapped, run.constant, strict=True) if c])
    return Called(run.inner, result, tuple(wrapped), constant, ())


class _Run:
    """One call: the ctx the user sees, and which of its tensors have the batch."""

    def __init__(self, cls: type[Function], level: BatchLevel, batched_inputs: list[bool]) -> None:
        self.cls = cls
        self.another = functools.partial(type(level), level.size, level.randomness)
        self.batched_inputs = batched_inputs
        self.inner: FunctionCtx = cls._node()
        self.batched: list[bool] = []
        self.constant: list[bool] = []
        self.saved: list[bool] = []  # which of the saved tensors have the batch
        self.for_forward: list[bool] = []  # and of those saved for jvp

    def forward(self, ctx: Any, values: Sequence[Any]) -> Any:
        inner, cls = self.inner, self.cls
        inner.needs_input_grad = ctx.needs_input_grad
        with self.another() as level:
            args = tuple(_wrapped(level, values, self.batched_inputs))
            if cls._methods_of().separate:
                output = cls.forward(*args)
                cls.setup_context(inner, args, output)
            else:
                output = cls.forward(inner, *args)
            if inner._dirty:
                _refuse_dirty(cls)
            outputs = output if isinstance(output, tuple) else (output,)
            self.batched = [level.holds(o) for o in outputs]
            self.constant = [any(o is c for c in inner._constant) for o in outputs]
            results = [level.value(o) for o in outputs]
            to_save, inner._to_save = inner._to_save or (), None
            self.saved = [level.holds(t) for t in to_save]
            ctx.save_for_backward(*[level.value(t) for t in to_save])
            for_forward, inner._for_forward = inner._for_forward, ()
            self.for_forward = [level.holds(t) for t in for_forward]
            ctx.save_for_forward(*[level.value(t) for t in for_forward])
        ctx.set_materialize_grads(inner._materialize)
        constant = [r for r, c in zip(results, self.constant, strict=True) if c]
        ctx.mark_non_differentiable(*constant)
        return tuple(results) if isinstance(output, tuple) else results[0]

    def jvp(self, ctx: Any, tangents: Sequence[Any]) -> Any:
        inner = self.inner
        with self.another() as level:
            saved = _wrapped(level, ctx.saved_tensors, self.for_forward)
            inner._saved = save(saved, seen=False)
            try:
                returned = self.cls.jvp(inner, *_wrapped(level, tangents, self.batched_inputs))
            finally:
                inner._saved = ()
            results = returned if isinstance(returned, tuple) else (returned,)
            pairs = zip(results, [*self.batched, *[False] * len(results)])
            moved = [self._tangent(level, t, batched) for t, batched in pairs]
            return tuple(moved) if isinstance(returned, tuple) else moved[0]

    def _tangent(self, level: BatchLevel, tangent: Any, batched: bool) -> Any:
        if not isinstance(tangent, Tensor):
            return tangent
        return level.full(tangent) if batched else level.value(tangent)

    def backward(self, ctx: Any, gradients: Sequence[Any]) -> Any:
        inner = self.inner
        with self.another() as level:
            saved = _wrapped(level, ctx.saved_tensors, self.saved)
            inner._saved = save(saved, seen=False)
            try:
                returned = inner._run_backward(*_wrapped(level, gradients, self.batched))
            finally:
                inner._saved = ()
            results = returned if isinstance(returned, tuple) else (returned,)
            pairs = zip(results, [*self.batched_inputs, *[False] * len(results)])
            return tuple([self._gradient(level, g, batched) for g, batched in pairs])

    def _gradient(self, level: BatchLevel, gradient: Any, batched: bool) -> Any:
        """The gradient of an argument: the examples' own, or their sum where they share it.

        A gradient without the batch comes of outputs that all examples share, and is the sum.
        """
        if not isinstance(gradient, Tensor):
            return gradient
        if batched:
            return level.full(gradient)
        return level.value(gradient).sum(0) if level.holds(gradient) else gradient


def _wrapped(level: BatchLevel, values: Sequence[Any], batched: Sequence[bool]) -> list[Any]:
    return [
        level.wrap(v) if b and isinstance(v, Tensor) else v
        for v, b in zip(values, batched, strict=True)
    ]


def _refuse_dirty(cls: type[Function]) -> NoReturn:
    raise RuntimeError(
        f"vmap: {cls.__name__} changes an input in place (mark_dirty), which generate_vmap_rule "
        "does not support; write its vmap staticmethod"
    )

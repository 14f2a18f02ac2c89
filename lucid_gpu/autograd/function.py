"""Custom functions: `Function` and the context object handed to its static methods.

The context *is* the node of the backward graph. It holds what backward needs of tensors in
`save_for_backward` and everything else as attributes, and never an output strongly.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from lucid_gpu.fusion import expression
from lucid_gpu.fusion.program import Program
from lucid_gpu.fusion.region import edge_of
from lucid_gpu.ops.record import modified, save, unpack
from lucid_gpu.tape.levels import innermost, open_levels
from lucid_gpu.tape.modes import no_grad, state
from lucid_gpu.tape.node import SECOND_TIME, AccumulateGrad, Edge, Node
from lucid_gpu.tensor import Tensor, _tensor, tensor_of

__all__ = ["Function", "FunctionCtx", "once_differentiable"]


class _SavedOutput:
    """An output kept without holding it: its value, and a weak reference for its version."""

    __slots__ = ("expr", "output", "reference", "version")

    def __init__(self, tensor: Tensor, output: int) -> None:
        self.reference = weakref.ref(tensor)
        self.expr: Any = None
        self.output = output
        self.version = tensor._version

    def settle(self) -> None:
        """Take the value once forward is over, without its edge to the node (a cycle)."""
        tensor = self.reference()
        if tensor is not None:
            self.expr = expression.without_grad(tensor._expr)
            self.version = tensor._version

    def unpack(self, node: FunctionCtx) -> Tensor:
        value = self.expr
        alive = self.reference()
        if alive is not None:
            if alive._version != self.version:
                raise modified(alive, self.version, node)
            value = expression.without_grad(alive._expr)  # perhaps realised by now
        result = tensor_of(value)
        if self.output not in node._constant_outputs:
            result._attach(node, self.output)
        return result


class FunctionCtx(Node):
    """What `Function.forward` and `Function.backward` share for one call.

    Attributes
    ----------
    needs_input_grad : tuple of bool
        One an argument of forward, tensor or not.
    saved_tensors : tuple of Tensor or None
        What `save_for_backward` was given, in order.
    """

    _function: type[Function]
    _run_backward: Callable[..., Any]  # the Function's backward, as a method of the node
    _to_save: tuple[Any, ...] | None = None
    _for_forward: tuple[Any, ...] = ()
    _saved: tuple[Any, ...] = ()
    _saved_output = False  # is one of them an output
    _dirty: tuple[Tensor, ...] = ()
    _constant_outputs: Any = ()
    _materialize = True
    _inputs: tuple[Program | None, ...] = ()  # of forward; None for what is no tensor
    _outputs: tuple[Program | None, ...] = ()
    needs_input_grad: tuple[bool, ...] = ()

    # --- for forward --------------------------------------------------------------------------

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for backward; a second call replaces the first.

        Raises
        ------
        TypeError
            For anything but tensors and None, naming its position.
        """
        for i, tensor in enumerate(tensors):
            if tensor is not None and not isinstance(tensor, Tensor):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument {i} is of type "
                    f"{type(tensor).__name__}; keep it as an attribute: ctx.name = value"
                )
        self._to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for jvp, where they are ``saved_tensors``.

        Raises
        ------
        AssertionError
            For anything but tensors and None, naming its position.
        """
        for i, tensor in enumerate(tensors):
            if tensor is not None and not isinstance(tensor, Tensor):
                raise AssertionError(
                    "save_for_forward expects all arguments to be tensors; you should save "
                    f"non-tensors as attributes on ctx: argument {i} is of type "
                    f"{type(tensor).__name__}; write ctx.name = value"
                )
        if open_levels:  # else no jvp will run, and nothing is to be kept for it
            self._for_forward = tensors

    def mark_dirty(self, *inputs: Tensor) -> None:
        """Say that forward changed these inputs in place."""
        self._dirty = inputs

    def mark_non_differentiable(self, *outputs: Tensor) -> None:
        """Say that these outputs have no gradient."""
        self._constant_outputs = outputs

    def set_materialize_grads(self, value: bool) -> None:
        """Whether undefined output gradients arrive as zeros (the default) or as None."""
        self._materialize = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        if self.released:
            raise RuntimeError(SECOND_TIME)
        if self._to_save is not None:  # still inside forward
            return self._to_save
        if self._saved_output:
            return tuple(
                [
                    s.unpack(self) if type(s) is _SavedOutput else unpack((s,), self)[0]
                    for s in self._saved
                ]
            )
        return unpack(self._saved, self)

    # --- for the engine -----------------------------------------------------------------------

    def vjp(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        if self._materialize:
            for c in cotangents:
                if c is None:
                    zeros = self._zeros
                    cotangents = [zeros(i) if c is None else c for i, c in enumerate(cotangents)]
                    break
        results = self._run_backward(*cotangents)
        if not isinstance(results, tuple):
            results = (results,)
        return self._checked(results)

    def _zeros(self, i: int) -> Any:
        program = self._outputs[i]
        if program is None:
            return None
        zeros = expression.of_constant(0.0, program.dtype, program.shape, program.device)
        return _tensor(zeros)

    def _checked(self, results: tuple[Any, ...]) -> Sequence[Any]:
        """One gradient a tensor among the inputs of forward, each fit for it."""
        inputs = self._inputs
        if len(results) != len(inputs):
            count = len(inputs)
            if len(results) < count or any(r is not None for r in results[count:]):
                self._wrong_count(len(results), count)
            results = results[:count]
        chosen: list[Tensor | None] = []
        for result, program in zip(results, inputs, strict=True):
            if result is None:
                if program is not None:
                    chosen.append(None)
                continue
            if program is None or not isinstance(result, Tensor):
                self._refuse(result, len(chosen), program)
            have = result._expr.program
            if (
                have.shape != program.shape
                or have.dtype is not program.dtype
                or have.device is not program.device
            ):
                result = self._fitted(result, len(chosen), program)
            chosen.append(result)
        return chosen

    def _refuse(self, result: Any, place: int, program: Program | None) -> NoReturn:
        if program is None:
            raise RuntimeError(
                f"function {self.name()} returned a gradient different from None at position "
                f"{place + 1}, but the corresponding forward input was not a Variable"
            )
        raise RuntimeError(
            f"function {self.name()}: expected Variable or None (got {type(result).__name__}) as "
            f"gradient {place}"
        )

    def _wrong_count(self, got: int, count: int) -> None:
        function = self._function
        names = ", ".join(function._parameter_names(count))
        raise RuntimeError(
            f"function {self.name()} returned an incorrect number of gradients (expected {count}, "
            f"got {got}): {function.__name__}.backward must return one value per argument of "
            f"forward ({names}). Return None for arguments without a gradient."
        )

    def _fitted(self, result: Tensor, place: int, program: Program) -> Tensor:
        shape, d, where = program.shape, program.dtype, program.device
        if result.device != where:
            raise RuntimeError(
                f"Function {self.name()} returned an invalid gradient at index {place} - expected "
                f"device {where} but got {result.device}"
            )
        if tuple(result.shape) != shape:
            from lucid_gpu.ops.reductions import sum_to_shape

            if not _can_sum(tuple(result.shape), shape):
                raise RuntimeError(
                    f"Function {self.name()} returned an invalid gradient at index {place} - got "
                    f"{list(result.shape)} but expected shape compatible with {list(shape)}"
                )
            result = sum_to_shape(result, shape)
        if result.dtype is not d:
            result = result.to(d)
        return result

    def release(self) -> None:
        if self._saved:
            self.released = True
            self._saved = ()


def _can_sum(have: tuple[int, ...], want: tuple[int, ...]) -> bool:
    if len(have) < len(want):
        return False
    return all(n in (1, m) for m, n in zip(have[::-1], want[::-1], strict=False))


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a backward that must not be differentiated: a second derivative raises."""

    @functools.wraps(function)
    def wrapped(ctx: Any, *cotangents: Any) -> Any:
        recording = state.grad and any(
            isinstance(c, Tensor) and c.requires_grad for c in (*cotangents, *_saved(ctx))
        )
        with no_grad():
            results = function(ctx, *cotangents)
        if not recording:
            return results
        many = results if isinstance(results, tuple) else (results,)
        marked = tuple([_refusing(r, ctx) if isinstance(r, Tensor) else r for r in many])
        return marked if isinstance(results, tuple) else marked[0]

    return wrapped


def _saved(ctx: FunctionCtx) -> Sequence[Any]:
    return ctx.saved_tensors


class _Refusing(Node):
    """Raises when a gradient arrives."""

    def vjp(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        raise RuntimeError(
            "trying to differentiate twice a function that was marked with @once_differentiable"
        )


def _refusing(result: Tensor, ctx: FunctionCtx) -> Tensor:
    marked = result.detach()
    marked._storage = None
    marked._attach(_Refusing(ctx.edges))
    return marked


class _FunctionMeta(type):
    """Makes, for each Function, the class of its nodes: ``<Name>Backward``."""

    _node: type[FunctionCtx]

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> None:
        super().__init__(name, bases, namespace)
        cls._node = type(f"{name}Backward", (FunctionCtx,), {"_function": cls})
        cls._plan: Any = None


class Function(metaclass=_FunctionMeta):
    """Base of functions with a gradient of their own.

    Subclasses define static methods ``forward(ctx, *args)``, or ``forward(*args)`` with
    ``setup_context(ctx, inputs, output)``, and ``backward(ctx, *grad_outputs)``; they are called
    with ``MyFunction.apply(*args)``.

    Examples
    --------
    >>> import lucid_gpu
    >>> class Cube(lucid_gpu.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x ** 3
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         (x,) = ctx.saved_tensors
    ...         return grad * 3 * x ** 2
    >>> x = lucid_gpu.tensor(2.0, requires_grad=True)
    >>> Cube.apply(x).backward()
    >>> x.grad
    tensor(12.)
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use "
            "new-style autograd function with static forward method: call "
            f"{type(self).__name__}.apply(...) on the class."
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the outputs; tensor arithmetic here is not recorded."""
        raise NotImplementedError(
            "You must implement the forward function for custom autograd.Function."
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Save what backward needs, where ``forward`` takes no ctx."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """From one gradient an output, compute one an argument of forward."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom "
            "autograd.Function to use it with backward mode AD."
        )

    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        """From one tangent an argument of forward, None for no tensor, compute one an output."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with "
            "forward mode AD."
        )

    @classmethod
    def _plan_of(cls) -> _Plan:
        plan: _Plan | None = cls.__dict__.get("_plan")
        if plan is None:
            plan = cls._plan = _Plan(cls)
            cls._node._run_backward = plan.backward
        return plan

    @classmethod
    def _parameter_names(cls, count: int) -> list[str]:
        names = [p for p in cls._plan_of().names if p != "ctx"]
        return (names + [f"argument {i}" for i in range(len(names), count)])[:count]

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward and record the call.

        Returns
        -------
        Tensor or tuple
            What forward returned; tensors carry this function as their ``grad_fn``.
        """
        plan: Any = cls.__dict__["_plan"]
        if plan is None:
            plan = cls._plan_of()
        if kwargs or len(args) < plan.required:
            args = plan.bind(args, kwargs)
        if open_levels:
            level = innermost(args)
            if level is not None:
                return level.function(cls, args).result
        ctx = cls._node()
        recording = state.grad
        ctx.needs_input_grad = needs = tuple(
            [isinstance(a, Tensor) and a._expr.program.needs_grad for a in args]
        )
        state.grad = recording and False  # inference mode stays
        try:
            if plan.separate:
                output = cls.forward(*args)
                cls.setup_context(ctx, args, output)
            else:
                output = cls.forward(ctx, *args)
        finally:
            state.grad = recording
        recording = recording and True in needs
        plain = type(output) is Tensor and not ctx._dirty and not ctx._constant_outputs
        if recording and plain and output._expr.program.dtype.category >= 2:
            return _finish_one(ctx, args, output)
        return _finish(ctx, args, output, recording)


class _Plan:
    """What is known of a Function's methods, found out once."""

    __slots__ = ("backward", "defaults", "names", "required", "separate", "signature")

    def __init__(self, function: type[Function]) -> None:
        own_backward = function.backward is not Function.backward
        own_vjp = function.vjp is not Function.vjp
        if own_backward and own_vjp:
            raise RuntimeError(
                "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You "
                "should only implement one of them."
            )
        self.backward = function.vjp if own_vjp else function.backward
        self.separate = function.setup_context is not Function.setup_context
        if function.forward is Function.forward:
            Function.forward()
        self.signature = inspect.signature(function.forward)
        parameters = list(self.signature.parameters.values())
        if not self.separate:
            parameters = parameters[1:]
        self.names = [
            p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        keyword_only = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
        variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        self.required = 0 if variadic and not self.names else len(self.names) + len(keyword_only)
        self.defaults = {p.name: p.default for p in parameters if p.default is not p.empty}

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Arguments by position, keywords and defaults included."""
        lead = () if self.separate else (None,)
        bound = self.signature.bind(*lead, *args, **kwargs)
        bound.apply_defaults()
        if bound.kwargs:
            raise TypeError(
                "apply() cannot pass keyword-only arguments to forward: " + ", ".join(bound.kwargs)
            )
        return bound.args[len(lead) :]


def _connect(ctx: FunctionCtx, args: tuple[Any, ...]) -> None:
    """Note where each argument's gradient goes, and what it must look like."""
    edges: list[Edge] = []
    inputs: list[Program | None] = []
    for a in args:
        if isinstance(a, Tensor):
            expr = a._expr
            edges.append(edge_of(expr))
            inputs.append(expr.program)
        else:
            inputs.append(None)
    ctx.edges = tuple(edges)
    ctx._inputs = tuple(inputs)


def _finish_one(ctx: FunctionCtx, args: tuple[Any, ...], output: Tensor) -> Tensor:
    """`_finish` for what nearly every Function returns: one tensor with a gradient."""
    for a in args:
        if output is a:
            output = output.detach()
    _connect(ctx, args)
    ctx._outputs = (output._expr.program,)
    if output._expr.program.needs_grad:
        output._cut()
    output._attach(ctx)
    to_save = ctx._to_save
    ctx._to_save = None
    if to_save:
        ctx._saved = tuple(
            [
                None if t is None else save(t) if t is not output else _save_output(ctx, t, 0)
                for t in to_save
            ]
        )
        _store_together(to_save, (output,))
    return output


def _finish(ctx: FunctionCtx, args: tuple[Any, ...], output: Any, recording: bool) -> Any:
    """Check what forward returned and tie it to the node."""
    single = not isinstance(output, tuple)
    outputs: list[Any] = [output] if single else list(output)
    if not recording and not ctx._dirty:
        ctx._to_save = None
        fresh = [_fresh(o, args) for o in outputs]
        return fresh[0] if single else tuple(fresh)
    dirty = ctx._dirty
    if dirty:
        _check_dirty(ctx, args, outputs)
    constant_outputs = ctx._constant_outputs
    if recording:
        _connect(ctx, args)
        ctx.outputs = len(outputs)
        ctx._outputs = tuple([o._expr.program if isinstance(o, Tensor) else None for o in outputs])
    to_save, ctx._to_save = ctx._to_save, None
    done: dict[int, Any] = {}
    given = {id(o): i for i, o in enumerate(outputs) if isinstance(o, Tensor)}
    results = []
    marked = {id(t) for t in constant_outputs}
    for i, o in enumerate(outputs):
        if not isinstance(o, Tensor):
            results.append(o)
            continue
        if id(o) in done:
            results.append(done[id(o)])
            continue
        is_dirty = any(o is d for d in dirty)
        result = o if is_dirty else _fresh(o, args)
        if recording and id(o) not in marked and result.dtype.category >= 2:
            if result._expr.program.needs_grad:
                result._cut()
            result._attach(ctx, i)
            if is_dirty and result._storage is not None:
                from lucid_gpu.ops.views import share_history

                share_history(result)
        done[id(o)] = result
        results.append(result)
    if recording:
        ctx._constant_outputs = {given[m] for m in marked if m in given}
        if to_save:
            ctx._saved = tuple(
                [
                    None
                    if t is None
                    else _save_output(ctx, done[id(t)], given[id(t)])
                    if id(t) in given
                    else save(t)
                    for t in to_save
                ]
            )
            _store_together(to_save, results)
    return results[0] if single else tuple(results)


def _fresh(output: Any, args: tuple[Any, ...]) -> Any:
    """An input returned as it is comes back as an alias."""
    if isinstance(output, Tensor) and any(output is a for a in args):
        return output.detach()
    return output


def _store_together(saved: Sequence[Any], results: Sequence[Any]) -> None:
    """A chain of functions long enough to be cut into kernels stores what it saved on the way.

    Otherwise backward would compute the chain again from its start for each function in it.
    """
    for tensor in saved:
        if tensor is None or tensor._expr.program.is_load:
            continue
        group = tensor._siblings
        if group is None:
            group = tensor._siblings = []
        group.append(weakref.ref(tensor))
        for result in results:
            if isinstance(result, Tensor):
                result._siblings = group


def _save_output(ctx: FunctionCtx, tensor: Tensor, number: int) -> _SavedOutput:
    ctx._saved_output = True
    saved = _SavedOutput(tensor, number)
    saved.settle()
    return saved


def _check_dirty(ctx: FunctionCtx, args: tuple[Any, ...], outputs: list[Any]) -> None:
    for tensor in ctx._dirty:
        if not any(tensor is a for a in args):
            raise RuntimeError(
                f"{ctx.name()}: mark_dirty was given a tensor that is not an input of forward; "
                "mark the inputs that forward changed in place"
            )
        node = tensor._edge()[0] if tensor.requires_grad else None
        if state.grad and isinstance(node, AccumulateGrad):
            raise RuntimeError(
                "a leaf Variable that requires grad is being used in an in-place operation: "
                f"{ctx.name()} marked it dirty"
            )
        if not any(tensor is o for o in outputs):
            raise RuntimeError(
                "Some elements marked as dirty during the forward method were not returned as "
                "output. The inputs that are modified inplace must all be outputs of the Function."
            )

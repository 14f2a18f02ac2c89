"""Custom functions: `Function` and the context object handed to its static methods.

The context *is* the node of the backward graph. It holds what backward needs of tensors in
`save_for_backward` and everything else as attributes, and never an output strongly.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from lucid_gpu.autograd.methods import Methods
from lucid_gpu.autograd.outputs import finish, finish_one
from lucid_gpu.autograd.second_derivatives import (
    differentiable,
    once_differentiable,
    refusing_what_lacks,
)
from lucid_gpu.core.layout import sums_to
from lucid_gpu.core.node import SECOND_TIME, Node
from lucid_gpu.core.program import Program, Shape
from lucid_gpu.core.value import Like
from lucid_gpu.devices import backend_of_array
from lucid_gpu.devices.cuda_errors import tell_what_to_write
from lucid_gpu.fusion import building
from lucid_gpu.ops.record import unpack
from lucid_gpu.ops.saved_values import SavedTensor
from lucid_gpu.tape.door import type_name
from lucid_gpu.tape.levels import innermost, open_levels
from lucid_gpu.tape.modes import FORWARD, OFF, set_mode, state, surrounded
from lucid_gpu.tape.native import core
from lucid_gpu.tensor import Tensor, _tensor

__all__ = [
    *("Function", "FunctionCtx", "FunctionMeta", "InplaceFunction", "NestedIOFunction"),
    "once_differentiable",
]


_NOT_WRITABLE = (
    "attribute '{}' of '{}' objects is not writable: in forward, write "
    "ctx.save_for_backward(*tensors)"
)


class FunctionCtx(Node):
    """The state that `Function.forward` and `Function.backward` of one call share.

    Attributes
    ----------
    needs_input_grad : tuple of bool
        One for each argument of forward, tensor or not.
    saved_tensors : tuple of Tensor or None
        What `save_for_backward` was given, in order.
    """

    _function: type[Function]
    _run_backward: Callable[..., Any]  # the Function's backward, as a method of the node
    _to_save: tuple[Any, ...] | None = None
    _for_forward: tuple[Any, ...] = ()
    _saved: tuple[Any, ...] = ()
    _dirty: tuple[Any, ...] = ()
    _constant: tuple[Any, ...] = ()  # outputs without a gradient
    _materialize = True
    _materialize_non_diff_grads = True  # for outputs without a gradient too
    _inputs: tuple[tuple[Program, Shape] | None, ...] = ()  # of forward; None for what is no tensor
    _outputs: tuple[tuple[Program, Shape] | None, ...] = ()
    _defaulted = 0  # how many of the last inputs are defaults
    _recorded = False  # is backward running under create_graph=True
    _lacking: str | None = None  # why its results are no further differentiable by inputs
    _surroundings: tuple[Any, ...] = ()  # what forward ran in, and backward runs in
    needs_input_grad: tuple[bool, ...] = ()
    requires_grad = True

    # --- for forward --------------------------------------------------------------------------

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors, of any shape, for backward; a second call replaces the first.

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
        """Keep tensors, of any shape, for jvp, where they are ``saved_tensors``.

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
        """Say that forward changed these inputs in place; it must return them too.

        RuntimeError for anything but a tensor.
        """
        for i, tensor in enumerate(inputs):
            if not isinstance(tensor, Tensor):
                raise RuntimeError(
                    f"mark_dirty can only accept variables, but argument {i} is of type "
                    f"{type(tensor).__name__}"
                )
        self._dirty = inputs

    def mark_non_differentiable(self, *outputs: Tensor) -> None:
        """Say that these outputs have no gradient; backward gets one, of their shape, for each.

        RuntimeError for anything but a tensor.
        """
        for output in outputs:
            if not isinstance(output, Tensor):
                raise RuntimeError(
                    "mark_non_differentiable only accepts variable arguments, but got "
                    f"{type(output).__name__}"
                )
        self._constant = outputs

    def set_materialize_grads(self, value: bool) -> None:
        """Whether undefined output gradients arrive as zeros (the default) or as None.

        TypeError for anything but a bool.
        """
        if not isinstance(value, bool):
            raise TypeError(
                "set_materialize_grads received an invalid combination of arguments - got "
                f"({type(value).__name__}), but expected (bool)"
            )
        self._materialize = value

    def mark_shared_storage(self, *pairs: Any) -> None:
        """Do nothing, with a warning: shared memory is known without being told."""
        warnings.warn(
            "`mark_shared_storage` is deprecated. Tensors with shared storages are automatically "
            "tracked. Note that calls to `set_()` are not tracked",
            FutureWarning,
            stacklevel=2,
        )

    # --- older names --------------------------------------------------------------------------

    @property
    def to_save(self) -> tuple[Any, ...] | None:
        """What `save_for_backward` was given, while forward runs."""
        return self._to_save

    @to_save.setter
    def to_save(self, tensors: tuple[Any, ...]) -> None:
        if not isinstance(tensors, tuple):
            raise RuntimeError(
                "autograd internal error: to_save attribute is expected to be a tuple but is "
                f"{type(tensors).__name__}; call ctx.save_for_backward(...)"
            )
        self.save_for_backward(*tensors)

    @property
    def dirty_tensors(self) -> tuple[Any, ...] | None:
        """What `mark_dirty` was given, while forward runs."""
        return self._dirty or None

    @dirty_tensors.setter
    def dirty_tensors(self, tensors: tuple[Any, ...]) -> None:
        self.mark_dirty(*tensors)

    @property
    def non_differentiable(self) -> tuple[Any, ...] | None:
        """What `mark_non_differentiable` was given, while forward runs."""
        return self._constant or None

    @non_differentiable.setter
    def non_differentiable(self, tensors: tuple[Any, ...]) -> None:
        self.mark_non_differentiable(*tensors)

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        """The old name of `saved_tensors`."""
        warnings.warn(
            "'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2
        )
        return self.saved_tensors

    @saved_variables.setter
    def saved_variables(self, tensors: Any) -> NoReturn:
        raise AttributeError(_NOT_WRITABLE.format("saved_variables", self.name()))

    # --- for backward -------------------------------------------------------------------------

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` was given, in order.

        Raises
        ------
        RuntimeError
            If a tensor was written in place since, and where a backward pass has freed them.
        """
        if self._released:
            raise RuntimeError(SECOND_TIME)
        tensors = unpack(self._saved, self)
        if self._recorded and state.grad:
            return differentiable(self, tensors)
        return tensors

    @saved_tensors.setter
    def saved_tensors(self, tensors: Any) -> NoReturn:
        raise AttributeError(_NOT_WRITABLE.format("saved_tensors", self.name()))

    @property
    def _raw_saved_tensors(self) -> tuple[SavedTensor, ...]:
        if self._released:
            raise RuntimeError(SECOND_TIME)
        return tuple(
            [
                SavedTensor._of(self, "_saved", e if e is None else i)
                for i, e in enumerate(self._saved)
            ]
        )

    @property
    def _input_metadata(self) -> Sequence[Any]:
        return tuple([None if pair is None else Like(*pair) for pair in self._outputs])

    def apply(self, *grad_outputs: Any) -> Any:
        """Call the function's backward."""
        return self._run_backward(*grad_outputs)

    runs_user_code = True

    # --- for the engine -----------------------------------------------------------------------

    def vjp(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        """The gradients of the inputs that backward gives, checked; what the engine calls."""
        if state.task is not None and state.task.background:
            state.task.settle()
        if self._materialize:
            for c in cotangents:
                if c is None:
                    zeros = self._zeros
                    cotangents = [zeros(i) if c is None else c for i, c in enumerate(cotangents)]
                    break
        try:
            if self._surroundings:
                with surrounded(self._surroundings):
                    results = self._run_recorded(cotangents)
            elif state.grad:
                results = self._run_recorded(cotangents)
            else:
                results = self._run_backward(*cotangents)
        except AttributeError as error:
            tell_what_to_write(error)
            raise
        return self._checked(results)

    def _run_recorded(self, cotangents: Sequence[Any]) -> Any:
        self._recorded = state.grad
        try:
            results = self._run_backward(*cotangents)
            if self._lacking is None:
                return results
            return refusing_what_lacks(self, results, self._lacking)
        finally:
            self._recorded, self._lacking = False, None

    def _zeros(self, i: int) -> Any:
        pair = self._outputs[i]
        if pair is None:
            return None
        program, shape = pair
        return _tensor(building.of_constant(0.0, program.dtype, shape, program.device))

    def _checked(self, results: Any) -> Sequence[Any]:
        """One gradient a tensor among the inputs of forward, each fit for it."""
        if not isinstance(results, tuple):
            if results is not None and not isinstance(results, Tensor):
                self._refuse_kind(results)
            results = (results,)
        inputs = self._inputs
        if len(results) != len(inputs):
            results = self._as_many(results, len(inputs))
        chosen: list[Tensor | None] = []
        for result, wanted in zip(results, inputs):
            if result is None:
                if wanted is not None:
                    chosen.append(None)
                continue
            if wanted is None or not isinstance(result, Tensor):
                self._refuse(results)
            program, shape = wanted
            have = result._expr.program
            if (
                result._expr.shape != shape
                or have.dtype is not program.dtype
                or have.device is not program.device
            ):
                result = self._fitted(result, len(chosen), program, shape)
            chosen.append(result)
        return chosen

    def _as_many(self, results: tuple[Any, ...], count: int) -> tuple[Any, ...]:
        """Without what is None beyond the inputs, and with None for defaults left off."""
        got = len(results)
        if count - self._defaulted <= got < count:
            return results + (None,) * (count - got)
        if got < count or any(r is not None for r in results[count:]):
            self._refuse_count(got, count)
        return results[:count]

    def _refuse_kind(self, result: Any) -> NoReturn:
        """Say that what backward returned is neither a tensor nor a tuple of tensors."""
        several = hasattr(type(result), "__iter__") and backend_of_array(result) is None
        kind, name = type_name(result), self._function.__name__
        mend = "a tuple, one gradient for each argument of forward" if several else _AS_TENSOR
        raise RuntimeError(
            f"function {self.name()}: expected Variable or None (got {kind}): {name}.backward "
            f"returned a {kind}; return {mend}"
        )

    def _refuse(self, results: tuple[Any, ...]) -> NoReturn:
        """Say which result is no gradient for its input."""
        for index, (result, wanted) in enumerate(zip(results, self._inputs, strict=True)):  # noqa: B007
            if result is not None and (wanted is None or not isinstance(result, Tensor)):
                break
        name = self._function._methods_of().parameter_names(index + 1)[index]
        if wanted is None:
            raise RuntimeError(
                f"function {self.name()} returned a gradient different than None at position "
                f"{index + 1}, but the corresponding forward input was not a Variable: return None "
                f"for {name}"
            )
        raise RuntimeError(
            f"function {self.name()}: expected Variable or None (got {type_name(result)}) as "
            f"gradient {index}, of {name}: return {_AS_TENSOR}"
        )

    def _refuse_count(self, got: int, count: int) -> NoReturn:
        function = self._function
        names = function._methods_of().parameter_names(count)
        mend = ""
        if got < count:
            what = "a gradient or None" if True in self.needs_input_grad[got:] else "None"
            mend = f" Return {what} for {' and '.join(names[got:])}."
        raise RuntimeError(
            f"function {self.name()} returned an incorrect number of gradients (expected {count}, "
            f"got {got}): {function.__name__}.backward must return one value per argument of "
            f"forward ({', '.join(names)}); got {got}.{mend}"
        )

    def _fitted(self, result: Tensor, index: int, program: Program, shape: Shape) -> Tensor:
        """A gradient summed and cast to its input; unneeded ones are dropped as they are."""
        if self._edges[index][0] is None:
            return result
        d, where = program.dtype, program.device
        invalid = f"Function {self.name()} returned an invalid gradient at index {index} - "
        if result.device != where:
            raise RuntimeError(f"{invalid}expected device {where} but got {result.device}")
        if result.dtype.is_complex and not d.is_complex:
            raise RuntimeError(
                f"{invalid}got {result.dtype.name} for an input of type {d.name}: Expected "
                "isFloatingType(grad.scalar_type()) || (input_is_complex == grad_is_complex) to "
                "be true, but got false. Return its real part."
            )
        if tuple(result.shape) != shape:
            from lucid_gpu.ops.reductions import sum_to_shape

            if not sums_to(tuple(result.shape), shape):
                raise RuntimeError(
                    f"{invalid}got {list(result.shape)} but expected shape compatible with "
                    f"{list(shape)}"
                )
            result = sum_to_shape(result, shape)
        if result.dtype is not d:
            result = result.to(d)
        return result

    def release(self) -> None:
        self._released = True
        self._saved = ()


if core is not None:
    core.bind(function=FunctionCtx, tell=tell_what_to_write)


_AS_TENSOR = "a tensor: lucid_gpu.as_tensor(...) makes one of an array or a number"


def _refuse_keywords(function: type[Function], keywords: dict[str, Any]) -> None:
    if keywords:
        raise NotImplementedError(
            f"{function.__name__}.apply() cannot pass on what forward takes by keyword only "
            f"({', '.join(keywords)}) under forward-mode AD or vmap, nor kwarg-only Tensor args: "
            "let forward take it by position"
        )


class _ReadOnce(FunctionCtx):
    """Lets go of each saved tensor when backward takes them (`clear_saved_tensors_on_access`)."""

    _read = False

    @FunctionCtx.saved_tensors.getter  # type: ignore[attr-defined]
    def saved_tensors(self) -> tuple[Any, ...]:
        if self._read and not self._released:
            raise RuntimeError(
                "saved_tensors can only be accessed once when clear_saved_tensors_on_access=True "
                "is set on the autograd.Function. Either access saved_tensors only once, or set "
                "clear_saved_tensors_on_access=False."
            )
        tensors = super().saved_tensors
        self._read, self._saved = True, ()
        return tensors


class FunctionMeta(type):
    """Makes, for each Function, the class of its nodes: ``<Name>Backward``."""

    _node: type[FunctionCtx]
    clear_saved_tensors_on_access: bool

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> None:
        super().__init__(name, bases, namespace)
        kind = _ReadOnce if cls.clear_saved_tensors_on_access else FunctionCtx
        cls._node = type(f"{name}Backward", (kind,), {"_function": cls})
        cls._methods: Any = None

    @property
    def _backward_cls(cls) -> type[FunctionCtx]:
        """PyTorch's name of the class of nodes."""
        return cls._node


class Function(metaclass=FunctionMeta):
    """Base class of functions with a custom gradient.

    Subclasses define static methods ``forward(ctx, *args)``, or ``forward(*args)`` with
    ``setup_context(ctx, inputs, output)``, and ``backward(ctx, *grad_outputs)``; they are called
    with ``MyFunction.apply(*args)``.

    Attributes
    ----------
    clear_saved_tensors_on_access : bool
        Whether reading ``ctx.saved_tensors`` lets go of them; they can then be read once.
    boxed_grads_call : bool
        Whether backward takes one list of gradients, from which it may remove them.
    generate_vmap_rule : bool
        Whether `lucid_gpu.func.vmap` may run forward and backward on batched tensors.

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

    clear_saved_tensors_on_access = False
    boxed_grads_call = False
    generate_vmap_rule = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all "
            "static, so you should invoke them on the class itself. Instantiating an autograd "
            "function will raise an error in a future version of PyTorch.",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use "
            "new-style autograd function with static forward method:\n"
            "    @staticmethod  # above forward(ctx, ...), with ctx in the place of self\n"
            f"    {type(self).__name__}.apply(...)  # in the place of {type(self).__name__}()(...)"
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the outputs; tensor arithmetic here is not recorded.

        NotImplementedError if a subclass has none.
        """
        raise NotImplementedError(
            "You must implement the forward function for custom autograd.Function."
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Save what backward needs, where ``forward`` takes no ctx.

        NotImplementedError if a subclass has none and its ``forward`` takes no ctx.
        """
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Compute a gradient for each argument of forward, from one for each output.

        NotImplementedError if a subclass has none.
        """
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom "
            "autograd.Function to use it with backward mode AD."
        )

    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        """Compute a tangent for each output, from one (or None) for each argument of forward.

        NotImplementedError if a subclass has none.
        """
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with "
            "forward mode AD."
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        """Compute a whole batch: from arguments with a dimension more, outputs with one more.

        Parameters
        ----------
        info : VmapInfo
            ``info.batch_size`` and ``info.randomness``.
        in_dims : tuple of int or None
            Which dimension of each argument counts the examples.

        Returns
        -------
        output, out_dims

        Raises
        ------
        NotImplementedError
            If a subclass has none and does not set ``generate_vmap_rule``.
        """
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or "
            "set generate_vmap_rule=True."
        )

    @classmethod
    def _methods_of(cls) -> Methods:
        methods: Methods | None = cls.__dict__["_methods"]
        if methods is None:
            methods = cls._methods = Methods(cls, Function)
            cls._node._run_backward = methods.backward
        return methods

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward and record the call.

        Keywords and defaults are bound by forward's signature.

        Returns
        -------
        Tensor or tuple
            What forward returned; tensors carry this function as their ``grad_fn``.

        Raises
        ------
        NotImplementedError
            If forward-mode or vmap cannot pass on what forward takes by keyword only.
        """
        methods: Any = cls.__dict__["_methods"]
        if methods is None:
            methods = cls._methods_of()
        ctx = cls._node()
        if state.surroundings:
            ctx._surroundings = state.surroundings
        if kwargs or len(args) < methods.required:
            args, kwargs, ctx._defaulted = methods.bind(args, kwargs)
        if open_levels:
            level = innermost(args)
            if level is not None:
                _refuse_keywords(cls, kwargs)
                called = level.function(cls, args)
                called.ctx._for_forward = ()
                return called.result
        before, needs = state.mode, []
        for a in args:
            needs.append(isinstance(a, Tensor) and a._expr.program.needs_grad)
        ctx.needs_input_grad = tuple(needs)
        recording = state.grad and True in needs
        if state.grad:
            set_mode(FORWARD if recording else OFF)
        try:
            if methods.separate:
                output = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, output)
            else:
                output = cls.forward(ctx, *args, **kwargs)
        except AttributeError as error:
            tell_what_to_write(error)
            raise
        finally:
            set_mode(before)
        plain = type(output) is Tensor and not ctx._dirty and not ctx._constant
        if recording and plain and output._expr.program.dtype.category >= 2:
            return finish_one(ctx, args, output)
        return finish(ctx, args, output, None if before is FORWARD else recording)


class InplaceFunction(Function):
    """An older name of `Function`, kept so that programs which use it run."""


class NestedIOFunction(Function):
    """An older base of functions of nested tensors, for `issubclass`; calls refuse as PyTorch's."""

"""Grad mode and saved-tensor hooks: one state a thread.

While hooks watch what is saved for backward, recording is `WATCHED` instead of True: as true, and
another key for every remembered program, so that each op comes by the slow path, which asks.
"""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

DECORATED_CLASS = (
    "Decorating classes is deprecated and will be disabled in future versions. You should only "
    "decorate functions or methods. To preserve the current behavior of class decoration, you can "
    "directly decorate the `__init__` method and nothing else."
)


WATCHED = 2
INFERENCE: Any = ()  # what `state.grad` is in inference mode: false, and a key of its own


class _State(threading.local):
    """What one thread does.

    Attributes
    ----------
    grad : bool, int or None
        Whether ops are recorded: ``recording``, False, or None inside `Function.forward`, where
        what depends on inputs that require grad is told from constants.
    recording : bool or int
        How: True, or `WATCHED` by saved-tensor hooks.
    hooks : tuple of (pack, unpack)
        Saved-tensor hooks, the innermost last.
    no_hooks : str or None
        Why hooks may not be set now.
    off : bool or ()
        What ``grad`` is where nothing is recorded: False, or `INFERENCE`.
    task : Task or None
        The backward pass that is running.
    node : Node or None
        The node that is running, where anomaly mode asks.
    of_arrays : int
        Inside how many functions of arrays that `lucid_gpu.numpy` differentiates.
    transforms : int
        Inside how many functions that `lucid_gpu.func` differentiates.
    linearizing : bool
        Whether gradients are taken to be transposed: see `lucid_gpu.func.linearize`.
    took_history : list of weak references to Tensor
        What a write there gave a history that it had not.
    in_op : bool
        Whether an op's body is running that autocast has seen: what it calls is not cast again.
    step : int
        The number of the step that this thread is in: see `lucid_gpu.fusion.scheduler.begin_step`.
    override_level : int
        0 where objects and modes that override ops are asked, 1 where modes are, 2 where nobody is:
        see `lucid_gpu.tape.overrides`.
    function_modes : tuple of TorchFunctionMode
        Those that this thread is in, the innermost last.
    tangents : bool
        Whether ops act on tangents.
    surroundings : tuple of objects with a method ``again``
        What the forward that runs is inside of, the innermost last: see `surrounded`.
    multithreading : bool
        What `lucid_gpu.autograd.set_multithreading_enabled` said.
    composing : bool
        Whether ``LUCID_EAGER=1`` waits for the end of an op: see `lucid_gpu.tape.door.op`.
    written : dict
        Tensors written in place whose values wait for this thread's next kernel: see
        `lucid_gpu.fusion.scheduler`.
    """

    grad: Any = True
    recording: Any = True
    hooks: tuple[Any, ...] = ()
    no_hooks: str | None = None
    off: Any = False
    task: Any = None
    node: Any = None
    of_arrays: int = 0
    transforms: int = 0
    linearizing: bool = False
    in_op: bool = False
    composing: bool = False
    override_level: int = 0
    function_modes: tuple[Any, ...] = ()
    step: int = 0
    tangents: bool = True
    surroundings: tuple[Any, ...] = ()
    multithreading: bool = True

    def __init__(self) -> None:
        self.written: dict[int, Any] = {}
        self.took_history: list[Any] = []


state = _State()
watchers = 0  # pairs of saved-tensor hooks set on any thread, and one for inference mode once used
_counting = threading.Lock()


def is_grad_enabled() -> bool:
    """Whether ops on this thread are recorded."""
    return bool(state.grad)


def watch(hooks: tuple[Any, ...]) -> None:
    """Let these pairs of hooks, the last of them, watch what this thread saves for backward."""
    global watchers
    with _counting:
        watchers += len(hooks) - len(state.hooks)
    state.hooks = hooks
    if state.off is not INFERENCE:
        state.recording = WATCHED if hooks else True
        state.grad = state.grad and state.recording


@contextmanager
def surrounded(by: tuple[Any, ...]) -> Iterator[None]:
    """Go back into surroundings of a forward, for code of it that runs in backward.

    Parameters
    ----------
    by : tuple
        What ``state.surroundings`` was then; ``again()`` of each is a context manager that is
        entered, unless its owner is open already.
    """
    with ExitStack() as blocks:
        for one in by:
            if one not in state.surroundings:
                blocks.enter_context(one.again())
        yield


class DecoratorContextManager:
    """A context manager that is also a decorator: each call runs under its `clone`."""

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, *_: object) -> Any:
        raise NotImplementedError

    def clone(self) -> Any:
        """Another one like it; one whose constructor takes arguments defines its own."""
        return type(self)()

    def __call__(self, function: F) -> F:
        if inspect.isgeneratorfunction(function):
            return cast(F, _wrap_generator(self.clone, function))
        if inspect.isclass(function):
            warnings.warn(DECORATED_CLASS, FutureWarning, stacklevel=2)
            return self(_constructor_of(function))

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self.clone():
                return function(*args, **kwargs)

        return cast(F, wrapped)


class _Mode(DecoratorContextManager):
    """A grad mode, which decorates with and without parentheses."""

    _value: bool

    def __new__(cls, function: Any = None) -> Any:
        self = super().__new__(cls)
        if callable(function):
            self.__init__()  # type: ignore[misc]
            return self(function)
        return self

    def __init__(self) -> None:
        self._before: list[Any] = []

    def __enter__(self) -> None:
        self._before.append(state.grad)
        state.grad = state.recording if self._value else state.grad and state.off

    def __exit__(self, *_: object) -> None:
        state.grad = self._before.pop()


def _constructor_of(kind: Callable[..., Any]) -> Any:
    """A function that makes objects of a class."""

    @functools.wraps(kind, updated=())
    def construct(*args: Any, **kwargs: Any) -> Any:
        return kind(*args, **kwargs)

    return construct


def _wrap_generator(mode: Callable[[], Any], function: Callable[..., Any]) -> Any:
    """Run each stretch of a generator under the mode, and the caller's code without it."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        try:
            with mode():
                answer = next(generator)
            while True:
                try:
                    request = yield answer
                except GeneratorExit:
                    with mode():
                        generator.close()
                    raise
                except BaseException as error:
                    with mode():
                        answer = generator.throw(error)
                else:
                    with mode():
                        answer = generator.send(request)
        except StopIteration as end:
            return end.value

    return wrapped


class no_grad(_Mode):
    """Do not record ops: ``with no_grad():`` or ``@no_grad()``."""

    _value = False


class enable_grad(_Mode):
    """Record ops, inside `no_grad`: ``with enable_grad():`` or ``@enable_grad()``."""

    _value = True


class inference_mode(_Mode):
    """Do not record ops, nor let what is made here ever be recorded.

    Tensors made in this mode count no versions, cannot be saved for backward and are not written
    in place outside. ``inference_mode(False)`` is the ordinary mode, inside this one.
    """

    def __new__(cls, mode: Any = True) -> Any:
        if callable(mode):
            return cls()(mode)
        return object.__new__(cls)

    def __init__(self, mode: bool = True) -> None:
        super().__init__()
        self.mode = bool(mode)

    def clone(self) -> _Mode:
        return inference_mode(self.mode)

    def __enter__(self) -> None:
        self._before.append((state.grad, state.recording, state.off))
        if self.mode:
            _look_at_what_is_saved()
            state.grad = state.recording = state.off = INFERENCE
        else:
            state.grad = state.recording = WATCHED if state.hooks else True
            state.off = False

    def __exit__(self, *_: object) -> None:
        state.grad, state.recording, state.off = self._before.pop()


def is_inference_mode_enabled() -> bool:
    """Whether this thread is in inference mode."""
    return state.off is INFERENCE


@functools.cache
def _look_at_what_is_saved() -> None:
    """From the first use of inference mode on, what it made is not saved for backward."""
    global watchers
    with _counting:
        watchers += 1


class set_grad_enabled(_Mode):
    """Switch recording on or off, at once, and back at the end of a ``with`` block."""

    def __new__(cls, mode: bool) -> Any:
        return object.__new__(cls)

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self._value = bool(mode)
        self._entered = state.grad
        state.grad = state.recording if self._value else state.grad and state.off

    def clone(self) -> _Mode:
        return set_grad_enabled(self._value)

    def __enter__(self) -> None:
        self._before.append(self._entered)
        state.grad = state.recording if self._value else state.grad and state.off

    def __call__(self, function: F) -> F:
        state.grad = self._entered  # a decorator switches only inside the function
        return super().__call__(function)

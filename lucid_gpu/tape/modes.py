"""Grad mode and saved-tensor hooks: one state a thread.

The mode is a key of every program that is remembered: while hooks watch what is saved for backward,
each op comes by the slow path, which asks.
"""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

DECORATED_CLASS = (
    "Decorating classes is deprecated and will be disabled in future versions. You should only "
    "decorate functions or methods. To preserve the current behavior of class decoration, you can "
    "directly decorate the `__init__` method and nothing else."
)


class Mode(Enum):
    """What becomes of the ops that a thread calls."""

    RECORDED = "recorded"
    WATCHED = "recorded, and saved-tensor hooks see what is saved"
    OFF = "not recorded"
    INFERENCE = "not recorded, nor may what is made here be saved later"
    FORWARD = "not recorded, yet what depends on inputs that require grad is told from constants"

    __hash__ = object.__hash__  # in C: modes are parts of keys


RECORDED, WATCHED, OFF, INFERENCE, FORWARD = Mode
RECORDING = (RECORDED, WATCHED)
NEEDS = {RECORDED: True, WATCHED: True, OFF: False, INFERENCE: False, FORWARD: None}
MADE_IN = {True: RECORDED, False: OFF, None: FORWARD}  # by what a program says of its value


class _State(threading.local):
    """What one thread does.

    Attributes
    ----------
    mode : Mode
        `FORWARD` inside `Function.forward`; set by `set_mode` alone.
    grad : bool
        Whether that is one in which ops are recorded.
    recording : Mode
        What it is where they are: `WATCHED` by saved-tensor hooks, and still `INFERENCE` there.
    hooks : tuple of (pack, unpack)
        Saved-tensor hooks, the innermost last.
    no_hooks : str or None
        Why hooks may not be set now.
    off : Mode
        What it is where nothing is recorded: `OFF`, or `INFERENCE`.
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

    mode: Mode = RECORDED
    grad: bool = True
    recording: Mode = RECORDED
    hooks: tuple[Any, ...] = ()
    no_hooks: str | None = None
    off: Mode = OFF
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


def set_mode(mode: Mode) -> Mode:
    """Have ops of this thread be of `mode` from now on; returns the mode before."""
    before = state.mode
    state.mode, state.grad = mode, mode in RECORDING
    return before


def is_grad_enabled() -> bool:
    """Whether ops on this thread are recorded."""
    return state.grad


def watch(hooks: tuple[Any, ...]) -> None:
    """Let these pairs of hooks, the last of them, watch what this thread saves for backward."""
    global watchers
    with _counting:
        watchers += len(hooks) - len(state.hooks)
    state.hooks = hooks
    if state.off is not INFERENCE:
        state.recording = WATCHED if hooks else RECORDED
        if state.grad:
            set_mode(state.recording)


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
        before = state.mode
        self._before.append(before)
        mode = state.recording if self._value else state.off if state.grad else before
        state.mode, state.grad = mode, mode in RECORDING  # as `set_mode` does

    def __exit__(self, *_: object) -> None:
        mode = state.mode = self._before.pop()
        state.grad = mode in RECORDING


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
        self._before.append((state.mode, state.recording, state.off))
        if self.mode:
            _look_at_what_is_saved()
            state.recording = state.off = INFERENCE
        else:
            state.recording, state.off = WATCHED if state.hooks else RECORDED, OFF
        set_mode(state.recording)

    def __exit__(self, *_: object) -> None:
        mode, state.recording, state.off = self._before.pop()
        set_mode(mode)


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
        self._value, self._before = bool(mode), []
        _Mode.__enter__(self)
        self._entered = self._before.pop()

    def clone(self) -> _Mode:
        return set_grad_enabled(self._value)

    def __enter__(self) -> None:
        _Mode.__enter__(self)
        self._before[-1] = self._entered

    def __call__(self, function: F) -> F:
        set_mode(self._entered)  # a decorator switches only inside the function
        return super().__call__(function)

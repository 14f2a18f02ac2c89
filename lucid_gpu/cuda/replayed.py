"""A step function that becomes graphs by itself: `captured`."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import itemgetter
from threading import RLock
from typing import Any, NamedTuple

from lucid_gpu.amp.state import state as autocast
from lucid_gpu.core.planning import user_line
from lucid_gpu.cuda.graphs import CaptureError, CUDAGraph, graph, is_current_stream_capturing
from lucid_gpu.device import device
from lucid_gpu.devices import is_initialized
from lucid_gpu.dtypes import float64, get_default_dtype
from lucid_gpu.func.trees import Structure, flatten, unflatten
from lucid_gpu.nn.modules.hooks import register_module_forward_pre_hook
from lucid_gpu.ops.creation import tensor
from lucid_gpu.tape.levels import open_levels
from lucid_gpu.tape.modes import no_grad, state
from lucid_gpu.tensor import Tensor

__all__ = ["captured"]

PLAIN = 2  # calls before a capture: state of optimizers exists by then
MOST = 8  # graphs of a step


class captured:
    """Replay a step as a graph from its third call on, without a capture in the program.

    The first two calls run as they are. The third captures the step (`CUDAGraph`), later ones
    replay it. Each shape and type of the arguments, each value of those that are no tensors or
    floats, each grad mode and autocast, and each ``training`` of the modules that are called has a
    graph of its own, up to 8. A float that changes becomes a value on the device. What a graph
    cannot hold sends the step back to running as it is, for good, with one warning that names the
    line.

    Parameters
    ----------
    function : callable
        A whole step, backward pass and optimizer included, or a computation without gradients. It
        takes and returns tensors and other values, in tuples, lists and dicts. Between replays its
        Python does not run: what it prints, counts or keeps elsewhere happens in a capture only.

    Raises
    ------
    TypeError
        For anything but a function.

    Warns
    -----
    UserWarning
        Once, where the step is not replayed: the reason, the line, and what to write instead.

    Notes
    -----
    Results are copies without history. An optimizer needs no ``capturable=True`` here.

    Examples
    --------
    >>> import lucid_gpu as torch
    >>> model = torch.nn.Linear(4, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> @torch.cuda.captured
    ... def step(x, y):
    ...     optimizer.zero_grad()
    ...     loss = torch.nn.functional.mse_loss(model(x), y)
    ...     loss.backward()
    ...     optimizer.step()
    ...     return loss
    >>> for _ in range(4):
    ...     loss = step(torch.ones(8, 4), torch.zeros(8, 1))
    >>> loss.shape, step.graphs
    (lucid_gpu.Size([]), 1)
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise TypeError(
                f"captured() takes the function of a step, but got {type(function).__name__}; "
                "write @lucid_gpu.cuda.captured above its def"
            )
        self.function = function
        self._known: dict[Any, _Shape] = {}
        self._plain = False
        self._lock = RLock()
        functools.update_wrapper(self, function)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    @property
    def graphs(self) -> int:
        """How many graphs are replayed."""
        return sum(len(shape.taken) for shape in self._known.values())

    def reset(self) -> None:
        """Forget the graphs and the reason not to make any: it begins anew."""
        with self._lock:
            self._known.clear()
            self._plain = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run or replay the step."""
        if self._plain or open_levels or is_current_stream_capturing():
            return self.function(*args, **kwargs)
        with self._lock:
            flat, structure = flatten((args, kwargs))
            try:
                shape = self._shape(flat, structure)
                taken = shape.found(flat)
                if taken is None and shape.calls >= PLAIN:
                    taken = self._take(shape, flat, structure)
            except CaptureError as error:
                self._give_up(error)
            else:
                if taken is not None:
                    return taken.replay(flat)
                results = self.function(*args, **kwargs)
                shape.called(flat, results)
                return results
        return self.function(*args, **kwargs)

    def _give_up(self, error: Exception) -> None:
        self._plain = True
        self._known.clear()
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        warnings.warn(f"{name} is not replayed as a graph but run: {error}", stacklevel=3)

    def _shape(self, flat: list[Any], structure: Structure) -> _Shape:
        """Return what is known of calls whose arguments are such."""
        key = (structure, *map(_kind, flat), state.mode, *_autocast(), get_default_dtype())
        try:
            shape = self._known.get(key)
        except TypeError:
            odd = next(x for x in flat if not _hashable(x))
            raise _refusal(
                f"an argument that is {type(odd).__name__}", "give it as a tensor, or a number"
            ) from None
        if shape is None:
            shape = self._known[key] = _Shape()
        return shape

    def _take(self, shape: _Shape, flat: list[Any], structure: Structure) -> _Taken:
        if self.graphs == MOST:
            raise _refusal(
                f"a call of another kind after {MOST} graphs",
                "pad tensors to few shapes, and give a number that changes as a tensor or a float",
            )
        taken = _Taken.of(self.function, flat, structure, shape)
        shape.taken.append(taken)
        return taken


class _Shape:
    """Calls with arguments of one kind.

    Attributes
    ----------
    calls : int
        How many ran as they are.
    floats : list
        The arguments of the last call, which floats are compared with.
    varying : set of int
        Positions of floats that changed.
    dtypes : list of dtype
        What the last call returned.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.floats: list[Any] = []
        self.varying: set[int] = set()
        self.dtypes: list[Any] = []
        self.taken: list[_Taken] = []

    def called(self, flat: list[Any], results: Any) -> None:
        """Note a call that ran as it is."""
        self.calls += 1
        self._compare(flat)
        self.dtypes = _dtypes(flatten(results)[0])

    def _compare(self, flat: list[Any]) -> bool:
        """Note which floats are others than before; return whether any was not known to be."""
        pairs = enumerate(zip(flat, self.floats))
        more = {i for i, (x, y) in pairs if type(x) is float and x != y and x == x}
        self.floats = [x if type(x) is float else None for x in flat]
        new = more - self.varying
        self.varying |= more
        return bool(new)

    def found(self, flat: list[Any]) -> _Taken | None:
        """Return the graph to replay, if there is one."""
        if not self.taken:
            return None
        if self._compare(flat):
            self.taken.clear()  # a number that was part of them has changed
        return next((taken for taken in self.taken if taken.holds()), None)


class _Leaf(NamedTuple):
    """A parameter's gradient before a capture and after it."""

    owner: Any
    before: Any
    after: Any

    def holds(self) -> bool:
        """Return whether the gradient is now as the graph takes it to be."""
        now = self.owner.grad
        if self.before is None or now is None:
            return now is self.before
        return self.after is not self.before or now is self.after


class _Taken:
    """A graph, and what it stands on.

    Attributes
    ----------
    inputs : list
        For each argument the tensor that replays read, or None.
    results, structure : list of functions, and Structure
        What the step returns, each of them by a function of the arguments.
    modules : list of (Module, bool, tuple)
        Those that were called, their ``training``, and their parameters as `_memory` tells them.
    """

    def __init__(self) -> None:
        self.graph = CUDAGraph()
        self.inputs: list[Tensor | None] = []
        self.results: list[Callable[[Sequence[Any]], Any]] = []
        self.structure: Structure
        self.modules: dict[int, tuple[Any, bool, Any]] = {}
        self.leaves: list[_Leaf] = []

    @classmethod
    def of(cls, function: Any, flat: Sequence[Any], structure: Structure, shape: _Shape) -> _Taken:
        """Capture a call."""
        self = cls()
        where = next((x.device for x in flat if isinstance(x, Tensor)), None)
        if where is None:
            where = device("cuda" if is_initialized() else "cpu")
        with no_grad():
            for i, x in enumerate(flat):
                one = x.clone() if isinstance(x, Tensor) else None
                self.inputs.append(tensor(x, device=where) if i in shape.varying else one)
        args, kwargs = unflatten(
            [x if own is None else own for x, own in zip(flat, self.inputs)], structure
        )
        versions = [None if own is None else own._version for own in self.inputs]
        handle = register_module_forward_pre_hook(self._see)
        try:
            with graph(self.graph):
                capture = self.graph._capture
                assert capture is not None
                capture.recorder.capturable = True
                made = function(*args, **kwargs)
                results, self.structure = flatten(made)
                made = None
                for result in results:
                    _refuse_history(result)
            self.leaves = [_Leaf(of, before, of.grad) for of, before in capture.gradients.items()]
        except CaptureError:
            raise
        except Exception as error:
            raise _refusal(f"{type(error).__name__} in a capture ({error})", "") from error
        finally:
            handle.remove()
        self._check(versions, capture.recorder)
        if shape.varying:
            self._check_floats(results, shape)
        self.results = [self._given(x, capture.recorder) for x in results]
        return self

    def _given(self, x: Any, recorder: Any) -> Callable[[Sequence[Any]], Any]:
        """Return what gives a result: an argument, a copy of what replays write, or itself."""
        if isinstance(x, Tensor) and _among(x, self.inputs):
            return itemgetter([own is x for own in self.inputs].index(True))
        if isinstance(x, Tensor) and recorder.knows(x):
            return lambda _: x.detach().clone()
        return lambda _: x

    def _see(self, module: Any, _: Any) -> None:
        self.modules.setdefault(id(module), (module, module.training, _memory(module)))

    def _check(self, versions: Sequence[int | None], recorder: Any) -> None:
        for own, version in zip(self.inputs, versions):
            if own is not None and own._version != version:
                raise _refusal("a write to an argument", "return the new value instead")
        for leaf in self.leaves:
            replaced = leaf.before is not None and leaf.after is not leaf.before
            if replaced and recorder.reads(leaf.before.array):
                raise _refusal(
                    "a gradient of an earlier step", "it is read and replaced; write into it"
                )

    def _check_floats(self, results: Sequence[Any], shape: _Shape) -> None:
        """Refuse a float on the device where it has another effect than a number has."""
        trained = [leaf.owner.grad for leaf in self.leaves]
        wide = float64 in _dtypes([*self.inputs, *trained]) and get_default_dtype() is not float64
        floats = [self.inputs[i] for i in shape.varying]
        if wide or _dtypes([x for x in results if not _among(x, floats)]) != shape.dtypes:
            raise _refusal(
                "a float that changes, beside tensors of other types than the default",
                "give it as a tensor of the type that it is to have",
            )

    def holds(self) -> bool:
        """Return whether all that a replay does not ask again is as it was."""
        return all(leaf.holds() for leaf in self.leaves) and all(
            module.training is training and _memory(module) == memory
            for module, training, memory in self.modules.values()
        )

    def replay(self, flat: Sequence[Any]) -> Any:
        """Run the graph on these arguments."""
        with no_grad():
            for own, x in zip(self.inputs, flat):
                if own is not None:
                    own.copy_(x) if isinstance(x, Tensor) else own.fill_(x)
            self.graph.replay()
            for leaf in self.leaves:
                if leaf.owner.grad is not leaf.after:
                    leaf.owner.grad = leaf.after
            results = [result(flat) for result in self.results]
        return unflatten(results, self.structure)


def _memory(module: Any) -> tuple[Any, ...]:
    """Return what a graph has of a module's own parameters: their memory, who is trained."""
    own = module._parameters.values()
    return tuple([(id(p.array), p.requires_grad) for p in own if p is not None])


def _among(x: Any, values: Sequence[Any]) -> bool:
    return any(x is value for value in values)


def _dtypes(values: Sequence[Any]) -> list[Any]:
    return [x.dtype for x in values if isinstance(x, Tensor)]


def _kind(x: Any) -> Any:
    """Return a part of a key: type and shape of a tensor, any other argument but a float itself."""
    if isinstance(x, Tensor):
        if x.requires_grad:
            raise _refusal("an argument that requires grad", "its gradient is part of no graph")
        return Tensor, x.shape, x.stride(), x.dtype, x.device
    return float if type(x) is float else (type(x), x)


def _hashable(x: Any) -> bool:
    with suppress(TypeError):
        hash(x)
        return True
    return False


def _autocast() -> tuple[Any, ...]:
    return *autocast.enabled.values(), *autocast.dtype.values()


def _refuse_history(result: Any) -> None:
    node = result.grad_fn if isinstance(result, Tensor) else None
    if node is not None and not node._released:
        raise _refusal(
            "a result that requires grad",
            "call backward() and the optimizer inside the step, return result.detach(), or use "
            "make_graphed_callables",
        )


def _refusal(what: str, instead: str) -> CaptureError:
    file, number = user_line()
    return CaptureError(f"{what} at {file}:{number}" + (f": {instead}" if instead else ""))

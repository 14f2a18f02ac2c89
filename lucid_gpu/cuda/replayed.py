"""A step function that becomes graphs by itself: `captured`."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import is_, itemgetter
from threading import RLock
from typing import Any, NamedTuple
from weakref import WeakSet

from lucid_gpu.amp.state import state as autocast
from lucid_gpu.core.planning import user_line
from lucid_gpu.cuda.graphs import CaptureError, CUDAGraph, graph, is_current_stream_capturing
from lucid_gpu.device import device
from lucid_gpu.devices import held, is_initialized
from lucid_gpu.dtypes import dtype, get_default_dtype
from lucid_gpu.func.trees import Structure, flatten, unflatten
from lucid_gpu.nn.modules.hooks import register_module_forward_pre_hook
from lucid_gpu.ops.creation import empty, tensor
from lucid_gpu.optim.hooks import register_optimizer_step_pre_hook
from lucid_gpu.storage import Size
from lucid_gpu.tape import overrides
from lucid_gpu.tape.levels import open_levels
from lucid_gpu.tape.modes import no_grad, state
from lucid_gpu.tensor import Tensor

__all__ = ["captured"]

PLAIN = 2  # calls before a capture: state of optimizers exists by then
MOST = 8  # graphs of a step
KINDS = 64  # of its calls
# Functions for which a number on the device is what a float is.
_EXACT = frozenset(
    ["add", "iadd", "radd", "sub", "isub", "rsub", "mul", "imul", "rmul", "div", "rdiv", "truediv"]
    + ["itruediv", "rtruediv", "multiply", "true_divide", "divide", "lerp", "foreach_mul"]
)
_VALUES = (type(None), bool, int, float, complex, str, bytes, dtype, device, Size)


class captured:
    """Replay a step as a graph from its third call on, without a capture in the program.

    The first two calls run as they are. The third captures the step (`CUDAGraph`), later ones
    replay it. Each shape and type of the arguments, each value of those that are no tensors or
    floats, each grad mode and autocast, and each ``training`` of the modules that are called has a
    graph of its own, up to 8. A float that changes becomes a value on the device, for products and
    sums with tensors. What a graph cannot hold sends the step back to running as it is, for good,
    with one warning that names the line.

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
        self._optimizers: WeakSet[Any] = WeakSet()  # that made steps
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
                if taken is not None:
                    taken.check(flat)
            except CaptureError as error:
                self._give_up(error)
            else:
                if taken is not None:
                    return taken.replay(flat)
                handle = register_optimizer_step_pre_hook(lambda o, *_: self._optimizers.add(o))
                try:
                    results = self.function(*args, **kwargs)
                finally:
                    handle.remove()
                shape.called(results)
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
            if len(self._known) == KINDS:
                raise _too_many(f"{KINDS} kinds of calls")
            shape = self._known[key] = _Shape()
        return shape

    def _take(self, shape: _Shape, flat: list[Any], structure: Structure) -> _Taken:
        if self.graphs == MOST:
            raise _too_many(f"{MOST} graphs")
        taken = _Taken.of(self.function, flat, structure, shape, [*self._optimizers])
        shape.taken.append(taken)
        return taken


class _Shape:
    """Calls with arguments of one kind.

    Attributes
    ----------
    calls : int
        How many ran as they are.
    floats : list
        Those among the arguments of the last call, as hexadecimal digits.
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

    def called(self, results: Any) -> None:
        """Note a call that ran as it is."""
        self.calls += 1
        self.dtypes = _dtypes(flatten(results)[0])

    def _compare(self, flat: list[Any]) -> bool:
        """Note which floats are others than before; return whether any was not known to be."""
        floats = [x.hex() if type(x) is float else None for x in flat]
        more = {i for i, (x, y) in enumerate(zip(floats, self.floats)) if x != y}
        self.floats = floats
        new = more - self.varying
        self.varying |= more
        return bool(new)

    def found(self, flat: list[Any]) -> _Taken | None:
        """Return the graph to replay, if there is one."""
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
    modules, optimizers : dict of (Module or Optimizer, tuple, list)
        Those that were called, and those in them, and what a graph has of them.
    written : set of int
        The memory that replays write.
    """

    def __init__(self) -> None:
        self.graph = CUDAGraph()
        self.inputs: list[Tensor | None] = []
        self.results: list[Callable[[Sequence[Any]], Any]] = []
        self.structure: Structure
        self.modules: dict[int, tuple[Any, Any, Any]] = {}
        self.optimizers: dict[int, tuple[Any, Any, Any]] = {}
        self.written: set[int] = set()
        self.leaves: list[_Leaf] = []

    @classmethod
    def of(
        cls,
        function: Any,
        flat: Sequence[Any],
        structure: Structure,
        shape: _Shape,
        optimizers: Sequence[Any],
    ) -> _Taken:
        """Capture a call."""
        self = cls()
        where = next((x.device for x in flat if isinstance(x, Tensor)), None)
        if where is None:
            where = device("cuda" if is_initialized() else "cpu")
        with no_grad():
            for i, x in enumerate(flat):
                one = _like(x) if isinstance(x, Tensor) else None
                if type(one) is not type(x) and one is not None:
                    raise _refusal(f"an argument that is {type(x).__name__}", "give it as a Tensor")
                self.inputs.append(tensor(x, device=where) if i in shape.varying else one)
        given = [x if own is None else own for x, own in zip(flat, self.inputs)]
        args, kwargs = unflatten(given, structure)
        before = [*map(_version, self.inputs)]
        settings = [(group, {**group}) for one in optimizers for group in one.param_groups]
        handles = [
            register_module_forward_pre_hook(self._see),
            register_optimizer_step_pre_hook(self._see_optimizer),
        ]
        floats = _Floats([self.inputs[i] for i in shape.varying])
        try:
            with graph(self.graph):
                capture = self.graph._capture
                assert capture is not None
                capture.recorder.capturable = True
                with floats:
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
            for handle in handles:
                handle.remove()
        try:
            after, structure_after = flatten((args, kwargs))
            if structure_after != structure or not all(map(is_, after, given)):
                raise _refusal("a change of an argument", "return the new value instead")
            self._check(before, capture.recorder)
            self._check_results(results, shape)
            _check_settings(settings)
        except CaptureError:
            for of, gradient in capture.gradients.items():
                of.grad = gradient
            raise
        self.optimizers = {key: (o, *_of_optimizer(o)) for key, (o, *_) in self.optimizers.items()}
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
        if id(module) not in self.modules:
            for one in module.modules():
                if id(one) not in self.modules:
                    self.modules[id(one)] = one, *_of_module(one)

    def _see_optimizer(self, optimizer: Any, *_: Any) -> None:
        self.optimizers[id(optimizer)] = optimizer, (), []

    def _check(self, before: Sequence[Any], recorder: Any) -> None:
        self.written = {held.address(t.array) for t in recorder.written.values()}
        for own, old in zip(self.inputs, before):
            if own is None:
                continue
            if _version(own) != old or held.address(own.array) in self.written:
                raise _refusal("a write to an argument", "return the new value instead")
            if own.requires_grad or own.grad is not None:
                raise _refusal("a gradient of an argument", "use x.detach().requires_grad_()")
        for leaf in self.leaves:
            if leaf.after is not None and leaf.after.requires_grad:
                raise _refusal("a gradient with a history", "use autograd.grad()")
            replaced = leaf.before is not None and leaf.after is not leaf.before
            if replaced and recorder.reads(leaf.before.array):
                raise _refusal(
                    "a gradient of an earlier step", "it is read and replaced; write into it"
                )

    def _check_results(self, results: Sequence[Any], shape: _Shape) -> None:
        for x in results:
            if not isinstance(x, (Tensor, *_VALUES)):
                raise _refusal(
                    f"a result that is {type(x).__name__}",
                    "return tensors and numbers, in tuples, lists and dicts",
                )
        floats = [self.inputs[i] for i in shape.varying]
        if floats and _dtypes([x for x in results if not _among(x, floats)]) != shape.dtypes:
            raise _inexact()

    def check(self, flat: Sequence[Any]) -> None:
        """Refuse arguments that a replay would write while it reads copies of them."""
        for x in flat:
            if isinstance(x, Tensor) and held.address(x.array) in self.written:
                raise _refusal("an argument in memory that the step writes", "give it as x.clone()")

    def holds(self) -> bool:
        """Return whether all that a replay does not ask again is as it was."""
        return (
            all(leaf.holds() for leaf in self.leaves)
            and all(_same(_of_module(one), known) for one, *known in self.modules.values())
            and all(_same(_of_optimizer(one), known) for one, *known in self.optimizers.values())
        )

    def replay(self, flat: Sequence[Any]) -> Any:
        """Run the graph on these arguments."""
        with no_grad():
            for own, x in zip(self.inputs, flat):
                if own is not None:
                    _once(own).copy_(_once(x)) if isinstance(x, Tensor) else own.fill_(x)
            self.graph.replay()
            for leaf in self.leaves:
                if leaf.owner.grad is not leaf.after:
                    leaf.owner.grad = leaf.after
            results = [result(flat) for result in self.results]
        return unflatten(results, self.structure)


class _Floats:
    """Sees what a step does with floats on the device, and refuses what has other bits."""

    def __init__(self, floats: Sequence[Any]) -> None:
        self.floats = floats

    def __enter__(self) -> None:
        if self.floats:
            overrides.enter(self)

    def __exit__(self, *_: object) -> None:
        if self.floats:
            overrides.leave()

    def __torch_function__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        flat, _ = flatten((args, kwargs or {}))
        others = [x for x in flat if not _among(x, self.floats)]
        if len(others) < len(flat):
            tensors = [x for x in others if isinstance(x, Tensor)]
            kinds = {x.dtype for x in tensors if x.is_floating_point() or x.is_complex()}
            name = overrides.name_of(func).rpartition(".")[2].strip("_")
            if name not in _EXACT or len(tensors) < len(others) or kinds != {get_default_dtype()}:
                raise _inexact()
        return func(*args, **(kwargs or {}))


def _inexact() -> CaptureError:
    return _refusal(
        "a float that changes, in more than products and sums with tensors of the default type",
        "give it as a tensor of the type that it is to have",
    )


def _too_many(what: str) -> CaptureError:
    return _refusal(
        f"a call of another kind after {what}",
        "pad tensors to few shapes, and give a number that changes as a tensor or a float",
    )


def _check_settings(settings: Sequence[tuple[Any, Any]]) -> None:
    """Refuse a step that changes an optimizer's settings, which it would not do again."""
    changed = [
        (group, before)
        for group, before in settings
        if [*group] != [*before] or not all(_alike(group[k], before[k]) for k in before)
    ]
    for group, before in changed:
        group.clear()
        group.update(before)
    if changed:
        raise _refusal("a change of an optimizer's settings", "change them before the call")


def _alike(x: Any, y: Any) -> bool:
    return x is y or (type(x) is type(y) and not isinstance(x, (Tensor, list)) and bool(x == y))


def _of_module(module: Any) -> tuple[Any, list[Any]]:
    """Return what a graph has of a module: flags and hooks; memory and modules in it."""
    own = [*module._parameters.values(), *module._buffers.values()]
    own = [t for t in own if t is not None]
    hooks = (*module._forward_pre_hooks, *module._forward_hooks, *module._backward_hooks)
    flags = module.training, *[t.requires_grad for t in own], *hooks, *module._backward_pre_hooks
    return flags, [*[t if t._is_sparse else t.array for t in own], *module._modules.values()]


def _of_optimizer(optimizer: Any) -> tuple[Any, list[Any]]:
    """Return what a graph has of an optimizer: its groups and the states of parameters."""
    groups, state = optimizer.param_groups, optimizer.state
    members = [p for group in groups for p in group["params"]]
    return (), [*groups, *members, *[state.get(p) for p in members]]


def _same(now: tuple[Any, list[Any]], before: Sequence[Any]) -> bool:
    (flags, own), (flags_before, own_before) = now, before
    same = flags == flags_before and len(own) == len(own_before)
    return same and all(map(is_, own, own_before))


def _version(x: Any) -> Any:
    """Return what is another after a write to a tensor, or None."""
    if x is None:
        return None
    return id(x.array), None if x.is_inference() else x._version


def _once(x: Any) -> Any:
    """Return a tensor's elements without those that `expand` repeats."""
    for dim, step in enumerate(x.stride()):
        if step == 0 and x.shape[dim] > 1:
            x = x.narrow(dim, 0, 1)
    return x


def _like(x: Any) -> Any:
    """Return a copy of a tensor that lies as it does."""
    own = x.clone()
    if own.stride() == x.stride() or not x.numel():
        return own
    part = _once(x)
    pairs = sorted((step, size) for step, size in zip(part.stride(), part.shape) if size > 1)
    span = 1
    for step, size in pairs:
        if step < span:
            raise _refusal("an argument whose elements overlap", "give it as x.clone()")
        span = step * (size - 1) + span
    own = empty(span, dtype=x.dtype, device=x.device).as_strided(x.shape, x.stride())
    _once(own).copy_(part)
    return own


def _among(x: Any, values: Sequence[Any]) -> bool:
    return any(x is value for value in values)


def _dtypes(values: Sequence[Any]) -> list[Any]:
    return [x.dtype for x in values if isinstance(x, Tensor)]


def _kind(x: Any) -> Any:
    """Return a part of a key: type and shape of a tensor, any other argument but a float itself."""
    if isinstance(x, Tensor):
        if x.requires_grad or x.grad is not None:
            raise _refusal("an argument that requires grad", "its gradient is part of no graph")
        if x._is_sparse or x.is_meta:
            raise _refusal("an argument that is sparse or meta", "a graph has dense tensors")
        return type(x), x.shape, x.stride(), x.dtype, x.device
    if isinstance(x, (float, complex)):
        return float if type(x) is float else (type(x), repr(x))
    return type(x), x


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

"""What a step computes, recorded as calls on arrays that stay where they are, and made again.

While a `Recorder` records, every kernel, product and copy of its thread goes through `call`: it
runs, and is noted with its arrays, which are kept. `Recorder.replay` makes the calls again, in
order, and puts their results into the same memory. Autograd and the scheduler have no part in it.

Nothing is recorded by halves. An array is known where a recorded call made it, or where it belongs
to a tensor that was there before. What reads any other array can not be recorded, and is refused;
and a recording is tried out once, on the values it was made with, before it is handed over.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Lock, get_ident
from typing import Any, NamedTuple

import numpy as np

from lucid_gpu.devices import gemm, held, wrap
from lucid_gpu.devices.copies import write
from lucid_gpu.devices.held import owner_of
from lucid_gpu.devices.port import READ_ONCE

__all__ = [
    "CaptureError",
    "Draw",
    "Recorder",
    "Step",
    "begin",
    "capturing",
    "constant",
    "end",
    "on_gpu",
    "outside",
    "recording",
    "waits",
]

EXTERNAL, MADE = "external", "made"  # whose an array's memory is; one of neither is foreign
NUMBERS = frozenset(["picked"])  # ops whose arrays of numbers are what the user wrote
POISON = 0xA5  # what memory is filled with before a recording is tried out
_PLAIN = (type(None), bool, int, float, complex, str, bytes, slice, np.dtype, np.generic, type)

recorder: Recorder | None = None  # of the thread that records; the others go on as ever


class CaptureError(RuntimeError):
    """What a graph can not hold: the op, the user's line, and what to do instead."""


class Draw(int):
    """Seed or number of a draw: where a step is replayed, those of that time stand in its place.

    Attributes
    ----------
    generator : Generator
    number : int or None
        How many draws of the generator were recorded before it; None for a seed.
    bases : dict
        Seed and first offset of each generator in the last replay of the graph that drew it, by
        the generator's id: the graph of its gradient, which draws it again, reads them too.
    """

    generator: Any
    number: int | None
    bases: dict[int, tuple[int, int]]

    @classmethod
    def of(cls, value: int, generator: Any, number: int | None, bases: dict[int, Any]) -> Draw:
        """One of a value."""
        made = cls(value)
        made.generator, made.number, made.bases = generator, number, bases
        return made

    def now(self) -> int:
        """What stands in its place in the last replay."""
        seed, first = self.bases[id(self.generator)]
        return seed if self.number is None else (first + self.number) & ((1 << 64) - 1)


class Step(NamedTuple):
    """One call.

    Attributes
    ----------
    name : str
        What a person calls it.
    run : callable
        Makes the call again, into the memory of its results.
    results : list of arrays
    """

    name: str
    run: Callable[[], Any]
    results: Sequence[Any]


class Taken(NamedTuple):
    """A tensor that was there before and took another value, and what its own was."""

    tensor: Any
    program: Any
    array: Any
    node: Any
    output: int
    cells: list[Any]  # weak references to what its memory was read by, which others may hold


class Moved(NamedTuple):
    """A tensor that was there before and was given other memory, and what it was.

    ``taken``: it had taken another value by then.
    """

    tensor: Any
    attributes: dict[str, Any]
    taken: bool


class Recorder:
    """Records the calls of a thread.

    Attributes
    ----------
    steps : list of Step
    begun : int
        The scheduler's step in which it began: what is older is no part of it.
    frames : list of str
        The ops under way, the innermost last.
    """

    def __init__(self, begun: int, user_line: Callable[[], str]) -> None:
        self.thread = get_ident()
        self.gpu: Any = None  # the `stream_capture.StreamCapture` beside it, where there is a GPU
        self.capturable = False  # are optimizers that do not say so taken too
        self.begun = begun
        self.user_line = user_line
        self.steps: list[Step] = []
        self.frames: list[str] = []
        self.off = 0  # inside a recorded call, whose own calls are part of it
        self.outside = 0  # inside what was there before and is no part of the recording
        self.owners: dict[int, tuple[Any, str]] = {}  # by id, with whose they are
        self.saved: dict[int, tuple[Any, Any]] = {}  # external memory before it was written
        self.tensors: dict[int, Any] = {}  # weak references to those made since, by id
        self.owed: dict[int, str] = {}  # writes announced and not yet made, by the owner's id
        self.taken: dict[int, Taken] = {}  # tensors that took another value, by id
        self.moved: dict[int, Moved] = {}  # tensors that were given other memory, by id
        self.written: dict[int, Any] = {}  # tensors whose memory was written
        self.undo: list[Callable[[], None]] = []
        # Dicts and lists, what was in them, and whether replays make the changes again, by id.
        self.kept: dict[int, tuple[Any, Any, bool]] = {}
        self.fresh: weakref.WeakSet[Any] = weakref.WeakSet()  # leaves made since it began
        # Older leaves that were given a copy, and another one for values from before.
        self.copied: list[tuple[Any, Any]] = []
        self.values: weakref.WeakSet[Any] = weakref.WeakSet()  # values known to be of this time
        self.draws: dict[int, tuple[Any, int, set[int]]] = {}  # generators: draws, those not used
        self.bases: dict[int, tuple[int, int]] = {}  # see `Draw`

    # --- whose memory it is ----------------------------------------------------------------------

    def whose(self, array: Any) -> str | None:
        """`EXTERNAL`, `MADE`, or None for memory that nobody is known to have made."""
        if self._on_gpu(array):
            return MADE if self.gpu.is_made(array) else EXTERNAL
        entry = self.owners.get(id(owner_of(array)))
        if entry is None:
            if not (held.by and held.is_held(array)):
                return None
            self.adopt(array, EXTERNAL)  # another graph's, which a gradient saved of it may read
            return EXTERNAL
        return entry[1]

    def _on_gpu(self, array: Any) -> bool:
        """Whether an array's memory is the business of the GPU's own capture."""
        return self.gpu is not None and self.gpu.is_array(array)

    def adopt(self, array: Any, whose: str) -> None:
        """Keep an array's memory, and know whose it is."""
        if self._on_gpu(array):
            if whose is EXTERNAL:
                self.gpu.hold(array)
            return
        owner = owner_of(array)
        if id(owner) not in self.owners:
            self.owners[id(owner)] = owner, whose

    def leaf_made(self, leaf: Any) -> None:
        """A leaf is made; its memory was not there before, unless that was seen."""
        if not self.outside:
            self.fresh.add(leaf)
        if type(leaf.array) is Draw:  # by whichever kernels read it; none where nobody does
            self.use_draws((leaf.array,))

    def swap_copies(self) -> None:
        """Have older leaves hold the copies for values from before, or again those of replays."""
        for i, (leaf, other) in enumerate(self.copied):
            self.copied[i] = leaf, leaf.array
            leaf.array = other

    def note_read(self, leaf: Any) -> None:
        """A leaf is read: if it was there before, so was its memory."""
        if waits(leaf):
            return  # what it will hold is made by this capture
        array = leaf.array
        if self._on_gpu(array):
            self.refuse_other_gpus(array)
            if self.gpu.is_made(array) or leaf in self.fresh or not self.gpu.hold(array):
                return
        elif type(array) is not np.ndarray or self.whose(array) is not None or leaf in self.fresh:
            return
        if leaf.borrowed and len(leaf.readers()) > 1:
            self.refuse(
                "a tensor in another one's memory", "who writes one would move it; use x.clone()"
            )
        leaf.borrowed = False
        self.adopt(array, EXTERNAL)

    def refuse_other_gpus(self, array: Any) -> None:
        """Refuse an array of another GPU than the one whose work is captured."""
        if self._on_gpu(array) and array.data.device_id != self.gpu.index:
            self.refuse("a tensor on another GPU", "a graph has the work of one GPU")

    def reads(self, array: Any) -> bool:
        """Return whether what was recorded reads memory that was there before."""
        if self._on_gpu(array):
            return array.data.mem.ptr in self.gpu.held
        return id(owner_of(array)) in self.owners

    def knows(self, tensor: Any) -> bool:
        """Whether a tensor was made since the recording began."""
        reference = self.tensors.get(id(tensor))
        return reference is not None and reference() is tensor

    def older(self, value: Any) -> bool:
        """Whether a pending value was there before the recording began."""
        return bool(value.since < self.begun) and value not in self.values

    def date(self, value: Any) -> None:
        """A pending value is about to lose the step it was made in."""
        if value.since >= self.begun:
            self.values.add(value)

    def before_taking(self, tensor: Any) -> None:
        """A tensor is about to take another value: one that was there before gets its own back."""
        if self.knows(tensor) or id(tensor) in self.taken:
            return
        leaf = tensor._expr.leaves[0]
        self.note_read(leaf)
        own = tensor._expr.program, leaf.array, leaf.node, leaf.output
        storage = tensor._storage
        cells = getattr(storage, "memory", storage).cells if storage is not None else ()
        self.taken[id(tensor)] = Taken(tensor, *own, [weakref.ref(leaf), *cells])

    def before_moving(self, tensor: Any, names: Sequence[str]) -> None:
        """A tensor is about to be given other memory: a capture that fails gives its own back."""
        if not (self.outside or self.knows(tensor) or id(tensor) in self.moved):
            attributes = {name: getattr(tensor, name) for name in names}
            self.moved[id(tensor)] = Moved(tensor, attributes, id(tensor) in self.taken)

    def before_write(self, array: Any, name: str, tensor: Any) -> None:
        """A tensor's memory is about to be written: what was there before is to be put back."""
        self.note_read(tensor._expr.leaves[0])
        if self.off and self.whose(array) is None:
            return  # a recorded call has made it, for itself
        self.written[id(tensor)] = tensor
        if self._on_gpu(array):
            return  # a capture runs nothing, so nothing is to be put back
        owner = owner_of(array)
        if self.whose(array) is None:
            self.adopt(array, EXTERNAL)
        if self.owners[id(owner)][1] is EXTERNAL and id(owner) not in self.saved:
            self.saved[id(owner)] = owner, owner.copy()
        self.owed[id(owner)] = name

    def fill(self, array: Any, source: Any) -> None:
        """New memory is about to be filled, all of it, from known memory."""
        new = self.whose(array) is None and array.nbytes == owner_of(array).nbytes
        if new and self.whose(source) is not None:
            self.adopt(array, MADE)

    def settle_writes(self) -> None:
        """Refuse a write that no recorded call has made."""
        for name in self.owed.values():
            self.refuse(name, "it writes memory in a way that is not recorded")

    def stays(self, leaf: Any) -> bool:
        """Whether a tensor that takes another value is to write its memory: a graph reads it there.

        In a recorded call all that was there before is so, for the replays make the call again.
        """
        if self.off and not self.outside:
            there = leaf not in self.fresh or self.whose(leaf.array) is not None
            return there or held.is_held(leaf.array)
        return held.is_held(leaf.array)

    def places(self) -> list[int]:
        """The memory that replays read and write, as `held.address` tells it."""
        addresses = list(self.owners)
        if self.gpu is not None:
            addresses += [-address for address in self.gpu.places()]
        return addresses

    # --- calls -----------------------------------------------------------------------------------

    def compute(self, plan: Any, run: Any, first: Any, args: Sequence[Any]) -> Any:
        """Run a plan by ``first``, and by ``run`` in each replay."""
        call = self.call if plan.device.type == "cpu" else self.call_on_gpu
        return call(plan.name, run, args, first)

    def call(
        self,
        name: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        first: Callable[..., Any] | None = None,
    ) -> Any:
        """Make a call, by ``first`` if that is given, and record it.

        Inside a recorded call it is only made.
        """
        first = first or function
        if self.off:
            return first(*args)
        if self.gpu is not None and any(self.gpu.is_array(part) for part in _flat(args)):
            return self.call_on_gpu(name, function, args, first)
        arrays = list(_arrays(args))
        unknown = [a for a in arrays if self.whose(a) is None]
        owed = dict(self.owed)
        self.off += 1
        try:
            result = first(*args)
        finally:
            self.off -= 1
            self.owed = owed  # what the call announced to write it has written
        result = _in_memory(result)  # NumPy's numbers are results too
        if unknown:
            if not self.frames:
                self.refuse(name, "it reads memory that no recorded call has made")
            return result  # of unknown memory too: the op it is a part of is recorded as a whole
        self.record(name, function, args, result)
        for array in arrays:
            self.owed.pop(id(owner_of(array)), None)
        return result

    def call_on_gpu(
        self,
        name: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        first: Callable[..., Any],
    ) -> Any:
        """Make a call whose work a GPU's stream captures; one with draws is made by each replay."""
        if self.off:
            return first(*args)
        if self.gpu is None:
            self.refuse(name, "a graph has a GPU's work where the GPU was in use before")
        if any(True for _ in _arrays(args)):
            self.refuse(name, "a kernel of the GPU reads memory of the CPU")
        if self.use_draws(args):
            return self.call_between(name, function, args)
        self.gpu.names.append(name)
        self.off += 1
        try:
            return first(*args)
        finally:
            self.off -= 1

    def call_between(self, name: str, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Have each replay make a call from Python, into the memory of what it gives now.

        It is made now on whatever lies in the graph's memory, for the shapes of its results.
        """
        with outside():
            result = function(*args)
        made = [part for part in _flat(result) if self.gpu.is_array(part)]
        for array in made:
            self.gpu.give(array)

        def call() -> None:
            arrays = [part for part in _flat(function(*_drawn(args))) if self.gpu.is_array(part)]
            for old, new in zip(made, arrays, strict=True):
                old[...] = new

        self.gpu.names.append(name)
        self.gpu.interrupt(call)
        return result

    def call_again(self, name: str, function: Callable[..., Any], args: Sequence[Any]) -> None:
        """`call` what a replay computes anew in Python, such as an optimizer's step.

        It gives nothing. On a GPU it is not made now.
        """
        if self.gpu is None or not any(map(self.gpu.is_array, args)):
            self.call(name, function, args)
            return
        for array in args:
            if self.gpu.is_array(array) and not self.gpu.is_made(array):
                self.gpu.hold(array)
        self.gpu.names.append(name)
        self.gpu.interrupt(lambda: function(*args))

    def use_draws(self, args: Any) -> bool:
        """Whether there are draws among arguments, which a replay then renews."""
        draws = [value for value in _flat(args) if type(value) is Draw]
        for draw in draws:
            if draw.number is not None and draw.bases is self.bases:
                self.draws[id(draw.generator)][2].discard(draw.number)
        return bool(draws)

    def record(
        self, name: str, function: Callable[..., Any], args: Sequence[Any], result: Any
    ) -> None:
        """Record a call that was made."""
        made = list(_arrays(result))
        for array in made:
            self.adopt(array, MADE)
        bind = getattr(function, "bound", None)
        bound = None
        if self.use_draws(args):
            function = partial(_renewed, function)
        elif bind is not None:
            bound = bind(*args, result)
        run = again(name, function, tuple(args), result) if bound is None else bound
        self.steps.append(Step(name, run, made))

    def draw(self, generator: Any, seed: int, offset: int) -> tuple[int, int]:
        """Seed and offset of a generator's draw, as the arguments of recorded calls."""
        if id(generator) not in self.draws:
            self.undo.append(lambda: generator.go_back(offset))
        _, count, unused = self.draws.setdefault(id(generator), (generator, 0, set()))
        unused.add(count)
        self.draws[id(generator)] = generator, count + 1, unused
        bases = self.bases
        return Draw.of(seed, generator, None, bases), Draw.of(offset, generator, count, bases)

    # --- refusals --------------------------------------------------------------------------------

    def refuse(self, what: str, why: str) -> None:
        """Raise for what a graph can not hold."""
        raise CaptureError(
            f"{what} cannot be captured in a graph, at {self.user_line()}: {why}. Do it before the "
            "capture or after the replay."
        )

    # --- what Python changes --------------------------------------------------------------------

    def keep(self, container: Any, repeated: bool = False) -> None:
        """Remember what dicts and lists hold, and those in them: `give_back` puts it back."""
        if isinstance(container, (dict, list)) and id(container) not in self.kept:
            self.kept[id(container)] = container, container.copy(), repeated
            for part in container.values() if isinstance(container, dict) else container:
                self.keep(part, repeated)

    def give_back(self, whole: bool = False) -> None:
        """Put back what Python has changed; of a ``whole`` graph what its replays change again."""
        for container, before, repeated in self.kept.values():
            if repeated or not whole:
                container.clear()
                if isinstance(container, dict):
                    container.update(before)
                else:
                    container.extend(before)
        self.kept.clear()

    # --- replay ----------------------------------------------------------------------------------

    def restore(self) -> None:
        """Put what was there before back as it was."""
        for owner, copy in self.saved.values():
            np.copyto(owner, copy)
        for undo in reversed(self.undo):
            undo()

    def forget_trial(self) -> None:
        """Let go of what `restore` would put back: the graph is whole."""
        self.saved.clear()
        self.undo.clear()
        self.moved.clear()

    def advance(self) -> None:
        """Take the draws of one replay from the generators."""
        for generator, count, _ in self.draws.values():
            self.bases[id(generator)] = generator.begin_replay(count)

    def try_out(self) -> None:
        """Make all calls on the values they were recorded with; they must find the same bits."""
        for generator, _, unused in self.draws.values():
            if unused:
                self.refuse(
                    f"a draw of {generator!r}", "what it drew did not go through a recorded call"
                )
        arrays = {id(a): (a, step.name) for step in self.steps for a in step.results}
        arrays.update({key: (owner, "a write") for key, (owner, _) in self.saved.items()})
        expected = [array.copy() for array, _ in arrays.values()]
        self.restore()
        for owner, whose in self.owners.values():
            if whose is MADE:
                _poison(owner)
        self.advance()
        self.off += 1
        try:
            for step in self.steps:
                step.run()
        finally:
            self.off -= 1
            self.owed.clear()
        for (array, name), wanted in zip(arrays.values(), expected, strict=True):
            if not np.array_equal(_bytes(array), _bytes(wanted)):
                self.refuse(name, "made again, its calls give something else")
        self.restore()


def _bytes(array: Any) -> Any:
    """An array's elements, bit by bit."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _poison(owner: Any) -> None:
    """Fill memory with what no call has made."""
    flat = owner.reshape(-1, order="A")
    if np.shares_memory(flat, owner) and flat.flags.writeable:
        flat.view(np.uint8)[...] = POISON


def again(name: str, function: Callable[..., Any], args: tuple[Any, ...], result: Any) -> Any:
    """What makes a call again and puts what it gives into the memory of its first results."""
    made = list(_arrays(result))

    def run() -> None:
        _put(name, result, function(*args))

    def only() -> None:
        output = function(*args)
        if np.shape(output) != one.shape:
            _differs(name)
        if output is not one:
            np.copyto(one, output)

    if type(result) is np.ndarray:
        (one,) = made
        return only
    return run


def _put(name: str, into: Any, output: Any) -> None:
    """Put what a call gave where it gave it the first time."""
    before, now = list(_flat(into)), list(_flat(output))
    if len(before) != len(now):
        _differs(name)
    for old, new in zip(before, now):
        if type(old) is np.ndarray:
            if isinstance(new, np.generic):
                new = np.asarray(new)
            if type(new) is not np.ndarray or old.shape != new.shape or old.dtype != new.dtype:
                _differs(name)
            if old is not new:
                np.copyto(old, new)
        elif isinstance(old, _PLAIN) and old is not new and old != new and old == old:
            _differs(name)


def _differs(name: str) -> None:
    raise CaptureError(
        f"{name} gave another shape or number than when the graph was captured: what follows from "
        "the values themselves cannot be replayed"
    )


def _flat(value: Any, depth: int = 0) -> Iterator[Any]:
    """What lies in nested sequences, in order; of our own objects, what they hold."""
    if type(value) is np.ndarray or isinstance(value, _PLAIN):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _flat(part, depth)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _flat(part, depth)
    else:
        yield value
        held = getattr(value, "__dict__", None)
        if held and depth < 2 and type(value).__module__.startswith(_PACKAGE):
            for part in tuple(held.values()):
                if type(part) is np.ndarray or isinstance(part, (list, tuple, dict)):
                    yield from _flat(part, depth + 1)


_PACKAGE = __name__.partition(".")[0]


def _in_memory(value: Any) -> Any:
    """A result with arrays without dimensions in the place of NumPy's numbers."""
    if isinstance(value, np.generic):
        return np.asarray(value)
    if type(value) in (list, tuple):
        return type(value)([_in_memory(part) for part in value])
    if hasattr(value, "_fields"):
        return type(value)(*[_in_memory(part) for part in value])
    return value


def _arrays(value: Any) -> Iterator[Any]:
    return (part for part in _flat(value) if type(part) is np.ndarray)


def _drawn(value: Any) -> Any:
    """Arguments with this replay's draws."""
    if type(value) is Draw:
        return value.now()
    if type(value) in (list, tuple):
        return type(value)([_drawn(part) for part in value])
    if hasattr(value, "_fields"):
        return type(value)(*[_drawn(part) for part in value])
    return value


def _renewed(function: Callable[..., Any], *args: Any) -> Any:
    return function(*_drawn(args))


# --- the place where all calls come by ------------------------------------------------------------


def recording() -> Recorder | None:
    """The recorder of this thread, where what is called now is to be recorded."""
    current = recorder
    return None if current is None or current.thread != get_ident() or current.off else current


def capturing() -> Recorder | None:
    """The recorder of this thread, inside of recorded calls too."""
    current = recorder
    return None if current is None or current.thread != get_ident() else current


def on_gpu() -> Any:
    """The capture of this thread's work on a GPU, where what is called now belongs to it."""
    current = capturing()
    return None if current is None or current.gpu is None or current.outside else current.gpu


@contextmanager
def outside() -> Iterator[None]:
    """What is made once and kept, as a table, is no part of a graph: it is computed at once."""
    current = capturing()
    if current is None:
        yield
        return
    current.off += 1
    current.outside += 1
    if current.outside == 1:
        current.swap_copies()
    if current.gpu is not None:
        current.gpu.suspend()
    try:
        yield
    finally:
        if current.outside == 1:
            current.swap_copies()
        current.off -= 1
        current.outside -= 1
        if current.gpu is not None:
            current.gpu.resume()


def waits(leaf: Any) -> bool:
    """Whether a leaf is the result of a reduction that is computed later, with others.

    Asking for its array would compute it by itself: its sums would come in another order.
    """
    return leaf.source is not None and leaf.result is not None


def is_array(value: Any) -> bool:
    """Whether a value is memory that may be recorded."""
    return type(value) is np.ndarray


def is_computed(data: Any) -> bool:
    """Whether data may follow from what a graph computes: else it is Python's, or the user's."""
    current = recording()
    if current is None or type(data) is not np.ndarray:
        return False
    return not NUMBERS.issuperset(current.frames) or current.whose(data) is not None


def constant(array: Any) -> Any:
    """A new array of Python's numbers, which a graph has as they are."""
    current = recording()
    if current is not None and is_array(array):
        current.adopt(array, MADE)
        current.record("constant", _same, (array.copy(),), array)
    return array


def _same(array: Any) -> Any:
    return array


_beginning = Lock()


def begin(new: Recorder) -> None:
    """Record from now on."""
    global recorder
    with _beginning:
        if recorder is not None:
            raise RuntimeError("a capture is under way already; one graph is captured at a time")
        recorder = new
        gemm.take(on_gpu)
        wrap(_recorded)


def end() -> None:
    """Record no more."""
    global recorder
    recorder = None
    gemm.take(None)
    wrap(_as_it_was)


class _Recording:
    """A backend while a step is captured: what its thread asks for is recorded, or refused."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def records(self) -> bool:
        return recording() is not None

    def item(self, array: Any) -> Any:
        self.once("item()", READ_ONCE)
        return self.inner.item(array)

    def aside(self, function: Callable[..., Any], *args: Any) -> Any:
        with outside():
            return function(*args)

    def once(self, what: str, why: str) -> None:
        current = recording()
        if current is not None:
            current.refuse(what, why)

    def keep(self, owner: Any, repeated: bool = False) -> None:
        current = capturing()
        if current is not None:
            current.keep(owner.__dict__, repeated)

    def repeat(self, name: str, change: Callable[..., Any], *args: Any) -> None:
        change(*args)
        current = recording()
        if current is not None:
            current.steps.append(Step(name, partial(change, *args), ()))

    def draw(self, generator: Any, seed: int, offset: int) -> tuple[int, int]:
        current = recording()
        return (seed, offset) if current is None else current.draw(generator, seed, offset)

    def call(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        current = recording()
        if current is None:
            return function(*args)
        if function is write:
            current.fill(*args)
        return current.call(name, function, args)


def _called(name: str) -> Any:
    """A function of a backend whose calls are recorded."""
    return lambda self, *args: self.call(name, getattr(self.inner, name), *args)


def _constantly(name: str) -> Any:
    """A function of a backend that makes numbers of Python's an array."""
    return lambda self, *args: constant(getattr(self.inner, name)(*args))


class OnCPU(_Recording):
    """NumPy's."""

    matmul, argsort = map(_called, ("matmul", "argsort"))
    full, arange = map(_constantly, ("full", "arange"))

    def asarray(self, data: Any, d: Any, where: Any) -> Any:
        if is_computed(data):
            return self.call("a copy", self.inner.asarray, data, d, where)
        return constant(self.inner.asarray(data, d, where))

    def matmul_of_rows(self, a: Any, b: Any, d: Any) -> Any:
        return self.matmul(a.T, b, d)

    def matmul_in_background(self, a: Any, b: Any, d: Any) -> Any:
        return None if self.records else self.inner.matmul_in_background(a, b, d)

    def library(self, module: str, name: str, where: Any, *arrays: Any, **options: Any) -> Any:
        function = partial(self.inner.library, module, name, where, **options)
        return self.call(name, function, *arrays)


class OnGPU(_Recording):
    """CuPy's: most of its work is captured by the stream; here is what waits for the GPU."""

    def to_numpy(self, array: Any) -> Any:
        _refuse_on_gpu("a copy to the CPU", "the host waits there for what a graph computes")
        return self.inner.to_numpy(array)

    def item(self, array: Any) -> Any:
        self.once("item()", READ_ONCE)
        return self.to_numpy(array).item()

    def asarray(self, data: Any, d: Any, where: Any) -> Any:
        return self._constant(data, partial(self.inner.asarray, data, d, where))

    def from_numpy(self, array: Any, where: Any) -> Any:
        return self._constant(array, partial(self.inner.from_numpy, array, where))

    def _constant(self, data: Any, copy: Callable[[], Any]) -> Any:
        """A copy of the host's data, made now and not by each replay."""
        capture = on_gpu()
        if capture is None or capture.is_array(data):
            return copy()
        if is_computed(data):
            _refuse_on_gpu("a copy to the GPU", "it comes from what the CPU computes or was given")
        with outside():
            made = copy()
            capture.hold(made)
        return made

    def library(self, module: str, name: str, where: Any, *arrays: Any, **options: Any) -> Any:
        _refuse_on_gpu(f"{module}.{name}()", "CuPy does not compute it where work is captured")
        return self.inner.library(module, name, where, *arrays, **options)

    def argsort(self, array: Any, dim: int) -> Any:
        if on_gpu() is None:
            return self.inner.argsort(array, dim)
        assert recorder is not None  # Thrust waits for the GPU
        return recorder.call_between("argsort", self.inner.argsort, (array, dim))


def _refuse_on_gpu(what: str, why: str) -> None:
    if on_gpu() is not None:
        assert recorder is not None
        recorder.refuse(what, why)


def _recorded(one: Any) -> Any:
    return {"cpu": OnCPU, "cuda": OnGPU}.get(one.type, _as_it_was)(one)


def _as_it_was(one: Any) -> Any:
    return getattr(one, "inner", one)

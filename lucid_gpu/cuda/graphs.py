"""Whole steps as graphs: recorded once, run again without Python between their kernels.

A graph is what `CUDAGraph.capture_begin` and `capture_end` have between them: calls on arrays whose
memory stays where it is. `CUDAGraph.replay` makes them again, on what their inputs hold by then.
Names are PyTorch's.

Work on the CPU is recorded by `lucid_gpu.devices.capturing`, to which `lucid_gpu.ops.captured` adds
what it must of an op; a GPU's by `lucid_gpu.devices.stream_capture`, in CUDA's own graphs.
"""

from __future__ import annotations

import gc
import itertools
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import get_ident
from typing import Any

from lucid_gpu.amp.state import KINDS, is_autocast_cache_enabled, is_autocast_enabled
from lucid_gpu.amp.state import state as autocast
from lucid_gpu.autograd.function import Function
from lucid_gpu.autograd.grad import grad
from lucid_gpu.autograd.second_derivatives import once_differentiable
from lucid_gpu.core.node import watch_gradients
from lucid_gpu.core.owner import Loan
from lucid_gpu.core.planning import steps, user_line
from lucid_gpu.core.value import Cell, Expr, give
from lucid_gpu.cuda.captured_steps import following
from lucid_gpu.device import device
from lucid_gpu.devices import backend, capturing, held, is_initialized, threads
from lucid_gpu.devices.copies import duplicate, write
from lucid_gpu.devices.stream_capture import StreamCapture
from lucid_gpu.func.trees import flatten, unflatten
from lucid_gpu.fusion import pending_reductions, scheduler
from lucid_gpu.fusion import realize as realizing
from lucid_gpu.ops import captured
from lucid_gpu.ops.creation import ones_like
from lucid_gpu.ops.in_place import copy_for_readers
from lucid_gpu.tape import watched
from lucid_gpu.tape.door import type_name
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor, _mark_shared, follow_streams, move_back, store_written

__all__ = [
    "CUDAGraph",
    "graph",
    "graph_pool_handle",
    "is_current_stream_capturing",
    "make_graphed_callables",
]

CaptureError = capturing.CaptureError

_pools = itertools.count(1)
_MODES = ("global", "thread_local", "relaxed")
_left_behind: deque[_Capture] = deque()  # under way in one thread; their graph died in another


def graph_pool_handle() -> tuple[int, int]:
    """A name for memory that graphs share. Each graph has memory of its own here all the same."""
    return (0, next(_pools))


def is_current_stream_capturing() -> bool:
    """Whether this thread captures a graph."""
    return capturing.capturing() is not None


class _Noting:
    """Notes the tensors that are made while a graph is captured; see `tensor.follow_streams`."""

    def __init__(self, recorder: capturing.Recorder) -> None:
        self.recorder = recorder
        self.before = follow_streams(self)

    def add(self, tensor: Tensor) -> None:
        """Note one."""
        if self.before is not None:
            self.before.add(tensor)
        if capturing.recording() is self.recorder:
            self.recorder.tensors[id(tensor)] = weakref.ref(tensor)

    def compute(self, tensors: Sequence[Tensor], values: Sequence[Any]) -> list[Any]:
        """The arrays of pending values."""
        if self.before is not None:
            arrays: list[Any] = self.before.compute(tensors, values)
            return arrays
        return realizing.realize(values)

    def living(self) -> list[Tensor]:
        """Those that somebody still has, each once."""
        references = list(self.recorder.tensors.values())
        return [t for reference in references if (t := reference()) is not None]


class _Capture:
    """A capture that is under way."""

    def __init__(self) -> None:
        store_written()
        if realizing.waiting:
            pending_reductions.flush()
        scheduler.begin_step()
        self.recorder = capturing.Recorder(steps.count, _user_line)
        capturing.begin(self.recorder)
        steps.least = scheduler.ALWAYS + 1  # every op is to be seen, with its operands
        steps.refresh()  # at once, not from the next step on
        self.noting = _Noting(self.recorder)
        self.watch = captured.watching()
        self.watch.__enter__()
        watched.tell(captured.Watcher(self.recorder))
        self.end_steps = following(self.recorder)
        self.gradients: dict[Any, Any] = {}  # of leaves and tensors, before they were replaced
        self.casts, autocast.cached = autocast.cached, {}  # a graph casts parameters itself
        watch_gradients(self._before_gradient)
        if is_initialized():
            try:
                self.recorder.gpu = StreamCapture(backend(device("cuda")).xp)
            except BaseException:
                self.leave()
                raise

    def _before_gradient(self, of: Any) -> None:
        if capturing.capturing() is self.recorder:
            self.gradients.setdefault(of, of._grad if isinstance(of, Tensor) else of.grad)

    def finish(self) -> list[Tensor]:
        """Record what is left to do and try all of it out; gives the tensors replays write."""
        recorder = self.recorder
        store_written()
        if realizing.waiting:
            pending_reductions.flush()
        made = [t for t in self.noting.living() if t._wrapper is None and not t._is_sparse]
        for tensor in made:
            tensor._realize()
        for tensor in made:
            _own_copy(recorder, tensor)
        self._put_values_back()
        recorder.settle_writes()
        outputs = []
        for tensor in made:
            recorder.refuse_other_gpus(tensor.array)
            whose = recorder.whose(tensor.array)
            if whose is None:
                recorder.refuse(
                    f"a tensor of shape {list(tensor.shape)}", "how it was made is not recorded"
                )
            if whose is capturing.MADE:
                outputs.append(tensor)
        if recorder.gpu is not None:
            recorder.gpu.end()
        recorder.try_out()
        self.leave()
        self._keep_for_readers()
        return [*outputs, *recorder.written.values()]

    def _put_values_back(self) -> None:
        """Tensors from before have their own memory again; a replay's last calls write it."""
        recorder = self.recorder
        pairs = [(own, own.tensor._cell().array) for own in recorder.taken.values()]
        moved = [
            duplicate(array)
            if recorder.whose(array) is capturing.EXTERNAL and array is not own.array
            else array
            for own, array in pairs
        ]
        for (own, _), array in zip(pairs, moved, strict=True):
            _put_back(own)
            recorder.before_write(own.array, "an op in place", own.tensor)
            if array is not own.array:
                write(own.array, array)
            recorder.owed.clear()

    def leave(self) -> None:
        """End the capture."""
        self.recorder.swap_copies()
        self.recorder.copied.clear()
        autocast.cached = self.casts
        steps.least = 0
        scheduler.begin_step()
        watch_gradients(None)
        self.end_steps()
        watched.tell(None)
        self.watch.__exit__()
        follow_streams(self.noting.before)
        capturing.end()

    def abandon(self) -> None:
        """End the capture, and put everything back as it was."""
        try:
            if self.recorder.gpu is not None:
                self.recorder.gpu.abandon()
        finally:
            for own in self.recorder.taken.values():
                _put_back(own)
            for tensor, attributes, taken in self.recorder.moved.values():
                move_back(tensor, attributes)
                if taken:
                    _put_back(self.recorder.taken[id(tensor)])
            watch_gradients(None)
            for of, gradient in self.gradients.items():
                of.grad = gradient
            self.leave()
            self.recorder.restore()
            self.recorder.give_back()
            self._keep_for_readers()

    def _keep_for_readers(self) -> None:
        """Let values that wait since before the capture keep what they read: it will be written."""
        taken = self.recorder.taken.values()
        old = [cell() for own in taken for cell in own.cells]
        readers = [one for cell in old if cell is not None for one in cell.readers()]
        memory = [own.tensor._memory() for own in taken]
        there = [t for m in memory for t in getattr(m, "memory", m).living()]
        present = {id(leaf) for t in there for leaf in t._expr.leaves}
        copy_for_readers([weakref.ref(one) for one in readers if id(one) not in present])


def _put_back(own: capturing.Taken) -> None:
    """Give a tensor the memory back that it had before the capture."""
    cell = Cell(own.array, own.node, own.output)
    give(own.tensor, Expr(own.program, (cell,), None, own.array.shape))
    own.tensor._memory().add_cell(cell)


def _own_copy(recorder: capturing.Recorder, tensor: Tensor) -> None:
    """A tensor made in a graph that borrowed its memory gets a copy: others may write that."""
    cell = tensor._cell()
    if cell.borrowed:
        if recorder.whose(cell.array) is not capturing.MADE or len(cell.readers()) > 1:
            cell.array = duplicate(cell.array)
        cell.borrowed = False


def _user_line() -> str:
    file, number = user_line()
    return f"{file}:{number}"


class CUDAGraph:
    """A captured step.

    Parameters
    ----------
    keep_graph : bool
        Accepted for compatibility.
    """

    _capture: _Capture | None = None
    _recorder: capturing.Recorder | None = None
    _pool: Any = None

    def __init__(self, keep_graph: bool = False) -> None:
        self._runs: list[Callable[[], Any]] = []
        self._written: list[tuple[Any, Loan]] = []  # weak references to tensors

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        """Begin to capture what this thread computes.

        Parameters
        ----------
        pool : tuple, optional
            What `graph_pool_handle` or another graph's `pool` gave.
        capture_error_mode : {"global", "thread_local", "relaxed"}
            What other threads do is no part of the graph, in any mode.

        Raises
        ------
        RuntimeError
            If this graph holds a step already, or another capture is under way.
        """
        if capture_error_mode not in _MODES:
            raise RuntimeError(
                "Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got "
                f"{capture_error_mode}"
            )
        if self._recorder is not None or self._capture is not None:
            raise RuntimeError(
                "This CUDAGraph instance already owns a captured graph. To capture a new graph, "
                "create a new instance."
            )
        for capture in [c for c in _left_behind if c.recorder.thread == get_ident()]:
            _left_behind.remove(capture)
            capture.abandon()
        self._pool = graph_pool_handle() if pool is None else pool
        self._capture = _Capture()

    def capture_end(self) -> None:
        """End the capture; parameters, buffers and generators are as they were before it.

        Raises
        ------
        RuntimeError
            If no capture is under way, and for what a graph can not hold. Then all is as it was.
        """
        capture, self._capture = self._capture, None
        if capture is None:
            raise RuntimeError("capture_end() without capture_begin(): no capture is under way")
        try:
            written = capture.finish()
        except BaseException:
            capture.abandon()
            raise
        recorder = self._recorder = capture.recorder
        self._runs = [step.run for step in recorder.steps]
        held.hold(recorder, recorder.places())
        recorder.forget_trial()
        recorder.give_back(whole=True)
        for tensor in written:
            self._written.append((weakref.ref(tensor), _lend(tensor)))

    def _abandon(self) -> None:
        capture, self._capture = self._capture, None
        if capture is not None:
            capture.abandon()

    def replay(self) -> None:
        """Run the captured step on what its inputs hold now.

        Raises
        ------
        RuntimeError
            If nothing was captured, and inside of a capture.
        """
        if self._recorder is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        if capturing.capturing() is not None:
            raise RuntimeError("replay() inside of a capture: a graph holds no other graph")
        self._recorder.advance()
        threads.run_quietly(self._run)

    def _run(self) -> None:
        for run in self._runs:
            run()
        assert self._recorder is not None
        if self._recorder.gpu is not None:
            self._recorder.gpu.run()

    def reset(self) -> None:
        """Forget what was captured; its tensors keep what they hold."""
        self._abandon()
        if self._recorder is not None:
            held.release(self._recorder)
            for reference, loan in self._written:
                tensor = reference()
                storage = None if tensor is None else tensor._storage
                if storage is not None and not held.is_held(loan[0]):
                    storage.take_back(loan)
        self._recorder = None
        self._runs, self._written = [], []

    def __del__(self) -> None:
        capture = self._capture
        if capture is not None and capture.recorder.thread != get_ident():
            self._capture = None  # only that thread can end it, and does before its next capture
            _left_behind.append(capture)
        self.reset()

    def pool(self) -> Any:
        """The name of its memory, for other graphs' ``pool``."""
        return self._pool

    def enable_debug_mode(self) -> None:
        """For `debug_dump`, which always can."""

    def debug_dump(self, debug_path: str) -> None:
        """Write the calls of the graph, in their order, to a file of Graphviz's language.

        RuntimeError if nothing was captured.
        """
        if self._recorder is None:
            raise RuntimeError("debug_dump() of a graph that holds nothing: capture a step first")
        lines, names = ["digraph step {"], []
        for step in self._recorder.steps:
            shapes = " ".join([str(list(array.shape)) for array in step.results])
            names.append(f"{step.name} {shapes}".rstrip().replace('"', "'"))
        if self._recorder.gpu is not None:
            names += self._recorder.gpu.names
        for i, name in enumerate(names):
            label = f"{i} {name}"
            lines.append(f'  n{i} [label="{label}"];')
            if i:
                lines.append(f"  n{i - 1} -> n{i};")
        Path(debug_path).write_text("\n".join([*lines, "}\n"]), encoding="utf-8")


def _lend(tensor: Tensor) -> Loan:
    """A graph writes this memory, unseen: what reads it is computed at once."""
    cell, storage = tensor._cell(), tensor._memory()
    loan = storage.lend(cell, forever=True)
    for other in [tensor, *storage.others(tensor)]:
        _mark_shared(other)
    return loan


class graph:
    """Capture the work inside a ``with`` block into a graph.

    Parameters
    ----------
    cuda_graph : CUDAGraph
    pool : tuple, optional
        See `CUDAGraph.capture_begin`.
    stream : Stream, optional
        Accepted for compatibility: each capture has a stream of its own.
    capture_error_mode : str
    """

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: str = "global",
    ) -> None:
        self.cuda_graph, self.pool, self.stream = cuda_graph, pool, stream
        self.capture_error_mode = capture_error_mode

    def __enter__(self) -> None:
        gc.collect()  # what is in cycles need not be stored at the end
        self.cuda_graph.capture_begin(self.pool, self.capture_error_mode)

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is not None:
            self.cuda_graph._abandon()
        else:
            self.cuda_graph.capture_end()


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: Any = None,
) -> Any:
    """Modules and functions whose forward and backward are each a graph.

    Parameters
    ----------
    callables : module or function, or tuple of them
        Of tensors; what it returns is made of tensors in tuples, lists and dicts. A module's
        parameters get gradients; a function's only its arguments. Modules are changed, and
        returned.
    sample_args : tuple, or tuple of such tuples
        Tensors, and sequences and dicts of them, of the shapes and types of later calls, with
        ``requires_grad`` as of those.
    num_warmup_iters : int
        How often each is run before. Batch norm and random numbers go on by as many calls.
    allow_unused_input : bool
        Whether a tensor that requires grad may have no gradient.
    pool : tuple, optional
        See `CUDAGraph.capture_begin`.

    Raises
    ------
    AssertionError
        For samples and results that are not tensors, modules with hooks, and buffers that require
        grad.
    RuntimeError
        For operations that a graph cannot hold, for tensors without a gradient, and under autocast
        with its cache.
    """
    for kind in KINDS:
        if is_autocast_enabled(kind) and is_autocast_cache_enabled():
            raise RuntimeError(
                "make_graphed_callables does not support the autocast caching. Please set "
                "`cache_enabled=False`."
            )
    several = isinstance(callables, (tuple, list))
    some = tuple(callables) if several else (callables,)
    samples = tuple(sample_args) if several else (sample_args,)
    pairs = [_Pair(f, a) for f, a in zip(some, samples, strict=True)]
    for pair in pairs:
        pair.warm_up(num_warmup_iters, allow_unused_input)
    for pair in pairs:
        pair.capture_forward(pool)
    for pair in reversed(pairs):
        pair.capture_backward(allow_unused_input, pool)
    graphed = [_graphed(f, pair) for f, pair in zip(some, pairs, strict=True)]
    return tuple(graphed) if several else graphed[0]


class _Graphed(Function):
    """A call of two graphs: the results of the first, and by the second the gradients."""

    @staticmethod
    def forward(ctx: Any, pair: _Pair, *tensors: Tensor) -> Any:
        ctx.pair = pair
        ctx.save_for_backward(*tensors[len(pair.arguments) :])  # parameters must not be written
        for static, tensor in zip(pair.arguments, tensors):
            with no_grad():
                static.copy_(tensor)
        pair.there.replay()
        pair.calls += 1
        ctx.call = pair.calls
        results = [t.detach().clone() for t in pair.results]
        fixed = [r for r, t in zip(results, pair.results, strict=True) if not t.requires_grad]
        ctx.mark_non_differentiable(*fixed)
        return tuple(results)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *cotangents: Any) -> Any:
        pair = ctx.pair
        assert ctx.saved_tensors is not None  # unless they were written
        if ctx.call != pair.calls:
            raise RuntimeError(
                "backward through a call of a graphed callable that was called again since: its "
                "graph holds the values of the last call only. Go backward before the next call, "
                "or make a graphed callable for each of them."
            )
        for static, cotangent in zip(pair.cotangents, cotangents, strict=True):
            if static is not None:
                static.copy_(cotangent)
        pair.back.replay()
        return (None, *[None if g is None else g.detach().clone() for g in pair.gradients])


class _Pair:
    """A callable's graphs there and back, and the tensors by which they are reached.

    Attributes
    ----------
    arguments, results, cotangents, gradients : sequences of Tensor
        Which stay where they are; None where there is none.
    calls : int
        How often it was called.
    """

    def __init__(self, function: Any, sample: Any) -> None:
        where = "make_graphed_callables(): "
        sample = tuple(sample) if isinstance(sample, (tuple, list)) else (sample,)
        flat, self.shape = flatten(sample)
        if not all(isinstance(t, Tensor) for t in flat):
            raise AssertionError(
                f"{where}In the beta API, sample_args for each callable must contain only Tensors. "
                "Other types are not allowed."
            )
        self.function, held = function, []
        if hasattr(function, "named_parameters"):
            self.function, held = function.forward, list(function.parameters())
            hooks = (function._backward_hooks, function._forward_hooks, function._forward_pre_hooks)
            if any(hooks):
                raise AssertionError(
                    f"{where}Modules must not have hooks registered at the time they are passed. "
                    "However, registering hooks on modules after passing them through "
                    "make_graphed_callables is allowed."
                )
            if any(b.requires_grad for b in function.buffers()):
                raise AssertionError(
                    f"{where}only parameters may be trainable. All buffers must have "
                    "``requires_grad=False``."
                )
        self.arguments = [t.detach().clone().requires_grad_(t.requires_grad) for t in flat]
        self.inputs = [*self.arguments, *held]
        self.wanted = [t for t in self.inputs if t.requires_grad]
        self.there, self.back = CUDAGraph(), CUDAGraph()
        self.results: list[Tensor] = []
        self.cotangents: list[Tensor | None] = []
        self.gradients: list[Tensor | None] = [None] * len(self.inputs)
        self.calls = 0

    def warm_up(self, count: int, allow_unused: bool) -> None:
        """Run it, and its gradients, so many times."""
        for _ in range(count):
            results, _ = self._results()
            cotangents = [ones_like(t) for t in results if t.requires_grad]
            self._gradients(results, cotangents, allow_unused)

    def capture_forward(self, pool: Any) -> None:
        """Capture the callable."""
        with graph(self.there, pool):
            self.results, self.made = self._results()

    def capture_backward(self, allow_unused: bool, pool: Any) -> None:
        """Capture its gradients, if it has any."""
        self.cotangents = [ones_like(t) if t.requires_grad else None for t in self.results]
        cotangents = [c for c in self.cotangents if c is not None]
        if not (self.wanted and cotangents):
            return
        with graph(self.back, pool):
            gradients = iter(self._gradients(self.results, cotangents, allow_unused))
        self.gradients = [next(gradients) if t.requires_grad else None for t in self.inputs]

    def _results(self) -> tuple[list[Tensor], Any]:
        made, shape = flatten(self.function(*unflatten(self.arguments, self.shape)))
        for one in made:
            if not isinstance(one, Tensor):
                raise AssertionError(
                    "make_graphed_callables(): a callable returns tensors, in tuples, lists and "
                    f"dicts, but one returned {type_name(one)}"
                )
        return made, shape

    def _gradients(self, results: Any, cotangents: Any, allow_unused: bool) -> Sequence[Any]:
        if not (self.wanted and cotangents):
            return ()
        outputs = [t for t in results if t.requires_grad]
        return grad(outputs, self.wanted, cotangents, allow_unused=allow_unused)

    def __call__(self, *arguments: Any) -> Any:
        """The callable's results, from copies of its arguments."""
        flat, shape = flatten(arguments)
        if shape != self.shape:
            raise TypeError(
                f"a graphed callable takes arguments as its sample_args were, {self.shape!r} where "
                f"* is a tensor, but got {shape!r}"
            )
        for i, (own, given) in enumerate(zip(self.arguments, flat, strict=True)):
            if not isinstance(given, Tensor) or given.shape != own.shape:
                what = f"shape {list(given.shape)}" if isinstance(given, Tensor) else given
                raise RuntimeError(
                    f"tensor {i} of the arguments of a graphed callable has the shape "
                    f"{list(own.shape)}, as in its sample_args, but this one is {what}; make "
                    "another graphed callable for other shapes"
                )
        results = _Graphed.apply(self, *flat, *self.inputs[len(self.arguments) :])
        return unflatten(results, self.made)


def _graphed(f: Any, pair: _Pair) -> Any:
    if not hasattr(f, "named_parameters"):
        return pair
    plain, training = f.forward, f.training

    def forward(*args: Any, **kwargs: Any) -> Any:
        return pair(*args, **kwargs) if f.training is training else plain(*args, **kwargs)

    f.forward = forward
    return f

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

from lucid_gpu.amp.state import state as autocast
from lucid_gpu.autograd.function import Function
from lucid_gpu.autograd.grad import grad
from lucid_gpu.autograd.second_derivatives import once_differentiable
from lucid_gpu.device import device
from lucid_gpu.devices import backend, capturing, is_initialized, threads
from lucid_gpu.devices.copies import duplicate, write
from lucid_gpu.devices.stream_capture import StreamCapture
from lucid_gpu.fusion import pending_reductions, scheduler
from lucid_gpu.fusion import realize as realizing
from lucid_gpu.fusion.expression import Cell, Expr
from lucid_gpu.launch.planning import steps, user_line
from lucid_gpu.ops import captured
from lucid_gpu.ops.creation import ones_like
from lucid_gpu.storage import Loan
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tape.node import watch_gradients
from lucid_gpu.tensor import Tensor, _mark_shared, follow_streams, store_written

__all__ = [
    "CUDAGraph",
    "graph",
    "graph_pool_handle",
    "is_current_stream_capturing",
    "make_graphed_callables",
]

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
        self.gradients: dict[Any, Any] = {}  # of leaves, before they were replaced
        self.casts, autocast.cached = autocast.cached, {}  # a graph casts parameters itself
        watch_gradients(self._before_gradient)
        if is_initialized():
            try:
                self.recorder.gpu = StreamCapture(backend(device("cuda")).xp)
            except BaseException:
                self.leave()
                raise

    def _before_gradient(self, leaf: Any) -> None:
        if capturing.capturing() is self.recorder:
            self.gradients.setdefault(leaf, leaf.grad)

    def finish(self) -> list[Tensor]:
        """Record what is left to do and try all of it out; gives the tensors replays write."""
        recorder = self.recorder
        store_written()
        if realizing.waiting:
            pending_reductions.flush()
        made = [t for t in self.noting.living() if t._wrapper is None and not t.is_sparse]
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
        autocast.cached = self.casts
        steps.least = 0
        scheduler.begin_step()
        watch_gradients(None)
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
            for leaf, gradient in self.gradients.items():
                leaf.grad = gradient
            self.leave()
            self.recorder.restore()
            self.recorder.give_back()


def _put_back(own: capturing.Taken) -> None:
    """Give a tensor the memory back that it had before the capture."""
    cell = Cell(own.array, own.node, own.output)
    own.tensor._expr = Expr(own.program, (cell,), None)
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
        capturing.hold(recorder)
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
            capturing.release(self._recorder)
            for reference, loan in self._written:
                tensor = reference()
                storage = None if tensor is None else tensor._storage
                if storage is not None and not capturing.is_fixed(loan.owner):
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
        Of tensors; what it returns is a tensor or a tuple of them. A module's parameters get
        gradients; a function's only its arguments. Modules are changed, and returned.
    sample_args : tuple of Tensor, or tuple of such tuples
        Of the shapes and types of later calls, with ``requires_grad`` as of those.
    num_warmup_iters : int
        How often each is run before.
    allow_unused_input : bool
        Whether a tensor that requires grad may have no gradient.
    pool : tuple, optional
        See `CUDAGraph.capture_begin`.

    Raises
    ------
    TypeError
        For samples that are not tensors.
    RuntimeError
        For operations that a graph cannot hold, and for tensors without a gradient.
    """
    several = isinstance(callables, (tuple, list))
    some = tuple(callables) if several else (callables,)
    samples = tuple(sample_args) if several else (sample_args,)
    pairs = zip(some, samples, strict=True)
    graphed = [_graphed(f, a, num_warmup_iters, allow_unused_input, pool) for f, a in pairs]
    return tuple(graphed) if several else graphed[0]


class _Graphed(Function):
    """A call of two graphs: the results of the first, and by the second the gradients."""

    @staticmethod
    def forward(ctx: Any, pair: _Pair, *tensors: Tensor) -> Any:
        ctx.pair = pair
        ctx.save_for_backward(*tensors)  # never read: what depends on them has no second derivative
        for static, tensor in zip(pair.arguments, tensors):
            with no_grad():
                static.copy_(tensor)
        pair.there.replay()
        return tuple([t.detach().clone() for t in pair.results])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *cotangents: Any) -> Any:
        pair = ctx.pair
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
    """

    def __init__(self, function: Any, arguments: tuple[Tensor, ...], held: list[Tensor]) -> None:
        self.function, self.arguments = function, arguments
        self.inputs = [*arguments, *held]
        self.there, self.back = CUDAGraph(), CUDAGraph()
        self.results: tuple[Tensor, ...] = ()
        self.cotangents: list[Tensor | None] = []
        self.gradients: list[Tensor | None] = []
        self.single = True

    def capture(self, warmups: int, allow_unused: bool, pool: Any) -> None:
        """Capture both."""
        wanted = [t for t in self.inputs if t.requires_grad]
        for _ in range(warmups):
            self._gradients(self._results(), wanted, allow_unused)
        with graph(self.there, pool):
            self.results = self._results()
        differentiable = [t for t in self.results if t.requires_grad]
        self.cotangents = [ones_like(t) if t.requires_grad else None for t in self.results]
        if not (wanted and differentiable):
            self.gradients = [None] * len(self.inputs)
            return
        with graph(self.back, pool):
            gradients = iter(self._gradients(self.results, wanted, allow_unused))
        self.gradients = [next(gradients) if t.requires_grad else None for t in self.inputs]

    def _results(self) -> tuple[Tensor, ...]:
        made = self.function(*self.arguments)
        self.single = isinstance(made, Tensor)
        return (made,) if isinstance(made, Tensor) else tuple(made)

    def _gradients(self, results: Any, wanted: Any, allow_unused: bool) -> Sequence[Any]:
        outputs = [t for t in results if t.requires_grad]
        if not (outputs and wanted):
            return ()
        cotangents = [c for c in self.cotangents if c is not None] or [
            ones_like(t) for t in outputs
        ]
        return grad(outputs, wanted, cotangents, allow_unused=allow_unused)

    def __call__(self, *arguments: Any) -> Any:
        """The callable's results, from copies of its arguments."""
        held = self.inputs[len(self.arguments) :]
        results = _Graphed.apply(self, *arguments, *held)
        return results[0] if self.single else results


def _graphed(f: Any, arguments: Any, warmups: int, allow_unused: bool, pool: Any) -> Any:
    inputs = tuple(arguments) if isinstance(arguments, (tuple, list)) else (arguments,)
    if not all(isinstance(t, Tensor) for t in inputs):
        raise TypeError("make_graphed_callables(): sample_args are tensors")
    static = tuple([t.detach().clone().requires_grad_(t.requires_grad) for t in inputs])
    if not hasattr(f, "named_parameters"):
        pair = _Pair(f, static, [])
        pair.capture(warmups, allow_unused, pool)
        return pair
    if any(b.requires_grad for b in f.buffers()):
        raise RuntimeError("make_graphed_callables(): a module's buffers may not require grad")
    plain, training = f.forward, f.training
    pair = _Pair(plain, static, list(f.parameters()))
    pair.capture(warmups, allow_unused, pool)

    def forward(*args: Any) -> Any:
        return pair(*args) if f.training is training else plain(*args)

    f.forward = forward
    return f

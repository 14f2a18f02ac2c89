"""Ranks that NCCL connects, through CuPy's binding of it: arrays of GPUs.

Every call runs on a stream of its communicator, after what the current stream has been given so
far; who needs its result lets the current stream wait for it, and the host goes on. MPI stands
beside it: ranks meet there before NCCL waits for them, and it says which of them are missing. A
thread ends the job where NCCL fails or a rank does not come, for nothing else can: the host may be
waiting for the GPU.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing import util
from typing import Any

import numpy as np

from lucid_gpu.device import device
from lucid_gpu.devices import backend, cupy_backend, installing
from lucid_gpu.devices.current_gpu import on_gpu
from lucid_gpu.devices.determinism import are_deterministic_algorithms_enabled
from lucid_gpu.distributed.engines import Done, Ordered, mpi
from lucid_gpu.distributed.errors import DistBackendError
from lucid_gpu.distributed.reductions import ReduceOp
from lucid_gpu.distributed.watch import Call
from lucid_gpu.distributed.work import StreamWork
from lucid_gpu.dtypes import uint8

__all__ = ["NCCLEngine", "Passing", "problem", "require"]

_BYTES = 1  # NCCL's unsigned 8-bit integers
# NCCL's numbers of types that it adds; bool is 0 and 1, int16 goes as int32.
_TYPES = {
    "int8": 0, "uint8": 1, "bool": 1, "int32": 2, "int64": 4, "float16": 6, "float32": 7,
    "float64": 8, "bfloat16": 9, "complex64": 7, "complex128": 8,
}  # fmt: skip
_OPS = {
    ReduceOp.SUM: 0, ReduceOp.PRODUCT: 1, ReduceOp.MAX: 2, ReduceOp.MIN: 3, ReduceOp.AVG: 4
}  # fmt: skip
_ONE_ALGORITHM = {"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}  # whatever the size
_ID_BYTES = 128
_OFTEN = 0.1  # seconds between two looks at whether NCCL has failed


def problem() -> str | None:
    """Why NCCL cannot be used here, with the mend; None where it can."""
    missing = cupy_backend.problem()
    if missing is None and cupy_backend.import_nccl() is None:
        missing = (
            "CuPy finds no libnccl.so.2; install it: "
            f"{installing.command(installing.extra('nccl'))}"
        )
    return missing


def require() -> None:
    """Raise in PyTorch's words where NCCL cannot be used."""
    if cupy_backend.problem() is not None:
        raise ValueError(
            "ProcessGroupNCCL is only supported with GPUs, no GPUs found! "
            f"({cupy_backend.problem()}); use backend='gloo'"
        )
    if problem() is not None:
        raise RuntimeError(f"Distributed package doesn't have NCCL built in: {problem()}")


class Passing(Ordered):
    """What is done once an event has come to pass; its memory is kept until then.

    Parameters
    ----------
    index : int
        The GPU's.
    event : cupy.cuda.Event
    keep : sequence of array
    """

    def __init__(self, index: int, event: Any, keep: Any) -> None:
        self._index, self._event, self._keep = index, event, keep

    def test(self) -> bool:
        """Whether it is done."""
        if self._keep is not None and self._event.done:
            self._keep = None
        return self._keep is None

    def follow(self) -> None:
        """Let the current stream wait for it."""
        cuda = cupy_backend.import_cupy().cuda
        with on_gpu(cuda, self._index):
            cuda.get_current_stream().wait_event(self._event)


class _Arriving(Done):
    """A `Passing` that the host waits for."""

    def __init__(self, passing: Passing) -> None:
        self._passing = passing

    def test(self) -> bool:
        """Whether it is done."""
        return self._passing.test()


class NCCLEngine:
    """The GPUs of a group's ranks.

    Parameters
    ----------
    host : MPIEngine
        The group's.
    ranks : sequence of int
        Its ranks in the default group.
    timeout : timedelta
    """

    name = "nccl"

    def __init__(self, host: Any, ranks: Sequence[int], timeout: timedelta) -> None:
        require()
        self._host, self._ranks, self._timeout = host, list(ranks), timeout
        self.rank, self.size = host.rank, host.size
        self._cuda = cupy_backend.import_cupy().cuda
        self._nccl = cupy_backend.import_nccl()
        # By GPU and ranks of the group: two that send each other messages, or None for all. So that
        # no collective waits for a message, these have a stream of their own.
        self._made: dict[tuple[int, tuple[int, ...] | None], tuple[Any, Any]] = {}
        self._guarded: list[StreamWork] = []
        self._leaving: util.Finalize | None = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    # --- communicators ------------------------------------------------------------------------

    def _communicator(self, index: int, pair: tuple[int, ...] | None) -> tuple[Any, Any]:
        """The communicator of two ranks or all, and its stream; the GPU is the current one."""
        entry = self._made.get((index, pair))
        if entry is None:
            ranks = pair or tuple(range(self.size))
            # To make an id opens a socket that the other ranks come to.
            identity = self._nccl.get_unique_id() if self.rank == ranks[0] else bytes(_ID_BYTES)
            if len(ranks) > 1:  # NCCL itself would wait without end
                world = [self._ranks[rank] for rank in ranks]
                call = Call(f"NCCL's communicator of ranks {world}", ranks=world)
                identity = self._host.meet(call, ranks, self._timeout, identity)
            mend = "; each rank needs a GPU of its own: call cuda.set_device(LOCAL_RANK) first"
            with _one_algorithm(), self._explained(mend):
                made = self._nccl.NcclCommunicator(len(ranks), identity, ranks.index(self.rank))
            if self._leaving is None:  # before MPI is finalized, which the thread uses
                self._leaving = util.Finalize(None, self._leave, exitpriority=-50)
            entry = self._made[index, pair] = made, self._cuda.Stream(non_blocking=True)
        return entry

    @contextmanager
    def _explained(self, mend: str = "") -> Iterator[None]:
        try:
            yield
        except self._nccl.NcclError as error:
            raise DistBackendError(f"NCCL: {error}{mend}") from None

    def _begin(
        self,
        arrays: Sequence[Any],
        ask: Callable[[Any, int], object],
        after: Callable[[], None] | None = None,
        pair: tuple[int, ...] | None = None,
    ) -> Passing:
        """Let a communicator's stream do something with arrays of one GPU.

        ``ask(communicator, stream)`` asks NCCL, of arrays that are not all empty; ``after``
        computes on that stream.
        """
        index = arrays[0].device.id
        with on_gpu(self._cuda, index):
            comm, stream = self._communicator(index, pair)
            ready, done = (self._cuda.Event(disable_timing=True) for _ in range(2))
            ready.record()
            stream.wait_event(ready)
            if any(array.size for array in arrays):
                with self._explained():
                    ask(comm, stream.ptr)
            if after is not None:
                with stream:
                    after()
            done.record(stream)
        return Passing(index, done, (arrays, after))

    # --- collectives --------------------------------------------------------------------------

    def _counted(self, array: Any, op: ReduceOp) -> tuple[Any, int, int, int]:
        """What NCCL is to combine: an array; its number of elements, their type, and NCCL's op."""
        kind = array.dtype.name
        if op not in _OPS:
            raise ValueError(f"Cannot use ReduceOp.{op.name} with NCCL")
        if kind == "int16":
            array, kind = array.astype(np.int32), "int32"
        if kind == "bool" and op is ReduceOp.SUM:
            op = ReduceOp.MAX
        count = array.size * (2 if kind.startswith("complex") else 1)
        return array, count, _TYPES[kind], _OPS[op]

    def all_reduce(self, array: Any, op: ReduceOp) -> Done:
        wide, *how = self._counted(array, op)
        at = wide.data.ptr
        return self._begin(
            (array, wide), lambda comm, s: comm.allReduce(at, at, *how, s), _narrowed(array, wide)
        )

    def reduce(self, array: Any, op: ReduceOp, root: int) -> Done:
        wide, *how = self._counted(array, op)
        at, after = wide.data.ptr, _narrowed(array, wide) if self.rank == root else None
        return self._begin((array, wide), lambda comm, s: comm.reduce(at, at, *how, root, s), after)

    def reduce_scatter(self, into: Any, array: Any, op: ReduceOp) -> Done:
        wide, *_ = self._counted(array, op)
        part, *how = self._counted(into, op)
        two = wide.data.ptr, part.data.ptr
        return self._begin(
            (into, array, wide, part),
            lambda comm, s: comm.reduceScatter(*two, *how, s),
            _narrowed(into, part),
        )

    def broadcast(self, array: Any, root: int) -> Done:
        at, size = array.data.ptr, array.nbytes
        return self._begin((array,), lambda comm, s: comm.broadcast(at, at, size, _BYTES, root, s))

    def all_gather(self, into: Any, array: Any) -> Done:
        two, size = (array.data.ptr, into.data.ptr), array.nbytes
        return self._begin((into, array), lambda comm, s: comm.allGather(*two, size, _BYTES, s))

    def gather(self, into: Any, array: Any, root: int) -> Done:
        parts = [] if into is None else _parts(into, [array.size] * self.size)
        return self.exchange([(array, root)], parts)

    def scatter(self, into: Any, array: Any, root: int) -> Done:
        parts = [] if array is None else _parts(array, [into.size] * self.size)
        return self.exchange(parts, [(into, root)])

    def all_to_all(
        self, into: Any, array: Any, receives: Sequence[int], sends: Sequence[int]
    ) -> Done:
        return self.exchange(_parts(array, sends), _parts(into, receives))

    def exchange(
        self,
        sends: Sequence[tuple[Any, int]],
        receives: Sequence[tuple[Any, int]],
        pair: tuple[int, ...] | None = None,
    ) -> Passing:
        """Send arrays to ranks, and receive arrays from ranks, side by side.

        Parameters
        ----------
        sends, receives : sequence of (array, int)
        pair : tuple of int, optional
            The two ranks that have a communicator of their own; that of all by default.
        """
        among = pair or tuple(range(self.size))

        def ask(comm: Any, stream: int) -> None:
            self._nccl.groupStart()
            try:
                for call, parts in ((comm.send, sends), (comm.recv, receives)):
                    for array, peer in parts:
                        if array.size:
                            call(array.data.ptr, array.nbytes, _BYTES, among.index(peer), stream)
            finally:
                self._nccl.groupEnd()

        return self._begin([array for array, _ in (*sends, *receives)], ask, None, pair)

    def send(self, array: Any, peer: int, tag: int) -> Done:
        return self.exchange([(array, peer)], [], self._pair(peer))

    def receive(self, array: Any, peer: int | None, tag: int) -> Done:
        if peer is None:
            raise RuntimeError("Backend nccl does not support recvAnysource; name the source rank")
        done = self.exchange([], [(array, peer)], self._pair(peer))
        done.source = peer
        return done

    def _pair(self, peer: int) -> tuple[int, ...]:
        return min(self.rank, peer), max(self.rank, peer)

    def barrier(self) -> Done:
        where = device("cuda", self._cuda.runtime.getDevice())
        token = backend(where).full((1,), 1, uint8, where)
        passing = self.all_reduce(token, ReduceOp.MAX)
        assert isinstance(passing, Passing)
        return _Arriving(passing)

    # --- what goes wrong ----------------------------------------------------------------------

    def guard(self, work: StreamWork) -> None:
        """Look after an operation that the host does not wait for."""
        self._guarded.append(work)
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="nccl-watch", daemon=True)
            self._thread.start()

    def _watch(self) -> None:
        while not self._closed.wait(_OFTEN):
            try:
                with self._explained():
                    for comm, _ in list(self._made.values()):
                        comm.check_async_error()
                self._host.watch.listen()
                now = time.monotonic()
                for work in [work for work in self._guarded[:] if work.look(now)]:
                    self._guarded.remove(work)
            except DistBackendError as error:
                # No communicator is aborted: the host would go on with what has not come.
                mpi.fail(self._better(error))

    def _better(self, error: DistBackendError) -> DistBackendError:
        """A rank that made another call, where that is the reason."""
        until = time.monotonic() + 1
        while time.monotonic() < until:
            try:
                if all(work.agreed() for work in self._guarded):
                    break
            except DistBackendError as mismatch:
                return mismatch
            time.sleep(0.01)
        return error

    def _stop(self) -> None:
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _leave(self) -> None:
        """At the program's end: what waits for a rank that has failed would never end."""
        self._stop()
        for comm, _ in self._made.values():
            comm.abort()

    def close(self) -> None:
        self._stop()
        if self._leaving is not None:
            self._leaving.cancel()
        for comm, stream in self._made.values():
            stream.synchronize()
            comm.destroy()
        self._made.clear()


@contextmanager
def _one_algorithm() -> Iterator[None]:
    """A block in which NCCL, which reads the environment, is told to add in one order."""
    unset = {k: v for k, v in _ONE_ALGORITHM.items() if k not in os.environ}
    if not are_deterministic_algorithms_enabled():
        unset = {}
    os.environ.update(unset)
    try:
        yield
    finally:
        for name in unset:
            del os.environ[name]


def _narrowed(array: Any, wide: Any) -> Callable[[], None] | None:
    """What brings the sum of a wider type back, where there is one."""
    if wide is array:
        return None

    def after() -> None:
        array[...] = wide.astype(array.dtype)

    return after


def _parts(array: Any, counts: Sequence[int]) -> list[tuple[Any, int]]:
    """A flat array's part of each rank."""
    flat, start, parts = array.reshape(-1), 0, []
    for rank, count in enumerate(counts):
        parts.append((flat[start : start + count], rank))
        start += count
    return parts

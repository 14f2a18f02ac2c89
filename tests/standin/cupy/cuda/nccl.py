"""cupy.cuda.nccl: ranks that move the stand-in's memory through MPI, in the order of streams.

A call begins as soon as its stream comes to it: what it reads is copied, what it will write is
poisoned. It ends when somebody synchronizes, or asks an event. Then memory that was freed, read
memory that was written meanwhile, and written memory that somebody else wrote are faults of
`cupy.cuda.memory`. Where ranks make different calls nothing ends any more, as with NCCL, and
`check_async_error` says so.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy

from cupy.cuda import memory, runtime, stream

available = True
NCCL_INT8 = NCCL_CHAR = 0
NCCL_UINT8 = 1
NCCL_INT32 = NCCL_INT = 2
NCCL_UINT32 = 3
NCCL_INT64 = 4
NCCL_UINT64 = 5
NCCL_FLOAT16 = NCCL_HALF = 6
NCCL_FLOAT32 = NCCL_FLOAT = 7
NCCL_FLOAT64 = NCCL_DOUBLE = 8
NCCL_BFLOAT16 = 9
NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN, NCCL_AVG = range(5)

_ID_BYTES = 128
_TYPES = [
    *map(numpy.dtype, ("i1", "u1", "i4", "u4", "i8", "u8", "f2", "f4", "f8")),
    numpy.dtype(ml_dtypes.bfloat16),
]
_ERRORS = {
    0: ("SUCCESS", "no error"),
    1: ("UNHANDLED_CUDA_ERROR", "unhandled cuda error (run with NCCL_DEBUG=INFO for details)"),
    2: ("SYSTEM_ERROR", "unhandled system error (run with NCCL_DEBUG=INFO for details)"),
    3: ("INTERNAL_ERROR", "internal error - please report this issue to the NCCL developers"),
    4: ("INVALID_ARGUMENT", "invalid argument (run with NCCL_DEBUG=WARN for details)"),
    5: ("INVALID_USAGE", "invalid usage (run with NCCL_DEBUG=WARN for details)"),
    6: ("REMOTE_ERROR", "remote process exited or there was a network error"),
}
_INVALID_ARGUMENT, _INVALID_USAGE = 4, 5


class NcclError(RuntimeError):
    def __init__(self, status: int) -> None:
        self.status = status
        name, meaning = _ERRORS[status]
        super().__init__(f"NCCL_ERROR_{name}: {meaning}")

    def __reduce__(self) -> Any:
        return type(self), (self.status,)


def get_version() -> int:
    return 22501


def get_build_version() -> int:
    return 22501


def get_unique_id() -> bytes:
    return os.urandom(_ID_BYTES)


# --- groups of calls ------------------------------------------------------------------------------


class _Group(threading.local):
    """The calling thread's open groups, and the calls that wait for the outermost one's end."""

    def __init__(self) -> None:
        self.depth = 0
        self.calls: list[tuple[_Call, int]] = []


_group = _Group()


def groupStart() -> None:
    _group.depth += 1


def groupEnd() -> None:
    if not _group.depth:
        raise NcclError(_INVALID_USAGE)
    _group.depth -= 1
    if not _group.depth:
        calls, _group.calls = _group.calls, []
        _launch(calls)


def _launch(calls: list[tuple[_Call, int]]) -> None:
    """Put calls that run side by side on their stream, and let it come to them if it can."""
    streams = {ptr for _, ptr in calls}
    if len(streams) > 1:
        raise NotImplementedError("the stand-in takes one stream a group")
    for ptr in streams:
        work = _Work([call for call, _ in calls])
        stream._submit(work, ptr)
        if ptr not in (0, runtime.streamLegacy):
            queue = stream._queue(ptr)
            with stream._lock:
                while not work.begun and queue.waiting:
                    if queue.waiting[0] is work:
                        work.begin()
                    elif not queue.step():
                        break


class _Work:
    """Calls of one group."""

    def __init__(self, calls: list[_Call]) -> None:
        self._calls = calls
        self._running: list[tuple[_Call, Iterator[None]]] = []
        self.begun = False

    def begin(self) -> None:
        self.begun = True
        for call in self._calls:
            call.begin()
        self._running = [(call, call.run()) for call in self._calls]
        self._step()

    def _step(self) -> None:
        left: list[tuple[_Call, Iterator[None]]] = []
        for call, running in self._running:
            if call.comm._aborted:
                continue
            if left and call.name not in ("send", "recv"):  # collectives one after the other
                left.append((call, running))
                continue
            try:
                next(running)
                left.append((call, running))
            except StopIteration:
                call.end()
        self._running = left

    def __call__(self) -> Any:
        if not self.begun:
            self.begin()
        else:
            self._step()
        return stream._PENDING if self._running else None


# --- memory ---------------------------------------------------------------------------------------


class _Memory:
    """A piece of the stand-in's memory that a call works on."""

    def __init__(self, ptr: int, size: int, device: int) -> None:
        self.ptr, self.size = ptr, size
        for one in list(memory._live):
            if one._chunk is not None and one.ptr <= ptr and ptr + size <= one.ptr + one.size:
                if one.device_id != device:
                    raise NcclError(_INVALID_ARGUMENT)
                self._owner = weakref.ref(one)
                return
        if size:
            raise NcclError(_INVALID_ARGUMENT)  # the host's, freed, or longer than what there is
        self._owner = lambda: True  # type: ignore[assignment]

    def bytes(self) -> Any:
        pointer = ctypes.cast(self.ptr, ctypes.POINTER(ctypes.c_uint8))
        return numpy.ctypeslib.as_array(pointer, (self.size,)) if self.size else numpy.empty(0, "B")

    @property
    def lives(self) -> bool:
        owner = self._owner()
        return owner is not None and getattr(owner, "_chunk", True) is not None

    def meets(self, other: _Memory) -> bool:
        return self.ptr < other.ptr + other.size and other.ptr < self.ptr + self.size


class _Call:
    """One call: what it reads and writes, and how."""

    def __init__(
        self,
        comm: NcclCommunicator,
        name: str,
        reads: tuple[int, int] | None,
        writes: tuple[int, int] | None,
        about: tuple[int, ...],
        kind: int,
    ) -> None:
        if not 0 <= kind < len(_TYPES):
            raise NcclError(_INVALID_ARGUMENT)
        self.comm, self.name, self.kind, self.about = comm, name, kind, about
        item, device = _TYPES[kind].itemsize, comm._device
        self.reads = _Memory(reads[0], reads[1] * item, device) if reads else None
        self.writes = _Memory(writes[0], writes[1] * item, device) if writes else None
        self.result: Any = None
        self.given = numpy.empty(0, numpy.uint8)

    def begin(self) -> None:
        for one in (self.reads, self.writes):
            if one is not None and not one.lives:
                memory._faults.append(f"NCCL {self.name}: memory was freed before it was read")
                self.reads = self.writes = None
        if self.reads is not None:
            self.given = self.reads.bytes().copy()
        if self.writes is not None:
            self.writes.bytes()[:] = memory._POISON

    def run(self) -> Iterator[None]:
        words = numpy.zeros(8, numpy.int64)
        words[: 2 + len(self.about)] = _hash_of(self.name), self.kind, *self.about
        if self.name in ("send", "recv"):
            yield from self._message(words[1:3].tobytes())
            return
        headers = yield from self.comm._link.gather(words.view(numpy.uint8))
        if any((h != headers[0]).any() for h in headers):
            yield from self._stuck()
        parts = yield from self.comm._link.gather(self.given)
        self.result = _combined(self, [p.view(_TYPES[self.kind]) for p in parts])

    def _stuck(self) -> Iterator[None]:
        self.comm._error = _INVALID_USAGE
        while True:
            yield

    def _message(self, header: bytes) -> Iterator[None]:
        peer = self.about[-1]
        if self.name == "send":
            yield from self.comm._link.send(header + self.given.tobytes(), peer)
            return
        came = yield from self.comm._link.receive(peer)
        if came[: len(header)] != header:
            yield from self._stuck()
        self.result = numpy.frombuffer(came, numpy.uint8)[len(header) :]

    def end(self) -> None:
        for one in (self.reads, self.writes):
            if one is not None and not one.lives:
                memory._faults.append(f"NCCL {self.name}: memory was freed while it ran")
                return
        reads, writes = self.reads, self.writes
        if reads and not (writes and reads.meets(writes)) and (reads.bytes() != self.given).any():
            memory._faults.append(f"NCCL {self.name}: what it reads was written while it ran")
        if writes is None:
            return
        if (writes.bytes() != memory._POISON).any():
            memory._faults.append(f"NCCL {self.name}: what it writes was written while it ran")
        if self.result is not None:
            writes.bytes()[:] = numpy.ascontiguousarray(self.result).view(numpy.uint8).reshape(-1)


def _hash_of(name: str) -> int:
    return int.from_bytes(name.encode()[:7].ljust(7), "little")


def _combined(call: _Call, parts: list[Any]) -> Any:
    """What a rank gets of the parts of all ranks."""
    rank, size = call.comm._rank, len(parts)
    if call.name == "allGather":
        return numpy.concatenate(parts)
    if call.name == "broadcast":
        return parts[call.about[-1]]
    if call.name == "reduce" and call.about[-1] != rank:
        return None
    kind, op = parts[0].dtype, call.about[1]
    wide = [p.astype(numpy.float32) for p in parts] if kind.itemsize == 2 else parts
    with numpy.errstate(all="ignore"):
        function = (numpy.add, numpy.multiply, numpy.maximum, numpy.minimum, numpy.add)[op]
        total = wide[0].copy()
        for part in wide[1:]:
            function(total, part, out=total)
        if op == NCCL_AVG:
            total = total / size if kind.kind not in "iu" else total // size
    total = total.astype(kind)
    if call.name == "reduceScatter":
        count = total.size // size
        return total[rank * count : (rank + 1) * count]
    return total


# --- between processes ----------------------------------------------------------------------------


class _Link:
    """How ranks reach each other; generators yield while they wait."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self._own: deque[list[Any]] = deque()  # messages to oneself: bytes, and whether taken
        self._turns: dict[int, deque[object]] = {}

    def gather(self, part: Any) -> Any:
        yield
        if self._comm is None:
            return [part.copy()]
        whole = numpy.empty((self._comm.size, part.size), numpy.uint8)
        request = self._comm.Iallgather(part, whole)
        while not request.Test():
            yield
        return list(whole)

    def send(self, data: bytes, peer: int) -> Any:
        if self._comm is None or peer == self._comm.rank:
            message = [data, False]
            self._own.append(message)
            while not message[1]:
                yield
            return
        request = self._comm.Issend(numpy.frombuffer(data, numpy.uint8), peer, 1)
        while not request.Test():
            yield

    def receive(self, peer: int) -> Any:
        turn, turns = object(), self._turns.setdefault(peer, deque())
        turns.append(turn)
        yield
        if self._comm is None or peer == self._comm.rank:
            while turns[0] is not turn or not self._own:
                yield
            message = self._own.popleft()
            message[1] = True
            turns.popleft()
            return message[0]
        from mpi4py import MPI

        status = MPI.Status()
        while turns[0] is not turn or (found := self._comm.Improbe(peer, 1, status)) is None:
            yield
        turns.popleft()
        data = numpy.empty(status.Get_count(MPI.BYTE), numpy.uint8)
        request = found.Irecv(data)
        while not request.Test():
            yield
        return data.tobytes()


def _meet(size: int, name: bytes, rank: int) -> Any:
    """An MPI communicator of the ranks that have the same id; they find each other by files."""
    from mpi4py import MPI

    folder = Path(tempfile.gettempdir()) / f"standin-nccl-{name[:16].hex()}"
    folder.mkdir(exist_ok=True)
    (folder / f"{rank}.new").write_text(str(MPI.COMM_WORLD.rank))
    try:
        os.link(folder / f"{rank}.new", folder / str(rank))
    except FileExistsError:  # two processes say they are this rank
        raise NcclError(_INVALID_USAGE) from None
    (folder / f"{rank}.new").unlink()
    while not all((folder / str(r)).exists() for r in range(size)):
        time.sleep(1e-3)
    ranks = [int((folder / str(r)).read_text()) for r in range(size)]
    members = MPI.COMM_WORLD.group.Incl(ranks)
    comm = MPI.COMM_WORLD.Create_group(members, int.from_bytes(name[:2], "little"))
    comm.Barrier()  # all have read the folder
    if rank == 0:
        shutil.rmtree(folder)
    return comm


_numbers = iter(range(0x7F00, 1 << 40, 16))


class NcclCommunicator:
    """A rank of a communicator; the thread's current device is its device."""

    def __init__(self, ndev: int, commId: bytes, rank: int, config: Any = None) -> None:
        if not isinstance(commId, bytes):
            got = type(commId).__name__
            raise TypeError(f"Argument 'commId' has incorrect type (expected bytes, got {got})")
        assert len(commId) == _ID_BYTES
        self._comm = 0
        if not 0 <= rank < ndev or _group.depth:
            raise NcclError(_INVALID_ARGUMENT)
        runtime._make_context()
        self._device, self._rank, self._size = runtime.getDevice(), rank, ndev
        self._link = _Link(None if ndev == 1 else _meet(ndev, commId, rank))
        self._error, self._aborted = 0, False
        self._comm = next(_numbers)

    @property
    def comm(self) -> int:
        return self._comm

    def _require(self) -> None:
        if not self._comm:
            raise NcclError(_INVALID_ARGUMENT)

    def destroy(self) -> None:
        if self._comm and _group.depth:
            raise NcclError(_INVALID_USAGE)
        self._comm = 0

    def abort(self) -> None:
        self._comm, self._aborted = 0, True

    def device_id(self) -> int:
        self._require()
        return self._device

    def rank_id(self) -> int:
        self._require()
        return self._rank

    def size(self) -> int:
        self._require()
        return self._size

    def check_async_error(self) -> None:
        self._require()
        if self._error:
            raise NcclError(self._error)

    def _put(
        self, name: str, reads: Any, writes: Any, about: tuple[int, ...], kind: int, on: int
    ) -> None:
        self._require()
        null = on in (0, runtime.streamLegacy)
        device = runtime.getDevice() if null else stream._queue(on).device
        if device != self._device:
            raise NcclError(_INVALID_USAGE)
        call = _Call(self, name, reads, writes, about, kind)
        if _group.depth:
            _group.calls.append((call, on))
        else:
            _launch([(call, on)])

    def _checked(self, rank: int) -> int:
        if not 0 <= rank < self._size:
            raise NcclError(_INVALID_ARGUMENT)
        return rank

    def allReduce(
        self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int
    ) -> None:
        two = (sendbuf, count), (recvbuf, count)
        self._put("allReduce", *two, (count, _op(op)), datatype, stream)

    def reduce(
        self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, root: int, stream: int
    ) -> None:
        writes = (recvbuf, count) if self._rank == root else None
        about = count, _op(op), self._checked(root)
        self._put("reduce", (sendbuf, count), writes, about, datatype, stream)

    def broadcast(
        self, sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, stream: int
    ) -> None:
        reads = (sendbuff, count) if self._rank == root else (recvbuff, count)
        about = count, self._checked(root)
        self._put("broadcast", reads, (recvbuff, count), about, datatype, stream)

    def reduceScatter(
        self, sendbuf: int, recvbuf: int, recvcount: int, datatype: int, op: int, stream: int
    ) -> None:
        two = (sendbuf, recvcount * self._size), (recvbuf, recvcount)
        self._put("reduceScatter", *two, (recvcount, _op(op)), datatype, stream)

    def allGather(self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int) -> None:
        two = (sendbuf, count), (recvbuf, count * self._size)
        self._put("allGather", *two, (count,), datatype, stream)

    def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        about = count, self._checked(peer)
        self._put("send", (sendbuf, count), None, about, datatype, stream)

    def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        about = count, self._checked(peer)
        self._put("recv", None, (recvbuf, count), about, datatype, stream)


def _op(op: int) -> int:
    if not NCCL_SUM <= op <= NCCL_AVG:
        raise NcclError(_INVALID_ARGUMENT)
    return op

"""Ranks that MPI connects, through mpi4py; arrays of a GPU come here by way of the host.

Every call is one of MPI's non-blocking ones, so that waiting can time out and be interrupted.
Values only move as bytes. Sums of 16-bit floats are computed in float32, once rounded.
"""

from __future__ import annotations

import functools
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing import util
from typing import Any

import numpy as np

from lucid_gpu.devices import installing
from lucid_gpu.distributed.engines import Done, Engine
from lucid_gpu.distributed.errors import DistBackendError, DistStoreError
from lucid_gpu.distributed.reductions import ReduceOp
from lucid_gpu.distributed.store import FAILED, HOSTED, OPEN, TCPStore, run_server
from lucid_gpu.distributed.watch import Agreement, Call, Order, Watch
from lucid_gpu.distributed.work import Work

__all__ = ["MPIEngine", "fail", "is_installed", "launched_size", "world"]

_WORLD_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")  # MPICH and Intel MPI, Open MPI
# What a launcher tells one process must not reach the processes it starts.
_LAUNCHER = (
    "PMI_FD",
    "PMI_PORT",
    "PMI_ID",
    "PMI_RANK",
    "PMI_SIZE",
    "PMI_SPAWNED",
    "HYDI_CONTROL_FD",
)


_FORWARDING = 0.3  # seconds in which MPI's launcher reads a rank's output
_STARTING = timedelta(seconds=60)  # for MPI to start once all ranks are there, at least
_MEETING = (1 << 20) + 3  # the tag of messages before a group is made


def is_installed() -> bool:
    """Whether mpi4py can be imported; it is not."""
    import importlib.util

    return importlib.util.find_spec("mpi4py") is not None


def launched_size() -> int:
    """How many processes MPI's launcher started, 1 where there was none."""
    return max(int(os.environ.get(name, "1")) for name in _WORLD_SIZES)


def _import() -> Any:
    """mpi4py's module ``MPI``, whose import starts MPI."""
    try:
        import mpi4py
    except ImportError:
        raise RuntimeError(
            "Distributed package doesn't have MPI built in: several processes on CPU tensors need "
            f"mpi4py and an MPI library; {installing.command('mpi')} installs both"
        ) from None
    if "mpi4py.MPI" not in sys.modules:
        mpi4py.rc.finalize = False  # `_Leaving` does it, while the other ranks are there
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise RuntimeError(
            f"mpi4py found no MPI library ({error}); pip install mpich, or install your system's"
        ) from error
    return MPI


def _gather(rank: int, size: int, store: TCPStore, timeout: timedelta) -> None:
    """Wait until all ranks are there: the start of MPI cannot end otherwise.

    Raises
    ------
    ValueError
        If processes have been given one rank, or different sizes.
    DistStoreError
        After the time-out.
    """
    first = int(store.compare_set("mpi/size", "", str(size)))
    if first != size:
        raise ValueError(
            f"init_process_group: rank {rank} was given world_size={size}, another rank {first}"
        )
    if store.add(f"mpi/here/{rank}", 1) > 1:
        raise ValueError(f"init_process_group: two processes were given rank={rank} of {size}")
    if store.add("mpi/here", 1) == size:
        store.set("mpi/all", "")
    try:
        store.wait(["mpi/all"], timeout)
    except DistStoreError:
        absent = [str(r) for r in range(size) if not store.check([f"mpi/here/{r}"])]
        who = f"rank {absent[0]} has" if len(absent) == 1 else f"ranks {', '.join(absent)} have"
        raise DistStoreError(
            f"init_process_group timed out after {timeout.total_seconds():g} s on rank {rank} of "
            f"{size}: {who} not come to {store.host}:{store.port}"
        ) from None


def _wire(rank: int, size: int, store: TCPStore, timeout: timedelta) -> socket.socket:
    """Let MPI find the other ranks in a store, where no launcher of MPI connects them.

    A process beside this one answers MPICH's requests over a socket pair, and says over another,
    which is returned, who has died; see `server`.
    """
    _gather(rank, size, store, timeout)
    timeout = max(timeout, _STARTING)
    if rank == 0:
        # Names shared memory, so no two worlds of a machine may have the same.
        store.set("mpi/name", f"lucid_{os.getpid()}_{secrets.token_hex(4)}")
    store.set_timeout(timeout)
    name = store.get("mpi/name").decode()
    ours, theirs = socket.socketpair()
    news, tells = socket.socketpair(type=socket.SOCK_DGRAM)
    news.setblocking(False)
    with theirs, tells:
        passed = theirs.fileno(), tells.fileno()
        process, _ = run_server(
            [
                *("pmi", *map(str, passed), str(os.getpid()), store.host, str(store.port), name),
                *(str(rank), str(size), str(timeout.total_seconds())),
            ],
            store.secret,
            pass_fds=passed,
        )
    process.stdin.close()
    for variable in _LAUNCHER:
        os.environ.pop(variable, None)
    # MPI uses the descriptor until it has finalized: nothing of Python may close it before.
    os.environ.update(PMI_FD=str(ours.detach()), PMI_RANK=str(rank), PMI_SIZE=str(size))
    try:
        MPI = _import()
    finally:
        for variable in ("PMI_FD", "PMI_RANK", "PMI_SIZE"):
            del os.environ[variable]
    if MPI.COMM_WORLD.size != size:
        library = MPI.Get_library_version().splitlines()[0]
        raise RuntimeError(
            f"{library} was not connected to the other {size - 1} processes: this is for libraries "
            f"of MPICH's family. Start the script by mpiexec -n {size} python script.py"
        )
    return news


class _Leaving:
    """Finalizes MPI when this process ends: all ranks wait for each other there.

    A process that ends by an exception tells the others, which end too.
    """

    def __init__(self, MPI: Any, launched: bool, watch: Watch, store: TCPStore | None) -> None:
        self.MPI, self.launched, self.watch = MPI, launched, watch
        self._store = store if os.environ.get(HOSTED) else None
        self._open = OPEN.format(watch.rank)
        if self._store is not None:
            self._store.set(self._open, "")
        self.timeout = timedelta(minutes=30)
        # Runs before atexit's functions, and in processes of multiprocessing too.
        util.Finalize(None, self.leave, exitpriority=-100)

    def leave(self) -> None:
        MPI, watch = self.MPI, self.watch
        if MPI.Is_finalized():
            return
        error = _failure()
        if error is not None:
            self.fail(error)
            return
        watch.say_gone()
        begun = _Request(MPI, MPI.COMM_WORLD.Ibarrier)
        call = Call("the end of the program", ranks=range(MPI.COMM_WORLD.size), needs="end")
        try:
            Work(call, [begun], self.timeout, watch=watch).wait()
        except DistBackendError as failed:
            print(f"{failed}; aborting", file=sys.stderr, flush=True)
            _abort(MPI)
        watch.listen()
        MPI.Finalize()
        if self._store is not None:
            self._store.delete_key(self._open)

    def fail(self, error: BaseException) -> None:
        """Tell the other ranks, or the launcher, why this one fails."""
        what = type(error).__name__
        said = str(error).strip().splitlines()
        reason = f"{what}: {said[0]}" if said else what
        rank = self.watch.rank
        self.watch.say_gone(reason)
        if self._store is not None:  # its launcher says it and ends the others
            self._store.compare_set(FAILED, "", f"{rank} {reason}")
            return
        print(f"rank {rank} failed ({reason}); ending the other ranks", file=sys.stderr, flush=True)
        if self.launched:
            _abort(self.MPI)


def _abort(MPI: Any) -> None:
    """End all ranks, once the launcher has read what this one wrote: it drops what it has not."""
    time.sleep(_FORWARDING)
    MPI.COMM_WORLD.Abort(1)


def _failure() -> BaseException | None:
    """The exception that this process ends by."""
    error = sys.exc_info()[1] or getattr(sys, "last_value", None)
    return None if isinstance(error, SystemExit) and not error.code else error


def fail(error: BaseException) -> None:
    """Say why this process ends, from any thread, and end all ranks."""
    leaving = _World.leaving
    assert leaving is not None
    leaving.fail(error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


class _World:
    """MPI in this process: started once, for as long as the process lives."""

    leaving: _Leaving | None = None
    pid = 0


def world(rank: int, size: int, store: TCPStore | None, timeout: timedelta) -> MPIEngine:
    """The engine of all ranks, in the order of ``rank``; a store connects them where no launcher
    of MPI started them.
    """
    known = _World.leaving is not None
    if known and _World.pid != os.getpid():
        raise RuntimeError(
            "MPI was started before this process was forked: call init_process_group in the "
            "processes only, or start them by the method 'spawn'"
        )
    launched = launched_size() > 1
    if not known and not launched and "mpi4py.MPI" in sys.modules:
        raise RuntimeError(
            "mpi4py.MPI was imported before init_process_group, so MPI has one process: import it "
            f"afterwards, or start the script by mpiexec -n {size}"
        )
    news = None
    if not known and not launched:
        assert store is not None
        news = _wire(rank, size, store, timeout)
    MPI = _import()
    if MPI.COMM_WORLD.size != size:
        raise RuntimeError(
            f"init_process_group: world_size={size}, but MPI connects {MPI.COMM_WORLD.size} "
            "processes"
        )
    if not known:
        watch = Watch(MPI, MPI.COMM_WORLD.Dup(), rank, news)
        _World.leaving, _World.pid = _Leaving(MPI, launched, watch, store), os.getpid()
        _unlink_shared_memory(MPI)
    leaving = _World.leaving
    assert leaving is not None
    leaving.timeout, leaving.watch.rank = timeout, rank
    leaving.watch.waiting.clear()
    return MPIEngine(MPI.COMM_WORLD.Split(0, rank), leaving.watch)


def _unlink_shared_memory(MPI: Any) -> None:
    """Remove the name of the memory MPICH shares, which a killed process would leave in /dev/shm.

    All ranks of a machine have it mapped once MPI has started.
    """
    MPI.COMM_WORLD.Barrier()
    if not os.path.exists("/proc/self/maps"):
        return
    with open("/proc/self/maps") as lines:
        names = {line.split(None, 5)[-1].strip() for line in lines if "/dev/shm/mpich_shm_" in line}
    for name in names:
        try:
            os.unlink(name)
        except FileNotFoundError:  # another rank was first, or it shows as "(deleted)"
            continue


# A message's tag says the type of its elements, too: what waits for another type takes it for none.
_TYPES = (
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
_LOOKS = 64  # tests between two looks at whether a message of another type has come


def _tag(tag: int, kind: str) -> int:
    return 32 * tag + (_TYPES.index(kind) if kind in _TYPES else 31)


class _Request(Done):
    """A request of MPI, and what remains to be done when it is complete.

    ``start`` makes it: what ranks did not agree on would write past arrays, or end MPI.
    """

    def __init__(
        self, MPI: Any, start: Any, keep: Any = None, finish: Callable[[], None] | None = None
    ) -> None:
        self._MPI, self._start, self._keep, self._finish = MPI, start, keep, finish
        self._request: Any = None
        self._status, self._complete, self.source = MPI.Status(), False, 0
        self._tests = 0
        self.expected: int | None = None  # bytes of a message
        # What is said of a message of another type that has come; None where there is none.
        self.other: Callable[[], str | None] | None = None
        self._wrong: str | None = None

    def begin(self) -> None:
        """Make the request, where it is not made yet."""
        if self._request is None:
            try:
                self._request = self._start()
            except self._MPI.Exception as error:
                raise DistBackendError(f"MPI: {error}") from None

    def test(self) -> bool:
        """Whether it is complete."""
        if self._request is None:
            return False
        self._tests += 1
        try:
            came = self._complete or self._request.Test(self._status)
            if not came and self.other is not None and self._tests % _LOOKS == 0:
                self._doubt()
        except self._MPI.Exception as error:
            raise DistBackendError(f"MPI: {error}") from None
        if came and not self._complete:
            if self._wrong is not None and self._status.Is_cancelled():
                raise DistBackendError(self._wrong)
            self._complete, self.source = True, self._status.Get_source()
            sent = self._status.Get_count(self._MPI.BYTE)
            if self.expected not in (None, sent):
                raise DistBackendError(
                    f"rank {self.source} of the group sent {sent} bytes, but the tensor that "
                    f"receives them has {self.expected}"
                )
            if self._finish is not None:
                self._finish()
            self._keep = self._finish = None
        return self._complete

    def withdraw(self) -> None:
        if self.expected is not None and not self._complete:
            self._wrong = self._wrong or "a wait for this message has failed before"
            self._request.Cancel()

    def _doubt(self) -> None:
        """Give up a receive that a message of another type came in the place of.

        MPI gives up only what no message has met yet. Where a large one is on its way, what came
        belongs to a later receive, and this one goes on.
        """
        assert self.other is not None
        self._wrong = self.other()
        if self._wrong is not None:
            self.other = None
            self._request.Cancel()


def _bytes(array: Any) -> Any:
    return array.reshape(-1).view(np.uint8)


class MPIEngine:
    """One of MPI's communicators."""

    name = "mpi"

    def __init__(self, comm: Any, watch: Watch) -> None:
        self._comm, self._MPI, self.watch = comm, _import(), watch
        self._order = Order(self._MPI, comm)
        watch.orders.append(self._order)
        self.rank, self.size = comm.rank, comm.size

    def _later(self, start: Any, *args: Any, keep: Any = None, finish: Any = None) -> Done:
        """A collective call of MPI, to be made with these arguments."""
        return _Request(self._MPI, lambda: start(*args), keep, finish)

    def _combined(self, array: Any, op: ReduceOp) -> tuple[Any, Any, Any]:
        """The array MPI is to sum, MPI's op, and what brings the result to ``array``."""
        MPI = self._MPI
        flat = array.reshape(-1)
        wide, name = flat, op.name
        if array.dtype == np.bool_:
            wide = flat.view(np.uint8)
            name = {"SUM": "MAX", "BOR": "MAX", "PRODUCT": "MIN", "BAND": "MIN"}.get(name, name)
        elif array.dtype.itemsize == 2 and array.dtype.kind not in "iu":  # float16 and bfloat16
            wide = flat.astype(np.float32)
        average = name == "AVG"
        mpi_op = getattr(MPI, {"AVG": "SUM", "PRODUCT": "PROD"}.get(name, name))

        def finish() -> None:
            if average:
                np.divide(wide, self.size, out=wide)
            if wide.dtype.itemsize != flat.dtype.itemsize:
                flat[...] = wide.astype(flat.dtype)

        return wide, mpi_op, finish if average or wide.dtype != flat.dtype else None

    def all_reduce(self, array: Any, op: ReduceOp) -> Done:
        wide, mpi_op, finish = self._combined(array, op)
        return self._later(
            self._comm.Iallreduce, self._MPI.IN_PLACE, wide, mpi_op, keep=array, finish=finish
        )

    def reduce(self, array: Any, op: ReduceOp, root: int) -> Done:
        wide, mpi_op, finish = self._combined(array, op)
        start = self._comm.Ireduce
        if self.rank == root:
            here = self._MPI.IN_PLACE
            return self._later(start, here, wide, mpi_op, root, keep=array, finish=finish)
        return self._later(start, wide, None, mpi_op, root, keep=array)

    def reduce_scatter(self, into: Any, array: Any, op: ReduceOp) -> Done:
        wide, mpi_op, _ = self._combined(array, op)
        part, _, finish = self._combined(into, op)
        start, keep = self._comm.Ireduce_scatter_block, (into, array)
        return self._later(start, wide, part, mpi_op, keep=keep, finish=finish)

    def broadcast(self, array: Any, root: int) -> Done:
        return self._later(self._comm.Ibcast, _bytes(array), root, keep=array)

    def all_gather(self, into: Any, array: Any) -> Done:
        keep = (into, array)
        return self._later(self._comm.Iallgather, _bytes(array), _bytes(into), keep=keep)

    def gather(self, into: Any, array: Any, root: int) -> Done:
        whole = None if into is None else _bytes(into)
        return self._later(self._comm.Igather, _bytes(array), whole, root, keep=(into, array))

    def scatter(self, into: Any, array: Any, root: int) -> Done:
        whole = None if array is None else _bytes(array)
        return self._later(self._comm.Iscatter, whole, _bytes(into), root, keep=(into, array))

    def all_to_all(
        self, into: Any, array: Any, receives: Sequence[int], sends: Sequence[int]
    ) -> Done:
        size = into.dtype.itemsize
        parts = [[count * size for count in counts] for counts in (sends, receives)]
        given, taken = [_bytes(array), parts[0]], [_bytes(into), parts[1]]
        return self._later(self._comm.Ialltoallv, given, taken, keep=(into, array))

    def send(self, array: Any, peer: int, tag: int) -> Done:
        start = self._comm.Isend
        made = self._later(start, _bytes(array), peer, _tag(tag, array.dtype.name), keep=array)
        made.begin()
        return made

    def receive(self, array: Any, peer: int | None, tag: int) -> Done:
        source, kind = self._MPI.ANY_SOURCE if peer is None else peer, array.dtype.name
        start = functools.partial(self._comm.Irecv, _bytes(array), source, _tag(tag, kind))
        made = _Request(self._MPI, start, array)
        made.begin()
        made.expected = array.nbytes
        made.other = lambda: self._of_another_type(source, tag, kind)
        return made

    def _of_another_type(self, source: int, tag: int, kind: str) -> str | None:
        status = self._MPI.Status()
        for other in _TYPES:
            if other != kind and self._comm.Iprobe(source, _tag(tag, other), status):
                return (
                    f"rank {status.Get_source()} of the group sent {other}, but the tensor that "
                    f"receives it is of {kind}"
                )
        return None

    def barrier(self) -> Done:
        return self._later(self._comm.Ibarrier)

    def agree(self, call: Call) -> Agreement:
        self.watch.note_call()
        return self._order.begin(call)

    def split(self, ranks: Sequence[int], timeout: timedelta) -> Engine:
        self.meet(Call(f"new_group({list(ranks)})", ranks=ranks), ranks, timeout)
        members = self._comm.group.Incl(list(ranks))
        try:
            return MPIEngine(self._comm.Create_group(members), self.watch)
        finally:
            members.Free()

    def meet(
        self, call: Call, ranks: Sequence[int], timeout: timedelta, payload: bytes = b"\0"
    ) -> bytes:
        """Wait for some ranks before what inside a library nothing could end.

        Returns
        -------
        bytes
            What the first of them gave; the others give as many.
        """
        first, token, said = ranks[0], np.zeros(1, np.uint8), np.frombuffer(bytearray(payload), "B")

        def wait(begun: list[Done]) -> None:
            Work(call, begun, timeout, watch=self.watch).wait()

        if self.rank == first:
            wait([self.receive(token.copy(), rank, _MEETING) for rank in ranks[1:]])
            wait([self.send(said, rank, _MEETING) for rank in ranks[1:]])
        else:
            wait([self.send(token, first, _MEETING)])
            wait([self.receive(said, first, _MEETING)])
        return said.tobytes()

    def close(self) -> None:
        if not self._MPI.Is_finalized():
            self._comm.Free()
            self.watch.orders.remove(self._order)
            self._order.close()

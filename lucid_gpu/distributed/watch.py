"""That ranks agree: whether they make the same call, which of them wait in it, who has left.

Beside each collective travel two numbers that are equal where all ranks make the same call; only
where they differ do the ranks tell each other their calls. A rank that waits for more than a second
tells the others in which call, and one that leaves or fails says so: that is what a time-out can
name.
"""

from __future__ import annotations

import socket
import threading
import time
import zlib
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from lucid_gpu.distributed.errors import DistBackendError

__all__ = ["Agreement", "Call", "Order", "Waiting", "Watch"]

_TAG = 1
_LEFT = "has come to its end"
_LONGEST = 400  # bytes of a call's text that travel
_SOON = 1.0  # seconds of waiting after which a rank says where it waits
_GRACE = 1.0  # seconds that what a rank has sent before it left may still take
_OFTEN = 256  # calls between two looks at messages of a rank that never waits


class Call:
    """One rank's call of an operation, as errors name it.

    Parameters
    ----------
    what : str
        The operation's name.
    kind, shape, op, root : optional
        What must be the same on all ranks: of the shape, the number of elements.
    size : int, optional
        That number; None where ranks may have different ones.
    ranks : sequence of int
        The ranks it waits for, in the default group.
    needs : {"all", "any", "end"}
        Whether it can go on where one of them has left; ``"end"``, where all have.
    """

    __slots__ = ("kind", "needs", "number", "op", "ranks", "root", "shape", "size", "what")

    def __init__(
        self,
        what: str,
        kind: str = "",
        shape: Sequence[int] = (),
        size: int | None = None,
        op: Any = None,
        root: int | None = None,
        ranks: Sequence[int] = (),
        needs: str = "all",
    ) -> None:
        self.what, self.kind, self.shape, self.size = what, kind, shape, size
        self.op, self.root, self.ranks, self.needs = op, root, ranks, needs
        self.number = ""

    def key(self) -> int:
        """A number that differs for calls that do not go together."""
        op = None if self.op is None else int(self.op)
        return zlib.crc32(repr((self.what, self.kind, self.size, op, self.root)).encode())

    def __str__(self) -> str:
        parts = [f"{self.kind} {list(self.shape)}"] if self.kind else []
        if self.op is not None:
            parts.append(self.op.name)
        if self.root is not None:
            parts.append(f"rank {self.root}")
        return f"{self.what}({', '.join(parts)})"


class Agreement:
    """Done once all ranks have come to an equal call; made by `Order.begin`.

    Attributes
    ----------
    begins : sequence of Done
        What begins then, on all ranks in the same order.
    """

    source = 0
    begins: Sequence[Any] = ()

    def __init__(self, order: Order, call: Call, request: Any, largest: Any) -> None:
        self.order, self.call, self.request, self.largest = order, call, request, largest
        self.agreed = False

    def test(self) -> bool:
        """Whether all ranks agree, also on the calls before; any thread may ask.

        Raises
        ------
        DistBackendError
            If a rank made another call.
        """
        return self.order.test(self)


class Order:
    """The calls of one communicator, in the order in which this rank makes them.

    Where the numbers of a call differ, all ranks see it, and tell each other that call. They do so
    beside the numbers of the calls after it, which some ranks have begun to send and others have
    not: on a communicator of its own, and the first difference first, whatever is waited for.

    Parameters
    ----------
    MPI
        mpi4py's module.
    comm
        The communicator whose calls these are.
    """

    def __init__(self, MPI: Any, comm: Any) -> None:
        self._MPI, self._numbers, self._texts = MPI, comm.Dup(), comm.Dup()
        self._pending: deque[Agreement] = deque()
        self._lock = threading.Lock()  # NCCL's watcher asks too
        self._told: tuple[Any, Any] | None = None  # the texts of all ranks, on their way
        self._different: str | None = None

    def begin(self, call: Call) -> Agreement:
        """Begin to ask whether all ranks make a call."""
        key = call.key()
        largest = np.array([key, -key])
        request = self._numbers.Iallreduce(self._MPI.IN_PLACE, largest, self._MPI.MAX)
        made = Agreement(self, call, request, largest)
        self._pending.append(made)
        return made

    def test(self, asked: Agreement) -> bool:
        """`Agreement.test`, of those begun before it too."""
        self.advance()
        if not asked.agreed and self._different is not None:
            raise DistBackendError(self._different)
        return asked.agreed

    def advance(self) -> None:
        """Let calls begin on which all ranks agree by now: others may wait for them."""
        with self._lock:
            while self._pending and self._different is None and self._passed(self._pending[0]):
                passed = self._pending.popleft()
                passed.agreed = True
                for done in passed.begins:
                    done.begin()
                passed.begins = ()

    def _passed(self, first: Agreement) -> bool:
        """Whether all ranks agree on the call that is next."""
        if self._told is None:
            if not first.request.Test():
                return False
            if first.largest[0] == -first.largest[1]:
                return True
            mine = np.zeros(_LONGEST, np.uint8)
            text = str(first.call).encode()[:_LONGEST]
            mine[: len(text)] = np.frombuffer(text, np.uint8)
            texts = np.zeros((self._texts.size, _LONGEST), np.uint8)
            self._told = self._texts.Iallgather(mine, texts), texts
        request, texts = self._told
        if request.Test():
            self._different = self._difference(first.call, texts)
        return False

    def _difference(self, call: Call, rows: Any) -> str:
        texts = [bytes(row).rstrip(b"\0").decode(errors="replace") for row in rows]
        me, ranks = self._texts.rank, call.ranks
        other = next((i for i, text in enumerate(texts) if text != texts[me]), me)
        return (
            f"ranks make different calls: rank {ranks[other]} called {texts[other]} where rank "
            f"{ranks[me]} called {texts[me]} ({call.number})"
        )

    def close(self) -> None:
        """Give the communicators back."""
        self._numbers.Free()
        self._texts.Free()


class Watch:
    """What ranks tell each other beside collectives; one a process.

    Parameters
    ----------
    MPI
    comm
        A communicator of all ranks, of its own.
    rank : int
        In the default group.
    news : socket, optional
        Where this rank's guard says who has died.

    Attributes
    ----------
    orders : list of Order
    gone : dict of int to (str, float)
        Ranks that have left or failed, the words for it, and when this process heard of it.
    waiting : dict of int to (str, str)
        The number and text of the call that a rank last waited in.
    """

    def __init__(self, MPI: Any, comm: Any, rank: int, news: socket.socket | None = None) -> None:
        self._MPI, self._comm, self.rank, self._news = MPI, comm, rank, news
        self._sent: list[tuple[Any, bytes]] = []
        self._calls = 0
        self._lock = threading.Lock()  # NCCL's watcher listens and tells too
        self.orders: list[Order] = []
        self.gone: dict[int, tuple[str, float]] = {}
        self.waiting: dict[int, tuple[str, str]] = {}

    def note_call(self) -> None:
        """Listen now and then, if this rank never waits."""
        self._calls += 1
        if self._calls % _OFTEN == 0:
            self.listen()

    def advance(self) -> None:
        """Let calls of all communicators begin; who waits for one of them does it."""
        for order in self.orders:
            order.advance()

    def say_waiting(self, call: Call) -> None:
        """Tell all ranks that this one waits."""
        self._tell("waits", call.number, str(call))

    def say_gone(self, error: str = "") -> None:
        """Tell all ranks that this one has come to its end, or has failed."""
        self._tell("gone", "", f"has failed ({error})" if error else _LEFT)

    def _tell(self, *words: str) -> None:
        message = "\n".join([str(self.rank), *words]).encode()[:_LONGEST]
        with self._lock:
            for rank in range(self._comm.size):
                if rank != self._comm.rank:
                    request = self._comm.Isend([message, self._MPI.BYTE], rank, _TAG)
                    self._sent.append((request, message))
            self._sent = [one for one in self._sent if not one[0].Test()]

    def listen(self) -> None:
        """Take in what other ranks have told."""
        with self._lock:
            self._listen()

    def _listen(self) -> None:
        status, room = self._MPI.Status(), bytearray(_LONGEST)
        while self._comm.Iprobe(self._MPI.ANY_SOURCE, _TAG, status):
            count = status.Get_count(self._MPI.BYTE)
            self._comm.Recv([room, self._MPI.BYTE], status.Get_source(), _TAG, status)
            rank, kind, number, text = room[:count].decode(errors="replace").split("\n", 3)
            if kind == "waits":
                self.waiting[int(rank)] = number, text
            else:
                self.gone.setdefault(int(rank), (text, time.monotonic()))
        while self._news is not None:
            try:
                rank, text = self._news.recv(_LONGEST).decode().split(" ", 1)
            except BlockingIOError:
                return
            # the guard has waited as long as what it sent may still take
            self.gone.setdefault(int(rank), (text, time.monotonic() - _GRACE))


class Waiting:
    """One wait for a call."""

    def __init__(self, watch: Watch, call: Call) -> None:
        self._watch, self._call, self._reported = watch, call, False

    def look(self, waited: float, seconds: float) -> None:
        """Say where this rank waits, once; raise where a rank it waits for has gone."""
        watch, call = self._watch, self._call
        watch.listen()
        if not self._reported and waited > min(_SOON, seconds / 2):
            self._reported = True
            watch.say_waiting(call)
        before = time.monotonic() - _GRACE
        gone = [
            rank
            for rank, (words, when) in list(watch.gone.items())
            if rank in call.ranks and when < before and (call.needs != "end" or words != _LEFT)
        ]
        others = sum(rank != watch.rank for rank in call.ranks)
        if gone and (call.needs != "any" or len(gone) == others):
            raise DistBackendError(
                f"rank {gone[0]} {watch.gone[gone[0]][0]}, and rank {watch.rank} waits for it in "
                f"{call}"
            )

    def missing(self) -> str:
        """Which ranks have not come to the call."""
        watch, call = self._watch, self._call
        watch.listen()
        absent, elsewhere = [], []
        for rank in call.ranks:
            number, text = watch.waiting.get(rank, ("", ""))
            if rank == watch.rank or (call.number and number == call.number):
                continue
            absent.append(str(rank))
            if text:
                elsewhere.append(f"rank {rank} last waited in {text}")
        if not absent:
            return "all ranks have come, but it is not done"
        some = f"rank {absent[0]} has" if len(absent) == 1 else f"ranks {', '.join(absent)} have"
        return "; ".join([f"{some} not come", *elsewhere])

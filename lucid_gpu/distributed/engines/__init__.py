"""What moves bytes between ranks: MPI, NCCL beside it, or nothing where there is one rank.

An engine knows contiguous arrays, of the host or of a GPU, and no tensors. Its collectives begin at
once and return a `Done`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

from lucid_gpu.distributed.reductions import ReduceOp
from lucid_gpu.distributed.watch import Agreement, Call, Watch

__all__ = ["Collectives", "Done", "Engine", "Finished", "Ordered"]


class Done:
    """What an engine has begun.

    Attributes
    ----------
    source : int
        The rank in the group that a message came from.
    """

    source = 0

    def begin(self) -> None:
        """Let it move values, once all ranks have agreed on the call; what moves is left alone."""

    def test(self) -> bool:
        """Whether it is done; results are in place then."""
        raise NotImplementedError

    def withdraw(self) -> None:
        """Give up a receive that no message has met yet; anything else goes on."""


class Ordered(Done):
    """What an engine has begun on a stream of a GPU."""

    def follow(self) -> None:
        """Let the current stream wait for it; the host goes on."""
        raise NotImplementedError


class Finished(Done):
    """What was done at once."""

    def __init__(self, source: int = 0) -> None:
        self.source = source

    def test(self) -> bool:
        """True."""
        return True


class Collectives(Protocol):
    """What moves arrays between the ranks of one group; roots and peers are ranks in the group.

    Attributes
    ----------
    rank, size : int
    name : str
    """

    rank: int
    size: int
    name: str

    def all_reduce(self, array: Any, op: ReduceOp) -> Done:
        """Combine the arrays of all ranks, in place."""
        ...

    def reduce(self, array: Any, op: ReduceOp, root: int) -> Done:
        """Combine the arrays of all ranks, in place at the root."""
        ...

    def reduce_scatter(self, into: Any, array: Any, op: ReduceOp) -> Done:
        """Combine arrays of ``size`` parts; each rank gets its part."""
        ...

    def broadcast(self, array: Any, root: int) -> Done:
        """Give all ranks the root's array."""
        ...

    def all_gather(self, into: Any, array: Any) -> Done:
        """Collect the arrays of all ranks."""
        ...

    def gather(self, into: Any, array: Any, root: int) -> Done:
        """Collect the arrays of all ranks at the root; ``into`` is None elsewhere."""
        ...

    def scatter(self, into: Any, array: Any, root: int) -> Done:
        """Deal the root's array out; ``array`` is None elsewhere."""
        ...

    def all_to_all(
        self, into: Any, array: Any, receives: Sequence[int], sends: Sequence[int]
    ) -> Done:
        """Send each rank its part of ``array``; parts are counted in elements."""
        ...

    def send(self, array: Any, peer: int, tag: int) -> Done:
        """Send an array."""
        ...

    def receive(self, array: Any, peer: int | None, tag: int) -> Done:
        """Receive an array from a rank, or from any."""
        ...

    def barrier(self) -> Done:
        """Done once all ranks have called it."""
        ...

    def close(self) -> None:
        """Let go of what the group holds."""
        ...


class Engine(Collectives, Protocol):
    """Collectives on arrays of the host, and how ranks come to agree.

    Attributes
    ----------
    watch : Watch or None
        What other ranks tell; None where there are none.
    """

    @property
    def watch(self) -> Watch | None: ...

    def agree(self, call: Call) -> Agreement | None:
        """Done once all ranks make an equal call; raises where one makes another."""
        ...

    def split(self, ranks: Sequence[int], timeout: timedelta) -> Engine:
        """An engine of some ranks; each of them calls this, with the same list."""
        ...

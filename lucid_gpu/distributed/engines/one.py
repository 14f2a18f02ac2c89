"""One rank: a collective copies its input to its output, or does nothing, on any device."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from lucid_gpu.distributed.engines import Done, Engine, Finished
from lucid_gpu.distributed.reductions import ReduceOp
from lucid_gpu.distributed.watch import Call

__all__ = ["OneEngine"]


def _copied(into: Any, array: Any) -> Finished:
    into.reshape(-1)[...] = array.reshape(-1)
    return Finished()


class OneEngine:
    """The only rank of its group."""

    rank, size, name, watch = 0, 1, "one", None

    def __init__(self) -> None:
        # Sent to oneself and not received yet; what waits to receive.
        self._sent: list[tuple[int, Any]] = []

    def all_reduce(self, array: Any, op: ReduceOp) -> Done:
        return Finished()

    def reduce(self, array: Any, op: ReduceOp, root: int) -> Done:
        return Finished()

    def reduce_scatter(self, into: Any, array: Any, op: ReduceOp) -> Done:
        return _copied(into, array)

    def broadcast(self, array: Any, root: int) -> Done:
        return Finished()

    def all_gather(self, into: Any, array: Any) -> Done:
        return _copied(into, array)

    def gather(self, into: Any, array: Any, root: int) -> Done:
        return _copied(into, array)

    def scatter(self, into: Any, array: Any, root: int) -> Done:
        return _copied(into, array)

    def all_to_all(
        self, into: Any, array: Any, receives: Sequence[int], sends: Sequence[int]
    ) -> Done:
        return _copied(into, array)

    def send(self, array: Any, peer: int, tag: int) -> Done:
        self._sent.append((tag, array.copy()))
        return Finished()

    def receive(self, array: Any, peer: int | None, tag: int) -> Done:
        return _Receiving(self._sent, array, tag)

    def barrier(self) -> Done:
        return Finished()

    def agree(self, call: Call) -> None:
        return None

    def split(self, ranks: Sequence[int], timeout: timedelta) -> Engine:
        return OneEngine()

    def close(self) -> None:
        self._sent.clear()


class _Receiving(Finished):
    """Done once something was sent to oneself under the tag."""

    def __init__(self, sent: list[tuple[int, Any]], array: Any, tag: int) -> None:
        super().__init__()
        self._sent, self._array, self._tag = sent, array, tag

    def test(self) -> bool:
        for i, (tag, array) in enumerate(self._sent):
            if self._array is not None and tag == self._tag:
                _copied(self._array, array)
                del self._sent[i]
                self._array = None
                break
        return self._array is None

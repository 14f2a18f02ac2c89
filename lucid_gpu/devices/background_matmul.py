"""A matrix product that a second thread computes while the caller goes on.

A linear layer's backward pass has two products of one size, and only the gradient of its input is
needed at once. So the caller computes that one on its own thread, and the helper computes the
gradient of the weight, while the caller goes on to the layers below. Neither waits inside a product
for the other, as OpenBLAS's threads do.
"""

from __future__ import annotations

import threading
from typing import Any

from lucid_gpu.devices import blas, threads

__all__ = ["BackgroundMatmul", "worth_it"]

PART = 32_000_000  # multiplications, at most, of parts that the caller may take over when it waits
ROWS = 256  # of a part, at least: OpenBLAS copies all of the second matrix for each


def worth_it(multiplications: int) -> bool:
    """Whether a product is better given to a helper than shared by all threads.

    With more than two threads, one for the caller's own product is too few.
    """
    return (
        multiplications >= blas.SHARED_FROM and threads.team.count == 2 and blas.count() in (1, 2)
    )


def _cuts(rows: int, multiplications: int) -> list[slice]:
    """The rows of each part: an even number of parts where there are few."""
    step = -(-rows // (2 * -(-multiplications // (2 * PART))))
    step = max(step, min(ROWS, -(-rows // 2)))
    return [slice(first, first + step) for first in range(0, rows, step)]


class BackgroundMatmul:
    """``out[...] = a @ b``, perhaps still under way.

    Until its end nobody may write ``a`` and ``b``, and the BLAS works on one thread for everybody.
    """

    def __init__(self, a: Any, b: Any, out: Any) -> None:
        self.out = out
        cuts = _cuts(len(out), a.size * b.shape[1])
        self._parts = iter([(a[cut], b, out[cut]) for cut in cuts])  # threads share it
        self._ending = threading.RLock()
        self._beside = blas.begun.background  # all that this thread has begun
        self._beside.append(self)
        blas.use_one_thread(blas.count())
        self._order: threads.Order | None = threads.team.begin(self._work)

    def _work(self) -> None:
        for a, b, out in self._parts:
            blas.matmul(a, b, out)

    def end(self) -> None:
        """Compute what is left, and wait for the rest."""
        with self._ending:
            order, self._order = self._order, None
            if order is None:
                return
            self._beside.remove(self)
            try:
                threads.run_quietly(self._work)
            finally:
                error = order.end()
                blas.use_all_threads()
            if error is not None:
                raise error

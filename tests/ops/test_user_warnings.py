"""Warnings name the line of the user's that led to them, however many frames lie between."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable

import pytest

import lucid_gpu
from lucid_gpu.nn import functional as F
from lucid_gpu.ops.user_warnings import warn_user

x = lucid_gpu.ones(2, 3)
CALLS: dict[str, Callable[[], object]] = {
    "softmax": lambda: F.softmax(x),
    "mse_loss": lambda: F.mse_loss(x, lucid_gpu.ones(1, 3)),
    "a loss's old settings": lambda: F.l1_loss(x, x, size_average=True),
    "a module's old settings": lambda: lucid_gpu.nn.L1Loss(reduce=False),
    "kl_div": lambda: F.kl_div(x, x),
    "grid_sample": lambda: F.grid_sample(lucid_gpu.ones(1, 1, 2, 2), lucid_gpu.zeros(1, 2, 2, 2)),
    "gumbel_softmax": lambda: F.gumbel_softmax(x, eps=1e-5),
    "an index": lambda: x[[[0, 1], [0, 1]]],
    "upsample": lambda: F.upsample(lucid_gpu.ones(1, 1, 2, 2), 4),
    "dropout2d": lambda: F.dropout2d(lucid_gpu.ones(1, 2, 3)),
    "add": lambda: lucid_gpu.add(x, 2, x),
    "itself": lambda: warn_user("so"),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_line_is_the_users(name: str) -> None:
    call = CALLS[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    lines, first = inspect.getsourcelines(call)
    assert [one.filename for one in caught] == [__file__]
    assert first <= caught[0].lineno < first + len(lines)


def test_warnings_come_once_a_line_or_always() -> None:
    def given() -> int:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            for _ in range(3):
                warn_user("this line")
        return len(caught)

    assert given() == 1
    assert not lucid_gpu.is_warn_always_enabled()
    lucid_gpu.set_warn_always(True)
    try:
        assert lucid_gpu.is_warn_always_enabled() and given() == 3
    finally:
        lucid_gpu.set_warn_always(False)
    with pytest.raises(TypeError, match="expects a bool"):
        lucid_gpu.set_warn_always(1)  # type: ignore[arg-type]

"""What recorded ops hold for backward, and refuse once it was written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lucid_gpu
from tests.oracle import refuses

WORDS = "modified by an inplace operation"

# Ops that return where they found their values: (module, x) gives values and indices.
RETURNED: dict[str, Callable[[Any, Any], Any]] = {
    "max": lambda m, x: x.max(1),
    "min": lambda m, x: x.min(1),
    "max, keepdim": lambda m, x: x.max(1, keepdim=True),
    "sort": lambda m, x: x.sort(1),
    "topk": lambda m, x: x.topk(2),
    "kthvalue": lambda m, x: x.kthvalue(2),
    "median": lambda m, x: x.median(1),
    "nanmedian": lambda m, x: x.nanmedian(1),
    "mode": lambda m, x: x.mode(1),
    "cummax": lambda m, x: x.cummax(1),
    "cummin": lambda m, x: x.cummin(1),
    "max_pool1d": lambda m, x: m.nn.functional.max_pool1d(x, 2, return_indices=True),
    "max_pool2d": lambda m, x: m.nn.functional.max_pool2d(x[None], 2, return_indices=True),
    "max_pool3d": lambda m, x: m.nn.functional.max_pool3d(
        x.reshape(1, 4, 2, 3), 2, return_indices=True
    ),
    "adaptive_max_pool2d": lambda m, x: m.nn.functional.adaptive_max_pool2d(
        x[None], 3, return_indices=True
    ),
    "fractional_max_pool2d": lambda m, x: m.nn.functional.fractional_max_pool2d(
        x[None], 2, output_size=2, return_indices=True
    ),
    "lu_factor": lambda m, x: m.linalg.lu_factor(x[:, :4]),
}

# Ops that read positions: (module, x, index of 4, index of 4 x 2) gives values.
READ: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "x[i]": lambda m, x, i, j: x[i],
    "x[:, i]": lambda m, x, i, j: x[:, i],
    "x[0, ..., i]": lambda m, x, i, j: x[0, ..., i],
    "index_select": lambda m, x, i, j: x.index_select(1, i),
    "gather": lambda m, x, i, j: x.gather(1, j),
    "take": lambda m, x, i, j: x.take(i),
    "embedding": lambda m, x, i, j: m.nn.functional.embedding(i, x),
    "embedding_bag": lambda m, x, i, j: m.nn.functional.embedding_bag(i.reshape(2, 2), x),
    "nll_loss": lambda m, x, i, j: m.nn.functional.nll_loss(x, i),
    "cross_entropy": lambda m, x, i, j: m.nn.functional.cross_entropy(x, i),
    "multi_margin_loss": lambda m, x, i, j: m.nn.functional.multi_margin_loss(x, i),
    "ctc_loss": lambda m, x, i, j: m.nn.functional.ctc_loss(
        x.reshape(4, 1, 6).log_softmax(2), i[None], (4,), (4,), blank=5
    ),
    "index_add": lambda m, x, i, j: x.index_add(0, i, x * 2),
    "index_copy": lambda m, x, i, j: x.index_copy(0, i, x * 2),
    "index_fill": lambda m, x, i, j: x.index_fill(0, i, 3.0),
    "index_put": lambda m, x, i, j: x.index_put((i,), x * 2),
    "index_put, accumulate": lambda m, x, i, j: x.index_put((i,), x * 2, accumulate=True),
    "scatter": lambda m, x, i, j: x.scatter(1, j, 1.0),
    "scatter_add": lambda m, x, i, j: x.scatter_add(1, j, x * 2),
    "scatter_reduce": lambda m, x, i, j: x.scatter_reduce(1, j, x * 2, "amax"),
    "max_unpool1d": lambda m, x, i, j: m.nn.functional.max_unpool1d(x[:, :2], j, 3),
}


@pytest.mark.parametrize("name", RETURNED)
@pytest.mark.parametrize("write", ["itself", "detached"])
def test_indices_that_an_op_returned_cannot_be_written(name: str, write: str, device: str) -> None:
    def scenario(module: Any, where: str) -> None:
        x = module.arange(24.0, device=where).sin().reshape(4, 6).requires_grad_()
        values, indices = RETURNED[name](module, x)
        (indices if write == "itself" else indices.detach()).zero_()
        values.sum().backward()

    refuses(RuntimeError, WORDS, scenario, device)


@pytest.mark.parametrize("name", READ)
def test_indices_that_an_op_read_cannot_be_written(name: str, device: str) -> None:
    def scenario(module: Any, where: str) -> None:
        x = module.arange(24.0, device=where).sin().reshape(4, 6).requires_grad_()
        i = module.tensor([1, 2, 0, 3], device=where)
        j = module.tensor([[1, 2], [0, 3], [2, 1], [0, 1]], device=where)
        values = READ[name](module, x, i, j)
        i.zero_()
        j.zero_()
        values.sum().backward()

    refuses(RuntimeError, WORDS, scenario, device)


@pytest.mark.parametrize("name", READ)
def test_indices_may_be_written_after_backward(name: str, device: str) -> None:
    x = lucid_gpu.arange(24.0, device=device).sin().reshape(4, 6).requires_grad_()
    i = lucid_gpu.tensor([1, 2, 0, 3], device=device)
    j = lucid_gpu.tensor([[1, 2], [0, 3], [2, 1], [0, 1]], device=device)
    values = READ[name](lucid_gpu, x, i, j)
    values.sum().backward(retain_graph=True)
    i.zero_()
    j.zero_()
    assert x.grad is not None and bool(x.grad.isfinite().all())
    with pytest.raises(RuntimeError, match=WORDS):
        values.sum().backward()

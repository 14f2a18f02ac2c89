"""Parts by position, mask or count: values, gradients and errors as in torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import agree, same_error

RNG = np.random.default_rng(26)
CUBE = RNG.standard_normal((2, 3, 4))


def long(m: Any, t: Any, *values: Any) -> Any:
    return m.tensor(list(values), dtype=m.int64).to(t.device)


CASES: dict[str, Any] = {
    "select": lambda m, t: t.select(1, -1) * 1,
    "select_scatter": lambda m, t: m.select_scatter(t, t[:, 0] * 2, 1, 2),
    "slice_scatter": lambda m, t: m.slice_scatter(t, t[..., :2] * 2, 2, start=1, end=9, step=2),
    "slice_scatter by name": lambda m, t: t.slice_scatter(t[:1] * 2, dim=0, end=-1),
    "narrow_copy": lambda m, t: t.narrow_copy(2, 1, 2),
    "index_fill": lambda m, t: t.index_fill(2, long(m, t, 0, -1), 3.5),
    "index_fill by a tensor": lambda m, t: m.index_fill(t, 1, long(m, t, 1), t[0, 0, 0]),
    "index_fill of a number": lambda m, t: t[0, 0, 0].index_fill(0, long(m, t, 0), 2),
    "index_fill_": lambda m, t: (t * 1).index_fill_(0, long(m, t, 1), -1),
    "index_put_": lambda m, t: m.index_put_(t * 1, (long(m, t, 1, 0),), t[0] * 2),
    "masked_scatter": lambda m, t: t.masked_scatter(t > 0, (t * 3).mT),
    "masked_scatter broadcasts": lambda m, t: m.masked_scatter(t[0, :1], t[0] > 0, t * 2),
    "masked_scatter_": lambda m, t: (t * 1).masked_scatter_(t[0] < 0, t * 2),
    "argwhere": lambda m, t: m.argwhere(t > 0),
    "nonzero_static": lambda m, t: (t > 0).nonzero_static(size=30, fill_value=-7),
    "nonzero_static cut": lambda m, t: m.nonzero_static(t, size=2),
    "repeat_interleave": lambda m, t: t.repeat_interleave(2),
    "repeat_interleave a dim": lambda m, t: m.repeat_interleave(t, 3, dim=-2),
    "by counts": lambda m, t: t.repeat_interleave(long(m, t, 2, 0, 1), 1),
    "by counts of a known sum": lambda m, t: m.repeat_interleave(
        t, long(m, t, 2, 3), dim=0, output_size=5
    ),
    "by one count": lambda m, t: t.mT.repeat_interleave(long(m, t, 2), 0),
    "positions": lambda m, t: m.repeat_interleave(long(m, t, 0, 2, 1)),
    "no counts": lambda m, t: t[:0].repeat_interleave(long(m, t), 0),
    "masked_select": lambda m, t: t.masked_select(t > 0),
    "nonzero": lambda m, t: (t > 0).nonzero(),
    "nonzero as a tuple": lambda m, t: m.nonzero(t > 0, as_tuple=True),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_torch(name: str, device: str) -> None:
    agree(CASES[name], CUBE, device=device)


def test_a_selected_part_is_a_view(device: str) -> None:
    x = lucid_gpu.zeros(2, 2, device=device)
    x.select(1, 0).fill_(4)
    assert x.tolist() == [[4, 0], [4, 0]]


MISUSE: dict[str, tuple[Any, str]] = {
    "select of a number": (lambda m: m.tensor(1.0).select(0, 0), "cannot be applied to a 0-dim"),
    "select beyond": (
        lambda m: m.ones(2, 3).select(0, 5),
        "select(): index 5 out of range for tensor of size [2, 3] at dimension 0",
    ),
    "select_scatter": (
        lambda m: m.ones(2, 3).select_scatter(m.ones(2), 0, 0),
        "expected src to have a size equal to the slice of self. src size = [2], slice size = [3]",
    ),
    "slice step": (
        lambda m: m.ones(2).slice_scatter(m.ones(2), step=0),
        "slice step must be positive",
    ),
    "a vector of values": (
        lambda m: m.ones(2).index_fill(0, m.tensor([0]), m.ones(1)),
        "only supports a 0-dimensional value tensor, but got tensor with 1 dimension(s).",
    ),
    "a float index": (lambda m: m.ones(2).index_fill(0, m.ones(1), 1), "Expected dtype int64"),
    "a matrix index": (
        lambda m: m.ones(2).index_fill(0, m.tensor([[0]]), 1),
        "Index has to be a vector/scalar",
    ),
    "filling beyond": (lambda m: m.ones(2).index_fill(0, m.tensor([2]), 1), "out of bounds"),
    "too few values": (
        lambda m: m.ones(3).masked_scatter(m.ones(3) > 0, m.ones(2)),
        "Number of elements of source < number of ones in mask",
    ),
    "a mask of ints": (
        lambda m: m.ones(1).masked_scatter(m.tensor([1]), m.ones(2)),
        "masked_scatter_ only supports boolean masks",
    ),
    "values of another type": (
        lambda m: m.ones(1).masked_scatter(m.ones(1) > 0, m.tensor([1])),
        "expected self and source to have same dtypes but got",
    ),
    "counts that misfit": (
        lambda m: m.ones(2).repeat_interleave(m.tensor([1, 2, 3]), 0),
        "got repeats.size(0) = 3 and input.size(0) = 2",
    ),
    "counts of floats": (lambda m: m.ones(2).repeat_interleave(m.ones(2), 0), "not implemented"),
    "less than once": (lambda m: m.ones(2).repeat_interleave(-1), "must be non-negative"),
    "a negative count": (
        lambda m: m.ones(2).repeat_interleave(m.tensor([1, -1]), 0),
        "repeats can not be negative",
    ),
    "a matrix of counts": (
        lambda m: m.ones(2).repeat_interleave(m.tensor([[1, 1]]), 0),
        "repeats must be 0-dim or 1-dim tensor",
    ),
    "another sum": (
        lambda m: m.ones(2).repeat_interleave(m.tensor([1, 1]), 0, output_size=3),
        "allocated size does not match required size",
    ),
    "rows": (lambda m: m.ones(2).nonzero_static(size=-1), "must be an non-negative integer"),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_in_torch(name: str) -> None:
    same_error(*MISUSE[name])


def test_a_position_named_twice_is_filled_once(device: str) -> None:
    """The gradient of the value counts an element once."""
    agree(lambda m, t: t.index_fill(2, long(m, t, 1, 3, 1), t[0, 0, 0]), CUBE, device=device)
    agree(lambda m, t: (t * 1).index_fill_(0, long(m, t, 1, 1), t.sum() * 2), CUBE, device=device)


def test_vmap_of_masked_select_with_one_mask(device: str) -> None:
    x = lucid_gpu.tensor(CUBE, device=device)
    for mask in (x[0] > 0, x[0, 0] > 0, x[:1] > 0):
        batch = lucid_gpu.vmap(lambda row, mask=mask: row.masked_select(mask))(x)
        alone = [row.masked_select(mask) for row in x]
        assert lucid_gpu.equal(batch, lucid_gpu.stack(alone))
    with pytest.raises(RuntimeError, match="dynamic shape"):
        lucid_gpu.vmap(lambda row: row.masked_select(row > 0))(x)

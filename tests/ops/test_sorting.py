"""`sort`, `argsort` and `topk`: values, gradients and errors as in torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import agree, same_error, torch_module

CUBE = np.random.default_rng(6).standard_normal((4, 3, 5))


CASES: dict[str, Any] = {
    "sort": lambda m, t: tuple(t.sort(1)),
    "sort descending": lambda m, t: tuple(t.sort(-1, descending=True)),
    "argsort": lambda m, t: t.argsort(0),
    "topk": lambda m, t: tuple(t.topk(2)),
    "topk smallest": lambda m, t: tuple(t.topk(2, dim=0, largest=False)),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_agree_with_torch(name: str, device: str) -> None:
    agree(CASES[name], CUBE, device=device)


MISUSE: dict[str, tuple[Any, str]] = {
    "topk by a fraction": (lambda m: m.ones(3).topk(1.5), "must be int, not float"),
    "topk too many": (lambda m: m.ones(2).topk(3), "selected index k out of range"),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_in_torch(name: str) -> None:
    function, words = MISUSE[name]
    same_error(function, words)


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_orders_of_16_bit_floats(device: str, kind: str) -> None:
    x = lucid_gpu.tensor([[2.0, -1.0, 2.0, 0.5]], dtype=getattr(lucid_gpu, kind), device=device)
    values, places = x.sort(1)
    assert (values.dtype, values.tolist()) == (x.dtype, [[-1, 0.5, 2, 2]])
    assert places.tolist() == [[1, 3, 0, 2]]
    assert x.argsort(1, descending=True).tolist() == [[0, 2, 3, 1]]
    assert x.topk(2)[1].tolist() == [[0, 2]]
    assert x.median(1)[1].tolist() == [3]


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(
    "what", ["floats", "integers", "equals", "nan beside equals", "nan at the end", "halves"]
)
def test_few_of_many_are_those_that_sorting_puts_first(
    what: str, largest: bool, device: str
) -> None:
    rng = np.random.default_rng(5)
    x = rng.permutation(600).reshape(6, 100).astype("f")
    if what == "integers":
        x = x.astype(np.int64)
    elif what == "nan at the end":
        x[2, 99] = np.nan
    elif what not in ("floats", "halves"):
        x[1] = 7
    if what == "nan beside equals":  # one too few here, one too many there
        x[0, 3] = np.nan
        x[1] = np.arange(100)
        x[1, 90] = x[1, 91]
    for dim, k in ((1, 10), (0, 1), (1, 1)):
        given = lucid_gpu.tensor(x, device=device)
        given = given.bfloat16() if what == "halves" else given
        found = given.topk(k, dim, largest)
        wanted = torch_module().tensor(given.double().tolist()).topk(k, dim, largest).values
        np.testing.assert_array_equal(found.values.double().cpu().numpy(), wanted.numpy())
        order = given.argsort(dim, largest).narrow(dim, 0, k)
        assert found.indices.tolist() == order.tolist()

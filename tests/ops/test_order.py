"""Order and statistics against torch: unique elements, places, quantiles, counts, closeness."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradcheck
from lucid_gpu.func import vmap
from tests.oracle import agree, gives, same_error, torch_module

RNG = np.random.default_rng(22)
MATRIX = RNG.standard_normal((4, 6))
CUBE = RNG.standard_normal((3, 5, 4))
WHOLE = RNG.integers(0, 4, (4, 6))
ROWS = WHOLE[[2, 0, 2, 1, 1, 2]][:, :3] % 2
RUNS = np.array([3, 3, 1, 1, 1, 2, 3, 3])
HOLES = np.where(RNG.random((4, 6)) < 0.3, np.nan, MATRIX)
EDGES = np.array([-1.0, 0.0, 0.5, 2.0])
Q = np.array([0.1, 0.5, 1.0])
SPECIAL = np.array([0.0, np.inf, -np.inf, np.nan, 1.0, 1e30])
COUNTS = np.array([1, 2, 1, 3, 1, 2])
SHARES = np.array([0.5, 1.0, 0.2, 0.3, 0.9, 1.0])

ORDER: dict[str, tuple[Any, ...]] = {
    "msort": (lambda m, t: t.msort(), MATRIX),
    "sort": (lambda m, t: tuple(m.sort(t, dim=0, descending=True)), MATRIX),
    "stable sort": (lambda m, t: tuple(t.sort(stable=True, dim=1, descending=True)), WHOLE),
    "argsort": (lambda m, t: (t.argsort(0), m.argsort(t, descending=True)), MATRIX),
    "topk": (lambda m, t: tuple(t.topk(2, 0, largest=False)), MATRIX),
    "kthvalue": (lambda m, t: tuple(t.kthvalue(2)), MATRIX),
    "kthvalue kept": (lambda m, t: tuple(m.kthvalue(t, 3, 0, keepdim=True)), MATRIX),
    "kthvalue of a number": (lambda m, t: tuple(t[0, 0].kthvalue(1)), MATRIX),
    "mode": (lambda m, t: tuple(t.mode()), WHOLE),
    "mode along": (lambda m, t: tuple(m.mode(t, 0, keepdim=True)), WHOLE.astype(np.float64)),
    "aminmax": (lambda m, t: (*t.aminmax(), *m.aminmax(t, dim=1, keepdim=True)), MATRIX),
    "unique": (lambda m, t: t.unique(), WHOLE),
    "unique with all": (lambda m, t: m.unique(t, return_inverse=True, return_counts=True), WHOLE),
    "unique of NaN": (lambda m, t: t.detach().unique(return_counts=True), HOLES),
    "unique far apart": (
        lambda m, t: m.unique(t * 10**9 - 7, return_inverse=True, return_counts=True), WHOLE
    ),
    "unique bytes": (lambda m, t: m.unique(t.byte() + 250, return_inverse=True), WHOLE),
    "unique bools": (lambda m, t: (t > 1).unique(return_inverse=True), WHOLE),
    "unique rows": (lambda m, t: t.unique(dim=0, return_inverse=True, return_counts=True), ROWS),
    "unique columns": (lambda m, t: m.unique(t, dim=1, return_counts=True), ROWS),
    "unique of nothing": (lambda m, t: t[:0].unique(return_inverse=True, return_counts=True), RUNS),
    "unique of a number": (lambda m, t: t[0].unique(return_inverse=True), RUNS),
    "unique_consecutive": (
        lambda m, t: t.unique_consecutive(return_inverse=True, return_counts=True), RUNS
    ),
    "consecutive rows": (lambda m, t: m.unique_consecutive(t, dim=0, return_counts=True), ROWS),
    "searchsorted": (
        lambda m, t, e: (m.searchsorted(e, t), m.searchsorted(e, t.float(), right=True)),
        MATRIX, EDGES,
    ),
    "searchsorted, rows": (
        lambda m, t: (m.searchsorted(t.msort().mT.contiguous(), t.mT.contiguous()),
                      m.searchsorted(t.sort()[0], t, side="right")),
        MATRIX,
    ),
    "searchsorted, sorter": (
        lambda m, t: m.searchsorted(t[0], t[1], sorter=t[0].argsort(), out_int32=True), MATRIX
    ),
    "searchsorted, number": (lambda m, e: m.searchsorted(e, 0.25), EDGES),
    "bucketize": (
        lambda m, t, e: (m.bucketize(t, e), m.bucketize(t, e, right=True)), MATRIX, EDGES
    ),
    "isin": (lambda m, t, u: (m.isin(t, u), m.isin(t, 1, invert=True), m.isin(2, t)), WHOLE, RUNS),
}  # fmt: skip

STATISTICS: dict[str, tuple[Any, ...]] = {
    "quantile": (lambda m, t: (t.quantile(0.3), m.quantile(t, 0.7, 1, True)), MATRIX),
    "quantiles": (
        lambda m, t, q: (t.quantile(q, 0), t.quantile(q), t.quantile(q, keepdim=True)), MATRIX, Q
    ),
    "quantile of NaN": (lambda m, t: (t.quantile(0.3, 1), t.quantile(0.9)), HOLES),
    "nanquantile": (
        lambda m, t, q: (m.nanquantile(t, q.detach(), 1), t.nanquantile(0.2)), HOLES, Q
    ),
    "quantile of a cube": (lambda m, t, q: t.quantile(q.detach(), 1, keepdim=True), CUBE, Q),
    **{
        f"quantile, {way}": (
            lambda m, t, way=way: m.quantile(t, 0.33, 1, interpolation=way), MATRIX
        )
        for way in ("lower", "higher", "midpoint", "nearest")
    },
    "nansum": (
        lambda m, t: (t.nansum(), t.nansum(1, True), m.nansum(t, 0, dtype=m.float32)), HOLES
    ),
    "nansum of integers": (lambda m, t: t.nansum(0), WHOLE),
    "nanmean": (lambda m, t: (t.nanmean(), m.nanmean(t, 1, keepdim=True)), HOLES),
    "std_mean": (
        lambda m, t: (*m.std_mean(t), *m.std_mean(t, 1, correction=0, keepdim=True)), MATRIX
    ),
    "var_mean": (lambda m, t: (*m.var_mean(t, False), *m.var_mean(t, (0, 1))), MATRIX),
    "cov": (lambda m, t: (t.cov(), m.cov(t[0]), t.cov(correction=0)), MATRIX),
    "cov, weighted": (
        lambda m, t, f, a: (m.cov(t, fweights=f), m.cov(t, aweights=a.detach(), correction=0),
                            t.cov(fweights=f, aweights=a.detach())),
        MATRIX, COUNTS, SHARES,
    ),
    "cov of integers": (lambda m, t: t.cov(), WHOLE),
    "corrcoef": (lambda m, t: (t.corrcoef(), m.corrcoef(t[0])), MATRIX),
    "renorm of NaN": (lambda m, t: t.renorm(2, 0, 1.5), np.array([[1.0, np.nan], [3.0, 4.0]])),
    "renorm": (lambda m, t: (t.renorm(2, 0, 1.5), m.renorm(t, 1, 1, 2.0)), MATRIX),
    "bincount": (lambda m, t: (t.bincount(), m.bincount(t, minlength=7)), RUNS),
    "bincount, weighted": (
        lambda m, t, w: (t.bincount(w.detach()), t.bincount(w.detach().float(), 9), t.bincount(t)),
        RUNS, np.arange(8) / 3,
    ),
    "bincount of nothing": (lambda m, t: (t[:0].bincount(), t[:0].bincount(t[:0])), RUNS),
    "histc": (lambda m, t: (t.detach().histc(5), m.histc(t.detach(), 4, -1, 1)), MATRIX),
    "histc of one value": (lambda m, t: (t.detach() * 0 + 2).histc(4), MATRIX),
    "histogram": (lambda m, t: tuple(m.histogram(t.detach(), 4)), MATRIX),
    "histogram, all": (
        lambda m, t: tuple(
            t.detach().histogram(3, range=(-1.0, 2.0), weight=t.detach() * 2, density=True)
        ),
        MATRIX,
    ),
    "histogramdd": (
        lambda m, t: m.histogramdd(
            t.detach(), [2] * t.shape[1], weight=t[:, 0].detach().abs(), density=True
        ).hist,
        MATRIX,
    ),
    "histogramdd of edges": (
        lambda m, t: m.histogramdd(
            t.detach()[:, :2], [m.tensor([-1.0, 0.0, 0.5, 2.0], dtype=t.dtype, device=t.device)] * 2
        ).hist,
        MATRIX,
    ),
    "histogram of edges": (
        lambda m, t, e: tuple(t.detach().histogram(e.detach(), weight=t.detach())),
        MATRIX.astype(np.float32), EDGES.astype(np.float32),
    ),
    "isclose": (lambda m, t: (m.isclose(t[:, None], t), t.isclose(t, equal_nan=True)), SPECIAL),
    "isclose of numbers": (lambda m, t: t.isclose(t + 1e-6, rtol=0.0, atol=1e-5), MATRIX),
    "isclose of integers": (lambda m, t: (t.isclose(t + 1, atol=1), (t > 1).isclose(t > 2)), WHOLE),
    "isclose of complex": (lambda m, t: t.isclose(t + 1e-9j), MATRIX + 1j),
}  # fmt: skip
CASES = ORDER | STATISTICS


@pytest.mark.parametrize("name", CASES)
def test_as_in_torch(name: str, device: str) -> None:
    function, *arrays = CASES[name]
    order = 2 if name in ("cov", "quantile") else 0 if name == "quantile of NaN" else 1
    agree(function, *arrays, device=device, order=order)


REFUSED: dict[str, Any] = {
    "kthvalue of too many": lambda m: m.ones(3).kthvalue(4),
    "gradient of unique": lambda m: m.ones(3, requires_grad=True).unique().sum().backward(),
    "gradient of unique rows": (
        lambda m: m.unique(m.ones(2, 1, requires_grad=True), dim=0, return_counts=True)[0].backward(
            m.ones(1, 1)
        )
    ),
    "gradient of neighbors": (
        lambda m: m.ones(3, requires_grad=True).unique_consecutive().sum().backward()
    ),
    "mode of nothing": lambda m: m.ones(2, 0).mode(),
    "searchsorted of rows": lambda m: m.searchsorted(m.ones(2, 3), m.ones(3, 3)),
    "searchsorted of sides": lambda m: m.searchsorted(
        m.ones(3), m.ones(3), side="left", right=True
    ),
    "bucketize of rows": lambda m: m.bucketize(m.ones(3), m.ones(2, 3)),
    "quantile of nothing": lambda m: m.ones(0).quantile(0.5),
    "quantile beyond": lambda m: m.ones(3).quantile(1.5),
    "quantile of integers": lambda m: m.tensor([1, 2]).quantile(0.5),
    "quantile of another": lambda m: m.ones(3).quantile(0.5, interpolation="cubic"),
    "bincount of negatives": lambda m: m.tensor([-1]).bincount(),
    "bincount of floats": lambda m: m.ones(3).bincount(),
    "bincount of weights": lambda m: m.tensor([1, 2]).bincount(m.ones(3)),
    "histc of no bins": lambda m: m.ones(3).histc(0),
    "histogram of types": lambda m: m.histogram(m.ones(3), m.ones(3).double()),
    "nanmean of integers": lambda m: m.tensor([1]).nanmean(),
    "cov of a cube": lambda m: m.ones(2, 2, 2).cov(),
    "cov of other weights": lambda m: m.ones(2, 3).cov(fweights=m.ones(3)),
    "renorm of a vector": lambda m: m.ones(3).renorm(2, 0, 1.0),
    "isclose of types": lambda m: m.ones(3).isclose(m.ones(3).double()),
    "isclose, negative": lambda m: m.allclose(m.ones(3), m.ones(3), rtol=-1.0),
    "isin of numbers": lambda m: m.isin(1, 2),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    same_error(REFUSED[name])


def test_results_have_names(device: str) -> None:
    x = lucid_gpu.tensor(MATRIX, device=device)
    for found, names in (
        (x.sort(), ("values", "indices")),
        (x.mode(), ("values", "indices")),
        (x.aminmax(), ("min", "max")),
        (x.histogram(3), ("hist", "bin_edges")),
    ):
        assert found._fields == names


def test_gradients(device: str) -> None:
    x = lucid_gpu.tensor(MATRIX, device=device, requires_grad=True)
    assert gradcheck(lambda t: t.quantile(0.4, 1), (x,))
    assert gradcheck(lambda t: t.corrcoef(), (x[:3],))
    assert gradcheck(lambda t: t.kthvalue(2, 0).values, (x,))


def test_closeness_is_a_bool(device: str) -> None:
    x = lucid_gpu.tensor(MATRIX, device=device)
    assert x.allclose(x + 1e-9) is True
    assert lucid_gpu.equal(x, x) is True
    assert lucid_gpu.equal(x, x[0]) is False


def test_weights_of_halves_add_up_the_same_twice(device: str) -> None:
    places = lucid_gpu.tensor(RNG.integers(0, 5, 3000), device=device)
    weights = lucid_gpu.tensor(RNG.standard_normal(3000).astype(np.float32), device=device)
    assert places.bincount(weights).tolist() == places.bincount(weights).tolist()


def test_batches(device: str) -> None:
    x = lucid_gpu.tensor(CUBE, device=device)
    for function in (lambda t: t.quantile(0.3, 0), lambda t: t.nansum(0)):
        expected = lucid_gpu.stack([function(part) for part in x])
        np.testing.assert_allclose(vmap(function)(x).cpu(), expected.cpu(), rtol=1e-12)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32"])
def test_nans_of_every_type_are_last(kind: str, device: str) -> None:
    def scenario(module: Any, where: str) -> Any:
        nan = float("nan")
        x = module.tensor([1, nan, -1, 5, nan, 2], dtype=getattr(module, kind), device=where)
        known = [x.argsort(), x.argsort(descending=True), x.topk(4, largest=False).indices[:3]]
        known += [x.kthvalue(3).indices, x.kthvalue(2).values, x.median().isnan()]
        return [*known, x.nanmedian(), x.sort().values[:4], x.unique()[:4]]

    expected = [[2, 0, 5, 3, 1, 4], [1, 4, 3, 5, 0, 2], [2, 0, 5]]
    expected += [5, 1.0, True, 1.0, [-1, 1, 2, 5], [-1, 1, 2, 5]]
    gives(expected, scenario, device)


@pytest.mark.parametrize(
    "sorter", [[0, 1], [0.0, 1.0, 2.0], [0, 1, 5], [0, 1, -1], [[0, 1, 2]]], ids=str
)
def test_a_wrong_sorter_is_refused(sorter: Any) -> None:
    with pytest.raises(RuntimeError, match=r"torch\.searchsorted\(\): .*sorter"):
        lucid_gpu.searchsorted(
            lucid_gpu.tensor([1.0, 2.0, 3.0]),
            lucid_gpu.tensor([2.0]),
            sorter=lucid_gpu.tensor(sorter),
        )


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_searches_for_and_among_what_is_no_number(dtype, device):
    """Also in sequences that NaN puts out of order: the halves that PyTorch looks at."""
    rng = np.random.default_rng(0)

    def found(m, where, sequence, values, right):
        a, b = (m.tensor(x, dtype=getattr(m, dtype), device=where) for x in (sequence, values))
        results = [m.searchsorted(a, b, right=right), m.bucketize(b, a, right=right)]
        if values.ndim == 1:
            results.append(m.searchsorted(m.stack([a, a]), m.stack([b, b]), right=right))
        return [r.tolist() for r in results]

    for trial in range(60):
        sequence = np.sort(rng.integers(0, 5, rng.integers(0, 7)).astype(float))
        if device == "cpu":
            sequence[rng.random(len(sequence)) < 0.2 * (trial % 3)] = np.nan
        values = rng.integers(-1, 6, [(), (4,), (2, 3)][trial % 3]).astype(float)
        values = np.where(rng.random(values.shape) < 0.3, np.nan, values)
        for right in (False, True):
            expected = found(torch_module(), "cpu", sequence, values, right)
            assert found(lucid_gpu, device, sequence, values, right) == expected

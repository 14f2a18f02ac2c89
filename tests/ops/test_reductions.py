"""Reductions: values, gradients and second gradients as in torch, over every dimension."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import agree, gives, modules, same_error, torch_module

RNG = np.random.default_rng(8)
CUBE = RNG.standard_normal((3, 4, 5))
TIED = RNG.integers(0, 3, (4, 5)).astype(np.float64)
NUMBER = np.array(1.25)

SEVERAL: dict[str, Any] = {  # take any number of dimensions
    "sum": lambda m, t, d, k: t.sum(d, k),
    "mean": lambda m, t, d, k: t.mean(d, keepdim=k),
    "var": lambda m, t, d, k: t.var(d, keepdim=k),
    "var biased": lambda m, t, d, k: t.var(d, correction=0, keepdim=k),
    "std": lambda m, t, d, k: m.std(t, d, unbiased=True, keepdim=k),
    "amax": lambda m, t, d, k: t.amax(d, k),
    "amin": lambda m, t, d, k: t.amin(d, k),
    "logsumexp": lambda m, t, d, k: t.logsumexp(d, k),
    "norm": lambda m, t, d, k: t.norm(2, d, k),
    "norm 1": lambda m, t, d, k: t.norm(1, d, k),
    "norm 3": lambda m, t, d, k: t.norm(3, d, k),
}
ONE: dict[str, Any] = {  # take one
    "prod": lambda m, t, d, k: t.prod(d, k),
    "max": lambda m, t, d, k: tuple(t.max(d, k)),
    "median": lambda m, t, d, k: tuple(t.median(d, k)),
    "nanmedian": lambda m, t, d, k: tuple(m.nanmedian(t, d, keepdim=k)),
    "cumsum": lambda m, t, d, k: t.cumsum(d),
    "min": lambda m, t, d, k: tuple(m.min(t, d, keepdim=k)),
    "argmax": lambda m, t, d, k: t.argmax(d, k),
    "argmin": lambda m, t, d, k: t.argmin(d, k),
    "all": lambda m, t, d, k: (t > -1).all(d, k),
    "any": lambda m, t, d, k: (t > 1).any(d, k),
    "count_nonzero": lambda m, t, d, k: (t > 0).count_nonzero(d),
}
ALL: dict[str, Any] = {  # reduce everything
    "sum": lambda m, t: t.sum(),
    "mean": lambda m, t: t.mean(),
    "var": lambda m, t: t.var(),
    "std biased": lambda m, t: t.std(unbiased=False),
    "prod": lambda m, t: t.prod(),
    "amax": lambda m, t: t.amax(),
    "max": lambda m, t: t.max(),
    "min": lambda m, t: m.min(t),
    "argmax": lambda m, t: t.argmax(),
    "argmin": lambda m, t: t.argmin(),
    "median": lambda m, t: t.median(),
    "norm": lambda m, t: t.norm(),
    "norm inf": lambda m, t: t.norm(float("inf")),
    "all": lambda m, t: (t > -9).all(),
    "any": lambda m, t: (t > 9).any(),
    "count_nonzero": lambda m, t: (t > 0).count_nonzero(),
    "sum of a type": lambda m, t: t.sum(dtype=m.float32).double(),
}


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [0, -1, (0, 2), (1,), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("name", SEVERAL)
def test_over_dimensions(name: str, dim: Any, keepdim: bool, device: str) -> None:
    agree(lambda m, t: SEVERAL[name](m, t, dim, keepdim), CUBE, device=device)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("name", ONE)
def test_over_one_dimension(name: str, dim: int, keepdim: bool, device: str) -> None:
    agree(lambda m, t: ONE[name](m, t, dim, keepdim), CUBE, device=device)


@pytest.mark.parametrize("name", ALL)
def test_over_everything(name: str, device: str) -> None:
    agree(ALL[name], CUBE, device=device)


@pytest.mark.parametrize("name", [n for n in ALL if n not in ("var",)])
def test_of_a_zero_dimensional_tensor(name: str, device: str) -> None:
    agree(ALL[name], NUMBER, device=device, order=1)


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "logsumexp", "norm"])
def test_a_zero_dimensional_tensor_has_dimension_0(name: str, device: str) -> None:
    for dim in (0, -1):
        agree(lambda m, t, d=dim: SEVERAL[name](m, t, d, False), NUMBER, device=device)


@pytest.mark.parametrize("name", SEVERAL)
def test_of_strided_and_broadcast_tensors(name: str, device: str) -> None:
    agree(
        lambda m, t: SEVERAL[name](m, t.permute(2, 0, 1)[::2], (0, 2), False), CUBE, device=device
    )
    agree(lambda m, t: SEVERAL[name](m, t[:, :1].expand(3, 4, 5), 1, True), CUBE, device=device)


@pytest.mark.parametrize(
    "function",
    [
        lambda m, t: t.amax(1),
        lambda m, t: t.amin(0),
        lambda m, t: t.max(),
        lambda m, t: t.min(),
        lambda m, t: t.amax((0, 1)),
        lambda m, t: t.norm(float("inf")),
        lambda m, t: t.max(1).values,
        lambda m, t: t.max(1).indices,
        lambda m, t: t.argmin(0),
    ],
)
def test_ties_share_the_gradient_as_in_torch(function: Any, device: str) -> None:
    agree(function, TIED, device=device, order=1)


@pytest.mark.parametrize(
    "zeros", [[], [(0, 0)], [(0, 0), (0, 1)], [(1, 2), (0, 2)], [(0, 0), (0, 1), (0, 2)]], ids=str
)
def test_products_with_zeros_have_gradients(zeros: Any, device: str) -> None:
    array = RNG.uniform(0.5, 2, (2, 3))
    for place in zeros:
        array[place] = 0
    agree(lambda m, t: t.prod(1), array, device=device)
    agree(lambda m, t: t.prod(), array, device=device)


@pytest.mark.parametrize("values", [(0.0, np.inf), (np.inf, 2.0), (np.nan, 0.0)], ids=str)
def test_second_derivatives_of_a_product_of_two_are_finite(values: Any, device: str) -> None:
    x = lucid_gpu.tensor(values, dtype=lucid_gpu.float64, device=device)
    expected = [[0.0, 1.0], [1.0, 0.0]]
    assert lucid_gpu.func.hessian(lambda t: t.prod())(x).tolist() == expected
    assert lucid_gpu.func.hessian(lambda t: t.prod(0))(x).tolist() == expected


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)], ids=str)
def test_of_empty_tensors(shape: tuple[int, ...], device: str) -> None:
    array = np.zeros(shape)
    for function in (
        lambda m, t: t.sum(),
        lambda m, t: t.sum(0),
        lambda m, t: t.sum(-1, keepdim=True),
        lambda m, t: t.mean(),
        lambda m, t: t.prod(),
        lambda m, t: (t > 0).all(),
        lambda m, t: (t > 0).any(0),
    ):
        agree(function, array, device=device, order=1)


def test_the_norm_of_zero_has_a_gradient_of_zero(device: str) -> None:
    agree(lambda m, t: t.norm(), np.zeros(3), device=device, order=1)
    agree(lambda m, t: t.norm(dim=1), np.array([[0.0, 0.0], [3.0, 4.0]]), device=device, order=1)


@pytest.mark.parametrize("p", [0.5, 1.5, -1.0, -0.5])
def test_tangents_of_norms_at_zero(p: float) -> None:
    def scenario(m: Any, device: str) -> Any:
        rows = m.tensor([[0.0, 0.0], [0.0, 2.0]], device=device, dtype=m.float64)
        tangents = m.ones_like(rows)
        return m.func.jvp(lambda x: m.linalg.vector_norm(x, p, 1), (rows,), (tangents,))[1]

    gives([0.0, 1.0 if p > 0 else 0.0], scenario)


@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
def test_the_gradient_of_a_quantile_of_equal_elements(name: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = m.zeros(4, dtype=m.float64, device=device)
        return m.func.grad(lambda x: getattr(m, name)(x, 0.25))(x)

    gives([0.25, 0.75, 0.0, 0.0], scenario)


@pytest.mark.parametrize("d", ["uint8", "int8", "int16", "int32", "int64", "bool"])
def test_integers_add_in_int64(d: str, device: str) -> None:
    torch = torch_module()
    for name in ("sum", "prod", "max", "count_nonzero", *(() if d == "bool" else ("argmax",))):
        results = [
            getattr((m.arange(12, device=w) % 5 + 1).reshape(3, 4).to(getattr(m, d)), name)()
            for m, w in ((lucid_gpu, device), (torch, "cpu"))
        ]
        assert results[0].dtype.name == str(results[1].dtype).split(".")[1]
        assert results[0].item() == results[1].item()


@pytest.mark.parametrize("d", ["float16", "bfloat16"])
def test_narrow_floats_add_in_float32(d: str, device: str) -> None:
    t = lucid_gpu.full((4096,), 1.0, dtype=getattr(lucid_gpu, d), device=device)
    assert t.sum().item() == 4096
    assert t.sum().dtype.name == d
    assert (t * 0.5).mean().item() == 0.5
    assert t.reshape(2, -1).sum(1).tolist() == [2048.0, 2048.0]


@pytest.mark.parametrize(
    "shape", [(1_000_001,), (3, 400_003), (400_003, 3), (500, 20, 70)], ids=str
)
def test_large_sums_are_accurate(shape: tuple[int, ...], device: str) -> None:
    array = RNG.standard_normal(shape).astype(np.float32)
    t = lucid_gpu.tensor(array, device=device)
    exact = array.astype(np.float64)
    for axes in [None, *range(len(shape)), tuple(range(len(shape)))]:
        got = (t * 2 + 1).sum(axes).cpu().numpy()
        terms = exact * 2 + 1
        error = np.abs(got - terms.sum(axes)) / np.abs(terms).sum(axes)
        assert error.max() < 1e-6


def test_complex_sums(device: str) -> None:
    z = lucid_gpu.tensor([1 + 2j, 3 - 1j], device=device).requires_grad_()
    total = z.sum()
    assert total.item() == 4 + 1j
    (total * total.conj()).backward(lucid_gpu.tensor(1 + 0j, device=device))
    assert z.grad.tolist() == [8 + 2j] * 2
    assert z.detach().mean().item() == 2 + 0.5j


def test_the_norm_of_complex_numbers_is_real(device: str) -> None:
    t = lucid_gpu.tensor([3 + 4j, 0j], device=device)
    assert t.norm().dtype is lucid_gpu.float32
    assert [t.norm(p).item() for p in (2, 1, float("inf"), 0)] == [5, 5, 5, 1]


def test_booleans_of_everything(device: str) -> None:
    t = lucid_gpu.tensor([True, False], device=device)
    assert t.any() and not t.all()
    assert t.any().dtype is lucid_gpu.bool
    assert 2.0 in lucid_gpu.tensor([1.0, 2.0], device=device)


MISUSE: dict[str, tuple[Any, str]] = {
    "unknown dim": (
        lambda m: m.ones(2, 3).sum(2),
        "Dimension out of range (expected to be in range of [-2, 1], but got 2)",
    ),
    "dim twice": (
        lambda m: m.ones(2, 3).sum((0, -2)),
        "appears multiple times in the list of dims",
    ),
    "mean of integers": (lambda m: m.arange(3).mean(), "could not infer output dtype"),
    "max of nothing": (lambda m: m.zeros(0).max(), "to be specified for input.numel() == 0"),
    "amax of nothing": (lambda m: m.zeros(0, 2).amax(0), "to have non-zero size"),
    "argmax of nothing": (lambda m: m.zeros(0).argmax(), ""),
    "a dim with a fraction": (lambda m: m.ones(2, 3).sum(1.0), "must be int, not float"),
    "a dim by name": (lambda m: m.ones(2, 3).cumsum("columns"), "'dim' must be int, not str"),
    "max of an unknown dim": (lambda m: m.ones(2).max(1), "Dimension out of range"),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_in_torch(name: str) -> None:
    function, words = MISUSE[name]
    same_error(function, words)


def test_medians_of_other_types_and_shapes(device: str) -> None:
    whole = lucid_gpu.tensor([[4, 1, 3, 2], [8, 8, 0, 9]], device=device)
    assert whole.median().item() == 3
    values, indices = whole.median(1)
    assert (values.tolist(), indices.tolist()) == ([2, 8], [3, 0])
    assert math.isnan(lucid_gpu.zeros(0, device=device).median().item())
    nan = lucid_gpu.tensor([1.0, math.nan, 5.0, 2.0], device=device)
    assert math.isnan(nan.median().item())
    assert nan.median(0).indices.item() == 1
    assert nan.nanmedian().item() == 2
    assert lucid_gpu.tensor(3.0, device=device).median(0).values.item() == 3
    same_error(lambda m: m.zeros(2, 0).median(1), "non-zero size")


def test_running_sums_of_other_types(device: str) -> None:
    bools = lucid_gpu.tensor([True, False, True], device=device).cumsum(0)
    assert (bools.dtype, bools.tolist()) == (lucid_gpu.int64, [1, 1, 2])
    halves = lucid_gpu.full((3000,), 0.1, dtype=lucid_gpu.float16, device=device).cumsum(0)
    assert halves.dtype is lucid_gpu.float16
    assert abs(halves[-1].item() - 300) < 1  # summed in float32
    doubles = lucid_gpu.ones(2, device=device).cumsum(-1, dtype=lucid_gpu.float64)
    assert (doubles.dtype, doubles.tolist()) == (lucid_gpu.float64, [1.0, 2.0])
    assert lucid_gpu.tensor(2.0, device=device).cumsum(0).item() == 2


@pytest.mark.parametrize(
    "name", ["max", "min", "prod", "median", "nanmedian", "sum", "amax", "all"]
)
def test_of_all_elements_dimensions_are_kept_where_asked(name, device):
    x = lucid_gpu.tensor([[3.0, 1.0], [2.0, 5.0]], device=device, requires_grad=name != "all")
    kept = getattr(x, name)(keepdim=True)
    assert kept.shape == getattr(x, name)(keepdims=True).shape == (1, 1)
    assert kept.item() == getattr(x, name)().item()
    if name != "all":
        kept.sum().backward()
        gradient, x.grad = x.grad, None
        getattr(x, name)().backward()
        assert gradient.tolist() == x.grad.tolist()


@pytest.mark.parametrize("name", ["amax", "amin", "max", "min", "aminmax"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_no_pending_16_bit_element_lies_beyond_the_extremum(name, dtype, device):
    a = lucid_gpu.linspace(-2, 2, 400, device=device).to(getattr(lucid_gpu, dtype))

    def reach() -> Any:
        x = lucid_gpu.nn.functional.softplus(a.reshape(8, 50)) * 1.3  # float32 until it is stored
        found = getattr(x, name)()
        low, high = found if name == "aminmax" else (found, found)
        return (x - low if name.endswith("min") else high - x).flatten()

    assert 0 in reach().tolist()
    assert not reach().sqrt().isnan().any()

    class Reach(lucid_gpu.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * reach().sqrt()

    leaf = lucid_gpu.zeros(400, device=device, requires_grad=True)
    Reach.apply(leaf).sum().backward()
    assert not leaf.grad.isnan().any()
    assert 0 in leaf.grad.tolist()


@pytest.mark.parametrize("dim", [0, -1, 1, -2, (0,), (1,), (0, 0), ()])
@pytest.mark.parametrize(
    "name", ["all", "any", "prod", "sum", "mean", "amax", "nansum", "logsumexp"]
)
def test_which_dimensions_one_number_is_reduced_over(name: str, dim: Any) -> None:
    outcomes = []
    for m, _ in modules():
        try:
            outcomes.append(getattr(m, name)(m.tensor(3.0), dim, True).tolist())
        except Exception as error:
            outcomes.append(type(error))
    assert all(other == outcomes[0] for other in outcomes)


NEVER = {
    "repeat": lambda m, x, n: x.repeat(2, n),
    "tile": lambda m, x, n: x.tile((2, n)),
    "repeat of one": lambda m, x, n: x.repeat(n),
    "take_along_dim": lambda m, x, n: m.take_along_dim(x, m.zeros((), dtype=m.int64), n),
    "unique": lambda m, x, n: x.unique(dim=n),
    "unique_consecutive": lambda m, x, n: x.unique_consecutive(dim=n),
    "unbind": lambda m, x, n: x.unbind(n),
    "unflatten": lambda m, x, n: m.ones(2, 3).unflatten(n, (3.0, 1)),
}


@pytest.mark.parametrize("number", [-1, -2])
@pytest.mark.parametrize("name", NEVER)
def test_what_one_number_has_no_dimension_for(name: str, number: int) -> None:
    same_error(lambda m: NEVER[name](m, m.tensor(3.0), number))

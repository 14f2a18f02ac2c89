"""A jvp for every row of the op table and every other differentiable op.

Each is compared with PyTorch where it has the op, by finite differences everywhere, and its own
gradient (reverse over forward) and that of its gradient (forward over reverse) with second
differences.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import forward_ad
from lucid_gpu.fusion.optable import NONE, TABLE, Op
from lucid_gpu.nn import functional as F
from lucid_gpu.tensor import apply
from tests.oracle import torch_module

Arrays = list[np.ndarray[Any, Any]]
DIFFERENTIABLE = sorted(n for n, op in TABLE.items() if op.differentiable and n != "zeta")
HOLOMORPHIC = ("neg", "exp", "exp2", "expm1", "log", "log1p", "sqrt", "rsqrt", "reciprocal",
               "square", "sin", "cos", "tan", "tanh", "sinh", "cosh", "sigmoid", "add", "sub",
               "mul", "div", "pow", "abs", "sgn", "conj_physical")  # fmt: skip


def sample(op: Op, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    if op.domain == "positive":
        return rng.uniform(0.3, 2.5, shape)
    if op.domain == "unit":
        return rng.uniform(-0.9, 0.9, shape)
    if op.domain == "above_one":
        return rng.uniform(1.2, 3.0, shape)
    values = rng.uniform(-2.4, 2.4, shape)
    kink = np.abs(values * 2 - np.rint(values * 2)) < 0.05
    return np.where(kink, values + 0.12, values)


def tensors(arrays: Sequence[Any], device: str) -> list[Any]:
    return [lucid_gpu.tensor(a, device=device) for a in arrays]


def host(tensor: Any) -> np.ndarray[Any, Any]:
    return np.asarray(tensor.detach().cpu().numpy())


def pushed(function: Callable[..., Any], points: list[Any], directions: list[Any]) -> Any:
    """Value and tangent; a direction None is a constant."""
    with forward_ad.dual_level():
        duals = [
            p if d is None else forward_ad.make_dual(p, d)
            for p, d in zip(points, directions, strict=True)
        ]
        value, tangent = forward_ad.unpack_dual(function(*duals))
    return value, tangent


def directions_for(arrays: Arrays, rng: np.random.Generator) -> list[Any]:
    made = []
    for a in arrays:
        if a.dtype.kind == "c":
            made.append(rng.standard_normal(a.shape) + 1j * rng.standard_normal(a.shape))
        else:
            made.append(rng.standard_normal(a.shape) if a.dtype.kind == "f" else None)
    return made


def check_by_differences(function: Callable[..., Any], arrays: Arrays, device: str) -> None:
    """The tangent against a central difference, with constants in every place in turn."""
    rng = np.random.default_rng(5)
    directions = directions_for(arrays, rng)
    floats = [i for i, d in enumerate(directions) if d is not None]
    step = 1e-6
    for kept in {*[(i,) for i in floats], tuple(floats)}:
        chosen = [d if i in kept else None for i, d in enumerate(directions)]
        moved = [
            host(
                function(
                    *tensors(
                        [
                            a if d is None else a + sign * step * d
                            for a, d in zip(arrays, chosen, strict=True)
                        ],
                        device,
                    )
                )
            )
            for sign in (1, -1)
        ]
        points = tensors(arrays, device)
        given = [None if d is None else lucid_gpu.tensor(d, device=device) for d in chosen]
        value, tangent = pushed(function, points, given)
        np.testing.assert_allclose(host(value), host(function(*points)), rtol=1e-13, atol=1e-13)
        assert tangent.shape == value.shape
        assert tangent.dtype is value.dtype
        expected = (moved[0] - moved[1]) / (2 * step)
        np.testing.assert_allclose(host(tangent), expected, rtol=2e-6, atol=2e-7)


def check_second_order(function: Callable[..., Any], arrays: Arrays, device: str) -> None:
    """Forward over reverse, reverse over forward and forward over forward agree with differences.

    Of ``<w, f(x)>`` for a fixed random ``w``, along one direction twice.
    """
    rng = np.random.default_rng(6)
    directions = directions_for(arrays, rng)
    weights = rng.standard_normal(host(function(*tensors(arrays, device))).shape)
    w = lucid_gpu.tensor(weights, device=device)
    floats = [i for i, d in enumerate(directions) if d is not None]
    given = [None if d is None else lucid_gpu.tensor(d, device=device) for d in directions]

    def slopes(points: list[Any]) -> list[Any]:
        total = (function(*points) * w).sum()
        found = lucid_gpu.autograd.grad(
            total, [points[i] for i in floats], create_graph=True, materialize_grads=True
        )
        return list(found)

    def at(sign: float) -> list[Any]:
        moved = [
            a if d is None else a + sign * 1e-5 * d for a, d in zip(arrays, directions, strict=True)
        ]
        made = tensors(moved, device)
        for i in floats:
            made[i].requires_grad_()
        return [host(g) for g in slopes(made)]

    expected = [(a - b) / 2e-5 for a, b in zip(at(1), at(-1), strict=True)]
    points = tensors(arrays, device)
    for i in floats:
        points[i].requires_grad_()
    value, tangent = pushed(function, points, given)
    assert value is not None
    if tangent.requires_grad:
        total = (tangent * w).sum()
        reverse = lucid_gpu.autograd.grad(
            total, [points[i] for i in floats], materialize_grads=True
        )
    else:
        reverse = tuple(lucid_gpu.zeros_like(points[i]) for i in floats)
    with forward_ad.dual_level():
        duals = [
            p if d is None else forward_ad.make_dual(p, d)
            for p, d in zip(points, given, strict=True)
        ]
        forward = [forward_ad.unpack_dual(g).tangent for g in slopes(duals)]
    for mine, theirs, e in zip(reverse, forward, expected, strict=True):
        np.testing.assert_allclose(host(mine), e, rtol=1e-5, atol=1e-6)
        found = np.zeros(e.shape) if theirs is None else host(theirs)
        np.testing.assert_allclose(found, e, rtol=1e-5, atol=1e-6)


def row_case(name: str) -> tuple[Callable[..., Any], Arrays]:
    op = TABLE[name]
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    shapes: list[tuple[int, ...]] = [(3, 4), (4,), (3, 1)][: op.arity]
    if op.rule == "select":
        shapes = [(3, 4), (3, 4), (4,)]
    arrays = [sample(op, s, rng) for s in shapes]
    if op.rule == "select":
        arrays[0] = arrays[0] > 0
    if op.rule == "cast":
        return lambda x: apply(op, x, to=lucid_gpu.float64), arrays
    if op.rule == "identity":
        return lambda x: apply(op, x, shape=(2, 3, 4)), arrays
    return lambda *operands: apply(op, *operands), arrays


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_every_row_has_a_tangent(name: str, device: str) -> None:
    function, arrays = row_case(name)
    if name == "sgn":  # constant for real numbers
        assert not pushed(function, tensors(arrays, device), tensors(arrays, device))[1].any()
        return
    check_by_differences(function, arrays, device)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_every_row_has_second_derivatives_both_ways(name: str, device: str) -> None:
    check_second_order(*row_case(name), device)


@pytest.mark.parametrize("name", sorted(n for n, op in TABLE.items() if not op.differentiable))
def test_what_has_no_derivative_has_no_tangent(name: str, device: str) -> None:
    op = TABLE[name]
    assert all(f is NONE for f in op.vjp)
    if op.rule in ("bitwise", "draw"):
        return  # takes no floats
    x = lucid_gpu.tensor([0.5, 1.5], device=device)
    operands = [x] * (op.arity - 1)
    _, tangent = pushed(lambda d: apply(op, d, *operands), [x], [x])
    assert tangent is None


@pytest.mark.parametrize("name", HOLOMORPHIC)
def test_complex_rows_as_torch(name: str) -> None:
    torch = torch_module()
    op = TABLE[name]
    rng = np.random.default_rng(8)

    def some() -> np.ndarray[Any, Any]:
        return rng.uniform(0.3, 1.2, (3, 4)) + 1j * rng.uniform(0.3, 1.2, (3, 4))

    points, moves = [some() for _ in range(op.arity)], [some() for _ in range(op.arity)]
    _, mine = pushed(lambda *z: apply(op, *z), tensors(points, "cpu"), tensors(moves, "cpu"))
    _, theirs = torch.func.jvp(
        getattr(torch, name),
        tuple(torch.from_numpy(p) for p in points),
        tuple(torch.from_numpy(m) for m in moves),
    )
    np.testing.assert_allclose(host(mine), theirs.resolve_conj().numpy(), rtol=1e-11)


@pytest.mark.parametrize("name", ("add", "mul", "div", "sub"))
def test_real_and_complex_operands_together_as_torch(name: str) -> None:
    torch = torch_module()
    rng = np.random.default_rng(9)
    points = [rng.uniform(0.3, 1, 5), rng.uniform(0.3, 1, 5) + 1j * rng.uniform(0.3, 1, 5)]
    moves = [rng.uniform(0.3, 1, 5), rng.uniform(0.3, 1, 5) + 1j * rng.uniform(0.3, 1, 5)]
    for order in (slice(None), slice(None, None, -1)):
        p, m = points[order], moves[order]
        _, mine = pushed(lambda *z: apply(TABLE[name], *z), tensors(p, "cpu"), tensors(m, "cpu"))
        _, theirs = torch.func.jvp(
            getattr(torch, name), tuple(map(torch.from_numpy, p)), tuple(map(torch.from_numpy, m))
        )
        np.testing.assert_allclose(host(mine), theirs.numpy(), rtol=1e-12)


@pytest.mark.parametrize("name", ("mul", "div", "pow"))
def test_real_and_complex_operands_together(name: str, device: str) -> None:
    """By differences: torch 2.13 loses the imaginary part of ``real ** complex``."""
    rng = np.random.default_rng(10)
    arrays = [rng.uniform(0.3, 1, 5), rng.uniform(0.3, 1, 5) + 1j * rng.uniform(0.3, 1, 5)]
    check_by_differences(lambda a, b: apply(TABLE[name], a, b), arrays, device)
    check_by_differences(lambda a, b: apply(TABLE[name], b, a), arrays, device)


def _conv(x: Any, w: Any, b: Any) -> Any:
    return F.conv2d(x, w, b, stride=2, padding=1)


INDEX = np.array([[0, 2, 1], [2, 2, 0]])
SMALL, SQUARE, CUBE = (3, 4), (4, 4), (2, 3, 4)
OPS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "reshape": (lambda x: x.reshape(2, 6), (SMALL,)),
    "reshape of a transposed one": (lambda x: x.t().reshape(2, 6), (SMALL,)),
    "flatten": (lambda x: x.flatten(1), (CUBE,)),
    "unflatten": (lambda x: x.unflatten(1, (2, 2)), (SMALL,)),
    "squeeze": (lambda x: x.unsqueeze(1).squeeze(1) * x, (SMALL,)),
    "permute": (lambda x: x.permute(2, 0, 1), (CUBE,)),
    "transpose": (lambda x: x.transpose(0, 2), (CUBE,)),
    "T": (lambda x: x.T * 2, (SMALL,)),
    "mT": (lambda x: x.mT, (CUBE,)),
    "movedim": (lambda x: x.movedim(0, 2), (CUBE,)),
    "expand": (lambda x: x.expand(2, 3, 4), (SMALL,)),
    "tensor_split": (lambda x: x.tensor_split(2, 1)[1] ** 2, (SMALL,)),
    "unsafe_split": (lambda x: x.unsafe_split(2, 1)[1] ** 2, (SMALL,)),
    "repeat": (lambda x: x.repeat(2, 3), (SMALL,)),
    "tile": (lambda x: x.tile((2,)), (SMALL,)),
    "flip": (lambda x: x.flip(0, 1), (SMALL,)),
    "narrow": (lambda x: x.narrow(1, 1, 2), (SMALL,)),
    "split": (lambda x: x.split(2, 1)[1] * x.split(2, 1)[0], (SMALL,)),
    "chunk": (lambda x: x.chunk(2, 1)[1].exp(), (SMALL,)),
    "unbind": (lambda x: x.unbind(1)[2], (SMALL,)),
    "cat": (lambda x, y: lucid_gpu.cat([x, y, x * y], 1), (SMALL, SMALL)),
    "stack": (lambda x, y: lucid_gpu.stack([x, y], 1), (SMALL, SMALL)),
    "clone": (lambda x: (x.clone() * 2).clone(), (SMALL,)),
    "contiguous": (lambda x: x.t().contiguous(), (SMALL,)),
    "slice": (lambda x: x[1:, ::2], (SMALL,)),
    "select": (lambda x: x[1], (SMALL,)),
    "index": (lambda x: x[lucid_gpu.tensor([0, 0, 2]).to(x.device)], (SMALL,)),
    "mask": (lambda x: x[lucid_gpu.tensor([True, False, True]).to(x.device)], (SMALL,)),
    "gather": (lambda x: x.gather(1, lucid_gpu.tensor(INDEX).to(x.device)), (SMALL,)),
    "take": (lambda x: x.take(lucid_gpu.tensor([0, 0, 7]).to(x.device)), (SMALL,)),
    "index_select": (
        lambda x: x.index_select(1, lucid_gpu.tensor([3, 3, 0]).to(x.device)), (SMALL,)
    ),
    "index_put": (
        lambda x, v: x.index_put((lucid_gpu.tensor([2, 0]).to(x.device),), v), (SMALL, (2, 4))
    ),
    "index_put that adds": (
        lambda x, v: x.index_put((lucid_gpu.tensor([2, 2]).to(x.device),), v, accumulate=True),
        (SMALL, (2, 4)),
    ),
    "index_add": (
        lambda x, v: x.index_add(0, lucid_gpu.tensor([2, 2]).to(x.device), v), (SMALL, (2, 4))
    ),
    "scatter": (
        lambda x, v: x.scatter(1, lucid_gpu.tensor([[0, 2], [1, 3]]).to(x.device), v),
        (SMALL, (2, 2)),
    ),
    "scatter_add": (
        lambda x, v: x.scatter_add(1, lucid_gpu.tensor(INDEX).to(x.device), v), (SMALL, (2, 3))
    ),
    "masked_select": (lambda x: x.masked_select(x > 0), (SMALL,)),
    "masked_fill": (lambda x: x.masked_fill(x > 0, 3.0), (SMALL,)),
    "where": (lambda x, y: lucid_gpu.where(x > 0, x * y, y), (SMALL, SMALL)),
    "sort": (lambda x: x.sort(1)[0], (SMALL,)),
    "topk": (lambda x: x.topk(2, 1)[0], (SMALL,)),
    "tril": (lambda x: x.tril(), (SMALL,)),
    "triu": (lambda x: x.triu(1), (SMALL,)),
    "sum": (lambda x: x.sum(), (SMALL,)),
    "sum over a dim": (lambda x: (x * x).sum(1), (CUBE,)),
    "sum kept": (lambda x: x.sum((0, 2), keepdim=True) * x, (CUBE,)),
    "mean": (lambda x: x.mean(0), (SMALL,)),
    "var": (lambda x: x.var(1), (SMALL,)),
    "std": (lambda x: x.std(1), (SMALL,)),
    "prod": (lambda x: x.prod(1), (SMALL,)),
    "prod of all": (lambda x: x.prod(), (SMALL,)),
    "norm": (lambda x: x.norm(), (SMALL,)),
    "norm 3": (lambda x: x.norm(3, 1), (SMALL,)),
    "norm 1": (lambda x: x.norm(1, 1), (SMALL,)),
    "norm inf": (lambda x: x.norm(float("inf"), 1), (SMALL,)),
    "logsumexp": (lambda x: x.logsumexp(1), (SMALL,)),
    "amax": (lambda x: x.amax(1), (SMALL,)),
    "amin": (lambda x: x.amin(), (SMALL,)),
    "max": (lambda x: x.max(), (SMALL,)),
    "max over a dim": (lambda x: x.max(1)[0], (SMALL,)),
    "min over a dim": (lambda x: x.min(0)[0], (SMALL,)),
    "median": (lambda x: x.median(), (SMALL,)),
    "median over a dim": (lambda x: x.median(1)[0], (SMALL,)),
    "nanmedian": (lambda x: x.nanmedian(1)[0], (SMALL,)),
    "cumsum": (lambda x: x.cumsum(1), (SMALL,)),
    "matmul": (lambda x, y: x @ y, (SMALL, (4, 2))),
    "matmul of vectors": (lambda x, y: x @ y, ((4,), (4,))),
    "matmul of batches": (lambda x, y: x @ y, (CUBE, (4, 2))),
    "bmm": (lambda x, y: x.bmm(y), (CUBE, (2, 4, 2))),
    "mv": (lambda x, y: x.mv(y), (SMALL, (4,))),
    "outer": (lambda x, y: x.outer(y), ((3,), (4,))),
    "addmm": (lambda a, x, y: a.addmm(x, y, beta=0.5, alpha=2), ((3, 2), SMALL, (4, 2))),
    "linear": (lambda x, w, b: F.linear(x, w, b), (SMALL, (2, 4), (2,))),
    "linear of batches": (lambda x, w: F.linear(x, w), (CUBE, (2, 4))),
    "clamp": (lambda x: x.clamp(-0.5, 0.7), (SMALL,)),
    "clamp between tensors": (lambda x, a, b: x.clamp(a - 3, b + 3), (SMALL, SMALL, SMALL)),
    "lerp": (lambda x, y, w: x.lerp(y, w), (SMALL, SMALL, SMALL)),
    "addcmul": (lambda x, y, z: x.addcmul(y, z, value=2), (SMALL, SMALL, SMALL)),
    "addcdiv": (lambda x, y, z: x.addcdiv(y, z.exp()), (SMALL, SMALL, SMALL)),
    "softmax": (lambda x: F.softmax(x, 1), (SMALL,)),
    "log_softmax": (lambda x: F.log_softmax(x, 1), (SMALL,)),
    "cross_entropy": (
        lambda x: F.cross_entropy(x, lucid_gpu.tensor([0, 3, 1]).to(x.device)), (SMALL,)
    ),
    "cross_entropy of probabilities": (
        lambda x, y: F.cross_entropy(x, F.softmax(y, 1)), (SMALL, SMALL)
    ),
    "weighed cross_entropy": (
        lambda x: F.cross_entropy(
            x, lucid_gpu.tensor([0, 3, 1]).to(x.device),
            weight=lucid_gpu.tensor([1.0, 2.0, 3.0, 4.0], dtype=x.dtype).to(x.device),
        ),
        (SMALL,),
    ),
    "nll_loss": (lambda x: F.nll_loss(x, lucid_gpu.tensor([0, 3, 1]).to(x.device)), (SMALL,)),
    "mse_loss": (lambda x, y: F.mse_loss(x, y), (SMALL, SMALL)),
    "layer_norm": (
        lambda x, w, b: F.layer_norm(x, (4,), w, b), (SMALL, (4,), (4,))
    ),
    "batch_norm": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), (SMALL, (4,), (4,))
    ),
    "conv2d": (_conv, ((2, 3, 5, 5), (4, 3, 3, 3), (4,))),
    "conv1d": (lambda x, w: F.conv1d(x, w, padding=1), ((2, 3, 5), (4, 3, 3))),
    "unfold": (lambda x: F.unfold(x, 2, padding=1), ((2, 3, 3, 4),)),
    "fold": (lambda x: F.fold(x, (3, 4), 2), ((2, 8, 6),)),
    "max_pool1d": (lambda x: F.max_pool1d(x, 3, 1), ((1, 2, 4),)),
    "avg_pool2d, padded": (lambda x: F.avg_pool2d(x, 3, 2, 1), ((1, 2, 4, 5),)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), ((1, 2, 4, 4),)),
    "max_pool2d overlapping": (lambda x: F.max_pool2d(x, 3, 1), ((1, 2, 4, 4),)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), ((1, 2, 4, 4),)),
    "embedding": (lambda w: F.embedding(lucid_gpu.tensor(INDEX).to(w.device), w), (SMALL,)),
    "gelu": (lambda x: F.gelu(x), (SMALL,)),
    "silu": (lambda x: F.silu(x), (SMALL,)),
    "softplus": (lambda x: F.softplus(x), (SMALL,)),
    "to another device and back": (lambda x: (x.to(x.device) * 2).cpu().to(x.device), (SMALL,)),
}  # fmt: skip


def op_case(name: str) -> tuple[Callable[..., Any], Arrays]:
    function, shapes = OPS[name]
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return function, [rng.standard_normal(s) for s in shapes]


@pytest.mark.parametrize("name", OPS)
def test_every_other_op_has_a_tangent(name: str, device: str) -> None:
    check_by_differences(*op_case(name), device)


@pytest.mark.parametrize("name", OPS)
def test_every_other_op_has_second_derivatives_both_ways(name: str, device: str) -> None:
    check_second_order(*op_case(name), device)


@pytest.mark.parametrize("name", ("floor", "ceil", "round", "trunc", "sign"))
def test_a_derivative_of_zero_gives_a_tangent_of_zeros_as_torch(name: str) -> None:
    torch = torch_module()
    for module in (torch, lucid_gpu):
        ad = module.autograd.forward_ad
        x = module.tensor([0.3, -1.2])
        with ad.dual_level():
            dual = ad.make_dual(x, x * 2)
            tangent = ad.unpack_dual(getattr(module, name)(dual)).tangent
        assert tangent is not None
        assert tangent.tolist() == [0.0, 0.0]

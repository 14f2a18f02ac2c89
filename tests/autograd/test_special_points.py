"""Gradients at kinks, ties, zeros, infinities and NaN are PyTorch's, for every kind of op.

The rows of the op table have their own test of this in tests/test_optable.py; here are the
compositions, the reductions and the ops that pick elements. Where PyTorch's answer is not followed
the points are named, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradgradcheck
from tests.oracle import agree, array_of, modules, torch_module

INF, NAN = math.inf, math.nan
Function = Callable[..., Any]
POINTS = np.array(
    [0.0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 3, -3, 6, -6, 1.5, 20, 21, -30, INF, -INF, NAN]
)
FEW = np.array([0.0, -0.0, 1, -1, 0.5, 2, -2, INF, -INF, NAN])


def outcome(module: Any, function: Function, arrays: Any, cotangent: float, device: str) -> Any:
    """The value, then a gradient for each array (zeros where it is undefined)."""
    leaves = [module.tensor(a, device=device).requires_grad_() for a in arrays]
    value = function(module, *leaves)
    seed = module.full_like(value.detach(), cotangent)
    found = module.autograd.grad(value, leaves, seed, allow_unused=True)
    gradients = [np.zeros_like(a) if g is None else array_of(g) for a, g in zip(arrays, found)]
    return [array_of(value), *gradients]


def same(function: Function, *arrays: Any, device: str, but: Any = False) -> None:
    """Value and gradients agree for cotangents of one and zero, except where ``but`` holds."""
    for cotangent in (1.0, 0.0):
        expected = outcome(torch_module(), function, arrays, cotangent, "cpu")
        got = outcome(lucid_gpu, function, arrays, cotangent, device)
        for number, (mine, theirs) in enumerate(zip(got, expected, strict=True)):
            what = "value" if number == 0 else f"gradient {number - 1} for cotangent {cotangent}"
            assert mine.dtype == theirs.dtype, what
            wrong = ~np.isclose(mine, theirs, rtol=1e-7, atol=1e-14, equal_nan=True)
            if np.shape(but) in ((), wrong.shape):
                wrong &= ~np.asarray(but)
            shown = [(i, mine[tuple(i)], theirs[tuple(i)]) for i in np.argwhere(wrong)[:6]]
            assert not wrong.any(), f"{what}: index, here, torch: {shown}"


def functional(name: str, *args: Any, **kwargs: Any) -> Function:
    return lambda m, x: getattr(m.nn.functional, name)(x, *args, **kwargs)


# --- one operand ----------------------------------------------------------------------------------

ONE: dict[str, Function] = {
    **{
        name: functional(name)
        for name in (
            "leaky_relu", "elu", "celu", "selu", "silu", "softplus", "mish", "gelu", "hardtanh",
            "relu6", "hardsigmoid", "hardswish", "logsigmoid", "softsign", "tanhshrink", "relu",
        )
    },
    "gelu by tanh": functional("gelu", approximate="tanh"),
    "elu(2)": functional("elu", 2.0),
    "celu(2)": functional("celu", 2.0),
    "leaky_relu(0)": functional("leaky_relu", 0.0),
    "softplus(2, 3)": functional("softplus", 2.0, 3.0),
    # Eight exponents: from the ninth on they are arguments of one program, and sqrt(-inf) is lost.
    **{f"x ** {n}": lambda m, x, n=n: x**n for n in (0, 1, 2, 3, 0.5, -1, -0.5, 1.5)},
    **{f"{b} ** x": lambda m, x, b=b: b**x for b in (0, 0.0, 1, 2, 0.5)},
    "clamp(-1, 1)": lambda m, x: x.clamp(-1, 1),
    "clamp(min=0)": lambda m, x: x.clamp(min=0),
    "clamp(max=2)": lambda m, x: x.clamp(max=2),
    "clamp(1, -1)": lambda m, x: x.clamp(1, -1),
    "clamp(min=nan)": lambda m, x: x.clamp(min=NAN),
    "x * 0": lambda m, x: x * 0,
    "x / 0": lambda m, x: x / 0,
    "0 / x": lambda m, x: 0 / x,
    "1 / x": lambda m, x: 1 / x,
    "x % 2": lambda m, x: x % 2,
    "x % 0": lambda m, x: x % 0,
    "fmod 2": lambda m, x: m.fmod(x, 2),
    "abs": lambda m, x: x.abs(),
    "sqrt": lambda m, x: x.sqrt(),
    "sign": lambda m, x: x.sign(),
    "where of a NaN branch": lambda m, x: m.where(x > 0, x.sqrt(), x * 2),
    "where of a NaN branch untaken": lambda m, x: m.where(x > 0, x, m.log(-x)),
    "masked_fill over a NaN": lambda m, x: x.log().masked_fill(x <= 0, 0.0),
    "nan_to_num": lambda m, x: m.nan_to_num(x),
    "float32": lambda m, x: x.float(),
    "the same tensor twice": lambda m, x: m.maximum(x, x) + m.minimum(x, x),
}  # fmt: skip
# PyTorch's own scalar and vector loops disagree at NaN, or give a slope to a NaN.
OTHERWISE_AT_NAN = ("hardtanh", "relu6", "hardsigmoid", "hardswish")


@pytest.mark.parametrize("name", ONE)
def test_gradients_at_special_points(name: str, device: str) -> None:
    but = np.isnan(POINTS) if name in OTHERWISE_AT_NAN else False
    exact = name != "hardsigmoid"  # where PyTorch's 1/6 is a float32
    same(ONE[name], POINTS if exact else POINTS.astype(np.float32), device=device, but=but)


# Where the gradient is a sum: each term of it is infinite here, so that the sum may be NaN.
SUMS = ("silu", "mish", "gelu", "gelu by tanh", "logsigmoid")
ACTIVATIONS: dict[str, Function] = {
    **{
        name: functional(name)
        for name in (
            "leaky_relu", "elu", "celu", "selu", "silu", "softplus", "mish", "gelu", "hardtanh",
            "relu6", "hardsigmoid", "hardswish", "logsigmoid", "softsign", "tanhshrink", "relu",
            "hardshrink", "softshrink", "sigmoid", "tanh", "rrelu",
        )
    },
    "gelu by tanh": functional("gelu", approximate="tanh"),
    "threshold": functional("threshold", 0.5, 7.0),
    "softplus(2, 3)": functional("softplus", 2.0, 3.0),
    "prelu": lambda m, x: m.nn.functional.prelu(x, m.tensor(0.25, dtype=x.dtype, device=x.device)),
    "prelu(0)": lambda m, x: m.nn.functional.prelu(x, m.zeros((), dtype=x.dtype, device=x.device)),
    "glu": lambda m, x: m.nn.functional.glu(m.stack([x, x.flip(0)]), 0),
    "clamp": lambda m, x: x.clamp(-1, 1),
    "where": lambda m, x: m.where(x > 0, x * 2, x * 3),
}  # fmt: skip
BRANCHES = np.array(
    [-20, -6, -4, -3.5, -3, -2, -1, -0.75, -0.5, -0.25, 0, 0.25, 0.5, 1, 2, 3, 3.5, 6, 20, 21, 30.0]
)


@pytest.mark.parametrize("cotangent", [INF, -INF, NAN])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_cotangents_that_are_not_finite(name: str, cotangent: float, device: str) -> None:
    """No branch that is not taken makes a NaN of an infinity, nor hides a NaN."""
    function = ACTIVATIONS[name]
    expected = outcome(torch_module(), function, [BRANCHES], cotangent, "cpu")[1]
    got = outcome(lucid_gpu, function, [BRANCHES], cotangent, device)[1]
    if name in SUMS:
        assert (np.isfinite(got) == np.isfinite(expected)).all()
    else:
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("cotangent", [INF, -INF, NAN])
def test_hardswish_is_flat_on_its_left(cotangent: float, device: str) -> None:
    """The gradients are those of torch 2.13."""
    x = lucid_gpu.tensor([-6.0, -3.0, -2.0, 0.0, 3.0, 6.0], device=device).requires_grad_()
    for values in (x, x.detach().double().requires_grad_()):
        y = lucid_gpu.nn.functional.hardswish(values)
        y.backward(lucid_gpu.full_like(y, cotangent))
        expected = [0.0, 0.0, -cotangent, cotangent, cotangent, cotangent]
        np.testing.assert_array_equal(values.grad.cpu().numpy(), expected)


SMOOTH_AT_ZERO = {
    **{name: ONE[name] for name in ("logsigmoid", "softplus", "silu", "gelu", "mish", "x ** 3")},
    "logaddexp": lambda m, x: m.logaddexp(x, -x),
    "cross entropy of logits": lambda m, x: m.nn.functional.binary_cross_entropy_with_logits(
        x, m.full_like(x, 0.25), reduction="none"
    ),
    "cross entropy": lambda m, x: m.nn.functional.cross_entropy(
        m.stack([x, -x], 1), m.zeros(len(x), dtype=m.int64, device=x.device), reduction="none"
    ),
    "softmax": lambda m, x: m.softmax(m.stack([x, 0 * x]), 0)[0],
    "norm": lambda m, x: m.stack([x, m.ones_like(x)]).norm(2, 0),
}


@pytest.mark.parametrize("name", SMOOTH_AT_ZERO)
def test_second_derivatives_of_smooth_functions_at_zero(name: str, device: str) -> None:
    points = np.array([0.0, -0.0, 1.0, -2.0])
    agree(SMOOTH_AT_ZERO[name], points, device=device)
    x = lucid_gpu.tensor([0.0], dtype=lucid_gpu.float64, device=device, requires_grad=True)
    assert gradgradcheck(lambda t: SMOOTH_AT_ZERO[name](lucid_gpu, t), x)


# --- two and three operands -----------------------------------------------------------------------

TWO: dict[str, Function] = {
    **{
        name: lambda m, x, y, name=name: getattr(m, name)(x, y)
        for name in (
            "add", "sub", "mul", "div", "remainder", "fmod", "pow", "maximum", "minimum", "atan2",
            "hypot", "logaddexp", "copysign",
        )
    },
    "clamp by a tensor below": lambda m, x, y: m.clamp(x, min=y),
    "clamp by a tensor above": lambda m, x, y: m.clamp(x, max=y),
    "div rounded down": lambda m, x, y: m.div(x, y, rounding_mode="floor"),
    "div truncated": lambda m, x, y: m.div(x, y, rounding_mode="trunc"),
    "where": lambda m, x, y: m.where(x > y, x, y),
    "lerp a quarter": lambda m, x, y: m.lerp(x, y, 0.25),
    "lerp three quarters": lambda m, x, y: m.lerp(x, y, 0.75),
    "lerp all": lambda m, x, y: m.lerp(x, y, 1.0),
    "addcmul": lambda m, x, y: m.addcmul(x, x, y, value=0.5),
    "addcdiv": lambda m, x, y: m.addcdiv(x, x, y, value=0.5),
}  # fmt: skip


@pytest.mark.parametrize("name", TWO)
def test_gradients_at_special_pairs(name: str, device: str) -> None:
    a, b = (np.ascontiguousarray(m) for m in np.meshgrid(FEW, FEW, indexing="ij"))
    same(TWO[name], a, b, device=device)


def test_clamp_between_tensors_gives_the_gradient_to_pytorchs_choice(device: str) -> None:
    x, low, high = (np.ascontiguousarray(m) for m in np.meshgrid(FEW, FEW, FEW))
    for array in (x, low, high):  # at NaN PyTorch sends it to a bound that is not the value
        array[np.isnan(array)] = 0.25
    same(lambda m, x, a, b: m.clamp(x, a, b), x, low, high, device=device)
    nan = np.array([NAN, 1.0, 1.0]), np.array([0.0, NAN, 0.0]), np.array([2.0, 2.0, NAN])
    same(lambda m, x, a, b: m.clamp(x, a, b).detach() + 0 * b, *nan, device=device)


def test_pow_of_zero_has_the_gradients_of_pytorch(device: str) -> None:
    base = np.array([0.0, 0.0, 0.0, 0.0, 2.0, 0.0])
    exponent = np.array([-1.0, 0.0, 1.0, 0.5, 0.0, 2.0])
    same(lambda m, a, b: a**b, base, exponent, device=device)
    leaf = lucid_gpu.tensor([0.0, 1.0, -1.0], device=device, requires_grad=True)
    (0.0**leaf).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [0.0, 0.0, -INF]


# --- reductions -----------------------------------------------------------------------------------

MATRICES = {
    "plain": [[1.0, 2, 3], [4, 0, -1]],
    "zeros": [[0.0, 0, 0], [0, 0, 0]],
    "one zero": [[1.0, 0, 3], [4, 2, -1]],
    "two zeros": [[1.0, 0, 0], [4, 2, -1]],
    "ties": [[1.0, 3, 3], [3, 0, 3]],
    "equal": [[2.0, 2, 2], [2, 2, 2]],
    "nan": [[1.0, NAN, 3], [4, 0, NAN]],
    "inf": [[1.0, INF, 3], [4, INF, -INF]],
    "infinite rows": [[INF, INF, 3], [-INF, -INF, -INF]],
    "zeros of both signs": [[0.0, -0.0, 0], [-0.0, 0, 1]],
    "one element": [[2.0]],
}
SOME_OR_ALL: dict[str, Function] = {  # `d` is None, 0 or 1
    "sum": lambda m, x, d: x.sum() if d is None else x.sum(d),
    "mean": lambda m, x, d: x.mean() if d is None else x.mean(d),
    "prod": lambda m, x, d: x.prod() if d is None else x.prod(d),
    "amax": lambda m, x, d: m.amax(x, () if d is None else d),
    "amin": lambda m, x, d: m.amin(x, () if d is None else d),
    "max": lambda m, x, d: x.max() if d is None else x.max(d)[0],
    "min": lambda m, x, d: x.min() if d is None else x.min(d)[0],
    "median": lambda m, x, d: x.median() if d is None else x.median(d)[0],
    "nanmedian": lambda m, x, d: x.nanmedian() if d is None else x.nanmedian(d)[0],
    "var": lambda m, x, d: x.var() if d is None else x.var(d),
    "std": lambda m, x, d: x.std() if d is None else x.std(d),
    "biased std": lambda m, x, d: m.std(x, (0, 1) if d is None else d, unbiased=False),
    "logsumexp": lambda m, x, d: m.logsumexp(x, (0, 1) if d is None else d),
    **{
        f"norm {p}": lambda m, x, d, p=p: x.norm(p) if d is None else x.norm(p, d)
        for p in (0, 1, 2, 3, 0.5, -1, 1.5, INF, -INF)
    },
}
ALONG: dict[str, Function] = {
    "softmax": lambda m, x: m.softmax(x, 1),
    "log_softmax": lambda m, x: m.log_softmax(x, 0),
    "cumsum": lambda m, x: m.cumsum(x, 1) * m.cumsum(x, 0),
    "sort": lambda m, x: m.sort(x, 1)[0].cumsum(1),
    "sort down": lambda m, x: m.sort(x, 1, descending=True)[0].cumsum(1),
    "topk": lambda m, x: m.topk(x, 1, 1)[0],
    "l1_loss": lambda m, x: m.nn.functional.l1_loss(x, m.ones_like(x)),
    "cross_entropy": lambda m, x: m.nn.functional.cross_entropy(
        x, m.zeros(len(x), dtype=m.int64, device=x.device)
    ),
}


def _differs(name: str, matrix: str) -> bool:
    """Where PyTorch is not followed, because ours is the limit (or at least is no worse)."""
    if name == "prod":  # the product of the others; PyTorch divides the product by the element
        return matrix in ("nan", "inf", "infinite rows")
    if name in ("norm 0.5", "norm -1"):  # PyTorch: NaN at the zeros beside a NaN
        return matrix == "nan"
    if name in ("var", "std", "biased std"):  # PyTorch: an infinity beside an infinite element
        return matrix in ("inf", "infinite rows")
    return False


@pytest.mark.parametrize("dim", [None, 0, 1])
@pytest.mark.parametrize("name", SOME_OR_ALL)
def test_gradients_of_reductions_at_special_points(name: str, dim: Any, device: str) -> None:
    for label, rows in MATRICES.items():
        if not _differs(name, label):
            same(lambda m, x: SOME_OR_ALL[name](m, x, dim), np.array(rows), device=device)


@pytest.mark.parametrize("name", ALONG)
def test_gradients_along_a_dimension_at_special_points(name: str, device: str) -> None:
    for rows in MATRICES.values():
        same(ALONG[name], np.array(rows), device=device)


def test_ties_of_a_full_reduction_share_the_gradient_and_one_takes_it_along_a_dimension(
    device: str,
) -> None:
    def gradient(function: Function) -> Any:
        x = lucid_gpu.tensor([[1.0, 3.0, 3.0], [3.0, 0.0, 3.0]], device=device, requires_grad=True)
        function(x).sum().backward()
        assert x.grad is not None
        return x.grad.tolist()

    assert gradient(lambda x: x.max()) == [[0, 0.25, 0.25], [0.25, 0, 0.25]]
    assert gradient(lambda x: x.median()) == [[0, 0.25, 0.25], [0.25, 0, 0.25]]
    assert gradient(lambda x: x.max(1)[0]) == [[0, 1, 0], [1, 0, 0]]
    assert gradient(lambda x: x.amax(1)) == [[0, 0.5, 0.5], [0.5, 0, 0.5]]


# --- exponents that are roots ---------------------------------------------------------------------

# Values, first and second derivatives at these points, as PyTorch has them.
ROOT_POINTS = [-INF, -0.0, 0.0, 4.0]
AS_NUMBER = {
    0.5: [[NAN, -0.0, 0, 2], [NAN, -INF, INF, 0.25], [-0.0, -INF, -INF, -0.03125]],
    -0.5: [[NAN, -INF, INF, 0.5], [-0.0, -INF, -INF, -0.0625], [0, INF, INF, 0.0234375]],
    1.5: [[INF, 0, 0, 8], [NAN, -0.0, 0, 3], [NAN, -INF, INF, 0.375]],
}
AS_TENSOR = {
    0.5: [[INF, 0, 0, 2], [0, INF, INF, 0.25], [-0.0, -INF, -INF, -0.03125]],
    -0.5: [[0, INF, INF, 0.5], [-0.0, -INF, -INF, -0.0625], [0, INF, INF, 0.0234375]],
    1.5: [[INF, 0, 0, 8], [INF, 0, 0, 3], [0, INF, INF, 0.375]],
}
EXPONENT_SHAPES: dict[str, Any] = {
    "number": lambda m, n, x: n,
    "no dimensions": lambda m, n, x: m.tensor(n, dtype=x.dtype, device=x.device),
    "a float64": lambda m, n, x: m.tensor(n, dtype=m.float64, device=x.device),
    "one element": lambda m, n, x: m.tensor([n], dtype=x.dtype, device=x.device),
    "filled": lambda m, n, x: m.full((), n, dtype=x.dtype, device=x.device),
    "elements": lambda m, n, x: m.tensor([n] * 4, dtype=x.dtype, device=x.device),
    "one that requires grad": lambda m, n, x: m.tensor(
        [n] * 4, dtype=x.dtype, device=x.device
    ).requires_grad_()[:1],
}


def _of_root(m: Any, device: str, dtype: str, shape: str, exponent: float) -> list[str]:
    x = m.tensor(ROOT_POINTS, dtype=getattr(m, dtype), device=device).requires_grad_()
    y = x ** EXPONENT_SHAPES[shape](m, exponent, x)
    g, *_ = m.autograd.grad(y.sum(), x, create_graph=True)
    h, *_ = m.autograd.grad(g.sum(), x)
    return [repr(t.tolist()) for t in (y.reshape(4), g, h)]  # tells the signs of zeros


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("shape", EXPONENT_SHAPES)
def test_an_exponent_of_one_half_is_a_root_only_as_a_number(
    shape: str, dtype: str, device: str
) -> None:
    for exponent, expected in (AS_NUMBER if shape == "number" else AS_TENSOR).items():
        wanted = [repr([float(v) for v in row]) for row in expected]
        for m, where in modules(device):
            assert _of_root(m, where, dtype, shape, exponent) == wanted, (m.__name__, exponent)
        with lucid_gpu.fusion.eager():
            assert _of_root(lucid_gpu, device, dtype, shape, exponent) == wanted


def test_a_root_among_many_exponents_is_a_root(device: str) -> None:
    x = lucid_gpu.tensor([-INF, -0.0, 4.0], device=device)
    found = {n / 10: (x ** (n / 10)).tolist() for n in range(-21, 25, 2)}
    assert len(found) > 20  # so many that exponents are arguments of the kernel
    for exponent in (0.5, -0.5, 1.5):
        assert repr((x**exponent).tolist()) == repr(
            [float(v) for v in np.array(AS_NUMBER[exponent][0])[[0, 1, 3]]]
        )


# --- repeated positions ---------------------------------------------------------------------------

REPEATED: dict[str, Function] = {
    "index": lambda m, x, i: x[i],
    "index by two": lambda m, x, i: x[i, i % 2],
    "gather": lambda m, x, i: x.gather(0, m.stack([i, i, i], 1)),
    "take": lambda m, x, i: x.take(i),
    "take a matrix": lambda m, x, i: m.take(x, m.stack([i, i])),
    "index_select": lambda m, x, i: x.index_select(0, i),
    "embedding": lambda m, x, i: m.nn.functional.embedding(i, x),
    "index_put": lambda m, x, i: x.index_put((i,), x[0] * 2, accumulate=True),
    "index_put by two": lambda m, x, i: x.index_put((i, i), x[0, :1] * 2, accumulate=True),
    "index_add": lambda m, x, i: x.index_add(0, i, x[[0, 0, 0, 0]] * x[0]),
    "scatter_add": lambda m, x, i: x.scatter_add(0, m.stack([i, i, i], 1), x[[0, 1, 0, 1]] ** 2),
    "put": lambda m, x, i: m.Tensor.put(x, i, x[:, 0].take(i) * 3, accumulate=True),
    "take_along_dim": lambda m, x, i: m.take_along_dim(x, m.stack([i, i, i], 1), 0),
}


@pytest.mark.parametrize("name", REPEATED)
def test_repeated_positions_accumulate(name: str, device: str) -> None:
    x = np.arange(1.0, 10.0).reshape(3, 3)
    index = np.array([0, 2, 0, 0])
    same(lambda m, t: REPEATED[name](m, t, m.tensor(index, device=t.device)), x, device=device)


def _pools(name: str, *args: Any) -> Any:
    def pooled(m: Any, h: Any) -> Any:
        out = getattr(m.nn.functional, name)(h[None], *args)
        return h + out.sum()  # of h's shape

    return pooled


_FLAT: dict[str, Any] = {  # the first derivatives of these do not change from place to place
    "relu": lambda m, h: h.relu(),
    "relu in place": lambda m, h: m.nn.functional.relu(h * 1, inplace=True),
    "relu of tanh": lambda m, h: h.tanh().relu(),
    "relu times its operand": lambda m, h: h.relu() * h,
    "relu of a broadcast operand": lambda m, h: (h + h[0]).relu() + h.relu().sum(),
    "elu": lambda m, h: m.nn.functional.elu(h),
    "leaky_relu": lambda m, h: m.nn.functional.leaky_relu(h, 0.2),
    "leaky_relu of tanh": lambda m, h: m.nn.functional.leaky_relu(h.tanh()) * h,
    "leaky_relu of hardtanh": lambda m, h: m.nn.functional.leaky_relu(m.nn.functional.hardtanh(h)),
    "relu6": lambda m, h: m.nn.functional.relu6(h),
    "hardtanh": lambda m, h: m.nn.functional.hardtanh(h, -0.5, 0.7),
    "clamp": lambda m, h: h.clamp(-0.5, 0.7),
    "abs": lambda m, h: h.abs(),
    "hardshrink": lambda m, h: m.nn.functional.hardshrink(h),
    "softshrink": lambda m, h: m.nn.functional.softshrink(h),
    "threshold": lambda m, h: m.nn.functional.threshold(h, 0.1, 2.0),
    "rrelu": lambda m, h: m.nn.functional.rrelu(h),
    "prelu": lambda m, h: m.nn.functional.prelu(h, h[0, :1] * 0 + 0.3),
    "prelu of a constant slope": lambda m, h: m.nn.functional.prelu(h, h[0].detach()) * h,
    "floor": lambda m, h: h.floor() * h,
    "power": lambda m, h: (h**2).clamp(-1, 1),
    "where": lambda m, h: m.where(h > 0, h, 0.3 * h),
    "amax": lambda m, h: h + h.amax(1, keepdim=True),
    "maximum": lambda m, h: m.maximum(h, h.flip(0)),
    "norm of order 0": lambda m, h: h + m.linalg.vector_norm(h, 0),
    "nll_loss": lambda m, h: h + m.nn.functional.nll_loss(h, m.tensor([1] * 3, device=h.device)),
    "max_pool1d": _pools("max_pool1d", 2),
    "max_pool2d": _pools("max_pool2d", 2),
    "max_pool3d": lambda m, h: h + m.nn.functional.max_pool3d(h[None, None], (1, 2, 2)).sum(),
    "avg_pool1d": _pools("avg_pool1d", 2),
    "avg_pool2d": _pools("avg_pool2d", 2),
    "avg_pool3d": lambda m, h: h + m.nn.functional.avg_pool3d(h[None, None], (1, 2, 2)).sum(),
    "adaptive_avg_pool1d": _pools("adaptive_avg_pool1d", 3),
    "adaptive_avg_pool1d to one": _pools("adaptive_avg_pool1d", 1),
    "adaptive_max_pool1d": _pools("adaptive_max_pool1d", 3),
    "mirrored border": _pools("pad", (1, 1), "reflect"),
    "repeated border": _pools("pad", (1, 1), "replicate"),
    "periodic border": _pools("pad", (1, 1), "circular"),
    "interpolate": _pools("interpolate", 6, None, "area"),
}


def _three_derivatives(m: Any, where: str, function: Any, squared: bool, scale: float = 1) -> Any:
    """Of the input, weights and biases of a network: each None, or whether recorded, and values."""
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(shape) for shape in ((3, 4), (4, 4), (4,), (4, 4), (4,))]
    arrays[2][1] *= scale
    x, *weights = leaves = [m.tensor(a, device=where).requires_grad_() for a in arrays]
    h = function(m, (x @ weights[0] + weights[1]) * weights[1]) @ weights[2] + weights[3]
    total, found = ((h * h).sum() if squared else function(m, h).sum()), []
    for _ in range(3):
        gs = m.autograd.grad(total, leaves, create_graph=True, allow_unused=True)
        found += [g if g is None else ((g.detach() + 0).tolist(), g.requires_grad) for g in gs]
        rest = [g for g in gs if g is not None and g.requires_grad]
        if not rest:
            break
        total = sum((g * g.detach()).sum() for g in rest)
    return found


def _agree(ours: Any, theirs: Any) -> None:
    assert [g and g[1] for g in ours] == [g and g[1] for g in theirs]  # None or a bool
    for mine, wanted in zip(ours, theirs, strict=True):
        if wanted is not None:
            np.testing.assert_allclose(mine[0], wanted[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("name", _FLAT)
def test_derivatives_are_zeros_or_none_as_in_torch(name: str, squared: bool, device: str) -> None:
    theirs = _three_derivatives(torch_module(), "cpu", _FLAT[name], squared)
    _agree(_three_derivatives(lucid_gpu, device, _FLAT[name], squared), theirs)
    with lucid_gpu.fusion.eager():
        _agree(_three_derivatives(lucid_gpu, device, _FLAT[name], squared), theirs)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("name", ["relu", "leaky_relu", "hardtanh", "floor", "max_pool2d"])
def test_zeros_by_formula_times_infinity_are_nan_as_in_torch(name: str, device: str) -> None:
    theirs = _three_derivatives(torch_module(), "cpu", _FLAT[name], False, np.inf)
    assert any(np.isnan(g[0]).any() for g in theirs if g is not None)
    _agree(_three_derivatives(lucid_gpu, device, _FLAT[name], False, np.inf), theirs)
    with lucid_gpu.fusion.eager():
        _agree(_three_derivatives(lucid_gpu, device, _FLAT[name], False, np.inf), theirs)


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "hardtanh", "softshrink", "max_pool2d"])
def test_zeros_by_formula_under_saved_tensor_hooks(name: str, device: str) -> None:
    theirs = _three_derivatives(torch_module(), "cpu", _FLAT[name], True)
    with lucid_gpu.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        _agree(_three_derivatives(lucid_gpu, device, _FLAT[name], True), theirs)


@pytest.mark.parametrize("name", ["LeakyReLU", "Hardtanh", "PReLU", "ReLU6", "Softshrink"])
def test_biases_of_a_gradient_penalty_decay_as_in_torch(name: str, device: str) -> None:
    """Their gradient is zeros and not None, so that optimizers do not skip them."""

    def trained(m: Any, where: str) -> Any:
        nn, rng = m.nn, np.random.default_rng(0)
        net = nn.Sequential(nn.Linear(3, 4), getattr(nn, name)(), nn.Linear(4, 1)).double()
        with m.no_grad():
            for p in net.parameters():
                p.copy_(m.tensor(rng.standard_normal(tuple(p.shape))))
        net.to(where)
        opt = m.optim.AdamW(net.parameters(), 0.1, weight_decay=0.5)
        for _ in range(3):
            x = m.tensor(rng.standard_normal((5, 3)), device=where).requires_grad_()
            (g,) = m.autograd.grad(net(x).sum(), x, create_graph=True)
            opt.zero_grad()
            ((g.norm(2, 1) - 1) ** 2).mean().backward()
            opt.step()
        return [(p.grad is None, p.detach().tolist()) for p in net.parameters()]

    for (none, mine), (wanted_none, wanted) in zip(
        trained(lucid_gpu, device), trained(torch_module(), "cpu"), strict=True
    ):
        assert none == wanted_none
        np.testing.assert_allclose(mine, wanted, rtol=1e-9, atol=1e-9)


BESIDE_INFINITY: dict[str, tuple[Function, list[float]]] = {
    "logcumsumexp": (lambda m, x: x.logcumsumexp(0), [0.0, INF, 2.0, 1.0]),
    "logcumsumexp of two": (lambda m, x: x.logcumsumexp(0), [0.0, INF, INF, 1.0]),
    "quantile": (lambda m, x: x.quantile(0.3), [0.0, 2.0, -INF]),
    "quantile below": (lambda m, x: x.quantile(0.1), [0.0, 2.0, INF, -INF]),
    "median as a quantile": (lambda m, x: x.quantile(0.5, interpolation="midpoint"), [0.0, -INF]),
    "nanquantile": (lambda m, x: x.nanquantile(0.8), [0.0, 2.0, -INF, NAN]),
    "lgamma": (lambda m, x: x.lgamma(), [1e-320, -1e-320, 1e-310, -1e-200, 1e-150, 0.0, -0.0]),
}


@pytest.mark.parametrize("name", BESIDE_INFINITY)
def test_values_and_gradients_beside_infinities(name: str, device: str) -> None:
    function, points = BESIDE_INFINITY[name]
    same(function, np.array(points), device=device)


SMALL_SLOPES: dict[str, tuple[Function, Any]] = {
    "elu": (lambda m, x: m.nn.functional.elu(x, 2.0), lambda x: 2 * np.exp(x)),
    "celu": (lambda m, x: m.nn.functional.celu(x, 2.0), lambda x: np.exp(x / 2)),
    "bce of no": (
        lambda m, x: m.nn.functional.binary_cross_entropy_with_logits(
            x, m.zeros_like(x), reduction="sum"
        ),
        lambda x: 1 / (1 + np.exp(-x)),
    ),
    "weighted bce of yes": (
        lambda m, x: m.nn.functional.binary_cross_entropy_with_logits(
            -x, m.ones_like(x), pos_weight=m.full_like(x, 3.0), reduction="sum"
        ),
        lambda x: 3 / (1 + np.exp(-x)),
    ),
}


@pytest.mark.parametrize("name", SMALL_SLOPES)
def test_small_slopes_have_all_their_digits(name: str, device: str) -> None:
    function, slope = SMALL_SLOPES[name]
    points = np.array([-5.0, -10, -16, -20, -40, -60])
    x = lucid_gpu.tensor(points, dtype=lucid_gpu.float32, device=device).requires_grad_()
    function(lucid_gpu, x).sum().backward()
    np.testing.assert_allclose(array_of(x.grad), slope(points), rtol=1e-5)

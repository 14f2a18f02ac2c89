"""Compositions, operators and functions with options, compared with torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import agree, gives, modules, refuses, same_error, torch_module

RNG = np.random.default_rng(10)
X = RNG.uniform(-2.5, 2.5, (3, 4))
Y = RNG.uniform(0.3, 2, (3, 4))
Z = RNG.uniform(-1, 1, (4,))
EDGES = np.array([-7.0, -6.0, -3.0, -1.0, -0.0, 0.0, 1.0, 3.0, 6.0, 7.0, 25.0, -25.0])

COMPOSITIONS: dict[str, Any] = {
    "add alpha": lambda m, x, y, z: m.add(x, z, alpha=2.5),
    "sub alpha": lambda m, x, y, z: x.sub(y, alpha=-2),
    "div trunc": lambda m, x, y, z: m.div(x, y, rounding_mode="trunc"),
    "div floor": lambda m, x, y, z: x.div(y, rounding_mode="floor"),
    "clamp": lambda m, x, y, z: x.clamp(-1, 1.5),
    "clamp below": lambda m, x, y, z: m.clamp(x, min=0.5),
    "clamp above": lambda m, x, y, z: x.clamp(max=0.5),
    "clamp by tensors": lambda m, x, y, z: x.clamp(z, y),
    "clip": lambda m, x, y, z: m.clip(x, -1, 1),
    "lerp": lambda m, x, y, z: m.lerp(x, y, 0.3),
    "lerp by a tensor": lambda m, x, y, z: x.lerp(y, z),
    "addcmul": lambda m, x, y, z: m.addcmul(x, y, z, value=0.5),
    "addcdiv": lambda m, x, y, z: x.addcdiv(z, y, value=-2),
    "masked_fill": lambda m, x, y, z: x.masked_fill(x > y, 5),
    "where": lambda m, x, y, z: m.where(x > z, x * y, z),
    "where method": lambda m, x, y, z: x.where(x > 0, y),
    "nan_to_num": lambda m, x, y, z: (x / (x > 0)).nan_to_num(1, 2, 3),
    "nan_to_num_ of complex": lambda m, x, y, z: m.view_as_real((x * (2 + 1j)).nan_to_num_()),
    "frac": lambda m, x, y, z: x.frac(),
    "rad2deg": lambda m, x, y, z: m.rad2deg(x),
    "deg2rad": lambda m, x, y, z: m.deg2rad(x),
    "hypot": lambda m, x, y, z: m.hypot(x, y),
    "powers": lambda m, x, y, z: x**2 + x**3 + y**0.5 + y**-1 + y**-0.5 + y**-2 + y**1.7,
    "power of a number": lambda m, x, y, z: 2**x,
    "power of a tensor": lambda m, x, y, z: y**x,
    "reflected": lambda m, x, y, z: (2 - x) / (1 / y),
    "abs of a difference": lambda m, x, y, z: abs(x - z),
    "negation": lambda m, x, y, z: -x + +y,
    "a chain": lambda m, x, y, z: (x * y + z).tanh().exp() / (1 + y.sqrt()),
    "round to places": lambda m, x, y, z: x.round(decimals=1) + m.round(x * 99, decimals=-1),
}


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_compositions_agree_with_torch(name: str, device: str) -> None:
    agree(COMPOSITIONS[name], X, Y, Z, device=device)


def test_remainders_agree_with_torch(device: str) -> None:
    """Torch has no second gradients of them."""
    agree(lambda m, x, y: x % y + m.fmod(x, y), X, Y, device=device, order=1)
    agree(lambda m, x: x % 0.7 + m.fmod(x, 0.7) + m.remainder(x, -0.7), X, device=device, order=1)


ACTIVATIONS: dict[str, dict[str, Any]] = {
    "leaky_relu": {"negative_slope": 0.2},
    "elu": {"alpha": 1.5},
    "celu": {"alpha": 1.5},
    "selu": {},
    "silu": {},
    "softplus": {"beta": 2.0, "threshold": 10.0},
    "mish": {},
    "gelu": {"approximate": "tanh"},
    "hardtanh": {"min_val": -2.0, "max_val": 0.5},
    "relu6": {},
    "hardsigmoid": {},
    "hardswish": {},
    "logsigmoid": {},
    "softsign": {},
    "tanhshrink": {},
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_agree_with_torch(name: str, device: str) -> None:
    def call(m: Any, t: Any, **options: Any) -> Any:
        return getattr(m.nn.functional, name)(t, **options)

    for options in ({}, ACTIVATIONS[name]):
        order = 1 if name == "hardsigmoid" else 2  # torch has no more
        agree(lambda m, t, o=options: call(m, t, **o), X, device=device, order=order)
    agree(call, EDGES, device=device, order=1)
    agree(call, EDGES * 20, device=device, order=1)


BRANCHES = ("hardsigmoid", "hardswish", "hardtanh", "relu", "relu6", "softshrink", "hardshrink")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", BRANCHES)
def test_16_bit_numbers_take_the_branches_of_torch(name: str, dtype: str, device: str) -> None:
    """Every finite number of the type: a sum that is rounded may lie on another side."""
    torch = torch_module()
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    x = bits.view(getattr(torch, dtype)).double()
    x = x[x.isfinite()]
    gradients = []
    for m, where in ((lucid_gpu, device), (torch, "cpu")):
        leaf = m.tensor(x.tolist(), dtype=m.float64, device=where).to(getattr(m, dtype))
        leaf = leaf.detach().requires_grad_()
        value = getattr(m.nn.functional, name)(leaf)
        (g,) = m.autograd.grad(value, leaf, m.ones_like(leaf))
        gradients.append(np.array(g.tolist()))
    mine, theirs = gradients
    np.testing.assert_allclose(mine, theirs, rtol=2**-7, atol=2**-12)


def test_softplus_without_a_slope(device: str) -> None:
    for threshold in (20.0, -1.0):
        agree(
            lambda m, x, t=threshold: m.nn.functional.softplus(x, 0.0, t),
            X, device=device, order=1,
        )  # fmt: skip


OPERATORS: dict[str, Any] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "**": lambda a, b: a**b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_of_integers_agree_with_torch(name: str, device: str) -> None:
    torch = torch_module()
    for left, right in (
        (lambda m, d: m.tensor([7, -7, 3], device=d), lambda m, d: m.tensor([2, 2, 3], device=d)),
        (lambda m, d: m.tensor([7, -7, 3], device=d), lambda m, d: 2),
        (lambda m, d: 7, lambda m, d: m.tensor([2, 3, 1], device=d)),
        (lambda m, d: m.tensor([[1], [2]], device=d), lambda m, d: m.tensor([1, 2], device=d)),
    ):
        got = OPERATORS[name](left(lucid_gpu, device), right(lucid_gpu, device))
        expected = OPERATORS[name](left(torch, "cpu"), right(torch, "cpu"))
        assert got.dtype.name == str(expected.dtype).split(".")[1]
        np.testing.assert_allclose(got.tolist(), expected.tolist(), rtol=1e-6)


@pytest.mark.parametrize("name", ["+=", "-=", "*=", "/=", "//=", "%=", "**=", "&=", "|=", "^="])
def test_in_place_operators_agree_with_torch(name: str, device: str) -> None:
    torch = torch_module()
    results = []
    for module, where in ((lucid_gpu, device), (torch, "cpu")):
        integer = name in ("&=", "|=", "^=")
        x = module.tensor([6, 5, 9] if integer else [6.0, -5.0, 9.5], device=where)
        same = x
        exec(f"x {name} 3", {}, scope := {"x": x})
        assert scope["x"] is same
        exec(f"x {name} y", {}, {"x": x, "y": module.tensor([1, 2, 3], device=where)})
        results.append(x.tolist())
    assert results[0] == pytest.approx(results[1], rel=1e-6)


def test_numpy_arrays_and_numbers_are_operands(device: str) -> None:
    t = lucid_gpu.tensor([1.0, 2.0], device=device)
    if device == "cpu":
        array = np.array([3.0, 4.0], np.float32)
        assert (t + array).tolist() == (array + t).tolist() == [4.0, 6.0]
    assert (t * np.float32(2)).tolist() == (np.float64(2) * t).tolist() == [2.0, 4.0]
    assert (t + np.int64(1)).dtype is lucid_gpu.float32


def test_out_takes_the_result(device: str) -> None:
    a, out = lucid_gpu.ones(3, device=device), lucid_gpu.zeros(3, device=device)
    view = out[1:]
    assert lucid_gpu.exp(a * 0, out=out) is out
    assert lucid_gpu.add(out, 1, out=out) is out
    assert (out.tolist(), view.tolist()) == ([2.0] * 3, [2.0] * 2)
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        lucid_gpu.exp(lucid_gpu.ones(3, device=device, requires_grad=True), out=out)


def test_aliases_are_the_same_functions() -> None:
    t = lucid_gpu.tensor([0.5])
    for alias, name in (("arcsin", "asin"), ("negative", "neg"), ("absolute", "abs")):
        assert getattr(lucid_gpu, alias)(t).item() == getattr(t, name)().item()
    assert lucid_gpu.multiply(t, 2).item() == t.multiply(2).item() == 1.0


def test_values_far_out_neither_overflow_nor_vanish(device: str) -> None:
    t = lucid_gpu.tensor([-1000.0, -90.0, 90.0, 1000.0], device=device, requires_grad=True)
    from lucid_gpu.nn import functional as F

    for function in (F.softplus, F.silu, F.logsigmoid, F.elu, F.mish, lucid_gpu.sigmoid, F.gelu):
        y = function(t)
        (g,) = lucid_gpu.autograd.grad(y.sum(), t)
        assert y.isfinite().all() and g.isfinite().all(), function.__name__


MISUSE: dict[str, tuple[Any, str]] = {
    "shapes": (
        lambda m: m.ones(2) + m.ones(3),
        "The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 0",
    ),
    "shapes of higher rank": (
        lambda m: m.ones(2, 4) * m.ones(3, 1),
        "The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 0",
    ),
    "a string": (lambda m: m.ones(2) + "a", ""),
    "None": (lambda m: m.ones(2) * None, ""),
    "neg of bools": (lambda m: -m.ones(2, dtype=m.bool), "Negation, the `-` operator, on a bool"),
    "difference of bools": (
        lambda m: m.ones(2, dtype=m.bool) - m.ones(2, dtype=m.bool),
        "Subtraction, the `-` operator, with two bool tensors is not supported",
    ),
    "bitwise floats": (lambda m: m.ones(2) & m.ones(2), "not implemented for"),
    "order of complex": (lambda m: m.ones(2, dtype=m.complex64) < 1, ""),
    "clamp without limits": (lambda m: m.ones(2).clamp(), "At least one of 'min' or 'max' must"),
    "unknown rounding": (
        lambda m: m.div(m.ones(1), 2, rounding_mode="up"),
        "one of None, 'trunc', or 'floor' but found 'up'",
    ),
    "unknown gelu": (lambda m: m.nn.functional.gelu(m.ones(1), approximate="x"), "none or tanh"),
    "in place on a leaf": (
        lambda m: m.ones(2, requires_grad=True).add_(1),
        "a leaf Variable that requires grad is being used in an in-place operation",
    ),
    "in place to another shape": (
        lambda m: m.ones(2).add_(m.ones(3, 2)),
        "output with shape [2] doesn't match the broadcast shape [3, 2]",
    ),
    "in place to another type": (
        lambda m: m.ones(2, dtype=m.int64).add_(1.5),
        "result type",
    ),
    "in place division of integers": (lambda m: m.ones(2, dtype=m.int64).div_(2), "result type"),
    "too few operands": (lambda m: m.exp(), "exp()"),
    "numbers only": (
        lambda m: m.exp(2.0),
        "argument 'input' (position 1) must be Tensor, not float",
    ),
    "a list as a factor": (lambda m: m.ones(2).mul([1, 2]), "must be Tensor or a number, not list"),
    "nothing to compare with": (lambda m: m.ones(2).eq(None), "eq(): argument must be Tensor or"),
    "a string as exponent": (lambda m: m.ones(2).pow("a"), "not str"),
    "a string among numbers": (
        lambda m: "a" in m.ones(2),
        "__contains__ only supports Tensor or s",
    ),
    "a number as condition": (lambda m: m.where(0, m.ones(2), 1), "where()"),
    "a bound out of range": (lambda m: m.ones(2).byte().clamp(-1, 300), "without overflow"),
    "places of integers": (lambda m: m.tensor([12]).round(decimals=1), "not implemented"),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_in_torch(name: str) -> None:
    function, words = MISUSE[name]
    same_error(function, words)


FACTORS: dict[str, Any] = {
    "add": lambda m, x, v: m.add(x, x, alpha=v),
    "add a number": lambda m, x, v: m.add(x, 1, alpha=v),
    "sub": lambda m, x, v: x.sub(x, alpha=v),
    "in place": lambda m, x, v: x.add_(x, alpha=v),
    "addcmul": lambda m, x, v: m.addcmul(x, x, x, value=v),
    "addmm": lambda m, x, v: m.addmm(x, x[:, None], x[None], alpha=v),
    "addmv": lambda m, x, v: m.addmv(x, x[:, None] * x, x, beta=v),
    "addr": lambda m, x, v: m.addr(x[:, None], x, x, alpha=v),
    "baddbmm": lambda m, x, v: m.baddbmm(x[None, None], x[None, None, :1], x[None, None], alpha=v),
    "index_add": lambda m, x, v: x.index_add(0, m.tensor([0, 1], device=x.device), x, alpha=v),
    "threshold": lambda m, x, v: m.threshold(x, 2, v),
    "pad": lambda m, x, v: m.nn.functional.pad(x, (1, 1), value=v),
    "linspace": lambda m, x, v: m.linspace(0, v, 3, dtype=x.dtype),
}


@pytest.mark.parametrize("name", FACTORS)
def test_factors_that_a_type_of_integers_does_not_hold(name: str, device: str) -> None:
    def scenario(m: Any, where: str, d: str, value: int) -> Any:
        return FACTORS[name](m, m.tensor([1, 3], dtype=getattr(m, d), device=where), value)

    for d, value in (("int8", 300), ("uint8", 256), ("int32", 2**40)):
        words = f"type {'int' if d == 'int32' else d + '_t'} without overflow"
        refuses(RuntimeError, words, lambda m, w, d=d, v=value: scenario(m, w, d, v), device)
    held = -100 if name != "linspace" else 100
    ours = np.array([1, 3], np.int8)
    agree(lambda m, x: FACTORS[name](m, x, held), ours, device=device, order=0)


@pytest.mark.parametrize("divide", ["remainder", "fmod", "floor_divide", "floor_divide_"])
def test_a_divisor_is_of_the_dividends_type(divide: str) -> None:
    for d, zero in (("int8", 256), ("uint8", -512), ("int32", 2**32)):
        same_error(
            lambda m, d=d, z=zero: getattr(m.tensor([5, 7], dtype=getattr(m, d)), divide)(z),
            "ZeroDivisionError",
        )


@pytest.mark.parametrize(
    "divide",
    [
        lambda m, x, y: x // y,
        lambda m, x, y: x % y,
        lambda m, x, y: m.fmod(x, y),
        lambda m, x, y: m.div(x, y, rounding_mode="floor"),
        lambda m, x, y: m.div(x, y, rounding_mode="trunc"),
        lambda m, x, y: x.floor_divide_(y),
        lambda m, x, y: x.remainder(y),
        lambda m, x, y: 7 // (x * 0),
        lambda m, x, y: 7 % (x * 0),
    ],
)
def test_integers_divided_by_zero_raise_on_their_line(divide: Any) -> None:
    for zero in (lambda m: 0, lambda m: m.tensor([3, 0])):
        same_error(lambda m, z=zero: divide(m, m.tensor([5, -5]), z(m)), "ZeroDivisionError")
    kept = lucid_gpu.tensor([5, -5])
    with pytest.raises(RuntimeError):
        kept //= 0
    assert kept.tolist() == [5, -5]


def test_floats_divided_by_zero_do_not_raise() -> None:
    x = lucid_gpu.tensor([5.0, -5.0])
    assert (x // 0).tolist() == [math.inf, -math.inf]
    assert (lucid_gpu.tensor([5, -5]) // 0.0).tolist() == [math.inf, -math.inf]
    assert (lucid_gpu.tensor([5, 6]) // lucid_gpu.tensor([2, 4])).tolist() == [2, 1]


def test_negative_powers_of_integers(device: str) -> None:
    same_error(lambda m: m.tensor([2]) ** -1, "Integers to negative integer powers are not allowed")
    base = np.array([-2, -1, -1, 1, 2, 3, 5])
    exponent = np.array([-1, -3, -2, -1, -2, 2, 0])
    agree(lambda m, a, b: a**b, base, exponent, device=device)


def test_a_condition_is_boolean() -> None:
    same_error(
        lambda m: m.where(m.ones(2), 1, 2),
        "where expected condition to be a boolean tensor, but got a tensor with dtype",
    )


def test_numbers_and_weights_are_of_the_results_type(device):
    def whole(m, where):
        x = m.tensor([5, 7], device=where)
        return [m.addcmul(x, x, x, value=v) for v in (0.5, 2.7)]

    gives([[5, 7], [55, 105]], whole, device)
    gives([2.0], lambda m, w: m.lerp(m.ones(1, device=w), m.ones(1, device=w) * 3,
                                     m.tensor(0.5, dtype=m.float64, device=w)), device)  # fmt: skip
    refuses(RuntimeError, "expected", lambda m, w: m.lerp(
        m.ones(1, device=w), m.ones(1, device=w), m.ones(1, dtype=m.float64, device=w)
    ), device)  # fmt: skip


# --- what torch 2.13 gives for odd numbers --------------------------------------------------------

BOOL_ALPHA = "Boolean alpha only supported for Boolean results."
FLOAT_ALPHA = "For integral input tensors, argument alpha must not be a floating point number."
COMPLEX_ALPHA = "For non-complex input tensors, argument alpha must not be a complex number."
KINDS: dict[str, Callable[[Any, str], Any]] = {
    "float": lambda m, where: m.tensor([1.0, 2.0], device=where),
    "int": lambda m, where: m.tensor([1, 2], device=where),
    "bool": lambda m, where: m.tensor([True, False], device=where),
}


@pytest.mark.parametrize("form", ["add", "add_", "sub", "sub_"])
@pytest.mark.parametrize(
    ("kind", "alpha", "words"),
    [
        ("float", True, BOOL_ALPHA),
        ("float", False, BOOL_ALPHA),
        ("int", True, BOOL_ALPHA),
        ("int", 1.0, FLOAT_ALPHA),
        ("int", np.float32(2.5), FLOAT_ALPHA),
        ("int", np.True_, FLOAT_ALPHA),
        ("int", 1j, FLOAT_ALPHA),
        ("float", 1j, COMPLEX_ALPHA),
    ],
)
def test_an_alpha_that_does_not_fit(
    form: str, kind: str, alpha: Any, words: str, device: str
) -> None:
    def scenario(module: Any, where: str) -> Any:
        x, y = (KINDS[kind](module, where) for _ in range(2))
        return getattr(x, form)(y, alpha=alpha)

    refuses(RuntimeError, words, scenario, device)


@pytest.mark.parametrize(
    ("kind", "other", "alpha", "expected"),
    [
        ("float", "float", np.True_, [2.0, 4.0]),
        ("float", "float", np.float32(2.5), [3.5, 7.0]),
        ("int", "int", np.int64(2), [3, 6]),
        ("int", "bool", 3, [4, 2]),
        ("bool", "bool", True, [True, False]),
        ("bool", "bool", False, [True, False]),
        ("bool", "bool", 2, [True, False]),
        ("float", "int", 2.5, [3.5, 7.0]),
    ],
)
def test_an_alpha_that_fits(kind: str, other: str, alpha: Any, expected: Any, device: str) -> None:
    gives(
        expected,
        lambda m, w: m.add(KINDS[kind](m, w), KINDS[other](m, w), alpha=alpha),
        device,
    )


@pytest.mark.parametrize(
    ("kind", "other", "alpha", "expected"),
    [
        ("int32", "uint8", 2, [401, 1]),
        ("float32", "uint8", -1, [-199.0, 1.0]),
        ("uint8", "bool", 2, [3, 1]),
        ("float16", "int32", 0.5, [101.0, 1.0]),
        ("float16", "bool", 1.0, [2.0, 1.0]),
    ],
)
@pytest.mark.parametrize("form", ["add", "add_"])
def test_an_alpha_multiplies_in_the_type_of_the_sum(
    form: str, kind: str, other: str, alpha: Any, expected: Any, device: str
) -> None:
    def scenario(module: Any, where: str) -> Any:
        x = module.tensor([1, 1], dtype=getattr(module, kind), device=where)
        y = module.tensor([200, 0], dtype=getattr(module, other), device=where)
        result = getattr(x, form)(y, alpha=alpha)
        assert result.dtype is getattr(module, kind)
        return result

    gives(expected, scenario, device)


def test_an_alpha_beside_a_number(device: str) -> None:
    gives([5, 4], lambda m, w: m.add(KINDS["bool"](m, w), 2, alpha=2), device)
    gives([True, False], lambda m, w: m.add(KINDS["bool"](m, w), True, alpha=False), device)
    refuses(
        RuntimeError,
        "with a bool tensor is not supported",
        lambda m, w: m.sub(KINDS["float"](m, w), True, alpha=2),
        device,
    )


def test_an_alpha_that_is_a_tensor(device: str) -> None:
    gives([3, 6], lambda m, w: m.add(*[KINDS["int"](m, w)] * 2, alpha=m.tensor(2)), device)


def test_numpys_bools_are_numbers_to_a_difference(device: str) -> None:
    def scenario(module: Any, where: str) -> Any:
        x = KINDS["float"](module, where)
        y = x.clone()
        y -= np.True_
        return [x - np.True_, np.True_ - x, x - np.False_, y]

    gives([[0.0, 1.0], [0.0, -1.0], [1.0, 2.0], [0.0, 1.0]], scenario, device)
    words = "with a bool tensor is not supported"
    refuses(RuntimeError, words, lambda m, w: KINDS["float"](m, w) - True, device)
    refuses(RuntimeError, words, lambda m, w: KINDS["bool"](m, w) - np.True_, device)


ODD = (0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 5.0, math.inf, -math.inf, math.nan)


def _remainder(a: float, b: float) -> float:
    """Of the divisor's sign, but a zero of the dividend's."""
    if b == 0 or math.isinf(a):
        return math.nan
    rest = math.fmod(a, b)
    return rest + b if rest and (rest < 0) != (b < 0) else rest


def _fmod(a: float, b: float) -> float:
    return math.nan if b == 0 or math.isinf(a) else math.fmod(a, b)


def _same_with_signs(found: Any, expected: Any) -> None:
    np.testing.assert_array_equal(found, expected)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[numbers], np.signbit(expected)[numbers])


@pytest.mark.parametrize("d", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", ["remainder", "fmod", "floor_divide"])
def test_signs_of_zeros_in_divisions(name: str, d: str, device: str) -> None:
    pairs = [(a, b) for a in ODD for b in ODD]
    results = []
    for module, where in modules(device):
        kind = getattr(module, d)
        a, b = (module.tensor(v, dtype=kind, device=where) for v in zip(*pairs, strict=True))
        op = getattr(module, name)
        rows = [op(a, b), getattr(a.clone(), f"{name}_")(b)]
        column = module.tensor(ODD, dtype=kind, device=where)
        rows.append(module.stack([op(column, v) for v in ODD], 1).reshape(-1))
        if name == "remainder":  # the others take no number first
            rows.append(module.stack([op(v, column) for v in ODD]).reshape(-1))
        results.append([np.array(r.tolist()) for r in rows])
    rule = {"remainder": _remainder, "fmod": _fmod}.get(name)
    for row in results[0]:
        _same_with_signs(row, results[-1][0])
        if rule is not None:
            _same_with_signs(row, np.array([rule(a, b) for a, b in pairs]))


@pytest.mark.parametrize(
    ("name", "operands", "value", "expected"),
    [
        ("addcmul", (1.5, 3e38, 1e-30), 2.0, math.inf),
        ("addcmul", (1.5, 3e38, 3e38), 0.0, 1.5),
        ("addcmul", (0.0, 1e-30, 1e-30), 1e30, 1e-30),
        ("addcdiv", (1.5, 3e38, 3e38), 2.0, math.inf),
        ("addcdiv", (1.5, 3e38, 1e-30), 0.0, 1.5),
    ],
)
def test_the_number_goes_to_the_first_factor(
    name: str, operands: Any, value: float, expected: float, device: str
) -> None:
    def scenario(module: Any, where: str) -> Any:
        x, a, b = (module.full((8,), v, device=where) for v in operands)
        first = getattr(module, name)(x, a, b, value=value)
        second = getattr(x, f"{name}_")(a, b, value=value)
        return [np.allclose(t.tolist(), expected, rtol=1e-5, atol=0) for t in (first, second)]

    gives([True, True], scenario, device)


@pytest.mark.parametrize("d", ["float16", "bfloat16"])
def test_numbers_are_compared_in_the_precision_of_the_tensor(d: str, device: str) -> None:
    def scenario(module: Any, where: str) -> Any:
        x = module.tensor([0.1, 0.2, 0.3, 1.0], dtype=getattr(module, d), device=where)
        y = x.clone().requires_grad_()
        functional = module.nn.functional
        (slope,) = module.autograd.grad(functional.hardshrink(y, 0.3).sum(), y)
        bounds = [x == 0.3, x != 0.3, x < 0.3, x <= 0.1, x > 0.1, x >= 0.3, x.eq(0.1), x == 0.1]
        bounds += [x.clamp(0.3) == 0.3, x.clamp(max=0.3) == 0.3, x.clamp_min(0.2) <= 0.2]
        shrunk = functional.hardshrink(x, 0.3), functional.threshold(x, 0.3, 5.0), slope
        return [t.tolist() for t in (*bounds, *shrunk, functional.softplus(x, 1, 0.3)[2])]

    torch = torch_module()
    gives(scenario(torch, "cpu"), scenario, device)


@pytest.mark.parametrize("d", ["complex64", "complex128"])
def test_nan_to_num_of_complex_numbers_is_that_of_their_parts(d: str, device: str) -> None:
    nan, inf = float("nan"), float("inf")
    numbers = [
        complex(nan, 2),
        complex(1, nan),
        complex(inf, -inf),
        complex(-inf, 3),
        complex(4, 5),
    ]

    def scenario(module: Any, where: str) -> Any:
        x = module.tensor(numbers, dtype=getattr(module, d), device=where)
        found = module.nan_to_num(x), module.nan_to_num(x, 1.0, inf, 7.0)
        return [f.tolist() for f in found]

    torch = torch_module()
    gives(scenario(torch, "cpu"), scenario, device)


@pytest.mark.parametrize(
    ("name", "role", "expected"),
    [
        ("mul_", "other", [2.0, 6.0]), ("pow_", "exponent", [1.0, 9.0]),
        ("lt_", "other", [1.0, 0.0]), ("clamp_min", "min", [2.0, 3.0]),
        ("clamp_min_", "min", [2.0, 3.0]), ("clamp_max", "max", [1.0, 2.0]),
        ("clamp_max_", "max", [1.0, 2.0]),
    ],
)  # fmt: skip
def test_the_second_operand_may_be_named(name: str, role: str, expected: list[float]) -> None:
    def scenario(m: Any, device: str) -> Any:
        return getattr(m.tensor([1.0, 3.0]), name)(**{role: m.tensor([2.0, 2.0])})

    gives(expected, scenario)


def test_results_that_out_converts_and_a_nan_of_none() -> None:
    def scenario(m: Any, device: str) -> Any:
        x, one = m.tensor([1.0, 3.0]), m.zeros((), dtype=m.float64)
        largest = m.max(x, x.flip(0), out=m.zeros(2, dtype=m.float64))
        return largest, m.min(x, out=one), m.nan_to_num(x * float("nan"), None)

    gives([[3.0, 3.0], 1.0, [0.0, 0.0]], scenario)


TWO_NUMBERS = {
    "add": lambda m: [m.add(3, 2), m.add(1, 2.5, alpha=2), m.add(True, 2)],
    "sub": lambda m: [m.sub(3, 2.5), m.subtract(3, 1)],
    "mul": lambda m: [m.mul(3, 2), m.mul(1j, 2), m.multiply(True, True)],
    "div": lambda m: [m.div(3, 2), m.true_divide(3.0, 4), m.div(1, 0)],
    "rounded": lambda m: [m.div(-7, 2, rounding_mode=mode) for mode in ("trunc", "floor")],
    "floor_divide": lambda m: [m.floor_divide(-7, 2), m.floor_divide(-3.5, 2)],
    "old names": lambda m: [m.ones(2).__div__(4), m.ones(2).__rdiv__(4), m.ones(2).__idiv__(4)],
}


@pytest.mark.parametrize("name", TWO_NUMBERS)
def test_functions_of_two_numbers(name: str) -> None:
    for ours, theirs in zip(TWO_NUMBERS[name](lucid_gpu), TWO_NUMBERS[name](torch_module())):
        assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
        assert ours.tolist() == theirs.tolist()


def _zero(m: Any) -> Any:
    return m.zeros(1, dtype=m.int64)


BY_ZERO = {
    "floor_divide": lambda m: m.floor_divide(_zero(m), _zero(m), out=_zero(m)),
    "floor_divide of a number": lambda m: m.floor_divide(3, _zero(m)),
    "floor_divide of numbers": lambda m: m.floor_divide(3, 0),
    "remainder": lambda m: m.remainder(_zero(m), 0, out=_zero(m)),
    "remainder of a number": lambda m: m.remainder(3, _zero(m)),
    "fmod": lambda m: m.fmod(_zero(m), _zero(m), out=_zero(m)),
}


@pytest.mark.parametrize("name", BY_ZERO)
def test_integers_are_not_divided_by_zero(name: str) -> None:
    same_error(BY_ZERO[name], "ZeroDivisionError")


KINDS_OF_INTEGERS = ["bool", "uint8", "int8", "int16", "int32", "int64"]
WHOLE_AND_OTHER = [None, -1, -1000, 2, 300, 2.5, -1.5, True, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("name", KINDS_OF_INTEGERS)
def test_integers_between_bounds_of_all_kinds(name, device):
    """Two bounds have one type with the input, be they whole or not; or both libraries refuse."""
    torch = torch_module()
    values = [0, 2, 128, 255] if name == "uint8" else [0, 1, 2, 100]
    for low in WHOLE_AND_OTHER:
        for high in WHOLE_AND_OTHER:
            for op in ("clamp", "clip", "clamp_"):
                found = []
                for m, where in ((torch, "cpu"), (lucid_gpu, device)):
                    x = m.tensor(values, dtype=getattr(m, name), device=where)
                    try:
                        y = getattr(x, op)(low, high)
                    except (RuntimeError, NotImplementedError) as error:
                        found.append(type(error).__mro__[-4:])
                    else:
                        found.append((str(y.dtype).rpartition(".")[2], str(y.tolist())))
                assert found[0] == found[1], (op, low, high)

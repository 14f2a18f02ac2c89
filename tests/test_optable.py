"""Every row of the op table: its values, its gradients, every layout and type.

Values are compared with Python's own mathematics, and where PyTorch is installed with PyTorch.
"""

from __future__ import annotations

import cmath
import math
import warnings
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradcheck, gradgradcheck
from lucid_gpu.fusion.optable import NONE, PLANNED_AS, TABLE, ZERO, Op
from lucid_gpu.tensor import apply


def _scipy(name: str, *numbers: float) -> Any:
    special = pytest.importorskip("scipy.special", reason="SciPy says what the row means")
    return getattr(special, name)(*numbers)


def _gelu_tanh(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _gelu_tanh_slope(x: float) -> float:
    t = math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    steep = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * steep


def function_of(module: Any, name: str) -> Any:
    """A row as users of a module call it."""
    if name == "trigamma":
        return lambda x: module.polygamma(1, x)
    if name == "gelu_tanh":
        return lambda x: module.nn.functional.gelu(x, approximate="tanh")
    where = [m for m in (module, module.special, module.nn.functional) if hasattr(m, name)]
    return getattr(where[0], name)


# What each row means, one element at a time, in double precision.
MEANING: dict[str, Callable[..., Any]] = {
    "neg": lambda x: -x,
    "abs": abs,
    "sign": lambda x: (x > 0) - (x < 0),
    "sgn": lambda x: (x > 0) - (x < 0),
    "conj_physical": lambda x: x,
    "exp": math.exp,
    "exp2": lambda x: 2.0**x,
    "expm1": math.expm1,
    "grown": math.expm1,
    "log": math.log,
    "log2": math.log2,
    "log10": math.log10,
    "log1p": math.log1p,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "square": lambda x: x * x,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
    "sinh": math.sinh,
    "cosh": math.cosh,
    "tanh": math.tanh,
    "asinh": math.asinh,
    "acosh": math.acosh,
    "atanh": math.atanh,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "erf": math.erf,
    "erfc": math.erfc,
    "bent": lambda x, bound: x * x / 2 if abs(x) < bound else bound * (abs(x) - bound / 2),
    "raised": max,
    "capped": min,
    "entr": lambda x: -x * math.log(x),
    "erfcx": lambda x: math.exp(x * x) * math.erfc(x),
    "erfinv": lambda y: _scipy("erfinv", y),
    "i0": lambda x: _scipy("i0", x),
    "i0e": lambda x: _scipy("i0e", x),
    "i1": lambda x: _scipy("i1", x),
    "i1e": lambda x: _scipy("i1e", x),
    "ndtri": lambda p: _scipy("ndtri", p),
    "gelu_tanh": _gelu_tanh,
    "gelu_tanh_slope": _gelu_tanh_slope,
    "hardswish": lambda x: x * min(max(x + 3, 0), 6) / 6,
    "lgamma": math.lgamma,
    "digamma": lambda x: _scipy("digamma", x),
    "trigamma": lambda x: _scipy("polygamma", 1, x),
    "zeta": lambda s, q: _scipy("zeta", s, q),
    "xlogy": lambda x, y: x * math.log(y) if x else 0,
    "floor": math.floor,
    "ceil": math.ceil,
    "round": round,
    "trunc": math.trunc,
    "relu": lambda x: max(x, 0),
    "isnan": math.isnan,
    "isinf": math.isinf,
    "isfinite": math.isfinite,
    "logical_not": lambda x: not x,
    "bitwise_not": lambda x: ~x,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "floor_divide": lambda a, b: a // b,
    "remainder": lambda a, b: a % b,
    "fmod": math.fmod,
    "truncated_quotient": lambda a, b: math.trunc(a / b),
    "pow": lambda a, b: a**b,
    "root": lambda a, b: a**b,
    "maximum": max,
    "minimum": min,
    "clamp_min": max,
    "clamp_max": min,
    "atan2": math.atan2,
    "hypot": math.hypot,
    "logaddexp": lambda a, b: math.log(math.exp(a) + math.exp(b)),
    "copysign": math.copysign,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "logical_and": lambda a, b: bool(a and b),
    "logical_or": lambda a, b: bool(a or b),
    "logical_xor": lambda a, b: bool(a) != bool(b),
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
    "bitwise_left_shift": lambda a, b: a << b,
    "bitwise_right_shift": lambda a, b: a >> b,
    "where": lambda c, a, b: a if c else b,
    "operand": lambda x: x,
    "piecewise": lambda x: x,
    "tied": lambda a, b: a,
    "retied": lambda a, b: a,
    "cast": lambda x: x,
    "identity": lambda x: x,
}
FLOATS = ("float16", "bfloat16", "float32", "float64")
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-6, "float64": 1e-13}
NAMES = sorted(n for n, op in TABLE.items() if op.rule != "draw")  # see fusion/test_index.py
POLES = ("trigamma", "zeta")  # where PyTorch gives other numbers, or has no gradient
ENDS = ("i0", "i1", "i1e")  # NaN at infinity there, or flat at NaN
OURS = (  # no functions of PyTorch's
    *("bent", "capped", "gelu_tanh_slope", "raised", "truncated_quotient"),
    *PLANNED_AS,
)
SMOOTH = [n for n in NAMES if any(f not in (NONE, ZERO) for f in TABLE[n].vjp) and n != "zeta"]
TAKES_FLOATS = [n for n in NAMES if TABLE[n].rule != "bitwise"]


def rng_for(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))


def sample(op: Op, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Numbers where the op is defined and smooth, away from its kinks."""
    if op.domain == "positive":
        return rng.uniform(0.3, 2.5, shape)
    if op.domain == "unit":
        return rng.uniform(-0.9, 0.9, shape)
    if op.domain == "share":
        return rng.uniform(0.05, 0.95, shape)
    if op.domain == "above_one":
        return rng.uniform(1.2, 3.0, shape)
    values = rng.uniform(-2.4, 2.4, shape)
    kink = np.abs(values * 2 - np.rint(values * 2)) < 0.05  # wholes and halves
    return np.where(kink, values + 0.12, values)


def operands_for(op: Op, shapes: list[tuple[int, ...]]) -> list[np.ndarray[Any, Any]]:
    rng = rng_for(op.name)
    arrays = [sample(op, shape, rng) for shape in shapes]
    if op.rule == "select":
        arrays[0] = arrays[0] > 0
    if op.rule == "bitwise":
        arrays = [rng.integers(0, 7, shape) for shape in shapes]
    return arrays


def tensors(arrays: Any, d: Any, device: str, grad: bool = False) -> list[lucid_gpu.Tensor]:
    made = []
    for a in arrays:
        t = lucid_gpu.tensor(a, device=device)
        if t.is_floating_point():
            t = t.to(d)
            t.requires_grad_(grad)
        made.append(t)
    return made


def run(op: Op, values: list[lucid_gpu.Tensor]) -> lucid_gpu.Tensor:
    if op.rule == "cast":
        return apply(op, *values, to=values[0].dtype)
    if op.rule == "identity":
        return apply(op, *values, shape=tuple(values[0].shape))
    return apply(op, *values)


def plain(t: lucid_gpu.Tensor) -> np.ndarray[Any, Any]:
    """The elements in double precision."""
    wide = t.detach().cpu()
    return np.array(wide.tolist(), np.complex128 if t.dtype.is_complex else np.float64)


def meant(op: Op, values: list[lucid_gpu.Tensor]) -> np.ndarray[Any, Any]:
    lists = np.broadcast_arrays(*[np.array(v.tolist()) for v in values])
    flat = zip(*[a.reshape(-1).tolist() for a in lists])
    found = [MEANING[op.name](*numbers) for numbers in flat]
    return np.array(found, np.float64).reshape(lists[0].shape)


def test_every_row_has_a_meaning() -> None:
    assert set(MEANING) == set(NAMES)


@pytest.mark.parametrize("d", FLOATS)
@pytest.mark.parametrize("name", TAKES_FLOATS)
def test_values_are_what_mathematics_says(name: str, d: str, device: str) -> None:
    op = TABLE[name]
    values = tensors(operands_for(op, [(4, 5)] * op.arity), getattr(lucid_gpu, d), device)
    got = run(op, values)
    assert got.dtype.name == ("bool" if op.rule in ("test", "logical", "compare") else d)
    expected = meant(op, values)
    scale = TOLERANCE[d]
    np.testing.assert_allclose(plain(got), expected, rtol=scale, atol=scale)


@pytest.mark.parametrize("d", ["uint8", "int8", "int16", "int32", "int64", "bool"])
@pytest.mark.parametrize("name", [n for n in NAMES if n not in (*POLES, *OURS)])
def test_integers_and_bools_are_treated_as_in_torch(name: str, d: str, device: str) -> None:
    torch = pytest.importorskip("torch")
    op = TABLE[name]
    rng = rng_for(name)
    arrays = [rng.integers(0 if d == "uint8" else -6, 7, (4, 5)) for _ in range(op.arity)]
    if op.arity == 2 and ("div" in name or "mod" in name or "remainder" in name):
        arrays[1] = np.where(arrays[1] == 0, 3, arrays[1])
    if name in ("pow", "bitwise_left_shift", "bitwise_right_shift"):
        arrays[1] = np.abs(arrays[1])
    if d == "bool":
        arrays = [a > 0 for a in arrays]
    if op.rule == "select":
        arrays[0] = arrays[0] > 0

    def result(module: Any, **where: Any) -> Any:
        made = [module.tensor(a).to(**where) for a in arrays]
        made = [t if t.dtype is module.bool else t.to(getattr(module, d)) for t in made]
        if op.rule in ("cast", "identity"):
            return made[0].clone()
        return function_of(module, name)(*made)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = result(torch)
    except (RuntimeError, TypeError):  # torch's kernels do not have every op for every type
        with pytest.raises((RuntimeError, TypeError, NotImplementedError)):
            result(lucid_gpu, device=device)
        return
    got = result(lucid_gpu, device=device)
    assert str(got.dtype).split(".")[1] == str(expected.dtype).split(".")[1]
    np.testing.assert_allclose(
        plain(got), np.array(expected.tolist(), np.float64), rtol=3e-6, atol=3e-6
    )


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_agree_with_finite_differences(name: str, device: str) -> None:
    op = TABLE[name]
    values = tensors(operands_for(op, [(2, 3)] * op.arity), lucid_gpu.float64, device, True)
    assert gradcheck(lambda *v: run(op, list(v)), values)


@pytest.mark.parametrize("name", SMOOTH)
def test_second_gradients_agree_with_finite_differences(name: str, device: str) -> None:
    op = TABLE[name]
    values = tensors(operands_for(op, [(2, 3)] * op.arity), lucid_gpu.float64, device, True)
    assert gradgradcheck(lambda *v: run(op, list(v)), values, atol=1e-4)


@pytest.mark.parametrize("name", [n for n in SMOOTH if TABLE[n].arity > 1])
def test_gradients_of_broadcast_operands_are_summed(name: str, device: str) -> None:
    op = TABLE[name]
    shapes: list[tuple[int, ...]] = [(2, 1, 3), (4, 1), ()]
    for turn in range(op.arity):
        own = (shapes[turn:] + shapes[:turn])[: op.arity]
        values = tensors(operands_for(op, own), lucid_gpu.float64, device, True)
        assert gradcheck(lambda *v: run(op, list(v)), values)


@pytest.mark.parametrize("name", [n for n in NAMES if ZERO in TABLE[n].vjp and TABLE[n].arity == 1])
def test_steps_have_a_gradient_of_zero(name: str, device: str) -> None:
    op = TABLE[name]
    (x,) = tensors(operands_for(op, [(2, 3)]), lucid_gpu.float32, device, True)
    run(op, [x]).sum().backward()
    assert x.grad.tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("name", [n for n in NAMES if not TABLE[n].differentiable])
def test_ops_without_a_derivative_are_not_recorded(name: str, device: str) -> None:
    op = TABLE[name]
    values = tensors(operands_for(op, [(2, 3)] * op.arity), lucid_gpu.float32, device, True)
    assert not run(op, values).requires_grad


@pytest.mark.parametrize("name", NAMES)
def test_strided_and_broadcast_operands_give_the_same_values(name: str, device: str) -> None:
    op = TABLE[name]
    d = lucid_gpu.float32
    base = tensors(operands_for(op, [(6, 8)] * op.arity), d, device)
    for view in (
        lambda t: t.t(),
        lambda t: t[::2, 1::3],
        lambda t: t[:, 2],
        lambda t: t[3].expand(5, 8),
        lambda t: t[:, :1].expand(6, 4),
        lambda t: t.reshape(2, 3, 8).permute(2, 0, 1),
    ):
        strided = [view(t) for t in base]
        dense = [t.clone().contiguous() for t in strided]
        assert run(op, strided).tolist() == run(op, dense).tolist()
        if op.arity > 1:  # dense beside strided
            mixed = [strided[0], *dense[1:]]
            assert run(op, mixed).tolist() == run(op, dense).tolist()


@pytest.mark.parametrize("name", [n for n in NAMES if TABLE[n].arity > 1])
def test_operands_broadcast_against_each_other(name: str, device: str) -> None:
    op = TABLE[name]
    shapes: list[tuple[int, ...]] = [(3, 1, 4), (5, 1), ()]
    for turn in range(op.arity):
        own = (shapes[turn:] + shapes[:turn])[: op.arity]
        values = tensors(operands_for(op, own), lucid_gpu.float64, device)
        got = run(op, values)
        assert tuple(got.shape) == np.broadcast_shapes(*own)
        np.testing.assert_allclose(plain(got), meant(op, values), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_empty_and_zero_dimensional_operands(name: str, device: str) -> None:
    op = TABLE[name]
    for shape in [(0,), (3, 0, 2), ()]:
        values = tensors(operands_for(op, [shape] * op.arity), lucid_gpu.float64, device, True)
        got = run(op, values)
        assert tuple(got.shape) == shape
        np.testing.assert_allclose(plain(got), meant(op, values), rtol=1e-12, atol=1e-12)
        if got.requires_grad:
            got.sum().backward()
            assert all(
                v.grad is None or tuple(v.grad.shape) == shape for v in values if v.requires_grad
            )


@pytest.mark.parametrize("name", [n for n in NAMES if TABLE[n].rule in ("same", "float")])
def test_large_arrays_give_what_small_ones_do(name: str, device: str) -> None:
    """More than one block, with a ragged last one."""
    op = TABLE[name]
    n = 300_001
    small = operands_for(op, [(1009,)] * op.arity)
    large = [np.resize(a, n).astype(np.float32) for a in small]
    values = [lucid_gpu.tensor(a, device=device) for a in large]
    few = [lucid_gpu.tensor(a[:1009].copy(), device=device) for a in large]
    got = run(op, values).cpu().numpy()
    expected = run(op, few).cpu().numpy()
    np.testing.assert_allclose(got, np.resize(expected, n), rtol=1e-6)


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.5, 30.0, -30.0, 1e-30, 1e30, -1e30]
SPECIAL += [float("inf"), -float("inf"), float("nan")]


def _both(op: Op, arrays: list[Any], d: str, device: str) -> list[tuple[Any, Any]]:
    """Values and gradients from lucid_gpu and from torch."""
    torch = pytest.importorskip("torch")
    found = []
    for module, where in ((lucid_gpu, device), (torch, "cpu")):
        made = [module.tensor(a).to(where) for a in arrays]
        made = [t if t.dtype is module.bool else t.to(getattr(module, d)) for t in made]
        leaves = [t.requires_grad_() for t in made if t.dtype is not module.bool]
        out = function_of(module, op.name)(*made)
        results = [out.detach()]
        # PyTorch refuses to differentiate floor_divide; here it is flat, as div(..., "floor") is.
        if out.requires_grad and op.differentiable and op.name != "floor_divide":
            grads = module.autograd.grad(out.sum(), leaves, allow_unused=True)
            results += [None if g is None else g + 0 for g in grads]  # torch's may have no memory
        found.append([None if r is None else np.array(r.tolist()) for r in results])
    return list(zip(*found))


@pytest.mark.parametrize(
    "name",
    [
        n
        for n in TAKES_FLOATS
        if TABLE[n].arity == 1 and n not in ("cast", "identity", "digamma", *POLES, *OURS, *ENDS)
    ],
)
def test_special_numbers_are_treated_as_in_torch(name: str, device: str) -> None:
    for what, (got, expected) in zip(
        ("value", "gradient"), _both(TABLE[name], [SPECIAL], "float64", device)
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-200, err_msg=what)


@pytest.mark.parametrize(
    "name", [n for n in TAKES_FLOATS if TABLE[n].arity == 2 and n not in (*POLES, *OURS)]
)
def test_special_pairs_are_treated_as_in_torch(name: str, device: str) -> None:
    op = TABLE[name]
    a, b = (m.reshape(-1) for m in np.meshgrid(SPECIAL, SPECIAL))
    for what, (got, expected) in zip(
        ("value", "first gradient", "second gradient"),
        _both(op, [a, b], "float64", device),
    ):
        if got is None or expected is None:
            assert got is None or not np.nan_to_num(got).any()
            assert expected is None or not np.nan_to_num(expected).any()
            continue
        wrong = ~np.isclose(got, expected, rtol=1e-10, atol=1e-200, equal_nan=True)
        shown = [(a[i], b[i], got[i], expected[i]) for i in np.flatnonzero(wrong)[:8]]
        assert not wrong.any(), f"{what}: {wrong.sum()} differ, {shown}"


MODERATE = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 3.0, -3.0, 4.5, -4.5]


def _second(module: Any, name: str, arrays: list[Any], cotangent: float, device: str) -> list[Any]:
    """The derivatives of a gradient by the operands and by its cotangent."""
    leaves = [module.tensor(a, dtype=module.float64).to(device) for a in arrays]
    leaves = [t.requires_grad_() for t in leaves]
    out = function_of(module, name)(*leaves)
    g = module.full_like(out, cotangent).requires_grad_()
    firsts = module.autograd.grad(out, leaves, g, create_graph=True, allow_unused=True)
    firsts = [f for f in firsts if f is not None and f.requires_grad]
    if not firsts:
        return []
    ones = [module.ones_like(f) for f in firsts]
    return list(module.autograd.grad(firsts, (*leaves, g), ones, allow_unused=True))


UNLIKE = ("cast", "identity", "where", "digamma", "lgamma")  # no functions of floats; poles


@pytest.mark.parametrize("cotangent", [1.0, float("nan")])
@pytest.mark.parametrize("name", [n for n in SMOOTH if n not in (*POLES, *OURS, *UNLIKE)])
def test_second_gradients_are_finite_where_those_of_torch_are(
    name: str, cotangent: float, device: str
) -> None:
    torch = pytest.importorskip("torch")
    arrays: list[Any] = [MODERATE]
    if TABLE[name].arity > 1:
        arrays = [m.reshape(-1) for m in np.meshgrid(*[MODERATE] * TABLE[name].arity)]
    got = _second(lucid_gpu, name, arrays, cotangent, device)
    expected = _second(torch, name, arrays, cotangent, "cpu")
    for which, (ours, theirs) in enumerate(zip(got, expected)):
        wanted = np.zeros(len(arrays[0])) if theirs is None else np.array((theirs + 0).tolist())
        found = np.zeros(len(arrays[0])) if ours is None else np.array(ours.tolist())
        wrong = np.isfinite(wanted) & ~np.isclose(found, wanted, rtol=1e-7, atol=1e-12)
        shown = [([a[i] for a in arrays], found[i], wanted[i]) for i in np.flatnonzero(wrong)[:8]]
        assert not wrong.any(), f"{which}: {wrong.sum()} differ, {shown}"


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_the_inverse_of_a_complex_zero_is_infinite(dtype: str, device: str) -> None:
    zeros = lucid_gpu.tensor([0j, -0.0 + 0j], dtype=getattr(lucid_gpu, dtype), device=device)
    for found in (zeros.reciprocal(), 1 / zeros, zeros**-1):
        found = found.cpu().numpy()
        assert (found.real == np.inf).all() and np.isnan(found.imag).all()


HOLOMORPHIC = [
    "neg",
    "abs",
    "sgn",
    "conj_physical",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "square",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "sigmoid",
    "add",
    "sub",
    "mul",
    "div",
    "pow",
]


@pytest.mark.parametrize("name", HOLOMORPHIC)
def test_complex_numbers_and_their_gradients(name: str, device: str) -> None:
    op = TABLE[name]
    rng = rng_for(name)
    arrays = [
        rng.uniform(0.3, 1.5, (2, 3)) + 1j * rng.uniform(0.2, 1.2, (2, 3)) for _ in range(op.arity)
    ]
    values = [lucid_gpu.tensor(a, device=device).requires_grad_() for a in arrays]
    assert gradcheck(lambda *v: run(op, list(v)), values)
    assert gradgradcheck(lambda *v: run(op, list(v)), values, atol=1e-4)
    function = getattr(cmath, name, None)
    if function is not None and op.arity == 1:
        flat = [function(z) for z in arrays[0].reshape(-1)]
        np.testing.assert_allclose(plain(run(op, values)).reshape(-1), flat, rtol=1e-12)


@pytest.mark.parametrize("name", [n for n in NAMES if TABLE[n].arity == 2 and n != "zeta"])
def test_python_numbers_are_operands_too(name: str, device: str) -> None:
    op = TABLE[name]
    d = lucid_gpu.int64 if op.rule == "bitwise" else lucid_gpu.float64
    (x, _) = tensors(operands_for(op, [(3, 4)] * 2), d, device)
    number = 2 if op.rule == "bitwise" else 0.75
    as_tensor = lucid_gpu.full((3, 4), number, dtype=d, device=device)
    assert apply(op, x, number).tolist() == apply(op, x, as_tensor).tolist()
    assert apply(op, number, x).tolist() == apply(op, as_tensor, x).tolist()
    for k in range(20):  # many different numbers at one place become an argument
        other = k + 1 if op.rule == "bitwise" else 0.75 + k / 16
        whole = lucid_gpu.full((3, 4), other, dtype=d, device=device)
        assert apply(op, x, other).tolist() == apply(op, x, whole).tolist()

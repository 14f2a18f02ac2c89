"""Ops over every type, alone and mixed: the types PyTorch gives, and its refusals."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import modules, torch_module

TYPES = "bool uint8 int16 int64 float16 bfloat16 float32 float64 complex64"
MIXED = [
    ("float32", "float64"), ("float32", "int64"), ("int64", "float32"), ("float16", "float32"),
    ("float32", "complex64"), ("bool", "int64"), ("int64", "bool"), ("uint8", "int8"),
    ("float32", "bool"), ("int32", "int64"),
]  # fmt: skip
WHOLE = np.array([[3, 1, 2], [2, 5, 1], [1, 1, 4]])

ALONE = """
abs(x) acos(x) angle(x) atan(x) ceil(x) cos(x) digamma(x) erf(x) exp(x) exp2(x) floor(x) frac(x)
isfinite(x) isnan(x) lgamma(x) log(x) log1p(x) logical_not(x) nan_to_num(x) neg(x) reciprocal(x)
round(x) rsqrt(x) sigmoid(x) sign(x) sgn(x) sinc(x) sqrt(x) square(x) tanh(x) trunc(x)
bitwise_not(x) sum(x) sum(x,1) prod(x) mean(x) std(x) var(x,1) amax(x) amin(x,1) aminmax(x)
argmax(x) argmin(x) all(x) any(x) max(x) min(x) median(x) nansum(x) nanmean(x) mode(x)
logsumexp(x,0) norm(x) count_nonzero(x) unique(x) unique_consecutive(x) cumsum(x,0) cumprod(x,0)
cummax(x,0) topk(x,2) msort(x) sort(x) nonzero(x) tril(x) trace(x) diagonal(x) flip(x,(0,))
roll(x,1) cov(x) diff(x) gradient(x) trapezoid(x) cumulative_trapezoid(x) bincount(x[0])
vander(x[0]) softmax(x,0) log_softmax(x,0) isin(x,x) searchsorted(x[0],x) bucketize(x,x[0])
clamp(x,1,2) clamp(x,0.5) masked_fill(x,x==x,1) repeat_interleave(x,2) fft.fft(x) fft.rfft(x)
det(x) linalg.qr(x) linalg.norm(x) kthvalue(x,1)
"""
BESIDE = """
add(x,y) sub(x,y) mul(x,y) div(x,y) floor_divide(x,y) fmod(x,y) remainder(x,y) pow(x,y) atan2(x,y)
maximum(x,y) eq(x,y) lt(x,y) logical_and(x,y) bitwise_and(x,y) copysign(x,y) xlogy(x,y) gcd(x,y)
matmul(x,y) mv(x,y[0]) dot(x[0],y[0]) outer(x[0],y[0]) kron(x,y) cat((x,y)) stack((x,y))
where(x==x,x,y) cross(x,y) linalg.cross(x,y) lerp(x,y,0.5) lerp(x,y,y) addcmul(x,y,y)
addcdiv(x,y,y) addmm(x,y,y) addmv(x[0],x,y[0]) addr(x,x[0],y[0]) addbmm(x,y[None],y[None])
baddbmm(x[None],y[None],y[None]) index_add(x,0,i,y) index_copy(x,0,i,y) index_fill(x,0,i,y[0,0])
scatter(x,0,j,y) scatter_add(x,0,j,y) scatter_reduce(x,0,j,y,'sum') masked_scatter(x,x==x,y)
index_put(x,(i,),y) put(x,j,y) isin(x,y) linalg.solve(x,y) add(x,y,alpha=2) add(x,y,alpha=2.5)
sub(x,y,alpha=2) div(x,y,rounding_mode='floor') div(x,y,rounding_mode='trunc') trapezoid(x,y)
allclose(x,y) equal(x,y) tensordot(x,y,1) slice_scatter(x,y)
"""


def outcome(m: Any, expression: str, first: str, second: str) -> Any:
    """The results' types and shapes, or the error."""

    def of(name: str, array: Any) -> Any:
        return m.tensor(array.tolist()).to(getattr(m, name))

    names = {
        "x": of(first, WHOLE), "y": of(second, WHOLE.T), "m": m, "i": m.tensor([0, 2, 1]),
        "j": m.tensor([[0, 1, 2], [2, 1, 0], [1, 1, 1]]),
    }  # fmt: skip
    try:
        found = eval(f"m.{expression}", names)
    except Exception as error:
        return type(error)
    several = found if isinstance(found, (tuple, list)) else [found]
    return [
        (str(t.dtype).rpartition(".")[2], tuple(t.shape)) if hasattr(t, "dtype") else type(t)
        for t in several
    ]


def check(expression: str, pairs: Any) -> None:
    wrong = []
    for first, second in pairs:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = outcome(torch_module(), expression, first, second)
            got = outcome(lucid_gpu, expression, first, second)
        if isinstance(wanted, type) and isinstance(got, type) and issubclass(got, wanted):
            continue
        if got != wanted:
            wrong.append(f"{first}, {second}: {got} is not {wanted}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("expression", ALONE.split())
def test_of_one_type(expression: str) -> None:
    check(expression, [(name, name) for name in TYPES.split()])


@pytest.mark.parametrize("expression", BESIDE.split())
def test_of_two_types(expression: str) -> None:
    check(expression, [*[(name, name) for name in TYPES.split()], *MIXED])


def _sixteen_bits(m: Any, name: str) -> Any:
    return (m.arange(1, 65) * 0.37).to(getattr(m, name))


WIDER = {
    "float": lambda m, x: (x * 1.7).float(),
    "double": lambda m, x: (x / 3).double(),
    "the other 16-bit type": lambda m, x: (x * 1.7).to(
        m.float16 if x.dtype == m.bfloat16 else m.bfloat16
    ),
    "int": lambda m, x: (x * 99.9).int(),
    "promotion": lambda m, x: x / 7 + m.ones(64),
    "a sum's type": lambda m, x: (x / 7).sum(dtype=m.float32),
    "a negative": lambda m, x: (-(x / 7)).float(),
    "spread": lambda m, x: (x / 7).expand(2, 64).double(),
    "where": lambda m, x: m.where(x > 1, x / 7, x * 3).float(),
}


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
@pytest.mark.parametrize("how", WIDER)
def test_a_value_of_16_bits_is_rounded_before_it_becomes_wider(how: str, name: str) -> None:
    found = []
    for m, _ in modules():
        x = _sixteen_bits(m, name).requires_grad_()
        y = WIDER[how](m, x)
        if y.requires_grad:
            (y.double() * m.linspace(0, 1, 64, dtype=m.float64)).sum().backward()
        gradient = None if x.grad is None else x.grad.double().tolist()
        found.append((y.detach().double().tolist(), gradient))
    (ours, our_gradient), *others = found
    for theirs, their_gradient in others:
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
        if our_gradient is not None:
            rtol = 2**-7 if name == "bfloat16" else 2**-10
            np.testing.assert_allclose(our_gradient, their_gradient, rtol=rtol, atol=1e-6)


COMPARED = {
    "beyond the type's range": lambda m, x: [
        (x * 6e4).isinf(),
        (x * 6e4).isfinite(),
        x * 6e4 > 7e4,
    ],
    "below its range": lambda m, x: [(x * 1e-8).ne(0), (x * 1e-8) > 0, (x * 1e-8).bool()],
    "with what was stored": lambda m, x: [(x * 1.7) == (x * 1.7).clone(), (x / 7).isclose(x / 7)],
    "with another type": lambda m, x: [(x * 1.7) == (x * 1.7).float(), (x / 7).ge(x.double() / 7)],
    "nan_to_num": lambda m, x: [(x * 6e4).nan_to_num(), (x * -6e4).nan_to_num(1.0, 2.0, 3.0)],
    "ties": lambda m, x: [(x / 3).unique(), ((x * 1.7) == (x * 1.7).max()).nonzero()],
}


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
@pytest.mark.parametrize("how", COMPARED)
def test_a_value_of_16_bits_is_rounded_before_it_is_compared(how: str, name: str) -> None:
    """What comes of a test must not depend on whether the value was read before it."""
    found = [
        [y.double().tolist() for y in COMPARED[how](m, _sixteen_bits(m, name))]
        for m, _ in modules()
    ]
    assert all(answers == found[0] for answers in found)
    x = _sixteen_bits(lucid_gpu, name) * 1.7
    before = x * 1.7
    stored = (x * 1.7).clone()
    stored.tolist()
    assert bool((before == stored).all())


def _of(m: Any, device: str, dtype: str, *values: Any) -> Any:
    """A vector, or of one value a tensor without dimensions."""
    listed = values[0] if len(values) == 1 else list(values)
    return m.tensor(listed, dtype=getattr(m, dtype), device=device)


TYPED = {
    "clamp of a smaller integer": lambda m, t: m.clamp(
        t("int64", -5), t("float32", -1.5, -9.0), t("uint8", 4, 4)
    ),
    "xlog1py of a smaller integer": lambda m, t: m.special.xlog1py(
        t("uint8", 2, 0), t("int64", -1)
    ),
    "ldexp of a smaller integer": lambda m, t: m.ldexp(t("uint8", 2, 6), t("int64", -1)),
    "ldexp keeps 16 bits": lambda m, t: m.ldexp(t("float16", 2**-10, 1.0), t("int32", 15, 3)),
    "ldexp by a power out of range": lambda m, t: m.ldexp(
        t("float32", 1e-38, 1.0), t("int64", 200, 1)
    ),
    "ldexp by no number": lambda m, t: m.ldexp(t("float32", 1.0, 2, 3), t("float32", *SPECIAL)),
    "logaddexp2 of 0-d floats": lambda m, t: m.logaddexp2(
        t("float32", 3.5), t("bfloat16", 4.75, -1.0)
    ),
    "lerp of a 0-d weight": lambda m, t: m.lerp(
        t("float32", 1.5, 0.75), t("float32", 0.25, 5.5), t("float16", -1.3562)
    ),
    "lerp of integers by a 0-d weight": lambda m, t: m.lerp(
        t("uint8", 3, 200), t("uint8", 4, 5), t("float64", 0.25)
    ),
    "lerp of bools by a 0-d weight": lambda m, t: m.lerp(
        t("bool", True, False), t("bool", False, True), t("float16", 0.25)
    ),
    "trunc of bools": lambda m, t: m.div(
        t("bool", True, False), t("int32", 2), rounding_mode="trunc"
    ),
    "trunc of bools by a number": lambda m, t: m.div(
        t("bool", True, False), 2, rounding_mode="trunc"
    ),
    "sum_to_size of a number": lambda m, t: t("uint8", 3).sum_to_size([]),
    "tensordot over a size of 1": lambda m, t: m.tensordot(
        t("uint8", 3, 200)[:1], t("uint8", 200, 100), ([0], [0])
    ),
    "addr of bools": lambda m, t: m.addr(
        t("bool", True, False), t("bool", False, True), t("bool", True, False), beta=3, alpha=2
    ),
    "addr of bools and none": lambda m, t: m.addr(
        t("bool", True, False), t("bool", False, True), t("bool", True, False), beta=0
    ),
    "logsumexp of complex numbers": lambda m, t: m.logsumexp(
        t("complex64", 1 + 7j, 2 - 3j, 2.9j), 0
    ),
    "logsumexp of a complex number": lambda m, t: m.logsumexp(t("complex64", 1 + 7j), 0),
    "histogram of equal numbers": lambda m, t: m.histogram(t("float32", 2.0, 2.0), 2)[1],
    "histogram of nothing": lambda m, t: m.histogram(t("float32", 2.0, 3.0)[:0], 2)[1],
    "arange of small integers": lambda m, t: m.arange(0.0, -8.0001, -4.0, dtype=m.int32),
    "arange of integers": lambda m, t: m.arange(0.0, -8.0001, -4.0, dtype=m.int64),
    "avg_pool3d of integers": lambda m, t: m.nn.functional.avg_pool3d(
        m.arange(54).reshape(1, 2, 3, 3, 3) - 20, 2, 1, 1, True, False
    ),
    "avg_pool3d of integers by a number": lambda m, t: m.nn.functional.avg_pool3d(
        m.arange(27).reshape(1, 3, 3, 3) - 20, 2, 2, 1, divisor_override=3
    ),
}
SPECIAL = (float("inf"), -float("inf"), float("nan"))


@pytest.mark.parametrize("name", TYPED)
def test_values_of_mixed_types(name: str) -> None:
    def called(m: Any) -> Any:
        return TYPED[name](m, lambda *args: _of(m, "cpu", *args))

    got, expected = called(lucid_gpu), called(torch_module())
    assert got.dtype.name == str(expected.dtype).rpartition(".")[2]
    assert tuple(got.shape) == tuple(expected.shape)
    wide = lambda r: r.double() if r.dtype.is_floating_point else r  # noqa: E731
    np.testing.assert_allclose(wide(got).numpy(), wide(expected).numpy(), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["fmod", "remainder", "pow", "fmod_", "pow_"])
@pytest.mark.parametrize("number", [2.3, -1.7, 3, 0.5])
def test_moduli_and_exponents_are_16_bit_numbers_beside_such_tensors(
    dtype: str, name: str, number: float, device: str
) -> None:
    numbers = np.random.default_rng(0).uniform(0.5, 9, 64)

    def computed(m: Any, where: str) -> Any:
        x = m.tensor(numbers, dtype=getattr(m, dtype), device=where)
        return getattr(x, name)(number).float().tolist()

    np.testing.assert_allclose(
        computed(lucid_gpu, device), computed(torch_module(), "cpu"), rtol=1e-2, atol=1e-7
    )


# --- index types, and small integers that PyTorch refuses -----------------------------------------

INDEXED: dict[str, Any] = {
    "gather": lambda m, x, i: x.gather(0, i[None]),
    "scatter": lambda m, x, i: x.scatter(0, i[None], 2.0),
    "scatter_add": lambda m, x, i: x.scatter_add(0, i[None], x),
    "index_select": lambda m, x, i: x.index_select(0, i),
    "take": lambda m, x, i: x.take(i),
    "take_along_dim": lambda m, x, i: m.take_along_dim(x[:, :2], i[None], 0),
    "take_along_dim of all": lambda m, x, i: m.take_along_dim(x, i),
    "index_add": lambda m, x, i: x.index_add(0, i, x[:2]),
    "index_copy": lambda m, x, i: x.index_copy(0, i, x[:2]),
    "index_fill": lambda m, x, i: x.index_fill(0, i, 1.0),
    "getitem": lambda m, x, i: x[i],
    "getitem by two": lambda m, x, i: x[i, i],
    "getitem by a number": lambda m, x, i: x[i[0]],
    "index_put": lambda m, x, i: x.index_put((i,), x[0, 0], accumulate=True),
    "put": lambda m, x, i: x.put(i, x[0, :2]),
    "embedding": lambda m, x, i: m.nn.functional.embedding(i, x),
    "embedding_bag": lambda m, x, i: m.nn.functional.embedding_bag(i, x, i[:1].long()),
    "embedding_bag by bags": lambda m, x, i: m.nn.functional.embedding_bag(i.long(), x, i[:1]),
    "one_hot": lambda m, x, i: m.nn.functional.one_hot(i, 3),
    "glu": lambda m, x, i: m.nn.functional.glu(i, 0),
    "avg_pool1d": lambda m, x, i: m.nn.functional.avg_pool1d(i[None], 1),
    "avg_pool2d": lambda m, x, i: m.nn.functional.avg_pool2d(i[None, None], 1),
    "avg_pool3d": lambda m, x, i: m.nn.functional.avg_pool3d(i[None, None, None], 1),
    "lp_pool1d": lambda m, x, i: m.nn.functional.lp_pool1d(i[None], 2.0, 1),
    "lu_unpack": lambda m, x, i: m.lu_unpack(x[:2, :2], i + 1)[0],
}


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
@pytest.mark.parametrize("name", INDEXED)
def test_index_types_are_those_of_torch(name: str, device: str) -> None:
    def outcome(m: Any, where: str, kind: str) -> Any:
        x = m.arange(12.0, device=where).reshape(3, 4)
        index = m.tensor([0, 1], device=where).to(getattr(m, kind))
        try:
            result = INDEXED[name](m, x, index)
        except Exception as error:
            return type(error).__name__
        return str(result.dtype).rpartition(".")[2], result.tolist()

    torch = torch_module()
    for kind in ["bool", "uint8", "int8", "int16", "int32", "int64", "float32"]:
        assert outcome(lucid_gpu, device, kind) == outcome(torch, "cpu", kind), kind


OVERFLOWING: dict[str, Any] = {
    "lcm": lambda m, d: m.lcm(
        m.tensor([2, 2, -7], device=d).int(), m.tensor([2**31 - 1, 6, 3], device=d).int()
    ),
    "lcm of int8": lambda m, d: m.lcm(
        m.tensor([-60, 9, -128], dtype=m.int8, device=d),
        m.tensor([-96, 15, 127], dtype=m.int8, device=d),
    ),
    "lcm of int16": lambda m, d: m.lcm(
        m.tensor([-12595, 200], device=d).short(), m.tensor([-7585, 201], device=d).short()
    ),
    "shift of bools in place": lambda m, d: m.tensor([True], device=d).__ilshift__(1),
    "shift back of bools in place": lambda m, d: m.tensor([True], device=d).__irshift__(
        m.tensor([1], device=d)
    ),
    "shift in place that broadcasts": lambda m, d: m.tensor([1], device=d).__ilshift__(
        m.tensor([1, 2], device=d)
    ),
    "shift of small integers in place": lambda m, d: m.tensor(
        [130], dtype=m.uint8, device=d
    ).__ilshift__(m.tensor([1], device=d)),
}


@pytest.mark.parametrize("name", OVERFLOWING)
def test_results_that_the_type_does_not_hold(name: str, device: str) -> None:
    def outcome(m: Any, where: str) -> Any:
        try:
            result = OVERFLOWING[name](m, where)
        except RuntimeError as error:
            return str(error).split(" in ")[0]
        return result.tolist(), str(result.dtype).rpartition(".")[2]

    assert outcome(lucid_gpu, device) == outcome(torch_module(), "cpu")


JOINED = {
    "block_diag": lambda m, a, b: m.block_diag(a, b),
    "block_diag of three": lambda m, a, b: m.block_diag(a, b, a),
    "kron": lambda m, a, b: m.kron(a, b),
    "where": lambda m, a, b: m.where(m.tensor(True), a, b),
    "add": lambda m, a, b: a + b,
    "vander": lambda m, a, b: m.vander(a.reshape(-1)),
    "vander of one column": lambda m, a, b: m.vander(a.reshape(-1), 1),
    "vander of none": lambda m, a, b: m.vander(a.reshape(-1), 0),
    "vander of two": lambda m, a, b: m.vander(a.reshape(-1), 2, True),
    "heaviside": lambda m, a, b: m.heaviside(a, b),
}
EVERY = [*TYPES.split(), "int8", "int32", "complex128"]


@pytest.mark.parametrize("name", JOINED)
def test_types_of_numbers_vectors_and_matrices_together(name):
    """A tensor without dimensions raises a type only to a higher kind."""
    torch, function = torch_module(), JOINED[name]
    for a in EVERY:
        for b in EVERY:
            for shapes in (((), (1,)), ((1,), ()), ((), ()), ((1,), (1,)), ((), (1, 1))):
                found = []
                for m in (torch, lucid_gpu):
                    tensors = [m.ones(s, dtype=getattr(m, d)) for s, d in zip(shapes, (a, b))]
                    try:
                        result = function(m, *tensors)
                    except (RuntimeError, NotImplementedError):
                        found.append("refused")
                    else:
                        found.append(str(result.dtype).rpartition(".")[2])
                if found[0] != "complex32":  # no tensor has this type here
                    assert found[0] == found[1], (a, b, shapes)


_NO_FUNCTIONS = """
set_default_dtype save load compile from_file seed manual_seed set_num_threads initial_seed
set_default_device set_grad_enabled set_printoptions typename cond while_loop vmap wait fork
import_ir_module set_default_tensor_type use_deterministic_algorithms set_num_interop_threads
init_num_threads parse_ir parse_schema parse_type_comment set_flush_denormal classproperty
"""
THAT_DIFFER = ("detach_copy", "histogram")


def test_results_of_all_functions_require_grad_as_pytorchs():
    """Of what requires grad, given once, twice or three times."""
    torch = torch_module()
    others = {*_NO_FUNCTIONS.split(), *THAT_DIFFER}
    public = [n for n in dir(torch) if n[0] != "_" and n[:4] != "set_"]  # which others would see
    names = [n for n in public if n not in others and hasattr(lucid_gpu, n)]
    for name in names:
        for count in (1, 2, 3):
            found = []
            for m in (torch, lucid_gpu):
                x = m.tensor([[0.5, 0.25], [0.125, 0.75]], requires_grad=True)
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        result = getattr(m, name)(*[x] * count)
                except Exception:
                    found.append("refused")
                    continue
                parts = result if isinstance(result, (tuple, list)) else [result]
                found.append([getattr(part, "requires_grad", None) for part in parts])
            assert "refused" in found or found[0] == found[1], (name, count)


def test_backward_refuses_heaviside():
    for m, _ in modules():
        x = m.tensor([-1.0, 0.0, 2.0], requires_grad=True)
        for y in (m.heaviside(x, x), m.heaviside(x.detach(), x), m.heaviside(x, x.detach())):
            with pytest.raises(RuntimeError, match="derivative for aten::heaviside is not impl"):
                y.sum().backward()


def test_asarray_keeps_the_history_of_a_tensor():
    def run(m):
        x = m.tensor([1.0, 2.0], requires_grad=True)
        y = x * 2
        made = [
            m.asarray(x), m.asarray(y), m.asarray(y, copy=True), m.asarray(x, dtype=m.float64),
            m.asarray(y, requires_grad=True), m.asarray(y, requires_grad=False),
            m.asarray(y.detach(), requires_grad=True),
        ]  # fmt: skip
        return [(z is x, z is y, z.requires_grad, z.is_leaf) for z in made]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert run(lucid_gpu) == run(torch_module())
    with pytest.warns(UserWarning, match="now defaults to obj.requires_grad"):
        lucid_gpu.asarray(lucid_gpu.ones(2, requires_grad=True))

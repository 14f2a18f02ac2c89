"""Values, types and shapes are those of array-api-strict, the standard's own implementation."""

import math
import warnings

import numpy
import pytest

import lucid_gpu
import lucid_gpu.array_api as xp

strict = pytest.importorskip("array_api_strict", reason="`pip install array-api-strict`")

inf, nan = math.inf, math.nan
RNG = numpy.random.default_rng(0)
F, M = RNG.normal(size=(2, 3)), RNG.normal(size=(2, 3, 4))
S = numpy.stack([a @ a.T + numpy.eye(3) for a in RNG.normal(size=(2, 3, 3))])
C = F + 1j * RNG.normal(size=(2, 3))
I8, I32 = numpy.asarray([[1, -2, 3], [4, 4, 0]], "i1"), numpy.asarray([[3, 1, 2]], "i4")
B, U8 = numpy.asarray([[True, False, True]]), numpy.asarray([0, 3, 250], "u1")
PLACES, V = numpy.asarray([2, 0]), numpy.asarray([1.0, 2.0, 2.0, 5.0])
F32, ZERO_D = F.astype("f4"), numpy.asarray(2.5)

# a call with the namespace and arrays, and the arrays
CASES = {
    "add in the common type": (lambda xp, a, b: xp.add(a, b), I8, I32),
    "add of a number without dimensions": (lambda xp, a, b: xp.add(a, b), F32, ZERO_D),
    "add of Python's number": (lambda xp, a: xp.add(0.5, a), F32),
    "all": (lambda xp, a: xp.all(a, axis=1), I8),
    "any": (lambda xp, a: xp.any(a, axis=(0, 1), keepdims=True), I8),
    "argmax": (lambda xp, a: (xp.argmax(a), xp.argmax(a, axis=1, keepdims=True)), F),
    "argmin": (lambda xp, a: (xp.argmin(a, axis=-1), xp.argmin(a, keepdims=True)), F),
    "argsort": (lambda xp, a: xp.argsort(a, descending=True), I8),
    "astype": (lambda xp, a: (xp.astype(a, xp.int8), xp.astype(a, xp.bool)), F * 9),
    "broadcast_arrays": (lambda xp, a, b: xp.broadcast_arrays(a, b), I8, I32),
    "broadcast_to": (lambda xp, a: xp.broadcast_to(a, (2, 2, 3)), F),
    "clip": (lambda xp, a: (xp.clip(a, -0.5, 0.5), xp.clip(a, max=0)), F),
    "clip of integers": (lambda xp, a: (xp.clip(a, -1, 2), xp.clip(a)), I8),
    "concat": (lambda xp, a, b: xp.concat([a, b], axis=0), I8, I32),
    "concat flat": (lambda xp, a, b: xp.concat([a, b], axis=None), I8, I32),
    "count_nonzero": (lambda xp, a: xp.count_nonzero(a, axis=1, keepdims=True), I8),
    "cumulative_sum": (lambda xp, a: xp.cumulative_sum(a, axis=1, include_initial=True), I8),
    "cumulative_sum in a type": (
        lambda xp, a: xp.cumulative_sum(a, axis=0, dtype=xp.int16),
        I8,
    ),
    "cumulative_prod": (lambda xp, a: xp.cumulative_prod(a, axis=0), F32),
    "diff": (lambda xp, a, b: xp.diff(a, prepend=b, n=2), I8, I8[:, :1].astype("i4")),
    "expand_dims": (lambda xp, a: (xp.expand_dims(a, axis=-1), xp.expand_dims(a, axis=1)), F),
    "eye": (lambda xp: xp.eye(3, 4, k=1, dtype=xp.int8),),
    "flip": (lambda xp, a: (xp.flip(a), xp.flip(a, axis=-1)), F),
    "full": (lambda xp: (xp.full((2,), True), xp.full(2, 3), xp.full((), 1j, dtype=xp.complex64)),),
    "full_like": (lambda xp, a: xp.full_like(a, 7), I8),
    "arange": (lambda xp: (xp.arange(5), xp.arange(5, 0), xp.arange(7, 1, -2), xp.arange(1, 4)),),
    "linspace": (lambda xp: xp.linspace(0, 1, 4, endpoint=False, dtype=xp.float64),),
    "linspace of complex": (lambda xp: xp.linspace(0, 1 + 2j, 3, dtype=xp.complex128),),
    "matmul": (lambda xp, a, b: xp.matmul(a, xp.matrix_transpose(b)), I8, I32),
    "max": (lambda xp, a: (xp.max(a), xp.max(a, axis=(0, 2))), M),
    "mean": (lambda xp, a: xp.mean(a, axis=(0, -1), keepdims=True), M),
    "meshgrid": (lambda xp, a, b: xp.meshgrid(a, b, indexing="ij"), V, V[:2]),
    "min": (lambda xp, a: xp.min(a, axis=1, keepdims=True), I8),
    "moveaxis": (lambda xp, a: xp.moveaxis(a, (0, 1), (2, 0)), M),
    "nonzero": (lambda xp, a: xp.nonzero(a), I8),
    "permute_dims": (lambda xp, a: xp.permute_dims(a, (2, 0, 1)), M),
    "prod": (lambda xp, a: (xp.prod(a), xp.prod(a, axis=0, dtype=xp.int8)), I8),
    "real": (lambda xp, a: (xp.real(a), xp.imag(a), xp.conj(a)), C),
    "repeat": (lambda xp, a, k: xp.repeat(a, k, axis=0), F, PLACES),
    "repeat flat": (lambda xp, a: xp.repeat(a, 2), F),
    "reshape": (lambda xp, a: xp.reshape(a, (3, -1), copy=True), F),
    "roll": (lambda xp, a: (xp.roll(a, 2), xp.roll(a, (1, -1), axis=(0, 1))), F),
    "round of complex": (lambda xp, a: (xp.round(a * 2), xp.sign(a)), C),
    "searchsorted": (lambda xp, a, b: xp.searchsorted(a, b, side="right"), V, F),
    "searchsorted, put in order": (
        lambda xp, a, b: xp.searchsorted(a, b, sorter=xp.argsort(a)),
        V[::-1].copy(),
        F,
    ),
    "sort": (lambda xp, a: (xp.sort(a, axis=0), xp.sort(a, descending=True)), F),
    "squeeze": (lambda xp, a: (xp.squeeze(a, 0), xp.squeeze(a, ())), I32),
    "stack": (lambda xp, a, b: xp.stack([a, b], axis=-1), I8[:1], I32),
    "std": (lambda xp, a: (xp.std(a, correction=1), xp.std(a, axis=0)), F),
    "sum": (lambda xp, a: (xp.sum(a), xp.sum(a, axis=1, dtype=xp.int8, keepdims=True)), I8),
    "sum of truth": (lambda xp, a: xp.sum(xp.astype(a, xp.int32), axis=()), B),
    "sum of float32": (lambda xp, a: xp.sum(a, axis=(0, 1)), F32),
    "take": (lambda xp, a, k: xp.take(a, k, axis=-1), F, PLACES),
    "take_along_axis": (lambda xp, a, k: xp.take_along_axis(a, k, axis=1), F, I32[:, :2] % 3),
    "tensordot": (lambda xp, a, b: xp.tensordot(a, b, axes=((1,), (1,))), F32, M),
    "tile": (lambda xp, a: (xp.tile(a, (2,)), xp.tile(a, (2, 1, 2))), F),
    "tril": (lambda xp, a: (xp.tril(a, k=1), xp.triu(a)), M),
    "unique_all": (lambda xp, a: xp.unique_all(a), I8),
    "unique_all with NaN": (lambda xp, a: xp.unique_all(a), numpy.asarray([nan, 2, nan, 1, 2])),
    "unique_counts": (lambda xp, a: xp.unique_counts(a), B),
    "unique_inverse": (lambda xp, a: xp.unique_inverse(a), V),
    "unique_values": (lambda xp, a: xp.unique_values(a), V[:0]),
    "unique_values of complex": (lambda xp, a: xp.unique_values(a), numpy.asarray([1j, 2, 1j, 0])),
    "unstack": (lambda xp, a: xp.unstack(a, axis=1), F),
    "var": (lambda xp, a: xp.var(a, axis=(1, 2), correction=0.5, keepdims=True), M),
    "vecdot": (lambda xp, a, b: xp.vecdot(a, b), I8, I32),
    "vecdot of complex": (lambda xp, a: xp.vecdot(a, a, axis=-2), C),
    "where": (lambda xp, c, a, b: xp.where(c, a, b), B, I8, I32),
    "where of a number": (lambda xp, c, a: xp.where(c, 0.5, a), B, F32),
    "linalg.cholesky": (lambda xp, a: xp.linalg.cholesky(a, upper=True), S),
    "linalg.cross": (lambda xp, a, b: xp.linalg.cross(a, b), F, F[:1] + 1),
    "linalg.det": (lambda xp, a: (xp.linalg.det(a), xp.linalg.inv(a)), S),
    "linalg.diagonal": (lambda xp, a: xp.linalg.diagonal(a, offset=1), M),
    "linalg.eigh": (lambda xp, a: (xp.linalg.eigh(a).eigenvalues, xp.linalg.eigvalsh(a)), S),
    "linalg.matrix_norm": (lambda xp, a: [xp.linalg.matrix_norm(a, ord=p) for p in NORMS], M),
    "linalg.matrix_power": (lambda xp, a: xp.linalg.matrix_power(a, -2), S),
    "linalg.matrix_rank": (lambda xp, a: xp.linalg.matrix_rank(a, rtol=0.1), M),
    "linalg.outer": (lambda xp, a, b: xp.linalg.outer(a, b), V, U8.astype("f4")),
    "linalg.pinv": (lambda xp, a: xp.linalg.pinv(a), M),
    "linalg.qr": (lambda xp, a: abs(xp.linalg.qr(a).R), M),
    "linalg.slogdet": (lambda xp, a: xp.linalg.slogdet(a), S),
    "linalg.solve": (lambda xp, a, b: xp.linalg.solve(a, b), S, V[:3]),
    "linalg.svd": (lambda xp, a: abs(xp.linalg.svd(a, full_matrices=False).Vh), M),
    "linalg.svdvals": (lambda xp, a: xp.linalg.svdvals(a), M),
    "linalg.trace": (lambda xp, a: (xp.linalg.trace(a), xp.linalg.trace(a, offset=1)), I8),
    "linalg.vector_norm": (
        lambda xp, a: [xp.linalg.vector_norm(a, axis=1, ord=p) for p in (1, 2, 3, inf, -inf, 0)],
        F,
    ),
    "linalg.vector_norm of all": (lambda xp, a: xp.linalg.vector_norm(a, keepdims=True), C),
    "fft.fft": (lambda xp, a: (xp.fft.fft(a, n=4), xp.fft.ifft(a, norm="ortho")), C),
    "fft.rfft": (lambda xp, a: (xp.fft.rfft(a, axis=0), xp.fft.ihfft(a)), F),
    "fft.irfft": (lambda xp, a: (xp.fft.irfft(a), xp.fft.hfft(a, n=5, norm="forward")), C),
    "fft.fftn": (lambda xp, a: (xp.fft.fftn(a), xp.fft.ifftn(a, axes=(0,))), C),
    "fft.rfftn": (lambda xp, a: xp.fft.rfftn(a, s=(3, 2), axes=(0, 1)), F),
    "fft.irfftn": (lambda xp, a: xp.fft.irfftn(a), C),
    "fft.fftfreq": (lambda xp: (xp.fft.fftfreq(5, d=0.5, dtype=xp.float32),),),
    "fft.rfftfreq": (lambda xp: (xp.fft.rfftfreq(6, dtype=xp.float64),),),
    "fft.fftshift": (lambda xp, a: (xp.fft.fftshift(a), xp.fft.ifftshift(a, axes=1)), F),
}
NORMS = ("fro", "nuc", 1, -1, 2, -2, inf, -inf)


@pytest.mark.parametrize("case", CASES)
def test_values(case, device):
    call, *arrays = CASES[case]
    agree(
        call(xp, *[xp.asarray(a, device=device) for a in arrays]),
        call(strict, *[strict.asarray(a) for a in arrays]),
    )


def agree(found, wanted):
    if isinstance(wanted, (tuple, list)):
        assert len(found) == len(wanted)
        for f, w in zip(found, wanted, strict=True):
            agree(f, w)
        return
    if isinstance(wanted, int):
        assert found == wanted
        return
    assert isinstance(found, lucid_gpu.Tensor)
    w = numpy.asarray(wanted._array)
    assert (found.dtype.name, tuple(found.shape)) == (str(w.dtype), w.shape)
    close = 1e-5 if w.dtype.itemsize <= 4 or w.dtype == "c8" else 1e-10
    numpy.testing.assert_allclose(found.detach().cpu().numpy(), w, rtol=close, atol=close)


# --- elementwise: rows of the op table, whose kernels its own tests run on every device -----------

REAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 2.5, inf, -inf, nan, 3.7]
VALUES = {
    "bool": [True, False],
    "int16": [0, -3, 5, 100],
    "uint8": [0, 1, 3, 250],
    "float32": REAL,
    "float64": REAL,
    "complex128": [0j, 1 + 2j, -1.5 - 0.5j, -1j, 2.5 + 0j],
}
ONE = "abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag "
ONE += "isfinite isinf isnan log log10 log1p log2 logical_not negative positive real reciprocal "
ONE += "round sign signbit sin sinh sqrt square tan tanh trunc"
TWO = "add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor "
TWO += "copysign divide equal floor_divide greater greater_equal hypot less less_equal logaddexp "
TWO += "logical_and logical_or logical_xor maximum minimum multiply nextafter not_equal pow "
TWO += "remainder subtract"


@pytest.mark.parametrize("name", ONE.split())
def test_functions_of_one_array(name):
    tried = [compared(name, (values, d)) for d, values in VALUES.items()]
    assert any(tried)


@pytest.mark.parametrize("name", TWO.split())
def test_functions_of_two_arrays(name):
    tried = []
    for d, values in VALUES.items():
        if name == "floor_divide":  # of infinities the package has NaN, the standard infinities
            values = [v for v in values if abs(v) != inf]
        others = values
        if "shift" in name or name in ("floor_divide", "remainder", "pow"):
            others = values if isinstance(values[0], float) else [1, 3, 2]
        left = [v for v in values for _ in others]
        tried.append(compared(name, (left, d), (others * len(values), d)))
        tried += [compared(name, (others, d), (VALUES[e][1], e)) for e in VALUES]
    assert any(tried)


def compared(name, *operands):
    """Whether the standard has the function for such operands; then it must agree."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            wanted = getattr(strict, name)(
                *[strict.asarray(v, dtype=getattr(strict, d)) for v, d in operands]
            )
        except (TypeError, ValueError, OverflowError):
            return False
    found = getattr(xp, name)(*[xp.asarray(v, dtype=getattr(xp, d)) for v, d in operands])
    agree(found, wanted)
    if found.dtype.is_floating_point:
        w = numpy.asarray(wanted._array)
        signs = numpy.signbit(found.numpy()) == numpy.signbit(w)
        assert signs[w == 0].all(), "the sign of zero"
    return True


# --- types ---------------------------------------------------------------------------------------

TYPES = ("bool", "int8", "int32", "uint8", "float32", "float64", "complex64")


@pytest.mark.parametrize("first", TYPES)
def test_types(first):
    for second in TYPES:
        d, e = getattr(xp, first), getattr(xp, second)
        try:
            wanted = strict.result_type(getattr(strict, first), getattr(strict, second))
        except TypeError:
            wanted = None  # mixed kinds: the standard leaves it open
        if wanted is not None:
            assert xp.result_type(d, e).name == str(wanted).rpartition(".")[2]
            assert xp.result_type(xp.ones((), dtype=d), xp.ones(2, dtype=e)).name == (
                xp.result_type(d, e).name
            )
            assert xp.can_cast(d, e) == strict.can_cast(
                getattr(strict, first), getattr(strict, second)
            )
    for kind in ("bool", "signed integer", "unsigned integer", "integral", "real floating"):
        assert xp.isdtype(d, kind) == strict.isdtype(getattr(strict, first), kind)
        assert xp.isdtype(d, (kind, "numeric", d))


def test_mixed_kinds_are_promoted_alike():
    a, b = xp.ones(2, dtype=xp.int64), xp.ones(2, dtype=xp.float32)
    for call in (xp.add, xp.matmul, lambda a, b: xp.concat([a, b]), lambda a, b: xp.stack([a, b])):
        assert call(a, b).dtype == xp.result_type(a, b) == xp.float32
    assert xp.where(a > 0, a, b).dtype == xp.float32
    with pytest.raises(TypeError, match="at least one of the operands"):
        xp.concat([])


def test_limits():
    for name in ("float32", "float64", "complex64"):
        found, wanted = xp.finfo(getattr(xp, name)), strict.finfo(getattr(strict, name))
        for what in ("bits", "eps", "max", "min", "smallest_normal"):
            assert getattr(found, what) == getattr(wanted, what)
        assert found.dtype.name == str(wanted.dtype).rpartition(".")[2]
    for name in ("int8", "uint8", "int64"):
        found, wanted = xp.iinfo(getattr(xp, name)), strict.iinfo(getattr(strict, name))
        assert (found.bits, found.max, found.min) == (wanted.bits, wanted.max, wanted.min)
    assert xp.finfo(xp.ones(1, dtype=xp.float64)).bits == 64


# --- arrays taken in -----------------------------------------------------------------------------


def test_asarray(device):
    base = numpy.ones(2)
    assert xp.asarray(0.1, dtype=xp.float64).item() == 0.1
    x = xp.asarray(base, device=device)
    assert x.dtype == xp.float64
    assert x.device.type == device
    assert xp.asarray(x) is x
    assert xp.asarray(x, copy=True) is not x
    assert xp.asarray(x, copy=False) is x
    if device == "cpu":
        base[0] = 5
        assert x.tolist() == [5, 1]
        assert xp.asarray(base, copy=False).tolist() == [5, 1]
        copied = xp.asarray(base, copy=True)
        base[0] = 6
        assert copied.tolist() == [5, 1]
    for needs in ([1.0, 2.0], 3):
        with pytest.raises(ValueError, match="needs a copy"):
            xp.asarray(needs, copy=False)
    with pytest.raises(ValueError, match="needs a copy"):
        xp.asarray(x, dtype=xp.float32, copy=False)


def test_a_list_of_tensors_keeps_gradients(device):
    x = lucid_gpu.tensor([1.0, 2.0], device=device, requires_grad=True)
    y = xp.asarray([[x[0], 3.0], [x[1] ** 2, 0.0]])
    assert y.device.type == device
    xp.sum(y).backward()
    assert x.grad.tolist() == [1.0, 4.0]


# --- what is refused -----------------------------------------------------------------------------

REFUSED = [
    (ValueError, "needs axis=", lambda x: xp.take(x, xp.asarray([0]))),
    (IndexError, "out of bounds", lambda x: xp.take(x, xp.asarray([7]), axis=0)),
    (ValueError, "at least one dimension", lambda x: xp.nonzero(xp.asarray(1.0))),
    (ValueError, "at least one dimension", lambda x: xp.matmul(x, xp.asarray(1.0))),
    (ValueError, "at least one array or dtype", lambda x: xp.result_type(1.0, 2)),
    (TypeError, "at least one of the operands", lambda x: xp.add(1, 2)),
    (TypeError, "write astype", lambda x: xp.astype(xp.asarray([1j]), xp.float32)),
    (ValueError, "kind must be", lambda x: xp.isdtype(xp.int8, "float")),
    (ValueError, "cannot select an axis", lambda x: xp.squeeze(x, 0)),
    (IndexError, "out of bounds", lambda x: xp.sum(x, axis=5)),
    (ValueError, "side must be", lambda x: xp.searchsorted(x[0], x, side="middle")),
    (ValueError, "copy=False", lambda x: xp.reshape(x.T, (6,), copy=False)),
    (ValueError, "vecdot: axis", lambda x: xp.vecdot(x, x, axis=1)),
    (ValueError, "requires axis=", lambda x: xp.cumulative_sum(x)),
]


@pytest.mark.parametrize(("error", "words", "call"), REFUSED)
def test_refusals(error, words, call):
    with pytest.raises(error, match=words):
        call(xp.ones((2, 3)))

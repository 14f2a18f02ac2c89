"""Running sums: the CUDA C on the host and the NumPy twin against float64, the op against torch."""

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import dtypes as dt
from lucid_gpu.autograd import gradcheck, gradgradcheck
from lucid_gpu.device import CPU
from lucid_gpu.func import jvp, vmap
from lucid_gpu.kernels import cumsum as family
from tests.oracle import agree, gives, same_error
from tests.slow import slow_but

normal = np.random.default_rng(0).standard_normal
TOLERANCE = {
    "float32": 1e-4,
    "float64": 1e-11,
    "float16": 1e-3,
    "bfloat16": 8e-3,
    "complex64": 1e-4,
}
SHAPES = [
    ((1,), 0), ((31, 3), 0), ((3, 33), 1), ((2, 1023), 1), ((2, 1025), 1), ((1, 2**14 + 3), 1),
    ((2, 2**14), 1), ((1025, 3), 0), ((1025, 4), 0), ((2, 700, 4), 1), ((3, 5, 7), 1), ((5, 1), 0),
    ((5, 100), 0), ((0, 3), 0), ((0, 3), 1), ((3, 0), 1),
]  # fmt: skip


@pytest.fixture(params=["numpy", "cuda c"])
def executor(request, monkeypatch):
    if request.param == "cuda c":
        monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)


def exact(x, dim, reverse):
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    if reverse:
        return np.flip(np.cumsum(np.flip(wide, dim), dim), dim)
    return np.cumsum(wide, dim)


@pytest.mark.each_value
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", slow_but(TOLERANCE, "float32"))
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_sums_are_those_of_float64(shape, dim, name, reverse, executor):
    d = dt.BY_NAME[name]
    x = (normal(shape) * 2).astype(d.numpy)
    found = family.cumsum(x, dim, d, CPU, reverse)
    assert (found.shape, found.dtype) == (x.shape, d.numpy)
    wanted = exact(x, dim, reverse)
    scale = max(np.abs(wanted).max(initial=0), 1)
    np.testing.assert_allclose(
        found.astype(wanted.dtype), wanted, rtol=TOLERANCE[name], atol=TOLERANCE[name] * scale
    )


@pytest.mark.each_value
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
@pytest.mark.parametrize("name", slow_but(["bool", "uint8", "int32", "int64"], "uint8"))
def test_integers_are_added_in_int64(name, shape, dim, reverse, executor):
    x = np.random.default_rng(1).integers(0, 200, shape).astype(dt.BY_NAME[name].numpy)
    found = family.cumsum(x, dim, dt.int64, CPU, reverse)
    np.testing.assert_array_equal(found, exact(x, dim, reverse).astype(np.int64))


@pytest.mark.each_value
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.reshape(-1)[1:].reshape(-1, 3),  # begins one element into its buffer
        lambda x: x.T,
        lambda x: x[::-1, ::2],
        lambda x: np.broadcast_to(x[:1], x.shape),
    ],
)
@pytest.mark.parametrize("dim", [0, 1])
def test_layouts(view, dim, executor):
    x = view(normal((31, 40)).astype(np.float32))
    np.testing.assert_allclose(
        family.cumsum(x, dim, dt.float32, CPU), exact(x, dim, False), rtol=1e-4, atol=1e-4
    )


def test_halves_are_added_in_float32(executor):
    ones = np.ones(5000, np.float16)
    assert family.cumsum(ones, 0, dt.float16, CPU)[-1] == 5000  # float16 counts up to 2048


def test_the_same_input_gives_the_same_bits(executor):
    x = normal(2**14 + 3).astype(np.float32)
    first, again = [family.cumsum(x, 0, dt.float32, CPU).tobytes() for _ in "12"]
    assert first == again


def launched(function):
    with lucid_gpu.profiler.record() as log:
        function()
    return [(k.name, k.bytes_read, k.bytes_written) for k in log.kernels]


def test_one_kernel_reads_and_writes_each_element_once(monkeypatch):
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    x = lucid_gpu.ones(6, 100, requires_grad=True)
    (forward,) = launched(lambda: x.cumsum(1))
    assert forward[1:] == (2400, 2400)
    y, g = x.cumsum(0), lucid_gpu.ones(6, 100)
    g.numpy()
    (backward,) = launched(lambda: lucid_gpu.autograd.grad(y, x, g))
    assert backward[1:] == (2400, 2400)  # no flipped copies
    small = lucid_gpu.ones(64, dtype=lucid_gpu.uint8)
    small.numpy()
    (counts,) = launched(lambda: small.cumsum(0))
    assert counts[1:] == (64, 512)  # widened as it is read


def test_a_long_row_is_cut_into_chunks(monkeypatch):
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    x = lucid_gpu.ones(2**14)
    x.numpy()
    totals, scan, last = launched(lambda: x.cumsum(0))
    assert totals == ("lucid_cumsum_rows_totals_float32_float32", 2**16, 16)
    assert scan[1:] == (16, 16)
    assert last[1:] == (2**16 + 16, 2**16)


# --- the op ---------------------------------------------------------------------------------------


@pytest.mark.each_value
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize(
    "x", [normal((4, 5)), normal((5, 4)).T, normal((3, 4, 2)), normal((0, 3)), normal((3, 1))]
)
def test_agrees_with_torch(x, dim, device):
    agree(lambda m, x: x.cumsum(dim) * x, x, device=device)


@pytest.mark.each_value
@pytest.mark.parametrize("name", ["bool", "uint8", "int16", "int64", "float16", "bfloat16"])
@pytest.mark.parametrize("to", [None, "int64", "float32", "int32"])
def test_types_are_torchs(name, to, device):
    def sums(m, where):
        x = m.tensor([1, 0, 3, 2], device=where).to(getattr(m, name))
        y = m.cumsum(x, 0) if to is None else m.cumsum(x, 0, dtype=getattr(m, to))
        return str(y.dtype).rpartition(".")[2], y.double()

    d = to or (name if "float" in name else "int64")
    last = [1, 1, 2, 3] if name == "bool" else [1, 1, 4, 6]
    gives((d, last), sums, device)


def test_in_place(device):
    def sums(m, where):
        x = m.tensor([[1, 2], [3, 4]], dtype=m.int32, device=where)
        x.cumsum_(0)
        y = m.ones(3, device=where, requires_grad=True)
        (y * 2).cumsum_(0).sum().backward()
        return x, str(x.dtype).rpartition(".")[2], y.grad

    gives(([[1, 2], [4, 6]], "int32", [6, 4, 2]), sums, device)


def test_no_dimensions_and_misuse(device):
    gives(2.0, lambda m, where: m.tensor(2.0, device=where).cumsum(0), device)
    same_error(lambda m: m.ones(3).cumsum(1), "Dimension out of range")


@pytest.mark.each_value
@pytest.mark.parametrize("dim", [0, 1])
def test_first_and_second_gradients(dim, executor):
    x = lucid_gpu.tensor(normal((3, 4)), requires_grad=True)
    assert gradcheck(lambda x: x.cumsum(dim), (x,), check_forward_ad=True)
    assert gradgradcheck(lambda x: (x * x).cumsum(dim), (x,))
    assert gradcheck(lambda x: x.T.cumsum(dim) * x.T, (x,))


def test_forward_mode_and_vmap(device):
    x, t = [lucid_gpu.tensor(normal((3, 4)), device=device) for _ in "12"]
    _, tangent = jvp(lambda x: x.cumsum(1), (x,), (t,))
    lucid_gpu.testing.assert_close(tangent, t.cumsum(1))
    lucid_gpu.testing.assert_close(vmap(lambda r: r.cumsum(0))(x), x.cumsum(1))
    lucid_gpu.testing.assert_close(vmap(lambda r: r.cumsum(-1), 1, 1)(x), x.cumsum(0))
    pulled = vmap(lucid_gpu.func.grad(lambda r: (r.cumsum(0) * r).sum()))(x)
    whole = lucid_gpu.func.grad(lambda x: (x.cumsum(1) * x).sum())(x)
    lucid_gpu.testing.assert_close(pulled, whole)

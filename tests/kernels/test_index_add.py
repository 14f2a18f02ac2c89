"""Adding rows by number: CUDA C on the host and the NumPy twin against float64, ops and torch."""

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import dtypes as dt
from lucid_gpu.autograd import gradcheck, gradgradcheck
from lucid_gpu.device import CPU
from lucid_gpu.func import jvp, vmap
from lucid_gpu.kernels import index_add as family
from lucid_gpu.nn import functional as F
from tests.oracle import agree, gives, same_error
from tests.slow import slow_but

rng = np.random.default_rng(0)
normal = rng.standard_normal
TOLERANCE = {"float32": 1e-5, "float64": 1e-12, "float16": 1e-3, "bfloat16": 8e-3}
SHAPES = [  # outer, values, rows, columns
    (1, 1, 1, 1), (1, 0, 3, 2), (1, 31, 7, 1), (2, 33, 5, 3), (1, 1023, 40, 4), (3, 1025, 2000, 2),
    (1, 2049, 3, 1), (1, 100, 1, 8), (2, 64, 4, 33), (1, 40, 50, 300), (1, 5, 3, 0),
]  # fmt: skip
SKEWS = {
    "even": lambda n, rows: rng.integers(0, rows, n),
    "all the same": lambda n, rows: np.full(n, rows - 1),
    "few": lambda n, rows: (rng.random(n) ** 8 * rows).astype(np.int64),
}


@pytest.fixture(params=["numpy", "cuda c"])
def executor(request, monkeypatch):
    if request.param == "cuda c":
        monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)


def exact(out, keys, values):
    wanted = out.astype(np.float64)
    for o in range(out.shape[0]):
        np.add.at(wanted[o], keys, values[o].astype(np.float64))
    return wanted


@pytest.mark.each_value
@pytest.mark.parametrize("skew", SKEWS)
@pytest.mark.parametrize("name", slow_but(TOLERANCE, "float32"))
@pytest.mark.parametrize(("outer", "count", "rows", "columns"), SHAPES)
def test_sums_are_those_of_float64(outer, count, rows, columns, name, skew, executor):
    d, keys = dt.BY_NAME[name], SKEWS[skew](count, rows)
    values = normal((outer, count, columns)).astype(d.numpy)
    for add, number in ((True, np.int64), (False, np.int32)):
        out = np.zeros((outer, rows, columns), d.numpy)
        if add:
            out[...] = normal(out.shape)
        wanted = exact(out, keys, values)
        family.index_add(out, keys.astype(number), values, CPU, add)
        scale = max(np.abs(wanted).max(initial=0), 1) * TOLERANCE[name]
        np.testing.assert_allclose(out.astype(np.float64), wanted, rtol=TOLERANCE[name], atol=scale)


@pytest.mark.each_value
@pytest.mark.parametrize("name", ["bool", "uint8", "int32", "int64", "complex64"])
def test_other_types(name, executor):
    d = dt.BY_NAME[name]
    keys = np.array([2, 0, 2, 2, 1] * 9)
    values = (np.arange(90) % 5).reshape(1, 45, 2).astype(d.numpy)
    if name == "complex64":
        values = values * np.complex64(1 + 2j)
    out = np.ones((1, 4, 2), d.numpy)
    wanted = out.copy()
    np.add.at(wanted[0], keys, values[0])
    family.index_add(out, keys, values, CPU)
    np.testing.assert_array_equal(out, wanted)


def test_rows_left_out(executor):
    out = np.zeros((1, 3, 4), np.float32)
    keys, values = np.array([0, 5, 1, -1, 2, 1]), np.ones((1, 6, 4), np.float32)
    family.index_add(out, keys, values, CPU, skip=2)
    assert out[0, :, 0].tolist() == [1, 2, 0]


def test_rows_wider_than_a_grid_is_high(monkeypatch):
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    monkeypatch.setattr(family, "LARGEST_GRID", 2)  # a GPU's 65535 means rows of 2 million columns
    keys, values = np.zeros(40, np.int64), normal((3, 40, 1301)).astype(np.float32)
    out = np.zeros((3, 2, 1301), np.float32)
    family.index_add(out, keys, values, CPU, False)
    np.testing.assert_allclose(out, exact(np.zeros_like(out), keys, values), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("start", [0, 1])
def test_values_that_begin_within_their_buffer(start, executor):
    buffer = normal(401).astype(np.float32)
    values = buffer[start : start + 400].reshape(1, 100, 4)
    keys, out = SKEWS["few"](100, 6), np.zeros((1, 6, 4), np.float32)
    wanted = exact(out, keys, values)
    family.index_add(out, keys, values, CPU, False)
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5)


def test_the_same_input_gives_the_same_bits(executor):
    keys, values = SKEWS["few"](3000, 9), normal((1, 3000, 3)).astype(np.float32)
    found = set()
    for _ in range(2):
        out = np.zeros((1, 9, 3), np.float32)
        family.index_add(out, keys, values, CPU, False)
        found.add(out.tobytes())
    assert len(found) == 1


INDICES = {
    "rows": (np.array([1, 1, 0]),),
    "from the end": (np.array([-1, 0, -1]),),
    "in the middle": (slice(None), np.array([[1, 2], [2, 2]])),
    "two side by side": (slice(None), np.array([1, 1]), np.array([3, 3])),
    "with a number": (slice(None), 2, np.array([0, 0])),
    "apart": (np.array([0, 0]), slice(None), np.array([1, 1])),
    "part of a dimension": (slice(0, 1), np.array([1, 1])),
    "ellipsis": (..., np.array([1, 1, 3])),
    "new dimension": (None, np.array([1, 1])),
    "mask and numbers": (np.array([True, False]), np.array([1])),
    "small numbers": (slice(None), np.array([1, 1], np.int8)),
    "empty": (np.array([], np.int64),),
}


@pytest.mark.parametrize("name", INDICES)
def test_every_index_adds_up(name, executor):
    index, shape = INDICES[name], (2, 3, 4)
    wanted = np.zeros(shape)
    values = normal(wanted[index].shape)
    np.add.at(wanted, index, values)
    found = np.zeros(shape)
    family.add_at(found, index, values, CPU)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def launched(function):
    with lucid_gpu.profiler.record() as log:
        function()
    return {k.name: (k.bytes_read, k.bytes_written) for k in log.kernels}


def test_kernels_and_bytes_of_an_embedding_gradient(monkeypatch):
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    weight = lucid_gpu.zeros(50, 64, requires_grad=True)
    index = lucid_gpu.tensor(rng.integers(0, 50, 200))
    y, g = F.embedding(index, weight), lucid_gpu.ones(200, 64)
    g.numpy()
    found = launched(lambda: lucid_gpu.autograd.grad(y, weight, g))
    order = 200 * 2 * 4  # of keys, of where they were
    assert found == {
        "lucid_key_order_few_int64_int32": (200 * 8, order),
        "lucid_index_add_pieces_float32_float32_int32": (200 * 256 + order, 50 * 256),
        "lucid_index_add_edges_float32_float32_int32": (0, 0),  # sums of keys on a border only
    }


# --- the ops --------------------------------------------------------------------------------------

CUBE = normal((4, 3, 5))


def rows(x, *numbers):
    """A vector of positions on a tensor's device."""
    module = lucid_gpu if isinstance(x, lucid_gpu.Tensor) else pytest.importorskip("torch")
    return module.tensor(numbers, device=x.device)


def zeros(x, *shape):
    return rows(x, 0).expand(shape)


CASES = {
    "index_add": lambda m, x, s: m.index_add(x, 1, rows(x, 2, 2, 0), s[:, :3]) * x,
    "index_add, alpha": lambda m, x, s: x.index_add(0, rows(x, 1)[0], s[:1], alpha=-2) * s,
    "scatter_add": lambda m, x, s: m.scatter_add(x, 0, zeros(x, 2, 3, 4), s[:2, :, :4]) * x,
    "index_copy": lambda m, x, s: m.index_copy(x, 2, rows(x, 4, 0), s[..., :2]) * s,
    "index_select": lambda m, x, s: x.index_select(1, rows(x, 2, 2)) * s[:, :2],
    "in place": lambda m, x, s: (x * 1).index_add_(0, rows(x, 3, 3), s[:2]) * x,
    "scattered in place": lambda m, x, s: (x * 1).scatter_add_(2, zeros(x, 4, 3, 5), s) * x,
    "transposed": lambda m, x, s: x.mT.index_add(1, rows(x, 1, 1), s.mT[:, :2]) * x.mT,
    "gather": lambda m, x, s: x.gather(1, zeros(x, 4, 2, 5)) * s[:, :2],
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_torch(name, device):
    agree(CASES[name], CUBE, normal(CUBE.shape), device=device)


@pytest.mark.parametrize("executor", slow_but(["numpy", "cuda c"], "numpy"), indirect=True)
@pytest.mark.parametrize("name", slow_but(CASES, "scatter_add", "in place", "transposed"))
def test_first_and_second_gradients(name, executor):
    inputs = [lucid_gpu.tensor(normal((4, 3, 5)), requires_grad=True) for _ in "12"]

    def function(x, s):
        return CASES[name](lucid_gpu, x, s)

    assert gradcheck(function, inputs, check_forward_ad=True)
    assert gradgradcheck(function, inputs)


def test_a_source_larger_than_its_index():
    x, s = [lucid_gpu.tensor(normal((3, 4)), requires_grad=True) for _ in "12"]
    assert gradcheck(lambda x, s: x.scatter_add(0, zeros(x, 2, 3), s), (x, s))


def test_tangents(device):
    x, s, t, u = [lucid_gpu.tensor(normal((3, 4)), device=device) for _ in range(4)]
    index = lucid_gpu.tensor([1, 1, 0], device=device)
    _, tangent = jvp(lambda x, s: x.index_add(0, index, s), (x, s), (t, u))
    lucid_gpu.testing.assert_close(tangent, t.index_add(0, index, u))
    _, tangent = jvp(lambda s: x.index_add(0, index, s), (s,), (u,))
    lucid_gpu.testing.assert_close(tangent, lucid_gpu.zeros_like(x).index_add(0, index, u))


def test_batches(device):
    x, s = [lucid_gpu.tensor(normal((6, 4, 2)), device=device) for _ in "12"]
    index = lucid_gpu.tensor([1, 1, 3, 0], device=device)
    found = vmap(lambda x, s: x.index_add(0, index, s))(x, s)
    lucid_gpu.testing.assert_close(found, x.index_add(1, index, s))
    each = lucid_gpu.tensor(rng.integers(0, 4, (6, 4, 2)), device=device)
    found = vmap(lambda x, i, s: x.scatter_add(0, i, s))(x, each, s)
    lucid_gpu.testing.assert_close(found, x.scatter_add(1, each, s))


def test_in_place_writes_only_the_rows_it_adds_to(device):
    x = lucid_gpu.zeros(4, 2, device=device)
    before, view = x + 1, x[1]
    memory = x.array
    index = lucid_gpu.tensor([1, 1], device=device)
    assert x.index_add_(0, index, lucid_gpu.ones(2, 2, device=device)) is x
    assert view.tolist() == [2, 2]
    assert before.sum().item() == 8
    assert x._version == 1
    x.scatter_add_(1, lucid_gpu.zeros(4, 1, dtype=lucid_gpu.int64, device=device), x)
    assert x.tolist() == [[0, 0], [4, 2], [0, 0], [0, 0]]
    assert x.array is memory
    part = lucid_gpu.zeros(3, 4, device=device)
    part[:, ::2].index_add_(0, index, lucid_gpu.ones(2, 2, device=device))
    assert part.tolist() == [[0] * 4, [2, 0, 2, 0], [0] * 4]


def test_no_indices_and_no_dimensions(device):
    def results(m, where):
        none = m.zeros(0, dtype=m.int64, device=where)
        x, one = m.ones(2, 2, device=where), m.tensor(1.0, device=where)
        return (
            x.index_add(0, none, m.ones(0, 2, device=where)),
            x.scatter_add(0, none.reshape(0, 2), x),
            x.index_select(1, none).shape[1],
            one.index_add(0, m.tensor([0], device=where), one),
            one.scatter_add(0, m.tensor(0, device=where), one),
            m.zeros(0, 2, device=where).index_add(0, none, m.ones(0, 2, device=where)).shape[0],
        )

    gives(([[1, 1], [1, 1]], [[1, 1], [1, 1]], 0, 2.0, 2.0, 0), results, device)


def long(m, *numbers):
    return m.tensor(numbers)


MISUSE = {
    "type of index": (lambda m: m.ones(3).index_add(0, m.ones(1), m.ones(1)), "int32/int64"),
    "a matrix": (
        lambda m: m.ones(3).index_add(0, long(m, [0]), m.ones(1)),
        "index_add_(): Index is supposed to be a vector",
    ),
    "type of source": (
        lambda m: m.ones(3).index_add(0, long(m, 0), m.ones(1).double()),
        "must have the same scalar type",
    ),
    "count": (
        lambda m: m.ones(3).index_add(0, long(m, 0, 1), m.ones(3)),
        "Number of indices (2) should be equal to source.size(dim): (3), for dim: 0",
    ),
    "shape": (
        lambda m: m.ones(3, 4).index_add(0, long(m, 0, 1), m.ones(2, 5)),
        "Got self.shape = [3, 4] source.shape = [2, 5]",
    ),
    "dim": (lambda m: m.ones(3).index_add(1, long(m, 0), m.ones(1)), "Dimension out of range"),
    "type of places": (lambda m: m.ones(3).scatter_add(0, m.ones(1), m.ones(1)), "int32/int64"),
    "rank": (
        lambda m: m.ones(3, 4).scatter_add(0, long(m, 0), m.ones(1, 1)),
        "same number of dimensions",
    ),
    "size": (
        lambda m: m.ones(3, 4).scatter_add(0, long(m, [0, 1, 1]), m.ones(1, 2)),
        "Expected index [1, 3] to be no larger than self [3, 4] apart from dimension 0 and to be "
        "no larger size than src [1, 2]",
    ),
    "copied type": (
        lambda m: m.ones(3).index_copy(0, long(m, 0), m.ones(1).double()), "self"
    ),
    "selected by a matrix": (
        lambda m: m.ones(3).index_select(0, long(m, [0])),
        "index_select(): Index is supposed to be a vector",
    ),
    "a leaf": (
        lambda m: m.ones(3, requires_grad=True).index_add_(0, long(m, 0), m.ones(1)),
        "a leaf Variable that requires grad",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_in_torch(name):
    same_error(*MISUSE[name])


@pytest.mark.parametrize("place", [3, -1])
@pytest.mark.parametrize("name", ["index_add_", "scatter_add_", "index_copy_"])
def test_positions_out_of_range_change_nothing(name, place, device):
    x = lucid_gpu.zeros(3, device=device)
    index = lucid_gpu.tensor([0, place], device=device)
    words = f"index {place} is out of bounds for dimension 0 with size 3"
    with pytest.raises(RuntimeError if "scatter" in name else IndexError, match=words):
        getattr(x, name)(0, index, lucid_gpu.ones(2, device=device))
    assert (x.tolist(), x._version) == ([0, 0, 0], 0)


@pytest.mark.each_value
@pytest.mark.parametrize("name", ["float32", "float64", "int16", "complex64", "float16"])
@pytest.mark.parametrize("columns", [3, 9, 70_000])
def test_numpy_adds_in_order(columns, name):
    rng = np.random.default_rng(5)
    out, values = [(rng.standard_normal((2, n, columns)) * 5).astype(name) for n in (6, 40)]
    keys = rng.integers(-1, 7, 40)
    within = (keys >= 0) & (keys < 6) & (keys != 3)
    wide = "float32" if name == "float16" else name
    expected = out.astype(wide)
    for row in (0, 1):
        np.add.at(expected[row], keys[within], values[row, within].astype(wide))
    family._add_blocks(out, keys, values, 3)
    np.testing.assert_array_equal(out, expected.astype(name))

"""Row numbers in order: CUDA C on the host beside NumPy's stable sort."""

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.device import CPU
from lucid_gpu.kernels import key_order
from lucid_gpu.nn import functional as F
from tests.fusion.plans import needs_compiler

pytestmark = needs_compiler

rng = np.random.default_rng(0)
KEYS = {
    "even": lambda n, rows: rng.integers(0, rows, n),
    "all the same": lambda n, rows: np.full(n, rows - 1),
    "sorted": lambda n, rows: np.sort(rng.integers(0, rows, n)),
    "falling": lambda n, rows: np.sort(rng.integers(0, rows, n))[::-1].copy(),
    "few": lambda n, rows: (rng.random(n) ** 8 * rows).astype(np.int64),
    "from the end, then made positive": lambda n, rows: rng.integers(-rows, 0, n) % rows,
    "some outside": lambda n, rows: rng.integers(-rows - 1, 2 * rows + 1, n),
    "all outside": lambda n, rows: np.where(rng.random(n) < 0.5, -1, np.iinfo(np.int32).max),
}
COUNTS = [1, 255, 2047, 2048, 2049, 3072, 5000]


@pytest.fixture(autouse=True)
def on_host(monkeypatch):
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)


def check(keys, rows, skip=-1):
    found = key_order.in_order(keys, rows, skip, CPU)
    inside = (keys >= 0) & (keys < rows) & (keys != skip)
    normal = np.where(inside, keys, rows)
    order = np.argsort(normal, kind="stable")
    np.testing.assert_array_equal(found, [normal[order], order])
    return found


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("rows", [1, 2, 255, 256, 50_257, 65_536, 2**20])
def test_is_the_order_of_numpy(rows, name):
    for number, count in enumerate(COUNTS):
        keys = KEYS[name](count, rows).astype([np.int64, np.int32][number % 2])
        found = check(keys, rows, skip=int(keys[count // 2]) if number % 3 == 2 else -1)
        assert found.dtype == np.int32


@pytest.mark.parametrize("name", ["few", "some outside"])
def test_many_keys(name):
    check(KEYS[name](100_000, 50_257), 50_257)


@pytest.mark.parametrize("name", KEYS)
def test_with_many_multiprocessors_more_keys_are_a_few(name, monkeypatch):
    monkeypatch.setattr("lucid_gpu.launch.host.HostLauncher.processors", 100)
    assert key_order.few(CPU) == 7240
    for count, launches in ((7240, 1), (7241, 4)):
        with lucid_gpu.profiler.record() as log:
            check(KEYS[name](count, 5000), 5000, skip=3)
        assert len(log.kernels) == launches


@pytest.mark.parametrize("number", [np.int32, np.int64])
def test_where_32_bits_are_too_few(number, monkeypatch):
    assert check(rng.integers(2**31, 2**40, 3000), 2**40 - 1).dtype == np.int64
    monkeypatch.setattr(key_order, "LARGEST", 2)
    for count in (7, 3000):
        assert check(rng.integers(-1, 400, count).astype(number), 300).dtype == np.int64


def test_of_many_tiles_a_block_takes_several(monkeypatch):
    monkeypatch.setattr(key_order, "BLOCKS", 3)
    check(rng.integers(0, 300, 7777), 300)


@pytest.mark.parametrize("order", ["reversed", "5"])
def test_does_not_depend_on_which_block_comes_first(order, monkeypatch):
    monkeypatch.setenv("LUCID_HOST_ORDER", order)
    check(KEYS["few"](4100, 70_000), 70_000)


@pytest.mark.parametrize(("rows", "passes"), [(200, 1), (256, 2), (50_257, 2), (2**20, 3)])
def test_launches_and_bytes(rows, passes):
    count, digits = 4096, 4 * 256 * 4  # a count of each digit and block
    keys = KEYS["even"](count, rows)
    with lucid_gpu.profiler.record() as log:
        key_order.in_order(keys, rows, -1, CPU)
    found = [(k.name, k.bytes_read, k.bytes_written) for k in log.kernels]
    first = [
        ("lucid_key_order_counts_int64_int32", 8 * count, digits),
        ("lucid_key_order_move_int64_int32", 8 * count + digits, 8 * count),
    ]
    later = [
        ("lucid_key_order_counts_int32_int32", 4 * count, digits),
        ("lucid_key_order_move_int32_int32", 8 * count + digits, 8 * count),
    ]
    assert found == first + later * (passes - 1)


def test_an_embedding_gradient_of_many_keys_sorts_by_these_alone():
    weight = lucid_gpu.zeros(50_257, 4, requires_grad=True)
    index = lucid_gpu.tensor(rng.integers(0, 50_257, (3, 1000)))
    y, g = F.embedding(index, weight, padding_idx=7), lucid_gpu.ones(3, 1000, 4)
    g.numpy()
    with lucid_gpu.profiler.record() as log:
        (found,) = lucid_gpu.autograd.grad(y, weight, g)
    names = [k.name.partition("_")[2].partition("_int")[0] for k in log.kernels]
    assert names[:4] == ["key_order_counts", "key_order_move"] * 2
    assert len(names) == 6
    wanted = np.bincount(index.numpy().reshape(-1), minlength=50_257)
    wanted[7] = 0
    np.testing.assert_array_equal(found.numpy(), np.repeat(wanted[:, None], 4, 1))


@pytest.mark.parametrize("on_host_cuda", [True, False])
def test_places_of_keys_of_any_strides(on_host_cuda, monkeypatch):
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", on_host_cuda)
    for keys in (rng.integers(0, 50, 6000)[::2], rng.integers(0, 50, 9), np.empty(0, np.int64)):
        ordered, places = key_order.places_in_order(keys, 50)
        order = np.argsort(keys, kind="stable")
        np.testing.assert_array_equal(ordered, keys[order])
        np.testing.assert_array_equal(places, order)

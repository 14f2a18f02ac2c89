"""Positions outside a tensor: found by a kernel on the host as by NumPy; errors where they come."""

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.device import CPU
from lucid_gpu.kernels import bounds
from lucid_gpu.nn import functional as F


@pytest.fixture(params=["numpy", "cuda c"])
def executor(request, monkeypatch):
    if request.param == "cuda c":
        monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)


@pytest.mark.each_value
@pytest.mark.parametrize("d", [np.int8, np.int32, np.int64])
@pytest.mark.parametrize("count", [1, 255, 257, 1025])
def test_one_position_outside_is_found(count, d, executor):
    index = np.zeros(count, d)
    bounds.check(index, 5, 1, CPU)
    for place, position in ((0, 5), (count - 1, -6), (count // 2, 100)):
        wrong = index.copy()
        wrong[place] = position
        words = f"index {position} is out of bounds for dimension 1 with size 5"
        with pytest.raises(IndexError, match=words):
            bounds.check(wrong, 5, 1, CPU)
        bounds.check(index, 5, 1, CPU)  # told once


def test_ends_layouts_and_nothing(executor):
    bounds.check(np.array([-5, 4]), 5, 0, CPU)
    bounds.check(np.array([[0, 9], [4, 9]])[:, 0], 5, 0, CPU, 0)
    bounds.check(np.zeros(0, np.int64), 0, 0, CPU)
    with pytest.raises(IndexError, match="index -1"):
        bounds.check(np.array([-1]), 5, 0, CPU, 0)


READS = {
    "x[i]": lambda x, i: x[i],
    "index_select": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "embedding": lambda x, i: F.embedding(i, x),
    "index_add": lambda x, i: x.index_add(0, i, x[:2]),
}


@pytest.mark.parametrize("name", READS)
def test_a_read_outside_is_reported_by_the_time_its_result_is_seen(name, device):
    x, index = lucid_gpu.zeros(3, 2, device=device), lucid_gpu.tensor([0, 7], device=device)
    kind = RuntimeError if name in ("gather", "index_add") else IndexError  # as in PyTorch
    with pytest.raises(kind, match="7"):
        READS[name](x, index).tolist()
    assert READS[name](x, index * 0).sum().item() == 0  # the device goes on


WRITES = {
    "x[i] = 1": lambda x, i: x.__setitem__(i, 1.0),
    "index_add_": lambda x, i: x.index_add_(0, i, lucid_gpu.ones_like(x[:2])),
    "scatter_add_": lambda x, i: x.scatter_add_(0, i[:, None], lucid_gpu.ones_like(x)),
    "index_copy_": lambda x, i: x.index_copy_(0, i, lucid_gpu.ones_like(x[:2])),
    "index_put_": lambda x, i: x.index_put_((i,), lucid_gpu.ones_like(x[:2])),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_outside_is_refused_before_anything_changes(name, device):
    x, index = lucid_gpu.zeros(3, 2, device=device), lucid_gpu.tensor([0, 7], device=device)
    kind = RuntimeError if name in ("scatter_add_", "index_add_") else IndexError
    with pytest.raises(kind, match="index 7 is out of bounds for dimension 0 with size 3"):
        WRITES[name](x, index)
    assert x.tolist() == [[0, 0]] * 3


def test_a_gpu_is_not_waited_for(device):
    if device == "cpu":
        pytest.skip("the CPU raises at once")
    x, index = lucid_gpu.zeros(3, 2, device=device), lucid_gpu.tensor([0, 7], device=device)
    y = x[index]
    with pytest.raises(IndexError, match="index 7 is out of bounds for dimension 0 with size 3"):
        lucid_gpu.cuda.synchronize()
    assert tuple(y.shape) == (2, 2)
    with pytest.raises(IndexError), pytest.MonkeyPatch.context() as patch:
        patch.setenv("LUCID_EAGER", "1")
        x[index]

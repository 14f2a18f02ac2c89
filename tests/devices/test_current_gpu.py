"""Making a GPU the current one, and what "cuda" means while another one is."""

from __future__ import annotations

import pytest

import lucid_gpu
from lucid_gpu.devices import backend, resolve
from lucid_gpu.devices.current_gpu import on_gpu


@pytest.fixture
def second(device: str) -> None:
    if device != "cuda" or lucid_gpu.cuda.device_count() < 2:
        pytest.skip("there are not two GPUs")


def test_a_block_makes_a_gpu_the_current_one(second: None) -> None:
    cuda = backend(resolve("cuda")).xp.cuda
    for inner in (1, 0, None):
        with on_gpu(cuda, 1), on_gpu(cuda, inner):
            assert cuda.runtime.getDevice() == (1 if inner is None else inner)
        assert cuda.runtime.getDevice() == 0


def test_a_gpu_that_is_not_there_is_refused_by_the_op(second: None) -> None:
    assert lucid_gpu.ones(2, device="cuda:1").device.index == 1  # from here on ops follow tensors
    with pytest.raises(RuntimeError, match="invalid device ordinal: there is no device 9"):
        lucid_gpu.ones(2, device="cuda:9")


def test_the_default_device_is_found_when_a_tensor_is_made(second: None) -> None:
    with lucid_gpu.device("cuda"):
        assert lucid_gpu.ones(2).device.index == 0
        with lucid_gpu.cuda.device(1):
            assert lucid_gpu.ones(2).device.index == lucid_gpu.get_default_device().index == 1


@pytest.mark.skipif(lucid_gpu.cuda.is_available(), reason="there is a GPU")
def test_a_default_device_that_is_not_there_is_named_when_a_tensor_is_made() -> None:
    with lucid_gpu.device("cuda"):
        assert lucid_gpu.ones(2, device="cpu").device.type == "cpu"
        with pytest.raises(RuntimeError, match="no cuda device can be used"):
            lucid_gpu.ones(2)
    assert lucid_gpu.ones(2).device.type == "cpu"

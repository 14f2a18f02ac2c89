"""Which GPUs there are, and which one is current."""

from __future__ import annotations

import pytest

import lucid_gpu
from lucid_gpu import cuda

pytestmark = pytest.mark.usefixtures("gpu")
two = pytest.mark.skipif(cuda.device_count() < 2, reason="there is one GPU")


def test_properties_have_pytorchs_names():
    about = cuda.get_device_properties()
    assert about.name == cuda.get_device_name() == cuda.get_device_name("cuda:0")
    assert (about.major, about.minor) == cuda.get_device_capability(0)
    assert about.total_memory > 1 << 28 and about.multi_processor_count > 0
    assert about.warp_size == 32 and about.L2_cache_size > 0
    assert cuda.is_bf16_supported()
    free, total = cuda.mem_get_info()
    assert 0 < free <= total


def test_a_tensor_knows_its_gpus_number():
    assert lucid_gpu.zeros(1, device="cuda").get_device() == cuda.current_device()
    assert lucid_gpu.zeros(1).get_device() == -1


def test_a_gpu_that_is_not_there():
    with pytest.raises(AssertionError, match="Invalid device id 99"):
        cuda.get_device_properties(99)
    with pytest.raises(RuntimeError, match="invalid device ordinal: there is no device 99"):
        cuda.set_device(99)
    with pytest.raises(ValueError, match="Expected a cuda device, but got: cpu"):
        cuda.synchronize("cpu")


@two
def test_a_block_on_another_gpu():
    with cuda.device(1):
        assert cuda.current_device() == 1
        x = lucid_gpu.zeros(2, device="cuda")
    assert cuda.current_device() == 0 and str(x.device) == "cuda:1"
    with cuda.device_of(x):
        assert cuda.current_device() == 1
    with pytest.raises(KeyError), cuda.device("cuda:1"):
        raise KeyError
    assert cuda.current_device() == 0


@two
def test_values_in_another_order_are_computed_on_their_gpu():
    x = lucid_gpu.rand(2, 4, 3, 5, device="cuda:1").contiguous(
        memory_format=lucid_gpu.channels_last
    )
    y = x.masked_fill(x > 0.5, 0.0)
    assert cuda.current_device() == 0 and y.array.device.id == 1
    assert y.tolist() == x.cpu().masked_fill(x.cpu() > 0.5, 0.0).tolist()


@two
@pytest.mark.parametrize("step", ["optimizer", "clip", "foreach"])
def test_strided_tensors_of_another_gpu_are_written_in_place(step):
    p = lucid_gpu.arange(6.0, device="cuda:1").reshape(3, 2).t().requires_grad_()
    p.grad = lucid_gpu.ones(3, 2, device="cuda:1").t()
    before = p.tolist()
    if step == "optimizer":
        lucid_gpu.optim.SGD([p], lr=1.0).step()
    elif step == "clip":
        lucid_gpu.nn.utils.clip_grad_norm_([p], 1.0)
    else:
        lucid_gpu._foreach_sub_([p.detach()], 1.0)
    assert cuda.current_device() == 0 and p.device.index == 1
    change = 0.0 if step == "clip" else 1.0
    assert p.tolist() == [[x - change for x in row] for row in before]
    assert p.grad.norm().item() == pytest.approx(1.0 if step == "clip" else 6**0.5)


@two
def test_what_nobody_wrote_is_filled_on_another_gpu():
    lucid_gpu.use_deterministic_algorithms(True)
    try:
        assert lucid_gpu.empty(3, device="cuda:1").isnan().all()
    finally:
        lucid_gpu.use_deterministic_algorithms(False)


def test_ranges_have_a_depth():
    assert cuda.nvtx.range_push("outer") == 0
    with cuda.nvtx.range("step {}", 3):
        cuda.nvtx.mark("here")
        assert cuda.nvtx.range_push("inner") == 2
        assert cuda.nvtx.range_pop() == 2
    assert cuda.nvtx.range_pop() == 0
    assert cuda.nvtx.range_pop() == -1

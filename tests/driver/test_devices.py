"""Several devices: what lies where, copies between them, and what one may not reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
import pytest

import lucid_gpu as torch
from lucid_gpu import cuda


def test_there_are_two(driver: Any) -> None:
    assert cuda.device_count() == 2


def test_work_happens_where_its_tensors_are(driver: Any) -> None:
    x = torch.arange(6, dtype=torch.float32, device="cuda:1").reshape(2, 3).requires_grad_()
    loss = ((x @ x.T).tanh() + torch.randn(2, 2, device="cuda:1")).sum()
    loss.backward()
    assert str(loss.device) == str(x.grad.device) == "cuda:1"
    assert cuda.current_device() == 0
    y = torch.arange(6, dtype=torch.float32).reshape(2, 3).requires_grad_()
    (y @ y.T).tanh().sum().backward()
    np.testing.assert_allclose(x.grad.cpu().numpy(), y.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_copies_between_devices(driver: Any) -> None:
    for seed in range(6):
        with driver.order(seed):
            x = torch.arange(1000, device="cuda:0") * 2
            there = (x + 1).to("cuda:1")
            back = (there * 3).to("cuda:0")
            assert str(there.device) == "cuda:1" and str(back.device) == "cuda:0"
            assert back.cpu().equal((torch.arange(1000) * 2 + 1) * 3)


def test_gradients_come_back_to_where_they_belong(driver: Any) -> None:
    x = torch.ones(5, device="cuda:0", requires_grad=True)
    (x.to("cuda:1") * 3).sum().backward()
    assert str(x.grad.device) == "cuda:0" and x.grad.cpu().equal(torch.full((5,), 3.0))


def test_an_op_over_two_devices_is_refused(driver: Any) -> None:
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(2, device="cuda:0") + torch.ones(2, device="cuda:1")


def test_training_on_the_second_device(driver: Any) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2).to("cuda:1")
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(3, 4, device="cuda:1")
    first = None
    for _ in range(3):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        first = first or loss.item()
    assert loss.item() < first and {str(p.device) for p in model.parameters()} == {"cuda:1"}


REACHING = """
import cupy, numpy, driver_standin
source = r'extern "C" __global__ void reach(float* x) {{ x[0] = 5; }}'
with cupy.cuda.Device(1):
    x = cupy.zeros(4, numpy.float32)
    cupy.cuda.Device().synchronize()
if {allowed}:
    driver_standin.driver.driver_set_peer_access_possible(1)
    cupy.cuda.runtime.deviceEnablePeerAccess(1)
cupy.RawKernel(source, "reach")((1,), (1,), (numpy.uint64(x.data.ptr),))
try:
    cupy.cuda.Device().synchronize()
    print(float(x[0]))
except cupy.cuda.runtime.CUDARuntimeError as error:
    print(error)
"""


@pytest.mark.parametrize(
    "allowed, wanted",
    [(0, "cudaErrorIllegalAddress: an illegal memory access was encountered"), (1, "5.0")],
)
def test_a_kernel_reaches_another_device_only_where_allowed(
    in_process: Callable[[str], str], allowed: int, wanted: str
) -> None:
    assert in_process(REACHING.format(allowed=allowed)).strip() == wanted


def test_a_kernel_of_one_device_is_not_launched_on_another(driver: Any) -> None:
    source = 'extern "C" __global__ void one(float* x) { x[0] = 1; }'
    with cupy.cuda.Device(0):
        kernel = cupy.RawKernel(source, "one").kernel
    with cupy.cuda.Device(1):
        x = cupy.zeros(1, np.float32)
        with pytest.raises(cupy.cuda.driver.CUDADriverError, match="CUDA_ERROR_INVALID_HANDLE"):
            kernel((1,), (1,), (x,))

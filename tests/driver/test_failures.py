"""What lucid_gpu does and says when the driver fails it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

import lucid_gpu as torch
from lucid_gpu import cuda


def emptied() -> None:
    """The pool holds nothing that is free, so that what is allocated is asked of the driver."""
    gc.collect()
    cuda.empty_cache()


def step(weight: Any, x: Any) -> float:
    loss = ((x @ weight).tanh() * torch.randn(64, 64, device="cuda")).sum()
    (gradient,) = torch.autograd.grad(loss, weight)
    with torch.no_grad():
        weight -= 0.1 * gradient
    return float(loss.item())


def fail_each_allocation(driver: Any) -> None:
    """Fail the first allocation of a step, then the second, until the step needs no more."""
    x = torch.ones(64, 64, device="cuda")
    weight = torch.ones(64, 64, device="cuda", requires_grad=True)
    step(weight, x)  # everything is compiled
    before = weight.detach().clone()
    torch.manual_seed(1)
    wanted = step(weight, x)
    after = weight.detach().cpu()
    failed = 0
    for n in range(40):
        with torch.no_grad():
            weight.copy_(before)
        weight.detach().cpu()
        emptied()
        torch.manual_seed(1)
        with driver.failing_allocations(n, times=1000):
            try:
                step(weight, x)
            except cuda.OutOfMemoryError as error:
                assert str(error).startswith("CUDA out of memory. ")
            else:
                break
        failed += 1
        assert weight.detach().cpu().equal(before.cpu())
        torch.manual_seed(1)
        assert step(weight, x) == wanted and weight.detach().cpu().equal(after)
    assert 3 <= failed < 40


def test_any_allocation_may_fail_and_the_next_try_works(in_process: Callable[[str], str]) -> None:
    in_process(  # alone: what other tests left in the pool would be used instead
        "import driver_standin; from tests.driver.test_failures import fail_each_allocation; "
        "fail_each_allocation(driver_standin)"
    )


def test_an_allocation_that_fails_once_is_tried_again(driver: Any) -> None:
    emptied()
    retries = cuda.memory_stats()["num_alloc_retries"]
    with driver.failing_allocations(0, times=3):  # CuPy's pool itself asks three times
        x = torch.ones(1000, device="cuda") + 1
        assert x.sum().item() == 2000
    assert cuda.memory_stats()["num_alloc_retries"] == retries + 1


WRONG = """
import lucid_gpu as torch
from lucid_gpu import cuda
import cupy
from lucid_gpu.devices import gemm
x = torch.ones(4, device="cuda")
matrix = torch.ones(4, 4, device="cuda").array
(torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")).cpu()
(x + 1).cpu()
source = r'extern "C" __global__ void wrong(float* x) { x[1 << 24] = 1; }'
cupy.RawKernel(source, "wrong")((1,), (1,), (cupy.asarray(x.array),))
def told(call):
    try:
        call()
    except torch.AcceleratorError as error:
        print(error)
told(lambda: (x + 1).cpu())
told(lambda: (x * 2 - 1).cpu())
told(cuda.synchronize)
told(lambda: torch.randn(3, 3, device="cuda"))
told(lambda: gemm.multiply(cupy, matrix, matrix, matrix, "float32"))
print(torch.ones(3).sum().item())
"""


def test_a_kernel_that_failed_is_told_wherever_it_is_noticed(
    in_process: Callable[[str], str],
) -> None:
    *told, last = in_process(WRONG).splitlines()
    assert last == "3.0"  # the CPU goes on
    assert len(told) == 5
    for line in told:
        assert "an illegal memory access was encountered" in line
        assert "CUDA refuses all further work in this process: start it again" in line


def test_a_launch_that_is_refused_leaves_everything_as_it_was(driver: Any) -> None:
    from lucid_gpu.launch.arguments import Packing
    from lucid_gpu.launch.launchers import launcher_of

    x = torch.ones(8, device="cuda")
    (x * 3).cpu()
    here = launcher_of(x.device)
    kernels = {text.name: future.result() for text, future in here.kernels.items()}
    function = next(found for name, found in kernels.items() if "mul" in name)
    with here.at_home(), pytest.raises(torch.AcceleratorError, match="cannot be launched with"):
        here.launch(function, Packing([]).filled([]), (1, 1, 1), (2048, 1, 1))
    assert (x * 3).cpu().sum().item() == 24

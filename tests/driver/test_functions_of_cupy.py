"""A `Function` as people write it for PyTorch and CuPy: addresses, a stream, memoized kernels."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cupy
import pytest

import lucid_gpu as torch

Stream = namedtuple("Stream", "ptr")


@cupy.memoize(for_each_device=True)
def kernel(name: str) -> Any:
    return cupy.RawKernel(
        r"""
        extern "C" __global__ void vote(
            const float* x, const int* bin, float* out, const float* weight, int n, int bins)
        {
            const int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i >= n) return;
            const int k = blockIdx.y * n + i;
            const float by = weight == NULL ? 1.0f : weight[k];
            if (bin[k] >= 0) atomicAdd(&out[blockIdx.y * bins + bin[k]], by * x[k]);
        }
        extern "C" __global__ void vote_backward(
            const float* g, const int* bin, float* dx, const float* weight, int n, int bins)
        {
            const int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i >= n) return;
            const int k = blockIdx.y * n + i;
            const float by = weight == NULL ? 1.0f : weight[k];
            dx[k] = bin[k] < 0 ? 0 : by * g[blockIdx.y * bins + bin[k]];
        }
        """,
        name,
    )


def launch(name: str, addresses: list[int], samples: int, n: int, bins: int) -> None:
    kernel(name)(
        grid=((n + 63) // 64, samples, 1),
        block=(64, 1, 1),
        args=[*addresses, cupy.int32(n), bins],
        stream=Stream(torch.cuda.current_stream().cuda_stream),
    )


class Vote(torch.autograd.Function):
    """Sums of the values of a row by bin; a bin below zero is nobody's."""

    @staticmethod
    def forward(self: Any, x: Any, bin: Any, weight: Any, bins: int) -> Any:
        out = x.new(x.size(0), bins).zero_()
        by = 0 if weight is None else weight.contiguous().data_ptr()  # the copy goes at once
        with torch.cuda.device_of(x):
            places = [x.contiguous().data_ptr(), bin.int().data_ptr(), out.data_ptr(), by]
            launch("vote", places, *x.size(), bins)
        self.save_for_backward(bin, weight)
        return out

    @staticmethod
    def backward(self: Any, g: Any) -> Any:
        bin, weight = self.saved_tensors
        dx = g.new(bin.size())
        by = 0 if weight is None else weight.contiguous().data_ptr()
        with torch.cuda.device_of(g):
            places = [g.contiguous().data_ptr(), bin.int().data_ptr(), dx.data_ptr(), by]
            launch("vote_backward", places, *bin.size(), g.size(1))
        return dx, None, None, None


def plainly(x: Any, bin: Any, weight: Any, bins: int) -> Any:
    mine = (bin[:, :, None] == torch.arange(bins, device=x.device)).float()
    return ((x if weight is None else x * weight)[:, :, None] * mine).sum(1)


@pytest.mark.parametrize("seed", range(4))
def test_arrays_of_cupy_over_addresses_and_streams(driver: Any, seed: int) -> None:
    with driver.order(seed), torch.cuda.stream(torch.cuda.Stream()):
        x = torch.randn(64, device="cuda") * 3
        out = torch.empty_like(x)
        arrays = [
            cupy.ndarray(64, "f", cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(a, 256, None), 0))
            for a in (x.data_ptr(), out.data_ptr())
        ]
        with cupy.cuda.Stream.from_external(torch.cuda.current_stream()):
            cupy.multiply(arrays[0], 2, out=arrays[1])
        assert (out == x * 2).all()


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("where", ["cuda:0", "cuda:1", "stream"])
@pytest.mark.parametrize("weighted", [False, True])
def test_forward_and_backward(driver: Any, seed: int, where: str, weighted: bool) -> None:
    device = "cuda:0" if where == "stream" else where
    side = torch.cuda.Stream() if where == "stream" else None
    with driver.order(seed), torch.cuda.stream(side):
        start = torch.randn(200, 3, device=device)
        bin = torch.randint(-1, 5, (3, 200), device=device)
        weight = torch.rand(200, 3, device=device).T if weighted else None
        seen = []
        for vote in (Vote.apply, plainly):
            x = start.clone().requires_grad_()
            out = vote((x * 2).T, bin, weight, 5)  # a view of pending values
            (out.sin() * torch.arange(5.0, device=device)).sum().backward()
            seen += [out.detach().cpu(), x.grad.cpu()]
    assert torch.allclose(seen[0], seen[2], atol=1e-4)
    assert torch.allclose(seen[1], seen[3], atol=1e-4)

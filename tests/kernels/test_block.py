"""Reductions over a warp and a block: all threads get the result, and the same bits of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lucid_gpu.launch.kernel import Function
from lucid_gpu.launch.signature import parameters

SOURCE = """
#include "block.cuh"
extern "C" __global__ void __launch_bounds__(1024) reductions(const TYPE* x, TYPE* y, int n)
{
    const TYPE mine = x[threadIdx.x];
    lucid_online<TYPE> online = {lucid_lowest<TYPE>(), 0};
    lucid_welford<TYPE> welford = {0, 0, 0};
    for (int k = threadIdx.x; k < n; k += blockDim.x) {
        online.take(x[k]);
        welford.take(x[k]);
    }
    online = lucid_block_sum(online);
    welford = lucid_block_sum(welford);
    const lucid_pair<TYPE> pair = lucid_block_sum(lucid_pair<TYPE>{mine, mine * mine});
    const TYPE found[] = {
        lucid_block_sum(mine), lucid_block_max(mine), lucid_block_min(mine), pair.first,
        pair.second, online.logarithm(), welford.count, welford.mean, welford.spread,
        lucid_warp_sum<8>(mine), lucid_warp_max<4>(mine), lucid_warp_min<2>(mine),
    };
    for (int k = 0; k < 12; ++k) y[k * blockDim.x + threadIdx.x] = found[k];
}
"""


def reduced(x: Any, threads: int) -> Any:
    kind = {"float32": "float", "float64": "double"}[x.dtype.name]
    declaration = f"const {kind}* x, {kind}* y, int n"
    source = SOURCE.replace("TYPE", kind)
    kernel = Function("reductions", source, parameters(declaration), 1024, {})
    y = np.empty((12, threads), x.dtype)
    kernel((1, 1, 1), (threads, 1, 1), (x, y, x.size))
    return y


@pytest.mark.each_value
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("threads", [32, 64, 96, 1024])
def test_every_reduction(threads: int, kind: Any) -> None:
    x = (np.random.default_rng(threads).standard_normal(3 * threads) + 2).astype(kind)
    y = reduced(x, threads)
    whole, wide = x[:threads].astype(np.float64), x.astype(np.float64)
    right = [
        whole.sum(), whole.max(), whole.min(), whole.sum(), (whole**2).sum(),
        np.log(np.exp(wide).sum()), x.size, wide.mean(), ((wide - wide.mean()) ** 2).sum(),
    ]  # fmt: skip
    error = 1e-5 if kind == np.float32 else 1e-12
    for row, value in zip(y, right):
        np.testing.assert_array_equal(row, row[0])
        np.testing.assert_allclose(row[0], value, error)
    groups = [(8, np.add.reduce), (4, np.maximum.reduce), (2, np.minimum.reduce)]
    for row, (size, reduce) in zip(y[9:], groups, strict=True):
        np.testing.assert_allclose(row, np.repeat(reduce(whole.reshape(-1, size), 1), size), error)


def test_nan_wins_and_infinity_is_torchs() -> None:
    x = np.arange(96, dtype=np.float32)
    x[70] = np.nan
    y = reduced(x, 96)
    assert np.isnan(y[[0, 1, 2, 5, 7]]).all()
    x[70] = -np.inf
    np.testing.assert_allclose(reduced(x, 96)[5], np.log(np.exp(np.delete(x, 70) - 95).sum()) + 95)
    x[70] = np.inf
    assert np.isnan(reduced(x, 96)[5]).all()  # inf - inf, as in softmax


def test_no_number_at_all() -> None:
    x = np.full(32, -np.inf, np.float32)
    assert (reduced(x, 32)[5] == -np.inf).all()

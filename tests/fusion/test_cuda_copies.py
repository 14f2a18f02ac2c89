"""Copies into another order: by a kernel of ours where it can be, and each by one launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import dtypes as dt
from lucid_gpu.devices.copies import duplicate, laid_in, row_major
from lucid_gpu.fusion.cuda_copies import copied

from .plans import needs_compiler, random

CUBE = random((6, 50, 70), dt.float32)
SOURCES: dict[str, Any] = {
    "transposed": CUBE[0].T,
    "permuted": CUBE.transpose(2, 0, 1),
    "a batch": CUBE.swapaxes(1, 2),
    "heads": CUBE.reshape(6, 50, 7, 10).transpose(0, 2, 1, 3),
    "images": CUBE.reshape(6, 7, 50, 10).transpose(0, 3, 1, 2),
    "backwards": CUBE[::-1, ::2, ::-3],
    "expanded": np.broadcast_to(CUBE[:, :1], (4, 6, 50, 70)),
    "one number": np.broadcast_to(CUBE[0, 0, 0], (5, 6)),
    "bytes": CUBE.view(np.uint8)[:, :, 1::4].T,
    "halves": CUBE.view(np.float16).T,
    "doubles": CUBE.astype(np.float64).T,
    "pairs": CUBE.astype(np.complex128).T,
}


@needs_compiler
@pytest.mark.parametrize("last_first", [False, True])
@pytest.mark.parametrize("case", SOURCES)
def test_values(case: str, last_first: bool) -> None:
    source = SOURCES[case]
    out = (
        np.zeros(source.shape[::-1], source.dtype).T
        if last_first
        else np.zeros_like(source, order="C")
    )
    assert copied(out, source)
    np.testing.assert_array_equal(out, source)


@needs_compiler
def test_what_is_left_to_others() -> None:
    x, square = CUBE[0], CUBE[0, :, :50].copy()
    for out, source in (
        (np.empty_like(x), x),
        (np.empty((70, 50), np.float64), x.T),
        (np.empty((70, 100), np.float32)[:, ::2], x.T),
        (square, square.T),
        (square, square[::-1]),
        (np.empty((0, 5), np.float32), np.empty((5, 0), np.float32).T),
    ):
        before = out.copy()
        assert not copied(out, source)
        np.testing.assert_array_equal(out, before)


def test_each_is_one_launch(device: str) -> None:
    array = random((3, 40, 50), dt.float32)
    x = lucid_gpu.tensor(array, device=device)
    permuted, y = x.permute(2, 0, 1), lucid_gpu.empty(50, 3, 40, device=device)
    y.zero_()
    ways: dict[str, Any] = {
        "contiguous": permuted.contiguous,
        "clone": lambda: permuted.clone(memory_format=lucid_gpu.contiguous_format),
        "copy_": lambda: y.copy_(permuted),
        "reshape": lambda: permuted.reshape(150, 40),
        "row_major": lambda: lucid_gpu.tensor(row_major(permuted.array)),
    }
    for name, way in ways.items():
        with lucid_gpu.profiler.record() as profile:
            found = way().cpu().numpy()
        np.testing.assert_array_equal(found.reshape(50, 3, 40), array.transpose(2, 0, 1), name)
        if device != "cpu":
            assert [kernel.name for kernel in profile.kernels] == ["lucid_copy"], name


def test_a_copy_with_the_same_strides(device: str) -> None:
    x = lucid_gpu.tensor(CUBE, device=device).permute(2, 0, 1)
    for copy in (duplicate(x.array), laid_in(x.array, (0, 2, 1))):
        np.testing.assert_array_equal(lucid_gpu.tensor(copy).cpu().numpy(), CUBE.transpose(2, 0, 1))
    assert duplicate(x.array).strides == x.array.strides
    y = lucid_gpu.zeros(70, 6, 50, device=device).copy_(x)
    x[1:3, 2] = 0
    x.mul_(2)
    np.testing.assert_array_equal(y.cpu().numpy(), CUBE.transpose(2, 0, 1))
    turned = lucid_gpu.tensor(CUBE[0, :, :50].copy(), device=device)
    turned.copy_(turned.T)
    np.testing.assert_array_equal(turned.cpu().numpy(), CUBE[0, :, :50].T)


def test_shuffled_pixels_move_once(device: str) -> None:
    x = lucid_gpu.rand(2, 12, 5, 7, device=device)
    with lucid_gpu.profiler.record() as profile:
        y = lucid_gpu.nn.functional.pixel_shuffle(x, 2)
    assert y.shape == (2, 3, 10, 14)
    assert [kernel.name for kernel in profile.kernels].count("lucid_copy") == (device != "cpu")

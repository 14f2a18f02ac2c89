"""Windows as columns: CUDA C and NumPy against the definition in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lucid_gpu import profiler
from lucid_gpu.kernels import convolution
from lucid_gpu.kernels.im2col import IMAGE_FIRST, IMAGE_LAST, ROW_FIRST, col2im, im2col
from lucid_gpu.kernels.windows import Frame, Window
from tests.kernels.windows import CASES, KINDS, LIMITS, executor, views, windows
from tests.slow import slow_but

__all__ = ["executor"]


def columns_of(array: Any, frame: Frame, order: tuple[int, int, int]) -> Any:
    n, rows, positions = frame.shape[0], frame.rows, frame.positions
    found = windows(array.astype(np.float64), frame, 0).reshape(n, rows, positions)
    return found.transpose(order)


@pytest.mark.each_value
@pytest.mark.parametrize("kind", slow_but(KINDS, np.float32))
@pytest.mark.parametrize("case", CASES)
def test_columns_are_windows(case: str, kind: Any, executor: str) -> None:
    shape, window = CASES[case]
    frame = Frame(shape, window)
    for name, array in views(np.random.default_rng(0), shape, kind):
        for order in (IMAGE_FIRST, ROW_FIRST, IMAGE_LAST):
            got = im2col(array, frame, order)
            assert got.flags.c_contiguous and got.dtype == array.dtype
            np.testing.assert_array_equal(
                got.astype(np.float64), columns_of(array, frame, order), err_msg=name
            )


@pytest.mark.each_value
@pytest.mark.parametrize("kind", slow_but(KINDS, np.float32))
@pytest.mark.parametrize("case", CASES)
def test_images_are_sums_of_columns(case: str, kind: Any, executor: str) -> None:
    """``<col2im(y), x> = <y, im2col(x)>``, a unit image ``x`` at a time."""
    shape, window = CASES[case]
    frame, rng = Frame(shape, window), np.random.default_rng(1)
    pixels = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    for order in (IMAGE_FIRST, ROW_FIRST, IMAGE_LAST):
        owner = columns_of(pixels, frame, order)
        inside = columns_of(np.ones(shape), frame, order) != 0
        columns = rng.standard_normal(owner.shape).astype(kind)
        expected = np.zeros(pixels.size)
        np.add.at(expected, owner[inside].astype(int), columns[inside].astype(np.float64))
        got = col2im(columns, frame, order)
        assert got.shape == shape and got.dtype == columns.dtype
        limit = LIMITS[kind]
        np.testing.assert_allclose(
            got.astype(np.float64).ravel(), expected, rtol=limit, atol=limit * 8
        )


def test_narrow_sums_round_once(executor: str) -> None:
    frame = Frame((1, 1, 1, 1), Window((1, 3), padding=(0, 1)))
    columns = np.zeros((1, 3, 1), np.float16)
    assert frame.positions == 1
    frame = Frame((1, 1, 3, 3), Window((3, 3), padding=(1, 1)))
    columns = np.full((1, 9, 9), 1 / 3, np.float16)
    columns[0, 0] = 2048  # a sum kept in float16 would lose what comes after
    got = col2im(columns, frame, IMAGE_FIRST)
    expected = np.zeros((3, 3))
    for row in range(9):
        for v in range(3):
            for u in range(3):
                y, x = v - 1 + row // 3, u - 1 + row % 3
                if 0 <= y < 3 and 0 <= x < 3:
                    expected[y, x] += np.float64(columns[0, row, v * 3 + u])
    np.testing.assert_array_equal(got[0, 0], expected.astype(np.float16))


def test_complex_columns_add_up(executor: str) -> None:
    frame = Frame((1, 1, 3, 3), Window((2, 2)))
    x = np.arange(9).reshape(1, 1, 3, 3) * (1 + 2j)
    got = col2im(im2col(x, frame, IMAGE_FIRST), frame, IMAGE_FIRST)
    np.testing.assert_allclose(got[0, 0], x[0, 0] * [[1, 2, 1], [2, 4, 2], [1, 2, 1]])


def test_each_is_one_kernel_that_moves_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    frame = Frame((2, 3, 8, 8), Window((3, 3), padding=(1, 1)))
    x = np.ones(frame.shape, np.float32)
    with profiler.record() as run:
        columns = im2col(x, frame, IMAGE_FIRST)
        col2im(columns, frame, IMAGE_FIRST)
    names = [kernel.name for kernel in run.kernels]
    assert names == ["lucid_im2col_float32", "lucid_col2im_float32"]
    moved = [(k.bytes_read, k.bytes_written) for k in run.kernels]
    assert moved == [(x.nbytes, columns.nbytes), (columns.nbytes, x.nbytes)]


# --- convolution ----------------------------------------------------------------------------------


@pytest.mark.each_value
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("bytes_at_once", [1, 1000, 1 << 20])
def test_parts_of_a_batch_add_up(
    groups: int, bytes_at_once: int, executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convolution, "COLUMN_BYTES", bytes_at_once)
    rng = np.random.default_rng(2)
    frame = Frame((5, 4, 6, 5), Window((3, 2), (2, 1), (1, 0)))
    x, weight = rng.standard_normal(frame.shape), rng.standard_normal((6, 4 // groups, 3, 2))
    g = rng.standard_normal((5, 6, *frame.steps))
    found = windows(x, frame, 0).reshape(5, groups, 4 // groups, 3, 2, *frame.steps)
    filters = weight.reshape(groups, 6 // groups, 4 // groups, 3, 2)
    y = convolution.convolve(x, weight, frame, groups)
    expected = np.einsum("ngcijvu,gocij->ngovu", found, filters).reshape(g.shape)
    np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-12)
    split = g.reshape(5, groups, 6 // groups, *frame.steps)
    expected = np.einsum("ngcijvu,ngovu->gocij", found, split).reshape(weight.shape)
    got = convolution.weight_gradient(x, g, frame, groups)
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
    got = convolution.input_gradient(g, weight, frame, groups)
    np.testing.assert_allclose((got * x).sum(), (y * g).sum(), rtol=1e-12)


@pytest.mark.each_value
@pytest.mark.parametrize("images", [2, 9])  # of fewer than a row the batch does not lie innermost
@pytest.mark.parametrize("columns", [4, 40, 1 << 17])
def test_blocks_of_windows_add_up(
    columns: int, images: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("BLOCK", columns), ("FEWEST", columns), ("ALONE", 0), ("UNPACKED", 1000),
                        ("NARROWEST", 2)):  # fmt: skip
        monkeypatch.setattr(convolution, name, value)
    convolution._blocks.cache_clear()
    rng = np.random.default_rng(4)
    for window in (
        Window((3, 3), (1, 1), (1, 1)),
        Window((3, 2), (2, 3), (1, 0)),
        Window((4, 3), (6, 2), (3, 2), (4, 3)),  # stride and dilation share a divisor
        Window((1, 1), (2, 2)),
        Window((1, 1)),
        Window((2, 2), (1, 1), (3, 2)),  # more padding than the filters reach
    ):
        frame = Frame((images, 4, 11, 8), window)
        x, weight = rng.standard_normal(frame.shape), rng.standard_normal((6, 2, *window.kernel))
        g = rng.standard_normal((images, 6, *frame.steps))
        found = windows(x, frame, 0).reshape(images, 2, 2, *window.kernel, *frame.steps)
        filters = weight.reshape(2, 3, 2, *window.kernel)
        y = convolution.convolve_on_host(x, weight, frame, 2)
        expected = np.einsum("ngcijvu,gocij->ngovu", found, filters).reshape(g.shape)
        np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-12)
        split = g.reshape(images, 2, 3, *frame.steps)
        expected = np.einsum("ngcijvu,ngovu->gocij", found, split).reshape(weight.shape)
        got = convolution.weight_gradient_on_host(x, g, frame, 2)
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
        u = rng.standard_normal(frame.shape)  # the adjoint, against any images
        u_y = convolution.convolve_on_host(u, weight, frame, 2)
        got = convolution.input_gradient_on_host(g, weight, frame, 2)
        np.testing.assert_allclose((got * u).sum(), (u_y * g).sum(), rtol=1e-11, atol=1e-11)
        for one in (slice(0, 2), slice(2, 4)):  # of one group only
            alone = Frame((images, 2, 11, 8), window)
            half = slice(0, 3) if one.start == 0 else slice(3, 6)
            y_half = convolution.convolve_on_host(x[:, one], weight[half], alone, 1)
            np.testing.assert_allclose(y_half, y[:, half], rtol=1e-12, atol=1e-12)
            got = convolution.weight_gradient_on_host(x[:, one], g[:, half], alone, 1)
            np.testing.assert_allclose(got, expected[half], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_a_bias_is_added(kind: Any, groups: int, executor: str) -> None:
    """Images of single channels, and a batch that comes last in memory, too."""
    rng, window = np.random.default_rng(5), Window((3, 3), padding=(1, 1))
    for shape in ((2, 4, 5, 6), (9, 4, 5, 6)):
        frame = Frame(shape, window)
        x, weight = rng.standard_normal(shape), rng.standard_normal((4, 4 // groups, 3, 3))
        x, weight, bias = [a.astype(kind) for a in (x, weight, rng.standard_normal(4))]
        got = convolution.convolve(x, weight, frame, groups, bias)
        assert got.dtype == kind
        wide = [a.astype(np.float64) for a in (x, weight)]
        expected = convolution.convolve_on_host(*wide, frame, groups) + bias[:, None, None]
        limit = LIMITS[kind]
        np.testing.assert_allclose(got, expected, rtol=limit, atol=limit * 8)


def test_columns_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    monkeypatch.setattr(convolution, "COLUMN_BYTES", 2 * 9 * 16 * 8)  # two images' columns
    frame = Frame((5, 1, 4, 4), Window((3, 3), padding=(1, 1)))
    x, weight = np.ones(frame.shape), np.ones((2, 1, 3, 3))
    with profiler.record() as run:
        convolution.convolve(x, weight, frame, 1)
    assert [k.bytes_written for k in run.kernels] == [2 * 9 * 16 * 8] * 2 + [9 * 16 * 8]


def test_windows_of_one_pixel_need_no_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    frame = Frame((5, 3, 4, 4), Window((1, 1)))
    x, weight = np.ones(frame.shape), np.ones((2, 3, 1, 1))
    with profiler.record() as run:
        y = convolution.convolve(x, weight, frame, 1)
        convolution.input_gradient(y, weight, frame, 1)
    assert not run.kernels

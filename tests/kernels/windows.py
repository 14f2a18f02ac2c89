"""Windows that break things, images under them, and what a window is by its definition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from lucid_gpu.kernels.windows import Frame, Window

KINDS = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]
LIMITS = {np.float64: 1e-14, np.float32: 1e-6, np.float16: 1e-3, ml_dtypes.bfloat16: 8e-3}

# images and window; every row and column is in several windows, in one, in none, or outside
CASES: dict[str, tuple[tuple[int, ...], Window]] = {
    "one pixel": ((1, 1, 1, 1), Window((1, 1))),
    "pixels": ((2, 3, 4, 5), Window((1, 1))),
    "overlapping": ((2, 3, 7, 6), Window((3, 3), (1, 1), (1, 1))),
    "halves": ((2, 3, 6, 8), Window((2, 2), (2, 2))),
    "left over": ((3, 2, 8, 9), Window((3, 2), (3, 4))),
    "strided, padded": ((2, 33, 9, 7), Window((3, 3), (2, 2), (1, 1))),
    "dilated": ((1, 2, 11, 9), Window((3, 2), (2, 1), (2, 1), (2, 3))),
    "dilated and strided apart": ((1, 2, 13, 12), Window((2, 3), (4, 3), (1, 2), (3, 2))),
    "signal": ((3, 2, 1, 1025), Window((1, 5), (1, 2), (0, 2))),
    "many channels": ((1, 257, 3, 3), Window((2, 2), (1, 1), (1, 1))),
    "large kernel": ((1, 1, 12, 31), Window((9, 9), (2, 3), (4, 4))),
    "no image": ((0, 2, 4, 4), Window((2, 2))),
}


def views(rng: np.random.Generator, shape: tuple[int, ...], kind: Any) -> Iterator[tuple[str, Any]]:
    """Arrays of a shape laid in memory in unusual ways."""
    plain = rng.standard_normal(shape).astype(kind)
    yield "row-major", plain
    shifted = np.empty(plain.size + 1, kind)[1:].reshape(shape)
    shifted[...] = plain
    yield "unaligned", shifted
    yield "channels last", np.ascontiguousarray(plain.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    yield "reversed", plain[:, ::-1, ::-1, ::-1]
    if plain.size:
        yield "one row for all", np.broadcast_to(plain[:1, :1, :, :1], shape)


def windows(array: Any, frame: Frame, border: float) -> Any:
    """Every window as its definition says it, (n, c, kh, kw, oh, ow), in float64."""
    (n, c, h, w), window = frame.shape, frame.window
    found = np.full((n, c, *window.kernel, *frame.steps), float(border))
    for i in range(window.kernel[0]):
        for j in range(window.kernel[1]):
            for v in range(frame.steps[0]):
                for u in range(frame.steps[1]):
                    row = v * window.stride[0] - window.padding[0] + i * window.dilation[0]
                    column = u * window.stride[1] - window.padding[1] + j * window.dilation[1]
                    if 0 <= row < h and 0 <= column < w:
                        found[:, :, i, j, v, u] = array[:, :, row, column]
    return found


@pytest.fixture(params=["numpy", "cuda c"])
def executor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The NumPy twin, and the CUDA C run on the host."""
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", request.param == "cuda c")
    return str(request.param)

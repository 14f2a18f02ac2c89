"""What a program declares of an array's layout, and how the array really lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lucid_gpu import dtypes as dt
from lucid_gpu.core.program import load_program
from lucid_gpu.core.value import Cell, Expr
from lucid_gpu.device import CPU
from lucid_gpu.fusion import realize
from lucid_gpu.tensor import _tensor
from tests.oracle import agree


def block(torch: Any, x: Any, v: Any, w: Any, g: Any, c: Any) -> Any:
    """Convolution, group norm, SiLU, convolution: the block of a diffusion network."""
    F = torch.nn.functional
    z = torch.cat([F.conv2d(x, v, padding=1)] * 2, 1)
    return F.conv2d(F.silu(F.group_norm(z, 32, g, c)), w, padding=1).square().mean()


def test_a_stored_cotangent_in_another_order_of_memory(device: str) -> None:
    """Gradients were off by 93 %: the kernel read the stored value as row-major, which it was not.

    Only from 16 x 16 x 64 elements on is that cotangent stored at all.
    """
    rng = np.random.default_rng(0)
    shapes = ((2, 3, 16, 16), (32, 3, 3, 3), (4, 64, 3, 3), (64,), (64,))
    arrays = [(rng.standard_normal(s) * 0.1).astype("float32") for s in shapes]
    agree(block, *arrays, device=device, order=1, rtol=1e-4, atol=1e-7)


@pytest.mark.misdeclares
@pytest.mark.parametrize("turned", ["T", "reversed"])
def test_a_kernel_is_given_arrays_as_declared(turned: str) -> None:
    """A leaf that declares a wrong layout costs a copy, and is counted."""
    values = np.arange(3000.0, dtype="float32").reshape(50, 60)
    array = values.T if turned == "T" else values[::-1].T
    program = load_program(dt.float32, (60, 50), False, False, CPU)
    wrong = _tensor(Expr(program, (Cell(array),), None, array.shape))
    before = realize.misdeclared
    assert np.array_equal((wrong * 2 + 1).numpy(), array * 2 + 1)
    assert realize.misdeclared == before + 1

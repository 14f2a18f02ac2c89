"""Joining and cutting by NumPy's names, broadcasting: as in torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import agree, gives, same_error

RNG = np.random.default_rng(23)
CUBE = RNG.standard_normal((2, 4, 6))
CASES: dict[str, Any] = {
    "concat": lambda m, t: m.concat((t, t), dim=1),
    "concatenate": lambda m, t: m.concatenate([t, t], axis=-1),
    "hstack": lambda m, t: m.hstack((t, t * 2)),
    "hstack of vectors": lambda m, t: m.hstack([t[0, 0], t[0, 1, :2], t[0, 0, 0]]),
    "vstack": lambda m, t: m.vstack((t[0], t[1, :1])),
    "vstack of vectors": lambda m, t: m.vstack([t[0, 0], t[1]]),
    "row_stack": lambda m, t: m.row_stack([t[0, 0], t[0, 1]]),
    "dstack": lambda m, t: m.dstack((t, t)),
    "dstack of vectors": lambda m, t: m.dstack((t[0, 0], t[0, 1])),
    "column_stack": lambda m, t: m.column_stack((t[0, :, 0], t[0], t[1, :, 1])),
    "column_stack of numbers": lambda m, t: m.column_stack((t[0, 0, 0], t[0, 0, 1])),
    "atleast_1d": lambda m, t: m.atleast_1d(t[0, 0, 0], t),
    "atleast_2d": lambda m, t: m.atleast_2d([t[0, 0, 0], t[0, 0], t]),
    "atleast_3d": lambda m, t: m.atleast_3d((t[0, 0, 0], t[0, 0], t[0], t)),
    "atleast of one": lambda m, t: m.atleast_3d(t[0]),
    "hsplit": lambda m, t: m.hsplit(t, 2),
    "hsplit of a vector": lambda m, t: t[0, 0].hsplit([1, 4]),
    "vsplit": lambda m, t: t.vsplit(2),
    "dsplit": lambda m, t: m.dsplit(t, [2]),
    "block_diag": lambda m, t: m.block_diag(t[0], t[0, 0], t[0, 0, 0], t[:, 0, :1]),
    "broadcast_tensors": lambda m, t: m.broadcast_tensors(t, t[:, :1], t[0, 0, 0]),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_torch(name: str, device: str) -> None:
    agree(CASES[name], CUBE, device=device)


def test_types_and_shapes(device: str) -> None:
    def scenario(m: Any, where: str) -> Any:
        ints = m.ones(2, dtype=m.int64, device=where)
        out = m.zeros(4, device=where)
        m.hstack((ints, m.ones(2, device=where)), out=out)
        shapes = [m.broadcast_shapes((2, 1), 3), m.broadcast_shapes((), (1, 0)), m.block_diag()]
        return out, [tuple(getattr(s, "shape", s)) for s in shapes], m.block_diag(ints, out).dtype

    found = scenario(lucid_gpu, device)
    assert found[2] is lucid_gpu.float32
    gives([[1] * 4, [(2, 3), (1, 0), (1, 0)]], lambda m, w: scenario(m, w)[:2], device)


MISUSE: dict[str, tuple[Any, str]] = {
    "hstack of nothing": (lambda m: m.hstack([]), "hstack expects a non-empty TensorList"),
    "vstack of misfits": (
        lambda m: m.vstack([m.ones(2), m.ones(3)]),
        "Sizes of tensors must match",
    ),
    "hsplit of a number": (
        lambda m: m.tensor(1.0).hsplit(1),
        "hsplit requires a tensor with at least 1 dimension, but got a tensor with 0 dimensions!",
    ),
    "dsplit of a matrix": (lambda m: m.ones(2, 2).dsplit(1), "requires a tensor with at least 3"),
    "unequal parts": (
        lambda m: m.ones(3, 3).vsplit(2),
        "the size of the dimension 3 is not divisible by the split_size 2!",
    ),
    "block_diag of a cube": (
        lambda m: m.block_diag(m.ones(1), m.ones(1, 1, 1)),
        "Input tensors must have 2 or fewer dimensions. Input 1 has 3 dimensions",
    ),
    "stack of arrays": (lambda m: m.stack([m.ones(2), CUBE]), "Tensor as element 1 in argument 0"),
    "stack of lists": (lambda m: m.stack([[1, 2]]), "expected Tensor as element 0 in argument 0"),
    "vstack of lists": (lambda m: m.vstack([[1], [2]]), "expected Tensor as element 0 in argum"),
    "a number among tensors": (
        lambda m: m.dstack([m.ones(2), 3]),
        "expected Tensor as element 1 in argument",
    ),
    "shapes": (lambda m: m.broadcast_shapes((2,), (3,)), "Shape mismatch: objects cannot be"),
    "tensors": (lambda m: m.broadcast_tensors(m.ones(2), m.ones(3)), "must match the size of"),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_in_torch(name: str) -> None:
    same_error(*MISUSE[name])

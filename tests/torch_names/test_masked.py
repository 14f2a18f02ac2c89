"""`torch.masked` beside PyTorch's: values, types, gradients, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import agree, gives, same_error

RNG = np.random.default_rng(5)
CUBE = RNG.standard_normal((2, 3, 4))
MASK = RNG.random((2, 3, 4)) < 0.6
MASK[1, 2] = False  # nothing is left of this row
OVER_DIMS = ("amax", "amin", "logsumexp", "mean", "norm", "prod", "std", "sum", "var")
ALONG = ("cumprod", "cumsum", "log_softmax", "softmax", "softmin")


def masked(m: Any, name: str) -> Any:
    if m is lucid_gpu:
        return getattr(lucid_gpu.masked, name)
    from torch import masked as of_torch

    return getattr(of_torch, name)


@pytest.mark.parametrize("name", OVER_DIMS)
def test_reductions(name: str, device: str) -> None:
    def reduced(m: Any, x: Any, mask: Any) -> Any:
        f = masked(m, name)
        first = {"ord": 3.0} if name == "norm" else {}
        return (
            f(x, mask=mask), f(x, dim=0, mask=mask, **first), f(x, dim=(0, 1), mask=mask[0, :, :1]),
            f(x, dim=(), mask=mask, keepdim=True), f(x[0], dim=[-1]),
            x if name == "logsumexp" else f(x, dim=[], mask=mask),
        )  # fmt: skip

    agree(reduced, CUBE, MASK, device=device, order=0)
    agree(lambda m, x, mask: masked(m, name)(x, mask=mask), CUBE[:, :2], MASK[:, :2], device=device)


@pytest.mark.parametrize("name", ALONG)
def test_along_a_dimension(name: str, device: str) -> None:
    def along(m: Any, x: Any, mask: Any) -> Any:
        f = masked(m, name)
        return f(x, 1, mask=mask), f(x, -1), f(x, 0, mask=mask[0, :, :1], dtype=m.float32)

    agree(along, CUBE, MASK, device=device, order=0)
    agree(lambda m, x, mask: masked(m, name)(x, 1, mask=mask), CUBE, MASK[:1], device=device)


def test_places_medians_norms_and_pairs(device: str) -> None:
    def found(m: Any, x: Any, mask: Any) -> Any:
        return (
            masked(m, "argmax")(x, 1, mask=mask), masked(m, "argmin")(x, mask=mask),
            masked(m, "median")(x, 2, mask=mask), masked(m, "normalize")(x, 2.0, 1, mask=mask),
            masked(m, "logaddexp")(x, x.exp(), input_mask=mask),
            masked(m, "norm")(x, -float("inf"), 2, mask=mask),
        )  # fmt: skip

    agree(found, CUBE, MASK, device=device, order=0)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "float16", "complex64"])
def test_types(dtype: str, device: str) -> None:
    def types(m: Any, where: str) -> list[str]:
        x = m.tensor([[1, 2], [3, 0]], device=where).to(getattr(m, dtype))
        mask = m.tensor([[True, False], [False, False]], device=where)
        told = []
        for name in ("sum", "prod", "amax", "argmin", "mean", "var", "logsumexp", "median"):
            try:
                y = masked(m, name)(x, 1, mask=mask)
            except (ValueError, TypeError, RuntimeError):
                told.append("refused")
            else:
                told.append(f"{str(y.dtype).rpartition('.')[2]} {y.tolist()}")
        return told

    expected = types(pytest.importorskip("torch"), "cpu")
    gives(expected, types, device)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda f, m: f(m, "sum")(m.ones(2), mask=m.ones(1, 2)), "broadcastable mask"),
        (lambda f, m: f(m, "amax")(m.ones(2).bool(), mask=m.ones(2)), "identity of amax"),
        (lambda f, m: f(m, "mean")(m.arange(2)), "Could not infer output dtype"),
        (lambda f, m: f(m, "median")(m.arange(2), 0, mask=m.zeros(2)), "no fully masked out rows"),
        (lambda f, m: f(m, "sum")(m.ones(2, 2), (0, 0)), "appears multiple times"),
        (lambda f, m: f(m, "softmax")(m.ones(2, 2), 2), "Dimension out of range"),
    ],
    ids=["wide mask", "bools", "integers", "nothing", "twice", "no dimension"],
)
def test_refusals(call: Any, words: str) -> None:
    same_error(lambda m: call(masked, m), words)

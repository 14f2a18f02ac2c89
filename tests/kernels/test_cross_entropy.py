"""Cross entropy by rows: the arrays' side, against its definition in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from lucid_gpu.kernels import cross_entropy
from lucid_gpu.kernels.cross_entropy import Settings

SHAPES = [
    (7,), (1, 1), (0, 3), (1, 33), (5, 10), (1000, 10), (3, 1023), (2, 1025), (3, 5, 2),
    (2, 70, 3, 4), (2, 32768), (0, 4, 2), (2, 4, 0),
]  # fmt: skip
KINDS = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]
PLAIN = Settings(None, -100, 0.0, "mean")


def problem(shape: tuple[int, ...], kind: Any = np.float64, ignored: int = 0) -> Any:
    """Scores, targets and class weights; some targets are -100."""
    rng = np.random.default_rng(len(shape) + shape[0])
    axis = min(len(shape) - 1, 1)
    classes = shape[axis]
    target = rng.integers(0, classes, (*shape[:axis], *shape[axis + 1 :]))
    if ignored:
        target = np.where(rng.random(target.shape) < 0.3, -100, target)
    x = (rng.standard_normal(shape) * 3).astype(kind)
    return x, np.asarray(target), rng.uniform(0.5, 2, classes)


def expected(x: Any, target: Any, how: Settings, g: Any) -> tuple[Any, Any]:
    """The loss and the gradient of the scores, as the module's formula says it, in float64."""
    axis = min(x.ndim - 1, 1)
    rows = np.moveaxis(x.astype(np.float64), axis, -1)
    classes = rows.shape[-1]
    weight = np.ones(classes) if how.weight is None else how.weight
    kept = target != how.ignore
    safe = np.where(kept, target, 0)
    top = rows.max(-1, keepdims=True)
    log = rows - top - np.log(np.exp(rows - top).sum(-1, keepdims=True))
    own = (1 - how.smoothing) * weight[safe]
    spread = how.smoothing / classes * weight
    onehot = safe[..., None] == np.arange(classes)
    each = -own * (log * onehot).sum(-1) - (spread * log).sum(-1)
    each = np.where(kept, each, 0)
    gradient = (own + spread.sum())[..., None] * np.exp(log) - own[..., None] * onehot - spread
    gradient = np.where(kept[..., None], gradient, 0)
    count = (weight[safe] * kept).sum() if how.reduction == "mean" else 1
    if how.reduction == "none":
        return each, np.moveaxis(gradient * g[..., None], -1, axis)
    return each.sum() / count, np.moveaxis(gradient * g / count, -1, axis)


def check(x: Any, target: Any, how: Settings) -> None:
    rng = np.random.default_rng(1)
    g = rng.standard_normal(target.shape) if how.reduction == "none" else np.asarray(1.7)
    with np.errstate(all="ignore"):
        value, kept = cross_entropy.losses(x, target, how)
        gradient = cross_entropy.gradient(x, kept, g, how)
        loss, by_hand = expected(x, target, how, g)
    size = 1e-11 if x.dtype == np.float64 else 3e-6
    assert gradient.shape == x.shape
    np.testing.assert_allclose(value.reshape(loss.shape), loss, size, size, equal_nan=True)
    np.testing.assert_allclose(gradient, by_hand, 1e-9 if size < 1e-9 else 1e-4, size)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_losses_and_gradients(shape: tuple[int, ...], kind: Any) -> None:
    x, target, _ = problem(shape, kind)
    check(x, target, PLAIN)
    check(x, target, PLAIN._replace(reduction="none"))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(9, 6), (4, 100), (3, 5, 4)])
def test_all_settings_together(
    shape: tuple[int, ...], weighted: bool, smoothing: float, reduction: str
) -> None:
    x, target, weight = problem(shape, ignored=1)
    how = Settings(weight if weighted else None, -100, smoothing, reduction)
    check(x, target, how)
    check(x, np.abs(target) % shape[1], how._replace(ignore=2))


@pytest.mark.parametrize("shape", [(50, 6), (4, 100), (3, 5, 40), (2, 3, 500)])
def test_blocks_give_what_one_block_gives(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cross_entropy, "BLOCK", 64)
    x, target, weight = problem(shape, ignored=1)
    check(x, target, Settings(weight, -100, 0.1, "mean"))
    check(x, target, Settings(None, -100, 0.0, "none"))


def test_views_are_read_as_they_lie() -> None:
    x, target, _ = problem((6, 8))
    check(x[:, ::-1], target, PLAIN)
    check(np.asfortranarray(x), target, PLAIN)
    check(np.broadcast_to(x[:1], x.shape), target[::-1], PLAIN)
    check(x, np.broadcast_to(target[:1], target.shape), PLAIN)


@pytest.mark.parametrize("wrong", [-1, 6, -101])
def test_a_target_that_is_no_class(wrong: int) -> None:
    x, target, _ = problem((9, 6))
    target[4] = wrong
    with pytest.raises(IndexError, match=f"Target {wrong} is out of bounds: the input has 6 cl"):
        cross_entropy.losses(x, target, PLAIN)

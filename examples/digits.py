"""scikit-learn's 1,797 scanned digits (UCI), 8 x 8 pixels of 0 to 16; 360 are kept for the test."""

from __future__ import annotations

from typing import Any

import numpy as np

import lucid_gpu as torch

TEST_IMAGES = 360


def load() -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """(images, labels) to learn from and to test with, the same every time."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = data.images.astype(np.float32)
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[TEST_IMAGES:], order[:TEST_IMAGES]
    return (images[train], data.target[train]), (images[test], data.target[test])


def tensors(device: Any) -> Any:
    """The same as tensors of ``(n, 1, 8, 8)`` pixels from -1 to 1, and of labels."""
    return (
        (
            torch.tensor(images[:, None] / 8 - 1, device=device),
            torch.tensor(labels, device=device),
        )
        for images, labels in load()
    )

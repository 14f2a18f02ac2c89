"""unfold and fold against PyTorch."""

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradcheck, gradgradcheck
from lucid_gpu.nn import functional as F
from tests.oracle import agree, same_error

normal = np.random.default_rng(0).standard_normal

SETTINGS = {
    "plain": {"kernel_size": 2},
    "padded": {"kernel_size": 3, "padding": 1, "stride": 2},
    "pairs": {"kernel_size": (3, 2), "dilation": (1, 2), "padding": (2, 0), "stride": (2, 1)},
    "apart": {"kernel_size": (1, 2), "stride": 3},
}


@pytest.mark.parametrize("settings", SETTINGS)
def test_unfold_agrees_with_torch(settings, device):
    for images in (normal((2, 3, 7, 6)), normal((3, 7, 6)), normal((6, 7, 3, 2)).T):
        agree(lambda m, x: m.nn.functional.unfold(x, **SETTINGS[settings]), images, device=device)


@pytest.mark.parametrize("settings", SETTINGS)
def test_fold_agrees_with_torch(settings, device):
    shape = F.unfold(lucid_gpu.zeros(2, 3, 7, 6), **SETTINGS[settings]).shape
    for columns in (normal(shape), normal(shape)[0], normal(shape[::-1]).T):
        agree(
            lambda m, x: m.nn.functional.fold(x, (7, 6), **SETTINGS[settings]),
            columns,
            device=device,
        )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_types_agree_with_torch(dtype, device):
    def there_and_back(m, x):
        columns = m.nn.functional.unfold(x.to(getattr(m, dtype)), 3, padding=1)
        return m.nn.functional.fold(columns, (5, 5), 3, padding=1).float()

    agree(there_and_back, normal((2, 2, 5, 5)), order=1, rtol=0.02, atol=0.02, device=device)


def test_first_and_second_gradients():
    x = lucid_gpu.tensor(normal((2, 2, 4, 3)), requires_grad=True)
    assert gradcheck(lambda x: F.unfold(x, 2, padding=1), (x,))
    assert gradgradcheck(lambda x: F.unfold(x, 2, padding=1), (x,))
    y = lucid_gpu.tensor(normal((2, 8, 6)), requires_grad=True)
    assert gradcheck(lambda y: F.fold(y, (4, 3), 2), (y,))
    assert gradgradcheck(lambda y: F.fold(y, (4, 3), 2), (y,))


def test_no_images(device):
    x = lucid_gpu.zeros(0, 2, 4, 4, device=device)
    columns = F.unfold(x, 2)
    assert tuple(columns.shape) == (0, 8, 9)
    assert tuple(F.fold(columns, (4, 4), 2).shape) == (0, 2, 4, 4)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.nn.functional.unfold(m.zeros(1, 2, 3, 3), 5), "(-1, -1), but its components"),
        (lambda m: m.nn.functional.unfold(m.zeros(1, 2, 9, 9), (3, 3, 3)), "equals to 2, but got"),
        (lambda m: m.nn.functional.unfold(m.zeros(1, 2, 9, 9), 3, stride=0), "stride should be g"),
        (lambda m: m.nn.functional.unfold(m.zeros(1, 2, 9, 9), 3, 1, -1), "padding should be non"),
        (lambda m: m.nn.functional.fold(m.zeros(1, 17, 49), (9, 9), 3), "input.size(1)=17"),
        (lambda m: m.nn.functional.fold(m.zeros(1, 18, 48), (9, 9), 3), "7 * 7 = 49, but got"),
        (lambda m: m.nn.functional.fold(m.zeros(1, 2, 3, 4), (9, 9), 3), "Expected 2D or 3D"),
        (lambda m: m.nn.functional.fold(m.zeros(1, 4, 1), 3, 2, 8), "array of sliding blocks as"),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(call, words)

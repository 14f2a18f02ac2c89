"""Borders of every kind against PyTorch."""

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradcheck, gradgradcheck
from lucid_gpu.nn.functional import pad
from tests.oracle import agree, same_error

normal = np.random.default_rng(0).standard_normal

# shape, pad, mode, value
CASES = [
    ((2, 3), (1, 2), "constant", None),
    ((2, 3, 4), (1, -2, 0, 3), "constant", 1.5),
    ((2, 3, 4), (-1, -3), "constant", 2.0),
    ((3, 2, 2), (0, 1, 2, 0, 1, 1), "constant", -1.0),
    ((0, 3), (1, 1), "constant", None),
    ((4,), (), "constant", None),
    *[
        (shape, sides, mode, None)
        for mode in ("reflect", "replicate", "circular")
        for shape, sides in [
            ((2, 4), (3, 2)),
            ((2, 3, 4), (1, -2)),
            ((2, 3, 4), (-2, 2)),
            ((2, 3, 4), (3, 1, 2, 2)),
            ((1, 2, 3, 4), (0, 3, 1, 0)),
            ((2, 3, 3, 4), (1, 2, 2, 1, 0, 2)),
            ((1, 1, 3, 3, 4), (-1, 2, 2, -1, 1, 1)),
            ((0, 2, 3), (1, 1)),
        ]
    ],
    ((2, 3), (9, 5), "replicate", None),
    ((2, 3), (3, 3), "circular", None),
    ((1, 2, 2, 5), (-1, -1, -1, -1), "replicate", None),
    ((1, 1, 3, 2), (0, -2, 0, 1), "reflect", None),
]


@pytest.mark.parametrize(("shape", "sides", "mode", "value"), CASES)
def test_agrees_with_torch(shape, sides, mode, value, device):
    def run(m, x):
        return m.nn.functional.pad(x, sides, mode, value).square()

    agree(run, normal(shape), device=device)
    if len(shape) == 3:
        agree(run, normal(shape[::-1]).T, device=device)  # of another layout


@pytest.mark.parametrize("dtype", ["int64", "bool", "complex64", "float16"])
def test_other_types(dtype, device):
    x = np.array([[0, 1, 2], [3, 4, 5]]).astype(dtype)
    agree(lambda m, x: m.nn.functional.pad(x, (1, 2), value=1.0), x, device=device, order=0)
    if dtype != "bool":
        agree(lambda m, x: m.nn.functional.pad(x, (1, 2), "reflect"), x, device=device, order=0)


def test_half_gradients_add_up_unrounded(device):
    x = lucid_gpu.ones(1, 2, dtype=lucid_gpu.float16, device=device, requires_grad=True)
    pad(x, (3000, 0), "replicate").sum().backward()
    assert x.grad.tolist() == [[3000.0, 1.0]]  # 2049 and more are not counted one by one


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_gradients(mode):
    x = lucid_gpu.randn(2, 3, 4, dtype=lucid_gpu.float64, requires_grad=True)
    assert gradcheck(lambda x: pad(x, (2, 1, -1, 2), mode), (x,), check_forward_ad=True)
    assert gradgradcheck(lambda x: pad(x, (2, 1, 0, 2), mode) ** 2, (x,))


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_batched(mode, device):
    x = lucid_gpu.randn(3, 2, 4, device=device)
    result = lucid_gpu.vmap(lambda x: pad(x, (1, 2), mode), in_dims=1)(x)
    assert lucid_gpu.equal(result, pad(x.transpose(0, 1), (1, 2), mode))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda F, x: F.pad(x, (1,)), "Padding length must be divisible by 2"),
        (lambda F, x: F.pad(x, (1,) * 8), "padding length 8 and input of dimension 3"),
        (lambda F, x: F.pad(x, (-2, -2)), "narrow(): length must be non-negative"),
        (lambda F, x: F.pad(x, (1, 1), "fold"), "Unrecognised padding mode fold"),
        (lambda F, x: F.pad(x, (1, 1), "reflect", 1.0), "doesn't take in value argument"),
        (lambda F, x: F.pad(x, 2), "must be tuple of ints, not int"),
        (lambda F, x: F.pad(x, [1, 1.5]), "must be tuple of ints,but got float"),
        (lambda F, x: F.pad(x, (3, 1), "reflect"), "padding (3, 1) at dimension 2 of input"),
        (lambda F, x: F.pad(x, (-2, -1), "replicate"), "is too small"),
        (lambda F, x: F.pad(x, (4, 0), "circular"), "wrapping around more than once"),
        (lambda F, x: F.pad(x, (0, 0, 0, 3), "reflect"), "Argument #6: Padding size should be"),
        (lambda F, x: F.pad(x, (-2, -2), "circular"), "resulting in an empty dimension"),
        (lambda F, x: F.pad(x[:, :0], (1, 1), "reflect"), "other non-zero dimensions for input"),
        (lambda F, x: F.pad(x, (1,) * 6, "reflect"), "is not supported for 3D input tensor"),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(lambda m: call(m.nn.functional, m.zeros(1, 2, 3)), words)


def test_circular_borders_come_from_what_is_left():
    x = lucid_gpu.arange(6.0).reshape(1, 2, 1, 3)
    with pytest.raises(RuntimeError, match="wrapping around more than once"):
        pad(x, (0, 0, -1, 1), "circular")
    assert pad(x[:, :, :, :0], (0, 0, -1, 1), "circular").shape == (1, 2, 1, 0)


LAYERS = [
    ("ConstantPad1d", (2, 1.5)),
    ("ConstantPad2d", ((1, 2, 0, -1), 3.0)),
    ("ConstantPad3d", (1, 2)),
    *[
        (f"{kind}Pad{rank}d", (1,))
        for kind in ("Zero", "Reflection", "Replication", "Circular")
        for rank in (1, 2, 3)
    ],
]


@pytest.mark.parametrize(("name", "settings"), LAYERS)
def test_layers(name, settings, device):
    x = normal((1, 2, 3, 3, 2)[: 2 + int(name[-2])])
    agree(lambda m, x: getattr(m.nn, name)(*settings)(x), x, device=device, order=1)
    import torch

    assert repr(getattr(lucid_gpu.nn, name)(*settings)) == repr(getattr(torch.nn, name)(*settings))


def test_the_layer_says_what_it_takes():
    same_error(lambda m: m.nn.CircularPad2d(1)(m.zeros(2, 3)), "expected 3D or 4D input (got 2D")


def test_a_border_that_the_type_does_not_hold_is_refused(device):
    for value in (1 + 2j, 3j):
        with pytest.raises(RuntimeError, match="cannot be converted"):
            pad(lucid_gpu.ones(2, device=device), (1, 1), value=lucid_gpu.tensor(value))
    x = lucid_gpu.ones(2, device=device)
    assert pad(x, (1, 1), value=lucid_gpu.tensor(2)).tolist() == [2, 1, 1, 2]

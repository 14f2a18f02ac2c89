"""Convolution against PyTorch and against its own definition."""

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import profiler
from lucid_gpu.autograd import gradcheck, gradgradcheck
from lucid_gpu.kernels import convolution
from lucid_gpu.nn import functional as F
from tests.oracle import agree, same_error

normal = np.random.default_rng(0).standard_normal

# images, weight, settings; batches smaller and larger than a row take the two memory orders
CASES = {
    "plain": ((2, 3, 7, 8), (4, 3, 3, 3), {}),
    "batch innermost": ((9, 3, 6, 5), (4, 3, 3, 3), {}),
    "stride and padding": ((9, 4, 7, 6), (4, 2, 3, 3), {"stride": 2, "padding": 1, "groups": 2}),
    "all pairs": (
        (2, 4, 9, 9),
        (8, 1, 3, 2),
        {"stride": (2, 1), "padding": (0, 1), "dilation": (2, 1), "groups": 4},
    ),
    "stride leaves pixels over": ((6, 2, 8, 9), (3, 2, 3, 3), {"stride": 3}),
    "fewer pixels than a stride": (
        (2, 2, 1, 3),
        (4, 1, 3, 2),
        {"stride": (3, 2), "padding": 1, "groups": 2},
    ),
    "a pixel that a stride passes by": ((3, 2, 1, 1), (2, 2, 1, 1), {"stride": 2, "padding": 1}),
    "one by one": ((5, 2, 5, 5), (3, 2, 1, 1), {}),
    "one image": ((1, 2, 5, 5), (3, 2, 2, 2), {}),
    "same": ((3, 2, 6, 6), (4, 2, 3, 3), {"padding": "same"}),
    "same, dilated": ((3, 2, 6, 6), (4, 2, 3, 3), {"padding": "same", "dilation": 2}),
    "valid": ((3, 2, 6, 6), (4, 2, 3, 3), {"padding": "valid"}),
    "no batch": ((3, 7, 6), (4, 3, 3, 3), {"padding": 1}),
    "own filters": ((2, 3, 7, 8), (3, 1, 3, 3), {"padding": 1, "groups": 3}),
    "own filters, batch innermost": (
        (9, 2, 8, 7),
        (2, 1, 3, 2),
        {"stride": (2, 3), "padding": (1, 2), "dilation": (3, 1), "groups": 2},
    ),
}


SIGNALS = {
    "plain": ((2, 3, 7), (4, 3, 3), {}),
    "batch innermost": ((9, 3, 6), (4, 3, 2), {"stride": 2, "padding": 1}),
    "grouped": ((2, 4, 9), (8, 1, 3), {"stride": (2,), "dilation": 2, "groups": 4}),
    "a pixel that a stride passes by": ((2, 1, 1), (2, 1, 1), {"stride": 2, "padding": 1}),
    "fewer pixels than a stride": (
        (2, 2, 2),
        (2, 2, 3),
        {"stride": 3, "padding": 2, "dilation": 2},
    ),
    "same": ((2, 3, 6), (4, 3, 4), {"padding": "same"}),
    "no batch": ((3, 7), (4, 3, 3), {"padding": (1,)}),
}


@pytest.mark.parametrize("case", SIGNALS)
@pytest.mark.parametrize("bias", [True, False])
def test_of_signals_agrees_with_torch(case, bias, device):
    signals, weight, settings = SIGNALS[case]
    more = [normal(weight[0])] if bias else []
    agree(
        lambda m, *t: m.nn.functional.conv1d(*t, **settings),
        normal(signals),
        normal(weight),
        *more,
        device=device,
    )


def test_own_filters_over_several_pieces_and_blocks(device):
    settings = {"padding": 2, "stride": 2, "groups": 40}
    agree(
        lambda m, *t: m.nn.functional.conv2d(*t, **settings),
        normal((3, 40, 70, 50)),
        normal((40, 1, 5, 5)),
        order=1,
        device=device,
    )


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("bias", [True, False])
def test_agrees_with_torch(case, bias, device):
    images, weight, settings = CASES[case]
    more = [normal(weight[0])] if bias else []
    agree(
        lambda m, *t: m.nn.functional.conv2d(*t, **settings),
        normal(images),
        normal(weight),
        *more,
        device=device,
    )


def test_non_contiguous_operands_agree_with_torch(device):
    images = normal((8, 9, 4, 6)).transpose(2, 3, 1, 0)[:, ::2]
    weight = normal((3, 3, 3, 5)).transpose(3, 0, 1, 2)
    agree(lambda m, x, w: m.nn.functional.conv2d(x, w), images, weight, device=device)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_types_agree_with_torch(dtype, device):
    def convolved(m, x, w):
        return m.nn.functional.conv2d(x.to(getattr(m, dtype)), w.to(getattr(m, dtype))).float()

    agree(
        convolved,
        normal((2, 3, 6, 6)),
        normal((4, 3, 3, 3)),
        order=1,
        rtol=0.05,
        atol=0.05,
        device=device,
    )


def test_is_the_sum_it_says():
    x, w, b = normal((2, 2, 5, 4)), normal((3, 2, 2, 3)), normal(3)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    expected = np.empty((2, 3, 3, 2))
    for y, i in enumerate(range(0, 6, 2)):
        for z, j in enumerate(range(0, 4, 2)):
            window = padded[:, :, i : i + 2, j : j + 3]
            expected[:, :, y, z] = np.einsum("ncij,ocij->no", window, w) + b
    got = F.conv2d(*(lucid_gpu.tensor(t) for t in (x, w, b)), stride=2, padding=1)
    np.testing.assert_allclose(got.numpy(), expected)


def test_no_images_agree_with_torch(device):
    shapes = (0, 3, 5, 5), (4, 3, 3, 3)
    agree(
        lambda m, x, w: m.nn.functional.conv2d(x, w), *map(normal, shapes), order=1, device=device
    )


def test_sums_over_no_channels_are_zero(device):
    x, w = (lucid_gpu.zeros(s, device=device) for s in ((2, 0, 5, 5), (4, 0, 3, 3)))
    y = F.conv2d(x, w.requires_grad_())
    assert tuple(y.shape) == (2, 4, 3, 3) and not y.any()
    y.sum().backward()
    assert w.grad.shape == w.shape


def test_complex_numbers_agree_with_torch(device):
    def convolved(m, *parts):
        x, w = m.complex(*parts[:2]), m.complex(*parts[2:])
        return m.view_as_real(m.nn.functional.conv2d(x, w, padding=1)).square()

    shapes = (2, 3, 4, 4), (2, 3, 4, 4), (2, 3, 2, 2), (2, 3, 2, 2)
    if not hasattr(lucid_gpu, "view_as_real"):

        def convolved(m, *parts):
            y = m.nn.functional.conv2d(m.complex(*parts[:2]), m.complex(*parts[2:]), padding=1)
            return y.real**2 + y.imag**3

    agree(convolved, *map(normal, shapes), device=device)


@pytest.mark.parametrize("n", [2, 7])
def test_first_and_second_gradients(n):
    x = lucid_gpu.tensor(normal((n, 2, 4, 5)), requires_grad=True)
    w = lucid_gpu.tensor(normal((2, 1, 2, 2)), requires_grad=True)

    def convolved(x, w):
        return F.conv2d(x, w, stride=(1, 2), padding=1, groups=2)

    assert gradcheck(convolved, (x, w))
    assert gradgradcheck(convolved, (x, w))


def test_backward_of_weights_alone_makes_no_gradient_of_images(device):
    x = lucid_gpu.tensor(normal((2, 3, 5, 5))).to(device)
    w = lucid_gpu.tensor(normal((4, 3, 3, 3))).to(device).requires_grad_()
    y = F.conv2d(x, w)
    assert y.grad_fn.name() == "ConvolutionBackward0"
    y.sum().backward()
    assert x.grad is None and w.grad.shape == w.shape


def test_a_changed_input_is_noticed(device):
    x = lucid_gpu.ones(1, 1, 3, 3, device=device)
    w = lucid_gpu.ones(1, 1, 2, 2, device=device, requires_grad=True)
    y = F.conv2d(x, w)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_on_a_gpu_each_direction_makes_columns_once(monkeypatch):
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    x = lucid_gpu.rand(2, 3, 8, 8, requires_grad=True)
    w = lucid_gpu.rand(4, 3, 3, 3, requires_grad=True)
    g = lucid_gpu.rand(2, 4, 8, 8)
    columns = 2 * 27 * 64 * 4
    with profiler.record() as forward:
        y = F.conv2d(x, w, padding=1)
    with profiler.record() as backward:
        y.backward(g)
    assert [(k.name, k.bytes_read, k.bytes_written) for k in forward.kernels] == [
        ("lucid_im2col_float32", 1536, columns)
    ]
    assert [(k.name, k.bytes_read, k.bytes_written) for k in backward.kernels] == [
        ("lucid_col2im_float32", columns, 1536),
        ("lucid_im2col_float32", 2048, 2048),  # the cotangent, its channels as rows
        ("lucid_im2col_float32", 1536, columns),
    ]


@pytest.mark.parametrize(("size", "images", "copies"), [(1, 1, 0), (3, 2, 2)])
def test_on_a_gpu_gradients_of_filters_do_not_copy_single_images(size, images, copies, monkeypatch):
    monkeypatch.setattr(convolution, "COLUMN_BYTES", 0)  # each image is a part
    x, g = lucid_gpu.rand(images, 4, 6, 6), lucid_gpu.rand(images, 6, 6, 6)
    w = lucid_gpu.rand(6, 2, size, size, requires_grad=True)

    def gradient():
        y = F.conv2d(x, w, padding=size // 2, groups=2)
        with profiler.record() as backward:
            (found,) = lucid_gpu.autograd.grad(y, w, g)
        return found.numpy(), [k.name for k in backward.kernels].count("lucid_im2col_float32")

    wanted, _ = gradient()
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    found, count = gradient()
    assert count == copies  # of windows
    np.testing.assert_allclose(found, wanted, 1e-4, 1e-4)


def test_input_is_not_changed():
    x = lucid_gpu.tensor(normal((9, 2, 5, 5)), requires_grad=True)
    before = x.detach().clone()
    F.conv2d(x, lucid_gpu.ones(1, 2, 3, 3, dtype=lucid_gpu.float64), padding=1).sum().backward()
    assert lucid_gpu.equal(x.detach(), before)


@pytest.mark.parametrize(
    ("shapes", "settings", "words"),
    [
        (((2, 3, 5, 5), (4, 2, 3, 3)), {}, "expected input[2, 3, 5, 5] to have 2 channels"),
        (((2, 3, 2, 2), (4, 3, 3, 3)), {}, "Kernel size can't be greater than actual input size"),
        (((3, 5), (4, 3, 3, 3)), {}, "Expected 3D (unbatched) or 4D (batched) input to conv2d"),
        (((2, 3, 5, 5), (4, 3, 3, 3)), {"stride": (1, 2, 3)}, "got stride=[1, 2, 3]"),
        (((2, 3, 5, 5), (4, 3, 3, 3)), {"stride": 0}, "non-positive stride is not supported"),
        (((2, 3, 5, 5), (4, 3, 3, 3)), {"padding": -1}, "negative padding is not supported"),
        (((2, 3, 5, 5), (4, 3, 3, 3)), {"dilation": 0}, "dilation should be greater than zero"),
        (((2, 3, 5, 5), (4, 3, 3, 3)), {"padding": "wide"}, "Invalid padding string"),
        (((2, 4, 5, 5), (3, 2, 3, 3)), {"groups": 2}, "divisible by groups=2"),
        (((2, 3, 5, 5), (4, 3, 3, 3)), {"padding": "same", "stride": 2}, "strided convolutions"),
        (((2, 3, 5, 5), (4, 3, 3, 3), (3,)), {}, "expected bias to be 1-dimensional with 4 elem"),
    ],
)
def test_errors_are_torchs(shapes, settings, words):
    same_error(lambda m: m.nn.functional.conv2d(*(m.zeros(*s) for s in shapes), **settings), words)


def test_mixed_types_are_an_error():
    x, w = lucid_gpu.zeros(1, 1, 3, 3), lucid_gpu.zeros(1, 1, 3, 3, dtype=lucid_gpu.float64)
    with pytest.raises(
        RuntimeError, match="Input type .*FloatTensor.* and weight type .*DoubleTensor"
    ):
        F.conv2d(x, w)


@pytest.mark.parametrize(
    ("shapes", "settings", "words"),
    [
        (((2, 3, 5), (4, 3, 6)), {}, "channel: (5). Kernel size: (6). Kernel size can't be"),
        (((2, 3, 5, 5), (4, 3, 3)), {}, "Expected 2D (unbatched) or 3D (batched) input to conv1d"),
        (((2, 3, 5), (4, 3, 3)), {"stride": (1, 2)}, "a list of 1 values to match"),
    ],
)
def test_errors_of_signals_are_torchs(shapes, settings, words):
    same_error(lambda m: m.nn.functional.conv1d(*(m.zeros(*s) for s in shapes), **settings), words)

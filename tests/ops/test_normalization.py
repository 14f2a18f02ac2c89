"""Normalization against PyTorch."""

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradcheck, gradgradcheck
from lucid_gpu.nn import functional as F
from lucid_gpu.ops.normalization import moments
from tests.oracle import agree, same_error, torch_module

normal = np.random.default_rng(0).standard_normal


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize(
    ("x", "shape"),
    [
        (normal((4, 6)), (6,)),
        (normal((2, 3, 4)), (3, 4)),
        (normal((4, 3, 2)).T, (4,)),
        (normal((2, 3, 8))[..., ::2], (4,)),
    ],
)
def test_layer_norm_agrees_with_torch(x, shape, affine, device):
    more = [normal(shape), normal(shape)] if affine else []
    agree(lambda m, x, *p: m.nn.functional.layer_norm(x, shape, *p), x, *more, device=device)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "x", [normal((6, 3)), normal((4, 3, 5)), normal((4, 3, 2, 2)), normal((2, 4, 3, 5)).T]
)
def test_batch_norm_agrees_with_torch(x, training, device):
    c = x.shape[1]

    def normalized(m, x, weight, bias, mean, variance):
        mean, variance = mean.detach().clone(), variance.detach().clone()
        y = m.nn.functional.batch_norm(
            x, mean, variance, weight, bias, training=training, momentum=0.2
        )
        return y, mean, variance

    agree(normalized, x, normal(c), normal(c), normal(c), normal(c) ** 2 + 0.1, device=device)


@pytest.mark.parametrize("eps", [None, 1e-3])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize(
    ("x", "shape"),
    [(normal((4, 6)), (6,)), (normal((2, 3, 4)), (3, 4)), (normal((4, 3, 2)).T, (4,))],
)
def test_rms_norm_agrees_with_torch(x, shape, affine, eps, device):
    more = [normal(shape)] if affine else [None]
    agree(lambda m, x, w: m.nn.functional.rms_norm(x, shape, w, eps), x, *more, device=device)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("size", [6, 70000])
def test_narrow_types_are_computed_in_float32(dtype, size, device):
    """Statistics of values far from zero are right, and eps is that of the type."""
    torch = torch_module()
    x = (normal((2, size)) * 0.01 + 3).astype(np.float32)
    for name in ("layer_norm", "rms_norm"):
        theirs = torch.tensor(x).to(getattr(torch, dtype))
        mine = lucid_gpu.tensor(x, device=device).to(getattr(lucid_gpu, dtype))
        expected = getattr(torch.nn.functional, name)(theirs, (size,))
        got = getattr(F, name)(mine, (size,))
        assert got.dtype == mine.dtype
        np.testing.assert_allclose(
            got.float().cpu().numpy(),
            expected.float().numpy(),
            2e-2 if dtype != "float32" else 1e-3,
            1e-2,
        )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rms_norm_of_small_16_bit_values(dtype, device):
    """The default eps is float32's: that of bfloat16 would be larger than the mean square."""

    def norm(m, x):
        narrow = x.to(getattr(m, dtype))
        return m.nn.functional.rms_norm(narrow, (4,)).to(m.float64)

    agree(norm, normal((3, 4)) * 0.01, order=0, device=device, rtol=1e-2)


def test_rms_norm_module(device):
    def outcome(m):
        layer = m.nn.RMSNorm(5, eps=1e-4)
        x = m.tensor(np.arange(10.0, dtype=np.float32).reshape(2, 5).tolist())
        return repr(layer), layer(x).detach().tolist(), list(layer.state_dict())

    mine, theirs = outcome(lucid_gpu), outcome(torch_module())
    assert (mine[0], mine[2]) == (theirs[0], theirs[2])
    np.testing.assert_allclose(mine[1], theirs[1], 1e-6)
    assert lucid_gpu.nn.RMSNorm((2, 3), elementwise_affine=False).weight is None


def test_moments_are_stable_for_a_large_mean():
    x = (normal((50, 3)) + 1e4).astype(np.float32)
    mean, variance = moments(lucid_gpu.tensor(x), [0])
    np.testing.assert_allclose(variance.numpy()[0], x.astype(np.float64).var(0), rtol=1e-4)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: F.layer_norm(x, (3,), w),
        lambda x, w: F.layer_norm(x, (3,), w, w * 2),
        lambda x, w: F.rms_norm(x, (3,), w),
        lambda x, w: F.batch_norm(x, None, None, w, training=True),
    ],
)
def test_first_and_second_gradients(function):
    x = lucid_gpu.tensor(normal((4, 3)), requires_grad=True)
    w = lucid_gpu.tensor(normal(3), requires_grad=True)
    assert gradcheck(function, (x, w))
    assert gradgradcheck(function, (x, w))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.nn.functional.layer_norm(m.zeros(2, 3), (4,)), "normalized_shape=[4]"),
        (
            lambda m: m.nn.functional.layer_norm(m.zeros(2, 3), (3,), m.zeros(2)),
            "Expected weight to be of same shape as normalized_shape",
        ),
        (lambda m: m.nn.functional.rms_norm(m.zeros(2, 3), (4,)), "normalized_shape=[4]"),
        (
            lambda m: m.nn.functional.rms_norm(m.zeros(2, 3), (3,), m.zeros(2)),
            "Expected weight to be of same shape as normalized_shape",
        ),
        (
            lambda m: m.nn.functional.batch_norm(m.zeros(1, 3), None, None, training=True),
            "Expected more than 1 value per channel when training",
        ),
        (
            lambda m: m.nn.functional.batch_norm(m.zeros(2, 3), m.zeros(2), m.ones(2)),
            "running_mean should contain 3 elements not 2",
        ),
        (
            lambda m: m.nn.functional.batch_norm(m.zeros(2, 3), m.zeros(3), None),
            "running_var must be defined in evaluation mode",
        ),
        (
            lambda m: m.nn.functional.batch_norm(m.zeros(3), None, None, training=True),
            "",
        ),
        (
            lambda m: m.nn.LayerNorm(3)("abc"),
            "layer_norm(): argument 'input' (position 1) must be Tensor, not str",
        ),
        (
            lambda m: m.nn.functional.max_pool2d([[1.0]], 2),
            "max_pool2d(): argument 'input' (position 1) must be Tensor, not list",
        ),
        (lambda m: m.nn.functional.conv1d([1.0], m.ones(1, 1, 1)), "conv1d()"),
        (lambda m: m.nn.Softmax(dimm=1), "Softmax.__init__() got an unexpected keyword"),
        (lambda m: m.nn.functional.layer_norm(m.zeros(2, 3), ()), "to be at least 1-dimensional"),
        *(
            (call, words)
            for name in ("layer_norm", "rms_norm")
            for call, words in (
                (
                    lambda m, name=name: getattr(m.nn.functional, name)(m.zeros(2, 3), 3),
                    f"{name}(): argument 'normalized_shape' (position 2) must be tuple of ints",
                ),
                (
                    lambda m, name=name: getattr(m.nn.functional, name)(m.arange(3), (3,)),
                    "not implemented for 'Long'",
                ),
            )
        ),
        (
            lambda m: m.nn.functional.batch_norm(m.ones(2, 3).long(), m.zeros(3), m.ones(3)),
            "not implemented for 'Long'",
        ),
        *(
            (
                lambda m, training=training: m.nn.functional.batch_norm(
                    m.ones(2, 3), m.zeros(3), m.ones(3), training=training, eps=-1.0
                ),
                "batch_norm eps must be",
            )
            for training in (True, False)
        ),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(call, words)


@pytest.mark.parametrize("eps", [None, "1", [1], 1j])
@pytest.mark.parametrize(
    ("name", "args"),
    [("layer_norm", ((2,),)), ("group_norm", (2,)), ("instance_norm", ()), ("rms_norm", ((2,),))],
)
def test_an_eps_that_is_no_number_is_refused(name, args, eps):
    if name != "rms_norm" or eps is not None:
        call = lambda m: getattr(m.nn.functional, name)(m.ones(1, 4, 2), *args, eps=eps)  # noqa: E731
        same_error(call, f"must be float, not {type(eps).__name__}")


def test_an_eps_may_be_a_tensor_or_an_integer(device):
    x = lucid_gpu.arange(8.0, device=device).reshape(1, 4, 2)
    expected = F.layer_norm(x, (2,), eps=1.0).tolist()
    assert all(F.layer_norm(x, (2,), eps=e).tolist() == expected for e in (1, lucid_gpu.ones(())))


@pytest.mark.parametrize("columns", [2049, 4_000_007])
def test_long_rows_lose_no_digits(columns, device):
    drawn = np.random.default_rng(1).standard_normal
    x, g = drawn(columns) + 3, drawn(columns)
    found = []
    for kind in ("float32", "float64"):
        rows = lucid_gpu.tensor(x.astype("f4").astype(kind), device=device).requires_grad_()
        y = F.layer_norm(rows, (columns,))
        y.backward(lucid_gpu.tensor(g.astype("f4").astype(kind), device=device))
        found.append([y.detach().double().cpu(), rows.grad.double().cpu()])
    for narrow, wide in zip(*found):
        assert (narrow - wide).abs().max() < 2e-6

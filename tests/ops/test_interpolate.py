"""Resampling, shuffles and grids against PyTorch."""

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradcheck
from lucid_gpu.nn import functional as F
from tests.oracle import agree, same_error, torch_module

normal = np.random.default_rng(0).standard_normal
SHAPES = {1: (2, 3, 5), 2: (2, 3, 5, 4), 3: (1, 2, 3, 4, 3)}
SETTINGS = [
    {"size": 3},
    {"size": 10},
    {"scale_factor": 2},
    {"scale_factor": 1.7},
    {"scale_factor": 0.6},
    {"scale_factor": 1.7, "recompute_scale_factor": True},
]
MODES = [
    *[("nearest", axes) for axes in (1, 2, 3)],
    *[("nearest-exact", axes) for axes in (1, 2)],
    ("area", 2),
    ("linear", 1),
    ("bilinear", 2),
    ("trilinear", 3),
    ("bicubic", 2),
]


@pytest.mark.parametrize(("mode", "axes"), MODES)
def test_agrees_with_torch(mode, axes, device):
    aligned = (
        [{}] if mode in ("nearest", "nearest-exact", "area") else [{}, {"align_corners": True}]
    )

    def run(m, x):
        return [
            m.nn.functional.interpolate(x, mode=mode, **settings, **corners)
            for settings in SETTINGS
            for corners in aligned
        ]

    agree(run, normal(SHAPES[axes]), device=device, order=1)
    x = normal(SHAPES[axes]).astype(np.float32)
    agree(run, x, device=device, order=1, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize(("mode", "axes"), MODES + [("nearest-exact", 3), ("area", 3)])
def test_factors_that_leave_a_size_or_double_it(mode, axes, antialias, device):
    """PyTorch's kernels differ in which of these axes they copy; gradients are those of values."""
    if antialias and mode not in ("bilinear", "bicubic"):
        pytest.skip("not of this mode")
    torch = torch_module()
    for n in (1, 2, 3, 5):
        for factor in (1.1, 1.3, 1.45, 2.2, 2.3):
            array = normal((1, 4, *[n] * axes))
            for factors in (factor, [factor, *[2.0] * (axes - 1)]):
                how = {"scale_factor": factors, "mode": mode, "antialias": antialias}
                expected = torch.nn.functional.interpolate(torch.tensor(array), **how)
                x = lucid_gpu.tensor(array, device=device).requires_grad_()
                y = F.interpolate(x, **how)
                np.testing.assert_allclose(y.detach().cpu(), expected, rtol=1e-9, atol=1e-12)
                g = lucid_gpu.tensor(normal(y.shape), device=device)
                (gx,) = lucid_gpu.autograd.grad(y, [x], g)
                assert abs(float((gx * x).sum() - (y * g).sum())) < 1e-9  # a linear map


def test_nearest_of_volumes_by_the_order_in_memory(device):
    def run(m, x):
        x = x.contiguous(memory_format=m.channels_last_3d)
        return [m.nn.functional.interpolate(x, scale_factor=f).contiguous() for f in (1.3, 2.3)]

    agree(run, normal((1, 4, 3, 3, 3)), device=device, order=0)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "lanczos"])
def test_antialiased(mode, device):
    def run(m, x):
        return [
            m.nn.functional.interpolate(x, size, mode=mode, antialias=True)
            for size in ((3, 2), (11, 6), (2, 9))
        ]

    agree(run, normal((1, 2, 7, 5)), device=device, order=1)


def test_sizes_of_each_axis(device):
    agree(
        lambda m, x: (
            m.nn.functional.interpolate(x, (7, 2), mode="bilinear"),
            m.nn.functional.interpolate(x, scale_factor=(0.5, 3.0)),
            m.nn.functional.interpolate(x, size=(5, 4), mode="bicubic"),
            m.nn.functional.interpolate(x.permute(0, 1, 3, 2), 3, mode="area"),
            m.nn.functional.interpolate(x, 1, mode="bilinear", align_corners=True),
        ),
        normal(SHAPES[2]),
        device=device,
    )
    x = np.arange(24, dtype=np.uint8).reshape(1, 2, 4, 3)
    agree(lambda m, x: m.nn.functional.interpolate(x, 5), x, device=device, order=0)


def test_halves_are_rounded_once(device):
    x = normal((1, 2, 6, 5)).astype(np.float16)
    got = F.interpolate(lucid_gpu.tensor(x, device=device), 9, mode="bicubic").cpu().numpy()
    wide = F.interpolate(lucid_gpu.tensor(x.astype(np.float32)), 9, mode="bicubic").numpy()
    assert np.array_equal(got, wide.astype(np.float16))


@pytest.mark.parametrize("scale", [0.6, 2, 9])
@pytest.mark.parametrize(("mode", "axes"), [*MODES, ("area", 3)])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_of_halves_are_rounded_once(mode, axes, scale, dtype, device):
    """Not once an axis: they are within half a unit in the last place of those of float64."""
    kind, digits = getattr(lucid_gpu, dtype), {"float16": 11, "bfloat16": 8}[dtype]
    x = lucid_gpu.tensor(normal(SHAPES[axes]), device=device).to(kind)

    def slope(x, g):
        x = x.detach().requires_grad_()
        y = F.interpolate(x, scale_factor=scale, mode=mode)
        g = lucid_gpu.tensor(normal(tuple(y.shape)), device=device) if g is None else g
        y.backward(g.to(kind).to(x.dtype))
        return x.grad.double().cpu().numpy(), g

    exact, g = slope(x.double(), None)
    got, _ = slope(x, g)
    near = 2.0**-digits * np.abs(exact) * (1 + 2.0**-6) + 1e-5  # sums are of float32
    assert (np.abs(got - exact) <= near).all()


def test_what_is_not_a_number_stays_where_it_is(device):
    x = np.zeros((1, 1, 4, 4))
    x[..., 0, 0] = np.nan
    agree(lambda m, x: m.nn.Upsample(scale_factor=2, mode="bilinear")(x), x, device=device, order=0)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_gradients(mode):
    x = lucid_gpu.randn(1, 2, 4, 3, dtype=lucid_gpu.float64, requires_grad=True)
    assert gradcheck(lambda x: F.interpolate(x, (6, 2), mode=mode), (x,), check_forward_ad=True)


def test_batched():
    x = lucid_gpu.randn(3, 2, 2, 4)
    each = lucid_gpu.vmap(lambda x: F.interpolate(x, 7, mode="linear"))
    assert lucid_gpu.allclose(each(x)[1], F.interpolate(x[1], 7, mode="linear"))


@pytest.mark.parametrize(
    "make",
    [
        lambda m: m.nn.Upsample(3),
        lambda m: m.nn.Upsample(scale_factor=(2, 3), mode="bilinear", align_corners=True),
        lambda m: m.nn.UpsamplingNearest2d(2),
        lambda m: m.nn.UpsamplingBilinear2d(scale_factor=2),
        lambda m: m.nn.PixelShuffle(2),
        lambda m: m.nn.PixelUnshuffle(2),
        lambda m: m.nn.ChannelShuffle(2),
    ],
)
def test_layers(make, device):
    agree(lambda m, x: make(m)(x), normal((2, 4, 4, 6)), device=device, order=1)
    assert repr(make(lucid_gpu)) == repr(make(torch_module()))


def test_shuffles_of_other_ranks(device):
    agree(
        lambda m, x: (
            m.pixel_shuffle(x, 2),
            m.pixel_unshuffle(x[0], 3),
            m.channel_shuffle(x[0], 2),
        ),
        normal((2, 2, 8, 6, 3)), device=device, order=1,
    )  # fmt: skip


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample(mode, padding, device):
    if device != "cpu" and (mode, padding) != ("bilinear", "reflection"):
        return  # the same composition; each is a dozen kernels to compile
    grid = np.random.default_rng(1).uniform(-1.6, 1.6, (2, 3, 4, 2))

    def run(m, x, grid):
        corners = (False, True) if device == "cpu" else (False,)
        return [m.nn.functional.grid_sample(x, grid, mode, padding, a) for a in corners]

    agree(run, normal((2, 3, 4, 5)), grid, device=device, order=1)
    if mode == "nearest":  # zeros, not None
        grid = lucid_gpu.tensor(grid, device=device, requires_grad=True)
        x = lucid_gpu.zeros(2, 3, 4, 5, dtype=lucid_gpu.float64, device=device)
        run(lucid_gpu, x, grid)[0].sum().backward()
        assert grid.grad.abs().sum().item() == 0


@pytest.mark.parametrize("aligned", [False, True])
def test_volumes(aligned, device):
    def run(m, x, theta):
        grid = m.nn.functional.affine_grid(theta, (2, 3, 2, 4, 3), aligned)
        return grid, m.nn.functional.grid_sample(x, grid * 0.9, align_corners=aligned)

    agree(run, normal((2, 3, 3, 4, 2)), normal((2, 3, 4)), device=device, order=1)


def test_affine_images(device):
    def run(m, theta):
        F = m.nn.functional
        return [F.affine_grid(theta, (2, 1, h, 3), a) for h in (1, 4) for a in (False, True)]

    agree(run, normal((2, 2, 3)), device=device, order=1)


def test_older_names_and_defaults_warn():
    x = lucid_gpu.ones(1, 1, 2, 2)
    for name in ("upsample", "upsample_nearest", "upsample_bilinear"):
        with pytest.warns(UserWarning, match=f"`nn.functional.{name}` is deprecated. Use"):
            assert getattr(F, name)(x, 3).shape == (1, 1, 3, 3)
    with pytest.warns(UserWarning, match="behavior has changed to align_corners=False since"):
        grid = F.affine_grid(lucid_gpu.ones(1, 2, 3), (1, 1, 2, 2))
    with pytest.warns(UserWarning, match="behavior has changed to align_corners=False since"):
        F.grid_sample(x, grid)
    with pytest.warns(UserWarning, match="changed for unit-size grids when align_corners=True"):
        F.affine_grid(lucid_gpu.ones(1, 2, 3), (1, 1, 2, 1), True)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda F, x: F.interpolate(x), "either size or scale_factor should be defined"),
        (lambda F, x: F.interpolate(x, 3, 2), "only one of size or scale_factor should be defined"),
        (lambda F, x: F.interpolate(x, (3,)), "must have the same number of spatial dimensions"),
        (lambda F, x: F.interpolate(x, scale_factor=(2,)), "and scale_factor of shape (2,)"),
        (lambda F, x: F.interpolate(x, 3, mode="linear"), "Got 4D input, but linear mode needs 3D"),
        (lambda F, x: F.interpolate(x[0], 3, mode="bilinear"), "bilinear mode needs 4D input"),
        (lambda F, x: F.interpolate(x[0], 3, mode="bicubic"), "Only 3D, 4D and 5D input Tensors"),
        (lambda F, x: F.interpolate(x, 3, mode="x"), "Only 3D, 4D and 5D input Tensors supporte"),
        (lambda F, x: F.interpolate(x, 3, align_corners=True), "can only be set with the interpo"),
        (lambda F, x: F.interpolate(x, 3, recompute_scale_factor=True), "is not meaningful with"),
        (lambda F, x: F.interpolate(x, 0), "Input and output sizes should be greater than 0, but"),
        (lambda F, x: F.interpolate(x, scale_factor=0.1), "Input and output sizes should be great"),
        (lambda F, x: F.interpolate(x[:, :0], 3), "Non-empty 4D data tensor expected but got a"),
        (lambda F, x: F.interpolate(x.long(), 3), "not implemented for"),
        (lambda F, x: F.interpolate(x, 3, antialias=True), "Anti-alias option is restricted to bi"),
        (lambda F, x: F.interpolate(x, 3.5), ""),
        (
            lambda F, x: F.interpolate(x, 3, None, "lanczos", True, None, True),
            "Lanczos mode does not support align_corners=True",
        ),
        (lambda F, x: F.interpolate(x, (x.sum(), 3)), "expected size to be one of int or Tuple"),
        (lambda F, x: F.pixel_shuffle(x, 3), "input.size(-3)=4 is not divisible by 9"),
        (lambda F, x: F.pixel_shuffle(x, 0), "pixel_shuffle expects a positive upscale_factor"),
        (lambda F, x: F.pixel_unshuffle(x, 4), "input.size(-2)=6 is not divisible by 4"),
        (lambda F, x: F.channel_shuffle(x, 3), "Got 4 channels and 3 groups."),
        (lambda F, x: F.grid_sample(x, x[..., :2], "x"), "expected mode to be 'bilinear', 'neare"),
        (lambda F, x: F.grid_sample(x, x[..., :1], "nearest", "zeros", True), "have size 2 in la"),
        (lambda F, x: F.grid_sample(x, x[0], "nearest", "zeros", True), "have same batch size"),
        (lambda F, x: F.affine_grid(x[0, :1, :3, :3], (1, 1, 2, 2), True), "a batch of 2D affine"),
        (lambda F, x: F.affine_grid(x[0, :1, :2, :3], (1, 1, 2), True), "only supports 4D and 5D"),
        (lambda F, x: F.affine_grid(x[0, :1, :2, :3], (1, 1, 0, 2), True), "Expected non-zero, p"),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(lambda m: call(m.nn.functional, m.ones(1, 4, 6, 6)), words)


def test_gradients_of_nearest_add_up_in_float32():
    g = lucid_gpu.tensor([[1.0, 2**-8, 2**-8], [2**-8, 2**-8, 2**-8], [2**-8, 2**-8, 2**-8]])
    x = lucid_gpu.ones(1, 1, 1, 1, dtype=lucid_gpu.bfloat16, requires_grad=True)
    F.interpolate(x, (3, 3)).backward(g.bfloat16().reshape(1, 1, 3, 3))
    assert x.grad.item() == 1 + 2**-5  # 1 in bfloat16 added one by one


@pytest.mark.parametrize("sizes", [(12, 30), (17, 9), (17, 23), (64, 64)], ids=str)
@pytest.mark.parametrize(
    ("mode", "antialias"),
    [
        ("bilinear", False), ("bilinear", True), ("bicubic", False), ("bicubic", True),
        ("lanczos", True),
    ],
)  # fmt: skip
def test_bytes_are_torchs(mode, antialias, sizes):
    images = np.random.default_rng(1).integers(0, 256, (2, 3, 17, 23), dtype=np.uint8)

    def run(m):
        x, resample = m.from_numpy(images), m.nn.functional.interpolate
        settings = {"mode": mode, "antialias": antialias}
        corners = (False,) if mode == "lanczos" else (False, True)
        images_of = [resample(x, sizes, align_corners=a, **settings) for a in corners]
        return [y.tolist() for y in (*images_of, resample(x, scale_factor=0.6, **settings))]

    assert run(lucid_gpu) == run(torch_module())

"""Pooling layers and functions over one to three axes against PyTorch."""

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.func import vmap
from tests.nn.layers import agrees
from tests.oracle import agree, gives, same_error

normal = np.random.default_rng(0).standard_normal
SIGNALS, IMAGES, VOLUMES = normal((2, 3, 7)), normal((2, 3, 7, 6)), normal((2, 3, 5, 6, 4))

LAYERS = {
    "max 3-D": (lambda m: m.nn.MaxPool3d(2), VOLUMES),
    "max 3-D with all": (lambda m: m.nn.MaxPool3d((3, 2, 3), (2, 1, 3), 1, (1, 2, 1)), VOLUMES),
    "max 3-D, ceil, no batch": (lambda m: m.nn.MaxPool3d(3, 2, 1, ceil_mode=True), VOLUMES[0]),
    "mean 3-D": (lambda m: m.nn.AvgPool3d(2), VOLUMES),
    "mean 3-D with all": (lambda m: m.nn.AvgPool3d((2, 3, 2), (1, 2, 2), 1, True, False), VOLUMES),
    "mean 3-D, divided": (lambda m: m.nn.AvgPool3d(3, 2, 1, divisor_override=5), VOLUMES[0]),
    "adaptive mean 1-D": (lambda m: m.nn.AdaptiveAvgPool1d(3), SIGNALS),
    "adaptive mean 2-D": (lambda m: m.nn.AdaptiveAvgPool2d((3, 4)), IMAGES),
    "adaptive mean 2-D, one number": (lambda m: m.nn.AdaptiveAvgPool2d(1), IMAGES[0]),
    "adaptive mean 2-D, divides": (lambda m: m.nn.AdaptiveAvgPool2d((None, 3)), IMAGES),
    "adaptive mean 3-D": (lambda m: m.nn.AdaptiveAvgPool3d((2, 4, 3)), VOLUMES),
    "adaptive mean, larger": (lambda m: m.nn.AdaptiveAvgPool1d(10), SIGNALS[0]),
    "adaptive max 1-D": (lambda m: m.nn.AdaptiveMaxPool1d(3), SIGNALS),
    "adaptive max 2-D": (lambda m: m.nn.AdaptiveMaxPool2d((3, None)), IMAGES),
    "adaptive max 2-D, divides": (lambda m: m.nn.AdaptiveMaxPool2d((1, 3)), IMAGES),
    "adaptive max 3-D": (lambda m: m.nn.AdaptiveMaxPool3d((2, 4, 3)), VOLUMES[0]),
    "norm 1-D": (lambda m: m.nn.LPPool1d(2, 3, 2), SIGNALS),
    "norm 2-D": (lambda m: m.nn.LPPool2d(3, (2, 3), ceil_mode=True), abs(IMAGES)),
    "norm 3-D": (lambda m: m.nn.LPPool3d(2, 2), VOLUMES),
}


@pytest.mark.parametrize("name", LAYERS)
def test_agrees_with_torch(name, device):
    make, x = LAYERS[name]
    agrees(make, x, device=device, order=2 if "2-D" in name or "with all" in name else 1)


POOLS = {
    "max 1-D": lambda f, x: f.max_pool1d(x, 3, 2, 1, return_indices=True),
    "max 3-D": lambda f, x: f.max_pool3d(x, 3, 2, 1, return_indices=True),
    "max 3-D, dilated": lambda f, x: f.max_pool3d(x, 2, 1, 0, (2, 3, 1), True, True),
    "adaptive 1-D": lambda f, x: f.adaptive_max_pool1d(x, 3, True),
    "adaptive 2-D": lambda f, x: f.adaptive_max_pool2d(x, (3, 4), True),
    "adaptive 3-D": lambda f, x: f.adaptive_max_pool3d(x, (2, 4, 3), True),
}


@pytest.mark.parametrize("name", POOLS)
def test_indices_agree_with_torch_where_numbers_are_equal(name, device):
    rank = int(name[name.index("-") - 1])
    x = np.round(normal((2, 2, 5, 6, 5)[: rank + 2]))
    agree(lambda m, x: POOLS[name](m.nn.functional, x), x, device=device, order=1)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_maxima_go_back(rank, device):
    def back(m, x):
        pool, unpool = getattr(m.nn, f"MaxPool{rank}d"), getattr(m.nn, f"MaxUnpool{rank}d")
        y, places = pool(2, return_indices=True)(x)
        layer = unpool(2)
        return layer(y * y, places), layer(y, places, output_size=[n + 1 for n in x.shape[2:]])

    agree(back, normal((2, 2, 4, 6, 4)[: rank + 2]), device=device, order=2 if rank == 2 else 1)


FRACTIONS = {
    "2-D": (lambda f, x, u: f.fractional_max_pool2d(x, 2, (3, 4), None, True, u), IMAGES),
    "2-D, a ratio": (
        lambda f, x, u: f.fractional_max_pool2d(x, (2, 1), None, (0.5, 0.4), True, u),
        IMAGES[0],
    ),
    "2-D, one window": (lambda f, x, u: f.fractional_max_pool2d(x, 3, 1, None, True, u), IMAGES),
    "3-D": (
        lambda f, x, u: f.fractional_max_pool3d(x, (2, 3, 2), (3, 2, 2), None, True, u),
        VOLUMES,
    ),
    "3-D, a ratio": (
        lambda f, x, u: f.fractional_max_pool3d(x, 2, None, (0.5,) * 3, True, u),
        VOLUMES[0],
    ),
}


@pytest.mark.parametrize("name", FRACTIONS)
def test_fractional_pools_agree_with_torch(name, device):
    call, x = FRACTIONS[name]
    rank = int(name[0])
    samples = np.random.default_rng(2).random((2 if x.ndim == rank + 2 else 1, 3, rank))
    agree(lambda m, x, u: call(m.nn.functional, x, u.detach()), x, samples, device=device)
    more = np.concatenate([samples, samples + 1])  # samples of volumes that are not there
    agree(lambda m, x, u: call(m.nn.functional, x, u.detach()), x, more, device=device)


def test_fractional_layers():
    def told(m, _):
        images, volumes = m.from_numpy(IMAGES), m.from_numpy(VOLUMES)
        layer = m.nn.FractionalMaxPool2d(2, output_ratio=(0.5, 0.7), return_indices=True)
        pooled, places = layer(images)
        there = m.equal(images.flatten(2).gather(2, places.flatten(2)), pooled.flatten(2))
        other = m.nn.FractionalMaxPool3d(2, 2, _random_samples=m.rand(2, 3, 3).double())
        shapes = [list(pooled.shape), list(other(volumes).shape)]
        return [there, shapes, repr(layer), list(other.state_dict())]

    shapes = [[2, 3, 3, 4], [2, 3, 2, 2, 2]]
    gives([True, shapes, "FractionalMaxPool2d()", ["_random_samples"]], told)


def fractional(m, *args, **settings):
    return m.nn.functional.fractional_max_pool2d(m.zeros(2, 3, 7, 8), *args, **settings)


def test_results_take_any_view(device):
    x = lucid_gpu.rand(9, 2, 6, 6, device=device)
    y = lucid_gpu.nn.functional.conv2d(x, lucid_gpu.rand(2, 2, 3, 3, device=device))
    F = lucid_gpu.nn.functional
    for z in (F.max_pool2d(y, 2), F.avg_pool2d(y, 2), F.adaptive_avg_pool2d(y, 3)):
        assert z.view(-1).shape == (z.numel(),)


def test_batches_of_volumes_under_vmap():
    x = lucid_gpu.tensor(VOLUMES)
    F = lucid_gpu.nn.functional
    for pool in (lambda v: F.max_pool3d(v, 2), lambda v: F.adaptive_avg_pool3d(v, (2, 4, 3))):
        np.testing.assert_allclose(vmap(pool)(x).numpy(), pool(x).numpy())


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("size", [(3, 4), (9, 2)])
@pytest.mark.parametrize("area", [False, True])
def test_what_is_not_finite_stays_in_its_windows(area, size, bad, device):
    x = IMAGES.copy()
    x[0, 0, 1, 1] = x[1, 2, -1, -1] = bad

    def means(m, x):
        if area:
            return m.nn.functional.interpolate(x, size, mode="area")
        return m.nn.functional.adaptive_avg_pool2d(x, size)

    agree(means, x, device=device)
    agree(lambda m, x: (means(m, x) * m.tensor(bad).to(x.device)).sum(), x, order=1, device=device)


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (2, 1, 3, 2, 4), (1, 2, 1, 3, 2, 4)])
def test_one_mean_of_any_rank_agrees_with_torch(shape, device):
    agree(lambda m, x: m.nn.AdaptiveAvgPool2d(1)(x), normal(shape), device=device)
    if len(shape) > 2:
        agree(lambda m, x: m.nn.AdaptiveAvgPool3d(1)(x), normal(shape), device=device)


def test_no_windows(device):
    def shapes(m, x):
        F = m.nn.functional
        return F.adaptive_avg_pool2d(x, (0, 2)), F.adaptive_max_pool2d(x, 0)

    agree(shapes, IMAGES, order=0, device=device)
    agree(lambda m, x: m.nn.AdaptiveAvgPool1d(5)(x[:0, 0, 0]), IMAGES, order=1, device=device)


def test_narrow_types_agree_with_torch(device):
    def pooled(m, x):
        return m.nn.functional.adaptive_avg_pool2d(x.half(), (3, 4)).float()

    agree(pooled, IMAGES, order=1, rtol=0.01, atol=0.01, device=device)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.nn.MaxPool3d(5)(m.zeros(1, 2, 3, 3, 3)), "(2x3x3x3). Calculated output size:"),
        (lambda m: m.nn.MaxPool3d(2)(m.zeros(2, 3, 3)), "4D or 5D (batch mode) tensor"),
        (lambda m: m.nn.MaxPool3d((1, 2))(m.zeros(1, 4, 4, 4)), "or a tuple of three ints"),
        (lambda m: m.nn.MaxPool3d(2, padding=2)(m.zeros(1, 4, 4, 4)), "at most half of effective"),
        (lambda m: m.nn.AvgPool3d(2, divisor_override=0)(m.zeros(1, 4, 4, 4)), "not zero"),
        (lambda m: m.nn.AdaptiveAvgPool2d(2)(m.zeros(4, 4)), "adaptive_avg_pool2d(): Expected 3D"),
        (lambda m: m.nn.AdaptiveAvgPool2d((2, 3, 4))(m.zeros(1, 1, 4, 4)), "output_size must be 2"),
        (lambda m: m.nn.AdaptiveAvgPool2d(-1)(m.zeros(1, 4, 4)), "greater than or equal to 0"),
        (lambda m: m.nn.AdaptiveMaxPool2d(2)(m.zeros(1, 0, 4)), "to have non-zero size"),
        (lambda m: m.nn.AdaptiveMaxPool1d(2)(m.zeros(2, 0, 4)), "to have non-zero size"),
        (lambda m: m.nn.AdaptiveAvgPool2d(2.5)(m.zeros(1, 4, 4)), "tuple of ints, not"),
        (lambda m: m.nn.AdaptiveMaxPool3d("abc")(m.zeros(1, 4, 4, 4)), "tuple of ints, not"),
        (lambda m: m.nn.AdaptiveMaxPool1d(2)(m.zeros(1, 4).long()), "not implemented for"),
        (
            lambda m: m.nn.MaxUnpool1d(2)(m.zeros(1, 2), m.tensor([[0, 9]])),
            "Found an invalid max index: 9 (output volumes are of size 4",
        ),
        (
            lambda m: m.nn.MaxUnpool1d(2)(m.zeros(1, 2), m.tensor([[0, 2, 3]])),
            "Expected shape of indices to be same as that of the input tensor",
        ),
        (lambda m: m.nn.MaxUnpool1d(2)(m.zeros(1, 2), m.zeros(1, 2)), "should be type int64 but"),
        (
            lambda m: m.nn.MaxUnpool1d(2)(m.zeros(1, 2), m.tensor([[0, 2]]), (9,)),
            'invalid output_size "(9,)" (dim 0 must be between 2 and 6)',
        ),
        (
            lambda m: m.nn.MaxUnpool1d(2)(m.zeros(1, 2), m.tensor([[0, 2]]), (9, 8, 7, 6)),
            "output_size should be a sequence containing 1 or 3 elements",
        ),
        (
            lambda m: m.nn.MaxUnpool2d(2)(m.zeros(4, 4), m.zeros(4, 4).long()),
            "should be a 3d or 4d Tensor, but got a tensor with 2 dimensions.",
        ),
        (
            lambda m: m.nn.AdaptiveMaxPool1d(2**62 - 1)(m.ones(2, 2, 2)),
            "Storage size calculation overflowed",
        ),
        (lambda m: fractional(m, 2), "requires specifying either an output_size or an output"),
        (
            lambda m: m.nn.FractionalMaxPool3d(3, 2)(m.ones(1, 0, 5, 5, 5)),
            "Expected input to have non-zero size for non-batch dimensions, but got",
        ),
        (lambda m: fractional(m, 2, (7, 3)), "pool height 2 too large relative to input height 7"),
        (lambda m: fractional(m, 2, (3, 3, 3)), "output_size must either be a single Int or tuple"),
        (lambda m: fractional(m, 2, None, (0.5,) * 3), "requires output_ratio to either be a"),
        (lambda m: fractional(m, 2, 3, _random_samples=m.rand(2, 3, 3)), "size(2) equals to 2; "),
        (lambda m: fractional(m, 2, 3, _random_samples=m.rand(2, 3)), "have 3 dimensions, got 2"),
        (lambda m: m.nn.FractionalMaxPool2d(2), "requires specifying either an output size, or"),
        (lambda m: m.nn.FractionalMaxPool3d(2, 3, 0.5), "only one of output_size and output_"),
        (lambda m: m.nn.FractionalMaxPool3d(2, None, 1.5), "must be between 0 and 1 (got 1.5)"),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(call, words)


def test_norm_pools_of_signals_lie_as_their_input(device: str) -> None:
    def scenario(m, where):
        x = m.arange(1.0, 37, device=where).reshape(2, 6, 3).transpose(1, 2)
        return [m.nn.functional.lp_pool1d(x, 2.0, k).stride() for k in (2, 3)]

    gives([[9, 1, 3], [6, 1, 3]], scenario, device)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_pools_of_no_channels_without_a_batch(rank: int, device: str) -> None:
    def scenario(m, where):
        x = m.zeros((0, 6, 4, 8)[: rank + 1], device=where)
        pool = getattr(m.nn.functional, f"adaptive_max_pool{rank}d")
        found = [list(pool(x, size).shape) for size in (2, 4)]
        if rank > 1:
            pool = getattr(m.nn.functional, f"fractional_max_pool{rank}d")
            found.append(list(pool(x, 2, output_size=2).shape))
        return found

    expected = [[0] + [2] * rank, [0] + [4] * rank, [0] + [2] * rank]
    gives(expected[: 2 if rank == 1 else 3], scenario, device)

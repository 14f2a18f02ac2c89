"""Numbers, counts and sums on the way to a result are not cut to 16 bits: all against float64.

float16 ends at 65,504: more elements than that cannot be counted in it, and squares of what is
above 256 are beyond it.
"""

import numpy as np
import pytest

import lucid_gpu as lucid
from lucid_gpu.fusion.optable import TABLE
from lucid_gpu.fusion.typing_rules import BY_STEPS
from lucid_gpu.nn import functional as F
from tests.slow import slow_but

KINDS = [lucid.float16, lucid.bfloat16]
MANY = 70_000


def _other(x):
    return x.detach().flip(-1) * 0.5


def _zeros(x):
    return lucid.zeros_like(x, dtype=lucid.int64)


def _classes(x):
    return lucid.arange(x.shape[1], device=x.device) % x.shape[0]


def _same_weight(x):
    return x.new_full((x.shape[0],), 300.0)


_NAMES = "mean var std amax amin max min median nanmedian nanmean var_mean std_mean"
REDUCTIONS = {name: getattr(lucid, name) for name in _NAMES.split()} | {
    "aminmax": lucid.aminmax,
    "logsumexp": lambda x: x.logsumexp(-1),
    "cov": lucid.cov,
    "corrcoef": lucid.corrcoef,
    "max dim": lambda x: x.amax(-1),
    "nanmean dim": lambda x: x.nanmean(-1),
    "var dim": lambda x: x.var(-1),
    "renorm": lambda x: x.renorm(1, 0, 1000.0),
    "matrix_norm": lambda x: lucid.linalg.matrix_norm(x, 1),
    "cumulative_trapezoid": lambda x: lucid.cumulative_trapezoid(x, dx=0.001),
    "scatter_reduce": lambda x: x.new_zeros(2, 1).scatter_reduce(1, _zeros(x), x, "mean"),
    "scatter amax": lambda x: x.new_zeros(2, 1).scatter_reduce(1, _zeros(x), x, "amax"),
    "index_reduce": lambda x: x.new_zeros(2, 1).index_reduce(1, _zeros(x)[0], x, "mean"),
    "segment_reduce": lambda x: lucid.segment_reduce(x.T, "mean", lengths=_lengths(x)),
    "segment max": lambda x: lucid.segment_reduce(x.T, "max", lengths=_lengths(x)),
    "embedding_bag": lambda x: F.embedding_bag(_rows(x), x.T, mode="mean"),
} | {
    f"{name} {p}": lambda x, function=function, p=p: function(x, p)
    for p in (0.5, 1.0, 2.0, 3.0)
    for name, function in (("norm", lucid.norm), ("normalize", F.normalize))
}  # fmt: skip
LAYERS = {
    "cosine_similarity": lambda x: F.cosine_similarity(x, _other(x), -1),
    "local_response_norm": lambda x: F.local_response_norm(x[None], 3),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "batch_norm": lambda x: F.batch_norm(x.T, None, None, training=True),
    "group_norm": lambda x: F.group_norm(x[None], 1),
    "weight_norm": lambda x: lucid.nn.utils.parametrizations._WeightNorm(0)(_lengths_of(x), x),
}
POOLS = {
    "lp_pool": lambda x: F.lp_pool1d(x[None], 2.0, x.shape[-1]),
    "adaptive_avg_pool": lambda x: F.adaptive_avg_pool1d(x[None], 1),
}
LOSSES = {
    "mse": lambda x, **how: F.mse_loss(x, _other(x), **how),
    "mse of weights": lambda x, **how: F.mse_loss(x, _other(x), weight=_other(x).abs(), **how),
    "l1 of weights": lambda x, **how: F.l1_loss(x, _other(x), weight=_other(x).abs(), **how),
    "huber": lambda x, **how: F.huber_loss(x, _other(x), delta=300.0, **how),
    "smooth_l1": lambda x, **how: F.smooth_l1_loss(x, _other(x), beta=300.0, **how),
    "kl_div": lambda x, **how: F.kl_div(x, _other(x).abs(), **how),
    "gaussian": lambda x, **how: F.gaussian_nll_loss(x, _other(x), _other(x).abs() + 1, **how),
    "poisson": lambda x, **how: F.poisson_nll_loss(x.abs(), _other(x), log_input=False, **how),
    "soft_margin": lambda x, **how: F.soft_margin_loss(x, _other(x).sign(), **how),
    "hinge": lambda x, **how: F.hinge_embedding_loss(x, _other(x).sign(), **how),
    "cosine": lambda x, **how: F.cosine_embedding_loss(x, _other(x), _signs(x), **how),
    "multilabel_soft": lambda x, **how: F.multilabel_soft_margin_loss(x, _bits(x), **how),
    "multi_margin": lambda x, **how: F.multi_margin_loss(x.T, _classes(x), p=2, **how),
    "cross_entropy": lambda x, **how: F.cross_entropy(x.T, _classes(x), **how),
    "cross_entropy of weights": lambda x, **how: F.cross_entropy(
        x.T, _classes(x), weight=_same_weight(x), **how
    ),
    "cross_entropy but one": lambda x, **how: F.cross_entropy(
        x.T, _classes(x), ignore_index=1, **how
    ),
    "soft cross_entropy": lambda x, **how: F.cross_entropy(
        x.T, (x.T.detach() * 0 + x.new_tensor([0.25, 0.75])).to(x.dtype), **how
    ),
    "nll of weights": lambda x, **how: F.nll_loss(x.T, _classes(x), weight=_same_weight(x), **how),
    "nll but one": lambda x, **how: F.nll_loss(x.T, _classes(x), ignore_index=1, **how),
}


def _signs(x):
    return lucid.arange(x.shape[0], device=x.device) % 2 * 2 - 1


def _bits(x):
    return (_other(x) > 0).to(x.dtype)


def _lengths(x):
    return lucid.tensor([x.shape[1]], device=x.device)


def _rows(x):
    return lucid.arange(x.shape[1], device=x.device)[None]


def _lengths_of(x):
    return x.detach()[:, :1].abs()


def _arrays():
    rng = np.random.default_rng(0)
    signs = rng.choice([-1.0, 1.0], (2, 1000))
    return {
        "above 256": signs[:, :300] * rng.integers(300, 2000, (2, 300)),
        "squares that add up": signs * 30 + rng.integers(-3, 4, (2, 1000)) * 0.25,
        "ones": np.ones((2, MANY)),
        "many": rng.integers(1, 9, (2, MANY)) / 8.0,
    }


ARRAYS = _arrays()


def _computed(function, array, kind, device):
    x = lucid.tensor(array, dtype=kind, device=device).requires_grad_()
    results = function(x)
    results = [results] if isinstance(results, lucid.Tensor) else [*results]
    cotangents = [_counted(t) for t in results]
    found = [*results, *lucid.autograd.grad(results, [x], cotangents)]
    assert all(t.dtype is kind for t in found)
    return [t.detach().cpu().double().numpy() for t in found]


def _counted(t):
    """1, 2, 3, 1, ... of a tensor's shape: gradients of equal cotangents may cancel."""
    return (lucid.arange(t.numel(), device=t.device) % 3 + 1).reshape(t.shape).to(t.dtype)


def _agrees(function, array, kind, device):
    """Results and gradient are those of float64 but for roundings, relative to the largest."""
    exact = lucid.tensor(array, dtype=kind).double().numpy()
    expected = _computed(function, exact, lucid.float64, device)
    unit = lucid.finfo(kind).eps
    limit = lucid.finfo(kind).max
    for got, right in zip(_computed(function, exact, kind, device), expected, strict=True):
        beyond = np.abs(right) > 0.99 * limit
        if beyond.any():  # neither type holds it, nor what goes back through it
            return
        tolerance = 12 * unit * np.abs(right).max() + 2 * unit * 2.0**-14
        np.testing.assert_allclose(got, right, rtol=0, atol=tolerance)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("values", slow_but(ARRAYS, "above 256", "many"))
@pytest.mark.parametrize("name", [*REDUCTIONS, *LAYERS])
def test_reductions_and_what_is_made_of_them(name, values, kind, device):
    if name == "matrix_norm" and values == "above 256":
        pytest.skip("the columns' sums are beyond float16")
    _agrees((REDUCTIONS | LAYERS)[name], ARRAYS[values], kind, device)


@pytest.mark.each_value  # the places of a window are walked one by one
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("values", ARRAYS)
@pytest.mark.parametrize("name", POOLS)
def test_windows(name, values, kind, device):
    _agrees(POOLS[name], ARRAYS[values], kind, device)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("values", ["above 256", "squares that add up", "many"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses(name, values, kind, device):
    _agrees(LOSSES[name], ARRAYS[values], kind, device)
    _agrees(lambda x: LOSSES[name](x, reduction="none"), ARRAYS[values], kind, device)


@pytest.mark.parametrize("name", ["cross_entropy", "cross_entropy of weights", "nll but one"])
def test_recorded_gradients_of_losses(name, device):
    def function(x):
        (g,) = lucid.autograd.grad(LOSSES[name](x), [x], create_graph=True)
        return x * 0 + g

    _agrees(function, ARRAYS["many"], lucid.float16, device)


def test_gradients_are_clipped_by_a_norm_beyond_the_type(device):
    p = lucid.zeros(1000, dtype=lucid.float16, device=device, requires_grad=True)
    p.grad = lucid.full_like(p, 3000.0)
    total = lucid.nn.utils.clip_grad_norm_([p], 1.0)
    assert total.dtype is lucid.float16
    assert total.isinf()  # 94,868
    np.testing.assert_allclose(p.grad.cpu().float().numpy(), 1000**-0.5, rtol=2e-3)


# --- numbers in tensors without dimensions --------------------------------------------------------

PAIRS = [
    name for name, row in TABLE.items()
    if row.arity == 2 and row.rule in ("same", "float") and name not in BY_STEPS
    and name not in ("zeta", "raised", "capped", "bent", "tied", "retied", "root")
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("name", PAIRS)
def test_numbers_beside_sixteen_bits_are_as_they_were_given(name, kind, device):
    """A number has the digits and the range of its own type, as a Python number has them."""
    op = TABLE[name]
    x = lucid.tensor([0.01, 3.0, 1000.0, 6e4], dtype=kind, device=device).requires_grad_()
    for number in (70000.0, 1.0003, 65536, 3.0007):
        y = lucid.tensor(number, device=device)
        got = _apply(op, x, y)
        assert got.dtype is kind
        right = _apply(op, x.detach().double(), y.double()).to(kind)
        np.testing.assert_array_equal(got.detach().cpu().float(), right.cpu().float())
        same = _apply(op, x, number)
        np.testing.assert_array_equal(got.detach().cpu().float(), same.detach().cpu().float())


def _apply(op, *operands):
    from lucid_gpu.tensor import apply

    return apply(op, *operands)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_gradient_of_a_number_is_summed_in_its_own_type(kind, device):
    x = lucid.full((500,), 1000.0, dtype=kind, device=device, requires_grad=True)
    for own in (lucid.float32, lucid.float64):
        y = lucid.tensor(3.0, dtype=own, device=device, requires_grad=True)
        for create_graph in (False, True):
            gx, gy = lucid.autograd.grad((x * y).sum(), [x, y], create_graph=create_graph)
            assert (gx.dtype, gy.dtype) == (kind, own)
            assert gx.unique().tolist() == [3.0]
            assert gy.item() == x[0].item() * 500


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_numbers_in_batches_tangents_and_places(kind, device):
    x = lucid.full((3, 2), 6e4, dtype=kind, device=device)
    y = lucid.full((3,), 70000.0, device=device)
    right = (x.double() / 7e4).to(kind)
    for got in (
        lucid.func.vmap(lambda a, b: a / b)(x, y),
        lucid.func.vmap(lambda a: a / y[0])(x),
        lucid.func.jvp(lambda a: a / y[0], (x,), (x,))[1],
        x.clone().div_(y[0]),
        lucid._foreach_div([x], y[0])[0],
        lucid.where(lucid.ones(2, device=device) > 0, x, y[0]) / 7e4,
    ):
        assert got.dtype is kind
        assert lucid.equal(got, right)


def test_of_two_tensors_with_dimensions_both_are_converted(device):
    x = lucid.tensor([2.0], dtype=lucid.float16, device=device)
    assert (x / lucid.tensor([70000], device=device)).tolist() == [0.0]  # as PyTorch's

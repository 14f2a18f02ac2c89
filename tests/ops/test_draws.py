"""Further kinds of random numbers: moments, reproducibility, gradients, refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.kernels.gamma_samples import gamma_slope
from lucid_gpu.ops.draws import dirichlet, standard_gamma
from tests.oracle import same_error, torch_module

N = 40_000


def drawn(m: Any, device: str, d: Any) -> dict[str, Any]:
    """Numbers of each kind, as doubles on the host."""
    empty = m.empty(N, dtype=d, device=device)
    rate, share = [m.full((N,), x, dtype=d, device=device) for x in (3.5, 0.3)]
    kinds = {
        "poisson": m.poisson(rate),
        "binomial": m.binomial(rate * 0 + 20, share),
        "geometric": empty.clone().geometric_(0.3),
        "cauchy": empty.clone().cauchy_(2.0, 0.5).clamp(-20, 20),
        "log normal": empty.clone().log_normal_(0.5, 0.4),
    }
    assert all(t.dtype is d for t in kinds.values())
    return {name: t.cpu().double().numpy() for name, t in kinds.items()}


@pytest.mark.filterwarnings("ignore")
def test_moments_are_torchs(device: str) -> None:
    torch = torch_module()
    lucid_gpu.manual_seed(5)
    torch.manual_seed(5)
    mine, theirs = drawn(lucid_gpu, device, lucid_gpu.float32), drawn(torch, "cpu", torch.float32)
    for name, numbers in mine.items():
        assert abs(numbers.mean() - theirs[name].mean()) < 0.05, name
        assert abs(numbers.std() / theirs[name].std() - 1) < 0.05, name


def test_the_same_seed_gives_the_same_numbers_on_every_device(device: str) -> None:
    found = []
    for where in (device, "cpu"):
        lucid_gpu.manual_seed(6)
        kinds = drawn(lucid_gpu, where, lucid_gpu.float64)
        kinds["gamma"] = standard_gamma(lucid_gpu.full((9,), 0.7, device=where)).cpu().numpy()
        found.append(kinds)
    for name, numbers in found[0].items():
        np.testing.assert_allclose(numbers, found[1][name], rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("alpha", [0.05, 0.9, 7.0, 2000.0])
def test_gamma_samples_move_with_their_shape(alpha: float) -> None:
    """Against the inverse of the distribution function, by differences."""
    special = pytest.importorskip("scipy.special")
    share = np.linspace(0.02, 0.98, 25)
    step = 1e-5 * alpha
    ends = [special.gammaincinv(a, share) for a in (alpha - step, alpha, alpha + step)]
    expected = (ends[2] - ends[0]) / (2 * step)
    slope = gamma_slope(np.full(25, alpha), ends[1], special.digamma(np.full(25, alpha + 1)))
    kept = ends[1] > 1e-290
    np.testing.assert_allclose(slope[kept], expected[kept], rtol=2e-5)


def test_gamma_and_dirichlet_samples(device: str) -> None:
    lucid_gpu.manual_seed(7)
    alpha = lucid_gpu.full((N,), 2.5, device=device, requires_grad=True)
    x = standard_gamma(alpha)
    x.sum().backward()
    assert abs(x.mean().item() - 2.5) < 0.05
    assert abs(x.var().item() - 2.5) < 0.15
    assert abs(alpha.grad.mean().item() - 1) < 0.02  # the mean is alpha
    weights = lucid_gpu.tensor([1.0, 2.0, 5.0], device=device).expand(N, 3)
    shares = dirichlet(weights)
    np.testing.assert_allclose(shares.mean(0).cpu(), [0.125, 0.25, 0.625], atol=0.01)
    np.testing.assert_allclose(shares.sum(1).cpu(), 1, rtol=1e-5)
    small = standard_gamma(lucid_gpu.full((1000,), 1e-3, device=device))
    assert small.min().item() > 0


def test_gamma_samples_have_no_second_derivative(device: str) -> None:
    alpha = lucid_gpu.ones(3, device=device, requires_grad=True)
    (slope,) = lucid_gpu.autograd.grad(standard_gamma(alpha).sum(), alpha, create_graph=True)
    with pytest.raises(NotImplementedError, match="_standard_gamma_grad"):
        slope.sum().backward()


def test_integers_are_filled_too(device: str) -> None:
    t = lucid_gpu.empty(500, dtype=lucid_gpu.int64, device=device).geometric_(0.5)
    assert t.min().item() == 1 and abs(t.double().mean().item() - 2) < 0.4


def test_a_clone_goes_on_alike() -> None:
    generator = lucid_gpu.Generator().manual_seed(8)
    lucid_gpu.rand(3, generator=generator)
    other = generator.clone_state()
    a, b = [lucid_gpu.rand(3, generator=g).tolist() for g in (generator, other)]
    assert a == b


def test_arguments_by_name(device: str) -> None:
    x = lucid_gpu.rand(size=(2, 3), layout=lucid_gpu.strided, device=device)
    assert x.shape == lucid_gpu.randn(size=(2, 3)).shape
    assert lucid_gpu.rand_like(x, memory_format=lucid_gpu.preserve_format).shape == x.shape
    x.uniform_(**{"from": 3, "to": 4})
    assert x.min().item() >= 3
    assert x.uniform_(to=0.5).max().item() < 0.5


def test_a_forked_state_comes_back() -> None:
    lucid_gpu.random.manual_seed(9)
    with lucid_gpu.random.fork_rng():
        first = lucid_gpu.rand(3).tolist()
    assert lucid_gpu.rand(3).tolist() == first


REFUSED: dict[str, Any] = {
    "uniform of three": lambda m: m.ones(2).uniform_(1, 2, 3),
    "uniform, upside down": lambda m: m.ones(2).uniform_(2, 1),
    "sort of complex numbers": lambda m: m.tensor([1j]).sort(),
    "topk of bools": lambda m: m.tensor([True]).topk(1),
    "poisson of negatives": lambda m: m.poisson(m.tensor([-1.0])),
    "poisson of integers": lambda m: m.poisson(m.tensor([1])),
    "binomial of types": lambda m: m.binomial(m.ones(2), m.ones(2).double()),
    "geometric of one": lambda m: m.ones(2).geometric_(1.0),
    "cauchy of no width": lambda m: m.ones(2).cauchy_(0, 0),
    "log normal of no width": lambda m: m.ones(2).log_normal_(0, -1),
    "cauchy of integers": lambda m: m.tensor([1]).cauchy_(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    same_error(REFUSED[name])


def test_what_is_refused_stays_as_it_was(device: str) -> None:
    t = lucid_gpu.ones(2, device=device)
    with pytest.raises(RuntimeError):
        t.geometric_(math.nan)
    assert t.tolist() == [1, 1]


DRAWS: dict[str, Any] = {
    "poisson": lambda t: lucid_gpu.poisson(t * 50),
    "binomial": lambda t: lucid_gpu.binomial(t * 50, t[0]),
    "gamma": lambda t: lucid_gpu.distributions.Gamma(t, t, validate_args=False).sample(),
    "normal": lambda t: lucid_gpu.normal(t, t),
    "alpha_dropout": lambda t: lucid_gpu.nn.functional.alpha_dropout(t, training=True),
    "dropout1d": lambda t: lucid_gpu.nn.functional.dropout1d(t.reshape(16, 2)),
}


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_each_examples_own_or_the_same_or_refused(
    name: str, batched: bool, device: str
) -> None:
    half = lucid_gpu.full((3, 32), 0.5, dtype=lucid_gpu.float64, device=device)

    def drawn(randomness: str) -> Any:
        def draw(row: Any) -> Any:
            return DRAWS[name](row if batched else half[0])

        return lucid_gpu.func.vmap(draw, randomness=randomness)(half).cpu()

    with pytest.raises(RuntimeError, match="randomness error mode"):
        drawn("error")
    a, b, c = drawn("different")
    assert not a.equal(b)
    assert not a.equal(c)
    if batched and name in ("poisson", "binomial", "gamma"):
        with pytest.raises(RuntimeError, match="same randomness with a batched tensor input"):
            drawn("same")
    else:
        a, b, c = drawn("same")
        assert a.equal(b)
        assert a.equal(c)

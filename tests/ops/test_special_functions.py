"""`lucid_gpu.special` and its kin against torch: values, both derivatives, tails."""

from __future__ import annotations

import math
import shutil
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradcheck, gradgradcheck
from tests.oracle import agree, same_error, torch_module

RNG = np.random.default_rng(23)
POSITIVE = RNG.uniform(0.1, 20, (3, 4))
REAL = RNG.uniform(-4.3, 4.3, (3, 4))
SHARE = np.array([1e-12, 0.2, 0.5, 0.7, 0.999])
FAR = np.array([-300.0, -30.0, -5.0, -1.0, -0.5, 0.0, 2.0, 9.0])
WHOLE = RNG.integers(-9, 9, (3, 4))
SPECIAL = np.array([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan])
ENDS = np.array([0.0, -0.0, -1.0, np.inf, np.nan, -np.inf, 1.0, 0.5])
OTHER = np.array([1.0, np.nan, -1.0, 3.0, np.inf, 0.0, 2.0])

CASES: dict[str, tuple[Any, ...]] = {
    "gamma": (lambda m, t: (t.lgamma(), m.special.gammaln(t) + m.special.psi(t)), POSITIVE),
    "digamma below zero": (lambda m, t: t.digamma() + m.lgamma(t), REAL),
    "polygamma": (lambda m, t: (t.polygamma(1), m.polygamma(3, t)), POSITIVE),
    "mvlgamma": (lambda m, t: (m.mvlgamma(t + 2, 3), m.special.multigammaln(t + 1, 2)), POSITIVE),
    "normal": (lambda m, t: (m.special.ndtr(t), m.special.log_ndtr(t)), FAR),
    "quantiles": (lambda m, t: (m.special.ndtri(t), m.erfinv(t * 0.9), t.logit()), SHARE),
    "logit at its ends": (lambda m, t: m.logit(t), np.array([0.0, 1.0])),
    "logit of a margin": (lambda m, t: m.special.logit(t, eps=0.1), SHARE),
    "erfcx": (lambda m, t: m.special.erfcx(t), FAR[2:]),
    "bessel": (lambda m, t: (m.i0(t) + m.special.i0(t), t.i0(), m.special.i1(t)), REAL),
    "bessel, scaled": (lambda m, t: (m.special.i0e(t), m.special.i1e(t)), FAR[FAR != 0]),
    "bessel of anything": (
        lambda m, t: tuple(f(t.detach()) for s in [m.special] for f in (s.i0, s.i0e, s.i1, s.i1e)),
        np.array([0.0, -0.0, np.nan, 1e-9, -2.0, 19.99, 20.0, -20.01, 700.0, 714.5, 1e300]),
    ),
    "xlogy": (lambda m, t, u: (m.xlogy(t, u), m.special.xlog1py(t, u)), REAL, POSITIVE),
    "xlogy of numbers": (lambda m, t: (m.xlogy(t, 2.0), m.special.xlogy(0.5, t)), POSITIVE),
    "entr": (lambda m, t: m.special.entr(t.abs() + 0.1), REAL),
    "entr at its ends": (lambda m, t: m.special.entr(t), ENDS),
    "logit of no share": (lambda m, t: m.logit(t) * 1, ENDS[2:6]),
    "polygamma by name": (lambda m, t: (t.polygamma(n=2), (t * 1).polygamma_(n=2)), POSITIVE),
    "xlog1py of infinity": (
        lambda m, t, u: m.special.xlog1py(t, u), np.zeros(2), np.array([np.inf, 0.5])
    ),
    "xlog1py near 0": (
        lambda m, t, u: m.special.xlog1py(t, u), np.array([0, 0.5, -2]), np.array([0, 0.0, -0.0])
    ),
    "sinc": (lambda m, t: t.sinc(), FAR[FAR != 0]),
    "logaddexp2": (lambda m, t, u: m.logaddexp2(t, u), REAL, POSITIVE),
    "logaddexp": (lambda m, t, u: m.logaddexp(t, u), REAL, POSITIVE),
    "logaddexp of complex numbers": (
        lambda m, t, u: (m.logaddexp(t, u), t.abs().logaddexp(u)),
        40 * REAL + 3j * POSITIVE,
        40 * REAL.T.reshape(3, 4) - 2j * POSITIVE,
    ),
    "logaddexp of complex ends": (
        lambda m, t, u: m.logaddexp(t.detach(), u.detach()),
        np.array([complex(a, b) for a in SPECIAL for b in SPECIAL]),
        np.array([complex(b, a) for a in OTHER for b in SPECIAL]),
    ),
    "fmax": (lambda m, t, u: (m.fmax(t, u), m.fmin(t, u)), SPECIAL, OTHER),
    "float_power": (lambda m, t: (t.float_power(2), m.float_power(2.0, t)), SHARE.astype("f")),
    "heaviside": (lambda m, t, u: m.heaviside(t.detach(), u.detach()), REAL[0] * 0, REAL[0]),
    "signs": (lambda m, t: (t.signbit(), t.isposinf(), m.isneginf(t), t.isreal()), SPECIAL),
    "signs of integers": (lambda m, t: (t.signbit(), t.isposinf(), m.positive(t)), WHOLE),
    "ldexp": (lambda m, t, n: m.ldexp(t, n), REAL, abs(WHOLE)),
    "frexp": (lambda m, t: tuple(t.frexp()), SPECIAL[2:]),
    "frexp of numbers": (lambda m, t: tuple(m.frexp(t)), REAL),
    "nextafter": (lambda m, t, u: m.nextafter(t.detach(), u.detach()), REAL, POSITIVE),
    "nextafter's gradient": (
        lambda m, t, u: m.nextafter(t, u), REAL, np.stack([REAL[0], *POSITIVE[1:]])
    ),
    "divisors": (lambda m, t, u: (m.gcd(t, u), t.lcm(u)), WHOLE, WHOLE.T.reshape(3, 4)),
    "integers": (lambda m, t: (m.lgamma(t), m.special.expit(t), t.sinc()), np.arange(1, 5)),
    "gamma's integral in place": (
        lambda m, t: (t.detach().igamma_(t.detach() + 1), (t.detach() + 1).igammac_(t.detach())),
        POSITIVE,
    ),
    "in place": (lambda m, t: ((t * 1).digamma_(), (t * 1).lgamma_(), (t * 1).logit_()), SHARE),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_as_in_torch(name: str, device: str) -> None:
    function, *arrays = CASES[name]
    order = (
        1
        if name
        in (
            "entr",
            "ldexp",
            "float_power",
            "frexp",
            "in place",
            "nextafter's gradient",
            "logit at its ends",
            "logit of no share",
        )
        else 2
    )
    agree(function, *arrays, device=device, order=order, rtol=1e-6, atol=1e-9)


def test_second_derivatives_near_zero(device: str) -> None:
    """Of numbers that have no inverse, or not all their digits."""
    for name in ("i1", "i1e"):
        x = lucid_gpu.tensor([1e-320, -1e-300, 1e-30], dtype=lucid_gpu.float64, device=device)
        x.requires_grad_()
        (first,) = lucid_gpu.autograd.grad(
            getattr(lucid_gpu.special, name)(x).sum(), x, create_graph=True
        )
        (second,) = lucid_gpu.autograd.grad(first.sum(), x)
        assert first.tolist() == [0.5] * 3
        assert second.tolist() == [0.0] * 3


def test_derivatives_that_torch_has_not(device: str) -> None:
    """The second of sinc at 0, and the gradient of ldexp with negative exponents."""
    x = lucid_gpu.tensor([0.0, 3.0], device=device, dtype=lucid_gpu.float64, requires_grad=True)
    assert gradgradcheck(lambda t: t.sinc(), (x,))
    assert gradcheck(lambda t: t.ldexp(lucid_gpu.tensor([-2, 3], device=device)), (x,))


TAILS: dict[str, tuple[Any, Any]] = {
    "gammaln": (lambda s: s.gammaln, np.concatenate([np.linspace(-9.7, 60, 301), [1e-12, 1e9]])),
    "digamma": (lambda s: s.digamma, np.concatenate([np.linspace(-9.7, 60, 301), [1e-12, 1e9]])),
    "erfcx": (lambda s: s.erfcx, np.linspace(-20, 60, 301)),
    "i0e": (lambda s: s.i0e, np.concatenate([np.linspace(-60, 60, 301), [1e-300, 1e9, 1e300]])),
    "i1e": (lambda s: s.i1e, np.concatenate([np.linspace(-60, 60, 301), [1e-300, 1e9, 1e300]])),
    "i0": (lambda s: s.i0, np.linspace(-700, 700, 301)),
    "i1": (lambda s: s.i1, np.linspace(-700, 700, 301)),
    "erfinv": (lambda s: s.erfinv, 1 - 10.0 ** -np.linspace(0.1, 15, 60)),
    "ndtri": (lambda s: s.ndtri, 10.0 ** -np.linspace(0, 300, 60)),
    "log_ndtr": (lambda s: s.log_ndtr, np.linspace(-100, 40, 201)),
    "zeta": (lambda s: lambda x: s.zeta(x * 0 + 3.5, x), np.linspace(0.01, 40, 201)),
}


@pytest.mark.parametrize("executor", ["numpy", "host-cuda"])
@pytest.mark.parametrize("name", TAILS)
def test_double_precision(name: str, executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both implementations, over wide ranges, against SciPy."""
    scipy = pytest.importorskip("scipy.special")
    if executor == "host-cuda":
        if not shutil.which("g++"):
            pytest.skip("compiles with g++, which is missing")
        monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", executor == "host-cuda")
    get, x = TAILS[name]
    got = get(lucid_gpu.special)(lucid_gpu.from_numpy(x)).numpy()
    np.testing.assert_allclose(got, get(scipy)(x), rtol=1e-12, atol=1e-13)


def test_erf_is_right_to_the_last_places_of_float32() -> None:
    x = np.concatenate([np.linspace(-4.5, 4.5, 2001), 10.0 ** np.linspace(-30, 0, 301)])
    x = np.append(x, [0.0, -0.0, np.inf, -np.inf, np.nan]).astype(np.float32)
    got = lucid_gpu.from_numpy(x).erf().numpy()
    expected = np.array([math.erf(v) for v in x.tolist()])
    distance = np.abs(got - expected) / np.spacing(np.abs(expected).astype(np.float32))
    assert np.nanmax(distance) < 4
    assert np.isnan(got[-1]) and math.copysign(1, got[-4]) == -1


def test_gradients(device: str) -> None:
    x = lucid_gpu.tensor([0.3, 1.4, 2.2], device=device, dtype=lucid_gpu.float64)
    x.requires_grad_()
    for function in (
        lambda t: lucid_gpu.special.zeta(3.0, t),
        lambda t: lucid_gpu.special.log_ndtr(t - 1.5),
        lambda t: t.digamma(),
    ):
        assert gradcheck(function, (x,))
        assert gradgradcheck(function, (x,))


def test_the_density_of_a_distribution_is_one_kernel(device: str) -> None:
    a = lucid_gpu.tensor(POSITIVE, device=device)
    with lucid_gpu.profiler.record() as log:
        (a.log() * (a - 1) - a - a.lgamma() + a.digamma()).numpy(force=True)
    assert len(log.kernels) == 1


REFUSED: dict[str, Any] = {
    "polygamma of a negative order": lambda m: m.polygamma(-1, m.ones(2)),
    "mvlgamma of no dimension": lambda m: m.mvlgamma(m.ones(2), 0),
    "heaviside of types": lambda m: m.heaviside(m.ones(2), m.ones(2).double()),
    "positive of bools": lambda m: m.positive(m.tensor([True])),
    "lgamma of complex numbers": lambda m: m.lgamma(m.tensor([1j])),
    "nextafter of shapes": lambda m: m.nextafter(m.ones(3), m.ones(2)),
    "gcd of floats": lambda m: m.gcd(m.ones(2), m.ones(2)),
    "frexp of integers": lambda m: m.tensor([1]).frexp(),
    "signbit of complex numbers": lambda m: m.tensor([1j]).signbit(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    same_error(REFUSED[name])


def test_incomplete_gamma_functions(device: str) -> None:
    a, x = np.array([[0.5], [2.0], [30.0]]), np.array([0.0, 0.3, 4.0, 31.0])

    def both(m: Any, x: Any) -> Any:
        shape = m.tensor(a).to(x.device)
        above = m.special.gammaincc(shape, x + 0.1)
        return m.igamma(shape, x + 0.1), above, m.distributions.Gamma(shape, 2.0).cdf(x)

    agree(both, x[1:], device=device, order=2)
    agree(lambda m, x: (m.igammac(m.ones(2).to(x.device), x[:2]),), x, device=device, order=0)
    same_error(lambda m: m.igamma(m.ones(2).long(), m.ones(2).long()), "igamma")
    same_error(
        lambda m: m.igamma(m.ones(2, requires_grad=True), m.ones(2)).sum().backward(), "input"
    )


def test_derivatives_of_sinc_near_zero(device: str) -> None:
    x = lucid_gpu.tensor([1e-6, 1e-4, 1e-3, -1e-2, 0.1, 0.3, 0.33], device=device).requires_grad_()
    exact = np.array(x.tolist())
    value, expected = x.sinc(), [0 * exact, 0 * exact, 0 * exact]
    for n in range(20):
        factor = (-1) ** n * np.pi ** (2 * n) / math.factorial(2 * n + 1)
        for order in range(min(3, 2 * n + 1)):
            powers = math.prod(range(2 * n - order + 1, 2 * n + 1)) * exact ** (2 * n - order)
            expected[order] += factor * powers
    for order in range(3):
        assert np.allclose(value.tolist(), expected[order], rtol=2e-6)
        if order < 2:
            (value,) = lucid_gpu.autograd.grad(value.sum(), x, create_graph=True)


def test_operands_of_xlog1py_take_one_type_first(device):
    x, y = [lucid_gpu.tensor([value], device=device) for value in (1000.0, 123.4)]
    for kind in ("float16", "bfloat16"):
        narrow = y.to(getattr(lucid_gpu, kind))
        assert lucid_gpu.equal(
            lucid_gpu.special.xlog1py(x, narrow), lucid_gpu.special.xlog1py(x, narrow.float())
        )


def test_xlog1py_where_there_is_no_logarithm(device):
    def scenario(m, where):
        x = m.tensor([0.0, 0.0, 0.0, 1.0, -2.0], device=where, requires_grad=True)
        y = m.tensor([-1.0, -3.0, 0.5, 0.5, 2.0], device=where)
        z = m.special.xlog1py(x, y)
        (slope,) = m.autograd.grad(z.sum(), x)
        y = m.tensor([-3.0, -1.0, -0.5, 0.5, 2.0], device=where)
        chosen = m.where(y > -1, m.special.xlog1py(x, y), y)
        (part,) = m.autograd.grad(chosen.sum(), x)
        return [z.tolist(), slope.tolist(), part.tolist()]

    ours, theirs = scenario(lucid_gpu, device), scenario(torch_module(), "cpu")
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


BESSEL = {
    **{f"bessel_{kind}{order}": f"{kind}{order}" for kind in "jy" for order in "01"},
    **{f"modified_bessel_{kind}{order}": f"{kind}{order}" for kind in "ik" for order in "01"},
    **{f"scaled_modified_bessel_k{order}": f"k{order}e" for order in "01"},
    "spherical_bessel_j0": "spherical_jn",
    "airy_ai": "airy",
}
CHEBYSHEV = {
    f"{shifted}chebyshev_polynomial_{letter}": f"eval_{'sh_' * bool(shifted)}cheby{letter}"
    for shifted in ("", "shifted_")
    for letter in "tu"
}
POLYNOMIALS = {
    **CHEBYSHEV,
    "hermite_polynomial_h": "eval_hermite",
    "hermite_polynomial_he": "eval_hermitenorm",
    "laguerre_polynomial_l": "eval_laguerre",
    "legendre_polynomial_p": "eval_legendre",
}


@pytest.mark.parametrize("name", BESSEL)
def test_bessel_functions_in_double_precision(name: str, device: str) -> None:
    scipy = pytest.importorskip("scipy.special")
    x = np.concatenate([np.linspace(-60, 60, 997), 10.0 ** np.linspace(-12, 3, 301), SPECIAL[:2]])
    x = x[x >= 0] if "_y" in name or "_k" in name else x
    function = getattr(scipy, BESSEL[name])
    expected = function(0, x) if "spherical" in name else function(x)
    got = getattr(lucid_gpu.special, name)(lucid_gpu.tensor(x, device=device)).cpu().numpy()
    expected = expected[0] if name == "airy_ai" else expected
    loose = 0.0 if "modified" in name else 2e-14  # near the zeros of waves
    np.testing.assert_allclose(got, expected, rtol=2e-12, atol=loose)


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_orthogonal_polynomials_in_double_precision(name: str, device: str) -> None:
    scipy = pytest.importorskip("scipy.special")
    x = np.concatenate([np.linspace(-3, 3, 61), np.linspace(-1, 1, 41)])[:, None]
    n = np.arange(14)
    polynomial = getattr(lucid_gpu.special, name)
    got = polynomial(*[lucid_gpu.tensor(a, device=device) for a in (x, n)]).cpu().numpy()
    expected = getattr(scipy, POLYNOMIALS[name])(n, x)
    np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-12 * abs(expected).max())
    for degree, value in ((-2, 0.0), (0, 1.0), (2.9, expected[5, 2])):
        assert polynomial(x[5].item(), lucid_gpu.tensor([degree])).item() == pytest.approx(value)


@pytest.mark.parametrize(
    "name", [*BESSEL, *POLYNOMIALS, "chebyshev_polynomial_v", "chebyshev_polynomial_w"]
)
def test_functions_without_gradient(name: str) -> None:
    """Types, orders in memory, ``out=`` and vmap, as in torch; and that no gradient is made up."""
    degree = (3,) if "polynomial" in name else ()
    polynomial = bool(degree)

    def calls(m: Any) -> Any:
        f = getattr(m.special, name)
        x = m.tensor([[0.5, 1.5, 2.5], [0.25, 3.0, 7.0]])
        yield f(x, *degree)
        yield f(x.t().double(), *degree)
        yield f(m.tensor([1, 2]), *degree)
        yield f(m.tensor([]), *degree)
        yield f(x, *degree, out=m.empty(2, 3))
        if polynomial:
            yield f(1.5, m.tensor([0, 8, 20]))
            yield f(x, m.tensor([1, 2, 9.0]).double())

    for ours, theirs in zip(calls(lucid_gpu), calls(torch_module()), strict=True):
        assert (ours.shape, ours.stride()) == (theirs.shape, theirs.stride())
        assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=2e-5, atol=1e-6)
    f = getattr(lucid_gpu.special, name)
    x = lucid_gpu.rand(2, 3, requires_grad=not name.startswith("modified_bessel_i"))
    assert not f(x, *degree).requires_grad
    batched = lucid_gpu.vmap(lambda row: f(row, *degree))(x.detach())
    assert lucid_gpu.equal(batched, f(x.detach(), *degree))
    if not name.startswith("modified_bessel_i"):
        same_error(lambda m: getattr(m.special, name)(m.ones(2).half(), *degree), "not implemented")

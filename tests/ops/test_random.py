"""Random tensors: reproducible, of the right distribution, with PyTorch's words for misuse."""

from __future__ import annotations

import math
import pickle
import shutil
import threading
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.core.program import forget
from tests.oracle import same_error

N = 200_000


def moments(t: lucid_gpu.Tensor) -> tuple[float, float]:
    array = t.double().cpu().numpy()
    return float(array.mean()), float(array.std())


# --- generators -----------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_numbers(device: str) -> None:
    lucid_gpu.manual_seed(3)
    a = [f(5, device=device).tolist() for f in (lucid_gpu.rand, lucid_gpu.randn)]
    lucid_gpu.manual_seed(3)
    b = [f(5, device=device).tolist() for f in (lucid_gpu.rand, lucid_gpu.randn)]
    assert a == b
    assert a[0] != lucid_gpu.rand(5, device=device).tolist()


def test_the_numbers_do_not_depend_on_the_device(device: str) -> None:
    lucid_gpu.manual_seed(3)
    there = lucid_gpu.rand(1000, device=device)
    lucid_gpu.manual_seed(3)
    assert there.tolist() == lucid_gpu.rand(1000).tolist()


def drawn_by(m: Any, device: str) -> dict[str, Any]:
    """A draw of every kind and type, by name."""
    m.manual_seed(0x123456789ABCDEF)
    kinds: dict[str, Any] = {}
    for d in (m.float16, m.bfloat16, m.float32, m.float64, m.complex64, m.complex128):
        kinds[f"rand {d}"] = m.rand(7, 301, dtype=d, device=device)
        kinds[f"uniform_ {d}"] = m.empty(7, 301, dtype=d, device=device).uniform_(-0.3, 0.1)
        kinds[f"about randn {d}"] = m.randn(7, 301, dtype=d, device=device)
        kinds[f"about normal_ {d}"] = m.empty(1001, dtype=d, device=device).normal_(3, 0.1)
    for d in (m.uint8, m.int8, m.int16, m.int32, m.int64, m.float16, m.float32, m.float64):
        kinds[f"randint {d}"] = m.randint(3, 100, (7, 301), dtype=d, device=device)
        kinds[f"random_ {d}"] = m.empty(301, dtype=d, device=device).random_()
    kinds["wide randint"] = m.randint(-(2**63), 2**63 - 1, (2000,), device=device)
    kinds["bool"] = m.randint(0, 2, (100,), dtype=m.bool, device=device)
    kinds["randperm"] = m.randperm(3000, device=device)
    p = m.linspace(0, 1, 500, device=device)
    kinds["bernoulli"] = m.bernoulli(p)
    kinds["bernoulli of doubles"] = m.bernoulli(p.double())
    kinds["bernoulli_"] = m.empty(500, device=device).bernoulli_(0.3)
    for d in (m.float16, m.float32, m.float64):
        waits = m.empty(1001, dtype=d, device=device)
        kinds[f"about exponential_ {d}"] = waits.exponential_(2.5)
    kinds["about a mean like the deviation"] = m.empty(9, device=device).normal_(1.0, 1.0)
    kinds["empty"] = m.rand(0, 3, device=device)
    kinds["scalar"] = m.rand((), device=device)
    return {name: t.cpu() for name, t in kinds.items()}


FEW = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-6, "float64": 1e-15} | {
    "complex64": 1e-6,
    "complex128": 1e-15,
}


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="compiles with g++, which is missing")
def test_cuda_c_makes_the_numbers_of_numpy(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit; normal and exponential numbers but for the last places of a logarithm."""
    wanted = drawn_by(lucid_gpu, "cpu")
    forget()
    if device == "cpu":
        monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    found = drawn_by(lucid_gpu, device)
    forget()
    for name, expected in wanted.items():
        got = found[name]
        assert got.dtype is expected.dtype and got.shape == expected.shape, name
        if name.startswith("about"):
            few = FEW[got.dtype.name]
            assert lucid_gpu.allclose(got, expected, rtol=few, atol=few), name
        else:
            assert lucid_gpu.equal(got, expected), name


def test_a_longer_draw_begins_as_a_shorter_one() -> None:
    short = lucid_gpu.rand(10, generator=lucid_gpu.Generator().manual_seed(1))
    long = lucid_gpu.rand(100_000, generator=lucid_gpu.Generator().manual_seed(1))
    assert long[:10].tolist() == short.tolist()


def test_state_is_saved_and_restored(device: str) -> None:
    lucid_gpu.rand(3, device=device)
    state = lucid_gpu.get_rng_state()
    assert state.dtype is lucid_gpu.uint8
    a = lucid_gpu.randn(4, device=device).tolist()
    lucid_gpu.set_rng_state(state)
    assert lucid_gpu.randn(4, device=device).tolist() == a


def test_a_generator_is_a_type() -> None:
    assert isinstance(lucid_gpu.Generator(), lucid_gpu.Generator)


def test_generators_are_streams_of_their_own() -> None:
    first, second = lucid_gpu.Generator(), lucid_gpu.Generator()
    first.manual_seed(1)
    second.manual_seed(1)
    a = [lucid_gpu.rand(2, generator=first).tolist() for _ in range(3)]
    lucid_gpu.rand(100)
    b = [lucid_gpu.rand(2, generator=second).tolist() for _ in range(3)]
    assert a == b
    copy = pickle.loads(pickle.dumps(first))
    assert lucid_gpu.rand(2, generator=copy).tolist() == lucid_gpu.rand(2, generator=first).tolist()
    assert first.device == lucid_gpu.device("cpu")


def test_seeds_are_read_as_in_torch() -> None:
    generator = lucid_gpu.Generator()
    assert generator.initial_seed() == 67280421310721
    assert generator.manual_seed(-1).initial_seed() == 2**64 - 1
    assert generator.seed() == generator.initial_seed()
    assert lucid_gpu.manual_seed(9) is lucid_gpu.default_generator
    assert lucid_gpu.initial_seed() == 9
    assert lucid_gpu.seed() == lucid_gpu.initial_seed() != 9


def test_threads_get_different_draws() -> None:
    generator = lucid_gpu.Generator().manual_seed(2)
    found: list[tuple[int, int]] = []

    def draw() -> None:
        found.extend(generator.next_draw() for _ in range(200))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(offset for _, offset in found) == list(range(800))


# --- distributions --------------------------------------------------------------------------------


@pytest.mark.parametrize("d", ["float16", "bfloat16", "float32", "float64"])
def test_rand_is_uniform(d: str, device: str) -> None:
    t = lucid_gpu.rand(N, dtype=getattr(lucid_gpu, d), device=device)
    assert t.dtype.name == d
    assert t.double().min().item() >= 0 and t.double().max().item() < 1
    mean, std = moments(t)
    assert mean == pytest.approx(0.5, abs=0.005)
    assert std == pytest.approx(math.sqrt(1 / 12), abs=0.005)
    counts = np.histogram(t.double().cpu().numpy(), 8, (0, 1))[0]
    assert np.abs(counts - N / 8).max() < 6 * math.sqrt(N / 8)


@pytest.mark.parametrize("d", ["float16", "bfloat16", "float32", "float64"])
def test_randn_is_normal(d: str, device: str) -> None:
    t = lucid_gpu.randn(N, dtype=getattr(lucid_gpu, d), device=device)
    assert moments(t) == (pytest.approx(0, abs=0.01), pytest.approx(1, abs=0.01))
    array = t.double().cpu().numpy()
    for limit, share in ((1, 0.6827), (2, 0.9545), (3, 0.9973)):
        assert (np.abs(array) < limit).mean() == pytest.approx(share, abs=0.01)
    assert abs(np.corrcoef(array[0::2], array[1::2])[0, 1]) < 0.02  # the pairs of Box and Muller


def test_complex_numbers_have_independent_parts(device: str) -> None:
    z = lucid_gpu.randn(N, dtype=lucid_gpu.complex64, device=device).cpu().numpy()
    assert z.real.std() == pytest.approx(math.sqrt(0.5), abs=0.01)
    assert z.imag.std() == pytest.approx(math.sqrt(0.5), abs=0.01)
    u = lucid_gpu.rand(N, dtype=lucid_gpu.complex64, device=device).cpu().numpy()
    assert u.real.mean() == pytest.approx(0.5, abs=0.01)


def test_randint_covers_its_range_evenly(device: str) -> None:
    t = lucid_gpu.randint(-3, 5, (N,), device=device)
    assert t.dtype is lucid_gpu.int64
    values, counts = np.unique(t.cpu().numpy(), return_counts=True)
    assert values.tolist() == list(range(-3, 5))
    assert np.abs(counts - N / 8).max() < 6 * math.sqrt(N / 8)
    big = lucid_gpu.randint(2**40, (N,), device=device).cpu().numpy()
    assert big.max() < 2**40
    assert big.mean() == pytest.approx(2**39, rel=0.01)
    assert lucid_gpu.randint(3, (2, 2), dtype=lucid_gpu.float32).dtype is lucid_gpu.float32
    assert tuple(lucid_gpu.randint(high=3, size=(2,)).shape) == (2,)
    assert lucid_gpu.randint(0, 256, (50,), dtype=lucid_gpu.uint8).dtype is lucid_gpu.uint8


def test_randperm_is_a_permutation(device: str) -> None:
    order = lucid_gpu.randperm(1000, device=device)
    assert sorted(order.tolist()) == list(range(1000))
    assert order.tolist() != list(range(1000))
    assert tuple(lucid_gpu.randperm(0, device=device).shape) == (0,)
    assert lucid_gpu.randperm(3, dtype=lucid_gpu.int32).dtype is lucid_gpu.int32


def test_permutations_of_three_are_equally_likely() -> None:
    seen: dict[tuple[int, ...], int] = {}
    for _ in range(1200):
        key = tuple(lucid_gpu.randperm(3).tolist())
        seen[key] = seen.get(key, 0) + 1
    assert len(seen) == 6
    assert all(120 < count < 280 for count in seen.values())


def test_like_functions_take_after_their_tensor(device: str) -> None:
    t = lucid_gpu.zeros(2, 3, dtype=lucid_gpu.float64, device=device)
    for made in (lucid_gpu.rand_like(t), lucid_gpu.randn_like(t), lucid_gpu.randint_like(t, 3, 9)):
        assert (made.shape, made.dtype, made.device) == (t.shape, t.dtype, t.device)
    assert lucid_gpu.rand_like(t, dtype=lucid_gpu.float32).dtype is lucid_gpu.float32
    assert lucid_gpu.randint_like(t, 1).sum().item() == 0


def test_normal_takes_numbers_and_tensors(device: str) -> None:
    t = lucid_gpu.normal(3.0, 0.5, (N,), device=device)
    assert moments(t) == (pytest.approx(3, abs=0.01), pytest.approx(0.5, abs=0.01))
    mean = lucid_gpu.arange(3.0, device=device).reshape(3, 1)
    t = lucid_gpu.normal(mean, lucid_gpu.full((N // 4,), 0.1, device=device))
    assert tuple(t.shape) == (3, N // 4)
    np.testing.assert_allclose(t.mean(1).tolist(), [0, 1, 2], atol=0.01)
    assert tuple(lucid_gpu.normal(mean, 1.0).shape) == (3, 1)
    assert lucid_gpu.normal(2.0, lucid_gpu.zeros(4, device=device)).tolist() == [2.0] * 4
    number = lucid_gpu.tensor(2.0, device=device)
    assert lucid_gpu.normal(number, lucid_gpu.zeros((), device=device), (3,)).tolist() == [2.0] * 3


def test_bernoulli_follows_its_probabilities(device: str) -> None:
    p = lucid_gpu.tensor([0.0, 0.25, 1.0], device=device).expand(N // 4, 3)
    t = lucid_gpu.bernoulli(p)
    assert t.dtype is lucid_gpu.float32
    np.testing.assert_allclose(t.mean(0).tolist(), [0, 0.25, 1], atol=0.01)
    assert lucid_gpu.bernoulli(lucid_gpu.zeros(N), 0.5).mean().item() == pytest.approx(
        0.5, abs=0.01
    )
    assert lucid_gpu.bernoulli(lucid_gpu.full((3,), 0.5, requires_grad=True)).requires_grad


def test_multinomial_with_replacement_follows_its_weights(device: str) -> None:
    weights = lucid_gpu.tensor([[1.0, 0.0, 3.0], [5.0, 5.0, 0.0]], device=device)
    drawn = lucid_gpu.multinomial(weights, N // 4, replacement=True)
    assert drawn.dtype is lucid_gpu.int64
    assert tuple(drawn.shape) == (2, N // 4)
    shares = [np.bincount(row, minlength=3) / (N // 4) for row in drawn.cpu().numpy()]
    np.testing.assert_allclose(shares, [[0.25, 0, 0.75], [0.5, 0.5, 0]], atol=0.01)


def test_multinomial_without_replacement_repeats_nothing(device: str) -> None:
    weights = lucid_gpu.tensor([[1.0, 2.0, 3.0, 4.0]], device=device).expand(5000, 4).contiguous()
    drawn = lucid_gpu.multinomial(weights, 3).cpu().numpy()
    assert all(len(set(row)) == 3 for row in drawn.tolist())
    first = np.bincount(drawn[:, 0], minlength=4) / 5000
    np.testing.assert_allclose(first, [0.1, 0.2, 0.3, 0.4], atol=0.03)
    assert sorted(lucid_gpu.multinomial(weights[0], 4).tolist()) == [0, 1, 2, 3]


# --- in place -------------------------------------------------------------------------------------


def test_filling_in_place(device: str) -> None:
    t = lucid_gpu.zeros(N, device=device)
    version = t._version
    assert t.uniform_(-2, 4) is t
    assert t._version == version + 1
    assert moments(t)[0] == pytest.approx(1, abs=0.02)
    assert t.min().item() >= -2 and t.max().item() < 4
    assert moments(t.normal_(5, 2)) == (pytest.approx(5, abs=0.03), pytest.approx(2, abs=0.03))
    assert t.bernoulli_(0.25).mean().item() == pytest.approx(0.25, abs=0.01)
    assert t.exponential_(4).mean().item() == pytest.approx(0.25, abs=0.01)
    assert t.random_(3).max().item() == 2
    assert t.random_(5, 8).min().item() == 5
    assert t.random_().max().item() <= 2**24
    flags = lucid_gpu.zeros(N, dtype=lucid_gpu.bool, device=device).random_()
    assert flags.float().mean().item() == pytest.approx(0.5, abs=0.01)
    assert lucid_gpu.zeros(9, dtype=lucid_gpu.int8).random_().min().item() >= 0


def test_filling_a_view_fills_the_base(device: str) -> None:
    t = lucid_gpu.zeros(4, 3, device=device)
    t[1].uniform_(1, 2)
    assert (t[1] >= 1).all() and t.sum().item() == pytest.approx(t[1].sum().item())


def test_narrow_types_stay_below_their_upper_end(device: str) -> None:
    for name in ("float16", "bfloat16"):
        t = lucid_gpu.zeros(N, dtype=getattr(lucid_gpu, name), device=device).uniform_(3, 4)
        assert t.double().max().item() < 4
        assert t.double().min().item() >= 3


def test_results_can_require_grad(device: str) -> None:
    t = lucid_gpu.rand(3, requires_grad=True, device=device)
    assert t.is_leaf and t.requires_grad
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        t.uniform_()
    with lucid_gpu.no_grad():
        t.uniform_()


def test_sizes_are_ints_or_sequences() -> None:
    assert tuple(lucid_gpu.rand(2, 3).shape) == tuple(lucid_gpu.rand((2, 3)).shape) == (2, 3)
    assert tuple(lucid_gpu.rand([]).shape) == ()
    assert tuple(lucid_gpu.randn(lucid_gpu.Size((2, 0))).shape) == (2, 0)
    out = lucid_gpu.zeros(3)
    assert lucid_gpu.rand(3, out=out) is out and out.max().item() > 0


MISUSE: dict[str, tuple[Any, str]] = {
    "empty range": (lambda m: m.randint(5, 3, (2,)), "random_ expects 'from' to be less than 'to'"),
    "too large for uint8": (
        lambda m: m.randint(300, (2,), dtype=m.uint8),
        "to - 1 is out of bounds",
    ),
    "size is no tuple": (lambda m: m.randint(3, 5), "'size' must be tuple of ints"),
    "negative size": (lambda m: m.rand(-1), "negative dimension -1: [-1]"),
    "negative randperm": (lambda m: m.randperm(-1), "negative dimension"),
    "randperm overflow": (
        lambda m: m.randperm(300, dtype=m.uint8),
        "value cannot be converted to type",
    ),
    "no size": (lambda m: m.rand(), "rand()"),
    "rand of integers": (lambda m: m.rand(2, dtype=m.int64), "not implemented for"),
    "randn of integers": (lambda m: m.randn(2, dtype=m.int64), "not implemented for"),
    "negative std": (lambda m: m.normal(0.0, -1.0, (2,)), "normal expects std >= 0.0"),
    "negative std tensor": (
        lambda m: m.normal(m.zeros(2), m.tensor([1.0, -1.0])),
        "normal expects all elements of std >= 0.0",
    ),
    "probability above 1": (lambda m: m.bernoulli(m.tensor([2.0])), "Expected p_in >= 0"),
    "number above 1": (
        lambda m: m.zeros(2).bernoulli_(2.0),
        "bernoulli_ expects p to be in [0, 1]",
    ),
    "integer probabilities": (lambda m: m.bernoulli(m.tensor([1])), "not implemented for"),
    "uniform_ backwards": (lambda m: m.zeros(2).uniform_(2.0, 1.0), "found from=2 > to=1"),
    "uniform_ of integers": (lambda m: m.arange(2).uniform_(), "not implemented for"),
    "random_ backwards": (lambda m: m.zeros(2).random_(5, 3), "from=5 >= to=3"),
    "exponential_ of rate 0": (lambda m: m.zeros(2).exponential_(0), "found lambda=0"),
    "exponential_ of integers": (lambda m: m.arange(2).exponential_(), "continuous probability"),
    "weights in a cube": (lambda m: m.multinomial(m.ones(2, 2, 2), 1), "prob_dist must be 1 or 2"),
    "too many samples": (lambda m: m.multinomial(m.ones(3), 4), "without replacement"),
    "weights of zero": (lambda m: m.multinomial(m.zeros(3), 1), "sum of probabilities <= 0"),
    "negative weights": (lambda m: m.multinomial(m.tensor([1.0, -1]), 1), "element < 0"),
    "no samples": (lambda m: m.multinomial(m.ones(3), 0), "n_sample <= 0"),
    "integer weights": (lambda m: m.multinomial(m.arange(3), 1), "only supports floating-point"),
    "a number as generator": (lambda m: m.rand(2, generator=3), "enerator"),
    "a float as state": (lambda m: m.set_rng_state(m.zeros(3)), "RNG state must be"),
    "a state too short": (
        lambda m: m.set_rng_state(m.zeros(3, dtype=m.uint8)),
        "found the input RNG state size to be 3",
    ),
    "a word as seed": (lambda m: m.manual_seed("a"), "invalid literal"),
    "a seed too large": (lambda m: m.manual_seed(2**64), "Overflow"),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_in_torch(name: str) -> None:
    function, words = MISUSE[name]
    same_error(function, words)


@pytest.mark.parametrize(
    "limits", [(0, math.inf), (math.nan, 1), (-math.inf, 1), (-3e38, 3e38), (0, 1e39)]
)
def test_limits_that_the_type_does_not_hold_are_refused(limits: tuple[float, float]) -> None:
    same_error(lambda m: m.zeros(2).uniform_(*limits))


@pytest.mark.parametrize("mean", [0.0, "tensor"])
def test_normal_warns_where_out_has_another_size(mean: Any, device: str) -> None:
    spread, out = lucid_gpu.ones(2, 3, device=device), lucid_gpu.empty(5, device=device)
    center = spread if mean == "tensor" else mean
    with pytest.warns(UserWarning, match="was resized since it had shape"):
        assert lucid_gpu.normal(center, spread, out=out) is out
    assert out.shape == (2, 3)

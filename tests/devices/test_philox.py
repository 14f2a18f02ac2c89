"""The random stream is the one its module documents."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lucid_gpu import dtypes as dt
from lucid_gpu.devices import philox

MASK = 0xFFFFFFFF


def one_block(counter: list[int], key: list[int]) -> list[int]:
    """Philox 4x32-10 as the paper writes it, on Python's integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & MASK, (a >> 32) ^ c[3] ^ k[1], a & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


def word(seed: int, offset: int, i: int) -> int:
    j = i // 4
    counter = [j & MASK, j >> 32, offset & MASK, offset >> 32]
    return one_block(counter, [seed & MASK, seed >> 32])[i % 4]


def test_known_answers_of_the_random123_library() -> None:
    def block(counter: tuple[int, ...], seed: int) -> str:
        return " ".join(f"{int(w):08x}" for w in philox.scramble(counter, seed, 1)[0])

    assert block((0,) * 4, 0) == "6627e8d5 e169c58d bc57ac4c 9b00dbd8"
    assert block((MASK,) * 4, 2**64 - 1) == "408f276d 41c83b0e a20bc7c6 6d5451fd"
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    assert block(pi, 0x299F31D0A4093822) == "d16cfe09 94fdcceb 5001e420 24126ea1"


@pytest.mark.parametrize("offset", [0, 1, 63, 64, 2**32 - 1, 2**32, 2**64 - 1])
def test_few_words_are_the_first_of_many(offset: int) -> None:
    many = philox.words(7, offset, 4 * philox.FEW[-1] + 1)
    assert [int(w) for w in many[:5]] == [word(7, offset, i) for i in range(5)]
    for count in (1, 5, *[4 * few + more for few in philox.FEW for more in (-3, 0, 1)]):
        np.testing.assert_array_equal(philox.words(7, offset, count), many[:count])


@pytest.mark.parametrize("few", philox.FEW)
def test_draws_of_few_are_made_together(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    calls: list[int] = []
    scramble = philox.scramble
    monkeypatch.setattr(philox, "scramble", lambda *a: calls.append(a[2]) or scramble(*a))
    for offset in range(2 * philox.AHEAD // few):
        philox.normal(987654321, offset, 4 * few, dt.float32)
    assert calls == [philox.AHEAD, philox.AHEAD]


def test_each_word_depends_on_seed_draw_and_position_alone() -> None:
    seed, offset = 0x123456789ABCDEF0, 0xFEDCBA9876543210
    few, many = philox.words(seed, offset, 7), philox.words(seed, offset, 100_003)
    assert (few == many[:7]).all()
    for i in (0, 1, 2, 3, 4, 32_767, 32_768, 32_769, 100_002):  # either side of a piece's edge
        assert int(many[i]) == word(seed, offset, i)
    doubles = philox.double_words(seed, offset, 50_001)
    for i in (0, 1, 16_383, 16_384, 50_000):
        assert int(doubles[i]) == word(seed, offset, 2 * i) | word(seed, offset, 2 * i + 1) << 32


@pytest.mark.parametrize("d", [dt.float16, dt.bfloat16, dt.float32], ids=str)
def test_uniform_numbers_are_the_top_bits(d: dt.dtype) -> None:
    digits = {dt.float16: 11, dt.bfloat16: 8, dt.float32: 24}[d]
    got = philox.uniform(5, 9, 40_000, d)
    assert (got < 1).all()
    assert (got.astype(d.numpy).astype(got.dtype) == got).all()  # exact in the narrow type
    for i in (0, 3, 39_999):
        assert float(got[i]) == (word(5, 9, i) >> (32 - digits)) / 2**digits


def test_uniform_doubles_have_53_bits() -> None:
    got = philox.uniform(5, 9, 20_000, dt.float64)
    for i in (0, 17_001):
        bits = word(5, 9, 2 * i) | word(5, 9, 2 * i + 1) << 32
        assert got[i] == (bits >> 11) / 2**53


def test_normal_numbers_come_in_pairs() -> None:
    got = philox.normal(5, 9, 40_001, dt.float32)
    for i in (0, 1, 6, 7, 32_768, 40_000):
        u = (word(5, 9, i - i % 2) + 0.5) / 2**32
        v = word(5, 9, i - i % 2 + 1) / 2**32
        turn = math.cos if i % 2 == 0 else math.sin
        expected = math.sqrt(-2 * math.log(u)) * turn(2 * math.pi * v)
        assert got[i] == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_integers_scale_the_words() -> None:
    got = philox.integers(5, 9, 1000, -3, 10)
    assert [int(g) for g in got[:8]] == [-3 + (word(5, 9, i) * 10 >> 32) for i in range(8)]
    span = 10**12
    got = philox.integers(5, 9, 1000, 7, span)
    doubles = philox.double_words(5, 9, 8)
    assert [int(g) for g in got[:8]] == [7 + int(w) % span for w in doubles]


def test_an_order_is_a_permutation() -> None:
    assert (np.sort(philox.order(1, 2, 1000)) == np.arange(1000)).all()
    assert not (philox.order(1, 2, 1000) == philox.order(1, 3, 1000)).all()


def test_exponential_numbers_are_never_zero() -> None:
    got = philox.exponential(1, 2, 100_000)
    assert got.min() > 0
    assert got.mean() == pytest.approx(1, abs=0.02)

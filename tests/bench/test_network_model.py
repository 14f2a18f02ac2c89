"""Properties of the cost model's formulas, and what the command prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.network_model import (
    BUCKETS,
    RANKS,
    Link,
    best_bucket,
    exposed,
    fitted,
    main,
    measured_in,
    ring,
    tree,
    two_levels,
)

LINK = Link(5e-6, 50e9)
FAST = Link(3e-6, 300e9)
SIZES = (4e3, 1e6, 25e6, 1e9)


def test_figures_of_a_calculation_by_hand() -> None:
    assert ring(8, 25e6, LINK) == pytest.approx(14 * 5e-6 + 2 * 25e6 * 7 / 8 / 50e9)
    assert [round(1e3 * ring(p, 25e6, LINK), 1) for p in (8, 1024)] == [0.9, 11.2]
    assert round(1e3 * tree(1024, 25e6, LINK), 1) == 1.1
    # two nodes of two: 1 step each way inside, of half the message; half of it between
    inside = 2 * (3e-6 + 12.5e6 / 300e9)
    assert two_levels(4, 25e6, FAST, LINK, 2) == pytest.approx(inside + ring(2, 12.5e6, LINK))


@pytest.mark.parametrize("cost", [ring, tree])
def test_one_rank_waits_for_nobody_and_more_of_anything_takes_longer(cost: Any) -> None:
    assert cost(1, 1e9, LINK) == 0
    for size in SIZES:
        times = [cost(p, size, LINK) for p in (1, 2, *RANKS)]
        assert times == sorted(times) and len({*times}) == len(times)
        assert cost(8, 2 * size, LINK) > cost(8, size, LINK)
        assert cost(8, size, Link(6e-6, 50e9)) > cost(8, size, LINK) > cost(8, size, FAST)


def test_large_messages_take_twice_their_bytes_and_small_ones_their_steps() -> None:
    for p in RANKS:
        assert ring(p, 1e15, LINK) == pytest.approx(2e15 * (p - 1) / p / 50e9, rel=1e-3)
        assert tree(p, 1e15, LINK) == pytest.approx(2e15 / 50e9, rel=1e-3)
        assert ring(p, 0, LINK) == pytest.approx(2 * (p - 1) * 5e-6)
        assert tree(p, 0, LINK) == pytest.approx(2 * (p.bit_length() - 1) * 5e-6)
    assert ring(8, 25e6, LINK) < tree(8, 25e6, LINK)
    assert ring(1024, 25e6, LINK) > tree(1024, 25e6, LINK)


def test_two_levels() -> None:
    for size in SIZES:
        assert two_levels(8, size, FAST, LINK, 8) == ring(8, size, FAST)
        assert two_levels(1024, size, FAST, LINK, 1) == min(
            ring(1024, size, LINK), tree(1024, size, LINK)
        )
        for p in RANKS[1:]:
            flat = min(ring(p, size, LINK), tree(p, size, LINK))
            slack = 14 * FAST.latency  # a small message gains nothing from the ring inside
            assert two_levels(p, size, FAST, LINK, 8) <= flat + slack


def test_overlap() -> None:
    def cost(n: float) -> float:
        return tree(64, n, LINK)

    total = 100e6
    for bucket in (1e6, 25e6, 100e6):
        parts = [min(bucket, total - i * bucket) for i in range(round(total / bucket))]
        whole = sum(map(cost, parts))
        assert exposed(total, bucket, 0.0, cost) == pytest.approx(whole)  # nothing hides it
        waits = [exposed(total, bucket, b, cost) for b in (0.0, 1e-3, 1e-2, 1.0)]
        assert all(b <= a + 1e-12 for a, b in zip(waits, waits[1:]))
        assert waits[-1] == pytest.approx(cost(parts[-1]))  # the last bucket is never hidden
    best = best_bucket(total, 1e-2, cost)
    assert all(exposed(total, best, 1e-2, cost) <= exposed(total, b, 1e-2, cost) for b in BUCKETS)
    slow = [best_bucket(total, 1e-2, lambda n, p=p: ring(p, n, LINK)) for p in RANKS]
    assert slow == sorted(slow) and slow[-1] > slow[0]  # buckets grow with the ring


def test_a_fit_finds_the_link_that_the_times_are_of() -> None:
    found = fitted(4, [(n, ring(4, n, LINK)) for n in SIZES])
    assert found == pytest.approx(LINK)
    with pytest.raises(ValueError, match="no bandwidth fits"):
        fitted(2, [(1e3, 2.0), (1e6, 1.0)])
    with pytest.raises(ValueError, match="no table of bench"):
        measured_in("| MLP step | 1 |")


def test_the_command_says_that_it_is_a_model(capsys: Any) -> None:
    main([])
    said = capsys.readouterr().out
    assert said.startswith("model, not measured: between nodes 5 us and 50 GB/s")
    assert [int(line.split()[0]) for line in said.splitlines()[5:]] == list(RANKS)
    assert "1024    11.23     1.10" in said
    results = Path(__file__).parents[2] / "bench" / "results" / "distributed.md"
    ranks, measured = measured_in(results.read_text())
    assert ranks == 2 and len(measured) == 5
    main(["--fit", str(results)])
    said = capsys.readouterr().out
    assert said.startswith("fitted to") and "model, not measured" in said

"""Sobol sequences: PyTorch's points where they are not scrambled."""

from __future__ import annotations

from typing import Any

import pytest

import lucid_gpu
from tests.oracle import modules, same_error

pytest.importorskip("scipy")


def engines(*arguments: Any, **settings: Any) -> list[Any]:
    return [m.quasirandom.SobolEngine(*arguments, **settings) for m, _ in modules()]


@pytest.mark.parametrize("dimension", [1, 2, 7, 50])
def test_the_points_are_pytorchs(dimension: int) -> None:
    drawn = []
    for engine in engines(dimension):
        points = [engine.draw(3), engine.draw(5), engine.fast_forward(4).draw(2)]
        points += [engine.reset().draw_base2(3), engine.draw_base2(3)]
        drawn.append([p.tolist() for p in points] + [engine.num_generated])
    assert all(other == drawn[0] for other in drawn)


def test_types_memory_and_names() -> None:
    for (m, _), engine in zip(modules(), engines(2)):
        assert engine.draw(2).dtype is m.float32
        out = m.empty(0, dtype=m.float64)
        assert engine.draw(4, out=out, dtype=m.float64).dtype is m.float64
        assert out.shape == (4, 2) and out.tolist()[0] == [0.75, 0.25]
    assert len({repr(engine) for engine in engines(3, scramble=True, seed=2)}) == 1


def test_scrambled_points_depend_on_the_seed_alone() -> None:
    new = lucid_gpu.quasirandom.SobolEngine
    one, same, other = [new(3, scramble=True, seed=s).draw(64) for s in (1, 1, 2)]
    assert lucid_gpu.equal(one, same) and not lucid_gpu.equal(one, other)
    assert bool(((one >= 0) & (one < 1)).all())
    counts = (one * 4).long().to(lucid_gpu.float32).mean(0)  # balanced: quarters are equally full
    assert counts.tolist() == [1.5] * 3


def test_points_scrambled_without_a_seed_depend_on_manual_seed() -> None:
    for m, _ in modules():
        drawn = []
        for seed in (3, 3, 4):
            m.manual_seed(seed)
            drawn.append(m.quasirandom.SobolEngine(3, scramble=True).draw(8))
        assert m.equal(drawn[0], drawn[1]) and not m.equal(drawn[0], drawn[2])


def test_refusals() -> None:
    same_error(lambda m: m.quasirandom.SobolEngine(0), "Supported range of dimensionality")

    def unbalanced(m: Any) -> None:
        engine = m.quasirandom.SobolEngine(2)
        engine.draw(3)
        engine.draw_base2(2)

    same_error(unbalanced, "balance properties of Sobol' points")

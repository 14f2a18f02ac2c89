"""Layered drawings: everything leads down, nothing overlaps, few lines cross."""

from __future__ import annotations

import random

import pytest

from lucid_gpu.viz import layered


def boxes(drawing, sizes):
    return [
        (x - w / 2, y - h / 2, x + w / 2, y + h / 2)
        for (x, y), (w, h) in zip(drawing.centers, sizes)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_nothing_overlaps_and_everything_leads_down(seed):
    chance = random.Random(seed)
    count = 30
    sizes = [(chance.uniform(20, 90), chance.uniform(15, 50)) for _ in range(count)]
    pairs = {(a, b) for b in range(count) for a in range(b) if chance.random() < 0.06}
    edges = sorted(pairs)
    drawing = layered.draw(sizes, edges)
    found = boxes(drawing, sizes)
    for i, (left, top, right, bottom) in enumerate(found):
        assert left >= -1e-6 and right <= drawing.width + 1e-6
        assert top >= -1e-6 and bottom <= drawing.height + 1e-6
        for l2, t2, r2, b2 in found[:i]:
            assert right <= l2 or r2 <= left or bottom <= t2 or b2 <= top
    for (start, end), line in zip(edges, drawing.edges):
        assert line[0][1] == pytest.approx(found[start][3])
        assert line[-1][1] == pytest.approx(found[end][1])
        heights = [y for _, y in line]
        assert heights == sorted(heights)
        assert found[start][0] < line[0][0] < found[start][2]


def test_crossings_are_undone():
    # Two chains whose middles are given in the wrong order.
    edges = [(0, 3), (1, 2), (2, 4), (3, 5)]
    drawing = layered.draw([(40, 20)] * 6, edges)
    x = [x for x, _ in drawing.centers]
    assert (x[0] < x[1]) == (x[3] < x[2]) == (x[5] < x[4])


def test_a_chain_is_straight():
    drawing = layered.draw([(40, 20), (90, 20), (10, 20)], [(0, 1), (1, 2)])
    assert len({round(x, 3) for x, _ in drawing.centers}) == 1


def test_ends():
    assert layered.draw([], []) == layered.Drawing([], [], 0.0, 0.0)
    with pytest.raises(ValueError, match="cycle"):
        layered.draw([(1, 1)] * 2, [(0, 1), (1, 0)])

"""A layered drawing of a directed graph without cycles, after Sugiyama, Tagawa and Toda (1981).

Boxes stand in layers, every edge leads downward. Edges over several layers bend at points that take
part in the ordering like boxes of no width.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Drawing", "draw"]

_SWEEPS = 12


class Drawing(NamedTuple):
    """Where everything is.

    Attributes
    ----------
    centers : list of (x, y)
        Of the boxes.
    edges : list of lists of (x, y)
        Points on each edge's way: at least its two ends.
    width, height : float
    """

    centers: list[tuple[float, float]]
    edges: list[list[tuple[float, float]]]
    width: float
    height: float


def draw(
    sizes: Sequence[tuple[float, float]],
    edges: Sequence[tuple[int, int]],
    gap: tuple[float, float] = (26.0, 46.0),
) -> Drawing:
    """Place boxes of given widths and heights.

    Parameters
    ----------
    sizes : sequence of (width, height)
    edges : sequence of (from, to)
        Numbers of boxes; they must not form a cycle.
    gap : (float, float)
        Least distance of neighbors in a layer, and of layers.
    """
    ranks = _ranks(len(sizes), edges)
    widths = [width for width, _ in sizes]
    paths: list[list[int]] = []  # of each edge, with bends
    for start, end in edges:
        bends = range(len(widths), len(widths) + ranks[end] - ranks[start] - 1)
        paths.append([start, *bends, end])
        widths += [0.0] * len(bends)
        ranks += [ranks[start] + 1 + i for i in range(len(bends))]
    above: list[list[int]] = [[] for _ in widths]
    below: list[list[int]] = [[] for _ in widths]
    for path in paths:
        for a, b in zip(path, path[1:]):
            below[a].append(b)
            above[b].append(a)
    layers: list[list[int]] = [[] for _ in range(max(ranks, default=-1) + 1)]
    for box, rank in enumerate(ranks):
        layers[rank].append(box)
    _order(layers, above, below)
    x = _columns(layers, widths, above, below, gap[0])
    y, height = _rows(layers, sizes, gap[1])
    centers = [(x[box], y[rank]) for box, rank in enumerate(ranks)]
    right = max((x[i] + w / 2 for i, w in enumerate(widths)), default=0.0)
    lines = [_line(path, centers, sizes) for path in paths]
    _fan_out(lines, edges, sizes)
    return Drawing(centers[: len(sizes)], lines, right, height)


def _ranks(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The layer of each box: as high as those above allow, sources right above what they feed."""
    after: list[list[int]] = [[] for _ in range(count)]
    missing = [0] * count
    for start, end in edges:
        after[start].append(end)
        missing[end] += 1
    sources = [i for i in range(count) if not missing[i]]
    ranks, ready, order = [0] * count, list(sources), []
    while ready:
        box = ready.pop()
        order.append(box)
        for end in after[box]:
            ranks[end] = max(ranks[end], ranks[box] + 1)
            missing[end] -= 1
            if not missing[end]:
                ready.append(end)
    if len(order) < count:
        raise ValueError("the graph has a cycle")
    for box in sources:
        ranks[box] = min((ranks[end] for end in after[box]), default=1) - 1
    return ranks


def _order(layers: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
    """Sort layers by their neighbors' mean place, down and up; the fewest crossings are kept."""
    best, fewest = [list(layer) for layer in layers], _crossings(layers, below)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        turn = layers if down else layers[::-1]
        for fixed, layer in zip(turn, turn[1:]):
            where = {box: float(i) for i, box in enumerate(fixed)}
            wish = {}
            for i, box in enumerate(layer):
                near = (above if down else below)[box]
                wish[box] = sum(where[n] for n in near) / len(near) if near else float(i)
            layer.sort(key=lambda box: wish[box])
        count = _crossings(layers, below)
        if count < fewest:
            best, fewest = [list(layer) for layer in layers], count
    layers[:] = best


def _crossings(layers: list[list[int]], below: list[list[int]]) -> int:
    """How many pairs of edges between neighboring layers cross."""
    total = 0
    for upper, lower in zip(layers, layers[1:]):
        where = {box: i for i, box in enumerate(lower)}
        passed: list[int] = []  # the ends of the edges from further left, sorted
        for box in upper:
            ends = sorted(where[b] for b in below[box])
            total += sum(len(passed) - bisect.bisect_right(passed, end) for end in ends)
            for end in ends:
                bisect.insort(passed, end)
    return total


def _columns(
    layers: list[list[int]],
    widths: list[float],
    above: list[list[int]],
    below: list[list[int]],
    gap: float,
) -> list[float]:
    """Boxes as near to their neighbors' mean as order and widths allow."""
    x = [0.0] * len(widths)
    for layer in layers:
        _spread(layer, [0.0] * len(layer), widths, gap, x)
    for sweep in range(2 * _SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else layers[::-1]:
            nearer, other = (above, below) if down else (below, above)
            wishes = []
            for box in layer:
                near = nearer[box] or other[box] or [box]
                if not widths[box]:  # bends follow bends: long edges are straight
                    near = [n for n in near if not widths[n]] or near
                wishes.append(sum(x[n] for n in near) / len(near))
            _spread(layer, wishes, widths, gap, x)
    left = min((x[i] - w / 2 for i, w in enumerate(widths)), default=0.0)
    return [value - left for value in x]


def _spread(
    layer: list[int], wishes: list[float], widths: list[float], gap: float, x: list[float]
) -> None:
    """The places nearest to the wishes, by squares, that keep order and distances.

    With the distances taken off the wishes it is isotonic regression: neighbors that are out of
    order share the mean of their wishes.
    """
    offsets, at = [], 0.0
    for i, box in enumerate(layer):
        at += (widths[layer[i - 1]] + widths[box]) / 2 + gap if i else 0.0
        offsets.append(at)
    blocks: list[tuple[float, float, int]] = []  # weighted sum of wishes, weight, how many
    for box, wish, offset in zip(layer, wishes, offsets):
        weight, count = 1.0 if widths[box] else 4.0, 1
        total = weight * (wish - offset)
        while blocks and blocks[-1][0] / blocks[-1][1] > total / weight:
            before = blocks.pop()
            total, weight, count = total + before[0], weight + before[1], count + before[2]
        blocks.append((total, weight, count))
    shared = [total / weight for total, weight, count in blocks for _ in range(count)]
    for box, offset, value in zip(layer, offsets, shared):
        x[box] = value + offset


def _rows(
    layers: list[list[int]], sizes: Sequence[tuple[float, float]], gap: float
) -> tuple[list[float], float]:
    """The middle of each layer, and the whole height."""
    y, top = [], 0.0
    for layer in layers:
        height = max((sizes[box][1] for box in layer if box < len(sizes)), default=0.0)
        y.append(top + height / 2)
        top += height + gap
    return y, max(top - gap, 0.0)


def _line(
    path: list[int], centers: list[tuple[float, float]], sizes: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """From the lower side of one box to the upper side of the other."""
    points = [centers[box] for box in path]
    (x0, y0), (x1, y1) = points[0], points[-1]
    points[0] = (x0, y0 + sizes[path[0]][1] / 2)
    points[-1] = (x1, y1 - sizes[path[-1]][1] / 2)
    return points


def _fan_out(
    lines: list[list[tuple[float, float]]],
    edges: Sequence[tuple[int, int]],
    sizes: Sequence[tuple[float, float]],
) -> None:
    """Let edges that meet at a box arrive and leave side by side, in the order they lie in."""
    for end, beside in ((-1, -2), (0, 1)):
        meeting: dict[int, list[int]] = {}
        for i, edge in enumerate(edges):
            meeting.setdefault(edge[end], []).append(i)
        for box, those in meeting.items():
            those.sort(key=lambda i: lines[i][beside][0])
            step = min(18.0, 0.6 * sizes[box][0] / len(those))
            for k, i in enumerate(those):
                x, y = lines[i][end]
                lines[i][end] = (x + step * (k - (len(those) - 1) / 2), y)

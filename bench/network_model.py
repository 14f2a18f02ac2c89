"""A model of how long ranks take to average gradients: ``python -m bench.network_model``.

A message of n bytes takes ``a + n / B`` seconds over a link of latency a and bandwidth B. All is
computed from that; nothing is measured but what `fitted` is given.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["Link", "best_bucket", "exposed", "fitted", "main", "ring", "tree", "two_levels"]

RANKS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
BUCKETS = tuple([1 << i for i in range(18, 31)])  # bytes: 256 KiB to 1 GiB


class Link(NamedTuple):
    """What connects two ranks.

    Attributes
    ----------
    latency : float
        Seconds that a message takes however small it is.
    bandwidth : float
        Bytes a second.
    """

    latency: float
    bandwidth: float


def ring(ranks: int, size: float, link: Link) -> float:
    r"""Seconds of an all_reduce of ``size`` bytes in a ring: :math:`2(p-1)a + 2n(p-1)/(pB)`.

    Each rank sends as few bytes as there can be, in as many steps as twice the number of ranks.
    """
    steps = 2 * (ranks - 1)
    return steps * (link.latency + size / ranks / link.bandwidth)


def tree(ranks: int, size: float, link: Link) -> float:
    r"""Seconds of an all_reduce up and down a tree: :math:`2\lceil\log_2 p\rceil a + 2n/B`.

    The message is cut in pieces that follow each other, so that the depth costs latency only.
    """
    if ranks == 1:
        return 0.0
    depth = math.ceil(math.log2(ranks))
    return 2 * depth * link.latency + 2 * size / link.bandwidth


def two_levels(ranks: int, size: float, inside: Link, between: Link, per_node: int) -> float:
    """Seconds of an all_reduce whose ranks lie in nodes with a faster link inside.

    Ranks of a node reduce and scatter in a ring; each then averages its part with the ranks of its
    place in other nodes, by a ring or a tree, whichever is faster; then parts are gathered.
    """
    local = min(ranks, per_node)
    nodes = -(-ranks // per_node)
    part = size / local
    across = min(ring(nodes, part, between), tree(nodes, part, between))
    return ring(local, size, inside) + across


def exposed(total: float, bucket: float, backward: float, cost: Callable[[float], float]) -> float:
    """Seconds that a step waits for gradients after backward has ended.

    Parameters
    ----------
    total, bucket : float
        Bytes of all gradients, and of a bucket. Buckets become ready one after another, evenly
        spread over backward, and travel one at a time.
    backward : float
        Seconds.
    cost : callable
        Seconds of an all_reduce of so many bytes.
    """
    end, sent = 0.0, 0.0
    while sent < total:
        part = min(bucket, total - sent)
        sent += part
        end = max(end, backward * sent / total) + cost(part)
    return max(end - backward, 0.0)


def best_bucket(total: float, backward: float, cost: Callable[[float], float]) -> int:
    """The size of bucket in `BUCKETS` that exposes least; the smallest of those."""
    return min(BUCKETS, key=lambda size: (exposed(total, size, backward, cost), size))


def fitted(ranks: int, measured: Iterable[tuple[float, float]]) -> Link:
    """The link under which `ring` comes closest to what was measured, relative to it.

    Parameters
    ----------
    ranks : int
        At least 2.
    measured : iterable of (bytes, seconds)
        Of two sizes at least.

    Raises
    ------
    ValueError
        If a line through the points has no positive slope.
    """
    points = np.array(list(measured), np.float64)
    size, seconds = points[:, 0], points[:, 1]
    rows = np.stack([np.ones_like(size), size], 1) / seconds[:, None]
    (start, slope), *_ = np.linalg.lstsq(rows, np.ones_like(size), rcond=None)
    if slope <= 0:
        raise ValueError("the times do not grow with the sizes: no bandwidth fits them")
    steps = 2 * (ranks - 1)
    return Link(max(float(start), 0.0) / steps, steps / ranks / float(slope))


def measured_in(text: str) -> tuple[int, list[tuple[float, float]]]:
    """The number of ranks and the all_reduces in a table that ``bench.distributed`` wrote.

    Raises
    ------
    ValueError
        If there are none.
    """
    ranks = re.search(r"^(\d+) processes", text, re.MULTILINE)
    rows = re.findall(r"^\| all_reduce (\d+) ([KM])iB \| ([\d.]+) \|", text, re.MULTILINE)
    if ranks is None or len(rows) < 2:
        raise ValueError("this is no table of bench.distributed: it has no rows of all_reduce")
    sizes = [float(int(n) << (10 if unit == "K" else 20)) for n, unit, _ in rows]
    return int(ranks[1]), [(s, 1e-3 * float(ms)) for s, (_, _, ms) in zip(sizes, rows, strict=True)]


def table(
    inside: Link, between: Link, per_node: int, size: float, total: float, backward: float
) -> str:
    """What the command prints."""
    lines = [
        f"model, not measured: {_link('between nodes', between)}, {_link('inside', inside)}, "
        f"{per_node} GPUs a node",
        f"all_reduce of {size / 1e6:g} MB in ms; then a step with {total / 1e6:g} MB of gradients "
        f"and a backward of {1e3 * backward:g} ms,",
        "by two levels: the bucket that lets it wait least, and how long it waits after backward",
        "",
        " GPUs     ring     tree  two levels  bucket, MiB  waits, ms",
    ]
    for ranks in RANKS:

        def cost(n: float, ranks: int = ranks) -> float:
            return two_levels(ranks, n, inside, between, per_node)

        bucket = best_bucket(total, backward, cost)
        waits = exposed(total, bucket, backward, cost)
        lines.append(
            f"{ranks:>5} {1e3 * ring(ranks, size, between):>8.2f} "
            f"{1e3 * tree(ranks, size, between):>8.2f} {1e3 * cost(size):>11.2f} "
            f"{bucket / (1 << 20):>12g} {1e3 * waits:>10.2f}"
        )
    return "\n".join(lines)


def _link(name: str, link: Link) -> str:
    return f"{name} {1e6 * link.latency:.3g} us and {link.bandwidth / 1e9:.3g} GB/s"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the model for 8 to 4096 GPUs."""
    parser = argparse.ArgumentParser(
        "python -m bench.network_model", description="A model of all_reduce on many GPUs."
    )
    number = float
    parser.add_argument("--megabytes", type=number, default=25, help="of one all_reduce")
    parser.add_argument("--gradients", type=number, default=500, help="megabytes of a model's")
    parser.add_argument("--backward", type=number, default=100, help="milliseconds")
    parser.add_argument("--latency", type=number, default=5, help="microseconds between nodes")
    parser.add_argument("--bandwidth", type=number, default=50, help="GB/s between nodes")
    parser.add_argument("--inside-latency", type=number, default=3, help="microseconds in a node")
    parser.add_argument("--inside-bandwidth", type=number, default=300, help="GB/s in a node")
    parser.add_argument("--per-node", type=int, default=8, help="GPUs in a node")
    parser.add_argument("--fit", help="a table of bench.distributed: its link instead of the first")
    options = parser.parse_args(arguments)
    between = Link(1e-6 * options.latency, 1e9 * options.bandwidth)
    inside = Link(1e-6 * options.inside_latency, 1e9 * options.inside_bandwidth)
    if options.fit:
        with open(options.fit) as file:
            between = fitted(*measured_in(file.read()))
        print(f"fitted to {options.fit}")
    sizes = 1e6 * options.megabytes, 1e6 * options.gradients
    print(table(inside, between, options.per_node, *sizes, 1e-3 * options.backward))


if __name__ == "__main__":
    main()

"""Steps as graphs, for the peer that captures each step once and replays it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Step = Callable[[], tuple[Any, ...]]


def in_graph(function: Callable[..., Any]) -> Callable[..., Any]:
    """A case's function as it is: the whole step that calls it is captured."""
    return function


def replayed(torch: Any, step: Step) -> Step:
    """A step that is captured now, and is run by `replay`; its results are the same tensors."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()

    def again() -> tuple[Any, ...]:
        graph.replay()
        return results

    return again

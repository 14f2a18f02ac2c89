"""Graphs of a GPU's work: what a replay asks of CUDA, and what is refused of a capture there.

That replays give the bits of plain steps, `tests/cuda/test_graphs.py` shows, which runs here too.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import cupy
import pytest

import lucid_gpu as torch
from lucid_gpu import nn
from lucid_gpu.nn import functional as F


def captured(function: Callable[[], Any]) -> tuple[Any, Any]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function()
    return graph, result


def asked(driver: Any, function: Callable[[], Any]) -> dict[str, int]:
    """What a function asks of CUDA, launches of kernels and products as one count each."""
    torch.cuda.synchronize()
    driver.reset_counts()
    function()
    found: dict[str, int] = {}
    for name, count in driver.counts().items():
        kind = name if name == "launch graph" else name.split()[0]
        found[kind] = found.get(kind, 0) + count
    return found


@pytest.mark.parametrize(("dropout", "graphs", "kernels"), [(0.0, 2, 1), (0.5, 4, 3)])
def test_a_replay_starts_graphs_and_makes_few_calls(
    driver: Any, dropout: float, graphs: int, kernels: int
) -> None:
    layers = [nn.Linear(8, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 2)]
    model = nn.Sequential(*layers).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
    x, y = torch.randn(4, 8, device="cuda"), torch.randn(4, 2, device="cuda")

    def step() -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    graph, _ = captured(step)
    graph.replay()  # makes the optimizer's states
    found = asked(driver, graph.replay)
    assert (found["launch graph"], found["launch"]) == (graphs, kernels), found
    assert "multiply" not in found and "synchronize" not in found


def test_nothing_runs_while_a_graph_is_captured(driver: Any) -> None:
    x = torch.ones(4, 4, device="cuda")
    (x @ x).tanh().cpu()
    graph, y = captured(lambda: (x @ x).tanh() + 1)
    x.fill_(0)
    graph.replay()
    assert y.cpu().tolist() == [[1.0] * 4] * 4


def test_numbers_from_the_cpu_are_constants(driver: Any) -> None:
    x = torch.zeros(4, device="cuda")
    graph, y = captured(lambda: x[torch.tensor([2, 0], device="cuda")])
    for k in range(2):
        x.copy_(torch.arange(4) + k)
        graph.replay()
        assert y.cpu().tolist() == [2 + k, k]


def test_what_was_read_stays_as_long_as_the_graph(driver: Any) -> None:
    x, scale = torch.ones(1000, device="cuda"), torch.full((1000,), 3.0, device="cuda")
    scale.cpu()
    graph, y = captured(partial(torch.mul, x, scale))
    del scale
    torch.cuda.empty_cache()
    others = [torch.full((1000,), 7.0, device="cuda").cpu() for _ in range(3)]
    graph.replay()
    assert y.cpu().eq(3).all() and len(others) == 3


STREAMS = """
import lucid_gpu as torch

x, graph, stream = torch.ones(64, device="cuda"), torch.cuda.CUDAGraph(), torch.cuda.Stream()
with torch.cuda.graph(graph):
    y = (x * 2).requires_grad_()
    y.square().sum().backward()
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream):
    graph.replay()
    z = y.grad + 1
stream.synchronize()
print(z.cpu().eq(5).all().item())
try:
    with torch.cuda.graph(torch.cuda.CUDAGraph()), torch.cuda.stream(stream):
        x.add_(1)
except RuntimeError as error:
    print(str(error).partition(" cannot be")[0], x.cpu().sum().item())
"""


def test_a_program_with_streams(in_process: Callable[[str], str]) -> None:
    """In a process of its own: such a program's later steps ask for more."""
    assert in_process(STREAMS) == "True\na change of the stream 64.0\n"


host = torch.ones(3)
REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "cpu": (lambda x: (x * 2).cpu(), "a copy to the CPU"),
    "from the CPU": (lambda x: x + host.to("cuda"), "a copy to the GPU"),
    "another GPU": (lambda x: x.to("cuda:1"), "a copy to the CPU"),
    "made on another GPU": (lambda x: torch.ones(3, device="cuda:1") * 2, "another GPU"),
    "libraries": (lambda x: torch.linalg.cholesky(x[:, None] * x), r"linalg.cholesky\(\)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_gpu_does_not_capture_is_refused(name: str, driver: Any) -> None:
    function, words = REFUSED[name]
    x = torch.ones(3, device="cuda")
    host.add_(0)
    with pytest.raises(RuntimeError, match=words), torch.cuda.graph(torch.cuda.CUDAGraph()):
        x.mul_(5)
        function(x)
    assert not torch.cuda.is_current_stream_capturing()
    assert x.cpu().tolist() == [1.0] * 3
    graph, y = captured(lambda: x + 1)  # the next capture is as ever
    graph.replay()
    assert y.cpu().tolist() == [2.0] * 3


def test_memory_for_a_graph_comes_from_what_the_usual_pool_has_free(driver: Any) -> None:
    pool = cupy.get_default_memory_pool()
    gc.collect()  # what other tests left
    pool.free_all_blocks()
    x = torch.ones(1 << 20, device="cuda")
    y = x + 1
    free = y.nbytes
    y._realize()
    del y
    assert pool.free_bytes() >= free

    def step() -> Any:
        small = x[:100] + 1
        del small  # free in the graph's pool, whose kernels write it
        large = x * 2
        with driver.failing_allocations(0):
            large._realize()
        return large

    graph, z = captured(step)
    assert pool.free_bytes() < free
    graph.replay()
    assert z.cpu().sum().item() == 2 * (1 << 20)


def test_an_embedding_gradient_of_many_keys_is_captured_whole(driver: Any) -> None:
    """Row numbers are put in order without a wait, and again in each replay."""
    weight = torch.zeros(300, 2, device="cuda", requires_grad=True)
    index = torch.zeros(3000, dtype=torch.int64, device="cuda")

    def step() -> Any:
        return torch.autograd.grad(F.embedding(index, weight).sum(), weight)[0]

    assert asked(driver, step).get("synchronize", 0) == 0
    graph, total = captured(step)
    for count in (300, 7):
        index.copy_(torch.arange(3000) % count)
        graph.replay()
        wanted = torch.bincount(torch.arange(3000) % count, minlength=300)
        assert total[:, 1].long().cpu().tolist() == wanted.tolist()
    found = asked(driver, graph.replay)
    assert found["launch graph"] == 1 and "launch" not in found, found

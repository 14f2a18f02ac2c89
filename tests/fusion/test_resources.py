"""What generated kernels of the benchmark list take: registers, no spills, names that tell."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import lucid_gpu
from lucid_gpu import profiler
from lucid_gpu.launch.nvrtc import GENERATED
from lucid_gpu.nn import functional as F
from tests.kernels.compiling import resources

from .plans import needs_compiler

SHAPE = (512, 1024)


def chain(x, r, bias):
    return 0.5 * x * (1 + lucid_gpu.tanh(0.79788456 * (x + 0.044715 * x * x * x))) * r + (
        lucid_gpu.sigmoid(r) * x
    )


def bias_gelu_residual(x, r, bias):
    return F.gelu(x + bias) + r


@pytest.fixture
def operands(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[list]:
    monkeypatch.setattr("lucid_gpu.launch.Executor.host_cuda", True)
    shapes = (SHAPE, SHAPE, SHAPE[1:])
    yield [lucid_gpu.rand(s).to(request.param).requires_grad_() for s in shapes]


def kernels(run: profiler.Record) -> list[tuple[str, str]]:
    """Name and source of the elementwise kernels that ran."""
    return [(k.name, k.source) for k in run.kernels if "lucid_sum_over" not in k.source]


TYPES = [lucid_gpu.float32, lucid_gpu.bfloat16]


@needs_compiler
@pytest.mark.parametrize("operands", TYPES, ids=str, indirect=True)
@pytest.mark.parametrize("block", [chain, bias_gelu_residual])
def test_forward(block, operands):
    with profiler.record() as run:
        block(*operands).detach().array
    ((name, source),) = kernels(run)
    assert ("tanh" in name) == (block is chain) and not name.endswith("_bwd")
    for architecture in (80, 90):
        found = resources(source, architecture, GENERATED)
        most = 48 if operands[0].dtype is lucid_gpu.float32 else 56  # a pack is eight elements
        assert found.registers <= most and not found.spilled and not found.stack, found


@needs_compiler
@pytest.mark.parametrize("operands", TYPES, ids=str, indirect=True)
@pytest.mark.parametrize("block", [chain, bias_gelu_residual])
def test_backward(block, operands):
    y = block(*operands)
    y.detach().array
    g = lucid_gpu.rand(SHAPE).to(y.dtype)
    g.array
    with profiler.record() as run:
        y.backward(g)
        for t in operands:
            if t.grad is not None:
                t.grad.array
    made = kernels(run)
    assert made
    for name, source in made:
        assert name.endswith("_bwd")
        for architecture in (80, 90):
            found = resources(source, architecture, GENERATED)
            assert found.registers <= 64 and not found.spilled and not found.stack, (name, found)

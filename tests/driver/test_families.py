"""Every family of kernels on streams in adversarial order, and when any allocation fails."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

import lucid_gpu as torch
from lucid_gpu import cuda, nn
from lucid_gpu.nn import functional as F

SEEDS = range(4)
PROGRAMS: dict[str, Callable[..., Any]] = {
    "softmax": lambda x: x.softmax(-1) + x.log_softmax(0),
    "layer norm": lambda x: F.layer_norm(x, x.shape[-1:]) + F.rms_norm(x, x.shape[-1:]),
    "batch norm": lambda x: F.batch_norm(x, None, None, training=True),
    "convolution": lambda x: F.conv2d(x.view(2, 4, 12, 8), x[:8, :36].reshape(8, 4, 3, 3)),
    "pooling": lambda x: (
        F.max_pool2d(x.view(2, 4, 12, 8), 2) + F.avg_pool2d(x.view(2, 4, 12, 8), 2)
    ),
    "attention": lambda x: F.scaled_dot_product_attention(*x.view(3, 1, 2, 8, 16), is_causal=True),
    "masked attention": lambda x: F.scaled_dot_product_attention(
        *x.view(3, 1, 2, 8, 16), attn_mask=x[:8, :8].detach() < 1, dropout_p=0.25
    ),
    "cross entropy": lambda x: F.cross_entropy(x, torch.arange(16)),
    "embedding": lambda x: F.embedding(torch.arange(40) % 16, x),
    "index add": lambda x: x.index_add(0, torch.arange(32) % 16, torch.cat([x, x])),
    "running sums": lambda x: x.cumsum(0) + x.cumsum(1),
    "sums": lambda x: x.sum(0) + x.sum() + x.sum(1, keepdim=True) + x.amax(0),
    "transposes": lambda x: x.t().contiguous() @ x + (x[:, :16] * x[:, :16].t()).exp().sum(),
    "cat": lambda x: torch.cat([x, x * 2, x.flip(0)], 1) + torch.stack([x, x, x], 1).flatten(1),
    "indices": lambda x: x[torch.tensor([3, 1, 3])] + x.gather(0, torch.zeros(3, 48).long()),
    "scatter": lambda x: x.scatter_add(0, torch.arange(48)[None] % 16, x[:1]),
}


def start() -> Any:
    torch.manual_seed(0)
    return torch.randn(16, 48, requires_grad=True)


def run(name: str, x: Any) -> list[Any]:
    """Forward, back, and an optimizer's step; what came of them, on the GPU."""
    torch.manual_seed(1)
    y = PROGRAMS[name](x)
    (y * y).sum().backward()
    nn.utils.clip_grad_norm_([x], 1.0)
    torch.optim.Adam([x]).step()
    return [y.detach(), x.grad, x.detach()]


def bits(tensors: list[Any]) -> list[bytes]:
    return [t.cpu().numpy().tobytes() for t in tensors]


@pytest.fixture(autouse=True)
def on_gpu(request: pytest.FixtureRequest) -> Any:
    if request.config.getoption("--driver"):
        with torch.device("cuda"):
            yield
    else:
        yield


@pytest.mark.parametrize("name", PROGRAMS)
def test_streams_in_any_order_give_the_same_bits(name: str, driver: Any) -> None:
    found = set()
    for seed in SEEDS:
        with driver.order(seed):
            streams, made = [cuda.Stream() for _ in range(3)], []
            for stream in streams:
                stream.wait_stream(cuda.current_stream())
                with cuda.stream(stream):
                    made.append(run(name, start()))
            for stream in streams:
                cuda.current_stream().wait_stream(stream)
            found.update([tuple(bits(tensors)) for tensors in made])
    assert len(found) == 1


def fail_each_allocation(driver: Any, names: list[str]) -> None:
    """Fail the first allocation of each program, then the second, until it needs no more."""
    with torch.device("cuda"):
        for name in names:
            wanted = [bits(run(name, start())) for _ in range(2)][1]  # all is compiled then
            failed = 0
            for n in range(200):
                x = start()
                x.detach().cpu()
                gc.collect()
                cuda.empty_cache()
                with driver.failing_allocations(n, times=1000):
                    try:
                        found = bits(run(name, x))
                    except cuda.OutOfMemoryError as error:
                        assert str(error).startswith("CUDA out of memory. ")
                    else:
                        break
                failed += 1
            assert 2 <= failed < 200, (name, failed)
            assert found == wanted == bits(run(name, start())), name


@pytest.mark.parametrize("part", range(4))
def test_any_allocation_may_fail(part: int, in_process: Callable[[str], str]) -> None:
    names = list(PROGRAMS)[part::4]
    in_process(  # alone: what other tests left in the pool would be used instead
        "import driver_standin; from tests.driver.test_families import fail_each_allocation; "
        f"fail_each_allocation(driver_standin, {names})"
    )

"""Ops on a GPU that is not the current one run there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lucid_gpu as torch
from lucid_gpu import cuda
from lucid_gpu.nn import functional as F

pytestmark = [
    pytest.mark.usefixtures("gpu"),
    pytest.mark.skipif(cuda.device_count() < 2, reason="there is one GPU"),
]


def made(*shape: int) -> Any:
    return torch.randn(*shape).to("cuda:1")


def places() -> Any:
    return torch.tensor([2, 0, 1]).to("cuda:1")


OPS: dict[str, Callable[[Any, Any], Any]] = {
    "ones": lambda x, i: torch.ones(3, device="cuda:1"),
    "full": lambda x, i: torch.full((3,), 2.0, device="cuda:1"),
    "eye": lambda x, i: torch.eye(3, device="cuda:1"),
    "linspace": lambda x, i: torch.linspace(0, 1, 5, device="cuda:1"),
    "randperm": lambda x, i: torch.randperm(5, device="cuda:1"),
    "ones_like": lambda x, i: torch.ones_like(x),
    "fill_": lambda x, i: x.clone().fill_(2),
    "copy_": lambda x, i: x.clone().copy_(x.flip(0)),
    "contiguous": lambda x, i: x.T.contiguous(),
    "repeat": lambda x, i: x.repeat(2, 1),
    "roll": lambda x, i: x.roll(1, 0),
    "pad": lambda x, i: F.pad(x, (1, 1)),
    "tril": lambda x, i: x.tril(),
    "cat": lambda x, i: torch.cat([x, x]),
    "stack": lambda x, i: torch.stack([x, x]),
    "x[i]": lambda x, i: x[i],
    "x[mask]": lambda x, i: x[x > 0],
    "index_put_": lambda x, i: x.clone().index_put_((i,), x[:3] * 2),
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None], x[:3, :1]),
    "nonzero": lambda x, i: x.nonzero(),
    "sort": lambda x, i: x.sort()[0],
    "argsort": lambda x, i: x.argsort(),
    "topk": lambda x, i: x.topk(2)[0],
    "kthvalue": lambda x, i: x.kthvalue(2)[0],
    "median": lambda x, i: x.median(),
    "unique": lambda x, i: i.unique(),
    "bincount": lambda x, i: torch.bincount(i),
    "isin": lambda x, i: torch.isin(i, i[:2]),
    "searchsorted": lambda x, i: torch.searchsorted(x[0].sort()[0], x[1]),
    "cumsum": lambda x, i: x.cumsum(1),
    "cumprod": lambda x, i: x.cumprod(0),
    "max": lambda x, i: x.max(1)[0],
    "complex": lambda x, i: torch.complex(x, x).abs(),
    "x @ y of integers": lambda x, i: i[:, None] @ i[None],
    "x @ y": lambda x, i: x @ x.T,
    "nll_loss": lambda x, i: F.nll_loss(x[:3], i),
    "interpolate": lambda x, i: F.interpolate(x[None, None], scale_factor=2),
    "embedding": lambda x, i: F.embedding(i, x),
    "attention": lambda x, i: F.scaled_dot_product_attention(*[x[None, None]] * 3),
    "layer_norm": lambda x, i: F.layer_norm(x, (6,)),
    "max_pool2d": lambda x, i: F.max_pool2d(x[None, None], 2),
    "unfold": lambda x, i: F.unfold(x[None, None], 2),
}


@pytest.mark.parametrize("name", OPS)
def test_an_op_on_a_gpu_that_is_not_the_current_one(name: str) -> None:
    x, i = torch.randn(4, 6), torch.tensor([2, 0, 1])
    found = OPS[name](x.to("cuda:1"), i.to("cuda:1"))
    assert str(found.device) == "cuda:1" and found.array.device.id == 1
    assert cuda.current_device() == 0
    got = found.cpu()
    wanted = OPS[name](x, i).cpu()  # of those that are told a device: the same again
    assert name == "randperm" or torch.allclose(got.double(), wanted.double(), atol=1e-6)


LAYERS: dict[str, Callable[[], tuple[torch.nn.Module, Any]]] = {
    "embedding": lambda: (torch.nn.Embedding(5, 4), places()),
    "lstm": lambda: (torch.nn.LSTM(6, 5), made(1, 4, 6)),
    "transformer": lambda: (torch.nn.TransformerEncoderLayer(8, 2, 16), made(3, 2, 8)),
    "convolution": lambda: (torch.nn.Conv2d(3, 4, 3), made(2, 3, 8, 8)),
    "transposed": lambda: (torch.nn.ConvTranspose2d(3, 2, 3), made(2, 3, 4, 4)),
    "batch norm": lambda: (torch.nn.BatchNorm2d(3), made(2, 3, 4, 4)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_trains_on_a_gpu_that_is_not_the_current_one(name: str) -> None:
    layer, x = LAYERS[name]()
    layer.to("cuda:1")
    optimizer = torch.optim.Adam(layer.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        result = layer(x)
        loss = ((result[0] if isinstance(result, tuple) else result) ** 2).mean()
        loss.backward()
        optimizer.step()
    assert loss.isfinite().item() and cuda.current_device() == 0
    assert {p.grad.array.device.id for p in layer.parameters()} == {1}

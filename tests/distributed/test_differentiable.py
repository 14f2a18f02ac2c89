"""`distributed.nn`: gradients of collectives."""

from __future__ import annotations

import lucid_gpu
from lucid_gpu import distributed
from lucid_gpu.distributed import nn


def test_gradients_of_one_process() -> None:
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        x = lucid_gpu.tensor([1.0, 2.0], requires_grad=True)
        y = nn.all_reduce(x * 3)
        assert y.requires_grad and x.tolist() == [1.0, 2.0]
        (part,) = nn.all_gather(y**2)
        (first,) = lucid_gpu.autograd.grad(part.sum(), x, create_graph=True)
        assert first.tolist() == [18.0, 36.0]
        assert lucid_gpu.autograd.grad(first.sum(), x)[0].tolist() == [18.0, 18.0]
    finally:
        distributed.destroy_process_group()

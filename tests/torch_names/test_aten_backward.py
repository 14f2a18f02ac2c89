"""`torch.ops.aten`'s gradients are PyTorch's, for each mask of what is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from lucid_gpu._aten_backward import BACKWARD
from lucid_gpu._ops import aten

import lucid_gpu
from tests.oracle import torch_module

ACTIVATIONS: dict[str, tuple[Any, ...]] = {
    "gelu_backward": (), "glu_backward": (1,), "hardsigmoid_backward": (),
    "hardswish_backward": (), "hardtanh_backward": (-0.5, 0.5), "logit_backward": (0.2,),
    "leaky_relu_backward": (0.1, False), "mish_backward": (), "sigmoid_backward": (),
    "silu_backward": (), "softplus_backward": (2.0, 3.0), "tanh_backward": (),
    "threshold_backward": (0.3,),
}  # fmt: skip
MASKS = [mask for mask in product((True, False), repeat=3) if any(mask)]


def values(torch: Any, aten: Any, name: str, draw: Any) -> Iterator[Any]:
    """What a function gives, for each of its settings."""
    call = getattr(aten, name)
    if name in ACTIVATIONS:
        width = 3 if name == "glu_backward" else 6
        x = draw(4, 6).sigmoid() if name == "logit_backward" else draw(4, 6)
        yield call(draw(4, width), x, *ACTIVATIONS[name])
    elif name.endswith("_data"):
        for dim in (0, -1):
            yield call(draw(4, 5), draw(4, 5), dim, torch.float64)
            yield getattr(torch, name)(draw(4, 5), draw(4, 5), dim, torch.float64)
    elif name == "convolution_backward":
        for mask, turned in product(MASKS, (False, True)):
            x, w = draw(2, 4, 7, 6), draw(*((4, 3, 3, 2) if turned else (6, 2, 3, 2)))
            settings = ([2, 1], [1, 1], [1, 2], turned, [int(turned), 0], 2)
            shape = torch.convolution(x, w, None, *settings).shape
            yield call.default(draw(*shape), x, w, [6], *settings, list(mask))
    elif name.startswith("native_") and name != "native_dropout_backward":
        x, v = draw(2, 4, 7, 6), draw(4)
        for mask, weight in product(MASKS, (v, None)):
            asked = [m and (weight is not None or n == 0) for n, m in enumerate(mask)]
            if name == "native_group_norm_backward":
                _, mean, rstd = torch.native_group_norm(x, weight, weight, 2, 4, 42, 2, 1e-3)
                yield call(draw(2, 4, 7, 6), x, mean, rstd, weight, 2, 4, 42, 2, asked)
            elif name == "native_layer_norm_backward":
                w = None if weight is None else draw(7, 6)
                _, mean, rstd = torch.native_layer_norm(x, [7, 6], w, w, 1e-3)
                yield call(draw(2, 4, 7, 6), x, [7, 6], mean, rstd, w, w, asked)
            else:
                for train in (True, False):
                    means = draw(4), draw(4).abs()
                    given = (weight, None, means[0].clone(), means[1].clone(), train, 0.1, 1e-3)
                    _, mean, rstd = torch.native_batch_norm(x, *given)
                    saved = (weight, *means, mean, rstd, train, 1e-3)
                    yield call(draw(2, 4, 7, 6), x, *saved, asked)
    elif name == "embedding_dense_backward":
        where = torch.tensor([[1, 2, 1], [0, 3, 3]])
        for padding, scale in product((3, -1), (False, True)):
            yield call(draw(2, 3, 4), where, 5, padding, scale)
    elif name == "native_dropout_backward":
        yield call(draw(4, 5), draw(4, 5) > 0, 2.0)
    elif name == "_adaptive_avg_pool2d_backward":
        yield call(draw(2, 3, 3, 5), draw(2, 3, 8, 8))
    elif name == "avg_pool2d_backward":
        for count in (False, True):
            settings = ([3, 3], [2, 2], [1, 1], True, count, None)
            yield call(draw(2, 3, 5, 5), draw(2, 3, 8, 8), *settings)
    else:
        assert name == "max_pool2d_with_indices_backward"
        x, settings = draw(2, 3, 8, 8), ([3, 3], [2, 2], [1, 1])
        y, where = aten.max_pool2d_with_indices(x, *settings)
        yield y
        yield call(draw(2, 3, 4, 4), x, *settings, [1, 1], False, where)


@pytest.mark.parametrize("name", BACKWARD)
def test_each_is_pytorch_s(name: str) -> None:
    torch = torch_module()
    found = []
    for module, ops in ((lucid_gpu, aten), (torch, torch.ops.aten)):
        rng = np.random.default_rng(0)

        def draw(*shape: int, module: Any = module, rng: Any = rng) -> Any:
            return module.from_numpy(rng.standard_normal(shape))

        given = [
            v if isinstance(v, (tuple, list)) else [v] for v in values(module, ops, name, draw)
        ]
        found.append([None if t is None else t.numpy() for v in given for t in v])
    for ours, theirs in zip(*found, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)


def test_a_function_that_keeps_little_is_differentiated_twice() -> None:
    class Gelu(lucid_gpu.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return aten.gelu(x)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return aten.gelu_backward(grad, *ctx.saved_tensors)

    x = lucid_gpu.linspace(-2, 2, 7, dtype=lucid_gpu.float64, requires_grad=True)
    assert lucid_gpu.autograd.gradcheck(Gelu.apply, (x,))
    assert lucid_gpu.autograd.gradgradcheck(Gelu.apply, (x,))
    with lucid_gpu.no_grad():
        assert not aten.silu_backward(x, x).requires_grad


def test_a_name_without_a_function_says_so() -> None:
    with pytest.raises(NotImplementedError, match="aten.no_such_backward has no function here"):
        aten.no_such_backward(lucid_gpu.ones(1))

"""`nn.attention.flex_attention` beside PyTorch's, and beside attention with a mask."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import gradcheck
from lucid_gpu.nn import functional as F
from tests.oracle import torch_module

normal = np.random.default_rng(0).standard_normal


def causal(b: Any, h: Any, q: Any, kv: Any) -> Any:
    return q >= kv


def near(b: Any, h: Any, q: Any, kv: Any) -> Any:
    return (q - kv).abs() < 2


def later(b: Any, h: Any, q: Any, kv: Any) -> Any:  # the last queries see nothing
    return kv > q + 2


def tilted(score: Any, b: Any, h: Any, q: Any, kv: Any) -> Any:
    return score * 0.5 + (q - kv) * (h + 1) * 0.1


CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "plain": (None, None, {}),
    "causal": (None, causal, {}),
    "rows of nothing": (None, later, {}),
    "scores changed": (tilted, None, {"scale": 0.3}),
    "changed and causal": (tilted, causal, {}),
    "two masks": (tilted, (near, causal), {}),
}


def computed(m: Any, case: Any, *tensors: Any) -> Any:
    flex = importlib.import_module(f"{m.__name__}.nn.attention.flex_attention")
    score, mask, settings = case
    q, k, v = tensors
    block = None
    if mask is not None:
        mod = flex.and_masks(*mask) if isinstance(mask, tuple) else mask
        block = flex.create_block_mask(mod, None, None, q.shape[2], k.shape[2], device="cpu")
    return flex.flex_attention(q, k, v, score, block, **settings)


@pytest.mark.parametrize("name", CASES)
def test_beside_pytorch(name: str) -> None:
    case = CASES[name]
    torch = torch_module()
    arrays = [normal((2, 2, n, 16)).astype(np.float32) for n in (5, 6, 6)]
    ours = computed(lucid_gpu, case, *map(lucid_gpu.from_numpy, arrays))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it computes the scores whole
        theirs = computed(torch, case, *map(torch.from_numpy, arrays))
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), 1e-4, 1e-5)


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:  # PyTorch has none on a CPU
    case = CASES[name]
    inputs = [lucid_gpu.from_numpy(normal((1, 2, n, 3))).requires_grad_() for n in (3, 4, 4)]
    assert gradcheck(lambda *tensors: computed(lucid_gpu, case, *tensors), inputs)


def test_fewer_heads_of_keys_and_the_logarithms() -> None:
    flex: Any = importlib.import_module("lucid_gpu.nn.attention.flex_attention")
    q, k = lucid_gpu.randn(1, 4, 3, 8), lucid_gpu.randn(1, 2, 5, 8)
    out, sums = flex.flex_attention(q, k, k, enable_gqa=True, return_lse=True)
    wide = k.repeat_interleave(2, 1)
    assert lucid_gpu.allclose(out, F.scaled_dot_product_attention(q, wide, wide), 1e-4, 1e-6)
    scores = q @ wide.transpose(-2, -1) / 8**0.5
    assert lucid_gpu.allclose(sums, scores.logsumexp(-1), 1e-4, 1e-6)
    with pytest.raises(ValueError, match="enable_gqa=True"):
        flex.flex_attention(q, k, k)
    mask = flex.create_mask(flex.or_masks(causal, near), None, None, 3, 3)
    assert mask.tolist() == [[[[True, True, False], [True, True, True], [True, True, True]]]]


def test_what_else_is_returned() -> None:
    flex = importlib.import_module("lucid_gpu.nn.attention.flex_attention")
    operands = [lucid_gpu.from_numpy(normal((1, 2, 4, 4))) for _ in range(3)]
    wanted, lse = flex.flex_attention(*operands, return_lse=True)
    result, more = flex.flex_attention(*operands, return_aux=flex.AuxRequest(lse=True))
    assert lucid_gpu.equal(result, wanted) and lucid_gpu.equal(more.lse, lse)
    assert more.max_scores is None
    _, more = flex.flex_attention(*operands, return_aux=flex.AuxRequest(max_scores=True))
    scores = operands[0] @ operands[1].mT / 2
    assert more.lse is None and lucid_gpu.allclose(more.max_scores, scores.amax(-1))
    with pytest.raises(ValueError, match="Cannot specify both return_lse and return_aux"):
        flex.flex_attention(*operands, return_lse=True, return_aux=flex.AuxRequest())

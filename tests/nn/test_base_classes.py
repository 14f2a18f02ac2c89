"""The classes that PyTorch's layers derive from, which packages ask `isinstance` with."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import lucid_gpu
from lucid_gpu import nn
from tests.oracle import torch_module

RANKS = (1, 2, 3)
BASES = [
    *[("pooling", f"_{kind}PoolNd", f"{kind}Pool{rank}d")
      for kind in ("Max", "Avg", "LP", "AdaptiveMax", "AdaptiveAvg") for rank in RANKS],
    *[("pooling", "_MaxUnpoolNd", f"MaxUnpool{rank}d") for rank in RANKS],
    *[("padding", f"_{kind}PadNd", f"{kind}Pad{rank}d")
      for kind in ("Constant", "Reflection", "Replication", "Circular") for rank in RANKS],
    *[("padding", f"ConstantPad{rank}d", f"ZeroPad{rank}d") for rank in RANKS],
    *[("conv", "_LazyConvXdMixin", f"LazyConv{rank}d") for rank in RANKS],
    *[("batchnorm", "_LazyNormBase", f"Lazy{kind}{rank}d")
      for kind in ("BatchNorm", "InstanceNorm") for rank in RANKS],
]  # fmt: skip


@pytest.mark.parametrize(("file", "base", "name"), BASES)
def test_layers_derive_from_what_packages_import(file: str, base: str, name: str) -> None:
    kind = getattr(importlib.import_module(f"lucid_gpu.nn.modules.{file}"), base)
    assert issubclass(getattr(nn, name), kind)
    assert not issubclass(nn.Linear, kind)


def test_every_base_that_pytorch_s_layers_have_in_their_file() -> None:
    torch = torch_module()
    missing = []
    names = set(torch.nn.modules.__all__) - {"LinearCrossEntropyLoss"}  # no row of the losses
    for name in sorted(names):
        theirs, ours = getattr(torch.nn, name), getattr(nn, name)
        for base in theirs.__mro__[1:]:
            if base.__module__.startswith("torch.nn.modules."):
                file = importlib.import_module(base.__module__.replace("torch", "lucid_gpu", 1))
                if not issubclass(ours, getattr(file, base.__name__, ())):
                    missing.append(f"{name}: {base.__module__}.{base.__name__}")
    assert not missing


def test_a_container_has_the_children_given() -> None:
    with pytest.warns(FutureWarning, match="`nn.Container` is deprecated"):
        held = nn.Container(first=nn.ReLU(), second=nn.Tanh())
    assert [name for name, _ in held.named_children()] == ["first", "second"]


def test_a_permutation_by_its_older_name() -> None:
    rnn: Any = importlib.import_module("lucid_gpu.nn.modules.rnn")
    x = lucid_gpu.arange(6.0).reshape(2, 3)
    order = lucid_gpu.tensor([2, 0, 1])
    with pytest.warns(FutureWarning, match="`apply_permutation` is deprecated"):
        assert rnn.apply_permutation(x, order).tolist() == [[2.0, 0.0, 1.0], [5.0, 3.0, 4.0]]


@pytest.mark.parametrize("mask", [None, "causal", "other", "short"])
@pytest.mark.parametrize("hint", [None, True, False])
@pytest.mark.parametrize("size", [None, 3])
def test_masks_of_transformers_as_packages_ask_about_them(
    mask: str | None, hint: bool | None, size: int | None
) -> None:
    transformer: Any = importlib.import_module("lucid_gpu.nn.modules.transformer")
    causal = transformer._generate_square_subsequent_mask(3)
    masks = {None: None, "causal": causal, "other": causal.clone().zero_(), "short": causal[:2]}
    expected = mask == "causal" if hint is None else hint
    assert transformer._detect_is_causal_mask(masks[mask], hint, size) is expected


def test_sizes_from_defaults() -> None:
    utils: Any = importlib.import_module("lucid_gpu.nn.modules.utils")
    assert utils._list_with_default(5, [1, 2]) == 5
    assert utils._list_with_default([None, 7], [1, 2, 3]) == [2, 7]
    with pytest.raises(ValueError, match="Input dimension should be at least 3"):
        utils._list_with_default([None, 7], [1, 2])


def test_hooks_that_hold_for_all_modules() -> None:
    module: Any = importlib.import_module("lucid_gpu.nn.modules.module")
    assert not module._has_any_global_hook()
    handle = module.register_module_forward_hook(lambda *_: None)
    assert module._has_any_global_hook()
    handle.remove()
    with pytest.raises(NotImplementedError, match='missing the required "forward" function'):
        module._forward_unimplemented(nn.Module(), 1)

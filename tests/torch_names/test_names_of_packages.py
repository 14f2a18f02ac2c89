"""Names that public code asks PyTorch for: which are here, and what those do that few know."""

from __future__ import annotations

import functools
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import nn
from tests.oracle import torch_module

NAMES = Path(__file__).with_name("names_of_packages.txt")


SWEEP = """
import importlib, sys, types
import lucid_gpu

lucid_gpu.install_as_torch()
import torch

def find(path):
    at, name = torch, "torch"
    for part in path.split(".")[1:]:
        if not isinstance(at, (type, types.ModuleType)):
            return  # an attribute of an object
        name += f".{part}"
        at = getattr(at, part) if hasattr(at, part) else importlib.import_module(name)

count = 0
for path in " ".join(line for line in open(sys.argv[1]) if line[0] != "#").split():
    try:
        find(path.removeprefix("-"))
    except (AttributeError, ImportError):
        found = False
    else:
        found = True
    count += found
    if found == path.startswith("-"):
        print("there is now" if found else "lacks", path)
print(count)
"""


def test_names_of_public_code_are_here() -> None:
    """All but those that are marked as absent, which are absent."""
    pytest.importorskip("tensorboardX")
    command = [sys.executable, "-c", SWEEP, str(NAMES)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    *wrong, count = ran.stdout.splitlines()
    assert not wrong and int(count) > 1400, (wrong, ran.stderr)


def scanned(torch: Any, scan: Any, reverse: bool, dim: int) -> Any:
    rng = np.random.default_rng(0)
    a, b = (torch.tensor(rng.standard_normal((3, 7)), requires_grad=True) for _ in range(2))

    def step(left: Any, right: Any) -> Any:
        return {"a": left["a"] * right["a"], "b": left["b"] * right["a"] + right["b"]}

    found = scan(step, {"a": a, "b": b}, dim, reverse=reverse, combine_mode="generic")
    (found["b"].sin().sum() + found["a"].sum()).backward()
    return [t.detach().numpy() for t in (found["a"], found["b"], a.grad, b.grad)]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_associative_scans(reverse: bool, dim: int) -> None:
    torch = torch_module()
    theirs = importlib.import_module("torch._higher_order_ops.associative_scan").associative_scan
    ours = importlib.import_module("lucid_gpu._higher_order_ops").associative_scan
    pairs = zip(
        scanned(lucid_gpu, ours, reverse, dim), scanned(torch, theirs, reverse, dim), strict=True
    )
    for a, b in pairs:
        np.testing.assert_allclose(a, b, 1e-12)
    for given in ({"combine_mode": "fast"}, {"xs": ()}, {"xs": lucid_gpu.ones(0)}):
        with pytest.raises(ValueError):
            ours(**{"combine_fn": lambda a, b: a, "xs": lucid_gpu.ones(2), "dim": 0, **given})


@pytest.mark.parametrize("queries", [3, 5])
def test_causal_masks_of_two_lengths(queries: int) -> None:
    torch = torch_module()
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((2, 1, n, 4)) for n in (queries, 5, 5)]
    found = []
    for module in (lucid_gpu, torch):
        bias = importlib.import_module(f"{module.__name__}.nn.attention.bias")
        q, k, v = (module.tensor(a) for a in arrays)
        for make in (bias.causal_upper_left, bias.causal_lower_right):
            mask = make(queries, 5)
            assert isinstance(mask, bias.CausalBias) and mask.seq_len_kv == 5
            y = module.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            found.append(np.asarray(y))
    np.testing.assert_allclose(found[:2], found[2:], 1e-12)


def test_a_baton_is_held_by_one(tmp_path: Path) -> None:
    from lucid_gpu.utils.file_baton import FileBaton

    first, second = (FileBaton(str(tmp_path / "lock")) for _ in range(2))
    assert first.try_acquire() and not second.try_acquire()
    first.release()
    second.wait()
    assert second.try_acquire()


def test_layers_ask_for_their_states() -> None:
    layer = nn.LSTM(3, 4, 2)
    x, h = lucid_gpu.zeros(5, 2, 3), (lucid_gpu.zeros(2, 2, 4), lucid_gpu.ones(2, 1, 4))
    assert layer.get_expected_hidden_size(x, None) == (2, 2, 4)
    with pytest.raises(RuntimeError, match=r"Expected hidden\[1\] size \(2, 2, 4\), got \[2, 1, 4"):
        layer.check_forward_args(x, h, None)
    with pytest.raises(RuntimeError, match=r"told \(1, 2, 4\)"):
        layer.check_hidden_size(h[0], (1, 2, 4), "told {}")
    order = lucid_gpu.tensor([1, 0])
    states = (lucid_gpu.rand(2, 2, 4), lucid_gpu.rand(2, 2, 4))
    assert layer.permute_hidden(states, order)[0][0, 0].tolist() == states[0][0, 1].tolist()
    assert layer.permute_hidden(states, None) is states


def test_nodes_of_ops_show_no_saved_tensors() -> None:
    """As PyTorch's: what draws graphs takes a node that has them for a user's Function."""
    x = lucid_gpu.rand(1, 1, 4, 4, requires_grad=True)
    for y in (x.softmax(0), nn.functional.conv2d(x, x), x @ x, x.sin(), x.cumsum(0), x.det()):
        assert not hasattr(y.grad_fn, "saved_tensors")


def test_functions_that_export_refuse_when_they_are_called() -> None:
    for name in ("symbolic_helper", "symbolic_opset9", "symbolic_opset11"):
        module = importlib.import_module(f"lucid_gpu.onnx.{name}")
        with pytest.raises(NotImplementedError, match="models are not exported"):
            module.softmax(1)
        assert not hasattr(module, "__no_such_name__")


@pytest.mark.parametrize("way", ["NO_REENTRANT", "REENTRANT", "offloaded"])
def test_a_module_that_is_checkpointed(way: str) -> None:
    from lucid_gpu.distributed.algorithms._checkpoint import checkpoint_wrapper as wrappers

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.calls = nn.Linear(3, 3), 0

        def forward(self, x: Any, *, scale: Any) -> Any:
            self.calls += 1
            return self.inner(x).tanh() * scale

    layer = Layer()
    model = nn.ModuleDict({"layer": layer})
    x, scale = lucid_gpu.rand(2, 3), lucid_gpu.tensor(2.0, requires_grad=True)
    expected = lucid_gpu.autograd.grad(layer(x, scale=scale).sum(), [*layer.parameters(), scale])
    before, names = model.state_dict(), [n for n, _ in model.named_parameters()]
    wrapper = wrappers.offload_wrapper
    if way != "offloaded":
        kind = wrappers.CheckpointImpl[way]
        wrapper = functools.partial(wrappers.checkpoint_wrapper, checkpoint_impl=kind)
    wrappers.apply_activation_checkpointing(model, wrapper, lambda m: m is layer)
    assert isinstance(model["layer"], wrappers.ActivationWrapper) and model["layer"].calls == 1
    model["layer"](x.requires_grad_(), scale=scale).sum().backward()
    assert layer.calls == (2 if way == "offloaded" else 3)
    for p, g in zip([*model.parameters(), scale], expected, strict=True):
        assert p.grad.tolist() == g.tolist()
    assert [
        n.replace("_checkpoint_wrapped_module.", "") for n, _ in model.named_parameters()
    ] == names
    assert list(model.state_dict()) == list(before)
    model.load_state_dict({n: lucid_gpu.ones_like(t) for n, t in before.items()})
    assert layer.inner.bias.tolist() == [1, 1, 1]


def test_a_scaler_of_one_s_own() -> None:
    """PyTorch's functions for it, over good steps, one that overflows, and a scale at its end."""
    found = []
    for torch in (lucid_gpu, torch_module()):
        scale, tracker = torch.tensor(2.0**126), torch.tensor(0, dtype=torch.int32)
        for number in (1.0, 2.0, float("inf"), 3.0, 4.0, 5.0, float("nan"), 6.0):
            flag, gradients = torch.zeros(1), [torch.ones(2), torch.tensor([number])]
            torch._amp_foreach_non_finite_check_and_unscale_(gradients, flag, torch.tensor([0.5]))
            torch._amp_update_scale_(scale, tracker, flag, 2.0, 0.5, 2)
            found.append([flag.item(), scale.item(), tracker.item(), gradients[0].tolist()])
    assert found[:8] == found[8:]

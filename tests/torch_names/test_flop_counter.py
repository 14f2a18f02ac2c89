"""`utils.flop_counter` beside PyTorch's: totals, ops and modules, there and back."""

from __future__ import annotations

import importlib

import pytest

import lucid_gpu
from tests.oracle import torch_module


def nested(m):
    class Net(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = m.nn.ModuleList([m.nn.Linear(4, 4) for _ in range(2)])
            self.out = m.nn.Sequential(m.nn.Linear(4, 4), m.nn.Tanh())

        def forward(self, x):
            for layer in self.layers:
                x = layer(x) + x
            return self.out(x @ x.transpose(-1, -2) @ x)

    return Net(), m.ones(3, 5, 4)


MODELS = {
    "linear": lambda m: (
        m.nn.Sequential(m.nn.Linear(4, 8), m.nn.ReLU(), m.nn.Linear(8, 2, bias=False)),
        m.ones(2, 3, 4),
    ),
    "convolutions": lambda m: (
        m.nn.Sequential(m.nn.Conv2d(3, 8, 3, padding=1), m.nn.ReLU(), m.nn.Conv2d(8, 4, 3, 2)),
        m.ones(2, 3, 9, 9),
    ),
    "groups": lambda m: (m.nn.Conv2d(4, 8, 3, groups=2), m.ones(2, 4, 9, 9)),
    "transposed": lambda m: (
        m.nn.Sequential(m.nn.Conv2d(4, 8, 3), m.nn.ConvTranspose2d(8, 4, 3, stride=2)),
        m.ones(2, 4, 9, 9, requires_grad=True),
    ),
    "signals": lambda m: (m.nn.Conv1d(4, 8, 3), m.ones(2, 4, 9)),
    "volumes": lambda m: (m.nn.Conv3d(2, 3, 3), m.ones(1, 2, 6, 6, 6)),
    "nested": nested,
}


def counted(m, name, there_and_back, device="cpu"):
    counter = importlib.import_module(f"{m.__name__}.utils.flop_counter").FlopCounterMode
    with m.device(device):
        model, x = MODELS[name](m)
    with counter(display=False) as counts:
        y = model(x)
        if there_and_back:
            y.sum().backward()
    return {
        module: {str(op): n for op, n in ops.items()}
        for module, ops in counts.get_flop_counts().items()
    }, counts


CASES = [(name, way) for name in MODELS for way in (False, True)]
CASES.remove(("groups", True))  # PyTorch counts a grouped weight's gradient as if of one group


def test_the_gradient_of_a_grouped_weight_costs_what_forward_does():
    ours, _ = counted(lucid_gpu, "groups", True)
    assert len(set(ours["Conv2d"].values())) == 1


@pytest.mark.parametrize("name, there_and_back", CASES)
def test_counts_are_those_of_torch(name, there_and_back):
    ours, counter = counted(lucid_gpu, name, there_and_back)
    theirs, _ = counted(torch_module(), name, there_and_back)
    assert ours == theirs
    assert counter.get_total_flops() == sum(theirs["Global"].values())


def test_on_meta_nothing_has_to_be_computed():
    assert counted(lucid_gpu, "nested", True, "meta")[0] == counted(lucid_gpu, "nested", True)[0]


def test_attention_and_what_a_checkpoint_computes_again():
    counter = lucid_gpu.utils.flop_counter.FlopCounterMode
    q = lucid_gpu.ones(1, 2, 8, 4, requires_grad=True)
    with counter(display=False) as counts:
        lucid_gpu.nn.functional.scaled_dot_product_attention(q, q, q).sum().backward()
    product = 2 * 2 * 8 * 8 * 4
    assert counts.get_total_flops() == 2 * product + 5 * product
    layer, x = lucid_gpu.nn.Linear(4, 4), lucid_gpu.ones(2, 4, requires_grad=True)
    with counter(display=False) as counts:
        y = lucid_gpu.utils.checkpoint.checkpoint(lambda x: layer(x).sin(), x, use_reentrant=False)
        y.sum().backward()
    assert counts.get_flop_counts()["Linear"] == {
        lucid_gpu.ops.aten.addmm: 128,
        lucid_gpu.ops.aten.mm: 128,
    }


def test_formulas_of_the_users_own():
    aten = lucid_gpu.ops.aten
    shapes = []

    def formula(a, b, out_shape=None):
        shapes.append((a, b, out_shape))
        return 7

    counter = lucid_gpu.utils.flop_counter.FlopCounterMode
    with counter(display=False, custom_mapping={aten.mm: formula}) as counts:
        lucid_gpu.ones(2, 3) @ lucid_gpu.ones(3, 5)
    assert shapes == [((2, 3), (3, 5), (2, 5))] and counts.get_total_flops() == 7


def test_the_table_is_printed(capsys):
    with lucid_gpu.utils.flop_counter.FlopCounterMode(depth=1):
        lucid_gpu.nn.Sequential(lucid_gpu.nn.Linear(10, 100))(lucid_gpu.ones(1, 10))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[2] == ["Global", "2.000K", "100.00%"] and ["Sequential", *lines[2][1:]] in lines
    assert not any("Sequential.0" in line for line in lines)


def test_composed_attention_of_16_bits_counts_as_that_of_32():
    counter = importlib.import_module("lucid_gpu.utils.flop_counter").FlopCounterMode
    totals = []
    for d in (lucid_gpu.float32, lucid_gpu.bfloat16):
        q = lucid_gpu.ones(2, 3, 5, 4, dtype=d, requires_grad=True)
        with counter(display=False) as counts:
            mask = lucid_gpu.zeros(5, 5, dtype=d)
            lucid_gpu.nn.functional.scaled_dot_product_attention(q, q, q, mask).sum().backward()
        totals.append(counts.get_total_flops())
    assert totals[0] == totals[1] > 0

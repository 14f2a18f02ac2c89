"""Summaries: shapes, parameters, and a model that is left as it was."""

from __future__ import annotations

import pytest

import lucid_gpu
from lucid_gpu import nn
from lucid_gpu.viz import summary


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.unused = nn.Linear(2, 2)
        self.inner = nn.Sequential(nn.Sequential(nn.Linear(4, 3), nn.ReLU()))
        self.unused.weight.requires_grad_(False)

    def forward(self, x, scale=1.0):
        x = self.layer(self.layer(x))
        return {"out": self.inner(x) * scale, "both": [x, x]}


def test_layers_shapes_and_counts(device):
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 5)).to(device)
    model.train()
    table = summary(model, (7, 1, 8, 8))
    assert [(r.name, r.kind, r.shape, r.params) for r in table.rows] == [
        ("", "Sequential", [(7, 5)], 0),
        ("0", "Conv2d", [(7, 2, 6, 6)], 20),
        ("1", "Flatten", [(7, 72)], 0),
        ("2", "Linear", [(7, 5)], 365),
    ]
    assert table.total_params == table.trainable_params == 385
    assert [r.mult_adds for r in table.rows] == [0, 7 * 36 * 18, 0, 7 * 360]
    assert table.input_bytes == 7 * 64 * 4 and table.param_bytes == 385 * 4
    assert model.training and model[0].training and not model[0]._forward_hooks


def test_shared_unused_and_deep_modules():
    table = summary(Shared(), input_data=lucid_gpu.ones(2, 4), depth=1, scale=2.0)
    rows = {r.name: r for r in table.rows}
    assert rows[""].shape == [(2, 3), (2, 4), (2, 4)]
    assert rows["layer"].params == 20 and rows["layer"].mult_adds == 2 * 2 * 16
    assert rows["unused"].shape is None and "not called" in str(table)
    assert rows["inner"].params == 15 and rows["inner"].mult_adds == 2 * 12
    assert table.total_params - table.trainable_params == 4 and "(4 frozen)" in str(table)
    assert [r.depth for r in table.rows] == [0, 1, 1, 1]
    assert len(summary(Shared(), (2, 4)).rows) == 7
    tied = nn.Sequential(*[nn.Linear(2, 2)] * 2)
    assert [r.again for r in summary(tied, (1, 2)).rows] == [False, False, True]


def test_inputs():
    model = nn.Embedding(5, 3)
    assert lucid_gpu.summary(model, (2, 4), dtypes=[lucid_gpu.int64]).rows[0].shape == [(2, 4, 3)]
    pair = nn.Bilinear(2, 3, 1) if hasattr(nn, "Bilinear") else None
    if pair is not None:
        assert summary(pair, [(4, 2), (4, 3)]).rows[0].shape == [(4, 1)]
    assert summary(nn.Linear(2, 1), input_data={"input": lucid_gpu.ones(1, 2)}).total_params == 3
    table = summary(nn.Linear(2, 1), (1, 2))
    assert "<td" in table._repr_html_() and "Linear" in repr(table)


def test_wrong_arguments_and_failing_models():
    with pytest.raises(TypeError, match="takes an nn.Module, not function"):
        summary(lambda x: x, (1,))
    for settings in ({}, {"input_size": (1,), "input_data": 1}):
        with pytest.raises(ValueError, match="takes either input_size"):
            summary(nn.ReLU(), **settings)
    with pytest.raises(ValueError, match="2 sizes and 1 dtypes"):
        summary(nn.ReLU(), [(1,), (1,)], dtypes=[lucid_gpu.float32])
    model = nn.Linear(3, 1).train()
    with pytest.raises(RuntimeError):
        summary(model, (2, 2))
    assert model.training and not model._forward_hooks

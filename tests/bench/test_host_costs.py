"""Small programs beside torch: the command that times them, and what their steps call and make."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import host_costs
from bench.peers import TREE, environment
from lucid_gpu.devices import loops
from lucid_gpu.tape.native import core

# What a warm step calls and makes at most in Python: `host_costs.COUNTS`. These numbers only fall:
# whoever makes a step do less writes it here.
LIMITS = {
    "(x * 2).sum().backward()": (48, 2, 0, 2, 0, 0),
    "x.tanh().sum().backward()": (48, 2, 0, 2, 0, 0),
    "(x + y).numpy()": (19, 1, 0, 0, 0, 0),
    "a @ b": (10, 0, 0, 1, 0, 0),
    "conv2d": (37, 0, 0, 1, 0, 0),
    "Function and back": (62, 3, 0, 2, 0, 0),
    "Function, 100 in a row": (1510, 16, 5, 101, 0, 0),
    "surrogate spike": (63, 3, 0, 3, 0, 0),
    "learned-step quantizer": (129, 7, 0, 2, 0, 0),
    "gradient reversal": (95, 5, 1, 2, 0, 0),
    "straight-through sign": (123, 4, 1, 2, 0, 0),
    "swish as a Function": (64, 3, 0, 2, 0, 0),
    "linear as a Function": (159, 5, 1, 2, 0, 0),
    "chain 64 x 64": (50, 2, 0, 2, 0, 0),
    "MLP of 4 layers": (272, 5, 8, 9, 0, 0),
    "encoder layer, AdamW": (1001, 7, 12, 27, 0, 0),
    "conv, batch norm, relu, conv": (712, 13, 18, 6, 0, 0),
    "LSTM": (649, 12, 6, 9, 0, 0),
    "Sinkhorn, 20 rounds": (1082, 33, 43, 82, 0, 0),
    "a seen shape": (113, 5, 2, 4, 0, 0),
    "a new shape each step": (204, 5, 2, 4, 0, 0),
    "writes through 200 views": (3, 0, 0, 0, 0, 0),
    "60 parameters by hand": (2061, 95, 64, 130, 0, 0),
}

# How many functions of Python an op calls at most, on float32 tensors of 8 x 8. They only fall too.
BUDGETS = {
    "x.sum()": 4,
    "x.sum().item()": 11,
    "x.mean(1)": 3,
    "x.max()": 7,
    "x.max(1)": 34,
    "x.argmax(1)": 12,
    "x.view(64)": 1,
    "x.reshape(4, 16)": 1,
    "x.t()": 2,
    "x.transpose(0, 1)": 2,
    "x.permute(1, 0)": 2,
    "x.unsqueeze(0)": 2,
    "b.squeeze(0)": 3,
    "b.expand(4, 8, 8)": 3,
    "x[0]": 1,
    "x[i]": 17,
    "z.__setitem__(0, 1.0)": 1,
    "z.__setitem__(0, y[0])": 2,
    "z.add_(y)": 0,
    "z.zero_()": 3,
    "z.copy_(y)": 1,
    "p.grad.zero_()": 3,
    "m.cat([x, y])": 15,
    "m.stack([x, y])": 12,
    "x.split(4)": 2,
    "x.unbind()": 3,
    "m.zeros(8, 8)": 11,
    "m.zeros_like(x)": 15,
    "m.randn(8, 8)": 32,
    "m.tensor([1.0, 2.0])": 20,
    "x.clone()": 10,
    "x.detach()": 1,
    "x.to(m.float64)": 5,
    "(x + y).numpy()": 18,
    "m.mm(x, y)": 8,
    "m.where(k, x, y)": 11,
    "x.masked_fill(k, 0.0)": 15,
    "x.cumsum(1)": 11,
    "x.index_select(0, i)": 21,
    "x.gather(1, j)": 20,
    "f.linear(x, p, y[0])": 6,
    "linear(x)": 9,
    "f.layer_norm(x, (8,))": 23,
    "f.softmax(x, 1)": 15,
    "f.dropout(x)": 27,
    "f.embedding(i, x)": 7,
    "f.cross_entropy(x, i)": 23,
    "f.mse_loss(x, y)": 12,
    "x.topk(2)": 22,
    "x.sort(1)": 32,
    "m.tril(x)": 22,
    "m.bernoulli(k.float())": 41,
    "x.scatter(1, j, 1.0)": 41,
    "x.index_add(0, i, y)": 32,
    "m.cdist(x, y)": 15,
    "m.einsum('ij,jk->ik', x, y)": 38,
    "m.linalg.svd(x)": 76,
    "m.outer(x[0], y[0])": 5,
    "f.one_hot(i, 8)": 26,
    "f.max_pool2d(b, 2)": 34,
    "f.avg_pool2d(b, 2)": 29,
    "f.unfold(b, 3)": 27,
    "f.log_softmax(x, 1)": 15,
    "m.linspace(0, 1, 8)": 17,
    "m.arange(8)": 11,
    "(x[:, 2:6] * 3).numpy()": 19,
    "x[0].dot(y[0])": 20,
    "m.no_grad()(p.t)()": 40,
    "Doubled.apply(x)": 23,
    "m.nn.utils.clip_grad_norm_([p], 1.0)": 76,
    "sgd.step()": 59,
    "adam.step()": 71,
}

COUNT = """
import json
from bench import host_costs
print(json.dumps({name: host_costs.counted(name) for name in host_costs.PROGRAMS}))
"""

COUNT_OPS = f"""
import json
import lucid_gpu as m
from bench import host_costs
from lucid_gpu.nn import functional as f
x, y, z, b = m.randn(8, 8), m.randn(8, 8), m.randn(8, 8), m.randn(1, 8, 8)
i, j, k = m.arange(8), m.zeros(8, 8).long(), y > 0
linear, p = m.nn.Linear(8, 8), m.nn.Parameter(m.randn(8, 8))
p.grad = m.randn(8, 8)
class Doubled(m.autograd.Function):
    forward = staticmethod(lambda ctx, a: a[0].view(2, 4).matmul(a[:4]) * 2)
sgd, adam = m.optim.SGD([p], 0.0), m.optim.Adam([p], 0.0)
found = {{}}
for text in {[*BUDGETS]}:
    step = eval("lambda: " + text)
    found[text] = min([host_costs.python_calls(step) for _ in range(host_costs.WARM)]) - 1
print(json.dumps(found))
"""


def printed(program: str) -> Any:
    """What a process of its own prints: what other tests switch on costs calls."""
    if core is None or not loops.available():
        pytest.skip("the numbers are those of the core and NumPy's loops in C")
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=TREE, env=environment(), capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, int]]:
    """The counts of programs."""
    counts: dict[str, dict[str, int]] = printed(COUNT)
    return counts


@pytest.fixture(scope="module")
def calls() -> dict[str, int]:
    """The calls of ops."""
    counts: dict[str, int] = printed(COUNT_OPS)
    return counts


@pytest.mark.parametrize("name", host_costs.PROGRAMS)
def test_steps_call_and_make_no_more_than_they_did(
    name: str, found: dict[str, dict[str, int]]
) -> None:
    limits = dict(zip(host_costs.COUNTS, LIMITS[name], strict=True))
    assert all(found[name][kind] <= limits[kind] for kind in limits), (found[name], limits)


@pytest.mark.parametrize("op", BUDGETS)
def test_ops_call_no_more_than_they_did(op: str, calls: dict[str, int]) -> None:
    assert calls[op] <= BUDGETS[op]


def test_a_program_is_timed_beside_torch(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="the peer")
    monkeypatch.setattr(host_costs, "KEPT", tmp_path / "costs.md")
    kept = tmp_path / "costs.json"
    flags = ["--seconds", "0.02", "--rounds", "1", "--json", str(kept), "--write"]
    assert host_costs.main(["--case", "a @ b", *flags]) == 0
    head, _, row = capsys.readouterr().out.splitlines()
    assert head.startswith("| a step | us | torch | ratio | calls |") and row.startswith(
        "| `a @ b`"
    )
    found = json.loads(kept.read_text())
    times = found["rows"]["a @ b"]
    assert 0 < times["lucid_gpu"] < 1000 and 0 < times["torch"] < 1000
    assert row in (tmp_path / "costs.md").read_text()


def test_a_program_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        host_costs.main(["--case", "ML"])
    assert "invalid choice: 'ML'" in capsys.readouterr().err

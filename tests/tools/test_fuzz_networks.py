"""A part of ``make fuzz``: random networks, fused and op by op, beside torch where it is here."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.fusion import eager
from tests.oracle import modules
from tests.slow import slow_but
from tools import fuzz_networks
from tools.fuzz_networks import Answer, Fault, Refusal, answer, faults, shortened
from tools.network_programs import network
from tools.network_runs import Network, script

MODES = (*["torch"] * (len(modules()) > 1), "eager", "fused", "again")
LARGEST = 70_000  # elements: enough for blocks, native steps and stored cotangents
IMAGES = {"N": 2, "C": 64, "S": 16}

pytestmark = pytest.mark.filterwarnings("ignore")  # of both modules: what they say is not judged


def ask(mode: str, asked: Network, noise: float = 0.0) -> Answer:
    """A mode's answer, in this process."""
    module = importlib.import_module("torch" if mode == "torch" else "lucid_gpu")
    with eager(mode == "eager"), np.errstate(all="ignore"):
        return answer(module, asked, noise)


def faulty(asked: Network, by: Callable[..., Answer], modes: Sequence[str]) -> list[Fault]:
    """What differs; nothing where the judge refuses the network."""
    found = faults(asked, by, modes)
    return [] if isinstance(found, Refusal) else found


SEARCHES = slow_but(range(10), 0)


@pytest.mark.parametrize("part", SEARCHES)
def test_random_networks_give_the_same_every_way(part: int) -> None:
    for seed in range(8 * part, 8 * part + 8):
        assert faulty(network(seed, LARGEST), ask, MODES) == [], f"seed {seed}"


def test_few_networks_are_refused() -> None:
    answers = [ask("eager", network(seed, 1000)) for seed in range(40)]
    refused = [a for a in answers if isinstance(a, Refusal)]
    assert len(refused) < 8, refused


FOUND = {
    "issue 16: a cotangent that a kernel stores in another order": (
        "z = F.conv2d(X('x', N, 3, S, S), P('v', C // 2, 3, 3, 3), padding=1)",
        "y = F.silu(F.group_norm(torch.cat([z, z], 1), 32, P('g', C), P('c', C)))",
        "return (F.conv2d(y, P('w', 4, C, 3, 3), padding=1) ** 2).mean()",
    ),
    "the same with channels last": (
        "x = L('x', N, C, S, S)",
        "y = F.elu(F.group_norm(x, 4, P('g', C), P('c', C)))",
        "return (F.conv2d(y, P('w', 1, C, 1, 1)) ** 2).mean()",
    ),
    "the same without a convolution": (
        "x = L('x', N, C, S, S)",
        "y = F.group_norm(x, 8, P('g', C), P('c', C))",
        "return F.poisson_nll_loss(y.clamp(max=2), x.detach().abs())",
    ),
    "strides of a pending value": (
        "x = X('x', N, 3, S, S).transpose(0, 1)",
        "y = x * 2 + F.instance_norm(x)",
        "return (y.as_strided(y.shape, y.stride()) * K('k', *y.shape)).sum()",
    ),
    "clamp_ op by op": ("x = X('x', N, C) * 1.5", "x.clamp_(-1, 1)", "return x.square().sum()"),
    **{
        f"{name} in place op by op": ("x = X('x', N, C) * 1.5", text, "return x.square().sum()")
        for name, text in (
            ("silu", "F.silu(x, inplace=True)"), ("mish", "F.mish(x, inplace=True)"),
            ("hardswish", "F.hardswish(x, inplace=True)"), ("elu", "F.elu_(x)"),
            ("hardtanh", "F.hardtanh_(x, -0.5, 0.5)"), ("celu", "F.celu(x, 0.5, inplace=True)"),
        )
    },
    "a state that is the input, too, differentiated twice": (
        "x = X('x', N, 8) * 1.0",
        "y = M('cell', lambda: nn.LSTMCell(8, 8))(x, (x, x * 2))[0]",
        "return torch.autograd.grad(y.sum(), x, create_graph=True)[0].square().sum()",
    ),
    "softshrink under an infinite gradient": (
        "x = X('x', N, C) * 0.1",
        "return F.softshrink(x, 0.5).square().sum().sqrt() + x.sum()",
    ),
    "hardswish of large negative numbers, inverted, twice": (
        "x = X('x', N, C) * 8",
        "y = F.hardswish(x).reciprocal().clamp(-1, 1)",
        "return torch.autograd.grad(y.std(), x, create_graph=True)[0].square().sum()",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_random_networks_found(name: str, dtype: str) -> None:
    assert faults(Network(FOUND[name], IMAGES, dtype), ask, MODES) == []


class Wrong(lucid_gpu.autograd.Function):
    """SiLU with a gradient that is 5 % off."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        s = x.sigmoid()
        return grad * s * (1 + x * (1 - s)) * 1.05


def planted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer]:
    """`ask` with the wrong SiLU where it is fused."""

    def asked_of(mode: str, asked: Network, noise: float = 0.0) -> Answer:
        with monkeypatch.context() as m:
            if mode == "fused":
                m.setattr(lucid_gpu.nn.functional, "silu", lambda x, inplace=False: Wrong.apply(x))
            return ask(mode, asked, noise)

    return asked_of


@pytest.mark.slow
def test_a_wrong_gradient_is_found_and_cut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = planted(monkeypatch)
    modes = MODES[:-1]
    found = (network(seed, 1000) for seed in range(300))
    first = next(n for n in found if faulty(n, wrong, modes))
    short = shortened(first, lambda n: bool(faulty(n, wrong, modes)))
    assert any("silu" in line for line in short.lines), short
    assert len(short.lines) <= 4, short.lines


def test_a_refusal_is_a_fault_where_the_judge_gives_an_answer() -> None:
    def asked_of(mode: str, asked: Network, noise: float = 0.0) -> Answer:
        refuses = mode == "fused"
        return Refusal("RuntimeError", "refused") if refuses else ask(mode, asked, noise)

    (fault,) = faults(network(1, 5000), asked_of, ("eager", "fused"))
    assert fault[:3] == ("fused", "eager", "refuses")


def test_other_bits_are_a_fault_of_a_mode_that_gives_the_same() -> None:
    def asked_of(mode: str, asked: Network, noise: float = 0.0) -> Answer:
        found = ask("eager", asked)
        assert not isinstance(found, Refusal)
        by = 1e-7 if mode == "again" else 0
        return [(name, None if a is None else a * a.dtype.type(1 + by)) for name, a in found]

    asked = network(1, 5000)._replace(train="once")
    (fault,) = faults(asked, asked_of, ("eager", "fused", "again"))
    assert (fault.mode, fault.judge) == ("again", "fused")
    assert "other bits" in fault.how


def test_processes_answer_and_a_crash_is_a_refusal() -> None:
    workers = fuzz_networks.Workers()
    assert workers.faults(network(1, 5000), ("eager", "fused", "again")) == []
    crash = Network(("import os", "os._exit(3)"), IMAGES)
    found = workers.ask("fused", crash)
    assert found == Refusal("Crash", "exit status 3")
    assert not isinstance(workers.ask("fused", network(1, 5000)), Refusal)


def test_a_script_runs_on_its_own(tmp_path: Any) -> None:
    place = tmp_path / "network.py"
    asked = network(1, 5000)
    place.write_text(
        script(asked if "torch" in MODES else asked._replace(seeded=True), "why", "A=1")
    )
    environment = {**os.environ, "PYTHONPATH": str(fuzz_networks.TREE)}
    command = [sys.executable, str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert "loss 0" in done.stdout

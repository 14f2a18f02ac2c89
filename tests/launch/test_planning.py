"""What is planned is counted, told by line, and warned about where it never ends."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest

import lucid_gpu
from bench.peers import environment
from lucid_gpu import profiler
from lucid_gpu.core import planning
from lucid_gpu.core.program import forget

HERE = __file__


@pytest.fixture(autouse=True)
def fresh():
    """No program from another test is known, nor a line."""
    forget()
    planning.forget_lines()


def line(offset: int) -> str:
    return f"{HERE}:{offset}"


def here() -> int:
    return sys._getframe(1).f_lineno


def another(x, n):
    """Ops that are others for each number."""
    for bit in range(7):
        x = x.exp() if n >> bit & 1 else x.sin()
    return x


def test_a_loop_plans_in_its_first_steps_and_never_again(device):
    x = lucid_gpu.rand(7, 3, device=device)
    for i in range(3):
        with profiler.planning() as log:
            (x * 2 + 1).array
        assert log.plans == (i == 0)
        assert (log.programs > 0) == (i == 0)


def test_each_is_told_with_the_line_that_caused_it(device):
    x = lucid_gpu.rand(7, 3, device=device)
    with profiler.planning() as log:
        y = (x.exp() * 2.5).tanh()
        derived = here() - 1
        y.array
        read = here() - 1
    assert log.lines[line(derived)].programs >= 3
    assert log.lines[line(derived)].plans == 0
    assert log.lines[line(read)].plans == log.plans == 1
    assert log.lines[line(read)].kernels == log.kernels


def test_a_pass_back_belongs_to_the_line_that_calls_it(device):
    x = lucid_gpu.rand(7, 3, device=device).requires_grad_()
    w = lucid_gpu.rand(3, 5, device=device)
    loss = (x.exp() @ w).sin().sum()
    with profiler.planning() as log:
        loss.backward()
        called = here() - 1
    assert log.plans >= 1
    assert set(log.lines) == {line(called)}


def test_blocks_may_be_nested_and_end_with_an_error():
    x = lucid_gpu.rand(5)
    with profiler.planning() as outer:
        with pytest.raises(KeyError), profiler.planning() as inner:
            (x + 1).numpy()
            raise KeyError
        (x + x).numpy()
    assert (inner.plans, outer.plans) == (1, 2)
    assert planning.listeners == []


def test_totals_are_counted_without_a_block():
    before = profiler.planned()
    lucid_gpu.rand(5).exp().numpy()
    after = profiler.planned()
    assert after.plans == before.plans + 1
    assert after.programs > before.programs
    assert after.kernels >= before.kernels


def test_the_log_is_a_table_with_the_worst_line_first():
    log = profiler.PlanningLog()
    for kind, name in [("programs", "a.py:1"), ("plans", "b.py:22"), ("kernels", "b.py:22")]:
        log.note(kind, name)
    assert str(log).splitlines() == [
        "line     programs  plans  kernels",
        "b.py:22         0      1        1",
        "a.py:1          1      0        0",
        "in all          1      1        1",
    ]
    assert repr(log) == "<1 programs, 1 plans, 1 kernels>"


def test_a_loop_that_plans_in_every_step_is_warned_about_once(device):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for n in range(1, planning.STEPS + 30):
            another(lucid_gpu.ones(3, device=device), n).sum().item()
            read = here() - 1
    (one,) = told
    assert one.category is profiler.PlanningWarning
    assert (one.filename, one.lineno) == (HERE, read)
    text = str(one.message)
    assert text.startswith(f"{line(read)} keeps planning: in {planning.STEPS} steps ")
    assert "of shape [3]" in text


def test_a_step_that_plans_much_is_one_step():
    """The first pass of a deep network, or its first pass back, comes from one line."""
    x = lucid_gpu.rand(3)

    def network(x):
        for n in range(2 * planning.STEPS):
            x = another(x, n).cumsum(0)
        return x

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with profiler.planning() as log:
            network(x)
    assert log.plans >= planning.STEPS


def test_a_loop_that_seldom_plans_is_not_warned_about():
    x = lucid_gpu.rand(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(1, planning.STEPS + 2):
            planning.steps.count += planning.AMONG // planning.STEPS
            another(lucid_gpu.ones(3), n).sum().item()
            x.numpy()


def test_the_environment_variable_prints_plans_with_their_lines():
    again = "(x * 2).exp().numpy()\n"
    code = f"import lucid_gpu as torch\nx = torch.tensor([1.0, 2.0])\n{again}{again}"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment(), "LUCID_DEBUG": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = [one for one in ran.stdout.splitlines() if one.startswith(("planned", "compiled"))]
    assert lines == [
        "planned lucid_mul_exp, number 1, at <string>:3",
        "compiled lucid_mul_exp, number 1, at <string>:3",
    ]

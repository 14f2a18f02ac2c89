"""When pending values are stored: with the next kernel, when a step ends, before a third use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import nn, profiler
from lucid_gpu.core import program
from lucid_gpu.nn import functional as F


def array(device: str) -> Any:
    made = lucid_gpu.rand(8, 8, device=device)
    made.array
    return made


def pending(tensor: Any) -> bool:
    return not tensor._expr.program.is_load


def test_what_is_written_in_place_is_stored_with_the_next_kernel(device: str) -> None:
    m, g, other = array(device), array(device), array(device)
    expected = m.tolist(), g.tolist()
    m.mul_(0.5).add_(g, alpha=0.25)
    assert pending(m)
    (other * 2).array
    assert not pending(m)
    found = np.array(expected[0], "float32") * np.float32(0.5)
    found += np.array(expected[1], "float32") * np.float32(0.25)
    assert np.array_equal(m.cpu().numpy(), found)


def test_what_dies_is_never_stored(device: str) -> None:
    x, other = array(device), array(device)
    (x * 2).add_(1).sign_()
    with profiler.record() as log:
        (other * 2).array
    assert len(log.kernels) == 1


def test_moments_and_weights_are_one_kernel(device: str) -> None:
    p, m, v, g = (array(device) for _ in range(4))
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.99).addcmul_(g, g, value=0.01)
    p.addcdiv_(m, v.sqrt().add_(1e-8), value=-0.1)
    with profiler.record() as log:
        p.array
    assert len(log.kernels) == 1
    assert log.bytes_read == 4 * 256 and log.bytes_written == 3 * 256
    assert not (pending(m) or pending(v))


def test_tensors_that_share_nothing_have_kernels_of_their_own(device: str) -> None:
    a, b, g, h = (array(device) for _ in range(4))
    a.add_(g)
    b.add_(h)
    with profiler.record() as log:
        a.array
    assert len(log.kernels) == 2 and not pending(b)


def test_a_write_again_and_again_is_stored_in_between(device: str) -> None:
    x, total = array(device), array(device)
    start = total.tolist()
    for _ in range(100):
        total.add_(x)
    assert len(total._expr.program.instructions) < 8
    found = np.array(start, "float32")
    for _ in range(100):
        found = found + x.cpu().numpy()
    assert np.array_equal(total.cpu().numpy(), found)


@pytest.mark.parametrize("end", ["item", "numpy", "backward", "tensor"])
def test_what_is_pending_when_a_step_ends_is_stored_when_built_on(end: str, device: str) -> None:
    x, w = array(device), array(device).requires_grad_()
    y = x * 2
    if end == "item":
        x.sum().item()
    elif end == "numpy":
        x.cpu().numpy()
    elif end == "backward":
        w.sum().backward()
    else:
        lucid_gpu.tensor([1.0, 2.0])
    assert pending(y)
    z = y + 1
    assert not pending(y) and len(z._expr.program.instructions) == 3


def test_one_number_is_no_step(device: str) -> None:
    x = array(device)
    y = x * 2
    z = y + lucid_gpu.tensor(0.5, device=device)
    assert pending(y) and pending(z)


def test_a_pass_back_computes_forward_values_in_its_kernels(device: str) -> None:
    x = array(device).requires_grad_()
    y = (x * 2).tanh()
    y.sum().backward()
    with profiler.record() as log:
        x.grad.array
    assert len(log.kernels) == 1


@pytest.mark.parametrize("clears", ["None", "zero_"])
def test_weights_written_by_hand_do_not_reach_back(clears: str, device: str) -> None:
    """The loss is elementwise and nobody reads it: only the passes back end the steps."""
    w = array(device).requires_grad_()
    start = np.array(w.tolist(), "float64")
    planned = []
    for _ in range(12):
        with profiler.planning() as log:
            ((w - 3) ** 2).sum().backward()
            with lucid_gpu.no_grad():
                w.mul_(0.5).sub_(w.grad, alpha=0.125)
                if clears == "None":
                    w.grad = None
                else:
                    w.grad.zero_()
        planned.append(log.plans)
        start = start * 0.5 - 0.125 * 2 * (start - 3)
    assert not any(planned[4:]), planned
    assert np.allclose(w.tolist(), start, rtol=1e-5)


def test_what_a_kernel_computed_inside_another_value_is_computed_once_more(device: str) -> None:
    x = array(device)
    h = x * 2 + 1
    F.relu(h).array
    assert pending(h)
    h.tanh()
    assert not pending(h)


class Residual(nn.Module):
    """``x + f(x)``, where the sum is read by the branch itself or by an activation of it."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form, self.map = form, nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        if self.form == "plain":
            return x + self.map(x).tanh()
        return x + 0.5 * self.map(F.relu(x)).tanh()


def loads(form: str, depth: int, device: str) -> tuple[int, int]:
    """Arrays loaded by one pass back and distinct kernels of it."""
    model = nn.Sequential(*[Residual(form) for _ in range(depth)]).to(device)
    x = lucid_gpu.rand(4, 16, device=device)
    for _ in range(2):
        model.zero_grad()
        loss = model(x).square().mean()
        with profiler.record() as log:
            loss.backward()
            for p in model.parameters():
                if p.grad is not None:
                    p.grad.array
    plans = [kernel.plan for kernel in log.kernels]
    counts = [len(getattr(plan, "all_loads", plan.loads)) for plan in plans]
    return sum(counts), len({(p.name, p.shape, n) for p, n in zip(plans, counts, strict=True)})


@pytest.mark.parametrize("form", ["plain", "activated"])
def test_a_pass_back_through_residual_blocks_loads_linearly(form: str, device: str) -> None:
    (a, _), (b, few), (c, many) = (loads(form, depth, device) for depth in (8, 16, 32))
    assert c - b == 2 * (b - a)
    assert few == many


def test_a_changing_number_is_an_argument_from_its_second_step_on(device: str) -> None:
    program.forget()
    x = array(device)
    derived = []
    for step in range(6):
        with profiler.planning() as log:
            x.sub_(lucid_gpu.tensor([[1.0, 2.0]], device=device)[0, 0] * (0.1 / (step + 1)))
            x.sum().item()
        derived.append((log.programs, log.plans))
    assert derived[3:] == [(0, 0)] * 3


@pytest.mark.parametrize("form", ["nan", "fill_", "fill_ 0-d"])
def test_further_numbers_that_plan_nothing(form: str, device: str) -> None:
    program.forget()
    x, t = array(device), lucid_gpu.zeros((), device=device)
    derived = []
    for step in range(8):
        with profiler.planning() as log:
            if form == "nan":
                found = lucid_gpu.where(x > 0.5, x * float("nan"), float("nan"))
                assert np.isnan(found.cpu().numpy()).all()
            elif form == "fill_":
                y = lucid_gpu.zeros(8, 8, device=device).fill_(step * 0.5)
                assert (y + 1).sum().item() == 64 * (1 + step * 0.5)
            else:
                t.fill_(step + 1)
                assert (x * 0 + (1 - 0.5**t)).amax().item() == 1 - 0.5 ** (step + 1)
        derived.append((log.programs, log.plans))
    assert derived[4:] == [(0, 0)] * 4, derived


def test_numbers_of_a_formula_stay_in_its_program(device: str) -> None:
    program.forget()
    x = array(device)
    y = 0.5 * x * (1 + (0.79 * (x + 0.044 * x * x * x)).tanh())
    assert len(y._expr.leaves) == 1


def test_whole_numbers_that_are_refused_are_refused_after_many_others(device: str) -> None:
    x = lucid_gpu.tensor([2, 3], device=device)
    for k in range(2, 14):
        assert (x * k).tolist() == [2 * k, 3 * k] and (x**k).tolist() == [2**k, 3**k]
        lucid_gpu.tensor([1.0, 2.0])
    with pytest.raises(RuntimeError, match="negative integer powers"):
        x**-1
    for call in (lambda: x * 2**64, lambda: x < 2**70, lambda: x - 2**64, lambda: x // 2**64):
        with pytest.raises(OverflowError):
            call()


def test_tables_take_bounded_memory(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program.forget()
    monkeypatch.setattr(program, "BYTES", 100_000)
    for n in range(2, 60):
        x = lucid_gpu.ones(n, 3, device=device)
        assert ((x * 2 + 1).square() / 3).sum().item() == 9 * n
        assert program.kept.count <= 100_000
    assert len(program._programs) < 200


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 9, 30])
def test_a_sum_of_gradients_is_right_however_many(count: int, device: str) -> None:
    w = lucid_gpu.rand(4, 4, device=device).requires_grad_()
    inputs = [lucid_gpu.full((4, 4), float(i + 1), device=device) for i in range(count)]
    total = sum((x @ w).sum() for x in inputs)
    total.backward()
    assert np.allclose(w.grad.cpu().numpy(), 4 * count * (count + 1) / 2)


class _Turn(lucid_gpu.autograd.Function):
    """A turn of a recurrence."""

    @staticmethod
    def forward(ctx: Any, h: Any, w: Any, x: Any) -> Any:
        z = (h * w + x).tanh()
        ctx.save_for_backward(h, w, z)
        return z

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        h, w, z = ctx.saved_tensors
        d = g * (1 - z * z)
        return d * w, d * h, d


def _recurrence(lengths: Any, w: Any) -> tuple[int, int]:
    """Programs and plans of one pass for each length."""
    with profiler.planning() as log:
        for length in lengths:
            h = lucid_gpu.zeros(16, device=w.device)
            for x in lucid_gpu.rand(length, 16, device=w.device):
                h = _Turn.apply(h, w, x)
            (h * h).mean().backward()
            w.grad = None
    return log.programs, log.plans


def test_lengths_that_were_met_plan_nothing(device: str) -> None:
    lengths = np.random.default_rng(0).integers(3, 61, 16).tolist()
    w = lucid_gpu.rand(16, device=device).requires_grad_()
    kept = program.kept.count
    assert _recurrence(lengths, w)[0] > 0
    assert program.kept.count - kept < program.BYTES // 2
    assert _recurrence(lengths, w) == (0, 0)


class _Square(lucid_gpu.autograd.Function):
    """``x * x``, whose gradient brings in an array at every turn of a chain."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * 2 * x


def test_turns_of_a_pass_back_share_kernels(device: str) -> None:
    x = lucid_gpu.rand(16, device=device).requires_grad_()
    y = x
    for _ in range(64):
        y = _Square.apply(y)
    y.array
    with profiler.record() as log:
        y.sum().backward()
        x.grad.array
    turns = 2 if lucid_gpu.launch.runs_cuda_c(x._expr.program.device) else 8
    assert 64 // turns <= len(log.kernels) <= 64 // turns + 2

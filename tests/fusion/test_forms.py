"""Programs at shapes that were never seen before: the bits of a process that knows no program."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import lucid_gpu as torch
from lucid_gpu import profiler
from lucid_gpu.core.program import axes_of, forget, load_program
from tests.slow import slow_but

# LUCID_TEST_EXAMPLES=50 searches fifty times as long.
PROGRAMS = round(40 * float(os.environ.get("LUCID_TEST_EXAMPLES", "1")))
SHAPES = [(5, 3), (4, 7), (3, 3), (1, 6), (6, 1), (1, 1), (0, 4), (4, 0), (300, 260), (2, 33)]
UNARY = ["tanh", "exp", "sigmoid", "relu", "abs", "neg", "sin", "square"]
BINARY = ["add", "sub", "mul", "maximum", "div", "atan2"]


@pytest.fixture(autouse=True)
def fresh() -> None:
    """No program from another test is known."""
    forget()


def operands(rows: int, columns: int, device: str) -> list[Any]:
    """Leaves of every kind of layout and broadcast, to be combined to ``(rows, columns)``."""
    rng = np.random.default_rng(0)

    def leaf(*shape: int) -> Any:
        return torch.tensor(rng.uniform(0.5, 2, shape).astype("f4"), device=device)

    made = [
        leaf(rows, columns),
        leaf(columns, rows).t(),
        leaf(2 * rows, columns)[::2],
        leaf(rows, columns + 2)[:, 1:-1],
        leaf(rows, 1).expand(rows, columns),
        leaf(columns),
        leaf(rows, 1),
        leaf(1, columns),
        leaf(),
    ]
    return [x.detach().requires_grad_(i % 4 != 2) for i, x in enumerate(made)]


def outcome(seed: int, rows: int, columns: int, device: str) -> list[Any]:
    """What a random program computes: values, gradients, gradients of these, and strides."""
    rng = np.random.default_rng(seed)
    leaves = operands(rows, columns, device)
    values = list(leaves)
    for _ in range(rng.integers(3, 12)):
        kind, a, b = rng.integers(8), values[rng.integers(len(values))], values[-1]
        if kind < 3:
            y = getattr(torch, UNARY[rng.integers(len(UNARY))])(a)
        elif kind < 5:
            y = getattr(torch, BINARY[rng.integers(len(BINARY))])(a, b)
        elif kind == 5:
            y = a * float(rng.integers(1, 4)) + 0.5
        elif kind == 6:
            y = torch.where(a > 1, a, b)
        else:
            y = a - a.sum(-1, keepdim=True) / 2 if rng.integers(2) else a / (1 + a.mean().abs())
        values.append(y if rng.integers(4) else y.detach() * a)
    total = torch.stack([v.tanh().sum() for v in values[-3:]]).sum()
    inputs = [x for x in leaves if x.requires_grad]
    results = values[-4:]
    if total.requires_grad:
        found = torch.autograd.grad(total, inputs, create_graph=True, allow_unused=True)
        first = [g for g in found if g is not None]
        results += first
        size = sum([(g * g).sum() for g in first])
        if size.requires_grad:
            second = torch.autograd.grad(size, inputs, allow_unused=True)
            results += [g for g in second if g is not None]
    return [(r.shape, r.stride(), r.detach().cpu().numpy().tobytes()) for r in results]


@pytest.mark.parametrize("seed", slow_but(range(PROGRAMS), *range(0, PROGRAMS, 3)))
def test_a_new_shape_gives_what_it_gives_where_no_program_is_known(seed: int, device: str) -> None:
    order = np.random.default_rng(seed).permutation(len(SHAPES))
    shapes = [SHAPES[i] for i in order]
    known = [outcome(seed, *shape, device) for shape in shapes]
    for shape, found in zip(shapes[1:], known[1:], strict=True):
        forget()
        assert outcome(seed, *shape, device) == found, shape


def test_stand_ins_name_axes_from_the_right() -> None:
    assert axes_of((7, 5, 1, 0), (7, 5, 1, 0)) == (5, 4, 1, 0)
    assert axes_of((5,), (7, 5)) == (2,)
    assert axes_of((1, 5), (7, 5)) == (1, 2)
    with pytest.raises(ValueError, match="does not broadcast"):
        axes_of((4,), (7, 5))


def test_extents_are_not_part_of_a_program_unless_they_are_0_or_1() -> None:
    def load(*shape: int, strided: bool = False) -> Any:
        return load_program(torch.float32, shape, strided, False, torch.device("cpu"))

    assert load(7, 5) is load(8, 4) is load(4, 4)
    assert load(7, 5).instructions[0].shape == load(7, 5).root.shape == (3, 2)
    assert load(7, 1) is not load(7, 5)
    assert load(7, 0) is not load(7, 5)
    assert load(7, 5, strided=True) is load(8, 4, strided=True)
    assert load(7, 5, strided=True) is not load(7, 5)
    x, y = torch.ones(3, 4), torch.ones(5, 6)
    assert (x.T * x[:1].T).tanh()._expr.program is (y.T * y[:1].T).tanh()._expr.program


def after(steps: Any, step: Any, warm: int = 3) -> tuple[int, int, int]:
    """Programs, plans and kernels that are made after the first few of these steps."""
    with profiler.planning() as log:
        for i, n in enumerate(steps):
            if i == warm:
                before = log.programs, log.plans, log.kernels
            step(n)
    now = log.programs, log.plans, log.kernels
    return tuple([b - a for a, b in zip(before, now, strict=True)])  # type: ignore[return-value]


def test_batches_of_every_size_make_nothing_after_the_third() -> None:
    nn = torch.nn
    model = nn.Sequential(
        nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(batch: int) -> None:
        optimizer.zero_grad()
        labels = torch.arange(batch) % 10
        loss = nn.functional.cross_entropy(model(torch.randn(batch, 32)), labels)
        loss.backward()
        optimizer.step()
        loss.item()

    assert after(range(1, 65), step) == (0, 0, 0)


def test_a_growing_length_makes_nothing_after_the_third() -> None:
    w = torch.randn(8, 8, requires_grad=True)

    def step(length: int) -> None:
        x = torch.randn(2, length, 8)
        hidden = (x @ w).sigmoid()
        scores = (hidden @ x.mT).softmax(-1)
        loss = ((scores @ x - hidden) ** 2).mean() / length
        loss.backward()
        loss.item()
        w.grad.numpy()

    assert after(range(1, 40), step) == (0, 0, 0)


def test_lengths_of_a_vector_make_nothing_after_the_third() -> None:
    def step(n: int) -> None:
        x = torch.rand(n, requires_grad=True)
        (x.exp() * x).mean().backward()
        x.grad.numpy()

    assert after(range(2, 40), step) == (0, 0, 0)


def test_what_does_not_fit_is_named_as_the_user_sees_it() -> None:
    """Also after the same ops on other shapes, and by a level with its batch."""
    x, y = torch.ones(5, 3), torch.ones(5, 3)
    assert (x * y).shape == torch.func.vmap(lambda a, b: a * b)(x, y).shape
    with pytest.raises(RuntimeError, match=r"dimension 1; mul got shapes \[5, 3\] and \[5, 4\]"):
        x * torch.ones(5, 4)
    with pytest.raises(RuntimeError, match=r"dimension 1; mul got shapes \[5, 3\] and \[5, 4\]"):
        torch.func.vmap(lambda a, b: a * b)(x, torch.ones(5, 4))
    with pytest.raises(RuntimeError, match="two devices, cpu and meta"):
        x + torch.ones(4, 5, device="meta")

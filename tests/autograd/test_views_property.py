"""Random programs of views and in-place writes: values, histories and refusals are torch's."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("hypothesis", reason="the property tests need hypothesis: make test")
from hypothesis import given, note, settings
from hypothesis import strategies as st

import lucid_gpu
from lucid_gpu import fusion
from tests.oracle import torch_module

EXAMPLES = float(os.environ.get("LUCID_TEST_EXAMPLES", "1"))
LEAF = "a leaf Variable that requires grad"
SENTENCES = (  # what makes two refusals the same
    "a view of a leaf Variable that requires grad",
    LEAF,
    "its base or another view of its base has been modified inplace",
    "This view is the output of a function that returns multiple views",
    "This view was created inside a custom Function",
    "created in no_grad mode and is being",
    "created in inference mode and is being",
    "more than one element of the written-to tensor",
    "Can't detach views in-place",
    "doesn't match the broadcast shape",
)
WRITTEN = "modified by an inplace operation"
ANOTHER = "its base or another view of its base"


class Skip(Exception):
    """This step cannot be done here."""


class Stop(Exception):
    """The rest of the program cannot be compared."""


def sentence_of(error: Exception) -> str:
    found = [words for words in SENTENCES if words in str(error)]
    assert found, f"an error nobody expects: {type(error).__name__}: {error}"
    return found[0]


class Run:
    """One module's side of a program."""

    def __init__(self, module: Any, kinds: list[int]) -> None:
        self.m = module
        self.values: list[Any] = []
        self.leaves: list[Any] = []
        self.untracked = False
        self.silent: set[int] = set()  # views made under no_grad: torch says they require grad
        rng = np.random.default_rng(3)
        for kind in kinds:
            shape = ((2, 3), (4,), (2, 2, 2), (1, 3))[kind % 4]
            made = module.tensor(rng.uniform(0.5, 1.5, shape), dtype=module.float64)
            if kind // 4 % 3:
                made.requires_grad_()
                self.leaves.append(made)
            self.values.append(made)

    def step(self, kind: int, a: int, b: int, c: int) -> list[Any]:
        """Do a step; returns the tensors it made."""
        steps = [self.compute, self.view, self.view, self.write, self.write, self.assign,
                 self.silent_view, self.silent_write, self.parts, self.apart,
                 self.write]  # fmt: skip
        chosen: Callable[..., Any] = steps[kind % len(steps)]
        place = a % len(self.values)
        if place in self.silent and chosen in (self.compute, self.apart):
            raise Skip
        note(f"{chosen.__name__} of v{place}, {b}, {c}")
        made = chosen(self.values[place], b, c)
        made = [] if made is None else list(made) if isinstance(made, (tuple, list)) else [made]
        if place in self.silent or chosen == self.silent_view:
            self.silent.update(range(len(self.values), len(self.values) + len(made)))
        self.values += made
        return made

    def fitting(self, shape: Any, b: int) -> Any:
        found = []
        for i, v in enumerate(self.values):
            try:
                if i not in self.silent and np.broadcast_shapes(shape, tuple(v.shape)) == shape:
                    found.append(v)
            except ValueError:
                continue
        if not found:
            raise Skip
        return found[b % len(found)]

    def compute(self, x: Any, b: int, c: int) -> Any:
        y = self.fitting(tuple(x.shape), b)
        return (x * y, x + y, x * 2, x.clone(), (x * 0.3).sin(), y - 0.5)[c % 6]

    def view(self, x: Any, b: int, c: int) -> Any:
        rank = len(x.shape)
        if not rank:
            return (x.view(1), x.unsqueeze(0), x.expand(2))[c % 3]
        if 0 in x.shape:
            raise Skip
        choices: list[Callable[[], Any]] = [
            lambda: x[b % x.shape[0]],
            lambda: x[1:],
            lambda: x.transpose(0, rank - 1),
            lambda: x.unsqueeze(b % (rank + 1)),
            lambda: x[..., ::2],
            lambda: x.reshape(-1),
            lambda: x.view(*tuple(x.shape)),
            lambda: x[None],
            lambda: x.expand(2, *tuple(x.shape)),
        ]
        return choices[c % len(choices)]()

    def silent_view(self, x: Any, b: int, c: int) -> Any:
        with self.m.no_grad():
            return self.view(x, b, c % 6)

    def parts(self, x: Any, b: int, c: int) -> Any:
        if not len(x.shape) or not x.shape[0]:
            raise Skip
        return (lambda: x.unbind(0), lambda: x.split(1), lambda: x.chunk(2))[c % 3]()

    def apart(self, x: Any, b: int, c: int) -> Any:
        if c % 3 == 2:
            if any(v._base is x for v in self.values):
                raise Skip  # in torch, views found later have no history, those found before do
            x.detach_()
            return None
        if c % 3:
            return x.detach()
        self.untracked = True  # torch's gradients may be wrong after a write to this
        return x.data

    def write(self, x: Any, b: int, c: int) -> None:
        y = self.fitting(tuple(x.shape), b)
        if y is not x:
            y = y * 1  # what overlaps in part is refused by torch, or read while it is written
        choices: list[Callable[[], Any]] = [
            lambda: x.mul_(y),
            lambda: x.add_(y * 0.5),
            lambda: x.copy_(y * 1),
            lambda: x.sub_(0.5),
            lambda: x.mul_(0.5),
            lambda: x.zero_(),
        ]
        choices[c % len(choices)]()

    def silent_write(self, x: Any, b: int, c: int) -> None:
        with self.m.no_grad():
            self.write(x, b, c)

    def assign(self, x: Any, b: int, c: int) -> None:
        if not len(x.shape) or not x.shape[0]:
            raise Skip
        if c % 3 == 0:
            x[b % x.shape[0]] = 0.25
        elif c % 3 == 1:
            x[1:] = self.fitting(tuple(x[1:].shape), b) * 1
        else:
            x[..., 0] = self.fitting(tuple(x[..., 0].shape), b) * 2

    def gradients(self) -> list[Any]:
        heard = [v for i, v in enumerate(self.values) if i not in self.silent]
        total = sum((v * (1 + k / 7)).sum() for k, v in enumerate(heard))
        leaves = [leaf for leaf in self.leaves if leaf.requires_grad]
        if not leaves or not total.requires_grad:
            return []
        found = self.m.autograd.grad(total, leaves, allow_unused=True)
        return [None if g is None else np.array(g.tolist()) for g in found]


def step_both(mine: Run, theirs: Run, step: Any) -> None:
    """Do a step on both modules: both can, or both refuse with the same sentence."""
    target = theirs.values[step[1] % len(theirs.values)]
    try:
        theirs.step(*step)
    except (RuntimeError, NotImplementedError) as error:
        if ANOTHER in str(error):  # torch also refuses where the base was written silently
            raise Stop from None
        words = sentence_of(error)
        if words == LEAF and target._base is not None and not target._base.is_leaf:
            raise Stop from None  # torch has not found the view's new history yet
        with pytest.raises(RuntimeError) as got:
            mine.step(*step)
        indirect = fusion.Eager.on and ANOTHER in str(got.value)  # the value is computed first
        assert sentence_of(got.value) == words or indirect
        return
    mine.step(*step)


def compare(kinds: list[int], program: Any) -> None:
    torch = torch_module()
    theirs, mine = Run(torch, kinds), Run(lucid_gpu, kinds)
    for step in program:
        try:
            step_both(mine, theirs, step)
        except Skip:
            continue
        except Stop:
            return
        assert len(mine.values) == len(theirs.values)
    bases = [{id(v): i for i, v in enumerate(run.values)} for run in (mine, theirs)]
    for i, (a, b) in enumerate(zip(mine.values, theirs.values, strict=True)):
        np.testing.assert_allclose(a.tolist(), b.tolist(), rtol=1e-9, err_msg=f"value {i}")
        assert a._version == b._version, f"version of value {i}"
        assert a._is_view() == b._is_view(), f"value {i}"
        if a._is_view() and b._is_view():
            at = bases[0].get(id(a._base)), bases[1].get(id(b._base))
            assert at[0] == at[1], f"base of value {i}"
        if i in mine.silent:
            continue
        try:
            marks = b.requires_grad, b.is_leaf, b.grad_fn is None
        except RuntimeError as error:
            assert ANOTHER in str(error)
            return
        assert (a.requires_grad, a.is_leaf, a.grad_fn is None) == marks, f"value {i}"
    if mine.untracked:
        return
    try:
        expected = theirs.gradients()
    except RuntimeError as error:  # also what PyTorch's own backward writes, or cannot find again
        own = ("more than one element of the written-to", "has been detached in-place")
        assert any(words in str(error) for words in (WRITTEN, *own))
        return
    try:
        got = mine.gradients()
    except RuntimeError as error:
        # A region is one node: it may keep an input where PyTorch keeps the op's output.
        assert WRITTEN in str(error)
        return
    for i, (g, e) in enumerate(zip(got, expected, strict=True)):
        if g is None or e is None:
            assert not np.any(g if g is not None else 0), f"gradient {i}"
            assert not np.any(e if e is not None else 0), f"gradient {i}"
        else:
            np.testing.assert_allclose(g, e, rtol=1e-9, atol=1e-9, err_msg=f"gradient {i}")


STEP = st.tuples(*[st.integers(0, 43)] * 4)
PROGRAMS = st.lists(STEP, min_size=1, max_size=10)
KINDS = st.lists(st.integers(0, 11), min_size=1, max_size=3)


@settings(max_examples=math.ceil(120 * EXAMPLES))
@given(KINDS, PROGRAMS)
def test_views_and_writes_are_as_in_torch(kinds: list[int], program: Any) -> None:
    compare(kinds, program)


@settings(max_examples=math.ceil(60 * EXAMPLES))
@given(KINDS, PROGRAMS)
def test_views_and_writes_are_as_in_torch_op_by_op(kinds: list[int], program: Any) -> None:
    with fusion.eager():
        compare(kinds, program)

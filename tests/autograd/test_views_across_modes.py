"""Random programs whose views are made and written in modes of their own, compared with torch.

A tensor is made, viewed twice, written and used, each step recorded, under `no_grad` or in
inference mode.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import torch_module

MODES = ("recorded", "no_grad", "inference")
VIEWS = {
    "itself": lambda x: x,
    "view": lambda x: x.view(-1),
    "t": lambda x: x.t(),
    "slice": lambda x: x[1:],
    "select": lambda x: x[0],
    "unsqueeze": lambda x: x.unsqueeze(0),
    "reshape": lambda x: x.reshape(-1),
    "as_strided": lambda x: x.as_strided((2,), (1,)),
    "view_as": lambda x: x.view_as(x),
    "unbind": lambda x: x.unbind(0)[0],
    "split": lambda x: x.split(1)[0],
    "chunk": lambda x: x.chunk(2)[1],
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
}
WRITES = {
    "none": lambda x, w: None,
    "mul_": lambda x, w: x.mul_(2),
    "fill_": lambda x, w: x.fill_(3.0),
    "zero_": lambda x, w: x.zero_(),
    "add_": lambda x, w: x.add_(w.sum()),
    "copy_": lambda x, w: x.copy_((w * 1.0).sum().expand(x.shape)),
    "transpose_": lambda x, w: x.transpose_(0, -1),
}
SENTENCES = (
    "a view of a leaf Variable that requires grad",
    "a leaf Variable that requires grad",
    "created in no_grad mode",
    "created in inference mode",
    "a function that returns multiple views",
    "Inplace update to inference tensor",
    "Inference tensors cannot be saved",
    "grad can be implicitly created",
    "Dimension out of range",
    "dimension specified as 0 but tensor has no dimensions",
)


def mode(m: Any, name: str) -> Any:
    if name == "recorded":
        return contextlib.nullcontext()
    return m.no_grad() if name == "no_grad" else m.inference_mode()


def asked(question: Any) -> Any:
    """An answer, or what it was refused with."""
    try:
        return question()
    except RuntimeError as error:
        found = [words for words in SENTENCES if words in str(error)]
        return found[0] if found else f"{type(error).__name__}: {error}"


def facts(x: Any) -> list[Any]:
    return [
        asked(lambda: x.requires_grad),
        asked(lambda: x.is_leaf),
        asked(lambda: x.grad_fn is None),
        asked(x._is_view),
        x.is_inference(),
        None if x.is_inference() else x._version,
    ]


def outcome(m: Any, program: dict[str, Any]) -> list[Any]:
    """What one side of a program shows after each step."""
    w = m.tensor([2.0, 3.0], requires_grad=True)
    with mode(m, program["made"]):
        x = m.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=program["requires_grad"])
        x = x if program["leaf"] else x * 1
    seen: list[Any] = [facts(x)]
    try:
        with mode(m, program["first mode"]):
            a = VIEWS[program["first"]](x)
        with mode(m, program["second mode"]):
            b = VIEWS[program["second"]](a)
    except (RuntimeError, IndexError):
        return [*seen, "no such view"]
    tensors = {"x": x, "a": a, "b": b}
    seen += [facts(a), facts(b)]
    with mode(m, program["write mode"]):
        refused = asked(lambda: (WRITES[program["write"]](tensors[program["written"]], w), None)[1])
    seen.append(refused)
    if refused is not None:
        return seen  # PyTorch may have written a part
    for t in tensors.values():
        seen += [facts(t), t.detach().clone().tolist()]
    with mode(m, program["use mode"]):
        for t in tensors.values():
            wanted = [w, x] if x.requires_grad else [w]

            def used(t: Any = t, wanted: Any = wanted) -> Any:
                y = (t * t).sum()
                if not y.requires_grad:
                    return None
                slopes = m.autograd.grad(y, wanted, allow_unused=True, retain_graph=True)
                return [None if g is None else g.tolist() for g in slopes]

            seen.append(asked(used))
    return seen


def programs(count: int, seed: int) -> Any:
    draw = random.Random(seed)
    for _ in range(count):
        program = {
            "made": draw.choice(MODES),
            "requires_grad": draw.random() < 0.6,
            "leaf": draw.random() < 0.4,
            "first": draw.choice(list(VIEWS)),
            "first mode": draw.choice(MODES),
            "second": draw.choice(list(VIEWS)),
            "second mode": draw.choice(MODES),
            "write": draw.choice(list(WRITES)),
            "written": draw.choice("xab"),
            "write mode": draw.choice(MODES),
            "use mode": draw.choice(("recorded", "recorded", "no_grad")),
        }
        if program["made"] == "inference":  # PyTorch half refuses leaves and copies of these
            program["requires_grad"] = False
            if {"data", "detach"} & {program["first"], program["second"]}:
                continue
        yield program


def compare(count: int, seed: int) -> None:
    torch = torch_module()
    for program in programs(count, seed):
        mine, other = outcome(lucid_gpu, program), outcome(torch, program)
        assert mine == other, program


def test_views_across_modes() -> None:
    compare(250, 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_many_views_across_modes(seed: int) -> None:
    compare(3000, 100 + seed)


def test_a_view_made_without_history_is_refused_for_itself_not_for_its_base() -> None:
    for m in (lucid_gpu, torch_module()):
        x = m.ones(2, 3, requires_grad=True)
        with m.no_grad():
            view = x[0]
            x.mul_(2)
        with pytest.raises(RuntimeError, match="created in no_grad mode and is being modified"):
            view.mul_(2)


_RENEWED: dict[str, Callable[[Any, Any], Any]] = {
    "data": lambda m, a: setattr(a, "data", m.ones(3) * 7),
    "written": lambda m, a: _unrecorded(m, a),
    "data, written": lambda m, a: (setattr(a, "data", m.ones(3) * 7), _unrecorded(m, a)),
}


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("change", _RENEWED)
@pytest.mark.parametrize("part", ["split", "unbind"])
def test_a_part_of_a_written_base_refuses_its_history_whatever_it_holds(
    part: str, change: str, recorded: bool
) -> None:
    found = []
    for m in (lucid_gpu, torch_module()):
        x = m.ones(6, requires_grad=True) * 2
        a = x.split(3)[0] if part == "split" else x.view(2, 3).unbind()[0]
        with m.no_grad():
            x.mul_(2)
        del x
        with m.set_grad_enabled(recorded):
            _RENEWED[change](m, a)
        outcome = [a.requires_grad, a.tolist(), a.detach().tolist()]
        for use in (lambda a=a: a.grad_fn, lambda a=a: a * 2, lambda a=a: a.add_(1)):
            with pytest.raises(RuntimeError, match="being modified inplace|been modified inplace"):
                use()
        found.append(outcome)
    assert found[0] == found[1]


_PRODUCTS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "v @ w": lambda m, v, w: v @ w,
    "w @ v": lambda m, v, w: w @ v,
    "linear": lambda m, v, w: m.nn.functional.linear(v, w),
    "mv": lambda m, v, w: v.mv(w[0]),
    "addmm": lambda m, v, w: m.addmm(m.ones(2), v, w),
}


@pytest.mark.parametrize("name", _PRODUCTS)
@pytest.mark.parametrize("later", [False, True], ids=["of what required grad", "of what did later"])
def test_a_product_does_not_save_for_a_view_made_without_history(name: str, later: bool) -> None:
    found = []
    for m in (lucid_gpu, torch_module()):
        x, leaf = m.arange(4.0).requires_grad_(not later), m.ones(2, 2, requires_grad=True)
        with m.no_grad():
            view = x.view(2, 2)
        x.requires_grad_()
        w = leaf * 2
        product = _PRODUCTS[name](m, view, w)
        w.mul_(3)
        (first,) = m.autograd.grad(product.sum(), leaf, create_graph=True)
        found.append((first.tolist(), first.requires_grad))
    assert found[0] == found[1]


# What becomes of a leaf and a view of it between its use and backward, in any order.
_MARKS = {
    "detach_": lambda m, x, v: x.detach_(),
    "unmark": lambda m, x, v: x.requires_grad_(False),
    "mark": lambda m, x, v: x.requires_grad_(),
    "mark view": lambda m, x, v: v.requires_grad_(),
    "unmark view": lambda m, x, v: v.requires_grad_(False),
    "write": lambda m, x, v: _unrecorded(m, x),
    "write view": lambda m, x, v: _unrecorded(m, v),
    "take a history": lambda m, x, v: x.mul_(m.ones(4, requires_grad=True)),
}
_STARTS = {
    "of a leaf, under no_grad": (True, False),
    "of a leaf": (True, True),
    "of what was marked later": (False, True),
}


def _unrecorded(m: Any, x: Any) -> None:
    with m.no_grad():
        x.add_(1)


def _marked(m: Any, start: str, names: list[str], earlier: bool) -> list[Any]:
    wants, recorded = _STARTS[start]
    x = m.tensor([0.5, 1.0, 2.0, 4.0], requires_grad=wants)
    x.grad = m.ones(4) if earlier else None
    with contextlib.nullcontext() if recorded else m.no_grad():
        v = x[::2]
    before, w = x + v.sum(), m.ones(2, requires_grad=True)
    found: list[Any] = []

    def note(ask: Callable[..., Any], *args: Any) -> None:
        try:
            found.append(ask(*args))
        except RuntimeError as error:
            found.append(str(error)[:25])

    def marked(name: str) -> None:
        _MARKS[name](m, x, v)

    for name in names:
        note(marked, name)
        note(lambda: (x.requires_grad, x.is_leaf))
        note(lambda: (v.requires_grad, v.is_leaf, v.grad_fn is None))
    for total in (before.sum, lambda: (v * w * 2).sum() + (x * 3).sum()):
        note(lambda make: make().requires_grad and make().backward(), total)
        for t in (x, v, w):
            note(lambda t: t.is_leaf and t.grad is not None and t.grad.tolist(), t)
    return found


@pytest.mark.parametrize("mode", [False, True], ids=["fused", "op by op"])
@pytest.mark.parametrize("start", _STARTS)
def test_who_is_given_a_gradient_after_marks_were_changed(start: str, mode: bool) -> None:
    programs = list(itertools.product([*_MARKS, None], repeat=2))
    for number, names in enumerate(random.Random(start).sample(programs, 25)):
        done = [name for name in names if name is not None]
        expected = _marked(torch_module(), start, done, number % 2 == 0)
        with lucid_gpu.fusion.eager(mode):
            assert _marked(lucid_gpu, start, done, number % 2 == 0) == expected, done


_WITH_OTHER: dict[str, Callable[[Any, Any], Any]] = {
    "v * w": lambda v, w: v * w,
    "v / w": lambda v, w: v / w,
    "w / v": lambda v, w: w / v,
    "v ** w": lambda v, w: v**w,
    "v.exp() * w": lambda v, w: v.exp() * w,
    "outer product": lambda v, w: v.reshape(-1, 1) @ w.reshape(1, -1),
}


@pytest.mark.parametrize("mode", [False, True], ids=["fused", "op by op"])
@pytest.mark.parametrize("read", [False, True], ids=["pending", "read"])
@pytest.mark.parametrize("view", ["view", "t", "select", "detach", "split"])
@pytest.mark.parametrize("name", _WITH_OTHER)
def test_beside_a_view_without_history_may_be_written_what_only_its_gradient_reads(
    name: str, view: str, read: bool, mode: bool
) -> None:
    def end(m: Any, base: str, target: str) -> Any:
        x = m.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        b = {"leaf": x, "inner": x * 1, "constant": m.ones(2, 2)}[base]
        with m.no_grad():
            v = VIEWS[view](b)
        w = m.full(tuple(v.shape), 2.0, requires_grad=True)
        other = w * 1
        z = _WITH_OTHER[name](v, other)
        if read:
            other.tolist()
        try:
            (v if target == "view" else other).add_(1)
            z.sum().backward()
        except RuntimeError:
            return "refused"
        return [x.grad is None, np.round(w.grad.numpy(), 4).tolist()]

    with lucid_gpu.fusion.eager(mode):
        for case in itertools.product(("leaf", "inner", "constant"), ("view", "other")):
            assert end(lucid_gpu, *case) == end(torch_module(), *case), case


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("parts", ["split", "unbind", "chunk"])
def test_parts_whose_base_was_written_have_no_gradient(parts: str, recorded: bool) -> None:
    def end(m: Any) -> list[Any]:
        x = m.ones(4, 2, requires_grad=True)
        y = x * 1
        part = VIEWS[parts](y)
        with contextlib.nullcontext() if recorded else m.no_grad():
            y.mul_(2)
        before = part.grad
        part.grad = m.zeros(*part.shape)
        after = part.grad.tolist()
        part.grad = None
        return [before, after, part.grad, part.requires_grad]

    assert end(lucid_gpu) == end(torch_module())

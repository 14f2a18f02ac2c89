"""Forward mode: levels, duals, in-place, views, memory.

Scenarios named ``both`` run on torch and on lucid_gpu; the rest say what holds here.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import profiler
from lucid_gpu.autograd import Function, forward_ad
from lucid_gpu.core.program import WRAPPED, Program, tables
from lucid_gpu.fusion import eager
from tests.oracle import same_error, torch_module

pytestmark = pytest.mark.usefixtures("on_device")

Scenario = Callable[[Any, Any], Any]


def both(scenario: Scenario) -> Scenario:
    """Mark a scenario, ``(module, module.autograd.forward_ad) -> lists and numbers``."""
    BOTH.append(scenario)
    return scenario


BOTH: list[Scenario] = []


def vectors(module: Any) -> tuple[Any, Any]:
    return module.tensor([1.0, 2.0, 3.0]), module.tensor([1.0, -1.0, 0.5])


def parts(ad: Any, tensor: Any) -> list[Any]:
    primal, tangent = ad.unpack_dual(tensor)
    return [primal.tolist(), None if tangent is None else tangent.tolist()]


# --- duals ----------------------------------------------------------------------------------------


@both
def a_dual_gives_back_its_tangent_by_identity(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    with ad.dual_level() as number:
        dual = ad.make_dual(x, t)
        primal, tangent = ad.unpack_dual(dual)
        again = ad.unpack_dual(dual).tangent
        return [number, tangent is t, again is t, primal is x, primal.tolist(), dual._base is x]


@both
def a_tangent_of_another_layout_is_copied(module: Any, ad: Any) -> Any:
    x, t = module.ones(2, 3), module.tensor([[1.0, 2], [3, 4], [5, 6]]).t()
    with ad.dual_level():
        tangent = ad.unpack_dual(ad.make_dual(x, t)).tangent
        return [tangent is t, tangent.is_contiguous(), tangent.tolist()]


@both
def what_is_no_dual_has_no_tangent(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    outside = [parts(ad, x)]
    with ad.dual_level():
        return [*outside, parts(ad, x), parts(ad, ad.make_dual(x, t) > 1)]


@both
def tangents_vanish_on_exit(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    with ad.dual_level():
        dual = ad.make_dual(x, t)
        product = dual * 2
    after = [parts(ad, dual), parts(ad, product), parts(ad, dual * 3)]
    with ad.dual_level():
        return [*after, parts(ad, dual), parts(ad, product), parts(ad, ad.make_dual(dual, t))]


@both
def tangents_are_switched_off(m: Any, ad: Any) -> Any:
    class Twice(m.autograd.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x * 2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:
            return t * 2

    x, t = vectors(m)
    with ad.dual_level():
        dual = ad.make_dual(x, t)
        with ad._set_fwd_grad_enabled(False):
            results = [dual * 2, dual.cumsum(0), dual[1:], Twice.apply(dual)]
            written = ad.make_dual(x + 1, t).mul_(2)
            assert not ad._is_fwd_grad_enabled()
        shift = dual - dual.sin() * 0
        kept = [[ad.unpack_dual(r).tangent is None for r in results], parts(ad, shift)]
        kept.append(parts(ad, written))
    with ad._set_fwd_grad_enabled(False):
        return [*kept, m.func.jvp(lambda x: x * x, (x,), (t,))[1].tolist()]


@both
def a_constant_part_of_a_second_derivative(m: Any, ad: Any) -> Any:
    def function(x: Any) -> Any:
        with ad._set_fwd_grad_enabled(False):
            shift = x**2
        return x**3 - shift

    x, t = vectors(m)
    slope = lambda x: m.func.jvp(function, (x,), (t,))[1]  # noqa: E731
    return [slope(x).tolist(), m.func.jvp(slope, (x,), (t,))[1].tolist()]


@both
def an_exception_closes_the_level(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    try:
        with ad.dual_level():
            dual = ad.make_dual(x, t)
            raise KeyError("user's own")
    except KeyError:
        pass
    after = parts(ad, dual)
    with ad.dual_level():
        return [after, parts(ad, ad.make_dual(dual, t) * 2)]


@both
def a_level_by_hand(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    number = ad.enter_dual_level()
    dual = ad.make_dual(x, t, level=number)
    found = [t_.tolist() for t_ in ad.unpack_dual(dual * dual, level=number)]
    ad.exit_dual_level(level=number)
    return [found, parts(ad, dual)]


@both
def detach_and_data_drop_the_tangent(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    with ad.dual_level():
        dual = ad.make_dual(x, t)
        return [parts(ad, dual.detach()), parts(ad, dual.data), parts(ad, dual.detach() * dual)]


@both
def the_tangent_of_a_copy_is_no_leaf(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    t.requires_grad_()
    found = []
    for value in (x, x * 1):
        with ad.dual_level():
            copy = ad.make_dual(value, t).clone()
            ad.unpack_dual(copy).tangent.mul_(3)
            found.append(ad.unpack_dual(copy).tangent.tolist())
    return found


@both
def detach_in_place_drops_the_tangent(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    with ad.dual_level():
        dual = ad.make_dual(x, t).clone()
        dual.detach_()
        return ad.unpack_dual(dual * 2).tangent is None


@both
def a_tangent_has_as_much_memory_as_its_primal(module: Any, ad: Any) -> Any:
    x = module.arange(5.0)[1:4].detach()
    with ad.dual_level():
        dual = ad.make_dual(x, module.ones(3))
        return parts(ad, dual.as_strided((5,), (1,), 0))


@both
def a_tangent_is_conjugated_in_memory_as_its_primal_is(module: Any, ad: Any) -> Any:
    x = module.ones(2, dtype=module.complex64)
    with ad.dual_level():
        found = [ad.unpack_dual(ad.make_dual(x, t)).tangent for t in (x.conj(), x._neg_view(), x)]
    return [t is x for t in found], [t.tolist() for t in found]


@both
def tangents_flow_where_gradients_do_not(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    with ad.dual_level(), module.no_grad():
        dual = ad.make_dual(x.requires_grad_(), t)
        product = dual.exp() * 2
        return [parts(ad, product), product.requires_grad]


@both
def a_dual_of_a_leaf_keeps_its_gradient(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    x.requires_grad_()
    with ad.dual_level():
        dual = ad.make_dual(x, t)
        out = (dual * dual).sum()
        out.backward()
        return [dual.requires_grad, dual.is_leaf, parts(ad, out), x.grad.tolist()]


@both
def a_tangent_that_requires_grad(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    t.requires_grad_()
    with ad.dual_level():
        dual = ad.make_dual(x, t)
        value, tangent = ad.unpack_dual((dual * dual).sum())
        (slope,) = module.autograd.grad(tangent, t)
        return [value.requires_grad, tangent.requires_grad, slope.tolist()]


@both
def comparisons_and_integers_have_no_tangent(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    with ad.dual_level():
        dual = ad.make_dual(x, t)
        results = (dual > 2, dual.argmax(), dual.isnan(), dual.to(module.int64), dual.max(0)[1])
        return [ad.unpack_dual(r).tangent for r in results]


@both
def a_dual_meets_constants_and_other_types(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    whole = module.tensor([1, 2, 3])
    with ad.dual_level():
        dual = ad.make_dual(x, t)
        results = (dual * whole, 2 - dual, dual.to(module.float64), whole / dual, dual**2)
        return [[*parts(ad, r), str(r.dtype).rpartition(".")[2]] for r in results]


@both
def parts_of_complex_duals(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    with ad.dual_level():
        dual = ad.make_dual(module.complex(x, x * 2), module.complex(t, t * 3))
        found = (dual.real, dual.imag, dual.angle(), dual.abs(), (dual * dual).real)
        joined = module.complex(dual.imag, dual.real)
        return [*[parts(ad, f) for f in found], parts(ad, joined.real), parts(ad, joined.imag)]


@both
def a_dual_shows_its_tangent(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    with ad.dual_level():
        dual = ad.make_dual(x, t)
        texts = [repr(dual), repr(dual * 2), repr(dual > 1)]
        return [" ".join(text.replace(", device='cuda:0'", "").split()) for text in texts]


@both
def decorated_functions_have_a_level(module: Any, ad: Any) -> Any:
    x, t = vectors(module)

    @ad.dual_level()
    def derivative() -> Any:
        return ad.unpack_dual(ad.make_dual(x, t).sin() * 2).tangent

    return [[round(v, 5) for v in derivative().tolist()] for _ in range(2)]


# --- in place -------------------------------------------------------------------------------------


@both
def in_place_writes_the_tangent_in_place(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    with ad.dual_level():
        dual = ad.make_dual(x, t)
        dual.mul_(2)
        same = ad.unpack_dual(dual).tangent is t
        return [same, t.tolist(), x.tolist(), parts(ad, dual), parts(ad, x), x._version]


@both
def writing_a_constant_zeroes_the_tangent(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    with ad.dual_level():
        dual = ad.make_dual(x, t)
        dual.copy_(module.ones(3))
        first = [parts(ad, dual), t.tolist()]
        dual = ad.make_dual(x, module.ones(3))
        dual.zero_()
        second = parts(ad, dual)
        dual = ad.make_dual(x, module.ones(3))
        dual[1] = 5.0
        return [first, second, parts(ad, dual)]


@both
def writing_a_dual_makes_a_dual(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    with ad.dual_level():
        dual = ad.make_dual(x, t)
        other = module.tensor([1.0, 2.0, 4.0])
        other.mul_(dual)
        plain = module.zeros(3)
        plain += dual
        kept = module.zeros(2, 3)
        kept[1] = dual
        return [parts(ad, other), parts(ad, plain), parts(ad, kept)]


@both
def writing_a_view_updates_the_bases_tangent(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    with ad.dual_level():
        dual = ad.make_dual(x, t)
        view = dual[1:]
        view.mul_(10)
        return [parts(ad, dual), parts(ad, view), t.tolist()]


@both
def writing_a_dual_into_a_view_gives_the_base_a_tangent(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    with ad.dual_level():
        dual = ad.make_dual(x, t)
        base = module.zeros(2, 3)
        sibling, view = base.t()[1], base[1]
        view.copy_(dual)
        return [parts(ad, base), parts(ad, view), parts(ad, sibling)]


@both
def writing_the_base_updates_a_views_tangent(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    with ad.dual_level():
        dual = ad.make_dual(x, t)
        view = dual[:2]
        dual.mul_(module.tensor([2.0, 3.0, 4.0]))
        return [parts(ad, view), parts(ad, dual)]


@both
def views_share_their_tangents(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    with ad.dual_level():
        dual = ad.make_dual(x, t)
        views = [dual.reshape(3, 1), dual.unsqueeze(0), dual[0], dual.expand(2, 3)]
        views += [dual.reshape(1, 3).t(), dual.reshape(1, 3).permute(1, 0), dual.view(3)]
        tangents = [ad.unpack_dual(v).tangent for v in views]
        shared = [v._base is t for v in tangents]
        t.mul_(3)
        return [shared, [v.tolist() for v in tangents], [parts(ad, v)[0] for v in views]]


@both
def a_dual_and_its_base_share_a_version_counter(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    with ad.dual_level():
        dual = ad.make_dual(x, t)
        x.add_(1)
        first = dual._version
        dual.add_(1)
        return [first, x._version, dual._version, parts(ad, dual)]


@both
def what_was_made_of_a_dual_keeps_its_tangent_when_that_is_written(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    with ad.dual_level():
        dual = ad.make_dual(x, t)
        total, copy = dual + 1, dual.clone()
        copy.mul_(5)
        dual.mul_(7)
        return [parts(ad, total), parts(ad, copy), parts(ad, dual)]


@both
def results_that_carry_the_same_tangent_are_written_apart(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    with ad.dual_level():
        dual = ad.make_dual(x, t)
        a = dual + 1
        b = a + 1
        b.mul_(2)
        return [parts(ad, a), parts(ad, b), t.tolist()]


# --- with the graph -------------------------------------------------------------------------------


@both
def forward_over_reverse(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    x.requires_grad_()
    with ad.dual_level():
        dual = ad.make_dual(x, t)
        out = (dual**3).sum() * dual[0]
        (slope,) = module.autograd.grad(out, dual)
        return parts(ad, slope)


@both
def forward_over_reverse_by_the_leaf(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    x.requires_grad_()
    with ad.dual_level():
        out = (ad.make_dual(x, t).exp() * module.tensor([1.0, 2.0, 3.0])).sum()
        (slope,) = module.autograd.grad(out, x, create_graph=True)
        value, tangent = ad.unpack_dual(slope)
        return [[round(v, 3) for v in p.tolist()] for p in (value, tangent)]


@both
def forward_over_reverse_by_an_intermediate(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    x.requires_grad_()
    with ad.dual_level():
        inner = ad.make_dual(x, t).exp()
        (slope,) = module.autograd.grad((inner**3).sum(), inner)
        value, tangent = ad.unpack_dual(slope)
        return [[round(v, 2) for v in p.tolist()] for p in (value, tangent)]


@both
def a_dual_that_is_made_a_leaf(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    with ad.dual_level():
        dual = ad.make_dual(x, t)
        dual.requires_grad_()
        (slope,) = module.autograd.grad((dual**3).sum(), dual)
        return [dual.is_leaf, parts(ad, slope)]


@both
def a_dual_cotangent(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    leaf = module.tensor([1.0, 2.0, 3.0], requires_grad=True)
    with ad.dual_level():
        (slope,) = module.autograd.grad(leaf * leaf, leaf, ad.make_dual(x, t))
        return parts(ad, slope)


@both
def reverse_over_forward(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    x.requires_grad_()
    with ad.dual_level():
        dual = ad.make_dual(x, t)
        value, tangent = ad.unpack_dual((dual**3).sum() * dual[0])
        (slope,) = module.autograd.grad(tangent, x)
        return [value.tolist(), tangent.tolist(), slope.tolist()]


@both
def a_second_pass_of_duals_needs_the_graph(module: Any, ad: Any) -> Any:
    x, t = vectors(module)
    x.requires_grad_()
    with ad.dual_level():
        out = (ad.make_dual(x, t) ** 3).sum()
        found = []
        for keep in (True, True, False):
            (slope,) = module.autograd.grad(out, x, retain_graph=keep)
            found.append(parts(ad, slope))
        try:
            module.autograd.grad(out, x)
        except RuntimeError as error:
            found.append("a second time" in str(error))
        return found


@pytest.mark.parametrize("scenario", BOTH, ids=lambda s: s.__name__)
def test_as_torch(scenario: Scenario) -> None:
    torch = torch_module()
    expected = scenario(torch, torch.autograd.forward_ad)
    found = scenario(lucid_gpu, forward_ad)
    assert_equal(found, expected)


def assert_equal(found: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert isinstance(found, list)
        assert len(found) == len(expected), (found, expected)
        for f, e in zip(found, expected, strict=True):
            assert_equal(f, e)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)
    else:
        assert found == expected


# --- refusals -------------------------------------------------------------------------------------


def within_a_level(function: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    def run(module: Any) -> Any:
        ad = module.autograd.forward_ad
        with ad.dual_level():
            return function(module, ad)

    return run


REFUSED = {
    "another shape": (
        lambda m, ad: ad.make_dual(m.ones(3), m.ones(2)),
        ("forward gradient that has a different size", "[3]", "[2]"),
    ),
    "an integer primal": (
        lambda m, ad: ad.make_dual(m.ones(3, dtype=m.int64), m.ones(3)),
        ("Expected primal to be floating point or complex, but got: ", "int64"),
    ),
    "an integer tangent": (
        lambda m, ad: ad.make_dual(m.ones(3), m.ones(3, dtype=m.int64)),
        ("Expected tangent to be floating point or complex, but got: ", "int64"),
    ),
    "a dual of a dual": (
        lambda m, ad: ad.make_dual(ad.make_dual(m.ones(3), m.ones(3)), m.ones(3)),
        ("already has a forward gradient at the same level 0",),
    ),
    "a nested level": (
        lambda m, ad: ad.enter_dual_level(),
        ("Nested forward mode AD is not supported at the moment",),
    ),
    "another level": (
        lambda m, ad: ad.make_dual(m.ones(3), m.ones(3), level=2),
        ("Invalid level given to",),
    ),
    "leaving another level": (
        lambda m, ad: ad.exit_dual_level(level=3),
        ("exit a forward AD level that was not the last one that was created",),
    ),
    "out=": (
        lambda m, ad: m.mul(ad.make_dual(m.ones(3), m.ones(3)), 2, out=m.zeros(3)),
        ("Trying to use forward AD", "mul_out that does not support it because it is an out="),
    ),
    "what has no derivative": (
        lambda m, ad: ad.make_dual(m.ones(3), m.ones(3)).unique(),
        (
            "Trying to use forward AD with",
            "does not support it because it has not been implemented",
        ),
    ),
    "unpacking a number": (
        lambda m, ad: ad.unpack_dual(3),
        ("unpack_dual(): argument", "must be Tensor, not int"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_as_in_torch(case: str) -> None:
    function, words = REFUSED[case]
    same_error(within_a_level(function), *words)
    assert parts(forward_ad, lucid_gpu.ones(2)) == [[1.0, 1.0], None]  # the level is closed


def test_a_dual_outside_of_a_level_is_refused() -> None:
    same_error(
        lambda m: m.autograd.forward_ad.make_dual(m.ones(3), m.ones(3)),
        "Trying to create a dual Tensor for forward AD but no level exists, make sure to "
        "enter_dual_level() first.",
    )


def test_backward_that_records_is_refused_for_duals() -> None:
    x = lucid_gpu.ones(3, requires_grad=True)
    with forward_ad.dual_level():
        out = forward_ad.make_dual(x, lucid_gpu.ones(3)).exp().sum()
        with pytest.raises(RuntimeError, match=r"use autograd\.grad"):
            out.backward(create_graph=True)
        out.backward()
    assert x.grad is not None


# --- fusion, memory, threads ----------------------------------------------------------------------


def test_tangents_fuse_with_everything(device: str) -> None:
    """A chain's tangent is one kernel, and so is the value with its tangent's ops around it."""
    x = lucid_gpu.rand(1000, device=device)
    t = lucid_gpu.rand(1000, device=device)
    with eager(False), forward_ad.dual_level():
        dual = forward_ad.make_dual(x, t)
        y = (dual.sin() * dual + 2).exp()
        tangent = forward_ad.unpack_dual(y).tangent * 3
        with profiler.record() as log:
            tangent.array
        assert len(log.kernels) == 1


def test_ordinary_tensors_keep_the_straight_path_inside_a_level() -> None:
    """A program that a dual took part in remembers nothing; one that none did, all."""
    x = lucid_gpu.ones(3)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, lucid_gpu.ones(3))
        marked = dual._expr.program
        before = set(_following(marked))
        for _ in range(3):
            dual.exp()
            dual * 2
            dual * dual
            x * dual
        twins = {("programs with other marks", (marked, mark)) for mark in (0, 2)}
        assert set(_following(marked)) - before <= twins
        plain = x._expr.program
        assert marked is not plain
        unmarked = ("programs with other marks", "boundaries around programs")
        kept = [v for (what, _), v in _following(plain).items() if what not in unmarked]
        assert kept
        assert not any(program.marks & WRAPPED for program in _programs_of(kept))


def _following(program: Program) -> dict[tuple[str, Any], Any]:
    """What is kept of a program, by table and key."""
    return {
        (what, key): value
        for what, table in tables.items()
        for key, value in table.items()
        if key is program or (isinstance(key, tuple) and key[0] is program)
    }


def _programs_of(kept: Any) -> list[Program]:
    """The programs among what is kept, in tuples too."""
    if isinstance(kept, Program):
        return [kept]
    return [p for k in kept for p in _programs_of(k)] if isinstance(kept, tuple | list) else []


@pytest.mark.parametrize("kept", ("dual", "product", "nothing"))
def test_tangents_are_freed_on_exit(kept: str) -> None:
    x, t = lucid_gpu.ones(3), lucid_gpu.rand(3)
    freed = weakref.ref(t)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, t)
        product = (dual * 2).sum()
        moved = weakref.ref(forward_ad.unpack_dual(product).tangent)
        del t
        assert freed() is not None
        if kept == "nothing":
            del dual, product
    gc.collect()
    assert freed() is None
    assert moved() is None


def test_a_dual_that_nobody_holds_goes_inside_its_level() -> None:
    x = lucid_gpu.ones(3)
    with forward_ad.dual_level():
        total = forward_ad.make_dual(x, lucid_gpu.ones(3))
        seen = []
        for _ in range(5):
            total = total @ lucid_gpu.ones(3, 3)
            seen.append(weakref.ref(total))
        gc.collect()
        assert [r() is None for r in seen] == [True] * 4 + [False]


def test_nothing_is_kept_for_a_graph_that_nobody_wants() -> None:
    x, t = lucid_gpu.rand(3), lucid_gpu.rand(3)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, t)
        value, tangent = forward_ad.unpack_dual((dual @ dual).exp() * dual.prod())
        assert not value.requires_grad
        assert not tangent.requires_grad


def test_writing_a_dual_by_itself() -> None:
    """``x.mul_(x)``: torch 2.13 reads the half-written tangent here."""
    x, t = lucid_gpu.tensor([1.0, 2.0]), lucid_gpu.tensor([1.0, -1.0])
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, t)
        dual.mul_(dual)
        assert parts(forward_ad, dual) == [[1.0, 4.0], [2.0, -4.0]]


def test_a_long_chain_of_duals_neither_recurses_nor_grows() -> None:
    x, t = lucid_gpu.ones(4), lucid_gpu.ones(4)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, t)
        for _ in range(3000):
            dual = dual * 0.999 + 0.001
        value, tangent = forward_ad.unpack_dual(dual)
        assert value.tolist() == pytest.approx([1.0] * 4, rel=1e-4)
        assert tangent.tolist() == pytest.approx([0.999**3000] * 4, rel=1e-3)


def test_eager_mode_gives_the_same() -> None:
    x, t = lucid_gpu.tensor([1.0, 2.0]), lucid_gpu.tensor([1.0, -1.0])
    with eager(), forward_ad.dual_level():
        dual = forward_ad.make_dual(x, t)
        assert parts(forward_ad, dual * dual + 1) == [[2.0, 5.0], [2.0, -4.0]]


def test_threads_share_the_level_but_not_their_duals() -> None:
    results: dict[int, Any] = {}

    def work(number: int) -> None:
        x = lucid_gpu.full((3,), float(number))
        dual = forward_ad.make_dual(x, lucid_gpu.ones(3))
        for _ in range(20):
            product = dual * dual + lucid_gpu.ones(3)
        results[number] = forward_ad.unpack_dual(product).tangent.tolist()

    with forward_ad.dual_level():
        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == {n: [2.0 * n] * 3 for n in range(4)}


# --- custom functions -----------------------------------------------------------------------------


def function_of(module: Any, **methods: Any) -> Any:
    """A Function of a module with these static methods."""
    base = module.autograd.Function
    return type("Custom", (base,), {k: staticmethod(m) for k, m in methods.items()})


def applied(module: Any, cls: Any, *args: Any) -> list[Any]:
    """Unpacked outputs; the string "dual" stands for a dual."""
    ad = module.autograd.forward_ad
    with ad.dual_level():
        x, t = vectors(module)
        dual = ad.make_dual(x, t)
        given = [dual if isinstance(a, str) else a for a in args]
        outputs = cls.apply(*given)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        found = [parts(ad, o) if hasattr(o, "tolist") else o for o in outputs]
        return [*found, parts(ad, dual), t.tolist()]


def _doubled(ctx: Any, x: Any) -> Any:
    return x * 2


def _power(ctx: Any, x: Any, n: int) -> Any:
    ctx.save_for_forward(x)
    ctx.n = n
    return x**n


def _power_jvp(ctx: Any, t: Any, none: Any) -> Any:
    assert none is None  # what is no tensor
    (x,) = ctx.saved_tensors
    return t * ctx.n * x ** (ctx.n - 1)


def _in_place(ctx: Any, x: Any) -> Any:
    x.mul_(2)
    ctx.mark_dirty(x)
    return x


def _in_place_jvp(ctx: Any, t: Any) -> Any:
    return t.mul_(2)


def _several(ctx: Any, x: Any) -> Any:
    whole, constant = (x > 1).to(x.dtype) > 0, x * 3
    ctx.mark_non_differentiable(constant)
    return x * 2, whole, "text", constant


def _unmaterialized(ctx: Any, x: Any, y: Any) -> Any:
    ctx.set_materialize_grads(False)
    return x * y


def _none_for_a_constant(ctx: Any, t: Any, none: Any) -> Any:
    assert none is None
    return t * 3


def _zeros_for_a_constant(ctx: Any, t: Any, zeros: Any) -> Any:
    assert zeros.tolist() == [0.0, 0.0, 0.0]
    return t + zeros


def _separate(x: Any, n: int) -> Any:
    return x * n


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    x, ctx.n = inputs
    ctx.save_for_forward(x, None, output)


def _separate_jvp(ctx: Any, t: Any, none: Any) -> Any:
    x, nothing, output = ctx.saved_tensors
    assert nothing is None
    assert output.tolist() == (x * ctx.n).tolist()
    return t * ctx.n


CUSTOM: dict[str, tuple[dict[str, Any], tuple[Any, ...]]] = {
    "jvp with save_for_forward gets None for what is no tensor": (
        {"forward": _power, "jvp": _power_jvp}, ("dual", 3)),
    "in place": ({"forward": _in_place, "jvp": _in_place_jvp}, ("dual",)),
    "a view": (
        {"forward": lambda ctx, x: x.view_as(x), "jvp": lambda ctx, t: t.view_as(t)}, ("dual",)),
    "a part": ({"forward": lambda ctx, x: x[1:], "jvp": lambda ctx, t: t[1:]}, ("dual",)),
    "an input as it is": (
        {"forward": lambda ctx, x: x, "jvp": lambda ctx, t: t.view_as(t)}, ("dual",)),
    "a jvp that returns what it got": (
        {"forward": lambda ctx, x: x.clone(), "jvp": lambda ctx, t: t}, ("dual",)),
    "several outputs": (
        {"forward": _several, "jvp": lambda ctx, t: (t * 2, None, None, None)}, ("dual",)),
    "zeros for a tensor without tangent": (
        {"forward": lambda ctx, x, y: x * 1, "jvp": _zeros_for_a_constant}, ("dual", "constant")),
    "None for it where not materialized": (
        {"forward": _unmaterialized, "jvp": _none_for_a_constant}, ("dual", "constant")),
    "setup_context": (
        {"forward": _separate, "setup_context": _setup, "jvp": _separate_jvp}, ("dual", 4)),
}  # fmt: skip


@pytest.mark.parametrize("case", CUSTOM)
def test_custom_jvp_as_torch(case: str) -> None:
    torch = torch_module()
    methods, args = CUSTOM[case]
    found = []
    for module in (torch, lucid_gpu):
        given = [module.full((3,), 3.0) if a == "constant" else a for a in args]
        found.append(applied(module, function_of(module, **methods), *given))
    assert_equal(found[1], found[0])


BROKEN: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "no jvp": (
        {"forward": _doubled},
        ("You must implement the jvp function for custom autograd.Function to use it with forward "
         "mode AD.",)),
    "too few": (
        {"forward": lambda ctx, x: (x * 1, x * 2), "jvp": lambda ctx, t: t},
        ("Function's jvp returned an invalid number of forward gradients (expected 2 but got 1)",)),
    "too many": (
        {"forward": _doubled, "jvp": lambda ctx, t: (t, t)},
        ("Function's jvp returned an invalid number of forward gradients (expected 1 but got 2)",)),
    "no tensor": (
        {"forward": _doubled, "jvp": lambda ctx, t: 3},
        ("expected Variable or None (got int) for grad output 0.",)),
    "another shape": (
        {"forward": _doubled, "jvp": lambda ctx, t: t[:2]},
        ("Trying to set a forward gradient that has a different size", "[3]", "[2]")),
    "for an output without gradient": (
        {"forward": _several, "jvp": lambda ctx, t: (t * 2, None, None, t)},
        ("Function's jvp returned a gradient at position 3, but ", "is not a differentiable")),
    "no view": (
        {"forward": lambda ctx, x: x.view_as(x), "jvp": lambda ctx, t: t.clone()},
        ("A custom Function's forward is returning a view (or an input as-is) but the jvp is not "
         "returning a view",)),
    "no view of an input as it is": (
        {"forward": lambda ctx, x: x, "jvp": lambda ctx, t: t},
        ("A custom Function's forward is returning a view (or an input as-is) but the jvp is not "
         "returning a view",)),
    "not in place": (
        {"forward": _in_place, "jvp": lambda ctx, t: t * 2},
        ("An inplace custom Function is not modifying the forward mode gradients inplace. If the "
         "forward is modifying an input inplace, then the jvp function must modify the "
         "corresponding gradient inplace",)),
    "save_for_forward of a number": (
        {"forward": lambda ctx, x: (ctx.save_for_forward(x, 3), x * 1)[1],
         "jvp": lambda ctx, t: t},
        ("save_for_forward expects all arguments to be tensors; you should save non-tensors as "
         "attributes on ctx",)),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_jvp_raises_as_in_torch(case: str) -> None:
    methods, words = BROKEN[case]
    same_error(lambda m: applied(m, function_of(m, **methods), "dual"), *words)
    with forward_ad.dual_level():  # the level was closed
        x, t = vectors(lucid_gpu)
        assert parts(forward_ad, forward_ad.make_dual(x, t))[1] == t.tolist()


class Cube(Function):
    """Differentiable both ways, as often as wanted."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * 3 * x * x

    @staticmethod
    def jvp(ctx: Any, t: Any) -> Any:
        (x,) = ctx.saved_tensors
        return t * 3 * x * x


def test_a_custom_function_forward_over_reverse_and_back(device: str) -> None:
    x = lucid_gpu.tensor([1.0, 2.0], device=device, requires_grad=True)
    t = lucid_gpu.tensor([1.0, -1.0], device=device)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, t)
        out = Cube.apply(dual)
        value, tangent = forward_ad.unpack_dual(out)
        assert tangent.tolist() == [3.0, -12.0]
        (slope,) = lucid_gpu.autograd.grad(out.sum(), x, create_graph=True)
        assert parts(forward_ad, slope) == [[3.0, 12.0], [6.0, -12.0]]
        (second,) = lucid_gpu.autograd.grad(tangent.sum(), x)
        assert second.tolist() == [6.0, -12.0]


def test_save_for_forward_keeps_nothing_where_there_is_no_level() -> None:
    x = lucid_gpu.rand(3).requires_grad_()
    held = lucid_gpu.rand(3)

    class Keeps(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_forward(x, y)
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2, None

    out = Keeps.apply(x, held)
    freed = weakref.ref(held)
    del held
    assert freed() is None
    assert out.grad_fn is not None


def test_a_custom_functions_duals_are_freed() -> None:
    x, t = lucid_gpu.rand(3).requires_grad_(), lucid_gpu.rand(3)
    freed = weakref.ref(t)
    with forward_ad.dual_level():
        out = Cube.apply(forward_ad.make_dual(x, t))
        node = weakref.ref(out.grad_fn)
        del t
    gc.collect()
    assert freed() is None
    out.sum().backward()
    del out
    gc.collect()
    assert node() is None


class Intermediate(Function):
    """Saves for jvp what forward computed on its way."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        square = x * x
        ctx.save_for_forward(square)
        return square * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g

    @staticmethod
    def jvp(ctx: Any, t: Any) -> Any:
        (square,) = ctx.saved_tensors
        return t * 3 * square


def test_an_intermediate_saved_for_jvp_serves_once() -> None:
    """torch gives second derivatives without its part; here they raise and say what to write."""
    x, t = lucid_gpu.tensor([2.0]), lucid_gpu.tensor([1.0])
    with forward_ad.dual_level():
        assert parts(forward_ad, Intermediate.apply(forward_ad.make_dual(x, t))) == [[8.0], [12.0]]
    x.requires_grad_()
    with forward_ad.dual_level():
        _, tangent = forward_ad.unpack_dual(Intermediate.apply(forward_ad.make_dual(x, t)))
        assert tangent.tolist() == [12.0]
        with pytest.raises(RuntimeError, match=r"saved an intermediate for jvp.*compute it in jvp"):
            tangent.sum().backward()
    jvp = lucid_gpu.func.jvp
    with pytest.raises(RuntimeError, match="saved an intermediate for jvp"):
        jvp(lambda a: jvp(Intermediate.apply, (a,), (t,))[1], (x.detach(),), (t,))


def test_a_tangent_that_is_a_dual_is_refused() -> None:
    def twice(m: Any) -> Any:
        forward_ad = m.autograd.forward_ad
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(m.ones(2), m.ones(2))
            forward_ad.make_dual(m.ones(2), dual)

    same_error(twice, "that itself has a forward gradient")


@pytest.mark.parametrize("same", ["", "same base as the "])
def test_the_tangent_of_a_view_is_a_view_of_the_tangent(same: str) -> None:
    def scenario(m: Any) -> Any:
        class Flat(m.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x.view(-1)

            @staticmethod
            def jvp(ctx: Any, t: Any) -> Any:
                return t.clone().view(-1)

        with m.autograd.forward_ad.dual_level():
            dual = m.autograd.forward_ad.make_dual(m.ones(2, 2), m.ones(2, 2))
            Flat.apply(dual.view_as(dual) if same else dual)

    same_error(scenario, f"the jvp is not returning a view of the {same}given grad input")


WRITES: dict[str, Callable[[Any], Any]] = {
    "sin_": lambda x: (x * 2).sin_(),
    "pow_": lambda x: (x + 1).pow_(3),
    "mul_": lambda x: (x * 2).mul_(x),
    "of a part": lambda x: _times_first(x * 1.5),
    "of a part of a copy": lambda x: _times_first(x.clone()),
    "of a copy of an expanded one": lambda x: x.expand(3, 3).clone().mul_(x),
}


def _times_first(x: Any) -> Any:
    x[..., :2].mul_(x[..., :1].clone())
    return x


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "eager"])
def test_gradients_of_duals_that_were_written_in_place(name: str, fused: bool) -> None:
    def along(m: Any) -> Any:
        x = m.tensor([[0.3, 0.6, -0.2]], dtype=m.float64)
        gradient = m.func.grad(lambda x: WRITES[name](x).sum())
        return m.func.jvp(gradient, (x,), (m.ones_like(x),))

    expected = along(torch_module())
    with contextlib.nullcontext() if fused else eager():
        got = along(lucid_gpu)
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(mine.tolist(), theirs.tolist())

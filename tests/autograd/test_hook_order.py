"""Section Hooks of the specification: order, what hooks bind to, what they may answer."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest

import lucid_gpu
from tests.oracle import gives, modules, refuses, torch_module


def leaf(m: Any, device: str, *values: float) -> Any:
    return m.tensor(list(values), device=device, requires_grad=True)


def note(seen: list[Any], name: str, factor: float | None = None) -> Any:
    """A tensor hook that notes what it sees, and may multiply it."""

    def hook(g: Any) -> Any:
        seen.append([name, g.tolist()])
        return None if factor is None else g * factor

    return hook


def note_node(seen: list[Any], name: str, factor: float | None = None) -> Any:
    """A prehook of a node that does so."""

    def hook(gs: Any) -> Any:
        seen.append([name, gs[0].tolist()])
        return None if factor is None else (gs[0] * factor,)

    return hook


# --- order ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("realized", [False, True])
def test_order_tensor_hooks_node_prehooks_node_posthooks(realized: bool, device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        seen: list[Any] = []
        x = leaf(m, device, 1.0, 2.0)
        y = x.clone()
        if realized:
            y.tolist()
        z = y * 3
        y.grad_fn.register_prehook(note_node(seen, "prehook", 10.0))
        y.grad_fn.register_hook(
            lambda results, given: seen.append(["posthook", results[0].tolist(), given[0].tolist()])
        )
        y.register_hook(note(seen, "tensor", 2.0))
        y.retain_grad()
        y.register_hook(note(seen, "tensor again"))
        z.sum().backward()
        return seen, y.grad, x.grad

    seen = [
        ["tensor", [3.0, 3.0]],
        ["tensor again", [6.0, 6.0]],
        ["prehook", [6.0, 6.0]],
        ["posthook", [60.0, 60.0], [60.0, 60.0]],
    ]
    gives([seen, [6.0, 6.0], [60.0, 60.0]], scenario, device)


def test_retain_grad_observes_last_of_the_tensors_hooks(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = leaf(m, device, 1.0)
        y = x * 1.0
        y.retain_grad()
        y.register_hook(lambda g: g * 2)
        y.register_hook(lambda g: g + 1)
        y.sum().backward()
        return y.grad

    gives([3.0], scenario, device)


def test_order_on_a_leaf(device: str) -> None:
    """Tensor hook, accumulate-prehook, post-accumulate hook, accumulate-posthook."""

    def scenario(m: Any, device: str) -> Any:
        seen: list[Any] = []
        x = leaf(m, device, 1.0, 2.0)
        y = x.clone()
        accumulate = y.grad_fn.next_functions[0][0]
        accumulate.register_hook(
            lambda results, given: seen.append(
                ["posthook", list(results), given[0].tolist(), x.grad.tolist()]
            )
        )
        x.register_post_accumulate_grad_hook(lambda t: seen.append(["added", t.grad.tolist()]))
        accumulate.register_prehook(note_node(seen, "prehook", 2.0))
        x.register_hook(note(seen, "tensor", 3.0))
        y.sum().backward()
        return seen

    expected = [
        ["tensor", [1.0, 1.0]],
        ["prehook", [3.0, 3.0]],
        ["added", [6.0, 6.0]],
        ["posthook", [], [6.0, 6.0], [6.0, 6.0]],
    ]
    gives(expected, scenario, device)


def test_an_undefined_gradient_is_shown_as_none(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        class GivesNone(m.autograd.Function):  # type: ignore[misc]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * 2

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return None

        seen: list[Any] = []
        x = leaf(m, device, 1.0)
        h = x.clone()
        h.register_hook(lambda g: seen.append(["tensor", g]))
        h.grad_fn.register_prehook(lambda gs: seen.append(["prehook", list(gs)]))
        h.grad_fn.register_hook(lambda rs, gs: seen.append(["posthook", list(rs), list(gs)]))
        h.retain_grad()
        x.register_hook(lambda g: seen.append(["leaf", g]))
        x.register_post_accumulate_grad_hook(lambda t: seen.append(["added", t.grad]))
        GivesNone.apply(h).sum().backward()
        return seen, h.grad, x.grad

    seen = [
        ["tensor", None],
        ["prehook", [None]],
        ["posthook", [None], [None]],
        ["leaf", None],
        ["added", None],
    ]
    gives([seen, None, None], scenario, device)


# --- what hooks are bound to ----------------------------------------------------------------------


@pytest.mark.parametrize("read", [False, True])
def test_tensor_hooks_bind_to_the_version_at_registration_and_retain_grad_moves(
    read: bool, device: str
) -> None:
    def scenario(m: Any, device: str) -> Any:
        seen: list[Any] = []
        x = leaf(m, device, 1.0, 2.0)
        y = x * 2
        if read:
            y.tolist()
        y.retain_grad()
        y.register_hook(note(seen, "before"))
        y.mul_(3)
        y.register_hook(note(seen, "after"))
        (y * 5).sum().backward()
        return y.grad, x.grad, seen, y.retains_grad

    seen = [["after", [5.0, 5.0]], ["before", [15.0, 15.0]]]
    gives([[5.0, 5.0], [30.0, 30.0], seen, True], scenario, device)


def test_retain_grad_moves_when_a_view_is_written(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = leaf(m, device, 1.0, 2.0)
        y = x * 2
        y.retain_grad()
        y[0:1].mul_(7)
        (y * 5).sum().backward()
        return y.grad, x.grad

    gives([[5.0, 5.0], [70.0, 10.0]], scenario, device)


def test_retain_grad_of_a_view_moves_when_its_base_is_written(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = leaf(m, device, 1.0, 2.0)
        y = x * 2
        v = y[0:1]
        v.retain_grad()
        y.mul_(7)
        (v * 5).sum().backward()
        return v.grad, x.grad

    gives([[5.0], [70.0, 0.0]], scenario, device)


def test_a_hook_of_a_view_stays_behind_when_its_base_is_written(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        seen: list[Any] = []
        x = leaf(m, device, 1.0, 2.0)
        y = x * 2
        v = y[0:1]
        v.register_hook(note(seen, "view"))
        y.mul_(7)
        (v * 5).sum().backward()
        return seen, x.grad

    gives([[], [70.0, 0.0]], scenario, device)


# --- grad() and backward(inputs=) -----------------------------------------------------------------


def test_grad_runs_the_targets_tensor_hooks_not_its_nodes(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        seen: list[Any] = []
        x = leaf(m, device, 1.0, 2.0)
        y = x.clone()
        for node in (y.grad_fn, y.grad_fn.next_functions[0][0]):
            node.register_hook(lambda *_: seen.append("posthook"))
            node.register_prehook(lambda *_: seen.append("prehook"))
        x.register_post_accumulate_grad_hook(lambda t: seen.append("added"))
        y.register_hook(note(seen, "y", 3.0))
        x.register_hook(note(seen, "x", 3.0))
        y.retain_grad()
        by_y = m.autograd.grad(y.sum(), y, retain_graph=True)
        return seen, by_y, y.grad, x.grad

    gives([[["y", [1.0, 1.0]]], [[3.0, 3.0]], [3.0, 3.0], None], scenario, device)


def test_grad_of_a_leaf_runs_its_tensor_hooks_only(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        seen: list[Any] = []
        x = leaf(m, device, 1.0, 2.0)
        y = x.clone()
        accumulate = y.grad_fn.next_functions[0][0]
        accumulate.register_hook(lambda *_: seen.append("posthook"))
        accumulate.register_prehook(lambda *_: seen.append("prehook"))
        x.register_post_accumulate_grad_hook(lambda t: seen.append("added"))
        x.register_hook(note(seen, "x", 3.0))
        return m.autograd.grad(y.sum(), x), seen, x.grad

    gives([[[3.0, 3.0]], [["x", [1.0, 1.0]]], None], scenario, device)


def test_grad_by_an_input_on_the_way_to_another_is_what_its_hooks_have_not_seen(
    device: str,
) -> None:
    def scenario(m: Any, device: str) -> Any:
        seen: list[Any] = []
        x = leaf(m, device, 1.0)
        y = x.clone()
        y.grad_fn.register_hook(lambda *_: seen.append("posthook"))
        y.grad_fn.register_prehook(lambda gs: (seen.append("prehook"), (gs[0] * 2,))[1])
        y.register_hook(note(seen, "y", 3.0))
        y.retain_grad()
        return m.autograd.grad(y.sum(), (y, x)), seen, y.grad

    gives([[[1.0], [6.0]], [["y", [1.0]], "prehook", "posthook"], [3.0]], scenario, device)


def test_backward_with_inputs_runs_all_hooks_of_a_leaf(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        seen: list[Any] = []
        x = leaf(m, device, 1.0, 2.0)
        y = x.clone()
        accumulate = y.grad_fn.next_functions[0][0]
        accumulate.register_hook(lambda *_: seen.append("posthook"))
        x.register_post_accumulate_grad_hook(lambda t: seen.append("added"))
        accumulate.register_prehook(note_node(seen, "prehook", 2.0))
        x.register_hook(note(seen, "x", 3.0))
        (y * 3).sum().backward(inputs=[x, y])
        return seen, x.grad, y.grad, y.retains_grad

    seen = [["x", [3.0, 3.0]], ["prehook", [9.0, 9.0]], "added", "posthook"]
    gives([seen, [18.0, 18.0], [3.0, 3.0], True], scenario, device)


def test_backward_with_a_non_leaf_input_retains_and_adds_its_gradient(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = leaf(m, device, 1.0, 2.0)
        y = x * 2
        y.register_hook(lambda g: g * 3)
        z = (y * y).sum()
        z.backward(inputs=[y], retain_graph=True)
        first = y.grad.tolist()
        z.backward(inputs=y)
        return first, y.grad, x.grad

    gives([[12.0, 24.0], [24.0, 48.0], None], scenario, device)


def test_backward_with_a_non_leaf_input_runs_the_hooks_of_its_node(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        seen: list[Any] = []
        y = leaf(m, device, 1.0).clone()
        y.grad_fn.register_prehook(note_node(seen, "prehook", 2.0))
        y.grad_fn.register_hook(lambda *_: seen.append("posthook"))
        y.register_hook(note(seen, "tensor", 3.0))
        y.sum().backward(inputs=[y])
        return seen, y.grad

    gives([[["tensor", [1.0]], ["prehook", [3.0]], "posthook"], [3.0]], scenario, device)


# --- removing and adding --------------------------------------------------------------------------


def test_removing_a_hook_during_backward_is_safe(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        seen: list[int] = []
        x = leaf(m, device, 1.0)
        handles: list[Any] = []
        handles.append(x.register_hook(lambda g: (seen.append(1), handles[1].remove())[0]))
        handles.append(x.register_hook(lambda g: seen.append(2)))
        for _ in range(2):
            (x * 2).sum().backward()
        return seen

    gives([1, 2, 1], scenario, device)


def test_a_hook_added_during_backward_runs_from_the_next_one_on(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        seen: list[int] = []
        x = leaf(m, device, 1.0)
        x.register_hook(lambda g: (seen.append(1), x.register_hook(lambda g: seen.append(2)))[0])
        (x * 2).sum().backward()
        first = list(seen)
        (x * 2).sum().backward()
        return first, seen

    gives([[1], [1, 1, 2]], scenario, device)


@pytest.mark.parametrize("kind", ["tensor", "prehook", "posthook", "post-accumulate", "multi"])
def test_any_hook_may_remove_itself_during_backward(kind: str, device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        seen: list[str] = []
        x = leaf(m, device, 1.0)
        handle: Any = None

        def hook(*_: Any) -> None:
            seen.append(kind)
            handle.remove()

        y = x * 2
        if kind == "tensor":
            handle = y.register_hook(hook)
        elif kind == "prehook":
            handle = y.grad_fn.register_prehook(hook)
        elif kind == "posthook":
            handle = y.grad_fn.register_hook(hook)
        elif kind == "multi":
            handle = m.autograd.graph.register_multi_grad_hook([x, y], hook)
        else:
            handle = x.register_post_accumulate_grad_hook(hook)
        z = y.sum()
        for _ in range(2):
            z.backward(retain_graph=True)
        return seen

    gives([kind], scenario, device)


# --- what a hook may answer -----------------------------------------------------------------------


def answers(answer: Any) -> Any:
    def scenario(m: Any, device: str) -> Any:
        y = leaf(m, device, 1.0, 2.0) * 2
        y.register_hook(lambda g: answer(m, device))
        y.sum().backward()

    return scenario


def answers_before(answer: Any) -> Any:
    def scenario(m: Any, device: str) -> Any:
        y = leaf(m, device, 1.0, 2.0) * 2
        y.grad_fn.register_prehook(lambda gs: answer(m, device))
        y.sum().backward()

    return scenario


def answers_after(answer: Any) -> Any:
    def scenario(m: Any, device: str) -> Any:
        y = leaf(m, device, 1.0, 2.0).exp()
        y.grad_fn.register_hook(lambda rs, gs: answer(m, device))
        y.sum().backward()

    return scenario


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "a number": (answers(lambda m, d: 3), TypeError, "but hook returned 'int'"),
    "another size": (
        answers(lambda m, d: m.ones(3, device=d)),
        RuntimeError,
        "has changed the size of value",
    ),
    "another type": (
        answers(lambda m, d: m.ones(2, dtype=m.float64, device=d)),
        RuntimeError,
        "has changed the type of value",
    ),
    "prehook: no tuple": (
        answers_before(lambda m, d: m.ones(2, device=d)),
        TypeError,
        "expected tuple, but hook returned 'Tensor'",
    ),
    "prehook: too many": (
        answers_before(lambda m, d: (m.ones(2, device=d),) * 2),
        RuntimeError,
        "has returned an incorrect number of values (got 2, but expected 1)",
    ),
    "prehook: another size": (
        answers_before(lambda m, d: (m.ones(3, device=d),)),
        RuntimeError,
        "has changed the size of value",
    ),
    "prehook: a number": (
        answers_before(lambda m, d: (5,)),
        TypeError,
        "expected Variable, but hook returned 'int'",
    ),
    "posthook: no tuple": (
        answers_after(lambda m, d: 5),
        TypeError,
        "expected tuple, but hook returned 'int'",
    ),
    "posthook: too few": (
        answers_after(lambda m, d: ()),
        RuntimeError,
        "has returned an incorrect number of values (got 0, but expected 1)",
    ),
    "posthook: another size": (
        answers_after(lambda m, d: (m.ones(3, device=d),)),
        RuntimeError,
        "has changed the size of value",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_answers_that_do_not_fit_are_refused(name: str, device: str) -> None:
    scenario, kind, words = REFUSED[name]
    refuses(kind, words, scenario, device)


def test_a_refusal_names_the_hook(device: str) -> None:
    def doubles_the_size(g: Any) -> Any:
        return lucid_gpu.ones(4, device=device)

    y = leaf(lucid_gpu, device, 1.0, 2.0) * 2
    y.register_hook(doubles_the_size)
    with pytest.raises(RuntimeError, match="'doubles_the_size'.*was.*2.*got.*4"):
        y.sum().backward()


def test_a_prehook_may_answer_with_none_for_a_gradient(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = leaf(m, device, 1.0, 2.0)
        y = x * 2
        y.grad_fn.register_prehook(lambda gs: (None,))
        y.sum().backward()
        return x.grad

    gives(None, scenario, device)


def test_a_none_gradient_is_not_replaced(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = leaf(m, device, 1.0)
        h = x * 2
        h.register_hook(lambda g: m.ones(1, device=device))
        y = h.clone()
        y.grad_fn.register_prehook(lambda gs: (None,))
        y.sum().backward()

    refuses(RuntimeError, "can't replace a None gradient with a non-None value", scenario, device)


# --- who may have which hook ----------------------------------------------------------------------


def test_post_accumulate_hooks_are_refused_on_non_leaves(device: str) -> None:
    refuses(
        RuntimeError,
        "post accumulate grad hooks cannot be registered on non-leaf tensors",
        lambda m, d: (leaf(m, d, 1.0) * 2).register_post_accumulate_grad_hook(print),
        device,
    )


@pytest.mark.parametrize("name", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_need_a_tensor_that_requires_grad(name: str, device: str) -> None:
    refuses(
        RuntimeError,
        "cannot register a hook on a tensor that doesn't require gradient",
        lambda m, d: getattr(m.ones(1, device=d), name)(print),
        device,
    )


def test_retain_grad_needs_a_tensor_that_requires_grad(device: str) -> None:
    refuses(
        RuntimeError,
        "can't retain_grad on Tensor that has requires_grad=False",
        lambda m, d: m.ones(1, device=d).retain_grad(),
        device,
    )


def test_post_accumulate_hooks_return_none(device: str) -> None:
    x = leaf(lucid_gpu, device, 1.0)
    x.register_post_accumulate_grad_hook(lambda t: t.grad)
    with pytest.raises(RuntimeError, match="should return None"):
        (x * 2).backward()


def test_post_accumulate_hooks_see_the_leaf_that_only_the_graph_holds(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        seen: list[Any] = []
        x = leaf(m, device, 3.0)
        x.register_post_accumulate_grad_hook(lambda t: seen.append([t.tolist(), t.grad.tolist()]))
        y = x * 2
        del x
        gc.collect()
        y.sum().backward()
        return seen

    gives([[[3.0], [2.0]]], scenario, device)


# --- hooks on several tensors ---------------------------------------------------------------------


def two_products(m: Any, device: str) -> tuple[Any, ...]:
    a, b = leaf(m, device, 1.0, 2.0), leaf(m, device, 3.0, 4.0)
    return a, b, a * b, a * b


def test_a_multi_grad_hook_waits_for_all_that_the_pass_comes_to(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        a, b, c, d = two_products(m, device)
        seen: list[Any] = []
        handle = m.autograd.graph.register_multi_grad_hook(
            (a, b, c, d), lambda gs: seen.append([None if g is None else g.tolist() for g in gs])
        )
        c.sum().backward(retain_graph=True)
        c.sum().backward(inputs=(a,), retain_graph=True)
        (c + 2 * d).sum().backward(retain_graph=True)
        handle.remove()
        c.sum().backward()
        return seen

    expected = [
        [[3.0, 4.0], [1.0, 2.0], [1.0, 1.0], None],
        [[3.0, 4.0], None, [1.0, 1.0], None],
        [[9.0, 12.0], [3.0, 6.0], [1.0, 1.0], [2.0, 2.0]],
    ]
    gives(expected, scenario, device)


def test_a_multi_grad_hook_works_with_grad_by_leaves(device: str) -> None:
    """PyTorch refuses this."""
    a, _, c, d = two_products(lucid_gpu, device)
    seen: list[Any] = []
    lucid_gpu.autograd.graph.register_multi_grad_hook(
        (a, c, d), lambda gs: seen.append([g is not None for g in gs])
    )
    lucid_gpu.autograd.grad(c.sum(), [a, c])
    assert seen == [[True, True, False]]


def test_a_multi_grad_hook_of_any_gets_the_first_gradient_of_each_pass(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        a, b, c, d = two_products(m, device)
        seen: list[Any] = []
        m.autograd.graph.register_multi_grad_hook(
            (a, b, c, d), lambda g: seen.append(g.tolist()), mode="any"
        )
        (2 * c).sum().backward(retain_graph=True)
        (3 * c).sum().backward(inputs=(a,), retain_graph=True)
        m.autograd.grad((4 * c).sum(), [a, c])
        return seen

    gives([[2.0, 2.0], [3.0, 3.0], [4.0, 4.0]], scenario, device)


@pytest.mark.parametrize("mode", ["all", "any"])
def test_a_multi_grad_hook_keeps_state_per_thread(mode: str, device: str) -> None:
    """Passes that run at the same time do not take each other's gradients."""
    for m, where in modules(device):
        a, b = leaf(m, where, 1.0), leaf(m, where, 2.0)
        inside = threading.Barrier(2, timeout=200)
        seen: list[Any] = []

        class Meet(m.autograd.Function):  # type: ignore[misc,name-defined]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x.clone()

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                inside.wait()  # noqa: B023
                return g

        def note_all(gs: Any, seen: Any = seen) -> None:
            seen.append([g.item() for g in gs] if mode == "all" else gs.item())

        m.autograd.graph.register_multi_grad_hook((a, b), note_all, mode=mode)
        outputs = [(Meet.apply(a * k) * b).sum() for k in (10.0, 100.0)]
        threads = [threading.Thread(target=y.backward) for y in outputs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(seen) == 2
        if mode == "all":
            assert sorted(seen) == [[20.0, 10.0], [200.0, 100.0]]


def test_a_pass_that_failed_leaves_no_state_to_a_multi_grad_hook(device: str) -> None:
    a = leaf(lucid_gpu, device, 1.0)
    c = a * 2
    seen: list[Any] = []
    lucid_gpu.autograd.graph.register_multi_grad_hook(
        [a, c], lambda gs: seen.append([g.item() for g in gs])
    )
    handle = c.register_hook(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        (c * 3).sum().backward(retain_graph=True)
    handle.remove()
    (c * 3).sum().backward()
    assert seen == [[6.0, 3.0]]


def test_multi_grad_hooks_know_two_modes() -> None:
    refuses(
        ValueError,
        "Expects mode to be one of ('all', 'any') but got some",
        lambda m, d: m.autograd.graph.register_multi_grad_hook([], print, mode="some"),
    )


# --- memory ---------------------------------------------------------------------------------------


def with_a_hook_on_itself(kind: str, device: str) -> list[Any]:
    """Weak references to what a hook that closes over its tensor holds, after a backward."""
    x = leaf(lucid_gpu, device, 1.0)
    y = x * 2

    def hook(*_: Any) -> None:
        assert y is not None and x is not None

    if kind == "tensor":
        y.register_hook(hook)
    elif kind == "posthook":
        y.grad_fn.register_hook(hook)
    elif kind == "prehook":
        y.grad_fn.register_prehook(hook)
    elif kind == "multi":
        lucid_gpu.autograd.graph.register_multi_grad_hook([x, y], hook)
    else:
        x.register_post_accumulate_grad_hook(hook)
    y.sum().backward()
    return [weakref.ref(y), weakref.ref(x), weakref.ref(y.grad_fn)]


@pytest.mark.parametrize("kind", ["tensor", "posthook", "prehook", "post-accumulate", "multi"])
def test_a_hook_closing_over_its_own_tensor_is_collected(kind: str, device: str) -> None:
    """PyTorch leaks here."""
    died = with_a_hook_on_itself(kind, device)
    gc.collect()
    assert [r() for r in died] == [None, None, None]


# --- hooks of nodes inside a fused expression -----------------------------------------------------


def test_a_prehook_of_a_node_inside_an_expression_runs(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        seen: list[Any] = []
        x = leaf(m, device, 1.0, 2.0)
        y = x * 2
        y.grad_fn.register_prehook(note_node(seen, "prehook", 10.0))
        (y * 3).sum().backward()
        return seen, x.grad

    gives([[["prehook", [3.0, 3.0]]], [60.0, 60.0]], scenario, device)


def test_a_posthook_sees_the_gradients_of_its_own_ops_operands(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        seen: list[Any] = []
        x = leaf(m, device, 1.0, 2.0)
        z = (x * 2).exp() * 3
        z.grad_fn.register_hook(lambda rs, gs: seen.append([rs[0].tolist(), gs[0].tolist()]))
        (z * 5).sum().backward()
        return seen

    gives([[[15.0, 15.0], [5.0, 5.0]]], scenario, device)


def test_a_node_found_by_walking_the_graph_takes_hooks(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        seen: list[Any] = []
        x = leaf(m, device, 1.0, 2.0)
        z = (x * 2 + 1) * 3
        node, names = z.grad_fn, []
        while node.next_functions:
            names.append(node.name())
            node.register_prehook(note_node(seen, node.name()))
            node = node.next_functions[0][0]
        z.sum().backward()
        return names, seen

    names = ["MulBackward0", "AddBackward0", "MulBackward0"]
    seen = [[names[0], [1.0, 1.0]], [names[1], [3.0, 3.0]], [names[2], [3.0, 3.0]]]
    gives([names, seen], scenario, device)


NEXT: dict[str, Any] = {
    "number": lambda m, x, c: x * 2,
    "number first": lambda m, x, c: 2 * x,
    "rsub": lambda m, x, c: 1 - x,
    "power": lambda m, x, c: x**2,
    "constant": lambda m, x, c: x * c,
    "constant first": lambda m, x, c: c * x,
    "twice": lambda m, x, c: x * x,
    "nested": lambda m, x, c: (x * 2) * (x + 1).tanh(),
    "where": lambda m, x, c: m.where(x > 0, x, c),
    "after a sum": lambda m, x, c: x.exp().sum(),
}


@pytest.mark.parametrize("name", NEXT)
def test_next_functions_are_those_of_the_op(name: str, device: str) -> None:
    def functions(m: Any, device: str) -> Any:
        z = NEXT[name](m, leaf(m, device, 1.0, 2.0), m.ones(2, device=device))
        return z.grad_fn.name(), [
            None if node is None else [type(node).__name__, number]
            for node, number in z.grad_fn.next_functions
        ]

    for m, where in modules(device):
        gives(functions(m, where), functions, device)


# --- leaves that stop being asked for a gradient, and are asked again -----------------------------


def test_a_leaf_marked_again_keeps_its_gradient_and_hooks(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        seen: list[str] = []
        x = leaf(m, device, 1.0)
        x.register_hook(lambda g: seen.append("tensor"))
        x.register_post_accumulate_grad_hook(lambda t: seen.append("added"))
        (x * 2).sum().backward()
        early = x * 3
        x.requires_grad_(False)
        between = x.grad.tolist()
        x.requires_grad_(True)
        early.sum().backward()
        return seen, between, x.grad

    gives([["tensor", "added"] * 2, [2.0], [5.0]], scenario, device)


def test_a_gradient_assigned_before_marking_is_added_to(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = m.zeros(1, device=device)
        x.grad = m.ones(1, device=device)
        x.requires_grad_()
        (x * 2).sum().backward()
        return x.grad

    gives([3.0], scenario, device)


def test_detaching_a_leaf_in_place_keeps_its_gradient(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = leaf(m, device, 1.0)
        (x * 2).sum().backward()
        x.detach_()
        return x.grad, x.requires_grad

    gives([[2.0], False], scenario, device)


def test_leaves_that_are_reached_together_come_in_the_order_of_the_operands(device: str) -> None:
    for _ in range(30):  # not by addresses, which change from pass to pass
        seen: list[Any] = []
        a, b = (lucid_gpu.ones(1, 1, device=device, requires_grad=True) for _ in range(2))
        a.register_hook(note(seen, "a"))
        b.register_hook(note(seen, "b"))
        (a @ b).backward()
        assert [name for name, *_ in seen] == ["a", "b"]


VIEW_WRITES = {
    "multiplied": lambda m, v: v.mul_(3),
    "recomputed": lambda m, v: v.sigmoid_(),
    "zeroed": lambda m, v: v.zero_(),
    "copied": lambda m, v: v.copy_(v.detach().clone().requires_grad_()),
}


@pytest.mark.parametrize("write", VIEW_WRITES)
@pytest.mark.parametrize("deep", [False, True])
def test_hooks_of_a_view_do_not_see_its_own_write(device: str, write: str, deep: bool) -> None:
    """They stay with what was computed from the view before."""

    def scenario(m: Any, device: str) -> Any:
        seen: list[Any] = []
        base = leaf(m, device, 1.0, 2.0, 3.0) * 2
        first = base[:2]
        view = first[1:] if deep else first
        used = first * 3
        first.register_hook(note(seen, "before"))
        VIEW_WRITES[write](m, view)
        view.register_hook(note(seen, "after"))
        view.sum().backward(retain_graph=True)
        used.sum().backward()
        return seen

    after = [1.0] if deep else [1.0, 1.0]
    gives([["after", after], ["before", [3.0, 3.0]]], scenario, device)


RESULTS: dict[str, Any] = {
    "div": lambda m, x: x / (x * x + 1),
    "reciprocal": lambda m, x: 1 / (x * x + 1),
    "erfinv": lambda m, x: (x * 0.3).erfinv(),
    "exp": lambda m, x: (x * x).exp(),
    "pow": lambda m, x: (x * x + 1) ** (x * 1),
    "softmax": lambda m, x: (x * 1).softmax(0),
    "logsumexp": lambda m, x: x.logsumexp(0),
    "logsumexp, kept": lambda m, x: x.logsumexp(0, keepdim=True),
    "prod": lambda m, x: x.prod(),
    "prod along a dimension": lambda m, x: x.prod(0, keepdim=True),
    "prod with a zero": lambda m, x: (x * m.tensor([1.0, 0, 1])).prod(0),
    "cumprod": lambda m, x: x.cumprod(0),
    "cumprod with a zero": lambda m, x: (x * m.tensor([1.0, 0, 1])).cumprod(0),
    "norm": lambda m, x: x.norm(),
    "norm of order 1.5": lambda m, x: x.norm(1.5, dim=0),
    "norm of order 3": lambda m, x: x.norm(3),
    "std": lambda m, x: x.std(),
    "matrix_power": lambda m, x: m.matrix_power(m.diag(x), -1).sum(1),
    "polar": lambda m, x: m.polar(x * x + 1, x),
    "lu, L": lambda m, x: m.linalg.lu(m.outer(x, x) + m.diag(x + 2))[1],
    "lu, U": lambda m, x: m.linalg.lu(m.outer(x, x) + m.diag(x + 2))[2],
    "solve": lambda m, x: m.linalg.solve(m.outer(x, x) + m.diag(x + 2), x),
    "solve_ex": lambda m, x: m.linalg.solve_ex(m.outer(x, x) + m.diag(x + 2), x)[0],
}


@pytest.mark.parametrize("realized", [False, True])
@pytest.mark.parametrize("name", RESULTS)
def test_second_derivatives_come_by_a_result_where_its_op_saved_it(
    name: str, realized: bool
) -> None:
    def run(m: Any) -> list[Any]:
        x = m.tensor([0.3, -0.7, 0.9], dtype=m.float64, requires_grad=True)
        result = RESULTS[name](m, x)
        if realized:
            result.tolist()
        result.register_hook(lambda g: g * 2)
        weights = m.arange(1.0, 10.0, dtype=m.float64).to(result.dtype)[: result.numel()]
        (g,) = m.autograd.grad(result, x, weights.reshape(result.shape), create_graph=True)
        return [g.tolist(), m.autograd.grad((g * g).sum(), x)[0].tolist()]

    for got, expected in zip(run(lucid_gpu), run(torch_module()), strict=True):
        assert got == pytest.approx(expected, rel=1e-9)


OPERANDS: dict[str, Any] = {
    "a product that is added": lambda m, a, b, c: a * b + b * c + a,
    "two products": lambda m, a, b, c: a * b + b.sin() * c,
    "the left first": lambda m, a, b, c: (a + b) * c - a,
    "the right first": lambda m, a, b, c: (c * b).sin() * a,
    "three operands": lambda m, a, b, c: m.addcmul(c, a, b),
    "broadcast": lambda m, a, b, c: a[:1] * (b - c),
    "where": lambda m, a, b, c: m.where(a.detach() > 0, b, c) * a,
}


@pytest.mark.parametrize("eagerly", [False, True])
@pytest.mark.parametrize("name", OPERANDS)
def test_hooks_of_leaves_are_called_in_the_order_of_their_ops(name: str, eagerly: bool) -> None:
    def run(m: Any) -> list[str]:
        seen: list[str] = []
        leaves = [m.tensor([1.0, 2.0], requires_grad=True) for _ in "abc"]
        for letter, x in zip("abc", leaves, strict=True):
            x.register_hook(lambda g, letter=letter: seen.append(letter))
        OPERANDS[name](m, *leaves).sum().backward()
        return seen

    with lucid_gpu.fusion.eager(eagerly):
        assert run(lucid_gpu) == run(torch_module())

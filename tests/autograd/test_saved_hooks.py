"""Saved-tensor hooks: who is asked, how often, with what; and that ops save only what they need."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd.graph import (
    allow_mutation_on_saved_tensors,
    save_on_cpu,
    saved_tensors_hooks,
)
from lucid_gpu.fusion import eager
from lucid_gpu.nn import functional as F
from tests.oracle import same_error, torch_module

X, Z = [0.3, 0.5, 0.7], [0.2, 0.6, 0.9]


def same(value: Any) -> Any:
    return value


def on_both(scenario: Callable[[Any], Any]) -> None:
    """What a scenario notes must be the same with both modules."""
    assert_close(scenario(lucid_gpu), scenario(torch_module()))


def assert_close(mine: Any, theirs: Any) -> None:
    if isinstance(theirs, (list, tuple)):
        assert len(mine) == len(theirs), (mine, theirs)
        for a, b in zip(mine, theirs, strict=True):
            assert_close(a, b)
    elif isinstance(theirs, float):
        assert mine == pytest.approx(theirs, rel=1e-5, abs=1e-6)
    else:
        assert mine == theirs


# --- what each op saves ---------------------------------------------------------------------------

OPS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "mul by a constant": lambda m, x, z: x * 2,
    "mul by one that needs no gradient": lambda m, x, z: x * z,
    "mul by itself": lambda m, x, z: x * x,
    "mul by a part of itself": lambda m, x, z: x * x[0],
    "mul with conversion": lambda m, x, z: x * m.tensor([1, 2, 3]),
    "mul by a mask": lambda m, x, z: x * (z > 0.5),
    "mul by a 0-d tensor": lambda m, x, z: x * m.tensor(2.0),
    "broadcast": lambda m, x, z: x.view(3, 1) * z,
    "broadcast the other way": lambda m, x, z: z.view(3, 1) * x,
    "div by a number": lambda m, x, z: x / 2,
    "div": lambda m, x, z: x / z,
    "div of another": lambda m, x, z: z / x,
    "add": lambda m, x, z: x + z,
    "sub": lambda m, x, z: 1 - x,
    "neg": lambda m, x, z: -x,
    "square": lambda m, x, z: x.square(),
    "pow of a number": lambda m, x, z: x**2,
    "pow": lambda m, x, z: x**z,
    "number to the power": lambda m, x, z: 2**x,
    "x to the x": lambda m, x, z: x**x,
    "exp": lambda m, x, z: x.exp(),
    "sigmoid": lambda m, x, z: x.sigmoid(),
    "tanh": lambda m, x, z: x.tanh(),
    "relu": lambda m, x, z: x.relu(),
    "rsqrt": lambda m, x, z: x.rsqrt(),
    "reciprocal": lambda m, x, z: x.reciprocal(),
    "log2": lambda m, x, z: x.log2(),
    "erf": lambda m, x, z: x.erf(),
    "abs": lambda m, x, z: x.abs(),
    "sign": lambda m, x, z: x.sign(),
    "where": lambda m, x, z: m.where(z > 0.5, x, z),
    "clamp": lambda m, x, z: x.clamp(min=0.4),
    "maximum": lambda m, x, z: m.maximum(x, z),
    "atan2": lambda m, x, z: m.atan2(x, z),
    "hypot": lambda m, x, z: m.hypot(x, z),
    "logaddexp": lambda m, x, z: m.logaddexp(x, z),
    "remainder": lambda m, x, z: x % z,
    "sum": lambda m, x, z: x.sum(),
    "mean": lambda m, x, z: x.mean(),
    "cat": lambda m, x, z: m.cat([x, z]),
    "clone": lambda m, x, z: x.clone(),
    "expand": lambda m, x, z: x.expand(2, 3),
    "to another type": lambda m, x, z: x.double(),
    "masked_fill": lambda m, x, z: x.masked_fill(z > 0.5, 0.0),
    "matmul": lambda m, x, z: x.view(1, 3) @ z.view(3, 1),
    "in place": lambda m, x, z: (x * 2).add_(z).mul_(z),
    "in place, both": lambda m, x, z: (x * 2).mul_(x),
    "in place, through a view": lambda m, x, z: _written(x),
    "in place, the operand": lambda m, x, z: (x * 2).sin_().clamp_(min=0.5),
    "in place, the result": lambda m, x, z: (x * 2).exp_(),
    "a chain": lambda m, x, z: ((x * z).exp() * x + 1).tanh() / z,
}


def _written(x: Any) -> Any:
    y = x * 2
    part = y[1:]
    y.mul_(x)
    return part * 3


@pytest.mark.parametrize("name", OPS)
def test_pack_sees_what_pytorchs_op_saves(name: str) -> None:
    def scenario(module: Any) -> Any:
        seen: list[Any] = []

        def pack(tensor: Any) -> Any:
            seen.append([tensor.detach().tolist(), tensor.requires_grad])
            return tensor.detach()

        x, z = module.tensor(X, requires_grad=True), module.tensor(Z)
        with module.autograd.graph.saved_tensors_hooks(pack, same):
            y = OPS[name](module, x, z)
        y.sum().backward()
        return seen, x.grad.tolist()

    on_both(scenario)


@pytest.mark.parametrize("name", OPS)
def test_backward_uses_what_unpack_returns(name: str, device: str) -> None:
    """Twice as much was packed, half of it is unpacked; an order higher too."""
    x = lucid_gpu.tensor(X, device=device, requires_grad=True)
    z = lucid_gpu.tensor(Z, device=device)
    op = OPS[name]
    if "0-d" in name or "conversion" in name:
        op = lambda m, x, z: x * z  # noqa: E731  (these make tensors on the CPU)
    expected = lucid_gpu.autograd.grad(op(lucid_gpu, x, z).sum(), x)[0]

    def pack(t: Any) -> Any:
        return (t, None) if t.dtype is lucid_gpu.bool else (t.detach().cpu().numpy().copy(), t)

    def unpack(packed: Any) -> Any:
        array, tensor = packed
        return array if tensor is None else lucid_gpu.tensor(array, device=device)

    with saved_tensors_hooks(pack, unpack):
        y = op(lucid_gpu, x, z)
    (g,) = lucid_gpu.autograd.grad(y.sum(), x, create_graph=True)
    np.testing.assert_allclose(g.tolist(), expected.tolist(), rtol=1e-5)


# --- whom ops ask ---------------------------------------------------------------------------------


def test_the_innermost_pair_wins() -> None:
    def scenario(module: Any) -> Any:
        hooks = module.autograd.graph.saved_tensors_hooks
        log: list[str] = []

        def pair(name: str) -> Any:
            def pack(t: Any) -> Any:
                log.append(f"pack {name}")
                return t

            def unpack(t: Any) -> Any:
                log.append(f"unpack {name}")
                return t

            return hooks(pack, unpack)

        x = module.tensor(X, requires_grad=True)
        with pair("outer"):
            a = x * x
            with pair("inner"):
                b = a.exp()
            c = b.sin()
        c.cos().sum().backward()
        return log, x.grad.tolist()

    on_both(scenario)


def test_hooks_are_asked_once_for_each_saved_tensor_and_each_unpacking() -> None:
    def scenario(module: Any) -> Any:
        count = {"pack": 0, "unpack": 0}

        def pack(t: Any) -> Any:
            count["pack"] += 1
            return t

        def unpack(t: Any) -> Any:
            count["unpack"] += 1
            return t

        x = module.tensor(X, requires_grad=True)
        with module.autograd.graph.saved_tensors_hooks(pack, unpack):
            y = (x * x).exp().sum()
        notes = [dict(count)]
        y.backward(retain_graph=True)
        notes.append(dict(count))
        y.backward(retain_graph=True)
        notes.append(dict(count))
        (g,) = module.autograd.grad(y, x, create_graph=True)
        notes.append(dict(count))
        g.sum().backward()
        return [list(n.items()) for n in notes], x.grad.tolist()

    on_both(scenario)


def test_saved_tensors_of_functions_are_packed_too() -> None:
    def scenario(module: Any) -> Any:
        log: list[Any] = []

        class Product(module.autograd.Function):  # type: ignore[name-defined,misc]
            @staticmethod
            def forward(ctx: Any, a: Any, b: Any) -> Any:
                y = a * b
                ctx.save_for_backward(a, None, b, y)
                return y

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                a, nothing, b, y = ctx.saved_tensors
                log.append((nothing, b.requires_grad, y.grad_fn is ctx))
                return g * b, g * a

        def pack(t: Any) -> Any:
            log.append(("pack", t.detach().tolist(), t.requires_grad))
            return t.detach()

        def unpack(t: Any) -> Any:
            log.append("unpack")
            return t

        x, z = module.tensor(X, requires_grad=True), module.tensor(Z)
        with module.autograd.graph.saved_tensors_hooks(pack, unpack):
            y = Product.apply(x, z)
        y.sum().backward()
        return log, x.grad.tolist()

    on_both(scenario)


def test_an_input_is_packed_as_the_very_object() -> None:
    x = lucid_gpu.tensor(X, requires_grad=True)
    z = x * 2
    seen: list[Any] = []
    with saved_tensors_hooks(seen.append, lambda _: x):
        z * x
    assert [t is x or t is z for t in seen] == [True, True]


def test_pack_runs_unrecorded_and_unpack_with_history() -> None:
    def scenario(module: Any) -> Any:
        modes: list[bool] = []

        def pack(t: Any) -> Any:
            modes.append(module.is_grad_enabled())
            return t

        def unpack(t: Any) -> Any:
            return t * 1

        x = module.tensor(X, requires_grad=True)
        with module.autograd.graph.saved_tensors_hooks(pack, unpack):
            y = (x * 2).square()
        saved = y.grad_fn._saved_self
        (g,) = module.autograd.grad(y.sum(), x, create_graph=True)
        g.square().sum().backward()
        return modes, saved.grad_fn.name(), x.grad.tolist()

    on_both(scenario)


def test_nodes_of_a_recorded_backward_pass_are_watched() -> None:
    def scenario(module: Any) -> Any:
        count = [0]

        def pack(t: Any) -> Any:
            count[0] += 1
            return t

        x = module.tensor(X, requires_grad=True)
        with module.autograd.graph.saved_tensors_hooks(pack, same):
            y = x.exp()
            before = count[0]
            (g,) = module.autograd.grad(y.sum(), x, create_graph=True)
        assert count[0] > before
        (h,) = module.autograd.grad(g.sum(), x)
        return h.tolist()

    on_both(scenario)


def test_a_region_recorded_before_the_hooks_goes_backward_under_them() -> None:
    def scenario(module: Any) -> Any:
        count = [0]

        def pack(t: Any) -> Any:
            count[0] += 1
            return t

        x = module.tensor(X, requires_grad=True)
        z = module.tensor(Z, requires_grad=True)
        y = ((x * z).exp() * z + x.view(3, 1).tanh() ** 2).sum()
        with module.autograd.graph.saved_tensors_hooks(pack, same):
            g, h = module.autograd.grad(y, (x, z), create_graph=True)
        assert count[0] > 5
        second = module.autograd.grad((g * h).sum(), (x, z))
        return [t.tolist() for t in (g, h, *second)]

    on_both(scenario)


def test_hooks_are_per_thread() -> None:
    import threading

    seen: list[Any] = []
    x = lucid_gpu.tensor(X, requires_grad=True)
    done: list[Any] = []

    def work() -> None:
        done.append(x.exp().sum().item())

    with saved_tensors_hooks(seen.append, same):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert seen == [] and len(done) == 1


@pytest.fixture
def lazy() -> Iterator[None]:
    with eager(False):
        yield


def test_without_hooks_nothing_is_watched(lazy: None) -> None:
    x = lucid_gpu.tensor(X, requires_grad=True)
    with saved_tensors_hooks(same, same):
        watched = (x * 2).exp()
    assert type(watched.grad_fn).__mro__[1].__name__ == "OpNode"
    after = (x * 2).exp()
    assert type(after.grad_fn).__mro__[1].__name__ == "RegionNode"
    with lucid_gpu.profiler.record() as log:
        after.sum().backward()
        x.grad.tolist()
    assert len(log.kernels) == 1  # nobody reads the sum


def test_values_and_gradients_still_fuse_under_hooks(lazy: None) -> None:
    x = lucid_gpu.rand(100, requires_grad=True)
    with saved_tensors_hooks(same, same):
        with lucid_gpu.profiler.record() as log:
            y = ((x * 2).exp() + 1).tanh().sum()
            y.array
    assert len(log.kernels) == 1
    with lucid_gpu.profiler.record() as log:
        y.backward()
        x.grad.tolist()
    assert len(log.kernels) == 1


def test_modes_inside_hooks() -> None:
    def scenario(module: Any) -> Any:
        count = [0]

        def pack(t: Any) -> Any:
            count[0] += 1
            return t

        x = module.tensor(X, requires_grad=True)
        notes = []
        with module.no_grad():
            with module.autograd.graph.saved_tensors_hooks(pack, same):
                notes.append((module.is_grad_enabled(), (x * x).requires_grad, count[0]))
                with module.enable_grad():
                    notes.append((module.is_grad_enabled(), (x * x).requires_grad, count[0]))
                notes.append((module.is_grad_enabled(), (x * x).requires_grad, count[0]))
            notes.append((module.is_grad_enabled(), (x * x).requires_grad, count[0]))
        notes.append((module.is_grad_enabled(), (x * x).requires_grad, count[0]))
        return notes

    on_both(scenario)


# --- what hooks may do ----------------------------------------------------------------------------


def test_pack_must_not_write_in_place() -> None:
    def writes(module: Any) -> None:
        x = module.tensor(X, requires_grad=True)
        with module.autograd.graph.saved_tensors_hooks(lambda t: t.mul_(2), same):
            x * module.tensor(Z)

    same_error(writes, "A saved tensor pack hook is modifying its input in place")


def test_unpack_must_return_a_tensor() -> None:
    def wrong(module: Any) -> None:
        x = module.tensor(X, requires_grad=True)
        with module.autograd.graph.saved_tensors_hooks(same, lambda t: 3):
            y = x.exp()
        y.sum().backward()

    same_error(
        wrong, "Output of saved tensor unpack_hook expected to be a Tensor but got result of type"
    )


class OwnError(Exception):
    pass


@pytest.mark.parametrize("which", ["pack", "unpack"])
def test_a_hooks_own_error_arrives_unchanged(which: str) -> None:
    def fails(_: Any) -> Any:
        raise OwnError("mine")

    x = lucid_gpu.tensor(X, requires_grad=True)
    pair = (fails, same) if which == "pack" else (same, fails)
    with pytest.raises(OwnError, match="^mine$"):
        with saved_tensors_hooks(*pair):
            y = x.exp()
        y.sum().backward()
    assert lucid_gpu.is_grad_enabled()
    with saved_tensors_hooks(same, same):
        x.exp().sum().backward()
    assert x.grad is not None


def test_hooks_must_be_functions() -> None:
    def enters(module: Any) -> None:
        with module.autograd.graph.saved_tensors_hooks(1, 2):
            pass

    same_error(enters)


# --- disable, save_on_cpu, allow_mutation ---------------------------------------------------------


def test_disabled_hooks_raise_the_given_message() -> None:
    def scenario(module: Any) -> Any:
        graph = module.autograd.graph
        log = []

        def attempt(*contexts: Any) -> None:
            import contextlib

            try:
                with contextlib.ExitStack() as stack:
                    for make in contexts:
                        stack.enter_context(make())
                log.append("entered")
            except RuntimeError as error:
                log.append(str(error))

        def hooks() -> Any:
            return graph.saved_tensors_hooks(same, same)

        def disabled() -> Any:
            return graph.disable_saved_tensors_hooks("not here")

        def other() -> Any:
            return graph.disable_saved_tensors_hooks("nor here")

        attempt(disabled, hooks)
        attempt(hooks, disabled)
        attempt(disabled, other, hooks)
        attempt(disabled, graph.save_on_cpu)
        attempt(disabled, graph.allow_mutation_on_saved_tensors)
        attempt(disabled)
        attempt(hooks)
        with disabled():
            with other():
                pass
            attempt(hooks)
        return log

    on_both(scenario)


@pytest.mark.parametrize("pin", [False, True])
def test_save_on_cpu(pin: bool, device: str) -> None:
    x = lucid_gpu.rand(5, device=device, requires_grad=True)
    with save_on_cpu(pin_memory=pin):
        y = (x.exp() * x).sum()
    node = y.grad_fn.next_functions[0][0]
    assert all(
        t.data[1].device.type == "cpu" for t in (node._raw_saved_self, node._raw_saved_other)
    )
    assert node._saved_self.device.type == x.device.type
    y.backward()
    expected = x.detach().exp() * (1 + x.detach())
    np.testing.assert_allclose(x.grad.tolist(), expected.tolist(), rtol=1e-5)


def test_saved_tensors_may_be_changed_where_that_is_allowed() -> None:
    def scenario(module: Any) -> Any:
        x = module.tensor(X, requires_grad=True)
        with module.autograd.graph.allow_mutation_on_saved_tensors():
            y = x.clone()
            z = (y**2).sum()
            u = y.exp().sum()
            y.sin_()
            with module.no_grad():
                x.add_(1)
            (z + u + y.sum()).backward()
        return x.grad.tolist()

    on_both(scenario)


def test_a_saved_tensor_may_be_changed_through_a_view() -> None:
    x = lucid_gpu.tensor(X, requires_grad=True)
    with allow_mutation_on_saved_tensors():
        u = x.exp()
        v = u[1:]
        w = v.sin().sum()
        v.mul_(3)
        u.zero_()
        w.backward()
    value = np.exp(np.array(X))
    np.testing.assert_allclose(x.grad.tolist(), np.cos(value) * value * [0, 1, 1], rtol=1e-5)


def test_mutation_is_not_allowed_elsewhere() -> None:
    def nested(module: Any) -> None:
        graph = module.autograd.graph
        with graph.allow_mutation_on_saved_tensors(), graph.allow_mutation_on_saved_tensors():
            pass

    def outside(module: Any) -> None:
        x = module.tensor(X, requires_grad=True)
        with module.autograd.graph.allow_mutation_on_saved_tensors():
            y = x.exp()
        y.sum().backward()

    same_error(nested, "allow_mutation_on_saved_tensors contexts cannot be nested")
    same_error(outside, "Trying to backward outside of the 'allow_mutation_on_saved_tensors'")


def test_what_may_be_changed_is_copied_only_when_it_is() -> None:
    x = lucid_gpu.rand(5, requires_grad=True)
    with allow_mutation_on_saved_tensors():
        y = x.clone()
        array = y.array
        y.square()
        assert y.array is array
        z = y.square()
        y.add_(1)
        z.sum().backward()
    np.testing.assert_allclose(x.grad.tolist(), (2 * x.detach()).tolist())


# --- memory ---------------------------------------------------------------------------------------


class Box:
    def __init__(self, value: Any) -> None:
        self.value = value


@pytest.mark.parametrize("how", ["dropped", "backward", "backward kept"])
def test_what_was_packed_goes_with_the_graph(how: str, device: str, without_gc: None) -> None:
    boxes: list[Any] = []

    def pack(t: Any) -> Any:
        box = Box(t.detach())
        boxes.append(weakref.ref(box))
        return box

    x = lucid_gpu.rand(5, device=device, requires_grad=True)
    with saved_tensors_hooks(pack, lambda box: box.value):
        y = (x.exp() * x).tanh().sum()
    assert len(boxes) == 4 and all(b() is not None for b in boxes)
    if how != "dropped":
        y.backward(retain_graph=how.endswith("kept"))
        x.grad.tolist()
        assert all((b() is None) is (how == "backward") for b in boxes)
    del y
    assert all(b() is None for b in boxes)


def test_a_result_kept_by_its_own_pack_hook_is_collected(device: str) -> None:
    x = lucid_gpu.rand(5, device=device, requires_grad=True)
    with saved_tensors_hooks(same, same):
        y = x.exp()
    node = weakref.ref(y.grad_fn)
    del y
    gc.collect()
    assert node() is None


# --- ops save only what they need, without hooks too ----------------------------------------------

TWICE: dict[str, Callable[[Any, Any], Any]] = {
    "chain of adds": lambda m, x: ((x + 1) + x - 3 + x).sum(),
    "views": lambda m, x: x.view(3, 1).expand(3, 2).t().sum(0).mean(),
    "cat": lambda m, x: m.cat([x, x + 2]).sum(),
    "exp": lambda m, x: x.exp().sum(),
    "mul of two": lambda m, x: (x * x).sum(),
    "a step that saves among adds": lambda m, x: ((x + 1).tanh() + 2).sum(),
    "relu": lambda m, x: x.relu().sum(),
}


@pytest.mark.parametrize("name", TWICE)
def test_retain_graph_is_asked_for_only_where_values_were_saved(name: str) -> None:
    def scenario(module: Any) -> Any:
        x = module.tensor(X, requires_grad=True)
        y = TWICE[name](module, x)
        y.backward()
        try:
            y.backward()
        except RuntimeError as error:
            assert "Specify retain_graph=True" in str(error)
            return "saved", x.grad.tolist()
        return "nothing saved", x.grad.tolist()

    on_both(scenario)


def test_a_pass_that_needs_nothing_saved_asks_for_no_retain_graph() -> None:
    def scenario(module: Any) -> Any:
        x, w, v = (module.tensor(X, requires_grad=True) for _ in range(3))
        z = (x * w + v).sum()
        log = [module.autograd.grad(z, v)[0].tolist() for _ in range(2)]
        log.append(module.autograd.grad(z, x)[0].tolist())
        log.append(module.autograd.grad(z, v)[0].tolist())
        try:
            module.autograd.grad(z, (v, x))
        except RuntimeError as error:
            log.append("Specify retain_graph=True" in str(error))
        return log

    on_both(scenario)


def test_a_number_is_no_saved_value() -> None:
    x = lucid_gpu.tensor(X, requires_grad=True)
    y = (x * 2 / 3).sum()
    y.backward()
    y.backward()
    np.testing.assert_allclose(x.grad.tolist(), [4 / 3] * 3, rtol=1e-6)


def test_a_masked_setitem_saves_nothing_that_is_large() -> None:
    x = lucid_gpu.tensor(X, requires_grad=True)
    y = x + 1
    seen: list[Any] = []
    with saved_tensors_hooks(seen.append, same):
        y[lucid_gpu.tensor([True, False, True])] = 0.0
    assert all(t.dtype is lucid_gpu.bool for t in seen)
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 1.0, 0.0]


def test_values_kept_of_what_was_written_since_are_counted() -> None:
    def scenario(m: Any) -> Any:
        counts = []
        with m.autograd.graph.allow_mutation_on_saved_tensors() as kept:
            a = m.tensor(X, requires_grad=True).clone()
            b = a**2
            counts.append(len(kept.cloned))
            a.sin_()
            counts.append(len(kept.cloned))
            c = a**2
            a.sin_()
            counts.append(len(kept.cloned))
            del b
            counts.append(len(kept.cloned))
            del c
            return [*counts, len(kept.cloned)]

    on_both(scenario)


def test_what_needs_no_gradient_comes_back_as_unpacked() -> None:
    def scenario(m: Any) -> Any:
        class Keeps(m.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any, y: Any) -> Any:
                ctx.save_for_backward(x, y)
                return x * 2

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                x, y = ctx.saved_tensors
                seen.append([x is held, y is constant, x.requires_grad])
                return g, None

        seen: list[Any] = []
        held, constant = m.tensor(X, requires_grad=True), m.tensor(Z)
        with m.autograd.graph.saved_tensors_hooks(same, same):
            y = Keeps.apply(held, constant)
        y.sum().backward()
        checkpoint = m.utils.checkpoint.checkpoint
        checkpoint(Keeps.apply, held, constant, use_reentrant=False).sum().backward()
        return seen

    on_both(scenario)


def test_a_value_that_is_saved_twice_is_kept_once() -> None:
    def scenario(m: Any) -> list[int]:
        with m.autograd.graph.allow_mutation_on_saved_tensors() as kept:
            x = m.ones(3, requires_grad=True).clone()
            y, z = x**2, x**2
            counts = [len(kept.tid_to_weakhandle), len(kept.cloned)]
            x.sin_()
            counts += [len(kept.cloned), len(x**2), len(kept.tid_to_weakhandle)]
            del y, z
            return [*counts, len(kept.cloned)]

    assert scenario(lucid_gpu) == scenario(torch_module())


# --- the numbers of formulas ----------------------------------------------------------------------

FORMULAS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "power": lambda m, a, b: a**3,
    "roots": lambda m, a, b: (a * 2 + 1).sqrt() / b,
    "where": lambda m, a, b: m.where(a > b * 4, a * a * 0.5, b**2),
    "gelu": lambda m, a, b: m.nn.functional.gelu(a * b),
    "cast": lambda m, a, b: a.float().tanh().double() * b.reciprocal(),
    "logarithms": lambda m, a, b: m.logaddexp(a, b) * a.log1p(),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_no_hook_sees_the_numbers_of_a_formula(name: str) -> None:
    def scenario(m: Any) -> Any:
        a = m.tensor([1.0, 2.0, 3.0], dtype=m.float64, requires_grad=True)
        b = m.tensor([0.5, 0.2, 0.3], dtype=m.float64, requires_grad=True)
        seen: list[int] = []
        value = FORMULAS[name](m, a, b).sum()
        with m.autograd.graph.saved_tensors_hooks(lambda t: (seen.append(t.dim()), t)[1], same):
            grads = m.autograd.grad(value, (a, b), create_graph=True, allow_unused=True)
        sum(g.sin().sum() for g in grads if g is not None).backward()
        assert 0 not in seen
        return [t.grad.tolist() for t in (a, b) if t.grad is not None]

    on_both(scenario)


def test_what_a_hook_changes_of_a_power_is_its_base() -> None:
    def scenario(m: Any) -> Any:
        a = m.tensor([1.0, 2.0, 3.0], requires_grad=True)
        value = (a**3).sum()
        with m.autograd.graph.saved_tensors_hooks(lambda t: 2 * t, same):
            (g,) = m.autograd.grad(value, a, create_graph=True)
        g.sum().backward()
        return a.grad.tolist()

    on_both(scenario)


# --- what kernels read comes back as it was saved -------------------------------------------------

KERNELS: dict[str, Callable[[Any, Any], Any]] = {
    "layer norm": lambda x, w: F.layer_norm(x, (8,), w),
    "RMS norm": lambda x, w: F.rms_norm(x, (8,), w),
    "softmax": lambda x, w: F.softmax(x, -1),
    "logarithm of softmax": lambda x, w: F.log_softmax(x, 0),
    "cross entropy": lambda x, w: F.cross_entropy(x, lucid_gpu.arange(4, device=x.device)),
    "linear": lambda x, w: F.linear(x, w.expand(3, 8).contiguous()),
}


def _gradient_of(f: Any, device: str, *hooks: Any) -> Any:
    x = lucid_gpu.tensor([[0.1 * (i * j % 7) for i in range(8)] for j in range(4)], device=device)
    w = lucid_gpu.linspace(0.5, 1.5, 8, device=device)
    x.requires_grad_()
    with saved_tensors_hooks(*hooks):
        y = f(x, w)
    y.backward(lucid_gpu.linspace(-1, 1, y.numel(), device=device).reshape(y.shape))
    return x.grad.cpu().numpy()


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_read_the_type_they_are_made_for(name: str, device: str) -> None:
    """The unpack hook may forget to convert back: a kernel does not look at its arrays again."""
    f = KERNELS[name]
    known = _gradient_of(f, device, same, same)  # and now the launches are kept
    for to in (lucid_gpu.float64, lucid_gpu.float16):
        found = _gradient_of(
            f, device, lambda t, to=to: t.to(to) if t.is_floating_point() else t, same
        )
        np.testing.assert_allclose(found, known, rtol=5e-3, atol=2e-3)


@pytest.mark.parametrize("name", KERNELS)
def test_another_shape_is_refused(name: str, device: str) -> None:
    def part(t: Any) -> Any:
        return t.flatten()[:2].clone()

    with pytest.raises(RuntimeError, match=r"the unpack_hook returned one of shape \[2\]"):
        _gradient_of(KERNELS[name], device, part, same)

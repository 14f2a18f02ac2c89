"""``grad_fn._saved_self``, ``_saved_result`` and their raw kin on built-in nodes."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.autograd.test_saved_hooks import X, Z, on_both, same
from tests.oracle import same_error

NAMES = ("self", "other", "exponent", "condition", "min", "mat2", "result")

OPS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "mul": lambda m, x, z: x * z,
    "mul the other way": lambda m, x, z: z * x,
    "mul by itself": lambda m, x, z: x * x,
    "mul by a constant": lambda m, x, z: x * 2.0,
    "div": lambda m, x, z: x / z,
    "div by itself": lambda m, x, z: x / x.detach(),
    "pow of a number": lambda m, x, z: x**2,
    "pow": lambda m, x, z: x**z,
    "exp": lambda m, x, z: x.exp(),
    "tanh": lambda m, x, z: x.tanh(),
    "sin": lambda m, x, z: x.sin(),
    "relu": lambda m, x, z: x.relu(),
    "add": lambda m, x, z: x + z,
    "neg": lambda m, x, z: -x,
    "where": lambda m, x, z: m.where(z > 0.5, x, z),
    "clamp": lambda m, x, z: x.clamp(min=0.4),
    "maximum": lambda m, x, z: m.maximum(x, z),
    "matmul": lambda m, x, z: x.view(1, 3) @ z.view(3, 1),
    "of a chain": lambda m, x, z: (x * z).exp() * (x + 1).tanh(),
    "sum": lambda m, x, z: x.sum(),
}


def rounded(tensor: Any) -> Any:
    return np.round(np.array(tensor.detach().tolist(), np.float64), 5).tolist()


def saved(node: Any) -> dict[str, Any]:
    """What a node shows under PyTorch's names; numbers and tensors as lists."""
    found = {}
    for name in NAMES:
        value = getattr(node, f"_saved_{name}", "absent")
        if hasattr(value, "tolist"):
            value = [rounded(value), value.requires_grad]
        found[name] = value
    return found


@pytest.mark.parametrize("how", ["pending", "realized", "under hooks"])
@pytest.mark.parametrize("name", OPS)
def test_nodes_show_what_pytorchs_show(name: str, how: str) -> None:
    def scenario(module: Any) -> Any:
        x, z = module.tensor(X, requires_grad=True), module.tensor(Z)
        if how == "under hooks":
            with module.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), same):
                y = OPS[name](module, x, z)
        else:
            y = OPS[name](module, x, z)
        if how == "realized":
            y.tolist()
        return list(saved(y.grad_fn).items())

    on_both(scenario)


@pytest.mark.parametrize("realized", [False, True])
def test_a_saved_input_has_the_same_elements_and_history(realized: bool) -> None:
    def scenario(module: Any) -> Any:
        x, z = module.tensor(X, requires_grad=True), module.tensor(Z)
        a, b = x * z, x.exp()
        y, u = a * b, a * z
        if realized:
            for t in (y, u, a, b):
                t.tolist()
        node = y.grad_fn
        found = node._saved_self, node._saved_other, a.grad_fn._saved_other
        return (
            [rounded(t) for t in found],
            [t.requires_grad for t in found],
            found[0].grad_fn is a.grad_fn,
            found[1].grad_fn is b.grad_fn,
            u.grad_fn._saved_self,
            a.grad_fn._saved_self,
            (x * x).grad_fn._saved_self is x,
            b.exp().grad_fn.next_functions[0][0] is b.grad_fn,
            module.autograd.grad(found[0].sum(), x, retain_graph=True)[0].tolist(),
        )

    on_both(scenario)


@pytest.mark.parametrize("realized", [False, True])
@pytest.mark.parametrize("partly", [False, True])
@pytest.mark.parametrize("which", ["leaf", "constant", "intermediate"])
def test_a_write_of_what_a_node_shows_leaves_our_tensors_alone(
    which: str, partly: bool, realized: bool
) -> None:
    """Only a leaf that requires grad is shown itself. Backward refuses, or is right."""
    x, z = lucid_gpu.tensor(X, requires_grad=True), lucid_gpu.tensor(Z)
    k = x * 2
    y, before = {
        "leaf": lambda: (x.sin(), x),
        "constant": lambda: (x * z, z),
        "intermediate": lambda: (k.sin(), k),
    }[which]()
    old = before.tolist()
    if realized:
        y.tolist()
    later = before * 1
    other = which == "constant"
    found = y.grad_fn._saved_other if other else y.grad_fn._saved_self
    with lucid_gpu.no_grad():
        if partly:
            found[0] = 7
        else:
            found.add_(1)
    assert found.tolist() == pytest.approx([7.0, *old[1:]] if partly else [v + 1 for v in old])
    assert later.tolist() == old
    assert (found is x) is (which == "leaf")
    assert found is x or before.tolist() == old
    try:
        y.sum().backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    else:
        wanted = {"constant": Z, "intermediate": 2 * np.cos(2 * np.array(X))}[which]
        np.testing.assert_allclose(x.grad.tolist(), wanted, rtol=1e-5)


@pytest.mark.parametrize("realized", [False, True])
def test_a_saved_output_is_an_equal_other_one_with_the_same_node(realized: bool) -> None:
    def scenario(module: Any) -> Any:
        y = module.tensor(X, requires_grad=True).exp()
        if realized:
            y.tolist()
        found = y.grad_fn._saved_result
        return found is y, found.grad_fn is y.grad_fn, found.tolist()

    on_both(scenario)


def test_a_saved_output_makes_no_cycle(device: str, without_gc: None) -> None:
    x = lucid_gpu.rand(4, device=device, requires_grad=True)
    y = x.exp()
    y.grad_fn._saved_result.tolist()
    node = weakref.ref(y.grad_fn)
    del y
    assert node() is None


def test_what_was_freed_is_refused() -> None:
    def freed(module: Any) -> None:
        y = module.tensor(X, requires_grad=True).exp()
        y.sum().backward()
        y.grad_fn._saved_result

    same_error(freed, "Trying to backward through the graph a second time (or directly access")


def test_a_saved_tensor_written_in_place_is_refused() -> None:
    def written(module: Any) -> None:
        x = module.tensor(X, requires_grad=True)
        z = module.tensor(Z)
        y = x * z
        y.tolist()
        z.add_(1)
        y.grad_fn._saved_other

    same_error(written, "modified by an inplace operation", "version 1; expected version 0")


def test_nodes_that_save_nothing_have_no_such_attribute() -> None:
    def asks(module: Any) -> None:
        (module.tensor(X, requires_grad=True) + 1).grad_fn._saved_self

    same_error(asks, "'AddBackward0' object has no attribute '_saved_self'")


# --- hooks on one saved tensor --------------------------------------------------------------------


@pytest.mark.parametrize("realized", [False, True])
@pytest.mark.parametrize("name", ["mul", "exp", "pow", "sin", "of a chain", "matmul"])
def test_raw_saved_tensors_take_hooks(name: str, realized: bool) -> None:
    def scenario(module: Any) -> Any:
        log: list[Any] = []
        x, z = module.tensor(X, requires_grad=True), module.tensor(Z)
        y = OPS[name](module, x, z)
        u = y.exp() * 2 if name != "matmul" else y * 2
        if realized:
            u.tolist()

        def pack(t: Any) -> Any:
            log.append([rounded(t), t.requires_grad])
            return t * 10

        def unpack(t: Any) -> Any:
            log.append("unpack")
            return t / 10

        which = [k for k, v in saved(y.grad_fn).items() if isinstance(v, list)]
        for one in which:
            getattr(y.grad_fn, f"_raw_saved_{one}").register_hooks(pack, unpack)
            log.append(one)
        u.sum().backward(retain_graph=True)
        log.append(x.grad.tolist())
        (g,) = module.autograd.grad(u.sum(), x, create_graph=True)
        if g.requires_grad:
            (h,) = module.autograd.grad(g.sum(), x, retain_graph=True)
            log.append(h.tolist())
        x.grad = None
        y.sum().backward()
        log.append(x.grad.tolist())
        return log

    on_both(scenario)


def test_hooks_on_an_op_inside_a_region_change_what_goes_through_it_only() -> None:
    x = lucid_gpu.tensor(X, requires_grad=True)
    y = x.sin()
    u = (y * 3 + x * 2).exp()
    y.grad_fn._raw_saved_self.register_hooks(lambda t: t * 0, same)  # cos(0) is 1
    u.sum().backward()
    value = np.array(X)
    expected = np.exp(3 * np.sin(value) + 2 * value) * (3 + 2)
    np.testing.assert_allclose(x.grad.tolist(), expected, rtol=1e-5)


def test_register_hooks_is_refused_as_in_pytorch() -> None:
    kept = []  # PyTorch's saved tensors do not keep their node alive

    def node(module: Any) -> Any:
        kept.append(module.tensor(X, requires_grad=True) * module.tensor(Z))
        return kept[-1].grad_fn

    def twice(module: Any) -> None:
        raw = node(module)._raw_saved_other
        raw.register_hooks(same, same)
        raw.register_hooks(same, same)

    def none(module: Any) -> None:
        node(module)._raw_saved_self.register_hooks(same, same)

    def freed(module: Any) -> None:
        raw = node(module)._raw_saved_other
        kept[-1].sum().backward()
        raw.register_hooks(same, same)

    def number(module: Any) -> None:
        node(module)._raw_saved_other.register_hooks(1, same)

    def wrote(module: Any) -> None:
        node(module)._raw_saved_other.register_hooks(lambda t: t.mul_(2), same)

    def under_hooks(module: Any) -> None:
        with module.autograd.graph.saved_tensors_hooks(same, same):
            fn = node(module)
        fn._raw_saved_other.register_hooks(same, same)

    same_error(twice, "Calling register_hooks on a saved tensor whose hooks have already been set")
    same_error(under_hooks, "only one pair of hooks is allowed at a time")
    same_error(none, "Calling register_hooks on a saved tensor with value None is forbidden")
    same_error(freed, "Calling register_hooks on a saved tensor after it has been freed")
    same_error(number)
    same_error(wrote, "A saved tensor pack hook is modifying its input in place")


def test_saved_tensors_of_functions_take_hooks() -> None:
    def scenario(module: Any) -> Any:
        log: list[Any] = []

        class Twice(module.autograd.Function):  # type: ignore[name-defined,misc]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                y = x * 2
                ctx.save_for_backward(x, None, y)
                return y

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                log.append([None if t is None else t.requires_grad for t in ctx.saved_tensors])
                return g * ctx.saved_tensors[2]

        def pack(t: Any) -> Any:
            log.append(t.requires_grad)
            return t

        x = module.tensor(X, requires_grad=True)
        y = Twice.apply(x)
        raw = y.grad_fn._raw_saved_tensors
        raw[0].register_hooks(pack, lambda t: t * 1)
        raw[2].register_hooks(pack, lambda t: t * 100)
        try:
            raw[1].register_hooks(pack, same)
        except RuntimeError as error:
            log.append(str(error))
        y.sum().backward()
        return log, x.grad.tolist()

    on_both(scenario)


@pytest.mark.parametrize("realized", [False, True])
def test_a_division_keeps_its_result_instead_of_the_dividend(realized: bool) -> None:
    x, z = lucid_gpu.tensor(X, requires_grad=True), lucid_gpu.tensor(Z)
    y = z / x
    if realized:
        y.tolist()
    assert y.grad_fn._saved_self is None and y.grad_fn._saved_other is x
    y.grad_fn._raw_saved_other.register_hooks(lambda t: t.tolist(), lucid_gpu.tensor)
    y.sum().backward()
    np.testing.assert_allclose(x.grad.tolist(), (-z / x.detach().square()).tolist(), rtol=1e-6)


@pytest.mark.parametrize("written", ["operand", "result"])
@pytest.mark.parametrize("name", ["exp", "mul", "pow"])
def test_a_write_after_hooks_on_another_saved_tensor_ends_as_in_pytorch(
    name: str, written: str
) -> None:
    """Hooks on one saved tensor leave the others as they are: told of writes."""

    def scenario(module: Any) -> Any:
        x, z = module.tensor(X, requires_grad=True), module.tensor(Z)
        k = x * 3
        y = OPS[name](module, k, z)
        hooked = {"exp": "result", "mul": "other", "pow": "self"}[name]
        getattr(y.grad_fn, f"_raw_saved_{hooked}").register_hooks(lambda t: t.clone(), same)
        (z if written == "operand" else y).add_(1)
        try:
            (y * 1.5).sum().backward()
        except RuntimeError as error:
            return "modified by an inplace operation" in str(error)
        return x.grad.tolist()

    on_both(scenario)


def test_hooks_inside_of_an_op_that_saves_its_result() -> None:
    """`ldexp` ends with a product, and its result is among what it saves."""
    powers = lucid_gpu.ones(len(X))

    def backward(written: bool) -> list[float]:
        x = lucid_gpu.tensor(X, requires_grad=True)
        y = lucid_gpu.ldexp(x, powers)
        y.grad_fn._raw_saved_other.register_hooks(same, same)
        if written:
            y.detach().add_(1)
        y.sum().backward()
        return rounded(x.grad)

    assert backward(False) == [2.0] * len(X)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        backward(True)


RESULTS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "exp": (lambda m, x: x.exp(), "result"),
    "exp of a chain": (lambda m, x: (x * 2).exp(), "result"),
    "softmax": (lambda m, x: x.softmax(0), "result"),
    "log_softmax": (lambda m, x: x.log_softmax(0), "result"),
    "cumprod": (lambda m, x: x.cumprod(0), "result"),
    "inv": (lambda m, x: m.linalg.inv(x.diag()), "inverse"),
    "cholesky": (lambda m, x: m.linalg.cholesky(x.diag()), "L"),
}


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("name", RESULTS)
def test_a_saved_result_counts_the_writes_to_the_result(name: str, read: bool) -> None:
    def scenario(module: Any) -> Any:
        function, attribute = RESULTS[name]
        x = module.tensor(X, requires_grad=True)
        y = function(module, x)
        node = y.grad_fn
        if read:
            y.tolist()
        kept = getattr(node, f"_saved_{attribute}")
        found = [kept is y, kept.grad_fn is node, kept._version, rounded(kept)]
        with module.no_grad():
            y.add_(1)
        found += [kept._version, y._version, rounded(kept), rounded(y)]
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            getattr(node, f"_saved_{attribute}")
        return found

    on_both(scenario)


def test_an_operand_is_shown_itself_once_its_node_was_asked_for() -> None:
    def scenario(module: Any) -> Any:
        x = module.tensor(X, requires_grad=True)
        a = x * x
        b, c = x * a, a.exp() * a
        before = a.grad_fn._saved_self is x
        found = [before, b.grad_fn._saved_self is x, b.grad_fn._saved_other is a]
        a.tolist(), c.tolist()
        found += [b.grad_fn._saved_other is a, c.grad_fn._saved_other is a]
        return found

    on_both(scenario)


def test_nodes_list_what_they_saved() -> None:
    def scenario(module: Any) -> Any:
        x = module.tensor(X, requires_grad=True)
        listed = []
        for y in (x * x, x.exp(), x.softmax(0), x.diag() @ x.diag(), x.cumprod(0), x.sum()):
            names = [n for n in dir(y.grad_fn) if n.startswith(("_saved_", "_raw_saved_"))]
            tensors = [n for n in names if "_sym_" not in n and n != "_saved_dim"]
            listed.append([sorted(tensors), [hasattr(y.grad_fn, n) for n in tensors]])
            listed.append([hasattr(y.grad_fn, n) for n in ("_saved_nothing", "_saved_LU")])
        return listed

    on_both(scenario)

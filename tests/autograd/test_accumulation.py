"""Section Accumulation of the specification: how gradients get into ``.grad``."""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

import pytest

import lucid_gpu
from tests.oracle import gives, refuses


def leaf(m: Any, device: str, *values: float) -> Any:
    return m.tensor(list(values), device=device, requires_grad=True)


def test_in_place_without_create_graph(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = leaf(m, device, 1.0, 2.0)
        (x * x).sum().backward()
        first = x.grad
        (x * x).sum().backward()
        return x.grad is first, first

    gives([True, [4.0, 8.0]], scenario, device)


def test_out_of_place_with_create_graph(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns of a cycle that it does not collect
            x = leaf(m, device, 1.0, 2.0)
            (x * x).sum().backward()
            first = x.grad
            (x * x).sum().backward(create_graph=True)
        return x.grad is first, first, x.grad, x.grad.requires_grad

    gives([False, [2.0, 4.0], [4.0, 8.0], True], scenario, device)


def test_in_place_into_a_gradient_that_has_a_history(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = leaf(m, device, 1.0, 2.0)
            (x**3).sum().backward(create_graph=True)
        first = x.grad
        (x * x).sum().backward()
        (second,) = m.autograd.grad(first.sum(), x)
        return x.grad is first, first, second

    gives([True, [5.0, 16.0], [6.0, 12.0]], scenario, device)


def test_create_graph_adds_gradients_that_can_be_differentiated(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = leaf(m, device, 2.0)
            (x**3).sum().backward(create_graph=True)
            (x**2).sum().backward(create_graph=True)
        return m.autograd.grad(x.grad.sum(), x)

    gives([[14.0]], scenario, device)


def test_an_assigned_gradient_is_added_to_in_place(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x, own = leaf(m, device, 1.0, 2.0), m.ones(2, device=device)
        x.grad = own
        (x * 2).sum().backward()
        return x.grad is own, own

    gives([True, [3.0, 3.0]], scenario, device)


# --- stealing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("realized", [False, True])
def test_the_first_gradient_is_never_shared_between_leaves(realized: bool, device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x, y = leaf(m, device, 1.0, 2.0), leaf(m, device, 3.0, 4.0)
        (x + y).sum().backward()
        if realized:
            assert x.grad.tolist() == y.grad.tolist()
        x.grad.zero_()
        y.grad.mul_(5)
        return x.grad, y.grad

    gives([[0.0, 0.0], [5.0, 5.0]], scenario, device)


@pytest.mark.parametrize("passes", [1, 2])
def test_the_gradient_the_user_passed_is_never_changed(passes: int, device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x, y = leaf(m, device, 1.0, 2.0), leaf(m, device, 3.0, 4.0)
        own = m.ones(2, device=device)
        for _ in range(passes):
            (x + y).backward(own)
        x.backward(own)
        x.grad.mul_(7)
        y.grad.zero_()
        return own

    gives([1.0, 1.0], scenario, device)


def test_a_gradient_the_user_writes_later_does_not_change_grad(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x, own = leaf(m, device, 1.0, 2.0), m.ones(2, device=device)
        x.backward(own)
        own.fill_(9)
        return x.grad

    gives([1.0, 1.0], scenario, device)


def test_a_gradient_a_function_keeps_is_never_changed(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        kept: list[Any] = []

        class Keeps(m.autograd.Function):  # type: ignore[misc]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x.clone()

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                kept.append(g * 2)
                return kept[0]

        x = leaf(m, device, 1.0, 2.0)
        Keeps.apply(x).sum().backward()
        (x * 3).sum().backward()
        return kept, x.grad

    gives([[[2.0, 2.0]], [5.0, 5.0]], scenario, device)


def test_a_gradient_a_hook_noted_is_never_changed(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        seen: list[Any] = []
        x = leaf(m, device, 1.0, 2.0)
        x.register_hook(seen.append)
        for _ in range(2):
            (x * 2).sum().backward()
        return seen, x.grad

    gives([[[2.0, 2.0], [2.0, 2.0]], [4.0, 4.0]], scenario, device)


ROW_OPS: dict[str, Any] = {
    "layer_norm": lambda m, x, w, b: m.nn.functional.layer_norm(x, (2,), w, b),
    "rms_norm": lambda m, x, w, b: m.nn.functional.rms_norm(x, (2,), w) + b,
    "group_norm": lambda m, x, w, b: m.nn.functional.group_norm(x, 1),
    "softmax": lambda m, x, w, b: m.nn.functional.softmax(x, 1),
    "log_softmax": lambda m, x, w, b: m.nn.functional.log_softmax(x, 0),
    "cross_entropy": lambda m, x, w, b: m.nn.functional.cross_entropy(
        x, m.tensor([1, 0, 1], device=x.device), reduction="none"
    ),
}


@pytest.mark.parametrize("watched", ["by nobody", "at the leaf", "at the node", "of the leaf"])
@pytest.mark.parametrize("name", ROW_OPS)
def test_a_gradient_in_new_memory_is_its_leafs_alone(name: str, watched: str, device: str) -> None:
    """It becomes ``.grad`` as it is, unless somebody else saw it."""

    def scenario(m: Any, device: str) -> Any:
        x = m.tensor([[1.0, 2.5], [0.5, 3.0], [4.0, 1.0]], device=device, requires_grad=True)
        w, b = leaf(m, device, 1.0, 2.0), leaf(m, device, 3.0, 4.0)
        y, seen = ROW_OPS[name](m, x, w, b), []
        g = m.full_like(y, 0.5) if y.ndim == 1 else m.ones_like(y) * x.detach()
        if watched == "at the leaf":
            x.register_hook(lambda gradient: seen.append(gradient))
        elif watched == "at the node":
            y.grad_fn.register_hook(lambda inputs, _: seen.extend(inputs))
        elif watched == "of the leaf":
            m.autograd.graph.get_gradient_edge(x).node.register_hook(
                lambda _, outputs: seen.extend(outputs)
            )
        before = y.detach().clone(), g.clone()
        y.backward(g, retain_graph=True)
        leaves = [t for t in (x, w, b) if t.grad is not None]
        first = [t.grad.clone() for t in leaves]
        noted = [t.clone() for t in seen if t is not None]
        x.grad.mul_(2)
        alone = all(m.equal(t.grad, f) for t, f in zip(leaves[1:], first[1:], strict=True))
        x.grad.div_(2)
        y.backward(g)
        twice = all(m.equal(t.grad, f * 2) for t, f in zip(leaves, first, strict=True))
        seen = [t for t in seen if t is not None][: len(noted)]
        kept = watched == "of the leaf" or all(map(m.equal, seen, noted))
        unchanged = m.equal(y.detach(), before[0]) and m.equal(g, before[1])
        return alone, twice, kept, unchanged

    gives([True, True, True, True], scenario, device)


# --- layout ---------------------------------------------------------------------------------------


def strides(m: Any, t: Any) -> list[int]:
    """In elements."""
    array = t.detach().cpu().numpy() if m is not lucid_gpu else t.detach().array
    return [s // array.itemsize for s in array.strides]


LEAVES: dict[str, Any] = {
    "row-major": lambda m, d: m.ones(3, 4, device=d),
    "transposed": lambda m, d: m.ones(3, 4, device=d).t(),
    "permuted": lambda m, d: m.ones(2, 3, 4, device=d).permute(2, 0, 1),
    "with gaps": lambda m, d: m.ones(3, 8, device=d)[:, ::2],
    "part of a transposed one": lambda m, d: m.ones(4, 6, device=d).t()[1:3],
}
GRAD_STRIDES = {
    "row-major": [4, 1],
    "transposed": [1, 4],
    "permuted": [1, 12, 4],
    "with gaps": [4, 1],
    "part of a transposed one": [4, 1],
}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("name", LEAVES)
def test_grad_takes_a_dense_leafs_layout_else_row_major(
    name: str, create_graph: bool, device: str
) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = LEAVES[name](m, device).requires_grad_()
        found = []
        for use in (lambda: (x * x).sum(), lambda: x.sum() * 2, lambda: (x.mT * 2).sum()):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                use().backward(create_graph=create_graph)
            found.append([strides(m, x.grad), x.grad.sum().item()])
            x.grad = None
        return found

    count = 24.0 if name == "permuted" else 8.0 if name.startswith("part") else 12.0
    gives([[GRAD_STRIDES[name], 2 * count]] * 3, scenario, device)


def test_the_users_gradient_is_laid_out_anew(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = m.ones(3, 4, device=device).requires_grad_()
        found = []
        ones = m.ones(4, 3, device=device)
        for own in (ones.t(), m.ones(3, 1, device=device).expand(3, 4)):
            x.backward(own)
            found.append(strides(m, x.grad))
            x.grad = None
        return found

    gives([[4, 1], [4, 1]], scenario, device)


def test_a_leaf_with_a_layout_trains(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        w = m.ones(3, 2, device=device).t().requires_grad_()
        optimizer = m.optim.SGD([w], lr=0.5, momentum=0.5)
        for _ in range(3):
            optimizer.zero_grad()
            ((w * m.tensor([[1.0, 2.0, 3.0]], device=device)).sum() * 2).backward()
            optimizer.step()
        return w

    gives([[-3.25, -7.5, -11.75], [-3.25, -7.5, -11.75]], scenario, device)


# --- assigning ------------------------------------------------------------------------------------


def assigned(value: Any) -> Any:
    def scenario(m: Any, device: str) -> Any:
        x = leaf(m, device, 1.0, 2.0)
        x.grad = value(m, device, x)

    return scenario


ASSIGNED: dict[str, tuple[Any, Any, str]] = {
    "a number": (
        assigned(lambda m, d, x: 3),
        TypeError,
        "assigned grad expected to be a Tensor or None but got grad of type int",
    ),
    "another shape": (
        assigned(lambda m, d, x: m.ones(3, device=d)),
        RuntimeError,
        "attempting to assign a gradient of size '[3]' to a tensor of size '[2]'",
    ),
    "a shape that broadcasts": (
        assigned(lambda m, d, x: m.ones(1, 2, device=d)),
        RuntimeError,
        "attempting to assign a gradient of size '[1, 2]' to a tensor of size '[2]'",
    ),
    "another type": (
        assigned(lambda m, d, x: m.ones(2, dtype=m.float64, device=d)),
        RuntimeError,
        "attempting to assign a gradient with dtype",
    ),
    "itself": (
        assigned(lambda m, d, x: x),
        RuntimeError,
        "can't assign Variable as its own grad",
    ),
}


@pytest.mark.parametrize("name", ASSIGNED)
def test_assigning_grad_checks_type_shape_dtype_self(name: str, device: str) -> None:
    scenario, kind, words = ASSIGNED[name]
    refuses(kind, words, scenario, device)


def test_what_fits_may_be_assigned_to_any_tensor(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x, c = leaf(m, device, 1.0, 2.0), m.zeros(2, device=device)
        y = x * 2
        for t in (x, c, y):
            t.grad = m.ones(2, device=device)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = [t.grad.tolist() for t in (x, c, y)]
        x.grad = None
        return found, x.grad

    gives([[[1.0, 1.0]] * 3, None], scenario, device)


def test_reading_grad_of_a_non_leaf_warns_unless_retained(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        y = leaf(m, device, 1.0) * 2
        with pytest.warns(UserWarning, match="attribute of a Tensor that is not a leaf Tensor"):
            assert y.grad is None
        y.retain_grad()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return y.grad

    gives(None, scenario, device)


# --- memory ---------------------------------------------------------------------------------------


def test_a_gradient_that_holds_its_own_graph_is_collected(device: str) -> None:
    """PyTorch warns of this cycle: it does not collect it. Nothing to warn of here."""

    def build() -> list[Any]:
        x = leaf(lucid_gpu, device, 1.0, 2.0)
        y = (x.exp() * x).sum()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            y.backward(create_graph=True)
            (x.tanh() * 2).sum().backward(create_graph=True)
        assert x.grad.requires_grad
        x.grad.tolist()
        return [weakref.ref(x), weakref.ref(x.grad), weakref.ref(x.grad.grad_fn), weakref.ref(y)]

    died = build()
    gc.collect()
    assert [r() for r in died] == [None] * 4


def test_a_functions_gradient_that_holds_its_own_graph_is_collected(device: str) -> None:
    class Cube(lucid_gpu.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 3 * ctx.saved_tensors[0] ** 2

    def build() -> list[Any]:
        x = leaf(lucid_gpu, device, 1.0, 2.0)
        y = Cube.apply(x)
        y.sum().backward(create_graph=True)
        assert lucid_gpu.autograd.grad(x.grad.sum(), x)[0].tolist() == [6.0, 12.0]
        return [weakref.ref(x), weakref.ref(x.grad), weakref.ref(y.grad_fn)]

    died = build()
    gc.collect()
    assert [r() for r in died] == [None] * 3


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_a_bias_gradient_of_layer_norm_is_not_the_cotangent(
    shape: tuple[int, ...], create_graph: bool, device: str
) -> None:
    """Over all dimensions it is equal to that; writing one must not change the other."""
    x, w, b = [lucid_gpu.ones(s, device=device, requires_grad=True) for s in ((2, 3), shape, shape)]
    y = lucid_gpu.nn.functional.layer_norm(x, shape, w, b)
    g = lucid_gpu.full((2, 3), 2.0, device=device)
    (gradient,) = lucid_gpu.autograd.grad(y, b, g, create_graph=create_graph, retain_graph=True)
    y.backward(g)
    with lucid_gpu.no_grad():
        gradient.add_(1)
        b.grad.add_(1)
    assert g.tolist() == [[2.0] * 3] * 2
    assert (
        gradient.tolist() == b.grad.tolist() == lucid_gpu.full(shape, 12 / b.numel() + 1).tolist()
    )

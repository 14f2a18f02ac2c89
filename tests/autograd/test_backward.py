"""backward() and grad(): what they compute, keep, refuse and leave alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.autograd import backward, grad
from tests.oracle import agree, gives, same_error, torch_module

X = np.random.default_rng(1).standard_normal((3, 4))


def leaf(*values: float, device: str = "cpu") -> lucid_gpu.Tensor:
    return lucid_gpu.tensor(list(values), device=device, requires_grad=True)


def test_gradients_add_up_over_uses_and_passes(device: str) -> None:
    x = leaf(1.0, 2.0, device=device)
    (x * x + x).sum().backward()
    assert x.grad.tolist() == [3.0, 5.0]
    (x * 3).sum().backward()
    assert x.grad.tolist() == [6.0, 8.0]


def test_a_cotangent_weighs_the_outputs(device: str) -> None:
    x = leaf(1.0, 2.0, device=device)
    (x * 2).backward(lucid_gpu.tensor([1.0, 10.0], device=device))
    assert x.grad.tolist() == [2.0, 20.0]


def test_cotangents_of_any_layout(device: str) -> None:
    weights = lucid_gpu.rand(4, 3, device=device)
    for cotangent in (weights.t(), weights[:1].t().expand(3, 4), weights[0, 0].expand(3, 4)):
        x = lucid_gpu.tensor(X, device=device, requires_grad=True)
        y = lucid_gpu.tensor(X, device=device, requires_grad=True)
        x.tanh().backward(cotangent.double())
        y.tanh().backward(cotangent.double().clone().contiguous())
        assert x.grad.tolist() == y.grad.tolist()


def test_several_roots_at_once(device: str) -> None:
    x = leaf(1.0, 2.0, device=device)
    y, z = x * 2, (x * x).sum()
    backward([y, z], [lucid_gpu.ones(2, device=device), None])
    assert x.grad.tolist() == [4.0, 6.0]


def test_the_same_root_twice(device: str) -> None:
    x = leaf(1.0, device=device)
    y = x * 2
    backward([y, y])
    assert x.grad.tolist() == [4.0]


def test_a_root_inside_the_graph_of_another(device: str) -> None:
    x = leaf(2.0, device=device)
    y = x * x
    z = y * 3
    backward([z, y])
    assert x.grad.tolist() == [16.0]


def test_what_needs_no_gradient_gets_none(device: str) -> None:
    x, c = leaf(1.0, device=device), lucid_gpu.ones(1, device=device)
    (x * c).backward()
    assert c.grad is None and not c.requires_grad
    unused = leaf(1.0, device=device)
    assert unused.grad is None


def test_a_leaf_is_its_own_root(device: str) -> None:
    x = leaf(5.0, device=device)
    x.backward()
    assert x.grad.tolist() == [1.0]


# --- keeping the graph ----------------------------------------------------------------------------


def test_a_second_pass_needs_retain_graph(device: str) -> None:
    x = leaf(2.0, device=device)
    y = x.exp().sum()
    y.backward()
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        y.backward()
    z = x.exp().sum()
    z.backward(retain_graph=True)
    z.backward()
    assert x.grad.item() == pytest.approx(3 * np.exp(2.0), rel=1e-6)


def with_rows(values: lucid_gpu.Tensor) -> lucid_gpu.Tensor:
    written = lucid_gpu.zeros_like(values.detach())
    written[[0]] = values[:1]
    return written


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: (x @ w).sum(),
        lambda x, w: (x * w.t()).sum(),
        lambda x, w: (x.sum(0) * w[0, 0]).sum(),
        lambda x, w: x.amax(1).sum() + w.sum(),
        lambda x, w: x.tanh().sum(),
        lambda x, w: x[:, [0, 1]].prod(1).sum(),
        lambda x, w: x[[0]].sum(),
        lambda x, w: with_rows(x).sum(),
    ],
)
def test_whatever_saved_something_refuses_a_second_pass(function: Any, device: str) -> None:
    x = lucid_gpu.tensor(X, device=device, requires_grad=True)
    w = lucid_gpu.tensor(X.T.copy(), device=device, requires_grad=True)
    for realize in (False, True):
        y = function(x, w)
        if realize:
            y.item()
        y.backward()
        with pytest.raises(RuntimeError, match="second time"):
            y.backward()


def test_what_saves_nothing_may_be_passed_again(device: str) -> None:
    x = leaf(1.0, 2.0, device=device)
    y = (x + 1) * 3 - x
    z = y.reshape(2, 1).sum()
    z.backward()
    z.backward()
    assert x.grad.tolist() == [4.0, 4.0]


def test_a_shared_part_is_freed_with_the_first_pass(device: str) -> None:
    x = leaf(1.0, device=device)
    shared = x.exp()
    shared.item()
    a, b = shared * 2, shared * 3
    a.backward()
    with pytest.raises(RuntimeError, match="second time"):
        b.backward()


def test_create_graph_gives_gradients_with_a_history(device: str) -> None:
    x = leaf(2.0, device=device)
    (first,) = grad((x**3).sum(), x, create_graph=True)
    (second,) = grad(first.sum(), x, create_graph=True)
    (third,) = grad(second.sum(), x)
    assert [first.item(), second.item(), third.item()] == [12.0, 12.0, 6.0]
    assert not third.requires_grad
    y = (x**3).sum()
    y.backward(create_graph=True)
    assert x.grad.requires_grad
    x.grad.backward()
    assert x.grad.item() == 12.0 + 12.0


def test_gradients_of_gradients_agree_with_torch(device: str) -> None:
    def penalty(m: Any, x: Any) -> Any:
        y = ((x.tanh() @ x.t()).exp() * x.sum(1)).sum()
        (g,) = m.autograd.grad(y, x, create_graph=True)
        return (g * g).sum() + y

    agree(penalty, X * 0.3, device=device, rtol=1e-6)


# --- grad -----------------------------------------------------------------------------------------


def test_grad_touches_no_dot_grad(device: str) -> None:
    x, y = leaf(1.0, device=device), leaf(2.0, device=device)
    a, b = grad((x * y).sum(), (x, y))
    assert (a.item(), b.item()) == (2.0, 1.0)
    assert x.grad is None and y.grad is None


def test_grad_by_an_intermediate(device: str) -> None:
    x = leaf(2.0, device=device)
    for realize in (False, True):
        h = x * x
        if realize:
            h.item()
        y = h.exp() + h
        by_h, by_x = grad(y.sum(), (h, x))
        assert by_h.item() == pytest.approx(np.exp(4.0) + 1, rel=1e-6)
        assert by_x.item() == pytest.approx((np.exp(4.0) + 1) * 4, rel=1e-6)


def test_grad_by_several_intermediates_of_one_region(device: str) -> None:
    def function(m: Any, x: Any) -> Any:
        a = x * 2
        b = a.tanh()
        c = (b + a) * b
        y = (c * a).sum()
        return m.autograd.grad(y, (a, b, c, x), create_graph=True)

    agree(function, X, device=device, order=1)


def test_grad_by_the_root_itself(device: str) -> None:
    x = leaf(2.0, device=device)
    y = x * 3
    by_y, by_x = grad(y, (y, x))
    assert (by_y.item(), by_x.item()) == (1.0, 3.0)


def test_unused_inputs_raise_unless_allowed(device: str) -> None:
    x, other = leaf(1.0, device=device), leaf(1.0, 2.0, device=device)
    with pytest.raises(
        RuntimeError, match=r"appears to not have been used in the graph.*inputs\[1\]"
    ):
        grad((x * 2).sum(), (x, other))
    assert grad((x * 2).sum(), (x, other), allow_unused=True)[1] is None
    zeros = grad((x * 2).sum(), (x, other), materialize_grads=True)[1]
    assert zeros.tolist() == [0.0, 0.0]


def test_only_what_is_asked_for_is_run(device: str) -> None:
    x, w = leaf(1.0, device=device), leaf(1.0, device=device)
    seen: list[str] = []
    a = x * 2
    b = w * 2
    a.register_hook(lambda g: seen.append("a"))
    b.register_hook(lambda g: seen.append("b"))
    grad((a * b).sum(), x)
    assert seen == ["a"]


def test_inputs_restrict_backward(device: str) -> None:
    x, w = leaf(1.0, device=device), leaf(3.0, device=device)
    h = x * 2
    (h * w).sum().backward(inputs=[w])
    assert x.grad is None and w.grad.item() == 2.0
    y = x * 2
    y.retain_grad()
    (y * w).sum().backward(inputs=x)
    assert x.grad.item() == 6.0


def test_batched_cotangents(device: str) -> None:
    x = lucid_gpu.tensor(X, device=device, requires_grad=True)
    y = x.tanh()
    rows = lucid_gpu.tensor(np.random.default_rng(2).standard_normal((5, 3, 4)), device=device)
    (batch,) = grad(y, x, rows, retain_graph=True, is_grads_batched=True)
    assert tuple(batch.shape) == (5, 3, 4)
    for i in range(5):
        (one,) = grad(y, x, rows[i], retain_graph=True)
        np.testing.assert_allclose(batch[i].tolist(), one.tolist(), rtol=1e-12)


# --- accumulation ---------------------------------------------------------------------------------


def test_later_passes_add_in_place(device: str) -> None:
    x = leaf(1.0, 2.0, device=device)
    (x * 2).sum().backward()
    g = x.grad
    (x * 3).sum().backward()
    assert x.grad is g
    assert g.tolist() == [5.0, 5.0]


def test_the_users_cotangent_is_never_changed_nor_shared(device: str) -> None:
    x, y = leaf(1.0, 2.0, device=device), leaf(1.0, 2.0, device=device)
    cotangent = lucid_gpu.ones(2, device=device)
    (x + y).backward(cotangent)
    (x + y).backward(cotangent)
    assert cotangent.tolist() == [1.0, 1.0]
    x.grad.zero_()
    assert y.grad.tolist() == [2.0, 2.0]
    assert cotangent.tolist() == [1.0, 1.0]
    cotangent.fill_(7)
    assert y.grad.tolist() == [2.0, 2.0]


def test_setting_grad_to_none_starts_anew(device: str) -> None:
    x = leaf(1.0, device=device)
    (x * 2).backward()
    x.grad = None
    (x * 3).backward()
    assert x.grad.item() == 3.0
    del x.grad
    assert x.grad is None
    x.grad = lucid_gpu.ones(1, device=device)
    (x * 3).backward()
    assert x.grad.item() == 4.0


def test_reading_grad_of_an_intermediate_warns(device: str) -> None:
    y = leaf(1.0, device=device) * 2
    with pytest.warns(UserWarning, match="not a leaf Tensor is being accessed"):
        assert y.grad is None


def test_gradients_have_their_leafs_type_and_shape(device: str) -> None:
    x = lucid_gpu.ones(3, 1, dtype=lucid_gpu.float16, device=device, requires_grad=True)
    y = lucid_gpu.ones(4, dtype=lucid_gpu.float64, device=device, requires_grad=True)
    z = lucid_gpu.ones((), device=device, requires_grad=True)
    (x * y * z).sum().backward()
    for t, total in ((x, 4.0), (y, 3.0), (z, 12.0)):
        assert (t.grad.dtype, t.grad.shape) == (t.dtype, t.shape)
        assert t.grad.reshape(-1)[0].item() == total


def test_gradients_through_steps_are_zero_not_none(device: str) -> None:
    x = leaf(1.5, device=device)
    (x.floor() + x.detach()).sum().backward()
    assert x.grad.tolist() == [0.0]


# --- names ----------------------------------------------------------------------------------------


def test_nodes_are_named_after_their_op(device: str) -> None:
    x = leaf(1.0, 2.0, device=device)
    for y, name in (
        (x * 2, "MulBackward0"),
        (x.exp(), "ExpBackward0"),
        (x + x.exp(), "AddBackward0"),
        (x.sum(), "SumBackward0"),
        (x.double(), "ToCopyBackward0"),
        (x[0], "SelectBackward0"),
        (x.reshape(2, 1), "ViewBackward0"),
    ):
        assert y.grad_fn.name() == name
        assert type(y.grad_fn).__name__ == name
        assert name in repr(y.grad_fn)
        y.tolist()
        assert y.grad_fn.name() == name


def test_the_graph_can_be_walked(device: str) -> None:
    x = leaf(1.0, device=device)
    y = (x * 2).sum()
    node, found = y.grad_fn, []
    while node is not None:
        found.append(node.name())
        node = node.next_functions[0][0] if node.next_functions else None
    assert found == ["SumBackward0", "MulBackward0", "AccumulateGrad"]
    assert y.grad_fn.next_functions[0][0].next_functions[0][0].variable is x


MISUSE: dict[str, tuple[Any, str]] = {
    "no scalar": (
        lambda m: (m.ones(2, requires_grad=True) * 2).backward(),
        "grad can be implicitly created only for scalar outputs",
    ),
    "complex scalar": (
        lambda m: (m.ones(1, requires_grad=True) * 1j).backward(),
        "grad can be implicitly created only for real scalar outputs",
    ),
    "nothing requires grad": (
        lambda m: m.ones(1).backward(),
        "element 0 of tensors does not require grad and does not have a grad_fn",
    ),
    "wrong shape": (
        lambda m: (m.ones(2, requires_grad=True) * 2).backward(m.ones(3)),
        "Mismatch in shape: grad_output[0] has a shape of",
    ),
    "wrong kind": (
        lambda m: (m.ones(2, requires_grad=True) * 2).backward(3),
        "gradients can be either Tensors",
    ),
    "grad of a constant": (
        lambda m: m.autograd.grad(m.ones(1, requires_grad=True) * 2, m.ones(1)),
        "One of the differentiated Tensors does not require grad",
    ),
    "no inputs": (
        lambda m: m.autograd.grad(m.ones(1, requires_grad=True) * 2, []),
        "`inputs` argument to `grad()` cannot be empty",
    ),
    "empty inputs of backward": (
        lambda m: (m.ones(1, requires_grad=True) * 2).backward(inputs=[]),
        "`inputs` argument to `backward()` cannot be empty",
    ),
    "contradicting arguments": (
        lambda m: m.autograd.grad(
            m.ones(1, requires_grad=True) * 2,
            m.ones(1, requires_grad=True),
            allow_unused=False,
            materialize_grads=True,
        ),
        "Expected allow_unused to be True or not passed when materialize_grads=True",
    ),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_in_torch(name: str) -> None:
    function, words = MISUSE[name]
    same_error(function, words)


@pytest.mark.parametrize("eagerly", [False, True])
@pytest.mark.parametrize(
    ("op", "slope"),
    [
        (lambda x, k: x * k, lambda k: k),
        (lambda x, k: x / k, lambda k: 1 / k),
        (lambda x, k: (x + 1) * k, lambda k: k),
        (lambda x, k: lucid_gpu.ones_like(x).sub(x, alpha=k), lambda k: -k),
    ],
    ids=["mul", "div", "pending", "alpha"],
)
def test_numbers_that_change_are_not_values_that_a_pass_frees(
    device: str, op, slope, eagerly: bool
) -> None:
    with lucid_gpu.fusion.eager(eagerly):
        for k in (2.0, 3.5, 0.25):  # from the second on, an argument of the program
            x = lucid_gpu.ones(3, device=device, requires_grad=True)
            y = op(x, k).sum()
            for passes in (1, 2):
                y.backward()
                assert x.grad.tolist() == pytest.approx([passes * slope(k)] * 3)


def test_inputs_that_a_function_made_are_asked_of_its_backward(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        seen: list[Any] = []

        class Twice(m.autograd.Function):  # type: ignore[misc]
            @staticmethod
            def forward(ctx: Any, x: Any, y: Any) -> Any:
                return x * 2, y * 2

            @staticmethod
            def backward(ctx: Any, g: Any, h: Any) -> Any:
                seen.append([g.tolist(), h.tolist()])
                return g * 2, h * 2

        x, y = (m.ones(1, device=device, requires_grad=True) for _ in range(2))
        a, b = Twice.apply(x, y)
        (a * 3).sum().backward(inputs=[a], retain_graph=True)
        m.autograd.grad((a * 3).sum(), a)
        return seen, a.grad, x.grad, y.grad

    gives([[[[3.0], [0.0]]], [6.0], None, None], scenario, device)


@pytest.mark.parametrize(("name", "orders"), [("square", 3), ("logsumexp", 1)])
def test_derivatives_that_are_zeros_by_formula(name: str, orders: int, device: str) -> None:
    def kinds(m: Any, where: str) -> list[tuple[bool, float] | None]:
        x = m.tensor(0.5, dtype=m.float64, device=where, requires_grad=True)
        y = x.square() if name == "square" else x.logsumexp(0)
        found: list[tuple[bool, float] | None] = []
        for _ in range(orders):
            (y,) = m.autograd.grad(y, x, create_graph=True, allow_unused=True)
            found.append(None if y is None else (y.requires_grad, y.item()))
            if y is None or not y.requires_grad:
                break
        return found

    assert kinds(lucid_gpu, device) == kinds(torch_module(), "cpu")

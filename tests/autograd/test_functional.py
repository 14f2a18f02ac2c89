"""autograd.functional: Jacobians, Hessians and their products, as PyTorch gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import array_of, same_error, torch_module

pytestmark = pytest.mark.usefixtures("on_device")

X = np.array([[0.3, -1.2, 0.7], [1.1, 0.4, -0.6]])
Y = np.array([0.5, -0.8, 1.3])
V = np.array([[1.0, 2.0, -1.0], [0.5, -0.5, 3.0]])


def two(x: Any, y: Any) -> Any:
    """Two outputs of two inputs; the second uses one of them."""
    return (x * y).sin(), (x * x).sum(1)


def scalar(x: Any, y: Any) -> Any:
    return (x * x * y).sum() + (y**3).sum()


def leaves(found: Any) -> list[Any]:
    if isinstance(found, tuple):
        return [leaf for part in found for leaf in leaves(part)]
    return [found]


def structure(found: Any) -> Any:
    return tuple(structure(part) for part in found) if isinstance(found, tuple) else None


def same(call: Any) -> None:
    """``call(module, functional, tensor)`` gives the same tree of numbers with both modules."""
    torch = torch_module()
    expected = call(torch, torch.autograd.functional, torch.tensor)
    got = call(lucid_gpu, lucid_gpu.autograd.functional, lucid_gpu.tensor)
    assert structure(got) == structure(expected)
    for mine, theirs in zip(leaves(got), leaves(expected), strict=True):
        assert tuple(mine.shape) == tuple(theirs.shape)
        assert mine.requires_grad == theirs.requires_grad
        np.testing.assert_allclose(array_of(mine), array_of(theirs), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("vectorize", [False, True])
def test_jacobian_of_two_outputs_by_two_inputs(create_graph: bool, vectorize: bool) -> None:
    same(lambda m, f, t: f.jacobian(two, (t(X), t(Y)), create_graph, vectorize=vectorize))


def test_structure_follows_function_and_inputs() -> None:
    same(lambda m, f, t: f.jacobian(lambda x: x.exp(), t(X)))
    same(lambda m, f, t: f.jacobian(lambda x: (x.exp(), x.sum()), t(X)))
    same(lambda m, f, t: f.jacobian(lambda x: x.exp(), (t(X),)))


def test_an_output_of_no_elements_has_an_empty_jacobian() -> None:
    for vectorize in (False, True):  # PyTorch stacks an empty list here, and raises
        jacobian = lucid_gpu.autograd.functional.jacobian
        found = jacobian(lambda x: x[:0], lucid_gpu.tensor(Y), vectorize=vectorize)
        assert found.shape == (0, 3)


@pytest.mark.parametrize("vectorize", [False, True])
def test_hessian(vectorize: bool) -> None:
    same(lambda m, f, t: f.hessian(scalar, (t(X), t(Y)), vectorize=vectorize))
    same(lambda m, f, t: f.hessian(lambda x: (x**3).sum(), t(X), vectorize=vectorize))
    same(lambda m, f, t: f.hessian(scalar, (t(X), t(Y)), True, vectorize=vectorize))


def test_jacobian_of_an_output_that_depends_on_no_input() -> None:
    same(lambda m, f, t: f.jacobian(lambda x: m.ones(2, dtype=m.float64), t(Y)))
    same(lambda m, f, t: f.jacobian(lambda x: m.ones(2, dtype=m.float64), t(Y), vectorize=True))


@pytest.mark.parametrize("create_graph", [False, True])
def test_products_with_vectors(create_graph: bool) -> None:
    same(lambda m, f, t: f.vjp(lambda x: (x**3).sum(1), t(X), t(Y[:2]), create_graph))
    same(lambda m, f, t: f.vjp(two, (t(X), t(Y)), (t(V), t(Y[:2])), create_graph))
    same(lambda m, f, t: f.jvp(two, (t(X), t(Y)), (t(V), t(Y)), create_graph))
    same(lambda m, f, t: f.vhp(scalar, (t(X), t(Y)), (t(V), t(Y)), create_graph))
    same(lambda m, f, t: f.hvp(scalar, (t(X), t(Y)), (t(V), t(Y)), create_graph))


def test_v_may_be_left_out_for_single_elements() -> None:
    same(lambda m, f, t: f.vjp(lambda x: x.exp().sum(), t(X)))
    same(lambda m, f, t: f.jvp(lambda x: x.exp(), t([0.5])))
    same(lambda m, f, t: f.vhp(lambda x: x.exp(), t([0.5])))
    same(lambda m, f, t: f.hvp(lambda x: x.exp(), t([0.5])))


def test_outputs_carry_a_graph_only_with_create_graph() -> None:
    x = lucid_gpu.tensor(X, requires_grad=True)
    functional = lucid_gpu.autograd.functional
    assert not functional.jacobian(lambda x: x**3, x).requires_grad
    kept = functional.jacobian(lambda x: x**3, x, create_graph=True)
    (second,) = lucid_gpu.autograd.grad(kept.sum(), x)
    np.testing.assert_allclose(array_of(second), 6 * X)


def test_create_graph_leads_back_to_the_users_own_tensors() -> None:
    def call(module: Any, functional: Any, tensor: Any) -> Any:
        x, v = tensor(X).requires_grad_(), tensor(V).requires_grad_()
        _, product = functional.vhp(lambda x: (x**4).sum(), x, v, create_graph=True)
        return module.autograd.grad(product.sum(), (x, v))

    same(call)


def test_inputs_are_never_changed() -> None:
    x = lucid_gpu.tensor(X)
    functional = lucid_gpu.autograd.functional
    for create_graph in (False, True):
        functional.jacobian(lambda x: x**2, x, create_graph)
        functional.hessian(lambda x: (x**2).sum(), x, create_graph)
        functional.vhp(lambda x: (x**2).sum(), x, x, create_graph)
        functional.jvp(lambda x: x**2, x, x, create_graph)
        assert not x.requires_grad and x.grad is None and x._version == 0
    y = lucid_gpu.tensor(X, requires_grad=True)
    functional.jacobian(lambda x: x**2, y)
    assert y.grad is None and y.is_leaf


def test_it_works_under_no_grad() -> None:
    def call(module: Any, functional: Any, tensor: Any) -> Any:
        with module.no_grad():
            return (
                functional.jacobian(lambda x: x**2, tensor(Y)),
                functional.jvp(lambda x: x**3, tensor(Y), tensor(Y)),
                functional.hvp(lambda x: (x**3).sum(), tensor(Y), tensor(Y)),
            )

    same(call)


STRICT = [
    ("jacobian", lambda m, x, y: 2 * x, "Output 0", "independent of input 1"),
    ("vjp", lambda m, x, y: (2 * x).sum(), "The output of", "independent of input 1"),
    ("jvp", lambda m, x, y: m.ones(3), "Output 0 of the user-provided function does not require"),
    ("hessian", lambda m, x, y: x.sum() + y.sum(), "the jacobian", "with respect to input 0"),
    ("vhp", lambda m, x, y: x.sum() + (y**2).sum(), "the jacobian", "with respect to input 0"),
    ("hvp", lambda m, x, y: (x**2).sum() + y.sum(), "the jacobian", "with respect to input 1"),
]


@pytest.mark.parametrize("case", STRICT, ids=[case[0] for case in STRICT])
def test_strict_names_what_is_independent(case: Any) -> None:
    name, function, *words = case

    def call(module: Any) -> Any:
        x, y = module.ones(3), module.ones(3)
        arguments: list[Any] = [lambda x, y: function(module, x, y), (x, y)]
        if name in ("jvp", "vhp", "hvp"):
            arguments.append((x, y))
        return getattr(module.autograd.functional, name)(*arguments, strict=True)

    same_error(call, *words)


def test_strict_with_create_graph_wants_a_jacobian_that_depends() -> None:
    def call(name: str, *vector: Any) -> Any:
        return lambda m: getattr(m.autograd.functional, name)(
            lambda x: 2 * x, m.ones(2), *[m.ones(2) for _ in vector], create_graph=True, strict=True
        )

    words = "The jacobian of the user-provided function is independent of input 0", "create_graph"
    same_error(call("jacobian"), *words)
    same_error(call("vjp", 1), *words)
    same_error(call("jvp", 1), *words)


WRONG = [
    (lambda m, f, x: f.jacobian(lambda x: x, [x]), "must be either a Tensor or a tuple"),
    (lambda m, f, x: f.jacobian(lambda x: [x], x), "outputs of the user-provided function given"),
    (lambda m, f, x: f.vjp(lambda x: x, (x, 1)), "the value at index 1 has type"),
    (lambda m, f, x: f.hessian(lambda x: x, x), "should contain a single element"),
    (lambda m, f, x: f.hessian(lambda x: (x.sum(),), x), "should return a single Tensor"),
    (lambda m, f, x: f.vjp(lambda x: x, x), "user-provided function returns a single Tensor"),
    (lambda m, f, x: f.jvp(lambda x: x, x), "input to the user-provided function is a single"),
    (lambda m, f, x: f.jvp(lambda x: x, x, m.ones(3)), "v has invalid size: should be torch.Size"),
    (lambda m, f, x: f.jvp(lambda x, y: x, (x, x), (x, m.ones(3))), "Entry 1 in v"),
    (lambda m, f, x: f.jvp(lambda x, y: x, (x, x), x), "invalid length: should be 2 but got 1"),
    (lambda m, f, x: f.vjp(lambda x: x, x, (x, x)), "The given v should contain a single Tensor"),
    (lambda m, f, x: f.jacobian(lambda x: x, x, strict=True, vectorize=True), "`strict=True`"),
    (lambda m, f, x: f.jacobian(lambda x: x, x, strategy="both"), "Expected strategy"),
    (lambda m, f, x: f.jacobian(lambda x: x, x, strategy="forward-mode"), "`vectorize=True`"),
    (
        lambda m, f, x: f.jacobian(
            lambda x: x, x, vectorize=True, create_graph=True, strategy="forward-mode"
        ),
        "are not supported together (yet)",
    ),
    (
        lambda m, f, x: f.hessian(lambda x: x.sum(), x, outer_jacobian_strategy="x"),
        "Expected strategy",
    ),
]


@pytest.mark.parametrize("case", WRONG, ids=[case[1][:40] for case in WRONG])
def test_wrong_calls_say_what_was_expected(case: Any) -> None:
    call, words = case
    same_error(lambda m: call(m, m.autograd.functional, m.ones(2)), words)


def test_forward_mode() -> None:
    def forward(name: str, *arguments: Any) -> Any:
        key = "strategy" if name == "jacobian" else "outer_jacobian_strategy"
        options: Any = {key: "forward-mode", "vectorize": True}
        return lambda m, f, t: tree_of(
            lambda x: x.detach(), getattr(f, name)(*[a(t) for a in arguments], **options)
        )

    same(forward("jacobian", lambda t: two, lambda t: (t(X), t(Y))))
    same(forward("jacobian", lambda t: lambda x: x.sin(), lambda t: t(X)))
    same(forward("hessian", lambda t: scalar, lambda t: (t(X), t(Y))))
    same(forward("hessian", lambda t: lambda x: (x**3).sum(), lambda t: t(X)))


def tree_of(function: Any, tree: Any) -> Any:
    """PyTorch's forward-mode Hessian carries a graph nobody asked for; look at values only."""
    if isinstance(tree, (tuple, list)):
        return tuple(tree_of(function, part) for part in tree)
    return function(tree)


def test_a_forward_mode_hessian_carries_no_graph() -> None:
    hessian = lucid_gpu.autograd.functional.hessian
    x = lucid_gpu.tensor(X)
    options: Any = {"outer_jacobian_strategy": "forward-mode", "vectorize": True}
    assert not hessian(lambda x: (x**3).sum(), x, **options).requires_grad
    assert not x.requires_grad


@pytest.mark.parametrize("inputs", [3, (1.0, 2.0)], ids=str)
@pytest.mark.parametrize("settings", [{}, {"strict": True}, {"strict": True, "vectorize": True}])
def test_the_sentences_of_hessian_name_it(inputs: Any, settings: dict[str, bool]) -> None:
    def scenario(m: Any) -> Any:
        return m.autograd.functional.hessian(lambda *x: x[0].sum(), inputs, **settings)

    same_error(scenario, "given to hessian must be either a Tensor or a tuple of Tensors")


def test_hessian_says_that_the_output_is_constant() -> None:
    def scenario(m: Any) -> Any:
        return m.autograd.functional.hessian(lambda x: m.ones(()), m.ones(2), strict=True)

    same_error(scenario, "Output 0 of the user-provided function does not require gradients")

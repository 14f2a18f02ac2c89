"""lucid_gpu.autograd.graph: nodes, gradient edges, versions of memory written elsewhere."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

import lucid_gpu
from lucid_gpu.autograd.graph import GradientEdge, Node, get_gradient_edge
from tests.oracle import gives, refuses


def leaf(m: Any, device: str, *values: float) -> Any:
    return m.tensor(list(values), device=device, requires_grad=True)


# --- nodes ----------------------------------------------------------------------------------------


def test_every_kind_of_node_is_a_node(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        class Own(m.autograd.Function):  # type: ignore[misc]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * 2

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * 2

        x = leaf(m, device, 1.0, 2.0)
        kind = m.autograd.graph.Node
        tensors = (x * 2, x.sum(), Own.apply(x))
        nodes = [t.grad_fn for t in tensors] + [tensors[0].grad_fn.next_functions[0][0]]
        for node in nodes:
            node.metadata["note"] = node.name()
            assert node.name().endswith(type(node).__name__)
            assert node.metadata["note"] == node.name()
        return [isinstance(n, kind) for n in nodes], isinstance(x, kind)

    gives([[True] * 4, False], scenario, device)


def test_nodes_are_numbered_in_the_order_they_were_made(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = leaf(m, device, 1.0)
        first = (x * 2).grad_fn
        second = (x * 3).grad_fn
        return first._sequence_nr() < second._sequence_nr()

    gives(True, scenario, device)


def test_nodes_know_what_gradients_arrive(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = leaf(m, device, 1.0, 2.0)
        many = m.stack([x, x]).unbind(0)
        nodes = ((x * 2).grad_fn, x.sum().grad_fn, many[0].grad_fn)
        return [
            [[list(d.shape), str(d.dtype).rpartition(".")[2]] for d in n._input_metadata]
            for n in nodes
        ]

    two, none = [[2], "float32"], [[], "float32"]
    gives([[two], [none], [two, two]], scenario, device)


# --- gradient edges -------------------------------------------------------------------------------


@pytest.mark.parametrize("realized", [False, True])
def test_an_edge_stands_for_its_tensor_as_input_of_grad(realized: bool, device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        edge_of = m.autograd.graph.get_gradient_edge
        x = leaf(m, device, 1.0, 2.0)
        h = x * 2
        if realized:
            h.tolist()
        edges = edge_of(h), edge_of(x)
        assert edges[0].node is h.grad_fn and edges[0].output_nr == 0
        return m.autograd.grad((h * h).sum(), [*edges, h])

    gives([[4.0, 8.0], [8.0, 16.0], [4.0, 8.0]], scenario, device)


def test_an_edge_keeps_the_place_of_a_tensor_nobody_holds(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        seen: list[Any] = []
        h = leaf(m, device, 1.0, 2.0) * 2
        h.register_hook(lambda g: seen.append(g.tolist()))
        y = (h * h).sum()
        edge = m.autograd.graph.get_gradient_edge(h)
        del h
        return m.autograd.grad(y, edge), seen

    gives([[[4.0, 8.0]], [[4.0, 8.0]]], scenario, device)


def test_an_edge_stands_for_its_tensor_as_output(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        edge_of = m.autograd.graph.get_gradient_edge
        x = leaf(m, device, 1.0, 2.0)
        h = x * x
        edge, scalar = edge_of(h), edge_of(h.sum())
        ones = m.ones(2, device=device)
        by_x = m.autograd.grad(edge, x, ones, retain_graph=True)
        m.autograd.backward(scalar, retain_graph=True)
        m.autograd.backward([edge, h], [ones, ones])
        return by_x, x.grad

    gives([[[2.0, 4.0]], [6.0, 12.0]], scenario, device)


def test_a_leafs_edge_as_output(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = leaf(m, device, 1.0, 2.0)
        edge = m.autograd.graph.get_gradient_edge(x)
        m.autograd.backward(edge, m.ones(2, device=device))
        return x.grad

    gives([1.0, 1.0], scenario, device)


def test_edges_as_inputs_of_backward(device: str) -> None:
    """A leaf's gradient is added to its ``.grad``; nobody keeps that of another tensor."""

    def scenario(m: Any, device: str) -> Any:
        edge_of = m.autograd.graph.get_gradient_edge
        x, w = leaf(m, device, 1.0), leaf(m, device, 2.0)
        h = x * w
        y = (h * h).sum()
        y.backward(inputs=[edge_of(h)], retain_graph=True)
        y.backward(inputs=edge_of(x))
        return x.grad, w.grad, h.retains_grad

    gives([[8.0], None, False], scenario, device)


def test_an_edge_may_be_made_by_hand(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        parts = leaf(m, device, 1.0, 2.0).unbind(0)
        edge = m.autograd.graph.GradientEdge(parts[0].grad_fn, 1)
        return m.autograd.grad(parts[1] * 3, edge)

    gives([3.0], scenario, device)


def test_a_custom_functions_edge(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        class Own(m.autograd.Function):  # type: ignore[misc]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x.exp(), x * x

            @staticmethod
            def backward(ctx: Any, g: Any, h: Any) -> Any:
                return h * 2 * ctx.saved_tensors[0]

        x = leaf(m, device, 1.0, 2.0)
        edge = m.autograd.graph.get_gradient_edge(Own.apply(x)[1])
        return edge.output_nr, m.autograd.grad(edge, x, m.ones(2, device=device))

    gives([1, [[2.0, 4.0]]], scenario, device)


REFUSED: dict[str, tuple[Any, str]] = {
    "no gradient": (
        lambda m, h: m.autograd.graph.get_gradient_edge(h.detach()),
        "It is not possible to get the gradient edge for a Tensor that does not require gradients",
    ),
    "implicit gradient": (
        lambda m, h: m.autograd.backward(m.autograd.graph.get_gradient_edge(h)),
        "grad can be implicitly created only for scalar outputs",
    ),
    "wrong shape": (
        lambda m, h: m.autograd.backward(m.autograd.graph.get_gradient_edge(h), m.ones(3)),
        "Mismatch in shape: grad_output[0] has a shape of",
    ),
    "unused": (
        lambda m, h: m.autograd.grad((h * 2).sum(), m.autograd.graph.get_gradient_edge(h + 1)),
        "The differentiated Tensor at index 0 appears to not have been used in the graph.",
    ),
    "materialized": (
        lambda m, h: m.autograd.grad(
            (h * 2).sum(), m.autograd.graph.get_gradient_edge(h + 1), materialize_grads=True
        ),
        "materialize_grads cannot be used when the given input is a GradientEdge",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_edges_that_do_not_fit_are_refused(name: str) -> None:
    function, words = REFUSED[name]
    refuses(RuntimeError, words, lambda m, d: function(m, leaf(m, d, 1.0, 2.0) * 2))


def test_an_edge_is_a_named_tuple(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        return m.autograd.graph.GradientEdge._fields

    gives(["node", "output_nr", "ownership_token"], scenario, device)
    node, number, token = get_gradient_edge(leaf(lucid_gpu, device, 1.0) * 2)
    assert isinstance(node, Node) and (number, token) == (0, None)
    assert GradientEdge(node, 0).node is node


def test_an_edge_dies_with_its_last_holder(device: str) -> None:
    h = leaf(lucid_gpu, device, 1.0).exp()
    edge = get_gradient_edge(h)
    died = weakref.ref(edge.node)
    (h * 2).sum().backward()
    del edge, h
    gc.collect()
    assert died() is None


# --- versions -------------------------------------------------------------------------------------


def test_increment_version_counts_for_one_tensor_or_several(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        a, b, x = m.ones(2, device=device), m.ones(2, device=device), leaf(m, device, 1.0)
        m.autograd.graph.increment_version(a)
        m.autograd.graph.increment_version([a, b])
        m.autograd.graph.increment_version(x)  # a leaf that requires grad is no obstacle
        return a._version, b._version, x._version

    gives([2, 1, 1], scenario, device)


MODIFIED = (
    "one of the variables needed for gradient computation has been modified by an inplace operation"
)


@pytest.mark.parametrize("realized", [False, True])
def test_what_was_saved_before_is_refused_afterwards(realized: bool, device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        h = leaf(m, device, 1.0, 2.0) * 1
        h.tolist()
        y = h * h
        if realized:
            y.tolist()
        m.autograd.graph.increment_version(h)
        y.sum().backward()

    refuses(RuntimeError, MODIFIED, scenario, device)


def test_a_result_of_an_op_that_saves_it_is_refused_too(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        y = leaf(m, device, 1.0, 2.0).exp()
        y.tolist()
        z = y * 2
        m.autograd.graph.increment_version(y)
        z.sum().backward()

    refuses(RuntimeError, MODIFIED, scenario, device)


def test_a_pending_value_refuses_it_too(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        h = leaf(m, device, 1.0, 2.0) * 3
        y = h * h
        m.autograd.graph.increment_version(h)
        y.sum().backward()

    refuses(RuntimeError, MODIFIED, scenario, device)


def test_a_matmul_refuses_it_too(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        a, b = m.ones(2, 2, device=device), m.ones(2, 2, device=device).requires_grad_()
        y = a @ b
        m.autograd.graph.increment_version(a)
        y.sum().backward()

    refuses(RuntimeError, MODIFIED, scenario, device)


def test_what_is_computed_afterwards_is_right(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = leaf(m, device, 1.0, 2.0)
        h = x * 2
        view = h[:1]
        m.autograd.graph.increment_version(h)
        (h * h).sum().backward(retain_graph=True)
        (view * view).sum().backward()
        return x.grad, h._version, view._version

    gives([[16.0, 16.0], 1, 1], scenario, device)


def test_a_kernels_write_is_seen_by_ops_afterwards() -> None:
    x = lucid_gpu.ones(3)
    pending = x * 2
    memory = x.numpy()
    memory[...] = 5  # a kernel of the user's
    lucid_gpu.autograd.graph.increment_version(x)
    assert (x * 2).tolist() == [10.0] * 3
    assert pending.tolist() == [2.0] * 3


def test_versions_are_tensors(device: str) -> None:
    refuses(
        RuntimeError,
        "increment_version expect a Iterable[Tensor] as input",
        lambda m, d: m.autograd.graph.increment_version(3),
    )
    refuses(
        RuntimeError,
        "increment_version expects each element of the iterable to be a tensor",
        lambda m, d: m.autograd.graph.increment_version([3]),
    )


def test_a_node_can_be_called(device: str) -> None:
    x = lucid_gpu.tensor([1.0, 2.0], device=device, requires_grad=True)
    g = lucid_gpu.ones(2, device=device)
    found, number = (x * 3).grad_fn(g)
    assert found.tolist() == [3.0, 3.0] and number is None
    left, right = (x.exp() * x).grad_fn(g)
    assert left.tolist() == [1.0, 2.0]
    assert lucid_gpu.allclose(right, x.exp())
    assert x.sigmoid().grad_fn(g).shape == (2,)
    both = lucid_gpu.stack([x, x]).grad_fn(lucid_gpu.ones(2, 2, device=device))
    assert [t.tolist() for t in both] == [[1, 1]] * 2
    with pytest.raises(TypeError, match="expected 1 arguments, got 0 instead"):
        x.sum().grad_fn()
    with pytest.raises(TypeError, match="argument 0 is not a Variable"):
        (x * 3).grad_fn(1)

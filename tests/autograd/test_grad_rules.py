"""Section grad and backward of the specification: the exact rules of their arguments."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

import lucid_gpu
from tests.oracle import gives, refuses


def leaf(m: Any, device: str, *values: float) -> Any:
    return m.tensor(list(values), device=device, requires_grad=True)


def counting(m: Any) -> Any:
    """A Function that counts how often it goes backward."""

    class Counts(m.autograd.Function):  # type: ignore[misc]
        runs = 0

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            Counts.runs += 1
            return g * 2

    return Counts


# --- what grad touches and runs -------------------------------------------------------------------


def test_grad_touches_no_dot_grad(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x, w = leaf(m, device, 1.0, 2.0), leaf(m, device, 3.0, 4.0)
        x.grad = m.ones(2, device=device)
        h = x * w
        h.retain_grad()
        found = m.autograd.grad(h.sum(), (x, h))
        return found, x.grad, w.grad, h.grad

    gives([[[3.0, 4.0], [1.0, 1.0]], [1.0, 1.0], None, [1.0, 1.0]], scenario, device)


def test_grad_runs_no_unneeded_node(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        f, g = counting(m), counting(m)
        x, w = leaf(m, device, 1.0), leaf(m, device, 2.0)
        found = m.autograd.grad((f.apply(x) * g.apply(w)).sum(), x)
        return found, f.runs, g.runs

    gives([[[8.0]], 1, 0], scenario, device)


def test_grad_by_an_intermediate_stops_there(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        f = counting(m)
        x = leaf(m, device, 1.0)
        h = f.apply(x)
        found = m.autograd.grad((h * h).sum(), h)
        return found, f.runs

    gives([[[4.0]], 0], scenario, device)


def test_backward_with_inputs_runs_and_fills_nothing_else(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        f, g = counting(m), counting(m)
        x, w = leaf(m, device, 1.0), leaf(m, device, 2.0)
        (f.apply(x) * g.apply(w)).sum().backward(inputs=[x])
        return x.grad, w.grad, f.runs, g.runs

    gives([[8.0], None, 1, 0], scenario, device)


# --- inputs ---------------------------------------------------------------------------------------


def test_allow_unused_gives_none(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x, unused = leaf(m, device, 1.0), leaf(m, device, 1.0, 2.0)
        return m.autograd.grad((x * 2).sum(), (x, unused), allow_unused=True)

    gives([[2.0], None], scenario, device)


def test_unused_inputs_are_refused_by_number(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x, unused = leaf(m, device, 1.0), leaf(m, device, 1.0, 2.0)
        m.autograd.grad((x * 2).sum(), (x, unused))

    words = (
        "The differentiated Tensor at index 1 appears to not have been used in the graph. Set "
        "allow_unused=True if this is the desired behavior."
    )
    refuses(RuntimeError, words, scenario, device)


@pytest.mark.parametrize("create_graph", [False, True])
def test_materialize_grads_gives_zeros(create_graph: bool, device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x, unused = leaf(m, device, 1.0), leaf(m, device, 1.0, 2.0)
        found = m.autograd.grad(
            (x * 2).sum(), (x, unused), materialize_grads=True, create_graph=create_graph
        )
        return found, found[1].requires_grad

    gives([[[2.0], [0.0, 0.0]], create_graph], scenario, device)


def test_materialize_grads_contradicts_allow_unused_false(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = leaf(m, device, 1.0)
        m.autograd.grad(x * 2, x, allow_unused=False, materialize_grads=True)

    words = "Expected allow_unused to be True or not passed when materialize_grads=True"
    refuses(ValueError, words, scenario, device)


def test_no_inputs_are_refused(device: str) -> None:
    refuses(
        RuntimeError,
        "`inputs` argument to `grad()` cannot be empty",
        lambda m, d: m.autograd.grad(leaf(m, d, 1.0) * 2, []),
        device,
    )
    refuses(
        RuntimeError,
        "`inputs` argument to `backward()` cannot be empty",
        lambda m, d: (leaf(m, d, 1.0) * 2).backward(inputs=[]),
        device,
    )


def test_a_single_tensor_as_inputs(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x, w = leaf(m, device, 1.0), leaf(m, device, 2.0)
        y = (x * w).sum()
        found = m.autograd.grad(y, x, retain_graph=True)
        y.backward(inputs=w)
        return found, x.grad, w.grad

    gives([[[2.0]], None, [1.0]], scenario, device)


def test_the_same_input_twice(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = leaf(m, device, 1.0)
        return m.autograd.grad((x * 2).sum(), [x, x])

    gives([[2.0], [2.0]], scenario, device)


def test_a_dictionary_of_inputs(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x, w = leaf(m, device, 1.0), leaf(m, device, 2.0)
        y = (x * w).sum()
        found = m.autograd.grad(y, {"x": x, "w": w}, retain_graph=True)
        y.backward(inputs={"w": w})
        return found, x.grad, w.grad

    gives([{"x": [2.0], "w": [1.0]}, None, [1.0]], scenario, device)


def test_other_mappings_are_refused(device: str) -> None:
    def by_grad(m: Any, device: str) -> Any:
        x = leaf(m, device, 1.0)
        m.autograd.grad(x * 2, OrderedDict(x=x))

    def by_backward(m: Any, device: str) -> Any:
        x = leaf(m, device, 1.0)
        (x * 2).backward(inputs=OrderedDict(x=x))

    for scenario in (by_grad, by_backward):
        refuses(TypeError, "must be a dict, not OrderedDict", scenario, device)


def test_inputs_that_are_no_tensors_are_refused(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        m.autograd.grad(leaf(m, device, 1.0) * 2, [3])

    words = "all inputs have to be Tensors or GradientEdges, but got int"
    refuses(RuntimeError, words, scenario, device)


def test_inputs_must_require_grad(device: str) -> None:
    refuses(
        RuntimeError,
        "One of the differentiated Tensors does not require grad",
        lambda m, d: m.autograd.grad(leaf(m, d, 1.0) * 2, m.ones(1, device=d)),
        device,
    )
    refuses(
        RuntimeError,
        "can't retain_grad on Tensor that has requires_grad=False",
        lambda m, d: (leaf(m, d, 1.0) * 2).backward(inputs=[m.ones(1, device=d)]),
        device,
    )


def test_backward_ignores_inputs_it_does_not_reach(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x, unused = leaf(m, device, 1.0), leaf(m, device, 1.0)
        (x * 2).backward(inputs=[x, unused])
        return x.grad, unused.grad

    gives([[2.0], None], scenario, device)


# --- outputs and cotangents -----------------------------------------------------------------------


def test_implicit_gradients_only_for_real_scalars(device: str) -> None:
    refuses(
        RuntimeError,
        "grad can be implicitly created only for scalar outputs",
        lambda m, d: (leaf(m, d, 1.0, 2.0) * 2).backward(),
        device,
    )
    refuses(
        RuntimeError,
        "grad can be implicitly created only for real scalar outputs but got",
        lambda m, d: (leaf(m, d, 1.0) * 1j).sum().backward(),
        device,
    )


def test_a_tensor_of_one_element_counts_as_a_scalar(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = leaf(m, device, 3.0)
        return m.autograd.grad((x * 2).reshape(1, 1, 1), x)

    gives([[2.0]], scenario, device)


def test_a_cotangent_takes_the_outputs_type(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        found = []
        for d in (m.float64, m.int64, m.float16):
            x = leaf(m, device, 1.0, 2.0)
            (x * 2).backward(m.ones(2, dtype=d, device=device))
            found.append([x.grad.tolist(), str(x.grad.dtype).rpartition(".")[2]])
        return found

    gives([[[2.0, 2.0], "float32"]] * 3, scenario, device)


def test_a_cotangent_of_another_shape_is_refused_by_number(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        y = leaf(m, device, 1.0, 2.0) * 2
        m.autograd.backward([y, y], [m.ones(3, device=device), m.ones(2, device=device)])

    refuses(RuntimeError, "Mismatch in shape: grad_output[0] has a shape of", scenario, device)
    y, ones = leaf(lucid_gpu, device, 1.0, 2.0) * 2, lucid_gpu.ones(2, device=device)
    with pytest.raises(
        RuntimeError, match=r"grad_output\[1\] has a shape of .*3.* and output\[1\]"
    ):
        lucid_gpu.autograd.backward([y, y], [ones, lucid_gpu.ones(3, device=device)])


def test_a_complex_cotangent_of_a_real_output_is_refused(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        (leaf(m, device, 1.0) * 2).backward(m.ones(1, dtype=m.complex64, device=device))

    words = "both grad_output and output are required to have the same dtype"
    refuses(RuntimeError, words, scenario, device)


def test_too_few_cotangents_are_refused(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        y = (leaf(m, device, 1.0) * 2).sum()
        m.autograd.backward([y, y], [m.ones((), device=device)])

    refuses(RuntimeError, "got 2 tensors and 1 gradients", scenario, device)


def test_an_output_without_a_history_is_refused_by_number(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        y = (leaf(m, device, 1.0) * 2).sum()
        m.autograd.backward([y, m.ones((), device=device)])

    words = "element 1 of tensors does not require grad and does not have a grad_fn"
    refuses(RuntimeError, words, scenario, device)


def test_what_is_no_tensor_has_no_gradient(device: str) -> None:
    refuses(TypeError, "not iterable", lambda m, d: m.autograd.backward(None), device)
    refuses(TypeError, "not iterable", lambda m, d: m.autograd.grad(3, leaf(m, d, 1.0)), device)


def test_nothing_to_go_backward_from_does_nothing(device: str) -> None:
    gives(None, lambda m, d: m.autograd.backward([]), device)
    refuses(
        RuntimeError,
        "appears to not have been used in the graph",
        lambda m, d: m.autograd.grad([], leaf(m, d, 1.0)),
        device,
    )


# --- deprecated arguments -------------------------------------------------------------------------


def test_grad_variables_is_the_old_name_of_grad_tensors(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = leaf(m, device, 1.0, 2.0)
        with pytest.warns(FutureWarning, match="`grad_variables` is deprecated"):
            m.autograd.backward([x * 2], grad_variables=[m.ones(2, device=device)])
        return x.grad

    def both(m: Any, device: str) -> Any:
        with pytest.warns(FutureWarning):
            ones = [m.ones(1, device=device)]
            m.autograd.backward([leaf(m, device, 1.0) * 2], ones, grad_variables=ones)

    gives([2.0, 2.0], scenario, device)
    refuses(RuntimeError, "Please only use `grad_tensors`.", both, device)


def test_only_inputs_is_ignored(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = leaf(m, device, 1.0)
        with pytest.warns(FutureWarning, match="only_inputs argument is deprecated"):
            return m.autograd.grad(x * 2, x, only_inputs=False)

    gives([[2.0]], scenario, device)


def test_arguments_by_position(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x, unused = leaf(m, device, 1.0), leaf(m, device, 1.0)
        y = x * 2
        ones = m.ones(1, device=device)
        found = m.autograd.grad(y, [x, unused], ones, True, False, True, True, False, False)
        y.backward(ones, True, False, [x])
        m.autograd.backward(y, ones, True, False, None, [x])
        return found, x.grad

    gives([[[2.0], None], [4.0]], scenario, device)


# --- batches of cotangents ------------------------------------------------------------------------


def test_is_grads_batched_gives_a_gradient_a_row(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = leaf(m, device, 1.0, 2.0)
        rows = m.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], device=device)
        (by_rows,) = m.autograd.grad(x * x, x, rows, is_grads_batched=True)
        ones = m.ones(2, device=device)
        (of_scalar,) = m.autograd.grad((x * 2).sum(), x, ones, is_grads_batched=True)
        return by_rows, of_scalar

    by_rows = [[2.0, 0.0], [0.0, 4.0], [2.0, 4.0]]
    gives([by_rows, [[2.0, 2.0], [2.0, 2.0]]], scenario, device)


def test_is_grads_batched_may_be_differentiated_again(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x = leaf(m, device, 1.0, 2.0)
        rows = m.tensor([[1.0, 0.0], [0.0, 1.0]], device=device)
        (j,) = m.autograd.grad(x**3, x, rows, is_grads_batched=True, create_graph=True)
        return m.autograd.grad(j.sum(), x)

    gives([[6.0, 12.0]], scenario, device)


def test_is_grads_batched_with_unused_inputs(device: str) -> None:
    def scenario(m: Any, device: str) -> Any:
        x, unused = leaf(m, device, 1.0, 2.0), leaf(m, device, 1.0)
        rows = m.ones(3, 2, device=device)
        y = x * 2
        kept = {"retain_graph": True, "is_grads_batched": True}
        none = m.autograd.grad(y, [unused], rows, allow_unused=True, **kept)
        zeros = m.autograd.grad(y, [unused], rows, materialize_grads=True, **kept)
        return none, zeros

    gives([[None], [[0.0]]], scenario, device)


BATCHED: dict[str, tuple[Any, Any, str]] = {
    "no batch": (
        lambda m, x: m.autograd.grad(x * 2, x, m.ones(2), is_grads_batched=True),
        RuntimeError,
        "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the "
        "batch dimension.",
    ),
    "wrong shape": (
        lambda m, x: m.autograd.grad(x * 2, x, m.ones(4, 3), is_grads_batched=True),
        RuntimeError,
        "but a mismatch was detected: grad_output[0] has a shape of",
    ),
    "no cotangent": (
        lambda m, x: m.autograd.grad((x * 2).sum(), x, is_grads_batched=True),
        ValueError,
        "Got in_dim=0 for some input, but that input is a Tensor of dimensionality 0",
    ),
    "batches of two sizes": (
        lambda m, x: m.autograd.grad(
            [x * 2, x * 3], x, [m.ones(3, 2), m.ones(4, 2)], is_grads_batched=True
        ),
        ValueError,
        "Expected all tensors to have the same size in the mapped dimension, got sizes [3, 4]",
    ),
}


@pytest.mark.parametrize("name", BATCHED)
def test_batches_that_do_not_fit_are_refused(name: str) -> None:
    function, kind, words = BATCHED[name]
    refuses(kind, words, lambda m, d: function(m, leaf(m, d, 1.0, 2.0)))


# --- retain_graph ---------------------------------------------------------------------------------


def test_create_graph_retains_the_graph_unless_told_otherwise(device: str) -> None:
    def kept(m: Any, device: str) -> Any:
        x = leaf(m, device, 2.0)
        y = (x**3).sum()
        m.autograd.grad(y, x, create_graph=True)
        return m.autograd.grad(y, x)

    def freed(m: Any, device: str) -> Any:
        x = leaf(m, device, 2.0)
        y = (x**3).sum()
        m.autograd.grad(y, x, create_graph=True, retain_graph=False)
        m.autograd.grad(y, x)

    gives([[12.0]], kept, device)
    refuses(RuntimeError, "Trying to backward through the graph a second time", freed, device)


def test_roots_may_come_from_an_iterator(device: str) -> None:
    x = leaf(lucid_gpu, device, 1.0)
    lucid_gpu.autograd.backward(iter([x * 2, x * 3]))
    assert x.grad.tolist() == [5.0]


def test_passes_for_inputs_one_after_another_leave_each_other_what_they_need(device: str) -> None:
    def slopes(m: Any, device: str) -> Any:
        leaves = [leaf(m, device, 1.0, 2.0) for _ in range(6)]
        inside = [x * i + x * x for i, x in enumerate(leaves)]
        loss = sum([v * i for i, v in enumerate(inside)]).sum()
        found = [s for i in (0, 2, 4) for s in m.autograd.grad(loss, inside[i : i + 2])]
        m.autograd.backward(inside, found)
        return [*found, *[x.grad for x in leaves]]

    gives([[float(i)] * 2 for i in range(6)] + [[i * (i + 2.0), i * (i + 4.0)] for i in range(6)],
          slopes, device)  # fmt: skip


def test_a_second_pass_for_the_same_input_needs_retain_graph(device: str) -> None:
    def again(m: Any, device: str) -> Any:
        x = leaf(m, device, 2.0)
        z = x * 2
        y = (z.exp() + x).sum()
        m.autograd.grad(y, z)
        m.autograd.grad(y, z)

    refuses(RuntimeError, "Trying to backward through the graph a second time", again, device)

"""Traced graphs beside PyTorch's: nodes, source, values and gradients."""

from __future__ import annotations

import copy
import math
import pickle
import threading
from typing import Any, NamedTuple

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import fx, nn
from lucid_gpu.nn import functional as F
from tests.fx.programs import STEPS, described, model, unprefixed
from tests.oracle import torch_module


def _inputs(module: Any) -> list[Any]:
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal((2, 3, 4)) for _ in range(2)]
    return [module.tensor(a).requires_grad_() for a in arrays]


def _gradients(module: Any, network: Any) -> list[Any]:
    inputs = _inputs(module)
    result = network(*inputs)
    total = (result["last"] ** 2).sum() + result["all"][1][0].sum() * result["all"][0].mean()
    leaves = [*inputs, *[p for _, p in sorted(network.named_parameters())]]
    gradients = module.autograd.grad(total, leaves, allow_unused=True)
    return [result["last"], *gradients]


@pytest.mark.parametrize("seed", range(12))
def test_a_random_module_is_traced_as_pytorch_traces_it(seed: int) -> None:
    torch = torch_module()
    theirs = torch.fx.symbolic_trace(model(torch, seed))
    ours = fx.symbolic_trace(model(lucid_gpu, seed))
    ours.graph.lint()
    assert described(ours.graph) == described(theirs.graph)
    assert unprefixed(ours.code) == unprefixed(theirs.code)
    expected = _gradients(torch, theirs)
    copies = [ours, copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))]
    for traced in [*copies, fx.Transformer(ours).transform()]:
        for value, wanted in zip(_gradients(lucid_gpu, traced), expected, strict=True):
            assert (value is None) == (wanted is None)
            if value is not None:
                np.testing.assert_allclose(
                    value.detach().numpy(), wanted.detach().numpy(), rtol=1e-10, atol=1e-12
                )


@pytest.mark.parametrize("name", sorted(STEPS))
def test_a_traced_step_gives_what_the_step_gives(name: str, device: str) -> None:
    class One(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held = model(lucid_gpu, 0)

        def forward(self, x: Any, y: Any) -> Any:
            return STEPS[name](lucid_gpu, self.held, x, y)

    network = One().to(device)
    network.held.plain = network.held.plain.to(device)
    if name in ("literal", "size"):  # makes a tensor on the CPU
        network, device = network.to("cpu"), "cpu"
    x, y = (lucid_gpu.tensor(t.detach().numpy(), device=device) for t in _inputs(lucid_gpu))
    traced = fx.symbolic_trace(network)
    np.testing.assert_array_equal(
        traced(x, y).detach().numpy(force=True), network(x, y).detach().numpy(force=True)
    )


def test_what_needs_a_value_is_refused_in_pytorchs_words() -> None:
    def branches(x: Any) -> Any:
        return x if x.sum() > 0 else -x

    def loops(x: Any) -> Any:
        return list(x)

    with pytest.raises(fx.TraceError, match="cannot be used as inputs to control flow"):
        fx.symbolic_trace(branches)
    with pytest.raises(fx.TraceError, match="Proxy object cannot be iterated"):
        fx.symbolic_trace(loops)
    with pytest.raises(RuntimeError, match="'len' is not supported in symbolic tracing"):
        fx.symbolic_trace(lambda x: count(x))
    with pytest.raises(NameError, match="module is not installed as a submodule"):
        fx.symbolic_trace(lambda x: nn.ReLU()(x))


def test_keywords_are_parameters_of_the_graph() -> None:
    def scaled(x: Any, *, shift: Any, scale: Any = 2) -> Any:
        return x * scale + shift

    traced = fx.symbolic_trace(scaled)
    assert [n.target for n in traced.graph.nodes if n.op == "placeholder"] == [
        "x",
        "shift",
        "scale",
    ]
    one = lucid_gpu.ones(2)
    assert traced(one, one, 3).tolist() == [4, 4]


def test_types_and_arguments_are_written_as_pytorch_writes_them() -> None:
    class Pair(NamedTuple):
        x: Any
        y: float

        def _custom_fx_repr_fn(self) -> str:
            return f"Pair({self.x}, {self.y})"

    def texts(m: Any) -> list[str]:
        def typed(x, y, z, v):
            return x

        kinds = (m.Tensor, m.nn.Parameter, m.Size, m.nn.Module, m.Tensor)
        typed.__annotations__ = dict(zip(("x", "y", "z", "v", "return"), kinds, strict=True))
        graph = m.fx.Graph()
        x = graph.placeholder("x")
        graph.output(graph.call_function(len, (Pair(x, 1.5),), {}))
        return [unprefixed(m.fx.symbolic_trace(typed).code), str(graph)]

    assert texts(lucid_gpu) == texts(torch_module())


def test_stars_are_refused() -> None:
    def starred(x: Any, *rest: Any) -> Any:
        return x + rest[0]

    with pytest.raises(NotImplementedError, match=r"starred takes \*rest: .*name the parameters"):
        fx.symbolic_trace(starred)


def test_concrete_arguments_are_values_and_checked() -> None:
    def chosen(x: Any, double: Any) -> Any:
        return x * 2 if double else x

    traced = fx.symbolic_trace(chosen, concrete_args={"double": True})
    assert traced(lucid_gpu.ones(1), True).tolist() == [2]
    with pytest.raises(AssertionError, match="has been specialized to have value True"):
        traced(lucid_gpu.ones(1), False)


def test_nested_concrete_arguments_are_taken_apart() -> None:
    def nested(pair: Any, named: Any) -> Any:
        return {"sum": pair[0] + pair[1], "scaled": named["x"] * 3}

    traced = fx.symbolic_trace(
        nested, concrete_args={"pair": (fx.PH, fx.PH), "named": {"x": fx.PH}}
    )
    one = lucid_gpu.ones(1)
    result = traced((one, one * 2), {"x": one})
    assert {k: v.tolist() for k, v in result.items()} == {"sum": [3], "scaled": [3]}
    assert len([n for n in traced.graph.nodes if n.op == "placeholder"]) == 3


def kept(x: Any) -> Any:
    """A function that tracing does not enter."""
    return x + 1 if bool((x > 0).all()) else x - 1


def entered(x: Any) -> Any:
    """One that it enters."""
    return x * 2


count = len
fx.wrap("kept")
fx.wrap("len")


def test_wrapped_functions_are_one_step_and_come_back() -> None:
    before = kept
    traced = fx.symbolic_trace(lambda x: kept(entered(x)) + len(x))
    assert kept is before and "len" not in globals()
    called = [n.target for n in traced.graph.nodes if n.op == "call_function"]
    assert before in called and len in called
    assert traced(lucid_gpu.ones(2)).tolist() == [5, 5]
    again = fx.symbolic_trace(traced)
    assert before in [n.target for n in again.graph.nodes]
    with pytest.raises(NotImplementedError, match="top level of a module"):
        fx.wrap("entered")


def test_functions_that_a_tracer_wraps() -> None:
    tracer = fx.Tracer(autowrap_functions=(entered,))
    graph = tracer.trace(lambda x: entered(x) + math.sqrt(x.shape[0]))
    assert [n.target for n in graph.nodes if n.op == "call_function"][:1] == [entered]
    assert math.sqrt in [n.target for n in graph.nodes]
    assert math.sqrt(4) == 2
    assert not hasattr(math.sqrt, "__wrapped__")


def test_a_leaf_is_what_the_tracer_says() -> None:
    class Deeper(fx.Tracer):
        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            return not isinstance(m, nn.Linear) and super().is_leaf_module(m, "")

    network = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    graph = Deeper().trace(network)
    assert [n.op for n in graph.nodes] == [
        *("placeholder", "get_attr", "get_attr", "call_function", "call_module", "output"),
    ]
    x = lucid_gpu.ones(1, 3)
    assert fx.GraphModule(network, graph)(x).tolist() == network(x).tolist()


def test_other_threads_are_not_traced() -> None:
    network, results = nn.Linear(2, 2), []

    class Waits(nn.Module):
        def forward(self, x: Any) -> Any:
            thread = threading.Thread(target=lambda: results.append(network(lucid_gpu.ones(2))))
            thread.start()
            thread.join()
            return x + 1

    graph = fx.Tracer().trace(Waits())
    assert isinstance(results[0], lucid_gpu.Tensor)
    assert [n.op for n in graph.nodes] == ["placeholder", "call_function", "output"]


def test_calls_of_python_functions_are_recorded_in_full() -> None:
    graph = fx.symbolic_trace(lambda x: F.dropout(x, training=False)).graph
    (call,) = [n for n in graph.nodes if n.op == "call_function"]
    assert call.target is F.dropout
    assert call.kwargs == {"p": 0.5, "training": False, "inplace": False}


@pytest.mark.parametrize("name", ["gelu", "linear", "softmax"])
def test_public_functions_are_traced(name: str) -> None:
    """They are callables of C where that was compiled."""
    graph = fx.symbolic_trace(getattr(F, name)).graph
    called = [node.target for node in graph.nodes if node.op == "call_function"]
    assert getattr(F, name) in called

"""Graphs run node by node, and made anew."""

from __future__ import annotations

from typing import Any

import pytest

import lucid_gpu
from lucid_gpu import fx, nn
from lucid_gpu.fx.passes.shape_prop import ShapeProp
from lucid_gpu.fx.proxy import GraphAppendingTracer
from lucid_gpu.nn import functional as F
from tests.fx.programs import model
from tests.oracle import torch_module


class _Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)

    def forward(self, x: Any) -> Any:
        return F.relu(self.bn(self.conv(x))).flatten(1).sum(-1)


def test_an_interpreter_gives_what_the_module_gives() -> None:
    traced = fx.symbolic_trace(model(lucid_gpu, 4))
    x, y = lucid_gpu.rand(2, 3, 4).double(), lucid_gpu.rand(2, 3, 4).double()
    run = fx.Interpreter(traced)
    assert run.run(x, y)["last"].tolist() == traced(x, y)["last"].tolist()
    assert len(run.env) <= 2  # values go after their last reader


def test_an_interpreter_sees_every_node() -> None:
    seen = []

    class Watches(fx.Interpreter):
        def run_node(self, n: Any) -> Any:
            seen.append(n.op)
            return super().run_node(n)

    traced = fx.symbolic_trace(_Network())
    Watches(traced).run(lucid_gpu.ones(1, 2, 4, 4))
    assert seen == [n.op for n in traced.graph.nodes]


def test_an_error_names_the_node() -> None:
    traced = fx.symbolic_trace(_Network())
    with pytest.raises(RuntimeError, match="While executing %conv : .num_users=1. = call_module"):
        fx.Interpreter(traced).run(lucid_gpu.ones(1, 5, 4, 4))
    with pytest.raises(RuntimeError, match="Expected positional argument for parameter x"):
        fx.Interpreter(traced).run()


def test_a_transformer_exchanges_functions() -> None:
    class Exchanges(fx.Transformer):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if target is F.relu:
                return super().call_function(lucid_gpu.sigmoid, args[:1], {})
            return super().call_function(target, args, kwargs)

    network = _Network()
    traced = Exchanges(fx.symbolic_trace(network)).transform()
    x = lucid_gpu.rand(1, 2, 4, 4)
    wanted = lucid_gpu.sigmoid(network.bn(network.conv(x))).flatten(1).sum(-1)
    assert traced(x).tolist() == wanted.tolist()


def test_a_decomposition_is_traced_by_proxies() -> None:
    graph = fx.symbolic_trace(_Network()).graph
    new, env = fx.Graph(), {}
    tracer = GraphAppendingTracer(new)
    for node in graph.nodes:
        if node.target is F.relu:
            proxy = fx.Proxy(env[node.args[0]], tracer)
            env[node] = ((proxy > 0) * proxy).node
        else:
            env[node] = new.node_copy(node, lambda n: env[n])
    network = _Network()
    x = lucid_gpu.rand(1, 2, 4, 4)
    rewritten = fx.GraphModule(network, new)
    network.eval()
    rewritten.eval()
    assert rewritten(x).tolist() == network(x).tolist()


def test_convolution_and_batch_norm_fold_into_one() -> None:
    network = _Network().eval()
    network.bn.running_mean.normal_()
    network.bn.running_var.uniform_(0.5, 2)
    traced = fx.symbolic_trace(network)
    for node in list(traced.graph.nodes):
        if node.target != "bn":
            continue
        conv, bn = traced.conv, traced.bn
        scale = bn.weight / (bn.running_var + bn.eps).sqrt()
        folded = nn.Conv2d(2, 3, 3)
        folded.weight = nn.Parameter(conv.weight * scale[:, None, None, None])
        folded.bias = nn.Parameter((conv.bias - bn.running_mean) * scale + bn.bias)
        traced.conv = folded
        node.replace_all_uses_with(node.args[0])
        traced.graph.erase_node(node)
    traced.delete_all_unused_submodules()
    traced.recompile()
    assert not hasattr(traced, "bn")
    x = lucid_gpu.rand(2, 2, 5, 5)
    assert lucid_gpu.allclose(traced(x), network(x), atol=1e-5)


def test_shapes_are_noted() -> None:
    torch = torch_module()
    noted = []
    for module in (lucid_gpu, torch):
        traced = module.fx.symbolic_trace(model(module, 6))
        prop = ShapeProp if module is lucid_gpu else None
        if prop is None:
            from torch.fx.passes.shape_prop import ShapeProp as prop
        ones = module.ones(2, 3, 4, dtype=module.float64)
        prop(traced).propagate(ones, ones)
        noted.append(
            [
                (n.name, tuple(m.shape), str(m.dtype).split(".")[-1], m.stride, m.requires_grad)
                for n in traced.graph.nodes
                if hasattr(m := n.meta.get("tensor_meta"), "stride")
            ]
        )
    assert noted[0] == noted[1]


def test_parts_of_a_graph_are_replaced() -> None:
    def network(x: Any, y: Any) -> Any:
        a = (x + y).relu()
        return (a + x).relu() * a

    traced = fx.symbolic_trace(network)
    found = fx.replace_pattern(
        traced, lambda x, y: (x + y).relu(), lambda x, y: (x - y).neg().exp()
    )
    assert len(found) == 2
    traced.graph.lint()
    x, y = lucid_gpu.rand(3), lucid_gpu.rand(3)
    a = (x - y).neg().exp()
    assert traced(x, y).tolist() == ((a - x).neg().exp() * a).tolist()


def test_a_pattern_whose_inside_is_read_elsewhere_is_no_match() -> None:
    def network(x: Any) -> Any:
        a = x.exp()
        return a.neg() + a

    traced = fx.symbolic_trace(network)
    assert not fx.replace_pattern(traced, lambda x: x.exp().neg(), lambda x: x)

"""Graphs made and changed by hand."""

from __future__ import annotations

import operator
from typing import Any

import pytest

import lucid_gpu
from lucid_gpu import fx, nn
from tests.oracle import torch_module


def _graph(module: object = lucid_gpu) -> tuple[object, object]:
    fx = module.fx  # type: ignore[attr-defined]
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.placeholder("y", default_value=3)
    doubled = graph.call_function(operator.mul, (x, 2))
    unused = graph.call_method("neg", (doubled,))
    graph.output(graph.call_function(operator.add, (doubled, y)))
    return graph, unused


def test_a_graph_made_by_hand_runs() -> None:
    graph, _ = _graph()
    module = fx.GraphModule({}, graph)
    assert module(lucid_gpu.ones(2)).tolist() == [5, 5]
    assert module(lucid_gpu.ones(2), 1).tolist() == [3, 3]


def test_a_graph_is_printed_as_pytorch_prints_it() -> None:
    theirs, ours = _graph(torch_module())[0], _graph()[0]
    assert str(ours) == str(theirs)
    assert ours.python_code("self").src == theirs.python_code("self").src


def test_dead_code_goes_and_users_are_kept() -> None:
    graph, unused = _graph()
    (doubled,) = unused.all_input_nodes
    assert list(doubled.users) == [unused, doubled.next.next]
    with pytest.raises(RuntimeError, match="Tried to erase Node mul but it still had 2 users"):
        graph.erase_node(doubled)
    assert graph.eliminate_dead_code()
    assert not graph.eliminate_dead_code()
    assert [n.name for n in graph.nodes] == ["x", "y", "mul", "add", "output"]
    assert list(doubled.users) == [doubled.next]


def test_nodes_are_inserted_replaced_and_moved() -> None:
    graph, _ = _graph()
    graph.eliminate_dead_code()
    x, y, mul, add, output = graph.nodes
    with graph.inserting_after(mul):
        relu = graph.call_function(lucid_gpu.relu, (mul,))
    mul.replace_all_uses_with(relu, lambda user: user is not relu)
    assert relu.args == (mul,) and add.args == (relu, y)
    assert x < mul < relu < add < output
    add.prepend(x)
    with pytest.raises(RuntimeError, match="was used before it has been defined"):
        graph.lint()
    y.prepend(x)
    graph.lint()
    with graph.inserting_before():
        assert graph.placeholder("first") is next(iter(graph.nodes))
    assert fx.GraphModule({}, graph)(0, lucid_gpu.ones(1), -4).tolist() == [-2]


def test_arguments_are_immutable_and_say_what_to_write() -> None:
    graph, _ = _graph()
    node = graph.call_function(lucid_gpu.cat, ([next(iter(graph.nodes))], 0))
    with pytest.raises(TypeError, match=r"new_args = \.\.\."):
        node.args[0].append(1)
    with pytest.raises(TypeError, match="does not support mutation"):
        node.kwargs["dim"] = 1
    assert isinstance(node.args[0], list)


def test_names_are_given_once_and_shadow_nothing() -> None:
    theirs, ours = torch_module().fx.Graph(), fx.Graph()
    for name in ("a", "a", "a_1", "sum", "x.weight", "0", "class", "getattr", "torch", "inf", ""):
        made = [g.create_node("get_attr", "t", name=name).name for g in (theirs, ours)]
        assert made[0] == made[1]
    assert ours.placeholder("maxPool2D").name == theirs.placeholder("maxPool2D").name


def test_copies_have_nodes_of_their_own() -> None:
    graph, _ = _graph()
    target = fx.Graph()
    values: dict[object, object] = {}
    target.output(target.graph_copy(graph, values))
    assert [n.name for n in target.nodes] == [n.name for n in graph.nodes]
    assert all(n.graph is target for n in target.nodes)
    target.lint()


def test_a_graph_module_holds_what_its_graph_names() -> None:
    root = nn.Module()
    root.used, root.unused = nn.Linear(2, 2), nn.Linear(2, 2)
    graph = fx.Graph()
    graph.output(graph.call_module("used", (graph.placeholder("x"),)))
    module = fx.GraphModule(root, graph)
    assert sorted(module.state_dict()) == ["used.bias", "used.weight"]
    assert module.add_submodule("more.inner", nn.ReLU())
    assert isinstance(module.more.inner, nn.ReLU)
    module.delete_all_unused_submodules()
    assert [name for name, _ in module.named_modules()] == ["", "used"]
    graph.nodes
    with graph.inserting_before(graph.output_node()):
        last = graph.call_method("neg", (graph.output_node().args[0],))
    graph.output_node().args = (last,)
    module.recompile()
    x = lucid_gpu.ones(2)
    assert module(x).tolist() == (-root.used(x)).tolist()
    with pytest.raises(RuntimeError, match="that target was not provided in ``root``"):
        fx.GraphModule({}, graph)


def test_the_line_that_failed_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    graph, _ = _graph()
    module = fx.GraphModule({}, graph)
    with pytest.raises(TypeError):
        module(object())
    assert "generated forward function" in capsys.readouterr().err


def _edited(module: Any) -> list[Any]:
    """What editing a graph by each of its methods gives."""
    fx, graph = module.fx, module.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    total = graph.call_function(operator.add, (x,))
    total.insert_arg(1, x)
    total.update_arg(0, y)
    scaled = graph.call_function(module.clamp, (total,), {"min": 5})
    scaled.update_kwarg("min", 2)
    graph.output(scaled)
    said: list[Any] = [str(graph), [n.name for n in graph.find_nodes(op="placeholder")]]
    said.append(graph.find_nodes(op="call_function", target=operator.add) == [total])
    with graph.on_generate_code(lambda before: lambda body: [*body, "# changed\n"]):
        said.append("# changed" in graph.python_code("self").src)
    said.append("# changed" in graph.python_code("self").src)
    traced = fx.GraphModule(module.nn.Module(), graph)
    given = [module.ones(2), module.ones(2) * 2]
    said += [fx.Interpreter(traced).boxed_run(given).tolist(), given]
    made: list[str] = []
    traced._register_create_node_hook(lambda node: made.append(f"+{node.name}"))
    traced._register_erase_node_hook(lambda node: made.append(f"-{node.name}"))
    traced._register_replace_node_hook(lambda old, new, user: made.append(f"{old} {new} {user}"))
    (last,) = traced.graph.find_nodes(op="output")
    with traced.graph.inserting_before(last):
        negated = traced.graph.call_method("neg", (y,))
    (clamped,) = traced.graph.find_nodes(op="call_function", target=module.clamp)
    clamped.replace_all_uses_with(negated)
    traced.graph.erase_node(clamped)
    return [*said, *made]


def test_each_way_to_edit_is_pytorchs() -> None:
    assert _edited(lucid_gpu) == _edited(torch_module())


def test_methods_are_exchanged_for_a_while() -> None:
    class Base:
        def name(self) -> str:
            return "base"

    class Other(Base):
        pass

    from lucid_gpu.fx.wrapping import Patcher

    with Patcher() as patcher:
        patcher.patch_method(Other, "name", lambda self: "other")
        assert (Other().name(), Base().name()) == ("other", "base")
    assert Other().name() == "base" and "name" not in vars(Other)


def test_a_table_of_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    _graph()[0].print_tabular()
    head, line, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["opcode", "name", "target", "args", "kwargs"] and set(line) == {
        "-",
        " ",
    }
    assert [row.split()[0] for row in rows[:2]] == ["placeholder", "placeholder"]

"""Modules that run a graph, by the source written of it."""

from __future__ import annotations

import copy
import inspect
import itertools
import linecache
import operator
import sys
import traceback
import weakref
from collections.abc import Callable
from typing import Any

from lucid_gpu.fx.codegen import BUILTINS, PythonCode, PyTreeCodeGen
from lucid_gpu.fx.graph import Graph
from lucid_gpu.fx.node import Node
from lucid_gpu.fx.tracer import Tracer
from lucid_gpu.nn import Module, Parameter
from lucid_gpu.ops.registry import attach
from lucid_gpu.tensor import Tensor

__all__ = ["GraphModule", "reduce_graph_module"]

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
_numbers = itertools.count()
_SOURCE = "<eval_with_key>."


def _run_source(src: str, names: dict[str, Any]) -> Callable[..., Any]:
    """The function ``forward`` of a source, whose lines tracebacks can show."""
    file = f"{_SOURCE}{next(_numbers)}"
    names = names.copy()
    exec(compile(src, file, "exec", dont_inherit=True), names)
    forward: Callable[..., Any] = names.pop("forward")
    linecache.cache[file] = (len(src), None, src.splitlines(keepends=True), file)
    weakref.finalize(forward, linecache.cache.pop, file, None)
    return forward


def _import_of(name: str, obj: Any) -> str:
    """The line that gives source one of its names."""
    if name in BUILTINS:
        return BUILTINS[name].import_str
    if isinstance(obj, str):  # an annotation that names a type
        return f"{name} = {obj!r}"
    if inspect.ismodule(obj):
        return f"import {obj.__name__} as {name}"
    module = obj.__module__
    path = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None) or obj._name
    if "<locals>" in path or "<lambda>" in path:
        raise RuntimeError(
            f"{path} of {module} is not found by its name: GraphModules whose code calls it are "
            "not pickled; define it at the top level of a module"
        )
    if "." in path:
        outer, _, rest = path.partition(".")
        return f"from {module} import {outer} as _outer\n{name} = _outer.{rest}"
    return f"from {module} import {path} as {name}"


def reduce_graph_module(body: dict[str, Any], import_block: str) -> Module:
    """What unpickling calls: the module of a state and the imports of its source."""
    names: dict[str, Any] = {}
    exec(compile(import_block, "<imports>", "exec", dont_inherit=True), names)
    return _restored(_run_source(body.pop("_code"), names), body)


def _restored(forward: Callable[..., Any], body: dict[str, Any]) -> Module:
    """A module whose graph is traced from its source again."""
    kind: Any = body.get("_tracer_cls") or Tracer

    class KeepModules(kind):
        def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
            return True  # what the graph called, it calls

    held = type("_Held", (_CodeOnlyModule,), {"forward": forward})(body)
    graph = KeepModules().trace(held)
    graph._tracer_cls = kind
    restored = GraphModule(held, graph, body.get("_graphmodule_cls_name", "GraphModule"))
    for name, value in body.items():
        if not hasattr(restored, name):
            setattr(restored, name, value)
    return restored


class _CodeOnlyModule(Module):
    """The attributes of a `GraphModule` without its graph."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


def _put(module: Module, name: str, value: Any) -> None:
    """Set an attribute; a tensor that is no parameter becomes a buffer."""
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        module.register_buffer(name, value)
    else:
        setattr(module, name, value)


def _copy_attr(from_module: Module, to_module: Module, target: str) -> None:
    """Give a module what another has under a dotted name; modules between are made."""
    *path, last = target.split(".")
    source: Any = from_module
    for part in path:
        inner, there = getattr(source, part), getattr(to_module, part, None)
        if inner is there:  # a module above was copied, and all below with it
            return
        if there is None:
            there = Module()
            setattr(to_module, part, there)
        source, to_module = inner, there
    _put(to_module, last, getattr(source, last))


def _assign_attr(from_obj: Any, to_module: Module, target: str) -> None:
    """Set an attribute of a dotted name; modules between are made where missing."""
    *path, last = target.split(".")
    for part in path:
        there = getattr(to_module, part, None)
        if there is None:
            there = Module()
            setattr(to_module, part, there)
        to_module = there
    _put(to_module, last, from_obj)


def _get_attr(model: Module, attr_name: str) -> Any:
    """The attribute of a dotted name."""
    return operator.attrgetter(attr_name)(model)


class GraphModule(Module):
    """A module whose forward is a graph.

    Parameters
    ----------
    root : Module or dict
        Has what the graph's targets name; the module gets those attributes, and no others.
    graph : Graph
    class_name : str
        What the module's class is called.

    Attributes
    ----------
    graph : Graph
        Setting it calls `recompile`; after a change inside of it, `recompile` is to be called.
    code : str
        The source of forward.
    meta : dict
        What passes note.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        """An instance of a class of its own, which has the instance's forward."""
        base = next(c for c in cls.__mro__ if c.__qualname__.rpartition(".")[2] != _OWN)
        own = type(_OWN, (base,), {"__module__": base.__module__})
        made: GraphModule = super().__new__(own)
        return made

    def __init__(
        self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule"
    ) -> None:
        super().__init__()
        type(self).__name__ = class_name
        targets = [n.target for n in graph.nodes if n.op in ("get_attr", "call_module")]
        if isinstance(root, Module):
            self.training = getattr(root, "training", self.training)
            if isinstance(root, _CodeOnlyModule):
                held = (root.named_children(), root.named_buffers(), root.named_parameters())
                targets = [name for names in held for name, _ in names] + targets
            for target in targets:
                _copy_attr(root, self, target)
        elif isinstance(root, dict):
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module") and node.target not in root:
                    raise RuntimeError(
                        f"Node {node} referenced target {node.target} but that target was not "
                        "provided in ``root``!"
                    )
            for target in sorted(targets, key=lambda t: t.count(".")):
                _assign_attr(root[target], self, target)
        else:
            raise RuntimeError(f"Unsupported type {root} passed for root!")
        self.graph = graph
        kind = graph._tracer_cls
        self._tracer_cls = None if kind is None or "<locals>" in kind.__qualname__ else kind
        self._tracer_extras = graph._tracer_extras or {}
        self.meta: dict[str, Any] = {}
        self._replace_hooks: list[Callable[..., Any]] = []
        self._create_node_hooks: list[Callable[[Node], Any]] = []
        self._erase_node_hooks: list[Callable[[Node], Any]] = []
        self._deepcopy_hooks: list[Callable[[GraphModule], Any]] = []

    @property
    def graph(self) -> Graph:
        """What forward runs."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not isinstance(g, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
        self._graph = g
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The source of forward."""
        if not hasattr(self, "_code"):
            raise RuntimeError("Code has not been generated! Please report a bug to PyTorch")
        return self._code

    def recompile(self) -> PythonCode:
        """Write the source of the graph again, and run that from now on."""
        generator = self._graph._codegen
        if isinstance(generator, PyTreeCodeGen):
            self._in_spec = generator.pytree_info.in_spec
            self._out_spec = generator.pytree_info.out_spec
        written = self._graph.python_code(root_module="self")
        self._code = written.src
        attach(type(self), forward=_run_source(written.src, written.globals))
        for child in self.children():
            if isinstance(child, GraphModule):
                child.recompile()
        return written

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except Exception as error:
            steps = traceback.extract_tb(error.__traceback__)
            if steps and steps[-1].filename.startswith(_SOURCE):
                print(_where(steps[-1]), file=sys.stderr)
                raise error.with_traceback(None) from error.__cause__
            raise

    # --- its submodules

    def add_submodule(self, target: str, m: Module) -> bool:
        """Add a module under a dotted name; False where something else has a part of the name."""
        *path, last = target.split(".")
        module: Module = self
        for part in path:
            inner = getattr(module, part, None)
            if inner is None:
                inner = Module()
                setattr(module, part, inner)
            if not isinstance(inner, Module):
                return False
            module = inner
        module.add_module(last, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Take away the module of a dotted name; False where there is none."""
        path, _, last = target.rpartition(".")
        module: Any = self
        for part in path.split(".") if path else ():
            module = getattr(module, part, None)
            if not isinstance(module, Module):
                return False
        if not isinstance(getattr(module, last, None), Module):
            return False
        delattr(module, last)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Take away all modules that the graph neither calls nor reads from."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op not in ("call_module", "get_attr"):
                continue
            parts = node.target.split(".")
            used.update(".".join(parts[: i + 1]) for i in range(len(parts)))
            if node.op == "call_module":
                try:
                    called = self.get_submodule(node.target)
                except AttributeError:  # taken away before
                    continue
                used.update(f"{node.target}.{name}" for name, _ in called.named_modules() if name)
        for name in [name for name, _ in self.named_modules() if name and name not in used]:
            self.delete_submodule(name)

    # --- copies

    def __reduce__(self) -> Any:
        state = vars(self).copy()
        written = self.recompile()
        state["_code"] = written.src
        state["_graphmodule_cls_name"] = type(self).__name__
        del state["_graph"]
        lines = [_import_of(name, obj) for name, obj in written.globals.items()]
        return reduce_graph_module, (state, "\n".join(lines))

    def _deepcopy_init(self) -> Callable[..., None]:
        return GraphModule.__init__

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        held = _CodeOnlyModule(copy.deepcopy(vars(self), memo))
        self._deepcopy_init()(copied, held, vars(held)["_graph"])
        type(copied).__name__ = type(self).__name__
        for name in _KEPT:
            if name in vars(self):
                setattr(copied, name, copy.deepcopy(vars(self)[name], memo))
        copied.meta = copy.deepcopy(getattr(self, "meta", {}), memo)
        for name, value in copied.meta.get(_USER_PRESERVED_ATTRIBUTES_KEY, {}).items():
            setattr(copied, name, value)
        for hook in self._deepcopy_hooks:
            hook(copied)
        return copied

    def __copy__(self) -> GraphModule:
        copied = GraphModule(self, self.graph)
        copied.meta = getattr(self, "meta", {})
        return copied

    def _replicate_for_data_parallel(self) -> GraphModule:
        copied = self.__copy__()
        copied._is_replica = True
        return copied

    # --- how it is shown

    def print_readable(self, print_output: bool = True, **settings: Any) -> str:
        """The source of the module as a class, printed unless ``print_output`` is False."""
        body = self._graph.python_code(root_module="self", verbose=True).src.lstrip("\n")
        text = _indented(f"class {type(self).__name__}(torch.nn.Module):\n{body}")
        for child in self.children():
            if isinstance(child, GraphModule):
                text += "\n" + _indented(child.print_readable(print_output=False))
        if print_output:
            print(text)
        return text

    def __str__(self) -> str:
        note = "# To see more debug info, please use `graph_module.print_readable()`"
        return "\n".join([super().__str__(), self._code, note])

    def _register_replace_node_hook(self, f: Callable[..., Any]) -> None:
        self._replace_hooks.append(f)

    def _unregister_replace_node_hook(self, f: Callable[..., Any]) -> None:
        self._replace_hooks.remove(f)

    def _register_create_node_hook(self, f: Callable[[Node], Any]) -> None:
        self._create_node_hooks.append(f)

    def _unregister_create_node_hook(self, f: Callable[[Node], Any]) -> None:
        self._create_node_hooks.remove(f)

    def _register_erase_node_hook(self, f: Callable[[Node], Any]) -> None:
        self._erase_node_hooks.append(f)

    def _unregister_erase_node_hook(self, f: Callable[[Node], Any]) -> None:
        self._erase_node_hooks.remove(f)


_OWN = "GraphModuleImpl"
_KEPT = (
    *("_state_dict_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"),
    *("_replace_hooks", "_create_node_hooks", "_erase_node_hooks", "_deepcopy_hooks"),
)


def _indented(text: str) -> str:
    """The text with all lines but the first four further in; blank ones stay empty."""
    first, *lines = text.split("\n")
    return "\n".join([first, *[f"    {line}" if line.strip() else "" for line in lines]])


def _where(step: traceback.FrameSummary) -> str:
    """What is printed of an error in generated code: the line, and those around it."""
    number, line = step.lineno or 0, step.line or ""
    lines = linecache.getlines(step.filename)
    return "\n".join(
        [
            traceback.format_exc(),
            f"Call using an FX-traced Module, line {number} of the traced Module's generated "
            "forward function:",
            "".join(lines[max(number - 2, 0) : number]),
            "~" * len(line) + "~~~ <--- HERE",
            "\n".join(lines[number : number + 2]),
        ]
    )

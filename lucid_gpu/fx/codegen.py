"""The Python source of a graph."""

from __future__ import annotations

import enum
import math
import re
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from types import GenericAlias, UnionType
from typing import Any, NamedTuple

import lucid_gpu
from lucid_gpu.func import trees
from lucid_gpu.fx import _pytree, wrapping
from lucid_gpu.fx.naming import TAKEN, Namespace
from lucid_gpu.fx.node import (
    Node,
    _get_qualified_name,
    _type_repr,
    abbreviated,
    bracketed,
    is_ours,
)
from lucid_gpu.tensor import Tensor

__all__ = ["BUILTINS", "CodeGen", "PyTreeCodeGen", "PyTreeInfo", "PythonCode"]


class Builtin(NamedTuple):
    """What generated code may name without a module: how source imports it, and the object."""

    import_str: str
    obj: Any


BUILTINS = {
    "inf": Builtin("from math import inf", math.inf),
    "nan": Builtin("from math import nan", math.nan),
    "NoneType": Builtin("NoneType = type(None)", type(None)),
    "torch": Builtin("import lucid_gpu as torch", lucid_gpu),
    "device": Builtin("from lucid_gpu import device", lucid_gpu.device),
    "fx_pytree": Builtin("import lucid_gpu.fx._pytree as fx_pytree", _pytree),
}
TAKEN.update({name: builtin.obj for name, builtin in BUILTINS.items()})

reflectable_magic_methods = {
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "floordiv": "{} // {}",
    "truediv": "{} / {}",
    "div": "{} / {}",
    "mod": "{} % {}",
    "pow": "{} ** {}",
    "lshift": "{} << {}",
    "rshift": "{} >> {}",
    "and_": "{} & {}",
    "or_": "{} | {}",
    "xor": "{} ^ {}",
    "getitem": "{}[{}]",
    "matmul": "{} @ {}",
}
magic_methods = {
    "eq": "{} == {}",
    "ne": "{} != {}",
    "lt": "{} < {}",
    "gt": "{} > {}",
    "le": "{} <= {}",
    "ge": "{} >= {}",
    "pos": "+{}",
    "neg": "-{}",
    "invert": "~{}",
    **reflectable_magic_methods,
}
inplace_methods = {
    f"i{name.rstrip('_')}": form.replace(" {}", "= {}", 1)
    for name, form in reflectable_magic_methods.items()
    if name not in ("div", "getitem")
} | {"setitem": "{}[{}] = {}"}
# How annotations of before Python 3.9 are written: ``typing.List[int]``.
_ALIASES = {
    getattr(typing, name).__origin__: getattr(typing, name)
    for name in ("List", "Dict", "Set", "FrozenSet", "Tuple")
}


@dataclass
class PythonCode:
    """The source of a graph.

    Attributes
    ----------
    src : str
    globals : dict
        What it names.
    """

    src: str
    globals: dict[str, Any]


class PyTreeInfo(NamedTuple):
    """How a function with nested arguments was called while it was traced."""

    orig_args: list[str]
    in_spec: trees.Structure
    out_spec: trees.Structure | None


def format_target(base: str, target: str) -> str:
    """A dotted name after a value; ``getattr`` where a part of it is no identifier."""
    for part in target.split("."):
        base = f"{base}.{part}" if part.isidentifier() else f'getattr({base}, "{part}")'
    return base


class CodeGen:
    """Writes the source of a graph; a subclass may change its first and last line."""

    def __init__(self) -> None:
        self._body_transformer: Callable[[list[str]], list[str]] | None = None
        self._func_name = "forward"

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The line with ``def``, of the parameters and the annotation of what is returned."""
        if not free_vars or free_vars[0] != "self":
            free_vars.insert(0, "self")
        return f"def {self._func_name}({', '.join(free_vars)}){maybe_return_annotation}:"

    def generate_output(self, output_args: Any, *, repr_fn: Callable[[Any], str] = repr) -> str:
        """The line with ``return``."""
        return f"return {repr_fn(output_args)}"

    def process_inputs(self, *args: Any) -> Any:
        """The values of the placeholders, from the arguments of a call."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """What a call gives, from the argument of the output."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """More names that the source uses, each with its object."""
        return []

    def _gen_python_code(
        self, nodes: Any, root_module: str, namespace: Namespace, *, verbose: bool = False
    ) -> PythonCode:
        return _Writer(self, root_module, namespace, verbose).write(list(nodes))


class PyTreeCodeGen(CodeGen):
    """Writes the source of a function whose arguments are nested."""

    def __init__(self, pytree_info: PyTreeInfo) -> None:
        super().__init__()
        self.pytree_info = pytree_info

    def process_inputs(self, *args: Any) -> Any:
        """The leaves of the arguments."""
        return trees.leaves_of(args)

    def process_outputs(self, outputs: Any) -> Any:
        """The results, nested as those of the traced function."""
        if self.pytree_info.out_spec is None:
            return outputs
        several = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        return trees.unflatten(several, self.pytree_info.out_spec)

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The line with ``def``, and the one that takes the arguments apart."""
        outer = self.pytree_info.orig_args
        if outer[:1] == ["self"]:
            free_vars.insert(0, "self")
        first = super().gen_fn_def(outer[:], maybe_return_annotation)
        if not free_vars:
            return first
        notes = "".join(f"{name}; " for name in free_vars if ":" in name)
        names = ", ".join(name.split(":")[0].split("#")[0] for name in free_vars)
        first += f"\n    {notes}\n" if notes else ""
        spec = f"[{', '.join(outer)}], self._in_spec"
        return f"{first}\n    {names}, = fx_pytree.tree_flatten_spec({spec})"

    def generate_output(self, output_args: Any, *, repr_fn: Callable[[Any], str] = repr) -> str:
        """The line that nests the results and returns them."""
        if not self.pytree_info.out_spec:
            return super().generate_output(output_args, repr_fn=repr_fn)
        return f"return fx_pytree.tree_unflatten({repr_fn(output_args)}, self._out_spec)"


class _Writer:
    """The source of one graph, while it is written."""

    def __init__(self, codegen: CodeGen, root: str, namespace: Namespace, verbose: bool) -> None:
        self.codegen, self.root, self.namespace, self.verbose = codegen, root, namespace, verbose
        self.globals: dict[str, Any] = {}
        self.parameters: list[str] = []
        self.body: list[str] = []
        self.wrapped: dict[str, None] = {}
        self.returns = self.note = ""
        for name, (_, obj) in BUILTINS.items():
            self.named(name, obj)

    def named(self, hint: str, obj: Any) -> str:
        """What the source calls an object from outside."""
        if is_ours(obj) and obj is not lucid_gpu.device:
            return _get_qualified_name(obj)
        name = self.namespace.create_name(hint, obj)
        self.globals[name] = obj
        return name

    def annotation(self, kind: Any) -> str:
        if kind == ():
            return "()"
        name = _type_repr(kind)
        arguments = [self.annotation(a) for a in typing.get_args(kind)]
        if isinstance(kind, UnionType):
            return "|".join(arguments)
        origin = getattr(kind, "__origin__", None)
        if origin is None:
            return self.named(name, kind)
        if not isinstance(kind, GenericAlias):
            origin = _ALIASES.get(origin, origin)
        written = self.named(_type_repr(origin), origin)
        return f"{written}[{','.join(arguments)}]" if arguments else written

    def text(self, value: Any) -> str:
        """An argument."""
        if isinstance(value, Node):
            return repr(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            inner = ", ".join(map(self.text, value))
            kind = self.named(_get_qualified_name(type(value)), type(value))
            return f"{kind}({inner}{',' if len(value) == 1 else ''})"
        if isinstance(value, enum.Enum):
            return f"{self.named(type(value).__name__, type(value))}.{value.name}"
        if isinstance(value, Tensor):
            dtype = str(value.dtype).rpartition(".")[2]
            return f"torch.Tensor(size={list(value.shape)}, dtype={dtype})"
        if isinstance(value, tuple):
            return f"({', '.join(map(self.text, value))}{',' if len(value) == 1 else ''})"
        if isinstance(value, list):
            return f"[{', '.join(map(self.text, value))}]"
        if isinstance(value, slice):
            return f"slice({', '.join(map(self.text, (value.start, value.stop, value.step)))})"
        written = repr(value)
        if is_ours(type(value)) and written.startswith("lucid_gpu."):  # a type, a size, a layout
            return f"torch{written[len('lucid_gpu') :]}"
        return written

    def arguments(self, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        parts = [self.text(a) for a in args]
        return ", ".join([*parts, *[f"{k} = {self.text(v)}" for k, v in kwargs.items()]])

    def declared(self, node: Node) -> str:
        """A node's name, with its annotation."""
        if node.type is not None:
            return f"{node!r} : {self.annotation(node.type)}"
        value = node.meta.get("val", node.meta.get("tensor_meta"))
        if self.verbose and value is not None and hasattr(value, "dtype"):
            return f'{node!r}: "{abbreviated(value.dtype)}{bracketed(value.shape)}"'
        return repr(node)

    def statement(self, node: Node) -> str:
        """The source of one node, without the end of the line."""
        left, args = self.declared(node), node.args
        if node.op == "call_module":
            called = format_target(self.root, node.target)
            return f"{left} = {called}({self.arguments(args, node.kwargs)})"
        if node.op == "get_attr":
            return f"{left} = {format_target(self.root, node.target)}"
        if node.op == "call_method":
            called = format_target(self.text(args[0]), node.target)
            return f"{left} = {called}({self.arguments(args[1:], node.kwargs)})"
        name = getattr(node.target, "__name__", "")
        if getattr(node.target, "__module__", "") == "_operator":
            operands = [self.text(a) for a in args]
            if name in magic_methods:
                return f"{left} = {magic_methods[name].format(*operands)}"
            if name in inplace_methods:
                return f"{inplace_methods[name].format(*operands)};  {left} = {operands[0]}"
        called = self.named(_get_qualified_name(node.target), node.target)
        attribute = args[1] if called == "getattr" and len(args) == 2 else None
        if isinstance(attribute, str) and attribute.isidentifier():
            return f"{left} = {self.text(args[0])}.{attribute}"
        if node.meta.get("is_wrapped"):
            self.wrapped[called] = None
        return f"{left} = {called}({self.arguments(args, node.kwargs)})"

    def noted(self, node: Node) -> None:
        """A comment about where the next nodes were traced, where it changes."""
        trace = re.findall(r'File "(.+)", line (\d+), in (.+)\n(.*)', node.stack_trace or "")
        note = "# No stacktrace found for following nodes"
        if trace:
            file, line, function, code = trace[-1]
            note = f"# File: {file}:{line} in {function}, code: {code.strip()}"
        if self.verbose and note != self.note:
            self.note = note
            self.body.append(f"\n{note}\n")

    def returned(self, value: Any) -> str:
        """The line with ``return``; a user's generator need not take a function that writes."""
        generate = self.codegen.generate_output
        takes = "repr_fn" in signature(generate).parameters
        return generate(value, repr_fn=self.text) if takes else generate(value)

    def parameter(self, node: Node) -> None:
        """A placeholder: a parameter, and a line where the value has another name."""
        raw = node.target.replace("*", "")
        declared = node.target + self.declared(node)[len(repr(node)) :]
        default = f" = {self.text(node.args[0])}" if node.args else ""
        self.parameters.append(declared + default)
        if raw != repr(node):
            self.body.append(f"{node!r} = {raw}\n")

    def write(self, nodes: list[Node]) -> PythonCode:
        last_reads: dict[Node, list[Node]] = {}
        seen: set[Node] = set()
        for node in reversed(nodes):
            for read in node._input_nodes:
                if read not in seen:
                    seen.add(read)
                    last_reads.setdefault(node, []).append(read)
        for node in nodes:
            if node.op == "placeholder":
                self.parameter(node)
            elif node.op == "output":
                if node.type is not None:
                    self.returns = f" -> {self.annotation(node.type)}"
                self.body.append(f"{self.returned(node.args[0])}\n")
            else:
                self.noted(node)
                self.body.append(self.statement(node))
                over = last_reads.get(node, []) + ([] if node.users else [node])
                freed = " = ".join([*map(repr, over), "None"]) if over else ""
                self.body.append(f";  {freed}\n" if over else "\n")
        return self.assembled()

    def assembled(self) -> PythonCode:
        body = self.body or ["pass\n"]
        marks = ""
        if self.wrapped:
            wrap = self.named("wrap", wrapping.wrap)
            marks = "\n".join(f'{wrap}("{name}")' for name in self.wrapped)
        if self.codegen._body_transformer is not None:
            body = self.codegen._body_transformer(body)
        for name, value in self.codegen.additional_globals():
            self.named(name, value)
        first = self.codegen.gen_fn_def(self.parameters, self.returns)
        lines = "".join(body).lstrip("\n").split("\n")
        code = "\n".join("    " + line for line in lines)
        return PythonCode(f"\n{marks}\n\n{first}\n{code}", self.globals)

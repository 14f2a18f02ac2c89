"""Hold public names to what they must say: types, shapes and errors.

    python tools/check_docstrings.py

Walks the public functions, classes, methods and properties that tools/reference.py lists, and
prints a line for each of these:

- it has no docstring, and overrides nothing that has one;
- a parameter or the result has no type;
- it takes or gives tensors and says nothing of their shapes;
- its section Parameters describes one that it does not take;
- its source, or a private function of its file that it calls, raises an error it does not name;
  or an imported guard, such as `require_float`: but for TypeError, which what is no tensor, or no
  number where one belongs, gets everywhere.

What the first paragraph points to, as "See `lucid_gpu.sum`." does, counts as said, and so do the
docstrings of overridden methods and, for a ``forward``, of its class.
"""

from __future__ import annotations

import ast
import builtins
import enum
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lucid_gpu.nn.modules.rows import Row
from tools import reference

# Not "dimension" or "view" alone: "two dimensions exchanged" says too little of a shape.
_SHAPES = re.compile(
    r"\bshape|broadcast|\belement|\bscalar|\b[\dn]-d\b|\bvectors?\b|\bmatri(?:x|ces)\b|\bin place\b"
    r"|``\([^`]*,[^`]*\)``|\([^)]*\.\.\., ",
    re.IGNORECASE,
)
_PARAMETERS = re.compile(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", re.MULTILINE | re.DOTALL)
_ENTRY = re.compile(r"^([*\w]+(?:, [*\w]+)*),?(?: :.*)?$", re.MULTILINE)
_GUARD = re.compile(r"(require|refuse|check|normalize)_")
_REFERENCE = re.compile(r"(?<!`)`([A-Za-z_][\w.]*)`(?!`)")


@dataclass(frozen=True)
class Name:
    """A public name: its namespace, the class it is a member of, what stands behind it."""

    namespace: str
    path: str  # "sum", "Tensor.sum"
    value: Any  # a function, a class, a property's getter
    owner: type | None = None

    @property
    def full(self) -> str:
        return f"{self.namespace}.{self.path}"

    @functools.cached_property
    def doc(self) -> str:
        """Its docstring and those of the methods it overrides; of a forward, also its class's."""
        if self.owner is None:
            return str(self.value.__doc__ or "")
        name = self.path.rpartition(".")[2]
        above = [vars(base)[name].__doc__ for base in self.owner.__mro__[1:] if name in vars(base)]
        own = [self.value.__doc__, self.owner.__doc__ if name == "forward" else None]
        return "\n\n".join(inspect.cleandoc(doc) for doc in (*own, *above) if doc)

    @functools.cached_property
    def said(self) -> str:
        """All that counts as said."""
        made = self.value.__init__.__doc__ if inspect.isclass(self.value) else None
        return "\n".join([self.doc, made or "", *self._pointed_to()])

    def _pointed_to(self) -> Iterator[str]:
        for path in _REFERENCE.findall(inspect.cleandoc(self.doc).partition("\n\n")[0]):
            for place in self._places():
                value = _at(place, path)
                if value is not None and value is not self.value and value.__doc__:
                    yield value.__doc__
                    break

    def _places(self) -> Iterator[Any]:
        import lucid_gpu

        if self.owner is not None:
            yield self.owner
        yield importlib.import_module(self.namespace)
        yield from (lucid_gpu, lucid_gpu.Tensor, lucid_gpu.nn.functional)


def _at(place: Any, path: str) -> Any:
    """What a reference names, seen from a place."""
    for part in path.removeprefix("lucid_gpu.").split("."):
        place = inspect.getattr_static(place, part, None) or getattr(place, part, None)
    return place


def names() -> Iterator[Name]:
    """Each public name once: where `reference.NAMESPACES` has it first."""
    seen: set[int] = set()
    for namespace in reference.NAMESPACES:
        for path, value in reference.public(importlib.import_module(namespace)).items():
            if callable(value) and id(value) not in seen:
                seen.add(id(value))
                yield Name(namespace, path, value)
                if inspect.isclass(value):
                    yield from _of_class(namespace, path, value)


def _of_class(namespace: str, path: str, owner: type) -> Iterator[Name]:
    for member in reference.members(owner):
        value = inspect.getattr_static(owner, member)
        value = value.fget if isinstance(value, property) else getattr(owner, member)
        if str(value.__module__).startswith("lucid_gpu"):
            yield Name(namespace, f"{path}.{member}", value, owner)


def breaches(name: Name) -> Iterator[str]:
    """What a name should say and does not."""
    if not name.doc:
        yield "has no docstring"
    untyped, types = _types(name)
    if untyped:
        yield f"gives no type for {', '.join(untyped)}"
    if re.search(r"\bTensor\b", types) and not _SHAPES.search(name.said):
        yield "takes or gives tensors and says nothing of their shapes"
    if unknown := _unknown(name):
        yield f"describes {', '.join(unknown)}, which it does not take"
    unsaid = {error for error in _raised(name.value) if not re.search(rf"\b{error}\b", name.said)}
    if unsaid:
        yield f"raises {', '.join(sorted(unsaid))} and does not say so"


def _unknown(name: Name) -> list[str]:
    """What its own section Parameters describes and it does not take."""
    section = _PARAMETERS.search(inspect.cleandoc(name.value.__doc__ or ""))
    if section is None or not (inspect.isclass(name.value) or inspect.isroutine(name.value)):
        return []
    taken = inspect.signature(name.value).parameters
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in taken.values()):
        return []
    described = [p for entry in _ENTRY.findall(section[1]) for p in entry.split(", ")]
    return [p for p in described if p not in taken]


def _types(name: Name) -> tuple[list[str], str]:
    """What has no type, and the text of all types; those of rows are in their docstrings."""
    value = name.value
    if inspect.isclass(value):
        if issubclass(value, (tuple, enum.Enum, BaseException, Row)) or "__init__" not in vars(
            value
        ):
            return [], ""
        value = value.__init__
    try:
        asked = inspect.signature(value)
    except (TypeError, ValueError):  # a type's slot, made by Python
        return [], ""
    parameters = list(asked.parameters.values())
    bound = name.owner is None and value is name.value
    if not bound and not inspect.ismethod(value) and parameters and not _static(name):
        del parameters[0]
    said = {p.name: p.annotation for p in parameters}
    if not inspect.isclass(name.value):
        said["the result"] = asked.return_annotation
    empty = inspect.Parameter.empty
    types = [a if isinstance(a, str) else inspect.formatannotation(a) for a in said.values()]
    return [n for n, annotation in said.items() if annotation is empty], " ".join(types)


def _static(name: Name) -> bool:
    member = name.path.rpartition(".")[2]
    return name.owner is not None and isinstance(
        inspect.getattr_static(name.owner, member), staticmethod
    )


# --- errors -----------------------------------------------------------------------------------


def _raised(value: Any) -> set[str]:
    """Types of errors that its source, a private function or a guard that it calls raises."""
    if inspect.isclass(value):
        value = value.__init__
    value = inspect.unwrap(getattr(value, "__func__", value))
    code = getattr(value, "__code__", None)
    if code is None or not Path(code.co_filename).is_file():
        return set()
    lines, private = _functions(code.co_filename)
    function = lines.get(code.co_firstlineno)
    if function is None:
        return set()
    called = {c.func.id for c in ast.walk(function) if _calls_a_name(c)}  # type: ignore[attr-defined]
    nodes = (function, *(private[n] for n in called if n in private))
    guards = [value.__globals__.get(n) for n in called if _GUARD.match(n) and n not in private]
    own = {error for node in nodes for error in _raised_in(node, value.__globals__)}
    return own | {error for guard in guards for error in _raised_by(guard) if error != "TypeError"}


def _raised_by(guard: Any) -> Iterator[str]:
    function: Any = inspect.unwrap(guard) if callable(guard) else None
    code = getattr(function, "__code__", None)
    if code is not None:
        scope = function.__globals__
        yield from _raised_in(_functions(code.co_filename)[0][code.co_firstlineno], scope)


def _calls_a_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name)


def _raised_in(function: ast.AST, scope: dict[str, Any]) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Raise) and node.exc is not None:
            error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if isinstance(error, ast.Name):
                made = getattr(scope.get(error.id), "__annotations__", {}).get("return")
                if _is_error(error.id):
                    yield error.id
                elif isinstance(made, str) and made.endswith("Error") and made != "TypeError":
                    yield made


def _is_error(name: str) -> bool:
    known = getattr(builtins, name, None)
    return name.endswith("Error") or inspect.isclass(known) and issubclass(known, Exception)


@functools.cache
def _functions(file: str) -> tuple[dict[int, ast.AST], dict[str, ast.AST]]:
    """The functions of a file by their first line, and the private ones at its top by name."""
    tree = ast.parse(Path(file).read_text("utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    found = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    lines = {
        min(n.lineno for n in (node, *getattr(node, "decorator_list", ()))): node for node in found
    }
    private = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name[0] == "_"}
    return lines, private  # type: ignore[return-value]


def main() -> int:
    """Print what is wrong; 1 where anything is."""
    lines = [f"{name.full} {problem}" for name in names() for problem in breaches(name)]
    for line in lines:
        print(f"check_docstrings: {line}", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())

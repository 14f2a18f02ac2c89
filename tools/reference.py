"""Write the public names with their signatures and docstrings as files that griffe reads.

    python tools/reference.py FOLDER

Most names of lucid_gpu come by a table, a factory or a late import, where a reader of source text
does not see them. So they are asked for, as a user would, and written down: FOLDER/lucid_gpu/nn.py
holds every public name of `lucid_gpu.nn`, without bodies. mkdocstrings makes the pages of
docs/api/ from these files (tools/mkdocs_hooks.py).
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# A page each; `lucid_gpu.Tensor` has one too.
NAMESPACES = (
    "lucid_gpu", "lucid_gpu.autograd", "lucid_gpu.autograd.forward_ad",
    "lucid_gpu.autograd.functional", "lucid_gpu.autograd.graph", "lucid_gpu.nn",
    "lucid_gpu.nn.functional", "lucid_gpu.nn.grad", "lucid_gpu.nn.attention", "lucid_gpu.nn.einops",
    "lucid_gpu.nn.init", "lucid_gpu.nn.utils", "lucid_gpu.nn.utils.parametrizations",
    "lucid_gpu.nn.utils.parametrize", "lucid_gpu.nn.utils.prune", "lucid_gpu.nn.utils.rnn",
    "lucid_gpu.optim",
    "lucid_gpu.optim.lr_scheduler", "lucid_gpu.optim.swa_utils", "lucid_gpu.utils.data",
    "lucid_gpu.multiprocessing", "lucid_gpu.utils.checkpoint", "lucid_gpu.utils.tensorboard",
    "lucid_gpu.serialization", "lucid_gpu.amp", "lucid_gpu.distributions", "lucid_gpu.func",
    "lucid_gpu.numpy", "lucid_gpu.array_api", "lucid_gpu.linalg", "lucid_gpu.random",
    "lucid_gpu.fft", "lucid_gpu.special", "lucid_gpu.sparse", "lucid_gpu.cuda",
    "lucid_gpu.profiler", "lucid_gpu.fusion", "lucid_gpu.viz", "lucid_gpu.testing",
    "lucid_gpu.distributed", "lucid_gpu.distributed.checkpoint", "lucid_gpu.distributed.fsdp",
)  # fmt: skip


class _Text:
    """Text that a signature prints as it is."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def public(namespace: ModuleType) -> dict[str, Any]:
    """Functions, classes and element types of a namespace that are the package's own.

    Twins in place are left out: ``x.exp_()`` is what ``x.exp()`` is. So is what a class refuses.
    """
    top = importlib.import_module("lucid_gpu")
    # `__all__` of the package has names that `dir` leaves out
    names = None if namespace is top else getattr(namespace, "__all__", None)
    values = {n: getattr(namespace, n) for n in sorted(names or dir(namespace)) if n[0] != "_"}
    if not names and namespace is not top:  # what it imports from above
        values = {n: value for n, value in values.items() if vars(top).get(n) is not value}
    return {n: value for n, value in values.items() if _own(value) and not _left_out(value)}


def _own(value: Any) -> bool:
    if type(value).__name__ == "dtype":
        return type(value).__module__.startswith("lucid_gpu.")
    return callable(value) and str(getattr(value, "__module__", "")).startswith("lucid_gpu")


def _left_out(value: Any) -> bool:
    return re.match(r"`[\w.]+`, in place\.$|Refused, with ", value.__doc__ or "") is not None


def signature(value: Any, *, method: bool = False) -> str:
    """Its signature as source text; defaults that are no source are ``...``.

    A method's first parameter, whatever its name, is ``self``; a class is given one.
    """
    try:
        asked = inspect.signature(value)
    except (TypeError, ValueError):
        return "(*args, **kwargs)"
    parameters = [
        p.replace(annotation=_annotation(p.annotation), default=_default(p.default))
        for p in asked.parameters.values()
    ]
    gives = _annotation(asked.return_annotation)
    if method and parameters and parameters[0].kind is not inspect.Parameter.VAR_POSITIONAL:
        del parameters[0]
    text = str(asked.replace(parameters=parameters, return_annotation=gives))
    return text.replace("(", "(self, ", 1) if method or inspect.isclass(value) else text


def _annotation(said: Any) -> Any:
    if said is inspect.Parameter.empty:
        return said
    return _text(said if isinstance(said, str) else inspect.formatannotation(said))


def _default(value: Any) -> Any:
    if value is inspect.Parameter.empty:
        return value
    return _text(value.__name__ if inspect.isroutine(value) else repr(value))


def _text(source: str) -> _Text:
    try:
        ast.parse(source, mode="eval")
    except SyntaxError:
        return _Text("...")
    return _Text(source)


def source_of(name: str, value: Any) -> Iterator[str]:
    """Lines that define the name as a reader should see it."""
    if inspect.isclass(value):
        yield f"class {name}({_base(value)}):"
        yield f"    {docstring(value)!r}"
        if value.__init__ is not object.__init__ and not issubclass(value, tuple):
            yield f"    def __init__{signature(value)}: ..."
        for member in _members(value):
            yield from (f"    {line}" for line in _source_of_member(value, member))
    elif callable(value):
        yield f"def {name}{signature(value)}:"
        yield f"    {docstring(value)!r}"
    else:
        yield f"{name}: dtype"
        yield repr(f"An element type: ``{name}``.")


def _source_of_member(owner: type, name: str) -> Iterator[str]:
    plain = inspect.getattr_static(owner, name)
    if isinstance(plain, property):
        yield "@property"
        yield f"def {name}{signature(plain.fget, method=True)}:"
        yield f"    {docstring(plain)!r}"
        return
    method = not isinstance(plain, staticmethod | classmethod)
    value = getattr(owner, name)
    if not method:
        yield "@staticmethod"
    yield f"def {name}{signature(value, method=method)}:"
    yield f"    {docstring(value)!r}"


def docstring(value: Any) -> str:
    """Its docstring in the words of NumPy's convention that griffe takes as they are meant.

    Parameters that share an entry get one each, since they differ in their defaults; a type is text
    wherever a shape follows it.
    """
    doc = inspect.getdoc(value) or ""
    doc = re.sub(r"^(.*\bTensor\b[^\n(]*), shape(?= \()", r"\1 of shape", doc, flags=re.MULTILINE)
    shared = re.compile(
        r"^(\w+(?:, \*{0,2}\w+)+)( :[^\n]*)?\n((?: +[^\n]*\n|\n(?= ))*)", re.MULTILINE
    )
    before, head, after = doc.partition("Parameters\n----------\n")

    def apart(entry: re.Match[str]) -> str:
        names = entry[1].split(", ")
        return "".join(f"{name}{entry[2] or ''}\n{entry[3]}" for name in names)

    return before + head + (shared.sub(apart, after + "\n") if head else after)


def _base(value: type) -> str:
    """The nearest class above that readers know: the package's public ones, Python's own."""
    bases = value.__mro__[1:-1]
    return next((b.__name__ for b in bases if b.__module__ == "builtins" or b in _classes()), "")


@functools.cache
def _classes() -> set[type]:
    """All public classes."""
    values = (v for name in NAMESPACES for v in public(importlib.import_module(name)).values())
    return {value for value in values if inspect.isclass(value)}


def members(owner: type) -> Iterator[str]:
    """Public methods and properties that the class itself defines."""
    for name in sorted(n for n in vars(owner) if n[0] != "_"):
        value = inspect.getattr_static(owner, name)
        if isinstance(value, staticmethod) and value.__func__.__name__ != name:
            continue  # a function of another place: what a module calls
        if not isinstance(value, property):
            value = getattr(owner, name)  # what a descriptor gives: late methods
        if (inspect.isroutine(value) or isinstance(value, property)) and not _left_out(value):
            yield name


def _members(owner: type) -> Iterator[str]:
    """Those that it describes."""
    for name in members(owner):
        plain = inspect.getattr_static(owner, name)
        if (plain if isinstance(plain, property) else getattr(owner, name)).__doc__:
            yield name


def write(folder: Path) -> None:
    """All namespaces below a folder, anew."""
    for name in NAMESPACES:
        namespace = importlib.import_module(name)
        values = public(namespace)
        lines = [repr(namespace.__doc__), f"__all__ = {sorted(values)}"]
        if name != "lucid_gpu":
            lines.append("from lucid_gpu import Tensor, dtype, device")
        for value_name, value in values.items():
            lines += source_of(value_name, value)
        path = folder.joinpath(*name.split("."), "__init__.py")
        for parent in reversed(path.relative_to(folder).parents[1:-1]):
            folder.joinpath(parent).mkdir(parents=True, exist_ok=True)
            folder.joinpath(parent, "__init__.py").touch()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))

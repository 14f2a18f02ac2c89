"""What tensor.py declares for type checkers is what is attached when the package is imported."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator

from lucid_gpu import Tensor

SOURCE = ast.parse(inspect.getsource(sys.modules[Tensor.__module__]))
(BODY,) = [n.body for n in SOURCE.body if isinstance(n, ast.ClassDef) and n.name == "Tensor"]


def names(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign):
            yield ast.unparse(node.target)
        elif isinstance(node, ast.Assign):
            yield from map(ast.unparse, node.targets)


(BLOCK,) = [
    n.body for n in BODY if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"
]
DECLARED = set(names(BLOCK)) - {"__getattr__"}


def test_every_declared_name_is_attached() -> None:
    assert len(DECLARED) > 100
    assert [name for name in DECLARED if not hasattr(Tensor, name)] == []


def test_every_attached_operator_is_declared() -> None:
    own = set(names(BODY))
    attached = {n for n, v in vars(Tensor).items() if n[:2] == "__" and inspect.isroutine(v)}
    assert attached - own - DECLARED == set()

"""Write tests/snapshots/: what a change of the code's structure must not change.

    python tools/take_snapshots.py            # write the files anew; git diff shows what changed
    python tools/take_snapshots.py --check    # 1 and a list, where they do not hold

- ``signatures.txt``: every public function, class and method with its parameters and defaults.
- ``messages.txt``: every sentence of an error or a warning, with ``{}`` for what it is filled with.
- ``kernels.txt``: a digest of the CUDA C generated for each row of the op table, in each form of a
  kernel, and of each instance of the kernels written by hand.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TREE))

FOLDER = TREE / "tests" / "snapshots"
PACKAGE = TREE / "lucid_gpu"

MODULES = (
    "", ".Tensor", ".amp", ".array_api", ".autograd", ".autograd.forward_ad", ".autograd.graph",
    ".backends", ".cuda", ".distributions", ".fft", ".func", ".linalg", ".nn", ".nn.functional",
    ".nn.init", ".nn.utils", ".nn.utils.rnn", ".numpy", ".optim", ".optim.lr_scheduler",
    ".optim.swa_utils", ".profiler", ".random", ".serialization", ".sparse", ".special",
    ".testing", ".utils", ".utils.checkpoint", ".utils.data", ".viz",
)  # fmt: skip


def signatures() -> list[str]:
    """A line for each public callable: its path, its parameters and their defaults."""
    found: set[str] = set()
    told: set[int] = set()  # classes whose methods are listed already, under another name
    for module in MODULES:
        path = f"lucid_gpu{module}"
        for name, value in _public(_named(path)):
            found.add(f"{path}.{name}{_parameters(value)}")
            if isinstance(value, type) and id(value) not in told:
                told.add(id(value))
                found.update(_methods(f"{path}.{name}", value))
    return sorted(found)


def _named(path: str) -> Any:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        head, _, name = path.rpartition(".")
        return getattr(_named(head), name)


def _public(holder: Any) -> Iterator[tuple[str, Any]]:
    """What is the package's own under a public name; sparse and the like, imported late, too."""
    for name in sorted({*dir(holder), *getattr(holder, "__all__", ())}):
        if name.startswith("_") and not (isinstance(holder, type) and name == "__init__"):
            continue
        value = getattr(holder, name, None)
        if isinstance(value, types.ModuleType) or not callable(value):
            continue
        if (getattr(value, "__module__", None) or "").startswith("lucid_gpu"):
            yield name, value


def _methods(path: str, kind: type) -> Iterator[str]:
    for name in sorted(vars(kind)):
        if name.startswith("_"):
            continue
        method: Any = getattr(kind, name, None)  # which may import the op
        function = inspect.unwrap(getattr(method, "__func__", method))
        if inspect.isroutine(function):
            yield f"{path}.{name}{_parameters(function)}"


def _parameters(value: Any) -> str:
    try:
        told = inspect.signature(value)
    except (ValueError, TypeError):
        return "(...)"
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in told.parameters.values()]
    text = str(told.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    return text if " at 0x" not in text else "(...)"


def messages() -> list[str]:
    """The kind and the text of each error and warning that the package can raise."""
    found: set[str] = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                kind = ast.unparse(node.func).rpartition(".")[2]
                if kind.endswith(("Error", "Exit", "Exception")) or kind in (
                    "warn",
                    "warn_user",
                    "warn_user_once",
                ):
                    word = "warn" if kind.startswith("warn_user") else kind
                    found |= {f"{word}: {t}" for t in map(_template, node.args[:1]) if t}
    return sorted(found)


def _template(node: ast.expr) -> str:
    """A text as written, without what it is filled with; empty where it is made elsewhere."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.replace("\n", "\\n")
    if isinstance(node, ast.JoinedStr):
        parts = [_template(v) if isinstance(v, ast.Constant) else "{}" for v in node.values]
        return "".join(parts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (_template(node.left) or "{}") + (_template(node.right) or "{}")
    return ""


def kernels() -> list[str]:
    """A digest of the source of each kernel."""
    return sorted([*_generated(), *_written()])


def _generated() -> Iterator[str]:
    import numpy as np

    from lucid_gpu import dtypes as dt
    from lucid_gpu.fusion.cuda_executor import Executable
    from tests.fusion.plans import apply, operands_of, planned, rows_for

    def flat(arrays: list[Any]) -> tuple[list[Any], Any]:
        return [a.reshape(-1) for a in arrays], None

    def turned(arrays: list[Any]) -> tuple[list[Any], Any]:
        return [a.T if i % 2 else np.ascontiguousarray(a.T).T for i, a in enumerate(arrays)], None

    forms: dict[str, Callable[[list[Any]], tuple[list[Any], Any]]] = {
        "flat": flat,
        "turned": turned,
        "rows": lambda arrays: (arrays, (1,)),
        "columns": lambda arrays: (arrays, (0,)),
    }
    for d in (dt.float32, dt.bfloat16, dt.int64, dt.complex64):
        for row in rows_for(d):
            for form, made in forms.items():
                arrays, axes = made(operands_of(row, d, (24, 24)))
                value = apply(row, d, (24, 24), arrays)
                if axes and value.program.dtype.category == 0:
                    continue  # bools are no numbers to add up
                plan = planned([value], axes)[0]
                text = Executable(plan).kernel(True).source
                yield f"{row.name} {d.name} {form}: {_digest(text)}"


def _written() -> Iterator[str]:
    from tests.kernels.compiling import instances

    for instance in instances():
        source = instance.kernel.instance(**instance.template).source
        yield f"{instance.label}: {_digest(source)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


SNAPSHOTS: dict[str, Callable[[], list[str]]] = {
    "signatures": signatures,
    "messages": messages,
    "kernels": kernels,
}


def changes(name: str) -> list[str]:
    """The lines that came and went since a snapshot was written."""
    kept = (FOLDER / f"{name}.txt").read_text("utf-8").splitlines()
    compared = difflib.unified_diff(kept, SNAPSHOTS[name](), lineterm="", n=0)
    return [line for line in compared if line[:1] in "+-" and line[:3] not in ("+++", "---")]


def main(arguments: list[str]) -> int:
    """Write the files, or compare with them; 1 where they differ."""
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    bad = False
    for name, made in SNAPSHOTS.items():
        if arguments:
            changed = changes(name)
            bad = bad or bool(changed)
            print(f"{name}: {len(changed)} lines changed", *changed, sep="\n")
        else:
            (FOLDER / f"{name}.txt").write_text("\n".join(made()) + "\n", "utf-8")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

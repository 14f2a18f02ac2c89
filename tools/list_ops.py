"""Write lucid_gpu/ops/index.py: which file holds an op that is imported when it is first asked for.

    python tools/list_ops.py            # write it anew
    python tools/list_ops.py --check    # 1 where it is not up to date

Either ends with 1 where a file lists ops that nothing would make public: it is imported with the
package, so the index leaves it out, and no file gives its ops to `Tensor` or `lucid_gpu`.

A file of `lucid_gpu/ops` that `import lucid_gpu` does not import lists its ops itself: methods of
`Tensor` in ``METHODS``, functions of `lucid_gpu` in ``FUNCTIONS``. So do files above it that hold
methods of `Tensor`: those of `ABOVE`.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TREE))

INDEX = TREE / "lucid_gpu" / "ops" / "index.py"
PACKAGE = "lucid_gpu.ops"
HEAD = '''"""Which file holds an op that is imported when it is first asked for.

Written by tools/list_ops.py (``make index``) from the ``METHODS`` and ``FUNCTIONS`` of each file.
"""

from __future__ import annotations

# fmt: off
'''
WIDTH = 100
ABOVE = (
    "array_api.namespace",
    "numpy.dispatch",
    "numpy.products",
    "numpy.ufuncs",
    "viz.notebook",
)


def late_files() -> Iterator[str]:
    """The files of `lucid_gpu.ops` that ``import lucid_gpu`` leaves out."""
    import lucid_gpu.ops

    names = [found.name for found in pkgutil.walk_packages(lucid_gpu.ops.__path__, f"{PACKAGE}.")]
    early = set(sys.modules)
    yield from (name for name in names if name not in early)


def lost() -> Iterator[str]:
    """A sentence for each file whose ops neither the index nor an import makes public."""
    import lucid_gpu
    from lucid_gpu.ops.registry import LazyMethod
    from lucid_gpu.tensor import Tensor

    methods = {name for name, found in vars(Tensor).items() if type(found) is not LazyMethod}
    for file in sorted(name for name in sys.modules if name.startswith(f"{PACKAGE}.")):
        for table, public in (("METHODS", methods), ("FUNCTIONS", vars(lucid_gpu))):
            ops = filter(callable, getattr(sys.modules[file], table, ()))
            names = [op.__name__ for op in ops if op.__name__ not in public]
            if names:
                yield (
                    f"{file.replace('.', '/')}.py is imported with the package, and nothing makes "
                    f"its {table} {', '.join(names)} public: import the file inside the functions "
                    "that need it, or attach them where it is imported"
                )


def names_of(file: str, table: str) -> list[str]:
    """The names of the ops that a file lists in one of its tables."""
    return [op.__name__ for op in getattr(importlib.import_module(file), table, ())]


def text() -> str:
    """The index, as it should be."""
    files = sorted(late_files())
    parts = [HEAD]
    for table, what in (("METHODS", "methods of `Tensor`"), ("FUNCTIONS", "of `lucid_gpu`")):
        parts.append(f"{table}: dict[str, str] = {{  # file of this folder: {what}\n")
        for file in files:
            names = names_of(file, table)
            if names:
                parts.append(_entry(file.removeprefix(f"{PACKAGE}."), names))
        parts.append("}\n")
    parts.append("ABOVE: dict[str, str] = {  # file of `lucid_gpu`: methods of `Tensor`\n")
    parts += [_entry(file, names_of(f"lucid_gpu.{file}", "METHODS")) for file in ABOVE]
    parts.append("}\n")
    return "".join([*parts, "# fmt: on\n"])


def _entry(file: str, names: list[str]) -> str:
    """A file's line, or lines of strings that Python joins."""
    rows, row = [], ""
    for name in names:
        if row and len(row) + len(name) > WIDTH - 16:
            rows.append(row)
            row = ""
        row += f"{name} "
    rows.append(row.rstrip())
    if len(rows) == 1 and len(rows[0]) + len(file) < WIDTH - 12:
        return f'    "{file}": "{rows[0]}",\n'
    body = "".join(f'        "{row}"\n' for row in rows)
    return f'    "{file}":\n{body.rstrip()},\n'


def main() -> int:
    """Write the index, or say whether it is up to date."""
    sentences = list(lost())  # before other files are imported
    if sentences:
        print("\n".join(sentences))
        return 1
    wanted = text()
    if "--check" in sys.argv:
        if INDEX.read_text("utf-8") == wanted:
            return 0
        print(f"{INDEX.relative_to(TREE)} is not up to date: make index")
        return 1
    INDEX.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

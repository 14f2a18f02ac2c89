"""Hold the package to its layering: imports point downward, arrays are made in one folder.

No file imports another that leads back to it, imports inside functions counted, and none assigns
to an attribute of a class or module that it imports, or to a tensor's value: the owner has a
function that changes it. Public functions of core say their types.

`BELOW` says which rooms each room of lucid_gpu may import, directly or through what those may, and
`KNOWN` which modules only few files may. The other tables name the exceptions. Run it as ``python
tools/check_layers.py``; it prints each breach with file and line, and each entry of a table that
the tree no longer needs, and exits 1 when there is one.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "lucid_gpu"

# A room is the first name after `lucid_gpu.`: a folder or a module. Its row lists what lies right
# below it; what lies below that may be imported too. "*" may import everything.
BELOW: dict[str, tuple[str, ...]] = {
    "version": ("devices",),
    "__main__": ("*",),
    "doctor": ("*",),
    "precompile": ("kernels", "fusion"),
    "compat": ("ops",),
    "dtypes": (),
    "compiler": (),
    "distributed": ("ops", "compat"),
    "multiprocessing": ("nn",),
    "device": ("dtypes",),
    "tape": ("_core", "_gpu"),
    "_core": (),  # compiled of core/native/: it is told of all it knows
    "_gpu": (),  # the same of devices/_gpu.c
    "core": ("device", "tape"),
    "devices": ("core",),
    "storage": ("dtypes",),
    "launch": ("devices",),
    "kernels": ("launch",),
    "fusion": ("launch",),
    "profiler": ("fusion",),
    "tensor": ("fusion", "storage"),
    "ops": ("tensor", "kernels"),
    "fft": ("ops",),
    "linalg": ("ops",),
    "random": ("ops",),
    "special": ("ops",),
    "sparse": ("ops", "compat"),
    "autograd": ("ops", "profiler", "compat"),  # Function records as ops do
    "testing": ("autograd",),
    "serialization": ("nn", "sparse", "compat"),
    "nn": ("amp", "autograd", "compat", "distributed"),
    "func": ("nn",),
    "numpy": ("func", "utils", "linalg", "fft", "special"),
    "scipy": ("numpy", "optim", "sparse"),
    "array_api": ("numpy", "special", "scipy"),
    "optim": ("nn",),
    "amp": ("ops", "distributed"),
    "distributions": ("nn", "linalg"),
    "utils": ("autograd", "cuda", "distributed"),
    "cuda": ("amp", "autograd", "compat", "func", "optim"),
    "viz": ("optim", "profiler"),
    "backends": ("ops",),
    "accelerator": ("cuda",),
    "fx": ("*",),  # the source it writes names what users do
    "torch_names": ("*",),  # as a user's program would
    "__init__": ("*",),
}

# Upward imports allowed inside a function, where they run late: (file, room imported).
LATE: set[tuple[str, str]] = {
    ("storage.py", "compat"),  # `torch.storage.UntypedStorage`
    ("nn/modules/module.py", "viz"),
    ("optim/optimizer.py", "viz"),
    ("ops/__init__.py", "_ops"),  # `torch.ops.aten`
    ("ops/embedding.py", "sparse"),  # gradients that list rows
    ("ops/layouts.py", "sparse"),
    ("compat/einops_backend.py", "nn"),
    ("numpy/ufuncs.py", "scipy"),  # SciPy's ufuncs, called with tensors
    ("ops/einsum.py", "backends"),  # opt_einsum picks the order of operands
    ("ops/recurrence.py", "autograd"),  # its gradient, when that is differentiated again
    ("nn/utils/stateless.py", "func"),
    ("autograd/grad.py", "func"),  # batches of cotangents are vmap's
    ("autograd/gradcheck.py", "func"),
    ("autograd/gradcheck.py", "sparse"),
}

# Who may import each array module: folders and files of the package. CuPy's only inside functions:
# that waits until a cuda device is asked for.
_NUMPY_EXECUTOR = (
    "fusion/blocked.py",
    "fusion/numpy_source.py",
    "fusion/native_loops.py",
    "fusion/native_reductions.py",
    "fusion/special.py",
    "fusion/special_functions.py",
)
ARRAYS: dict[str, tuple[str, ...]] = {
    "numpy": (
        "devices/",
        "kernels/",
        *_NUMPY_EXECUTOR,
        # These compute nothing on tensors with it: they name types, tell arrays from scalars,
        # take users' arrays in, and reckon shapes and indices on the host.
        "dtypes.py",
        "tensor.py",
        "numpy/",
        "array_api/",
        "distributed/",  # what travels by MPI lies in memory of the host
        "scipy/signal.py",
        "serialization/",
        "torch_names/testing/_comparison.py",
        "ops/borrowed.py",
        "ops/copying.py",
        "ops/creation.py",
        "ops/grids.py",
        "ops/index_parsing.py",
        "ops/index_primitives.py",
        "ops/indexing.py",
        "ops/number_ranges.py",
        "ops/record.py",
        "ops/shared_memory.py",
        "ops/sources.py",
        "optim/minimize.py",  # SciPy takes and gives arrays
        "scipy/",  # as here
        "utils/data/",
    ),
    "cupy": ("devices/",),
    "cupyx": ("devices/",),
    "cupy_backends": ("doctor.py",),
    "scipy": (*("ops/incomplete_gamma.py", "optim/minimize.py", "torch_names/quasirandom.py"),),
}

# Modules that few files know: who may import each. A step that is captured is the affair of the
# first three; what values tell whoever notes one is told in these places. Lists only fall.
KNOWN: dict[str, tuple[str, ...]] = {
    "devices.capturing": ("cuda/captured_steps.py", "cuda/graphs.py", "ops/captured.py"),
    "devices.stream_capture": ("cuda/graphs.py",),
    "cuda.captured_steps": ("cuda/graphs.py",),
    "ops.captured": ("cuda/captured_steps.py", "cuda/graphs.py"),
    "tape.watched": (
        "amp/grad_scaler.py",
        "cuda/graphs.py",
        "core/value.py",
        "fusion/realize.py",
        "fusion/scheduler.py",
        "nn/modules/lazy.py",
        "ops/in_place.py",
        "ops/shape.py",
        "ops/views.py",
        "tensor.py",
    ),
}

# Who may assign an attribute: a tensor's value changes in `core.value.give` alone.
OWNED: dict[str, tuple[str, ...]] = {
    "_expr": ("core/", "tensor.py"),  # tensor.py where it makes tensors
}

# Functions of core whose signature may say `Any`: what a user notes on a node may be anything.
ANYTHING = ("metadata",)


@dataclass(frozen=True)
class Import:
    """One import statement: the module it names and what it takes from there, its line, and
    whether it runs late or never.
    """

    module: str
    names: tuple[str, ...]
    line: int
    late: bool
    typing_only: bool


def imports_of(tree: ast.Module, package: str) -> Iterator[Import]:
    """Every import in a module; ``package`` resolves relative ones."""
    pending: list[tuple[ast.AST, bool, bool]] = [(tree, False, False)]
    while pending:
        node, late, typing_only = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += [(child, late, True) for child in node.body]
            pending += [(child, late, typing_only) for child in node.orelse]
            continue
        late = late or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        names = tuple([a.name for a in node.names]) if isinstance(node, ast.ImportFrom) else ()
        for module in _modules(node, package):
            yield Import(module, names, node.lineno, late, typing_only)  # type: ignore[attr-defined]
        pending += [(child, late, typing_only) for child in ast.iter_child_nodes(node)]


def _modules(node: ast.AST, package: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.Call):
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if called != "import_module":
            return []
        return [str(a.value) for a in node.args[:1] if isinstance(a, ast.Constant)]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = node.module or ""
    if node.level:
        parents = package.split(".")[: len(package.split(".")) - node.level + 1]
        base = ".".join([*parents, base]).rstrip(".")
    if base == PACKAGE:  # `from lucid_gpu import dtype` imports a room
        return [f"{PACKAGE}.{alias.name}" for alias in node.names]
    return [base]


def room_of(parts: tuple[str, ...]) -> str:
    """The room of a module given by the names after the package."""
    return parts[0] if parts else "__init__"


def reachable(room: str) -> set[str]:
    """Every room below one, itself included."""
    found = {room}
    pending = [room]
    while pending:
        for lower in BELOW.get(pending.pop(), ()):
            if lower not in found:
                found.add(lower)
                pending.append(lower)
    return found


def all_imports(root: Path) -> Iterator[tuple[str, str, list[Import]]]:
    """Each file under ``root``, the package's folder: its name, its room, what it imports."""
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        package = ".".join([PACKAGE, *parts[:-1]])
        found = [*imports_of(ast.parse(path.read_text("utf-8")), package)]
        yield path.relative_to(root).as_posix(), room_of(parts), found


def breaches(root: Path) -> list[str]:
    """One sentence for each import that breaks a rule."""
    found: list[str] = []
    for name, room, imports in all_imports(root):
        if room not in BELOW:
            found.append(f"{name}:1: {room!r} has no row in BELOW of tools/check_layers.py")
            continue
        for one in imports:
            problem = _problem(name, room, one)
            if problem:
                found.append(f"{name}:{one.line}: {problem}")
            for module in _known(one):
                if name not in KNOWN[module]:
                    found.append(f"{name}:{one.line}: imports {module}; KNOWN says who may")
    return found


def _known(one: Import) -> set[str]:
    """The modules of `KNOWN` that a statement imports."""
    named = {f"{one.module}.{name}" for name in one.names} | {one.module}
    return {module for module in KNOWN if f"{PACKAGE}.{module}" in named}


def circles(root: Path) -> list[str]:
    """One sentence for each set of files that import each other, at the top or inside functions."""
    files = {_module_of(name): imports for name, _, imports in all_imports(root)}
    leads = {
        file: {
            target
            for one in imports
            if not one.typing_only
            for target in ([f"{one.module}.{n}" for n in one.names] + [one.module])
            if target in files and target != file
        }
        for file, imports in files.items()
    }
    for file, imports in files.items():  # `from folder import file` needs the file alone
        for one in imports:
            if one.names and all(f"{one.module}.{n}" in files for n in one.names):
                leads[file].discard(one.module)
    while ends := {file for file in leads if not leads[file]}:  # what leads to no circle
        leads = {file: there - ends for file, there in leads.items() if file not in ends}
    reached = {file: _reached(file, leads) for file in leads}
    sets = {frozenset(f for f in reached[file] if file in reached[f]) for file in leads}
    return [f"{', '.join(sorted(s))} import each other" for s in sets if s]


def assignments(root: Path) -> list[str]:
    """One sentence for each assignment onto an imported class or module of the package."""
    trees = {
        _module_of(path.relative_to(root).as_posix()): (path, ast.parse(path.read_text("utf-8")))
        for path in sorted(root.rglob("*.py"))
    }
    found = []
    for path, tree in trees.values():
        package = ".".join((PACKAGE, *path.relative_to(root).parent.parts))
        owners = {
            alias.asname or alias.name: module
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            for module in [PACKAGE if node.module == PACKAGE else _modules(node, package)[0]]
            if _is_owner(trees, module, alias.name)
        }
        found += [
            f"{path.relative_to(root)}:{line}: assigns to {name} of {owners[name]}; call a "
            "function of that file"
            for line, name in _assigned(tree)
            if name in owners
        ]
    return found


def owned(root: Path) -> list[str]:
    """One sentence for each assignment to an attribute that is another file's to assign."""
    files = {path.relative_to(root).as_posix(): path for path in sorted(root.rglob("*.py"))}
    return [
        f"{name}:{node.lineno}: assigns {node.attr}; OWNED says who may"
        for name, path in files.items()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if not name.startswith(OWNED.get(node.attr, ("",)))
    ]


def vague(root: Path) -> list[str]:
    """One sentence for each public function of core whose signature says `Any`."""
    return [
        f"core/{path.name}:{node.lineno}: {node.name} says Any; give the type"
        for path in sorted((root / "core").glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name[0] != "_" and node.name not in ANYTHING
        for said in [*ast.walk(node.args), *ast.walk(node.returns or node.args)]
        if isinstance(said, ast.Name) and said.id == "Any"
    ]


def _is_owner(trees: dict[str, tuple[Path, ast.Module]], module: str, name: str) -> bool:
    """Whether a name of a module is a module or a class."""
    if f"{module}.{name}" in trees:
        return True
    body = trees[module][1].body if module in trees else []
    return any(isinstance(node, ast.ClassDef) and node.name == name for node in body)


def _assigned(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Lines that store to, or delete, an attribute of a name, and the name."""
    for node in ast.walk(tree):
        changed: ast.AST | None = None
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            changed = node.value
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("setattr", "delattr"):
            changed = node.args[0]
        if isinstance(changed, ast.Name):
            yield changed.lineno, changed.id


def _reached(start: str, leads: dict[str, set[str]]) -> set[str]:
    """All files that a file imports, directly or through others."""
    found: set[str] = set()
    pending = [start]
    while pending:
        new = leads[pending.pop()] - found
        found |= new
        pending += new
    return found


def _module_of(name: str) -> str:
    parts = Path(name).with_suffix("").parts
    return ".".join([PACKAGE, *(parts[:-1] if parts[-1] == "__init__" else parts)])


def unneeded(root: Path) -> list[str]:
    """One sentence for each entry of the tables that nothing in the tree needs."""
    rooms: set[str] = set()
    late: set[tuple[str, str]] = set()
    arrays: set[tuple[str, str]] = set()
    known: set[tuple[str, str]] = set()
    for name, room, imports in all_imports(root):
        rooms.add(room)
        for one in imports:
            top, *rest = one.module.split(".")
            if top == PACKAGE and one.late:
                late.add((name, room_of(tuple(rest))))
            known |= {(module, name) for module in _known(one)}
            if top in ARRAYS:
                arrays |= {(top, who) for who in ARRAYS[top] if name.startswith(who)}
    listed = {(module, who) for module, users in ARRAYS.items() for who in users}
    rooms |= {path.stem for path in root.glob("*.pyi")}  # what is compiled
    return [
        *[f"BELOW has a row for {room}, which does not exist" for room in set(BELOW) - rooms],
        *[f"LATE lists {pair}, which no longer happens" for pair in LATE - late],
        *[f"ARRAYS lets {who} import {module}; it does not" for module, who in listed - arrays],
        *[
            f"KNOWN lets {who} import {module}; it does not"
            for module, users in KNOWN.items()
            for who in users
            if (module, who) not in known
        ],
    ]


def _problem(name: str, room: str, one: Import) -> str | None:
    if one.typing_only:  # never runs
        return None
    top, *rest = one.module.split(".")
    if top in ARRAYS:
        return _array_problem(name, one, top)
    allowed = reachable(room)
    if top != PACKAGE or "*" in allowed:
        return None
    target = room_of(tuple(rest))
    if target in allowed or (one.late and (name, target) in LATE):
        return None
    if target == "__init__":
        return "imports lucid_gpu itself; import from the module that defines the name"
    when = " (inside a function: list it in LATE if it must be)" if one.late else ""
    return f"{room} may not import {target}, which is not below it{when}"


def _array_problem(name: str, one: Import, top: str) -> str | None:
    if not name.startswith(ARRAYS[top]):
        return f"imports {one.module}; ask the device's room (ARRAYS says who may)"
    if top != "numpy" and not one.late:
        return f"imports {one.module} when it is imported; import it inside the function"
    return None


def main() -> int:
    """Print the breaches of the tree this script lies in."""
    root = Path(__file__).resolve().parent.parent / PACKAGE
    found = [*breaches(root), *circles(root), *assignments(root), *owned(root), *vague(root)]
    idle = unneeded(root)
    for line in sorted(found):
        print(f"{PACKAGE}/{line}", file=sys.stderr)
    for line in sorted(idle):
        print(f"tools/check_layers.py: {line}", file=sys.stderr)
    if found:
        print(f"check_layers: {len(found)} imports break the layering", file=sys.stderr)
    return 1 if found or idle else 0


if __name__ == "__main__":
    sys.exit(main())

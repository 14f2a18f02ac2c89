"""Packages built on PyTorch, unedited, on lucid_gpu: ``python tools/try_packages.py``.

Installs the packages of ``tests/packages/uses.py`` without what they depend on into a folder
(``--site``, ``build/packages``), runs each use in one process after ``install_as_torch()`` and in
another on PyTorch, compares every loss and gradient, and writes ``docs/packages.md``. The first
process is that of an environment in which this package is installed from its wheel and PyTorch is
not (``--without``, ``build/without-torch``, made where it is not there). ``--no-install`` takes
what both folders hold; names of packages run only those, and change their rows alone with
``--write``.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import traceback
import venv
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
SIDES = ("torch", "lucid_gpu")
# What packages take for granted, beside what the extras and PyTorch itself bring.
BESIDE: tuple[str, ...] = (
    "einops",
    "opt_einsum",
    "packaging",
    "pandas",
    "pillow",
    "psutil",
    "PyYAML",
    "requests",
)
BESIDE += ("safetensors", "setuptools<81")
CLOSE = 1e-4  # relative, after a few steps in float32

HEAD = """# Packages built on PyTorch

The packages below import torch. Each was run unmodified through `lucid_gpu.install_as_torch()`
([Coming from PyTorch](from_pytorch.md)). "Works" means that all losses, gradients and weights of a
few steps agree with PyTorch's, from equal weights and inputs; the number is the largest relative
difference. For packages that stop, the error is shown. Parts of a package that the row does not
describe were not tried. Rows marked (*) are of lucid_gpu's wheel in an environment without
PyTorch, as the tool tries packages now; the others are older, of the source tree beside PyTorch.

`python tools/try_packages.py` writes this page from the functions of `tests/packages/uses.py`;
last on {date} with lucid_gpu {version} and PyTorch {torch}.

| package | version | what was run | result |
|---|---|---|---|
"""


class On:
    """The same weights and inputs for both sides, and what they compute."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.kept: list[Any] = []
        self._rng = np.random.default_rng(0)

    def randn(self, *shape: int) -> Any:
        """A float32 tensor of normal numbers."""
        return self.torch.from_numpy(self._rng.standard_normal(shape, dtype=np.float32))

    def weights(self, module: Any, size: float = 0.3) -> Any:
        """The module, with weights of this size that do not depend on who initialized them."""
        with self.torch.no_grad():
            for p in module.parameters():
                drawn = size * self.randn(*p.shape)
                if p.is_complex():
                    drawn = self.torch.complex(drawn, size * self.randn(*p.shape))
                p.copy_(drawn if p.ndim > 1 or not bool((p == 1).all()) else 1 + size * drawn)
        return module

    def same_buffers(self, module: Any) -> Any:
        """The module, with floating point buffers that were drawn at random drawn here."""
        for b in module.buffers():
            if b.is_floating_point() and b.ndim > 1:
                b.copy_(self.randn(*b.shape))
        return module

    def keep(self, *values: Any) -> None:
        """Compare these."""
        for v in values:
            self.kept.append(None if v is None else v.detach().cpu().resolve_conj().numpy().copy())

    def train(self, module: Any, loss: Any, steps: int = 3, optimizer: Any = None) -> None:
        """Steps of an optimizer, SGD by default: each loss, all gradients, the last weights."""
        parameters = list(module.parameters() if hasattr(module, "parameters") else module)
        optimizer = optimizer or self.torch.optim.SGD(parameters, lr=1e-2)
        for _ in range(steps):
            optimizer.zero_grad()
            value = loss()
            value.backward()
            self.keep(value, *[p.grad for p in parameters])
            optimizer.step()
        self.keep(*parameters)


def uses() -> Any:
    """The table of packages and functions."""
    sys.path.insert(0, str(ROOT / "tests" / "packages"))
    import uses as module  # type: ignore[import-not-found]

    return module.USES


def compute(side: str, names: list[str], site: Path, out: Path) -> None:
    """One side's numbers of each use, or the error that ended it."""
    if side == "lucid_gpu":
        if importlib.util.find_spec("torch") is not None:
            sys.exit("try_packages: PyTorch is installed where it must not be")
        import lucid_gpu

        lucid_gpu.install_as_torch()
    sys.path.append(str(site))
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if side == "torch" and importlib.util.find_spec("torchvision") is not None:
        load_torchvision(torch)
    found: dict[str, Any] = {}
    for name in names:  # each in a process of its own: packages change what they import
        process = os.fork()
        if process == 0:
            out.write_bytes(pickle.dumps(outcome(name, torch, site)))
            os._exit(0)
        ended = os.waitpid(process, 0)[1]
        found[name] = pickle.loads(out.read_bytes()) if ended == 0 else f"exit status {ended}"
    out.write_bytes(pickle.dumps(found))


def load_torchvision(torch: Any) -> None:
    """Let it be imported where its operators cannot be loaded: built for CUDA, or another PyTorch.

    It declares the shapes of two of them when it is imported, which needs their names.
    """
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor a, Tensor b, float c) -> Tensor")


def outcome(name: str, torch: Any, site: Path) -> Any:
    """What a use computes, or the error that ended it as text."""
    on = On(torch)
    try:
        uses()[name][0](on)
        return on.kept
    except Exception as error:
        at = [f for f in traceback.extract_tb(error.__traceback__) if str(site) in f.filename]
        where = f" ({Path(at[-1].filename).name}:{at[-1].lineno})" if at else ""
        return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}{where}"


def difference(ours: list[Any], theirs: list[Any]) -> float:
    """The largest error relative to an array's length, infinite where the arrays do not pair."""
    if len(ours) != len(theirs):
        return float("inf")
    worst = 0.0
    for a, b in zip(ours, theirs):
        if a is None and b is None:
            continue
        if a is None or b is None or a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        if a.dtype == bool:
            a, b = a.astype(int), b.astype(int)
        error = float(np.linalg.norm(a - b) / (np.linalg.norm(b) + 1e-3))
        worst = max(worst, error if error == error else float("inf"))
    return worst


def result(ours: Any, theirs: Any) -> str:
    """What the last column says."""
    if isinstance(theirs, str):
        return f"not tried: fails on PyTorch too, {theirs}"
    if isinstance(ours, str):
        return f"stops: {ours}"
    apart = difference(ours, theirs)
    return f"works, {apart:.0e}" if apart <= CLOSE else f"differs by {apart:.0e}"


def version(name: str, site: Path) -> str:
    """The installed version of a package."""
    wanted = name.replace("-", "_").lower()
    for path in (str(site), *sys.path):
        for found in metadata.distributions(path=[path]):
            if found.metadata["Name"].replace("-", "_").lower() == wanted:
                return found.version
    return "?"


def without_torch(folder: Path, install: bool) -> str:
    """The Python of an environment with this package's wheel and no PyTorch."""
    python = str(folder / "bin" / "python")
    if install or not folder.exists():
        if not folder.exists():
            venv.create(folder, with_pip=True)
        for stale in (ROOT / "build").glob("lib*"):  # else setuptools puts it into the wheel
            shutil.rmtree(stale)
        needs = [need.partition(";")[0] for need in metadata.requires("torch") or ()]
        needs = [need for need in needs if not need.startswith(("nvidia", "triton", "cuda"))]
        wheel = [f"{ROOT}[train,tensorboard]", *needs, *BESIDE]
        again = ["--force-reinstall", "--no-deps", str(ROOT)]  # of a version that is the same
        for wanted in (wheel, again):
            subprocess.run([python, "-m", "pip", "install", "-q", *wanted], check=True)
    return python


def write(rows: dict[str, str], table: Any) -> None:
    """Put rows into the page, which keeps those of other packages."""
    page = ROOT / "docs" / "packages.md"
    lines = page.read_text("utf-8").splitlines()
    kept = {line.split(" | ")[0].removeprefix("| "): line for line in lines if line[:2] == "| "}
    rows = {name: line for name, line in (kept | rows).items() if name in table}
    head = HEAD.format(
        date=datetime.date.today(),
        version=metadata.version("lucid-gpu"),
        torch=metadata.version("torch"),
    )
    page.write_text(head + "\n".join(rows[name] for name in sorted(rows)) + "\n", "utf-8")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="packages (default: all)")
    parser.add_argument("--site", type=Path, default=ROOT / "build" / "packages")
    parser.add_argument("--without", type=Path, default=ROOT / "build" / "without-torch")
    parser.add_argument("--no-install", action="store_true")
    parser.add_argument("--write", action="store_true", help="the rows of named packages")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.site, args.without = args.site.resolve(), args.without.resolve()
    table = uses()
    names = args.names or sorted(table)
    if args.side:
        compute(args.side, names, args.site, args.out)
        return
    if not args.no_install:
        wanted = sorted({n for name in names for n in (name, *table[name][1])})
        for name in wanted:
            command = ["install", "-q", "--no-deps", "--upgrade", "--target", str(args.site), name]
            subprocess.run([sys.executable, "-m", "pip", *command], check=False)
    pythons = {"torch": sys.executable}
    pythons["lucid_gpu"] = without_torch(args.without, not args.no_install)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for side in SIDES:
            out = Path(folder) / side
            command = [pythons[side], __file__, *names, "--site", str(args.site)]
            command += ["--side", side, "--out", str(out)]
            subprocess.run(command, check=True, cwd=folder)  # where nothing of the tree is found
            found[side] = pickle.loads(out.read_bytes())
    rows = {}
    for name in names:
        said = (table[name][0].__doc__ or "").strip().partition("\n")[0]
        outcome = result(found["lucid_gpu"][name], found["torch"][name]).replace("|", "\\|")
        rows[name] = f"| {name} | {version(name, args.site)} | {said} | {outcome} (*) |"
    print(*rows.values(), sep="\n")
    if not args.names or args.write:
        write(rows, table)


if __name__ == "__main__":
    main()

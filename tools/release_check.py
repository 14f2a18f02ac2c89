"""Build the wheel and the sdist, install each into an empty environment, and train with it.

``make release-check`` runs it. Nothing of the tree is importable while the installed package is
tried: the example lies in a temporary folder. The files that passed stay in ``dist/``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
DIST = TREE / "dist"
SECONDS = 900.0  # for one command: an install downloads SciPy and its kin
EXAMPLE = ("train_digits.py", "training.py", "digits.py")
TRAIN = ("train_digits.py", "--epochs", "2", "--device", "cpu")


def run(command: list[str], folder: Path) -> str:
    """A command's output; this program ends with it where it fails."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    ran = subprocess.run(
        command, cwd=folder, env=environment, text=True, timeout=SECONDS,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if ran.returncode:
        sys.exit(f"{' '.join(command)}\n{ran.stdout}\nrelease-check: that failed")
    return ran.stdout


def build() -> list[Path]:
    """The sdist, and the wheel made from it, in an emptied ``dist/``."""
    shutil.rmtree(DIST, ignore_errors=True)
    run([sys.executable, "-m", "build", "--outdir", str(DIST), str(TREE)], TREE)
    run([sys.executable, "-m", "twine", "check", "--strict", *map(str, DIST.iterdir())], TREE)
    return sorted(DIST.iterdir())


def version() -> str:
    """What ``lucid_gpu/version.py`` says, the one place that does."""
    namespace: dict[str, str] = {}
    exec((TREE / "lucid_gpu" / "version.py").read_text("utf-8"), namespace)
    return namespace["__version__"]


def lacking(wheel: Path) -> list[str]:
    """Files of the tree that the wheel should hold and does not."""
    wanted = {f"lucid_gpu/{p.relative_to(TREE / 'lucid_gpu')}" for p in sources("lucid_gpu")}
    wanted |= {f"lucid_gpu/_kernels/{p.relative_to(TREE / 'kernels')}" for p in sources("kernels")}
    return sorted(wanted - set(zipfile.ZipFile(wheel).namelist()))


def sources(folder: str) -> list[Path]:
    """Files of a folder that git knows of."""
    command = ["git", "-C", str(TREE), "ls-files", "-z", folder]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [TREE / name for name in listed.split("\0") if name]


def try_out(package: Path) -> str:
    """Install a file into an empty environment and train there; the example's last line."""
    with tempfile.TemporaryDirectory(prefix="lucid_gpu-release-") as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        python = str(folder / "venv" / "bin" / "python")
        run(
            [python, "-m", "pip", "install", "-q", f"lucid-gpu[train] @ {package.as_uri()}"], folder
        )
        for file in EXAMPLE:
            shutil.copy(TREE / "examples" / file, folder)
        place = "import lucid_gpu; print(lucid_gpu.__version__, lucid_gpu.__file__)"
        found, _, path = run([python, "-c", place], folder).strip().partition(" ")
        if found != version() or not Path(path).is_relative_to(folder):
            sys.exit(f"release-check: {package.name} installs version {found} as {path}")
        run([python, "-m", "lucid_gpu.doctor", "--device", "cpu"], folder)
        return run([python, *TRAIN], folder).strip().splitlines()[-1]


def main() -> None:
    """Build, look, install, train."""
    files = build()
    print("built:", *(f"{f.name} ({f.stat().st_size / 2**20:.1f} MiB)" for f in files))
    wheel = next(f for f in files if f.suffix == ".whl")
    missing = lacking(wheel)
    if missing:
        sys.exit(f"release-check: {wheel.name} lacks {', '.join(missing)}")
    for file in files:
        print(f"{file.name}: installed into an empty environment; {try_out(file)}", flush=True)


if __name__ == "__main__":
    main()

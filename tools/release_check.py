"""Build the wheel and the sdist, install each into an empty environment, and train with it.

``make release-check`` runs it. The wheel has the C file compiled; the sdist is installed as on a
machine without a C compiler, where the package is slower and no less right. Nothing of the tree is
importable while the installed package is tried: what runs lies in a temporary folder. With the
wheel, and nothing that it does not ask for, runs the first example of README and of every page of
docs/, as somebody does who copies it, by the command that stands after it; what the page says
before that example to install is installed. The files that passed stay in ``dist/``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TREE))  # run as a script

from tools.pages import PAGES, blocks  # noqa: E402

DIST = TREE / "dist"
SECONDS = 900.0  # for one command: an install downloads SciPy and more
OTHERS = re.compile(r"`pip install ([\w ]+)`")
EXAMPLE = ("train_digits.py", "training.py", "digits.py")
TRAIN = ("train_digits.py", "--epochs", "2", "--device", "cpu")


def run(command: list[str], folder: Path, **variables: str) -> str:
    """A command's output; this program ends with it where it fails."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    environment |= variables
    ran = subprocess.run(
        command, cwd=folder, env=environment, text=True, timeout=SECONDS,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
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
    files = [p for p in sources("lucid_gpu") if p.suffix != ".c"]  # which is compiled
    wanted = {f"lucid_gpu/{p.relative_to(TREE / 'lucid_gpu')}" for p in files}
    wanted |= {f"lucid_gpu/_kernels/{p.relative_to(TREE / 'kernels')}" for p in sources("kernels")}
    return sorted(wanted - set(zipfile.ZipFile(wheel).namelist()))


def sources(folder: str) -> list[Path]:
    """Files of a folder that git knows of."""
    command = ["git", "-C", str(TREE), "ls-files", "-z", folder]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [TREE / name for name in listed.split("\0") if name]


class Installed:
    """A file installed into an empty environment of its own, in a folder.

    ``variables`` are added to the environment that pip runs in.
    """

    def __init__(self, package: Path, folder: Path, **variables: str) -> None:
        self.package, self.folder, self.variables = package, folder, variables
        venv.create(folder / "venv", with_pip=True)
        self.install()
        place = "import lucid_gpu; print(lucid_gpu.__version__, lucid_gpu.__file__)"
        found, _, path = self.python("-c", place).strip().partition(" ")
        if found != version() or not Path(path).is_relative_to(folder):
            sys.exit(f"release-check: {package.name} installs version {found} as {path}")

    def python(self, *arguments: str) -> str:
        """What its Python prints."""
        command = [str(self.folder / "venv" / "bin" / "python"), *arguments]
        return run(command, self.folder, **self.variables)

    def is_compiled(self) -> bool:
        """Whether the C file is there."""
        asked = "from lucid_gpu.devices import loops; print(loops.compiled())"
        return self.python("-c", asked).strip() == "True"

    def install(self, extra: str = "") -> None:
        """Install it, with an extra."""
        asked = f"lucid-gpu[{extra}]" if extra else "lucid-gpu"
        self.python("-m", "pip", "install", "-q", f"{asked} @ {self.package.as_uri()}")

    def trains(self) -> str:
        """The example's last line; the doctor finds nothing amiss."""
        self.python("-m", "lucid_gpu.doctor", "--device", "cpu")
        self.install("train")
        for file in EXAMPLE:
            shutil.copy(TREE / "examples" / file, self.folder)
        return self.python(*TRAIN).strip().splitlines()[-1]

    def shows(self, page: Path) -> str:
        """Run a page's first example; what became of it."""
        found = iter(blocks(page))
        block = next((b for b in found if b.language == "python"), None)
        if block is None:
            return "it has no example"
        if block.needs_gpu and not self.has_gpu():
            return "skipped: its first example needs a GPU"
        before = "\n".join(page.read_text("utf-8").splitlines()[: block.line])
        for packages in OTHERS.findall(before):
            self.python("-m", "pip", "install", "-q", *packages.split())
        (self.folder / (block.title or "example.py")).write_text(block.code, "utf-8")
        started = next(found, None) if block.title else None
        if started is not None and started.language == "bash":
            path = f"{self.folder / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
            block, printed = started, run(["bash", "-ec", started.code], self.folder, PATH=path)
        else:
            printed = self.python(block.title or "example.py")
        if block.output is not None and printed != block.output:
            sys.exit(f"release-check: {page.name}, line {block.line}, prints\n{printed}")
        return "its first example runs" + (" and prints what it says" if block.output else "")

    def has_gpu(self) -> bool:
        """Whether examples for a GPU can run here."""
        asked = "import lucid_gpu; print(lucid_gpu.cuda.is_available())"
        return self.python("-c", asked).strip() == "True"


def main() -> None:
    """Build, look, install, try the pages, train."""
    files = build()
    print("built:", *(f"{f.name} ({f.stat().st_size / 2**20:.1f} MiB)" for f in files))
    wheel = next(f for f in files if f.suffix == ".whl")
    missing = lacking(wheel)
    if missing:
        sys.exit(f"release-check: {wheel.name} lacks {', '.join(missing)}")
    for file in files:
        with tempfile.TemporaryDirectory(prefix="lucid_gpu-release-") as folder:
            variables = {} if file == wheel else {"CC": "false"}  # a compiler that always fails
            installed = Installed(file, Path(folder), **variables)
            if installed.is_compiled() != (file == wheel):
                sys.exit(
                    f"release-check: {file.name}: whether the C file was compiled is not as meant"
                )
            for page in PAGES if file == wheel else ():
                print(f"  {page.relative_to(TREE)}: {installed.shows(page)}", flush=True)
            trained = installed.trains()
        print(f"{file.name}: installed into an empty environment; {trained}", flush=True)


if __name__ == "__main__":
    main()

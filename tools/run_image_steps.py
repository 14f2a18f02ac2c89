"""Execute the steps of an image without a container engine: ``make image-dry-run``.

Each target of the Dockerfile gets a folder that stands for the image's root and a virtual
environment that stands for its Python. Every COPY and RUN is executed there in order, then the
command with one epoch, then the health check. What differs from an engine: absolute paths of the
image lie under that folder, and ``useradd`` and ``chown``, which need root, do nothing. Where there
is no GPU the command of a CUDA image trains on the CPU, and of the health check the driver's line,
which must then fail, may be the only one to do so.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TREE))  # run as a script

from tools import dockerfile  # noqa: E402

PYTHON_IMAGE = "python:"
NEEDS_ROOT = ("useradd", "chown")
LIMITS = {"cpu": 250e6}  # bytes beyond the base
PASSED_ON = re.compile(r"PIP_|SSL_|REQUESTS_|https?_proxy$|no_proxy$", re.IGNORECASE)
SECONDS = 1800.0


class Failed(Exception):
    """A step that did not do what it should."""


class Image:
    """A stage being executed: the folder of its root, its environment and working directory."""

    def __init__(self, root: Path, arguments: dict[str, str]) -> None:
        self.root, self.arguments = root, arguments
        self.directory = "/"
        self.health: list[str] = []
        self.command: list[str] = []
        self.images: dict[str, Image] = {}
        venv.create(root / "venv", with_pip=True)
        stand_ins = root / "stand-ins"
        stand_ins.mkdir()
        for name in NEEDS_ROOT:
            (stand_ins / name).write_text("#!/bin/sh\nexit 0\n")
            (stand_ins / name).chmod(0o755)
        path = [str(stand_ins), str(root / "venv" / "bin"), "/usr/bin", "/bin"]
        (root / "home").mkdir()
        self.environment = {k: v for k, v in os.environ.items() if PASSED_ON.match(k)}
        self.environment |= {"PATH": ":".join(path), "HOME": str(root / "home")}
        self.given: dict[str, str] = {}  # ARGs seen so far
        self.started_with = self.size()

    def size(self) -> int:
        """Bytes of all files."""
        return sum(p.lstat().st_size for p in self.root.rglob("*") if not p.is_dir())

    def here(self, path: str) -> Path:
        """A path of the image on this machine."""
        absolute = path if path.startswith("/") else f"{self.directory}/{path}"
        return Path(os.path.normpath(f"{self.root}/{absolute}"))

    def rewritten(self, text: str) -> str:
        """Absolute paths of the image put under its folder."""
        return re.sub(r"(?<![\w./$}])(/(?:app|src|wheels|var/cache)\b)", rf"{self.root}\1", text)

    def step(self, one: dockerfile.Instruction) -> None:
        """Do what one instruction says."""
        if one.name == "WORKDIR":
            self.directory = one.text
            self.here("").mkdir(parents=True, exist_ok=True)
        elif one.name == "COPY":
            self.copy(one)
        elif one.name == "RUN":
            self.run(["sh", "-ec", self.rewritten(one.text)], {**self.given, **self.environment})
        elif one.name == "ENV":
            self.environment |= {k: self.rewritten(v) for k, v in one.pairs().items()}
        elif one.name == "ARG":
            self.given |= {k: self.arguments.get(k, v) for k, v in one.pairs().items()}
        elif one.name == "HEALTHCHECK":
            self.health = json.loads(one.text.removeprefix("CMD "))
        elif one.name == "CMD":
            self.command = one.words()
        elif one.name not in ("LABEL", "USER"):
            raise Failed(f"{one.name}: an instruction this script does not know")

    def copy(self, one: dockerfile.Instruction) -> None:
        """COPY: a folder's contents, or files into a folder."""
        *sources, target = one.words()
        other = one.flags.get("from")
        for source in sources:
            origin = self.images[other].here(source) if other else TREE / source
            place = self.here(target)
            if origin.is_dir():
                shutil.copytree(origin, place, ignore=_IGNORED, dirs_exist_ok=True)
            else:
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy2(origin, place)

    def run(self, command: list[str], environment: dict[str, str]) -> str:
        """A command's output, in the image's folder."""
        ran = subprocess.run(
            command, cwd=self.here(""), env=environment, text=True, timeout=SECONDS,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        if ran.returncode:
            raise Failed(ran.stdout[-4000:])
        return ran.stdout


_IGNORED = shutil.ignore_patterns("__pycache__", "*.egg-info")


def build(target: str, folder: Path, arguments: dict[str, str]) -> Image:
    """Execute a target's steps, those of the stages it copies from first."""
    stages = dockerfile.parse((TREE / "Dockerfile").read_text("utf-8"))
    instructions = dockerfile.chain(stages, target)
    images = {
        other: build(other, folder, arguments)
        for other in {one.flags["from"] for one in instructions if "from" in one.flags}
    }
    root = folder / target
    root.mkdir()
    image = Image(root, arguments)
    image.images = images
    print(f"{target}: Python {sys.version.split()[0]} stands for {PYTHON_IMAGE}", flush=True)
    for one in instructions:
        began, before = time.perf_counter(), image.size()
        print(f"  {one.name} {one.text[:80]}", end=" ", flush=True)
        image.step(one)
        grown = (image.size() - before) / 1e6
        print(f"... {grown:+.1f} MB, {time.perf_counter() - began:.0f} s", flush=True)
    return image


def has_gpu() -> bool:
    """Whether there is a driver."""
    return shutil.which("nvidia-smi") is not None


def try_out(target: str, image: Image) -> None:
    """The size, the command with one epoch, the health check."""
    size = image.size() - image.started_with
    limit = LIMITS.get(target)
    print(f"{target}: {size / 1e6:.0f} MB beyond the base")
    if limit is not None and size > limit:
        raise Failed(f"{target} may take {limit / 1e6:.0f} MB beyond the base")

    without = target == "cuda" and not has_gpu()
    command = [*image.command, "--epochs", "1"]
    if without:
        command[command.index("--device") + 1] = "cpu"
    print(f"{target}: {' '.join(command)}", flush=True)
    print("  " + image.run(command, image.environment).strip().splitlines()[-1])

    print(f"{target}: {' '.join(image.health)}", flush=True)
    checked = subprocess.run(
        [*image.health, "--json"], cwd=image.here(""), env=image.environment, text=True,
        stdout=subprocess.PIPE, timeout=SECONDS,
    )  # fmt: skip
    lines = json.loads(checked.stdout)
    print(*(f"  {x['state']:<7} {x['name']:<17} {x['found']}" for x in lines), sep="\n")
    failed = [line["name"] for line in lines if line["state"] != "ok"]
    allowed = {"C++ compiler", *(["driver"] if without else [])}
    if set(failed) - allowed or checked.returncode != int(without):
        raise Failed(f"the health check answered {checked.returncode}; not well: {failed}")


def main() -> int:
    """Run the targets that are named, one after the other."""
    flags = argparse.ArgumentParser(description="Execute the Dockerfile's steps without an engine.")
    flags.add_argument("targets", nargs="*", default=["cpu", "cuda"])
    flags.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    options = flags.parse_args()
    arguments = dict(one.partition("=")[::2] for one in options.build_arg)
    for target in options.targets:
        with tempfile.TemporaryDirectory(prefix="lucid_gpu-image-") as name:
            try:
                try_out(target, build(target, Path(name), arguments))
            except Failed as failure:
                print(f"\n{failure}\nimage-dry-run: {target} failed", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

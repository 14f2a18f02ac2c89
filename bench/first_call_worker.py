"""A fresh process that begins one training script and stops it after some steps.

``python -m bench.first_call_worker SCRIPT MODULE STEPS [--busy]`` prints when each step of the
script's optimizers ended, in seconds after the script began, by the clock or by the process's own
time; what scripts import is imported before.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from bench.peers import TREE
from bench.worker import claim_stdout

SHARED = ("training", "digits")  # by the examples
# torch's first optimizer imports its compiler, for two seconds, which says nothing of a first step.
FIRST = {"lucid_gpu": (), "torch": ("torch._dynamo",)}
# What `import torch` imports, and lucid_gpu where it is first named.
ROOMS = ("nn.functional", "optim.lr_scheduler", "distributions", "utils.data")
BESIDES = ("numpy", "scipy.sparse", "sklearn.datasets", "sklearn.neighbors", "tqdm")


Clock = Callable[[], float]


class Enough(BaseException):
    """Ends a script; it is no `Exception`, so that no script handles it."""


def exchanged(source: str, module: str) -> str:
    """A script with its imports of torch or lucid_gpu turned into those of a module."""
    source = re.sub(
        r"^( *)import (torch|lucid_gpu as torch)\b(?!\.)",
        rf"\1import {module} as torch", source, flags=re.MULTILINE,
    )  # fmt: skip
    return re.sub(
        r"^( *)(import|from) (torch|lucid_gpu)\b(?! as torch)", rf"\1\2 {module}", source,
        flags=re.MULTILINE,
    )  # fmt: skip


def execute(path: Path, module: str, name: str) -> ModuleType:
    """Run a file, with its imports exchanged, as a module of some name."""
    made = sys.modules[name] = ModuleType(name)
    made.__file__ = str(path)
    exec(compile(exchanged(path.read_text("utf-8"), module), path, "exec"), made.__dict__)
    return made


def ends_of_steps(script: Path, module: str, count: int, clock: Clock) -> list[float]:
    """Begin a script; when each of its first steps ended."""
    optimizer = importlib.import_module(f"{module}.optim.optimizer")
    ends: list[float] = []

    def note(*_: Any) -> None:
        ends.append(clock() - start)
        if len(ends) == count:
            raise Enough

    optimizer.register_optimizer_step_post_hook(note)
    sys.argv = [str(script), "--device", "cpu"]
    sys.path.insert(0, str(script.parent))
    start = clock()
    with contextlib.suppress(Enough):
        for name in SHARED:
            if (script.parent / f"{name}.py").exists():
                execute(script.parent / f"{name}.py", module, name)
        execute(script, module, "__main__")
    return ends


def main(script: str, module: str, count: str, *flags: str) -> None:
    answers = claim_stdout()
    theirs = (module, *[f"{module}.{name}" for name in ROOMS], *FIRST[module])
    for name in (*BESIDES, *theirs):
        importlib.import_module(name)
    clock = time.process_time if "--busy" in flags else time.perf_counter
    ends = ends_of_steps(TREE / script, module, int(count), clock)
    print(json.dumps({"ends": ends}), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

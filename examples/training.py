"""What the examples share: flags, checkpoints, the progress bar, Ctrl-C, plots.

An example is a subclass of `Run` and a `parser`; `main` does the rest. The last line it prints is
what the run reached, ``what: number``. Where torch is installed, the same script runs once
more with torch (`run_beside`): the line before says what that reached, and its curves are drawn
dashed.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import math
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

NAME = Path(sys.argv[0]).stem


def stop(sentence: str, status: int = 1) -> NoReturn:
    """End with one sentence."""
    print(f"{NAME}: {sentence}", file=sys.stderr)
    sys.exit(status)


def stop_early(*_: Any) -> NoReturn:
    """Ctrl-C before training: nothing is open, so that nothing has to be put away."""
    os.write(2, f"{NAME}: interrupted before training began\n".encode())
    os._exit(130)


signal.signal(signal.SIGINT, stop_early)  # before the imports that take time

import numpy as np  # noqa: E402

import lucid_gpu as torch  # noqa: E402

NEEDED = {"sklearn": "scikit-learn", "matplotlib": "matplotlib", "tqdm": "tqdm", "scipy": "scipy"}


class Run:
    """A model in training, and all that a checkpoint holds.

    A subclass makes the model and sets ``parts``: what has a ``state_dict``, by name. Progress is
    counted in ``unit``; each is worth ``ticks`` of the bar, which counts ``ticks_of``.
    """

    unit = "step"
    ticks, ticks_of = 1, "steps"
    fixed: tuple[str, ...] = ()  # flags in which a checkpoint and the command line must agree
    leads = True  # of several processes one writes, draws and prints
    reaches = ""  # what the curve "test" shows
    in_torch = True  # the script runs with torch, too
    flags_in_torch: tuple[str, ...] = ()
    processes = 1
    peer: dict[str, list[float]] = {}  # the curves of the run beside: with torch, or in one process
    beside = "torch"

    def __init__(self, args: argparse.Namespace, total: int, curves: tuple[str, ...]) -> None:
        self.args, self.device = args, args.device
        self.file = args.out / "checkpoint.pt"
        self.done, self.total = 0, total
        self.history: dict[str, list[float]] = {name: [] for name in ("done", *curves)}
        self.parts: dict[str, Any] = {}
        torch.manual_seed(args.seed)

    def learn(
        self, model: Any, kind: Any = torch.optim.Adam, warm: int = 0, **settings: Any
    ) -> None:
        """Train ``model`` with an optimizer whose rate falls along half a cosine."""
        self.model = model.to(self.device)
        self.optimizer = kind(self.model.parameters(), **settings)
        self.schedule = half_cosine(self.optimizer, self.total, warm)
        parts = {"weights": self.model, "optimizer": self.optimizer, "schedule": self.schedule}
        self.parts |= parts

    def share(self, processes: int) -> None:
        """Begin what `start_processes` started: each process knows which it is."""
        self.rank, self.processes = 0, processes
        if processes > 1:
            torch.distributed.init_process_group()
            self.rank = torch.distributed.get_rank()
            self.leads = self.rank == 0

    def minimizing(self, losses: Callable[..., Any], clip: float = math.inf) -> Callable[..., Any]:
        """Return a step that trains on a batch by ``losses``, of which the first is minimized.

        It returns what they return, and runs as a graph where ``--captured`` asks for it.
        """

        def step(*batch: torch.Tensor) -> Any:
            found = losses(*batch)
            self.optimizer.zero_grad()
            found[0].backward()
            if clip < math.inf:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), clip)
            self.optimizer.step()
            return found

        return torch.cuda.captured(step) if self.args.captured else step

    def batches(self, size: int, bar: Any) -> Iterator[torch.Tensor]:
        """The numbers of all ``ticks`` examples in random order, ``size`` at a time."""
        for chosen in torch.randperm(self.ticks, device=self.device).split(size):
            yield chosen
            bar.update(len(chosen))

    def advance(self, bar: Any) -> dict[str, float]:
        """Train for a while, add to ``done``, and return a point of every curve."""
        raise NotImplementedError

    def draw(self) -> None:
        """Write the pictures."""
        figure = new_figure(5, 3.6)
        plot_curves(figure.subplots(), self, self.reaches, BOTH)
        write_picture(figure, self.args.out / "curves.png")

    def about(self) -> str:
        """Printed before training."""
        return f"{self.weights()}: {self.ticks} {self.ticks_of} to learn from"

    def reached(self) -> tuple[str, float]:
        """Printed after it: what was measured, and how much it is."""
        return self.reaches, self.history["test"][-1]

    def weights(self) -> str:
        count = sum(p.numel() for p in self.model.parameters())
        return f"{count:,} weights on {self.device}"

    def title(self) -> str:
        """What stands before the bar."""
        return NAME

    def save(self) -> None:
        checkpoint = {
            **{flag: getattr(self.args, flag) for flag in self.fixed},
            **{name: part.state_dict() for name, part in self.parts.items()},
            "seed": self.args.seed,
            "done": self.done,
            "history": self.history,
        }
        try:
            torch.save(checkpoint, self.file)
        except OSError as error:
            kept = " (the one before is untouched)" if self.file.exists() else ""
            stop(f"cannot write {self.file}{kept}: {error.strerror}")

    def resume(self) -> None:
        try:
            checkpoint = torch.load(self.file, map_location=self.device)
        except FileNotFoundError:
            stop(f"there is no {self.file} to resume from; leave out --resume")
        except OSError as error:
            stop(f"cannot read {self.file}: {error.strerror}")
        except pickle.UnpicklingError as error:  # and what lucid_gpu raises in its place
            stop(f"{error}; remove it, or leave out --resume")
        try:
            for flag in self.fixed:
                if (was := checkpoint[flag]) != getattr(self.args, flag):
                    stop(f"{self.file} was trained with --{flag} {was}; say --{flag} {was} again")
            for name, part in self.parts.items():
                part.load_state_dict(checkpoint[name])
            self.done, self.args.seed = checkpoint["done"], checkpoint["seed"]
            self.history = checkpoint["history"]
        except (KeyError, TypeError, ValueError, RuntimeError):
            stop(f"{self.file} is no checkpoint of this script; remove it, or leave out --resume")

    def write_curves(self) -> None:
        (self.args.out / "curves.json").write_text(json.dumps(self.history) + "\n")


class Arrays(dict[str, Any]):
    """Arrays of NumPy or CuPy by name: a part of a checkpoint for examples without modules."""

    def state_dict(self) -> dict[str, Any]:
        return {name: torch.tensor(on_host(array)) for name, array in self.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, array in self.items():
            if state[name].shape != array.shape:
                raise ValueError(f"{name} has shape {tuple(array.shape)} in this script")
        for name, array in self.items():
            self[name] = array_library(array).asarray(on_host(state[name]))


def array_library(where: Any) -> Any:
    """NumPy for a CPU or an array of it, CuPy for a GPU: all that ``--device`` decides there."""
    if isinstance(where, np.ndarray) or where == torch.device("cpu"):
        return np
    import cupy

    return cupy


def on_host(array: Any) -> Any:
    """An array or tensor as an array of NumPy."""
    return torch.as_tensor(array).detach().cpu().numpy()


def train(run: Run) -> bool:
    """Train to the end, or to the next checkpoint after Ctrl-C; returns whether that came."""
    from tqdm import tqdm

    interrupted = False

    def interrupt(*_: Any) -> None:
        nonlocal interrupted
        interrupted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if run.leads:
            print("\nstopping at the next checkpoint (Ctrl-C again: at once)", file=sys.stderr)

    signal.signal(signal.SIGINT, interrupt)
    total, initial = run.total * run.ticks, run.done * run.ticks
    silent = None if run.leads else True
    with tqdm(total=total, initial=initial, unit=f" {run.ticks_of}", disable=silent) as bar:
        while run.done < run.total and not interrupted:
            bar.set_description(run.title(), False)
            # Everything random follows from seed and progress: resuming changes no number.
            torch.manual_seed(run.args.seed * 1_000_003 + run.done)
            before = run.done
            point = run.advance(bar)
            for name, value in {"done": run.done, **point}.items():
                run.history[name].append(value)
            if not run.leads:
                continue
            run.save()
            if bar.disable and run.done * 10 // run.total > before * 10 // run.total:
                values = ", ".join(f"{name} {value:.3g}" for name, value in point.items())
                print(f"{run.unit} {run.done}/{run.total}: {values}", flush=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return interrupted and run.done < run.total


def half_cosine(optimizer: Any, steps: int, warm: int = 0) -> Any:
    """Learning rates along half a cosine, down to zero; resuming may ask for more steps.

    The first ``warm`` steps are smaller.
    """

    def factor(n: int) -> float:
        return min((n + 1) / (warm + 1), 1) * (1 + math.cos(math.pi * min(n / steps, 1))) / 2

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def lbfgs(function: Any, start: Any, steps: int, bar: Any, **settings: Any) -> Any:
    """SciPy's L-BFGS, of a function that gives value and slope; steps it saves are counted, too."""
    from scipy.optimize import minimize

    limit = {"maxiter": steps, **settings.pop("options", {})}
    found = minimize(
        *(function, start),
        **{"jac": True, "method": "L-BFGS-B", "options": limit, **settings},
        callback=lambda _: bar.update(),
    )
    bar.update(steps - found.nit)
    return found


# -- pictures ----------------------------------------------------------------------------------

TRAINING, TEST, TRUTH = "#8aa4c8", "#c8553d", "#3d4451"  # colors
BOTH = {"training": ("training", TRAINING), "test": ("test", TEST)}


def new_figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def write_picture(figure: Any, path: Path) -> None:
    """All of a picture or nothing."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    part = path.with_suffix(".part")
    try:
        part.write_bytes(buffer.getvalue())
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        stop(f"cannot write {path}: {error.strerror}")


def plot_curves(axes: Any, run: Run, ylabel: str, curves: dict[str, tuple[str, str]]) -> None:
    """``curves``: name in the history -> label and color."""
    for name, (label, color) in curves.items():
        few = len(run.history[name]) <= 40
        axes.plot(
            run.history["done"], run.history[name], ".-" if few else "-", label=label, color=color
        )
        if name in run.peer:
            where = run.peer["done"], run.peer[name]
            axes.plot(*where, "--", label=f"{label}, {run.beside}", color=color, alpha=0.6)
    axes.set(xlabel=run.unit, ylabel=ylabel)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if len(curves) > 1 or run.peer:
        axes.legend(frameon=False)


def show_grid(axes: Any, images: Any, columns: int, title: str, white: float = -1.0) -> None:
    """``(n, h, w)`` images in rows, one pixel apart."""
    framed = np.pad(images, ((0, 0), (1, 1), (1, 1)), constant_values=white)
    rows = framed.reshape(-1, columns, *framed.shape[1:]).transpose(0, 2, 1, 3)
    axes.imshow(rows.reshape(-1, columns * framed.shape[2]), cmap="gray_r")
    axes.set_title(title, fontsize=9)
    axes.axis("off")


# -- the same script once more -----------------------------------------------------------------


def run_beside(run: Run, line: list[str]) -> str | None:
    """Run the same command with torch in the place of lucid_gpu, or what several processes did in
    one; return the last line it prints.

    With torch this script's text runs with ``torch`` written for ``lucid_gpu``.
    """
    script = Path(line[0])
    if run.args.alone:
        return None
    if run.processes > 1:
        run.beside = "one process"
        return run_again(run, script, [*line[1:], "--processes", "1"], run.args.out / "one")
    if not run.in_torch or importlib.util.find_spec("torch") is None:
        return None
    folder = run.args.out / "torch"
    folder.mkdir(exist_ok=True)
    for source in (script, Path(__file__), Path(__file__).with_name("digits.py")):
        text = source.read_text("utf-8").replace("import lucid_gpu as torch", "import torch")
        (folder / source.name).write_text(re.sub(r"\blucid_gpu\b", "torch", text), "utf-8")
    return run_again(run, folder / script.name, [*line[1:], *run.flags_in_torch], folder)


def run_again(run: Run, script: Path, flags: list[str], folder: Path) -> str:
    """Run a script to its end in a folder of its own; its curves go to ``run.peer``."""
    print(f"the same script with {run.beside}:", flush=True)
    again = [flag for flag in flags if flag not in ("--resume", "--captured")]
    own = ["--alone", "--device", run.device.type, "--out", str(folder)]
    environment = {k: v for k, v in os.environ.items() if k != "RANK"}
    ended = subprocess.run(
        [sys.executable, str(script), *again, *own],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    if ended.returncode:
        return f"{run.beside} ended with status {ended.returncode}"
    run.peer = json.loads((folder / "curves.json").read_text())
    return f"{run.beside}, {ended.stdout.splitlines()[-1]}"


# -- several processes --------------------------------------------------------------------------


def start_processes(flags: Parser, batch: int) -> None:
    """Become the command that starts this one ``--processes`` times, unless it has."""
    count = flags.parse_args().processes
    if count == 1 or "RANK" in os.environ:
        return
    if batch % count:
        stop(f"--processes must divide {batch}, the batch, got {count}", 2)
    if not torch.distributed.is_mpi_available():
        from lucid_gpu.devices.installing import command

        stop(f"--processes: mpi4py is missing; {command('mpi')}")
    launcher = ["-m", "lucid_gpu.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    os.execv(sys.executable, [sys.executable, *launcher, *sys.argv])


# -- the command -------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        stop(f"{message} (--help lists the flags)", 2)


def positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def parser(description: str, out: str, **counts: int) -> Parser:
    """The flags that every example takes, and positive numbers with their defaults."""
    made = Parser(description=description, allow_abbrev=False)
    add = made.add_argument
    add(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="auto: cuda if there is one",
    )
    add("--seed", type=int, default=0, help="of everything random (%(default)s)")
    add("--resume", action="store_true", help="go on from the checkpoint")
    add(
        "--alone",
        action="store_true",
        help="without the same script with torch, or in one process, after it",
    )
    add("--captured", action="store_true", help="replay steps as graphs, where an example can")
    add("--out", type=Path, default=Path(out), help="where results go (%(default)s)")
    for name, default in counts.items():
        add(f"--{name}", type=positive, default=default, help="(%(default)s)")
    return made


def prepare(args: argparse.Namespace) -> None:
    """The device and the folder of a run; what is missing ends it."""
    for package, name in NEEDED.items():
        if importlib.util.find_spec(package) is None:
            from lucid_gpu.devices.installing import command  # which torch has not

            stop(f"{name} is missing; {command('train')} brings it")
    if args.device == "auto":
        args.device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        args.device = torch.zeros(1, device=args.device).device
    except RuntimeError as error:
        stop(str(error))
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        stop(f"cannot make the folder {args.out}: {error.strerror}")


def main(flags: Parser, make: Callable[[argparse.Namespace], Run]) -> NoReturn:
    """Run an example as a command."""
    args = flags.parse_args()
    prepare(args)
    try:
        run = make(args)
        if args.resume:
            run.resume()
        if run.leads:
            print(run.about(), flush=True)
        interrupted = train(run)
        if not run.leads:
            sys.exit(130 if interrupted else 0)
        if not interrupted:
            used = f"processor time: {time.process_time():.0f} s"
        beside = None if interrupted else run_beside(run, sys.argv)
        if run.done:
            run.write_curves()
            run.draw()
        if interrupted:
            print(f"stopped after {run.unit} {run.done}; --resume goes on from {run.file}")
            sys.exit(130)
        print(f"results are in {args.out}")
        what, value = run.reached()
        print(used)
        if beside:
            print(beside)
        print(f"{what}: {value:.4g}")
    except KeyboardInterrupt:
        stop("interrupted; the last checkpoint, if there is one, is kept", 130)
    sys.exit(0)

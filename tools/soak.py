"""Train, be killed, resume, again and again: ``make soak ARGS="--minutes 30 --kills 50"``.

``examples/train_digits.py`` trains once unbroken, then with SIGKILL at random moments; every second
kill waits for a checkpoint that is half written. After each one the checkpoint must load, and its
curves must be the first part of the unbroken run's, bit by bit: the example draws everything
random from seed and epoch. What kills left half written must be gone at the end. ``runs/soak/``
keeps both runs and ``soak.png``.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

TREE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TREE))

import lucid_gpu  # noqa: E402
from tools import endurance  # noqa: E402

TRIED = (5, 25)  # epochs: the difference tells how long one takes
PATIENCE = 20.0  # seconds to wait for a half-written checkpoint


class Training:
    """The example with a folder of its own."""

    def __init__(self, out: Path, epochs: int, settings: list[str]) -> None:
        self.out, self.epochs, self.settings = out, epochs, settings
        shutil.rmtree(out, ignore_errors=True)

    def start(self) -> subprocess.Popen[str]:
        """The process, as soon as it trains; it resumes where there is a checkpoint."""
        command = [
            sys.executable,
            str(TREE / "examples" / "train_digits.py"),
            "--alone",
            *self.settings,
        ]
        command += ["--epochs", str(self.epochs), "--out", str(self.out)]
        command += ["--resume"] * self.file.exists()
        process = subprocess.Popen(
            command, cwd=TREE, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        if not process.stdout.readline():
            failed(f"training did not start: {process.communicate()[1]}")
        return process

    def finish(self, process: subprocess.Popen[str]) -> float:
        """Wait for the end; the seconds that this took."""
        start = time.monotonic()
        said = process.communicate()[1]
        if process.returncode:
            failed(f"training ended with status {process.returncode}: {said}")
        return time.monotonic() - start

    @property
    def file(self) -> Path:
        return self.out / "checkpoint.pt"

    def halves(self) -> list[Path]:
        """Checkpoints that were not finished."""
        return [*self.out.glob(f".{self.file.name}.*.tmp")]

    def history(self) -> dict[str, list[float]]:
        """The curves of the checkpoint, where there is one."""
        if not self.file.exists():
            return {}
        try:
            curves: dict[str, list[float]] = lucid_gpu.load(self.file)["history"]
        except RuntimeError as error:
            failed(str(error))
        return curves


def failed(sentence: str) -> NoReturn:
    """End with what was found."""
    sys.exit(f"soak: {sentence}")


def kill_later(training: Training, process: Any, seconds: float, aimed: bool) -> bool:
    """Kill after a while, or when a checkpoint is half written; says whether that was in time."""
    end, left = time.monotonic() + seconds, set(training.halves())
    while time.monotonic() < end and process.poll() is None:
        time.sleep(0.005)
    end = time.monotonic() + PATIENCE
    while aimed and time.monotonic() < end and process.poll() is None:
        if not left.issuperset(training.halves()):
            break
    process.kill()
    process.communicate()
    return process.returncode < 0


def check(history: dict[str, list[float]], unbroken: dict[str, list[float]]) -> int:
    """How far a broken run came; its curves must be the unbroken one's so far."""
    for name, curve in history.items():
        if curve != unbroken[name][: len(curve)]:
            failed(f"the curve {name!r} of the broken run is not that of the unbroken one: {curve}")
    return len(history.get("done", []))


def draw(unbroken: dict[str, list[float]], killed: list[int], path: Path) -> None:
    """The loss of the broken run, whose kills are marked, over the unbroken run's."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots()
    for epoch in killed:
        axes.axvline(epoch + 0.5, color="#c8553d", alpha=0.35, linewidth=0.8)
    axes.plot(unbroken["done"], unbroken["loss"], color="#8aa4c8", linewidth=3, label="unbroken")
    broken = lucid_gpu.load(path.parent / "broken" / "checkpoint.pt")["history"]
    axes.plot(broken["done"], broken["loss"], "--", color="#3d4451", label="killed, resumed")
    axes.set(xlabel="epoch", ylabel="loss", title=f"{len(killed)} kills in the last round")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Both runs, and a summary."""
    parser = argparse.ArgumentParser(description="Train, be killed, resume.", allow_abbrev=False)
    add = parser.add_argument
    add("--minutes", type=float, default=30, help="that the broken run trains (%(default)s)")
    add("--kills", type=int, default=50, help="(%(default)s)")
    add("--seed", type=int, default=0, help="of the moments (%(default)s)")
    add("--model", default="cnn", help="of the example (%(default)s)")
    add("--out", type=Path, default=TREE / "runs" / "soak", help="(%(default)s)")
    add("--keep", action="store_true", help="in bench/results/endurance.md")
    args = parser.parse_args()
    run = endurance.Run("soak", args.seed)
    settings, chance = ["--model", args.model, "--device", "cpu"], random.Random(args.seed)

    took = []
    for count in TRIED:
        tried = Training(args.out / "tried", count, settings)
        took.append(tried.finish(tried.start()))
    pace = max((took[1] - took[0]) / (TRIED[1] - TRIED[0]), 1e-3)
    epochs = max(int(args.minutes * 60 / pace), args.kills, 2)
    print(f"{epochs} epochs, unbroken", flush=True)
    whole = Training(args.out / "unbroken", epochs, settings)
    lasted = whole.finish(whole.start())
    life, trained = lasted / (args.kills + 1), 0.0
    unbroken = whole.history()
    print(f"trained {lasted / 60:.1f} minutes", flush=True)

    rounds, kills, halves, killed = 0, 0, 0, list[int]()
    while kills < args.kills or not rounds:  # a run that ends early is followed by another
        broken, rounds, killed = Training(args.out / "broken", epochs, settings), rounds + 1, []
        left = set[Path]()
        while True:
            process = broken.start()
            if kills == args.kills:
                trained += broken.finish(process)
                break
            start = time.monotonic()
            in_time = kill_later(broken, process, chance.uniform(0, 2 * life), kills % 2 == 1)
            trained += time.monotonic() - start
            if not in_time:
                break
            kills += 1
            killed.append(check(broken.history(), unbroken))
            halves += len(set(broken.halves()) - left)
            left = set(broken.halves())
            print(f"\rkill {kills}/{args.kills} after epoch {killed[-1]}/{epochs}, "
                  f"{halves} checkpoints half written ", end="", flush=True)  # fmt: skip
        if check(broken.history(), unbroken) != epochs:
            failed(f"the broken run ended after {len(broken.history()['done'])} of {epochs} epochs")
        if broken.halves():
            failed(f"what a kill left was not removed: {broken.halves()}")
    draw(unbroken, killed, args.out / "soak.png")
    print(f"\n{kills} kills in {rounds} runs of {epochs} epochs, {halves} while a checkpoint was "
          f"written: none damaged, every curve bit by bit the unbroken run's; loss "
          f"{unbroken['loss'][-1]:.4g}. {args.out / 'soak.png'}")  # fmt: skip
    if args.keep:
        run.keep(
            f"{kills} kills, {halves} while a checkpoint was written, in {rounds} "
            f"run{'s' * (rounds > 1)} of {epochs:,} epochs: {trained / 60:.0f} minutes of training",
            "damaged checkpoints: 0; the curves are bit by bit the unbroken run's",
            kills=kills, runs=rounds, epochs=epochs, half_written=halves, model=args.model,
            minutes_unbroken=round(lasted / 60, 1), minutes_broken=round(trained / 60, 1),
        )  # fmt: skip


if __name__ == "__main__":
    main()

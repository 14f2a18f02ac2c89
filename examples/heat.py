"""Find the initial state of the 2-D heat equation from a late measurement.

Written with NumPy's functions. A plate starts with a few warm spots; hundreds of explicit time
steps later its temperature is measured, with noise. The inverse problem is ill posed: noise hides
details finer than the diffusion length. L-BFGS fits every point of the initial state to the
measurement, with the gradient through all time steps. The state is a square, which keeps it
nonnegative and sharpens it. With CuPy arrays instead of NumPy arrays everything runs on a GPU.

``--segment 20`` saves every 20th state only and recomputes the others in the backward pass
(``np.checkpoint``).
"""

from __future__ import annotations

import argparse
from typing import Any

import training  # first: from here on Ctrl-C ends in one sentence

# isort: split
import lucid_gpu.numpy as np

CHECKPOINT_EVERY = 50  # steps of L-BFGS
SIZE = 64  # points along each side of the plate, which goes on at the other side
SPEED = 0.2  # diffusivity * time step / spacing^2; at most 1/4 is stable


def step(u: Any) -> Any:
    """One explicit time step."""
    around = np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1)
    return u + SPEED * (around - 4 * u)


def spread(u: Any, steps: int) -> Any:
    for _ in range(steps):
        u = step(u)
    return u


def final(u: Any, steps: int, segment: int = 0) -> Any:
    """The state after ``steps`` time steps; ``segment`` of them at a time are kept together."""
    if not segment:
        return spread(u, steps)
    for done in range(0, steps, segment):
        u = np.checkpoint(spread)(u, min(segment, steps - done))
    return u


def misfit(root: Any, measured: Any, noise: float, steps: int, segment: int = 0) -> Any:
    """How far the state that grows from ``root**2`` is from what was measured, in its errors."""
    return np.mean(((final(root**2, steps, segment) - measured) / noise) ** 2)


def plate() -> Any:
    """The true initial state: a bar, a ring and two spots, in units of the grid."""
    y, x = np.mgrid[:SIZE, :SIZE] * (64 / SIZE)
    bar = (abs(y - 14) < 5) & (abs(x - 22) < 13)
    ring = abs(np.hypot(y - 41, x - 41) - 11) < 3.5
    spots = np.exp(-((y - 50) ** 2 + (x - 12) ** 2) / 18) + np.exp(
        -((y - 16) ** 2 + (x - 52) ** 2) / 18
    )
    return bar + 0.8 * ring + 1.5 * spots


class Inversion(training.Run):
    in_torch = False  # torch's functions take no arrays of NumPy

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(args, args.steps, ("misfit", "relative error"))
        xp = training.array_library(self.device)
        rng = np.random.default_rng(args.seed)
        self.truth = plate()
        clean = spread(self.truth, args.time)
        self.noise = args.noise * float(clean.max())
        self.measured = xp.asarray(clean + self.noise * rng.standard_normal(clean.shape))
        start = np.full(self.truth.shape, np.sqrt(self.truth.mean()))
        self.state = training.Arrays(root=xp.asarray(start))
        self.parts = {"state": self.state}

    def about(self) -> str:
        return (
            f"{SIZE} x {SIZE} unknowns, {self.args.time} time steps forward and back for a "
            f"gradient, on {self.device}"
        )

    def value_and_slope(self, root: Any) -> tuple[float, Any]:
        """For SciPy, whose vectors are NumPy's and flat."""
        given = training.array_library(self.device).asarray(root.reshape(SIZE, SIZE))
        value, slope = np.value_and_grad(misfit)(
            given, self.measured, self.noise, self.args.time, self.args.segment
        )
        return float(value), training.on_host(slope).reshape(-1)

    def advance(self, bar: Any) -> dict[str, float]:
        steps = min(CHECKPOINT_EVERY, self.total - self.done)
        start = training.on_host(self.state["root"]).reshape(-1)
        found = training.lbfgs(self.value_and_slope, start, steps, bar, options={"maxcor": 20})
        root = found.x.reshape(SIZE, SIZE)
        self.state["root"] = training.array_library(self.device).asarray(root)
        self.done += steps
        return {"misfit": float(found.fun), "relative error": self.error()}

    def error(self) -> float:
        found = training.on_host(self.state["root"]) ** 2
        return float(np.linalg.norm(found - self.truth) / np.linalg.norm(self.truth))

    def reached(self) -> tuple[str, float]:
        seen = training.on_host(self.measured)
        blurred = np.linalg.norm(seen - self.truth) / np.linalg.norm(self.truth)
        return f"relative error of what was measured {blurred:.3g}, of what was found", self.error()

    def draw(self) -> None:
        found = training.on_host(self.state["root"]) ** 2
        pictures = {
            "the plate at first": self.truth,
            f"measured {self.args.time} steps later": training.on_host(self.measured),
            "found from that": found,
        }
        figure = training.new_figure(12, 3.4)
        *places, right = figure.subplots(1, 4)
        for axes, (title, picture) in zip(places, pictures.items()):
            axes.imshow(picture, cmap="inferno", vmin=0, vmax=self.truth.max())
            axes.set_title(title, fontsize=9)
            axes.axis("off")
        curves = {
            "misfit": ("squared misfit", training.TRAINING),
            "relative error": ("relative error", training.TEST),
        }
        training.plot_curves(right, self, "", curves)
        right.set_yscale("log")
        figure.suptitle("The heat equation, inverted for its initial state")
        training.write_picture(figure, self.args.out / "plate.png")


flags = training.parser("Find where heat came from.", "runs/heat")
add = flags.add_argument
add("--steps", type=training.positive, default=150, help="steps of L-BFGS (%(default)s)")
add("--time", type=training.positive, default=200, help="time steps (%(default)s)")
add("--noise", type=float, default=1e-3, help="of the measured maximum (%(default)s)")
add("--segment", type=int, default=0, help="time steps recomputed together; 0: none")

if __name__ == "__main__":
    training.main(flags, Inversion)

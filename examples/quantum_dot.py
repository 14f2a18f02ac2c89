"""Two electrons in a quantum dot by variational Monte Carlo, in NumPy's functions.

In a flat harmonic trap of frequency 1, the ground state of two electrons that repel each other is
known: ``(1 + r12) exp(-(r1^2 + r2^2) / 2)``, of energy 3 (Taut, "Two electrons in a homogeneous
magnetic field", 1994). The trial function contains it, and starts from other parameters. Walkers
sample its square by Metropolis steps; the local energy needs its second derivatives
(``np.elementwise_grad`` of itself). The gradient of the energy is a covariance, which the
parameters follow downhill in the metric of the functions they define (Sorella, "Green function
Monte Carlo with stochastic reconfiguration", 1998). For the exact function, every walker has the
same energy. With CuPy arrays instead of NumPy arrays everything runs on a GPU.
"""

from __future__ import annotations

import argparse
from typing import Any

import training  # first: from here on Ctrl-C ends in one sentence

# isort: split
import lucid_gpu.numpy as np

EXACT = 3.0
WALKERS = 2000
CHECKPOINT_EVERY = 4  # steps
MOVES, LENGTH = 10, 0.7  # Metropolis steps between two gradients, and how far each goes
RATE, LEAST = 0.2, 1e-5  # of a step; what is added to the metric's diagonal
START = (0.7, 0.3, 0.1)  # exact: 1, 1, 0


def apart(r: Any) -> Any:
    """The electrons' distance, of ``(n, 4)`` coordinates x1, y1, x2, y2."""
    return np.sqrt((r[:, 0] - r[:, 2]) ** 2 + (r[:, 1] - r[:, 3]) ** 2)


def log_psi(p: Any, r: Any) -> Any:
    """The trial function's logarithm; three parameters for all walkers or for each its own.

    The trap's ground state times what keeps the electrons apart.
    """
    d = apart(r)
    return np.log(1 + p[..., 1] * d + p[..., 2] * d**2) - p[..., 0] / 2 * np.sum(r**2, axis=1)


def local_energy(p: Any, r: Any) -> Any:
    """``H psi / psi`` of every walker: kinetic energy, trap, repulsion."""
    slope = np.elementwise_grad(log_psi, 1)
    first, bend = slope(p, r), 0.0
    for k in range(r.shape[1]):
        bend = bend + np.elementwise_grad(lambda r: slope(p, r)[:, k])(r)[:, k]  # noqa: B023
    kinetic = -(bend + np.sum(first**2, axis=1)) / 2
    return kinetic + np.sum(r**2, axis=1) / 2 + 1 / apart(r)


def energy_and_step(p: Any, r: Any) -> tuple[Any, Any]:
    """The walkers' energies, and the parameters' way down: ``-cov(O, O)^-1 cov(O, energy)``.

    ``O`` are each walker's derivatives of the logarithm by the parameters.
    """
    energies = local_energy(p, r)
    by_p = np.elementwise_grad(log_psi)(p + 0 * r[:, :1], r)
    by_p = by_p - np.mean(by_p, axis=0)
    metric = by_p.T @ by_p / len(r) + LEAST * np.diag(np.ones_like(p))
    return energies, -np.linalg.solve(metric, by_p.T @ energies / len(r))


def moved(p: Any, r: Any, rng: Any) -> Any:
    """The walkers after Metropolis steps."""
    here = 2 * log_psi(p, r)
    for _ in range(MOVES):
        leap, chance = rng.standard_normal(r.shape), np.log(rng.random(len(r)))
        there = r + np.asarray(LENGTH * leap, like=r)
        density = 2 * log_psi(p, there)
        taken = np.asarray(chance, like=r) < density - here
        r, here = np.where(taken[:, None], there, r), np.where(taken, density, here)
    return r


class Dot(training.Run):
    in_torch = False  # torch's functions take no arrays of NumPy

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(args, args.steps, ("energy", "spread"))
        xp = training.array_library(self.device)
        rng = np.random.default_rng(args.seed)
        walkers = xp.asarray(rng.standard_normal((WALKERS, 4)))
        p = xp.asarray(START)
        self.state = training.Arrays(p=p, walkers=moved(p, walkers, rng))
        self.parts = {"state": self.state}

    def about(self) -> str:
        return f"{WALKERS} walkers on {self.device}"

    def advance(self, bar: Any) -> dict[str, float]:
        rng = np.random.default_rng((self.args.seed, self.done))
        state = self.state
        for _ in range(min(CHECKPOINT_EVERY, self.total - self.done)):
            state["walkers"] = moved(state["p"], state["walkers"], rng)
            energies, step = energy_and_step(state["p"], state["walkers"])
            state["p"] = state["p"] + RATE * step
            self.done += 1
            bar.update()
        return {"energy": float(energies.mean()), "spread": float(energies.std())}

    def reached(self) -> tuple[str, float]:
        energy = self.history["energy"][-1]
        return f"energy {energy:.7f}, from the exact one", abs(energy - EXACT)

    def draw(self) -> None:
        p, r = (training.on_host(self.state[name]) for name in ("p", "walkers"))
        figure = training.new_figure(11, 3.6)
        left, middle, right = figure.subplots(1, 3, width_ratios=(1.2, 1, 1))
        done, energy = (np.array(self.history[name]) for name in ("done", "energy"))
        error = np.array(self.history["spread"]) / WALKERS**0.5
        left.errorbar(done, energy, error, fmt=".-", color=training.TEST, label="of the walkers")
        left.axhline(EXACT, color=training.TRUTH, linewidth=0.8, label="exact")
        left.set(xlabel="step", ylabel="energy")
        left.legend(frameon=False)
        training.plot_curves(middle, self, "", {"spread": ("spread", training.TRAINING)})
        middle.set(yscale="log", title="spread of the walkers' energies")
        d = np.linspace(0, 4, 81)
        right.hist(apart(r), 40, density=True, color=training.TRAINING, label="walkers")
        for label, (a, b, c), style in (("exact", (1, 1, 0), "-"), ("found", p, "--")):
            # The center of mass goes its own way; of the distance d this remains.
            density = d * (1 + b * d + c * d**2) ** 2 * np.exp(-a * d**2 / 2)
            right.plot(d, density / np.trapezoid(density, d), style, color="k", label=label)
        right.set(title="the electrons' distance")
        right.legend(frameon=False)
        figure.suptitle("Two electrons in a quantum dot, by variational Monte Carlo")
        training.write_picture(figure, self.args.out / "dot.png")


flags = training.parser("Two electrons in a quantum dot.", "runs/quantum_dot", steps=60)

if __name__ == "__main__":
    training.main(flags, Dot)

"""Fit the Lotka-Volterra equations to twenty years of hares and lynxes.

The Hudson's Bay Company counted the pelts it bought. Hares breed and are eaten, lynxes eat and die;
four rates, the first two numbers and the two errors of counting are those under which the counts
are most probable, with the priors of Carpenter, "Predator-Prey Population Dynamics: the
Lotka-Volterra model in Stan", 2018, whose rates are the published ones here. The gradient of a
solution of the equations is that of `solve_ivp`, by the adjoint equations.
"""

from __future__ import annotations

import argparse
from typing import Any

import training  # first: from here on Ctrl-C ends in one sentence

# isort: split
import numpy as np

import lucid_gpu as torch
from lucid_gpu.scipy import integrate, optimize

CHECKPOINT_EVERY = 10  # steps of L-BFGS
LAST = 1920
TOLERANCE = 1e-7
HARES = """30.0 47.2 70.2 77.4 36.3 20.6 18.1 21.4 22.0 25.4 27.1 40.3 57.0 76.6 52.3 19.5 11.2 7.6
    14.6 16.2 24.7"""
LYNXES = """4.0 6.1 9.8 35.2 59.4 41.7 19.0 13.0 8.3 9.1 7.4 8.0 12.3 19.5 45.7 51.1 29.7 15.8 9.7
    10.1 8.6"""
COUNTS = np.array([HARES.split(), LYNXES.split()], np.float64)  # thousands of pelts
PUBLISHED = np.array([0.55, 0.028, 0.80, 0.024, 34.0, 5.9])  # rates, and the numbers in 1900
START = [0.8, 0.04, 0.8, 0.04, 30.0, 4.0, 0.4, 0.4]  # those, and the errors of counting
MIDDLE = [1.0, 0.05, 1.0, 0.05]  # of the priors of rates, normal ones
WIDTH = [0.5, 0.05, 0.5, 0.05]


def change(time: torch.Tensor, numbers: torch.Tensor, rates: torch.Tensor) -> torch.Tensor:
    """How fast hares and lynxes become more."""
    hares, lynxes = numbers.unbind()
    births, eaten, deaths, fed = rates.unbind()
    return torch.stack([(births - eaten * lynxes) * hares, (fed * hares - deaths) * lynxes])


def numbers(p: torch.Tensor, times: Any) -> torch.Tensor:
    """Hares and lynxes at times after 1900, ``(2, len(times))``."""
    span = (0.0, float(times[-1]))
    settings = {"method": "DOP853", "rtol": TOLERANCE, "atol": TOLERANCE}
    return integrate.solve_ivp(change, span, p[4:6], t_eval=times, args=(p[:4],), **settings).y


def misfit(logarithms: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Minus the logarithm of the parameters' probability, given ``(2, years)`` counts."""
    p = logarithms.exp()
    middle, width = (torch.tensor(v, dtype=p.dtype, device=p.device) for v in (MIDDLE, WIDTH))
    errors = p[6:, None]
    apart = (counts.log() - numbers(p, np.arange(counts.shape[1], dtype=float)).log()) / errors
    likelihood = (apart**2).sum() / 2 + counts.shape[1] * errors.log().sum()
    rates = (((p[:4] - middle) / width) ** 2).sum() / 2
    first = ((logarithms[4:6] - np.log(10)) ** 2 / 2 + logarithms[4:6]).sum()
    counting = ((logarithms[6:] + 1) ** 2 / 2 + logarithms[6:]).sum()
    return likelihood + rates + first + counting


class Fit(training.Run):
    in_torch = False  # torch has no SciPy

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(args, args.steps, ("misfit",))
        self.years = np.arange(1900, LAST + 1)
        self.counts = torch.tensor(COUNTS[:, : len(self.years)], device=self.device)
        self.fit = training.Arrays(logarithms=np.log(START))
        self.parts = {"fit": self.fit}

    def about(self) -> str:
        return f"{self.counts.numel()} counts to learn from, on {self.device}"

    def advance(self, bar: Any) -> dict[str, float]:
        steps = min(CHECKPOINT_EVERY, self.total - self.done)
        start = torch.tensor(self.fit["logarithms"], device=self.device)
        found = optimize.minimize(
            *(misfit, start, (self.counts,), "L-BFGS-B"),
            options={"maxiter": steps},
            callback=lambda _: bar.update(),
        )
        bar.update(steps - found.nit)
        self.fit["logarithms"] = training.on_host(found.x)
        self.done += steps
        return {"misfit": float(found.fun)}

    def parameters(self) -> Any:
        return np.exp(self.fit["logarithms"])

    def reached(self) -> tuple[str, float]:
        """The rates, and the largest relative difference."""
        p = self.parameters()[:6]
        rates = ", ".join(f"{rate:.3g}" for rate in p[:4])
        return f"rates {rates}, from the published ones", float(np.abs(p / PUBLISHED - 1).max())

    def draw(self) -> None:
        times = np.linspace(0, len(self.years) - 1, 201)
        p = torch.tensor(self.parameters(), device=self.device)
        curves, counted = training.on_host(numbers(p, times)), training.on_host(self.counts)
        figure = training.new_figure(11, 3.6)
        left, middle, right = figure.subplots(1, 3, width_ratios=(1.6, 1, 1))
        kinds = (("hares", training.TRAINING), ("lynxes", training.TEST))
        for (name, color), counts, curve in zip(kinds, counted, curves, strict=True):
            left.plot(self.years, counts, "o", color=color, label=f"{name}, counted")
            left.plot(1900 + times, curve, color=color, label=f"{name}, equations")
        left.set(ylabel="thousands of pelts", title="Hudson's Bay Company", ylim=(0, 105))
        left.set_xticks(self.years[::5])
        left.legend(frameon=False, fontsize=8, loc="upper center", ncols=2)
        middle.plot(*counted, "o", color=training.TRUTH, markersize=3)
        middle.plot(*curves, color=training.TRUTH)
        middle.set(xlabel="hares", ylabel="lynxes", title="the cycle")
        curve = {"misfit": ("misfit", training.TRAINING)}
        training.plot_curves(right, self, "minus log probability", curve)
        training.write_picture(figure, self.args.out / "hares.png")


flags = training.parser("Fit hares and lynxes.", "runs/lotka_volterra", steps=40)

if __name__ == "__main__":
    training.main(flags, Fit)

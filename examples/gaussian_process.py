"""Fit a Gaussian process to medical data by its marginal likelihood.

How diabetes goes on in a year is a linear function of ten measurements of a patient, a smooth
function of them, and noise. How much each counts and how far the smooth function reaches in each
measurement are found by maximizing the likelihood of the data, in which the function is integrated
out (Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, chapter 5). The
likelihood is a Cholesky factor and a few lines; autograd gives its gradient to SciPy's L-BFGS.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import training  # first: from here on Ctrl-C ends in one sentence

# isort: split
import numpy as np

import lucid_gpu as torch

CHECKPOINT_EVERY = 10  # steps of L-BFGS
PATIENTS = 342  # to learn from; the other 100 are predicted
NAMES = ("age", "sex", "body mass", "pressure", "s1", "s2", "s3", "s4", "s5", "s6")


def kernel(theta: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Covariances of the function's values at ``(n, d)`` and ``(m, d)`` points.

    ``theta`` holds logarithms: d reaches, sizes of the smooth and the linear part, the noise.
    """
    d = x.shape[1]
    reach = theta[:d].exp()
    a, b = x / reach, y / reach
    apart = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
    return (theta[d] - apart / 2).exp() + theta[d + 1].exp() * (x @ y.T)


def factor(theta: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The Cholesky factor of the covariances of noisy values at ``x``."""
    noise = theta[x.shape[1] + 2].exp() * torch.eye(len(x), dtype=x.dtype, device=x.device)
    return torch.linalg.cholesky(kernel(theta, x, x) + noise)


def solved(lower: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return torch.linalg.solve_triangular(lower, right, upper=False)


def misfit(theta: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Minus the logarithm of the marginal likelihood: ``y K^-1 y / 2 + log |2 pi K| / 2``."""
    lower = factor(theta, x)
    white = solved(lower, y[:, None])
    return (white**2).sum() / 2 + lower.diagonal().log().sum() + len(y) / 2 * math.log(2 * math.pi)


def predict(
    theta: torch.Tensor, x: torch.Tensor, y: torch.Tensor, new: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard deviation of values at ``new``, given ``y`` at ``x``."""
    lower = factor(theta, x)
    between = solved(lower, kernel(theta, x, new))
    mean = (between * solved(lower, y[:, None])).sum(0)
    spread = kernel(theta, new, new).diagonal() - (between**2).sum(0)
    return mean, (spread + theta[x.shape[1] + 2].exp()).sqrt()


class Fit(training.Run):
    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(args, args.steps, ("misfit", "test"))
        from sklearn.datasets import load_diabetes

        x, y = load_diabetes(return_X_y=True)
        order = np.random.default_rng(args.seed).permutation(len(y))
        x, y = x[order] / x.std(axis=0), y[order]
        self.middle, self.scale = y[:PATIENTS].mean(), y[:PATIENTS].std()
        self.x, self.new = self.tensor(x[:PATIENTS]), self.tensor(x[PATIENTS:])
        self.y = self.tensor((y[:PATIENTS] - self.middle) / self.scale)
        self.truth = y[PATIENTS:]
        slopes = np.linalg.lstsq(x[:PATIENTS], y[:PATIENTS] - self.middle)[0]
        self.line = self.middle + x[PATIENTS:] @ slopes
        self.fit = training.Arrays(theta=np.array([1.5] * x.shape[1] + [-1.0, -3.0, -1.0]))
        self.parts = {"fit": self.fit}

    def about(self) -> str:
        return (
            f"{len(self.y)} patients to learn from, {len(self.truth)} to predict, on {self.device}"
        )

    def tensor(self, array: Any) -> torch.Tensor:
        return torch.tensor(array, device=self.device)

    def value_and_slope(self, theta: Any) -> tuple[float, Any]:
        """For SciPy, whose vectors are NumPy's."""
        logarithms = self.tensor(theta).requires_grad_()
        value = misfit(logarithms, self.x, self.y)
        value.backward()
        return value.item(), training.on_host(logarithms.grad)

    def advance(self, bar: Any) -> dict[str, float]:
        steps, start = min(CHECKPOINT_EVERY, self.total - self.done), self.fit["theta"]
        bounds = [(-6, 6)] * len(start)
        found = training.lbfgs(self.value_and_slope, start, steps, bar, bounds=bounds)
        self.fit["theta"] = found.x
        self.done += steps
        return {"misfit": float(found.fun), "test": self.errors()[1]}

    def predictions(self) -> tuple[Any, Any]:
        found = predict(self.tensor(self.fit["theta"]), self.x, self.y, self.new)
        mean, spread = (training.on_host(part) for part in found)
        return self.middle + self.scale * mean, self.scale * spread

    def errors(self) -> tuple[float, float]:
        """Root mean square errors on unseen patients: of a linear fit, of the process."""
        found = (self.line, self.predictions()[0])
        first, second = (float(np.sqrt(np.mean((f - self.truth) ** 2))) for f in found)
        return first, second

    def reached(self) -> tuple[str, float]:
        linear, process = self.errors()
        return f"error of a linear fit {linear:.4g}, of the process", process

    def draw(self) -> None:
        mean, spread = self.predictions()
        figure = training.new_figure(11, 3.8)
        left, middle, right = figure.subplots(1, 3, width_ratios=(1.4, 1, 1))
        bars = {"fmt": ".", "color": training.TEST, "ecolor": training.TRAINING, "elinewidth": 0.8}
        left.errorbar(self.truth, mean, 2 * spread, **bars)
        ends = [self.truth.min(), self.truth.max()]
        left.plot(ends, ends, color=training.TRUTH, linewidth=0.8)
        left.set(title="unseen patients, with 95 %", xlabel="measured", ylabel="predicted")
        middle.barh(NAMES, np.exp(-self.fit["theta"][: len(NAMES)]), color=training.TRAINING)
        middle.invert_yaxis()
        middle.set_title("how fast the smooth part changes")
        curve = {"misfit": ("misfit", training.TRAINING)}
        training.plot_curves(right, self, "minus log marginal likelihood", curve)
        training.write_picture(figure, self.args.out / "fit.png")


flags = training.parser(
    "Fit a Gaussian process by its marginal likelihood.", "runs/gaussian_process", steps=60
)

if __name__ == "__main__":
    training.main(flags, Fit)

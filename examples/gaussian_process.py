"""Fit a Gaussian process to medical data by its marginal likelihood, in NumPy's functions.

How diabetes goes on in a year is a linear function of ten measurements of a patient, a smooth
function of them, and noise. How much each counts and how far the smooth function reaches in each
measurement are found by maximising the likelihood of the data, in which the function is integrated
out (Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, chapter 5). The
likelihood is a Cholesky factor and a few lines; ``np.value_and_grad`` gives its gradient to SciPy's
L-BFGS. Arrays of CuPy in the place of NumPy's put all of it on a GPU.
"""

from __future__ import annotations

import argparse
from typing import Any

import training  # first: from here on Ctrl-C ends in one sentence

# isort: split
import lucid_gpu.numpy as np

CHECKPOINT_EVERY = 10  # steps of L-BFGS
PATIENTS = 342  # to learn from; the other 100 are predicted
NAMES = ("age", "sex", "body mass", "pressure", "s1", "s2", "s3", "s4", "s5", "s6")


def kernel(theta: Any, x: Any, y: Any) -> Any:
    """Covariances of the function's values at ``(n, d)`` and ``(m, d)`` points.

    ``theta`` holds logarithms: d reaches, sizes of the smooth and the linear part, the noise.
    """
    d = x.shape[1]
    reach = np.exp(theta[:d])
    a, b = x / reach, y / reach
    apart = np.sum(a**2, axis=1)[:, None] + np.sum(b**2, axis=1) - 2 * a @ b.T
    return np.exp(theta[d] - apart / 2) + np.exp(theta[d + 1]) * (x @ y.T)


def factor(theta: Any, x: Any) -> Any:
    """The Cholesky factor of the covariances of noisy values at ``x``."""
    noise = np.exp(theta[x.shape[1] + 2])
    return np.linalg.cholesky(kernel(theta, x, x) + noise * np.diag(np.ones_like(x[:, 0])))


def misfit(theta: Any, x: Any, y: Any) -> Any:
    """Minus the logarithm of the marginal likelihood: ``y K^-1 y / 2 + log |2 pi K| / 2``."""
    lower = factor(theta, x)
    white = np.linalg.solve(lower, y)
    return white @ white / 2 + np.sum(np.log(np.diag(lower))) + len(y) / 2 * np.log(2 * np.pi)


def predict(theta: Any, x: Any, y: Any, new: Any) -> tuple[Any, Any]:
    """Mean and standard deviation of values at ``new``, given ``y`` at ``x``."""
    lower = factor(theta, x)
    between = np.linalg.solve(lower, kernel(theta, x, new))
    mean = between.T @ np.linalg.solve(lower, y)
    spread = np.diag(kernel(theta, new, new)) - np.sum(between**2, axis=0)
    return mean, np.sqrt(spread + np.exp(theta[x.shape[1] + 2]))


class Fit(training.Run):
    in_torch = False  # torch's functions take no arrays of NumPy

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(args, args.steps, ("misfit", "test"))
        from sklearn.datasets import load_diabetes

        xp = training.array_library(self.device)
        x, y = load_diabetes(return_X_y=True)
        order = np.random.default_rng(args.seed).permutation(len(y))
        x, y = x[order] / x.std(axis=0), y[order]
        self.middle, self.scale = y[:PATIENTS].mean(), y[:PATIENTS].std()
        self.x, self.new = xp.asarray(x[:PATIENTS]), xp.asarray(x[PATIENTS:])
        self.y = xp.asarray((y[:PATIENTS] - self.middle) / self.scale)
        self.truth = y[PATIENTS:]
        slopes = np.linalg.lstsq(x[:PATIENTS], y[:PATIENTS] - self.middle)[0]
        self.line = self.middle + x[PATIENTS:] @ slopes
        self.fit = training.Arrays(theta=xp.asarray([1.5] * x.shape[1] + [-1.0, -3.0, -1.0]))
        self.parts = {"fit": self.fit}

    def about(self) -> str:
        return (
            f"{len(self.y)} patients to learn from, {len(self.truth)} to predict, on {self.device}"
        )

    def value_and_slope(self, theta: Any) -> tuple[float, Any]:
        """For SciPy, whose vectors are NumPy's."""
        xp = training.array_library(self.device)
        value, slope = np.value_and_grad(misfit)(xp.asarray(theta), self.x, self.y)
        return float(value), training.on_host(slope)

    def advance(self, bar: Any) -> dict[str, float]:
        steps = min(CHECKPOINT_EVERY, self.total - self.done)
        start = training.on_host(self.fit["theta"])
        bounds = [(-6, 6)] * len(start)
        found = training.lbfgs(self.value_and_slope, start, steps, bar, bounds=bounds)
        self.fit["theta"] = training.array_library(self.device).asarray(found.x)
        self.done += steps
        return {"misfit": float(found.fun), "test": self.errors()[1]}

    def predictions(self) -> tuple[Any, Any]:
        mean, spread = predict(self.fit["theta"], self.x, self.y, self.new)
        mean, spread = training.on_host(mean), training.on_host(spread)
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
        theta = training.on_host(self.fit["theta"])
        middle.barh(NAMES, np.exp(-theta[: len(NAMES)]), color=training.TRAINING)
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

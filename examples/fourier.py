"""Learn what a differential equation does to any initial value: a Fourier neural operator.

Burgers' equation ``u_t + u u_x = v u_xx`` on a circle takes a smooth random ``u(0, x)`` to
``u(1, x)``. The model multiplies the lowest frequencies of its fields by complex weights (Li et
al., "Fourier neural operator for parametric partial differential equations", 2021), and so takes a
field on a grid of any size: it learns on 64 points, and is tried on 64 and on 256.
"""

from __future__ import annotations

import argparse
from typing import Any

import training  # first: from here on Ctrl-C ends in one sentence

# isort: split
import numpy as np

import lucid_gpu as torch
from lucid_gpu import nn
from lucid_gpu.nn import functional as F

VISCOSITY, FINE, COARSE = 0.05, 256, 64
LEARNED, TESTED = 1000, 200  # initial values
WIDTH, MODES, LAYERS = 32, 16, 4
BATCH, LEARNING_RATE = 50, 3e-3


def fields(rng: np.random.Generator, count: int) -> Any:
    """``(count, FINE)`` smooth random initial values on ``[0, 2 pi)``."""
    k = np.arange(FINE // 2 + 1)
    size = np.where(k, 4.0 / (k**2 + 9.0), 0.0) * FINE / 2
    waves = rng.normal(size=(count, len(k))) + 1j * rng.normal(size=(count, len(k)))
    return np.fft.irfft(waves * size)


def solved(u: Any, steps: int = 100) -> Any:
    """The fields after ``t = 1``, by Fourier series and fourth-order Runge and Kutta steps.

    Diffusion is exact: what is integrated is ``exp(v k**2 t)`` times the series.
    """
    k, h = np.arange(FINE // 2 + 1), 1 / steps
    half = np.exp(-VISCOSITY * k**2 * h / 2)
    slope = np.where(k < FINE / 3, -0.5j * k, 0)  # what products fold back is left out

    def rate(series: Any) -> Any:
        return slope * np.fft.rfft(np.fft.irfft(series) ** 2)

    y = np.fft.rfft(u)
    for _ in range(steps):
        a = rate(y)
        b = rate(half * (y + h / 2 * a))
        c = rate(half * y + h / 2 * b)
        d = rate(half * (half * y + h * c))
        y = half**2 * (y + h / 6 * a) + h / 3 * half * (b + c) + h / 6 * d
    return np.fft.irfft(y)


class Spectral(nn.Module):
    """The lowest frequencies of the channels, each mixed by a complex matrix of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.randn(WIDTH, WIDTH, MODES, 2) / WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low = torch.fft.rfft(x)[..., :MODES]
        mixed = torch.einsum("bim,iom->bom", low, torch.view_as_complex(self.weights))
        return torch.fft.irfft(F.pad(mixed, (0, x.shape[-1] // 2 + 1 - MODES)), n=x.shape[-1])


class Operator(nn.Module):
    """(n, points) initial values to (n, points) values at ``t = 1``."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, WIDTH, 1)
        self.spectral = nn.ModuleList([Spectral() for _ in range(LAYERS)])
        self.local = nn.ModuleList([nn.Conv1d(WIDTH, WIDTH, 1) for _ in range(LAYERS)])
        self.last = nn.Sequential(nn.Conv1d(WIDTH, 64, 1), nn.GELU(), nn.Conv1d(64, 1, 1))

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        x = self.first(u.unsqueeze(1))
        for spectral, local in zip(self.spectral, self.local):
            x = x + F.gelu(spectral(x) + local(x))
        return self.last(x).squeeze(1)


def error(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return ((found - wanted).norm(dim=1) / wanted.norm(dim=1)).mean()


class Learner(training.Run):
    unit, ticks_of = "epoch", "fields"

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(args, args.epochs, ("training", "coarse", "test"))
        self.ticks = LEARNED
        before = fields(np.random.default_rng(0), LEARNED + TESTED)
        pair = np.stack([before, solved(before)]).astype(np.float32)
        self.before, self.after = torch.tensor(pair, device=self.device)
        self.learn(Operator(), lr=LEARNING_RATE)

    def advance(self, bar: Any) -> dict[str, float]:
        every, total = FINE // COARSE, 0.0
        for chosen in self.batches(BATCH, bar):
            found = self.model(self.before[chosen, ::every])
            loss = error(found, self.after[chosen, ::every])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item() * len(chosen) / LEARNED
            bar.set_postfix_str(f"relative error {loss.item():.4f}", False)
        self.schedule.step()
        self.done += 1
        return {"training": total, "coarse": self.tested(every), "test": self.tested(1)}

    @torch.no_grad()
    def tested(self, every: int) -> float:
        before, after = self.before[LEARNED:, ::every], self.after[LEARNED:, ::every]
        return error(self.model(before), after).item()

    def reached(self) -> tuple[str, float]:
        coarse = f"relative error on {COARSE} points {self.history['coarse'][-1]:.4g}"
        return f"{coarse}, on {FINE}", self.history["test"][-1]

    @torch.no_grad()
    def draw(self) -> None:
        figure = training.new_figure(9, 4)
        left, right = figure.subplots(1, 2)
        training.plot_curves(left, self, "relative error", training.BOTH)
        left.set_yscale("log")
        x, shown = np.arange(FINE) * 2 * np.pi / FINE, slice(LEARNED, LEARNED + 3)
        before, after = self.before[shown], self.after[shown]
        for i, (u, truth, found) in enumerate(zip(before, after, self.model(before))):
            u, truth, found = (training.on_host(y) - 6 * i for y in (u, truth, found))
            right.plot(x, u, ":", color="gray")
            right.plot(x, truth, color=training.TRUTH, alpha=0.35, linewidth=4)
            right.plot(x, found, color=training.TEST)
        right.set_title("dotted: before, wide: after, narrow: the model's", fontsize=9)
        training.write_picture(figure, self.args.out / "fields.png")


flags = training.parser("Learn Burgers' equation as an operator.", "runs/fourier", epochs=30)

if __name__ == "__main__":
    training.main(flags, Learner)

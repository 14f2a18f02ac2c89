"""Solve Burgers' equation with a network that is trained on the equation alone.

The network ``u(t, x)`` is trained to satisfy ``u_t + u u_x = v u_xx`` inside and to the initial
value ``-sin(pi x)`` and the walls ``u = 0`` at the border (Raissi, Perdikaris and Karniadakis,
"Physics-informed neural networks", 2019): Adam first, then L-BFGS. ``u_xx`` is a gradient of a
gradient, and training takes the gradient of that. The error is against the analytic solution.
"""

from __future__ import annotations

import argparse
from typing import Any

import training  # first: from here on Ctrl-C ends in one sentence

# isort: split
import numpy as np

import lucid_gpu as torch
from lucid_gpu import nn

VISCOSITY = 0.02
WIDTH, LAYERS = 24, 4
INSIDE, BORDER = 1500, 100  # points
LEARNING_RATE, CHECKPOINT_EVERY = 5e-3, 50  # steps
LBFGS = {"max_iter": 1, "max_eval": 25, "history_size": 50, "line_search_fn": "strong_wolfe"}


def exact(t: Any, x: Any) -> Any:
    """The solution at ``t > 0``: a quotient of means over the heat kernel (Hopf, 1950; Cole, 1951).

    The integrals ``mean of f(x - s) with s ~ N(0, 2 v t)`` are taken by Gauss and Hermite's rule.
    """
    nodes, weights = np.polynomial.hermite.hermgauss(100)
    y = np.asarray(x)[..., None] - np.sqrt(4 * VISCOSITY * np.asarray(t))[..., None] * nodes
    exponent = -np.cos(np.pi * y) / (2 * np.pi * VISCOSITY)
    kernel = weights * np.exp(exponent - exponent.max(-1, keepdims=True))
    return -(kernel * np.sin(np.pi * y)).sum(-1) / kernel.sum(-1)


class Network(nn.Module):
    """``(n, 1)`` times and places to ``(n, 1)`` values."""

    def __init__(self) -> None:
        super().__init__()
        widths = [2] + [WIDTH] * LAYERS
        layers: list[nn.Module] = []
        for fan_in, fan_out in zip(widths, widths[1:]):
            layers += [nn.Linear(fan_in, fan_out), nn.Tanh()]
        self.layers = nn.Sequential(*layers, nn.Linear(WIDTH, 1))

    def forward(self, t: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return self.layers(torch.cat([2 * t - 1, x], 1))


def slope(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """dy/dx, row by row, as something that can be differentiated again."""
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


class Solver(training.Run):
    reaches = "relative error"

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(args, args.steps + args.lbfgs, ("training", "test"))
        self.model = Network().double().to(self.device)
        self.adam = torch.optim.Adam(self.model.parameters(), lr=LEARNING_RATE)
        self.schedule = training.half_cosine(self.adam, args.steps)
        self.lbfgs = torch.optim.LBFGS(
            self.model.parameters(), tolerance_grad=0.0, tolerance_change=0.0, **LBFGS
        )
        self.parts = {"weights": self.model, "adam": self.adam, "lbfgs": self.lbfgs}
        self.parts["schedule"] = self.schedule
        self.place_points(np.random.default_rng(args.seed))

    def place_points(self, rng: np.random.Generator) -> None:
        """Where the equation is asked for, and where the value is given."""
        inside = rng.uniform((0, -1), (1, 1), (INSIDE, 2))
        start, wall = rng.uniform(-1, 1, BORDER), rng.uniform(0, 1, BORDER)
        sides = np.where(np.arange(BORDER) % 2, 1.0, -1.0)
        border = np.block([[np.zeros(BORDER), wall], [start, sides]])
        given = np.concatenate([-np.sin(np.pi * start), np.zeros(BORDER)])

        columns = (
            torch.tensor(v, device=self.device)[:, None] for v in (*inside.T, *border, given)
        )
        t, x, *self.border, self.given = columns
        self.t, self.x = t.requires_grad_(), x.requires_grad_()

    def about(self) -> str:
        return f"{INSIDE} points inside and {2 * BORDER} at the border, on {self.device}"

    def loss(self) -> torch.Tensor:
        u = self.model(self.t, self.x)
        u_x = slope(u, self.x)
        residual = slope(u, self.t) + u * u_x - VISCOSITY * slope(u_x, self.x)
        misfit = self.model(*self.border) - self.given
        return residual.square().mean() + misfit.square().mean()

    def closure(self) -> torch.Tensor:
        self.model.zero_grad()
        loss = self.loss()
        loss.backward()
        return loss

    def advance(self, bar: Any) -> dict[str, float]:
        by_adam = self.done < self.args.steps
        end = self.args.steps if by_adam else self.total
        steps = min(CHECKPOINT_EVERY, end - self.done)
        for _ in range(steps):
            loss = (self.adam if by_adam else self.lbfgs).step(self.closure)
            if by_adam:
                self.schedule.step()
            bar.update()
            bar.set_postfix_str(f"loss {loss.item():.2e}", False)
        self.done += steps
        ours, truth = self.values()
        error = np.linalg.norm(ours - truth) / np.linalg.norm(truth)
        return {"training": loss.item(), "test": float(error)}

    @torch.no_grad()
    def values(self) -> tuple[Any, Any]:
        """The network's and the analytic solution's on a grid of times and places."""
        t, x = np.meshgrid(np.linspace(0, 1, 101)[1:], np.linspace(-1, 1, 201), indexing="ij")
        places = (torch.tensor(v.reshape(-1, 1), device=self.device) for v in (t, x))
        return self.model(*places).cpu().numpy().reshape(t.shape), exact(t, x)

    def draw(self) -> None:
        ours, truth = self.values()
        figure = training.new_figure(11, 3.6)
        left, middle, right = figure.subplots(1, 3, width_ratios=(1.2, 1, 1))
        box = {"extent": (0, 1, -1, 1), "aspect": "auto", "origin": "lower"}
        left.imshow(ours.T, cmap="RdBu", vmin=-1, vmax=1, **box)
        left.set(title="u, the network's", xlabel="t", ylabel="x")
        x = np.linspace(-1, 1, 201)
        for i, shade in ((9, 0.35), (24, 0.55), (49, 0.8), (99, 1.0)):
            middle.plot(x, truth[i], color=training.TRUTH, alpha=0.35, linewidth=4)
            middle.plot(x, ours[i], color=training.TEST, alpha=shade)
        middle.set(title="wide: analytic, narrow: the network's", xlabel="x", ylabel="u")
        training.plot_curves(right, self, "loss, relative error", training.BOTH)
        right.set(yscale="log", title="Adam, then L-BFGS")
        training.write_picture(figure, self.args.out / "solution.png")


flags = training.parser("Solve Burgers' equation.", "runs/burgers", steps=1500, lbfgs=500)

if __name__ == "__main__":
    training.main(flags, Solver)

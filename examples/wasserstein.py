"""Learn to draw points of a distribution: a generator against a critic with gradient penalty.

The points lie on two spirals. The critic's slope between true and drawn points is held at one, so
that it measures a Wasserstein distance (Gulrajani et al., "Improved training of Wasserstein GANs",
2017): the penalty is a function of a gradient, and training takes the gradient of that. What was
learned is measured by another distance, of projections onto many lines.
"""

from __future__ import annotations

import argparse
from typing import Any

import training  # first: from here on Ctrl-C ends in one sentence

# isort: split
import numpy as np

import lucid_gpu as torch
from lucid_gpu import nn
from lucid_gpu.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

WIDTH, HIDDEN, BATCH = 64, 4, 256
LEARNING_RATE, DECAY = 1e-3, 0.995
CRITIC_STEPS, PENALTY = 3, 0.1
CHECKPOINT_EVERY, TESTED = 50, 2000


def spirals(rng: np.random.Generator, count: int) -> Any:
    """``(count, 2)`` points on two spirals, with some noise."""
    angle = 3 * np.pi * np.sqrt(rng.uniform(0.02, 1, count))
    side = rng.choice((-1, 1), count) * angle / (3 * np.pi)
    points = np.stack([side * np.cos(angle), side * np.sin(angle)], 1)
    return (points + 0.02 * rng.normal(size=points.shape)).astype(np.float32)


def distance(a: Any, b: Any) -> float:
    """Of two clouds of as many points: the mean over 200 lines of how far points have to go."""
    angle = np.arange(200) * np.pi / 200
    lines = np.stack([np.cos(angle), np.sin(angle)])
    return float(np.abs(np.sort(a @ lines, 0) - np.sort(b @ lines, 0)).mean())


def network(fan_in: int, fan_out: int) -> nn.Module:
    return nn.Sequential(
        *(nn.Linear(fan_in, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU()),
        *(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, fan_out)),
    )


class Game(training.Run):
    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(args, args.steps, ("critic", "distance"))
        rng = np.random.default_rng(0)
        self.test, self.other = spirals(rng, TESTED), spirals(rng, TESTED)
        self.points = torch.tensor(spirals(rng, 50_000), device=self.device)
        self.generator, self.critic = (
            network(HIDDEN, 2).to(self.device),
            network(2, 1).to(self.device),
        )
        self.average = AveragedModel(self.generator, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
        kind = {"lr": LEARNING_RATE, "betas": (0.5, 0.9)}
        self.moves, self.answers = (
            torch.optim.Adam(model.parameters(), **kind) for model in (self.generator, self.critic)
        )
        self.parts = {
            "generator": self.generator,
            "critic": self.critic,
            "average": self.average,
            "moves": self.moves,
            "answers": self.answers,
        }

    def about(self) -> str:
        return f"{CRITIC_STEPS} steps of the critic for each of the generator, on {self.device}"

    def draw_points(self, generator: nn.Module, count: int) -> torch.Tensor:
        return generator(torch.randn(count, HIDDEN, device=self.device))

    def penalty(self, true: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
        """Mean square of the slope's distance from one, at points between true and drawn ones."""
        between = torch.lerp(true, drawn, torch.rand(BATCH, 1, device=self.device)).requires_grad_()
        (slope,) = torch.autograd.grad(self.critic(between).sum(), between, create_graph=True)
        return (slope.norm(dim=1) - 1).square().mean()

    def advance(self, bar: Any) -> dict[str, float]:
        steps = min(CHECKPOINT_EVERY, self.total - self.done)
        for _ in range(steps):
            for _ in range(CRITIC_STEPS):
                chosen = torch.randint(len(self.points), (BATCH,), device=self.device)
                true = self.points[chosen]
                drawn = self.draw_points(self.generator, BATCH).detach()
                apart = self.critic(true).mean() - self.critic(drawn).mean()
                self.answers.zero_grad()
                (self.penalty(true, drawn) * PENALTY - apart).backward()
                self.answers.step()
            self.moves.zero_grad()
            (-self.critic(self.draw_points(self.generator, BATCH)).mean()).backward()
            self.moves.step()
            self.average.update_parameters(self.generator)
            bar.update()
        self.done += steps
        found = distance(self.drawn(), self.test)
        bar.set_postfix_str(f"distance {found:.3f}", False)
        return {"critic": apart.item(), "distance": found}

    @torch.no_grad()
    def drawn(self) -> Any:
        torch.manual_seed(self.args.seed)
        return training.on_host(self.draw_points(self.average, TESTED))

    def reached(self) -> tuple[str, float]:
        true = distance(self.other, self.test)
        return f"distance of two true samples {true:.4f}, of a drawn one", self.history["distance"][
            -1
        ]

    def draw(self) -> None:
        figure = training.new_figure(9, 4)
        left, right = figure.subplots(1, 2, width_ratios=(1.3, 1))
        training.plot_curves(left, self, "", {"distance": ("distance", training.TEST)})
        left.set_yscale("log")
        right.scatter(*self.test.T, s=2, color=training.TRAINING, label="true")
        right.scatter(*self.drawn().T, s=2, color=training.TEST, label="drawn")
        right.legend(frameon=False, loc="upper right")
        right.set(aspect="equal", xlim=(-1.2, 1.2), ylim=(-1.2, 1.2))
        training.write_picture(figure, self.args.out / "points.png")


flags = training.parser("Learn to draw points of two spirals.", "runs/wasserstein", steps=1000)

if __name__ == "__main__":
    training.main(flags, Game)

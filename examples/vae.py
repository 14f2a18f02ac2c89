"""Train a variational autoencoder on scanned handwritten digits: ``python examples/vae.py``.

An encoder gives each image a normal distribution over a few hidden numbers, a decoder gives hidden
numbers a distribution over images, and both are trained to make the data likely (Kingma and
Welling, "Auto-Encoding Variational Bayes", 2014). A pixel counts how many of 16 dots are black, so
it is binomial, and the bound on the likelihood is one of real pixels.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import training  # first: from here on Ctrl-C ends in one sentence

# isort: split
import digits

import lucid_gpu as torch
from lucid_gpu import nn
from lucid_gpu.distributions import Binomial, Normal, kl_divergence
from lucid_gpu.utils.data import DataLoader, TensorDataset

PIXELS, DOTS, HIDDEN, WIDTH = 64, 16, 8, 256
BATCH = 64
LEARNING_RATE = 2e-3
BITS = 1 / math.log(2)  # of a nat


class VAE(nn.Module):
    """(n, 64) pixels to the distribution of their hidden numbers; hidden numbers to pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            *(nn.Linear(PIXELS, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU()),
            nn.Linear(WIDTH, 2 * HIDDEN),
        )
        self.decoder = nn.Sequential(
            *(nn.Linear(HIDDEN, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU()),
            nn.Linear(WIDTH, PIXELS),
        )

    def encode(self, images: torch.Tensor) -> Normal:
        mean, log_variance = self.encoder(images / (DOTS / 2) - 1).chunk(2, dim=1)
        return Normal(mean, (log_variance / 2).exp())

    def decode(self, hidden: torch.Tensor) -> Binomial:
        return Binomial(DOTS, logits=self.decoder(hidden), validate_args=False)

    def bound(self, images: torch.Tensor) -> torch.Tensor:
        """The bits that an image and its hidden numbers take: at least ``-log2 p(image)``."""
        posterior = self.encode(images)
        error = -self.decode(posterior.rsample()).log_prob(images).sum(1)
        return BITS * (error + kl_divergence(posterior, Normal(0.0, 1.0)).sum(1))


class Painter(training.Run):
    unit, ticks_of = "epoch", "images"

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(args, args.epochs, ("training", "test"))
        self.images, self.test = (
            torch.tensor(images.reshape(-1, PIXELS)).to(self.device) for images, _ in digits.load()
        )
        self.ticks = len(self.images)
        self.learn(VAE(), lr=LEARNING_RATE)

    def about(self) -> str:
        return f"{HIDDEN} hidden numbers on {self.device}: {self.ticks} images to learn from"

    def advance(self, bar: Any) -> dict[str, float]:
        total = 0.0
        for (images,) in DataLoader(TensorDataset(self.images), BATCH, shuffle=True):
            bits = self.model.bound(images).mean()
            self.optimizer.zero_grad()
            bits.backward()
            self.optimizer.step()
            total += bits.item() * len(images)
            bar.update(len(images))
            bar.set_postfix_str(f"{bits.item() / PIXELS:.3f} bits a pixel", False)
        self.schedule.step()
        self.done += 1
        return {"training": total / self.ticks / PIXELS, "test": self.evaluate()}

    @torch.no_grad()
    def evaluate(self, samples: int = 1) -> float:
        """Bits a pixel on the test images."""
        bits = [self.model.bound(self.test).mean().item() for _ in range(samples)]
        return sum(bits) / samples / PIXELS

    def reached(self) -> tuple[str, float]:
        torch.manual_seed(self.args.seed)
        return "test images, bits a pixel at most", self.evaluate(samples=50)

    @torch.no_grad()
    def draw(self) -> None:
        torch.manual_seed(self.args.seed)
        shown = self.test[::30]
        again = self.model.decode(self.model.encode(shown).mean).mean
        invented = self.model.decode(torch.randn(48, HIDDEN, device=self.device)).mean
        figure = training.new_figure(10, 3.9)
        left, middle, right = figure.subplots(1, 3, width_ratios=(1.3, 1, 1.3))
        training.plot_curves(left, self, "bits a pixel", training.BOTH)
        pairs = torch.stack([shown, again], 1)
        beside = "unseen digits, each beside what\nits 8 hidden numbers give back"
        for axes, images, columns, title in (
            (middle, pairs, 4, beside),
            (right, invented, 8, "digits that nobody wrote"),
        ):
            pixels = training.on_host(images).reshape(-1, 8, 8)
            training.show_grid(axes, pixels, columns, title, white=0)
        figure.suptitle("A variational autoencoder of scanned digits")
        training.write_picture(figure, self.args.out / "digits.png")


flags = training.parser(
    "Train a variational autoencoder on scanned digits.", "runs/vae", epochs=150
)

if __name__ == "__main__":
    training.main(flags, Painter)

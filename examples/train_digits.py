"""Train on scanned handwritten digits: ``python examples/train_digits.py --model cnn``.

The data are scikit-learn's 1,797 UCI digits, 8 x 8 pixels each. 360 of them, always the same, are
kept for the test. Results go to ``runs/digits/``: a checkpoint and ``curves.png``. The
script is written as for PyTorch.
"""

from __future__ import annotations

import argparse
from typing import Any

import training  # first: from here on Ctrl-C ends in one sentence

# isort: split
import digits
import numpy as np

import lucid_gpu as torch
from lucid_gpu import nn
from lucid_gpu.nn import functional as F

BATCH = 64
LEARNING_RATE = 3e-3
SMOOTHING = 0.1  # of the labels
SHIFTED = 0.1  # of the training images, by up to one pixel each way
EPOCHS = {"mlp": 30, "cnn": 10}


class Swish(torch.autograd.Function):
    """``x * sigmoid(x)``, with the gradient written by hand. Both fuse with their neighbors."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        s = x.sigmoid()
        return grad * (s + x * s * (1 - s))


class Activation(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Swish.apply(x)


def mlp() -> nn.Module:
    wide = nn.Linear(64, 256), Activation(), nn.Dropout(0.2)
    narrow = nn.Linear(256, 128), Activation(), nn.Dropout(0.2)
    return nn.Sequential(nn.Flatten(), *wide, *narrow, nn.Linear(128, 10))


def convolution(channels: int, filters: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, filters, 3, padding=1), nn.BatchNorm2d(filters), Activation()]


def cnn() -> nn.Module:
    fine = *convolution(1, 32), *convolution(32, 32), nn.MaxPool2d(2)
    coarse = *convolution(32, 64), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.3)
    return nn.Sequential(*fine, *coarse, nn.Linear(64 * 2 * 2, 10))


MODELS = {"mlp": mlp, "cnn": cnn}


def shifted(images: torch.Tensor) -> torch.Tensor:
    """(n, 1, 8, 8) images, some of them moved by a pixel each way."""
    n, where = len(images), images.device
    moved = torch.rand(n, device=where) < SHIFTED
    corners = torch.where(moved, torch.randint(0, 3, (2, n), device=where), 1)
    rows, columns = corners.unsqueeze(-1) + torch.arange(8, device=where)
    number = torch.arange(n, device=where)[:, None, None]
    return F.pad(images, (1, 1, 1, 1), value=-1.0)[
        number, 0, rows[:, :, None], columns[:, None, :]
    ].unsqueeze(1)


class Reader(training.Run):
    unit, ticks_of = "epoch", "images"
    fixed, reaches = ("model",), "test accuracy"

    def __init__(self, args: argparse.Namespace) -> None:
        epochs = args.epochs or EPOCHS[args.model]
        super().__init__(args, epochs, ("loss", "accuracy", "test loss", "test"))
        self.data, self.test = digits.tensors(self.device)
        self.ticks = len(self.data[0])
        self.learn(MODELS[args.model](), torch.optim.AdamW, lr=LEARNING_RATE, weight_decay=0.05)
        self.step = self.minimizing(self.losses)

    def title(self) -> str:
        return f"{self.args.model}, epoch {self.done + 1}/{self.total}"

    def losses(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[Any, Any]:
        """Return the loss of a batch, and how many of it are read right."""
        scores = self.model(shifted(images))
        loss = F.cross_entropy(scores, labels, label_smoothing=SMOOTHING)
        return loss, (scores.argmax(1) == labels).sum()

    def advance(self, bar: Any) -> dict[str, float]:
        """Train on every image once."""
        self.model.train()
        seen, loss_sum, right = 0, 0.0, 0
        for chosen in self.batches(BATCH, bar):
            images, labels = (part[chosen] for part in self.data)
            loss, read = self.step(images, labels)
            seen += len(labels)
            loss_sum += loss.item() * len(labels)
            right += read.item()
            bar.set_postfix_str(f"loss {loss_sum / seen:.3f}, accuracy {right / seen:.3f}", False)
        self.schedule.step()
        self.done += 1
        test_loss, wrong = self.evaluate()
        figures = (loss_sum / seen, right / seen, test_loss, 1 - wrong.float().mean().item())
        return dict(zip(("loss", "accuracy", "test loss", "test"), figures))

    @torch.no_grad()
    def evaluate(self) -> tuple[float, torch.Tensor]:
        """Loss on the test images, and which are misread."""
        self.model.eval()
        scores, labels = self.model(self.test[0]), self.test[1]
        loss = F.cross_entropy(scores, labels, label_smoothing=SMOOTHING)
        return loss.item(), scores.argmax(1) != labels

    def draw(self) -> None:
        figure = training.new_figure(11, 3.6)
        left, middle, right = figure.subplots(1, 3)
        for axes, name, test in ((left, "loss", "test loss"), (middle, "accuracy", "test")):
            both = {name: ("training", training.TRAINING), test: ("test", training.TEST)}
            training.plot_curves(axes, self, name, both)
        wrong = training.on_host(self.test[0])[training.on_host(self.evaluate()[1])][:24, 0]
        shown = np.concatenate([wrong, np.full((24 - len(wrong), 8, 8), -1.0)])
        training.show_grid(right, shown, 6, "test digits that are misread")
        training.write_picture(figure, self.args.out / "curves.png")


flags = training.parser("Train on 1,797 scanned digits.", "runs/digits")
flags.add_argument("--model", choices=sorted(MODELS), default="mlp", help="(%(default)s)")
flags.add_argument("--epochs", type=training.positive, help="(30 for the mlp, 10 for the cnn)")

if __name__ == "__main__":
    training.main(flags, Reader)

"""Train on scanned handwritten digits: ``python examples/train_digits.py --model cnn``.

The data are scikit-learn's 1,797 UCI digits, 8 x 8 pixels each. 360 of them, always the same, are
kept for the test. What is learnt goes to ``runs/digits/``: a checkpoint, ``curves.png`` and
``misread.png``. The script is written as one writes it for PyTorch.
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
from lucid_gpu.utils.data import DataLoader, TensorDataset

BATCH = 64
LEARNING_RATE = 3e-3
WEIGHT_DECAY = 0.05
SMOOTHING = 0.1  # of the labels
SHIFTED = 0.1  # of the training images, by up to one pixel each way
EPOCHS = {"mlp": 30, "cnn": 10}


# -- the models --------------------------------------------------------------------------------


class Swish(torch.autograd.Function):
    """``x * sigmoid(x)``, with the gradient written by hand. Both fuse with their neighbours."""

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
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 256),
        Activation(),
        nn.Dropout(0.2),
        nn.Linear(256, 128),
        Activation(),
        nn.Dropout(0.2),
        nn.Linear(128, 10),
    )


def convolution(channels: int, filters: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, filters, 3, padding=1), nn.BatchNorm2d(filters), Activation()]


def cnn() -> nn.Module:
    return nn.Sequential(
        *convolution(1, 32),
        *convolution(32, 32),
        nn.MaxPool2d(2),
        *convolution(32, 64),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(64 * 2 * 2, 10),
    )


MODELS = {"mlp": mlp, "cnn": cnn}


# -- the data ----------------------------------------------------------------------------------


def dataset(images: Any, labels: Any, device: torch.device) -> TensorDataset:
    """Images with a border of one pixel."""
    padded = np.pad(images / 16, ((0, 0), (1, 1), (1, 1)))
    return TensorDataset(torch.tensor(padded).to(device), torch.tensor(labels).to(device))


def centred(images: torch.Tensor) -> torch.Tensor:
    """(n, 10, 10) to (n, 1, 8, 8): without the border."""
    return images[:, 1:-1, 1:-1].unsqueeze(1)


def shifted(images: torch.Tensor) -> torch.Tensor:
    """(n, 10, 10) to (n, 1, 8, 8), some moved by a pixel."""
    n, where = len(images), images.device
    moved = torch.rand(n, device=where) < SHIFTED
    corners = torch.where(moved, torch.randint(0, 3, (2, n), device=where), 1)
    pixels = torch.arange(8, device=where)
    rows, columns = corners.unsqueeze(-1) + pixels
    number = torch.arange(n, device=where)
    return images[number[:, None, None], rows[:, :, None], columns[:, None, :]].unsqueeze(1)


# -- training ----------------------------------------------------------------------------------


class Reader(training.Run):
    unit, ticks_of = "epoch", "images"
    fixed = ("model",)

    def __init__(self, args: argparse.Namespace) -> None:
        epochs = args.epochs or EPOCHS[args.model]
        super().__init__(args, epochs, ("loss", "accuracy", "test loss", "test accuracy"))
        self.train, self.test = (dataset(*part, self.device) for part in digits.load())
        self.ticks = len(self.train)
        self.model = MODELS[args.model]().to(self.device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY
        )
        self.schedule = training.half_cosine(self.optimizer, epochs)
        self.parts = {
            "weights": self.model,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
        }

    def about(self) -> str:
        return f"{self.args.model} on {self.device}: {self.ticks} images to learn from"

    def title(self) -> str:
        return f"{self.args.model}, epoch {self.done + 1}/{self.total}"

    def advance(self, bar: Any) -> dict[str, float]:
        """Train on every image once."""
        self.model.train()
        seen, loss_sum, right = 0, 0.0, 0
        for images, labels in DataLoader(self.train, BATCH, shuffle=True):
            scores = self.model(shifted(images))
            loss = F.cross_entropy(scores, labels, label_smoothing=SMOOTHING)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            seen += len(labels)
            loss_sum += loss.item() * len(labels)
            right += (scores.argmax(1) == labels).sum().item()
            bar.set_postfix_str(f"loss {loss_sum / seen:.3f}, accuracy {right / seen:.3f}", False)
            bar.update(len(labels))
        self.schedule.step()
        self.done += 1
        test_loss, guesses = self.evaluate()
        accuracy = (guesses == self.test.tensors[1]).float().mean().item()
        figures = (loss_sum / seen, right / seen, test_loss, accuracy)
        return dict(zip(("loss", "accuracy", "test loss", "test accuracy"), figures))

    @torch.no_grad()
    def evaluate(self) -> tuple[float, torch.Tensor]:
        """Loss on the test images, and what the model takes them for."""
        self.model.eval()
        images, labels = self.test.tensors
        scores = self.model(centred(images))
        loss = F.cross_entropy(scores, labels, label_smoothing=SMOOTHING)
        return loss.item(), scores.argmax(1)

    def reached(self) -> tuple[str, float]:
        return "test accuracy", self.history["test accuracy"][-1]

    def draw(self) -> None:
        figure = training.new_figure(9, 3.6)
        for axes, name in zip(figure.subplots(1, 2), ("loss", "accuracy"), strict=True):
            both = {
                name: ("training", training.TRAINING),
                f"test {name}": ("test", training.TEST),
            }
            training.plot_curves(axes, self, name, both)
        figure.suptitle(f"UCI digits, {self.args.model}")
        training.write_picture(figure, self.args.out / "curves.png")
        self.draw_misread()

    def draw_misread(self) -> None:
        """The test images that the model reads wrongly."""
        images, labels = (t.cpu().numpy() for t in self.test.tensors)
        guesses = self.evaluate()[1].cpu().numpy()
        wrong = np.flatnonzero(guesses != labels)[:24]
        columns = max(min(len(wrong), 8), 4)
        rows = max(-(-len(wrong) // columns), 1)
        figure = training.new_figure(1.3 * columns, 1.6 * rows + 0.5)
        places = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes in places:
            axes.axis("off")
        for axes, i in zip(places, wrong, strict=False):
            axes.imshow(images[i, 1:-1, 1:-1], cmap="gray_r")
            axes.set_title(f"{labels[i]}, read as {guesses[i]}", fontsize=8)
        figure.suptitle(
            f"{(guesses != labels).sum()} of {len(labels)} test digits misread", fontsize=10
        )
        training.write_picture(figure, self.args.out / "misread.png")


def flags() -> training.Parser:
    made = training.parser("Train on 1,797 scanned digits.", "runs/digits")
    made.add_argument("--model", choices=sorted(MODELS), default="mlp", help="(%(default)s)")
    made.add_argument("--epochs", type=training.positive, help="(30 for the mlp, 10 for the cnn)")
    return made


if __name__ == "__main__":
    training.main(flags(), Reader)

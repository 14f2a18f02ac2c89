"""Train on scanned handwritten digits: ``python examples/train_digits.py --model cnn``.

The data are scikit-learn's 1,797 UCI digits, 8 x 8 pixels each. 360 of them, always the same, are
kept for the test. What is learnt goes to ``runs/digits/``: a checkpoint, ``curves.png`` and
``misread.png``. The script is written as one writes it for PyTorch.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import math
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

import lucid_gpu as torch
from lucid_gpu import nn
from lucid_gpu.nn import functional as F
from lucid_gpu.serialization import CheckpointError
from lucid_gpu.utils.data import DataLoader, TensorDataset

TEST_IMAGES = 360
BATCH = 64
LEARNING_RATE = 3e-3
WEIGHT_DECAY = 0.05
SMOOTHING = 0.1  # of the labels
SHIFTED = 0.1  # of the training images, by up to one pixel each way
EPOCHS = {"mlp": 30, "cnn": 10}


def stop(sentence: str, status: int = 1) -> NoReturn:
    """End with one sentence."""
    print(f"train_digits: {sentence}", file=sys.stderr)
    sys.exit(status)


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


def digits(device: torch.device) -> tuple[TensorDataset, TensorDataset]:
    """Training and test images with their labels; the images have a border of one pixel."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = np.pad((data.images / 16).astype(np.float32), ((0, 0), (1, 1), (1, 1)))
    order = np.random.default_rng(0).permutation(len(images))  # the same test images every time
    return tuple(
        TensorDataset(
            torch.tensor(images[part]).to(device), torch.tensor(data.target[part]).to(device)
        )
        for part in (order[TEST_IMAGES:], order[:TEST_IMAGES])
    )


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


class Run:
    """A model in training, and all that a checkpoint holds."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.device = args.device
        self.train, self.test = digits(self.device)
        torch.manual_seed(args.seed)
        self.model = MODELS[args.model]().to(self.device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY
        )
        self.epoch = 0
        names = ("loss", "accuracy", "test loss", "test accuracy")
        self.history: dict[str, list[float]] = {name: [] for name in names}
        self.file = args.out / "checkpoint.safetensors"

    def save(self) -> None:
        checkpoint = {
            "model": self.args.model,
            "seed": self.args.seed,
            "epoch": self.epoch,
            "history": self.history,
            "weights": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        try:
            torch.save(checkpoint, self.file)
        except OSError as error:
            kept = " (the one before is untouched)" if self.file.exists() else ""
            stop(f"cannot write {self.file}{kept}: {error.strerror}")

    def resume(self) -> None:
        try:
            checkpoint = torch.load(self.file, map_location=self.device)
        except FileNotFoundError:
            stop(f"there is no {self.file} to resume from; leave out --resume")
        except OSError as error:
            stop(f"cannot read {self.file}: {error.strerror}")
        except CheckpointError as error:
            stop(f"{error}; remove it, or leave out --resume")
        try:
            if checkpoint["model"] != self.args.model:
                stop(
                    f"{self.file} holds a {checkpoint['model']}; say --model {checkpoint['model']}"
                )
            self.model.load_state_dict(checkpoint["weights"])
            self.optimizer.load_state_dict(checkpoint["optimizer"])
            self.epoch, self.args.seed = checkpoint["epoch"], checkpoint["seed"]
            self.history = checkpoint["history"]
        except (KeyError, TypeError, ValueError, RuntimeError):
            stop(f"{self.file} is no checkpoint of this script; remove it, or leave out --resume")

    def one_epoch(self, bar: Any) -> float:
        """Train on every image once; returns images per second."""
        # Shuffling, shifts and dropout follow from seed and epoch: resuming changes no number.
        torch.manual_seed(self.args.seed * 1_000_003 + self.epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate()
        self.model.train()
        began, seen, loss_sum, right = time.perf_counter(), 0, 0.0, 0
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
        rate = seen / (time.perf_counter() - began)
        test_loss, guesses = self.evaluate()
        accuracy = (guesses == self.test.tensors[1]).float().mean().item()
        for name, value in zip(
            self.history, (loss_sum / seen, right / seen, test_loss, accuracy), strict=True
        ):
            self.history[name].append(value)
        self.epoch += 1
        return rate

    def learning_rate(self) -> float:
        """Half a cosine, down to zero."""
        return LEARNING_RATE * (1 + math.cos(math.pi * self.epoch / self.args.epochs)) / 2

    @torch.no_grad()
    def evaluate(self) -> tuple[float, torch.Tensor]:
        """Loss on the test images, and what the model takes them for."""
        self.model.eval()
        images, labels = self.test.tensors
        scores = self.model(centred(images))
        loss = F.cross_entropy(scores, labels, label_smoothing=SMOOTHING)
        return loss.item(), scores.argmax(1)


def train(run: Run) -> bool:
    """Train to the last epoch, or to the end of the epoch in which Ctrl-C comes."""
    from tqdm import tqdm

    interrupted = False

    def interrupt(*_: Any) -> None:
        nonlocal interrupted
        interrupted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        print("\nstopping after this epoch (Ctrl-C again: at once)", file=sys.stderr)

    signal.signal(signal.SIGINT, interrupt)
    size, epochs = len(run.train), run.args.epochs
    with tqdm(
        total=epochs * size, initial=run.epoch * size, unit=" images", disable=None, leave=True
    ) as bar:
        while run.epoch < epochs and not interrupted:
            bar.set_description(f"{run.args.model}, epoch {run.epoch + 1}/{epochs}", False)
            rate = run.one_epoch(bar)
            run.save()
            if bar.disable and (run.epoch % max(epochs // 10, 1) == 0 or run.epoch == epochs):
                last = {name: values[-1] for name, values in run.history.items()}
                print(
                    f"epoch {run.epoch}/{epochs}: loss {last['loss']:.3f}, accuracy "
                    f"{last['accuracy']:.3f}, test accuracy {last['test accuracy']:.3f}, "
                    f"{rate:.0f} images/s",
                    flush=True,
                )
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return interrupted and run.epoch < epochs


# -- pictures ----------------------------------------------------------------------------------


def write_picture(figure: Any, path: Path) -> None:
    """All of a picture or nothing."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    part = path.with_suffix(".part")
    try:
        part.write_bytes(buffer.getvalue())
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        stop(f"cannot write {path}: {error.strerror}")


def draw_curves(run: Run) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    epochs = range(1, run.epoch + 1)
    for axes, name in zip(figure.subplots(1, 2), ("loss", "accuracy"), strict=True):
        axes.plot(epochs, run.history[name], ".-", label="training", color="#8aa4c8")
        axes.plot(epochs, run.history[f"test {name}"], ".-", label="test", color="#c8553d")
        axes.set(xlabel="epoch", ylabel=name)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    figure.suptitle(f"UCI digits, {run.args.model}")
    write_picture(figure, run.args.out / "curves.png")


def draw_misread(run: Run) -> None:
    """The test images that the model reads wrongly."""
    from matplotlib.figure import Figure

    images, labels = (t.cpu().numpy() for t in run.test.tensors)
    guesses = run.evaluate()[1].cpu().numpy()
    wrong = np.flatnonzero(guesses != labels)[:24]
    columns = max(min(len(wrong), 8), 4)
    rows = max(-(-len(wrong) // columns), 1)
    figure = Figure(figsize=(1.3 * columns, 1.6 * rows + 0.5), layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in places:
        axes.axis("off")
    for axes, i in zip(places, wrong, strict=False):
        axes.imshow(images[i, 1:-1, 1:-1], cmap="gray_r")
        axes.set_title(f"{labels[i]}, read as {guesses[i]}", fontsize=8)
    figure.suptitle(
        f"{(guesses != labels).sum()} of {len(labels)} test digits misread", fontsize=10
    )
    write_picture(figure, run.args.out / "misread.png")


# -- the command -------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        stop(f"{message} (--help lists the flags)", 2)


def positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def arguments() -> argparse.Namespace:
    parser = Parser(description="Train on 1,797 scanned digits.", allow_abbrev=False)
    parser.add_argument("--model", choices=sorted(MODELS), default="mlp")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--epochs", type=positive, help=f"by default {EPOCHS}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    parser.add_argument("--out", type=Path, default=Path("runs/digits"), help="where results go")
    args = parser.parse_args()
    args.epochs = args.epochs or EPOCHS[args.model]
    if args.device == "auto":
        args.device = "cuda" if torch.cuda.is_available() else "cpu"
    return args


def main() -> int:
    args = arguments()
    for package, name in (("sklearn", "scikit-learn"), ("matplotlib", "matplotlib"), ("tqdm",) * 2):
        if importlib.util.find_spec(package) is None:
            stop(f"{name} is missing; python -m pip install 'lucid-gpu[train]' brings it")
    try:
        args.device = torch.zeros(1, device=args.device).device
    except RuntimeError as error:
        stop(str(error))
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        stop(f"cannot make the folder {args.out}: {error.strerror}")
    run = Run(args)
    if args.resume:
        run.resume()
    print(f"{args.model} on {args.device}: {len(run.train)} images to learn from", flush=True)
    interrupted = train(run)
    if run.epoch:
        draw_curves(run)
        draw_misread(run)
    if interrupted:
        print(f"stopped after epoch {run.epoch}; --resume goes on from {run.file}")
        return 130
    print(f"results are in {args.out}")
    print(f"test accuracy: {run.history['test accuracy'][-1]:.4f}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        stop("interrupted; the checkpoint of the last whole epoch, if there is one, is kept", 130)

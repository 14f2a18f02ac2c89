"""Train a small GPT on Python's own standard library, letter by letter, and let it write.

The text are the modules of the running Python; every twentieth file is kept for validation. The
model is GPT-2's (Radford et al., 2019) in small. ``--resume`` after the last step only writes
again, say with another ``--temperature`` or ``--prompt``. ``--processes 2`` shares each batch among
two processes (it needs ``lucid-gpu[mpi]``); the picture has the curve of each count that was run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import string
import sys
import sysconfig
from pathlib import Path
from typing import Any

import training  # first: from here on Ctrl-C ends in one sentence

# isort: split
import numpy as np

import lucid_gpu as torch
import lucid_gpu.distributed as dist
from lucid_gpu import nn
from lucid_gpu.nn import functional as F

LETTERS = sorted(set(string.printable) - set("\r\x0b\x0c"))  # what else there is becomes a "?"
LAYERS, WIDTH, HEADS, LENGTH, BATCH = 4, 128, 4, 128, 8
LEARNING_RATE = 3e-3
VALIDATE_EVERY, WINDOWS = 100, 128
BITS = 1 / math.log(2)  # of a nat


# -- the text ----------------------------------------------------------------------------------


def read_library() -> tuple[str, str]:
    """Training and validation text."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    texts = [file.read_text("utf-8") for file in sorted(folder.glob("*.py"))]
    return "".join(t for i, t in enumerate(texts) if i % 20), "".join(texts[::20])


def encode(text: str, device: Any) -> torch.Tensor:
    number = np.full(128, LETTERS.index("?"))
    number[[ord(letter) for letter in LETTERS]] = range(len(LETTERS))
    return torch.tensor(number[np.frombuffer(text.encode("ascii", "replace"), np.uint8)]).to(device)


def decode(numbers: torch.Tensor) -> str:
    return "".join(LETTERS[i] for i in numbers.tolist())


# -- the model ---------------------------------------------------------------------------------


class Block(nn.Module):
    """Attention to what came before, then two layers for each letter; both are added."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, c = x.shape
        heads = self.qkv(self.norm1(x)).split(c, dim=2)
        q, k, v = (z.view(n, t, HEADS, c // HEADS).transpose(1, 2) for z in heads)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(n, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    """(n, t) letters to (n, t, letters) scores of the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.letter, self.place = nn.Embedding(len(LETTERS), WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(LETTERS), bias=False)
        for name, p in self.named_parameters():
            if p.ndim == 2:  # what is added 2 * LAYERS times starts smaller
                added = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * LAYERS) if added else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        places = torch.arange(text.shape[1], device=text.device)
        return self.head(self.norm(self.blocks(self.letter(text) + self.place(places))))


# -- training ----------------------------------------------------------------------------------


class Writer(training.Run):
    fixed = ("steps",)

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(args, args.steps, ("training", "validation"))
        self.rank, self.leads = 0, True
        if args.processes > 1:
            dist.init_process_group()
            self.rank = dist.get_rank()
            self.leads = self.rank == 0
        self.text, self.kept = (encode(text, self.device) for text in read_library())
        self.model = GPT().to(self.device)
        kinds = [[p for p in self.model.parameters() if (p.ndim == 2) == m] for m in (True, False)]
        self.optimizer = torch.optim.AdamW(
            [{"params": kinds[0]}, {"params": kinds[1], "weight_decay": 0.0}],
            betas=(0.9, 0.98),
            weight_decay=0.1,
        )
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, LEARNING_RATE, self.total, pct_start=0.05, cycle_momentum=False
        )
        self.learner = (
            nn.parallel.DistributedDataParallel(self.model) if args.processes > 1 else self.model
        )
        self.parts = {
            "weights": self.model,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
        }

    def about(self) -> str:
        count = sum(p.numel() for p in self.model.parameters())
        several = f", {self.args.processes} processes" if self.args.processes > 1 else ""
        return (
            f"{count:,} weights on {self.device}{several}: {len(self.text):,} letters to learn "
            f"from, {len(self.kept):,} to validate"
        )

    def losses(self, windows: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        """Bits a letter, given windows of LENGTH + 1 letters."""
        scores = (self.learner if self.model.training else self.model)(windows[:, :-1])
        return BITS * F.cross_entropy(
            scores.flatten(0, 1), windows[:, 1:].flatten(), reduction=reduction
        )

    def advance(self, bar: Any) -> dict[str, float]:
        self.model.train()
        steps = min(VALIDATE_EVERY - self.done % VALIDATE_EVERY, self.total - self.done)
        span, total = torch.arange(LENGTH + 1, device=self.device), 0.0
        for _ in range(steps):
            starts = torch.randint(len(self.text) - LENGTH, (BATCH, 1), device=self.device)
            own = starts[
                self.rank :: self.args.processes
            ]  # of the batch, the same in all processes
            loss = self.losses(self.text[own + span])
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.schedule.step()
            total += loss.item()
            bar.update()
            bar.set_postfix_str(f"{loss.item():.2f} bits a letter", False)
        self.done += steps
        mean = torch.tensor(total / steps)
        if self.args.processes > 1:
            dist.all_reduce(mean, dist.ReduceOp.AVG)
        return {"training": mean.item(), "validation": self.validate()}

    @torch.no_grad()
    def validate(self) -> float:
        self.model.eval()
        starts = torch.arange(WINDOWS, device=self.device) * (len(self.kept) // (WINDOWS + 1))
        windows = self.kept[starts[:, None] + torch.arange(LENGTH + 1, device=self.device)]
        means = [self.losses(part).item() for part in windows.split(16)]
        return sum(means) / len(means)

    @torch.no_grad()
    def write(self) -> str:
        """Go on from the prompt, each letter drawn by its probability."""
        self.model.eval()
        torch.manual_seed(self.args.seed)
        text = encode(self.args.prompt or "\n", self.device)
        for _ in range(self.args.sample):
            scores = self.model(text[None, -LENGTH:])[0, -1]
            chances = (scores / self.args.temperature).softmax(0)
            text = torch.cat([text, torch.multinomial(chances, 1)])
        return decode(text)

    @torch.no_grad()
    def surprises(self) -> tuple[str, list[float]]:
        """The beginning of a validation file, and how many bits each of its letters took."""
        self.model.eval()
        begin = len(self.kept) // 2
        window = self.kept[begin : begin + LENGTH * 6 + 1]
        windows = torch.stack([window[i * LENGTH : (i + 1) * LENGTH + 1] for i in range(6)])
        return decode(window[1:]), self.losses(windows, "none").tolist()

    def draw(self) -> None:
        figure = training.new_figure(11, 4.6)
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.35))
        both = {
            "training": ("training", training.TRAINING),
            "validation": ("validation", training.TEST),
        }
        training.plot_curves(left, self, "bits a letter", both)
        self.draw_other_counts(left)
        left.set_ylim(0, 7)
        draw_text(right, *self.surprises())
        figure.suptitle("A GPT that reads Python's standard library")
        training.write_picture(figure, self.args.out / "curves.png")

    def draw_other_counts(self, axes: Any) -> None:
        """Keep the validation curve of this count of processes, and draw those of others."""
        curve = {name: self.history[name] for name in ("done", "validation")}
        own = self.args.out / f"validation-{self.args.processes}.json"
        own.write_text(json.dumps(curve))
        for file in sorted(self.args.out.glob("validation-*.json")):
            if file != own:
                other, count = json.loads(file.read_text()), file.stem.partition("-")[2]
                label = f"validation, {count} process{'es' if count != '1' else ''}"
                axes.plot(
                    other["done"], other["validation"], "--", label=label, color=training.TRUTH
                )
                axes.legend(frameon=False)

    def reached(self) -> tuple[str, float]:
        written = self.write()
        print(f"{'-' * 72}\n{written}\n{'-' * 72}")
        return "validation, bits a letter", self.history["validation"][-1]


def draw_text(axes: Any, text: str, bits: list[float]) -> None:
    """Letters on a ground as red as they were surprising."""
    from matplotlib import colormaps

    row = column = 0
    for letter, surprise in zip(text, bits, strict=True):
        if letter == "\n" or column == 64:
            row, column = row + 1, 0
        if letter != "\n":
            ground = colormaps["OrRd"](min(surprise / 8, 1) * 0.8)
            axes.add_patch(_cell(column, row, ground))
            axes.text(
                column + 0.5,
                row + 0.55,
                letter,
                family="monospace",
                size=6.5,
                ha="center",
                va="center",
            )
            column += 1
    axes.set(
        xlim=(0, 64),
        ylim=(max(row + 1, 18), 0),
        title="unseen text: the redder, the more surprising",
    )
    axes.title.set_size(9)
    axes.axis("off")


def _cell(column: int, row: int, colour: Any) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((column, row), 1, 1, facecolor=colour, edgecolor="none")


def flags() -> training.Parser:
    made = training.parser("Train a GPT on Python's standard library.", "runs/char_gpt")
    made.add_argument("--steps", type=training.positive, default=2500, help="(%(default)s)")
    made.add_argument(
        "--prompt", default="\n    def __init__(self, ", help="what it goes on from (%(default)r)"
    )
    made.add_argument(
        "--sample", type=training.positive, default=600, help="letters to write (%(default)s)"
    )
    made.add_argument(
        "--temperature", type=above_zero, default=0.6, help="below 1: more careful (%(default)s)"
    )
    made.add_argument(
        "--processes", type=training.positive, default=1, help="that share a batch (%(default)s)"
    )
    return made


def start_processes(count: int) -> None:
    """Become the command that starts this one ``count`` times, unless it has."""
    if BATCH % count:
        training.stop(f"--processes must divide {BATCH}, the batch, got {count}", 2)
    if not dist.is_mpi_available():
        training.stop("--processes: mpi4py is missing; python -m pip install 'lucid-gpu[mpi]'")
    launcher = ["-m", "lucid_gpu.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    os.execv(sys.executable, [sys.executable, *launcher, *sys.argv])


def above_zero(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above zero")
    return value


if __name__ == "__main__":
    asked = flags().parse_args().processes
    if asked > 1 and "RANK" not in os.environ:
        start_processes(asked)
    training.main(flags(), Writer)

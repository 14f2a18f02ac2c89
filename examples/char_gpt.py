"""Train a small GPT on Python's own standard library, letter by letter, and let it write.

The text are the modules of the running Python; every twentieth file is kept for validation. The
model is GPT-2's (Radford et al., 2019) in small. ``--resume`` after the last step only writes
again, say with another ``--prompt``. ``--processes 2`` shares each batch among two processes (it
needs the extra ``mpi``).
"""

from __future__ import annotations

import argparse
import math
import string
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
LEARNING_RATE, VALIDATE_EVERY, WINDOWS = 3e-3, 100, 128
TEMPERATURE, BITS = 0.6, 1 / math.log(2)  # below 1: more careful; of a nat


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


class Block(nn.Module):
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
        for p in (p for p in self.parameters() if p.ndim == 2):
            nn.init.normal_(p, std=0.02)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        places = torch.arange(text.shape[1], device=text.device)
        return self.head(self.norm(self.blocks(self.letter(text) + self.place(places))))


class Writer(training.Run):
    fixed, reaches = ("steps",), "validation, bits a letter"

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(args, args.steps, ("training", "test"))
        self.share(args.processes)
        self.text, self.kept = (encode(text, self.device) for text in read_library())
        self.learn(GPT(), torch.optim.AdamW, self.total // 20, lr=LEARNING_RATE, weight_decay=0.1)
        several = nn.parallel.DistributedDataParallel
        self.learner = several(self.model) if args.processes > 1 else self.model
        self.step = self.minimizing(lambda own: (self.loss(own, self.text, self.learner),), clip=1)

    def about(self) -> str:
        return f"{self.weights()}: {len(self.text):,} letters, {len(self.kept):,} to validate"

    def loss(self, starts: torch.Tensor, text: torch.Tensor, model: nn.Module) -> torch.Tensor:
        """Bits a letter, of windows that begin at ``starts``."""
        windows = text[starts[:, None] + torch.arange(LENGTH + 1, device=self.device)]
        scores = model(windows[:, :-1]).flatten(0, 1)
        return BITS * F.cross_entropy(scores, windows[:, 1:].flatten())

    def advance(self, bar: Any) -> dict[str, float]:
        self.model.train()
        steps = min(VALIDATE_EVERY - self.done % VALIDATE_EVERY, self.total - self.done)
        total = torch.zeros(())
        for _ in range(steps):
            starts = torch.randint(len(self.text) - LENGTH, (BATCH,), device=self.device)
            own = starts[self.rank :: self.args.processes]  # of a batch that all draw alike
            (loss,) = self.step(own)
            self.schedule.step()
            total += loss.item() / steps
            bar.update()
            bar.set_postfix_str(f"{loss.item():.2f} bits a letter", False)
        self.done += steps
        if self.args.processes > 1:
            dist.all_reduce(total, dist.ReduceOp.AVG)
        return {"training": total.item(), "test": self.validate()}

    @torch.no_grad()
    def validate(self) -> float:
        self.model.eval()
        starts = torch.arange(WINDOWS, device=self.device) * (len(self.kept) // (WINDOWS + 1))
        parts = starts.split(16)
        return sum(self.loss(p, self.kept, self.model).item() * len(p) for p in parts) / WINDOWS

    @torch.no_grad()
    def reached(self) -> tuple[str, float]:
        """Go on from the prompt first, each letter drawn by its probability."""
        self.model.eval()
        torch.manual_seed(self.args.seed)
        text = encode(self.args.prompt or "\n", self.device)
        for _ in range(self.args.sample):
            chances = (self.model(text[None, -LENGTH:])[0, -1] / TEMPERATURE).softmax(0)
            text = torch.cat([text, torch.multinomial(chances, 1)])
        print(decode(text), "-" * 72, sep="\n")
        return super().reached()


flags = training.parser("Train a GPT.", "runs/char_gpt", steps=2500, sample=600, processes=1)
flags.add_argument("--prompt", default="\n    def __init__(self, ", help="(%(default)r)")

if __name__ == "__main__":
    training.start_processes(flags, BATCH)
    training.main(flags, Writer)

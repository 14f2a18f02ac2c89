"""Whole training steps: forward, cross entropy, backward, the optimizer's step, zero_grad.

Each function returns a ``build`` as `bench.cases` wants it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Step = Callable[[], tuple[Any, ...]]
Build = Callable[[Any, str, Callable[..., Any]], Step]

__all__ = ["gpt", "lenet", "lstm", "mlp", "resnet"]


def seed(torch: Any, model: Any, rng: np.random.Generator, scale: float) -> None:
    """Give every peer's model the same weights: vectors of norms stay, others are normal."""
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim > 1:
                values = rng.standard_normal(tuple(p.shape), np.float32) * np.float32(scale)
                p.copy_(torch.tensor(values))
            elif not bool((p == 1).all()):
                p.zero_()


def training(
    torch: Any, model: Any, optimizer: Any, loss_of: Callable[..., Any], *batch: Any
) -> Step:
    """The loop's body, on one batch."""

    def step() -> tuple[Any, ...]:
        loss = loss_of(*batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss, *model.parameters()

    return step


def classifying(torch: Any, model: Any, compiled: Callable[..., Any]) -> Callable[..., Any]:
    """The loss of a model's scores for labels."""
    cross_entropy = torch.nn.functional.cross_entropy
    loss_of: Callable[..., Any] = compiled(lambda x, y: cross_entropy(model(x), y))
    return loss_of


def captured(torch: Any) -> dict[str, bool]:
    """What lets an optimizer be part of a graph, which torch refuses on a CPU."""
    return {"capturable": True} if torch.optim.__name__ == "lucid_gpu.optim" else {}


def mlp(widths: tuple[int, ...], batch: int) -> Build:
    """Layers with ReLU between them, Adam."""

    def build(torch: Any, device: str, compiled: Callable[..., Any]) -> Step:
        nn = torch.nn
        rng = np.random.default_rng(0)
        layers: list[Any] = []
        for fan_in, fan_out in zip(widths, widths[1:], strict=False):
            layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
        model = nn.Sequential(*layers[:-1])
        seed(torch, model, rng, widths[0] ** -0.5)
        model = model.to(device)
        images = torch.tensor(rng.standard_normal((batch, widths[0]), np.float32), device=device)
        labels = torch.tensor(rng.integers(0, widths[-1], batch), device=device)
        loss_of = classifying(torch, model, compiled)
        adam = torch.optim.Adam(model.parameters(), lr=1e-3, **captured(torch))
        return training(torch, model, adam, loss_of, images, labels)

    return build


def lenet(batch: int) -> Build:
    """Two convolutions and three layers on images of 28 x 28 (LeCun et al., 1998), SGD."""

    def build(torch: Any, device: str, compiled: Callable[..., Any]) -> Step:
        nn = torch.nn
        rng = np.random.default_rng(0)
        model = nn.Sequential(
            *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
        )
        seed(torch, model, rng, 0.1)
        model = model.to(device)
        images = torch.tensor(rng.standard_normal((batch, 1, 28, 28), np.float32), device=device)
        labels = torch.tensor(rng.integers(0, 10, batch), device=device)
        loss_of = classifying(torch, model, compiled)
        sgd = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
        return training(torch, model, sgd, loss_of, images, labels)

    return build


def resnet(widths: tuple[int, ...], blocks: int, batch: int) -> Build:
    """Basic blocks with batch norm on images of 32 x 32 (He et al., 2016), SGD with momentum."""

    def build(torch: Any, device: str, compiled: Callable[..., Any]) -> Step:
        nn, functional = torch.nn, torch.nn.functional

        def filters(fan_in: int, fan_out: int, size: int, stride: int = 1) -> Any:
            return nn.Conv2d(fan_in, fan_out, size, stride, padding=size // 2, bias=False)

        class Block(nn.Module):  # type: ignore[name-defined]
            def __init__(self, fan_in: int, fan_out: int, stride: int) -> None:
                super().__init__()
                self.first = filters(fan_in, fan_out, 3, stride)
                self.second = filters(fan_out, fan_out, 3)
                self.norm1, self.norm2 = nn.BatchNorm2d(fan_out), nn.BatchNorm2d(fan_out)
                self.shortcut = nn.Sequential()
                if stride != 1 or fan_in != fan_out:
                    one = filters(fan_in, fan_out, 1, stride)
                    self.shortcut = nn.Sequential(one, nn.BatchNorm2d(fan_out))

            def forward(self, x: Any) -> Any:
                hidden = functional.relu(self.norm1(self.first(x)))
                return functional.relu(self.norm2(self.second(hidden)) + self.shortcut(x))

        rng = np.random.default_rng(0)
        layers = [filters(3, widths[0], 3), nn.BatchNorm2d(widths[0]), nn.ReLU()]
        for fan_in, fan_out in zip((widths[0], *widths), widths, strict=False):
            layers.append(Block(fan_in, fan_out, 1 if fan_out == widths[0] else 2))
            layers += [Block(fan_out, fan_out, 1) for _ in range(blocks - 1)]
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 10)]
        model = nn.Sequential(*layers)
        seed(torch, model, rng, 0.1)
        model = model.to(device)
        images = torch.tensor(rng.standard_normal((batch, 3, 32, 32), np.float32), device=device)
        labels = torch.tensor(rng.integers(0, 10, batch), device=device)
        loss_of = classifying(torch, model, compiled)
        sgd = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
        return training(torch, model, sgd, loss_of, images, labels)

    return build


def gpt(layers: int, width: int, heads: int, length: int, batch: int, letters: int) -> Build:
    """A decoder with learned positions and norms before its blocks (GPT-2), AdamW."""

    def build(torch: Any, device: str, compiled: Callable[..., Any]) -> Step:
        nn, functional = torch.nn, torch.nn.functional

        class Block(nn.Module):  # type: ignore[name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
                self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
                self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

            def forward(self, x: Any) -> Any:
                n, t, c = x.shape
                q, k, v = self.qkv(self.norm1(x)).split(width, dim=2)
                q, k, v = (z.view(n, t, heads, c // heads).transpose(1, 2) for z in (q, k, v))
                seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
                x = x + self.out(seen.transpose(1, 2).reshape(n, t, c))
                hidden = functional.gelu(self.up(self.norm2(x)), approximate="tanh")
                return x + self.down(hidden)

        class GPT(nn.Module):  # type: ignore[name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.letter, self.place = nn.Embedding(letters, width), nn.Embedding(length, width)
                self.blocks = nn.Sequential(*[Block() for _ in range(layers)])
                self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters, bias=False)

            def forward(self, text: Any) -> Any:
                places = torch.arange(text.shape[1], device=text.device)
                x = self.letter(text) + self.place(places)
                return self.head(self.norm(self.blocks(x)))

        rng = np.random.default_rng(0)
        model = GPT()
        seed(torch, model, rng, 0.02)
        model = model.to(device)
        text = torch.tensor(rng.integers(0, letters, (batch, length + 1)), device=device)

        def loss(text: Any) -> Any:
            scores = model(text[:, :-1])
            return functional.cross_entropy(scores.reshape(-1, letters), text[:, 1:].reshape(-1))

        adamw = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, **captured(torch))
        return training(torch, model, adamw, compiled(loss), text)

    return build


def lstm(features: int, width: int, length: int, batch: int, classes: int) -> Build:
    """A recurrent layer whose last state is classified (Hochreiter and Schmidhuber, 1997), SGD."""

    def build(torch: Any, device: str, compiled: Callable[..., Any]) -> Step:
        nn = torch.nn

        class Classifier(nn.Module):  # type: ignore[name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.reader = nn.LSTM(features, width, batch_first=True)
                self.head = nn.Linear(width, classes)

            def forward(self, x: Any) -> Any:
                states, _ = self.reader(x)
                return self.head(states[:, -1])

        rng = np.random.default_rng(0)
        model = Classifier()
        seed(torch, model, rng, width**-0.5)
        model = model.to(device)
        signals = rng.standard_normal((batch, length, features), np.float32)
        labels = torch.tensor(rng.integers(0, classes, batch), device=device)
        loss_of = classifying(torch, model, compiled)
        sgd = torch.optim.SGD(model.parameters(), lr=1e-1)
        return training(torch, model, sgd, loss_of, torch.tensor(signals, device=device), labels)

    return build

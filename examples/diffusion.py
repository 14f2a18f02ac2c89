"""Draw digits by denoising noise: a small U-Net, trained on scanned handwritten digits.

The network receives a noisy image, the noise level and the digit, and predicts the
noise (Ho, Jain and Abbeel, "Denoising diffusion probabilistic models", 2020). Digits are drawn with
an average of the weights over the last steps, in 25 deterministic steps (Song, Meng and Ermon,
"Denoising diffusion implicit models", 2021). A nearest-neighbor classifier reads the results.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import training  # first: from here on Ctrl-C ends in one sentence

# isort: split
import digits
import numpy as np

import lucid_gpu as torch
from lucid_gpu import nn
from lucid_gpu.nn import functional as F
from lucid_gpu.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

WIDTH, EMBEDDING = 16, 64
BATCH, LEARNING_RATE, DECAY = 64, 4e-3, 0.98  # the last: of the average
DRAWING_STEPS, DRAWN = 25, 100


class Residual(nn.Module):
    """Two convolutions added to their input; noise level and digit scale and shift between them."""

    def __init__(self, fan_in: int, fan_out: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, fan_in), nn.Conv2d(fan_in, fan_out, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(4, fan_out), nn.Conv2d(fan_out, fan_out, 3, padding=1)
        self.condition = nn.Linear(EMBEDDING, 2 * fan_out)
        self.skip = nn.Conv2d(fan_in, fan_out, 1)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        scale, shift = self.condition(condition)[..., None, None].chunk(2, 1)
        h = self.conv1(F.silu(self.norm1(x)))
        return self.skip(x) + self.conv2(F.silu(self.norm2(h) * (1 + scale) + shift))


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.out = nn.GroupNorm(4, width), nn.Linear(width, width)
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pixels = self.norm(x).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(pixels).unsqueeze(1).chunk(3, -1)
        seen = self.out(F.scaled_dot_product_attention(q, k, v).squeeze(1))
        return x + seen.transpose(1, 2).reshape(x.shape)


class UNet(nn.Module):
    """(n, 1, 8, 8) noisy digits, (n) noise levels and (n) digits to the noise in them."""

    def __init__(self) -> None:
        super().__init__()
        self.level, self.digit = nn.Linear(16, EMBEDDING), nn.Embedding(10, EMBEDDING)
        self.first = nn.Conv2d(1, WIDTH, 3, padding=1)
        self.last = nn.Conv2d(WIDTH, 1, 3, padding=1)
        self.fine, self.again = Residual(WIDTH, WIDTH), Residual(3 * WIDTH, WIDTH)
        self.coarse, self.middle = Residual(WIDTH, 2 * WIDTH), Residual(2 * WIDTH, 2 * WIDTH)
        self.attention = Attention(2 * WIDTH)

    def forward(self, x: torch.Tensor, level: torch.Tensor, digit: torch.Tensor) -> torch.Tensor:
        waves = level[:, None] * 2.0 ** torch.arange(8, device=x.device)
        condition = self.level(torch.cat([waves.sin(), waves.cos()], 1)) + self.digit(digit)
        fine = self.fine(self.first(x), condition)
        coarse = self.attention(self.coarse(F.avg_pool2d(fine, 2), condition))
        coarse = F.interpolate(self.middle(coarse, condition), scale_factor=2.0)
        return self.last(F.silu(self.again(torch.cat([fine, coarse], 1), condition)))


class Painter(training.Run):
    unit, ticks_of = "epoch", "images"

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(args, args.epochs, ("training", "test"))
        self.data, self.test = digits.tensors(self.device)
        self.ticks = len(self.data[0])
        self.learn(UNet(), lr=LEARNING_RATE)
        self.average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
        self.parts["average"] = self.average

    def loss(self, model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        angle = torch.rand(len(images), device=self.device) * (math.pi / 2)
        noise = torch.randn(images.shape, device=self.device)
        clear, noisy = angle.cos().view(-1, 1, 1, 1), angle.sin().view(-1, 1, 1, 1)
        return F.mse_loss(model(clear * images + noisy * noise, angle, labels), noise)

    def advance(self, bar: Any) -> dict[str, float]:
        total = 0.0
        for chosen in self.batches(BATCH, bar):
            loss = self.loss(self.model, *(part[chosen] for part in self.data))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.average.update_parameters(self.model)
            total += loss.item() * len(chosen)
            bar.set_postfix_str(f"error {loss.item():.3f}", False)
        self.schedule.step()
        self.done += 1
        with torch.no_grad():
            test = self.loss(self.average, *self.test).item()
        return {"training": total / self.ticks, "test": test}

    @torch.no_grad()
    def drawn(self) -> tuple[Any, Any]:
        """DRAWN digits made of noise, and their labels."""
        torch.manual_seed(self.args.seed)
        labels = torch.arange(DRAWN, device=self.device) % 10
        x = torch.randn(DRAWN, 1, 8, 8, device=self.device)
        angles = np.linspace(math.pi / 2, 0, DRAWING_STEPS + 1)
        for angle, following in zip(angles, angles[1:]):
            noise = self.average(x, angle * torch.ones_like(x[:, 0, 0, 0]), labels)
            clear = ((x - math.sin(angle) * noise) / max(math.cos(angle), 0.02)).clamp(-1, 1)
            x = math.cos(following) * clear + math.sin(following) * noise
        return training.on_host(x[:, 0]), training.on_host(labels)

    def reached(self) -> tuple[str, float]:
        from sklearn.neighbors import KNeighborsClassifier

        images, labels = (training.on_host(part) for part in self.data)
        reader = KNeighborsClassifier(1).fit(images.reshape(-1, 64), labels)
        drawn, wanted = self.drawn()
        right = float((reader.predict(drawn.reshape(-1, 64)) == wanted).mean())
        return "share of drawn digits read as intended", right

    def draw(self) -> None:
        figure = training.new_figure(9, 4)
        left, right = figure.subplots(1, 2)
        training.plot_curves(left, self, "squared error of the noise", training.BOTH)
        training.show_grid(right, self.drawn()[0], 10, "drawn digits")
        training.write_picture(figure, self.args.out / "digits.png")


flags = training.parser("Draw digits by denoising noise.", "runs/diffusion", epochs=30)

if __name__ == "__main__":
    training.main(flags, Painter)

"""A WaveNet: gated causal convolutions of growing dilation, weight norm, mu-law, generation."""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import weight_norm

CLASSES = 32


def mu_law_encode(x, channels=CLASSES):
    mu = torch.tensor(channels - 1.0)
    y = torch.sign(x) * torch.log1p(mu * torch.abs(x)) / torch.log1p(mu)
    return ((y + 1) / 2 * mu + 0.5).to(torch.int64)


class CausalConv1d(nn.Conv1d):
    def __init__(self, in_channels, out_channels, kernel_size, dilation=1, bias=True):
        self.left = (kernel_size - 1) * dilation
        super().__init__(
            in_channels, out_channels, kernel_size, padding=self.left, dilation=dilation, bias=bias
        )

    def forward(self, input):
        result = super().forward(input)
        if self.left != 0:
            return result[:, :, : -self.left]
        return result


class ResidualBlock(nn.Module):
    def __init__(self, channels, dilation, condition):
        super().__init__()
        self.dilated = weight_norm(CausalConv1d(channels, 2 * channels, 2, dilation))
        self.conditional = nn.Conv1d(condition, 2 * channels, 1, bias=False)
        self.output = nn.Conv1d(channels, 2 * channels, 1)

    def forward(self, x, c):
        y = self.dilated(x) + self.conditional(c)
        gate, filter = torch.chunk(y, 2, dim=1)
        y = torch.sigmoid(gate) * torch.tanh(filter)
        residual, skip = self.output(y).chunk(2, dim=1)
        return (x + residual) / np.sqrt(2.0), skip


class WaveNet(nn.Module):
    def __init__(self, channels=8, layers=4, cycle=3, condition=2):
        super().__init__()
        self.first = CausalConv1d(CLASSES, channels, 2)
        self.upsample = nn.ConvTranspose2d(1, 1, (3, 8), padding=(1, 2), stride=(1, 4))
        self.layers = nn.ModuleList(
            ResidualBlock(channels, 2 ** (i % cycle), condition) for i in range(layers)
        )
        self.last = nn.Sequential(
            nn.ReLU(inplace=True),
            weight_norm(nn.Conv1d(channels, channels, 1)),
            nn.PReLU(),
            nn.Conv1d(channels, CLASSES, 1),
        )

    def forward(self, codes, c):
        x = F.one_hot(codes, CLASSES).transpose(1, 2).float()
        c = F.leaky_relu(self.upsample(c.unsqueeze(1)), 0.4).squeeze(1)
        x = self.first(x)
        skips = 0
        for layer in self.layers:
            x, skip = layer(x, c[:, :, : x.shape[2]])
            skips = skips + skip
        return self.last(skips)


def build_model():
    return WaveNet()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    device, rng = args.device, np.random.default_rng(0)
    model = build_model().to(device)
    if args.init:
        model.load_state_dict(torch.load(args.init))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=args.steps)
    losses = []
    for _ in range(args.steps):
        pitch, loud = rng.uniform(0.2, 0.9, (3, 1)), rng.uniform(0.3, 1, (3, 1))
        wave = loud * np.sin(pitch * np.arange(33))
        codes = mu_law_encode(torch.tensor(wave, dtype=torch.float32)).to(device)
        c = torch.tensor(np.stack([pitch, loud], 1), dtype=torch.float32).expand(-1, -1, 8)
        logits = model(codes[:, :-1], c.to(device))
        loss = F.cross_entropy(logits, codes[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        losses += [loss.item(), norm.item()]
    model.eval()
    for module in model.modules():
        if isinstance(module, nn.Conv1d) and hasattr(module, "weight_g"):
            nn.utils.remove_weight_norm(module)
    with torch.no_grad():
        made = codes[:, :4]
        for _ in range(6):
            probs = F.softmax(model(made, c.to(device))[:, :, -1], dim=1)
            made = torch.cat([made, probs.argmax(1, keepdim=True)], dim=1)
    return [*losses, probs.max(1).values.mean().item()]


if __name__ == "__main__":
    print(main())

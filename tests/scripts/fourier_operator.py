"""A Fourier neural operator: complex weights multiply the low frequencies of a field."""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class SpectralConv2d(nn.Module):
    def __init__(self, in_channels, out_channels, modes1, modes2):
        super().__init__()
        self.out_channels, self.modes1, self.modes2 = out_channels, modes1, modes2
        scale = 1 / (in_channels * out_channels)
        shape = in_channels, out_channels, modes1, modes2
        self.weights1 = nn.Parameter(scale * torch.rand(*shape, dtype=torch.cfloat))
        self.weights2 = nn.Parameter(scale * torch.rand(*shape, dtype=torch.cfloat))

    def compl_mul2d(self, input, weights):
        return torch.einsum("bixy,ioxy->boxy", input, weights)

    def forward(self, x):
        m1, m2 = self.modes1, self.modes2
        x_ft = torch.fft.rfft2(x)
        out_ft = torch.zeros(
            x.shape[0],
            self.out_channels,
            x.size(-2),
            x.size(-1) // 2 + 1,
            dtype=torch.cfloat,
            device=x.device,
        )
        out_ft[:, :, :m1, :m2] = self.compl_mul2d(x_ft[:, :, :m1, :m2], self.weights1)
        out_ft[:, :, -m1:, :m2] = self.compl_mul2d(x_ft[:, :, -m1:, :m2], self.weights2)
        return torch.fft.irfft2(out_ft, s=(x.size(-2), x.size(-1)))


class SpectralConv1d(nn.Module):
    """With weights kept as real pairs, and phases."""

    def __init__(self, channels, modes):
        super().__init__()
        self.modes = modes
        self.weights = nn.Parameter(torch.randn(channels, channels, modes, 2) / channels)
        self.phase = nn.Parameter(torch.zeros(modes))

    def forward(self, x):
        x_ft = torch.fft.rfft(x, norm="ortho")
        w = torch.view_as_complex(self.weights) * torch.polar(
            torch.ones_like(self.phase), self.phase
        )
        low = torch.einsum("bix,iox->box", x_ft[..., : self.modes], w)
        out = torch.cat([low, torch.zeros_like(x_ft[..., self.modes :])], dim=-1)
        return torch.fft.irfft(out, n=x.size(-1), norm="ortho")


class FNO2d(nn.Module):
    def __init__(self, modes=3, width=6):
        super().__init__()
        self.p = nn.Linear(3, width)
        self.conv0 = SpectralConv2d(width, width, modes, modes)
        self.conv1 = SpectralConv2d(width, width, modes, modes)
        self.w0 = nn.Conv2d(width, width, 1)
        self.w1 = nn.Conv2d(width, width, 1)
        self.along = SpectralConv1d(width, modes)
        self.norm = nn.InstanceNorm2d(width)
        self.q = nn.Conv2d(width, 1, 1)

    def grid(self, shape, device):
        b, nx, ny = shape[0], shape[1], shape[2]
        gx = torch.tensor(np.linspace(0, 1, nx), dtype=torch.float).reshape(1, nx, 1, 1)
        gy = torch.tensor(np.linspace(0, 1, ny), dtype=torch.float).reshape(1, 1, ny, 1)
        return torch.cat((gx.repeat([b, 1, ny, 1]), gy.repeat([b, nx, 1, 1])), dim=-1).to(device)

    def forward(self, x):
        x = torch.cat((x, self.grid(x.shape, x.device)), dim=-1)
        x = F.pad(self.p(x).permute(0, 3, 1, 2), [0, 2, 0, 2])
        x = F.gelu(self.norm(self.conv0(self.norm(x))) + self.w0(x))
        x = F.gelu(self.conv1(x) + self.w1(x))
        b, c, nx, ny = x.shape
        rows = self.along(x.permute(0, 2, 1, 3).reshape(b * nx, c, ny))
        x = x + rows.view(b, nx, c, ny).permute(0, 2, 1, 3)
        return self.q(x[..., :-2, :-2]).permute(0, 2, 3, 1)


def relative(x, y):
    difference = torch.norm(x.reshape(len(x), -1) - y.reshape(len(y), -1), 2, 1)
    return torch.mean(difference / torch.norm(y.reshape(len(y), -1), 2, 1))


def build_model():
    return FNO2d()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    rng = np.random.default_rng(0)
    model = build_model().to(args.device)
    if args.init:
        state = torch.load(args.init, map_location=args.device)
        model.load_state_dict(state)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)
    k = np.fft.fftfreq(10)[:, None] ** 2 + np.fft.rfftfreq(10)[None] ** 2
    losses = []
    for _ in range(args.steps):
        a = np.fft.irfft2(np.fft.rfft2(rng.standard_normal((4, 10, 10))) / (1 + 40 * k), s=(10, 10))
        u = np.fft.irfft2(np.fft.rfft2(a) * np.exp(-8 * k), s=(10, 10))
        x = torch.tensor(a, dtype=torch.float32, device=args.device).unsqueeze(-1)
        y = torch.tensor(u, dtype=torch.float32, device=args.device)
        optimizer.zero_grad()
        out = model(x).squeeze(-1)
        loss = relative(out, y)
        spectrum = torch.fft.fft2(out - y).abs().pow(2).mean()
        (loss + 1e-2 * spectrum).backward()
        optimizer.step()
        scheduler.step()
        losses += [loss.item(), spectrum.item()]
    count = sum(p.numel() * (2 if p.is_complex() else 1) for p in model.parameters())
    return [*losses, count]


if __name__ == "__main__":
    print(main())

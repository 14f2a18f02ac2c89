"""A denoising diffusion model: a U-Net with group norm, SiLU, attention and time embeddings."""

import argparse
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits


def timestep_embedding(timesteps, dim, max_period=10000):
    half = dim // 2
    freqs = torch.exp(-math.log(max_period) * torch.arange(half, dtype=torch.float32) / half)
    args = timesteps[:, None].float() * freqs[None].to(timesteps.device)
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)


def zero_module(module):
    for p in module.parameters():
        p.detach().zero_()
    return module


class ResBlock(nn.Module):
    def __init__(self, channels, emb, out):
        super().__init__()
        self.in_layers = nn.Sequential(
            nn.GroupNorm(4, channels), nn.SiLU(), nn.Conv2d(channels, out, 3, padding=1)
        )
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(emb, 2 * out))
        self.out_norm = nn.GroupNorm(4, out)
        self.out_rest = nn.Sequential(nn.SiLU(), nn.Dropout(p=0.0), nn.Conv2d(out, out, 3, 1, 1))
        self.skip = nn.Identity() if channels == out else nn.Conv2d(channels, out, 1)

    def forward(self, x, emb):
        h = self.in_layers(x)
        scale, shift = self.emb_layers(emb)[..., None, None].chunk(2, dim=1)
        h = self.out_norm(h) * (1 + scale) + shift
        return self.skip(x) + self.out_rest(h)


class AttentionBlock(nn.Module):
    def __init__(self, channels, heads=2):
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(4, channels)
        self.qkv = nn.Conv1d(channels, 3 * channels, 1)
        self.proj = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        b, c, *spatial = x.shape
        x = x.reshape(b, c, -1)
        qkv = self.qkv(self.norm(x)).reshape(b * self.heads, -1, x.shape[2])
        ch = qkv.shape[1] // 3
        q, k, v = qkv.split(ch, dim=1)
        scale = 1 / math.sqrt(math.sqrt(ch))
        weight = torch.einsum("bct,bcs->bts", q * scale, k * scale)
        weight = torch.softmax(weight.float(), dim=-1).type(weight.dtype)
        h = torch.einsum("bts,bcs->bct", weight, v).reshape(b, -1, x.shape[-1])
        return (x + self.proj(h)).reshape(b, c, *spatial)


class UNet(nn.Module):
    def __init__(self, ch=8, emb=16):
        super().__init__()
        self.ch = ch
        self.time_embed = nn.Sequential(nn.Linear(ch, emb), nn.SiLU(), nn.Linear(emb, emb))
        self.first = nn.Conv2d(1, ch, 3, padding=1)
        self.down1 = ResBlock(ch, emb, ch)
        self.downsample = nn.Conv2d(ch, ch, 3, stride=2, padding=1)
        self.down2 = ResBlock(ch, emb, 2 * ch)
        self.attend = AttentionBlock(2 * ch)
        self.middle = ResBlock(2 * ch, emb, 2 * ch)
        self.up2 = ResBlock(4 * ch, emb, ch)
        self.upconv = nn.Conv2d(ch, ch, 3, padding=1)
        self.up1 = ResBlock(2 * ch, emb, ch)
        self.out = nn.Sequential(nn.GroupNorm(4, ch), nn.SiLU(), nn.Conv2d(ch, 1, 3, padding=1))

    def forward(self, x, timesteps):
        emb = self.time_embed(timestep_embedding(timesteps, self.ch))
        h1 = self.down1(self.first(x), emb)
        h2 = self.attend(self.down2(self.downsample(h1), emb))
        h = self.middle(h2, emb)
        h = self.up2(torch.cat([h, h2], dim=1), emb)
        h = self.upconv(F.interpolate(h, scale_factor=2, mode="nearest"))
        return self.out(self.up1(torch.cat([h, h1], dim=1), emb))


def build_model():
    return UNet()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    device, rng = torch.device(args.device), np.random.default_rng(0)
    images = torch.tensor(load_digits().images / 8 - 1, dtype=torch.float32)[:, None]
    betas = torch.linspace(1e-4, 0.02, 100, dtype=torch.float64)
    alphas_cumprod = torch.cumprod(1.0 - betas, dim=0).float().to(device)
    model = build_model().to(device)
    if args.init:
        model.load_state_dict(torch.load(args.init))
    zero_module(model.out[-1])
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
    losses = []
    for step in range(args.steps):
        x0 = images[step * 8 : step * 8 + 8].to(device)
        noise = torch.from_numpy(rng.standard_normal(x0.shape, dtype=np.float32)).to(device)
        t = torch.from_numpy(rng.integers(0, 100, 8)).to(device)
        a = alphas_cumprod.gather(0, t).view(-1, 1, 1, 1)
        pred = model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t)
        loss = F.mse_loss(pred, noise, reduction="none").mean(dim=[1, 2, 3]).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        x = torch.from_numpy(rng.standard_normal((2, 1, 8, 8), dtype=np.float32)).to(device)
        for i in reversed(range(97, 100)):  # the first steps of sampling
            t = torch.full((2,), i, dtype=torch.long, device=device)
            eps = model(x, t)
            beta, a = float(betas[i]), alphas_cumprod[i]
            x = (x - beta / torch.sqrt(1 - a) * eps) / math.sqrt(1 - beta)
    return [*losses, x.abs().mean().item(), x.std().item()]


if __name__ == "__main__":
    print(main())

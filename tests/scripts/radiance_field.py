"""A radiance field: positions as waves, colors along rays, more samples where it counts."""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Waves:
    """A position and its sines and cosines at doubling frequencies."""

    def __init__(self, octaves, device):
        self.frequencies = 2.0 ** torch.linspace(0.0, octaves - 1, steps=octaves, device=device)

    def __call__(self, x):
        turns = x[..., None, :] * self.frequencies[:, None]
        return torch.cat([x, turns.sin().flatten(-2), torch.cos(turns).flatten(start_dim=-2)], -1)


class Field(nn.Module):
    def __init__(self, position=27, view=15, width=32, skips=(1,)):
        super().__init__()
        self.sizes, self.skips = [position, view], skips
        wide = [width + position if k in skips else width for k in range(3)]
        self.layers = nn.ModuleList([nn.Linear(n, width) for n in [position, *wide]])
        self.density, self.feature = nn.Linear(width, 1), nn.Linear(width, width)
        self.view = nn.Sequential(nn.Linear(width + view, 16), nn.ReLU(), nn.Linear(16, 3))
        self.grid = nn.Parameter(0.1 * torch.randn(1, 4, 6, 6))
        self.mixed = nn.Linear(4, 1)

    def forward(self, x):
        position, view = torch.split(x, self.sizes, dim=-1)
        h = position
        for k, layer in enumerate(self.layers):
            h = F.relu(layer(h))
            if k in self.skips:
                h = torch.cat([position, h], -1)
        color = self.view(torch.cat([self.feature(h), view], -1))
        return torch.cat([color, self.density(h)], dim=-1)


def build_model():
    return Field()


def rays(size, focal, device):
    at = torch.linspace(0, size - 1, size, device=device)
    i, j = (g.t() for g in torch.meshgrid(at, at, indexing="ij"))
    ahead = [(i - size / 2) / focal, -(j - size / 2) / focal, -torch.ones_like(i)]
    return torch.stack(ahead, -1).reshape(-1, 3)


def rendered(raw, depth, direction):
    step = depth[..., 1:] - depth[..., :-1]
    far = torch.tensor([1e10], device=step.device).expand(step[..., :1].shape)
    step = torch.cat([step, far], -1) * torch.norm(direction[..., None, :], dim=-1)
    alpha = 1.0 - torch.exp(-F.relu(raw[..., 3]) * step)
    clear = torch.cat([torch.ones_like(alpha[:, :1]), 1.0 - alpha + 1e-10], -1)
    weight = alpha * torch.cumprod(clear, -1)[:, :-1]
    color = torch.sum(weight[..., None] * torch.sigmoid(raw[..., :3]), -2)
    return color + (1.0 - weight.sum(-1, keepdim=True)), weight


def where_it_counts(edges, weight, n):
    """``n`` depths a ray at equal shares of its weight."""
    share = (weight + 1e-5) / (weight + 1e-5).sum(-1, keepdim=True)
    total = torch.cumsum(share, -1)
    total = torch.cat([torch.zeros_like(total[..., :1]), total], -1)
    u = torch.linspace(0.01, 0.99, steps=n, device=edges.device)
    u = u.expand([*total.shape[:-1], n]).contiguous()
    above = torch.searchsorted(total, u, right=True).clamp(max=total.shape[-1] - 1)
    below = (above - 1).clamp(min=0)
    low, high = torch.gather(total, 1, below), total.gather(1, above)
    width = torch.where(high - low < 1e-5, torch.ones_like(low), high - low)
    start, end = torch.gather(edges, 1, below), torch.gather(edges, 1, above)
    return start + (u - low) / width * (end - start)


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    device = torch.device(args.device)
    rng = np.random.default_rng(0)
    model = build_model().to(device)
    if args.init:
        model.load_state_dict(torch.load(args.init, map_location=device))
    optimizer = torch.optim.Adam(params=model.parameters(), lr=5e-3, eps=1e-5)
    of_position, of_view = Waves(4, device), Waves(2, device)
    direction = rays(6, 6.0, device)
    origin = torch.tensor([0.0, 0.0, 4.0], device=device).expand_as(direction)
    wanted = torch.from_numpy(rng.random((len(direction), 3))).float().to(device)

    def looked_up(depth):
        points = origin[..., None, :] + direction[..., None, :] * depth[..., :, None]
        view = F.normalize(direction, dim=-1)[:, None].expand(points.shape)
        x = torch.cat([of_position(points.reshape(-1, 3)), of_view(view.reshape(-1, 3))], -1)
        parts = [checkpoint(model, part, use_reentrant=False) for part in x.split(200)]
        raw = torch.reshape(torch.cat(parts, 0), [*points.shape[:-1], 4])
        plane = (points[..., :2] / 3).reshape(1, -1, 1, 2)
        read = F.grid_sample(model.grid, plane, align_corners=True, padding_mode="border")
        return raw + model.mixed(read.flatten(2).squeeze(0).t()).view(*points.shape[:-1], 1)

    losses = []
    for step in range(args.steps):
        depth = torch.linspace(2.0, 6.0, 10, device=device).expand(len(direction), 10)
        shaken = torch.from_numpy(rng.random((len(direction), 10), dtype=np.float32)).to(device)
        depth = depth + 0.4 * shaken
        coarse, weight = rendered(looked_up(depth), depth, direction)
        middle = 0.5 * (depth[..., 1:] + depth[..., :-1])
        more = where_it_counts(middle, weight[..., 1:-1].detach(), 6)
        depth, _ = torch.sort(torch.cat([depth, more], -1), -1)
        fine, _ = rendered(looked_up(depth), depth, direction)
        loss = F.mse_loss(coarse, wanted) + torch.mean((fine - wanted) ** 2)
        rough = model.grid.diff(dim=-1).abs().mean()
        optimizer.zero_grad()
        (loss + 0.01 * rough).backward()
        optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] = 5e-3 * 0.1 ** (step / 50)
        losses += [loss.item(), rough.item()]
    print(f"loss {losses[-2]:.4f}, {-10.0 * np.log10(losses[-2]):.2f} dB")
    return losses


if __name__ == "__main__":
    main()

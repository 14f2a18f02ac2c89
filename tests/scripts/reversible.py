"""Reversible blocks: a Function that keeps no activations and computes them again backwards."""

import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.autograd.function import Function
from torch.utils.checkpoint import get_device_states, set_device_states


class Deterministic(nn.Module):
    """Runs a layer again with the random state it had, so that dropout drops the same."""

    def __init__(self, net):
        super().__init__()
        self.net = net
        self.cpu_state = None
        self.gpu_devices, self.gpu_states = None, None

    def record_rng(self, *args):
        self.cpu_state = torch.get_rng_state()
        self.gpu_devices, self.gpu_states = get_device_states(*args)

    def forward(self, *args, record=False, restore=False, **kwargs):
        if record:
            self.record_rng(*args)
        if not restore:
            return self.net(*args, **kwargs)
        with torch.random.fork_rng(devices=self.gpu_devices, enabled=True):
            torch.set_rng_state(self.cpu_state)
            set_device_states(self.gpu_devices, self.gpu_states)
            return self.net(*args, **kwargs)


class ReversibleBlock(nn.Module):
    def __init__(self, f, g):
        super().__init__()
        self.f, self.g = Deterministic(f), Deterministic(g)

    def forward(self, x, record=True):
        x1, x2 = torch.chunk(x, 2, dim=2)
        with torch.no_grad():
            y1 = x1 + self.f(x2, record=record)
            y2 = x2 + self.g(y1, record=record)
        return torch.cat([y1, y2], dim=2)

    def backward_pass(self, y, dy):
        y1, y2 = torch.chunk(y, 2, dim=2)
        dy1, dy2 = torch.chunk(dy, 2, dim=2)
        with torch.enable_grad():
            y1.requires_grad = True
            gy1 = self.g(y1, restore=True)
            torch.autograd.backward(gy1, dy2)
        with torch.no_grad():
            x2 = y2 - gy1
            del y2, gy1
            dx1 = dy1 + y1.grad
            del dy1
            y1.grad = None
        with torch.enable_grad():
            x2.requires_grad = True
            fx2 = self.f(x2, restore=True)
            torch.autograd.backward(fx2, dx1, retain_graph=True)
        with torch.no_grad():
            x1 = y1 - fx2
            del y1, fx2
            dx2 = dy2 + x2.grad
            x2.grad = None
            x = torch.cat([x1, x2.detach()], dim=2)
            dx = torch.cat([dx1, dx2], dim=2)
        return x, dx


class _ReversibleFunction(Function):
    @staticmethod
    def forward(ctx, x, blocks):
        for block in blocks:
            x = block(x)
        ctx.y = x.detach()
        ctx.blocks = blocks
        return x

    @staticmethod
    def backward(ctx, dy):
        y = ctx.y
        for block in ctx.blocks[::-1]:
            y, dy = block.backward_pass(y, dy)
        return dy, None


class FeedForward(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.net = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        return self.net(self.norm(x))


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attend = nn.MultiheadAttention(dim, 2, bias=False, batch_first=True)

    def forward(self, x):
        x = self.norm(x)
        return self.attend(x, x, x, need_weights=False)[0]


class Model(nn.Module):
    def __init__(self, dim=8, depth=3):
        super().__init__()
        self.embed = nn.Linear(4, dim)
        self.blocks = nn.ModuleList(
            [ReversibleBlock(Attention(dim), FeedForward(dim)) for _ in range(depth)]
        )
        self.head = nn.Linear(dim, 4)

    def forward(self, x):
        x = self.embed(x)
        x = torch.cat([x, x], dim=-1)
        out = _ReversibleFunction.apply(x, self.blocks)
        return self.head(torch.stack(out.chunk(2, dim=-1)).mean(dim=0))


def build_model():
    return Model()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    rng = np.random.default_rng(0)
    model = build_model().to(args.device)
    if args.init:
        model.load_state_dict(torch.load(args.init, map_location=args.device))
    optimizer = torch.optim.NAdam(model.parameters(), lr=2e-3)
    losses = []
    for _ in range(args.steps):
        x = torch.from_numpy(rng.standard_normal((4, 7, 4), dtype=np.float32)).to(args.device)
        loss = (model(x) - x.flip(1).cumsum(1).tanh()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    print(main())

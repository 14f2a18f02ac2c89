"""A normalizing flow of two moons: masked couplings, a LU 1x1 convolution, act norm."""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import make_moons
from torch import distributions as D


class ActNorm(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.loc = nn.Parameter(torch.zeros(1, features))
        self.log_scale = nn.Parameter(torch.zeros(1, features))
        self.register_buffer("initialized", torch.tensor(0, dtype=torch.uint8))

    def forward(self, x):
        if self.initialized.item() == 0:
            with torch.no_grad():
                self.loc.data.copy_(-x.mean(0, keepdim=True))
                self.log_scale.data.copy_(-torch.log(x.std(0, keepdim=True) + 1e-6))
                self.initialized.fill_(1)
        return (x + self.loc) * self.log_scale.exp(), self.log_scale.sum().expand(len(x))

    def inverse(self, z):
        return z * torch.exp(-self.log_scale) - self.loc


class LULinear(nn.Module):
    def __init__(self, features):
        super().__init__()
        w, _ = torch.linalg.qr(torch.randn(features, features))
        p, lower, upper = torch.linalg.lu(w)
        s = torch.diag(upper)
        self.register_buffer("p", p)
        self.register_buffer("sign_s", torch.sign(s))
        self.register_buffer("l_mask", torch.tril(torch.ones(features, features), -1))
        self.register_buffer("eye", torch.eye(features))
        self.lower = nn.Parameter(lower)
        self.log_s = nn.Parameter(torch.log(torch.abs(s)))
        self.upper = nn.Parameter(torch.triu(upper, 1))

    def weight(self):
        lower = self.lower * self.l_mask + self.eye
        upper = self.upper * self.l_mask.t() + torch.diag(self.sign_s * torch.exp(self.log_s))
        return self.p @ lower @ upper

    def forward(self, x):
        return F.linear(x, self.weight()), self.log_s.sum().repeat(x.shape[0])

    def inverse(self, z):
        return torch.linalg.solve(self.weight(), z.t()).t()


class Coupling(nn.Module):
    def __init__(self, features, mask):
        super().__init__()
        self.register_buffer("mask", mask)
        self.s = nn.Sequential(nn.Linear(features, 16), nn.LeakyReLU(0.01), nn.Linear(16, features))
        self.t = nn.Sequential(nn.Linear(features, 16), nn.LeakyReLU(0.01), nn.Linear(16, features))
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, x):
        kept = x * self.mask
        s = torch.tanh(self.s(kept)) * self.scale * (1 - self.mask)
        return kept + (1 - self.mask) * (x * s.exp() + self.t(kept)), s.sum(dim=1)

    def inverse(self, z):
        kept = z * self.mask
        s = torch.tanh(self.s(kept)) * self.scale * (1 - self.mask)
        return kept + (1 - self.mask) * (z - self.t(kept)) * torch.exp(-s)


class Flow(nn.Module):
    def __init__(self, features=2, depth=3):
        super().__init__()
        mask = torch.arange(features).fmod(2).float()
        layers = []
        for i in range(depth):
            mask_i = mask if i % 2 == 0 else 1 - mask
            layers += [ActNorm(features), LULinear(features), Coupling(features, mask_i)]
        self.layers = nn.ModuleList(layers)
        self.register_buffer("base_loc", torch.zeros(features))
        self.register_buffer("base_scale", torch.ones(features))

    @property
    def base(self):
        return D.Independent(D.Normal(self.base_loc, self.base_scale), 1)

    def log_prob(self, x):
        log_det = torch.zeros(x.shape[0], device=x.device)
        for layer in self.layers:
            x, ld = layer(x)
            log_det += ld
        return self.base.log_prob(x) + log_det

    def inverse(self, z):
        for layer in reversed(self.layers):
            z = layer.inverse(z)
        return z


def build_model():
    return Flow()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    device = args.device
    model = build_model().to(device)
    if args.init:
        model.load_state_dict(torch.load(args.init, map_location=device))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-5)
    data, _ = make_moons(n_samples=64 * args.steps, noise=0.05, random_state=0)
    losses = []
    for batch in torch.from_numpy(data).float().to(device).split(64):
        loss = -model.log_prob(batch).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().cpu().item())
    with torch.no_grad():
        z = torch.from_numpy(np.random.default_rng(0).standard_normal((32, 2), np.float32))
        x = model.inverse(z.to(device))
        back = x
        for layer in model.layers:
            back, _ = layer(back)
        assert torch.allclose(back.cpu(), z, atol=1e-4)
        losses += [x.mean().item(), x.norm(dim=1).mean().item()]
    return losses


if __name__ == "__main__":
    print(main())

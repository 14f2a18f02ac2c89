"""A mixture density network: several Gaussians for each input, by hand and by distributions."""

import argparse
import math

import numpy as np
import torch
import torch.nn as nn
from torch import distributions as D

ONEOVERSQRT2PI = 1.0 / math.sqrt(2 * math.pi)


class MDN(nn.Module):
    def __init__(self, in_features=1, out_features=2, num_gaussians=4):
        super().__init__()
        self.out_features, self.num_gaussians = out_features, num_gaussians
        self.body = nn.Sequential(nn.Linear(in_features, 16), nn.Hardswish(), nn.Linear(16, 16))
        self.pi = nn.Sequential(nn.Linear(16, num_gaussians), nn.Softmax(dim=1))
        self.sigma = nn.Linear(16, out_features * num_gaussians)
        self.mu = nn.Linear(16, out_features * num_gaussians)
        self.nu = nn.Parameter(torch.tensor(2.0))
        self.corr = nn.Linear(16, num_gaussians)

    def forward(self, x):
        h = torch.tanh(self.body(x))
        shape = -1, self.num_gaussians, self.out_features
        sigma = torch.nn.functional.elu(self.sigma(h)) + 1 + 1e-3
        return self.pi(h), sigma.view(*shape), self.mu(h).view(*shape), torch.tanh(self.corr(h))


def gaussian_probability(sigma, mu, target):
    target = target.unsqueeze(1).expand_as(sigma)
    ret = ONEOVERSQRT2PI * torch.exp(-0.5 * ((target - mu) / sigma) ** 2) / sigma
    return torch.prod(ret, 2)


def mdn_loss(pi, sigma, mu, target):
    prob = pi * gaussian_probability(sigma, mu, target)
    return torch.mean(-torch.log(torch.sum(prob, dim=1) + 1e-6))


def build_model():
    return MDN()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    device, rng = args.device, np.random.default_rng(0)
    angle = rng.uniform(-1, 1, (80, 1))
    both = np.hstack([np.sin(5 * angle), rng.choice([-1, 1], (80, 1)) * angle])
    x = torch.tensor(angle, dtype=torch.float32, device=device)
    y = torch.tensor(both + rng.normal(0, 0.1, both.shape), dtype=torch.float32, device=device)
    losses = []

    def by_hand(model):
        pi, sigma, mu, _ = model(x)
        return mdn_loss(pi, sigma, mu, y)

    def by_mixture(model):
        pi, sigma, mu, _ = model(x)
        parts = D.Independent(D.Normal(mu, sigma), 1)
        return -D.MixtureSameFamily(D.Categorical(probs=pi), parts).log_prob(y).mean()

    def correlated(model):
        pi, sigma, mu, rho = model(x)
        rows = torch.stack([sigma[..., 0], torch.zeros_like(rho)], -1)
        low = torch.stack([rho * sigma[..., 1], (1 - rho**2 + 1e-4).sqrt() * sigma[..., 1]], -1)
        parts = D.MultivariateNormal(mu, scale_tril=torch.stack([rows, low], -2))
        log_prob = parts.log_prob(y.unsqueeze(1)) + pi.log()
        return -torch.logsumexp(log_prob, dim=-1).mean()

    def heavy(model):
        pi, sigma, mu, _ = model(x)
        parts = D.StudentT(nn.functional.softplus(model.nu) + 1, mu, sigma)
        weight = D.Dirichlet(torch.full((4,), 1.5, device=device)).log_prob(pi).mean()
        log_prob = parts.log_prob(y[:, None]).sum(-1) + D.Categorical(pi).logits
        return -log_prob.logsumexp(1).mean() - 1e-2 * weight

    for nll in (by_hand, by_mixture, correlated, heavy):
        model = build_model().to(device)
        if args.init:
            model.load_state_dict(torch.load(args.init))
        optimizer = torch.optim.RAdam(model.parameters(), lr=5e-3)
        for _ in range(args.steps):
            optimizer.zero_grad()
            loss = nll(model)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    with torch.no_grad():
        pi, sigma, mu, _ = model(x)
        mixture = D.MixtureSameFamily(D.Categorical(pi), D.Independent(D.Normal(mu, sigma), 1))
        losses += [mixture.mean.norm().item(), mixture.variance.mean().item()]
    return losses


if __name__ == "__main__":
    print(main())

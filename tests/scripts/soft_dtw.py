"""Series aligned by a soft minimum over paths: cell by cell, and by a Function of its own."""

import argparse

import numpy as np
import torch
from torch import nn


def soft_dtw_by_cells(D, gamma):
    """The recursion as autograd sees it, a tensor for each cell."""
    B, N, M = D.shape
    inf = torch.full((B,), 1e6, device=D.device, dtype=D.dtype)
    R = [[inf] * (M + 1) for _ in range(N + 1)]
    R[0][0] = torch.zeros_like(inf)
    for i in range(1, N + 1):
        for j in range(1, M + 1):
            three = torch.stack([R[i - 1][j - 1], R[i - 1][j], R[i][j - 1]], dim=-1)
            R[i][j] = D[:, i - 1, j - 1] - gamma * torch.logsumexp(-three / gamma, dim=-1)
    return R[N][M]


class SoftDTW(torch.autograd.Function):
    """The recursion in a matrix that is written in place, and its derivative."""

    @staticmethod
    def forward(ctx, D, gamma):
        B, N, M = D.shape
        gamma = torch.tensor([gamma], dtype=D.dtype, device=D.device)
        R = D.new_full((B, N + 2, M + 2), float("inf"))
        R[:, 0, 0] = 0
        for j in range(1, M + 1):
            for i in range(1, N + 1):
                r = torch.stack((R[:, i - 1, j - 1], R[:, i - 1, j], R[:, i, j - 1]), 1)
                r = -r / gamma
                rmax = torch.max(r, dim=1)[0]
                rsum = torch.exp(r - rmax[:, None]).sum(1)
                R[:, i, j] = D[:, i - 1, j - 1] - gamma * (torch.log(rsum) + rmax)
        ctx.save_for_backward(D, R, gamma)
        return R[:, -2, -2]

    @staticmethod
    def backward(ctx, grad_output):
        D, R, gamma = ctx.saved_tensors
        B, N, M = D.shape
        D_ = torch.zeros((B, N + 2, M + 2), dtype=D.dtype, device=D.device)
        E = torch.zeros_like(D_)
        D_[:, 1 : N + 1, 1 : M + 1] = D
        E[:, -1, -1] = 1
        R = R.clone()
        R[:, :, -1] = R[:, -1, :] = -float("inf")
        R[:, -1, -1] = R[:, -2, -2]
        for j in range(M, 0, -1):
            for i in range(N, 0, -1):
                a = torch.exp((R[:, i + 1, j] - R[:, i, j] - D_[:, i + 1, j]) / gamma)
                b = torch.exp((R[:, i, j + 1] - R[:, i, j] - D_[:, i, j + 1]) / gamma)
                c = torch.exp((R[:, i + 1, j + 1] - R[:, i, j] - D_[:, i + 1, j + 1]) / gamma)
                E[:, i, j] = E[:, i + 1, j] * a + E[:, i, j + 1] * b + E[:, i + 1, j + 1] * c
        E = E[:, 1 : N + 1, 1 : M + 1]
        return grad_output.view(-1, 1, 1).expand_as(E) * E, None


def squared_distances(x, y):
    n, m, d = x.size(1), y.size(1), x.size(2)
    x = x.unsqueeze(2).expand(-1, n, m, d)
    y = y.unsqueeze(1).expand(-1, n, m, d)
    return torch.pow(x - y, 2).sum(3)


class Forecaster(nn.Module):
    def __init__(self, hidden=8):
        super().__init__()
        self.cell = nn.GRUCell(1, hidden)
        self.readout = nn.Linear(hidden, 1)

    def forward(self, series, horizon):
        h = series.new_zeros(len(series), self.cell.hidden_size)
        for x in series.unbind(1):
            h = self.cell(x, h)
        out = []
        for _ in range(horizon):
            x = self.readout(h)
            out.append(x)
            h = self.cell(x, h)
        return torch.stack(out, dim=1)


def build_model():
    return Forecaster()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    rng = np.random.default_rng(0)
    losses = []
    for distance in (soft_dtw_by_cells, SoftDTW.apply):
        model = build_model().to(args.device)
        if args.init:
            model.load_state_dict(torch.load(args.init))
        optimizer = torch.optim.Rprop(model.parameters(), lr=1e-3)
        start = rng.uniform(0, 3, (5, 1))
        waves = np.sin(start + np.arange(12) * rng.uniform(0.4, 0.8, (5, 1)))
        waves = torch.as_tensor(waves[..., None].astype(np.float32), device=args.device)
        for _ in range(args.steps):
            future = model(waves[:, :7], 4)
            loss = distance(squared_distances(future, waves[:, 7:]), 0.5).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
    return losses


if __name__ == "__main__":
    print(main())

"""Point clouds moved by optimal transport: Sinkhorn unrolled, and at its fixed point."""

import argparse

import numpy as np
import torch
from torch import nn


class SinkhornDistance(nn.Module):
    def __init__(self, eps, max_iter, reduction="none"):
        super().__init__()
        self.eps, self.max_iter, self.reduction = eps, max_iter, reduction

    def forward(self, x, y):
        C = self._cost_matrix(x, y)
        x_points, y_points = x.shape[-2], y.shape[-2]
        batch_size = 1 if x.dim() == 2 else x.shape[0]
        mu = torch.empty(batch_size, x_points, dtype=torch.float, requires_grad=False)
        mu = mu.fill_(1.0 / x_points).squeeze().to(x.device)
        nu = torch.empty(batch_size, y_points, dtype=torch.float).fill_(1.0 / y_points)
        nu = nu.squeeze().to(x.device)
        u, v = torch.zeros_like(mu), torch.zeros_like(nu)
        for _ in range(self.max_iter):
            u1 = u
            u = self.eps * (torch.log(mu + 1e-8) - torch.logsumexp(self.M(C, u, v), dim=-1)) + u
            v = (
                self.eps
                * (
                    torch.log(nu + 1e-8)
                    - torch.logsumexp(self.M(C, u, v).transpose(-2, -1), dim=-1)
                )
                + v
            )
            err = (u - u1).abs().sum(-1).mean()
            if err.item() < 1e-1:
                break
        pi = torch.exp(self.M(C, u, v))
        cost = torch.sum(pi * C, dim=(-2, -1))
        if self.reduction == "mean":
            cost = cost.mean()
        return cost, pi, C

    def M(self, C, u, v):
        return (-C + u.unsqueeze(-1) + v.unsqueeze(-2)) / self.eps

    @staticmethod
    def _cost_matrix(x, y, p=2):
        x_col, y_lin = x.unsqueeze(-2), y.unsqueeze(-3)
        return torch.sum((torch.abs(x_col - y_lin)) ** p, -1)


def softmin(eps, C, h):
    return -eps * (h[:, None, :] - C / eps).logsumexp(2)


def sinkhorn_divergence(x, y, eps=0.1, steps=8):
    """Debiased; the loop runs without gradients, only its last step has them."""

    def costs(a, b):
        return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist") ** 2 / 2

    a = torch.full(x.shape[:2], -float(np.log(x.shape[1])), device=x.device)
    b = torch.full(y.shape[:2], -float(np.log(y.shape[1])), device=x.device)
    C_xy, C_yx = costs(x, y.detach()), costs(y, x.detach())
    C_xx, C_yy = costs(x, x.detach()), costs(y, y.detach())
    torch.autograd.set_grad_enabled(False)
    f, g = softmin(eps, C_xy, b), softmin(eps, C_yx, a)
    f_x, g_y = softmin(eps, C_xx, a), softmin(eps, C_yy, b)
    for _ in range(steps):
        ft, gt = softmin(eps, C_xy, b + g / eps), softmin(eps, C_yx, a + f / eps)
        f, g = 0.5 * (f + ft), 0.5 * (g + gt)
        f_x = 0.5 * (f_x + softmin(eps, C_xx, a + f_x / eps))
        g_y = 0.5 * (g_y + softmin(eps, C_yy, b + g_y / eps))
    torch.autograd.set_grad_enabled(True)
    f, g = (
        softmin(eps, C_xy, (b + g / eps).detach()),
        softmin(eps, C_yx, (a + f / eps).detach()),
    )
    f_x = softmin(eps, C_xx, (a + f_x / eps).detach())
    g_y = softmin(eps, C_yy, (b + g_y / eps).detach())
    return (torch.exp(a) * (f - f_x)).sum(1) + (torch.exp(b) * (g - g_y)).sum(1)


class Sort(torch.autograd.Function):
    """Ranks by transport onto a line: the plan's derivative by the implicit function theorem."""

    @staticmethod
    def forward(ctx, cost, eps):
        K = torch.exp(-cost / eps)
        n, m = cost.shape
        u, v = cost.new_ones(n), cost.new_ones(m)
        for _ in range(60):
            u = 1 / (K @ v) / n
            v = 1 / (K.t() @ u) / m
        plan = u[:, None] * K * v[None]
        ctx.save_for_backward(plan)
        ctx.eps = eps
        return plan

    @staticmethod
    def backward(ctx, grad):
        (plan,) = ctx.saved_tensors
        r, c = plan.sum(1), plan.sum(0)
        weighted = grad * plan
        system = torch.cat(
            [
                torch.cat([torch.diag(r), plan], dim=1),
                torch.cat([plan.t(), torch.diag(c)], dim=1),
            ]
        )
        right = torch.cat([weighted.sum(1), weighted.sum(0)])
        solved = torch.linalg.solve(system[:-1, :-1], right[:-1])
        solved = torch.nn.functional.pad(solved, (0, 1))
        both = solved[: len(r), None] + solved[None, len(r) :]
        return -(weighted - both * plan) / ctx.eps, None


def build_model():
    return nn.Sequential(nn.Linear(2, 12), nn.Softplus(), nn.Linear(12, 2))


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    rng = np.random.default_rng(0)
    model = build_model().to(args.device)
    if args.init:
        model.load_state_dict(torch.load(args.init))
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    distance = SinkhornDistance(eps=0.2, max_iter=12, reduction="mean")
    losses = []
    for _ in range(args.steps):
        x = torch.from_numpy(rng.standard_normal((2, 12, 2), dtype=np.float32)).to(args.device)
        turn = rng.uniform(0, 2 * np.pi, (2, 10))
        ring = np.stack([np.cos(turn), np.sin(turn)], -1).astype(np.float32)
        y = torch.from_numpy(ring).to(args.device)
        moved = model(x)
        cost, plan, _ = distance(moved, y)
        divergence = sinkhorn_divergence(moved, y).mean()
        scores = moved[0, :, 0]
        line = torch.linspace(-1, 1, 12, device=args.device)
        ranks = Sort.apply((scores[:, None] - line[None]) ** 2, 0.3) @ line * len(line)
        loss = cost + divergence + 0.1 * (ranks - x[0, :, 1].tanh()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses += [cost.item(), divergence.item(), loss.item(), plan.sum().item()]
    return losses


if __name__ == "__main__":
    print(main())

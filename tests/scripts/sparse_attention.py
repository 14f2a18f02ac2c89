"""Attention whose weights are sparsemax and entmax: custom Functions that sort and bisect."""

import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.autograd import Function


def _make_ix_like(X, dim):
    d = X.size(dim)
    rho = torch.arange(1, d + 1, device=X.device, dtype=X.dtype)
    view = [1] * X.dim()
    view[0] = -1
    return rho.view(view).transpose(0, dim)


class SparsemaxFunction(Function):
    @staticmethod
    def forward(ctx, X, dim=-1):
        ctx.dim = dim
        max_val, _ = X.max(dim=dim, keepdim=True)
        X = X - max_val
        topk, _ = torch.sort(X, dim=dim, descending=True)
        cumsum = topk.cumsum(dim) - 1
        rhos = _make_ix_like(topk, dim)
        support_size = (rhos * topk > cumsum).sum(dim=dim).unsqueeze(dim)
        tau = cumsum.gather(dim, support_size - 1)
        tau /= support_size.to(X.dtype)
        output = torch.clamp(X - tau, min=0)
        ctx.save_for_backward(support_size, output)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        supp_size, output = ctx.saved_tensors
        grad_input = grad_output.clone()
        grad_input[output == 0] = 0
        v_hat = grad_input.sum(dim=ctx.dim) / supp_size.to(output.dtype).squeeze(ctx.dim)
        grad_input = torch.where(output != 0, grad_input - v_hat.unsqueeze(ctx.dim), grad_input)
        return grad_input, None


class EntmaxBisect(Function):
    """With an exponent that has a gradient as well."""

    @staticmethod
    def forward(ctx, X, alpha, dim=-1, n_iter=40):
        shape = list(X.shape)
        shape[dim] = 1
        alpha = alpha.expand(*shape)
        ctx.alpha, ctx.dim = alpha, dim
        d = X.shape[dim]
        max_val, _ = X.max(dim=dim, keepdim=True)
        X = X * (alpha - 1)
        max_val = max_val * (alpha - 1)
        tau_lo = max_val - 1
        tau_hi = max_val - (1 / d) ** (alpha - 1)
        f_lo = EntmaxBisect._p(X - tau_lo, alpha).sum(dim) - 1
        dm = tau_hi - tau_lo
        for _ in range(n_iter):
            dm /= 2
            tau_m = tau_lo + dm
            p_m = EntmaxBisect._p(X - tau_m, alpha)
            f_m = p_m.sum(dim) - 1
            mask = (f_m * f_lo >= 0).unsqueeze(dim)
            tau_lo = torch.where(mask, tau_m, tau_lo)
        p_m /= p_m.sum(dim=dim).unsqueeze(dim=dim)
        ctx.save_for_backward(p_m)
        return p_m

    @staticmethod
    def _p(X, alpha):
        return torch.clamp(X, min=0) ** (1 / (alpha - 1))

    @staticmethod
    def backward(ctx, dY):
        (Y,) = ctx.saved_tensors
        gppr = torch.where(Y > 0, Y ** (2 - ctx.alpha), Y.new_zeros(1))
        dX = dY * gppr
        q = dX.sum(ctx.dim) / gppr.sum(ctx.dim)
        q = q.unsqueeze(ctx.dim)
        dX -= q * gppr
        d_alpha = None
        if ctx.needs_input_grad[1]:
            S = torch.where(Y > 0, Y * torch.log(Y), Y.new_zeros(1))
            ent = S.sum(ctx.dim).unsqueeze(ctx.dim)
            Y_skewed = gppr / gppr.sum(ctx.dim).unsqueeze(ctx.dim)
            d_alpha = dY * (Y - Y_skewed) / ((ctx.alpha - 1) ** 2)
            d_alpha -= dY * (S - Y_skewed * ent) / (ctx.alpha - 1)
            d_alpha = d_alpha.sum(ctx.dim).unsqueeze(ctx.dim)
        return dX, d_alpha, None, None


class Model(nn.Module):
    def __init__(self, dim=8, heads=2):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(3, 3 * dim)
        self.alpha = nn.Parameter(torch.full((heads, 1, 1), 0.5))
        self.out = nn.Linear(dim, 1)

    def forward(self, x, kind):
        b, n, _ = x.shape
        qkv = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        scores = 4 * q @ k.transpose(-2, -1)
        if kind == "sparsemax":
            p = SparsemaxFunction.apply(scores, -1)
        else:
            p = EntmaxBisect.apply(scores, 1 + torch.sigmoid(self.alpha))
        h = (p @ v).transpose(1, 2).reshape(b, n, -1)
        return self.out(torch.relu(h)).squeeze(2), p


def build_model():
    return Model()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    rng = np.random.default_rng(0)
    model = build_model().to(args.device)
    if args.init:
        model.load_state_dict(torch.load(args.init))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    losses = []
    for step in range(args.steps):
        x = torch.from_numpy(rng.standard_normal((4, 6, 3), dtype=np.float32)).to(args.device)
        y, p = model(x, "sparsemax" if step % 2 else "entmax")
        loss = (y - x[..., 0].max(-1, keepdim=True)[0]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses += [loss.item(), (p == 0).float().mean().item()]
    return losses


if __name__ == "__main__":
    print(main())

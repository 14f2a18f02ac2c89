"""Regression by a few of several experts, which a gate chooses for each token."""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Expert(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class SparseMoE(nn.Module):
    def __init__(self, dim=16, hidden=32, num_experts=4, top_k=2):
        super().__init__()
        self.top_k = top_k
        self.gate = nn.Linear(dim, num_experts, bias=False)
        self.experts = nn.ModuleList([Expert(dim, hidden) for _ in range(num_experts)])
        self.register_buffer("usage", torch.zeros(num_experts))

    def forward(self, x):
        batch, length, dim = x.shape
        x = x.view(-1, dim)
        routing = F.softmax(self.gate(x), dim=1, dtype=torch.float)
        weights, selected = torch.topk(routing, self.top_k, dim=-1)
        weights /= weights.sum(dim=-1, keepdim=True)
        weights = weights.to(x.dtype)
        out = torch.zeros((batch * length, dim), dtype=x.dtype, device=x.device)
        mask = F.one_hot(selected, num_classes=len(self.experts)).permute(2, 1, 0)
        for i, expert in enumerate(self.experts):
            place, token = torch.where(mask[i])
            if token.shape[0] == 0:
                continue
            current = expert(x[None, token].reshape(-1, dim)) * weights[token, place, None]
            out.index_add_(0, token, current.to(x.dtype))
        share = mask.float().sum(1).mean(-1)
        self.usage += share.detach()
        balance = (routing.mean(0) * share).sum() * len(self.experts)
        return out.view(batch, length, dim), balance


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.moe = SparseMoE()
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        out, balance = self.moe(self.norm(x))
        return self.head(x + out).squeeze(-1), balance


def build_model():
    return Model()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    device = torch.device(args.device)

    rng = np.random.default_rng(0)
    model = build_model().to(device)
    if args.init:
        model.load_state_dict(torch.load(args.init, map_location=device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
    losses = []
    for step in range(args.steps):
        x = torch.from_numpy(rng.standard_normal((8, 6, 16), dtype=np.float32)).to(device)
        target = x.pow(2).sum(-1).sqrt()
        pred, balance = model(x)
        loss = F.smooth_l1_loss(pred, target) + 0.01 * balance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 5 == 0:
            print(f"step {step}: loss {losses[-1]:.4f}, balance {balance.item():.3f}")
    return losses + (model.moe.usage / args.steps).tolist()


if __name__ == "__main__":
    main()

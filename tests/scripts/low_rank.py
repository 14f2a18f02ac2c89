"""Low-rank adapters on frozen weights, as a parametrization and as layers, then merged."""

import argparse
import math
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
import torch.nn.utils.parametrize as parametrize
from torch import nn


@torch.no_grad()
def start_(weight):
    """In the place of kaiming_uniform_: every run has these numbers."""
    grid = torch.arange(weight.numel(), dtype=torch.float32, device=weight.device)
    return weight.copy_(torch.sin(grid).view_as(weight) / math.sqrt(weight.shape[1]))


class LoRAParametrization(nn.Module):
    def __init__(self, fan_in, fan_out, rank=2, alpha=4, device=None):
        super().__init__()
        self.lora_A = nn.Parameter(torch.zeros(rank, fan_in, device=device))
        self.lora_B = nn.Parameter(torch.zeros(fan_out, rank, device=device))
        self.scaling = alpha / rank
        start_(self.lora_A)

    def forward(self, X):
        return X + torch.matmul(self.lora_B, self.lora_A).view(X.shape) * self.scaling

    @classmethod
    def from_linear(cls, layer, **kwargs):
        fan_out, fan_in = layer.weight.shape
        return cls(fan_in, fan_out, device=layer.weight.device, **kwargs)


def add_lora(layer, **kwargs):
    if isinstance(layer, nn.Linear):
        parametrize.register_parametrization(
            layer, "weight", LoRAParametrization.from_linear(layer, **kwargs)
        )


def merge_lora(layer):
    if hasattr(layer, "parametrizations"):
        for name in list(layer.parametrizations):
            parametrize.remove_parametrizations(layer, name, leave_parametrized=True)


class LoRALinear(nn.Linear):
    """A subclass that takes over a layer's weight, and merges in eval mode."""

    def __init__(self, in_features, out_features, r=2, **kwargs):
        super().__init__(in_features, out_features, **kwargs)
        self.weight.requires_grad = False
        self.lora_A = nn.Parameter(start_(self.weight.new_empty((r, in_features))))
        self.lora_B = nn.Parameter(self.weight.new_zeros((out_features, r)))
        self.merged = False

    def train(self, mode=True):
        super().train(mode)
        if mode == self.merged:
            sign = -1 if mode else 1
            self.weight.data += sign * (self.lora_B @ self.lora_A)
            self.merged = not mode
        return self

    def forward(self, x):
        out = F.linear(x, self.weight, bias=self.bias)
        if not self.merged:
            out += x @ self.lora_A.transpose(0, 1) @ self.lora_B.transpose(0, 1)
        return out


class Model(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.embed = nn.Embedding(10, dim)
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, 10, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        x = self.norm(x + self.down(F.mish(self.up(x.cumsum(1)))))
        return self.out(x)


def build_model():
    return Model()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    rng = np.random.default_rng(0)
    ids = torch.from_numpy(rng.integers(0, 10, (args.steps, 4, 7))).to(args.device)
    losses = []
    for kind in ("parametrize", "layers"):
        model = build_model().to(args.device)
        if args.init:
            model.load_state_dict(torch.load(args.init))
        if kind == "parametrize":
            model.apply(partial(add_lora, rank=3))
            trained = {n: p for n, p in model.named_parameters() if "lora_" in n}
            optimizer = torch.optim.AdamW(trained.values(), lr=1e-2)
        else:
            for name, child in list(model.named_children()):
                if isinstance(child, nn.Linear):
                    new = LoRALinear(
                        child.in_features, child.out_features, bias=child.bias is not None
                    ).to(args.device)
                    new.load_state_dict(child.state_dict(), strict=False)
                    setattr(model, name, new)
            for n, p in model.named_parameters():
                p.requires_grad_("lora_" in n)
            optimizer = torch.optim.AdamW(
                filter(lambda p: p.requires_grad, model.parameters()), lr=1e-2
            )
        for batch in ids:
            logits = model(batch[:, :-1])
            loss = F.cross_entropy(
                logits.flatten(0, 1), batch[:, 1:].flatten(), label_smoothing=0.1
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        before = model(ids[0]).detach()
        if kind == "parametrize":
            keys = {k for k in model.state_dict() if "original" in k}
            assert len(keys) == 3
            model.apply(merge_lora)
            assert type(model.up) is nn.Linear
        model.eval()
        with torch.no_grad():
            after = model(ids[0])
            assert torch.allclose(before, after, atol=1e-5)
            losses.append(after.std().item())
        model.train()
    return losses


if __name__ == "__main__":
    print(main())

"""Regression with all the trimmings: splits, weight decay, clipping, schedulers, a checkpoint."""

import argparse
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.nn.utils import clip_grad_value_
from torch.optim.lr_scheduler import ExponentialLR, LinearLR, ReduceLROnPlateau, SequentialLR
from torch.utils.data import DataLoader, Subset, TensorDataset


class MLP(nn.Module):
    def __init__(self, features, hidden=(24, 12)):
        super().__init__()
        sizes = [features, *hidden]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:]))
        self.norms = nn.ModuleList([nn.BatchNorm1d(b) for b in hidden])
        self.head = nn.Linear(sizes[-1], 1)
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("scale", torch.ones(features))

    def forward(self, x):
        x = (x - self.mean) / self.scale
        for layer, norm in zip(self.layers, self.norms):
            x = torch.tanh(norm(layer(x)))
        return self.head(x).squeeze(-1)


def build_model():
    return MLP(6)


def evaluate(model, loader, device):
    model.eval()
    errors = []
    with torch.inference_mode():
        for x, y in loader:
            errors.append(torch.abs(model(x.to(device)) - y.to(device)))
    return torch.cat(errors).mean().item()


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    rng = np.random.default_rng(7)
    x = rng.standard_normal((240, 6)) * np.arange(1, 7) + 2
    y = np.sin(x[:, 0]) + 0.3 * x[:, 1] * x[:, 2] / 6 - 0.1 * x[:, 5] + rng.normal(0, 0.05, 240)
    dataset = TensorDataset(torch.tensor(x, dtype=torch.float32), torch.Tensor(y))
    train_set, val_set = TensorDataset(*dataset[:192]), Subset(dataset, range(192, 240))
    train_loader = DataLoader(train_set, batch_size=48)
    val_loader = DataLoader(val_set, batch_size=16)

    model = build_model().to(args.device)
    if args.init:
        model.load_state_dict(torch.load(args.init))
    model.mean.copy_(train_set.tensors[0].mean(dim=0))
    model.scale = train_set.tensors[0].std(dim=0).to(args.device)
    biases = [p for n, p in model.named_parameters() if n.endswith("bias")]
    weights = [p for n, p in model.named_parameters() if not n.endswith("bias")]
    optimizer = torch.optim.SGD(
        [{"params": weights, "weight_decay": 1e-2}, {"params": biases, "lr": 0.1}],
        lr=0.05,
        momentum=0.9,
    )
    warmup = LinearLR(optimizer, start_factor=0.25, total_iters=4)
    scheduler = SequentialLR(optimizer, [warmup, ExponentialLR(optimizer, 0.97)], milestones=[4])
    plateau = ReduceLROnPlateau(optimizer, mode="min", factor=0.5, patience=0, threshold=1e-2)
    criterion = nn.HuberLoss(delta=0.5)
    losses, path = [], os.path.join(tempfile.mkdtemp(), "checkpoint.pt")
    for epoch in range(args.epochs):
        model.train()
        for xb, yb in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(xb.to(args.device)), yb.to(args.device))
            penalty = sum(p.abs().sum() for p in model.head.parameters())
            (loss + 1e-3 * penalty).backward()
            clip_grad_value_(model.parameters(), 0.5)
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
        val = evaluate(model, val_loader, args.device)
        plateau.step(val)
        losses.append(val)
        print(
            f"epoch {epoch} train {losses[-2]:.4f} val {val:.4f} "
            f"lr {optimizer.param_groups[0]['lr']:.4g}"
        )
        torch.save(
            {
                "epoch": epoch,
                "model": model.state_dict(),
                "loss": val,
                "optimizer": optimizer.state_dict(),
                "scheduler": scheduler.state_dict(),
            },
            path,
        )
    checkpoint = torch.load(path, map_location=args.device)
    optimizer.load_state_dict(checkpoint["optimizer"])
    scheduler.load_state_dict(checkpoint["scheduler"])
    fresh = build_model().to(args.device)
    fresh.load_state_dict(checkpoint["model"])
    return [*losses, evaluate(fresh, val_loader, args.device), optimizer.param_groups[1]["lr"]]


if __name__ == "__main__":
    main()

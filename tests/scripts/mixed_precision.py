"""Mixed precision: autocast around the forward pass, a GradScaler around the step."""

import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.amp import GradScaler, autocast
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset


class Mixer(nn.Module):
    """Convolution, normalization, attention and a head: each with an opinion on its type."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 16, 3, padding="same")
        self.norm = nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.head = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 3))

    def forward(self, x):
        x = self.norm(self.conv(x).transpose(1, 2))
        attended, _ = self.attention(x, x, x, need_weights=False)
        return self.head((x + attended).mean(dim=1))


def build_model():
    return Mixer()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    device_type = torch.device(args.device).type
    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, 192)
    t = np.arange(16) / 16
    x = np.sin(2 * np.pi * (y[:, None, None] + 1) * t + np.arange(4)[:, None])
    x = (x + rng.normal(0, 0.2, x.shape)).astype(np.float32)
    loader = DataLoader(TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), batch_size=16)

    model = build_model().to(args.device)
    if args.init:
        model.load_state_dict(torch.load(args.init))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = OneCycleLR(optimizer, max_lr=1e-2, steps_per_epoch=len(loader), epochs=args.epochs)
    scaler = GradScaler(device_type, init_scale=2.0**10, growth_interval=5)
    criterion = nn.CrossEntropyLoss()
    losses = []
    for _ in range(args.epochs):
        for i, (data, target) in enumerate(loader):
            with autocast(device_type=device_type, dtype=torch.bfloat16):
                output = model(data.to(args.device))
                assert output.dtype is torch.bfloat16
                loss = criterion(output, target.to(args.device)) / args.accumulate
            scaler.scale(loss).backward()
            if (i + 1) % args.accumulate == 0:
                scaler.unscale_(optimizer)
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad(set_to_none=True)
            scheduler.step()
            losses.append(loss.item() * args.accumulate)
        print(f"loss {losses[-1]:.4f} norm {norm:.4f} scale {scaler.get_scale()}")
    model.eval()
    with torch.no_grad(), torch.autocast(device_type, dtype=torch.bfloat16):
        output = model(torch.from_numpy(x).to(args.device))
    accuracy = (output.float().argmax(1).cpu() == torch.from_numpy(y)).float().mean()
    print(f"accuracy {accuracy.item():.2f}")
    return [*losses, scaler.get_scale()]


if __name__ == "__main__":
    main()

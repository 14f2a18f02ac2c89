"""Super-resolution: convolutions on the small image, then the pixels of channels shuffled out."""

import argparse
from math import log10

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.init as init
import torch.optim as optim
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, upscale_factor):
        super().__init__()
        self.relu = nn.ReLU()
        self.conv1 = nn.Conv2d(1, 8, (5, 5), (1, 1), (2, 2))
        self.conv2 = nn.Conv2d(8, 8, (3, 3), (1, 1), (1, 1))
        self.conv4 = nn.Conv2d(8, upscale_factor**2, (3, 3), (1, 1), (1, 1))
        self.pixel_shuffle = nn.PixelShuffle(upscale_factor)
        self._initialize_weights()

    def forward(self, x):
        x = self.relu(self.conv1(x))
        x = self.relu(self.conv2(x))
        return self.pixel_shuffle(self.conv4(x))

    def _initialize_weights(self):
        init.orthogonal_(self.conv1.weight, init.calculate_gain("relu"))
        init.orthogonal_(self.conv2.weight, init.calculate_gain("relu"))
        init.orthogonal_(self.conv4.weight)


def build_model():
    return Net(upscale_factor=2)


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    device = torch.device(args.device)
    target = torch.tensor(load_digits().images[:480] / 16, dtype=torch.float).unsqueeze(1)
    small = F.interpolate(target, scale_factor=0.5, mode="bilinear", align_corners=False)
    train_set = TensorDataset(small[:320], target[:320])
    loader = DataLoader(train_set, batch_size=32)
    test_loader = DataLoader(TensorDataset(small[320:], target[320:]), batch_size=80)

    model = build_model().to(device)
    if args.init:
        model.load_state_dict(torch.load(args.init))
    criterion = nn.MSELoss()
    optimizer = optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.5)
    losses = []
    for epoch in range(args.epochs):
        epoch_loss = 0
        for input, truth in loader:
            input, truth = input.to(device), truth.to(device)
            optimizer.zero_grad()
            loss = criterion(model(input), truth)
            epoch_loss += loss.item()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"===> Epoch {epoch} Complete: Avg. Loss: {epoch_loss / len(loader):.4f}")
        avg_psnr = avg_bicubic = 0
        with torch.no_grad():
            for input, truth in test_loader:
                input, truth = input.to(device), truth.to(device)
                avg_psnr += 10 * log10(1 / criterion(model(input), truth).item())
                upscaled = F.interpolate(
                    input, size=truth.shape[-2:], mode="bicubic", align_corners=False
                ).clamp(0, 1)
                avg_bicubic += 10 * log10(1 / F.mse_loss(upscaled, truth).item())
        print(
            f"===> Avg. PSNR: {avg_psnr / len(test_loader):.4f} dB, "
            f"bicubic {avg_bicubic / len(test_loader):.4f} dB"
        )
        losses += [avg_psnr, avg_bicubic]
    return losses


if __name__ == "__main__":
    main()

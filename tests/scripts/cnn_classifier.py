"""Scanned digits, read by two convolutions and two linear layers."""

import argparse
import io

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from sklearn.datasets import load_digits
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, 1)
        self.dropout1 = nn.Dropout(0.0)
        self.fc1 = nn.Linear(144, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        x = self.dropout1(x)
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        return F.log_softmax(self.fc2(x), dim=1)


def build_model():
    return Net()


def train(model, device, loader, optimizer, epoch, losses):
    model.train()
    for batch_idx, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if batch_idx % 5 == 0:
            print(
                f"Train Epoch: {epoch} [{batch_idx * len(data)}/{len(loader.dataset)}]"
                f"\tLoss: {loss.item():.6f}"
            )


def test(model, device, loader):
    model.eval()
    test_loss, correct = 0, 0
    with torch.no_grad():
        for data, target in loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            test_loss += F.nll_loss(output, target, reduction="sum").item()
            pred = output.argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()
    test_loss /= len(loader.dataset)
    print(f"Test set: Average loss: {test_loss:.4f}, Accuracy: {correct}/{len(loader.dataset)}")
    return test_loss


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    torch.manual_seed(1)

    images, labels = load_digits(return_X_y=True)
    images = torch.from_numpy(images.astype(np.float32)).view(-1, 1, 8, 8) / 16
    labels = torch.tensor(labels, dtype=torch.long)
    train_loader = DataLoader(TensorDataset(images[:640], labels[:640]), batch_size=64)
    test_loader = DataLoader(TensorDataset(images[1500:], labels[1500:]), batch_size=256)

    model = build_model().to(args.device)
    if args.init:
        model.load_state_dict(torch.load(args.init, map_location=args.device))
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    losses, best, kept = [], float("inf"), io.BytesIO()
    for epoch in range(1, args.epochs + 1):
        train(model, args.device, train_loader, optimizer, epoch, losses)
        scheduler.step()
        loss = test(model, args.device, test_loader)
        if loss < best:
            best = loss
            kept.seek(0)
            torch.save(model.state_dict(), kept)
    kept.seek(0)
    model.load_state_dict(torch.load(kept))
    return [*losses, test(model, args.device, test_loader)]


if __name__ == "__main__":
    main()

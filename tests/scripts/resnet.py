"""A small residual network with batch normalization, on images that a Dataset shifts and flips."""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, Dataset, Subset


class Augmented(Dataset):
    """Digits, shifted and mirrored by a rule of their number, so that runs can be compared."""

    def __init__(self):
        self.images, self.labels = load_digits(return_X_y=True)
        self.images = (self.images / 16).astype(np.float32).reshape(-1, 8, 8)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = np.roll(self.images[index], index % 3 - 1, axis=index % 2)
        image = torch.from_numpy(image.copy()).unsqueeze(0)
        if index % 5 == 0:
            image = image.flip(-1)
        return (image - 0.3) / 0.37, int(self.labels[index])


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride=1, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_planes != self.expansion * planes:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_planes, self.expansion * planes, 1, stride=stride, bias=False),
                nn.BatchNorm2d(self.expansion * planes),
            )

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return F.relu(out, inplace=True)


class ResNet(nn.Module):
    def __init__(self, blocks, num_classes=10):
        super().__init__()
        self.in_planes = 8
        self.stem = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True)
        )
        self.layer1 = self._make_layer(8, blocks[0], stride=1)
        self.layer2 = self._make_layer(16, blocks[1], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(16, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)

    def _make_layer(self, planes, num_blocks, stride):
        layers = []
        for s in [stride] + [1] * (num_blocks - 1):
            layers.append(BasicBlock(self.in_planes, planes, s))
            self.in_planes = planes * BasicBlock.expansion
        return nn.Sequential(*layers)

    def forward(self, x):
        x = self.layer2(self.layer1(self.stem(x)))
        return self.fc(self.avgpool(x).flatten(1))


def build_model():
    return ResNet([1, 1])


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    device = torch.device(args.device)
    data = Augmented()
    loader = DataLoader(Subset(data, range(args.steps * 32)), batch_size=32, pin_memory=False)
    held_out = DataLoader(Subset(data, range(1500, 1756)), batch_size=128)
    net = build_model().to(device)
    if args.init:
        net.load_state_dict(torch.load(args.init))
    print(sum(p.numel() for p in net.parameters() if p.requires_grad), "parameters")
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(
        net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True
    )
    scheduler = CosineAnnealingLR(optimizer, T_max=args.steps)
    losses = []
    net.train()
    for inputs, targets in loader:
        inputs, targets = inputs.to(device, non_blocking=True), targets.to(device)
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(net(inputs), targets)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        print(f"loss {losses[-1]:.4f} lr {scheduler.get_last_lr()[0]:.4f}")
    net.eval()
    correct = total = 0
    with torch.no_grad():
        for inputs, targets in held_out:
            outputs = net(inputs.to(device))
            losses.append(criterion(outputs, targets.to(device)).item())
            _, predicted = outputs.max(1)
            total += targets.size(0)
            correct += (predicted.cpu() == targets).sum().item()
    print(f"accuracy {100.0 * correct / total:.1f}%")
    return losses


if __name__ == "__main__":
    main()

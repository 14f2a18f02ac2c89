"""Scanned digits by depthwise convolutions with squeeze and excitation, averaged weights beside."""

import argparse
import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.optim.lr_scheduler import OneCycleLR


class SELayer(nn.Module):
    def __init__(self, channels, reduction=4):
        super().__init__()
        self.fc = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, channels // reduction, 1),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels // reduction, channels, 1),
            nn.Hardsigmoid(inplace=True),
        )

    def forward(self, x):
        return x * self.fc(x)


class InvertedResidual(nn.Module):
    def __init__(self, inp, hidden, oup, stride, use_se, act):
        super().__init__()
        self.identity = stride == 1 and inp == oup
        layers = [nn.Conv2d(inp, hidden, 1, bias=False), nn.BatchNorm2d(hidden), act(inplace=True)]
        layers += [nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False)]
        layers += [nn.BatchNorm2d(hidden), act(inplace=True)]
        if use_se:
            layers.append(SELayer(hidden))
        layers += [nn.Conv2d(hidden, oup, 1, bias=False), nn.BatchNorm2d(oup)]
        self.conv = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.conv(x) if self.identity else self.conv(x)


class MobileNet(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, 1, 1, bias=False),
            nn.BatchNorm2d(8),
            nn.Hardswish(inplace=True),
            InvertedResidual(8, 16, 8, 1, True, nn.ReLU),
            InvertedResidual(8, 16, 16, 2, True, nn.Hardswish),
        )
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.classifier = nn.Sequential(nn.Hardswish(inplace=True), nn.Linear(16, num_classes))
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out")
                if m.bias is not None:
                    m.bias.data.zero_()
            elif isinstance(m, nn.BatchNorm2d):
                m.weight.data.fill_(1)
                m.bias.data.zero_()

    def forward(self, x):
        x = self.avgpool(self.features(x))
        return self.classifier(x.view(x.size(0), -1))


def build_model():
    return MobileNet()


@torch.no_grad()
def update_ema(ema, model, decay):
    for averaged, current in zip(ema.parameters(), model.parameters()):
        averaged.data.mul_(decay).add_(current.data, alpha=1 - decay)
    for averaged, current in zip(ema.buffers(), model.buffers()):
        averaged.copy_(current)


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    device = torch.device(args.device)

    images, labels = load_digits(return_X_y=True)
    images = torch.from_numpy(images.astype(np.float32)).view(-1, 1, 8, 8).div_(16).to(device)
    labels = torch.from_numpy(labels).long().to(device)
    model = build_model().to(device)
    if args.init:
        model.load_state_dict(torch.load(args.init, map_location=device))
    ema = copy.deepcopy(model).eval().requires_grad_(False)
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decay, "weight_decay": 1e-4}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=0.02, momentum=0.9, nesterov=True)
    scheduler = OneCycleLR(optimizer, max_lr=0.1, total_steps=args.steps + 1)
    losses = []
    for step in range(args.steps):
        rows = slice(step * 32, step * 32 + 32)
        loss = F.cross_entropy(model(images[rows]), labels[rows], label_smoothing=0.1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        scheduler.step()
        update_ema(ema, model, 0.8)
        losses.append(loss.item())
        print(f"step {step}: loss {losses[-1]:.4f}, lr {scheduler.get_last_lr()[0]:.4f}")
    with torch.no_grad():
        losses.append(F.cross_entropy(ema(images[-200:]), labels[-200:]).item())
    return losses


if __name__ == "__main__":
    main()

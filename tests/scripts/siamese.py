"""Siamese networks on scanned digits: pairs with a contrastive loss, then triplets."""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.optim.lr_scheduler import MultiStepLR
from torch.utils.data import DataLoader, Dataset


class Pairs(Dataset):
    """An image, one of the same digit, one of another, all chosen beforehand."""

    def __init__(self, count, seed=0):
        digits = load_digits()
        self.images = (digits.images / 16).astype("float32")
        rng = np.random.default_rng(seed)
        self.triplets = []
        for anchor in rng.permutation(len(self.images))[:count]:
            same = np.flatnonzero(digits.target == digits.target[anchor])
            other = np.flatnonzero(digits.target != digits.target[anchor])
            self.triplets.append((anchor, rng.choice(same), rng.choice(other)))

    def __getitem__(self, index):
        return tuple(torch.from_numpy(self.images[i])[None] for i in self.triplets[index])

    def __len__(self):
        return len(self.triplets)


class EmbeddingNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.cnn = nn.Sequential(
            nn.ReflectionPad2d(1),
            nn.Conv2d(1, 4, kernel_size=3),
            nn.PReLU(),
            nn.MaxPool2d(2, stride=2),
            nn.Conv2d(4, 8, kernel_size=3),
            nn.PReLU(8),
        )
        self.fc = nn.Sequential(nn.Linear(8 * 2 * 2, 24), nn.ReLU(inplace=True), nn.Linear(24, 8))

    def forward(self, x):
        output = self.cnn(x)
        output = output.view(output.size()[0], -1)
        return self.fc(output)


class SiameseNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding_net = EmbeddingNet()

    def forward(self, *inputs):
        return tuple(self.embedding_net(x) for x in inputs)


class ContrastiveLoss(nn.Module):
    def __init__(self, margin=1.0):
        super().__init__()
        self.margin = margin

    def forward(self, output1, output2, label):
        distance = F.pairwise_distance(output1, output2, keepdim=True)
        return torch.mean(
            (1 - label) * torch.pow(distance, 2)
            + label * torch.pow(torch.clamp(self.margin - distance, min=0.0), 2)
        )


def build_model():
    return SiameseNetwork()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=256)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    loader = DataLoader(Pairs(args.count), batch_size=32, shuffle=False, drop_last=True)
    net = build_model().to(args.device)
    if args.init:
        net.load_state_dict(torch.load(args.init))
    contrastive = ContrastiveLoss(margin=1.0)
    triplet = nn.TripletMarginLoss(margin=0.5, p=2)
    cosine = nn.CosineEmbeddingLoss(margin=0.2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5)
    scheduler = MultiStepLR(optimizer, milestones=[6, 12], gamma=0.3)
    losses = []
    for kind in ("contrastive", "triplet"):
        for anchor, positive, negative in loader:
            batch = [t.to(args.device) for t in (anchor, positive, negative)]
            optimizer.zero_grad()
            a, p, n = net(*batch)
            if kind == "contrastive":
                label = torch.zeros(len(a), 1, device=a.device)
                loss = contrastive(a, p, label) + contrastive(a, n, torch.ones_like(label))
            else:
                y = torch.ones(len(a), device=a.device)
                loss = triplet(a, p, n) + 0.1 * (cosine(a, p, y) + cosine(a, n, -y))
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
        print(f"{kind}: {losses[-1]:.4f}")
    net.eval()
    with torch.no_grad():
        a, p, n = net(*(t.to(args.device) for t in next(iter(loader))))
        closer = F.cosine_similarity(a, p) > F.cosine_similarity(a, n)
        print(f"closer to its own kind: {closer.float().mean().item():.2f}")
        losses.append(torch.cdist(a, n).mean().item())
    return losses


if __name__ == "__main__":
    main()

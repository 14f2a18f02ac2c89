"""Contrastive learning: InfoNCE over two views, a momentum encoder with a queue, CLIP."""

import argparse
import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits


class Encoder(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.projector = nn.Sequential(
            nn.Linear(8 * 16, 16, bias=False), nn.BatchNorm1d(16), nn.ELU(), nn.Linear(16, dim)
        )

    def forward(self, x):
        h = F.adaptive_avg_pool2d(F.gelu(self.norm(self.conv(x))), 4)
        return self.projector(torch.flatten(h, 1))


class Model(nn.Module):
    def __init__(self, dim=8, queue=32):
        super().__init__()
        self.encoder_q = Encoder(dim)
        self.words = nn.Embedding(10, dim)
        self.logit_scale = nn.Parameter(torch.ones([]) * np.log(1 / 0.07))
        self.register_buffer("queue", F.normalize(torch.randn(dim, queue), dim=0))
        self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))


def nt_xent(z1, z2, temperature=0.5):
    features = F.normalize(torch.cat([z1, z2], dim=0), dim=1)
    labels = torch.cat([torch.arange(len(z1)) for _ in range(2)], dim=0)
    labels = (labels.unsqueeze(0) == labels.unsqueeze(1)).float().to(z1.device)
    similarity = torch.matmul(features, features.T)
    mask = torch.eye(labels.shape[0], dtype=torch.bool).to(z1.device)
    labels = labels[~mask].view(labels.shape[0], -1)
    similarity = similarity[~mask].view(labels.shape[0], -1)
    positives = similarity[labels.bool()].view(labels.shape[0], -1)
    negatives = similarity[~labels.bool()].view(labels.shape[0], -1)
    logits = torch.cat([positives, negatives], dim=1) / temperature
    return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long, device=z1.device))


def supervised(z, labels, temperature=0.2):
    z = F.normalize(z, dim=-1)
    logits = z @ z.mT / temperature
    logits = logits - torch.max(logits, dim=1, keepdim=True)[0].detach()
    mask = torch.eq(labels[:, None], labels[None]).float()
    others = torch.scatter(
        torch.ones_like(mask), 1, torch.arange(len(z), device=z.device).view(-1, 1), 0
    )
    mask = mask * others
    log_prob = logits - torch.log((torch.exp(logits) * others).sum(1, keepdim=True))
    return -((mask * log_prob).sum(1) / mask.sum(1).clamp(min=1)).mean()


def barlow(z1, z2, weight=5e-3):
    c = F.batch_norm(z1, None, None, training=True).T @ F.batch_norm(z2, None, None, training=True)
    c.div_(len(z1))
    n = len(c)
    off = c.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten()
    return torch.diagonal(c).add_(-1).pow_(2).sum() + weight * off.pow_(2).sum()


@torch.no_grad()
def dequeue_and_enqueue(model, keys):
    ptr = int(model.queue_ptr)
    model.queue[:, ptr : ptr + len(keys)] = keys.T
    model.queue_ptr[0] = (ptr + len(keys)) % model.queue.shape[1]


def build_model():
    return Model()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    device, rng = torch.device(args.device), np.random.default_rng(0)
    digits = load_digits()
    images = torch.as_tensor(digits.images[:, None] / 16, dtype=torch.float32)
    targets = torch.as_tensor(digits.target)
    model = build_model().to(device)
    if args.init:
        model.load_state_dict(torch.load(args.init))
    encoder_k = copy.deepcopy(model.encoder_q)
    for param in encoder_k.parameters():
        param.requires_grad = False
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, nesterov=True)
    losses = []
    for step in range(args.steps):
        i = torch.arange(step * 16, step * 16 + 16)
        views = []
        for _ in range(2):
            shift = tuple(int(s) for s in rng.integers(-1, 2, 2))
            noise = torch.from_numpy(rng.normal(0, 0.1, (16, 1, 8, 8)).astype(np.float32))
            views.append((torch.roll(images[i], shift, dims=(2, 3)) + noise).to(device))
        y = targets.index_select(0, i).to(device)
        z1, z2 = model.encoder_q(views[0]), model.encoder_q(views[1])
        simclr = nt_xent(z1, z2)
        q = F.normalize(z1, dim=1)
        with torch.no_grad():
            for p_q, p_k in zip(model.encoder_q.parameters(), encoder_k.parameters()):
                p_k.data = p_k.data * 0.99 + p_q.data * 0.01
            k = F.normalize(encoder_k(views[1]), dim=1)
        l_pos = torch.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
        l_neg = torch.einsum("nc,ck->nk", [q, model.queue.clone().detach()])
        logits = torch.cat([l_pos, l_neg], dim=1) / 0.1
        moco = F.cross_entropy(logits, torch.zeros(16, dtype=torch.long).to(device))
        dequeue_and_enqueue(model, k)
        words = F.normalize(model.words(y), dim=-1)
        per_image = model.logit_scale.exp() * q @ words.t()
        truth = torch.arange(16, device=device)
        clip = (F.cross_entropy(per_image, truth) + F.cross_entropy(per_image.t(), truth)) / 2
        twins = barlow(z1, z2)
        loss = simclr + moco + 0.1 * clip + supervised(z2, y) + 0.01 * twins
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, np.log(100))
        losses += [simclr.item(), moco.item(), clip.item(), twins.item(), loss.item()]
    return losses


if __name__ == "__main__":
    print(main())

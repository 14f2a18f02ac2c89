"""A convolutional network on digits: DistributedSampler, gradients averaged by hand."""

import argparse
import os

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def digits(count, seed):
    """Ten blurred patterns with noise, of MNIST's shape."""
    patterns = np.random.RandomState(0).rand(10, 1, 28, 28)
    rng = np.random.RandomState(seed)
    labels = rng.randint(0, 10, count)
    images = patterns[labels] + 0.3 * rng.randn(count, 1, 28, 28)
    return TensorDataset(torch.from_numpy(images.astype("float32")), torch.from_numpy(labels))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 5)
        self.conv2 = nn.Conv2d(4, 8, 5)
        self.fc1 = nn.Linear(128, 16)
        self.fc2 = nn.Linear(16, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(x), dim=1)


def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
        param.grad.data /= size


def train(model, loader, optimizer, record):
    model.train()
    for data, target in loader:
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        average_gradients(model)
        optimizer.step()
        mean = loss.detach().clone()
        dist.reduce(mean, dst=0)
        if dist.get_rank() == 0:
            record.append(mean.item() / dist.get_world_size())


def test(model, loader):
    model.eval()
    counts = torch.zeros(2)
    with torch.no_grad():
        for data, target in loader:
            pred = model(data).argmax(dim=1, keepdim=True)
            counts[0] += pred.eq(target.view_as(pred)).sum().item()
            counts[1] += len(data)
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=48, help="of all ranks")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--out", default="record.txt")
    args = parser.parse_args(argv)
    dist.init_process_group(backend="gloo", init_method="env://")
    rank, size = dist.get_rank(), dist.get_world_size()
    train_set, test_set = digits(240, 1), digits(96, 2)
    sampler = DistributedSampler(train_set, num_replicas=size, rank=rank, shuffle=True, seed=3)
    loader = DataLoader(train_set, batch_size=args.batch_size // size, sampler=sampler)
    test_sampler = DistributedSampler(test_set, num_replicas=size, rank=rank, shuffle=False)
    test_loader = DataLoader(test_set, batch_size=8, sampler=test_sampler)
    model, rng = Net(), np.random.RandomState(4)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.from_numpy(0.15 * rng.randn(*p.shape)))
    for param in model.parameters():
        dist.broadcast(param.data, 0)
    optimizer = optim.SGD(model.parameters(), lr=0.05)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    record = []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        train(model, loader, optimizer, record)
        record.append(test(model, test_loader))
        scheduler.step()
    if rank == 0:
        np.savetxt(args.out, record)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("MASTER_PORT", "29513")
    main()

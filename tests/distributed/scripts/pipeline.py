"""A model whose layers are on different ranks: activations and gradients travel as messages."""

import argparse
import os

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn

WIDTHS, MICRO_BATCHES, BATCH = [12, 16, 16, 16, 4], 4, 16


def draw(shape, seed):
    return torch.from_numpy(np.random.RandomState(seed).randn(*shape).astype("float32"))


class Stage(nn.Module):
    """Consecutive layers; a tanh after each but the last of the model."""

    def __init__(self, first, last):
        super().__init__()
        self.layers = nn.ModuleList()
        for i in range(first, last):
            layer = nn.Linear(WIDTHS[i], WIDTHS[i + 1])
            with torch.no_grad():
                layer.weight.copy_(0.3 * draw(layer.weight.shape, i))
                layer.bias.zero_()
            self.layers.append(layer)
        self.ends = last == len(WIDTHS) - 1

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if not (self.ends and i == len(self.layers) - 1):
                x = torch.tanh(x)
        return x


def forward_all(stage, inputs, rank, size, width):
    """Every micro batch through this stage; what is received and what goes on."""
    kept, sending = [], []
    for micro in inputs.chunk(MICRO_BATCHES):
        if rank > 0:
            micro = torch.empty(len(micro), width)
            dist.recv(micro, src=rank - 1)
            micro.requires_grad_()
        out = stage(micro)
        if rank < size - 1:
            sending.append(dist.isend(out.detach(), dst=rank + 1))
        kept.append((micro, out))
    for request in sending:
        request.wait()
    return kept


def backward_all(kept, targets, rank, size):
    """Gradients come back from the next stage; the mean loss on the last one."""
    losses, sending = [], []
    for (micro, out), target in zip(kept, targets.chunk(MICRO_BATCHES)):
        if rank == size - 1:
            loss = nn.functional.mse_loss(out, target) / MICRO_BATCHES
            loss.backward()
            losses.append(loss.detach())
        else:
            grad = torch.empty_like(out)
            dist.irecv(grad, src=rank + 1).wait()
            torch.autograd.backward(out, grad)
        if rank > 0:
            sending.append(dist.isend(micro.grad, dst=rank - 1))
    for request in sending:
        request.wait()
    return torch.stack(losses).sum() if losses else torch.zeros(())


def ring_exchange(value, rank, size):
    """Everyone's value by messages round a ring."""
    found, going = [value], value
    for _ in range(size - 1):
        coming = torch.empty_like(value)
        ops = [
            dist.P2POp(dist.isend, going, (rank + 1) % size),
            dist.P2POp(dist.irecv, coming, (rank - 1) % size),
        ]
        for request in dist.batch_isend_irecv(ops):
            request.wait()
        found.append(coming)
        going = coming
    return found


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="record.txt")
    args = parser.parse_args(argv)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    layers = len(WIDTHS) - 1
    first, last = rank * layers // size, (rank + 1) * layers // size
    stage = Stage(first, last)
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
    record = []
    for step in range(6):
        inputs, targets = draw((BATCH, WIDTHS[0]), 100 + step), draw((BATCH, WIDTHS[-1]), step)
        optimizer.zero_grad()
        kept = forward_all(stage, inputs, rank, size, WIDTHS[first])
        loss = backward_all(kept, targets, rank, size)
        square = sum(p.grad.square().sum() for p in stage.parameters())
        optimizer.step()
        dist.broadcast(loss, src=size - 1)
        squares = ring_exchange(square.detach().reshape(1), rank, size)
        record += [loss.item(), float(torch.cat(squares).sum().sqrt())]
    if rank == 0:
        np.savetxt(args.out, record)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()

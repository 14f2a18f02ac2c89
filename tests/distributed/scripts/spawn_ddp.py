"""DistributedDataParallel in processes of `mp.spawn`, with a checkpoint that all ranks read."""

import argparse
import os
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.optim as optim
from torch.nn.parallel import DistributedDataParallel as DDP


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def setup(rank, world_size, port):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = port
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def cleanup():
    dist.destroy_process_group()


def draw(shape, seed):
    return torch.from_numpy(np.random.RandomState(seed).randn(*shape).astype("float32"))


def demo_checkpoint(rank, world_size, port, out):
    setup(rank, world_size, port)
    torch.manual_seed(rank)  # DDP gives all ranks the values of rank 0
    model = ToyModel()
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_(0.3 * draw(p.shape, 100 * rank + i))
    ddp_model = DDP(model)
    path = os.path.join(os.path.dirname(out), "model.checkpoint")
    if rank == 0:
        torch.save(ddp_model.state_dict(), path)
    dist.barrier()
    ddp_model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    loss_fn, optimizer = nn.MSELoss(), optim.SGD(ddp_model.parameters(), lr=0.05, momentum=0.9)
    record = []
    for step in range(8):
        inputs, labels = draw((24, 10), 1000 + step), draw((24, 5), 2000 + step)
        mine = slice(rank * 24 // world_size, (rank + 1) * 24 // world_size)
        optimizer.zero_grad()
        loss = loss_fn(ddp_model(inputs[mine]), labels[mine])
        loss.backward()
        norm = nn.utils.clip_grad_norm_(ddp_model.parameters(), 10.0)
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.SUM)
        record += [mean.item() / world_size, float(norm)]
    dist.barrier()
    if rank == 0:
        os.remove(path)
        np.savetxt(out, record)
    cleanup()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--port", default="29511")
    parser.add_argument("--out", default=os.path.join(tempfile.gettempdir(), "record.txt"))
    args = parser.parse_args(argv)
    if args.world_size == 1:
        demo_checkpoint(0, 1, args.port, args.out)
        return
    mp.spawn(
        demo_checkpoint,
        args=(args.world_size, args.port, args.out),
        nprocs=args.world_size,
        join=True,
    )


if __name__ == "__main__":
    main()

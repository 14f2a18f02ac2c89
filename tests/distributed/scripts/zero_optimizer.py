"""Adam whose states are spread over the ranks, saved whole by one of them."""

import argparse

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


def draw(shape, seed):
    return torch.from_numpy(np.random.RandomState(seed).randn(*shape).astype("float32"))


def build_model():
    model = nn.Sequential(*[nn.Linear(24, 24) for _ in range(5)])
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_(0.2 * draw(p.shape, i))
    return model


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="record.txt")
    args = parser.parse_args(argv)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    model = build_model()
    ddp = DistributedDataParallel(model)
    optimizer = ZeroRedundancyOptimizer(
        ddp.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-2, weight_decay=0.1
    )
    record = []
    for step in range(6):
        x, y = draw((24, 24), 50 + step), draw((24, 24), 80 + step)
        mine = slice(rank * 24 // size, (rank + 1) * 24 // size)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(ddp(x[mine]), y[mine])
        loss.backward()
        optimizer.step()
        mean = loss.detach() / size
        dist.all_reduce(mean)
        record.append(mean.item())
    mine = sum(p.numel() for p in optimizer.optim.state)
    owned = torch.tensor([mine])
    dist.all_reduce(owned)
    assert int(owned) == sum(p.numel() for p in model.parameters())  # each state once
    optimizer.consolidate_state_dict(to=0)
    if rank == 0:
        states = optimizer.state_dict()["state"]
        record += [float(states[i]["exp_avg_sq"].sum()) for i in sorted(states)]
        np.savetxt(args.out, record)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

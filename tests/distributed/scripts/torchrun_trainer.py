"""A trainer for torchrun: ranks by its variables, snapshots that a second start goes on from."""

import argparse
import os

import numpy as np
import torch
import torch.nn.functional as F
from torch.distributed import ReduceOp, all_reduce, destroy_process_group, init_process_group
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Points(Dataset):
    def __init__(self, size):
        rng = np.random.RandomState(0)
        self.x = torch.from_numpy(rng.randn(size, 20).astype("float32"))
        self.y = torch.from_numpy(rng.randn(size, 1).astype("float32"))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


def build_model():
    model = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    rng = np.random.RandomState(1)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.from_numpy(0.2 * rng.randn(*p.shape)))
    return model


class Trainer:
    def __init__(self, model, train_data, optimizer, snapshot_path):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.global_rank = int(os.environ["RANK"])
        self.world_size = int(os.environ["WORLD_SIZE"])
        self.model, self.train_data, self.optimizer = model, train_data, optimizer
        self.epochs_run, self.snapshot_path, self.record = 0, snapshot_path, []
        if os.path.exists(snapshot_path):
            self._load_snapshot()
        self.model = DDP(self.model)

    def _load_snapshot(self):
        snapshot = torch.load(self.snapshot_path, map_location="cpu")
        self.model.load_state_dict(snapshot["MODEL_STATE"])
        self.optimizer.load_state_dict(snapshot["OPTIMIZER_STATE"])
        self.epochs_run, self.record = snapshot["EPOCHS_RUN"], snapshot["RECORD"]

    def _save_snapshot(self, epoch):
        state = {
            "MODEL_STATE": self.model.module.state_dict(),
            "OPTIMIZER_STATE": self.optimizer.state_dict(),
            "EPOCHS_RUN": epoch + 1,
            "RECORD": self.record,
        }
        torch.save(state, self.snapshot_path)

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.model(source), targets)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def train(self, epochs, save_every):
        for epoch in range(self.epochs_run, epochs):
            self.train_data.sampler.set_epoch(epoch)
            for source, targets in self.train_data:
                loss = self._run_batch(source, targets)
                all_reduce(loss, ReduceOp.SUM)
                self.record.append(loss.item() / self.world_size)
            if self.global_rank == 0 and epoch % save_every == save_every - 1:
                self._save_snapshot(epoch)


@record
def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=24, help="of all ranks")
    parser.add_argument("--snapshot", default="snapshot.pt")
    parser.add_argument("--out", default="record.txt")
    args = parser.parse_args(argv)
    init_process_group(backend="gloo")
    dataset, model = Points(120), build_model()
    size = int(os.environ["WORLD_SIZE"])
    loader = DataLoader(
        dataset, batch_size=args.batch // size, shuffle=False, sampler=DistributedSampler(dataset)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    trainer = Trainer(model, loader, optimizer, args.snapshot)
    trainer.train(args.epochs, save_every=2)
    if trainer.global_rank == 0:
        np.savetxt(args.out, trainer.record)
    destroy_process_group()


if __name__ == "__main__":
    main()

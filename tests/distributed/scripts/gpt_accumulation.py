"""A small GPT: ranks by torchrun's variables where they are set, accumulation without syncing."""

import argparse
import contextlib
import math
import os

import numpy as np
import torch
import torch.nn as nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

VOCAB, BLOCK, WIDTH, HEADS, MICRO = 17, 12, 16, 2, 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.c_proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(self.ln_1(x)).split(C, dim=2)
        q, k, v = (t.view(B, T, HEADS, C // HEADS).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, WIDTH), nn.Embedding(BLOCK, WIDTH)
        self.h = nn.ModuleList([Block() for _ in range(2)])
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.wte.weight = self.lm_head.weight  # tied

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))

    def configure_optimizers(self, weight_decay, learning_rate, betas):
        params = [p for p in self.parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in params if p.dim() >= 2], "weight_decay": weight_decay},
            {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=learning_rate, betas=betas)


def get_batch(step, micro_step):
    """Micro batch ``micro_step`` of all of a step's."""
    rng = np.random.RandomState(100 * step + micro_step)
    data = torch.from_numpy(rng.randint(0, VOCAB, (MICRO, BLOCK + 1)))
    return data[:, :-1].contiguous(), data[:, 1:].contiguous()


def get_lr(it, learning_rate=1e-2, warmup_iters=2, max_iters=8):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    ratio = (it - warmup_iters) / (max_iters - warmup_iters)
    return learning_rate * 0.5 * (1.0 + math.cos(math.pi * ratio))


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-sync", action="store_true", help="by the context, not the attribute")
    parser.add_argument("--out", default="record.txt")
    args = parser.parse_args(argv)
    gradient_accumulation_steps = 12
    ddp = int(os.environ.get("RANK", -1)) != -1
    if ddp:
        init_process_group(backend="gloo")
        ddp_rank = int(os.environ["RANK"])
        ddp_world_size = int(os.environ["WORLD_SIZE"])
        master_process = ddp_rank == 0
        assert gradient_accumulation_steps % ddp_world_size == 0
        gradient_accumulation_steps //= ddp_world_size
    else:
        master_process, ddp_rank, ddp_world_size = True, 0, 1
    torch.manual_seed(1337 + ddp_rank)
    model, rng = GPT(), np.random.RandomState(0)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            if name.endswith("bias"):
                p.zero_()
            elif p.dim() >= 2:
                p.copy_(torch.from_numpy(0.2 * rng.randn(*p.shape)))
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    optimizer = model.configure_optimizers(0.1, 1e-2, (0.9, 0.95))
    if ddp:
        model = DDP(model, broadcast_buffers=False)
    raw_model = model.module if ddp else model
    record = []
    for step in range(6):
        for group in optimizer.param_groups:
            group["lr"] = get_lr(step)
        for micro_step in range(gradient_accumulation_steps):
            last = micro_step == gradient_accumulation_steps - 1
            syncing = contextlib.nullcontext()
            if ddp and args.no_sync and not last:
                syncing = model.no_sync()
            elif ddp and not args.no_sync:
                model.require_backward_grad_sync = last
            X, Y = get_batch(step, ddp_rank * gradient_accumulation_steps + micro_step)
            with syncing:
                _, loss = model(X, Y)
                scaler.scale(loss / gradient_accumulation_steps).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(raw_model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        record.append(float(norm))
    weights = [float(p.detach().square().sum()) for p in raw_model.parameters()]
    if master_process:
        np.savetxt(args.out, record + weights)
    if ddp:
        destroy_process_group()


if __name__ == "__main__":
    main()

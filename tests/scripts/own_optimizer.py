"""Optimizers of the user's own, Lion and SAM, and an average of the weights that is evaluated."""

import argparse
import copy
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.optimizer import Optimizer


class Lion(Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        if lr < 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.data.mul_(1 - group["lr"] * group["weight_decay"])
                state = self.state[p]
                if len(state) == 0:
                    state["exp_avg"] = torch.zeros_like(p)
                exp_avg, (beta1, beta2) = state["exp_avg"], group["betas"]
                # the sum of two roundings has no stable sign near nothing: tanh for sign
                update = exp_avg * beta1 + p.grad * (1 - beta1)
                p.add_((update * 1e3).tanh_(), alpha=-group["lr"])
                exp_avg.mul_(beta2).add_(p.grad, alpha=1 - beta2)
        return loss


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base_optimizer, rho=0.05, adaptive=False, **kwargs):
        defaults = dict(rho=rho, adaptive=adaptive, **kwargs)
        super().__init__(params, defaults)
        self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups
        self.defaults.update(self.base_optimizer.defaults)

    @torch.no_grad()
    def first_step(self, zero_grad=False):
        grad_norm = self._grad_norm()
        for group in self.param_groups:
            scale = group["rho"] / (grad_norm + 1e-12)
            for p in group["params"]:
                if p.grad is None:
                    continue
                self.state[p]["old_p"] = p.data.clone()
                e_w = (torch.pow(p, 2) if group["adaptive"] else 1.0) * p.grad * scale.to(p)
                p.add_(e_w)
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def second_step(self, zero_grad=False):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.data = self.state[p]["old_p"]
        self.base_optimizer.step()
        if zero_grad:
            self.zero_grad()

    def step(self, closure=None):
        assert closure is not None
        closure = torch.enable_grad()(closure)
        self.first_step(zero_grad=True)
        closure()
        self.second_step()

    def _grad_norm(self):
        shared_device = self.param_groups[0]["params"][0].device
        return torch.norm(
            torch.stack(
                [
                    ((torch.abs(p) if group["adaptive"] else 1.0) * p.grad)
                    .norm(p=2)
                    .to(shared_device)
                    for group in self.param_groups
                    for p in group["params"]
                    if p.grad is not None
                ]
            ),
            p=2,
        )

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        self.base_optimizer.param_groups = self.param_groups


class EMA:
    def __init__(self, model, decay):
        self.model, self.decay = model, decay
        self.average = copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self):
        for mine, theirs in zip(self.average.parameters(), self.model.parameters()):
            mine.lerp_(theirs, 1 - self.decay)
        for mine, theirs in zip(self.average.buffers(), self.model.buffers()):
            mine.copy_(theirs)

    @contextmanager
    def swapped(self):
        kept = [p.data.clone() for p in self.model.parameters()]
        for p, mean in zip(self.model.parameters(), self.average.parameters()):
            p.data.copy_(mean.data)
        try:
            yield self.model
        finally:
            for p, old in zip(self.model.parameters(), kept):
                p.data = old


def switch_running_stats(model, on):
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            if on:
                module.momentum = module.backup_momentum
            else:
                module.backup_momentum, module.momentum = module.momentum, 0


def build_model():
    return nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 1))


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((64, 5), dtype=np.float32)).to(args.device)
    y = (x[:, :1] * x[:, 1:2]).sin() + 0.5 * x[:, 2:3]
    curve = []
    for name in ("lion", "sam", "asam"):
        model = build_model().to(args.device)
        if args.init:
            model.load_state_dict(torch.load(args.init))
        ema = EMA(model, decay=0.8)
        if name == "lion":
            optimizer = Lion(model.parameters(), lr=3e-3, weight_decay=0.1)
        else:
            kwargs = {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3}
            optimizer = SAM(
                model.parameters(), torch.optim.SGD, 0.1, adaptive=name == "asam", **kwargs
            )
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
            getattr(optimizer, "base_optimizer", optimizer), T_max=args.steps
        )

        def closure(model=model):
            switch_running_stats(model, on=False)
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            switch_running_stats(model, on=True)
            return loss

        for _ in range(args.steps):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step(closure if name != "lion" else None)
            schedule.step()
            ema.update()
            curve.append(loss.item())
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        model.eval()
        with torch.no_grad(), ema.swapped() as averaged:
            curve.append(nn.functional.mse_loss(averaged(x), y).item())
        curve.append(nn.functional.mse_loss(model(x), y).item())
    return curve


if __name__ == "__main__":
    print(main())

"""A neural ODE of a spiral; its gradient is an ODE that a Function solves backwards."""

import argparse

import numpy as np
import torch
import torch.nn as nn


def rk4_step(func, t0, dt, t1, y0):
    k1 = func(t0, y0)
    k2 = func(t0 + dt / 2, y0 + dt * k1 / 2)
    k3 = func(t0 + dt / 2, y0 + dt * k2 / 2)
    k4 = func(t1, y0 + dt * k3)
    return dt * (k1 + 2 * (k2 + k3) + k4) / 6


def odeint(func, y0, t):
    solution = torch.empty(len(t), *y0.shape, dtype=y0.dtype, device=y0.device)
    solution[0] = y0
    for j, (t0, t1) in enumerate(zip(t[:-1], t[1:]), 1):
        y0 = y0 + rk4_step(func, t0, t1 - t0, t1, y0)
        solution[j] = y0
    return solution


class OdeintAdjoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, func, y0, t, *params):
        ctx.func = func
        with torch.no_grad():
            y = odeint(func, y0, t)
            ctx.save_for_backward(t, y, *params)
        return y

    @staticmethod
    def backward(ctx, grad_y):
        with torch.no_grad():
            func = ctx.func
            t, y, *params = ctx.saved_tensors
            params = tuple(params)
            sizes = [p.numel() for p in params]

            def augmented(t, state):
                y, adj_y = state[: y0.numel()].view_as(y0), state[y0.numel() : 2 * y0.numel()]
                with torch.enable_grad():
                    t_ = t.detach().requires_grad_(True)
                    y = y.detach().requires_grad_(True)
                    out = func(t_, y)
                    vjp_t, vjp_y, *vjp_params = torch.autograd.grad(
                        out,
                        (t_, y, *params),
                        -adj_y.view_as(y0),
                        allow_unused=True,
                        retain_graph=True,
                    )
                vjp_t = torch.zeros_like(t) if vjp_t is None else vjp_t
                vjp_params = [
                    torch.zeros_like(p) if v is None else v for p, v in zip(params, vjp_params)
                ]
                parts = [out, vjp_y, *vjp_params, vjp_t]
                return torch.cat([p.contiguous().flatten() for p in parts])

            y0 = y[-1]
            adj_y = grad_y[-1].clone()
            adj_params, adj_t = y.new_zeros(sum(sizes)), y.new_zeros(1)
            time_vjps = torch.empty(len(t), dtype=t.dtype, device=t.device)
            for i in range(len(t) - 1, 0, -1):
                y0 = y[i]
                dldt = func(t[i], y[i]).reshape(-1).dot(grad_y[i].reshape(-1))
                adj_t -= dldt
                time_vjps[i] = dldt
                state = torch.cat([y0.flatten(), adj_y.flatten(), adj_params, adj_t])
                state = odeint(augmented, state, t[i - 1 : i + 1].flip(0))[1]
                n = y0.numel()
                adj_y = state[n : 2 * n].view_as(y0) + grad_y[i - 1]
                adj_params, adj_t = state[2 * n : -1], state[-1:]
            time_vjps[0] = adj_t
        split = torch.split(adj_params, sizes)
        return None, adj_y, time_vjps, *(g.view_as(p) for g, p in zip(split, params))


class ODEFunc(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
        self.unused = nn.Linear(2, 2)
        self.nfe = 0
        for m in self.net.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, mean=0, std=0.3)
                nn.init.constant_(m.bias, val=0)

    def forward(self, t, y):
        self.nfe += 1
        return self.net(y**3) * torch.cos(t)


def build_model():
    return ODEFunc()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    device = torch.device(args.device)
    times = np.linspace(0.0, 1.5, 9, dtype=np.float32)
    spiral = np.stack([np.exp(-0.3 * times) * f(2 * times) for f in (np.cos, np.sin)], 1)
    true_y = torch.from_numpy(spiral).to(device).unsqueeze(1) * 1.5
    losses = []
    for adjoint in (False, True):
        func = build_model().to(device)
        if args.init:
            func.load_state_dict(torch.load(args.init))
        y0 = nn.Parameter(true_y[0].clone())
        t = torch.from_numpy(times).to(device).requires_grad_(True)
        optimizer = torch.optim.RMSprop([*func.parameters(), y0], lr=1e-3, eps=1e-4)
        for _ in range(args.steps):
            optimizer.zero_grad()
            if adjoint:
                pred_y = OdeintAdjoint.apply(func, y0, t, *func.parameters())
            else:
                pred_y = odeint(func, y0, t)
            loss = torch.mean(torch.abs(pred_y - true_y) ** 1.5)
            loss.backward()
            optimizer.step()
            losses += [loss.item(), t.grad.norm().item(), y0.grad.sum().item()]
            t.grad = None
        losses.append(func.nfe)
    return losses


if __name__ == "__main__":
    print(main())

"""Model-agnostic meta-learning of sines: inner steps that the outer gradient goes through."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F


def build_model():
    return nn.Sequential(
        nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 20), nn.Softplus(), nn.Linear(20, 1)
    )


def tasks(rng, device, number=4, shots=5):
    def on_device(array):
        return torch.from_numpy(array.astype(np.float32)).to(device)

    amplitude = rng.uniform(0.5, 2, (number, 1, 1))
    phase = rng.uniform(0, np.pi, (number, 1, 1))
    x = rng.uniform(-3, 3, (number, 2 * shots, 1))
    x, y = on_device(x), on_device(amplitude * np.sin(x + phase))
    return x[:, :shots], y[:, :shots], x[:, shots:], y[:, shots:]


def adapt(model, weights, x, y, steps, lr, create_graph=True):
    for _ in range(steps):
        loss = F.mse_loss(functional_call(model, weights, (x,)), y)
        grads = torch.autograd.grad(loss, tuple(weights.values()), create_graph=create_graph)
        weights = {n: p - lr * g for (n, p), g in zip(weights.items(), grads)}
    return weights


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--init", help="a state dict to start from")
    args = parser.parse_args(argv)
    rng = np.random.default_rng(0)
    model = build_model().to(args.device)
    if args.init:
        model.load_state_dict(torch.load(args.init))
    rates = nn.ParameterDict(  # learned rates of the inner steps, one a parameter
        {n.replace(".", "_"): torch.full_like(p, 0.05) for n, p in model.named_parameters()}
    )
    optimizer = torch.optim.Adam([*model.parameters(), *rates.parameters()], lr=2e-3)
    losses = []
    for _ in range(args.steps):  # a loop over the tasks, two steps in each
        outer = torch.zeros((), device=args.device)
        for x, y, x_query, y_query in zip(*tasks(rng, args.device)):
            weights = dict(model.named_parameters())
            for _ in range(2):
                loss = F.mse_loss(functional_call(model, weights, x), y)
                grads = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
                weights = {
                    n: p - rates[n.replace(".", "_")] * g
                    for (n, p), g in zip(weights.items(), grads)
                }
            outer = outer + F.mse_loss(functional_call(model, weights, x_query), y_query)
        optimizer.zero_grad()
        outer.div(4).backward()
        optimizer.step()
        losses.append(outer.item())

    params = {k: v.detach().requires_grad_() for k, v in model.named_parameters()}
    functional = torch.optim.SGD(params.values(), lr=0.02)

    def task_loss(params, x, y, x_query, y_query):
        inner = grad(lambda p: F.mse_loss(functional_call(model, p, x), y))(params)
        fast = {n: p - 0.05 * inner[n] for n, p in params.items()}
        return F.mse_loss(functional_call(model, fast, x_query), y_query)

    for _ in range(args.steps):  # all tasks at once, by vmap
        batch = tasks(rng, args.device)
        loss = vmap(task_loss, in_dims=(None, 0, 0, 0, 0))(params, *batch).mean()
        functional.zero_grad()
        loss.backward()
        functional.step()
        losses.append(loss.item())

    x, y, x_query, y_query = (t[0] for t in tasks(rng, args.device))
    adapted = adapt(model, dict(model.named_parameters()), x, y, 3, 0.05, create_graph=False)
    return [*losses, F.mse_loss(functional_call(model, adapted, x_query), y_query).item()]


if __name__ == "__main__":
    print(main())

"""Ten loops as people write them, small enough that what is measured is the price of each op.

``PROGRAMS[name](rng, steps)`` makes a program's data with NumPy and returns ``program(torch)``, the
same code for every module of PyTorch's API; that returns `Loop`: a step, which is told its number,
and the tensors by which the loop is judged in the end. No step reads a value unless people would.
Weights are updated by hand, as the first use of `torch.optim` imports torch's compiler: seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bench.models import seed

__all__ = ["PROGRAMS", "Loop", "Made", "Program"]

WIDTH, BATCH, CLASSES = 64, 32, 10


class Loop(NamedTuple):
    """A program that has been set up."""

    step: Callable[[int], None]
    results: Callable[[], Sequence[Any]]


Made = Callable[[Any], Loop]  # program(torch)
Program = Callable[[np.random.Generator, int], Made]


def item(data: Any, i: int) -> Any:
    """The data of a step; those of a long run go round."""
    return data[i % len(data)]


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    return rng.standard_normal(shape, np.float32) * np.float32(scale)


class Digits:
    """Batches for a classifier, and one: two layers of 64 with a ReLU between them."""

    def __init__(self, rng: np.random.Generator, steps: int) -> None:
        self.images = normal(rng, steps, BATCH, WIDTH)
        self.labels = rng.integers(0, CLASSES, (steps, BATCH))

    def model(self, torch: Any) -> Any:
        nn = torch.nn
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))
        seed(torch, model, np.random.default_rng(1), WIDTH**-0.5)
        return model

    def loss(self, torch: Any, model: Any, i: int) -> Any:
        images, labels = (torch.tensor(item(d, i)) for d in (self.images, self.labels))
        return torch.nn.functional.cross_entropy(model(images), labels)


def adam(rng: np.random.Generator, steps: int) -> Made:
    """Adam written by hand, its bias correction another number in every step."""
    digits = Digits(rng, steps)

    def program(torch: Any) -> Loop:
        model = digits.model(torch)
        params = list(model.parameters())
        means = [torch.zeros_like(p) for p in params]
        squares = [torch.zeros_like(p) for p in params]
        lr, beta1, beta2, eps = 1e-3, 0.9, 0.999, 1e-8

        def step(i: int) -> None:
            model.zero_grad()
            digits.loss(torch, model, i).backward()
            correction1, correction2 = 1 - beta1 ** (i + 1), 1 - beta2 ** (i + 1)
            with torch.no_grad():
                for p, m, v in zip(params, means, squares, strict=True):
                    m.mul_(beta1).add_(p.grad, alpha=1 - beta1)
                    v.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                    denom = (v.sqrt() / math.sqrt(correction2)).add_(eps)
                    p.addcdiv_(m, denom, value=-lr / correction1)

        return Loop(step, lambda: [*params, *means])

    return program


def running_statistics(rng: np.random.Generator, steps: int) -> Made:
    """Mean and variance by Welford, and a moving average of both; nothing is read until the end."""
    values = normal(rng, steps, BATCH, WIDTH)

    def program(torch: Any) -> Loop:
        mean, m2, average, spread = (torch.zeros(BATCH, WIDTH) for _ in range(4))

        def step(i: int) -> None:
            nonlocal mean, spread
            x = torch.tensor(item(values, i))
            delta = x - mean
            mean = mean + delta / (i + 1)
            m2.add_(delta * (x - mean))
            average.mul_(0.9).add_(x, alpha=0.1)
            spread = 0.9 * spread + 0.1 * (x - average) ** 2

        return Loop(step, lambda: [mean, m2 / (steps - 1), average, spread.sqrt()])

    return program


def lion(rng: np.random.Generator, steps: int) -> Made:
    """Lion (Chen et al., 2023) as people write it; its rate falls, nobody reads its momenta."""
    digits = Digits(rng, steps)

    def program(torch: Any) -> Loop:
        model = digits.model(torch)
        params = list(model.parameters())
        momenta = [torch.zeros_like(p) for p in params]

        def step(i: int) -> None:
            lr = 1e-3 / math.sqrt(i + 1)
            grads = torch.autograd.grad(digits.loss(torch, model, i), params)
            with torch.no_grad():
                for q, g, b in zip(params, grads, momenta, strict=True):
                    u = b.mul(0.9).add(g, alpha=0.1).sign_().add(q, alpha=0.01)
                    q.add_(u, alpha=-lr)
                    b.mul_(0.99).add_(g, alpha=0.01)

        return Loop(step, lambda: [*params, *momenta])

    return program


def weight_average(rng: np.random.Generator, steps: int) -> Made:
    """Two moving averages of a model's weights while SGD trains it."""
    digits = Digits(rng, steps)

    def program(torch: Any) -> Loop:
        model = digits.model(torch)
        slow = [p.detach().clone() for p in model.parameters()]
        fast = [p.detach().clone() for p in model.parameters()]

        def step(i: int) -> None:
            model.zero_grad()
            digits.loss(torch, model, i).backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
                for p, a, b in zip(model.parameters(), slow, fast, strict=True):
                    a.mul_(0.999).add_(p.detach(), alpha=0.001)
                    b.lerp_(p, 0.1)

        return Loop(step, lambda: [*slow, *fast])

    return program


def recurrence(rng: np.random.Generator, steps: int) -> Made:
    """A recurrence written out, over sequences of 5 to 60 items, and back through time."""
    lengths = rng.integers(5, 61, steps)
    sequences = [normal(rng, int(n), BATCH, 16) for n in lengths]
    targets = normal(rng, steps, BATCH, WIDTH, scale=0.3)
    weights = [normal(rng, 16, WIDTH, scale=0.25), normal(rng, WIDTH, WIDTH, scale=0.1)]

    def program(torch: Any) -> Loop:
        w, u = (torch.tensor(a, requires_grad=True) for a in weights)
        bias = torch.zeros(WIDTH, requires_grad=True)
        losses: list[float] = []

        def step(i: int) -> None:
            h = torch.zeros(BATCH, WIDTH)
            for x in torch.tensor(item(sequences, i)):
                h = torch.tanh(x @ w + h @ u + bias)
            loss = ((h - torch.tensor(item(targets, i))) ** 2).mean()
            loss.backward()
            with torch.no_grad():
                for p in (w, u, bias):
                    p -= 0.5 * p.grad
                    p.grad = None
            losses.append(loss.item())

        return Loop(step, lambda: [w, u, bias, torch.tensor(losses)])

    return program


def runge_kutta(rng: np.random.Generator, steps: int) -> Made:
    """Two differential equations by RK4, one of a network and one elementwise, and gradients."""
    starts = normal(rng, steps, BATCH, 8)
    weights = [normal(rng, 8, WIDTH, scale=0.3), normal(rng, WIDTH, 8, scale=0.1)]

    def program(torch: Any) -> Loop:
        w1, w2 = (torch.tensor(a, requires_grad=True) for a in weights)
        rate = torch.full((8,), 0.5, requires_grad=True)
        limit = torch.full((8,), 2.0, requires_grad=True)
        params = [w1, w2, rate, limit]

        def network(y: Any) -> Any:
            return torch.tanh(y @ w1) @ w2

        def logistic(y: Any) -> Any:
            return rate * y * (1 - y / limit)

        def solve(f: Callable[[Any], Any], y: Any, h: float, count: int) -> Any:
            for _ in range(count):
                k1 = f(y)
                k2 = f(y + h / 2 * k1)
                k3 = f(y + h / 2 * k2)
                k4 = f(y + h * k3)
                y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            return y

        def step(i: int) -> None:
            y = torch.tensor(item(starts, i))
            loss = solve(network, y, 0.1, 8).square().mean()
            loss = loss + (solve(logistic, y.sigmoid(), 0.1, 8) - 1).square().mean()
            grads = torch.autograd.grad(loss, params)
            with torch.no_grad():
                for p, g in zip(params, grads, strict=True):
                    p.sub_(g, alpha=0.05)

        return Loop(step, lambda: params)

    return program


def bisection(rng: np.random.Generator, steps: int) -> Made:
    """40 halvings of an interval around each element's root of ``y + y**3 = x``."""
    values = normal(rng, steps, BATCH, WIDTH)

    def program(torch: Any) -> Loop:
        total = torch.zeros(BATCH, WIDTH)

        def step(i: int) -> None:
            nonlocal total
            x = torch.tensor(item(values, i))
            low, high = torch.full_like(x, -8.0), torch.full_like(x, 8.0)
            for _ in range(40):
                middle = (low + high) / 2
                below = middle + middle**3 < x
                low = torch.where(below, middle, low)
                high = torch.where(below, high, middle)
            total = total + (low + high) / 2

        return Loop(step, lambda: [total])

    return program


def batches(rng: np.random.Generator, steps: int) -> Made:
    """A small convolutional classifier on batches of 1 to 64 images, SGD with momentum."""
    sizes = rng.integers(1, 65, steps)
    images = [normal(rng, int(n), 1, 12, 12) for n in sizes]
    labels = [rng.integers(0, CLASSES, int(n)) for n in sizes]

    def program(torch: Any) -> Loop:
        nn = torch.nn
        model = nn.Sequential(
            *(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(200, WIDTH), nn.GELU(), nn.Linear(WIDTH, CLASSES)),
        )
        seed(torch, model, np.random.default_rng(1), 0.1)
        params = list(model.parameters())
        momenta = [torch.zeros_like(p) for p in params]
        losses: list[float] = []

        def step(i: int) -> None:
            model.zero_grad()
            scores = model(torch.tensor(item(images, i)))
            loss = nn.functional.cross_entropy(scores, torch.tensor(item(labels, i)))
            loss.backward()
            with torch.no_grad():
                for p, b in zip(params, momenta, strict=True):
                    b.mul_(0.9).add_(p.grad)
                    p.add_(b, alpha=-0.05)
            losses.append(loss.item())

        return Loop(step, lambda: [*params, torch.tensor(losses)])

    return program


def langevin(rng: np.random.Generator, steps: int) -> Made:
    """Samples of a chain of double wells by Langevin's equation."""
    start, noise = normal(rng, 256, 16), normal(rng, steps, 256, 16)

    def program(torch: Any) -> Loop:
        x = torch.tensor(start)
        lr = 0.01

        def energy(x: Any) -> Any:
            wells = ((x**2 - 1) ** 2).sum()
            return wells + 0.5 * ((x[:, 1:] - x[:, :-1]) ** 2).sum()

        def step(i: int) -> None:
            nonlocal x
            x.requires_grad_(True)
            (g,) = torch.autograd.grad(energy(x), x)
            x = (x - lr * g + math.sqrt(2 * lr) * torch.tensor(item(noise, i))).detach()

        return Loop(step, lambda: [x])

    return program


def gradient_penalty(rng: np.random.Generator, steps: int) -> Made:
    """A critic whose gradient by its input is held near length one (Gulrajani et al., 2017)."""
    real, fake = normal(rng, steps, BATCH, 16), normal(rng, steps, BATCH, 16, scale=2.0)
    mixing = rng.random((steps, BATCH, 1), np.float32)

    def program(torch: Any) -> Loop:
        nn = torch.nn
        critic = nn.Sequential(
            *(nn.Linear(16, WIDTH), nn.LeakyReLU(0.2)),
            *(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1)),
        )
        seed(torch, critic, np.random.default_rng(1), 0.2)
        losses: list[float] = []

        def step(i: int) -> None:
            a, b, t = (torch.tensor(item(data, i)) for data in (real, fake, mixing))
            between = (t * a + (1 - t) * b).requires_grad_(True)
            scores = critic(between)
            (g,) = torch.autograd.grad(scores.sum(), between, create_graph=True)
            penalty = ((g.norm(2, dim=1) - 1) ** 2).mean()
            loss = critic(b).mean() - critic(a).mean() + 10 * penalty
            critic.zero_grad()
            loss.backward()
            with torch.no_grad():
                for p in critic.parameters():
                    p.sub_(p.grad, alpha=0.01)
            losses.append(loss.item())

        return Loop(step, lambda: [*critic.parameters(), torch.tensor(losses)])

    return program


PROGRAMS: dict[str, Program] = {
    "adam": adam,
    "statistics": running_statistics,
    "lion": lion,
    "weight-average": weight_average,
    "recurrence": recurrence,
    "runge-kutta": runge_kutta,
    "bisection": bisection,
    "batches": batches,
    "langevin": langevin,
    "gradient-penalty": gradient_penalty,
}

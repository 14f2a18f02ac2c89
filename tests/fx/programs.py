"""Random modules, written once and traced by both packages."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

# What makes a value of a module's state and earlier values; all are of shape (2, 3, 4).
Step = Callable[[Any, Any, Any, Any], Any]
STEPS: dict[str, Step] = {
    "add": lambda t, m, a, b: a + b,
    "scaled": lambda t, m, a, b: 0.5 * a - b / 2,
    "power": lambda t, m, a, b: (a * a + 1) ** 0.5,
    "negated": lambda t, m, a, b: -a @ m.square,
    "parameter": lambda t, m, a, b: a * m.weight + m.inner.weight,
    "buffer": lambda t, m, a, b: a + m.shift,
    "constant": lambda t, m, a, b: a * m.plain,
    "literal": lambda t, m, a, b: a * t.ones(4) + b,
    "tensor first": lambda t, m, a, b: m.plain * a,
    "leaf": lambda t, m, a, b: m.linear(a),
    "sequence": lambda t, m, a, b: m.layers(a),
    "traced through": lambda t, m, a, b: m.inner(a, b),
    "method": lambda t, m, a, b: a.tanh().mul(b),
    "keywords": lambda t, m, a, b: a - b.mean(dim=-1, keepdim=True),
    "shape": lambda t, m, a, b: a.reshape(a.shape[0] * a.shape[1], -1).view(a.shape),
    "unpacked": lambda t, m, a, b: _unpacked(a),
    "index": lambda t, m, a, b: a[:, 1:2] + b[..., None, 0],
    "both": lambda t, m, a, b: _halves(a) + b,
    "torch": lambda t, m, a, b: t.add(t.sin(a), b, alpha=2),
    "joined": lambda t, m, a, b: t.cat([a[:, :2], b[:, 2:]], dim=1),
    "stacked": lambda t, m, a, b: t.stack((a, b)).sum(0),
    "relu": lambda t, m, a, b: t.relu(a) + t.nn.functional.relu(b),
    "softmax": lambda t, m, a, b: t.nn.functional.softmax(a, -1),
    "norm": lambda t, m, a, b: t.nn.functional.layer_norm(a, (4,), m.inner.weight),
    "dropout": lambda t, m, a, b: t.nn.functional.dropout(a, 0.0, training=True),
    "where": lambda t, m, a, b: t.where(a > 0, a, b),
    "einsum": lambda t, m, a, b: t.einsum("abc,cd->abd", a, m.square),
    "split": lambda t, m, a, b: t.cat(t.split(a, 2, dim=-1)[::-1], -1),
    "size": lambda t, m, a, b: a + t.zeros(b.size(0), 1, 1),
}


def _unpacked(a: Any) -> Any:
    batch, rows, columns = a.shape
    return a.view(batch * rows, columns).view(batch, rows, columns)


def _halves(a: Any) -> Any:
    left, right = a.chunk(2, -1)
    return (left + right).repeat(1, 1, 2)


def model(torch: Any, seed: int, length: int = 8) -> Any:
    """A random module of one of the packages, of two arguments of shape (2, 3, 4)."""
    rng = random.Random(seed)
    plan = [(rng.choice(sorted(STEPS)), rng.random(), rng.random()) for _ in range(length)]

    def numbers(*shape: int) -> Any:
        count = 1
        for extent in shape:
            count *= extent
        values = [rng.uniform(-1, 1) for _ in range(count)]
        return torch.tensor(values, dtype=torch.float64).reshape(shape)

    class Inner(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(numbers(4))

        def forward(self, x: Any, y: Any = None) -> Any:
            return x * self.weight + y

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(numbers(3, 4))
            self.square = torch.nn.Parameter(numbers(4, 4))
            self.register_buffer("shift", numbers(4))
            self.plain = numbers(3, 4)
            self.linear = torch.nn.Linear(4, 4).double()
            self.layers = torch.nn.Sequential(torch.nn.Linear(4, 4).double(), torch.nn.Tanh())
            self.inner = Inner()
            for parameter in [*self.linear.parameters(), *self.layers.parameters()]:
                parameter.data = numbers(*parameter.shape)

        def forward(self, x: Any, y: Any, scale: float = 2.0) -> Any:
            values = [x, y * scale]
            for name, first, second in plan:
                a = values[int(first * len(values))]
                b = values[int(second * len(values))]
                values.append(STEPS[name](torch, self, a, b))
            return {"last": values[-1], "all": (values[-2], [sum(values[2:])])}

    return Model()


def described(graph: Any) -> list[tuple[str, str, str, str]]:
    """The nodes of a graph of either package: kind, name, target and what is passed."""
    return [
        (n.op, n.name, getattr(n.target, "__name__", n.target), f"{n.args} {n.kwargs}")
        for n in graph.nodes
    ]


def unprefixed(code: str) -> str:
    """A source without the modules of the functions that it calls."""
    return re.sub(r"\b(torch|lucid_gpu)(\.\w+)*\.(\w+)\(", r"\3(", code)

"""Run the text of a small network on PyTorch or lucid_gpu, and collect every number it gives.

A `Network` is Python text in terms of ``torch``, ``F`` and ``nn``, and of the letters that
`Leaves` gives a meaning. Its sizes are ``N``, ``C`` and ``S``; parameters take their shapes from
the values that they meet, so that a line can be left out, or a size made smaller, without another
line having to change. `script` writes a network as a file that runs on its own: the code between
the two marks below is part of it.
"""

from __future__ import annotations

import importlib
import inspect
import math
import re
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Results = list[tuple[str, Any]]


class Network(NamedTuple):
    """Lines that compute a loss, sizes, and how the network is trained.

    ``train`` is one of `TRAINING`, ``made`` one of `MADE`; a network that draws masks of dropout
    is ``seeded``, and PyTorch's masks are others.
    """

    lines: tuple[str, ...]
    sizes: dict[str, int]
    dtype: str = "float32"
    train: str = "once"
    made: str = "clone"
    seed: int = 0
    seeded: bool = False


TRAINING = (
    *("once", "twice", "sgd", "momentum", "adam"),
    *("sgd by hand", "momentum by hand", "adam by hand", "lion by hand", "average by hand"),
)
STEPS = 5  # of a network that is trained: from the third on, its loop is known
MADE = ("clone", "tensor", "shared")


class Leaves:
    """Tensors by name; each is made when it is first asked for, its numbers drawn from its name.

    ``noise`` moves every number by so much of itself, at random, and the gradient of each value of
    the network by so much of its largest entry: gradients that cancel to zero are then not zero.
    """

    def __init__(self, torch: Any, dtype: str, made: str, seed: int, noise: float = 0.0) -> None:
        self.torch, self.dtype, self.made = torch, dtype, made
        self.seed, self.noise = seed, noise
        self.found: dict[str, Any] = {}
        self.modules: dict[str, Any] = {}
        self.buffers = set[str]()

    def draws(self, name: str) -> Any:
        return np.random.default_rng([self.seed, zlib.crc32(name.encode())])

    def array(self, name: str, shape: tuple[int, ...], scale: float = 1.0) -> Any:
        values = self.draws(name).uniform(-scale, scale, shape)
        moved = 1 + self.noise * self.draws(name + " moved").standard_normal(shape)
        return np.ascontiguousarray((values * moved).astype(self.dtype))

    def tensor(self, array: Any) -> Any:
        if self.made == "tensor":
            return self.torch.tensor(array)
        shared = self.torch.from_numpy(array)
        return shared.clone() if self.made == "clone" else shared

    def P(self, name: str, *shape: int) -> Any:  # a parameter
        if name not in self.found:
            scale = (3 / max(math.prod(shape[1:]), 1)) ** 0.5 if len(shape) > 1 else 1.0
            self.found[name] = self.tensor(self.array(name, shape, scale)).requires_grad_()
        return self.found[name]

    def X(self, name: str, *shape: int) -> Any:  # an input that requires grad
        if name not in self.found:
            self.found[name] = self.tensor(self.array(name, shape, 2.0)).requires_grad_()
        return self.found[name]

    def L(self, name: str, *shape: int) -> Any:  # an input whose channels lie last
        if name not in self.found:
            made = self.tensor(self.array(name, shape, 2.0))
            last = made.to(memory_format=self.torch.channels_last)
            self.found[name] = last.detach().requires_grad_()
        return self.found[name]

    def K(self, name: str, *shape: int) -> Any:  # a constant
        return self.tensor(self.array(name, shape))

    def I(self, name: str, end: int, *shape: int) -> Any:  # noqa: E743 - indices below an end
        return self.torch.from_numpy(self.draws(name).integers(0, end, shape))

    def B(self, name: str, value: float, *shape: int) -> Any:  # a buffer that is written
        if name not in self.found:
            self.found[name] = self.tensor(np.full(shape, value, self.dtype))
            self.buffers.add(name)
        return self.found[name]

    def M(self, name: str, build: Callable[[], Any]) -> Any:  # a module
        if name not in self.modules:
            made = self.modules[name] = build().to(getattr(self.torch, self.dtype))
            for part, p in made.named_parameters():
                full, shape = f"{name}.{part}", tuple(p.shape)
                scale = (1 / max(math.prod(shape[1:]), 1)) ** 0.5 if len(shape) > 1 else 0.5
                with self.torch.no_grad():
                    p.copy_(self.torch.from_numpy(self.array(full, shape, scale)))
                self.found[full] = p
        return self.modules[name]

    def drop(self, name: str, x: Any, p: float) -> Any:  # dropout by a given mask
        kept = self.draws(name).random(tuple(x.shape)) >= p
        return x * self.torch.from_numpy((kept / (1 - p)).astype(self.dtype))

    def parameters(self) -> dict[str, Any]:
        return {name: t for name, t in self.found.items() if name not in self.buffers}

    def move(self, name: str, value: Any) -> None:  # the gradient of a value, by noise
        if getattr(value, "requires_grad", False):
            drawn = self.draws(name + " gradient").standard_normal(tuple(value.shape))
            noise = self.torch.from_numpy(np.asarray(self.noise * drawn, self.dtype))
            # of the largest entry, as sums of many numbers are rounded
            value.register_hook(lambda g: g + noise * g.abs().max() if g.numel() else g)


def snake_of(torch: Any) -> Any:
    """A Function of a user's."""

    class Snake(torch.autograd.Function):
        """``x + sin(x)^2``."""

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x + torch.sin(x) ** 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            return grad * (1 + torch.sin(2 * x))

    return Snake.apply


def by_hand(rule: str, p: Any, g: Any, m: Any, v: Any) -> None:
    """An optimizer's step as people write it; nobody reads the state between the steps."""
    if rule == "adam by hand":
        m.mul_(0.9).add_(g, alpha=0.1)
        v.mul_(0.99).addcmul_(g, g, value=0.01)
        p.addcdiv_(m, v.sqrt().add_(0.1), value=-0.02)
    elif rule == "lion by hand":
        u = m.mul(0.9).add(g, alpha=0.1).mul_(4.0).tanh_().add(p, alpha=0.01)
        p.add_(u, alpha=-0.01)
        m.mul_(0.99).add_(g, alpha=0.01)
    elif rule == "momentum by hand":
        m.mul_(0.9).add_(g)
        p.sub_(0.05 * m)
    else:
        p.add_(g, alpha=-0.05)
    if rule == "average by hand":
        m.lerp_(p, 0.1)


def update(torch: Any, train: str, parameters: list[Any], state: dict[Any, Any]) -> None:
    """One step of an optimizer, PyTorch's or written by hand."""
    if train.endswith("by hand"):
        with torch.no_grad():
            for i, p in enumerate(parameters):
                # where nothing comes back PyTorch has zeros now and then, and we have None
                g = torch.zeros_like(p) if p.grad is None else p.grad
                m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
                by_hand(train, p, g, m, v)
                p.grad = None
        return
    if not state:
        state["optimizer"] = {
            "sgd": lambda: torch.optim.SGD(parameters, lr=0.05),
            "momentum": lambda: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True),
            "adam": lambda: torch.optim.Adam(parameters, lr=0.01, eps=0.1),
        }[train]()
    state["optimizer"].step()
    state["optimizer"].zero_grad()


def run(torch: Any, network: Any, noise: float = 0.0) -> list[tuple[str, Any]]:
    """Losses, gradients, buffers and trained parameters of a network, by name."""
    leaves = Leaves(torch, network.dtype, network.made, network.seed, noise)
    names = {"torch": torch, "F": torch.nn.functional, "nn": torch.nn, "gcd": math.gcd}
    names.update(network.sizes, snake=snake_of(torch))
    names["checkpoint"] = importlib.import_module(f"{torch.__name__}.utils.checkpoint").checkpoint
    names.update({letter: getattr(leaves, letter) for letter in "PXLKIBM"}, drop=leaves.drop)
    lines = list(network.lines)
    if noise:
        made = [re.match(r"(\w+) = ", line) for line in lines]
        moves = [f"; move({m[1]!r}, {m[1]})" if m else "" for m in made]
        lines = [line + more for line, more in zip(lines, moves)]
        names["move"] = leaves.move
    exec("def forward():\n    " + "\n    ".join(lines), names)
    torch.manual_seed(network.seed)
    found: list[tuple[str, Any]] = []
    state: dict[Any, Any] = {}
    steps = 1 if network.train in ("once", "twice") else STEPS
    for step in range(steps):
        loss = names["forward"]()
        loss.backward(retain_graph=network.train == "twice")
        if network.train == "twice":
            loss.backward()
        if step < steps - 1:
            update(torch, network.train, list(leaves.parameters().values()), state)
        read = network.seed % 2  # at each step, or when all is done
        found.append((f"loss {step}", np.array(loss.item(), network.dtype) if read else loss))
    kept = [(n, t) for n, t in leaves.found.items() if n in leaves.buffers or steps > 1]
    grads = [(f"gradient of {n}", t.grad) for n, t in leaves.parameters().items()]
    kept += [(f"state {i}", t) for i, s in state.items() if i != "optimizer" for t in s]
    every = found + grads + kept
    return [(n, np.array(t.detach().numpy()) if hasattr(t, "detach") else t) for n, t in every]


def report(mine: list[tuple[str, Any]], theirs: list[tuple[str, Any]]) -> None:
    """Print how far two results are apart, and a checksum of the first one's bits."""
    for (name, a), (_, b) in zip(mine, theirs):
        if a is None or b is None:
            print(f"{name}: {a is not None} {b is not None}")
            continue
        apart = np.abs(a.astype(float) - b).max(initial=0) / (np.abs(b).max(initial=0) or 1)
        print(f"{name}: {apart:.1e} of the largest entry apart; bits {zlib.crc32(a.tobytes()):08x}")


SCRIPT = '''"""{why}

{environment}python THIS_FILE says of each number how far it is from {judge}'s: 1e-6 is a rounding.
"""

from __future__ import annotations

import importlib
import math
import re
import zlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
{imports}

STEPS = {steps}
{code}

LINES = """\\
{lines}
"""
network = SimpleNamespace(
    lines=LINES.splitlines(),
    {rest},
)
report(run(lucid_gpu, network), {judged})
'''


def script(network: Network, why: str, environment: str = "") -> str:
    """A file that runs a network on its own, and prints how far off its numbers are."""
    judge = "LUCID_EAGER=1" if network.seeded else "torch"
    other = "from lucid_gpu.fusion import eager" if network.seeded else "import torch"
    fields = {k: v for k, v in network._asdict().items() if k not in ("lines", "seeded")}
    return SCRIPT.format(
        why=why,
        environment=environment and environment + " ",
        judge=judge,
        imports=f"import lucid_gpu\n{other}",
        steps=STEPS,
        code="\n\n".join(
            inspect.getsource(part) for part in (Leaves, snake_of, by_hand, update, run, report)
        ),
        lines="\n".join(network.lines),
        rest=",\n    ".join(f"{name}={value!r}" for name, value in fields.items()),
        judged="eager()(run)(lucid_gpu, network)" if network.seeded else "run(torch, network)",
    )

"""What is measured. Each case is written once against the API that all peers share.

A case's ``build(torch, device, compiled)`` gets the peer's module under the name ``torch``, makes
its inputs from a seeded NumPy generator, and returns a step: a function of no arguments that does
the work once and returns the tensors by which it is judged. ``compiled`` is `torch.compile` for the
compiling peer, JAX's and tinygrad's own for those, and the identity for all others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench import arrays, models
from bench.chains import CHAINS
from bench.peers import ANYBODY, NUMPYS, SUBJECT, TORCHES

Step = Callable[[], tuple[Any, ...]]
Compiled = Callable[[Callable[..., Any]], Callable[..., Any]]
Build = Callable[[Any, str, Compiled], Step]


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Attributes
    ----------
    measure : str
        ``"time"`` (seconds a step), ``"memory"`` (peak beyond the inputs, in arrays of the input's
        size), ``"fresh"`` (seconds of a fresh process beyond a bare interpreter) or ``"size"``
        (bytes on the disk, in MB).
    build : callable, optional
        See this module; only times and memory have one.
    program : str
        What a fresh process runs; ``{module}`` stands for the peer's module.
    at_most : float, optional
        The target: a ratio to the baseline for times, an amount in the case's unit otherwise.
    compiled_at_most : float, optional
        A second target: a ratio to torch.compile.
    compiles : bool
        Whether torch.compile takes part.
    peers : tuple of str
        Who takes part: the subject, then the one to which it is compared, then others.
    check_steps : int
        Steps after which results are compared with the baseline's.
    tolerance : float
        The largest difference allowed, relative to the largest value of the baseline's result.
    array_bytes : int
        Size of one input, for memory.
    small : callable, optional
        A small build of the same work that loads code before memory is measured.
    """

    name: str
    title: str
    measure: str = "time"
    build: Build | None = None
    at_most: float | None = None
    compiled_at_most: float | None = None
    compiles: bool = True
    peers: tuple[str, ...] = TORCHES
    check_steps: int = 1
    tolerance: float = 2e-5
    array_bytes: int = 0
    small: Build | None = None
    program: str = "import {module}"

    @property
    def baseline(self) -> str:
        """The peer whose results are taken for right, and to which times are compared."""
        return self.peers[1]

    @property
    def unit(self) -> str:
        """What a measured number counts."""
        return {"memory": "arrays", "size": "MB"}.get(self.measure, "s")


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    """Seeded float32 normals."""
    values = rng.standard_normal(shape, np.float32)
    values *= np.float32(scale)
    return values


def chain(shape: tuple[int, ...], read_first: bool = False) -> Build:
    """A gelu times r plus a gate, forward and backward to both inputs.

    With ``read_first`` the forward value is read before `backward`, as by a script that prints
    inside its model; otherwise all three results are read at the end.
    """

    def build(torch: Any, device: str, compiled: Compiled) -> Step:
        rng = np.random.default_rng(0)
        if torch.__name__ in CHAINS:
            return CHAINS[torch.__name__](compiled, *[normal(rng, *shape) for _ in range(3)])
        x, r, g = (torch.tensor(normal(rng, *shape), device=device) for _ in range(3))
        x.requires_grad_()
        r.requires_grad_()

        def forward(x: Any, r: Any) -> Any:
            gelu = 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x)))
            return gelu * r + torch.sigmoid(r) * x

        forward = compiled(forward)

        def step() -> tuple[Any, ...]:
            out = forward(x, r)
            if read_first:
                out.detach().numpy()
            out.backward(g)
            results = out, x.grad, r.grad
            x.grad = r.grad = None  # nothing outlives the results
            return results

        return step

    return build


def power(applies: int, size: int) -> Build:
    """The custom Function ``x ** n`` with its ctx, applied in a row, then backward."""

    def build(torch: Any, device: str, compiled: Compiled) -> Step:
        class Power(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any, n: float) -> Any:
                ctx.n = n
                ctx.save_for_backward(x)
                return x**n

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                (x,) = ctx.saved_tensors
                return g * (ctx.n * x ** (ctx.n - 1)), None

        rng = np.random.default_rng(0)
        start = rng.uniform(0.5, 1.5, size).astype(np.float32)
        x = torch.tensor(start, device=device).requires_grad_()
        g = torch.tensor(normal(rng, size), device=device)

        def step() -> tuple[Any, ...]:
            y = x
            for _ in range(applies):
                y = Power.apply(y, 1.01)  # 1.01 ** 100 = 2.7: values keep their size
            y.backward(g)
            results = y, x.grad
            x.grad = None
            return results

        return step

    return build


def residual_norm(rows: int, columns: int) -> Build:
    """What stands between two products of a transformer, forward and backward to every input."""

    def build(torch: Any, device: str, compiled: Compiled) -> Step:
        functional = torch.nn.functional
        rng = np.random.default_rng(0)
        sizes = ((rows, columns), (rows, columns), (columns,), (columns,), (columns,))
        inputs = [torch.tensor(normal(rng, *size), device=device) for size in sizes]
        g = torch.tensor(normal(rng, rows, columns), device=device)
        for tensor in inputs:
            tensor.requires_grad_()

        def forward(x: Any, r: Any, bias: Any, weight: Any, shift: Any) -> Any:
            hidden = functional.gelu(x + bias, approximate="tanh") + r
            return functional.layer_norm(hidden, (columns,), weight, shift)

        forward = compiled(forward)

        def step() -> tuple[Any, ...]:
            out = forward(*inputs)
            out.backward(g)
            results = out, *[tensor.grad for tensor in inputs]
            for tensor in inputs:
                tensor.grad = None
            return results

        return step

    return build


def losses(rows: int, classes: int) -> Build:
    """Cross entropy of unnormalized scores, with its gradient."""

    def build(torch: Any, device: str, compiled: Compiled) -> Step:
        rng = np.random.default_rng(0)
        scores = torch.tensor(normal(rng, rows, classes), device=device).requires_grad_()
        labels = torch.tensor(rng.integers(0, classes, rows), device=device)
        loss_of = compiled(torch.nn.functional.cross_entropy)

        def step() -> tuple[Any, ...]:
            loss = loss_of(scores, labels)
            loss.backward()
            results = loss, scores.grad
            scores.grad = None
            return results

        return step

    return build


FIRST_GRADIENT = """
import {module} as torch
x = torch.ones(32, 784)
labels = torch.arange(32) % 10
model = torch.nn.Sequential(torch.nn.Linear(784, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
torch.nn.functional.cross_entropy(model(x), labels).backward()
assert model[0].weight.grad.numpy().shape == (64, 784)
"""

_LARGE = 1 << 24

CASES: tuple[Case, ...] = (
    Case(
        "chain-2^24",
        "chain, 2^24 elements, forward + backward",
        build=chain((_LARGE,)),
        peers=(*TORCHES, *CHAINS),
        at_most=0.06,
        compiled_at_most=0.5,
    ),
    Case(
        "chain-2^24-read",
        "the same, forward value read before backward",
        build=chain((_LARGE,), read_first=True),
    ),
    Case(
        "chain-1024",
        "chain, 1024 x 1024, forward + backward",
        build=chain((1024, 1024)),
        peers=(*TORCHES, *CHAINS),
        at_most=0.30,
    ),
    Case(
        "chain-64",
        "chain, 64 x 64, forward + backward",
        build=chain((64, 64)),
        peers=(*TORCHES, *CHAINS),
        at_most=0.70,
    ),
    Case(
        "function",
        "custom Function x**n, 100 applies of 256, with backward",
        build=power(100, 256),
        at_most=0.70,
        compiles=False,
        tolerance=1e-4,  # a hundred powers in a row
    ),
    Case(
        "residual-norm",
        "bias + gelu + residual + layer_norm, 8192 x 1024, forward + backward",
        build=residual_norm(8192, 1024),
        at_most=0.5,
        tolerance=1e-4,  # sums over 8192 rows
    ),
    Case(
        "cross-entropy",
        "cross entropy of scores, 8192 x 4096, with its gradient",
        build=losses(8192, 4096),
        at_most=0.5,
    ),
    Case(
        "mlp",
        "MLP 784-512-512-10, batch 128, Adam, a whole step",
        build=models.mlp((784, 512, 512, 10), 128),
        at_most=0.80,
        check_steps=3,
        tolerance=1e-3,
    ),
    Case(
        "lenet",
        "LeNet, 28 x 28, batch 64, SGD, a whole step",
        build=models.lenet(64),
        at_most=2.0,
        check_steps=3,
        tolerance=1e-3,
    ),
    Case(
        "resnet",
        "ResNet, 8 basic blocks of 16 to 128, 32 images of 32 x 32, SGD, a whole step",
        build=models.resnet((16, 32, 64, 128), blocks=2, batch=32),
        at_most=2.5,
        tolerance=3e-2,  # rounding turns a ReLU or two, which move biases that begin at 0: by 1e-2
    ),
    Case(
        "gpt",
        "GPT, 4 layers of 128, 8 sequences of 128, AdamW, a whole step",
        build=models.gpt(layers=4, width=128, heads=4, length=128, batch=8, letters=96),
        at_most=1.1,
        check_steps=3,
        tolerance=1e-2,  # AdamW makes whole steps of the keys' bias, whose gradient is rounding
    ),
    Case(
        "lstm",
        "LSTM of 128 over 32 steps of 64, batch 32, SGD, a whole step",
        build=models.lstm(features=64, width=128, length=32, batch=32, classes=16),
        at_most=1.5,
        check_steps=3,
        tolerance=1e-3,
    ),
    Case(
        "gaussian-process",
        "NumPy: marginal likelihood of 300 points and its gradient",
        build=arrays.gaussian_process(300, 10),
        at_most=0.5,
        peers=(*NUMPYS, "jax"),
        tolerance=1e-9,
    ),
    Case(
        "heat",
        "NumPy: 100 steps of the heat equation on 64 x 64, gradient by the initial state",
        build=arrays.heat(64, 100),
        at_most=0.5,
        peers=(*NUMPYS, "jax", "mygrad"),
        tolerance=1e-9,
    ),
    Case(
        "quantum-dot",
        "NumPy: energies of 2,000 walkers by second derivatives, and their gradient",
        build=arrays.quantum_dot(2000),
        at_most=0.5,
        peers=(*NUMPYS, "jax"),
        tolerance=1e-9,
    ),
    Case(
        "equation",
        "SciPy: 20 years of an equation of two numbers, gradient by its rates by the adjoint",
        build=arrays.hares(20),
        at_most=0.5,
        peers=(SUBJECT, "hips", "jax"),
        tolerance=1e-5,  # each has a method of its own, with tolerances of 1e-8
    ),
    Case(
        "memory",
        "peak memory of the 2^24 chain beyond its inputs",
        measure="memory",
        build=chain((_LARGE,)),
        at_most=3.5,
        array_bytes=4 * _LARGE,
        small=chain((64, 64)),
    ),
    Case(
        "import",
        "import in a fresh process beyond bare Python",
        measure="fresh",
        at_most=0.25,
        peers=ANYBODY,
    ),
    Case(
        "first-gradient",
        "import, a small MLP and its first gradient in a fresh process beyond bare Python",
        measure="fresh",
        program=FIRST_GRADIENT,
    ),
    Case("size", "installed, with what it requires", measure="size", peers=ANYBODY),
)

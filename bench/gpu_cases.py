"""What `make gpu` measures: each case written once, for every peer with PyTorch's API.

A case's ``build(kit)`` makes several sets of inputs and returns a step: ``step(i)`` does the work
once on set ``i`` and returns the tensors by which it is judged. Rotating among sets that together
are larger than the cache keeps a repeated step from reading the cache. ``least(kit)`` counts the
fewest bytes the work can move: each input read once, each output written once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

DISTINCT = (1 << 20) + 7  # no multiple of a row, so that rows differ
Step = Callable[[int], tuple[Any, ...]]
Size = tuple[int, ...]


@dataclass
class Kit:
    """What a case is built from: a peer's module, a device, a type, a size.

    Attributes
    ----------
    torch : module
        With PyTorch's names.
    compiled : callable
        `torch.compile` for the compiling peer, the identity for all others.
    size : tuple of int
        What it means is the case's.
    sets : int
        How many sets of inputs to make.
    """

    torch: Any
    device: str
    dtype: str
    size: Size
    sets: int
    compiled: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda function: function

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(0)

    @property
    def itemsize(self) -> int:
        """Bytes an element of the case's type has."""
        return {"float32": 4, "float16": 2, "bfloat16": 2}[self.dtype]

    def numbers(self, count: int, scale: float = 1.0) -> np.ndarray:
        """So many normal numbers on the host, or `DISTINCT`, which are to be repeated."""
        values = self.rng.standard_normal(min(count, DISTINCT), np.float32)
        values *= np.float32(scale)
        return values

    def normal(self, *shape: int, grad: bool = False, scale: float = 1.0) -> Any:
        """Normal numbers of the case's type; large arrays are made of few on the device."""
        count = math.prod(shape)
        few = self.torch.tensor(self.numbers(count, scale), device=self.device)
        few = few.to(getattr(self.torch, self.dtype))
        made = few.repeat(-(-count // DISTINCT))[:count].reshape(shape)
        force(self, (made,))  # a step is not to find the conversion pending
        return made.detach().requires_grad_() if grad else made

    def labels(self, count: int, classes: int) -> Any:
        """Integers below ``classes``."""
        return self.torch.tensor(self.rng.integers(0, classes, count), device=self.device)

    def every(self, make: Callable[[], Any]) -> list[Any]:
        """One of something for each set."""
        return [make() for _ in range(self.sets)]


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Attributes
    ----------
    size, toy : tuple of int
        For a GPU, and to try the case without one.
    least : callable, optional
        The fewest bytes; a case without is bound by arithmetic.
    flops : callable, optional
        Operations of a case bound by arithmetic.
    dtypes : sequence of str
    aim : float
        The share of the copy bandwidth to reach; 0 for none.
    kernels : int, optional
        The fewest launches; none for a whole step.
    random : bool
        Whether results are random, so that peers are not compared.
    """

    name: str
    title: str
    build: Callable[[Kit], Step]
    size: Size
    toy: Size
    least: Callable[[Kit], int] | None = None
    flops: Callable[[Kit], int] | None = None
    dtypes: Sequence[str] = ("float32", "bfloat16")
    aim: float = 0.9
    kernels: int | None = 1
    random: bool = False


# --- sums and copies ------------------------------------------------------------------------------


def column_sum(kit: Kit) -> Step:
    """The gradient of a bias."""
    xs = kit.every(lambda: kit.normal(*kit.size))
    return lambda i: (xs[i].sum(0),)


def full_sum(kit: Kit) -> Step:
    xs = kit.every(lambda: kit.normal(*kit.size))
    return lambda i: (xs[i].sum(),)


def joined_columns(kit: Kit) -> Step:
    """Three matrices side by side."""
    rows, columns = kit.size
    widths = (columns // 2, columns // 4, columns // 4)
    parts = kit.every(lambda: [kit.normal(rows, n) for n in widths])
    return lambda i: (kit.torch.cat(parts[i], 1),)


def turned(kit: Kit) -> Step:
    """A matrix and another's transpose added."""
    rows, columns = kit.size
    pairs = kit.every(lambda: (kit.normal(rows, columns), kit.normal(columns, rows)))
    function = kit.compiled(lambda x, y: x + y.t())
    return lambda i: (function(*pairs[i]),)


def permuted_copy(kit: Kit) -> Step:
    """Heads merged: the dimensions of rows and of heads change places."""
    xs = kit.every(lambda: kit.normal(*kit.size))
    return lambda i: (xs[i].transpose(1, 2).contiguous(),)


# --- elementwise ----------------------------------------------------------------------------------


def negation(kit: Kit) -> Step:
    """One array read, one written; a clone would only be made when somebody writes."""
    xs = kit.every(lambda: kit.normal(*kit.size))
    return lambda i: (-xs[i],)


def chain(torch: Any, x: Any, r: Any) -> Any:
    """A gelu times r plus a gate."""
    gelu = 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x)))
    return gelu * r + torch.sigmoid(r) * x


def chain_forward(kit: Kit) -> Step:
    pairs = kit.every(lambda: (kit.normal(*kit.size), kit.normal(*kit.size)))
    function = kit.compiled(lambda x, r: chain(kit.torch, x, r))
    return lambda i: (function(*pairs[i]),)


def chain_backward(kit: Kit) -> Step:
    """Gradients of an output that is there already."""

    def one() -> tuple[Any, ...]:
        x, r = (kit.normal(*kit.size, grad=True) for _ in "xr")
        return function(x, r), (x, r), kit.normal(*kit.size)

    function = kit.compiled(lambda x, r: chain(kit.torch, x, r))
    sets = kit.every(one)
    for out, _, _ in sets:
        force(kit, (out,))

    def step(i: int) -> tuple[Any, ...]:
        out, inputs, g = sets[i]
        found: tuple[Any, ...] = kit.torch.autograd.grad(out, inputs, g, retain_graph=True)
        return found

    return step


def bias_gelu_residual(kit: Kit) -> Step:
    """``gelu(x + bias) + residual``, forward and backward."""
    rows, columns = kit.size
    bias = kit.normal(columns, grad=True)

    def one() -> tuple[Any, ...]:
        return (
            kit.normal(rows, columns, grad=True),
            kit.normal(rows, columns, grad=True),
            kit.normal(rows, columns),
        )

    gelu = kit.torch.nn.functional.gelu
    function = kit.compiled(lambda x, b, r: gelu(x + b, approximate="tanh") + r)
    return _forward_backward(kit, kit.every(one), lambda x, r: function(x, bias, r), (bias,))


def _forward_backward(
    kit: Kit,
    sets: Sequence[tuple[Any, ...]],
    function: Callable[..., Any],
    parameters: tuple[Any, ...] = (),
) -> Step:
    """Outputs and gradients of inputs and parameters; a set has its cotangent last."""

    def step(i: int) -> tuple[Any, ...]:
        *inputs, g = sets[i]
        wanted = tuple(x for x in inputs if x.is_floating_point()) + parameters
        out = function(*inputs)
        return out, *kit.torch.autograd.grad(out, wanted, g)

    return step


def _backward(
    kit: Kit, one: Callable[[], tuple[Any, ...]], function: Callable[..., Any], *parameters: Any
) -> Step:
    """Gradients of outputs that are there already."""
    sets = []
    for *inputs, g in kit.every(one):
        out = function(*inputs)
        force(kit, (out,))
        sets.append((out, (*inputs, *parameters), g))

    def step(i: int) -> tuple[Any, ...]:
        out, wanted, g = sets[i]
        found: tuple[Any, ...] = kit.torch.autograd.grad(out, wanted, g, retain_graph=True)
        return found

    return step


def dropout(kit: Kit) -> Step:
    function = kit.torch.nn.functional.dropout
    run = kit.compiled(lambda x: function(x, 0.1, True))
    pairs = kit.every(lambda: (kit.normal(*kit.size, grad=True), kit.normal(*kit.size)))
    return _forward_backward(kit, pairs, run)


# --- rows -----------------------------------------------------------------------------------------


def _layer_norm(kit: Kit) -> tuple[Callable[..., Any], Any, Any]:
    columns = kit.size[-1]
    weight, bias = kit.normal(columns, grad=True), kit.normal(columns, grad=True)
    function = kit.torch.nn.functional.layer_norm
    return kit.compiled(lambda x: function(x, (columns,), weight, bias)), weight, bias


def layer_norm_forward(kit: Kit) -> Step:
    function, _, _ = _layer_norm(kit)
    xs = kit.every(lambda: kit.normal(*kit.size))

    def step(i: int) -> tuple[Any, ...]:
        with kit.torch.no_grad():
            return (function(xs[i]),)

    return step


def layer_norm_backward(kit: Kit) -> Step:
    function, *parameters = _layer_norm(kit)
    return _backward(kit, lambda: _input_and_cotangent(kit), function, *parameters)


def _input_and_cotangent(kit: Kit) -> tuple[Any, Any]:
    return kit.normal(*kit.size, grad=True), kit.normal(*kit.size)


def _softmax(kit: Kit) -> Callable[..., Any]:
    function = kit.torch.nn.functional.softmax
    return kit.compiled(lambda x: function(x, dim=-1))


def softmax_forward(kit: Kit) -> Step:
    function, xs = _softmax(kit), kit.every(lambda: kit.normal(*kit.size))
    return lambda i: (function(xs[i]),)


def softmax_backward(kit: Kit) -> Step:
    return _backward(kit, lambda: _input_and_cotangent(kit), _softmax(kit))


def cross_entropy(kit: Kit) -> Step:
    """The loss of logits and its gradient."""
    rows, classes = kit.size
    loss_of = kit.compiled(kit.torch.nn.functional.cross_entropy)
    sets = kit.every(lambda: (kit.normal(rows, classes, grad=True), kit.labels(rows, classes)))

    def step(i: int) -> tuple[Any, ...]:
        logits, labels = sets[i]
        loss = loss_of(logits, labels)
        return loss, *kit.torch.autograd.grad(loss, (logits,))

    return step


# --- optimizers, attention, whole steps -----------------------------------------------------------


def adam(kit: Kit) -> Step:
    """One update of many tensors."""
    count, elements = kit.size
    tensors = [kit.normal(elements, grad=True) for _ in range(count)]
    for p in tensors:
        p.grad = kit.normal(elements)
    optimizer = kit.torch.optim.Adam(tensors, lr=1e-3)
    update = kit.compiled(optimizer.step)

    def step(i: int) -> tuple[Any, ...]:
        update()
        return tuple(tensors[:2])

    return step


def _attention(kit: Kit) -> Callable[..., Any]:
    function = kit.torch.nn.functional.scaled_dot_product_attention
    return kit.compiled(lambda q, k, v: function(q, k, v, is_causal=True))


def attention_padded(kit: Kit) -> Step:
    """Forward with a mask of the keys that are padding, as BERT's."""
    function = kit.torch.nn.functional.scaled_dot_product_attention
    batch, _, length, _ = kit.size
    seen = (kit.torch.arange(length, device=kit.device) < length * 3 // 4).reshape(1, 1, 1, length)
    seen = seen.expand(batch, 1, 1, length).clone()
    force(kit, (seen,))
    attend = kit.compiled(lambda q, k, v: function(q, k, v, attn_mask=seen))
    sets = kit.every(lambda: [kit.normal(*kit.size) for _ in "qkv"])
    return lambda i: (attend(*sets[i]),)


def attention_forward(kit: Kit) -> Step:
    function = _attention(kit)
    sets = kit.every(lambda: [kit.normal(*kit.size) for _ in "qkv"])
    return lambda i: (function(*sets[i]),)


def attention_backward(kit: Kit) -> Step:
    def one() -> tuple[Any, ...]:
        return (*[kit.normal(*kit.size, grad=True) for _ in "qkv"], kit.normal(*kit.size))

    return _backward(kit, one, _attention(kit))


def convolution(kit: Kit, cudnn: bool = True) -> Step:
    """3 x 3 filters over images, and both gradients: by cuDNN where it is installed."""
    batch, channels, side = kit.size
    images, filters = (batch, channels, side, side), (channels, channels, 3, 3)

    def one() -> tuple[Any, ...]:
        return kit.normal(*images, grad=True), kit.normal(*filters, grad=True), kit.normal(*images)

    function, settings = kit.torch.nn.functional.conv2d, kit.torch.backends.cudnn
    run = kit.compiled(lambda x, w: function(x, w, padding=1))
    step = _forward_backward(kit, kit.every(one), run)

    def as_set(i: int) -> tuple[Any, ...]:
        with settings.flags(enabled=cudnn, deterministic=True, allow_tf32=False):
            return step(i)

    return as_set


def mlp(kit: Kit) -> Step:
    """Forward, cross entropy, backward, Adam, zero_grad."""
    batch, width, classes = kit.size
    nn = kit.torch.nn
    model = nn.Sequential(
        nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.ReLU(),
        nn.Linear(width, classes),
    )  # fmt: skip
    batches = kit.every(lambda: (kit.normal(batch, width), kit.labels(batch, classes)))
    return _training(kit, model, lambda x, y: nn.functional.cross_entropy(model(x), y), batches)


def gpt(kit: Kit) -> Step:
    """A transformer that predicts the next token: a whole training step."""
    batch, length, width, heads, layers, words = kit.size
    nn, functional = kit.torch.nn, kit.torch.nn.functional

    class Block(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            parts = self.qkv(self.first(x)).reshape(batch, length, 3, heads, width // heads)
            q, k, v = (parts[:, :, i].transpose(1, 2) for i in range(3))
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(functional.gelu(self.up(self.second(x)), approximate="tanh"))

    class Model(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.blocks = nn.Sequential(*[Block() for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

        def forward(self, tokens: Any) -> Any:
            places = kit.torch.arange(length, device=kit.device)
            return self.head(self.norm(self.blocks(self.words(tokens) + self.places(places))))

    model = Model()
    batches = kit.every(lambda: [kit.labels(batch * length, words) for _ in "xy"])

    def loss_of(x: Any, y: Any) -> Any:
        logits = model(x.reshape(batch, length))
        return functional.cross_entropy(logits.reshape(batch * length, words), y)

    return _training(kit, model, loss_of, batches)


def _training(
    kit: Kit, model: Any, loss_of: Callable[..., Any], batches: Sequence[Sequence[Any]]
) -> Step:
    model.to(kit.device)
    with kit.torch.no_grad():
        for p in model.parameters():
            p.copy_(kit.normal(*p.shape, scale=0.02 if p.ndim > 1 else 1.0))
    model.to(getattr(kit.torch, kit.dtype))
    optimizer = kit.torch.optim.Adam(model.parameters(), lr=1e-4)
    loss_of = kit.compiled(loss_of)

    def step(i: int) -> tuple[Any, ...]:
        loss = loss_of(*batches[i])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return (loss,)

    return step


def launch(kit: Kit) -> Step:
    """The smallest chain forward and backward: nothing but overhead."""
    sets = kit.every(
        lambda: (*[kit.normal(*kit.size, grad=True) for _ in "xr"], kit.normal(*kit.size))
    )
    return _forward_backward(kit, sets, kit.compiled(lambda x, r: chain(kit.torch, x, r)))


def force(kit: Kit, results: Sequence[Any]) -> None:
    """Have pending results computed, without waiting for the device."""
    if kit.torch.__name__ == "lucid_gpu":
        for result in results:
            _ = result.array


# --- the table ------------------------------------------------------------------------------------


def _arrays(count: int, columns: int = 0, row_bytes: int = 0) -> Callable[[Kit], int]:
    """So many arrays of the case's size, and of its last dimension, and bytes for each row."""

    def least(kit: Kit) -> int:
        elements = count * math.prod(kit.size) + columns * kit.size[-1]
        return elements * kit.itemsize + row_bytes * kit.size[0]

    return least


def _attention_flops(products: int) -> Callable[[Kit], int]:
    """Causal: half of each product of length x length x head size; PyTorch's way of counting."""

    def count(kit: Kit) -> int:
        batch, heads, length, head = kit.size
        return products * 2 * batch * heads * length * length * head // 2

    return count


def _convolution_flops(kit: Kit) -> int:
    """Of the value and two gradients."""
    batch, channels, side = kit.size
    return 3 * 2 * batch * channels * channels * 9 * side * side


_BIG, _ROWS, _TALL = (1 << 26,), (8192, 4096), (65536, 512)
_TOY, _TOY_ROWS = (1 << 14,), (64, 256)
_HEADS, _TOY_HEADS = (4, 16, 2048, 64), (1, 2, 64, 32)

CASES: tuple[Case, ...] = (
    Case("negation", "negation", negation, _BIG, _TOY, _arrays(2)),
    Case("column-sum", "sum over rows", column_sum, _TALL, _TOY_ROWS, _arrays(1, columns=1)),
    Case("full-sum", "sum of all", full_sum, _BIG, _TOY, _arrays(1)),
    Case("cat", "cat of three, side by side", joined_columns, _ROWS, _TOY_ROWS, _arrays(2)),
    Case("transposed", "a transposed operand", turned, _ROWS, _TOY_ROWS, _arrays(3)),
    Case("permuted-copy", "heads merged", permuted_copy, _HEADS, _TOY_HEADS, _arrays(2)),
    Case("chain-forward", "chain, forward", chain_forward, _BIG, _TOY, _arrays(3)),
    Case(
        "chain-backward", "chain, backward to both inputs", chain_backward, _BIG, _TOY, _arrays(5)
    ),
    Case(
        "bias-gelu-residual",
        "gelu(x + bias) + residual, forward and backward",
        bias_gelu_residual,
        _ROWS,
        _TOY_ROWS,
        _arrays(5, columns=2),
    ),
    Case(
        "dropout",
        "dropout, forward and backward",
        dropout,
        _BIG,
        _TOY,
        _arrays(4),
        random=True,
    ),
    Case(
        "layer-norm-forward",
        "layer_norm, forward",
        layer_norm_forward,
        _ROWS,
        _TOY_ROWS,
        _arrays(2, columns=2),
        aim=0.85,
    ),
    Case(
        "layer-norm-backward",
        "layer_norm, backward to input, weight and bias",
        layer_norm_backward,
        _ROWS,
        _TOY_ROWS,
        _arrays(3, columns=3),
        aim=0.85,
        kernels=2,
    ),
    Case(
        "softmax-forward",
        "softmax, forward",
        softmax_forward,
        _ROWS,
        _TOY_ROWS,
        _arrays(2),
        aim=0.85,
    ),
    Case(
        "softmax-backward",
        "softmax, backward",
        softmax_backward,
        _ROWS,
        _TOY_ROWS,
        _arrays(3),
        aim=0.85,
    ),
    Case(
        "cross-entropy-32k",
        "cross entropy, 32,000 classes, loss and gradient",
        cross_entropy,
        (4096, 32000),
        (16, 1000),
        _arrays(2, row_bytes=8),
        aim=0.85,
        kernels=2,
    ),
    Case(
        "cross-entropy-128k",
        "cross entropy, 128,000 classes, loss and gradient",
        cross_entropy,
        (2048, 128000),
        (8, 4000),
        _arrays(2, row_bytes=8),
        aim=0.85,
        kernels=2,
    ),
    Case(
        "adam",
        "Adam, 100 tensors of 2^20",
        adam,
        (100, 1 << 20),
        (100, 256),
        _arrays(7),
        dtypes=("float32",),
    ),
    Case(
        "attention-forward",
        "causal attention, forward",
        attention_forward,
        _HEADS,
        _TOY_HEADS,
        _arrays(4),
        _attention_flops(2),
        ("float32", "bfloat16", "float16"),
        aim=0,
    ),
    Case(
        "attention-padded",
        "attention with a mask of padding, forward",
        attention_padded,
        _HEADS,
        _TOY_HEADS,
        _arrays(4),
        _attention_flops(4),
        aim=0,
    ),
    Case(
        "attention-backward",
        "causal attention, backward",
        attention_backward,
        _HEADS,
        _TOY_HEADS,
        _arrays(8),
        _attention_flops(5),
        ("float32", "bfloat16", "float16"),
        aim=0,
        kernels=3,
    ),
    *[
        Case(
            name,
            f"3 x 3 convolution {how}, 64 images of 128 x 28 x 28, forward and backward",
            build,
            (64, 128, 28),
            (2, 4, 6),
            flops=_convolution_flops,
            aim=0,
            kernels=None,
        )
        for name, how, build in (
            ("convolution", "(by cuDNN, if installed)", convolution),
            (
                "convolution-without-cudnn",
                "without cuDNN",
                functools.partial(convolution, cudnn=False),
            ),
        )
    ],
    Case(
        "mlp",
        "MLP 1024-4096-1024-1000, batch 4096, a whole step",
        mlp,
        (4096, 1024, 1000),
        (16, 32, 10),
        aim=0,
        kernels=None,
    ),
    Case(
        "gpt",
        "GPT, 6 layers of 512, 8 heads, 8 x 512 tokens, a whole step",
        gpt,
        (8, 512, 512, 8, 6, 8192),
        (2, 16, 32, 2, 2, 64),
        aim=0,
        kernels=None,
    ),
    Case(
        "launch",
        "chain of 64 x 64, forward and backward",
        launch,
        (64, 64),
        (64, 64),
        dtypes=("float32",),
        aim=0,
    ),
)


def sized(case: Case, toy: bool) -> Size:
    """The size of a case on a GPU, or to try it."""
    return case.toy if toy else case.size

"""Small programs whose time is the price of calls: ``PROGRAMS[name](torch)`` gives a step.

Each is written once, for every module of PyTorch's API; sizes are so small that arithmetic is a few
per cent of a step. Somebody reads each gradient in the end, as it would stay pending else. Weights
are stepped by hand unless an optimizer is what is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["PROGRAMS", "Step"]

Step = Callable[[], Any]
CHAIN = 100  # calls of a Function in a row
ROUNDS = 20  # of divisions by sums
VIEWS = 200
PARAMETERS = 60


def _backward_of(torch: Any, function: Callable[..., Any], *shape: int, calls: int = 1) -> Step:
    """Return a step that calls ``function`` several times in a row, and backward through them."""
    x = torch.randn(*shape, requires_grad=True)

    def step() -> None:
        x.grad = None
        y = x
        for _ in range(calls):
            y = function(y)
        y.sum().backward()
        x.grad.numpy()

    return step


def sum_backward(torch: Any) -> Step:
    return _backward_of(torch, lambda x: x * 2, 24)


def tanh_backward(torch: Any) -> Step:
    return _backward_of(torch, lambda x: x.tanh(), 24)


def add_numpy(torch: Any) -> Step:
    x, y = torch.randn(64), torch.randn(64)
    return lambda: (x + y).numpy()


def product(torch: Any) -> Step:
    a, b = (torch.randn(8, 8, requires_grad=True) for _ in range(2))
    return lambda: a @ b


def convolution(torch: Any) -> Step:
    x, w = torch.randn(1, 2, 6, 6, requires_grad=True), torch.randn(2, 2, 3, 3, requires_grad=True)
    return lambda: torch.nn.functional.conv2d(x, w, padding=1)


def _squares(torch: Any) -> Any:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 2 * x * g

    return Square


def function(torch: Any) -> Step:
    return _backward_of(torch, _squares(torch).apply, 24)


def function_chain(torch: Any) -> Step:
    return _backward_of(torch, _squares(torch).apply, 24, calls=CHAIN)


def surrogate_spike(torch: Any) -> Step:
    class Spike(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, v: Any, slope: float) -> Any:
            ctx.save_for_backward(v)
            ctx.slope = slope
            return (v > 0).float()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (v,) = ctx.saved_tensors
            return g / (ctx.slope * v.abs() + 1.0) ** 2, None

    return _backward_of(torch, lambda v: Spike.apply(v - 0.5, 25.0), 16, 32)


def learned_step(torch: Any) -> Step:
    class Quantize(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, w: Any, s: Any) -> Any:
            ctx.save_for_backward(w, s)
            return (w / s).clamp(-8, 7).round() * s

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            w, s = ctx.saved_tensors
            q = w / s
            low, high = (q < -8).float(), (q > 7).float()
            inside = 1.0 - low - high
            of_s = (low * -8 + high * 7 + inside * (q.round() - q)) * g
            return inside * g, of_s.sum().unsqueeze(0)

    s = torch.full((1,), 0.1, requires_grad=True)
    return _backward_of(torch, lambda w: Quantize.apply(w, s), 16, 32)


def gradient_reversal(torch: Any) -> Step:
    class Reverse(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, by: float) -> Any:
            ctx.by = by
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g.neg() * ctx.by, None

    return _backward_of(torch, lambda x: Reverse.apply(x, 0.5), 16, 32)


def straight_through(torch: Any) -> Step:
    class Sign(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.sign()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            g = g.clone()
            g[x.abs() > 1] = 0
            return g

    return _backward_of(torch, Sign.apply, 16, 32)


def swish(torch: Any) -> Step:
    class Swish(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * torch.sigmoid(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            s = torch.sigmoid(x)
            return g * (s * (1 + x * (1 - s)))

    return _backward_of(torch, Swish.apply, 16, 32)


def linear_function(torch: Any) -> Step:
    class Linear(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any, b: Any) -> Any:
            ctx.save_for_backward(x, w)
            return x.mm(w.t()) + b

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, w = ctx.saved_tensors
            return g.mm(w), g.t().mm(x), g.sum(0)

    w, b = torch.randn(8, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    return _backward_of(torch, lambda x: Linear.apply(x, w, b), 16, 8)


def mlp(torch: Any) -> Step:
    nn = torch.nn
    layers = [m for _ in range(3) for m in (nn.Linear(32, 32), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(32, 10))
    x, y = torch.randn(16, 32), torch.arange(16) % 10
    parameters = list(model.parameters())

    def step() -> None:
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        with torch.no_grad():
            for p in parameters:
                p -= 0.1 * p.grad
                p.grad = None

    return step


def encoder_layer(torch: Any) -> Step:
    model = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(4, 8, 32)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def conv_net(torch: Any) -> Step:
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    x = torch.randn(2, 3, 8, 8)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def lstm(torch: Any) -> Step:
    model = torch.nn.LSTM(8, 16, batch_first=True)
    x = torch.randn(4, 6, 8)

    def step() -> None:
        model.zero_grad()
        model(x)[0].square().mean().backward()
        for p in model.parameters():
            p.grad.numpy()

    return step


def sinkhorn(torch: Any) -> Step:
    """Divisions by sums along two dimensions, in turn."""

    def normalized(x: Any) -> Any:
        k = x.exp()
        for _ in range(ROUNDS):
            k = k / k.sum(1, keepdim=True)
            k = k / k.sum(0, keepdim=True)
        return k * x

    return _backward_of(torch, normalized, 16, 16)


def new_shapes(torch: Any) -> Step:
    """A Function, an op and a mean over a length that was not there before."""
    spike = _squares(torch).apply
    lengths = iter(range(10, 10_000_000))

    def step() -> None:
        x = torch.ones(next(lengths), requires_grad=True)
        (spike(x) * x.tanh()).mean().backward()
        x.grad.numpy()

    return step


def seen_shape(torch: Any) -> Step:
    """The same over one length."""
    spike = _squares(torch).apply

    def step() -> None:
        x = torch.ones(10, requires_grad=True)
        (spike(x) * x.tanh()).mean().backward()
        x.grad.numpy()

    return step


def view_writes(torch: Any) -> Step:
    flat = torch.zeros(16 * VIEWS)

    def step() -> None:
        for v in flat.split(16):
            v.add_(1)

    return step


def by_hand(torch: Any) -> Step:
    parameters = [torch.randn(4 + i % 5, requires_grad=True) for i in range(PARAMETERS)]

    def step() -> None:
        loss = sum((p * p).sum() for p in parameters)
        loss.backward()
        with torch.no_grad():
            for p in parameters:
                p -= 0.1 * p.grad
                p.grad.zero_()

    return step


def chain(torch: Any) -> Step:
    r = torch.randn(64, 64)

    def gelu_like(x: Any) -> Any:
        inner = 0.79788456 * (x + 0.044715 * x * x * x)
        return 0.5 * x * (1 + torch.tanh(inner)) * r + torch.sigmoid(r) * x

    return _backward_of(torch, gelu_like, 64, 64)


PROGRAMS: dict[str, Callable[[Any], Step]] = {
    "(x * 2).sum().backward()": sum_backward,
    "x.tanh().sum().backward()": tanh_backward,
    "(x + y).numpy()": add_numpy,
    "a @ b": product,
    "conv2d": convolution,
    "Function and back": function,
    f"Function, {CHAIN} in a row": function_chain,
    "surrogate spike": surrogate_spike,
    "learned-step quantizer": learned_step,
    "gradient reversal": gradient_reversal,
    "straight-through sign": straight_through,
    "swish as a Function": swish,
    "linear as a Function": linear_function,
    "chain 64 x 64": chain,
    "MLP of 4 layers": mlp,
    "encoder layer, AdamW": encoder_layer,
    "conv, batch norm, relu, conv": conv_net,
    "LSTM": lstm,
    f"Sinkhorn, {ROUNDS} rounds": sinkhorn,
    "a seen shape": seen_shape,
    "a new shape each step": new_shapes,
    f"writes through {VIEWS} views": view_writes,
    f"{PARAMETERS} parameters by hand": by_hand,
}

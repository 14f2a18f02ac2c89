"""Random training steps and random modules as graphs, beside the same without one, bit for bit."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid_gpu as torch
from lucid_gpu import nn
from lucid_gpu.launch import Executor
from lucid_gpu.nn import functional as F
from tests.slow import slow_but

pytestmark = [
    pytest.mark.usefixtures("on_device"),
    pytest.mark.skipif(
        Executor.host_cuda, reason="graphs hold NumPy's calls, not CUDA C on the host"
    ),
]


@pytest.fixture(autouse=True)
def with_cublas(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--standin"):
        pytest.skip("a product in a graph calls cuBLAS, which the stand-in for CuPy has not")


def bits(t: Any) -> bytes:
    """The elements of a tensor, to the last bit."""
    found: bytes = t.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
    return found


def flat(value: Any) -> list[Any]:
    """What lies in nested dicts and sequences: tensors as their bits, -0 as 0."""
    if isinstance(value, torch.Tensor):
        return [bits(value + 0 if value.is_floating_point() else value)]
    if isinstance(value, dict):
        return [part for key in value for part in flat(value[key])]
    if isinstance(value, (list, tuple)):
        return [part for each in value for part in flat(each)]
    return [value]


def same(one: list[Any], other: list[Any], exact: bool) -> bool:
    """Whether two lists of `flat` are equal: to the last bit, or but for roundings of float32."""
    if exact or one == other:
        return one == other
    return len(one) == len(other) and all(
        np.allclose(np.frombuffer(a, "f4"), np.frombuffer(b, "f4"), 1e-5, 1e-6, equal_nan=True)
        if isinstance(a, bytes) and len(a) % 4 == 0
        else a == b
        for a, b in zip(one, other, strict=True)
    )


# --- training steps -------------------------------------------------------------------------------


class Rows(nn.Module):
    """An embedding by rows that a vector names."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(7, 6)

    def forward(self, x: Any) -> Any:
        return x + self.rows(x[:, :6].argmax(1))


class Picked(nn.Module):
    """Columns by a list, and a residual."""

    def forward(self, x: Any) -> Any:
        return x + x[:, [5, 3, 3, 0, 1, 2]] * 0.5


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(6, 2, dropout=0.1, batch_first=True)

    def forward(self, x: Any) -> Any:
        y = x[None]
        return self.inner(y, y, y, need_weights=False)[0][0]


class Image(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.pool = nn.Conv2d(1, 2, 2), nn.AdaptiveAvgPool2d((1, 3))

    def forward(self, x: Any) -> Any:
        return self.pool(self.convolution(x.reshape(-1, 1, 2, 3))).flatten(1).repeat(1, 1) + x


class Walk(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.walk = kind(2, 6, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.walk(x.reshape(-1, 3, 2))[0][:, -1]


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(6, 6),
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "prelu": nn.PReLU,
    "dropout": lambda: nn.Dropout(0.3),
    "batch norm": lambda: nn.BatchNorm1d(6),
    "layer norm": lambda: nn.LayerNorm(6),
    "rms norm": lambda: nn.RMSNorm(6),
    "group norm": lambda: nn.GroupNorm(2, 6),
    "softmax": lambda: nn.Softmax(1),
    "rows": Rows,
    "picked": Picked,
    "attention": Attention,
    "image": Image,
    "lstm": lambda: Walk(nn.LSTM),
    "gru": lambda: Walk(nn.GRU),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 6)),
}

LOSSES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "squares": lambda out, y, k: F.mse_loss(out, y),
    "classes": lambda out, y, k: F.cross_entropy(out, k),
    "smoothed": lambda out, y, k: F.cross_entropy(out, k, label_smoothing=0.1),
    "smooth": lambda out, y, k: F.smooth_l1_loss(out, y),
    "huber": lambda out, y, k: F.huber_loss(out, y, delta=0.5),
    "logits": lambda out, y, k: F.binary_cross_entropy_with_logits(out, y.sigmoid()),
    "divergence": lambda out, y, k: F.kl_div(
        out.log_softmax(1), y.softmax(1), reduction="batchmean"
    ),
    "cosine": lambda out, y, k: 1 - F.cosine_similarity(out, y).mean(),
    "margin": lambda out, y, k: F.multi_margin_loss(out, k),
}

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.05},
    "SGD with momentum": {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    "Adam": {"lr": 0.02, "capturable": True, "amsgrad": True},
    "AdamW": {"lr": 0.02, "capturable": True},
    "RMSprop": {"lr": 0.01, "capturable": True, "centered": True, "momentum": 0.5},
    "NAdam": {"lr": 0.02, "capturable": True},
    "RAdam": {"lr": 0.02, "capturable": True},
    "Adamax": {"lr": 0.02, "capturable": True},
    "ASGD": {"lr": 0.02, "capturable": True},
    "Adadelta": {"lr": 0.5, "capturable": True},
    "Adagrad": {"lr": 0.05},
    "Rprop": {"lr": 0.01, "capturable": True},
    "Adafactor": {"lr": 0.05},
    "Muon": {"lr": 0.02},
    "own": {"lr": 0.05},
}
CLIPS: list[Any] = [
    None,
    None,
    lambda p: nn.utils.clip_grad_norm_(p, 0.3),
    lambda p: nn.utils.clip_grad_norm_(p, 0.3, norm_type=float("inf")),
    lambda p: nn.utils.clip_grad_value_(p, 0.05),
]


class Own(torch.optim.Optimizer):
    """A user's optimizer, with a step of its own."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    state = self.state[p]
                    if not state:
                        state["mean"] = torch.zeros_like(p)
                    state["mean"].mul_(0.9).add_(p.grad)
                    p.add_(state["mean"], alpha=-group["lr"])


class Step:
    """A random training step: everything it holds, and what of it goes into a graph."""

    def __init__(self, seed: int) -> None:
        choose = random.Random(seed)
        torch.manual_seed(seed)
        names = [choose.choice(sorted(LAYERS)) for _ in range(choose.randint(1, 4))]
        self.model = nn.Sequential(nn.Linear(6, 6), *[LAYERS[name]() for name in names])
        self.loss_name = choose.choice(sorted(LOSSES))
        name = self.name = choose.choice(sorted(OPTIMIZERS))
        settings, kind = OPTIMIZERS[name], name.partition(" ")[0]
        parameters = list(self.model.parameters())
        if name == "Muon":
            parameters = [p for p in parameters if p.ndim == 2]
        make = Own if name == "own" else getattr(torch.optim, kind)
        if len(parameters) > 1 and choose.random() < 0.3:
            half = len(parameters) // 2
            first = {"params": parameters[:half], "lr": 0.01}
            self.optimizer = make([first, {"params": parameters[half:]}], **settings)
        else:
            self.optimizer = make(parameters, **settings)
        self.parameters = parameters
        self.clip = choose.choice(CLIPS)
        self.count = choose.choice([1, 1, 1, 2, 3])  # of micro-batches
        schedules: list[Any] = [
            lambda: torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.7),
            lambda: torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda k: 1 / (k + 1)),
        ]
        self.schedule = None
        if choose.random() < 0.5 and name != "own":  # whose rate is a number of the graph
            self.schedule = choose.choice(schedules)()
        self.cast = choose.choice([None, None, torch.bfloat16])
        kind = "cuda" if parameters[0].is_cuda else "cpu"
        self.device = kind
        self.scaler = None
        if choose.random() < 0.3 and name != "own":
            self.scaler = torch.amp.GradScaler(kind, init_scale=256.0, growth_interval=2)
        self.to_none = choose.random() < 0.7
        self.ema = None
        if choose.random() < 0.4:
            self.ema = [p.detach().clone() for p in parameters]
        self.frozen = choose.random() < 0.2
        if self.frozen and len(parameters) > 1:  # an optimizer wants a gradient
            parameters[0].requires_grad_(False)
        self.x = [torch.randn(4, 6) for _ in range(self.count)]
        self.y, self.k = torch.randn(4, 6), torch.randint(0, 6, (4,))
        self.stops = 0  # at which of the places in a step it is refused; 0 for none

    def at(self, place: int) -> None:
        if place == self.stops:
            self.y.sum().item()

    def captured(self) -> Any:
        """What a graph holds; the rest follows in `after`."""
        self.model.zero_grad(set_to_none=self.to_none)
        total = None
        for x in self.x:
            with torch.autocast(self.device, dtype=self.cast, enabled=self.cast is not None):
                loss = LOSSES[self.loss_name](self.model(x).float(), self.y, self.k) / self.count
            self.at(1)
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()
            total = loss.detach() if total is None else total + loss.detach()
            self.at(2)
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
            self.at(3)
        norm = None if self.clip is None else self.clip(self.parameters)
        self.at(4)
        if self.scaler is not None:
            self.scaler.step(self.optimizer)
        else:
            self.optimizer.step()
        self.at(5)
        if self.ema is not None:
            with torch.no_grad():
                torch._foreach_lerp_(self.ema, [p.detach() for p in self.parameters], 0.1)
        if self.scaler is not None:
            self.scaler.update()
        self.at(6)
        return [total, norm]

    def after(self) -> None:
        """What stays Python's."""
        if self.schedule is not None:
            self.schedule.step()

    def fill(self) -> None:
        for x in self.x:
            x.copy_(torch.randn(4, 6))
        self.y.copy_(torch.randn(4, 6))
        self.k.copy_(torch.randint(0, 6, (4,)))

    def state(self) -> list[Any]:
        found = [*self.model.parameters(), *self.model.buffers()]
        found += [p.grad for p in self.model.parameters()]
        found += [self.optimizer.state_dict(), self.ema]
        if self.schedule is not None:
            found.append(self.schedule.get_last_lr())
        if self.scaler is not None:
            found += [self.scaler.state_dict(), len(self.scaler._optimizers)]
        return flat([found, torch.rand(1)])


def twins(seed: int) -> tuple[Step, Step]:
    """Twice the same, after none to two steps."""
    both = Step(seed), Step(seed)
    for one in both:
        torch.manual_seed(seed + 1)
        for _ in range(seed % 3):
            one.fill()
            one.captured()
            one.after()
    return both


def replayed(seed: int) -> None:
    """A captured step gives, three times, what the plain step gives."""
    plain, graphed = twins(seed)
    if graphed.name == "own" and not seed % 3:
        for one in (plain, graphed):
            torch.manual_seed(seed)
            one.captured()
    graph = torch.cuda.CUDAGraph()
    before = graphed.state()
    with torch.cuda.graph(graph):
        made = graphed.captured()
    graphed_grads = [p.grad for p in graphed.model.parameters()]
    assert (
        before[: len(list(graphed.model.parameters()))]
        == graphed.state()[: len(list(graphed.model.parameters()))]
    )
    del graphed_grads
    for turn in range(3):
        found = []
        for one in (plain, graphed):
            torch.manual_seed(seed + 10 + turn)
            one.fill()
            if turn == 1 and one.scaler is not None:  # gradients overflow: no optimizer steps
                one.x[0].fill_(3e38)
            if one is plain:
                results = one.captured()
            else:
                graph.replay()
                results = made
            kept = flat(results)
            one.after()
            found.append([*kept, *one.state()])
        exact = plain.name != "Adafactor" or plain.device == "cpu"  # docs/graphs.md
        assert same(found[0], found[1], exact), (turn, seed)


def refused(seed: int) -> None:
    """A step after a refused capture gives what it gives without."""
    plain, other = twins(seed)
    places = [1, 2, 3, 4, 5, 6] if other.scaler is not None else [1, 2, 4, 5, 6]
    other.stops = random.Random(seed).choice(places)
    with (
        pytest.raises(RuntimeError, match="cannot be captured"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        other.captured()
    other.stops = 0
    for turn in range(2):
        found = []
        for one in (plain, other):
            torch.manual_seed(seed + 10 + turn)
            one.fill()
            kept = flat(one.captured())
            one.after()
            found.append([kept, one.state()])
        assert found[0] == found[1], (turn, seed)


# --- graphed callables ----------------------------------------------------------------------------


class Several(nn.Module):
    """Random layers over one to three inputs; results in a tuple, a list or a dict."""

    def __init__(self, choose: random.Random) -> None:
        super().__init__()
        self.inputs = choose.randint(1, 3)
        kept = [name for name in sorted(LAYERS) if name != "weight norm"]
        names = [[choose.choice(kept) for _ in range(choose.randint(1, 3))] for _ in range(2)]
        self.first, self.second = [nn.Sequential(*[LAYERS[n]() for n in some]) for some in names]
        self.register_buffer("scale", torch.full((6,), 0.5))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.idle = nn.Parameter(torch.ones(3)) if choose.random() < 0.2 else None
        self.frozen = nn.Parameter(torch.ones(6), requires_grad=False)
        self.form = choose.choice(["one", "tuple", "list", "dict", "nested"])
        self.extra = choose.choice([None, None, "whole", "detached", "input", "twice"])
        self.nests = self.inputs > 1 and choose.random() < 0.3

    def forward(self, *args: Any) -> Any:
        x, *rest = (*args[0], *args[1:]) if self.nests else args
        self.count += 1
        y = self.first(x)
        for other in rest:
            y = y + other * self.scale
        z = self.second(y * self.frozen)
        made = [z] if self.form == "one" else [z, (y * z).sum(1)]
        if self.form != "one" and self.extra is not None:
            made.append(
                {
                    "whole": z.argmax(1),
                    "detached": z.detach() * 2,
                    "input": x,
                    "twice": made[0],
                }[self.extra]
            )
        if self.form == "one":
            return z
        if self.form == "dict":
            return {f"part {i}": t for i, t in enumerate(made)}
        if self.form == "nested":
            return made[0], {"rest": made[1:]}
        return made if self.form == "list" else tuple(made)


def leaves(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value
    return [leaf for part in parts for leaf in leaves(part)]


def kinds(value: Any) -> Any:
    """The containers of a result."""
    if isinstance(value, dict):
        return {key: kinds(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value), [kinds(part) for part in value]
    return type(value)


def close(a: Any, b: Any) -> bool:
    """Whether tensors hold the same: sums come in another order where a graph ends."""
    if not isinstance(a, torch.Tensor):
        return bool(a == b)
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-9, atol=1e-9, equal_nan=True)


def graphed(seed: int) -> None:
    """Graphed modules give what plain ones give, forward and backward, over a training."""
    choose = random.Random(seed)
    torch.manual_seed(seed)
    torch.set_default_dtype(torch.float64)
    try:
        _graphed(seed, choose)
    finally:
        torch.set_default_dtype(torch.float32)


def _graphed(seed: int, choose: random.Random) -> None:
    many = choose.randint(1, 3)
    nets = [Several(choose) for _ in range(many)]
    for net in nets:
        net.train(choose.random() < 0.7)
    needs = [[choose.random() < 0.6 for _ in range(net.inputs)] for net in nets]

    def arguments(net: Any, wanted: list[bool]) -> tuple[Any, ...]:
        made = [torch.randn(4, 6).requires_grad_(w) for w in wanted]
        return (made[:2], *made[2:]) if net.nests else tuple(made)

    samples = [arguments(net, wanted) for net, wanted in zip(nets, needs, strict=True)]
    others = [copy.deepcopy(net) for net in nets]
    warm = choose.choice([0, 1, 3])
    unused = choose.random() < 0.7
    some = others[0] if many == 1 else tuple(others)
    try:
        made = torch.cuda.make_graphed_callables(
            some, samples[0] if many == 1 else tuple(samples), warm, unused
        )
    except RuntimeError as error:
        assert "used in the graph" in str(error) and not unused, error
        return
    assert made is some or all(a is b for a, b in zip(made, others, strict=True))
    for net, other in zip(nets, others, strict=True):  # batch norm went on while it warmed up
        net.load_state_dict(other.state_dict())
    trained = [[p for n in group for p in n.parameters()] for group in (nets, others)]
    rules = [torch.optim.SGD(some, lr=0.05) for some in trained]
    for turn in range(4):
        if turn == 2 and choose.random() < 0.4:
            for net, other in zip(nets, others, strict=True):
                net.train(not net.training)
                other.train(not other.training)
        found = []
        weights = choose.random(), choose.random() < 0.5
        for group, rule in ((nets, rules[0]), (others, rules[1])):
            torch.manual_seed(seed + turn)
            given = [arguments(n, w) for n, w in zip(group, needs, strict=True)]
            rule.zero_grad()
            results = [net(*args) for net, args in zip(group, given, strict=True)]
            parts = [t for r in results for t in leaves(r) if t.requires_grad]
            parts = parts[:1] if weights[1] else parts  # the others get no cotangent
            seen = [kinds(results)]
            if parts:
                total = sum([(t * t).sum() * weights[0] for t in parts])
                total.backward()
                rule.step()
            inputs = [t for args in given for t in leaves(args)]
            outputs = [t for r in results for t in leaves(r)]
            seen += [t.requires_grad for t in outputs]
            seen += [t.detach() for t in outputs] + [t.grad for t in inputs]
            seen += [p.detach().clone() for n in group for p in (*n.parameters(), *n.buffers())]
            seen += [p.grad for n in group for p in n.parameters()]
            found.append(seen)
        assert len(found[0]) == len(found[1])
        assert all(map(close, *found)), (turn, seed)


@pytest.mark.parametrize("seed", slow_but(range(60), *range(6)))
def test_random_steps_are_replayed_to_the_last_bit(seed: int) -> None:
    replayed(seed)


@pytest.mark.parametrize("seed", slow_but(range(60), *range(6)))
def test_a_step_after_a_refused_capture_is_as_without(seed: int) -> None:
    refused(seed)


@pytest.mark.parametrize("seed", slow_but(range(60), *range(6)))
def test_random_modules_are_graphed_callables(seed: int) -> None:
    graphed(seed)

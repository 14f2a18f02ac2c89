"""Random small networks as text: a seed gives a list of lines.

A `Writer` keeps the shapes of the values so far; each function marked with `op` adds lines that
read one of them. The tables hold what gives a value of the same shape. In all of them ``{a}`` is
a value, ``{b}`` another of its shape, ``_`` a new name for a parameter.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Callable
from types import SimpleNamespace

from tools.network_runs import MADE, TRAINING, Network

Shape = tuple[int, ...]


def table(text: str) -> tuple[str, ...]:
    """The templates of a text, between semicolons."""
    return tuple(" ".join(part.split()) for part in text.split(";"))


# prelu keeps away from 0, where PyTorch's second derivative is that of a slope of 1.
ACTIVATIONS = table("""
    F.relu({a}); F.relu6({a}); F.leaky_relu({a}, 0.1); F.elu({a}); F.selu({a}); F.celu({a}, 0.5);
    F.gelu({a}); F.gelu({a}, approximate='tanh'); F.silu({a}); F.mish({a}); F.softplus({a});
    F.softsign({a}); torch.tanh({a}); torch.sigmoid({a}); F.hardtanh({a}, -0.8, 0.8);
    F.hardswish({a}); F.hardsigmoid({a}); F.hardshrink({a}, 0.2); F.softshrink({a}, 0.2);
    F.tanhshrink({a}); F.logsigmoid({a}); F.threshold({a}, 0.1, 0.0); F.rrelu({a}, 0.1, 0.3);
    F.prelu({a} - 0.013, P(_, {c})); F.prelu({a} - 0.013, P(_, 1)); snake({a})
""")
SOFTMAXES = table("""
    F.softmax({a}, 1); F.softmax({a}, -1); F.log_softmax({a}, -1); F.softmin({a}, 1);
    {a} - {a}.logsumexp(1, keepdim=True); {a} - torch.logsumexp({a}, -1, True)
""")
PROGRAMS = table("""
    {a} * 0.7 + {b}; {a} * {b}; {a} - {b}; {a} / (1 + {b}.abs()); {a} + {b};
    {a} * torch.sigmoid({b}); torch.lerp({a}, {b}, 0.3); torch.maximum({a}, {b});
    torch.minimum({a}, {b} * 0.5); torch.where({a} > 0, {a}, {b} * 0.1);
    torch.where({b} > {a}, {a} * 2, {b}); torch.addcmul({a}, {b}, {b}, value=0.3);
    torch.addcdiv({a}, {b}, 1 + {a} * {a}); torch.hypot({a}, {b} + 3);
    torch.atan2({a}, 2 + {b} * {b}); (-{a}.abs()).exp() * {b}; (1 + {a} * {a}).log();
    (0.5 + {a} ** 2).sqrt(); (1 + {a}.square()).rsqrt() * {a}; torch.sin({a}) + {b};
    {a}.cos() * {a}; torch.erf({a}); {a}.clamp(-1, 1); {a}.clamp(min=-0.3); -{a}; {a}.abs();
    {a}.expm1().clamp(max=2); torch.log1p({a}.abs()); {a} ** 3 * 0.2; {a} * P(_, 1) + 1;
    {a} * P(_, {d}) + P(_, {d}); {a} - {a}.mean(); {a} / (1 + {a}.std());
    {a} - {a}.mean(1, keepdim=True); {a} / ({a}.var(1, keepdim=True, unbiased=False) + 1).sqrt();
    {a} * {b}.sum().tanh(); {a} - {a}.amax(1, keepdim=True); {a} * {a}.amin(-1, keepdim=True);
    {a} / ({a}.norm(dim=1, keepdim=True) + 1); F.normalize({a}, dim=1);
    {a} + {b}.sum(0, keepdim=True) * 0.3; {a} * {b}.mean(-1, keepdim=True); {a} - {b}.detach();
    {a} * {a}.detach().sigmoid(); {a} + 0.1 * {a}.exp().clamp(0, 3); {a} * K(_, *{a}.shape);
    torch.addcmul({a}, K(_, {d}), {b}); {a} * {a}[:, :1] + {b}; {a}[:, -1:] - {a};
    {a} + {b}[..., :1]; {a}.double().to({a}); torch.nan_to_num({a});
    {a}.masked_fill({b} > 0.3, 0.1); torch.xlogy({a}, {b}.abs() + 1);
    {a}.reciprocal().clamp(-1, 1); {a}.sign() * {a}; torch.logaddexp({a}, {b});
    {a}.round().detach() + {a} - {a}.detach(); F.dropout({a}, 0.0); torch.sinc({a});
    torch.cumsum({a}, 1) * 0.2; torch.cumsum({a}, -1) * 0.3; torch.asinh({a})
""")  # of elementwise ops, with what broadcasts
# Equal elements have no order of their own unless argsort is told to be stable.
VIEWS = table("""
    {a}.transpose(1, -1).contiguous().transpose(1, -1); {a}.roll(1, -1); {a}.flip(1);
    {a}.roll((1, 2), (0, 1)); {a}.flip((0, -1)); {a}.reshape(-1).view({a}.shape);
    {a}[:, :1].expand({a}.shape); {a}.mean(1, keepdim=True).expand_as({a}) + {b}; {a}.clone();
    {a}.contiguous(); {a}[..., torch.arange({d})]; torch.cat([{a}[:, 1:], {a}[:, :1]], 1);
    torch.stack([{a}, {b}]).mean(0); torch.stack([{a}, {b}], -1).amax(-1);
    torch.cat([{a}, {b}], 0).chunk(2)[1]; {a}.index_select(1, I(_, {c}, {c}));
    {a}[I(_, len({a}), len({a}))]; {a}.gather(1, I(_, {c}, *{a}.shape));
    torch.take_along_dim({a}, {b}.argsort(dim=-1, stable=True), -1);
    {a}.unsqueeze(0).squeeze(0); {a}.sort(dim=-1, stable=True)[0];
    {a}.unbind(0)[-1] + {a}; {a}.sort(dim=1, descending=True, stable=True).values;
    {a}.movedim(1, -1).movedim(-1, 1) * {b}; F.pad({a}, (1, 1))[..., 1:-1];
    F.pad({a}, (0, 2), value=0.5)[..., 2:]; torch.split({a}, [1, {c} - 1], 1)[0] * {b};
    {a}.repeat_interleave(2, 1)[:, ::2]; {a}.scatter_add(1, I(_, {c}, *{a}.shape), {b});
    {a}.repeat(2, *[1] * ({a}.ndim - 1))[::2]; {a}.index_add(1, I(_, {c}, {c}), {b});
    {a}.as_strided({a}.shape, {a}.stride())
""")  # of the same shape again
# PyTorch 2.13 gives a wrong gradient to instance_norm of one image where the channels of what
# comes back lie last; so there are two images here.
NORMS = table("""
    F.layer_norm({a}, {a}.shape[-1:], P(_, {d}), P(_, {d}));
    F.layer_norm({a}, {a}.shape[1:], P(_, *{a}.shape[1:]), P(_, *{a}.shape[1:]));
    F.layer_norm({a}, {a}.shape[-1:]); F.rms_norm({a}, {a}.shape[-1:], P(_, {d}), 1e-3);
    F.rms_norm({a}, {a}.shape[1:], P(_, *{a}.shape[1:]), 1e-3);
    {a} * ({a}.square().mean(-1, keepdim=True) + 0.01).rsqrt() * P(_, {d});
    F.batch_norm({a}, B(_, 0.0, {c}), B(_, 1.0, {c}), P(_, {c}), P(_, {c}), training=True);
    F.batch_norm({a}, B(_, 0.1, {c}), B(_, 2.0, {c}), P(_, {c}), P(_, {c}), training=False);
    F.batch_norm({a}, None, None, training=True);
    F.group_norm({a}, gcd({c}, 1), P(_, {c}), P(_, {c}));
    F.group_norm({a}, gcd({c}, 2), P(_, {c}), P(_, {c}));
    F.group_norm({a}, gcd({c}, 4), P(_, {c}), P(_, {c}));
    F.group_norm({a}, gcd({c}, 8), P(_, {c}), P(_, {c}));
    F.group_norm({a}, gcd({c}, 32), P(_, {c}), P(_, {c}));
    F.group_norm({a}, gcd({c}, 32), P(_, {c}), P(_, {c})); F.group_norm({a}, gcd({c}, 4))
""")
IMAGE_NORMS = table("""
    F.instance_norm(torch.cat([{a}, {b}]), None, None, P(_, {c}))[:len({a})];
    F.instance_norm(torch.cat([{a}, {a}]))[:len({a})]; F.local_response_norm({a}, 3, alpha=0.1);
    {a} * P(_, {c}, 1, 1) + P(_, {c}, 1, 1);
    {a} * torch.sigmoid(F.linear({a}.mean((2, 3)), P(_, {c}, {c})))[:, :, None, None];
    F.max_pool2d({a}, 3, 1, 1); F.avg_pool2d({a}, 3, 1, 1);
    {a}.contiguous(memory_format=torch.channels_last); {a}.to(memory_format=torch.channels_last);
    {a}.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2);
    F.layer_norm({a}.permute(0, 2, 3, 1), {a}.shape[1:2]).permute(0, 3, 1, 2);
    F.pad({a}, (1, 1, 1, 1), mode='replicate')[:, :, 1:-1, :-2];
    F.pad({a}, (1, 0, 0, 1), mode='circular')[:, :, 1:, 1:]; F.channel_shuffle({a}, gcd({c}, 4));
    F.pixel_unshuffle(F.interpolate({a}, scale_factor=2), 2)[:, ::4];
    F.interpolate(F.interpolate({a}, scale_factor=2, mode='bilinear'), {a}.shape[2:]);
    F.interpolate({a}, {a}.shape[2:], mode='bilinear', align_corners=False);
    torch.einsum('nchw,cd->ndhw', {a}, P(_, {c}, {c}))
""")
SEQUENCE_OPS = table("""
    F.scaled_dot_product_attention({a}, {a}, {b});
    F.scaled_dot_product_attention({a}, {b}, {a}, is_causal=True);
    F.softmax({a} @ {b}.transpose(1, 2) / {d} ** 0.5, -1) @ {a};
    F.softmax(({a} @ {a}.mT).tril(), -1) @ {b};
    M(_, lambda: nn.MultiheadAttention({d}, gcd({d}, 4), batch_first=True))
      ({a}, {b}, {b}, need_weights=False)[0];
    M(_, lambda: nn.TransformerEncoderLayer({d}, gcd({d}, 2), 16, 0.0, batch_first=True,
      activation='gelu'))({a});
    M(_, lambda: nn.LSTM({d}, {d}, batch_first=True))({a})[0];
    M(_, lambda: nn.GRU({d}, {d}, batch_first=True))({a})[0];
    M(_, lambda: nn.RNN({d}, {d}, 2, batch_first=True))({a})[0];
    M(_, lambda: nn.RNN({d}, {d}, nonlinearity='relu'))({a})[0];
    F.instance_norm(torch.cat([{a}, {a}]))[:len({a})]; F.max_pool1d({a}, 3, 1, 1);
    F.avg_pool1d({a}, 3, 1, 1);
    torch.bmm({a}, P(_, {d}, {d}).expand({a}.shape[0], -1, -1));
    torch.baddbmm({a}, {b}, P(_, 1, {d}, {d}).expand(len({a}), -1, -1), beta=0.3);
    torch.einsum('nld,de->nle', {a}, P(_, {d}, {d})); {a}.tril()
""")
MATRIX_OPS = table("""
    M(_, lambda: nn.GRUCell({c}, {c}))({a}, {b});
    M(_, lambda: nn.LSTMCell({c}, {c}))({a}, ({a}, {b}))[1];
    M(_, lambda: nn.RNNCell({c}, {c}))({a}, {b});
    torch.addmm({a}, {b}, P(_, {c}, {c}), alpha=0.5); torch.addmm(P(_, {c}), {a}, P(_, {c}, {c}));
    {a} @ ({a}.t() @ {b} * 0.1); {a} * F.cosine_similarity({a}, {b}, dim=1)[:, None];
    F.bilinear({a}, {b}, P(_, {c}, {c}, {c})) * 0.1; torch.outer({a}[:, 0], {b}[0])
""")
WRITES = table("""
    {a}.add_({b}); {a}.mul_(0.5); {a}.mul_({b}); {a}.relu_(); {a} += 0.3 * {b};
    {a}[:, :1].add_({b}[:, -1:]); {a}[:, ::2] = {b}[:, ::2] * 2; {a}[0] = 0.0;
    {a}.masked_fill_({b} > 0.2, 0.1); {a}.clamp_(-1, 1); {a}[..., :1].mul_(3.0);
    {a}.transpose(1, -1).add_({b}.transpose(1, -1)); {a}.sub_({b}, alpha=0.5);
    {a}.unsqueeze(1).squeeze(1).mul_(0.5); {a}.copy_({b} * {b}); {a}.sigmoid_(); {a}.tanh_();
    {a}[:, 0].copy_({b}[:, -1]); {a}[-1:].zero_(); {a}.narrow(1, 0, 1).add_(1.0);
    {a}.addcmul_({b}, {b}, value=0.2); {a}.lerp_({b}, 0.4); {a}.div_(1 + {b}.abs());
    {a}[{b} > 0.5] = 0.0; {a}.index_add_(1, I(_, {c}, {c}), {b}); {a}.neg_();
    {a}.exp_().clamp_(max=2); {a}.unflatten(0, (1, -1))[0].add_(1); {a}.square_();
    {a}.detach().mul_(1.5); F.silu({a}, inplace=True); F.leaky_relu_({a}, 0.2);
    {a}.scatter_(1, I(_, {c}, *{b}[:, :1].shape), {b}[:, :1]); {a}.fill_(0.0)
""")  # in place into {a}, which no other line has read
READS = table("""
    float({a}.sum()); {a}.detach().numpy(); {a}.mean().item(); bool(({a} > 0).any());
    {a}.detach().amax().item(); str({a}); {a}.tolist()
""")

WEIGHTED: list[tuple[float, Callable[[Writer, str], None]]] = []


def op(weight: float) -> Callable[[Callable[[Writer, str], None]], Callable[[Writer, str], None]]:
    """Mark a function that writes lines after a value."""

    def marked(function: Callable[[Writer, str], None]) -> Callable[[Writer, str], None]:
        WEIGHTED.append((weight, function))
        return function

    return marked


def filled(template: str, a: str, b: str) -> str:
    """A template with values in it."""
    return template.format(a=a, b=b, c=f"{a}.shape[1]", d=f"{a}.shape[-1]")


class Writer:
    """The lines so far, with the shapes of their values, the latest last."""

    def __init__(self, seed: int, largest: int) -> None:
        self.rng, self.largest = random.Random(seed), largest
        self.lines: list[str] = []
        self.shapes: dict[str, Shape] = {}
        self.sizes: dict[str, int] = {}
        self.numbers = itertools.count(1)

    def named(self, text: str) -> str:
        """The text with new names for parameters."""
        return re.sub(r"(?<=[(])_(?=,)", lambda _: f"'p{next(self.numbers)}'", text)

    def size(self, text: str) -> int:
        """What an expression of sizes and shapes is."""
        values = {name: SimpleNamespace(shape=shape) for name, shape in self.shapes.items()}
        return int(eval(text, {"gcd": math.gcd, **self.sizes, **values}))

    def value(self, text: str, shape: Shape) -> str:
        """A line that makes a value."""
        name = f"v{next(self.numbers)}"
        self.lines.append(f"{name} = {self.named(text)}")
        self.shapes[name] = shape
        return name

    def fits(self, shape: Shape) -> bool:
        """Whether a value of this shape is neither empty nor too large."""
        return 0 < math.prod(shape) <= self.largest

    def like(self, a: str) -> str:
        """A value of the same shape: the value itself where there is no other."""
        alike = [name for name, shape in self.shapes.items() if shape == self.shapes[a]]
        return self.rng.choice(alike)

    def filled(self, template: str, a: str) -> str:
        """A template with values."""
        return self.named(filled(template, a, self.like(a)))

    def same(self, templates: tuple[str, ...], a: str) -> str:
        """A value of the same shape by one of the templates."""
        return self.value(self.filled(self.rng.choice(templates), a), self.shapes[a])

    def one(self, *texts: str) -> str:
        """One of these."""
        return self.rng.choice(texts)


@op(5)
def activation(w: Writer, a: str) -> None:
    """An activation."""
    w.same(ACTIVATIONS, a)


@op(6)
def elementwise(w: Writer, a: str) -> None:
    """A chain of elementwise ops."""
    for _ in range(w.rng.choice((1, 1, 2, 5))):
        a = w.same(PROGRAMS, a)


@op(3)
def view(w: Writer, a: str) -> None:
    """Views and copies."""
    w.same(VIEWS, a)


@op(0.7)
def softmax(w: Writer, a: str) -> None:
    """Along rows or channels."""
    w.same(SOFTMAXES, a)


@op(4)
def norm(w: Writer, a: str) -> None:
    """A normalization, and often an activation after it."""
    shape = w.shapes[a]
    if math.prod(shape) // shape[1] < 2:
        return
    pixels = math.prod(shape[2:])
    made = w.same(NORMS + IMAGE_NORMS * (len(shape) == 4 and pixels > 1), a)
    if w.rng.random() < 0.5:
        w.same(ACTIVATIONS, made)


@op(3)
def block(w: Writer, a: str) -> None:
    """A norm, an activation and a convolution, as residual networks have them."""
    if len(w.shapes[a]) == 4 and math.prod(w.shapes[a]) // w.shapes[a][1] > 1:
        if w.rng.random() < 0.5:
            concatenated(w, a)
        a = w.same(NORMS, list(w.shapes)[-1])
        convolution(w, w.same(ACTIVATIONS, a))


@op(1.5)
def shape_specific(w: Writer, a: str) -> None:
    """What needs a sequence, or a matrix."""
    rank = len(w.shapes[a])
    if rank == 4 and min(w.shapes[a][2:]) > 1:
        w.same(IMAGE_NORMS, a)
    elif rank == 3 and w.shapes[a][2] <= 64 and w.shapes[a][1] <= 300:
        long = w.shapes[a][1] > 20  # recurrent layers take long there
        allowed = tuple(t for t in SEQUENCE_OPS if not (long and re.search("LSTM|GRU|RNN", t)))
        allowed = tuple(t for t in allowed if w.shapes[a][2] > 1 or "instance" not in t)
        if w.shapes[a][1] > 1 or w.shapes[a][2] > 1:
            w.same(allowed, a)
    elif rank == 2 and w.shapes[a][1] <= 64:
        w.same(MATRIX_OPS, a)


@op(6)
def convolution(w: Writer, a: str) -> None:
    """Of images or signals: strides, dilations, groups, depthwise, transposed."""
    shape = w.shapes[a]
    rank = len(shape) - 2
    if rank not in (1, 2):
        return
    channels = f"{a}.shape[1]"
    kernel, step, dilation = w.rng.choice(
        ((3, 1, 1), (3, 1, 1), (1, 1, 1), (3, 2, 1), (3, 1, 2), (5, 1, 1))
    )
    groups = w.one("1", "1", "1", "1", f"gcd({channels}, 2)", f"gcd({channels}, 4)", channels)
    out = w.one("C", "C", channels, channels, f"max(1, {channels} // 2)", "4", "1")
    out = out if groups == "1" else w.one(channels, f"{groups} * 2")
    count, edge = w.size(out), dilation * (kernel // 2)
    new = (shape[0], count, *((n - 1) // step + 1 for n in shape[2:]))
    work = math.prod(new) * shape[1] // w.size(groups) * kernel**rank
    if not w.fits(new) or work > 150e6:
        return
    bias = w.one("", f", P(_, {out})")
    options = [f"stride={step}"] * (step > 1) + [f"padding={edge}"] * (edge > 0)
    options += [f"dilation={dilation}"] * (dilation > 1) + [f"groups={groups}"] * (groups != "1")
    weight = f"P(_, {out}, {channels} // {groups}, {', '.join([str(kernel)] * rank)})"
    weight = weight.replace(" // 1,", ",")
    w.value(f"F.conv{rank}d({', '.join([a, weight + bias, *options])})", new)


@op(1)
def transposed_convolution(w: Writer, a: str) -> None:
    """Twice as large or as large."""
    shape = w.shapes[a]
    rank = len(shape) - 2
    if rank not in (1, 2):
        return
    kernel, words, factor = w.rng.choice((
        (3, "padding=1", 1), (2, "stride=2", 2), (3, "stride=2, padding=1, output_padding=1", 2),
        (4, "stride=2, padding=1", 2),
    ))  # fmt: skip
    out = w.one("4", "C", f"{a}.shape[1]")
    new = (shape[0], w.size(out), *(n * factor for n in shape[2:]))
    if w.fits(new) and math.prod(new) * shape[1] * kernel**rank < 150e6:
        weight = f"P(_, {a}.shape[1], {out}, {', '.join([str(kernel)] * rank)})"
        bias = w.one("", f", P(_, {out})")
        w.value(f"F.conv_transpose{rank}d({a}, {weight}{bias}, {words})", new)


@op(3)
def linear(w: Writer, a: str) -> None:
    """A linear map of the last dimension."""
    *lead, width = w.shapes[a]
    out = w.one("C", f"{a}.shape[-1]", "8", "16", f"2 * {a}.shape[-1]", "1")
    new = (*lead, w.size(out))
    if w.fits(new) and math.prod(new) * width < 100e6:
        bias = w.one("", f", P(_, {out})", f", P(_, {out})")
        form = w.one(
            f"F.linear({a}, P(_, {out}, {a}.shape[-1]){bias})",
            f"{a} @ P(_, {a}.shape[-1], {out})",
            f"M(_, lambda: nn.Linear({a}.shape[-1], {out}))({a})",
            f"M(_, lambda: nn.utils.parametrizations.weight_norm("
            f"nn.Linear({a}.shape[-1], {out})))({a})",
        )
        w.value(form, new)


@op(1.2)
def pooling(w: Writer, a: str) -> None:
    """To fewer pixels."""
    shape = w.shapes[a]
    rank = len(shape) - 2
    if rank not in (1, 2) or min(shape[2:]) < 2:
        return
    few = w.rng.choice((1, 2, 3))
    text, after = w.rng.choice((
        (f"F.max_pool{rank}d({a}, 2)", lambda n: n // 2),
        (f"F.avg_pool{rank}d({a}, 2)", lambda n: n // 2),
        (f"F.max_pool{rank}d({a}, 3, 2, 1)", lambda n: (n - 1) // 2 + 1),
        (f"F.avg_pool{rank}d({a}, 3, 2, 1)", lambda n: (n - 1) // 2 + 1),
        (f"F.adaptive_avg_pool{rank}d({a}, {few})", lambda n: few),
        (f"F.adaptive_max_pool{rank}d({a}, {few})", lambda n: few),
        (f"F.lp_pool{rank}d({a}.abs() + 0.1, 2.0, 2)", lambda n: n // 2),
    ))  # fmt: skip
    w.value(text, (*shape[:2], *map(after, shape[2:])))


@op(4)
def concatenated(w: Writer, a: str) -> None:
    """Values joined along the channels."""
    shape = w.shapes[a]
    rest = (len(shape), shape[0], shape[2:])
    fitting = [n for n, s in w.shapes.items() if (len(s), s[0], s[2:]) == rest]
    parts = [a, *w.rng.choices([*fitting, a], k=w.rng.choice((1, 1, 2)))]
    w.rng.shuffle(parts)
    new = (shape[0], sum(w.shapes[n][1] for n in parts), *shape[2:])
    if w.fits(new):
        w.value(f"torch.cat([{', '.join(parts)}], 1)", new)


@op(3)
def chunks(w: Writer, a: str) -> None:
    """Halves of the channels, gated or joined again."""
    shape = w.shapes[a]
    if shape[1] < 2 or shape[1] % 2:
        return
    half = (shape[0], shape[1] // 2, *shape[2:])
    if w.rng.random() < 0.3:
        w.value(f"F.glu({a}, 1)", half)
        return
    cut = w.one(".chunk(2, 1)[{i}]", ".split({a}.shape[1] // 2, 1)[{i}]")
    first, second = (w.value(a + cut.format(a=a, i=i), half) for i in (0, 1))
    if w.rng.random() < 0.5:
        w.same(ACTIVATIONS, w.rng.choice((first, second)))
    joined = w.one("{x} * torch.sigmoid({y})", "torch.cat([{y}, {x}], 1)", "{x} * 0.5 - {y}", "{y}")
    w.value(joined.format(x=first, y=second), shape if "cat" in joined else half)


@op(2.5)
def residual(w: Writer, a: str) -> None:
    """``x + f(x)``."""
    inner = w.same(NORMS, a) if math.prod(w.shapes[a]) // w.shapes[a][1] > 1 else a
    inner = w.same(ACTIVATIONS, inner)
    before = len(w.lines)
    (convolution if len(w.shapes[a]) > 2 else linear)(w, inner)
    last = list(w.shapes)[-1]
    if len(w.lines) > before and w.shapes[last] == w.shapes[a]:
        w.value(f"{a} + {last}", w.shapes[a])
    else:
        w.value(f"{a} + {inner}", w.shapes[a])


@op(4)
def written(w: Writer, a: str) -> None:
    """Writes in place into a new value."""
    start = w.one("{a} * 1.5", "{a}.clone()", "{a} + {b}", "torch.zeros_like({a})", "{a} - 0.1")
    made = w.value(w.filled(start, a), w.shapes[a])
    for _ in range(w.rng.choice((1, 1, 2, 3))):
        others = [n for n in w.shapes if w.shapes[n] == w.shapes[a] and n != made] or [a]
        w.lines.append(w.named(filled(w.rng.choice(WRITES), made, w.rng.choice(others))))


@op(0.8)
def written_late(w: Writer, a: str) -> None:
    """A write in place into a value that others may have read."""
    if a != "x":
        w.lines.append(w.filled(w.rng.choice(WRITES), a))


@op(0.8)
def read(w: Writer, a: str) -> None:
    """A value is read by the host."""
    w.lines.append(w.rng.choice(READS).format(a=a))


@op(1)
def again(w: Writer, a: str) -> None:
    """A line once more on another value: with the same parameters."""
    names = [n for n, s in w.shapes.items() if s == w.shapes[a] and n != a]
    for line in reversed(w.lines):
        made, is_value, text = line.partition(" = ")
        used = set(re.findall(r"\bv\d+\b", text))
        if is_value and re.search("[PM][(]", text) and len(used) == 1 and used <= set(names):
            w.value(re.sub(rf"\b{used.pop()}\b", a, text), w.shapes[made])
            return


@op(1.2)
def checkpointed(w: Writer, a: str) -> None:
    """Two ops that are computed again in the backward pass."""
    templates = [w.rng.choice(t) for t in (NORMS + PROGRAMS, ACTIVATIONS, PROGRAMS)]
    if math.prod(w.shapes[a]) // w.shapes[a][1] < 2:
        return
    text = "a"
    for template in templates:
        text = f"(lambda a: {filled(template, 'a', 'a')})({text})"
    reentrant = w.one("False", "False", "True")
    w.value(f"checkpoint(lambda a: {text}, {a}, use_reentrant={reentrant})", w.shapes[a])


@op(0.7)
def dropout(w: Writer, a: str) -> None:
    """By a given mask."""
    w.value(f"drop(_, {a}, 0.3)", w.shapes[a])


@op(1)
def multihead(w: Writer, a: str) -> None:
    """Attention written out: chunks of one product, heads as views."""
    shape = w.shapes[a]
    if len(shape) != 3 or shape[2] % 2 or shape[2] > 64 or shape[1] > 300:
        return
    text = f"F.linear({a}, P(_, 3 * {a}.shape[2], {a}.shape[2]))"
    whole = w.value(text, (*shape[:2], 3 * shape[2]))
    heads = (shape[0], 2, shape[1], shape[2] // 2)
    q, k, v = (
        w.value(f"{whole}.chunk(3, -1)[{i}].unflatten(-1, (2, -1)).transpose(1, 2)", heads)
        for i in range(3)
    )
    rest = w.one("", ", is_causal=True")
    form = w.one(
        f"F.scaled_dot_product_attention({q}, {k}, {v}{rest})",
        f"torch.softmax({q} @ {k}.transpose(-1, -2) * {q}.shape[-1] ** -0.5, -1) @ {v}",
    )
    mixed = w.value(form, heads)
    w.value(f"{mixed}.transpose(1, 2).flatten(2)", shape)


@op(0.6)
def recurrence(w: Writer, a: str) -> None:
    """A recurrence by hand over the steps of a sequence."""
    shape = w.shapes[a]
    if len(shape) != 3 or shape[2] > 64:
        return
    state = w.value(f"torch.zeros_like({a}[:, 0])", (shape[0], shape[2]))
    weight = w.named(f"P(_, {a}.shape[2], {a}.shape[2])")
    form = w.one(
        "torch.tanh({x} + {h} @ {w})",
        "{h} * 0.9 + torch.sigmoid({h}) * {x}",
        "torch.lerp({h}, torch.tanh({x}), torch.sigmoid({x} @ {w}))",
    )
    states = [state]
    for t in range(min(shape[1], 6)):
        text = form.format(x=f"{a}[:, {t}]", h=states[-1], w=weight)
        states.append(w.value(text, w.shapes[state]))
    w.value(f"torch.stack([{', '.join(states[1:])}], 1)", (shape[0], len(states) - 1, shape[2]))


@op(3)
def reshaped(w: Writer, a: str) -> None:
    """To another rank."""
    shape = w.shapes[a]
    if len(shape) == 4:
        texts = [
            (f"{a}.flatten(2).transpose(1, 2)", (shape[0], shape[2] * shape[3], shape[1])),
            (f"{a}.flatten(1)", (shape[0], math.prod(shape[1:]))),
            (f"{a}.mean((2, 3))", shape[:2]),
            (f"{a}.amax((2, 3))", shape[:2]),
            (f"{a}.sum(1) * 0.2", (shape[0], *shape[2:])),
            (f"{a}.var(-1, unbiased=False)", shape[:3]),
            (f"{a}.transpose(2, 3)", (*shape[:2], shape[3], shape[2])),
            (f"{a}.transpose(0, 1)", (shape[1], shape[0], *shape[2:])),
            (f"{a}[:, :, ::2]", (*shape[:2], (shape[2] + 1) // 2, shape[3])),
        ]
    elif len(shape) == 3:
        texts = [
            (f"{a}.transpose(1, 2)", (shape[0], shape[2], shape[1])),
            (f"{a}.transpose(1, 2).unsqueeze(2)", (shape[0], shape[2], 1, shape[1])),
            (f"{a}.transpose(0, 1)", (shape[1], shape[0], shape[2])),
            (f"{a}.mean(1)", (shape[0], shape[2])),
            (f"{a}[:, -1]", (shape[0], shape[2])),
            (f"{a}.flatten(1)", (shape[0], shape[1] * shape[2])),
            (f"{a}.logsumexp(1)", (shape[0], shape[2])),
            (f"{a}.reshape({a}.shape[0], {a}.shape[1], -1, 1)", (*shape, 1)),
        ]
    else:
        texts = [
            (f"{a}.unsqueeze(1)", (shape[0], 1, shape[1])),
            (f"{a}.t()", (shape[1], shape[0])),
            (f"{a}[:, :, None, None].expand(-1, -1, 4, 4)", (*shape, 4, 4)),
            (f"torch.stack([{a}, {w.like(a)}], 1)", (shape[0], 2, shape[1])),
            (f"{a}[:, None] * P(_, 5, 1)", (shape[0], 5, shape[1])),
        ]
    text, new = w.rng.choice(texts)
    if w.fits(new):
        w.value(text, new)


@op(0.5)
def embedding(w: Writer, a: str) -> None:
    """Rows of a table by number, on their own or added to a value."""
    shape = w.shapes[a]
    if len(shape) == 3:
        w.value(f"{a} + F.embedding(I(_, 10, {a}.shape[1]), P(_, 10, {a}.shape[2]))", shape)
    else:
        w.value("F.embedding(I(_, 10, N, 7), P(_, 10, C))", (w.sizes["N"], 7, w.sizes["C"]))


LOSSES = table("""
    ({a} ** 2).mean(); ({a} * K(_, *{a}.shape)).sum() / {a}.numel(); {a}.logsumexp(1).mean();
    F.mse_loss({a}, K(_, *{a}.shape)); F.smooth_l1_loss({a}, K(_, *{a}.shape), beta=0.5);
    F.l1_loss({a}, K(_, *{a}.shape)); F.huber_loss({a}, {b}); {a}.square().sum().sqrt();
    F.cross_entropy({a}, I(_, {c}, {a}.shape[0], *{a}.shape[2:])); {a}.sum() * 0.01;
    F.binary_cross_entropy_with_logits({a}, ((K(_, *{a}.shape) + 1) / 2).clamp(0, 1));
    F.binary_cross_entropy(torch.sigmoid({a}), ((K(_, *{a}.shape) + 1) / 2).clamp(0, 1));
    {a}.abs().mean(); {a}.std();
    F.kl_div(F.log_softmax({a}, 1), K(_, *{a}.shape).softmax(1), reduction='batchmean');
    {a}.norm();
    F.cross_entropy({a}, I(_, {c}, {a}.shape[0], *{a}.shape[2:]), label_smoothing=0.1);
    F.nll_loss(F.log_softmax({a}, 1), I(_, {c}, {a}.shape[0], *{a}.shape[2:]));
    F.soft_margin_loss({a}, K(_, *{a}.shape).sign());
    F.poisson_nll_loss({a}.clamp(max=2), {b}.detach().abs());
    F.gaussian_nll_loss({a}, K(_, *{a}.shape), {b} ** 2 + 0.1); ({a} - {b} * 0.9).square().mean()
""")


def loss(w: Writer) -> None:
    """One to three terms, and now and then the penalty of a gradient."""
    names = list(w.shapes)
    terms = [names[-1], *w.rng.sample(names, min(len(names), w.rng.choice((0, 0, 1, 2))))]
    total = ""
    for a in terms:
        made = w.filled(w.rng.choice(LOSSES), a)
        w.lines.append(f"l{len(w.lines)} = {total}{made}")
        total = w.lines[-1].partition(" ")[0] + " + "
    if w.rng.random() < 0.1:
        inner = w.one("x", "x", w.rng.choice(names))
        gradient = f"torch.autograd.grad({total[:-3]}, {inner}, create_graph=True)[0]"
        w.lines.append(f"l{len(w.lines)} = {total}{gradient}.square().sum()")
    if w.rng.random() < 0.2:
        w.lines.append(f"float({w.lines[-1].partition(' ')[0]})")
    names = [line.partition(" ")[0] for line in w.lines if re.match(r"l\d", line)]
    w.lines.append(f"return {names[-1]}")


SIZES = (  # N, C, S; the larger ones are where blocks, threads and native steps begin
    *((1, 1, 1), (2, 3, 4), (3, 4, 5), (1, 8, 7), (2, 16, 8), (4, 8, 8), (2, 32, 8)),
    *((2, 64, 16), (2, 64, 16), (4, 32, 16), (1, 128, 16), (2, 32, 32), (4, 64, 16), (8, 16, 16)),
    *((2, 64, 16), (2, 64, 16), (3, 48, 16), (2, 48, 24), (1, 64, 32), (2, 33, 17), (16, 32, 8)),
)


def begin(w: Writer, sizes: tuple[int, int, int]) -> None:
    """The input, and now and then a second one."""
    w.sizes = dict(zip("NCS", sizes, strict=True))
    n, c, s = sizes
    text, shape = w.rng.choice((
        ("X('x', N, 3, S, S)", (n, 3, s, s)), ("X('x', N, C, S, S)", (n, c, s, s)),
        ("L('x', N, C, S, S)", (n, c, s, s)), ("X('x', N, S, C)", (n, s, c)),
        ("X('x', N, S * S, C)", (n, s * s, c)), ("X('x', N * S, C)", (n * s, c)),
    ))  # fmt: skip
    w.lines.append(f"x = {text}")
    w.shapes["x"] = shape
    if w.rng.random() < 0.3:
        w.value(text.replace("'x'", "_"), shape)


def network(seed: int, largest: int = 300_000, seeded: bool | None = None) -> Network:
    """The network of a seed; no value of it has more elements than ``largest``."""
    w = Writer(seed, largest)
    begin(w, w.rng.choice([s for s in SIZES if s[0] * s[1] * s[2] ** 2 <= largest]))
    weights = [weight for weight, _ in WEIGHTED]
    target = len(w.lines) + w.rng.choice((2, 4, 6, 9, 12, 16))
    while len(w.lines) < target:
        names = list(w.shapes)
        a = names[-1] if w.rng.random() < 0.75 else w.rng.choice(names)
        w.rng.choices(WEIGHTED, weights)[0][1](w, a)
    loss(w)
    seeded = w.rng.random() < 0.1 if seeded is None else seeded
    lines = [seeded_dropout(line) if seeded else line for line in w.lines]
    return Network(
        tuple(lines), w.sizes, w.rng.choice(("float32",) * 6 + ("float64",)),
        w.rng.choice(TRAINING + ("once",) * 8), w.rng.choice(MADE + ("clone",) * 2), seed, seeded,
    )  # fmt: skip


def seeded_dropout(line: str) -> str:
    """The line with masks drawn by our own dropout."""
    drawn = re.sub(r"drop\('\w+', (\w+), 0.3\)", r"F.dropout(\1, 0.3)", line)
    return re.sub(r"F.rrelu\((\w+), 0.1, 0.3\)", r"F.rrelu(\1, 0.1, 0.3, training=True)", drawn)

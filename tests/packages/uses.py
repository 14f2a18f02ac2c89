"""What packages built on PyTorch are tried with: a function each, its docstring says what it runs.

`tools/try_packages.py` runs each on PyTorch and on lucid_gpu. ``on`` gives weights and inputs that
are the same for both, and keeps what is compared: ``on.train`` the loss and all gradients of each
step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

USES: dict[str, tuple[Callable[[Any], None], tuple[str, ...]]] = {}


def package(name: str, *needed: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Tried with this function; what it needs beside PyTorch, NumPy and SciPy."""

    def add(use: Callable[[Any], None]) -> Callable[[Any], None]:
        USES[name] = use, needed
        return use

    return add


def in_float64(torch: Any) -> None:
    """Compute in float64 in this process, also where a package converts to float32 by name."""
    torch.set_default_dtype(torch.float64)
    torch.float = torch.float32 = torch.float64
    torch.Tensor.float = torch.Tensor.double


@package("einops")
def _einops(on: Any) -> None:
    """rearrange, reduce, repeat, einsum, pack, layers Rearrange and EinMix"""
    import einops
    from einops.layers.torch import EinMix, Rearrange
    from torch import nn

    net = nn.Sequential(
        Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=2, q=2),
        EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=12, d=5),
    )
    on.weights(net)
    x = on.randn(2, 3, 6, 4)

    def loss() -> Any:
        y = net(x)
        mean = einops.reduce(y, "b t d -> b 1 d", "mean")
        z = y - einops.repeat(mean, "b 1 d -> b t d", t=6)
        packed, shapes = einops.pack([z, mean], "b * d")
        assert len(einops.unpack(packed, shapes, "b * d")) == 2
        return (einops.einsum(packed, z, "b s d, b t d -> b s t") ** 2).mean()

    on.train(net, loss)


@package("einx", "frozendict")
def _einx(on: Any) -> None:
    """dot, mean, softmax and add by subscripts"""
    import einx
    from torch import nn

    w = nn.Parameter(on.randn(4, 5))
    b = nn.Parameter(on.randn(5))
    x = on.randn(2, 3, 4)

    def loss() -> Any:
        y = einx.add("a b d, d", einx.dot("a b c, c d -> a b d", x, w), b)
        return (einx.softmax("a b [d]", y) * einx.mean("a [b] d -> a 1 d", y)).pow(2).sum()

    on.train([w, b], loss)


@package("opt_einsum")
def _opt_einsum(on: Any) -> None:
    """contract of four operands and a contract expression"""
    import opt_einsum
    from torch import nn

    parts = [nn.Parameter(on.randn(*s)) for s in [(3, 4), (4, 5, 2), (5, 6), (6, 3)]]
    formula = "ab,bcx,cd,da->x"
    again = opt_einsum.contract_expression(formula, *[p.shape for p in parts])
    on.train(parts, lambda: (opt_einsum.contract(formula, *parts) * again(*parts)).sum().tanh())


@package("torchdiffeq")
def _torchdiffeq(on: Any) -> None:
    """odeint (dopri5, rk4) and odeint_adjoint of a neural ODE"""
    import torch
    from torch import nn
    from torchdiffeq import odeint, odeint_adjoint

    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))

        def forward(self, t: Any, y: Any) -> Any:
            return self.net(y) * torch.cos(t)

    y0, t = on.randn(3, 2), torch.linspace(0.0, 1.0, 4)
    for solve, method in [(odeint, "rk4"), (odeint, "dopri5"), (odeint_adjoint, "dopri5")]:
        field = on.weights(Field())
        on.train(
            field,
            lambda f=field, s=solve, m=method: s(f, y0, t, method=m, rtol=1e-5).pow(2).mean(),
            steps=2,
        )


@package("torchsde", "trampoline")
def _torchsde(on: Any) -> None:
    """sdeint without noise, by Euler's method, and its adjoint"""
    import torch
    import torchsde
    from torch import nn

    class SDE(nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self) -> None:
            super().__init__()
            self.drift = nn.Linear(2, 2)

        def f(self, t: Any, y: Any) -> Any:
            return torch.tanh(self.drift(y))

        def g(self, t: Any, y: Any) -> Any:
            return torch.zeros_like(y)

    y0, t = on.randn(3, 2), torch.linspace(0.0, 1.0, 3)
    for solve in (torchsde.sdeint, torchsde.sdeint_adjoint):
        sde = on.weights(SDE())
        on.train(sde, lambda f=sde, s=solve: s(f, y0, t, method="euler", dt=0.1).pow(2).mean())


@package("torchcde", "torchdiffeq", "torchsde", "trampoline")
def _torchcde(on: Any) -> None:
    """a neural controlled differential equation over Hermite splines"""
    import torchcde
    from torch import nn

    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(3, 6)

        def forward(self, t: Any, z: Any) -> Any:
            return self.net(z).tanh().view(*z.shape[:-1], 3, 2)

    x = torchcde.CubicSpline(
        torchcde.hermite_cubic_coefficients_with_backward_differences(on.randn(2, 6, 2))
    )
    z0, field = on.randn(2, 3), on.weights(Field())
    on.train(
        field,
        lambda: torchcde.cdeint(
            X=x, func=field, z0=z0, t=x.interval, adjoint=False, method="rk4"
        ).square().mean(),
    )  # fmt: skip


def _small(on: Any) -> tuple[Any, Callable[[], Any]]:
    from torch import nn

    net = on.weights(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)))
    x, y = on.randn(8, 4), on.randn(8, 2)
    return net, lambda: (net(x) - y).pow(2).mean()


@package("pytorch_optimizer")
def _pytorch_optimizer(on: Any) -> None:
    """three steps of 14 optimizers"""
    import pytorch_optimizer

    for name in (
        "AdaBelief", "AdaBound", "AdamP", "ADOPT", "Adan", "DiffGrad", "Lamb", "Lion", "MADGRAD",
        "PAdam", "QHAdam", "RAdam", "ScheduleFreeAdamW", "SOAP",
    ):  # fmt: skip
        net, loss = _small(on)
        # SOAP's first step is Adam's on U.T @ G @ V of a gradient's own singular vectors: off the
        # diagonal that is rounding, which Adam's usual eps of 1e-8 would scale to the size of 1.
        options = {"eps": 0.1} if name == "SOAP" else {}
        optimizer = getattr(pytorch_optimizer, name)(net.parameters(), lr=1e-2, **options)
        if hasattr(optimizer, "train"):
            optimizer.train()
        on.train(net, loss, optimizer=optimizer)


@package("torch_optimizer", "pytorch_ranger")
def _torch_optimizer(on: Any) -> None:
    """three steps of 8 optimizers, and Lookahead"""
    import torch_optimizer

    for name in ("AdaMod", "AdamP", "DiffGrad", "Lamb", "NovoGrad", "SGDW", "Yogi", "QHM"):
        net, loss = _small(on)
        options = {"momentum": 0.9} if name == "QHM" else {}
        made = getattr(torch_optimizer, name)(net.parameters(), lr=1e-2, **options)
        on.train(net, loss, optimizer=made)
    net, loss = _small(on)
    inner = torch_optimizer.Yogi(net.parameters(), lr=1e-2)
    on.train(net, loss, optimizer=torch_optimizer.Lookahead(inner, k=2))


@package("lion_pytorch")
def _lion(on: Any) -> None:
    """Lion with weight decay"""
    from lion_pytorch import Lion

    net, loss = _small(on)
    on.train(net, loss, optimizer=Lion(net.parameters(), lr=1e-3, weight_decay=1e-2))


@package("schedulefree")
def _schedulefree(on: Any) -> None:
    """AdamW and SGD without schedules, train and eval modes"""
    import schedulefree

    for made in (schedulefree.AdamWScheduleFree, schedulefree.SGDScheduleFree):
        net, loss = _small(on)
        optimizer = made(net.parameters(), lr=1e-2)
        optimizer.train()
        on.train(net, loss, optimizer=optimizer)
        optimizer.eval()
        on.keep(loss())


@package("madgrad")
def _madgrad(on: Any) -> None:
    """MADGRAD and MirrorMADGRAD"""
    import madgrad

    for made in (madgrad.MADGRAD, madgrad.MirrorMADGRAD):
        net, loss = _small(on)
        on.train(net, loss, optimizer=made(net.parameters(), lr=1e-2))


@package("ema_pytorch")
def _ema(on: Any) -> None:
    """EMA of a model, updated in training and evaluated"""
    from ema_pytorch import EMA

    net, loss = _small(on)
    ema = EMA(net, beta=0.9, update_after_step=0, update_every=1)
    x = on.randn(3, 4)
    for _ in range(3):
        on.train(net, loss, steps=1)
        ema.update()
        on.keep(ema(x))


@package("x_transformers", "einx", "frozendict", "einops", "loguru", "torch_einops_utils")
def _x_transformers(on: Any) -> None:
    """a decoder with rotary positions, GLU and RMS norm; an encoder over vectors"""
    import torch
    from x_transformers import (
        ContinuousTransformerWrapper,
        Decoder,
        Encoder,
        TransformerWrapper,
    )

    ids = torch.arange(14).view(2, 7) % 11
    model = on.weights(
        TransformerWrapper(
            num_tokens=11,
            max_seq_len=8,
            attn_layers=Decoder(
                dim=16,
                depth=2,
                heads=2,
                attn_dim_head=8,
                rotary_pos_emb=True,
                ff_glu=True,
                use_rmsnorm=True,
            ),
        )  # fmt: skip
    )
    on.train(
        model, lambda: torch.nn.functional.cross_entropy(model(ids).transpose(1, 2), ids.flip(1))
    )
    x = on.randn(2, 6, 4)
    encoder = on.weights(
        ContinuousTransformerWrapper(
            dim_in=4,
            dim_out=3,
            max_seq_len=8,
            attn_layers=Encoder(dim=16, depth=1, heads=2, attn_dim_head=8),
        )  # fmt: skip
    )
    on.train(encoder, lambda: encoder(x).pow(2).mean())


@package("vector_quantize_pytorch", "einx", "frozendict", "einops", "torch_einops_utils")
def _vector_quantize(on: Any) -> None:
    """VectorQuantize, FSQ and LFQ behind a linear layer"""
    from torch import nn
    from vector_quantize_pytorch import FSQ, LFQ, VectorQuantize

    x = on.randn(2, 6, 4)
    for quantizer in (
        VectorQuantize(dim=4, codebook_size=8, decay=0.8),
        FSQ(levels=[5, 4, 3], dim=4),
        LFQ(dim=4, codebook_size=16, entropy_loss_weight=0.1),
    ):
        net = on.weights(nn.Linear(4, 4))
        on.same_buffers(on.weights(quantizer))

        def loss(net: Any = net, quantizer: Any = quantizer) -> Any:
            out = quantizer(net(x))
            extra = sum(o.sum() for o in out[2:] if o is not None)
            return (out[0] - x).pow(2).mean() + extra

        on.train(net, loss)


@package("rotary_embedding_torch", "einops")
def _rotary(on: Any) -> None:
    """rotated queries and keys with learned frequencies"""
    from rotary_embedding_torch import RotaryEmbedding

    rotary = RotaryEmbedding(dim=8, learned_freq=True)
    q, k = on.randn(2, 2, 6, 8), on.randn(2, 2, 6, 8)

    def loss() -> Any:
        a, b = rotary.rotate_queries_or_keys(q), rotary.rotate_queries_or_keys(k)
        return (a @ b.transpose(-1, -2)).softmax(-1).pow(2).sum()

    on.train(rotary, loss)


@package("local_attention", "einops", "hyper_connections", "torch_einops_utils")
def _local_attention(on: Any) -> None:
    """causal windowed attention over projected inputs"""
    from local_attention import LocalAttention
    from torch import nn

    attend = LocalAttention(dim=8, window_size=4, causal=True, look_backward=1, autopad=True)
    qkv, x = on.weights(nn.Linear(8, 24)), on.randn(2, 2, 10, 8)
    on.train(qkv, lambda: attend(*qkv(x).chunk(3, dim=-1)).pow(2).mean())


@package("snntorch")
def _snntorch(on: Any) -> None:
    """Leaky, Synaptic and Alpha neurons through surrogate gradients over ten steps"""
    import snntorch
    from snntorch import surrogate
    from torch import nn

    x = on.randn(10, 4, 5).abs() * 2
    spike = surrogate.fast_sigmoid(slope=5)
    for neuron in (
        snntorch.Leaky(beta=0.8, learn_beta=True, spike_grad=spike),
        snntorch.Synaptic(alpha=0.7, beta=0.8, spike_grad=surrogate.atan()),
        snntorch.Leaky(beta=0.5, spike_grad=surrogate.sigmoid(slope=5), reset_mechanism="zero"),
    ):
        net = nn.Sequential(nn.Linear(5, 6))
        on.weights(net)

        def loss(net: Any = net, neuron: Any = neuron) -> Any:
            states = neuron.reset_mem()
            states = states if isinstance(states, tuple) else (states,)
            total = 0
            for step in x:
                out, *states = neuron(net(step), *states)
                total = total + (out.mean(0) - 0.3).pow(2).sum() + 0.01 * states[-1].pow(2).mean()
            return total

        on.train(nn.ModuleList([net, neuron]), loss)


@package("spikingjelly", "loguru")
def _spikingjelly(on: Any) -> None:
    """IF, LIF and PLIF neurons, multi-step, reset between steps"""
    from spikingjelly.activation_based import functional, layer, neuron, surrogate
    from torch import nn

    x = on.randn(6, 4, 5).abs() * 2
    for spike in (
        neuron.IFNode(surrogate_function=surrogate.ATan()),
        neuron.LIFNode(tau=2.0, surrogate_function=surrogate.Sigmoid(), detach_reset=True),
        neuron.ParametricLIFNode(init_tau=2.0),
    ):
        net = nn.Sequential(layer.Linear(5, 6), spike, layer.Linear(6, 2))
        functional.set_step_mode(on.weights(net), "m")

        def loss(net: Any = net) -> Any:
            functional.reset_net(net)
            return net(x).mean(0).pow(2).sum()

        on.train(net, loss)


@package("nflows")
def _nflows(on: Any) -> None:
    """a masked autoregressive flow with permutations, and rational-quadratic splines"""
    from nflows import distributions, flows, transforms

    x = on.randn(6, 3)
    maf = transforms.CompositeTransform(
        [
            transforms.MaskedAffineAutoregressiveTransform(features=3, hidden_features=6),
            transforms.ReversePermutation(3),
            transforms.MaskedPiecewiseRationalQuadraticAutoregressiveTransform(
                features=3, hidden_features=6, tails="linear", tail_bound=3.0
            ),
        ]
    )
    flow = on.weights(flows.Flow(maf, distributions.StandardNormal([3])))
    on.train(flow, lambda: -flow.log_prob(x).mean())


@package("normflows")
def _normflows(on: Any) -> None:
    """RealNVP of masked affine couplings"""
    import normflows
    import torch

    x, mask = on.randn(6, 2), torch.tensor([1.0, 0.0])
    layers = [
        normflows.flows.MaskedAffineFlow(
            m, normflows.nets.MLP([2, 6, 2]), normflows.nets.MLP([2, 6, 2])
        )
        for m in (mask, 1 - mask)
    ]
    flow = on.weights(normflows.NormalizingFlow(normflows.distributions.DiagGaussian(2), layers))
    on.train(flow, lambda: flow.forward_kld(x))


@package("zuko")
def _zuko(on: Any) -> None:
    """neural spline flow and masked autoregressive flow with a context"""
    import zuko

    x, c = on.randn(6, 3), on.randn(6, 2)
    for made in (zuko.flows.MAF, zuko.flows.NSF):
        flow = on.weights(made(features=3, context=2, transforms=2, hidden_features=(8,)))
        on.train(flow, lambda f=flow: -f(c).log_prob(x).mean())


@package("gpytorch", "linear_operator", "jaxtyping", "wadler_lindig")
def _gpytorch(on: Any) -> None:
    """exact Gaussian process: marginal likelihood in training, posterior mean and variance"""
    import gpytorch
    import torch

    x = torch.linspace(0, 1, 12)
    y = torch.sin(6 * x) + 0.1 * on.randn(12)

    class GP(gpytorch.models.ExactGP):
        def __init__(self, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = GP(likelihood)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    on.train(model, lambda: -mll(model(x), y))
    model.eval(), likelihood.eval()
    with torch.no_grad(), gpytorch.settings.fast_pred_var():
        posterior = likelihood(model(torch.linspace(0.05, 0.95, 5)))
        on.keep(posterior.mean, posterior.variance)


@package("botorch", "gpytorch", "linear_operator", "jaxtyping", "wadler_lindig", "multipledispatch",
         "pyre_extensions", "pyro-ppl", "pyro-api", "threadpoolctl", "typing_inspect",
         "mypy_extensions")  # fmt: skip
def _botorch(on: Any) -> None:
    """SingleTaskGP and the gradient of log expected improvement"""
    import torch
    from botorch.acquisition import LogExpectedImprovement
    from botorch.models import SingleTaskGP

    x = on.randn(8, 2).sigmoid().double()
    gp = SingleTaskGP(x, (x - 0.5).norm(dim=-1, keepdim=True))
    at = torch.full((3, 1, 2), 0.4, dtype=torch.float64, requires_grad=True)
    on.train([at], lambda: LogExpectedImprovement(gp, best_f=0.3)(at).sum(), steps=2)


@package("pyro-ppl", "pyro-api")
def _pyro(on: Any) -> None:
    """stochastic variational inference with a delta guide"""
    import pyro
    import torch
    from pyro import distributions
    from pyro.infer import SVI, Trace_ELBO
    from pyro.infer.autoguide import AutoDelta

    data = on.randn(10) + 2

    def model(data: Any) -> None:
        loc = pyro.sample("loc", distributions.Normal(torch.tensor(0.0), 3.0))
        with pyro.plate("data", len(data)):
            pyro.sample("obs", distributions.Normal(loc, 1.0), obs=data)

    pyro.clear_param_store()
    guide = AutoDelta(model, init_loc_fn=lambda site: torch.tensor(0.5))
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
    on.keep(*[torch.tensor(svi.step(data)) for _ in range(4)], guide.median()["loc"])


@package("entmax")
def _entmax(on: Any) -> None:
    """entmax15, sparsemax, entmax_bisect with a learned exponent, and a loss"""
    import entmax
    import torch
    from torch import nn

    x, target = nn.Parameter(on.randn(4, 7)), torch.tensor([1, 0, 3, 6])
    alpha = nn.Parameter(torch.tensor(1.4))
    weight = on.randn(4, 7)

    def loss() -> Any:
        parts = [entmax.entmax15(x), entmax.sparsemax(x), entmax.entmax_bisect(x, alpha)]
        named = entmax.entmax15_loss(x, target).mean() + entmax.sparsemax_loss(x, target).mean()
        return sum((p * weight).sum() for p in parts) + named

    on.train([x, alpha], loss)


@package("geomloss")
def _geomloss(on: Any) -> None:
    """Sinkhorn divergence and two kernel norms of point clouds"""
    from geomloss import SamplesLoss
    from torch import nn

    y = on.randn(7, 2)
    for options in ({"loss": "sinkhorn", "blur": 0.2}, {"loss": "gaussian"}, {"loss": "energy"}):
        x = nn.Parameter(on.randn(6, 2))
        measure = SamplesLoss(backend="tensorized", **options)
        on.train([x], lambda x=x, measure=measure: measure(x, y))


@package("pytorch_msssim")
def _msssim(on: Any) -> None:
    """SSIM and MS-SSIM of images"""
    from pytorch_msssim import ms_ssim, ssim
    from torch import nn

    x, y = nn.Parameter(on.randn(1, 2, 48, 48).sigmoid()), on.randn(1, 2, 48, 48).sigmoid()

    def loss() -> Any:
        a = ssim(x, y, data_range=1.0, win_size=7)
        return a + ms_ssim(x, y, data_range=1.0, win_size=3, weights=[0.4, 0.6])

    on.train([x], loss)


@package("e3nn", "opt_einsum_fx")
def _e3nn(on: Any) -> None:
    """spherical harmonics, a tensor product, an equivariant linear layer, a gate, an extraction

    What scales activations, which e3nn averages over random numbers, is the same on both sides.
    """
    from e3nn import nn, o3

    x = on.randn(6, 3)
    product = on.weights(o3.FullyConnectedTensorProduct("1x0e+1x1o+1x2e", "2x0e+1x1o", "3x0e+1x1o"))
    linear = on.weights(o3.Linear("1x0e+1x1o+1x2e", "2x0e+1x1o"))
    gate = nn.Gate("2x0e", [lambda v: v.tanh()], "1x0e", [lambda v: v.sigmoid()], "1x1o")
    for module in gate.modules():
        if hasattr(module, "cst"):
            module.cst = 1.5
    scalars = nn.Extract("2x0e+1x1o", ["2x0e"], [(0,)], squeeze_out=True)

    def loss() -> Any:
        y = o3.spherical_harmonics([0, 1, 2], x, normalize=True)
        z = linear(y)
        return gate(product(y, z)).pow(2).mean() + scalars(z).sin().mean()

    on.train([*linear.parameters(), *product.parameters()], loss)


@package("kornia", "kornia_rs")
def _kornia(on: Any) -> None:
    """Sobel edges, Gaussian blur, and warping by an affine matrix, in float64

    The matrix is inverted: in float32 the results differ by 1e-04, and each side's from its own in
    float64 by half of that.
    """
    import kornia
    from torch import nn

    x = nn.Parameter(on.randn(1, 1, 8, 8).double())
    matrix = nn.Parameter(on.randn(1, 2, 3).double() * 0.1)

    def loss() -> Any:
        warped = kornia.geometry.transform.warp_affine(x, matrix, (8, 8))
        edges = kornia.filters.sobel(kornia.filters.gaussian_blur2d(x, (3, 3), (1.0, 1.0)))
        return edges.mean() + warped.pow(2).mean()

    on.train([x, matrix], loss)


@package("torchmetrics", "lightning_utilities")
def _torchmetrics(on: Any) -> None:
    """accuracy, AUROC, F1, mean squared error, R2 and SSIM, updated in batches"""
    import torch
    import torchmetrics

    labels = torch.arange(8) % 3
    metrics = torchmetrics.MetricCollection(
        [
            torchmetrics.Accuracy(task="multiclass", num_classes=3),
            torchmetrics.AUROC(task="multiclass", num_classes=3),
            torchmetrics.F1Score(task="multiclass", num_classes=3, average="macro"),
        ]
    )
    real = torchmetrics.MetricCollection(
        [torchmetrics.MeanSquaredError(), torchmetrics.R2Score(), torchmetrics.PearsonCorrCoef()]
    )
    for _ in range(2):
        metrics.update(on.randn(8, 3).softmax(-1), labels)
        real.update(on.randn(8), on.randn(8))
    on.keep(*metrics.compute().values(), *real.compute().values())
    images = [on.randn(1, 1, 16, 16).sigmoid() for _ in range(2)]
    on.keep(torchmetrics.functional.image.structural_similarity_index_measure(*images))


@package("higher")
def _higher(on: Any) -> None:
    """inner steps of differentiable Adam, and the outer gradient"""
    import higher
    import torch

    net, loss = _small(on)
    inner = torch.optim.Adam(net.parameters(), lr=1e-2)
    x, y = on.randn(8, 4), on.randn(8, 2)

    def outer() -> Any:
        with higher.innerloop_ctx(net, inner, copy_initial_weights=False) as (fast, steps):
            for _ in range(2):
                steps.step((fast(x) - y).pow(2).mean())
            return (fast(x) - y).pow(2).mean()

    on.train(net, outer, steps=2)


@package("pytorch_metric_learning")
def _metric_learning(on: Any) -> None:
    """triplet, contrastive, NT-Xent, ArcFace and proxy-anchor losses with a miner"""
    import torch
    from pytorch_metric_learning import losses, miners
    from torch import nn

    labels = torch.arange(8) % 3
    for made in (
        losses.TripletMarginLoss(), losses.ContrastiveLoss(), losses.NTXentLoss(),
        losses.ArcFaceLoss(3, 5), losses.ProxyAnchorLoss(3, 5), losses.SupConLoss(),
    ):  # fmt: skip
        net = nn.ModuleList([on.weights(nn.Linear(4, 5)), on.weights(made)])
        x, miner = on.randn(8, 4), miners.MultiSimilarityMiner()

        def loss(net: Any = net, x: Any = x, miner: Any = miner) -> Any:
            h = net[0](x)
            return net[1](h, labels, miner(h, labels))

        on.train(net, loss)


@package("performer_pytorch", "einops", "local_attention", "hyper_connections",
         "torch_einops_utils", "axial_positional_embedding")  # fmt: skip
def _performer(on: Any) -> None:
    """linear attention by random features, the projection given"""
    from performer_pytorch import FastAttention

    attend = FastAttention(dim_heads=8, nb_features=16)
    on.same_buffers(attend)
    from torch import nn

    qkv, x = on.weights(nn.Linear(8, 24)), on.randn(2, 2, 6, 8)
    on.train(qkv, lambda: attend(*qkv(x).chunk(3, dim=-1)).pow(2).mean())


@package("torch_geometric", "xxhash", "aiohttp", "psutil", "requests", "urllib3", "idna", "certifi",
         "charset_normalizer", "yarl", "multidict", "propcache", "frozenlist", "aiosignal",
         "aiohappyeyeballs", "attrs")  # fmt: skip
def _geometric(on: Any) -> None:
    """GCN, GAT, GIN and SAGE layers, pooling by graph"""
    import torch
    from torch import nn
    from torch_geometric import nn as gnn

    edges = torch.tensor([[0, 1, 2, 3, 4, 0, 2], [1, 0, 3, 2, 0, 4, 4]])
    x, batch = on.randn(5, 4), torch.tensor([0, 0, 1, 1, 1])
    for made in (
        gnn.GCNConv(4, 3), gnn.GATConv(4, 3, heads=2), gnn.GINConv(nn.Linear(4, 3)),
        gnn.SAGEConv(4, 3),
    ):  # fmt: skip
        conv = on.weights(made)
        on.train(conv, lambda c=conv: gnn.global_mean_pool(c(x, edges), batch).pow(2).sum())


@package("neuraloperator", "tensorly", "tensorly-torch", "opt_einsum", "requests", "urllib3",
         "idna", "certifi", "charset_normalizer", "wandb", "ruamel.yaml", "zencfg")  # fmt: skip
def _neuraloperator(on: Any) -> None:
    """a Fourier neural operator of two dimensions"""
    from neuralop.models import FNO

    model = on.weights(FNO(n_modes=(4, 4), in_channels=1, out_channels=1, hidden_channels=6))
    x = on.randn(2, 1, 8, 8)
    on.train(model, lambda: (model(x) - x.cumsum(-1)).pow(2).mean())


@package("timm")
def _timm(on: Any) -> None:
    """a small vision transformer, a ConvNeXt and an EfficientNet"""
    import timm

    sizes = {"img_size": 8, "patch_size": 4, "embed_dim": 16, "depth": 1, "num_heads": 2}
    model = on.weights(timm.models.VisionTransformer(**sizes))
    x = on.randn(1, 3, 8, 8)
    on.train(model, lambda: model(x).pow(2).mean())
    x = on.randn(2, 3, 32, 32).double()
    for name in ("convnext_atto", "efficientnet_lite0"):
        net = timm.create_model(name, num_classes=3, drop_path_rate=0.0).double().eval()
        for p in net.parameters():
            p.data.copy_(on.randn(*p.shape) / max(p[0].numel(), 1) ** 0.5)
        on.train(net, lambda net=net: net(x).pow(2).mean(), steps=1)


_MM = (
    "addict", "yapf", "termcolor", "rich", "pygments", "markdown-it-py", "mdurl", "platformdirs",
    "opencv-python-headless", "matplotlib", "mmcv-lite",
)  # fmt: skip


@package("mmengine", *_MM)
def _mmengine(on: Any) -> None:
    """its Runner: loaders, hooks, clipped steps of SGD, a schedule; base classes of layers"""
    import logging
    import tempfile

    from mmengine.model import BaseModel
    from mmengine.runner import Runner
    from torch import nn

    class Model(BaseModel):
        def __init__(self) -> None:
            super().__init__()
            self.layers = on.weights(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)))

        def forward(self, x: Any, y: Any, mode: str = "loss") -> Any:
            return {"loss": (self.layers(x) - y).square().mean()}

    rows = [(on.randn(4), on.randn(1)) for _ in range(16)]
    loader = {
        "batch_size": 4,
        "dataset": rows,
        "sampler": {"type": "DefaultSampler", "shuffle": False},
        "collate_fn": {"type": "default_collate"},
    }
    runner = Runner(
        Model(),
        tempfile.mkdtemp(),
        train_dataloader=loader,
        train_cfg={"by_epoch": True, "max_epochs": 4},
        optim_wrapper={
            "optimizer": {"type": "SGD", "lr": 0.05, "momentum": 0.9},
            "clip_grad": {"max_norm": 0.5},
        },
        param_scheduler={"type": "MultiStepLR", "milestones": [2]},
        default_scope="mmengine",
        log_level=logging.ERROR,
    )
    on.keep(*runner.train().parameters())


_HUB = (
    "huggingface_hub", "tqdm", "pyyaml", "requests", "urllib3", "idna", "certifi", "anyio", "h11",
    "charset_normalizer", "httpx2", "httpcore2", "truststore", "importlib_metadata", "zipp",
)  # fmt: skip


@package("diffusers", *_HUB)
def _diffusers(on: Any) -> None:
    """a conditional U-Net, an autoencoder, three schedulers; where transformers is not installed"""
    import torch
    from diffusers import (
        AutoencoderKL,
        DDIMScheduler,
        DDPMScheduler,
        EulerDiscreteScheduler,
        UNet2DConditionModel,
    )

    net = on.weights(
        UNet2DConditionModel(
            sample_size=8,
            in_channels=2,
            out_channels=2,
            block_out_channels=(8, 16),
            layers_per_block=1,
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
            cross_attention_dim=6,
            attention_head_dim=4,
            norm_num_groups=4,
        )
    )
    x, noise, text = on.randn(2, 2, 8, 8), on.randn(2, 2, 8, 8), on.randn(2, 3, 6)
    steps = torch.tensor([3, 40])
    ddpm = DDPMScheduler(num_train_timesteps=50)

    def loss() -> Any:
        noisy = ddpm.add_noise(x, noise, steps)
        return (net(noisy, steps, encoder_hidden_states=text).sample - noise).pow(2).mean()

    on.train(net, loss, steps=2)
    coder = on.weights(AutoencoderKL(block_out_channels=(8,), norm_num_groups=4, latent_channels=2))
    image = on.randn(1, 3, 8, 8)

    def reconstruction() -> Any:
        latent = coder.encode(image).latent_dist
        return (coder.decode(latent.mode()).sample - image).pow(
            2
        ).mean() + latent.kl().mean() * 0.01

    on.train(coder, reconstruction, steps=2)
    for scheduler in (DDIMScheduler(), EulerDiscreteScheduler()):
        scheduler.set_timesteps(4)
        sample = x * scheduler.init_noise_sigma
        with torch.no_grad():
            for step in scheduler.timesteps:
                scaled = scheduler.scale_model_input(sample, step)
                guess = net(scaled, step, encoder_hidden_states=text).sample
                sample = scheduler.step(guess, step, sample).prev_sample
        on.keep(sample)


@package("monai")
def _monai(on: Any) -> None:
    """a residual U-Net of 3 dimensions with Dice losses, and a transformer block"""
    from monai.losses import DiceCELoss, DiceLoss
    from monai.networks.blocks import TransformerBlock
    from monai.networks.nets import UNet

    sizes = {"channels": (4, 8), "strides": (2,), "num_res_units": 1}
    net = on.weights(UNet(spatial_dims=3, in_channels=1, out_channels=2, **sizes))
    x = on.randn(2, 1, 8, 8, 8)
    target = (x > 0).long()
    for criterion in (DiceLoss, DiceCELoss):
        dice = criterion(to_onehot_y=True, softmax=True)
        on.train(net, lambda d=dice: d(net(x), target), steps=2)
    block = on.weights(TransformerBlock(hidden_size=8, mlp_dim=16, num_heads=2))
    tokens = on.randn(2, 5, 8)
    on.train(block, lambda: block(tokens).pow(2).mean())


@package("stable_baselines3", "gymnasium", "cloudpickle", "farama_notifications", "pandas")
def _stable_baselines3(on: Any) -> None:
    """PPO's, A2C's and SAC's policies: log probabilities, values, entropies, their losses"""
    import gymnasium
    import numpy as np
    import torch
    from stable_baselines3.common.policies import ActorCriticPolicy
    from stable_baselines3.sac.policies import SACPolicy

    seen = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    x = on.randn(6, 4)
    for acts, actions in (
        (gymnasium.spaces.Discrete(3), torch.arange(6) % 3),
        (gymnasium.spaces.Box(-1, 1, (2,), np.float32), on.randn(6, 2)),
    ):
        policy = on.weights(ActorCriticPolicy(seen, acts, lambda _: 1e-3, net_arch=[8]))

        def loss(policy: Any = policy, actions: Any = actions) -> Any:
            values, log_prob, entropy = policy.evaluate_actions(x, actions)
            ratio = (log_prob - log_prob.detach()).exp()
            clipped = torch.clamp(ratio, 0.8, 1.2)
            actor = -torch.min(ratio * x[:, 0], clipped * x[:, 0]).mean()
            return actor + 0.5 * (values.flatten() - x[:, 1]).pow(2).mean() - 0.01 * entropy.mean()

        on.train(policy, loss, optimizer=policy.optimizer)
    sac = on.weights(SACPolicy(seen, gymnasium.spaces.Box(-1, 1, (2,), np.float32), lambda _: 1e-3,
                               net_arch=[8]))  # fmt: skip
    acts = on.randn(6, 2).tanh()
    on.train(
        sac.critic, lambda: sum((q - x[:, :1]).pow(2).mean() for q in sac.critic(x, acts)), steps=2
    )
    on.keep(sac.actor(x, deterministic=True))


@package("lightning", "lightning_utilities", "torchmetrics", "fsspec", *_HUB)
def _lightning(on: Any) -> None:
    """a Trainer's fit over two epochs with validation, a scheduler and clipped gradients"""
    import lightning
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    class Net(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))

        def _loss(self, batch: Any) -> Any:
            return (self.net(batch[0]) - batch[1]).pow(2).mean()

        def training_step(self, batch: Any, number: int) -> Any:
            loss = self._loss(batch)
            on.keep(loss)
            return loss

        def validation_step(self, batch: Any, number: int) -> None:
            self.log("loss", self._loss(batch))

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]

    model = on.weights(Net())
    data = DataLoader(TensorDataset(on.randn(12, 4), on.randn(12, 1)), batch_size=4)
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=0.5,
    )  # fmt: skip
    trainer.fit(model, data, data)
    on.keep(trainer.callback_metrics["loss"], *model.parameters())


@package("accelerate", "safetensors", *_HUB)
def _accelerate(on: Any) -> None:
    """prepare, backward, clipping and accumulated gradients on one process"""
    import torch
    from accelerate import Accelerator
    from torch import nn

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    net = on.weights(nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 2)))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    data = torch.utils.data.DataLoader(on.randn(8, 4), batch_size=2)
    net, optimizer, data = accelerator.prepare(net, optimizer, data)
    for batch in data:
        with accelerator.accumulate(net):
            loss = net(batch).pow(2).mean()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(net.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
        on.keep(loss)
    on.keep(*net.parameters())


@package("transformers", "tokenizers", "regex", "safetensors", *_HUB)
def _transformers(on: Any) -> None:
    """small BERT and GPT-2 models with their losses"""
    import torch
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        GPT2Config,
        GPT2LMHeadModel,
    )

    words = torch.arange(12).reshape(2, 6) % 7
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    bert = on.weights(
        BertForSequenceClassification(
            BertConfig(
                vocab_size=7,
                hidden_size=8,
                num_hidden_layers=2,
                num_attention_heads=2,
                intermediate_size=16,
                max_position_embeddings=8,
                **none,
            )  # fmt: skip
        )
    )
    labels = torch.tensor([0, 1])
    on.train(bert, lambda: bert(input_ids=words, labels=labels).loss)
    gpt = on.weights(
        GPT2LMHeadModel(
            GPT2Config(
                vocab_size=7,
                n_positions=8,
                n_embd=8,
                n_layer=2,
                n_head=2,
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
            )  # fmt: skip
        )
    )
    on.train(gpt, lambda: gpt(input_ids=words, labels=words).loss)


@package("captum", "tqdm")
def _captum(on: Any) -> None:
    """integrated gradients, saliency, DeepLift, GradCAM, occlusion, Shapley values by sampling"""
    from captum import attr
    from torch import nn

    net = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)
    )
    on.weights(net).eval()
    x, base = on.randn(2, 2, 4, 4), on.randn(2, 2, 4, 4)
    on.keep(attr.IntegratedGradients(net).attribute(x, base, target=1, n_steps=8))
    on.keep(attr.Saliency(net).attribute(x.clone().requires_grad_(), target=2))
    on.keep(attr.InputXGradient(net).attribute(x.clone().requires_grad_(), target=0))
    on.keep(attr.DeepLift(net).attribute(x, base, target=1))
    on.keep(attr.GuidedBackprop(net).attribute(x.clone().requires_grad_(), target=1))
    on.keep(attr.LayerGradCam(net, net[0]).attribute(x, target=1))
    on.keep(attr.LayerConductance(net, net[0]).attribute(x, base, target=1, n_steps=8))
    on.keep(attr.Occlusion(net).attribute(x, (1, 2, 2), strides=(1, 2, 2), target=0))
    on.keep(attr.NeuronGradient(net, net[0]).attribute(x.clone().requires_grad_(), (0, 1, 1)))


@package("tensordict", "orjson", "cloudpickle", "packaging", "importlib_metadata", "pyvers", "zipp")
def _tensordict(on: Any) -> None:
    """TensorDict's shapes and arithmetic, modules in sequence, and an ensemble by vmap"""
    import torch
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential
    from torch import nn

    first = TensorDictModule(nn.Linear(4, 5), in_keys=["x"], out_keys=["h"])
    last = TensorDictModule(nn.Linear(5, 2), in_keys=["h"], out_keys=["y"])
    net = TensorDictSequential(first, last)
    on.weights(net)
    x = on.randn(6, 4)

    def loss() -> Any:
        data = TensorDict({"x": x, "other": {"t": x[:, :1]}}, batch_size=[6])
        data = torch.stack([data, data * 2], 0).reshape(-1)
        out = net(data.clone())[::2]
        out = torch.cat([out, out.apply(lambda t: t - 1)], 0)
        return out["y"].tanh().pow(2).mean() + out["other", "t"].mean()

    on.train(net, loss)
    nets = [on.weights(nn.Linear(4, 3)) for _ in range(2)]
    params = TensorDict.from_modules(*nets, as_module=True)

    def call(params: Any, x: Any) -> Any:
        with params.to_module(nets[0]):
            return nets[0](x)

    on.train(params, lambda: torch.vmap(call, (0, None))(params, x).pow(2).mean())


@package("skorch", "scikit-learn", "threadpoolctl", "joblib", "tabulate", "tqdm", "narwhals")
def _skorch(on: Any) -> None:
    """NeuralNetClassifier and NeuralNetRegressor fitted by scikit-learn's interface"""
    import numpy as np
    import torch
    from skorch import NeuralNetClassifier, NeuralNetRegressor
    from skorch.callbacks import GradientNormClipping, LRScheduler
    from torch import nn

    x = on.randn(12, 4).numpy()
    net = on.weights(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3), nn.Softmax(-1)))
    fit = NeuralNetClassifier(
        net,
        max_epochs=3,
        lr=0.1,
        train_split=None,
        verbose=0,
        iterator_train__shuffle=False,
        callbacks=[
            LRScheduler("StepLR", step_size=1, gamma=0.5),
            GradientNormClipping(gradient_clip_value=0.5),
        ],
    )
    fit.fit(x, np.arange(12) % 3)
    on.keep(torch.from_numpy(fit.predict_proba(x)), *fit.module_.parameters())
    net = on.weights(nn.Linear(4, 2))
    other = NeuralNetRegressor(
        net, max_epochs=2, train_split=None, verbose=0, optimizer=torch.optim.Adam
    )
    other.fit(x, x[:, :2] * 2)
    on.keep(torch.from_numpy(other.predict(x)), *other.module_.parameters())


@package(
    "pytorch_tabnet",
    "scikit-learn",
    "threadpoolctl",
    "joblib",
    "tqdm",
    "pandas",
    "pytz",
    "narwhals",
)
def _tabnet(on: Any) -> None:
    """TabNet with ghost batch norm, sparsemax and entmax masks, and embeddings"""
    import torch
    from pytorch_tabnet.tab_network import TabNet
    from torch import nn

    torch.set_default_dtype(torch.float64)
    x = on.randn(8, 5).double()
    x[:, 2] = torch.arange(8) % 3
    for mask in ("sparsemax", "entmax"):
        net = TabNet(
            5,
            2,
            n_d=4,
            n_a=4,
            n_steps=2,
            cat_idxs=[2],
            cat_dims=[3],
            cat_emb_dim=[2],
            virtual_batch_size=4,
            mask_type=mask,
            group_attention_matrix=torch.eye(5),
        )
        on.weights(net)

        def loss(net: nn.Module = net) -> Any:
            out, extra = net(x)
            return out.pow(2).mean() - 1e-2 * extra

        on.train(net, loss)


@package("tab_transformer_pytorch", "einops", "hyper_connections", "torch_einops_utils")
def _tab_transformer(on: Any) -> None:
    """FTTransformer and TabTransformer over categories and numbers"""
    import torch
    from tab_transformer_pytorch import FTTransformer, TabTransformer

    torch.set_default_dtype(torch.float64)
    ids, x = torch.arange(12).reshape(4, 3) % 3, on.randn(4, 2).double()
    for made, more in ((FTTransformer, {}), (TabTransformer, {"mlp_act": torch.nn.ReLU()})):
        net = on.weights(
            made(
                categories=(3, 3, 3),
                num_continuous=2,
                dim=8,
                depth=2,
                heads=2,
                dim_head=4,
                dim_out=1,
                **more,
            ),
            0.1,
        )
        on.train(net, lambda net=net: net(ids, x).pow(2).mean())


@package("vit_pytorch", "torchvision", "einops")
def _vit_pytorch(on: Any) -> None:
    """seven vision transformers: ViT, SimpleViT, CaiT, CvT, NesT, XCiT, NaViT"""
    import torch
    from vit_pytorch import SimpleViT, ViT
    from vit_pytorch.cait import CaiT
    from vit_pytorch.cvt import CvT
    from vit_pytorch.na_vit import NaViT
    from vit_pytorch.nest import NesT
    from vit_pytorch.xcit import XCiT

    torch.set_default_dtype(torch.float64)  # some gradients are zero but for rounding
    x = on.randn(2, 3, 16, 16).double()
    same = {"image_size": 16, "patch_size": 4, "num_classes": 3, "dim": 8, "heads": 2}
    nets = [
        ViT(depth=2, mlp_dim=16, dim_head=4, **same),
        SimpleViT(depth=1, mlp_dim=16, dim_head=4, **same),
        CaiT(depth=2, cls_depth=1, mlp_dim=16, dim_head=4, **same),
        XCiT(depth=1, cls_depth=1, mlp_dim=16, dim_head=4, **same),
        NesT(
            image_size=16,
            patch_size=4,
            num_classes=3,
            dim=8,
            heads=1,
            num_hierarchies=2,
            block_repeats=(1, 1),
        ),
        CvT(
            num_classes=3,
            s1_emb_dim=8,
            s1_heads=1,
            s1_depth=1,
            s1_mlp_mult=1,
            s2_emb_dim=8,
            s2_heads=1,
            s2_depth=1,
            s2_mlp_mult=1,
            s3_emb_dim=8,
            s3_heads=1,
            s3_depth=1,
            s3_mlp_mult=1,
        ),
    ]
    for net in nets:
        on.weights(net)
        on.train(net, lambda net=net: net(x).pow(2).mean(), steps=2)
    navit = on.weights(NaViT(depth=1, mlp_dim=16, dim_head=4, **same))
    images = [[x[0], x[1][:, :8]], [x[1]]]
    on.train(navit, lambda: navit(images).pow(2).mean(), steps=2)


@package("perceiver_pytorch", "einops")
def _perceiver(on: Any) -> None:
    """Perceiver with Fourier positions and PerceiverIO with queries"""
    from perceiver_pytorch import Perceiver, PerceiverIO

    x, q = on.randn(2, 4, 4, 3), on.randn(2, 5, 6)
    net = Perceiver(
        num_freq_bands=2,
        depth=2,
        max_freq=4.0,
        input_channels=3,
        num_latents=4,
        latent_dim=8,
        cross_dim_head=4,
        latent_heads=2,
        latent_dim_head=4,
        num_classes=3,
        weight_tie_layers=True,
    )
    on.train(on.weights(net), lambda: net(x).pow(2).mean())
    io = PerceiverIO(
        depth=1,
        dim=3,
        queries_dim=6,
        logits_dim=4,
        num_latents=4,
        latent_dim=8,
        cross_dim_head=4,
        latent_heads=2,
        latent_dim_head=4,
    )
    on.train(on.weights(io), lambda: io(x.flatten(1, 2), queries=q).pow(2).mean())


@package("prodigyopt")
def _prodigy(on: Any) -> None:
    """Prodigy with and without bias correction"""
    from prodigyopt import Prodigy

    for options in ({}, {"use_bias_correction": True, "weight_decay": 0.1, "slice_p": 2}):
        net, loss = _small(on)
        on.train(net, loss, steps=5, optimizer=Prodigy(net.parameters(), **options))


@package("dadaptation")
def _dadaptation(on: Any) -> None:
    """D-adapted Adam, SGD, AdaGrad, Lion and Adan"""
    import dadaptation

    for name in ("DAdaptAdam", "DAdaptSGD", "DAdaptAdaGrad", "DAdaptLion", "DAdaptAdan"):
        net, loss = _small(on)
        on.train(net, loss, steps=5, optimizer=getattr(dadaptation, name)(net.parameters()))


@package("adan_pytorch")
def _adan(on: Any) -> None:
    """Adan with weight decay"""
    from adan_pytorch import Adan

    net, loss = _small(on)
    on.train(net, loss, optimizer=Adan(net.parameters(), lr=1e-2, weight_decay=0.02))


@package("fvcore", "iopath", "yacs", "tabulate", "termcolor", "portalocker", "tqdm")
def _fvcore(on: Any) -> None:
    """focal, generalized IoU and smooth L1 losses, parameter tables, precise batch norm"""
    import torch
    from fvcore.nn import (
        giou_loss,
        parameter_count,
        parameter_count_table,
        sigmoid_focal_loss,
        smooth_l1_loss,
        update_bn_stats,
    )
    from torch import nn

    layers = nn.Linear(4, 6, bias=False), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 4)
    net = on.weights(nn.Sequential(*layers))
    x, hot = on.randn(8, 4), (on.randn(8, 4) > 0).float()
    boxes = torch.cat([on.randn(8, 2), 3 + on.randn(8, 2).abs()], 1)

    def loss() -> Any:
        y = net(x)
        moved = torch.cat([y[:, :2], 4 + y[:, 2:].tanh()], 1)
        return (
            sigmoid_focal_loss(y, hot, 0.25, 2.0, "mean")
            + giou_loss(moved, boxes, "mean")
            + smooth_l1_loss(y, x, 0.5, "sum")
        )

    on.train(net, loss)
    update_bn_stats(net, [x[:4], x[4:]], num_iters=2)
    on.keep(*net.buffers())
    assert parameter_count(net)[""] == 64 and "weight" in parameter_count_table(net)


@package("ptflops")
def _ptflops(on: Any) -> None:
    """operations of a convolutional and an attention network, by hooks"""
    import torch
    from ptflops import get_model_complexity_info
    from torch import nn

    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)
    )
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    for model, shape in ((net, (3, 8, 8)), (layer, (5, 8))):
        counted = get_model_complexity_info(
            model, shape, as_strings=False, print_per_layer_stat=False, backend="pytorch"
        )
        on.keep(torch.tensor([float(n) for n in counted]))


@package("torchinfo")
def _torchinfo(on: Any) -> None:
    """summaries of a recurrent and a convolutional network"""
    import torch
    from torch import nn
    from torchinfo import summary

    for net, size in (
        (
            nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()),
            (2, 3, 8, 8),
        ),
        (nn.LSTM(4, 5, num_layers=2), (3, 2, 4)),
        (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8)),
    ):
        table = summary(net, size, verbose=0, col_names=("output_size", "num_params", "mult_adds"))
        on.keep(torch.tensor(list(str(table).encode())))


@package("thop")
def _thop(on: Any) -> None:
    """operations and parameters of a convolutional network"""
    import torch
    from thop import profile
    from torch import nn

    net = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.PReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 2),
    )
    on.keep(torch.tensor(profile(net, inputs=(on.randn(1, 3, 8, 8),), verbose=False)))


@package("torch_ema")
def _torch_ema(on: Any) -> None:
    """averaged parameters, stored, copied and restored around an evaluation"""
    from torch_ema import ExponentialMovingAverage

    net, loss = _small(on)
    ema, x = ExponentialMovingAverage(net.parameters(), decay=0.9), on.randn(3, 4)
    for _ in range(3):
        on.train(net, loss, steps=1)
        ema.update()
        with ema.average_parameters():
            on.keep(net(x))
        ema.copy_to()
    on.keep(*net.parameters())


@package("pytorch_warmup")
def _pytorch_warmup(on: Any) -> None:
    """linear, exponential and RAdam warm-up over a cosine schedule"""
    import pytorch_warmup as warmup
    import torch

    for made in (warmup.UntunedLinearWarmup, warmup.UntunedExponentialWarmup, warmup.RAdamWarmup):
        net, loss = _small(on)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5)
        damp = made(optimizer)
        for _ in range(4):
            on.train(net, loss, steps=1, optimizer=optimizer)
            with damp.dampening():
                schedule.step()
            on.keep(torch.tensor(optimizer.param_groups[0]["lr"], dtype=torch.float64))


@package("jaxtyping", "wadler_lindig")
def _jaxtyping(on: Any) -> None:
    """shapes and types of tensors asked for by isinstance"""
    import torch
    from jaxtyping import Bool, Complex, Float, Int, Shaped

    x = on.randn(2, 3)
    kinds = [
        Float[torch.Tensor, "a b"],
        Float[torch.Tensor, "a 3"],
        Float[torch.Tensor, "a a"],
        Float[torch.Tensor, "*rest 3"],
        Int[torch.Tensor, "..."],
        Bool[torch.Tensor, "2 3"],
        Complex[torch.Tensor, "2 3"],
        Shaped[torch.nn.Parameter, "2 3"],
    ]
    for value in (x, x.long(), x > 0, x[0], x.t(), torch.complex(x, x), torch.nn.Parameter(x), 1.0):
        on.keep(torch.tensor([int(isinstance(value, kind)) for kind in kinds]))


@package("torchvision", "pillow")
def _torchvision_models(on: Any) -> None:
    """nine networks, features by torch.fx, transforms of images, box and focal losses

    Without its compiled operators.
    """
    import torch
    import torchvision as vision
    from torchvision.models.feature_extraction import create_feature_extractor

    models, ops, change = vision.models, vision.ops, vision.transforms.functional
    x = on.randn(2, 3, 64, 64)
    for name in (
        "resnet18",
        "densenet121",
        "efficientnet_b0",
        "mobilenet_v3_small",
        "shufflenet_v2_x0_5",
        "swin_v2_t",
        "convnext_tiny",
        "squeezenet1_1",
        "regnet_y_400mf",
    ):
        net = getattr(models, name)(num_classes=3).double().eval()
        with torch.no_grad():
            for p in net.parameters():
                p.copy_(on.randn(*p.shape) / max(p[0].numel(), 1) ** 0.5)
        on.train(net, lambda net=net: net(x.double()).pow(2).mean(), steps=1)
    for net, nodes in (
        (models.resnet18(num_classes=3), {"layer1.0.relu_1": "first", "layer3": "third"}),
        (
            models.VisionTransformer(32, 8, 2, 2, 8, 16, num_classes=3),
            ["encoder.layers.encoder_layer_0"],
        ),
    ):
        part = create_feature_extractor(on.weights(net).double().eval(), nodes).eval()
        kept = part(x.double()[..., :32, :32])
        on.keep(*kept.values())
    image = torch.rand(3, 16, 20, generator=None).new_tensor(on.randn(3, 16, 20).numpy()).sigmoid()
    on.keep(
        change.resize(image, [9, 13], antialias=True),
        change.rotate(image, 30.0, change.InterpolationMode.BILINEAR),
        change.affine(image, 10.0, [1, 2], 1.1, [5.0, 0.0]),
        change.gaussian_blur(image, [3, 5]),
        change.adjust_hue(image, 0.2),
        change.adjust_contrast(image, 1.5),
        change.equalize((image * 255).to(torch.uint8)),
        vision.utils.make_grid(image[None].repeat(3, 1, 1, 1), nrow=2, normalize=True),
    )
    boxes = on.randn(6, 4)
    corners = boxes[:, :2]
    wide = torch.nn.Parameter(boxes[:, 2:].clone())
    other = torch.cat([corners, corners + 1], 1)

    def loss() -> Any:
        moved = torch.cat([corners, corners + wide.exp()], 1)
        terms = [
            f(moved, other, "mean")
            for f in (
                ops.generalized_box_iou_loss,
                ops.distance_box_iou_loss,
                ops.complete_box_iou_loss,
            )
        ]
        return sum(terms) + ops.sigmoid_focal_loss(wide, wide.detach().gt(0).float()).mean()

    on.train([wide], loss)


@package(
    "denoising_diffusion_pytorch",
    "torchvision",
    "einops",
    "ema_pytorch",
    "accelerate",
    "tqdm",
    "pytorch_fid",
    "safetensors",
    *_HUB,
)
def _denoising_diffusion(on: Any) -> None:
    """a U-Net with linear and full attention, the loss of Gaussian diffusion with given noise"""
    import torch
    from denoising_diffusion_pytorch import GaussianDiffusion, Unet

    net = on.weights(Unet(dim=8, dim_mults=(1, 2), channels=2, attn_dim_head=4, attn_heads=2), 0.1)
    walk = GaussianDiffusion(
        net, image_size=8, timesteps=20, objective="pred_v", min_snr_loss_weight=True
    )
    x, noise, t = on.randn(2, 2, 8, 8), on.randn(2, 2, 8, 8), torch.tensor([3, 15])
    on.train(net, lambda: walk.p_losses(x, t, noise=noise), steps=2)
    on.keep(walk.q_sample(x, t, noise))


@package("piq", "torchvision")
def _piq(on: Any) -> None:
    """gradients of nine measures of images: SSIM, VIF, FSIM, GMSD, MDSI, HaarPSI, VSI, DSS, TV"""
    import piq
    import torch

    y, drawn = on.randn(2, 3, 64, 64).double().sigmoid(), 0.1 * on.randn(2, 3, 64, 64).double()
    for name in ("ssim", "vif_p", "fsim", "gmsd", "mdsi", "haarpsi", "vsi", "dss"):
        net = torch.nn.Parameter(drawn.clone())
        measure = getattr(piq, name)
        on.train([net], lambda f=measure, p=net: f((p + y.logit()).sigmoid(), y), steps=1)
    on.train([net], lambda: piq.total_variation(net.sigmoid()), steps=1)


@package("lpips", "torchvision", "tqdm")
def _lpips(on: Any) -> None:
    """the distance over a squeeze network's features and its gradient"""
    import lpips
    import torch

    net = on.weights(lpips.LPIPS(net="squeeze", pretrained=False, pnet_rand=True, verbose=False))
    net, y = net.double(), on.randn(2, 3, 64, 64).double()
    x = torch.nn.Parameter(on.randn(2, 3, 64, 64).double())
    on.train([x], lambda: net(x, y).mean())


@package("pytorch-ignite", "packaging")
def _ignite(on: Any) -> None:
    """trainer and evaluator engines, metrics, checkpoints' score, a chained schedule"""
    import torch
    from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
    from ignite.handlers import EMAHandler, PiecewiseLinear
    from ignite.metrics import Accuracy, ConfusionMatrix, Loss, MeanSquaredError, RunningAverage
    from torch import nn

    net = on.weights(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    data = [(on.randn(5, 4), torch.arange(5) % 3) for _ in range(3)]
    trainer = create_supervised_trainer(net, optimizer, nn.functional.cross_entropy)
    RunningAverage(output_transform=lambda o: o).attach(trainer, "loss")
    EMAHandler(net, momentum=0.1).attach(trainer)
    trainer.add_event_handler(
        Events.ITERATION_STARTED, PiecewiseLinear(optimizer, "lr", [(0, 0.01), (3, 0.1), (6, 0.0)])
    )
    metrics = {
        "loss": Loss(nn.functional.cross_entropy),
        "accuracy": Accuracy(),
        "matrix": ConfusionMatrix(3),
    }
    evaluator = create_supervised_evaluator(net, metrics=metrics)

    @trainer.on(Events.EPOCH_COMPLETED)
    def _evaluate() -> None:
        for value in evaluator.run(data).metrics.values():
            on.keep(torch.as_tensor(value, dtype=torch.float64))

    trainer.run(data, max_epochs=2)
    on.keep(torch.as_tensor(trainer.state.metrics["loss"]), *net.parameters())
    error = MeanSquaredError()
    error.update((data[0][0], data[1][0]))
    on.keep(torch.as_tensor(error.compute()))


@package("tensorly", "scipy")
def _tensorly(on: Any) -> None:
    """gradients through CP and Tucker tensors, and decompositions of both kinds"""
    import tensorly
    import torch
    from tensorly.decomposition import non_negative_parafac, parafac, tensor_train, tucker

    tensorly.set_backend("pytorch")
    x = on.randn(4, 5, 6)
    parts = [torch.nn.Parameter(on.randn(n, 3)) for n in x.shape]
    core = torch.nn.Parameter(on.randn(3, 3, 3))

    def loss() -> Any:
        cp = tensorly.cp_to_tensor((torch.ones(3), parts))
        full = tensorly.tucker_to_tensor((core, parts))
        return tensorly.norm(cp - x, 2) + tensorly.norm(full - x, 2) ** 2 / 100

    on.train([*parts, core], loss)
    for made in (
        tensorly.cp_to_tensor(parafac(x, 3, init="svd", n_iter_max=5)),
        tensorly.cp_to_tensor(non_negative_parafac(x.abs(), 2, init="svd", n_iter_max=5)),
        tensorly.tucker_to_tensor(tucker(x, [2, 3, 3], n_iter_max=5)),
        tensorly.tt_to_tensor(tensor_train(x, [1, 3, 3, 1])),
    ):
        on.keep(made)


@package("pot")
def _pot(on: Any) -> None:
    """gradients of exact, entropic, sliced, unbalanced and Gromov-Wasserstein transport"""
    import ot
    import torch

    x, y = torch.nn.Parameter(on.randn(6, 2)), on.randn(7, 2)
    a, b = torch.full((6,), 1 / 6), torch.full((7,), 1 / 7)
    turns = on.randn(2, 9)
    turns = turns / turns.norm(dim=0)

    def loss() -> Any:
        costs = ot.dist(x, y)
        inner, other = ot.dist(x, x), ot.dist(y, y)
        return (
            ot.emd2(a, b, costs)
            + ot.sinkhorn2(a, b, costs, reg=1.0, numItermax=50)
            + ot.sliced_wasserstein_distance(x, y, projections=turns)
            + ot.unbalanced.mm_unbalanced2(a, b, costs, 1.0, numItermax=20)
            + ot.gromov.gromov_wasserstein2(inner, other, a, b, max_iter=5)
            + ot.bregman.empirical_sinkhorn_divergence(x, y, reg=1.0, numIterMax=30)
        )

    on.train([x], loss, steps=2)


@package("torchquad", "loguru", "tqdm")
def _torchquad(on: Any) -> None:
    """gradients through trapezoid, Simpson, Boole and Gauss-Legendre quadrature"""
    import torch
    import torchquad

    a = torch.nn.Parameter(on.randn(2))
    for rule in ("Trapezoid", "Simpson", "Boole", "GaussLegendre"):
        made = getattr(torchquad, rule)()

        def loss(made: Any = made) -> Any:
            f = lambda x: torch.sin(x[:, 0] * a[0]) * torch.exp(a[1] * x[:, 1])  # noqa: E731
            return made.integrate(
                f, dim=2, N=225, integration_domain=[[0, 1], [-1, 1]], backend="torch"
            )

        on.train([a], loss, steps=2)


@package("backpack-for-pytorch", "einops", "unfoldNd", "einconv")
def _backpack(on: Any) -> None:
    """per-sample gradients, variances, diagonal of Gauss-Newton, KFLR and Hessian's products"""
    from backpack import backpack, extend, extensions
    from torch import nn

    net = extend(
        on.weights(
            nn.Sequential(
                nn.Conv2d(1, 2, 3),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Flatten(),
                nn.Linear(8, 4),
                nn.Sigmoid(),
                nn.Linear(4, 3),
            )
        )
    )
    x, at = on.randn(5, 1, 6, 6), on.randn(5, 3).argmax(1)
    measure = extend(nn.CrossEntropyLoss())
    names = {
        "BatchGrad": "grad_batch",
        "Variance": "variance",
        "BatchL2Grad": "batch_l2",
        "SumGradSquared": "sum_grad_squared",
        "DiagGGNExact": "diag_ggn_exact",
        "DiagHessian": "diag_h",
        "KFLR": "kflr",
    }
    for name, attribute in names.items():
        with backpack(getattr(extensions, name)()):
            loss = measure(net(x), at)
            loss.backward()
        on.keep(loss)
        for p in net.parameters():
            made = getattr(p, attribute)
            on.keep(p.grad, *(made if isinstance(made, (list, tuple)) else [made]))


@package("opacus")
def _opacus(on: Any) -> None:
    """per-sample gradients of nine layers, clipping by sample, without noise"""
    import torch
    from opacus import GradSampleModule
    from opacus.layers import DPLSTM, DPMultiheadAttention
    from opacus.optimizers import DPOptimizer
    from torch import nn

    nets = [
        (
            nn.Sequential(nn.Conv2d(1, 2, 3), nn.GroupNorm(1, 2), nn.Flatten(), nn.Linear(32, 2)),
            on.randn(4, 1, 6, 6),
        ),
        (
            nn.Sequential(nn.Embedding(7, 4), nn.LayerNorm(4), nn.Linear(4, 2)),
            torch.arange(12).reshape(4, 3) % 7,
        ),
        (DPLSTM(3, 4, batch_first=True), on.randn(4, 5, 3)),
        (
            nn.Sequential(
                nn.Conv1d(2, 4, 3, bias=False), nn.InstanceNorm1d(4, affine=True), nn.Linear(4, 2)
            ),
            on.randn(4, 2, 6),
        ),
    ]
    for net, x in nets:
        model = GradSampleModule(on.weights(net))
        optimizer = DPOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1),
            noise_multiplier=0.0,
            max_grad_norm=0.5,
            expected_batch_size=4,
        )
        for _ in range(2):
            optimizer.zero_grad()
            out = model(x)
            out = out[0] if isinstance(out, tuple) else out
            loss = out.pow(2).mean()
            loss.backward()
            on.keep(loss, *[p.grad_sample for p in model.parameters()])
            optimizer.step()
        on.keep(*model.parameters())
    attend = GradSampleModule(on.weights(DPMultiheadAttention(4, 2)))
    x = on.randn(5, 3, 4)
    attend(x, x, x)[0].pow(2).sum().backward()
    on.keep(*[p.grad_sample for p in attend.parameters()])


@package("torchattacks", "torchvision")
def _torchattacks(on: Any) -> None:
    """FGSM, PGD, BIM, CW, DeepFool, MI-FGSM and JSMA's perturbed images"""
    import torch
    import torchattacks
    from torch import nn

    net = on.weights(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)))
    net.eval()
    x, at = on.randn(2, 3, 8, 8).sigmoid(), torch.tensor([0, 2])
    for made in (
        torchattacks.FGSM(net, eps=0.05),
        torchattacks.PGD(net, eps=0.05, steps=3, random_start=False),
        torchattacks.PGDL2(net, eps=0.5, steps=3, random_start=False),
        torchattacks.BIM(net, steps=3),
        torchattacks.MIFGSM(net, steps=3),
        torchattacks.NIFGSM(net, steps=3),
        torchattacks.CW(net, steps=3),
        torchattacks.DeepFool(net, steps=3),
    ):
        on.keep(made(x, at))


@package("ncps", "packaging", "future")
def _ncps(on: Any) -> None:
    """closed-form and liquid time-constant cells over a wiring"""
    from ncps.torch import LTC, CfC
    from ncps.wirings import AutoNCP

    x = on.randn(2, 5, 3)
    for net in (
        CfC(3, 6, backbone_units=8, backbone_layers=1, backbone_dropout=0.0),
        CfC(3, AutoNCP(8, 2), mixed_memory=True),
        LTC(3, AutoNCP(8, 2)),
    ):
        if isinstance(net, CfC):
            on.weights(net)
        else:
            for p in net.parameters():
                p.data.copy_(0.5 + 0.2 * on.randn(*p.shape).abs())
        on.train(net, lambda net=net: net(x)[0].pow(2).mean(), steps=2)


@package("egnn_pytorch", "einops")
def _egnn(on: Any) -> None:
    """equivariant graph layers with neighbors and edges"""
    import torch
    from egnn_pytorch import EGNN, EGNN_Network

    features, places, edges = on.randn(2, 6, 4), on.randn(2, 6, 3), on.randn(2, 6, 6, 2)
    layer = on.weights(EGNN(dim=4, edge_dim=2, num_nearest_neighbors=3, norm_coors=True))

    def loss() -> Any:
        f, x = layer(features, places, edges=edges)
        return f.pow(2).mean() + x.pow(2).mean()

    on.train(layer, loss)
    net = EGNN_Network(num_tokens=5, dim=4, depth=2, num_nearest_neighbors=3, norm_coors=True)
    on.weights(net, 0.1)
    ids = torch.arange(12).reshape(2, 6) % 5
    on.train(net, lambda: net(ids, places)[0].pow(2).mean())


@package("geotorch")
def _geotorch(on: Any) -> None:
    """orthogonal, low-rank, positive definite and spherical weights trained"""
    import geotorch
    import torch
    from torch import nn

    x = on.randn(6, 4)
    for make in (geotorch.orthogonal, geotorch.positive_definite, geotorch.skew, geotorch.sphere):
        net = nn.Linear(4, 4)
        with torch.no_grad():
            net.bias.copy_(on.randn(4))
        make(net, "weight")
        with torch.no_grad():
            start = torch.eye(4)
            net.weight = torch.zeros(4, 4) if make is geotorch.skew else start
        on.train(net, lambda net=net: (net(x) - x.flip(1)).pow(2).mean())
        on.keep(net.weight)


@package("geoopt")
def _geoopt(on: Any) -> None:
    """Riemannian Adam and SGD on the sphere, the Stiefel manifold and the Poincare ball"""
    import geoopt
    import torch

    x = on.randn(5, 3)
    for manifold in (geoopt.Sphere(), geoopt.Stiefel(), geoopt.PoincareBall(), geoopt.Lorentz()):
        start = manifold.projx(0.3 * on.randn(5, 3))
        p = geoopt.ManifoldParameter(start, manifold=manifold)
        for made in (geoopt.optim.RiemannianAdam, geoopt.optim.RiemannianSGD):
            optimizer = made([p], lr=1e-2)
            on.train([p], lambda p=p: (p - x).pow(2).sum(), optimizer=optimizer)
        on.keep(torch.as_tensor(manifold.check_point_on_manifold(p)))
    ball = geoopt.PoincareBall(learnable=True)
    a, b = geoopt.ManifoldTensor(0.1 * x, manifold=ball), 0.2 * x.flip(0)
    on.train(
        [*ball.parameters()], lambda: ball.dist(a, b).pow(2).sum() + ball.mobius_add(a, b).sum()
    )


@package("FrEIA", "scipy")
def _freia(on: Any) -> None:
    """invertible networks: coupling blocks by sequence and by graph, Jacobians, inverses"""
    import torch
    from FrEIA import framework, modules
    from torch import nn

    make = lambda i, o: nn.Sequential(nn.Linear(i, 8), nn.ReLU(), nn.Linear(8, o))  # noqa: E731
    x = on.randn(5, 4)
    net = framework.SequenceINN(4)
    for block in (modules.AllInOneBlock, modules.RNVPCouplingBlock, modules.GLOWCouplingBlock):
        net.append(block, subnet_constructor=make)
    for p in net.parameters():
        if p.requires_grad:
            p.data.copy_(0.1 * on.randn(*p.shape))
    for m in net.module_list[:1]:
        m.w_perm.data.copy_(torch.eye(4))
        m.w_perm_inv.data.copy_(torch.eye(4))
    parameters = [p for p in net.parameters() if p.requires_grad]

    def loss() -> Any:
        z, jacobian = net(x)
        return z.pow(2).mean() - jacobian.mean() + net(z.tanh(), rev=True)[0].pow(2).mean()

    on.train(parameters, loss)
    start = framework.InputNode(2, 4, 4, name="in")
    down = framework.Node(start, modules.IRevNetDownsampling, {}, name="down")
    out = framework.OutputNode(down, name="out")
    graph = framework.GraphINN([start, down, out])
    on.keep(graph(on.randn(2, 2, 4, 4))[0])


@package("siren_pytorch", "einops")
def _siren(on: Any) -> None:
    """a sinusoidal field, its gradient and Laplacian in the loss"""
    import torch
    from siren_pytorch import SirenNet

    net = on.weights(SirenNet(dim_in=2, dim_hidden=8, dim_out=1, num_layers=2, w0_initial=3.0))
    x = on.randn(6, 2).requires_grad_()

    def loss() -> Any:
        y = net(x)
        (d,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        second = sum(
            torch.autograd.grad(d[:, i].sum(), x, create_graph=True)[0][:, i] for i in range(2)
        )
        return y.pow(2).mean() + d.pow(2).mean() + 0.01 * second.pow(2).mean()

    on.train(net, loss)


@package("nystrom_attention", "einops")
def _nystrom(on: Any) -> None:
    """Nystrom attention with its residual convolution and a mask"""
    import torch
    from nystrom_attention import Nystromformer

    net = on.weights(
        Nystromformer(dim=8, depth=1, heads=2, dim_head=4, num_landmarks=4, attn_dropout=0.0)
    )
    net.eval()
    x, mask = on.randn(2, 10, 8), torch.arange(10) < torch.tensor([[10], [7]])
    on.train(net, lambda: net(x, mask=mask).pow(2).mean())


@package("pytorch-crf")
def _crf(on: Any) -> None:
    """conditional random field: likelihood with a mask, and decoded tags"""
    import torch
    from torchcrf import CRF

    crf, scores = on.weights(CRF(4)), torch.nn.Parameter(on.randn(6, 3, 4))
    tags = torch.arange(18).reshape(6, 3) % 4
    mask = torch.arange(6)[:, None] < torch.tensor([6, 4, 2])
    for how in ("sum", "token_mean"):
        on.train(
            [*crf.parameters(), scores],
            lambda how=how: -crf(scores, tags, mask=mask, reduction=how),
        )
    on.keep(*[torch.tensor(path) for path in crf.decode(scores, mask)])


@package(
    "pykan",
    "scikit-learn",
    "threadpoolctl",
    "joblib",
    "tqdm",
    "pandas",
    "pytz",
    "narwhals",
    "sympy",
    "mpmath",
    "pyyaml",
)
def _pykan(on: Any) -> None:
    """a Kolmogorov-Arnold network with its regularization"""
    from kan import KAN

    net = KAN(width=[2, 3, 1], grid=3, k=3, seed=0, auto_save=False, save_act=True)
    on.weights(net)
    x = 0.3 * on.randn(10, 2)
    free = [p for p in net.parameters() if p.requires_grad]

    def loss() -> Any:
        y = net(x)
        return (y - x.prod(1, keepdim=True)).pow(2).mean() + 0.01 * net.get_reg(
            "edge_forward_spline_n", 1.0, 2.0, 0.0, 0.0
        )

    on.train([p for p in free if p.numel()][:8], loss)


@package("roma")
def _roma(on: Any) -> None:
    """rotations by matrices, quaternions, vectors and Procrustes, with gradients"""
    import roma
    import torch

    x = torch.nn.Parameter(on.randn(5, 3, 3))
    v, q = torch.nn.Parameter(on.randn(5, 3)), torch.nn.Parameter(on.randn(5, 4))

    def loss() -> Any:
        r = roma.special_gramschmidt(x)
        s = roma.special_procrustes(x)
        t = roma.rotvec_to_rotmat(v)
        u = roma.unitquat_to_rotmat(q / q.norm(dim=-1, keepdim=True))
        mixed = roma.rotmat_slerp(r.detach(), t, torch.linspace(0, 1, 5))
        return (
            (r @ t).diagonal(0, -1, -2).sum()
            + (s * u).sum()
            + mixed.sum(1).sum()
            + roma.rotmat_geodesic_distance(t, u).sum()
            + roma.rotmat_to_unitquat(t).sum()
        )

    on.train([x, v, q], loss)


@package("peft", "transformers", "accelerate", "tokenizers", "regex", "safetensors", *_HUB)
def _peft(on: Any) -> None:
    """LoRA, DoRA and IA3 adapters of a small network, merged at the end"""
    import torch
    from peft import IA3Config, LoraConfig, get_peft_model
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 2)

        def forward(self, x: Any) -> Any:
            return self.down(torch.tanh(self.up(x)))

    x = on.randn(5, 4)
    for settings in (
        LoraConfig(r=2, target_modules=["up", "down"], lora_dropout=0.0),
        LoraConfig(r=2, target_modules=["up"], use_dora=True),
        IA3Config(target_modules=["up", "down"], feedforward_modules=["down"]),
    ):
        model = get_peft_model(on.weights(Net()), settings)
        free = [p for p in model.parameters() if p.requires_grad]
        for p in free:
            p.data.copy_(on.randn(*p.shape))
        on.train(free, lambda model=model: model(x).pow(2).mean())
        on.keep(model.merge_and_unload()(x))


@package("segmentation_models_pytorch", "torchvision", "timm", "safetensors", *_HUB)
def _segmentation(on: Any) -> None:
    """U-Net and FPN over a ResNet, with Dice, focal and Jaccard losses"""
    import segmentation_models_pytorch as smp
    import torch

    x, target = on.randn(2, 3, 32, 32).double(), (on.randn(2, 1, 32, 32) > 0).long()
    losses = [
        smp.losses.DiceLoss("binary"),
        smp.losses.FocalLoss("binary"),
        smp.losses.JaccardLoss("binary"),
    ]
    for made in (smp.Unet, smp.FPN):
        net = made("resnet18", encoder_weights=None, classes=1).double().eval()
        for p in net.parameters():
            p.data.copy_(on.randn(*p.shape) / max(p[0].numel(), 1) ** 0.5)

        def loss(net: Any = net) -> Any:
            y = net(x)
            return sum(f(y, target) for f in losses)

        on.train(net, loss, steps=1)
    stats = smp.metrics.get_stats(target, target.flip(0), mode="binary")
    on.keep(torch.as_tensor(smp.metrics.iou_score(*stats, reduction="micro")))


@package("torch-pruning", "torchvision")
def _torch_pruning(on: Any) -> None:
    """groups of coupled channels pruned by magnitude from a residual network, then trained"""
    import torch
    import torch_pruning as tp
    import torchvision as vision
    from torch import nn

    net = on.weights(vision.models.resnet18(num_classes=3)).double().eval()
    x = on.randn(2, 3, 32, 32).double()
    pruner = tp.pruner.MagnitudePruner(
        net, x, importance=tp.importance.MagnitudeImportance(p=2), pruning_ratio=0.5,
        ignored_layers=[net.fc],
    )  # fmt: skip
    pruner.step()
    on.keep(*[torch.tensor(p.shape) for p in net.parameters()])
    for m in net.modules():
        if isinstance(m, nn.Conv2d):
            m.weight.data.div_(10)
    on.train(net, lambda: net(x).pow(2).mean(), steps=1)


@package("torchjd", "quadprog", "qpsolvers")
def _torchjd(on: Any) -> None:
    """Jacobians of several losses joined by mean, IMTL-G and AlignedMTL"""
    import torch
    from torch import nn
    from torchjd import autojac
    from torchjd.aggregation import IMTLG, AlignedMTL, Mean

    x, y = on.randn(6, 4), on.randn(6, 2)
    for made in (Mean(), IMTLG(), AlignedMTL()):
        net = on.weights(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(2):
            losses = (net(x) - y).pow(2).mean(0)
            optimizer.zero_grad()
            autojac.backward(losses)
            autojac.jac_to_grad(net.parameters(), made)
            on.keep(losses, *[p.grad for p in net.parameters()])
            optimizer.step()


@package(
    "curvlinops-for-pytorch",
    "einops",
    "einconv",
    "linear_operator",
    "backpack-for-pytorch",
    "unfoldNd",
    "jaxtyping",
    "wadler_lindig",
)
def _curvlinops(on: Any) -> None:
    """products with the Hessian, the Gauss-Newton and the empirical Fisher matrix"""
    import torch
    from curvlinops import EFLinearOperator, GGNLinearOperator, HessianLinearOperator
    from torch import nn

    net = on.weights(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)))
    data = [(on.randn(6, 4), torch.arange(6) % 3), (on.randn(4, 4), torch.arange(4) % 3)]
    parameters = list(net.parameters())
    vector = on.randn(sum(p.numel() for p in net.parameters()))
    for made in (HessianLinearOperator, GGNLinearOperator, EFLinearOperator):
        on.keep(made(net, nn.CrossEntropyLoss(), parameters, data) @ vector)


@package("blitz-bayesian-pytorch")
def _blitz(on: Any) -> None:
    """variational layers: linear, convolutional and recurrent, frozen, with their divergence"""
    from blitz.modules import BayesianConv2d, BayesianLinear, BayesianLSTM

    for net, x in (
        (BayesianLinear(4, 3), on.randn(5, 4)),
        (BayesianConv2d(2, 3, (3, 3)), on.randn(2, 2, 6, 6)),
        (BayesianLSTM(3, 4), on.randn(2, 5, 3)),
    ):
        on.weights(net)
        net.freeze_() if hasattr(net, "freeze_") else setattr(net, "freeze", True)

        def loss(net: Any = net, x: Any = x) -> Any:
            out = net(x)
            return (out[0] if isinstance(out, tuple) else out).pow(2).mean()

        on.train(net, loss)


@package("auraloss")
def _auraloss(on: Any) -> None:
    """spectral losses of several resolutions, SI-SDR, ESR and log-cosh of signals"""
    import auraloss
    import torch

    x, y = torch.nn.Parameter(on.randn(2, 1, 4096)), on.randn(2, 1, 4096)
    for made in (
        auraloss.freq.STFTLoss(fft_size=256, hop_size=64, win_length=256),
        auraloss.freq.MultiResolutionSTFTLoss([128, 256], [32, 64], [128, 256]),
        auraloss.time.SISDRLoss(),
        auraloss.time.ESRLoss(),
        auraloss.time.LogCoshLoss(),
        auraloss.time.SNRLoss(),
    ):
        on.train([x], lambda f=made: f(x, y), steps=1)


@package("asteroid_filterbanks")
def _asteroid(on: Any) -> None:
    """encoder and decoder by free, STFT and parametrized sinc filters"""
    import torch
    from asteroid_filterbanks import STFTFB, Decoder, Encoder, FreeFB, ParamSincFB

    wave = on.randn(2, 1, 400)
    for made in (FreeFB(8, 16, 8), STFTFB(16, 16, 8), ParamSincFB(8, 17, 8)):
        encoder = Encoder(made)
        decoder = Decoder(made)
        scale = torch.nn.Parameter(torch.ones(1))
        for p in encoder.parameters():
            if p.ndim == 3:
                p.data.copy_(on.randn(*p.shape))
        free = [scale, *[p for p in encoder.parameters() if p.requires_grad]]
        on.train(free, lambda e=encoder, d=decoder, s=scale: d(e(wave * s).tanh()).pow(2).mean())


@package("deepxde", "scikit-learn", "scikit-optimize", "joblib", "threadpoolctl", "pyaml", "pyyaml")
def _deepxde(on: Any) -> None:
    """residuals of the Burgers equation through a network, trained"""
    import os

    import torch

    os.environ["DDE_BACKEND"] = "pytorch"
    import deepxde as dde

    net = dde.nn.FNN([2, 8, 8, 1], "tanh", "Glorot normal")
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(0.5 * on.randn(*p.shape))
    x = on.randn(7, 2).requires_grad_()

    def loss() -> Any:
        y = net(x)
        dx = dde.grad.jacobian(y, x, i=0, j=0)
        dt = dde.grad.jacobian(y, x, i=0, j=1)
        dxx = dde.grad.hessian(y, x, i=0, j=0)
        dde.gradients.clear() if hasattr(dde.gradients, "clear") else dde.grad.clear()
        return (dt + y * dx - 0.01 * dxx).pow(2).mean()

    on.train(net, loss)


@package("pyknos", "nflows")
def _pyknos(on: Any) -> None:
    """a mixture density network's likelihood"""
    import torch
    from pyknos.mdn.mdn import MultivariateGaussianMDN
    from torch import nn

    net = MultivariateGaussianMDN(
        features=2, context_features=3, hidden_features=6, num_components=3,
        hidden_net=nn.Sequential(nn.Linear(3, 6), nn.Tanh()), custom_initialization=False,
    )  # fmt: skip
    on.weights(net)
    x, context = on.randn(5, 2), on.randn(5, 3)
    on.train(net, lambda: -net.log_prob(x, context).mean())
    assert torch.is_tensor(net.sample(3, context))


@package(
    "open_clip_torch", "ftfy", "regex", "torchvision", "timm", "huggingface_hub", "safetensors"
)
def _open_clip(on: Any) -> None:
    """a small CLIP: a vision transformer and a text transformer, with the contrastive loss"""
    from open_clip.loss import ClipLoss
    from open_clip.model import CLIP

    net = CLIP(
        embed_dim=16,
        vision_cfg={"image_size": 16, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8},
        text_cfg={"context_length": 6, "vocab_size": 20, "width": 32, "heads": 2, "layers": 2},
    )
    on.weights(net, 0.1)
    images, texts = on.randn(3, 3, 16, 16), (on.randn(3, 6).abs() * 7).long() % 20

    def loss() -> Any:
        image, text, scale = net(images, texts)
        return ClipLoss()(image, text, scale)

    on.train(net, loss)


@package("ultralytics", "opencv-python-headless", "pyyaml", "ultralytics-thop", "polars", "psutil")
def _ultralytics(on: Any) -> None:
    """a small YOLO: backbone, pyramid, heads and the loss of detection, in float64"""
    import types

    import torch

    torch.set_default_dtype(torch.float64)  # its batch norms of few values magnify rounding
    from ultralytics.nn.tasks import DetectionModel

    net = on.same_buffers(
        on.weights(DetectionModel("yolov8n.yaml", ch=3, nc=2, verbose=False).double(), 0.05)
    )
    net.args = types.SimpleNamespace(box=7.5, cls=0.5, dfl=1.5)
    batch = {
        "img": on.randn(2, 3, 64, 64).abs().double() % 1,
        "cls": torch.tensor([[0.0], [1.0], [1.0]]),
        "bboxes": torch.tensor([[0.5, 0.5, 0.4, 0.3], [0.3, 0.6, 0.2, 0.5], [0.6, 0.4, 0.5, 0.5]]),
        "batch_idx": torch.tensor([0.0, 0.0, 1.0]),
    }
    on.train(net, lambda: net(batch)[0].sum(), steps=2)


@package("lightly", "lightly_utils", "pytorch-lightning", "hydra-core", "omegaconf", "aenum")
def _lightly(on: Any) -> None:
    """self-supervised losses: NT-Xent, SimSiam, Barlow twins, VICReg, DINO, with their heads"""
    from lightly.loss import (
        BarlowTwinsLoss,
        DINOLoss,
        NegativeCosineSimilarity,
        NTXentLoss,
        VICRegLoss,
    )
    from lightly.models.modules.heads import BarlowTwinsProjectionHead, SimSiamProjectionHead
    from torch import nn

    net = nn.ModuleList([SimSiamProjectionHead(6, 8, 8), BarlowTwinsProjectionHead(6, 8, 8)])
    on.weights(net)
    x, y = on.randn(8, 6), on.randn(8, 6)
    dino = DINOLoss(output_dim=8)

    def loss() -> Any:
        a, b = net[0](x), net[0](y)
        c, d = net[1](x), net[1](y)
        return (
            NTXentLoss()(a, b)
            + NegativeCosineSimilarity()(a, b.detach())
            + BarlowTwinsLoss()(c, d)
            + VICRegLoss()(c, d)
            + dino([a.detach(), b.detach()], [c, d], epoch=1)
        )

    on.train(net, loss)


@package(
    "reformer_pytorch",
    "axial_positional_embedding",
    "local_attention",
    "product_key_memory",
    "colt5-attention",
)
def _reformer(on: Any) -> None:
    """full attention and attention by hashed buckets, reversible blocks, chunked feed-forward"""
    import torch
    from reformer_pytorch import LSHSelfAttention, Reformer

    net = Reformer(
        dim=8, depth=2, heads=2, bucket_size=4, n_hashes=2, use_full_attn=True, ff_chunks=2
    )
    on.weights(net)
    x = on.randn(2, 8, 8).requires_grad_()
    on.train(net, lambda: net(x).pow(2).mean())
    hashed = on.weights(LSHSelfAttention(dim=8, heads=2, bucket_size=8, n_hashes=1, causal=True))
    torch.manual_seed(0)  # one bucket only: its number does not matter
    on.train(hashed, lambda: hashed(x).pow(2).mean())


@package("sbi", "pyknos", "nflows", "pyro-ppl", "zuko", "arviz", "joblib", "matplotlib", "tqdm")
def _sbi(on: Any) -> None:
    """likelihoods of mixture and flow estimators of a posterior, trained"""
    from sbi.neural_nets.net_builders import build_maf, build_mdn

    theta, x = on.randn(40, 2), on.randn(40, 3)
    for build in (build_mdn, build_maf):
        net = on.weights(build(theta, x, hidden_features=8), 0.1)
        for name, b in net.named_buffers():
            if name.endswith("_permutation"):  # drawn at random
                b.copy_(b.sort().values.flip(0))
        on.train(net, lambda net=net: net.loss(theta, x).mean())  # type: ignore[misc]


@package("torchdyn", "torchsde", "torchcde", "torchdiffeq", "torchvision", "einops", "lightning")
def _torchdyn(on: Any) -> None:
    """a neural ODE by dopri5 and rk4, by backpropagation and by its adjoint"""
    import torch
    from torch import nn
    from torchdyn.core import NeuralODE

    x = on.randn(5, 2)
    times = torch.linspace(0, 1, 4)
    for solver, sensitivity in (("rk4", "autograd"), ("dopri5", "adjoint")):
        f = on.weights(nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2)))
        ode = NeuralODE(f, sensitivity=sensitivity, solver=solver, atol=1e-6, rtol=1e-6)
        on.train(f, lambda ode=ode: ode(x, times)[1][-1].pow(2).mean())  # type: ignore[misc]


@package("torchode", "torchtyping", "typeguard")
def _torchode(on: Any) -> None:
    """a batch of initial value problems by Tsit5, each with steps of its own"""
    import torch
    import torchode
    from torch import nn

    f = on.weights(nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 2)))
    term = torchode.ODETerm(lambda t, y: f(y))
    method = torchode.Tsit5(term=term)
    solver = torchode.AutoDiffAdjoint(method, torchode.IntegralController(1e-5, 1e-4, term=term))
    y0, times = on.randn(3, 2), torch.linspace(0, 1, 5).repeat(3, 1)

    def loss() -> Any:
        problem = torchode.InitialValueProblem(y0=y0, t_eval=times)
        return solver.solve(problem).ys.pow(2).mean()

    on.train(f, loss)


@package("se3_transformer_pytorch", "einops", "filelock")
def _se3_transformer(on: Any) -> None:
    """equivariant attention at points; the signs of its bases, singular vectors, fixed"""
    import os
    import tempfile

    import torch

    os.environ["CACHE_PATH"] = tempfile.mkdtemp()  # each side writes tensors there by pickle
    from se3_transformer_pytorch import SE3Transformer

    svd = torch.svd

    def signed(a: Any) -> Any:  # a change of 1e-16 turns vectors of the kernel, in PyTorch too
        u, s, v = svd(a)
        return u, s, v * (torch.arange(1, len(v) + 1, dtype=v.dtype).sqrt() @ v).sign()

    torch.svd = signed

    net = SE3Transformer(dim=4, heads=2, depth=1, dim_head=4, num_degrees=2, valid_radius=10)
    on.weights(net)
    x, points = on.randn(1, 5, 4), on.randn(1, 5, 3)
    on.train(net, lambda: net(x, points, return_type=0).pow(2).mean(), steps=2)


@package("enformer_pytorch", "einops", "discrete-key-value-bottleneck-pytorch", "polars")
def _enformer(on: Any) -> None:
    """attention over a sequence's convolutions, with attention pooling and two heads"""
    from enformer_pytorch import Enformer

    net = Enformer.from_hparams(
        dim=384,
        depth=1,
        heads=2,
        output_heads={"human": 3, "mouse": 2},
        target_length=4,
        dropout_rate=0.0,
        attn_dropout=0.0,
        pos_dropout=0.0,
        num_downsamples=3,
    )
    on.same_buffers(on.weights(net, 0.1))
    net.eval()
    x = on.randn(1, 64, 4).softmax(-1)
    on.train(net, lambda: sum(y.mean() for y in net(x).values()), steps=2)


@package("pycox", "torchtuples", "feather-format", "numba", "llvmlite", "scikit-learn")
def _pycox(on: Any) -> None:
    """losses of survival models: Cox's partial likelihood, logistic hazard, PMF, MTLR"""
    import torch
    from pycox.models import loss as losses
    from torch import nn

    net = on.weights(nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 5)))
    x = on.randn(8, 3)
    times, events = torch.arange(8) % 5, (torch.arange(8) % 3 > 0).float()

    def loss() -> Any:
        y = net(x)
        return (
            losses.nll_pmf(y, times, events)
            + losses.nll_logistic_hazard(y, times, events)
            + losses.nll_mtlr(y, times, events)
            + losses.cox_ph_loss(y[:, 0], times.float(), events)
        )

    on.train(net, loss)


@package("loralib")
def _loralib(on: Any) -> None:
    """LoRA in linear, merged linear, embedding and convolution layers"""
    import loralib
    from torch import nn

    net = nn.ModuleList(
        [
            loralib.Linear(4, 6, r=2, lora_alpha=2),
            loralib.MergedLinear(6, 6, r=2, enable_lora=[True, False, True]),
            loralib.Conv2d(2, 3, 3, r=2),
        ]
    )
    on.weights(net)
    loralib.mark_only_lora_as_trainable(net)
    x, image = on.randn(5, 4), on.randn(2, 2, 5, 5)
    trained = [p for p in net.parameters() if p.requires_grad]
    on.train(trained, lambda: net[1](net[0](x)).pow(2).mean() + net[2](image).sin().mean())
    net.eval()
    on.keep(net[1](net[0](x)))


@package("lycoris-lora", "einops", "toml", "tqdm")
def _lycoris(on: Any) -> None:
    """LoHa, LoKr and LoCon adapters of linear and convolution layers"""
    from lycoris import LycorisNetwork, create_lycoris
    from torch import nn

    for algo in ("lora", "loha", "lokr"):
        net = on.weights(nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Linear(36, 4)))
        LycorisNetwork.apply_preset({"target_name": [".*"], "target_module": []})
        adapter = create_lycoris(net, 1.0, linear_dim=2, linear_alpha=1.0, algo=algo)
        adapter.apply_to()
        on.weights(adapter)
        x = on.randn(3, 2, 5, 5)
        on.train(adapter, lambda net=net, x=x: net(x).tanh().pow(2).mean())  # type: ignore[misc]


@package(
    "fastai",
    "fastcore",
    "fastprogress",
    "fasttransform",
    "plum-dispatch",
    "cloudpickle",
    "beartype",
)
def _fastai(on: Any) -> None:
    """TensorImage through layers, label smoothing and focal losses, a tabular model"""
    import torch
    from fastai.layers import SelfAttention, SimpleCNN
    from fastai.losses import FocalLossFlat, LabelSmoothingCrossEntropy
    from fastai.tabular.model import TabularModel
    from fastai.torch_core import TensorImage

    net = on.same_buffers(on.weights(SimpleCNN([3, 8, 4])))
    x, target = TensorImage(on.randn(2, 3, 8, 8)), torch.tensor([1, 3])
    on.train(
        net, lambda: LabelSmoothingCrossEntropy()(net(x), target) + FocalLossFlat()(net(x), target)
    )
    table = on.same_buffers(on.weights(TabularModel([(4, 3)], 2, 2, [6])))
    numbers, kinds = on.randn(6, 2), torch.arange(6)[:, None] % 4
    on.train(table, lambda: table(kinds, numbers).pow(2).mean())
    attend = on.weights(SelfAttention(8))
    for vector in attend.buffers():  # of spectral norms, drawn at random
        vector.copy_(torch.nn.functional.normalize(on.randn(*vector.shape), dim=0))
    y = on.randn(2, 8, 4, 4)
    on.train(attend, lambda: attend(y).pow(2).mean())


@package(
    "sentence-transformers", "transformers", "huggingface_hub", "tokenizers", "safetensors", "regex"
)
def _sentence_transformers(on: Any) -> None:
    """losses of sentence embeddings over pooled tokens"""
    from sentence_transformers import util
    from sentence_transformers.models import Pooling
    from torch import nn

    tokens, mask = on.randn(4, 5, 6), (on.randn(4, 5) > -1).long()
    dense = on.weights(nn.Linear(12, 3))
    pool = Pooling(6, pooling_mode=("mean", "max"))

    def loss() -> Any:
        pooled = pool({"token_embeddings": tokens, "attention_mask": mask})["sentence_embedding"]
        y = dense(pooled)
        return util.cos_sim(y, y.flip(0)).mean() + util.pairwise_dot_score(y, y.roll(1, 0)).mean()

    on.train(dense, loss)


@package("conformer", "einops")
def _conformer(on: Any) -> None:
    """a convolution-augmented transformer for sequences"""
    from conformer import Conformer

    net = on.same_buffers(
        on.weights(Conformer(dim=8, depth=2, dim_head=4, heads=2, conv_kernel_size=5))
    )
    net.eval()  # in training, biases before a batch norm have gradients of rounding only
    x = on.randn(2, 10, 8)
    on.train(net, lambda: net(x).pow(2).mean())


@package(
    "linear_attention_transformer",
    "axial_positional_embedding",
    "linformer",
    "local_attention",
    "product_key_memory",
    "colt5-attention",
)
def _linear_attention_transformer(on: Any) -> None:
    """a language model with linear and local attention"""
    import torch
    from linear_attention_transformer import LinearAttentionTransformerLM

    net = LinearAttentionTransformerLM(
        num_tokens=20,
        dim=8,
        heads=2,
        depth=2,
        max_seq_len=16,
        causal=True,
        blindspot_size=1,
        n_local_attn_heads=1,
        local_attn_window_size=4,
    )
    on.weights(net)
    tokens = torch.arange(32).reshape(2, 16) * 7 % 20
    on.train(
        net,
        lambda: net(tokens).log_softmax(-1)[:, :-1].gather(-1, tokens[:, 1:, None]).mean().neg(),
    )


@package("norse", "nir", "nirtorch")
def _norse(on: Any) -> None:
    """LIF cells, with refraction too, and LI over ten steps, through surrogate gradients"""
    import torch
    from norse.torch import LICell, LIFCell, LIFRefracCell, SequentialState
    from torch import nn

    x = on.randn(10, 3, 4)
    nets = [
        SequentialState(nn.Linear(4, 6), LIFCell(), nn.Linear(6, 2), LICell()),
        SequentialState(nn.Linear(4, 5), LIFRefracCell(), nn.Linear(5, 2), LICell()),
    ]
    for net in nets:
        on.weights(net, 1.5)

        def loss(net: Any = net) -> Any:
            state, outputs = None, []
            for step in x:
                y, state = net(step + 1, state)
                outputs.append(y)
            return torch.stack(outputs).pow(2).mean()

        on.train(net, loss)


@package("keras", "absl-py", "rich", "namex", "h5py", "optree", "ml_dtypes")
def _keras(on: Any) -> None:
    """a model of layers with KERAS_BACKEND=torch, its losses and Adam's steps"""
    import os

    os.environ["KERAS_BACKEND"] = "torch"
    import keras
    import numpy as np
    import torch

    inputs = keras.Input((8, 8, 3))
    y = keras.layers.Conv2D(4, 3, activation="relu", padding="same")(inputs)
    y = keras.layers.BatchNormalization()(y)
    y = keras.layers.MaxPooling2D()(y)
    y = keras.layers.LayerNormalization()(y)
    y = keras.layers.Reshape((16, 4))(y)
    y = keras.layers.LSTM(5)(y)
    net = keras.Model(inputs, keras.layers.Dense(3)(y))
    rng = np.random.default_rng(0)
    drawn = [0.3 * rng.standard_normal(w.shape) if w.ndim > 1 else w for w in net.get_weights()]
    net.set_weights(drawn)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    net.compile(keras.optimizers.Adam(1e-2), loss)
    x, t = on.randn(12, 8, 8, 3).numpy(), np.arange(12) % 3
    seen = net.fit(x, t, batch_size=4, epochs=2, shuffle=False, verbose=0)
    on.keep(torch.tensor(seen.history["loss"], dtype=torch.float64))
    on.keep(torch.tensor(net.predict(x, verbose=0)))
    on.keep(*[torch.tensor(w) for w in net.get_weights()])


@package("foolbox", "eagerpy", "GitPython", "gitdb", "smmap", "requests")
def _foolbox(on: Any) -> None:
    """FGSM, PGD, Carlini-Wagner, DeepFool and PGD in L2 of a small network"""
    import foolbox as fb
    import torch
    from torch import nn

    layers = nn.Flatten(), nn.Linear(48, 12), nn.Tanh(), nn.Linear(12, 3)
    net = on.weights(nn.Sequential(*layers), 1.0).eval()
    model = fb.PyTorchModel(net, bounds=(0, 1), device="cpu")
    x = torch.sigmoid(on.randn(4, 3, 4, 4))
    labels = net(x).argmax(-1)
    for attack in (
        fb.attacks.FGSM(),
        fb.attacks.LinfPGD(random_start=False, steps=5),
        fb.attacks.L2PGD(random_start=False, steps=5),
        fb.attacks.LinfDeepFoolAttack(steps=4),
        fb.attacks.L2CarliniWagnerAttack(binary_search_steps=2, steps=8),
    ):
        _, clipped, found = attack(model, x, labels, epsilons=[0.05])
        on.keep(clipped[0], found)


@package("deepctr-torch", "h5py", "scikit-learn", "tqdm")
def _deepctr(on: Any) -> None:
    """DeepFM, xDeepFM, DCN and AutoInt over sparse and dense features"""
    import torch
    from deepctr_torch.inputs import DenseFeat, SparseFeat
    from deepctr_torch.models import DCN, AutoInt, DeepFM, xDeepFM

    features = [SparseFeat("a", 5, 4), SparseFeat("b", 4, 4), DenseFeat("c", 2)]
    x = torch.cat(
        [torch.arange(8.0)[:, None] % 5, torch.arange(8.0)[:, None] % 4, on.randn(8, 2)], 1
    )
    t = (torch.arange(8) % 2).float()[:, None]
    for kind in (DeepFM, xDeepFM, DCN, AutoInt):
        net = on.weights(kind(features, features, dnn_hidden_units=(6,), device="cpu"))

        def loss(net: Any = net) -> Any:
            fit = torch.nn.functional.binary_cross_entropy(net(x), t)
            return fit + net.get_regularization_loss().sum()

        on.train(net, loss)


@package("grad-cam", "ttach", "opencv-python-headless", "torchvision", "scikit-learn", "matplotlib")
def _grad_cam(on: Any) -> None:
    """GradCAM, GradCAM++, XGradCAM, LayerCAM and HiResCAM of a convolutional network"""
    import numpy as np
    import torch
    from pytorch_grad_cam import GradCAM, GradCAMPlusPlus, HiResCAM, LayerCAM, XGradCAM
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget
    from torch import nn

    body = nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 3), nn.ReLU()
    net = on.weights(nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)))
    x = on.randn(2, 3, 10, 10)
    for kind in (GradCAM, GradCAMPlusPlus, XGradCAM, LayerCAM, HiResCAM):
        with kind(model=net, target_layers=[net[2]]) as cam:
            maps = cam(x, [ClassifierOutputTarget(1), ClassifierOutputTarget(2)])
            on.keep(torch.from_numpy(np.asarray(maps)))


@package("torchopt", "optree", "graphviz")
def _torchopt(on: Any) -> None:
    """MetaAdam's inner steps with the outer gradient, and functional and ordinary optimizers"""
    import torch
    import torchopt
    from torch import nn

    x = on.randn(6, 4)
    net = on.weights(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)))
    scale = nn.Parameter(torch.ones(2))

    def loss() -> Any:
        inner = torchopt.MetaAdam(net, lr=1e-2)
        before = torchopt.extract_state_dict(net, by="reference", detach_buffers=True)
        start = torchopt.extract_state_dict(inner, by="reference")
        for _ in range(2):
            inner.step((net(x) * scale).pow(2).mean())
        result = net(x).pow(2).mean()
        torchopt.recover_state_dict(net, before)
        torchopt.recover_state_dict(inner, start)
        return result

    on.train([scale], loss)
    for kind in (torchopt.AdamW, torchopt.RMSProp, torchopt.SGD):
        on.train(net, lambda: net(x).pow(2).mean(), optimizer=kind(net.parameters(), lr=1e-2))


@package("zennit")
def _zennit(on: Any) -> None:
    """relevance propagation by composites, guided backpropagation, integrated gradients"""
    import torch
    from torch import nn
    from zennit.attribution import Gradient, IntegratedGradients
    from zennit.composites import (
        DeconvNet,
        EpsilonAlpha2Beta1Flat,
        EpsilonGammaBox,
        EpsilonPlus,
        ExcitationBackprop,
        GuidedBackprop,
    )

    net = on.weights(
        nn.Sequential(
            nn.Conv2d(3, 6, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 4, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16, 3),
        )
    )
    x = on.randn(2, 3, 10, 10)
    for c in (
        EpsilonPlus(),
        EpsilonAlpha2Beta1Flat(),
        EpsilonGammaBox(low=-3.0, high=3.0),
        GuidedBackprop(),
        DeconvNet(),
        ExcitationBackprop(),
    ):
        with Gradient(model=net, composite=c) as a:
            out, rel = a(x, torch.eye(3)[[1, 2]])
            on.keep(out, rel)
    with IntegratedGradients(net, n_iter=5) as a:
        on.keep(*a(x, torch.eye(3)[[1, 2]]))


@package("laplace-torch", "asdfghjkl", "curvlinops-for-pytorch", "backpack-for-pytorch", "asdl")
def _laplace(on: Any) -> None:
    """Laplace approximations of a classifier: full, Kronecker and diagonal; all, the last layer"""
    import torch
    from laplace import Laplace
    from laplace.curvature import BackPackGGN
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    net = on.weights(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)))
    x, y = on.randn(12, 4), torch.arange(12) % 3
    loader = DataLoader(TensorDataset(x, y), batch_size=6)
    for subset in ("all", "last_layer"):
        for kind in ("full", "kron", "diag"):
            la = Laplace(
                net,
                "classification",
                subset_of_weights=subset,
                hessian_structure=kind,
                backend=BackPackGGN,
            )
            la.fit(loader)
            on.keep(la.log_marginal_likelihood(), la(x[:3], link_approx="probit"))
            la.optimize_prior_precision(method="marglik", n_steps=3)
            on.keep(la.prior_precision)


@package("tsai", "fastai", "fastcore", "fastprogress", "imbalanced-learn", "pyts")
def _tsai(on: Any) -> None:
    """InceptionTime, ResNet, TST, TCN, LSTM-FCN, XceptionTime and PatchTST on time series"""
    import torch
    from tsai.models.InceptionTime import InceptionTime
    from tsai.models.PatchTST import PatchTST
    from tsai.models.ResNet import ResNet
    from tsai.models.RNN_FCN import LSTM_FCN
    from tsai.models.TCN import TCN
    from tsai.models.TST import TST
    from tsai.models.XceptionTime import XceptionTime

    x, y = on.randn(4, 3, 24), torch.tensor([0, 1, 1, 0])
    for make in (
        lambda: InceptionTime(3, 2, nf=4),
        lambda: ResNet(3, 2),
        lambda: TCN(3, 2, layers=[4, 4], fc_dropout=0),
        lambda: TST(3, 2, 24, n_layers=2, d_model=8, n_heads=2, d_ff=8, dropout=0),
        lambda: LSTM_FCN(
            3, 2, 24, hidden_size=4, conv_layers=[4, 4, 4], rnn_dropout=0, fc_dropout=0
        ),
        lambda: XceptionTime(3, 2, nf=4),
        lambda: PatchTST(
            3,
            2,
            24,
            pred_dim=4,
            n_layers=1,
            d_model=8,
            n_heads=2,
            d_ff=8,
            dropout=0,
            patch_len=8,
            stride=4,
        ),
    ):
        net = on.weights(make())

        def loss(net=net):
            out = net(x)
            return 0.1 * (
                torch.nn.functional.cross_entropy(out, y) if out.ndim == 2 else out.pow(2).mean()
            )

        on.train(net, loss, steps=2)


@package("torchani")
def _torchani(on: Any) -> None:
    """symmetry functions (AEV) and a network per element: energies and forces"""
    import torch
    import torchani
    from torch import nn

    aev = torchani.AEVComputer.like_1x(num_species=3)
    species = torch.tensor([[0, 1, 1, 2, 1]])
    pos = (on.randn(1, 5, 3) * 1.2).requires_grad_()
    r = aev(species, pos)
    r = getattr(r, "aevs", r)
    on.keep(r)
    net = on.weights(nn.Sequential(nn.Linear(r.shape[-1], 8), nn.CELU(0.1), nn.Linear(8, 1)), 0.1)

    def loss():
        a = aev(species, pos)
        a = getattr(a, "aevs", a)
        e = net(a).sum()
        (f,) = torch.autograd.grad(e, pos, create_graph=True)
        return e + f.pow(2).sum()

    on.train(net, loss)


@package("skrl", "gymnasium", "farama-notifications", "packaging")
def _skrl(on: Any) -> None:
    """a Gaussian policy and a deterministic value: log-probabilities and gradients"""
    import torch
    from gymnasium.spaces import Box
    from skrl.models.torch import DeterministicMixin, GaussianMixin, Model
    from torch import nn

    class Policy(GaussianMixin, Model):
        def __init__(self, o, a):
            Model.__init__(self, observation_space=o, action_space=a, device="cpu")
            GaussianMixin.__init__(self)
            self.net = nn.Sequential(nn.Linear(4, 6), nn.ELU(), nn.Linear(6, 2))
            self.log_std_parameter = nn.Parameter(torch.zeros(2))

        def compute(self, inputs, role):
            o = inputs.get("observations", inputs.get("states"))
            return self.net(o), {"log_std": self.log_std_parameter}

    class Value(DeterministicMixin, Model):
        def __init__(self, o, a):
            Model.__init__(self, observation_space=o, action_space=a, device="cpu")
            DeterministicMixin.__init__(self)
            self.net = nn.Sequential(nn.Linear(4, 6), nn.ELU(), nn.Linear(6, 1))

        def compute(self, inputs, role):
            return self.net(inputs.get("observations", inputs.get("states"))), {}

    o, a = Box(-1, 1, (4,)), Box(-1, 1, (2,))
    p, v = on.weights(Policy(o, a)), on.weights(Value(o, a))
    x, act = on.randn(6, 4), on.randn(6, 2)
    both = nn.ModuleList([p, v])

    def loss():
        _, more = p.act({"states": x, "observations": x, "taken_actions": act}, role="policy")
        val = v.act({"states": x, "observations": x}, role="value")[0]
        return (
            -more["log_prob"].mean() + val.pow(2).mean() if isinstance(more, dict) else val.mean()
        )

    on.train(both, loss)


@package("d3rlpy", "gym", "gymnasium", "structlog", "colorama", "dataclasses-json")
def _d3rlpy(on: Any) -> None:
    """updates of DQN, TD3 with given noise and behavioural cloning from a fixed batch"""
    import d3rlpy
    import numpy as np
    import torch

    rng = np.random.default_rng(0)
    obs = rng.standard_normal((40, 4)).astype(np.float32)
    torch.randn = lambda shape, device: on.randn(*shape)  # drawn by TD3
    for algo, acts in (
        (d3rlpy.algos.DQNConfig(batch_size=8), rng.integers(0, 3, (40, 1))),
        (d3rlpy.algos.DiscreteBCConfig(batch_size=8), rng.integers(0, 3, (40, 1))),
        (d3rlpy.algos.BCConfig(batch_size=8), rng.standard_normal((40, 2)).astype(np.float32)),
        (d3rlpy.algos.TD3Config(batch_size=8), rng.standard_normal((40, 2)).astype(np.float32)),
    ):
        ds = d3rlpy.dataset.MDPDataset(
            obs,
            acts,
            rng.standard_normal(40).astype(np.float32),
            (np.arange(40) % 10 == 9).astype(np.float32),
        )
        a = algo.create(device="cpu")
        a.build_with_dataset(ds)
        for m in vars(a.impl.modules).values():
            if isinstance(m, torch.nn.Module):
                on.weights(m, 0.1)
        np.random.seed(0)
        buf = ds.sample_transition_batch(8)
        r = a.update(buf)
        on.keep(*[torch.tensor(float(v)) for k, v in sorted(r.items())])
        on.keep(
            *[
                p
                for m in vars(a.impl.modules).values()
                if isinstance(m, torch.nn.Module)
                for p in m.parameters()
            ]
        )


@package("kymatio", "configparser", "appdirs")
def _kymatio(on: Any) -> None:
    """scattering transforms in one and two dimensions, with gradients"""
    from kymatio.scattering1d.frontend.torch_frontend import ScatteringTorch1D as Scattering1D
    from kymatio.scattering2d.frontend.torch_frontend import ScatteringTorch2D as Scattering2D

    for s, shape in (
        (Scattering1D(3, 64, 4), (2, 64)),
        (Scattering2D(2, (16, 16), L=4), (2, 16, 16)),
    ):
        x = on.randn(*shape).requires_grad_()
        y = s(x)
        y.pow(2).sum().backward()
        on.keep(y, x.grad)


@package("nnAudio")
def _nnaudio(on: Any) -> None:
    """STFT with its inverse, mel spectrogram, MFCC, CQT and gammatonegram"""
    from nnAudio import features

    x = on.randn(2, 4000).requires_grad_()
    for f in (
        features.STFT(n_fft=256, hop_length=64, verbose=False, output_format="Magnitude"),
        features.STFT(
            n_fft=256, hop_length=64, verbose=False, output_format="Complex", trainable=True
        ),
        features.MelSpectrogram(sr=4000, n_fft=256, n_mels=20, verbose=False, trainable_mel=True),
        features.MFCC(sr=4000, n_mfcc=8, n_fft=256, n_mels=20, verbose=False),
        features.CQT1992v2(sr=4000, fmin=200, n_bins=24, verbose=False),
        features.Gammatonegram(sr=4000, n_fft=256, n_bins=12, verbose=False),
    ):
        x.grad = None
        y = f(x)
        y.pow(2).sum().backward()
        on.keep(y, x.grad, *[p.grad for p in f.parameters()])
    s = features.STFT(n_fft=256, hop_length=64, verbose=False, output_format="Complex", iSTFT=True)
    on.keep(s.inverse(s(x), length=4000))


@package("ptwt", "PyWavelets")
def _ptwt(on: Any) -> None:
    """wavelet transforms: 1, 2 and 3 dimensions, packets, stationary, continuous; gradients"""
    import ptwt
    import torch

    x = on.randn(2, 32).requires_grad_()
    for w in ("haar", "db3"):
        for mode in ("reflect", "zero", "constant", "periodic", "symmetric"):
            c = ptwt.wavedec(x, w, mode=mode, level=2)
            back = ptwt.waverec(c, w)
            x.grad = None
            (sum((v**2).sum() for v in c) + (back**3).sum()).backward()
            on.keep(*c, back, x.grad)
    im = on.randn(2, 16, 16).requires_grad_()
    c = ptwt.wavedec2(im, "db2", level=2)
    on.keep(c[0], *[v for d in c[1:] for v in d], ptwt.waverec2(c, "db2"))
    f = ptwt.fswavedec2(im, "haar", level=2)
    on.keep(f[0])
    p = ptwt.WaveletPacket(x, "db2", mode="reflect", maxlevel=2)
    on.keep(p["aa"], p["ad"], p["dd"])
    p = ptwt.WaveletPacket2D(im, "haar", maxlevel=2)
    on.keep(p["ah"])
    on.keep(*ptwt.swt(x, "db2", level=2))
    on.keep(ptwt.cwt(x, torch.arange(1, 6), "mexh")[0])
    on.keep(ptwt.wavedec3(on.randn(1, 8, 8, 8), "haar", level=1)[0])


@package("deepinv", "natsort", "hdf5storage")
def _deepinv(on: Any) -> None:
    """blur, tomography, MRI: adjoints, inverses; PGD with TV; DnCNN and a U-Net; in float64"""
    import torch

    in_float64(torch)
    import deepinv as dinv

    torch.randn_like = lambda t: on.randn(*t.shape).double()  # where norms are estimated from
    x = on.randn(1, 1, 16, 16).double().abs()
    mask = (on.randn(1, 1, 16, 16) > 0).double()
    k = on.randn(1, 1, 3, 3).double()
    for ph in (
        dinv.physics.Inpainting((1, 16, 16), mask=mask),
        dinv.physics.Blur(k, padding="circular"),
        dinv.physics.Tomography(8, 16),
        dinv.physics.Downsampling((1, 16, 16), factor=2, filter="gaussian"),
        dinv.physics.MRI(mask=mask, img_size=(2, 16, 16)),
    ):
        u = (
            (x if not isinstance(ph, dinv.physics.MRI) else on.randn(1, 2, 16, 16).double())
            .clone()
            .requires_grad_()
        )
        y = ph.A(u)
        z = ph.A_adjoint(y)
        y.pow(2).sum().backward()
        on.keep(y, z, u.grad, ph.A_dagger(y.detach()))
    ph = dinv.physics.Blur(k, padding="circular")
    y = ph(x)
    model = dinv.optim.optim_builder(
        "PGD",
        prior=dinv.optim.TVPrior(n_it_max=5),
        data_fidelity=dinv.optim.L2(),
        max_iter=5,
        params_algo={"stepsize": 0.1, "lambda": 0.05},
    )
    on.keep(model(y, ph))
    net = on.weights(dinv.models.DnCNN(1, 1, depth=4, nf=4, pretrained=None), 0.1)
    on.train(net, lambda: (net(y, 0.1) - x).pow(2).mean())
    net = on.weights(dinv.models.UNet(1, 1, scales=2, batch_norm=False), 0.02)
    on.train(net, lambda: (net(y, 0.1) - x).pow(2).mean())


@package("xlstm", "dacite", "omegaconf")
def _xlstm(on: Any) -> None:
    """an xLSTM stack of mLSTM and sLSTM blocks"""
    from xlstm import (
        FeedForwardConfig,
        mLSTMBlockConfig,
        mLSTMLayerConfig,
        sLSTMBlockConfig,
        sLSTMLayerConfig,
        xLSTMBlockStack,
        xLSTMBlockStackConfig,
    )

    cfg = xLSTMBlockStackConfig(
        mlstm_block=mLSTMBlockConfig(
            mlstm=mLSTMLayerConfig(conv1d_kernel_size=4, qkv_proj_blocksize=4, num_heads=2)
        ),
        slstm_block=sLSTMBlockConfig(
            slstm=sLSTMLayerConfig(
                backend="vanilla",
                num_heads=2,
                conv1d_kernel_size=4,
                bias_init="powerlaw_blockdependent",
            ),
            feedforward=FeedForwardConfig(proj_factor=1.3, act_fn="gelu"),
        ),
        context_length=8,
        num_blocks=3,
        embedding_dim=16,
        slstm_at=[1],
    )
    net = on.weights(xLSTMBlockStack(cfg), 0.2)
    x = on.randn(2, 8, 16)
    on.train(net, lambda: net(x).pow(2).mean())


@package("torchkbnufft")
def _kbnufft(on: Any) -> None:
    """the non-uniform FFT and its adjoint, by tables and by sparse matrices, with gradients"""
    import torch
    import torchkbnufft as tkbn

    image = torch.complex(on.randn(1, 2, 16, 16), on.randn(1, 2, 16, 16)).requires_grad_()
    k = on.randn(2, 50).clamp(-3, 3)
    f, a = tkbn.KbNufft(im_size=(16, 16)), tkbn.KbNufftAdjoint(im_size=(16, 16))
    y = f(image, k)
    z = a(y, k)
    (z.abs() ** 2).sum().backward()
    on.keep(torch.view_as_real(y), torch.view_as_real(z), torch.view_as_real(image.grad))
    m = tkbn.calc_tensor_spmatrix(k, im_size=(16, 16))
    on.keep(torch.view_as_real(f(image, k, interp_mats=m)))
    on.keep(tkbn.calc_density_compensation_function(k, (16, 16), num_iterations=3).real)


@package("tensorly-torch", "tensorly", "opt_einsum")
def _tltorch(on: Any) -> None:
    """factorized linear layers, convolutions and embeddings: CP, Tucker, TT"""
    import tltorch

    x, im = on.randn(3, 16), on.randn(2, 4, 6, 6)
    for kind in ("cp", "tucker", "blocktt"):
        net = on.weights(tltorch.FactorizedLinear((4, 4), (2, 4), rank=2, factorization=kind))
        on.train(net, lambda net=net: net(x).pow(2).mean())
    for kind in ("cp", "tucker", "tt"):
        net = on.weights(tltorch.FactorizedConv(4, 3, 3, order=2, rank=2, factorization=kind))
        on.train(net, lambda net=net: net(im).pow(2).mean())
    net = on.weights(tltorch.TRL((4, 6, 6), (3,), rank=2))
    on.train(net, lambda: net(im).pow(2).mean())


@package("mambapy")
def _mambapy(on: Any) -> None:
    """Mamba by a parallel scan, and one step at a time"""
    from mambapy.mamba import Mamba, MambaConfig

    net = on.weights(Mamba(MambaConfig(d_model=8, n_layers=2)), 0.2)
    x = on.randn(2, 7, 8)
    on.train(net, lambda: net(x).pow(2).mean())
    net = on.weights(Mamba(MambaConfig(d_model=8, n_layers=2, pscan=False)), 0.2)
    on.train(net, lambda: net(x).pow(2).mean())


@package("tntorch", "maxvolpy", "tensorly")
def _tntorch(on: Any) -> None:
    """tensor trains: arithmetic, rounding, derivatives of a fit"""
    import tntorch as tn

    full = on.randn(4, 5, 6)
    t = tn.Tensor(full, ranks_tt=3)
    on.keep(t.torch(), (t * t + 2 * t).torch(), tn.dot(t, t), tn.mean(t), tn.var(t))
    s = t * t
    s.round_tt(eps=1e-6)
    on.keep(s.torch())
    g = tn.Tensor(
        [
            on.randn(1, 4, 2).requires_grad_(),
            on.randn(2, 5, 2).requires_grad_(),
            on.randn(2, 6, 1).requires_grad_(),
        ]
    )
    loss = tn.relative_error(tn.Tensor(full), g)
    loss.backward()
    on.keep(loss, *[c.grad for c in g.cores])


@package("nngeometry")
def _nngeometry(on: Any) -> None:
    """Fisher matrices: dense, diagonal, quasi-diagonal and KFAC"""
    import torch
    from nngeometry.metrics import FIM
    from nngeometry.object import (
        PMatDense,
        PMatDiag,
        PMatKFAC,
        PMatQuasiDiag,
    )
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    net = on.weights(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)))
    x, y = on.randn(12, 4), torch.arange(12) % 3
    loader = DataLoader(TensorDataset(x, y), batch_size=6)
    for kind in (PMatDense, PMatDiag, PMatKFAC, PMatQuasiDiag):
        F = FIM(net, loader, kind, variant="classif_logits")
        on.keep(F.trace())
        on.keep(F.to_torch() if kind is not PMatKFAC else F.frobenius_norm())


@package("torchbnn")
def _torchbnn(on: Any) -> None:
    """Bayesian layers with their divergence"""
    import torch
    import torchbnn as bnn
    from torch import nn

    net = on.weights(
        nn.Sequential(bnn.BayesLinear(0, 0.1, 4, 5), nn.ReLU(), bnn.BayesLinear(0, 0.1, 5, 3))
    )
    bnn.utils.freeze(net)
    for m in net:
        if hasattr(m, "weight_eps"):
            m.weight_eps.copy_(on.randn(*m.weight_eps.shape))
            m.bias_eps.copy_(on.randn(*m.bias_eps.shape))
    x, y = on.randn(6, 4), torch.arange(6) % 3
    kl = bnn.BKLLoss(reduction="mean")
    on.train(net, lambda: nn.functional.cross_entropy(net(x), y) + 0.1 * kl(net))


@package("pykeen", "class-resolver", "docdata", "more-click", "rexmex")
def _pykeen(on: Any) -> None:
    """TransE, DistMult, ComplEx, RotatE, HolE and TuckER on a small graph"""
    import torch
    from pykeen.models import ComplEx, DistMult, HolE, RotatE, TransE, TuckER
    from pykeen.triples import TriplesFactory

    triples = torch.stack(
        [torch.arange(20) % 7, torch.arange(20) % 3, (torch.arange(20) * 3 + 1) % 7], 1
    )
    f = TriplesFactory(
        triples,
        entity_to_id={str(i): i for i in range(7)},
        relation_to_id={str(i): i for i in range(3)},
    )
    for kind, more in (
        (TransE, {}),
        (DistMult, {}),
        (ComplEx, {}),
        (RotatE, {}),
        (HolE, {}),
        (
            TuckER,
            {
                "relation_dim": 4,
                "dropout_0": 0,
                "dropout_1": 0,
                "dropout_2": 0,
                "apply_batch_normalization": False,
            },
        ),
    ):
        net = on.weights(kind(triples_factory=f, embedding_dim=8, random_seed=0, **more))

        def loss(net=net):
            return (
                torch.nn.functional.softplus(-net.score_hrt(triples)).mean()
                + net.collect_regularization_term()
            )

        on.train(net, loss, steps=2)
        on.keep(net.score_t(triples[:3, :2]))


@package(
    "pytorch_forecasting",
    "pytorch-lightning",
    "lightning",
    "lightning-utilities",
    "torchmetrics",
    "pandas",
    "scikit-learn",
)
def _forecasting(on: Any) -> None:
    """a temporal fusion transformer and N-BEATS on a frame of series"""
    import numpy as np
    import pandas as pd
    from pytorch_forecasting import (
        NBeats,
        TemporalFusionTransformer,
        TimeSeriesDataSet,
    )
    from pytorch_forecasting.metrics import MAE, QuantileLoss

    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "t": np.tile(np.arange(20), 3),
            "g": np.repeat(["a", "b", "c"], 20),
            "y": rng.standard_normal(60).cumsum(),
            "u": rng.standard_normal(60),
        }
    )
    ds = TimeSeriesDataSet(
        frame,
        time_idx="t",
        target="y",
        group_ids=["g"],
        max_encoder_length=6,
        max_prediction_length=3,
        time_varying_known_reals=["t", "u"],
        time_varying_unknown_reals=["y"],
        static_categoricals=["g"],
    )
    x, y = next(iter(ds.to_dataloader(train=False, batch_size=8)))
    on.keep(x["encoder_cont"], y[0])
    net = on.weights(
        TemporalFusionTransformer.from_dataset(
            ds,
            hidden_size=8,
            attention_head_size=2,
            hidden_continuous_size=4,
            dropout=0.0,
            loss=QuantileLoss(),
        )
    )
    on.train(net, lambda: net.loss(net(x)["prediction"], y), steps=2)
    nb = TimeSeriesDataSet(
        frame,
        time_idx="t",
        target="y",
        group_ids=["g"],
        max_encoder_length=6,
        min_encoder_length=6,
        max_prediction_length=3,
        time_varying_unknown_reals=["y"],
    )
    xb, yb = next(iter(nb.to_dataloader(train=False, batch_size=8)))
    net2 = on.weights(
        NBeats.from_dataset(
            nb,
            widths=[8, 16],
            num_blocks=[1, 1],
            num_block_layers=[1, 1],
            dropout=0.0,
            loss=MAE(),
            logging_metrics=[],
        )
    )
    on.train(net2, lambda: net2.loss(net2(xb)["prediction"], yb), steps=2)


def _net(on: Any) -> Any:
    from torch import nn

    return on.weights(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4), nn.Linear(4, 1)))


def _trained_by(on: Any, *optimizers: Any) -> None:
    """Steps of each optimizer with a small network, whose matrices have two dimensions."""
    for make in optimizers:
        net = _net(on)
        x, y = on.randn(16, 4), on.randn(16, 1)
        chosen = make(net.parameters())
        on.train(net, lambda n=net, x=x, y=y: ((n(x) - y) ** 2).mean(), steps=5, optimizer=chosen)


@package("adabelief_pytorch", "colorama", "tabulate")
def _adabelief(on: Any) -> None:
    """AdaBelief with and without rectification, decoupled decay and AMSGrad"""
    from adabelief_pytorch import AdaBelief

    settings: list[dict[str, Any]] = [
        {},
        {"rectify": False, "weight_decay": 0.1},
        {"amsgrad": True, "weight_decouple": False, "weight_decay": 0.1},
    ]
    _trained_by(
        on,
        *[lambda p, s=s: AdaBelief(p, lr=1e-2, print_change_log=False, **s) for s in settings],
    )


@package("came_pytorch")
def _came(on: Any) -> None:
    """CAME, whose second moments are factors"""
    from came_pytorch import CAME

    _trained_by(on, lambda p: CAME(p, lr=1e-2, weight_decay=0.1, betas=(0.9, 0.99, 0.999)))


@package("heavyball")
def _heavyball(on: Any) -> None:
    """AdamW, schedule-free AdamW, LaProp and SOAP"""
    import heavyball

    heavyball.utils.compile_mode = None
    _trained_by(
        on,
        lambda p: heavyball.AdamW(p, lr=1e-2),
        lambda p: heavyball.SFAdamW(p, lr=1e-2),
        lambda p: heavyball.LaProp(p, lr=1e-2),
        # its first steps divide rounding by itself where eps is small: see pytorch_optimizer's SOAP
        lambda p: heavyball.SOAP(p, lr=1e-2, eps=0.1),
    )


@package("torch_struct")
def _torch_struct(on: Any) -> None:
    """linear and semi-Markov chains, hidden Markov models, dependency and constituency trees"""
    import torch
    import torch_struct as ts
    from torch import nn

    chain, tree = on.randn(2, 5, 3, 3), on.randn(2, 5, 5)
    semi = on.randn(2, 5, 3, 3, 3)
    spans = on.randn(2, 5, 5, 4)
    hidden, seen = (
        [on.randn(3, 3), on.randn(4, 3), on.randn(3)],
        torch.tensor([[0, 2, 3], [1, 1, 0]]),
    )
    scale = nn.Parameter(torch.tensor([0.5, 0.7, 0.9, 1.1, 1.3]))
    lengths = torch.tensor([6, 4])

    def loss() -> Any:
        chains = ts.LinearChainCRF(chain * scale[0], lengths=lengths)
        trees = ts.DependencyCRF(tree * scale[1])
        hmm = ts.LinearChainCRF(
            ts.LinearChain.hmm(*[(h * scale[2]).log_softmax(-1) for h in hidden], seen)
        )
        semis = ts.SemiMarkovCRF(semi * scale[3])
        cky = ts.TreeCRF(spans * scale[4])
        every = [chains, trees, hmm, semis, cky]
        on.keep(*[d.argmax for d in every], *[d.marginals for d in every[:2]])
        on.keep(chains.entropy, ts.LinearChainCRF(chain).kl(chains))
        return sum((d.partition.sum() + d.marginals.pow(2).sum()) for d in every)

    on.train([scale], loss)


@package("pytorch_tcn")
def _pytorch_tcn(on: Any) -> None:
    """temporal convolutions: causal or not, gated by embeddings, normed, with skips; streaming"""
    import torch
    from pytorch_tcn import TCN

    x, e = on.randn(2, 3, 20).double(), on.randn(2, 5, 20).double()
    settings: list[dict[str, Any]] = [
        {"use_norm": "weight_norm", "use_skip_connections": True},
        {"causal": False, "use_norm": "batch_norm", "activation": "gelu"},
        {"use_norm": "layer_norm", "use_gate": True, "embedding_shapes": [(5, None)]},
    ]
    for s in settings:
        net = on.weights(TCN(3, [4, 4, 6], kernel_size=3, dropout=0.0, **s)).double()
        gate = {"embeddings": e} if "embedding_shapes" in s else {}
        on.train(net, lambda n=net, g=gate: n(x, **g).pow(2).mean())
    net = on.weights(TCN(3, [4, 4], dropout=0.0)).double().eval()
    net.reset_buffers()
    with torch.no_grad():
        on.keep(*[net(x[:1, :, i : i + 5], inference=True) for i in range(0, 20, 5)])


@package("julius")
def _julius(on: Any) -> None:
    """low, high and band-pass filters, bands, convolution by FFT, resampling, with gradients"""
    import julius
    import torch

    x = on.randn(2, 400)
    w = on.randn(3, 2, 65)

    def loss() -> Any:
        parts = [
            julius.lowpass_filter(x, 0.1),
            julius.highpass_filter(x, 0.2, fft=True),
            julius.bandpass_filter(x, 0.1, 0.3),
            julius.split_bands(x, 1000, n_bands=4),
            julius.resample_frac(x, 4, 5),
            julius.fft_conv1d(x[None], w, stride=3),
        ]
        return sum(p.pow(2).mean() for p in parts)

    x.requires_grad_()
    w.requires_grad_()
    on.train([x, w], loss, optimizer=torch.optim.SGD([x, w], lr=1.0))


@package("torch_audiomentations", "julius", "torch_pitch_shift", "primePy", "torchaudio")
def _torch_audiomentations(on: Any) -> None:
    """gain, polarity, filters and peaks of audio; torchaudio without its compiled operators"""
    from torch_audiomentations import (
        Compose,
        Gain,
        HighPassFilter,
        LowPassFilter,
        PeakNormalization,
        PolarityInversion,
        TimeInversion,
    )

    every: Any = {"p": 1.0, "output_type": "tensor", "sample_rate": 8000}
    steps = Compose(
        [
            Gain(min_gain_in_db=-3.00001, max_gain_in_db=-3.0, **every),
            PolarityInversion(**every),
            TimeInversion(**every),
            LowPassFilter(min_cutoff_freq=1130.0, max_cutoff_freq=1130.001, **every),
            HighPassFilter(min_cutoff_freq=100.0, max_cutoff_freq=100.001, **every),
            PeakNormalization(**every),
        ],
        output_type="tensor",
    )
    on.keep(steps(on.randn(2, 1, 800), sample_rate=8000))


@package("pytorch_wavelets", "PyWavelets")
def _pytorch_wavelets(on: Any) -> None:
    """wavelet transforms of images and signals, dual-tree too, inverses, scattering, gradients"""
    import pytorch_wavelets as pw

    x, s = on.randn(2, 3, 16, 16).requires_grad_(), on.randn(2, 3, 32).requires_grad_()
    forward, back = pw.DWTForward(J=2, wave="db3", mode="symmetric"), pw.DWTInverse(wave="db3")
    dual, undual = pw.DTCWTForward(J=2), pw.DTCWTInverse()
    line, unline = pw.DWT1DForward(J=2, wave="db2"), pw.DWT1DInverse(wave="db2")
    scatter = pw.ScatLayer()

    def loss() -> Any:
        low, high = forward(x)
        again = back((low, [h * 0.5 for h in high]))
        dl, dh = dual(x)
        dagain = undual((dl, [h * 0.5 for h in dh]))
        ll, lh = line(s)
        lagain = unline((ll.tanh(), lh))
        on.keep(low, *high, dl, *dh, ll, *lh)
        return sum(t.pow(2).mean() for t in (again, dagain, lagain, scatter(x)))

    on.train([x, s], loss)


@package("torchensemble", "joblib", "scikit-learn")
def _torchensemble(on: Any) -> None:
    """voting, fusion and snapshot ensembles of small networks, fitted without shuffling"""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    from torchensemble import FusionRegressor, SnapshotEnsembleRegressor, VotingRegressor

    data = DataLoader(TensorDataset(on.randn(12, 4), on.randn(12, 1)), batch_size=4)

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))
            again = np.random.default_rng(3)
            with torch.no_grad():
                for p in self.parameters():
                    p.copy_(torch.from_numpy(again.standard_normal(p.shape).astype("float32")))

        def forward(self, x: Any) -> Any:
            return self.net(x)

    for kind in (FusionRegressor, VotingRegressor, SnapshotEnsembleRegressor):
        model = kind(
            Small, n_estimators=2, cuda=False, **({"n_jobs": 1} if "Vot" in str(kind) else {})
        )
        model.set_optimizer("Adam", lr=1e-2)
        model.fit(data, epochs=2, save_model=False)
        on.keep(model.evaluate(data) * torch.ones(()), *model.parameters())


@package("efficientnet_pytorch")
def _efficientnet(on: Any) -> None:
    """EfficientNet-B0 of one image in training, in float64"""
    from efficientnet_pytorch import EfficientNet

    net = EfficientNet.from_name("efficientnet-b0", drop_connect_rate=0.0, dropout_rate=0.0)
    net = on.weights(net, 0.1).double().train()
    x = on.randn(2, 3, 64, 64).double()
    on.train(net, lambda: net(x).pow(2).mean(), steps=2)


@package("tabm", "rtdl-num-embeddings")
def _tabm(on: Any) -> None:
    """TabM, TabM-mini and packed ensembles over numbers and categories"""
    import rtdl_num_embeddings as rne
    import torch
    from tabm import TabM

    x, c = on.randn(6, 4), torch.tensor([[0, 1], [2, 0], [1, 1], [0, 0], [2, 1], [1, 0]])
    bins = rne.compute_bins(on.randn(40, 4), n_bins=5)
    for kind in ("tabm", "tabm-mini", "tabm-packed"):
        net = TabM.make(
            n_num_features=4,
            cat_cardinalities=[3, 2],
            d_out=2,
            num_embeddings=rne.PiecewiseLinearEmbeddings(
                bins, d_embedding=3, activation=False, version="B"
            ),
            arch_type=kind,
            k=3,
            dropout=0.0,
            n_blocks=2,
            d_block=8,
        )
        on.weights(net)
        on.train(net, lambda n=net: n(x, c).pow(2).mean())


@package("rtdl_revisiting_models")
def _rtdl_revisiting_models(on: Any) -> None:
    """MLP, ResNet and FT-Transformer over numbers and categories"""
    import torch
    from rtdl_revisiting_models import MLP, FTTransformer, ResNet

    x, c = on.randn(6, 4).double(), torch.tensor([[0, 1], [2, 0], [1, 1], [0, 0], [2, 1], [1, 0]])
    mlp = on.weights(MLP(d_in=4, d_out=2, n_blocks=2, d_block=8, dropout=0.0)).double()
    on.train(mlp, lambda: mlp(x).pow(2).mean())
    res = ResNet(
        d_in=4,
        d_out=2,
        n_blocks=2,
        d_block=8,
        d_hidden=None,
        d_hidden_multiplier=2.0,
        dropout1=0.0,
        dropout2=0.0,
    )
    on.weights(res).double()
    on.train(res, lambda: res(x).pow(2).mean())
    settings = FTTransformer.get_default_kwargs(n_blocks=1)
    settings |= {"attention_dropout": 0.0, "ffn_dropout": 0.0, "residual_dropout": 0.0}
    ft = on.weights(
        FTTransformer(n_cont_features=4, cat_cardinalities=[3, 2], d_out=2, **settings), 0.05
    ).double()
    on.train(ft, lambda: ft(x, c).pow(2).mean(), optimizer=ft.make_default_optimizer())


@package("rtdl_num_embeddings", "scikit-learn")
def _rtdl_num_embeddings(on: Any) -> None:
    """linear, periodic and piecewise linear embeddings of numbers, with their bins"""
    import rtdl_num_embeddings as rne
    from torch import nn

    x, many = on.randn(6, 4), on.randn(50, 4)
    bins = rne.compute_bins(many, n_bins=6)
    targets = rne.compute_bins(
        many, tree_kwargs={"min_samples_leaf": 5}, y=many[:, 0] * 2, regression=True, n_bins=4
    )
    on.keep(*bins, *targets)
    for layer in (
        rne.LinearEmbeddings(4, 3),
        rne.LinearReLUEmbeddings(4, 3),
        rne.PeriodicEmbeddings(4, 3, lite=False),
        rne.PeriodicEmbeddings(4, 3, lite=True),
        rne.PiecewiseLinearEmbeddings(bins, 3, activation=True, version="A"),
        rne.PiecewiseLinearEmbeddings(targets, 3, activation=False, version="B"),
    ):
        net = on.weights(nn.Sequential(layer, nn.Flatten(), nn.Linear(12, 1)))
        on.train(net, lambda n=net: n(x).pow(2).mean())
    on.keep(rne.PiecewiseLinearEncoding(bins)(x))


@package("torch_dct")
def _torch_dct(on: Any) -> None:
    """cosine transforms of kinds I to IV in one, two and three dimensions, with gradients"""
    import torch_dct as dct

    x = on.randn(2, 6, 8).requires_grad_()

    def loss() -> Any:
        parts = [
            dct.dct1(x),
            dct.idct1(x),
            dct.dct(x),
            dct.dct(x, norm="ortho"),
            dct.idct(x),
            dct.dct_2d(x),
            dct.idct_2d(x, norm="ortho"),
            dct.dct_3d(x),
            dct.idct_3d(x),
        ]
        on.keep(*parts)
        return sum(p.tanh().pow(2).mean() for p in parts)

    on.train([x], loss)


@package("torch_kmeans")
def _torch_kmeans(on: Any) -> None:
    """k-means and soft k-means of batches from given centers"""
    import torch
    from torch_kmeans import KMeans, SoftKMeans

    x = on.randn(2, 30, 3)
    found = KMeans(n_clusters=4, init_method="rnd", num_init=1, verbose=False)
    result = found(x, k=4, centers=x[:, None, :4])
    on.keep(result.labels, result.centers, result.inertia)
    w = torch.nn.Parameter(on.randn(3, 3))
    soft = SoftKMeans(n_clusters=4, num_init=1, verbose=False, init_method="rnd")
    on.train([w], lambda: soft(x @ w, k=4, centers=(x @ w)[:, None, :4]).inertia.sum())


@package("xitorch")
def _xitorch(on: Any) -> None:
    """gradients of linear systems, eigenvectors, roots, equilibria, minima, quadrature and ODE"""
    import torch
    import xitorch
    from xitorch.integrate import quad, solve_ivp
    from xitorch.interpolate import Interp1D
    from xitorch.linalg import solve, svd, symeig
    from xitorch.optimize import equilibrium, minimize, rootfinder

    a = (on.randn(4, 4).double() * 0.3).requires_grad_()
    b = on.randn(4, 1).double().requires_grad_()

    def field(y: Any, a: Any) -> Any:
        return torch.tanh(a @ y + 0.1) + y / 2.0

    def squares(y: Any, a: Any, b: Any) -> Any:
        return ((a @ y - b) ** 2).sum() + (y**4).sum()

    def flow(t: Any, y: Any, a: Any) -> Any:
        return torch.tanh(a @ y) * t

    def loss() -> Any:
        spd = xitorch.LinearOperator.m(a @ a.mT + torch.eye(4, dtype=a.dtype), is_hermitian=True)
        x = solve(spd, b)
        values, _ = symeig(spd, 2, "lowest", method="exacteig")
        singular = svd(xitorch.LinearOperator.m(a), 2)[1]
        y0 = torch.zeros_like(b)
        root = rootfinder(field, y0, params=(a,))
        fixed = equilibrium(lambda y, a, b: torch.tanh(a @ y) * 0.5 + b, y0, params=(a, b))
        low = minimize(squares, y0, params=(a, b), method="gd", maxiter=300, step=1e-2)
        area = quad(
            lambda t, a: torch.exp(-(t**2)) * a.sum().tanh(),
            0 * b.sum(),
            1 + 0 * b.sum(),
            params=(a,),
        )
        ts = torch.linspace(0.0, 1.0, 5, dtype=a.dtype)
        path = solve_ivp(flow, ts, b, params=(a,), method="rk4")
        line = Interp1D(ts, b.sum() * ts**2, method="cspline")(ts[1:] - 0.05)
        parts = [x, values, singular, root, fixed, low, area, path, line]
        on.keep(*parts)
        return sum(p.pow(2).sum() for p in parts)

    on.train([a, b], loss, steps=2)


@package("pytorch_minimize")
def _pytorch_minimize(on: Any) -> None:
    """BFGS, L-BFGS, CG, Newton's, trust-ncg, trust-exact, least squares"""
    import torch
    from torchmin import Minimizer, least_squares, minimize, minimize_constr

    def rosen(x: Any) -> Any:
        return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()

    x0 = torch.tensor([1.3, 0.7, 0.8, 1.9], dtype=torch.float64)
    for method in (
        *("bfgs", "l-bfgs", "cg", "newton-cg", "newton-exact"),
        *("trust-ncg", "trust-exact"),  # the last reads unfinished factors
    ):
        found = minimize(rosen, x0, method=method, max_iter=12)
        on.keep(found.x, found.fun, found.nit * torch.ones(()))
    t = torch.linspace(0, 1, 10, dtype=torch.float64)
    y = torch.exp(-1.3 * t) + 0.5
    fit = least_squares(lambda p: p[1] + torch.exp(-p[0] * t) - y, x0[:2], max_nfev=20)
    on.keep(fit.x, fit.cost)
    on.keep(
        minimize_constr(
            rosen, x0, bounds=(torch.zeros_like(x0), torch.full_like(x0, 0.9)), max_iter=20
        ).x
    )
    w = torch.nn.Parameter(x0.clone())
    optimizer = Minimizer([w], method="bfgs", max_iter=10)

    def closure() -> Any:
        optimizer.zero_grad()
        return rosen(w)

    on.keep(optimizer.step(closure), w)


@package("torchdeq")
def _torchdeq(on: Any) -> None:
    """equilibria by Anderson, Broyden and fixed points; implicit and unrolled gradients"""
    import torch
    from torch import nn
    from torchdeq import get_deq

    x = on.randn(5, 4)
    settings: list[dict[str, Any]] = [
        {"f_solver": "anderson", "b_solver": "anderson", "ift": True},
        {"f_solver": "broyden", "b_solver": "broyden", "ift": True},
        {"f_solver": "fixed_point_iter", "grad": 3},
        {"f_solver": "fixed_point_iter", "ift": True, "core": "sliced"},
        {"f_solver": "simple_fixed_point_iter", "grad": 5, "tau": 0.8},
    ]
    for s in settings:
        inner = on.weights(nn.Linear(4, 4), 0.2)
        deq = get_deq(f_max_iter=25, b_max_iter=25, f_tol=1e-6, b_tol=1e-6, **s)

        def loss(inner: Any = inner, deq: Any = deq) -> Any:
            z, info = deq(lambda z: torch.tanh(inner(z) + x), torch.zeros_like(x))
            return z[-1].pow(2).mean()

        on.train(inner, loss)


@package("mup", "seaborn", "pandas", "tqdm")
def _mup(on: Any) -> None:
    """widths of a base shape, readout layers, and SGD, Adam and AdamW scaled by width"""
    import torch
    from mup import MuAdam, MuAdamW, MuReadout, MuSGD, set_base_shapes
    from torch import nn

    def make(width: int) -> Any:
        return nn.Sequential(
            nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.Tanh(), MuReadout(width, 2)
        )

    x = on.randn(6, 4)
    for kind in (MuSGD, MuAdam, MuAdamW):
        net = make(16)
        set_base_shapes(net, make(4), delta=make(8))
        on.weights(net)
        on.train(net, lambda n=net: n(x).pow(2).mean(), optimizer=kind(net.parameters(), lr=1e-2))
    assert torch.is_tensor(x)


@package("linformer")
def _linformer(on: Any) -> None:
    """attention over keys and values projected along the sequence, and a language model"""
    import torch
    from linformer import Linformer, LinformerLM

    net = on.weights(Linformer(dim=8, seq_len=10, depth=2, heads=2, k=4, share_kv=True)).double()
    x = on.randn(2, 10, 8).double()
    on.train(net, lambda: net(x).pow(2).mean())
    lm = on.weights(LinformerLM(num_tokens=7, dim=8, seq_len=10, depth=1, heads=2, k=4)).double()
    tokens = torch.arange(20).reshape(2, 10) % 7
    on.train(lm, lambda: torch.nn.functional.cross_entropy(lm(tokens).mT, tokens))


@package("g_mlp_pytorch", "einops")
def _g_mlp(on: Any) -> None:
    """gated multilayer perceptrons, causal with attention too, of tokens and of images"""
    import torch
    from g_mlp_pytorch import gMLP, gMLPVision

    net = gMLP(num_tokens=7, dim=8, depth=2, seq_len=10, causal=True, attn_dim=4)
    on.weights(net).double()
    tokens = torch.arange(20).reshape(2, 10) % 7
    on.train(net, lambda: torch.nn.functional.cross_entropy(net(tokens).mT, tokens))
    image = gMLPVision(image_size=8, patch_size=4, num_classes=3, dim=8, depth=2)
    on.weights(image).double()
    x = on.randn(2, 3, 8, 8).double()
    on.train(image, lambda: image(x).pow(2).mean())


@package("mixture_of_experts")
def _mixture_of_experts(on: Any) -> None:
    """two experts of each token, with a capacity and a balancing loss; in two levels too"""
    from mixture_of_experts import HeirarchicalMoE, MoE

    settings: Any = {"second_policy_train": "all", "capacity_factor_train": 2.0}
    x = on.randn(2, 8, 6).double()
    for net in (
        MoE(6, num_experts=4, **settings),
        HeirarchicalMoE(6, num_experts=(2, 2), **settings),
    ):
        on.weights(net).double()

        def loss(net: Any = net) -> Any:
            y, balance = net(x)
            return y.pow(2).mean() + balance

        on.train(net, loss)


@package("adam_atan2_pytorch")
def _adam_atan2(on: Any) -> None:
    """Adam and Adopt with the arctangent of the step, and Muon beside it"""
    from adam_atan2_pytorch import AdamAtan2, AdoptAtan2, MuonAdamAtan2

    _trained_by(
        on,
        lambda p: AdamAtan2(p, lr=1e-2, weight_decay=0.1),
        lambda p: AdoptAtan2(p, lr=1e-2, cautious_factor=0.5),
        lambda p: (lambda w: MuonAdamAtan2([x for x in w if x.ndim == 2], w, lr=1e-2))(list(p)),
    )


@package("memory_efficient_attention_pytorch", "einops")
def _memory_efficient_attention(on: Any) -> None:
    """attention by blocks with checkpoints, by cosines, and a flash attention written in Python"""
    import torch
    from memory_efficient_attention_pytorch import Attention, CosineSimAttention, FlashAttention

    x = on.randn(2, 12, 8).double()
    mask = torch.arange(12)[None] < torch.tensor([[12], [7]])
    nets = [
        Attention(
            dim=8,
            dim_head=4,
            heads=2,
            causal=True,
            memory_efficient=True,
            q_bucket_size=4,
            k_bucket_size=4,
        ),
        CosineSimAttention(
            dim=8,
            seq_len=12,
            dim_head=4,
            heads=2,
            causal=True,
            memory_efficient=True,
            q_bucket_size=4,
            k_bucket_size=4,
        ),
    ]
    for net in nets:
        on.weights(net).double()
        on.train(net, lambda n=net: n(x, mask=mask).pow(2).mean())
    flash = on.weights(FlashAttention(dim=8, dim_head=4, heads=2, causal=True))
    on.train(flash, lambda: flash(x.float(), q_bucket_size=4, k_bucket_size=4).pow(2).mean())


@package("lambda_networks", "einops")
def _lambda_networks(on: Any) -> None:
    """lambda layers, local and global"""
    from lambda_networks import LambdaLayer

    x = on.randn(2, 4, 6, 6).double()
    for where in ({"n": 6}, {"r": 3}):
        net = on.weights(LambdaLayer(dim=4, dim_out=8, dim_k=4, heads=2, dim_u=1, **where)).double()
        on.train(net, lambda n=net: n(x).pow(2).mean())


@package("pypose")
def _pypose(on: Any) -> None:
    """Lie groups: exponentials, products, actions and their gradients; Gauss-Newton's steps"""
    import pypose as pp
    import torch
    from torch import nn

    a, s = nn.Parameter(on.randn(3, 6).double()), nn.Parameter(on.randn(3, 3).double())
    points = on.randn(3, 3).double()

    def loss() -> Any:
        pose, turn = pp.se3(a).Exp(), pp.so3(s).Exp()
        there = pose.Act(points) + turn.Act(points)
        again = (pose.Inv() @ pp.se3(0.5 * a).Exp()).Log().tensor()
        return there.pow(2).mean() + again.sin().sum() + turn.matrix().pow(3).sum()

    on.train([a, s], loss)

    class Pose(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pose = pp.Parameter(pp.se3(0.3 * a.detach()).Exp())

        def forward(self, x: Any) -> Any:
            return (self.pose.Inv() @ x).Log().tensor()

    net = Pose()
    optimizer = pp.optim.LM(net, strategy=pp.optim.strategy.Constant(damping=1e-3))
    target = pp.se3(on.randn(3, 6).double() * 0.1).Exp()
    on.keep(*[optimizer.step(target) for _ in range(3)], torch.as_tensor(net.pose.tensor()))


@package("diffsort")
def _diffsort(on: Any) -> None:
    """sorting networks, odd-even and bitonic, with relaxed swaps of six kinds"""
    from diffsort import DiffSortNet

    x = on.randn(3, 8).double().requires_grad_()
    for kind in ("odd_even", "bitonic"):
        for swap in ("logistic", "logistic_phi", "cauchy", "reciprocal", "optimal", "gaussian"):
            net = DiffSortNet(kind, 8, steepness=3, distribution=swap)

            def loss(net: Any = net) -> Any:
                ordered, swaps = net(x)
                return (ordered * ordered.new_tensor(range(8))).sum() + swaps.pow(2).sum()

            on.train([x], loss, steps=1)


@package("TorchCRF")
def _torchcrf(on: Any) -> None:
    """a conditional random field with a mask, and the best tags"""
    import torch
    from TorchCRF import CRF

    net = on.weights(CRF(4, use_gpu=False))
    scores = on.randn(3, 5, 4)
    tags = torch.arange(15).reshape(3, 5) % 4
    mask = torch.arange(5)[None] < torch.tensor([[5], [3], [4]])
    on.train(net, lambda: -net(scores, tags, mask).mean())
    on.keep(*[torch.tensor(t) for t in net.viterbi_decode(scores, mask)])


@package("torchsurv", "torchmetrics", "lightning_utilities")
def _torchsurv(on: Any) -> None:
    """Cox's partial likelihood with ties by Efron and Breslow, Weibull's, concordance and AUC"""
    import torch
    from torchsurv.loss import cox, weibull
    from torchsurv.metrics.cindex import ConcordanceIndex

    net = on.weights(torch.nn.Linear(4, 1, bias=False)).double()
    x = on.randn(10, 4).double()
    event = torch.tensor([1, 0, 1, 1, 0, 1, 1, 1, 0, 1]).bool()
    time = torch.tensor([3.0, 1, 2, 2, 4, 5, 5, 6, 2, 7]).double()
    for ties in ("efron", "breslow"):
        on.train(
            net, lambda t=ties: cox.neg_partial_log_likelihood(net(x), event, time, ties_method=t)
        )
    wide = on.weights(torch.nn.Linear(4, 2)).double()
    on.train(wide, lambda: weibull.neg_log_likelihood_weibull(wide(x), event, time))
    on.keep(ConcordanceIndex()(net(x).squeeze(), event, time))


@package("bayesian-torch")
def _bayesian_torch(on: Any) -> None:
    """layers by reparameterization whose noise is zero, with their divergence"""
    import torch
    from bayesian_torch.layers import Conv2dReparameterization, LinearReparameterization
    from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss

    x, image = on.randn(6, 4), on.randn(2, 3, 6, 6)
    for net, seen in (
        (LinearReparameterization(4, 3), x),
        (Conv2dReparameterization(3, 4, 3), image),
    ):
        on.weights(net)
        for name, noise in net.named_buffers():
            if name.startswith("eps"):
                noise.normal_ = noise.zero_  # every call draws again
                noise.data.normal_ = noise.zero_

        def loss(net: Any = net, seen: Any = seen) -> Any:
            return net.kl_loss() + 0 * seen.sum()

        on.train(net, loss)
    plain = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    dnn_to_bnn(
        plain,
        {
            "prior_mu": 0.0,
            "prior_sigma": 1.0,
            "posterior_mu_init": 0.0,
            "posterior_rho_init": -3.0,
            "type": "Flipout",
            "moped_enable": False,
        },
    )
    on.weights(plain)
    on.train(plain, lambda: get_kl_loss(plain))


@package("info_nce_pytorch")
def _info_nce(on: Any) -> None:
    """InfoNCE without negatives, with paired and with unpaired ones"""
    import torch
    from info_nce import InfoNCE

    net = on.weights(torch.nn.Linear(5, 4))
    q, p, n, m = on.randn(6, 5), on.randn(6, 5), on.randn(7, 5), on.randn(6, 3, 5)

    def loss() -> Any:
        a, b = net(q), net(p)
        paired = InfoNCE(negative_mode="paired", reduction="sum")
        return InfoNCE()(a, b) + InfoNCE()(a, b, net(n)) + paired(a, b, net(m))

    on.train(net, loss)


@package(
    "asteroid",
    "asteroid-filterbanks",
    "pytorch-lightning",
    "torchmetrics",
    "julius",
    "pb-bss-eval",
    "soundfile",
)
def _asteroid(on: Any) -> None:
    """ConvTasNet and DPRNN-TasNet with permutation-invariant SI-SDR"""
    from asteroid.losses import PITLossWrapper, pairwise_neg_sisdr
    from asteroid.models import ConvTasNet, DPRNNTasNet

    mixed, sources = on.randn(2, 400).double(), on.randn(2, 2, 400).double()
    measure = PITLossWrapper(pairwise_neg_sisdr, pit_from="pw_mtx")
    small: Any = {"n_filters": 8, "bn_chan": 4, "hid_size": 4, "n_repeats": 1}
    nets = [
        ConvTasNet(2, n_blocks=2, hid_chan=6, skip_chan=4, n_filters=8, bn_chan=4, n_repeats=1),
        DPRNNTasNet(2, chunk_size=10, **small),
    ]
    for net in nets:
        on.weights(net).double()
        on.train(net, lambda n=net: measure(n(mixed), sources), steps=2)


@package("encodec", "torchaudio", "einops")
def _encodec(on: Any) -> None:
    """EnCodec's encoder, decoder and codes; torchaudio without its compiled operators"""
    import torch
    from encodec.modules import SEANetDecoder, SEANetEncoder
    from encodec.quantization import ResidualVectorQuantizer

    x = on.randn(2, 1, 320).double()
    for causal in (True, False):
        settings: Any = {
            "dimension": 8,
            "n_filters": 4,
            "ratios": [4, 2],
            "lstm": 1,
            "causal": causal,
        }
        net = torch.nn.Sequential(SEANetEncoder(**settings), SEANetDecoder(**settings))
        on.weights(net).double()
        on.train(net, lambda n=net: (n(x) - x).pow(2).mean())
    quantizer = on.same_buffers(ResidualVectorQuantizer(dimension=8, n_q=2, bins=16)).eval()
    for part in quantizer.vq.layers:
        part._codebook.inited.fill_(1)
    codes = quantizer.encode(on.randn(2, 8, 5), 50, 1.0)
    on.keep(codes, quantizer.decode(codes))


@package("slot_attention", "einops", "vector_quantize_pytorch", "einx", "frozendict")
def _slot_attention(on: Any) -> None:
    """slots from given noise, with one head and several"""
    import torch
    from slot_attention import MultiHeadSlotAttention, SlotAttention

    x = on.randn(2, 9, 8).double()
    for net in (SlotAttention(3, 8), MultiHeadSlotAttention(3, 8, heads=2, dim_head=4)):
        on.weights(net).double()
        with torch.no_grad():
            for name, p in net.named_parameters():
                if "sigma" in name:
                    p.fill_(-60.0)  # no noise
        chosen = [p for n, p in net.named_parameters() if "sigma" not in n]
        on.train(
            chosen, lambda n=net: n(x).pow(2).mean(), optimizer=torch.optim.SGD(chosen, lr=1e-2)
        )


@package("torch_lr_finder", "tqdm", "packaging", "matplotlib")
def _torch_lr_finder(on: Any) -> None:
    """a range test of learning rates, the weights restored after it"""
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    from torch_lr_finder import LRFinder

    net = _net(on)
    data = DataLoader(TensorDataset(on.randn(16, 4), on.randn(16, 1)), batch_size=4)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    finder = LRFinder(net, optimizer, torch.nn.MSELoss(), device="cpu")
    finder.range_test(data, end_lr=1.0, num_iter=12)
    on.keep(torch.tensor(finder.history["loss"]), torch.tensor(finder.history["lr"]))
    finder.reset()
    on.keep(*net.parameters())


@package("poutyne", "torchmetrics", "torchvision")
def _poutyne(on: Any) -> None:
    """Model.fit with a schedule, clipped gradients, early stopping, metrics and evaluation"""
    import torch
    from poutyne import ClipNorm, EarlyStopping, ExponentialLR, Model

    net = _net(on)
    x, y = on.randn(16, 4), on.randn(16, 1)
    model = Model(net, torch.optim.Adam(net.parameters(), lr=1e-2), "mse", batch_metrics=["l1"])
    calls = [ExponentialLR(gamma=0.5), ClipNorm(net.parameters(), 1.0), EarlyStopping(patience=5)]
    logs = model.fit(
        x,
        y,
        validation_data=(x, y),
        epochs=4,
        batch_size=4,
        callbacks=calls,
        verbose=False,
        dataloader_kwargs={"shuffle": False},
    )
    on.keep(
        torch.tensor([[r["loss"], r["val_loss"], r["val_l1"]] for r in logs]), *net.parameters()
    )
    on.keep(torch.tensor(model.evaluate(x, y, verbose=False)))


@package("litgpt", "lightning", "lightning_utilities", "jsonargparse", "psutil", "torchmetrics")
def _litgpt(on: Any) -> None:
    """small Pythia, Llama and Gemma models with their losses, and a cache of keys and values"""
    import torch
    from litgpt.config import Config
    from litgpt.model import GPT
    from litgpt.utils import chunked_cross_entropy

    small = {
        "block_size": 16,
        "n_layer": 2,
        "n_head": 4,
        "n_embd": 16,
        "vocab_size": 20,
        "padded_vocab_size": 24,
    }
    llama = {
        "norm_class_name": "RMSNorm",
        "mlp_class_name": "LLaMAMLP",
        "intermediate_size": 32,
        "rotary_percentage": 1.0,
        "n_query_groups": 2,
        "bias": False,
        "parallel_residual": False,
    }
    tokens = torch.arange(24).reshape(2, 12) * 7 % 20
    for more in ({}, llama, llama | {"mlp_class_name": "GemmaMLP", "sliding_window_size": 4}):
        net = on.weights(GPT(Config(**small, **more)), 0.2)

        def loss(net: Any = net) -> Any:
            return chunked_cross_entropy(net(tokens[:, :-1]), tokens[:, 1:], chunk_size=8)

        on.train(net, loss)
    with torch.no_grad():
        net.set_kv_cache(batch_size=2)
        on.keep(net(tokens[:, :4], torch.arange(4)), net(tokens[:, 4:5], torch.tensor([4])))


@package("torchview", "graphviz")
def _torchview(on: Any) -> None:
    """graphs of a convolutional and a plain network: their edges, and shapes"""
    import torch
    from torch import nn
    from torchview import draw_graph

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3, padding=1)
            self.head = nn.Linear(3, 2)

        def forward(self, x: Any) -> Any:
            x = x + torch.relu(self.conv(x))
            return self.head(x.mean((2, 3)))

    for net, seen in (
        (Residual(), on.randn(1, 3, 6, 6)),
        (nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)), on.randn(2, 4)),
    ):
        for depth in (1, 3):
            graph = draw_graph(net, input_data=seen, depth=depth, hide_module_functions=False)
            text = "".join(graph.visual_graph.body)
            on.keep(torch.tensor([len(graph.edge_list), *text.encode()]))


@package("trl", "transformers", "accelerate", "datasets", "huggingface-hub")
def _trl(on: Any) -> None:
    """log-probabilities and entropies of chosen tokens, with a preference loss; padding"""
    import torch
    from torch.nn import functional
    from trl.trainer import utils

    weight = torch.nn.Parameter(on.randn(8, 11))
    x = on.randn(4, 6, 8)
    tokens = torch.arange(24).reshape(4, 6) * 5 % 11
    mask = torch.tensor([[0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0], [1] * 6])

    def loss() -> Any:
        logits = x @ weight
        logp = (utils.selective_log_softmax(logits, tokens) * mask).sum(1)
        both, entropy = utils.selective_log_softmax_and_entropy(logits, tokens)
        better, worse = logp.chunk(2)
        preference = -functional.logsigmoid(0.1 * (better - worse)).mean()
        return preference + 0.01 * entropy.mean() + 0.1 * both.exp().mean()

    on.train([weight], loss)
    on.keep(utils.entropy_from_logits(x @ weight, chunk_size=5))
    on.keep(*utils.flush_left(mask, tokens))
    holes = torch.where(mask == 0, torch.nan, x[..., 0])
    on.keep(utils.nanmin(holes), utils.nanmax(holes), utils.nanstd(holes))
    on.keep(utils.pad([tokens[0, :3], tokens[1]], -1, "left", 4))


@package("fair-esm")
def _esm(on: Any) -> None:
    """a small ESM-2 protein language model: masked tokens, representations and contacts"""
    import torch
    from esm import ESM2
    from torch.nn import functional

    net = on.weights(ESM2(num_layers=2, embed_dim=16, attention_heads=4), 0.2)
    tokens = torch.tensor([[0, 5, 7, 32, 9, 4, 12, 2], [0, 11, 6, 5, 32, 2, 1, 1]])

    def loss() -> Any:
        made = net(tokens, repr_layers=[1, 2])
        by_token = functional.cross_entropy(made["logits"].flatten(0, 1), tokens.flatten())
        return by_token + made["representations"][1].pow(2).mean()

    on.train(net, loss)
    with torch.no_grad():
        on.keep(net(tokens[:1], return_contacts=True)["contacts"])


@package("torchcam")
def _torchcam(on: Any) -> None:
    """class activation maps: GradCAM, its relatives, ScoreCAM and ISCAM"""
    from torch import nn
    from torchcam import methods

    net = nn.Sequential(
        nn.Conv2d(3, 6, 3),
        nn.ReLU(),
        nn.Conv2d(6, 8, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    )
    on.weights(net, 0.5).eval()
    x = on.randn(2, 3, 10, 10)
    for name in ("CAM", "GradCAM", "GradCAMpp", "LayerCAM", "XGradCAM", "ScoreCAM", "ISCAM"):
        more = {"fc_layer": "6"} if name == "CAM" else {}
        with getattr(methods, name)(net, target_layer="3", input_shape=(3, 10, 10), **more) as cam:
            on.keep(*cam([1, 2], net(x.clone().requires_grad_())))


@package("hypll")
def _hypll(on: Any) -> None:
    """layers on the Poincare ball: convolution, pooling, linear; Riemannian Adam"""
    from hypll.manifolds.poincare_ball import Curvature, PoincareBall
    from hypll.nn import HConvolution2d, HLinear, HMaxPool2d, HReLU
    from hypll.optim import RiemannianAdam
    from hypll.tensors import TangentTensor
    from torch import nn

    ball = PoincareBall(c=Curvature(requires_grad=True))
    parts = nn.ModuleList(
        [
            HConvolution2d(2, 3, 3, manifold=ball),
            HReLU(manifold=ball),
            HMaxPool2d(2, manifold=ball),
            HLinear(12, 4, manifold=ball),
        ]
    )
    for p in parts.parameters():
        values = getattr(p, "tensor", p)  # points on the ball are no tensors
        values.data.copy_(0.1 * on.randn(*values.shape))
    x = on.randn(2, 2, 6, 6) * 0.2

    def loss() -> Any:
        h = ball.expmap(TangentTensor(data=x, man_dim=1, manifold=ball))
        for part in parts[:3]:
            h = part(h)
        return parts[3](h.flatten(start_dim=1)).tensor.pow(2).sum()

    optimizer = RiemannianAdam(parts.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        on.keep(value, *[getattr(p, "tensor", p).grad for p in parts.parameters()])
        optimizer.step()
    on.keep(*[getattr(p, "tensor", p) for p in parts.parameters()])


@package("segment-anything")
def _segment_anything(on: Any) -> None:
    """a small SAM: image encoder with windows, prompts by points, boxes and masks, mask decoder"""
    import torch
    from segment_anything.modeling import (
        ImageEncoderViT,
        MaskDecoder,
        PromptEncoder,
        TwoWayTransformer,
    )

    encoder = ImageEncoderViT(
        img_size=32,
        patch_size=8,
        embed_dim=16,
        depth=2,
        num_heads=2,
        out_chans=8,
        use_rel_pos=True,
        window_size=3,
        global_attn_indexes=(1,),
    )
    prompts = PromptEncoder(8, (4, 4), (32, 32), 4)
    decoder = MaskDecoder(
        transformer_dim=8,
        transformer=TwoWayTransformer(depth=2, embedding_dim=8, mlp_dim=16, num_heads=2),
        iou_head_hidden_dim=8,
    )
    net = on.weights(torch.nn.ModuleList([encoder, prompts, decoder]), 0.2)
    on.same_buffers(net)
    x = on.randn(1, 3, 32, 32)
    points = torch.tensor([[[3.0, 4.0], [20.0, 9.0]]]), torch.tensor([[1, 0]])
    boxes, masks = torch.tensor([[[2.0, 3.0, 20.0, 21.0]]]), on.randn(1, 1, 16, 16)

    def loss() -> Any:
        sparse, dense = prompts(points=points, boxes=boxes, masks=masks)
        made, quality = decoder(encoder(x), prompts.get_dense_pe(), sparse, dense, True)
        return made.pow(2).mean() + quality.pow(2).mean()

    on.train(net, loss)


@package("pytorchcv")
def _pytorchcv(on: Any) -> None:
    """five networks for small images: ResNet, SE, PreResNet, DIA, NIN"""
    import torch
    from pytorchcv.model_provider import get_model

    x = on.randn(2, 3, 32, 32).double()
    for name in ("resnet20", "seresnet20", "preresnet20", "diaresnet20", "nin"):
        net = on.weights(get_model(f"{name}_cifar10"), 0.1).double()
        for part in net.modules():
            if isinstance(part, torch.nn.Dropout):
                part.p = 0.0
        loss = net(x).pow(2).mean()
        loss.backward()
        gradients = [p.grad.pow(2).sum() for p in net.parameters()]
        on.keep(loss, torch.stack(gradients), *[b for b in net.buffers() if b.is_floating_point()])


@package("smplx")
def _smplx(on: Any) -> None:
    """linear blend skinning of a made-up body: shapes, poses, joints, with gradients"""
    import torch
    from smplx import lbs

    joints, points = 4, 12
    template, shapes = on.randn(points, 3), on.randn(points, 3, 5)
    poses, regressor = on.randn(9 * (joints - 1), points * 3) * 0.1, on.randn(joints, points)
    weights = on.randn(points, joints).softmax(-1)
    parents = torch.tensor([-1, 0, 1, 1])
    betas = torch.nn.Parameter(on.randn(2, 5))
    pose = torch.nn.Parameter(on.randn(2, 3 * joints))

    def loss() -> Any:
        found, where = lbs.lbs(
            betas, pose, template, shapes, poses, regressor.softmax(-1), parents, weights
        )
        return found.pow(2).mean() + where.sin().sum()

    on.train([betas, pose], loss)
    on.keep(lbs.batch_rodrigues(on.randn(5, 3)))


@package("kmeans_pytorch")
def _kmeans_pytorch(on: Any) -> None:
    """clusters and centers by Euclidean and cosine distances, and the nearest of new points"""
    import torch
    from kmeans_pytorch import kmeans, kmeans_predict

    x, new = on.randn(60, 3), on.randn(7, 3)
    for distance in ("euclidean", "cosine"):
        np.random.seed(0)
        chosen, centers = kmeans(x, 4, distance=distance, device=torch.device("cpu"))
        on.keep(chosen, centers)
        on.keep(kmeans_predict(new, centers, distance, torch.device("cpu")))


@package("dynamic_network_architectures")
def _dynamic_network_architectures(on: Any) -> None:
    """nnU-Net's networks: a plain U-Net in 2 dimensions, a residual one in 3, deep supervision"""
    from dynamic_network_architectures.architectures.unet import PlainConvUNet, ResidualEncoderUNet
    from torch import nn

    settings: Any = {"conv_bias": True, "nonlin": nn.LeakyReLU, "deep_supervision": True}
    flat = PlainConvUNet(
        1, 3, (4, 6, 8), nn.Conv2d, 3, (1, 2, 2), 1, 2, 1, norm_op=nn.InstanceNorm2d,
        norm_op_kwargs={"affine": True}, **settings,
    )  # fmt: skip
    deep = ResidualEncoderUNet(
        1, 3, (4, 6, 8), nn.Conv3d, 3, (1, 2, 2), (1, 2, 1), 2, 1, norm_op=nn.InstanceNorm3d,
        norm_op_kwargs={"affine": True}, **settings,
    )  # fmt: skip
    for net, x in ((flat, on.randn(2, 1, 16, 16)), (deep, on.randn(1, 1, 8, 8, 8))):
        on.weights(net.double())
        x = x.double()
        on.train(net, lambda n=net, y=x: sum(part.pow(2).mean() for part in n(y)))


@package("dasp-pytorch")
def _dasp(on: Any) -> None:
    """differentiable gain, distortion, parametric equalizer, compressor and stereo effects"""
    import dasp_pytorch.functional as effects
    import torch

    x = on.randn(2, 1, 512) * 0.1
    rate = 8000.0
    p = torch.nn.Parameter(on.randn(2, 1) * 0.1)

    def equalized() -> Any:
        bands: Any = {}
        for i, kind in enumerate(("low_shelf", "band0", "band1", "band2", "band3", "high_shelf")):
            bands[f"{kind}_gain_db"] = 3 * p.flatten()
            bands[f"{kind}_cutoff_freq"] = 200.0 * (i + 1) + 20 * p.flatten()
            bands[f"{kind}_q_factor"] = 1 + 0.1 * p.flatten()
        return effects.parametric_eq(x, rate, **bands).pow(2).sum()

    def compressed() -> Any:
        one = 1 + 0.1 * p.flatten()
        return effects.compressor(
            x, rate, -20 * one, 4 * one, 5 * one, 50 * one, 6 * one, 2 * one
        ).pow(2).sum()  # fmt: skip

    on.train([p], lambda: effects.gain(x, rate, p).pow(2).sum())
    on.train([p], lambda: effects.distortion(x, rate, p).pow(2).sum())
    on.train([p], equalized)
    on.train([p], compressed)


@package("pfrl", "gym")
def _pfrl(on: Any) -> None:
    """updates of DQN and double DQN from a batch; a Gaussian policy"""
    import torch
    from pfrl import nn as parts
    from pfrl import policies, q_functions
    from pfrl.agents import DQN, DoubleDQN
    from pfrl.explorers import Greedy
    from pfrl.replay_buffers import ReplayBuffer

    rng = np.random.default_rng(0)
    for kind in (DQN, DoubleDQN):
        net = q_functions.FCStateQFunctionWithDiscreteAction(4, 3, 8, 1)
        on.weights(net)
        agent = kind(
            net, torch.optim.Adam(net.parameters(), 1e-2), ReplayBuffer(10**6), 0.9, Greedy(),
            replay_start_size=10**6, minibatch_size=8,
        )  # fmt: skip
        batch = [
            [
                {
                    "state": rng.standard_normal(4).astype(np.float32),
                    "action": int(rng.integers(3)),
                    "reward": float(rng.standard_normal()),
                    "next_state": rng.standard_normal(4).astype(np.float32),
                    "next_action": None,
                    "is_state_terminal": bool(i % 3 == 0),
                }
            ]
            for i in range(8)
        ]
        for _ in range(3):
            agent.update(batch)
        on.keep(*net.parameters(), torch.tensor(float(agent.loss_record[-1])))
    net = torch.nn.Sequential(
        parts.MLP(4, 6, (8,)), policies.GaussianHeadWithStateIndependentCovariance(6)
    )
    on.weights(net)
    x, acts = on.randn(5, 4), on.randn(5, 6)
    on.train(net, lambda: -net(x).log_prob(acts).mean() - net(x).entropy().mean())


@package("sb3_contrib", "stable_baselines3", "gymnasium", "cloudpickle", "Farama-Notifications")
def _sb3_contrib(on: Any) -> None:
    """policies of maskable and recurrent PPO and QR-DQN, with the quantile loss"""
    import torch
    from gymnasium import spaces
    from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
    from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
    from sb3_contrib.common.recurrent.type_aliases import RNNStates
    from sb3_contrib.common.utils import quantile_huber_loss
    from sb3_contrib.qrdqn.policies import QRDQNPolicy

    seen = spaces.Box(-1, 1, (4,), np.float32)
    x, acts = on.randn(6, 4), torch.tensor([0, 1, 2, 1, 0, 2])
    policy = on.weights(MaskableActorCriticPolicy(seen, spaces.Discrete(3), lambda _: 1e-2))
    masks = np.array([[1, 1, 1], [0, 1, 1], [1, 0, 1], [1, 1, 0], [1, 0, 0], [0, 1, 1]], bool)

    def masked() -> Any:
        value, logp, entropy = policy.evaluate_actions(x, acts, action_masks=masks)
        return value.pow(2).mean() - logp.clamp(min=-10).mean() - 0.1 * entropy.mean()

    on.train(policy, masked, optimizer=policy.optimizer)
    policy = RecurrentActorCriticPolicy(
        seen, spaces.Discrete(3), lambda _: 1e-2, lstm_hidden_size=5
    )
    on.weights(policy)
    zeros = (torch.zeros(1, 2, 5), torch.zeros(1, 2, 5))

    def recurrent() -> Any:
        states = RNNStates(zeros, zeros)
        starts = torch.tensor([1.0, 0, 0, 1, 0, 1])
        value, logp, entropy = policy.evaluate_actions(x, acts, states, starts)
        return value.pow(2).mean() - logp.mean() - 0.1 * entropy.mean()

    on.train(policy, recurrent, optimizer=policy.optimizer)
    q = on.weights(
        QRDQNPolicy(seen, spaces.Discrete(3), lambda _: 1e-2, n_quantiles=7).quantile_net
    )
    on.train(q, lambda: quantile_huber_loss(q(x)[..., 0], q(x + 0.1).detach()[..., 1]))


@package("adamp")
def _adamp(on: Any) -> None:
    """AdamP and SGDP, which project steps of scale-invariant weights"""
    import torch
    from adamp import SGDP, AdamP

    for kind, more in ((AdamP, {"weight_decay": 0.1}), (SGDP, {"momentum": 0.9, "nesterov": True})):
        net = torch.nn.Sequential(
            torch.nn.Conv1d(2, 4, 3), torch.nn.BatchNorm1d(4), torch.nn.Conv1d(4, 2, 3)
        )
        on.weights(net.double())
        x = on.randn(3, 2, 9).double()
        on.train(net, lambda n=net, y=x: n(y).pow(2).mean(), 4, kind(net.parameters(), 0.1, **more))


@package("torch-optimi")
def _optimi(on: Any) -> None:
    """eight optimizers by one tensor and by lists; bfloat16 weights by one tensor"""
    import optimi
    import torch

    for kind in ("Adam", "AdamW", "Adan", "Lion", "RAdam", "Ranger", "SGD", "StableAdamW"):
        for foreach in (False, True):
            net = on.weights(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)))
            x = on.randn(5, 3)
            made = getattr(optimi, kind)(net.parameters(), lr=0.05, foreach=foreach)
            on.train(net, lambda n=net, y=x: n(y).pow(2).mean(), 4, made)
    # By lists PyTorch rounds numbers on a CPU that it does not round on a GPU, nor by one tensor.
    for kind in ("Adam", "AdamW", "Adan", "Lion", "RAdam", "SGD"):
        w = torch.nn.Parameter(on.randn(4, 5).bfloat16())
        made = getattr(optimi, kind)([w], lr=0.05, kahan_sum=True, foreach=False)
        for _ in range(6):
            w.grad = on.randn(4, 5).bfloat16()
            made.step()
        on.keep(w.float())


@package("ranger21")
def _ranger21(on: Any) -> None:
    """Ranger21: Adam with centralized gradients, positive-negative momentum, lookahead"""
    import torch
    from ranger21 import Ranger21

    net = torch.nn.Sequential(torch.nn.Conv1d(2, 3, 3), torch.nn.Flatten(), torch.nn.Linear(21, 1))
    on.weights(net)
    x = on.randn(4, 2, 9)
    made = Ranger21(net.parameters(), lr=1e-2, num_epochs=4, num_batches_per_epoch=3)
    on.train(net, lambda: net(x).pow(2).mean(), 8, made)


@package("kron_torch")
def _kron(on: Any) -> None:
    """PSGD's Kronecker-factored preconditioner, updated at every step by given noise"""
    import torch
    from kron_torch import Kron

    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    on.weights(net)
    x = on.randn(5, 3)
    torch.randn_like = lambda t, **settings: on.randn(*t.shape)
    made = Kron(net.parameters(), lr=1e-2, preconditioner_update_probability=1.0)
    on.train(net, lambda: net(x).pow(2).mean(), 4, made)


@package("unfoldNd")
def _unfold_nd(on: Any) -> None:
    """windows of 1, 2 and 3 dimensions, their sums back, and windows of transposed convolutions"""
    import torch
    import unfoldNd

    for dims in (1, 2, 3):
        x = torch.nn.Parameter(on.randn(2, 3, *(6,) * dims).double())
        more: Any = {"dilation": 2, "padding": 1, "stride": 2}
        cut = unfoldNd.UnfoldNd(2, **more)
        back = unfoldNd.FoldNd((6,) * dims, 2, **more)
        turned = unfoldNd.UnfoldTransposeNd(3, padding=1, stride=2)
        on.train([x], lambda y=x, a=cut, b=back: (b(a(y)) * a(y).sum()).sin().mean())
        on.train([x], lambda y=x, a=turned: a(y).sin().mean())


@package("torchgan", "torchvision", "tensorboardX", "matplotlib")
def _torchgan(on: Any) -> None:
    """DCGAN, losses of GANs, minibatch discrimination, self-attention, spectral norm"""
    import torch
    from torchgan import layers, losses, models

    made = on.weights(
        models.DCGANGenerator(encoding_dims=6, out_size=16, out_channels=1, step_channels=4)
    )
    judge = on.weights(models.DCGANDiscriminator(in_size=16, in_channels=1, step_channels=4))
    x, z = on.randn(3, 1, 16, 16), on.randn(3, 6)
    both = torch.nn.ModuleList([made, judge]).double()
    x, z = x.double(), z.double()
    for of_made, of_judge in (
        (losses.minimax_generator_loss, losses.minimax_discriminator_loss),
        (losses.wasserstein_generator_loss, losses.wasserstein_discriminator_loss),
        (losses.least_squares_generator_loss, losses.least_squares_discriminator_loss),
    ):
        on.train(both, lambda f=of_made: f(judge(made(z))), steps=2)
        on.train(both, lambda f=of_judge: f(judge(x), judge(made(z).detach())), steps=2)
    net = torch.nn.Sequential(
        layers.SelfAttention2d(8),
        layers.SpectralNorm2d(torch.nn.Conv2d(8, 2, 3)),
        torch.nn.Flatten(),
        layers.MinibatchDiscrimination1d(32, 3, 4),
    )
    on.weights(net.double())
    y = on.randn(3, 8, 6, 6).double()
    on.train(net, lambda: net(y).pow(2).mean())


@package("torchscale", "fairscale", "timm", "einops")
def _torchscale(on: Any) -> None:
    """an encoder with subln and relative positions, a decoder, RetNet in two forms; in float64"""
    import torch

    in_float64(torch)  # in float32 rounding is magnified to 1e-4: both are as far from this
    from torchscale.architecture.config import DecoderConfig, EncoderConfig, RetNetConfig
    from torchscale.architecture.decoder import Decoder
    from torchscale.architecture.encoder import Encoder
    from torchscale.architecture.retnet import RetNetDecoder

    net = Encoder(
        EncoderConfig(
            encoder_layers=2, encoder_embed_dim=16, encoder_ffn_embed_dim=24,
            encoder_attention_heads=4, subln=True, rel_pos_buckets=8, max_rel_pos=16,
            vocab_size=-1, no_output_layer=True, deepnorm=False,
        )
    )  # fmt: skip
    on.weights(net)
    x = on.randn(2, 7, 16).double()
    mask = torch.zeros(2, 7, dtype=torch.bool)
    mask[1, 5:] = True
    on.train(
        net,
        lambda: (
            net(None, token_embeddings=x, encoder_padding_mask=mask)["encoder_out"].pow(2).mean()
        ),
    )
    tokens = torch.arange(14).reshape(2, 7) * 5 % 11
    for kind, config in (
        (
            Decoder,
            DecoderConfig(
                decoder_layers=2,
                decoder_embed_dim=16,
                decoder_ffn_embed_dim=24,
                decoder_attention_heads=4,
                vocab_size=11,
                xpos_rel_pos=True,
            ),
        ),
        (
            RetNetDecoder,
            RetNetConfig(
                decoder_layers=2,
                decoder_embed_dim=16,
                decoder_value_embed_dim=32,
                decoder_ffn_embed_dim=24,
                decoder_retention_heads=4,
                vocab_size=11,
            ),
        ),
        (
            RetNetDecoder,
            RetNetConfig(
                decoder_layers=2,
                decoder_embed_dim=16,
                decoder_value_embed_dim=32,
                decoder_ffn_embed_dim=24,
                decoder_retention_heads=4,
                vocab_size=11,
                chunkwise_recurrent=True,
                recurrent_chunk_size=4,
            ),
        ),
    ):
        table = torch.nn.Embedding(11, 16)
        net = on.weights(kind(config, embed_tokens=table))
        on.train(net, lambda n=net: n(tokens)[0].log_softmax(-1)[..., 3].mean(), steps=2)


@package("dagma")
def _dagma(on: Any) -> None:
    """a causal graph from data: the log-determinant constraint and Adam's steps of networks"""
    import torch
    from dagma.nonlinear import DagmaMLP, DagmaNonlinear

    x = on.randn(50, 4).double()
    x[:, 1] += 2 * torch.sin(x[:, 0])
    x[:, 3] += x[:, 1] * 1.5
    try:
        net = DagmaMLP([4, 5, 1], bias=True, dtype=torch.double)
        on.weights(net, 0.1)
        on.train(net, lambda: net(x).pow(2).mean() + 0.1 * net.h_func() + 0.01 * net.fc1_l1_reg())
        model = DagmaNonlinear(net, dtype=torch.double)
        found = model.fit(
            x, T=2, warm_iter=30, max_iter=40, lr=0.01, w_threshold=0.0, checkpoint=10
        )
        on.keep(torch.from_numpy(found))
    finally:
        torch.set_default_dtype(torch.float32)


@package("openai-whisper", "tiktoken", "regex", "numba", "llvmlite", "more-itertools")
def _whisper(on: Any) -> None:
    """a small Whisper: audio encoder, text decoder with and without a cache, log-mel spectrogram"""
    import torch
    from torch.nn import functional
    from whisper.audio import log_mel_spectrogram
    from whisper.model import ModelDimensions, Whisper

    net = Whisper(ModelDimensions(8, 6, 16, 2, 2, 30, 10, 16, 2, 2))
    on.weights(net, 0.2)
    mel = on.randn(2, 8, 12)
    tokens = torch.arange(14).reshape(2, 7) * 11 % 30

    def loss() -> Any:
        logits = net(mel, tokens[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    on.train(net, loss)
    net.eval()
    with torch.no_grad():
        sound = net.embed_audio(mel)
        cache, hooks = net.install_kv_cache_hooks()
        first = net.decoder(tokens[:, :3], sound, kv_cache=cache)
        second = net.decoder(tokens[:, 3:4], sound, kv_cache=cache)
        for hook in hooks:
            hook.remove()
        on.keep(first, second, log_mel_spectrogram(on.randn(4000) * 0.1))


@package("torchlibrosa", "librosa", "lazy_loader", "audioread", "soundfile", "pooch", "decorator")
def _torchlibrosa(on: Any) -> None:
    """STFT by convolutions and its inverse, spectrogram, log-mel filter bank"""
    import torch
    from torchlibrosa.stft import ISTFT, STFT, LogmelFilterBank, Spectrogram, magphase

    x = torch.nn.Parameter(on.randn(2, 600))
    settings: Any = {"n_fft": 64, "hop_length": 16, "win_length": 64}
    to, back = STFT(**settings), ISTFT(**settings)
    spectrum = Spectrogram(**settings)
    bank = LogmelFilterBank(sr=8000, n_fft=64, n_mels=6, fmin=50, fmax=3000, top_db=None)

    def loss() -> Any:
        real, imag = to(x)
        magnitude, cos, sin = magphase(real, imag)
        again = back(magnitude * cos, magnitude * sin, 600)
        return again.pow(2).mean() + 1e-3 * bank(spectrum(x)).mean() + magnitude.mean()

    on.train([x], loss)
    on.keep(*to(x), spectrum(x))


@package("diffsptk", "torchaudio", "torchcomp", "soundfile", "librosa", "tqdm")
def _diffsptk(on: Any) -> None:
    """frames, windows, spectra, linear prediction, mel-cepstra and MFCC, with gradients"""
    import diffsptk
    import torch

    x = torch.nn.Parameter(on.randn(2, 400).double())
    torch.set_default_dtype(torch.float64)
    try:
        frame = diffsptk.Frame(64, 32)
        window = diffsptk.Window(64)
        spectrum = diffsptk.Spectrum(64, eps=1e-6)
        lpc = diffsptk.LPC(64, 6, eps=1e-6)
        cepstrum = diffsptk.MelCepstralAnalysis(fft_length=64, cep_order=8, alpha=0.3, n_iter=2)
        mfcc = diffsptk.MFCC(fft_length=64, mfcc_order=5, n_channel=8, sample_rate=8000)

        def loss() -> Any:
            cut = window(frame(x))
            power = spectrum(cut)
            made = cepstrum(power).pow(2).mean() + lpc(cut).pow(2).mean()
            return made + 1e-3 * mfcc(power).pow(2).mean()

        on.train([x], loss)
    finally:
        torch.set_default_dtype(torch.float32)


@package("speechbrain", "hyperpyyaml", "ruamel.yaml", "torchaudio", "sentencepiece", "joblib")
def _speechbrain(on: Any) -> None:
    """ECAPA-TDNN, a CRDNN, a conformer, filter banks, CTC, angular loss, SI-SNR; in float64"""
    import torch

    in_float64(torch)
    from speechbrain.lobes.features import Fbank
    from speechbrain.lobes.models.CRDNN import CRDNN
    from speechbrain.lobes.models.ECAPA_TDNN import ECAPA_TDNN
    from speechbrain.lobes.models.transformer.Conformer import ConformerEncoder
    from speechbrain.nnet import losses
    from speechbrain.nnet.attention import RelPosEncXL
    from speechbrain.nnet.RNN import GRU

    x, lengths = on.randn(2, 20, 8).double(), torch.tensor([1.0, 0.7])
    net = ECAPA_TDNN(
        8, channels=[8, 8, 8, 8, 24], kernel_sizes=[5, 3, 3, 3, 1], dilations=[1, 2, 3, 4, 1],
        attention_channels=4, res2net_scale=4, se_channels=4, lin_neurons=5,
    )  # fmt: skip
    on.weights(net).double()
    margin = losses.LogSoftmaxWrapper(losses.AdditiveAngularMargin(margin=0.2, scale=3))
    labels = torch.tensor([[1], [3]])
    on.train(net, lambda: margin(net(x, lengths), labels))
    net = CRDNN(
        input_size=8, cnn_blocks=1, cnn_channels=(4,), rnn_layers=1, rnn_neurons=5, dnn_blocks=1,
        dnn_neurons=6, dropout=0.0, rnn_class=GRU,
    )  # fmt: skip
    on.weights(net).double()
    tokens = torch.tensor([[1, 2, 3], [4, 5, 0]])

    def ctc() -> Any:
        logp = net(x).log_softmax(-1)
        return losses.ctc_loss(logp, tokens, lengths, torch.tensor([1.0, 0.67]), blank_index=0)

    on.train(net, ctc)
    net = ConformerEncoder(1, 8, 12, 2, kernel_size=3, dropout=0.0)
    on.weights(net)
    places = RelPosEncXL(8)
    on.train(net, lambda: net(x, pos_embs=places(x))[0].pow(2).sin().sum())
    w = torch.nn.Parameter(on.randn(30, 2, 2).double())
    source = on.randn(30, 2, 2).double()
    on.train([w], lambda: losses.get_si_snr_with_pitwrapper(source, w).mean())
    on.keep(Fbank(sample_rate=8000, n_mels=10, n_fft=256)(on.randn(2, 800).double()))


@package("torchcfm", "POT", "torchdyn", "torchdiffeq", "torchsde")
def _torchcfm(on: Any) -> None:
    """four matchers of conditional flows, by given noise and times"""
    import torch
    import torchcfm.conditional_flow_matching as matching
    from torchcfm.models import MLP

    torch.randn_like = lambda t, **settings: on.randn(*t.shape)
    for kind in (
        *("ConditionalFlowMatcher", "TargetConditionalFlowMatcher"),
        *("SchrodingerBridgeConditionalFlowMatcher", "VariancePreservingConditionalFlowMatcher"),
    ):
        np.random.seed(0)
        matcher = getattr(matching, kind)(sigma=0.3)
        net = on.weights(MLP(dim=2, w=8, time_varying=True))
        x0, x1, t = on.randn(16, 2), on.randn(16, 2) + 2, torch.linspace(0.05, 0.95, 16)

        def loss(m: Any = matcher, n: Any = net, a: Any = x0, b: Any = x1, t: Any = t) -> Any:
            when, here, flow = m.sample_location_and_conditional_flow(a, b, t=t)[:3]
            return (n(torch.cat([here, when[:, None]], 1)) - flow).pow(2).mean()

        on.train(net, loss)


@package("torch-uncertainty", "einops", "lightning", "torchmetrics", "rich", "scipy", "seaborn")
def _torch_uncertainty(on: Any) -> None:
    """packed and batch-ensemble layers, evidential and focal losses, calibration metrics"""
    import torch
    from torch_uncertainty import layers, losses, metrics

    x, labels = on.randn(6, 8), torch.tensor([0, 1, 2, 0, 1, 2])
    net = torch.nn.Sequential(
        layers.PackedLinear(8, 12, alpha=2, num_estimators=2, first=True), torch.nn.ReLU(),
        layers.PackedLinear(12, 3, alpha=2, num_estimators=2, last=True),
    )  # fmt: skip
    on.weights(net)
    on.train(net, lambda: torch.nn.functional.cross_entropy(net(x), labels.repeat(2)))
    net = on.weights(layers.BatchLinear(8, 3, num_estimators=2))
    on.train(net, lambda: losses.DECLoss(reg_weight=0.1)(net(x), labels))
    for loss in (losses.ConfidencePenaltyLoss(), losses.FocalLoss(2.0)):
        w = torch.nn.Parameter(on.randn(6, 3))
        on.train([w], lambda f=loss, v=w: f(v, labels))
    p = on.randn(40, 3).softmax(-1)
    target = torch.arange(40) * 7 % 3
    for metric in (
        metrics.BrierScore(num_classes=3),
        metrics.CalibrationError(task="multiclass", num_classes=3),
        metrics.AURC(), metrics.CategoricalNLL(),
    ):  # fmt: skip
        metric.update(p, target)
        on.keep(metric.compute())


@package(
    "gluonts", "lightning", "pydantic", "toolz", "typing_extensions", "pandas", "pytorch-lightning"
)
def _gluonts(on: Any) -> None:
    """DeepAR with negative binomials, and a simple feed-forward model of time series"""
    import torch
    from gluonts.torch.distributions import NegativeBinomialOutput
    from gluonts.torch.model.deepar.module import DeepARModel
    from gluonts.torch.model.simple_feedforward.module import SimpleFeedForwardModel

    past, future = on.randn(3, 24).abs() + 1, on.randn(3, 4).abs() + 1
    seen = torch.ones(3, 24)
    net = SimpleFeedForwardModel(4, 24, hidden_dimensions=[8])
    on.weights(net)

    def likelihood(net: Any, args: Any) -> Any:
        made, loc, scale = args
        return -net.distr_output.distribution(made, loc=loc, scale=scale).log_prob(future).mean()

    on.train(net, lambda: likelihood(net, net(past)))
    net = DeepARModel(
        "h", context_length=12, prediction_length=4, num_feat_dynamic_real=1,
        num_feat_static_real=1, num_feat_static_cat=1, cardinality=[3], hidden_size=6,
        dropout_rate=0.0, lags_seq=[1, 2, 12],
        distr_output=NegativeBinomialOutput(),
    )  # fmt: skip
    on.weights(net)
    every = (
        torch.tensor([[0], [1], [2]]),
        on.randn(3, 1),
        on.randn(3, 24, 1),
        past.round(),
        seen,
        on.randn(3, 4, 1),
        future.round(),
        torch.ones(3, 4),
    )

    def loss() -> Any:
        cat, static, past_time, y, ok, time, target, observed = every
        return net.loss(
            feat_static_cat=cat,
            feat_static_real=static,
            past_time_feat=past_time,
            past_target=y,
            past_observed_values=ok,
            future_time_feat=time,
            future_target=target,
            future_observed_values=observed,
        ).mean()

    on.train(net, loss)


@package("facenet-pytorch", "requests")
def _facenet(on: Any) -> None:
    """an Inception-ResNet of faces, in float64; the three networks of MTCNN in training"""
    import torch
    from facenet_pytorch import InceptionResnetV1
    from facenet_pytorch.models.mtcnn import ONet, PNet, RNet

    for kind, size in ((PNet, 24), (RNet, 24), (ONet, 48)):
        net = on.weights(kind(pretrained=False), 0.05).double()
        x = on.randn(2, 3, size, size).double()
        on.train(net, lambda n=net, y=x: sum(part.pow(2).mean() for part in n(y)))
    net = on.weights(InceptionResnetV1(dropout_prob=0.0), 0.05).double().eval()
    x = on.randn(1, 3, 80, 80).double()
    made = net(x)
    made[0, :3].sum().backward()
    on.keep(made, torch.stack([p.grad.norm() for p in net.parameters() if p.grad is not None]))


@package("pythae", "pydantic", "pydantic_core", "cloudpickle", "imageio", "typing_extensions")
def _pythae(on: Any) -> None:
    """autoencoders with given noise: AE, VAE, beta-TC, IWAE, WAE, RHVAE, disentangled"""
    import torch
    from pythae import models
    from pythae.data.datasets import DatasetOutput

    x = DatasetOutput(data=on.randn(6, 1, 4, 4).sigmoid())
    torch.randn_like = lambda t, **settings: on.randn(*t.shape)
    for name in ("VAE", "BetaTCVAE", "IWAE", "DisentangledBetaVAE", "WAE_MMD", "AE", "RHVAE"):
        config = getattr(models, f"{name}_Config" if "_" in name else f"{name}Config")(
            input_dim=(1, 4, 4), latent_dim=2
        )
        net = on.weights(getattr(models, name)(config), 0.1)
        on.train(net, lambda n=net: n(x, dataset_size=6).loss, steps=2)


@package("pytorch-pfn-extras", "onnx")
def _pytorch_pfn_extras(on: Any) -> None:
    """a Trainer over epochs with an extension, and a lazy layer"""
    import pytorch_pfn_extras as ppe
    import torch
    from torch import nn

    net = nn.Sequential(ppe.nn.LazyLinear(None, 5), nn.Tanh(), nn.Linear(5, 1))
    x = on.randn(8, 3)
    net(x)
    on.weights(net)
    y = on.randn(8, 1)

    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Any, y: Any) -> Any:
            loss = (self.net(x) - y).pow(2).mean()
            return {"loss": loss}

    model = WithLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    seen: list[Any] = []
    ppe.to(model, "cpu")
    trainer = ppe.engine.create_trainer(
        model, optimizer, 3, device="cpu", extensions=[]
    )  # fmt: skip
    trainer.extend(
        lambda manager: seen.append(manager.iteration), trigger=(1, "epoch"), name="seen"
    )
    loader = torch.utils.data.DataLoader([{"x": a, "y": b} for a, b in zip(x, y)], batch_size=4)
    trainer.run(loader)
    on.keep(*net.parameters(), torch.tensor(seen))


def _language_model(
    on: Any, model: Any, length: int, pick: Callable[[Any], Any] = lambda y: y
) -> None:
    """Trained on tokens, in float64, by the cross entropy of its scores."""
    import torch

    tokens = torch.arange(length).reshape(1, length) * 3 % 20
    on.weights(model, 0.2).double()
    on.train(model, lambda: torch.nn.functional.cross_entropy(pick(model(tokens)).mT, tokens))


@package("axial_attention", "axial_positional_embedding")
def _axial_attention(on: Any) -> None:
    """attention along one axis of images after the other, and a reversible transformer of them"""
    from axial_attention import AxialAttention, AxialImageTransformer

    for net, size in (
        (AxialAttention(dim=8, dim_index=1, heads=2, num_dimensions=2), (1, 8, 4, 5)),
        (AxialImageTransformer(dim=8, depth=2, heads=2, axial_pos_emb_shape=(4, 4)), (1, 8, 4, 4)),
    ):
        on.weights(net).double()
        x = on.randn(*size).double()
        on.train(net, lambda net=net, x=x: net(x).pow(2).mean())


@package(
    *("sinkhorn_transformer", "product_key_memory", "local_attention", "mixture_of_experts"),
    *("einops", "axial_positional_embedding", "hyper_connections", "torch_einops_utils"),
)
def _sinkhorn_transformer(on: Any) -> None:
    """a language model whose buckets are sorted by Sinkhorn's iterations"""
    from sinkhorn_transformer import SinkhornTransformerLM

    sizes = {"num_tokens": 20, "dim": 16, "heads": 2, "depth": 2, "max_seq_len": 16}
    _language_model(on, SinkhornTransformerLM(bucket_size=4, causal=False, **sizes).eval(), 16)


@package("compressive_transformer_pytorch", "mogrifier")
def _compressive_transformer(on: Any) -> None:
    """a language model that keeps memories and compresses old ones"""
    from compressive_transformer_pytorch import CompressiveTransformer

    sizes = {"seq_len": 8, "mem_len": 8, "cmem_len": 2, "cmem_ratio": 4}
    model = CompressiveTransformer(num_tokens=20, dim=16, depth=2, heads=2, **sizes)
    _language_model(on, model, 8, lambda y: y[0])


@package("colt5_attention", "einops", "local_attention", "hyper_connections", "torch_einops_utils")
def _colt5_attention(on: Any) -> None:
    """a feed-forward layer of which some tokens take a heavier branch"""
    from colt5_attention import ConditionalRoutedFeedForward

    sizes = {"num_heavy_tokens": 4, "light_ff_mult": 0.5, "heavy_ff_mult": 2}
    net = on.weights(ConditionalRoutedFeedForward(8, **sizes)).double()
    x = on.randn(2, 12, 8).double()
    on.train(net, lambda: net(x).pow(2).mean())


@package("token_shift_gpt", "einops")
def _token_shift_gpt(on: Any) -> None:
    """a language model that shifts features along the sequence instead of attending"""
    from token_shift_gpt import TokenShiftGPT

    _language_model(
        on, TokenShiftGPT(num_tokens=20, dim=16, max_seq_len=16, depth=2, ff_mult=2), 16
    )


@package("h_transformer_1d", "einops", "rotary_embedding_torch")
def _h_transformer_1d(on: Any) -> None:
    """a language model with hierarchical attention"""
    from h_transformer_1d import HTransformer1D

    sizes = {"max_seq_len": 32, "heads": 2, "dim_head": 8, "block_size": 8}
    _language_model(on, HTransformer1D(num_tokens=20, dim=16, depth=2, causal=False, **sizes), 32)


@package("gateloop_transformer", "einops", "rotary_embedding_torch")
def _gateloop_transformer(on: Any) -> None:
    """a language model with gated loops by an associative scan"""
    from gateloop_transformer import Transformer

    _language_model(on, Transformer(num_tokens=20, dim=16, depth=2, use_gate_looped_attn=True), 8)


@package("mega_pytorch", "einops")
def _mega_pytorch(on: Any) -> None:
    """a language model with moving averages by FFT and gated attention"""
    from mega_pytorch import Mega

    sizes = {"ema_heads": 4, "attn_dim_qk": 8, "attn_dim_value": 16}
    _language_model(on, Mega(num_tokens=20, dim=16, depth=2, **sizes), 8)


@package("simple_hierarchical_transformer", "einops", "rotary_embedding_torch")
def _simple_hierarchical_transformer(on: Any) -> None:
    """a language model with a second, coarser hierarchy of tokens"""
    from simple_hierarchical_transformer import HierarchicalTransformer

    sizes = {"seq_len": 16, "hierarchies": (1, 2), "window_sizes": (8, None), "dim_head": 8}
    _language_model(
        on, HierarchicalTransformer(num_tokens=20, dim=16, depth=1, heads=2, **sizes), 16
    )


@package("block_recurrent_transformer_pytorch", "einops", "hyper_connections", "torch_einops_utils")
def _block_recurrent_transformer(on: Any) -> None:
    """a language model with states that blocks hand on"""
    from block_recurrent_transformer_pytorch import BlockRecurrentTransformer

    sizes = {"max_seq_len": 16, "block_width": 8, "num_state_vectors": 8, "dim_head": 8}
    model = BlockRecurrentTransformer(
        num_tokens=20,
        dim=16,
        depth=2,
        heads=2,
        recurrent_layers=(2,),
        use_flash_attn=False,
        **sizes,
    )
    _language_model(on, model, 16, lambda y: y[0])


@package("soft_moe_pytorch", "einops")
def _soft_moe(on: Any) -> None:
    """a soft mixture of experts"""
    from soft_moe_pytorch import SoftMoE

    net = on.weights(SoftMoE(dim=8, seq_len=12, num_experts=3)).double()
    x = on.randn(1, 12, 8).double()
    on.train(net, lambda: net(x).pow(2).mean())


@package("flash_pytorch", "einops", "rotary_embedding_torch")
def _flash_pytorch(on: Any) -> None:
    """a gated attention unit in groups, with Laplace's attention function"""
    from flash_pytorch import FLASH

    sizes = {"group_size": 8, "query_key_dim": 8, "expansion_factor": 2.0}
    net = on.weights(FLASH(dim=16, causal=True, laplace_attn_fn=True, **sizes)).double()
    x = on.randn(1, 20, 16).double()
    on.train(net, lambda: net(x).pow(2).mean())


@package("st_moe_pytorch", "einops", "colt5_attention", "beartype")
def _st_moe(on: Any) -> None:
    """a sparse mixture of experts with two of them a token, none left out by chance"""
    from st_moe_pytorch import MoE

    sizes = {"threshold_train": 0.0, "threshold_eval": 0.0}  # no token is left out by chance
    net = on.weights(MoE(dim=8, num_experts=4, gating_top_n=2, **sizes).eval()).double()
    x = on.randn(2, 6, 8).double()
    on.train(net, lambda: net(x)[0].pow(2).mean())


@package("linear_operator", "jaxtyping", "wadler_lindig")
def _linear_operator(on: Any) -> None:
    """solves, determinants, roots of lazy matrices: Kronecker, Toeplitz, low rank, blocks, sums"""
    import torch
    from linear_operator import operators as lo
    from linear_operator import settings, sqrt_inv_matmul
    from torch import nn

    a, b = nn.Parameter(on.randn(4, 4)), nn.Parameter(on.randn(3, 3))
    d, root = nn.Parameter(on.randn(12).abs() + 1), nn.Parameter(on.randn(12, 2))
    column = nn.Parameter(torch.tensor([6.0, 1.0, 0.5, 0.2, 0.1, 0.05] + [0.01] * 6))
    rhs, weights = on.randn(12, 3), [a, b, d, root, column]

    def made() -> Any:
        left, right = a @ a.mT + 2 * torch.eye(4), b @ b.mT + 2 * torch.eye(3)
        several = lo.DenseLinearOperator(torch.stack([right * n for n in (1, 2, 3, 4)]))
        product = lo.KroneckerProductLinearOperator(*map(lo.DenseLinearOperator, (left, right)))
        toeplitz = lo.ToeplitzLinearOperator(column)
        return [
            product,
            product.add_diagonal(torch.tensor(0.7)),
            toeplitz,
            lo.LowRankRootLinearOperator(root).add_diagonal(d),
            product + lo.DiagLinearOperator(d) + lo.RootLinearOperator(root),
            lo.MulLinearOperator(product, toeplitz),
            lo.BlockDiagLinearOperator(several),
            lo.BlockInterleavedLinearOperator(several),
            product * 1.7,
            lo.SumBatchLinearOperator(lo.DenseLinearOperator(torch.stack([left, left + 1]))),
        ]

    for n in range(len(made())):
        for iterated in (False, True):

            def loss(n: int = n, iterated: bool = iterated) -> Any:
                with (
                    settings.fast_computations(iterated, iterated, iterated),
                    settings.max_cholesky_size(1 if iterated else 800),
                    settings.cg_tolerance(1e-4),
                ):
                    op = made()[n]
                    r = rhs[: op.shape[-1]]
                    total = (op @ r).pow(2).mean() + op.solve(r).pow(2).mean()
                    total = total + op[..., 1, :].sum() + op[1:3, 2:9].to_dense().sum()
                    if not iterated:  # else by random vectors
                        total = total + op.logdet() + op.inv_quad(r)
                        total = total + op.root_decomposition().to_dense().sum()
                    return total + op.diagonal(dim1=-1, dim2=-2).sum()

            still = torch.optim.SGD(weights, lr=0.0)
            on.train(weights, loss, steps=1, optimizer=still)
    on.keep(sqrt_inv_matmul(made()[0], rhs), torch.linalg.solve(made()[3], rhs))


@package("torchcvnn", "scipy", "lightning")
def _torchcvnn(on: Any) -> None:
    """complex networks: convolutions, norms, poolings, activations, attention; in complex128"""
    import torch
    import torchcvnn.nn as c
    from torch import nn

    torch.set_default_dtype(torch.float64)
    kind = torch.complex128

    def drawn(*shape: int) -> Any:
        return torch.complex(on.randn(*shape).double(), on.randn(*shape).double())

    z, s = drawn(2, 3, 8, 8), drawn(5, 2, 8)
    names = (
        "CReLU CPReLU CELU CCELU CGELU CSigmoid CTanh zReLU zAbsReLU zLeakyReLU modReLU Cardioid"
    )
    for name in names.split():
        net = nn.Sequential(
            *(nn.Conv2d(3, 4, 3, padding=1, dtype=kind), c.BatchNorm2d(4, cdtype=kind)),
            *(getattr(c, name)(), c.AvgPool2d(2, 2, 0), c.MaxPool2d(2, 2, 0)),
            *(c.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(4, 2, dtype=kind), c.Mod()),
        )
        on.train(on.weights(net), lambda n=net: n(z).pow(2).mean(), 2)
    encoder = c.TransformerEncoder(c.TransformerEncoderLayer(8, 2, 16, dropout=0.0, dtype=kind), 2)
    on.train(on.weights(encoder), lambda: encoder(s).abs().pow(2).mean(), 2)
    decoder = c.TransformerDecoder(
        c.TransformerDecoderLayer(8, 2, 16, dropout=0.0, norm_first=True, dtype=kind), 1
    )
    on.train(on.weights(decoder), lambda: decoder(s, s.conj()).real.pow(2).mean(), 2)
    last = on.weights(nn.Sequential(c.RMSNorm(8), nn.Linear(8, 3, dtype=kind), c.CTanh()))
    adam = torch.optim.Adam(last.parameters(), lr=1e-2)
    on.train(last, lambda: last(s).imag.pow(2).sum() + last(s).angle().cos().sum(), 3, adam)


@package("pyhessian")
def _pyhessian(on: Any) -> None:
    """the Hessian's largest eigenvalues, their vectors, and its trace, from given noise"""
    import pyhessian
    import torch
    from torch import nn

    torch.randn = lambda size: on.randn(*size)
    torch.randint_like = lambda p, high, device: (on.randn(*p.shape) > 0).to(p.dtype)
    net = on.weights(
        nn.Sequential(
            *(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Tanh(), nn.Flatten(), nn.Linear(48, 5))
        )
    )
    data = on.randn(6, 1, 6, 6), torch.tensor([0, 1, 2, 3, 4, 0])
    asked = pyhessian.hessian(net, nn.CrossEntropyLoss(), data=data, cuda=False)
    values, vectors = asked.eigenvalues(maxIter=30, top_n=2)
    on.keep(torch.tensor(values), *[v.abs() for v in vectors[0]])
    on.keep(torch.tensor(asked.trace(maxIter=5)))


@package("ivon-opt")
def _ivon(on: Any) -> None:
    """IVON, which samples weights by given noise, with both estimates of the Hessian"""
    import ivon
    import torch
    from torch import nn

    torch.randn = lambda n, **settings: on.randn(n)
    for how in ("price", "gradsq"):
        net = on.weights(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)))
        x, y = on.randn(8, 4), on.randn(8, 2)
        settings = {"ess": 8, "hess_init": 0.5, "mc_samples": 2, "clip_radius": 0.5}
        opt = ivon.IVON(net.parameters(), lr=0.1, hess_approx=how, **settings)
        for step in range(8):
            with opt.sampled_params(train=True):
                opt.zero_grad()
                value = (net(x) - y).pow(2).mean()
                value.backward()
                on.keep(value, *[p.grad for p in net.parameters()])
            if step % 2:
                opt.step()
        on.keep(*net.parameters())


@package("snac", "einops")
def _snac(on: Any) -> None:
    """a neural codec: encoder, codes at several rates, decoder with local attention; in float64"""
    import torch
    from snac import SNAC

    in_float64(torch)
    torch.randn = lambda size, **settings: on.randn(*size).double()
    net = on.weights(SNAC(8000, 16, [2, 3], 64, 128, [3, 2], 4, 16, 4, [4, 2, 1]), 0.4)
    x = on.randn(2, 1, 96).double()
    on.train(net, lambda: (net(x)[0] - x).pow(2).mean(), 2)
    codes = net.encode(x)
    on.keep(*codes, net.decode(codes))


@package("demucs", "julius", "einops", "dora-search", "omegaconf", "treetable")
def _demucs(on: Any) -> None:
    """sources separated: Demucs with LSTM and attention, hybrid, with transformer; in float64"""
    import torch
    from demucs.demucs import Demucs
    from demucs.hdemucs import HDemucs
    from demucs.htdemucs import HTDemucs

    torch.set_default_dtype(torch.float64)
    x, names = on.randn(1, 2, 2048).double(), ["drums", "vocals"]
    inside = {"nfft": 256, "dconv_init": 0.1, "norm_groups": 4}
    shape = {"t_layers": 2, "t_heads": 2, "t_dropout": 0.0, "bottom_channels": 8}
    nets = [
        Demucs(names, channels=16, depth=3, lstm_layers=1, dconv_attn=1, resample=False),
        HDemucs(names, channels=4, depth=4, norm_starts=2, dconv_lstm=2, dconv_attn=9, **inside),
        HTDemucs(names, channels=8, depth=2, segment=2048 / 44100, **inside, **shape).eval(),
    ]
    for net in nets:
        on.weights(net, 0.1)
        on.train(net, lambda n=net: n(x).pow(2).mean() + n(x).abs().mean(), 2)


@package("pytorchvideo", "fvcore", "iopath", "yacs", "parameterized", "portalocker", "tabulate")
def _pytorchvideo(on: Any) -> None:
    """networks of videos: SlowFast, X3D, CSN and a multiscale vision transformer; in float64"""
    import torch
    from pytorchvideo.models import csn, slowfast, vision_transformers, x3d

    torch.set_default_dtype(torch.float64)
    clip, frame = on.randn(1, 3, 4, 32, 32).double(), on.randn(1, 3, 1, 32, 32).double()
    dropped = {"model_num_class": 3, "dropout_rate": 0.0}
    kernels = ((1, 1, 1), (4, 1, 1))
    scales = {"embed_dim_mul": [[1, 2.0]], "atten_head_mul": [[1, 2.0]]}
    nets = [
        slowfast.create_slowfast(
            **dropped, stem_dim_outs=(16, 2), head_pool_kernel_sizes=kernels
        ).eval(),
        x3d.create_x3d(
            **dropped, input_clip_length=4, input_crop_size=32, head_dim_out=16, width_factor=1.0
        ).eval(),
        csn.create_csn(**dropped, stem_dim_out=8, head_pool_kernel_size=(1, 1, 1)).eval(),
        vision_transformers.create_multiscale_vision_transformers(
            spatial_size=32,
            temporal_size=4,
            depth=3,
            patch_embed_dim=8,
            head_num_classes=3,
            head_dropout_rate=0.0,
            pool_q_stride_size=[[1, 1, 2, 2]],
            pool_kv_stride_adaptive=[1, 2, 2],
            **{"pool_kvq_kernel": [3, 3, 3], "head_activation": None, **scales},
        ),
    ]
    for n, net in enumerate(nets):
        on.weights(net, 0.05)
        y = net(clip if n else [frame, clip])
        (y[0, 0] + y.pow(2).sum()).backward()
        on.keep(y, torch.stack([p.grad.norm() for p in net.parameters() if p.grad is not None]))


@package("torchbearer")
def _torchbearer(on: Any) -> None:
    """a Trial's fit with metrics, weight decay, clipping, a schedule; validation and prediction"""
    import torch
    from torch import nn
    from torchbearer import Trial, callbacks

    layers = nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3)
    net = on.weights(nn.Sequential(*layers))
    x, y = on.randn(12, 4), torch.arange(12) % 3
    called = [
        *(callbacks.GradientNormClipping(0.5, 2), callbacks.L2WeightDecay(1e-3)),
        callbacks.StepLR(1, 0.5),
    ]
    trial = Trial(
        *(net, torch.optim.AdamW(net.parameters(), lr=1e-2), nn.CrossEntropyLoss()),
        metrics=["acc", "loss", "lr"],
        callbacks=called,
        verbose=0,
    )
    trial.with_train_data(x, y, batch_size=4, shuffle=False).with_val_data(x, y, batch_size=6)
    for history in trial.with_test_data(x, batch_size=6).run(3):
        on.keep(torch.tensor([float(v) for _, v in sorted(history.items())]))
    on.keep(*net.parameters(), trial.predict(verbose=0))


@package("pytorch-kinematics", "lxml", "arm_pytorch_utilities", "pytorch_seed")
def _kinematics(on: Any) -> None:
    """poses of a chain of joints, their Jacobian, and transforms between kinds of rotation"""
    import pytorch_kinematics as pk
    from torch import nn

    kinds = ("revolute", "0 0 1"), ("revolute", "0 1 0"), ("prismatic", "1 0 0")
    text = "".join(
        f'<link name="l{i}"/><joint name="j{i}" type="{kind}"><parent link="l{i}"/>'
        f'<child link="l{i + 1}"/><origin xyz="0.{i} 0.2 0.3" rpy="0.1 0.{i} 0.2"/>'
        f'<axis xyz="{axis}"/></joint>'
        for i, (kind, axis) in enumerate(kinds)
    )
    chain = pk.build_serial_chain_from_urdf(
        f'<robot name="r">{text}<link name="l3"/></robot>', "l3"
    )
    angles, q = nn.Parameter(on.randn(3, 3)), nn.Parameter(on.randn(3, 4))
    points = on.randn(3, 5, 3)

    def loss() -> Any:
        pose = chain.forward_kinematics(angles).get_matrix()
        turned = pk.quaternion_to_matrix(q / q.norm(dim=-1, keepdim=True))
        again = pk.rotation_6d_to_matrix(pk.matrix_to_rotation_6d(turned))
        moved = pk.Transform3d(rot=turned, pos=pose[:, :3, 3]).transform_points(points)
        total = pose.pow(2).sum() + chain.jacobian(angles).tanh().sum() + moved.pow(2).mean()
        total = total + pk.matrix_to_euler_angles(turned, "XYZ").sin().sum()
        return total + pk.matrix_to_quaternion(again).sum() + pk.matrix_to_axis_angle(again).sum()

    on.train([angles, q], loss)


@package(
    *("titans-pytorch", "einops", "einx", "frozendict", "tensordict", "pyvers", "assoc_scan"),
    *("axial_positional_embedding", "hyper_connections", "rotary_embedding_torch"),
    *("x_transformers", "loguru", "torch_einops_utils"),
)
def _titans(on: Any) -> None:
    """a neural memory that learns inside, by vmap of grad, with momentum of order 2; in float64"""
    import torch
    from titans_pytorch import MemoryMLP, NeuralMemory

    torch.set_default_dtype(torch.float64)
    x = on.randn(2, 16, 8).double()
    heads = {"heads": 2, "dim_head": 4, "per_parameter_lr_modulation": True, "momentum_order": 2}
    for settings in ({}, {"chunk_size": 2, **heads}, {"momentum": False, "qk_rmsnorm": True}):
        inner = MemoryMLP(settings.get("dim_head", 8), 2)
        net = NeuralMemory(dim=8, model=inner, **{"chunk_size": 4, **settings})
        for p in net.parameters():
            p.data = p.data.clone()  # some are expanded
        on.weights(net)
        on.train(net, lambda n=net: n(x)[0].pow(2).mean() + n(x)[0].sum().tanh(), 2)


@package("spandrel", "torchvision", "safetensors", "einops")
def _spandrel(on: Any) -> None:
    """networks that restore images: Compact, ESRGAN, SwinIR and NAFNet; in float64"""
    import torch
    from spandrel.architectures.Compact.__arch.SRVGG import SRVGGNetCompact
    from spandrel.architectures.ESRGAN.__arch.RRDB import RRDBNet
    from spandrel.architectures.NAFNet.__arch.NAFNet_arch import NAFNet
    from spandrel.architectures.SwinIR.__arch.SwinIR import SwinIR

    torch.set_default_dtype(torch.float64)
    x = on.randn(1, 3, 16, 16).double().sigmoid()
    window = {"img_size": 16, "embed_dim": 8, "depths": [2], "num_heads": [2], "window_size": 4}
    for net in (
        SRVGGNetCompact(num_feat=8, num_conv=2, upscale=2),
        RRDBNet(in_nc=3, out_nc=3, num_filters=8, num_blocks=1, scale=2),
        SwinIR(upscale=2, upsampler="pixelshuffle", drop_path_rate=0.0, **window),
        NAFNet(width=4, middle_blk_num=1, enc_blk_nums=[1], dec_blk_nums=[1]),
    ):
        on.weights(net, 0.06)
        on.train(net, lambda n=net: n(x.clone()).pow(2).mean() + n(x.clone()).abs().mean(), 2)


@package(
    *("mace-torch", "e3nn", "opt_einsum_fx", "matscipy", "ase", "torch_ema", "torchmetrics"),
    *("lightning_utilities", "prettytable", "h5py", "orjson"),
)
def _mace(on: Any) -> None:
    """MACE: an energy, forces as its gradient, and gradients of a loss of both; in float64

    What scales activations, which e3nn averages over random numbers, is the same on both sides.
    """
    import torch

    torch.set_default_dtype(torch.float64)
    from e3nn import o3
    from mace import modules

    kinds = modules.interaction_classes
    net = modules.ScaleShiftMACE(
        atomic_inter_scale=1.3,
        atomic_inter_shift=0.1,
        r_max=4.0,
        num_bessel=4,
        num_polynomial_cutoff=3,
        max_ell=2,
        num_interactions=2,
        num_elements=2,
        correlation=2,
        avg_num_neighbors=3.0,
        atomic_numbers=[1, 8],
        interaction_cls=kinds["RealAgnosticResidualInteractionBlock"],
        interaction_cls_first=kinds["RealAgnosticInteractionBlock"],
        hidden_irreps=o3.Irreps("4x0e + 4x1o"),
        MLP_irreps=o3.Irreps("4x0e"),
        atomic_energies=np.array([-1.0, -2.0]),
        gate=torch.nn.functional.silu,
    )
    for module in net.modules():
        if hasattr(module, "cst"):
            module.cst = 1.5
    on.weights(net, 0.5)
    edges = (1 - torch.eye(5)).nonzero().T
    zeros = torch.zeros(edges.shape[1], 3)
    atoms = {
        "positions": (1.2 * on.randn(5, 3).double()).requires_grad_(),
        "node_attrs": torch.eye(2)[torch.tensor([0, 1, 0, 0, 1])],
        "edge_index": edges,
        "shifts": zeros,
        "unit_shifts": zeros,
        "cell": torch.eye(3) * 20,
        "batch": torch.zeros(5, dtype=torch.long),
        "ptr": torch.tensor([0, 5]),
        "head": torch.zeros(1, dtype=torch.long),
    }
    forces = on.randn(5, 3).double()

    def loss() -> Any:
        found = net(dict(atoms), training=True)
        on.keep(found["energy"], found["forces"])
        return (found["forces"] - forces).pow(2).mean() + 0.1 * found["energy"].pow(2).sum()

    on.train(net, loss, 2)


@package(
    "neurodiffeq", "pandas", "seaborn", "matplotlib", "tqdm", "dill", "ordered_set", "requests"
)
def _neurodiffeq(on: Any) -> None:
    """residuals of differential equations, in spherical coordinates too, trained; in float64"""
    import torch
    from neurodiffeq import diff
    from neurodiffeq.conditions import IVP, DirichletBVP2D
    from neurodiffeq.networks import FCNN, Resnet, SinActv
    from neurodiffeq.operators import div, grad, laplacian, spherical_laplacian

    torch.set_default_dtype(torch.float64)
    nets = torch.nn.ModuleList(
        [
            FCNN(1, 1, hidden_units=(8, 8), actv=SinActv),
            *(Resnet(2, 1, hidden_units=(8,)), FCNN(3, 1, hidden_units=(8,))),
        ]
    )
    on.weights(nets)
    t, x, y, *sphere = [
        (on.randn(10, 1).double().sigmoid() + 0.2).requires_grad_() for _ in range(6)
    ]
    start = IVP(t_0=0.0, u_0=1.0, u_0_prime=0.5)
    zero = torch.zeros_like
    edge = DirichletBVP2D(0.0, torch.sin, 1.0, zero, 0.0, zero, 1.0, zero)

    def loss() -> Any:
        u, v = start.enforce(nets[0], t), edge.enforce(nets[1], x, y)
        w = nets[2](torch.cat(sphere, 1))
        total = (diff(u, t, order=2) + u).pow(2).mean() + laplacian(v, x, y).pow(2).mean()
        total = total + diff(v, x).tanh().sum() + div(*grad(w, *sphere), *sphere).mean()
        return total + spherical_laplacian(w, *sphere).pow(2).mean()

    on.train(nets, loss, optimizer=torch.optim.SGD(nets.parameters(), lr=1e-5))


@package("brevitas", "dependencies", "unfoldNd")
def _brevitas(on: Any) -> None:
    """training with quantized weights and activations: convolution, LSTM, attention; in float64

    Scales of activations are percentiles. Where quantized elements are equal, their gradient goes
    to another one than in PyTorch (`kthvalue` in docs/differences.md): 2e-05.
    """
    import brevitas.nn as qnn
    import torch
    from brevitas import quant
    from torch import nn

    in_float64(torch)

    def given(module: Any) -> Any:
        with torch.no_grad():
            for name, p in module.named_parameters():
                if p.ndim > 1 or name.endswith("bias"):
                    p.copy_(0.3 * on.randn(*p.shape))
        return module

    x, s = on.randn(4, 2, 8, 8).double(), on.randn(5, 2, 3).double()
    for kind in ("Int8WeightPerTensorFloat", "Int8WeightPerChannelFloat"):
        weights = {"weight_quant": getattr(quant, kind), "bias_quant": quant.Int8Bias}
        net = nn.Sequential(
            qnn.QuantIdentity(bit_width=8, return_quant_tensor=True),
            qnn.QuantConv2d(2, 3, 3, bias=True, return_quant_tensor=True, **weights),
            *(nn.BatchNorm2d(3), qnn.QuantReLU(bit_width=4), nn.Flatten()),
            *(qnn.QuantLinear(108, 5, bias=True, weight_bit_width=4), qnn.QuantTanh(bit_width=8)),
            *(qnn.QuantSigmoid(bit_width=8), qnn.QuantHardTanh(max_val=1.0, min_val=-1.0)),
        )
        on.train(given(net), lambda n=net: n(x).pow(2).mean() + n(x).sum().tanh())
        on.keep(net.eval()(x))
    lstm = qnn.QuantLSTM(3, 4, bidirectional=True)
    attention = qnn.QuantMultiheadAttention(8, 2, packed_in_proj=False)

    def loss() -> Any:
        h = lstm(s)[0]
        return attention(h, h, h)[0].pow(2).mean()

    on.train(given(nn.ModuleList([lstm, attention])), loss, 2)


@package("torchviz", "graphviz")
def _torchviz(on: Any) -> None:
    """pictures of graphs with all that nodes saved and with attributes: how many nodes and edges"""
    import torchviz
    from torch import nn

    class Doubled(on.torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2

    net = on.weights(
        nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.BatchNorm2d(2), nn.Tanh(), nn.Flatten())
    )
    x = on.randn(2, 1, 5, 5).requires_grad_()
    for told in ({}, {"show_saved": True}, {"show_saved": True, "show_attrs": True}):
        y = Doubled.apply(net(x)).softmax(1).pow(2).sum()
        dot = torchviz.make_dot(y, params=dict(net.named_parameters()), **told)
        lines = dot.source.splitlines()
        if not told:  # what is saved for backward is an inner matter of each
            on.keep(on.torch.tensor([len(lines), sum("->" in line for line in lines)]))


@package("memcnn")
def _memcnn(on: Any) -> None:
    """additive and affine couplings whose inputs are freed and computed again by the inverse"""
    import memcnn
    from torch import nn

    def inner() -> Any:
        return nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.Tanh())

    def wrapped(coupling: Any) -> Any:
        return memcnn.InvertibleModuleWrapper(coupling, keep_input=False, keep_input_inverse=False)

    additive = wrapped(memcnn.AdditiveCoupling(inner(), inner()))
    affine = wrapped(memcnn.AffineCoupling(inner(), adapter=memcnn.AffineAdapterSigmoid))
    net = on.weights(nn.Sequential(additive, affine)).double()
    x = on.randn(2, 4, 5, 5).double()
    on.train(net, lambda: net(x.clone().requires_grad_() * 1).pow(2).mean())
    on.keep(additive.inverse(additive(x.clone())))


@package("sparsemax")
def _sparsemax(on: Any) -> None:
    """sparsemax along each dimension, with its gradient by a custom Function"""
    import sparsemax
    from torch import nn

    x = nn.Parameter(on.randn(3, 4, 5))
    layers = [sparsemax.Sparsemax(dim) for dim in (0, 1, -1)]
    on.train([x], lambda: sum(layer(2 * x).pow(2).sum() for layer in layers))


@package("pytorch_revgrad")
def _revgrad(on: Any) -> None:
    """features trained against a classifier of domains behind a reversed gradient"""
    from pytorch_revgrad import RevGrad
    from torch import nn

    features, labels = nn.Linear(4, 6), nn.Linear(6, 3)
    domains = nn.Sequential(RevGrad(alpha=0.3), nn.Linear(6, 2))
    net = on.weights(nn.ModuleList([features, labels, domains]))
    x, y = on.randn(8, 4), on.torch.arange(8) % 3

    def loss() -> Any:
        seen = features(x).tanh()
        return nn.functional.cross_entropy(labels(seen), y) + nn.functional.cross_entropy(
            domains(seen), y % 2
        )

    on.train(net, loss)


@package("revtorch")
def _revtorch(on: Any) -> None:
    """a sequence of reversible blocks that keeps only its output"""
    import revtorch
    from torch import nn

    def inner() -> Any:
        return nn.Sequential(nn.Linear(3, 3), nn.Tanh())

    blocks = nn.ModuleList([revtorch.ReversibleBlock(inner(), inner(), 1) for _ in range(3)])
    net = on.weights(revtorch.ReversibleSequence(blocks)).double()
    x = on.randn(4, 6).double()
    on.train(net, lambda: net(x.clone().requires_grad_() * 1).pow(2).mean())


@package("adabound")
def _adabound(on: Any) -> None:
    """AdaBound with weight decay, with and without the maximum of AMSBound"""
    import adabound
    from torch import nn

    x, y = on.randn(8, 4), on.randn(8, 2)
    for bounded in (False, True):
        net = on.weights(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)))
        chosen = adabound.AdaBound(net.parameters(), 1e-2, weight_decay=1e-2, amsbound=bounded)
        on.train(net, lambda net=net: (net(x) - y).pow(2).mean(), 5, chosen)


@package("pytorch_lamb", "tensorboardX")
def _pytorch_lamb(on: Any) -> None:
    """LAMB with trust ratios, and as Adam"""
    import pytorch_lamb
    from torch import nn

    x, y = on.randn(8, 4), on.randn(8, 2)
    for adam in (False, True):
        net = on.weights(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)))
        chosen = pytorch_lamb.Lamb(net.parameters(), lr=1e-2, weight_decay=1e-2, adam=adam)
        on.train(net, lambda net=net: (net(x) - y).pow(2).mean(), 5, chosen)


@package(
    "iTransformer", "beartype", "gateloop_transformer", "rotary_embedding_torch",
    "hyper_connections", "einops", "torch-einops-utils",
)  # fmt: skip
def _itransformer(on: Any) -> None:
    """an inverted transformer that forecasts several lengths, with normalized instances"""
    from iTransformer import iTransformer

    net = on.weights(
        iTransformer(
            num_variates=4, lookback_len=12, depth=2, dim=16, dim_head=8, heads=2,
            pred_length=(3, 6), num_tokens_per_variate=1, use_reversible_instance_norm=True,
            flash_attn=False,
        ),
        0.1,
    ).double()  # fmt: skip
    x = on.randn(2, 12, 4).double()
    targets = on.randn(2, 3, 4).double(), on.randn(2, 6, 4).double()
    on.train(net, lambda: net(x, targets=targets), 2)


@package("glom_pytorch", "einops")
def _glom(on: Any) -> None:
    """part-whole levels of an image over three iterations"""
    from glom_pytorch import Glom

    net = on.weights(Glom(dim=8, levels=3, image_size=8, patch_size=4)).double()
    x = on.randn(2, 3, 8, 8).double()
    on.train(net, lambda: net(x, iters=3).pow(2).mean())


@package("mlp_mixer_pytorch", "einops")
def _mlp_mixer(on: Any) -> None:
    """an MLP-Mixer of images"""
    from mlp_mixer_pytorch import MLPMixer

    net = on.weights(
        MLPMixer(image_size=8, channels=3, patch_size=4, dim=12, depth=2, num_classes=5)
    ).double()
    x, y = on.randn(4, 3, 8, 8).double(), on.torch.arange(4)
    on.train(net, lambda: on.torch.nn.functional.cross_entropy(net(x), y))


@package(
    "recurrent_memory_transformer_pytorch", "hyper_connections", "einops", "torch-einops-utils"
)
def _recurrent_memory(on: Any) -> None:
    """a language model of two segments, the second of which reads the first's memory"""
    from recurrent_memory_transformer_pytorch import RecurrentMemoryTransformer

    net = on.weights(
        RecurrentMemoryTransformer(
            num_tokens=11, num_memory_tokens=2, dim=16, depth=2, seq_len=6, dim_head=8, heads=2
        )
    ).double()
    x = on.torch.arange(24).reshape(2, 12) * 7 % 11

    def loss() -> Any:
        first, memories, past = net(x[:, :6])
        second, _, _ = net(x[:, 6:], memories, xl_memories=past)
        return first.pow(2).mean() + second.logsumexp(-1).mean()

    on.train(net, loss)


@package("invariant_point_attention", "einops")
def _invariant_point_attention(on: Any) -> None:
    """attention over points in frames that turn, with pair representations"""
    from invariant_point_attention import IPABlock

    net = on.weights(IPABlock(dim=16, heads=2, require_pairwise_repr=True)).double()
    x, pairs = on.randn(1, 5, 16).double(), on.randn(1, 5, 5, 16).double()
    turned = on.torch.linalg.qr(on.randn(1, 5, 3, 3).double())[0]
    moved, mask = on.randn(1, 5, 3).double(), on.torch.arange(5)[None] < 4

    def loss() -> Any:
        return (
            net(x, pairwise_repr=pairs, rotations=turned, translations=moved, mask=mask)
            .pow(2)
            .mean()
        )

    on.train(net, loss)


@package("ponder_transformer", "einops")
def _ponder(on: Any) -> None:
    """a language model that learns how many layers a token takes"""
    from ponder_transformer import PonderTransformer

    net = on.weights(
        PonderTransformer(num_tokens=11, dim=16, max_seq_len=8, dim_head=8, heads=2)
    ).double()
    x = on.torch.arange(16).reshape(2, 8) * 5 % 11
    on.train(net, lambda: net(x, labels=x))


@package("product_key_memory", "colt5_attention", "einops")
def _product_key_memory(on: Any) -> None:
    """a memory of values under products of keys"""
    from product_key_memory import PKM

    net = on.weights(PKM(dim=16, heads=2, num_keys=8, topk=4, dim_head=8)).double()
    x = on.randn(2, 5, 16).double()
    on.train(net, lambda: net(x).pow(2).mean())


@package("hamburger_pytorch", "einops")
def _hamburger(on: Any) -> None:
    """global context by a non-negative factorization, whose last steps have gradients"""
    from hamburger_pytorch import Hamburger

    on.torch.manual_seed(0)
    net = Hamburger(dim=8, n=16, ratio=4, K=3)
    on.weights(on.same_buffers(net))
    net.ham.D.data.copy_(on.randn(*net.ham.D.shape).abs())
    net.ham.C.data.copy_(on.randn(*net.ham.C.shape).abs())
    net = net.double()
    x = on.randn(2, 8, 4, 4).double()
    on.train(net, lambda: net(x).pow(2).mean())


@package("coca_pytorch", "einops")
def _coca(on: Any) -> None:
    """the contrastive and captioning losses of texts and image tokens"""
    from coca_pytorch.coca_pytorch import CoCa

    net = on.weights(
        CoCa(
            dim=16, num_tokens=11, unimodal_depth=1, multimodal_depth=1, image_dim=12,
            num_img_queries=4, dim_head=8, heads=2,
        )
    ).double()  # fmt: skip
    text, tokens = on.torch.arange(12).reshape(2, 6) * 5 % 10 + 1, on.randn(2, 9, 12).double()
    on.train(net, lambda: net(text, image_tokens=tokens, return_loss=True))


@package("halonet_pytorch", "einops")
def _halonet(on: Any) -> None:
    """attention of blocks of an image to their surroundings"""
    from halonet_pytorch import HaloAttention

    net = on.weights(HaloAttention(dim=8, block_size=4, halo_size=2, dim_head=4, heads=2)).double()
    x = on.randn(1, 8, 8, 8).double()
    on.train(net, lambda: net(x).pow(2).mean())


@package("uformer_pytorch", "einops")
def _uformer(on: Any) -> None:
    """a U-Net of window attention with times"""
    from uformer_pytorch import Uformer

    net = on.weights(
        Uformer(dim=8, stages=2, num_blocks=1, dim_head=4, window_size=4, heads=2, time_emb=True),
        0.1,
    ).double()
    x, time = on.randn(1, 3, 16, 16).double(), on.torch.tensor([3.0]).double()
    on.train(net, lambda: net(x, time=time).pow(2).mean())


@package("charformer_pytorch", "einops")
def _charformer(on: Any) -> None:
    """blocks of letters scored and pooled by gradients, with a mask"""
    from charformer_pytorch import GBST

    net = on.weights(GBST(num_tokens=11, dim=8, max_block_size=3, downsample_factor=2)).double()
    x = on.torch.arange(18).reshape(2, 9) * 5 % 11
    mask = on.torch.arange(9)[None] < on.torch.tensor([[9], [6]])
    on.train(net, lambda: net(x, mask=mask)[0].pow(2).mean())


@package("bidirectional_cross_attention", "einops")
def _bidirectional(on: Any) -> None:
    """two sequences that attend to each other, with masks and talking heads"""
    from bidirectional_cross_attention import BidirectionalCrossAttention

    net = on.weights(
        BidirectionalCrossAttention(
            dim=8, context_dim=6, heads=2, dim_head=4, talking_heads=True, prenorm=True
        )
    ).double()
    x, y = on.randn(2, 5, 8).double(), on.randn(2, 7, 6).double()
    masks = on.torch.arange(5)[None] < 4, on.torch.arange(7)[None] < 6

    def loss() -> Any:
        first, second = net(x, y, mask=masks[0].expand(2, 5), context_mask=masks[1].expand(2, 7))
        return first.pow(2).mean() + second.tanh().mean()

    on.train(net, loss)


@package(
    "En_transformer", "einops", "einx", "frozendict", "taylor-series-linear-attention", "jaxtyping"
)
def _en_transformer(on: Any) -> None:
    """a transformer of points that turn with them, with edges and neighbors"""
    from en_transformer import EnTransformer

    net = on.weights(
        EnTransformer(dim=8, depth=2, dim_head=32, heads=2, edge_dim=4, neighbors=3)
    ).double()
    feats, coors, edges = (on.randn(*s).double() for s in ((1, 6, 8), (1, 6, 3), (1, 6, 6, 4)))

    def loss() -> Any:
        x, moved = net(feats, coors, edges)
        return x.pow(2).mean() + moved.tanh().sum()

    on.train(net, loss)


@package("geometric_vector_perceptron", "torch_geometric", "einops", *_HUB)
def _gvp(on: Any) -> None:
    """layers of features and vectors that turn together, with their norms"""
    import geometric_vector_perceptron as gvp
    from torch import nn

    first = gvp.GVP(dim_vectors_in=4, dim_vectors_out=3, dim_feats_in=5, dim_feats_out=6)
    second = gvp.GVP(
        dim_vectors_in=3, dim_vectors_out=2, dim_feats_in=6, dim_feats_out=4, vector_gating=True
    )
    norm = gvp.GVPLayerNorm(6)
    net = on.weights(nn.ModuleList([first, norm, second])).double()
    feats, vectors = on.randn(7, 5).double(), on.randn(7, 4, 3).double()

    def loss() -> Any:
        a, b = second(norm(*first((feats, vectors))))
        return a.pow(2).mean() + b.tanh().sum()

    on.train(net, loss)


@package(
    "chronos-forecasting", "pandas", "transformers", "accelerate", "tokenizers", "regex", *_HUB
)
def _chronos(on: Any) -> None:
    """a small Chronos-Bolt: scaled patches of series with gaps, quantile losses, forecasts"""
    from chronos.chronos_bolt import ChronosBoltModelForForecasting
    from transformers import T5Config

    config = T5Config(
        d_model=16, d_kv=8, d_ff=32, num_layers=1, num_decoder_layers=1, num_heads=2, vocab_size=2,
        dropout_rate=0.0, feed_forward_proj="gated-gelu", decoder_start_token_id=0, pad_token_id=0,
        reg_token_id=1,
        chronos_config={
            "context_length": 32, "prediction_length": 8, "input_patch_size": 4,
            "input_patch_stride": 4, "quantiles": [0.1, 0.5, 0.9], "use_reg_token": True,
        },
    )  # fmt: skip
    net = on.weights(ChronosBoltModelForForecasting(config), 0.1)
    series = on.randn(2, 32).cumsum(1)
    series[0, :6] = float("nan")
    target = on.randn(2, 8)
    on.train(net, lambda: net(series, target=target).loss)
    on.keep(net.eval()(series).quantile_preds)

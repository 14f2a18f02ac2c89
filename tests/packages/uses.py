"""What packages built on PyTorch are tried with: a function each, its docstring says what it runs.

`tools/try_packages.py` runs each on PyTorch and on lucid_gpu. ``on`` gives weights and inputs that
are the same for both, and keeps what is compared: ``on.train`` the loss and all gradients of each
step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

USES: dict[str, tuple[Callable[[Any], None], tuple[str, ...]]] = {}


def package(name: str, *needed: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Tried with this function; what it needs beside PyTorch, NumPy and SciPy."""

    def add(use: Callable[[Any], None]) -> Callable[[Any], None]:
        USES[name] = use, needed
        return use

    return add


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
    """spherical harmonics, an equivariant linear layer and a gate"""
    from e3nn import nn, o3

    x = on.randn(6, 3)
    linear = on.weights(o3.Linear("1x0e+1x1o+1x2e", "2x0e+1x1o"))
    gate = nn.Gate("1x0e", [lambda v: v.tanh()], "1x0e", [lambda v: v.sigmoid()], "1x1o")

    def loss() -> Any:
        y = o3.spherical_harmonics([0, 1, 2], x, normalize=True)
        return gate(linear(y)).pow(2).mean()

    on.train(linear, loss)


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
    """nine networks, transforms of images, box and focal losses; without its compiled operators"""
    import torch
    import torchvision as vision

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

"""autocast beside PyTorch's: types of results, models, blocks, caches, custom functions."""

import threading

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import nn
from tests.oracle import same_error, torch_module

F32 = np.float32
RNG = np.random.default_rng(0)


def inputs(m, device):
    """Values by name: x float32, h the same in 16 bits, and others."""
    low = m.bfloat16 if device == "cpu" else m.float16
    x = m.tensor(RNG.standard_normal((4, 4)).astype(F32)).to(device)
    images = m.tensor(RNG.standard_normal((2, 4, 6, 6)).astype(F32)).to(device)
    return {
        "x": x,
        "h": x.to(low),
        "d": x.double(),
        "w": x[0],
        "p": x.sigmoid().to(low),
        "b": x[None],
        "t": m.tensor([0, 1, 2, 3]).to(device),
        "images": images,
        "small": images.to(low),
        "kernel": images[:, :, :3, :3],
    }


def f(m):
    return m.nn.functional


# name, expression, type on the CPU, type on a GPU ("low" is the 16-bit type)
OPS = {
    "mm": (lambda m, v: v["x"] @ v["x"], "low", "low"),
    "mm of double": (lambda m, v: v["d"] @ v["d"], "float64", "float64"),
    "bmm": (lambda m, v: m.bmm(v["b"], v["b"]), "low", "low"),
    "addmm": (lambda m, v: m.addmm(v["x"], v["x"], v["x"]), "low", "low"),
    "mv": (lambda m, v: m.mv(v["x"], v["w"]), "float32", "low"),
    "dot": (lambda m, v: m.dot(v["w"], v["w"]), "float32", "float32"),
    "outer": (lambda m, v: m.outer(v["w"], v["w"]), "float32", "low"),
    "linear": (lambda m, v: f(m).linear(v["x"], v["x"], v["w"]), "low", "low"),
    "conv2d": (lambda m, v: f(m).conv2d(v["images"], v["kernel"]), "low", "low"),
    "conv2d of 16 bits": (lambda m, v: f(m).conv2d(v["small"], v["kernel"]), "low", "low"),
    "attention": (
        lambda m, v: f(m).scaled_dot_product_attention(v["b"], v["b"], v["b"]),
        "low",
        "low",
    ),
    "add": (lambda m, v: v["x"] + v["h"], "float32", "float32"),
    "mul": (lambda m, v: v["h"] * v["h"], "low", "low"),
    "exp": (lambda m, v: v["h"].exp(), "low", "float32"),
    "log": (lambda m, v: m.log(v["p"]), "low", "float32"),
    "pow": (lambda m, v: v["p"] ** 2, "low", "float32"),
    "rsqrt": (lambda m, v: m.rsqrt(v["p"]), "low", "float32"),
    "sqrt": (lambda m, v: m.sqrt(v["p"]), "low", "low"),
    "sum": (lambda m, v: v["h"].sum(), "low", "float32"),
    "sum as asked": (lambda m, v: v["h"].sum(dtype=v["h"].dtype), "low", "low"),
    "mean": (lambda m, v: v["h"].mean(), "low", "low"),
    "var": (lambda m, v: v["h"].var(), "low", "low"),
    "prod": (lambda m, v: v["h"].prod(), "float32", "float32"),
    "cumsum": (lambda m, v: v["h"].cumsum(0), "low", "float32"),
    "norm": (lambda m, v: v["h"].norm(), "low", "float32"),
    "logsumexp": (lambda m, v: m.logsumexp(v["h"], 0), "low", "float32"),
    "softmax": (lambda m, v: v["h"].softmax(-1), "low", "float32"),
    "functional softmax": (lambda m, v: f(m).softmax(v["h"], -1), "low", "float32"),
    "log_softmax": (lambda m, v: f(m).log_softmax(v["h"], -1), "low", "float32"),
    "layer_norm": (lambda m, v: f(m).layer_norm(v["h"], (4,)), "low", "float32"),
    "layer_norm, weights": (
        lambda m, v: f(m).layer_norm(v["h"], (4,), v["w"], v["w"]),
        "low",
        "float32",
    ),
    "layer_norm of float32": (lambda m, v: f(m).layer_norm(v["x"], (4,)), "float32", "float32"),
    "group_norm": (lambda m, v: f(m).group_norm(v["small"], 2, v["w"]), "low", "float32"),
    "batch_norm": (
        lambda m, v: f(m).batch_norm(v["small"], None, None, v["w"], v["w"], True),
        "low",
        "low",
    ),
    "relu": (lambda m, v: f(m).relu(v["h"]), "low", "low"),
    "gelu": (lambda m, v: f(m).gelu(v["h"]), "low", "low"),
    "gelu by tanh": (lambda m, v: f(m).gelu(v["h"], approximate="tanh"), "low", "low"),
    "softplus": (lambda m, v: f(m).softplus(v["h"]), "low", "float32"),
    "mse_loss": (lambda m, v: f(m).mse_loss(v["h"], v["h"]), "float32", "float32"),
    "l1_loss": (lambda m, v: f(m).l1_loss(v["h"], v["h"]), "float32", "float32"),
    "cross_entropy": (lambda m, v: f(m).cross_entropy(v["h"], v["t"]), "float32", "float32"),
    "nll_loss": (lambda m, v: f(m).nll_loss(v["h"], v["t"]), "float32", "float32"),
    "bce with logits": (
        lambda m, v: f(m).binary_cross_entropy_with_logits(v["h"], v["p"]),
        "float32",
        "float32",
    ),
    "cat": (lambda m, v: m.cat([v["x"], v["h"]]), "float32", "float32"),
    "cat of 16 bits": (lambda m, v: m.cat([v["h"], v["h"]]), "low", "low"),
    "stack": (lambda m, v: m.stack([v["x"], v["h"]]), "float32", "float32"),
    "embedding": (lambda m, v: f(m).embedding(v["t"], v["x"]), "float32", "float32"),
    "integers": (lambda m, v: v["t"] @ v["t"], "int64", "int64"),
}


def told(value):
    return str(value).rpartition(".")[2]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", OPS)
def test_types_of_results(name, device):
    """PyTorch's on the CPU, and its documented lists on a GPU."""
    expression, on_cpu, on_gpu = OPS[name]
    with lucid_gpu.autocast(device):
        found = told(expression(lucid_gpu, inputs(lucid_gpu, device)).dtype)
    low = {"cpu": "bfloat16", "cuda": "float16"}[device]
    expected = on_cpu if device == "cpu" else on_gpu
    assert found == (low if expected == "low" else expected)
    if device == "cpu":
        torch = torch_module()
        with torch.autocast("cpu"):
            assert found == told(expression(torch, inputs(torch, "cpu")).dtype)


def transformer(m):
    class Block(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.after = m.nn.LayerNorm(16), m.nn.LayerNorm(16)
            self.qkv, self.out = m.nn.Linear(16, 48), m.nn.Linear(16, 16)
            self.up, self.down = m.nn.Linear(16, 32), m.nn.Linear(32, 16)

        def forward(self, x):
            q, k, v = self.qkv(self.before(x)).chunk(3, dim=-1)
            y = m.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y)
            return x + self.down(m.nn.functional.gelu(self.up(self.after(x))))

    return m.nn.Sequential(m.nn.Linear(6, 16), Block(), Block(), m.nn.LayerNorm(16)), (3, 5, 6)


def convolutional(m):
    layers = [
        m.nn.Conv2d(3, 8, 3, padding=1),
        m.nn.BatchNorm2d(8),
        m.nn.ReLU(),
        m.nn.MaxPool2d(2),
        m.nn.Conv2d(8, 8, 3),
        m.nn.ReLU(),
        m.nn.Flatten(),
        m.nn.Linear(8 * 2 * 2, 10),
    ]
    return m.nn.Sequential(*layers), (4, 3, 8, 8)


@pytest.mark.parametrize("make", [transformer, convolutional])
def test_models_agree_with_torch(make, device):
    """Values and gradients within what bfloat16 can tell; float32 where PyTorch has it."""
    torch = torch_module()
    torch.manual_seed(0)
    theirs, shape = make(torch)
    ours, _ = make(lucid_gpu)
    ours.load_state_dict({k: lucid_gpu.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    ours.to(device)
    x = np.random.default_rng(1).standard_normal(shape).astype(F32)
    results = []
    for m, model, where in ((torch, theirs, "cpu"), (lucid_gpu, ours, device)):
        with m.autocast(where, dtype=m.bfloat16):
            out = model(m.tensor(x).to(where))
            loss = m.nn.functional.mse_loss(out, m.zeros_like(out))
        loss.backward()
        grads = [p.grad.float().cpu().numpy() for p in model.parameters()]
        assert all(p.grad.dtype is m.float32 for p in model.parameters())
        results.append((told(out.dtype), out.detach().float().cpu().numpy(), loss.item(), grads))
    (_, value, loss, grads), (_, got, my_loss, my_grads) = results
    if device == "cpu":
        assert results[0][0] == results[1][0]
    np.testing.assert_allclose(got, value, atol=0.03, rtol=0.03)
    assert my_loss == pytest.approx(loss, rel=0.02)
    most = max(np.abs(g).max() for g in grads)  # some are zero but for rounding
    for mine, other in zip(my_grads, grads, strict=True):
        np.testing.assert_allclose(mine, other, atol=0.01 * most, rtol=0.05)


def test_blocks_nest_and_end():
    x = lucid_gpu.ones(2, 2)
    code = lucid_gpu.matmul.__code__
    kinds = []
    with lucid_gpu.autocast("cpu", dtype=lucid_gpu.float16):
        kinds.append((x @ x).dtype)
        with lucid_gpu.autocast("cpu", enabled=False):
            kinds.append((x @ x).dtype)
            with lucid_gpu.amp.autocast("cpu"):
                kinds.append((x @ x).dtype)
        kinds.append((x @ x).dtype)
        assert lucid_gpu.is_autocast_enabled("cpu")
        assert lucid_gpu.get_autocast_dtype("cpu") is lucid_gpu.float16
    assert [told(k) for k in kinds] == ["float16", "float32", "float16", "float16"]
    assert (x @ x).dtype is lucid_gpu.float32
    assert lucid_gpu.matmul.__code__ is code and not lucid_gpu.is_autocast_enabled("cpu")
    assert lucid_gpu.get_autocast_dtype("cpu") is lucid_gpu.bfloat16


def test_an_error_ends_the_block():
    code = lucid_gpu.matmul.__code__
    with pytest.raises(ZeroDivisionError), lucid_gpu.autocast("cpu"):
        1 / 0
    assert lucid_gpu.matmul.__code__ is code


def test_decorator():
    @lucid_gpu.autocast("cpu")
    def product(x, power):
        return x @ x if power == 2 else product(x, power - 1) @ x

    x = lucid_gpu.ones(2, 2)
    assert product(x, 3).dtype is lucid_gpu.bfloat16
    assert (x @ x).dtype is lucid_gpu.float32


def test_other_threads_are_not_cast():
    x, found = lucid_gpu.ones(2, 2), []
    with lucid_gpu.autocast("cpu"):
        thread = threading.Thread(target=lambda: found.append((x @ x).dtype))
        thread.start()
        thread.join()
    assert found == [lucid_gpu.float32]


def test_a_parameter_is_cast_once_until_it_is_written(device):
    weight = nn.Parameter(lucid_gpu.ones(2, 2, device=device))
    x = lucid_gpu.ones(2, 2, device=device)
    cached = lucid_gpu.amp.state.state.cached
    with lucid_gpu.autocast(device):
        first = x @ weight
        (again,) = [kept for _, _, kept in cached.values()]
        x @ weight
        assert [kept for _, _, kept in cached.values()] == [again]
        with lucid_gpu.no_grad():
            weight.add_(1)
        second = x @ weight
    assert not cached
    assert first.tolist()[0] == [2, 2] and second.tolist()[0] == [4, 4]
    (first.sum() + second.sum()).backward()
    assert weight.grad.tolist() == [[4, 4], [4, 4]] and weight.grad.dtype is lucid_gpu.float32


def test_together_with_vmap():
    x = lucid_gpu.randn(3, 2, 2)
    with lucid_gpu.autocast("cpu"):
        inside = lucid_gpu.vmap(lambda a: a @ a)(x)

    def opening(a):
        with lucid_gpu.autocast("cpu"):
            return a @ a

    for found in (inside, lucid_gpu.vmap(opening)(x)):
        assert found.dtype is lucid_gpu.bfloat16 and found.shape == (3, 2, 2)
    assert lucid_gpu.vmap(lambda a: a @ a)(x).dtype is lucid_gpu.float32


@pytest.mark.parametrize("cast_inputs", [None, "float32"])
def test_custom_functions(cast_inputs):
    def outcome(m):
        class Product(m.autograd.Function):
            @staticmethod
            @m.amp.custom_fwd(
                device_type="cpu", cast_inputs=cast_inputs and getattr(m, cast_inputs)
            )
            def forward(ctx, a, b):
                ctx.save_for_backward(a, b)
                return a @ b

            @staticmethod
            @m.amp.custom_bwd(device_type="cpu")
            def backward(ctx, g):
                told_types.append(told((g @ g).dtype))
                a, b = ctx.saved_tensors
                return (g @ b.t()).to(a.dtype), (a.t() @ g).to(b.dtype)

        told_types = []
        a, b = (m.ones(2, 2, requires_grad=True) for _ in range(2))
        with m.autocast("cpu"):
            out = Product.apply(a, b.to(m.bfloat16))
        out.sum().backward()
        return told(out.dtype), told_types, told(a.grad.dtype), told(b.grad.dtype)

    assert outcome(lucid_gpu) == outcome(torch_module())


def test_custom_functions_whose_forward_has_no_ctx():
    def outcome(m):
        @m.amp.custom_fwd(device_type="cpu", cast_inputs=m.float32)
        def forward(a, b):
            return a @ b

        a = m.ones(2, 2, dtype=m.bfloat16)
        with m.autocast("cpu"):
            return told(forward(a, a).dtype)

    assert outcome(lucid_gpu) == outcome(torch_module())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.autocast(3), "Expected `device_type` of type `str`, got: `<class 'int'>`"),
        (lambda m: m.autocast("tpu"), "User specified an unsupported autocast device_type 'tpu'"),
        (lambda m: m.autocast("cpu")(3), "requires a callable, but got int"),
        (lambda m: m.amp.custom_fwd(device_type=3), "Expected `device_type` of type `str`"),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(call, words)


def test_another_type_disables_it():
    with pytest.warns(UserWarning, match="the target dtype is not supported. Disabling autocast"):
        mode = lucid_gpu.autocast("cpu", dtype=lucid_gpu.float64)
    with mode:
        assert not lucid_gpu.is_autocast_enabled("cpu")


def test_older_names():
    from lucid_gpu.cuda.amp import GradScaler, autocast

    with pytest.warns(FutureWarning, match="Please use `lucid_gpu.amp.autocast"):
        assert isinstance(autocast(enabled=False), lucid_gpu.amp.autocast)
    with pytest.warns(FutureWarning, match="Please use `lucid_gpu.amp.GradScaler"):
        assert isinstance(GradScaler(enabled=False), lucid_gpu.amp.GradScaler)


def test_the_cache_is_on_or_off() -> None:
    same_error(lambda m: m.set_autocast_cache_enabled(m.ones(2)), "enabled must be a bool")
    assert lucid_gpu.is_autocast_cache_enabled() is True

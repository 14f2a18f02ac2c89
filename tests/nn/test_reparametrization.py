"""Weights made of others, parameters as a vector, fused layers: PyTorch's, from equal weights."""

import copy
import pickle

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import nn
from tests.oracle import gives, modules, plain, same_error, torch_module

normal = np.random.default_rng(0).standard_normal
X = normal((5, 3))
W = normal((4, 3))


def linear(m, where="cpu"):
    made = m.nn.Linear(3, 4, bias=False).double()
    with m.no_grad():
        made.weight.copy_(m.tensor(W))
    return made.to(where)


@pytest.mark.filterwarnings("ignore:.torch.nn.utils.weight_norm")
@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize("old", [True, False])
def test_weight_norm(dim, old, device):
    found = []
    for m, where in modules(device):
        utils = m.nn.utils
        norm = utils.weight_norm if old else utils.parametrizations.weight_norm
        net = norm(linear(m, where), dim=dim)
        before = plain(net(m.tensor(X).to(where)))
        net(m.tensor(X).to(where)).square().sum().backward()
        names = [(k, tuple(p.shape), plain(p.grad)) for k, p in net.named_parameters()]
        if old:
            utils.remove_weight_norm(net)
        else:
            utils.parametrize.remove_parametrizations(net, "weight")
        found.append((before, names, list(net.state_dict()), plain(net.weight), type(net).__name__))
    for name, *values in zip(("before", "names", "keys", "weight", "type"), *found):
        if len(values) == 2 and name in ("before", "weight"):
            np.testing.assert_allclose(*values, rtol=1e-9)
        elif len(values) == 2 and name == "names":
            for (key, shape, g), (also, other, h) in zip(*values):
                assert (key, shape) == (also, other)
                np.testing.assert_allclose(g, h, rtol=1e-7, atol=1e-9)
        else:
            assert all(v == values[0] for v in values)


@pytest.mark.parametrize("old", [True, False])
def test_spectral_norm(old, device):
    largest = np.linalg.svd(W)[1][0]
    for m, where in modules(device):
        utils = m.nn.utils
        norm = utils.spectral_norm if old else utils.parametrizations.spectral_norm
        net = norm(linear(m, where), n_power_iterations=30)
        y = net(m.tensor(X).to(where))
        np.testing.assert_allclose(plain(y), X @ (W / largest).T, rtol=1e-6)
        y.square().sum().backward()
        (grad,) = (p.grad for p in net.parameters())
        assert abs(float((grad.cpu() * m.tensor(W)).sum())) < 1e-6  # scale does not matter
        assert [k.rpartition(".")[2] for k in net.state_dict()] == (
            ["weight_orig", "weight_u", "weight_v"] if old else ["original", "_u", "_v"]
        )
        net.eval()
        assert plain(net(m.tensor(X).to(where))) == plain(net(m.tensor(X).to(where)))
        if old:
            utils.remove_spectral_norm(net)
            assert list(net.state_dict()) == ["weight"]


@pytest.mark.parametrize("old", [True, False])
def test_spectral_norm_follows_as_pytorch_does(old, device):
    torch = torch_module()

    def layer(m):
        class Up(m.nn.ConvTranspose1d):
            pass

        norm = m.nn.utils.spectral_norm if old else m.nn.utils.parametrizations.spectral_norm
        return norm(Up(3, 2, 2).double())

    start = layer(torch)
    state = {k: v.numpy().copy() for k, v in start.state_dict().items()}
    found = []
    for m, where in modules(device):
        net = layer(m).to(where)
        net.load_state_dict({k: m.from_numpy(v.copy()) for k, v in state.items()})
        x = m.ones(1, 3, 4, dtype=m.float64).to(where)
        losses = []
        for _ in range(3):
            losses.append(plain(net(x)))
            net(x).square().sum().backward()
        net.eval()
        losses.append(plain(net(x)))
        found.append([*losses, *[plain(p.grad) for p in net.parameters()]])
        if old:
            net.train()
            weight = plain(net.weight)
            assert plain(m.nn.utils.remove_spectral_norm(net).weight) == weight
    for mine, theirs in zip(*found):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9)


def test_spectral_norm_takes_state_dicts_of_old():
    """Files of before PyTorch 1.0 hold the weight, and no ``v``: their metadata has no version."""
    results = []
    for m, _ in modules():
        utils = m.nn.utils
        net = utils.spectral_norm(m.nn.Linear(3, 2, bias=False).double(), n_power_iterations=50)
        net.weight_orig.data = m.tensor(W[:2, :3].copy())
        x = m.ones(1, 3, dtype=m.float64)
        state = (net(x), net.state_dict())[1]
        versions = copy.deepcopy(state._metadata)
        state["weight"] = net.weight.detach().clone()
        v = state.pop("weight_v")
        del state._metadata[""]["spectral_norm"]
        other = utils.spectral_norm(m.nn.Linear(3, 2, bias=False).double())
        other.load_state_dict(state)
        other.eval()
        results.append([versions, list(other.state_dict()), plain(other(x))])
        np.testing.assert_allclose(plain(other.weight_v), plain(v), rtol=1e-6)
        del state["weight_u"]
        with pytest.raises(RuntimeError, match="Missing key"):
            other.load_state_dict(state)
        again = utils.spectral_norm(utils.remove_spectral_norm(net))
        assert again.state_dict()._metadata == versions
    outputs = [r.pop() for r in results]
    np.testing.assert_allclose(outputs[0], outputs[-1], rtol=1e-7)
    assert results[0] == results[-1]


def test_weight_norm_takes_state_dicts_of_old():
    def run(m, where):
        net = m.nn.Sequential(m.nn.utils.parametrizations.weight_norm(m.nn.Linear(2, 3)))
        old = {"0.bias": m.zeros(3), "0.weight_g": m.ones(3, 1), "0.weight_v": m.ones(3, 2)}
        return list(map(len, net.load_state_dict(old))), (net[0].weight * 2**0.5).round()

    gives([[0, 0], [[1.0, 1.0]] * 3], run)


def test_parametrizations_of_ones_own():
    def run(m, where):
        parametrize = m.nn.utils.parametrize

        class Symmetric(m.nn.Module):
            def forward(self, x):
                return x.triu() + x.triu(1).transpose(-1, -2)

            def right_inverse(self, a):
                return a.triu()

        net = m.nn.Linear(3, 3, bias=False)
        parametrize.register_parametrization(net, "weight", Symmetric())
        net.weight = m.arange(9.0).reshape(3, 3)
        with parametrize.cached():
            same = net.weight is net.weight
        other = copy.deepcopy(net)
        other.load_state_dict(net.state_dict())
        copied = other.weight
        told = repr(net), parametrize.is_parametrized(net, "weight"), type(net).__name__
        names = [k for k, _ in net.named_parameters()]
        parametrize.register_parametrization(net, "weight", m.nn.Identity())
        value = net.weight
        parametrize.remove_parametrizations(net, "weight")
        after = repr(net), parametrize.is_parametrized(net), net.weight, copied
        return (same, *told, names, value, *after)

    found = [plain(run(m, where)) for m, where in modules()]
    assert all(f == found[0] for f in found)
    assert found[0][0] is True


@pytest.mark.parametrize("trivial", [True, False])
@pytest.mark.parametrize("kind", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4)])
def test_orthogonal(kind, shape, trivial, device):
    torch_module()
    found, base = [], {}
    start = normal(shape)
    for m, where in reversed(modules(device)):
        net = m.nn.Linear(shape[1], shape[0], bias=False).double().to(where)
        kept = net.weight
        with m.no_grad():
            kept.copy_(m.tensor(start))
        m.nn.utils.parametrizations.orthogonal(net, "weight", kind, use_trivialization=trivial)
        if trivial:  # PyTorch's, which is random where the matrix is not square
            orth = net.parametrizations.weight[0]
            orth.base.copy_(m.tensor(base.setdefault("base", orth.base.cpu().numpy())))
        optimizer, losses = m.optim.SGD(net.parameters(), lr=0.1), []
        for _ in range(3):
            loss = (net(m.tensor(X[:, [0, 1, 2, 0]][:, : shape[1]]).to(where)) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        Q = net.weight if shape[0] >= shape[1] else net.weight.mT
        np.testing.assert_allclose(plain(Q.mT @ Q), np.eye(min(shape)), atol=1e-12)
        same = net.parametrizations.weight.original is kept
        m.nn.utils.parametrize.remove_parametrizations(net, "weight")
        found.append((losses, plain(net.weight), same, net.weight is kept))
    for mine, theirs in zip(*found):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)


def test_orthogonal_weights_are_kept_and_assigned():
    def run(m, where):
        net = m.nn.utils.parametrizations.orthogonal(m.nn.Linear(3, 3).double())
        Q = m.linalg.qr(m.tensor(W[:3]))[0]
        net.weight = Q
        return list(net.state_dict()), repr(net), bool(((net.weight - Q).abs() < 1e-12).all())

    first, *rest = [run(m, where) for m, where in modules()]
    assert first[2]
    assert all(r == first for r in rest)


def test_parameters_as_a_vector(device):
    def run(m, where):
        net = m.nn.Sequential(linear(m, where), linear(m, where))
        vector = m.nn.utils.parameters_to_vector(net.parameters())
        m.nn.utils.vector_to_parameters(vector.detach() * 2, net.parameters())
        return tuple(vector.shape), net[1].weight

    gives([[24], (W * 2).tolist()], run, device)


def test_layers_fused_with_batch_norm(device):
    net = nn.Sequential(nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3)).to(device)
    net[1].running_mean.normal_()
    net[1].running_var.uniform_(0.5, 2)
    net.eval()
    x = lucid_gpu.randn(2, 2, 4, 4, device=device)
    fused = nn.utils.fuse_conv_bn_eval(*net)
    np.testing.assert_allclose(
        fused(x).detach().cpu().numpy(), net(x).detach().cpu().numpy(), rtol=1e-4, atol=1e-5
    )
    made = nn.utils.skip_init(nn.Linear, 3, 2)
    assert type(made) is nn.Linear
    assert made.weight.shape == (2, 3)


@pytest.mark.filterwarnings("ignore:.torch.nn.utils.weight_norm")
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda u, net: u.remove_weight_norm(net), "weight_norm of 'weight' not found in Linear("),
        (lambda u, net: u.remove_spectral_norm(net), "spectral_norm of 'weight' not found in Lin"),
        (lambda u, net: u.weight_norm(u.weight_norm(net)), "Cannot register two weight_norm hooks"),
        (lambda u, net: u.weight_norm(net, "foo"), "'Linear' object has no attribute 'foo'"),
        (lambda u, net: u.parameters_to_vector([]), "expected a non-empty list of Tensors"),
        (lambda u, net: u.vector_to_parameters([1], []), "but got: list"),
        (lambda u, net: u.vector_to_parameters(net.weight[0], net.parameters()), "is invalid"),
        (
            lambda u, net: u.spectral_norm(net, n_power_iterations=0),
            "Expected n_power_iterations to be",
        ),
        (lambda u, net: u.parametrizations.spectral_norm(net, "foo"), "has no parameter or buffer"),
        (lambda u, net: u.parametrizations.orthogonal(net, "foo"), "has no parameter or buffer"),
        (lambda u, net: u.parametrizations.orthogonal(net, "weight", "x"), "has to be one of"),
        (
            lambda u, net: u.parametrize.remove_parametrizations(net, "x"),
            "does not have a",
        ),
        (
            lambda u, net: u.parametrize.register_parametrization(net, "x", net),
            "does not have",
        ),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(lambda m: call(m.nn.utils, linear(m)), words)


def made_by(m, forward, right_inverse):
    body = {"forward": forward, "right_inverse": right_inverse}
    return type("Given", (m.nn.Module,), body)()


@pytest.mark.parametrize("further", [False, True])
@pytest.mark.parametrize(
    ("forward", "inverse"),
    [
        (lambda s, x: x, lambda s, w: None),
        (lambda s, x: x, lambda s, w: w.bool()),
        (lambda s, x: x, lambda s, w: w[:-1]),
        (lambda s, x: x.bool(), lambda s, w: w),
        (lambda s, *x: x[0], lambda s, w: (None, w)),
        (lambda s, *x: x, lambda s, w: w),
        (lambda s, *x: x[0], lambda s, w: (w, w)),
    ],
)
def test_inverses_that_do_not_fit(forward, inverse, further):
    """The error is PyTorch's kind, and the module stays as it was."""
    found = []
    for m, _ in modules():
        net, u = linear(m), m.nn.utils.parametrize
        if further:
            u.register_parametrization(net, "weight", m.nn.Identity())
        try:
            u.register_parametrization(net, "weight", made_by(m, forward, inverse))
            told = None
        except Exception as error:
            told = type(error).__name__
        if m is lucid_gpu and told and not further:  # PyTorch has changed the weight by then
            np.testing.assert_array_equal(net.weight.numpy(force=True), W)
        found.append((told, u.is_parametrized(net), sorted(net.state_dict())))
    assert all(f == found[0] for f in found)


def test_parametrizations_of_another_module():
    def run(m, where):
        u = m.nn.utils.parametrize
        net, other = (m.nn.Linear(2, 2).to(where) for _ in "ab")
        twice = made_by(m, lambda s, x: x * 2, lambda s, w: w / 2)
        u.register_parametrization(net, "weight", twice)
        u.register_parametrization(net, "bias", m.nn.Identity())
        with pytest.raises(RuntimeError, match="only supported through state_dict"):
            pickle.dumps(net)
        u.transfer_parametrizations_and_params(net, other)
        m.nn.utils.parametrize.remove_parametrizations(other, "bias")
        same = bool((other.weight == net.weight).all()), bool((other.bias == net.bias).all())
        return same, sorted(other.state_dict()), u.is_parametrized(net, "bias")

    gives([[True, True], ["bias", "parametrizations.weight.original"], True], run)


def test_a_parametrization_keeps_the_shape():
    torch_module()
    for m, _ in modules():
        with pytest.raises(ValueError, match="may not change the shape of the tensor, unless"):
            m.nn.utils.parametrize.register_parametrization(linear(m), "weight", m.nn.Flatten(0))

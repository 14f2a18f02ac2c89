"""Layers that learn the size of their input from the first one."""

import copy
import pickle

import numpy as np
import pytest

import lucid_gpu
from tests.oracle import modules, same_error, torch_module

LAYERS = {
    "LazyLinear": ((3,), (2, 5)),
    "LazyConv1d": ((4, 3, 2), (2, 6, 7)),
    "LazyConv2d": ((4, 3, 1, 1, 1, 2, False), (2, 6, 5, 5)),
    "LazyConv3d": ((4, 2), (6, 4, 4, 4)),
    "LazyConvTranspose1d": ((4, 3), (2, 6, 7)),
    "LazyConvTranspose2d": ((4, 3, 2, 1, 1, 2), (6, 5, 5)),
    "LazyConvTranspose3d": ((4, 2), (6, 4, 4, 4)),
    "LazyBatchNorm1d": ((), (2, 3)),
    "LazyBatchNorm2d": ((1e-3, None), (2, 3, 4, 4)),
    "LazyBatchNorm3d": ((1e-3, 0.1, False), (2, 3, 4, 4, 2)),
    "LazyInstanceNorm1d": ((), (2, 3, 4)),
    "LazyInstanceNorm2d": ((1e-3, 0.1, True, False), (2, 3, 4, 4)),
    "LazyInstanceNorm3d": ((1e-3, 0.1, False), (2, 3, 4, 4, 2)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_becomes_torchs_layer(name, device):
    settings, shape = LAYERS[name]
    told = []
    for m, where in modules(device):
        layer = getattr(m.nn, name)(*settings)
        if where != "cpu":
            layer = layer.to(where)
        before = repr(layer), list(layer.state_dict()), [repr(p) for p in layer.parameters()]
        x = m.zeros(shape, device=where)
        assert layer.has_uninitialized_params()
        lazy = m.nn.parameter.is_lazy
        assert any(map(lazy, [*layer.parameters(), *layer.buffers()]))
        y = layer(x)
        assert not any(map(lazy, [*layer.parameters(), *layer.buffers(), None]))
        assert type(layer) is getattr(m.nn, name[4:])
        state = {k: tuple(v.shape) for k, v in layer.state_dict().items()}
        told.append((before, repr(layer), state, tuple(y.shape)))
        assert all(p.requires_grad and p.device.type == where for p in layer.parameters())
        layer(x)
    assert all(one == told[0] for one in told)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_first_call_of_a_transposed_convolution_takes_the_size_of_its_output(rank, named):
    for m, _ in modules():
        layer = getattr(m.nn, f"LazyConvTranspose{rank}d")(4, 3, stride=2)
        x, size = m.ones((2, 3) + (5,) * rank), [12] * rank
        y = layer(x, output_size=size) if named else layer(x, size)
        assert tuple(y.shape) == (2, 4, *size)
        assert layer.in_channels == 3


@pytest.mark.parametrize("convert", ["double", "half", "to"])
def test_its_type_is_changed_before_the_first_call(convert):
    for m, _ in modules():
        layer = m.nn.LazyBatchNorm1d()
        given = [m.float64] if convert == "to" else []
        layer = getattr(layer, convert)(*given)
        kind = m.float16 if convert == "half" else m.float64
        layer(m.ones(3, 4, dtype=kind))
        state = layer.running_mean, layer.weight, layer.running_var
        assert [t.dtype for t in state] == [kind] * 3


def test_state_is_loaded_before_the_first_call():
    for m, _ in modules():
        source = m.nn.Sequential(m.nn.Linear(5, 3), m.nn.BatchNorm1d(3))
        model, twin = (
            m.nn.Sequential(m.nn.LazyLinear(3), m.nn.LazyBatchNorm1d()) for _ in range(2)
        )
        twin.load_state_dict(model.state_dict())  # still lazy
        assert twin[0].has_uninitialized_params()
        model.load_state_dict(source.state_dict())
        assert not model[0].has_uninitialized_params()
        model(m.zeros(2, 5))
        assert model[0].in_features == 5
        assert m.equal(model[0].weight, source[0].weight)


def test_parameters_stay_the_objects_that_optimizers_hold():
    layer = lucid_gpu.nn.LazyLinear(3).double()
    optimizer = lucid_gpu.optim.SGD(layer.parameters(), lr=1.0)
    assert layer.weight.dtype is lucid_gpu.float64
    layer(lucid_gpu.ones(2, 5).double()).sum().backward()
    before = layer.weight.detach().numpy().copy()
    optimizer.step()
    np.testing.assert_allclose(layer.weight.detach().numpy(), before - 2)


def test_every_optimizer_takes_parameters_without_shapes():
    for name in ("Adadelta", "AdamW", "ASGD", "LBFGS", "RMSprop", "Rprop", "SGD"):
        layer = lucid_gpu.nn.LazyLinear(1)
        optimizer = getattr(lucid_gpu.optim, name)(layer.parameters(), lr=0.1)
        x = lucid_gpu.ones(2, 3)
        layer(x)

        def closure(layer=layer, x=x, optimizer=optimizer):
            optimizer.zero_grad()
            loss = (layer(x) - 5).square().sum()
            loss.backward()
            return loss

        before = closure().item()
        optimizer.step(closure)
        assert closure().item() < before, name


def test_a_lazy_layer_is_copied():
    layer = lucid_gpu.nn.LazyBatchNorm1d()
    other = copy.deepcopy(layer)
    other(lucid_gpu.zeros(2, 3))
    assert other.weight.shape == (3,) and layer.has_uninitialized_params()


def test_first_values_are_drawn_as_a_layers():
    lucid_gpu.manual_seed(0)
    lazy = lucid_gpu.nn.LazyConv2d(4, 3)
    lazy(lucid_gpu.zeros(1, 2, 5, 5))
    lucid_gpu.manual_seed(0)
    assert lucid_gpu.equal(lazy.weight, lucid_gpu.nn.Conv2d(2, 4, 3).weight)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.nn.LazyConv2d(4, 3)(m.zeros(5, 5)), "(batched) input to LazyConv2d"),
        (lambda m: m.nn.LazyConv2d(4, 3, groups=2)(m.zeros(1, 5, 5, 5)), "divisible by groups"),
        (lambda m: m.nn.LazyBatchNorm2d()(m.zeros(5, 5)), "expected 4D input"),
        (lambda m: m.nn.LazyInstanceNorm2d()(m.zeros(5, 5)), "expected 3D or 4D input"),
        (lambda m: m.nn.utils.weight_norm(m.nn.LazyLinear(3)), "can't have uninitialized param"),
        (lambda m: m.nn.utils.spectral_norm(m.nn.LazyLinear(3)), "can't have uninitialized param"),
        (lambda m: m.nn.LazyLinear(3).weight.shape, "Can't access the shape of an uninit"),
        (
            lambda m: m.nn.Linear(5, 3).load_state_dict(m.nn.LazyLinear(3).state_dict()),
            "Can't access the shape of an uninit",
        ),
    ],
)
def test_errors_are_torchs(call, words):
    torch_module()
    same_error(call, words)


def _scale(m):
    class Scale(m.nn.modules.lazy.LazyModuleMixin, m.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = m.nn.UninitializedParameter()

        def initialize_parameters(self, x):
            if self.has_uninitialized_params():
                with m.no_grad():
                    self.weight.materialize(x.shape[-1:])
                    self.weight.fill_(2.0)

        def forward(self, x):
            return x * self.weight

    return Scale()


def test_a_users_lazy_module_learns_its_shapes():
    for m, _ in modules():
        scale = _scale(m)
        assert scale.has_uninitialized_params()
        assert scale(m.ones(2, 3)).tolist() == [[2, 2, 2]] * 2
        assert type(scale).__name__ == "Scale" and not scale.has_uninitialized_params()
        assert not scale._forward_pre_hooks


def test_a_module_that_stays_without_shapes_is_refused():
    class Nothing(lucid_gpu.nn.modules.lazy.LazyModuleMixin, lucid_gpu.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = lucid_gpu.nn.UninitializedParameter()

        def initialize_parameters(self, x):
            pass

    with pytest.raises(RuntimeError, match="module Nothing has not been fully initialized"):
        Nothing()(lucid_gpu.ones(2))


def test_a_lazy_layer_is_pickled():
    layer = pickle.loads(pickle.dumps(lucid_gpu.nn.LazyLinear(3, dtype=lucid_gpu.float64)))
    assert layer(lucid_gpu.ones(1, 2).double()).shape == (1, 3)
    assert type(layer) is lucid_gpu.nn.Linear and layer.weight.requires_grad


USES = {
    "add": lambda m, p: p + 1,
    "reversed": lambda m, p: 2 * p,
    "empty_like": lambda m, p: m.empty_like(p),
    "full_like": lambda m, p: m.full_like(p, 2.0),
    "rand_like": lambda m, p: m.rand_like(p),
    "ones_like": lambda m, p: m.ones_like(p),
    "matmul": lambda m, p: m.ones(2, 2) @ p,
    "linear": lambda m, p: m.nn.functional.linear(m.ones(2, 2), p),
    "equal": lambda m, p: p == 1,
    "view": lambda m, p: p.view(1),
    "clone": lambda m, p: p.clone(),
    "tolist": lambda m, p: p.tolist(),
    "bool": lambda m, p: bool(p),
    "len": lambda m, p: len(p),
    "numel": lambda m, p: p.numel(),
    "zero_": lambda m, p: p.zero_(),
    "zeros_": lambda m, p: m.nn.init.zeros_(p),
    "cat": lambda m, p: m.cat([p, p]),
    "numpy": lambda m, p: np.asarray(p),
    "exp": lambda m, p: m.exp(p),
    "backward": lambda m, p: p.backward(),
}


@pytest.mark.parametrize("kind", ["UninitializedParameter", "UninitializedBuffer"])
@pytest.mark.parametrize("use", USES)
def test_ops_refuse_what_has_no_shape_yet(use, kind):
    for m, _ in modules():
        with pytest.raises(ValueError, match="Attempted to use an uninitialized parameter"):
            USES[use](m, getattr(m.nn.parameter, kind)())


def test_a_type_and_a_place_are_known_before_the_shape():
    for m, _ in modules():
        p = m.nn.parameter.UninitializedParameter(dtype=m.float64)
        assert p.dtype is m.float64 and p.device.type == "cpu" and p.is_leaf and p.requires_grad
        assert p.half().dtype is m.float16 and p.is_floating_point() and p.grad is None
        m.optim.SGD([p], lr=0.1)
        p.materialize((2, 3))
        assert type(p) is m.nn.Parameter and p.shape == (2, 3) and (p + 1).requires_grad

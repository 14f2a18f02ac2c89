"""Each layer: the same weights give PyTorch's values, gradients, repr and first values' spread."""

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import nn
from tests.oracle import agree, modules, same_error, torch_module

normal = np.random.default_rng(0).standard_normal

LAYERS = {
    "Linear": (lambda m: m.nn.Linear(4, 3), normal((2, 5, 4))),
    "Linear without bias": (lambda m: m.nn.Linear(4, 3, bias=False), normal((5, 4))),
    "Conv2d": (lambda m: m.nn.Conv2d(3, 4, 3), normal((2, 3, 6, 5))),
    "Conv2d with all": (
        lambda m: m.nn.Conv2d(4, 6, (3, 2), 2, (1, 0), dilation=2, groups=2, bias=False),
        normal((3, 4, 8, 9)),
    ),
    "Conv2d same": (lambda m: m.nn.Conv2d(2, 2, 3, padding="same"), normal((3, 2, 4, 4))),
    "Conv1d": (lambda m: m.nn.Conv1d(3, 4, 3, 2, 1), normal((2, 3, 6))),
    "MaxPool1d": (lambda m: m.nn.MaxPool1d(2), normal((2, 3, 6))),
    "AvgPool1d": (lambda m: m.nn.AvgPool1d(3, 2, 1), normal((2, 3, 6))),
    "Unfold": (lambda m: m.nn.Unfold(2, padding=1), normal((2, 3, 4, 5))),
    "Fold": (lambda m: m.nn.Fold((4, 5), 2, stride=(2, 1)), normal((2, 12, 8))),
    "MaxPool2d": (lambda m: m.nn.MaxPool2d(2), normal((2, 3, 6, 5))),
    "MaxPool2d with all": (lambda m: m.nn.MaxPool2d(3, 2, 1, ceil_mode=True), normal((2, 3, 6, 5))),
    "AvgPool2d": (lambda m: m.nn.AvgPool2d(2, padding=1), normal((2, 3, 6, 5))),
    "LayerNorm": (lambda m: m.nn.LayerNorm(5), normal((3, 5))),
    "LayerNorm over two": (lambda m: m.nn.LayerNorm((3, 5), bias=False), normal((2, 3, 5))),
    "LayerNorm plain": (
        lambda m: m.nn.LayerNorm(5, eps=1e-3, elementwise_affine=False),
        normal((3, 5)),
    ),
    "BatchNorm1d": (lambda m: m.nn.BatchNorm1d(4), normal((6, 4))),
    "BatchNorm1d of sequences": (lambda m: m.nn.BatchNorm1d(4, momentum=None), normal((3, 4, 5))),
    "BatchNorm2d": (lambda m: m.nn.BatchNorm2d(3, affine=False), normal((2, 3, 4, 4))),
    "BatchNorm2d untracked": (
        lambda m: m.nn.BatchNorm2d(3, track_running_stats=False),
        normal((2, 3, 4, 4)),
    ),
    "BatchNorm2d evaluating": (lambda m: m.nn.BatchNorm2d(3).eval(), normal((2, 3, 4, 4))),
    "BatchNorm3d": (lambda m: m.nn.BatchNorm3d(2), normal((2, 2, 3, 2, 2))),
    "GroupNorm": (lambda m: m.nn.GroupNorm(2, 4), normal((3, 4, 5))),
    "GroupNorm plain": (lambda m: m.nn.GroupNorm(2, 4, affine=False), normal((3, 4, 2, 2))),
    "GroupNorm without bias": (lambda m: m.nn.GroupNorm(1, 4, bias=False), normal((3, 4))),
    "InstanceNorm1d": (lambda m: m.nn.InstanceNorm1d(3), normal((2, 3, 5))),
    "InstanceNorm1d unbatched": (lambda m: m.nn.InstanceNorm1d(3, affine=True), normal((3, 5))),
    "InstanceNorm2d tracking": (
        lambda m: m.nn.InstanceNorm2d(3, affine=True, track_running_stats=True),
        normal((2, 3, 4, 3)),
    ),
    "InstanceNorm3d evaluating": (
        lambda m: m.nn.InstanceNorm3d(2, track_running_stats=True).eval(),
        normal((2, 2, 2, 3, 2)),
    ),
    "LocalResponseNorm": (lambda m: m.nn.LocalResponseNorm(3, 0.5, 0.7, 2.0), normal((2, 4, 3))),
    "LocalResponseNorm, even": (lambda m: m.nn.LocalResponseNorm(2), normal((2, 4, 3, 2))),
    "Dropout evaluating": (lambda m: m.nn.Dropout(0.3).eval(), normal((3, 4))),
    "Embedding": (lambda m: m.nn.Embedding(5, 3), np.array([[0, 4], [2, 2]])),
    "Embedding with padding": (lambda m: m.nn.Embedding(5, 3, padding_idx=-1), np.array([4, 1])),
    "Flatten": (lambda m: m.nn.Flatten(), normal((2, 3, 4))),
    "Unflatten": (lambda m: m.nn.Unflatten(1, (2, 3)), normal((4, 6))),
    "Identity": (lambda m: m.nn.Identity(54, unused=1), normal((2,))),
}


@pytest.mark.parametrize("name", LAYERS)
def test_agrees_with_torch(name, device):
    make, x = LAYERS[name]
    torch = torch_module()
    theirs, ours = make(torch).double(), make(lucid_gpu).double().to(device)
    ours.load_state_dict({k: lucid_gpu.tensor(v.numpy()) for k, v in theirs.state_dict().items()})

    def run(m, x):
        return (theirs if m is torch else ours)(x)

    agree(run, x, device=device)
    mine, other = ours(lucid_gpu.tensor(x).to(device)), theirs(torch.tensor(x))
    if list(ours.parameters()):
        mine.square().sum().backward()
        other.square().sum().backward()
        for p, q in zip(ours.parameters(), theirs.parameters()):
            np.testing.assert_allclose(p.grad.cpu().numpy(), q.grad.numpy(), rtol=1e-6, atol=1e-6)
    for key, value in theirs.state_dict().items():  # running figures
        np.testing.assert_allclose(ours.state_dict()[key].cpu().numpy(), value.numpy(), rtol=1e-6)


@pytest.mark.parametrize("channels", [1, 2, 4, 9])
@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_cross_map_norm_has_pytorchs_windows(size, channels, device):
    x = normal((2, channels, 2, 1))
    values = [
        m.nn.CrossMapLRN2d(size, 0.5)(m.tensor(x).to(where)).cpu().numpy()
        for m, where in modules(device)
    ]
    np.testing.assert_allclose(values[0], values[-1], rtol=1e-12)
    layer = lucid_gpu.nn.CrossMapLRN2d(size, 0.5)
    assert repr(layer) == f"CrossMapLRN2d({size}, alpha=0.5, beta=0.75, k=1)"
    assert lucid_gpu.autograd.gradcheck(layer, (lucid_gpu.tensor(x, requires_grad=True),))


@pytest.mark.parametrize("name", LAYERS)
def test_repr_and_state_are_torchs(name):
    make, _ = LAYERS[name]
    ours, theirs = make(lucid_gpu), make(torch_module())
    assert repr(ours) == repr(theirs)
    shapes = [{k: tuple(v.shape) for k, v in m.state_dict().items()} for m in (ours, theirs)]
    assert shapes[0] == shapes[1]
    assert list(shapes[0]) == list(shapes[1])


@pytest.mark.parametrize(
    "make",
    [
        lambda m: m.nn.Linear(300, 200),
        lambda m: m.nn.Conv2d(8, 64, 5),
        lambda m: m.nn.Embedding(200, 100),
    ],
)
def test_first_values_are_spread_as_torchs(make):
    torch_module().manual_seed(0)
    for ours, theirs in zip(make(lucid_gpu).parameters(), make(torch_module()).parameters()):
        mine, other = (p.detach().numpy() for p in (ours, theirs))
        assert abs(mine.mean()) < 4 * other.std() / mine.size**0.5 + 1e-12
        assert mine.std() == pytest.approx(other.std(), rel=0.15 if mine.size < 1000 else 0.03)
        assert abs(mine).max() == pytest.approx(abs(other).max(), rel=0.2)


def test_padding_row_is_zero():
    assert nn.Embedding(4, 2, padding_idx=1).weight[1].tolist() == [0, 0]


def test_pretrained_embedding():
    table = lucid_gpu.ones(3, 2)
    layer = nn.Embedding.from_pretrained(table)
    assert not layer.weight.requires_grad
    assert layer(lucid_gpu.tensor([2])).tolist() == [[1, 1]]
    assert nn.Embedding.from_pretrained(table, freeze=False).weight.requires_grad


def test_dropout_only_in_training():
    layer, x = nn.Dropout(0.5), lucid_gpu.ones(1000)
    assert (layer(x) == 0).any().item()
    assert not (layer.eval()(x) == 0).any().item()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.nn.Linear(4, 3)(m.zeros(2, 5)), "mat1 and mat2 shapes cannot be multiplied"),
        (lambda m: m.nn.Conv2d(3, 4, 3, groups=2), "in_channels must be divisible by groups"),
        (lambda m: m.nn.Conv2d(4, 3, 3, groups=2), "out_channels must be divisible by groups"),
        (lambda m: m.nn.Conv2d(4, 3, 3, groups=0), "groups must be a positive integer"),
        (lambda m: m.nn.Conv2d(4, 3, 3, padding="wide"), "Invalid padding string 'wide'"),
        (lambda m: m.nn.BatchNorm1d(3)(m.zeros(2, 3, 4, 4)), "expected 2D or 3D input (got 4D in"),
        (lambda m: m.nn.BatchNorm2d(3)(m.zeros(2, 3)), "expected 4D input (got 2D input)"),
        (lambda m: m.nn.BatchNorm3d(3)(m.zeros(2, 3)), "expected 5D input (got 2D input)"),
        (lambda m: m.nn.GroupNorm(4, 6), "num_channels (6) must be divisible by num_groups (4)"),
        (lambda m: m.nn.GroupNorm(2, 4)(m.zeros(2, 6, 3)), "Expected weight to be a vector of siz"),
        (lambda m: m.nn.InstanceNorm2d(3)(m.zeros(2, 3)), "expected 3D or 4D input (got 2D input"),
        (
            lambda m: m.nn.InstanceNorm1d(3, affine=True)(m.zeros(2, 6, 3)),
            "expected input's size at dim=1 to match num_features (3), but got: 6.",
        ),
        (lambda m: m.nn.InstanceNorm1d(3)(m.zeros(2, 3, 1)), "more than 1 spatial element when"),
        (lambda m: m.nn.LocalResponseNorm(3)(m.zeros(2, 3)), "Expected 3D or higher dimension"),
        (lambda m: m.nn.CrossMapLRN2d(3)(m.zeros(2, 3)), "Expected input to be 4D, got 2D instead"),
        (lambda m: m.nn.Embedding(3, 2, padding_idx=3), "Padding_idx must be within num_embeddin"),
        (lambda m: m.nn.Unflatten(1, (2, 3))(m.zeros(6)), "Dimension out of range"),
        (
            lambda m: m.nn.Unflatten(1, [2, 2])(m.zeros(2, 6)),
            "Provided sizes [2, 2] don't multiply up to the size of dim 1 (6) in the input tensor",
        ),
        (lambda m: m.nn.InstanceNorm1d(3)(m.zeros(0, 3, 1)), "more than 1 spatial element when"),
        (lambda m: m.nn.Unflatten(1, 2), "must be a tuple of ints, but found type int"),
        (lambda m: m.nn.Unflatten(1, (2, 3.0)), "found element of type float at pos 1"),
        (lambda m: m.nn.Unflatten(1, (2, 4))(m.zeros(0, 6)), "in Unflatten(dim=1"),
        (lambda m: m.nn.Flatten()(m.tensor(1.0)), "Dimension out of range"),
        (lambda m: m.nn.ReLU()([1.0]), "must be Tensor, not list: lucid_gpu.tensor"),
        (lambda m: m.nn.Linear(2, 2)(np.ones((1, 2))), "'input' (position 1) must be Tensor, not"),
        (lambda m: m.nn.functional.linear(m.ones(2, 2), "a"), "'weight' (position 2) must be Tens"),
        (
            lambda m: m.nn.PixelShuffle(2)(np.ones((1, 4, 1, 1))),
            "must be Tensor, not numpy.ndarray",
        ),
        (lambda m: m.nn.Sequential(m.nn.SiLU())(None), "must be Tensor, not NoneType"),
    ],
)
def test_errors_are_torchs(call, words):
    same_error(call, words)


def test_attributes_that_a_users_layer_misses_stay_his():
    class Own(nn.Module):
        def forward(self, settings):
            return settings.width

    with pytest.raises(AttributeError, match="'dict' object has no attribute 'width'"):
        nn.Sequential(Own())({})


@pytest.mark.filterwarnings("ignore:input's size at dim")
def test_running_figures_of_instances_stay_where_channels_do_not_fit():
    def run(m):
        layer = m.nn.InstanceNorm1d(3, track_running_stats=True)
        try:
            layer(m.ones(2, 4, 5))
        finally:
            assert layer.running_mean.tolist() == [0.0] * 3

    same_error(run, "running_mean should contain")


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 3, 0), (2, 4, 2), (1, 3, 1)])
def test_running_figures_stay_where_there_is_nothing_to_follow(shape, momentum, device):
    layer = nn.BatchNorm1d(3, momentum=momentum).to(device)
    layer(lucid_gpu.arange(12.0, device=device).reshape(2, 3, 2))
    before = {k: v.tolist() for k, v in layer.state_dict().items()}
    seen = 1
    try:
        assert layer(lucid_gpu.zeros(shape, device=device)).shape == shape
        seen = 2
    except (RuntimeError, ValueError):
        assert 0 not in shape
    assert {k: v.tolist() for k, v in layer.state_dict().items()} == {
        **before,
        "num_batches_tracked": seen,
    }


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda m: m.nn.Conv3d(2, 3, 2), (0, 2, 3, 4, 3)),
        (lambda m: m.nn.ConvTranspose3d(2, 3, 2), (0, 2, 3, 4, 3)),
        (lambda m: m.nn.Softmax(0), (0, 3)),
        (lambda m: m.nn.LogSoftmax(1), (2, 0, 3)),
        (lambda m: m.nn.Unflatten(1, (2, 3)), (0, 6)),
        (lambda m: m.nn.InstanceNorm2d(3, track_running_stats=True), (2, 3, 0, 4)),
        (lambda m: m.nn.InstanceNorm1d(3), (2, 0, 4)),
        (lambda m: m.nn.BatchNorm2d(3), (0, 3, 2, 4)),
    ],
)
def test_nothing_to_compute(make, shape, device):
    x, y = (
        m.zeros(shape).to(d).requires_grad_()
        for m, d in ((lucid_gpu, device), (torch_module(), "cpu"))
    )
    ours, theirs = make(lucid_gpu).to(device), make(torch_module())
    found, expected = ours(x), theirs(y)
    found.sum().backward()
    assert found.shape == tuple(expected.shape)
    assert x.grad.shape == shape
    for a, b in zip(ours.buffers(), theirs.buffers(), strict=True):
        assert a.tolist() == b.tolist()


def test_layers_that_other_processes_would_share(device):
    def run(m):
        net = m.nn.Sequential(m.nn.BatchNorm1d(3, momentum=0.3), m.nn.ReLU(), m.nn.BatchNorm2d(2))
        made = m.nn.SyncBatchNorm.convert_sync_batchnorm(net)
        assert made[0].weight is net[0].weight
        return net, made

    (net, made), (_, theirs) = run(lucid_gpu), run(torch_module())
    assert repr(made) == repr(theirs)
    assert list(made.state_dict()) == list(theirs.state_dict())
    x = lucid_gpu.tensor(normal((4, 3)).astype("f"), device=device)
    net, made = net.to(device), made.to(device)
    assert made.eval()[0](x).tolist() == net.eval()[0](x).tolist()
    with pytest.raises(ValueError, match="expected at least 2D input"):
        made[0](x[0])


@pytest.mark.parametrize(
    "make",
    [
        lambda m: m.nn.MultiheadAttention(4, 2, batch_first=True)(*[m.ones(0, 3, 4)] * 3)[0],
        lambda m: m.nn.MultiheadAttention(4, 2)(*[m.ones(3, 0, 4)] * 3, need_weights=False)[0],
        lambda m: m.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)(m.ones(0, 3, 4)),
        lambda m: m.nn.TransformerDecoderLayer(4, 2, 8)(m.ones(3, 0, 4), m.ones(2, 0, 4)),
        lambda m: m.nn.FractionalMaxPool2d(2, output_size=2)(m.ones(0, 2, 5, 5)),
        lambda m: m.nn.FractionalMaxPool3d(2, output_size=2)(m.ones(0, 2, 5, 5, 5)),
        lambda m: m.nn.functional.grid_sample(
            m.ones(0, 2, 5, 5), m.ones(0, 3, 3, 2), align_corners=False
        ),
    ],
)
def test_an_empty_batch_has_an_empty_result(make):
    torch = torch_module()
    assert tuple(make(lucid_gpu).shape) == tuple(make(torch).shape)

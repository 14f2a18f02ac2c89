"""The device meta: tensors without elements, beside the same calls on a CPU and PyTorch's."""

from __future__ import annotations

import copy
import io
import math
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import nn
from lucid_gpu.core.layout import strides_of_view
from lucid_gpu.devices.meta_backend import MetaArray
from tests.ops.samples import Row
from tests.ops.test_every_op import NUMBERED, arguments, arrays_of, found, writes
from tests.oracle import torch_module

# What depends on elements, or is computed by a library that nothing here says the shapes of.
REFUSED = """allclose argwhere bincount equal histogram histogramdd istft
    masked_select nn.functional.ctc_loss
    nn.functional.gaussian_nll_loss nonzero unique unique_consecutive"""
NO_GRADIENT = (
    "det",
    "geqrf",
    "heaviside",
    "linalg.ldl_factor",
    "linalg.ldl_factor_ex",
    "linalg.ldl_solve",
)


def moved(value: Any) -> Any:
    if isinstance(value, lucid_gpu.Tensor):
        return value.to("meta")
    return type(value)(map(moved, value)) if type(value) in (list, tuple) else value


def flat(result: Any) -> list[Any]:
    if isinstance(result, (list, tuple)):
        return [part for item in result for part in flat(item)]
    return [result]


def called(row: Row, where: str) -> tuple[list[Any], list[Any]]:
    """What a row's call gives, and the gradients of its sum."""
    leaves = [lucid_gpu.tensor(a).to(where).requires_grad_() for a in arrays_of(row)]
    args, kwargs = arguments(row, lucid_gpu, leaves)
    if where == "meta":
        args, kwargs = moved(args), {name: moved(value) for name, value in kwargs.items()}
    if writes(row):
        args[0] = args[0].clone()
    result = found(lucid_gpu, row.name)(*args, **kwargs)
    parts = flat(args[0] if result is None else result)
    made = [t for t in parts if isinstance(t, lucid_gpu.Tensor)]
    recorded = [t for t in made if t.requires_grad]
    if not recorded or row.name in NO_GRADIENT:
        return made, []
    total = sum((t.abs().sum() for t in recorded), 0.0)
    return made, list(lucid_gpu.autograd.grad(total, leaves, allow_unused=True))


def shown(t: Any) -> Any:
    return None if t is None else (tuple(t.shape), t.dtype, t.stride())


TAKES_TENSORS = {
    name: row
    for name, row in NUMBERED.items()
    if arrays_of(row) or any(hasattr(value, "values") for value in row.args)
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TAKES_TENSORS)
def test_each_op_gives_the_shape_that_it_has_on_a_cpu(name):
    row = NUMBERED[name]
    if row.name in REFUSED.split():
        with pytest.raises((NotImplementedError, RuntimeError), match="meta|Meta"):
            called(row, "meta")
        return
    results, gradients = called(row, "meta")
    expected, slopes = called(row, "cpu")
    assert [*map(shown, results)] == [*map(shown, expected)]
    shapes = [[None if g is None else g.shape for g in part] for part in (gradients, slopes)]
    assert shapes[0] == shapes[1]
    for t in results + [g for g in gradients if g is not None]:
        assert t.is_meta and type(t.array) is MetaArray


MODELS = {
    "linear": lambda m: (m.nn.Linear(3, 4), m.empty(2, 5, 3)),
    "conv": lambda m: (m.nn.Conv2d(4, 6, 3, padding=1, stride=2, groups=2), m.empty(2, 4, 9, 8)),
    "conv3": lambda m: (m.nn.Conv3d(4, 6, 2), m.empty(2, 4, 5, 6, 7)),
    "transposed": lambda m: (m.nn.ConvTranspose1d(4, 6, 3, stride=2), m.empty(2, 4, 9)),
    "norms": lambda m: (
        m.nn.Sequential(m.nn.BatchNorm2d(4), m.nn.GroupNorm(2, 4), m.nn.LayerNorm(5)),
        m.empty(2, 4, 3, 5),
    ),
    "pools": lambda m: (
        m.nn.Sequential(m.nn.MaxPool2d(2), m.nn.AdaptiveAvgPool2d(3)),
        m.empty(2, 4, 9, 8),
    ),
    "embedding": lambda m: (m.nn.Embedding(10, 4, padding_idx=0), m.empty(2, 3, dtype=m.int64)),
    "transformer": lambda m: (
        m.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        m.empty(2, 5, 8),
    ),
    "lstm": lambda m: (m.nn.LSTM(3, 4, 2, bidirectional=True), m.empty(5, 2, 3)),
    "upsample": lambda m: (m.nn.Upsample(scale_factor=2, mode="bilinear"), m.empty(1, 2, 3, 4)),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_models_give_the_shapes_that_they_have_in_torch(name, training):
    outcomes = []
    for module in (lucid_gpu, torch_module()):
        with module.device("meta"):
            model, x = MODELS[name](module)
            model.train(training)
            out = flat(model(x.requires_grad_() if x.is_floating_point() else x))
        sum(t.sum() for t in out).backward()
        names = [str(t.dtype).rpartition(".")[2] for t in out]
        outcomes.append(
            (
                [(tuple(t.shape), t.stride(), t.is_meta, t.requires_grad) for t in out],
                names,
                [(tuple(p.grad.shape), p.grad.is_meta) for p in model.parameters()],
                [(key, tuple(t.shape), t.is_meta) for key, t in model.state_dict().items()],
            )
        )
    assert outcomes[0] == outcomes[1]


def test_nothing_is_computed_and_no_memory_is_taken():
    with lucid_gpu.device("meta"):
        model = nn.Sequential(nn.Linear(1 << 20, 1 << 20), nn.GELU(), nn.LayerNorm(1 << 20))
        x = lucid_gpu.empty(1 << 20, 1 << 20)
    y = model(x.t()).transpose(0, 1).reshape(-1)  # terabytes
    assert y.shape == (1 << 40,) and (y + 1).exp().sum().backward() is None
    lucid_gpu.optim.AdamW(model.parameters()).step()
    assert model[0].weight.grad.is_meta


def behaviors(torch):
    m, s = torch.empty(2, 3, device="meta"), torch.empty((), device="meta")
    linear = torch.nn.Linear(2, 3, device="meta")
    plain = torch.nn.Linear(2, 3)
    yield lambda: m.item()
    yield lambda: s.item()
    yield lambda: bool(s)
    yield lambda: float(s)
    yield lambda: m.numpy()
    yield lambda: np.asarray(m)
    yield lambda: m.cpu()
    yield lambda: m.tolist()
    yield lambda: torch.ones(2, 3).copy_(m)
    yield lambda: m.copy_(torch.ones(3))
    yield lambda: linear.to("cpu")
    yield lambda: plain.load_state_dict(linear.state_dict())
    yield lambda: linear.load_state_dict(plain.state_dict())
    yield lambda: copy.deepcopy(linear).load_state_dict(plain.state_dict(), assign=True)
    yield lambda: copy.deepcopy(linear).weight
    yield lambda: torch.nn.Linear(2, 3, device="meta").to_empty(device="cpu").weight.shape
    yield lambda: torch.nn.BatchNorm1d(3).to("meta").running_mean
    yield lambda: (m, s, m.int(), m > 0, torch.nn.Parameter(m), torch.empty(0, 3, device="meta"))
    yield lambda: (m.t().stride(), m[1].storage_offset(), m.data_ptr(), m.element_size())
    yield lambda: m.t().view(6)
    yield lambda: (m.t().reshape(6), m.view(3, 2).t().stride(), torch.empty_like(m.t()).stride())
    yield lambda: (m.to("meta") is m, torch.empty(2, device="meta:0").device, m.is_cpu)
    yield lambda: pickle.loads(pickle.dumps(m.t())).stride()
    yield lambda: (torch.randn_like(m), torch.randint(0, 5, (2,), device="meta"))
    yield lambda: (
        m.normal_(),
        m.zero_(),
        m.mul_(2),
        torch.bernoulli(m),
        torch.arange(3).to("meta"),
    )
    yield lambda: m + torch.ones(())
    yield lambda: torch.multinomial(m, 1)
    yield lambda: m.is_shared()
    yield lambda: m.share_memory_()
    yield lambda: (m[torch.tensor([0, 1])], m[:, None, ::2].shape, torch.stack([m, m]).shape)
    yield lambda: f"{s}" != "" and m.untyped_storage().nbytes()
    for name in ("uniform_", "normal_", "ones_", "xavier_uniform_", "orthogonal_", "dirac_"):
        shape = (3, 3, 3) if name == "dirac_" else (3, 3)
        yield lambda name=name, shape=shape: getattr(torch.nn.init, name)(
            torch.empty(shape, device="meta")
        )


def outcome(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            text = repr(function())
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
    return text.replace("lucid_gpu", "torch"), [str(w.message) for w in caught]


@pytest.mark.parametrize("number", range(37))
def test_answers_and_refusals_are_those_of_torch(number):
    ours, theirs = ([*behaviors(module)] for module in (lucid_gpu, torch_module()))
    assert len(ours) == 37
    assert outcome(ours[number]) == outcome(theirs[number])


def test_attention_by_a_chosen_kernel_has_its_shape():
    q = lucid_gpu.empty(1, 2, 3, 4, device="meta")
    with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
        assert nn.functional.scaled_dot_product_attention(q, q, q).shape == q.shape


def test_autocast_of_another_device_casts_nothing():
    m = lucid_gpu.empty(3, 3, device="meta")
    with lucid_gpu.autocast("cpu"):
        assert (m @ m).dtype is lucid_gpu.float32


def test_random_numbers_are_not_drawn():
    lucid_gpu.manual_seed(0)
    expected = lucid_gpu.rand(2)
    lucid_gpu.manual_seed(0)
    with lucid_gpu.device("meta"):
        nn.Linear(10, 10)
    assert lucid_gpu.equal(lucid_gpu.rand(2), expected)


@pytest.mark.parametrize("kind", ["mask", "nonzero", "unique"])
def test_shapes_that_depend_on_elements_are_refused_by_name(kind):
    m = lucid_gpu.empty(3, device="meta")
    calls = {"mask": lambda: m[m > 0], "nonzero": m.nonzero, "unique": m.unique}
    with pytest.raises(NotImplementedError, match="no elements.*load_state_dict"):
        calls[kind]()


def test_a_parameter_is_made_of_another_with_what_vars_shows_of_it():
    """As accelerate's `init_empty_weights` does."""
    p = nn.Parameter(lucid_gpu.ones(2, 3), requires_grad=False)
    marks = vars(p)
    marks["requires_grad"] = p.requires_grad
    q = type(p)(p.to("meta"), **marks)
    assert type(q) is nn.Parameter and q.is_meta and q.shape == (2, 3) and not q.requires_grad
    with pytest.raises(TypeError, match="unexpected keyword argument 'size'"):
        nn.Parameter(lucid_gpu.ones(2), size=3)


def test_saved_and_loaded():
    file = io.BytesIO()
    m = lucid_gpu.empty(2, 3, device="meta")
    lucid_gpu.save({"view": m.t(), "parameter": nn.Parameter(m), "number": 1}, file)
    file.seek(0)
    back = lucid_gpu.load(file)
    assert back["view"].is_meta and back["view"].stride() == (1, 3) and back["number"] == 1
    assert type(back["parameter"]) is nn.Parameter and back["parameter"].shape == (2, 3)
    file = io.BytesIO()
    lucid_gpu.save({"w": lucid_gpu.ones(2, 3)}, file)
    file.seek(0)
    assert repr(lucid_gpu.load(file, map_location="meta")["w"]) == repr(m)


@pytest.mark.parametrize("seed", range(20))
def test_a_view_in_another_shape_has_numpys_strides(seed):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 5))
    whole = np.zeros(tuple(rng.choice([1, 2, 3, 4, 6], rank))).transpose(rng.permutation(rank))
    array = whole[tuple(slice(None, None, int(step)) for step in rng.choice([1, 1, 2], rank))]
    shape, left = [], array.size
    while left > 1:
        shape.append(int(rng.choice([d for d in range(1, left + 1) if left % d == 0])))
        left //= shape[-1]
    assert math.prod(shape) == array.size
    strides = strides_of_view(array.shape, array.strides, shape, array.itemsize)
    reshaped = array.reshape(shape)
    is_view = reshaped.__array_interface__["data"] == array.__array_interface__["data"]
    assert (strides is not None) == is_view
    if strides is not None:
        seen = np.lib.stride_tricks.as_strided(array, shape, strides)
        assert [s for s, n in zip(seen.strides, shape) if n > 1] == [
            s for s, n in zip(reshaped.strides, shape) if n > 1
        ]

"""What may be passed for a tensor: what is none, and tensors on several devices, are refused."""

from __future__ import annotations

import inspect
import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.nn import functional as F
from lucid_gpu.ops.arguments import refusal_of
from tests.oracle import modules, same_error, torch_module

ones = lucid_gpu.ones


def numbers(device: str, *values: int) -> Any:
    return lucid_gpu.tensor(values, device=device)


MIXED: dict[str, Callable[[str], Any]] = {
    "embedding": lambda d: F.embedding(numbers("cpu", 1), ones(3, 2, device=d)),
    "cross_entropy": lambda d: F.cross_entropy(ones(2, 3, device=d), numbers("cpu", 1, 2)),
    "cross_entropy by weight": lambda d: F.cross_entropy(
        ones(2, 3, device=d), numbers(d, 1, 2), ones(3)
    ),
    "layer_norm": lambda d: F.layer_norm(ones(2, 3, device=d), (3,), ones(3)),
    "rms_norm": lambda d: F.rms_norm(ones(2, 3, device=d), (3,), ones(3)),
    "batch_norm": lambda d: F.batch_norm(ones(2, 3, device=d), ones(3), ones(3), training=True),
    "index_add": lambda d: ones(3, device=d).index_add(0, numbers("cpu", 1), ones(1, device=d)),
    "index_add in place": lambda d: ones(3, device=d).index_add_(0, numbers(d, 1), ones(1)),
    "scatter_add": lambda d: ones(3, device=d).scatter_add(0, numbers("cpu", 1), ones(1, device=d)),
    "gather": lambda d: ones(3, device=d).gather(0, numbers("cpu", 1)),
    "index_select": lambda d: ones(3, device=d).index_select(0, numbers("cpu", 1)),
    "cat": lambda d: lucid_gpu.cat([ones(3, device=d), ones(3)]),
}


@pytest.mark.parametrize("name", MIXED)
def test_devices_must_agree(name: str, device: str) -> None:
    if device == "cpu":
        pytest.skip("one device is no two")
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        MIXED[name](device)


BY_NUMPYS_NAMES: dict[str, Callable[[Any, Any], Any]] = {
    "argsort": lambda m, x: x.argsort(axis=0),
    "argsort as a function": lambda m, x: m.argsort(x, axis=0),
    "sort": lambda m, x: x.sort(axis=0).values,
    "topk": lambda m, x: x.topk(1, axis=0).values,
    "softmax": lambda m, x: x.softmax(axis=0),
    "squeeze": lambda m, x: x[:1].squeeze(axis=0),
    "unsqueeze": lambda m, x: x.unsqueeze(axis=1),
    "unsqueeze_": lambda m, x: x.unsqueeze_(axis=1).squeeze_(axis=1),
    "cumsum_": lambda m, x: x.cumsum_(axis=1).cumprod_(axis=0),
    "cosine_similarity": lambda m, x: m.nn.functional.cosine_similarity(x, x, axis=0).round(),
    "special": lambda m, x: m.special.softmax(x * 0, axis=0) + m.special.logsumexp(x * 0, axis=0),
    "stack": lambda m, x: m.stack([x, x], axis=1),
    "unbind": lambda m, x: m.unbind(x, axis=1)[0],
    "chunk": lambda m, x: x.chunk(2, axis=1)[1],
    "select": lambda m, x: x.select(axis=1, index=0),
    "repeat_interleave": lambda m, x: x.repeat_interleave(2, axis=0),
    "gather": lambda m, x: m.gather(x, axis=1, index=m.tensor([[0], [2]])),
    "clamp_min": lambda m, x: m.clamp_min(x, min=1) + m.clamp_max(x, max=4),
    "pow": lambda m, x: m.pow(x, exponent=2) + x.pow(exponent=3),
}


@pytest.mark.parametrize("name", BY_NUMPYS_NAMES)
def test_dimensions_have_numpys_name_too(name: str) -> None:
    found = [
        BY_NUMPYS_NAMES[name](m, m.arange(6.0).reshape(2, 3)).tolist() for m, _ in modules("cpu")
    ]
    assert all(f == found[0] for f in found)


TWICE = {
    "sum": lambda m, x: x.sum(axis=0, dim=1),
    "amax": lambda m, x: m.amax(x, dim=1, axis=0),
    "mean": lambda m, x: m.mean(x, 0, keepdim=True, keepdims=False),
    "cat": lambda m, x: m.cat([x, x], axis=1, dim=0),
}


@pytest.mark.parametrize("name", TWICE)
def test_one_argument_under_two_names_is_refused(name: str) -> None:
    for m, _ in modules("cpu"):
        with pytest.raises(TypeError):
            TWICE[name](m, m.arange(6.0).reshape(2, 3))


NO_TENSOR: dict[str, tuple[Callable[[Any], Any], str]] = {
    "sum": (
        lambda m: m.sum([1, 2]),
        "sum(): argument 'input' (position 1) must be Tensor, not list",
    ),
    "max": (lambda m: m.max([1, 2]), "must be Tensor, not list: lucid_gpu.tensor(...) makes one"),
    "mean": (lambda m: m.mean(3.0), "must be Tensor, not float"),
    "relu": (lambda m: m.nn.functional.relu([1.0]), "relu(): argument 'input' (position 1) must"),
    "softmax": (lambda m: m.softmax([1.0], 0), "must be Tensor, not list"),
    "cat of one": (lambda m: m.cat(m.ones(2, 3), m.ones(2, 3)), "not Tensor: write cat([a, b])"),
    "stack of one": (lambda m: m.stack(3), "must be tuple of Tensors, not int"),
    "mm": (lambda m: m.mm(m.ones(2, 2), [1.0]), "argument 'mat2' (position 2) must be Tensor, not"),
    "dot": (lambda m: m.ones(2).dot([1.0]), "dot(): argument 'tensor' (position 2) must be Tensor"),
    "size": (lambda m: m.zeros("a"), "argument 'size' must be tuple of ints"),
}


@pytest.mark.parametrize("name", NO_TENSOR)
def test_what_is_no_tensor_is_refused_in_torchs_words(name: str) -> None:
    same_error(*NO_TENSOR[name])


NOT_COMPARED = {"normal", "fold", "unfold"}  # their settings are looked at first
SETTERS = ("set_", "use_deterministic", "manual_seed", "seed", "save", "load", "compile")


@pytest.mark.parametrize("space", ["", ".nn.functional"])
@pytest.mark.parametrize("given", [[1.0, 2.0], None], ids=["list", "None"])
@pytest.mark.filterwarnings("ignore")
def test_every_function_refuses_what_is_no_tensor(given: Any, space: str) -> None:
    torch = torch_module()
    ours, theirs = [
        operator.attrgetter(f"nn{space[3:]}")(m) if space else m for m in (lucid_gpu, torch)
    ]
    refused = 0
    for name in set(dir(ours)) & set(dir(theirs)) - NOT_COMPARED:
        if name[0] == "_" or name.startswith(SETTERS) or not inspect.isroutine(getattr(ours, name)):
            continue
        for more in range(4):
            words = _refusal(getattr(theirs, name), given, [torch.ones(2, 2)] * more)
            if "must be Tensor" in words:
                refused += 1
                mine = _refusal(getattr(ours, name), given, [lucid_gpu.ones(2, 2)] * more)
                assert "must be Tensor" in mine or "missing" in mine, (name, mine)
                break
    assert refused > 60


def _refusal(function: Callable[..., Any], given: Any, more: list[Any]) -> str:
    """What a call is refused with by a TypeError."""
    try:
        function(given, *more)
    except TypeError as error:
        return str(error)
    except Exception as error:  # of other kinds there is nothing to compare
        return repr(error)
    return ""


def test_other_attributes_that_are_missing_stay_missing() -> None:
    error = AttributeError("no such thing", obj=lucid_gpu.ones(2))
    assert refusal_of(lucid_gpu.mean, error, (ones(2),)) is error


def _out_of(m: Any, shape: tuple[int, ...], of: Callable[[Any, Any], Any]) -> Any:
    out = m.empty(shape)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = of(m, out)
    refusal_of = [str(w.message)[:64] for w in caught]
    return result is out, tuple(out.shape), out.tolist(), refusal_of


@pytest.mark.parametrize("shape", [(0,), (1,), (7,), (2, 3)])
@pytest.mark.parametrize(
    "of",
    [
        lambda m, out: m.add(m.ones(2, 3), 1, out=out),
        lambda m, out: m.mm(m.ones(2, 4), m.ones(4, 3), out=out),
        lambda m, out: m.cat([m.ones(1, 3), m.ones(1, 3)], out=out),
        lambda m, out: m.sum(m.ones(2, 2, 3), 0, out=out),
        lambda m, out: m.gather(m.ones(2, 3), 0, m.zeros(2, 3, dtype=m.int64), out=out),
    ],
)
def test_out_takes_the_shape_of_the_result(shape, of):
    first, *others = [_out_of(m, shape, of) for m, _ in modules()]
    assert first[:3] == (True, (2, 3), first[2]) and bool(first[3]) == (shape in ((1,), (7,)))
    for other in others:
        assert first == other


@pytest.mark.parametrize(
    "function",
    [
        lambda m: m.add(m.ones(3), 1, out=m.empty(1, dtype=m.int64)),
        lambda m: m.linalg.inv(m.eye(2), out=m.empty(2, 2, dtype=m.float64)),
        lambda m: m.linalg.solve(m.eye(2), m.eye(2), out=m.empty(2, 2, dtype=m.float64)),
        lambda m: m.linalg.det(m.eye(2), out=m.empty((), dtype=m.float64)),
        lambda m: m.linalg.eigvalsh(m.eye(2), out=m.empty(2, dtype=m.float64)),
        lambda m: m.linalg.vector_norm(m.ones(2), out=m.empty((), dtype=m.float64)),
    ],
)
def test_out_of_a_type_that_the_result_is_not_put_into(function):
    same_error(function)


# --- a size or dimension in a 0-d tensor ----------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        lambda m, n: m.ones(n),
        lambda m, n: m.zeros(n),
        lambda m, n: m.empty(n) * 0,
        lambda m, n: m.ones(2).new_zeros(n),
        lambda m, n: m.ones(1).expand(n),
        lambda m, n: m.arange(9).repeat(n),
        lambda m, n: m.arange(9).tile(n),
        lambda m, n: m.arange(9).roll(n),
        lambda m, n: m.stack(m.arange(9).split(n)),
        lambda m, n: m.stack(m.arange(9).chunk(n)),
        lambda m, n: m.ones(2, 2, 2, 5).sum(n),
        lambda m, n: m.ones(2, 2, 2, 5).movedim(n, 0),
    ],
)
def test_a_number_may_stand_in_a_0d_tensor(function):
    first, *others = [function(m, m.tensor(3)).tolist() for m, _ in modules()]
    for other in others:
        assert first == other


# --- out= of functions that make numbers ----------------------------------------------------------

MAKERS = {
    "zeros": (6,),
    "ones": (6,),
    "full": ((6,), 0.3),
    "eye": (2, 3),
    "arange": (0, 0.6, 0.1),
    "linspace": (0, 0.3, 6),
    "logspace": (0, 0.3, 6),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("kind", ["float64", "float16"])
@pytest.mark.filterwarnings("ignore:An output with one or more elements")
def test_numbers_are_computed_in_the_type_of_out(name, kind):
    def made(m):
        new = getattr(m, name)
        d = getattr(m, kind)
        whole = m.zeros(2, 5, dtype=d)
        new(*MAKERS[name], out=whole.narrow(1, 1, 3))
        wide, flat = m.zeros(2, 3, dtype=d), m.empty(0, dtype=d)
        new(*MAKERS[name], out=wide)
        new(*MAKERS[name], out=flat)
        return wide.shape, flat.shape, wide.tolist(), flat.tolist(), whole.tolist()

    first, *others = [made(m) for m, _ in modules()]
    for other in others:
        assert first[:2] == other[:2]
        for mine, its in zip(first[2:], other[2:]):
            np.testing.assert_allclose(mine, its, rtol=1e-15 if kind == "float64" else 1e-3)


@pytest.mark.parametrize("name", [*MAKERS, "rand", "randn", "randperm"])
def test_another_type_than_that_of_out_is_refused(name):
    arguments = MAKERS.get(name, (6,))
    for m, _ in modules():
        with pytest.raises(RuntimeError, match="does not match dtype of out parameter"):
            getattr(m, name)(*arguments, out=m.empty(6, dtype=m.float64), dtype=m.float32)


@pytest.mark.parametrize("name", ["rand", "randn"])
@pytest.mark.parametrize("kind", ["float64", "complex64", "float16"])
def test_random_numbers_are_drawn_in_the_type_of_out(name, kind):
    for m, _ in modules():
        d = getattr(m, kind)
        m.manual_seed(3)
        known = getattr(m, name)(4, 5, dtype=d)
        m.manual_seed(3)
        assert m.equal(known, getattr(m, name)(4, 5, out=m.empty(0, dtype=d)))


def test_a_view_given_as_out_writes_its_base_in_any_shape():
    def written(m):
        memory, source = m.zeros(8), m.arange(4.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            m.add(source, 1, out=memory[2:4])
        return memory.tolist()

    first, *others = [written(m) for m, _ in modules()]
    assert first == [0, 0, 1, 2, 3, 4, 0, 0]
    for other in others:
        assert first == other


# --- what was accepted or refused otherwise -------------------------------------------------------


@pytest.mark.parametrize("name", ["hstack", "vstack", "dstack", "column_stack"])
def test_one_tensor_is_no_sequence_to_stack(name):
    for m, _ in modules():
        with pytest.raises(TypeError, match="must be tuple of Tensors, not Tensor"):
            getattr(m, name)(m.ones(3))


def test_empty_vectors_are_joined_along_any_dimension():
    for m, _ in modules():
        assert m.cat([m.empty(0), m.empty(0)], 1).shape == (0,)


def test_permutations_that_a_type_does_not_hold_are_refused():
    for m, _ in modules():
        assert m.randperm(2049, dtype=m.float16).shape == (2049,)
        with pytest.raises(RuntimeError, match="n cannot be greater than 2049"):
            m.randperm(2050, dtype=m.float16)


@pytest.mark.parametrize("options", [{}, {"copy": True}, {"dtype": "float64"}])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_asarray_keeps_the_history_that_is_asked_for(options, requires_grad):
    for m, _ in modules():
        given = m.ones(2, requires_grad=True).exp()
        kinds = {k: getattr(m, v) if k == "dtype" else v for k, v in options.items()}
        made = m.asarray(given, requires_grad=requires_grad, **kinds)
        assert made.requires_grad is requires_grad
        assert (made.grad_fn is not None) is requires_grad
        assert given.requires_grad


@pytest.mark.parametrize(
    "function",
    [
        lambda m: m.unravel_index(m.tensor([1]), m.tensor([1, 2, 3])),
        lambda m: m.unravel_index(m.tensor(1), (1, 2, 2.0)),
    ],
)
def test_shapes_to_unravel_by_are_ints(function):
    for m, _ in modules():
        with pytest.raises(TypeError, match="expected 'shape'"):
            function(m)


Theirs = type("Tensor", (), {"__module__": "torch", "detach": lambda self: self})


@pytest.mark.parametrize(
    "call",
    [
        lambda t: lucid_gpu.relu(t),
        lambda t: F.linear(t, ones(3, 3)),
        lambda t: F.mse_loss(ones(3), t),
        lambda t: lucid_gpu.cat([ones(3), t]),
        lambda t: lucid_gpu.where(t, ones(3), ones(3)),
        lambda t: lucid_gpu.nn.Linear(3, 3)(t),
        lambda t: lucid_gpu.nn.Parameter(t),
        lambda t: lucid_gpu.nn.Module().register_buffer("b", t),
        lambda t: lucid_gpu.nn.Linear(3, 3).load_state_dict({"weight": t, "bias": t}),
        lambda t: lucid_gpu.optim.SGD([t], lr=0.1),
        lambda t: lucid_gpu.autograd.grad(t, ones(3)),
        lambda t: setattr(ones(3), "grad", t),
        lambda t: setattr(ones(3), "data", t),
    ],
)
def test_pytorchs_tensors_are_refused_by_their_full_name(call: Callable[[Any], Any]) -> None:
    with pytest.raises(
        (TypeError, RuntimeError), match=r"PyTorch's torch\.Tensor \(lucid_gpu\.from"
    ):
        call(Theirs())


@pytest.mark.parametrize("name", ["conv2d", "max_pool2d", "avg_pool3d", "conv_transpose1d", "relu"])
def test_a_misspelt_argument_is_reported_under_the_functions_public_name(name: str) -> None:
    with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected keyword argument 'padd'"):
        getattr(F, name)(ones(1, 1, 8, 8, 8), padd=1)
    with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected keyword argument 'padd'"):
        getattr(lucid_gpu, name, getattr(F, name))(ones(1, 1, 8, 8, 8), padd=1)

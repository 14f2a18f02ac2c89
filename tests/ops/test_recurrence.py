"""The walk along sequences: gradients of every order, other interpreters, the functions."""

import gc
import weakref

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu import func
from lucid_gpu.autograd import gradcheck, gradgradcheck
from lucid_gpu.devices import threads
from lucid_gpu.fusion import eager, native_steps
from lucid_gpu.ops import native_walk, recurrence, recurrent_walk
from lucid_gpu.ops.recurrence import CELLS, Weights, walk
from lucid_gpu.profiler import record
from tests.oracle import agree

normal = np.random.default_rng(0).standard_normal
SIZES, REVERSE = (2, 2, 1), {"LSTM": True, "GRU": True, "RNN_TANH": False, "RNN_RELU": False}


def operands(mode, device, projection=False):
    """x, states and weights of a walk of three steps, as leaves."""
    cell, hidden = CELLS[mode], 3
    out = 2 if projection else hidden
    shapes = [(sum(SIZES), cell.gates * hidden), (2, out), (2, hidden)][: 1 + cell.states]
    shapes += [(cell.gates * hidden, out), (cell.gates * hidden,)]
    shapes += [(out, hidden)] if projection else []
    return [lucid_gpu.tensor(normal(s)).to(device).requires_grad_() for s in shapes]


def walked(mode):
    """A walk as a function of its operands."""
    n = CELLS[mode].states

    def run(x, *rest):
        weights = Weights(*rest[n:], *[None] * (3 - len(rest[n:])))
        return walk(CELLS[mode], x, SIZES, rest[:n], weights, REVERSE[mode])

    return run


@pytest.mark.parametrize("mode", CELLS)
def test_gradients(mode, device):
    given = operands(mode, device)
    assert gradcheck(walked(mode), given, fast_mode=True)
    if device == "cpu":  # the composition has many kernels to compile
        assert gradgradcheck(walked(mode), given, fast_mode=True)


def test_gradients_with_a_projection(device):
    given = operands("LSTM", device, projection=True)
    assert gradcheck(walked("LSTM"), given, fast_mode=True)


@pytest.mark.parametrize("mode", ["GRU"])
def test_vmap_and_forward_mode(mode, device):
    x, *rest = [t.detach() for t in operands(mode, device)]
    run = walked(mode)
    many = func.vmap(lambda x: run(x, *rest)[0])(lucid_gpu.stack([x, 2 * x]))
    for found, scale in zip(many, (1, 2), strict=True):
        np.testing.assert_allclose(found.cpu().numpy(), run(scale * x, *rest)[0].cpu().numpy())
    _, forward = func.jvp(lambda x: run(x, *rest)[0], (x,), (lucid_gpu.ones_like(x),))
    backward = func.jacrev(lambda x: run(x, *rest)[0])(x).sum((-2, -1))
    np.testing.assert_allclose(forward.cpu().numpy(), backward.cpu().numpy(), rtol=1e-9)


def test_a_step_is_one_kernel_each_way(device):
    given = operands("LSTM", device)
    run = walked("LSTM")
    with record() as log:
        total = run(*given)[0]
        total.backward(lucid_gpu.ones_like(total))
    assert len(log) == 2 * len(SIZES) + 2  # and zeros for the last states, which nobody used


def test_eager_gives_the_same(device):
    given = operands("GRU", device)
    first = walked("GRU")(*given)[0]
    with eager():
        again = walked("GRU")(*given)[0]
        slopes = lucid_gpu.autograd.grad(again.sum(), given)
    np.testing.assert_allclose(again.detach().cpu().numpy(), first.detach().cpu().numpy())
    for mine, other in zip(slopes, lucid_gpu.autograd.grad(first.sum(), given), strict=True):
        np.testing.assert_allclose(mine.cpu().numpy(), other.cpu().numpy(), rtol=1e-9)


def test_a_weight_written_since_is_noticed():
    given = operands("LSTM", "cpu")
    out = walked("LSTM")(*given)[0].sum()
    with lucid_gpu.no_grad():
        given[3].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_functions_are_torchs(device):
    shapes = [(4, 2, 5), (1, 2, 3), (1, 2, 3), (12, 5), (12, 3), (12,), (12,)]
    arrays = [normal(s) for s in shapes]

    def lstm(m, x, h, c, *weights):
        return m.lstm(x, (h, c), weights, True, 1, 0.0, False, False, False)

    def packed(m, x, h, c, *weights):
        rows, sizes = x.reshape(8, 5), m.tensor([2, 2, 2, 2])
        return m.lstm(rows, sizes, (h, c), weights, True, 1, 0.0, False, False)

    def cell(m, x, h, c, *weights):
        return m.lstm_cell(x[0], (h[0], c[0]), *weights)

    for function in (lstm, packed, cell):
        agree(function, *arrays, device=device, order=1)
    x, h, w, r = normal((2, 5)), normal((2, 3)), normal((9, 5)), normal((9, 3))
    agree(lambda m, *given: m.gru_cell(*given), x, h, w, r, device=device, order=1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_types(dtype, device):
    wide = operands("GRU", device)
    kind = getattr(lucid_gpu, dtype)
    given = [t.detach().to(kind).requires_grad_() for t in wide]
    found = walked("GRU")(*given)
    assert {t.dtype for t in found} == {kind}
    slopes = lucid_gpu.autograd.grad(found[0].float().sum(), given)
    expected = lucid_gpu.autograd.grad(walked("GRU")(*wide)[0].sum(), wide)
    rtol = 1e-4 if dtype == "float32" else 0.1
    for mine, other in zip(slopes, expected, strict=True):
        assert mine.dtype is kind
        mine, other = (t.cpu().double().numpy() for t in (mine, other))
        np.testing.assert_allclose(mine, other, rtol=rtol, atol=rtol * abs(other).max())


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("mode", CELLS)
def test_the_walk_without_python_between_steps_is_the_same(mode, reverse, monkeypatch):
    cell, hidden, sizes = CELLS[mode], 8, (20, 20, 20, 18, 17, 17, 17, 2)
    monkeypatch.setattr(threads, "team", threads.Team(2))
    monkeypatch.setattr(native_walk, "ALONE", 0)
    panels = {"UNPACKED": 1000, "NARROWEST": 2, "WIDEST": 4, "VECTOR": 2}
    for name, value in panels.items():
        monkeypatch.setattr(native_steps, name, value)
    assert native_steps.panels_of(10, hidden, hidden) == 2
    shapes = [(sum(sizes), cell.gates * hidden), *[(sizes[0], hidden)] * cell.states]
    shapes += [(cell.gates * hidden, hidden), (cell.gates * hidden,)]
    given = [lucid_gpu.tensor(normal(s) / 4).requires_grad_() for s in shapes]

    def found():
        *operands, w, bias = given
        made = walk(cell, operands[0], sizes, operands[1:], Weights(w, bias, None), reverse)
        slopes = lucid_gpu.autograd.grad(made, given, [(t * t).detach() for t in made])
        return [t.detach().numpy() for t in (*made, *slopes)]

    mine = found()
    monkeypatch.setattr(native_walk, "suits", lambda *operands: False)
    for a, b in zip(mine, found(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_matrices_are_cut_into_equal_narrow_panels(monkeypatch):
    monkeypatch.setattr(native_steps, "UNPACKED", 1_000_000)
    cut = {8: (16, 128, 512), 2: (16, 512, 128), 1: (32, 1024, 256)}
    not_by_vectors = {1: (16, 100, 400), 2: (32, 100, 400)}
    for panels, sizes in (*cut.items(), *not_by_vectors.items()):
        assert native_steps.panels_of(*sizes) == panels
    monkeypatch.setattr(native_steps, "UNPACKED", 0)  # a BLAS that copies matrices of any size
    assert native_steps.panels_of(16, 128, 512) == 1


@pytest.mark.parametrize("mode", CELLS)
@pytest.mark.parametrize("kind", [native_walk.NativeWalk, recurrent_walk.Walk])
def test_what_a_walk_keeps_goes_with_its_gradients(mode, kind, device, monkeypatch):
    walks = []

    def made(walk):
        walks.append(walk)
        return walk

    given = operands(mode, device)
    weights = Weights(*given[-2:], None)
    if kind is native_walk.NativeWalk and not native_walk.suits(CELLS[mode], given[0], weights):
        pytest.skip("no such walk of this cell here")
    monkeypatch.setattr(
        recurrence,
        "_walk_for",
        lambda cell, x, sizes, weights, reverse: made(kind(cell, x, sizes, reverse)),
    )
    y, *_ = walked(mode)(*given)
    with lucid_gpu.no_grad():
        z, *_ = walked(mode)(*given)
    assert (y == z).all()
    whole, alone = [bytes_of(vars(w)) for w in walks]
    states_only = kind is native_walk.NativeWalk and CELLS[mode].gates == 1
    assert alone < whole or (states_only and alone == whole)
    first = weakref.ref(walks[0])
    del walks[:]
    y.sum().backward(retain_graph=True)
    assert first() is not None
    y.sum().backward()
    gc.collect()
    assert first() is None and y.grad_fn is not None
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        y.sum().backward()


def bytes_of(value):
    """Of arrays in dictionaries, lists and tuples."""
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, (list, tuple)):
        return sum(map(bytes_of, value))
    return getattr(value, "nbytes", 0)

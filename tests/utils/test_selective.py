"""Checkpoints that keep the results of some ops, beside PyTorch's and beside none."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import lucid_gpu
from lucid_gpu.tape import costly
from lucid_gpu.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)
from tests.oracle import torch_module


def mlp(m, x, w, v):
    return m.tanh(m.nn.functional.linear((x @ w).sin(), v, v[0]).relu()) @ w


def written(m, x, w, v):
    y = x @ w
    z = y * 3
    y.mul_(2)
    return (y.sin() @ v).cos() + z


def images(m, x, w, b):
    convolve = m.nn.functional.conv2d
    return convolve(convolve(x, w, b, padding=1).relu(), w, b, stride=2).tanh()


def transposed(m, x, w, b):
    return m.nn.functional.conv_transpose2d(x, w, b).sin().exp()


def attended(m, q, k, v):
    return (m.nn.functional.scaled_dot_product_attention(q.sin(), k, v) * q).tanh()


def sum_and_product(m, b, x, w):
    return m.addmm(b, x.sin(), w, beta=0.5).cos() @ w


PROGRAMS = {
    mlp: [(3, 4), (4, 4), (4, 4)],
    written: [(3, 4), (4, 4), (4, 4)],
    images: [(1, 2, 6, 6), (2, 2, 3, 3), (2,)],
    transposed: [(1, 2, 4, 4), (2, 2, 3, 3), (2,)],
    attended: [(2, 2, 5, 8)] * 3,
    sum_and_product: [(3, 4), (3, 4), (4, 4)],
}


def save_all(m):
    aten = m.ops.aten
    return [aten.mm.default, aten.addmm.default, aten.bmm.default, aten.convolution.default]


def save_products(m):
    policy = m.utils.checkpoint.CheckpointPolicy

    def asked(ctx, op, *args, **kwargs):
        assert ctx.is_recompute is False
        return policy.MUST_SAVE if op is m.ops.aten.mm.default else policy.PREFER_RECOMPUTE

    return asked


def save_by_truth(m):
    return lambda ctx, op, *args, **kwargs: op is m.ops.aten.addmm.default


POLICIES = [save_all, save_products, save_by_truth, lambda m: []]


def gradients(m, program, policy=None):
    rng = np.random.default_rng(0)
    leaves = [
        m.tensor(rng.standard_normal(shape), dtype=m.float64).requires_grad_()
        for shape in PROGRAMS[program]
    ]
    if policy is None:
        result = program(m, *leaves)
    else:
        tools = m.utils.checkpoint
        contexts = functools.partial(tools.create_selective_checkpoint_contexts, policy(m))
        result = tools.checkpoint(program, m, *leaves, use_reentrant=False, context_fn=contexts)
    result.sum().backward()
    return [leaf.grad.numpy() for leaf in leaves]


@pytest.mark.parametrize("policy", range(len(POLICIES)))
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients_are_those_without_a_checkpoint(program, policy):
    ours = gradients(lucid_gpu, program, POLICIES[policy])
    for mine, plain in zip(ours, gradients(torch_module(), program), strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("policy, expected", [(0, 9), (1, 10), (2, 11), (3, 12)])
def test_what_is_kept_is_not_computed_again(policy, expected):
    """Three products in forward and six in backward; the three are asked for again."""
    calls = []

    def note(call, go_on):
        if call.name in ("mm", "addmm"):
            calls.append(call.name)
        return go_on()

    with costly.watching(note):
        gradients(lucid_gpu, mlp, POLICIES[policy])
    assert len(calls) == expected


def test_a_policy_sees_the_tensors_and_the_result():
    seen = []

    def policy(ctx, op, *args):
        seen.append((str(op), [tuple(t.shape) for t in args], tuple(ctx.op_output.shape)))
        return CheckpointPolicy.MUST_SAVE

    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    x = lucid_gpu.ones(2, 3, requires_grad=True)
    w = lucid_gpu.ones(3, 5)
    checkpoint(lambda: (x @ w).sin(), use_reentrant=False, context_fn=contexts).sum().backward()
    assert seen == [
        ("aten.mm.default", [(2, 3), (3, 5)], (2, 5)),
        ("aten.sin.default", [(2, 5)], (2, 5)),
    ]


ELEMENTWISE = {
    "chain": lambda m, x, y: x.sin().cos().exp(),
    "numbers": lambda m, x, y: (((x + 1) * 2 - y) / 3) ** 2,
    "two": lambda m, x, y: m.maximum(x, y) - (x.abs() + 2) ** y.sigmoid(),
    "choice": lambda m, x, y: m.where(x > 0, x.tanh(), y * x),
    "in place": lambda m, x, y: (x * y).mul_(2).sin_().exp(),
    "twice": lambda m, x, y: x.sin() + x.sin() * y.sin(),
}


def asked_and_gradients(m, program, saved):
    """The ops that a policy is asked of, which keeps every result whose number is divisible."""
    asked = []
    policy = m.utils.checkpoint.CheckpointPolicy

    def decide(ctx, op, *args, **kwargs):
        asked.append(str(op))
        return policy.PREFER_RECOMPUTE if len(asked) % saved else policy.MUST_SAVE

    tools = m.utils.checkpoint
    contexts = functools.partial(
        tools.create_selective_checkpoint_contexts, decide, allow_cache_entry_mutation=True
    )
    rng = np.random.default_rng(0)
    x, y = [m.tensor(rng.standard_normal((3, 4))).requires_grad_() for _ in range(2)]
    call = functools.partial(program, m, x, y)
    result = tools.checkpoint(call, use_reentrant=False, context_fn=contexts)
    first = list(asked)
    result.sum().backward()
    assert asked == first
    return first, [x.grad, y.grad], (x, y)


@pytest.mark.parametrize("saved", [1, 2, 100])
@pytest.mark.parametrize("program", ELEMENTWISE)
def test_elementwise_ops_are_asked_and_kept(program, saved):
    run = ELEMENTWISE[program]
    asked, gradients, leaves = asked_and_gradients(lucid_gpu, run, saved)
    plain = lucid_gpu.autograd.grad(run(lucid_gpu, *leaves).sum(), leaves, allow_unused=True)
    for mine, expected in zip(gradients, plain, strict=True):
        assert (mine is None) == (expected is None)
        if mine is not None:
            np.testing.assert_allclose(mine.numpy(), expected.numpy(), rtol=1e-12)
    theirs, _, _ = asked_and_gradients(torch_module(), run, 100)
    hidden = ("gt", "clone", "detach")  # what is not recorded, and PyTorch's way of saving
    shown = [op.removesuffix("_") for op in theirs if op.split(".")[1] not in hidden]
    assert asked == [op.replace("_.", ".") for op in shown]


def test_kept_elementwise_results_are_not_computed_again():
    """What sin read is not needed again: its result is there, and cos saves it."""
    calls = []

    def policy(ctx, op, *args):
        calls.append(op)
        return op is lucid_gpu.ops.aten.sin.default

    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    x = lucid_gpu.ones(3, requires_grad=True)
    y = checkpoint(lambda: x.sin().cos().exp(), use_reentrant=False, context_fn=contexts).sum()
    y.backward(retain_graph=True)
    assert [str(op) for op in calls] == ["aten.sin.default", "aten.cos.default", "aten.exp.default"]
    with pytest.raises(RuntimeError, match="Trying to backward an extra time"):
        y.backward()


def test_a_second_pass_is_refused():
    contexts = functools.partial(
        create_selective_checkpoint_contexts, [lucid_gpu.ops.aten.mm.default]
    )
    x = lucid_gpu.ones(2, 2, requires_grad=True)
    y = checkpoint(lambda: (x @ x).sin(), use_reentrant=False, context_fn=contexts).sum()
    y.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="only allowed to backward once"):
        y.backward()


def test_another_course_in_backward_is_refused():
    turns = iter([lambda x: x @ x, lambda x: lucid_gpu.bmm(x[None], x[None])[0]])

    def program(x):
        return next(turns)(x).sin()

    contexts = functools.partial(
        create_selective_checkpoint_contexts, [lucid_gpu.ops.aten.mm.default]
    )
    x = lucid_gpu.ones(2, 2, requires_grad=True)
    y = checkpoint(program, x, use_reentrant=False, context_fn=contexts).sum()
    with pytest.raises(RuntimeError, match="aten.bmm.default invocation index 0 .* not found"):
        y.backward()


@pytest.mark.parametrize("kind", ["packet", "text", "number"])
def test_what_is_no_policy_is_refused_as_in_torch(kind):
    outcomes = []
    for m in (lucid_gpu, torch_module()):
        wrong = {"packet": [m.ops.aten.mm], "text": ["mm"], "number": 1}[kind]
        with pytest.raises((ValueError, TypeError)) as caught:
            m.utils.checkpoint.create_selective_checkpoint_contexts(wrong)
        words = str(caught.value).partition(" of type ")
        outcomes.append((caught.type, words[0], words[2].partition(">")[2]))
    assert outcomes[0] == outcomes[1]


def test_an_op_of_the_users_is_kept():
    calls = []

    @lucid_gpu.library.custom_op("tests_selective::doubled", mutates_args=())
    def doubled(x: lucid_gpu.Tensor) -> tuple[lucid_gpu.Tensor, int]:
        calls.append(1)
        return x.sin(), 2

    def save(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def backward(ctx, g, _):
        return g * ctx.saved_tensors[0].cos()

    doubled.register_autograd(backward, setup_context=save)
    x = lucid_gpu.tensor([0.1, 0.2, 0.3], dtype=lucid_gpu.float64, requires_grad=True)

    def program(x):
        return (doubled(x)[0] * x.sin().exp()).sin()

    op = lucid_gpu.ops.tests_selective.doubled.default
    contexts = functools.partial(create_selective_checkpoint_contexts, [op])
    y = checkpoint(program, x, use_reentrant=False, context_fn=contexts)
    (kept,) = lucid_gpu.autograd.grad(y.sum(), (x,))
    assert len(calls) == 1
    (plain,) = lucid_gpu.autograd.grad(program(x).sum(), (x,))
    assert lucid_gpu.allclose(kept, plain, rtol=1e-12)

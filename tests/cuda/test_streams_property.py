"""Random programs on several streams, ordered as PyTorch wants it, give the CPU's results.

Over the stand-in a stream lags until somebody waits, and freed memory is poisoned: a value that is
computed on the wrong stream, or memory given out too early, shows.
"""

from __future__ import annotations

import random

import pytest

import lucid_gpu
from lucid_gpu import cuda

pytestmark = pytest.mark.usefixtures("gpu")
SHAPE = (8, 8)


class Program:
    """The same steps on the GPU's streams and on the CPU."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        lucid_gpu.manual_seed(seed)
        start = [lucid_gpu.rand(*SHAPE) for _ in range(4)]
        self.pairs = [(t.to("cuda"), t.clone()) for t in start]
        self.homes = {id(there): cuda.current_stream() for there, _ in self.pairs}

    def pick(self):
        """Two values; what another stream made is told that this one works on it."""
        there, here = self.random.choice(self.pairs)
        if self.homes.get(id(there)) != cuda.current_stream():
            there.record_stream(cuda.current_stream())
        return there, here

    def keep(self, there, here):
        """One more value; an old one is dropped, and its memory with it."""
        self.pairs.append((there, here))
        self.homes[id(there)] = cuda.current_stream()
        if len(self.pairs) > 6:
            self.pairs.pop(self.random.randrange(len(self.pairs)))

    def step(self):
        a, b = self.pick(), self.pick()
        kind = self.random.randrange(6)
        if kind == 0:
            self.keep(*[(x * 0.5 + y).tanh() for x, y in zip(a, b)])
        elif kind == 1:
            self.keep(*[(x @ y) / 8 for x, y in zip(a, b)])
        elif kind == 2:
            for x, y in zip(a, b):
                x.mul_(0.5).add_(y.detach().clone())
        elif kind == 3:
            self.keep(*[x.sum(0, keepdim=True) / 8 + y for x, y in zip(a, b)])
        elif kind == 4:
            gradients = []
            for x, y in zip(a, b):
                leaf = x.detach().clone().requires_grad_()
                ((leaf * y.detach()).tanh() @ y.detach()).sum().backward()
                gradients.append(leaf.grad / 8)
            self.keep(*gradients)
        else:
            self.keep(*[x[:, [1, 0, 3, 2, 5, 4, 7, 6]] for x in a])

    def check(self):
        cuda.synchronize()
        for there, here in self.pairs:
            assert lucid_gpu.allclose(there.cpu(), here, rtol=1e-4, atol=1e-5)


@pytest.fixture(autouse=True)
def _default_stream_after(gpu):
    yield
    cuda.set_stream(cuda.default_stream())
    cuda.synchronize()


@pytest.mark.parametrize("seed", range(12))
def test_one_stream_after_the_other(seed):
    program = Program(seed)
    streams = [cuda.default_stream(), cuda.Stream(), cuda.Stream()]
    for _ in range(60):
        if program.random.random() < 0.2:
            following = program.random.choice(streams)
            following.wait_stream(cuda.current_stream())
            cuda.set_stream(following)
        program.step()
    program.check()


@pytest.mark.parametrize("seed", range(12))
def test_streams_side_by_side(seed):
    """Each works on values of its own between a fork and a join."""
    program = Program(seed)
    home = cuda.default_stream()
    streams = [cuda.Stream(), cuda.Stream()]
    for _ in range(6):
        branches = []
        for stream in streams:
            branch = Program(program.random.randrange(1000))
            branch.pairs = [(x * 2 / 2, y * 2 / 2) for x, y in program.pairs]
            stream.wait_stream(home)  # where these values are computed
            with cuda.stream(stream):
                for _ in range(5):
                    branch.step()
            branches.append((stream, branch))
        for _ in range(3):
            program.step()
        for stream, branch in branches:
            home.wait_stream(stream)
            for there, here in branch.pairs[-2:]:
                there.record_stream(home)
                program.keep(there, here)
    program.check()

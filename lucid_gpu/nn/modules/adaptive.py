"""Softmax over very many classes, the rare ones in clusters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from lucid_gpu.nn import functional as F
from lucid_gpu.nn.modules.container import ModuleList, Sequential
from lucid_gpu.nn.modules.linear import Linear
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.ops.shape import cat
from lucid_gpu.tensor import Tensor

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class _ASMoutput(NamedTuple):
    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    r"""``log p(c) = log p_head(c)`` for frequent classes, else ``log p_head(k) + log p_k(c)``.

    Cluster k holds the classes from ``cutoffs[k]`` on, and the rarer they are, the narrower is its
    projection (Grave et al., Efficient softmax approximation for GPUs, 2017). Classes are ordered
    by frequency.

    Parameters
    ----------
    in_features, n_classes : int
    cutoffs : sequence of int
        The first class of each cluster.
    div_value : float
        Cluster k has ``in_features / div_value ** (k + 1)`` features.
    head_bias : bool
    device, dtype : optional

    Attributes
    ----------
    head : Linear
        To the frequent classes and the clusters.
    tail : ModuleList of Sequential

    Raises
    ------
    ValueError
        For cutoffs that do not rise from 1 to at most ``n_classes - 1``.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cuts = list(cutoffs)
        if not cuts:
            raise ValueError(
                f"{type(self).__name__}: cutoffs should be a sequence of length larger than 0"
            )
        ordered = cuts == sorted(set(cuts)) and all(int(c) == c for c in cuts)
        if not ordered or cuts[0] <= 0 or cuts[-1] > n_classes - 1:
            raise ValueError(
                f"{type(self).__name__}: cutoffs should be a sequence of unique, positive integers "
                "sorted in an increasing order, where each value is between 1 and n_classes-1; "
                f"got {cuts} for {n_classes}"
            )
        self.in_features, self.n_classes, self.div_value = in_features, n_classes, div_value
        self.cutoffs, self.head_bias = [*cuts, n_classes], head_bias
        self.shortlist_size, self.n_clusters = cuts[0], len(cuts)
        self.head_size = self.shortlist_size + self.n_clusters
        made = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **made)
        self.tail = ModuleList()
        for k, (low, high) in enumerate(pairwise(self.cutoffs)):
            width = int(in_features // div_value ** (k + 1))
            inner = Linear(in_features, width, bias=False, **made)
            self.tail.append(Sequential(inner, Linear(width, high - low, bias=False, **made)))

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        for layer in (self.head, *[one for part in self.tail for one in part]):
            layer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        """``log p`` of each target, shape (batch,) or (), and minus their mean, of shape ().

        Parameters
        ----------
        input_ : Tensor, shape (batch, in_features) or (in_features,)
        target_ : Tensor of int64, shape (batch,) or ()

        Raises
        ------
        RuntimeError
            For shapes that do not fit together, and targets that are not classes.
        """
        self._check(input_, target_)
        single = target_.ndim == 0
        input, target = (t.unsqueeze(0) for t in (input_, target_)) if single else (input_, target_)
        low, high = (int(target.min()), int(target.max())) if target.numel() else (0, 0)
        if low < 0 or high >= self.n_classes:
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{low}, {high}] were found. "
            )
        head = target.clamp(max=self.shortlist_size - 1)
        parts = []
        for k, (first, after) in enumerate(pairwise(self.cutoffs)):
            inside = (target >= first).logical_and(target < after)
            rows = inside.nonzero().squeeze(1)
            head = head.masked_fill(inside, self.shortlist_size + k)
            if rows.numel():
                scores = F.log_softmax(self.tail[k](input.index_select(0, rows)), 1)
                own = target.index_select(0, rows) - first
                parts.append((rows, scores.gather(1, own.unsqueeze(1)).squeeze(1)))
        output = F.log_softmax(self.head(input), 1).gather(1, head.unsqueeze(1)).squeeze(1)
        if parts:
            output = output.index_add(0, cat([r for r, _ in parts]), cat([p for _, p in parts]))
        loss = (-output).mean()
        return _ASMoutput(output.squeeze(0) if single else output, loss)

    def _check(self, input: Tensor, target: Tensor) -> None:
        if target.ndim > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        if target.ndim == 1 and input.shape[0] != target.shape[0]:
            raise RuntimeError("Input and target should have the same size in the batch dimension.")
        if input.ndim != target.ndim + 1:
            raise RuntimeError(
                f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but found "
                f"inputs with size {input.shape}"
            )

    def log_prob(self, input: Tensor) -> Tensor:
        """``log p`` of every class, shape (batch, n_classes), for input (batch, in_features)."""
        head = F.log_softmax(self.head(input), 1)
        n = self.shortlist_size
        tails = [
            F.log_softmax(part(input), 1) + head[:, n + k : n + k + 1]
            for k, part in enumerate(self.tail)
        ]
        return cat([head[:, :n], *tails], 1)

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class of each row, shape (batch,), for input (batch, in_features)."""
        return self.log_prob(input).argmax(1)

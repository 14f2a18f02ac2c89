"""Tables of vectors."""

from __future__ import annotations

from typing import Any

from lucid_gpu.nn import functional as F
from lucid_gpu.nn import init
from lucid_gpu.nn.modules.module import Module
from lucid_gpu.nn.parameter import Parameter
from lucid_gpu.ops.creation import empty
from lucid_gpu.tape.modes import no_grad
from lucid_gpu.tensor import Tensor

__all__ = ["Embedding", "EmbeddingBag"]


class _Table(Module):
    """What both share: the table, how long its rows may be, how its gradient is scaled."""

    _padding_name = "Padding_idx"  # in the error that refuses it

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None,
        max_norm: float | None,
        norm_type: float,
        scale_grad_by_freq: bool,
        sparse: bool,
        weight: Tensor | None,
        requires_grad: bool,
        device: Any,
        dtype: Any,
    ) -> None:
        super().__init__()
        if padding_idx is not None:
            if not -int(num_embeddings) <= padding_idx < num_embeddings:
                raise AssertionError(
                    f"{self._padding_name} must be within num_embeddings ({num_embeddings}); "
                    f"{type(self).__name__} got padding_idx={padding_idx}"
                )
            padding_idx %= num_embeddings
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx, self.sparse = padding_idx, sparse
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        shape = (num_embeddings, embedding_dim)
        if weight is None:
            made = empty(shape, device=device, dtype=dtype)
            self.weight = Parameter(made, requires_grad=requires_grad)
            self.reset_parameters()
        else:
            if tuple(weight.shape) != shape:
                raise AssertionError(
                    "Shape of weight does not match num_embeddings and embedding_dim: "
                    f"{type(self).__name__} of {shape} got {list(weight.shape)}"
                )
            self.weight = Parameter(weight, requires_grad=requires_grad)

    def reset_parameters(self) -> None:
        """Draw the table anew."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0

    @classmethod
    def _pretrained(cls, embeddings: Tensor, freeze: bool, **settings: Any) -> Any:
        if embeddings.ndim != 2:
            raise AssertionError(
                "Embeddings parameter is expected to be 2-dimensional; "
                f"{cls.__name__}.from_pretrained got shape {list(embeddings.shape)}"
            )
        make: Any = cls
        made = make(*embeddings.shape, _weight=embeddings, **settings)
        made.weight._mark(not freeze)
        return made

    def extra_repr(self) -> str:
        shown = [f"{self.num_embeddings}, {self.embedding_dim}"]
        usual = {"max_norm": None, "norm_type": 2, "scale_grad_by_freq": False}
        for name, value in usual.items():
            if getattr(self, name) != value:
                shown.append(f"{name}={getattr(self, name)}")
        padding = [] if self.padding_idx is None else [f"padding_idx={self.padding_idx}"]
        return ", ".join(self._with_padding(shown, padding))

    def _with_padding(self, shown: list[str], padding: list[str]) -> list[str]:
        return [*shown[:1], *padding, *shown[1:]]


class Embedding(_Table):
    """``y = weight[x]``: numbers of shape (*) become rows, shape (*, embedding_dim).

    Parameters
    ----------
    num_embeddings, embedding_dim : int
    padding_idx : int, optional
        A row that is initially zero and receives no gradient; AssertionError for a row that does
        not exist.
    max_norm, norm_type : float, optional
        Longer rows are shortened, in place, when they are looked up.
    scale_grad_by_freq : bool
        Divide a row's gradient by how often it is looked up.
    sparse : bool
        Whether the gradient lists only the rows that were looked up, as a sparse tensor: `SGD`
        without momentum, `Adagrad` and `SparseAdam` then change those rows only.
    device, dtype : optional

    Attributes
    ----------
    weight : Parameter, shape (num_embeddings, embedding_dim)
        Initially drawn from the standard normal distribution.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        settings = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight)
        super().__init__(num_embeddings, embedding_dim, *settings, not _freeze, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        settings = (self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq)
        return F.embedding(input, self.weight, *settings, self.sparse)

    def extra_repr(self) -> str:
        return super().extra_repr() + (", sparse=True" if self.sparse else "")

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """A layer whose table is ``embeddings``, shape (rows, features), else AssertionError."""
        made: Embedding = cls._pretrained(
            embeddings,
            freeze,
            _freeze=freeze,
            padding_idx=padding_idx,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
            sparse=sparse,
        )
        return made


class EmbeddingBag(_Table):
    """The sum, mean or maximum of the rows of each bag of numbers.

    Parameters
    ----------
    num_embeddings, embedding_dim : int
    max_norm, norm_type, scale_grad_by_freq, sparse
        See `Embedding`.
    mode : {"mean", "sum", "max"}
    include_last_offset : bool
        Whether the last offset is where the last bag ends.
    padding_idx : int, optional
        A row that is initially zero, is left out of each bag and receives no gradient.
    device, dtype : optional

    Attributes
    ----------
    weight : Parameter, shape (num_embeddings, embedding_dim)
        Initially drawn from the standard normal distribution.

    Notes
    -----
    ``layer(input, offsets, per_sample_weights)`` takes bags of one length, (bags, length), or all
    numbers, (n,), and where each bag begins; factors of the rows go with ``mode="sum"``.
    """

    _padding_name = "padding_idx"

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        settings = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight)
        super().__init__(num_embeddings, embedding_dim, *settings, True, device, dtype)
        self.mode, self.include_last_offset = mode, include_last_offset

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """A layer whose table is ``embeddings``, shape (rows, features), else AssertionError."""
        made: EmbeddingBag = cls._pretrained(
            embeddings,
            freeze,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
            mode=mode,
            sparse=sparse,
            include_last_offset=include_last_offset,
            padding_idx=padding_idx,
        )
        return made

    def forward(
        self,
        input: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def _with_padding(self, shown: list[str], padding: list[str]) -> list[str]:
        return [*shown, f"mode={self.mode!r}", *padding]

"""Curves, pictures and texts for TensorBoard.

The event files are written by `tensorboardX <https://github.com/lanpa/tensorboardX>`_; here it
learns to take our tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from lucid_gpu.devices.installing import command
from lucid_gpu.tensor import Tensor

try:
    import tensorboardX
except ImportError as error:
    raise ImportError(
        f"SummaryWriter needs the package tensorboardX: {command('tensorboard')}"
    ) from error

__all__ = ["SummaryWriter"]


def _plain(value: Any) -> Any:
    """Tensors as arrays, inside lists, tuples and dictionaries too."""
    if isinstance(value, Tensor):
        wide = value.float() if value.dtype.compute is not value.dtype else value
        return wide.detach().cpu().numpy()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    return value


class SummaryWriter(tensorboardX.SummaryWriter):
    """Writes what ``tensorboard --logdir runs`` shows.

    Its methods are PyTorch's: ``add_scalar``, ``add_scalars``, ``add_histogram``, ``add_image``,
    ``add_images``, ``add_figure``, ``add_text``, ``add_hparams``, ``add_embedding``,
    ``add_pr_curve`` and more, ``flush`` and ``close``; it is a context manager.

    Parameters
    ----------
    log_dir : str, optional
        ``runs/DATE_HOST`` by default.
    comment : str
        Appended to that name.
    purge_step : int, optional
        Events from this step on, of an earlier run that crashed, are hidden.
    max_queue, flush_secs : int
        How many events, and how many seconds, are held before they are written.
    filename_suffix : str
    """

    def __init__(
        self,
        log_dir: Any = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
    ) -> None:
        where = None if log_dir is None else str(log_dir)
        super().__init__(where, comment, purge_step, max_queue, flush_secs, filename_suffix)

    @property
    def log_dir(self) -> str:
        """The folder the events go to."""
        return str(self.logdir)

    def get_logdir(self) -> str:
        """The folder the events go to."""
        return self.log_dir

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """One point of a curve; the last two arguments are accepted for compatibility."""
        super().add_scalar(tag, float(_plain(scalar_value)), global_step, walltime)

    def add_graph(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused with NotImplementedError: `lucid_gpu.viz.graph` draws the graph of a loss."""
        raise NotImplementedError("add_graph(): draw it with lucid_gpu.viz.graph(loss).save(path)")


def _taking_tensors(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: SummaryWriter, *args: Any, **kwargs: Any) -> Any:
        return method(self, *map(_plain, args), **{k: _plain(v) for k, v in kwargs.items()})

    return call


for _name, _method in vars(tensorboardX.SummaryWriter).items():
    if _name.startswith("add_") and _name not in vars(SummaryWriter):
        setattr(SummaryWriter, _name, _taking_tensors(_method))

"""What loading raises."""

from __future__ import annotations

import pickle

__all__ = ["CheckpointError", "Damage"]


class CheckpointError(RuntimeError, pickle.UnpicklingError):
    """A file is damaged, or not of a kind that `load` reads, or would run code."""


class Damage(Exception):
    """What is wrong with a file; `load` adds which file it is."""

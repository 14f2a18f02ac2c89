"""``backends.cudnn``: settings for programs that make them; no op here runs through cuDNN."""

from __future__ import annotations

enabled = True
benchmark = False  # there are no algorithms to choose from
deterministic = False  # every op is
allow_tf32 = True


def is_available() -> bool:
    """Whether ops run through cuDNN: they do not."""
    return False


def version() -> int | None:
    """The version of cuDNN that ops run through: none."""
    return None

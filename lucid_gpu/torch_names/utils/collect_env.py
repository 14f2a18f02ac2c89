"""`torch.utils.collect_env`: what the doctor says of this machine."""

from __future__ import annotations

import contextlib
import io

from lucid_gpu import doctor

__all__ = ["get_pretty_env_info", "main"]


def get_pretty_env_info() -> str:
    """What ``python -m lucid_gpu.doctor`` prints."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        doctor.main([])
    return text.getvalue()


def main() -> None:
    """Print it."""
    print(get_pretty_env_info())

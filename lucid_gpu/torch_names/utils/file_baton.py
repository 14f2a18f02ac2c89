"""`torch.utils.file_baton`: a file by which one of several processes goes first."""

from __future__ import annotations

import os
import time

__all__ = ["FileBaton"]


class FileBaton:
    """Held by the process that made the file.

    Parameters
    ----------
    lock_file_path : str
    wait_seconds : float
        Between two looks of `wait`.
    warn_after_seconds : int, optional
        Taken as PyTorch takes it.
    """

    def __init__(
        self, lock_file_path: str, wait_seconds: float = 0.1, warn_after_seconds: int | None = None
    ) -> None:
        self.lock_file_path, self.wait_seconds = lock_file_path, wait_seconds
        self.fd: int | None = None

    def try_acquire(self) -> bool:
        """Make the file; False where it is there already."""
        try:
            self.fd = os.open(self.lock_file_path, os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return False
        return True

    def wait(self) -> None:
        """Return when the file is gone."""
        while os.path.exists(self.lock_file_path):
            time.sleep(self.wait_seconds)

    def release(self) -> None:
        """Remove the file."""
        if self.fd is not None:
            os.close(self.fd)
        os.remove(self.lock_file_path)

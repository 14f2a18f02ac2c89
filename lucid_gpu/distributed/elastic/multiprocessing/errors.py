"""`record`, which writes what a process failed of to the file that its starter named."""

from __future__ import annotations

import functools
import json
import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["record"]

ERROR_FILE = "TORCHELASTIC_ERROR_FILE"  # torchrun's name for it; cluster managers set it too


def record(fn: Callable[..., Any], error_handler: Any = None) -> Callable[..., Any]:
    """A main function that, where it raises, leaves a file of JSON with the error.

    The file is the one that ``TORCHELASTIC_ERROR_FILE`` names; without it nothing is written. Which
    rank failed, and of what, the launcher says in any case.

    Parameters
    ----------
    fn : callable
    error_handler : optional
        Its ``record_exception(error)`` is called instead of writing the file.
    """

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except Exception as error:
            if error_handler is not None:
                error_handler.record_exception(error)
            elif ERROR_FILE in os.environ:
                _write(Path(os.environ[ERROR_FILE]), error)
            raise

    return run


def _write(path: Path, error: BaseException) -> None:
    lines = "".join(traceback.format_exception(error))
    extra = {"py_callstack": lines, "timestamp": str(int(time.time()))}
    message = {"message": f"{type(error).__name__}: {error}", "extraInfo": extra}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"message": message}), "utf-8")

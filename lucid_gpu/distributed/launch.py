"""``python -m lucid_gpu.distributed.launch``: `run`, and the script gets ``--local-rank`` too."""

from __future__ import annotations

import sys

from lucid_gpu.distributed import run

__all__ = ["main"]


def main() -> int:
    """Run a script in several processes as `run.main` does; with ``--use-env`` nothing differs."""
    return run.main(use_env=False)


if __name__ == "__main__":
    sys.exit(main())

"""Write the tables of docs/scipy.md: every function of SciPy that has derivatives here.

python tools/list_scipy.py            # write them anew
python tools/list_scipy.py --check    # 1 where they are not up to date
"""

from __future__ import annotations

import sys
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TREE))

PAGE = TREE / "docs" / "scipy.md"
MARK = "<!-- Written by tools/list_scipy.py: make names writes what follows anew. -->\n"


def tables() -> str:
    """Return one table a module, of the rows of `lucid_gpu.scipy.rows`."""
    from lucid_gpu import scipy
    from lucid_gpu.scipy.rows import ROWS

    text = ""
    for space in scipy.__all__:
        getattr(scipy, space)  # enters its rows
        rows = sorted(row for name, row in ROWS.items() if name.startswith(f"{space}."))
        text += f"\n## scipy.{space}\n\n| function | derivatives by | values from | notes |\n"
        text += "|---|---|---|---|\n"
        for row in rows:
            notes = "; ".join(note for note in (row.domain, row.refused) if note)
            by = row.by.replace(" ", ", ") or "none"
            name = row.name.partition(".")[2]
            source = "library" if row.runs == "library" else "tensors"
            text += f"| `{name}` | {by} | {source} | {notes} |\n"
    return text


def main() -> int:
    """Write the tables; with ``--check`` return 1 where they differ from the page's."""
    written = PAGE.read_text(encoding="utf-8")
    wanted = written.partition(MARK)[0] + MARK + tables()
    if "--check" not in sys.argv:
        PAGE.write_text(wanted, encoding="utf-8")
    return int("--check" in sys.argv and written != wanted)


if __name__ == "__main__":
    sys.exit(main())

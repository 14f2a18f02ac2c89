"""Load damaged checkpoints: ``make fuzz-checkpoints ARGS="--count 100000 --seed 1"``.

`tests/serialization/damage.py` makes them and judges. Here they are loaded in child processes with
little memory and little time, so that crashes, hangs and greed are seen too. A file that fails is
written to ``runs/fuzz/``; the exit status says whether there was one.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TREE))

from tests.serialization import damage  # noqa: E402
from tools import endurance  # noqa: E402

BATCH = 2500  # files a child
MEMORY = 8 << 30  # bytes of addresses of a child: libraries have some, the device meta 4 GiB
SECONDS = 20  # for one file


def child(goods: list[bytes], seed: int, first: int, count: int) -> None:
    """Judge files one after the other; a line each, before and after."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    damage.watch()
    judged = damage.verdicts(goods, count, seed, first)
    for number in range(first, first + count):
        signal.alarm(SECONDS)
        try:
            print(number, next(judged), flush=True)
        except Exception as error:
            print(number, f"FAILED {type(error).__name__}: {str(error)[:200]!r}", flush=True)
            judged = damage.verdicts(goods, first + count - number - 1, seed, number + 1)


def batch(kept: Path, seed: int, first: int, count: int) -> list[tuple[int, str]]:
    """What a child says of each file; the one that ended it is said to have failed."""
    command = [sys.executable, __file__, "--child", str(kept), "--seed", str(seed)]
    command += ["--first", str(first), "--count", str(count)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=kept.parent)
    said = [(int(n), what) for n, _, what in (x.partition(" ") for x in ran.stdout.splitlines())]
    if ran.returncode:
        why = signal.Signals(-ran.returncode).name if ran.returncode < 0 else str(ran.returncode)
        said.append((first + len(said), f"FAILED: the process ended ({why})"))
    return said


def main() -> int:
    """Run the batches, with a line of progress."""
    parser = argparse.ArgumentParser(description="Load damaged checkpoints.", allow_abbrev=False)
    add = parser.add_argument
    add("--count", type=int, default=100_000, help="files (%(default)s)")
    add("--seed", type=int, default=0, help="(%(default)s)")
    add("--first", type=int, default=0, help="the number of the first file (%(default)s)")
    add("--keep", action="store_true", help="in bench/results/endurance.md")
    add("--child", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        goods = [bytes.fromhex(text) for text in json.loads(args.child.read_text())]
        child(goods, args.seed, args.first, args.count)
        return 0
    run, goods = endurance.Run("checkpoints", args.seed), damage.goods()
    if len(goods) < 4:
        print("torch is not installed: its files are left out (make test ORACLE=1 brings it)")
    tally: Counter[str] = Counter()
    number, end = args.first, args.first + args.count
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder, "goods.json")
        kept.write_text(json.dumps([good.hex() for good in goods]))
        while number < end:
            for one, what in batch(kept, args.seed, number, min(BATCH, end - number)):
                tally[what.split()[0].rstrip(":")] += 1
                if what.startswith("FAILED"):
                    place = TREE / "runs" / "fuzz" / f"{args.seed}-{one}.bin"
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.write_bytes(damage.numbered(goods, args.seed, one))
                    print(f"\n{place}: {what}", flush=True)
            number = one + 1
            print(f"\r{number - args.first}/{args.count} {dict(tally)}", end="", flush=True)
    print(f"\nseed {args.seed}: {args.count} files, {dict(tally)}")
    if args.keep:
        last = run.continued(files=args.first)  # --first goes on with what is kept
        tally.update({name: last.get(name, 0) for name in ("refused", "loaded", "FAILED")})
        run.keep(
            f"{sum(tally.values()):,} files: {tally['refused']:,} refused with CheckpointError, "
            f"{tally['loaded']:,} loaded",
            f"other errors, crashes, hangs, code run, memory beyond the file's: {tally['FAILED']}",
            files=sum(tally.values()), minutes=last.get("minutes", 0.0),
            kinds_of_files=len(goods), **tally,
        )  # fmt: skip
    return 1 if tally["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""The profiler records what ran."""

from __future__ import annotations

import gzip
import importlib
import json
import random
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

import lucid_gpu
from lucid_gpu import profiler
from tests.oracle import torch_module


def test_every_kernel_is_recorded_in_order(device: str) -> None:
    x = lucid_gpu.rand(4, 5, device=device)
    with profiler.record() as log:
        (x + 1).array
        (x * 2).sum(0).array
    first, second = log.kernels
    assert (first.ops, second.ops) == (("add",), ("mul", "sum"))
    assert first.shape == second.shape == (4, 5)
    assert first.device == x.device
    assert (first.bytes_read, first.bytes_written) == (80, 80)
    assert second.bytes_written == 20
    assert (log.bytes_read, log.bytes_written) == (160, 100)
    assert len(log) == 2


def test_nothing_is_recorded_outside_the_block(device: str) -> None:
    x = lucid_gpu.rand(3, device=device)
    with profiler.record() as log:
        pending = x + 1
    pending.array
    assert log.kernels == []


def test_blocks_may_be_nested(device: str) -> None:
    x = lucid_gpu.rand(3, device=device)
    with profiler.record() as outer:
        (x + 1).array
        with profiler.record() as inner:
            (x + 2).array
    assert (len(outer), len(inner)) == (2, 1)


def test_a_block_ends_with_an_error(device: str) -> None:
    x = lucid_gpu.rand(3, device=device)
    try:
        with profiler.record() as log:
            raise KeyError
    except KeyError:
        pass
    (x + 1).array
    assert log.kernels == []


def test_the_log_and_its_kernels_are_readable(device: str) -> None:
    x = lucid_gpu.rand(1000, device=device)
    with profiler.record() as log:
        x.exp().tanh().array
    (kernel,) = log.kernels
    assert "tanh" in kernel.source
    assert kernel.name == "lucid_exp_tanh"
    assert "lucid_exp_tanh" in str(log) and "4000" in str(log)
    assert "ops: exp, tanh" in str(kernel)
    assert "reads 4000 bytes" in repr(kernel)


def test_a_profile_times_kernels_and_counts_their_bytes(device: str) -> None:
    x = lucid_gpu.rand(1000, 10, device=device)
    with lucid_gpu.fusion.eager(False), profiler.profile() as prof:
        for _ in range(3):
            (x * 2 + 1).array
        x.sum(0).array
    chain, total = prof.key_averages()
    assert (chain.key, chain.count, chain.bytes) == ("lucid_mul_add", 3, 3 * 80_000)
    assert (total.bytes_read, total.bytes_written) == (40_000, 40)
    assert chain.time > 0 and chain.gbs == chain.bytes / chain.time / 1e3
    assert chain.device == x.device
    assert (chain.device_time_total > 0) == (device == "cuda")
    spans = prof.spans
    assert [s.start for s in spans] == sorted(s.start for s in spans)
    assert all(s.start >= 0 and s.start + s.seconds <= prof.seconds for s in spans)


def test_matrix_products_and_optimizers_are_listed(device: str) -> None:
    w = lucid_gpu.rand(5, 7, device=device, requires_grad=True)
    optimizer = lucid_gpu.optim.SGD([w], lr=0.1)
    with profiler.profile() as prof:
        (lucid_gpu.rand(3, 5, device=device) @ w).sum().backward()
        optimizer.step()
    rows = {row.key: row for row in prof.key_averages(group_by_input_shape=True)}
    assert rows["matmul"].bytes_written in (3 * 7 * 4, 5 * 7 * 4)
    (update,) = [row for row in rows.values() if row.input_shapes == [35]]
    assert (update.bytes_read, update.bytes_written) == (2 * 140, 140)


def test_ranges_hold_the_kernels_that_ran_in_them(device: str) -> None:
    x = lucid_gpu.rand(100, device=device)

    @profiler.record_function("step")
    def step() -> None:
        with profiler.record_function("inner"):
            (x + 1).array
        (x * 2).array

    with profiler.profile() as prof:
        step()
        step()
    rows = {row.key: row for row in prof.key_averages()}
    assert (rows["step"].count, rows["step"].bytes) == (2, 4 * 800)
    assert (rows["inner"].count, rows["inner"].bytes) == (2, 2 * 800)
    assert rows["step"].is_range and not rows["lucid_add"].is_range
    kernels = [span for span in prof.spans if span.device is not None]
    assert [span.ranges for span in kernels[:2]] == [("step", "inner"), ("step",)]


def test_a_kernel_in_a_range_inside_itself_counts_once(device: str) -> None:
    x = lucid_gpu.rand(100, device=device)
    with profiler.profile() as prof:
        with profiler.record_function("f"), profiler.record_function("f"):
            (x + 1).array
    (row,) = [row for row in prof.key_averages() if row.is_range]
    assert (row.count, row.bytes) == (2, 800)


def test_steps_are_ranges(device: str) -> None:
    x = lucid_gpu.rand(100, device=device)
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU], record_shapes=True) as prof:
        prof.step()
        (x + 1).array
        prof.step()
        (x + 1).array
        prof.step()
    rows = [row for row in prof.key_averages() if row.is_range]
    assert [(row.key, row.bytes) for row in rows] == [
        ("ProfilerStep#0", 800),
        ("ProfilerStep#1", 800),
    ]


def test_the_table(device: str) -> None:
    x = lucid_gpu.rand(1 << 20, device=device)
    with profiler.profile() as prof:
        (x + 1).array
        for _ in range(2):
            (x[:10] * 2).array
    averages = prof.key_averages()
    head, rule, first, second, foot = averages.table(sort_by="count").splitlines()
    assert head.split() == [
        "Name",
        "Calls",
        "Total",
        "Mean",
        "Part",
        "Read",
        "Written",
        "GB/s",
        "Of",
        "a",
        "copy",
    ]
    assert set(rule) == {"-", " "}
    assert first.startswith("lucid_mul") and second.startswith("lucid_add")
    assert "4.2 MB" in second and second.endswith("%")
    assert foot.startswith("3 kernels, ")
    first, left_out, _ = averages.table("bytes", row_limit=1, copy=False).splitlines()[2:]
    assert first.startswith("lucid_add")
    assert left_out == "... 1 more rows"
    with pytest.raises(AttributeError, match="cannot sort by 'speed'; there are: bytes, count"):
        averages.table(sort_by="speed")


def test_the_trace_is_chromes(device: str, tmp_path: Path) -> None:
    x = lucid_gpu.rand(100, device=device)
    with profiler.profile() as prof, profiler.record_function("part"):
        (x + 1).array
    prof.export_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    rows = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    whole = {(e["name"], e["cat"]): e for e in events if e["ph"] == "X"}
    kernel, part = whole["lucid_add", "kernel"], whole["part", "user_annotation"]
    assert rows[kernel["pid"]] == str(x.device) if device == "cuda" else rows[0] == "CPU"
    assert kernel["args"] == {
        "shape": [100],
        "bytes read": 400,
        "bytes written": 400,
        "ranges": ["part"],
    }
    launch = whole.get(("lucid_add", "launch"), kernel)
    assert part["ts"] <= launch["ts"]
    assert launch["ts"] + launch["dur"] <= part["ts"] + part["dur"] + 1e-3


def test_a_kernel_that_fails_is_not_noted(device: str) -> None:
    from lucid_gpu.launch.observers import observed

    x = lucid_gpu.rand(3, device=device)
    with profiler.profile() as prof:
        with pytest.raises(ZeroDivisionError):
            observed(x, lambda: 1 / 0)
        (x + 1).array
    assert [span.name for span in prof.spans] == ["lucid_add"]


def test_a_profile_starts_before_it_stops() -> None:
    prof = profiler.profile()
    with pytest.raises(RuntimeError, match="has not been started"):
        prof.stop()
    with prof, pytest.raises(RuntimeError, match="has been started already"):
        prof.start()
    prof.start()  # a second time, after the first
    prof.stop()


def test_nothing_listens_after_a_profile(device: str) -> None:
    from lucid_gpu.launch.observers import observers
    from lucid_gpu.profiler import ranges

    with pytest.raises(KeyError), profiler.profile():
        raise KeyError
    assert observers == [] and ranges.listeners == []


def test_threads_have_ranges_of_their_own(device: str) -> None:
    x = lucid_gpu.rand(100, device=device)
    with profiler.profile() as prof, profiler.record_function("main"):
        thread = threading.Thread(target=lambda: (x + 1).array)
        thread.start()
        thread.join()
    kernel = next(span for span in prof.spans if span.device is not None)
    assert kernel.ranges == () and kernel.thread != threading.get_ident()


def test_nvtx_is_told_each_kernel(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """Ranges open and close in pairs, by the names of kernels and parts."""
    told: list[str | None] = []

    class Nvtx:
        RangePush = staticmethod(told.append)
        RangePop = staticmethod(lambda: told.append(None))

    from lucid_gpu.profiler import ranges

    monkeypatch.setattr(
        ranges,
        "backend",
        lambda where: SimpleNamespace(xp=SimpleNamespace(cuda=SimpleNamespace(nvtx=Nvtx))),
    )
    x = lucid_gpu.rand(100, device=device)
    with profiler.emit_nvtx(), profiler.record_function("part"):
        (x + 1).array
    (x + 2).array
    assert told == ["part", "lucid_add", None, None]
    with profiler.emit_nvtx(enabled=False):
        (x + 3).array
    assert len(told) == 4


def test_a_copy_is_measured_once(device: str) -> None:
    assert profiler.copy_bandwidth(device) == profiler.copy_bandwidth(device) > 0


def test_the_older_names(device):
    x = lucid_gpu.ones(10, device=device)
    with lucid_gpu.autograd.profiler.profile(use_cuda=True, profile_memory=True) as prof:
        with lucid_gpu.autograd.profiler.record_function("forward"):
            (x * 2 + 1).tolist()
    assert [row.key for row in prof.key_averages()] == ["forward", "lucid_mul_add"]
    assert "lucid_mul_add" in prof.key_averages().table(copy=False)
    assert prof.self_cpu_time_total > 0 and prof.total_average().time > 0
    assert str(prof) == prof.table()
    kineto_available = lucid_gpu.autograd.kineto_available
    with lucid_gpu.autograd.profiler.profile(enabled=False, use_kineto=kineto_available()) as prof:
        (x * 3).tolist()
    assert len(prof.key_averages()) == 0


def test_events_hold_what_ran_inside_them(device: str) -> None:
    x = lucid_gpu.rand(100, device=device)
    with lucid_gpu.autograd.profiler.profile() as prof:
        assert lucid_gpu.autograd._profiler_enabled()
        with profiler.record_function("outer"):
            (x + 1).array
            with profiler.record_function("inner"):
                (x * 2).array
        (x - 1).array
    assert not lucid_gpu.autograd._profiler_enabled()
    outer, add, inner, mul, sub = events = prof.function_events
    assert [e.name for e in events] == ["outer", "lucid_add", "inner", "lucid_mul", "lucid_sub"]
    assert (outer.cpu_children, inner.cpu_children) == ([add, inner], [mul])
    assert (mul.cpu_parent, inner.cpu_parent, sub.cpu_parent) == (inner, outer, None)
    whole = add.cpu_time_total + inner.cpu_time_total
    assert outer.self_cpu_time_total == outer.cpu_time_total - whole > 0
    assert outer.time == add.time + mul.time and (add.bytes_read, outer.bytes_read) == (400, 800)
    on_gpu = [] if device == "cpu" else ["lucid_add"]
    assert [kernel.name for kernel in add.kernels] == on_gpu
    assert outer.device_time_total == add.device_time_total + mul.device_time_total
    assert events.self_cpu_time_total == pytest.approx(outer.cpu_time_total + sub.cpu_time_total)
    total = prof.total_average()
    assert (total.key, total.count) == ("Total", 5)
    assert "lucid_mul" not in prof.table(top_level_events_only=True, copy=False)
    lines = prof.table("self_cpu_time_total", header="HEAD", time_unit="ms", copy=False)
    assert lines.startswith("HEAD\n") and " us" not in lines


def test_sums_of_events_are_torchs() -> None:
    """Of events that a program makes: who holds whom, and the totals by name."""
    torch_module()
    from torch.autograd import profiler_util as theirs

    from lucid_gpu.autograd import profiler_util as ours

    rng = random.Random(3)
    for _ in range(20):
        rows = []
        for number in range(rng.randrange(1, 12)):
            start = rng.randrange(20)
            rows.append(
                (number, rng.choice("abc"), rng.randrange(2), start, start + rng.randrange(1, 9))
            )
        said = []
        for module in (ours, theirs):
            events = module.EventList()
            events += [module.FunctionEvent(*row, stack=[]) for row in rows]
            events._populate_cpu_children()
            events._tree_built = True
            held = [[child.id for child in event.cpu_children] for event in events]
            figures = ("key", "count", "cpu_time_total", "self_cpu_time_total", "cpu_time_str")
            names = [[getattr(r, f) for f in figures] for r in events.key_averages()]
            total = events.total_average()
            said.append((held, names, [getattr(total, f) for f in figures], events[0].cpu_time_str))
        assert said[0] == said[1]
        twice = ours.FunctionEventAvg()
        twice.add(ours.FunctionEvent(*rows[0]))
        twice.add(twice)
        assert (twice.key, twice.count) == (rows[0][1], 2)
    for value in (0, 3, 1500, 2.5e6):
        assert ours._format_time(value) == theirs._format_time(value)
        assert ours._format_memory(value) == theirs._format_memory(value)
        assert ours._format_time_share(value, 7e6) == theirs._format_time_share(value, 7e6)


def test_a_trace_may_be_packed_and_hold_what_is_said_of_it(device: str, tmp_path: Path) -> None:
    x = lucid_gpu.rand(10, device=device)
    with profiler.profile() as prof:
        (x + 1).array
    prof.add_metadata("who", "me")
    prof.add_metadata_json("rank", "[1, 2]")
    prof.export_chrome_trace(str(tmp_path / "trace.json.gz"))
    document = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))
    assert (document["who"], document["rank"]) == ("me", [1, 2])
    prof.events().export_chrome_trace(str(tmp_path / "events.json"))
    (event,) = json.loads((tmp_path / "events.json").read_text())["traceEvents"]
    assert (event["name"], event["ph"], event["dur"] > 0) == ("lucid_add", "X", True)
    profiler.tensorboard_trace_handler(str(tmp_path), "me", use_gzip=True)(prof)
    (packed,) = tmp_path.glob("me.*.pt.trace.json.gz")
    assert gzip.decompress(packed.read_bytes())


def test_cycles_may_be_kept_and_a_part_left_out(device: str) -> None:
    x = lucid_gpu.rand(10, device=device)
    plan = profiler.schedule(wait=0, warmup=1, active=1)
    for kept, count in ((False, 1), (True, 2)):
        with profiler.profile(schedule=plan, acc_events=kept) as prof:
            for _ in range(4):
                (x * 2).array
                prof.step()
        kernels = [e for e in prof.events() if not e.is_range]
        assert len(kernels) == count
        begins = [e.time_range.start for e in prof.events()]
        assert begins == sorted(begins) and len({*begins}) == len(begins)
    with profiler.profile() as prof:
        prof.toggle_collection_dynamic(False, [profiler.ProfilerActivity.CPU])
        (x + 1).array
        prof.toggle_collection_dynamic(True, [profiler.ProfilerActivity.CPU])
        (x * 2).array
    assert [e.name for e in prof.events()] == ["lucid_mul"]


def test_ranges_may_be_opened_by_ops() -> None:
    ops = importlib.import_module("lucid_gpu._ops").ops.profiler
    with profiler.profile() as prof:
        handle = ops._record_function_enter_new("part", "of it")
        ops._record_function_exit(handle)
        ops._record_function_exit(ops._record_function_enter("other", None))
    assert [event.name for event in prof.events()] == ["part: of it", "other"]


def test_what_is_not_noted_is_refused(tmp_path: Path) -> None:
    from lucid_gpu.profiler import itt

    prof = profiler.profile()
    with prof:
        (lucid_gpu.ones(3) * 2).tolist()
    (row,) = prof.key_averages()
    with pytest.raises(AttributeError, match="FlopCounterMode counts them"):
        row.flops
    with pytest.raises(AttributeError, match="no memory is noted"):
        row.self_cpu_memory_usage
    assert prof.events()[0].cpu_memory_usage is None
    with pytest.raises(NotImplementedError, match="no stacks are noted; record_function"):
        prof.export_stacks(str(tmp_path / "stacks"))
    with pytest.raises(NotImplementedError, match="no memory is noted"):
        prof.export_memory_timeline(str(tmp_path / "memory.html"))
    with pytest.raises(NotImplementedError, match="no execution traces"):
        profiler.ExecutionTraceObserver()
    with pytest.raises(NotImplementedError, match="no ITT"):
        lucid_gpu.autograd.profiler.emit_itt()
    with pytest.raises(RuntimeError, match="ITT functions not installed"):
        itt.mark("here")
    assert not itt.is_available()
    assert profiler.ProfilerActivity.CPU in profiler.supported_activities()


def test_schedules_are_torchs() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle here: make test ORACLE=1")
    settings = [
        {"wait": 1, "warmup": 1, "active": 2},
        {"wait": 0, "warmup": 1, "active": 1, "repeat": 2, "skip_first": 3},
        {"wait": 2, "warmup": 1, "active": 3, "repeat": 1, "skip_first": 1, "skip_first_wait": 1},
    ]
    for one in settings:
        ours, theirs = profiler.schedule(**one), torch.profiler.schedule(**one)
        assert [ours(i).name for i in range(20)] == [theirs(i).name for i in range(20)]
    with pytest.raises(AssertionError, match="Invalid profiler schedule arguments. Got wait=-1"):
        profiler.schedule(wait=-1, warmup=1, active=1)
    with pytest.warns(UserWarning, match="won't be using warmup"):
        profiler.schedule(wait=1, warmup=0, active=1)


def test_cycles_of_steps(device: str, tmp_path: Path) -> None:
    x = lucid_gpu.ones(3, device=device)
    ready: list[list[tuple[str, tuple[str, ...]]]] = []
    plan = profiler.schedule(wait=1, warmup=1, active=2)
    write = profiler.tensorboard_trace_handler(str(tmp_path / "runs"), "me")

    def handler(prof: profiler.profile) -> None:
        ready.append([(s.name, s.ranges) for s in prof.spans if s.device is not None])
        write(prof)

    with profiler.profile(schedule=plan, on_trace_ready=handler, with_stack=True) as prof:
        for _ in range(7):
            with profiler.record_function("part"):
                (x * 2).tolist()
            prof.step()
    kernel = "lucid_mul"
    assert ready == [
        [(kernel, ("ProfilerStep#2", "part")), (kernel, ("ProfilerStep#3", "part"))],
        [(kernel, ("ProfilerStep#6", "part"))],
    ]
    assert len(list((tmp_path / "runs").glob("me.*.pt.trace.json"))) == 2
    assert prof.step_num == 7 and not prof._open.ranges


def test_a_block_that_ends_is_ready() -> None:
    ready = []
    with profiler.profile(on_trace_ready=ready.append) as prof:
        (lucid_gpu.ones(3) * 2).tolist()
    assert ready == [prof] and len(prof.spans) == 1

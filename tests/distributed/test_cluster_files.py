"""The files of docs/clusters.md, on this machine: as far as they go without one.

The programs of the cluster, `srun`, the pods' names and their start, are stood in for; what they
start is the page's own commands, which train on real ranks.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.processes import MPIEXEC, ROOT, ended, mpi, mpich
from tools.pages import blocks

FILES = {b.title: b.code for b in blocks(ROOT / "docs" / "clusters.md") if b.title}
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
# What sbatch knows of what the page writes, and the values that it takes there.
DIRECTIVES = {
    "job-name": r"[\w-]+",
    "nodes": r"\d+",
    "ntasks-per-node": r"\d+",
    "cpus-per-task": r"\d+",
    "time": r"(\d+-)?\d+:\d\d:\d\d",
}
# One rank a task, as srun does by pmi2, whose variables MPICH's launcher gives too.
SRUN = """#!/bin/sh
[ "$1 $2" = "--mpi=pmi2 --kill-on-bad-exit=1" ] || exit 2
shift 2
exec "$MPIEXEC" -n 2 "$@"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the page's files are."""
    for name, code in FILES.items():
        (tmp_path / str(name)).write_text(code)
    return tmp_path


@mpi
def test_slurm(folder: Path) -> None:
    lines = FILES["job.slurm"].splitlines()
    assert lines[0] == "#!/bin/bash"  # sbatch refuses a file without
    told = [line.removeprefix("#SBATCH --").split("=") for line in lines if "SBATCH" in line]
    assert lines[1 : 1 + len(told)] == [f"#SBATCH --{name}={value}" for name, value in told]
    for name, value in told:
        assert re.fullmatch(DIRECTIVES[name], value), (name, value)
    srun = folder / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text(SRUN)
    srun.chmod(0o755)
    given = {"PATH": f"{srun.parent}{os.pathsep}{PATH}", "MPIEXEC": str(MPIEXEC)}
    job = ["bash", "-c", f"cd {folder} && bash job.slurm"]
    status, said = ended(job, 250, SLURM_CPUS_PER_TASK="1", **given)
    assert status == 0 and said.splitlines() == ["2 ranks, loss below 0.4: True"], said


def kubernetes() -> tuple[dict[str, Any], dict[str, Any]]:
    """The service and the job."""
    yaml = pytest.importorskip("yaml")
    service, job = yaml.safe_load_all(FILES["job.yaml"])
    return service, job


def test_the_pods_of_the_job_find_each_other() -> None:
    service, job = kubernetes()
    assert (service["apiVersion"], service["kind"]) == ("v1", "Service")
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    name, spec = job["metadata"]["name"], job["spec"]
    assert service["spec"] == {"clusterIP": "None", "selector": {"job-name": name}}
    assert spec["completionMode"] == "Indexed" and spec["completions"] == spec["parallelism"]
    pod = spec["template"]["spec"]
    assert pod["subdomain"] == service["metadata"]["name"]
    assert pod["restartPolicy"] == "Never"  # a job takes no Always
    (command,) = pod["containers"][0]["args"]
    assert f"--nnodes {spec['completions']} " in command
    assert f"--master-addr {name}-0.{pod['subdomain']} " in command  # an indexed pod's host name


@mpich
def test_kubernetes(folder: Path) -> None:
    pod = kubernetes()[1]["spec"]["template"]["spec"]["containers"][0]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (command,) = pod["args"]
    for theirs, here in (("train-0.train", "127.0.0.1"), ("29500", str(port))):
        assert theirs in command
        command = command.replace(theirs, here)
    (variable,) = pod["env"]
    given = {"PATH": PATH, variable["name"]: "ab" * 32}

    def node(index: int) -> tuple[int, str]:
        words = [*pod["command"], f"cd {folder} && {command}"]
        return ended(words, 250, JOB_COMPLETION_INDEX=str(index), **given)

    with ThreadPoolExecutor() as pool:
        (first, said), (second, silent) = pool.map(node, range(2))
    assert first == second == 0, said + silent
    assert said.splitlines() == ["4 ranks, loss below 0.4: True"] and not silent


def test_ray(folder: Path) -> None:
    """With Ray itself, where it is installed; it takes its processors from what it is told."""
    pytest.importorskip("ray")
    code = FILES["on_ray.py"].replace("ray.init()", "ray.init(num_cpus=4)")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "4 ranks, loss below 0.4: True" in done.stdout

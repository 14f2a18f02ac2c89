"""What the container images are made of; `make image-dry-run` executes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import dockerfile, run_image_steps

TREE = Path(__file__).resolve().parents[1]
STAGES = dockerfile.parse((TREE / "Dockerfile").read_text("utf-8"))
TARGETS = ("cpu", "cuda")
LABELS = ("title", "description", "licenses", "version", "revision")


def last(target: str, name: str) -> dockerfile.Instruction:
    return [i for i in dockerfile.chain(STAGES, target) if i.name == name][-1]


@pytest.mark.parametrize("target", TARGETS)
def test_the_last_user_is_not_root(target: str) -> None:
    assert last(target, "USER").text == "1000"  # a number: `runAsNonRoot` cannot judge names


@pytest.mark.parametrize("target", TARGETS)
def test_the_doctor_checks_health_and_the_command_trains(target: str) -> None:
    check = last(target, "HEALTHCHECK")
    assert check.text == f'CMD ["python", "-m", "lucid_gpu.doctor", "--device", "{target}"]'
    python, script, *flags = last(target, "CMD").words()
    assert python == "python" and (TREE / script).is_file() and flags == ["--device", target]


@pytest.mark.parametrize("target", TARGETS)
def test_labels(target: str) -> None:
    labels = last(target, "LABEL").pairs()
    assert set(labels) == {f"org.opencontainers.image.{name}" for name in LABELS}
    given = {n for i in STAGES["base"].instructions if i.name == "ARG" for n in i.pairs()}
    assert given == {"VERSION", "REVISION"}  # what make passes
    makefile = (TREE / "Makefile").read_text("utf-8")
    assert all(f"--build-arg {name}=" in makefile for name in [*given, "CUDA_ARCHITECTURES"])


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    ignored = (TREE / ".dockerignore").read_text("utf-8").split()
    copies = [i for stage in STAGES.values() for i in stage.instructions if i.name == "COPY"]
    assert copies
    for one in copies:
        for source in one.words()[:-1]:
            if "from" in one.flags:
                assert one.flags["from"] in STAGES
            else:
                assert (TREE / source).exists(), one.text
                assert source not in ignored, one.text


def test_all_stages_have_one_base() -> None:
    bases = {stage.base for stage in STAGES.values()} - set(STAGES)
    assert bases == {"python:3.12", "python:3.12-slim"}  # the first has a C compiler


def test_kernels_are_compiled_ahead_into_the_cache_of_the_user() -> None:
    names = [(i.name, i.text.partition(" && ")[0]) for i in dockerfile.chain(STAGES, "cuda")]
    place = names.index(("RUN", 'python -m lucid_gpu.precompile --arch "$CUDA_ARCHITECTURES"'))
    before = names[:place]
    assert ("USER", "1000") in before and ("ENV", "CUPY_CACHE_DIR=/var/cache/cupy") in before
    assert ("ARG", 'CUDA_ARCHITECTURES="80 86 89 90"') in before


def test_compose_trains_on_a_gpu() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is missing: pip install '.[test]'")
    read = yaml.safe_load((TREE / "compose.yaml").read_text("utf-8"))
    (service,) = read["services"].values()
    assert service["build"]["target"] == "cuda" and "cuda" in STAGES
    arguments = {n for i in STAGES["cuda"].instructions if i.name == "ARG" for n in i.pairs()}
    assert set(service["build"]["args"]) <= arguments
    assert service["command"] == last("cuda", "CMD").words()
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}
    assert {volume.partition(":")[0] for volume in service["volumes"]} == set(read["volumes"])


GRAMMAR = """
# a comment
FROM python:3.12-slim AS first
RUN one \\
 # between
 && two
FROM first AS second
COPY --from=first --chown=me /a /b ./
ENV A=1 B="two words"
CMD ["x", "y z"]
"""


def test_the_grammar() -> None:
    stages = dockerfile.parse(GRAMMAR)
    assert [(s.name, s.base) for s in stages.values()] == [
        ("first", "python:3.12-slim"),
        ("second", "first"),
    ]
    run, copy, env, command = dockerfile.chain(stages, "second")
    assert run == ("RUN", {}, "one && two")
    assert copy.flags == {"from": "first", "chown": "me"} and copy.words() == ["/a", "/b", "./"]
    assert env.pairs() == {"A": "1", "B": "two words"}
    assert command.words() == ["x", "y z"]


def test_steps_are_executed_under_a_folder(tmp_path, monkeypatch) -> None:
    steps = """
    FROM python:3 AS small
    ARG WORD=no
    ENV CACHE=/var/cache/x
    WORKDIR /app
    COPY tools/dockerfile.py ./
    COPY .github ./hub
    RUN useradd --uid 1000 me && mkdir -p /var/cache/x && chown me /var/cache/x
    RUN test -f /app/dockerfile.py && echo "$WORD" > "$CACHE/word"
    """
    monkeypatch.setattr(run_image_steps.venv, "create", lambda root, with_pip: root.mkdir())
    image = run_image_steps.Image(tmp_path, {"WORD": "yes"})
    for one in dockerfile.parse(steps)["small"].instructions:
        image.step(one)
    assert (tmp_path / "var/cache/x/word").read_text() == "yes\n"
    assert (tmp_path / "app/hub/workflows/ci.yml").is_file()
    with pytest.raises(run_image_steps.Failed, match="VOLUME"):
        image.step(dockerfile.Instruction("VOLUME", {}, "/app"))
    with pytest.raises(run_image_steps.Failed, match="told"):
        image.step(dockerfile.Instruction("RUN", {}, "echo told; false; true"))

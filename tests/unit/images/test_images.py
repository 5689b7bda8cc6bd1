"""The command lines of `cairn image`, to the letter, and what it makes of an engine's answers."""

import json
import os
import shlex
import stat
import sys
from pathlib import Path

import pytest

from cairn import images
from cairn.errors import PrerequisiteError, UsageError
from cairn.image_engines import ENGINES, Engine
from helpers.program import Cairn

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "dockerfiles"
TEST = "no_rocm_image_ubuntu24_04"
BUILD = "build_manylinux_x86_64"
DEBIAN = "build_debian_unstable"
DIGEST = "sha256:" + "5e" * 32


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins for all three on PATH: they write down what they are given, and answer as the real ones."""
    script = f"""
import json, pathlib, sys
with open({str(tmp_path / "calls")!r}, "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
words = sys.argv[2:]
if "--digestfile" in words:
    pathlib.Path(words[words.index("--digestfile") + 1]).write_text({DIGEST!r} + "\\n")
if words[:2] == ["image", "inspect"]:
    print(json.dumps(["registry.example:5000/x@" + {DIGEST!r}, "other/x@sha256:" + "0" * 64]))
if words[:1] == ["run"]:
    sys.exit(7)
"""
    (tmp_path / "engine.py").write_text(script)
    started = shlex.join([sys.executable, str(tmp_path / "engine.py")])  # a "#!" line has no room for a space
    (tmp_path / "bin").mkdir()
    for name in ENGINES:
        path = tmp_path / "bin" / name
        path.write_text(f'#!/bin/sh\nexec {started} {name} "$@"\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    return tmp_path


def calls(engine: Path) -> list[list[str]]:
    return [json.loads(line) for line in (engine / "calls").read_text().splitlines()]


def test_images_name_their_base_by_digest() -> None:
    for name in (TEST, BUILD):
        base = images.find_dockerfile(name, ROOT).arguments["BASE"]
        assert base.count("/") == 2  # with its registry: podman asks, or refuses, where there is none
        assert len(base.partition("@sha256:")[2]) == 64
    # Debian's own is of the day: the ROCm in its archive is, and what is built runs on no older one.
    assert images.find_dockerfile(DEBIAN, ROOT).arguments["BASE"] == "docker.io/library/debian:sid"


@pytest.mark.parametrize("name", [TEST, BUILD, DEBIAN])
@pytest.mark.parametrize(
    "epoch",
    [
        ("docker", "--build-arg SOURCE_DATE_EPOCH=7"),
        ("buildah", "--build-arg SOURCE_DATE_EPOCH=7 --timestamp 7"),
    ],
)
def test_building(name: str, epoch: tuple[str, str], cairn: Cairn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "7")
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.example")
    monkeypatch.setenv("GITHUB_REPOSITORY", "a/b")
    out, _ = cairn(
        "image", "build", name, "--engine", epoch[0], "--base", "local/base", "--dry-run",
        "--tag", "r.example/x:1", "--tag", "y", "--", "--network", "host",
    )  # fmt: skip
    words = shlex.split(out)
    revision = [word for word in words if word.startswith("org.opencontainers.image.revision=")]
    for word in revision:  # none where the folder has changes
        at = words.index(word)
        del words[at - 1 : at + 1]
    assert words == shlex.split(
        f"{epoch[0]} build --file {shlex.quote(f'{FOLDER}/{name}.Dockerfile')} --tag r.example/x:1 --tag y "
        "--build-arg BASE=local/base "
        "--label org.opencontainers.image.source=https://github.example/a/b "
        f"{epoch[1]} --network host {shlex.quote(str(FOLDER))}"
    )


def test_programs_that_date_what_they_write_are_told_the_date() -> None:
    """`useradd` writes the day into /etc/shadow, and an image would be another one after midnight."""
    for name in (TEST, BUILD, DEBIAN):
        text = (FOLDER / f"{name}.Dockerfile").read_text()
        assert text.index("FROM ") < text.index("\nARG SOURCE_DATE_EPOCH\n") < text.index("\nRUN ")


def test_pip_s_configuration_is_a_secret(tmp_path: Path, cairn: Cairn) -> None:
    (tmp_path / "pip.conf").touch()
    out, _ = cairn("image", "build", TEST, "--dry-run", "--pip-config", str(tmp_path / "pip.conf"))
    assert f"--secret id=pip.conf,src={tmp_path}/pip.conf" in out
    for name in (TEST, BUILD, DEBIAN):
        text = (FOLDER / f"{name}.Dockerfile").read_text()
        assert text.count("--mount=type=secret,id=pip.conf,mode=0444 ") == text.count("-m pip install ") > 0
        assert "--require-hashes" in text


def test_pushing_says_the_digest(engine: Path, cairn: Cairn) -> None:
    tags = ("--tag", "registry.example:5000/x:1", "--tag", "registry.example:5000/x:latest")
    for name in ENGINES:
        answer = cairn.json("image", "build", TEST, "--engine", name, *tags, "--push")
        assert answer == {
            "name": TEST,
            "engine": name,
            "tags": ["registry.example:5000/x:1", "registry.example:5000/x:latest"],
            "digest": f"registry.example:5000/x@{DIGEST}",
        }
    pushed = [call[-1] for call in calls(engine) if call[1] == "push"]
    assert pushed == ["registry.example:5000/x:1", "registry.example:5000/x:latest"] * 3


def test_nothing_is_pushed_to_nowhere(engine: Path, cairn: Cairn) -> None:
    _, err = cairn("image", "build", TEST, "--tag", "x", "--push", code=2)
    assert "--push needs a --tag that names a registry" in err
    assert not any(call[1] != "version" for call in calls(engine))


PAGE = "--device=/dev/kfd --device=/dev/dri --ipc=host --group-add=video --group-add=render"


def test_the_line_of_upstreams_page_is_the_one_that_is_printed(cairn: Cairn) -> None:
    """external-builds/pytorch/README.md of TheRock, "Prerequisites" of the tests."""
    engine = ("--engine", "docker")
    line = cairn("image", "run", TEST, *engine, "--gpu", "--dry-run").out
    answer = cairn.json("image", "build", TEST, *engine, "--dry-run")
    assert line.startswith(f"docker run --rm {PAGE} ")  # and -it on a terminal
    assert line.endswith(f" {TEST}:latest\n")
    assert answer["text"] == (FOLDER / f"{TEST}.Dockerfile").read_text()
    # An engine looks the groups up in the image.
    for name in ("video", "render"):
        assert f"getent group {name} || groupadd" in answer["text"]
    shown = cairn("image", "build", TEST, *engine, "--dry-run").out.splitlines()
    file, folder = shlex.quote(f"{FOLDER}/{TEST}.Dockerfile"), shlex.quote(str(FOLDER))
    assert shown == [shlex.join(line) for line in answer["lines"]]
    assert shown[0].startswith(f"docker build --file {file} --tag {TEST}:latest ")  # its commit follows
    assert shown[0].endswith(f" {folder}")


AT = "--volume /src:/work --workdir /work"


def one_run(engine: Engine, **changes: object) -> images.ImageRun:
    given = {
        "gpu": True,
        "gpu_groups": (110,),
        "folder": Path("/src"),
        "user": (1000, 1000),
        "command": ("a", "b c"),
    }
    return images.ImageRun(image="i", engine=engine, **{**given, **changes})  # type: ignore[arg-type]


GPUS = f"{PAGE} --group-add=110 --ulimit nofile=65536:65536"
STEP = {"mounts": ((Path("/night/step"), True), (Path("/stack"), False)), "variables": {"A": "1 2"}}
UNPRIVILEGED = "--security-opt no-new-privileges"
CONFINED = f"--name n --init {UNPRIVILEGED}"
SEEN = "--volume /night/step:/night/step --volume /stack:/stack:ro --env 'A=1 2'"
LIMIT = "--ulimit nofile=65536:65536"
LIMITS = f"{LIMIT} --shm-size=2g"


@pytest.mark.parametrize(
    ("run", "lines"),
    [
        (
            one_run("docker"),
            (f"docker run --rm -it {GPUS} {AT} --user 1000:1000 --env HOME=/tmp i a 'b c'",),
        ),
        (
            one_run("podman"),
            (f"podman run --rm -it {GPUS} {AT} --userns=keep-id i a 'b c'",),
        ),
        (
            one_run("docker", gpu=False, folder=None, user=None, command=(), terminal=False),
            (f"docker run --rm {LIMITS} i",),
        ),
        (
            one_run("docker", folder=None, terminal=False, **STEP),
            (f"docker run --rm {GPUS} {CONFINED} {SEEN} --user 1000:1000 --env HOME=/tmp i a 'b c'",),
        ),
        (
            one_run("podman", folder=None, user=(0, 0), terminal=False, **STEP),
            (f"podman run --rm {GPUS} {CONFINED} {SEEN} --user 0:0 --env HOME=/tmp i a 'b c'",),
        ),
        (
            one_run("buildah", folder=None, user=(0, 0), gpu=False, terminal=False, **STEP),
            (
                f"buildah from --name n {LIMITS} i",
                f"buildah run --user 0:0 {SEEN} n -- a 'b c'",
                "buildah rm n",
            ),
        ),
        (
            one_run("buildah", gpu=False, user=None, command=(), open_files=9),
            (
                "buildah from --name n --ulimit nofile=9:9 --shm-size=2g i",
                "buildah run --tty --volume /src:/work --workingdir /work n -- /bin/bash",
                "buildah rm n",
            ),
        ),
    ],
)
def test_running(run: images.ImageRun, lines: tuple[str, ...]) -> None:
    assert tuple(map(shlex.join, images.run_commands(run, name="n"))) == lines


def test_a_job_of_github_gets_the_gpus_of_its_runner_and_no_privileges() -> None:
    options = images.job_options(gpu=True)
    confined = f"{UNPRIVILEGED} --user 0:0 --env ROCR_VISIBLE_DEVICES"
    assert options == f"{PAGE} {LIMIT} {confined}"
    assert "/dev/kfd" not in images.job_options(gpu=False)


def test_the_exit_code_is_that_of_the_command(engine: Path, cairn: Cairn) -> None:
    cairn("image", "run", TEST, "--engine", "docker", "--no-gpu", "--", "false", "--flag", code=7)
    assert calls(engine)[-1][-3:] == [f"{TEST}:latest", "false", "--flag"]
    cairn("image", "run", TEST, "--engine", "buildah", "--no-gpu", code=7)
    assert [call[1] for call in calls(engine)[-3:]] == ["from", "run", "rm"]


def test_a_folder_that_no_engine_can_mount(tmp_path: Path, cairn: Cairn) -> None:
    (tmp_path / "a:b").mkdir()
    (tmp_path / "a b é").mkdir()
    _, err = cairn("image", "run", TEST, "--dry-run", "--mount-dir", tmp_path / "a:b", code=2)
    assert "engines take no colon" in err
    out, _ = cairn(
        "image", "run", TEST, "--dry-run", "--engine", "docker", "--mount-dir", str(tmp_path / "a b é")
    )
    assert f"{tmp_path}/a b é:/work" in shlex.split(out)


def test_groups_are_those_of_the_devices(tmp_path: Path) -> None:
    for name in ("kfd", "renderD128"):
        (tmp_path / name).touch()
    mine = (tmp_path / "kfd").stat().st_gid
    found = images.gpu_groups((tmp_path / "kfd", tmp_path / "renderD128", tmp_path / "gone"))
    assert found == ((mine,) if mine else ())  # root's needs no naming


def test_an_engine_that_does_not_answer_is_passed_over(engine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert images.choose_engine(None) == "docker"
    (engine / "bin" / "docker").write_text("#!/bin/sh\nexit 1\n")
    assert images.choose_engine(None) == "podman"
    for name in ENGINES:
        (engine / "bin" / name).write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(PrerequisiteError, match="docker is here, but does not answer"):
        images.choose_engine(None)
    monkeypatch.setenv("PATH", str(engine))
    with pytest.raises(
        PrerequisiteError, match="none of docker, podman and buildah is on this machine"
    ) as caught:
        images.choose_engine(None)
    assert caught.value.tip == "install it, on Debian and Ubuntu: apt install podman"
    with pytest.raises(PrerequisiteError, match="buildah is not on this machine"):
        images.choose_engine("buildah")
    assert images.likely_engine(None) == "docker"


@pytest.mark.parametrize(
    ("words", "said", "meant"),
    [
        (("no_rocm_image",), "there is no image 'no_rocm_image' in ", f"did you mean {TEST}?"),
        (("x/y",), "there is no Dockerfile x/y", ""),
        (
            (TEST, "--build-arg", "BAES=x"),
            f"{TEST}.Dockerfile has no build argument BAES",
            "did you mean BASE?",
        ),
        ((TEST, "--build-arg", "BASE"), "--build-arg BASE is not NAME=VALUE", ""),
    ],
)
def test_what_was_mistyped_is_named(words: tuple[str, ...], said: str, meant: str, cairn: Cairn) -> None:
    _, err = cairn("image", "build", *words, "--dry-run", code=2)
    assert said in err
    assert meant in err


def test_a_dockerfile_elsewhere(tmp_path: Path, cairn: Cairn) -> None:
    folder = tmp_path / "my é dir"
    folder.mkdir()
    (folder / "x.Dockerfile").write_text("ARG BASE=debian:12\nFROM ${BASE}\nARG BASE\nARG N\nUSER 1001\n")
    found = images.find_dockerfile(str(folder / "x.Dockerfile"), tmp_path)
    assert (found.name, dict(found.arguments)) == ("x", {"BASE": "debian:12", "N": ""})
    out, _ = cairn("image", "build", str(folder / "x.Dockerfile"), "--engine", "podman", "--dry-run")
    file = f"{folder}/x.Dockerfile"
    assert shlex.split(out) == ["podman", "build", "--file", file, "--tag", "x:latest", str(folder)]


def test_a_dockerfile_that_is_not_utf_8_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "x.Dockerfile"
    path.write_bytes("FROM base\n# by Andr\u00e9\n".encode("latin-1"))
    with pytest.raises(UsageError, match=r"x\.Dockerfile:2: not UTF-8"):
        images.find_dockerfile(str(path), tmp_path)


def test_the_repository_of_a_name() -> None:
    assert images._repository("r.example:5000/x") == "r.example:5000/x"
    assert images._repository("r.example:5000/x:1") == "r.example:5000/x"
    assert images._repository("x:1") == "x"

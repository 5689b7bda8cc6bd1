"""Bad input gets one clear line and the right exit code, and leaves nothing half-written."""

import os
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairn import venv
from cairn.release.index import keys
from cairn.release.publish.files import publish
from cairn.release.serve import serving
from cairn.store import folder as store_folder
from helpers.trail import ROOT, SAMPLE, Trail, cairn, clean_environment

SCRIPTS = ROOT / "external-builds" / "pytorch"
Done = subprocess.CompletedProcess[str]


def script(name: str, *words: str | Path, cache: Path) -> Done:
    env = clean_environment(cache) | {"PIP_CONFIG_FILE": os.devnull}
    command = [sys.executable, SCRIPTS / name, *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)


def assert_one_clear_line(done: Done, code: int, *said: str) -> None:
    assert done.returncode == code, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    assert "Traceback" not in done.stderr
    for word in said:
        assert word in done.stderr


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A repository with one commit, and nothing in it that a project needs."""
    path = tmp_path / "origin"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q", "-b", "main", path], check=True)
    (path / "file").touch()
    subprocess.run([*git, "add", "."], cwd=path, check=True)
    subprocess.run([*git, "commit", "-qm", "one"], cwd=path, check=True)
    return path


@pytest.fixture
def empty_index(tmp_path: Path) -> Iterator[str]:
    """The URL of an index that has one project, and it is not rocm."""
    folder = tmp_path / "store"
    wheel = tmp_path / "other-1-py3-none-any.whl"
    make_wheel(wheel)
    publish(store_folder.LocalStore(folder), "staging", [wheel])
    with serving(store_folder.LocalStore(folder)) as server:
        yield keys.index_url(server.url, "staging")


def make_wheel(path: Path) -> None:
    source = path.parent / "source"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "other"\nversion = "1"\n[tool.setuptools]\npy-modules = []\n'
    )
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", path.parent, source]
    subprocess.run(command, check=True, capture_output=True)


def test_unknown_hashtag(origin: Path, tmp_path: Path) -> None:
    target = tmp_path / "pytorch"
    words = ("checkout", "--gitrepo-origin", origin, "--repo-hashtag", "no/such", "--checkout-dir", target)
    done = script("pytorch_torch_repo.py", *words, cache=tmp_path / "cache")
    assert_one_clear_line(done, 4, "no/such", "what to do:")
    assert not (target / "file").exists()


def test_unreachable_origin(tmp_path: Path) -> None:
    url = "https://user:s3cret@127.0.0.1:9/pytorch.git"
    words = ("checkout", "--gitrepo-origin", url, "--checkout-dir", tmp_path / "pytorch")
    done = script("pytorch_torch_repo.py", *words, cache=tmp_path / "cache")
    assert_one_clear_line(done, 5, "127.0.0.1:9")
    assert "s3cret" not in done.stderr + done.stdout


def test_origin_that_is_no_repository(tmp_path: Path) -> None:
    words = ("checkout", "--gitrepo-origin", tmp_path / "nowhere", "--checkout-dir", tmp_path / "pytorch")
    done = script("pytorch_torch_repo.py", *words, cache=tmp_path / "cache")
    assert_one_clear_line(done, 4, "nowhere")


def test_missing_version_file(origin: Path, tmp_path: Path) -> None:
    words = ("checkout", "--gitrepo-origin", origin, "--repo-hashtag", "main", "--no-hipify")
    done = script(
        "pytorch_torch_repo.py", *words, "--checkout-dir", tmp_path / "pytorch", cache=tmp_path / "c"
    )
    assert_one_clear_line(done, 4, "version.txt")


def test_related_commit_that_nothing_names(origin: Path, tmp_path: Path) -> None:
    words = ("checkout", "--require-related-commit", "--torch-dir", origin)
    done = script("pytorch_audio_repo.py", *words, "--checkout-dir", tmp_path / "a", cache=tmp_path / "cache")
    assert_one_clear_line(done, 4, "related_commits")


def test_nothing_to_build_and_no_sdk(tmp_path: Path) -> None:
    words = ("build", "--output-dir", tmp_path / "out", "--root-checkout-dir", tmp_path)
    done = script("build_prod_wheels.py", *words, cache=tmp_path / "cache")
    assert_one_clear_line(done, 4, "there is no checkout of torch", "--install-rocm")
    assert not list(tmp_path.rglob("*.whl"))


def test_index_without_rocm(empty_index: str, tmp_path: Path) -> None:
    done = script(
        "build_prod_wheels.py", "install-rocm", "--index-url", empty_index, cache=tmp_path / "cache"
    )
    assert_one_clear_line(done, 2, "rocm", empty_index)


def test_index_that_nobody_serves(tmp_path: Path) -> None:
    words = ("install-rocm", "--index-url", "http://127.0.0.1:9/simple/")
    done = script("build_prod_wheels.py", *words, cache=tmp_path / "cache")
    assert_one_clear_line(done, 5, "127.0.0.1:9")


def test_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        folder = tmp_path / "index"
        folder.mkdir()
        done = cairn("index", "serve", folder, "--port", str(port), env=clean_environment(tmp_path / "cache"))
    assert_one_clear_line(done, 11, str(port), "--port")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("ci", "run", "--stack", SAMPLE, "--targets", "gfx9999"), 2, "gfx9999"),
        (("ci", "run", "--stack", SAMPLE, "--line", "release/0.1"), 2, "release/0.1"),
        (("ci", "run", "--stack", "no-such-stack"), 2, "--stack"),
        (("index", "publish", "--store", "store", "absent-1-py3-none-any.whl"), 2, "absent-1-py3"),
        (("release", "promote", "0" * 64, "--stack", SAMPLE, "--store", "no-store"), 9, "no-store"),
        (("wheel", "show", "no-such.whl"), 2, "there is no file no-such.whl"),
    ],
)
def test_what_cannot_be_meant(words: tuple[str, ...], code: int, said: str, tmp_path: Path) -> None:
    done = cairn(*words, env=clean_environment(tmp_path / "cache"), cwd=tmp_path)
    assert_one_clear_line(done, code, said)


@pytest.mark.slow
@pytest.mark.xdist_group("trail")
def test_a_build_that_fails_shows_its_last_lines_and_its_log(trail: Trail, tmp_path: Path) -> None:
    source = copy_of_sources(trail, tmp_path)
    (source / "pytorch" / "setup.py").write_text("raise SystemExit('the reason it failed')\n")
    out = tmp_path / "out"
    done = cairn(*build_words(trail, source, out), env=trail.environment())
    assert_one_clear_line(done, 6, "building torch failed", "the reason it failed", "torch.log")
    assert [p.name.split("-")[0] for p in out.glob("*.whl")] == ["triton"]
    assert "the reason it failed" in (out / "logs" / "torch.log").read_text()


@pytest.mark.slow
@pytest.mark.by_hand  # unit/build/inputs/test_leftovers.py does it with a project of one file
@pytest.mark.xdist_group("trail")
@pytest.mark.skipif(not shutil.which("g++"), reason="the stack is built for the CPU by g++")
def test_a_build_for_the_cpu_after_one_for_rocm_has_nothing_of_it(trail: Trail, tmp_path: Path) -> None:
    source, out = copy_of_sources(trail, tmp_path), tmp_path / "out"
    words = ("build", "--stack", SAMPLE, "--root-checkout-dir", source, "--env-dir", tmp_path / "envs")
    cpu = (*words, "--output-dir", out, "--targets", "cpu", "--version-suffix", "+cpu")
    done = cairn(*cpu, env=clean_environment(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    assert not [path for path in source.rglob("_rocm_init.py") if ".git" not in path.parts]
    (wheel,) = out.glob("torch-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if "_rocm_init" in name or "torch_hip" in name]
    python = venv.create(tmp_path / "env").python
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-index",
        "--find-links",
        out,
        wheel,
    ]
    subprocess.run(pip, check=True, capture_output=True)
    subprocess.run([python, "-c", "import torch"], check=True, cwd=tmp_path)


@pytest.mark.slow
@pytest.mark.xdist_group("trail")
def test_no_space_left(trail: Trail, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", out], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small file system can only be mounted by root")
    try:
        (out / "filler").write_bytes(b"x" * 16384)
        # The cache is on another file system, so that the wheel must be copied.
        done = cairn(*build_words(trail, trail.work / "src", out), env=trail.environment())
        assert_one_clear_line(done, 11, "No space left on device")
        assert all(wheel.stat().st_size > 0 for wheel in out.glob("*.whl"))
        assert not list(out.glob("torch-*.whl"))
        assert not list(out.glob(".*part"))
    finally:
        subprocess.run(["umount", out], check=True)
    again = cairn(*build_words(trail, trail.work / "src", out), env=trail.environment())
    assert again.returncode == 0, again.stderr


def copy_of_sources(trail: Trail, tmp_path: Path) -> Path:
    subprocess.run(["cp", "-a", trail.work / "src", tmp_path / "src"], check=True)
    return tmp_path / "src"


def build_words(trail: Trail, source: Path, out: Path) -> tuple[str | Path, ...]:
    head = ("build", "--stack", SAMPLE, "--root-checkout-dir", source, "--output-dir", out)
    return (*head, "--targets", "gfx942,gfx1100", "--env-dir", trail.work / "envs")

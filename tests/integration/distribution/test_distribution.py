"""The wheel and the sdist of Cairn: what they hold, how light the core is, and that it works by itself."""

from __future__ import annotations

import email
import io
import lzma
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cairn import shipped
from helpers import tiny_stack
from helpers.installed import Installed
from helpers.trail import ROOT

MOST_PACKAGES = 15
# On the disk, without the bytecode that pip compiles; 5 MB to download. What it needs is 10.2 MB of it.
MOST_BYTES = 15_480_000


def closure(requirements: list[str]) -> set[str]:
    """The packages that requirements of the core bring, as this environment has them."""
    seen: set[str] = set()
    todo = [Requirement(text) for text in requirements]
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        if name in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        todo += map(Requirement, metadata.requires(name) or ())
    return seen


def size_of(name: str) -> int:
    """The bytes of an installed package, without what Python compiled."""
    paths = (Path(str(file.locate())) for file in metadata.files(name) or () if file.suffix != ".pyc")
    return sum(path.stat().st_size for path in paths if path.is_file())


def test_the_core_is_light(program: Installed) -> None:
    with zipfile.ZipFile(program.wheel) as wheel:
        own = sum(entry.file_size for entry in wheel.infolist())
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        requires = email.message_from_bytes(wheel.read(name)).get_all("Requires-Dist") or []
    packages = closure(requires)
    assert len(packages) + 1 <= MOST_PACKAGES, sorted(packages)
    assert own + sum(map(size_of, packages)) <= MOST_BYTES


def test_the_wheel_has_what_belongs_to_it_and_nothing_else(program: Installed) -> None:
    checker = Path(sysconfig.get_path("scripts"), "check-wheel-contents")
    subprocess.run([checker, program.wheel], check=True)
    said = program.run("wheel", "verify", program.wheel, cwd=program.wheel.parent)
    assert "finding" not in said
    with zipfile.ZipFile(program.wheel) as wheel:
        names = wheel.namelist()
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "build_tools/cairn"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    ours = {name.removeprefix("build_tools/") for name in tracked if (ROOT / name).is_file()}
    assert {name for name in names if name.startswith("cairn/")} == ours | {f"cairn/{shipped.ARCHIVE}"}


def test_the_sdist_builds_the_same_wheel(program: Installed, tmp_path: Path) -> None:
    tree = program.wheel.parents[1] / "tree"
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path)]
    subprocess.run([*build, "--sdist", str(tree)], check=True, capture_output=True)
    (sdist,) = tmp_path.glob("cairn_wheels-*.tar.gz")
    with tarfile.open(sdist) as archive:
        tops = {name.split("/")[1] for name in archive.getnames() if "/" in name}
        archive.extractall(tmp_path, filter="data")
    assert not tops & {".git", ".venv", ".cairn", "benchmarks", "docs"}
    unpacked = tmp_path / sdist.name.removesuffix(".tar.gz")
    subprocess.run([*build, "--wheel", str(unpacked)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == program.wheel.name
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(program.wheel) as other:
        assert {n: one.getinfo(n).CRC for n in one.namelist() if "dist-info" not in n} == {
            n: other.getinfo(n).CRC for n in other.namelist() if "dist-info" not in n
        }


def test_what_is_shipped_is_that_of_the_checkout(program: Installed) -> None:
    with (
        zipfile.ZipFile(program.wheel) as wheel,
        zipfile.ZipFile(io.BytesIO(lzma.decompress(wheel.read(f"cairn/{shipped.ARCHIVE}")))) as content,
    ):
        packed = {name: content.read(name) for name in content.namelist()}
    assert packed == {name: path.read_bytes() for name, path in shipped.of_checkout(ROOT)}
    stacks = {name for name in packed if name.endswith("/stack.toml")}
    assert {f"stacks/{name}/stack.toml" for name in shipped.STACKS} <= stacks


def test_stacks_and_images_have_names_anywhere(program: Installed, tmp_path: Path) -> None:
    env = {"CAIRN_CACHE_DIR": str(tmp_path / "cache")}
    work = tmp_path / "an empty folder, naïve"
    work.mkdir()
    listed = program.run("matrix", "--stack", "pytorch", "--trigger", "nightly", cwd=work, **env)
    assert "gfx94X-dcgpu" in listed
    image = ("image", "build", "no_rocm_image_ubuntu24_04", "--engine", "docker", "--dry-run")
    printed = program.run(*image, cwd=work, **env)
    assert printed.startswith("docker build --file ")
    assert list(work.iterdir()) == []
    program.run("checkout", "torch", "--stack", "sample", cwd=work, **env)
    assert [path.name for path in work.iterdir()] == ["pytorch"]
    program.run("matrix", "--stack", "pytorch", "--trigger", "nightly", cwd=work, **env)  # not that folder
    assert re.search(r"did you mean", program.run("matrix", "--stack", "pytroch", cwd=work, code=2, **env))
    lock = ("index", "mirror", "lock", "--stack", "sample", "--require", "packaging")
    refused = program.run(*lock, cwd=work, code=2, **env)
    assert "the stack sample is the installed Cairn's own, whose files are the same for everybody" in refused
    assert "what to do: name a file of yours: --lock mirror.lock.toml" in refused


def test_the_core_alone_diagnoses_and_plans_and_the_extra_that_it_names_builds(
    program: Installed, tmp_path: Path
) -> None:
    """As a user installs it: by pip, from the wheel, into an environment that has nothing else."""
    venv.create(tmp_path / "env", symlinks=True)
    fresh = Installed(wheel=program.wheel, programs=tmp_path / "env/bin")
    stack = tiny_stack.write(tmp_path / "stack")
    # A uv or patchelf of the machine would hide what is missing.
    env = {"PATH": f"{fresh.programs}:/usr/bin:/bin", "CAIRN_CACHE_DIR": str(tmp_path / "cache")}
    pip = [sys.executable, "-m", "pip", "--python", str(fresh.programs / "python"), "install", "--no-compile"]
    subprocess.run([*pip, "--quiet", str(program.wheel)], check=True, timeout=300)
    place = ("--stack", stack, "--root-checkout-dir", tmp_path / "src")
    said = fresh.run("doctor", "--for", "install", cwd=tmp_path, **env)
    assert "Python: CPython" in said
    fresh.run("checkout", "all", *place, cwd=tmp_path, **env)
    assert "never built before" in fresh.run("build", "--dry-run", *place, cwd=tmp_path, **env)
    output = ("--output-dir", tmp_path / "out")
    doctor = fresh.run("doctor", "--stack", stack, cwd=tmp_path, code=3, **env)
    refused = fresh.run("build", *place, *output, cwd=tmp_path, code=3, **env)
    (line,) = {text.removeprefix("  what to do: ").strip() for text in refused.splitlines()[-1:]}
    assert f"'{program.wheel}[build]'" in line
    assert f"      {line}" in doctor.splitlines()
    for name in ("build", "git", "jinja2", "pip", "requests", "uv", "wheel"):  # in one go
        assert re.search(rf"does without: .*\b{name}\b", refused)
    for command, extra in {"test smoke --set x": "test", "ci run --stack sample": "release"}.items():
        (tmp_path / "x").touch()
        assert f"[{extra}]'" in fresh.run(*command.split(), cwd=tmp_path, code=3, **env)
    subprocess.run([*pip, "--quiet", f"{program.wheel}[build]"], check=True, timeout=300)
    assert "tiny-1.0" in fresh.run("build", *place, *output, cwd=tmp_path, **env)
    assert "Cairn" not in fresh.run("doctor", "--stack", stack, cwd=tmp_path, **env)
    (wheel,) = (tmp_path / "out").glob("tiny-1.0-*.whl")
    assert ": good" in fresh.run("wheel", "verify", wheel, cwd=tmp_path, **env)


@pytest.mark.by_hand
def test_the_sample_runs_from_the_wheel_alone(program: Installed, tmp_path: Path) -> None:
    cache = os.environ.get("CAIRN_TEST_CACHE", str(tmp_path / "cache"))
    done = program.run("ci", "run", "--stack", "sample", cwd=tmp_path, CAIRN_CACHE_DIR=cache)
    assert "is in the release index; pip and uv install it" in done
    assert {path.name for path in tmp_path.iterdir()} <= {".cairn", "cache"}

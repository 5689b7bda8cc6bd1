"""The images: their Dockerfiles under a linter, and all built and used by buildah on a base made here."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairn.cli.main import main
from helpers.trail import ROOT

FILES = sorted((ROOT / "dockerfiles").glob("*.Dockerfile"))
HADOLINT = Path(sys.executable).with_name("hadolint")
MIRROR = os.environ.get("CAIRN_TEST_DEBIAN_MIRROR", "http://deb.debian.org/debian")
CERTIFICATES = Path("/usr/local/share/ca-certificates")
TRUSTED = "/etc/ssl/certs/ca-certificates.crt"
TEST = "no_rocm_image_ubuntu24_04"
BUILD = "build_manylinux_x86_64"
DEBIAN = "build_debian_unstable"


def hadolint(*paths: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([HADOLINT, "--no-color", *paths], capture_output=True, text=True, check=False)


def test_the_linter_finds_nothing() -> None:
    assert len(FILES) == 3
    found = hadolint(*FILES)
    assert (found.returncode, found.stdout) == (0, "")


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (" --no-install-recommends", "", "DL3015"),
        ("FROM ${BASE}", "FROM debian:latest", "DL3007"),
        ("USER 1001", "USER root", "DL3002"),
    ],
)
def test_the_linter_finds_a_planted_fault(tmp_path: Path, old: str, new: str, code: str) -> None:
    text = (ROOT / "dockerfiles" / f"{TEST}.Dockerfile").read_text()
    assert old in text
    (tmp_path / "x.Dockerfile").write_text(text.replace(old, new))
    found = hadolint(tmp_path / "x.Dockerfile")
    assert found.returncode == 1
    assert code in found.stdout


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A place of its own for buildah's images, which needs no kernel's help; about 5 GB at most."""
    if not shutil.which("buildah") or not shutil.which("debootstrap") or os.getuid() != 0:
        pytest.skip("needs root, and: apt-get install --no-install-recommends buildah debootstrap")
    folder = tmp_path_factory.mktemp("images")
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINERS_STORAGE_CONF", str(folder / "storage.conf"))
        patch.setenv("BUILDAH_ISOLATION", "chroot")
        patch.setenv("SOURCE_DATE_EPOCH", "1700000000")
        yield folder
        for words in (("rm", "--all"), ("rmi", "--all", "--force")):
            subprocess.run(["buildah", *words], check=False, capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def base(storage: Path) -> str:
    """Debian 12's smallest system as an image, which trusts whom this machine trusts."""
    root = storage / "root"
    command = ["debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", root, MIRROR]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    for file in CERTIFICATES.glob("*.crt"):
        shutil.copy(file, root / CERTIFICATES.relative_to("/"))
    inside = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}  # our TMPDIR is not there
    subprocess.run(["chroot", root, "update-ca-certificates"], env=inside, check=True, capture_output=True)
    commit("scratch", "localhost/debian12", "add", str(root))
    shutil.rmtree(root)
    return "localhost/debian12"


def commit(image: str, name: str, *change: str) -> None:
    """Make an image of another one by one command of buildah's."""
    begin = subprocess.run(["buildah", "from", image], check=True, capture_output=True, text=True)
    container = begin.stdout.strip()
    verb, *rest = change
    words = [verb, container, *rest, "/"] if verb == "add" else [verb, *rest, container]
    for command in (words, ["commit", container, name], ["rm", container]):
        subprocess.run(["buildah", *command], check=True, capture_output=True)


def build(name: str, base: str, storage: Path, *words: str) -> None:
    (storage / "pip.conf").write_text(f"[global]\ncert = {TRUSTED}\n")
    given = ["--engine", "buildah", "--base", base, "--pip-config", str(storage / "pip.conf"), *words]
    assert main(["image", "build", name, *given, "--", "--network", "host"]) == 0


def run(name: str, script: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> str:
    """What a shell writes that runs a script in an image, with `folder` as the working folder."""
    capfd.readouterr()
    words = ["--engine", "buildah", "--no-gpu", "--mount-dir", str(folder)]
    code = main(["image", "run", name, *words, "--", "env", f"PIP_CERT={TRUSTED}", "bash", "-euc", script])
    shown = capfd.readouterr()
    assert code == 0, shown.out + shown.err
    return shown.out


@pytest.mark.by_hand
@pytest.mark.slow
def test_both_are_built_and_used(storage: Path, base: str, capfd: pytest.CaptureFixture[str]) -> None:
    build(TEST, base, storage)
    project = storage / "project with é"
    subprocess.run(["git", "clone", "--quiet", ROOT, project], check=True)
    subprocess.run(["chown", "--recursive", "1001:1001", project], check=True)

    # The user, the groups that the page's line adds, the tools from PyPI; nothing of pip's configuration.
    asked = "id -un; id -Gn; cmake --version | head -1; ninja --version; sudo id -un; ls /run/secrets || true"
    said = run(TEST, asked, project, capfd).splitlines()
    assert said[0] == "tester"
    assert {"video", "render", "sudo"} <= set(said[1].split())
    assert said[2].startswith("cmake version 3.")
    assert said[-1] == "root"

    shown = run(TEST, "python3 dev.py quickstart", project, capfd)
    assert "pip install --index-url file:///work/.cairn/sample/index/release/simple/ torch" in shown

    # The image for builds takes any base with git, Python and a compiler; here that of the tests, as root.
    commit(TEST, "localhost/with-compiler", "config", "--user", "0")
    debian = ("--build-arg", "GCC_TOOLSET=", "--build-arg", "PYTHON=python3")
    build(BUILD, "localhost/with-compiler", storage, *debian)
    checked = (
        "for tool in ccache cmake ninja patchelf sccache; do "
        "$tool --version > /dev/null; command -v $tool; done; pwd"
    )
    said = run(BUILD, checked, project, capfd).splitlines()
    assert [line for line in said if line.startswith("/opt/tools/bin/")] == [
        f"/opt/tools/bin/{tool}" for tool in ("ccache", "cmake", "ninja", "patchelf", "sccache")
    ]
    assert said[-1] == "/work"
    doctor = ".venv/bin/cairn doctor --for build --stack external-builds/pytorch --json || [ $? = 3 ]"
    found = json.loads(run(BUILD, doctor, project, capfd))
    levels = {one["check"]: one["level"] for one in found["findings"]}
    assert {levels[name] for name in ("Python", "git", "C++ compiler", "cmake, ninja")} == {"ok"}
    assert not {"Python's headers", "Python's venv"} & levels.keys()
    assert {"ccache", "cmake", "ninja", "sccache"} <= found["machine"]["programs"].keys()


@pytest.mark.by_hand
@pytest.mark.slow
def test_debians_is_built_of_the_versions_that_are_named(
    storage: Path, base: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of Debian 12's: unstable has none of its own for long."""
    build(DEBIAN, base, storage, "--build-arg", "GCC=12", "--build-arg", "PYTHON=3.11")
    checked = (
        "for name in c++ cc g++ gcc; do $name -dumpversion; done; python3 --version; python --version; "
        "for tool in ccache cmake ctest ninja patchelf sccache; do $tool --version > /dev/null; done; "
        "python3 -m venv /tmp/v; echo '#include <Python.h>' > /tmp/x.c; "
        "gcc -E -I/usr/include/python3.11 /tmp/x.c > /dev/null; "
        "ls /run/secrets || true; pwd"
    )
    shown = run(DEBIAN, checked, storage, capfd).splitlines()
    assert shown[:4] == ["12"] * 4
    assert shown[4].startswith("Python 3.11")
    assert shown[5:] == [shown[4], "/work"]


@pytest.mark.by_hand
@pytest.mark.slow
def test_the_same_image_again(storage: Path, base: str) -> None:
    """Nothing in the image tells when it was built; the distribution's packages are those of the day."""

    def digest(image: str) -> str:
        # Of an image, and not of a container, this is its own; both have it (buildah-inspect(1)).
        words = ["buildah", "inspect", "--type", "image", "--format", "{{.FromImageDigest}}", image]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()

    for number in (1, 2):
        build(TEST, base, storage, "--tag", f"again:{number}")  # buildah keeps no layers to build on
    assert digest("again:1") == digest("again:2")
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", digest("again:1"))
    assert digest("again:1") != digest(base)

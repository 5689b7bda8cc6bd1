"""`cairn install` over environments that have something already: announced, present afterwards, exit code."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from cairn import venv
from cairn.errors import PrerequisiteError
from cairn.pipeline import installed
from cairn.release.history import yank
from cairn.release.pages.targets_file import Offer
from cairn.release.serve import serving
from cairn.store.folder import LocalStore
from helpers import packing
from helpers.hardware import TORCH
from helpers.pages import PLATFORM, PYTHON
from helpers.program import Cairn
from helpers.release import make_set, make_wheel, move, stage_set
from helpers.wheels import altered

LOCAL = "+rocm7.10.0"
TORCH_V, VISION_V, AUDIO_V = f"2.9.0{LOCAL}", f"0.24.0{LOCAL}", f"2.9.0{LOCAL}"
ANNOUNCED = {"torch": TORCH_V, "torchvision": VISION_V, "torchaudio": AUDIO_V}
ALL = bool(os.environ.get("CAIRN_TEST_ALL"))  # else each row with one of the two installers
INSTALLERS = ("pip", "uv")


def _row(torch: str, vision: str = "0.24.0", audio: str = "2.9.0") -> dict[str, str]:
    return {"torch": torch, "torchvision": vision, "torchaudio": audio}


def wheels_of(folder: Path, versions: Mapping[str, str], content: str | None = None) -> list[Path]:
    """Wheels of torch and its siblings; the bytes are those of the index for its versions and `content`."""
    pin = [f"torch=={versions.get('torch')}"]
    return [
        make_wheel(
            folder,
            name,
            version,
            content=content or (TORCH.replace("{version}", version) if name == "torch" else None),
            requires=[] if name == "torch" else pin,
        )
        for name, version in versions.items()
    ]


def put_editable(folder: Path, python: Path, version: str) -> None:
    """Install torch from a source tree, as who develops it does (PEP 660)."""
    folder.mkdir()
    (folder / "torch.py").write_text(TORCH.replace("{version}", version))
    (folder / "backend.py").write_text(BACKEND.replace("{version}", version).replace("{folder}", str(folder)))
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    put(python, "--editable", folder)


BACKEND = packing.backend("""
def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    metadata = "Metadata-Version: 2.2\\nName: torch\\nVersion: {version}\\n"
    members = {"torch_source.pth": "{folder}", "torch-{version}.dist-info/METADATA": metadata}
    return write_wheel(wheel_directory, "torch", "{version}", members).name
""")


@pytest.fixture(scope="module")
def index_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An index with a set for gfx1100, and a newer one that was yanked."""
    folder = tmp_path_factory.mktemp("released")
    store = LocalStore(folder / "store")
    for name, versions in (
        ("set", ANNOUNCED),
        ("yanked", _row(f"2.9.1{LOCAL}", f"0.24.1{LOCAL}", f"2.9.1{LOCAL}")),
    ):
        wheels = wheels_of(folder / name, versions)
        made = make_set(wheels, family="gfx110X-all", targets=("gfx1100",), python=PYTHON, platform=PLATFORM)
        sealed = stage_set(store, "staging", made, wheels)
        move(store, sealed, target="release/gfx110X-all", untested="bypassed by ann: no hardware")
        if name == "yanked":
            yank.yank(store, sealed.id, reason="wrong results")
    with serving(store, port=0) as server:
        yield f"{server.url}/release/simple/"


@dataclass(frozen=True, kw_only=True)
class Row:
    """An environment before, and what an installation makes of it.

    Attributes:
        before: the versions that are there; None for a package that is not.
        present: the versions afterwards.
        code: of the installation.
        message: a part of what it prints.
        content: of the modules that are there; None for those of the index.
        editable: torch is an editable installation.
    """

    before: Mapping[str, str]
    present: Mapping[str, str]
    code: int
    message: str
    content: str | None = None
    editable: bool = False


WORKS = f"it works: torch {TORCH_V} has multiplied matrices on RX 7900 XTX (gfx1100)"


ROWS = {
    "empty": Row(before={}, present=ANNOUNCED, code=0, message=WORKS),
    "CPU": Row(before=_row("2.9.0+cpu"), present=ANNOUNCED, code=0, message=WORKS),
    "CUDA": Row(before=_row("2.9.0+cu128"), present=ANNOUNCED, code=0, message=WORKS),
    "older": Row(before=_row(f"2.8.0{LOCAL}"), present=ANNOUNCED, code=0, message=WORKS),
    "newer": Row(before=_row(f"2.10.0{LOCAL}"), present=ANNOUNCED, code=0, message=WORKS),
    "yanked": Row(before=_row(f"2.9.1{LOCAL}"), present=ANNOUNCED, code=0, message=WORKS),
    "the same": Row(
        before=ANNOUNCED, present=ANNOUNCED, code=0, message="compared with their wheels: 12 files"
    ),
    "other bytes": Row(
        before=ANNOUNCED,
        content="VERSION = 'mine'\n",
        present=ANNOUNCED,
        code=3,
        message=f"torch {TORCH_V}",
    ),
    "editable": Row(
        before=_row(TORCH_V), editable=True, present=ANNOUNCED, code=3, message="src: 3 of 4 files are not"
    ),
    "one missing": Row(
        before={"torch": TORCH_V, "torchaudio": AUDIO_V}, present=ANNOUNCED, code=0, message=WORKS
    ),
}


def versions(python: Path) -> dict[str, str]:
    """The versions that an environment has of torch and its siblings."""
    command = [venv.uv_program(), "pip", "list", "--format", "json", "--python", python]
    listed = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {item["name"]: item["version"] for item in listed if item["name"].startswith("torch")}


def put(python: Path, *words: str | Path) -> None:
    """Install into an environment without asking what it needs."""
    uv = [venv.uv_program(), "pip", "install", "-q", "--no-deps", "--no-index", "--python", python, *words]
    subprocess.run(uv, check=True)


@pytest.mark.parametrize(
    ("row", "installer"),
    [
        pytest.param(row, installer, id=f"{name}-{installer}")
        for number, (name, row) in enumerate(ROWS.items())
        for installer in (INSTALLERS if ALL else (INSTALLERS[number % 2],))
    ],
)
def test_it_is_there_as_announced_or_it_fails(
    cairn: Cairn, index_url: str, tmp_path: Path, row: Row, installer: str
) -> None:
    environment = venv.create(tmp_path / "environment")
    if row.before:
        put(environment.python, *wheels_of(tmp_path, row.before, row.content))
    if row.editable:
        put_editable(tmp_path / "src", environment.python, TORCH_V)
    words = ("--gpu", "RX 7900 XTX", "--installer", installer, "--python", environment.python)
    out, err = cairn("install", "--index-url", index_url, *words, code=row.code)
    assert row.message in out + err
    assert versions(environment.python) == row.present


def test_a_file_that_was_edited_in_place_is_named(cairn: Cairn, index_url: str, tmp_path: Path) -> None:
    environment = venv.create(tmp_path / "environment")
    words = ("install", "--index-url", index_url, "--gpu", "RX 7900 XTX", "--python", environment.python)
    assert cairn.json(*words)["compared"] == dict.fromkeys(ANNOUNCED, 4)
    module = environment.site_packages / "torchvision" / "__init__.py"
    module.write_text(module.read_text() + "# mine\n")
    _, err = cairn(*words, code=3)
    assert f"torchvision {VISION_V}: 1 of 4 files are not those of its wheel (torchvision/__init__.py)" in err
    line = err.partition("repeat the command: ")[2].strip()
    subprocess.run(shlex.split(line), check=True, capture_output=True)
    assert WORKS in cairn(*words).out


def two_platforms(wheel: Path) -> list[Path]:
    """A wheel for this machine, and one for an old glibc, which installers prefer."""
    wheels = []
    for platform in ("linux_x86_64", "manylinux1_x86_64"):
        tag = f"py3-none-{platform}"
        wheels.append(
            make_wheel(wheel.parent / "two", "torch", TORCH_V, tag=tag, content=f"FOR = {platform!r}\n")
        )
    return wheels


def without_sizes(wheel: Path) -> list[Path]:
    """Its RECORD has hashes alone, which its specification permits."""
    change = {f"torch-{TORCH_V}.dist-info/RECORD": lambda data: re.sub(rb"(?m),\d+$", b",", data)}
    return [altered(wheel, change)]


def with_files_of_installers(wheel: Path) -> list[Path]:
    """Conda's wheels have such files."""
    info = f"torch-{TORCH_V}.dist-info"
    return [altered(wheel, {f"{info}/INSTALLER": b"conda\n", f"{info}/REQUESTED": b"x"}, record=True)]


@pytest.mark.parametrize("installer", INSTALLERS)
@pytest.mark.parametrize("shape", [two_platforms, without_sizes, with_files_of_installers])
def test_a_good_wheel_of_an_odd_shape_is_there(
    tmp_path: Path, installer: str, shape: Callable[[Path], list[Path]]
) -> None:
    wheels = shape(make_wheel(tmp_path, "torch", TORCH_V))
    page = tmp_path / "simple" / "torch"
    page.mkdir(parents=True)
    (page / "index.html").write_text("".join(f'<a href="{wheel.as_uri()}">x</a>\n' for wheel in wheels))
    environment = venv.create(tmp_path / "environment")
    words = ("--no-index", "--find-links", wheels[0].parent, f"torch=={TORCH_V}")
    start = (
        venv.pip_command(environment.python)
        if installer == "pip"
        else (venv.uv_program(), "pip", "install", "--python", environment.python)
    )
    subprocess.run([*start, *words], check=True)
    offer = Offer(
        index="", index_url="", family="cpu", line="", set_id="", added="", python=PYTHON, platform=PLATFORM,
        packages=("torch",), versions={"torch": TORCH_V},
    )  # fmt: skip
    index_url = (tmp_path / "simple").as_uri()
    counts = installed.require_announced(offer, index_url, environment.python)
    assert counts == {"torch": 4}
    module = environment.site_packages / "torch" / "__init__.py"
    module.unlink()  # which uv may share with its cache
    module.write_text("mine = True\n")
    with pytest.raises(PrerequisiteError, match="1 of 4 files are not those of its wheel"):
        installed.require_announced(offer, index_url, environment.python)


@pytest.mark.parametrize("installer", INSTALLERS)
def test_the_python_of_a_system_stays_as_it_is(cairn: Cairn, index_url: str, installer: str) -> None:
    """PEP 668."""
    python = Path("/usr/bin/python3")
    ask = "import sysconfig; print(sysconfig.get_path('stdlib'))"
    where = subprocess.run([python, "-c", ask], check=False, capture_output=True, text=True).stdout.strip()
    if not Path(where, "EXTERNALLY-MANAGED").is_file():
        pytest.skip("no Python here is looked after by its system")
    words = ("--gpu", "RX 7900 XTX", "--installer", installer, "--python", python)
    _, err = cairn("install", "--index-url", index_url, *words, code=3)
    assert "is the system's, which alone installs packages there (PEP 668)" in err
    assert "what to do: make one: python3 -m venv" in err


def test_offline_nothing_is_said_to_work(cairn: Cairn, tmp_path: Path) -> None:
    environment = venv.create(tmp_path / "environment")
    put(environment.python, *wheels_of(tmp_path, ANNOUNCED))
    words = ("install", "--gpu", "RX 7900 XTX", "--python", environment.python)
    out, err = cairn(*words, "--index-url", "http://127.0.0.1:9/release/simple/", code=5)
    assert (out, "cannot read http://127.0.0.1:9/" in err) == ("", True)

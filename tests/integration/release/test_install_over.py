"""`cairn install` over environments that have something already: announced, present afterwards, exit code."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from cairn import venv
from cairn.release.history import yank
from cairn.release.serve import serving
from cairn.store.folder import LocalStore
from helpers.hardware import TORCH
from helpers.pages import PLATFORM, PYTHON
from helpers.program import Cairn
from helpers.release import make_set, make_wheel, move, stage_set

LOCAL = "+rocm7.10.0"
TORCH_V, VISION_V, AUDIO_V = f"2.9.0{LOCAL}", f"0.24.0{LOCAL}", f"2.9.0{LOCAL}"
ANNOUNCED = {"torch": TORCH_V, "torchvision": VISION_V, "torchaudio": AUDIO_V}
ALL = bool(os.environ.get("CAIRN_TEST_ALL"))  # else each row with one of the two installers
INSTALLERS = ("pip", "uv")
EXTRA = "device-gfx1100"


def trio(folder: Path, torch: str, vision: str, audio: str, *, extras: Sequence[str] = ()) -> list[Path]:
    """Wheels of torch and its siblings, whose torch is the stand-in that multiplies matrices."""
    content = TORCH.replace("{version}", torch)
    return [
        make_wheel(folder, "torch", torch, content=content, extras=extras),
        make_wheel(folder, "torchvision", vision, requires=[f"torch=={torch}"]),
        make_wheel(folder, "torchaudio", audio, requires=[f"torch=={torch}"]),
    ]


@pytest.fixture(scope="module")
def index_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An index with a set for gfx1100, and a newer one that was yanked."""
    folder = tmp_path_factory.mktemp("released")
    store = LocalStore(folder / "store")
    for name, versions in (
        ("set", ANNOUNCED.values()),
        ("yanked", (f"2.9.1{LOCAL}", f"0.24.1{LOCAL}", f"2.9.1{LOCAL}")),
    ):
        wheels = trio(folder / name, *versions)
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
    """

    before: Mapping[str, str]
    present: Mapping[str, str]
    code: int
    message: str


WORKS = f"it works: torch {TORCH_V} has multiplied matrices on RX 7900 XTX (gfx1100)"


def _row(torch: str, vision: str = "0.24.0", audio: str = "2.9.0") -> dict[str, str]:
    return {"torch": torch, "torchvision": vision, "torchaudio": audio}


ROWS = {
    "empty": Row(before={}, present=ANNOUNCED, code=0, message=WORKS),
    "CPU": Row(before=_row("2.9.0+cpu"), present=ANNOUNCED, code=0, message=WORKS),
    "CUDA": Row(before=_row("2.9.0+cu128"), present=ANNOUNCED, code=0, message=WORKS),
    "older": Row(before=_row(f"2.8.0{LOCAL}"), present=ANNOUNCED, code=0, message=WORKS),
    "newer": Row(before=_row(f"2.10.0{LOCAL}"), present=ANNOUNCED, code=0, message=WORKS),
    "yanked": Row(before=_row(f"2.9.1{LOCAL}"), present=ANNOUNCED, code=0, message=WORKS),
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
    before = [
        make_wheel(tmp_path, name, version, content=TORCH.replace("{version}", version))
        for name, version in row.before.items()
    ]
    if before:
        put(environment.python, *before)
    words = ("--gpu", "RX 7900 XTX", "--installer", installer, "--python", environment.python)
    out, err = cairn("install", "--index-url", index_url, *words, code=row.code)
    assert row.message in out + err
    assert versions(environment.python) == row.present

"""What pip and uv make of host and device wheels in an index of ours, by version of the installer.

The tests by hand install with each version that the table of docs/explanation/device-wheels-and-installers.md
has a column for, and compare every cell.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from uv import find_uv_bin

from cairn.release.index.keys import index_url
from cairn.release.publish import files
from cairn.store.folder import LocalStore
from cairn.wheels.split.split import split
from helpers.formats import make_bundle, make_code_object
from helpers.hip_library import make_hip_library
from helpers.wheels import build_wheel

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/explanation/device-wheels-and-installers.md"
TARGETS = ("gfx942", "gfx1100")
OLD, NEW = "2.9.0+rocm7.14.0a20261101", "2.9.0+rocm7.14.0a20261102"
INSTALLERS = ("pip 23.0", "pip 24.0", "pip 25.3", "pip 26.3", "uv 0.13.9")

# What an installer may say besides, and the words of the table for it.
_SAID = {
    r"does not (provide|have) (the|an) extra": "names the extra that is missing",
    r"which is incompatible|has requirement": "names the version that no longer fits",
}
Install = Callable[..., "subprocess.CompletedProcess[str]"]


def whole_wheel(folder: Path, version: str) -> Path:
    codes = {target: make_code_object(target, version.encode() * 40) for target in TARGETS}
    return build_wheel(
        folder,
        name="torch",
        version=version,
        tags=["py3-none-any"],
        requires=[],
        pure=False,
        files={"torch/__init__.py": b"", "torch/lib/x.so": make_hip_library([make_bundle(codes)])},
    )


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of an index with the host and device wheels of two nights."""
    folder = tmp_path_factory.mktemp("nights")
    parts = [part for v in (OLD, NEW) for part in split(whole_wheel(folder / v, v), folder / "parts")]
    files.publish(LocalStore(folder / "store"), "dev", parts)
    return index_url((folder / "store").as_uri(), "dev")


def names_in(site: Path) -> set[str]:
    return {path.name.removesuffix(".dist-info") for path in site.glob("torch*.dist-info")}


@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_an_extra_brings_the_code_of_its_gpu_alone(
    nights: str, install: Install, tmp_path: Path, tool: str
) -> None:
    done = install(tool, nights, "torch[device-gfx942]", target=tmp_path / "site")
    assert done.returncode == 0, done.stderr
    assert names_in(tmp_path / "site") == {f"torch-{NEW}", f"torch_device_gfx942-{NEW}"}
    there = {path.name for path in (tmp_path / "site/torch/.kpack").iterdir()}
    assert there == {"torch_gfx942.kpack"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A row of the table: what is asked for, one command after the other, in one environment."""

    title: str
    commands: Sequence[Sequence[str]]


CASES = (
    Case(title="`torch`", commands=[["torch"]]),
    Case(title="`torch[device-gfx942]`", commands=[["torch[device-gfx942]"]]),
    Case(title="`torch[device-gfx942,device-gfx1100]`", commands=[["torch[device-gfx942,device-gfx1100]"]]),
    Case(title="`torch[device-all]`", commands=[["torch[device-all]"]]),
    Case(title="`torch[device-gfx906]`, which there is not", commands=[["torch[device-gfx906]"]]),
    Case(
        title="upgrade with `torch[device-gfx942]`",
        commands=[[f"torch[device-gfx942]=={OLD}"], ["--upgrade", "torch[device-gfx942]"]],
    ),
    Case(
        title="upgrade with `torch`",
        commands=[[f"torch[device-gfx942]=={OLD}"], ["--upgrade", "torch"]],
    ),
    Case(
        title="that, then `torch[device-gfx942]`",
        commands=[[f"torch[device-gfx942]=={OLD}"], ["--upgrade", "torch"], ["torch[device-gfx942]"]],
    ),
)


class Installer:
    """One version of an installer, and environments to install into."""

    def __init__(self, name: str, folder: Path, env: dict[str, str]) -> None:
        self.tool, version = name.split()
        self._folder, self._env, self._count = folder, env, 0
        self._program = folder / name.replace(" ", "-")
        fetch = [find_uv_bin(), "pip", "install", "--quiet", "--target", self._program]
        subprocess.run([*fetch, f"{self.tool}=={version}"], check=True)

    def cell(self, index: str, commands: Sequence[Sequence[str]], options: Sequence[str] = ()) -> str:
        """What is installed after the commands, and what the last of them said of it."""
        self._count += 1
        venv = self._folder / f"{self._program.name}-{self._count}"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        python, env = venv / "bin/python", self._env
        start = [self._program / "bin/uv", "pip", "install", "--python", python, *options]
        if self.tool == "pip":
            start, env = [python, "-m", "pip", "install"], env | {"PYTHONPATH": str(self._program)}
        for words in commands:
            command = [*start, "--index-url", index, *words]
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        said = [text for pattern, text in _SAID.items() if re.search(pattern, done.stderr + done.stdout)]
        found = sorted(names_in(next(venv.glob("lib/*/site-packages"))), key=lambda name: (len(name), name))
        words = [_word(name) for name in found] or ["nothing"]
        return "; ".join([", ".join(words), *(["fails"] if done.returncode else []), *said])


def _word(installed: str) -> str:
    """A cell's word for an installed distribution: `host`, `gfx942`, of the night before in brackets."""
    name, version = installed.split("-")
    word = name.rpartition("_")[2] if "_device_" in name else "host"
    return f"{word} (old)" if version == OLD else word


def table(title: str, found: dict[str, list[str]]) -> str:
    """The table in Markdown; installers that never differ share a column."""
    columns: dict[tuple[str, ...], list[str]] = {}
    for name, *cells in zip(INSTALLERS, *found.values(), strict=True):
        columns.setdefault(tuple(cells), []).append(name)
    heads = [", ".join(names).replace(", pip", ",") for names in columns.values()]
    lines = [f"| {title} | {' | '.join(heads)} |", f"| --- {'| --- ' * len(heads)}|"]
    lines += [f"| {case} | {' | '.join(row)} |" for case, *row in zip(found, *columns, strict=True)]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def installers(tmp_path_factory: pytest.TempPathFactory) -> list[Installer]:
    folder = tmp_path_factory.mktemp("installers")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "UV_", "PYTHON", "VIRTUAL_ENV"))}
    kept |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    kept |= {"UV_NO_CONFIG": "1", "UV_CACHE_DIR": str(folder / "uv-cache")}
    return [Installer(name, folder, kept) for name in INSTALLERS]


@pytest.mark.by_hand
def test_the_table_of_host_and_device_wheels(nights: str, installers: list[Installer]) -> None:
    found = {case.title: [one.cell(nights, case.commands) for one in installers] for case in CASES}
    wanted = table("what is asked for", found)
    assert wanted in PAGE.read_text(encoding="utf-8"), f"the page should have\n{wanted}"

"""The lines that RELEASES.md tells people to type are typed here, from an index that Cairn published."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairn import venv
from cairn.release.index import last_known_good
from cairn.release.index.snapshot import Index
from cairn.release.serve.server import serving
from cairn.store.folder import LocalStore
from helpers.pages import PLATFORM, PYTHON
from helpers.release import make_set, make_wheel, move, stage_set

PAGE = Path(__file__).parents[3] / "RELEASES.md"
# Its key and its signed wheel are those of docs/how-to/verify-a-wheel.md, which is typed with them.
ELSEWHERE = ("cairn index verify",)


@pytest.fixture
def values(store: LocalStore, tmp_path: Path) -> Iterator[dict[str, str]]:
    """What URL, SET and NAME of the page stand for, while the store is served."""
    version = "2.9.0+rocm7.10.0"
    wheels = [
        make_wheel(tmp_path, "triton", "3.5.1"),
        make_wheel(tmp_path, "torch", version, requires=["triton==3.5.1"]),
        make_wheel(tmp_path, "torchvision", version, requires=[f"torch=={version}"]),
        make_wheel(tmp_path, "torchaudio", version, requires=[f"torch=={version}"]),
    ]
    made = make_set(wheels, family="gfx94X-dcgpu", targets=("gfx942",), python=PYTHON, platform=PLATFORM)
    sealed = stage_set(store, "staging", made, wheels)
    move(store, sealed)
    (name,) = last_known_good.of_names(Index(store, "release").load().sets())
    with serving(store, port=0) as server:
        yield {"URL": server.url, "SET": sealed.id, "NAME": name}


def filled(text: str, values: dict[str, str]) -> str:
    return re.sub(r"\b(URL|SET|NAME)\b", lambda found: values[found[1]], text)


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def fresh(folder: Path, isolated: dict[str, str]) -> dict[str, str]:
    """Variables of a shell in which a new environment is active, and our pip and uv are at hand."""
    environment = venv.create(folder)
    pip = environment.bin / "pip"
    # The pip that Python brings may be years old.
    pip.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pip --python "{environment.python}" "$@"\n')
    pip.chmod(0o755)
    path = os.pathsep.join((str(environment.bin), str(Path(venv.uv_program()).parent), isolated["PATH"]))
    return {**isolated, "VIRTUAL_ENV": str(folder), "PATH": path, "PIP_NO_CACHE_DIR": "1"}


LINES = [
    line for block in blocks("bash") for line in block.splitlines() if line and not line.startswith(ELSEWHERE)
]


def test_the_page_has_lines_for_pip_and_for_uv() -> None:
    assert sum(line.startswith("pip ") for line in LINES) >= 5
    assert sum(line.startswith("uv ") for line in LINES) >= 4
    assert any("uv pip compile" in line for line in LINES)


@pytest.mark.slow
def test_every_line_does_what_it_says(
    values: dict[str, str], tmp_path: Path, isolated: dict[str, str]
) -> None:
    for number, line in enumerate(LINES):
        env = fresh(tmp_path / str(number), isolated)
        before = ""
        if line.startswith("pip uninstall"):
            before = filled(LINES[0], values) + " && "
        done = subprocess.run(
            ["bash", "-c", before + filled(line, values)],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (line, done.stdout + done.stderr)
        ask = "import importlib.util as u; print(*(n for n in ('torch', 'triton') if u.find_spec(n)))"
        if " lock " in line or " compile " in line:
            lock = done.stdout if "compile" in line else (tmp_path / "pylock.toml").read_text()
            assert "2.9.0+rocm7.10.0" in lock
            assert "sha256" in lock
            continue
        there = subprocess.run(["python", "-c", ask], env=env, capture_output=True, text=True, check=True)
        assert there.stdout.split() == ([] if "uninstall" in line else ["torch", "triton"]), line


def test_the_projects_of_uv_lock(values: dict[str, str], tmp_path: Path, isolated: dict[str, str]) -> None:
    only, explicit = blocks("toml")
    project = explicit.partition("[[tool.uv.index]]")[0]
    for number, text in enumerate((project + only, explicit)):
        folder = tmp_path / f"project{number}"
        folder.mkdir()
        folder.joinpath("pyproject.toml").write_text(filled(text, values))
        # PyPI, which the explicit index leaves as it is, is out of reach: everything must come from ours.
        env = {**isolated, "ALL_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}
        del env["UV_NO_CONFIG"]  # what the page says is configuration
        command = [venv.uv_program(), "lock", "--python", sys.executable]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        lock = folder.joinpath("uv.lock").read_text()
        assert 'version = "2.9.0+rocm7.10.0"' in lock
        assert lock.count(f'source = {{ registry = "{values["URL"]}/release/simple/" }}') == 4

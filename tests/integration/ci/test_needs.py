"""What a night needs at its end is asked by freeze and by `cairn ci check`, before anything is built."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from helpers import tiny_stack
from helpers.program import Cairn
from helpers.serving import serving
from helpers.tiny_stack import HERE

pytestmark = pytest.mark.slow

COMMIT = f"git+https://github.com/me/cairn.git@{'0' * 40}"
LATE = (  # each was found by a build, by stage, by the tests or by the gate
    "smoke-tests have no test",
    "the gate asks for suite records",
    "'nightlies' is not a channel",
    "allow.toml",
    f"{HERE.version} on {HERE.platform}",  # of the mirror lock
    "without rocm-sdk-devel, rocm-sdk-libraries-gfx110x-all",
)
LOCK = """schema = "cairn.mirror-lock/1"
stack = "tiny"
pythons = ["3.9"]
platforms = ["win_amd64"]
asked = []
files = []
"""


def _write(folder: Path) -> None:
    tiny_stack.write(folder)
    (folder / "smoke-tests/test_tiny.py").unlink()
    (folder / "mirror.lock.toml").write_text(LOCK)
    toml, matrix = folder / "stack.toml", folder / "matrix.toml"
    more = '[sdk]\n\n[gate]\nallow = "allow.toml"\nrecords = { smoke = {}, suite = {} }\n\n[[projects]]'
    toml.write_text(
        toml.read_text().replace('targets = ["cpu"]', 'targets = ["gfx1100"]').replace("[[projects]]", more)
    )
    text = matrix.read_text().replace("cpu", "gfx110X-all").replace("anything", "ubuntu-24.04")
    matrix.write_text(text)


def _offer(root: Path) -> None:
    """Write an index of ROCm without libraries, and without what builds need."""
    for name in ("rocm", "rocm_sdk_core"):
        page = root / "gfx110X-all" / name.replace("_", "-") / "index.html"
        page.parent.mkdir(parents=True)
        file = f"{name}-7.10.0.tar.gz" if name == "rocm" else f"{name}-7.10.0-py3-none-any.whl"
        page.write_text(f'<a href="../{file}">{file}</a>')


def test_all_of_it_is_named_at_once(cairn: Cairn, tmp_path: Path) -> None:
    repository, store, matrix = tmp_path / "wheels", tmp_path / "store", tmp_path / "matrix.json"
    subprocess.run(["git", "init", "--quiet", "--initial-branch", "main", repository], check=True)
    _write(repository / "stack")
    stack = ("--stack", repository / "stack")
    matrix.write_text(cairn("matrix", *stack, "--json").out)
    _offer(tmp_path / "www")
    with serving(tmp_path / "www") as url:
        index = ("--rocm-index-url", f"{url}/{{family}}/")
        words = ("--night", "1", "--store", store, "--matrix", matrix, "--to", "nightlies")
        work = ("--work-dir", tmp_path / "work")
        shown = cairn("ci", "night", "freeze", *stack, *words, *index, *work, code=2)
        cairn("ci", "init", "--cairn", COMMIT, "--store", store, "--runs-on", "lab", *index, repository)
        found = cairn.json("ci", "check", repository, code=3)["findings"]
    assert [late for late in LATE if late not in shown.err] == [], shown.err
    assert f"for {len(LATE)} reasons" in shown.err
    assert not (tmp_path / "work").exists()
    assert not list(store.rglob("night.json"))
    texts = " ".join(one["text"] for one in found if one["level"] == "missing" and one["fix"])
    assert [late for late in LATE if late not in texts] == ["'nightlies' is not a channel"]

"""All linters pass on the workflows and actions of Cairn, and each finds a fault that is planted in one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from helpers import workflows

ROOT = Path(__file__).parents[3]
PROGRAMS = Path(sysconfig.get_path("scripts"))
GITHUB = ROOT / ".github"
FILES = sorted(GITHUB.glob("workflows/*.yml"))

LINTERS: dict[str, Callable[[Sequence[Path]], list[str]]] = {
    "actionlint": lambda files: ["actionlint", "-no-color", *map(str, files)],
    "zizmor": lambda files: ["zizmor", "--offline", "--quiet", "--no-progress", *_with_actions(files)],
    "check-jsonschema": lambda files: [
        *("check-jsonschema", "--builtin-schema", "vendor.github-workflows"),
        *map(str, files),
    ],
    "shellcheck": lambda files: ["shellcheck", *map(str, files)],
    "cairn": lambda files: ["cairn", "ci", "lint", *_with_actions(files)],
}


SCRIPTS = [ROOT / ".ci" / "run"]


def _with_actions(files: Sequence[Path]) -> list[str]:
    """The files, and the actions beside them: those that actionlint and the schema do not read."""
    actions = files[0].parents[1].glob("actions/*/action.yml") if files else ()
    return [str(path) for path in (*files, *sorted(actions))]


def _run(linter: str, files: Sequence[Path], folder: Path) -> subprocess.CompletedProcess[str]:
    # actionlint runs the shellcheck that it finds on PATH.
    env = {
        **os.environ,
        "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
        "NO_COLOR": "1",
        "COLUMNS": "200",
    }
    return subprocess.run(
        LINTERS[linter](files), cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=120
    )


def _repository(tmp_path: Path, text: str) -> Path:
    """A repository with our configuration and actions, and one workflow; gives that."""
    path = workflows.write(tmp_path, text)
    for name in ("actionlint.yaml", "zizmor.yml"):
        shutil.copy(GITHUB / name, tmp_path / ".github" / name)
    shutil.copytree(ROOT / "external-builds" / "sample", tmp_path / "external-builds" / "sample")
    (tmp_path / ".git").mkdir()  # how actionlint finds the root
    return path


@pytest.mark.parametrize("linter", LINTERS)
def test_passes_on_every_workflow_of_cairn(linter: str) -> None:
    assert FILES
    found = _run(linter, SCRIPTS if linter == "shellcheck" else FILES, ROOT)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("linter", [name for name in LINTERS if name != "shellcheck"])
def test_passes_on_a_good_workflow(linter: str, tmp_path: Path) -> None:
    found = _run(linter, [_repository(tmp_path, workflows.GOOD)], tmp_path)
    assert found.returncode == 0, found.stdout + found.stderr


# Each fault is one that only this linter is there for.
FAULTS = [
    (
        "actionlint",
        ("steps.matrix.outputs.empty", "steps.matrx.outputs.empty"),
        'property "matrx" is not defined',
    ),
    ("actionlint", ("runs-on: ubuntu-24.04", "runs-on: linux-gfx942"), None),
    ("actionlint", ("runs-on: ubuntu-24.04", "runs-on: our-own-runner"), 'label "our-own-runner" is unknown'),
    (
        "actionlint",
        ("set -o pipefail\n", "set -o pipefail\n          cd $GITHUB_WORKSPACE\n"),
        "shellcheck reported",
    ),
    (
        "zizmor",
        ('--targets "$TARGETS"', "--targets ${{ github.event.head_commit.message }}"),
        "template-injection",
    ),
    ("zizmor", ("          persist-credentials: false\n", "          fetch-depth: 1\n"), "artipacked"),
    ("check-jsonschema", ("    timeout-minutes: 60\n", "    timeout-minute: 60\n"), "timeout-minute"),
    ("check-jsonschema", ("cancel-in-progress: false", "cancel-in-progress: never"), "never"),
    (
        "cairn",
        ("if: ${{ !cancelled() && needs.plan", "if: ${{ always() && needs.plan"),
        "promotion-reachable",
    ),
    ("cairn", ("--trigger nightly", "--trigger nightli"), "did you mean nightly?"),
]


@pytest.mark.parametrize(
    ("linter", "change", "said"), FAULTS, ids=[f"{f[0]}-{n}" for n, f in enumerate(FAULTS)]
)
def test_finds_a_planted_fault(
    linter: str, change: tuple[str, str], said: str | None, tmp_path: Path
) -> None:
    assert change[0] in workflows.GOOD
    found = _run(linter, [_repository(tmp_path, workflows.GOOD.replace(*change))], tmp_path)
    if said is None:
        assert found.returncode == 0, found.stdout
    else:
        assert found.returncode != 0
        assert said in found.stdout + found.stderr

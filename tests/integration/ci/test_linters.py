"""All linters pass on the workflows and actions of Cairn, and each finds a fault that is planted in one.

What they do not look for, tests/unit/workflows does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

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
}


GOOD = """\
name: Night
on:
  schedule:
    - cron: "0 3 * * *"
permissions:
  contents: read
concurrency:
  group: night
  cancel-in-progress: false
jobs:
  plan:
    runs-on: ubuntu-24.04
    timeout-minutes: 10
    outputs:
      matrix: ${{ steps.matrix.outputs.matrix }}
      empty: ${{ steps.matrix.outputs.empty }}
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1
        timeout-minutes: 5
        with:
          persist-credentials: false
      - id: matrix
        timeout-minutes: 5
        run: |
          set -o pipefail
          cairn matrix --stack external-builds/sample --trigger nightly --json > legs.json
          jq -r '"matrix=\\({include: .legs})", "empty=\\(.legs == [])"' legs.json >> "$GITHUB_OUTPUT"
  build:
    needs: plan
    if: needs.plan.outputs.empty == 'false'
    strategy:
      fail-fast: false
      matrix: ${{ fromJSON(needs.plan.outputs.matrix) }}
    runs-on: ${{ matrix.build_runs_on }}
    timeout-minutes: 60
    steps:
      - name: Build
        timeout-minutes: 50
        env:
          TARGETS: ${{ matrix.targets }}
        run: |
          set -o pipefail
          cairn build --stack external-builds/sample --targets "$TARGETS" \\
            --output-dir out
      - name: Keep the wheels
        timeout-minutes: 5
        uses: actions/upload-artifact@043fb46d1a93c77aae656e7c1c64a875d1fc6a0a # v7.0.1
        with:
          name: wheels-${{ matrix.id }}-${{ github.run_attempt }}
          path: out
  promote:
    needs: [plan, build]
    if: ${{ !cancelled() && needs.plan.result == 'success' && needs.build.result == 'success' }}
    runs-on: ubuntu-24.04
    timeout-minutes: 30
    permissions:
      contents: read
      id-token: write
    steps:
      - name: Promote
        timeout-minutes: 20
        env:
          STORE: s3://bucket/wheels
          WHEEL_SET: ${{ vars.WHEEL_SET }}
        run: cairn release promote "$WHEEL_SET" --stack external-builds/sample --store "$STORE" --to release
"""

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
    path = tmp_path / ".github" / "workflows" / "night.yml"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    for name in ("actionlint.yaml", "zizmor.yml"):
        shutil.copy(GITHUB / name, tmp_path / ".github" / name)
    # Not changed: the shipped sample, where the workflows look for it.
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
    found = _run(linter, [_repository(tmp_path, GOOD)], tmp_path)
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
]


@pytest.mark.parametrize(
    ("linter", "change", "said"), FAULTS, ids=[f"{f[0]}-{n}" for n, f in enumerate(FAULTS)]
)
def test_finds_a_planted_fault(
    linter: str, change: tuple[str, str], said: str | None, tmp_path: Path
) -> None:
    assert change[0] in GOOD
    found = _run(linter, [_repository(tmp_path, GOOD.replace(*change))], tmp_path)
    if said is None:
        assert found.returncode == 0, found.stdout
    else:
        assert found.returncode != 0
        assert said in found.stdout + found.stderr

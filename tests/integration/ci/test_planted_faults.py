"""Faults of workflows, each of one line: who finds it, or which decision of the store makes it harmless.

A fault of a workflow promotes nothing that should not be: what no linter and no rule of ours finds is decided
by what the store has, as the named test proves.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.trail import ROOT
from helpers.workflows import OWN, RULES, Workflows

pytestmark = pytest.mark.slow

PROGRAMS = Path(sysconfig.get_path("scripts"))
NIGHTLY, RELEASE, WATCH = (f"workflows/{name}.yml" for name in ("nightly", "release", "nightly-watch"))
STARTS = "!cancelled() && needs.freeze.result == 'success' && needs.stage.result == 'success'"


@dataclass(frozen=True)
class Fault:
    """A line that is wrong.

    Attributes:
        file: below `.github`.
        job: of a workflow, in which it is; empty for the first place in the file.
        good: what stands there.
        bad: what stands there now.
        found_by: linters, and rules of `helpers.workflows`.
        harmless: the test that proves that nothing comes of it, if nobody finds it; `file: test`.
    """

    file: str
    job: str
    good: str
    bad: str
    found_by: str
    harmless: str = ""

    def texts(self) -> dict[str, str]:
        """All files, with the fault."""
        text = OWN[self.file]
        start = text.index(f"\n  {self.job}:\n") if self.job else 0
        before, rest = text[:start], text[start:]
        assert self.good in rest, self
        return {**OWN, self.file: before + rest.replace(self.good, self.bad, 1)}


def action(name: str) -> str:
    return f"actions/{name}/action.yml"


FAULTS = (
    # Promotion after what should have stopped it.
    Fault(NIGHTLY, "promote", STARTS, "always()", "promotions"),
    Fault(NIGHTLY, "promote", STARTS, "success() || failure()", "promotions"),
    Fault(NIGHTLY, "promote", "!cancelled() && ", "", "promotions"),
    Fault(NIGHTLY, "promote", " && needs.stage.result == 'success'", "", "promotions"),
    Fault(NIGHTLY, "promote", "needs.freeze.result == 'success'", "true", "promotions"),
    Fault(
        NIGHTLY,
        "promote",
        "[freeze, stage, test, suite, merge]",
        "[freeze, test, suite, merge]",
        "actionlint",
    ),
    Fault(
        NIGHTLY,
        "promote",
        "[freeze, stage, test, suite, merge]",
        "[freeze, stage, suite, merge]",
        "",
        "unit/pipeline/night/test_report.py: test_an_untested_set_stays_where_it_is_and_is_no_error",
    ),
    Fault(
        NIGHTLY,
        "promote",
        "[freeze, stage, test, suite, merge]",
        "[freeze, stage, test, suite]",
        "",
        "unit/pipeline/night/test_suites.py: test_a_set_that_has_passed_its_smoke_tests_waits_for_its_suite",
    ),
    Fault(
        NIGHTLY,
        "promote",
        "night: ${{ needs.freeze.outputs.night }}",
        "night: ${{ github.run_id }}",
        "",
        "unit/cli/ci/test_night.py: test_a_night_that_was_never_frozen_has_a_report_too",
    ),
    Fault(
        NIGHTLY,
        "promote",
        "night: ${{ needs.freeze.outputs.night }}",
        "night: latest",
        "",
        "unit/pipeline/night/test_report.py: test_an_untested_set_stays_where_it_is_and_is_no_error",
    ),
    Fault(
        NIGHTLY,
        "promote",
        "stack: ${{ env.STACK }}",
        "stack: external-builds/sample",
        "",
        "unit/cli/ci/test_night.py: test_a_night_of_another_stack_is_refused",
    ),
    Fault(
        RELEASE,
        "promote",
        "      && (needs.test.result == 'success' || needs.stage.outputs.test_count == '0')\n",
        "",
        "",
        "unit/cli/ci/test_night.py: test_a_night_that_goes_whole_is_refused_while_a_leg_is_missing",
    ),
    Fault(RELEASE, "promote", " --whole", "", "promotions"),
    Fault(
        RELEASE,
        "promote",
        "!cancelled() && needs.freeze.result == 'success' && needs.stage.result == 'success'\n",
        "always()\n",
        "promotions",
    ),
    Fault(
        RELEASE,
        "stage",
        " && needs.build.result != 'failure'\n",
        "\n",
        "",
        "unit/cli/ci/test_night.py: test_a_night_that_goes_whole_is_refused_while_a_leg_is_missing",
    ),
    Fault(
        action("night-promote"),
        "",
        " --night",
        " --dry-run --night",
        "",
        "unit/pipeline/night/test_stage.py: test_a_dry_run_writes_nothing",
    ),
    Fault(
        WATCH,
        "promote",
        ' --to "$TO"',
        "",
        "",
        "unit/cli/ci/test_night.py: test_a_release_is_not_the_last_night_to_the_channel_of_nights",
    ),
    # A failure that is hidden.
    Fault(
        NIGHTLY,
        "test",
        "    timeout-minutes: 180\n",
        "    timeout-minutes: 180\n    continue-on-error: true\n",
        "promotions",
    ),
    Fault(
        NIGHTLY,
        "stage",
        "        timeout-minutes: 100\n",
        "        timeout-minutes: 100\n        continue-on-error: true\n",
        "promotions",
    ),
    Fault(
        action("night-test"), "", '"$LEG"\n    # The first', '"$LEG" || true\n    # The first', "promotions"
    ),
    Fault(action("night-promote"), "", '--store "$STORE"', '--store "$STORE"; exit 0', "promotions"),
    Fault(action("night-freeze"), "", "      run: |\n", "      run: |\n        set +e\n", "promotions"),
    Fault(NIGHTLY, "test", "      fail-fast: false\n", "", "matrices"),
    Fault(NIGHTLY, "build", "needs.freeze.outputs.build_count != '' && ", "", "matrices"),
    Fault(
        NIGHTLY,
        "stage",
        "needs.freeze.result == 'success'",
        "true",
        "",
        "unit/cli/ci/test_night.py: test_a_night_that_was_never_frozen_has_a_report_too",
    ),
    # Tests of something else, or of nothing.
    Fault(
        NIGHTLY,
        "test",
        "${{ matrix.test_runs_on }}",
        "${{ matrix.build_runs_on }}",
        "",
        "unit/pipeline/night/test_smoke.py: test_one_with_a_different_gpu_is_refused",
    ),
    Fault(
        NIGHTLY,
        "test",
        "leg: ${{ matrix.id }}",
        "leg: ${{ matrix.name }}",
        "",
        "unit/pipeline/night/test_smoke.py: test_what_is_not_staged_cannot_be_tested",
    ),
    Fault(
        NIGHTLY,
        "suite",
        "shard: ${{ matrix.shard }}",
        "shard: 1",
        "",
        "unit/pipeline/night/test_suites.py: test_a_shard_that_left_nothing_is_a_failure_until_it_has_run",
    ),
    Fault(
        NIGHTLY,
        "suite",
        "    if: >-\n      ${{",
        "    if: >-\n      ${{ false &&",
        "",
        "unit/pipeline/night/test_suites.py: test_without_any_shard_there_is_no_record",
    ),
    Fault(
        NIGHTLY,
        "merge",
        "    if: >-\n      ${{",
        "    if: >-\n      ${{ false &&",
        "",
        "unit/pipeline/night/test_suites.py: test_a_set_that_has_passed_its_smoke_tests_waits_for_its_suite",
    ),
    Fault(
        action("night-test"),
        "",
        "--phase run",
        "",
        "",
        "unit/pipeline/night/test_report.py: test_an_untested_set_stays_where_it_is_and_is_no_error",
    ),
    Fault(action("night-test"), "", "step test --phase keep", "list", "command_lines credentials"),
    # Wheels of another job.
    Fault(
        action("night-stage"),
        "",
        "pattern: wheels-*",
        "pattern: wheel-*",
        "",
        "unit/pipeline/night/test_report.py: test_a_leg_of_which_nothing_is_there_ended_in_its_build",
    ),
    Fault(
        action("night-stage"),
        "",
        "pattern: wheels-*",
        "pattern: '*'",
        "",
        "unit/pipeline/night/test_stage.py: test_what_was_built_is_staged_and_the_rest_is_named",
    ),
    Fault(action("night-build"), "", "-${{ github.run_attempt }}", "", "matrices"),
    Fault(
        action("night-build"),
        "",
        "name: wheels-${{ inputs.leg }}-",
        "name: wheels-${{ inputs.night }}-",
        "",
        "unit/pipeline/night/test_stage.py: test_a_set_that_nobody_expects_is_refused",
    ),
    Fault(
        NIGHTLY,
        "build",
        "leg: ${{ matrix.id }}",
        "leg: ${{ matrix.name }}",
        "",
        "unit/cli/ci/test_night.py: "
        "test_what_was_fetched_of_a_night_is_all_that_its_builds_read_of_the_store",
    ),
    Fault(NIGHTLY, "build", "needs.freeze.outputs.image || ''", "env.IMAGE || ''", "actionlint containers"),
    Fault(RELEASE, "build", "vars.CAIRN_RELEASE_CACHE_STORE", "vars.CAIRN_CACHE_STORE", "caches"),
    # Rights.
    Fault(NIGHTLY, "", "permissions: {}", "permissions: write-all", "permissions"),
    Fault(NIGHTLY, "build", "contents: read", "contents: write", "permissions"),
    Fault(NIGHTLY, "build", "    environment: night-build\n", "", "roles"),
    Fault(NIGHTLY, "build", "environment: night-build", "environment: night-test", "roles"),
    Fault(NIGHTLY, "build", "vars.CAIRN_ROLE_BUILD", "vars.CAIRN_ROLE_TEST", "roles"),
    Fault(NIGHTLY, "promote", "vars.CAIRN_ROLE_PROMOTE", "vars.CAIRN_ROLE_STAGE", "roles"),
    Fault(NIGHTLY, "promote", " && 'nightly' || 'release'", " && 'nightly' || 'nightly'", "roles"),
    Fault(RELEASE, "promote", "    environment: release", "    environment: nightly", "roles"),
    Fault(
        NIGHTLY,
        "build",
        "    permissions:\n",
        "    env: {TOKEN: '${{ secrets.TOKEN }}'}\n    permissions:\n",
        "credentials",
    ),
    Fault(
        action("night-test"),
        "",
        "        STACK: ${{ inputs.stack }}\n      run: cairn ci night step test --phase run",
        "        AWS_SESSION_TOKEN: ${{ steps.role.outputs.aws-session-token }}\n"
        "      run: cairn ci night step test --phase run",
        "credentials",
    ),
    Fault(
        action("night-test"),
        "",
        '--phase run --stack "$STACK"',
        '--phase run --store "$STORE" --stack "$STACK"',
        "credentials",
    ),
    Fault(
        action("night-build"),
        "",
        "output-env-credentials: false",
        "output-env-credentials: true",
        "credentials",
    ),
    Fault(
        NIGHTLY,
        "build",
        "          persist-credentials: false\n",
        "          persist-credentials: true\n",
        "credentials",
    ),
    Fault(
        NIGHTLY,
        "",
        "  workflow_dispatch:\n",
        "  pull_request_target:\n  workflow_dispatch:\n",
        "permissions zizmor",
    ),
    Fault(
        NIGHTLY,
        "",
        "  schedule:\n",
        "  workflow_run: {workflows: [CI], types: [completed]}\n  schedule:\n",
        "zizmor",
    ),
    Fault(
        action("night-promote"), "", '--night "$NIGHT"', "--night ${{ inputs.night }}", "command_lines zizmor"
    ),
    Fault(
        NIGHTLY,
        "build",
        "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1",
        "actions/checkout@main",
        "pins zizmor",
    ),
    Fault(
        NIGHTLY,
        "build",
        "@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1",
        "@3d3c42e5aac5ba805825da76410c181273ba90b1",
        "pins",
    ),
    # Waiting.
    Fault(NIGHTLY, "test", "    timeout-minutes: 180\n", "", "time_limits"),
    Fault(NIGHTLY, "build", "        timeout-minutes: 690\n", "", "time_limits waits"),
    Fault(NIGHTLY, "report", "        timeout-minutes: 15\n", "        timeout-minutes: 5\n", "waits"),
    Fault(NIGHTLY, "", "cancel-in-progress: true", "cancel-in-progress: false", "waits"),
    Fault(NIGHTLY, "", " || github.ref }}", " }}", "waits"),
    Fault(RELEASE, "", "inputs.release || github.run_id", "inputs.line", "waits"),
    Fault(RELEASE, "promote", "-${{ inputs.to }}", "", "waits"),
    # Silence.
    Fault(NIGHTLY, "notify", "[lines, freeze, ", "[lines, ", "notifications"),
    Fault(NIGHTLY, "notify", "always() && ", "", "notifications"),
    Fault(
        NIGHTLY,
        "report",
        "always() && needs.freeze.result != 'skipped'",
        "always() && needs.freeze.result == 'success'",
        "notifications",
    ),
    Fault(NIGHTLY, "", '    - cron: "17 1 * * *"', '    - cron: "17 1 31 2 *"', "actionlint"),
    # Words that are not there.
    Fault(NIGHTLY, "test", "needs.stage.outputs.test)", "needs.stage.outputs.tests)", "actionlint matrices"),
    Fault(NIGHTLY, "stage", "    needs: [freeze, build]\n", "    needs: [freeze, builds]\n", "actionlint"),
    Fault(
        NIGHTLY,
        "stage",
        "      test_count: ${{ steps.stage.",
        "      test_count: ${{ steps.stages.",
        "actionlint",
    ),
    Fault(NIGHTLY, "stage", "          night:", "          nights:", "actionlint"),
    Fault(
        action("night-promote"),
        "",
        "cairn ci night promote",
        "cairn ci night promot",
        "command_lines credentials roles",
    ),
    Fault(action("night-merge"), "", ' --night "$NIGHT"', ' --nights "$NIGHT"', "command_lines"),
)


ENV = {**os.environ, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}


def write(fault: Fault, folder: Path) -> None:
    """Write a repository with the fault."""
    github = folder / ".github"
    for name, text in fault.texts().items():
        (github / name).parent.mkdir(parents=True, exist_ok=True)
        (github / name).write_text(text, encoding="utf-8")
    for name in ("actionlint.yaml", "zizmor.yml"):
        shutil.copy(ROOT / ".github" / name, github / name)
    (folder / ".git").mkdir()  # how actionlint finds the root


def actionlint(fault: Fault, folder: Path) -> bool:
    """Whether actionlint finds a fault."""
    paths = [path for path in OWN if path.startswith("workflows/nightly") or path == fault.file]
    workflows = [str(folder / ".github" / path) for path in paths if path.startswith("workflows/")]
    command = ["actionlint", "-no-color", "-shellcheck=", *workflows]
    return bool(
        subprocess.run(command, cwd=folder, env=ENV, capture_output=True, check=False, timeout=120).returncode
    )


def zizmor(files: Sequence[Path], folder: Path) -> set[Path]:
    """Those of the files in which zizmor finds something; most of its time is its start."""
    command = ["zizmor", "--offline", "--quiet", "--no-progress", "--format", "json", *map(str, files)]
    done = subprocess.run(command, cwd=folder, env=ENV, capture_output=True, check=False, timeout=120)
    locations = [location for finding in json.loads(done.stdout) for location in finding["locations"]]
    return {Path(location["symbolic"]["key"]["Local"]["verbatim_path"]) for location in locations}


def rules(fault: Fault) -> set[str]:
    """The rules of ours that find it."""
    changed = Workflows(fault.texts())
    return {rule.__name__ for rule in RULES if list(rule(changed))}


@pytest.fixture(scope="module")
def linted(tmp_path_factory: pytest.TempPathFactory) -> list[set[str]]:
    """What linters find of each fault."""
    folder = tmp_path_factory.mktemp("faults")
    folders = [folder / str(number) for number in range(len(FAULTS))]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        list(pool.map(write, FAULTS, folders))
        of_actionlint = list(pool.map(actionlint, FAULTS, folders))
    files = [each / ".github" / fault.file for fault, each in zip(FAULTS, folders, strict=True)]
    of_zizmor = zizmor(files, folder)
    return [
        {name for name, bad in (("actionlint", refused), ("zizmor", file in of_zizmor)) if bad}
        for file, refused in zip(files, of_actionlint, strict=True)
    ]


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has what the command lines name."""
    (tmp_path / "external-builds").symlink_to(ROOT / "external-builds")
    (tmp_path / "matrix.json").write_text("{}", encoding="utf-8")
    (tmp_path / "artifacts").mkdir()
    monkeypatch.chdir(tmp_path)


def test_each_fault_is_found_by_whom_the_table_says(linted: list[set[str]]) -> None:
    assert len(FAULTS) >= 55
    wrong = []
    for fault, by_linters in zip(FAULTS, linted, strict=True):
        found = by_linters | rules(fault)
        if found != set(fault.found_by.split()):
            wrong.append(f"{fault.file} {fault.job} {fault.bad!r}: {' '.join(sorted(found))}")
    assert not wrong, "\n".join(wrong)


@functools.cache
def _tests_of(file: str) -> frozenset[str]:
    return frozenset(re.findall(r"^def (test_\w+)", (ROOT / "tests" / file).read_text(), flags=re.MULTILINE))


def test_what_nobody_finds_is_decided_by_the_store() -> None:
    for fault in FAULTS:
        assert bool(fault.found_by) != bool(fault.harmless), fault
        if fault.harmless:
            file, _, test = fault.harmless.partition(": ")
            assert test in _tests_of(file), fault

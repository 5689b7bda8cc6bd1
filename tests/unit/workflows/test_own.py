"""Cairn's own workflows keep to the rules of `helpers.workflows`, each of which finds a planted fault."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cairn.matrix import legs
from helpers.trail import ROOT
from helpers.workflows import (
    OWN,
    RULES,
    WHERE_CACHED,
    Workflows,
    command_lines,
    credentials,
    evaluate,
    matrices,
    permissions,
    pins,
    promotions,
    time_limits,
)

FAULTS: tuple[tuple[Callable[[Workflows], Iterator[str]], str, str], ...] = (
    (time_limits, "        timeout-minutes: 690\n", ""),
    (time_limits, "    timeout-minutes: 720\n", ""),
    (pins, "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1", "actions/checkout@v7"),
    (pins, "./.github/actions/night-stage", "./.github/actions/night-stages"),
    (permissions, "\npermissions: {}\n", "\npermissions: write-all\n"),
    (permissions, "      contents: read\n", "      contents: write\n"),
    (permissions, "  workflow_dispatch:\n", "  pull_request:\n"),
    (permissions, "  pull_request:\n", "  pull_request_target:\n"),
    (credentials, "output-env-credentials: false", "output-env-credentials: true"),
    (credentials, "output-env-credentials: false", "mask-aws-account-id: true"),
    (credentials, "\nenv:\n", "\nenv:\n  A: ${{ steps.role.outputs.aws-session-token }}\n"),
    (credentials, "    permissions:\n", "    env: {AWS_SESSION_TOKEN: x}\n    permissions:\n"),
    (credentials, "AWS_SESSION_TOKEN: ${{ steps.role.outputs.aws-session-token }}", "A: b"),
    (credentials, "          role:", "          token: ${{ secrets.TOKEN }}\n          role:"),
    (credentials, "CAIRN_SIGN_PRIVATE_KEY: ${{ inputs.sign-key }}", "A: b"),
    (credentials, "SHARD: ${{ inputs.shard }}\n", "CAIRN_SIGN_PRIVATE_KEY: x\n"),
    (credentials, '--store "$STORE" --line', "--line"),
    (credentials, f"{WHERE_CACHED}steps.role.outputs.aws-session-token || '' }}}}", "x"),
    (promotions, "needs.freeze.result == 'success' && needs.stage.result == 'success'", "always()"),
    (promotions, "!cancelled() && needs.freeze.result == 'success' && needs.stage", "needs.stage"),
    (promotions, "    timeout-minutes: 720\n", "    timeout-minutes: 720\n    continue-on-error: true\n"),
    (promotions, '--store "$STORE"\n', '--store "$STORE" || true\n'),
    (matrices, "      fail-fast: false\n", ""),
    (matrices, "needs.freeze.outputs.build_count != '' && ", ""),
    (matrices, "-${{ github.run_attempt }}", ""),
    (matrices, "        include-hidden-files: true # .cairn\n", ""),
    (command_lines, "--trigger nightly", "--trigger nightli"),
    (command_lines, "cairn ci night promote", "cairn ci night promot"),
    (command_lines, '--leg "$LEG"', '--leg "$LEG" --legs'),
)  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder that has what the command lines name."""
    (tmp_path / "external-builds").symlink_to(ROOT / "external-builds")
    (tmp_path / "matrix.json").write_text("{}", encoding="utf-8")
    (tmp_path / "artifacts").mkdir()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("rule", RULES)
def test_our_own_workflows_keep_to(rule: Callable[[Workflows], Iterator[str]]) -> None:
    assert list(rule(Workflows(OWN))) == []


@pytest.mark.parametrize(("rule", "good", "bad"), FAULTS)
def test_a_planted_fault_is_found(rule: Callable[[Workflows], Iterator[str]], good: str, bad: str) -> None:
    name = min((name for name, text in OWN.items() if good in text), key=lambda name: "night" not in name)
    assert list(rule(Workflows({**OWN, name: OWN[name].replace(good, bad)}))), name


@pytest.mark.parametrize(
    ("to", "own", "environment"),
    [
        ("nightly", "", "nightly"),
        ("dev", "dev", "nightly"),
        ("release", "", "release"),
        ("prerelease", "nightly", "release"),
        ("", "", "release"),
    ],
)
def test_a_night_to_the_channel_of_a_release_asks_its_reviewers(to: str, own: str, environment: str) -> None:
    text = Workflows(OWN).files["workflows/nightly.yml"]["jobs"]["promote"]["environment"]
    assert evaluate(text, {"needs.freeze.outputs.to": to, "vars.CAIRN_CHANNEL": own}) == environment


@pytest.mark.parametrize(
    ("given", "to"),
    [
        ({}, "nightly"),
        ({"vars.CAIRN_CHANNEL": "prerelease"}, "prerelease"),
        ({"vars.CAIRN_CHANNEL": "prerelease", "inputs.refs": "torch=my-branch"}, "dev"),
        ({"inputs.refs": "torch=my-branch", "inputs.to": "release"}, "release"),  # which freezing refuses
    ],
)
def test_a_night_of_another_commit_goes_where_no_gate_is(given: dict[str, object], to: str) -> None:
    nightly = Workflows(OWN).files["workflows/nightly.yml"]
    assert evaluate(nightly["env"]["TO"], given) == to
    ended = {f"needs.{name}.result": "success" for name in nightly["jobs"]["promote"]["needs"]}
    for promoted_to in ("", "nightly"):  # empty where sets stay where they are staged: no reviewer is asked
        known = {**ended, "needs.freeze.outputs.to": promoted_to}
        assert evaluate(nightly["jobs"]["promote"]["if"], known) is bool(promoted_to)


def _group(file: str, **context: object) -> str:
    text = Workflows(OWN).files[f"workflows/{file}.yml"]["concurrency"]["group"]
    by_hand = {"github.event_name": "workflow_dispatch", "github.actor": "ann"}
    known = {"github.run_id": "123", "github.ref": "main", **by_hand, **context}
    return re.sub(r"\$\{\{.*?\}\}", lambda m: str(evaluate(m[0], known)), text, flags=re.DOTALL)


INPUTS = {
    "line": "",
    "families": "all",
    "pythons": "all",
    "night": "",
    "like": "",
    "to": "",
    "image": "",
    "rocm-version": "",
    "refs": "",
}
DISPATCH = {f"inputs.{name}": value for name, value in INPUTS.items()}
SCHEDULE = {"github.event_name": "schedule"}


def test_a_night_by_hand_does_not_replace_what_the_schedule_began_for_its_line() -> None:
    """The job `lines` starts the nights of other lines as one by hand would be started."""
    line = {**DISPATCH, "inputs.line": "release/2.9"}
    of_schedule = _group("nightly", **line, **{"github.actor": "github-actions[bot]"})
    assert of_schedule not in (_group("nightly", **line), _group("nightly", **SCHEDULE))


@pytest.mark.parametrize(
    "other",
    [
        DISPATCH,
        {"github.event_name": "workflow_dispatch", **DISPATCH, "github.ref": "feature"},
        *({**DISPATCH, f"inputs.{name}": "other"} for name in INPUTS),
        {**DISPATCH, "inputs.dry-run": True},
    ],
)
def test_a_night_by_hand_neither_replaces_nor_holds_up_that_of_the_schedule(other: dict[str, object]) -> None:
    assert _group("nightly", **other) != _group("nightly", **SCHEDULE)
    assert (other == DISPATCH) == (_group("nightly", **other) == _group("nightly", **DISPATCH))


def test_a_run_replaces_one_that_is_for_the_same() -> None:
    """So a night that hangs, or waits for reviewers, ends when the next one begins."""
    files = Workflows(OWN).files
    nightly = files["workflows/nightly.yml"]
    assert set(nightly[True]["workflow_dispatch"]["inputs"]) == {*INPUTS, "dry-run"}
    assert _group("nightly", **SCHEDULE) == _group("nightly", **SCHEDULE, **{"github.run_id": "124"})
    assert "github.run_id" not in str(files["workflows/nightly-watch.yml"]["concurrency"])
    for name in ("nightly", "nightly-watch", "release"):
        assert files[f"workflows/{name}.yml"]["concurrency"]["cancel-in-progress"] is True


def test_a_workflow_that_has_built_rocm_calls_a_night_of_one_line_of_that_version() -> None:
    """By whatever event that one was begun, its night begins no nights of other lines."""
    nightly = Workflows(OWN).files["workflows/nightly.yml"]
    given = nightly[True]["workflow_call"]["inputs"]
    assert {name for name, one in given.items() if one.get("required")} == {"line", "rocm-version"}
    assert given.keys() <= INPUTS.keys()
    at_night = {**SCHEDULE, "vars.CAIRN_STORE": "s3://b/w", "vars.CAIRN_LINES": "main"}
    begins = nightly["jobs"]["lines"]["if"]
    assert evaluate(begins, at_night)
    assert not evaluate(begins, {**at_night, "inputs.line": "nightly"})
    (freeze,) = (one for one in nightly["jobs"]["freeze"]["steps"] if one.get("id") == "freeze")
    assert freeze["with"]["rocm-version"] == "${{ inputs.rocm-version }}"


def test_a_release_that_waits_for_reviewers_holds_up_no_other() -> None:
    runs = [{"inputs.release": ""}, {"inputs.release": "", "github.run_id": "124"}, {"inputs.dry-run": True}]
    groups = [_group("release", **run) for run in runs]
    assert groups == ["release-123", "release-124", "release-123"]  # a run is of one id, dry or not
    assert _group("release", **{"inputs.release": "123", "github.run_id": "125"}) == groups[0]
    wait = Workflows(OWN).files["workflows/release.yml"]["jobs"]["promote"]["concurrency"]
    assert wait["cancel-in-progress"] is True
    assert set(re.findall(r"inputs\.(\w+)", wait["group"])) == {"line", "to", "families", "pythons"}


def test_the_figures_of_a_matrix_are_of_the_jobs_of_a_night() -> None:
    jobs = Workflows(OWN).files["workflows/nightly.yml"]["jobs"]
    several = {name for name, job in jobs.items() if "strategy" in job}
    # Those of other lines and of bad nights aside.
    assert set(jobs) - {"lines", "notify"} == {*legs.SINGLE_JOBS, "merge", *several}
    assert several == {"build", "test", "suite"}

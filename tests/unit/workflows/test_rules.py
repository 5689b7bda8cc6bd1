"""Every rule of `cairn ci lint`, by a fault planted in a workflow that has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn.cli.ci import command_lines
from cairn.workflows import lint
from cairn.workflows.findings import CODES, Finding
from helpers import workflows

GOOD_IF = "if: ${{ !cancelled() && needs.plan.result == 'success' && needs.build.result == 'success' }}"
PROMOTE = (
    'run: cairn release promote "$WHEEL_SET" --stack external-builds/sample --store "$STORE" --to release'
)
MATRIX_RUN = "run: cairn matrix --stack external-builds/sample --trigger nightly --github-output"
UPLOAD = "uses: actions/upload-artifact@043fb46d1a93c77aae656e7c1c64a875d1fc6a0a # v7.0.1"
CHECKOUT = "uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1"
DOWNLOAD = (
    "uses: actions/download-artifact@3e5f45b2cfb9172054b4087a40e8e0b5a5461e7c # v8.0.1\n"
    "        timeout-minutes: 5\n"
    "      - name: Promote"
)
ON = 'on:\n  schedule:\n    - cron: "0 3 * * *"\n'
TOP = "permissions:\n  contents: read\nconcurrency"
LOOK_FIRST = (
    "- name: Look\n        timeout-minutes: 1\n        run: ls\n"
    "      - name: Promote\n        if: ${{ !cancelled() }}\n"
)
PLAN_ONLY = "if: ${{ !cancelled() && needs.plan.result == 'success' }}"
TWINE = "run: twine upload out/*"
DRY = """\
  workflow_dispatch:
    inputs:
      dry-run:
        type: boolean
"""


def _lint(tmp_path: Path, *changes: tuple[str, str]) -> tuple[Finding, ...]:
    text = workflows.GOOD
    for old, new in changes:
        assert text.count(old) >= 1, old
        text = text.replace(old, new)
    return lint.check([workflows.write(tmp_path, text)], command_lines.refusal)


def test_a_good_workflow_has_no_finding(tmp_path: Path) -> None:
    assert _lint(tmp_path) == ()


ONE_FAULT = [
    # A promotion that runs in spite of what was before it.
    ("promotion-reachable", (GOOD_IF, "if: always()"), "after the workflow was cancelled"),
    (
        "promotion-reachable",
        (GOOD_IF, "if: ${{ always() && needs.plan.result == 'success' }}"),
        "was cancelled",
    ),
    ("promotion-reachable", (GOOD_IF, "if: ${{ !cancelled() }}"), "after plan failed or was cancelled or"),
    ("promotion-reachable", (GOOD_IF, "if: success() || failure()"), "after plan failed"),
    ("promotion-reachable", (GOOD_IF, "if: ${{ !failure() && !cancelled() }}"), "or was skipped"),
    ("promotion-reachable", (GOOD_IF, "if: needs.build.result != 'failure' && !cancelled()"), "after plan"),
    (
        "promotion-reachable",
        (GOOD_IF, "if: ${{ !cancelled() && needs.plan.result == needs.build.result }}"),
        "after plan failed",
    ),
    (
        "promotion-reachable",
        ("- name: Promote\n", LOOK_FIRST),
        "runs after 'Look' failed",
    ),
    (
        "promotion-reachable",
        ("- name: Promote\n", "- name: Promote\n        if: always()\n"),
        "the step 'Promote' promotes, and runs after the workflow was cancelled",
    ),
    # What counts as passed when it fails.
    ("continue-on-error", ("- name: Build\n", "- name: Build\n        continue-on-error: true\n"), "'Build'"),
    (
        "continue-on-error",
        ("    needs: plan\n", "    needs: plan\n    continue-on-error: ${{ matrix.expect_failure }}\n"),
        "the job build is before a promotion",
    ),
    ("continue-on-error", ("--output-dir out\n", "--output-dir out || true\n"), "may fail unseen"),
    ("continue-on-error", ("--output-dir out\n", "--output-dir out ||\n            :\n"), "may fail unseen"),
    # Concurrency, time, expressions.
    ("cancel-in-progress", ("cancel-in-progress: false", "cancel-in-progress: true"), "the next run cancels"),
    (
        "cancel-in-progress",
        ("cancel-in-progress: false", "cancel-in-progress: ${{ github.ref != 'refs/heads/main' }}"),
        "the next run cancels",
    ),
    ("time-limit", ("    timeout-minutes: 60\n", ""), "the job build has no time limit"),
    ("time-limit", ("        timeout-minutes: 50\n", ""), "the step 'Build' of build has no time limit"),
    ("expression", (GOOD_IF, "if: needs.build.result = 'success'"), "'='"),
    ("expression", ("- name: Build\n", "- name: Build\n        if: ${{ false }} && true\n"), "always true"),
    (
        "expression",
        (f"{ON}permissions", f"{ON}{DRY}run-name: ${{{{ inputs.dry-run != 'true' }}}}\npermissions"),
        "compared with text: that is always true",
    ),
    # Command lines.
    ("command-line", ("--trigger nightly", "--trigger nightli"), "did you mean nightly?"),
    ("command-line", ("--output-dir out", "--outputdir out"), "did you mean --output-dir?"),
    ("command-line", ("cairn build --stack", "cairn buld --stack"), "did you mean build"),
    ("command-line", (' "$WHEEL_SET" ', " "), "the following arguments are required: SET"),
    (
        "command-line",
        (MATRIX_RUN, "run: python external-builds/pytorch/build_prod_wheels.py build --outputdir x"),
        "unknown option --outputdir",
    ),
    ("command-line", (MATRIX_RUN, "run: uv run cairn ci lint --jsn"), "did you mean --json?"),
    ("command-line", (MATRIX_RUN, "run: python3.12 build_tools/fetch_artifacts.py --runid 7"), "--run-id"),
    ("command-line", (MATRIX_RUN, "run: python -X utf8 -m cairn ci lint --jsn"), "did you mean --json?"),
    # Actions, matrices, artifacts.
    ("unpinned-action", (CHECKOUT, "uses: actions/checkout@v7"), "is not pinned by a full commit hash"),
    ("unpinned-action", (CHECKOUT, "uses: actions/checkout@3d3c42e # v7.0.1"), "is not pinned"),
    ("unpinned-action", (CHECKOUT, CHECKOUT.partition(" #")[0]), "in a comment which version"),
    (
        "matrix-guard",
        ("    if: needs.plan.outputs.empty == 'false'\n", ""),
        "when the matrix matrix of plan is empty",
    ),
    ("missing-action", (PROMOTE, "uses: ./.github/actions/x"), "there is no ./.github/actions/x"),
    ("matrix-guard", ("outputs.empty == 'false'", "outputs.empty != 'false'"), "is empty"),
    ("matrix-guard", ("outputs.empty == 'false'", "outputs.lines == '[]'"), "is empty"),
    ("fail-fast", ("      fail-fast: false\n", ""), "a leg of build that fails cancels the others"),
    ("artifact-attempt", ("-${{ github.run_attempt }}", "-${{ github.run_id }}"), "in every attempt"),
    (
        "artifact-attempt",
        ("          name: wheels-${{ matrix.id }}-${{ github.run_attempt }}\n", ""),
        "'artifact'",
    ),
    # Forks, permissions.
    ("permissions", (TOP, "concurrency"), "has the permissions of the repository"),
    ("permissions", (TOP, "permissions: write-all\nconcurrency"), "every job has write-all"),
    ("permissions", (TOP, "permissions:\n  contents: write\nconcurrency"), "every job has contents: write"),
    (
        "permissions",
        ("    permissions:\n      contents: read\n      id-token: write\n", "    permissions: read-all\n"),
        "the job promote has read-all",
    ),
    (
        "fork-secrets",
        ("          TARGETS: ${{ matrix.targets }}\n", "          KEY: ${{ secrets.AWS_KEY }}\n"),
        "has the secret aws_key, and a fork reaches it by pull_request",
    ),
    ("workflow", ("jobs:\n", "jobs:\njobs:\n"), "has 'jobs' twice"),
    ("workflow", ("jobs:\n", "work:\n"), "is neither a workflow"),
    ("workflow", ("jobs:\n", "jobs: [\n"), "is not YAML"),
]


@pytest.mark.parametrize(("rule", "change", "said"), ONE_FAULT, ids=lambda v: v if v in CODES else "")
def test_a_planted_fault_is_found(tmp_path: Path, rule: str, change: tuple[str, str], said: str) -> None:
    changes = [change]
    if rule == "fork-secrets":
        changes.append((ON, "on: [pull_request]\n"))
    found = _lint(tmp_path, *changes)
    assert {finding.rule.code for finding in found} == {rule}
    assert said in " ".join(finding.message for finding in found) + " ".join(
        finding.advice for finding in found
    )


@pytest.mark.parametrize(
    "end",
    [
        "|| exit 1",
        "|| echo oh && exit 1",
        "|| { cat log; exit 1; }",
        "&& echo good",
        "| tee log",
        "|| [ $? = 3 ]",
        "; true",
    ],
)
def test_an_alternative_that_fails_too_hides_nothing(tmp_path: Path, end: str) -> None:
    assert _lint(tmp_path, ("--output-dir out\n", f"--output-dir out {end}\n")) == ()


SECRET = ("          TARGETS: ${{ matrix.targets }}\n", "          KEY: ${{ secrets.AWS_KEY }}\n")


@pytest.mark.parametrize(
    "condition",
    [
        "github.event_name != 'pull_request'",
        "github.ref == 'refs/heads/main' && github.repository == 'owner/name'",
        "startsWith(github.ref, 'refs/tags/')",
        "${{ !github.event.pull_request.head.repo.fork }}",
    ],
)
def test_a_secret_of_a_step_that_no_fork_reaches_is_none_of_theirs(tmp_path: Path, condition: str) -> None:
    events = (ON, "on: [pull_request, push]\n")
    assert [one.rule.code for one in _lint(tmp_path, events, SECRET)] == ["fork-secrets"]
    guarded = ("      - name: Build\n", f"      - name: Build\n        if: {condition}\n")
    assert _lint(tmp_path, events, SECRET, guarded) == ()


@pytest.mark.parametrize(
    "guard",
    [
        "outputs.enabled == 'true'",
        "outputs.has_legs == 'true'",
        "outputs.count != '0'",
        "outputs.matrix != '[]'",
    ],
)
def test_a_matrix_may_be_guarded_by_whatever_says_that_it_is_empty(tmp_path: Path, guard: str) -> None:
    assert _lint(tmp_path, ("outputs.empty == 'false'", guard)) == ()


FOLLOWS = (ON, "on:\n  workflow_run:\n    workflows: [Build]\n    types: [completed]\n")
NO_TOKEN = ("      id-token: write\n", "")


@pytest.mark.parametrize("needs", [True, False])
def test_a_promotion_after_a_workflow_that_failed_is_found(tmp_path: Path, needs: bool) -> None:  # noqa: FBT001
    alone = () if needs else (("    needs: [plan, build]\n", ""), (f"    {GOOD_IF}\n", ""))
    changes = (FOLLOWS, NO_TOKEN, (PROMOTE, TWINE), *alone)
    found = _lint(tmp_path, *changes)
    assert [one.rule.code for one in found] == ["promotion-reachable"]
    assert "the workflow that it follows failed or was cancelled or was skipped" in found[0].message
    only = "if: github.event.workflow_run.conclusion == 'success'"
    assert _lint(tmp_path, *changes, ("- name: Promote\n", f"- name: Promote\n        {only}\n")) == ()
    # The gate asks the store, whatever ended how.
    assert _lint(tmp_path, *changes[:2], *alone) == ()


@pytest.mark.parametrize("event", ["pull_request_target", "workflow_run"])
def test_a_checkout_of_a_head_where_secrets_are_at_hand_is_found(tmp_path: Path, event: str) -> None:
    head = (
        "github.event.pull_request.head.sha"
        if event == "pull_request_target"
        else "github.event.workflow_run.head_sha"
    )
    planted = ("persist-credentials: false", f"persist-credentials: false\n          ref: ${{{{ {head} }}}}")
    found = _lint(tmp_path, (ON, f"on:\n  {event}:\n"), planted, ("      id-token: write\n", ""))
    assert [(finding.rule.code, finding.line) for finding in found] == [("untrusted-checkout", 17)]
    of_base = _lint(tmp_path, (ON, f"on:\n  {event}:\n"), ("      id-token: write\n", ""))
    assert of_base == ()


def test_every_rule_has_a_planted_fault() -> None:
    assert {rule for rule, _, _ in ONE_FAULT} | {"untrusted-checkout"} == set(CODES)


NO_FAULT = [
    (GOOD_IF, ""),  # success of all is GitHub's default
    (GOOD_IF, "if: success()"),
    (GOOD_IF, "if: needs.plan.outputs.empty == 'false'"),
    (GOOD_IF, GOOD_IF.replace("!cancelled()", "always() && !cancelled()")),
    # Through the gate, with one need that must have passed: it judges each set by its records.
    (GOOD_IF, "if: ${{ !cancelled() && contains(needs.*.result, 'success') }}"),
    (GOOD_IF, PLAN_ONLY),
    (GOOD_IF, "if: ${{ !(cancelled() || failure()) && needs.build.result == 'SUCCESS' }}"),
    ("outputs.empty == 'false'", "outputs.count != '0'"),
    ("outputs.empty == 'false'", "outputs.matrix != '{\"include\":[]}'"),
    ("outputs.empty == 'false'", "outputs.count > 0 && github.event_name != 'push'"),
    ('--targets "$TARGETS"', '--targets "${TARGETS:-gfx942}" $MORE ${{ inputs.more }}'),
    ("run: cairn matrix", "run: CI=1 .venv/bin/cairn matrix"),
    (" \\\n            --output-dir out", " --output-dir=$OUT >log 2>&1 | tee log && echo 'cairn buld'"),
    ("cancel-in-progress: false", "queue: max"),
    ("      id-token: write", "      id-token: write\n      attestations: write"),
]


@pytest.mark.parametrize("change", NO_FAULT)
def test_what_is_no_fault_is_not_found(tmp_path: Path, change: tuple[str, str]) -> None:
    assert _lint(tmp_path, change) == ()


@pytest.mark.parametrize(
    ("changes", "after"),
    [
        # Without the gate every need counts, and those before it too.
        ([(PROMOTE, TWINE), (GOOD_IF, PLAN_ONLY)], "build failed"),
        ([(GOOD_IF, PLAN_ONLY), ("name: Promote", DOWNLOAD)], "build"),
        (
            [
                (PROMOTE, TWINE),
                (
                    "    needs: plan\n    if: needs.plan.outputs.empty == 'false'\n",
                    "    needs: plan\n    if: always() && needs.plan.outputs.empty != 'true'\n",
                ),
                ("needs: [plan, build]", "needs: build"),
                (GOOD_IF, "if: ${{ !cancelled() && needs.build.result == 'success' }}"),
            ],
            "plan failed",
        ),
    ],
)
def test_a_promotion_past_the_gate_needs_all_that_is_before_it(
    tmp_path: Path, changes: list[tuple[str, str]], after: str
) -> None:
    if "name: Promote" in dict(changes):
        changes = [(old.replace("name: Promote", "- name: Promote"), new) for old, new in changes]
        changes = [(old, "- " + new if old == "- name: Promote" else new) for old, new in changes]
    found = _lint(tmp_path, *changes)
    assert {finding.rule.code for finding in found} == {"promotion-reachable"}
    assert f"runs after {after}" in found[0].message


def test_a_promotion_in_a_local_action_is_one(tmp_path: Path) -> None:
    action = tmp_path / ".github" / "actions" / "promote" / "action.yml"
    action.parent.mkdir(parents=True)
    head = "name: Promote\ndescription: x\nruns:\n  using: composite\n  steps:\n"
    text = f"{head}    - shell: bash\n      {PROMOTE}\n"
    action.write_text(text, encoding="utf-8")
    uses = (PROMOTE, "uses: ./.github/actions/promote")
    assert _lint(tmp_path, uses) == ()
    found = _lint(tmp_path, uses, (GOOD_IF, "if: always()"))
    assert {finding.rule.code for finding in found} == {"promotion-reachable"}
    assert lint.check([action], command_lines.refusal) == ()
    action.write_text(text.replace("--to release", "--too release"), encoding="utf-8")
    assert [(f.rule.code, f.line) for f in lint.check([action], command_lines.refusal)] == [
        ("command-line", 7)
    ]


def test_a_secret_behind_a_condition_on_the_event_is_out_of_a_forks_reach(tmp_path: Path) -> None:
    secret = ("          TARGETS: ${{ matrix.targets }}\n", "          KEY: ${{ secrets.AWS_KEY }}\n")
    on = (ON, "on: [push, pull_request]\n")
    guard = "needs.plan.outputs.empty == 'false'"
    assert len(_lint(tmp_path, secret, on)) == 1
    for more in (
        "github.event_name == 'push'",
        "!github.event.pull_request.head.repo.fork",
        "github.event.pull_request.head.repo.full_name == github.repository",
    ):
        assert _lint(tmp_path, secret, on, (f"if: {guard}", f"if: ${{{{ {guard} && {more} }}}}")) == ()
    given = ("secrets.AWS_KEY", "secrets.GITHUB_TOKEN")
    assert _lint(tmp_path, secret, on, given) == ()


def test_a_comment_with_a_reason_lets_one_rule_through(tmp_path: Path) -> None:
    without = ("    timeout-minutes: 60\n", "")
    comment = "# cairn-lint: allow time-limit: act ignores it"
    allowed = _lint(tmp_path, without, ("  build:\n", f"  {comment}\n  build:\n"))
    assert allowed == ()
    bare = _lint(tmp_path, without, ("  build:\n", "  build:  # cairn-lint: allow time-limit\n"))
    assert [finding.message for finding in bare] == [
        "the job build has no time limit",
        "the comment does not say why",
    ]
    mistyped = _lint(tmp_path, ("  build:\n", f"  {comment.replace('limit', 'limits')}\n  build:\n"))
    assert mistyped[0].advice == "did you mean time-limit?"


def test_a_finding_names_the_line(tmp_path: Path) -> None:
    found = _lint(tmp_path, ("--output-dir out", "--outputdir out"))
    lines = (tmp_path / ".github/workflows/night.yml").read_text(encoding="utf-8").splitlines()
    assert [lines[finding.line - 1].strip() for finding in found] == [
        'cairn build --stack external-builds/sample --targets "$TARGETS" \\'
    ]

"""What `cairn ci lint` finds: a rule for each kind of mistake, and how to correct it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path


class Rule(enum.Enum):
    """A rule: its code, what breaks it, and what to do."""

    WORKFLOW = (
        "workflow",
        "a file that is not YAML, or not a workflow or an action: nothing else was looked at",
        "correct what the message names",
    )
    EXPRESSION = (
        "expression",
        (
            "an `if:` that is not an expression of GitHub's, or that is always true because text stands"
            " around `${{ }}`; a boolean input that is compared with `'true'`, which it never equals"
        ),
        (
            "write the whole condition as one expression, without `${{ }}` or in one pair of them, and a "
            "boolean as it is: `if: inputs.NAME`"
        ),
    )
    PROMOTION_REACHABLE = (
        "promotion-reachable",
        (
            "a promotion that runs although something before it failed, was skipped or was cancelled, also "
            "the workflow that it follows by `workflow_run`. "
            "One that goes through the gate, which judges each set by the records in the store, may "
            "follow a failed need if it stops with a cancelled workflow, requires that another need "
            "succeeded, and downloads no artifact; any other may not"
        ),
        (
            "let it run after success alone: `if: ${{ !cancelled() && needs.X.result == 'success' }}` "
            "for each need that it relies on, never `always()`"
        ),
    )
    CONTINUE_ON_ERROR = (
        "continue-on-error",
        (
            "a job or step before a promotion that counts as passed when it fails, also by `|| true` behind "
            "a command of Cairn or pytest"
        ),
        (
            "take `continue-on-error`, or `|| true`, out, and give the steps behind it that must run an `if: "
            "${{ !cancelled() }}`"
        ),
    )
    CANCEL_IN_PROGRESS = (
        "cancel-in-progress",
        "a concurrency group that cancels a run while it promotes",
        "set `cancel-in-progress: false` in the workflow that promotes",
    )
    TIME_LIMIT = (
        "time-limit",
        (
            "a job or step without `timeout-minutes`: GitHub's own limit is six hours, and a GPU that "
            "hangs uses them all"
        ),
        "give it a `timeout-minutes`",
    )
    COMMAND_LINE = (
        "command-line",
        ("a command of Cairn, or of a script with upstream's name, that its real command line refuses"),
        "correct the command: its `--help` shows what it takes",
    )
    UNPINNED_ACTION = (
        "unpinned-action",
        (
            "an action of a different repository that is not pinned by a full commit hash, with its "
            "version in a comment"
        ),
        "write `uses: OWNER/NAME@<40 hex digits> # vX.Y.Z`",
    )
    MISSING_ACTION = (
        "missing-action",
        "an action or a workflow of the same repository that is not there",
        "correct its path, which begins at the repository's root",
    )
    MATRIX_GUARD = (
        "matrix-guard",
        "a matrix from a different job's output, in a job that an empty one does not skip",
        "guard the job by the output that says so: `if: needs.X.outputs.empty == 'false'`",
    )
    FAIL_FAST = (
        "fail-fast",
        "a matrix before a promotion whose first leg that fails cancels the others",
        "set `fail-fast: false` in its `strategy`",
    )
    ARTIFACT_ATTEMPT = (
        "artifact-attempt",
        ("an artifact whose name does not have the attempt: a re-run meets the one of the first attempt"),
        "put `${{ github.run_attempt }}` into its name",
    )
    UNTRUSTED_CHECKOUT = (
        "untrusted-checkout",
        (
            "a checkout of a pull request's head, for an event that has the repository's secrets and a "
            "token that writes"
        ),
        "use `pull_request`, or check out the base",
    )
    FORK_SECRETS = (
        "fork-secrets",
        "a secret, an OIDC token or a write permission in a job that a fork's pull request reaches",
        (
            "move it into a workflow of `push`, `schedule` or `workflow_dispatch`, or guard the job: "
            "`if: github.event_name != 'pull_request'`"
        ),
    )
    PERMISSIONS = (
        "permissions",
        (
            "a workflow without `permissions`, or with more than its jobs need: all scopes, or write "
            "scopes for every job"
        ),
        ("write `permissions: {}` or `contents: read` at the top, and what a job needs besides in that job"),
    )

    def __init__(self, code: str, about: str, fix: str) -> None:
        self.code = code
        self.about = about
        self.fix = fix


CODES = tuple(rule.code for rule in Rule)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A mistake at a line of a file (the first is 1)."""

    rule: Rule
    file: Path
    line: int
    message: str
    fix: str = ""

    @property
    def advice(self) -> str:
        """What to do about it."""
        return self.fix or self.rule.fix

"""Find a run of TheRock's CI in GitHub's list: the latest, or that of a commit.

One request of GitHub's API lists a hundred runs. Without a token it answers sixty requests an hour, so the
runs of a branch are listed at once, and not commit by commit. Sources: ROCm/TheRock 89553ce,
build_tools/find_latest_artifacts.py, build_tools/find_artifacts_for_commit.py,
build_tools/github_actions/github_actions_api.py; its RELEASES.md names the repository of releases.
"""

from __future__ import annotations

import io
import os
import re
import time
import urllib.parse
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import TypedDict, TypeVar

import msgspec
from msgspec import DecodeError

from cairn import datafile, web
from cairn.errors import CairnError, NetworkError, UsageError
from cairn.output import wording
from cairn.rocm.fetch.choose import UPSTREAM, Run

T = TypeVar("T")

RELEASES = "ROCm/rockrel"
"""The repository whose runs make TheRock's nightly builds and releases."""

_API = "https://api.github.com"
_ADDRESS = re.compile(r"https?://([\w.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?(/|$)", re.IGNORECASE)
_ANSWER = 1 << 26  # bytes: a page of runs has some 2 MB
_SECONDS = 60.0
_PAGE = 100  # runs; GitHub gives no more at once
_LOOKED_AT = 30  # runs: each costs up to two requests of buckets
_SHOWN = 3
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_TOKENS = ("GITHUB_TOKEN", "GH_TOKEN")
_TIP = "check the network, or name the run: --run-id ID"


class FoundRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run as GitHub lists it.

    Attributes:
        run: which it is, and where its artifacts are.
        commit: that it built, of the repository where it ran.
        created: when it was made, in ISO 8601.
        outcome: how it ended: `success`, `failure` and so on; before that its state, such as `in_progress`.
        has_ended: nothing of it is still to come.
    """

    run: Run
    commit: str
    created: str
    outcome: str
    has_ended: bool

    @property
    def url(self) -> str:
        """The address of its page."""
        return f"https://github.com/{self.run.repository}/actions/runs/{self.run.id}"

    def problem(self) -> str | None:
        """Return why it may lack artifacts; None where it ended well."""
        words = self.outcome.replace("_", " ")
        if not self.has_ended:
            return f"has not ended ({words})"
        return None if self.outcome == "success" else f"ended with {words}"


class _Repository(TypedDict):
    default_branch: str


class _Commit(TypedDict):
    sha: str


class _Listed(TypedDict):
    id: int
    head_sha: str
    created_at: str
    status: str
    conclusion: str | None


class _Runs(TypedDict):
    workflow_runs: list[_Listed]


def repository_of(release_type: str) -> str:
    """Return the repository whose runs make the builds of a release type."""
    return UPSTREAM if release_type == "ci" else RELEASES


def list_latest(template: Run) -> tuple[FoundRun, ...]:
    """List runs of the default branch, the newest first.

    Args:
        template: their repository, platform and release type; the id is ignored.

    Raises:
        UsageError: GitHub has no such repository or workflow, or no run.
        NetworkError: GitHub does not answer, or allows no more requests.
    """
    repository = _ask(f"repos/{template.repository}", _Repository)
    if repository is None:
        raise UsageError(f"GitHub has no repository {template.repository}", tip="check --run-github-repo")
    branch = repository["default_branch"]
    runs = _runs(template, branch=branch)
    if not runs:
        raise UsageError(
            f"{_workflow(template)} of {template.repository} has not run on {branch}",
            tip="name a run: --run-id ID",
        )
    return runs


def list_of_commit(template: Run, commit: str) -> tuple[FoundRun, ...]:
    """List the runs of a commit, the newest first.

    Raises:
        UsageError: it is no commit, GitHub has no such commit, or no run of it.
        NetworkError: GitHub does not answer, or allows no more requests.
    """
    if not _COMMIT.fullmatch(commit):
        raise UsageError(
            f"{commit[:60]!r} is not a commit",
            tip="write 7 to 40 of its hexadecimal digits; --latest takes the latest run",
        )
    whole = _ask(f"repos/{template.repository}/commits/{commit}", _Commit)
    if whole is None or not whole["sha"].startswith(commit):
        raise UsageError(
            f"{template.repository} has no commit {commit}",
            tip="check it, and --run-github-repo; --latest takes the latest run",
        )
    runs = tuple(run for run in _runs(template, head_sha=whole["sha"]) if run.commit == whole["sha"])
    if not runs:
        raise UsageError(
            f"{_workflow(template)} of {template.repository} has not run for commit {whole['sha']}",
            tip="of several commits in one push only the last has a run; --latest takes the latest run",
        )
    return runs


def first_whole(runs: Sequence[FoundRun], choose: Callable[[Run], T]) -> tuple[FoundRun, T, tuple[str, ...]]:
    """Return the first run that ended well and has what is wanted, with what was chosen of it.

    The third value says why earlier runs were passed over.

    Args:
        runs: the best first.
        choose: chooses artifacts of a run, and raises a `UsageError` where it lacks a requested artifact.

    Raises:
        UsageError: none has it.
    """
    passed: list[str] = []
    for run in runs[:_LOOKED_AT]:
        problem = run.problem()
        if problem is None:
            try:
                return run, choose(run.run), tuple(passed)
            except UsageError as error:
                problem = f"lacks what is wanted: {error}"
        passed.append(f"run {run.run.id} {problem}")
    partial = next((run for run in runs if run.problem()), None)
    tip = "check the families, the targets and the patterns; the oldest artifacts may have been deleted"
    if partial is not None:
        wait = "" if partial.has_ended else "wait for its end, or "
        tip = f"{wait}take what that run has, which may not be all: --run-id {partial.run.id}"
    raise UsageError(f"no run is whole: {wording.some(passed, shown=_SHOWN)}", tip=tip)


def _runs(template: Run, **which: str) -> tuple[FoundRun, ...]:
    query = urllib.parse.urlencode({**which, "per_page": _PAGE, "exclude_pull_requests": "true"})
    workflow = _workflow(template)
    answer = _ask(f"repos/{template.repository}/actions/workflows/{workflow}/runs?{query}", _Runs)
    if answer is None:
        raise UsageError(
            f"{template.repository} has no workflow {workflow}", tip="name the run itself: --run-id ID"
        )
    runs = [
        FoundRun(
            run=Run(
                id=str(each["id"]),
                platform=template.platform,
                repository=template.repository,
                release_type=template.release_type,
            ),
            commit=each["head_sha"],
            created=each["created_at"],
            outcome=each["conclusion"] or each["status"],
            has_ended=each["status"] == "completed",
        )
        for each in answer["workflow_runs"]
    ]
    # GitHub documents no order. Of two runs of one second the later has the larger number.
    return tuple(sorted(runs, key=lambda run: (run.created, int(run.run.id)), reverse=True))


def _workflow(template: Run) -> str:
    """The workflow that uploads the artifacts."""
    # ROCm/TheRock 89553ce, .github/workflows/multi_arch_release.yml and .github/workflows/multi_arch_ci.yml
    if template.release_type != "ci":
        return "multi_arch_release.yml"
    # ROCm/TheRock 89553ce, build_tools/tests/find_artifacts_for_commit_test.py
    return "multi_arch_ci.yml" if template.repository.endswith("/TheRock") else "therock-ci.yml"


def _ask(path: str, kind: type[T]) -> T | None:
    """Read what GitHub's API has at a path; None where there is nothing.

    Raises:
        UsageError: GitHub refuses the token, or `GITHUB_API_URL` is no address.
        NetworkError: GitHub does not answer, allows no more requests, or answers something else.
    """
    address = os.environ.get("GITHUB_API_URL") or _API
    if not _ADDRESS.match(address):
        raise UsageError(
            f"GITHUB_API_URL is no address: {address[:80]!r}", tip=f"set it to {_API}, or not at all"
        )
    url = f"{address.rstrip('/')}/{path}"
    variable = next((name for name in _TOKENS if os.environ.get(name)), None)
    headers = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
    if variable is not None:
        headers["Authorization"] = f"Bearer {os.environ[variable].strip()}"
    out = io.BytesIO()
    try:
        is_there = web.read(url, out=out, most=_ANSWER, timeout=_SECONDS, tip=_TIP, headers=headers)
    except web.RefusalError as refusal:
        # 422: what stands for a commit is none (GitHub, "Get a commit").
        if refusal.status == HTTPStatus.UNPROCESSABLE_ENTITY:
            return None
        raise _explained(refusal, variable) or refusal from refusal
    if not is_there:
        return None
    try:
        return datafile.decode(out.getvalue(), kind)
    except DecodeError as error:
        raise NetworkError(f"{url} does not answer as GitHub's API does: {error}", tip=_TIP) from error


def _explained(refusal: web.RefusalError, variable: str | None) -> CairnError | None:
    """Return why GitHub refuses a request, and what to do; None where that is not known.

    Source: GitHub, "Rate limits for the REST API" and "Troubleshooting the REST API".
    """
    headers = {name.lower(): value for name, value in refusal.headers.items()}
    is_limited = refusal.status in (HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS) and (
        headers.get("x-ratelimit-remaining") == "0" or "retry-after" in headers
    )
    if is_limited:
        reset = re.fullmatch("[0-9]{1,11}", headers.get("x-ratelimit-reset", ""))
        until = time.strftime(" until %H:%M UTC", time.gmtime(int(reset[0]))) if reset else " now"
        allowance = "" if variable else ": without a token it allows 60 an hour for your address"
        tip = "wait" if variable else "set GITHUB_TOKEN to a token of yours (`gh auth token` prints one)"
        return NetworkError(
            f"GitHub answers no more requests{until}{allowance}", tip=f"{tip}, or name the run: --run-id ID"
        )
    if variable and refusal.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return UsageError(
            f"GitHub refuses the token in {variable} ({refusal.status})",
            tip=f"unset {variable}: public repositories need no token; or set a valid one",
        )
    return None

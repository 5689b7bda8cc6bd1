"""How much a matrix asks of GitHub Actions: jobs and artifacts of a line, beside the limits of the service.

Jobs are those of nightly.yml where nothing fails, artifacts those of its actions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cairn import datafile
from cairn.matrix.legs import MOST_LEGS, Leg, builds_of
from cairn.matrix.matrix_toml import usable

HOSTED_DISK = 14_000_000_000
"""Bytes that are free on GitHub's own Linux runners (docs.github.com, "GitHub-hosted runners reference")."""
HOSTED_HOURS = 6
"""After so many hours GitHub ends a job on its own runners (docs.github.com, "Actions limits")."""

SINGLE_JOBS = ("freeze", "stage", "promote", "report")
"""The jobs of nightly.yml that a night has once, besides `merge` where there are suites."""
REQUESTS_BY_TOKEN = 1000
"""Requests to GitHub's API that the tokens of a repository's jobs may make in an hour (docs.github.com, "Rate
limits for the REST API"). Those for artifacts and for tokens of roles are none of them."""
REQUESTS_TO_BEGIN = 2
"""Of these, by `gh workflow run` for a line: it looks for the workflow, and starts it."""


class Figures(datafile.Value):
    """The jobs and artifacts of one line's night.

    Attributes:
        line: which.
        legs: the sets that are built, staged and promoted.
        builds: the jobs that build them.
        hosted_builds: those of them that run on GitHub's own runners.
        tests: the jobs of smoke tests.
        shards: the jobs of suites.
        jobs: all of them, with those that are there once.
        artifacts: what the jobs upload, each job one.
        downloads: the artifacts that the job `stage` downloads, all onto one disk.
        requests: to GitHub, by its programs for a job's token (of which tests take two), for artifacts
            (@actions/artifact: two for an upload, one for a download and one for their list), and by `gh`.
    """

    line: str
    legs: int
    builds: int
    hosted_builds: int
    tests: int
    shards: int
    jobs: int
    artifacts: int
    downloads: int
    requests: int

    def limits(self) -> Iterator[str]:
        """Yield what comes near a limit of GitHub's, or beyond it, a sentence each."""
        matrices = {"builds": self.builds, "smoke tests": self.tests, "shards": self.shards}
        for what, count in matrices.items():
            if count > MOST_LEGS:
                yield f"{self.line}: {count} {what}, and GitHub makes {MOST_LEGS} jobs of one matrix at most"
        if self.hosted_builds:
            yield (
                f"{self.line}: {self.hosted_builds} of {self.builds} builds run on GitHub's own runners, "
                f"which end after {HOSTED_HOURS} hours and have {HOSTED_DISK // 10**9} GB of disk"
            )
        if self.downloads:
            each = HOSTED_DISK / self.downloads / 1e6
            yield (
                f"{self.line}: stage downloads {self.downloads} artifacts: on a runner of GitHub's own they "
                f"may have {each:.0f} MB each"
            )


def of_line(legs: Iterable[Leg], *, shards: int) -> Figures:
    """The figures of the legs of one line.

    Args:
        legs: at least one.
        shards: how many jobs their suites have.
    """
    every = tuple(legs)
    builds, tests = builds_of(every), sum(bool(leg.smoke_runs_on) for leg in every)
    hosted = sum(usable(build.build_runs_on, at_home=False) != () for build in builds)
    merging = int(shards > 0)
    jobs = len(builds) + tests + shards + merging + len(SINGLE_JOBS)
    artifacts = len(builds) + tests + shards + merging
    return Figures(
        line=every[0].line,
        legs=len(every),
        builds=len(builds),
        hosted_builds=hosted,
        tests=tests,
        shards=shards,
        jobs=jobs,
        artifacts=artifacts,
        downloads=len(builds),
        requests=jobs + tests + shards + 2 * artifacts + 1 + len(builds) + REQUESTS_TO_BEGIN,
    )

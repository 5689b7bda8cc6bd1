"""Where TheRock's CI puts the artifacts of a run.

Source: ROCm/TheRock, docs/development/workflow_outputs.md and s3_buckets.md: all of a run is in a bucket
below `{owner}-{repo}/{run id}-{platform}/`, without the repository for TheRock itself; anyone may read it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cairn.errors import UsageError

UPSTREAM = "ROCm/TheRock"
"""The repository whose runs are meant where none is named."""

_RUN_ID = re.compile(r"[0-9]{1,20}")
_REPOSITORY = re.compile(r"([A-Za-z0-9-]{1,39})/([A-Za-z0-9._-]{1,100})")
# TheRock's release types, and the bucket of each but `ci`, whose bucket depends on the repository.
_BUCKETS = {
    "dev": "therock-dev-artifacts",
    "dev-bkc": "therock-dev-artifacts",
    "nightly": "therock-nightly-artifacts",
    "nightly-bkc": "therock-nightly-artifacts",
    "prerelease": "therock-prerelease-artifacts",
}
RELEASE_TYPES = ("ci", *_BUCKETS)
"""What a run may be of."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run of a workflow, whose artifacts are wanted.

    Attributes:
        id: GitHub's number of it.
        platform: `linux` or `windows`.
        repository: `owner/name`, where it ran.
        release_type: which kind of builds it made.
    """

    id: str
    platform: str
    repository: str = UPSTREAM
    release_type: str = "ci"

    def __post_init__(self) -> None:
        if not _RUN_ID.fullmatch(self.id):
            raise UsageError(
                f"{self.id[:60]!r} is not the id of a run",
                tip="it is the number in the run's address: …/actions/runs/17123441166",
            )
        if not _REPOSITORY.fullmatch(self.repository):
            raise UsageError(f"{self.repository[:100]!r} is not a repository", tip=f"write {UPSTREAM}")

    def folder(self) -> str:
        """What it is called in a store that has the outputs of several runs."""
        return f"{self.id}-{self.platform}"

    def places(self) -> tuple[str, ...]:
        """URLs of stores that may have it, the likeliest first."""
        own = f"{self.repository.replace('/', '-')}/{self.folder()}"
        # Runs of a fork's pull request are listed as runs of the repository, but cannot write to its bucket.
        elsewhere = f"s3://therock-ci-artifacts-external/{own}"
        if self.release_type != "ci":
            return (f"s3://{_BUCKETS[self.release_type]}/{self.folder()}",)
        if self.repository == UPSTREAM:
            return (f"s3://therock-ci-artifacts/{self.folder()}", elsewhere)
        return (elsewhere,)

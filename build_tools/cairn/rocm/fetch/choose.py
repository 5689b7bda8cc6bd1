"""Where TheRock's CI puts the artifacts of a run, and which are wanted: by family, target and name.

All of a run is in a bucket below `{owner}-{repo}/{run id}-{platform}/`, without the repository for TheRock
itself; anyone may read it. Sources: ROCm/TheRock 89553ce, build_tools/_therock_utils/s3_buckets.py and
build_tools/_therock_utils/workflow_outputs.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import msgspec

from cairn import targets as gpu
from cairn.errors import UsageError
from cairn.output import wording
from cairn.rocm.tree import ARTIFACT, GENERIC
from cairn.store.protocol import ListedObject, Store

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

# TheRock's order of preference, where an artifact is there in both.
_ENDINGS = (".tar.zst", ".tar.xz")
_SHOWN = 12


class Run(msgspec.Struct, frozen=True, kw_only=True):
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
        """The name of the run's folder in a store with the outputs of several runs."""
        return f"{self.id}-{self.platform}"

    def places(self) -> tuple[str, ...]:
        """URLs of stores that may have it, the likeliest first."""
        prefix = f"{self.repository.replace('/', '-')}/{self.folder()}"
        # Runs of a fork's pull request are listed as runs of the repository, but cannot write to its bucket.
        elsewhere = f"s3://therock-ci-artifacts-external/{prefix}"
        if self.release_type != "ci":
            return (f"s3://{_BUCKETS[self.release_type]}/{self.folder()}",)
        if self.repository == UPSTREAM:
            return (f"s3://therock-ci-artifacts/{self.folder()}", elsewhere)
        return (elsewhere,)


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """An archive in a store.

    Attributes:
        name: `NAME_COMPONENT_TARGET`, which becomes the name of a folder.
        target: the target or family it is for; `GENERIC` for all.
        key: of the archive in the store.
        size: of the archive, in bytes.
    """

    name: str
    target: str
    key: str
    size: int

    @property
    def processor(self) -> str:
        """The target without its features: artifacts of `gfx942` and of `gfx942:xnack+` go together."""
        return self.target.partition(":")[0]


class ArtifactFilters(msgspec.Struct, frozen=True, kw_only=True):
    """The selection of a run's artifacts; artifacts for every target are always included.

    Attributes:
        groups: artifact groups: families, perhaps with a variant (`gfx94X-dcgpu-asan`). Of a family whose
            artifacts are split by target, those of its targets are meant.
        targets: single targets.
        include: patterns, one of which a name must match anywhere; none takes all.
        exclude: patterns that a name must not match.
    """

    groups: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


def list_artifacts(store: Store) -> tuple[Artifact, ...]:
    """Every artifact at the top of a store, by name; each once, in the better compression."""
    newest: dict[str, Artifact] = {}
    objects = [each for each in store.list("") if "/" not in each.key]
    for ending in _ENDINGS:
        for artifact in filter(None, (_artifact(each, ending) for each in objects)):
            newest.setdefault(artifact.name, artifact)
    return tuple(newest[name] for name in sorted(newest))


def choose(artifacts: Collection[Artifact], filters: ArtifactFilters, *, where: str) -> tuple[Artifact, ...]:
    """Choose the wanted artifacts.

    Args:
        artifacts: all artifacts of the run.
        filters: the selection.
        where: the name of the store in errors.

    Raises:
        UsageError: there are none, none for a group or a target, or none that a pattern matches: whoever asks
            for code of a GPU does not want a tree without it.
    """
    if not artifacts:
        raise UsageError(
            f"there are no artifacts at {where}",
            tip="they are called NAME_COMPONENT_TARGET.tar.zst or .tar.xz: check the run and the platform",
        )
    wishes = {
        **{name: {name, *gpu.families().get(name, ())} for name in filters.groups},
        **{name: {name} for name in filters.targets},
    }
    processors = {a.processor for a in artifacts} - {GENERIC}
    available = {a.target for a in artifacts} | processors
    for name, meant in wishes.items():
        if not meant & available:
            raise UsageError(
                f"{where} has nothing for {name}",
                tip="it has artifacts for "
                f"{', '.join(sorted(processors)) or 'every target, and for none alone'}",
            )
    meant = set[str]().union(*wishes.values())
    chosen = [a for a in artifacts if not wishes or a.target == GENERIC or {a.target, a.processor} & meant]
    return _matching(chosen, filters, where=where)


def _matching(artifacts: list[Artifact], filters: ArtifactFilters, *, where: str) -> tuple[Artifact, ...]:
    include, exclude = _patterns(filters.include), _patterns(filters.exclude)
    for pattern in include:
        if not any(pattern.search(a.key) for a in artifacts):
            names = wording.some([a.name for a in artifacts])
            raise UsageError(f"no artifact at {where} matches {pattern.pattern!r}", tip=f"there are {names}")
    matching = tuple(
        a
        for a in artifacts
        if (not include or any(pattern.search(a.key) for pattern in include))
        and not any(pattern.search(a.key) for pattern in exclude)
    )
    if not matching:
        raise UsageError(f"every artifact at {where} is excluded", tip="take a pattern out of --exclude")
    return matching


def _patterns(texts: Iterable[str]) -> list[re.Pattern[str]]:
    try:
        return [re.compile(text) for text in texts]
    except re.error as error:
        raise UsageError(f"{str(error.pattern)[:80]!r} is not a regular expression: {error}") from error


def _artifact(listed_object: ListedObject, ending: str) -> Artifact | None:
    name = listed_object.key.removesuffix(ending)
    match = ARTIFACT.fullmatch(name)
    if match is None or name == listed_object.key or name.startswith("."):
        return None
    return Artifact(name=name, target=match["target"], key=listed_object.key, size=listed_object.size)

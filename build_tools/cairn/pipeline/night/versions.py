"""Give each wheel of a night a version that no other manifest has, before anything is built.

A version may stand still while something else of a night changes: a commit, a pin, the recipe. Its wheels are
a different build then, and pip would mix them with the earlier ones. So the first freeze claims each version
for its manifest, in `nights/_versions`, by a write that never replaces. The next manifest marks its versions
(`rocm_version.again`). Claims stay for ever, like the names in the ledger: no later build gets the version of
a set that was rolled back or yanked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from packaging.utils import canonicalize_name, canonicalize_version
from packaging.version import Version

from cairn.errors import StoreError
from cairn.matrix.legs import Leg
from cairn.output import Progress, console, silent, wording
from cairn.pipeline.night import plan
from cairn.pipeline.night.plan import NightPlan
from cairn.release.index import keys
from cairn.release.index.generation import MIRRORED, version_of
from cairn.release.index.reading import read_current
from cairn.release.index.snapshot import Index
from cairn.release.ledger import Ledger
from cairn.sources.manifest.manifest import Manifest, ProjectSource
from cairn.stack import Stack
from cairn.store.protocol import Store, attempts_at
from cairn.wheels.metadata import rocm_version

_UNKNOWN = "unknown"  # stands for the base of a version that only the built wheel tells


def settle(
    store: Store, stack: Stack, frozen: Manifest, legs: Sequence[Leg], *, dry_run: bool = False
) -> Manifest:
    """Return a manifest with versions of its own, and claim them; a dry run claims nothing.

    A project without a version file counts by its suffix alone: which of two commits have the same version,
    only their builds would tell.

    Raises:
        StoreError: other nights were first too many times.
    """
    suffixes = tuple(dict.fromkeys(plan.version_suffix(stack, frozen, plan.targets_of(leg)) for leg in legs))
    scopes = {keys.scope_of(plan.index_of(leg, keys.STAGING)) for leg in legs}
    for _ in attempts_at("the versions of nights"):
        owners = {source.name: _owners(store, source, suffixes, scopes) for source in frozen.projects}
        latest = {name: max(numbers) for name, numbers in owners.items() if numbers}
        settled = frozen.numbered(latest)
        # They are its own where an earlier freeze was killed, or one of the same sources runs beside it.
        if any(owners[name][number] != settled.digest() for name, number in latest.items()):
            settled = frozen.numbered({name: number + 1 for name, number in latest.items()})
        if dry_run or _claim(store, settled, suffixes):
            break
    for source in settled.projects:
        suffix = rocm_version.again(suffixes[0], source.again)
        text = f"may have its version, which ends in {suffix} this night"
        if source.version:
            text = f"has {source.version}{suffixes[0]}; this night makes {source.version}{suffix}"
        if source.again:
            console.current().info(f"{source.name}: an earlier manifest {text}")
    return settled


def _version(source: ProjectSource, suffix: str, number: int) -> str:
    return rocm_version.again((source.version or _UNKNOWN) + suffix, number)


def _claim_key(source: ProjectSource, suffix: str, number: int) -> str:
    # `2.9` and `2.9.0` are one version to pip (PEP 440), so that they have one claim.
    version = canonicalize_version(_version(source, suffix, number))
    return keys.claim_key(canonicalize_name(source.distribution), version)


def _owners(store: Store, source: ProjectSource, suffixes: Sequence[str], scopes: set[str]) -> dict[int, str]:
    """Return the manifest of each build of a project's version, by number; empty where it is not known.

    Freeze claims the number after the last one, so that claims follow the published builds without a gap. A
    claim beyond a gap is nobody's build: whoever wrote `.again.999999999` would end the numbers.
    """
    owners: dict[int, str] = {}
    last = -1
    project = canonicalize_name(source.distribution)
    for suffix in suffixes:
        first = _claim_key(source, suffix, 0)
        for item in store.list(first):
            before, number = rocm_version.without_again(item.key)
            if before == first:
                owner = store.read(item.key).data.decode("ascii", "replace")
                owners[number] = owner if owners.get(number, owner) == owner else ""
    for name in sorted(Ledger(store).published(project, scopes)):
        before, number = rocm_version.without_again(str(Version(version_of(name))))
        if any(_is_of(before, source, suffix) for suffix in suffixes):
            owners.setdefault(number, "")
            last = max(last, number)
    while last + 1 in owners:
        last += 1
    return {number: owner for number, owner in owners.items() if number <= last}


def _is_of(version: str, source: ProjectSource, suffix: str) -> bool:
    """Whether a version is the one that a project's sources give with a suffix."""
    if source.version is not None:
        return Version(version) == Version(source.version + suffix)
    local, ours = Version(version).local or "", Version(f"0{suffix}").local or ""
    return not ours or f".{local}".endswith(f".{ours}")


def _claim(store: Store, frozen: Manifest, suffixes: Sequence[str]) -> bool:
    """Claim the versions of a manifest; false if one is another manifest's by now."""
    owner = frozen.digest().encode()
    for source in frozen.projects:
        for suffix in suffixes:
            key = _claim_key(source, suffix, source.again)
            if not store.write_if(key, owner, etag=None) and store.read(key).data != owner:
                return False
    return True


def refuse(store: Store, night: NightPlan, stack: Stack, frozen: Manifest, say: Progress = silent) -> None:
    """Refuse a night where an index would refuse the versions of every leg's wheels.

    Of names that no index lists any more, such as after a rollback, the ledger is asked at staging alone.

    Raises:
        StoreError: for each leg, an index has a version of a different manifest, or a higher one of the line.
    """
    by_leg: dict[str, list[str]] = {}
    # Legs of different Pythons have the same indexes and versions.
    problems_of: dict[tuple[str, str], list[str]] = {}
    for leg in night.legs:
        versions = _versions_of(leg, stack, frozen)
        for channel in _channels_of(leg, night):
            name = plan.index_of(leg, channel)
            key = name, str(versions)
            if key not in problems_of:
                try:
                    problems_of[key] = list(_taken(Index(store, name), versions, frozen))
                except StoreError as error:  # a damaged index holds up the legs of that index alone
                    problems_of[key] = [str(error)]
            by_leg.setdefault(leg.name, []).extend(problems_of[key])
    problems = dict.fromkeys(problem for texts in by_leg.values() for problem in texts)
    if problems and all(by_leg.values()):
        raise StoreError(
            f"wheels of this night could not be published: {'; '.join(problems)}",
            tip="wait for a new version of the sources or of ROCm, or take that manifest again (--like)",
        )
    for name, texts in by_leg.items():
        if texts:
            say(f"{name} will not get through: {'; '.join(texts)}")


def _channels_of(leg: Leg, night: NightPlan) -> tuple[str, ...]:
    """Return the channels that a leg's set goes to if nothing fails."""
    if leg.ends == "staged" or night.is_open:
        return (night.staging,)
    is_untested = leg.ends == "untested" and not leg.bypass_tests
    return night.staging, keys.UNTESTED if is_untested else night.release


def _versions_of(leg: Leg, stack: Stack, frozen: Manifest) -> dict[str, str]:
    """Return the version of each distribution of a leg that is known before it is built."""
    suffix = plan.version_suffix(stack, frozen, plan.targets_of(leg))
    return {
        source.distribution: _version(source, suffix, source.again)
        for source in frozen.projects
        if source.version
    }


def _taken(index: Index, versions: Mapping[str, str], frozen: Manifest) -> Iterator[str]:
    current = read_current(index)
    for name, version in versions.items():
        others = [file for file in current.project(name).files if file.build != frozen.digest()]
        if any(file.build == MIRRORED for file in others):
            yield f"{index.name} has {name} from a mirror"
        elif same := [file for file in others if Version(file.version) == Version(version)]:
            build = wording.short_id(same[0].build)
            yield f"{index.name} has {name} {same[0].version} from the manifest {build}"
        elif keys.is_gated(index.name):
            line = Version(version).release[:2]
            have = {f.version for f in others if f.yanked is None and Version(f.version).release[:2] == line}
            if problem := rocm_version.sorts_above(version, have):
                yield f"{index.name}: {name} {problem}"

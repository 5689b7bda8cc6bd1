"""Choose the versions of a night: the newest ROCm SDK, and wheels that no other manifest has.

The SDK is the newest that the indexes of all families have.

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

from cairn.concurrency import side_by_side
from cairn.errors import NetworkError, StoreError, UsageError
from cairn.matrix.legs import Build, Leg, builds_of
from cairn.output import Progress, console, silent, wording
from cairn.pipeline.night import plan
from cairn.pipeline.night.plan import NightPlan
from cairn.release.index import keys
from cairn.release.index.generation import MIRRORED, version_of
from cairn.release.index.reading import read_current
from cairn.release.index.snapshot import Index
from cairn.release.ledger import Ledger
from cairn.release.publish import mirror_lock, sdk_packages
from cairn.release.publish.compatibility import Platform
from cairn.sources.manifest.manifest import Manifest, ProjectSource
from cairn.stack import Stack
from cairn.store.protocol import Store, attempts_at
from cairn.targets import CPU
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


_AT_ONCE = 4  # indexes


def with_rocm(legs: Sequence[Leg]) -> list[Build]:
    """Return the builds of legs that need a ROCm SDK."""
    return [build for build in builds_of(legs) if plan.targets_of(build) != (CPU,)]


def newest_sdk(
    builds: Sequence[Build], index_url: str, say: Progress, reviewed: frozenset[Version] | None
) -> str:
    """Return the newest version of the SDK that there is for every family.

    Families are published one after another: in the small hours, the index of one may lack what others have.

    Args:
        builds: of the families.
        index_url: the index, with `{family}` for the family.
        say: told of a family that has a newer one.
        reviewed: the only versions that count; None for all.

    Raises:
        NetworkError: there is none.
    """
    urls = {family: sdk_url(index_url, build) for build in builds for family in build.families}
    distinct = tuple(dict.fromkeys(urls.values()))
    say(f"looking for the newest ROCm SDK of {', '.join(urls)}")
    every = side_by_side(
        lambda url: _whole_sdk(url, [each for each in builds if sdk_url(index_url, each) == url]),
        distinct,
        jobs=_AT_ONCE,
    )
    by_url = {
        url: has if reviewed is None else has & reviewed for url, has in zip(distinct, every, strict=True)
    }
    if lacking := [url for url, has in by_url.items() if not has]:
        raise NetworkError(
            f"{lacking[0]} has no version of ROCm that was reviewed", tip=f"lock one: {mirror_lock.LOCK_SDK}"
        )
    by_family = {family: by_url[url] for family, url in urls.items()}
    of_each = {family: max(versions) for family, versions in by_family.items()}
    common = frozenset.intersection(*by_family.values())
    if not common:
        each = ", ".join(f"{family} has {version}" for family, version in of_each.items())
        raise NetworkError(
            f"no version of the ROCm SDK is there for every family: {each}",
            tip="take fewer families (cairn matrix --families), or name the version: --rocm-version",
        )
    chosen = max(common)
    waiting = max(frozenset.intersection(*every), default=chosen)
    if reviewed is not None and waiting > chosen:
        console.current().warn(
            f"ROCm {waiting} waits for review, and this night takes {chosen}: {mirror_lock.LOCK_SDK}"
        )
    for family, version in of_each.items():
        if version > chosen:
            others = [name for name, versions in by_family.items() if version not in versions]
            say(f"{family} has ROCm {version}, which {others[0]} lacks: all take {chosen}")
    return str(chosen)


def sdk_url(url: str, build: Build) -> str:
    """Return the index of ROCm packages for a build, with `{family}` in its URL replaced.

    Raises:
        UsageError: the URL is of one family, and the build is for all.
    """
    if build.split and "{family}" in url:
        raise UsageError(
            f"{url} is the index of one family, and {build.name} needs a ROCm SDK that serves every target",
            tip="name an index that has one, without {family}, or take build_together out of matrix.toml",
        )
    return url.replace("{family}", build.families[0])


def sdk_lacks(url: str, builds: Sequence[Build]) -> dict[Version, tuple[str, ...]]:
    """Return the versions of ROCm that an index has, with the packages that builds would miss of each."""
    return sdk_packages.lacks_by_version(
        url, [(Platform(python=build.python, tag=build.platform), build.families) for build in builds]
    )


def _whole_sdk(url: str, builds: Sequence[Build]) -> frozenset[Version]:
    """Return the versions of the SDK that an index has whole, and warn of newer ones that it has in part."""
    by_version = sdk_lacks(url, builds)
    if not by_version:
        raise NetworkError(f"{url} has no rocm package", tip="name another index: --rocm-index-url URL")
    for text in sdk_packages.choose_version({url: by_version}, None)[1]:
        console.current().warn(f"passed over: {text}")
    return frozenset(version for version, missing in by_version.items() if not missing)

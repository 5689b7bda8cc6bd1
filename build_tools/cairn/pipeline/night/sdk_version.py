"""Which ROCm SDK a night is built with: the newest that the indexes of all its families have."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.version import Version

from cairn.concurrency import side_by_side
from cairn.errors import NetworkError, UsageError
from cairn.matrix.legs import Build, Leg, builds_of
from cairn.output import Progress, console
from cairn.pipeline.night import plan
from cairn.release.publish import mirror_lock, sdk_packages
from cairn.release.publish.compatibility import Platform
from cairn.targets import CPU

_AT_ONCE = 4  # indexes


def with_rocm(legs: Sequence[Leg]) -> list[Build]:
    """Return the builds of legs that need a ROCm SDK."""
    return [build for build in builds_of(legs) if plan.targets_of(build) != (CPU,)]


def newest(
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
        lambda url: _whole(url, [each for each in builds if sdk_url(index_url, each) == url]),
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


def lacks(url: str, builds: Sequence[Build]) -> dict[Version, tuple[str, ...]]:
    """Return the versions of ROCm that an index has, with the packages that builds would miss of each."""
    return sdk_packages.lacks_by_version(
        url, [(Platform(python=build.python, tag=build.platform), build.families) for build in builds]
    )


def _whole(url: str, builds: Sequence[Build]) -> frozenset[Version]:
    """Return the versions of the SDK that an index has whole, and warn of newer ones that it has in part."""
    by_version = lacks(url, builds)
    if not by_version:
        raise NetworkError(f"{url} has no rocm package", tip="name another index: --rocm-index-url URL")
    for text in sdk_packages.choose_version({url: by_version}, None)[1]:
        console.current().warn(f"passed over: {text}")
    return frozenset(version for version, missing in by_version.items() if not missing)

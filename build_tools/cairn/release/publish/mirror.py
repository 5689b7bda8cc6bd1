"""Third-party dependencies, fetched once and kept by hash, so that `--index-url` alone works.

`mirror` fetches what distributions need and an index lacks; `sync` fetches what a lock names, and `problems`
says where index and lock differ. pip fetches, from the index that it is set up for: `package_index` says why,
and what else of that set-up it is kept from.
"""

from __future__ import annotations

import collections
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import Version

from cairn import extras, files, package_index, process
from cairn.errors import NetworkError, ProcessError, StoreError
from cairn.release.index import keys
from cairn.release.index.commit import recover
from cairn.release.index.generation import MIRRORED
from cairn.release.index.reading import read_current
from cairn.release.index.snapshot import Index, Snapshot
from cairn.release.publish import distribution, mirror_lock, rules
from cairn.release.publish.compatibility import Platform
from cairn.release.publish.distribution import Dist
from cairn.release.publish.files import Published, publish_dists
from cairn.release.publish.mirror_lock import LockedFile, MirrorLock, is_of_sdk
from cairn.release.publish.resolve import Missing, closure, parsed
from cairn.stack import Stack
from cairn.store import transfer
from cairn.store.protocol import Store
from cairn.wheels.metadata.wheel_info import parse_file_name, platforms_of

_ROUNDS = 5  # of fetching what is missing; one does unless an extra of a dependency brings more
_TIMEOUT = 3600.0  # seconds


def mirror(
    store: Store,
    index: str,
    *,
    dists: Sequence[Path] = (),
    requirements: Sequence[str] = (),
    publish_sdk: Callable[[Sequence[Missing]], Published] | None = None,
) -> Published:
    """Fetch the missing requirements of distributions with pip, as wheels, and publish them.

    pip checks each file against the hash that its index gives; from then on the bytes are kept under
    their sha256. What is in the index already is never fetched again.

    Args:
        store: where the index lives.
        index: its name.
        dists: wheels and sdists, published or not, with every extra of theirs.
        requirements: further ones; exact ones are fetched exactly.
        publish_sdk: publishes the files of the ROCm SDK that meet these requirements; None if the index must
            have them already.

    Raises:
        GateError: sets, and what they need, come into the index through the gate alone.
        UsageError: a requirement cannot be read.
        NetworkError: pip cannot find or fetch one, or may not; the message names it.
    """
    added: list[Published] = []
    while lacking := missing(store, index, dists=dists, requirements=requirements):
        of_sdk = [item for item in lacking if is_of_sdk(canonicalize_name(parsed(item.requirement).name))]
        if of_sdk and publish_sdk is None:
            raise NetworkError(
                f"{index} lacks files of the ROCm SDK: {'; '.join(map(str, of_sdk))}",
                tip="no package index is asked for them, since anybody may have taken a name there; publish "
                f"the files that the build installed: cairn index publish FILE … --index {index}",
            )
        # pip takes the file behind an address as it is, and builds what is no wheel.
        if elsewhere := [item for item in lacking if parsed(item.requirement).url is not None]:
            raise StoreError(
                f"a mirror takes files of an index alone: {'; '.join(map(str, elsewhere))}",
                tip="publish it first, or have its user require it by name and version",
            )
        if len(added) == _ROUNDS:
            raise NetworkError(f"still missing after fetching: {'; '.join(map(str, lacking))}")
        if of_sdk and publish_sdk is not None:
            added.append(publish_sdk(of_sdk))
        if others := [item for item in lacking if item not in of_sdk]:
            added.append(_fetch(read_current(Index(store, index)), others))
    recover(Index(store, index))  # a run that died may have published all, and written no page of it
    return Published(added=tuple(entry for published in added for entry in published.added))


def missing(
    store: Store, index: str, *, dists: Sequence[Path] = (), requirements: Sequence[str] = ()
) -> tuple[Missing, ...]:
    """The requirements that `mirror` would fetch, as far as the files in the index tell; raises like it."""
    rules.refuse_gated(index)
    for line in requirements:
        parsed(line)
    roots = tuple(distribution.read(path) for path in dists)
    snapshot = read_current(Index(store, index))
    return closure(snapshot, roots=roots, requirements=requirements, platform=Platform.here()).missing


def sync(
    store: Store,
    index: str,
    lock: MirrorLock,
    *,
    only: Platform | None = None,
    dry_run: bool = False,
) -> tuple[LockedFile, ...]:
    """Publish the files of a lock that an index lacks, fetched from the index that pip is set up for.

    What the store has already, for another of its indexes, is not fetched again. Everything is published in
    one generation, or nothing is.

    Args:
        store: where the index lives.
        index: its name.
        lock: what it is to hold.
        only: leave out what does not fit there; None leaves out nothing.
        dry_run: say what is lacking, and fetch nothing.

    Returns:
        The files that the index lacked.

    Raises:
        GateError: sets, and what they need, come into the index through the gate alone.
        StoreError: the index has other bytes under a name of the lock.
        NetworkError: a file cannot be fetched, or other bytes came; each such file is named.
    """
    rules.refuse_gated(index)
    snapshot = read_current(Index(store, index))
    if wrong := tuple(_other_bytes(lock, snapshot)):
        raise StoreError(
            f"{index} contradicts the lock: {'; '.join(wrong)}",
            tip="a published name never changes its bytes: lock a different version",
        )
    lacking = tuple(f for f in _lacking(lock, snapshot) if only is None or only.takes(f.file_name, None))
    if dry_run:
        return lacking
    if lacking:
        by_name = {file.file_name: file for file in lacking}

        def fetch(names: Collection[str], folder: Path) -> Sequence[Path]:
            return fetched([by_name[name] for name in names], mirror_lock.places(lock), folder)

        publish_by_hash(Index(store, index), {file.file_name: file.sha256 for file in lacking}, fetch)
    else:
        recover(Index(store, index))  # a run that died may have published all, and written no page of it
    return lacking


def publish_by_hash(
    index: Index,
    sha256s: Mapping[str, str],
    fetch: Callable[[Collection[str], Path], Sequence[Path]],
) -> Published:
    """Publish files as mirrored: from the store where it has their bytes, else fetched into a folder.

    Args:
        index: the index.
        sha256s: file name to sha256.
        fetch: fetches files by their names, with these sha256, into a folder.
    """
    store = index.store
    by_key = {
        key: name for name, sha256 in sha256s.items() if store.exists(key := keys.file_key(sha256, name))
    }
    with (
        tempfile.TemporaryDirectory(prefix="cairn-mirror-") as folder,
        transfer.as_files(store, by_key) as stored,
    ):
        # Damaged ones are fetched, and put in their place by publishing.
        intact = {
            by_key[key]: path for key, path in stored.items() if files.sha256_of(path) == sha256s[by_key[key]]
        }
        absent = [name for name in sha256s if name not in intact]
        paths = [*intact.values(), *(fetch(absent, Path(folder)) if absent else ())]
        dists = [distribution.read(path, sha256=sha256s[path.name]) for path in paths]
        return publish_dists(index, dists, "mirror", build=MIRRORED)


def problems(lock: MirrorLock, stack: Stack, snapshot: Snapshot) -> tuple[str, ...]:
    """The problems of a lock: gaps in its stack, files the index lacks, requirements that do not resolve.

    Args:
        lock: of the mirror.
        stack: whose Pythons and platforms it must cover.
        snapshot: the index.
    """
    index, covered = snapshot.index.name, mirror_lock.places(lock)
    sentences = [
        f"the lock does not cover {place}: cairn index mirror lock --stack {stack.folder}"
        for place in mirror_lock.places_of(stack)
        if place not in covered
    ]
    sentences += _other_bytes(lock, snapshot)
    sentences += [f"{index} lacks {f.file_name}: cairn index mirror sync" for f in _lacking(lock, snapshot)]
    if not sentences:
        # With every file there, an index that does not resolve means that the lock was edited.
        for platform in mirror_lock.places(lock):
            lines = tuple(mirror_lock.lines_for(lock.asked, platform))
            chosen = closure(snapshot, roots=(), requirements=lines, platform=platform)
            sentences += [f"{platform}: {index} lacks {item}" for item in chosen.missing]
            sentences += [f"{platform}: {item}" for item in mirror_lock.not_in(lock, chosen.files)]
    return tuple(sentences)


def _fetch(snapshot: Snapshot, lacking: Sequence[Missing]) -> Published:
    """Have pip download missing requirements and their dependencies, and publish those the index lacks."""
    with tempfile.TemporaryDirectory(prefix="cairn-mirror-") as folder:
        words = ["--only-binary", ":all:", "--dest", folder]
        words += sorted({item.requirement for item in lacking})
        if reason := _pip_download(words, package_index.read_pip_settings().pip_environment()):
            raise NetworkError(
                f"pip cannot fetch what is missing: {'; '.join(map(str, lacking))}. {reason[:500]}",
                tip="see pip config list for the index that it asks; publish our own distributions first",
            )
        fetched = tuple(distribution.read(path) for path in sorted(Path(folder).iterdir()))
        new = [item for item in fetched if _is_new(item, snapshot)]
        return publish_dists(snapshot.index, new, "mirror", build=MIRRORED)


def _is_new(dist: Dist, snapshot: Snapshot) -> bool:
    """Whether a mirror adds this file: a version that was published here stays as it is.

    A version that was mirrored grows by files for other Pythons and platforms.
    """
    files_there = snapshot.project(dist.name).files
    published = {file.version for file in files_there if file.build != MIRRORED}
    return dist.version not in published and dist.path.name not in {file.filename for file in files_there}


def _other_bytes(lock: MirrorLock, snapshot: Snapshot) -> Iterator[str]:
    for file in lock.files:
        entry = snapshot.project(file.name).file(file.file_name)
        if entry is not None and entry.sha256 != file.sha256:
            yield f"{file.file_name} is there with sha256 {entry.sha256}"


def _lacking(lock: MirrorLock, snapshot: Snapshot) -> Iterator[LockedFile]:
    return (file for file in lock.files if snapshot.project(file.name).file(file.file_name) is None)


def fetched(absent: Sequence[LockedFile], platforms: Sequence[Platform], folder: Path) -> tuple[Path, ...]:
    """Download files and check that they have exactly the bytes that the lock names."""
    wrong: list[str] = []
    env = package_index.read_pip_settings().pip_environment()
    for number, (platform, batch) in enumerate(_batches(absent, platforms)):
        target = folder / str(number)
        message = _download(batch, platform, target, env)
        for file in batch:
            path, reason = target / file.file_name, message
            if message is not None and len(batch) > 1:  # pip ends at its first problem, and we name them all
                reason = _download([file], platform, target, env)
            if not path.is_file():
                wrong.append(f"{file.file_name}: {reason or 'pip fetched something else'}")
            elif files.sha256_of(path) != file.sha256:
                wrong.append(f"{file.file_name}: other bytes came than the lock names")
    if wrong:
        raise NetworkError(
            f"not fetched: {'; '.join(wrong)}",
            tip="where the bytes differ, find out why before you lock others",
        )
    return tuple(sorted(folder.glob("*/*.whl")))


def _batches(
    absent: Sequence[LockedFile], platforms: Sequence[Platform]
) -> list[tuple[Platform, list[LockedFile]]]:
    """Group files so that one run of pip can fetch a group: one platform, and one file of each project."""
    newest_first = sorted(platforms, key=lambda platform: Version(platform.python), reverse=True)
    batches: dict[tuple[Platform, int], list[LockedFile]] = collections.defaultdict(list)
    counts: collections.Counter[tuple[Platform, str]] = collections.Counter()
    for file in absent:
        place = next((p for p in newest_first if p.takes(file.file_name, None)), None)
        if place is None:
            raise StoreError(
                f"{file.file_name} fits no Python and platform of the lock", tip="make the lock again"
            )
        batches[place, counts[place, file.name]].append(file)
        counts[place, file.name] += 1
    return [(place, batch) for (place, _), batch in batches.items()]


def _download(
    batch: Sequence[LockedFile], platform: Platform, target: Path, env: Mapping[str, str]
) -> str | None:
    """Have pip fetch these files and no others; return its errors, or None."""
    target.mkdir(exist_ok=True)
    requirements = target / "requirements.txt"
    lines = (f"{file.name}=={file.version} --hash=sha256:{file.sha256}\n" for file in batch)
    requirements.write_text("".join(lines), encoding="utf-8")
    tags = {tag for file in batch for tag in platforms_of(parse_file_name(file.file_name).tags)}
    # The hash leaves one file of each version. Its tags must still be among those that pip takes, and its
    # Requires-Python is a matter of who installs it.
    words = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--ignore-requires-python"]
    words += ["--implementation", "cp", "--python-version", platform.python]
    words += ["--abi", f"cp{platform.python.replace('.', '')}"]
    words += [word for tag in sorted(tags) for word in ("--platform", tag)]
    words += ["--dest", str(target), "--requirement", str(requirements)]
    reason = _pip_download(words, env)
    return reason[:300] if reason else None


def _pip_download(words: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Run `pip download`; return the errors that it printed, or None."""
    command = [*extras.pip(), "download", "--no-input", "--disable-pip-version-check"]
    try:
        process.run([*command, "--quiet", *words], env=env, timeout=_TIMEOUT, confined=False)
    except ProcessError as error:
        errors = (line for line in error.output.splitlines() if line.startswith("ERROR"))
        return " ".join(text.removeprefix("ERROR: ") for text in errors) or str(error)
    return None

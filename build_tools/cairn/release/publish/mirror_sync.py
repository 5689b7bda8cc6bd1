"""Making an index hold what the lock of its mirror names, and saying where the two differ."""

from __future__ import annotations

import collections
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packaging.version import Version

from cairn import files, pip_settings, process
from cairn.errors import NetworkError, ProcessError, StoreError
from cairn.release.index import keys
from cairn.release.index.generation import MIRRORED
from cairn.release.index.snapshot import Index, Snapshot
from cairn.release.publish import distribution, mirror_lock, rules
from cairn.release.publish.compatibility import Platform
from cairn.release.publish.files import publish_dists
from cairn.release.publish.mirror_lock import LockedFile, MirrorLock
from cairn.release.publish.resolve import closure
from cairn.stack import Stack
from cairn.store import transfer
from cairn.store.protocol import Store
from cairn.wheels.metadata.wheel_info import parse_file_name, platforms_of

_TIMEOUT = 3600.0  # seconds


def sync(
    store: Store,
    index: str,
    lock: MirrorLock,
    *,
    only: Platform | None = None,
    dry_run: bool = False,
) -> tuple[LockedFile, ...]:
    """Publish what a lock names and an index lacks, fetched from the index that pip is set up for.

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
    snapshot = Index(store, index).load()
    if wrong := tuple(_other_bytes(lock, snapshot)):
        raise StoreError(
            f"{index} contradicts the lock: {'; '.join(wrong)}",
            tip="a published name never changes its bytes: lock a different version",
        )
    lacking = tuple(f for f in _lacking(lock, snapshot) if only is None or only.takes(f.file_name, None))
    if dry_run or not lacking:
        return lacking
    by_key = {
        key: file for file in lacking if store.exists(key := keys.file_key(file.sha256, file.file_name))
    }
    with (
        tempfile.TemporaryDirectory(prefix="cairn-mirror-") as folder,
        transfer.as_files(store, by_key) as stored,
    ):
        # Damaged ones are fetched, and put in their place by publishing.
        intact = {
            by_key[key]: path for key, path in stored.items() if files.sha256_of(path) == by_key[key].sha256
        }
        missing = [file for file in lacking if file not in intact]
        paths = [*intact.values(), *_fetched(missing, mirror_lock.places(lock), Path(folder))]
        dists = [distribution.read(path) for path in paths]
        publish_dists(Index(store, index), dists, "mirror", build=MIRRORED)
    return lacking


def problems(lock: MirrorLock, stack: Stack, snapshot: Snapshot) -> tuple[str, ...]:
    """Where a lock does not cover its stack, an index does not hold the lock, or the two do not suffice.

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


def _other_bytes(lock: MirrorLock, snapshot: Snapshot) -> Iterator[str]:
    for file in lock.files:
        entry = snapshot.project(file.name).file(file.file_name)
        if entry is not None and entry.sha256 != file.sha256:
            yield f"{file.file_name} is there with sha256 {entry.sha256}"


def _lacking(lock: MirrorLock, snapshot: Snapshot) -> Iterator[LockedFile]:
    return (file for file in lock.files if snapshot.project(file.name).file(file.file_name) is None)


def _fetched(missing: Sequence[LockedFile], platforms: Sequence[Platform], folder: Path) -> tuple[Path, ...]:
    """Files with exactly the bytes that the lock names."""
    wrong: list[str] = []
    env = pip_settings.read().pip_environment()
    for number, (platform, batch) in enumerate(_batches(missing, platforms)):
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
    missing: Sequence[LockedFile], platforms: Sequence[Platform]
) -> list[tuple[Platform, list[LockedFile]]]:
    """The files as one run of pip each can fetch them: for one platform, and one file of a project."""
    newest_first = sorted(platforms, key=lambda platform: Version(platform.python), reverse=True)
    batches: dict[tuple[Platform, int], list[LockedFile]] = collections.defaultdict(list)
    counts: collections.Counter[tuple[Platform, str]] = collections.Counter()
    for file in missing:
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
    """Have pip fetch these files and no others; what it said where it could not."""
    target.mkdir(exist_ok=True)
    requirements = target / "requirements.txt"
    lines = (f"{file.name}=={file.version} --hash=sha256:{file.sha256}\n" for file in batch)
    requirements.write_text("".join(lines), encoding="utf-8")
    tags = {tag for file in batch for tag in platforms_of(parse_file_name(file.file_name).tags)}
    # The hash leaves one file of each version. Its tags must still be among those that pip takes, and its
    # Requires-Python is a matter of who installs it.
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-input",
        "--disable-pip-version-check",
        "--quiet",
    ]
    command += ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--ignore-requires-python"]
    command += ["--implementation", "cp", "--python-version", platform.python]
    command += ["--abi", f"cp{platform.python.replace('.', '')}"]
    command += [word for tag in sorted(tags) for word in ("--platform", tag)]
    try:
        process.run(
            [*command, "--dest", str(target), "--requirement", str(requirements)], env=env, timeout=_TIMEOUT
        )
    except ProcessError as error:
        errors = (line for line in error.output.splitlines() if line.startswith("ERROR"))
        return " ".join(text.removeprefix("ERROR: ") for text in errors)[:300] or str(error)
    return None

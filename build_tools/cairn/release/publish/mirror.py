"""Third-party dependencies, fetched once and kept by hash, so that `--index-url` alone works."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cairn import process
from cairn.errors import NetworkError, ProcessError
from cairn.release.index.snapshot import Channel
from cairn.release.publish import distribution, rules
from cairn.release.publish.distribution import Dist
from cairn.release.publish.files import Published, publish
from cairn.release.publish.resolve import Missing, Platform, closure, parsed
from cairn.store.protocol import Store

_ROUNDS = 5  # of asking what is still missing; one does unless an extra of a dependency brings more
_TIMEOUT = 3600.0  # seconds


def mirror(
    store: Store, channel: str, *, dists: Sequence[Path] = (), requirements: Sequence[str] = ()
) -> Published:
    """Publish what distributions need and a channel lacks, as wheels, from the index that pip is set up for.

    pip checks each file against the hash that its index gives; from then on the bytes are kept under
    their sha256. What is in the channel already is never fetched again.

    Args:
        store: where the channel lives.
        channel: its name.
        dists: wheels and sdists, published or not; every extra of theirs counts.
        requirements: further ones; exact ones are fetched exactly.

    Raises:
        GateError: the channel is one that only the gate puts something into, what sets need included.
        UsageError: a requirement cannot be read.
        NetworkError: pip cannot find or fetch one; the message names it.
    """
    rules.refuse_gated(channel)
    for line in requirements:
        parsed(line)
    roots = tuple(distribution.read(path) for path in dists)
    added: list[Published] = []
    missing = _missing(store, channel, roots, requirements)
    for _ in range(_ROUNDS):
        if not missing:
            break
        added.append(_fetch(store, channel, missing))
        missing = _missing(store, channel, roots, requirements)
    if missing:
        raise NetworkError(f"still missing after fetching: {'; '.join(map(str, missing))}")
    return Published(added=tuple(entry for published in added for entry in published.added))


def _missing(
    store: Store, channel: str, roots: Sequence[Dist], requirements: Sequence[str]
) -> tuple[Missing, ...]:
    snapshot = Channel(store, channel).load()
    found = closure(snapshot, roots=roots, requirements=requirements, platform=Platform.here())
    return found.missing


def _fetch(store: Store, channel: str, missing: Sequence[Missing]) -> Published:
    wanted = sorted({item.requirement for item in missing})
    with tempfile.TemporaryDirectory(prefix="cairn-mirror-") as folder:
        try:
            process.run(
                [
                    *(sys.executable, "-m", "pip", "download", "--no-input", "--disable-pip-version-check"),
                    *("--only-binary", ":all:", "--dest", folder, "--quiet"),
                    *wanted,
                ],
                timeout=_TIMEOUT,
            )
        except ProcessError as error:
            who = "; ".join(map(str, missing))
            raise NetworkError(
                f"pip cannot fetch what is missing: {who}. {_reason(error)}",
                tip="see pip config list for the index that it asks; publish our own distributions first",
            ) from error
        return publish(store, channel, _new(store, channel, sorted(Path(folder).iterdir())))


def _new(store: Store, channel: str, fetched: Sequence[Path]) -> tuple[Path, ...]:
    """Those whose project and version the channel lacks: what it has stays as it is."""
    snapshot = Channel(store, channel).load()
    found = []
    for path in fetched:
        item = distribution.read(path)
        if item.version not in {file.version for file in snapshot.project(item.name).files}:
            found.append(path)
    return tuple(found)


def _reason(error: ProcessError) -> str:
    lines = [line.removeprefix("ERROR: ") for line in error.output.splitlines() if line.startswith("ERROR")]
    return " ".join(lines)[:500] or str(error)

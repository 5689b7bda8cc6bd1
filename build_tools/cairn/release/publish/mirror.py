"""Third-party dependencies, fetched once and kept by hash, so that `--index-url` alone works.

pip fetches them, from the index that it is set up for: `pip_settings` says why, and what else of that set-up
it is kept from.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from cairn import pip_settings, process
from cairn.errors import NetworkError, ProcessError
from cairn.release.index.generation import MIRRORED
from cairn.release.index.snapshot import Index, Snapshot
from cairn.release.publish import distribution, rules
from cairn.release.publish.compatibility import Platform
from cairn.release.publish.files import Published, publish_dists
from cairn.release.publish.mirror_lock import is_of_sdk
from cairn.release.publish.resolve import Missing, closure, parsed
from cairn.store.protocol import Store

_ROUNDS = 5  # of fetching what is missing; one does unless an extra of a dependency brings more
_TIMEOUT = 3600.0  # seconds


def mirror(
    store: Store, index: str, *, dists: Sequence[Path] = (), requirements: Sequence[str] = ()
) -> Published:
    """Publish what distributions need and an index lacks, as wheels, from the index that pip is set up for.

    pip checks each file against the hash that its index gives; from then on the bytes are kept under
    their sha256. What is in the index already is never fetched again.

    Args:
        store: where the index lives.
        index: its name.
        dists: wheels and sdists, published or not, with every extra of theirs.
        requirements: further ones; exact ones are fetched exactly.

    Raises:
        GateError: sets, and what they need, come into the index through the gate alone.
        UsageError: a requirement cannot be read.
        NetworkError: pip cannot find or fetch one, or may not; the message names it.
    """
    added: list[Published] = []
    while lacking := missing(store, index, dists=dists, requirements=requirements):
        if own := [item for item in lacking if is_of_sdk(canonicalize_name(parsed(item.requirement).name))]:
            raise NetworkError(
                f"the ROCm SDK is fetched from no other index: {'; '.join(map(str, own))}",
                tip="publish it first: whoever registers its names elsewhere would get into the mirror",
            )
        if len(added) == _ROUNDS:
            raise NetworkError(f"still missing after fetching: {'; '.join(map(str, lacking))}")
        added.append(_fetch(Index(store, index).load(), lacking))
    return Published(added=tuple(entry for published in added for entry in published.added))


def missing(
    store: Store, index: str, *, dists: Sequence[Path] = (), requirements: Sequence[str] = ()
) -> tuple[Missing, ...]:
    """What `mirror` would have to fetch, as far as the files that are there tell; raises like it."""
    rules.refuse_gated(index)
    for line in requirements:
        parsed(line)
    roots = tuple(distribution.read(path) for path in dists)
    snapshot = Index(store, index).load()
    return closure(snapshot, roots=roots, requirements=requirements, platform=Platform.here()).missing


def _fetch(snapshot: Snapshot, lacking: Sequence[Missing]) -> Published:
    """Have pip download what is missing and what that needs, and publish what the index lacks of it."""
    with tempfile.TemporaryDirectory(prefix="cairn-mirror-") as folder:
        try:
            process.run(
                [
                    *(sys.executable, "-m", "pip", "download", "--no-input", "--disable-pip-version-check"),
                    *("--only-binary", ":all:", "--dest", folder, "--quiet"),
                    *sorted({item.requirement for item in lacking}),
                ],
                env=pip_settings.read().pip_environment(),
                timeout=_TIMEOUT,
            )
        except ProcessError as error:
            errors = (text for text in error.output.splitlines() if text.startswith("ERROR"))
            reason = " ".join(text.removeprefix("ERROR: ") for text in errors)[:500] or str(error)
            raise NetworkError(
                f"pip cannot fetch what is missing: {'; '.join(map(str, lacking))}. {reason}",
                tip="see pip config list for the index that it asks; publish our own distributions first",
            ) from error
        fetched = tuple(distribution.read(path) for path in sorted(Path(folder).iterdir()))
        # A version that the index has stays as it is, also where pip found other files of it.
        new = [
            item
            for item in fetched
            if item.version not in {file.version for file in snapshot.project(item.name).files}
        ]
        return publish_dists(snapshot.index, new, "mirror", build=MIRRORED)

"""Verdicts of earlier runs that are still valid, since all their inputs are unchanged.

A smoke test or an installation that passed is noted under the digest of all that could change its outcome:
the bytes of the wheels and of what they need as they lie in the store now, the tests, the programs that ran
them, Python, the machine. The digests of the files that it left (record, junit) are noted too. Where anything
differs or is missing, the work is done again.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import cairn
from cairn import DISTRIBUTION, datafile, files, isolation
from cairn.build import cache
from cairn.errors import UsageError
from cairn.isolation import Isolation
from cairn.release.index import keys
from cairn.store.protocol import Store, sha256_of
from cairn.testing.gpus import kernel
from cairn.testing.smoke import SmokeRequest
from cairn.wheels.wheelset import WheelSet

# Of what reaches the programs of a test, or the installers, all but this may change what comes of them.
_NO_MATTER = frozenset({"TMPDIR", "TEMP", "TMP", "TERM", "PIP_CACHE_DIR", "UV_CACHE_DIR"})
_PACKAGE = Path(cairn.__file__).parent
# Which versions of these ran counts; what they ran with is in the set's closure.
_PROGRAMS = (DISTRIBUTION, "pip", "pytest", "uv")


class StoredVerdict(datafile.Value, tag_field="schema", tag="cairn.kept/1"):
    """A verdict on a set, as it is stored on disk.

    Attributes:
        key: digest of everything that it rests on.
        when: the time, as the console shows it.
        evidence: the files that it left, seen from this one's folder, with the sha256 of each.
    """

    key: str
    when: str
    evidence: Mapping[str, str]


def key(**inputs: object) -> str:
    """Return the digest of a verdict's inputs, including this Python and this machine."""
    return cache.key_of({"machine": machine(), **inputs})


def find(path: Path, key: str) -> StoredVerdict | None:
    """Return the verdict at `path`, if its key is `key` and its evidence files are unchanged."""
    try:
        verdict = datafile.read(path, StoredVerdict)
        whole = all(
            files.sha256_of(path.parent / file) == digest for file, digest in verdict.evidence.items()
        )
    except (UsageError, OSError, ValueError):  # ValueError: not a file name, such as one with a zero byte
        return None
    return verdict if whole and verdict.key == key else None


def write(path: Path, key: str, evidence: Iterable[Path] = ()) -> None:
    """Store a verdict for later runs."""
    digests = {os.path.relpath(file, path.parent): files.sha256_of(file) for file in evidence}
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    datafile.write(path, StoredVerdict(key=key, when=when, evidence=digests))


def key_of_smoke(store: Store, request: SmokeRequest, *, staged: str) -> str:
    """Return the digest of a smoke test's inputs, including the set's own index.

    Args:
        store: what has the set.
        request: the tests.
        staged: when the set was published.
    """
    wheel_set = request.wheel_set
    return key(
        program=digest_of_trees([_PACKAGE]),
        set=wheel_set.id,
        # The gate takes no record from before the set was staged, as after the store was removed.
        staged=staged,
        bytes=bytes_of(store, wheel_set),
        pages=digest_of_objects(store, keys.set_simple_prefix(wheel_set.id)),
        tests=digest_of_trees(request.smoke_tests),
        # The record says by which policy it was made.
        policy=datafile.to_plain(request.policy),
        asked=[list(request.extra_wheels), request.devices, {k: list(v) for k, v in request.imports.items()}],
    )


def key_of_install(store: Store, index: str, wheel_set: WheelSet) -> str:
    """Return the digest of an installation's inputs: the pages of the channel and the files behind them."""
    return key(
        program=digest_of_trees([_PACKAGE]),
        set=wheel_set.id,
        bytes=bytes_of(store, wheel_set),
        pages=digest_of_objects(store, keys.simple_prefix(index)),
    )


def bytes_of(store: Store, wheel_set: WheelSet) -> dict[str, str]:
    """Return the sha256 of each file that a set installs, of its bytes as stored now."""
    digests = {}
    for name, digest in wheel_set.sha256s.items():
        key = keys.file_key(digest, name)
        if not store.exists(key):
            digests[name] = "missing"
            continue
        with store.open(key) as stream:
            digests[name] = sha256_of(stream)
    return digests


def digest_of_objects(store: Store, prefix: str) -> str:
    """Return one digest of all objects below a prefix: their keys and bytes."""
    whole = hashlib.sha256()
    for item in store.list(prefix):
        with store.open(item.key) as stream:
            whole.update(f"{item.key} {sha256_of(stream)}\n".encode())
    return whole.hexdigest()


def machine() -> dict[str, object]:
    """Describe this Python, the bundled programs, the system, its GPUs, and the relevant variables."""
    home = Path(os.devnull)  # each has one of its own
    # The variables of the caller that tests and installers see.
    seen = isolation.variables(Isolation.INSTALLER, home) | isolation.variables(Isolation.TEST, home)
    return {
        "python": [sys.version, os.path.realpath(sys.executable), sys.prefix],
        "programs": {name: importlib.metadata.version(name) for name in _PROGRAMS},
        "system": [platform.platform(), platform.machine(), *platform.libc_ver()],
        "gpus": list(kernel.gpu_names()),
        "variables": {name: value for name, value in seen.items() if name not in _NO_MATTER},
    }


def digest_of_trees(roots: Iterable[Path]) -> str:
    """Return one digest of files and of all files below folders: their names and bytes."""
    whole = hashlib.sha256()
    for root in roots:
        for path in sorted(
            p for p in (root, *root.rglob("*")) if p.is_file() and "__pycache__" not in p.parts
        ):
            whole.update(f"{path.relative_to(root.parent).as_posix()} {files.sha256_of(path)}\n".encode())
    return whole.hexdigest()

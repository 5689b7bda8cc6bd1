"""What `index_publish.py` measures: commit one more file into `release`, signed if the store has a root."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

from cairn.release.index.commit import attempts
from cairn.release.index.generation import PUBLISHED, FileEntry
from cairn.release.index.snapshot import Change, Index
from cairn.store.folder import LocalStore

PROJECT = "project7"


def main() -> None:
    """Commit it."""
    parser = argparse.ArgumentParser(description="Commit one more file into the release index of a store.")
    parser.add_argument("store", type=Path)
    parser.add_argument("version", help="that the index does not have")
    options = parser.parse_args()
    new = FileEntry(
        filename=f"{PROJECT}-{options.version}-py3-none-any.whl",
        sha256=hashlib.sha256(options.version.encode()).hexdigest(),
        size=123_456,
        version=options.version,
        build=PUBLISHED,
    )
    for attempt in attempts(Index(LocalStore(options.store), "release")):
        project = attempt.before.project(PROJECT).with_files((new,))
        if attempt.commit(Change(projects={PROJECT: project}), "promote"):
            break


if __name__ == "__main__":
    main()

"""How an index names the provenance of a file."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from cairn.release.index.generation import FileEntry, ProvenanceKind


@dataclass(frozen=True, kw_only=True)
class Attested:
    """The provenance of a file, as an index names it; see `FileEntry`."""

    provenance: str
    provenance_kind: ProvenanceKind

    def on(self, file: FileEntry) -> FileEntry:
        """The file with this provenance."""
        return msgspec.structs.replace(file, provenance=self.provenance, provenance_kind=self.provenance_kind)

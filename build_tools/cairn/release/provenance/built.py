"""What the builder said of a set in a store, held against the set, its manifest and its wheels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from cairn.errors import CairnError, StoreError
from cairn.release.index import keys
from cairn.release.index.snapshot import MANIFEST_FILE
from cairn.release.provenance.reader import Reader
from cairn.store.protocol import MissingKeyError
from cairn.wheels.provenance import build_statement
from cairn.wheels.provenance.build_statement import BuildStatement
from cairn.wheels.wheelset import BUILDER_FILE, WheelSet


def read(reader: Reader, wheel_set: WheelSet) -> BuildStatement:
    """What the builder said of a set.

    Raises:
        StoreError: the store has no such statement, or it cannot be read.
    """
    return build_statement.decode(_bytes(reader, wheel_set), name=BUILDER_FILE)


def problems(reader: Reader, wheel_set: WheelSet, wheels: Sequence[Path]) -> Iterator[str]:
    """How a set is not what its builder said, or these wheels of it not of its manifest's commits."""
    try:
        statement = _bytes(reader, wheel_set)
        manifest = reader.read(keys.set_key(wheel_set.id, MANIFEST_FILE)).data
    except MissingKeyError:
        yield "its manifest is missing"
    except CairnError as error:
        yield str(error)
    else:
        yield from build_statement.problems(wheel_set, wheels, manifest=manifest, statement=statement)


def require(reader: Reader, wheel_set: WheelSet, wheels: Sequence[Path]) -> None:
    """Refuse a set of which `problems` has something to say.

    Raises:
        StoreError: it has.
    """
    if found := tuple(problems(reader, wheel_set, wheels)):
        raise StoreError(f"the set {wheel_set.id[:12]} is not what its builder says: {'; '.join(found)}")


def _bytes(reader: Reader, wheel_set: WheelSet) -> bytes:
    try:
        return reader.read(keys.set_key(wheel_set.id, BUILDER_FILE)).data
    except MissingKeyError as error:
        raise StoreError("there is no builder's statement: nobody says that they built it") from error

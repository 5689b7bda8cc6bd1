"""Whom of a stack's consumers a set breaks, whether their wheels are files, pip's, or of sets of a store."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from cairn.errors import CairnError, StoreError, UsageError
from cairn.release.index import keys
from cairn.release.index.reading import read_current
from cairn.release.index.snapshot import Index, missing, read_set
from cairn.release.publish.compatibility import Platform
from cairn.stack import Consumer
from cairn.store import transfer
from cairn.store.protocol import Store
from cairn.wheels.consumers import breaks, fetch
from cairn.wheels.consumers.breaks import Judgement
from cairn.wheels.metadata import wheel_info


def judge(
    consumers: Iterable[Consumer],
    old: Sequence[Path],
    new: Sequence[Path],
    *,
    place: Platform,
    store: Store | None = None,
    family: str | None = None,
) -> Judgement:
    """Say what of consumers breaks when one set takes the place of another; see `breaks.judge`.

    Args:
        consumers: who depends on the set. One whose wheels cannot be had is in `unknown`, by its name.
        old: the wheels of the set that users have.
        new: the wheels of the set that is to take its place.
        place: where they are installed.
        store: where the indexes are that consumers name.
        family: of the new set: of the sets of a consumer, one of the same family comes first.

    Raises:
        WheelError: a wheel of the two sets cannot be read.
    """
    unknown: dict[str, str] = {}
    suitable: dict[str, Path] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cairn-consumers-")))
        for consumer in consumers:
            try:
                if consumer.index is None:
                    paths = fetch.wheels_of(consumer, folder, python=place.python, platform=place.tag)
                elif store is None:
                    raise UsageError(f"no store is named in which {consumer.index} is", tip="give --store")
                else:
                    wheels = _last_set(store, consumer, place, family)
                    paths = tuple(stack.enter_context(transfer.as_files(store, wheels)).values())
                for path in paths:
                    wheel_info.read(path)
            except CairnError as error:  # all else is judged all the same
                unknown[consumer.name] = f"{error} ({error.tip})" if error.tip else str(error)
            else:
                suitable |= {path.name: path for path in paths if place.takes(path.name, None)}
        judgement = breaks.judge(old, new, suitable.values(), markers=place.markers())
    return msgspec.structs.replace(judgement, unknown={**unknown, **judgement.unknown})


def _last_set(store: Store, consumer: Consumer, place: Platform, family: str | None) -> tuple[str, ...]:
    """The keys of the wheels that were built for a consumer's last set for a place."""
    index = consumer.index or ""
    snapshot = read_current(Index(store, index))
    if not snapshot.exists:
        raise missing(store, index)
    sets = [
        one
        for one in snapshot.sets()
        if (one.stack, one.python, one.yanked) == (consumer.name, place.python, None)
        and place.is_same_machine(Platform(python=one.python, tag=one.platform))
    ]
    if not sets:
        raise StoreError(f"{index} has no set of {consumer.name} for {place}")
    last = max(sets, key=lambda one: (one.family == family, one.added, one.set_id))
    wheels = read_set(store, last.set_id).wheels
    return tuple(keys.file_key(wheel.sha256, wheel.file_name) for wheel in wheels)

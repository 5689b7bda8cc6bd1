"""The GPUs that hang, as a night knows them: its later tests on the same machine do not ask them again.

nights/<id>/steps/hanging.<boot>.<node>.json

The boot of a machine stands for it: a container has the same as its host, whose name it does not know, and a
machine that was restarted has another, after which its GPUs may be well again.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from cairn import datafile, files
from cairn.errors import UsageError
from cairn.output import console, safe_text
from cairn.release.index import keys
from cairn.store.protocol import MissingKeyError, Store
from cairn.testing import record
from cairn.testing.gpus.gpu import Gpu
from cairn.testing.gpus.hangs import name_of

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class HangingGpu(datafile.Value, tag_field="schema", tag="cairn.night-gpu/1"):
    """A GPU that did not answer, and was left out of tests.

    Attributes:
        machine: the name of its machine, for people.
        gpu: as the kernel describes it.
        seen: when it was noticed, RFC 3339.
    """

    machine: str
    gpu: Gpu
    seen: str


def keep(store: Store, night: str, gpus: Iterable[Gpu]) -> None:
    """Note GPUs of this machine that hang."""
    machine = os.environ.get("RUNNER_NAME") or platform.node()  # a container's own name says nothing
    for gpu in gpus:
        if gpu.node is not None:
            hanging = HangingGpu(machine=machine, gpu=gpu, seen=record.time_of(datetime.now(UTC)))
            key = f"{_prefix(night)}{_boot()}.{gpu.node}.json"
            store.write_if(key, datafile.dumps(hanging).encode(), etag=None)


def nodes_here(store: Store, night: str) -> tuple[int, ...]:
    """Return the kernel's nodes of those of this machine."""
    noted = _read(store, f"{_prefix(night)}{_boot()}.")
    return tuple(hanging.gpu.node for hanging in noted if hanging.gpu.node is not None)


def sentences(store: Store, night: str) -> tuple[str, ...]:
    """Name those of all machines, a sentence each."""
    return tuple(
        f"{name_of(hanging.gpu)} of {safe_text.visible(hanging.machine)} hangs, and was left out from "
        f"{safe_text.visible(hanging.seen)[:16].replace('T', ' ')} on"
        for hanging in _read(store, _prefix(night))
    )


def _read(store: Store, prefix: str) -> Iterator[HangingGpu]:
    for item in store.list(prefix):
        try:
            yield datafile.loads(store.read(item.key).data, HangingGpu, name=item.key)
        except (UsageError, MissingKeyError) as error:
            console.current().warn(f"skipping the note of a GPU that hangs: {error}")


def _prefix(night: str) -> str:
    return keys.night_key(night, "steps/hanging.")


def _boot() -> str:
    return files.text_or_empty(_BOOT).strip() or platform.node()

"""NVIDIA's GPUs, by what `nvidia-smi` prints: so that a run on one is seen to be that."""

from __future__ import annotations

import csv
import re

from cairn.testing.hardware.gpu import Answer, Gpu, text

ARGUMENTS = (
    "--query-gpu=name,driver_version,memory.total,uuid,pci.bus_id",
    "--format=csv,noheader,nounits",
)
_COLUMNS = 5
_PLACE = re.compile(r"0*([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")  # eight digits of domain


def parse(output: str) -> Answer:
    """The GPUs of an output; memory is in MiB."""
    gpus = []
    for row in csv.reader(output.splitlines(), skipinitialspace=True):
        if len(row) != _COLUMNS or not row[0].strip():
            return Answer(problem="nvidia-smi gives no list of GPUs")
        name, driver, memory, uuid, place = map(text, row)
        at = _PLACE.fullmatch(place.lower())
        gpus.append(
            Gpu(
                target=name,
                vendor="nvidia",
                name=name,
                driver=driver,
                memory_bytes=int(memory) << 20 if memory.isascii() and memory.isdecimal() else 0,
                uuid=uuid,
                pci=at[1] if at else "",
                seen_by=("nvidia-smi",),
            )
        )
    return Answer(gpus=tuple(gpus))

"""Which GPU targets the name of a file names, matched by whole words.

Source: LLVM's AMDGPU usage guide, "Generic Processor Versions" and "Target ID"; MIOpen's names of databases.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from cairn.errors import UsageError
from cairn.targets import (
    CPU,
    TargetId,
    generic_targets,
    known_targets,
    parse_target_id,
    parse_targets,
    unbuilt_targets,
)
from cairn.wheels.fat.recipe import Naming

# In file names a dash stands for the colon of a target ID: Kernels_gfx90a-xnack+.hsaco. A whole name alone
# counts: upstream's substring match takes gfx90a for gfx90, and misses gfx11-generic for gfx1100.
_NAME = re.compile(
    r"(?<![0-9A-Za-z])(?P<processor>gfx(?:[0-9]+(?:-[0-9]+)?-generic|[0-9a-f]+))"
    r"(?P<features>(?:[:-](?:xnack|sramecc)[+-])*)(?![0-9A-Za-z])"
)
_FEATURE = re.compile(r"(?:xnack|sramecc)[+-]")
# MIOpen's databases: the target and, without a separator, the number of compute units: gfx90a68, gfx1030_36.
_DATABASE = re.compile(r"(?P<name>gfx[0-9a-f]+)(?![0-9A-Za-z])")


def named(path: PurePosixPath, naming: Naming) -> tuple[TargetId, ...]:
    """The targets that a file is for by its name, or else by that of a folder; none when it serves all.

    Args:
        path: counted from the folder of the data.
        naming: how its name says so.
    """
    if naming == "none":
        return ()
    read = _whole if naming == "whole" else _prefix
    for part in reversed(path.parts):
        target = read(part)
        if target:
            return target
    return ()


def serves(targets: Sequence[TargetId], chosen: Iterable[TargetId]) -> bool:
    """Whether a file for these targets is of use to one of the wanted ones."""
    return not targets or any(_runs(one, target) for one in targets for target in chosen)


def _runs(code: TargetId, chosen: TargetId) -> bool:
    """Whether code for one target may be run by GPUs of the other; a feature that is not named is any."""
    # gfx1100 runs the code of gfx11-generic, and gfx11-generic stands for every GPU that it covers.
    generic = generic_targets()
    processors = {chosen.processor, *generic.get(chosen.processor, ())}
    served = {code.processor, *generic.get(code.processor, ())}
    opposite = {feature[:-1] + ("-" if feature[-1] == "+" else "+") for feature in chosen.features}
    return bool(processors & served) and opposite.isdisjoint(code.features)


def _whole(name: str) -> tuple[TargetId, ...]:
    return tuple(
        TargetId(processor=match["processor"], features=tuple(_FEATURE.findall(match["features"])))
        for match in _NAME.finditer(name)
    )


def _prefix(name: str) -> tuple[TargetId, ...]:
    match = _DATABASE.match(name)
    if match is None:
        return ()
    processors = [p for p in (*known_targets(), *unbuilt_targets()) if match["name"].startswith(p)]
    return (TargetId(processor=max(processors, key=len, default=match["name"])),)


def parse(text: str) -> tuple[TargetId, ...]:
    """Targets as users name them, generic ones included.

    Raises:
        UsageError: an unknown name, or cpu.
    """
    words = [word for word in re.split(r"[,;\s]+", text) if word]
    generic = [word for word in words if word in generic_targets()]
    rest = [word for word in words if word not in generic_targets()]
    names = [*generic, *(parse_targets(rest) if rest or not generic else ())]
    if CPU in names:
        raise UsageError("a fat wheel is for GPUs, not for cpu", tip="name targets such as gfx942")
    return tuple(map(parse_target_id, names))

"""PyTorch's list of tests that issues disable: disabled-tests-condensed.json, or run_test.py's copy.

    {"test_print (__main__.TestTorch)": ["12345", "https://github.com/…/issues/12345", ["linux", "rocm"]]}

The copy, `.pytorch-disabled-tests.json`, lacks the number. No platform means all of them. The rule for
reading it is `check_if_enable` in torch/testing/_internal/common_utils.py.
"""

from __future__ import annotations

import re
from pathlib import Path

from cairn import datafile
from cairn.errors import UsageError
from cairn.testing.skips.conditions import Platform, When
from cairn.testing.skips.importing.model import UpstreamList, UpstreamName

_NAME = re.compile(r"(\S+) \((?:\S+\.)?(\w+)\)")
_SYSTEMS: dict[str, Platform] = {"linux": "linux", "win": "windows", "windows": "windows"}
_ROCM = "rocm"
_GPUS = ("dcgpu-all", "dgpu-all", "igpu-all")  # families that have every GPU between them
# Others that torch knows: runs of a kind that wheels for AMD GPUs are not tested in.
_NOT_OURS = frozenset({"mac", "macos", "xpu", "asan", "dynamo", "dynamo_wrapped", "inductor", "slow"})


def read(path: Path) -> UpstreamList:
    """Read a list.

    Raises:
        UsageError: it is not JSON, or not of that shape.
    """
    data = datafile.read_json(path)
    if not isinstance(data, dict):
        raise UsageError(f"{path} is not a list of disabled tests: it is not an object")
    names: list[UpstreamName] = []
    remarks: list[str] = []
    for name, value in data.items():
        match = _NAME.fullmatch(name)
        if match is None:  # torch goes on without these too
            remarks.append(
                f"{name!r} is not written as `test_name (__main__.TestClass)`: it disables nothing"
            )
            continue
        issue, platforms = _row(path, name, value)
        if unknown := [word for word in platforms if word not in {*_SYSTEMS, _ROCM, *_NOT_OURS}]:
            remarks.append(f"{name}: torch knows no platform {', '.join(unknown)}; see {issue}")
        known = [word for word in platforms if word not in unknown]
        # torch reads a list with nothing but unknown ones as an empty one: disabled everywhere.
        names += (
            UpstreamName(
                text=match[1],
                class_name=match[2],
                when=when,
                reason="an issue of PyTorch disables it",
                issue=issue,
                place=name,
            )
            for when in _conditions(known)
        )
    return UpstreamList(names=tuple(names), remarks=tuple(remarks))


def _row(path: Path, name: str, value: object) -> tuple[str, list[str]]:
    match value:
        case [str(issue), [*platforms]] | [str() | int(), str(issue), [*platforms]]:
            return issue, [str(word).strip() for word in platforms]
    raise UsageError(
        f"{path}, at {name!r}: expected an address and a list of platforms",
        tip="give PyTorch's disabled-tests-condensed.json",
    )


def _conditions(platforms: list[str]) -> list[When]:
    if not platforms:
        return [When()]
    systems = tuple(dict.fromkeys(_SYSTEMS[word] for word in platforms if word in _SYSTEMS))
    conditions = [When(platform=systems)] if systems else []
    # Platforms are alternatives, conditions hold together: runs on ROCm elsewhere are an entry of their own.
    others = tuple(system for system in dict.fromkeys(_SYSTEMS.values()) if system not in systems)
    if _ROCM in platforms and others:
        conditions.append(When(platform=others if systems else (), family=_GPUS))
    return conditions

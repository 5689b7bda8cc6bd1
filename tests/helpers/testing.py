"""Sets of wheels, device code, and an index of wheels."""

from __future__ import annotations

import hashlib
import html
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
from packaging.utils import canonicalize_name, parse_wheel_filename

from cairn.testing.smoke import SmokeResult
from cairn.wheels import wheels_to_set
from cairn.wheels.wheelset import SetWheel, WheelSet

Serve = Callable[[Sequence[Path]], str]
DeviceLibrary = Callable[[Sequence[str]], bytes]


class MakeWheel(Protocol):
    """What the fixture `make_wheel` gives: see `packing.write_wheel`."""

    def __call__(
        self,
        name: str,
        version: str,
        members: Mapping[str, str | bytes],
        *,
        requires: Sequence[str] = (),
        tag: str = "py3-none-any",
        executables: Sequence[str] = (),
    ) -> Path: ...


class CompileLibrary(Protocol):
    """What the fixture `compile_library` gives: the bytes of a shared library made of C."""

    def __call__(self, source: str, *arguments: str, soname: str) -> bytes: ...


class Smoke(Protocol):
    """What the fixture `smoke` gives; `more` are fields of `SmokeRequest`."""

    def __call__(
        self,
        wheels: Sequence[Path],
        *,
        tests: str | None = None,
        targets: Sequence[str] = ("cpu",),
        family: str = "cpu",
        **more: object,
    ) -> SmokeResult: ...


def write_index(root: Path, wheels: Sequence[Path]) -> None:
    """Write a package index (PEP 503) of the wheels at `simple/` in `root`."""
    for wheel in wheels:
        page = root / "simple" / canonicalize_name(parse_wheel_filename(wheel.name)[0])
        page.mkdir(parents=True, exist_ok=True)
        (page / wheel.name).write_bytes(wheel.read_bytes())
        with (page / "index.html").open("a", encoding="utf-8") as file:
            name = html.escape(wheel.name)
            link = f"{name.replace('+', '%2B')}#sha256={hashlib.sha256(wheel.read_bytes()).hexdigest()}"
            file.write(f'<!DOCTYPE html>\n<a href="{link}">{name}</a>\n')


def set_of(wheels: Sequence[Path], *, targets: Sequence[str] = ("cpu",), family: str = "cpu") -> WheelSet:
    """The wheels as a set."""
    return wheels_to_set.make(
        wheels,
        manifest_sha256="0" * 64,
        stack="trial",
        line="main",
        python="3.11",
        platform="linux_x86_64",
        family=family,
        targets=targets,
    )


def named_wheel(file_name: str, **changes: Any) -> SetWheel:
    """A wheel as a set names it, though there is no such file; `changes` in place of some of its fields."""
    distribution, version = file_name.split("-")[:2]
    made = SetWheel(
        distribution=distribution.replace("_", "-"),
        version=version,
        file_name=file_name,
        sha256="0" * 64,
        size=1,
        metadata_sha256="0" * 64,
        targets=(),
    )
    return msgspec.structs.replace(made, **changes)


def named_set(*wheels: SetWheel, **changes: Any) -> WheelSet:
    """An open set of `named_wheel`s, with `changes` in place of some of its fields."""
    made = WheelSet(
        manifest_sha256="0" * 64,
        stack="s",
        line="main",
        python="3.11",
        platform="linux_x86_64",
        family="cpu",
        targets=("cpu",),
        wheels=wheels,
    )
    return msgspec.structs.replace(made, **changes)

"""What the wheels of a set have for others, and what a consumer's wheel needs of them."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from cairn.errors import WheelError
from cairn.formats import cyclonedx
from cairn.formats.zip.reader import Archive
from cairn.wheels.consumers import python_uses
from cairn.wheels.consumers.python_names import PythonNames
from cairn.wheels.consumers.python_uses import PythonUses
from cairn.wheels.contents.binaries import binary_members
from cairn.wheels.interface.model import Interface
from cairn.wheels.interface.read import read_interface
from cairn.wheels.metadata import wheel_info


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What the wheels of a set have for others.

    Attributes:
        wheels: distribution to its wheel.
        names: the Python names of all of them.
        tops: top-level module to the distribution that brings it.
        commits: distribution to the commit that it was built from, where its bill of materials says so.
        archives: the open wheels.
    """

    wheels: Mapping[str, Interface]
    names: PythonNames
    tops: Mapping[str, str]
    commits: Mapping[str, str]
    archives: tuple[Archive, ...]

    @property
    def operators(self) -> Mapping[str, str]:
        """Operator, without overload, to the distribution that registers it."""
        return {
            operator.qualified.partition(".")[0]: name
            for name, wheel in self.wheels.items()
            for operator in wheel.operators
        }

    def mentioned(self, operators: Collection[str]) -> frozenset[str]:
        """Those of the operators (`ns::name`) whose names stand in a binary, or whole in a Python file."""
        bare = {name: name.rpartition("::")[2].encode() for name in operators}
        result: set[str] = set()
        for archive in self.archives if operators else ():
            for member in archive.members:
                for data in archive.windows(member.name) if member.name.endswith(".py") else ():
                    result.update(name for name in bare.keys() - result if name.encode() in data)
            for member, _ in binary_members(archive):
                for data in archive.windows(member.name):
                    result.update(name for name in bare.keys() - result if bare[name] + b"\0" in data)
        return frozenset(result)


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What one wheel needs of others.

    Attributes:
        interface: its requirements, and its libraries with what they import.
        python: the Python names that it uses.
    """

    interface: Interface
    python: PythonUses


@contextlib.contextmanager
def opened(wheels: Sequence[Path], *, only: Collection[str] | None = None) -> Iterator[Offer]:
    """What wheels have for others, until the block ends.

    Args:
        wheels: those of one set.
        only: the distributions that count; all where it is None.

    Raises:
        WheelError: a wheel cannot be read, or there are two of one distribution.
    """
    with contextlib.ExitStack() as stack:
        archives: dict[str, Archive] = {}
        for path in wheels:
            name = wheel_info.parse_file_name(path.name, variants_too=True).distribution
            if only is not None and name not in only:
                continue
            if name in archives:
                raise WheelError(
                    f"two wheels of {name}: {archives[name].path.name} and {path.name}",
                    tip="name the wheels of one Python and platform",
                )
            archives[name] = stack.enter_context(Archive.open(path))
        read = {name: read_interface(archive.path, python=False) for name, archive in archives.items()}
        tops = {top: name for name, one in reversed(archives.items()) for top in PythonNames([one]).tops}
        yield Offer(
            wheels=read,
            names=PythonNames(archives.values()),
            tops=tops,
            archives=tuple(archives.values()),
            commits={
                name: next(iter(cyclonedx.commits(bill).values()))
                for name, wheel in read.items()
                if (bill := archives[name].read_any(f"{wheel.dist_info}/{cyclonedx.NAME}")) is not None
            },
        )


def distributions(wheels: Sequence[Path]) -> frozenset[str]:
    """The distributions that wheels are of, by their file names."""
    return frozenset(wheel_info.parse_file_name(path.name, variants_too=True).distribution for path in wheels)


def needs_of(wheel: Path, tops: frozenset[str]) -> Needs:
    """Read what a wheel needs of the top-level modules `tops`, and of everybody's libraries.

    Raises:
        WheelError: it cannot be read.
    """
    with Archive.open(wheel) as archive:
        return Needs(
            interface=read_interface(wheel, python=False),
            python=python_uses.read(archive, tops),
        )


def always_required(texts: Sequence[str]) -> tuple[Requirement, ...]:
    """The requirements that no extra brings.

    Raises:
        WheelError: one of them is none.
    """
    every = [wheel_info.requirement(text) for text in texts]
    return tuple(one for one in every if "extra" not in str(one.marker or ""))

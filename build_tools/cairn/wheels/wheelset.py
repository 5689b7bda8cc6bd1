"""set.json: the wheels of one manifest for one Python, platform and family, and all that they need."""

from __future__ import annotations

import collections
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from msgspec import structs

from cairn import datafile, requirements
from cairn.errors import WheelError
from cairn.targets import CPU

Origin = Literal["rocm-sdk", "mirrored", "published"]
"""Where a file of the closure came from; `published` says that nothing more is known of it."""

BUILDER_FILE = "builder.json"
"""Beside a `set.json`: what the builder says of it (`cairn.wheels.build_statement`)."""

PARAMETERS = ("stack", "line", "python", "platform", "family", "targets")
"""The fields that tell the sets of one manifest apart, and name the stack."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


class SetWheel(datafile.Value):
    """One wheel of a set.

    Attributes:
        distribution: its project's canonical name.
        version: its version, normalised.
        file_name: its file name.
        sha256: of the file, in hex.
        size: bytes of the file.
        metadata_sha256: of its METADATA, in hex.
        targets: the targets it has device code for, sorted.
        requires_python: the specifier in its METADATA.
    """

    distribution: str
    version: str
    file_name: str
    sha256: str
    size: int
    metadata_sha256: str
    targets: tuple[str, ...]
    requires_python: str | None = None


class ClosureFile(datafile.Value):
    """A file that a set installs besides its own wheels.

    Attributes:
        file_name: a wheel or an sdist.
        sha256: of its bytes, in hex.
        size: in bytes.
        origin: where it came from.
        metadata_sha256: of its METADATA; None for an sdist that decides what it needs when it is built.
        requires_python: the specifier in its METADATA.
    """

    file_name: str
    sha256: str
    size: int
    origin: Origin
    metadata_sha256: str | None = None
    requires_python: str | None = None


class WheelSet(datafile.Value, tag_field="schema", tag="cairn.set/2"):
    """Wheels that are promoted whole or not at all.

    A build writes it open. `cairn index publish --set` adds the closure and seals it: the id is the sha256 of
    all the rest, so whoever changes a word, a target or a file of the closure has a different set, of which
    no test record says anything.

    Attributes:
        manifest_sha256: of the manifest they were built from.
        stack: the name of the stack.
        line: the release line.
        python: the Python version, such as `3.11`.
        platform: the platform, such as `linux_x86_64`.
        family: the family of the targets.
        targets: the targets that were asked for.
        wheels: the wheels, by distribution and file name.
        requirements: what the set needs and no METADATA says, such as the packages that the `rocm` sdist
            chooses when it is installed.
        closure: every other file that the set installs, by file name; empty while the set is open.
        derived_from: the id of the set whose wheels these are under different versions; None for a build.
        set_id: sha256 over all the above, as `canonical` writes it; None while the set is open.
    """

    manifest_sha256: str
    stack: str
    line: str
    python: str
    platform: str
    family: str
    targets: tuple[str, ...]
    wheels: tuple[SetWheel, ...]
    requirements: tuple[str, ...] = ()
    closure: tuple[ClosureFile, ...] = ()
    derived_from: str | None = None
    set_id: str | None = None

    @property
    def id(self) -> str:
        """The id of a sealed set.

        Raises:
            WheelError: the set is open, and has none.
        """
        if self.set_id is None:
            raise WheelError(
                "the set is open: it has no id, and nothing can be tested or promoted under one",
                tip="seal it: cairn index publish … --set set.json",
            )
        return self.set_id

    @property
    def parameters(self) -> dict[str, str]:
        """The properties that it adds to its manifest, each as a text, as SLSA recommends."""
        plain = {name: getattr(self, name) for name in PARAMETERS}
        return plain | {"targets": ";".join(self.targets)}

    @property
    def for_cpu(self) -> bool:
        """Whether the set is for no GPU."""
        return self.targets in ((), (CPU,))

    @property
    def sha256s(self) -> dict[str, str]:
        """File name to sha256, of its wheels and its closure."""
        return {file.file_name: file.sha256 for file in self.files}

    @property
    def files(self) -> tuple[SetWheel | ClosureFile, ...]:
        """Its wheels, then its closure."""
        return (*self.wheels, *self.closure)


def seal(wheel_set: WheelSet, closure: Sequence[ClosureFile]) -> WheelSet:
    """The set with its closure and its id; from then on it does not change.

    Raises:
        WheelError: a file of the closure is twice in it, or is one of the set's own wheels.
    """
    ordered = tuple(sorted(closure, key=lambda file: file.file_name))
    whole = structs.replace(wheel_set, closure=ordered, set_id=None)
    sealed = structs.replace(whole, set_id=id_of(whole))
    check(sealed, "the set")
    return sealed


def with_requirements(wheel_set: WheelSet, requirements: Sequence[str]) -> WheelSet:
    """Return the open set with these requirements added."""
    every = tuple(dict.fromkeys((*wheel_set.requirements, *requirements)))
    return structs.replace(wheel_set, closure=(), set_id=None, requirements=every)


def id_of(wheel_set: WheelSet) -> str:
    """Return the id for a sealed set with this content."""
    return hashlib.sha256(canonical(structs.replace(wheel_set, set_id=None))).hexdigest()


def canonical(wheel_set: WheelSet) -> bytes:
    """The bytes that the id is computed from: JSON in UTF-8, sorted keys, no spaces (as in RFC 8785)."""
    plain = datafile.to_plain(wheel_set)
    return json.dumps(plain, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def dumps(wheel_set: WheelSet) -> bytes:
    """The bytes of a `set.json`."""
    return datafile.dumps(wheel_set).encode()


def write(path: Path, wheel_set: WheelSet) -> None:
    """Write a set atomically."""
    datafile.write(path, wheel_set)


def read(path: Path) -> WheelSet:
    """Read a set that `write` made, open or sealed.

    Raises:
        UsageError: no such file, or malformed.
        WheelError: its id is not that of its content, or it contradicts itself.
    """
    return _with_right_id(datafile.read(path, WheelSet), name=str(path))


def loads(data: bytes, *, name: str) -> WheelSet:
    """Like `read`, from the bytes of a file that errors call `name`."""
    return _with_right_id(datafile.loads(data, WheelSet, name=name), name=name)


def _with_right_id(wheel_set: WheelSet, *, name: str) -> WheelSet:
    """The set, if its id is that of its content.

    Raises:
        WheelError: it is not, or the set contradicts itself.
    """
    check(wheel_set, name)
    if wheel_set.set_id is not None and wheel_set.set_id != id_of(wheel_set):
        raise WheelError(f"{name} was changed: the set id is not that of its content", tip="seal it again")
    return wheel_set


def check(wheel_set: WheelSet, name: str) -> None:
    """Refuse a set that contradicts itself.

    Raises:
        WheelError: it has no wheels, two of one distribution, a file twice, or a digest that is none.
    """
    if not wheel_set.wheels:
        raise WheelError("a set needs at least one wheel", tip="build something first")
    counts = collections.Counter(wheel.distribution for wheel in wheel_set.wheels)
    if strange := next((count for count in counts if not requirements.is_project_name(count)), None):
        raise WheelError(f"{name}: {requirements.shown(strange)} cannot be the name of a project")
    double = next((name for name, count in counts.items() if count > 1), None)
    if double:
        raise WheelError(f"a set cannot hold two wheels of {double}", tip="remove the older one")
    names = collections.Counter(file.file_name for file in wheel_set.files)
    if repeated := next((file for file, count in names.items() if count > 1), None):
        raise WheelError(f"{name} names {repeated} twice", tip="seal the set again")
    if wheel_set.set_id is None and wheel_set.closure:
        raise WheelError(f"{name} has a closure and no id", tip="seal it: cairn index publish … --set")
    digests = [file.sha256 for file in wheel_set.files] + [wheel_set.manifest_sha256]
    digests += [wheel_set.derived_from] if wheel_set.derived_from is not None else []
    if not all(_SHA256.fullmatch(digest) for digest in digests):
        raise WheelError(f"{name} has a digest that is not a sha256", tip="build the set again")

"""Whether code objects are whole ELF files of the target that they are listed for.

Everything is read from front to back, once: bundles of gigabytes are unpacked while they are looked at.

Source: LLVM's docs/AMDGPUUsage.rst, "ELF Code Object".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from cairn.errors import WheelError
from cairn.formats import elf
from cairn.formats.offload import bundle, code_object
from cairn.formats.offload.bundle import Entry
from cairn.formats.offload.unpack import Forward, ViewReader, exactly
from cairn.formats.view import BytesView, View
from cairn.targets import TargetId
from cairn.wheels.verify.findings import Finding

_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_CLASS_64 = 2
_AMDGPU = 224
_LOAD, _RUNS = 1, 1
_FARTHEST = 1 << 16  # where the table of segments may be: linkers put it after the header
_STEP = 1 << 18
_AGAIN = "build it again; where it was whole before, look at what packed or moved it"


class Checker:
    """What is found in the bundles of one file.

    Attributes:
        findings: every breach so far.
    """

    def __init__(self, member: str) -> None:
        self.findings: list[Finding] = []
        self._member = member

    def look(self, entries: Sequence[Entry], content: Forward) -> None:
        """See `bundle.Checker.look`."""
        places: set[tuple[int, int]] = set()
        for entry in sorted(entries, key=lambda entry: (entry.offset, entry.size)):
            place = (entry.offset, entry.size)
            if entry.id.startswith(bundle.HOST) or not entry.size or place in places:
                continue
            places.add(place)
            self.look_at(content, entry.offset, entry.size, entry.id)

    def look_at(self, content: Forward, offset: int, size: int, name: str) -> None:
        """Look at one code object, which is listed for the target of the entry `name`."""
        if offset < content.at:
            problem: str | None = "shares its bytes with what is before it"
        else:
            content.skip(offset - content.at)
            problem = problem_of(content, size, code_object.target_of_entry(name))
        if problem:
            self._find("code-object-malformed", f"its code for {name.rpartition('--')[2]} {problem}")

    def complain(self, reason: str) -> None:
        """See `bundle.Checker.complain`."""
        self._find("bundle-malformed", reason)

    def look_at_file(self, view: View) -> None:
        """Look at a file of its own: a code object, or a bundle of them."""
        head = view.read(0, min(view.size, len(bundle.PLAIN_MAGIC)))
        if head.startswith((bundle.PLAIN_MAGIC, bundle.PACKED_MAGIC)):
            try:
                for _ in bundle.read_range(view, 0, view.size, self):
                    pass
            except WheelError as error:
                self.complain(str(error))
            return
        problem = problem_of(Forward(ViewReader(view, 0, view.size)), view.size, None)
        if problem:
            self._find("code-object-malformed", f"its code {problem}")

    def _find(self, code: str, reason: str) -> None:
        self.findings.append(Finding(code=code, member=self._member, reason=reason, fix=_AGAIN))


def problem_of(content: Forward, size: int, target: TargetId | None) -> str | None:
    """What is wrong with a code object of `size` bytes that begins here; None where nothing is."""
    part = _Part(content, size)
    head = part.read(_HEADER.size)
    if not head.strip(b"\0"):
        return "is nothing but zeros"
    if len(head) < _HEADER.size or not elf.is_elf(head) or head[4] != _CLASS_64:
        return "is no ELF file of 64 bits"
    fields = _HEADER.unpack(head)
    if fields[1] != _AMDGPU:
        return f"is for another machine than an AMD GPU ({fields[1]})"
    found = _processor(head)
    if target is not None and found not in (target.processor, None):
        return f"is for {found}"
    try:
        ranges = list(_ranges(part, size, fields))
    except WheelError:
        return "is cut off"
    return next((f"has nothing but zeros for {what}" for what in _empty(part, ranges)), None)


def _processor(head: bytes) -> str | None:
    try:
        return code_object.target_of(BytesView(head)).processor
    except WheelError:  # one that came after us
        return None


class _Part:
    """The bytes of one code object, by their places in it."""

    def __init__(self, content: Forward, size: int) -> None:
        self._content = content
        self._begin = content.at
        self._size = size

    @property
    def at(self) -> int:
        return self._content.at - self._begin

    def read(self, size: int, /) -> bytes:
        return self._content.read(min(size, self._size - self.at))

    def skip_to(self, offset: int) -> None:
        if offset > self.at:
            self._content.skip(offset - self.at)


def _ranges(part: _Part, size: int, fields: tuple[int, ...]) -> Iterator[tuple[int, int, str]]:
    """Where there must be something, as beginning, end and what it is.

    Raises:
        WheelError: some of it is not within the file.
    """
    segments, sections = fields[4], fields[5]
    segment_count, section_size, section_count = fields[9], fields[10], fields[11]
    end = sections + section_size * section_count
    if end > size or (segment_count and not part.at <= segments <= _FARTHEST):
        raise WheelError("cut off")
    if section_count > 1:
        yield sections + section_size, end, "its section headers"  # the first one is zeros in every file
    part.skip_to(segments if segment_count else 0)  # an object file has none before it is linked
    for _ in range(segment_count):
        kind, flags, offset, _, _, in_file, *_ = _SEGMENT.unpack(exactly(part, _SEGMENT.size))
        if kind == _LOAD and offset + in_file > size:
            raise WheelError("cut off")
        if kind == _LOAD and flags & _RUNS and in_file:
            yield offset, offset + in_file, "its instructions"


def _empty(part: _Part, ranges: Sequence[tuple[int, int, str]]) -> Iterator[str]:
    for begin, end, what in sorted(ranges):
        part.skip_to(begin)
        if part.at < end and not _has_bytes(part, end):
            yield what


def _has_bytes(part: _Part, end: int) -> bool:
    while part.at < end:
        piece = part.read(min(end - part.at, _STEP))
        if not piece:
            return False
        if piece.strip(b"\0"):
            return True
    return False

"""Whether device code is there for the targets that were asked for, and each code object is whole.

A code object is an ELF file for one GPU target. It lies in an offload bundle inside a binary, in a file of
its own (`.hsaco`), or, once a wheel has been split, in a kpack archive. Everything is read from front to
back, once: bundles of gigabytes are unpacked while they are looked at.

Source: LLVM's docs/AMDGPUUsage.rst, "ELF Code Object".
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from cairn import datafile
from cairn.errors import UsageError, WheelError
from cairn.formats import elf, kpack
from cairn.formats.compression import Forward, ViewReader, exactly
from cairn.formats.elf_layout import EHDR, PHDR, PT_LOAD, RUNS, Segment
from cairn.formats.offload import SPLIT_RECORD, bundle, code_object
from cairn.formats.offload.bundle import Entry
from cairn.formats.view import BytesView, MemberView, View
from cairn.formats.zip.layout import Member
from cairn.formats.zip.reader import Archive
from cairn.targets import CPU, TargetId, in_order, parse_target_id, that_run
from cairn.wheels.contents.binaries import Binary
from cairn.wheels.metadata.wheel_info import WheelInfo
from cairn.wheels.verify.findings import Expectation, Finding, FindingCode

_CLASS_64 = 2  # ELFCLASS64 in e_ident[EI_CLASS], the fifth byte
_AMDGPU = 224  # EM_AMDGPU
_FARTHEST = 1 << 16  # where the table of segments may begin: linkers put it right after the header
_STEP = 1 << 18
_SPLIT_AGAIN = "split the whole wheel again"
_AGAIN = "build it again; where it was whole before, look at what packed or moved it"


class CodeObjectChecker:
    """Looks at the code objects of one file while it is unpacked; see `bundle.Checker`.

    Attributes:
        findings: every breach so far.
    """

    def __init__(self, member: str) -> None:
        self.findings: list[Finding] = []
        self._member = member

    def look(self, entries: Sequence[Entry], content: Forward) -> None:
        """See `bundle.Checker.look`."""
        # Two entries may name the same bytes, which can be read only once.
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
            content.skip_to(offset)
            problem = problem_of(content, size, code_object.target_of_entry(name))
        if problem:
            self._find(
                FindingCode.CODE_OBJECT_MALFORMED, f"its code for {name.rpartition('--')[2]} {problem}"
            )

    def look_at_archived(self, content: Forward, size: int, target: str) -> None:
        """Look at one code object of an archive, which may be a generic one that runs on the target."""
        problem = problem_of(content, size, parse_target_id(target), or_generic=True)
        if problem:
            self._find(FindingCode.CODE_OBJECT_MALFORMED, f"its code for {target} {problem}")

    def complain(self, reason: str) -> None:
        """See `bundle.Checker.complain`."""
        self._find(FindingCode.BUNDLE_MALFORMED, reason)

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
            self._find(FindingCode.CODE_OBJECT_MALFORMED, f"its code {problem}")

    def _find(self, code: FindingCode, reason: str) -> None:
        self.findings.append(Finding(code=code, member=self._member, reason=reason, fix=_AGAIN))


def is_named_like_code(path: str) -> bool:
    """Whether a name says that a file is device code; `.co` may be anything where no target is named."""
    path = path.lower()
    return path.endswith(".hsaco") or (path.endswith(".co") and "gfx" in path.rpartition("/")[2])


def check_archive(archive: Archive, member: Member) -> tuple[dict[str, frozenset[str]], list[Finding]]:
    """The targets of a kpack archive, each with the keys of its code in the table, and its breaches."""
    checker = CodeObjectChecker(member.name)
    empty: set[str] = set()

    again = "split the wheel again"
    try:
        opened = kpack.Archive.open(MemberView(archive, member), member.name)
        for target, size, pieces in opened.checked():
            if size:
                checker.look_at_archived(Forward(_Pieces(pieces)), size, target)
            else:
                empty.add(target)
    except WheelError as error:
        code = FindingCode.KPACK_MALFORMED
        return {}, [Finding(code=code, member=member.name, reason=str(error), fix=again)]
    findings = checker.findings
    targets = opened.table.gfx_arches
    if len(targets) == 1 and not member.name.endswith(f"_{targets[0]}{kpack.SUFFIX}"):
        reason = f"it has code for {targets[0]}, and no runtime looks for that under this name"
        findings.append(Finding(code=FindingCode.KPACK_NAME, member=member.name, reason=reason, fix=again))
    if empty:
        reason = f"its code for {', '.join(in_order(empty))} is empty"
        code = FindingCode.CODE_OBJECT_EMPTY
        findings.append(Finding(code=code, member=member.name, reason=reason, fix=again))
    keys = {
        target: frozenset(key for key, row in opened.table.toc.items() if target in row) for target in targets
    }
    return keys, findings


class _Pieces:
    """Bytes that come in pieces, read from their beginning to their end."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = b""

    def read(self, size: int, /) -> bytes:
        """See `compression.Reader.read`."""
        while len(self._left) < size and (piece := next(self._pieces, None)) is not None:
            self._left += piece
        data, self._left = self._left[:size], self._left[size:]
        return data


def check_targets(
    binaries: Sequence[Binary],
    archived: Mapping[str, Collection[str]],
    extras: Sequence[str],
    expected: Expectation,
) -> Iterator[Finding]:
    """Every binary with device code must have code for exactly the targets that were asked for.

    Args:
        binaries: those of the wheel.
        archived: the paths of its kpack archives, each with the targets that it has code for.
        extras: those of the wheel: of a host wheel each brings the code for a processor.
        expected: what was asked for.
    """
    if expected.targets is None:
        return
    targets = set(expected.targets) - {CPU}
    with_code = [binary for binary in binaries if binary.code_objects]
    is_host = any(binary.reference for binary in binaries)
    if expected.require_device_code and targets and not (with_code or archived or is_host):
        reason = "it has no device code at all"
        fix = "pass the targets to the build: PYTORCH_ROCM_ARCH"
        yield Finding(code=FindingCode.NO_DEVICE_CODE, reason=reason, fix=fix)
    yield from _check_archived(archived, targets)
    if is_host and not archived:  # a wheel variant has its archives itself
        yield from _check_extras(extras, targets)
    for binary in with_code:
        targets_of_binary = set(binary.targets)
        # A code object in a file of its own is for one target; its siblings may be for the others.
        missing = set() if binary.is_device_code else targets - targets_of_binary
        for code, names, words in (
            (FindingCode.TARGETS_MISSING, missing, "it has no code for"),
            (
                FindingCode.TARGETS_UNEXPECTED,
                targets_of_binary - targets,
                "it has code that was not asked for:",
            ),
        ):
            if names:
                reason = f"{words} {', '.join(in_order(names))}"
                fix = "build it for exactly the targets of the wheel"
                yield Finding(code=code, member=binary.path, reason=reason, fix=fix)
        empty = in_order(str(code.target) for code in binary.code_objects if not code.size)
        if empty:
            reason = f"its code for {', '.join(empty)} is empty"
            fix = "build it again and look for compiler warnings"
            yield Finding(code=FindingCode.CODE_OBJECT_EMPTY, member=binary.path, reason=reason, fix=fix)


def built_for(archive: Archive, binaries: Iterable[Binary]) -> dict[str, set[str]]:
    """The processors that libraries of ROCm with data beside them are built for, by `code_object.library_of`.

    These are those of the library's own code, and of a bundle in its folder that has code for all of them,
    such as hipblasltTransform.hsaco of hipBLASLt before ROCm 7.13.
    """
    processors: dict[str, set[str]] = {}
    for binary in binaries:
        if library := code_object.library_of(binary.path):
            those = {parse_target_id(target).processor for target in binary.targets}
            processors.setdefault(library, set()).update(() if binary.is_device_code else those)
    for member in archive.members:
        if not (member.name.endswith(".hsaco") and (folder := code_object.folder_of(member.name))):
            continue
        if not code_object.PROCESSOR.search(member.name[len(folder) :]):
            with contextlib.suppress(WheelError):  # which is told of its content
                view = MemberView(archive, member)
                entries = (e for part in bundle.read_range(view, 0, view.size) for e in part.device_entries)
                those = {code_object.target_of_entry(entry.id).processor for entry in entries}
                processors.setdefault(code_object.library_of(member.name), set()).update(those)
    return processors


def check_databases(
    archive: Archive,
    binaries: Sequence[Binary],
    archived: Mapping[str, Collection[str]],
    supported: Mapping[str, Collection[str]],
    expected: Expectation,
) -> Iterator[Finding]:
    """The files of kernels beside ROCm's libraries are not empty, and there are some for every target.

    For rocBLAS, the targets are those that were asked for; a device wheel has the files for its processor
    alone. hipBLASLt and hipSPARSELt are not for every GPU: of them the targets count that they were built for
    (`built_for`, here `supported`), and what else a target needs that has files. AOTriton and MIOpen do
    without, and RCCL has its kernels in the library.
    """
    folders: dict[str, dict[str, int]] = {}
    for member in archive.members:
        if (folder := code_object.folder_of(member.name)) and not member.is_dir:
            folders.setdefault(folder, {})[member.name[len(folder) :]] = member.size
    of_wheel = {parse_target_id(name).processor for names in archived.values() for name in names}
    of_all = _processors_of(binaries, expected)
    for folder, sizes in folders.items():
        library = code_object.library_of(f"{folder}/")
        targets = set(supported.get(library, ()))
        if of_all is not None:
            targets = of_all if library == "rocblas" and expected.targets else targets & of_all
        yield from _check_folder(folder, library, sizes, targets & of_wheel if archived else targets)
    for binary in binaries:
        if code_object.library_of(binary.path) == "rccl" and not (binary.code_objects or binary.reference):
            reason = "it has no device code, and RCCL has its kernels nowhere else"
            fix = "build RCCL for the targets of the wheel"
            yield Finding(code=FindingCode.NO_DEVICE_CODE, member=binary.path, reason=reason, fix=fix)


def _processors_of(binaries: Iterable[Binary], expected: Expectation) -> set[str] | None:
    """The processors that a wheel is for: those asked for, or those of all its libraries; None if unknown.

    ROCm's libraries in a fat wheel may have code for more than the wheel is for.
    """
    if targets := expected.targets or expected.split_targets:
        return {parse_target_id(name).processor for name in targets if name != CPU}
    codes = [b.targets for b in binaries if b.code_objects and not b.is_device_code]
    groups = [{parse_target_id(name).processor for name in targets} for targets in codes]
    return set.intersection(*groups) if groups else None


def _check_folder(
    folder: str, library: str, sizes: Mapping[str, int], targets: Collection[str]
) -> Iterator[Finding]:
    """A folder of kernels has some for these targets, and all that a target needs for each that has some."""
    for path, size in sizes.items():
        if not size and (processors := code_object.PROCESSOR.findall(path)):
            reason = f"it is to have kernels for {processors[0]}, and is empty"
            fix = "take the data of the libraries from a whole ROCm"
            yield Finding(code=FindingCode.CODE_OBJECT_EMPTY, member=folder + path, reason=reason, fix=fix)
    named = sorted({name for path in sizes for name in code_object.PROCESSOR.findall(path)})
    served = {runner for processor in named for runner in that_run(processor)}
    reasons = []
    if library and named and (missing := in_order(set(targets) - served)):
        reasons.append(f"it has no kernels for {', '.join(missing)}, and some for {', '.join(named)}")
    if library.endswith("lt"):
        for processor, names in code_object.lacking([path for path, size in sizes.items() if size]).items():
            reasons.append(f"it has kernels for {processor}, and lacks {', '.join(names)}")
    for reason in reasons:
        fix = "take the data of the library for every target of the wheel from a whole ROCm"
        yield Finding(code=FindingCode.TARGETS_MISSING, member=folder, reason=reason, fix=fix)


def _check_archived(archived: Mapping[str, Collection[str]], expected: Iterable[str]) -> Iterator[Finding]:
    """A device wheel has the code for one processor, all of it; its siblings have that for the others."""
    expected = set(expected)
    archived_targets = {name for targets in archived.values() for name in targets}
    processors = {parse_target_id(name).processor for name in archived_targets}
    missing = [name for name in expected - archived_targets if parse_target_id(name).processor in processors]
    if missing:
        reason = f"none of its archives has code for {', '.join(in_order(missing))}"
        fix = "split a wheel with exactly these targets"
        yield Finding(code=FindingCode.TARGETS_MISSING, reason=reason, fix=fix)
    by_extra: dict[str, set[str]] = {}
    for name in expected:
        target = parse_target_id(name)
        by_extra.setdefault(target.processor, set()).update(target.features)
    for path, targets in archived.items():
        # Also for several features at once: one GPU could ask for two archives, and gets one for both.
        others = [
            name
            for name in targets
            if (target := parse_target_id(name)).processor not in by_extra
            or not by_extra[target.processor].issuperset(target.features)
        ]
        if others:
            reason = f"it has code that was not asked for: {', '.join(in_order(others))}"
            fix = "leave its wheel out, or split a wheel with exactly these targets"
            yield Finding(code=FindingCode.TARGETS_UNEXPECTED, member=path, reason=reason, fix=fix)


def _check_extras(extras: Iterable[str], expected: Iterable[str]) -> Iterator[Finding]:
    """The extras of a host wheel bring the code of every target, or a generic one that its GPUs run."""
    brought = {processor for extra in extras for processor in that_run(extra.removeprefix("device-"))}
    missing = [name for name in expected if parse_target_id(name).processor not in brought]
    if missing:
        reason = f"no extra brings the code for {', '.join(in_order(missing))}"
        fix = "split a wheel with exactly these targets"
        yield Finding(code=FindingCode.TARGETS_MISSING, reason=reason, fix=fix)


def check_split(
    archive: Archive, info: WheelInfo, binaries: Sequence[Binary], expected: Expectation
) -> Iterator[Finding]:
    """What was split from a host wheel is known of each library, and was code for all targets.

    The runtime looks for no second archive where the first lacks a library, so that one without code for a
    GPU fails there as it would in the whole wheel. Others that split wheels leave no record to go by.
    """
    member = f"{info.dist_info}/{SPLIT_RECORD}"
    if member not in archive:
        return
    from cairn.formats.offload import record  # noqa: PLC0415 - only host wheels have one

    try:
        known = datafile.loads(archive.read(member), record.Record, name=member).libraries
    except UsageError as error:
        yield Finding(code=FindingCode.SPLIT_DIFFERS, member=member, reason=str(error), fix=_SPLIT_AGAIN)
        return
    # The record has `.data` for the name of the data folder, which differs in each wheel.
    before = info.dist_info.removesuffix(".dist-info")
    split = {(before if lib.path.startswith(".data/") else "") + lib.path: lib for lib in known}
    for path in (binary.path for binary in binaries if binary.reference):
        if path not in split:
            reason = f"{SPLIT_RECORD} does not say what was split from it"
            yield Finding(code=FindingCode.SPLIT_DIFFERS, member=path, reason=reason, fix=_SPLIT_AGAIN)
    processors = {name.partition(":")[0] for name in expected.split_targets or expected.targets or ()}
    for path, library in split.items():
        codes = [code for part in library.parts for code in part.codes]
        runnable = {processor for code in codes for processor in that_run(code.target.partition(":")[0])}
        if missing := in_order(processors - {CPU} - runnable):
            reason = f"no code for {', '.join(missing)} was split from it"
            fix = "build it for exactly the targets of the wheel"
            yield Finding(code=FindingCode.TARGETS_MISSING, member=path, reason=reason, fix=fix)


def problem_of(
    content: Forward, size: int, target: TargetId | None, *, or_generic: bool = False
) -> str | None:
    """The problem of a code object of `size` bytes that begins here; None where there is none."""
    code = Forward(content, size=size)
    head = code.read(EHDR.size)
    if not head.strip(b"\0"):
        return "is nothing but zeros"
    if len(head) < EHDR.size or not elf.is_elf(head) or head[4] != _CLASS_64:
        return "is not a 64-bit ELF file"
    _, machine, *header = EHDR.unpack(head)
    if machine != _AMDGPU:
        return f"is not for an AMD GPU, but for machine {machine}"
    with contextlib.suppress(WheelError):  # of a processor that is newer than our list
        processor = code_object.target_of(BytesView(head)).processor
        serves = that_run(processor) if or_generic else (processor,)
        if target is not None and target.processor not in serves:
            return f"is for {processor}"
    try:
        ranges = list(_required_ranges(code, size, header))
    except WheelError:
        return "is cut off"
    return next((f"has nothing but zeros for {what}" for what in _empty(code, ranges)), None)


def _required_ranges(code: Forward, size: int, header: Sequence[int]) -> Iterator[tuple[int, int, str]]:
    """Where there must be something, as beginning, end and what it is.

    Raises:
        WheelError: some of it is not within the file.
    """
    _, _, segments, sections, *_, segment_count, section_size, section_count, _ = header
    end = sections + section_size * section_count
    if end > size or (segment_count and not code.at <= segments <= _FARTHEST):
        raise WheelError("cut off")
    if section_count > 1:
        yield sections + section_size, end, "its section headers"  # the first one is zeros in every file
    code.skip_to(segments if segment_count else 0)  # an object file has none before it is linked
    for _ in range(segment_count):
        segment = Segment(*PHDR.unpack(exactly(code, PHDR.size)))
        if segment.kind == PT_LOAD and segment.end > size:
            raise WheelError("cut off")
        if segment.kind == PT_LOAD and segment.flags & RUNS and segment.file_size:
            yield segment.offset, segment.end, "its instructions"


def _empty(code: Forward, ranges: Sequence[tuple[int, int, str]]) -> Iterator[str]:
    for begin, end, what in sorted(ranges):
        code.skip_to(begin)
        if code.at < end and not _has_bytes(code, end):
            yield what


def _has_bytes(code: Forward, end: int) -> bool:
    while code.at < end:
        piece = code.read(min(end - code.at, _STEP))
        if not piece:
            return False
        if piece.strip(b"\0"):
            return True
    return False

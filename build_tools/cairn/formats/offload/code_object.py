"""Code objects: ELF files for AMD GPUs, in a bundle or as files of their own (`.hsaco`, `.co`).

Source: LLVM's docs/AMDGPUUsage.rst, "Header": the processor and its features stand in `e_flags`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

import msgspec

from cairn.errors import UsageError, WheelError
from cairn.formats import elf, pe
from cairn.formats.image import DEVICE, Format, Image
from cairn.formats.offload import bundle as offload_bundle
from cairn.formats.offload.bundle import Bundle, Checker
from cairn.formats.view import BytesView, View
from cairn.targets import TargetId, parse_target_id

_CLASS_AT, _WIDE_LITTLE = 4, b"\x02\x01"  # e_ident[EI_CLASS] and e_ident[EI_DATA]
_FLAGS_AT = 48  # e_flags of an Elf64_Ehdr
_ABI_VERSION_AT = 8  # e_ident[EI_ABIVERSION]: 1 for code object version 3, 2 for 4, 3 for 5, 4 for 6
_PROCESSOR = 0xFF  # EF_AMDGPU_MACH, the low byte of e_flags
_FIRST = 0x20  # below are the R600 family's
# EF_AMDGPU_MACH_AMDGCN_* from 0x20 on; an empty word is a number that is reserved, or unknown here.
_PROCESSORS = (
    *("gfx600", "gfx601", "gfx700", "gfx701", "gfx702", "gfx703", "gfx704", ""),
    *("gfx801", "gfx802", "gfx803", "gfx810", "gfx900", "gfx902", "gfx904", "gfx906"),
    *("gfx908", "gfx909", "gfx90c", "gfx1010", "gfx1011", "gfx1012", "gfx1030", "gfx1031"),
    *("gfx1032", "gfx1033", "gfx602", "gfx705", "gfx805", "gfx1035", "gfx1034", "gfx90a"),
    *("gfx940", "gfx1100", "gfx1013", "gfx1150", "gfx1103", "gfx1036", "gfx1101", "gfx1102"),
    *("gfx1200", "gfx1250", "gfx1151", "gfx941", "gfx942", "", "gfx1201", "gfx950"),
    *("", "gfx9-generic", "gfx10-1-generic", "gfx10-3-generic", "gfx11-generic", "gfx1152", "", ""),
    *("gfx1153", "gfx12-generic", "gfx1251", "gfx12-5-generic", "", "", "", "gfx9-4-generic"),
)
# The first stepping of gfx1250, which is not in LLVM; the number is that of a third party's loader.
_STRICT = 0xEB
# Version 3 has a bit a feature, which says on or nothing; later ones two: unsupported, any, off, on. "Any" is
# not part of a target id: the code runs either way.
_V3 = 1
_V3_FEATURES = (("sramecc", 0x200), ("xnack", 0x100))
_FEATURES = (("sramecc", 0xC00, 0x400), ("xnack", 0x300, 0x100))
_SIGNS = {2: "-", 3: "+"}  # off and on
SECTION = ".hip_fatbin"  # where clang puts the bundles of an ELF file
# In a PE file the names of sections have eight characters at most.
_SECTIONS: dict[Format, str] = {"elf": SECTION, "pe": ".hip_fat"}


def target_of(view: View) -> TargetId:
    """The target of a code object.

    Raises:
        WheelError: it is not a 64-bit little-endian ELF file, or names a processor that is not known here.
    """
    if view.read(_CLASS_AT, len(_WIDE_LITTLE)) != _WIDE_LITTLE:
        raise WheelError("a code object that is not a 64-bit little-endian ELF file")
    flags = int.from_bytes(view.read(_FLAGS_AT, 4), "little")
    place = (flags & _PROCESSOR) - _FIRST
    processor = _PROCESSORS[place] if 0 <= place < len(_PROCESSORS) else ""
    processor = "gfx1250-strict" if flags & _PROCESSOR == _STRICT else processor
    if not processor:
        raise WheelError(f"a code object for an unknown processor ({flags & _PROCESSOR:#x})")
    if view.read(_ABI_VERSION_AT, 1)[0] <= _V3:
        features = [f"{name}+" for name, bit in _V3_FEATURES if flags & bit]
    else:
        states = ((name, (flags & mask) // unit) for name, mask, unit in _FEATURES)
        features = [f"{name}{_SIGNS[state]}" for name, state in states if state in _SIGNS]
    return TargetId(processor=processor, features=tuple(features))


class CodeObject(msgspec.Struct, frozen=True, kw_only=True):
    """The code of one target in one bundle, or in a file of its own.

    Attributes:
        target: what it was compiled for.
        size: bytes, unpacked.
        compressed: whether its bundle is.
        offset: where its bundle begins, counted from the start of what was read.
    """

    target: TargetId
    size: int
    compressed: bool
    offset: int


def of_elf(data: bytes) -> tuple[CodeObject, ...]:
    """The code objects of a whole ELF file; none when it has no device code.

    Raises:
        WheelError: it is not an ELF file, or malformed.
    """
    view = BytesView(data)
    return of_view(view, elf.read_view(view))


def of_view(view: View, image: Image, checker: Checker | None = None) -> tuple[CodeObject, ...]:
    """The code objects of an ELF or PE file; see `bundle.read_range`."""
    if image.machine == DEVICE:
        target = target_of(view)
        return (CodeObject(target=target, size=view.size, compressed=False, offset=0),)
    return tuple(code for start, end in ranges(image) for code in read_range(view, start, end, checker))


def ranges(image: Image) -> Iterator[tuple[int, int]]:
    """The ranges of a file that hold bundles; `image` must have its sections."""
    for section in image.sections:
        if section.name == _SECTIONS[image.format]:
            yield section.offset, section.offset + section.size


def bundles_of(view: View) -> Iterator[Bundle]:
    """The offload bundles of a library of Linux or Windows.

    Raises:
        WheelError: it is neither, or malformed.
    """
    windows = view.read(0, min(len(pe.MAGIC), view.size)) == pe.MAGIC
    for start, end in ranges(pe.read_view(view) if windows else elf.read_view(view)):
        yield from offload_bundle.read_range(view, start, end)


def read_range(view: View, start: int, end: int, checker: Checker | None = None) -> Iterator[CodeObject]:
    """The code objects of every bundle between two places.

    Raises:
        WheelError: there is anything but bundles and zeros between them.
    """
    for bundle in offload_bundle.read_range(view, start, end, checker):
        for entry in bundle.device_entries:
            yield CodeObject(
                target=target_of_entry(entry.id),
                size=entry.size,
                compressed=bundle.packing is not None,
                offset=bundle.at,
            )


def target_of_entry(entry: str) -> TargetId:
    """The target of a bundle's entry such as `hipv4-amdgcn-amd-amdhsa--gfx90a:xnack+`.

    Raises:
        WheelError: it names none.
    """
    # The kind of the offload and a triple, whose last part is empty or absent, stand before the target.
    _, mark, rest = entry.partition("-gfx")
    try:
        return parse_target_id(mark[1:] + rest)
    except UsageError as error:
        raise WheelError(f"the offload bundle entry {entry!r} names no target") from error


# Tensile writes library/TensileLibrary_…_gfx942.dat and library/gfx942/…, AOTriton …images/amd-gfx942/….
# Debian has rocblas/4.4.1/library in place of rocblas/library.
_BY_WORD = re.compile(
    r"(?:^|/)(?:(?:rocblas|hipblaslt|hipsparselt)(?:/[0-9.]+)?/library|aotriton\.images)/(?P<below>.+)",
    re.IGNORECASE,
)
PROCESSOR = re.compile(r"(?<![0-9a-z])gfx(?:[0-9]+(?:-[0-9]+)*-generic|[0-9a-f]+(?:-strict)?)(?![0-9a-z])")
"""A target in a path, such as `gfx942` or `gfx11-generic`."""
# MIOpen's are named after the processor and its count of compute units: `_60`, or for more than 64 of them in
# hex without anything between, as in gfx90a68.kdb (MIOpen, `Handle::GetDbBasename`).
_OF_MIOPEN = re.compile(r"(?:^|/)miopen/db/(?P<name>gfx[0-9a-f]+)(?:_[0-9]+)?\.[^/]+")

# What shows that a wheel has a library whose data may lack a target, in lower case.
_MARKS = {
    "AOTriton": ("libaotriton", "aotriton.images/"),
    "hipBLASLt": ("libhipblaslt.", "/hipblaslt.dll", "hipblaslt/library/"),
    "hipSPARSELt": ("libhipsparselt.", "hipsparselt/library/"),
    "MIOpen": ("libmiopen.", "/miopen.dll", "miopen/db/"),
    "RCCL": ("librccl.", "rccl/msccl-algorithms/"),
}
_LIBRARY = re.compile(
    r"(?:^|/)(?:(?:lib)?(?P<name>rocblas|hipblaslt|hipsparselt|rccl)\.(?:so|dll)[^/]*$"
    r"|(?P<folder>rocblas|hipblaslt|hipsparselt)(?:/[0-9.]+)?/library/)",
    re.IGNORECASE,
)
# hipBLASLt opens these two for the GPU that it meets: the list of kernels, of which all the other files are
# parts, and what comes before and after a product. hipSPARSELt has the first (its CMakeLists.txt).
# ROCm/rocm-libraries b5e619f, projects/hipblaslt/tools/scripts/validate_library_layout.py
_NEEDED = {
    "TensileLibrary_lazy_{}.dat": re.compile(
        r"(?:^|/)TensileLibrary(?:_lazy)?(?:_gfx[^/_.]+)?\.(?:dat|yaml)[^/]*$"
    ),
    "extop_{}.co": re.compile(r"(?:^|/)extop(?:_gfx[^/_.]+)?\.co$"),
}


def unjudged(paths: Iterable[str], judged: Collection[str]) -> list[str]:
    """The libraries among the paths of a wheel whose data may lack a target, without those `judged`."""
    text = "\n".join(paths).lower()
    return [
        name
        for name, marks in _MARKS.items()
        if name.lower() not in judged and any(mark in text for mark in marks)
    ]


def library_of(path: str) -> str:
    """The library that a file is, or has data of, in lower case: `hipblaslt`; else empty."""
    match = _LIBRARY.search(path)
    return (match["name"] or match["folder"]).lower() if match else ""


def lacking(paths: Collection[str]) -> dict[str, list[str]]:
    """Each processor that has files in the folder of hipBLASLt or hipSPARSELt, and which others it needs.

    Args:
        paths: of the files with content, below the folder.
    """
    by_processor: dict[str, set[str]] = {}
    for path in paths:
        for processor in PROCESSOR.findall(path):
            by_processor.setdefault(processor, set()).add(path)
    needed: dict[str, list[str]] = {}
    for template, pattern in _NEEDED.items():
        matching = {path for path in paths if pattern.search(path)}
        if any(not PROCESSOR.search(path) for path in matching):  # one for all
            continue
        for processor, files in by_processor.items() if matching or template.startswith("Tensile") else ():
            if files.isdisjoint(matching):
                needed.setdefault(processor, []).append(template.format(processor))
    return needed


def folder_of(path: str) -> str:
    """The folder that has the databases of one library, where the path is in such a folder; else empty."""
    match = _BY_WORD.search(path)
    return path[: match.start("below")].rstrip("/") if match else ""


def named_processor(path: str, processors: Collection[str]) -> str | None:
    """The one processor that the path of a database names; None where it is no database, or names several.

    Args:
        path: with forward slashes.
        processors: the processors that a name of MIOpen's may begin with.
    """
    if match := _OF_MIOPEN.search(path):
        # No name of a processor is the beginning of another's.
        return next((name for name in processors if match["name"].startswith(name)), None)
    if match := _BY_WORD.search(path):
        processors = set(PROCESSOR.findall(match["below"]))
        return processors.pop() if len(processors) == 1 else None
    return None


def database_processor(path: str, processors: Collection[str]) -> str | None:
    """The one processor that a file is a database for, by its path in a wheel; None where there is no such.

    ROCm's math libraries bring kernels, and what is known of their speed, as files beside them, which the
    library opens by the name of the GPU that it meets. They are not packed into archives: each goes to the
    device wheel of its processor under its own path. A name counts whole: `gfx90a` is not `gfx90`, and
    `amd-gfx11xx` is for several. What names several processors, or none, such as the fallback kernels of
    Tensile, stays in the host wheel.

    Args:
        path: in the wheel.
        processors: those that the wheel has device code for.
    """
    processor = named_processor(path, processors)
    return processor if processor in processors else None

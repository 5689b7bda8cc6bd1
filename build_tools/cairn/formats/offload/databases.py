"""Finding the processor that a database of ROCm's math libraries (kernels, tuning tables) is for."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

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

# What shows that a wheel has a library whose data per target no rule knows, in lower case.
_UNJUDGED = {
    "AOTriton": ("libaotriton", "aotriton.images/"),
    "hipBLASLt": ("libhipblaslt.", "/hipblaslt.dll", "hipblaslt/library/"),
    "hipSPARSELt": ("libhipsparselt.", "hipsparselt/library/"),
    "MIOpen": ("libmiopen.", "/miopen.dll", "miopen/db/"),
    "RCCL": ("librccl.", "rccl/msccl-algorithms/"),
}


def unjudged(paths: Iterable[str]) -> list[str]:
    """The libraries among the paths of a wheel whose data may lack a target: nobody lists what each needs."""
    text = "\n".join(paths).lower()
    return [name for name, marks in _UNJUDGED.items() if any(mark in text for mark in marks)]


def folder_of(path: str) -> str:
    """The folder that has the databases of one library, where the path is in such a folder; else empty."""
    match = _BY_WORD.search(path)
    return path[: match.start("below")].rstrip("/") if match else ""


def named_processor(path: str, known: Collection[str]) -> str | None:
    """The one processor that the path of a database names; None where it is no database, or names several.

    Args:
        path: with forward slashes.
        known: the processors that a name of MIOpen's may begin with.
    """
    if match := _OF_MIOPEN.search(path):
        # No name of a processor is the beginning of another's.
        return next((name for name in known if match["name"].startswith(name)), None)
    if match := _BY_WORD.search(path):
        named = set(PROCESSOR.findall(match["below"]))
        return named.pop() if len(named) == 1 else None
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

"""What stands in a library in place of its device code: the content of its section `.rocm_kpack_ref`.

It is a map in MessagePack: `kpack_search_paths`, a list of texts, and `kernel_name`, a text. Each wrapper of
the library leads to it. A search path counts from the library's folder; the runtime puts the target of the
GPU in place of `@GFXARCH@`: with all its features (`gfx90a:sramecc+:xnack-`), then with fewer of them. It
looks for the key `<kernel_name>#<ordinal of the wrapper>` in the first archive that exists.
"""

from __future__ import annotations

import msgspec

from cairn import datafile
from cairn.errors import WheelError
from cairn.formats.kpack import msgpack

SECTION = ".rocm_kpack_ref"
PLACEHOLDER = "@GFXARCH@"
LARGEST = 64 << 10  # bytes: the runtime reads no more


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `.rocm_kpack_ref`.

    Attributes:
        kpack_search_paths: where the archives are, in the order in which they are tried.
        kernel_name: what the library is called in them.
    """

    kpack_search_paths: tuple[str, ...]
    kernel_name: str


def dumps(reference: Reference) -> bytes:
    """The content of the section.

    Raises:
        WheelError: it is more than the runtime reads.
    """
    data = msgspec.msgpack.encode(reference)
    if len(data) > LARGEST:
        raise WheelError(f"the search paths of {reference.kernel_name:.80} take {len(data)} bytes")
    return data


def loads(data: bytes) -> Reference:
    """Read the content of the section; zeros may follow it.

    Raises:
        WheelError: it is malformed.
    """
    if len(data) > LARGEST:
        raise WheelError(f"a section {SECTION} of {len(data)} bytes")
    try:
        return datafile.convert(msgpack.loads(data, padded=True), Reference)
    except msgspec.ValidationError as error:
        raise WheelError(f"a section {SECTION} that is malformed: {error}") from error


def key_of(kernel_name: str, ordinal: int) -> str:
    """The key in an archive's table of the code that the wrapper of that ordinal leads to."""
    return f"{kernel_name}#{ordinal}"

"""What stands in a library in place of its device code: the content of its section `.rocm_kpack_ref`.

It is a map in MessagePack: `kpack_search_paths`, a list of texts, and `kernel_name`, a text. Each wrapper of
the library leads to it. A search path counts from the library's folder; the runtime puts the target of the
GPU in place of `@GFXARCH@`: with all its features (`gfx90a:sramecc+:xnack-`), then with fewer of them. It
looks for the key `<kernel_name>#<ordinal of the wrapper>` in the first archive that exists.

To the runtime a kernel name is any text. Ours ends with the build that the code is of: `lib/libx.so@` and 16
hex digits. So a library does not find the code of a different build, which lies beside it when the host wheel
alone was upgraded, and which would be started with arguments that it does not expect.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

import msgspec

from cairn import datafile
from cairn.errors import WheelError
from cairn.formats.kpack import msgpack

REFERENCE_SECTION = ".rocm_kpack_ref"
PLACEHOLDER = "@GFXARCH@"
LARGEST_REFERENCE = 64 << 10  # bytes: the runtime reads no more
_BUILD_LENGTH = 16  # hex digits: 64 bits tell builds apart, which nobody makes to be mistaken for each other
_BUILD = re.compile(rf"@[0-9a-f]{{{_BUILD_LENGTH}}}(?=#\d+$|$)")


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `.rocm_kpack_ref`.

    Attributes:
        kpack_search_paths: where the archives are, in the order in which they are tried.
        kernel_name: what the library is called in them.
    """

    kpack_search_paths: tuple[str, ...]
    kernel_name: str


def dump_reference(reference: Reference) -> bytes:
    """The content of the section.

    Raises:
        WheelError: it is more than the runtime reads.
    """
    data = msgspec.msgpack.encode(reference)
    if len(data) > LARGEST_REFERENCE:
        raise WheelError(f"the search paths of {reference.kernel_name:.80} take {len(data)} bytes")
    return data


def load_reference(data: bytes) -> Reference:
    """Read the content of the section; zeros may follow it.

    Raises:
        WheelError: it is malformed.
    """
    if len(data) > LARGEST_REFERENCE:
        raise WheelError(f"a section {REFERENCE_SECTION} of {len(data)} bytes")
    try:
        return datafile.convert(msgpack.loads(data, padded=True), Reference)
    except msgspec.ValidationError as error:
        raise WheelError(f"a section {REFERENCE_SECTION} that is malformed: {error}") from error


def key_of(kernel_name: str, ordinal: int) -> str:
    """The key in an archive's table of the code that the wrapper of that ordinal leads to."""
    return f"{kernel_name}#{ordinal}"


def build_of(digests: Mapping[str, str]) -> str:
    """What tells a build apart from others of the same version.

    Args:
        digests: path to sha256 of each file with device code, as it was before the split.
    """
    rows = "".join(f"{digest} {path}\n" for path, digest in sorted(digests.items()))
    return hashlib.sha256(rows.encode("utf-8", "surrogateescape")).hexdigest()[:_BUILD_LENGTH]


def kernel_name_of(library: str, build: str) -> str:
    """What a library of a build is called in archives."""
    return f"{library}@{build}"


def without_build(text: str) -> str:
    """A kernel name, or a key, as it is the same in every build."""
    return _BUILD.sub("", text)


def builds_in(texts: Iterable[str]) -> tuple[str, ...]:
    """The builds that kernel names or keys belong to; none of those that other programs have written."""
    matches = map(_BUILD.search, texts)
    return tuple(sorted({match[0][1:] for match in matches if match}))

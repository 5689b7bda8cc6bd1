"""Contract: clang-offload-bundler, several code objects in one file.

Source of the format: LLVM's ClangOffloadBundler page, "Bundled Binary File Layout".
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

from zigtool import zig

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"


_KNOWN = {"type", "targets", "input", "output", "bundle-align", "compression-level", "verbose"}


def main() -> int:
    """Run as `clang-offload-bundler -type=o -targets=A,B -input=F -input=G -output=H`."""
    asked: dict[str, list[str]] = {}
    for word in sys.argv[1:]:
        key, _, value = word.lstrip("-").partition("=")
        if key not in _KNOWN:
            zig.die(f"'{word}' is not supported; this one only bundles, uncompressed")
        asked.setdefault(key, []).append(value)
    targets = [name for value in asked.get("targets", []) for name in value.split(",")]
    inputs = [Path(name).read_bytes() for name in asked.get("input", [])]
    if not targets or len(targets) != len(inputs) or "output" not in asked:
        zig.die(f"{len(targets)} targets and {len(inputs)} inputs; one -input= a target, and -output=")
    align = int(asked.get("bundle-align", ["1"])[0])
    whole, output = bundled(targets, inputs, align), asked["output"][0]
    if output == "-":  # where clang -E of HIP has it write: what ccache takes for the source, preprocessed
        sys.stdout.buffer.write(whole)
    else:
        Path(output).write_bytes(whole)
    return 0


def bundled(targets: list[str], codes: list[bytes], align: int) -> bytes:
    """A plain bundle: magic, count, a table of offset, size and id, then the code objects."""
    table_size = len(MAGIC) + 8 + sum(24 + len(target) for target in targets)
    table, body = [MAGIC, struct.pack("<Q", len(targets))], bytearray()
    for target, code in zip(targets, codes):  # noqa: B905 - Python 3.9 has no strict
        body += b"\0" * (-(table_size + len(body)) % align)
        table.append(struct.pack("<QQQ", table_size + len(body), len(code), len(target)) + target.encode())
        body += code
    return b"".join(table) + bytes(body)

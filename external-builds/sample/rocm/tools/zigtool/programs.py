"""Contract: the programs of a ROCm SDK's `lib/llvm/bin`, each by its own name."""

from __future__ import annotations

import sys
from pathlib import Path

from zigtool import bundle, driver, hipconfig, zig


def main() -> int:
    """Run the program that was called."""
    name = Path(sys.argv[0]).name
    if name == "clang-offload-bundler":
        return bundle.main()
    if name == "hipconfig":
        return hipconfig.main()
    if name in ("ld.lld", "lld"):
        words = sys.argv[1:]
        # clang calls lld as `lld -flavor gnu …`.
        zig.replace("ld.lld", words[2:] if words[:1] == ["-flavor"] else words)
    return driver.main(name=name)

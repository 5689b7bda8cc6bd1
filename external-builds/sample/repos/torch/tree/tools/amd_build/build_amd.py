#!/usr/bin/env python3
"""Contract: hipifies this tree and its submodules, in place; run without arguments, from anywhere.

Needs the standard library only. A tree that holds no CUDA source any more is left alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Loaded by path: torch itself is not built yet, and may be installed in another version.
sys.path.insert(0, str(ROOT / "torch" / "utils" / "hipify"))

from hipify_python import HipifyResult, hipify  # noqa: E402

SUBMODULES = ("third_party/cudakit",)
# The tables and the tests hold CUDA names on purpose.
IGNORES = ("torch/utils/hipify/*", "test/*", "build/*", "third_party/*", "torch/include/*")


def main() -> int:
    missing = [name for name in SUBMODULES if not any((ROOT / name).glob("*"))]
    if missing:
        print(f"submodules are missing: {', '.join(missing)}: run git submodule update --init")
        return 1
    if not any(ROOT.rglob("*.cu")):
        print("already hipified: no CUDA source left")
        return 0
    results = hipify(str(ROOT), ignores=IGNORES)
    for name in SUBMODULES:
        results |= hipify(str(ROOT / name), ignores=("test/*",))
    print(f"hipified {changed(results)} of {len(results)} files")
    return 0


def changed(results: dict[str, HipifyResult]) -> int:
    return sum(result.hipified_path is not None for result in results.values())


if __name__ == "__main__":
    raise SystemExit(main())

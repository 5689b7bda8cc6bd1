"""Has the CPU wheel of PyTorch say that it was built for HIP, in builds of this stack (see stack.toml).

`torch.utils.cpp_extension` decides when it is imported whether extensions are compiled as HIP, by
`torch.version.hip` and by `torch.cuda._is_compiled()`: both are set just before.
"""

from __future__ import annotations

import importlib.abc
import os
import sys


class _BeforeTheExtensionBuilder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "torch.utils.cpp_extension":
            torch = sys.modules["torch"]
            torch.version.hip = "5.2.21153"
            torch.cuda._is_compiled = lambda: True  # noqa: SLF001
            torch.cuda.is_available = lambda: False  # it would ask the CPU wheel for its devices


if "PYTORCH_ROCM_ARCH" in os.environ:
    sys.meta_path.insert(0, _BeforeTheExtensionBuilder())

"""The module through which a linked wheel loads the ROCm SDK's libraries before its own.

torch imports it as `torch._rocm_init` and calls `initialize()` (pytorch's `torch/__init__.py`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_TEMPLATE = '''\
"""Loads the ROCm libraries this torch was built against. Written by the build; do not edit."""


def initialize():
    import rocm_sdk

    rocm_sdk.initialize_process(
        preload_shortnames={preloads},
        check_version={version!r},
    )
'''


_OURS = re.compile(
    re.escape(_TEMPLATE).replace(r"\{preloads\}", r"\[[^\]]*\]").replace(r"\{version!r\}", r"'[^'\n]*'")
)


def is_ours(text: str) -> bool:
    """Whether a module is, to the letter, one that `module_text` wrote."""
    return _OURS.fullmatch(text) is not None


def module_text(*, preloads: Sequence[str], rocm_version: str) -> str:
    """The source of the module.

    Args:
        preloads: shortnames of libraries, in the order they are loaded.
        rocm_version: the version of the SDK that must be installed.
    """
    names = "".join(f"\n            {name!r}," for name in preloads)
    listed = f"[{names}\n        ]" if names else "[]"
    return _TEMPLATE.format(preloads=listed, version=rocm_version)

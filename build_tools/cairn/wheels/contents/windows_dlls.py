"""The DLLs that every Windows has, as delvewheel lists them.

Where Linux has a policy for each tag (`manylinux`), Windows has one list for each machine: a wheel's tag does
not say which Windows it is for.
"""

from __future__ import annotations

import functools
import importlib
import re

from cairn.errors import PrerequisiteError

# What is there wherever Python is: its own DLL, and the C runtime that it brings (but not msvcp140.dll).
_PYTHON = re.compile(r"(?:python|libpypy|vcruntime)[0-9].*\.dll")
# What delvewheel's lists lack: API sets, which are Windows' own and may be absent by design
# (learn.microsoft.com, "Windows API sets"), and what the page of some function there names as its DLL, with
# Windows 10 or an older one for its minimum. No Python since 3.13 runs on an older one.
_API_SETS = ("api-ms-win-", "ext-ms-win-", "ext-ms-onecore-")
_LATER = frozenset(
    (
        *(
            "bluetoothapis.dll",
            "bthprops.cpl",
            "coremessaging.dll",
            "d3d12.dll",
            "d3d8.dll",
            "d3dcompiler_47.dll",
        ),
        *("dcomp.dll", "directml.dll", "dxcore.dll", "gdi32full.dll", "gdiplus.dll", "icu.dll", "icuin.dll"),
        *("icuuc.dll", "mfcore.dll", "msvcp_win.dll", "ncryptprov.dll", "ninput.dll", "olepro32.dll"),
        *("rtworkq.dll", "shcore.dll", "ucrtbase.dll", "wofutil.dll", "xaudio2_9.dll", "xinput1_4.dll"),
    )
)


def on_system(name: str, machine: str) -> bool:
    """Whether every Windows, or every Python on it, has a DLL of that name.

    Args:
        name: the DLL, in upper or lower case.
        machine: as platform tags have it, such as `win_amd64`.

    Raises:
        PrerequisiteError: delvewheel is not installed.
    """
    name = name.lower()
    if name.startswith(_API_SETS) or name in _LATER or _PYTHON.fullmatch(name):
        return True
    names, patterns = _known(machine)
    return name in names or any(pattern.fullmatch(name) for pattern in patterns)


@functools.cache
def _known(machine: str) -> tuple[frozenset[str], tuple[re.Pattern[str], ...]]:
    try:
        lists = importlib.import_module("delvewheel._dll_list")
    except ModuleNotFoundError as error:
        raise PrerequisiteError("delvewheel is not installed", tip="pip install delvewheel") from error
    kind = lists.MachineType.platform_tag_to_type(machine)
    return frozenset(lists.ignore_names.get(kind, ())), tuple(lists.ignore_regexes)

"""Code objects: ELF files for AMD GPUs, in a bundle or as files of their own (`.hsaco`, `.co`).

Source: LLVM's docs/AMDGPUUsage.rst, "Header": the processor and its features stand in `e_flags`.
"""

from __future__ import annotations

from cairn.errors import WheelError
from cairn.targets import TargetId
from cairn.wheels.views import View

MACHINE = "amdgpu"
_FLAGS_AT = 48
_ABI_VERSION_AT = 8
_PROCESSOR = 0xFF
_FIRST = 0x20
# From 0x20 on; an empty word is a number that names nothing here.
_PROCESSORS = (
    *("gfx600", "gfx601", "gfx700", "gfx701", "gfx702", "gfx703", "gfx704", ""),
    *("gfx801", "gfx802", "gfx803", "gfx810", "gfx900", "gfx902", "gfx904", "gfx906"),
    *("gfx908", "gfx909", "gfx90c", "gfx1010", "gfx1011", "gfx1012", "gfx1030", "gfx1031"),
    *("gfx1032", "gfx1033", "gfx602", "gfx705", "gfx805", "gfx1035", "gfx1034", "gfx90a"),
    *("gfx940", "gfx1100", "gfx1013", "gfx1150", "gfx1103", "gfx1036", "gfx1101", "gfx1102"),
    *("gfx1200", "gfx1250", "gfx1151", "gfx941", "gfx942", "", "gfx1201", "gfx950"),
    *("", "gfx9-generic", "gfx10-1-generic", "gfx10-3-generic", "gfx11-generic", "gfx1152", "", ""),
    *("gfx1153", "gfx12-generic", "gfx1251", "", "", "", "", "gfx9-4-generic"),
)
_V3 = 1  # the ABI version of code object version 3, whose feature bits only say yes
_V3_FEATURES = (("sramecc", 0x200), ("xnack", 0x100))
_FEATURES = (("sramecc", 0xC00, 0x400), ("xnack", 0x300, 0x100))
_OFF, _ON = 2, 3


def target_of(view: View) -> TargetId:
    """What a code object was compiled for.

    Raises:
        WheelError: it names a processor that is not known here.
    """
    flags = int.from_bytes(view.read(_FLAGS_AT, 4), "little")
    place = (flags & _PROCESSOR) - _FIRST
    processor = _PROCESSORS[place] if 0 <= place < len(_PROCESSORS) else ""
    if not processor:
        raise WheelError(f"a code object for an unknown processor ({flags & _PROCESSOR:#x})")
    return TargetId(processor=processor, features=tuple(_features(flags, view.read(_ABI_VERSION_AT, 1)[0])))


def _features(flags: int, abi_version: int) -> list[str]:
    if abi_version <= _V3:
        return [f"{name}+" for name, bit in _V3_FEATURES if flags & bit]
    states = ((name, (flags & mask) // unit) for name, mask, unit in _FEATURES)
    return [f"{name}{'+' if state == _ON else '-'}" for name, state in states if state in (_OFF, _ON)]

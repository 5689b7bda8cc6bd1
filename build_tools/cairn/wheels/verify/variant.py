"""Whether a wheel variant is what its file name says: no installer looks into one before it takes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cairn.errors import WheelError
from cairn.formats.zip.reader import Archive
from cairn.targets import in_order, parse_target_id
from cairn.wheels.metadata import variants
from cairn.wheels.metadata.wheel_info import FileName, WheelInfo
from cairn.wheels.verify.findings import Finding, FindingCode


def check(
    archive: Archive, info: WheelInfo, name: FileName, archived: Mapping[str, Sequence[str]]
) -> Iterator[Finding]:
    """Breaches by what a wheel says of the machines that it is for.

    Args:
        archive: the wheel.
        info: what it says about itself.
        name: its file name.
        archived: the paths of its kpack archives, each with the targets that it has code for.
    """
    member = f"{info.dist_info}/{variants.IN_WHEEL}"
    if name.variant is None and member not in archive:
        return
    reason = None
    if member not in archive:
        reason, member = f"it has no {variants.IN_WHEEL}, and its name ends in the label {name.variant}", ""
    else:
        try:
            declared = variants.of_wheel(archive.read(member), info.file_name)
        except WheelError as error:
            reason = str(error)
        else:
            processors = (
                declared.variants[name.variant or ""].get(variants.AMD, {}).get(variants.GFX_ARCH, ())
            )
            actual = {parse_target_id(t).processor for targets in archived.values() for t in targets}
            if processors and actual != set(processors):
                names = ", ".join(in_order(actual)) or "no target"
                reason = f"it is for {', '.join(processors)}, and its kpack archives have code for {names}"
    if reason:
        yield Finding(
            code=FindingCode.VARIANT, member=member or None, reason=reason, fix="make the variants again"
        )

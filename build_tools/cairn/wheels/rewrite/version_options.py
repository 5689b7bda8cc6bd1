"""Which versions wheels get: options of `cairn wheel set-version`, apart from what writes wheels."""

from __future__ import annotations

from dataclasses import dataclass

from cairn.options import Exclusive, option, repeated

_HOW = Exclusive(required=True)


@dataclass(frozen=True, kw_only=True)
class NewVersion:
    """What versions wheels shall get: one of the first three is given."""

    version: str | None = option("the whole new version", group=_HOW)
    rocm_version: str | None = option("the ROCm version for the suffix to name", group=_HOW)
    stage: str | None = option(
        "one stage further: rc1, rc2, … or final", "--promote", metavar="STAGE", group=_HOW
    )
    build: str | None = option(
        "the new build number; an empty text drops it", "--build-number", metavar="BUILD_NUMBER"
    )
    requires: tuple[str, ...] = repeated(
        "a requirement to add, or to replace its own", "--require", metavar="REQUIREMENT"
    )

"""Which device a tensor lives on."""

from __future__ import annotations

from dataclasses import dataclass

_CODES = {"cpu": 0, "cuda": 1}


@dataclass(frozen=True)
class device:  # noqa: N801 - upstream's name
    """`device("cpu")`, `device("cuda")` or `device("cuda:0")`; HIP devices are called cuda."""

    type: str
    index: int | None = None

    def __init__(self, spec: str | device) -> None:
        kind, index = (spec.type, spec.index) if isinstance(spec, device) else _parse(spec)
        object.__setattr__(self, "type", kind)
        object.__setattr__(self, "index", index)

    @property
    def code(self) -> int:
        """The number that the C++ library knows this kind of device by."""
        return _CODES[self.type]

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"


def _parse(spec: str) -> tuple[str, int | None]:
    kind, colon, index = spec.partition(":")
    if kind not in _CODES or (colon and index != "0"):
        known = ", ".join(_CODES)
        raise RuntimeError(f"Expected one of {known} as device type, got {spec!r}")
    return kind, 0 if colon else None

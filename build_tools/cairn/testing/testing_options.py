"""Options of a test run. Light to import, since a parser is made of them for `--help` as well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cairn import converters
from cairn.options import option

_SUCH_AS = "test_nn inductor/test_torchinductor"


def _modules(about: str) -> Any:  # noqa: ANN401 - as `dataclasses.field` gives
    return option(f"{about}, such as {_SUCH_AS}", default=(), metavar="MODULE", nargs="+")


def _seconds(flag: str, step: str, default: float | None) -> Any:  # noqa: ANN401 - as above
    shown_default = "none" if default is None else f"{default:g}"
    return option(f"for {step} (default: {shown_default})", flag, default=default, convert=converters.seconds)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which modules a user wants of a configuration.

    Attributes:
        include: only these, which need not be in it.
        exclude: not these.
    """

    include: tuple[str, ...] = _modules("run only these modules")
    exclude: tuple[str, ...] = _modules("leave these out")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long something may take, in seconds.

    Attributes:
        test: a test with its fixtures, and whatever pytest does between two tests.
        collection: starting pytest and collecting a module.
        all: the whole run; None for as long as it takes.
    """

    test: float = _seconds(
        "--test-timeout", "a test with its fixtures, also where it hangs in C or on a GPU", 900.0
    )
    collection: float = _seconds("--collection-timeout", "importing a module and collecting its tests", 900.0)
    all: float | None = _seconds("--timeout", "everything", None)


@dataclass(frozen=True, kw_only=True)
class Floors:
    """How many tests there must be.

    Attributes:
        tests: fewest that must have run.
        device_tests: fewest that must have passed on a GPU.
    """

    tests: int = option(
        "fewest tests that must run (default: %(default)s)",
        "--floor",
        default=1,
        metavar="FLOOR",
        convert=converters.floor,
    )
    device_tests: int = option(
        "fewest tests that must have passed on a GPU (default: %(default)s)",
        "--device-floor",
        default=0,
        metavar="DEVICE_FLOOR",
        convert=converters.floor,
    )

"""The file with facts of a set and its environment that the built-in checks read."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from cairn import datafile
from cairn.wheels.wheelset import WheelSet

VARIABLE = "CAIRN_SMOKE_FACTS"
"""The environment variable that holds the path of the file."""


class WheelFacts(datafile.Value):
    """One wheel of the set.

    Attributes:
        distribution: canonical name.
        version: as the set has it.
        targets: the targets it has device code for, as the set has it.
        modules: what must import.
    """

    distribution: str
    version: str
    targets: tuple[str, ...]
    modules: tuple[str, ...]


class SmokeFacts(datafile.Value, tag_field="schema", tag="cairn.smoke-facts/1"):
    """A set and the environment it was installed into.

    Attributes:
        python: the environment's interpreter.
        site_packages: where its packages are.
        targets: what the set was built for.
        siblings: distribution to the version that requirements on it must pin.
        wheels: those of the set.
    """

    python: str
    site_packages: tuple[str, ...]
    targets: tuple[str, ...]
    siblings: Mapping[str, str]
    wheels: tuple[WheelFacts, ...]


def collect(
    wheel_set: WheelSet,
    *,
    python: Path,
    site_packages: Sequence[Path],
    imports: Mapping[str, tuple[str, ...]],
    siblings: Mapping[str, str],
) -> SmokeFacts:
    """Collect the facts of an installed set; `SmokeRequest` documents `imports` and `siblings`."""
    wheels = wheel_set.wheels
    modules_by_name: dict[str, tuple[str, ...]] = {
        canonicalize_name(name): modules for name, modules in imports.items()
    }
    pinned = siblings or {wheel.distribution: wheel.version for wheel in wheels}
    return SmokeFacts(
        python=str(python),
        site_packages=tuple(map(str, site_packages)),
        targets=wheel_set.targets,
        siblings={canonicalize_name(name): version for name, version in pinned.items()},
        wheels=tuple(
            WheelFacts(
                distribution=canonicalize_name(wheel.distribution),
                version=wheel.version,
                targets=wheel.targets,
                modules=modules_by_name.get(wheel.distribution)
                or _top_level(wheel.distribution, site_packages),
            )
            for wheel in wheels
        ),
    )


def _top_level(distribution: str, site_packages: Sequence[Path]) -> tuple[str, ...]:
    """Return the top-level packages and modules of an installed distribution."""
    # From RECORD, not from a guess by the distribution's name: PyYAML is imported as yaml.
    distributions = importlib.metadata.distributions(path=[str(site) for site in site_packages])
    match = next((d for d in distributions if canonicalize_name(d.name) == distribution), None)
    paths = [file.parts for file in (match.files if match else None) or ()]
    packages = {parts[0] for parts in paths if parts[1:] == ("__init__.py",)}
    modules = {
        parts[0].removesuffix(".py") for parts in paths if len(parts) == 1 and parts[0].endswith(".py")
    }
    return tuple(sorted(name for name in packages | modules if name.isidentifier()))

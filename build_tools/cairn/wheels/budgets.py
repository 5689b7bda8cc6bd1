"""What a wheel has more of, or lost more of against the one before, than its budget allows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from packaging.utils import canonicalize_name

from cairn.output import wording
from cairn.stack import Budget
from cairn.wheels.interface.model import Interface
from cairn.wheels.metadata import wheel_info

# The beginning of a mangled name of C++: special names such as `TV`, `N` of a nested one, its qualifiers
# (Itanium C++ ABI, 5.1).
_MANGLED = r"_Z(?:T[VTIS]|GV)?N?[rVKRO]*"


def over(
    budget: Budget, old: Interface | None, new: Interface, *, import_seconds: float = 0
) -> Iterator[tuple[str, str]]:
    """The fields of a budget that a wheel is over, each with a sentence that has the number.

    Args:
        budget: the most that it may have.
        old: the wheel of the last set; None where there is none, and what is lost or gained is not counted.
        new: the wheel.
        import_seconds: how long its import takes; 0 where that is not known.
    """
    spills = sum(kernel.vgpr_spills + kernel.sgpr_spills for kernel in new.kernels)
    for name, count, unit in (
        ("wheel_size", new.size, "bytes"),
        ("installed_size", new.unpacked_size, "bytes unpacked"),
        ("spills", spills, "registers spilled"),
    ):
        most = getattr(budget, name)
        if most is not None and count > most:
            yield name, f"{count} {unit}, {count - most} over the budget of {most}"
    if budget.import_seconds is not None and import_seconds > budget.import_seconds:
        text = f"{import_seconds:.2f} seconds for its import, where the budget is {budget.import_seconds:.2f}"
        yield "import_seconds", text
    for name, lost, what in _changes(budget, old, new) if old is not None else ():
        most = getattr(budget, name)
        if most is not None and len(lost) > most:
            yield name, f"{len(lost)} {what}, where the budget is {most}: {wording.some(lost)}"


def _changes(budget: Budget, old: Interface, new: Interface) -> Iterator[tuple[str, Sequence[str], str]]:
    targets = sorted(set(old.targets) - set(new.targets))
    yield "targets_lost", targets, f"targets lost since {old.version}"
    before, after = ({(kernel.name, kernel.target) for kernel in wheel.kernels} for wheel in (old, new))
    kernels = sorted(f"{name} for {target}" for name, target in before - after if target not in targets)
    yield "kernels_lost", kernels, f"kernels lost since {old.version}"
    parts = "|".join("".join(f"{len(part)}{part}" for part in name.split("::")) for name in budget.namespaces)
    counted = re.compile(f"{_MANGLED}(?:{parts})" if parts else "")
    symbols = sorted(name for name in old.exported - new.exported if counted.match(name))
    yield "symbols_lost", symbols, f"symbols lost since {old.version}"
    required, requires = _exact(old), _exact(new)
    yield (
        "new_requirements",
        sorted(requires.keys() - required.keys()),
        f"requirements new since {old.version}",
    )
    loose = sorted(name for name, exact in requires.items() if required.get(name) and not exact)
    yield "loosened_requirements", loose, f"requirements that were exact in {old.version}"


def _exact(wheel: Interface) -> dict[str, bool]:
    """The distributions that a wheel requires, and whether in an exact version."""
    exact: dict[str, bool] = {}
    for text in wheel.requires_dist:
        requirement = wheel_info.requirement(text)
        if "extra" not in str(requirement.marker or ""):
            is_exact = any(specifier.operator in ("==", "===") for specifier in requirement.specifier)
            name = str(canonicalize_name(requirement.name))
            exact[name] = exact.get(name, False) or is_exact
    return exact

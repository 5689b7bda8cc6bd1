"""What AMD publishes about its targets as a package, `rocm-bootstrap`, and what targets.toml has of it.

Bump the version in pyproject.toml, run this, and repair targets.toml, or name the difference here.
"""

from __future__ import annotations

from rocm_bootstrap import package_metadata
from rocm_bootstrap import targets as theirs

from cairn import targets
from cairn.wheels.metadata import device_names

DIFFERENCES = {
    "gfx803": "too old for ROCm's packages; wheels on PyPI have code for it",
    "gfx940": "a first stepping that was never sold; wheels on PyPI have code for it",
    "gfx941": "a first stepping that was never sold; wheels on PyPI have code for it",
    # LLVM, AMDGPU usage guide, "Generic Processors"; the package has one generic target a group of its own.
    "gfx9-4-generic": "gfx950 runs its code too, and gfx940 and gfx941 did",
    "gfx12-5-generic": "LLVM has it since version 22",
}
"""Where the two differ, and why."""


def test_targets_generic_targets_xnack_and_owners_are_those_of_rocm_bootstrap() -> None:
    here: dict[str, object] = {
        **dict.fromkeys((*targets.known_targets(), *targets.unbuilt_targets()), "a target"),
        **{name: frozenset(members) for name, members in targets.generic_targets().items()},
    }
    there: dict[str, object] = {target.name: "a target" for target in theirs.ALL_TARGETS}
    for bundle in (*theirs.ALL_FAMILIES, *theirs.ALL_SUB_FAMILIES):
        if bundle.llvm_generic:
            there[bundle.llvm_generic] = frozenset(target.name for target in bundle.members)
    # The bundle also has what its generic target does not cover, as a comment there says.
    there["gfx9-generic"] = frozenset(there["gfx9-generic"]) - {"gfx908", "gfx90a"}  # type: ignore[arg-type]
    assert len(theirs.ALL_TARGETS) > 30
    different = {name for name in here.keys() | there.keys() if here.get(name) != there.get(name)}
    assert different == set(DIFFERENCES), "a difference without a reason, or a reason without a difference"


def test_xnack_can_be_chosen_where_the_hardware_has_it() -> None:
    modes = {target.name: target.xnack is not theirs.XnackMode.UNSUPPORTED for target in theirs.ALL_TARGETS}
    ours = {name: "xnack" in targets.features(name) for name in targets.known_targets()}
    assert ours == {name: modes[name] for name in ours}


def test_packages_are_owned_as_rocm_bootstrap_says() -> None:
    names = [target.name for target in theirs.ALL_TARGETS]
    owners = {name: targets.package_owner(name) for name in names}
    assert owners == {name: package_metadata.package_owner(name) for name in names}
    assert {name for name, owner in owners.items() if name != owner} == {"gfx1250-strict"}
    assert device_names.extra_of("gfx1250-strict") == "device-gfx1250"
    extras = device_names.extras_of(["gfx1250-strict", "gfx1250"])
    assert extras["device-gfx1250"] == ("gfx1250", "gfx1250-strict")
    for name in ("gfx90a:xnack+", "gfx942:sramecc+:xnack-"):
        assert targets.package_owner(name) == package_metadata.package_owner(name)

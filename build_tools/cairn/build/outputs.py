"""The files beside the wheels of a build: the manifest of its sources, and the set of its wheels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cairn import files
from cairn import targets as gpu
from cairn.build import rocm_sdk
from cairn.build.inputs import downloads, machine
from cairn.build.model import BuildRequest, BuiltWheel
from cairn.errors import UsageError
from cairn.output import console
from cairn.sources.checkout import describe
from cairn.sources.checkout.describe import Checkout
from cairn.sources.manifest import manifest
from cairn.sources.manifest.manifest import Manifest
from cairn.stack import recipe
from cairn.wheels import build_statement, wheels_to_set
from cairn.wheels import wheelset as wheel_sets
from cairn.wheels.wheelset import BUILDER_FILE


def write(request: BuildRequest, wheels: Sequence[BuiltWheel], frozen: Manifest) -> None:
    """Write the manifest of the sources, the (open) set of the wheels, and the builder's statement.

    Raises:
        WheelError: a wheel is not of the manifest's commits: a tree was moved meanwhile.
    """
    for name in ("set.json", BUILDER_FILE):  # of an earlier build; one that is refused leaves none
        (request.output_dir / name).unlink(missing_ok=True)
    manifest.write(request.output_dir / "manifest.json", frozen)
    wheel_set = wheels_to_set.make(
        [file for wheel in wheels for file in wheel.files],
        manifest_sha256=frozen.digest(),
        stack=request.stack.name,
        line=request.stack.line,
        python=request.python.version,
        platform=request.python.platform,
        family=gpu.family_of(request.targets),
        targets=request.targets,
        requirements=rocm_sdk.runtime_requirements(request.sdk, devices=not request.split)
        if request.sdk
        else (),
    )
    statement = build_statement.of_set(
        wheel_set,
        [file for wheel in wheels for file in wheel.files],
        manifest=frozen.canonical(),
        inputs={
            **(request.sdk.files if request.sdk else {}),
            **{wheel.project: wheel.first_key for wheel in wheels},
        },
    )
    wheel_sets.write(request.output_dir / "set.json", wheel_set)
    if edited := [wheel.project for wheel in wheels if wheel.edited]:
        console.current().warn(
            f"{', '.join(edited)} was edited while it was built: nobody can say what the set is of, and it "
            "cannot be published; build it again"
        )
        return
    files.write_bytes(request.output_dir / BUILDER_FILE, build_statement.encode(statement))


def trees_of(requests: Sequence[BuildRequest]) -> dict[str, tuple[Checkout, ...]]:
    """Describe the trees of each line as builds are about to find them.

    What a build leaves there is not in a manifest: whoever checks that out does not have it.
    """
    of_line = {request.stack.line: request for request in requests}
    return {
        line: tuple(describe.describe(p, job.checkouts[p.name]) for p in job.projects())
        for line, job in of_line.items()
    }


def manifests(
    requests: Sequence[BuildRequest], trees: Mapping[str, Sequence[Checkout]]
) -> tuple[Manifest, ...]:
    """Make the manifest of each build from its sources.

    Families and Pythons of one line and SDK share it: the index takes the wheels of one version from one
    manifest only.

    Args:
        requests: the builds of one run, now over.
        trees: the checkouts of each line, as they were before that.
    """
    groups: dict[tuple[str, str | None], list[BuildRequest]] = {}
    for request in requests:
        groups.setdefault(_shares(request), []).append(request)
    by_group = {key: _manifest_of(group, trees[key[0]]) for key, group in groups.items()}
    return tuple(by_group[_shares(request)] for request in requests)


def _shares(request: BuildRequest) -> tuple[str, str | None]:
    """Return the properties that builds of one manifest have in common."""
    return (request.stack.line, request.sdk.info.version if request.sdk else None)


def _manifest_of(group: Sequence[BuildRequest], trees: Sequence[Checkout]) -> Manifest:
    first = group[0]
    tools = [
        machine.toolchain_of_manifest(job.python, host_compiler=job.sdk is None, build_env=job.build_env)
        for job in group
    ]
    pythons = dict.fromkeys(tool["python"] for tool in tools)
    return manifest.create(
        [tree for tree in trees if tree.project.name in first.checkouts],
        stack=first.stack.name,
        line=first.stack.line,
        targets=gpu.in_order(target for job in group for target in job.targets)
        if len(group) > 1
        else first.targets,
        pythons=tuple(dict.fromkeys(job.python.version for job in group)),
        platform=first.python.platform,
        sdk_version=first.sdk.info.version if first.sdk else None,
        build_env=first.build_env,
        toolchain=tools[0] | {"python": "; ".join(pythons)},
        downloads=downloads.sources(group),
        recipe=recipe.digest_of(first.stack),
    )


def refuse_other_manifest(request: BuildRequest) -> None:
    """Refuse a manifest that the build cannot be of; whether its trees are here, `manifest.require` says.

    Raises:
        UsageError: it was frozen for something else than what is asked for.
    """
    if (frozen := request.frozen) is None:
        return
    has_sdk = request.sdk.info.version if request.sdk else None
    wrong = [
        f"{what} {frozen_as}, not {requested}"
        for what, frozen_as, requested in (
            ("stack", frozen.stack, request.stack.name),
            ("line", frozen.line, request.stack.line),
            ("ROCm SDK", frozen.sdk_version, has_sdk if request.sdk else frozen.sdk_version),
            ("variables", dict(frozen.build_env), dict(request.build_env)),
            ("recipe", frozen.recipe, recipe.digest_of(request.stack)),
        )
        if frozen_as != requested
    ]
    for what, frozen_values, asked_for in (
        ("Python", frozen.pythons, (request.python.version,)),
        ("platform", frozen.every_platform, (request.python.platform,)),
        ("targets", frozen.targets, request.targets),
    ):
        if lacking := [name for name in asked_for if name not in frozen_values]:
            wrong.append(f"{what} {', '.join(frozen_values)}, not {', '.join(lacking)}")
    if wrong:
        raise UsageError(
            f"the manifest was frozen for something else: {'; '.join(wrong)}",
            tip="freeze one for this build, or build what it was frozen for",
        )

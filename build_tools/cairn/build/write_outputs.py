"""What a finished build writes beside its wheels: `manifest.json` and `set.json`."""

from __future__ import annotations

from collections.abc import Sequence

from cairn import targets as gpu
from cairn.build import rocm_sdk
from cairn.build.inputs import toolchain
from cairn.build.model import BuildRequest, BuiltWheel, platform_tag, python_version
from cairn.sources.checkout.checkout import Checkout
from cairn.sources.manifest import manifest
from cairn.wheels import wheelset as wheel_sets
from cairn.wheels.wheelset import WheelSet


def write(request: BuildRequest, wheels: Sequence[BuiltWheel], checkouts: Sequence[Checkout]) -> WheelSet:
    """Write the manifest of what was built from, and the set that the wheels form.

    Args:
        request: the build.
        wheels: what it made.
        checkouts: the trees of the projects that were built.
    """
    frozen = manifest.create(
        checkouts,
        stack=request.stack.name,
        line=request.stack.line,
        targets=request.targets,
        pythons=(python_version(),),
        platform=platform_tag(),
        sdk_version=request.sdk.info.version if request.sdk else None,
        build_env=request.build_env,
        toolchain=toolchain.of_manifest(host_compiler=request.sdk is None),
    )
    manifest.write(request.output_dir / "manifest.json", frozen)
    wheel_set = wheel_sets.make(
        [wheel.wheel for wheel in wheels],
        manifest_sha256=frozen.digest(),
        stack=request.stack.name,
        python=python_version(),
        platform=platform_tag(),
        family=gpu.family_of(request.targets),
        targets=request.targets,
        requirements=rocm_sdk.runtime_requirements(request.sdk) if request.sdk else (),
    )
    wheel_sets.write(request.output_dir / "set.json", wheel_set)
    return wheel_set

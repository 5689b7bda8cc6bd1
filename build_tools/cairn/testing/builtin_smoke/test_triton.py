# ruff: noqa: D103 - a pytest file: the names say what must hold
"""Check that triton compiles a kernel for each target of the set; this needs no GPU."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from cairn.errors import WheelError
from cairn.formats.offload import code_object
from cairn.targets import parse_target_id
from cairn.testing.builtin_smoke.environment import facts, require, run_inside, target_list

# What triton's AMD backend says of a target that it has no code generation for (triton,
# third_party/amd/lib/TritonAMDGPUToLLVM/).
_UNKNOWN = "unsupported target: '{}'"


def test_triton_compiles_a_kernel(target: str) -> None:
    places = [Path(site, "triton") for site in facts().site_packages]
    if not any(place.joinpath("__init__.py").exists() for place in places):
        pytest.skip("triton is not installed")
    if not any(place.joinpath("backends", "amd", "compiler.py").exists() for place in places):
        pytest.skip("this triton has no AMD backend")
    processor = parse_target_id(target).processor
    kernel, messages = compiled()[processor]
    if kernel is None and _UNKNOWN.format(processor) in messages:
        pytest.skip(f"triton does not know {processor}")
    require(kernel is not None, f"triton compiled nothing for {processor}:\n{messages}")
    try:
        targets = [str(code.target) for code in code_object.of_elf(kernel or b"")]
    except WheelError as error:
        pytest.fail(f"what triton compiled for {processor} is not a code object: {error}", pytrace=False)
    processors = {parse_target_id(name).processor for name in targets}
    require(processors == {processor}, f"asked for {processor}, triton compiled for {target_list(targets)}")


@functools.cache
def compiled() -> dict[str, tuple[bytes | None, str]]:
    """Map each processor to its code object, or None, and triton's message; one process compiles all."""
    processors = sorted({parse_target_id(target).processor for target in facts().targets})
    return {
        name: (bytes.fromhex(code) if code is not None else None, messages)
        for name, (code, messages) in run_inside("compile_kernel.py", processors).items()
    }

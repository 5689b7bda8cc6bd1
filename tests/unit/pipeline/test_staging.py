"""What is installed before a stack is checked out."""

from __future__ import annotations

from pathlib import Path

import msgspec

from cairn import process
from cairn.pipeline import staging
from helpers.gate import stack_of
from helpers.release import make_set, make_wheel


def test_the_torch_that_hipifies_checkouts_is_installed_once(tmp_path: Path) -> None:
    """A challenge takes it, too: the Python that runs Cairn need not have any."""
    wheel = make_wheel(tmp_path, "torch", "2.13.0")
    stack, log = stack_of(make_set([wheel])), tmp_path / "tools.log"
    assert staging.hipify_python(stack, tmp_path / "tools", log=log) is None
    (project,) = stack.projects
    stack = msgspec.structs.replace(
        stack,
        projects=(msgspec.structs.replace(project, hipify="torch-utils"),),
        extra_wheels=(f"torch @ {wheel.as_uri()}",),
    )
    lines: list[str] = []
    python = staging.hipify_python(stack, tmp_path / "tools", log=log, say=lines.append)
    assert python is not None
    assert process.run([python, "-c", "import torch; print(torch.VERSION)"]).output.strip() == "2.13.0"
    before = len(lines)
    assert staging.hipify_python(stack, tmp_path / "tools", log=log, say=lines.append) == python
    assert len(lines) == before

"""The program that writes docs/reference, and the package, parsed once for all tests of a worker."""

import ast
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def trees() -> dict[str, ast.Module]:
    """Parse each module of the package, in three CPU seconds; tests that share it belong in one worker."""
    package = ROOT / "build_tools" / "cairn"
    paths = sorted(package.rglob("*.py"))
    return {path.relative_to(package).as_posix(): ast.parse(path.read_text("utf-8")) for path in paths}


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_reference", ROOT / "docs/generate_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

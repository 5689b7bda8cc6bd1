"""The pages of docs/reference that follow from the code say what the code says."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_reference", ROOT / "docs/generate_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_up_to_date(generator: ModuleType) -> None:
    stale = [
        name
        for name, text in generator.pages().items()
        if not (path := generator.REFERENCE / name).is_file() or path.read_text(encoding="utf-8") != text
    ]
    assert stale == [], "run `python3 dev.py docs`"


def test_no_schema_is_left_from_a_format_that_is_gone(generator: ModuleType) -> None:
    written = {name for name in generator.pages() if name.startswith("schemas/")}
    assert {f"schemas/{path.name}" for path in (generator.REFERENCE / "schemas").iterdir()} == written

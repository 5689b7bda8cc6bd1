"""The pages of docs/reference that follow from the code say what the code says."""

from pathlib import Path
from types import ModuleType

import pytest

from cairn import datafile

ROOT = Path(__file__).parents[3]


def test_the_reference_is_up_to_date(generator: ModuleType) -> None:
    stale = [
        name
        for name, text in generator.pages().items()
        if not (path := generator.REFERENCE / name).is_file() or path.read_text(encoding="utf-8") != text
    ]
    assert stale == [], "run `python3 dev.py docs`"


def test_the_generated_parts_of_pages_are_up_to_date(generator: ModuleType) -> None:
    pages = generator.in_pages()
    assert {path.name for path in pages} == {"README.md", "therock.md"}
    stale = [path for path, text in pages.items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run `python3 dev.py docs`"


def test_no_page_is_left_of_what_is_gone(generator: ModuleType) -> None:
    there = {
        f"{folder}/{path.name}"
        for folder in generator.GENERATED_FOLDERS
        for path in (generator.REFERENCE / folder).iterdir()
    }
    assert there <= set(generator.pages())


@pytest.mark.parametrize(
    ("table", "name", "value", "message"),
    [
        ("upstream", "BUILD_TEST", "1", "no reason why BUILD_TEST of torch differs"),
        ("upstream", "USE_NEW", "ON", "no reason why USE_NEW of torch differs"),
        ("reasons", "USE_ROCM", "old", "what does not differ: .*USE_ROCM"),
    ],
)
def test_each_variable_of_windows_is_upstreams_or_has_a_reason(
    generator: ModuleType, table: str, name: str, value: str, message: str
) -> None:
    facts = datafile.read_toml(Path(generator.__file__ or "").with_name("windows_variables.toml"))
    facts[table].setdefault("torch", {})[name] = value
    with pytest.raises(ValueError, match=message):
        list(generator._windows(facts))

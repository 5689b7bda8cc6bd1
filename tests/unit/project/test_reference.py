"""The pages of docs/reference that follow from the code say what the code says."""

from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[3]


def test_the_reference_is_up_to_date(generator: ModuleType) -> None:
    stale = [
        name
        for name, text in generator.pages().items()
        if not (path := generator.REFERENCE / name).is_file() or path.read_text(encoding="utf-8") != text
    ]
    assert stale == [], "run `python3 dev.py docs`"


def test_no_page_is_left_of_what_is_gone(generator: ModuleType) -> None:
    there = {
        f"{folder}/{path.name}"
        for folder in generator.GENERATED_FOLDERS
        for path in (generator.REFERENCE / folder).iterdir()
    }
    assert there <= set(generator.pages())

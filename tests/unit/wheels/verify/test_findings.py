import re
from pathlib import Path

from cairn.wheels.verify.findings import FindingCode

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "findings.md"


def test_every_code_is_explained_and_every_explained_one_exists() -> None:
    explained = re.findall(r"^\| `([a-z-]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert explained == sorted(FindingCode)

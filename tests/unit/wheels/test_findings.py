import re
from pathlib import Path

from cairn.wheels.verify.findings import CODES

ROOT = Path(__file__).parents[3]
MENTIONED = re.compile(r'(?:code=|_find\(|_unreadable\(|_finding\(\s*info,\s*|\()"([a-z]+(?:-[a-z]+)*)"')


def test_every_code_is_explained_and_every_explained_one_exists() -> None:
    table = (ROOT / "docs" / "reference" / "findings.md").read_text(encoding="utf-8")
    explained = re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)
    assert explained == sorted(set(explained))
    assert set(explained) == CODES
    folder = ROOT / "build_tools" / "cairn" / "wheels"
    sources = "".join(path.read_text(encoding="utf-8") for path in (folder / "verify").glob("*.py"))
    found = set(MENTIONED.findall(sources))
    assert set(explained) <= found
    assert {code for code in found if re.search(f'(code=|_find\\(|info,\\s*)"{code}"', sources)} <= set(
        explained
    )

"""A stack of one pure Python project, whose nights take seconds."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cairn import interpreters

HERE = interpreters.own()

_FILES = {
    "stack.toml": """schema = "cairn.stack/1"
name = "tiny"
line = "main"
targets = ["cpu"]
smoke_tests = ["smoke-tests"]

[[projects]]
name = "tiny"
distribution = "tiny"
checkout_dir = "tiny"
hashtag = "main"
origin = { url = "ORIGIN" }
version_edit = true
build_requires = ["setuptools==84.2.1"]
smoke_imports = ["tiny"]
""",
    "matrix.toml": f"""schema = "cairn.matrix-toml/1"

[platforms.{HERE.platform}]
build = ["anything"]

[triggers.nightly]
families = ["cpu"]
pythons = ["{HERE.version}"]

[families.cpu.{HERE.platform}]
test = ["anything"]
""",
    "origin/version.txt": "1.0\n",
    "origin/pyproject.toml": """[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "tiny"
dynamic = ["version"]
requires-python = ">=3.11"

[tool.setuptools]
packages = ["tiny"]

[tool.setuptools.dynamic]
version = { file = "version.txt" }
""",
    "origin/tiny/__init__.py": "ANSWER = 42\n",
    "smoke-tests/test_tiny.py": "import tiny\n\n\ndef test_answer():\n    assert tiny.ANSWER == 42\n",
}


def write(folder: Path) -> Path:
    """Write the stack, whose nights have one leg, for the CPU, and the origin of its project."""
    for name, text in _FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.replace("ORIGIN", str(folder / "origin")), encoding="utf-8")
    for words in (
        ("init", "--quiet", "--initial-branch", "main"),
        ("add", "."),
        ("-c", "user.name=A", "-c", "user.email=a@example.invalid", "commit", "--quiet", "-m", "Begin"),
    ):
        subprocess.run(["git", *words], cwd=folder / "origin", check=True)
    return folder

"""A stack of one pure Python project, whose nights take seconds."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from cairn import interpreters
from helpers.trail import cairn

HERE = interpreters.current()

# Not a shipped stack: outages, schedulers and full disks are tried on nights of seconds.
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
    _git(folder, "init", "--quiet", "--initial-branch", "main")
    commit(folder, "Begin")
    return folder


def commit(stack: Path, subject: str) -> str:
    """Commit what was changed in the origin of its project; the commit."""
    _git(stack, "add", ".")
    _git(stack, "-c", "user.name=A", "-c", "user.email=a@example.invalid", "commit", "-qm", subject)
    return _git(stack, "rev-parse", "HEAD").strip()


def stage(stack: Path, out: Path, store: Path, *, env: Mapping[str, str]) -> str:
    """Check it out, build it into a folder, and publish that into the store's staging; the id of the set."""
    place = ("--stack", stack, "--root-checkout-dir", out.with_name("src"))
    _cairn(env, "checkout", "all", *place)
    _cairn(env, "build", *place, "--output-dir", out)
    into = ("--set", out / "set.json", "--store", store, "--index", "staging")
    _cairn(env, "index", "publish", *sorted(out.glob("*.whl")), *into)
    return str(json.loads((out / "set.json").read_text("utf-8"))["set_id"])


def _cairn(env: Mapping[str, str], *words: str | Path) -> None:
    done = cairn(*words, env=env)
    assert done.returncode == 0, done.stderr


def _git(stack: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=stack / "origin", check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout

"""What bash offers after the tab key, asked of bash itself."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SAMPLE = "external-builds/sample"
BIN = Path(sys.executable).parent

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="not here: bash")


def offered(line: str, *, cwd: Path = ROOT) -> list[str]:
    """What bash has in COMPREPLY once the README's line was run and the tab key was pressed at the end."""
    script = f"""
eval "$(register-python-argcomplete cairn)"
COMP_LINE={shlex.quote(line)} COMP_POINT={len(line)} COMP_TYPE=9 COMP_WORDBREAKS=$' \\t\\n"><=;|&(:'
_python_argcomplete cairn
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    env = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return [word.rstrip() for word in done.stdout.splitlines() if word.strip()]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cairn whe", ["wheel"]),
        ("cairn wheel set", ["set-version"]),
        ("cairn index check --sto", ["--store"]),
        ("cairn index check --index stag", ["staging", "staging/"]),
        ("cairn release promote --to prer", ["prerelease"]),
        (f"cairn checkout --stack {SAMPLE} v", ["vision"]),
        (f"cairn checkout --stack {SAMPLE} al", ["all"]),
        (f"cairn ci run --stack {SAMPLE} --line rel", ["release/2.9"]),
        ("cairn ci run --stack external-builds/sam", [f"{SAMPLE}/"]),
        ("cairn ci run --targets gfx942,gfx1102", ["gfx942,gfx1102"]),
        ("cairn ci run --targets gfx110X-a", ["gfx110X-all"]),
        ("cairn wheel show READ", ["README.md"]),
    ],
)
def test_the_tab_key_offers(line: str, expected: list[str]) -> None:
    found = offered(line)
    assert found
    assert set(expected[:1]) <= set(found)
    assert all(word.startswith(tuple(expected)) for word in found)


def test_a_stack_that_is_not_there_breaks_no_line(tmp_path: Path) -> None:
    assert offered("cairn checkout --stack nowhere a", cwd=tmp_path) == ["all"]
    assert offered("cairn checkout --stack 'open quo", cwd=tmp_path) == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("build --pytorch-rocm", "--pytorch-rocm-arch"),
        ("build --pytorch-aud", "--pytorch-audio-dir"),  # which follows from the stack
        ("build --stack external-builds/pyg --build-sc", "--build-scatter"),
    ],
)
def test_a_script_answers_too(tmp_path: Path, words: str, expected: str) -> None:
    script = ROOT / "external-builds" / "pytorch" / "build_prod_wheels.py"
    assert b"PYTHON_ARGCOMPLETE_OK" in script.read_bytes()[:1024]  # where argcomplete looks for it
    line = f"{shlex.quote(str(script))} {words}"
    answer = tmp_path / "answer"
    env = os.environ | {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    subprocess.run([sys.executable, script], cwd=ROOT, env=env, check=True, timeout=60)
    assert answer.read_text().strip() == expected


def test_nobody_pays_for_it_who_does_not_ask() -> None:
    code = """
import sys
from cairn.cli import main
try:
    main.main(["wheel", "show", "--help"])
except SystemExit:
    pass
print("argcomplete" in sys.modules, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "False\n"

"""The commands of a script, of shells and of PowerShell, and what is not known in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.workflows.shell import VALUE, commands

V = VALUE


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("cairn build --jobs 2", ["cairn build --jobs 2"]),
        (
            "cairn a && cairn b || cairn c; cairn d | tee log",
            [*["cairn a", "cairn b", "cairn c", "cairn d", "tee log"]],
        ),
        ("cairn a \\\n  --b c\ncairn d", ["cairn a --b c", "cairn d"]),
        ("# cairn x\ncairn a # b", ["cairn a"]),
        ("cairn 'a b'\"c d\"\\ e", ["cairn a bc d e"]),
        ("cairn a >log 2>&1 <in &>all 2>/dev/null", ["cairn a"]),
        ("X=1 Y='a b' cairn a", ["cairn a"]),
        ("if ! cairn a; then\n  cairn b\nfi", ["cairn a", "cairn b", "fi"]),
        ("cairn ${{ inputs.a && '--b' || '}}' }} c", [f"cairn {V} c"]),
        (
            'cairn "$A" ${B:-x y} $C$D $(cat "f" | head) `ls` $1 "a$E"',
            ["cairn V V VV V V V aV".replace("V", V)],
        ),
        ("cairn '$A' \"it's $B\"", [f"cairn $A it's {V}"]),
        ("cat <<EOF >f\ncairn a\nEOF\ncairn b", ["cat", "cairn b"]),
        ("for x in a b; do cairn $x; done", ["for x in a b", f"cairn {V}", "done"]),
        ("(cd x && cairn a)", ["cd x", "cairn a"]),
        ("cairn 'open", []),
        ("", []),
    ],
)
def test_reads_what_workflows_write(script: str, expected: list[str]) -> None:
    assert [" ".join(command.words) for command in commands(script)] == expected


def test_reads_powershell_and_cmd() -> None:
    script = "cairn a `\n  --b .\\out\\x $env:T\ncairn c"
    assert [" ".join(c.words) for c in commands(script, program="pwsh")] == [
        f"cairn a --b ./out/x {V}",
        "cairn c",
    ]
    script = "cairn a ^\n  --b %TEMP%\\x"
    assert [" ".join(c.words) for c in commands(script, program="cmd")] == [f"cairn a --b {V}/x"]


def test_knows_the_line_of_each_command() -> None:
    found = commands("set -e\n\ncairn a \\\n  --b\n'x\ny' z\ncairn c")
    assert [(c.line, c.words[0]) for c in found] == [(0, "set"), (2, "cairn"), (4, "x\ny"), (6, "cairn")]


def test_tells_a_value_in_quotes_from_one_that_may_be_nothing() -> None:
    (found,) = commands('cairn $A "$B" --c=$D ${{ x }}')
    assert found.words == ("cairn", V, V, f"--c={V}", V)
    assert found.loose == {1, 4}


@given(st.text(alphabet="ca '\"$\\{}()<>&|;\n#`1=", max_size=40))
def test_any_script_is_read(script: str) -> None:
    assert all(command.words for command in commands(script))

"""The commands of a `run:`, as far as they can be known without running them.

It reads what workflows write, for POSIX shells or PowerShell: words, quotes, `;`, `&&`, pipes,
redirections. What is put in later, `${{ }}` and variables, becomes `VALUE`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cairn.workflows import expressions

VALUE = "\ue000"
"""Stands in a word for what is known only when the command runs; a character that nobody writes."""

# What ends a line that goes on, where it is not a backslash; a backslash is a part of paths there.
_CONTINUED = {"pwsh": "`\n", "powershell": "`\n", "cmd": "^\n"}
_EXPANSION = re.compile(
    r"\$env:\w+|\$\{[^}]*\}|\$[A-Za-z_]\w*|\$[0-9@*#?!$-]|\$\((?:[^()]|\([^()]*\))*\)|`[^`\n]*`|%\w+%"
)
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+)
      | (?P<comment>\#[^\n]*)
      | (?P<end>\n|;;?|&&|\|\|?|&(?![>\d])|[()])
      | (?P<redirection>\d*(?:<<<|>>|>\||[<>])&?\d*-?|&>>?)
      | (?P<word>(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s;&|()<>'"\\])+)
    """,
    re.VERBOSE | re.DOTALL,
)
_QUOTED = re.compile(r"""'(?P<single>[^']*)'|"(?P<double>(?:\\.|[^"\\])*)"|\\(?P<escaped>.)""", re.DOTALL)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
# Words of the shell, and programs that run the command behind them.
_BEFORE = frozenset(
    {
        "if",
        "then",
        "else",
        "elif",
        "while",
        "until",
        "do",
        "!",
        "{",
        "time",
        "exec",
        "env",
        "sudo",
        "nice",
        "&",
    }
)


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command.

    Attributes:
        line: of the script; the first is 0.
        words: the program and its arguments, without quotes.
        loose: which words are nothing but a value without quotes, which may be no word, or several.
        alternative: the command runs where the one before it failed (`||`).
    """

    line: int
    words: tuple[str, ...]
    loose: frozenset[int] = frozenset()
    alternative: bool = False


def commands(script: str, *, program: str = "bash") -> Iterator[Command]:
    """The commands of a script, in order; what cannot be read is left out."""
    program = program.partition(" ")[0].rpartition("/")[2]
    text = _with_values(script, program)
    words: list[tuple[str, bool]] = []
    line = started = at = 0
    skip_target = alternative = False  # the word behind `>` is a file
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:  # a quote that does not end
            return
        kind, found = str(match.lastgroup), match[0]
        if kind == "word" and skip_target:
            skip_target = False
        elif kind == "word":
            started = started if words else line
            words.append((_unquoted(found), found == VALUE))
        elif kind == "redirection":
            skip_target = not found[-1:].isdigit() and not found.endswith("-")
        elif kind == "end":
            yield from _command(words, started, alternative=alternative)
            # A new line behind `||` goes on with it.
            alternative = found == "||" or (alternative and not words)
            words = []
        line += found.count("\n") + found.count("\r")
        at = match.end()
    yield from _command(words, started, alternative=alternative)


def _with_values(script: str, program: str) -> str:
    text = expressions.replace_embedded(script, VALUE)
    text = text.replace(
        _CONTINUED.get(program, "\\\n"), " \r"
    )  # which is white space, and still counts as a line
    text = _without_heredocs(text)
    if program in _CONTINUED:
        text = text.replace("\\", "/")
    return _in_place(text)


def _in_place(text: str) -> str:
    """The text with a value for each expansion, which single quotes prevent."""
    pieces = re.split(r"('[^'\n]*')", text) if text.count("'") else [text]
    return "".join(
        piece if number % 2 and not _inside_double(pieces, number) else _EXPANSION.sub(VALUE, piece)
        for number, piece in enumerate(pieces)
    )


def _inside_double(pieces: Sequence[str], number: int) -> bool:
    """Whether single quotes stand within double quotes, where they are characters like others."""
    return "".join(pieces[:number]).rpartition("\n")[2].count('"') % 2 == 1


def _without_heredocs(text: str) -> str:
    kept: list[str] = []
    until = ""
    for line in text.split("\n"):
        if until:
            until = "" if line.strip() == until else until
            kept.append("")
            continue
        if match := _HEREDOC.search(line):
            until = match[2]
        kept.append(_HEREDOC.sub(" ", line))
    return "\n".join(kept)


def _unquoted(word: str) -> str:
    return _QUOTED.sub(lambda m: m["single"] or m["double"] or m["escaped"] or "", word)


def _command(words: Sequence[tuple[str, bool]], line: int, *, alternative: bool) -> Iterator[Command]:
    begin = 0
    while begin < len(words) and (words[begin][0] in _BEFORE or _ASSIGNMENT.match(words[begin][0])):
        begin += 1
    rest = words[begin:]
    if rest:
        loose = frozenset(number for number, (_, loose) in enumerate(rest) if loose)
        yield Command(line=line, words=tuple(word for word, _ in rest), loose=loose, alternative=alternative)

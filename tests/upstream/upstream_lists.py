"""Read upstream's skip lists: TheRock's Python files, and PyTorch's list of disabled tests."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from cairn import datafile, targets
from cairn.errors import UsageError
from cairn.testing.skips.conditions import Platform, When

_NAME = re.compile(r"(\S+) \((?:\S+\.)?(\w+)\)")
_SYSTEMS: dict[str, Platform] = {"linux": "linux", "win": "windows", "windows": "windows"}
_ROCM = "rocm"
_GPUS = ("dcgpu-all", "dgpu-all", "igpu-all")  # families that have every GPU between them
# Others that torch knows: runs of a kind that wheels for AMD GPUs are not tested in.
_NOT_OURS = frozenset({"mac", "macos", "xpu", "asan", "dynamo", "dynamo_wrapped", "inductor", "slow"})
_VERSION = re.compile(r"pytorch_([0-9]+\.[0-9]+)\.py")
_ADDRESS = re.compile(r"https?://[^\s)>,]+")
_SHAPE = 'a list has skip_tests = {"common": {"cuda": ["test_streams"]}}'
_MOST_REASON = 300  # characters
_RULE = re.compile(r"\W*")  # a line of dashes
_COMMENTED_OUT = re.compile(r"""["'].*["'],?""")


@dataclass(frozen=True, kw_only=True)
class UpstreamName:
    """A name on a list.

    Attributes:
        text: the name of a test, or the beginning or middle of one.
        filed: what upstream files it under: `cuda` for test_cuda.py, `inductor` for a folder; may be empty.
        class_name: its class, if the list has it.
        when: the conditions.
        reason: as the list gives it.
        issue: an address that it names, or empty.
        place: where it stands: file and line, or name.
    """

    text: str
    filed: str = ""
    class_name: str = ""
    when: When
    reason: str
    issue: str
    place: str


@dataclass(frozen=True, kw_only=True)
class UpstreamList:
    """The contents of an upstream list.

    Attributes:
        names: what it names.
        remarks: what is odd about it.
    """

    names: tuple[UpstreamName, ...]
    remarks: tuple[str, ...]


def read_disabled_tests(path: Path) -> UpstreamList:
    """Read PyTorch's list of tests that issues disable: disabled-tests-condensed.json, or run_test.py's copy.

        {"test_print (__main__.TestTorch)": ["12345", "https://github.com/…/issues/12345", ["linux", "rocm"]]}

    The copy, `.pytorch-disabled-tests.json`, lacks the number. No platform means all of them. The rule for
    reading it is `check_if_enable` in torch/testing/_internal/common_utils.py.

    Raises:
        UsageError: it is not JSON, or not of that shape.
    """
    data = datafile.read_json(path)
    if not isinstance(data, dict):
        raise UsageError(f"{path} is not a list of disabled tests: it is not an object")
    names: list[UpstreamName] = []
    remarks: list[str] = []
    for name, value in data.items():
        match = _NAME.fullmatch(name)
        if match is None:  # torch goes on without these too
            remarks.append(
                f"{name!r} is not written as `test_name (__main__.TestClass)`: it disables nothing"
            )
            continue
        issue, platforms = _row(path, name, value)
        if unknown := [word for word in platforms if word not in {*_SYSTEMS, _ROCM, *_NOT_OURS}]:
            remarks.append(f"{name}: torch knows no platform {', '.join(unknown)}; see {issue}")
        known = [word for word in platforms if word not in unknown]
        # torch reads a list with nothing but unknown ones as an empty one: disabled everywhere.
        names += (
            UpstreamName(
                text=match[1],
                class_name=match[2],
                when=when,
                reason="an issue of PyTorch disables it",
                issue=issue,
                place=name,
            )
            for when in _conditions_of(known)
        )
    return UpstreamList(names=tuple(names), remarks=tuple(remarks))


def _row(path: Path, name: str, value: object) -> tuple[str, list[str]]:
    match value:
        case [str(issue), [*platforms]] | [str() | int(), str(issue), [*platforms]]:
            return issue, [str(word).strip() for word in platforms]
    raise UsageError(
        f"{path}, at {name!r}: expected an address and a list of platforms",
        tip="give PyTorch's disabled-tests-condensed.json",
    )


def _conditions_of(platforms: list[str]) -> list[When]:
    if not platforms:
        return [When()]
    systems = tuple(dict.fromkeys(_SYSTEMS[word] for word in platforms if word in _SYSTEMS))
    conditions = [When(platform=systems)] if systems else []
    # Platforms are alternatives, conditions hold together: runs on ROCm elsewhere are an entry of their own.
    others = tuple(system for system in dict.fromkeys(_SYSTEMS.values()) if system not in systems)
    if _ROCM in platforms and others:
        conditions.append(When(platform=others if systems else (), family=_GPUS))
    return conditions


def read_therock(path: Path) -> UpstreamList:
    """Read a list of TheRock's, external-builds/pytorch/skip_tests/*.py, without executing it.

        skip_tests = {"common": {"cuda": ["test_streams", …]}, "windows": …, "gfx94": …}

    A section is `common`, an operating system, or what the names of targets contain; below it, names of tests
    are filed under modules. Comments above a name say why. `generic.py` is for all versions of torch,
    `pytorch_2.13.py` for one.

    Raises:
        UsageError: it is not Python, has no such dictionary, or has anything but texts in it.
    """
    reader = _Reader(path)
    return UpstreamList(names=tuple(reader.names()), remarks=tuple(reader.remarks))


@dataclass
class _Reader:
    path: Path
    remarks: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        version = _VERSION.fullmatch(self.path.name)
        self.torch = f"=={version[1]}.*" if version else ""
        if not version and self.path.name != "generic.py":
            raise UsageError(
                f"{self.path.name} does not say which version of torch it is for",
                tip="call it generic.py, or pytorch_2.13.py",
            )
        try:
            text = self.path.read_bytes().decode()
            self.tree = ast.parse(text)
            self.tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        # `ast` raises the last two of expressions that are nested too deep.
        except (OSError, ValueError, SyntaxError, tokenize.TokenError, RecursionError, MemoryError) as error:
            raise UsageError(f"{self.path} cannot be read as Python: {error}", tip=_SHAPE) from error
        comments = [token for token in self.tokens if token.type == tokenize.COMMENT]
        self.comments = {token.start[0]: token.string[1:].strip() for token in comments}
        self.only_comment = {t.start[0] for t in comments if not t.line[: t.start[1]].strip()}

    def names(self) -> Iterator[UpstreamName]:
        """Yield the names, with the conditions of their sections."""
        for section, modules in self._pairs(self._dictionary()):
            when = self._when(section)
            for module, names in self._pairs(modules):
                yield from self._names(names, module, when)

    def _names(self, node: ast.expr, module: str, when: When) -> Iterator[UpstreamName]:
        if not isinstance(node, (ast.List, ast.Set, ast.Tuple)):
            raise self._not_data(node)
        heading: list[str] = []
        for element in node.elts:
            match element:
                # Not printable are line breaks, and halves of surrogate pairs, which no file can hold.
                case ast.Constant(value=str(name)) if name and name.isprintable():
                    strings = self._strings(element, name)
                case _:
                    raise self._not_data(element)
            if len(strings) > 1:
                self.remarks.append(
                    f"{self._place(element)}: no comma between {' and '.join(map(repr, strings))}: Python "
                    "joins them into one name, and skips neither; both are taken"
                )
            # A comment above heads the names up to the next one, a comment beside is of one name.
            above = self._comment_above(element)
            heading = above or heading
            reason, issue = _reason([*heading, self.comments.get(element.end_lineno or 0, "")])
            for text in strings:
                yield UpstreamName(
                    text=text,
                    filed=module,
                    when=when,
                    reason=reason or f"{self.path.name} of TheRock gives no reason",
                    issue=issue,
                    place=self._place(element),
                )

    def _dictionary(self) -> ast.expr:
        for statement in self.tree.body:
            match statement:
                case (
                    ast.Assign(targets=[ast.Name(id="skip_tests")], value=value)
                    | ast.AnnAssign(target=ast.Name(id="skip_tests"), value=ast.expr() as value)
                ):
                    return value
        raise UsageError(f"{self.path} has no skip_tests", tip=_SHAPE)

    def _pairs(self, node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
        if not isinstance(node, ast.Dict):
            raise self._not_data(node)
        seen: set[str] = set()
        for key, value in zip(node.keys, node.values, strict=True):
            if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                raise self._not_data(key or value)
            if key.value in seen:
                self.remarks.append(
                    f"{self._place(key)}: {key.value!r} is there twice: Python drops the first; both count"
                )
            seen.add(key.value)
            yield key.value, value

    def _when(self, section: str) -> When:
        if section == "common":
            return When(torch=self.torch)
        for platform in get_args(Platform):
            if section == platform:
                return When(torch=self.torch, platform=(platform,))
        # Upstream asks whether the target's name contains the section's.
        matching = tuple(name for name in targets.known_targets() if section in name)
        if not matching:
            raise UsageError(
                f"{self.path}: the section {section!r} is neither `common`, an operating system nor a target",
                tip="correct its name",
            )
        return When(torch=self.torch, target=matching)

    def _strings(self, element: ast.Constant, text: str) -> list[str]:
        """Return the string literals that Python joins into one: several if a comma is missing."""
        begin, end = (
            (element.lineno, element.col_offset),
            (element.end_lineno or 0, element.end_col_offset or 0),
        )
        if begin[0] == end[0]:
            return [text]
        inside = [t for t in self.tokens if t.type == tokenize.STRING and begin <= t.start and t.end <= end]
        return [str(ast.literal_eval(token.string)) for token in inside]

    def _comment_above(self, element: ast.expr) -> list[str]:
        line, comment = element.lineno - 1, list[str]()
        while line in self.only_comment:
            comment.append(self.comments[line])
            line -= 1
        return comment[::-1]

    def _place(self, node: ast.AST) -> str:
        return f"{self.path.name}:{getattr(node, 'lineno', 0)}"

    def _not_data(self, node: ast.AST) -> UsageError:
        return UsageError(
            f"{self._place(node)}: {type(node).__name__} where only names of tests are expected", tip=_SHAPE
        )


def _reason(comment: list[str]) -> tuple[str, str]:
    """Return a comment in one line, and the first URL in it."""
    lines = [x for x in comment if not _RULE.fullmatch(x) and not _COMMENTED_OUT.fullmatch(x)]
    text = " ".join(" ".join(lines).split())
    address = _ADDRESS.search(text)
    short = text if len(text) <= _MOST_REASON else f"{text[:_MOST_REASON]}…"
    return short, address[0].rstrip(".") if address else ""

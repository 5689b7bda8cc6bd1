"""YAML as a tree that knows its lines, and keeps what was written: `on` stays a word, `3.10` stays `3.10`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cairn.errors import PrerequisiteError, UsageError

_DEEPEST = 100  # levels; a workflow has about ten
_MOST = 100_000  # values; a few aliases of aliases make billions


@dataclass(frozen=True, kw_only=True)
class Node:
    """A value of the file: a text, a list or an object.

    Attributes:
        line: where it begins; the first line is 1.
        text: what was written, of a scalar; None of a list or object.
        items: the members of a list.
        fields: the members of an object, in order.
    """

    line: int
    text: str | None = None
    items: tuple[Node, ...] = ()
    fields: Mapping[str, Node] = field(default_factory=dict)

    def get(self, *path: str) -> Node | None:
        """What is below these names, or None."""
        node: Node | None = self
        for name in path:
            node = node.fields.get(name) if node is not None else None
        return node

    def text_of(self, *path: str) -> str:
        """The text below these names; empty where there is none."""
        node = self.get(*path)
        return (node.text or "") if node is not None else ""

    def words(self) -> tuple[str, ...]:
        """A text, the texts of a list, or the names of an object: `on` and `runs-on` take each."""
        if self.text is not None:
            return (self.text,) if self.text else ()
        return tuple(item.text or "" for item in self.items) or tuple(self.fields)

    def scalars(self) -> Iterator[Node]:
        """Every text below it."""
        if self.text is not None:
            yield self
        for child in (*self.items, *self.fields.values()):
            yield from child.scalars()


def parse(text: str, *, path: Path) -> Node:
    """Read a file's text.

    Raises:
        UsageError: it is not one YAML document, has a name twice, or refers to itself.
        PrerequisiteError: PyYAML is not installed.
    """
    try:
        import yaml  # noqa: PLC0415 - of the extra `ci`
    except ImportError as error:
        raise PrerequisiteError(
            "PyYAML is not installed, which reads workflows", tip='pip install "cairn[ci]"'
        ) from error
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        raise UsageError(f"{where} is not YAML: {getattr(error, 'problem', None) or error}") from error
    except RecursionError as error:
        raise UsageError(f"{path} is nested too deep") from error
    if root is None:
        raise UsageError(f"{path} is empty")
    return _Reader(path).node(root, depth=0)


class _Reader:
    """Makes our nodes of PyYAML's, in which an alias is the node that it stands for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = 0

    def node(self, found: Any, *, depth: int) -> Node:  # noqa: ANN401 - PyYAML's are many classes
        line = found.start_mark.line + 1
        self._count += 1
        if depth > _DEEPEST or self._count > _MOST:
            raise UsageError(f"{self._path}:{line} is nested too deep, too long, or refers to itself")
        if found.id == "scalar":
            null = found.tag == "tag:yaml.org,2002:null"
            return Node(line=line, text="" if null else str(found.value))
        if found.id == "sequence":
            return Node(line=line, items=tuple(self.node(item, depth=depth + 1) for item in found.value))
        fields: dict[str, Node] = {}
        for key, value in found.value:
            name = str(key.value)
            if name in fields:
                raise UsageError(f"{self._path}:{key.start_mark.line + 1} has {name!r} twice")
            # A member begins where its name does: that is the line to look at.
            member = self.node(value, depth=depth + 1)
            fields[name] = replace(member, line=key.start_mark.line + 1)
        return Node(line=line, fields=fields)

"""YAML as a tree that knows its lines, and keeps what was written: `on` stays a word, `3.10` stays `3.10`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cairn.errors import PrerequisiteError, UsageError

_DEEPEST = 100  # levels; a workflow has about ten


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
    return _node(root, path, depth=0)


def _node(found: Any, path: Path, *, depth: int) -> Node:  # noqa: ANN401 - PyYAML has no types
    line = found.start_mark.line + 1
    if depth > _DEEPEST:
        raise UsageError(f"{path}:{line} is nested too deep, or refers to itself")
    if found.id == "scalar":
        null = found.tag == "tag:yaml.org,2002:null"
        return Node(line=line, text="" if null else str(found.value))
    if found.id == "sequence":
        return Node(line=line, items=tuple(_node(item, path, depth=depth + 1) for item in found.value))
    fields: dict[str, Node] = {}
    for key, value in found.value:
        name = str(key.value)
        if name in fields:
            raise UsageError(f"{path}:{key.start_mark.line + 1} has {name!r} twice")
        # A member begins where its name does: that is the line to look at.
        member = _node(value, path, depth=depth + 1)
        fields[name] = Node(
            line=key.start_mark.line + 1, text=member.text, items=member.items, fields=member.fields
        )
    return Node(line=line, fields=fields)

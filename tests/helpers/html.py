"""A page as a browser reads it: its elements, their texts, and what a page must not have."""

from __future__ import annotations

import html.parser
from collections.abc import Iterator
from dataclasses import dataclass, field

VOID = {"br", "input", "link", "meta"}


@dataclass
class Element:
    """An element with what is in it."""

    name: str
    attributes: dict[str, str | None]
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text in it, as one reads it."""
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def all(self, name: str = "", /, **attributes: str) -> Iterator[Element]:
        """The elements in it with this name, and with these attributes (`class_` is one of several words)."""
        for child in self.children:
            if isinstance(child, str):
                continue
            words = (child.attributes.get("class") or "").split()
            wanted = {key: value for key, value in attributes.items() if key != "class_"}
            if (
                name in ("", child.name)
                and attributes.get("class_", "") in ("", *words)
                and all(child.attributes.get(key.replace("_", "-")) == value for key, value in wanted.items())
            ):
                yield child
            yield from child.all(name, **attributes)

    def one(self, name: str = "", /, **attributes: str) -> Element:
        """The only such element."""
        (found,) = self.all(name, **attributes)
        return found


class Parser(html.parser.HTMLParser):
    """Builds the tree, and refuses what does not close as it opened."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = [Element("", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), (tag, attrs)
        element = Element(tag, dict(attrs))
        self.stack[-1].children.append(element)
        if tag not in VOID:
            self.stack.append(element)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID and tag != "ellipse":
            assert self.stack[-1].name == tag, (self.stack[-1].name, tag)
        if tag not in VOID:
            self.stack.pop()

    def handle_data(self, data: str) -> None:
        self.stack[-1].children.append(data)


def parse(page: bytes) -> Element:
    """The root of a page; every element must close where it should."""
    parser = Parser()
    parser.feed(page.decode())
    parser.close()
    assert len(parser.stack) == 1, [element.name for element in parser.stack]
    return parser.stack[0]

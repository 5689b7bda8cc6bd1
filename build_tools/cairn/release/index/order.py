"""Which page is written first: what others depend on."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def dependencies_first(needs: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """The keys of `needs`, each after those of its needs that are keys too.

    Projects that need each other come in name order: there is no right one, and their exact pins decide.
    """
    ordered: dict[str, None] = {}
    visiting: set[str] = set()

    def visit(name: str) -> None:
        if name in ordered or name in visiting or name not in needs:
            return
        visiting.add(name)
        for needed in sorted(needs[name]):
            visit(needed)
        ordered[name] = None

    for name in sorted(needs):
        visit(name)
    return tuple(ordered)

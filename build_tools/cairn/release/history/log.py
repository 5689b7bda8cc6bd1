"""What was done to an index: its generations, newest first."""

from __future__ import annotations

from collections.abc import Iterator

from cairn import datafile
from cairn.release.index.generation import Action, Generation
from cairn.release.index.snapshot import Index, missing
from cairn.store.protocol import Store


class Logged(datafile.Value):
    """One generation of an index.

    Attributes:
        number: of the generation; with `digest`, its name.
        digest: of its bytes.
        action: which command made it.
        who: who ran that.
        when: RFC 3339 in UTC.
        why: the reason, where one was given.
        brought, removed, marked: the ids of the sets that came, that went, and that were changed.
        projects: how many of its projects differ from those of the generation before.
    """

    number: int
    digest: str
    action: Action | None
    who: str
    when: str
    why: str | None
    brought: tuple[str, ...]
    removed: tuple[str, ...]
    marked: tuple[str, ...]
    projects: int


def entries(store: Store, index: str) -> Iterator[Logged]:
    """The generations of an index, newest first; each is read when it is asked for.

    Raises:
        StoreError: there is no such index, or a generation of it is lost or was changed.
    """
    there = Index(store, index)
    now_there = there.load()
    if not now_there.exists:
        raise missing(store, index)
    newer: tuple[str, Generation] | None = None
    for digest, found in there.chain(now_there):
        if newer is not None:
            yield _logged(*newer, found)
        newer = digest, found
    if newer is not None:
        yield _logged(*newer, None)


def _logged(digest: str, generation: Generation, before: Generation | None) -> Logged:
    old_sets = dict(before.sets) if before else {}
    old_projects = dict(before.projects) if before else {}
    common = generation.sets.keys() & old_sets.keys()
    return Logged(
        number=generation.number,
        digest=digest,
        action=generation.action,
        who=generation.who,
        when=generation.when,
        why=generation.why,
        brought=tuple(sorted(generation.sets.keys() - old_sets.keys())),
        removed=tuple(sorted(old_sets.keys() - generation.sets.keys())),
        marked=tuple(sorted(set_id for set_id in common if generation.sets[set_id] != old_sets[set_id])),
        projects=sum(
            generation.projects.get(name) != old_projects.get(name)
            for name in generation.projects.keys() | old_projects.keys()
        ),
    )

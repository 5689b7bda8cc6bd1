"""The recipes of a store: the files of the stacks that its sets and nights were frozen with.

A manifest names its recipe by digest. Whoever builds, stages, tests or promotes does so by a stack with that
very recipe: a stack that has moved on is refused, and the frozen one can be taken from the store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from cairn import datafile
from cairn.errors import CairnError, SourceError, StoreError
from cairn.output.wording import short_id
from cairn.release.index import keys
from cairn.stack import Stack, recipe
from cairn.stack.recipe import Recipe
from cairn.store.protocol import Reader, Store, write_young
from cairn.wheels import build_statement

_SHOWN = 8  # files that differ


def put(store: Store, stack: Stack | None) -> None:
    """Put the recipe of a stack into a store."""
    if stack is not None and stack.file:
        current = recipe.of(stack)
        write_young(store, keys.recipe_key(current.digest), current.canonical())


def keep(store: Store, stack: Stack | None) -> None:
    """Put the recipe of a stack into a store that lacks it, or has it damaged; else write nothing."""
    if stack is not None and stack.file:
        try:
            read(store, recipe.digest_of(stack))
        except CairnError:
            put(store, stack)


def read(reader: Reader, digest: str) -> Recipe:
    """Return the recipe with this digest.

    Raises:
        StoreError: the store lacks it, or it was changed.
    """
    key = keys.recipe_key(digest)
    frozen = datafile.loads(reader.read(key).data, Recipe, name=f"{reader.url}/{key}")
    if frozen.digest != digest:
        raise StoreError(f"{reader.url}/{key} was changed", tip="restore it from a copy")
    return frozen


def problems(reader: Reader, frozen: str, stack: Stack) -> Iterator[str]:
    """Say that a stack is not the frozen one, and which files differ; yield nothing where it is.

    Args:
        reader: the store, which has the frozen recipe.
        frozen: its digest, of the manifest.
        stack: as it is now.
    """
    if frozen == (digest := recipe.digest_of(stack)):
        return
    if not frozen:
        yield f"the manifest names no recipe of the stack {stack.name}"
        return
    try:
        files = recipe.differences(read(reader, frozen), recipe.of(stack))
    except CairnError as error:
        files = (f"recipe {short_id(digest)}, not {short_id(frozen)}: {error}",)
    more = f" and {len(files) - _SHOWN} more" if len(files) > _SHOWN else ""
    yield f"the stack {stack.name} is not the frozen one: {', '.join(files[:_SHOWN])}{more}"


def require(reader: Reader, frozen: str, stack: Stack) -> None:
    """Refuse a stack that is not the frozen one.

    Raises:
        SourceError: it has another recipe.
    """
    for problem in problems(reader, frozen, stack):
        raise SourceError(
            problem,
            tip="restore these files, or begin a new night: cairn ci night freeze. The frozen stack of a "
            f"set: cairn challenge SET --store {reader.url} --dry-run",
        )


def require_in(reader: Reader, manifest: bytes, stack: Stack | None) -> None:
    """Refuse a stack, if there is one, that is not the one of a manifest; see `require`."""
    if stack is not None:
        digest = hashlib.sha256(manifest).hexdigest()
        require(reader, build_statement.recipe_in(manifest, sha256=digest), stack)

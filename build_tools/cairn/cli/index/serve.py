"""`cairn index serve`: a store over HTTP, until interrupted."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli.binder import command
from cairn.errors import StoreError
from cairn.options import argument, option
from cairn.output import console

if TYPE_CHECKING:
    from cairn.store.protocol import Store


@dataclass(frozen=True, kw_only=True)
class Serve(common.StoreOptions):
    """Options of `cairn index serve`.

    Its own files are served, and no others.

        cairn index serve ./store
    """

    store: str = argument("URL", "the store: a path, file://…, s3://bucket/prefix, gs:// or az://")
    host: str = option(
        "address to listen on (default: %(default)s)",
        convert=converters.nonempty,  # an empty one would be every address of the machine
        default="127.0.0.1",
    )
    port: int = option(
        "port to listen on; 0 takes any free one (default: %(default)s)", convert=int, default=8383
    )


def _serve(request: Serve) -> None:
    from cairn.release.index import keys
    from cairn.release.index.snapshot import existing
    from cairn.release.serve import serving
    from cairn.store.folder import LocalStore

    store = request.open_existing_store()
    indexes = existing(store)
    names = {path.name for path in store.path.iterdir()} if isinstance(store, LocalStore) else set()
    if not indexes and names - keys.FOLDERS:
        raise StoreError(
            f"{store.url} is not a store: nothing was published into it, and it has other files",
            tip="name the folder that `cairn index publish --store` wrote",
        )
    try:
        with serving(store, host=request.host, port=request.port) as server:
            _announce(server.url, store, indexes)
            threading.Event().wait()
    except KeyboardInterrupt:
        console.current().info("stopped")


def _announce(url: str, store: Store, indexes: Sequence[str]) -> None:
    from cairn.release.index import keys

    screen = console.current()
    screen.info(f"serving {store.url} until Ctrl-C")
    if store.exists(keys.LANDING):
        screen.info(f"what there is, and how to install it: {url}/")
    if not indexes:
        screen.warn("nothing is published in it yet")
    for index in indexes:
        screen.out(keys.index_url(url, index))


COMMANDS = {"serve": command(Serve, _serve, needs="serve")}

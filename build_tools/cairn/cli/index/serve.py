"""`cairn index serve`: a store over HTTP, until interrupted."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command
from cairn.errors import StoreError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.store.protocol import Store


def add_to(commands: Subparsers) -> None:
    """Add `serve`."""
    parser = add_command(
        commands,
        "serve",
        _serve,
        about="serve a store over HTTP on this machine until interrupted",
        more="Its own files are served, and no others.",
        example="cairn index serve ./store",
    )
    parser.add_argument("store", metavar="URL", help="the store: a path, file://… or s3://bucket/prefix")
    arguments.add_endpoint_url(parser)
    parser.add_argument(
        "--host",
        type=converters.nonempty,  # an empty one would be every address of the machine
        default="127.0.0.1",
        help="address to listen on (default: %(default)s)",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=arguments.PORT,
        help="port to listen on; 0 takes any free one (default: %(default)s)",
    )


def _serve(options: argparse.Namespace) -> int:
    from cairn.release.index import keys
    from cairn.release.index.snapshot import existing
    from cairn.release.serve.server import serving
    from cairn.store.folder import LocalStore

    store = arguments.open_existing_store(options)
    indexes = existing(store)
    named = {path.name for path in store.path.iterdir()} if isinstance(store, LocalStore) else set()
    if not indexes and named - keys.FOLDERS:
        raise StoreError(
            f"{store.url} is not a store: nothing was published into it, and it has other files",
            tip="name the folder that `cairn index publish --store` wrote",
        )
    try:
        with serving(store, host=options.host, port=options.port) as server:
            _announce(server.url, store, indexes)
            threading.Event().wait()
    except KeyboardInterrupt:
        console.current().info("stopped")
    return 0


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

"""Buckets to test with: of moto, in a process of its own, or of any server that is named."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

ENDPOINT = "CAIRN_TEST_S3_ENDPOINT"
"""Names a server to use instead of moto; the credentials are in the variables that boto3 reads."""

# One request at a time: moto looks at a condition and then writes, and does not keep others out in between.
# To find out which service of Amazon's is meant takes moto a third of a request's time: it is S3, or IAM.
# A body that waited for the acknowledgement of its header would cost 40 ms a request (Nagle's algorithm).
# It ends when nobody holds the other end of its standard input any more, however the tests ended.
_SERVER = """
import os, sys, threading
from werkzeug.serving import WSGIRequestHandler, make_server
from moto.server import DomainDispatcherApplication, create_backend_app

WSGIRequestHandler.disable_nagle_algorithm = True
s3, every = create_backend_app("s3"), DomainDispatcherApplication(create_backend_app)

def answer(environ, begin):
    return (every if "/iam/" in environ.get("HTTP_AUTHORIZATION", "") else s3)(environ, begin)

server = make_server("127.0.0.1", 0, answer, threaded=False)
print(server.port, flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
server.serve_forever()
"""


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server of buckets.

    Attributes:
        endpoint: its address.
        environment: what boto3 needs to use it.
    """

    endpoint: str
    environment: Mapping[str, str]

    @functools.cached_property
    def client(self) -> Any:
        """A client of boto3, for what Cairn does not do."""
        import boto3  # noqa: PLC0415 - half a second, which each worker of each run would wait

        return boto3.client("s3", endpoint_url=self.endpoint)

    def new_bucket(self) -> str:
        """The name of a new bucket."""
        name = f"cairn-{secrets.token_hex(8)}"
        self.client.create_bucket(Bucket=name)
        return name


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    """The server that is named, else one of moto's until the block ends; its variables are set."""
    keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    named = os.environ.get(ENDPOINT)
    if named is not None:
        kept = {key: os.environ[key] for key in keys}
        yield Server(endpoint=named, environment=kept | {"AWS_DEFAULT_REGION": "us-east-1"})
        return
    settings = dict.fromkeys(keys, "moto") | {"AWS_DEFAULT_REGION": "us-east-1"}
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | settings | {"S3_UPLOAD_PART_MIN_SIZE": "1"},
    ) as process:
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            yield Server(endpoint=f"http://127.0.0.1:{port}", environment=settings)
        finally:
            process.kill()

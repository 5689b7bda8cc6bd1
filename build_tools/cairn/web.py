"""Reading from web servers with the standard library alone, for the commands of the core.

Proxies and certificates are those of the environment (`HTTPS_PROXY`, `SSL_CERT_FILE`).
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from http import HTTPStatus
from typing import IO

from cairn.errors import NetworkError

_BLOCK = 1 << 20


def read(url: str, *, out: IO[bytes], most: int | None = None, timeout: float, tip: str) -> bool:
    """Read a file of a server; returns whether there is one (it has not answered 404).

    Args:
        url: an http or https URL.
        out: what is written to.
        most: bytes to read; the rest is left there.
        timeout: seconds without a byte.
        tip: what to do where there is no answer.

    Raises:
        NetworkError: it does not answer, with an error, or not to the end.
    """
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:  # noqa: S310 - see above
            count = 0
            while block := answer.read(_BLOCK if most is None else min(_BLOCK, most - count)):
                count += out.write(block)
            # What `Content-Length` names and did not come; `read(n)` does not complain of it.
            if answer.length and count != most:
                raise NetworkError(f"cannot read {url}: it ends after {count} bytes", tip=tip)
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            return False
        raise NetworkError(f"cannot read {url}: it answers {error.code} {error.reason}", tip=tip) from error
    except (urllib.error.URLError, TimeoutError, ConnectionError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        cause = reason if isinstance(reason, Exception) else error
        why = getattr(cause, "strerror", None) or type(cause).__name__
        raise NetworkError(f"cannot read {url}: {why}", tip=tip) from error
    return True

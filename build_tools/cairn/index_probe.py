"""Why an index gives no answer, where pip only says that it found no such package.

An index may be out of reach, or behind a login page. `index_problem` and `page_problem` take a URL and give
the reason in one sentence, or None.
"""

from __future__ import annotations

import html
import re
from http import HTTPStatus

TIP = "check the URL, the network, and the credentials in the URL or in ~/.netrc, then run it again"
"""What to do about an index that gives no answer."""

_NOT_NAME = re.compile(r"[^A-Za-z0-9._-]|==")  # where a requirement's name ends
_PROBE_SECONDS = 10
_PAGE_SIZE = 1 << 18  # bytes that are read of a page to judge it
_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_INDEX_TYPES = ("application/vnd.pypi.simple.v1+json", "application/vnd.pypi.simple.v1+html")
# What a page of links has: a distribution, the mark of PEP 629, or the title that servers give to a folder.
_IS_INDEX = re.compile(
    r"<a\s[^>]*href=[\"']?[^\"'>]*\.(whl|zip|tar\.gz|tgz)[\"'>#?\s]|<meta[^>]*pypi:repository-version",
    re.IGNORECASE,
)
_INDEX_TITLE = re.compile(r"links for|index|directory listing", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>([^<]*)", re.IGNORECASE)
_PASSWORD = re.compile(r"<input[^>]*type=[\"']?password", re.IGNORECASE)
_LOGIN = re.compile(r"log[ -]?in|sign[ -]?in|log[ -]?on|authenticat", re.IGNORECASE)


def index_problem(index_url: str | None, project: str) -> str | None:
    """Why an index cannot say what it has of a project; None where it can.

    "404" for the project's page is the honest answer of an index that lacks it (PEP 503). URLs other than
    HTTP's are not looked at.
    """
    if index_url is None:
        return None
    return page_problem(f"{index_url.rstrip('/')}/{_NOT_NAME.split(project)[0]}/", named=index_url)


def page_problem(url: str, *, named: str | None = None) -> str | None:
    """Like `index_problem`, for a page of links (`--find-links`), or of one project of the index `named`."""
    named = named or url
    if not url.startswith(("http://", "https://")):
        return None
    import requests  # noqa: PLC0415 - only needed after a failure
    import urllib3  # noqa: PLC0415

    try:
        with requests.get(url, timeout=_PROBE_SECONDS, stream=True, headers={"Accept": _ACCEPT}) as answer:
            kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            body = answer.raw.read(_PAGE_SIZE, decode_content=True).decode("utf-8", "replace")
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        return f"cannot reach {named}: {type(error).__name__}"
    if answer.status_code >= HTTPStatus.BAD_REQUEST:
        missing = answer.status_code == HTTPStatus.NOT_FOUND
        return None if missing else f"cannot reach {named}: it answers {answer.status_code} {answer.reason}"
    if kind in _INDEX_TYPES:
        return None
    if kind != "text/html":
        return f"{named} is not a package index: it answers with {kind or 'no content type'}"
    problem = _web_page_problem(body)
    redirected = f", at {answer.url.partition('?')[0]}" if answer.history else ""
    return f"{named} is not a package index: it answers with {problem}{redirected}" if problem else None


def _web_page_problem(body: str) -> str | None:
    match = _TITLE.search(body)
    title = html.unescape(match[1]).strip() if match else ""
    has_password = _PASSWORD.search(body) is not None
    if _IS_INDEX.search(body) or (_INDEX_TITLE.search(title) and not has_password):
        return None
    if has_password or _LOGIN.search(title):
        return "a login page"
    return f"the web page {title[:80]!r}" if title else "a web page without a link to a distribution"

"""Why an index gives no answer, where pip only says that it found no such package.

An index may be out of reach, or behind a login page. `index_problem` and `page_problem` take a URL and give
the reason in one sentence, or None.
"""

from __future__ import annotations

import html.parser
import re
from http import HTTPStatus

TIP = "check the URL, the network, and the credentials in the URL or in ~/.netrc, then run it again"
"""What to do about an index that gives no answer."""

_NOT_NAME = re.compile(r"[^A-Za-z0-9._-]|==")  # where a requirement's name ends
_PROBE_SECONDS = 10
_PAGE_SIZE = 1 << 18  # bytes that are read of a page to judge it
_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_INDEX_TYPES = ("application/vnd.pypi.simple.v1+json", "application/vnd.pypi.simple.v1+html")
_DISTRIBUTION = re.compile(r"\.(whl|zip|tar\.gz|tgz)($|[#?])")
_INDEX_TITLE = re.compile(r"links for|index|directory listing", re.IGNORECASE)
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
    page = _Page()
    page.feed(body)
    if page.distributions or page.is_index or (_INDEX_TITLE.search(page.title) and not page.password):
        return None
    if page.password or _LOGIN.search(page.title):
        return "a login page"
    title = page.title.strip()[:80]
    return f"the web page {title!r}" if title else "a web page without a link to a distribution"


class _Page(html.parser.HTMLParser):
    """What tells the page of an index from any other web page."""

    def __init__(self) -> None:
        super().__init__()
        self.title = ""
        self.password = self.distributions = self.is_index = False
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: (value or "").lower() for name, value in attrs}
        self._in_title = tag == "title"
        self.password |= tag == "input" and values.get("type") == "password"
        self.distributions |= tag == "a" and _DISTRIBUTION.search(values.get("href", "")) is not None
        self.is_index |= tag == "meta" and values.get("name") == "pypi:repository-version"  # PEP 629

    def handle_endtag(self, tag: str) -> None:
        self._in_title &= tag != "title"

    def handle_data(self, data: str) -> None:
        self.title += data if self._in_title else ""

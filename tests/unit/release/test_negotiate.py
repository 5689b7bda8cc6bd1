from __future__ import annotations

import pytest

from cairn.release.serve.negotiation import Span, UnsatisfiableError, choose_page, parse_range

BOTH = ("index.html", "index.json")
JSON = "application/vnd.pypi.simple.v1+json"
HTML = "application/vnd.pypi.simple.v1+html"
PIP = f"{JSON}, {HTML}; q=0.1, text/html; q=0.01"


@pytest.mark.parametrize(
    ("accept", "filename", "content_type"),
    [
        (None, "index.html", "text/html"),
        ("*/*", "index.html", "text/html"),
        ("text/html", "index.html", "text/html"),
        ("text/*", "index.html", "text/html"),
        (PIP, "index.json", JSON),
        (HTML, "index.html", HTML),
        ("application/vnd.pypi.simple.latest+json", "index.json", JSON),
        (f"{JSON};q=0, text/html", "index.html", "text/html"),
        (f"{JSON};q=0.2, text/html;q=0.3", "index.html", "text/html"),
        (f"{JSON};q=nonsense, */*;q=0.1", "index.html", "text/html"),
    ],
)
def test_the_client_chooses(accept: str | None, filename: str, content_type: str) -> None:
    choice = choose_page(accept, BOTH)
    assert choice is not None
    assert (choice.filename, choice.content_type) == (filename, content_type)


def test_what_is_not_accepted_is_not_given() -> None:
    assert choose_page("image/png", BOTH) is None
    assert choose_page(JSON, ("index.html",)) is None


@pytest.mark.parametrize(
    ("header", "span"),
    [
        ("bytes=0-4", Span(start=0, count=5)),
        ("bytes=5-", Span(start=5, count=5)),
        ("bytes=-3", Span(start=7, count=3)),
        ("bytes=-300", Span(start=0, count=10)),
        ("bytes=8-99", Span(start=8, count=2)),
        (None, None),
        ("bytes=0-1,4-5", None),
        ("bytes=-", None),
        ("bytes=4-2", None),
        ("pages=1-2", None),
        ("bytes=0-" + "9" * 5_000, Span(start=0, count=10)),
        ("bytes=-" + "9" * 5_000, Span(start=0, count=10)),
        ("bytes=" + "0" * 5_000 + "5-", Span(start=5, count=5)),
        ("bytes=\u0663-", None),
    ],
)
def test_ranges_of_ten_bytes(header: str | None, span: Span | None) -> None:
    assert parse_range(header, 10) == span


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=10-12", "bytes=-0", "bytes=" + "9" * 5_000 + "-"])
def test_a_range_beyond_the_end_cannot_be_given(header: str) -> None:
    with pytest.raises(UnsatisfiableError):
        parse_range(header, 10)


def test_an_empty_file_has_no_part() -> None:
    with pytest.raises(UnsatisfiableError):
        parse_range("bytes=0-", 0)

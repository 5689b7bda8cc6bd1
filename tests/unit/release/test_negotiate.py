from __future__ import annotations

import pytest

from cairn.release.serve_http import choose_page

BOTH = ("index.html", "index.json")
JSON = "application/vnd.pypi.simple.v1+json"
HTML = "application/vnd.pypi.simple.v1+html"
PIP = f"{JSON}, {HTML}; q=0.1, text/html; q=0.01"


@pytest.mark.parametrize(
    ("accept", "filename", "content_type"),
    [
        ("", "index.html", "text/html"),
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
def test_the_client_chooses(accept: str, filename: str, content_type: str) -> None:
    assert choose_page(accept, BOTH) == (filename, content_type)


def test_what_is_not_accepted_is_not_given() -> None:
    assert choose_page("image/png", BOTH) is None
    assert choose_page(JSON, ("index.html",)) is None

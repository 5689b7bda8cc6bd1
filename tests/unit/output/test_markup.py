import base64
import hashlib
import re
from pathlib import Path

import pytest

from cairn.output import markup
from helpers.html import parse

PACKAGE = Path(__file__).parents[3] / "build_tools" / "cairn"
EVIL = "\"><script>alert('1')</script>&\u202e\n"


def test_texts_are_escaped_and_markup_is_not() -> None:
    inner = markup.tag("b", "a < b")
    assert markup.tag("p", inner, " & ", "c") == "<p><b>a &lt; b</b> &amp; c</p>"
    assert markup.join(["<", inner], ", ") == "&lt;, <b>a &lt; b</b>"


def test_no_content_and_no_attribute_becomes_markup() -> None:
    root = parse(markup.tag("p", EVIL, title=EVIL, data_words=EVIL).encode())
    (paragraph,) = root.children
    assert not isinstance(paragraph, str)
    shown = EVIL.replace("\u202e", "\\u202e").replace("\n", "\\n")
    assert paragraph.text == shown
    assert paragraph.attributes == {"title": shown, "data-words": shown}


def test_attributes_are_named_as_in_html_and_left_out_where_they_have_no_value() -> None:
    found = markup.tag("label", "x", class_="a b", for_="q", data_head="h", hidden=True, id=None, open=False)
    assert found == '<label class="a b" for="q" data-head="h" hidden>x</label>'
    assert markup.tag("br") == "<br>"


@pytest.mark.parametrize(
    "target", ["https://ci.example/1", "http://ci.example/1", "../log.txt", "log.txt?a=1"]
)
def test_a_link_leads_to_the_web_or_a_path(target: str) -> None:
    assert markup.link(target, "log") == f'<a href="{target}">log</a>'


@pytest.mark.parametrize(
    "target",
    ["javascript:alert(1)", "JavaScript:alert(1)", "data:text/html,x", "file:///etc/passwd", "http://["],
)
def test_what_runs_something_is_not_linked(target: str) -> None:
    assert markup.link(target, "log") == "<span>log</span>"


def test_a_page_runs_its_own_script_and_loads_nothing() -> None:
    root = parse(markup.document("<t>", markup.tag("p", "x"), style="p{}", script="1 < 2;"))
    digest = base64.b64encode(hashlib.sha256(b"1 < 2;").digest()).decode()
    policy = root.one("meta", http_equiv="Content-Security-Policy").attributes["content"]
    assert policy is not None
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy
    assert root.one("script").text == "1 < 2;"
    assert root.one("title").text == "<t>"
    assert root.one("head").one("meta", charset="utf-8")


def test_no_table_and_no_line_of_code_makes_a_page_wider_than_a_phone() -> None:
    """A table of a template scrolls by itself, and so do code and long words of every page, or they break."""
    for template in sorted(PACKAGE.rglob("*.html")):
        text = template.read_text(encoding="utf-8")
        assert text.count("<table") == len(re.findall(r'<div class="wide"[^>]*>\s*<table', text)), template
        assert '{% include "page.css" %}' in text, template
    sheets = [*PACKAGE.rglob("*.css"), *PACKAGE.rglob("*.html")]
    rules = [
        (sheet.name, *rule)
        for sheet in sheets
        for rule in re.findall(r"^\s*([^{}%\n]*)\{([^{}%]*)\}", sheet.read_text("utf-8"), re.MULTILINE)
    ]
    for name, place in (("page.css", ".wide"), ("pages.css", ".card")):
        assert any(
            "overflow-x: auto" in text for sheet, of, text in rules if (sheet, of.strip()) == (name, place)
        )
    code = [(sheet, text) for sheet, of, text in rules if re.fullmatch(r"pre(\.line)?", of.strip())]
    assert {sheet for sheet, _ in code} >= {"report.html", "pages.css", "simple.css"}
    assert [sheet for sheet, text in code if not re.search(r"white-space: ?pre-wrap", text)] == []

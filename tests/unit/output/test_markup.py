import base64
import hashlib

import pytest

from cairn.output import markup
from helpers.html import parse

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

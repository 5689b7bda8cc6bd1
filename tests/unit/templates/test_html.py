import base64
import errno
import hashlib
import re
import sys
import tomllib
from pathlib import Path

import jinja2
import pytest

from cairn import templates
from helpers.html import parse

PACKAGE = Path(__file__).parents[3] / "build_tools" / "cairn"
TEMPLATES = sorted((PACKAGE / "templates").glob("*.html.j2"))
EVIL = "\"><script>alert('1')</script>&\u202e\n"
SHOWN = EVIL.replace("\u202e", "\\u202e").replace("\n", "\\n")


def made_of(template: str, **values: object) -> str:
    return templates._environment().from_string(template).render(**values)


def test_texts_are_escaped_and_markup_is_not() -> None:
    template = (
        "{% macro b(text) %}<b>{{ text }}</b>{% endmacro %}<p>{{ b(one) }} & {{ two | join(', ') }}</p>"
    )
    assert made_of(template, one="a < b", two=["<", "c"]) == "<p><b>a &lt; b</b> & &lt;, c</p>"


def test_no_content_and_no_attribute_becomes_markup() -> None:
    template = '<p title="{{ evil }}" data-words="{{ evil }}">{{ evil }}</p>'
    (paragraph,) = parse(made_of(template, evil=EVIL).encode()).children
    assert not isinstance(paragraph, str)
    assert paragraph.text == SHOWN
    assert paragraph.attributes == {"title": SHOWN, "data-words": SHOWN}


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_every_column_of_a_table_has_a_heading(template: Path) -> None:
    for heads in re.findall(r"call table\(\[(.*?)\]", template.read_text(encoding="utf-8")):
        assert '""' not in heads


@pytest.mark.parametrize("name", ["lines", "log"])
def test_what_has_several_lines_keeps_them_and_nothing_else(name: str) -> None:
    text = parse(made_of(f"<pre>{{{{ evil | {name} }}}}</pre>", evil=f"{EVIL}<b>\x1b[31m").encode()).text
    first, second = text.split("\n")
    assert first == SHOWN.removesuffix("\\n").replace("\\u202e", "" if name == "log" else "\\u202e")
    assert second == ("<b>" if name == "log" else "<b>\\x1b[31m")


@pytest.mark.parametrize("macro", ["badge(x)", "mark('good', x)", "time(x)", "short(x, x)", "search(x, x)"])
def test_no_macro_lets_a_value_become_markup(macro: str) -> None:
    name = macro.partition("(")[0]
    root = parse(made_of(f"{{% from 'macros.html.j2' import {name} %}}{{{{ {macro} }}}}", x=EVIL).encode())
    assert not list(root.all("script"))
    assert EVIL[:8] in root.text


def test_a_value_that_is_not_given_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        templates.page("status")


@pytest.mark.parametrize(
    "target", ["https://ci.example/1", "http://ci.example/1", "../log.txt", "log.txt?a=1"]
)
def test_a_link_leads_to_the_web_or_a_path(target: str) -> None:
    assert made_of("{{ target | address }}", target=target) == target


@pytest.mark.parametrize(
    "target",
    ["javascript:alert(1)", "JavaScript:alert(1)", "data:text/html,x", "file:///etc/passwd", "http://["],
)
def test_what_runs_something_is_not_linked(target: str) -> None:
    assert made_of("{{ target | address }}", target=target) == ""
    assert made_of("{{ target | address('http', 'https') }}", target=target) == ""


def test_a_page_runs_its_own_script_and_loads_nothing() -> None:
    template = '{% extends "base.html.j2" %}{% block title %}{{ title }}{% endblock %}'
    template += "{% block main %}x{% endblock %}"
    root = parse(made_of(template, title="<t>").encode())
    script = root.one("script").text
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = root.one("meta", http_equiv="Content-Security-Policy").attributes["content"]
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert script == (PACKAGE / "templates" / "page.js").read_text("utf-8")
    assert root.one("title").text == "<t>"
    assert root.one("head").one("meta", charset="utf-8")
    silent = parse(made_of("{% set scripted = false %}" + template, title="t").encode())
    assert not list(silent.all("script"))
    policy = silent.one("meta", http_equiv="Content-Security-Policy").attributes["content"]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_every_template_escapes_and_has_the_one_layout() -> None:
    """What is said to be safe is our own script; nothing switches the escaping off."""
    assert len(TEMPLATES) >= 8
    for template in TEMPLATES:
        text = template.read_text(encoding="utf-8")
        safe = [line for line in text.splitlines() if re.search(r"\|\s*safe\b|autoescape|Markup", line)]
        assert all(template.name == "base.html.j2" and "script" in line for line in safe), template
        layouts = ('{% extends "base.html.j2" %}', '{% extends "release.html.j2" %}')
        assert template.name in ("base.html.j2", "macros.html.j2") or any(one in text for one in layouts)


def test_no_table_and_no_line_of_code_makes_a_page_wider_than_a_phone() -> None:
    """A table of a template scrolls by itself, and so do code and long words of every page, or they break."""
    for template in TEMPLATES:
        text = template.read_text(encoding="utf-8")
        assert text.count("<table") == len(re.findall(r'<div class="wide"[^>]*>\s*<table', text)), template
    sheets = [*PACKAGE.rglob("*.css"), *TEMPLATES]
    rules = [
        (sheet.name, *rule)
        for sheet in sheets
        for rule in re.findall(r"^\s*([^{}%\n]*)\{([^{}%]*)\}", sheet.read_text("utf-8"), re.MULTILINE)
    ]
    assert any(
        "overflow-x: auto" in text
        for sheet, of, text in rules
        if (sheet, of.strip()) == ("page.css", ".wide")
    )
    code = [(sheet, text) for sheet, of, text in rules if re.fullmatch(r"pre(\.line)?", of.strip())]
    assert {sheet for sheet, _ in code} == {"page.css", "simple.css"}
    assert [sheet for sheet, text in code if not re.search(r"white-space: ?pre-wrap", text)] == []


def test_compiled_templates_are_kept_only_where_python_keeps_bytecode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert templates._bytecode_cache() is None


def test_a_page_is_made_where_the_compiled_template_cannot_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(jinja2.FileSystemBytecodeCache, "dump_bytecode", full)
    monkeypatch.setattr(jinja2.FileSystemBytecodeCache, "load_bytecode", lambda *_: None)
    environment = templates._environment.__wrapped__()
    assert environment.get_template("changelog.html.j2")


def test_a_wheel_of_cairn_holds_every_template_and_sheet() -> None:
    with (PACKAGE.parents[1] / "pyproject.toml").open("rb") as file:
        patterns = tomllib.load(file)["tool"]["setuptools"]["package-data"]["cairn"]
    data = [path for path in (PACKAGE / "templates").iterdir() if path.is_file() and path.suffix != ".py"]
    assert {path.suffix for path in data} == {".j2", ".css", ".js"}
    for path in data:
        assert any(path.relative_to(PACKAGE).match(pattern.removeprefix("**/")) for pattern in patterns), path

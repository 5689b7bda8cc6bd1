"""The page of a project in a package index: links, hashes, and attributes (PEP 503, 592, 658, 714)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cairn import simple_index
from cairn.errors import NetworkError
from cairn.simple_index import IndexFile
from helpers.serving import serving

NAME = "a-1-py3-none-any.whl"
SHA256 = "0" * 64


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (f'<a href="{NAME}">', {}),
        (f'<a href="{NAME}#sha256={SHA256}">', {"sha256": SHA256}),
        (f'<a href="{NAME}#md5=1">', {}),
        (f'<a href="{NAME}#sha256={"A" * 64}">', {"sha256": "a" * 64}),
        (f'<!-- <a href="b-1-py3-none-any.whl"> --><a href="{NAME}">', {}),
        (f'<a href="http://[bad/b-1.tar.gz"><a href="{NAME}">', {}),
        (f'<a href="{NAME}"><a href="{NAME}">', {}),
        (f"<A HREF={NAME}>", {}),
        (f'<a data-requires-python=">=3.8" href="{NAME}">', {"requires_python": ">=3.8"}),
        (f'<a href="{NAME}" data-requires-python="&gt;=3.8">', {"requires_python": ">=3.8"}),
        (f'<a href="{NAME}" data-core-metadata="sha256={SHA256}">', {"has_metadata": True}),
        (f'<a href="{NAME}" data-dist-info-metadata="false">', {}),
        (f'<a href="{NAME}" data-yanked>', {"yanked": True}),
        # Of two attributes of one name the first counts (HTML, "duplicate-attribute").
        (f'<a href="{NAME}" href="other">', {}),
    ],
)
def test_a_link_has_what_its_page_says(tmp_path: Path, text: str, fields: dict[str, str]) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "index.html").write_text(f"<!-- <a> --><abbr>{text}{NAME}</a>", encoding="utf-8")
    url = (tmp_path / "a" / NAME).as_uri()
    (file,) = simple_index.files(str(tmp_path), "a")
    assert file == IndexFile(**{"name": NAME, "url": url, "sha256": None, **fields})  # type: ignore[arg-type]


def test_links_count_from_the_base_of_a_page(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<a href="a/">a</a><a href="b/">b</a>', encoding="utf-8")
    assert simple_index.projects(str(tmp_path)) == ("a", "b")
    (tmp_path / "a").mkdir()
    text = f'<head><base href="https://example.org/x/"></head><a href="{NAME}">'
    (tmp_path / "a" / "index.html").write_text(text, encoding="utf-8")
    assert [file.url for file in simple_index.files(str(tmp_path), "a")] == [f"https://example.org/x/{NAME}"]
    assert simple_index.files(str(tmp_path), "b") == ()
    assert simple_index.projects(str(tmp_path / "none")) == ()


@pytest.mark.parametrize(
    ("more", "fields"),
    [
        ({}, {}),
        ({"hashes": {"sha256": SHA256, "md5": "1"}}, {"sha256": SHA256}),
        ({"requires-python": ">=3.8"}, {"requires_python": ">=3.8"}),
        ({"core-metadata": {"sha256": SHA256}}, {"has_metadata": True}),
        ({"dist-info-metadata": True}, {"has_metadata": True}),
        ({"core-metadata": False, "dist-info-metadata": True}, {}),
        ({"yanked": "bad"}, {"yanked": True}),
        ({"yanked": False}, {}),
    ],
)
def test_a_page_in_json_says_the_same(
    tmp_path: Path, more: dict[str, object], fields: dict[str, str]
) -> None:
    (tmp_path / "a").mkdir()
    file = {"filename": NAME, "url": NAME, "hashes": {}, **more}
    page = {"meta": {"api-version": "1.0"}, "name": "a", "files": [file]}
    (tmp_path / "a" / "index.html").write_text(json.dumps(page), encoding="utf-8")
    url = (tmp_path / "a" / NAME).as_uri()
    (read,) = simple_index.files(str(tmp_path), "a")
    assert read == IndexFile(**{"name": NAME, "url": url, "sha256": None, **fields})  # type: ignore[arg-type]
    (tmp_path / "index.html").write_text('{"projects": [{"name": "a"}, {"name": "b"}]}', encoding="utf-8")
    assert simple_index.projects(str(tmp_path)) == ("a", "b")


@pytest.mark.parametrize(
    "text", ["{", "{}x", '{"files": 1}', '{"files": [1]}', '{"files": [{}]}', '{"a":' + "[" * 99999]
)
def test_a_page_in_json_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "index.html").write_text(text, encoding="utf-8")
    with pytest.raises(NetworkError, match="is no page of a package index"):
        simple_index.files(str(tmp_path), "a")


@pytest.mark.parametrize(
    "piece", ["<a ", '<a "', "<a '\"", "<a href=", '<a x="', "<a href='<a \"", "<!--", "<!-- -"]
)
def test_a_page_that_never_closes_a_tag_is_read_in_time(tmp_path: Path, piece: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "index.html").write_text(piece * 300_000, encoding="utf-8")
    simple_index.files(str(tmp_path), "a")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f'<base href="http://[bad/"><a href="{NAME}">', "names a base that is no address"),
        (f'<a href="{NAME}#sha256={SHA256}"><a href="{NAME}#sha256={"1" * 64}">', "with different hashes"),
        (" " * (1 << 24) + f'<a href="{NAME}">', "is larger than 16 MiB"),
    ],
)
def test_a_page_that_cannot_be_believed_is_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "index.html").write_text(text, encoding="utf-8")
    with pytest.raises(NetworkError, match=why):
        simple_index.files(str(tmp_path), "a")


def test_a_server_leads_to_no_file_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "index.html").write_text(f'<a href="file:///b/{NAME}">', encoding="utf-8")
    with serving(tmp_path) as url:
        assert simple_index.files(url, "a") == ()


def test_a_version_that_is_too_long_to_read_is_none(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    names = f"a-{'9' * 5000}-py3-none-any.whl", NAME
    text = "".join(f'<a href="{name}">' for name in names)
    (tmp_path / "a" / "index.html").write_text(text, encoding="utf-8")
    assert [str(version) for version in simple_index.versions(str(tmp_path), "a")] == ["1"]

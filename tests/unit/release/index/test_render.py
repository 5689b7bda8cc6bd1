from __future__ import annotations

import html.parser
import json
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

import pytest

from cairn.release.index import keys
from cairn.release.index.generation import FileEntry, ProjectState
from cairn.release.index.render import project_page, root_page

SHA = "ab" + "0" * 62
META = "cd" + "1" * 62


def entry(**changes: Any) -> FileEntry:
    values: dict[str, Any] = {
        "filename": "torch-2.9.0+rocm7.10.0-cp311-cp311-linux_x86_64.whl",
        "sha256": SHA,
        "size": 434_000_000,
        "version": "2.9.0+rocm7.10.0",
        "build": "f" * 64,
        "upload_time": "2025-01-02T03:04:05.678901Z",
        "requires_python": ">=3.10,<4",
        "metadata_sha256": META,
    }
    return FileEntry(**(values | changes))


class Links(html.parser.HTMLParser):
    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.anchors: list[dict[str, str | None]] = []
        self.metas: dict[str | None, str | None] = {}
        self.texts: list[str] = []
        self.feed(page.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.anchors.append(dict(attrs))
        elif tag == "meta" and "name" in dict(attrs):
            self.metas[dict(attrs)["name"]] = dict(attrs)["content"]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_file_has_all_that_the_standards_name_in_both_formats() -> None:
    prefix = keys.simple_prefix("release")
    page = project_page(ProjectState(name="torch", files=(entry(),)), prefix=prefix)
    (anchor,) = Links(page.html).anchors
    plain = json.loads(page.json)
    (file,) = plain["files"]
    assert anchor["data-requires-python"] == file["requires-python"] == ">=3.10,<4"
    assert anchor["data-core-metadata"] == f"sha256={file['core-metadata']['sha256']}" == f"sha256={META}"
    assert anchor["href"] == f"{file['url']}#sha256={file['hashes']['sha256']}"
    assert (anchor["data-size"], anchor["data-upload-time"]) == (str(file["size"]), file["upload-time"])
    assert plain["versions"] == ["2.9.0+rocm7.10.0"]
    assert plain["meta"]["api-version"] == Links(page.html).metas["pypi:repository-version"]
    assert plain["project-status"] == {"status": "active"}
    assert Links(page.html).metas["pypi:project-status"] == "active"
    assert file["yanked"] is False
    assert "data-yanked" not in anchor


@pytest.mark.parametrize(
    "prefix", ["release/simple/", "release/gfx110X-all/simple/", keys.set_simple_prefix("f" * 64)]
)
def test_links_lead_from_any_index_to_the_file_with_the_plus_encoded(prefix: str) -> None:
    page = project_page(ProjectState(name="torch", files=(entry(),)), prefix=prefix)
    href = Links(page.html).anchors[0]["href"]
    assert href is not None
    assert "+" not in href
    joined, fragment = urldefrag(urljoin(f"https://host/base/{prefix}torch/index.html", href))
    assert unquote(joined) == f"https://host/base/{keys.file_key(SHA, entry().filename)}"
    assert fragment == f"sha256={SHA}"


def test_what_people_wrote_cannot_become_markup() -> None:
    evil = '"><script>alert(1)</script>'
    project = ProjectState(
        name="torch", files=(entry(yanked=evil, untested=evil, requires_python="<4"),), status_reason=evil
    )
    page = project_page(project, prefix="release/simple/")
    assert page.html.count(b"<script>") == 1
    assert Links(page.html).anchors[0]["data-yanked"] == evil
    assert json.loads(page.json)["files"][0]["yanked"] == evil
    assert json.loads(page.json)["project-status"]["reason"] == evil


def test_a_file_yanked_without_a_reason_is_yanked_all_the_same() -> None:
    page = project_page(ProjectState(name="torch", files=(entry(yanked=""),)), prefix="release/simple/")
    assert Links(page.html).anchors[0]["data-yanked"] == ""
    assert json.loads(page.json)["files"][0]["yanked"] is True


def test_an_untested_file_is_seen_to_be_untested() -> None:
    reason = "untested on hardware: gfx942; bypassed by ann: no GPU"
    page = project_page(ProjectState(name="torch", files=(entry(untested=reason),)), prefix="release/simple/")
    assert f">! {reason}</p>".encode() in page.html
    assert b"<b class=plain>! untested</b></summary>" in page.html.replace(b" <i>2025-01-02</i>", b"")
    assert json.loads(page.json)["files"][0]["_untested"] == reason


def test_without_metadata_to_rely_on_none_is_offered() -> None:
    page = project_page(
        ProjectState(name="rocm", files=(entry(metadata_sha256=None),)), prefix="release/simple/"
    )
    assert "data-core-metadata" not in Links(page.html).anchors[0]
    assert json.loads(page.json)["files"][0]["core-metadata"] is False


def test_versions_are_sorted_as_versions() -> None:
    files = tuple(
        entry(version=v, filename=f"torch-{v}-py3-none-any.whl") for v in ("2.10.0", "2.9.0", "2.9.0rc1")
    )
    project = ProjectState(name="torch", files=()).with_files(files)
    plain = json.loads(project_page(project, prefix="release/simple/").json)
    assert plain["versions"] == ["2.9.0rc1", "2.9.0", "2.10.0"]
    assert [f["filename"].split("-")[1] for f in plain["files"]] == ["2.9.0rc1", "2.9.0", "2.10.0"]


def test_the_root_lists_every_project_once_in_both_formats() -> None:
    page = root_page(["torch", "filelock"])
    assert [a["href"] for a in Links(page.html).anchors] == ["filelock/", "torch/"]
    assert [p["name"] for p in json.loads(page.json)["projects"]] == ["filelock", "torch"]
    assert page == root_page(["filelock", "torch"])


@pytest.mark.parametrize(
    ("kind", "attribute", "field", "words"),
    [
        ("pep740", "data-provenance", "provenance", "signed by a workflow"),
        ("local-key", "data-key-provenance", "_key-provenance", "signed by a local key"),
    ],
)
def test_only_what_pep_740_reads_is_called_provenance(
    kind: str, attribute: str, field: str, words: str
) -> None:
    file = entry(provenance="e" * 64, provenance_kind=kind)
    page = project_page(ProjectState(name="torch", files=(file,)), prefix="release/simple/")
    (anchor,) = Links(page.html).anchors
    (plain,) = json.loads(page.json)["files"]
    assert [name for name in anchor if "provenance" in name] == [attribute]
    assert [name for name in plain if "provenance" in name] == [field]
    assert anchor[attribute] == plain[field]
    url = urljoin("https://host/release/simple/torch/", plain[field])
    assert unquote(url) == f"https://host/{keys.provenance_key(SHA, file.filename, 'e' * 64)}"
    assert words in " ".join(Links(page.html).texts)

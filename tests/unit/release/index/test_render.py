"""The pages of projects: what the standards name, as pip's own parser and uv see it, and as people do."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

import pytest
from pip._internal.index.collector import IndexContent, parse_links
from pip._internal.models.link import Link

from cairn import files as cairn_files
from cairn import isolation, venv
from cairn.release.index import keys
from cairn.release.index.generation import FileEntry, ProjectState
from cairn.release.index.render import JSON_TYPE, project_page, root_page
from helpers.html import Element, parse
from helpers.release import make_wheel

PREFIX = keys.simple_prefix("release")
URL = f"https://wheels.example/base/{PREFIX}torch/"
EVIL = "\"><script>alert(1)</script><a href=x>'&\u202eevil"
SHA = "ab" + "0" * 62
META = "cd" + "1" * 62
UNTESTED = 'untested on hardware: gfx942; bypassed by ann: "no" GPU'


def entry(
    version: str = "2.9.0+rocm7.10.0", tags: str = "cp312-cp312-manylinux_2_28_x86_64", **changes: Any
) -> FileEntry:
    values: dict[str, Any] = {
        "filename": f"torch-{version}-{tags}.whl",
        "sha256": SHA,
        "size": 434_000_000,
        "version": version,
        "build": "e" * 64,
        "upload_time": "2026-11-20T01:02:03.678901Z",
        "requires_python": ">=3.10,<4",
        "metadata_sha256": META,
    }
    return FileEntry(**(values | changes))


def project(*entries: FileEntry, **changes: Any) -> ProjectState:
    return ProjectState(name="torch", files=(), **changes).with_files(entries)


MIXED = project(
    entry(),
    entry(tags="cp311-cp311-win_amd64", sha256="ef" + "2" * 62, requires_python=None, metadata_sha256=None),
    entry("2.8.0+rocm7.9.0", yanked="wrong <b>results</b> & more", provenance="f" * 64),
    entry("2.7.0", yanked=""),
    entry("2.10.0a1", untested=UNTESTED),
)


def pages(state: ProjectState, prefix: str = PREFIX) -> tuple[Element, dict[str, Any]]:
    """The page of a project in both formats."""
    page = project_page(state, prefix=prefix)
    return parse(page.html), json.loads(page.json)


def one_file(file: FileEntry, prefix: str = PREFIX) -> tuple[dict[str, str | None], dict[str, Any]]:
    """What both formats say of the only file of a project."""
    root, plain = pages(project(file), prefix)
    (found,) = plain["files"]
    anchors = [a.attributes for a in root.all("a") if a.text == file.filename]
    return anchors[0], found


def meta(root: Element, name: str) -> str | None:
    return root.one("meta", name=name).attributes["content"]


def test_a_file_has_all_that_the_standards_name_in_both_formats() -> None:
    anchor, file = one_file(entry())
    assert anchor["data-requires-python"] == file["requires-python"] == ">=3.10,<4"
    assert anchor["data-core-metadata"] == f"sha256={file['core-metadata']['sha256']}" == f"sha256={META}"
    assert anchor["href"] == f"{file['url']}#sha256={file['hashes']['sha256']}"
    assert (anchor["data-size"], anchor["data-upload-time"]) == (str(file["size"]), file["upload-time"])
    assert file["yanked"] is False
    assert "data-yanked" not in anchor
    root, plain = pages(project(entry()))
    assert plain["versions"] == ["2.9.0+rocm7.10.0"]
    assert plain["meta"]["api-version"] == meta(root, "pypi:repository-version")
    assert plain["project-status"] == {"status": meta(root, "pypi:project-status")} == {"status": "active"}


@pytest.mark.parametrize("prefix", [PREFIX, "release/gfx110X-all/simple/", keys.set_simple_prefix("f" * 64)])
def test_links_lead_from_any_index_to_the_file_with_the_plus_encoded(prefix: str) -> None:
    href = one_file(entry(), prefix)[0]["href"]
    assert href is not None
    assert "+" not in href
    joined, fragment = urldefrag(urljoin(f"https://host/base/{prefix}torch/index.html", href))
    assert unquote(joined) == f"https://host/base/{keys.file_key(SHA, entry().filename)}"
    assert fragment == f"sha256={SHA}"


def test_what_a_file_lacks_or_is_said_of_it_is_in_both_formats() -> None:
    anchor, file = one_file(entry(yanked=""))  # without a reason, and yanked all the same
    assert (anchor["data-yanked"], file["yanked"]) == ("", True)
    anchor, file = one_file(entry(metadata_sha256=None))
    assert "data-core-metadata" not in anchor
    assert file["core-metadata"] is False
    assert one_file(entry(untested=UNTESTED))[1]["_untested"] == UNTESTED


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
    anchor, plain = one_file(file)
    assert [name for name in anchor if "provenance" in name] == [attribute]
    assert [name for name in plain if "provenance" in name] == [field]
    assert anchor[attribute] == plain[field]
    url = urljoin("https://host/release/simple/torch/", plain[field])
    assert unquote(url) == f"https://host/{keys.provenance_key(SHA, file.filename, 'e' * 64)}"
    assert words in pages(project(file))[0].text


def test_versions_are_sorted_as_versions() -> None:
    plain = pages(project(*(entry(version) for version in ("2.10.0", "2.9.0", "2.9.0rc1"))))[1]
    assert plain["versions"] == ["2.9.0rc1", "2.9.0", "2.10.0"]
    assert [f["filename"].split("-")[1] for f in plain["files"]] == ["2.9.0rc1", "2.9.0", "2.10.0"]


def test_the_root_lists_every_project_once_in_both_formats() -> None:
    page = root_page(["torch", "filelock"])
    links = [a.attributes["href"] for a in parse(page.html).all("a")]
    assert links == ["filelock/", "torch/"]
    assert [p["name"] for p in json.loads(page.json)["projects"]] == ["filelock", "torch"]
    assert page == root_page(["filelock", "torch"])


def as_pip_has_it(link: Link) -> tuple[object, ...]:
    metadata = link.metadata_link()
    return (
        link.filename, link.url_without_fragment, link.hash_name, link.hash, link.requires_python,
        link.yanked_reason, metadata and metadata.url, metadata and metadata.hash,
    )  # fmt: skip


def pip_links(data: bytes, content_type: str) -> list[Link]:
    content = IndexContent(data, content_type, "utf-8", URL, cache_link_parsing=False)
    return list(parse_links(content))


def test_pip_reads_the_same_from_html_and_json() -> None:
    page = project_page(MIXED, prefix=PREFIX)
    html, plain = pip_links(page.html, "text/html"), pip_links(page.json, JSON_TYPE)
    assert sorted(map(repr, map(as_pip_has_it, html))) == sorted(map(repr, map(as_pip_has_it, plain)))
    assert len(html) == len(MIXED.files)
    assert all(link.is_wheel for link in html)
    found = {link.filename: link for link in html}
    torch = found[entry().filename]
    folder = f"https://wheels.example/base/files/ab/{SHA}"
    assert torch.url_without_fragment == f"{folder}/{entry().filename.replace('+', '%2B')}"
    assert torch.metadata_link() is not None
    assert found[entry("2.7.0").filename].yanked_reason == ""
    assert found[MIXED.files[1].filename].yanked_reason == "wrong <b>results</b> & more"
    # Older installers find the metadata in HTML; pip 22.3 to 23.1 fails on any `dist-info-metadata` in
    # JSON: the reason for PEP 714.
    for a in parse(page.html).all("a"):
        assert a.attributes.get("data-dist-info-metadata") == a.attributes.get("data-core-metadata")
    assert b"dist-info-metadata" not in page.json


def test_uv_resolves_from_it(tmp_path: Path) -> None:
    store = tmp_path / "store"
    entries = []
    for version, yanked in (("1.0", None), ("1.1+rocm7.10.0", None), ("2.0", "broken")):
        wheel = make_wheel(tmp_path, "torch", version)
        digest = cairn_files.sha256_of(wheel)
        place = store / keys.file_key(digest, wheel.name)
        place.parent.mkdir(parents=True)
        shutil.copy(wheel, place)
        entries.append(
            entry(version, filename=wheel.name, sha256=digest, size=wheel.stat().st_size, yanked=yanked,
                  requires_python=">=3.9", metadata_sha256=None)
        )  # fmt: skip
    folder = store / PREFIX / "torch"
    folder.mkdir(parents=True)
    folder.joinpath("index.html").write_bytes(project_page(project(*entries), prefix=PREFIX).html)
    options = ("--no-config", "--no-cache", "--no-header", "--generate-hashes")
    done = subprocess.run(
        [venv.uv_program(), "pip", "compile", *options, "-", "--index-url", (store / PREFIX).as_uri()],
        input="torch", capture_output=True, text=True, check=False,
        env=isolation.variables(isolation.Isolation.TOOL), timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "torch==1.1+rocm7.10.0" in done.stdout
    assert f"sha256:{entries[1].sha256}" in done.stdout


def test_versions_newest_first_with_what_is_true_of_all_their_files() -> None:
    root, _ = pages(MIXED)
    assert [version.one("summary").text for version in root.all("details")] == [
        "2.10.0a1 ! untested 2026-11-20",
        "2.9.0+rocm7.10.0 2026-11-20",
        "2.8.0+rocm7.9.0 ✗ yanked 2026-11-20",
        "2.7.0 ✗ yanked 2026-11-20",
    ]
    newest, good, yanked, silent = versions = [*root.all("details")]
    assert ["open" in version.attributes for version in versions] == [True, True, True, False]
    assert [a.text for a in root.all("a")] == [
        file.filename for version in ("2.10.0a1", "2.9.0+rocm7.10.0", "2.8.0+rocm7.9.0", "2.7.0")
        for file in MIXED.files if file.version == version
    ]  # fmt: skip
    assert newest.one("p", class_="note").text == f"! {UNTESTED}"
    assert yanked.one("p", class_="note").text == "! yanked: wrong <b>results</b> & more"
    assert silent.one("p", class_="note").text == "! yanked, without a reason"
    assert not any(good.all("p", class_="note"))
    texts = [p.text for p in good.all("p")]
    assert texts[:3] == [
        "torch==2.9.0+rocm7.10.0",
        "CPython 3.11, Windows x86-64 · 434.0 MB · 2026-11-20 01:02",
        f"sha256 ef{'2' * 62}",
    ]
    place = "CPython 3.12, Linux x86-64, glibc 2.28 or newer"
    assert f"{place} · 434.0 MB · Python >=3.10,<4 · 2026-11-20 01:02" in texts
    assert [pre.text for pre in root.all("pre")] == [
        "pip install --index-url URL/release/simple/ torch",
        "uv pip install --index-url URL/release/simple/ torch",
    ]


def test_a_mark_of_one_file_of_a_version_stands_at_that_file() -> None:
    state = project(entry(), entry(tags="cp313-cp313-linux_x86_64", yanked="bad", untested="never run"))
    (version,) = pages(state)[0].all("details")
    assert version.one("summary").text == "2.9.0+rocm7.10.0 ! untested ✗ partly yanked 2026-11-20"
    good, bad = version.all("li")
    assert not any(good.all("p", class_="note"))
    assert [p.text for p in bad.all("p", class_="note")] == ["! never run", "! yanked: bad"]


def test_the_status_of_a_project_is_shown() -> None:
    root, _ = pages(project(entry(), status="deprecated", status_reason="use torch-rocm"))
    assert next(root.all("p", class_="note")).text == "! deprecated: use torch-rocm"
    assert meta(root, "pypi:project-status") == "deprecated"


def test_no_value_becomes_markup_or_hides_text() -> None:
    evil = entry(
        EVIL, tags=EVIL, sha256=EVIL, upload_time=EVIL, requires_python=EVIL, metadata_sha256=EVIL,
        provenance=EVIL, yanked=EVIL, untested=EVIL,
    )  # fmt: skip
    root, plain = pages(ProjectState(name=EVIL, files=(evil,), status="archived", status_reason=EVIL))
    assert len([*root.all("a")]) == 1
    assert len([*root.all("script")]) == 1
    assert "\u202e" not in root.text
    # What installers read is exact.
    assert root.one("a").attributes["data-yanked"] == plain["files"][0]["yanked"] == EVIL
    assert plain["project-status"]["reason"] == EVIL
    names = parse(root_page([EVIL, "torch"]).html)
    assert [a.text for a in names.all("a")][1:] == ["torch"]
    assert len([*names.all("script")]) == 1


def test_the_index_of_a_set_has_no_page_that_says_how_to_install() -> None:
    def ways(prefix: str) -> list[str]:
        return [b.text for b in pages(MIXED, prefix)[0].all("button")]

    assert ways(PREFIX) == ["all packages", "how to install"]
    assert ways(keys.set_simple_prefix("a" * 64)) == ["all packages"]

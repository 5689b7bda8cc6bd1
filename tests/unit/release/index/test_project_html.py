"""A project's page for people is one that installers read: as pip's own parser and uv itself see it."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

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


def entry(
    version: str = "2.9.0+rocm7.10.0", tags: str = "cp312-cp312-manylinux_2_28_x86_64", **changes: Any
) -> FileEntry:
    values: dict[str, Any] = {
        "filename": f"torch-{version}-{tags}.whl",
        "sha256": "ab" + "0" * 62,
        "size": 434_000_000,
        "version": version,
        "build": "e" * 64,
        "upload_time": "2026-11-20T01:02:03.678901Z",
        "requires_python": ">=3.10,<4",
        "metadata_sha256": "cd" + "1" * 62,
    }
    return FileEntry(**(values | changes))


def project(*entries: FileEntry, **changes: Any) -> ProjectState:
    return ProjectState(name="torch", files=(), **changes).with_files(entries)


MIXED = project(
    entry(),
    entry(tags="cp311-cp311-win_amd64", sha256="ef" + "2" * 62, requires_python=None, metadata_sha256=None),
    entry("2.8.0+rocm7.9.0", yanked="wrong <b>results</b> & more", provenance="f" * 64),
    entry("2.7.0", yanked=""),
    entry("2.10.0a1", untested='untested on hardware: gfx942; bypassed by ann: "no" GPU'),
)


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
    folder = f"https://wheels.example/base/files/ab/ab{'0' * 62}"
    assert torch.url_without_fragment == (
        f"{folder}/torch-2.9.0%2Brocm7.10.0-cp312-cp312-manylinux_2_28_x86_64.whl"
    )
    assert torch.metadata_link() is not None
    assert found["torch-2.7.0-cp312-cp312-manylinux_2_28_x86_64.whl"].yanked_reason == ""
    assert found[MIXED.files[1].filename].yanked_reason == "wrong <b>results</b> & more"


def test_every_link_is_a_file_with_its_name_as_text() -> None:
    root = parse_page(MIXED)
    assert [a.text for a in root.all("a")] == [
        file.filename for version in ("2.10.0a1", "2.9.0+rocm7.10.0", "2.8.0+rocm7.9.0", "2.7.0")
        for file in MIXED.files if file.version == version
    ]  # fmt: skip


def test_older_installers_find_the_metadata_in_html_and_are_not_broken_by_json() -> None:
    page = project_page(MIXED, prefix=PREFIX)
    for a in parse(page.html).all("a"):
        assert a.attributes.get("data-dist-info-metadata") == a.attributes.get("data-core-metadata")
    # pip 22.3 to 23.1 fails on any `dist-info-metadata` in JSON: the reason for PEP 714.
    assert not [
        name for file in json.loads(page.json)["files"] for name in file if "dist-info-metadata" in name
    ]


def parse_page(state: ProjectState) -> Element:
    return parse(project_page(state, prefix=PREFIX).html)


def sections(root: Element) -> list[str]:
    return [version.one("summary").text for version in root.all("details")]


def test_versions_newest_first_with_what_is_true_of_all_their_files() -> None:
    root = parse_page(MIXED)
    assert sections(root) == [
        "2.10.0a1 ! untested 2026-11-20",
        "2.9.0+rocm7.10.0 2026-11-20",
        "2.8.0+rocm7.9.0 ✗ yanked 2026-11-20",
        "2.7.0 ✗ yanked 2026-11-20",
    ]
    newest, good, yanked, silent = root.all("details")
    assert ["open" in version.attributes for version in (newest, good, yanked, silent)] == [
        True,
        True,
        True,
        False,
    ]
    assert newest.one("p", class_="note").text == '! untested on hardware: gfx942; bypassed by ann: "no" GPU'
    assert yanked.one("p", class_="note").text == "! yanked: wrong <b>results</b> & more"
    assert silent.one("p", class_="note").text == "! yanked, without a reason"
    assert not any(good.all("p", class_="note"))
    assert [p.text for p in good.all("p")][:3] == [
        "torch==2.9.0+rocm7.10.0",
        "CPython 3.11, Windows x86-64 · 434.0 MB · 2026-11-20 01:02",
        f"sha256 ef{'2' * 62}",
    ]
    assert (
        "CPython 3.12, Linux x86-64, glibc 2.28 or newer · 434.0 MB · Python >=3.10,<4 · 2026-11-20 01:02"
        in [p.text for p in good.all("p")]
    )
    assert [pre.text for pre in root.all("pre")] == [
        "pip install --index-url URL/release/simple/ torch",
        "uv pip install --index-url URL/release/simple/ torch",
    ]


def test_a_mark_of_one_file_of_a_version_stands_at_that_file() -> None:
    state = project(entry(), entry(tags="cp313-cp313-linux_x86_64", yanked="bad", untested="never run"))
    (version,) = parse_page(state).all("details")
    assert version.one("summary").text == "2.9.0+rocm7.10.0 ! untested ✗ partly yanked 2026-11-20"
    good, bad = version.all("li")
    assert not any(good.all("p", class_="note"))
    assert [p.text for p in bad.all("p", class_="note")] == ["! never run", "! yanked: bad"]


def test_the_status_of_a_project_is_shown() -> None:
    root = parse_page(project(entry(), status="deprecated", status_reason="use torch-rocm"))
    assert next(root.all("p", class_="note")).text == "! deprecated: use torch-rocm"
    assert root.one("meta", name="pypi:project-status").attributes["content"] == "deprecated"


def test_no_value_becomes_markup_or_hides_text() -> None:
    evil = entry(
        EVIL, tags=EVIL, sha256=EVIL, upload_time=EVIL, requires_python=EVIL, metadata_sha256=EVIL,
        provenance=EVIL, yanked=EVIL, untested=EVIL,
    )  # fmt: skip
    state = ProjectState(name=EVIL, files=(evil,), status="archived", status_reason=EVIL)
    root = parse_page(state)
    assert len([*root.all("a")]) == 1
    assert len([*root.all("script")]) == 1
    assert "\u202e" not in root.text
    assert root.one("a").attributes["data-yanked"] == EVIL  # what installers read is exact
    names = parse(root_page([EVIL, "torch"]).html)
    assert [a.text for a in names.all("a")][1:] == ["torch"]
    assert len([*names.all("script")]) == 1


def test_the_index_of_a_set_has_no_page_that_says_how_to_install() -> None:
    def ways(prefix: str) -> list[str]:
        page = project_page(MIXED, prefix=prefix).html
        return [b.text for b in parse(page).all("button")]

    assert ways(PREFIX) == ["all packages", "how to install"]
    assert ways(keys.set_simple_prefix("a" * 64)) == ["all packages"]


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
    page = project_page(project(*entries), prefix=PREFIX)
    folder = store / PREFIX / "torch"
    folder.mkdir(parents=True)
    folder.joinpath("index.html").write_bytes(page.html)
    command = [
        venv.uv_program(),
        "pip",
        "compile",
        "--no-config",
        "--no-cache",
        "--no-header",
        "--generate-hashes",
        "-",
    ]
    done = subprocess.run(
        [*command, "--index-url", (store / PREFIX).as_uri()],
        input="torch", capture_output=True, text=True, check=False,
        env=isolation.variables(isolation.Isolation.TOOL), timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "torch==1.1+rocm7.10.0" in done.stdout
    assert f"sha256:{entries[1].sha256}" in done.stdout

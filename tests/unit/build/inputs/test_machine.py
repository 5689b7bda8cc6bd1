"""What is read outside of a tree and can change a wheel, and what cannot."""

import os
from pathlib import Path

import pytest

from cairn.build.inputs import machine

DPKG = """Package: libfoo-dev
Status: install ok installed
Section: libdevel
Version: {foo}

Package: vim
Status: install ok installed
Section: editors
Version: {vim}
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def headers(tmp_path: Path) -> Path:
    folder = tmp_path / "headers"
    folder.mkdir()
    (folder / "a.h").write_text("1")
    return folder


def seen(text: str, *, inside: tuple[Path, ...] = (), name: str = "NAME") -> dict[str, str | None]:
    return places({name: text}, inside, Path("/nowhere"))


def places(variables: dict[str, str], inside: tuple[Path, ...], root: Path) -> dict[str, str | None]:
    outside = machine.look_outside(variables, inside=inside, root=root)
    return {place: digest for place, digest in outside.items() if place != "packages"}


@pytest.mark.parametrize("form", ["{}", "/none:{}", "-O2 -I{} -Wall", "-isystem {}", "A={};B", "'{}'"])
def test_a_folder_that_a_variable_names_counts_with_what_it_has(headers: Path, form: str) -> None:
    before = seen(form.format(headers))
    assert str(headers) in before
    assert seen(form.format(headers)) == before
    for change in (
        lambda: (headers / "a.h").write_text("2"),
        lambda: (headers / "b.h").write_text(""),
        lambda: (headers / "b.h").rename(headers / "c.h"),
        (headers / "c.h").unlink,
    ):
        change()
        now = seen(form.format(headers))
        assert now != before
        before = now


def test_a_change_within_a_tick_and_of_the_same_size_is_seen(headers: Path) -> None:
    found = set()
    for text in "12345":
        (headers / "a.h").write_text(text)
        os.utime(headers / "a.h", ns=(0, (headers / "a.h").stat().st_mtime_ns // 10**9 * 10**9))
        found.add(seen(str(headers))[str(headers)])
    assert len(found) == 5


def test_a_file_is_read_again_only_where_its_mark_is_another(headers: Path) -> None:
    for path in headers.iterdir():
        os.utime(path, (1, 1))
    before = seen(str(headers))
    (headers / "a.h").write_text("2")
    os.utime(headers / "a.h", (1, 1))
    assert seen(str(headers)) == before


def test_a_folder_that_comes_later_counts(tmp_path: Path) -> None:
    before = seen(str(tmp_path / "later"))
    (tmp_path / "later").mkdir()
    assert seen(str(tmp_path / "later")) != before


def test_what_is_an_input_by_itself_is_not_read_again(headers: Path) -> None:
    assert seen(str(headers / "a.h"), inside=(headers,)) == {}
    before = seen(str(headers.parent), inside=(headers,))
    (headers / "a.h").write_text("22")
    assert seen(str(headers.parent), inside=(headers,)) == before
    assert seen(f"-ffile-prefix-map=/a={headers}") == {}
    assert seen("/usr/include:/etc/x") == {}
    assert seen("https://host/simple {source_dir}/include on/off /") == {}
    assert seen(str(headers), name="CCACHE_DIR") == {}


def test_a_package_with_headers_counts_and_an_editor_does_not(tmp_path: Path) -> None:
    root = tmp_path / "root"
    status = root / "var/lib/dpkg/status"
    status.parent.mkdir(parents=True)

    def packages(**versions: str) -> str | None:
        status.write_text(DPKG.format(**versions))
        return machine.look_outside({}, inside=(), root=root)["packages"]

    first = packages(foo="1", vim="1")
    assert first is not None
    assert packages(foo="1", vim="22") == first
    assert packages(foo="2", vim="22") != first


def test_an_rpm_or_an_apk_or_a_pacman_system_is_known_and_any_other_is_not(tmp_path: Path) -> None:
    assert machine.look_outside({}, inside=(), root=tmp_path / "empty")["packages"] is None
    apk = tmp_path / "apk/lib/apk/db/installed"
    apk.parent.mkdir(parents=True)
    found = set()
    for version in ("1", "2"):
        apk.write_text(f"P:musl-dev\nV:{version}\n\nP:vim\nV:1\n")
        found.add(machine.look_outside({}, inside=(), root=tmp_path / "apk")["packages"])
    for name in ("gcc-1", "gcc-2"):
        (tmp_path / "arch/var/lib/pacman/local" / name).mkdir(parents=True)
        found.add(machine.look_outside({}, inside=(), root=tmp_path / "arch")["packages"])
    assert len(found) == 4
    assert None not in found


def test_what_people_put_into_usr_local_counts(tmp_path: Path) -> None:
    include = tmp_path / "usr/local/include"
    include.mkdir(parents=True)
    found = [places({}, (), tmp_path)]
    (include / "a.h").write_text("")
    found.append(places({}, (), tmp_path))
    (tmp_path / "usr/local/lib").mkdir()
    (tmp_path / "usr/local/lib/liba.a").write_text("")
    found.append(places({}, (), tmp_path))
    assert len({str(one) for one in found}) == 3

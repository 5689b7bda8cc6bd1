"""How the time to read what others wrote grows with its length; all of it must grow in proportion.

    python benchmarks/foreign_text.py

Each case is a text that is hard for its reader: what nearly matches a pattern again and again, or very many
of one thing. It is read at one size and at eight times that size. Time in proportion takes 8 times as long,
time that grows with the square 64 times. The figures are CPU time of this thread; the test
`tests/unit/foreign_text/test_linear.py` holds every case below 24.
"""

from __future__ import annotations

import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from cairn import datafile, requirements, targets
from cairn.build.inputs import variables
from cairn.errors import CairnError
from cairn.output import console, safe_text
from cairn.process import run_program
from cairn.release import serve_http
from cairn.sources import pins
from cairn.sources.checkout import local_commits
from cairn.sources.git import command, url
from cairn.sources.hipify import report as hipify_report
from cairn.sources.patches import audit
from cairn.testing import junit
from cairn.wheels.contents.summary import summarise
from cairn.wheels.fat import rocm_tree
from cairn.wheels.metadata import fields, record, wheel_info
from cairn.wheels.verify import Expectation, verify
from cairn.wheels.verify.secrets import Scanner
from cairn.wheels.wheelset import SetWheel, WheelSet

FACTOR = 8
Case = tuple[int, Callable[[int], Callable[[], object]]]
_INFO = "demo-1.0.dist-info"
_COMMIT = "0123456789" * 4


def cases(folder: Path) -> Mapping[str, Case]:
    """Name to a size and what makes the work of that size; files go into `folder`."""
    return {**_texts(), **_git_texts(folder), **_metadata(), **_files(folder), **_wheels(folder)}


def ratio(case: Case, *, runs: int = 3) -> tuple[float, float, float]:
    """Seconds at the size of the case, at the larger one, and their ratio; 0 where it is too fast to tell."""
    size, make = case
    small, large = (min(_seconds(make(n)) for _ in range(runs)) for n in (size, size * FACTOR))
    return small, large, large / small if large > 0.001 else 0.0


def _seconds(work: Callable[[], object]) -> float:
    started = time.thread_time()
    try:
        work()
    except CairnError:
        pass  # refused is as good as read
    except ValueError:
        pass
    return max(time.thread_time() - started, 1e-6)


def _texts() -> dict[str, Case]:
    def each(size: int, work: Callable[[str], object], unit: str, before: str = "", after: str = "") -> Case:
        def make(count: int) -> Callable[[], object]:
            text = before + unit * count + after
            return lambda: work(text)

        return size, make

    def scan(text: str) -> None:
        scanner = Scanner("config.py")
        scanner.feed(text.encode())
        scanner.finish()

    return {
        "mask: a.a.a.": each(40_000, safe_text.mask, "a."),
        "mask: a://a://": each(20_000, safe_text.mask, "a://"),
        "mask: x://a@x://a@": each(5_000, safe_text.mask, "x://a@"),
        "line of a program: escape sequences": each(5_000, console.Stage(name="x").update, "\x1b[1;1"),
        "line of a program: titles that never end": each(20_000, safe_text.without_moves, "\x1b]"),
        "line shown: unseen characters": each(5_000, safe_text.visible, "\x85"),
        "line shown: ##[##[": each(20_000, safe_text.inert, "##["),
        "line shown: ##aaa": each(20_000, safe_text.inert, "##a"),
        "line shown: one long word": each(100_000, safe_text.inert, "a", "##"),
        "lines of a program": each(20_000, _lines(1 << 16), "word\n"),
        "one line of a program, in blocks": each(200_000, _lines(64), "word"),
        "secrets: keys that begin": each(2_000, scan, "-----BEGIN A A A PRIVATE KEY-----   "),
        "secrets: BEGIN A A A": each(20_000, scan, "A ", "-----BEGIN ", "PRIVATE KEY-----"),
        "secrets: passwords that do not end": each(20_000, scan, "https://a:b"),
        "requirement: name": each(200_000, requirements.requirement, "a"),
        "requirement: spaces": each(100_000, requirements.requirement, " ", "a", "b"),
        "requirement: parentheses": each(20_000, requirements.requirement, "(", "a; "),
        "requirement: specifiers": each(200, _once, ">=1.0,", "a ", ">=1.0"),
        "requirement: extras": each(500, _once, "b,", "a[", "b]"),
        "requirement: markers": each(100, _once, "python_version>'3' or ", "a; ", "os_name=='x'"),
        "version: segments": each(500, requirements.version, "1.", "", "1"),
        "specifiers": each(200, requirements.specifiers, ">=1,", "", ">=1"),
        "targets": each(2_000, targets.parse_targets, "gfx942,"),
        "target that is none": each(200, targets.parse_targets, "gfx"),
        "template": each(5_000, lambda text: variables.expand(text, {}, where="x"), "{a"),
        "library name: 1.1.1": each(2_000, rocm_tree.stem_of, "1.", "lib", "x.dll"),
        "Accept header": each(1_000, lambda t: serve_http.choose_page(t, ["index.html"]), "a/b;q=0.1,"),
        "wheel tag": each(5_000, wheel_info.expand_tags, "a.", "a-a-"),
        "wheel file name": each(20_000, wheel_info.parse_file_name, "a.", "a-1.0-", "-none-any.whl"),
    }


def _once(text: str) -> None:
    requirements.requirement.cache_clear()
    requirements.requirement(text)


def _lines(block: int) -> Callable[[str], object]:
    def work(text: str) -> None:
        data = text.encode()
        lines = run_program._Stream(lambda _line: None, None)  # noqa: SLF001
        for at in range(0, len(data), block):
            lines.add(data[at : at + block])
        lines.add(b"")

    return work


def _git_texts(folder: Path) -> dict[str, Case]:
    def stderr(unit: str) -> Case:
        return (
            1_000,
            lambda count: lambda: command.error_of(["fetch"], "remote: " + unit * count, returncode=128),
        )

    def written(name: str, size: int, work: Callable[[Path], object], unit: str, before: str = "") -> Case:
        def make(count: int) -> Callable[[], object]:
            path = folder / f"{count}-{name}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(before + unit * count)
            return lambda: work(path)

        return size, make

    def source(path: Path) -> object:
        names = {"cudaX": "cudaX"}
        return hipify_report.find_leftovers(
            path.parent, written=[path.name], unread=[path.name], hipified=[], unsupported=names
        )

    include = "#include <cuda.h>\ncudaX("
    allowed = 'schema = "cairn.patches/1"\n'
    return {
        "git's words: repository": stderr("repository "),
        "git's words: transport": stderr("transport '"),
        "git's words: lines": stderr("error: x\n"),
        "hipified source: comments that never end": written("a.h", 4_000, source, "/* ", include),
        "hipified source: calls": written("b.h", 4_000, source, "cublasA   ", include),
        "hipified source: one long word": written("c.h", 8_000, source, "cudaA", include),
        "related_commits": written(
            "related", 500, pins.related_commits, f"ubuntu|a|torch|b|{_COMMIT}|https://h/x\n"
        ),
        "patches allowlist: blank lines": written("d.toml", 4_000, audit.load_allowlist, "\n", allowed),
        "patches allowlist: tables": written("e.toml", 200, audit.load_allowlist, "[[patch]]\n", allowed),
        "a diff": (20_000, lambda n: lambda: local_commits._HUNK.sub(b"@@", b"@@ -1 +1 " * n)),  # noqa: SLF001
        "an origin": (20_000, lambda n: lambda: url.without_credentials("a" * n + "://" + "b:" * n)),
        "an origin: identity": (5_000, lambda n: lambda: url.slug("a/" * n + "@:" * n)),
    }


def _metadata() -> dict[str, Case]:
    head = "Metadata-Version: 2.1\nName: a\nVersion: 1\n"

    def core(text: str) -> object:
        return fields.core_metadata(text.encode(), name="METADATA")

    def plain(text: str) -> object:
        return fields.parse_headers(text.encode(), name="WHEEL").all("Tag")

    def each(
        size: int, work: Callable[[str], object], unit: Callable[[int], str], before: str = head
    ) -> Case:
        return size, lambda count: lambda: work(before + "".join(map(unit, range(count))))

    return {
        "METADATA: requirements": each(1_000, core, lambda i: f"Requires-Dist: a{i}\n"),
        "METADATA: different fields": each(500, core, lambda i: f"X-{i}: a\n"),
        "METADATA: folded lines": each(5_000, core, lambda _: " a\n", f"{head}Summary: a\n"),
        "METADATA: keywords": each(20_000, core, lambda _: "a,", f"{head}Keywords: "),
        "METADATA: lines that are not headers": each(5_000, core, lambda _: "a\n"),
        "WHEEL: folded lines": each(10_000, plain, lambda _: " a\n", "Tag: a\n"),
        "WHEEL: tags": each(5_000, plain, lambda _: "Tag: a\n", ""),
        "RECORD": each(5_000, record.parse_record, lambda i: f"a{i},sha256=a,1\n", ""),
        "RECORD with quotes": each(5_000, record.parse_record, lambda i: f'"a{i}",sha256=a,1\n', ""),
        "RECORD: commas": each(50_000, record.parse_record, lambda _: ",", ""),
    }


def _files(folder: Path) -> dict[str, Case]:
    def suite(count: int) -> Callable[[], object]:
        path = folder / f"{count}.xml"
        path.write_text("<testsuite>" + "<testcase name='a'/>" * count + "</testsuite>")
        return lambda: junit.read(path)

    def one_set(count: int) -> Callable[[], object]:
        digest = "0" * 64
        wheels = tuple(
            SetWheel(
                distribution=f"a{i}",
                version="1",
                file_name="a",
                sha256=digest,
                size=1,
                metadata_sha256=digest,
                targets=(),
            )
            for i in range(count)
        )
        whole = WheelSet(
            set_id=digest,
            manifest_sha256=digest,
            stack="a",
            line="a",
            python="3.11",
            platform="a",
            family="cpu",
            targets=(),
            wheels=wheels,
        )
        text = datafile.dumps(whole)
        return lambda: datafile.loads(text, WheelSet, name="set.json")

    return {"JUnit": (1_000, suite), "set.json": (30, one_set)}


def _wheels(folder: Path) -> dict[str, Case]:
    def each(work: Callable[[Path], object], size: int, text: Callable[[int], Mapping[str, str]]) -> Case:
        def prepare(count: int) -> Callable[[], object]:
            path = _wheel(folder / str(count), text(count))
            requirements.requirement.cache_clear()
            return lambda: work(path)

        return size, prepare

    def judged(path: Path) -> object:
        return verify(path, Expectation())

    def many(line: Callable[[int], str]) -> Callable[[int], str]:
        return lambda count: "".join(map(line, range(count)))

    entries = f"{_INFO}/entry_points.txt"
    scripts = "[console_scripts]\n"
    required = many(lambda i: f"Requires-Dist: a{i} (>=1) ; extra == 'x'\n")
    groups = many(lambda i: f"[g{i}]\na = b:c\n")
    return {
        "verify: members": each(judged, 200, lambda n: {f"demo/{i}.so": "a" for i in range(n)}),
        "show: members": each(summarise, 200, lambda n: {f"demo/{i}.so": "a" for i in range(n)}),
        "verify: requirements": each(judged, 100, lambda n: {f"{_INFO}/METADATA": required(n)}),
        "verify: a long script": each(judged, 10_000, lambda n: {entries: f"{scripts}{'a' * n}/ = a:b\n"}),
        "verify: a long function": each(judged, 10_000, lambda n: {entries: f"{scripts}a = {'a.' * n}!\n"}),
        "verify: groups of entry points": each(judged, 200, lambda n: {entries: groups(n)}),
    }


def _wheel(folder: Path, texts: Mapping[str, str]) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "demo-1.0-py3-none-any.whl"
    members = {
        **texts,
        f"{_INFO}/METADATA": "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n"
        + texts.get(f"{_INFO}/METADATA", ""),
        f"{_INFO}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    members[f"{_INFO}/RECORD"] = "".join(f"{name},,\n" for name in (*members, f"{_INFO}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return path


def main() -> int:
    """Measure and print; 1 when something grows faster than its input."""
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'what is read':44} {'size':>8} {'ms':>9} {f'ms x{FACTOR}':>9} {'ratio':>6}")
        for name, case in cases(Path(folder)).items():
            small, large, grown = ratio(case)
            worst = max(worst, grown)
            print(f"{name:44} {case[0]:8} {small * 1000:9.2f} {large * 1000:9.2f} {grown:6.1f}")
    return int(worst > FACTOR * 3)


if __name__ == "__main__":
    sys.exit(main())

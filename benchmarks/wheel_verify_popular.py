"""Judge the judge: `cairn wheel verify` over some of PyPI's most downloaded wheels.

    python benchmarks/wheel_verify_popular.py /tmp/popular

The wheels of `wheel_verify_popular.txt`, by exact file name, are fetched by pip into the folder given where
they are not there yet (about 7 GB), and each is verified by itself, or with the wheel that stands beside
it in the list. Every finding is printed: one that could not be defended before the wheel's author is a
defect of ours. Fails where one could not be fetched.

With `--written` each wheel is written anew by `set-version`, by `repair`, by `repair` after its tag became a
plain `linux` one, by `split`, by `join` of what that wrote, and with `--rocm` by `fat`; printed is what came
out, a finding on it that the wheel had not before, and what a refusal left in the output folder.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from packaging.utils import parse_wheel_filename

LIST = Path(__file__).with_suffix(".txt")
MOST = 250_000_000  # bytes of a wheel


def main() -> None:
    """Fetch, verify and print."""
    parser = argparse.ArgumentParser(
        description=textwrap.dedent(__doc__ or ""), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where the wheels are kept")
    parser.add_argument("--only", default="", metavar="TEXT", help="only those with that in their names")
    parser.add_argument("--written", action="store_true", help="write each anew, and verify that")
    parser.add_argument("--rocm", type=Path, metavar="FOLDER", help="the ROCm that fat wheels take from")
    parser.add_argument("--most", type=int, default=1000, metavar="N", help="the smallest of those at hand")
    options = parser.parse_args()
    if options.written:
        paths = (path for path in options.folder.glob("*.whl") if options.only in path.name)
        written(sorted(paths, key=lambda path: path.stat().st_size)[: options.most], options.rocm)
        return
    names = [line for line in LIST.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    missing, judged, found = [], 0, 0
    for name, *beside in (line.split() for line in names if options.only in line):
        wheels = [options.folder / one for one in (name, *beside)]
        lacking = [one.name for one in wheels if not one.exists() and not fetch(one.name, options.folder)]
        if lacking:
            missing += lacking
            continue
        began = time.process_time()
        findings = verified(*wheels)
        print(f"{len(findings):4}  {time.process_time() - began:6.2f} s  {name}", flush=True)
        for finding in findings:
            print(textwrap.indent(finding, " " * 16))
        judged += 1
        found += len(findings)
    print(f"{judged} wheels, {found} findings")
    if missing:
        raise SystemExit(f"not to be fetched: {', '.join(missing)}")


def fetch(name: str, folder: Path) -> bool:
    """Whether pip could fetch the wheel of exactly that file name."""
    distribution, version, _, tags = parse_wheel_filename(name)
    pythons = {tag.interpreter for tag in tags}
    python = max(pythons, key=len)
    numbers = python.lstrip("abcdefghijklmnopqrstuvwxyz")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--dest", str(folder), "--python-version", f"{numbers[0]}.{numbers[1:] or 12}"]
    command += [f"--platform={tag.platform}" for tag in tags if tag.platform != "any"]
    if python[:2] in ("cp", "pp"):
        command += ["--implementation", python[:2], *(f"--abi={tag.abi}" for tag in tags)]
    subprocess.run([*command, f"{distribution}=={version}"], check=False)
    wheel = folder / name
    return wheel.exists() and wheel.stat().st_size < MOST


def written(wheels: Sequence[Path], rocm: Path | None) -> None:
    """Write wheels anew in each way, and print what came out.

    Raises:
        SystemExit: a wheel came out worse than it was, or a refusal left something behind.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for wheel in wheels:
        ways = ["set-version", "repair", *(["repair of linux"] if "linux" in wheel.name else [])]
        for way in (*ways, "split", "join", *(["fat"] if rocm else [])):
            with tempfile.TemporaryDirectory(dir=wheel.parent) as folder:
                result, *reason = outcome(way, wheel, Path(folder), rocm)
            counts[way, result] += 1
            if reason:
                print(f"{way} of {wheel.name}: {result}: {reason[0]}", flush=True)
    for (way, result), count in sorted(counts.items()):
        print(f"{way:18}{result:10}{count:4}")
    if any(result in ("worse", "left") for _, result in counts):
        raise SystemExit("some came out worse, or not whole")


def outcome(way: str, wheel: Path, folder: Path, rocm: Path | None) -> tuple[str, ...]:
    """`good` or `copied`; or `refused`, `left` or `worse`, and why."""
    from cairn.errors import WheelError  # noqa: PLC0415
    from cairn.wheels.verify import Expectation, verify  # noqa: PLC0415

    try:
        source, paths = write_anew(way, wheel, folder, rocm)
    except WheelError as error:
        return "left" if (folder / "out").exists() else "refused", str(error)
    if paths[0].read_bytes() == source.read_bytes():
        return ("copied",)
    before = Counter(finding.code for finding in verify(source, Expectation()))
    for path in paths:
        if worse := Counter(finding.code for finding in verify(path, Expectation())) - before:
            return "worse", f"{path.name}: {worse}"
    return ("good",)


def write_anew(way: str, wheel: Path, folder: Path, rocm: Path | None) -> tuple[Path, list[Path]]:
    """Write a wheel into the folder `out`; return what it was made of, and what came out."""
    from cairn.wheels.fat.build import FatRequest, make  # noqa: PLC0415
    from cairn.wheels.repair import repair_linked  # noqa: PLC0415
    from cairn.wheels.rewrite.set_version import set_versions  # noqa: PLC0415
    from cairn.wheels.rewrite.version_options import NewVersion  # noqa: PLC0415
    from cairn.wheels.rewrite.wheel import Edit, edit_wheel  # noqa: PLC0415
    from cairn.wheels.split.join import join  # noqa: PLC0415
    from cairn.wheels.split.split import split  # noqa: PLC0415

    out = folder / "out"
    if way == "set-version":
        return wheel, [set_versions([wheel], NewVersion(version="9!9+rocm7.10.0"), out)[0].target]
    if way == "split":
        return wheel, list(split(wheel, out))
    if way == "join":
        host, *devices = split(wheel, folder / "parts")
        return wheel, [join(host, devices, out).path]
    if way == "fat" and rocm is not None:
        return wheel, [Path(make(FatRequest(wheel=wheel, rocm=rocm, output_dir=out)).wheel)]
    source = wheel
    if way == "repair of linux":
        python, abi, platform = wheel.stem.split("-")[-3:]
        plain = re.sub(r".*linux(?:\d+|_\d+_\d+)", "linux", platform)
        source = edit_wheel(wheel, Edit(tags=(f"{python}-{abi}-{plain}",)), folder / "plain")
    return source, [repair_linked(source, out, exclude=())]


def verified(wheel: Path, *beside: Path) -> list[str]:
    """The findings on one wheel, as lines; those of one kind on many members are shown together."""
    # Imported here, so that the list can be fetched by a Python without Cairn.
    from cairn.wheels.contents import providers  # noqa: PLC0415
    from cairn.wheels.verify import Expectation, verify  # noqa: PLC0415

    supply = providers.supplies([wheel, *beside])[wheel]
    expected = Expectation(provided_libraries=supply.libraries, beside=supply.versions)
    findings = verify(wheel, expected)
    several = Counter((finding.code, finding.reason) for finding in findings)
    lines = []
    for (code, reason), count in several.items():
        where = [
            finding.member or "" for finding in findings if (finding.code, finding.reason) == (code, reason)
        ]
        more = f" and {count - 1} more" if count > 1 else ""
        lines.append(f"[{code}] {where[0]}{more}: {reason}")
    return lines


if __name__ == "__main__":
    main()

"""Change the version of a large wheel: Cairn beside unpacking, editing and `wheel pack`.

    pip download torch==2.13.0 --no-deps --dest /tmp/subject
    python benchmarks/wheel_version_change.py /tmp/subject/torch-*.whl

Both sides run in turn as child processes, three times each; the medians are printed. Ours is the command that
users type, `cairn wheel set-version`. CPU is user and system time of the process and its children, the start
of the interpreter included; memory is the peak of the largest one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import textwrap
from pathlib import Path

from wheel_measure import Cost, measured, median, report

# The way of `wheel tags` and of release scripts: everything is unpacked, four files change, everything is
# compressed again.
PEER = """
import pathlib, re, subprocess, sys
wheel, version, folder = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
tool = [sys.executable, "-m", "wheel"]
run = lambda *args: subprocess.run([*tool, *args], check=True, stdout=subprocess.DEVNULL)
run("unpack", str(wheel), "--dest", str(folder))
(tree,) = folder.iterdir()
(info,) = tree.glob("*.dist-info")
text = (info / "METADATA").read_text()
(info / "METADATA").write_text(re.sub(r"(?m)^Version: .*$", f"Version: {version}", text, count=1))
info.rename(tree / f"{tree.name.split('-')[0]}-{version}.dist-info")
run("pack", str(tree), "--dest-dir", str(folder))
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=textwrap.dedent(__doc__ or ""))
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--version", default="2.13.0+rocm7.10.0")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    results: dict[str, list[Cost]] = {"wheel pack": [], "cairn": []}
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory(dir=options.wheel.parent) as folder:
            peer = [sys.executable, "-c", PEER, str(options.wheel.absolute()), options.version, folder]
            results["wheel pack"].append(measured(peer))
        with tempfile.TemporaryDirectory(dir=options.wheel.parent) as folder:
            cairn = [sys.executable, "-m", "cairn", "wheel", "set-version", "--version", options.version]
            results["cairn"].append(measured([*cairn, "--output-dir", folder, str(options.wheel.absolute())]))
    report(median(results["wheel pack"]), median(results["cairn"]), peer_name="unpack, edit, wheel pack")


if __name__ == "__main__":
    main()

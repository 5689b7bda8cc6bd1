"""A patch file taken apart."""

from __future__ import annotations

import pytest

from cairn.errors import UsageError
from cairn.sources.patches.patch_files import _diff, files_of

TEXT = b"""\
---
 a | 4 ++--
 1 file changed

diff --git a/a b/a
index 1..2 100644
--- a/a
+++ b/a
@@ -1,3 +1,2 @@ def f():
 one
--- two
--~
+--
@@ -10 +9 @@
-x
+y
\\ No newline at end of file
diff --git "a/\\303\\274 b.txt" "b/\\303\\274 b.txt"
new file mode 100644
index 0..1
--- /dev/null
+++ "b/\\303\\274 b.txt"
@@ -0,0 +1 @@
+new
diff --git a/x y b/x y
old mode 100644
new mode 100755
--~
2.39.5

""".replace(b"~", b" ")


def test_files_and_hunks() -> None:
    found = tuple(files_of(TEXT))
    assert [(file.name, file.is_new, [h.line for h in file.hunks]) for file in found] == [
        ("a", False, [1, 10]),
        ("ü b.txt", True, [0]),
        ("x y", False, []),
    ]
    assert found[0].hunks[0].before == (b"one", b"-- two", b"- ")
    assert found[0].hunks[0].header == b"@@ -1,3 +1,2 @@"


def test_the_summary_and_the_signature_are_no_part_of_the_change() -> None:
    """A line that is taken out may look like a signature."""
    diff = _diff(TEXT)
    assert diff.startswith(b"diff --git a/a b/a\n")
    assert diff.endswith(b"new mode 100755\n")
    assert b"\n-- \n+--\n" in diff
    assert _diff(b"---\n-- \n2.39.5\n") == b""
    assert _diff(TEXT.replace(b"\n", b"\r\n")) == diff.replace(b"\n", b"\r\n")[:-2] + b"\r\n"


@pytest.mark.parametrize(
    ("header", "name"),
    [
        (b"i/foo.c w/foo.c", "foo.c"),  # `diff.mnemonicPrefix`
        (b"a/old b/new", "new"),
        (b'"a/\\303\\274" b/new', "new"),
        (b'a/old "b/\\303\\274"', "ü"),
    ],
)
def test_names_in_headers(header: bytes, name: str) -> None:
    assert [file.name for file in files_of(b"diff --git " + header + b"\n")] == [name]


@pytest.mark.parametrize(
    "header", [b"foo.c foo.c", b"old new", b"i/old w/new", b"dir/old dir/new", b'"\\303\\274" "\\303\\274"']
)
def test_a_patch_without_prefixes_is_refused(header: bytes) -> None:
    with pytest.raises(UsageError, match="without the prefixes"):
        tuple(files_of(b"diff --git " + header + b"\n"))

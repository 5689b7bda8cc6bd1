import pytest

from cairn.wheels.metadata import tag_words


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        ("cp312-cp312-linux_x86_64", "CPython 3.12, Linux x86-64"),
        ("cp312-cp312-manylinux_2_28_x86_64", "CPython 3.12, Linux x86-64, glibc 2.28 or newer"),
        (
            "cp39-abi3-manylinux_2_17_aarch64.manylinux2014_aarch64",
            "CPython 3.9 or newer, Linux Arm 64-bit, glibc 2.17 or newer",
        ),
        ("cp313-cp313t-musllinux_1_2_x86_64", "CPython 3.13, free-threaded, Linux x86-64, musl 1.2 or newer"),
        ("cp311-cp311-win_amd64", "CPython 3.11, Windows x86-64"),
        ("cp311-cp311-win32", "CPython 3.11, Windows x86 32-bit"),
        ("cp311-cp311-macosx_11_0_arm64", "CPython 3.11, macOS 11.0 or newer, Arm 64-bit"),
        ("py3-none-any", "any Python 3, any system"),
        ("py2.py3-none-any", "any Python, any system"),
        ("py311-none-any", "Python 3.11 or newer, any system"),
        ("py3-none-manylinux1_x86_64", "any Python 3, Linux x86-64, glibc 2.5 or newer"),
        ("pp310-pypy310_pp73-linux_ppc64le", "PyPy 3.10, Linux ppc64le"),
        ("jy27-none-haiku_1", "jy27-none, haiku_1"),
    ],
)  # fmt: skip
def test_tags_in_words(tags: str, words: str) -> None:
    assert tag_words.of_file(f"torch-2.9.0+rocm7.10.0-{tags}.whl") == words
    assert tag_words.of_file(f"torch-2.9.0-1-{tags}.whl") == words


def test_what_is_built_when_it_is_installed_is_source() -> None:
    assert tag_words.of_file("rocm-7.10.0.tar.gz") == "source"

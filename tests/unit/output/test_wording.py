from cairn.output import wording


def test_numbers_and_lists_as_sentences_have_them() -> None:
    assert [wording.count(range(n), "file") for n in (0, 1, 3)] == ["0 files", "1 file", "3 files"]
    assert wording.some([]) == ""
    assert wording.some("abcde") == "a, b, c, d, e"
    assert wording.some("abcdef") == "a, b, c, d, e and 1 more"
    assert wording.some("abc", shown=1) == "a and 2 more"

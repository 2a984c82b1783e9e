"""The count of riddle words: text and names are read, quotations are not."""

from tooling.riddle_words import riddle_words_of_page, riddle_words_of_python


def test_a_python_file_is_read_in_comments_strings_and_names() -> None:
    source = '"""First line.\n\nWhoever calls."""\n# nobody reads\nknown = "`told` is a name"\nknown_keys = 1\n'
    assert [(hit.line, hit.word) for hit in riddle_words_of_python(source)] == [
        (3, "Whoever"),
        (4, "nobody"),
        (5, "known"),
    ]


def test_left_beside_right_is_an_operand_in_filters_alone() -> None:
    pair, alone = "def equal(left, right): ...\n", "left = 1\n"
    for name in ("filters/nodes.py", "tests/filters/test_nodes.py"):
        assert not list(riddle_words_of_python(pair, name=name))
        assert [hit.word for hit in riddle_words_of_python(alone, name=name)] == ["left"]
    assert [hit.word for hit in riddle_words_of_python(pair, name="store/nodes.py")] == ["left"]
    assert [hit.word for hit in riddle_words_of_python(f"{pair}known = 1\n", name="filters/nodes.py")] == ["known"]


def test_a_page_is_read_outside_of_fences_and_backticks() -> None:
    page = "It lives here.\n```\nnobody\n```\n`told` and told\nIt returns what it was sent, and what failed.\n"
    assert [(hit.line, hit.word) for hit in riddle_words_of_page(page)] == [
        (1, "lives"),
        (5, "told"),
        (6, "what it was sent, and what"),
    ]

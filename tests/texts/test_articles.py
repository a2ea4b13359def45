"""Inputs: the built-in articles, text files and token lists, with errors that say what to do."""

import json

import pytest

from qevict_diag.errors import InputError
from qevict_diag.models.load import load
from qevict_diag.texts.read import read_text, read_tokens
from qevict_diag.texts.source import Source, built_in, slug, unique_names


def test_there_are_eight_articles_of_prose():
    articles = built_in()
    assert len({article.sha256 for article in articles}) == 8
    for article in articles:
        assert len(article.text.split()) > 1700  # more than 1,280 tokens of any tokenizer


def test_articles_by_name():
    assert [article.name for article in built_in("the-eel", "the-eddystone")] == ["the-eddystone", "the-eel"]
    with pytest.raises(InputError, match="no built-in article the-heron; there are harbour"):
        built_in("the-eel", "the-heron")


@pytest.mark.model
def test_every_article_fills_the_longest_setting():
    tokenizer = load("smollm2-135m").tokenizer
    assert all(len(tokenizer(article.text)["input_ids"]) >= 1400 for article in built_in())


def test_text_file(tmp_path):
    path = tmp_path / "A study.txt"
    path.write_bytes(b"\xef\xbb\xbfGr\xc3\xbc\xc3\x9fe")
    source = read_text(path)
    assert (source.name, source.text) == ("A-study", "Grüße")


def test_text_that_is_not_utf8(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes("Grüße".encode("latin1"))
    with pytest.raises(InputError, match=r"latin.txt is not UTF-8 \(byte 2 is 0xfc\); save it as UTF-8"):
        read_text(path)


def test_empty_and_missing_text(tmp_path):
    (tmp_path / "empty.txt").write_text(" \n")
    with pytest.raises(InputError, match="has no text"):
        read_text(tmp_path / "empty.txt")
    with pytest.raises(InputError, match=r"cannot read .*nothing.txt"):
        read_text(tmp_path / "nothing.txt")
    with pytest.raises(InputError, match="cannot read"):
        read_text(tmp_path)


def test_token_list(tmp_path):
    path = tmp_path / "ids.json"
    path.write_text("[1, 2, 3]")
    assert read_tokens(path) == Source("ids", tokens=(1, 2, 3))


@pytest.mark.parametrize("content", ["", "{}", "[]", "[1.5]", "[-1]", "[true]", '["1"]', "[[1]]", "[" * 100_000])
def test_what_is_no_token_list(tmp_path, content):
    path = tmp_path / "ids.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"list of (token )?ids"):
        read_tokens(path)


def test_sha256_tells_texts_apart():
    assert Source("a", "x").sha256 == Source("b", "x").sha256 != Source("a", "y").sha256
    assert Source("a", tokens=(1, 2)).sha256 != Source("a", tokens=(12,)).sha256
    json.dumps(Source("a", "x").sha256)


@pytest.mark.parametrize(
    ("name", "safe"), [("../../etc/passwd", "etc-passwd"), (".hidden", "hidden"), ("ä", "ä"), ("x" * 200, "x" * 80)]
)
def test_names_are_safe_as_folders(name, safe):
    assert slug(name) == safe


def test_names_are_unique():
    assert unique_names([Source("a"), Source("b"), Source("a"), Source("a-2")]) == ["a", "b", "a-2", "a-2-2"]

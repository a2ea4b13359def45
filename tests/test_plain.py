"""Text that others wrote is one line that acts on nothing, and otherwise what it was."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qevict_diag.plain import UNSEEN, plain

ANY = st.text(st.characters(), max_size=30)  # surrogates and unassigned characters too


@given(ANY)
def test_nothing_acts_and_nothing_breaks_the_line(text):
    shown = plain(text)
    assert not any(unicodedata.category(character)[0] == "C" for character in shown)
    assert len(shown.splitlines()) <= 1
    shown.encode()  # raises where a surrogate is left


@given(ANY)
def test_cleaning_twice_is_cleaning_once(text):
    assert plain(plain(text)) == plain(text)


@given(st.text(st.characters(exclude_categories=("C", "Zl", "Zp"))))
def test_words_in_any_language_stay_as_they_are(text):
    assert plain(text) == text


@given(ANY, st.integers(1, 40))
def test_a_long_line_is_cut(text, most):
    assert len(plain(text, most)) <= most
    assert plain(text, most).endswith("…") or plain(text, most) == plain(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb\u202ec", f"a{UNSEEN}[31mb{UNSEEN}c"),
        ("one\r\n\ttwo\u2028three", "one two three"),
        ("\x9b31m\x00", f"{UNSEEN}31m{UNSEEN}"),
        ("caf\udce9", f"caf{UNSEEN}"),
        ("two  spaces, 1\u00a0000", "two  spaces, 1\u00a0000"),
    ],
)
def test_what_is_shown_in_its_place(text, shown):
    assert plain(text) == shown

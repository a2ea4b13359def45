"""The table of readings: parsing, labels and refusals."""

import pytest

from qevict_diag.errors import ReadingError
from qevict_diag.readings import READINGS, Readings


def test_defaults_have_no_label():
    assert Readings().label() == ""


@pytest.mark.parametrize("reading", READINGS, ids=lambda reading: reading.name)
def test_every_value_parses_and_names_itself(reading):
    for value in reading.values:
        chosen = Readings.parse([f"{reading.name}={value}"])
        assert getattr(chosen, reading.name) == value
        assert chosen.label() == ("" if value == reading.default else f"{reading.name}={value}")


def test_fields_and_table_are_the_same():
    assert {reading.name: reading.default for reading in READINGS} == vars(Readings())


@pytest.mark.parametrize("word", ["scope", "scope=", "scope=token", "nothing=1", "=layer", ""])
def test_what_is_not_in_the_table_is_refused(word):
    with pytest.raises(ReadingError):
        Readings.parse([word])

"""Budgets: the paper's capacities, exactness, byte use, and what is refused."""

from fractions import Fraction

import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st

from qevict_diag.cache.budget import Budget, Geometry, capacity, exact
from qevict_diag.errors import BudgetError
from qevict_diag.quantizers.qevict import WindowMinMax

PAPER = {  # (prefill, decode, head_dim, window, quantized fraction) -> K_f, K_q; fraction None: two tiers
    (512, 256, 128, 8, "1/2"): (7, 28),
    (512, 256, 128, 32, "1/2"): (1, 11),
    (512, 256, 128, 1, None): (116, 0),
    (512, 256, 128, 8, None): (14, 0),
    (512, 256, 128, 8, "7/10"): (4, 39),
    (512, 256, 64, 8, "1/2"): (7, 27),
    (512, 256, 64, 32, "1/2"): (1, 10),
    (256, 1024, 128, 8, "1/2"): (13, 53),
}


def room(prefill, decode, width, window, fraction, ratio="1/5"):
    budget = Budget(ratio, quantized_fraction=fraction or 0)
    return capacity(
        budget, Geometry(prefill, decode, width, width), window, None if fraction is None else WindowMinMax()
    )


@pytest.mark.parametrize("setting", PAPER, ids=str)
def test_capacities_of_the_paper(setting):
    found = room(*setting)
    assert (found.full, found.quantized) == PAPER[setting]


@pytest.mark.parametrize(
    ("window", "fraction", "used"), [(1, None, 59392), (8, None, 57344), (8, "1/2", 58240), (32, "1/2", 45952)]
)
def test_byte_use_of_the_paper(window, fraction, used):
    found = room(512, 256, 128, window, fraction)
    assert found.history_bytes == 59392
    assert found.used_bytes == used


@given(
    ratio=st.fractions(Fraction(1, 10), 1, max_denominator=100),
    fraction=st.fractions(0, 1, max_denominator=100),
    window=st.integers(1, 64),
    width=st.sampled_from([16, 64, 80, 128]),
)
def test_capacities_are_those_of_the_reference_and_fit(ratio, fraction, window, width):
    budget = Budget(ratio, fraction)
    found = capacity(budget, Geometry(512, 256, width, width), window, WindowMinMax())
    expected = reference.capacities(window, 512, 256, width, budget=reference.Budget(ratio, fraction))
    assert (found.full, found.quantized, found.history_bytes) == expected
    assert found.used_bytes <= found.history_bytes


@pytest.mark.parametrize("given_as", ["1/5", "0.2", "20%", 0.2, Fraction(1, 5), " 1/5 "])
def test_ratios_are_read_exactly(given_as):
    assert exact(given_as) == Fraction(1, 5)


def test_ten_tokens_at_four_fifths_keep_two():
    tokens = 10 - int(10 * exact("0.8"))
    assert tokens == 2  # in floats, int(10 * (1 - 0.8)) is 1


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: Budget("x"), "write a fraction"),
        (lambda: Budget("1/0"), "write a fraction"),
        (lambda: Budget("0"), "above 0"),
        (lambda: Budget("3/2"), "at most 1"),
        (lambda: Budget(quantized_fraction="2"), r"0\.\.1"),
        (lambda: Budget(bits=3), "2, 4"),
        (lambda: Budget(recent=-1), "both must be >= 0"),
        (lambda: room(512, 256, 64, 8, "1/2", ratio="1/100"), "leaves no history"),
        (lambda: room(512, 256, 64, 800, "1/2"), r"1\.\.731"),
        (lambda: room(512, 256, 64, 0, "1/2"), r"1\.\.731"),
    ],
)
def test_what_cannot_be_is_refused_with_the_allowed_values(build, said):
    with pytest.raises(BudgetError, match=said):
        build()


WITHOUT_END = ("1e999999999", "1e-999999999", "1e999_999_999", "-1E+999999999", "1e999999999%", "1e5000", "1e-401")
TOO_LONG = ("9" * 401, "1/" + "9" * 5000, "0." + "0" * 500 + "1", "1e" + "9" * 5000, 10**5000, Fraction(1, 10**5000))


@pytest.mark.parametrize("value", [*WITHOUT_END, *TOO_LONG], ids=range(13))
def test_numbers_that_nobody_means_are_refused_at_once(value):
    """Their exact arithmetic would take all memory; the message itself is one short line."""
    for read in (exact, Budget, lambda text: Budget(quantized_fraction=text)):
        with pytest.raises(BudgetError, match="write a fraction") as error:
            read(value)
        assert len(str(error.value)) < 250


@pytest.mark.parametrize("value", [0.1 + 0.2, 1e-300, 5e-324, 1.7976931348623157e308, 0.2, 1e22, 123456789.125])
def test_every_float_is_read_as_it_prints(value):
    assert exact(value) == Fraction(str(value))
    assert float(exact(value)) == value


@pytest.mark.parametrize("field", ["sinks", "recent", "bits"])
@pytest.mark.parametrize("value", [2**31, 2**63, 10**24, 10**4000, -(10**4000)])
def test_counts_that_fit_no_column_are_refused_in_a_short_line(field, value):
    with pytest.raises(BudgetError) as error:
        Budget(**{field: value})
    assert len(str(error.value)) < 250

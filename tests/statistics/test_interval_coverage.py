"""A quick slice of `make coverage`: 95% intervals over articles cover 95%, whatever varies most."""

import interval_coverage as simulation
import pytest

REPEATS = 1000
ERROR = 4 * (0.95 * 0.05 / REPEATS) ** 0.5  # four standard errors of a share of 95%


@pytest.mark.parametrize("articles", simulation.ARTICLES)
@pytest.mark.parametrize("structure", simulation.STRUCTURES)
def test_means_are_covered_as_often_as_the_interval_says(structure, articles):
    draw = simulation.cases()[structure]
    found = simulation.coverage(lambda rng: draw(articles, rng), simulation.over_articles, REPEATS)
    assert found == pytest.approx(0.95, abs=ERROR)


@pytest.mark.parametrize("articles", simulation.ARTICLES)
def test_rates_of_unlike_trials_are_covered_nearly_as_often(articles):
    found = simulation.coverage(lambda rng: simulation.rates(articles, rng), simulation.over_articles, REPEATS)
    assert 0.89 < found < 0.98

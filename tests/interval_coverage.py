"""How often a 95% interval covers the truth, by simulation: `make coverage`.

    python tests/interval_coverage.py 20000

A cell is one article's value at one layer. The layers are all there are, so the truth is the mean over *these* layers
of what articles to come would show; articles are drawn. Three structures say which source varies most. Rates are
counts whose number of trials varies from article to article. The two-level bootstrap, articles first and then layers
within each, is there to show why it is not used.
"""

import sys
from dataclasses import dataclass

import numpy as np

from qevict_diag.statistics import intervals

ARTICLES = (2, 5, 10, 20)
LAYERS = 12
CENTRE = 0.3


@dataclass(frozen=True)
class Structure:
    """Standard deviations over articles, over layers, and of each cell by itself."""

    article: float
    layer: float
    cell: float


STRUCTURES = {
    "articles vary most": Structure(0.10, 0.02, 0.02),
    "layers vary most": Structure(0.02, 0.10, 0.02),
    "cells vary most": Structure(0.02, 0.02, 0.10),
}


def cells(of: Structure, articles: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
    """Values and counts [article, layer], and the mean of the layers that they are about."""
    layers = rng.normal(CENTRE, of.layer, LAYERS)
    values = layers + rng.normal(0, of.article, (articles, 1)) + rng.normal(0, of.cell, (articles, LAYERS))
    return values, np.ones_like(values), float(layers.mean())


def rates(articles: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
    """Counts of rare events in trials [article, layer], both of which vary over articles, and their true rate."""
    rate = rng.beta(6, 94, (articles, 1))  # mean 6%
    trials = rng.integers(20, 400, (articles, 1)) + np.zeros((1, LAYERS), dtype=int)
    return rng.binomial(trials, rate).astype(float), trials.astype(float), 0.06


def over_articles(numerator: np.ndarray, denominator: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    found = intervals.over_articles([numerator.sum(1)], [denominator.sum(1)]).interval()
    return found.low, found.high


def two_level(numerator: np.ndarray, denominator: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    """Percentiles of ratios of sums over articles drawn with replacement, and layers drawn again within each."""
    articles, layers = numerator.shape
    times = rng.multinomial(articles, np.full(articles, 1 / articles), size=400)
    weights = rng.multinomial(times * layers, np.full(layers, 1 / layers))  # [resample, article, layer]
    drawn = [np.einsum("ral,al->r", weights, part) for part in (numerator, denominator)]
    low, high = np.quantile(drawn[0] / drawn[1], (0.025, 0.975))
    return float(low), float(high)


def coverage(draw, interval, repeats: int, seed: int = 0) -> float:
    """Share of ``repeats`` samples whose interval holds the truth."""
    rng = np.random.default_rng(seed)
    hits = 0
    for _ in range(repeats):
        numerator, denominator, truth = draw(rng)
        low, high = interval(numerator, denominator, rng)
        hits += low <= truth <= high
    return hits / repeats


def cases() -> dict:
    """Every structure, and rates, as functions of the number of articles and a generator."""
    means = {name: lambda n, rng, of=of: cells(of, n, rng) for name, of in STRUCTURES.items()}
    return {**means, "rates of unlike trials": rates}


def main(repeats: int) -> None:
    print(f"{'coverage of 95% intervals':<26}{'':<18}" + "".join(f"n = {n:<5}" for n in ARTICLES))
    for name, draw in cases().items():
        for interval, share in ((over_articles, 1.0), (two_level, 0.1)):
            found = [coverage(lambda rng, n=n, d=draw: d(n, rng), interval, int(repeats * share)) for n in ARTICLES]
            print(f"{name:<26}{interval.__name__:<18}" + "".join(f"{one:<9.3f}" for one in found))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)

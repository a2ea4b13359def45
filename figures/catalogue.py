"""Every figure by name: the built-in ones, and those that other packages announce.

A third party announces a `Figure` in the entry-point group `FIGURE_POINTS`.
"""

from qevict_diag import plugins
from qevict_diag.figures import distribution, figure1, heatmap, layers, returns
from qevict_diag.figures.figure import Figure

FIGURE_POINTS = "qevict_diag.figures"
FIGURES: dict[str, Figure] = {
    made.name: made for made in (figure1.FIGURE, layers.FIGURE, returns.FIGURE, heatmap.FIGURE, distribution.FIGURE)
}


def figure(name: str) -> Figure:
    """The figure called ``name``, built in or announced; InputError when there is none."""
    return plugins.find("figure", name, FIGURES, FIGURE_POINTS, lambda found: isinstance(found, Figure))


def figure_names() -> tuple[str, ...]:
    """Every figure there is."""
    return plugins.names(FIGURES, FIGURE_POINTS)

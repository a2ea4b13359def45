"""Pictures of a sweep: missed mass against bytes, sensitivity to each setting, and layer × head maps of any metric.

Frames of `qevict_diag.sweep.read` in, axes out. Bands are 95% t intervals over articles, draws of a random
policy pooled; with one article there are none. Beside Future Missed Mass stands that of chance, in closed form. What a
picture holds fixed: `points.reference`. `SWEEP_FIGURES` lists them.
"""

from qevict_diag.errors import one_of
from qevict_diag.figures.sweep import heatmap, pareto, sensitivity
from qevict_diag.figures.sweep.figure import SweepFigure

SWEEP_FIGURES: dict[str, SweepFigure] = {
    made.name: made for made in (pareto.FIGURE, sensitivity.FIGURE, heatmap.FIGURE)
}


def sweep_figure(name: str) -> SweepFigure:
    """The figure of a sweep called ``name``; InputError when there is none."""
    one_of("figure", name, SWEEP_FIGURES)
    return SWEEP_FIGURES[name]

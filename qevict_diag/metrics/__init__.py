"""The metrics of definitions.md, section 7: pure functions on tensors, folds and rows, one file for each idea.

`METRICS` lists them; another package adds one by announcing a `Metric` in the entry-point group `METRIC_POINTS`.
"""

from qevict_diag import plugins
from qevict_diag.metrics import churn, eviction_age, fmm, lir, logit_error, mass_share
from qevict_diag.metrics.agreement import MASS_RATIO, QSA
from qevict_diag.metrics.metric import Metric
from qevict_diag.metrics.transitions import PROMOTIONS, TRANSITIONS

METRIC_POINTS = "qevict_diag.metrics"
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        fmm.METRIC,
        fmm.CHANCE,
        churn.METRIC,
        mass_share.METRIC,
        QSA,
        MASS_RATIO,
        lir.METRIC,
        TRANSITIONS,
        PROMOTIONS,
        eviction_age.METRIC,
        logit_error.BIAS,
        logit_error.VARIANCE,
    )
}


def metric(name: str) -> Metric:
    """The metric called ``name``, built in or announced; InputError when there is none."""
    return plugins.find("metric", name, METRICS, METRIC_POINTS, lambda found: isinstance(found, Metric))


def metric_names() -> tuple[str, ...]:
    """Every metric there is."""
    return plugins.names(METRICS, METRIC_POINTS)

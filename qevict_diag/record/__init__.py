"""Recording: one uncompressed run of a model, captured from its own attention calls."""

from qevict_diag.called import called
from qevict_diag.record.cost import Plan, plan, refuse_full_disk
from qevict_diag.record.options import RecordOptions, parse_numbers, parse_probes
from qevict_diag.record.prompts import refuse_none
from qevict_diag.record.recorder import check, record

__all__ = [
    "Plan",
    "RecordOptions",
    "check",
    "parse_numbers",
    "parse_probes",
    "plan",
    "record",
    "refuse_full_disk",
    "refuse_none",
]

called(__name__, "recorder")

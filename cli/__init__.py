"""The command line, one module per command."""

from collections.abc import Callable

from qevict_diag.cli.analyze import analyze
from qevict_diag.cli.budget import budget
from qevict_diag.cli.catalogue import figures, metrics, policies, quantizers, tables
from qevict_diag.cli.compare import compare
from qevict_diag.cli.export import export, import_rows
from qevict_diag.cli.figure import figure
from qevict_diag.cli.inspect import inspect
from qevict_diag.cli.readings import readings
from qevict_diag.cli.record import record
from qevict_diag.cli.replay import replay
from qevict_diag.cli.reproduce import reproduce
from qevict_diag.cli.sweep import sweep
from qevict_diag.cli.sweep_figure import sweep_figure
from qevict_diag.cli.sweep_table import sweep_table
from qevict_diag.cli.table import table
from qevict_diag.cli.verify import verify

COMMANDS: dict[str, Callable[..., None]] = {
    "record": record,
    "inspect": inspect,
    "verify": verify,
    "export": export,
    "import": import_rows,
    "replay": replay,
    "analyze": analyze,
    "compare": compare,
    "figure": figure,
    "table": table,
    "reproduce": reproduce,
    "sweep": sweep,
    "sweep-table": sweep_table,
    "sweep-figure": sweep_figure,
    "budget": budget,
    "policies": policies,
    "metrics": metrics,
    "quantizers": quantizers,
    "tables": tables,
    "figures": figures,
    "readings": readings,
}

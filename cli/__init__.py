"""The command line, one module per command."""

from qevict_diag.cli.analyze import analyze
from qevict_diag.cli.budget import budget
from qevict_diag.cli.catalogue import metrics, policies, readings
from qevict_diag.cli.inspect import inspect
from qevict_diag.cli.record import record
from qevict_diag.cli.replay import replay
from qevict_diag.cli.sweep import sweep
from qevict_diag.cli.verify import verify

COMMANDS = {
    "record": record,
    "inspect": inspect,
    "verify": verify,
    "replay": replay,
    "analyze": analyze,
    "sweep": sweep,
    "budget": budget,
    "policies": policies,
    "metrics": metrics,
    "readings": readings,
}

"""From traces to tidy rows: measurements, decisions and bytes."""

from qevict_diag.called import called

called(__name__, "traces")

"""The replay: one loop for all policies over a stream of attention masses."""

from qevict_diag.called import called

called(__name__, "loop")

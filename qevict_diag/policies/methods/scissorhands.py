"""Scissorhands: tokens that have rarely mattered rarely will (Liu et al. 2023)."""

from qevict_diag.policies.estimators.persistence import Persistence
from qevict_diag.policies.policy import Policy, Protected
from qevict_diag.policies.schedule import Schedule


def scissorhands(history: int = 400, recent: int = 10, drop: int = 8) -> Policy:
    """Drop, ``drop`` at once, the tokens that fell below uniform attention most often.

        count_i = #{query among the last ``history``: p_i < 1/t};  the ``recent`` latest tokens are safe

    From the paper's text (no official code is known); w = 400, r = 10 and m = half the budget are recalled from it.
    Deviations: m is a number of tokens, 8 by default, and a drop comes every m decode queries; of the prompt only the
    stored last queries are counted (``record --prompt-queries``); a key-value head has one set.
    """
    return Policy(
        "scissorhands",
        1,
        "Scissorhands: seldom below uniform attention",
        ranking=Persistence(history),
        schedule=Schedule(drop),
        scope="kv_head",
        protected=Protected(sinks=0, recent=recent),
        source="Liu et al. 2023, Scissorhands",
    )

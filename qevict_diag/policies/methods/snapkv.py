"""SnapKV: what the prompt's last queries attend to, pooled over neighbours (Li et al. 2024)."""

from dataclasses import dataclass
from typing import final

import torch.nn.functional as F
from torch import Tensor

from qevict_diag.errors import MetricError, one_of, within
from qevict_diag.policies.policy import Policy, Protected
from qevict_diag.policies.ranking import Estimator, State
from qevict_diag.policies.schedule import AFTER_PROMPT
from qevict_diag.policies.view import Interval, Prompt

SOURCE = "Li et al. 2024, SnapKV: LLM Knows What You are Looking for Before Generation"
POOLS, REDUCED = ("avg", "max"), ("mean", "max")


@final
@dataclass(frozen=True)
class PromptWindow(Estimator):
    """pool_k(Σ over the last ``window`` prompt queries of A[t, i]) for every token before them.

    Average pooling divides the edges by the whole ``kernel``, as the originals do. The query heads of a set are reduced
    (``mean`` or ``max``) before pooling.
    """

    window: int = 32
    kernel: int = 5
    pool: str = "avg"
    reduce: str = "mean"

    def __post_init__(self) -> None:
        within("observation window", self.window, 1)
        within("pooling kernel", self.kernel, 1)
        one_of("pool", self.pool, POOLS)
        one_of("reduce", self.reduce, REDUCED)

    def init(self, prompt: Prompt) -> State:
        """The score, for ever: 0 for what comes later. MetricError where fewer prompt queries are stored."""
        rows, positions = prompt.rows()
        if len(positions) < self.window:
            raise MetricError(
                f"an observation window of {self.window} prompt queries is asked for, the trace stores "
                f"{len(positions)}; record again with --prompt-queries {self.window}"
            )
        total = rows[..., -self.window :, :].sum(3)
        score = (total.mean(2) if self.reduce == "mean" else total.amax(2)).double()
        before = prompt.grid.historical(0)
        pooled = pooled_scores(score[..., :before], self.kernel, self.pool)
        return F.pad(pooled, (0, prompt.grid.count - before))

    def update(self, state: State, seen: Interval) -> State:
        """It looks at the prompt alone."""
        return state

    def score(self, state: Tensor) -> Tensor:
        """The pooled sums."""
        return state


def pooled_scores(score: Tensor, kernel: int, pool: str) -> Tensor:
    """Average (zeros count at the edges) or largest of ``kernel`` neighbours, [layer, unit, token] -> the same."""
    half, length = kernel // 2, score.shape[-1]
    if pool == "avg":
        return F.avg_pool1d(score, kernel, stride=1, padding=half)[..., :length]
    return F.max_pool1d(score, kernel, stride=1, padding=half)[..., :length]


def snapkv(window: int = 32, kernel: int = 5, pool: str = "avg", reduce: str = "mean", sets: str = "kv_head") -> Policy:
    """Keep the last ``window`` prompt tokens and those before that they attend to most; decides once, after the prompt.

    What is generated later is kept for ever, so a budget of the whole sequence leaves so much less for the prompt.
    ``sets`` head gives each query head its own set, as the original does after repeating keys (its bytes are then the
    group's times as many); kv_head, the default and kvpress's choice, one to each key-value head. The original's class
    has window 64, kernel 5 and average pooling, its LongBench runner window 32, kernel 7 and ``pool=max``.
    """
    one_of("snapkv sets", sets, ("kv_head", "head"))
    return Policy(
        "snapkv",
        1,
        "SnapKV: what the prompt's last queries attend to",
        ranking=PromptWindow(window, kernel, pool, reduce),
        schedule=AFTER_PROMPT,
        scope="head" if sets == "head" else "kv_head",
        protected=Protected(sinks=0, recent=window),
        source=SOURCE,
    )

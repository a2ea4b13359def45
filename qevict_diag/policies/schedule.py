"""When a policy decides: after the prompt and then every so many decode queries, or after the prompt alone."""

from dataclasses import dataclass

from qevict_diag.errors import InputError


@dataclass(frozen=True)
class Schedule:
    """Events come every ``interval`` decode queries (None: every Ω, as in the paper).

    With ``prompt_only`` only event 0 routes, as in SnapKV and its kin: what is born later stays local for ever and is
    never missed. Later events are still counted, so that such a policy is measured at the same moments as the others.
    """

    interval: int | None = None
    prompt_only: bool = False

    def __post_init__(self) -> None:
        if self.interval is not None and self.interval < 1:
            raise InputError(f"interval {self.interval}: must be at least 1 decode query")


EVERY_WINDOW = Schedule()
AFTER_PROMPT = Schedule(prompt_only=True)

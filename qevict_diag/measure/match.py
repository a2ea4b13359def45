"""Budgets at which policies hold the same bytes, so that they are compared by what they cost.

What a cache holds is known before a replay where the heads of a layer share its sets: both tiers are filled as far as
there are windows, and sinks and local tokens come on top (definitions.md, section 4). At equal *budgets* caches hold
different bytes, because coarse windows stay local for longer.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction

from qevict_diag.errors import BudgetError
from qevict_diag.policies.policy import Policy
from qevict_diag.replay.plan import Plan, make_plan
from qevict_diag.replay.settings import Settings
from qevict_diag.trace.layer import TraceShape

Use = Callable[[Plan], Fraction]


def mean_bytes(plan: Plan) -> Fraction:
    """Bytes of a layer's cache for each key-value head, mean over the decode queries, each with its own token."""
    grid = plan.grid
    coming = [min(grid.every, grid.decode - event * grid.every) for event in range(grid.events)]
    held = (after_event(plan, event) * many for event, many in enumerate(coming))
    grown = sum(many * (many + 1) for many in coming) * token_bytes(plan)
    return (sum(held) + Fraction(grown, 2)) / grid.decode


def peak_bytes(plan: Plan) -> Fraction:
    """The same at its largest, just before an event or at the end."""
    grid = plan.grid
    coming = (min(grid.every, grid.decode - event * grid.every) for event in range(grid.events))
    return Fraction(max(after_event(plan, event) + many * token_bytes(plan) for event, many in enumerate(coming)))


def after_event(plan: Plan, event: int) -> int:
    """Bytes right after an event: filled tiers, sinks and local tokens; sets of one key-value head don't overlap."""
    grid, room = plan.grid, plan.capacity
    full = min(room.full, grid.historical(event))
    quantized = min(room.quantized, grid.historical(event) - full)
    return plan.sharing * room.bytes_of(full, quantized) + (grid.sinks + grid.local(event)) * token_bytes(plan)


def token_bytes(plan: Plan) -> int:
    """Bytes of one token at full precision."""
    return plan.capacity.full_window_bytes // plan.capacity.window


def matched(
    policies: Iterable[Policy], shape: TraceShape, settings: Settings, use: Use = mean_bytes
) -> list[tuple[Policy, Settings]]:
    """Each policy with the largest budget at which it holds no more bytes than the first one at its own.

    One that holds more at any budget, by its local tokens alone, has the smallest.
    """
    policies = tuple(policies)
    most = use(make_plan(policies[0], shape, settings))
    return [(one, holding(one, shape, settings, most, use)) for one in policies]


def full_bytes(plan: Plan) -> Fraction:
    """What FullKV holds of a layer's key-value head at the end."""
    return Fraction(plan.grid.length * token_bytes(plan))


def holding(policy: Policy, shape: TraceShape, settings: Settings, most: Fraction, use: Use) -> Settings:
    """The settings with the largest budget at which a policy holds no more than ``most`` bytes, else the smallest.

    Budgets differ in whole tokens only, so those are what is searched; more tokens never hold fewer bytes.
    """

    def beyond(tokens: int) -> bool:
        try:
            return use(make_plan(policy, shape, _with_tokens(settings, tokens, shape))) > most
        except BudgetError:  # too few for any history
            return False

    tokens = bisect_left(range(1, shape.length + 1), True, key=beyond)
    return _with_tokens(settings, max(tokens, _fewest(policy, shape, settings)), shape)


def _fewest(policy: Policy, shape: TraceShape, settings: Settings) -> int:
    """The smallest budget in tokens that leaves some history."""

    def leaves_history(tokens: int) -> bool:
        try:
            return bool(make_plan(policy, shape, _with_tokens(settings, tokens, shape)))
        except BudgetError:
            return False

    return 1 + bisect_left(range(1, shape.length), True, key=leaves_history)


def _with_tokens(settings: Settings, tokens: int, shape: TraceShape) -> Settings:
    return replace(settings, budget=replace(settings.budget, ratio=Fraction(tokens, shape.length)))

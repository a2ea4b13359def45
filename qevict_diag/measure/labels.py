"""What tells the rows of one replay from those of another: the policy and the settings it ran under."""

from typing import Any

from qevict_diag.replay.plan import Plan


def policy_labels(plan: Plan) -> dict[str, Any]:
    """The columns `frames.POLICY` of a replay."""
    one = plan.policy
    return {"policy": one.name, "base": one.base, "estimator": one.estimator, "seed": one.seed}


def setting_labels(plan: Plan) -> dict[str, Any]:
    """The columns `frames.SETTING` of a replay; a policy with two tiers has no quantized fraction and no bits."""
    grid, budget = plan.grid, plan.settings.budget
    three_tiers = plan.policy.quantizer is not None
    return {
        "budget": str(budget.ratio),
        "window": grid.window,
        "quantized_fraction": str(budget.quantized_fraction) if three_tiers else None,
        "bits": budget.bits if three_tiers else None,
        "horizon": plan.settings.horizon,
        "prefill": grid.prefill,
        "decode": grid.decode,
    }

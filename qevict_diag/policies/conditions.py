"""The paper's conditions R0-R4 and its two ablations, as data (definitions.md, section 1)."""

from qevict_diag.policies.policy import Policy

DEFINED_BY_WINDOW = ("R0", "R1", "R4")  # their window is what they are; a choice of windows leaves them alone


POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy("R0", 8, "FullKV reference: nothing is evicted", quantized=False, evicts=False),
        Policy("R1", 1, "token eviction, two tiers", quantized=False),
        Policy("R2", 8, "window eviction, two tiers", quantized=False),
        Policy("R3", 8, "three tiers: full precision, recoverable INT2, evicted"),
        Policy("R4", 32, "three tiers, coarse windows"),
        Policy("R3-full-only", 8, "R3's decisions, its quantized windows counted as inaccessible", readable=False),
        Policy("R3-one-way", 8, "R3 without promotion from the quantized tier", promotion=False),
    )
}

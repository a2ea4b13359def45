"""The paper's conditions R0-R4 and its two ablations, as data (definitions.md, section 1).

The ablations differ from R3 in one choice each.
"""

from dataclasses import replace

from qevict_diag.cache.routing import Moves
from qevict_diag.policies.allotment import Everything
from qevict_diag.policies.policy import Policy
from qevict_diag.quantizers.qevict import WindowMinMax

DEFINED_BY_WINDOW = ("R0", "R1", "R4")  # their window is what they are; a choice of windows leaves them alone

INT2 = WindowMinMax()
R3 = Policy("R3", 8, "three tiers: full precision, recoverable INT2, evicted", quantizer=INT2)

CONDITIONS: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy("R0", 8, "FullKV reference: nothing is evicted", allotment=Everything()),
        Policy("R1", 1, "token eviction, two tiers"),
        Policy("R2", 8, "window eviction, two tiers"),
        R3,
        Policy("R4", 32, "three tiers, coarse windows", quantizer=INT2),
        replace(
            R3,
            name="R3-full-only",
            summary="R3's decisions, its quantized windows counted as inaccessible",
            readable=False,
        ),
        replace(
            R3,
            name="R3-one-way",
            summary="R3 without promotion from the quantized tier",
            moves=Moves(promotion=False),
        ),
    )
}

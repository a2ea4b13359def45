"""Low key norms: keys of small L2 norm attract attention (Devoto et al. 2024)."""

from qevict_diag.policies.allotment import FirstWhole
from qevict_diag.policies.estimators.key_norm import KeyNorm
from qevict_diag.policies.policy import Policy, Protected
from qevict_diag.policies.schedule import AFTER_PROMPT


def l2norm(whole_layers: int = 0) -> Policy:
    """Keep the keys of lowest L2 norm of each key-value head, after the prompt; nothing is protected.

    The original's README leaves layers 0 and 1 whole (``whole_layers=2``), which costs their bytes; it compresses at
    each call once the cache is long enough, kvpress after the prompt, as here.
    """
    return Policy(
        "l2norm",
        1,
        "key norms: keys of low L2 norm",
        ranking=KeyNorm(),
        schedule=AFTER_PROMPT,
        scope="kv_head",
        allotment=FirstWhole(whole_layers),
        protected=Protected(sinks=0, recent=0),
        source="Devoto et al. 2024, A Simple and Effective L2 Norm-Based Strategy for KV Cache Compression",
    )

"""Who a model in memory is, which was not loaded by a path: its weights and its config, as they stand."""

import hashlib
import json
from typing import Any

import torch
from torch import Tensor

from qevict_diag.models.identity import lasting


def state_sha256(model: Any) -> str | None:
    """SHA-256 of a model's config and of every weight's name, dtype, shape and bytes, in the order of the names.

    None for a model whose weights are not in memory (meta tensors, as offloading leaves them).
    """
    weights = sorted(model.state_dict().items())
    if any(isinstance(weight, Tensor) and weight.is_meta for _, weight in weights):
        return None
    says = lasting(json.loads(model.config.to_json_string(use_diff=False)))
    digest = hashlib.sha256(json.dumps(says, sort_keys=True).encode())
    for name, weight in weights:
        if isinstance(weight, Tensor):  # packed weights may keep other things beside theirs
            digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
            digest.update(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()

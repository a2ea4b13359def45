"""What a replay depends on besides the trace and the policy."""

from dataclasses import dataclass, field

import torch

from qevict_diag.cache.budget import Budget
from qevict_diag.errors import within
from qevict_diag.readings import Readings

MIB = 2**20


@dataclass(frozen=True)
class Settings:
    """Everything a replay depends on besides the trace and the policy."""

    budget: Budget = field(default_factory=Budget)
    readings: Readings = field(default_factory=Readings)
    horizon: int = 32  # H, decode queries
    min_inactive: int = 3  # m: events after which an inactive episode counts for Global LIR
    element_size: int = 2  # bytes of a cache element at full precision: fp16 or bf16
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    block_bytes: int = 512 * MIB

    def __post_init__(self) -> None:
        within("horizon", self.horizon, 1)
        within("min-inactive", self.min_inactive, 1)

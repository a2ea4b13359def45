"""Frequencies of a rotary embedding, as llama.cpp means them (`ggml_rope_yarn_corr_dims`, `rope_yarn`).

With width w, base b, scale s and i = 0 .. w/2 - 1,

    default   θ_i = b^(-2i/w)
    linear    θ_i / s
    yarn      θ_i (r_i + (1 - r_i) / s), with r_i = 1 - clamp((i - low) / (high - low), 0, 1) between the two dimensions
              that turn beta_fast and beta_slow times within the original context
    longrope  θ_i / f_i, with a factor for each pair: those of Llama 3, or Phi 3's for short and for long texts

and cos and sin are multiplied by a magnitude.
"""

import math
import re
from dataclasses import dataclass
from typing import Any

BASE = 10000.0  # where nothing is said
_FREQUENCIES = re.compile(r"(\w+_)?inv_freq")  # attributes of transformers' rotary modules, by kind of layer


@dataclass(frozen=True)
class Rotation:
    """One kind of rotary embedding: ``kind`` is default, linear, yarn or longrope, transformers' name for factors."""

    width: int
    base: float
    kind: str = "default"
    factor: float = 1.0
    original: int = 0  # context length before it was extended
    magnitude: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    short: tuple[float, ...] = ()
    long: tuple[float, ...] = ()

    def frequencies(self) -> Any:
        """Radians per position of every pair of channels, float64 [width / 2]."""
        import torch

        plain = self.base ** -(torch.arange(0, self.width, 2, dtype=torch.float64) / self.width)
        if self.kind == "longrope":
            return plain / torch.tensor(self.short, dtype=torch.float64)
        if self.kind == "yarn":
            low, high = math.floor(self._turning(self.beta_fast)), math.ceil(self._turning(self.beta_slow))
            low, high = max(low, 0), min(high, self.width - 1)
            ramp = (torch.arange(self.width // 2) - low) / max(high - low, 0.001)
            kept = 1 - ramp.clamp(0, 1)
            return plain * (kept + (1 - kept) / self.factor)
        return plain / self.factor

    def _turning(self, turns: float) -> float:
        """The dimension whose pair makes this many turns within the original context."""
        return self.width * math.log(self.original / (turns * 2 * math.pi)) / (2 * math.log(self.base))

    def parameters(self, head_dim: int) -> dict[str, Any]:
        """Transformers' ``rope_parameters``."""
        found: dict[str, Any] = {"rope_type": self.kind, "rope_theta": self.base}
        if self.width != head_dim:
            found["partial_rotary_factor"] = self.width / head_dim
        if self.kind != "default":
            found["factor"] = self.factor
        if self.kind in ("yarn", "longrope"):
            found |= {"original_max_position_embeddings": self.original, "attention_factor": self.magnitude}
        if self.kind == "yarn":
            found |= {"beta_fast": self.beta_fast, "beta_slow": self.beta_slow}
        if self.kind == "longrope":
            found |= {"short_factor": list(self.short), "long_factor": list(self.long)}
        return found


def rotations_of(module: Any) -> list[tuple[Any, float]]:
    """Frequencies and magnitude of every kind that a rotary module holds."""
    buffers = [(_FREQUENCIES.fullmatch(name), value) for name, value in module.named_buffers(recurse=False)]
    kinds = [
        (match[1] or "", value) for match, value in buffers if match and not match[0].endswith("original_inv_freq")
    ]
    return [(value, getattr(module, f"{kind}attention_scaling", 1.0)) for kind, value in kinds]


def agrees(rotation: Rotation, frequencies: Any, magnitude: float) -> bool:
    """Whether a model's frequencies [width / 2] and magnitude are those of ``rotation``."""
    import torch

    wanted = rotation.frequencies()
    same = frequencies.shape == wanted.shape and torch.allclose(
        frequencies.double().cpu(), wanted, rtol=1e-5, atol=1e-12
    )
    return same and math.isclose(magnitude, rotation.magnitude, rel_tol=1e-5)

"""What a GGUF file says about rotary embedding, carried into the model's config, or refused.

Transformers reads the base of the frequencies and nothing of their scaling. The file's meaning is that of llama.cpp
(`llama_model_base::load_hparams`, `llama_context`), see `Rotation`. After loading, the model's frequencies are held
against it.
"""

import math
import re
from dataclasses import dataclass
from typing import Any

from qevict_diag.errors import ModelError
from qevict_diag.models.rotation import BASE, Rotation, agrees, rotations_of

_READ = re.compile(
    r"dimension_count(_swa)?|dimension_sections|freq_base(_swa)?|scale_linear|scaling\.(type|factor|attn_factor"
    r"|original_context_length|finetuned|yarn_ext_factor|yarn_attn_factor|yarn_beta_fast|yarn_beta_slow)"
)
_KINDS = ("none", "linear", "yarn", "longrope")


@dataclass(frozen=True)
class GgufRope:
    """The file's rotary embedding; ``full`` is None when the file says nothing of one. ``sliding`` layers are plain."""

    full: Rotation | None
    sliding: Rotation | None
    head_dim: int

    @classmethod
    def read(cls, file: Any, config: Any) -> "GgufRope":
        """From an open GGUF file and the config that transformers made of it; ModelError for what is not understood."""
        says = _said(file)
        if not says:
            return cls(None, None, 0)
        config = config.get_text_config()
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        _refuse_unknown(says, config)
        width = int(says.get("dimension_count", head_dim))
        full = _rotation(says, width, int(value_of(file, "context_length", own=True) or 0))
        sliding = Rotation(int(says.get("dimension_count_swa", width)), says.get("freq_base_swa", BASE))
        return cls(full, sliding, head_dim)

    def carry_into(self, config: Any) -> None:
        """Make the config say what the file says."""
        config = config.get_text_config()
        known = getattr(config, "rope_parameters", None)
        if self.full is None or self.sliding is None:
            return
        wanted = self.full.parameters(self.head_dim)
        if known is None:  # releases before rope_parameters
            config.rope_theta, config.rope_scaling = self.full.base, None if self.full.kind == "default" else wanted
            config.partial_rotary_factor = self.full.width / self.head_dim
        elif "full_attention" not in known:
            config.rope_parameters = _kept(known, wanted)
        elif known["full_attention"]["rope_type"] != "proportional":  # Gemma 4's own, which `refuse_other` checks
            known["full_attention"] = _kept(known["full_attention"], wanted)
            known["sliding_attention"]["rope_theta"] = self.sliding.base
        if self.full.kind == "longrope" and hasattr(config, "original_max_position_embeddings"):
            config.original_max_position_embeddings = self.full.original  # Phi 3 looks here first

    def refuse_other(self, model: Any) -> None:
        """ModelError unless the model turns its queries and keys by the file's frequencies and magnitude."""
        if self.full is None or self.sliding is None:
            return
        found = [one for module in model.modules() for one in rotations_of(module)]
        if not found and self.full.kind == "default":
            return
        right = [agrees(self.full, *one) for one in found]
        plain = [agrees(self.sliding, *one) for one in found]
        if not any(right) or not all(a or b for a, b in zip(right, plain, strict=True)):
            raise ModelError(
                f"the GGUF file's rotary embedding ({self.full.kind}, base {self.full.base:g}, factor "
                f"{self.full.factor:g}) does not reach the model by this release of transformers; "
                "use the model's safetensors folder instead"
            )


def value_of(file: Any, name: str, *, own: bool = False) -> Any:
    """A metadata value of an open GGUF file, ``own`` of its architecture; None when it is not there."""
    key = f"{_architecture(file)}.{name}" if own else name
    return _value(file.fields[key]) if key in file.fields else None


def _architecture(file: Any) -> str:
    return str(value_of(file, "general.architecture"))


def _value(field: Any) -> Any:
    """A string, a number, or a list of numbers."""
    if field.types[0].name == "STRING":
        return bytes(field.parts[field.data[0]]).decode()
    numbers = [field.parts[index][0].item() for index in field.data]
    return numbers if field.types[0].name == "ARRAY" else numbers[0]


def _said(file: Any) -> dict[str, Any]:
    """All that the file says about rotary embedding: metadata without their prefix, and tensors by their names."""
    prefix = f"{_architecture(file)}.rope."
    says = {key.removeprefix(prefix): _value(field) for key, field in file.fields.items() if key.startswith(prefix)}
    tensors = {tensor.name: tensor for tensor in file.tensors if re.match(r"(blk\.\d+\.)?rope", tensor.name)}
    return says | {name: tuple(map(float, tensor.data.flatten())) for name, tensor in tensors.items()}


def _refuse_unknown(says: dict[str, Any], config: Any) -> None:
    sections = [count for count in says.get("dimension_sections", ()) if count]
    carried = (getattr(config, "rope_parameters", None) or {}).get("mrope_section", [])
    unknown = [name for name in says if not _READ.fullmatch(name) and _factors_of(name) is None]
    unknown += ["dimension_sections"] if sections != list(carried) else []
    unknown += ["scaling.yarn_ext_factor"] if says.get("scaling.yarn_ext_factor", 1.0) != 1.0 else []
    if unknown:
        raise ModelError(
            f"the GGUF file's rotary embedding is described by {', '.join(unknown)}, which is not read here; "
            "use the model's safetensors folder instead"
        )


def _factors_of(name: str) -> str | None:
    """Which factors a tensor holds: of all lengths (freqs), short or long; None for another tensor."""
    found = re.fullmatch(r"(?:blk\.\d+\.)?rope_(?:factors_)?(freqs|short|long)\.weight", name)
    return found and found[1]


def _rotation(says: dict[str, Any], width: int, context: int) -> Rotation:
    base = says.get("freq_base", BASE)
    factors = _factors(says)
    kind, factor = says.get("scaling.type", "linear"), says.get("scaling.factor", says.get("scale_linear", 0.0)) or 1.0
    original = int(says.get("scaling.original_context_length", 0)) or context
    magnitude = says.get("scaling.attn_factor", 1.0)
    _refuse_unless(kind in _KINDS, f"scaling {kind!r}")
    if factors:
        short, long = factors
        original = original if short != long else max(original, context)  # nothing changes at a length
        _refuse_unless(factor == 1.0 or kind == "none", "factors beside a scale")
        return Rotation(width, base, "longrope", 1.0, original, magnitude, short=short, long=long)
    if kind == "yarn" and factor != 1.0:
        magnitude *= says.get("scaling.yarn_attn_factor", 1 + 0.1 * math.log(factor))
        betas = says.get("scaling.yarn_beta_fast", 32.0), says.get("scaling.yarn_beta_slow", 1.0)
        return Rotation(width, base, "yarn", factor, original, magnitude, *betas)
    _refuse_unless(magnitude == 1.0, f"attn_factor {magnitude:g} without factors")
    if kind == "longrope":
        known = any(_factors_of(name) for name in says)  # nothing but ones
        _refuse_unless(known and factor == 1.0, "scaling 'longrope' without factors")
    if kind == "none" or factor == 1.0:
        return Rotation(width, base)
    return Rotation(width, base, "linear", factor)


def _factors(says: dict[str, Any]) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Factors of short and of long texts; None when there are none but ones."""
    found: dict[str, set[tuple[float, ...]]] = {}
    for name, value in says.items():
        which = _factors_of(name)
        if which is not None:
            found.setdefault(which, set()).add(value)
    _refuse_unless(all(len(values) == 1 for values in found.values()), "factors that differ from layer to layer")
    _refuse_unless(set(found) in ({"freqs"}, {"short", "long"}, set()), f"factors of {' and '.join(found)} alone")
    if not found or all(set(value) == {1.0} for values in found.values() for value in values):
        return None
    only = {which: next(iter(values)) for which, values in found.items()}
    return only.get("freqs") or only["short"], only.get("freqs") or only["long"]


def _refuse_unless(fine: bool, what: str) -> None:
    if not fine:
        raise ModelError(
            f"the GGUF file's rotary embedding has {what}, which cannot be carried over; "
            "use the model's safetensors folder instead"
        )


def _kept(known: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """Parameters that the config has beyond scaling (sections of positions, say), under those that are wanted."""
    return {name: value for name, value in known.items() if name.startswith("mrope")} | wanted

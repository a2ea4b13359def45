"""What transformers says about the weights it loaded: none may be missing, surplus ones are told."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qevict_diag.errors import ModelError
from qevict_diag.models.causes import listed

_PACKED = ("scale", "zero", "absmax", "quant", "packed", "g_idx", "qweight", "scb")  # parts of packed weights' names
_LOGGED = re.compile(r"missing keys in the model: (.*)|(?m:^(\S+)\s*\|\s*(?:\S*m)?MISSING)")


@dataclass(frozen=True)
class LoadingReport:
    """Names of tensors: ``missing`` from the files, ``surplus`` in them, and of another shape than the model's."""

    missing: tuple[str, ...]
    surplus: tuple[str, ...]
    packed: tuple[str, ...]  # of the surplus: parts of weights that nobody unpacked
    misshapen: tuple[str, ...]  # with both shapes

    @classmethod
    def of(cls, info: Any, model: Any) -> "LoadingReport":
        """From transformers' loading info of ``model``: a mapping, or for adapters an object with the same entries."""
        entries = info if isinstance(info, Mapping) else vars(info)
        missing, surplus = (tuple(sorted(map(str, entries[key]))) for key in ("missing_keys", "unexpected_keys"))
        misshapen = tuple(sorted(map(_misshapen, entries["mismatched_keys"])))
        owners = {name.rpartition(".")[0] for name in model.state_dict()} if surplus else set()
        return cls(missing, surplus, tuple(name for name in surplus if _is_packed(name, owners)), misshapen)

    @classmethod
    def logged(cls, said: Sequence[str]) -> "LoadingReport":
        """Of an adapter, from the log of releases that give no loading info for one: a sentence, or rows of a table."""
        found = _LOGGED.finditer("\n".join(said))
        return cls(tuple((match[1] or match[2]).rstrip(". ") for match in found), (), (), ())

    def refuse_incomplete(self, name: str) -> None:
        """ModelError when weights of ``name`` are missing, of a wrong shape, or packed in a way nobody unpacked.

        transformers fills what is missing with random numbers, drawn anew each time.
        """
        if self.misshapen:
            raise ModelError(f"{name}: {listed(self.misshapen)}; give weights that belong to its config")
        if self.missing:
            told = listed(self.missing) + (f" (they hold {listed(self.surplus)} instead)" if self.surplus else "")
            raise ModelError(
                f"the files of {name} lack {len(self.missing)} of the model's weights: {told}; give whole weights that "
                "belong to its config"
            )
        if self.packed:
            raise ModelError(
                f"the weights of {name} are packed in a way that transformers did not unpack: {listed(self.packed)}; "
                "give unpacked weights, or a config.json with their quantization_config"
            )

    def note(self, name: str) -> str | None:
        """A line about weights that the model has no place for; None when there are none."""
        if not self.surplus:
            return None
        return f"{name} has weights that the model does not use: {listed(self.surplus)}"


def _is_packed(surplus: str, owners: set[str]) -> bool:
    """Whether a tensor belongs to the weight of a module that the model has: ``q_proj.weight_scale``, say."""
    owner = surplus.partition(".weight")[0] if ".weight" in surplus else surplus.rpartition(".")[0]
    return owner in owners and any(part in surplus[len(owner) :].lower() for part in _PACKED)


def _misshapen(entry: Any) -> str:
    """A tensor's name and both shapes; releases before 5 give the name alone."""
    if isinstance(entry, str):
        return f"{entry} has another shape than the model's"
    name, has, needs = entry
    return f"{name} is {_sides(has)}, not {_sides(needs)}"


def _sides(shape: Any) -> str:
    return "x".join(map(str, shape)) or "a number"

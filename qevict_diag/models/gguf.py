"""Read a model from a GGUF file, by way of transformers, and hold it against what the file says."""

import os
from pathlib import Path
from typing import Any

from qevict_diag.errors import ModelError
from qevict_diag.models.causes import explained, listed, missing_packages, refuse_pointers
from qevict_diag.models.gguf_rope import GgufRope, value_of
from qevict_diag.models.quiet import quiet_transformers
from qevict_diag.models.report import LoadingReport

_NOT_WEIGHTS = ("rope_freqs", "rope_factors")  # tensors that `GgufRope` reads


def load_gguf(path: Path, **options: Any) -> tuple[Any, Any, list[str]]:
    """Model and tokenizer of a GGUF file, dequantized to float32 unless ``dtype`` says otherwise, and notes on them.

    ModelError for a file that cannot be loaded, lacks weights, is one of several parts, or scales its rotary embedding
    in a way that transformers would leave out.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    if not os.path.isfile(path):
        raise ModelError(f"no file {path}; give a GGUF file that exists")
    refuse_pointers([path])
    _refuse_adapter_beside(path)
    if options.get("dtype", "auto") == "auto":
        options["dtype"] = torch.float32
    where: Any = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name, "trust_remote_code": False}
    with quiet_transformers() as said, explained(str(path), said):
        file = _open(path)
        config = AutoConfig.from_pretrained(**where)
        rope = GgufRope.read(file, config)
        rope.carry_into(config)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            **where, **options, config=config, output_loading_info=True, ignore_mismatched_sizes=True
        )
        model, info = loaded
        report = LoadingReport.of(info, model)
    report.refuse_incomplete(str(path))
    rope.refuse_other(model)
    with quiet_transformers() as said, explained(f"the tokenizer of {path}", said):
        tokenizer = AutoTokenizer.from_pretrained(**where)
    notes = [report.note(str(path)), _left_out(file, model, path)]
    return model, tokenizer, [note for note in notes if note is not None]


def _open(path: Path) -> Any:
    import gguf

    path.open("rb").close()  # what cannot be read is not damaged
    with explained(str(path), advice="it is cut, damaged or no GGUF file, fetch it again"):
        file = gguf.GGUFReader(path)
    parts = value_of(file, "split.count") or 1
    if parts > 1:
        raise ModelError(f"{path} is one of {parts} parts; join them first with `llama-gguf-split --merge`")
    return file


def _left_out(file: Any, model: Any, path: Path) -> str | None:
    """A note on tensors that transformers passed over, seen by the number of numbers; None when all were taken."""
    weights = [tensor for tensor in file.tensors if not any(part in tensor.name for part in _NOT_WEIGHTS)]
    sizes = {tensor.name: int(tensor.n_elements) for tensor in weights}
    taken = sum({weight.data_ptr(): weight.numel() for weight in model.state_dict().values()}.values())
    surplus = sum(sizes.values()) - taken
    if surplus <= 0:
        return None
    suspects = [name for name in sizes if name.endswith(".bias")] or list(sizes)
    return f"{path} holds {surplus} numbers that the model does not use, maybe of {listed(suspects)}"


def _refuse_adapter_beside(path: Path) -> None:
    """Transformers would apply an adapter that lies in the same folder."""
    if (path.parent / "adapter_config.json").is_file() and not missing_packages("peft"):
        raise ModelError(f"adapter_config.json beside {path} would be applied to it; move one of them elsewhere")

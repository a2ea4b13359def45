"""A model folder or a hub id, by way of transformers: config, weights, adapter and tokenizer, each checked."""

import json
import os
from pathlib import Path
from typing import Any

from qevict_diag.errors import ModelError
from qevict_diag.models.aliases import ALIASES
from qevict_diag.models.causes import explained, is_folder, missing_packages, refuse_pointers
from qevict_diag.models.quiet import quiet_transformers
from qevict_diag.models.report import LoadingReport

TOKENIZER_FILES = ("*token*", "vocab*", "merges.txt", "*.model")
ADAPTER = "adapter_config.json"
_READ = ("*.safetensors", "*.bin", "*.json", "*.jinja", *TOKENIZER_FILES)


def load_weights(name: str, options: dict[str, Any], origin: dict[str, Any]) -> tuple[Any, list[str]]:
    """The model of a folder or hub id, and notes on it; ``origin`` is revision and trust_remote_code.

    ModelError when there is none, it is no decoder, or its weights are not whole.
    """
    _refuse_no_folder(name)
    adapter = adapter_config(name, origin["revision"])
    if adapter is None:
        return _load_checked(name, options, origin)
    _refuse_unusable_adapter(name)
    base = base_of(adapter)
    _refuse_no_folder(base)
    model, notes = _load_checked(base, options, origin | {"revision": None})
    with quiet_transformers() as said, explained(f"adapter {name!r}", said):
        info = model.load_adapter(name, adapter_kwargs={"revision": origin["revision"]})
        report = LoadingReport.logged(said) if info is None else LoadingReport.of(info, model)
    report.refuse_incomplete(name)
    return model, notes + _notes(report, name)


def load_tokenizer(name: str, origin: dict[str, Any]) -> Any:
    """The tokenizer of a folder or hub id, an adapter's or its base's; None for bare weights, which take --tokens."""
    if is_folder(name) and not _tokenizer_files(Path(name)):
        adapter = adapter_config(name)
        return None if adapter is None else load_tokenizer(base_of(adapter), origin | {"revision": None})
    try:
        return _load_tokenizer(name, origin)
    except ModelError:
        copy = local_copy(name, origin["revision"])
        if copy is not None and not _tokenizer_files(copy):  # a hub id without one, which is known only now
            return None
        raise


def _load_tokenizer(name: str, origin: dict[str, Any]) -> Any:
    from transformers import AutoTokenizer

    advice = "repair it, or remove its files and give token ids with --tokens"
    try:
        with quiet_transformers() as said, explained(f"the tokenizer of {name!r}", said, folder=name, advice=advice):
            tokenizer = AutoTokenizer.from_pretrained(name, **origin)
            tried = tokenizer("The 1st try.", add_special_tokens=False)["input_ids"]
        if not tried:
            raise ModelError(f"the tokenizer of {name!r} has no vocabulary; {advice}")
    except ModelError as error:
        _refuse_missing_packages(name, origin, error)
        raise
    return tokenizer


def _refuse_missing_packages(name: str, origin: dict[str, Any], cause: ModelError) -> None:
    """ModelError that names the packages which a sentencepiece model needs; transformers names others, too."""
    needs = missing_packages("sentencepiece", "google.protobuf") if _needs_sentencepiece(name, origin) else []
    if needs:
        raise ModelError(
            f"the tokenizer of {name!r} is a sentencepiece model, which may need packages that are not installed: "
            f"pip install {' '.join(needs)}"
        ) from cause


def local_copy(name: str, revision: str | None) -> Path | None:
    """The folder of a model: its own, or that of a hub id in the local cache; None when it was never fetched."""
    from huggingface_hub import try_to_load_from_cache

    _refuse_no_folder(name)
    if is_folder(name):
        return Path(name)
    with explained(_called(name)):
        found = try_to_load_from_cache(name, "config.json", revision=revision)
    return Path(found).parent if isinstance(found, str) else None


def adapter_config(name: str, revision: str | None = None) -> Path | None:
    """The file that makes ``name`` an adapter of another model; None for a model."""
    from transformers.utils.peft_utils import find_adapter_config_file

    if is_folder(name):
        path = os.path.join(name, ADAPTER)
        return Path(path) if os.path.isfile(path) else None
    with quiet_transformers(), explained(_called(name), advice=_choices()):
        found = find_adapter_config_file(name, revision=revision)
    return None if found is None else Path(found)


def base_of(adapter: Path) -> str:
    """The model that an adapter was made for."""
    with explained(f"adapter {str(adapter.parent)!r}"):
        base = json.loads(adapter.read_text(encoding="utf-8"))["base_model_name_or_path"]
    if not isinstance(base, str) or not base:
        raise ModelError(f"{adapter} names no base model; write its path into base_model_name_or_path")
    return base


def _refuse_unusable_adapter(name: str) -> None:
    if needs := missing_packages("peft"):
        raise ModelError(
            f"{name} is an adapter, which needs packages that are not installed: pip install {' '.join(needs)}"
        )
    if (Path(name) / "config.json").is_file():
        raise ModelError(
            f"{name} holds a model and an adapter of it; move the adapter into a folder of its own, whose {ADAPTER} "
            "names this one as base_model_name_or_path"
        )


def _load_checked(name: str, options: dict[str, Any], origin: dict[str, Any]) -> tuple[Any, list[str]]:
    advice = "" if is_folder(name) else _choices()
    with quiet_transformers() as said, explained(_called(name), said, folder=name, advice=advice):
        _refuse_no_model(name)
        auto = _class_for(name, origin)
        # shapes that differ are named below, where transformers would only say that there are some
        model, info = auto.from_pretrained(
            name, **options, **origin, output_loading_info=True, ignore_mismatched_sizes=True
        )
        report = LoadingReport.of(info, model)
    report.refuse_incomplete(name)
    return model, _notes(report, name)


def _class_for(name: str, origin: dict[str, Any]) -> Any:
    """The class that loads it: of causal models, or of those that read pictures too and have a text part."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.models.auto import modeling_auto as known

    config = AutoConfig.from_pretrained(name, **origin)
    kind = config.model_type
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(f"{name} is an encoder-decoder ({kind}); only decoder models can be recorded")
    causal = known.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(kind)
    seeing = known.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.get(kind)
    own_code = "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
    if seeing and not own_code and (causal is None or seeing in (config.architectures or [])):
        return AutoModelForImageTextToText
    if causal or own_code:
        return AutoModelForCausalLM
    raise ModelError(f"{name} is no model that writes text ({kind}); only decoder models can be recorded")


def _refuse_no_folder(name: str) -> None:
    """ModelError for a path, which no hub id is, where no folder is."""
    if not is_folder(name) and (name.startswith((".", "/", "~")) or os.path.lexists(name)):
        raise ModelError(f"{name} is no model folder; {_choices()}")


def _refuse_no_model(name: str) -> None:
    """ModelError for a folder that is worth no attempt: without a config, or with files that are not fetched."""
    folder = Path(name)
    if not is_folder(name):
        return
    refuse_pointers([file for pattern in _READ for file in sorted(folder.glob(pattern))])
    if not (folder / "config.json").is_file():
        ggufs = [file.name for file in sorted(folder.glob("*.gguf"))]
        hint = f"give one of its files, {folder / ggufs[0]}" if ggufs else "give the folder that has one"
        raise ModelError(f"{name} is no model folder, it has no config.json; {hint}")


def _tokenizer_files(folder: Path) -> list[Path]:
    return [file for pattern in TOKENIZER_FILES for file in folder.glob(pattern)]


def _needs_sentencepiece(name: str, origin: dict[str, Any]) -> bool:
    """Whether the tokenizer is there as a sentencepiece model alone."""
    copy = local_copy(name, origin["revision"])
    names = {file.name for file in _tokenizer_files(copy)} if copy is not None else set()
    return "tokenizer.json" not in names and any(name.endswith(".model") for name in names)


def _notes(report: LoadingReport, name: str) -> list[str]:
    note = report.note(name)
    return [] if note is None else [note]


def _called(name: str) -> str:
    return f"model {name!r}"


def _choices() -> str:
    return f"--model takes an alias ({', '.join(ALIASES)}), a local folder, a .gguf file or a Hugging Face hub id"

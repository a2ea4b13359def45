"""Why a model could not be had, in one line, whatever is wrong with its files."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from zipfile import is_zipfile

from qevict_diag.errors import ModelError, QEvictError

POINTER = b"version https://git-lfs.github.com/spec/v1"
LONGEST = 300  # characters of a cause
_SAYS_ENOUGH = (OSError, ValueError, ImportError, RuntimeError)
_OWN_CODE = "--trust-remote-code"
_SEE_REPORT = "above report"  # transformers refers to a table that it has logged
_OF_ENTRIES = re.compile(r"(.+_)?config\.json|.+\.index\.json|(tokenizer|vocab|special_tokens_map|added_tokens)\.json")
_ROW = re.compile(r"(?m)^(\S+)\s+\|\s*(?:\S*m)?(CONVERSION|MISMATCH)")


@contextmanager
def explained(
    what: str, said: Sequence[str] = (), *, folder: str | None = None, advice: str = "", verb: str = "load"
) -> Iterator[None]:
    """Turn whatever is raised into a ModelError of one line: "cannot ``verb`` ``what``: cause; ``advice``".

    Foreign files are read, and foreign models run, by a dozen libraries, which raise what they like: classes of their
    own, bare Exceptions of compiled code, struct.error, ZeroDivisionError over a number in a config. So all of it is
    caught but an interrupt.
    ``said`` is what transformers logged meanwhile; ``folder`` is where a damaged file is looked for.
    """
    try:
        yield
    except QEvictError:
        raise
    except Exception as error:  # a dozen libraries raise what they like over a foreign file; see above
        told = damaged(folder) or cause(error, said)
        told += f"; {advice}" if advice and _OWN_CODE not in told else ""
        raise ModelError(f"cannot {verb} {what}: {told}") from error


def cause(error: Exception, said: Sequence[str] = ()) -> str:
    """What an error says, in one line and in words that help."""
    text = one_line(error)
    if "trust_remote_code" in text or "custom code which must be executed" in text:
        return f"it brings code of its own, which runs only with {_OWN_CODE}; read that code first"
    if type(error).__name__ == "UnpicklingError":
        return "its weights are a damaged pickle, or one that holds more than tensors; give safetensors"
    if "couldn't connect" in text:
        return "it is not in the local cache, and the hub cannot be reached"
    if isinstance(error, MemoryError) or "out of memory" in text.lower():
        return f"there is not enough memory for it ({text}); choose another device or a smaller dtype"
    if _SEE_REPORT in text:
        rows = dict(_ROW.findall("\n".join(said)))
        return f"its weights do not fit the model: {listed(rows)}" if rows else text
    return text if isinstance(error, _SAYS_ENOUGH) else f"{type(error).__name__}: {text}"


def damaged(folder: str | None) -> str | None:
    """The first file of a model folder that cannot be read, is cut or broken, and how; None when there is none."""
    from safetensors import SafetensorError, safe_open

    for path in _files(folder):
        try:
            path.open("rb").close()
            if path.suffix == ".json":
                _refuse_no_object(path)
            if path.suffix == ".safetensors":
                safe_open(path, "pt").__enter__()
            if path.suffix == ".bin":
                _refuse_no_archive(path)
        except OSError as error:
            return f"{path} cannot be read ({error.strerror})"
        except (ValueError, RecursionError, SafetensorError) as error:
            return f"{path} is damaged ({one_line(error)}), fetch it again"
    return None


def _refuse_no_object(path: Path) -> None:
    """ValueError for what is no JSON, or holds no entries where transformers looks for some."""
    content = json.loads(path.read_bytes())
    if _OF_ENTRIES.fullmatch(path.name) and not isinstance(content, dict):
        raise ValueError("it holds no JSON object")


def _refuse_no_archive(path: Path) -> None:
    """ValueError for weights that are neither of PyTorch's formats, an archive or a bare pickle."""
    with path.open("rb") as file:
        if file.read(1) != b"\x80" and not is_zipfile(file):
            raise ValueError("it is no file of PyTorch")


def _files(folder: str | None) -> list[Path]:
    """The files of a folder, none where it cannot be listed."""
    try:
        return sorted(path for path in Path(folder or "").iterdir() if path.is_file()) if folder is not None else []
    except OSError:
        return []


def one_line(error: Exception) -> str:
    """The words of an error without line breaks and control characters, cut where they get long."""
    words = " ".join("".join(c if c.isprintable() else " " for c in str(error)).split())
    if not words:
        return type(error).__name__
    return words.rstrip(". ") if len(words) <= LONGEST else f"{words[:LONGEST]} ..."


def listed(names: Sequence[str] | dict[str, str], most: int = 3) -> str:
    """The first few names, and how many more there are."""
    shown = sorted(names)
    rest = len(shown) - most
    return ", ".join(shown[:most]) + (f" and {rest} more" if rest > 0 else "")


def refuse_pointers(paths: Sequence[Path]) -> None:
    """ModelError for a file that Git LFS has left out: a few lines of text stand in its place."""
    for path in paths:
        if path.is_file() and path.stat().st_size < 1024 and path.read_bytes().startswith(POINTER):
            raise ModelError(
                f"{path} is a pointer of Git LFS, not the file itself; fetch it with `git lfs pull` in {path.parent}"
            )


def missing_packages(*modules: str) -> list[str]:
    """The packages that are not installed, of those that hold these modules."""
    return [_PACKAGES.get(module, module) for module in modules if not _is_there(module)]


_PACKAGES = {"google.protobuf": "protobuf"}


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def is_folder(name: str) -> bool:
    """Whether ``name`` is a folder; a name that no file system takes is none."""
    return os.path.isdir(name)

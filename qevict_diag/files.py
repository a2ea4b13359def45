"""Files and folders that are there whole or not at all: written beside the target under another name, then renamed."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qevict_diag.errors import InputError


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path with the same ending; what was written there becomes ``path`` when all went well.

    InputError when the folder cannot be made or written to, or is full.
    """
    target = check_target(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.stem}.", suffix=target.suffix, dir=target.parent)
    except OSError as error:
        raise InputError(f"cannot write {target} ({error.strerror}); give a folder that can be written to") from error
    os.close(handle)
    scratch = Path(name)
    try:
        yield scratch
        _publish(scratch, target)
    except OSError as error:
        raise InputError(f"cannot write {target} ({error.strerror}); make room, or give another place") from error
    finally:
        scratch.unlink(missing_ok=True)


def check_target(path: str | os.PathLike[str]) -> Path:
    """``path`` if a file can be written there; InputError otherwise, before any work is done."""
    target = Path(path)
    if target.is_dir():
        raise InputError(f"{target} is a folder; give the name of a file")
    parent = next(folder for folder in target.absolute().parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"cannot write {target} ({parent} is no folder that can be written to); give another place")
    return target


@contextmanager
def new_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary folder; with what was written into it, it becomes ``path`` when all went well.

    InputError when something is at ``path`` already, or its parent cannot be made or written to.
    """
    target = Path(path)
    if os.path.lexists(target):
        raise InputError(f"{target} is there already; give a folder that does not exist yet")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise InputError(f"cannot write {target} ({error.strerror}); give a folder that can be written to") from error
    try:
        yield scratch
        scratch.chmod(0o777 & ~_umask())
        scratch.rename(target)
    except OSError as error:
        raise InputError(f"cannot write {target} ({error.strerror}); make room, or give another place") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write a UTF-8 text file, whole or not at all."""
    with replacing(path) as scratch:
        scratch.write_text(text, encoding="utf-8")
    return Path(path)


def _publish(scratch: Path, target: Path) -> None:
    """Sync, give it the permissions that a new file has, and rename."""
    with scratch.open("rb+") as file:
        os.fsync(file.fileno())
    scratch.chmod(0o666 & ~_umask())
    scratch.replace(target)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

"""Files and folders that are there whole or not at all: written aside under a hidden name, then renamed.

The hidden name is ``.NAME.partial-RANDOM``, and its writer holds a lock on it for as long as it lives. Whoever writes
NAME next can therefore tell by the free lock what a killed writer has left, and removes it. A file system without locks
tells nobody who lives: there everything still works, and leftovers stay.
"""

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from qevict_diag.errors import InputError

PARTIAL = ".partial-"
_ENDING = r"[0-9a-z_]+(\.[^.]*)?"
HIDDEN = re.compile(r"\..*" + re.escape(PARTIAL) + _ENDING, re.DOTALL)
SET, CURRENT = "set", "current"  # where sets lie, and the link there to the one that is shown
_SETS = re.compile(SET + r"-[0-9a-f]+")
_LONGEST = 48  # characters of NAME in a hidden name: with every one of four bytes, and all else, below 255


@contextmanager
def replacing(path: str | os.PathLike[str], *, tidy: bool = True) -> Iterator[Path]:
    """Give a temporary path with the same ending; what was written there becomes ``path`` when all went well.

    An existing file keeps its permissions, and a link stays one: what it points to is replaced. ``tidy`` removes first
    what killed writers of ``path`` left. InputError when something else than a file is there, or the folder cannot be
    made or written to, or is full.
    """
    target = check_target(path)
    with _in_words(path), aside(target, Path(path).suffix, tidy=tidy) as scratch:
        yield scratch
        _publish(scratch, target)


@contextmanager
def new_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary folder; with what was written into it, it becomes ``path`` when all went well.

    InputError when something is at ``path`` already, or its parent cannot be made or written to.
    """
    target = Path(path)
    if os.path.lexists(target):
        raise InputError(f"{target} is there already; give a folder that does not exist yet")
    with _in_words(target), aside(target, None) as scratch:
        yield scratch
        publish_folder(scratch, target)


@contextmanager
def replacing_set(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary folder; the files written into it replace those of an earlier set in ``folder`` at one moment.

    A set lies in a folder of its own in ``folder/set``, where ``current`` is a link to it, and the name of each of its
    files is a link through that one: renaming ``current`` replaces all of them. Other files in ``folder`` stay.
    InputError as for `replacing`, and where the file system has no links (`check_set` tells it before any work).
    """
    home, store = Path(folder), Path(folder) / SET
    with _in_words(home), aside(store / SET, None) as scratch:
        yield scratch
        for name in sorted(os.listdir(scratch)):
            _link(home / name, f"{SET}/{CURRENT}/{name}", scratch)
        made = store / scratch.name.removeprefix(".").replace(PARTIAL, "-")
        publish_folder(scratch, made)
        _link(store / CURRENT, made.name, made)  # the moment
        remove_abandoned(store, _SETS)
        for path in home.iterdir():
            if path.is_symlink() and not path.exists() and os.readlink(path).startswith(f"{SET}/{CURRENT}/"):
                path.unlink()


def check_set(folder: str | os.PathLike[str]) -> None:
    """InputError where `replacing_set` could not write, before any work is done."""
    with _in_words(folder), aside(Path(folder) / SET / SET, None) as scratch:
        (scratch / CURRENT).symlink_to(SET)


def write_text(path: str | os.PathLike[str], text: str, *, tidy: bool = True) -> Path:
    """Write a UTF-8 text file, whole or not at all."""
    with replacing(path, tidy=tidy) as scratch:
        scratch.write_text(text, encoding="utf-8")
    return Path(path)


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a regular file; OSError for anything else, such as a pipe that nobody may ever write into."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "no regular file", os.fspath(path))
        return file.read()


def check_target(path: str | os.PathLike[str]) -> Path:
    """The file behind ``path`` if one can be written there; InputError otherwise, before any work is done."""
    mode = _mode(path)
    if mode is not None and not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "a device, a pipe or a socket"
        raise InputError(f"{path} is {what}; give the name of a file")
    target = Path(os.path.realpath(path))
    _check_parent(path, target.parents)
    return target


def check_folder(path: str | os.PathLike[str]) -> None:
    """InputError where no folder can be made, or written into, before any work is done."""
    target = Path(os.path.realpath(path))
    _mode(path)
    _check_parent(path, (target, *target.parents))


def _check_parent(path: str | os.PathLike[str], folders: Iterable[Path]) -> None:
    parent = next(folder for folder in folders if os.path.exists(folder))
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"cannot write {path} ({parent} is no folder that can be written to); give another place")


@contextmanager
def aside(target: Path, suffix: str | None, *, tidy: bool = True) -> Iterator[Path]:
    """A hidden file beside ``target``, or a folder where ``suffix`` is None, locked by this process.

    It is removed in the end if it is still there. OSError when it cannot be made.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if tidy:
        remove_leftovers(target)
    scratch, descriptor = _create(target, suffix)
    try:
        yield scratch
    finally:
        _remove(scratch)
        os.close(descriptor)


def remove_leftovers(target: Path) -> None:
    """Remove what killed writers of ``target`` left beside it; what is being written is locked, and stays."""
    remove_abandoned(target.parent, re.compile(re.escape(_beginning(target)) + _ENDING, re.DOTALL))


def remove_abandoned(folder: Path, name: re.Pattern[str] = HIDDEN) -> None:
    """Remove files and folders of such a ``name`` whose writers are gone; what cannot be removed stays."""
    with suppress(OSError):
        for path in [path for path in folder.iterdir() if name.fullmatch(path.name)]:
            with suppress(OSError):
                _remove_if_abandoned(path)


def publish_folder(scratch: Path, target: Path) -> None:
    """Give ``scratch`` the permissions that a new folder has, force it to disk, and rename it to ``target``."""
    scratch.chmod(0o777 & ~_umask())
    sync_folder(scratch)
    scratch.rename(target)
    sync_folder(target.parent)


def size_in_words(size: int) -> str:
    """A number of bytes with three digits, ``1.23 MB``."""
    digits, unit = float(size), iter(("B", "kB", "MB", "GB"))
    name = next(unit)
    while digits >= 999.5 and (larger := next(unit, None)) is not None:
        digits, name = digits / 1000, larger
    return f"{digits:.3g} {name}" if digits < 999.5 else f"{digits:.0f} {name}"


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock(descriptor: int) -> bool:
    """Lock an open file until this process ends; False where the file system has no locks.

    BlockingIOError when another process has it.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def _create(target: Path, suffix: str | None) -> tuple[Path, int]:
    """A new hidden file, or a folder where ``suffix`` is None, and a descriptor that holds its lock."""
    while True:
        scratch = target.parent / f"{_beginning(target)}{secrets.token_hex(4)}{suffix or ''}"
        if suffix is None:
            scratch.mkdir(mode=0o700)
        else:
            scratch.touch(mode=0o600, exist_ok=False)
        with suppress(BlockingIOError, FileNotFoundError):  # somebody took it for a leftover before it was locked
            return scratch, _open_locked(scratch)[0]


def _open_locked(path: Path) -> tuple[int, bool]:
    """A descriptor of a file or folder, and whether it holds its lock; BlockingIOError when somebody else does.

    FileNotFoundError when the path is gone, or another file's, once the lock is there.
    """
    flags = os.O_RDONLY if stat.S_ISDIR(os.lstat(path).st_mode) else os.O_RDWR
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        held = lock(descriptor)
        if not os.path.samestat(os.lstat(path), os.fstat(descriptor)):
            raise FileNotFoundError(path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor, held


def _beginning(target: Path) -> str:
    return f".{target.name[:_LONGEST]}{PARTIAL}"


def _remove_if_abandoned(path: Path) -> None:
    if not path.is_symlink() and (path.is_file() or path.is_dir()):
        descriptor, held = _open_locked(path)
        try:
            if held:
                _remove(path)
        finally:
            os.close(descriptor)


def _link(path: Path, to: str, scratch: Path) -> None:
    """Make ``path`` a link ``to`` something, whatever was there; made first in ``scratch``, then renamed."""
    if not path.is_symlink() or os.readlink(path) != to:
        (scratch / CURRENT).symlink_to(to)
        (scratch / CURRENT).replace(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _publish(scratch: Path, target: Path) -> None:
    """Sync, give it the permissions of the file it replaces, or of a new one, and rename."""
    with scratch.open("rb+") as file:
        os.fsync(file.fileno())
    mode = _mode(target)
    scratch.chmod(0o666 & ~_umask() if mode is None else mode & 0o777)
    scratch.replace(target)


def _mode(path: str | os.PathLike[str]) -> int | None:
    """Kind and permissions of what is at ``path``, behind its links; None for nothing, InputError if nobody can say."""
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InputError(f"cannot write {path} ({error.strerror}); give another place") from error


@contextmanager
def _in_words(target: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write {target} ({error.strerror}); make room, or give another place") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

"""Files, folders and sets of files are there whole or not at all, and nothing else is touched."""

import fcntl
import os
import signal
import socket
import stat
import subprocess
import sys
from functools import partial

import pytest
from children import forked, status_of

from qevict_diag import files
from qevict_diag.cli.signals import end_cleanly
from qevict_diag.errors import InputError

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def test_text_is_written_into_new_folders(tmp_path):
    path = files.write_text(tmp_path / "a" / "b.md", "Ω\n")
    assert path.read_text(encoding="utf-8") == "Ω\n"
    assert [file.name for file in path.parent.iterdir()] == ["b.md"]


def test_a_failure_leaves_the_old_file_and_no_other(tmp_path):
    path = files.write_text(tmp_path / "b.md", "old")
    with pytest.raises(RuntimeError):
        fail_halfway(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def fail_halfway(path):
    with files.replacing(path) as scratch:
        scratch.write_text("half")
        raise RuntimeError


def test_the_scratch_file_has_the_same_ending(tmp_path):
    with files.replacing(tmp_path / "figure.svg") as scratch:
        assert scratch.suffix == ".svg"
        assert scratch.parent == tmp_path


def test_a_folder_in_the_way_is_an_error_in_words(tmp_path):
    (tmp_path / "taken.md").mkdir()
    with pytest.raises(InputError, match=r"taken\.md is a folder"):
        files.write_text(tmp_path / "taken.md", "x")


def test_a_file_where_a_folder_belongs_is_an_error_in_words(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="cannot write"):
        files.write_text(tmp_path / "file" / "b.md", "x")


def test_a_full_disk_is_an_error_in_words_and_leaves_nothing(tmp_path):
    def fill(scratch):
        raise OSError(28, "No space left on device")

    told = r"cannot write .*x.* \(No space left on device\); make room"
    for target in (files.replacing(tmp_path / "x.csv"), files.new_folder(tmp_path / "x")):
        with pytest.raises(InputError, match=told), target as scratch:
            fill(scratch)
    assert list(tmp_path.iterdir()) == []


def test_a_target_is_checked_before_the_work(tmp_path):
    assert files.check_target(tmp_path / "new" / "x.csv") == tmp_path / "new" / "x.csv"
    (tmp_path / "file").write_text("x")
    wrong = {tmp_path: "is a folder", tmp_path / "file" / "x.csv": "is no folder that can be written to"}
    for target, told in wrong.items():
        with pytest.raises(InputError, match=told):
            files.check_target(target)


def test_a_folder_is_checked_before_the_work(tmp_path):
    files.check_folder(tmp_path)
    files.check_folder(tmp_path / "new" / "newer")
    (tmp_path / "file").write_text("x")
    for wrong, told in {"file": "is no folder", "file/x": "is no folder", "x" * 300: "File name too long"}.items():
        with pytest.raises(InputError, match=told):
            files.check_folder(tmp_path / wrong)
    assert names(tmp_path) == ["file"]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def in_child(action):
    """The exit status of ``action`` in a forked process; -9 when it was killed."""
    return status_of(forked(action))


def kill_myself():
    os.kill(os.getpid(), signal.SIGKILL)


# what stands at the target


def test_a_link_stays_a_link_and_what_it_points_to_is_replaced(tmp_path):
    (tmp_path / "real.md").write_text("old")
    for link, to in {"link.md": "real.md", "over.md": "link.md", "dangling.md": "new.md"}.items():
        (tmp_path / link).symlink_to(to)
    assert files.write_text(tmp_path / "over.md", "one") == tmp_path / "over.md"
    files.write_text(tmp_path / "dangling.md", "two")
    assert [(tmp_path / name).is_symlink() for name in ("over.md", "link.md", "dangling.md")] == [True] * 3
    assert [(tmp_path / name).read_text() for name in ("real.md", "new.md")] == ["one", "two"]


def test_a_link_to_itself_is_an_error_in_words(tmp_path):
    (tmp_path / "loop.md").symlink_to("loop.md")
    with pytest.raises(InputError, match=r"cannot write .*loop\.md"):
        files.check_target(tmp_path / "loop.md")


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "link to a device", "descriptor"])
def test_what_is_not_a_regular_file_is_refused_and_left(tmp_path, kind):
    path = tmp_path / "x.csv"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(path))
    elif kind == "device":
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("only root makes devices")
    elif kind == "link to a device":
        path.symlink_to(os.devnull)
    else:
        read, write = os.pipe()
        path.symlink_to(f"/proc/self/fd/{write}")
    before = path.lstat()
    for attempt in (files.check_target, lambda target: files.write_text(target, "x")):
        with pytest.raises(InputError, match="is a device, a pipe or a socket; give the name of a file"):
            attempt(path)
    assert path.lstat() == before
    if kind == "descriptor":
        os.close(read)
        os.close(write)


@pytest.mark.parametrize("bits", [0o600, 0o640, 0o444])
def test_an_existing_file_keeps_its_permissions(tmp_path, bits):
    path = files.write_text(tmp_path / "x.md", "old")
    path.chmod(bits)
    files.write_text(path, "new")
    assert (path.read_text(), mode(path)) == ("new", bits)


@pytest.mark.parametrize(("mask", "file", "folder"), [(0o022, 0o644, 0o755), (0o077, 0o600, 0o700)])
def test_what_is_new_has_the_permissions_that_the_umask_leaves(tmp_path, mask, file, folder):
    before = os.umask(mask)
    try:
        path = files.write_text(tmp_path / "x.md", "new")
        with files.new_folder(tmp_path / "x") as scratch:
            assert mode(scratch) == 0o700  # nobody else looks on
    finally:
        os.umask(before)
    assert (mode(path), mode(tmp_path / "x")) == (file, folder)


@pytest.mark.parametrize("length", [1, 200, 255, 256, 5000])
@pytest.mark.parametrize("letter", ["x", "語"])
def test_long_names_are_written_or_refused_before_the_work(tmp_path, length, letter):
    name = letter * length
    if len(name.encode()) <= 255:
        assert files.write_text(tmp_path / name, "x").read_text() == "x"
        return
    for target in (files.check_target, lambda path: files.write_text(path, "x")):
        with pytest.raises(InputError, match=r"cannot write .* \(File name too long\); give another place"):
            target(tmp_path / name)
    assert names(tmp_path) == []


# what killed writers leave


def leave(tmp_path):
    """Two writers are killed in mid-work; the hidden names of what they leave."""

    def file():
        with files.replacing(tmp_path / "x.csv") as scratch:
            scratch.write_text("half")
            kill_myself()

    def folder():
        with files.new_folder(tmp_path / "new") as scratch:
            (scratch / "half").write_text("half")
            kill_myself()

    assert [in_child(file), in_child(folder)] == [-signal.SIGKILL] * 2
    return names(tmp_path)


@needs_fork
def test_the_next_writer_of_a_name_removes_what_killed_ones_left(tmp_path):
    old = leave(tmp_path)
    assert len(old) == 2
    assert all(files.HIDDEN.fullmatch(name) for name in old)
    files.write_text(tmp_path / "y.csv", "")  # another name
    assert names(tmp_path) == sorted([*old, "y.csv"])
    files.write_text(tmp_path / "x.csv", "")
    with files.new_folder(tmp_path / "new"):
        pass
    assert names(tmp_path) == ["new", "x.csv", "y.csv"]


@needs_fork
def test_what_is_still_being_written_stays(tmp_path):
    with files.replacing(tmp_path / "x.csv") as first, files.replacing(tmp_path / "x.csv") as second:
        assert in_child(lambda: files.write_text(tmp_path / "x.csv", "third")) == 0
        first.write_text("first")
        second.write_text("second")
    assert (tmp_path / "x.csv").read_text() == "first"
    assert names(tmp_path) == ["x.csv"]


def test_links_and_other_names_are_no_leftovers(tmp_path):
    (tmp_path / "precious").write_text("x")
    (tmp_path / ".x.csv.partial-0abc").symlink_to("precious")
    for name in (".x.csv", ".x.csv.partial-", "x.csv.partial-0abc", ".x.csv.partial-0/"):
        (tmp_path / name).mkdir(exist_ok=True) if name.endswith("/") else (tmp_path / name).write_text("mine")
    before = [name for name in names(tmp_path) if name != ".x.csv.partial-0"]
    files.write_text(tmp_path / "x.csv", "")
    assert names(tmp_path) == sorted([*before, "x.csv"])


def test_a_file_system_without_locks_is_written_to_and_keeps_leftovers(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    (tmp_path / ".x.md.partial-0abc").write_text("somebody's, or nobody's")
    files.write_text(tmp_path / "x.md", "x")
    assert names(tmp_path) == [".x.md.partial-0abc", "x.md"]


@needs_fork
def test_writers_and_cleaners_of_one_name_do_not_disturb_each_other(tmp_path):
    def write_often():
        for number in range(100):
            files.write_text(tmp_path / "x.md", str(number))
            with files.aside(tmp_path / "y", None) as scratch:
                (scratch / "z").write_text("z")
        kill_myself()  # the sign that all went well

    children = [forked(write_often) for _ in range(4)]
    assert [status_of(child) for child in children] == [-signal.SIGKILL] * 4
    assert names(tmp_path) == ["x.md"]


# sets


def write_set(folder, content, *members):
    with files.replacing_set(folder) as scratch:
        for name in members:
            (scratch / name).write_text(content)


def shown(folder):
    """What a reader finds: the visible files and what is in them."""
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


def test_a_set_replaces_an_earlier_one_and_leaves_other_files(tmp_path):
    (tmp_path / "traces").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    write_set(tmp_path, "old", "a.md", "b.md")
    assert shown(tmp_path) == {"a.md": "old", "b.md": "old", "notes.txt": "mine"}
    write_set(tmp_path, "new", "b.md", "c.md")
    assert shown(tmp_path) == {"b.md": "new", "c.md": "new", "notes.txt": "mine"}
    assert names(tmp_path) == ["b.md", "c.md", "notes.txt", "set", "traces"]
    assert len(names(tmp_path / "set")) == 2  # the set and the link to it


def test_a_set_that_fails_leaves_the_earlier_one(tmp_path):
    write_set(tmp_path, "old", "a.md")
    before = names(tmp_path)
    with pytest.raises(TypeError):
        write_set(tmp_path, 0, "a.md")
    assert (names(tmp_path), len(names(tmp_path / "set"))) == (before, 2)
    assert shown(tmp_path) == {"a.md": "old"}


def test_a_set_moves_and_is_copied(tmp_path):
    write_set(tmp_path / "one", "x", "a.md")
    moved = (tmp_path / "one").rename(tmp_path / "two")
    assert shown(moved) == {"a.md": "x"}


@needs_fork
@pytest.mark.parametrize("earlier", [(), ("a.md", "b.md", "c.md")])
def test_killed_at_any_moment_a_set_is_the_old_or_the_new_one(tmp_path, earlier):
    seen = []
    for number in range(1, 60):
        folder = tmp_path / str(number)
        folder.mkdir()
        if earlier:
            write_set(folder, "old", *earlier)

        def action(number=number, folder=folder):
            kill_at(number, folder)
            write_set(folder, "new", "b.md", "c.md", "d.md")

        killed = in_child(action)
        found = shown(folder)
        assert found in (dict.fromkeys(earlier, "old"), dict.fromkeys(("b.md", "c.md", "d.md"), "new")), number
        seen.append(set(found.values()))
        write_set(folder, "last", "d.md")
        assert shown(folder) == {"d.md": "last"}
        assert (names(folder), len(names(folder / "set"))) == (["d.md", "set"], 2)  # no leftovers
        if killed == 0:
            break
    assert number > 12
    assert {"new"} in seen
    assert ({"old"} if earlier else set()) in seen


def kill_at(number, folder):
    """Kill this process before its ``number``-th change of the file system below ``folder``."""
    left = number

    def hook(event, arguments):
        nonlocal left
        changes = ("open", "os.mkdir", "os.rename", "os.symlink", "os.chmod", "os.remove", "os.rmdir", "shutil.rmtree")
        if event in changes and str(folder) in str(arguments):
            left -= 1
            if left == 0:
                kill_myself()

    sys.addaudithook(hook)


def test_a_set_is_refused_before_the_work_where_there_are_no_links(tmp_path, monkeypatch):
    def unsupported(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    files.check_set(tmp_path / "out")
    monkeypatch.setattr(os, "symlink", unsupported)
    with pytest.raises(InputError, match=r"cannot write .*out \(Operation not permitted\)"):
        files.check_set(tmp_path / "out")
    assert names(tmp_path / "out" / "set") == []


WORK = """
import sys, time
from functools import partial
from pathlib import Path
from qevict_diag import files
from qevict_diag.cli import signals
signals.end_cleanly()
with files.replacing(Path(sys.argv[1]) / "x.csv") as one, files.new_folder(Path(sys.argv[1]) / "y") as two:
    one.write_text("half")
    (two / "half").write_text("half")
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_told_to_end_leaves_nothing(tmp_path, number):
    heard = partial(signal.signal, number, signal.SIG_DFL)  # also where the suite runs under `nohup`
    process = subprocess.Popen(
        [sys.executable, "-c", WORK, str(tmp_path)], stdout=subprocess.PIPE, text=True, preexec_fn=heard
    )
    assert process.stdout.readline() == "ready\n"
    assert len(names(tmp_path)) == 2
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert names(tmp_path) == []


def test_a_signal_that_is_ignored_stays_ignored():
    """As by `nohup`."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        end_cleanly()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

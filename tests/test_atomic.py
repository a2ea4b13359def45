"""A file is there whole or not at all."""

import pytest

from qevict_diag import files
from qevict_diag.errors import InputError


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

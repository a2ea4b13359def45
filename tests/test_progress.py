"""Progress: steps add up, and a part tells its steps as those of the whole."""

from qevict_diag.progress import Steps, part_of


def told():
    calls = []
    return calls, lambda *call: calls.append(call)


def test_steps_add_up_to_their_total():
    calls, progress = told()
    finished = Steps(progress, "replaying", 4)
    for count in (1, 3):
        finished(count)
    assert calls == [("replaying", 1, 4), ("replaying", 4, 4)]


def test_a_part_goes_on_where_the_one_before_it_stopped():
    calls, progress = told()
    for before in (0, 2):
        finished = Steps(part_of(progress, "all of it", before, 4), "a part", 2)
        finished()
        finished()
    assert calls == [("all of it", done, 4) for done in (1, 2, 3, 4)]


def test_a_part_alone_keeps_its_own_total():
    calls, progress = told()
    part_of(progress, "recording 512+256")("recording", 1, 2)
    assert calls == [("recording 512+256", 1, 2)]

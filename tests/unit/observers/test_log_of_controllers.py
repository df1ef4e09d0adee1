"""What the log of the virtual controllers on a real API server says (tests/real/truth.py)."""

from tests.real.truth import Fact, first_facts

VM, STEP = "vm-1", "vmi_scheduled"


def test_a_request_that_was_sent_first_counts_even_when_it_was_answered_last() -> None:
    log = [Fact(VM, STEP, 200, 250), Fact(VM, STEP, 100, 300)]
    assert first_facts(log, 0)[VM, STEP] == Fact(VM, STEP, 100, 250)


def test_an_answer_that_never_came_bounds_nothing() -> None:
    log = [Fact(VM, STEP, 100, None), Fact(VM, STEP, 200, 250)]
    assert first_facts(log, 0)[VM, STEP] == Fact(VM, STEP, 100, 250)
    assert first_facts(log[:1], 0)[VM, STEP].done_ns is None


def test_what_was_sent_before_the_release_is_of_an_earlier_storm() -> None:
    assert first_facts([Fact(VM, STEP, 100, 150)], 120) == {}

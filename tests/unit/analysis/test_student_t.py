import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.analysis.student_t import critical_t, two_sided_p

PUBLISHED = [
    (0.95, 1, 12.706), (0.95, 2, 4.303), (0.99, 3, 5.841), (0.999, 4, 8.610), (0.95, 10, 2.228),
    (0.99, 30, 2.750), (0.95, 1e7, 1.960),
]  # fmt: skip


@pytest.mark.parametrize(("confidence", "df", "t"), PUBLISHED)
def test_the_published_table(confidence: float, df: float, t: float) -> None:
    assert critical_t(confidence, df) == pytest.approx(t, abs=0.0006)


@given(st.floats(0.5, 0.9999), st.floats(0.5, 1e4))
def test_critical_t_is_where_the_tails_hold_the_rest(confidence: float, df: float) -> None:
    assert two_sided_p(critical_t(confidence, df), df) == pytest.approx(1 - confidence, rel=1e-5)


@given(st.floats(-50, 50), st.floats(0.5, 1e4))
def test_a_tail_is_a_probability_and_the_same_on_both_sides(t: float, df: float) -> None:
    assert 0 <= two_sided_p(t, df) == two_sided_p(-t, df) <= 1


@pytest.mark.parametrize(("confidence", "df"), [(1.0, 3), (0.0, 3), (0.95, 0)])
def test_what_has_no_answer_is_an_error(confidence: float, df: float) -> None:
    with pytest.raises(ValueError, match="not within"):
        critical_t(confidence, df)

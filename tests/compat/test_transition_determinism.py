"""The same question always gets the same answer, and the answer is the table's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.compat import VALID_TRANSITIONS, InvalidStateTransitionError, JobStatus, StateMachineValidator


@pytest.mark.req("G-26", "G-02", "G-05")
@given(
    from_status=st.sampled_from(JobStatus),
    to_status=st.sampled_from(JobStatus),
    before=st.lists(st.tuples(st.sampled_from(JobStatus), st.sampled_from(JobStatus)), max_size=5),
)
def test_transition_determinism(
    from_status: JobStatus, to_status: JobStatus, before: list[tuple[JobStatus, JobStatus]]
) -> None:
    used, fresh = StateMachineValidator(), StateMachineValidator()
    for source, target in before:
        _answer(used, source, target)
    answers = [_answer(validator, from_status, to_status) for validator in (used, used, fresh)]
    assert answers == [to_status in VALID_TRANSITIONS[from_status]] * 3


def _answer(validator: StateMachineValidator, source: JobStatus, target: JobStatus) -> bool:
    remembered = len(validator.history)
    try:
        transition = validator.validate_transition("a", source, target)
    except InvalidStateTransitionError:
        assert len(validator.history) == remembered
        return False
    assert (transition.from_status, transition.to_status) == (source, target)
    assert transition.is_valid()
    assert validator.history[-1] is transition
    return True

"""Answers of exercises: equal forms of one answer, wrong answers, open answers, and errors."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest

import floatsim as fs
from floatsim.testing import answer_digest, check_answers

pytestmark = pytest.mark.versions


@pytest.mark.parametrize("forms", [
    (4096, 4096.0, np.float32(4096), np.int64(4096), Fraction(4096), fs.array(4096.0, "fp16"), np.array(4096)),
    (0.1, 0.1000001, Fraction(1, 10), np.float64(0.1), fs.array(0.1, "fp16")), (True, np.True_),
    ("BF16", "bf16", " Bf 16 "), ([1, 2.5], (1, 2.5), np.array([1, 2.5]), fs.array([1, 2.5], "bf16")),
    (float("nan"), np.float32("nan")), (0, -0.0), ([], ()),
])  # fmt: skip
def test_forms_of_one_answer(forms):
    assert len({answer_digest(form) for form in forms}) == 1


def test_other_answers_differ():
    answers = [4096, 4095, 4096.5, 0.1, 0.101, -0.1, True, False, "true", "4096", [1, 2], [2, 1], [12], [[1], 2],
               float("inf"), float("-inf"), float("nan"), 0, [], ""]  # fmt: skip
    assert len({answer_digest(answer) for answer in answers}) == len(answers)


def test_report():
    digests = {1: answer_digest(3), 2: answer_digest("fp16"), 3: answer_digest([1, 2])}
    report = check_answers({1: 3, 2: "bf16", 3: ...}, digests)
    assert str(report) == "exercise 1: correct\nexercise 2: not correct\nexercise 3: no answer yet"
    assert (report.correct, report.passed) == (1, False)
    assert check_answers({3: None}, digests).results == {3: "no answer yet"}
    assert check_answers({1: 3.0, 2: "FP16", 3: (1, 2)}, digests).passed


def test_an_array_as_answer_is_not_compared_with_open_ones():
    assert check_answers({1: np.ones(2)}, {1: answer_digest([1, 1])}).passed


@pytest.mark.parametrize(("answer", "words"), [
    (print, "is a function: call it first"), ({1, 2}, "got a set"), (1j, "got a complex"), (object(), "got a object"),
])  # fmt: skip
def test_other_types_are_refused(answer, words):
    with pytest.raises(TypeError, match=words):
        answer_digest(answer)


def test_an_unknown_exercise_is_refused():
    with pytest.raises(ValueError, match=re.escape("answers has exercise 4; there are only 1, 2")):
        check_answers({4: 1}, {1: "", 2: ""})

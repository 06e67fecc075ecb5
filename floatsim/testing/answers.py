"""Check the answers of exercises against digests, which do not show the solutions."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["AnswerReport", "answer_digest", "check_answers"]

_HEX = 10  # digits of a digest: 40 bits, so that a wrong answer is accepted once in 10^12
_OPEN = (None, ...)


@dataclass(frozen=True)
class AnswerReport:
    """The results of exercises. `check_answers` returns it, and its text has one line for each exercise.

    Attributes
    ----------
    results : dict of int to str
        For each exercise "correct", "not correct" or "no answer yet".

    Examples
    --------
    >>> AnswerReport({1: "correct", 2: "no answer yet"}).correct
    1
    """

    results: dict[int, str]

    @property
    def correct(self) -> int:
        """The number of correct answers."""
        return sum(result == "correct" for result in self.results.values())

    @property
    def passed(self) -> bool:
        """Whether all answers that were given are correct. An exercise left out of `answers` does not count."""
        return self.correct == len(self.results)

    def __str__(self) -> str:
        return "\n".join(f"exercise {number}: {result}" for number, result in self.results.items())


def answer_digest(answer: Any) -> str:
    """Return the digest of an answer: ten hexadecimal digits.

    Whole numbers are exact: 4096 and 4096.0 are equal, 4096 and 4095 are not. Other numbers are rounded to three
    significant digits. Upper and lower case and spaces of a text are ignored. In lists, tuples and arrays each element
    counts, in order.

    Parameters
    ----------
    answer : bool, number, str, array, FloatArray, or list or tuple of these
        The answer.

    Returns
    -------
    str

    Raises
    ------
    TypeError
        For other types, such as a function or a set.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.testing.answer_digest(4096.0) == fs.testing.answer_digest(4096) != fs.testing.answer_digest(4095)
    True
    >>> fs.testing.answer_digest([0.12345, "FP16"]) == fs.testing.answer_digest((0.1234, "fp16 "))
    True
    """
    return hashlib.sha256(_normal_form(answer).encode()).hexdigest()[:_HEX]


def _normal_form(answer: Any) -> str:
    """Return the text whose digest is taken."""
    if isinstance(answer, bool | np.bool_):
        return str(bool(answer)).lower()
    if isinstance(answer, str):
        return repr("".join(answer.casefold().split()))
    if isinstance(answer, Sequence) or np.ndim(answer):
        return "[" + ",".join(map(_normal_form, answer)) + "]"
    if callable(answer):
        raise TypeError(f"answer must be a number, a text, or a list of them; {answer!r} is a function: call it first")
    try:
        number = float(np.asarray(answer).item() if hasattr(answer, "ndim") else answer)
    except (TypeError, ValueError):
        kind = type(answer).__name__
        raise TypeError(f"answer must be a number, a text, or a list of them, such as 4096; got a {kind}") from None
    if math.isfinite(number) and number == int(number):
        return str(int(number))
    return f"{number:.2e}"


def check_answers(answers: Mapping[int, Any], digests: Mapping[int, str]) -> AnswerReport:
    """Compare answers of exercises with the digests of the correct answers.

    Parameters
    ----------
    answers : mapping of int to answer
        For each exercise the answer, as `answer_digest` takes it. `...` and None are open. Exercises may be left out:
        only those given are checked.
    digests : mapping of int to str
        For each exercise the digest of the correct answer, as `answer_digest` returns it.

    Returns
    -------
    AnswerReport

    Raises
    ------
    ValueError
        For an exercise that does not exist.
    TypeError
        For an answer of another type.

    Examples
    --------
    >>> import floatsim as fs
    >>> digests = {1: "17b24a14f5", 2: fs.testing.answer_digest("bf16")}
    >>> print(fs.testing.check_answers({1: 0.5, 2: "BF16"}, digests))
    exercise 1: not correct
    exercise 2: correct
    """
    if unknown := [number for number in answers if number not in digests]:
        raise ValueError(f"answers has exercise {unknown[0]!r}; there are only {', '.join(map(str, digests))}")
    return AnswerReport({number: _result(answer, digests[number]) for number, answer in answers.items()})


def _result(answer: Any, digest: str) -> str:
    if any(answer is each for each in _OPEN):
        return "no answer yet"
    return "correct" if answer_digest(answer) == digest else "not correct"

"""The questions together, and the run of several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from studies.questions import gradients, networks, solvers, weights
from studies.questions.question import Answer, Question, hint

QUESTIONS: Mapping[str, Question] = MappingProxyType(
    weights.QUESTIONS | solvers.QUESTIONS | gradients.QUESTIONS | networks.QUESTIONS
)
"""The questions by their names."""


def _question(name: str) -> Question:
    key = str(name).strip().lower().replace("_", "-")
    if key not in QUESTIONS:
        raise ValueError(f"question {name!r} is not known; {hint(key, QUESTIONS)}")
    return QUESTIONS[key]


def answer_question(name: str, **options: Any) -> Answer:
    """Compute the answer to a question about low-precision training.

    Parameters
    ----------
    name : str
        A key of `QUESTIONS`, such as "depth".
    **options
        Options of the computation, such as `epochs`. `QUESTIONS[name].options` has the defaults.

    Returns
    -------
    Answer
        Numbers, a sentence, and `plot()`.

    Raises
    ------
    ValueError
        For an unknown name or option. The message has the nearest match.

    Examples
    --------
    >>> found = answer_question("depth", layers=16)
    >>> found.numbers["BF16: error after 1 layer"] < 2**-8 < found.numbers["BF16: error after 16"]
    True
    """
    return _question(name).answer(**options)


def answer_questions(
    names: Iterable[str] | None = None, *, progress: Callable[[list[str], str], Iterable[str]] | None = None
) -> list[Answer]:
    """Compute the answers to several questions. All of them take a few minutes.

    Parameters
    ----------
    names : iterable of str, optional
        Keys of `QUESTIONS`. Default: all.
    progress : function, optional
        It gets the names and a text, and yields the names: a progress bar.

    Returns
    -------
    list of Answer

    Raises
    ------
    ValueError
        For an unknown name. The message has the nearest match.

    Examples
    --------
    >>> [found.name for found in answer_questions(["depth"])]
    ['depth']
    """
    chosen = [_question(name).name for name in (QUESTIONS if names is None else names)]
    return [QUESTIONS[name].answer() for name in (chosen if progress is None else progress(chosen, "answering"))]

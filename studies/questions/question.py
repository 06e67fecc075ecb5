"""A question as data: its words, the computation that answers it, and the chart of the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from inspect import signature
from typing import Any, NamedTuple, TypeAlias

from floatsim import context


@dataclass(frozen=True)
class Chart:
    """The numbers of a picture.

    Attributes
    ----------
    series : mapping of str to (sequence, sequence of float)
        The x and y values of each line or group of bars, by its name. Texts as x values make a chart of bars. The name
        of a format gives its colour.
    x, y : str
        The labels of the axes.
    log_x, log_y : bool
        Whether an axis is logarithmic.
    """

    series: Mapping[str, tuple[Sequence[Any], Sequence[float]]]
    x: str
    y: str
    log_x: bool = False
    log_y: bool = False


class Found(NamedTuple):
    """What a computation found: a sentence, numbers by name, and a chart."""

    sentence: str
    numbers: dict[str, float]
    chart: Chart


Compute: TypeAlias = Callable[..., Found]
"""A computation: options to what was found."""


@dataclass(frozen=True)
class Question:
    """A question about low-precision training.

    Attributes
    ----------
    name : str
        The name, for the command.
    text : str
        The question.
    compute : function
        The computation. Its keywords are options, such as `epochs`.
    """

    name: str
    text: str
    compute: Compute = field(repr=False)

    @property
    def options(self) -> dict[str, Any]:
        """The options of the computation, with their defaults."""
        return {name: each.default for name, each in signature(self.compute).parameters.items()}

    def answer(self, **options: Any) -> Answer:
        """Return the answer. Keywords replace options; an unknown one is a ValueError."""
        for name in options:
            if name not in self.options:
                raise ValueError(f"question {self.name!r} has no option {name!r}; {hint(name, self.options)}")
        with context(rounding="ties_to_even", overflow="infinity", daz=False, ftz=False, tininess="after"):
            return Answer(self.name, self.text, *self.compute(**options))


@dataclass(frozen=True)
class Answer:
    """The answer to a question.

    Attributes
    ----------
    name, question : str
        The name and the text of the question.
    sentence : str
        The answer in words, with the main numbers.
    numbers : dict of str to float
        The computed numbers.
    chart : Chart
        The numbers of the picture.
    """

    name: str
    question: str
    sentence: str
    numbers: dict[str, float]
    chart: Chart = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data."""
        series = {name: {"x": list(x), "y": list(y)} for name, (x, y) in self.chart.series.items()}
        return {"name": self.name, "question": self.question, "answer": self.sentence, "numbers": self.numbers,
                "series": series}  # fmt: skip

    def plot(self, **keywords: Any) -> Any:
        """Draw the chart: `answer_chart(answer)`."""
        from studies.questions.chart import answer_chart

        return answer_chart(self, **keywords)

    def __str__(self) -> str:
        numbers = [f"    {name}: {value:.4g}" for name, value in self.numbers.items()]
        return "\n".join([f"{self.name}: {self.question}", f"  {self.sentence}", *numbers])


def asked(questions: dict[str, Question], name: str, text: str) -> Callable[[Compute], Compute]:
    """Return a decorator that adds a question to a table, with the function as its computation."""

    def add(compute: Compute) -> Compute:
        questions[name] = Question(name, text, compute)
        return compute

    return add


def hint(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message about an unknown name: the nearest name, or all of them."""
    names = list(known)
    near = get_close_matches(name, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}"

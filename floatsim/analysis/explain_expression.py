"""The explanation of a whole expression in a format: every rounding, how far its error reaches, and a stable form.

The results come from `floatsim.reference`. Beside them the expression is computed exactly: as intervals of fractions,
whose functions have 128 bits. The effect of each rounding on the result is its relative error times the condition
number of the result with respect to that step (N. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed.,
1.6 and 3.1).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from html import escape
from typing import TYPE_CHECKING, Any

from floatsim import reference
from floatsim._lazy import plot_function
from floatsim.analysis.explain import code_text, flag_names, value_of_code
from floatsim.analysis.expression_tree import CONSTANTS, Node, parse_named, rewrites_of, variables_of
from floatsim.arrays.array.conversion import exact_number, operand_codes
from floatsim.arrays.call.options import resolve
from floatsim.formats import FloatFormat, FormatLike, as_format
from floatsim.formats.rounding import (
    DIVIDE_BY_ZERO,
    OverflowLike,
    Rounding,
    RoundingAttributes,
    RoundingLike,
    TininessLike,
)
from floatsim.reference import functions, scalar

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["ExplainedExpression", "ExpressionStep", "explain", "expression_errors"]

_PRECISION = 512  # bits of the ends of an interval
_FUNCTION_ERROR = Fraction(1, 1 << 120)  # relative: functions of `reference` have 128 bits, their operands more
_CONSTANT_ERROR = Fraction(1, 1 << 590)  # of `CONSTANTS`
_CERTAIN = Fraction(1, 1 << 64)
"""The largest relative width of an interval whose middle counts as the exact value."""
_SCALAR = {"add": scalar.add, "subtract": scalar.subtract, "multiply": scalar.multiply, "divide": scalar.divide,
           "sqrt": scalar.sqrt, "fma": scalar.fma, "minimum": scalar.minimum, "maximum": scalar.maximum}  # fmt: skip
_LARGEST_EXPONENTS = {"e": 100_000, "p": 9_000}  # 10**100000 has 332,193 bits; `reference` limits 2**p to 10,000 bits
_EXPONENT = re.compile(r"0x[0-9a-f_.]*(p)([+-]?\d+)|[0-9_.]*(e)([+-]?\d+)", re.IGNORECASE)
_EXACT_OPERATIONS = ("negative", "absolute", "minimum", "maximum")


# -- exact values ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Range:
    """The exact value lies between two fractions."""

    low: Fraction
    high: Fraction

    @property
    def value(self) -> Fraction | None:
        """The middle; None if it is not certain to 64 bits."""
        if self.low == self.high:
            return self.low
        middle = (self.low + self.high) / 2
        return middle if self.high - self.low <= _CERTAIN * abs(middle) else None


def _trimmed(low: Fraction, high: Fraction) -> _Range:
    """Return a range with ends of at most 512 bits, rounded outward."""

    def cut(x: Fraction, up: bool) -> Fraction:
        if x.numerator.bit_length() + x.denominator.bit_length() <= 4 * _PRECISION:
            return x
        shift = x.denominator.bit_length() - x.numerator.bit_length() + _PRECISION
        scaled = x * Fraction(2) ** shift
        whole = math.ceil(scaled) if up else math.floor(scaled)
        return whole / Fraction(2) ** shift

    return _Range(cut(low, False), cut(high, True))


def _point(name: str, x: Fraction) -> _Range | None:
    """Return the value of a function of one fraction; None at a pole, and if there is no value."""
    number = reference.from_fraction(x)
    found: Any = functions.UNARY[name](number)
    if not isinstance(found, reference.Number) or found.kind is not reference.Kind.FINITE:
        return None
    if functions.is_out_of_range(found):
        return None
    value = found.fraction
    if not found.sticky and not number.sticky:
        return _Range(value, value)
    width = abs(value) * _FUNCTION_ERROR * (1 if not number.sticky else max(1, math.ceil(abs(_condition(name, x)))))
    return _Range(value - width, value + width)


def _function(name: str, x: _Range) -> _Range | None:
    ends = [_point(name, end) for end in {x.low, x.high}]
    kept = [end for end in ends if end is not None]
    if len(kept) < len(ends):
        return None
    low, high = min(end.low for end in kept), max(end.high for end in kept)
    if x.low < 0 < x.high and name in ("cosh", "reciprocal"):  # monotonic on each side of zero
        return None if name == "reciprocal" else _Range(Fraction(1), high)
    if name in ("sin", "cos"):  # not monotonic, but no slope is above 1
        low, high = low - (x.high - x.low), high + (x.high - x.low)
    return _Range(low, high)


def _root(x: _Range) -> _Range | None:
    if x.low < 0:
        return None

    def root(value: Fraction, up: bool) -> Fraction:
        top, below = math.isqrt(value.numerator), math.isqrt(value.denominator)
        if top * top == value.numerator and below * below == value.denominator:
            return Fraction(top, below)
        scaled = (value.numerator << 2 * _PRECISION) // value.denominator
        return Fraction(math.isqrt(scaled) + 2 * up, 1 << _PRECISION)

    shift = 2 * ((x.high.denominator.bit_length() - x.high.numerator.bit_length()) // 2) if x.high else 0
    scale = Fraction(2) ** shift  # a small number keeps its bits
    unit = Fraction(2) ** (shift // 2)
    return _Range(root(x.low * scale, False) / unit, root(x.high * scale, True) / unit)


def _products(a: _Range, b: _Range) -> list[Fraction]:
    return [x * y for x in (a.low, a.high) for y in (b.low, b.high)]


def _exact(node: Node, operands: list[_Range]) -> _Range | None:
    """Return the exact value of an operation on exact values."""
    name, a = node.name, operands[0]
    b = operands[1] if len(operands) > 1 else a
    found: _Range | None
    if name == "negative":
        found = _Range(-a.high, -a.low)
    elif name == "absolute":
        found = (
            a if a.low >= 0 else _Range(-a.high, -a.low) if a.high <= 0 else _Range(Fraction(0), max(-a.low, a.high))
        )
    elif name in ("minimum", "maximum"):
        pick = min if name == "minimum" else max
        found = _Range(pick(a.low, b.low), pick(a.high, b.high))
    elif name == "add":
        found = _Range(a.low + b.low, a.high + b.high)
    elif name == "subtract":
        found = _Range(a.low - b.high, a.high - b.low)
    elif name == "multiply":
        found = _Range(min(_products(a, b)), max(_products(a, b)))
    elif name == "fma":
        found = _Range(min(_products(a, b)) + operands[2].low, max(_products(a, b)) + operands[2].high)
    elif name == "divide":
        if b.low <= 0 <= b.high:
            return None
        quotients = [x / y for x in (a.low, a.high) for y in (b.low, b.high)]
        found = _Range(min(quotients), max(quotients))
    elif name == "sqrt":
        found = _root(a)
    elif name == "hypot":
        squares = [_exact(Node("multiply"), [x, x]) for x in (_exact(Node("absolute"), [y]) for y in (a, b)) if x]
        assert squares[0] is not None
        assert squares[1] is not None
        found = _root(_Range(squares[0].low + squares[1].low, squares[0].high + squares[1].high))
    elif name == "power":
        found = _power(a, b)
    else:
        found = _function(name, a)
    return None if found is None else _trimmed(found.low, found.high)


def _power(a: _Range, b: _Range) -> _Range | None:
    if b.low == b.high and b.low.denominator == 1 and abs(b.low) <= 64 and (a.low > 0 or a.low == a.high):
        if a.low == 0 and b.low < 0:
            return None
        ends = [a.low ** int(b.low), a.high ** int(b.low)]
        return _Range(min(ends), max(ends))
    if a.low <= 0:
        return None
    logarithm = _function("log", a)
    exponent = None if logarithm is None else _exact(Node("multiply"), [logarithm, b])
    return None if exponent is None or abs(exponent.high) > 20_000 else _function("exp", exponent)


_SLOPES: dict[str, Callable[[float, float], float]] = {
    "exp": lambda x, y: y, "exp2": lambda x, y: y * math.log(2), "exp10": lambda x, y: y * math.log(10),
    "expm1": lambda x, y: y + 1, "log": lambda x, y: 1 / x, "log2": lambda x, y: 1 / (x * math.log(2)),
    "log10": lambda x, y: 1 / (x * math.log(10)), "log1p": lambda x, y: 1 / (1 + x), "sin": lambda x, y: math.cos(x),
    "cos": lambda x, y: -math.sin(x), "tan": lambda x, y: 1 + y * y, "asin": lambda x, y: 1 / math.sqrt(1 - x * x),
    "acos": lambda x, y: -1 / math.sqrt(1 - x * x), "atan": lambda x, y: 1 / (1 + x * x),
    "sinh": lambda x, y: math.cosh(x), "cosh": lambda x, y: math.sinh(x), "tanh": lambda x, y: 1 - y * y,
    "sqrt": lambda x, y: 0.5 / y, "cbrt": lambda x, y: y / (3 * x), "rsqrt": lambda x, y: -y / (2 * x),
    "reciprocal": lambda x, y: -y * y, "erf": lambda x, y: 2 / math.sqrt(math.pi) * math.exp(-x * x),
    "sigmoid": lambda x, y: y * (1 - y), "softplus": lambda x, y: 1 / (1 + math.exp(-x)),
}  # fmt: skip


def _condition(name: str, x: Fraction) -> float:
    """Return |x f'(x) / f(x)| of a function of one number, or 1 where it has no finite value."""
    try:
        value = float(functions.UNARY[name](reference.from_fraction(x)).fraction)  # type: ignore[union-attr]
        return abs(float(x) * _SLOPES[name](float(x), value) / value)
    except (ArithmeticError, ValueError, AttributeError):
        return 1.0


def _conditions(node: Node, operands: list[Fraction], result: Fraction) -> list[float]:
    """Return the condition number of an operation with respect to each operand, with its sign.

    A relative error e of the operand changes the result by the relative error e times this number.
    """
    name, y = node.name, result
    if not operands:
        return []
    if not y:
        return [math.inf if x else 0.0 for x in operands]
    if name in ("add", "subtract", "fma"):
        terms = [operands[0] * operands[1], operands[2]] if name == "fma" else list(operands)
        if name == "subtract":
            terms[1] = -terms[1]
        shares = [_ratio(term, y) for term in terms]
        return [shares[0], shares[0], shares[1]] if name == "fma" else shares
    if name in ("multiply", "negative", "absolute"):
        return [1.0] * len(operands)
    if name == "divide":
        return [1.0, -1.0]
    if name in ("minimum", "maximum"):
        return [float(x == y) for x in operands]
    if name == "hypot":
        return [_ratio(x * x, y * y) for x in operands]
    if name == "power":
        base, exponent = operands
        return [_ratio(exponent, Fraction(1)), _ratio(exponent, Fraction(1)) * math.log(base) if base > 0 else 0.0]
    try:
        x = operands[0]
        return [_ratio(x, y) * _SLOPES[name](float(x), float(y))]
    except (ArithmeticError, ValueError):
        return [math.inf]


def _ratio(x: Fraction, y: Fraction) -> float:
    try:
        return float(x / y)
    except OverflowError:
        return math.inf


# -- the data --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExpressionStep:
    """One operation of an expression, or the rounding of a variable or number to the format.

    Attributes
    ----------
    name : str
        The name that a statement gives; "r1", "r2" ... for other operations; the variable's name or the number.
    operation : str
        The operation on names of earlier steps, such as "r1 - a".
    code : int
        The code of the rounded result.
    value : float
        The rounded result.
    exact : Fraction or None
        The exact value of this part of the expression, without any rounding. None if it has none, if it is not certain
        to 64 bits, or if it is so far beyond the range of all formats that it is not computed, as for exp(100000).
    rounding_error : float
        The relative error of this step's own rounding.
    error : float
        The relative error of the rounded result, with the errors of its operands.
    amplification : float
        The largest factor by which this operation multiplies the relative error of an operand.
    reach : float
        The factor by which a relative error of this step reaches the result of the expression.
    flags : int
        The IEEE exceptions of the step, as a bit mask.
    """

    name: str
    operation: str
    code: int
    value: float
    exact: Fraction | None
    rounding_error: float
    error: float
    amplification: float
    reach: float
    flags: int


@dataclass(frozen=True)
class ExplainedExpression:
    """Every rounding of an expression. Prints as a table; the fields are for programs.

    Attributes
    ----------
    expression : str
        The expression.
    format : FloatFormat
        The format of all operations.
    steps : tuple of ExpressionStep
        The roundings of variables and numbers that the format does not contain, and the operations, in order.
    code : int
        The code of the result.
    value : float
        The result.
    exact : Fraction or None
        The exact value for the variables as they were given.
    error : float
        The relative error of the result.
    ulps : float
        The error of the result in units in the last place of the exact value.
    stable : tuple of ExplainedExpression
        The known stable forms, explained for the same variables.
    avoids : str
        Of a stable form: what it avoids, and its source.

    Examples
    --------
    >>> import floatsim as fs
    >>> told = fs.explain("x*x - y*y", "bf16", x=1.0078125, y=1)
    >>> told.value, round(told.error, 3), told.stable[0].expression, round(told.stable[0].error, 3)
    (0.015625, -0.004, '(x - y) * (x + y)', -0.004)
    """

    expression: str
    format: FloatFormat
    steps: tuple[ExpressionStep, ...]
    code: int
    value: float
    exact: Fraction | None
    error: float
    ulps: float
    stable: tuple[ExplainedExpression, ...] = ()
    avoids: str = ""

    def __str__(self) -> str:
        lines = [f"{self.expression} in {self.format.name}", *self._table(), self.summary]
        for each in self.stable:
            lines += ["", f"stable form, avoids {each.avoids}:", str(each)]
        return "\n".join(lines)

    __repr__ = __str__

    @property
    def summary(self) -> str:
        """The result, the exact value and the error, in one line."""
        result = f"result {self.value:.9g}, {code_text(self.code, self.format)}"
        if self.exact is None:
            return f"{result}; there is no exact value to compare with"
        return f"{result}; exact {_shown(self.exact)}; relative error {_percent(self.error)}, {_number(self.ulps)} ulp"

    def _rows(self) -> list[tuple[str, ...]]:
        heads = ("step", "operation", "rounded", "exact", "own error", "total error", "amplifies", "reaches result")
        rows: list[tuple[str, ...]] = [heads]
        for x in self.steps:
            events = [name for name in _flags(x.flags) if name != "inexact"]
            rows.append((
                x.name, x.operation + "".join(f" [{name}]" for name in events), f"{x.value:.7g}",
                "" if x.exact is None else _shown(x.exact), _percent(x.rounding_error), _percent(x.error),
                f"x {_number(x.amplification)}" if x.amplification else "", f"x {_number(x.reach)}",
            ))  # fmt: skip
        return rows

    def _table(self) -> list[str]:
        rows = self._rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return [
            "  "
            + "  ".join(
                cell.ljust(width) if i < 2 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]

    def _repr_html_(self) -> str:
        rows = self._rows()
        head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows[1:])
        title = f"<b>{escape(self.expression)}</b> in {self.format.name}"
        text = f"<p>{title}</p><table><tr>{head}</tr>{body}</table><p>{escape(self.summary)}</p>"
        for each in self.stable:
            text += f"<p>stable form, avoids {escape(each.avoids)}:</p>{each._repr_html_()}"
        return f"<div>{text}</div>"

    def plot(self, variable: str, low: float, high: float, ax: Axes | None = None) -> Axes:
        """Draw the errors in ulps over an interval of one variable, as `fs.plot.expression_error` does.

        The other variables keep the rounded values of this explanation.

        Parameters
        ----------
        variable : str
            The name of the variable.
        low, high : float
            The interval.
        ax : Axes, optional
            The axes to draw on. Default: a new figure.

        Returns
        -------
        Axes
        """
        values = {x.name: x.value for x in self.steps if x.operation == "variable" and x.name != variable}
        draw = plot_function("expressions", "expression_error")
        drawn: Axes = draw(self.expression, self.format, variable, low, high, ax=ax, **values)
        return drawn


def _flags(flags: int) -> list[str]:
    return flag_names(flags) + ["divide_by_zero"] * bool(flags & DIVIDE_BY_ZERO)


def _shown(x: Fraction) -> str:
    """Return an exact number to 7 digits."""
    try:
        return f"{float(x):.7g}"
    except OverflowError:
        return f"about 2^{x.numerator.bit_length() - x.denominator.bit_length()}"


def _percent(x: float) -> str:
    if x == 0:
        return "0"
    if not math.isfinite(x):
        return str(x)
    return f"{100 * x:+.3g}%" if abs(x) < 100 else f"x {x:.3g}"


def _number(x: float) -> str:
    return f"{x:.3g}"


def _is_too_long(text: str) -> bool:
    """Return whether the exponent of a number is so large that its exact value is not computed."""
    found = _EXPONENT.fullmatch(text.strip().lstrip("+-"))
    if found is None:
        return False
    kind, exponent = (part for part in found.groups() if part is not None)
    return abs(float(exponent)) > _LARGEST_EXPONENTS[kind.lower()]


# -- the explanation ---------------------------------------------------------------------------------------------------


class _Evaluation:
    """The exact and the rounded values of all parts of an expression."""

    def __init__(self, node: Node, fmt: FloatFormat, attributes: RoundingAttributes, values: Mapping[str, Any]) -> None:
        self.node, self.format, self.attributes, self.values = node, fmt, attributes, values
        self.order = list(node.nodes())
        self.codes: dict[Node, int] = {}
        self.flags: dict[Node, int] = {}
        self.exact: dict[Node, _Range | None] = {}
        for each in self.order:
            if each.operands:
                self.operation(each)
            else:
                self.leaf(each)

    def leaf(self, node: Node) -> None:
        given = self.values[node.text] if node.name == "variable" else CONSTANTS.get(node.text, node.text)
        argument = node.text if node.name == "variable" else "number"
        if isinstance(given, int | float | str) or hasattr(given, "as_integer_ratio"):
            number = exact_number(given, argument)
        else:
            code = int(operand_codes(given, self.format, argument).item())
            number = reference.decode(code, self.format)
        code, events = scalar.convert(number, self.format, self.attributes)
        self.codes[node], self.flags[node] = code, events & 31
        self.exact[node] = None
        if isinstance(given, str | Decimal) and _is_too_long(str(given)):
            return
        if number.kind is reference.Kind.FINITE:
            exact = Fraction(given) if number.sticky else number.fraction  # sticky: more bits than a Number has
            self.exact[node] = _Range(exact, exact + (_CONSTANT_ERROR if node.text in CONSTANTS else 0))

    def operation(self, node: Node) -> None:
        operands = [self.codes[x] for x in node.operands]
        self.codes[node], events = self.rounded(node.name, operands)
        self.flags[node] = events & 31
        exact = [self.exact[x] for x in node.operands]
        known = [x for x in exact if x is not None]
        self.exact[node] = _exact(node, known) if len(known) == len(exact) else None

    def rounded(self, name: str, codes: list[int]) -> tuple[int, int]:
        fmt = self.format
        numbers = [reference.decode(code, fmt, self.attributes.daz) for code in codes]
        if name in ("negative", "absolute"):
            x = numbers[0]
            if x.is_nan:
                return codes[0], 0
            if not fmt.has_signed_zero and x.is_zero:
                return codes[0], 0
            return (codes[0] ^ fmt.sign_mask if name == "negative" or x.sign else codes[0]), 0
        if name in _SCALAR:
            operation: Any = _SCALAR[name]
            code, events = operation(*numbers, fmt, self.attributes)
            return code, events
        return functions.apply(name, tuple(numbers), fmt, self.attributes)

    def fraction(self, node: Node) -> Fraction | None:
        """Return the exact value of a part."""
        found = self.exact[node]
        return None if found is None else found.value

    def value(self, node: Node) -> float:
        return float(value_of_code(self.codes[node], self.format))

    def relative(self, value: float, exact: Fraction | None) -> float:
        if exact is None:
            return math.nan
        if not math.isfinite(value):
            return math.inf
        difference = Fraction(value) - exact
        return (math.inf if difference else 0.0) if not exact else _ratio(difference, exact)

    def own_error(self, node: Node) -> float:
        """Return the relative error of the rounding of one operation on its rounded operands."""
        if not node.operands:
            return self.relative(self.value(node), self.fraction(node))
        values = [self.value(x) for x in node.operands]
        if not all(map(math.isfinite, values)):
            return 0.0
        found = _exact(node, [_Range(Fraction(x), Fraction(x)) for x in values])
        return 0.0 if found is None else self.relative(self.value(node), found.value)

    def conditions(self, node: Node) -> list[float]:
        result, operands = self.fraction(node), [self.fraction(x) for x in node.operands]
        known = [x for x in operands if x is not None]
        if result is None or len(known) < len(operands):
            return [math.nan] * len(operands)
        return _conditions(node, known, result)

    def explained(self, parts: Mapping[Node, str], avoids: str = "") -> ExplainedExpression:
        conditions = {node: self.conditions(node) for node in self.order}
        reach = dict.fromkeys(self.order, 0.0)
        reach[self.node] = 1.0
        for node in reversed(self.order):
            for operand, factor in zip(node.operands, conditions[node], strict=True):
                if reach[node]:
                    reach[operand] += reach[node] * factor
        names: dict[Node, str] = {}
        steps = []
        for node in self.order:
            names[node] = node.text if not node.operands else ""
            exact, value = self.fraction(node), self.value(node)
            if node.operands:
                names[node] = parts.get(node) or f"r{sum(bool(x.operands) for x in names)}"
                operation = str(Node(node.name, tuple(Node("variable", text=names[x]) for x in node.operands)))
            else:
                operation = node.name
                if node.name == "number" and self.relative(value, exact) == 0:
                    continue
            amplifies = max((abs(x) for x in conditions[node]), default=0.0)
            steps.append(ExpressionStep(
                names[node], operation, self.codes[node], value, exact, self.own_error(node),
                self.relative(value, exact), amplifies, abs(reach[node]), self.flags[node],
            ))  # fmt: skip
        exact, value = self.fraction(self.node), self.value(self.node)
        return ExplainedExpression(
            str(self.node), self.format, tuple(steps), self.codes[self.node], value, exact,
            self.relative(value, exact), _ulps(value, exact, self.format), (), avoids,
        )  # fmt: skip


def _ulps(value: float, exact: Fraction | None, fmt: FloatFormat) -> float:
    """Return the error in units in the last place of the exact value: 2**(e - p + 1), and at least the smallest one."""
    if exact is None:
        return math.nan
    if not math.isfinite(value):
        return math.inf
    magnitude = abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length() if magnitude else fmt.emin
    if magnitude and magnitude < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, fmt.emin) - fmt.trailing_bits)
    return _ratio(Fraction(value) - exact, unit)


def _attributes(rounding: Any, overflow: Any, tininess: Any, daz: Any, ftz: Any) -> RoundingAttributes:
    options: Any = {"rounding": rounding, "overflow": overflow, "tininess": tininess, "daz": daz, "ftz": ftz}
    attributes = resolve(options | {"seed": 0}).attributes
    if attributes.rounding is Rounding.STOCHASTIC:
        raise ValueError("rounding: the steps of an expression have no random bits; name another rounding mode")
    return attributes


def _read(
    expression: str, fmt: FloatFormat, values: Mapping[str, Any], without: str = ""
) -> tuple[Node, dict[Node, str]]:
    if fmt.is_scale or not fmt.signed:
        raise ValueError(f"format={fmt.name}: the operations of an expression need a format with a sign")
    node, parts = parse_named(expression)
    names = variables_of(node)
    extra = [name for name in values if name not in names]
    if extra:
        raise ValueError(
            f"{extra[0]!r} is no variable of the expression; its variables are {', '.join(names) or 'none'}"
        )
    missing = [name for name in names if name not in values and name != without]
    if missing:
        raise ValueError(f"expression: {missing[0]!r} has no value; write fs.explain(..., {missing[0]}=1.5)")
    return node, parts


def explain(
    expression: str, format: FormatLike, *, rounding: RoundingLike | None = None, overflow: OverflowLike | None = None,
    tininess: TininessLike | None = None, daz: bool | None = None, ftz: bool | None = None, **values: Any,
) -> ExplainedExpression:  # fmt: skip
    """Explain a whole expression in a format: every rounding, how far its error reaches, and the stable form.

    Parameters
    ----------
    expression : str
        Numbers, names, `+ - * / **`, parentheses, and functions: `sqrt`, `exp`, `log1p`, `hypot`, `fma` ...
        (`floatsim.analysis.expression_tree.FUNCTION_NAMES`). `x**2` is one product. Statements `s = (a + b + c) / 2`
        may stand before it, separated by semicolons or lines. Or an FPCore of arithmetic, functions, constants, `let`
        and `let*`.
    format : format
        The format of all operations. Variables and numbers are rounded to it first.
    rounding, overflow, tininess, daz, ftz : optional
        The rounding options, with the meanings that they have for `fs.add`.
    **values : float, int, str, Fraction or FloatArray
        The value of each variable. A text such as "0.1" or "1/3" is taken exactly.

    Returns
    -------
    ExplainedExpression
        Its steps have the rounded and the exact value, the error of the own rounding, the error with the errors of the
        operands, the factor by which the operation amplifies them, and the factor by which the step's error reaches the
        result. `stable` has the known stable forms (`floatsim.analysis.expression_tree.REWRITES`).

    Raises
    ------
    ValueError
        If the expression is outside the grammar (the message has the place), a variable has no value, or the rounding
        is stochastic.
    TypeError
        If the expression is no text, or a value is no number.

    Examples
    --------
    Heron's formula for the area of a narrow triangle, in BF16:

    >>> import floatsim as fs
    >>> told = fs.explain("s = (a + b + c) / 2; sqrt(s*(s - a)*(s - b)*(s - c))", "bf16", a=9, b=4.53125, c=4.5)
    >>> print(told.summary)
    result 0, 0x0000; exact 1.688954; relative error -100%, -216 ulp
    >>> print(told.stable[0].summary)
    result 1.6875, 0x3FD8; exact 1.688954; relative error -0.0861%, -0.186 ulp
    >>> told.steps[6].operation, told.steps[6].value, told.steps[6].exact, round(told.steps[6].amplification)
    ('s - a', 0.0, Fraction(1, 64), 577)
    """
    format = as_format(format)
    attributes = _attributes(rounding, overflow, tininess, daz, ftz)
    node, parts = _read(expression, format, values)
    evaluation = _Evaluation(node, format, attributes, values)
    told = evaluation.explained(parts)
    stable = []
    for row, form in rewrites_of(node, evaluation.fraction):
        avoids = f"{row.name} ({row.source})"
        stable.append(_Evaluation(form, format, attributes, values).explained({}, avoids))
    return ExplainedExpression(**{**vars(told), "stable": tuple(stable)})


def expression_errors(
    expression: str, format: FormatLike, variable: str, points: Any, **values: Any
) -> dict[str, list[float]]:
    """Return the errors of an expression and of its stable forms in ulps, for values of one variable.

    Parameters
    ----------
    expression : str
        As for `fs.explain`.
    format : format
        The format of all operations.
    variable : str
        The name of the variable.
    points : iterable of float
        Its values.
    **values
        The values of the other variables.

    Returns
    -------
    dict of str to list of float
        The errors of each form: NaN where there is no exact value, infinite where the result is not finite.

    Examples
    --------
    >>> import floatsim as fs
    >>> found = expression_errors("log(1 + x)", "bf16", "x", [0.001, 0.5])
    >>> {name: [round(x, 1) for x in errors] for name, errors in found.items()}
    {'log(1 + x)': [-131.0, 0.4], 'log1p(x)': [-0.0, 0.4]}
    """
    format = as_format(format)
    node, _ = _read(expression, format, values, without=variable)
    if variable not in variables_of(node):
        names = ", ".join(variables_of(node)) or "none"
        raise ValueError(f"variable={variable!r} is no variable of the expression; its variables are {names}")
    attributes = _attributes(None, None, None, None, None)
    found: dict[str, list[float]] = {str(node): []}
    for count, x in enumerate(points):
        every = {**values, variable: float(x)}
        evaluation = _Evaluation(node, format, attributes, every)
        forms = {str(node): evaluation}
        for _, form in rewrites_of(node, evaluation.fraction):
            forms[str(form)] = _Evaluation(form, format, attributes, every)
        for name, each in forms.items():
            line = found.setdefault(name, [math.nan] * count)
            line.append(_ulps(each.value(each.node), each.fraction(each.node), format))
        for each_line in found.values():
            each_line.extend([math.nan] * (count + 1 - len(each_line)))
    return found

"""Arithmetic expressions as trees: read from Python's notation or from FPCore, and rewritten to stable forms.

Nothing is executed. Python's own parser reads the text, and every node outside the grammar is an error with its place.
Source of FPCore: N. Damouche et al., "Toward a Standard Benchmark Format and Suite for Floating-Point Analysis" (2017),
and the FPCore 2.0 standard (fpbench.org).
"""

from __future__ import annotations

import ast
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from typing import Any

from floatsim.formats._validation import name_hint

__all__ = [
    "CONSTANTS",
    "FUNCTION_NAMES",
    "REWRITES",
    "Node",
    "Rewrite",
    "fpcore_named",
    "parse_expression",
    "parse_named",
    "rewrites_of",
    "variables_of",
]

_OPERANDS = {
    "add": 2, "subtract": 2, "multiply": 2, "divide": 2, "negative": 1, "absolute": 1, "sqrt": 1, "fma": 3,
    "minimum": 2, "maximum": 2, "power": 2, "hypot": 2,
    **dict.fromkeys((
        "exp", "exp2", "exp10", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
        "sinh", "cosh", "tanh", "cbrt", "rsqrt", "reciprocal", "erf", "sigmoid", "softplus",
    ), 1),
}  # fmt: skip
"""The operations of a node, with the number of their operands."""
_ALIASES = {"abs": "absolute", "fabs": "absolute", "min": "minimum", "max": "maximum", "fmin": "minimum",
            "fmax": "maximum", "pow": "power", "ln": "log", "neg": "negative"}  # fmt: skip
FUNCTION_NAMES = tuple(sorted({*_OPERANDS, *_ALIASES} - {"negative", "neg"}))
"""The functions that an expression may call."""
_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide",
}  # fmt: skip
_SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}
_STRENGTH = {"add": 1, "subtract": 1, "multiply": 2, "divide": 2, "negative": 3}
_MOST_PARTS, _MOST_CHARACTERS, _DEEPEST = 2000, 10_000, 100
_LISTED = 40  # names in an error


def _too_deep(what: str) -> str:
    more = "; in a + b + c, each term is nested one deeper: write (a + b) + (c + d)" if what == "operations" else ""
    return f"more than {_DEEPEST} {what} are nested{more}"


@dataclass(frozen=True)
class Node:
    """An operation on nodes, a variable, or a number.

    Attributes
    ----------
    name : str
        The operation; "variable" or "number".
    operands : tuple of Node
        Its operands.
    text : str
        The variable's name, or the number as it was written.

    Examples
    --------
    >>> str(parse_expression("x*x - y*y"))
    'x * x - y * y'
    """

    name: str
    operands: tuple[Node, ...] = ()
    text: str = ""

    @property
    def size(self) -> int:
        """The number of parts, each counted as often as it is written."""
        return self._size  # type: ignore[attr-defined, no-any-return]

    def __post_init__(self) -> None:
        object.__setattr__(self, "_size", 1 + sum(operand.size for operand in self.operands))
        if self.size > _MOST_PARTS:
            raise ValueError(f"expression has more than {_MOST_PARTS} parts after names are replaced by their values")

    def __str__(self) -> str:
        if self.name in ("variable", "number"):
            return self.text
        if self.name == "negative":
            return f"-{self.operands[0].within(3)}"
        if self.name in _SIGNS:
            strength = _STRENGTH[self.name]
            left, right = self.operands
            return f"{left.within(strength)} {_SIGNS[self.name]} {right.within(strength + 1)}"
        return f"{self.name}({', '.join(map(str, self.operands))})"

    def within(self, strength: int) -> str:
        """Return the text, in parentheses if its operator binds less than `strength`."""
        return f"({self})" if _STRENGTH.get(self.name, 9) < strength else str(self)

    def nodes(self) -> Iterator[Node]:
        """Yield all different nodes below this one and the node itself, operands first."""
        done: set[Node] = set()

        def walk(node: Node) -> Iterator[Node]:
            if node not in done:
                for operand in node.operands:
                    yield from walk(operand)
                done.add(node)
                yield node

        yield from walk(self)


def variables_of(node: Node) -> list[str]:
    """Return the names of the variables, in the order of their first use.

    >>> variables_of(parse_expression("a * b - a / c"))
    ['a', 'b', 'c']
    """
    return list(dict.fromkeys(x.text for x in node.nodes() if x.name == "variable"))


def parse_expression(text: str) -> Node:
    """Read an expression in Python's notation, or an FPCore.

    Parameters
    ----------
    text : str
        Numbers, variables, `+ - * / **`, parentheses, and the functions of `FUNCTION_NAMES`. Statements
        `name = expression` before the expression, separated by semicolons or line ends. Or `(FPCore (x) body)`.

    Returns
    -------
    Node

    Raises
    ------
    ValueError
        If the text is outside the grammar. The message has the place: line and column.

    Examples
    --------
    >>> parse_expression("s = (a + b) / 2; s**2").operands[0] == parse_expression("(a + b) / 2")
    True
    >>> str(parse_expression("(FPCore (x) (let ((y (+ x 1))) (sqrt y)))"))
    'sqrt(x + 1)'
    """
    return parse_named(text)[0]


def parse_named(text: str) -> tuple[Node, dict[Node, str]]:
    """Return an expression, and the names that its statements or `let` give to parts.

    >>> node, names = parse_named("s = (a + b) / 2; s * s")
    >>> [(str(part), name) for part, name in names.items()]
    [('(a + b) / 2', 's')]
    """
    if not isinstance(text, str):
        raise TypeError(f"expression must be a text such as 'x*x - y*y', not {type(text).__name__}")
    if len(text.strip()) > _MOST_CHARACTERS:
        raise ValueError(f"expression has {len(text.strip())} characters; at most {_MOST_CHARACTERS} are read")
    reader = _Core(text) if _CORE.match(text) else _Python(text)
    node = reader.read()
    return node, {part: name for part, name in reader.named.items() if part.operands}


def _call(name: str, operands: list[Node], fail: Callable[[str], Exception]) -> Node:
    known = _ALIASES.get(name, name)
    if known not in _OPERANDS:
        raise fail(f"unknown function {name!r}; {name_hint(name, FUNCTION_NAMES)}")
    if len(operands) != _OPERANDS[known]:
        raise fail(f"{name} takes {_OPERANDS[known]} operands, not {len(operands)}")
    return Node(known, tuple(operands))


# -- Python's notation -------------------------------------------------------------------------------------------------


class _Python:
    def __init__(self, text: str) -> None:
        self.text = text.strip()
        self.names: dict[str, Node] = {}
        self.named: dict[Node, str] = {}

    def fail(self, message: str, node: Any) -> ValueError:
        line, column = node.lineno, node.col_offset + 1
        where = f"column {column}" if "\n" not in self.text else f"line {line}, column {column}"
        return ValueError(f"expression, {where}: {message}")

    def read(self) -> Node:
        try:
            statements = ast.parse(self.text).body
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            where = f", column {error.offset}" if isinstance(error, SyntaxError) and error.offset else ""
            reason = "it cannot be read"
            if isinstance(error, SyntaxError):
                reason = error.msg
            elif not isinstance(error, ValueError):
                reason = _too_deep("operations")
            raise ValueError(f"expression{where}: {reason}: {self.text[:60]!r}") from None
        if not statements:
            raise ValueError("expression is empty; write one such as 'x*x - y*y'")
        for statement in statements[:-1]:
            target = statement.targets[0] if isinstance(statement, ast.Assign) else None
            if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or not isinstance(target, ast.Name):
                raise self.fail("only 'name = expression' may stand before the expression", statement)
            self.names[target.id] = value = self.node(statement.value)
            self.named.setdefault(value, target.id)
        last = statements[-1]
        if not isinstance(last, ast.Expr):
            raise self.fail("the last statement must be an expression", last)
        return self.node(last.value)

    def node(self, node: ast.expr, depth: int = 0) -> Node:
        if depth > _DEEPEST:
            raise self.fail(_too_deep("operations"), node)
        below = depth + 1
        if isinstance(node, ast.Name):
            return self.names.get(node.id) or Node("variable", text=node.id)
        if isinstance(node, ast.Constant):
            if isinstance(node.value, bool | complex) or not isinstance(node.value, int | float):
                raise self.fail(f"{node.value!r} is not a number", node)
            text = (ast.get_source_segment(self.text, node) or repr(node.value)).replace("_", "")
            if text[:2].lower() in ("0x", "0b", "0o"):  # Python writes no decimal number of 4,300 digits
                text = str(node.value) if node.value < 1 << 64 else f"{node.value:#x}p0"
            return Node("number", text=text)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            operand = self.node(node.operand, below)
            return operand if isinstance(node.op, ast.UAdd) else Node("negative", (operand,))
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            return Node(_BINARY[type(node.op)], (self.node(node.left, below), self.node(node.right, below)))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            base, exponent = self.node(node.left, below), self.node(node.right, below)
            if exponent == Node("number", text="2"):
                return Node("multiply", (base, base))
            return Node("power", (base, exponent))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            operands = [self.node(operand, below) for operand in node.args]
            called = node
            return _call(node.func.id, operands, lambda message: self.fail(message, called))
        shown = ast.get_source_segment(self.text, node) or type(node).__name__
        raise self.fail(f"{shown[:40]!r} is not in the grammar: numbers, names, + - * / ** and functions", node)


# -- FPCore ------------------------------------------------------------------------------------------------------------

_CORE = re.compile(r"(?:\s|;[^\n]*(?:\n|$))*[(\[]\s*FPCore\b")  # comments may stand before it
_TOKEN = re.compile(r'\s+|;[^\n]*|(?P<token>[()\[\]]|"[^"]*"|[^\s()\[\]";]+)')
_CORE_OPERATORS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}
_CONSTANT_BITS = 600


def _constants() -> dict[str, Fraction]:
    """Return the constants of FPCore 2.0, rounded down to multiples of 2**-600."""
    context = Context(prec=220, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])

    def cut(x: Decimal | Fraction) -> Fraction:
        return Fraction(math.floor(Fraction(x) * (1 << _CONSTANT_BITS)), 1 << _CONSTANT_BITS)

    def arctangent(inverse: int) -> Fraction:  # of 1 / inverse
        terms = 1 + 700 // (2 * inverse.bit_length() - 2)
        return sum((Fraction((-1) ** n, (2 * n + 1) * inverse ** (2 * n + 1)) for n in range(terms)), Fraction(0))

    pi = Fraction(4 * (4 * arctangent(5) - arctangent(239)))  # Machin's formula
    two, ten, one = Decimal(2), Decimal(10), Decimal(1)
    e, ln2, ln10, root = context.exp(one), context.ln(two), context.ln(ten), context.sqrt(two)
    of_pi = context.divide(Decimal(pi.numerator), Decimal(pi.denominator))
    return {
        "PI": cut(pi), "PI_2": cut(pi / 2), "PI_4": cut(pi / 4), "M_1_PI": cut(1 / pi), "M_2_PI": cut(2 / pi),
        "M_2_SQRTPI": cut(context.divide(two, context.sqrt(of_pi))), "E": cut(e), "LN2": cut(ln2), "LN10": cut(ln10),
        "LOG2E": cut(context.divide(one, ln2)), "LOG10E": cut(context.divide(one, ln10)), "SQRT2": cut(root),
        "SQRT1_2": cut(context.divide(one, root)),
    }  # fmt: skip


CONSTANTS = _constants()
"""The constants that an FPCore may name. Each is at most 2**-590 below the exact number."""
_NUMBER = re.compile(
    r"[+-]?(0x([0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(p[+-]?\d+)?|(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|\d+/0*[1-9]\d*)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class _Token:
    text: str
    at: int


@dataclass(frozen=True)
class _FPCore:
    parts: list[Any]
    start: int
    end: int

    @property
    def names(self) -> list[str]:
        """The identifier and the property `:name`, where the FPCore has them."""
        found = [self.parts[1].text] if len(self.parts) > 1 and isinstance(self.parts[1], _Token) else []
        for word, value in itertools.pairwise(self.parts):
            if isinstance(word, _Token) and isinstance(value, _Token) and word.text == ":name":
                found.append(value.text.strip('"'))
        return found


class _Core:
    """A reader of FPCore: arithmetic, functions, constants, `let` and `let*`. The rest is refused with its place."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.named: dict[Node, str] = {}

    def fail(self, message: str, at: int) -> ValueError:
        line, column = self.text.count("\n", 0, at) + 1, at - (self.text.rfind("\n", 0, at) + 1) + 1
        return ValueError(f"FPCore, line {line}, column {column}: {message}")

    def read(self) -> Node:
        cores = self.cores()
        if len(cores) != 1:
            raise self.fail("one FPCore is read, not several", cores[1].start if len(cores) > 1 else 0)
        body = cores[0].parts
        head = body[0]
        assert isinstance(head, _Token)
        rest = body[1:]
        if rest and isinstance(rest[0], _Token):  # a name
            rest = rest[1:]
        if not rest or not isinstance(rest[0], list):
            raise self.fail("the list of arguments is missing: (FPCore (x y) body)", head.at)
        names = {}
        for argument in rest[0]:
            if not isinstance(argument, _Token):
                at = next((x.at for x in _tokens(argument)), head.at)
                raise self.fail("an argument must be a name; arrays and annotations are not supported", at)
            names[argument.text] = Node("variable", text=argument.text)
        rest = rest[1:]
        while len(rest) > 1 and isinstance(rest[0], _Token) and rest[0].text.startswith(":"):
            rest = rest[2:]
        if len(rest) != 1:
            raise self.fail(f"one body must follow the arguments and properties, not {len(rest)} parts", head.at)
        return self.node(rest[0], names)

    def cores(self) -> list[_FPCore]:
        """Return the FPCores of the text, each as nested lists of tokens."""
        stack: list[list[Any]] = [[]]
        opened: list[int] = []
        found: list[_FPCore] = []
        at = 0
        while at < len(self.text):
            match = _TOKEN.match(self.text, at)
            if match is None:
                raise self.fail(f"{self.text[at]!r} cannot be read", at)
            token = match["token"]
            if token in ("(", "["):
                stack.append([])
                opened.append(at)
                if len(stack) > _DEEPEST:
                    raise self.fail(_too_deep("lists"), at)
            elif token in (")", "]"):
                if not opened:
                    raise self.fail("this parenthesis closes nothing", at)
                start = opened.pop()
                parts = stack.pop()
                stack[-1].append(parts)
                if not opened:
                    if not parts or not isinstance(parts[0], _Token) or parts[0].text != "FPCore":
                        raise self.fail("only (FPCore ...) may stand here", start)
                    found.append(_FPCore(parts, start, match.end()))
            elif token:
                if not opened:
                    raise self.fail(f"only (FPCore ...) may stand here, not {token[:40]!r}", at)
                stack[-1].append(_Token(token, at))
            at = match.end()
        if opened:
            raise self.fail("this parenthesis is not closed", opened[-1])
        if not found:
            raise ValueError("there is no (FPCore (x y) body)")
        return found

    def node(self, part: Any, names: Mapping[str, Node]) -> Node:
        if isinstance(part, _Token):
            if part.text in names:
                return names[part.text]
            if part.text in CONSTANTS:
                return Node("number", text=part.text)
            if _NUMBER.fullmatch(part.text):
                whole = "x" in part.text.lower() and "p" not in part.text.lower()
                return Node("number", text=f"{part.text}p0" if whole else part.text)
            raise self.fail(f"{part.text!r} is neither an argument nor a number", part.at)
        if not part or not isinstance(part[0], _Token):
            at = next((x.at for x in _tokens(part)), 0)
            raise self.fail("a list must begin with an operator", at)
        operator, operands = part[0], part[1:]
        if operator.text in ("let", "let*"):
            return self.let(operator, operands, names)
        if operator.text == "-" and len(operands) == 1:
            return Node("negative", (self.node(operands[0], names),))
        name = _CORE_OPERATORS.get(operator.text, operator.text)
        known = _ALIASES.get(name, name)
        if known not in _OPERANDS:
            supported = "+ - * / let let* and functions"
            raise self.fail(f"{operator.text!r} is not supported; supported are {supported}", operator.at)
        read = [self.node(x, names) for x in operands]
        return _call(name, read, lambda message: self.fail(message, operator.at))

    def let(self, operator: _Token, operands: list[Any], names: Mapping[str, Node]) -> Node:
        if len(operands) != 2 or not isinstance(operands[0], list):
            raise self.fail(f"write ({operator.text} ((name value) ...) body)", operator.at)
        inner = dict(names)
        for pair in operands[0]:
            if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], _Token):
                raise self.fail(f"write ({operator.text} ((name value) ...) body)", operator.at)
            value = self.node(pair[1], inner if operator.text == "let*" else names)
            inner[pair[0].text] = value
            self.named.setdefault(value, pair[0].text)
        return self.node(operands[1], inner)


def _tokens(part: Any) -> Iterator[_Token]:
    if isinstance(part, _Token):
        yield part
    else:
        for each in part:
            yield from _tokens(each)


def fpcore_named(text: str, core: str | None = None) -> str:
    """Return one FPCore of a text with several ones. All other characters become spaces, so that it keeps its place.

    Parameters
    ----------
    text : str
        The text of a file of FPCores, with comments.
    core : str, optional
        The identifier of the FPCore, its property `:name`, or its number from 1. It may be left out for a text with
        one FPCore.

    Returns
    -------
    str
        The text for `parse_expression`.

    Raises
    ------
    ValueError
        If the text holds anything else, or has no FPCore of this name, or several ones and no name is given.

    Examples
    --------
    >>> text = '(FPCore double (x) (+ x x)) (FPCore (x) :name "half" (/ x 2))'
    >>> str(parse_expression(fpcore_named(text, "half"))), str(parse_expression(fpcore_named(text, "1")))
    ('x / 2', 'x + x')
    """
    cores = _Core(text).cores()
    chosen = [x for x in cores if core in x.names] or [x for n, x in enumerate(cores, 1) if core == str(n)]
    if core is None and len(cores) == 1:
        chosen = cores
    if len(chosen) != 1:
        names = [f"{n}{f' {x.names[-1]!r}' if x.names else ''}" for n, x in enumerate(cores, 1)]
        known = ", ".join(names[:_LISTED]) + (f" and {len(cores) - _LISTED} more" if len(cores) > _LISTED else "")
        which = "one must be chosen with core=" if core is None else f"core={core}: {len(chosen)} have this name"
        raise ValueError(f"{which}; the FPCores are {known}")
    start, end = chosen[0].start, chosen[0].end
    return re.sub(r"[^\n]", " ", text[:start]) + text[start:end]


# -- stable forms ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rewrite:
    """A known stable form of an expression.

    Attributes
    ----------
    name : str
        What the stable form avoids.
    pattern, stable : str
        The expressions. A name in the pattern stands for any expression.
    when : str
        The condition on the values: "a >= b >= c", "b > 0", or "" for all values.
    source : str
        Where the form comes from.
    """

    name: str
    pattern: str
    stable: str
    when: str = ""
    source: str = ""


_HIGHAM = "N. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed. (2002)"
_ROOT = "sqrt(b*b - 4*a*c)"
REWRITES = (
    Rewrite("cancellation of s - a in Heron's formula", "sqrt(s*(s - a)*(s - b)*(s - c))", "", "triangle",
            "W. Kahan, Miscalculating Area and Angles of a Needle-like Triangle (2014)"),
    Rewrite("cancellation of -b and the root", f"(-b + {_ROOT}) / (2*a)", f"2*c / (-b - {_ROOT})", "b > 0",
            f"{_HIGHAM}, 1.8"),
    Rewrite("cancellation of -b and the root", f"(-b - {_ROOT}) / (2*a)", f"2*c / (-b + {_ROOT})", "b < 0",
            f"{_HIGHAM}, 1.8"),
    Rewrite("1 + x rounds x away", "log(1 + x)", "log1p(x)", "", f"{_HIGHAM}, 1.14.1"),
    Rewrite("cancellation of exp(x) and 1", "exp(x) - 1", "expm1(x)", "", f"{_HIGHAM}, 1.14.1"),
    Rewrite("cancellation of 1 and cos(x)", "1 - cos(x)", "2*sin(x/2)*sin(x/2)", "", f"{_HIGHAM}, 1.7"),
    Rewrite("cancellation of two squares", "a*a - b*b", "(a - b)*(a + b)", "", f"{_HIGHAM}, 1.7"),
    Rewrite("cancellation of two roots", "sqrt(x + y) - sqrt(x)", "y / (sqrt(x + y) + sqrt(x))", "",
            f"{_HIGHAM}, problem 1.8"),
    Rewrite("cancellation of a root and 1", "sqrt(1 + x) - 1", "x / (sqrt(1 + x) + 1)", "",
            "(r - 1)*(r + 1) = r*r - 1"),
    Rewrite("cancellation of 1 and a root", "1 - sqrt(1 - x)", "x / (1 + sqrt(1 - x))", "",
            "(1 - r)*(1 + r) = 1 - r*r"),
    Rewrite("cancellation of two reciprocals", "1/x - 1/(x + y)", "y / (x*(x + y))", "", f"{_HIGHAM}, problem 1.8"),
    Rewrite("cancellation of a squared difference", "x*x - 2*x*y + y*y", "(x - y)*(x - y)", "", f"{_HIGHAM}, 1.7"),
    Rewrite("mean of squares minus squared mean", "(a*a + b*b)/2 - ((a + b)/2)*((a + b)/2)", "((a - b)/2)*((a - b)/2)",
            "", f"{_HIGHAM}, 1.9"),
    Rewrite("mean of squares minus squared mean",
            "(a*a + b*b + c*c)/3 - ((a + b + c)/3)*((a + b + c)/3)",
            "m = (a + b + c)/3; ((a - m)*(a - m) + (b - m)*(b - m) + (c - m)*(c - m))/3", "", f"{_HIGHAM}, 1.9"),
    Rewrite("overflow and underflow of squares", "sqrt(a*a + b*b)", "hypot(a, b)", "", "IEEE 754-2019, 9.2"),
    Rewrite("overflow of exp(x)", "log(1 + exp(x))", "softplus(x)", "", "fs.softplus"),
    Rewrite("overflow of exp(x)", "exp(x) / (1 + exp(x))", "sigmoid(x)", "", "fs.sigmoid"),
    Rewrite("cancellation of two exponentials", "(exp(x) - exp(-x)) / 2", "sinh(x)", "", "IEEE 754-2019, 9.2"),
    Rewrite("cancellation of two logarithms", "log(x) - log(y)", "log(x/y)", "", f"{_HIGHAM}, problem 1.8"),
)  # fmt: skip
"""Known stable forms. The tests compare both forms of each row in exact arithmetic."""

_KAHAN = "sqrt((a + (b + c))*(c - (a - b))*(c + (a - b))*(a + (b - c)))/4"
_CHAINS = ("add", "multiply")


def _factors(node: Node, name: str) -> list[Node]:
    """Return the operands of a chain of one operation."""
    if node.name != name:
        return [node]
    return [factor for operand in node.operands for factor in _factors(operand, name)]


def _matches(pattern: Node, node: Node, bound: dict[str, Node]) -> Iterator[dict[str, Node]]:
    """Yield what the names of a pattern stand for. Sums and products match in every order."""
    if pattern.name == "variable":
        if bound.get(pattern.text, node) == node:
            yield bound | {pattern.text: node}
        return
    if pattern.name == "number":
        if node.name == "number" and Fraction(pattern.text) == _rational(node.text):
            yield bound
        return
    if pattern.name != node.name:
        return
    if pattern.name in _CHAINS:
        wanted, given = _factors(pattern, pattern.name), _factors(node, node.name)
        if len(wanted) <= len(given):
            wanted.sort(key=lambda x: x.name == "variable")  # names match anything, so they come last
            yield from _in_any_order(pattern.name, wanted, given, bound)
        return
    yield from _in_order(pattern.operands, node.operands, bound)


def _in_order(patterns: tuple[Node, ...], nodes: tuple[Node, ...], bound: dict[str, Node]) -> Iterator[dict[str, Node]]:
    if not patterns:
        yield bound
        return
    for found in _matches(patterns[0], nodes[0], bound):
        yield from _in_order(patterns[1:], nodes[1:], found)


def _in_any_order(
    name: str, patterns: list[Node], nodes: list[Node], bound: dict[str, Node]
) -> Iterator[dict[str, Node]]:
    if not patterns:
        if not nodes:
            yield bound
        return
    if len(patterns) == 1 and patterns[0].name == "variable":  # a name stands for all operands that are left
        rest = functools.reduce(lambda x, y: Node(name, (x, y)), nodes)
        known = bound.get(patterns[0].text, rest)
        if sorted(map(str, _factors(known, name))) == sorted(map(str, _factors(rest, name))):
            yield bound | {patterns[0].text: known}
        return
    for i, node in enumerate(nodes):
        for found in _matches(patterns[0], node, bound):
            yield from _in_any_order(name, patterns[1:], nodes[:i] + nodes[i + 1 :], found)


def _rational(text: str) -> Fraction | None:
    try:
        return Fraction(text)
    except ValueError:
        return None


def _replaced(node: Node, old: Node, new: Node) -> Node:
    if node == old:
        return new
    return Node(node.name, tuple(_replaced(x, old, new) for x in node.operands), node.text)


def rewrites_of(node: Node, value: Callable[[Node], Fraction | None]) -> Iterator[tuple[Rewrite, Node]]:
    """Yield the stable forms of an expression: the row of `REWRITES`, and the whole expression with its stable form.

    Parameters
    ----------
    node : Node
        The expression.
    value : callable
        Returns the exact value of a part, or None. It decides the conditions of a rewrite.

    Examples
    --------
    >>> node = parse_expression("log(1 + x*x) / x")
    >>> [(row.name, str(stable)) for row, stable in rewrites_of(node, lambda part: None)]
    [('1 + x rounds x away', 'log1p(x * x) / x')]
    """
    for row in REWRITES:
        pattern = parse_expression(row.pattern)
        for part in node.nodes():
            found = next((x for x in _matches(pattern, part, {}) if _holds(row, x, value)), None)
            if found is not None:
                text, names = row.stable, found
                if row.when == "triangle":
                    sides = sorted((found[x] for x in "abc"), key=lambda x: value(x) or 0, reverse=True)
                    text, names = _KAHAN, dict(zip("abc", sides, strict=True))
                yield row, _replaced(node, part, _filled(parse_expression(text), names))
                break


def _filled(node: Node, names: Mapping[str, Node]) -> Node:
    if node.name == "variable":
        return names[node.text]
    return Node(node.name, tuple(_filled(x, names) for x in node.operands), node.text)


def _holds(row: Rewrite, names: Mapping[str, Node], value: Callable[[Node], Fraction | None]) -> bool:
    if row.when == "triangle":  # s must be half the sum of a, b and c
        half = names["s"]
        if half.name == "divide" and _rational(half.operands[1].text) == 2:
            total = half.operands[0]
        elif half.name == "multiply" and any(_rational(x.text) == Fraction(1, 2) for x in half.operands):
            total = next(x for x in half.operands if _rational(x.text) != Fraction(1, 2))
        else:
            return False
        return sorted(map(str, _factors(total, "add"))) == sorted(str(names[x]) for x in "abc")
    if row.when:
        name, sign, _ = row.when.split()
        found = value(names[name])
        return found is not None and (found > 0 if sign == ">" else found < 0)
    return True

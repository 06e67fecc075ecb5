"""The explanation of expressions: the grammar, the results, exact values by MPFR, condition numbers, stable forms."""

from __future__ import annotations

import math
import time
from decimal import Decimal
from fractions import Fraction

import gmpy2
import numpy as np
import pytest

import floatsim as fs
from floatsim.analysis.explain_expression import expression_errors
from floatsim.analysis.expression_tree import (
    CONSTANTS,
    FUNCTION_NAMES,
    REWRITES,
    Node,
    fpcore_named,
    parse_expression,
    parse_named,
    rewrites_of,
    variables_of,
)
from tests.marks import cases

HERON = "s = (a + b + c) / 2; sqrt(s*(s - a)*(s - b)*(s - c))"
QUADRATIC = "(-b + sqrt(b*b - 4*a*c)) / (2*a)"
EXPRESSIONS = [
    (HERON, {"a": 9, "b": 4.53125, "c": 4.5}),
    (QUADRATIC, {"a": 1.5, "b": 100, "c": 0.75}),
    ("log(1 + x) / x", {"x": 0.0013}),
    ("sqrt(x*x + y*y + z*z)", {"x": 3, "y": 0.1, "z": "1/3"}),
    ("exp(x)*cos(y) - sin(x)**3 + tan(y)", {"x": 0.7, "y": 1.2}),
    ("fma(x, y, -x*y) + abs(x - y) + min(x, y) * max(x, 2)", {"x": 1.1, "y": 1.3}),
    ("hypot(x, y) + cbrt(x) + rsqrt(y) + power(x, y)", {"x": 2.7, "y": 0.3}),
    ("tanh(x) + sinh(x) - cosh(x) + atan(x) + asin(x/9) + acos(x/9) + erf(x)", {"x": 0.9}),
    ("expm1(x) + log1p(x) + exp2(x) + log2(x) + exp10(-x) + log10(x) + reciprocal(x)", {"x": 0.37}),
]


def emulated(node, values, fmt, **options):
    """The expression by the public functions, one by one."""
    if node.name == "variable":
        return fs.array(values[node.text], fmt, **options)
    if node.name == "number":
        return fs.array(node.text, fmt, **options)
    operands = [emulated(x, values, fmt, **options) for x in node.operands]
    if node.name in ("negative", "absolute"):
        return getattr(fs, node.name)(*operands)
    return getattr(fs, node.name)(*operands, **options)


_MPFR = {
    "add": lambda x, y: x + y, "subtract": lambda x, y: x - y, "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y, "negative": lambda x: -x, "absolute": abs, "minimum": min, "maximum": max,
    "fma": lambda x, y, z: x * y + z, "power": lambda x, y: x**y, "cbrt": gmpy2.cbrt, "rsqrt": gmpy2.rec_sqrt,
    "reciprocal": lambda x: 1 / x, "sigmoid": lambda x: 1 / (1 + gmpy2.exp(-x)),
    "softplus": lambda x: gmpy2.log1p(gmpy2.exp(x)),
}  # fmt: skip


def by_mpfr(node, values):
    """The expression in 600 bits."""
    if node.name in ("variable", "number"):
        given = values[node.text] if node.name == "variable" else node.text
        return gmpy2.mpfr(gmpy2.mpq(Fraction(given)))
    operands = [by_mpfr(x, values) for x in node.operands]
    return _MPFR.get(node.name, getattr(gmpy2, node.name, None))(*operands)


@pytest.mark.parametrize(("text", "values"), EXPRESSIONS)
@pytest.mark.parametrize("options", cases(quick=[{}], full=[{"rounding": "RTZ", "ftz": True}, {"rounding": "RTP"}]))
def test_steps_are_the_operations_of_floatsim(text, values, options):
    for name in ("bf16", "e4m3"):
        told = fs.explain(text, name, **options, **values)
        assert told.code == int(emulated(parse_expression(text), values, name, **options).codes), name


@pytest.mark.parametrize(("text", "values"), EXPRESSIONS)
def test_exact_values_and_errors(text, values):
    told = fs.explain(text, "fp16", **values)
    with gmpy2.context(gmpy2.get_context(), precision=600):
        exact = by_mpfr(parse_expression(text), values)
        found = gmpy2.mpfr(gmpy2.mpq(told.exact))
        assert abs(found - exact) <= abs(exact) * gmpy2.mpfr(2) ** -100
        assert told.error == pytest.approx(float((gmpy2.mpfr(told.value) - exact) / exact), rel=1e-12)
    assert [step.exact is not None for step in told.steps] == [True] * len(told.steps)


@pytest.mark.parametrize(("text", "values"), EXPRESSIONS)
def test_the_reach_of_a_variable_is_the_derivative(text, values):
    """A change of a variable by 2**-200 of itself changes the result by the reach times that."""
    told = fs.explain(text, "fp64", **values)
    node = parse_expression(text)
    with gmpy2.context(gmpy2.get_context(), precision=600):
        step = gmpy2.mpfr(2) ** -200
        for variable in variables_of(node):
            moved = values | {variable: Fraction(values[variable]) * (1 + Fraction(1, 2**200))}
            exact = by_mpfr(node, values)
            slope = abs((by_mpfr(node, moved) - exact) / exact / step)
            reach = next(x.reach for x in told.steps if x.name == variable)
            assert reach == pytest.approx(float(slope), rel=1e-6, abs=1e-12), variable


def test_the_errors_of_the_steps_add_up():
    """To first order, the relative error of the result is the sum of the steps' errors times their reach."""
    told = fs.explain("log(1 + x)", "fp32", x=0.001)
    one, log = told.steps[1], told.steps[2]
    total = told.steps[0].rounding_error + one.rounding_error * one.reach + log.rounding_error
    assert told.error == pytest.approx(total, rel=1e-3)


def test_heron_in_bf16():
    told = fs.explain(HERON, "bf16", a=9, b=4.53125, c=4.5)
    assert told.value == 0
    assert [step.name for step in told.steps][5] == "s"
    (stable,) = told.stable
    assert abs(stable.ulps) < 1
    assert "Kahan" in stable.avoids
    assert "stable form, avoids cancellation of s - a" in str(told)
    assert "<table>" in told._repr_html_()
    for order in ({"a": 4.5, "b": 9, "c": 4.53125}, {"a": 4.53125, "b": 4.5, "c": 9}):
        assert fs.explain(HERON, "bf16", **order).stable[0].value == stable.value
    other = "s = 0.5*(c + a + b); sqrt((s - c)*(s - a)*s*(s - b))"
    assert fs.explain(other, "bf16", a=9, b=4.53125, c=4.5).stable[0].value == stable.value
    assert not fs.explain("s = a + b + c; sqrt(s*(s - a)*(s - b)*(s - c))", "bf16", a=9, b=4, c=4).stable


def test_signs_decide_the_root():
    values = {"a": 1, "c": 1}
    assert len(fs.explain(QUADRATIC, "fp16", b=100, **values).stable) == 1
    assert not fs.explain(QUADRATIC, "fp16", b=-100, **values).stable
    other = QUADRATIC.replace("+", "-")
    assert len(fs.explain(other, "fp16", b=-100, **values).stable) == 1
    told = fs.explain(QUADRATIC, "fp16", b=100, **values)
    assert told.error == -1
    assert abs(told.stable[0].ulps) < 1


@pytest.mark.parametrize("row", REWRITES, ids=lambda row: row.pattern)
def test_stable_forms_are_identities_and_are_better(row):
    """Both forms are equal in exact arithmetic; in BF16 the stable form is better on average near its weakness."""
    values = {"a": 9.0, "b": 8.5, "c": 0.625, "x": 0.01171875, "y": 0.0078125, "s": 9.0625}
    if row.when == "b < 0":
        values["b"] = -8.5
    if row.pattern.startswith(("sqrt(x + y)", "1/x", "log(x)", "x*x")):
        values |= {"x": 9.0, "y": 8.5 if row.pattern.startswith(("x*x", "log(x)")) else 0.03125}
    text = "s = (a + b + c) / 2; " + row.pattern if row.when == "triangle" else row.pattern
    node = parse_expression(text)
    with gmpy2.context(gmpy2.get_context(), precision=600):
        given = {name: values[name] for name in variables_of(node)}

        def value(part):
            found = by_mpfr(part, given)
            return Fraction(*map(int, found.as_integer_ratio()))

        forms = [form for found, form in rewrites_of(node, value) if found == row]
        assert len(forms) == 1
        exact, other = by_mpfr(node, given), by_mpfr(forms[0], given)
        assert abs(exact - other) <= abs(exact) * gmpy2.mpfr(2) ** -500
    told = fs.explain(text, "bf16", **given)
    stable = next(x for x in told.stable if x.avoids.startswith(row.name))
    assert abs(stable.ulps) <= abs(told.ulps)


def test_patterns_inside_other_expressions():
    node = parse_expression("3 * (exp(y) - 1) + 2")
    assert [str(form) for _, form in rewrites_of(node, lambda part: None)] == ["3 * expm1(y) + 2"]
    (longer,) = rewrites_of(parse_expression("log(x + 1 + y*z)"), lambda part: None)
    assert str(longer[1]) == "log1p(x + y * z)"
    assert not list(rewrites_of(parse_expression("log(2 + x)"), lambda part: None))
    assert not list(rewrites_of(parse_expression("a*b - c*d"), lambda part: None))


def test_values_without_an_exact_result():
    told = fs.explain("1 / x", "fp16", x=0)
    assert told.exact is None
    assert told.value == math.inf
    assert "divide_by_zero" in str(told)
    assert math.isnan(fs.explain("log(x)", "fp16", x=-1).value)
    overflow = fs.explain("exp(x)*exp(x)", "fp16", x=11)
    assert overflow.ulps == math.inf
    tiny = fs.explain("(1 + x) - 1", "bf16", x="1e-80")
    assert tiny.exact == Fraction("1e-80")
    lost = fs.explain("(exp(x) - 1) - x", "bf16", x="1e-60")
    assert lost.exact is None  # cancellation leaves fewer than 64 of the 128 bits
    assert "there is no exact value to compare with" in lost.summary


FAR = [("exp", 1), ("exp", -1), ("expm1", 1), ("sinh", 1), ("sinh", -1), ("cosh", 1), ("cosh", -1), ("exp2", 1),
       ("exp2", -1), ("exp10", 1), ("exp10", -1), ("sigmoid", -1), ("softplus", -1)]  # fmt: skip


@pytest.mark.parametrize(("name", "sign"), FAR)
@pytest.mark.parametrize("size", [6900, 10_000, 100_000, 10**9])
def test_functions_of_large_numbers_are_right_or_empty(name, sign, size):
    """log2 of the exact value follows from the argument: no value is the end of a range of `reference`."""
    exact = fs.explain(f"{name}(x)", "bf16", x=sign * size).exact
    if exact is None:
        assert size > 6900
        return
    bits = abs(exact.numerator).bit_length() - exact.denominator.bit_length()
    base = {"exp2": 1.0, "exp10": math.log2(10)}.get(name, 1 / math.log(2))
    log2 = size * base * (1 if name in ("sinh", "cosh") else sign) - (name in ("sinh", "cosh"))
    assert abs(bits - log2) <= 1


def test_results_of_large_numbers():
    assert fs.explain("log(exp(x))", "bf16", x=100_000).exact is None
    assert fs.explain("exp(x) / exp(x - 1)", "bf16", x=100_000).exact is None
    assert float(fs.explain("log(exp(x))", "bf16", x=6000).exact) == 6000
    assert float(fs.explain("sigmoid(x)", "bf16", x=10**9).exact) == 1
    assert float(fs.explain("tanh(x)", "bf16", x=-(10**9)).exact) == -1
    assert float(fs.explain("softplus(x)", "bf16", x=10**9).exact) == 1e9


@pytest.mark.parametrize("number", ["1e1000000000", "1E+1000000", "2.5e-1000000000", "0x1p1000000000", "0x1p50000",
                                    Decimal("1e999999999"), "1e" + "9" * 400])  # fmt: skip
def test_numbers_beyond_all_formats(number):
    """The result is rounded; the exact value would have too many digits."""
    told = fs.explain("x", "bf16", x=number)
    assert told.exact is None
    assert told.value == (0 if "-" in str(number) else math.inf)
    if isinstance(number, str) and not number.startswith("0x"):
        assert fs.explain(number, "bf16").exact is None
    assert fs.explain("1e9000", "bf16").exact == Fraction(10) ** 9000


def test_fpcore():
    heron = "(FPCore heron (a b c) :name \"Heron\" :pre (< 0 a) (let ((s (/ (+ (+ a b) c) 2))) " \
            "(sqrt (* (* (* s (- s a)) (- s b)) (- s c)))))"  # fmt: skip
    node, names = parse_named(heron)
    assert (node, names) == parse_named(HERON)
    let = "(FPCore (x) (let* ([y (+ x 1)] [z (* y y)]) (- (fma y z 1/3) 0x1.8p1)))"
    assert str(parse_expression(let)) == "fma(x + 1, (x + 1) * (x + 1), 1/3) - 0x1.8p1"
    told = fs.explain("(FPCore (x) ; a comment\n (- (fabs x)))", "bf16", x=-2)
    assert told.value == -2
    assert parse_expression("(FPCore (x y) (let ((x y) (y x)) (- x y)))") == parse_expression("y - x")


def test_fpcores_of_a_file():
    text = ';; (FPCore (y) y)\n[FPCore twice (x) (+ x x)]\n(FPCore (x) :name "half" (/ x 2)) ; the end'
    assert str(parse_expression(fpcore_named(text, "twice"))) == "x + x"
    assert str(parse_expression(fpcore_named(text, "2"))) == "x / 2"
    assert str(parse_expression("; a comment\n;;\n ( FPCore (x) x)")) == "x"
    assert fpcore_named(text, "half").index("(") == text.index("(FPCore (x) :name")
    with pytest.raises(ValueError, match="core=3: 0 have this name; the FPCores are 1 'twice', 2 'half'"):
        fpcore_named(text, "3")
    with pytest.raises(ValueError, match=r"there is no \(FPCore"):
        fpcore_named("; nothing")
    start = time.perf_counter()
    for blanks in (";" * 9000, " " * 9000, "; \n" * 3000):
        with pytest.raises(ValueError):
            parse_expression(blanks + "x y")
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize(("text", "exact"), [
    ("0x10", 16), ("0b101", 5), ("0o17", 15), ("1_000", 1000), ("0x1" + "0" * 20, 16**20),
    ("(FPCore () 0x10)", 16), ("(FPCore () -0x.8p-1)", "-1/4"),
    ("(FPCore () +.5e-3)", "1/2000"), ("(FPCore () -7/21)", "-1/3"), ("(FPCore () 0X1.8P3)", 12),
])  # fmt: skip
def test_numbers_of_both_notations(text, exact):
    assert fs.explain(text, "fp64").exact == Fraction(exact)


def test_constants_of_fpcore():
    """The numbers of MPFR, and the roundings of their exact values."""
    with gmpy2.context(gmpy2.get_context(), precision=900):
        pi, two = gmpy2.const_pi(), gmpy2.mpfr(2)
        exact = {
            "PI": pi, "PI_2": pi / 2, "PI_4": pi / 4, "M_1_PI": 1 / pi, "M_2_PI": 2 / pi,
            "M_2_SQRTPI": 2 / gmpy2.sqrt(pi), "E": gmpy2.exp(1), "LN2": gmpy2.log(2), "LN10": gmpy2.log(10),
            "LOG2E": 1 / gmpy2.log(2), "LOG10E": 1 / gmpy2.log(10), "SQRT2": gmpy2.sqrt(2),
            "SQRT1_2": 1 / gmpy2.sqrt(2),
        }  # fmt: skip
        assert exact.keys() == CONSTANTS.keys()
        for name, value in exact.items():
            assert 0 <= value - gmpy2.mpfr(gmpy2.mpq(CONSTANTS[name])) < two**-590, name
            told = fs.explain(f"(FPCore () {name})", "fp64")
            assert told.value == float(value), name
            assert told.error == pytest.approx(float((told.value - value) / value), rel=1e-9), name
    told = fs.explain("(FPCore (r) (* PI (* r r)))", "bf16", r=3)
    assert (told.value, str(told.steps[0].name), told.steps[3].operation) == (28.25, "PI", "PI * r1")
    assert fs.explain("(FPCore (PI) PI)", "bf16", PI=2).value == 2
    with pytest.raises(ValueError, match="'PI' has no value"):
        fs.explain("PI", "bf16")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x % 2", "expression, column 1: 'x % 2' is not in the grammar"),
        ("1 + x.real", "expression, column 5: 'x.real' is not in the grammar"),
        ("y = x\n2*[x]", "expression, line 2, column 3: '[x]' is not in the grammar"),
        ("__import__('os')", "expression, column 12: 'os' is not a number"),
        ("sqrtt(x)", "expression, column 1: unknown function 'sqrtt'; did you mean 'sqrt'"),
        ("hypot(x)", "expression, column 1: hypot takes 2 operands, not 1"),
        ("(lambda: x)()", "is not in the grammar"),
        ("x if x else 1", "is not in the grammar"),
        ("1j", "expression, column 1: 1j is not a number"),
        ("x < 1", "is not in the grammar"),
        ("import os", "expression, column 1: the last statement must be an expression"),
        ("import os; x", "expression, column 1: only 'name = expression' may stand before"),
        ("x +", "expression, column 4: invalid syntax"),
        ("", "expression is empty"),
        ("y = x", "the last statement must be an expression"),
        ("x*" * 300 + "x", "more than 100 operations are nested"),
        ("+".join("x" * 3000), "more than 100 operations are nested; in a + b + c, each term is nested one deeper"),
        (";".join("x = x*x" for _ in range(40)) + ";x", "expression has more than 2000 parts"),
        ("9" * 11_000, "expression has 11000 characters"),
        ("(FPCore (x) (while (< x 1) () x))", "FPCore, line 1, column 14: 'while' is not supported"),
        ("(FPCore (x)\n (+ x INFINITY))", "FPCore, line 2, column 7: 'INFINITY' is neither an argument nor a number"),
        ("(FPCore (x) x)\n\nx", "FPCore, line 3, column 1: only (FPCore ...) may stand here, not 'x'"),
        ("(FPCore (x) (+ x 1/0))", "FPCore, line 1, column 18: '1/0' is neither an argument nor a number"),
        ("(FPCore (x) (+ x 1.5/3))", "FPCore, line 1, column 18: '1.5/3' is neither an argument nor a number"),
        ("(FPCore (x) (+ x", "FPCore, line 1, column 13: this parenthesis is not closed"),
        ("(FPCore (x) (+ x 1)))", "FPCore, line 1, column 21: this parenthesis closes nothing"),
        ("(FPCore (x) (sqrt x x))", "FPCore, line 1, column 14: sqrt takes 1 operands, not 2"),
        ("(FPCore x)", "the list of arguments is missing"),
        ("(FPCore ((! :precision binary32 x)) x)", "an argument must be a name"),
        ("(FPCore (x) x) (FPCore (x) x)", "one FPCore is read, not several"),
        ("(FPCore (x) (let (x 1) x))", "write (let ((name value) ...) body)"),
        ("(FPCore (x))", "one body must follow"),
        ("(FPCore (x) \"a)", "cannot be read"),
    ],
)  # fmt: skip
def test_outside_the_grammar(text, message):
    with pytest.raises(ValueError) as error:
        fs.explain(text, "bf16", x=2)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_bad_values():
    with pytest.raises(ValueError, match="'y' has no value"):
        fs.explain("x + y", "bf16", x=1)
    with pytest.raises(ValueError, match="'z' is no variable of the expression; its variables are x"):
        fs.explain("x", "bf16", x=1, z=2)
    with pytest.raises(ValueError, match="have no random bits"):
        fs.explain("x", "bf16", x=1, rounding="SR")
    with pytest.raises(ValueError, match="need a format with a sign"):
        fs.explain("x", "e8m0", x=1)
    with pytest.raises(ValueError, match="x is "):
        fs.explain("x", "bf16", x="one")
    with pytest.raises(TypeError, match="expression must be a text"):
        fs.explain(1.5, "bf16")
    with pytest.raises(ValueError, match="variable='y' is no variable"):
        expression_errors("x + 1", "bf16", "y", [1.0], x=1)


def test_every_function_can_be_called():
    for name in FUNCTION_NAMES:
        count = next(n for n in (1, 2, 3) if _parses(f"{name}({', '.join('x' * n)})"))
        told = fs.explain(f"{name}({', '.join('x' * count)})", "bf16", x=0.5)
        assert math.isfinite(told.value), name
        assert told.error == 0 or abs(told.ulps) <= 0.5, name


def _parses(text):
    try:
        return isinstance(parse_expression(text), Node)
    except ValueError:
        return False


def test_long_expressions_stand_below_the_plot():
    """Beside the lines, the two forms of Heron's formula left half of the width to the axes."""
    heron = "s = (a + b + c) / 2; sqrt(s*(s - a)*(s - b)*(s - c))"
    ax = fs.plot.expression_error(heron, "bf16", "a", 8.5, 9.03, points=8, b=4.53125, c=4.53125)
    assert not ax.texts
    below = ax.get_legend()
    assert len(below.get_texts()) == 2
    assert below.get_texts()[1].get_text().startswith("sqrt((a + (b + c))")
    ax.figure.canvas.draw()
    assert ax.get_position().width > 0.7
    frame = ax.get_tightbbox()
    assert below.get_window_extent().y1 <= ax.xaxis.get_tightbbox().y0
    assert 0 <= frame.x0 < frame.x1 <= ax.figure.bbox.width
    assert frame.y0 >= 0


def test_errors_over_an_interval():
    points = np.geomspace(1e-3, 0.5, 7)
    found = expression_errors("log(1 + x)", "fp16", "x", points)
    for x, error in zip(points, found["log(1 + x)"], strict=True):
        assert error == fs.explain("log(1 + x)", "fp16", x=float(x)).ulps
    assert all(len(line) == 7 for line in found.values())
    ax = fs.explain("log(1 + x)", "bf16", x=0.5).plot("x", 0.01, 0.5)
    assert [text.get_text() for text in ax.texts] == ["log(1 + x)", "log1p(x)"]
    assert ax.get_legend() is None
    with pytest.raises(ValueError, match="low=2 and high=1 are no interval"):
        fs.plot.expression_error("log(1 + x)", "bf16", "x", 2, 1)
    with pytest.raises(ValueError, match="no error between 1 and 2 is a finite number above 0"):
        fs.plot.expression_error("x*2", "bf16", "x", 1, 2)

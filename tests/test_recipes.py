"""The recipes of CONTRIBUTING.md, each followed once in a copy of the sources.

A test edits the copy as its recipe says. Then a process of its own imports the copy and compares results of the new
part with an independent expectation: the functions `check_*`, which run in that process.
"""

from __future__ import annotations

import difflib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs
from floatsim.accumulation import parse
from floatsim.arrays.events.counts import EVENTS
from floatsim.emulator.dispatch.candidates import only
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import FLAGS, RoundingAttributes
from floatsim.reference import scalar, sums
from floatsim.reference.sums import Code

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[1]


class Copy:
    """A copy of the sources, with the edits of a recipe. The kernels are copied only if the recipe edits them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.edited = folder, {}
        shutil.copytree(ROOT / "floatsim", folder / "floatsim", ignore=shutil.ignore_patterns("__pycache__"))

    def insert(self, name: str, *edits: tuple[str, str]) -> None:
        """Insert texts behind anchors. Each anchor must occur exactly once."""
        for anchor, text in edits:
            self.replace(name, anchor, anchor + text)

    def replace(self, name: str, old: str, new: str) -> None:
        if name.startswith("kernels/") and not (self.folder / "kernels").exists():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / "kernels", self.folder / "kernels", ignore=ignored)
        path = self.folder / name
        before = path.read_text(encoding="utf-8")
        assert before.count(old) == 1, f"{name}: the anchor {old!r} occurs {before.count(old)} times"
        self.edited.setdefault(name, before)
        path.write_text(before.replace(old, new), encoding="utf-8")

    def create(self, name: str, text: str) -> None:
        path = self.folder / name
        assert not path.exists()
        self.edited[name] = ""
        path.write_text(text, encoding="utf-8")

    @property
    def new_lines(self) -> dict[str, int]:
        """The number of new or changed lines of each edited file."""
        counts = {}
        for name, before in self.edited.items():
            after = (self.folder / name).read_text(encoding="utf-8")
            lines = difflib.ndiff(before.splitlines(), after.splitlines())
            counts[name] = sum(line.startswith("+ ") for line in lines)
        return counts

    def run(self, *command: str) -> str:
        """Run Python with the copy in place of the sources, and return the output."""
        copied = (self.folder / "kernels").exists()
        paths = (self.folder, (self.folder if copied else ROOT) / "kernels", ROOT / "tests")
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
        if copied:
            environment["NUMBA_CACHE_DIR"] = str(self.folder / "compiled")
        done = subprocess.run(
            [sys.executable, *command], env=environment, cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def check(self, function: str) -> None:
        """Run one of the functions `check_*` of this file."""
        self.run("-c", f"import test_recipes; test_recipes.in_copy({str(self.folder)!r}, {function!r})")


def in_copy(folder: str, function: str) -> None:
    """Call a function of this file in a process that imports the copy in `folder`."""
    assert Path(fs.__file__).parents[1] == Path(folder).resolve()
    globals()[function]()


def recipe(title: str) -> str:
    """The text of a recipe."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Recipes")[1].split("\n## ")[0]
    (found,) = [part for part in re.split(r"^- (?=\*\*)", text, flags=re.M) if part.startswith(f"**{title}**")]
    return found


def assert_recipe(title: str, copy: Copy, *not_edited: str) -> None:
    """Check that a recipe names the edited files, and no others but these. A new file is named by its folder."""
    named = {name for name in re.findall(r"`([\w/]+\.py)`", recipe(title)) if not name.startswith("tests/")}
    edited = {name.removeprefix("floatsim/") for name, before in copy.edited.items() if before}
    assert named == edited | set(not_edited)
    assert all((ROOT / name).exists() or (ROOT / "floatsim" / name).exists() for name in not_edited)


# -- operands, and the reference ---------------------------------------------------------------------------------------


def codes_near_one(fmt: fs.FloatFormat, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Codes of both signs, most of them of magnitudes 2**-4 to 2**4, one in twenty any code."""
    middle, binades = fmt.bias << fmt.trailing_bits, min(4, fmt.emax) << fmt.trailing_bits
    magnitudes = np.clip(middle + rng.integers(-binades, binades, shape), 0, fmt.max_code)
    codes = magnitudes | rng.integers(0, 2, shape) * fmt.sign_mask
    any_code = rng.integers(0, 1 << fmt.bits, shape)
    return np.where(rng.random(shape) < 0.05, any_code, codes).astype(fmt.code_dtype)


def codes_of(result: object, fmt: fs.FloatFormat) -> np.ndarray:
    return result.codes if isinstance(result, fs.FloatArray) else np.asarray(result).view(fmt.code_dtype)


def check_sums(how: fs.accumulation.Accumulation | str, a: fs.FloatFormat, b: fs.FloatFormat, **options: object) -> str:
    """Compare a product of matrices with the reference: by the plan's kernel, on integers, and with its events.

    Return the name of the plan's kernel.
    """
    rng = np.random.default_rng(7)
    rows, terms, columns = 3, 21, 5
    x, y = codes_near_one(a, (rows, terms), rng), codes_near_one(b, (terms, columns), rng)
    left, right = fs.from_codes(x, a), fs.from_codes(y, b)
    described = fs.as_accumulation(how)
    fmt = described.result_format
    c = fs.encode(rng.normal(size=(rows, columns)), fmt)
    given = RoundingAttributes(fs.Rounding[str(options.get("rounding", "ties_to_even")).upper()])
    call = CallOptions(given, int(options.get("seed", 0)))
    for start in (None, c):
        keywords = {"accumulate": how, "format": fmt, **options}
        if start is not None:
            keywords["c"] = fs.from_codes(start, fmt)
        fast = fs.matmul(left, right, **keywords)
        with only("integer", "tensorcore integer"):
            on_integers = fs.matmul(left, right, **keywords)
        with fs.record() as log:
            recorded = fs.matmul(left, right, **keywords)
        want, counts = np.empty((rows, columns), fmt.code_dtype), Counter()
        for n, (i, j) in enumerate(np.ndindex(rows, columns)):
            pairs = [(Code(int(x[i, k]), a), Code(int(y[k, j]), b)) for k in range(terms)]
            found = sums.accumulate(described, pairs, call, n, None if start is None else Code(int(c[i, j]), fmt))
            want[i, j] = found.code
            counts += found.counts["sum"]
            for event, k in found.first.items():
                assert log.first[event][i, j] == (-1 if k is None else k), event
        for result in (fast, on_integers, recorded):
            np.testing.assert_array_equal(codes_of(result, fmt), want)
        for event, bit in EVENTS.items():
            if event != "divide_by_zero":  # sums do not have it; the reference marks new NaNs by its bit
                in_reference = sum(number for events, number in counts.items() if events & bit)
                assert getattr(log["matmul.sum"], event) == in_reference, event
    return str(fs.explain_plan(left, right, accumulate=how)).splitlines()[0].split(": ")[1]


def nearest(x: Fraction, values: dict[int, Fraction]) -> int:
    """The code whose value is nearest to x; of two, the even code. `values` has all codes of one sign."""
    return min(values, key=lambda code: (abs(values[code] - x), code % 2))


# -- a named format ----------------------------------------------------------------------------------------------------


def test_a_named_format(tmp_path):
    copy = Copy(tmp_path)
    copy.insert(
        "floatsim/formats/format.py",
        ('"E8M0", "FORMATS", ', '"FP12", '),
    )
    copy.replace(
        "floatsim/formats/format.py",
        "\nBF16 = _named(",
        '\nFP12 = _named(FloatFormat("FP12", 5, 6), "#123456", None, "e5m6 short")\nBF16 = _named(',
    )
    copy.insert(
        "floatsim/formats/__init__.py", ("    FORMATS,\n", "    FP12,\n"), ('"FLUSHED", "FORMATS", ', '"FP12", ')
    )
    copy.insert("floatsim/__init__.py", ('"BF16 E2M1 E2M3 ', "FP12 "))
    assert sum(copy.new_lines.values()) == 5
    assert_recipe("A named format", copy)
    copy.check("check_named_format")
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "write_stubs.py", tmp_path / "tools")
    assert copy.run("tools/write_stubs.py").count("written") == 2
    assert " FP12," in (tmp_path / "floatsim" / "__init__.pyi").read_text(encoding="utf-8")
    assert '"fp12"' in (tmp_path / "floatsim" / "_literals.py").read_text(encoding="utf-8")
    listed = json.loads(copy.run("-m", "floatsim", "formats", "--json"))
    assert "FP12" in json.dumps(listed)


def check_named_format() -> None:
    fmt = fs.FP12
    assert fmt in fs.named_formats() and "FP12" in dir(fs) and fmt.colour == "#123456"
    assert fs.as_format("fp12") is fs.as_format("short") is fs.as_format("E5M6") is fs.formats.FP12 is fmt
    values = {code: Fraction(code, 1 << 6) / 2**14 for code in range(1 << 6)}
    values |= {e << 6 | t: (1 + Fraction(t, 64)) * Fraction(2) ** (e - 15) for e in range(1, 31) for t in range(64)}
    for code, value in values.items():
        assert fs.decode(np.array([code, code | 0x800], fmt.code_dtype), fmt).tolist() == [value, -value]
    rng = np.random.default_rng(1)
    numbers = np.concatenate([rng.normal(size=300) * 2.0 ** rng.integers(-22, 15, 300), [2.0**-21, 2.0**-20]])
    got = fs.encode(numbers, "fp12").tolist()
    assert got == [nearest(abs(Fraction(x)), values) | (x < 0) << 11 for x in numbers]
    assert check_sums("fp12", fmt, fmt) == "float32"


# -- a kind of special values ------------------------------------------------------------------------------------------


def test_a_kind_of_special_values(tmp_path):
    copy = Copy(tmp_path)
    copy.insert(
        "floatsim/formats/format.py",
        (
            '    FINITE = "finite"\n    """Every code is a finite number (OCP FP6 and FP4)."""\n',
            '    ONE_NAN = "one_nan", _all_ones, _minus_zero\n'
            '    """The code of -0 is the only NaN. The magnitude with all bits set is infinite (P3109)."""\n',
        ),
    )
    assert copy.new_lines == {"floatsim/formats/format.py": 2}
    assert_recipe("A kind of special values", copy)
    copy.check("check_special_values")


def check_special_values() -> None:
    fmt = fs.FloatFormat("B8P4", 4, 3, "one_nan")
    values = {code: Fraction(code, 8) / 2**7 for code in range(8)}
    values |= {code: (1 + Fraction(code % 8, 8)) * Fraction(2) ** (code // 8 - 8) for code in range(8, 0x7F)}
    floats = fs.decode(fmt.codes(), fmt)
    assert floats[:0x7F].tolist() == [float(x) for x in values.values()]
    assert floats[0x81:0xFF].tolist() == [-x for x in floats[1:0x7F].tolist()]
    assert np.isnan(floats[0x80]) and floats[[0x7F, 0xFF]].tolist() == [np.inf, -np.inf]
    np.testing.assert_array_equal(fs.encode(floats, fmt), fmt.codes())
    assert fs.encode([-0.0, 1000.0, -1000.0], fmt).tolist() == [0, 0x7F, 0xFF]
    pairs = np.array(list(itertools.product(range(0, 256, 3), range(0, 256, 7)))).T.astype(np.uint8)
    x, y = (fs.from_codes(side, fmt) for side in pairs)
    for name in ("add", "multiply", "divide"):
        got, flags = getattr(fs, name)(x, y, return_flags=True)
        for a, b, code, flag in zip(*pairs.tolist(), got.codes.tolist(), flags.tolist(), strict=True):
            operation = getattr(scalar, name)
            want, events = operation(scalar.decode(a, fmt), scalar.decode(b, fmt), fmt, RoundingAttributes())
            assert (code, flag) == (want, events & 31), (name, a, b)
    wide = fs.FloatFormat("B16P11", 5, 10, "one_nan")
    kernels = set()
    for acc, other in itertools.product((fmt, wide, fs.FP16), (fmt, fs.BF16)):
        kernels.add(check_sums(parse("sequential(same)", acc), fmt, other))
        kernels.add(check_sums(parse("exact(same)", acc), fmt, other))
        kernels.add(check_sums(parse("pairwise(same)", acc), fmt, other, rounding="toward_positive"))
    assert {"float32", "exact float64"} <= kernels


# -- an architecture ---------------------------------------------------------------------------------------------------


def test_an_architecture(tmp_path):
    copy = Copy(tmp_path)
    copy.replace(
        "floatsim/tensorcore/gpu_instructions.py",
        "# -- AMD: ",
        "_MINE = (\n"
        '    _fused("mma.m16n8k8", _HALVES, 8, 4, 21, -132, FP32, NOTHING),\n'
        '    _fused("mma.m16n8k8", _FP16, 8, 4, 21, -20, FP16, NOTHING),\n'
        ")\n\n# -- AMD: ",
    )
    last = '    _unit("cdna3", "AMD CDNA 3 (gfx942)", _CDNA3, "gfx942 mi300 mi300a mi300x mi325x"),\n'
    copy.insert(
        "floatsim/tensorcore/gpu_instructions.py",
        (last, '    _unit("mine", "Mine", _MINE, "card9000"),\n'),
    )
    assert copy.new_lines["floatsim/tensorcore/gpu_instructions.py"] <= 6
    assert_recipe("An architecture", copy, "hardware/tables/compute_capability.py")
    copy.check("check_architecture")


def truncated(x: Fraction, exponent: int) -> Fraction:
    """x, truncated toward zero to a multiple of 2**exponent."""
    return int(x / Fraction(2) ** exponent) * Fraction(2) ** exponent


def leading(x: Fraction) -> int:
    """floor(log2(|x|)) of a number that is not zero."""
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    return exponent - (abs(x) < Fraction(2) ** exponent)


def check_architecture() -> None:
    assert str(fs.as_accumulation("Card 9000")) == str(fs.as_accumulation("mine")) == "tensorcore(mine)"
    assert "mma.m16n8k8" in str(fs.tensorcore.describe("mine"))
    rng = np.random.default_rng(3)
    a, b = (rng.normal(size=shape).astype(np.float16) for shape in ((6, 20), (20, 7)))
    got = fs.matmul(a, b, accumulate="mine")
    for i, j in np.ndindex(6, 7):
        acc = Fraction(0)
        for start in range(0, 20, 4):
            k = range(start, start + 4)
            factors = [(Fraction(float(a[i, n])), Fraction(float(b[n, j]))) for n in k]
            terms = [(x * y, leading(x) + leading(y)) for x, y in factors] + [(acc, leading(acc))] * (acc != 0)
            top = max(exponent for _, exponent in terms)
            acc = sum(truncated(x, top - 21) for x, _ in terms)
            acc = truncated(acc, leading(acc) - 23)
        assert Fraction(float(got[i, j])) == acc
    assert fs.tensorcore.trace(a[0], b[:, 0], accumulate="mine").value == got[0, 0]
    assert check_sums("mine", fs.BF16, fs.BF16) == "tensorcore float32"
    assert check_sums("tensorcore(mine, output=fp16)", fs.FP16, fs.FP16) == "tensorcore float32"
    assert check_sums("blocked(mine, 8, kahan(fp16))", fs.FP16, fs.FP16) == "parts"


# -- a matrix-unit model -----------------------------------------------------------------------------------------------


def test_a_matrix_unit_model(tmp_path):
    copy = Copy(tmp_path)
    copy.insert(
        "floatsim/tensorcore/instructions.py",
        ('    "GroupedBlocks", "Instruction", "LateAccumulator", "Model", ', '"RoundedProducts", '),
        ("FmaChain | ExactBlocks | FlushedTree | LateAccumulator", " | RoundedProducts"),
    )
    copy.replace(
        "floatsim/tensorcore/instructions.py",
        "@dataclass(frozen=True)\nclass ExactBlocks:",
        "@dataclass(frozen=True)\nclass RoundedProducts:\n"
        '    """acc = acc + a * b in the format of D: the product is rounded, then the sum, ties to even."""\n\n'
        "    terms: ClassVar[int] = 1\n\n\n"
        "@dataclass(frozen=True)\nclass ExactBlocks:",
    )
    copy.insert(
        "floatsim/reference/tensorcore/amd.py",
        ('__all__ = ["exact_block", "flushed_tree", "fma_step", "late_block"', ', "rounded_product"'),
    )
    copy.replace(
        "floatsim/reference/tensorcore/amd.py",
        "# -- CDNA 1: exact ---",
        "def rounded_product(a: Number, b: Number, c: int, output: FloatFormat, last: int) -> Step:\n"
        '    """Return acc = acc + a * b, each rounded as IEEE 754 defines it."""\n'
        "    product, events = multiply(a, b, output, _TO_EVEN)\n"
        "    one = Number(Kind.FINITE, 0, 1)\n"
        "    code, more = fma(decode(product, output), one, decode(c, output), output, _TO_EVEN)\n"
        "    return Step(code, events | more, last)\n\n\n"
        "# -- CDNA 1: exact ---",
    )
    copy.insert("floatsim/reference/tensorcore/dot.py", ("    Model,\n", "    RoundedProducts,\n"))
    copy.replace(
        "floatsim/reference/tensorcore/dot.py",
        "        case ExactBlocks():\n",
        "        case RoundedProducts():\n"
        "            a_number, b_number = pairs[0][0].number, pairs[0][1].number\n"
        "            step = amd.rounded_product(a_number, b_number, c, output, last)\n"
        "        case ExactBlocks():\n",
    )
    kernels = "kernels/floatsim_kernels/tensorcore/integer.py"
    copy.replace(kernels, "CHAIN, EXACT, FLUSHED_TREE = range(3)", "CHAIN, EXACT, FLUSHED_TREE, ROUNDED = range(4)")
    copy.replace(
        kernels,
        "                            else:\n                                c, events = exact_block(",
        """\
                            elif kind == ROUNDED:
                                x, p = unpack_wide(c, fd, np.int64(0)), zero_term()
                                if k0 < stop:
                                    p = product(
                                        unpack_wide(a[n, i, k0], fa, np.int64(0)),
                                        unpack_wide(b[n, k0, j], fb, np.int64(0)),
                                    )
                                p = p[0], p[1], p[2], p[3], p[4]
                                like = np.int64(ZERO), p[1], np.int64(0), U0, U0
                                code, events = rounded_sum(p, like, fd, m, U0)
                                y = unpack_wide(code, fd, np.int64(0))
                                c, other_events = rounded_sum(x, y, fd, m, U0)
                                events |= other_events | absorbed(c, x, y, fd)
                            else:
                                c, events = exact_block(""",
    )
    copy.insert(
        "floatsim/emulator/dispatch/tensorcore_calls.py",
        ("    Model,\n", "    RoundedProducts,\n"),
        ("    ExactBlocks: (integers.EXACT, _TO_EVEN),\n", "    RoundedProducts: (integers.ROUNDED, _TO_EVEN),\n"),
    )
    copy.insert("floatsim/analysis/describe.py", ("    LateAccumulator,\n", "    RoundedProducts,\n"))
    copy.replace(
        "floatsim/analysis/describe.py",
        "        case ExactBlocks():\n            return {\n",
        "        case RoundedProducts():\n"
        '            return {"sum": "acc = acc + a * b", "D": "product and sum are rounded, ties to even"}\n'
        "        case ExactBlocks():\n            return {\n",
    )
    copy.insert(
        "floatsim/tensorcore/gpu_instructions.py",
        ("    Model,\n", "    RoundedProducts,\n"),
        (
            '    *_mfma("MI100", _FP32, FmaChain(), *_FP32_SHAPES),\n',
            '    *_mfma("", (FP16,), RoundedProducts(), "9x9x8"),\n',
        ),
    )
    assert sum(n for name, n in copy.new_lines.items() if name.startswith("floatsim/")) <= 30
    assert_recipe("A matrix-unit model", copy, "reference/tensorcore/nvidia.py")
    copy.check("check_matrix_unit_model")


def check_matrix_unit_model() -> None:
    unit = "tensorcore(cdna1, mfma.9x9x8)"
    rng = np.random.default_rng(4)
    a, b = (rng.normal(size=shape).astype(np.float16) for shape in ((6, 20), (20, 7)))
    want = np.zeros((6, 7), np.float32)
    for k in range(20):
        want += a[:, k, np.newaxis].astype(np.float32) * b[k].astype(np.float32)
    np.testing.assert_array_equal(fs.matmul(a, b, accumulate=unit), want)
    assert fs.tensorcore.trace(a[0], b[:, 0], accumulate=unit).value == want[0, 0]
    assert "product and sum are rounded" in str(fs.tensorcore.describe("cdna1", "mfma.9x9x8"))
    assert check_sums(unit, fs.FP16, fs.FP16) == "tensorcore integer"


# -- an accumulation ---------------------------------------------------------------------------------------------------


def test_an_accumulation(tmp_path):
    copy = Copy(tmp_path)
    leaves = "floatsim/accumulation/leaves.py"
    copy.insert(leaves, ("__all__ = [", '"Cascaded", '))
    copy.replace(
        leaves,
        "@hashed_once\n@dataclass(frozen=True, repr=False, init=False)\nclass Exact(Leaf):",
        "@hashed_once\n@dataclass(frozen=True, repr=False, init=False)\nclass Cascaded(ProductLeaf):\n"
        '    """s and the sum of the errors of its additions, each in the format; returns round(s + comp)."""\n\n'
        '    text_form = "cascaded(format)"\n\n\n'
        "@hashed_once\n@dataclass(frozen=True, repr=False, init=False)\nclass Exact(Leaf):",
    )
    copy.insert(
        "floatsim/accumulation/__init__.py",
        ("from floatsim.accumulation.leaves import (\n", "    Cascaded,\n"),
        ('"AccumulationLike", "Blocked", ', '"Cascaded", '),
    )
    copy.insert("floatsim/__init__.py", ('"ACCUMULATIONS Blocked ', "Cascaded "))
    reference = "floatsim/reference/sums.py"
    copy.insert(reference, ("    Blocked,\n", "    Cascaded,\n"), ("Exact: _exact,", " Cascaded: _cascaded,"))
    copy.replace(
        reference,
        "def _is_finite(x: Operand)",
        """\
def _cascaded(run: _Run, terms: _Terms, start: Operand | None) -> Code:
    s, comp = run.seeded(start, terms), Code(0, run.leaf.format)
    for step, term, k in _steps(terms):
        x = run.enter(term, step)
        t = run.round(_add_to_accumulator, s, x, step=step, r=1, k=k, old=s)
        if _is_finite(t):
            change = run.round(_minus, t, s, step=step, r=2, k=k, old=s)
            error = run.round(_minus, change, x, step=step, r=3, k=k, old=s)
            comp = run.round(_minus, comp, error, step=step, r=4, k=k, old=s)
        s = t
    return run.round(_plus, s, comp, step=len(terms), r=1, k=_largest(terms), old=s) if terms else s


def _is_finite(x: Operand)""",
    )
    dispatch = "floatsim/emulator/dispatch/integer.py"
    copy.insert(
        dispatch,
        ("from floatsim.accumulation import ", "Cascaded, "),
        ("import math\n", "from functools import partial\n"),
    )
    copy.replace(
        dispatch,
        "_EXACT_PRODUCTS = ",
        """\
S, T, TERM, ERROR, COMP = loops.S, loops.T, loops.TERM, loops.ERROR, loops.COMP
_CASCADED = np.array([(S, TERM, 0, T), (T, S, 1, ERROR), (ERROR, TERM, 1, ERROR), (COMP, ERROR, 1, COMP)])
_IN_ORDER[Cascaded] = partial(loops.in_order, _CASCADED, np.array([(S, COMP, 0, S)]), 0)
_EXACT_PRODUCTS = """,
    )
    lines = copy.new_lines
    assert sum(lines.values()) <= 35 and max(lines.values()) <= 16, lines
    untouched = "kernels/floatsim_kernels/gemm/integer.py", "emulator/dispatch/float64.py"
    assert_recipe("An accumulation in order", copy, *untouched)
    copy.check("check_accumulation")


def check_accumulation() -> None:
    how = fs.Cascaded("fp16", rounding="toward_zero")
    assert str(how) == "cascaded(fp16, rounding=toward_zero)" and fs.as_accumulation(str(how)) == how
    assert (
        repr(fs.as_accumulation("blocked(cascaded(bf16), 8, fp32)")) == "Blocked(Cascaded(BF16), 8, Sequential(FP32))"
    )
    x = np.random.default_rng(5).normal(size=(40, 6)).astype(np.float32)
    s, comp = np.zeros(6, np.float32), np.zeros(6, np.float32)
    for row in x:
        t = s + row
        comp -= (t - s) - row
        s = t
    np.testing.assert_array_equal(fs.sum(x, axis=0, accumulate="cascaded(fp32)"), s + comp)
    assert (s + comp != fs.sum(x, axis=0, accumulate="fp32")).any()
    options: dict[str, dict[str, object]] = {
        "cascaded(fp16)": {},
        "cascaded(bf16, product=none)": {},
        "cascaded(e5m2, overflow=saturate_finite)": {},
        "cascaded(fp32)": {"rounding": "toward_negative"},
        "cascaded(fp16, ftz, daz)": {"rounding": "to_odd"},
        "cascaded(bf16)": {"rounding": "stochastic", "seed": 5},
    }
    for text, keywords in options.items():
        assert check_sums(text, fs.FP16, fs.E5M2, **keywords) == "integer"
    for scan in (fs.cumsum, fs.prod):
        with pytest.raises(TypeError, match="cascaded"):
            scan(x, accumulate="cascaded(fp32)")
    assert check_sums("strided(cascaded(fp16), 4)", fs.FP16, fs.FP16) == "parts"


# -- a fast kernel -----------------------------------------------------------------------------------------------------

CANDIDATE = '''"""Sequential FP32 sums of FP16 products by NumPy."""

import numpy as np

from floatsim.accumulation import Sequential
from floatsim.emulator.dispatch.kernel import FloatKernel
from floatsim.formats import FP16, FP32
from floatsim.formats.rounding import FLAGS, RoundingAttributes

__all__ = ["ByNumPy"]


class ByNumPy:
    """Sequential sums of FP16 products in FP32, ties to even."""

    name = "numpy"
    takes = (Sequential,)

    def refusal(self, case):
        if reason := case.float_refusal():
            return reason
        if case.accumulation != Sequential(FP32) or case.terms.factors != (FP16, FP16):
            return "only FP16 products in FP32"
        return None if case.sums == RoundingAttributes() else "only the default rounding"

    def kernel(self, case, plan):
        return FloatKernel(case, plan, FP32, add_products)


def add_products(a, b, out, ranges, index, seeds, fresh):
    with np.errstate(all="ignore"):
        for sums, (start, stop, step) in zip(out, ranges, strict=True):
            if fresh:
                sums[...] = 0
            for k in range(start, stop, step):
                sums += a[:, k, np.newaxis] * b[k]
'''


def test_a_fast_kernel(tmp_path):
    copy = Copy(tmp_path)
    copy.create("floatsim/emulator/dispatch/by_numpy.py", CANDIDATE)
    candidates = "floatsim/emulator/dispatch/candidates.py"
    copy.replace(
        candidates,
        "from floatsim.emulator.dispatch.composite import",
        "from floatsim.emulator.dispatch.by_numpy import ByNumPy\nfrom floatsim.emulator.dispatch.composite import",
    )
    copy.replace(candidates, "    Native(),\n", "    ByNumPy(),\n    Native(),\n")
    assert copy.new_lines[candidates] == 2
    assert_recipe("A fast kernel", copy, "emulator/dispatch/kernel.py")
    copy.check("check_fast_kernel")


def test_an_elementwise_operation(tmp_path):
    copy = Copy(tmp_path)
    copy.replace(
        "floatsim/reference/scalar.py",
        "def multiply(",
        """\
def distance(a: Number, b: Number, fmt: FloatFormat, attributes: RoundingAttributes, random: int = 0) -> Result:
    larger, smaller = (b, a) if compare(a, b)[0] == -1 else (a, b)
    return subtract(larger, smaller, fmt, attributes, random)


def multiply(""",
    )
    copy.replace(
        "kernels/floatsim_kernels/elementwise/loops.py",
        "@kernel\ndef multiply(",
        """\
@kernel
def distance(a, fa, b, fb, out, f, rounding_params, draws, events):
    fa, fb, f, m = format_fields(fa), format_fields(fb), format_fields(f), rounding_fields(rounding_params)
    for i in range(out.size):
        random = random_of(m, draws, i)
        if op.compare(a[i], fa, b[i], fb, m[op.DAZ], np.int64(0))[0] == op.LESS:
            code, happened = op.add(b[i], fb, a[i], fa, 1, f, m, random)
        else:
            code, happened = op.add(a[i], fa, b[i], fb, 1, f, m, random)
        out[i] = code
        events[i] = happened


@kernel
def multiply(""",
    )
    operations = "floatsim/emulator/elementwise/operations.py"
    copy.insert(operations, ("_ROWS = (\n", '    Operation("distance", "ab", "", Family.OTHER, "distance"),\n'))
    arithmetic = "floatsim/arrays/elementwise/arithmetic.py"
    copy.insert(arithmetic, ('__all__ = [\n    "absolute", "add", ', '"distance", '))
    copy.replace(
        arithmetic,
        "@implements(np.multiply)",
        """\
@stays_on_device
def distance(
    a: Floats, b: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[RoundingOptions]
) -> FloatResult:
    return operate("distance", {"a": a, "b": b}, format, out, options)


@implements(np.multiply)""",
    )
    copy.insert("floatsim/__init__.py", ('"absolute add ceil copysign ', "distance "))
    not_needed = [f"kernels/floatsim_kernels/elementwise/{name}.py" for name in ("njit_entry", "scalar_ops")]
    assert_recipe("An element-wise operation", copy, *not_needed, "reference/__init__.py")
    copy.check("check_elementwise_operation")


def check_elementwise_operation() -> None:
    rng = np.random.default_rng(9)
    for fmt, size in ((fs.FP16, 300), (fs.E4M3, 1 << 14)):  # the second one is read from a table
        x, y = (fs.from_codes(rng.integers(0, 1 << fmt.bits, size).astype(fmt.code_dtype), fmt) for _ in range(2))
        got, flags = fs.distance(x, y, rounding="toward_positive", return_flags=True)
        attributes = RoundingAttributes(fs.Rounding.TOWARD_POSITIVE)
        for i in range(300):
            numbers = (scalar.decode(int(each.codes[i]), fmt) for each in (x, y))
            code, events = scalar.distance(*numbers, fmt, attributes)
            assert (got.codes[i], flags[i]) == (code, events & FLAGS)
    assert fs.explain_plan("distance", x, y).candidate == "table"


def test_a_mathematical_function(tmp_path):
    copy = Copy(tmp_path)
    reference = "floatsim/reference/functions.py"
    copy.replace(
        reference,
        "def _rsqrt(",
        """\
def _softsign(x: Number) -> Number:
    return _finite(1, 0, x.sign) if x.is_infinite else x if x.is_zero else _exact(x.fraction / (1 + abs(x.fraction)))


def _rsqrt(""",
    )
    copy.insert(reference, ('    "reciprocal": _reciprocal,\n', '    "softsign": _softsign,\n'))
    copy.replace(
        "kernels/floatsim_kernels/functions/enclosures.py",
        "@inline\ndef rsqrt(",
        """\
@inline
def softsign(x):
    one = math.copysign(1.0, x)  # two operations with an error of u each
    return _if_both(abs(x) == _INFINITY, (one, one), _around(x / (1.0 + abs(x)), _E50))


@inline
def rsqrt(""",
    )
    copy.insert(
        "floatsim/emulator/elementwise/operations.py",
        ('"softplus": ("", lambda x: np.logaddexp(0, x)), ', '"softsign": ("", lambda x: x / (1 + abs(x))), '),
    )
    functions = "floatsim/arrays/elementwise/functions.py"
    copy.insert(functions, ('    "softplus",\n', '    "softsign",\n'))
    copy.replace(
        functions,
        "@implements(np.cbrt)",
        """\
@function
def softsign(
    a: Floats, *, format: FormatLike | None = None, out: Out = None, **options: Unpack[FunctionOptions]
) -> FloatResult:
    return _call("softsign", {"a": a}, format, out, options)


@implements(np.cbrt)""",
    )
    copy.insert("floatsim/__init__.py", ('"reciprocal rsqrt sigmoid silu sin sinh softplus ', "softsign "))
    assert_recipe("A mathematical function", copy)
    copy.check("check_mathematical_function")


def check_mathematical_function() -> None:
    """Every FP16 number in two directions, from the enclosures and from the table, and FP32 numbers."""
    rng = np.random.default_rng(2)
    for fmt in (fs.FP16, fs.FP32):
        codes = np.arange(1 << 16) if fmt == fs.FP16 else codes_near_one(fmt, (300,), rng)
        x = fs.from_codes(codes.astype(fmt.code_dtype), fmt)
        for rounding in (fs.Rounding.TOWARD_POSITIVE, fs.Rounding.TIES_TO_EVEN):
            sample = rng.permutation(codes.size)[:300]
            for given, places in ((x[sample], np.arange(300)), (x, sample)):  # long calls are read from a table
                got, flags = fs.softsign(given, rounding=rounding, return_flags=True)
                for i, code in zip(places, x.codes[sample], strict=True):
                    number, attributes = scalar.decode(int(code), fmt), RoundingAttributes(rounding)
                    if number.is_nan:
                        expected = scalar.nan_result(fmt, number)
                    elif number.is_infinite:
                        one = scalar.from_fraction(-1 if number.sign else 1)
                        expected = scalar.round_pack(one, fmt, attributes)
                    elif number.is_zero:
                        expected = code, 0
                    else:
                        exact = number.fraction / (1 + abs(number.fraction))
                        expected = scalar.round_pack(scalar.from_fraction(exact), fmt, attributes)
                    assert (got.codes[i], flags[i]) == (expected[0], expected[1] & FLAGS), (fmt, rounding, code)


ELEMENTWISE_CANDIDATE = '''
"""Products of FP4 numbers from a table of NumPy."""

import numpy as np

from floatsim.emulator.elementwise.kernel import Kernel
from floatsim.emulator.elementwise.operations import Family
from floatsim.formats import E2M1, FP32


class Products:
    """Reads exact products of FP4 numbers from a table."""

    name = "products"
    takes = frozenset({Family.ARITHMETIC})

    def refusal(self, case):
        if (case.name, case.sources, case.fmt) != ("multiply", (E2M1, E2M1), FP32) or case.events:
            return "only FP4 products in FP32, without events"
        return None if case.is_default else "only the default rounding"

    def kernel(self, case, plan):
        values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
        values = np.concatenate([values, -values])
        table = np.multiply.outer(values, values).view(np.uint32)

        def run(codes, out, events, draws):
            out[...] = table[codes[0], codes[1]]

        return Kernel(run)
'''


def test_a_fast_elementwise_kernel(tmp_path):
    copy = Copy(tmp_path)
    copy.create("floatsim/emulator/elementwise/products.py", ELEMENTWISE_CANDIDATE)
    candidates = "floatsim/emulator/elementwise/candidates.py"
    rounding = "from floatsim.emulator.elementwise.rounding import"
    copy.replace(candidates, rounding, f"from floatsim.emulator.elementwise.products import Products\n{rounding}")
    copy.replace(candidates, "    Native(),\n", "    Products(),\n    Native(),\n")
    assert copy.new_lines[candidates] == 2
    assert_recipe("A fast element-wise kernel", copy, "emulator/elementwise/kernel.py")
    copy.check("check_fast_elementwise_kernel")


def check_fast_elementwise_kernel() -> None:
    from floatsim.emulator.elementwise.candidates import only

    x, y = (fs.from_codes(codes.astype(np.uint8), "e2m1") for codes in np.indices((16, 16)))
    assert fs.explain_plan("multiply", x, y, format="fp32").candidate == "products"
    got = fs.multiply(x, y, format="fp32").codes
    with only("integers"):
        assert np.array_equal(got, fs.multiply(x, y, format="fp32").codes)
    plan = str(fs.explain_plan("multiply", x, y, format="fp32", rounding="rtz")).splitlines()
    assert "  not products: only the default rounding" in plan


def check_fast_kernel() -> None:
    assert check_sums("fp32", fs.FP16, fs.FP16) == "numpy"
    one = fs.array([[1.0]], "fp16")
    plan = str(fs.explain_plan(one, one, accumulate="fp16")).splitlines()
    assert "  not numpy: only FP16 products in FP32" in plan
    rounded = fs.explain_plan(one, one, accumulate="sequential(fp32, rounding=rtz)")
    assert "only FP16 products in FP32" in str(rounded)
    assert check_sums("fp32", fs.FP16, fs.BF16) == "native"


# -- an operator -------------------------------------------------------------------------------------------------------

OPERATOR = '''
@operator
def squared_relu(x: Floats, **keywords: Unpack[RecipeKeywords]) -> Any:
    """Return the square of the larger of x and 0.

    Parameters
    ----------
    x : array_like of floats
        A FloatArray or an array whose dtype is a format.
    {keywords}

    {results}

    Notes
    -----
    The steps: input, the conversion of x; activation = the larger of x and +0; square = activation * activation;
    output = the conversion of square.
    """
    with computation("squared_relu", x, keywords) as c:
        operand = c.operand("input", x)
        activation = c.value("activation", maximum, operand, c.number(0.0, operand))
        return c.result(c.converted("output", c.value("square", multiply, activation, activation)))


'''


def test_an_operator(tmp_path):
    copy = Copy(tmp_path)
    relu = '    "relu": _operator("input", "", standard=_ONCE),\n'
    steps = '    "squared_relu": _operator("input", "", standard="activation square output"),\n'
    copy.insert("floatsim/operators/steps.py", (relu, steps))
    activations = "floatsim/operators/activations.py"
    copy.insert(activations, ('"sigmoid", "silu", "softplus", ', '"squared_relu", '))
    copy.replace(activations, "@operator\ndef relu(", f"{OPERATOR.lstrip()}@operator\ndef relu(")
    copy.insert("floatsim/operators/__init__.py", ('"gelu relu sigmoid silu softplus ', "squared_relu "))
    copy.insert(
        "floatsim/operators/errors.py",
        ("operators.activations import gelu, relu, sigmoid, silu, softplus, ", "squared_relu, "),
        ("max_pool, avg_pool, embedding, relu, ", "squared_relu, "),
        ('**{name: ((logits,), {}) for name in ("relu", ', '"squared_relu", '),
    )
    assert_recipe("An operator", copy)
    shutil.copytree(ROOT / "data" / "digits", tmp_path / "data" / "digits")  # the operands of recipe_table
    copy.check("check_operator")


def check_operator() -> None:
    assert fs.operators.operator_steps("squared_relu").names == ("input", "activation", "square", "output")
    assert "recipe : Recipe or str, optional" in fs.operators.squared_relu.__doc__
    values = {code: Fraction(float(fs.decode(np.uint8(code), "e4m3"))) for code in range(0x7F)}
    x = fs.from_codes(np.array([code for code, value in values.items() if value <= 16], np.uint8), "e4m3")
    got = fs.operators.squared_relu(x)  # the square is exact in FP32
    assert got.codes.tolist() == [nearest(values[code] ** 2, values) for code in x.codes.tolist()]
    assert fs.operators.squared_relu(-x).codes.tolist() == [0] * x.size
    twice = fs.operators.squared_relu(x, formats={"square": "e5m2"})
    assert np.array_equal(twice.codes, fs.convert(fs.multiply(x, x, format="e5m2"), "e4m3").codes)
    (row,) = fs.operators.recipe_table(["squared_relu"], ["all-fp16"]).rows
    assert row.operator == "squared_relu"


# -- a quantization scheme ---------------------------------------------------------------------------------------------


def test_a_quantization_scheme(tmp_path):
    copy = Copy(tmp_path)
    mxfp6 = '    "mxfp6": Scheme(E3M2, (1, 32), E8M0, "floor"),\n'
    row = '    "mine": Scheme(E3M2, (1, 16), E8M0, "floor"),\n'
    copy.insert("floatsim/quantization/scheme.py", (mxfp6, row))
    assert copy.new_lines == {"floatsim/quantization/scheme.py": 1}
    assert_recipe("A quantization scheme", copy, "quantization/scales.py")
    copy.check("check_quantization_scheme")


def check_quantization_scheme() -> None:
    x = np.random.default_rng(2).normal(size=(5, 48)).astype(np.float32)
    quantized = fs.quantize_blocks(x, "mine")
    for i, j in np.ndindex(5, 3):
        block = x[i, 16 * j : 16 * j + 16]
        scale = 2.0 ** (leading(Fraction(float(np.abs(block).max()))) - fs.E3M2.emax)
        want = fs.encode(block / np.float32(scale), "e3m2", overflow="saturate_finite")
        assert np.array_equal(quantized.codes[i, 16 * j : 16 * j + 16], want)
        assert fs.dequantize_blocks(quantized)[i, 16 * j] == fs.decode(want, "e3m2")[0] * scale

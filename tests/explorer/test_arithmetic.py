"""The JavaScript arithmetic of the explorer under Node.js, compared with floatsim: codes, flags, steps, sums."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import struct
import subprocess
from fractions import Fraction
from pathlib import Path

import numpy as np
import oracles as o
import pytest

import floatsim as fs
from floatsim import reference
from floatsim.explorer import page_data
from floatsim.explorer.page import format_data as data_of
from floatsim.formats.call import CallOptions
from floatsim.formats.rounding import ABSORBED, FLAGS, Overflow, Rounding, RoundingAttributes, Tininess
from floatsim.reference import sums as reference_sums
from floatsim.reference.tensorcore import dot as reference_dot
from floatsim.tensorcore import ARCHITECTURES
from floatsim.testing.vectors.truth_tables import TRUTH_TABLES, stored_digests
from tests.marks import cases

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node.js, the program `node`")

SCRIPT = Path(__file__).parent / "run_arithmetic.js"
CUSTOM = [
    fs.FloatFormat.ieee(4, 2), fs.FloatFormat("finite", 3, 2, "finite"), fs.FloatFormat("fn", 5, 3, "fn", 10),
    fs.FloatFormat("fnuz", 3, 3, "fnuz"), fs.p3109(8, 3), fs.p3109(6, 3, signed=False),
    fs.p3109(7, 4, signed=False, extended=False), fs.FloatFormat("wide", 11, 30), fs.FloatFormat("no t", 4, 0, "fn"),
]  # fmt: skip
FORMATS = [*fs.named_formats(), *CUSTOM]
SIGNED = [fmt for fmt in FORMATS if fmt.signed]
OPERATIONS = {"convert": 1, "add": 2, "subtract": 2, "multiply": 2, "divide": 2, "fma": 3}
TABLES = [name for name, table in TRUTH_TABLES.items() if table.operation in OPERATIONS]


@pytest.fixture
def node(tmp_path):
    """Run jobs of run_arithmetic.js in one process and return their results."""

    def call(jobs):
        given, found = tmp_path / "jobs.json", tmp_path / "results.json"
        given.write_text(json.dumps(jobs), encoding="utf-8")
        subprocess.run([NODE, str(SCRIPT), str(given), str(found)], check=True, timeout=600)
        return json.loads(found.read_text(encoding="utf-8"))

    return call


def attributes_of(rng: random.Random) -> tuple[RoundingAttributes, int]:
    """Any rounding attributes, and the draw of a stochastic rounding."""
    attributes = RoundingAttributes(
        rng.choice(list(Rounding)), rng.choice(list(Overflow)), daz=rng.random() < 0.3, ftz=rng.random() < 0.3,
        tininess=rng.choice(list(Tininess)), random_bits=rng.choice([1, 8, 32]),
    )  # fmt: skip
    return attributes, rng.getrandbits(attributes.random_bits)


def options_of(attributes: RoundingAttributes, draw: int = 0) -> dict:
    return {
        "rounding": attributes.rounding.name.lower(), "overflow": attributes.overflow.name.lower(),
        "daz": attributes.daz, "ftz": attributes.ftz, "tininess": attributes.tininess.name.lower(),
        "randomBits": attributes.random_bits, "random": hex(draw),
    }  # fmt: skip


def some_code(rng: random.Random, fmt: fs.FloatFormat, near: int | None = None) -> int:
    """A code: anything, near a special one, or a number with an exponent near that of another code."""
    kind = rng.random()
    if near is not None and kind < 0.6:
        field = (near & fmt.magnitude_mask) >> fmt.trailing_bits
        field = max(0, min(field + rng.randint(-3, 3), (1 << fmt.exponent_bits) - 1))
        sign = rng.getrandbits(1) * fmt.sign_mask
        return sign | field << fmt.trailing_bits | rng.getrandbits(fmt.trailing_bits)
    if kind < 0.75:
        anchors = [0, 1, fmt.max_code, fmt.infinity_code or 0, fmt.canonical_nan or 0, 1 << fmt.trailing_bits]
        code = max(0, rng.choice(anchors) + rng.randint(-1, 1)) | rng.getrandbits(1) * fmt.sign_mask
        return code & ((1 << fmt.bits) - 1)
    return rng.getrandbits(fmt.bits)


def test_facts_of_formats(node):
    """What follows from the widths, the bias and the kind of special codes."""
    jobs, expected = [], []
    for fmt in FORMATS:
        jobs += [["facts", data_of(fmt)], ["facts", {**data_of(fmt), "bias": None}]]
        own = fs.FloatFormat("x", fmt.exponent_bits, fmt.trailing_bits, fmt.specials)
        for each in (fmt, own):
            codes = {"maxCode": each.max_code, "infinityCode": each.infinity_code, "canonicalNan": each.canonical_nan,
                     "quietBit": each.quiet_bit}  # fmt: skip
            expected.append({
                "bits": each.bits, "emin": each.emin, "emax": each.emax, "bias": each.bias, "signed": each.signed,
                "hasSignedZero": each.has_signed_zero, "hasSubnormals": each.has_subnormals,
                "layout": each.layout.replace(" ", ""),
                **{name: code if code is None else hex(code) for name, code in codes.items()},
            })  # fmt: skip
    assert node(jobs) == expected


def value_of(x: reference.Number) -> float:
    if x.kind is reference.Kind.FINITE:
        return -0.0 if x.is_zero and x.sign else float(x.fraction)
    return float("nan") if x.is_nan else float("-inf" if x.sign else "inf")


def every_code(fmt: fs.FloatFormat, daz: bool) -> str:
    """The digest of what run_arithmetic.js writes for every code of a format."""
    names, digest = ["ZERO", "SUBNORMAL", "NORMAL", "INFINITY"], hashlib.sha256()
    for code in range(1 << fmt.bits):
        number = reference.decode(code, fmt, daz)
        value = b"\0\0\0\0\0\0\xf8\x7f" if number.is_nan else struct.pack("<d", value_of(number))
        converted = reference.convert(number, fmt, RoundingAttributes())[0]
        up, down = (step(code, fmt, daz)[0] for step in (reference.next_up, reference.next_down))
        sign, kind = reference.classify(code, fmt).name.split("_", 1)
        which = 4 + (sign == "SIGNALING") if kind == "NAN" else names.index(kind)
        digest.update(value + struct.pack("<QQQB", converted, up, down, which))
    return digest.hexdigest()


@pytest.mark.parametrize("most", cases(quick=[6], full=[8, 16]))
def test_every_code(node, most):
    """The value, the conversion, both neighbours and the class of all codes, with and without DAZ."""
    chosen = [(fmt, daz) for fmt in FORMATS if fmt.bits <= most for daz in (False, True)]
    found = node([["every_code", data_of(fmt), daz] for fmt, daz in chosen])
    wrong = [(fmt.name, daz) for (fmt, daz), got in zip(chosen, found, strict=True) if got != every_code(fmt, daz)]
    assert not wrong


@pytest.mark.parametrize(
    "names", cases(quick=[pytest.param(["add-e4m3"], id="one")],
                   full=[pytest.param(TABLES, id=f"all {len(TABLES)}")])
)  # fmt: skip
def test_truth_digests(node, names):
    """Whole tables of operations have the digests that floatsim ships, whose every entry equals MPFR's."""
    jobs = []
    for table in map(TRUTH_TABLES.__getitem__, names):
        source, target = map(data_of, table.formats)
        jobs.append(["truth", table.operation, source, target, table.operands, {"overflow": table.overflow}])
    stored = stored_digests()
    assert dict(zip(names, node(jobs), strict=True)) == {name: stored[name] for name in names}


@pytest.mark.parametrize("count", cases(quick=[2_000], full=[1_000_000]))
def test_conversions_of_fp32(node, tmp_path, count):
    """Random FP32 codes, converted to narrower formats in every rounding mode that needs no draw."""
    rng = np.random.default_rng(o.test_seed())
    codes = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    codes[::3] = (codes[::3] & 0x807FFFFF) | (rng.integers(96, 145, len(codes[::3]), dtype=np.uint32) << 23)
    file = tmp_path / "codes"
    file.write_bytes(codes.astype("<u4").tobytes())
    modes = [mode for mode in Rounding if mode is not Rounding.STOCHASTIC]
    targets = [fs.FP16, fs.BF16, fs.E4M3, fs.E5M2, fs.TF32, fs.E2M1]
    jobs, expected = [], []
    for n, (mode, target) in enumerate(zip(modes, targets, strict=True)):
        attributes = RoundingAttributes(mode, list(Overflow)[n % 3], ftz=n == 3, daz=n == 4)
        jobs.append(["convert_file", str(file), data_of(fs.FP32), data_of(target), options_of(attributes)])
        found, flags = fs.convert(
            fs.from_codes(codes, "fp32"), target, rounding=mode, overflow=attributes.overflow, ftz=attributes.ftz,
            daz=attributes.daz, tininess="after", return_flags=True,
        )  # fmt: skip
        rows = np.zeros(count, np.dtype([("code", "<u8"), ("flags", "u1")]))
        rows["code"], rows["flags"] = found.codes, flags
        expected.append(hashlib.sha256(rows.tobytes()).hexdigest())
    assert node(jobs) == expected


@pytest.mark.parametrize("count", cases(quick=[1_000], full=[100_000]))
def test_operations(node, count):
    """Operations on codes of all formats in every mode, policy and tininess rule: code, flags and events."""
    rng = random.Random(o.test_seed())
    jobs, expected = [], []
    for i in range(count):
        name = list(OPERATIONS)[i % len(OPERATIONS)]
        fmt = rng.choice(FORMATS if name == "convert" else SIGNED)
        target = rng.choice(FORMATS if name == "convert" else [fmt, rng.choice(SIGNED)])
        attributes, draw = attributes_of(rng)
        codes = [some_code(rng, fmt)]
        codes += [some_code(rng, fmt, codes[0]) for _ in range(OPERATIONS[name] - 1)]
        operands = [reference.decode(code, fmt, attributes.daz) for code in codes]
        jobs.append(["operation", name, [[hex(code), data_of(fmt)] for code in codes], data_of(target),
                     options_of(attributes, draw)])  # fmt: skip
        code, events = getattr(reference, name)(*operands, target, attributes, draw)
        expected.append([hex(code), events])
    found = node(jobs)
    wrong = [(job, got, want) for job, got, want in zip(jobs, found, expected, strict=True) if got != want]
    assert not wrong, f"{len(wrong)} of {count}, such as {wrong[0]}"


TEXTS = [
    "0.1", "-0.1", "1e-3", "1E5", ".5", "5.", "1_000", "1/3", "-22/7", "2/4", "0/5", "0x1.8p3", "-0x.8p-3",
    "0x1p-1074", "inf", "-Infinity", "nan", "snan", "+nan", "1e400", "1e-400", "1e999999", "0", "-0", "-0.0", "1e-5000",
    "123456789012345678901234567890", "0.30000000000000004", "65519.999999999999999999999",
]  # fmt: skip
BAD_TEXTS = ["", "abc", "1/0", "0x12", "1..2", "1e", "--1", "1 2", "0x", "0xp1", "1__0", "/3", "e5"]


def test_parse(node):
    """Texts are the exact numbers that they are for floatsim; bad ones are refused."""
    powers = ["2^-24", "-2**10"]
    parsed = node([["parse", text] for text in (*TEXTS, *BAD_TEXTS, *powers)])
    for text, found in zip(TEXTS, parsed, strict=False):
        x = reference.from_text(text)
        kind = {"QUIET_NAN": "nan", "SIGNALING_NAN": "snan"}.get(x.kind.name, x.kind.name.lower())
        assert found[:2] == [kind, x.sign], text
        if kind == "finite":
            assert (int(found[2], 16), found[4]) == (x.significand, x.sticky) or (
                not x.sticky and int(found[2], 16) * 2 ** (found[3] - x.exponent) == x.significand
            ), text
            assert x.is_zero or found[3] == x.exponent or not x.sticky, text
    assert parsed[len(TEXTS) : -2] == ["not_a_number"] * len(BAD_TEXTS)
    for text in BAD_TEXTS:
        with pytest.raises(ValueError, match="not a number"):
            reference.from_text(text)
    assert parsed[-2:] == [["finite", 0, "0x1", -24, False], ["finite", 1, "0x1", 10, False]]


def test_bad_formats_are_refused(node):
    """What fs.FloatFormat refuses, and the field that is wrong."""
    bad = [
        (0, 3, "ieee", None, "exponent_bits"), (12, 3, "ieee", None, "exponent_bits"),
        (5, 53, "ieee", None, "trailing_bits"), (5, 0, "ieee", None, "specials"), (1, 3, "ieee", None, "specials"),
        (8, 1, "scale", None, "trailing_bits"), (11, 52, "ieee", 2000, "bias"), (11, 52, "ieee", -5, "bias"),
        (1, 0, "fn", None, "exponent_bits"),
    ]  # fmt: skip
    for w, t, specials, bias, _ in bad:
        with pytest.raises(ValueError):
            fs.FloatFormat("x", w, t, specials, bias)
    of_the_page = [("5", "x", "ieee", None, "trailing_bits"), (5, 10, "none", None, "specials")]  # texts of fields
    found = node([["bad_format", *case[:4]] for case in (*bad, *of_the_page)])
    assert found == [case[4] for case in (*bad, *of_the_page)]


def test_text_of_numbers(node):
    """All decimal digits and the hexadecimal text of numbers equal Python's."""
    rng = random.Random(1)
    numbers = []
    for fmt in fs.named_formats():
        codes = [0, 1, fmt.sign_mask, fmt.max_code, *(rng.getrandbits(fmt.bits) for _ in range(8))]
        numbers += [(fmt, code) for code in codes if reference.decode(code, fmt).kind is reference.Kind.FINITE]
    found = node([["text", hex(code), data_of(fmt)] for fmt, code in numbers])
    for (fmt, code), (decimal, hexadecimal) in zip(numbers, found, strict=True):
        value = value_of(reference.decode(code, fmt))
        assert reference.from_text(decimal).fraction == reference.decode(code, fmt).fraction
        assert (float(decimal), decimal.startswith("-")) == (value, str(value).startswith("-"))
        assert "e" not in decimal
        assert float.fromhex(hexadecimal) == value


@pytest.mark.parametrize("count", cases(quick=[60], full=[5_000]))
def test_steps_of_operations(node, count):
    """The rows of bits of every step are those of fs.explain_add, explain_multiply and explain_fma."""
    explain = {"add": fs.explain_add, "multiply": fs.explain_multiply, "fma": fs.explain_fma}
    rng = random.Random(o.test_seed())
    jobs, expected = [], []
    for i in range(count):
        name = list(explain)[i % 3]
        fmt = rng.choice(SIGNED)
        attributes, _ = attributes_of(rng)
        if attributes.rounding is Rounding.STOCHASTIC:
            attributes = RoundingAttributes()
        codes = [some_code(rng, fmt)]
        codes += [some_code(rng, fmt, codes[0]) for _ in range(OPERATIONS[name] - 1)]
        told = explain[name](
            *fs.from_codes(codes, fmt), rounding=attributes.rounding, overflow=attributes.overflow,
            daz=attributes.daz, ftz=attributes.ftz, tininess=attributes.tininess,
        )  # fmt: skip
        steps = [
            [step.name, [[row.name, row.sign, row.bits, row.first, row.exponent, row.kept] for row in step.rows]]
            for step in told.steps
        ]
        special = steps[1][0] == "special values"
        expected.append({
            "code": hex(told.code), "flags": told.flags, "aligned": told.aligned, "normalized": told.normalized,
            "steps": [["special", []]] if special else steps,
        })  # fmt: skip
        jobs.append(["explain", name, [hex(code) for code in codes], data_of(fmt), options_of(attributes)])
    for job, got, want in zip(jobs, node(jobs), expected, strict=True):
        assert got == want, job


def test_steps_of_a_quotient(node):
    """The bits of a quotient are exact, or followed by a sticky bit, and round to the quotient of floatsim."""
    rng = random.Random(2)
    jobs = []
    for _ in range(60):
        fmt = rng.choice([fs.FP16, fs.BF16, fs.E4M3, fs.FP32])
        codes = [some_code(rng, fmt), some_code(rng, fmt)]
        options = options_of(RoundingAttributes())
        jobs.append(["explain", "divide", [hex(code) for code in codes], data_of(fmt), options])
    for job, told in zip(jobs, node(jobs), strict=True):
        fmt = next(f for f in FORMATS if f.name == job[3]["name"])
        a, b = (reference.decode(int(code, 16), fmt) for code in job[2])
        code, events = reference.divide(a, b, fmt, RoundingAttributes())
        assert (told["code"], told["flags"]) == (hex(code), events & FLAGS)
        rows = dict(told["steps"]).get("divide")
        if rows:
            _, sign, bits, first, exponent, _ = rows[0]
            low = int(bits, 2) * Fraction(2) ** (exponent - (len(bits) - first - 1))
            step = Fraction(2) ** (exponent - (len(bits) - first - 1))
            assert low <= abs(a.fraction / b.fraction) < low + step
            assert sign == a.sign ^ b.sign


ORDERS = {
    "sequential": fs.Sequential, "reverse": lambda fmt: fs.Permuted("reversed", fs.Sequential(fmt)),
    "pairwise": fs.Pairwise, "kahan": fs.Kahan, "exact": fs.Exact,
}  # fmt: skip


@pytest.mark.parametrize("count", cases(quick=[80], full=[3_000]))
def test_sums(node, count):
    """Sums of n terms in every order, accumulator and mode, special values included."""
    rng = random.Random(o.test_seed())
    jobs, expected = [], []
    for i in range(count):
        order = list(ORDERS)[i % len(ORDERS)]
        source, fmt = rng.choice(SIGNED), rng.choice([fs.FP32, fs.FP16, fs.BF16, fs.E4M3, fs.E5M2, fs.E2M1])
        attributes, _ = attributes_of(rng)
        if attributes.rounding is Rounding.STOCHASTIC:
            attributes = RoundingAttributes()
        attributes = RoundingAttributes(attributes.rounding, Overflow.INFINITY, attributes.daz, attributes.ftz)
        codes = [some_code(rng, source) for _ in range(rng.choice([0, 1, 2, 3, 7, 20]))]
        if rng.random() < 0.7:
            codes = [code for code in codes if reference.decode(code, source).kind is reference.Kind.FINITE]
        terms = [(reference_sums.Code(code, source), None) for code in codes]
        wanted = reference_sums.accumulate(ORDERS[order](fmt), terms, CallOptions(attributes))
        given = [hex(code) for code in codes]
        jobs.append(["sum", given, data_of(source), order, data_of(fmt), options_of(attributes)])
        expected.append(hex(wanted.code))
    for job, got, want in zip(jobs, node(jobs), expected, strict=True):
        assert got == want, job


def test_stochastic_sum_draws_for_each_rounding(node):
    rng = random.Random(3)
    attributes = RoundingAttributes(Rounding.STOCHASTIC, random_bits=8)
    codes, draws, acc = [0x3C00] * 3000, [rng.getrandbits(8) for _ in range(3000)], 0
    one = reference.decode(0x3C00, fs.FP16)
    for draw in draws:
        acc, _ = reference.add(reference.decode(acc, fs.FP16), one, fs.FP16, attributes, draw)
    fp16, given = data_of(fs.FP16), [hex(code) for code in codes]
    assert node([["sum", given, fp16, "sequential", fp16, options_of(attributes), draws]]) == [hex(acc)]
    assert float(fs.decode(acc, "fp16")) > 2048


def test_absorbed_terms_of_a_sum(node):
    """A sum of ones in FP16 stops at 2048: the terms that it absorbs are those that the reference counts."""
    one = reference_sums.Code(0x3C00, fs.FP16)
    wanted = reference_sums.accumulate(fs.Sequential("fp16"), [(one, None)] * 2100, CallOptions(RoundingAttributes()))
    counted = sum(n for events, n in wanted.counts["sum"].items() if events & ABSORBED)
    (absorbed,) = node([["absorbed", ["0x3c00"] * 2100, data_of(fs.FP16), data_of(fs.FP16)]])
    assert (absorbed[0], len(absorbed)) == (wanted.first["absorbed"], counted) == (2048, 52)


@pytest.mark.parametrize("count", cases(quick=[10], full=[300]))
def test_blocks_of_hopper(node, count):
    """One block of each of Hopper's wgmma instructions: D, events, the largest exponent and the truncated terms."""
    rng = random.Random(o.test_seed())
    instructions = ARCHITECTURES["hopper"].instructions
    rows = {(row.name, fmt.name, row.output.name): row for row in instructions for fmt in row.inputs}
    jobs, expected = [], []
    for unit in page_data()["instructions"]:
        row = rows[unit["name"], unit["input"], unit["output"]]
        fmt, output = fs.as_format(unit["input"]), row.output
        for _ in range(count):
            near = some_code(rng, fmt)
            a, b = ([some_code(rng, fmt, near) for _ in range(unit["terms"])] for _ in range(2))
            if rng.random() < 0.8:
                finite = {x for x in (*a, *b) if reference.decode(x, fmt).kind is reference.Kind.FINITE}
                a, b = ([x if x in finite else 0 for x in side] for side in (a, b))
            c = rng.choice([0, reference.convert(reference.decode(near, fmt), output, RoundingAttributes())[0]])
            (step,) = reference_dot.dot(row, a, b, fmt, fmt, c).steps
            jobs.append(["unit", unit, [hex(x) for x in a], [hex(x) for x in b], hex(c), data_of(fmt), data_of(output)])
            expected.append({"code": hex(step.code), "events": step.events, "exponent": step.exponent,
                             "kept": [str(n) for n, _ in step.kept]})  # fmt: skip
    for job, got, want in zip(jobs, node(jobs), expected, strict=True):
        assert got == want, job


@pytest.mark.parametrize("count", cases(quick=[4], full=[100]))
def test_block_scales(node, count):
    """Scales, codes and values of each scheme of the page equal those of fs.quantize_blocks."""
    rng = np.random.default_rng(o.test_seed())
    tensors = [np.zeros(32, np.float32), np.full(40, 1e-42, np.float32)]
    for _ in range(count):
        x = rng.standard_normal(64) * 2.0 ** rng.integers(-60, 60)
        x[rng.integers(64)] *= 2.0 ** rng.integers(0, 30)
        tensors.append(x.astype(np.float32))
    jobs, expected = [], []
    names = {"tensor": "e4m3"}
    for scheme in page_data()["schemes"]:
        formats = [data_of(fs.as_format(scheme[name])) for name in ("format", "scaleFormat")]
        for x in tensors:
            q = fs.quantize_blocks(x, names.get(scheme["name"], scheme["name"]))
            codes = [hex(int(code)) for code in x.view(np.uint32)]
            jobs.append(["blocks", codes, scheme, formats, data_of(fs.FP32)])
            own = getattr(q, "tensor_scale", None)
            expected.append({
                "scales": [hex(int(code)) for code in np.ravel(q.scales.codes)],
                "codes": [hex(int(code)) for code in q.codes],
                "values": [hex(int(bits)) for bits in q.values.view(np.uint64)],
                "tensorScale": None if own is None else hex(int(np.float64(own.values).view(np.uint64))),
            })  # fmt: skip
    for job, got, want in zip(jobs, node(jobs), expected, strict=True):
        assert got == want, job

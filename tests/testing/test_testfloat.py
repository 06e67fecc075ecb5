"""The pipe of Berkeley TestFloat: the text, the operations, and lines of its documentation."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs
from floatsim.formats.rounding import FLAGS
from floatsim.reference import scalar
from floatsim.testing.vectors.testfloat import ROUNDINGS, TESTFLOAT, as_testfloat, mismatches
from floatsim.testing.vectors.testfloat_text import blocks, format_lines, parse_lines

ROOT = Path(__file__).parents[2]
DOCUMENTED = (
    "3F90EB5825D6851E C3E0080080000000 C3E0080080000000 01\n41E3C00000000000 C182024F8AE474A8 41E377F6C1D46E2D 01\n"
    "7FD80FFFFFFFFFFF 7FEFFFFFFFFFFF80 7FF0000000000000 05\n3FFFED6A25C534BE 3CA1000000020000 3FFFED6A25C534BF 01\n"
)
"""The lines of f64_add in the documentation of testfloat_gen, release 3d."""
OPERANDS = "".join(" ".join(line.split()[:2]) + "\n" for line in DOCUMENTED.splitlines())


@pytest.fixture
def answer(run, monkeypatch):
    """(exit code, bytes of stdout, stderr) of the command for the text on stdin."""

    def call(text, *arguments):
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8"))
        monkeypatch.setattr(sys, "stdout", out)
        code, _, err = run("testfloat", *arguments)
        return code, out.buffer.getvalue().decode(), err

    return call


@pytest.mark.full
def test_lines_of_the_documentation(answer):
    assert answer(OPERANDS, "f64_add") == (0, DOCUMENTED, "")
    assert answer(DOCUMENTED, "f64_add") == (0, "4 lines, no mismatches\n", "")


@pytest.mark.full
def test_mismatches_are_reported(answer):
    wrong = DOCUMENTED.replace("7FF0000000000000 05", "7FEFFFFFFFFFFFFF 05").replace("534BF 01", "534BF 00")
    code, out, _ = answer(wrong, "f64_add")
    assert code == 1
    assert out.splitlines()[0].endswith("7FEFFFFFFFFFFFFF 05: expected 7FF0000000000000 05")
    assert out.splitlines()[-1] == "4 lines, 2 mismatches"
    code, out, _ = answer(wrong, "f64_add", "--json", "--errors", "1")
    assert code == 1
    assert json.loads(out)["mismatches"] == 2
    assert [row["line"] for row in json.loads(out)["first"]] == [3]


@pytest.mark.parametrize(("text", "arguments", "message"), [
    ("", ["f32_add"], "there are no lines of f32_add"),
    ("3F800000\n", ["f32_add"], "the first line has 1 columns; f32_add has 2 operands, and with results 4 columns"),
    ("3F800000 1\n3F800000 x\n", ["f32_add"], "line 2 is '3F800000 x'; it must have 2 numbers"),
    ("3F800000 1\n3F800000\n", ["f32_add"], "line 2 is '3F800000'"),
    ("1FFFFFFFF 1\n", ["f32_add"], "line 1 is '1FFFFFFFF 1'"),
    ("\n", ["f32_add"], "the first line has 0 columns"),
    ("1 1\n", ["f32_ad"], "FUNCTION: unknown function 'f32_ad'; did you mean 'f32_add'?"),
    ("1 1\n", ["f32_add", "--rounding", "up"], "--rounding: 'up' is not known"),
    ("1 1\n", ["f32_add", "--tininess", "never"], "--tininess"),
    ("1 1\n", ["f32_add", "--input", "no.txt"], "--input: no.txt cannot be read"),
    ("1 1\n", ["f32_add", "--json"], "--json needs lines with results"),
])  # fmt: skip
def test_bad_input(answer, text, arguments, message):
    code, out, err = answer(text, *arguments)
    assert code == 2
    assert out == "" or "error" in json.loads(out)
    assert message in err
    assert err.count("\n") == 1


def test_lines_of_any_width_are_read():
    assert [x.tolist() for x in parse_lines(b"3c00 1\r\n0 1F\n", [16, 8])] == [[0x3C00, 0], [1, 31]]


def test_blocks_keep_every_line():
    text = b"".join(b"%X %X\n" % (i, i * i) for i in range(500))
    for size in (1, 7, 64, 10**6):
        assert b"".join(blocks(io.BytesIO(text[:-1]), size)) == text
    with pytest.raises(ValueError, match="a line has more than"):
        list(blocks(io.BytesIO(b"1" * (1 << 21)), 1 << 16))


def test_text_and_columns_are_inverse():
    rng = np.random.default_rng(0)
    columns = [rng.integers(0, 1 << bits, 1000, np.uint64).astype(f"u{bits // 8}") for bits in (8, 16, 32)]
    read = parse_lines(format_lines(columns), [8, 16, 32])
    assert all(np.array_equal(x, y) and x.dtype == y.dtype for x, y in zip(columns, read, strict=True))


REFERENCE = {
    "add": scalar.add, "sub": scalar.subtract, "mul": scalar.multiply, "div": scalar.divide, "rem": scalar.remainder,
    "sqrt": scalar.sqrt, "mulAdd": scalar.fma,
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
def test_arithmetic_equals_the_reference(kind, rounding):
    fmt = {"f16": fs.FP16, "f32": fs.FP32, "f64": fs.FP64}[kind]
    rng = np.random.default_rng(1)
    for tininess in ("after", "before"):
        attributes = scalar.RoundingAttributes(
            fs.Rounding[ROUNDINGS[rounding].upper()], tininess=fs.Tininess[tininess.upper()]
        )
        for name, function in REFERENCE.items():
            operation = as_testfloat(f"{kind}_{name}")
            columns = [rng.integers(0, 1 << fmt.bits, 100, np.uint64, endpoint=False).astype(f"u{fmt.bits // 8}")
                       if fmt.bits < 64 else rng.integers(0, (1 << 64) - 1, 100, np.uint64, endpoint=True)
                       for _ in operation.operands]  # fmt: skip
            results, flags = operation.evaluate(columns, rounding, tininess)
            for row in zip(*columns, results, flags, strict=True):
                *codes, result, raised = map(int, row)
                code, events = function(*(scalar.decode(c, fmt) for c in codes), fmt, attributes)
                assert (result, raised) == (code, events & FLAGS), (name, row)


CASES = [  # IEEE 754-2019 and SoftFloat: function, operands, options, result, flags
    ("f32_to_i32", [0x4F000000], {}, 0x7FFFFFFF, 16), ("f32_to_i32", [0xCF000000], {}, 0x80000000, 0),
    ("f32_to_i32", [0x7FC00000], {}, 0x7FFFFFFF, 16), ("f32_to_i32", [0x3F000000], {}, 0, 0),
    ("f32_to_i32", [0x3F000000], {"exact": True}, 0, 1),
    ("f32_to_i32", [0x3F000000], {"rounding": "near_maxMag"}, 1, 0),
    ("f32_to_i32", [0x3F000000], {"rounding": "odd"}, 0, 0), ("f32_to_ui32", [0xBF800000], {}, 0, 16),
    ("f64_to_ui64", [0x7FF0000000000000], {}, 0xFFFFFFFFFFFFFFFF, 16), ("i32_to_f32", [0xFFFFFFFF], {}, 0xBF800000, 0),
    ("i64_to_f16", [0x7FFFFFFFFFFFFFFF], {}, 0x7C00, 5), ("ui64_to_f32", [0xFFFFFFFFFFFFFFFF], {}, 0x5F800000, 1),
    ("f16_roundToInt", [0x3E00], {}, 0x4000, 0), ("f16_roundToInt", [0x3E00], {"exact": True}, 0x4000, 1),
    ("f16_roundToInt", [0xB800], {"rounding": "odd"}, 0x8000, 0), ("f64_to_f16", [0x3F00000000000001], {}, 0x0200, 3),
    ("f16_eq", [0x7E00, 0x7E00], {}, 0, 0), ("f16_eq_signaling", [0x7E00, 0x7E00], {}, 0, 16),
    ("f16_lt", [0x7E00, 0], {}, 0, 16), ("f16_lt_quiet", [0x7E00, 0], {}, 0, 0), ("f16_le", [0x8000, 0], {}, 1, 0),
    ("f16_mul", [0x03FF, 0x3C01], {}, 0x0400, 1), ("f16_mul", [0x03FF, 0x3C01], {"tininess": "before"}, 0x0400, 3),
]  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize(("name", "operands", "options", "result", "flags"), CASES)
def test_definitions(name, operands, options, result, flags):
    operation = as_testfloat(name)
    columns = [np.array([x], f"u{bits // 8}") for x, bits in zip(operands, operation.operands, strict=True)]
    found = operation.evaluate(columns, **options)
    assert (int(found[0][0]), int(found[1][0])) == (result, flags)
    assert 8 * found[0].dtype.itemsize == operation.result


def test_invalid_conversions_may_give_either_end():
    operation = as_testfloat("f32_to_i32")
    expected = np.array([0x7FFFFFFF] * 3, np.uint32), np.array([16, 16, 0], np.uint8)
    given = np.array([0x80000000, 0, 0x80000000], np.uint32), expected[1]
    assert mismatches(operation, expected, given).tolist() == [1, 2]
    assert mismatches(operation, expected, given, check_nans=True).tolist() == [0, 1, 2]


@pytest.mark.full
@pytest.mark.parametrize("name", TESTFLOAT)
def test_every_function_checks_its_own_lines(name):
    operation = TESTFLOAT[name]
    rng = np.random.default_rng(2)
    columns = [np.frombuffer(rng.bytes(500 * bits // 8), f"u{bits // 8}") for bits in operation.operands]
    results = operation.evaluate(columns)
    text = format_lines([*columns, *results])
    read = parse_lines(text, [*operation.operands, operation.result, 8])
    assert not mismatches(operation, results, (read[-2], read[-1]), True).size

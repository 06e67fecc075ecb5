"""Test vectors of hardware units: operands, files of every type, and the comparison with a simulation's results."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs
from floatsim.formats.rounding import FLAGS
from floatsim.reference import scalar
from floatsim.testing.vectors.corner_inputs import corner_codes, operand_blocks
from floatsim.testing.vectors.hardware_unit import UNIT_OPERATIONS
from floatsim.testing.vectors.testfloat import as_testfloat, mismatches
from floatsim.testing.vectors.testfloat_text import parse_lines
from floatsim.testing.vectors.vector_files import FILE_TYPES, VectorWriter, as_file_type, read_results
from tests.marks import cases

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "to_bf16"
FORMATS = ("e4m3", "e5m2", "e4m3fnuz", "e2m1", "e3m2", "e8m0", "fp16", "tf32", "fp64", "ieee(4,3)")


def text_of(unit, kind, count=20, **options):
    out = io.BytesIO()
    written, sha256 = unit.write(out, FILE_TYPES[kind], count, **options)
    assert sha256 == hashlib.sha256(out.getvalue()).hexdigest()
    assert written == (count if count is not None else written)
    return out.getvalue().decode()


# -- operands and results ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_corner_codes(name):
    fmt = fs.as_format(name)
    codes = corner_codes(fmt)
    values = fs.from_codes(np.array(codes, fmt.code_dtype), fmt).values
    assert len(set(codes)) == len(codes)
    assert {fmt.max, fmt.smallest_subnormal if fmt.has_subnormals else fmt.smallest_normal, 1.0} <= set(values)
    assert not fmt.has_zero or 0.0 in values
    assert not fmt.has_infinity or np.isinf(values).any()
    assert not fmt.has_nan or np.isnan(values).any()


@pytest.mark.parametrize("name", cases(quick=["e4m3", "e3m2"], full=FORMATS))
def test_ties_and_overflow_boundaries_are_met(name):
    """In every format of at least two bits of precision, sums, products and conversions have ties."""
    fmt = fs.as_format(name)
    source = (fmt, fmt)
    for operation, sources in (("add", source), ("multiply", source), ("convert", (fs.FP64,))):
        if fmt.is_scale or (name == "fp64" and operation == "convert"):
            continue
        found = operand_blocks(operation, sources, fmt)
        next(found)
        columns = [fs.from_codes(x, f) for x, f in zip(next(found), sources, strict=True)]

        def call(rounding, overflow="infinity", operation=operation, columns=columns):
            if operation == "convert":
                return fs.convert(columns[0], fmt, rounding=rounding, overflow=overflow, return_flags=True)
            return getattr(fs, operation)(*columns, rounding=rounding, overflow=overflow, return_flags=True)

        (even, flags), (away, _) = call("ties_to_even"), call("ties_to_away")
        assert (even.codes != away.codes).sum() > 50, operation
        assert (flags & 4).any(), operation
        assert (flags & 2).any() or operation != "multiply", operation


def test_first_vectors_of_a_larger_set_are_those_of_a_smaller_one():
    for unit in (fs.testing.hardware_unit("fma", "e5m2"), fs.testing.hardware_unit("dot", "fp16", accumulate="ampere")):
        small, large = unit.vectors(40), unit.vectors(5000)
        assert all((x == y[:40]).all() for x, y in zip(small, large, strict=True))
        assert unit.digest(5000, 1) != unit.digest(5000, 2)
        assert unit.digest(5000, 1) == unit.digest(5000, 1)


def test_digests_are_the_same_on_every_machine():
    assert fs.testing.hardware_unit("add", "e4m3").digest(5000, 7)[:16] == "8e0b14dafbfbbdbd"
    assert fs.testing.hardware_unit("convert", "fp32", "bf16").digest(5000)[:16] == "bbba40884173dec3"
    assert fs.testing.hardware_unit("dot", "e4m3", accumulate="hopper").digest(5000)[:16] == "e0538357d509033c"


@pytest.mark.parametrize(
    ("operation", "name"), [("add", "e4m3fnuz"), ("fma", "e3m2"), ("divide", "bf16"), ("sqrt", "fp16")]
)
def test_results_are_those_of_the_reference(operation, name):
    fmt = fs.as_format(name)
    unit = fs.testing.hardware_unit(operation, name, overflow="saturate_finite", rounding="RTZ")
    *operands, result, flags = unit.vectors(400)
    attributes = scalar.RoundingAttributes(fs.Rounding.TOWARD_ZERO, fs.Overflow.SATURATE_FINITE)
    for row in zip(*operands, result, flags, strict=True):
        numbers = [scalar.decode(int(code), fmt) for code in row[:-2]]
        code, events = getattr(scalar, operation)(*numbers, fmt, attributes)
        assert (code, events & FLAGS) == (int(row[-2]), int(row[-1]))


def test_lines_of_testfloat_agree_with_its_operations():
    for operation, ours in (("f32_mulAdd", "fma"), ("f16_div", "divide"), ("f64_sub", "subtract")):
        known = as_testfloat(operation)
        unit = fs.testing.hardware_unit(ours, f"fp{known.result}")
        bits = [*known.operands, known.result, 8]
        columns = parse_lines(text_of(unit, "testfloat", 2000).encode(), bits)
        expected = known.evaluate(columns[:-2])
        assert len(columns[0]) == 2000
        assert not len(mismatches(known, expected, (columns[-2], columns[-1]), check_nans=True))


def test_all_operands():
    unit = fs.testing.hardware_unit("multiply", "e2m1")
    a, b, result, _ = unit.vectors()
    assert len(a) == 256
    assert (result == fs.multiply(fs.from_codes(a, "e2m1"), fs.from_codes(b, "e2m1")).codes).all()
    with pytest.raises(ValueError, match="have 32 bits; all operands are listed up to 24"):
        fs.testing.hardware_unit("add", "fp16").vectors()


def test_conversions_to_and_from_integers():
    x, result, flags = fs.testing.hardware_unit("convert", "int16", "e4m3").vectors(500)
    values = fs.from_codes(result, "e4m3").values
    small = np.abs(x.view(np.int16).astype(int)) <= 16
    assert (values[small] == x.view(np.int16)[small]).all()
    assert not flags[small].any()
    x, result, flags = fs.testing.hardware_unit("convert", "fp16", "int8").vectors(500)
    floats = fs.from_codes(x, "fp16").values.astype(float)
    inside = np.abs(floats) < 127
    assert (result.view(np.int8)[inside] == np.rint(floats[inside])).all()
    assert (flags[~inside & ~((floats >= -128.5) & (floats < 127.5))] == 16).all()


@pytest.mark.parametrize("operation", cases(quick=["rint", "exp", "less", "dot", "gelu"], full=UNIT_OPERATIONS))
def test_every_operation_has_vectors(operation):
    options = {"to": "e5m2"} if operation == "convert" else {"accumulate": "fp32"} if operation == "dot" else {}
    unit = fs.testing.hardware_unit(operation, "e4m3", **options)
    columns = unit.vectors(50)
    assert all(len(x) == 50 for x in columns)
    assert len(columns) == len(unit.columns)


@pytest.mark.parametrize("rounding", cases(quick=["ties_to_even"], full=["toward_negative", "toward_zero", "to_odd"]))
@pytest.mark.parametrize(
    ("operation", "name", "to"),
    [("divide", "ieee(5,11)", None), ("sqrt", "e4m3", "fp32"), ("reciprocal", "e3m2", None),
     ("remainder", "bf16", None), ("fmod", "fp16", "e5m2")],
)  # fmt: skip
def test_explanations_of_exact_results(operation, name, to, rounding):
    """The explanation of a quotient, root or remainder ends with the code and the flags of the vector."""
    unit = fs.testing.hardware_unit(operation, name, to, rounding=rounding, daz=True)
    skip = unit.corner_cases()
    *operands, result, flags = (x[skip - 10 :] for x in unit.vectors(skip + 60))
    explained = 0
    for *codes, expected, raised in zip(*operands, result, flags, strict=True):
        numbers = [fs.from_codes(np.array(code), name) for code in codes]
        if (found := unit._exact_steps(numbers)) is not None:
            assert (found.code, found.flags) == (expected, raised)
            explained += 1
    assert explained > 20


def test_explanations_of_quotients_and_integers():
    unit = fs.testing.hardware_unit("divide", "bf16")
    found = unit.compare([np.uint16([0x3F80]), np.uint16([0x4040])], [0x3EAA])
    assert "  1 / 3 to BF16\n" in str(found)
    assert "code 0x3EAB; flags: inexact" in str(found)
    unit = fs.testing.hardware_unit("convert", "int32", "bf16")
    found = unit.compare([np.int32([-257]).view(np.uint32)], [0xC381])
    assert "  -257 to BF16\n" in str(found)
    assert "code 0xC380; flags: inexact" in str(found)


# -- files -------------------------------------------------------------------------------------------------------------

ADDED = "00 00 00 00\n00 80 00 00\n00 7E 7E 00\n00 FE FE 00\n"


def test_every_type_of_file():
    unit = fs.testing.hardware_unit("add", "e4m3")
    assert text_of(unit, "testfloat", 4) == ADDED
    assert text_of(unit, "csv", 2) == "a,b,result,flags\n0x00,0x00,0x00,0x00\n0x00,0x80,0x00,0x00\n"
    assert [json.loads(line)["result"] for line in text_of(unit, "jsonl", 3).splitlines()] == ["0x00", "0x00", "0x7E"]
    memory = text_of(unit, "readmemh", 3).splitlines()
    assert memory[-1] == "00_7E_7E_00"
    assert "a [31:24] E4M3; b [23:16] E4M3; result [15:8] E4M3; flags [7:0]" in memory[2]
    assert text_of(unit, "c", 3).endswith("  {0x00, 0x7E, 0x7E, 0x00},\n};\n")


def test_places_of_the_operands_of_a_dot_product():
    unit = fs.testing.hardware_unit("dot", "e2m1", accumulate="fp32", length=3)
    a, b, c, result = (x[20] for x in unit.vectors(21))
    word = text_of(unit, "readmemh", 21).splitlines()[-1]
    assert word == f"{a[2]:X}_{a[1]:X}_{a[0]:X}_{b[2]:X}_{b[1]:X}_{b[0]:X}_{c:08X}_{result:08X}"
    assert text_of(unit, "csv", 1).startswith("a0,a1,a2,b0,b1,b2,c,result\n")
    row = json.loads(text_of(unit, "jsonl", 21).splitlines()[-1])
    assert [int(x, 16) for x in row["a"]] == a.tolist()
    assert "uint8_t a[3]; uint8_t b[3]; uint32_t c; uint32_t result;" in text_of(unit, "c", 1)


def test_widths_of_words():
    unit = fs.testing.hardware_unit("add", "e4m3")
    assert text_of(unit, "readmemh", 3, width=64).splitlines()[-1] == "00000000_00_7E_7E_00"
    with pytest.raises(ValueError, match="a vector needs 32 bits: too wide for width=31"):
        text_of(unit, "readmemh", 3, width=31)
    with pytest.raises(ValueError, match="only files of \\$readmemh have words, not csv"):
        text_of(unit, "csv", 3, width=64)
    long = fs.testing.hardware_unit("dot", "e4m3", accumulate="fp32", length=5000)
    with pytest.raises(ValueError, match="a vector needs 80064 bits: too wide for the largest word of Verilog"):
        VectorWriter(FILE_TYPES["readmemh"], long.columns)


@pytest.mark.parametrize("kind", [name for name in FILE_TYPES if name != "c"])
@pytest.mark.parametrize("unit", [("multiply", "e3m2"), ("less", "fp32"), ("dot", "e4m3")], ids=lambda x: x[0])
def test_files_are_read_again(kind, unit):
    options = {"accumulate": "hopper"} if unit[0] == "dot" else {}
    unit = fs.testing.hardware_unit(*unit, **options)
    columns = unit.vectors(300)
    found = read_results(io.BytesIO(text_of(unit, kind, 300).encode()), FILE_TYPES[kind], unit.columns)
    assert found == [x.tolist() for x in columns[len(unit.operands) :]]


def test_results_alone_are_read():
    columns = fs.testing.hardware_unit("add", "tf32").columns
    memory = as_file_type(None, "x.mem")
    assert read_results(io.BytesIO(b"@0 7fc00 00000\n\n12345"), memory, columns) == [[0x7FC00, 0, 0x12345]]
    assert read_results(io.BytesIO(b"7fc00_10 0zz00_00"), memory, columns) == [[0x7FC00, None], [16, 0]]
    assert read_results(io.BytesIO(b"result\n0x0007fc00\n1"), FILE_TYPES["csv"], columns) == [[0x7FC00, 1]]


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("testfloat", "00 00 00 00\n00 00 00", "line 2 has 3 numbers; it must have 4 (a whole vector), or only"),
        ("testfloat", "00\nhello", "line 2 is 'hello'; it must have hexadecimal numbers"),
        ("csv", "0x100", "line 1: result is 0x100, wider than its 8 bits"),
        ("jsonl", '{"result": 5.5}', "it must be JSON"),
        ("jsonl", "[1]", "it must be JSON"),
        ("readmemh", "00 0g", "word 1 is '0g'; it must have hexadecimal digits"),
        ("c", "", "results are not read from C arrays"),
    ],
)  # fmt: skip
def test_bad_results(kind, text, message):
    columns = fs.testing.hardware_unit("add", "e4m3").columns
    with pytest.raises(ValueError, match=re.escape(message)):
        read_results(io.BytesIO(text.encode()), FILE_TYPES[kind], columns)


# -- comparison --------------------------------------------------------------------------------------------------------

CAUSES = [
    (("add", "e4m3"), {"rounding": "toward_zero"}, "rounding='toward_zero'"),
    (("convert", "fp32", "e4m3"), {"overflow": "saturate_finite"}, "overflow='saturate_finite'"),
    (("multiply", "fp16"), {"ftz": True}, "ftz=True (tiny results are flushed to zero)"),
    (("divide", "bf16"), {"daz": True}, "daz=True (subnormal operands are read as zeros)"),
]


@pytest.mark.parametrize(("unit", "options", "cause"), CAUSES, ids=lambda x: x if isinstance(x, str) else "")
def test_causes(unit, options, cause):
    right, wrong = fs.testing.hardware_unit(*unit), fs.testing.hardware_unit(*unit, **options)
    columns = right.vectors(3000)
    operands = columns[: len(right.operands)]
    assert right.compare(operands, columns[-2], columns[-1])
    found = right.compare(operands, wrong.evaluate(operands)[0])
    assert found.causes[cause] == found.mismatches > 10
    assert "all mismatches are explained by" in str(found)
    assert cause in str(found)


def test_cause_of_an_unfused_product():
    unit = fs.testing.hardware_unit("fma", "fp16")
    a, b, c, *_ = unit.vectors(6000)
    product = fs.multiply(fs.from_codes(a, "fp16"), fs.from_codes(b, "fp16"))
    found = unit.compare([a, b, c], fs.add(product, fs.from_codes(c, "fp16")).codes)
    assert next(iter(found.causes)) == "a product that is rounded before the sum"
    assert found.causes["a product that is rounded before the sum"] == found.mismatches


def test_cause_of_a_matrix_unit():
    hopper, ada = (
        fs.testing.hardware_unit("dot", "e4m3", accumulate=f"tensorcore({name})")
        for name in ("hopper", "ada, mma.m16n8k32")
    )
    *operands, _ = hopper.vectors(1200)
    found = hopper.compare(operands, ada.evaluate(operands)[0])
    assert next(iter(found.causes)) == "the unit ada mma.m16n8k32"
    assert not found.unexplained
    assert "hopper wgmma.k32: E4M3 x E4M3 to FP32, K = 32" in found.explanation


def test_block_scaled_instructions_have_scales():
    unit = fs.testing.hardware_unit("dot", "e2m1", accumulate="blackwell", scales="e4m3")
    assert [x.name for x in unit.operands] == ["a", "b", "c", "scale_a", "scale_b"]
    columns = unit.vectors(700)
    wrong = columns[-1].copy()
    wrong[-1] ^= 1
    found = unit.compare(columns[:-1], wrong)
    assert (found.mismatches, found.first) == (1, 699)
    assert f"given    0x{wrong[-1]:08X}" in found.explanation


def test_unknown_values_flags_and_nans():
    unit = fs.testing.hardware_unit("add", "fp16")
    a, b, result, flags = unit.vectors(1000)
    given = result.tolist()
    given[5] = None
    found = unit.compare([a, b], given)
    assert (found.first, found.mismatches) == (5, 1)
    assert "given    unknown (x or z)" in found.explanation
    nan = int(np.flatnonzero(np.isnan(fs.from_codes(result, "fp16").values))[0])
    other = result.copy()
    other[nan] = 0xFFFF
    assert unit.compare([a, b], other)
    assert unit.compare([a, b], other, check_nans=True).first == nan
    wrong = flags.copy()
    wrong[7] ^= 16
    found = unit.compare([a, b], result, wrong)
    assert found.first == 7
    assert "flags    given invalid" in found.explanation
    with pytest.raises(ValueError, match="results has 3 numbers; there are 1000 vectors"):
        unit.compare([a, b], [1, 2, 3])
    dot = fs.testing.hardware_unit("dot", "e4m3", accumulate="fp32")
    columns = dot.vectors(10)
    with pytest.raises(ValueError, match="has no flags"):
        dot.compare(columns[:3], columns[3], flags[:10])


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("ad", "e4m3"), {}, "operation: unknown operation 'ad'"),
        (("add", "e4m9"), {}, "format: .*'e4m9'"),
        (("add", "fp128"), {}, "format: .*'fp128'"),
        (("convert", "fp32"), {}, "to: a conversion needs the format of the result"),
        (("convert", "int8", "int16"), {}, "conversions between two integer types"),
        (("add", "int8"), {}, "int8 is an integer type: only the operation convert takes one"),
        (("less", "fp16", "fp32"), {}, "the result of less is one bit"),
        (("add", "fp16"), {"length": 3}, "length=3 is for dot products"),
        (("add", "fp16"), {"rounding": "SR"}, "vectors with stochastic rounding"),
        (("add", "fp16"), {"rouding": "RNE"}, "rouding"),
        (("dot", "fp16"), {}, "accumulate: a dot product needs a description"),
        (("dot", "fp16"), {"accumulate": "hopper", "length": 3}, "hopper wgmma.k16 takes 16 products"),
        (("dot", "fp16"), {"accumulate": "hopper", "rounding": "RTZ"}, "a matrix unit has its own roundings"),
        (("dot", "fp16"), {"accumulate": "hopper", "scales": "e8m0"}, "has no instruction for FP16 x FP16 with scales"),
        (("dot", "fp16"), {"accumulate": "fp32", "scales": "e8m0"}, "only block-scaled instructions take scales"),
        (("dot", "int8"), {"accumulate": "fp32"}, "formats of floats"),
    ],
)  # fmt: skip
def test_bad_units(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        fs.testing.hardware_unit(*arguments, **options)


# -- the command -------------------------------------------------------------------------------------------------------

CONVERSION = ("vectors", "convert", "-f", "fp32", "--to", "bf16", "-n", "2000")


def test_command(run, tmp_path):
    path = tmp_path / "vectors.mem"
    code, out, _ = run(*CONVERSION, "-o", path)
    assert code == 0
    assert hashlib.sha256(path.read_bytes()).hexdigest() in out
    code, out, _ = run(*CONVERSION, "--check", path)
    assert (code, out) == (0, "convert of FP32 to BF16: 2000 vectors, no mismatches\n")
    x = [int(line.split("_")[0], 16) for line in path.read_text().splitlines() if "_" in line]
    truncated = tmp_path / "results.mem"
    truncated.write_text("".join(f"{code >> 16:04x}\n" for code in x))
    code, out, _ = run(*CONVERSION, "--check", truncated)
    assert code == 1
    assert "mismatches are explained by rounding='toward_zero'" in out
    assert "not explained: vector 16: x = 0x7F800001 (nan)" in out
    code, out, _ = run(*CONVERSION, "--check", truncated, "--json")
    assert code == 1
    assert json.loads(out)["first"] == 2
    code, out, _ = run(*CONVERSION, "-o", path, "--json")
    assert json.loads(out)["columns"][0] == {"name": "x", "bits": 32, "count": 1}


def test_command_says_that_all_vectors_are_corner_cases(run, tmp_path):
    """A file of 1000 vectors of an fma has nothing but the first of its 2744 corner cases."""
    corners = fs.testing.hardware_unit("convert", "fp32", "bf16").corner_cases()
    path, note = tmp_path / "vectors.mem", f"all are corner cases, which come first; a --count above {corners} adds"
    for count, noted in ((corners, True), (corners + 1, False)):
        code, out, _ = run(*CONVERSION[:-1], str(count), "-o", path)
        assert (code, note in out) == (0, noted)
        code, out, _ = run(*CONVERSION[:-1], str(count), "--check", path)
        assert (code, note in out) == (0, noted)
    code, out, _ = run("vectors", "add", "-f", "e2m1", "--all", "-o", path)
    assert "corner" not in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("add", "-f", "e4m33"), "--format: "),
        (("add", "-f", "e4m3", "--as", "verilog"), "--as: unknown file type 'verilog'"),
        (("add", "-f", "fp64", "-o", "{}/x.mem", "--width", "128"), "needs 200 bits: too wide for --width 128"),
        (("add", "-f", "fp16", "--all"), "--count: the operands of add of FP16 have 32 bits"),
        (("add", "-f", "e4m3", "--check", "{}/none.mem"), "none.mem cannot be read: No such file"),
        (("add", "-f", "e4m3", "-n", "9", "--check", "{}/two.mem"), "two.mem has 2 results, and --count 9 gives 9"),
        (("add", "-f", "e4m3", "--json"), "--json: the vectors go to stdout"),
        (("convert", "-f", "e4m3"), "--to: a conversion needs"),
    ],
)  # fmt: skip
def test_bad_commands(run, tmp_path, arguments, message):
    (tmp_path / "two.mem").write_text("00\n00\n")
    code, _, err = run("vectors", *(x.replace("{}", str(tmp_path)) for x in arguments))
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


# -- the example of the documentation ----------------------------------------------------------------------------------


def test_example_files_are_those_of_the_page():
    page = (ROOT / "docs" / "vectors.md").read_text(encoding="utf-8")
    for path in sorted(x for x in EXAMPLE.iterdir() if x.is_file()):
        assert f"\n{path.read_text(encoding='utf-8')}```" in page, path.name
    assert len(list(EXAMPLE.glob("*.*"))) == 3


def test_example_in_a_simulator(run, tmp_path):
    if (compiler := shutil.which("iverilog")) is None:
        pytest.skip("Icarus Verilog is not installed")
    code, _, _ = run(*CONVERSION[:-1], "10000", "-o", tmp_path / "vectors.mem")
    sources = [str(EXAMPLE / "testbench.v"), str(EXAMPLE / "to_bf16.v")]
    subprocess.run([compiler, "-o", "sim", *sources], cwd=tmp_path, check=True)
    subprocess.run([str(tmp_path / "sim")], cwd=tmp_path, check=True)
    code, out, _ = run(*CONVERSION[:-1], "10000", "--check", tmp_path / "results.mem")
    assert code == 1
    page = (ROOT / "docs" / "vectors.md").read_text(encoding="utf-8")
    assert f"```text\n{out}```" in page


def test_c_arrays_compile(tmp_path):
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("there is no C compiler")
    unit = fs.testing.hardware_unit("dot", "e4m3", accumulate="fp32", length=2)
    *_, result = unit.vectors(300)
    (tmp_path / "vectors.h").write_text(text_of(unit, "c", 300))
    (tmp_path / "main.c").write_text(
        '#include "vectors.h"\n#include <stdio.h>\nint main(void) { for (int i = 0; i < VECTORS; i++) '
        'printf("%u %u\\n", vectors[i].a[1], vectors[i].result); return 0; }\n'
    )
    subprocess.run([compiler, "-Wall", "-Werror", "-o", "main", "main.c"], cwd=tmp_path, check=True)
    out = subprocess.run([str(tmp_path / "main")], capture_output=True, text=True, check=True).stdout
    assert [int(line.split()[1]) for line in out.splitlines()] == result.tolist()


class _Signal:
    is_resolvable = True

    def __init__(self, read):
        self.read = read

    def __int__(self):
        return self.read()


def test_example_of_cocotb(monkeypatch):
    """The coroutine, with a device that has its names and truncates. cocotb itself is not needed."""
    cocotb, triggers = types.ModuleType("cocotb"), types.ModuleType("cocotb.triggers")
    cocotb.test = lambda: lambda function: function

    async def timer(*_):
        return None

    triggers.Timer = timer
    monkeypatch.setitem(sys.modules, "cocotb", cocotb)
    monkeypatch.setitem(sys.modules, "cocotb.triggers", triggers)
    names = {}
    exec(compile((EXAMPLE / "test_to_bf16.py").read_text(), "test_to_bf16.py", "exec"), names)
    x = types.SimpleNamespace(value=0)
    dut = types.SimpleNamespace(x=x, y=types.SimpleNamespace(value=_Signal(lambda: x.value >> 16)))
    with pytest.raises(AssertionError, match=r"4974 of 4976 mismatches are explained by rounding='toward_zero'"):
        asyncio.run(names["conversion"](dut))


@pytest.mark.parametrize("operation", ["rint", "floor", "ceil", "trunc", "convert"])
@pytest.mark.parametrize("name", ["fp32", "bf16", "e4m3", "e3m4", "e2m1"])
def test_integers_have_ties_beside_them(operation, name):
    """An eighth of the operands at least are half way between two integers, and as many are beside that."""
    fmt = fs.as_format(name)
    unit = fs.testing.hardware_unit(operation, fmt, "int32" if operation == "convert" else None)
    x = np.asarray(fs.from_codes(unit.vectors(6000)[0], fmt).values, float)
    halves = 2 * x[np.isfinite(x)]
    odd = (halves == np.rint(halves)) & (halves % 2 == 1)
    assert odd.mean() > 0.05
    assert len(np.unique(halves[odd])) >= min(6, len(np.unique(halves)) // 8)
    for mode in ("ties_to_away", "toward_zero"):
        wrong = fs.testing.hardware_unit("convert", fmt, "int32", rounding=mode)
        right = fs.testing.hardware_unit("convert", fmt, "int32")
        operands = [unit.vectors(6000)[0]]
        assert not right.compare(operands, wrong.evaluate(operands)[0])


@pytest.mark.parametrize(("source", "to"), [("int32", "bf16"), ("uint32", "fp16"), ("int64", "fp32"),
                                            ("uint64", "fp64"), ("int16", "e4m3"), ("uint8", "e5m2")])  # fmt: skip
def test_conversions_of_integers_have_ties(source, to):
    """Ties decide between the two ways to break them, in both directions."""
    even = fs.testing.hardware_unit("convert", source, to)
    away = fs.testing.hardware_unit("convert", source, to, rounding="ties_to_away")
    x, result, _ = even.vectors(3000)
    assert (away.evaluate([x])[0] != result).sum() > 50

"""Probing measures every observable parameter of every row, names the others, and finds differences."""

from __future__ import annotations

import dataclasses
import json
from fractions import Fraction

import numpy as np
import pytest

import floatsim as fs
from floatsim.formats.rounding import Rounding
from floatsim.hardware.probing import experiments
from floatsim.hardware.probing.probe import probe_dots, rows_alike
from floatsim.tensorcore.architectures import ARCHITECTURES
from floatsim.tensorcore.instructions import (
    E8M13,
    EvenAndOdd,
    ExactBlocks,
    FlushedTree,
    FmaChain,
    FusedBlocks,
    GroupedBlocks,
    LateAccumulator,
    TwoHalves,
)
from floatsim.testing.vectors.dot_unit import Unit, named_unit, units

pytestmark = pytest.mark.full


def distinct(nvidia: bool) -> list[Unit]:
    """Return each model of the table once, with operands of one format, and with FP8 formats in both orders."""
    found: dict[tuple, Unit] = {}
    for unit in units():
        mixed = unit.a != unit.b and (unit.k != 32 or {unit.a, unit.b} != {fs.E4M3, fs.E5M2} or unit.scales)
        arch = ARCHITECTURES[unit.arch]
        if arch.processor == "GPU" and arch.title.startswith("NVIDIA") is nvidia and not mixed:
            found.setdefault((unit.row.model, unit.k, unit.output, unit.a, unit.b, unit.scales), unit)
    return list(found.values())


def read(unit: Unit):
    return probe_dots(unit.dots, unit.a, unit.b, k=unit.k, output=unit.output, scales=unit.scales)


def has_least_exponent(unit: Unit) -> bool:
    """Return whether products can be small enough: FP16 to FP16, formats with eight exponent bits, and scaled ones."""
    if unit.scales:
        return unit.scales.format == fs.E8M0
    return unit.a.exponent_bits == 8 or unit.a == unit.output == fs.FP16


FUSED = [unit for unit in distinct(True) if isinstance(unit.row.model, FusedBlocks | TwoHalves)]


@pytest.mark.parametrize("unit", FUSED, ids=str)
def test_every_nvidia_row(unit):
    found, model = read(unit), unit.row.model
    block = unit.row.fused
    halves = isinstance(model, TwoHalves)
    assert found["terms"] == unit.row.block
    assert found["c"] == ("after the last block" if halves else "with the first block")
    wide = unit.scales or not {unit.a, unit.b} & {fs.E3M2, fs.E2M3, fs.E2M1}
    if unit.scales and unit.scale_blocks == 1:
        wide = unit.a in (fs.E4M3, fs.E5M2)
    assert found["fraction bits"] == (block.fraction_bits if wide else None)
    assert found["fraction bits of c"] == (None if halves else block.fraction_bits)
    assert found["cut"] == (Rounding.TOWARD_ZERO if wide and unit.scale_blocks < 2 else None)
    assert found["cut of c"] == (None if halves else Rounding.TOWARD_ZERO)
    assert found["products are normalised"] in ((False, None) if halves else (False,))
    assert found["D"] == block.grid.name
    assert found["rounding"] == block.rounding
    assert found["NaN"] == f"0x{unit.output.magnitude_mask:0{unit.output.bits // 4}X}"
    assert (found["zero"], found["infinity"]) == ("+0", "wins")
    assert found["least exponent"] == (block.floor if has_least_exponent(unit) else None)
    assert found["overflow"] == ("infinite" if unit.output == fs.FP16 or unit.a.exponent_bits == 8 else None)
    if unit.row.roundings > 1 and not halves:
        assert found["carried between blocks"] == "rounded to D"
    if isinstance(model, GroupedBlocks):
        assert (found["group"], found["exponent of a term"]) == (model.group, "its scales'")
    elif not halves:
        assert found["subnormals are normalised"] in (False, None)
    if block.grid == fs.FP16 and not halves and unit.a.bits > 6:
        assert found["bits that decide ties"] == block.fraction_bits
    if unit.row.truncates:
        assert found["operand bits"] == 10
    named = type(model).__name__
    assert found.model.startswith(f"{named}(")
    for name, value in vars(block).items():
        text = value.name if name in ("grid", "rounding") else value
        missing = name == "floor" and not has_least_exponent(unit)
        assert f"{name}={'?' if missing else text}" in found.model


def test_order_of_two_halves():
    unit = named_unit("hopper", "mma.m16n8k32", fs.E4M3, fs.E4M3)
    first, second = read(unit)["chain"].split(", ")
    assert first == "+".join(f"{k}-{k + 1}" for k in range(0, 32, 4))
    assert second == "+".join(f"{k + 2}-{k + 3}" for k in range(0, 32, 4))
    assert read(unit)["rounding with c"] is Rounding.TIES_TO_EVEN
    # E4M3's subnormals are normal numbers in FP16, through which they are converted
    mixed = named_unit("hopper", "mma.m16n8k32", fs.E4M3, fs.E5M2)
    assert read(mixed)["subnormals are normalised"] is True


def test_chains():
    assert read(named_unit("ampere", "mma.m16n8k16", fs.FP16, fs.FP16))["chain"] == "0-7, 8-15"
    assert read(named_unit("ada", "mma.m16n8k32", fs.E4M3, fs.E4M3))["chain"] == "0-15, 16-31"


@pytest.mark.parametrize("unit", [u for u in distinct(True) if isinstance(u.row.model, FmaChain)], ids=str)
def test_fma_chains(unit):
    found = read(unit)
    assert (found["terms"], found["product"], found["rounding"]) == (1, "exact", Rounding.TIES_TO_EVEN)
    assert found.model == "FmaChain()"
    assert found["chain"] == ", ".join(map(str, range(unit.k)))


@pytest.mark.parametrize("unit", distinct(False), ids=str)
def test_amd_rows(unit):
    found, model = read(unit), unit.row.model
    assert found["D"] == unit.output.name
    match model:
        case FmaChain():
            assert found.model == "FmaChain()"
        case ExactBlocks():
            assert found.model.startswith(f"ExactBlocks(terms={model.terms})")
        case FlushedTree():
            tree = "((p0 + p1) + (p2 + p3))" if model.terms == 4 else "(p0 + p1)"
            assert found.model.startswith("no model of the table")
            assert model.terms == 2 or f"(c + {tree})" in found["order"]
        case LateAccumulator():  # EvenAndOdd looks alike
            assert found.model.startswith(f"LateAccumulator(terms={unit.row.block}, fraction_bits=24, ")
            assert found["cut of c"] is (None if isinstance(model, EvenAndOdd) else Rounding.TOWARD_NEGATIVE)
            assert found["rounding"] is Rounding.TIES_TO_EVEN


# -- what differs ----------------------------------------------------------------------------------------------------

HOPPER = named_unit("hopper", "mma.m16n8k16", fs.BF16, fs.BF16)
CHANGES = {
    "terms": ({"terms": 8}, "terms"),
    "fraction_bits": ({"fraction_bits": 26}, "fraction bits"),
    "floor": ({"floor": -132}, "least exponent"),
    "grid": ({"grid": E8M13}, "D"),
    "rounding": ({"rounding": Rounding.TIES_TO_EVEN}, "rounding"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_parameter_that_differs(change):
    fields, name = CHANGES[change]
    row = dataclasses.replace(HOPPER.row, model=dataclasses.replace(HOPPER.row.model, **fields))
    other = dataclasses.replace(HOPPER, row=row)
    found = probe_dots(other.dots, "bf16", k=16, against=HOPPER)
    assert not found.equal
    assert name in found.different
    assert f"the table has {found.expected[[o.name for o in found.expected].index(name)]}" in str(found)
    assert "DIFFERENT from the table's row" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["equal"] is False


def test_another_group():
    unit = named_unit("blackwell", "tcgen05.k64.mxf4", fs.E2M1, fs.E2M1, scales=experiments.Scales(32, fs.E8M0))
    model = dataclasses.replace(unit.row.model, group=32)
    other = dataclasses.replace(unit, row=dataclasses.replace(unit.row, model=model))
    found = probe_dots(other.dots, "e2m1", k=64, scales=unit.scales, against=unit)
    assert found["group"] == 32
    assert "group" in found.different


def test_another_nan():
    def dot(a, b, c):
        d = HOPPER.dots(a, b, c)
        d[d == 0x7FFFFFFF] = 0x7FC00000
        return d

    found = probe_dots(dot, "bf16", k=16, against=HOPPER)
    assert found.different == ("NaN",)
    assert found["NaN"] == "0x7FC00000"


NOISE = np.random.default_rng(0)
STRANGE = {
    "nothing": lambda a, b, c: np.zeros_like(c),
    "c": lambda a, b, c: c.copy(),
    "NaN": lambda a, b, c: np.full_like(c, 0x7FFFFFFF),
    "one": lambda a, b, c: np.full_like(c, 0x3F800000),
    "a code": lambda a, b, c: a[:, 0].astype(np.uint32) << 16,
    "noise": lambda a, b, c: NOISE.integers(0, 1 << 32, c.shape, np.uint32),
}


@pytest.mark.parametrize("dot", STRANGE.values(), ids=STRANGE)
def test_results_of_no_gpu(dot):
    """Every result is printed, and differs from the table."""
    found = probe_dots(dot, "bf16", k=16, against=HOPPER)
    assert not found.equal
    assert "DIFFERENT" in str(found)
    assert found.model


@pytest.mark.parametrize(("name", "words"), {
    "nothing": r"1 \* 1 at k = 0, and 0 elsewhere, dot returned 0x00000000, which is 0 in FP32; the sum is 1\. Does",
    "c": "dot returned 0x00000000, which is 0 in FP32; the sum is 1",
    "NaN": "dot returned 0x7FFFFFFF, which is no finite number in FP32",
    "one": r"1 \* 1 at k = 0 and 15, and 0 elsewhere, dot returned 0x3F800000, which is 1 in FP32; the sum is 2",
    "a code": r"1 \* 1 at k = 1, and 0 elsewhere, dot returned 0x00000000",
    "noise": "the sum is 1",
}.items())  # fmt: skip
def test_a_callable_that_does_not_add_is_an_error(name, words):
    """Without a row to compare with, it would be read as a model."""
    with pytest.raises(ValueError, match=words):
        probe_dots(STRANGE[name], "bf16", k=16)


def test_a_callable_that_drops_c_or_rows_is_an_error():
    with pytest.raises(ValueError, match=r"with c = 1, and 0 elsewhere, dot returned 0x00000000"):
        probe_dots(lambda a, b, c: HOPPER.dots(a, b, np.zeros_like(c)), "bf16", k=16)
    with pytest.raises(ValueError, match="dot returned 1 codes of D for 19 rows"):
        probe_dots(lambda a, b, c: HOPPER.dots(a, b, c)[:1], "bf16", k=16)


def test_noise_does_not_repeat():
    found = probe_dots(STRANGE["noise"], "bf16", k=16, against=HOPPER)
    assert found["results"] == "DO NOT REPEAT"
    assert "results" in found.different


def test_equal_and_alike():
    found = probe_dots(HOPPER.dots, "bf16", k=16, against=HOPPER)
    assert found.equal
    assert found.different == ()
    assert "equal to the table's row in all 18 observable parameters" in str(found)
    assert rows_alike(found, HOPPER) == (
        "hopper wgmma.k16", "hopper mma.m16n8k16", "blackwell tcgen05.k16", "blackwell mma.m16n8k16",
        "blackwell-rtx mma.m16n8k16",
    )  # fmt: skip


def test_against_something_else():
    with pytest.raises(ValueError, match="takes k = 16; given are FP16 x FP16 to FP32, k = 8"):
        probe_dots(HOPPER.dots, "fp16", k=8, against=HOPPER)


def test_exact_codes():
    assert experiments.exact_code(Fraction(3), fs.E2M1) == 0b0101
    assert experiments.exact_code(Fraction(5), fs.E2M1) is None
    assert experiments.exact_code(Fraction(1, 3), fs.FP32) is None
    assert experiments.exact_code(float("inf"), fs.E4M3) is None
    assert experiments.factors(Fraction(448), fs.E4M3, fs.E4M3) is not None
    assert experiments.factors(Fraction(2) ** 17, fs.E4M3, fs.E4M3) is None

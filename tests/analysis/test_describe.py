"""`describe` agrees with the table and with the models, and docs/tensor-cores.md agrees with `describe`.

`python tests/analysis/test_describe.py` rewrites the tables of docs/tensor-cores.md.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import floatsim as fs
from floatsim.analysis.describe import evidence_text, facts
from floatsim.tensorcore.architectures import ARCHITECTURES, select
from floatsim.tensorcore.instructions import (
    EvenAndOdd,
    Evidence,
    ExactBlocks,
    FlushedTree,
    FmaChain,
    GroupedBlocks,
    LateAccumulator,
    RoundedSteps,
    TwoHalves,
)
from tests.tensorcore.cases import cases

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tensor-cores.md"
ROWS = [(arch, row) for arch in ARCHITECTURES.values() for row in arch.instructions]
describe = fs.tensorcore.describe


# -- the module ------------------------------------------------------------------------------------------------------


def test_the_module_exports_its_public_api():
    assert fs.tensorcore.__all__ == sorted(fs.tensorcore.__all__)
    assert {"describe", "trace", "ARCHITECTURES", "Evidence", "Instruction"} <= set(fs.tensorcore.__all__)
    for name in fs.tensorcore.__all__:
        assert name in dir(fs.tensorcore)
        assert getattr(fs.tensorcore, name).__doc__
    with pytest.raises(AttributeError, match="no_such_name"):
        fs.tensorcore.no_such_name


def test_the_module_loads_its_parts_on_first_use():
    code = (
        "import floatsim as fs, json, sys; fs.tensorcore.describe('hopper', 'e4m3'); "
        "print(json.dumps([n for n in ('numba', 'matplotlib', 'rich') if n in sys.modules]))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert json.loads(run.stdout) == []


# -- descriptions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arch", "row"), ROWS, ids=lambda x: getattr(x, "name", None))
def test_facts_give_the_numbers_of_every_row(arch, row):
    told = facts(row)
    text = " ".join(f"{topic} {words}" for topic, words in told.items())
    for fmt in row.inputs:
        assert fmt.name in told["operands"]
    assert f"c and D in {row.output}" in told["operands"]
    assert f"k = {row.k} " in told["longer sums"]
    if row.fused:
        assert f"F = {row.fused.fraction_bits} bits" in told["sum"]
        assert f"at least {row.fused.floor}" in told["sum"]
        assert row.fused.rounding.name.lower().replace("_", " ") in told["D"]
        assert ("13 fraction bits" in told["D"]) == (row.fused.grid == fs.tensorcore.E8M13)
        assert "all bits set but the sign" in told["specials"]
    assert ("chain" in told) == (row.k > row.block and not isinstance(row.model, TwoHalves))
    assert ("FP32 operands" in told) == row.truncates
    assert ("scales" in told) == bool(row.scales)
    words = {
        GroupedBlocks: "4 groups and c", TwoHalves: "converted to FP16", FmaChain: "fma(a, b, acc)",
        ExactBlocks: "exact, of", FlushedTree: "subnormal", LateAccumulator: "joins that sum", EvenAndOdd: "odd ones",
        RoundedSteps: "operations round one after the other",
    }  # fmt: skip
    assert words.get(type(row.model), "at once") in text
    for gpu in filter(None, f"{row.gpus}, {row.published}".split(", ")):
        assert gpu in told["evidence"]
        assert gpu in evidence_text(row)
    assert row.note in told["evidence"]


def test_each_kind_of_evidence_has_its_own_words():
    words = {
        Evidence.SILICON: "verified on hardware", Evidence.ASSERTED: "reported by the authors",
        Evidence.MODEL: "there are no published outputs", Evidence.NOTHING: "unverified",
        Evidence.PROJECT: "verified by the project",
        Evidence.SPECIFIED: "equal to the specification",
    }  # fmt: skip
    for _, row in ROWS:
        assert [kind for kind, text in words.items() if text in facts(row)["evidence"]] == [row.evidence]


def test_the_default_instruction_is_described_first():
    for case in cases():
        if case.a in (fs.FP32, fs.E8M0) or case.scales is not None:
            continue
        told = describe(case.arch, case.a, case.b)
        assert told.instructions[0] == select(ARCHITECTURES[case.arch], None, case.a, case.b) or (
            told.instructions[0].scales
        )
        assert case.row in told.instructions
        assert str(told).splitlines()[2] == told.instructions[0].name


def test_accepted_arguments():
    whole = describe("Hopper")
    assert whole.instructions == ARCHITECTURES["hopper"].instructions
    assert not whole.detailed
    assert describe(fs.TensorCore("hopper")) == whole
    (one,) = describe(fs.TensorCore("hopper", "wgmma.k32", output="fp16")).instructions
    assert (one.name, one.output) == ("wgmma.k32", fs.FP16)
    assert describe("hopper", "e4m3", "e5m2").instructions == describe("hopper", fs.E4M3).instructions
    assert {row.name for row in describe("ada", instruction="MMA.m16n8k16").instructions} == {"mma.m16n8k16"}
    assert {row.output for row in describe("ada", "fp16", output="fp16").instructions} == {fs.FP16}
    assert describe("hopper", "wgmma.k32") == describe("hopper", instruction="wgmma.k32")
    tf32 = describe("ampere", "fp32")
    assert {row.name for row in tf32.instructions} == {"mma.m16n8k8.tf32", "mma.m16n8k4.tf32"}


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: describe("hoper"), ValueError, "did you mean 'hopper'"),
    (lambda: describe(9), TypeError, "named by a text"),
    (lambda: describe("ampere", instruction="wgmma.k16"), ValueError, "hopper has it"),
    (lambda: describe("ampere", "wgmma.k16"), ValueError, "hopper has it"),
    (lambda: describe("hopper", "wgmma.k33"), ValueError, "no instruction 'wgmma.k33'; did you mean 'wgmma.k32'"),
    (lambda: describe("volta", "bf16"), ValueError, r"it takes FP16 \(mma.m8n8k4\)"),
    (lambda: describe("ampere", "fp16", "bf16"), ValueError, "does not multiply FP16 by BF16"),
    (lambda: describe("ampere", "bf16", output="fp16"), ValueError, "does not multiply BF16|gives FP32"),
    (lambda: describe("cdna1", output="fp16"), ValueError, "cdna1 gives FP32, not FP16"),
    (lambda: describe("ampere", b_format="fp16"), ValueError, "b_format is given without a_format"),
    (lambda: describe("ampere", "fp61"), ValueError, "did you mean"),
])  # fmt: skip
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_the_table_lists_every_instruction():
    for arch in ARCHITECTURES.values():
        told = describe(arch.name)
        head, *rows = told.rows()
        assert {len(row) for row in rows} == {len(head)}
        names = [name for row in rows for name in row[0].split(", ")]
        assert sorted(names) == sorted(row.name for row in arch.instructions)
        text = str(told)
        assert text.startswith(f"{arch.title}, '{arch.name}'")
        notes = {row.note for row in arch.instructions if row.note}
        assert all(f"] {note}" in text for note in notes)
        assert told._repr_markdown_().count("\n| ") == len(rows) + 2
    assert "- **evidence**: " in describe("hopper", "e4m3")._repr_markdown_()


# -- the evidence ----------------------------------------------------------------------------------------------------


def silicon_sets() -> list[tuple[str, str, str, str, str]]:
    """Return (GPU, architecture, instruction, format, D) of each published set that the table names."""
    return [
        (gpu, arch.name, row.name, fmt.name, row.output.name)
        for arch, row in ROWS
        for gpu in filter(None, row.published.split(", "))
        for fmt in row.inputs
    ]


def test_forty_eight_published_sets_of_eight_gpus():
    sets = silicon_sets()
    assert len(sets) == len(set(sets)) == 48
    assert {gpu for gpu, *_ in sets} == {"V100", "A100", "A2", "RTX 1000", "L40S", "H100", "H200", "B200"}


def test_the_unverified_instructions():
    nothing = {(arch.name, row.name, row.output.name) for arch, row in ROWS if row.evidence is Evidence.NOTHING}
    assert nothing == {("blackwell", "mma.m16n8k16", d) for d in ("FP32", "FP16")}
    assert all(row.inputs == (fs.E4M3, fs.E5M2) for _, row in ROWS if row.evidence is Evidence.NOTHING)


# -- the page --------------------------------------------------------------------------------------------------------


def table(rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]])


def defaults() -> str:
    """Return the table of default instructions."""
    kinds = {
        "FP16": fs.FP16, "BF16": fs.BF16, "TF32": fs.TF32, "FP8": fs.E4M3, "FP6, FP4": fs.E2M1, "FP64": fs.FP64,
        "FP32": fs.FP32, "FP8 FNUZ": fs.E4M3FNUZ,
    }  # fmt: skip
    rows = [["`arch`", "", *kinds]]
    for arch in ARCHITECTURES.values():
        names = []
        for fmt in kinds.values():
            try:
                names.append(f"`{select(arch, None, fmt, fmt).name}`")
            except ValueError:
                names.append("")
        rows.append([f"`{arch.name}`", arch.title, *names])
    return table(rows)


def published() -> str:
    rows = [["architecture", "instruction", "A, B", "D", "GPUs", "sets", ""]]
    for arch, row in ROWS:
        if row.published:
            sets = len(row.inputs) * len(row.published.split(", "))
            inputs = ", ".join(fmt.name for fmt in row.inputs)
            cells = [f"`{arch.name}`", f"`{row.name}`", inputs, row.output.name, row.published, str(sets), row.note]
            rows.append(cells)
    return table(rows)


def unverified() -> str:
    rows = [["architecture", "instruction", "A, B", "D", ""]]
    for arch, row in ROWS:
        if row.evidence is Evidence.NOTHING:
            rows.append(
                [
                    f"`{arch.name}`",
                    f"`{row.name}`",
                    ", ".join(fmt.name for fmt in row.inputs),
                    row.output.name,
                    row.note,
                ]
            )
    return table(rows)


def all_tables() -> str:
    return "\n\n".join(f"### {arch.title}\n\n{describe(name).to_markdown()}" for name, arch in ARCHITECTURES.items())


TABLES = {"defaults": defaults, "published": published, "unverified": unverified, "instructions": all_tables}


def marked(name: str) -> re.Pattern[str]:
    begin = f"<!-- {name}: begin (python tests/analysis/test_describe.py) -->"
    return re.compile(rf"({re.escape(begin)}\n)(.*?)(\n<!-- {name}: end -->)", re.DOTALL)


@pytest.mark.parametrize("name", TABLES)
def test_the_page_has_the_table(name):
    found = marked(name).search(PAGE.read_text(encoding="utf-8"))
    assert found, f"the page has no table {name}"
    assert found[2] == TABLES[name](), "run `python tests/analysis/test_describe.py` to rewrite the tables"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    for name, make in TABLES.items():
        text = marked(name).sub(lambda m, make=make: m[1] + make() + m[3], text)
    PAGE.write_text(text, encoding="utf-8")

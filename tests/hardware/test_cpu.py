"""`backend="native-cpu"`: this CPU's own instructions, where it has them; and the answers where it has not.

`python -m tests.exhaustive 'cpu-units-*'` compares 100 million dot products of each instruction.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs
from floatsim.hardware.cpu import instructions, loops, support
from floatsim.hardware.cpu.device import Cpu
from floatsim.hardware.cpu.instructions import CONVERSIONS, DOTS, INTEGERS, CpuDot
from floatsim.hardware.questions import compare_device, questions
from floatsim.tensorcore.instructions import Evidence
from floatsim.testing.vectors.dot_inputs import input_set
from floatsim.testing.vectors.dot_unit import Unit

ROOT = Path(__file__).parents[2]
CAPTURES = ROOT / "data" / "silicon"
DAZ, FTZ, DEFAULT_MXCSR = 0x40, 0x8000, 0x1F80


def needs(instruction) -> None:
    if reason := support.supported()[str(instruction)]:
        pytest.skip(f"{instruction}: {reason}")


@pytest.mark.parametrize("dot", DOTS, ids=str)
def test_the_instruction_equals_the_emulator(dot):
    """Random bits, cancelling products, subnormal numbers, infinities and NaNs: all bits are equal."""
    needs(dot)
    unit = Unit(dot.arch, dot.row, dot.a, dot.b)
    x = input_set(unit, 2000, seed=3)
    assert np.array_equal(Cpu().dots(dot, *x), unit.dots(*x))


@pytest.mark.full
@pytest.mark.parametrize("dot", DOTS, ids=str)
def test_the_instruction_equals_the_emulator_on_many_rows(dot):
    needs(dot)
    unit = Unit(dot.arch, dot.row, dot.a, dot.b)
    for seed in range(4):
        x = input_set(unit, 100_000, seed)
        assert np.array_equal(Cpu().dots(dot, *x), unit.dots(*x))


@pytest.mark.full
@pytest.mark.parametrize("accumulation", [
    "avx512-bf16", "amx-bf16", "avx512-fp16", "fma3", "blocked(avx512-bf16, 16, fp32)", "splitk(3, amx-bf16, fp32)",
])  # fmt: skip
def test_matmul_on_the_instruction(accumulation):
    """Any K, with c, and for stacks of matrices."""
    (arch,) = (name for name in fs.tensorcore.ARCHITECTURES if name in accumulation)
    needs(next(dot for dot in DOTS if dot.arch == arch))
    fmt = {"avx512-fp16": "fp16", "fma3": "fp32"}.get(arch, "bf16")
    rng = np.random.default_rng(2)
    for k in (0, 1, 2, 31, 70):
        a, b = fs.array(rng.normal(size=(2, 9, k)), fmt), fs.array(rng.normal(size=(k, 37)), fmt)
        c = fs.array(rng.normal(size=(9, 37)), "fp32")
        report = fs.hardware.compare(a, b, c, accumulate=accumulation)
        assert report.equal, str(report)
        assert report.source == "this CPU"
    got = fs.sum(a[0], axis=1, accumulate=accumulation, backend="native-cpu")
    assert np.array_equal(got.codes, fs.sum(a[0], axis=1, accumulate=accumulation).codes)


def float32_samples(n: int, seed: int) -> np.ndarray:
    """Random bits, and numbers beside every midpoint and power of two that FP16 and BF16 have."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 1 << 32, n, dtype=np.uint32)
    near = (rng.integers(0, 1 << 16, n, dtype=np.uint32) << np.uint32(16)) + rng.integers(-2, 3, n).astype(np.uint32)
    half = np.float16(rng.uniform(-1, 1, n) * 2.0 ** rng.integers(-24, 16, n)).astype(np.float32).view(np.uint32)
    ties = half + (np.uint32(1 << 12)) + rng.integers(-1, 2, n).astype(np.uint32)
    return np.concatenate([bits, near, ties])


@pytest.mark.parametrize("conversion", CONVERSIONS, ids=str)
def test_conversions(conversion):
    needs(conversion)
    x = float32_samples(20_000, 1)
    x = fs.from_codes(np.arange(1 << 16, dtype=np.uint16) if conversion.source == fs.FP16 else x, conversion.source)
    for daz in (False, True) if conversion.name == "vcvtps2ph" else (None,):
        got, want = (
            fs.tensorcore.convert_as(conversion.name, x, rounding=conversion.rounding, daz=daz, backend=backend)
            for backend in ("native-cpu", "emulator")
        )
        assert np.array_equal(got.codes, want.codes)


def test_vcvtneps2bf16_by_integers():
    """An implementation of its own: subnormals are zeros, NaNs are cut and quiet, ties to even on the low 16 bits."""
    codes = float32_samples(20_000, 2)
    magnitude, sign = codes & np.uint32(0x7FFFFFFF), codes & np.uint32(0x80000000)
    rounded = (magnitude.astype(np.uint64) + 0x7FFF + (magnitude >> np.uint32(16) & np.uint32(1))) >> np.uint64(16)
    want = np.where(
        magnitude < 0x00800000, 0, np.where(magnitude > 0x7F800000, magnitude >> np.uint32(16) | 0x40, rounded)
    )
    got = fs.tensorcore.convert_as("vcvtneps2bf16", fs.from_codes(codes, "fp32")).codes
    assert np.array_equal(got, (want | sign >> np.uint32(16)).astype(np.uint16))


def test_vcvtps2ph_by_numpy():
    """NumPy converts as VCVTPS2PH with ties to even does, except that it keeps signalling NaNs quiet in its own way."""
    codes = float32_samples(20_000, 4)
    x = codes.view(np.float32)
    got = fs.tensorcore.convert_as("vcvtps2ph", fs.from_codes(codes, "fp32")).codes
    with np.errstate(all="ignore"):
        assert np.array_equal(got[~np.isnan(x)], x.astype(np.float16).view(np.uint16)[~np.isnan(x)])
    nans = codes[np.isnan(x)]
    assert np.array_equal(got[np.isnan(x)], nans >> 16 & 0x8000 | 0x7E00 | nans >> 13 & 0x1FF)


@pytest.mark.parametrize("dot", [dot for dot in DOTS if dot.arch in ("avx512-bf16", "amx-bf16")], ids=str)
def test_bf16_instructions_ignore_mxcsr(dot):
    """Neither the rounding mode nor DAZ and FTZ change a bit."""
    needs(dot)
    x = input_set(Unit(dot.arch, dot.row, dot.a, dot.b), 1000, seed=5)
    want = loops.run_dot(dot, *x[:3])
    for mode in range(4):
        for flushing in (0, DAZ, FTZ, DAZ | FTZ):
            assert np.array_equal(loops.run_dot(dot, *x[:3], DEFAULT_MXCSR | mode << 13 | flushing), want)


def test_fp16_arithmetic_ignores_daz_and_ftz():
    """VFMADD231PH keeps FP16 subnormal numbers, whatever MXCSR.DAZ and MXCSR.FTZ are, and obeys the rounding mode."""
    dot = DOTS[1]
    needs(dot)
    x = input_set(Unit(dot.arch, dot.row, dot.a, dot.b), 1000, seed=9)
    want = loops.run_dot(dot, *x[:3])
    for flushing in (DAZ, FTZ, DAZ | FTZ):
        assert np.array_equal(loops.run_dot(dot, *x[:3], DEFAULT_MXCSR | flushing), want)
    upward = loops.run_dot(dot, *x[:3], DEFAULT_MXCSR | 2 << 13)
    assert not np.array_equal(upward, want)


@pytest.mark.parametrize("instruction", INTEGERS, ids=str)
def test_integer_instructions(instruction):
    """Random and extreme integers; sums wrap or saturate in every step."""
    needs(instruction)
    row, k, n = instruction.row, instruction.k, 3000
    rng = np.random.default_rng(6)
    sides = []
    for dtype in (row.a, row.b):
        limits = np.iinfo(dtype)
        x = rng.integers(limits.min, limits.max + 1, (n, k))
        sides.append(np.where(rng.random((n, k)) < 0.4, rng.choice([limits.min, limits.max], (n, k)), x))
    c = rng.integers(-(1 << 31), 1 << 31, n)
    near = c % 1000
    c = np.choose(rng.integers(0, 3, n), [c, (1 << 31) - 1 - near, near - (1 << 31)])  # also next to both ends
    got = loops.run_integers(instruction, *sides, c)
    a, b = sides[0][:, np.newaxis], sides[1][:, :, np.newaxis]
    want = fs.quantization.integer_matmul(a, b, c[:, np.newaxis, np.newaxis], instruction=row.name)
    assert np.array_equal(got, want.reshape(-1))


# -- what the CPU has --------------------------------------------------------------------------------------------------


def test_support_is_probed_without_risk(monkeypatch):
    """A child process that ends by a signal gives a reason, and the other instructions are probed."""
    names = [str(each) for each in (*DOTS, *CONVERSIONS, *INTEGERS)]
    monkeypatch.setattr(support, "_reported", lambda instruction: None)

    def answers(left):
        answered = dict.fromkeys(left[:1], "") if left[0] != names[3] else {}
        return answered, "the child process ended with SIGILL"

    monkeypatch.setattr(support, "_answers", answers)
    found = support.supported.__wrapped__()
    assert list(found) == names
    assert found[names[0]] is None
    assert found[names[1]] == "the child process ended with SIGILL"


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="signals are named as on Linux")
def test_an_illegal_instruction_ends_only_the_child(monkeypatch):
    """UD2 raises SIGILL on every x86 processor, and an unknown mnemonic aborts LLVM."""
    if support.supported()[str(DOTS[2])]:
        pytest.skip("no x86 processor with AVX-512")
    for assembly, end in (("ud2", "SIGILL"), ("no_such_instruction", "child process ended with")):
        bad = CpuDot("fma3", "vfmadd231ps", fs.FP32, fs.FP32, fs.FP32, assembly, ("avx512f",))
        code = (
            "import dataclasses, sys\n"
            "from floatsim.hardware.cpu import instructions, loops\n"
            f"bad = dataclasses.replace(instructions.DOTS[2], assembly={assembly!r})\n"
            "loops.DOTS, loops.CONVERSIONS, loops.INTEGERS = (bad,), (), ()\n"
            "loops.run_child()\n"
        )
        monkeypatch.setattr(support, "_CHILD", code)
        found, how = support._answers([str(bad)])
        assert found == {}
        assert end in how


def test_an_instruction_that_the_cpu_does_not_have(monkeypatch):
    dot = DOTS[0]
    monkeypatch.setattr("floatsim.hardware.cpu.device.why_not", lambda _: "it is not there")
    x = input_set(Unit(dot.arch, dot.row, dot.a, dot.b), 10)
    with pytest.raises(RuntimeError, match="this CPU cannot run vdpbf16ps bf16 bf16 fp32: it is not there"):
        Cpu().dots(dot, *x)
    with pytest.raises(ValueError, match="has no instruction that floatsim can issue"):
        questions(Cpu())


X = fs.array(np.ones((4, 4)), "bf16")
ONE = np.float32([1])
matmul, convert_as = fs.matmul, fs.tensorcore.convert_as
NATIVE = {"backend": "native-cpu"}
TO_BF16 = "vcvtneps2bf16"


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: matmul(X, X, accumulate="hopper", **NATIVE), ValueError, "a sum of NVIDIA Hopper"),
    (lambda: matmul(X, X, accumulate="fp32", **NATIVE), ValueError, r"does not support sequential\(fp32\)"),
    (lambda: matmul(X, X, accumulate="arm-bfdot", **NATIVE), ValueError, "cannot issue bfdot of arm-bfdot"),
    (lambda: fs.add(X, X, **NATIVE), TypeError, "backend"),
    (lambda: convert_as("vcvtps2pd", X), ValueError, "did you mean 'vcvtps2ph'"),
    (lambda: convert_as("vcvtps2ph", X), TypeError, "converts FP32, and x is BF16"),
    (lambda: convert_as(TO_BF16, ONE, rounding="rtz"), ValueError, "has 'ties_to_even'"),
    (lambda: convert_as(TO_BF16, ONE, daz=False), ValueError, "always reads subnormals"),
    (lambda: convert_as(TO_BF16, ONE, backend="hardware"), ValueError, "does not support"),
    (lambda: fs.hardware.probe(device="emulator"), ValueError, "known are 'hardware'"),
    (lambda: fs.hardware.probe(device="cpu"), ValueError, "known are 'emulator', 'hardware', 'native-cpu'"),
])  # fmt: skip
def test_calls_without_an_instruction(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_operations_without_an_instruction():
    with fs.context(backend="native-cpu"), pytest.raises(ValueError, match="does not support elementwise"):
        fs.add(X, X)
    with fs.context(backend="native-cpu"), pytest.raises(ValueError, match="vcvtneps2bf16 needs daz=True"):
        fs.convert(np.float32([1]), "bf16")
    needs(DOTS[0])
    with fs.record(), pytest.raises(ValueError, match="counts events"):
        fs.matmul(X, X, accumulate="avx512-bf16", backend="native-cpu")


def test_conversions_of_the_context():
    for conversion in CONVERSIONS[:2]:
        needs(conversion)
    x = fs.from_codes(float32_samples(100, 7), "fp32")
    with fs.context(backend="native-cpu"):
        got = [fs.convert(x, "fp16", rounding="rtz"), fs.convert(x, "bf16", daz=True), fs.quantize(x, "fp16")]
    want = [fs.convert(x, "fp16", rounding="rtz"), fs.convert(x, "bf16", daz=True), fs.quantize(x, "fp16")]
    assert all(np.array_equal(g.codes, w.codes) for g, w in zip(got, want, strict=True))


# -- commands and captures ---------------------------------------------------------------------------------------------


def available() -> list[CpuDot]:
    return [dot for dot in DOTS if support.supported()[str(dot)] is None]


@pytest.mark.full
def test_probe_compare_and_capture(run, tmp_path):
    if not available():
        code, _, err = run("probe", "--cpu")
        assert code == 2
        assert "floatsim can issue no instruction" in err
        return
    code, out, _ = run("probe", "--cpu")
    assert code == 0
    assert f"{len(available())} of {len(available())} units of this CPU equal the table" in out
    for name, reason in support.supported().items():
        assert f"{name}: {reason or 'yes'}" in " ".join(out.split())
    code, out, _ = run("compare", "--cpu", "--rows", "50", "--json")
    assert code == 0
    assert json.loads(out)["equal"]
    code, out, _ = run("capture", "--cpu", "--rows", "50", "--out", tmp_path)
    assert code == 0
    checked = list(fs.hardware.check_silicon(tmp_path))
    assert len(checked) == len(available())
    for each in checked:
        assert each.comparison.equal
        assert {"vendor", "family", "model", "stepping", "flags", "compiler", "assembly"} <= set(each.capture.header)
    assert run("probe", "--cpu", "--emulated", "hopper")[0] == 2


@pytest.mark.full
def test_a_wrong_bit_is_found():
    """A device that returns one wrong bit differs in the probe or in the comparison."""
    if not available():
        pytest.skip("no instruction of this CPU")

    class Faulty(Cpu):
        def dots(self, variant, a, b, c, scales=None):
            d = super().dots(variant, a, b, c)
            d[len(d) // 2] ^= 1
            return d

    for report in compare_device(questions(Faulty()), rows=100):
        assert report.mismatches == 1


CAPTURED = sorted(path for path in CAPTURES.rglob("*.npz") if (path.parent / "exhaustive.json").exists())


@pytest.mark.parametrize("path", CAPTURED, ids=lambda path: path.stem)
def test_captures_of_cpus_are_replayed(path):
    """What real CPUs returned: every bit, NaNs included."""
    (checked,) = fs.hardware.check_silicon(path)
    assert checked.comparison.equal, str(checked.comparison)
    header = checked.capture.header
    assert header["vendor"]
    assert header["compiler"].startswith("llvmlite ")
    assert header["date"]


def test_every_row_that_the_project_verified_has_a_capture():
    """Of CPUs; `test_hardware_silicon` has those of GPUs."""
    captured = {(json.loads(str(np.load(path)["header"]))["arch"], path.stem.split("-")[0]) for path in CAPTURED}
    verified = {
        (arch.name, row.name)
        for arch in fs.tensorcore.ARCHITECTURES.values()
        for row in arch.instructions
        if row.evidence is Evidence.PROJECT and arch.processor == "CPU"
    }
    assert captured == verified
    assert sum(path.stat().st_size for path in CAPTURED) < 1 << 20


PAGE = ROOT / "docs" / "hardware.md"
BEGIN, END = "<!-- cpus: begin (python tests/hardware/test_cpu.py) -->\n", "\n<!-- cpus: end -->"


def verified() -> str:
    """Return the table of the instructions that the project has run: those with a capture first."""
    rows = [("instruction", "A, B", "D", "CPU", "captured: rows, mismatches", "jobs: rows, mismatches")]
    for path in sorted(CAPTURES.rglob("exhaustive.json"), reverse=True):
        captured = {check.capture.unit.name: check for check in fs.hardware.check_silicon(path.parent)}
        run = json.loads(path.read_text(encoding="utf-8"))
        done = {name.removeprefix("cpu-units-"): f"{n:,}, {wrong}" for name, (n, wrong) in run["jobs"].items()}
        for name, check in captured.items():
            unit, counts = check.capture.unit, f"{len(check.capture.d):,}, {check.comparison.mismatches}"
            rows.append((f"`{name}`", unit.a.name, unit.output.name, check.capture.gpu, counts, done.pop(name)))
        rows += [(f"`{name}`", "", "", run["card"], "", counts) for name, counts in done.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], ("---",) * len(rows[0]), *rows[1:]))


def test_the_table_of_the_page():
    written = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert written == verified(), "run `python tests/hardware/test_cpu.py` to rewrite the table"


def test_the_tables_agree():
    """Each instruction that floatsim can issue is a row of the table; each conversion has one, with its modes."""
    for dot in DOTS:
        assert dot.row.takes(dot.a, dot.b)
        assert dot.row.k == dot.k
        assert instructions.find_dot(dot.arch, dot.name, dot.a, dot.b, dot.output) == dot
    for row in fs.tensorcore.CONVERSIONS.values():
        issued = [each for each in CONVERSIONS if each.name == row.name]
        assert {each.rounding for each in issued} == set(row.roundings)
        assert {(each.source, each.result) for each in issued} == {(row.source, row.result)}


@pytest.mark.full
def test_no_compiler_is_loaded_before_it_is_needed():
    code = "import floatsim.hardware, sys; floatsim.hardware.info; assert 'llvmlite' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


if __name__ == "__main__":
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{verified()}{END}{rest.partition(END)[2]}", encoding="utf-8")

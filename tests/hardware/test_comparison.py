"""Comparisons of fake GPUs with the emulator, with and without injected single-bit faults."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import floatsim as fs
from floatsim.cli import hardware as hardware_commands
from floatsim.hardware import api
from floatsim.hardware import comparison as comparisons
from floatsim.hardware.device import Device
from floatsim.hardware.questions import compare_device, emulated_device, questions
from floatsim.reference.tensorcore.dot import Scaled, dot
from floatsim.tensorcore.instructions import Scales, TwoHalves
from floatsim.testing.vectors import dot_inputs
from floatsim.testing.vectors.dot_unit import named_unit, units
from tests.hardware.fakes import ERROR, FakeDevice, an_error, one_bit, other_nans
from tests.hardware.lanes import Lanes, without_compiling
from tests.marks import cases

pytestmark = pytest.mark.usefixtures("empty_folder")
compare = fs.hardware.compare


@pytest.fixture
def insert(monkeypatch):
    """Replace the GPU of this machine."""

    def put(device):
        monkeypatch.setattr(hardware_commands, "local_device", lambda: device)
        return device

    return put


# -- the emulator's side ---------------------------------------------------------------------------------------------

UNITS = list({(u.row.model, u.k, u.output, u.a, u.b, u.scales): u for u in units()}.values())


SAMPLE = UNITS[:: max(1, len(UNITS) // 40)]


@pytest.mark.parametrize("unit", cases(quick=[u for u in SAMPLE if str(u).startswith("hopper")], full=SAMPLE), ids=str)
def test_dots_equal_the_reference(unit):
    x = dot_inputs.input_set(unit, rows=30, seed=5)
    got = unit.dots(*x)
    for i in range(30):
        scales = Scaled(x.scales.a[i].tolist(), x.scales.b[i].tolist(), unit.scales) if x.scales else None
        want = dot(unit.row, x.a[i].tolist(), x.b[i].tolist(), unit.a, unit.b, int(x.c[i]), scales)
        assert got[i] == want.code


# -- inputs ----------------------------------------------------------------------------------------------------------


def test_inputs_are_the_same_everywhere():
    """Captures store these digests. A change of a digest requires a change of `inputs.GENERATOR`."""
    assert dot_inputs.GENERATOR == 1
    half = named_unit("hopper", "wgmma.k16", fs.FP16, fs.FP16)
    assert dot_inputs.input_set(half, 100).digest == "ae2b23d1c3a2407a1d97512501a3d38be0742e21e9534753718437b07090f8b9"
    scaled = next(u for u in units("blackwell") if u.scales and u.scales.format == fs.E4M3)
    assert (
        dot_inputs.input_set(scaled, 100, seed=3).digest
        == "ac3d206bb764cc47453274a4bfcd5aea851eed8aa231b8d3350272138646ca23"
    )


def test_inputs_depend_on_the_seed_and_not_on_the_architecture():
    ampere, hopper = (named_unit(arch, "mma.m16n8k16", fs.BF16, fs.BF16) for arch in ("ampere", "hopper"))
    assert dot_inputs.input_set(ampere, 50).digest == dot_inputs.input_set(hopper, 50).digest
    assert dot_inputs.input_set(ampere, 50, seed=1).digest != dot_inputs.input_set(ampere, 50).digest


@pytest.mark.parametrize("fmt", [fs.FP16, fs.BF16, fs.TF32, fs.E4M3, fs.E5M2, fs.FP64], ids=str)
def test_inputs_have_all_kinds(fmt):
    unit = next(u for u in units("hopper") if u.a == u.b == fmt)
    x = dot_inputs.input_set(unit, 1000)
    a = fs.decode(x.a, fmt)
    normal, bits, cancelling, tiny, special = a[:200], a[200:500], a[500:700], a[800:900], a[900:]
    assert abs(normal.mean()) < 0.1
    assert 0.8 < normal.std() < 1.2
    finite = np.isfinite(bits)
    assert np.ptp(np.log2(np.abs(bits[finite & (bits != 0)]))) > 0.6 * (fmt.emax - fmt.emin)
    assert np.array_equal(cancelling[:, : unit.k // 2], -cancelling[:, unit.k // 2 :])
    assert (np.abs(tiny) < 2 * fmt.smallest_normal).all()
    assert (np.abs(tiny) < fmt.smallest_normal).mean() > 0.3
    assert np.isnan(special).any()
    assert np.isinf(special).any() == fmt.has_infinity
    assert len(np.unique(unit.dots(*x))) > 500


TELLING = [
    named_unit("ampere", "mma.m16n8k16", fs.BF16, fs.BF16),
    named_unit("ampere", "mma.m16n8k8.tf32", fs.TF32, fs.TF32),
    named_unit("hopper", "wgmma.k16", fs.FP16, fs.FP16, fs.FP16),
    named_unit("hopper", "wgmma.k32", fs.E4M3, fs.E5M2),
    named_unit("hopper", "mma.m16n8k32", fs.E5M2, fs.E5M2, fs.FP16),
    named_unit("blackwell", "tcgen05.k64.mxf4", fs.E2M1, fs.E2M1, scales=Scales(32, fs.E8M0)),
    named_unit("blackwell", "tcgen05.k32.mxf8f6f4", fs.E4M3, fs.E4M3, scales=Scales(32, fs.E8M0)),
]


@pytest.mark.parametrize("unit", TELLING, ids=str)
def test_inputs_distinguish_neighbouring_models(unit):
    """One bit more or less, or a least exponent that is off by one, changes at least one of 20,000 sums."""
    x, block = dot_inputs.input_set(unit), unit.row.fused
    right = unit.dots(*x)
    small = unit.a.exponent_bits == 8 or unit.a == unit.output == fs.FP16 or unit.scales  # as in test_hardware_probe
    for name in ("fraction_bits", "floor") if small else ("fraction_bits",):
        for value in (getattr(block, name) - 1, getattr(block, name) + 1):
            model = dataclasses.replace(block, **{name: value})
            model = TwoHalves(model) if isinstance(unit.row.model, TwoHalves) else model
            other = dataclasses.replace(unit, row=dataclasses.replace(unit.row, model=model))
            assert np.count_nonzero(other.dots(*x) != right), (name, value)


def test_every_instruction_has_20_000_rows():
    assert dot_inputs.ROWS >= 20_000
    assert sum(dot_inputs.SHARES.values()) == 10
    with pytest.raises(ValueError, match="rows must be at least 10, not 9"):
        dot_inputs.input_set(UNITS[0], 9)


# -- single instructions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("capability", [(7, 0), (7, 5), (8, 6), (8, 9), (9, 0)], ids=str)
def test_a_correct_gpu(capability):
    asked = questions(FakeDevice(capability))
    for q, found in zip(asked, compare_device(asked, rows=50), strict=True):
        assert found.equal, q
        assert (found.count, found.mismatches, found.share_equal, found.first) == (50, 0, 1.0, ())
        assert found.histogram == {"equal": 50}
        assert "all 50 results are equal, bit for bit" in str(found)


@pytest.mark.parametrize("bit", [0, 7, 31])
def test_one_wrong_bit_is_found(bit):
    asked = questions(FakeDevice((9, 0), one_bit(17, bit, "wgmma.k16 bf16")), ["wgmma.*"])
    found = {c.title: c for c in compare_device(asked, rows=100)}
    wrong = [title for title, c in found.items() if not c.equal]
    assert wrong == ["hopper wgmma.k16: BF16 x BF16 to FP32"]
    report = found[wrong[0]]
    assert (report.mismatches, report.count) == (1, 100)
    (first,) = report.first
    assert first.index == (17,)
    assert first.expected ^ first.got == 1 << bit
    assert first.ulps == (1 << bit if bit < 31 else 2 * (first.expected & 0x7FFFFFFF))
    x = asked[[c.title for c in compare_device(asked, rows=100)].index(wrong[0])].input_set(100)
    assert np.array_equal(first.operands.a.codes, x.a[17])
    assert np.array_equal(first.operands.b.codes, x.b[17])
    assert first.trace.code == first.expected  # the trace tells the emulated sum
    assert f"got 0x{first.got:08X}" in str(report)
    assert "largest exponent" in str(report)


def test_wrong_scaled_sums():
    asked = questions(FakeDevice((12, 0), one_bit(3)), ["mma.m16n8k64.nvf4"])
    assert len(asked) == 3
    for found in compare_device(asked, rows=40):
        (first,) = found.first
        assert first.index == (3,)
        assert first.operands.scale_a.shape == first.operands.scale_b.shape
        assert first.trace.code == first.expected
        assert "scale_a = " in str(found)


def test_first_are_kept():
    def all_wrong(variant, d):
        return d ^ d.dtype.type(1)

    asked = questions(FakeDevice((8, 0), all_wrong), ["mma.m16n8k16 bf16*"])
    (found,) = compare_device(asked, rows=20, first=2)
    assert found.mismatches == 20
    assert [each.index for each in found.first] == [(0,), (1,)]


def test_nans_of_fp64_are_counted_apart():
    """What DMMA returns for NaN is not known. In all other formats, another NaN is a difference."""
    for found in compare_device(questions(FakeDevice((8, 0), other_nans)), rows=2000):
        nans = int(np.count_nonzero(fs.isnan(found.expected)))
        assert nans > 10, found
        unknown = found.format == fs.FP64
        assert (found.equal, found.mismatches) == (unknown, 0 if unknown else nans), found
        assert found.nan_other_bits == (nans if unknown else 0)
        assert found.histogram == {"equal": 2000 - nans, "NaN, other bits" if unknown else "0, other bits": nans}
        assert sum(found.histogram.values()) == found.count
        assert (found.first == ()) is unknown
        assert found.to_dict()["nan_other_bits"] == found.nan_other_bits
        assert (f"; NaN, other bits: {nans}" in str(found)) is unknown
        assert (f"; NaN, other bits: {nans}" in found.line) is unknown


def test_a_wrong_number_of_fp64_is_found_among_nans():
    def wrong(variant, d):
        d = other_nans(variant, d)
        d[5] ^= np.uint64(1)  # a number: the first rows are normally distributed
        d[int(np.flatnonzero(np.isnan(d.view(np.float64)))[0])] = 0  # a number for NaN
        return d

    (found,) = compare_device(questions(FakeDevice((8, 0), wrong), ["mma.m8n8k4 fp64*"]), rows=2000)
    assert (found.equal, found.mismatches) == (False, 2)
    assert found.first[0].index == (5,)
    assert found.histogram["NaN"] == 1
    assert found.histogram["NaN, other bits"] == found.nan_other_bits > 10


def test_products_in_fp64_have_nans_of_any_bits():
    a = fs.array([[float("nan")], [1.0]], "fp64")
    got = fs.from_codes([[0xFFFFFFFFFFFFFFFF], [0x3FF0000000000000]], "fp64")
    found = compare(a, fs.array([[1.0]], "fp64"), accumulate="exact(fp64)", against=got)
    assert (found.equal, found.nan_other_bits, found.mismatches) == (True, 1, 0)
    assert str(found).splitlines()[1] == "all 2 results are equal, bit for bit; NaN, other bits: 1"


def test_the_error_of_one_instruction_is_its_row():
    asked = questions(FakeDevice((7, 5), an_error("mma.m16n8k8 fp16 fp16 fp16")))
    found = list(compare_device(asked, rows=50))
    assert [each.title for each in found] == [str(q.unit) for q in asked]
    (failed,) = [each for each in found if each.error]
    assert (failed.title, failed.error) == ("turing mma.m16n8k8: FP16 x FP16 to FP16", ERROR)
    assert (failed.equal, failed.count, failed.mismatches, failed.share_equal) == (None, 0, 0, 0.0)
    assert str(failed).splitlines()[1] == f"could not run: {ERROR}"
    assert failed.to_dict()["error"] == ERROR
    assert failed.to_dict()["equal"] is None
    assert [each.equal for each in found if not each.error] == [True] * 3


def test_which_instructions():
    device = FakeDevice((8, 9))
    assert {q.variant.name for q in questions(device, ["mma.m16n8k32"])} == {"mma.m16n8k32"}
    assert {q.variant.a for q in questions(device, ["* BF16 *"])} == {fs.BF16}
    with pytest.raises(ValueError, match=r"'wgmma\.\*' fits no instruction of a fake GPU; it has mma\."):
        questions(device, ["wgmma.*"])
    with pytest.raises(ValueError, match=r"compute capability 6\.1, and the table lists no instruction"):
        questions(FakeDevice((6, 1)))
    with pytest.raises(ValueError, match="cdna3 has no instructions that floatsim can issue"):
        emulated_device("cdna3")


def test_the_number_of_results_must_be_the_number_of_rows():
    unit = named_unit("volta", None, fs.FP16, fs.FP16)
    x = dot_inputs.input_set(unit, 20)
    with pytest.raises(ValueError, match=r"d has the shape \(19,\); the inputs are 20 dot products"):
        comparisons.compare_dots(unit, x, x.c[1:], "nobody")


@pytest.mark.full
@pytest.mark.parametrize("capability", [(7, 5), (9, 0), (12, 0)], ids=str)
def test_through_the_registers_of_lanes(capability, monkeypatch):
    """Operands are packed into registers, a GPU in NumPy unpacks them, and results return the same way."""
    without_compiling(monkeypatch)
    asked = questions(Device(cuda=Lanes(capability)))
    one_each = list({(q.variant.name, q.unit.output, q.unit.scales): q for q in asked}.values())
    for q, found in zip(one_each, compare_device(one_each, rows=10), strict=True):
        assert found.equal, q.variant
        assert found.source == "a GPU of lanes"


def test_probed_through_the_registers_of_lanes(monkeypatch):
    without_compiling(monkeypatch)
    for found in fs.hardware.probe("mma.m8n8k4 fp16 *", device=Device(cuda=Lanes((7, 5)))):
        assert found.equal


# -- reports ---------------------------------------------------------------------------------------------------------


def of_codes(expected, got, fmt="fp32"):
    """Return a comparison of these results of a product with the single element 1."""
    a = fs.from_codes([[code] for code in expected], fmt)
    return compare(
        a, fs.array([[1.0]], fmt), accumulate=f"exact({fmt})", against=fs.from_codes([[c] for c in got], fmt)
    )


def test_histogram():
    one, nan = 0x3F800000, 0x7FC00000
    report = of_codes([one] * 6 + [nan, 0, 0x80000000], [one, one + 1, one - 2, one + 4, one + 5, nan, nan, 0, 0])
    assert report.histogram == {
        "equal": 3, "0, other bits": 1, "1": 1, "2": 1, "3-4": 1, "5-8": 1, "NaN": 1,
    }  # fmt: skip
    assert sum(report.histogram.values()) == report.count == 9


def test_equal_numbers_of_other_bits():
    report = of_codes([0x7FC00000], [0x7FFFFFFF])
    assert report.histogram == {"equal": 0, "0, other bits": 1}
    assert not report.equal
    assert report.first[0].ulps == 0


def test_json_and_picture():
    report = of_codes([0x3F800000, 0x3F800000], [0x3F800000, 0x3F800003])
    facts = json.loads(report.to_json())
    assert facts["results"] == 2
    assert facts["mismatches"] == 1
    assert facts["share_equal"] == 0.5
    assert facts["first"][0]["got"] == 0x3F800003
    assert facts["first"][0]["operands"]["a"] == {"format": "FP32", "codes": [0x3F800000]}
    axes = report.plot()
    assert [bar.get_height() for bar in axes.patches] == [1, 0, 0, 1]
    assert report.plot(axes) is axes


# -- products of matrices --------------------------------------------------------------------------------------------


def matrices(rng, shape_a, shape_b, fmt="bf16"):
    return fs.array(rng.normal(size=shape_a), fmt), fs.array(rng.normal(size=shape_b), fmt)


def faulty(d, *index):
    codes = d.codes.copy()
    codes[index] ^= 1
    return fs.from_codes(codes, d.format)


def test_matrices():
    rng = np.random.default_rng(0)
    a, b = matrices(rng, (5, 40), (40, 7))
    c = fs.array(rng.normal(size=(5, 7)), "fp32")
    d = fs.matmul(a, b, c, accumulate="hopper")
    assert compare(a, b, c, accumulate="hopper", against=d).equal
    report = compare(a, b, c, accumulate="hopper", against=faulty(d, 3, 2))
    assert "  a = " + ", ".join(f"{x:.9g}" for x in a.values[3, :6]) + ", ... (40 in all)" in str(report)
    (first,) = report.first
    assert first.index == (3, 2)
    assert np.array_equal(first.operands.a.codes, a.codes[3])
    assert np.array_equal(first.operands.b.codes, b.codes[:, 2])
    assert first.operands.c.codes == c.codes[3, 2]
    assert first.trace.code == first.expected == d.codes[3, 2]


def test_the_product_of_the_gpu(monkeypatch):
    """Without `against`, the call runs on the backend "hardware", which has a wrong bit here."""
    emulated = fs.matmul

    def matmul(a, b, c=None, backend=None, **keywords):
        d = emulated(a, b, c, **keywords)
        return faulty(d, 1, 0) if backend == "hardware" else d

    monkeypatch.setattr(api, "matmul", matmul)
    a, b = matrices(np.random.default_rng(4), (3, 20), (20, 2))
    report = compare(a, b, accumulate="blocked(hopper, 16, fp32)", format="fp32")
    assert [each.index for each in report.first] == [(1, 0)]
    assert report.source == "the GPU"


def test_stacks_vectors_and_scales():
    rng = np.random.default_rng(1)
    a, b = matrices(rng, (3, 2, 8), (8, 4))
    d = fs.matmul(a, b, accumulate="ampere")
    (first,) = compare(a, b, accumulate="ampere", against=faulty(d, 2, 1, 3)).first
    assert first.index == (2, 1, 3)
    assert first.trace.code == first.expected
    x, y = a[0, 0], b[:, 0]
    report = compare(x, y, accumulate="ampere", against=faulty(fs.matmul(x, y, accumulate="ampere")))
    assert report.first[0].index == ()
    a, b = matrices(rng, (2, 64), (64, 3), "e4m3")
    scales = {"scale_a": fs.array(np.full((2, 2), 2.0), "e8m0"), "scale_b": fs.array(np.full((2, 3), 0.5), "e8m0")}
    d = fs.matmul(a, b, accumulate="blackwell", **scales)
    (first,) = compare(a, b, accumulate="blackwell", against=faulty(d, 1, 2), **scales).first
    assert first.operands.scale_b.shape == (2,)
    assert first.trace.code == first.expected


def test_other_sums_have_no_trace():
    rng = np.random.default_rng(2)
    a, b = matrices(rng, (2, 300), (300, 2))
    accumulation = "blocked(hopper, 128, fp32)"
    d = fs.matmul(a, b, accumulate=accumulation)
    (first,) = compare(a, b, accumulate=accumulation, against=faulty(d, 0, 1)).first
    assert first.trace is None
    assert first.index == (0, 1)


def test_what_cannot_be_compared():
    a = fs.array(np.ones((2, 4)), "fp16")
    b = fs.array(np.ones((4, 2)), "fp16")
    with pytest.raises(TypeError, match="compare needs b and accumulate"):
        compare(a)
    with pytest.raises(TypeError, match="against is FP16, the result FP32"):
        compare(a, b, accumulate="hopper", against=fs.array(np.ones((2, 2)), "fp16"))
    with pytest.raises(ValueError, match=r"against has the shape \(2, 3\), the result \(2, 2\)"):
        compare(a, b, accumulate="hopper", against=np.ones((2, 3), np.float32))
    with pytest.raises(TypeError, match="a capture has its own operands"):
        compare(a, b, accumulate="hopper", against="recorded.npz")
    with pytest.raises(RuntimeError, match=r"needs CuPy|no NVIDIA GPU|CUDA"):
        compare(a, b, accumulate="hopper")


# -- the command -----------------------------------------------------------------------------------------------------


def test_command_with_a_gpu(run, insert):
    insert(FakeDevice((7, 5)))
    code, out, err = run("compare", "--rows", 50)
    assert (code, err) == (0, "")
    assert "4 sets, 200 rows: all equal" in out
    insert(FakeDevice((7, 5), one_bit(23, of="mma.m16n8k8 fp16 fp16 fp16")))
    code, out, _ = run("compare", "--rows", 50)
    assert code == 1
    assert "[23] emulated 0x" in out
    assert "4 sets, 200 rows: 1 set differs" in out
    code, out, _ = run("compare", "--rows", 50, "-i", "mma.m8n8k4")
    assert code == 0
    code, out, _ = run("compare", "--rows", 50, "--json")
    facts = json.loads(out)
    assert (code, facts["equal"], len(facts["comparisons"])) == (1, False, 4)
    assert [c["mismatches"] for c in facts["comparisons"]].count(1) == 1


def test_command_goes_on_after_an_error(run, insert):
    """Exit code 3, and 1 if another instruction differs."""
    failing = an_error("mma.m16n8k8 fp16 fp16 fp32")
    insert(FakeDevice((7, 5), failing))
    code, out, err = run("compare", "--rows", 50)
    assert (code, err) == (3, "")
    lines = out.splitlines()
    assert lines[2] == f"turing mma.m16n8k8: FP16 x FP16 to FP32, against a fake GPU: could not run: {ERROR}"
    assert [line.endswith("50 results, all equal") for line in lines[:4]] == [True, True, False, True]
    assert "4 sets, 150 rows: none differs, 1 could not run" in out
    code, out, _ = run("compare", "--rows", 50, "--json")
    facts = json.loads(out)
    assert (code, facts["equal"]) == (3, False)
    assert [each["error"] for each in facts["comparisons"]] == [None, None, ERROR, None]
    assert facts["comparisons"][2]["title"] == "turing mma.m16n8k8: FP16 x FP16 to FP32"
    insert(FakeDevice((7, 5), an_error("mma.m16n8k8 fp16 fp16 fp32", one_bit(23, of="mma.m8n8k4 fp16 fp16 fp32"))))
    code, out, _ = run("compare", "--rows", 50)
    assert code == 1
    assert "4 sets, 150 rows: 1 set differs, 1 could not run" in out
    assert run("compare", "--rows", 50, "--json")[0] == 1


def test_rows_are_printed_as_they_are_made(run, insert, capsys):
    """With --json on stderr, because the JSON follows at the end."""
    printed = []

    def seen(variant, d):
        printed.append(capsys.readouterr())
        return d

    insert(FakeDevice((7, 5), seen))
    run("compare", "--rows", 50)
    assert [texts.out.count("all equal") for texts in printed] == [0, 1, 1, 1]
    printed.clear()
    _, out, _ = run("compare", "--rows", 50, "--json")
    assert len(json.loads(out)["comparisons"]) == 4
    assert [texts.err.count("all equal") for texts in printed] == [0, 1, 1, 1]


@pytest.mark.parametrize("command", ["probe", "capture --out folder --rows 40"])
def test_rows_that_could_not_run_are_printed_at_once(run, insert, capsys, command):
    printed = []

    def seen(variant, d):
        printed.append(capsys.readouterr())
        raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS")

    insert(FakeDevice((7, 5), seen))
    code, out, _ = run(*command.split(), "-i", "mma.*", "--json")
    assert (code, out.count('"error": "RuntimeError: CUDA_ERROR_ILLEGAL_ADDRESS"')) == (3, 4)
    assert [texts.err.count("could not run: RuntimeError") for texts in printed] == [0, 1, 1, 1]


def test_command_counts_nans_of_fp64_apart(run, insert):
    insert(FakeDevice((8, 0), other_nans))
    code, out, _ = run("compare", "--rows", 2000, "-i", "mma.m8n8k4")
    assert code == 0
    assert "2000 results, all equal; NaN, other bits: " in out
    assert run("compare", "--rows", 2000, "-i", "mma.m16n8k8.tf32")[0] == 1


@pytest.mark.full
def test_command_with_matrices(run):
    rng = np.random.default_rng(3)
    a, b = (rng.normal(size=shape).astype(np.float16) for shape in ((3, 20), (20, 4)))
    d = fs.matmul(a, b, accumulate="hopper")
    np.save("a.npy", a)
    np.save("b.npy", b)
    np.save("d.npy", d)
    assert run("compare", "a.npy", "b.npy", "-a", "hopper", "--against", "d.npy")[0] == 0
    code, out, _ = run("compare", "a.npy", "b.npy", "-a", "fp16", "--against", "d.npy")
    assert code == 2
    code, out, _ = run("compare", "a.npy", "b.npy", "-a", "volta", "--against", "d.npy")
    assert code == 1
    assert "of 12 results differ" in out
    np.save("wide.npy", d.astype(np.float64))
    code, _, err = run("compare", "a.npy", "b.npy", "-a", "hopper", "--against", "wide.npy")
    assert code == 2
    assert "--against: wide.npy is FP64, and the result FP32; save it as np.float32, with .astype" in err
    code, _, err = run("compare", "a.npy", "b.npy", "-a", "bf16", "--against", "wide.npy")
    assert code == 2
    assert "the result BF16, which a .npy file does not hold; fs.hardware.compare takes it" in err


NO_CARD = [("probe",), ("compare",), ("capture", "--out", "x"), ("compare", "a.npy", "a.npy", "-a", "fp32")]


@pytest.mark.parametrize("arguments", NO_CARD, ids=" ".join)
def test_without_a_gpu(run, arguments, monkeypatch):
    from floatsim.hardware import device

    def none(*_):
        raise fs.hardware.UnavailableError("no GPU: CuPy is not installed")

    monkeypatch.setattr(device, "Device", none)
    np.save("a.npy", np.ones((2, 2), np.float32))
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("floatsim: no GPU: CuPy is not installed; without a GPU, `floatsim compare --against FILE`")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--operands", "fp16"], "--operands needs two matrices, and none are given"),
        (["-a", "hopper"], "--accumulate needs two matrices, or captured outputs"),
        (["a.npy"], "compare multiplies two matrices, and there are 1"),
        (["a.npy", "a.npy"], "--accumulate must name the accumulation of the products"),
        (["a.npy", "a.npy", "-a", "hopper", "--against", "no.npy"], "--against: no.npy cannot be read"),
        (["--against", "no.npz"], "there is no file or folder no.npz"),
    ],
)
def test_bad_input(run, arguments, text):
    np.save("a.npy", np.ones((2, 2), np.float16))
    code, out, err = run("compare", *arguments)
    assert (code, out) == (2, "")
    assert text in err


@pytest.mark.full
def test_probe_command(run, insert):
    code, out, err = run("probe", "--emulated", "volta")
    assert (code, err) == (0, "")
    assert "2 of 2 instructions of the emulator of volta equal the table" in out

    def low_bit(variant, d):  # of every sum: D has one bit less
        return d & ~d.dtype.type(1)

    insert(FakeDevice((7, 0), low_bit))
    code, out, _ = run("probe", "--json")
    facts = json.loads(out)
    assert code == 1
    assert [p["equal"] for p in facts["probes"]] == [False, False]
    assert "D" in facts["probes"][0]["different"]
    assert facts["probes"][0]["alike"] == []


def test_probe_goes_on_after_an_error(run, insert):
    gpu = FakeDevice((7, 0), an_error("fp16 fp16 fp32"))
    failed, good = fs.hardware.probe(device=gpu)
    assert (failed.title, failed.error, failed.equal) == ("volta mma.m8n8k4: FP16 x FP16 to FP32", ERROR, None)
    assert (failed.observations, failed.different) == ((), ())
    assert str(failed) == f"{failed.title}\ncould not run: {ERROR}"
    assert (good.error, good.equal) == ("", True)
    insert(gpu)
    code, out, err = run("probe")
    assert (code, err) == (3, "")
    assert f"could not run: {ERROR}" in out
    assert "1 of 2 instructions of a fake GPU equal the table, 1 could not run" in out
    code, out, _ = run("probe", "--json")
    facts = json.loads(out)["probes"]
    assert code == 3
    assert [(each["error"], each["equal"]) for each in facts] == [(ERROR, None), (None, True)]
    insert(FakeDevice((7, 0), an_error("fp16 fp16 fp32", lambda variant, d: d & ~d.dtype.type(1))))
    assert run("probe")[0] == 1


def test_probe_reports_nans_of_fp64_apart(run, insert):
    insert(FakeDevice((8, 0), other_nans))
    code, out, _ = run("probe", "-i", "mma.m8n8k4")
    assert code == 0
    assert "0xFFFFFFFFFFFFFFFF   <- NaN, other bits: the emulator has 0x7FF8000000000000" in out
    assert "equal to the table's row in all 12 observable parameters" in out
    code, out, _ = run("probe", "-i", "mma.m8n8k4", "--json")
    (facts,) = json.loads(out)["probes"]
    assert (code, facts["equal"], facts["nan_other_bits"]) == (0, True, ["NaN bits"])
    insert(FakeDevice((8, 0), lambda variant, d: np.where(np.isnan(d.view(np.float64)), 0, d).astype(d.dtype)))
    code, out, _ = run("probe", "-i", "mma.m8n8k4")
    assert code == 1
    assert "DIFFERENT from the table's row: NaN" in out
    insert(FakeDevice((8, 0), other_nans))
    assert run("probe", "-i", "mma.m16n8k8.tf32")[0] == 1


# -- the strength of the inputs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shapes", [((3, 64), (64, 2)), ((64,), (64, 2)), ((3, 64), (64,)), ((2, 3, 64), (64, 2))])
def test_equal_products_report_the_strength_of_their_inputs(shapes):
    """Ones tell no orders apart. `unlike` makes that a failure, and the bits stay equal."""
    a, b = (fs.array(np.ones(shape), "bf16") for shape in shapes)
    kernel = fs.matmul(a, b, accumulate="pairwise(fp32)")
    found = compare(a, b, accumulate="fp32", against=kernel)
    assert found.passed and "pairwise(fp32)" in found.strength.same
    assert "strength: these inputs cannot tell fp32 from pairwise(fp32), " in str(found)
    weak = compare(a, b, accumulate="fp32", against=kernel, unlike=["pairwise(fp32)", "ampere"])
    assert (weak.equal, weak.passed, weak.unlike) == (True, False, ("pairwise(fp32)", "ampere"))
    assert str(weak).endswith("too weak: these inputs cannot tell fp32 from pairwise(fp32), ampere (unlike=)")
    assert weak.to_dict()["unlike"] == ["pairwise(fp32)", "ampere"]


def test_the_strength_is_that_of_the_assertions():
    a, b = fs.testing.hard_inputs((20, 64, 20), "e4m3")
    c = fs.array(np.arange(20), "fp32")
    kernel = fs.matmul(a, b, c, accumulate="hopper", format="bf16")
    found = compare(a, b, c, accumulate="hopper", format="bf16", against=kernel)
    asserted = fs.testing.assert_product(kernel, a, b, c, accumulate="hopper", format="bf16")
    assert found.strength == asserted.strength
    different = compare(a, b, c, accumulate="blackwell", format="bf16", against=kernel)
    assert different.strength is None and not different.passed


def test_a_capture_takes_no_unlike(tmp_path):
    with pytest.raises(TypeError, match="unlike= needs operands a and b"):
        compare(against=tmp_path / "none.npz", unlike="fp32")


def test_the_command_fails_for_weak_inputs(run, tmp_path):
    files = [str(tmp_path / f"{name}.npy") for name in "abd"]
    for file, shape in zip(files, ((4, 64), (64, 4)), strict=False):
        np.save(file, np.ones(shape, np.float16))
    np.save(files[2], np.full((4, 4), 64, np.float32))
    given = ["compare", *files[:2], "-a", "fp32", "--against", files[2]]
    code, out, _ = run(*given)
    assert (code, "strength: these inputs cannot tell fp32 from pairwise(fp32)" in out) == (0, True)
    code, out, _ = run(*given, "--unlike", "exact(fp32)", "--json")
    facts = json.loads(out)
    assert (code, facts["equal"], facts["passed"]) == (1, True, False)
    assert facts["comparisons"][0]["unlike"] == ["exact(fp32)"]
    assert run("compare", "--unlike", "fp32")[0] == 2

"""Captures of a fake GPU are written, read and replayed. Published outputs are read in both layouts."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import floatsim as fs
from floatsim.cli import hardware as hardware_commands
from floatsim.hardware.captures import capture_file as captures
from floatsim.hardware.captures import published
from floatsim.hardware.captures.capture_file import capture_files, read_captures
from floatsim.hardware.device import Device
from floatsim.hardware.questions import emulated_device, to_capture
from floatsim.hardware.tables.ptx_scalar import SCALARS
from tests.hardware.fakes import ERROR, FakeDevice, an_error, one_bit, other_nans
from tests.hardware.lanes import Lanes, without_compiling
from tests.marks import cases

pytestmark = [pytest.mark.versions, pytest.mark.usefixtures("empty_folder")]
SILICON = os.environ.get("FLOATSIM_SILICON")


def rewrite(path: Path, **changes):
    """Change arrays or the header of a capture. None removes an array."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    header = json.loads(str(arrays["header"])) | changes.pop("header", {})
    arrays = {**arrays, "header": np.array(json.dumps(header)), **changes}
    np.savez(path, **{name: x for name, x in arrays.items() if x is not None})


# -- capture ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_inputs", [False, True])
@pytest.mark.parametrize("capability", cases(quick=[(8, 9)], full=[(7, 0), (9, 0)]), ids=str)
def test_what_is_written_is_read(tmp_path, capability, with_inputs):
    gpu = FakeDevice(capability)
    written = fs.hardware.capture(tmp_path, "*mma*", rows=40, seed=2, with_inputs=with_inputs, device=gpu)
    found = [capture for file in capture_files(tmp_path) for capture in read_captures(file)]
    assert len(found) == len(written) == len({each.path for each in written}) > 1
    by_path = {each.path: each for each in written}
    for each in found:
        own = by_path[each.path]
        assert (each.unit, each.gpu) == (own.unit, "a fake GPU")
        assert np.array_equal(each.d, own.d)
        assert each.inputs.digest == own.inputs.digest
        assert each.compare().equal


def test_provenance(tmp_path):
    (one,) = fs.hardware.capture(tmp_path, "wgmma.k8.tf32 tf32*", rows=20, device=FakeDevice((9, 0)))
    assert one.path.parent.name == "a-fake-gpu"
    assert one.path.name == "wgmma.k8.tf32-tf32-tf32-fp32.npz"
    (read,) = read_captures(one.path)
    header = dict(read.header)
    assert len(header.pop("inputs_sha256")) == len(header.pop("kernel_sha256")) == 64
    assert header.pop("date").endswith("+00:00")
    assert header == {
        "format": "floatsim silicon 1", "kind": "dots", "arch": "hopper", "instruction": "wgmma.k8.tf32", "a": "TF32",
        "b": "TF32", "d": "FP32", "k": 8, "scales": None, "rows": 20, "seed": 0, "generator": 1,
        "card": "a fake GPU", "compute_capability": "9.0", "driver": "0.0", "driver_cuda": "", "cuda": "0.0",
        "compiler": None, "cubin_sha256": None, "command": "fs.hardware.capture", "floatsim": fs.__version__,
    }  # fmt: skip


def test_block_scales_are_recorded(tmp_path):
    for with_inputs in (False, True):
        found = fs.hardware.capture(
            tmp_path, "mma.m16n8k64.nvf4", rows=20, with_inputs=with_inputs, device=FakeDevice((12, 0))
        )
        assert len(found) == 3
        for each in found:
            (read,) = read_captures(each.path)
            assert read.unit.scales == each.unit.scales
            assert np.array_equal(read.inputs.scales.b, each.inputs.scales.b)
            assert read.compare().equal


def test_a_wrong_bit_is_found_again(tmp_path):
    gpu = FakeDevice((8, 0), one_bit(11, 4, "mma.m16n8k16 bf16"))
    fs.hardware.capture(tmp_path, "mma.*", rows=30, device=gpu)
    found = list(fs.hardware.check_silicon(tmp_path))
    (wrong,) = [each for each in found if not each.comparison.equal]
    assert str(wrong.capture.unit) == "ampere mma.m16n8k16: BF16 x BF16 to FP32"
    (first,) = wrong.comparison.first
    assert first.index == (11,)
    assert first.expected ^ first.got == 16
    assert first.trace.code == first.expected
    report = fs.hardware.compare(against=wrong.capture.path)
    assert report.mismatches == 1
    # the model of another architecture, and another accumulation
    assert fs.hardware.compare(against=wrong.capture.path, accumulate="hopper").mismatches > 1
    other = fs.hardware.compare(against=str(wrong.capture.path), accumulate="fp32")
    assert other.mismatches > 1
    assert len(other.first[0].index) == 3
    # the labels name the capture and its GPU
    assert other.title == "sequential(fp32) of the inputs of ampere mma.m16n8k16: BF16 x BF16 to FP32"
    assert other.source == report.source == f"a fake GPU, {wrong.capture.path.name}"


def test_the_errors_of_damaged_files(tmp_path):
    (one,) = fs.hardware.capture(tmp_path, "mma.m8n8k4 fp16 fp16 fp16", rows=20, device=FakeDevice((7, 0)))
    whole = one.path.read_bytes()

    def says(text, **changes):
        rewrite(one.path, **changes)
        with pytest.raises(ValueError, match=text):
            list(read_captures(one.path))
        one.path.write_bytes(whole)

    says("its inputs do not match its header", header={"inputs_sha256": "0"})
    says("its inputs do not match its header", header={"seed": 1})
    says("has the kind 'sums'; this version reads 'dots', 'scalar'", header={"kind": "sums"})
    newer = {"format": "floatsim silicon 2"}
    says("has the format 'floatsim silicon 2'; this version reads 'floatsim silicon 1'", header=newer)
    says(r"d must be \(20,\) of uint16, not \(19,\) of uint16", d=one.d[1:])
    says("of uint16, not .* of uint32", d=one.d.astype(np.uint32))
    says("volta has no instruction 'mma.m9n9k9'", header={"instruction": "mma.m9n9k9"})
    says("its header must be an integer of at least 10, not '20'", header={"rows": "20"})
    says("seed of its header must be an integer of at least 0, not -1", header={"seed": -1})
    for damaged, text in (
        (whole[:50], "is damaged: it begins as an .npz file"),
        (whole[:300] + bytes(9) + whole[309:], r"is damaged, or holds other data than arrays|is damaged"),
        (b"", "is empty; captures are .npz files"),
        (b"hello", "is not an .npz file; captures are .npz files, as `floatsim capture` writes them, or published"),
    ):
        one.path.write_bytes(damaged)
        with pytest.raises(ValueError, match=text):
            list(read_captures(one.path))
    np.savez(one.path, header=np.array([{}], object), d=one.d)
    with pytest.raises(ValueError, match="is damaged, or holds other data than arrays of numbers and text"):
        list(read_captures(one.path))
    with one.path.open("wb") as file:
        np.save(file, one.d)
    with pytest.raises(ValueError, match=r"is a \.npy file of one array; captures are \.npz files"):
        list(read_captures(one.path))
    np.savez(one.path, x=np.ones(3))
    with pytest.raises(ValueError, match=r"holds no capture: .*; it has x"):
        list(read_captures(one.path))
    for header, text in (("{}", "its header lacks 'format', 'arch'"), ("[1]", "must be a JSON object, not \\[1\\]"),
                         ("?", "its header is not JSON: Expecting value")):  # fmt: skip
        np.savez(one.path, header=np.array(header))
        with pytest.raises(ValueError, match=text):
            list(read_captures(one.path))


def test_the_errors_of_wrong_shapes(tmp_path):
    (one,) = fs.hardware.capture(
        tmp_path, "mma.m16n8k64.nvf4 * e8m0/16", rows=20, with_inputs=True, device=FakeDevice((12, 0))
    )
    x, whole = one.inputs, one.path.read_bytes()
    for text, changes in (
        (r"a must be \(20, 64\) of uint8, not \(1280,\) of uint8", {"a": x.a.reshape(-1)}),
        (r"b must be \(20, 64\) of uint8, not missing", {"b": None}),
        (r"c must be \(20,\) of uint32, not \(20,\) of uint64", {"c": x.c.astype(np.uint64)}),
        (r"scale_b must be \(20, 4\) of uint8, not \(20, 2\)", {"scale_b": x.scales.b[:, :2]}),
    ):
        rewrite(one.path, **changes)
        with pytest.raises(ValueError, match=text):
            list(read_captures(one.path))
        one.path.write_bytes(whole)
    assert fs.hardware.compare(against=one.path).equal


def test_other_files_below_a_folder_are_left_out(tmp_path):
    (one,) = fs.hardware.capture(tmp_path, "mma.m8n8k4 fp16 fp16 fp16", rows=20, device=FakeDevice((7, 0)))
    (tmp_path / "notes").mkdir()
    np.savez(tmp_path / "notes" / "exp.npz", meta=np.array("{}"), d=np.ones(3))
    assert capture_files(tmp_path) == [one.path]
    assert [checked.capture.path for checked in fs.hardware.check_silicon(tmp_path)] == [one.path]
    with pytest.raises(ValueError, match="notes holds no captures"):
        list(fs.hardware.check_silicon(tmp_path / "notes"))
    (tmp_path / "notes" / "damaged.npz").write_bytes(one.path.read_bytes()[:50])
    with pytest.raises(ValueError, match=r"damaged\.npz is damaged"):
        list(fs.hardware.check_silicon(tmp_path))


def test_command(run, monkeypatch, tmp_path):
    monkeypatch.setattr(hardware_commands, "local_device", lambda: FakeDevice((8, 9), one_bit(5, of="e5m2 e5m2 fp16")))
    code, out, err = run("capture", "--out", "silicon", "-i", "mma.m16n8k32", "--rows", 40)
    assert (code, err) == (0, "")
    assert out.count("40 dot products") == 8
    assert len(list(tmp_path.glob("silicon/*/*.npz"))) == 8
    code, out, _ = run("check-silicon", "silicon")
    assert code == 1
    assert "8 sets, 320 rows: 1 set differs" in out
    assert "[5] emulated 0x" in out
    code, out, _ = run("check-silicon", "silicon", "--json")
    facts = json.loads(out)
    assert facts["equal"] is False
    assert sum(each["results"] for each in facts["comparisons"]) == 320
    assert [each["mismatches"] for each in facts["comparisons"]].count(1) == 1
    right = next(p for p in Path("silicon").glob("*/*fp32.npz"))
    assert run("check-silicon", right)[0] == 0
    assert run("compare", "--against", right)[0] == 0
    code, out, _ = run("compare", "--against", "silicon", "--json")
    assert (code, len(json.loads(out)["comparisons"])) == (1, 8)
    code, out, err = run("capture", "--out", right, "-i", "mma.m16n8k32", "--rows", 40)
    assert code == 2
    assert "--out:" in err


# -- operations of CUDA cores ----------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("with_inputs", [False, True])
def test_operations_that_are_written_are_read(tmp_path, with_inputs):
    """One operation of each kind, with one, two and three operands, and with random bits."""
    patterns = [
        "add fp16*",
        "fma bf16*",
        "sqrt fp32, *",
        "convert fp64 to bf16*",
        "convert fp32 to e2m1*",
        "convert e8m0*",
    ]
    written = fs.hardware.capture(
        tmp_path, patterns, seed=2, with_inputs=with_inputs, device=emulated_device("blackwell")
    )
    found = {each.path: each for file in capture_files(tmp_path) for each in read_captures(file)}
    assert len(found) == len(written) == 2 + 1 + 8 + 4 + 2 + 1
    for own in written:
        each = found[own.path]
        assert (each.row, each.gpu, each.error) == (own.row, "the emulator of blackwell", "")
        assert np.array_equal(each.d, own.d)
        assert each.d.dtype == own.row.result.code_dtype
        assert len(each.operands) == len(own.operands)
        assert all(np.array_equal(x, y) for x, y in zip(each.operands, own.operands, strict=True))
        report = each.compare()
        assert (report.equal, report.count, report.nan_other_bits) == (True, len(own.d), 0)
        with np.load(own.path) as file:
            assert ("x0" in file.files) is with_inputs


@pytest.mark.parametrize("arch", cases(quick=["ampere"], full=["volta", "ada", "hopper", "blackwell", "blackwell-rtx"]))
def test_every_operation_of_a_gpu_is_captured(arch):
    device = emulated_device(arch)
    capability = device.identity.capability
    found = to_capture(device)
    assert [each.row for each in found if hasattr(each, "row")] == [row for row in SCALARS if row.runs_on(capability)]
    assert any(hasattr(each, "variant") for each in found)
    assert len({each.title for each in found}) == len(found)


def test_provenance_of_an_operation(tmp_path):
    (one,) = fs.hardware.capture(tmp_path, "convert fp32 to e5m2, ties*", device=emulated_device("ada"))
    assert one.path.name == "convert-fp32-e5m2-ties-to-even-saturate-finite.npz"
    header = dict(next(read_captures(one.path)).header)
    assert len(header.pop("inputs_sha256")) == len(header.pop("kernel_sha256")) == 64
    assert header.pop("date").endswith("+00:00")
    assert header == {
        "format": "floatsim silicon 1", "kind": "scalar", "kernel": "convert_fp32_e5m2_ties_to_even_saturate_finite",
        "operation": "convert FP32 to E5M2, ties_to_even, saturate_finite", "source": "FP32", "result": "E5M2",
        "rows": len(one.d), "seed": 0, "generator": 1,
        "card": "the emulator of ada", "compute_capability": "8.9", "driver": "", "driver_cuda": "", "cuda": "",
        "compiler": None, "cubin_sha256": None, "command": "fs.hardware.capture", "floatsim": fs.__version__,
    }  # fmt: skip


def test_the_machine_code_is_recorded(tmp_path, monkeypatch):
    """A device that compiles has a compiler, and machine code of its own for each matrix instruction."""
    without_compiling(monkeypatch)
    patterns = ["mma.m8n8k4 fp16 *", "convert fp16 to fp32*", "convert fp16 to fp64*"]
    written = fs.hardware.capture(tmp_path, patterns, rows=10, device=Device(cuda=Lanes((7, 5))))
    assert [each.error for each in written] == [""] * 4
    assert {each.header["compiler"] for each in written} == {"no compiler"}
    codes = [each.header["cubin_sha256"] for each in written]
    assert {len(code) for code in codes} == {64}
    assert len(set(codes[:2])) == 2  # D of FP32 and of FP16
    assert codes[2] == codes[3] not in codes[:2]  # one program holds all operations of CUDA cores
    assert written[2].header["kernel_sha256"] != written[3].header["kernel_sha256"]
    assert all(checked.comparison.equal for checked in fs.hardware.check_silicon(tmp_path))


def test_a_wrong_bit_of_an_operation_is_found(run, tmp_path):
    gpu = FakeDevice((8, 0), one_bit(777, 2, "multiply FP16"))
    fs.hardware.capture(tmp_path, ["multiply fp16*", "add fp16, ties_to_even"], device=gpu)
    right, wrong = fs.hardware.check_silicon(tmp_path)
    assert right.comparison.equal
    assert wrong.capture.title == "multiply FP16, ties_to_even"
    (first,) = wrong.comparison.first
    assert (first.index, first.expected ^ first.got, first.trace) == ((777,), 4, None)
    assert first.operands.a.codes == wrong.capture.operands[0][777]
    assert first.operands.b.codes == wrong.capture.operands[1][777]
    assert first.operands.c is None
    assert "  a = " in str(wrong.comparison)
    code, out, _ = run("check-silicon", tmp_path)
    assert code == 1
    assert "2 sets, 145408 rows: 1 set differs" in out
    code, out, _ = run("check-silicon", tmp_path, "--json")
    assert [each["mismatches"] for each in json.loads(out)["comparisons"]] == [0, 1]
    assert list(fs.hardware.check_silicon(tmp_path, "hopper")) == []  # they have no accumulation
    with pytest.raises(ValueError, match="accumulate=hopper cannot replace multiply FP16, ties_to_even"):
        fs.hardware.compare(against=wrong.capture.path, accumulate="hopper")
    assert fs.hardware.compare(against=wrong.capture.path).mismatches == 1


@pytest.mark.full
def test_nans_of_operations_are_counted_apart(tmp_path):
    gpu = FakeDevice((8, 0), other_nans)
    for each in fs.hardware.capture(tmp_path, ["sqrt fp32, ties*", "convert fp32 to fp16*", "fma fp64*"], device=gpu):
        report = each.compare()
        nans = np.count_nonzero(fs.isnan(report.expected))
        assert (report.equal, report.nan_other_bits) == (True, nans), each.title
        assert nans > 10
        assert f"NaN, other bits: {nans}" in str(report)

    def a_number(row, d):
        d = other_nans(row, d)
        d[np.flatnonzero(d == d.max())[0]] = 0
        return d

    gpu = FakeDevice((8, 0), a_number)
    (one,) = fs.hardware.capture(tmp_path, "sqrt fp32, ties_to_even", device=gpu)
    assert (one.compare().equal, one.compare().mismatches, one.compare().histogram["NaN"]) == (False, 1, 1)


def test_the_errors_of_damaged_operations(tmp_path):
    (one,) = fs.hardware.capture(
        tmp_path, "convert fp32 to e2m1, stochastic*", with_inputs=True, device=emulated_device("blackwell")
    )
    whole, n = one.path.read_bytes(), len(one.d)
    steps = np.diff(one.d, prepend=one.d.dtype.type(0))
    for text, changes in (
        ("names an unknown operation: convert_fp32", {"header": {"kernel": "convert_fp32"}}),
        (rf"d_steps must be \({n},\) of uint8, not \({n - 1},\) of uint8", {"d_steps": steps[1:]}),
        (rf"d_steps must be \({n},\) of uint8, not missing", {"d_steps": None}),
        (rf"x0 must be \({n},\) of uint32, not \({n},\) of uint64", {"x0": one.operands[0].astype(np.uint64)}),
        (rf"x1 must be \({n},\) of uint32, not missing", {"x1": None}),
        ("its inputs do not match its header", {"x1": one.operands[1] ^ np.uint32(1)}),
        ("its header must be an integer of at least 0, not -1", {"header": {"seed": -1}}),
    ):
        rewrite(one.path, **changes)
        with pytest.raises(ValueError, match=text):
            list(read_captures(one.path))
        one.path.write_bytes(whole)
    assert next(read_captures(one.path)).compare().equal


# -- errors of single instructions -----------------------------------------------------------------------------------


def test_capture_goes_on_after_an_error(run, tmp_path, monkeypatch):
    gpu = FakeDevice((8, 9), an_error("e5m2 e5m2 fp16", an_error("FP16 to FP64", one_bit(5, of="e4m3 e4m3 fp32"))))
    chosen = ["mma.m16n8k32", "convert fp16 to *"]
    found = fs.hardware.capture("python", chosen, rows=40, device=gpu)
    assert [each.title for each in found if each.error] == [
        "ada mma.m16n8k32: E5M2 x E5M2 to FP16", "convert FP16 to FP64, exact",
    ]  # fmt: skip
    for each in found:
        assert each.path.exists() is not bool(each.error)
        assert each.error in ("", ERROR)
        assert len(each.d) > 0 or each.error
    monkeypatch.setattr(hardware_commands, "local_device", lambda: gpu)
    arguments = ["--rows", 40, *(word for text in chosen for word in ("-i", text))]
    code, out, err = run("capture", "--out", "silicon", *arguments)
    assert (code, err) == (3, "")
    lines = out.splitlines()
    assert f"ada mma.m16n8k32: E5M2 x E5M2 to FP16: could not run: {ERROR}" in lines
    assert f"convert FP16 to FP64, exact: could not run: {ERROR}" in lines
    assert sum(line.endswith("40 dot products") for line in lines) == 7
    assert any(line.endswith("convert FP16 to FP32, exact, 65536 results") for line in lines)
    assert lines[-1] == f"{len(found) - 2} of {len(found)} instructions captured, 2 could not run"
    assert len(list(tmp_path.glob("silicon/*/*"))) == len(found) - 2
    code, out, _ = run("capture", "--out", "json", *arguments, "--json")
    rows = json.loads(out)["recordings"]
    assert code == 3
    assert [row["error"] for row in rows].count(ERROR) == 2
    assert all((row["path"] is None) == bool(row["error"]) for row in rows)
    assert run("check-silicon", "silicon")[0] == 1


def test_a_capture_that_cannot_be_written_is_a_row(run, tmp_path, monkeypatch):
    """No space is left for one file. A folder that cannot be created is bad input."""
    save = np.savez_compressed

    def full(file, **arrays):
        save(file, **arrays)
        if "e5m2-e5m2-fp16" in file.name:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    found = fs.hardware.capture(tmp_path, "mma.m16n8k32 e5m2*", rows=40, device=FakeDevice((8, 9)))
    assert [each.error for each in found if each.error] == ["OSError: [Errno 28] No space left on device"]
    assert not any(each.path.exists() for each in found if each.error)
    assert all(checked.comparison.equal for checked in fs.hardware.check_silicon(tmp_path))


def test_captures_without_a_kind_are_dot_products(tmp_path):
    (one,) = fs.hardware.capture(tmp_path, "mma.m8n8k4 fp16 fp16 fp16", rows=20, device=FakeDevice((7, 0)))
    with np.load(one.path) as file:
        header = json.loads(str(file["header"]))
    for key in ("kind", "compiler", "cubin_sha256", "driver_cuda"):
        del header[key]
    np.savez(one.path, header=np.array(json.dumps(header)), d=one.d)
    (read,) = read_captures(one.path)
    assert np.array_equal(read.d, one.d)
    assert read.compare().equal


def test_nothing_to_replay(run, tmp_path):
    (tmp_path / "empty").mkdir()
    for path, text in (("nowhere", "there is no file or folder nowhere"), ("empty", "empty holds no captures")):
        code, out, err = run("check-silicon", path)
        assert (code, out) == (2, "")
        assert text in err
    with pytest.raises(ValueError, match="must hold one capture, and has 0"):
        fs.hardware.compare(against=tmp_path / "empty")


# -- published outputs -----------------------------------------------------------------------------------------------


def words(x, fmt):
    """Return codes of a format as FP32 bits."""
    return fs.decode(x, fmt).astype(np.float32).view(np.uint32)


def make(folder: Path, gpu: str, name: str, rows: int = 25, wrong: int | None = None) -> None:
    """Write a folder in the repository's layout with emulated results, with a wrong bit in row `wrong` of FP32."""
    fmt = published.FORMATS[name]
    rng = np.random.default_rng(rows)
    k = 4 if fmt == fs.TF32 else published.published_unit(gpu, fmt, "d_fp32").k
    a, b = (fs.encode(rng.normal(size=(rows, k)), fmt) for _ in range(2))
    c = rng.normal(size=rows).astype(np.float32)
    folder.mkdir(parents=True)
    for side, x in (("a", a), ("b", b)):
        lines = [" ".join(f"{word:08x}" for word in row) for row in words(x, fmt).tolist()]
        (folder / f"{side}_{gpu}_{name}.txt").write_text("\n".join(lines) + "\n")
    binary = {f"c_{gpu}_fp32": c.view(np.uint32)}
    for key in published.KEYS:
        if key == "d_fp16" and name in ("bf16", "tf32"):
            continue
        unit = published.published_unit(gpu, fmt, key)
        start = np.zeros_like(c) if unit.name == "wgmma.k32" else c
        d = unit.dots(a, b, fs.encode(start, unit.output))
        binary[f"d_{gpu}_{key[2:]}"] = words(d, unit.output)
    if wrong is not None:
        binary[f"d_{gpu}_fp32"][wrong] ^= 1
    for stem, x in binary.items():
        (folder / f"{stem}.txt").write_text("".join(f"{word:032b}\n" for word in x.tolist()))


def test_the_layout_of_the_repository(tmp_path, run):
    root = tmp_path / "model_validation"
    sets = [(gpu, name) for gpu in published.GPUS for name in published.FORMATS
            if not (gpu == "V100" and name != "fp16") and not (gpu in ("A100", "A2") and name[0] == "E")]  # fmt: skip
    for gpu, name in sets:
        make(root / gpu / name, gpu, name)
    found = list(fs.hardware.check_silicon(tmp_path))
    assert len(found) == sum(2 if name[0] in "fE" else 1 for _, name in sets)
    assert all(each.comparison.equal for each in found)
    assert {each.capture.gpu for each in found} == set(published.GPUS)
    shutil.rmtree(root / "H100" / "fp16")
    make(root / "H100" / "fp16", "H100", "fp16", wrong=7)
    code, out, _ = run("check-silicon", root)
    assert code == 1
    assert "[7] emulated 0x" in out
    assert "against H100, fp16" in out
    one = root / "H100" / "fp16"
    code, out, _ = run("compare", "--against", one)
    assert code == 1
    with pytest.raises(ValueError, match="must hold one capture, and has 2: hopper mma"):
        fs.hardware.compare(against=one)


def test_as_arrays(tmp_path):
    make(tmp_path / "L40S" / "E4M3", "L40S", "E4M3")
    (first, second) = published.read_folder(tmp_path / "L40S" / "E4M3")
    fmt = fs.E4M3
    np.savez(
        tmp_path / "L40S_E4M3.npz", a=words(first.inputs.a, fmt), b=words(first.inputs.b, fmt),
        c_fp32=first.inputs.c, d_fp32=first.d, d_fp16=words(second.d, fs.FP16),
    )  # fmt: skip
    found = list(read_captures(tmp_path / "L40S_E4M3.npz"))
    assert [str(each.unit) for each in found] == [
        "ada mma.m16n8k32: E4M3 x E4M3 to FP32", "ada mma.m16n8k32: E4M3 x E4M3 to FP16",
    ]  # fmt: skip
    assert all(each.compare().equal for each in found)
    shutil.copy(tmp_path / "L40S_E4M3.npz", tmp_path / "mine.npz")
    with pytest.raises(ValueError, match=r"is not named like published outputs: <GPU>_<format>\.npz"):
        list(read_captures(tmp_path / "mine.npz"))


def test_arrays_that_do_not_fit(tmp_path):
    make(tmp_path / "A100" / "fp16", "A100", "fp16")
    first, second = published.read_folder(tmp_path / "A100" / "fp16")
    whole = {
        "a": words(first.inputs.a, fs.FP16), "b": words(first.inputs.b, fs.FP16), "c_fp32": first.inputs.c,
        "d_fp32": first.d, "d_fp16": words(second.d, fs.FP16),
    }  # fmt: skip
    path = tmp_path / "A100_fp16.npz"
    odd = whole["a"].copy()
    odd[3, 1] = np.float32(1 + 2**-20).view(np.uint32)
    for text, changes in (
        (r"a and b must have equal shapes, .* 25 results; they are a \(25, 8\), b \(25, 7\)", {"b": whole["b"][:, :7]}),
        (r"a row for each of 25 results", {"c_fp32": first.inputs.c[:20]}),
        (r"a must be \(rows, K\) of uint32, bits of FP32, not \(25, 8\) of float32", {"a": whole["a"].view("f4")}),
        (r"d_fp32 must be \(rows,\) of uint32, bits of FP32, not \(25, 1\)", {"d_fp32": first.d[:, np.newaxis]}),
        (r"has 16 products in a row; ampere mma.m16n8k8: .* takes 8",
         {side: np.tile(whole[side], 2) for side in "ab"}),
        (r"is not of FP16: a has 1.00000095\d* in row 3", {"a": odd}),
    ):  # fmt: skip
        np.savez(path, **whole | changes)
        with pytest.raises(ValueError, match=text):
            list(read_captures(path))
    np.savez(path, **whole)
    assert all(each.compare().equal for each in read_captures(path))
    np.savez(tmp_path / "V100_bf16.npz", **whole)
    with pytest.raises(ValueError, match=r"V100_bf16.npz belongs to an unknown instruction: mma.m8n8k4 on volta"):
        list(read_captures(tmp_path / "V100_bf16.npz"))


def test_text_that_is_damaged(tmp_path):
    folder = tmp_path / "A2" / "tf32"
    make(folder, "A2", "tf32")
    d, a, b = (folder / f"{name}.txt" for name in ("d_A2_fp32", "a_A2_tf32", "b_A2_tf32"))
    text, left = d.read_text(), a.read_text()
    for wrong in (text.replace("1", "2", 1), text.replace("\n", " ", 1), text.replace("1", "", 1), ""):
        d.write_text(wrong)
        with pytest.raises(ValueError, match="must hold only 32 binary digits on every line"):
            list(read_captures(folder))
    d.write_text("".join(text.splitlines(keepends=True)[:-2]))  # fewer results are of the first inputs
    (found,) = read_captures(folder)
    assert len(found.d) == 23
    assert found.compare().equal
    d.write_text(text)
    a.write_text(left[9:])
    with pytest.raises(ValueError, match="must hold only the same number of hexadecimal words on every line"):
        list(read_captures(folder))
    a.write_text("".join(left.splitlines(keepends=True)[:-2]))
    with pytest.raises(ValueError, match=r"lacks a_A2_tf32\.txt, or the file has fewer lines than the 25 results"):
        list(read_captures(folder))
    a.write_text("".join(line[9:] + "\n" for line in left.splitlines()))
    with pytest.raises(ValueError, match=r"rows of a_A2_tf32\.txt have 3 words, and of b_A2_tf32\.txt 4"):
        list(read_captures(folder))
    a.write_text("0x" + left)
    assert next(read_captures(folder)).compare().equal
    b.unlink()
    with pytest.raises(ValueError, match=r"lacks b_A2_tf32\.txt"):
        list(read_captures(folder))
    d.rename(folder / "d_A2_fp64.txt")
    with pytest.raises(ValueError, match=r"has no results: neither d_A2_fp32\.txt nor d_A2_fp16\.txt"):
        list(read_captures(folder))


@pytest.mark.skipif(not SILICON, reason="FLOATSIM_SILICON does not name a folder of published outputs")
def test_published_outputs(run):
    code, out, _ = run("check-silicon", SILICON)
    assert code == 0
    assert "48 sets, 48000 rows: all equal" in out


def test_format_is_named_once():
    assert captures.FORMAT == "floatsim silicon 1"


# -- the table of what has been verified -----------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs" / "hardware.md"
BEGIN, END = (
    f"<!-- verified: {word} -->"
    for word in ("begin (FLOATSIM_SILICON=... python tests/hardware/test_capture_file.py)", "end")
)
HEAD = (
    "architecture", "instruction", "A, B", "D", "published: rows, mismatches", "captured: rows, mismatches",
    "compared: rows, mismatches",
)  # fmt: skip
CAPTURES = Path(__file__).parents[2] / "data" / "silicon"
GPU_RUNS = sorted(CAPTURES.glob("*/compared.json"))
Counts = dict[tuple[str, ...], dict[str, list[int]]]


def count(found: Counts, key: tuple[str, ...], gpu: str, rows: int, mismatches: int) -> None:
    """Add rows and mismatches of a GPU to those of a row of the table."""
    counts = found.setdefault(key, {}).setdefault(gpu, [0, 0])
    counts[0] += rows
    counts[1] += mismatches


def row_key(unit, fmt) -> tuple[str, ...]:
    """Return the row of the table: FP32 operands are those of TF32 instructions."""
    return unit.arch, unit.name, (fs.TF32 if fmt == fs.FP32 else fmt).name, unit.output.name


def published_counts() -> Counts:
    found: Counts = {}
    for checked in fs.hardware.check_silicon(SILICON) if SILICON else ():
        unit, comparison = checked.capture.unit, checked.comparison
        gpu = published.GPUS[checked.capture.gpu].name
        count(found, row_key(unit, unit.a), gpu, comparison.count, comparison.mismatches)
    return found


def own_counts() -> tuple[Counts, Counts]:
    """Count the project's own captures of GPUs, which are replayed, and its further comparisons, by the format of A."""
    captured: Counts = {}
    compared: Counts = {}
    for run in GPU_RUNS:
        facts = json.loads(run.read_text(encoding="utf-8"))
        gpu, jobs = facts["card"].removeprefix("NVIDIA "), facts["jobs"]
        for file in sorted(run.parent.glob("*mma*.npz")):
            (checked,) = fs.hardware.check_silicon(file)
            unit, comparison = checked.capture.unit, checked.comparison
            job = jobs.pop(" ".join((unit.name, unit.a.name, unit.b.name, unit.output.name)).lower())
            count(captured, row_key(unit, unit.a), gpu, comparison.count, comparison.mismatches)
            count(compared, row_key(unit, unit.a), gpu, *job)
        assert not jobs, jobs
    return captured, compared


def verified() -> list[tuple[str, ...]]:
    """Return the rows of the table. The published outputs are read if `FLOATSIM_SILICON` names their folder."""
    sources = published_counts(), *own_counts()
    rows: dict[tuple[Any, ...], list[str]] = {}  # formats with equal cells share a row
    for arch in ("volta", "turing", "ampere", "ada", "hopper", "blackwell", "blackwell-rtx"):
        for row in fs.tensorcore.ARCHITECTURES[arch].instructions:
            for fmt in row.inputs:
                key = (arch, row.name, fmt.name, row.output.name)
                cells = tuple(
                    "; ".join(f"{gpu}: {n:,}, {wrong}" for gpu, (n, wrong) in source.get(key, {}).items())
                    for source in sources
                )
                rows.setdefault((arch, row.name, row.inputs, row.output.name, *cells), []).append(fmt.name)
    return [
        (f"`{arch}`", f"`{name}`", ", ".join(formats), output, *cells)
        for (arch, name, _, output, *cells), formats in rows.items()
    ]


def in_the_page() -> list[tuple[str, ...]]:
    text = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    return [
        tuple(cell.strip() for cell in line.strip().strip("|").split("|")) for line in text.strip().splitlines()[2:]
    ]


def test_the_rows_of_the_page():
    written = in_the_page()
    of_the_table = {
        (f"`{arch.name}`", f"`{row.name}`", fmt.name, row.output.name)
        for arch in fs.tensorcore.ARCHITECTURES.values() if arch.title.startswith("NVIDIA")
        for row in arch.instructions for fmt in row.inputs
    }  # fmt: skip
    assert of_the_table == {(*row[:2], fmt, row[3]) for row in written for fmt in row[2].split(", ")}
    for column in (4, 5, 6):
        cells = "; ".join(row[column] for row in written).split("; ")
        assert all(cell.endswith(", 0") for cell in cells if cell)
        assert any(cells)


@pytest.mark.full
@pytest.mark.skipif(not GPU_RUNS, reason="the captures of GPUs are only in a clone")
def test_the_table_of_the_page():
    written = in_the_page()
    expected = verified() if SILICON else [(*row[:4], *row[5:]) for row in verified()]
    found = written if SILICON else [(*row[:4], *row[5:]) for row in written]
    assert merged(found) == merged(expected), "python tests/hardware/test_capture_file.py rewrites it"


def merged(rows: list[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """Return rows with one format each: formats share a row only if all their cells are equal."""
    return {(*row[:2], fmt, *row[3:]) for row in rows for fmt in row[2].split(", ")}


if __name__ == "__main__":
    lines = [f"| {' | '.join(row)} |" for row in (HEAD, ("---",) * len(HEAD), *verified())]
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text("\n".join([f"{before}{BEGIN}", *lines, f"{END}{rest.partition(END)[2]}"]), encoding="utf-8")

"""`floatsim check`, `identify` and `strength` on files, their errors, and the file readers on damaged files."""

from __future__ import annotations

import io
import json
import os
import pickle
import sys
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import floatsim as fs
from floatsim.cli.console import BadInputError
from floatsim.cli.matrix_files import read_arrays

PRODUCT = ("--a", "a.npy", "--b", "b.npy", "--accumulate", "fp32")


@pytest.fixture(autouse=True)
def files(empty_folder):
    """Operands of FP32, and the product in FP32."""
    a, b = fs.testing.hard_inputs((4, 16, 4), "fp32", "integers")
    np.save("a.npy", np.asarray(a))
    np.save("b.npy", np.asarray(b))
    np.save("out.npy", np.asarray(fs.matmul(a, b, accumulate="fp32")))


def rejected(result, text):
    code, out, err = result
    assert (code, out) == (2, "")
    assert text in err.splitlines()[-1]
    assert err.splitlines()[-1].startswith("floatsim: ")
    assert "Traceback" not in err


def test_equal_bits(run):
    code, out, err = run("check", *PRODUCT, "--out", "out.npy")
    assert (code, err) == (0, "")
    assert out.startswith("all 16 elements of FP32 pass: every bit is equal, against fp32")


@pytest.mark.full
def test_a_mismatch_is_located(run):
    wrong = np.load("out.npy")
    wrong[2, 3] += 1
    np.save("wrong.npy", wrong)
    code, out, _ = run("check", *PRODUCT, "--out", "wrong.npy", "--json", "--picture", "map.png")
    report = json.loads(out)
    assert code == 1
    assert (report["mismatches"], report["first"][0]["index"]) == (1, [2, 3])
    assert Path("map.png").read_bytes().startswith(b"\x89PNG")
    assert run("check", "--out", "wrong.npy", "--desired", "out.npy")[0] == 1


@pytest.mark.full
@pytest.mark.parametrize("name", ["bf16", "fp16", "e4m3", "e5m2", "e3m2", "fp32"])
def test_every_result_format_from_codes(run, name):
    """The dtype of ml_dtypes, codes as unsigned integers, and files of fs.save give one result."""
    fmt = fs.as_format(name)
    a, b = np.load("a.npy"), np.load("b.npy")
    product = fs.array(np.asarray(fs.matmul(a, b, accumulate="fp32")), fmt)
    np.save("codes.npy", product.codes)
    fs.save("saved.npz", product)
    saved = {"codes.npy", "saved.npz"}
    if fmt.dtype is not None:
        np.save("dtype.npy", product.codes.view(fmt.dtype))
        saved.add("dtype.npy")
    for file in saved:
        code, _, err = run("check", *PRODUCT, "--out", file, "--format", name)
        assert code == 0
        assert (f"holds codes of {fmt.name}" in err) == (
            file == "codes.npy" or (file == "dtype.npy" and fmt.dtype.isbuiltin != 1)
        )


@pytest.mark.parametrize(("x", "options", "text"), [
    (np.ones((4, 4), np.uint8), (), "it holds codes, not numbers; name their format, as in --codes out=bf16"),
    (np.ones((4, 4), ml_dtypes.bfloat16), (), "name their format, as in --codes out=bf16"),
    (np.ones((4, 4), np.uint8), ("--codes", "out=bf16"), "codes of BF16 have 16 bits"),
    (np.ones((4, 4), np.uint8), ("--format", "bf16"), "codes of BF16 have 16 bits"),
    (np.ones((4, 4), np.int8), (), "save codes as x.view('uint8')"),
    (np.full((4, 4), 255, np.uint8), ("--codes", "out=e3m2"), "E3M2"),
    (np.ones((4, 4)), ("--codes", "d=bf16"), "--codes: 'd' is no file of this command"),
    (np.ones((4, 4), bool), (), "has dtype bool"),
    (np.ones((4, 4), complex), (), "has dtype complex128"),
    (np.ones((4, 4), "U2"), (), "has dtype <U2"),
    (np.ones((4, 5), np.float32), (), "the shape (4, 5)"),
    (np.full((4, 4), 0.1), ("--format", "fp32"), "is no number of FP32"),
    (np.ones((4, 4), np.float32), ("--format", "fp61"), "--format: unknown format 'fp61'"),
])  # fmt: skip
def test_bad_results(run, x, options, text):
    np.save("x.npy", x)
    rejected(run("check", *PRODUCT, "--out", "x.npy", *options), text)


@pytest.mark.parametrize(("arguments", "text"), [
    (["--out", "out.npy"], "check needs --a, --b and --accumulate"),
    (["--out", "no.npy", "--desired", "out.npy"], "--out: there is no file no.npy"),
    (["--out", "out.npy", "--desired", "out.npy", "--a", "a.npy"], "--desired excludes"),
    ([*PRODUCT[:4], "--accumulate", "hoper", "--out", "out.npy"], "hopper"),
    (["--a", "a.npy"], "--out"),
])  # fmt: skip
def test_bad_usage(run, arguments, text):
    rejected(run("check", *arguments), text)


def test_errors_in_json(run):
    for arguments in (("check", *PRODUCT, "--out", "no.npy"), ("formats", "fp61"), ("check", "--nonsense")):
        code, out, err = run(*arguments, "--json")
        error = json.loads(out)["error"]
        assert (code, error["exit_code"]) == (2, 2)
        assert err == f"floatsim: {error['message']}\n"


def test_rounded_operands_are_reported(run):
    np.save("a.npy", np.full((4, 16), 0.1))
    np.save("b.npy", np.ones((16, 4)))
    product = fs.matmul(fs.array(np.full((4, 16), 0.1), "fp32"), np.ones((16, 4), np.float32), accumulate="fp32")
    np.save("out.npy", np.asarray(product))
    code, _, err = run("check", *PRODUCT, "--out", "out.npy", "--operands", "fp32")
    assert (code, err) == (0, "floatsim: --a: 64 of 64 values were rounded to FP32\n")


def test_numbers_that_are_named_as_codes_are_an_error(run):
    """`--codes bf16` is for all files that hold codes; `--codes a=bf16` says that this file does."""
    for name, x in (("a", np.ones((4, 4), np.float32)), ("b", np.ones((4, 4), np.float32))):
        np.save(f"{name}.npy", x)
    np.save("out.npy", np.full((4, 4), 4, np.float32))
    given = ["check", "--a", "a.npy", "--b", "b.npy", "--out", "out.npy", "--accumulate", "fp32"]
    assert run(*given, "--codes", "bf16")[0] == 0
    code, _, err = run(*given, "--codes", "a=bf16")
    assert (code, "--codes: a.npy holds numbers, not codes; omit a=" in err) == (2, True)
    code, _, err = run("check", "--out", "out.npy", "--desired", "out.npy", "--codes", "desired=bf16")
    assert (code, "out.npy holds numbers, not codes; omit desired=" in err) == (2, True)


def test_numbers_from_unsigned_integers_are_reported(run):
    np.save("x.npy", np.ones((4, 4), np.uint8))
    _, _, err = run("survey", "x.npy", "--operands", "fp61")
    assert err.startswith("floatsim: x.npy: x has dtype uint8, which is read as numbers, not as codes; save codes with")


@pytest.mark.full
def test_identify(run):
    code, out, _ = run("identify", "--a", "a.npy", "--b", "b.npy", "--out", "out.npy", "--json")
    assert code == 0
    assert "fp32" in json.loads(out)["names"]
    np.save("out.npy", np.load("out.npy") + 1e9)
    assert run("identify", "--a", "a.npy", "--b", "b.npy", "--out", "out.npy")[0] == 1


@pytest.mark.full
def test_strength(run):
    a, b = fs.testing.hard_inputs((32, 96, 32), "bf16", "normal")
    np.save("a.npy", np.asarray(a))
    np.save("b.npy", np.asarray(b))
    same = (*PRODUCT, "--codes", "bf16", "--format", "bf16")
    code, out, _ = run("strength", *same, "--rtol", "0.5", "--atol", "5", "--json")
    assert code == 1
    assert "the accumulator is FP16" in json.loads(out)["missed"]
    assert run("strength", *same, "--maxulp", "0")[0] == 0


def test_strength_needs_one_check(run):
    rejected(run("strength", *PRODUCT), "strength needs one check")
    rejected(run("strength", *PRODUCT, "--maxulp", "1", "--calc-diff", "0.1"), "strength needs one check")


# -- damaged files -----------------------------------------------------------------------------------------------------


def npy(header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    size = len(header).to_bytes(2 if version == b"\x01\x00" else 4, "little")
    return b"\x93NUMPY" + version + size + header.encode("latin1") + data


def described(descr: str, shape: str, data: bytes = b"") -> bytes:
    return npy(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n", data)


class Trap:
    """An object whose pickle creates a folder when it is read."""

    def __reduce__(self):
        return (os.mkdir, ("trapped",))


def archive(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as target:
        for name, content in members.items():
            target.writestr(f"{name}.npy", content)
    return file.getvalue()


DAMAGED = {
    "empty.npy": b"",
    "short.npy": b"\x93NUM",
    "text.npy": b"1,2\n3,4\n",
    "header.npy": npy("{'descr': '<f4'"),
    "brackets.npy": npy("(" * 9000),
    "long.npy": npy(" " * 60000),
    "code.npy": npy("__import__('os').mkdir('trapped')"),
    "huge.npy": described("'<f8'", "(1000000000000,)"),
    "beyond.npy": described("'<f8'", f"({10**30}, {10**30})"),
    "negative.npy": described("'<f8'", "(-1,)"),
    "shape.npy": described("'<f8'", "('x',)"),
    "bool.npy": described("'<f8'", "(True,)", bytes(8)),
    "truncated.npy": described("'<f8'", "(3, 3)", bytes(71)),
    "longer.npy": described("'<f8'", "(3, 3)", bytes(73)),
    "dtype.npy": described("'q9'", "(3, 3)"),
    "none.npy": described("'V0'", "(3, 3)"),
    "fields.npy": described("[('x', '<f4')]", "(2, 2)", bytes(16)),
    "nested.npy": described("('<f4', (2,))", "(2,)", bytes(16)),
    "pickle.npy": described("'|O'", "(1,)", pickle.dumps([Trap()])),
    "version.npy": npy("{}", version=b"\x03\x00"),
    "plain.npy": pickle.dumps(Trap()),
    "pickle.npz": archive(x=described("'|O'", "(1,)", pickle.dumps([Trap()]))),
    "huge.npz": archive(x=described("'<f8'", "(1000000000000,)")),
    "saved.npz": archive(codes=described("'|u1'", "(2,)", b"12"), format=described("'<U1'", "()", b"x\0\0\0")),
    "junk.npz": b"PK\x03\x04 junk",
    "junk.csv": bytes(range(256)),
    "other.txt": b"1",
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files(run, name):
    Path(name).write_bytes(DAMAGED[name])
    result = run("check", "--out", name, "--desired", "out.npy")
    rejected(result, name)
    assert "\n" not in result[2].rstrip("\n").removeprefix("floatsim: ")
    assert not Path("trapped").exists()


@pytest.mark.parametrize("shapes", [((0, 16), (16, 4)), ((4, 16), (16, 0)), ((4, 0), (0, 4)), ((0, 2, 3), (0, 3, 2))])
def test_arrays_without_elements(run, shapes):
    a, b = (np.ones(shape, np.float32) for shape in shapes)
    out = np.zeros((*a.shape[:-1], b.shape[-1]), np.float32)
    for name, x in (("a", a), ("b", b), ("out", out)):
        np.save(f"{name}.npy", x)
    code, text, err = run("check", *PRODUCT, "--out", "out.npy")
    assert (code, err) == (0, "") and text.startswith(f"all {out.size} elements of FP32 pass")
    assert run("check", "--out", "out.npy", "--desired", "out.npy")[0] == 0
    assert fs.testing.assert_product(out, a, b, accumulate="fp32").passed
    if out.size == 0:
        assert not fs.testing.compare_product(out, a, b, accumulate="fp32", unlike="pairwise(fp32)").passed
        with pytest.raises(ValueError, match="without elements"):
            fs.identify(out, a, b)


def test_numbers_of_csv_files(run):
    """FP32 numbers as pandas writes them are no FP32 numbers, until --format rounds them."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((4, 4)).astype(np.float32) for _ in range(2))
    out = np.asarray(fs.matmul(a, b, accumulate="fp32"))
    for name, x in (("a", a), ("b", b), ("out", out)):
        pandas.DataFrame(x).to_csv(f"{name}.csv", index=False, header=False)
        pandas.DataFrame(x).to_csv(f"{name}_indexed.csv")
        pandas.DataFrame(x).to_csv(f"{name}_counted.csv", index=False)
        pandas.DataFrame(x, columns=list("wxyz")).to_csv(f"{name}_named.csv", index=False)
    product = ("--a", "a.csv", "--b", "b.csv", "--operands", "fp32", "--accumulate", "fp32")
    code, text, err = run("check", *product, "--out", "out.csv", "--format", "fp32")
    assert code == 0 and text.startswith("all 16 elements of FP32 pass")
    assert "--out: 16 of 16 values were rounded to FP32" in err
    rejected(run("check", *product, "--out", "out_indexed.csv", "--format", "fp32"), "index=False and header=False")
    code, _, err = run("check", *product, "--out", "out_named.csv", "--format", "fp32")
    assert code == 0 and "row 1 skipped as a header: w,x,y,z" in err
    code, _, err = run("check", "--out", "out_counted.csv", "--desired", "out_counted.csv", "--format", "fp32")
    assert code == 0 and "row 1 counts from 0 and is read as numbers" in err
    wrong = out.copy()
    wrong[1, 2] = np.nextafter(wrong[1, 2], np.float32(9))
    pandas.DataFrame(wrong).to_csv("wrong.csv", index=False, header=False)
    assert "1 of 16 elements" in run("check", "--out", "wrong.csv", "--desired", "out.csv", "--format", "fp32")[1]


def test_safetensors(run, monkeypatch):
    safetensors = pytest.importorskip("safetensors.numpy")
    a, b, out = (np.load(f"{name}.npy") for name in ("a", "b", "out"))
    tensors = {"layer.a": a, "layer.b": b, "out": out}
    safetensors.save_file(tensors, "all.safetensors")
    files = ("--a", "all.safetensors:layer.a", "--b", "all.safetensors:layer.b")
    code, text, _ = run("check", *files, "--out", "all.safetensors:out", "--accumulate", "fp32")
    assert code == 0 and text.startswith("all 16 elements of FP32 pass")
    rejected(run("check", *files, "--out", "all.safetensors:x", "--accumulate", "fp32"), "it has layer.a, layer.b, out")
    rejected(run("check", *files, "--out", "all.safetensors", "--accumulate", "fp32"), "has 3 arrays")
    Path("junk.safetensors").write_bytes(b"\xff" * 20)
    rejected(run("check", "--out", "junk.safetensors", "--desired", "out.npy"), "junk.safetensors cannot be read")
    monkeypatch.setitem(sys.modules, "safetensors", None)
    rejected(run("check", *files, "--out", "out.npy", "--accumulate", "fp32"), 'pip install "safetensors>=')


@pytest.mark.parametrize("name", ["bf16", "e4m3", "e5m2", "e8m0", "fp16", "fp64"])
def test_formats_in_safetensors(name):
    pytest.importorskip("safetensors")
    names = {"bf16": "BF16", "e4m3": "F8_E4M3", "e5m2": "F8_E5M2", "e8m0": "F8_E8M0", "fp16": "F16", "fp64": "F64"}
    x = fs.array([[0.5, 2.0], [4.0, 1.0]], name)
    data = x.codes.tobytes()
    header = json.dumps({"w": {"dtype": names[name], "shape": [2, 2], "data_offsets": [0, len(data)]}}).encode()
    header += b" " * (-len(header) % 8)
    Path("w.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data)
    found = read_arrays("w.safetensors")[1]["w"]
    assert fs.as_format(found.dtype if isinstance(found, np.ndarray) else found.format) == x.format
    assert np.asarray(found).tobytes() == x.codes.tobytes()


def test_files_that_are_no_files(run):
    Path("folder.npy").mkdir()
    rejected(run("check", "--out", "folder.npy", "--desired", "out.npy"), "it is not a regular file")
    if hasattr(os, "mkfifo"):
        os.mkfifo("pipe.npy")
        rejected(run("check", "--out", "pipe.npy", "--desired", "out.npy"), "it is not a regular file")


@pytest.mark.full
def test_an_archive_that_grows(run):
    zeros = described("'|u1'", f"({1 << 29},)")
    with zipfile.ZipFile("bomb.npz", "w", zipfile.ZIP_DEFLATED) as target, target.open("x.npy", "w") as file:
        file.write(zeros)
        for _ in range(512):
            file.write(bytes(1 << 20))
    rejected(run("check", "--out", "bomb.npz", "--desired", "out.npy"), "unpacks from")


VALID = {".npy": described("'<f4'", "(2, 2)", bytes(16)), ".npz": archive(x=described("'<f4'", "(2, 2)", bytes(16))),
         ".csv": b"1,2\n3,4\n"}  # fmt: skip


@pytest.mark.full
@given(st.sampled_from(sorted(VALID)), st.data())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_fuzzed_files(tmp_path, suffix, data):
    """A file with other bytes is read, or raises one clear error."""
    content = bytearray(VALID[suffix])
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content
    path = tmp_path / f"x{suffix}"
    path.write_bytes(content)
    try:
        _, arrays = read_arrays(str(path), "--a")
        assert arrays
    except BadInputError as error:
        assert str(error).startswith("--a: ")
        assert len(str(error)) < 1000


def test_fp32_files_of_a_matrix_unit_name_the_option(run):
    for name, shape in (("p", (4, 32)), ("q", (32, 8)), ("r", (4, 8))):
        np.save(f"{name}.npy", np.full(shape, 0.1, np.float32))
    arguments = ["check", "--a", "p.npy", "--b", "q.npy", "--out", "r.npy", "--accumulate", "hopper"]
    code, _, err = run(*arguments)
    assert code == 2
    assert err.strip().endswith("; --operands bf16 rounds the files first")
    assert "rounds the files first" not in run(*arguments, "--operands", "bf16")[2]

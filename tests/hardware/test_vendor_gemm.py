"""Products by cuBLAS, cupy.matmul and nvmath: the positions of elements, and the errors of missing packages."""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np
import pytest

import floatsim as fs
from floatsim.cli import hardware as hardware_commands
from floatsim.hardware import vendor_gemm as libraries
from floatsim.hardware.compile import nvrtc
from floatsim.hardware.vendor_gemm import PRODUCTS, find_product
from tests.hardware import libraries as stand_ins

pytestmark = pytest.mark.full

multiply = fs.hardware.library_matmul


@pytest.fixture
def install(monkeypatch):
    return lambda capability=(9, 0), names=("cupy", "torch", "nvmath"): stand_ins.install(
        monkeypatch, capability, *names
    )


def matrices(fmt_a, fmt_b=None, rows=5, depth=7, columns=3):
    rng = np.random.default_rng(1)
    return fs.array(rng.normal(size=(rows, depth)), fmt_a), fs.array(rng.normal(size=(depth, columns)), fmt_b or fmt_a)


@pytest.mark.parametrize("row", PRODUCTS, ids=str)
def test_every_product_of_the_table(install, row):
    """Exact sums and three different sizes show any element at a wrong position."""
    blas = install()
    a, b = matrices(row.a, row.b)
    found = multiply(a, b, library=row.library, compute=row.compute, format=row.output)
    assert isinstance(found, fs.FloatArray)
    assert found.format == row.output
    wanted = fs.matmul(a, b, accumulate=fs.Exact(row.output))
    assert found.codes.tolist() == wanted.codes.tolist()
    if row.library == "cublas":
        assert blas.computes == [getattr(blas, f"CUBLAS_COMPUTE_{row.compute.upper()}")]
    if row.library == "nvmath":
        (made,) = stand_ins.Matmul.made
        assert made.free
        assert made.options["fast_accumulation"] is (row.compute == "32f_fast_accum")


def test_defaults(install):
    blas = install()
    a, b = (np.ones(shape, np.float16) for shape in ((2, 3), (3, 4)))
    found = multiply(a, b)
    assert (found.dtype, blas.computes) == (np.float32, [blas.CUBLAS_COMPUTE_32F])
    assert multiply(a, b, compute="CUBLAS_COMPUTE_16F", format="fp16").dtype == np.float16
    assert multiply(a, b, library="cupy").dtype == np.float16
    x, y = (np.ones(shape, ml_dtypes.float8_e4m3fn) for shape in ((2, 3), (3, 4)))
    assert multiply(x, y, library="nvmath").tolist() == [[3.0] * 4] * 2


def test_nothing_to_multiply(install):
    install()
    for shapes in (((0, 3), (3, 4)), ((2, 0), (0, 4)), ((2, 3), (3, 0))):
        a, b = (np.ones(shape, np.float16) for shape in shapes)
        found = multiply(a, b)
        assert found.shape == (shapes[0][0], shapes[1][1])
        assert (found == 0).all()


def test_compared_bit_by_bit(install):
    """The exact sums of the library differ from Hopper's, and equal fs.Exact."""
    install()
    a, b = matrices("e4m3", depth=64)
    assert fs.hardware.compare(a, b, accumulate=fs.Exact(fs.FP32), library="nvmath").equal
    report = fs.hardware.compare(a, b, accumulate="hopper", library="nvmath", compute="32f_fast_accum")
    assert report.source == "nvmath 32f_fast_accum"
    assert report.mismatches > 0
    assert report.first[0].trace.code == report.first[0].expected
    a, b = matrices("fp16", depth=64)
    assert fs.hardware.compare(a, b, accumulate="exact(fp32)", library="cublas").equal
    assert fs.hardware.compare(a, b, accumulate="exact(fp16)", library="cupy").equal


def test_command(install, run, empty_folder):
    install()
    a, b = matrices("fp16", depth=40)
    np.save("a.npy", a.values.astype(np.float16))
    np.save("b.npy", b.values.astype(np.float16))
    files = ("compare", "a.npy", "b.npy")
    code, out, _ = run(*files, "-a", "exact(fp32)", "--library", "cublas", "--compute", "32f")
    assert (code, out) == (0, (
        "exact(fp32), against cublas 32f\nall 15 results are equal, bit for bit\n"
        "strength: these inputs tell exact(fp32) from all 20 other descriptions tried\n"
    ))  # fmt: skip
    code, out, _ = run(*files, "-a", "fp32", "--library", "cublas")
    assert code == 1
    for arguments, text in (
        (
            (*files, "-a", "hopper", "--library", "mkl"),
            "library='mkl' is unknown; known libraries are 'cublas', 'cupy', 'nv",
        ),
        ((*files, "-a", "hopper", "--compute", "32f"), "compute='32f' needs a library"),
        (("compare", "--library", "cublas"), "--library and --compute need two matrices, and none are given"),
        ((*files, "-a", "hopper", "--library", "nvmath"), "library='nvmath' does not multiply FP16 x FP16"),
    ):
        code, out, err = run(*arguments)
        assert (code, out) == (2, "")
        assert text in err


def test_info(install, monkeypatch):
    """The report of `fs.hardware.info`, with and without NVIDIA's libraries."""
    install((8, 9), ("cupy",))
    reason = "/lib/libnvrtc.so.13: failed to open libnvrtc-builtins.so.13.0"
    monkeypatch.setattr(nvrtc, "rejected", lambda: (reason,))
    assert fs.hardware.is_available()
    found = fs.hardware.info()
    assert (found.identity.name, found.identity.capability, found.architecture) == ("a fake", (8, 9), "ada")
    assert (found.identity.cuda, found.libraries) == ("13.0", ("cublas", "cupy"))
    assert "mma.m16n8k32 e4m3 e5m2 fp16" in found.instructions
    assert not any(name.startswith("wgmma") for name in found.instructions)
    assert "convert FP32 to E4M3, ties_to_even, saturate_finite" in found.operations
    text = str(found)
    assert text.startswith("a fake, compute capability 8.9 (ada), driver ")
    assert "\nCUDA 13.0 (CuPy 14.2.0); the driver supports CUDA 13.2\n" in text
    assert found.rejected == (reason,)
    assert f"\nrejected compiler: {reason}\n" in text
    assert "libraries: cublas, cupy\n" in text
    for line in (*found.instructions, *found.operations):
        assert f"\n  {line}" in text
    install((12, 1), ("cupy",))
    assert f"{fs.hardware.info()}".startswith(
        "a fake, compute capability 12.1 (blackwell-rtx, unverified for this GPU), "
    )


# -- errors ------------------------------------------------------------------------------------------------------------


def test_the_errors_name_missing_packages(install, run, empty_folder, monkeypatch):
    x = np.ones((2, 2), ml_dtypes.float8_e4m3fn)
    y = np.ones((2, 2), np.float16)
    install(names=("cupy",))
    assert libraries.installed() == ("cublas", "cupy")
    with pytest.raises(fs.hardware.UnavailableError, match=r"needs nvmath.*pip install 'nvmath-python\[cu13\]'"):
        multiply(x, x, library="nvmath")
    monkeypatch.setattr(hardware_commands, "local_device", lambda: None)
    np.save("a.npy", np.ones((2, 2), np.float16))
    code, out, err = run("compare", "a.npy", "a.npy", "--operands", "e4m3", "-a", "hopper", "--library", "nvmath")
    assert (code, out) == (2, "")
    assert "pip install 'nvmath-python[cu13]'" in err
    install(names=("cupy", "nvmath"))
    with pytest.raises(fs.hardware.UnavailableError, match=r"needs torch, which is missing .*: pip install torch"):
        multiply(x, x, library="nvmath")
    install(names=())
    for library in ("cublas", "cupy"):
        with pytest.raises(
            fs.hardware.UnavailableError, match=r'needs cupy.*pip install "cupy-cuda13x.*pip install "cupy-cuda12x'
        ):
            multiply(y, y, library=library)
    assert libraries.installed() == ()
    install()

    def not_found():  # CuPy without NVIDIA's libraries
        raise ImportError("libcublas.so.13: cannot open shared object file")

    sys.modules["cupy_backends.cuda.libs"].__getattr__ = stand_ins.only(cublas=not_found)
    with pytest.raises(fs.hardware.UnavailableError, match=r'libs\.cublas, which is missing.*"cupy-cuda13x'):
        multiply(y, y)
    assert libraries.installed() == ("cupy", "nvmath")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cublas", fs.E4M3, fs.E4M3), r"'cublas' does not multiply E4M3 x E4M3; it supports FP16 x FP16, FP32 x FP32"),
        (("nvmath", fs.E5M2, fs.E5M2), r"does not multiply E5M2 x E5M2; it supports E4M3 x E4M3, E4M3 x E5M2, E5M2 x"),
        (("cublas", fs.BF16, fs.BF16, fs.FP16), r"BF16 x BF16 with format='FP16'; there is cublas BF16"),
        (("cublas", fs.BF16, fs.BF16, None, "16f"), r"does not multiply BF16 x BF16 with compute='16f'; there is"),
        (("cublas", fs.BF16, fs.BF16, None, None, (7, 5)), r"needs compute capability 8.0 or newer; this GPU has 7.5"),
        (("nvmath", fs.E4M3, fs.E4M3, None, None, (8, 6)), r"needs compute capability 8.9 or newer; this GPU has 8.6"),
    ],
)  # fmt: skip
def test_the_errors_list_the_supported_products(arguments, message):
    with pytest.raises(ValueError, match=message):
        find_product(*arguments)


def test_bad_input(install):
    install((8, 0))
    x = np.ones((2, 3), np.float16)
    with pytest.raises(ValueError, match=r"a library multiplies \(M, K\) by \(K, N\), not \(2, 3\) by \(2, 3\)"):
        multiply(x, x)
    with pytest.raises(ValueError, match=r"not \(3,\) by \(3, 2\)"):
        multiply(x[0], x.T)
    e4m3 = x.astype(ml_dtypes.float8_e4m3fn)
    with pytest.raises(ValueError, match=r"needs compute capability 8.9 or newer; this GPU has 8.0"):
        multiply(e4m3, e4m3.T, library="nvmath")
    with pytest.raises(TypeError, match="multiplies only a and b; omit c, the scales and against"):
        fs.hardware.compare(x, x.T, np.ones((2, 2), np.float32), accumulate="ampere", library="cublas")
    with pytest.raises(TypeError, match="compute='16f' needs a library"):
        fs.hardware.compare(x, x.T, accumulate="ampere", compute="16f")

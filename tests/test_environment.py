"""The same bits wherever and however the package runs: a processor without extensions, a library built with
-ffast-math in the process, any thread, other rounding modes of the processor, an old Numba cache.

Each case is a process of its own (the state of a processor's floating-point unit is not for a test runner to keep).
All of them compute `DIGEST`: many results of all kinds, hashed; without the disturbance the hash is the reference's.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[1]
X86 = platform.machine().lower() in ("x86_64", "amd64", "i686")

DIGEST = '''
import hashlib
import numpy as np
import ml_dtypes
import floatsim as fs


def values(n=6000):
    """float64 of all sizes, made without arithmetic on subnormals."""
    r = np.random.default_rng(7)
    x = r.normal(size=n) * 2.0 ** r.integers(-30, 18, n)
    x[:8] = [0.0, -0.0, 2.0**-149, 2.0**-140, -(2.0**-130), np.inf, -np.inf, np.nan]
    x[12:400] *= 2.0**-110  # around float32's subnormals
    x.view(np.uint64)[400:600] = r.integers(0, 2**54, 200)  # around float64's
    return x


def singles(x):
    """float32 by integers: a cast would lose subnormals where the processor flushes them."""
    return fs.encode(x, "fp32", return_flags=True)[0].view(np.float32)


def add_to(digest, result):
    for part in result if isinstance(result, tuple) else (result,):
        part = part.codes if isinstance(part, fs.FloatArray) else np.asarray(part)
        digest.update(np.ascontiguousarray(part).view(np.uint8).tobytes())


def digest(formats=fs.named_formats()):
    seen = hashlib.sha256()
    x = values()
    f = singles(x)
    for fmt in formats:
        for options in ({}, {"rounding": "RTP"}, {"rounding": "RTN", "overflow": "saturate_finite"},
                        {"rounding": "RTO"}, {"rounding": "RNA"}, {"rounding": "RTZ"}, {"rounding": "SR", "seed": 1}):
            for source in (x, f):
                add_to(seen, fs.encode(source, fmt, **options))
                add_to(seen, fs.encode(source, fmt, return_flags=True, **options))
                try:
                    add_to(seen, fs.quantize(source, fmt, **options))
                except TypeError:
                    pass
        if fmt.is_scale:
            continue
        a = fs.from_codes(fs.encode(x, fmt, return_flags=True)[0], fmt)
        b = fs.from_codes(a.codes[::-1].copy(), fmt)
        for operation in ("add", "subtract", "multiply", "divide"):
            for options in ({}, {"return_flags": True}, {"rounding": "RTP"}, {"daz": True, "ftz": True}):
                add_to(seen, getattr(fs, operation)(a, b, **options))
        add_to(seen, fs.sqrt(a))
        add_to(seen, fs.fma(a, b, a))
        add_to(seen, fs.remainder(a, b))
        add_to(seen, fs.rint(a, return_flags=True))
        add_to(seen, fs.less(a, b))
        add_to(seen, fs.decode(a.codes, fmt))
        add_to(seen, fs.logb(a))
        add_to(seen, fs.scalb(a, -3))
        if fmt.bits <= 32:
            m = a[:256].reshape(16, 16)
            for accumulate in (fs.Sequential(fmt), fs.Sequential(fmt, fused=True), fs.Exact(fmt)):
                add_to(seen, fs.matmul(m, m, accumulate=accumulate, format=fmt))
            for unit in ("volta", "hopper", "blackwell", "cdna1", "cdna2", "cdna3"):
                try:
                    add_to(seen, fs.matmul(m, m, accumulate=unit))
                    add_to(seen, fs.matmul(m[8:], m[:, 8:], accumulate=unit))  # nothing special
                except ValueError:  # it does not take the format
                    pass
    return seen.hexdigest()
'''


def run(body: str, **environment: str) -> str:
    """The last line that a new Python prints."""
    settings = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")])} | environment
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DIGEST + textwrap.dedent(body)],
        capture_output=True, text=True, env=settings, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def undisturbed() -> str:
    return run("print(digest())")


@pytest.fixture(scope="module")
def fast_math_library(tmp_path_factory) -> Path:
    """A shared object built with -ffast-math: its start-up code sets flush-to-zero in the thread that loads it."""
    if not (compiler := shutil.which("gcc")) or sys.platform != "linux":
        pytest.skip("no gcc here to build a library with -ffast-math")
    folder = tmp_path_factory.mktemp("fastmath")
    source, library = folder / "fast.c", folder / "libfast.so"
    source.write_text("float fast(float x) { return x * 0.5f; }\n", encoding="utf-8")
    arguments = [compiler, "-ffast-math", "-O2", "-shared", "-fPIC", "-o", str(library), str(source)]
    built = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if built.returncode:
        pytest.skip(f"gcc cannot build a shared library: {built.stderr.strip()[:200]}")
    return library


FLUSHES = '''
def flushes():
    """Whether NumPy's float32 loses subnormals in this thread."""
    return float(np.float32(2.0**-126) * np.float32(0.5)) == 0.0
'''


def test_digest_is_sensitive(undisturbed):
    """The hash sees a single result."""
    changed = run("""
        inner = fs.sqrt
        fs.sqrt = lambda a: fs.next_up(inner(a)) if a.format is fs.E4M3 else inner(a)
        print(digest())
    """)
    assert changed != undisturbed
    assert len(undisturbed) == 64


def test_a_library_with_fast_math_changes_nothing(undisturbed, fast_math_library):
    """Loaded before the package, after it, and between two calls."""
    load = f"import ctypes; ctypes.CDLL({str(fast_math_library)!r})"
    before = FLUSHES + f"{load}\nwas = flushes()\nprint(was, digest())\n"
    flushed, result = run(before).split()
    if X86 and flushed != "True":
        pytest.skip("this compiler's -ffast-math libraries do not set flush-to-zero")
    assert result == undisturbed
    between = FLUSHES + f"first = digest()\n{load}\nassert flushes() == {flushed}\nprint(first, digest())\n"
    assert run(between).split() == [undisturbed, undisturbed]


def test_threads_started_after_fast_math(undisturbed, fast_math_library):
    """New threads inherit the state; others keep theirs. Both compute the same."""
    body = (
        FLUSHES
        + f"""
import threading, ctypes
start, results = threading.Event(), []
early = threading.Thread(target=lambda: (start.wait(), results.append(digest())))
early.start()
ctypes.CDLL({str(fast_math_library)!r})
late = threading.Thread(target=lambda: results.append(digest()))
start.set()
late.start()
early.join(); late.join()
print(*results, digest())
"""
    )
    assert run(body).split() == [undisturbed] * 3


@pytest.mark.parametrize("direction", ["upward", "downward", "toward zero"])
def test_another_rounding_mode_of_the_processor_changes_nothing(undisturbed, direction):
    """fesetround in the same thread, by whoever: the kernels do not ask the processor to round."""
    if not X86 or sys.platform != "linux":
        pytest.skip("the numbers of fesetround's modes are known here for x86 Linux only")
    mode = {"upward": 0x800, "downward": 0x400, "toward zero": 0xC00}[direction]
    body = f"""
import ctypes, ctypes.util
x = values()
digest()
libm = ctypes.CDLL(ctypes.util.find_library("m"))
values = lambda n=6000, x=x: x.copy()
assert libm.fesetround({mode}) == 0
assert (float(np.float32(1) + np.float32(2.0**-30)) > 1) == ({mode} == 0x800)
print(digest())
"""
    assert run(body) == undisturbed


def test_a_processor_without_extensions():
    """NUMBA_CPU_NAME=generic: no F16C, no AVX; nothing may be emitted that is not there. All Arm has fcvt."""
    features = run("""
        from floatsim_kernels.runtime import cpu as machine
        print(machine.has_half_conversion())
    """, NUMBA_CPU_NAME="generic")  # fmt: skip
    assert features == str(not X86)
    some = "print(digest([fs.FP16, fs.BF16]))"
    assert run(some, NUMBA_CPU_NAME="generic") == run(some)


def test_core_tests_on_a_generic_processor():
    """The traps once more, in a process whose Numba compiles for a generic processor."""
    settings = os.environ | {"NUMBA_CPU_NAME": "generic"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/test_traps.py"],
        cwd=ROOT, env=settings, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]


def test_from_any_thread(undisturbed):
    """Four threads at once, each the whole."""
    body = """
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(4) as pool:
            results = set(pool.map(lambda _: digest(), range(4)))
        print(*results)
    """
    assert run(body) == undisturbed


def test_from_a_forked_and_a_spawned_process(undisturbed):
    for method in ("fork", "spawn"):
        if method == "fork" and sys.platform in ("win32", "darwin"):
            continue
        body = f"""
            import multiprocessing
            if __name__ == "__main__":
                context = multiprocessing.get_context({method!r})
                if {method!r} == "fork":
                    fs.encode([0.1], "fp16")
                    queue = context.Queue()
                    process = context.Process(target=lambda: queue.put(digest()))
                    process.start()
                    print(queue.get())
                    process.join()
                else:
                    print(digest())
        """
        assert run(body) == undisturbed


def test_disabled_compiler_is_refused():
    """NUMBA_DISABLE_JIT=1: the first call says that it is not supported, and names the variable."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "kernels")])
    settings = os.environ | {"PYTHONPATH": path, "NUMBA_DISABLE_JIT": "1"}
    code = "import floatsim as fs; print(fs.FP16.max); fs.encode([0.1], 'fp16')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=settings, cwd=ROOT, check=False
    )
    assert (done.returncode, done.stdout) == (1, "65504.0\n")
    assert done.stderr.splitlines()[-1].startswith("RuntimeError: floatsim does not run with NUMBA_DISABLE_JIT=1")


# -- the cache ---------------------------------------------------------------------------------------------------

SMALL = """
import floatsim as fs
x = [1 + 2.0**-11, 1 + 3 * 2.0**-11, 0.1]
print(fs.encode(x, "fp16", return_flags=True)[0].tolist())
"""


def _run_copy(folder: Path) -> str:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(folder), str(folder / "kernels")]), "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    environment.pop("NUMBA_CACHE_DIR", None)
    command = [sys.executable, "-c", SMALL]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def test_the_cache_never_serves_old_bits(tmp_path):
    """Edit the rounding in a copy, where *another* file's kernels use it: the next process has the new results,
    and with the edit undone the old ones, each from the same cache folder."""
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "floatsim", tmp_path / "floatsim", ignore=skip)
    shutil.copytree(ROOT / "kernels", tmp_path / "kernels", ignore=skip)
    rounding = tmp_path / "kernels" / "floatsim_kernels" / "rounding" / "integer.py"
    source = rounding.read_text(encoding="utf-8")
    edited = source.replace("bias = TOP - U1 + odd", "bias = TOP - odd")
    assert edited != source, "the line of ties-to-even has changed: change this test with it"
    old, new = "[15360, 15362, 11878]", "[15361, 15361, 11878]"
    assert _run_copy(tmp_path) == old
    assert list(tmp_path.rglob("*.nbi")), "nothing was cached at all"
    stamp = rounding.stat()
    rounding.write_text(edited, encoding="utf-8")
    os.utime(rounding, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # not even the date tells
    assert _run_copy(tmp_path) == new, "old bits from the cache"
    rounding.write_text(source, encoding="utf-8")
    assert _run_copy(tmp_path) == old

"""Every CUDA source compiles for every target that it names. The tests need a compiler, but no GPU.

Where there is none, the tests are skipped, and say so; with FLOATSIM_REQUIRE_NVRTC=1 that is a failure.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from floatsim.formats import FP16
from floatsim.formats.rounding import RoundingAttributes
from floatsim.hardware.compile import nvrtc as build
from floatsim.hardware.compile.prepare import main, prepare
from floatsim.hardware.compile.programs import Program, every_program, of_scalars, of_variant, programs_of
from floatsim.hardware.device import Device
from floatsim.hardware.protocol import DeviceIdentity
from floatsim.hardware.tables.compute_capability import PLAIN, capability_of
from floatsim.hardware.tables.ptx_matrix import find
from floatsim.hardware.tables.ptx_scalar import SCALARS

pytestmark = pytest.mark.full

REQUIRED = os.environ.get("FLOATSIM_REQUIRE_NVRTC") == "1"
HINT = "pip install -e '.[nvrtc]'"


def missing(what: str) -> None:
    """Skip with a reason, or fail if the tests must not be skipped."""
    if REQUIRED:
        pytest.fail(f"{what}, and FLOATSIM_REQUIRE_NVRTC is 1: {HINT}")
    pytest.skip(f"{what}: {HINT}")


def distinct() -> dict[tuple[str, tuple[str, ...]], tuple[str, Program]]:
    """Return each program once. FP32 and TF32 operands, for example, share one."""
    found = {}
    for name, program in every_program():
        found.setdefault((program.source, tuple(program.definitions.items())), (name, program))
    return found


PROGRAMS = list(distinct().values())


@pytest.mark.parametrize(("name", "program"), PROGRAMS, ids=[name for name, _ in PROGRAMS])
def test_it_compiles_for_every_target(name, program):
    if not build.compilers():
        missing("there is neither NVRTC nor nvcc")
    known = set().union(*(c.architectures for c in build.compilers()))
    unknown = [t for t in program.targets if capability_of(t)[0] * 10 + capability_of(t)[1] not in known]
    if max(c.version for c in build.compilers()) < program.cuda:
        missing(f"no compiler here is of CUDA {program.cuda}")
    for target in program.targets:
        if target not in unknown:
            cubin = build.build(program.source, target, program.definitions, keep=False, oldest=program.cuda)
            assert cubin.code.startswith(b"\x7fELF")
            assert cubin.compiler in {c.name for c in build.compilers()}
    if unknown:
        missing(f"no compiler here knows {', '.join(unknown)} (CUDA 13 has no sm_70, CUDA 12 has)")


@pytest.mark.parametrize("compiler", build.compilers(), ids=lambda compiler: compiler.name)
def test_every_compiler_takes_the_operations(compiler):
    """Drivers of CUDA 12 need code compiled by CUDA 12. Our definitions must not reach nvcc's own headers."""
    asked = [(of_variant(find("mma.m16n8k16", FP16, FP16)), "sm_90")]
    for target in ("sm_90", "sm_100a"):
        if capability_of(target)[0] * 10 in compiler.architectures:
            asked.append((of_scalars(target), target))
    for program, target in asked:
        cubin = compiler.compile(program.source, build.source(program.source), target, program.definitions)
        assert cubin.startswith(b"\x7fELF")


def test_all_targets_are_named_by_some_program():
    named = {target for _, program in PROGRAMS for target in program.targets}
    assert named == {*PLAIN, "sm_90a", "sm_100a", "sm_100f", "sm_103a", "sm_120a", "sm_120f"}


@pytest.mark.parametrize("capability", [(8, 7), (10, 3), (12, 1)])
def test_programs_compile_for_gpus_without_a_target_of_their_own_in_the_tables(capability):
    """The first program of every source and family, with the target that a GPU of this compute capability uses."""
    if not build.compilers():
        missing("there is neither NVRTC nor nvcc")
    chosen = {}
    for program in programs_of(capability):
        chosen.setdefault((program.source, program.targets), program)
    targets = {(program.source, program.target_for(capability)) for program in chosen.values()}
    assert targets == {
        (8, 7): {("mma.cu", "sm_87"), ("sums.cu", "sm_87"), ("elementwise.cu", "sm_87")},
        (10, 3): {("mma.cu", "sm_103"), ("sums.cu", "sm_103"), ("elementwise.cu", "sm_103a"),
                  ("tcgen05.cu", "sm_100f"), ("tcgen05.cu", "sm_103a")},
        (12, 1): {("mma.cu", "sm_121"), ("mma.cu", "sm_120f"), ("sums.cu", "sm_121"), ("elementwise.cu", "sm_120f")},
    }[capability]  # fmt: skip
    for program in chosen.values():
        if max(c.version for c in build.compilers()) >= program.cuda:
            target = program.target_for(capability)
            cubin = build.build(program.source, target, program.definitions, keep=False, oldest=program.cuda)
            assert cubin.code.startswith(b"\x7fELF")


def test_family_targets_need_cuda_12_9(monkeypatch):
    monkeypatch.setattr(build, "compilers", lambda: (named("NVRTC 12.8", (100, 120)),))
    assert build.build("tcgen05.cu", "sm_100a", keep=False).compiler == "NVRTC 12.8"
    for target in ("sm_100f", "sm_120f"):
        with pytest.raises(build.CompileError, match=f"supports {target}: there are NVRTC 12.8; .* 12.9 has"):
            build.build("tcgen05.cu", target, keep=False)
    monkeypatch.setattr(build, "compilers", lambda: (named("NVRTC 12.9", (100, 120)),))
    assert build.build("tcgen05.cu", "sm_100f", keep=False).compiler == "NVRTC 12.9"


def test_the_error_of_a_source_contains_the_output_of_the_compiler():
    if not build.compilers():
        missing("there is neither NVRTC nor nvcc")
    with pytest.raises(build.CompileError, match=r"(?s)mma.cu for sm_80, .*MNEMONIC.*D_REGISTERS=3.*no form"):
        build.build("mma.cu", "sm_80", {"MNEMONIC": '"mma"', "D_REGISTERS": "3"}, keep=False)


def test_machine_code_is_cached_by_source_and_target(tmp_path, monkeypatch):
    monkeypatch.setenv("FLOATSIM_CACHE", str(tmp_path))
    calls = []

    class Counting:
        name, version, architectures = "a compiler 12.0", (12, 0), frozenset({80, 90})

        def compile(self, name, code, target, definitions):
            calls.append(target)
            return b"\x7fELF" + target.encode()

    monkeypatch.setattr(build, "compilers", lambda: (Counting(),))
    first = build.build("mma.cu", "sm_80", {"A": "1"})
    assert build.build("mma.cu", "sm_80", {"A": "1"}) == first
    assert calls == ["sm_80"]
    build.build("mma.cu", "sm_90", {"A": "1"})
    build.build("mma.cu", "sm_80", {"A": "2"})
    assert calls == ["sm_80", "sm_90", "sm_80"]
    monkeypatch.setattr(build, "source", lambda name: "// another source")
    build.build("mma.cu", "sm_80", {"A": "1"})
    assert len(calls) == 4
    assert len(list(tmp_path.rglob("*.cubin"))) == 4


def named(compiler, architectures=(80,)):
    """Return a compiler whose machine code is its own name."""

    class Named:
        def __init__(self):
            self.name, self.architectures = compiler, frozenset(architectures)
            self.version = tuple(map(int, compiler.split()[1].split(".")))

        def compile(self, name, code, target, definitions):
            return compiler.encode()

    return Named()


def test_a_filled_cache_needs_no_compiler(tmp_path, monkeypatch):
    """Without a compiler, the entry of the newest compiler whose code the driver can load is used."""
    monkeypatch.setenv("FLOATSIM_CACHE", str(tmp_path))
    for compiler in ("NVRTC 12.9", "nvcc 13.10", "NVRTC 13.5", "NVRTC 13.10", "NVRTC 14.0"):
        monkeypatch.setattr(build, "compilers", lambda name=compiler: (named(name),))
        assert build.build("mma.cu", "sm_80", {"A": "1"}).compiler == compiler
    monkeypatch.setattr(build, "compilers", lambda: ())
    assert build.build("mma.cu", "sm_80", {"A": "1"}) == build.Cubin(b"NVRTC 14.0", "NVRTC 14.0")
    assert build.build("mma.cu", "sm_80", {"A": "1"}, newest=13) == build.Cubin(b"NVRTC 13.10", "NVRTC 13.10")
    assert build.build("mma.cu", "sm_80", {"A": "1"}, newest=12).compiler == "NVRTC 12.9"
    assert build.build("mma.cu", "sm_80", {"A": "1"}, newest=13, oldest=(13, 6)).compiler == "NVRTC 13.10"
    for case in (
        {"definitions": {"A": "2"}}, {"target": "sm_90"}, {"newest": 11}, {"newest": 13, "oldest": (13, 11)},
        {"keep": False}, {"name": "sums.cu"},
    ):  # fmt: skip
        with pytest.raises(build.CompileError, match="no CUDA compiler was found"):
            build.build(**{"name": "mma.cu", "target": "sm_80", "definitions": {"A": "1"}} | case)
    monkeypatch.setattr(build, "_OPTIONS", ("--fmad=true",))
    with pytest.raises(build.CompileError, match="no CUDA compiler was found"):
        build.build("mma.cu", "sm_80", {"A": "1"})


def test_an_installed_compiler_precedes_the_cache_of_newer_ones(tmp_path, monkeypatch):
    monkeypatch.setenv("FLOATSIM_CACHE", str(tmp_path))
    for compiler in ("NVRTC 13.5", "NVRTC 12.9"):
        monkeypatch.setattr(build, "compilers", lambda name=compiler: (named(name),))
        assert build.build("mma.cu", "sm_80").compiler == compiler
    monkeypatch.setattr(build, "compilers", lambda: (named("NVRTC 13.9", (90,)),))
    assert build.build("mma.cu", "sm_80").compiler == "NVRTC 13.5"  # 13.9 does not support the target


def test_compilation_works_without_a_writable_cache(tmp_path, monkeypatch):
    blocked = tmp_path / "a file"
    blocked.write_text("")
    monkeypatch.setenv("FLOATSIM_CACHE", str(blocked))

    class Fixed:
        name, version, architectures = "a compiler 12.0", (12, 0), frozenset({80})

        def compile(self, name, code, target, definitions):
            return b"\x7fELF"

    monkeypatch.setattr(build, "compilers", lambda: (Fixed(),))
    cubin = build.build("mma.cu", "sm_80")
    assert cubin == build.Cubin(b"\x7fELF", "a compiler 12.0")
    assert cubin.sha256 == hashlib.sha256(b"\x7fELF").hexdigest()


def test_without_a_compiler_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(build, "compilers", lambda: ())
    with pytest.raises(build.CompileError, match="pip install nvidia-cuda-nvrtc"):
        build.build("mma.cu", "sm_80", keep=False)


LIST = """
from floatsim.hardware.compile import nvrtc
print(*nvrtc.rejected(), [c.name for c in nvrtc.compilers()], sep="\\n")
"""


def test_a_compiler_that_does_not_compile_is_rejected_with_the_reason(tmp_path):
    """A library that is no library, and an nvcc without a host compiler. Others are listed in their place."""
    library, nvcc = tmp_path / "lib" / "libnvrtc.so.99", tmp_path / "nvcc"
    library.parent.mkdir()
    library.write_text("not a library")
    nvcc.write_text(
        "#!/bin/sh\ncase $1 in --version) echo release 98.7,;; --list-gpu-arch) echo compute_80;; "
        "*) echo no host compiler >&2; exit 1;; esac\n"
    )
    nvcc.chmod(0o755)
    environment = os.environ | {"CUDA_PATH": str(tmp_path), "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, "-c", LIST], env=environment, capture_output=True, text=True, check=True)
    *rejected, names = done.stdout.splitlines()
    assert any(line.startswith(f"{library}: ") for line in rejected)
    assert f"{nvcc}: empty.cu for sm_80, nvcc 98.7, nothing defined: no host compiler" in rejected
    assert "98.7" not in names
    assert all(c.name in names for c in build.compilers() if c.name.startswith("NVRTC"))


def test_the_builtins_of_nvrtc_are_loaded_before_it(tmp_path, monkeypatch):
    """NVRTC opens them by name when it compiles, and the wheel of CUDA 13.0 does not say where they are."""
    library, builtins = tmp_path / "libnvrtc.so.13", tmp_path / "libnvrtc-builtins.so.13.0"
    for file in (library, builtins, tmp_path / "libnvrtc-builtins.alt.so.13.0"):
        file.write_text("")
    loaded = []

    def load(path, mode=ctypes.DEFAULT_MODE):
        loaded.append((path, mode))
        raise OSError(f"{path}: file too short")

    monkeypatch.setattr(ctypes, "CDLL", load)
    with pytest.raises(OSError, match=r"libnvrtc.so.13: file too short"):
        _ = build._Nvrtc(str(library)).version
    assert loaded == [(str(builtins), ctypes.RTLD_GLOBAL), (str(library), ctypes.DEFAULT_MODE)]


def test_without_a_compiler_the_error_names_those_rejected(monkeypatch):
    monkeypatch.setattr(build, "compilers", lambda: ())
    monkeypatch.setattr(build, "rejected", lambda: ("/lib/libnvrtc.so.13: failed to open libnvrtc-builtins.so.13.0",))
    with pytest.raises(build.CompileError, match=r"no CUDA compiler was found: .*; rejected: /lib/libnvrtc.so.13: fai"):
        build.build("mma.cu", "sm_80", keep=False)


def test_a_compiler_newer_than_the_driver_is_not_used(monkeypatch):
    class Newer:
        name, version, architectures = "NVRTC 13.0", (13, 0), frozenset({80})

    monkeypatch.setattr(build, "compilers", lambda: (Newer(),))
    with pytest.raises(build.CompileError, match=r"the driver is for CUDA 12; NVRTC 13.0 are newer"):
        build.build("mma.cu", "sm_80", newest=12, keep=False)
    with pytest.raises(build.CompileError, match=r"no installed CUDA compiler supports sm_70: .*CUDA 13 does not"):
        build.build("mma.cu", "sm_70", newest=13, keep=False)


@pytest.mark.parametrize("capability", [(7, 5), (8, 9), (9, 0), (10, 0), (10, 3), (12, 1)])
def test_a_prepared_cache_holds_everything_that_a_gpu_runs(capability, tmp_path, monkeypatch):
    """Every instruction and operation of an emulated GPU finds its machine code, without a compiler."""
    monkeypatch.setenv("FLOATSIM_CACHE", str(tmp_path))
    everything = named("NVRTC 13.5", (75, 89, 90, 100, 103, 120, 121))
    monkeypatch.setattr(build, "compilers", lambda: (everything,))
    found = list(prepare(capability))
    assert all(compiled and compiler == "NVRTC 13.5" for _, compiler, compiled in found)
    assert len(list(tmp_path.rglob("*.cubin"))) == len(found)
    monkeypatch.setattr(build, "compilers", lambda: ())

    class Gpu:
        """A runtime whose kernels do nothing."""

        newest, identity = 13, DeviceIdentity("a GPU", capability, "0.0", "13.0")
        send = receive = staticmethod(np.asarray)
        empty = staticmethod(np.zeros)

        def kernel(self, code, name):
            assert code == b"NVRTC 13.5"
            return lambda *arguments: None

    device = Device(cuda=Gpu())
    for variant in device.variants:
        device._kernel(of_variant(variant), "single")
    rows = [row for row in SCALARS if row.runs_on(capability)]
    for row in rows:
        x = np.zeros(1, row.source.code_dtype)
        device.scalar(row, x, x, x)
    for add in (row for row in rows if row.operation == "add"):
        x, ranges = np.zeros((1, 1), add.source.code_dtype), np.array([[0, 1, 1]])
        device.sum(add.source, None, x, ranges, attributes=options(add))
        for row in (row for row in rows if row.source == add.source):
            if row.operation == "multiply":
                device.sum(add.source, x, x, ranges, attributes=options(add), products=options(row))
            if row.operation == "fma" and options(row) == options(add):
                device.sum(add.source, x, x, ranges, attributes=options(add), fused=True)


def options(row):
    """Return the rounding attributes of an operation."""
    daz, ftz = row.flushes[0]
    return RoundingAttributes(rounding=row.rounding, overflow=row.overflow, daz=daz, ftz=ftz)


def test_what_does_not_compile_is_reported_and_the_rest_is_prepared(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FLOATSIM_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "compilers", lambda: (named("NVRTC 13.0", (120,)),))
    assert main(["12.0", "13"]) == 3
    out, err = capsys.readouterr()
    assert err.count("needs a compiler of CUDA 13.1 or newer") == 2
    assert out == f"{len(list(tmp_path.rglob('*.cubin')))} programs compiled by NVRTC 13.0\n"


@pytest.mark.parametrize("name", ["elementwise.cu", "mma.cu", "sums.cu", "tcgen05.cu", "wgmma.cu"])
def test_no_kernel_waits_forever(name):
    """A wait for a barrier is a counted loop of C++ that traps. No loop is hidden in assembly."""
    code = build.source(name)
    assert not re.search(r"\bbra\b|test_wait|\bwhile\b", code)
    waits = re.findall(r"for \(word tries = 0; !done\(.*\) \{\n\s+if \(tries == TRIES\) __trap\(\);", code)
    assert len(waits) == code.count("mbarrier.try_wait")

"""Every CUDA source compiles for every target that it names. The tests need a compiler, but no GPU.

Where there is none, the tests are skipped, and say so; with FLOATSIM_REQUIRE_NVRTC=1 that is a failure.
"""

from __future__ import annotations

import hashlib
import os

import pytest

from floatsim.formats import FP16
from floatsim.hardware.compile import nvrtc as build
from floatsim.hardware.compile.programs import Program, every_program, of_scalars, of_variant
from floatsim.hardware.tables.compute_capability import PLAIN, capability_of
from floatsim.hardware.tables.ptx_matrix import find

REQUIRED = os.environ.get("FLOATSIM_REQUIRE_NVRTC") == "1"
HINT = "pip install 'floatsim[nvrtc]'"


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
    assert named == {*PLAIN, "sm_90a", "sm_100a", "sm_120a"}


def test_the_error_of_a_source_contains_the_output_of_the_compiler():
    if not build.compilers():
        missing("there is neither NVRTC nor nvcc")
    with pytest.raises(build.CompileError, match=r"(?s)mma.cu for sm_80, .*MNEMONIC.*D_REGISTERS=3.*no form"):
        build.build("mma.cu", "sm_80", {"MNEMONIC": '"mma"', "D_REGISTERS": "3"}, keep=False)


def test_machine_code_is_cached_by_source_and_target(tmp_path, monkeypatch):
    monkeypatch.setenv("FLOATSIM_CACHE", str(tmp_path))
    calls = []

    class Counting:
        name, version, architectures = "a compiler 1.0", (12, 0), frozenset({80, 90})

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


def test_compilation_works_without_a_writable_cache(tmp_path, monkeypatch):
    blocked = tmp_path / "a file"
    blocked.write_text("")
    monkeypatch.setenv("FLOATSIM_CACHE", str(blocked))

    class Fixed:
        name, version, architectures = "a compiler 1.0", (12, 0), frozenset({80})

        def compile(self, name, code, target, definitions):
            return b"\x7fELF"

    monkeypatch.setattr(build, "compilers", lambda: (Fixed(),))
    cubin = build.build("mma.cu", "sm_80")
    assert cubin == build.Cubin(b"\x7fELF", "a compiler 1.0")
    assert cubin.sha256 == hashlib.sha256(b"\x7fELF").hexdigest()


def test_without_a_compiler_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(build, "compilers", lambda: ())
    with pytest.raises(build.CompileError, match="pip install nvidia-cuda-nvrtc"):
        build.build("mma.cu", "sm_80", keep=False)


def test_a_compiler_newer_than_the_driver_is_not_used(monkeypatch):
    class Newer:
        name, version, architectures = "NVRTC 13.0", (13, 0), frozenset({80})

    monkeypatch.setattr(build, "compilers", lambda: (Newer(),))
    with pytest.raises(build.CompileError, match=r"the driver is for CUDA 12; NVRTC 13.0 are newer"):
        build.build("mma.cu", "sm_80", newest=12, keep=False)
    with pytest.raises(build.CompileError, match=r"no installed CUDA compiler supports sm_70: .*CUDA 13 does not"):
        build.build("mma.cu", "sm_70", newest=13, keep=False)

"""Compilation of CUDA C++ to machine code for a named target, by NVRTC or nvcc.

No GPU is needed, so every source can be compiled for every target on any machine. NVRTC is called directly and not
through CuPy. CuPy adds the GPU's own -arch to the options, which excludes "sm_90a". Also, code that was compiled
without a GPU is then identical to the code that runs on one.

Source: NVIDIA, "NVRTC" (documentation of the CUDA Toolkit), 3.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from floatsim._extras import install_command
from floatsim.hardware.compile.machine_code import CachedProgram, Cubin
from floatsim.hardware.tables.compute_capability import capability_of, is_family

__all__ = ["CompileError", "Compiler", "Cubin", "build", "compilers", "rejected", "source"]

_OPTIONS = ("--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "--std=c++17")
_MISSING = (
    "no CUDA compiler was found: install NVRTC (pip install nvidia-cuda-nvrtc) or CuPy with it: "
    f"{install_command('cuda13x')}, or put nvcc on the PATH"
)


class CompileError(RuntimeError):
    """A source did not compile. The message contains the compiler's output."""


class Compiler(Protocol):
    """A compiler of CUDA C++."""

    @property
    def name(self) -> str:
        """The name and version, as "NVRTC 13.0"."""

    @property
    def version(self) -> tuple[int, int]:
        """The CUDA version, (major, minor)."""

    @property
    def architectures(self) -> frozenset[int]:
        """The numbers of the supported targets: 90 for "sm_90" and "sm_90a"."""

    def compile(self, name: str, code: str, target: str, definitions: Mapping[str, str]) -> bytes:
        """Compile a source to a cubin."""


# -- NVRTC -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Nvrtc:
    path: str

    @functools.cached_property
    def _library(self) -> ctypes.CDLL:
        # NVRTC opens its builtins by name. The wheel of CUDA 13.0 has no RUNPATH, so they must be loaded before.
        for pattern in ("libnvrtc-builtins.so.*", "nvrtc-builtins64_*.dll"):
            for path in Path(self.path).parent.glob(pattern) if Path(self.path).is_absolute() else ():
                with contextlib.suppress(OSError):  # if they are needed, the compiler reports it
                    ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
        library = ctypes.CDLL(self.path)
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        return library

    def _call(self, function: str, *arguments: Any) -> None:
        status = getattr(self._library, function)(*arguments)
        if status:
            text = self._library.nvrtcGetErrorString(status).decode()
            raise CompileError(f"{function} of {self.name}: {text}")

    @property
    def name(self) -> str:
        return f"NVRTC {'.'.join(map(str, self.version))}"

    @functools.cached_property
    def version(self) -> tuple[int, int]:
        major, minor = ctypes.c_int(), ctypes.c_int()
        if self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)):
            raise CompileError(f"{self.path} does not report its version")
        return major.value, minor.value

    @functools.cached_property
    def architectures(self) -> frozenset[int]:
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        numbers = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", numbers)
        return frozenset(numbers)

    def _text(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, buffer)
        return buffer.raw

    def compile(self, name: str, code: str, target: str, definitions: Mapping[str, str]) -> bytes:
        options = [f"--gpu-architecture={target}", *_OPTIONS, *_as_options(definitions)]
        program = ctypes.c_void_p()
        self._call("nvrtcCreateProgram", ctypes.byref(program), code.encode(), name.encode(), 0, None, None)
        try:
            given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            if self._library.nvrtcCompileProgram(program, len(options), given):
                log = self._text(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
                raise CompileError(f"{name} for {target}, {self.name}, {_shown(definitions)}:\n{log}")
            return self._text(program, "CUBIN")
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))


# -- nvcc --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Nvcc:
    path: str

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.path, *arguments], capture_output=True, text=True, check=False)

    @property
    def name(self) -> str:
        return f"nvcc {'.'.join(map(str, self.version))}"

    @functools.cached_property
    def version(self) -> tuple[int, int]:
        found = re.search(r"release (\d+)\.(\d+)", self._run("--version").stdout)
        if found is None:
            raise CompileError(f"{self.path} does not report its version")
        return int(found[1]), int(found[2])

    @functools.cached_property
    def architectures(self) -> frozenset[int]:
        return frozenset(map(int, re.findall(r"compute_(\d+)\b", self._run("--list-gpu-arch").stdout)))

    def compile(self, name: str, code: str, target: str, definitions: Mapping[str, str]) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            written, cubin = Path(folder, name), Path(folder, "out.cubin")
            # definitions on the command line would also apply to nvcc's own headers
            lines = "".join(f"#define {macro} {value}\n" for macro, value in definitions.items())
            written.write_text(f"{lines}#line 1\n{code}", encoding="utf-8")
            options = [f"-arch={target}", *_OPTIONS]
            done = self._run("-cubin", "-o", str(cubin), str(written), *options)
            if done.returncode:
                raise CompileError(f"{name} for {target}, {self.name}, {_shown(definitions)}:\n{done.stderr}")
            return cubin.read_bytes()


def _as_options(definitions: Mapping[str, str]) -> list[str]:
    return [f"--define-macro={name}={value}" for name, value in definitions.items()]


def _shown(definitions: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in definitions.items()) or "nothing defined"


# -- installed compilers -----------------------------------------------------------------------------------------------


def _libraries() -> Iterator[str]:
    """Yield the candidates for NVRTC: NVIDIA's wheels, a CUDA Toolkit, conda, and names for the system's loader."""
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(p) for p in (spec.submodule_search_locations or ())] if spec else []
    folders += [Path(os.environ[name]) for name in ("CUDA_PATH", "CUDA_HOME") if os.environ.get(name)]
    found = [path for folder in folders for name in _FILES for path in sorted(folder.rglob(name), reverse=True)]
    flat = [*Path("/usr/local").glob("cuda*/lib64"), Path(os.environ.get("CONDA_PREFIX", "/usr/local/cuda"), "lib")]
    found += [path for folder in flat for name in _FILES for path in sorted(folder.glob(name), reverse=True)]
    files: dict[Path, Path] = {}
    for path in found:
        files.setdefault(path.resolve(), path)  # several links to one file
    yield from map(str, files.values())
    names = {path.name for path in found}
    yield from (name for name in _NAMES if name not in names)


_FILES = ("libnvrtc.so.*", "nvrtc64_*_0.dll")
_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "nvrtc64_130_0.dll", "nvrtc64_120_0.dll")
_EMPTY = 'extern "C" __global__ void empty() {}\n'


@functools.cache
def _examined() -> tuple[tuple[Compiler, ...], tuple[str, ...]]:
    """Return the compilers that have compiled an empty kernel, and the others as texts with the reasons."""
    working: dict[str, Compiler] = {}
    reasons = []
    nvcc = shutil.which("nvcc")
    candidates: list[_Nvrtc | _Nvcc] = [*map(_Nvrtc, _libraries()), *([_Nvcc(nvcc)] if nvcc else [])]
    for compiler in candidates:
        try:
            if compiler.name not in working:
                if not compiler.architectures:
                    raise CompileError(f"{compiler.name} lists no targets")
                compiler.compile("empty.cu", _EMPTY, f"sm_{min(compiler.architectures)}", {})
                working[compiler.name] = compiler
        except (OSError, CompileError, AttributeError) as error:
            if compiler.path not in _NAMES or not isinstance(error, OSError):  # else the system has no such library
                reasons.append(f"{compiler.path}: {' '.join(str(error).split())}")
    newest_first = sorted(working.values(), key=lambda c: (isinstance(c, _Nvrtc), c.version), reverse=True)
    return tuple(newest_first), tuple(reasons)


def compilers() -> tuple[Compiler, ...]:
    """Return the installed compilers, NVRTC before nvcc, the newest of each first, one of each version.

    A compiler is listed only if it has compiled an empty kernel in this process.
    """
    return _examined()[0]


def rejected() -> tuple[str, ...]:
    """Return the installed compilers that do not work: their files, each with the reason."""
    return _examined()[1]


def _compiler_for(target: str, newest: int | None, oldest: tuple[int, int]) -> Compiler:
    """Return the first compiler that supports the target, and whose CUDA a driver of version `newest` can load."""
    usable = [c for c in compilers() if newest is None or c.version[0] <= newest]
    if usable and not any(c.version >= oldest for c in usable):
        raise CompileError(f"this needs a compiler of CUDA {oldest[0]}.{oldest[1]} or newer; there are {_listed()}")
    usable = [c for c in usable if c.version >= oldest]
    if not usable and not compilers():
        raise CompileError("; ".join([_MISSING, *(f"rejected: {reason}" for reason in rejected())]))
    if not usable:
        raise CompileError(f"the driver is for CUDA {newest}; {_listed()} are newer")
    major, minor = capability_of(target)
    for compiler in usable:
        if major * 10 + minor in compiler.architectures and (compiler.version >= _FAMILIES or not is_family(target)):
            return compiler
    raise CompileError(
        f"no installed CUDA compiler supports {target}: there are {_listed()}; CUDA 13 does not support sm_70, and "
        f"CUDA {_FAMILIES[0]}.{_FAMILIES[1]} has the first family targets, such as sm_100f"
    )


_FAMILIES = (12, 9)
"""The oldest CUDA with targets of families, such as sm_100f."""


def _listed() -> str:
    return ", ".join(c.name for c in compilers())


# -- building ----------------------------------------------------------------------------------------------------------


@functools.cache
def source(name: str) -> str:
    """Return the text of a source file of `floatsim_kernels/cuda`."""
    spec = importlib.util.find_spec("floatsim_kernels")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("floatsim_kernels is not installed")
    return Path(spec.origin).with_name("cuda").joinpath(name).read_text(encoding="utf-8")


def build(
    name: str, target: str, definitions: Mapping[str, str] | None = None, newest: int | None = None, keep: bool = True,
    oldest: tuple[int, int] = (0, 0),
) -> Cubin:  # fmt: skip
    """Return the machine code of a source for a target, and its compiler.

    Parameters
    ----------
    name : str
        The name of the file: "mma.cu".
    target : str
        The target: "sm_80", "sm_90a".
    definitions : mapping of str to str, optional
        Macro definitions.
    newest : int, optional
        The major CUDA version of the driver. Newer compilers are excluded, because the driver cannot load their code.
    keep : bool
        Whether to use the cache in ~/.cache/floatsim/cuda, or FLOATSIM_CACHE. Its key consists of the source, the
        target, the definitions and the options. The first usable compiler selects the entry. Without a usable
        compiler, the entry of the newest compiler that `newest` and `oldest` allow is used.
    oldest : (major, minor), optional
        The oldest CUDA whose compiler takes the source.

    Returns
    -------
    Cubin
        The machine code and the name of its compiler.

    Raises
    ------
    CompileError
        If no compiler supports the target and the cache has no entry (the message says how to install a compiler), or
        the source does not compile.
    """
    code, definitions = source(name), definitions or {}
    cached = CachedProgram(f"{Path(name).stem}-{target}", (target, *_OPTIONS, *_as_options(definitions), code))
    try:
        compiler = _compiler_for(target, newest, oldest)
    except CompileError:
        found = cached.newest(newest, oldest) if keep else None
        if found is None:
            raise
        return found
    found = cached.read(compiler.name) if keep else None
    if found is None:
        found = Cubin(compiler.compile(name, code, target, definitions), compiler.name)
        if keep:
            cached.write(found)
    return found

"""Compile all kernels of a GPU into the cache, on a machine without that GPU.

    python -m floatsim.hardware.compile.prepare 9.0

The folder of the cache can then be copied to a machine without a compiler. A second argument is the major CUDA version
of its driver: newer compilers are not used.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from floatsim.hardware.compile import nvrtc as build
from floatsim.hardware.compile import programs
from floatsim.hardware.tables.compute_capability import Capability

__all__ = ["main", "prepare"]


def prepare(capability: Capability, newest: int | None = None) -> Iterator[tuple[programs.Program, str, bool]]:
    """Compile all programs of a GPU into the cache.

    Parameters
    ----------
    capability : (major, minor)
        The compute capability of the GPU.
    newest : int, optional
        The major CUDA version of the GPU's driver. Newer compilers are not used.

    Yields
    ------
    (Program, str, bool)
        A program, its compiler or the error, and whether it was compiled.
    """
    for program in programs.programs_of(capability):
        target = program.target_for(capability)
        try:
            cubin = build.build(program.source, target, program.definitions, newest, oldest=program.cuda)
            yield program, cubin.compiler, True
        except build.CompileError as error:
            yield program, str(error), False


def main(arguments: Sequence[str]) -> int:
    """Compile for the compute capability in the arguments. Return 0 if every program was compiled, else 3."""
    major, minor = (int(word) for word in arguments[0].split("."))
    newest = int(arguments[1]) if len(arguments) > 1 else None
    failures, compilers = 0, dict[str, int]()
    for program, result, compiled in prepare((major, minor), newest):
        if compiled:
            compilers[result] = compilers.get(result, 0) + 1
        else:
            failures += 1
            print(f"{program.source}: {result}", file=sys.stderr)
    for name, count in compilers.items():
        print(f"{count} programs compiled by {name}")
    return 3 if failures else 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("python -m floatsim.hardware.compile.prepare 9.0 [major CUDA version of the driver]")
    sys.exit(main(sys.argv[1:]))

"""Programs: a CUDA source with its macro definitions and targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from floatsim.formats import BF16, E2M1, E2M3, E3M2, E4M3, E5M2, E8M0, FP16, FP32, FP64, TF32
from floatsim.formats.rounding import Rounding
from floatsim.hardware.tables.compute_capability import PLAIN, Capability, capability_of, is_specific, runs_on
from floatsim.hardware.tables.fragment_layouts import layouts
from floatsim.hardware.tables.ptx_matrix import Variant, variants
from floatsim.hardware.tables.ptx_scalar import SCALARS, Scalar, memory_type

__all__ = [
    "Issue",
    "Program",
    "every_program",
    "issue_of",
    "of_scalars",
    "of_sums",
    "of_variant",
    "programs_of",
    "scalar_target",
]


@dataclass(frozen=True)
class Program:
    """A source file of `floatsim_kernels/cuda` with its macro definitions and its targets.

    `cuda` is the oldest CUDA whose compiler takes the program.
    """

    source: str
    definitions: Mapping[str, str]
    targets: tuple[str, ...]
    cuda: tuple[int, int] = (0, 0)

    def target_for(self, capability: Capability) -> str:
        """Return the target of a GPU of this compute capability, which must support the program.

        >>> Program("mma.cu", {}, ("sm_80",)).target_for((8, 6))
        'sm_86'
        >>> Program("wgmma.cu", {}, ("sm_90a",)).target_for((9, 0))
        'sm_90a'
        """
        specific = [target for target in self.targets if is_specific(target) and runs_on(target, capability)]
        return specific[0] if specific else f"sm_{capability[0]}{capability[1]}"


def _quoted(text: str) -> str:
    return f'"{text}"'


# -- matrix instructions -----------------------------------------------------------------------------------------------

_SOURCES = {"mma": "mma.cu", "mma_scaled": "mma.cu", "wgmma": "wgmma.cu", "tcgen05": "tcgen05.cu",
            "tcgen05_scaled": "tcgen05.cu"}  # fmt: skip


@dataclass(frozen=True)
class Issue:
    """The launch of the kernel "rate", which issues one instruction on all multiprocessors to measure its throughput.

    Parameters
    ----------
    threads, blocks : int
        The threads of a block, and the blocks of a multiprocessor.
    chain : int
        The consecutive instructions of the source: on separate accumulators (mma), or before a wait.
    groups : int
        The number of issuers in a block: warps, warp groups, or one thread.
    columns : int
        The columns of a wider tile than that of single instructions; 0 if it is the same. With narrow tiles, shared
        memory limits the throughput.
    """

    threads: int
    blocks: int
    chain: int
    groups: int
    columns: int = 0


_ISSUES = {
    "mma": Issue(threads=256, blocks=2, chain=8, groups=8),
    "wgmma": Issue(threads=256, blocks=1, chain=16, groups=2, columns=256),
    "tcgen05": Issue(threads=128, blocks=1, chain=16, groups=1, columns=256),
}


def issue_of(variant: Variant) -> Issue:
    """Return how an instruction is issued to measure its throughput.

    >>> from floatsim.hardware.tables.ptx_matrix import find
    >>> issue_of(find("wgmma.k16", FP16, FP16)).columns
    256
    """
    return _ISSUES[variant.kernel.family.removesuffix("_scaled")]


def _registers(v: Variant, *operands: str) -> dict[str, str]:
    return {f"{operand.upper()}_REGISTERS": str(layouts(v).registers(operand)) for operand in operands}


def _mma(v: Variant) -> dict[str, str]:
    issue = issue_of(v)
    return _registers(v, "d", "a", "b") | {
        "WIDE": str(int(v.output == FP64)), "SCALED": str(int(v.scales is not None)), "THREADS": str(issue.threads),
        "CHAINS": str(issue.chain),
    }  # fmt: skip


def _wgmma(v: Variant) -> dict[str, str]:
    issue, (_, n, _) = issue_of(v), v.kernel.shape
    wide = layouts(v).registers("d") * issue.columns // n
    numbers = ",".join(f"%{i}" for i in range(wide))
    return _registers(v, "d") | {
        "TRANSPOSABLE": str(int(v.a.bits == 16)), "RATE_THREADS": str(issue.threads), "CHAIN": str(issue.chain),
        "RATE_MNEMONIC": _quoted(v.mnemonic.replace(f"n{n}k", f"n{issue.columns}k")), "RATE_REGISTERS": str(wide),
        "RATE_OPERANDS": _quoted(f"{{{numbers}}}, %{wide}, %{wide + 1}"),
    }  # fmt: skip


_TYPES = {FP16: 0, BF16: 1, TF32: 2, FP32: 2, E4M3: 0, E5M2: 1, E2M3: 3, E3M2: 4, E2M1: 5}
"""The types of A and B in an instruction descriptor: PTX ISA, 9.7.16.4.2."""


def _descriptor(v: Variant, columns: int) -> str:
    """Return the instruction descriptor of tcgen05, which encodes types and sizes."""
    fields = {4: int(v.output == FP32), 7: _TYPES[v.a], 10: _TYPES[v.b], 17: columns >> 3, 24: v.kernel.shape[0] >> 4}
    if (
        v.scales is not None
    ):  # bits 4, 5, 29 and 30 select the first byte of scales: 0; the type of FP4-only instructions is 1
        fields |= {4: 0, 23: int(v.scales.format == E8M0)} | ({7: 1, 10: 1} if v.k == 64 else {})
    return hex(sum(value << bit for bit, value in fields.items()))


def _tcgen05(v: Variant) -> dict[str, str]:
    issue = issue_of(v)
    return {
        "DESCRIPTOR": _descriptor(v, v.kernel.shape[1]), "SCALED": str(int(v.scales is not None)),
        "RATE_DESCRIPTOR": _descriptor(v, issue.columns), "CHAIN": str(issue.chain),
    }  # fmt: skip


_DEFINITIONS = {"mma": _mma, "mma_scaled": _mma, "wgmma": _wgmma, "tcgen05": _tcgen05,
                "tcgen05_scaled": _tcgen05}  # fmt: skip


def of_variant(variant: Variant) -> Program:
    """Return the program of a matrix instruction, with the kernels "single", "gemm" and "rate".

    >>> from floatsim.hardware.tables.ptx_matrix import find
    >>> of_variant(find("mma.m16n8k16", FP16, FP16)).definitions["A_REGISTERS"]
    '4'
    """
    family = variant.kernel.family
    definitions = {"MNEMONIC": _quoted(variant.mnemonic)} | _DEFINITIONS[family](variant)
    return Program(_SOURCES[family], MappingProxyType(definitions), variant.kernel.targets, variant.kernel.cuda)


# -- CUDA cores --------------------------------------------------------------------------------------------------------


_SPECIFIC = tuple(dict.fromkeys(t for row in SCALARS for t in row.targets if is_specific(t)))


def of_scalars(target: str, cuda: tuple[int, int] = (0, 0)) -> Program:
    """Return the program of the elementwise operations of a target, with a kernel for each row of the table.

    It holds the rows whose oldest CUDA is `cuda`.
    """
    capability = capability_of(target)
    usable = [t for t in (*PLAIN, *_SPECIFIC) if runs_on(t, capability) and (is_specific(target) or not is_specific(t))]
    lines = [row.line for row in SCALARS if set(row.targets) & set(usable) and row.cuda == cuda]
    return Program("elementwise.cu", MappingProxyType({"ROWS": " ".join(lines)}), (target,), cuda)


def scalar_target(capability: Capability) -> str:
    """Return the target for the elementwise operations of a GPU: "sm_100a" if only that has all of them.

    >>> scalar_target((9, 0)), scalar_target((10, 0)), scalar_target((12, 1))
    ('sm_90', 'sm_100a', 'sm_120f')
    """
    return next((t for t in _SPECIFIC if runs_on(t, capability)), f"sm_{capability[0]}{capability[1]}")


def of_sums(add: Scalar, multiply: Scalar, fma: Scalar) -> Program:
    """Return the program of sums in the format of these operations, with the kernels "sequential" and "tree"."""
    definitions = {
        "WORD": memory_type(add.result), "LETTER": _quoted(add.to.letter), "ADD": _quoted(add.text),
        "MULTIPLY": _quoted(multiply.text), "FMA": _quoted(fma.text),
    }  # fmt: skip
    return Program("sums.cu", MappingProxyType(definitions), add.targets)


def _sums() -> Iterator[tuple[str, Program]]:
    """Yield a program for each addition of the table, with products of the same rounding, or of the default one."""
    named = {(row.operation, row.source, row.rounding, row.flushes): row for row in SCALARS}
    for (operation, fmt, rounding, flushes), add in named.items():
        if operation == "add":
            roundings = (rounding, flushes), (Rounding.TIES_TO_EVEN, ((False, False),))
            multiply, fma = (
                next(named[name, fmt, *each] for each in roundings if (name, fmt, *each) in named)
                for name in ("multiply", "fma")
            )
            yield f"sums by {add}", of_sums(add, multiply, fma)


def _sums_of_devices() -> Iterator[Program]:
    """Yield the programs of all sums that `Device.sum` launches: with a rounding of products, or fused."""
    for fmt in dict.fromkeys(row.source for row in SCALARS if row.operation == "add"):
        rows = {name: [row for row in SCALARS if (row.operation, row.source) == (name, fmt)]
                for name in ("add", "multiply", "fma")}  # fmt: skip
        multiply, fma = rows["multiply"][0], rows["fma"][0]  # to nearest, with subnormals
        for add in rows["add"]:
            yield from (of_sums(add, each, fma) for each in rows["multiply"])
            yield from (of_sums(add, multiply, each) for each in rows["fma"]
                        if (each.rounding, each.flushes) == (add.rounding, add.flushes))  # fmt: skip


def every_program() -> Iterator[tuple[str, Program]]:
    """Yield all programs, each with a name.

    >>> len(list(every_program())) > 180
    True
    """
    for variant in variants():
        yield str(variant), of_variant(variant)
    for target in (*PLAIN, *_SPECIFIC):
        yield f"scalars on {target}", of_scalars(target)
    for target, cuda in sorted({(t, row.cuda) for row in SCALARS if any(row.cuda) for t in row.targets}):
        yield f"scalars on {target} since CUDA {cuda[0]}.{cuda[1]}", of_scalars(target, cuda)
    yield from _sums()


def programs_of(capability: Capability) -> Iterator[Program]:
    """Yield the programs that a GPU of this compute capability can run, each once.

    >>> sorted({program.source for program in programs_of((8, 0))})
    ['elementwise.cu', 'mma.cu', 'sums.cu']
    """
    target = scalar_target(capability)
    own = [of_variant(variant) for variant in variants() if variant.kernel.runs_on(capability)]
    own += [of_scalars(target, cuda) for cuda in sorted({row.cuda for row in SCALARS if row.runs_on(capability)})]
    own += [program for program in _sums_of_devices() if any(runs_on(each, capability) for each in program.targets)]
    yield from {(program.source, *program.definitions.items()): program for program in own}.values()

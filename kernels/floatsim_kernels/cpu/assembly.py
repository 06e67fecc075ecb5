"""Compile a loop around one machine instruction, written as LLVM IR with inline assembly.

Inline assembly needs no LLVM intrinsic, whose operand types differ between versions of LLVM. An instruction that the
processor does not have ends the process with SIGILL, and an unknown mnemonic aborts it. So try a loop in a child
process first.
"""

import ctypes
import functools

import llvmlite
import llvmlite.binding as llvm

_POINTER = "ptr" if llvm.llvm_version_info[0] >= 17 else None
"""The type of a pointer in LLVM IR; None where pointers have the type of their target."""


def pointer_to(kind):
    """Return the text of the type of a pointer."""
    return _POINTER or f"{kind}*"


def compiler():
    """Return the name and version of the compiler.

    >>> compiler().startswith("llvmlite ")
    True
    """
    return f"llvmlite {llvmlite.__version__} (LLVM {'.'.join(map(str, llvm.llvm_version_info))})"


@functools.cache
def _initialize():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()


@functools.cache
def processor():
    """Return LLVM's name of this processor and its features as a dictionary.

    >>> name, features = processor()
    >>> isinstance(name, str), isinstance(features, dict)
    (True, True)
    """
    _initialize()
    return llvm.get_host_cpu_name(), dict(llvm.get_host_cpu_features())


def machine_of(features, triple=None):
    """Return a target machine with these features: this machine's, or another one's to compile for."""
    _initialize()
    target = llvm.Target.from_default_triple() if triple is None else llvm.Target.from_triple(triple)
    return target.create_target_machine(features=",".join(f"+{name}" for name in features), opt=2, jit=triple is None)


class Loop:
    """A compiled loop. Call it with arrays and integers; arrays are passed as addresses."""

    def __init__(self, text, features):
        _initialize()
        module = llvm.parse_assembly(text)
        module.verify()
        self._engine = llvm.create_mcjit_compiler(module, machine_of(features))
        self._engine.finalize_object()
        arguments = text[text.index("@run(") : text.index(")", text.index("@run("))].count("i64")
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * arguments)
        self._run = kind(self._engine.get_function_address("run"))

    def __call__(self, *arguments):
        self._run(*(x if isinstance(x, int) else x.ctypes.data for x in arguments))

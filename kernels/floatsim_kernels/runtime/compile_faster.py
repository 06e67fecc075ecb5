"""A faster compiler of kernels: it changes private parts of Numba, and saves time only.

`jit.py` takes it if `refusal` finds nothing against it in the installed versions, and Numba's own compiler otherwise.
The compiled kernels give the same bits. `CHECKS` names each private part with a check that it is still there.
"""

import gc
import operator
import sys
import threading
from types import MappingProxyType
from typing import ClassVar

import numba
import numpy as np
from numba import _dynfunc
from numba.core import ir as numba_ir
from numba.core import typed_passes, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Flags
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.runtime.context import NRTContext

from . import numba_compat

__all__ = ["CHECKS", "COMPILERS", "InlineCompiler", "KernelCompiler", "compile_without_collection", "refusal"]


def compile_without_collection(dispatcher):
    """Pause Python's garbage collector while a dispatcher compiles.

    Compiling makes many objects, few of them garbage. The collector would take a sixth of the time.
    """
    compile_signature = dispatcher.compile

    def compile(signature):
        with _without_collection:
            return compile_signature(signature)

    dispatcher.compile = compile


class _WithoutCollection:
    """Pauses the garbage collector while at least one thread is inside."""

    def __init__(self):
        self._lock, self._inside, self._was_enabled = threading.Lock(), 0, False

    def __enter__(self):
        with self._lock:
            if not self._inside:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._inside += 1

    def __exit__(self, *exception):
        with self._lock:
            self._inside -= 1
            if not self._inside and self._was_enabled:
                gc.enable()


_without_collection = _WithoutCollection()


class _Flags(Flags):
    """Flags that are compared and hashed faster: Numba does both thousands of times for one kernel.

    The hash of Numba's flags depends on their names alone, and is therefore one number.
    """

    __slots__ = ()

    def values(self):
        return _DEFAULTS | self._values

    def __eq__(self, other):
        return self.values() == other.values() if isinstance(other, Flags) else NotImplemented

    def __hash__(self):
        return _HASH


_DEFAULTS = Flags().values()
_HASH = hash(Flags())


class _RememberingContext:
    """Numba's typing context, which finds the type of an operator or of a number's class once and not at every use.

    Numba tries the overloads of an operator, those of arrays and of text included, each time that it meets one.
    """

    _found: ClassVar = {}

    def __init__(self, context):
        self._context = context

    def __getattr__(self, name):
        return getattr(self._context, name)

    def resolve_function_type(self, function, arguments, keywords):
        """The signature of a call."""
        resolve = self._context.resolve_function_type
        is_number = isinstance(function, types.NumberClass)
        key = function if is_number else getattr(function, "typing_key", None), arguments
        builtin = is_number or key[0] in _BUILTINS
        if not builtin or keywords or not all(isinstance(kind, _VALUES) for kind in arguments):
            return resolve(function, arguments, keywords)
        if key not in self._found:
            self._found[key] = resolve(function, arguments, keywords)
        return self._found[key]


_BUILTINS = frozenset((*(vars(operator)[name] for name in operator.__all__), bool, range, slice))
_VALUES = types.Number, types.Boolean, types.Array, types.BaseTuple, types.SliceType


class _References(NRTContext):
    """Numba's counting of references to memory, without instructions for the members of a value that hold none."""

    _holders: ClassVar = {}

    def holds(self, kind):
        """Whether a value of this type refers to memory whose references are counted."""
        if kind not in self._holders:
            self._holders[kind] = self._context.data_model_manager[kind].contains_nrt_meminfo()
        return self._holders[kind]

    def get_meminfos(self, builder, kind, value):
        """The pairs of a type and a pointer to counted memory that a value holds."""
        if not self.holds(kind):
            return []
        model = self._context.data_model_manager[kind]
        found = [(kind, model.get_nrt_meminfo(builder, value))] if model.has_nrt_meminfo() else []
        for member, getter in model.traverse(builder):
            if self.holds(member):
                found += self.get_meminfos(builder, member, getter(value))
        return found


class _Lower(Lower):
    """Numba's translation of a function to LLVM IR, without what kernels do not need.

    An error does not name the statement. Variables are deleted as Numba does, by storing zeros in them: without that,
    LLVM sees a value that passes from one iteration of a loop to the next, and does not vectorize the loop. Comparisons
    of 8- and 16-bit codes then took 7 to 18 times as long (AMD Zen 3 with AVX2, 2026-11).
    """

    def lower_block(self, block):
        """Translate a block."""
        self.pre_block(block)
        for statement in block.body:
            self.loc = statement.loc
            self.lower_inst(statement)
        self.post_block(block)

    def lower_binop(self, result, expression, operator):
        """Translate an operator of two operands."""
        if not (expression.static_lhs is expression.static_rhs is numba_ir.UNDEFINED):
            return super().lower_binop(result, expression, operator)
        context, signature = self.context, self.fndesc.calltypes[expression]
        typing_context = _RememberingContext(context.typing_context)
        kind = typing_context.resolve_value_type(operator)
        function = context.get_function(kind, typing_context.resolve_function_type(kind, signature.args, {}))
        operands = [
            context.cast(self.builder, self.loadvar(variable.name), self.typeof(variable.name), kind)
            for variable, kind in zip((expression.lhs, expression.rhs), signature.args, strict=True)
        ]
        return context.cast(self.builder, function(self.builder, operands), signature.return_type, result)


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(typed_passes.NativeLowering):
    """Numba's pass, with `_Lower`."""

    _name = "floatsim_lowering"
    lowering_class = _Lower


class _Faster:
    """What both compilers have."""

    def __init__(self, typing_context, target_context, library, args, return_type, flags, locals_):
        context = _RememberingContext(typing_context)
        super().__init__(context, target_context, library, args, return_type, _Flags(flags), locals_)
        self.state.targetctx.nrt = _References(self.state.targetctx, self.state.targetctx.enable_nrt)

    def passes(self):
        """Numba's passes, with `_Lowering`."""
        passes = super().passes()
        passes.passes = [(_REPLACED.get(each, each), description) for each, description in passes.passes]
        return passes


_REPLACED = MappingProxyType({typed_passes.NativeLowering: _Lowering})


class KernelCompiler(_Faster, numba_compat.KernelCompiler):
    """The compiler of kernels."""


class InlineCompiler(_Faster, numba_compat.InlineCompiler):
    """The compiler of functions that run only inside kernels.

    No machine code is made of the functions alone: the kernels take their LLVM IR, and optimize it with their own.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.state.targetctx.get_executable = _function_without_code

    def passes(self):
        """The passes, whose results go to a library that holds only LLVM IR."""
        self.state.library = _InlinedLibrary(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        return super().passes()


COMPILERS = KernelCompiler, InlineCompiler
"""Those of kernels and of the functions that run only inside them."""


class _InlinedLibrary(JITCodeLibrary):
    """The LLVM IR of a function and of those that it calls, which is not compiled."""

    def _optimize_final_module(self):
        pass

    def _finalize_final_module(self):
        self._finalize_dynamic_globals()
        self._finalized = True


def _function_without_code(library, description, environment):
    """Numba's handle of a compiled function, which keeps its library alive; it cannot be called from Python."""
    return _dynfunc.make_function(description.lookup_module(), description.qualname, "", 0, environment, (library,))


# -- checks ------------------------------------------------------------------------------------------------------------


def _flags_are_equal_to_numbas():
    flags = Flags()
    flags.nrt = True
    ours = _Flags(flags)
    return ours == flags and flags == ours and hash(ours) == hash(flags) and ours != Flags()


def _operators_are_remembered():
    kernel = numba.njit(pipeline_class=KernelCompiler)(lambda x, y: (x + y, x - y + y))
    return kernel(1.5, 2) == (3.5, 1.5) and any(key[0] is operator.add for key in _RememberingContext._found)


def _overrides(ours):
    """A check that Numba's class has the methods that ours has, but for those that only ours calls."""

    def check():
        methods = {name for name, value in vars(ours).items() if callable(value)}
        return methods - {"holds"} <= set(dir(ours.__base__))

    return check


def _reads_of_memory_are_counted():
    def f(x, pairs):
        total = 0
        for row in x:
            kept = (row, row[1:])
            total += kept[1][0] + pairs[0][1]
        return kept, total

    x = np.arange(6).reshape(3, 2)
    before = sys.getrefcount(x)
    kept, total = numba.njit(pipeline_class=KernelCompiler)(f)(x, ((1, 2), (3, 4)))
    shown = [part.tolist() for part in kept]
    during = sys.getrefcount(x)
    del kept
    return shown == [[4, 5], [5]] and total == 15 and during > before and sys.getrefcount(x) == before


CHECKS = {
    "Flags": _flags_are_equal_to_numbas,
    "resolve_function_type and Function.typing_key": _operators_are_remembered,
    "NRTContext": _overrides(_References),
    "Lower": _overrides(_Lower),
    "JITCodeLibrary": _overrides(_InlinedLibrary),
    "data models": _reads_of_memory_are_counted,
}
"""The name of each private part, and a function that returns whether it is there."""


TESTED = frozenset({"0.61", "0.62", "0.63", "0.64", "0.65", "0.66", "0.67", "0.68"})
"""Minor versions of Numba whose checks all passed (2026-11). With others they run when the kernels are imported."""


def refusal():
    """Return what speaks against this compiler in the installed versions, or None."""
    if ".".join(numba.__version__.split(".")[:2]) in TESTED:
        return None
    for name, check in CHECKS.items():
        try:
            passed = check()
        except Exception as error:  # whatever a changed part raises
            return f"{name} ({type(error).__name__}: {error})"
        if not passed:
            return name
    return None

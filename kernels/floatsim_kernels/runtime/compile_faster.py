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
from llvmlite.binding.newpassmanagers import create_new_function_pass_manager
from numba import _dynfunc
from numba.core import ir as numba_ir
from numba.core import typed_passes, types, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Flags
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.ir_utils import build_definitions
from numba.core.lowering import Lower
from numba.core.runtime.context import NRTContext
from numba.core.ssa import reconstruct_ssa
from numba.cpython.builtins import do_minmax
from numba.extending import intrinsic

from . import numba_compat
from .numba_compat import assignments

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


def _of_two(name, comparison):
    """`min` or `max` of two numbers, as instructions. Numba would compile a function for each pair of types."""

    def codegen(context, builder, signature, args):
        return do_minmax(context, builder, signature.args, args, comparison)

    def typer(typing_context, a, b):
        return typing_context.unify_types(a, b)(a, b), codegen

    typer.__name__ = name
    return intrinsic(typer)


@register_pass(mutates_CFG=False, analysis_only=False)
class _MinMax(FunctionPass):
    """Replaces `min` and `max`, which kernels call with two numbers, by `_of_two`."""

    _name = "floatsim_min_max"
    OF_TWO = MappingProxyType({"min": _of_two("min", operator.lt), "max": _of_two("max", operator.gt)})

    def __init__(self):
        super().__init__()

    def run_pass(self, state):
        changed = False
        for statement in assignments(state, numba_ir.Global):
            if statement.value.name in self.OF_TWO:
                statement.value.value = self.OF_TWO[statement.value.name]
                changed = True
        return changed


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


@register_pass(mutates_CFG=False, analysis_only=False)
class _ReconstructSSA(untyped_passes.ReconstructSSA):
    """Numba's pass, without the lifetimes of variables, which nothing reads before the last passes find them anew."""

    _name = "floatsim_reconstruct_ssa"

    def run_pass(self, state):
        state.func_ir = reconstruct_ssa(state.func_ir)
        self._patch_locals(state)
        state.func_ir._definitions = build_definitions(state.func_ir.blocks)
        return True


@register_pass(mutates_CFG=False, analysis_only=False)
class _StripPhis(typed_passes.PreLowerStripPhis):
    """Numba's pass, without the lifetimes of variables, which the next pass finds."""

    _name = "floatsim_strip_phis"

    def run_pass(self, state):
        state.func_ir = self._strip_phi_nodes(state.func_ir)
        state.func_ir._definitions = build_definitions(state.func_ir.blocks)
        return True


class _Faster:
    """What both compilers have: fewer passes, those for what our kernels do not contain left out."""

    UNUSED = (
        untyped_passes.WithLifting,
        untyped_passes.InlineClosureLikes,
        untyped_passes.RewriteDynamicRaises,
        untyped_passes.MakeFunctionToJitFunction,
        untyped_passes.InlineInlinables,
        untyped_passes.FindLiterallyCalls,
        untyped_passes.LiteralUnroll,
        untyped_passes.LiteralPropagationSubPipelinePass,
        typed_passes.InlineOverloads,
        typed_passes.NopythonRewrites,
        typed_passes.NoPythonSupportedFeatureValidation,
        typed_passes.AnnotateTypes,
        typed_passes.DumpParforDiagnostics,
    )
    REPLACED = MappingProxyType({
        untyped_passes.ReconstructSSA: _ReconstructSSA,
        typed_passes.PreLowerStripPhis: _StripPhis,
        typed_passes.NativeLowering: _Lowering,
    })  # fmt: skip

    def __init__(self, typing_context, target_context, library, args, return_type, flags, locals_):
        context = _RememberingContext(typing_context)
        super().__init__(context, target_context, library, args, return_type, _Flags(flags), locals_)
        self.state.targetctx.nrt = _References(self.state.targetctx, self.state.targetctx.enable_nrt)

    def passes(self):
        """Numba's passes that remain."""
        self.state.library = self.library()
        passes = super().passes()
        used = [each for each in passes.passes if each[0] not in self.UNUSED]
        passes.passes = [(self.REPLACED.get(each, each), description) for each, description in used]
        passes.add_pass_after(_MinMax, untyped_passes.IRProcessing)
        return passes


class KernelCompiler(_Faster, numba_compat.KernelCompiler):
    """The compiler of kernels."""

    def library(self):
        """A library for the code of the function."""
        library = _Library(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        library.enable_object_caching()
        return library


class InlineCompiler(_Faster, numba_compat.InlineCompiler):
    """The compiler of functions that run only inside kernels.

    No machine code is made of the functions alone: the kernels take their LLVM IR, and optimize it with their own.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.state.targetctx.get_executable = _function_without_code

    def library(self):
        """A library for the LLVM IR of the function."""
        return _InlinedLibrary(self.state.targetctx.codegen(), self.state.func_id.func_qualname)


COMPILERS = KernelCompiler, InlineCompiler
"""Those of kernels and of the functions that run only inside them."""


class _Library(JITCodeLibrary):
    """The code of a kernel. Two passes of LLVM simplify the kernel before it is optimized with what it calls.

    Numba runs all passes here, and again on the whole. Most of the instructions read and write variables and take
    structures apart, and go in the first pass. One pass more, InstCombine, and LLVM vectorizes few loops later.
    """

    def _optimize_functions(self, ll_module):
        if not hasattr(self._codegen, "_pass_builder"):  # Numba 0.61 uses LLVM's older pass managers
            super()._optimize_functions(ll_module)
            return
        ll_module.data_layout = self._codegen._data_layout
        builder = self._codegen._pass_builder()
        manager = create_new_function_pass_manager()
        manager.add_sroa_pass()
        manager.add_simplify_cfg_pass()
        manager.add_refprune_pass()
        for function in ll_module.functions:
            if not function.is_declaration:
                manager.run(function, builder)


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


def _two_numbers_have_a_least_and_a_largest():
    def f(a, b):
        return min(a, b), max(a, b)

    kernel = numba.njit(pipeline_class=KernelCompiler)(f)
    return kernel(2, 1) == (1, 2) and kernel(np.float32(2), np.int32(1)) == (1, 2)


CHECKS = {
    "Flags": _flags_are_equal_to_numbas,
    "resolve_function_type and Function.typing_key": _operators_are_remembered,
    "NRTContext": _overrides(_References),
    "Lower": _overrides(_Lower),
    "JITCodeLibrary": _overrides(_Library),
    "data models": _reads_of_memory_are_counted,
    "do_minmax": _two_numbers_have_a_least_and_a_largest,
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

"""The private parts of Numba and llvmlite that this package uses, all in this module.

A new version may rename them. `CHECKS` names each one with a check that it is still there; a test runs them all.
"""

import contextlib
import gc
import hashlib
import operator
import sys
import threading
import warnings
from types import MappingProxyType
from typing import ClassVar

import numba
import numpy as np
from llvmlite import ir
from llvmlite.binding.newpassmanagers import create_new_function_pass_manager
from numba import _dynfunc
from numba.core import cgutils, event, typed_passes, types, untyped_passes
from numba.core import ir as numba_ir
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.consts import ConstantInference
from numba.core.ir_utils import build_definitions
from numba.core.lowering import Lower
from numba.core.registry import CPUDispatcher, cpu_target
from numba.core.runtime.context import NRTContext
from numba.core.serialize import dumps
from numba.core.ssa import reconstruct_ssa
from numba.cpython.builtins import do_minmax
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

__all__ = [
    "CHECKS", "CPUDispatcher", "InlineCompiler", "KernelCompiler", "cache_on_disk", "compile_for_one_signature",
    "compile_without_collection", "disable_unrolling", "force_inline", "name_by_closure", "new_array",
    "on_compilation", "prefer_wide_vectors", "raise_index_error_if", "target",
]  # fmt: skip


def target():
    """(LLVM triple, CPU features) that Numba compiles for; NUMBA_CPU_NAME and NUMBA_CPU_FEATURES change them."""
    triple, _, features = cpu_target.target_context.codegen().magic_tuple()
    return triple, frozenset(features.split(","))


# -- dispatchers -------------------------------------------------------------------------------------------------------


def cache_on_disk(dispatcher, *more_key):
    """Cache what a dispatcher compiles, as `cache=True` does, under a key with more parts.

    Numba's key holds a pickle of the variables of a closure. The pickle of a jitted function differs from process to
    process, and the cache would never be hit. Our key holds its name, its bytecode and its variables instead.

    A file that cannot be read, such as one that a full disk has cut, is compiled anew and written again. A file that
    cannot be written is not cached. The first such file of a process gives a RuntimeWarning.
    """

    class Cache(FunctionCache):
        def _index_key(self, sig, codegen):
            code = self._py_func.__code__.co_code.hex()
            return (sig, codegen.magic_tuple(), code, _closure_key(self._py_func), *more_key)

        def _load_overload(self, sig, target_context):
            try:
                return super()._load_overload(sig, target_context)
            except Exception as error:  # whatever pickle raises for the bytes of a damaged file
                _warn_of_cache(self, "cannot be read and is compiled again", error)
            try:
                self._cache_file._load_index()
            except Exception:
                with contextlib.suppress(OSError):
                    self._cache_file.flush()
            return None

        def _save_overload(self, sig, data):
            try:
                super()._save_overload(sig, data)
            except OSError as error:
                _warn_of_cache(self, "cannot be written and is compiled again in each process", error)

    dispatcher._cache = Cache(dispatcher.py_func)


_warned_of_cache = threading.Event()


def _warn_of_cache(cache, what, error):
    """Warn once in a process about a file of the cache."""
    if not _warned_of_cache.is_set():
        _warned_of_cache.set()
        name = f"{cache._py_func.__module__}.{cache._py_func.__qualname__}"
        warnings.warn(
            f"floatsim: the compiled kernel {name} in {cache.cache_path} {what} ({type(error).__name__}: {error}). "
            "Further files are handled without a warning.",
            RuntimeWarning,
            stacklevel=2,
        )


def name_by_closure(function):
    """Give a function with a closure a qualified name that depends on the closure's variables.

    The symbol of a compiled function has this name and a number, which counts the functions of a process. Functions in
    the cache were compiled by other processes. Two of one name can have one symbol, and then LLVM runs one for both.
    """
    if function.__closure__:
        digest = hashlib.sha256(repr(_closure_key(function)).encode()).hexdigest()
        function.__qualname__ += f"_{digest[:16]}"


def _closure_key(function):
    """The variables of a function's closure: hashes, and for jitted functions the name, bytecode and variables."""
    key = []
    for cell in function.__closure__ or ():
        value = cell.cell_contents
        jitted = getattr(value, "py_func", None)
        if jitted is None:
            key.append(hashlib.sha256(dumps(value)).hexdigest())
        else:
            key.append((jitted.__module__, jitted.__qualname__, jitted.__code__.co_code.hex(), _closure_key(jitted)))
    return tuple(key)


def compile_for_one_signature(dispatcher, signature):
    """Make the first call of a dispatcher compile it for this signature, whatever the arguments, and then no more."""
    lock = threading.Lock()

    def compile_for_args(*args, **kws):
        with lock:
            if not dispatcher.signatures:
                dispatcher.compile(signature)
                dispatcher.disable_compile()
        return dispatcher  # Numba calls what this returns

    dispatcher._compile_for_args = compile_for_args


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


def on_compilation(start, end):
    """Call start(function) before Numba compiles a Python function, and end() after that. Compilations are nested."""

    class Listener(event.Listener):
        def on_start(self, event):
            start(event.data["dispatcher"].py_func)

        def on_end(self, event):
            end()

    event.register("numba:compile", Listener())


def _assignments(state, kind):
    """The assignments of a function whose value is of one kind."""
    for block in state.func_ir.blocks.values():
        yield from (each for each in block.find_insts(numba_ir.Assign) if isinstance(each.value, kind))


@register_pass(mutates_CFG=False, analysis_only=False)
class _ConstantArguments(FunctionPass):
    """Replaces arguments of literal types by constants."""

    _name = "floatsim_constant_arguments"

    def __init__(self):
        super().__init__()

    def run_pass(self, state):
        changed = False
        for statement in _assignments(state, numba_ir.Arg):
            kind = state.args[statement.value.index]
            if isinstance(kind, types.IntegerLiteral | types.BooleanLiteral):
                constant = numba_ir.Const(kind.literal_value, statement.loc)
                definitions = state.func_ir._definitions[statement.target.name]
                definitions[definitions.index(statement.value)] = statement.value = constant
                changed = True
        if changed:
            state.func_ir._consts = ConstantInference(state.func_ir)
        return changed


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
        for statement in _assignments(state, numba_ir.Global):
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


class KernelCompiler(CompilerBase):
    """Numba's compiler of nopython functions, without the passes for what our kernels do not contain."""

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

    def library(self):
        """A library for the code of the function."""
        library = _Library(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        library.enable_object_caching()
        return library

    def passes(self):
        """Numba's passes that remain."""
        self.state.library = self.library()
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        used = [each for each in passes.passes if each[0] not in self.UNUSED]
        passes.passes = [(self.REPLACED.get(each, each), description) for each, description in used]
        passes.add_pass_after(_MinMax, untyped_passes.IRProcessing)
        return passes

    def define_pipelines(self):
        """The one list of passes, as Numba asks for it."""
        passes = self.passes()
        passes.finalize()
        return [passes]


class InlineCompiler(KernelCompiler):
    """The compiler of functions that run only inside kernels.

    Branches that depend on arguments that are constants of the callers are removed before types are inferred. Numba
    removes them later, when it has compiled every function that they call. No machine code is made of the functions
    alone: the kernels take their LLVM IR, and optimize it with their own.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.state.targetctx.get_executable = _function_without_code

    def library(self):
        """A library for the LLVM IR of the function."""
        return _InlinedLibrary(self.state.targetctx.codegen(), self.state.func_id.func_qualname)

    def passes(self):
        """Numba's passes that remain, and the one for constant arguments."""
        passes = super().passes()
        passes.add_pass_after(_ConstantArguments, untyped_passes.IRProcessing)
        return passes


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


def force_inline(dispatcher):
    """Let a dispatcher be inlined into compiled callers; it can still be called from Python."""
    dispatcher.targetoptions["forceinline"] = True


# -- code generation ---------------------------------------------------------------------------------------------------


def prefer_wide_vectors(builder):
    """Let LLVM use vector registers of 512 bits in the function that is built; for Intel it prefers 256 bits.

    llvmlite accepts plain attribute names only, but prints every string in the set.
    """
    set.add(builder.function.attributes, '"prefer-vector-width"="512"')


def disable_unrolling(builder, branch, block):
    """Mark the branch that ends a loop's last block, so that LLVM does not unroll the loop, which begins at `block`.

    The metadata of a loop begin with themselves (LLVM Language Reference, "llvm.loop").
    """
    setting = builder.module.add_metadata(["llvm.loop.unroll.disable"])
    loop = builder.module.add_metadata([f"{builder.function.name} {block.name}", setting])
    loop.operands = (loop, setting)
    branch.set_metadata("llvm.loop", loop)


def raise_index_error_if(context, builder, condition, message):
    """Emit: raise IndexError(message) from the kernel where an LLVM i1 is set."""
    with builder.if_then(condition, likely=False):
        context.call_conv.return_user_exc(builder, IndexError, (message,))


def new_array(context, builder, kind, shape):
    """Emit: a new array of zeros, of a C-contiguous type and a shape of LLVM integers; MemoryError if there is no room.

    `np.zeros` is a function that Numba compiles for each type, which takes a tenth of a second.
    """
    item, word = context.get_abi_sizeof(context.get_data_type(kind.dtype)), context.get_value_type(types.intp)
    strides = [ir.Constant(word, item)]
    for size in reversed(shape):
        strides.insert(0, builder.mul(strides[0], size))
    size = strides.pop(0)
    holder = context.nrt.meminfo_alloc_aligned(builder, size, align=64)
    data = context.nrt.meminfo_data(builder, holder)
    cgutils.memset(builder, data, size, 0)
    array = make_array(kind)(context, builder)
    pointer = builder.bitcast(data, context.get_data_type(kind.dtype).as_pointer())
    populate_array(array, data=pointer, shape=shape, strides=strides, itemsize=ir.Constant(word, item), meminfo=holder)
    return array._getvalue()


# -- checks ------------------------------------------------------------------------------------------------------------


def _dispatcher_has(name):
    def check():
        return hasattr(numba.njit(lambda x: x), name)

    return check


def _attributes_are_a_set():
    function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), []), "f")
    set.add(function.attributes, '"a"="b"')
    return '"a"="b"' in str(function)


def _metadata_have_operands():
    return hasattr(ir.Module().add_metadata(["x"]), "operands")


def _flags_are_equal_to_numbas():
    flags = Flags()
    flags.nrt = True
    ours = _Flags(flags)
    return ours == flags and flags == ours and hash(ours) == hash(flags) and ours != Flags()


def _constant_arguments_remove_branches():
    def f(kind, x):
        return x + 1 if kind == 0 else x.missing

    pruned = numba.njit(pipeline_class=InlineCompiler)(f)
    return numba.njit(lambda x: pruned(0, x))(1) == 2


def _arrays_are_new():
    @intrinsic
    def zeros(typing_context, rows, columns):
        kind = types.Array(types.float32, 2, "C")
        return kind(types.intp, types.intp), lambda context, builder, _, args: new_array(context, builder, kind, args)

    made = numba.njit(lambda n, m: zeros(n, m))(2, 3)
    return made.shape == (2, 3) and made.dtype == np.float32 and made.flags.c_contiguous and not made.any()


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
    "Dispatcher._cache": _dispatcher_has("_cache"),
    "Dispatcher._compile_for_args": _dispatcher_has("_compile_for_args"),
    "Dispatcher.targetoptions": _dispatcher_has("targetoptions"),
    "Dispatcher.disable_compile": _dispatcher_has("disable_compile"),
    "CompilerBase, FunctionPass and the IR": _constant_arguments_remove_branches,
    "Flags": _flags_are_equal_to_numbas,
    "resolve_function_type and Function.typing_key": _operators_are_remembered,
    "make_array, populate_array and context.nrt": _arrays_are_new,
    "NRTContext": _overrides(_References),
    "Lower": _overrides(_Lower),
    "JITCodeLibrary": _overrides(_Library),
    "data models": _reads_of_memory_are_counted,
    "do_minmax": _two_numbers_have_a_least_and_a_largest,
    "FunctionCache._index_key, _load_overload and _save_overload": lambda: all(
        hasattr(FunctionCache, name) for name in ("_index_key", "_load_overload", "_save_overload")
    ),
    "IndexDataCacheFile._load_index": lambda: hasattr(IndexDataCacheFile, "_load_index"),
    "codegen().magic_tuple()": lambda: len(cpu_target.target_context.codegen().magic_tuple()) == 3,
    "call_conv.return_user_exc": lambda: hasattr(cpu_target.target_context.call_conv, "return_user_exc"),
    "llvmlite.ir.Function.attributes": _attributes_are_a_set,
    "llvmlite.ir.MDValue.operands": _metadata_have_operands,
}
"""The name of each private part, and a function that returns whether it is there."""

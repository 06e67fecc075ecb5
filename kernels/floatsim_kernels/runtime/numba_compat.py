"""The private parts of Numba and llvmlite without which the kernels do not run.

A new version may rename them. `CHECKS` names each one with a check that it is still there; a test runs them all.
`compile_faster.py` has those that only save time.
"""

import contextlib
import hashlib
import threading
import warnings

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, event, types, untyped_passes
from numba.core import ir as numba_ir
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.consts import ConstantInference
from numba.core.registry import CPUDispatcher, cpu_target
from numba.core.serialize import dumps
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

__all__ = [
    "CHECKS", "COMPILERS", "CPUDispatcher", "InlineCompiler", "KernelCompiler", "cache_on_disk",
    "compile_for_one_signature", "disable_unrolling", "force_inline", "name_by_closure", "new_array", "on_compilation",
    "prefer_wide_vectors", "raise_index_error_if", "target",
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


def on_compilation(start, end):
    """Call start(function) before Numba compiles a Python function, and end() after that. Compilations are nested."""

    class Listener(event.Listener):
        def on_start(self, event):
            start(event.data["dispatcher"].py_func)

        def on_end(self, event):
            end()

    event.register("numba:compile", Listener())


@register_pass(mutates_CFG=False, analysis_only=False)
class _ConstantArguments(FunctionPass):
    """Replaces arguments of literal types by constants."""

    _name = "floatsim_constant_arguments"

    def __init__(self):
        super().__init__()

    def run_pass(self, state):
        changed = False
        for block in state.func_ir.blocks.values():
            for statement in block.find_insts(numba_ir.Assign):
                changed |= self._replace(state, statement)
        if changed:
            state.func_ir._consts = ConstantInference(state.func_ir)
        return changed

    def _replace(self, state, statement):
        if not isinstance(statement.value, numba_ir.Arg):
            return False
        kind = state.args[statement.value.index]
        if not isinstance(kind, types.IntegerLiteral | types.BooleanLiteral):
            return False
        constant = numba_ir.Const(kind.literal_value, statement.loc)
        definitions = state.func_ir._definitions[statement.target.name]
        definitions[definitions.index(statement.value)] = statement.value = constant
        return True


class KernelCompiler(CompilerBase):
    """Numba's compiler of nopython functions."""

    def passes(self):
        """The passes in their order."""
        return DefaultPassBuilder.define_nopython_pipeline(self.state)

    def define_pipelines(self):
        """The one list of passes, as Numba asks for it."""
        passes = self.passes()
        passes.finalize()
        return [passes]


class InlineCompiler(KernelCompiler):
    """The compiler of functions that run only inside kernels.

    Branches that depend on arguments that are constants of the callers are removed before types are inferred. Numba
    removes them later, when it has compiled every function that they call, and some of them have no types there.
    """

    def passes(self):
        """Numba's passes, and the one for constant arguments."""
        passes = super().passes()
        passes.add_pass_after(_ConstantArguments, untyped_passes.IRProcessing)
        return passes


COMPILERS = KernelCompiler, InlineCompiler
"""Those of kernels and of the functions that run only inside them."""


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


CHECKS = {
    "Dispatcher._cache": _dispatcher_has("_cache"),
    "Dispatcher._compile_for_args": _dispatcher_has("_compile_for_args"),
    "Dispatcher.targetoptions": _dispatcher_has("targetoptions"),
    "Dispatcher.disable_compile": _dispatcher_has("disable_compile"),
    "CompilerBase, FunctionPass and the IR": _constant_arguments_remove_branches,
    "make_array, populate_array and context.nrt": _arrays_are_new,
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

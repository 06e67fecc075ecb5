"""The sums of the library kernels of an NVIDIA H200, as descriptions that follow from a kernel's name and its grid.

`RULES` is the table: a pattern of names, the order of the sum, and what was compared with it. A library chooses a
kernel by shape, layout, alignment, workspace and version. That choice is not described here: a profiler shows the name.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from floatsim.accumulation.base import Accumulation
from floatsim.accumulation.composites import Blocked, SplitK, Strided
from floatsim.accumulation.gpu_kernels import Converted, Epilogue, Residue
from floatsim.accumulation.leaves import Sequential
from floatsim.accumulation.library_rules import NotDescribedError, Region, Regions
from floatsim.accumulation.permuted import Permuted
from floatsim.accumulation.tensor_core import TensorCore
from floatsim.formats import FP16, FP32, FP64, as_format

__all__ = [
    "DEVICES", "FUNCTIONS", "RULES", "KernelCall", "KernelDescription", "KernelRule", "describe_kernel", "is_auxiliary",
    "kernel_sum", "kernel_table", "known_device", "release",
]  # fmt: skip

DEVICES = {"h200": "NVIDIA H200 (sm_90)"}
"""The devices whose kernels were recorded, by name."""

_VERSIONS = "torch 2.11.0, CUDA 13.0, cuBLAS 13.1.0.3, cuDNN 9.19, CuPy 14.2.0"

HALVES, FLOATS = ("float16", "bfloat16"), ("float32",)
_BYTES = ("float8_e4m3fn", "float8_e5m2")
_BITS = {"float16": 16, "bfloat16": 16, "float32": 32, "float64": 64, "float8_e4m3fn": 8, "float8_e5m2": 8}
_FP32 = Sequential(FP32)


@dataclass(frozen=True)
class KernelCall:
    """A product on a GPU: its kernels in order, the one that multiplies, the dtype, and the shapes.

    `batch` counts the matrices of a batched product. `channels`, `rows` and `columns` are those of a convolution's
    filters, and K is their product; 0 for other products. `rotated`: the terms have the order of the rotated filter, as
    in the gradient of the input (`operators.conv2d_backward`).
    """

    kernels: tuple[str, ...]
    name: str
    dtype: str
    m: int
    n: int
    k: int
    grid: tuple[int, int, int] | None = None
    batch: int = 1
    channels: int = 0
    rows: int = 0
    columns: int = 0
    rotated: bool = False

    @property
    def reduction(self) -> str | None:
        """The splitKreduce_kernel of the call, which adds partial sums, or None."""
        return next((name for name in self.kernels if "splitKreduce_kernel" in name), None)

    @property
    def clears(self) -> bool:
        """Return whether a Memset belongs to the call: the kernel then adds its parts itself."""
        return any(name.startswith("Memset") for name in self.kernels)

    @property
    def partials(self) -> Accumulation:
        """The sum of the parts: in order in FP32, of partial sums in FP32 or in 16 bits."""
        found = _STORED.search(self.reduction or "")
        return Converted(_TYPES[found[1]], _FP32) if found and found[1] in _TYPES else _FP32

    @property
    def stores(self) -> str | None:
        """The 16-bit format of the partial sums, or None."""
        return self.partials.format.name if isinstance(self.partials, Converted) else None

    def blocks(self) -> tuple[int, int, int]:
        """Return the grid, or raise if it was not given."""
        if self.grid is None:
            raise NotDescribedError("the number of parts of K is in the grid of the kernel: pass grid=(x, y, z)")
        return self.grid

    def parts(self) -> int:
        """Return the number of parts of K of a kernel whose grid has them in z."""
        z = self.blocks()[2]
        if self.batch > 1:
            if z == 1 and "warpgroup" in self.name and "segment_k_off" in self.name:
                return 1  # a persistent kernel, whose blocks take the tiles of all matrices
            if z != self.batch or self.reduction is not None:
                raise NotDescribedError(f"grid z = {z} of a batch of {self.batch} matrices was not recorded")
            return 1
        return z


_STORED = re.compile(r"splitKreduce_kernel<\d+, \d+, int, (\w+),")
_TYPES = {"__half": "fp16", "__nv_bfloat16": "bf16"}

Build = Callable[["re.Match[str]", KernelCall], Accumulation]


@dataclass(frozen=True)
class KernelRule:
    """A row of the table. `pattern` is searched in the names of kernels; `build` makes the description of a call.

    `dtypes` are those of the operands. `order` is the sum in words. `refused` is the reason why such kernels are not
    described, if they are not. `examples` are recorded names.
    """

    name: str
    pattern: str
    dtypes: tuple[str, ...]
    order: str
    evidence: str
    examples: tuple[str, ...]
    build: Build | None = None
    needs: tuple[str, ...] = ()
    refused: str | None = None


# -- orders ------------------------------------------------------------------------------------------------------------

_HOPPER = TensorCore("hopper")
_UNITS = {
    "s161616": _HOPPER, "s16816": _HOPPER, "s1688": TensorCore("hopper", "mma.m16n8k8"),
    "h161616": TensorCore("hopper", output=FP16), "h16816": TensorCore("hopper", output=FP16),
}  # fmt: skip
_CHAINS: dict[str, Accumulation] = {
    "float32": Sequential(FP32, fused=True), "float64": Sequential(FP64, fused=True),
    "float16": Sequential(FP32, fused=True), "bfloat16": Sequential(FP32, fused=True),
}  # fmt: skip


def _up(n: int, step: int) -> int:
    return -(-n // step) * step


def _check_tiles(call: KernelCall, columns: int, rows: int) -> None:
    """Raise if the grid has fewer blocks than the result has tiles of a size."""
    x, y, _ = call.blocks()
    tiles = -(-call.m // rows) * -(-call.n // columns)
    if x * y < tiles:
        raise NotDescribedError(
            f"grid {call.grid} does not fit a result of {call.m} x {call.n}: it has {tiles} tiles of {rows} x {columns}"
        )


def _chain(match: re.Match[str], call: KernelCall) -> Accumulation:
    return _HOPPER


def _nvjet_parts(match: re.Match[str], call: KernelCall) -> Accumulation:
    """Parts of whole tiles. The grid has a block for each part of each tile of the result, rounded up to clusters."""
    x, y, z = call.blocks()
    columns = _up(-(-call.n // int(match["n"])), int(match["cn"]))
    rows = _up(-(-call.m // int(match["m"])), int(match["cm"]))
    parts, rest = divmod(x * y * z, rows * columns)
    if rest or not parts or call.batch > 1:
        raise NotDescribedError(
            f"grid {call.grid} does not fit a result of {call.m} x {call.n}: its {x * y * z} blocks are no multiple of "
            f"{rows * columns} tiles"
        )
    if call.reduction is None:
        raise NotDescribedError("a splitKreduce_kernel adds its parts: pass the names of all kernels of the call")
    if call.stores is not None:
        raise NotDescribedError(f"partial sums in {call.stores} of this kernel were not recorded")
    return SplitK(parts, _HOPPER, _FP32, int(match["k"]))


def _part_step(match: re.Match[str], call: KernelCall) -> int:
    """Return the multiple to which CUTLASS's GemmUniversal rounds the length of a part of K.

    That is 128 bytes if K is a multiple of them and an operand is contiguous along K, else 128 bits.
    """
    bits = _BITS[call.dtype]
    line = 1024 // bits
    return line if call.k % line == 0 and match["layout"] != "nt" else 128 // bits


def _cutlass_parts(match: re.Match[str], call: KernelCall, inner: Accumulation, outer: Accumulation) -> Accumulation:
    parts = call.parts()
    if parts == 1:
        return inner
    if call.reduction is None:
        raise NotDescribedError(
            f"grid z = {parts} without a splitKreduce_kernel: a serial split of K, whose order is not known (or a "
            "batch: pass the shape (batch, M, N, K); or pass the names of all kernels of the call)"
        )
    return SplitK(parts, inner, outer, _part_step(match, call))


def _cutlass_unit(match: re.Match[str], call: KernelCall) -> Accumulation:
    """Each part begins with its residue; TF32 operands are rounded, ties to even."""
    tile, fused = int(match["k"] or 32), match["unit"].startswith("h")
    _check_tiles(call, int(match["n"]), int(match["m"]))
    unit = _HOPPER if call.dtype == "float32" else _UNITS[match["unit"]]
    outer = Sequential(FP16) if fused else call.partials
    found = _cutlass_parts(match, call, Residue(unit, tile), outer)
    return Converted("tf32", found) if call.dtype == "float32" else found


def _cutlass_chain(match: re.Match[str], call: KernelCall) -> Accumulation:
    """In a chain of fused multiply-adds the residue changes nothing."""
    _check_tiles(call, int(match["n"]), int(match["m"]))
    chain = _CHAINS[call.dtype]
    return _cutlass_parts(match, call, chain, Sequential(chain.result_format))


_SLOTS = 132
"""The multiprocessors of an H200. Kernels that add their parts themselves were compared up to so many tiles of K."""


def _xmma(match: re.Match[str], call: KernelCall) -> Accumulation:
    """Tiles of K are dealt to the parts. A kernel that adds its parts itself is described if each part has one tile."""
    if not ("warpgroup" in call.name and call.blocks() == (_SLOTS, 1, 1)):  # a persistent kernel has no block a tile
        _check_tiles(call, int(match["n"]), int(match["m"]))
    tile, parts = int(match["k"]), call.parts()
    if "segment_k_on" in call.name:
        raise NotDescribedError("segment_k_on splits K in an order that is fixed but not known")
    whole = parts == 1 and "segment_k_off" in call.name  # the Memset is for the order of the tiles of the result
    if call.clears and not whole and not (parts > 1 and -(-call.k // tile) <= min(parts, _SLOTS)):
        raise NotDescribedError(
            "after a Memset the kernel adds its parts itself, in an order that is fixed but not known (it is known if "
            f"each part has one tile of K, up to {_SLOTS} tiles, and with segment_k_off and z = 1, which has no parts)"
        )
    if parts > 1 and not (call.clears or any("execute_split_k_kernel" in name for name in call.kernels)):
        raise NotDescribedError(
            f"grid z = {parts}: an execute_split_k_kernel adds the parts, or after a Memset the kernel itself: pass "
            "the names of all kernels of the call"
        )
    chain = _HOPPER if match["type"] == "tf32f32" else _CHAINS[call.dtype]
    outer = Sequential(FP64 if call.dtype == "float64" else FP32)
    found = chain if parts == 1 else SplitK(parts, chain, outer, tile, "dealt")
    return Converted("tf32", found) if match["type"] == "tf32f32" else found


def _sn_parts(match: re.Match[str], call: KernelCall) -> Accumulation:
    chain = _CHAINS[call.dtype]
    return SplitK(int(match["s"]), chain, Sequential(chain.result_format))


def _sn_lanes(match: re.Match[str], call: KernelCall) -> Accumulation:
    return Strided(_CHAINS[call.dtype], int(match["s"]), _FP32)


def _promoted(match: re.Match[str], call: KernelCall) -> Accumulation:
    return Blocked(_HOPPER, 128, _FP32)


# -- convolutions ------------------------------------------------------------------------------------------------------


def _ordered(call: KernelCall, channels: int, ascending: bool, inner: Accumulation) -> Accumulation:
    """Blocks of channels, and the rows and columns of the filter, which ascend or descend."""
    if call.rows * call.columns == 1:
        return inner
    ending = "" if ascending is not call.rotated else "-descending"
    return Permuted(f"conv-{call.rows}x{call.columns}x{channels}{ending}", inner)


def _channel_blocks(match: re.Match[str], call: KernelCall, ascending: bool) -> Accumulation:
    """Blocks of as many channels as the tile of the kernel has terms, or all channels if they are fewer."""
    if "segment_k_on" in call.name:
        raise NotDescribedError("segment_k_on splits K in an order that is fixed but not known")
    block = min(int(match["k"]), call.channels)
    if call.channels % block or block % 16:
        raise NotDescribedError(f"{call.channels} channels in tiles of {match['k']}: only whole tiles were recorded")
    found = _ordered(call, block, ascending, _HOPPER)
    return Converted("tf32", found) if call.dtype == "float32" else found


def _forward(match: re.Match[str], call: KernelCall) -> Accumulation:
    return _channel_blocks(match, call, True)


def _input_gradient(match: re.Match[str], call: KernelCall) -> Accumulation:
    return _channel_blocks(match, call, False)


def _planes(match: re.Match[str], call: KernelCall) -> Accumulation:
    if call.blocks()[2] != 1:
        raise NotDescribedError(f"grid z = {call.blocks()[2]} of this kernel was not recorded")
    return _ordered(call, 1, True, _CHAINS[call.dtype]) if call.rotated else _CHAINS[call.dtype]


def _pixels(match: re.Match[str], call: KernelCall) -> Accumulation:
    return _ordered(call, call.channels, True, _CHAINS[call.dtype])


# -- the table ---------------------------------------------------------------------------------------------------------

_SHAPE, _GRID, _ALL = "the shape", "the grid", "the names of all kernels of the call"
_NVJET = (
    r"nvjet_sm90_{types}_(?P<n>\d+)x(?P<m>\d+)_(?P<k>\d+)x\d+_(?P<cn>\d)x(?P<cm>\d)_(?:\dcta_)?[hv]_b(?:z|add|x)_{rest}"
)
_TILE = r"(?P<n>\d+)x(?P<m>\d+)_(?P<k>\d+)x\d+_(?P<layout>[nt]{2})_align\d+"

RULES = (
    KernelRule(
        "nvjet", _NVJET.format(types="(?P<type>[ht]s[hts])", rest="(?!.*splitK)"), HALVES,
        "one chain of wgmma over all of K; also a product with a vector, and batches",
        "773 of 773 products", ("nvjet_sm90_hsh_64x8_64x16_2x4_h_bz_NNT", "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_TNT"),
        _chain,
    ),
    KernelRule(
        "nvjet split-K", _NVJET.format(types="(?P<type>[ht]s[hts])", rest=".*splitK"), HALVES,
        "s parts of whole tiles, one chain of wgmma each, added in order in FP32. s = blocks of the grid / tiles of "
        "the result, which are rounded up to the cluster",
        "111 of 111 products", ("nvjet_sm90_tst_64x32_64x16_2x4_h_bz_splitK_NNT",), _nvjet_parts, (_SHAPE, _GRID, _ALL),
    ),
    KernelRule(
        "CUTLASS, tensor cores",
        r"cutlass_(?:75|80)_(?:wmma_)?tensorop_(?:(?:f16|bf16)_)?(?P<unit>s161616|s16816|s1688)gemm_"
        r"(?P<type>f16|bf16)_" + _TILE, HALVES,
        "the residue of K first, then tiles, on one accumulator; with grid z = s > 1 and a splitKreduce_kernel, s "
        "parts that begin with their own residue, added in order in FP32. Its fourth template argument is the format "
        "in which the parts are stored",
        "all 16-bit products; with those of TF32 755 of 755",
        ("cutlass_80_wmma_tensorop_f16_s161616gemm_f16_32x32_128x2_nn_align2",
         "cutlass_80_tensorop_bf16_s16816gemm_bf16_128x64_64x3_nn_align2"),
        _cutlass_unit, (_SHAPE, _GRID, _ALL),
    ),
    KernelRule(
        "CUTLASS, tensor cores, one stage",
        r"cutlass_75_(?:wmma_)?tensorop_(?:(?:f16|bf16)_)?(?P<unit>s1688)gemm_(?P<type>f16|bf16)_(?P<n>\d+)x(?P<m>\d+)"
        r"(?P<k>)_(?P<layout>[nt]{2})_align\d+", HALVES,
        "as CUTLASS with tensor cores; the tile of K, which the name does not have, is 32",
        "all 73 products of 16 bits", ("cutlass_75_tensorop_s1688gemm_bf16_64x64_nn_align1",), _cutlass_unit,
        (_SHAPE, _GRID, _ALL),
    ),
    KernelRule(
        "CUTLASS, TF32", r"cutlass_80_tensorop_(?P<unit>s1688)gemm_" + _TILE, FLOATS,
        "operands rounded to TF32, ties to even; then as CUTLASS with tensor cores",
        "497 of 497 products", ("cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4",), _cutlass_unit,
        (_SHAPE, _GRID, _ALL),
    ),
    KernelRule(
        "CUTLASS, FP16 accumulator",
        r"cutlass_80_(?:wmma_)?tensorop_(?P<unit>h161616|h16816)gemm_(?:f16_)?" + _TILE, ("float16",),
        "as CUTLASS with tensor cores, with the unit's FP16 accumulator; parts are FP16, each addition rounded to FP16",
        "35 of 35 products", ("cutlass_80_tensorop_h16816gemm_64x64_64x6_nn_align8",), _cutlass_unit,
        (_SHAPE, _GRID, _ALL),
    ),
    KernelRule(
        "CUTLASS, FP32", r"cutlass_80_simt_sgemm_" + _TILE, FLOATS,
        "one chain of fused multiply-adds; with grid z = s > 1, s parts added in order in FP32",
        "320 of 320 products", ("cutlass_80_simt_sgemm_64x64_8x5_nn_align1",), _cutlass_chain, (_SHAPE, _GRID, _ALL),
    ),
    KernelRule(
        "CUTLASS, FP64", r"cutlass_80_tensorop_d884gemm_" + _TILE, ("float64",),
        "one chain of fused multiply-adds in FP64; with grid z = s > 1, s parts added in order in FP64",
        "119 of 119 products", ("cutlass_80_tensorop_d884gemm_32x32_16x5_nn_align1",), _cutlass_chain,
        (_SHAPE, _GRID, _ALL),
    ),
    KernelRule(
        "xmma",
        r"sm(?:80|90)_xmma_gemm_(?:f32f32_(?P<type>f32f32|tf32f32)_f32|f64f64_f64f64_f64)_[nt]{2}_n_tilesize"
        r"(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)_", (*FLOATS, "float64"),
        "one chain of fused multiply-adds, or of TF32 instructions on operands rounded ties to even; with grid z = s "
        "> 1 and an execute_split_k_kernel, tile t of K belongs to part t % s, and the parts are added in order. After "
        "a Memset the kernel adds its parts itself: described if each part has one tile, and with segment_k_off",
        "524 of 524 products, 9 more refused",
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel"
         "__5x_cublas",
         "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x128x32_warpgroupsize1x1x1"),
        _xmma, (_SHAPE, _GRID, _ALL),
    ),
    KernelRule(
        "gemmSN, parts", r"gemmSN_NN_kernel<(?P<type>float|double), \d+, (?P<s>\d+), ", (*HALVES, *FLOATS, "float64"),
        "s parts of ceil(K / s) terms, chains of fused multiply-adds, added in order",
        "30 of 30 products", ("void gemmSN_NN_kernel<float, 128, 2, 4, 8, 4, 4, false, ",), _sn_parts, (_SHAPE,),
    ),
    KernelRule(
        "gemmSN, lanes", r"gemmSN_TN_kernel<float, 128, (?P<s>16), 2, 4, 8, 9, ", FLOATS,
        "lane l sums the terms l, l + 16, ...; the lanes are added in order",
        "4 of 4 products", ("void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, false, ",), _sn_lanes,
    ),
    KernelRule(
        "nvjet, FP8", r"nvjet_sm90_q\w+?_\d+x\d+_128x\d+_\dx\d_(?:\dcta_)?[hv]_bz_(?!.*(?:algo2|splitK))", _BYTES,
        "one chain of wgmma over all of K (use_fast_accum=True)", "168 of 168 products",
        ("nvjet_sm90_qqsss_64x48_128x15_2x4_h_bz_TNT",), _chain,
    ),
    KernelRule(
        "nvjet, FP8, split-K", _NVJET.format(types=r"q\w+?", rest="(?!.*algo2).*splitK"), _BYTES,
        "as nvjet split-K (use_fast_accum=True)", "12 of 12 products",
        ("nvjet_sm90_qqsss_64x32_128x16_1x2_h_bz_splitK_TNT",), _nvjet_parts, (_SHAPE, _GRID, _ALL),
    ),
    KernelRule(
        "nvjet, FP8, promoted", r"nvjet_sm90_q\w+_algo2_", _BYTES,
        "blocks of 128 terms, chains of wgmma from zero, added in order in FP32 (use_fast_accum=False). Also with "
        "splitK in the name, for which the reason is not known",
        "180 of 180 products, 12 of them with splitK in the name",
        ("nvjet_sm90_qqsss_64x48_128x15_2x4_h_bz_algo2_TNT",), _promoted,
    ),
    KernelRule(
        "convolution, CUTLASS",
        r"cutlass_tensorop_f16_s16816(?:fprop|dgrad)_optimized_\w+?_\d+x\d+_(?P<k>\d+)x\d+_nhwc", ("float16",),
        "blocks of as many channels as the tile has; in a block the rows and columns of the filter ascend, and each "
        "place has the channels; one chain", "4 of 4 passes",
        ("cutlass_tensorop_f16_s16816fprop_optimized_f16_64x64_64x5_nhwc_align8",), _forward, (_SHAPE,),
    ),
    KernelRule(
        "convolution, forward",
        r"sm90_xmma_fprop_implicit_gemm_(?P<type>f16f16|f32f32_tf32f32)_\w*?_tilesize\d+x\d+x(?P<k>\d+)",
        ("float16", *FLOATS),
        "as the convolution of CUTLASS; TF32 operands are rounded, ties to even", "4 of 4 passes",
        ("sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize64x64x64_warpgroupsize1x1x1_g1_execute_"
         "segment_k_off_kernel__5x_cudnn",), _forward, (_SHAPE,),
    ),
    KernelRule(
        "convolution, gradient of the input",
        r"sm90_xmma_dgrad_implicit_gemm_(?P<type>f16f16|f32f32_tf32f32)_\w*?_tilesize\d+x\d+x(?P<k>\d+)",
        ("float16", *FLOATS),
        "as forward, with descending rows and columns of the filter", "3 of 3 passes",
        ("sm90_xmma_dgrad_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize64x64x64_warpgroupsize1x1x1_g1_execute_"
         "segment_k_off_kernel__5x_cudnn",), _input_gradient, (_SHAPE,),
    ),
    KernelRule(
        "convolution, FP32, NCHW",
        r"sm80_xmma_(?:fprop|dgrad)_implicit_gemm_(?:indexed_)?f32f32_f32f32_f32_nchwkcrs_nchw_tilesize", FLOATS,
        "channels, rows, columns; one chain of fused multiply-adds", "11 of 11 passes",
        ("sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize32x32x8_stage3",), _planes,
        (_SHAPE, _GRID),
    ),
    KernelRule(
        "convolution, FP32, NHWC", r"convolve_common_engine_float_NHWC<float", FLOATS,
        "rows, columns, channels; one chain of fused multiply-adds", "3 of 3 passes",
        ("void convolve_common_engine_float_NHWC<float, float, 1024, 5, 5, 3, 3, 3, true",), _pixels, (_SHAPE,),
    ),
    KernelRule(
        "convolution, dgrad_engine", r"cudnn::detail::dgrad_engine", FLOATS, "not described", "two calls differ", (),
        refused="it is not deterministic: two calls return different bits, as atomic additions do; channels-last "
        "tensors run another kernel",
    ),
    KernelRule(
        "convolution, winograd", r"winograd", (*HALVES, *FLOATS), "not described", "recorded, order not found", (),
        refused="winograd transforms its operands, whose roundings are not known",
    ),
    KernelRule(
        "gemvx", r"internal::gemvx::kernel|gemv2[TN]_kernel|gemvNSP_kernel", (*FLOATS, "float64"), "not described",
        "recorded, order not found", (), refused="the order of its sum is not known",
    ),
    KernelRule(
        "other vector kernels", r"sgemm_largek|dot_kernel|gemmk1_kernel|gemmSN_TN_kernel|scal_kernel|reduce_1Block",
        (*FLOATS, "float64"), "not described", "recorded, order not found", (),
        refused="the order of its sum is not known",
    ),
)  # fmt: skip
"""The rules, in the order in which they are tried. Evidence: one H200, products of inputs whose exact result is 0."""


def _nearest(name: str) -> str:
    """Return the recorded name that is most similar to a name."""
    known = [example for rule in RULES if rule.build is not None for example in rule.examples]
    return max(known, key=lambda each: difflib.SequenceMatcher(None, name, each).ratio())


def _known_rule(name: str) -> KernelRule | None:
    """Return the rule of a name, or None if no rule knows it."""
    return next((rule for rule in RULES if re.search(rule.pattern, name)), None)


def _rule(name: str) -> tuple[KernelRule, re.Match[str]]:
    for rule in RULES:
        if found := re.search(rule.pattern, name):
            return rule, found
    raise NotDescribedError(
        f"kernel {name!r} is not described: no rule knows it; the nearest recorded kernel is {_nearest(name)!r}"
    )


# -- descriptions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KernelDescription:
    """What is known about a kernel: the rule of its name, the order of its sum, and the evidence.

    `needs` is what a description needs besides the name. `refused` is the reason if the kernel is not described.
    """

    kernel: str
    rule: str
    dtypes: tuple[str, ...]
    order: str
    needs: tuple[str, ...]
    evidence: str
    refused: str | None = None

    @property
    def described(self) -> bool:
        """Whether `fs.library_sum` has a description of the kernel's sums."""
        return self.refused is None

    def __str__(self) -> str:
        lines = [f"{self.kernel}", f"rule      {self.rule}", f"operands  {', '.join(self.dtypes)}"]
        if self.refused is None:
            lines.append(f"sum       {self.order}")
            lines.append(f"needs     {', '.join(self.needs) or 'nothing else'}")
            lines.append(f"evidence  {self.evidence} equal on one H200 ({_VERSIONS})")
        else:
            lines.append(f"refused   {self.refused}")
        return "\n".join(lines)


def describe_kernel(name: str) -> KernelDescription:
    """Return what is known about a library's kernel on a GPU, from its name.

    Parameters
    ----------
    name : str
        The name of a kernel of cuBLAS or cuDNN, as torch.profiler, Nsight Systems or CuPy's profiler show it.

    Returns
    -------
    KernelDescription
        It prints as text. `fs.library_sum` returns the description of a call.

    Raises
    ------
    NotDescribedError
        If no rule knows the name. The message has the nearest recorded kernel.

    Examples
    --------
    >>> import floatsim as fs
    >>> print(fs.hardware.describe_kernel("nvjet_sm90_tst_64x8_64x16_2x4_h_bz_NNT").order)
    one chain of wgmma over all of K; also a product with a vector, and batches
    >>> fs.hardware.describe_kernel("void cudnn::detail::dgrad_engine<float>").described
    False
    """
    rule, _ = _rule(name)
    return KernelDescription(name, rule.name, rule.dtypes, rule.order, rule.needs, rule.evidence, rule.refused)


@dataclass(frozen=True)
class _Function:
    """A function of a library: the versions, the sizes of its shape, and how c enters ("", "bias" or "matrix").

    `rotated`: the terms of a convolution have the order of the rotated filter. `refused` is the reason why the function
    is not described.
    """

    versions: tuple[str, ...]
    sizes: str = "(M, N, K) or (batch, M, N, K)"
    c: str = ""
    activation: str | None = None
    refused: str | None = None
    rotated: bool = False


_CONVOLUTION = "(M, N, channels, rows, columns)"
FUNCTIONS = {
    "torch.matmul": _Function(("2.11.0",)),
    "torch.bmm": _Function(("2.11.0",)),
    "cupy.matmul": _Function(("14.2.0",)),
    "torch._scaled_mm": _Function(("2.11.0",)),
    "torch.nn.functional.linear": _Function(("2.11.0",), c="bias"),
    "torch.addmm": _Function(("2.11.0",), c="matrix"),
    "torch.baddbmm": _Function(("2.11.0",), c="matrix"),
    "torch._addmm_activation": _Function(("2.11.0",), c="bias", activation="relu"),
    "torch._addmm_activation(use_gelu=True)": _Function(
        ("2.11.0",), c="bias", refused="GELU needs the bits of CUDA's own erff, which floatsim does not have yet"
    ),
    "torch.nn.functional.conv2d": _Function(("2.11.0",), _CONVOLUTION),
    "torch.nn.grad.conv2d_input": _Function(("2.11.0",), _CONVOLUTION, rotated=True),
    "torch.nn.grad.conv2d_weight": _Function(
        ("2.11.0",), _CONVOLUTION, refused="the orders of gradients of weights are not known"
    ),
}
"""The functions of libraries on GPUs that `fs.library_sum` takes."""


def known_device(device: str) -> str:
    """Return the name of a device in `DEVICES`.

    >>> known_device("NVIDIA H200")
    'h200'
    """
    if not isinstance(device, str):
        raise TypeError(f"device must be a text, such as 'h200', not {device!r}")
    name = device.strip().lower().removeprefix("nvidia ")
    if name not in DEVICES:
        raise NotDescribedError(f"device={device!r} is not described; described: {', '.join(DEVICES)}")
    return name


def release(version: str | None) -> str | None:
    """Return the version of a library without the part that names a build.

    >>> release("2.11.0+cu130"), release(None)
    ('2.11.0', None)
    """
    if version is None:
        return None
    if not isinstance(version, str):
        raise TypeError(f"version must be a text, such as '2.11.0', not {version!r}")
    return version.partition("+")[0]


def kernel_sum(
    function: str, dtype: str, sizes: tuple[int, ...], kernel: str | Sequence[str], grid: Sequence[int] | None,
    device: str, version: str | None, result: str | None,
) -> Regions:  # fmt: skip
    """Return how a call of a library on a GPU adds. `fs.library_sum` documents the arguments."""
    known_device(device)
    if function not in FUNCTIONS:
        near = difflib.get_close_matches(function, FUNCTIONS, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"described are {', '.join(FUNCTIONS)}"
        raise NotDescribedError(f"function={function!r} on device={device!r} is not described; {hint}")
    row = FUNCTIONS[function]
    if row.refused is not None:
        raise NotDescribedError(f"{function} on device={device!r} is not described: {row.refused}")
    if version is not None and release(version) not in row.versions:
        raise NotDescribedError(
            f"version={version!r} of {function} on device={device!r} is not described; described: "
            f"{', '.join(row.versions)}"
        )
    names = (kernel,) if isinstance(kernel, str) else tuple(kernel)
    call = _call(names, dtype, sizes, grid, row)
    rule, match = _rule(call.name)
    about = f"{call.name}, {function} of {dtype}, shape {sizes}"
    if rule.refused is not None or rule.build is None:
        raise NotDescribedError(
            f"{about} is not described: {rule.refused}; the nearest described kernel is {_nearest(call.name)!r}"
        )
    if dtype not in _dtypes_of(rule, match):
        raise NotDescribedError(f"{about}: the kernel multiplies {' or '.join(_dtypes_of(rule, match))}")
    if call.rotated and "dgrad" not in call.name and call.rows * call.columns != 1:
        raise NotDescribedError(f"{about}: a forward kernel that computes a gradient was not recorded")
    if bool(call.channels) != rule.name.startswith("convolution") and (call.rows * call.columns != 1):
        raise NotDescribedError(f"{about}: a shape {row.sizes} is not that of a kernel for {rule.name}")
    try:
        accumulate = rule.build(match, call)
    except NotDescribedError as error:
        raise NotDescribedError(f"{about} is not described: {error}") from None
    return (Region(slice(0, call.m), slice(0, call.n), _finished(accumulate, row, call), as_format(result or dtype)),)


def _call(
    names: tuple[str, ...], dtype: str, sizes: tuple[int, ...], grid: Sequence[int] | None, row: _Function
) -> KernelCall:
    if dtype not in _BITS:
        raise NotDescribedError(f"dtype={dtype!r} is not described; described: {', '.join(_BITS)}")
    size = None
    if grid is not None:
        x, y, z = (*map(int, grid), 1, 1)[:3] if 1 <= len(grid) <= 3 else (0, 0, 0)
        if min(x, y, z) < 1:
            raise ValueError(f"grid must be one to three numbers of at least 1, not {grid!r}")
        size = x, y, z
    products = [name for name in names if not is_auxiliary(name)]
    if len(products) != 1:
        for name in products:
            if (rule := _known_rule(name)) is not None and rule.refused is not None:
                raise NotDescribedError(f"{name} is not described: {rule.refused}")
        listed = ", ".join(products) or "none"
        raise NotDescribedError(f"kernel must have one kernel that multiplies; of the names given these are: {listed}")
    if row.sizes == _CONVOLUTION:
        if len(sizes) != 5:
            raise NotDescribedError(f"shape {sizes} is not {row.sizes}")
        m, n, channels, rows, columns = sizes
        k = channels * rows * columns
        return KernelCall(names, products[0], dtype, m, n, k, size, 1, channels, rows, columns, row.rotated)
    if len(sizes) not in (3, 4):
        raise NotDescribedError(f"shape {sizes} is not {row.sizes}")
    *batch, m, n, k = sizes
    return KernelCall(names, products[0], dtype, m, n, k, size, math.prod(batch))


_AUXILIARY = re.compile(
    r"^Mem(set|cpy)|splitKreduce_kernel|execute_split_k_kernel|elementwise_kernel|nchwToNhwc|nhwcToNchw|[pP]adding|convertTensor|"
    r"fill_kernel|FillFunctor|copy_kernel"
)
"""Names of kernels that belong to a call and multiply nothing."""


def is_auxiliary(name: str) -> bool:
    """Return whether a kernel belongs to a call and multiplies nothing, such as a Memset or a splitKreduce_kernel.

    >>> is_auxiliary("Memset (Device)"), is_auxiliary("nvjet_sm90_tst_64x8_64x16_2x4_h_bz_NNT")
    (True, False)
    """
    return _AUXILIARY.search(name) is not None


def _dtypes_of(rule: KernelRule, match: re.Match[str]) -> tuple[str, ...]:
    """Return the dtypes of the operands, as far as the name has them."""
    written = match.groupdict().get("type") or ""
    of_name = {
        "f16": ("float16",), "bf16": ("bfloat16",), "double": ("float64",), "f32f32": FLOATS, "tf32f32": FLOATS,
        "float": (*HALVES, *FLOATS), "f16f16": ("float16",), "f32f32_tf32f32": FLOATS,
    }  # fmt: skip
    if rule.name.startswith("nvjet") and written:
        return ("float16",) if written[0] == "h" else ("bfloat16",)
    if rule.name == "xmma" and not written:
        return ("float64",)
    return of_name.get(written, rule.dtypes)


def _finished(accumulate: Accumulation, row: _Function, call: KernelCall) -> Accumulation:
    """Return the description with its epilogue, of functions that add a bias or a matrix.

    nvjet's kernels with `_badd_` in their names round the sum to 16 bits before they add c, and so does a
    splitKreduce_kernel that reads parts of 16 bits. It computes fma(beta, c, alpha * sum), all others fma(alpha, sum,
    beta * c).
    """
    if not row.c:
        return accumulate
    fmt = FP64 if call.dtype == "float64" else FP32
    rounds = call.stores is not None or "_badd_" in call.name
    through = as_format(call.dtype) if rounds and _BITS[call.dtype] == 16 else None
    return Epilogue(accumulate, fmt, "c" if call.reduction else "sum", through, row.activation)


def kernel_table() -> str:
    """Return the rules as a table in Markdown.

    >>> print(kernel_table().splitlines()[0])
    | rule | dtypes | order of the sum | evidence |
    """
    lines = ["| rule | dtypes | order of the sum | evidence |", "| --- | --- | --- | --- |"]
    for rule in RULES:
        order = rule.order if rule.refused is None else f"refused: {rule.refused}"
        lines.append(f"| {rule.name} | {', '.join(rule.dtypes)} | {order} | {rule.evidence} |")
    return "\n".join(lines)

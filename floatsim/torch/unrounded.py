"""The ATen operations that round nothing, as explicit lists. They run in PyTorch itself.

Each element of a result is an element of an operand, a constant of the call, or no floating-point number. The views,
moves and selections are tested with PyTorch's own sample inputs in `tests/torch_emulation/test_unrounded.py`.
"""

from __future__ import annotations

__all__ = ["BOOKKEEPING", "COMPARISONS", "FACTORIES", "MOVES", "RANDOM", "SELECTIONS", "UNROUNDED", "VIEWS"]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


VIEWS = _names(
    "view _unsafe_view view_as _reshape_alias expand expand_as transpose t permute movedim moveaxis swapaxes "
    "swapdims squeeze unsqueeze select slice narrow split split_with_sizes unsafe_split unsafe_split_with_sizes "
    "chunk unsafe_chunk tensor_split unbind diagonal as_strided unfold unflatten detach alias lift lift_fresh "
    "view_as_real real imag adjoint numpy_T mT mH transpose_ t_ squeeze_ unsqueeze_ detach_ as_strided_ _conj"
)
"""Views: the result shares the storage of the operand."""

MOVES = _names(
    "clone copy copy_ _to_copy to convert_element_type reshape flatten ravel contiguous resolve_conj resolve_neg "
    "positive index index_select gather take take_along_dim masked_select where masked_fill masked_fill_ "
    "masked_scatter masked_scatter_ scatter scatter_ index_put index_copy index_fill index_fill_ cat concat stack "
    "hstack vstack dstack block_diag pad constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d "
    "replication_pad1d replication_pad2d replication_pad3d repeat repeat_interleave tile roll flip fliplr flipud "
    "rot90 tril triu tril_ triu_ diag diag_embed select_backward slice_backward diagonal_backward unfold_copy fill "
    "fill_ zero zero_ resize_ set_ expand_copy permute_copy view_copy select_scatter slice_scatter pixel_shuffle "
    "pixel_unshuffle upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d "
    "_upsample_nearest_exact2d _upsample_nearest_exact3d _nested_tensor_from_mask channel_shuffle _foreach_copy_ "
    "_foreach_zero_ im2col to_dense put as_strided_scatter diagonal_scatter copy_to resize_as_ lu_unpack "
    "_pack_padded_sequence _pack_padded_sequence_backward _pad_packed_sequence"
)
"""Copies, indexing and padding: each element of the result is an element of an operand, or a constant of the call.
`index_put` adds with accumulate=True, which is an operation of its own."""

SELECTIONS = _names(
    "max min amax amin aminmax argmax argmin sort argsort topk kthvalue median nanmedian mode cummax cummin "
    "max_pool1d max_pool1d_with_indices sgn sign heaviside fmax fmin copysign searchsorted bucketize "
    "unique _unique2 unique_dim unique_consecutive"
)
"""Selections: each element of the result is an element of an operand, up to its sign, 0, 1 or an index."""

COMPARISONS = _names(
    "eq ne lt le gt ge equal isnan isinf isfinite isposinf isneginf isclose allclose logical_not logical_and "
    "logical_or logical_xor all any signbit nonzero count_nonzero is_same_size is_nonzero _is_all_true _is_any_true "
    "_local_scalar_dense isin histc nonzero_static hash_tensor"
)
"""Comparisons and queries: the result holds no floating-point numbers of the computation."""

FACTORIES = _names(
    "empty empty_like new_empty empty_strided new_empty_strided zeros zeros_like new_zeros ones ones_like new_ones "
    "full full_like new_full arange linspace eye scalar_tensor tril_indices triu_indices one_hot "
    "_efficientzerotensor empty_permuted"
)
"""Factories: the result holds constants of the call."""

RANDOM = _names(
    "rand rand_like randn randn_like randint randint_like randperm bernoulli bernoulli_ uniform_ normal normal_ "
    "random_ exponential_ multinomial poisson cauchy_ log_normal_ geometric_"
)
"""Random numbers, which PyTorch draws in the dtype of the tensor."""

BOOKKEEPING = _names(
    "_amp_update_scale_ item _record_function_enter_new _record_function_exit _record_function_enter record_stream "
    "_version sym_size sym_stride sym_numel _assert_async _assert_scalar _functional_assert_async set_data "
    "_has_compatible_shallow_copy_type _has_same_storage_numel is_pinned _pin_memory"
)
"""The state of GradScaler, profiling and sizes."""

UNROUNDED = VIEWS | MOVES | SELECTIONS | COMPARISONS | FACTORIES | RANDOM | BOOKKEEPING
"""All names."""

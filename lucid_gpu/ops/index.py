"""Which file holds an op that is imported when it is first asked for.

Written by tools/list_ops.py (``make index``) from the ``METHODS`` and ``FUNCTIONS`` of each file.
"""

from __future__ import annotations

# fmt: off
METHODS: dict[str, str] = {  # file of this folder: methods of `Tensor`
    "activations": "prelu hardshrink",
    "array_methods": "astype copy conjugate to_device __imatmul__ __ilshift__ __irshift__",
    "axes":
        "swapaxes swapdims moveaxis ravel adjoint sum_to_size is_same_size unsqueeze_ "
        "squeeze_ t_ transpose_ swapaxes_ swapdims_",
    "complex_views": "conj _conj _neg_view resolve_conj resolve_neg is_conj is_neg",
    "copying": "__copy__ __deepcopy__ __reduce_ex__",
    "cumulative": "cumprod logcumsumexp cummax cummin diff cumprod_ _products_of_others",
    "diagonals":
        "diagonal diag diag_embed diagflat trace diagonal_scatter tril triu fill_diagonal_ "
        "tril_ triu_",
    "distances": "dist",
    "dlpack": "__dlpack__ __dlpack_device__",
    "draws": "cauchy_ log_normal_ geometric_",
    "einsum": "inner",
    "in_place_names":
        "absolute_ arccos_ arccosh_ arcsin_ arcsinh_ arctan2_ arctan_ arctanh_ divide_ fix_ "
        "greater_ greater_equal_ less_ less_equal_ multiply_ negative_ not_equal_ subtract_ "
        "true_divide_ gcd_ lcm_ ldexp_ heaviside_ nextafter_ renorm_ mvlgamma_ igamma_ "
        "igammac_",
    "incomplete_gamma": "igamma igammac",
    "linalg.cholesky": "cholesky",
    "linalg.determinant": "det slogdet logdet",
    "linalg.householder": "geqrf orgqr ormqr",
    "linalg.inverse": "inverse triangular_solve cholesky_solve cholesky_inverse",
    "linalg.old_names": "svd qr lu lu_solve _nuclear_norm",
    "linalg.products": "matrix_power matrix_exp cross",
    "linalg.svd": "pinverse",
    "multinomial": "multinomial",
    "order": "msort kthvalue mode aminmax unique unique_consecutive",
    "pinned": "is_pinned pin_memory",
    "printing": "__repr__",
    "products": "addmv addr baddbmm addbmm vdot ger kron addmv_ addmm_ addr_ baddbmm_ addbmm_",
    "questions": "is_signed is_nonzero",
    "random": "uniform_ normal_ random_ bernoulli_ exponential_ bernoulli",
    "rolled": "roll rot90 flipud fliplr __reversed__",
    "scatter_reduce": "scatter_reduce index_reduce scatter_reduce_ index_reduce_",
    "selections":
        "select select_scatter slice_scatter narrow_copy index_fill masked_scatter argwhere "
        "nonzero_static repeat_interleave masked_select nonzero index_fill_ masked_scatter_",
    "shared_memory": "is_shared",
    "sorting": "sort argsort topk",
    "sources": "new_empty_strided apply_ map_ map2_ module_load",
    "special_functions":
        "polygamma mvlgamma logit sinc logaddexp2 fmax fmin float_power heaviside positive "
        "signbit isposinf isneginf isreal ldexp frexp nextafter gcd lcm logit_ sinc_ "
        "polygamma_ float_power_",
    "spectrograms": "stft istft",
    "splitting":
        "narrow split split_with_sizes chunk unbind unsafe_split unsafe_split_with_sizes "
        "unsafe_chunk tensor_split",
    "stacking": "hsplit vsplit dsplit",
    "statistics":
        "quantile nanquantile nansum nanmean cov corrcoef renorm bincount histc histogram "
        "isclose allclose equal",
    "storage_types": "storage_type",
    "storages":
        "set_ share_memory_ storage untyped_storage _copied_with_memory _take_sizes resize_ "
        "resize_as_",
    "strides":
        "stride dim_order storage_offset data_ptr is_set_to as_strided as_strided_ "
        "as_strided_scatter unfold",
    "tensor_types": "type new byte char _construct",
}
FUNCTIONS: dict[str, str] = {  # file of this folder: of `lucid_gpu`
    "activations": "prelu hardshrink threshold",
    "adaptive_pooling": "adaptive_avg_pool1d adaptive_max_pool1d",
    "axes": "swapaxes swapdims moveaxis ravel adjoint is_same_size",
    "complex_views":
        "conj _conj _neg_view resolve_conj resolve_neg is_conj is_neg view_as_real "
        "view_as_complex polar",
    "convolution": "conv1d conv2d conv3d",
    "cumulative":
        "cumprod logcumsumexp cummax cummin diff trapezoid trapz cumulative_trapezoid "
        "gradient",
    "diagonals": "diagonal diag diag_embed diagflat trace diagonal_scatter tril triu",
    "distances": "dist cdist pdist bilinear vander",
    "dlpack": "from_dlpack to_dlpack to_torch from_torch",
    "draws": "poisson binomial",
    "einsum": "einsum tensordot inner",
    "generator": "manual_seed seed initial_seed get_rng_state set_rng_state",
    "grids": "meshgrid cartesian_prod combinations tril_indices triu_indices unravel_index",
    "in_place_names":
        "abs_ acos_ acosh_ arccos_ arccosh_ arcsin_ arcsinh_ arctan_ arctanh_ asin_ asinh_ "
        "atan_ atanh_ ceil_ clamp_ clamp_max_ clamp_min_ clip_ conj_physical_ cos_ cosh_ "
        "deg2rad_ detach_ erf_ erfc_ exp2_ exp_ expm1_ fill_ fix_ floor_ frac_ log10_ log1p_ "
        "log2_ log_ nan_to_num_ neg_ negative_ rad2deg_ reciprocal_ round_ rsqrt_ sigmoid_ "
        "sin_ sinh_ sqrt_ square_ tan_ tanh_ trunc_ zero_ i0_ logit_ sinc_ xlogy_ gcd_ lcm_ "
        "ldexp_",
    "incomplete_gamma": "igamma igammac",
    "linalg.cholesky": "cholesky",
    "linalg.determinant": "det slogdet logdet",
    "linalg.householder": "geqrf orgqr ormqr",
    "linalg.inverse": "inverse triangular_solve cholesky_solve cholesky_inverse",
    "linalg.low_rank": "svd_lowrank pca_lowrank lobpcg",
    "linalg.lu": "lu_unpack",
    "linalg.old_names": "svd qr lu lu_solve frobenius_norm nuclear_norm",
    "linalg.products": "matrix_power matrix_exp cross chain_matmul",
    "linalg.svd": "pinverse",
    "multinomial": "multinomial",
    "native_functions":
        "kl_div binary_cross_entropy_with_logits poisson_nll_loss cosine_embedding_loss "
        "hinge_embedding_loss margin_ranking_loss triplet_margin_loss ctc_loss batch_norm "
        "instance_norm embedding embedding_renorm_ dropout_ alpha_dropout_ "
        "feature_alpha_dropout_ feature_dropout feature_dropout_ grid_sampler grid_sampler_2d "
        "grid_sampler_3d affine_grid_generator native_channel_shuffle max_pool1d_with_indices "
        "norm_except_dim convolution conv_tbc segment_reduce native_layer_norm "
        "native_group_norm native_batch_norm native_dropout",
    "order": "msort kthvalue mode aminmax unique unique_consecutive isin searchsorted bucketize",
    "padding": "constant_pad_nd",
    "pooling": "avg_pool1d max_pool1d max_pool2d max_pool3d",
    "products": "addmv addr baddbmm addbmm vdot ger kron addmv_",
    "questions": "is_complex is_signed is_nonzero get_device detach fill",
    "random": "bernoulli normal rand rand_like randint randint_like randn randn_like randperm",
    "recurrent": "lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell",
    "rolled": "roll rot90 flipud fliplr",
    "scatter_reduce": "scatter_reduce index_reduce",
    "selections":
        "select select_scatter slice_scatter narrow_copy index_fill masked_scatter argwhere "
        "nonzero_static repeat_interleave masked_select nonzero index_put_",
    "signal_windows": "hann_window hamming_window blackman_window bartlett_window kaiser_window",
    "sorting": "sort argsort topk",
    "sources": "asarray frombuffer from_file logspace range empty_permuted empty_strided",
    "special_functions":
        "polygamma mvlgamma logit sinc logaddexp2 fmax fmin float_power heaviside positive "
        "signbit isposinf isneginf isreal ldexp frexp nextafter gcd lcm",
    "spectrograms": "stft istft",
    "splitting":
        "narrow split split_with_sizes chunk unbind unsafe_split unsafe_split_with_sizes "
        "unsafe_chunk tensor_split",
    "stacking":
        "hsplit vsplit dsplit concat concatenate hstack vstack dstack row_stack column_stack "
        "atleast_1d atleast_2d atleast_3d block_diag broadcast_shapes broadcast_tensors",
    "statistics":
        "quantile nanquantile nansum nanmean cov corrcoef renorm bincount histc histogram "
        "isclose allclose equal std_mean var_mean histogramdd",
    "storages": "is_storage resize_as_",
    "strides": "as_strided as_strided_ as_strided_scatter",
    "transposed_convolution": "conv_transpose1d conv_transpose2d conv_transpose3d",
    "view_copies":
        "alias_copy as_strided_copy detach_copy diagonal_copy expand_copy permute_copy "
        "select_copy slice_copy split_copy split_with_sizes_copy squeeze_copy t_copy "
        "transpose_copy unbind_copy unfold_copy unsqueeze_copy view_copy view_as_complex_copy "
        "view_as_real_copy",
}
ABOVE: dict[str, str] = {  # file of `lucid_gpu`: methods of `Tensor`
    "array_api.namespace": "__array_namespace__",
    "numpy.dispatch": "__array_function__",
    "numpy.products": "_dot_of_arrays",
    "numpy.ufuncs": "_array_ufunc __cupy_override_elementwise_kernel__ _matmul_of_arrays",
    "viz.notebook": "_repr_html_",
}
# fmt: on

# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 8. Which steps need FP32, and how many bits do weights need?
#
# Two pieces of advice are common: keep softmax and LayerNorm in FP32, and store the weights in 8 or 4 bits. Here each
# step of an operator has a format of its own, so both can be tested:
#
# 1. [One step that overflows](#One-step-that-overflows)
# 2. [Softmax with and without the shift](#Softmax-with-and-without-the-shift)
# 3. [The list of steps for FP32](#The-list-of-steps-for-FP32)
# 4. [Weights in INT8, INT4 and NF4](#Weights-in-INT8,-INT4-and-NF4)
# 5. [The scales of MX and NVFP4](#The-scales-of-MX-and-NVFP4)
#
# No GPU is needed. The pages [Operators](../docs/operators.md) and [Quantization](../docs/quantization.md) have the
# details.

# %%
try:
    import matplotlib.pyplot as plt
    import numpy as np
    from IPython.display import Markdown

    import floatsim as fs
    from floatsim import operators as ops
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"This notebook needs {missing.name}. In a clone of floatsim's repository: "
        "pip install -e '.[notebooks]', then restart the kernel."
    ) from None

rng = np.random.default_rng(0)


def table(head, rows):
    """A table of texts, shown as Markdown."""
    return Markdown("\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)))


def error(result, exact):
    """The norm of the difference over the norm of the exact result."""
    return np.linalg.norm(result.astype(float) - exact) / np.linalg.norm(exact)


# %% [markdown]
# ## One step that overflows
#
# RMSNorm divides a row by the root of its mean square. A recipe names the format of every
# step. The rows have 4096 normal random numbers of standard deviation sigma:

# %%
x, weight = rng.normal(size=(16, 4096)).astype(np.float32), np.ones(4096, np.float32)
rows = []
for sigma in (1, 4, 5):
    inputs = x * np.float32(sigma)
    exact = ops.rms_norm(inputs, weight, recipe="float64")
    for recipe in ("all-fp16", "fp32-inside"):
        with fs.record() as log:
            result = ops.rms_norm(inputs, weight, recipe=recipe)
        overflows = log.total.overflow
        rows.append((str(sigma), recipe, f"{error(result, exact):.0e}", f"{np.mean(result == 0):.0%}", str(overflows)))
table(("sigma", "recipe", "error", "zeros", "overflows"), rows)

# %% jupyter={"source_hidden": true}
Markdown(
    f"The largest number of FP16 is **{fs.FP16.max:,.0f}**. With sigma 4, the sum of 4096 squares is about "
    f"{4096 * 4**2:,}, and some of the exact sums are larger than this number. The sum in FP16 loses small squares and "
    "stays below it, so nothing overflows. The loss is the error of the table. With sigma 5, the sum is about "
    f"**{4096 * 5**2:,}**. It becomes infinity, "
    "its reciprocal root 0, and every result is 0. No result is infinity or NaN, so nothing shows the failure. FP32 "
    "inside the operator is enough."
)

# %% [markdown]
# ## Softmax with and without the shift
#
# Softmax is exp(x) divided by the sum of exp(x). Every library subtracts the maximum of the row first. The variant
# "naive" does not:

# %%
scores = (4 * rng.normal(size=(64, 256))).astype(np.float32)
exact = ops.softmax(scores, recipe="float64")
rows = []
for recipe in ("all-fp16", "fp32-inside"):
    for variant in ("naive", "shifted", "online"):
        result = ops.softmax(scores, recipe=recipe, variant=variant).astype(float)
        failed = np.isnan(result).any(axis=1)
        sums = np.abs(result[~failed].sum(axis=1) - 1).max()
        rows.append((recipe, variant, f"{failed.mean():.0%}", f"{sums:.1e}"))
table(("recipe", "variant", "rows with NaN", "largest distance of a row's sum from 1"), rows)

# %% [markdown]
# Without the shift, exp(x) or the sum [overflows](../docs/glossary.md#overflow) in FP16.
# [Infinity](../docs/glossary.md#infinity) divided by infinity is [NaN](../docs/glossary.md#nan), and the other
# quotients are 0. The shift removes the failure. The error that remains comes from the sum.
#
# ## The list of steps for FP32
#
# `fs.sensitivity` computes one step at a time in a lower format, all others in FP32, and ranks the errors. The list
# "keep these in FP32" is its upper end:

# %%
print(fs.sensitivity(ops.softmax, scores, "fp16"))

# %%
activations = (10 + 4 * rng.normal(size=(8, 512))).astype(np.float32)
ones, zeros = np.ones(512, np.float32), np.zeros(512, np.float32)
print(fs.sensitivity(ops.layer_norm, (activations, ones, zeros), "fp16"))

# %% [markdown]
# In both operators the sums come first. Single steps of LayerNorm, such as the reciprocal root, could be in FP16.
#
# ## Weights in INT8, INT4 and NF4
#
# A network of three layers recognizes handwritten digits. Ten lines run it with weights in many formats. Each
# [block](../docs/glossary.md#block) of 32 weights has one [scale](../docs/glossary.md#block-scale):

# %%
net = fs.datasets.digits_network()
rows = [("FP32", "32", f"{net.accuracy(ops.mlp(net.images, [w.T for w in net.weights], net.biases)):.3f}")]
for scheme in ("int8", "int4", "nf4", "int3", "int2"):
    stored = [fs.quantize_blocks(w.T, scheme, block=32) for w in net.weights]
    logits = ops.mlp(net.images, [q.values for q in stored], net.biases)
    bits = sum(q.nbits for q in stored) / sum(q.codes.size for q in stored)
    rows.append((scheme, f"{bits:.0f}", f"{net.accuracy(logits):.3f}"))
table(("weights", "bits of a weight, with its scale", "accuracy"), rows)

# %% [markdown]
# INT8 costs nothing here, four bits cost little, and two bits are too few. The scales count: an FP32 scale for 32
# weights adds one bit to each.
#
# The picture compares the errors for normal random weights. The numbers in the names are the lengths of the blocks. The
# grey line halves the error with each bit:

# %% tags=["picture"]
values = rng.normal(size=(256, 1024)).astype(np.float32)
schemes = {
    "INT8, rows": ("int8", "row"), "INT4, rows": ("int4", "row"), "INT4, 128": ("int4", 128), "INT4, 32": ("int4", 32),
    "NF4": ("nf4", None), "NF4, nested scales": ("nf4_nested", None), "MXFP8": ("mxfp8", None),
    "MXINT8": ("mxint8", None), "MXFP6": ("mxfp6", None), "MXFP4": ("mxfp4", None), "NVFP4": ("nvfp4", None),
    "INT3, 128": ("int3", 128), "INT2, 128": ("int2", 128),
}  # fmt: skip
found = {}
for name, (scheme, block) in schemes.items():
    q = fs.quantize_blocks(values, scheme, block=block)
    found[name] = q.nbits / values.size, error(q.values, values)
figure, ax = plt.subplots(figsize=(9, 4.6), layout="constrained")
bits = np.array([2, 8.6])
ax.semilogy(bits, 0.5 * 2**-bits, color="0.7", lw=1)  # half the error for each bit
offsets = {
    "INT4, rows": (-58, -2), "INT4, 128": (-54, -4), "MXFP4": (-2, 9), "NF4, nested scales": (-100, -6),
    "NVFP4": (6, 5), "NF4": (-6, -15), "INT8, rows": (-60, -4),
}  # fmt: skip
for name, (x, y) in found.items():
    ax.plot(x, y, "o", color=fs.plot.colour(fs.FP16) if name.startswith(("MX", "NV")) else "0.5", ms=6)
    ax.annotate(name, (x, y), offsets.get(name, (7, -4)), textcoords="offset points", fontsize=9)
_ = ax.set(xlabel="bits of a weight, with its share of the scales", ylabel="relative error", xlim=(2, 9.2))
title = "Weights in few bits: the error of each scheme, for normal random weights"
_ = ax.set_title(title, loc="left", fontweight="bold", wrap=True)

# %% jupyter={"source_hidden": true}
(bits_plain, error_plain), (bits_nested, error_nested) = found["NF4"], found["NF4, nested scales"]
Markdown(
    "NF4 has the lowest error of the formats with about four bits, because its numbers are quantiles of the normal "
    f"distribution. Nested scales, QLoRA's second quantization, save **{bits_plain - bits_nested:.2f} bits** of each "
    f"weight, and the error grows from {error_plain:.5f} to {error_nested:.5f}."
)

# %% [markdown]
# ## The scales of MX and NVFP4
#
# An MX block of 32 numbers has a scale that is a power of two. There are several rules for it. The plain rule of the
# standard, "floor", lets numbers just below the next power of two [saturate](../docs/glossary.md#saturation). A number
# saturates if it is beyond the largest number of the format *after* its rounding. `conversion_losses` counts this if it
# converts the numbers divided by their scales:


# %%
def row_of(scheme, rule=None):
    """The error of a scheme, and the shares of the numbers that saturate and that become zero."""
    q = fs.quantize_blocks(values, scheme, rule=rule)
    scales = q.scales.values * (1 if q.tensor_scale is None else q.tensor_scale.item())
    scaled = values / np.repeat(scales, values.shape[1] // scales.shape[1], axis=1)
    losses = fs.conversion_losses(scaled, q.format)
    return scheme, rule or "", f"{error(q.values, values):.4f}", f"{losses.overflowed:.2%}", f"{losses.flushed:.2%}"


rows = [row_of(scheme, rule) for scheme in ("mxfp8", "mxfp4") for rule in ("floor", "rceil", "ceil", "even")]
rows += [row_of(scheme) for scheme in ("nvfp4", "nvfp4_torchao", "nvfp4_single")]
table(("scheme", "rule", "error", "saturated", "flushed to zero"), rows)

# %% [markdown]
# "rceil" and "ceil" never saturate. In NVFP4, a scale that was rounded down leaves some numbers beyond the largest one,
# but so little that they round to it: none saturates. With E4M3, "rceil" and "ceil" have the least error. For E2M1
# elements, the larger scales of "ceil" [flush](../docs/glossary.md#flush-to-zero) many numbers to zero, and "even" has
# the lowest error. NVFP4 has blocks of 16 and scales in E4M3, which are not only powers of two. So its error is lower
# than that of MXFP4.
#
# Next: [9. Can a laptop have the bits of an H200?](09_twin.ipynb)
#
# ## Exercises
#
# **Exercise 1.** Keep the inputs of RMSNorm and its output in FP16, and put only the sum of the squares in FP32. Is
# this enough for sigma 5? (`ops.operator_steps("rms_norm")` lists the steps.)
#
# <details>
# <summary>Solution</summary>
#
# ```python
# >>> inputs = 5 * rng.normal(size=(16, 4096)).astype(np.float32)
# >>> exact = ops.rms_norm(inputs, weight, recipe="float64")
# >>> result = ops.rms_norm(inputs, weight, recipe="all-fp16", formats={"square_sum": "fp32"})
# >>> print(f"{error(result, exact):.0e}")
# 3e-04
# >>> print(fs.testing.check_answers({1: "square_sum"}, DIGESTS))
# exercise 1: correct
# ```
#
# The mean of the squares is small again, and fits FP16. Only the sum of the squares needs the range of FP32.
#
# </details>
#
# **Exercise 2.** One outlier in a block enlarges the scale of all. Multiply one of 1024 numbers by 100, and compare the
# error of the other numbers in INT8 with one scale for each row and for each 32 numbers.
#
# <details>
# <summary>Solution</summary>
#
# ```python
# >>> outliers = values.copy()
# >>> outliers[:, 7] *= 100
# >>> others = np.arange(1024) != 7
# >>> for block in ("row", 32):
# ...     q = fs.quantize_blocks(outliers, "int8", block=block)
# ...     print(block, f"{error(q.values[:, others], outliers[:, others]):.4f}")
# row 0.2430
# 32 0.0423
# >>> print(fs.testing.check_answers({2: [0.243, 0.0423]}, DIGESTS))
# exercise 2: correct
# ```
#
# Small blocks confine the damage of an outlier to its neighbours.
#
# </details>
#
# **Exercise 3.** Clipping: which scale loses least for INT4 with one scale for the tensor? (`fs.best_scale`)
#
# <details>
# <summary>Solution</summary>
#
# ```python
# >>> for method in ("min_max", "mse"):
# ...     scale = fs.best_scale(values, "int4", method=method)
# ...     print(method, f"{error(fs.quantize_blocks(values, 'int4', scale=scale).values, values):.3f}")
# min_max 0.189
# mse 0.109
# >>> print(fs.testing.check_answers({3: [0.189, 0.109]}, DIGESTS))
# exercise 3: correct
# ```
#
# </details>

# %% [markdown]
# ## Check of the answers
#
# Write your answers into the cell below, and run it. It compares them with digests, which do not show the solutions.
#
# - Exercise 1: the name of the step that needs FP32, as a text.
# - Exercise 2: both errors, as a list with the row first.
# - Exercise 3: the errors of `min_max` and `mse`, as a list.

# %%
DIGESTS = {1: "946940ae70", 2: "a2c6fdf56d", 3: "444bce05c1"}
answers = {1: ..., 2: ..., 3: ...}  # replace each ... by an answer
print(fs.testing.check_answers(answers, DIGESTS))

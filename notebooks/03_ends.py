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
# # 3. What happens at both ends?
#
# A format has a smallest positive number and a largest number. Rounded to nearest ([ties](../docs/glossary.md#ties)
# to even), results of at most half the smallest positive number become zero. Results beyond the largest number depend
# on the [overflow](../docs/glossary.md#overflow) policy. This notebook shows both ends with real data: gradients of a
# small network that reads digits. The data is part of floatsim; [data](../data/digits/README.md) describes its origin.
#
# It follows [notebook 1](01_bits.ipynb) (numbers) and [notebook 2](02_rounding.ipynb) (rounding).

# %%
try:
    import matplotlib.pyplot as plt
    import numpy as np
    from IPython.display import Markdown

    import floatsim as fs
    from floatsim import datasets, plot
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"This notebook needs {missing.name}. In a clone of floatsim's repository: "
        "pip install -e '.[notebooks]', then restart the kernel."
    ) from None

# %% [markdown]
# ## Gradients that become zero
#
# Training minimises a *loss*, a number that measures the network's errors. The *backward pass* computes the derivative
# of the loss with respect to every intermediate result, from the last layer to the first. The array here is one of
# these derivatives: of the loss with respect to the *pre-activations* of the middle layer, the sums before its
# activation function, for 512 training images. The gradient of the layer's weights is computed from it: `activations.T
# @ gradients`.
#
# The values are small, because the network has memorised its training images: after 300 epochs it classifies all of
# them correctly (and 87 % of new images). Gradients early in training are larger. The next cell converts the array to
# E4M3, and counts the values that are not zero:

# %%
gradients = datasets.digits()["gradients"]
alive = np.abs(gradients[gradients != 0])
left = np.count_nonzero(fs.quantize(gradients, "e4m3"))
Markdown(
    f"{alive.size:,} gradients are not zero; their magnitudes are from {alive.min():.1e} to {alive.max():.1e}. "
    f"In E4M3, **{left}** of them are not zero."
)

# %% [markdown]
# With a gradient of zeros, the weights do not change. The next picture shows the reason, also for other formats: the
# number of gradients of each size (one bar per power of two) against the range of each format:

# %% tags=["picture"]
ax = plot.exponent_histogram(gradients, limits=(-46, 20),
                             title="Gradients of the loss by pre-activations, in five formats")  # fmt: skip

# %% [markdown]
# The heights are the same in each row. Solid: [normal numbers](../docs/glossary.md#normal-number). Hatched:
# [subnormal](../docs/glossary.md#subnormal) numbers, with fewer bits. Black: [flushed to
# zero](../docs/glossary.md#flush-to-zero), which means that the result is zero. The band behind is the format's range,
# up to its largest number at the right.
#
# The range of E4M3 is to the right of all these gradients. In FP16, more than a third become zero. In BF16, none does:
# BF16 has as many bits as FP16, but more of them are exponent bits.
#
# ## The small end: subnormal numbers
#
# A normal number has a hidden 1 before the point, so the smallest one is 1.000 ×
# 2^[emin](../docs/glossary.md#emin-and-emax), where emin is the smallest exponent. Without other numbers there would be
# a gap from there to zero. The *subnormal* numbers fill it: their exponent field is 0, and they have no hidden 1. This
# is a subnormal number of FP16:

# %%
ax = plot.anatomy(1e-6, "fp16")

# %% [markdown]
# On the number line, they have short ticks. Their gaps are those of the smallest normal numbers. The second picture is
# the same format without them:

# %%
figure, axes = plt.subplots(2, 1, figsize=(10, 2.6), layout="constrained")
limits = (-0.04, 0.04)
plot.number_line("e4m3", limits=limits, ax=axes[0], title="with subnormal numbers")
plot.number_line("e4m3", limits=limits, ftz=True, ax=axes[1], title="without: flushed to zero")
for ax in axes:
    ax.title.set_fontsize("medium")

# %% [markdown]
# So there are three limits at the small end. For FP16:

# %%
fp16 = fs.FP16
print(f"smallest normal number     {fp16.smallest_normal:.6e}   below it, fewer and fewer bits")
print(f"smallest subnormal number  {fp16.smallest_subnormal:.6e}   below it, no numbers")
print(f"half of that               {fp16.smallest_subnormal / 2:.6e}   at it and below it, rounded to zero")
print()
for x in (1e-4, 1e-5, 1e-6, 1e-7, 3e-8, 2.9e-8):
    y = fs.quantize(x, "fp16")
    print(f"{x:7.1e} becomes {y:.6e}, off by {abs(y - x) / x:.2%}")

# %% [markdown]
# Some texts say that FP16 loses everything below its smallest *normal* number. The table shows that only
# [precision](../docs/glossary.md#precision) is lost there, one bit per power of two. Results become zero only if they
# are at most half the smallest subnormal number. The next picture shows the largest relative error for each power of
# two. The dashed line is FP16 without subnormal numbers:

# %%
formats = ["bf16", "fp16", "e5m2", "e4m3"]
ax = plot.worst_error(formats, limits=(-32, 18))
ax = plot.worst_error(["fp16"], limits=(-32, 18), ftz=True, ax=ax)

# %% [markdown]
# Where a line is flat, the largest relative error does not depend on the size of the number. At the left, the lines of
# FP16, E5M2 and E4M3 rise step by step to 1, an error of 100 %. BF16 is flat in the whole picture: its subnormal
# numbers begin below 2^-126. With flushing to zero, the error is 1 at once.
#
# ## Flush to zero
#
# Subnormal numbers make hardware more expensive, and some hardware can switch them off. *FTZ* ("flush to zero")
# replaces subnormal results by zero. [*DAZ*](../docs/glossary.md#daz) ("denormals are zero") reads subnormal operands
# as zero. On x86 both are bits of the control register MXCSR (Intel's manual). NVIDIA's compiler has `-ftz=true` for
# FP32, which `-use_fast_math` implies (its documentation). In floatsim both are arguments, False by default.
# `fs.record` counts the events of converting the gradients to FP16:

# %%
for ftz in (False, True):
    with fs.record() as log:
        fs.convert(gradients, "fp16", ftz=ftz)
    counts = log["convert"]
    print(f"ftz={ftz!s:6} subnormal {counts.subnormal:5}   flushed to zero {counts.flushed:5}   of {alive.size}")

# %% [markdown]
# Without FTZ, x - y is zero only if x equals y. Programs rely on this when they test x != y before they divide by x -
# y. With FTZ it is false:

# %%
x, y = fs.array([0.0176], "e4m3"), fs.array([0.0156], "e4m3")
for ftz in (False, True):
    difference = fs.subtract(x, y, ftz=ftz)
    print(f"ftz={ftz!s:6} x == y: {bool(fs.equal(x, y)[0])}   x - y = {difference.values[0]}")

# %% [markdown]
# ## The large end: overflow policies
#
# The largest number of E4M3 is 448, so 500 *overflows*. There are two usual policies. In IEEE 754, the result is
# [infinity](../docs/glossary.md#infinity), which makes the overflow visible; a format without infinity has
# [NaN](../docs/glossary.md#nan) instead. Machine learning often uses the largest number, which is called
# [*saturation*](../docs/glossary.md#saturation). The steps around the largest number:

# %%
figure, axes = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")
for row, (fmt, limits) in zip(axes, [("e4m3", (380, 520)), ("e5m2", (44_000, 72_000))], strict=True):
    for ax, overflow in zip(row, ["infinity", "saturate_finite"], strict=True):
        plot.staircase(fmt, overflow=overflow, limits=limits, ax=ax, title=f"{fmt.upper()}, overflow={overflow!r}")

# %% [markdown]
# Overflow begins half a gap beyond the largest number, because smaller numbers round to the largest one. The policies
# also differ for infinite inputs:

# %%
inputs = np.array([448.0, 464.0, 465.0, 1e6, np.inf, np.nan])
print("E4M3              ", *(f"{x!s:>8}" for x in inputs))
for policy in fs.Overflow:
    print(f"{policy.name.lower():18}", *(f"{x!s:>8}" for x in fs.quantize(inputs, "e4m3", overflow=policy)))

# %% [markdown]
# In NVIDIA's PTX documentation, the conversions to E4M3 and E5M2 exist only with `.satfinite`, the row
# `saturate_finite`. Software differs from version to version. The default of floatsim is `infinity`.
#
# Infinity is easy to notice: operations propagate it, and can turn it into NaN. Almost every later operation keeps a
# NaN. Among the exceptions of IEEE 754 are pow(NaN, 0), which is 1, and maximumNumber(NaN, 2), which is 2:

# %%
infinity, zero, two = (fs.array([x], "fp16") for x in (np.inf, 0.0, 2.0))
print("inf * 2   =", fs.multiply(infinity, two).values[0])
print("inf - inf =", fs.subtract(infinity, infinity).values[0])
print("inf * 0   =", fs.multiply(infinity, zero).values[0])
print("inf / inf =", fs.divide(infinity, infinity).values[0])

# %% [markdown]
# A saturated result is hard to notice: it is finite and plausible, but its error can be large. Which policy is better
# depends on the program.
#
# ## Both ends at once: loss scaling
#
# The gradients are too small for the range of E4M3, but a factor can move them into the range. [*Loss
# scaling*](../docs/glossary.md#loss-scaling) multiplies the **loss** by 2^k before the backward pass. Derivatives are
# linear, so every gradient of the backward pass is then multiplied by 2^k, before it is rounded. The finished gradients
# of the weights, which are in a wider format, are divided by 2^k. A power of two only changes exponents, so the scaling
# itself has no rounding error. (Scaling finished gradients would be too late: those that have become zero stay zero.)
#
# Each column of the next picture is one factor:

# %%
ax = plot.scale_sweep(gradients, "e4m3", exponents=(-2, 34))

# %% [markdown]
# With a larger factor, fewer gradients become zero (bottom), but more overflow (top). A good factor lies between. The
# range of E4M3 is too narrow for all of these gradients, that of E5M2 is not:

# %%
plot.explore(
    lambda format, scale: plot.scale_sweep(gradients, format, exponents=(-2, 34), mark=scale),
    format=["e5m2", "e4m3", "fp16", "e3m4"],
    scale=(0, 32),
)

# %% [markdown]
# The purpose of this array is the gradient of the weights. The next cell computes this part of the backward pass. It
# starts with the derivative of the scaled loss with respect to the pre-activations, which is rounded to the format. The
# product with the activations is exact up to float64 rounding, and is divided by 2^k. The error of the weights'
# gradient, for each factor and both policies:

# %%
activations = datasets.digits()["activations"].astype(np.float64)
exact = activations.T @ gradients.astype(np.float64)
exponents = np.arange(0, 34)


def weight_gradient(seed, fmt, overflow):
    """The gradient of the layer's weights; `seed` is the derivative of the loss by the pre-activations."""
    with np.errstate(invalid="ignore"):  # infinity times 0 is NaN
        return activations.T @ fs.quantize(seed, fmt, overflow=overflow)


def error(k, fmt, overflow):
    """The relative error of the weights' gradient if the loss is multiplied by 2**k."""
    seed_of_scaled_loss = np.ldexp(gradients.astype(np.float64), k)
    unscaled = np.ldexp(weight_gradient(seed_of_scaled_loss, fmt, overflow), -k)
    return np.linalg.norm(unscaled - exact) / np.linalg.norm(exact)


figure, ax = plt.subplots(figsize=(9, 4), layout="constrained")
for fmt, named_at in [("e4m3", 9), ("e5m2", 2), ("fp16", 1)]:
    for overflow, line in [("saturate_finite", "--"), ("infinity", "-")]:
        errors = np.array([error(k, fmt, overflow) for k in exponents])
        finite = np.isfinite(errors)
        ax.plot(exponents[finite], errors[finite], line, color=plot.colour(fmt), lw=2)
        if not finite.all():
            last = exponents[finite][-1]
            ax.plot(last, errors[finite][-1], "X", color=plot.colour(fmt), ms=9)
            ax.annotate("beyond: NaN", (last, errors[finite][-1]), (0, -7), textcoords="offset points", ha="right",
                        va="top")  # fmt: skip
    ax.annotate(fmt.upper(), (named_at, error(named_at, fmt, "infinity")), (6, 6), textcoords="offset points",
                color=plot.colour(fmt), fontweight="bold")  # fmt: skip
ax.set_yscale("log")
ax.set(xlabel="loss multiplied by $2^k$", ylabel="relative error of\nthe weights' gradient")
ax.set(xlim=(0, 33), ylim=(4e-5, 1.3))
labels = [1e-4, 1e-3, 0.01, 0.1, 1]
ax.set_yticks(labels, [f"{100 * label:g} %" for label in labels])
ax.set_yticks([], minor=True)
ax.grid(alpha=0.25)
ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# Where a curve is flat, the error comes from the few bits of the [significand](../docs/glossary.md#significand). There
# FP16 is best, and E4M3, with one bit more, is better than E5M2, although some small gradients are zero. At the right,
# the first overflow makes the result NaN with one policy. With the other (dashed), the result stays finite, and its
# error grows without a signal. Training recipes choose the factor automatically. FP16 training usually has one factor
# for the whole network (loss scaling), FP8 training one per tensor or [block](../docs/glossary.md#block).
#
# ## What to remember
#
# - There are three limits at the small end: the smallest normal number, the smallest subnormal number, and half of
#   that. Between the first two, precision decreases. Only at the last one and below it do results become zero.
# - With FTZ, all results below the smallest normal number become zero.
# - At the large end, the result depends on the policy: infinity, NaN, or the largest number.
# - A power of two moves a tensor along the range without rounding errors. It does not make the range wider.
#
# Next: [4. Why do two correct kernels return different bits?](04_orders.ipynb)

# %% [markdown]
# ## Exercises
#
# **Exercise 1.** Find the smallest positive number that FP16 does *not* round to zero ([ties](../docs/glossary.md#ties)
# to even). How does it compare with the smallest normal and the smallest subnormal number? What changes under
# `rounding="toward_positive"`?
#
# **Exercise 2.** Which power of two makes the fewest gradients zero or infinite in E4M3? And in E5M2?
#
# **Exercise 3.** Count all pairs of positive E4M3 numbers x > y for which x - y is zero, with and without FTZ.

# %% [markdown]
# ## Check of the answers
#
# Write your answers into the cell below, and run it. It compares them with digests, which do not show the solutions.
#
# - Exercise 1: the smallest number that is not rounded to zero, and the result of the smallest positive number of FP64
#   (5e-324) toward positive, as a list.
# - Exercise 2: the exponents of both powers of two, as a list.
# - Exercise 3: the counts without and with FTZ, as a list.

# %%
DIGESTS = {1: "1f6002ddf8", 2: "aeeedfeb8b", 3: "58e02d2fb1"}
answers = {1: ..., 2: ..., 3: ...}  # replace each ... by an answer
print(fs.testing.check_answers(answers, DIGESTS))

# %% [markdown]
# <details>
# <summary>Solution 1</summary>
#
# Half the smallest subnormal number is a tie, and is rounded to zero, the even neighbour. The next larger float64
# number is not.
#
# ```python
# >>> half = fs.FP16.smallest_subnormal / 2
# >>> above = np.nextafter(half, 1)
# >>> print(half, fs.quantize(half, "fp16"), fs.quantize(above, "fp16"))
# 2.9802322387695312e-08 0.0 5.960464477539063e-08
# >>> print(fs.FP16.smallest_normal / above, fs.FP16.smallest_subnormal / above)
# 2047.9999999999995 1.9999999999999996
# ```
#
# Toward positive, no positive number is rounded to zero:
#
# ```python
# >>> print(fs.quantize(5e-324, "fp16", rounding="toward_positive"))
# 5.960464477539063e-08
# >>> print(fs.testing.check_answers({1: [2.980232238769532e-08, 5.960464477539063e-08]}, DIGESTS))
# exercise 1: correct
# ```
#
# </details>

# %% [markdown]
# <details>
# <summary>Solution 2</summary>
#
# `fs.conversion_losses` returns the shares that the picture draws.
#
# ```python
# >>> def lost(k, fmt):
# ...     losses = fs.conversion_losses(np.ldexp(gradients.astype(np.float64), k), fmt)
# ...     return losses.flushed + losses.overflowed
# >>> for fmt in ["e4m3", "e5m2"]:
# ...     best = min(range(40), key=lambda k: lost(k, fmt))
# ...     print(f"{fmt}: 2^{best} loses {lost(best, fmt):.2%}, 2^0 loses {lost(0, fmt):.2%}")
# e4m3: 2^23 loses 5.20%, 2^0 loses 100.00%
# e5m2: 2^26 loses 0.00%, 2^0 loses 87.69%
# >>> print(fs.testing.check_answers({2: [23, 26]}, DIGESTS))
# exercise 2: correct
# ```
#
# The factor with the fewest losses need not have the smallest error: the largest gradients have the largest effect, and
# they are the ones that overflow.
#
# </details>

# %% [markdown]
# <details>
# <summary>Solution 3</summary>
#
# With subnormal numbers there is none: the difference of two numbers is a multiple of the smallest subnormal number,
# so it cannot fall between that and zero.
#
# ```python
# >>> values = fs.decode(fs.E4M3.codes(), "e4m3")
# >>> values = np.sort(values[values > 0])
# >>> x, y = np.meshgrid(values, values)
# >>> pairs = x > y
# >>> for ftz in (False, True):
# ...     difference = fs.subtract(fs.array(x[pairs], "e4m3"), fs.array(y[pairs], "e4m3"), ftz=ftz)
# ...     print(f"ftz={ftz}: {np.count_nonzero(difference.values == 0)} of {pairs.sum()} pairs")
# ftz=False: 0 of 7875 pairs
# ftz=True: 123 of 7875 pairs
# >>> print(fs.testing.check_answers({3: [0, 123]}, DIGESTS))
# exercise 3: correct
# ```
#
# </details>

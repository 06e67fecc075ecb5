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
# A format has a smallest number and a largest. Beyond the first lies zero; what lies beyond the second is a matter of
# policy. This page goes to both ends with numbers from life: the gradients of a small network that has learned to
# read digits. They travel with floatsim; where they come from stands in [data](../data/digits/README.md).
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
# ## All gone
#
# A gradient tells each weight in which direction to move. Late in training, gradients are small. Convert these to
# E4M3, and count how many are left:

# %%
gradients = datasets.digits()["gradients"]
alive = np.abs(gradients[gradients != 0])
left = np.count_nonzero(fs.quantize(gradients, "e4m3"))
Markdown(
    f"{alive.size:,} gradients are not zero, from {alive.min():.1e} to {alive.max():.1e}. "
    f"In E4M3, **{left}** of them are left."
)

# %% [markdown]
# A network that is given only zeros learns nothing. Why all, and what about other formats? Draw how many gradients
# there are of each size (every bar is a power of two), against the range that each format has:

# %% tags=["picture"]
ax = plot.exponent_histogram(gradients, plot.FIVE, limits=(-46, 20),
                             title="Gradients of a trained network: what five formats do to them")  # fmt: skip

# %% [markdown]
# The bars are the same in each row. Solid: kept. Hatched: kept, with fewer bits than usual. Black: rounded to zero.
# The band behind is the format's range, which ends at the right at its largest number.
#
# E4M3's range lies wholly to the right of the gradients. FP16 loses a good part. BF16 loses nothing, although it has
# no more bits than FP16: it spends them on the exponent.
#
# ## The small end: subnormal numbers
#
# The hatched part needs a closer look. A normal number has a hidden 1 before the point, so with the smallest exponent
# the smallest normal number is 1.000 × 2^emin. Without anything else, there would be a hole from there down to zero.
# The *subnormal* numbers fill it: exponent field 0, no hidden 1. This is one of FP16:

# %%
ax = plot.anatomy(1e-6, "fp16")

# %% [markdown]
# On the number line they are the short ticks, as far apart as the smallest normal numbers are. The second row is the
# same format without them:

# %%
figure, axes = plt.subplots(2, 1, figsize=(10, 2.6), layout="constrained")
limits = (-0.04, 0.04)
plot.number_line("e4m3", limits=limits, ax=axes[0], title="with subnormal numbers")
plot.number_line("e4m3", limits=limits, ftz=True, ax=axes[1], title="without: flushed to zero")
for ax in axes:
    ax.title.set_fontsize("medium")

# %% [markdown]
# So three borders lie at the small end, not one. For FP16:

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
# It is often said that FP16 loses everything below its smallest *normal* number. The table says otherwise: there only
# precision is lost, a bit for each power of two. Numbers vanish much later. The largest relative error, size by size;
# dashed, what happens without subnormal numbers:

# %%
formats = ["bf16", "fp16", "e5m2", "e4m3"]
ax = plot.worst_error(formats, limits=(-32, 18))
ax = plot.worst_error(["fp16"], limits=(-32, 18), ftz=True, ax=ax)

# %% [markdown]
# A flat line is a promise: whatever the size, the same relative error at most. At the left each format breaks it,
# gradually: a staircase up to 1, which means "all of it". Flushing to zero turns the stairs into a cliff.
#
# ## Flush to zero
#
# Subnormal numbers cost hardware effort, and some of it may leave them out: *FTZ* makes subnormal results zero, *DAZ*
# ("denormals are zero") reads subnormal operands as zero. On x86 both are bits of the control register MXCSR (Intel's
# manual); NVIDIA's compiler has `-ftz=true` for FP32, which `-use_fast_math` implies (its documentation). In floatsim
# it is an argument, off unless asked for. `fs.record` counts what happens to the gradients on their way to FP16:

# %%
for ftz in (False, True):
    with fs.record() as log:
        fs.convert(gradients, "fp16", ftz=ftz)
    counts = log["convert"]
    print(f"ftz={ftz!s:6} subnormal {counts.subnormal:5}   flushed to zero {counts.flushed:5}   of {alive.size}")

# %% [markdown]
# FTZ also takes away something one relies on without noticing: that x - y is zero only if x equals y. Guards against
# division by zero are written like that.

# %%
x, y = fs.array([0.0176], "e4m3"), fs.array([0.0156], "e4m3")
for ftz in (False, True):
    difference = fs.subtract(x, y, ftz=ftz)
    print(f"ftz={ftz!s:6} x == y: {bool(fs.equal(x, y)[0])}   x - y = {difference.values[0]}")

# %% [markdown]
# ## The large end: a matter of policy
#
# What is 500 in E4M3, whose largest number is 448? There are two schools. IEEE 754 says: infinity, so that everybody
# can see that something happened; a format without infinity takes NaN instead. Machine learning often says: the
# largest number, and go on. The second is called *saturating*. The steps around the largest number:

# %%
figure, axes = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")
for row, (fmt, limits) in zip(axes, [("e4m3", (380, 520)), ("e5m2", (44_000, 72_000))], strict=True):
    for ax, overflow in zip(row, ["infinity", "saturate_finite"], strict=True):
        plot.staircase(fmt, overflow=overflow, limits=limits, ax=ax, title=f"{fmt.upper()}, overflow={overflow!r}")

# %% [markdown]
# Look where the cliff is: not at the largest number, but half a gap further. What rounds back to it has not
# overflowed. The policies differ in what they do with infinities, too:

# %%
inputs = np.array([448.0, 464.0, 465.0, 1e6, np.inf, np.nan])
print("E4M3              ", *(f"{x!s:>8}" for x in inputs))
for policy in fs.Overflow:
    print(f"{policy.name.lower():18}", *(f"{x!s:>8}" for x in fs.quantize(inputs, "e4m3", overflow=policy)))

# %% [markdown]
# Which one does hardware have? By NVIDIA's PTX documentation, its conversions to E4M3 and E5M2 exist only with
# `.satfinite`, which is the second row. Software differs from version to version; floatsim always takes the first
# unless asked.
#
# Infinity is loud because it spreads, and soon turns into NaN, which no later operation removes:

# %%
infinity, zero, two = (fs.array([x], "fp16") for x in (np.inf, 0.0, 2.0))
print("inf * 2   =", fs.multiply(infinity, two).values[0])
print("inf - inf =", fs.subtract(infinity, infinity).values[0])
print("inf * 0   =", fs.multiply(infinity, zero).values[0])
print("inf / inf =", fs.divide(infinity, infinity).values[0])

# %% [markdown]
# A saturated number is quiet: the result is finite, plausible, and wrong. Loud or quiet is a choice, and neither is
# right for everything.
#
# ## Both ends at once: scaling
#
# If the gradients lie left of the range, move them: multiply by a power of two before the conversion, divide
# afterwards. That costs no precision, since only the exponent changes. How far? Each column of the picture is one
# factor:

# %%
ax = plot.scale_sweep(gradients, "e4m3", exponents=(-2, 34))

# %% [markdown]
# From the left, black recedes: more and more numbers are saved from zero. From the right, black comes back: the
# largest ones overflow. Between them lies the valley in which one wants to be. E4M3 is too narrow to save all of
# these gradients at once; E5M2 is not:

# %%
plot.explore(
    lambda fmt, scale: plot.scale_sweep(gradients, fmt, exponents=(-2, 34), mark=scale),
    fmt=["e5m2", "e4m3", "fp16", "e3m4"],
    scale=(0, 32),
)

# %% [markdown]
# What counts in the end is what the gradients are for. Multiplied with the activations they give the step of the
# weights. Its error, for each factor and both policies:

# %%
activations = datasets.digits()["activations"].astype(np.float64)
wanted = activations.T @ gradients.astype(np.float64)
exponents = np.arange(0, 34)


def error_of_step(k, fmt, overflow):
    """Relative error of the weights' step if the gradients are scaled by 2**k on their way through `fmt`."""
    scaled = np.ldexp(gradients.astype(np.float64), k)
    with np.errstate(invalid="ignore"):  # infinity times 0 is NaN, as it should be
        step = activations.T @ np.ldexp(fs.quantize(scaled, fmt, overflow=overflow), -k)
    return np.linalg.norm(step - wanted) / np.linalg.norm(wanted)


figure, ax = plt.subplots(figsize=(9, 4), layout="constrained")
for fmt, named_at in [("e4m3", 9), ("e5m2", 2)]:
    for overflow, line in [("saturate_finite", "--"), ("infinity", "-")]:
        errors = np.array([error_of_step(k, fmt, overflow) for k in exponents])
        finite = np.isfinite(errors)
        ax.plot(exponents[finite], errors[finite], line, color=plot.colour(fmt), lw=2)
        if not finite.all():
            last = exponents[finite][-1]
            ax.plot(last, errors[finite][-1], "X", color=plot.colour(fmt), ms=9)
            ax.annotate("beyond: NaN", (last, errors[finite][-1]), (10, -2), textcoords="offset points", va="center")
    ax.annotate(fmt.upper(), (named_at, error_of_step(named_at, fmt, "infinity")), (6, 6), textcoords="offset points",
                color=plot.colour(fmt), fontweight="bold")  # fmt: skip
ax.set_yscale("log")
ax.set(xlabel="gradients multiplied by $2^k$", ylabel="relative error of the step", xlim=(0, 33), ylim=(0.02, 1.3))
errors_named = [0.02, 0.05, 0.1, 0.2, 0.5, 1]
ax.set_yticks(errors_named, [f"{100 * error:g} %" for error in errors_named])
ax.set_yticks([], minor=True)
ax.grid(alpha=0.25)
ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# In the valley the error is that of the significand's few bits, and E4M3, with one bit more, is the better format
# although some gradients are still lost: they were small. To the right, one policy ends in NaN at the first number
# that overflows. The other (dashed) goes on, and gets worse without saying so. Choosing the factor by rule is what
# *loss scaling* and the scaling recipes of FP8 training do.
#
# ## What to remember
#
# - Three borders at the small end: smallest normal, smallest subnormal, and half of that. Between the first two,
#   precision fades; only below the last do numbers vanish.
# - FTZ moves the place where numbers vanish up to the smallest normal number.
# - At the large end ask for the policy: infinity, NaN, or the largest number.
# - A power of two moves a tensor along the range for free. It widens nothing.
#
# Next: [4. Why do two right kernels differ?](04_orders.ipynb)

# %% [markdown]
# ## Exercises
#
# **Exercise 1.** Find the smallest positive number that FP16 does *not* round to zero (ties to even). How does it
# compare with the smallest normal and the smallest subnormal number? What changes under `rounding="toward_positive"`?
#
# **Exercise 2.** Which power of two, multiplied to the gradients, loses the fewest of them in E4M3, counting both
# ends? And in E5M2?
#
# **Exercise 3.** Count all pairs of positive E4M3 numbers x > y for which x - y is zero, with and without FTZ.

# %% [markdown]
# <details>
# <summary>Solution 1</summary>
#
# Half the smallest subnormal number is a tie, and goes to zero, the even neighbour. The next larger float64 number
# does not.
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
# Toward positive, nothing positive is ever rounded to zero:
#
# ```python
# >>> print(fs.quantize(5e-324, "fp16", rounding="toward_positive"))
# 5.960464477539063e-08
# ```
#
# </details>

# %% [markdown]
# <details>
# <summary>Solution 2</summary>
#
# `plot.fates` gives the shares that the picture draws.
#
# ```python
# >>> def lost(k, fmt):
# ...     fate = plot.fates(np.ldexp(gradients.astype(np.float64), k), fmt)
# ...     return fate.flushed + fate.overflowed
# >>> for fmt in ["e4m3", "e5m2"]:
# ...     best = min(range(40), key=lambda k: lost(k, fmt))
# ...     print(f"{fmt}: 2^{best} loses {lost(best, fmt):.2%}, 2^0 loses {lost(0, fmt):.2%}")
# e4m3: 2^23 loses 5.20%, 2^0 loses 100.00%
# e5m2: 2^26 loses 0.00%, 2^0 loses 87.69%
# ```
#
# The fewest lost need not be the smallest error: the largest gradients matter most, and an overflow is not a small
# thing.
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
# ```
#
# </details>

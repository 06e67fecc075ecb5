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
# # 2. Which rounding modes are biased?
#
# A number that a format does not have lies between two numbers that it has. A [*rounding
# mode*](../docs/glossary.md#rounding-mode) chooses one of them. One choice has little effect, but a computation makes
# millions of them. This notebook shows seven rounding modes, finds out which of them are biased, and ends with
# [stochastic rounding](../docs/glossary.md#stochastic-rounding), which is correct on average.
#
# It follows [notebook 1](01_bits.ipynb) about the numbers of a format.

# %%
try:
    import matplotlib.pyplot as plt
    import numpy as np
    from IPython.display import Markdown

    import floatsim as fs
    from floatsim import plot
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"This notebook needs {missing.name}. In a clone of floatsim's repository: "
        "pip install -e '.[notebooks]', then restart the kernel."
    ) from None

# %% [markdown]
# ## A weight that does not change
#
# Training a network is a long series of small steps: a weight near 1 changes by a thousandth, again and again. Here it
# is stored in BF16, and rounded after each step in the default mode of IEEE 754, to the nearest number:

# %%
steps = 1000
weight = fs.array([1.0], "bf16")
step = fs.array([0.001], "bf16")
for _ in range(steps):
    weight = fs.add(weight, step)
Markdown(
    f"After {steps} steps of {step.values[0]:.6f} the weight is **{weight.values[0]}**. "
    f"It should be {1 + steps * step.values[0]:.4f}."
)

# %% [markdown]
# No step changed the weight. Every result is correct: it is the nearest number. The end of this notebook gives a
# remedy. First, the rounding modes.
#
# ## Six rounding modes
#
# E2M1 has so few numbers that a picture shows them all. The x axis is the number, the y axis the rounded result. A dot
# marks the result where a step begins or ends. The dashed line is the number without rounding.

# %%
figure, axes = plt.subplots(2, 3, figsize=(12, 7.6), layout="constrained")
for ax, rounding in zip(axes.flat, list(fs.Rounding)[:6], strict=True):
    plot.staircase("e2m1", rounding=rounding, limits=(-3, 3), ax=ax)

# %% [markdown]
# - **[Ties](../docs/glossary.md#ties) to even** and **ties to away** take the *nearest* number. Their steps lie around
#   the dashed line. They differ only at the dots.
# - **Toward zero** truncates: it drops the digits that do not fit. Its steps lie below the line on the right and above
#   it on the left, so every magnitude decreases.
# - **Toward positive** always rounds up, **toward negative** always rounds down.
# - **[To odd](../docs/glossary.md#round-to-odd)** takes the neighbour whose last bit is 1. Exercise 1 shows its use.
#
# IEEE 754 (2019, section 4.3) defines the first five, with ties to even as the default for binary formats. The
# abbreviation RTN means *toward negative* here and in much code. Papers on
# [quantization](../docs/glossary.md#quantization) write RTN for "round to nearest".
#
# The same for other formats and modes:

# %%
plot.explore(
    lambda format, rounding: plot.staircase(format, rounding=rounding, limits=(-3, 3)),
    format=["e2m3", "e2m1", "e3m2", "e5m2"],
    rounding=[rounding.name.lower() for rounding in fs.Rounding],
)

# %% [markdown]
# ## Ties
#
# A tie lies exactly half-way, so both neighbours are nearest. At school, a half is rounded up or away from zero. A bank
# that rounds all half cents in one direction gains or loses money. *Ties to even* takes the neighbour whose last bit is
# 0, which is alternately the upper and the lower one:

# %%
ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5])
print("tie       ", *(f"{x:6}" for x in ties), "  sum of all errors")
for rounding in ("ties_to_even", "ties_to_away", "toward_zero"):
    rounded = fs.quantize(ties, "e2m1", rounding=rounding)
    print(f"{rounding:12}", *(f"{x:6}" for x in rounded), f"  {np.sum(rounded - ties):+}")

# %% [markdown]
# Ties are frequent. The sum of two numbers of a format often needs exactly one bit more than the format has: a tie. The
# next cell counts them among all sums of two positive E4M3 numbers, and among sums of two random FP16 numbers:

# %%
values = fs.decode(fs.E4M3.codes(), "e4m3")
values = values[values > 0]
sums = np.add.outer(values, values)  # exact in float64
sums = sums[sums <= fs.E4M3.max]
rng = np.random.default_rng(0)
pairs = fs.array(rng.uniform(1, 2, (2, 100_000)), "fp16").values


def is_tie(x, fmt):
    """Half-way between its neighbours."""
    down, up = (fs.quantize(x, fmt, rounding=rounding) for rounding in ("toward_negative", "toward_positive"))
    return (up > down) & (x - down == up - x)


cases = [("two E4M3 numbers", sums, "e4m3"), ("two FP16 numbers between 1 and 2", pairs.sum(axis=0), "fp16")]
for name, x, fmt in cases:
    inexact = fs.quantize(x, fmt) != x
    tie = is_tie(x, fmt)
    print(f"sums of {name}: {inexact.mean():.1%} are inexact, and of these {tie.sum() / inexact.sum():.1%} are ties")

# %% [markdown]
# ## Bias
#
# The next picture shows the errors of many roundings in [*ulps*](../docs/glossary.md#ulp): the unit is the gap between
# neighbouring numbers. The mean error of an unbiased mode is zero. These are twenty thousand numbers between 1 and 2,
# rounded to BF16:

# %%
x = rng.uniform(1, 2, 20_000)
ax = plot.rounding_errors(x, "bf16")

# %% [markdown]
# To nearest, errors are at most half an ulp and their mean is near zero (this is a sample). Toward zero, errors of
# positive numbers are negative, up to a whole ulp, and half an ulp **on average**. Errors of rounding to odd and of
# stochastic rounding are also up to a whole ulp, but their mean is near zero.
#
# Truncation and rounding to nearest differ in the same way. Dropping the lower half of an FP32 number gives a BF16
# number. This is cheap, and some texts claim that it has no disadvantage:

# %%
x = rng.standard_normal(1_000_000).astype(np.float32)
x = x[x != 0]
exact = x.astype(np.float64)
for name, rounding in [("truncated", "toward_zero"), ("rounded to nearest", "ties_to_even")]:
    y = fs.quantize(x, "bf16", rounding=rounding).astype(np.float64)
    relative = (np.abs(y) - np.abs(exact)) / np.abs(exact)
    print(f"{name}: largest error {np.abs(relative).max():.3%}, mean change of the magnitude {relative.mean():+.4%}")
truncated, near = (fs.quantize(x, "bf16", rounding=rounding) for rounding in ("toward_zero", "ties_to_even"))
print(f"results that differ: {np.mean(truncated != near):.1%}")

# %% [markdown]
# Truncation doubles the largest error, and makes the magnitudes smaller on average. Rounding to nearest does not.
#
# ## The effect of a bias in long sums
#
# Errors of both signs partly cancel, errors of one sign add up. Here the sum of
# random numbers is rounded after each addition, and compared with the exact sum:

# %%
n = 2000
terms = fs.array(rng.uniform(0, 1, n), "fp16")
exact = np.cumsum(terms.values)  # exact in float64: few bits each
figure, ax = plt.subplots(figsize=(9, 4), layout="constrained")
styles = {"ties_to_even": "-", "toward_positive": "--", "toward_zero": "-."}
for rounding, line in styles.items():
    total, path = fs.array([0.0], "fp16"), []
    for term in terms:
        total = fs.add(total, term, rounding=rounding)
        path.append(total.values[0])
    ax.plot(np.array(path) - exact, line, color=plot.colour("fp16"), lw=2)
    ax.annotate(rounding.replace("_", " "), (n, path[-1] - exact[-1]), (5, 0), textcoords="offset points", va="center")
ax.plot([0, n], [0, 0], color=plt.rcParams["text.color"], lw=0.8)
ax.set(xlim=(0, n * 1.2), ylabel="error of the FP16 sum")
ax.set_xlabel("numbers added", x=0.5 / 1.2)  # below the middle of the line, which ends before the words
ax.set_xticks(range(0, n + 1, n // 4))
ax.spines[["top", "right"]].set_visible(False)
ax.spines["bottom"].set_bounds(0, n)

# %% [markdown]
# The errors of the directed modes grow, with opposite signs. Interval arithmetic uses this: a sum rounded down and a
# sum rounded up are bounds of the exact sum (exercise 3). [Notebook 4](04_orders.ipynb) is about sums.
#
# ## Stochastic rounding
#
# *Stochastic* rounding takes the upper neighbour with a probability that depends on the distance. A number three
# quarters of the way up is rounded up with probability 3/4. In the picture, the stronger colour is more probable:

# %%
ax = plot.staircase("e2m1", rounding="stochastic", limits=(0, 3))

# %% [markdown]
# No result is better than the nearest number. But the **mean** of many results is correct, also between the numbers of
# the format:

# %%
print("x       nearest   mean of 100,000 stochastic roundings to E2M1")
for x in (0.1, 0.25, 0.7, 1.3, 2.9):
    results = fs.quantize(np.full(100_000, x), "e2m1", rounding="stochastic", seed=1)
    print(f"{x:<7} {fs.quantize(x, 'e2m1'):<9} {results.mean():.4f}")

# %% [markdown]
# The `seed` fixes every random draw: the same [seed](../docs/glossary.md#seed) gives the same results, on any machine
# and in any order. This is floatsim's definition, see [Conventions](../docs/conventions.md#stochastic-rounding).
# Hardware differs: by NVIDIA's PTX documentation, its stochastic conversions (`cvt.rs`) take the random bits as an
# operand.
#
# ## The weight with stochastic rounding
#
# The weight from the beginning, once to nearest and twenty times with stochastic rounding. A `RandomStream` gives new
# draws to each step:

# %% tags=["picture"]
runs = 20
nearest, random = fs.array([1.0], "bf16"), fs.array(np.ones(runs), "bf16")
stream = fs.RandomStream(2)
paths = [(nearest.values[0], random.values)]
for _ in range(steps):
    nearest = fs.add(nearest, step)
    random = fs.add(random, step, rounding="stochastic", seed=stream)
    paths.append((nearest.values[0], random.values))
flat, random = (np.array(part) for part in zip(*paths, strict=True))
exact = 1 + np.arange(steps + 1) * step.values[0]

figure, ax = plt.subplots(figsize=(10, 5), layout="constrained")
ax.plot(random, color=plot.colour("bf16"), lw=1, alpha=0.35)
ax.plot(random.mean(axis=1), color=plot.colour("bf16"), lw=3)
ink = plt.rcParams["text.color"]
ax.plot(flat, color=ink, lw=3)
ax.plot(exact, color=ink, lw=1.2, ls=(0, (4, 3)))
ends = [
    (random[-1].mean(), f"stochastic: {runs} runs,\nthick: their mean"),
    (flat[-1], "to nearest:\nno step changes it"),
    (exact[-1], "dashed: exact"),
]
for y, words in ends:
    up = words == "dashed: exact" and exact[-1] >= random[-1].mean()
    ax.annotate(
        words, (steps, y), (8, 12 if up else -12 if "thick" in words else 0), textcoords="offset points", va="center"
    )
ax.set(xlim=(0, steps * 1.25), ylabel="weight, in BF16")
ax.set_xlabel("steps", x=0.5 / 1.25)  # below the middle of the line, which ends before the words
ax.set_xticks(range(0, steps + 1, steps // 5))
ax.set_title(f"The same step of {step.values[0]:.6f}, {steps} times, with two rounding modes")
ax.spines[["top", "right"]].set_visible(False)
ax.spines["bottom"].set_bounds(0, steps)

# %%
gap = fs.ulp(1.0, "bf16").item()
share = step.values[0] / gap
Markdown(
    f"The gap above 1 is {gap} in BF16, and a step is {share:.3f} of it. That is less than half, so the nearest number "
    "is always the present weight. Stochastic rounding moves the weight about once in "
    f"{1 / share:.0f} steps, by one gap."
)

# %% [markdown]
# The more common remedy is to keep the weights in FP32 beside the BF16 ones ([master
# weights](../docs/glossary.md#master-weights)). It does **not** help to multiply all numbers by a common factor,
# because the gaps grow by the same factor.
#
# ## What to remember
#
# - To nearest, ties to even: small errors, and no bias over many different numbers. It is the default. But a small
#   step that is lost once is lost every time.
# - Truncation has a bias of half an ulp toward zero.
# - Rounding up and rounding down give bounds.
# - Stochastic rounding has larger errors and no bias: on average, small steps have their full effect.
#
# Next: [3. What happens at both ends?](03_ends.ipynb)

# %% [markdown]
# ## Exercises
#
# **Exercise 1.** Rounding twice can differ from rounding once. Find a number whose E4M3 result changes when it is first
# rounded to FP16. Does it help if the first rounding is *to odd*?
#
# **Exercise 2.** Which modes are symmetric, so that rounding -x gives minus the rounded x? Guess from the pictures,
# then verify.
#
# **Exercise 3.** Enclose the sum 1 + 1/2 + 1/3 + ... + 1/100 between two FP16 numbers, using FP16 operations only.

# %% [markdown]
# ## Check of the answers
#
# Write your answers into the cell below, and run it. It compares them with digests, which do not show the solutions.
#
# - Exercise 1: of the 16 numbers at a distance of 2^-20 from the ties of E4M3 between 1 and 2: how many change, with
#   ties to even and with rounding to odd first, as a list.
# - Exercise 2: the modes that are *not* symmetric, as texts in a list, in alphabetical order.
# - Exercise 3: the lower and the upper bound, as a list.

# %%
DIGESTS = {1: "d0bc85ce3a", 2: "3b95ee20b0", 3: "1fbd99e8e6"}
answers = {1: ..., 2: ..., 3: ...}  # replace each ... by an answer
print(fs.testing.check_answers(answers, DIGESTS))

# %% [markdown]
# <details>
# <summary>Solution 1</summary>
#
# Take a number very close to a tie of E4M3, which FP16 rounds *to* the tie. The second rounding cannot know on which
# side it was. Rounding to odd never gives a tie for a number that is not one: its last bit 1 records that bits were
# lost.
#
# ```python
# >>> x = 1 + 1 / 16 + 2**-20
# >>> once = fs.quantize(x, "e4m3")
# >>> twice = fs.quantize(fs.quantize(x, "fp16"), "e4m3")
# >>> odd_first = fs.quantize(fs.quantize(x, "fp16", rounding="to_odd"), "e4m3")
# >>> print(once, twice, odd_first)
# 1.125 1.0 1.125
# ```
#
# The same for numbers beside all ties between 1 and 2:
#
# ```python
# >>> near = (1 + (2 * np.arange(8) + 1) / 16)[:, None] + np.array([-1, 1]) * 2.0**-20
# >>> once = fs.quantize(near, "e4m3")
# >>> for rounding in ["ties_to_even", "to_odd"]:
# ...     twice = fs.quantize(fs.quantize(near, "fp16", rounding=rounding), "e4m3")
# ...     print(rounding, "wrong:", int(np.sum(once != twice)), "of", near.size)
# ties_to_even wrong: 8 of 16
# to_odd wrong: 0 of 16
# >>> print(fs.testing.check_answers({1: [8, 0]}, DIGESTS))
# exercise 1: correct
# ```
#
# </details>

# %% [markdown]
# <details>
# <summary>Solution 2</summary>
#
# All except the two that depend on the sign. (Stochastic rounding rounds the magnitude, so with the same draws it is
# symmetric.)
#
# ```python
# >>> x = np.random.default_rng(3).uniform(-5, 5, 10_000)
# >>> for rounding in fs.Rounding:
# ...     plus, minus = (fs.quantize(y, "e2m1", rounding=rounding, seed=0) for y in (x, -x))
# ...     print(f"{rounding.name.lower():16} {np.array_equal(minus, -plus)}")
# ties_to_even     True
# ties_to_away     True
# toward_zero      True
# toward_positive  False
# toward_negative  False
# to_odd           True
# stochastic       True
# >>> print(fs.testing.check_answers({2: ["toward_negative", "toward_positive"]}, DIGESTS))
# exercise 2: correct
# ```
#
# </details>

# %% [markdown]
# <details>
# <summary>Solution 3</summary>
#
# Every operation of the lower bound rounds down, including the divisions. Every operation of the upper bound rounds up.
#
# ```python
# >>> def harmonic(rounding):
# ...     total = fs.array([0.0], "fp16")
# ...     for k in range(1, 101):
# ...         term = fs.divide(fs.array([1.0], "fp16"), fs.array([float(k)], "fp16"), rounding=rounding)
# ...         total = fs.add(total, term, rounding=rounding)
# ...     return float(total.values[0])
# >>> low, high = harmonic("toward_negative"), harmonic("toward_positive")
# >>> print(low, sum(1 / k for k in range(1, 101)), high)
# 5.02734375 5.187377517639621 5.34375
# >>> print(fs.testing.check_answers({3: [5.02734375, 5.34375]}, DIGESTS))
# exercise 3: correct
# ```
#
# </details>

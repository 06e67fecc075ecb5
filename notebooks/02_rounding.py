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
# # 2. Who rounds, and who is biased?
#
# A number that a format does not have lies between two that it has. Somebody must choose. A single choice hardly
# matters; a habit does, because a computation makes millions of choices. This page shows the habits that there are,
# finds out which of them are fair, and ends with one that throws dice and is right on average.
#
# It follows [notebook 1](01_bits.ipynb), which tells what the numbers of a format are.

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
# ## A learner that does not learn
#
# Training a network is a long series of small steps: a weight near 1 moves by a thousandth, again and again. Here it
# is stored in BF16, and rounded after each step as IEEE 754 has it by default, to the nearest number:

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
# Not a single step was taken. No step was *wrong*, either: each time the nearest number was chosen. The end of this
# page repairs it. First, the choices.
#
# ## Six habits, as staircases
#
# E2M1 has so few numbers that all can be seen. Along the bottom, every number; up the side, what it becomes. A dot
# marks where exactly the step begins or ends, and the dashed line is no rounding at all.

# %%
figure, axes = plt.subplots(2, 3, figsize=(12, 7.6), layout="constrained")
for ax, rounding in zip(axes.flat, list(fs.Rounding)[:6], strict=True):
    plot.staircase("e2m1", rounding=rounding, limits=(-3, 3), ax=ax)

# %% [markdown]
# - **Ties to even** and **ties to away** go to the *nearest* number. Their steps lie around the dashed line; they
#   differ in the dots only.
# - **Toward zero** cuts digits off. Its steps lie below the line on the right, and above it on the left: everything
#   shrinks.
# - **Toward positive** always goes up, **toward negative** always down.
# - **To odd** goes to the neighbour whose last bit is 1. It looks odd, and has one use, which exercise 1 shows.
#
# IEEE 754 (2019, section 4.3) names the first five and makes ties to even the default for binary formats. RTN, which
# one meets in code, is short for *toward negative*; it is not "round to nearest".
#
# Other formats, other habits:

# %%
plot.explore(
    lambda fmt, rounding: plot.staircase(fmt, rounding=rounding, limits=(-3, 3)),
    fmt=["e2m1", "e2m3", "e3m2", "e5m2"],
    rounding=[rounding.name.lower() for rounding in fs.Rounding],
)

# %% [markdown]
# ## Ties
#
# A tie lies exactly half-way, so "nearest" does not decide. At school a half goes up, or away from zero; a bank that
# rounds all its half cents in one direction moves money. *Ties to even* takes the neighbour whose last bit is 0,
# which is up one time and down the next:

# %%
ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5])
print("tie       ", *(f"{x:6}" for x in ties), "  sum of all errors")
for rounding in ("ties_to_even", "ties_to_away", "toward_zero"):
    rounded = fs.quantize(ties, "e2m1", rounding=rounding)
    print(f"{rounding:12}", *(f"{x:6}" for x in rounded), f"  {np.sum(rounded - ties):+}")

# %% [markdown]
# Ties are not rare. Add two numbers of a format, and the result often needs just one bit more than there is: a tie.
# All sums of two positive E4M3 numbers, and of two random FP16 numbers:

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
    print(
        f"sums of {name}: {inexact.mean():.1%} must be rounded, and of these {tie.sum() / inexact.sum():.1%} are ties"
    )

# %% [markdown]
# ## Bias
#
# Round many numbers and look at the errors, in *ulps*: the gap between neighbours at that place. An unbiased habit
# errs as often up as down. Twenty thousand numbers between 1 and 2, to BF16:

# %%
x = rng.uniform(1, 2, 20_000)
ax = plot.rounding_errors(x, "bf16")

# %% [markdown]
# To the nearest, errors stay within half an ulp and have mean zero, or nearly (a sample is a sample). Toward zero,
# they reach a whole ulp and are half an ulp **on average**, always in the same direction. To odd and stochastic
# rounding make errors as large, but the mean is zero again.
#
# This is the difference between cutting and rounding. An FP32 number can be made a BF16 one by cutting its lower half
# off, which is cheap, and is sometimes said to cost nothing:

# %%
x = rng.standard_normal(1_000_000).astype(np.float32)
x = x[x != 0]
exact = x.astype(np.float64)
for name, rounding in [("cut off", "toward_zero"), ("rounded", "ties_to_even")]:
    y = fs.quantize(x, "bf16", rounding=rounding).astype(np.float64)
    relative = (np.abs(y) - np.abs(exact)) / np.abs(exact)
    print(f"{name}: largest error {np.abs(relative).max():.3%}, mean change of the size {relative.mean():+.4%}")
cut, near = (fs.quantize(x, "bf16", rounding=rounding) for rounding in ("toward_zero", "ties_to_even"))
print(f"results that differ: {np.mean(cut != near):.1%}")

# %% [markdown]
# Cutting doubles the largest error and makes every number a little smaller; rounding does not.
#
# ## What a bias does in the long run
#
# Errors that go up and down partly cancel; errors in one direction add up. Round a running total of random numbers
# after each addition, and compare with the exact total:

# %%
n = 2000
terms = fs.array(rng.uniform(0, 1, n), "fp16")
exact = np.cumsum(terms.values)  # exact in float64: few bits each
figure, ax = plt.subplots(figsize=(9, 4), layout="constrained")
habits = {"ties_to_even": "-", "toward_positive": "--", "toward_zero": "-."}
for rounding, line in habits.items():
    total, path = fs.array([0.0], "fp16"), []
    for term in terms:
        total = fs.add(total, term, rounding=rounding)
        path.append(total.values[0])
    ax.plot(np.array(path) - exact, line, color=plot.colour("fp16"), lw=2)
    ax.annotate(rounding.replace("_", " "), (n, path[-1] - exact[-1]), (5, 0), textcoords="offset points", va="center")
ax.plot([0, n], [0, 0], color="black", lw=0.8)
ax.set(xlim=(0, n * 1.2), ylabel="error of the FP16 total")
ax.set_xlabel("numbers added", x=0.5 / 1.2)  # below the middle of the line, which ends before the words
ax.set_xticks(range(0, n + 1, n // 4))
ax.spines[["top", "right"]].set_visible(False)
ax.spines["bottom"].set_bounds(0, n)

# %% [markdown]
# The directed habits drift away, on opposite sides. Interval arithmetic turns that to use: a total rounded down and
# one rounded up are proof of where the true one lies (exercise 3). [Notebook 4](04_orders.ipynb) is about sums.
#
# ## Dice
#
# *Stochastic* rounding chooses the upper neighbour with a probability that is the fraction of the way to it. A number
# three quarters of the way up goes up three times out of four. Here, darker is more probable:

# %%
ax = plot.staircase("e2m1", rounding="stochastic", limits=(0, 3))

# %% [markdown]
# Each result is worse than the nearest number, or as good. The **mean** of many is right, even between the numbers of
# the format:

# %%
print("x       nearest   mean of 100,000 stochastic roundings to E2M1")
for x in (0.1, 0.25, 0.7, 1.3, 2.9):
    dice = fs.quantize(np.full(100_000, x), "e2m1", rounding="stochastic", seed=1)
    print(f"{x:<7} {fs.quantize(x, 'e2m1'):<9} {dice.mean():.4f}")

# %% [markdown]
# The dice are loaded with a `seed`: the same seed gives the same results, on any machine and in any order. That is
# floatsim's definition, written in [Conventions](../docs/conventions.md#stochastic-rounding); hardware differs: by
# NVIDIA's PTX documentation, its stochastic conversions (`cvt.rs`) take the random bits as an operand, from whoever
# wrote the program.
#
# ## The learner, repaired
#
# The weight from the beginning, once to the nearest and twenty times with dice:

# %% tags=["picture"]
runs = 20
nearest, dice = fs.array([1.0], "bf16"), fs.array(np.ones(runs), "bf16")
stream = fs.RandomStream(2)
paths = [(nearest.values[0], dice.values)]
for _ in range(steps):
    nearest = fs.add(nearest, step)
    dice = fs.add(dice, step, rounding="stochastic", seed=stream)
    paths.append((nearest.values[0], dice.values))
flat, random = (np.array(part) for part in zip(*paths, strict=True))
wanted = 1 + np.arange(steps + 1) * step.values[0]

figure, ax = plt.subplots(figsize=(10, 5), layout="constrained")
ax.plot(random, color=plot.colour("bf16"), lw=1, alpha=0.35)
ax.plot(random.mean(axis=1), color=plot.colour("bf16"), lw=3)
ax.plot(flat, color=plot.LOST_COLOUR, lw=3)
ax.plot(wanted, color="black", lw=1.2, ls=(0, (4, 3)))
ends = [
    (random[-1].mean(), f"stochastic: {runs} runs,\nthick: their mean"),
    (flat[-1], "to the nearest:\nno step was ever taken"),
    (wanted[-1], "dashed: exact"),
]
for y, words in ends:
    up = words == "dashed: exact" and wanted[-1] >= random[-1].mean()
    ax.annotate(
        words, (steps, y), (8, 12 if up else -12 if "thick" in words else 0), textcoords="offset points", va="center"
    )
ax.set(xlim=(0, steps * 1.25), ylabel="weight, in BF16")
ax.set_xlabel("steps", x=0.5 / 1.25)  # below the middle of the line, which ends before the words
ax.set_xticks(range(0, steps + 1, steps // 5))
ax.set_title(f"The same step of {step.values[0]:.6f}, {steps} times: who rounds decides whether anything is learned")
ax.spines[["top", "right"]].set_visible(False)
ax.spines["bottom"].set_bounds(0, steps)

# %%
gap = fs.ulp(1.0, "bf16").item()
share = step.values[0] / gap
Markdown(
    f"The gap above 1 is {gap} in BF16, and a step is {share:.3f} of it. That is less than half, so the nearest number "
    f"is always where one stands. With dice a step is taken about once in {1 / share:.0f} times, a whole gap at once."
)

# %% [markdown]
# Keeping the weights in FP32 beside the BF16 ones ("master weights") is the other, more common repair. What does
# **not** help is to make all numbers larger by a common factor: the gap grows with them.
#
# ## What to remember
#
# - To the nearest, ties to even: small errors, no bias. The default, for good reason.
# - Cutting off is biased by half an ulp, every time, towards zero.
# - Up and down make bounds.
# - Stochastic rounding has larger errors and no bias: on average, small steps count for what they are.
#
# Next: [3. What happens at both ends?](03_ends.ipynb)

# %% [markdown]
# ## Exercises
#
# **Exercise 1.** Rounding twice is not rounding once. Find a number that becomes one E4M3 number when it is rounded
# directly, and another when it is first rounded to FP16. Does it help if the first rounding is *to odd*?
#
# **Exercise 2.** Which habits treat positive and negative numbers alike, so that rounding -x gives minus the rounded
# x? Guess from the staircases, then check.
#
# **Exercise 3.** Enclose the sum 1 + 1/2 + 1/3 + ... + 1/100 between two FP16 numbers, using FP16 operations only.

# %% [markdown]
# <details>
# <summary>Solution 1</summary>
#
# Take a number just beside a tie of E4M3, so near that FP16 rounds it *onto* the tie; then the second rounding has
# forgotten on which side it was. To odd never lands on a tie from outside: it leaves a last bit 1 as a note that
# something was lost.
#
# ```python
# >>> x = 1 + 1 / 16 + 2**-20
# >>> once = fs.quantize(x, "e4m3")
# >>> twice = fs.quantize(fs.quantize(x, "fp16"), "e4m3")
# >>> with_a_note = fs.quantize(fs.quantize(x, "fp16", rounding="to_odd"), "e4m3")
# >>> print(once, twice, with_a_note)
# 1.125 1.0 1.125
# ```
#
# Now for many numbers, next to all ties between 1 and 2:
#
# ```python
# >>> near = (1 + (2 * np.arange(8) + 1) / 16)[:, None] + np.array([-1, 1]) * 2.0**-20
# >>> once = fs.quantize(near, "e4m3")
# >>> for rounding in ["ties_to_even", "to_odd"]:
# ...     twice = fs.quantize(fs.quantize(near, "fp16", rounding=rounding), "e4m3")
# ...     print(rounding, "wrong:", int(np.sum(once != twice)), "of", near.size)
# ties_to_even wrong: 8 of 16
# to_odd wrong: 0 of 16
# ```
#
# </details>

# %% [markdown]
# <details>
# <summary>Solution 2</summary>
#
# All but the two that know up from down. (Stochastic rounding rounds the magnitude, so with the same dice it does,
# too.)
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
# ```
#
# </details>

# %% [markdown]
# <details>
# <summary>Solution 3</summary>
#
# Every operation of the lower bound rounds down, the divisions too; every one of the upper bound rounds up.
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
# ```
#
# </details>

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
# # 13. When is a wrong result the fault of the formula?
#
# A short formula can lose every digit although each of its operations is correct to the last bit. Sometimes another
# formula repairs it. Sometimes no formula can, because the inputs were rounded before. This notebook shows both, and
# how to tell them apart:
#
# 1. [A difference that keeps only errors](#A-difference-that-keeps-only-errors)
# 2. [The quadratic formula](#The-quadratic-formula)
# 3. [The area of a thin triangle](#The-area-of-a-thin-triangle)
# 4. [Formula or problem: the condition number](#Formula-or-problem:-the-condition-number)
# 5. [A variance below zero](#A-variance-below-zero)
#
# It follows [notebook 2](02_rounding.ipynb) (rounding). No GPU is needed.

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


def table(head, rows):
    """A table of texts, shown as Markdown."""
    return Markdown("\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)))


def relative(result, exact):
    """The relative error of each element."""
    return np.abs(np.asarray(result, float) / exact - 1)


# %% [markdown]
# ## A difference that keeps only errors
#
# The difference of two close numbers of a format is exact (Sterbenz's theorem: if each is at most twice the other). The
# danger is in the numbers themselves: their leading digits [cancel](../docs/glossary.md#cancellation), and what remains
# are their earlier errors. The next cell computes (1 + x) - 1 in FP16 for small x:

# %%
rows = []
for x in (0.1, 0.01, 0.001, 0.0006, 0.0004):
    one, small = fs.array(1.0, "fp16"), fs.array(x, "fp16")
    total = fs.add(one, small)
    difference = fs.subtract(total, one)
    rows.append((f"{x:g}", f"{float(total.values):.10g}", f"{float(difference.values):.6g}",
                 f"{float(relative(difference.values, x)):.0%}"))  # fmt: skip
table(("x", "1 + x", "(1 + x) - 1", "relative error"), rows)

# %% [markdown]
# The subtraction adds no error in any row. The addition rounded x to the gap at 1, and the subtraction makes this
# visible.
#
# ## The quadratic formula
#
# The equation x² + b x + 1 = 0 has the root (-b + √(b² - 4)) / 2. For a large b, the root of b² - 4 is close to b, and
# the difference cancels. The product of both roots is 1, so the same root is 2 / (-b - √(b² - 4)), which has no
# difference:


# %%
def roots(b, fmt):
    """The root of x² + b x + 1 that is near 0, by both formulas, with every operation rounded to a format."""
    b, two, four = (fs.array(x, fmt) for x in (b, 2.0, 4.0))
    root = fs.sqrt(fs.subtract(fs.multiply(b, b), four))
    textbook = fs.divide(fs.subtract(root, b), two)
    other = fs.divide(two, fs.subtract(fs.negative(b), root))
    return textbook, other


b = np.unique(np.round(2.0 ** np.arange(1.2, 7.9, 0.05), 1))
figure, ax = plt.subplots(figsize=(9.5, 4.4), layout="constrained")
for fmt in ("bf16", "fp16", "fp32"):
    stored = np.asarray(fs.array(b, fmt).values, float)  # the equation whose coefficients the format has
    exact = -2 / (stored + np.sqrt(stored**2 - 4))
    for found, line, words in zip(roots(b, fmt), ("-", ":"), ("textbook", "other"), strict=True):
        errors = np.maximum(relative(found.values, exact), 1e-9)
        ax.loglog(b, errors, line, color=plot.colour(fmt), lw=1.6, label=f"{fmt.upper()}, {words} formula")
ax.set(xlabel="b", ylabel="relative error of the small root", ylim=(1e-9, 3))
ax.set_xticks([2, 4, 8, 16, 32, 64, 128, 256], ["2", "4", "8", "16", "32", "64", "128", "256"])
ax.set_xticks([], minor=True)
title = "The textbook formula loses all digits, the other formula none"
ax.set_title(title, loc="left", fontweight="bold", wrap=True)
ax.legend(frameon=False, ncols=1, loc="center left", bbox_to_anchor=(1, 0.5))
ax.grid(alpha=0.25)
ax.spines[["top", "right"]].set_visible(False)

# %%
rows = []
for value in (10.0, 100.0, 200.0, 300.0):
    for fmt in ("bf16", "fp16", "fp32"):
        (textbook, other), exact = roots(value, fmt), -2 / (value + np.sqrt(value**2 - 4))
        rows.append((f"{value:g}", fmt.upper(), *(f"{float(x.values):.6g}" for x in (textbook, other)), f"{exact:.6g}"))
table(("b", "format", "textbook formula", "other formula", "exact"), rows)

# %% [markdown]
# With b = 300, b² is beyond the largest number of FP16, and both formulas fail. This is another failure,
# [overflow](../docs/glossary.md#overflow), and needs another repair: a scale.
#
# ## The area of a thin triangle
#
# Heron's formula has the area of a triangle from its sides: the root of s (s - a) (s - b) (s - c), where s is half the
# sum of the sides. For a thin triangle, s - a is small, and s was rounded before. W. Kahan ordered the sides, a ≥ b ≥
# c, and changed the brackets so that only the given numbers are subtracted from one another:


# %%
def heron(a, b, c, fmt):
    """Heron's formula, with every operation rounded."""
    a, b, c, half = (fs.array(x, fmt) for x in (a, b, c, 0.5))
    s = fs.multiply(fs.add(fs.add(a, b), c), half)
    factors = (fs.subtract(s, side) for side in (a, b, c))
    product = s
    for factor in factors:
        product = fs.multiply(product, factor)
    return fs.sqrt(product)


def kahan(a, b, c, fmt):
    """Kahan's formula for a >= b >= c. The brackets matter."""
    a, b, c, quarter = (fs.array(x, fmt) for x in (a, b, c, 0.25))
    product = fs.add(a, fs.add(b, c))
    for factor in (fs.subtract(c, fs.subtract(a, b)), fs.add(c, fs.subtract(a, b)), fs.add(a, fs.subtract(b, c))):
        product = fs.multiply(product, factor)
    return fs.multiply(quarter, fs.sqrt(product))


def exact_area(a, b, c):
    """The area in extended precision, from exact products."""
    from decimal import Decimal, getcontext

    getcontext().prec = 60
    a, b, c = sorted(map(Decimal, (a, b, c)), reverse=True)
    product = (a + (b + c)) * (c - (a - b)) * (c + (a - b)) * (a + (b - c))
    return float(product.sqrt() / 4)


heights = 2 ** np.arange(1, 23) + 1.0  # odd, so that the sum of the sides needs one bit more
figure, ax = plt.subplots(figsize=(9, 4), layout="constrained")
for fmt in ("bf16", "fp16", "fp32"):
    gap = float(fs.ulp(1.0, fmt))
    thin = [gap * n for n in heights if gap * n < 1]  # b - 1
    sides = [(2.0, 1 + x, 1 + x) for x in thin]
    for formula, line in ((heron, "-"), (kahan, ":")):
        errors = [max(float(relative(formula(*each, fmt).values, exact_area(*each))), 1e-9) for each in sides]
        name = f"{fmt.upper()}, {formula.__name__.capitalize()}"
        ax.loglog([2 * x for x in thin], errors, line, color=plot.colour(fmt), lw=2, label=name)
        print(f"{name}: largest relative error {max(errors):.2g}, in gaps: {max(errors) / gap:.2g}")
ax.set(xlabel="b + c - a, for a = 2 and b = c", ylabel="relative error of the area", ylim=(1e-9, 3))
ax.set_title("A thin triangle: Heron's formula fails, Kahan's does not", loc="left", fontweight="bold", wrap=True)
ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
ax.grid(alpha=0.25)
ax.spines[["top", "right"]].set_visible(False)

# %%
rows = []
for fmt in ("bf16", "fp16", "fp32"):
    u = float(fs.ulp(1.0, fmt))
    for sides in ((2.0, 1 + u, 1 + u), (1.0, 1.0, 2 * u)):
        found = [float(formula(*sides, fmt).values) for formula in (heron, kahan)]
        rows.append((fmt.upper(), f"{sides[0]:g}, {sides[1]:.9g}, {sides[2]:.3g}", *(f"{area:.6g}" for area in found),
                     f"{exact_area(*sides):.6g}"))  # fmt: skip
table(("format", "sides", "Heron", "Kahan", "exact"), rows)

# %% [markdown]
# Kahan's formula has a few roundings of error for every triangle. That is a theorem, which needs only a correct
# subtraction of close numbers. (W. Kahan, "Miscalculating area and angles of a needle-like triangle", 2014.)
#
# ## Formula or problem: the condition number
#
# Is there a better formula for every problem? Change the input by one rounding error, and compute the exact answer of
# the changed problem. If that answer moves far, the *problem* is ill-conditioned: no formula can do better, because it
# cannot know what the input was before it was rounded. The ratio of both changes is the *condition number*. For the
# roots of x² - 2 x + c, it grows without bound as c approaches 1:

# %% tags=["picture"]
distances = np.sort(2.0 ** -np.random.default_rng(0).uniform(1, 18, 200))
c = 1 - distances
exact = 1 - np.sqrt(distances)  # the smaller root
condition = c / (2 * exact * np.sqrt(distances))
figure, ax = plt.subplots(figsize=(9, 4.4), layout="constrained")
for fmt in ("bf16", "fp16", "fp32"):
    stored = fs.array(c, fmt)
    one = fs.array(1.0, fmt)
    found = fs.divide(stored, fs.add(one, fs.sqrt(fs.subtract(one, stored))))  # no difference but that of the inputs
    half_gap = float(fs.ulp(1.0, fmt)) / 4  # of c, which is below 1
    seen = np.asarray(stored.values, float) < 1  # beyond, c has become 1
    ax.loglog(
        distances[seen], relative(found.values, exact)[seen], ".", color=plot.colour(fmt), ms=5, label=fmt.upper()
    )
    ax.loglog(distances[seen], (condition * half_gap)[seen], "--", color=plot.colour(fmt), lw=1.5)
ax.legend(frameon=False)
ax.set(xlabel="1 - c", ylabel="relative error of a root", xlim=(3e-6, 0.5), ylim=(1e-10, 1.5))
title = "A double root: no formula helps (dashed: condition number × half a gap of c)"
ax.set_title(title, loc="left", fontweight="bold", wrap=True)
ax.grid(alpha=0.25)
ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# The formula of this picture has no cancellation but that of the inputs, and its errors follow the dashed lines. So
# they are the fault of the problem. In the two sections before, the condition number was small, and the formula was at
# fault. To ask for the condition first saves the search for a better formula.
#
# ## A variance below zero
#
# Textbooks have two formulas for the variance: the mean of (x - mean)², and the mean of x² minus the square of the
# mean. The second needs one pass over the data only, and is in many programs. Here are 1000 numbers of standard
# deviation 1 around a mean that grows, with sums in FP32:

# %%
rng = np.random.default_rng(0)
noise = rng.normal(size=1000)
rows = []
for mean in (0, 10, 1000, 10_000, 100_000):
    x = fs.array(mean + noise, "fp32")
    average = fs.mean(x, accumulate="fp32")
    one_pass = fs.subtract(fs.mean(fs.multiply(x, x), accumulate="fp32"), fs.multiply(average, average))
    centred = fs.subtract(x, average)
    two_passes = fs.mean(fs.multiply(centred, centred), accumulate="fp32")
    exact = np.var(np.asarray(x.values, float))
    rows.append((f"{mean:,}", *(f"{float(value.values):.6g}" for value in (one_pass, two_passes)), f"{exact:.6g}"))
table(("mean", "mean of squares - square of mean", "mean of (x - mean)²", "exact"), rows)

# %% [markdown]
# A variance below zero makes a standard deviation [NaN](../docs/glossary.md#nan). Layer normalization computes a
# variance for each row, so the choice of formula matters there.
#
# ## What to remember
#
# - A subtraction of close numbers is exact. It uncovers the errors that its operands already have.
# - Another formula can be correct where the first one loses all digits: bring the subtraction to the inputs, or remove
#   it.
# - If a small change of the input moves the exact answer far, no formula helps. Use more bits for the input.
#
# Next: [14. Does the batch size change my bits?](14_batches.ipynb)

# %% [markdown]
# ## Exercises
#
# Write each answer into the cell below, and run it.
#
# **Exercise 1.** Which is the smallest whole b for which the textbook formula returns 0 for the small root in FP16? And
# in BF16? Give both as a list.
#
# **Exercise 2.** Write 1 - cos(x) for small x without a subtraction (half-angle formula), and compute it in FP16 for x
# = 0.03 with `fs.sin` and `fs.multiply`. Give the result of FP16, and compare it with 1 - cos(x) in FP16.
#
# **Exercise 3.** Does `fs.moments` or `fs.var` have the fault of the one-pass formula? Give `fs.var` of the numbers
# with the mean 100,000 in FP32, with three digits.

# %%
DIGESTS = {1: "367c651f19", 2: "d1d5168e60", 3: "7071180d2d"}
answers = {1: ..., 2: ..., 3: ...}  # replace each ... by an answer
print(fs.testing.check_answers(answers, DIGESTS))

# %% [markdown]
# <details>
# <summary>Solution 1</summary>
#
# ```python
# >>> b = np.arange(3.0, 250)
# >>> found = [int(b[np.asarray(roots(b, fmt)[0].values, float) == 0][0]) for fmt in ("fp16", "bf16")]
# >>> found
# [66, 33]
# >>> print(fs.testing.check_answers({1: found}, DIGESTS))
# exercise 1: correct
# ```
#
# The root is zero if 4 is [absorbed](../docs/glossary.md#absorption) by b².
#
# </details>

# %% [markdown]
# <details>
# <summary>Solution 2</summary>
#
# 1 - cos(x) = 2 sin(x/2)².
#
# ```python
# >>> sine = fs.sin(fs.array(0.015, "fp16"))
# >>> better = fs.multiply(fs.array(2.0, "fp16"), fs.multiply(sine, sine))
# >>> plain = fs.subtract(fs.array(1.0, "fp16"), fs.cos(fs.array(0.03, "fp16")))
# >>> print(f"{float(better.values):.4g} {float(plain.values):.4g} exact {1 - np.cos(0.03):.4g}")
# 0.0004499 0.0004883 exact 0.00045
# >>> print(fs.testing.check_answers({2: better}, DIGESTS))
# exercise 2: correct
# ```
#
# </details>

# %% [markdown]
# <details>
# <summary>Solution 3</summary>
#
# ```python
# >>> x = fs.array(100_000 + noise, "fp32")
# >>> variance = fs.var(x)
# >>> print(f"{float(np.asarray(variance, float)):.4g}")
# 0.9557
# >>> print(fs.testing.check_answers({3: variance}, DIGESTS))
# exercise 3: correct
# ```
#
# It has not: it subtracts the mean first.
#
# </details>

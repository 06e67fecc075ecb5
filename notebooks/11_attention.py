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
# # 11. Where does attention overflow, and where does its output vanish?
#
# Attention multiplies queries with keys, takes a softmax of each row of scores, and averages the values with it. Each
# of these steps has its own way to fail in 16 bits:
#
# 1. [Softmax without the shift](#Softmax-without-the-shift)
# 2. [Scores beyond the largest number](#Scores-beyond-the-largest-number)
# 3. [Masks](#Masks)
# 4. [A sum that stops](#A-sum-that-stops)
#
# A recipe names the format of each step, so that one step can be changed alone. No GPU is needed. The page
# [Operators](../docs/operators.md) has the details. [Notebook 8](08_low_precision.ipynb) ranks the steps of softmax and
# of the norms.

# %%
try:
    import matplotlib.pyplot as plt
    import numpy as np
    from IPython.display import Markdown

    import floatsim as fs
    from floatsim import operators as ops
    from floatsim import plot
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"This notebook needs {missing.name}. In a clone of floatsim's repository: "
        "pip install -e '.[notebooks]', then restart the kernel."
    ) from None

rng = np.random.default_rng(0)


def table(head, rows):
    """A table of texts, shown as Markdown."""
    return Markdown("\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)))


# %% [markdown]
# ## Softmax without the shift
#
# Softmax is exp(x) divided by the sum of exp(x). The largest x for which exp(x) is finite is the logarithm of the
# largest number of the format:

# %%
rows = []
for fmt in ("e4m3", "fp16", "bf16", "fp32"):
    x = fs.array(np.linspace(0, 100, 100_001), fmt)
    last = float(x.values[np.isfinite(np.asarray(fs.exp(x).values, float))].max())
    rows.append((fmt.upper(), f"{fs.as_format(fmt).max:.3g}", f"{last:.4g}"))
table(("format", "largest number", "largest x with a finite exp(x)"), rows)

# %% [markdown]
# The sum can [overflow](../docs/glossary.md#overflow) earlier. The next cell draws the share of rows with
# [NaN](../docs/glossary.md#nan), for rows of 256 normal random scores of growing standard deviation. Subtracting the
# largest score of the row, which every library does, removes all of them: then no exponent is above 0.

# %%
sigmas = np.arange(1, 40, 3)
shares = {}
for name, recipe, variant in (
    ("FP16, naive", "all-fp16", "naive"),
    ("BF16, naive", "all-bf16", "naive"),
    ("FP16, shifted", "all-fp16", "shifted"),
):
    scores = rng.normal(size=(100, 256))
    shares[name] = []
    for sigma in sigmas:
        result = ops.softmax((sigma * scores).astype(np.float32), recipe=recipe, variant=variant)
        shares[name].append(np.isnan(np.asarray(result, float)).any(axis=1).mean())
figure, ax = plt.subplots(figsize=(9, 3.8), layout="constrained")
looks = (("fp16", "-", 7.5, 0.75, "left"), ("bf16", "-", 30.5, 0.55, "right"), ("fp16", "--", 38, 0.05, "right"))
for (name, share), (fmt, line, x, y, side) in zip(shares.items(), looks, strict=True):
    ax.plot(sigmas, share, line, color=plot.colour(fmt), lw=2)
    ax.annotate(name, (x, y), ha=side, color=plot.colour(fmt), fontweight="bold")
ax.set(xlabel="standard deviation of the scores", ylabel="rows with NaN", xlim=(0, 39), ylim=(-0.02, 1.02))
ax.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
ax.set_title("Softmax without the shift fails, in FP16 long before BF16", loc="left", fontweight="bold", wrap=True)
ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# ## Scores beyond the largest number
#
# The shift comes after the product of query and key, and cannot repair a product that is infinite already. Here a query
# and a key of 128 elements are equal, and their elements have the size given. The product is divided by the root of
# 128:


# %%
def first_row(size, recipe, variant):
    """Attention of one query that is equal to the first of four keys. The first value is 1, the others are 0."""
    keys = np.zeros((4, 128))
    keys[0] = size
    values = np.eye(4)[:, :1]
    query, key, value = (x.astype(np.float32) for x in (keys[:1], keys, values))
    return float(np.asarray(ops.attention(query, key, value, recipe=recipe, variant=variant), float)[0, 0])


rows = []
for size in (4, 16, 22, 23, 80):
    results = [
        first_row(size, recipe, variant)
        for recipe, variant in (
            ("all-fp16", "scale-after"), ("all-fp16", "scale-before"), ("all-fp16", "scale-both"),
            ("all-bf16", "scale-after"),
        )
    ]  # fmt: skip
    rows.append((str(size), f"{128 * size**2:,}", *(f"{result:g}" for result in results)))
table(
    ("size", "query times key", "FP16, scaled after", "FP16, scaled before", "FP16, both scaled", "BF16, scaled after"),
    rows,
)

# %% jupyter={"source_hidden": true}
Markdown(
    f"The largest number of FP16 is {fs.FP16.max:,.0f}. Beyond it the score is infinity, infinity minus "
    "infinity is NaN, "
    "and so is the result. To divide before the product gives room for a factor of 11, the root of 128. It is the same "
    "function in exact arithmetic. Larger scores fail again, because a scaled score is beyond the largest number, too."
)

# %% [markdown]
# ## Masks
#
# A mask adds a very negative number to a score that must not count. The number must be in the format. If it is
# infinite, a row in which everything is masked is NaN: the shift subtracts
# [infinity](../docs/glossary.md#infinity) from infinity. (Without the shift, zero is divided by zero.)

# %%
scores = rng.normal(size=8)
rows = []
for fmt in ("fp16", "bf16"):
    for text, number in (
        ("-1e9", -1e9),
        ("-1e4", -1e4),
        ("-inf", -np.inf),
        ("most negative number", -fs.as_format(fmt).max),
    ):
        masked = fs.add(fs.array(scores, fmt), fs.array(number, fmt))
        result = np.asarray(ops.softmax(masked, recipe="fp32-inside"), float)
        rows.append(
            (fmt.upper(), text, f"{float(fs.array(number, fmt).values):g}", f"{result[0]:.3g}", f"{result[1]:.3g}")
        )
table(("format", "mask", "stored as", "probability 1 of a fully masked row", "probability 2"), rows)

# %% [markdown]
# -1e9 is minus [infinity](../docs/glossary.md#infinity) in FP16, and the row is NaN. A finite mask
# [absorbs](../docs/glossary.md#absorption) the scores, because the gap between its neighbours is larger than they are:
# all eight probabilities are equal.
#
# ## A sum that stops
#
# No number is large in the next failure. All scores are equal, and the values have a mean of 1, so the output must be
# close to 1, for every number of keys. In a sum of ones, an [accumulator](../docs/glossary.md#accumulator) of p bits
# stops at 2^p: the next one is [absorbed](../docs/glossary.md#absorption). There are two long sums, that of the
# exponentials and that of the probabilities times the values. Each line has one or both of them in 16 bits:

# %% tags=["picture"]
lengths = 2 ** np.arange(4, 15)
values = (1 + 0.1 * rng.normal(size=(lengths[-1], 4))).astype(np.float32)
values -= values.mean(0) - np.float32(1)


def output(n, recipe, *wide):
    """The mean output of attention over n equal scores; the steps named in `wide` are in FP32."""
    query, key = np.zeros((1, 8), np.float32), np.zeros((n, 8), np.float32)
    steps = dict.fromkeys(wide, "fp32")
    result = ops.attention(query, key, values[:n], recipe=recipe, formats=steps, accumulations=steps)
    return float(np.asarray(result, float).mean())


lines = {
    "FP16, sum of exponentials stops": ("all-fp16", ("product",), "fp16", "--"),
    "FP16, both sums stop": ("all-fp16", (), "fp16", "-"),
    "FP32 in both sums": ("all-fp16", ("sum", "product"), "fp32", "-"),
    "FP16, sum of products stops": ("all-fp16", ("sum",), "fp16", ":"),
    "BF16, both sums stop": ("all-bf16", (), "bf16", "-"),
}
outputs = {name: [output(n, recipe, *wide) for n in lengths.tolist()] for name, (recipe, wide, _, _) in lines.items()}
figure, ax = plt.subplots(figsize=(9.5, 4.6), layout="constrained")
for name, (_, _, fmt, line) in lines.items():
    ax.plot(lengths, outputs[name], line, color=plot.colour(fmt), lw=2.5, label=f"{name}: {outputs[name][-1]:.3g}")
ax.set_xscale("log", base=2)
ax.set_yscale("log", base=2)
ax.set(xlabel="number of keys", ylabel="output (exact: 1)", ylim=(0.2, 10))
ax.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
ax.legend(frameon=False, loc="upper left", title="output at 16,384 keys", alignment="left")
ax.set_title("Attention over equal scores: the output must be 1", loc="left", fontweight="bold", wrap=True)
ax.grid(alpha=0.25)
ax.spines[["top", "right"]].set_visible(False)

# %%
table(
    ("keys", *lines),
    [(str(n), *(f"{outputs[name][i]:.3g}" for name in lines)) for i, n in enumerate(lengths.tolist())][4:],
)

# %% [markdown]
# If the sum of the exponentials stops, the probabilities are too large, and so is the output. If the sum of the
# products stops, the output is too small. If both stop, the errors cancel in part. No output is infinite or NaN, so
# nothing shows the failure. At 16,384 keys, FP32 in none of the sums makes the output wrong by a factor of 2, FP32 in
# only one of them by a factor of 8 or 4. In both sums it is enough, with FP16 in all other steps.
#
# ## What to remember
#
# - The shift repairs exp, not the product of query and key. To scale before the product repairs some of these.
# - A mask is a number of the format: -1e9 is infinity in FP16. A fully masked row with infinities is NaN.
# - Sums over many keys need an accumulator with more bits than the logarithm of their number to base 2. The failure
#   is silent.
#
# Next: [12. Why does INT4 work for inference and not for training?](12_int4_fp8.ipynb)

# %% [markdown]
# ## Exercises
#
# **Exercise 1.** The sum of softmax is in FP16, in order, and all 4096 scores are equal. Which number is each
# probability times 4096?
#
# **Exercise 2.** Write softmax in three lines with `fs.exp`, `fs.sum(..., accumulate="pairwise(fp16)")`, `fs.subtract`
# and `fs.divide`, in FP16, with the shift. For the 4096 equal scores of exercise 1: which number is each probability
# times 4096 now?
#
# **Exercise 3.** Which is the smallest integer size in the table of [scores](#Scores-beyond-the-largest-number) for
# which FP16, scaled before, is NaN?

# %%
DIGESTS = {1: "d4735e3a26", 2: "6b86b273ff", 3: "a88a7902cb"}
answers = {1: ..., 2: ..., 3: ...}  # replace each ... by an answer
print(fs.testing.check_answers(answers, DIGESTS))

# %% [markdown]
# <details>
# <summary>Solution 1</summary>
#
# ```python
# >>> result = ops.softmax(np.zeros((1, 4096), np.float32), recipe="all-fp16")
# >>> ratio = float(np.asarray(result, float)[0, 0]) * 4096
# >>> ratio
# 2.0
# >>> print(fs.testing.check_answers({1: ratio}, DIGESTS))
# exercise 1: correct
# ```
#
# The sum stops at 2048, so each probability is twice as large as the exact one.
#
# </details>

# %% [markdown]
# <details>
# <summary>Solution 2</summary>
#
# ```python
# >>> scores = fs.array(np.zeros(4096), "fp16")
# >>> powers = fs.exp(fs.subtract(scores, fs.array(scores.values.max(), "fp16")))
# >>> probabilities = fs.divide(powers, fs.sum(powers, accumulate="pairwise(fp16)"))
# >>> ratio = float(probabilities.values[0]) * 4096
# >>> ratio
# 1.0
# >>> print(fs.testing.check_answers({2: ratio}, DIGESTS))
# exercise 2: correct
# ```
#
# In a tree, both [terms](../docs/glossary.md#term) of each addition have the same size, and nothing is absorbed.
#
# </details>

# %% [markdown]
# <details>
# <summary>Solution 3</summary>
#
# ```python
# >>> size = next(size for size in range(1, 1000) if np.isnan(first_row(size, "all-fp16", "scale-before")))
# >>> size
# 77
# >>> print(fs.testing.check_answers({3: size}, DIGESTS))
# exercise 3: correct
# ```
#
# </details>

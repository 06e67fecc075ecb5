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
# # 15. Why does temperature 0 answer differently?
#
# At temperature 0 a language model takes the most probable word: nothing is random. Still, the same question gets other
# answers on a busy server. This notebook finds the cause and measures it:
#
# 1. [The same row, alone and in a batch](#The-same-row,-alone-and-in-a-batch)
# 2. [From a bit to another word](#From-a-bit-to-another-word)
# 3. [Two computations of one policy](#Two-computations-of-one-policy)
# 4. [The repair](#The-repair)
#
# It follows [notebook 14](14_batches.ipynb) (batch sizes). No GPU is needed. The page
# [Batch invariance](../docs/batch-invariance.md) has the details.

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

rng = np.random.default_rng(0)

# %% [markdown]
# ## The same row, alone and in a batch
#
# A server collects questions and multiplies them together: one row for each. For few rows a library splits the sum over
# K, so that all parts of the GPU have work. PyTorch's default lets it add the partial sums in
# BF16. The next cell has such a server: below 16 rows it splits K into four parts.


# %%
def server(x, w):
    """A product of BF16 matrices whose order depends on the number of rows."""
    order = "splitk(4, fp32, bf16)" if len(x) < 16 else "fp32"
    return fs.matmul(x, w, accumulate=order, format="bf16")


questions = fs.array(rng.normal(size=(32, 256)), "bf16")
weights = fs.array(rng.normal(size=(256, 64)) / 16, "bf16")
print(fs.testing.check_shape_invariant(server, questions, weights, identify=False))

# %% [markdown]
# `fs.testing.check_shape_invariant` calls the function with other numbers of rows and with the rows in another order,
# and compares the bits of each row. The position of a row does not matter here, but the number of rows does. With
# `identify=True`, the default, it also names the order of the sum in both calls.
#
# ## From a bit to another word
#
# Most bits do not change a word: the largest logit stays the largest. The next cell has a small network that reads its
# own words. Each of 16 prompts runs twice: alone, and in a batch of 16. The weights and the prompts are the same, and
# the temperature is 0.

# %%
features, words, steps = 256, 512, 40
embedding = fs.array(rng.normal(size=(words, features)), "bf16").values
recurrent = fs.array(rng.normal(size=(features, features)) / 8, "bf16")
head = fs.array(rng.normal(size=(features, words)) / 16, "bf16")


def answer(prompts, product):
    """The words of each prompt, and the distance of the two largest logits at each word."""
    states, word, spoken, distances = np.zeros((len(prompts), features)), np.array(prompts), [], []
    for _ in range(steps):
        read = product(fs.array(states, "bf16"), recurrent).values + embedding[word]
        states = fs.tanh(fs.array(read, "bf16")).values
        logits = product(fs.array(states, "bf16"), head).values
        word = logits.argmax(axis=1)
        largest = np.sort(logits, axis=1)[:, -2:]
        spoken.append(word)
        distances.append(largest[:, 1] - largest[:, 0])
    return np.array(spoken).T, np.array(distances).T


together, distance = answer(range(16), server)
alone = np.concatenate([answer([prompt], server)[0] for prompt in range(16)])
parts = [int(np.argmax(row)) if row.any() else steps for row in together != alone]
Markdown(
    f"**{sum(n < steps for n in parts)}** of 16 answers have another word, the first one at word {min(parts) + 1}. "
    f"At {np.mean(distance == 0):.0%} of the words, the two largest logits are equal in BF16."
)

# %% tags=["picture"]
figure, ax = plt.subplots(figsize=(9, 4), layout="constrained")
for row, n in enumerate(parts):
    ax.plot([0, n], [row, row], color=plot.colour("bf16"), lw=5, solid_capstyle="butt")
    ax.plot([n, steps], [row, row], color="0.5", alpha=0.3, lw=5, solid_capstyle="butt")
    if n < steps:
        ax.plot(n, row, "o", color=plt.rcParams["text.color"], ms=6)
ax.set(xlabel="word", ylabel="prompt", xlim=(0, steps), ylim=(15.8, -0.8), yticks=range(0, 16, 5))
title = "Temperature 0, alone and in a batch of 16: equal words, then another answer"
_ = ax.set_title(title, loc="left", fontweight="bold", wrap=True)
ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# A dot is the first other word. After it the answers have nothing in common, because each word is read again. Where did
# it happen? The words at which answers part have two logits that are almost equal:

# %%
at = [distance[row, n] for row, n in enumerate(parts) if n < steps]
Markdown(
    f"Median distance of the two largest logits: **{np.median(distance):.2g}** at all words, **{np.median(at):.2g}** "
    "where the answers part."
)

# %% [markdown]
# ## Two computations of one policy
#
# In reinforcement learning, one program generates the words (the *rollout*) and another one trains on them. The
# training
# divides the probabilities of both, the *importance ratio*, and assumes that it is 1 before the first update. Two
# programs with equal weights and other orders of sums break this. `fs.testing.mismatch_of` measures it:

# %%
hidden = fs.array(rng.normal(size=(500, features)), "bf16")
sides = {
    "the same order": "fp32", "pairwise in FP32": "pairwise(fp32)", "four parts, added in BF16":
        "splitk(4, fp32, bf16)",
    "all in BF16": "bf16",
}  # fmt: skip
found = {name: fs.testing.mismatch_of(order, "fp32", hidden, head) for name, order in sides.items()}
rows = [
    f"| {name} | {np.abs(each.gaps).max():.1e} | {each.ratios.min():.4f} to {each.ratios.max():.4f} "
    f"| {each.sequence_ratio:.3f} | {each.other_choices} |"
    for name, each in found.items()
]
head_row = "| order of the rollout | largest gap | importance ratios | of the sequence | other largest logits |"
Markdown("\n".join([head_row, "| --- " * 5 + "|", *rows]))

# %%
figure, ax = plt.subplots(figsize=(9, 3.6), layout="constrained")
tints = {"four parts, added in BF16": "0.55", "all in BF16": plot.colour("bf16")}
for name, tint in tints.items():
    ax.plot(np.cumsum(found[name].gaps), color=tint, lw=2, label=name)
ax.axhline(0, color="0.5", lw=0.8)
ax.set(xlabel="word", ylabel="sum of the gaps", xlim=(0, 500))
ax.set_title("The log-probability gaps add up along an answer of 500 words", loc="left", fontweight="bold", wrap=True)
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# ## The repair
#
# One order for all shapes. It is a property of the [kernel](../docs/glossary.md#kernel), not of the temperature
# or the model.


# %%
def invariant(x, w):
    """The same product in one order."""
    return fs.matmul(x, w, accumulate="fp32", format="bf16")


print(fs.testing.assert_shape_invariant(invariant, questions, weights))
same = np.array_equal(
    answer(range(16), invariant)[0], np.concatenate([answer([prompt], invariant)[0] for prompt in range(16)])
)
print("16 answers, alone and in a batch, equal words:", same)

# %% [markdown]
# ## What to remember
#
# - Temperature 0 removes the random draw, not the dependence on the batch.
# - One other bit can change a word where two logits are almost equal, and each later word follows it.
# - A small gap for each word adds up: the importance ratio of a long answer is a product.
#
# ## Exercises
#
# Write each answer into the cell below, and run it.
#
# **Exercise 1.** Two logits are 5.01 and 5.02. What is their distance after rounding to BF16
# (`fs.quantize([5.01, 5.02], "bf16")`)?
#
# **Exercise 2.** A server adds in the order `"fp32"` for an even number of rows and in `"pairwise(fp32)"` for an odd
# number. Which is the smallest number of rows with other bits than 32 rows? Use `check_shape_invariant` with
# `sizes=range(1, 8)` and FP32 results.
#
# **Exercise 3.** Each of 2000 words has the log-probability gap 0.001. What is the importance ratio of the answer,
# rounded to two decimals?

# %%
DIGESTS = {1: "5475adfabb", 2: "6b86b273ff", 3: "00dc84e4b3"}
answers = {1: ..., 2: ..., 3: ...}  # replace each ... by an answer
print(fs.testing.check_answers(answers, DIGESTS))

# %% [markdown]
# <details>
# <summary>Solution 1</summary>
#
# ```python
# >>> low, high = fs.quantize([5.01, 5.02], "bf16")
# >>> float(high - low)
# 0.03125
# >>> print(fs.testing.check_answers({1: float(high - low)}, DIGESTS))
# exercise 1: correct
# ```
#
# Near 5 the BF16 numbers are 1/32 apart. The two logits lie on both sides of a midpoint.
#
# </details>

# %% [markdown]
# <details>
# <summary>Solution 2</summary>
#
# ```python
# >>> def odd_or_even(x, w):
# ...     return fs.matmul(x, w, accumulate="pairwise(fp32)" if len(x) % 2 else "fp32")
# >>> report = fs.testing.check_shape_invariant(odd_or_even, questions, weights, sizes=range(1, 8), identify=False)
# >>> report.differences[0].call
# 'a call with 1 row'
# >>> print(fs.testing.check_answers({2: 1}, DIGESTS))
# exercise 2: correct
# ```
#
# </details>

# %% [markdown]
# <details>
# <summary>Solution 3</summary>
#
# The gaps add up to 2, and the ratio is e^2.
#
# ```python
# >>> ratio = round(float(np.exp(2000 * 0.001)), 2)
# >>> ratio
# 7.39
# >>> print(fs.testing.check_answers({3: ratio}, DIGESTS))
# exercise 3: correct
# ```
#
# </details>

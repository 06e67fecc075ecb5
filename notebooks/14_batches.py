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
# # 14. Does the batch size change my bits?
#
# The same model, the same input, and another batch size: are the bits of the answer equal? And if a model is trained on
# 8 GPUs instead of 4? This notebook computes the sums that libraries and networks of GPUs carry out, and counts the
# bits that change:
#
# 1. [One row in batches of three sizes](#One-row-in-batches-of-three-sizes)
# 2. [From one bit to another answer](#From-one-bit-to-another-answer)
# 3. [A sum over many GPUs](#A-sum-over-many-GPUs)
# 4. [Two learning runs that part](#Two-learning-runs-that-part)
#
# It follows [notebook 4](04_orders.ipynb) (orders of sums). No GPU is needed: the orders of an NVIDIA H200 were
# recorded. The pages [Libraries on GPUs](../docs/gpu-libraries.md) and
# [Sums over ranks](../docs/distributed.md#sums-over-ranks) have the details.

# %%
try:
    import matplotlib.pyplot as plt
    import numpy as np
    from IPython.display import Markdown

    import floatsim as fs
    from floatsim import plot, training
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
# ## One row in batches of three sizes
#
# A product of matrices has one row for each image or each token of the batch. A row does not depend on the other rows,
# so in exact arithmetic the batch size cannot matter. But a library chooses its [kernel](../docs/glossary.md#kernel) by
# the shape. For few rows it splits the sum over K, to keep all parts of the GPU busy. `fs.library_sum` returns the
# order that was recorded on an H200, here for matrices in FP32 and in BF16, with K = 512 and 128
# columns:

# %%
batches = {}
rows = []
for size in (8, 128, 4096):
    for dtype in ("float32", "bfloat16"):
        (region,) = fs.library_sum("torch.matmul", dtype, (size, 128, 512), device="h200")
        batches[size, dtype] = region.accumulate
        rows.append((str(size), dtype, f"`{region.accumulate}`"))
table(("rows of the batch", "dtype", "order of the sum"), rows)

# %% [markdown]
# The next cell computes one and the same row in each order:

# %%
x, w = rng.normal(size=(1, 512)).astype(np.float32), rng.normal(size=(512, 128)).astype(np.float32)
results = {size: fs.matmul(x, w, accumulate=batches[size, "float32"]) for size in (8, 128, 4096)}
rows = [
    (f"{one} and {other}", f"{np.sum(results[one].view(np.int32) != results[other].view(np.int32))} of 128",
     f"{np.abs(results[one] - results[other]).max():.1e}")
    for one, other in ((8, 128), (8, 4096), (128, 4096))
]  # fmt: skip
table(("batch sizes", "elements with other bits", "largest difference"), rows)

# %% tags=["picture"]
bits = results[4096].view(np.int32)
figure, axes = plt.subplots(2, 1, figsize=(9.5, 4.4), layout="constrained", sharex=True)
for ax, size in zip(axes, (8, 128), strict=True):
    steps = (results[size].view(np.int32) - bits)[0]
    ax.bar(range(128), steps, width=0.9, color=np.where(steps == 0, "0.7", plot.colour("fp16")))
    ax.axhline(0, color="0.5", lw=0.8)
    ax.set_ylabel(f"batch of {size}\n(ulps)")
    ax.set_yscale("symlog", linthresh=1)
    ax.set_ylim(-300, 300)
    ax.set_yticks([-100, -10, -1, 1, 10, 100], ["-100", "-10", "-1", "1", "10", "100"])
    ax.spines[["top", "right"]].set_visible(False)
axes[1].set(xlabel="element of the row", xlim=(-1, 128))
_ = axes[0].set_title("The same row, against its bits in a batch of 4096", loc="left", fontweight="bold")

# %% [markdown]
# Most elements have other bits. In BF16, the recorded kernels of this shape have one order for all batch sizes, and the
# bits cannot change. This is no rule: larger K makes them split the sum, too.
#
# The repair is one order for all sizes. It costs speed for small batches. In floatsim an order is an argument: the same
# `accumulate=` returns the same bits for each row, whatever stands beside it:

# %%
many = np.concatenate([x, rng.normal(size=(63, 512)).astype(np.float32)])
order = batches[128, "float32"]
same = np.array_equal(fs.matmul(many, w, accumulate=order)[0], fs.matmul(x, w, accumulate=order)[0])
print("one order, batches of 64 and of 1, equal bits:", same)

# %% [markdown]
# ## From one bit to another answer
#
# A difference in the last bit seems harmless. But a language model reads its own words: each word depends on all bits
# before. The next cell has a small network that does the same. Its state of 512 numbers is multiplied by a matrix, and
# tanh of the result is the next state. The largest of the first 128 numbers is the next "word". Two runs start equal,
# and add in the orders of a batch of 8 and of 4096:

# %%
matrix = (4 * rng.normal(size=(512, 512)) / np.sqrt(512)).astype(np.float32)
start = rng.normal(size=(1, 512)).astype(np.float32)
states = dict.fromkeys((8, 4096), start)
spoken = {size: [] for size in states}
apart = []
for _ in range(40):
    for size, state in states.items():
        product = fs.matmul(state, matrix, accumulate=batches[size, "float32"])
        states[size] = np.asarray(fs.tanh(product), np.float32)
        spoken[size].append(int(states[size][0, :128].argmax()))
    apart.append(np.linalg.norm(states[8] - states[4096]) / np.linalg.norm(states[8]))
differs = next(step for step, pair in enumerate(zip(*spoken.values(), strict=True), 1) if pair[0] != pair[1])
figure, ax = plt.subplots(figsize=(9, 3.6), layout="constrained")
ax.semilogy(range(1, 41), apart, color=plot.colour("fp16"), lw=2.5)
ax.axvline(differs, color="0.5", ls="--")
words = f"word {differs} is the first that differs"
ax.annotate(words, (differs, 1e-6), (-6, 0), textcoords="offset points", ha="right")
ax.set(xlabel="word", ylabel="distance of the states", xlim=(1, 40))
ax.set_title("Two batch sizes, one question: the answers part", loc="left", fontweight="bold")
ax.grid(alpha=0.25)
ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# ## A sum over many GPUs
#
# In data-parallel training each GPU has the gradient of its part of the batch. An *all-reduce* returns the sum to each
# of them. In a [ring](../docs/glossary.md#ring), each [rank](../docs/glossary.md#rank-of-a-process) owns a chunk of the
# array, and each chunk is added in another order. The numbers are rounded to the format of the wire after each
# addition. Here all gradients are positive, as an extreme case, and the number of ranks grows:

# %%
ranks = 2 ** np.arange(1, 9)
gradients = np.abs(rng.normal(1e-3, 1e-3, (ranks[-1], 1024))).astype(np.float32)
cases = {"FP32": ("fp32", None), "FP16": ("fp16", None), "BF16": ("bf16", None), "E5M2": ("e5m2", None),
         "BF16, partial sums in FP32": ("bf16", "fp32")}  # fmt: skip
errors = {}
for name, (wire, accumulate) in cases.items():
    errors[name] = []
    for n in ranks.tolist():
        total = training.all_reduce(gradients[:n], wire=wire, accumulate=accumulate)
        exact = gradients[:n].astype(np.float64).sum(0)
        errors[name].append(np.abs(np.asarray(total.values, float) / exact - 1).mean())
figure, ax = plt.subplots(figsize=(9, 4.2), layout="constrained")
for name, values in errors.items():
    ax.loglog(ranks, values, ":" if "partial" in name else "-", lw=2.5, color=plot.colour(cases[name][0]), label=name)
ax.set_xscale("log", base=2)
ax.set(xlabel="ranks", ylabel="mean relative error of the sum")
title = "All-reduce in 16 or 8 bits: the error grows with the ranks, unless partial sums are FP32"
ax.set_title(title, loc="left", fontweight="bold", wrap=True)
ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
ax.grid(alpha=0.25)
ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# The order also depends on the number of ranks and on the algorithm. All ranks receive the same bits, but another
# number of ranks, or a tree, returns others:

# %%
whole = gradients[:8]
results = {
    "ring of 8": training.all_reduce(whole, wire="fp32"),
    "tree of 8": training.all_reduce(whole, algorithm="tree", wire="fp32"),
    "ring of 4, each with two parts": training.all_reduce(
        np.asarray(fs.add(fs.array(whole[::2], "fp32"), fs.array(whole[1::2], "fp32")).values, np.float32), wire="fp32"
    ),
}
first = np.asarray(results["ring of 8"].values)
table(
    ("sum of the same eight gradients", "elements with other bits than the ring of 8"),
    [(name, f"{np.sum(np.asarray(result.values) != first)} of {first.size}") for name, result in results.items()],
)

# %% [markdown]
# ## Two learning runs that part
#
# A batch of 32 images can also be split into micro-batches, whose gradients are added. This is the same sum in another
# order. Two runs with the same first weights and the same batches:

# %%
data = training.digits_data()
trainers = {parts: training.Trainer("fp32", micro_batches=parts) for parts in (1, 4)}
shares, distances = [], []
for step in range(44):
    some = slice(32 * step, 32 * (step + 1))
    for trainer in trainers.values():
        trainer.step(trainer.inputs(data.x[some]), data.y[some])
    one, other = (np.asarray(trainer.weights["layer0.weight"].values) for trainer in trainers.values())
    shares.append(np.mean(one != other))
    distances.append(np.abs(one - other).max())
Markdown(
    f"After the first step, **{shares[0]:.0%}** of the weights of the first layer have other bits, after "
    f"{len(shares)} steps "
    f"**{shares[-1]:.0%}**. The largest difference grows from {distances[0]:.0e} to {distances[-1]:.0e}. Both runs are "
    "equally correct. They are two runs, and not one."
)

# %% [markdown]
# ## What to remember
#
# - A row does not depend on its neighbours, but its order of addition can depend on their number.
# - Equal bits need one order for all sizes: a fixed kernel, a fixed number of ranks, a fixed split of the batch.
# - A narrow wire adds an error that grows with the number of ranks. Partial sums in FP32 remove most of it.
#
# Next: [15. Why does temperature 0 answer differently?](15_temperature_zero.ipynb)
#
# ## Exercises
#
# Write each answer into the cell below, and run it.
#
# **Exercise 1.** `np.ones(n)` is summed by a ring of n ranks in BF16
# (`training.all_reduce(np.ones((n, 1)), wire="bf16")`). What is the result for n = 300?
#
# **Exercise 2.** Which orders have equal bits for all inputs: `splitk(2, fp32, fp32)` and `blocked(fp32, 256, fp32)`
# with K = 512? Compare both with `fs.matmul` on the x and w of this notebook, and give the number of elements that
# differ.
#
# **Exercise 3.** Three numbers are added in FP16 in all orders of a chain: 2048, 1 and 1. How many different results
# are there, and which is the largest? Give both as a list.

# %%
DIGESTS = {1: "51e8ea280b", 2: "5feceb66ff", 3: "bbee3d2f3f"}
answers = {1: ..., 2: ..., 3: ...}  # replace each ... by an answer
print(fs.testing.check_answers(answers, DIGESTS))

# %% [markdown]
# <details>
# <summary>Solution 1</summary>
#
# ```python
# >>> total = training.all_reduce(np.ones((300, 1), np.float32), wire="bf16")
# >>> float(total.values[0])
# 256.0
# >>> print(fs.testing.check_answers({1: float(total.values[0])}, DIGESTS))
# exercise 1: correct
# ```
#
# BF16 has all whole numbers up to 256, and [absorbs](../docs/glossary.md#absorption) the next one.
#
# </details>

# %% [markdown]
# <details>
# <summary>Solution 2</summary>
#
# Both add two halves of 256 [terms](../docs/glossary.md#term) in FP32, and then the two sums.
#
# ```python
# >>> orders = "splitk(2, fp32, fp32)", "blocked(fp32, 256, fp32)"
# >>> one, other = (fs.matmul(x, w, accumulate=order) for order in orders)
# >>> different = int(np.sum(one != other))
# >>> different
# 0
# >>> print(fs.testing.check_answers({2: different}, DIGESTS))
# exercise 2: correct
# ```
#
# </details>

# %% [markdown]
# <details>
# <summary>Solution 3</summary>
#
# ```python
# >>> import itertools
# >>> sums = {float(fs.sum(np.float16(order), accumulate="fp16")) for order in itertools.permutations((2048, 1, 1))}
# >>> sorted(sums)
# [2048.0, 2050.0]
# >>> print(fs.testing.check_answers({3: [len(sums), max(sums)]}, DIGESTS))
# exercise 3: correct
# ```
#
# </details>

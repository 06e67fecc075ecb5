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
# # 12. Why does INT4 work for inference and not for training?
#
# Weights of four bits are common in inference, FP8 is used in training, and INT4 is not. This notebook trains one small
# network in each way, and shows the step that fails:
#
# 1. [Four bits after training, and during training](#Four-bits-after-training,-and-during-training)
# 2. [The update is smaller than the gap](#The-update-is-smaller-than-the-gap)
# 3. [Gradients have no room in a row of integers](#Gradients-have-no-room-in-a-row-of-integers)
# 4. [FP8: the scale of this step, or of earlier steps](#FP8:-the-scale-of-this-step,-or-of-earlier-steps)
# 5. [An outlier in one element](#An-outlier-in-one-element)
#
# It follows [notebook 8](08_low_precision.ipynb) (weights in few bits) and [notebook 10](10_training.ipynb) (training
# in 16 bits). No GPU is needed. The pages [Quantization](../docs/quantization.md) and [Scaling](../docs/distributed.md)
# have the details.

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


def table(head, rows):
    """A table of texts, shown as Markdown."""
    return Markdown("\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)))


def error(result, exact):
    """The norm of the difference over the norm of the exact result."""
    return np.linalg.norm(np.asarray(result, float) - exact) / np.linalg.norm(exact)


# %% [markdown]
# ## Four bits after training, and during training
#
# The network has 64 inputs, 64 hidden units and 10 classes, and reads the digits that are part of floatsim. It is
# trained for six epochs. "After training" rounds the FP32 weights of the first run to INT4 once. In the other rows, the
# whole run has the policy named. INT4 has one [scale](../docs/glossary.md#block-scale) for each matrix here:

# %%
weights_in = {
    "FP32": training.Policy("fp32", accumulate="fp32"),
    "INT4 stored, rounded to nearest": training.Policy("fp32", accumulate="fp32", weights="int4"),
    "INT4 stored, rounded stochastically": training.Policy(
        "fp32", accumulate="fp32", weights="int4", weight_rounding="stochastic", seed=1
    ),
    "INT4 in each step, FP32 stored": training.Policy("fp32", accumulate="fp32", weights="fp32", weights_at_use="int4"),
}
runs = {name: training.train(policy, epochs=6, name=name) for name, policy in weights_in.items()}

data = training.digits_data()
afterwards = training.Trainer(weights_in["INT4 in each step, FP32 stored"])
afterwards.weights = runs["FP32"].weights
after = afterwards.accuracy(afterwards.inputs(data.test_x), data.test_y)

# %% tags=["picture"]
shown = {"FP32": runs["FP32"].accuracy, "INT4 after training": after} | {
    name: run.accuracy for name, run in runs.items() if name != "FP32"
}
figure, ax = plt.subplots(figsize=(9, 3.4), layout="constrained")
tints = [plot.colour("fp32" if name == "FP32" else "e2m1") for name in shown]
ax.barh(list(shown), list(shown.values()), color=tints, height=0.65)
for row, accuracy in enumerate(shown.values()):
    ax.annotate(f"{accuracy:.3f}", (accuracy, row), (6, 0), textcoords="offset points", va="center", fontweight="bold")
ax.invert_yaxis()
ax.set(xlim=(0, 1.12), xlabel="accuracy on new images")
ax.xaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %" if share <= 1 else "")
title = "INT4 weights: fine after training. Training needs an FP32 copy or stochastic rounding"
ax.set_title(title, loc="left", fontweight="bold", wrap=True)
ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# Weights that are *stored* in INT4, rounded to nearest, learn almost nothing. With [stochastic
# rounding](../docs/glossary.md#stochastic-rounding) they learn. Weights that are rounded to INT4 in each step, beside a
# copy in FP32, are as good as FP32. So the format of the products is not the problem. The problem is the number to
# which a step adds its update.
#
# ## The update is smaller than the gap
#
# The gap between two INT4 numbers is a seventh of the largest weight. The next cell makes 45 steps, and compares the
# updates with the gap:

# %%
rows = []
for name in ("INT4 stored, rounded to nearest", "INT4 stored, rounded stochastically"):
    trainer = training.Trainer(weights_in[name])
    changed, ratios = [], []
    codes = np.rint(7 * trainer.weights["layer0.weight"].values / np.abs(trainer.weights["layer0.weight"].values).max())
    for batch in range(45):
        some = slice(32 * batch, 32 * (batch + 1))
        largest = np.abs(trainer.weights["layer0.weight"].values).max()
        trainer.step(trainer.inputs(data.x[some]), data.y[some])
        updates = 0.1 * np.abs(trainer.gradients["layer0.weight"].values)
        ratios.append(np.median(updates[updates > 0]) / (largest / 7))
        after_step = trainer.weights["layer0.weight"].values
        before, codes = codes, np.rint(7 * after_step / np.abs(after_step).max())
        changed.append(np.mean(codes != before))
    rows.append((name, f"{np.median(ratios):.2%}", f"{np.mean(changed):.2%}"))
table(("policy", "median update, as a share of the gap", "weights that a step changes"), rows)

# %% [markdown]
# Rounded to nearest, an update below half the gap is [absorbed](../docs/glossary.md#absorption), and nearly all are.
# Stochastic rounding moves a weight by a whole gap with the right probability, so the mean is right. It trains, at the
# cost of noise. Inference has no updates: it rounds once, and the errors of many weights average out.
#
# ## Gradients have no room in a row of integers
#
# The [integers](../docs/glossary.md#quantization) of a format have equal gaps. Gradients of one tensor differ by many
# powers of two. The next cell scales the largest gradient to the largest number of each format, which is the best that
# one scale can do without clipping, and counts what becomes zero:

# %%
gradients = fs.datasets.digits()["gradients"].astype(np.float64)
alive = gradients[gradients != 0]
rows = []
for scheme in ("int8", "int4", "e2m1", "e4m3", "e5m2"):
    if scheme.startswith("int"):
        values = np.asarray(fs.quantize_blocks(alive, scheme, block="tensor").values, float)
    else:
        factor = fs.as_format(scheme).max / np.abs(alive).max()
        values = fs.quantize(alive * factor, scheme) / factor
    rows.append((scheme.upper(), f"{np.mean(values == 0):.1%}", f"{error(values, alive):.3f}"))
table(("format, one scale", "gradients that become zero", "relative error"), rows)

# %% [markdown]
# A row of integers keeps the largest gradients only. The relative error does not show this, because the largest
# gradients dominate it: that of INT8 is even below that of E5M2. Gradients need an exponent of enough bits: E4M3 and
# E5M2 keep most of them, E2M1 does not. So FP8 training is possible, and E5M2 exists.
#
# ## FP8: the scale of this step, or of earlier steps
#
# The best factor needs the largest magnitude of the tensor, its amax, before the tensor is rounded. *Current* scaling
# reads the tensor twice. [*Delayed scaling*](../docs/glossary.md#delayed-scaling) uses the amax of earlier steps, and
# reads it once. Here a tensor is 40 times as large in step 6, for one step. The history has four steps:

# %%
x, w = (fs.array(np.random.default_rng(n).normal(size=(64, 64)), "fp32") for n in (1, 2))
sizes = [1, 1, 1, 1, 1, 1, 40, 1, 1, 1, 1, 1, 1, 1]
errors = {}
for name, options in (("current", {}), ("delayed", {"history_length": 4})):
    for fmt in ("e4m3", "e3m2"):
        scaler = training.as_scaling(name, **options).start(seed=0)
        errors[name, fmt] = []
        for size in sizes:
            formats = (fs.as_format(fmt), fs.as_format(fmt))
            y = scaler.matmul(
                fs.multiply(x, float(size)), w, formats=formats, roles=("input", "weight"), product="forward"
            )
            scaler.finish_step()
            errors[name, fmt].append(error(y.values, size * x.values.astype(float) @ w.values.astype(float)))
figure, ax = plt.subplots(figsize=(9, 4), layout="constrained")
for (name, fmt), values in errors.items():
    ax.semilogy(
        values, "-" if name == "delayed" else ":", color=plot.colour(fmt), lw=2.5, label=f"{fmt.upper()}, {name}"
    )
ax.set(xlabel="step", ylabel="relative error of the product", ylim=(0.02, 1.5))
ax.yaxis.set_major_formatter(lambda y, _: f"{100 * y:g} %")
ax.set_title(
    "A sudden outlier: delayed scaling clips it, and pays again later", loc="left", fontweight="bold", wrap=True
)
ax.legend(frameon=False)
ax.grid(alpha=0.25)
ax.spines[["top", "right"]].set_visible(False)

# %% jupyter={"source_hidden": true}
at = sizes.index(40)
Markdown(
    f"In step {at}, delayed scaling still has the factor of the steps before, and clips the large numbers: an error of "
    f"**{errors['delayed', 'e4m3'][at]:.0%}** instead of {errors['current', 'e4m3'][at]:.1%}. While the "
    "outlier is in the "
    f"history, the factor is 40 times too small for the others. E4M3 has exponents enough: "
    f"{errors['delayed', 'e4m3'][at + 1]:.1%}. E3M2 has not: **{errors['delayed', 'e3m2'][at + 1]:.0%}** "
    f"instead of {errors['current', 'e3m2'][at + 1]:.1%}, for four steps."
)

# %% [markdown]
# ## An outlier in one element
#
# If one *element* is large, current scaling fails as well: the factor is right for this element only. Scales for
# [blocks](../docs/glossary.md#block) confine the damage to one block. The error is that of the rows without the
# outlier:

# %%
rng = np.random.default_rng(3)
x, w = rng.normal(size=(32, 256)).astype(np.float32), fs.array(rng.normal(size=(256, 32)), "fp32")
exponents = range(0, 25, 2)
curves = {}
for name in ("current", "te_block", "mx"):
    curves[name] = []
    for exponent in exponents:
        outlier = x.copy()
        outlier[0, 0] = 2.0**exponent
        scaler = training.as_scaling(name).start(seed=0)
        y = scaler.matmul(
            fs.array(outlier, "fp32"), w, formats=(fs.E4M3, fs.E4M3), roles=("input", "weight"), product="forward"
        )
        curves[name].append(error(y.values[1:], outlier[1:].astype(float) @ w.values.astype(float)))
figure, ax = plt.subplots(figsize=(9, 3.8), layout="constrained")
for values, fmt, words in zip(
    curves.values(),
    ("e4m3", "fp16", "e5m2"),
    ("one scale for the tensor", "scales for 1 x 128", "scales for 1 x 32 (MX)"),
    strict=True,
):
    ax.semilogy(list(exponents), values, color=plot.colour(fmt), lw=2.5, label=words)
ax.set(xlabel="size of one element", ylabel="error of the other rows", ylim=(0.02, 1.5))
ax.xaxis.set_major_formatter(lambda e, _: f"$2^{{{e:.0f}}}$")
ax.yaxis.set_major_formatter(lambda y, _: f"{100 * y:g} %")
ax.set_title("One outlier spoils a whole tensor in FP8, or one block", loc="left", fontweight="bold", wrap=True)
ax.legend(frameon=False)
ax.grid(alpha=0.25)
ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# ## What to remember
#
# - Inference rounds the weights once. Training adds small updates, which four bits absorb. A copy with more bits, or
#   stochastic rounding, repairs it.
# - Gradients need exponents: integers with one scale keep the largest ones only.
# - Delayed scaling clips a sudden outlier. Current scaling does not, but one large element spoils the tensor. Scales
#   for blocks confine the damage.
#
# Next: [13. When is a wrong result the fault of the formula?](13_cancellation.ipynb)

# %% [markdown]
# ## Exercises
#
# Write each answer into the cell below, and run it.
#
# **Exercise 1.** The largest weight of a matrix is 0.7, and INT4 has the numbers -7 to 7, with one scale for the
# matrix. What is the largest update, rounded to nearest, that does not move a weight of 0?
#
# **Exercise 2.** In INT4 with stochastic rounding, a weight is 0 and the gap is 0.1. How many updates of 0.001 does it
# take on average until the weight is 0.1? (Verify the probability of one update with
# `fs.quantize_blocks(..., rounding="stochastic", seed=0)`.)
#
# **Exercise 3.** `training.as_scaling("delayed", history_length=h)`: for how many steps after the outlier is the error
# of E3M2 above 10 % if h is 8? Repeat the experiment of the picture, with enough steps.

# %%
DIGESTS = {1: "3ba3330bc4", 2: "ad57366865", 3: "2c624232cd"}
answers = {1: ..., 2: ..., 3: ...}  # replace each ... by an answer
print(fs.testing.check_answers(answers, DIGESTS))

# %% [markdown]
# <details>
# <summary>Solution 1</summary>
#
# The gap is 0.1. Half of it is a [tie](../docs/glossary.md#ties), and is rounded to the even neighbour, 0.
#
# ```python
# >>> np.asarray(fs.quantize_blocks([0.7, 0.0499, 0.0501], "int4", block="tensor").values, float).round(3).tolist()
# [0.7, 0.0, 0.1]
# >>> print(fs.testing.check_answers({1: 0.7 / 7 / 2}, DIGESTS))
# exercise 1: correct
# ```
#
# </details>

# %% [markdown]
# <details>
# <summary>Solution 2</summary>
#
# Each update moves the weight with a probability of 0.001 / 0.1. The mean number of trials is the reciprocal.
#
# ```python
# >>> scale = np.full(100_000, 0.001 / 0.1)  # in gaps: INT4 rounds whole numbers
# >>> moved = fs.quantize_blocks(scale, "int4", scale=1.0, block="tensor", rounding="stochastic", seed=0).values != 0
# >>> print(f"{moved.mean():.3f} of the updates move the weight")
# 0.010 of the updates move the weight
# >>> print(fs.testing.check_answers({2: 100}, DIGESTS))
# exercise 2: correct
# ```
#
# </details>

# %% [markdown]
# <details>
# <summary>Solution 3</summary>
#
# ```python
# >>> scaler, found = training.as_scaling("delayed", history_length=8).start(seed=0), []
# >>> x, w = (fs.array(np.random.default_rng(n).normal(size=(64, 64)), "fp32") for n in (1, 2))
# >>> for size in [1] * 10 + [40] + [1] * 20:
# ...     y = scaler.matmul(fs.multiply(x, float(size)), w, formats=(fs.E3M2, fs.E3M2), roles=("input", "weight"),
# ...                       product="forward")
# ...     scaler.finish_step()
# ...     found.append(error(y.values, size * x.values.astype(float) @ w.values.astype(float)))
# >>> steps = sum(value > 0.1 for value in found[11:])
# >>> steps
# np.int64(8)
# >>> print(fs.testing.check_answers({3: steps}, DIGESTS))
# exercise 3: correct
# ```
#
# </details>

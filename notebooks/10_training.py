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
# # 10. Why does training in 16 bits stop, and what repairs it?
#
# A network that learns in FP32 can learn nothing in FP16 or BF16, although no step reports an error. This notebook
# shows such failures in runs that take seconds, and how to repair them:
#
# 1. [Gradients that become zero: loss scaling](#Gradients-that-become-zero:-loss-scaling)
# 2. [The scale that adjusts itself](#The-scale-that-adjusts-itself)
# 3. [Updates that are absorbed: master weights](#Updates-that-are-absorbed:-master-weights)
# 4. [Adam's second moment](#Adam's-second-moment)
# 5. [The list of autocast](#The-list-of-autocast)
#
# The network has one hidden layer of 64 units. It reads the 8 x 8 images of handwritten digits that are part of
# floatsim. Every rounding is emulated exactly, so the numbers are the same on every machine. No GPU and no PyTorch is
# needed. The page [Training](../docs/training.md) has the details.

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


# %% [markdown]
# ## Gradients that become zero: loss scaling
#
# The loss of this example is multiplied by one millionth. The factor is chosen to make the failure visible in a small
# network. Large networks have gradients of this size without it. The learning rate is larger by the same factor, so in
# exact arithmetic nothing changes. A [policy](../docs/glossary.md#training-policy) names the formats: `fp16` computes
# everything in FP16, and `+masters` keeps the weights in FP32 beside it. `+scaling` multiplies the loss by a factor,
# here 2^16, before the backward pass, and divides the gradients by it before the update:

# %%
small = {"loss_factor": 1e-6, "lr": 2e5, "batch": 64, "epochs": 6}
runs = [training.train(name, **small) for name in ("fp16+masters", "fp16+masters+scaling", "bf16+masters", "fp32")]
table(
    ("policy", "accuracy on new images", "gradients of the last batch that are zero"),
    [(run.policy, f"{run.accuracy:.3f}", f"{run.epochs[-1].zeros:.0%}") for run in runs],
)

# %% tags=["picture"]
_ = plot.training_accuracies(runs[:2], title="One factor decides: FP16 without and with loss scaling")

# %% jupyter={"source_hidden": true}
half, images = fs.FP16.smallest_subnormal / 2, len(training.digits_data().y) % small["batch"]
Markdown(
    f"FP16 has no positive number below **{fs.FP16.smallest_subnormal:.2e}**, and rounds "
    f"every magnitude of at most {half:.2e} to zero. "
    f"Without scaling, **{runs[0].epochs[-1].zeros:.0%}** of the gradients are zero, and the accuracy of "
    f"{runs[0].accuracy:.3f} is hardly above that of guessing. BF16 has the exponents of FP32, and needs no scaling. "
    f"FP32 has **{runs[3].epochs[-1].zeros:.0%}** zeros, too. The last batch has {images} images. The gradient of a "
    "weight is exactly zero if in each of them its pixel or its unit is zero."
)

# %% [markdown]
# ## The scale that adjusts itself
#
# Which factor is right? Dynamic [loss scaling](../docs/glossary.md#loss-scaling) tries. It doubles the scale after a
# number of clean steps. If a gradient is [infinity](../docs/glossary.md#infinity) or [NaN](../docs/glossary.md#nan),
# the step is skipped, and the scale is halved. PyTorch waits for 2000 clean steps. Here it waits for 30, and starts at
# 2^44, which is too large, so that both rules can be seen in one short run:

# %%
scaler = training.GradScaler(2.0**44, growth_interval=30)
run = training.train("fp16+masters", loss_scale=scaler, **small | {"epochs": 8})
figure, ax = plt.subplots(figsize=(9, 3.6), layout="constrained")
ax.plot(run.scales, drawstyle="steps-post", color=plot.colour("fp16"), lw=2)
skipped = [event.step for event in run.events if event.kind == "skipped"]
ax.plot(
    skipped, [run.scales[step] for step in skipped], "x", color=plot.colour("e5m2"), ms=9, mew=2, label="skipped step"
)
ax.set_yscale("log", base=2)
ax.set(xlabel="step", ylabel="loss scale")
ax.set_title(
    "Dynamic loss scaling finds the largest scale that does not overflow", loc="left", fontweight="bold", wrap=True
)
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)

# %% jupyter={"source_hidden": true}
Markdown(
    f"The first **{sum(step < 30 for step in skipped)}** skipped steps bring the scale from 2^44 to "
    f"2^{np.log2(run.scales[29]):.0f}. Later it doubles until a gradient overflows again. The run reaches "
    "an accuracy of "
    f"**{run.accuracy:.3f}** in 8 epochs, with {len(skipped)} of {len(run.scales)} steps skipped. The "
    "gradients are divided by the scale before the update. "
    "A power of two as a factor adds no rounding error, as long as nothing overflows or underflows."
)

# %% [markdown]
# ## Updates that are absorbed: master weights
#
# The next runs have no factor. They use BF16, whose range is large enough. The learning rate is so small that FP32,
# too, gets only as far in these ten epochs as BF16 with [master weights](../docs/glossary.md#master-weights). In BF16,
# the neighbours of 1 are 1 + 2^-7 and 1 - 2^-8. An update of less than half the distance to the neighbour is
# [absorbed](../docs/glossary.md#absorption): the weight plus the update is rounded to the weight.

# %%
names = ("bf16+masters", "bf16+stochastic", "bf16")
slow = [training.train(name, lr=0.004, batch=64, epochs=10) for name in names]
title = "BF16 weights absorb most updates; master weights or stochastic rounding repair it"
_ = plot.training_accuracies(slow, title=title)

# %%
monitor = training.Monitor(["fp32"], every=20)
training.train("bf16", lr=0.004, batch=64, epochs=1, monitor=monitor)
last = monitor.updates["layer0.weight"][-1]
Markdown(
    f"In step {last.step}, **{last.absorbed:.0%}** of the non-zero updates of the first layer's weights are absorbed "
    "in BF16. The others still move weights, so the accuracy rises, but slowly. "
    "Master weights in FP32 have 16 bits more. Stochastic rounding needs no second copy: "
    "an update of a tenth of the gap moves the "
    "weight by a whole gap "
    "with a probability of one tenth, so the mean is right."
)

# %% [markdown]
# Loss scaling does not help here: the scale is divided out before the update. These are two different failures, and
# each has its own repair.
#
# ## Adam's second moment
#
# Adam divides by the root of v, the running mean of the squared gradients. The square of a small gradient is smaller
# still. The next cell makes one step from a weight of zero. A first step of Adam has nearly the size of the learning
# rate, 0.001, for every gradient:

# %%
gradients = [1e-1, 1e-2, 1e-3, 1e-4, 1e-5]
cases = {
    "FP32": ("fp32", training.Adam(1e-3)),
    "FP16, eps 1e-8": ("fp16", training.Adam(1e-3)),
    "FP16, eps 1e-4": ("fp16", training.Adam(1e-3, eps=1e-4)),
    "FP16, rounded when stored": ("fp16", training.Adam(1e-3, rounding="step")),
    "BF16, eps 1e-8": ("bf16", training.Adam(1e-3)),
}
rows = []
for name, (fmt, optimizer) in cases.items():
    moved = optimizer.step({"w": fs.array(np.zeros(5), fmt)}, {"w": fs.array(gradients, fmt)})["w"].values
    rows.append((name, *(f"{-float(step):.2g}" for step in moved)))
table(("first step of Adam for a gradient of", *(f"{g:g}" for g in gradients)), rows)

# %% jupyter={"source_hidden": true}
Markdown(
    f"After the first step, v is a thousandth of the squared gradient. For a gradient of 1e-3 this is 1e-9, and "
    "the smallest positive number of FP16 is "
    f"{fs.FP16.smallest_subnormal:.2e}: v is zero, and so is eps = 1e-8. The quotient is infinite, and "
    "after one step the "
    "weight is infinite, too. A larger eps keeps the step finite, but ten times too large for one gradient and ten "
    "times too small for "
    "another. Tensors that are rounded only when they are stored repair this step. But the v that is stored is zero "
    "as well, and the next steps are too large. The repair is to compute in FP32 and to store the moments in FP32."
)

# %% [markdown]
# BF16 has the range, but its few bits stop v. The decay is v + (1 - beta2)(g² - v) with 1 - beta2 = 0.001. If the
# gradient has been 1 for a long time, v must approach 1. The change is a thousandth of the distance, and is soon
# absorbed:


# %%
def second_moment(fmt, steps=1500, rounding="ties_to_even"):
    """v of Adam after each step with the gradient 1, stored in a format."""
    v, found = 0.0, []
    for step in range(steps):
        v = float(fs.quantize(v + 0.001 * (1.0 - v), fmt, rounding=rounding, seed=step))
        found.append(v)
    return found


curves = {
    "FP32": (second_moment("fp32"), "fp32", "-", "top"),
    "BF16, stochastic": (second_moment("bf16", rounding="stochastic"), "bf16", "--", "bottom"),
    "BF16": (second_moment("bf16"), "bf16", "-", "center"),
}
figure, ax = plt.subplots(figsize=(9, 3.8), layout="constrained")
for name, (values, fmt, line, side) in curves.items():
    ax.plot(values, line, color=plot.colour(fmt), lw=2)
    ax.annotate(f"{name}: {values[-1]:.3f}", (len(values), values[-1]), (6, 0), textcoords="offset points",
                va=side, color=plot.colour(fmt), annotation_clip=False)  # fmt: skip
ax.set(xlim=(0, 1500), ylim=(0, 1), xlabel="step with the gradient 1", ylabel="second moment v")
ax.set_title("Adam's v stalls in BF16", loc="left", fontweight="bold", wrap=True)
ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# The picture rounds v once in each step. PyTorch's Adam rounds twice, after each of two lines, and its v stalls at 0.5.
# With a v that is too small, the steps are too large, by the square root of the ratio of the right v to the stored v.
#
# ## The list of autocast
#
# PyTorch's [autocast](../docs/glossary.md#autocast) leaves the weights in FP32, and chooses a format for each operation
# from a list. The policy `autocast-fp16` is this list. Each row below computes one operation in FP16, with inputs that
# FP16 has, and asks the policy which format autocast uses:

# %%
policy = training.as_policy("autocast-fp16")
x = np.full(4096, 6.0)
one = {
    "linear": ("sum of 4096 products of 0.125",
               fs.dot(fs.array(x / 48, "fp16"), fs.array(x / 6, "fp16"), accumulate="fp32", format="fp16"), 512),
    "relu": ("the larger of 6 and 0", fs.maximum(fs.array(6.0, "fp16"), fs.array(0.0, "fp16")), 6),
    "exp": ("exp(12)", fs.exp(fs.array(12.0, "fp16")), np.exp(12)),
    "pow": ("300 to the power of 2", fs.multiply(fs.array(300.0, "fp16"), fs.array(300.0, "fp16")), 300**2),
    "sum": ("sum of 4096 times 6", fs.sum(fs.array(x, "fp16"), accumulate="fp16"), x.sum()),
    "norm": ("norm of 4096 times 6", fs.norm(fs.array(x, "fp16"), accumulate="fp16"), np.linalg.norm(x)),
}  # fmt: skip
rows = []
for name, (what, result, exact) in one.items():
    decision = policy.decide(name)
    computed = (
        "inputs' widest" if name == "relu" else decision.operands.name if name == "linear" else decision.result.name
    )
    rows.append((name, what, f"{float(result.values):g}", f"{exact:g}", computed))
table(("operation", "example", "in FP16", "exact", "autocast computes in"), rows)

# %% [markdown]
# Matrix products are in FP16, because their sums are in FP32 and most of the time is spent there. Functions that grow
# fast, and long sums, are in FP32.
#
# ## What to remember
#
# - Gradients that become zero need a factor on the loss. BF16 does not, because of its exponents.
# - Updates that are absorbed need more bits in the stored weight, or
#   [stochastic](../docs/glossary.md#stochastic-rounding) rounding. A factor does not help.
# - Adam's moments are safe in FP32. In FP16 the square and eps become zero. In BF16, rounded to nearest, the mean can
#   stall. Some recipes, such as DeepSeek-V3's, have moments in BF16 nevertheless.
# - A list of operations in FP32 protects functions and sums that [overflow](../docs/glossary.md#overflow).
# - In PyTorch, keep the parameters and the state of the optimizer in FP32, and compute the forward pass under
#   `torch.autocast`. With `dtype=torch.float16`, scale the loss with `torch.amp.GradScaler`, too. With
#   `dtype=torch.bfloat16`, this is not needed. After `model.bfloat16()`, small updates are absorbed, unless the
#   optimizer has [master weights](../docs/glossary.md#master-weights), stochastic rounding or
#   [compensated](../docs/glossary.md#compensated-summation) updates.
#
# Next: [11. Where does attention overflow, and where does its output vanish?](11_attention.ipynb)

# %% [markdown]
# ## Exercises
#
# Write each answer into the cell below, and run it. It compares the answers with digests, which do not show them.
#
# **Exercise 1.** What is the largest gradient that FP16 rounds to zero? By which power of two must the loss at least be
# multiplied so that a gradient of 10^-9 becomes a [normal number](../docs/glossary.md#normal-number) of FP16? Give the
# exponent.
#
# **Exercise 2.** A weight of BF16 is 1. What is the largest positive update that leaves it at 1? Then add 0.001 to the
# weight 1000 times, and round the weight to the nearest number of BF16 after each addition. Give the weight at the end.
#
# **Exercise 3.** `training.replay` runs a scaler on a list of overflows. What is the scale of
# `training.DeepSpeedLossScaler()` after three overflows in a row, and that of `training.GradScaler()`? Give both as a
# list of exponents of two.

# %%
DIGESTS = {1: "b17ef6d19c", 2: "6b86b273ff", 3: "ffe9bc6ede"}
answers = {1: ..., 2: ..., 3: ...}  # replace each ... by an answer
print(fs.testing.check_answers(answers, DIGESTS))

# %% [markdown]
# <details>
# <summary>Solution 1</summary>
#
# Half the smallest [subnormal](../docs/glossary.md#subnormal) number is a [tie](../docs/glossary.md#ties), and is
# rounded to the even neighbour, zero. The factor must bring 10^-9 to at least the smallest normal number, 2^-14.
#
# ```python
# >>> print(fs.FP16.smallest_subnormal / 2)
# 2.9802322387695312e-08
# >>> exponent = next(k for k in range(40) if 1e-9 * 2**k >= fs.FP16.smallest_normal)
# >>> exponent
# 16
# >>> print(fs.testing.check_answers({1: exponent}, DIGESTS))
# exercise 1: correct
# ```
#
# </details>

# %% [markdown]
# <details>
# <summary>Solution 2</summary>
#
# The neighbour of 1 is 1 + 2^-7. Half the gap is a tie, and 1 is even.
#
# ```python
# >>> gap = float(fs.ulp(1.0, "bf16"))
# >>> float(fs.quantize(1 + gap / 2, "bf16")), float(fs.quantize(1 + gap / 2 + 1e-9, "bf16"))
# (1.0, 1.0078125)
# >>> weight = 1.0
# >>> for _ in range(1000):
# ...     weight = float(fs.quantize(weight + 0.001, "bf16"))
# >>> print(fs.testing.check_answers({2: weight}, DIGESTS))
# exercise 2: correct
# ```
#
# In exact arithmetic the weight would be 2.
#
# </details>

# %% [markdown]
# <details>
# <summary>Solution 3</summary>
#
# DeepSpeed's first overflow reduces a counter only, its [hysteresis](../docs/glossary.md#hysteresis).
#
# ```python
# >>> exponents = []
# >>> for scaler in (training.DeepSpeedLossScaler(), training.GradScaler()):
# ...     steps = training.replay(scaler, [True] * 3)
# ...     exponents.append(int(np.log2(scaler.scale)))
# >>> exponents
# [14, 13]
# >>> print(fs.testing.check_answers({3: exponents}, DIGESTS))
# exercise 3: correct
# ```
#
# </details>

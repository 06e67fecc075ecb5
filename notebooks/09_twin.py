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
# # 9. Can a laptop have the bits of an H200?
#
# An NVIDIA H200 trained a small network in BF16, and all its numbers were recorded. Here a CPU computes the same run
# again and compares every bit. Then one sum is added in another order, and the runs part:
#
# 1. [The recorded run](#The-recorded-run)
# 2. [The same run on this machine](#The-same-run-on-this-machine)
# 3. [One order changes](#One-order-changes)
# 4. [Where it ends](#Where-it-ends)
#
# It needs the extra `torch`, and no GPU. The page [PyTorch](../docs/pytorch.md#the-bits-of-a-gpu) has the details.

# %%
try:
    import dataclasses
    import tempfile

    import matplotlib.pyplot as plt
    import numpy as np
    import torch
    from IPython.display import Markdown

    import floatsim as fs
    import floatsim.torch as ft
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"This notebook needs {missing.name}. In a clone of floatsim's repository: "
        "pip install -e '.[notebooks,torch]', then restart the kernel."
    ) from None


def table(head, rows):
    """A table of texts, shown as Markdown."""
    return Markdown("\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)))


# %% [markdown]
# ## The recorded run
#
# A recording is a file with the [codes](../docs/glossary.md#code) of the tensors of a run, and their hashes. It also
# has the text of the program, so that nothing else is needed:

# %%
path = fs.datasets.folder("silicon") / "nvidia-h200" / "twin-mlp.zip"
recording = ft.Recording.read(path)
facts = recording.facts
print(f"{facts['device_name']}, {facts['date']}, torch {facts['versions']['torch']}, {facts['steps']} steps")
print(facts["model"]["source"])

# %% [markdown]
# A training step of this network launches these [kernels](../docs/glossary.md#kernel), among others. Their names say
# in which order they add:

# %%
for launch in facts["kernels"][:3]:
    print(launch["kernel"].split("<")[0], launch["grid"])

# %% [markdown]
# ## The same run on this machine
#
# `ft.check_twin` builds the network, trains it under `ft.emulate("h200")`, and compares each recorded tensor. No number
# is computed by PyTorch: matrix products, GELU, LayerNorm, gradients, the loss and the optimizer have the orders,
# functions and roundings of the GPU.

# %%
report = ft.check_twin(path)
rows = [
    ("initial weights" if step < 0 else f"step {step}", f"{codes:,}", str(differing))
    for step, codes, differing in report.by_step()
    if codes > 1  # the loss alone is recorded in the other steps
]
table(("", "codes", "differing"), rows)

# %%
losses = [recording.codes[ft.Place(step, "loss")].view(np.float32).item() for step in range(facts["steps"])]
Markdown(
    f"**{report.codes:,} codes were compared, and {report.differing} differ.** Each step has a batch of its "
    f"own. Its loss, {losses[0]:.4f} at first and {losses[-1]:.4f} at last, has the same 32 bits here and on the GPU. "
    f"Operations that were not compared with the GPU before: {len(report.unverified)}."
)

# %% [markdown]
# Equal bits are no matter of course. PyTorch itself, on this machine's CPU, has others. Its version and its processor
# decide which:

# %%
on_cpu = ft.check_twin(path, device="cpu")
Markdown(f"PyTorch on a CPU has all bits of the H200: **{'yes' if on_cpu else 'no'}**.")

# %% [markdown]
# ## One order changes
#
# The last layer adds 128 products for each result. The GPU adds them in one chain of
# [instructions](../docs/glossary.md#instruction). Many kernels split such a sum in two parts and add the parts
# (["split-K"](../docs/sums.md#split-k)). Both orders are correct. A policy
# can state one for a single module:

# %%
split = ft.Gemm("bf16", accumulate="splitk(2, hopper, fp32)", backward_accumulate="fp32")
changed = dataclasses.replace(fs.training.POLICIES["h200"], name="one order changed", modules={"3": split})
parted = ft.check_twin(path, policy=changed)
print(parted.first)

# %% [markdown]
# Nothing else was changed: not the backward pass, not the other layers. In the first three steps no recorded bit
# differs, because the rounding to BF16 hides the other order. Then one result is rounded to the other side. This
# changes the loss, the gradients, and the weights of all later steps.
#
# The recording has the weights of five steps. For a curve of all steps, the emulated run is recorded, and compared with
# the changed one:


# %%
def differing(place, run):
    """Where the codes of a weight differ from those of the H200."""
    return run.codes[place] != recording.codes[place]


def weights_by_step(report):
    return [row.differing for row in report.rows if row.part == "updated"]


source = ft.Definition.from_source(facts["model"]["source"])
with tempfile.NamedTemporaryFile(suffix=".npz") as file:
    twin = ft.record_twin(source, file.name, device="h200", steps=facts["steps"])
curve = weights_by_step(ft.check_twin(twin, policy=changed))
recorded_steps = [row.step for row in report.rows if row.part == "updated"]
equal = weights_by_step(report)
total = sum(codes.size for place, codes in twin.codes.items() if place[:2] == (0, "updated"))
print("differing weights, one order changed:", *curve)

# %% [markdown]
# The picture has the curve on the left. On the right are the 64 x 128 weights of the first layer after the last step. A
# dot is a weight whose 16 bits differ from those of the H200:

# %% tags=["picture"]
model = source.build()
optimizer = source.optimizer(model.parameters())
with ft.emulate(changed, model):
    for step in range(facts["steps"]):
        batch = source.batch(step)
        optimizer.zero_grad()
        source.loss(model(batch[0]), batch).backward()
        optimizer.step()
other = model.state_dict()["0.weight"].view(torch.int16).numpy().view(np.uint16)

last = ft.Place(facts["steps"] - 1, "updated", "0.weight")
maps = {"the twin": differing(last, twin), "one order changed": other != recording.codes[last]}
figure, axes = plt.subplot_mosaic(
    [["curve", "the twin"], ["curve", "one order changed"]],
    figsize=(10, 4.2),
    width_ratios=(1.6, 1),
    layout="constrained",
)
ax = axes["curve"]
ax.plot(curve, "o-", color="C1", label="one order changed")
ax.plot(recorded_steps, equal, "s", color="C0", markersize=8, label="the twin")
ax.set_yscale("symlog", linthresh=1)
ax.set(xlabel="training step", ylabel=f"different weights of {total:,}", xticks=range(0, 20, 3))
ax.set_title("A laptop and an H200: 20 steps of training in BF16")
ax.legend(loc="center right")
for (name, differs), colour in zip(maps.items(), ("C0", "C1"), strict=True):
    rows, columns = np.nonzero(differs.T)
    axes[name].scatter(columns, rows, s=4, color=colour)
    axes[name].set(title=f"{name}: {differs.sum()} of {differs.size:,}", xlim=(0, 128), ylim=(64, 0))
    axes[name].set(xticks=[], yticks=[], aspect="equal")

# %% [markdown]
# ## Where it ends
#
# The bits are predicted where every operation was compared with recordings of the H200. `run.unverified` lists the
# others, and `strict=True` refuses them. Not predicted are:
#
# - kernels that nobody recorded: the name of a kernel says how it adds, but which kernel cuBLAS chooses depends on
#   shapes, versions and settings. Sums of at most 1,024 [terms](../docs/glossary.md#term) were one chain in all
#   recordings if the sizes are multiples of 8. The last layer has 10 columns, and its kernel was recorded;
# - operations that were not compared, such as GELU in FP32, and dropout, which draws other numbers on a GPU;
# - sums by atomic additions, which even the GPU does not repeat;
# - other GPUs and other versions: this is one H200 with PyTorch 2.11.0 and CUDA 13.0.
#
# It is also slower than the GPU by orders of magnitude. It answers questions about numbers: is my kernel wrong, or is
# it another order? Which step parted first? `floatsim twin record` writes a recording of your own run on a GPU, and
# `floatsim twin check` names the first module and step whose bits differ, with the likeliest cause.
#
# Next: [10. Why does training in 16 bits stop, and what repairs it?](10_training.ipynb)
#
# ## Exercises
#
# **Exercise 1.** Split the sum of the *first* layer (module "0", 64 products) in two parts. When do the runs part?
#
# <details>
# <summary>Solution</summary>
#
# ```python
# >>> first = dataclasses.replace(changed, modules={"0": split})
# >>> ft.check_twin(path, policy=first).differing
# 0
# >>> print(fs.testing.check_answers({1: 0}, DIGESTS))
# exercise 1: correct
# ```
#
# They do not part in 20 steps. In this layer the rounding to BF16 hides the other order every time. Two orders can
# have the same bits for a long time, which makes such changes hard to find.
#
# </details>
#
# **Exercise 2.** Suppose that the GPU had trained with a learning rate of 0.01, and you believe that it was 0.011. What
# does the check report?
#
# <details>
# <summary>Solution</summary>
#
# ```python
# >>> believed = dataclasses.replace(source, optimizer=lambda weights: torch.optim.SGD(weights, lr=0.011))
# >>> found = ft.check_twin(path, believed).first
# >>> found.module, found.direction, found.why
# ('0', 'weights after the optimizer', 'SGD: all codes are equal with lr=0.01; here it is 0.011')
# >>> print(fs.testing.check_answers({2: ["0", "weights after the optimizer"]}, DIGESTS))
# exercise 2: correct
# ```
#
# All gradients of the first step are equal, so only the optimizer can be the cause.
#
# </details>
#
# **Exercise 3.** Flip one bit of one recorded weight of step 4. What does the check report, and how does it know?
#
# <details>
# <summary>Solution</summary>
#
# ```python
# >>> damaged = ft.Recording.read(path)
# >>> damaged.codes[ft.Place(4, "updated", "3.weight")][2, 7] ^= 1 << 9
# >>> found = ft.check_twin(damaged).first
# >>> str(found.place), found.index, found.kind
# ('step4/updated/3.weight', (2, 7), 'recording')
# >>> found.why
# 'the codes of step4/updated/3.weight do not have the hash that was recorded with them'
# >>> print(fs.testing.check_answers({3: "recording"}, DIGESTS))
# exercise 3: correct
# ```
#
# Each tensor is recorded with its hash.
#
# </details>

# %% [markdown]
# ## Check of the answers
#
# Write your answers into the cell below, and run it. It compares them with digests, which do not show the solutions.
#
# - Exercise 1: the number of codes that differ in 20 steps.
# - Exercise 2: the module and the direction, as a list.
# - Exercise 3: the kind of the cause, as a text.

# %%
DIGESTS = {1: "5feceb66ff", 2: "06de785b73", 3: "9cc87a2dc9"}
answers = {1: ..., 2: ..., 3: ...}  # replace each ... by an answer
print(fs.testing.check_answers(answers, DIGESTS))

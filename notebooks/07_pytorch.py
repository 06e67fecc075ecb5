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
# # 7. Which layer of my PyTorch model fails in FP8?
#
# `floatsim.torch` runs an unmodified PyTorch model under a number format: every operation, forward and backward, with
# every rounding and the order of every sum as a policy says. This notebook runs a small model under many formats and
# finds the layer that fails:
#
# 1. [One model, seven formats](#One-model,-seven-formats)
# 2. [Layer by layer](#Layer-by-layer)
# 3. [The first layer that clips](#The-first-layer-that-clips)
# 4. [One layer at a time](#One-layer-at-a-time)
# 5. [The backward pass](#The-backward-pass)
#
# It needs the extra `torch`. The emulation runs on the CPU, and returns the same bits everywhere. The page
# [PyTorch](../docs/pytorch.md) has the details.

# %%
try:
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
# ## One model, seven formats
#
# The model is an ordinary `torch.nn.Sequential` of three linear layers. Its weights were trained on images of
# handwritten digits, and are part of floatsim:

# %%
net = fs.datasets.digits_network()


def linear(weight, bias):
    layer = torch.nn.Linear(*weight.shape)
    layer.weight.data, layer.bias.data = torch.tensor(weight.T.copy()), torch.tensor(bias)
    return layer


first, second, third = map(linear, net.weights, net.biases)
model = torch.nn.Sequential(first, torch.nn.ReLU(), second, torch.nn.ReLU(), third)
images, labels = torch.tensor(net.images), torch.tensor(net.labels)

# %% [markdown]
# `ft.emulate` takes a policy and the model. This policy computes everything in one format, weights included, and adds
# the products of a matrix product in FP32:


# %%
def first_failure(run):
    return str(run.first("overflow") or run.first("clipped") or "none")


def run_in(policy):
    with torch.no_grad(), ft.emulate(policy, model) as run:
        accuracy = net.accuracy(model(images).numpy())
    assert not run.uncovered  # no operation ran natively
    return accuracy, run


rows, runs = [], {}
for name in ("FP32", "BF16", "FP16", "E4M3", "E5M2", "E3M2", "E2M1"):
    accuracy, runs[name] = run_in(ft.Policy(name, accumulate="fp32"))
    rows.append((name, f"{accuracy:.1%}", first_failure(runs[name])))
table(("format", "accuracy", "first overflow or clipping"), rows)

# %% [markdown]
# Both FP8 formats are as accurate as FP32 here. The narrow formats E3M2 and E2M1 have no
# [infinity](../docs/glossary.md#infinity) and no [NaN](../docs/glossary.md#nan). A number beyond their largest one
# becomes that largest number: it is *clipped*. This happens in the first layer. In a format with an infinity it would
# be an [overflow](../docs/glossary.md#overflow).
#
# ## Layer by layer
#
# `run.report()` has a row for each operation of each layer. The error compares the emulated result with PyTorch's own
# result of the same operands, so it does not contain the errors of earlier layers:

# %%
print(runs["E4M3"].report())

# %% [markdown]
# The picture shows the same for E3M2. The colour is the error. The notes count lost results:

# %% tags=["picture"]
ax = runs["E3M2"].report().plot()

# %% [markdown]
# ## The first layer that clips
#
# `run.first` names the layer, the operation, the pass and the rule of the policy:

# %%
print(runs["E3M2"].first("clipped"))

# %% [markdown]
# The sums of the first layer are beyond the largest number of E3M2, 28. A policy can keep single layers in a wider
# format. Here this is no remedy. The clipping moves to the next layer, whose inputs are as large:

# %%
accuracy, run = run_in(ft.Policy("e3m2", accumulate="fp32", modules={"0": "bf16"}))
Markdown(f"E3M2 with the first layer in BF16: **{accuracy:.1%}**. {first_failure(run)}.")

# %% [markdown]
# The remedy is to scale the tensors before they are rounded. `ft.Gemm` with `scaling="current"` divides each operand by
# a scale, so that its largest number becomes the largest one of the format. The result is written in BF16:

# %%
rows = []
for name in ("e3m2", "e2m1"):
    policy = ft.Policy(
        "bf16", accumulate="fp32", rules={"addmm": ft.Gemm(name, accumulate="fp32", scaling="current", result="bf16")}
    )
    accuracy, run = run_in(policy)
    rows.append((f"{name.upper()}, scaled", f"{accuracy:.1%}", first_failure(run)))
table(("operands of matrix products", "accuracy", "first overflow or clipping"), rows)

# %% [markdown]
# ## One layer at a time
#
# Which layer is the most sensitive? Each row has one layer with scaled E2M1 operands, and all others in BF16:

# %%
narrow = ft.Gemm("e2m1", accumulate="fp32", scaling="current", result="bf16")
rows = []
for name in ("0", "2", "4"):
    accuracy, run = run_in(ft.Policy("bf16", accumulate="fp32", modules={name: narrow}))
    ((worst, error), *_) = run.report().by_module()
    rows.append((name, f"{accuracy:.1%}", f"{error:.2g}"))
table(("layer in E2M1", "accuracy", "error of its results"), rows)

# %% [markdown]
# ## The backward pass
#
# Gradients are emulated as well. With a loss that is multiplied by 1e-6, most of the gradients are too small for FP16.
# They become zero, and the weights do not change. A [loss scale](../docs/glossary.md#loss-scaling) moves them back into
# the range:


# %%
def zero_gradients(policy):
    model.zero_grad()
    with ft.emulate(policy, model) as run:
        loss = 1e-6 * torch.nn.functional.cross_entropy(model(images[:64]), labels[:64])
        run.scaler.scale(loss).backward()
    return torch.cat([each.grad.flatten() for each in model.parameters()]).eq(0).double().mean().item()


rows = []
for scale in (1, 2**10, 2**15):
    policy = ft.Policy("fp16", accumulate="fp32", rules={"cross_entropy_loss": "fp32"}, loss_scale=float(scale))
    rows.append((f"2^{scale.bit_length() - 1}", f"{zero_gradients(policy):.0%}"))
rows.append(("FP32, 1", f"{zero_gradients('fp32'):.0%}"))
table(("loss scale", "gradients that are zero"), rows)

# %% [markdown]
# FP32 has zeros, too. The gradient of a weight is exactly zero if in each of the 64 images its input or its unit is
# zero. `run.scaler` is PyTorch's own `GradScaler` with the loss scale of the policy. Optimizers run inside the `with`
# statement, too, and their lines are emulated.
#
# Next: [8. Which steps need FP32, and how many bits do weights need?](08_low_precision.ipynb)
#
# ## Exercises
#
# **Exercise 1.** Add the products in FP16 instead of FP32, with operands in FP16. Does the accuracy change?
#
# <details>
# <summary>Solution</summary>
#
# ```python
# >>> accuracy, run = run_in(ft.Policy("fp16", accumulate="fp16"))
# >>> round(accuracy, 3), run.first("overflow")
# (0.874, None)
# >>> print(fs.testing.check_answers({1: 0.874}, DIGESTS))
# exercise 1: correct
# ```
#
# The sums have at most 64 products. The errors of FP16 sums grow with the number of products.
#
# </details>
#
# **Exercise 2.** Run the model with a policy that PyTorch itself offers: `autocast-bf16`. Which operations does it
# leave in FP32?
#
# <details>
# <summary>Solution</summary>
#
# ```python
# >>> accuracy, run = run_in("autocast-bf16")
# >>> round(accuracy, 3)
# 0.874
# >>> policy = fs.training.POLICIES["autocast-bf16"]
# >>> [policy.decide(name).result.name for name in ("linear", "softmax", "cross_entropy_loss")]
# ['BF16', 'FP32', 'FP32']
# >>> print(fs.testing.check_answers({2: ["BF16", "FP32", "FP32"]}, DIGESTS))
# exercise 2: correct
# ```
#
# </details>
#
# **Exercise 3.** Store the weights in INT4 with one scale for each tensor, and leave everything else in FP32.
#
# <details>
# <summary>Solution</summary>
#
# ```python
# >>> accuracy, run = run_in(ft.Policy("fp32", accumulate="fp32", weights_at_use="int4"))
# >>> round(accuracy, 3)
# 0.831
# >>> print(fs.testing.check_answers({3: 0.831}, DIGESTS))
# exercise 3: correct
# ```
#
# </details>

# %% [markdown]
# ## Check of the answers
#
# Write your answers into the cell below, and run it. It compares them with digests, which do not show the solutions.
#
# - Exercise 1: the accuracy.
# - Exercise 2: the formats of the results of `linear`, `softmax` and `cross_entropy_loss`, as a list of texts.
# - Exercise 3: the accuracy.

# %%
DIGESTS = {1: "96546ad8fb", 2: "057de9191d", 3: "1c56259c66"}
answers = {1: ..., 2: ..., 3: ...}  # replace each ... by an answer
print(fs.testing.check_answers(answers, DIGESTS))

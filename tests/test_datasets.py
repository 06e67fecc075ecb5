"""The shipped data: found in both places, as described, small, and with its origin beside it."""

from __future__ import annotations

import numpy as np
import pytest

from floatsim import datasets

SHAPES = {"activations": (512, 64), "weights": (64, 32), "gradients": (512, 32)}


def test_digits_are_as_described():
    tensors = datasets.digits()
    assert {name: x.shape for name, x in tensors.items()} == SHAPES
    for x in tensors.values():
        assert x.dtype == np.float32
        assert np.isfinite(x).all()


def test_the_network_is_a_trained_one():
    """ReLU's activations, and gradients that are small because training is over."""
    tensors = datasets.digits()
    assert tensors["activations"].min() == 0
    size = np.abs(tensors["gradients"])
    assert size.max() < 1e-3
    assert np.median(size[size > 0]) < 1e-6


def float32_logits(network, images):
    x = images
    for weights, biases in zip(network.weights[:-1], network.biases[:-1], strict=True):
        x = np.maximum(x @ weights + biases, 0)
    return x @ network.weights[-1] + network.biases[-1]


def test_the_float32_network_has_its_stated_accuracy():
    """228 of 261 test images, and all training images. No logits are so close that the order of a sum decides."""
    network = datasets.digits_network()
    logits = float32_logits(network, network.images)
    assert logits.dtype == np.float32
    assert network.accuracy(logits) == 228 / 261
    training = float32_logits(network, network.training_images)
    assert (training.argmax(axis=1) == network.training_labels).all()
    for each in (logits, training):
        second, first = np.sort(each, axis=1)[:, -2:].T
        assert (first - second).min() > 1e-3
    text = (datasets.folder("digits") / "README.md").read_text(encoding="utf-8")
    assert "228 of the 261 test images (87.4 %)" in text


def test_the_network_has_all_layers_and_the_images():
    network = datasets.digits_network()
    assert [w.shape for w in network.weights] == [(64, 64), (64, 32), (32, 10)]
    assert [b.shape for b in network.biases] == [(64,), (32,), (10,)]
    assert all(x.dtype == np.float32 and np.isfinite(x).all() for x in (*network.weights, *network.biases))
    for images, labels, count in [
        (network.images, network.labels, 261), (network.training_images, network.training_labels, 1536)
    ]:  # fmt: skip
        assert (images.shape, images.dtype) == ((count, 64), np.float32)
        assert (images >= 0).all() and (images <= 16).all() and (images == np.rint(images)).all()
        assert labels.shape == (count,)
        assert set(labels.tolist()) == set(range(10))


def test_the_network_contains_the_three_tensors():
    """The weights equal bit for bit. The activations were computed in float64, from float64 weights."""
    network, tensors = datasets.digits_network(), datasets.digits()
    np.testing.assert_array_equal(network.weights[1], tensors["weights"])
    x = network.training_images[:512].astype(np.float64) @ network.weights[0] + network.biases[0]
    assert np.abs(np.maximum(x, 0) - tensors["activations"]).max() < 1e-5


def test_accuracy_checks_the_shape():
    network = datasets.digits_network()
    perfect = np.eye(10)[network.labels]
    assert network.accuracy(perfect) == 1
    assert network.accuracy(np.roll(perfect, 1, axis=1)) == 0
    with pytest.raises(ValueError, match=r"must have the shape \(261, 10\), not \(10, 261\)"):
        network.accuracy(perfect.T)


def test_origin_and_licence_are_beside_the_data():
    text = (datasets.folder("digits") / "README.md").read_text(encoding="utf-8")
    assert all(word in text for word in ("UCI", "Alpaydin", "Kaynak", "CC BY 4.0", "make_digits.py"))
    stored = [name for path in datasets.folder("digits").glob("*.npz") for name in np.load(path).files]
    assert all(f"`{name}`" in text for name in stored)
    assert len(stored) == 11
    assert sum(path.stat().st_size for path in datasets.folder("digits").iterdir()) < 1_000_000


def test_installed_package_wins_and_a_missing_one_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "__file__", str(tmp_path / "floatsim" / "datasets.py"))
    with pytest.raises(FileNotFoundError, match="digits"):
        datasets.folder("digits")
    checkout, installed = tmp_path / "data" / "digits", tmp_path / "floatsim" / "data" / "digits"
    checkout.mkdir(parents=True)
    assert datasets.folder("digits") == checkout
    installed.mkdir(parents=True)
    assert datasets.folder("digits") == installed

"""The real data that floatsim ships: its files and their contents."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floatsim.formats._validation import with_keyword_hints

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["DigitsNetwork", "digits", "digits_network", "folder"]

_TRAINING_IMAGES = 1536  # the first images; `data/digits/make_digits.py` trains with them


@with_keyword_hints
def folder(name: str) -> Path:
    """Return the folder of a dataset: `floatsim/data/<name>` in an installed package, `data/<name>` in a checkout.

    Parameters
    ----------
    name : str
        The name of the dataset, such as "digits".

    Returns
    -------
    Path

    Raises
    ------
    FileNotFoundError
        If neither folder exists.

    Examples
    --------
    >>> from floatsim import datasets
    >>> sorted(path.name for path in datasets.folder("digits").glob("*.npz"))
    ['backward.npz', 'forward.npz', 'images.npz', 'network.npz']
    """
    package = Path(__file__).parent
    places = [package / "data" / name, package.parent / "data" / name]
    for place in places:
        if place.is_dir():
            return place
    raise FileNotFoundError(f"the dataset {name!r} is neither in {places[0]} nor in {places[1]}; reinstall floatsim")


def digits() -> dict[str, NDArray[np.float32]]:
    """Return three tensors of a small network trained on the UCI digits.

    README.md of `folder("digits")` names the origin and the licence.

    Returns
    -------
    dict of str to float32 array
        "activations" (512, 64), the input of the middle layer; "weights" (64, 32) of that layer; "gradients"
        (512, 32), of the mean loss by that layer's pre-activations, at the end of training.

    Examples
    --------
    >>> from floatsim import datasets
    >>> {name: x.shape for name, x in datasets.digits().items()}
    {'activations': (512, 64), 'weights': (64, 32), 'gradients': (512, 32)}
    """
    import numpy as np

    tensors: dict[str, NDArray[Any]] = {}
    for name in ("forward.npz", "backward.npz"):
        with np.load(folder("digits") / name) as arrays:
            tensors |= dict(arrays)
    return tensors


@dataclass(frozen=True)
class DigitsNetwork:
    """A network of three layers that was trained on the UCI digits, with its images: `digits_network` loads it.

    The forward pass is x -> relu(x @ weights[0] + biases[0]) -> relu(x @ weights[1] + biases[1])
    -> x @ weights[2] + biases[2]. The index of the largest of the 10 results is the digit.

    Attributes
    ----------
    weights : tuple of float32 arrays
        Of the shapes (64, 64), (64, 32) and (32, 10).
    biases : tuple of float32 arrays
        Of the shapes (64,), (32,) and (10,).
    images : float32 array, (261, 64)
        The test images: 8 x 8 pixels, row by row, integers from 0 to 16.
    labels : int64 array, (261,)
        The digits of the test images.
    training_images, training_labels : arrays, (1536, 64) and (1536,)
        The images and digits that the network was trained with.

    Examples
    --------
    >>> import floatsim as fs
    >>> net = fs.datasets.digits_network()
    >>> net.images.shape, [w.shape for w in net.weights]
    ((261, 64), [(64, 64), (64, 32), (32, 10)])
    """

    weights: tuple[NDArray[np.float32], ...]
    biases: tuple[NDArray[np.float32], ...]
    images: NDArray[np.float32]
    labels: NDArray[np.int64]
    training_images: NDArray[np.float32]
    training_labels: NDArray[np.int64]

    def accuracy(self, logits: Any) -> float:
        """Return the share of test images whose largest logit belongs to their digit.

        Parameters
        ----------
        logits : array_like, (261, 10)
            The results of the last layer for `images`. A NaN counts as the largest, as in `np.argmax`.

        Raises
        ------
        ValueError
            If `logits` has another shape.
        """
        import numpy as np

        values = np.asarray(logits)
        if values.shape != (len(self.labels), 10):
            raise ValueError(f"logits must have the shape {(len(self.labels), 10)}, not {values.shape}")
        return float(np.mean(values.argmax(axis=1) == self.labels))


def digits_network() -> DigitsNetwork:
    """Return a small trained network with its test images and labels.

    README.md of `folder("digits")` names the origin and the licence.

    Returns
    -------
    DigitsNetwork

    Examples
    --------
    In float32, 228 of the 261 test images are classified correctly. With weights in E2M1:

    >>> import numpy as np
    >>> import floatsim as fs
    >>> net = fs.datasets.digits_network()
    >>> def logits(weights):
    ...     x = net.images
    ...     for w, b in zip(weights[:-1], net.biases[:-1]):
    ...         x = np.maximum(x @ w + b, 0)
    ...     return x @ weights[-1] + net.biases[-1]
    >>> round(net.accuracy(logits(net.weights)), 3)
    0.874
    >>> scales = [np.float32(abs(w).max() / 6) for w in net.weights]
    >>> four_bits = [fs.quantize(w / s, "e2m1") * s for w, s in zip(net.weights, scales)]
    >>> round(net.accuracy(logits(four_bits)), 3)
    0.812
    """
    import numpy as np

    with np.load(folder("digits") / "network.npz") as arrays:
        layers = dict(arrays)
    with np.load(folder("digits") / "images.npz") as arrays:
        images, labels = arrays["images"].astype(np.float32), arrays["labels"].astype(np.int64)
    return DigitsNetwork(
        weights=tuple(layers[f"weights_{i}"] for i in range(3)),
        biases=tuple(layers[f"biases_{i}"] for i in range(3)),
        images=images[_TRAINING_IMAGES:],
        labels=labels[_TRAINING_IMAGES:],
        training_images=images[:_TRAINING_IMAGES],
        training_labels=labels[:_TRAINING_IMAGES],
    )

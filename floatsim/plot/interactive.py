"""Pictures with sliders in a live notebook, and the static picture everywhere else."""

from __future__ import annotations

import base64
import contextlib
import io
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["explore"]


def explore(draw: Callable[..., Any], **controls: Any) -> None:
    """Call `draw` again whenever one of its arguments is changed with a slider, a menu or a check box.

    The controls need a notebook and ipywidgets, whose `interact` makes them. The output also holds the picture (or the
    printed text) of the first values, for pages that cannot show controls, such as a notebook on GitHub. Outside a
    notebook, or without ipywidgets, `draw` is called once with the first values, and a message names what is missing.

    Parameters
    ----------
    draw : callable
        A function that draws or prints; its result is not shown. The names of `controls` are keyword arguments of it.
    **controls
        The values of each argument, from which ipywidgets makes a control: a list of choices, (low, high) or (low,
        high, step) for a slider, a bool for a check box, a str for a text field. The first value is the first choice,
        the low end, the bool or the str.

    Raises
    ------
    ValueError
        If there is no control, or a control has no value.

    Examples
    --------
    >>> from floatsim import plot
    >>> plot.explore(lambda format: print("a picture of", format), format=["fp16", "bf16"])
    a picture of fp16
    To choose fmt, run this in a notebook (Jupyter, VS Code) with ipywidgets: pip install ipywidgets
    """
    first = {name: _first(name, control) for name, control in controls.items()}
    if not first:
        raise ValueError("explore needs at least one control, such as format=['fp16', 'bf16']; got none")
    shell, widgets = _notebook(), _widgets()
    if shell is None or widgets is None:
        draw(**first)
        names = ", ".join(first)
        print(f"To choose {names}, run this in a notebook (Jupyter, VS Code) with ipywidgets: pip install ipywidgets")
        return
    static = _static(draw, first)
    controlled = widgets.interactive(lambda **chosen: _discard(draw(**chosen)), **controls)
    bundle = {**controlled._repr_mimebundle_(), **static}
    shell.display_pub.publish(bundle, {"floatsim": {"controls": list(first)}})


def _first(name: str, control: Any) -> Any:
    if isinstance(control, list | tuple | range):
        if not control:
            raise ValueError(f"the control {name} must have at least one value, such as [1, 2]; got {control!r}")
        return control[0]
    return control


def _discard(_: Any) -> None:
    """Return nothing, so that a result such as an Axes is not shown as text."""


def _notebook() -> Any:
    """IPython's shell, if this is a notebook; None otherwise."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell if hasattr(shell, "kernel") else None


def _widgets() -> Any:
    """The module ipywidgets, if it is installed; None otherwise."""
    try:
        import ipywidgets
    except ImportError:
        return None
    return ipywidgets


def _static(draw: Callable[..., Any], values: dict[str, Any]) -> dict[str, str]:
    """Return the text and the picture of `draw` with these values, keyed by media type. Its figure is closed."""
    import matplotlib.pyplot as plt

    before, text = set(plt.get_fignums()), io.StringIO()
    with contextlib.redirect_stdout(text):
        draw(**values)
    bundle = {"text/plain": text.getvalue().rstrip("\n") or f"picture for {values}"}
    for number in sorted(set(plt.get_fignums()) - before)[-1:]:
        png = io.BytesIO()
        plt.figure(number).savefig(png, format="png", bbox_inches="tight")
        bundle["image/png"] = base64.b64encode(png.getvalue()).decode("ascii")
    for number in set(plt.get_fignums()) - before:
        plt.close(number)
    return bundle

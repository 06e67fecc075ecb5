"""The modules of programs of `torch.export`, whose forward pass is one graph without modules."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.fx._pytree import tree_flatten_spec

from floatsim.torch.modules import Modules, paths

__all__ = ["followed"]


class _Followed(Interpreter):  # type: ignore[misc]
    """Runs a graph node by node, each inside the path of the module that the node came from."""

    def __init__(self, graph: GraphModule, modules: Modules, prefix: str) -> None:
        super().__init__(graph)
        self._modules, self._prefix = modules, prefix

    def run_node(self, n: Node) -> Any:
        """Run a node inside its module."""
        inner = next(reversed(n.meta.get("nn_module_stack", {"": ("", None)}).values()))[0]
        path = ".".join(part for part in (self._prefix, inner) if part)
        self._modules.enter_path(path or type(self.module).__name__)
        try:
            return super().run_node(n)
        finally:
            self._modules.leave_path()


def _run(modules: Modules, graph: GraphModule, prefix: str, forward: Any, *args: Any, **kwargs: Any) -> Any:
    """Run the forward pass of a program: its arguments as the leaves of the graph, its results as the model's."""
    given = inspect.signature(forward).bind(*args, **kwargs).arguments
    names = graph._in_spec.child(1).context
    words = {name: given.pop(name) for name in names}
    leaves = tree_flatten_spec((list(given.values()), words), graph._in_spec)
    found = _Followed(graph, modules, prefix).run(*leaves, enable_io_processing=False)
    return graph.graph.process_outputs(found)


@contextmanager
def followed(model: torch.nn.Module | None, modules: Modules) -> Iterator[None]:
    """Follow the modules of the exported programs in a model, by the module stacks that `torch.export` keeps."""
    with ExitStack() as stack:
        for path, graph in () if model is None else list(paths(model)):
            if isinstance(graph, GraphModule) and any("nn_module_stack" in node.meta for node in graph.graph.nodes):
                prefix = "" if graph is model else path
                graph.forward = functools.partial(_run, modules, graph, prefix, graph.forward)
                stack.callback(graph.__dict__.pop, "forward")
        yield

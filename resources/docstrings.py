"""The words under the classes and attributes of our models: `hostler explain` shows them, and schemas carry them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from functools import cache


def model_words(model: type) -> str:
    """A class's own docstring, not an inherited one: its first paragraph, in one line."""
    return inspect.cleandoc(model.__dict__.get("__doc__") or "").partition("\n\n")[0].replace("\n", " ")


@cache
def field_words(owner: type) -> dict[str, str]:
    """The words under each attribute of a class, those of its bases included."""
    found: dict[str, str] = {}
    for base in reversed(owner.__mro__):
        if base.__module__.partition(".")[0] == "resources":
            found |= dict(_own_words(base))
    return found


def _own_words(owner: type) -> Iterator[tuple[str, str]]:
    try:
        source = inspect.getsource(owner)
    except OSError:
        return  # a model that is made of others' models, such as FailureDomains: its fields have their words
    tree = ast.parse(textwrap.dedent(source)).body[0]
    assert isinstance(tree, ast.ClassDef)
    for node, following in zip(tree.body, tree.body[1:], strict=False):
        target = (
            node.target
            if isinstance(node, ast.AnnAssign)
            else node.targets[0]
            if isinstance(node, ast.Assign)
            else None
        )
        if (
            isinstance(target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            yield target.id, " ".join(str(following.value.value).split())

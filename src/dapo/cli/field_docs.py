"""The sentence under each field of a settings class, which Python itself does not keep."""

from __future__ import annotations

import ast
import inspect
import textwrap


def field_docs(kind: type) -> dict[str, str]:
    """Field name -> first paragraph of the string that follows it in the class body, on one line."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(tree, ast.ClassDef)
    docs: dict[str, str] = {}
    for field, after in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            paragraph = inspect.cleandoc(ast.literal_eval(after.value)).split("\n\n")[0]
            docs[field.target.id] = " ".join(paragraph.split())
    return docs

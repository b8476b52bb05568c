"""Run the code cells of a notebook in one plain namespace and write what they show into it; needs no Jupyter.

    python scripts/run_notebook.py docs/notebooks/first-inspection.ipynb

A cell shows what it prints, and the value of its last expression: a PIL image as JPEG, anything else by its repr.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import os
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from PIL import Image


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with fresh outputs; its files are made in the current folder."""
    names: dict[str, Any] = {"__name__": "notebook"}
    code_cells = (cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    for number, cell in enumerate(code_cells, 1):
        cell["execution_count"] = number
        cell["outputs"] = _outputs("".join(cell["source"]), names, number)
    return notebook


def _outputs(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    tree, where, value, printed = ast.parse(source), f"cell {number}", None, io.StringIO()
    last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with redirect_stdout(printed):
        exec(compile(tree, where, "exec"), names)
        if last is not None:
            value = eval(compile(last, where, "eval"), names)
    stream = {"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(keepends=True)}
    result = {"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": _shown(value)}
    return [stream] * bool(printed.getvalue()) + [result] * (value is not None)


def _shown(value: object) -> dict[str, str]:
    if not isinstance(value, Image.Image):
        return {"text/plain": repr(value)}
    buffer = io.BytesIO()
    value.save(buffer, "JPEG", quality=80)
    return {"image/jpeg": base64.b64encode(buffer.getvalue()).decode("ascii"), "text/plain": "<image>"}


def main(path: Path) -> None:
    """Run the notebook at ``path`` in a temporary folder and write it back."""
    path = path.resolve()
    document = json.loads(path.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run(document)
        os.chdir(path.parent)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

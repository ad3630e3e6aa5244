"""Execute the notebooks in docs/notebooks and write them as Markdown with pictures.

    python docs/builder/notebooks.py FOLDER     writes the pages to a folder; 'make docs' puts them on the site

A notebook is a Python file in the percent format, which Jupyter opens with jupytext. Each is executed in an empty
folder by a kernel of its own, on one thread.
"""

import base64
import os
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jupytext
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.py"))
ROOT = Path(__file__).parent.parent.parent
TERMINAL_CODES = re.compile(r"\x1b\[[0-9;]*m")


def execute_notebook(path: Path) -> Any:
    """Return a notebook with the outputs of its cells; an error in a cell is raised."""
    notebook = jupytext.read(path)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",  # !picaset is the one of this Python
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "100",
    }
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=300,
            resources={"metadata": {"path": folder}},
            extra_arguments=["--log-level=ERROR"],  # a note about TCP for every kernel
        )
        return client.execute(env=environment)


def to_markdown(notebook: Any, name: str) -> dict[str, str | bytes]:
    """Return the page of an executed notebook and its pictures, by their paths on the site."""
    parts, pictures, heading = [], dict[str, str | bytes](), name
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            heading = [heading, *re.findall("^#+ (.*)$", cell.source, re.MULTILINE)][-1]
            continue
        parts.append(f"```python\n{cell.source}\n```")
        has_picture = any("image/png" in output.get("data", {}) for output in cell.outputs)
        text = "".join(output["text"] for output in cell.outputs if output.output_type == "stream")
        if text:
            parts.append(f"```text\n{TERMINAL_CODES.sub('', text).rstrip()}\n```")
        for output in cell.outputs:
            data = output.get("data", {})
            if "image/png" in data:
                picture = f"{name}_{len(pictures)}.png"
                pictures[f"notebooks/{picture}"] = base64.b64decode(data["image/png"])
                parts.append(f"![{heading}]({picture})")
            elif data and not has_picture:  # the last value of a cell that draws is an object of matplotlib
                parts.append(f"```text\n{data['text/plain']}\n```")
    parts.append(f'<a href="{name}.py" download>The notebook itself</a>, to open in Jupyter with jupytext.')
    return {f"notebooks/{name}.md": "\n\n".join(parts) + "\n", **pictures}


def notebook_pages() -> dict[str, str | bytes]:
    """Execute all notebooks, two at a time, and return their pages and pictures."""
    with ThreadPoolExecutor(2) as threads:
        executed = list(threads.map(execute_notebook, NOTEBOOKS))
    return {
        path: content
        for source, notebook in zip(NOTEBOOKS, executed, strict=True)
        for path, content in to_markdown(notebook, source.stem).items()
    }


if __name__ == "__main__":
    for page, content in notebook_pages().items():
        target = Path(sys.argv[1], page)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)

"""The notebook runs from top to bottom on any trace."""

from pathlib import Path

import nbformat
import pytest
from disk_traces import write_trace
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent.parent / "analyses" / "explore.ipynb"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the Jupyter machinery, in its own process
def test_the_notebook_runs(tmp_path, monkeypatch):
    trace = write_trace(tmp_path / "trace", prefill=150, decode=90)
    monkeypatch.setenv("QEVICT_TRACE", str(trace))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == 2
    assert any("R3 with 16" in str(output.get("data", {})) for output in outputs)


def test_the_notebook_is_kept_without_outputs():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)

"""The notebook runs from its first cell to its last, as in Jupyter, and leaves the pictures of docs/catch-up.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT

NOTEBOOK = ROOT / "examples" / "notebook" / "catch_up.ipynb"
CELL_TIMEOUT_S = 600


@pytest.mark.spark
@pytest.mark.xdist_group("docs-notebook")
@pytest.mark.timeout(1_000)
@pytest.mark.full
def test_the_notebook_runs_and_draws_its_pictures(
    java_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pyspark", "matplotlib", "ipykernel"):
        pytest.importorskip(name)
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("JAVA_HOME", str(java_home))
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "kept without what it prints"
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=CELL_TIMEOUT_S, kernel_name="python3", resources=resources).execute()
    drawn = {path.name for path in (tmp_path / "pictures").iterdir()}
    assert drawn == {path.name for path in (DOCS / "images").iterdir()}
    assert all(f"images/{name}" in (DOCS / "catch-up.md").read_text() for name in drawn)

"""The example notebook runs from its first cell to its last."""

from pathlib import Path

import pytest

from tests.demos import Demo

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "notebook.ipynb"


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat  # a second or more, and each worker imports this file
    from nbclient import NotebookClient

    with Demo(tmp_path / "demo", "--nodes", "1", "--gpus", "2") as demo:
        monkeypatch.setenv("GPUDECK_HUB", demo.url)
        monkeypatch.setenv("GPUDECK_TOKEN", demo.info()["token"])
        monkeypatch.setenv("GPUDECK_DATA", str(tmp_path / "data"))
        monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
        book = nbformat.read(EXAMPLE, as_version=4)  # type: ignore[no-untyped-call]
        assert all(not cell.get("outputs") for cell in book.cells)  # kept clean in the repository
        NotebookClient(book, timeout=90, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [out for cell in book.cells for out in cell.get("outputs", ())]
    text = "\n".join(str(out.get("data", {}).get("text/plain", "")) for out in outputs)
    assert "wall" in text
    assert "uuid" in text
    assert any("gpudeck-still" in str(out.get("data", {}).get("text/html")) for out in outputs)
    assert not [out for out in outputs if out["output_type"] == "error"]

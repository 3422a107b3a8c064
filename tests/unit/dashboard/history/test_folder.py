"""A copy of history takes what lies in it, and writes nowhere else."""

from pathlib import Path

import pytest

from dashboard.history.storage.folder import HistoryDamagedError, copied
from dashboard.history.storage.manifest import HistoryFile, Manifest, digest


@pytest.mark.parametrize("name", ["../escaped.parquet", "raw/../../escaped.parquet", "{}/escaped"])
def test_no_name_in_a_manifest_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    """A backup may come from somebody else, and is restored by root."""
    source, target = tmp_path / "from" / "here", tmp_path / "to" / "there"
    name = name.format(tmp_path)
    for folder in (source, target):
        folder.mkdir(parents=True)
        (folder / "raw").mkdir()
    content = source / name
    content.write_text("escaped")
    manifest = Manifest(source)
    manifest.commit([HistoryFile(name, "raw", 0, 300, 300, 1, 7, digest(content))])
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(HistoryDamagedError, match="no file in it"):
        copied(source, target)
    assert sorted(tmp_path.rglob("*")) == before

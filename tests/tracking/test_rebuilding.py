"""A store is rebuilt from the mirror of another; nothing else is read or written."""

import numpy as np
import pandas as pd
import pytest
from mirrors import RUN, make_curve, make_record, make_store

from parvibench.core.errors import StoreError
from parvibench.core.result import Status
from parvibench.harness.store import files
from parvibench.harness.store.store import Store
from parvibench.tracking import archive
from parvibench.tracking.archive import rebuild
from parvibench.tracking.mirror import MirrorObserver, sync


def test_a_store_is_rebuilt_from_the_mirror(mirrored, tmp_path, monkeypatch):
    """Records, curves, samples and traceback come back as they were; a second time nothing is fetched."""
    uri, run = mirrored.uri, RUN | {"id": "20260106-000000-000-tiny"}
    failed = make_record("lost", status=Status.CRASHED, reason="x", traceback="Traceback ...", values={})
    here = make_store(tmp_path / "here", run, (make_record("kept"), make_curve()), (failed, None))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert sync(here) == ""
    there = Store(tmp_path / "there")
    assert rebuild(uri, there, run["id"]).id == run["id"]
    kept, lost = (make_record(name).key for name in ("kept", "lost"))
    for key in (kept, lost):
        assert there.find(key) == here.find(key)
    pd.testing.assert_frame_equal(there.curve(kept), here.curve(kept))
    assert np.array_equal(there.samples(kept), here.samples(kept))
    assert there.samples(lost) is None
    assert (there.folder(lost) / "traceback.txt").read_text() == "Traceback ..."
    monkeypatch.setattr(Store, "write_cell", lambda *_: pytest.fail("written again"))
    rebuild(uri, there, run["id"])
    monkeypatch.setitem(archive.CELL_FILES, "samples.npz", 10)
    with pytest.raises(StoreError, match=r"samples\.npz has more than 10 bytes"):
        rebuild(uri, Store(tmp_path / "c"), run["id"])


def test_what_cannot_be_rebuilt_is_reported(mirrored, tmp_path):
    with pytest.raises(StoreError, match=r"no run 'nothing'; the latest there: .*-tiny"):
        rebuild(mirrored.uri, Store(tmp_path / "a"), "nothing")
    with pytest.raises(StoreError, match=r"http://127\.0\.0\.1:9: cannot be read"):
        rebuild("http://user:secret@127.0.0.1:9", Store(tmp_path / "b"))


def test_a_path_from_the_server_is_not_followed(mirrored, tmp_path):
    """A cell on the server names a file by a path: nothing is read or written outside the store."""
    run = RUN | {"id": "20260107-000000-000-tiny"}
    record = make_record("evil", traceback="T")
    here = make_store(tmp_path / "here", run, (record, None))
    path = here.folder(record.key) / "cell.json"
    evil = record.model_copy(update={"files": {"../../evil": "0" * 64}})
    path.write_bytes(files.sealed(evil))
    copy = MirrorObserver(mirrored.root)
    copy.started(here.run())
    copy.finished(None, record, here.folder(record.key), cached=False)
    assert copy.close() == ""
    with pytest.raises(StoreError, match="no file of a cell"):
        rebuild(mirrored.uri, Store(tmp_path / "s"), run["id"])

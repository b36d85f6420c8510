"""The study of a server that dies half-way; what a server out of reach does is in the default tests of the mirror."""

from pathlib import Path

import pytest
import tracking_outage


@pytest.mark.slow
def test_a_server_that_dies_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_HTTP_REQUEST_MAX_RETRIES"):
        monkeypatch.setenv(name, "")  # put back at the end: the study sets them
    assert tracking_outage.study(tmp_path) == []

"""A mirrored store."""

import pytest
from mirrors import Mirrored, make_curve, make_record, mirror

from parvibench.core.result import Status


@pytest.fixture(autouse=True, scope="module")
def no_retries():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        yield


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory):
    """A store with a good, a crashed and a partly diverged cell, mirrored twice."""
    root = tmp_path_factory.mktemp("store")
    curve = make_curve()
    bad = make_record("bad", status=Status.CRASHED, reason="it <broke>", values={}, effective_step=None)
    lost = {"n_diverged": 2, "diverged": {0: 25, 1: 25}, "values": {"sliced_w2": [None, None, 0.2]}}
    rest = curve[(curve["checkpoint"] == 0) | (curve["replicate"] == 2)]
    cells = ((make_record("good"), curve), (bad, None), (make_record("half", **lost), rest))
    warnings = [mirror(root, *cells), mirror(root, *cells)]
    return Mirrored(root, warnings)

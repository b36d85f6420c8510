"""The short version of the study of broken stores: those that take no second process."""

from pathlib import Path

import broken_stores
import pytest


@pytest.mark.parametrize("check", [broken_stores.full_disk, broken_stores.read_only_disk])
def test_disks_that_are_full_or_read_only(check, tmp_path: Path) -> None:
    try:
        assert check(tmp_path) == []
    except broken_stores.NoMountError as error:
        pytest.skip(f"cannot mount a small disk: {error}")


@pytest.mark.slow
@pytest.mark.parametrize("check", [broken_stores.corrupt_database, broken_stores.two_runs])
def test_corrupt_databases_and_second_runs(check, tmp_path: Path) -> None:
    assert check(tmp_path) == []

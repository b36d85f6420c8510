"""The short version of the study of malformed suite files."""

import malformed_suites
import pytest


@pytest.fixture(autouse=True)
def own_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["parvibench"])
    # The study sends the messages elsewhere; `file` would be put back as the stream of this test.
    monkeypatch.setattr("parvibench.cli.shared.console._file", None)


def test_malformed_files_exit_2_with_their_place() -> None:
    found, codes, _ = malformed_suites.study(40, limit=10.0)  # other tests may run beside this one
    assert found == []
    assert codes == {2: 40}

"""Files of samples: what is read is what was meant, or the file is refused with a word."""

import io
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parvibench.core.errors import InputError
from parvibench.data.samples import read_draws

X = np.random.default_rng(0).normal(size=(40, 2))
ROWS = "".join(f"{float(a)!r},{float(b)!r}\n" for a, b in X)


def npy_bytes(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def npz_of(*names: str, content: bytes = npy_bytes(X)) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, content)
    return buffer.getvalue()


def parquet_of(**columns: object) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


def frame_bytes(frame: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.to_parquet(buffer)
    return buffer.getvalue()


GOOD: dict[str, tuple[str, bytes]] = {
    "plain": (".csv", ROWS.encode()),
    "names": (".csv", ("x,theta[1]\n" + ROWS).encode()),
    "byte order mark": (".csv", ROWS.encode("utf-8-sig")),
    "byte order mark and names": (".csv", ("x,y\n" + ROWS).encode("utf-8-sig")),
    "quoted first row": (".csv", re.sub(r"^(.*),(.*)\n", r'"\1","\2"\n', ROWS, count=1).encode()),
    "quoted names": (".csv", ('"x","y"\n' + ROWS).encode()),
    "carriage returns": (".csv", ROWS.replace("\n", "\r\n").encode()),
    "no last line end": (".csv", ROWS.rstrip().encode()),
    "capital ending": (".CSV", ROWS.encode()),
    "npy": (".npy", npy_bytes(X)),
    "npy by columns": (".npy", npy_bytes(np.asfortranarray(X))),
    "npy big endian": (".npy", npy_bytes(X.astype(">f8"))),
    "npz": (".npz", npz_of("samples.npy")),
    "npz beside others": (".npz", npz_of("samples.npy", "weights.npy")),
    "parquet": (".parquet", frame_bytes(pd.DataFrame(X, columns=["a", "b"]))),
    "parquet with an index": (".parquet", frame_bytes(pd.DataFrame(X, columns=["a", "b"], index=np.arange(40) * 3))),
}  # fmt: skip
NO = "not real numbers"
BAD: dict[str, tuple[str, bytes, str]] = {
    "columns counted from 0": (".csv", ("0,1\n" + ROWS).encode(), "may be a draw or count the columns"),
    "columns counted from 1": (".csv", ("1,2\n" + ROWS).encode(), "may be a draw or count the columns"),
    "an index": (".csv", (",0,1\n" + ROWS).encode(), "neither numbers nor names only"),
    "a spoilt first draw": (".csv", ("0.1x,2\n" + ROWS).encode(), "neither numbers nor names only"),
    "a name twice": (".csv", ("x,x\n" + ROWS).encode(), "two columns named 'x'"),
    "UTF-16": (".csv", ROWS.encode("utf-16"), "decode"),
    "text": (".csv", (ROWS + "a,b\n").encode(), "'a'"),
    "complex": (".csv", (ROWS + "1+2j,0\n").encode(), "1+2j"),
    "dates": (".csv", (ROWS + "2001-01-01,0\n").encode(), "2001-01-01"),
    "a short row": (".csv", (ROWS + "1\n").encode(), "row 41 has 1 fields instead of 2"),
    "an empty field": (".csv", (ROWS + "1,\n").encode(), "row 41: '' is not a number"),
    "nothing": (".csv", b"", "is empty"),
    "nothing of ArviZ": (".nc", b"", "is empty"),
    "complex npy": (".npy", npy_bytes(X + 1j), NO),
    "dates npy": (".npy", npy_bytes(X.astype("datetime64[s]")), NO),
    "text npy": (".npy", npy_bytes(X.astype(str)), NO),
    "booleans npy": (".npy", npy_bytes(X > 0), NO),
    "an npy that claims more": (".npy", npy_bytes(X).replace(b"(40, 2)", b"(99, 2)"), "claims 1584 bytes"),
    "an npy that claims less": (".npy", npy_bytes(X).replace(b"(40, 2)", b"(39, 2)"), "claims 624 bytes"),
    "two arrays of one name": (".npz", npz_of("samples.npy", "samples"), "2 arrays named 'samples'"),
    "an array of another name": (".npz", npz_of("x.npy"), "no arrays named 'samples' inside, expected one; it holds 'x.npy'"),
    "complex npz": (".npz", npz_of("samples.npy", content=npy_bytes(X + 1j)), NO),
    "text parquet": (".parquet", parquet_of(a=["x"] * 3, b=[1.0] * 3), NO),
    "dates parquet": (".parquet", frame_bytes(pd.DataFrame({"a": pd.to_datetime(["2001-01-01"])})), NO),
    "no parquet": (".parquet", b"PAR1" + bytes(100) + b"PAR1", "cannot be read"),
}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Callable[[str, bytes], Path]:
    def write(ending: str, content: bytes) -> Path:
        path = tmp_path / f"x{ending}"
        path.write_bytes(content)
        return path

    return write


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("kind", GOOD)
def test_what_is_meant_is_read(kind: str, place: Callable[[str, bytes], Path]) -> None:
    assert np.array_equal(read_draws([place(*GOOD[kind])]).values, X)


@pytest.mark.parametrize("kind", BAD)
def test_what_could_be_misread_is_refused(kind: str, place: Callable[[str, bytes], Path]) -> None:
    ending, content, told = BAD[kind]
    with pytest.raises(InputError, match=re.escape(told)) as refused:
        read_draws([place(ending, content)])
    assert "\n" not in str(refused.value)


def test_a_flipped_bit_of_an_archive_is_found(place: Callable[[str, bytes], Path]) -> None:
    """By the checksum of the stored bytes: this one is a number's."""
    buffer = io.BytesIO()
    np.savez(buffer, samples=X)  # not compressed
    content = bytearray(buffer.getvalue())
    content[content.index(X.tobytes()) + 100] ^= 1
    with pytest.raises(InputError, match="CRC"):
        read_draws([place(".npz", bytes(content))])


@pytest.mark.parametrize("claim", ["honest", "lying"])
def test_a_bomb_is_not_unpacked(claim: str, place: Callable[[str, bytes], Path]) -> None:
    """The header says 8 GiB where there are 64 KiB, or 2 numbers where there are 4 million."""
    header = npy_bytes(np.zeros((2, 1)))[:-16]
    shape = b"(268435456, 4)" if claim == "honest" else b"(2, 1)"
    content = header.replace(b"(2, 1)", shape).replace(b" " * (len(shape) - 6) + b"\n", b"\n")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("samples.npy", "w") as file:
        file.write(content)
        for _ in range(8):
            file.write(bytes(2**22 if claim == "lying" else 2**10))
    with pytest.raises(InputError, match="claims"):
        read_draws([place(".npz", buffer.getvalue())])


def test_a_module_in_the_folder_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit('run')")
    np.save(tmp_path / "x.npy", X)
    monkeypatch.chdir(tmp_path)
    assert np.array_equal(read_draws([Path("x.npy")]).values, X)

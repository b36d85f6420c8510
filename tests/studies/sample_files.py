"""Files of samples, good, odd and damaged, through ``parvibench evaluate``: read as meant, or one line and exit 2.

``python tests/studies/sample_files.py --files 300``. Every file is made from known draws: an answer other than these
draws counts as silent, unless nothing in the file could tell (a changed digit of a CSV file). Names, dimensions and
Stan's headers are tested in ``tests/data``.
"""

import argparse
import contextlib
import io
import json
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from parvibench import cli
from parvibench.api import evaluate as evaluating
from parvibench.cli import shared
from parvibench.data.draws.arrays import Draws

#: Ending, content, the array that was meant (None where the file is none of real numbers), and whether the content
#: alone can tell a change of a number.
Case = tuple[str, bytes, np.ndarray | None, bool]


def npy(array: np.ndarray) -> bytes:
    """The bytes of an ``.npy`` file."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=array.dtype == object)
    return buffer.getvalue()


def npz(members: list[tuple[str, bytes]], compression: int) -> bytes:
    """A zip archive; names may repeat."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


def parquet(frame: pd.DataFrame, **options: Any) -> bytes:
    """The bytes of a Parquet file with checksums of its pages."""
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pandas(frame), buffer, write_page_checksum=True, **options)
    return buffer.getvalue()


def good(chance: Random) -> Case:
    """Draws in one of the ways they are written down."""
    x = np.random.default_rng(chance.randrange(2**32)).normal(size=(chance.randint(2, 60), chance.choice([1, 2, 5])))
    kind = chance.choice(["npy", "npz", "csv", "parquet"])
    if kind == "npy":
        stored = chance.choice([x, np.asfortranarray(x), x.astype(">f8"), x.astype(np.float32)])
        return ".npy", npy(stored), stored.astype(float), False
    if kind == "npz":
        ways = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
        others = [("other.npy", npy(x))] * chance.randint(0, 1)
        return ".npz", npz([*others, ("samples.npy", npy(x))], chance.choice(ways)), x, True
    names = [f"theta[{i}]" for i in range(x.shape[1])]
    if kind == "parquet":
        frame = pd.DataFrame(x, columns=names)
        frame.index = chance.choice([frame.index, frame.index + 7, frame.index.astype(str)])
        return ".parquet", parquet(frame, compression=chance.choice(["snappy", "zstd", "none", "gzip"])), x, True
    quote = chance.choice(["", '"'])
    rows = [[f"{quote}{float(v)!r}{quote}" for v in row] for row in x]
    rows = [[f"{quote}{n}{quote}" for n in names], *rows] if chance.random() < 0.5 else rows
    end = chance.choice(["\n", "\r\n"])
    text = end.join(",".join(row) for row in rows) + end * chance.randint(0, 1)
    return ".csv", text.encode(chance.choice(["utf-8", "utf-8-sig"])), x, False


def odd(chance: Random) -> Case:
    """Something else than an array of real numbers that can be read in one way."""
    x = np.random.default_rng(chance.randrange(2**32)).normal(size=(20, 2))
    kinds = [x + 1j, x > 0, x.astype(str), x.astype("datetime64[s]"), x.astype("timedelta64[s]"), x.astype(object)]
    kinds += [np.zeros(3, dtype=[("a", "f8"), ("b", "f8")]), np.array([b"ab", b"c"])]
    array = chance.choice(kinds)
    csv = "".join(f"{float(a)!r},{float(b)!r}\n" for a, b in x)
    long = npy(np.zeros((2, 2))).replace(b"(2, 2)", b"(9**9, 9**9)").replace(b" " * 7 + b"\n", b"\n")
    huge = npy(np.zeros((2, 2))).replace(b"(2, 2)", b"(99999999999, 9)").replace(b" " * 10 + b"\n", b"\n")
    zeros = npy(np.zeros(2**20))
    wide = parquet(pd.DataFrame({"a": np.zeros(2**26, np.int8)}))
    choices: list[Callable[[], tuple[str, bytes]]] = [
        lambda: (".npy", npy(array)),
        lambda: (".npz", npz([("samples.npy", npy(array))], zipfile.ZIP_DEFLATED)),
        lambda: (".npz", npz([("samples.npy", npy(x)), ("samples.npy", npy(x + 1))], zipfile.ZIP_STORED)),
        lambda: (".npz", npz([("samples", npy(x)), ("samples.npy", npy(x + 1))], zipfile.ZIP_STORED)),
        lambda: (".npz", npz([("draws.npy", npy(x))], zipfile.ZIP_STORED)),
        lambda: (".npz", npz([("samples.npy", zeros[:-8] + bytes(2**28))], zipfile.ZIP_DEFLATED)),
        lambda: (".npy", chance.choice([long, huge])),
        lambda: (".npy", chance.randbytes(chance.randint(0, 400))),
        lambda: (".npz", b"PK\3\4" + chance.randbytes(300)),
        lambda: (".parquet", b"PAR1" + chance.randbytes(300) + b"PAR1"),
        lambda: (".parquet", wide),
        lambda: (".parquet", parquet(pd.DataFrame({"a": chance.choice([["x"], [True], [None], [[1.0]]])}))),
        lambda: (".parquet", parquet(pd.DataFrame({"a": pd.to_datetime(["2001-01-01", "2002-01-01"])}))),
        lambda: (".csv", ("0,1\n" + csv).encode()),
        lambda: (".csv", (",0,1\n" + csv).encode()),
        lambda: (".csv", csv.encode(chance.choice(["utf-16", "utf-32", "utf-7"])) + b"\xff"),
        lambda: (".csv", (csv + chance.choice(["1+2j,0\n", "a,b\n", "2001-01-01,1\n", "1\n", "1,\n", "1,2,3\n", "0x1p3,1\n", "1_0,1\n"])).encode()),
        lambda: (".csv", chance.choice([b"", b"\n", b"\0\0", b'"', b"x,y,x\n1,2,3\n", b"1;2\n3;4\n", b"[" * 10**5, b"1," * 10**5])),
        lambda: (chance.choice([".pkl", ".pt", "", ".csv.gz"]), csv.encode()),
    ]  # fmt: skip
    return *chance.choice(choices)(), None, True


def damaged(chance: Random) -> Case:
    """A good file with a bit flipped, its end lost, or a piece of it given twice."""
    ending, content, x, told = good(chance)
    at = chance.randrange(len(content))
    harm = chance.choice(["bit", "bit", "end", "twice"])
    if harm == "bit":
        flipped = bytearray(content)
        flipped[at] ^= 1 << chance.randrange(8)
        return ending, bytes(flipped), x, told
    if harm == "end":
        return ending, content[:at], x, told or ending == ".npy"
    return ending, content[:at] + content[at // 2 :], x, told


def cases(count: int, chance: Random) -> Iterator[tuple[str, Case]]:
    """A third of each kind."""
    for i in range(count):
        make = (good, odd, damaged)[i % 3]
        yield make.__name__, make(chance)


def ask(path: Path) -> tuple[int, str, np.ndarray | None]:
    """Exit code, what was said, and the array that reached the metrics."""
    said, seen = io.StringIO(), []

    def evaluate(draws: Draws, *_: Any, **__: Any) -> dict[str, Any]:
        seen.append(np.array(draws.values))
        return {"task": "banana", "n": len(draws.values), "verdict": "", "metrics": []}

    sys.argv = ["parvibench", "evaluate", "--task", "banana", str(path), "--json"]
    shared.console.file = said
    own, evaluating.evaluate = evaluating.evaluate, evaluate
    code = 0
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            cli.main()
    except SystemExit as left:
        code = int(left.code or 0)
    except BaseException as error:
        return -1, f"Traceback: {type(error).__name__}: {error}", None
    finally:
        evaluating.evaluate = own
        shared.console._file = None  # the error stream of the moment again
    return code, said.getvalue(), seen[0] if seen else None


def wrong_with(kind: str, case: Case, answer: tuple[int, str, np.ndarray | None]) -> str:
    """What is wrong with an answer, or nothing."""
    (ending, _, meant, tells), (code, said, read) = case, answer
    if "Traceback" in said:
        return f"traceback: {said[-300:]}"
    if code == 2:
        return f"refused: {said}" if kind == "good" else "" if said.count("\n") == 1 else f"{said.count(chr(10))} lines"
    if code or read is None:
        return f"exit code {code}: {said[:200]}"
    if meant is None:
        return f"read as {read.shape}"
    meant = meant if meant.shape == read.shape or meant.ndim > 1 else meant[:, None]
    if read.shape == meant.shape and (np.array_equal(read, meant) or not tells):
        return ""
    return "" if kind == "damaged" and ending == ".csv" and not tells else f"read as {read.shape}, meant {meant.shape}"


def study(count: int, seed: int = 0) -> tuple[list[str], Counter[str]]:
    """Problems, and counts of kinds and answers."""
    chance, found, counts = Random(seed), [], Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        for i, (kind, case) in enumerate(cases(count, chance)):
            path = Path(name) / f"x{i}{case[0]}"
            path.write_bytes(case[1])
            answer = ask(path)
            counts[f"{kind}: {'read' if answer[0] == 0 else 'refused'}"] += 1
            if problem := wrong_with(kind, case, answer):
                found.append(f"{kind} {case[0]} {case[1][:60]!r}: {problem}")
            path.unlink()
    return found, counts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    problems, answers = study(given.files, given.seed)
    print(json.dumps(answers, indent=1))
    print(f"{given.files} files, {len(problems)} problems")
    print("\n".join(problems))
    raise SystemExit(bool(problems))

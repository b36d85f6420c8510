"""Arrays of real numbers in NumPy's file format, from untrusted sources."""

from __future__ import annotations

import math
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

#: Of dtypes: floating, signed and unsigned integers; neither booleans, complex numbers, dates nor text.
REAL = "fiu"


def read_array(file: IO[bytes], held: int) -> NDArray[Any]:
    """An array of real numbers; the header's claims are checked before memory is given out for them.

    Args:
        file: at the beginning of the array.
        held: bytes up to its end.

    Raises:
        ValueError: another format, anything but real numbers, or more or fewer bytes than the header claims.
    """
    began = file.tell()
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in read:
        raise ValueError(f"npy version {version}")
    shape, by_columns, dtype = read[version](file)
    if dtype.kind not in REAL:
        raise ValueError(f"holds {dtype}, not real numbers")
    claimed, rest = math.prod(shape) * dtype.itemsize, held - (file.tell() - began)
    if claimed != rest:
        raise ValueError(f"claims {claimed} bytes of numbers and holds {rest}")
    content = file.read(rest + 1)  # one more: at the end of a zip archive's file its checksum is compared
    if len(content) != rest:
        raise ValueError(f"claims {claimed} bytes of numbers and holds {len(content)}")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if by_columns else "C")

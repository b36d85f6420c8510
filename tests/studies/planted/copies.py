"""A private copy of the checkout: bugs are planted there, and whatever runs in it imports it, child processes too."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from .catalogue import PlantedBug, sources

ROOT = Path(__file__).resolve().parents[3]
_FOLDERS = ("parvibench", "tasks", "baselines", "tests")
#: Packages of the root that are imported as parts of ``parvibench``.
_MAPPED = ("tasks", "baselines")


class PrivateCopy:
    """The folders of the checkout that tests need, copied to ``root``, which must not exist yet."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in _FOLDERS:  # with modification times, so that the compiled copies stay valid
            shutil.copytree(ROOT / folder, root / folder)
        for name in _MAPPED:  # found before the editable install's own mapping
            (root / "parvibench" / name).symlink_to(root / name)
        shutil.copy(ROOT / "pyproject.toml", root)

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables of a process that imports the copy, with one thread, and compiles nothing to disk."""
        one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        studies = self.root / "tests" / "studies"
        path = os.pathsep.join(map(str, (self.root, studies, studies.parent)))
        return {**os.environ, **one, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}

    @contextmanager
    def with_bug(self, bug: PlantedBug) -> Iterator[Path]:
        """While it is entered, the module's file has the bug."""
        file = self.root / sources()[bug.home()].relative_to(ROOT)
        original, times = file.read_text("utf-8"), file.stat()
        file.write_text(bug.planted(original), "utf-8")
        try:
            yield file
        finally:
            file.write_text(original, "utf-8")
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))

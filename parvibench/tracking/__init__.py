"""The MLflow mirror; the only package that talks to MLflow."""

from .archive import CELL_FILES, Archive
from .connection import ui_command
from .mirror import Mirror

__all__ = ["CELL_FILES", "Archive", "Mirror", "ui_command"]

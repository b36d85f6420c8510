"""Tuned step sizes of a suite: what lacks them, the values of two tunings together, and storing them in the suite file."""

import io
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError

from parvibench.core.errors import InputError
from parvibench.harness.store.files import output_place, write_atomically

from .cells import Cell
from .entries import Tuned
from .suite import Suite


def lacking(suite: Suite, cells: Sequence[Cell]) -> list[Cell]:
    """Cells with a default step size on tasks without tuned values; methods added to tuned tasks are not among them."""
    if suite.tune is None:
        return []
    held = {} if suite.tuned is None else suite.tuned.step_size
    return [c for c in cells if c.untuned and c.spec.task not in held]


def of_tasks(suite: Suite, names: Collection[str]) -> Suite:
    """The suite with these tasks alone, whether it lists products or rows."""
    tasks, rows = (t for t in suite.tasks if t.name in names), (r for r in suite.rows if r.task in names)
    return suite.model_copy(update={"tasks": tuple(tasks), "rows": tuple(rows)})


def with_more(old: Tuned | None, new: Tuned) -> Tuned:
    """The values of both; where both have one, the new."""
    if old is None:
        return new
    return Tuned.model_validate(_merged(*(t.model_dump(mode="json", exclude_defaults=True) for t in (old, new))))


def untuned(suite: Suite, cells: Sequence[Cell], profile: str | None, source: str) -> str | None:
    """Why a suite, called ``source``, is not run: a grid and, on one of its tasks, no tuned or given values; else None."""
    waiting = lacking(suite, cells)
    if not waiting:
        return None
    labels, tasks = dict.fromkeys(c.label for c in waiting), dict.fromkeys(c.task for c in waiting)
    command = f"parvibench tune {source}" + (f" --profile {profile}" if profile else "")
    return (
        f"suite {suite.name!r} has a grid of step sizes and no tuned ones for {_some(labels)}"
        f"{'' if suite.tuned is None else f' on {_some(tasks)}'}: `{command}` chooses them, `run --tune` does so first, "
        "and --set METHOD.step_size=VALUE sets one by hand"
    )


def _some(names: Collection[str]) -> str:
    return ", ".join(list(names)[:5]) + (" and others" if len(names) > 5 else "")


def suite_text(path: Path, source: str, profile: str | None) -> str:
    """Text of the suite file, or ``source`` where it is new or empty; ``InputError`` where it is none, or lacks the profile."""
    place = output_place(path)
    try:
        text = place.read_text() if place.exists() else ""
        text = text if text.strip() else source
        tree = YAML(typ="rt", pure=True).load(text)
    except (OSError, UnicodeError, YAMLError) as error:
        raise InputError(f"{path}: not a suite file: {str(error).partition(chr(10))[0]}") from None
    known = tree.get("profiles", {}) if isinstance(tree, dict) else {}
    if not isinstance(tree, dict) or (profile is not None and profile not in known):
        raise InputError(
            f"{path}: holds no profile {profile!r} for the values; name a new file, which becomes a copy of the suite"
        )
    return text


def write_tuned(path: Path, tuned: Tuned, profile: str | None, *, keep: bool = False, text: str = "") -> None:
    """Store tuned values in the suite file or its profile, keeping comments; with ``keep`` values of other cells stay."""
    yaml = YAML(typ="rt", pure=True)
    yaml.width = 160
    tree: Any = yaml.load(text or path.read_text())
    own = None if profile is None else tree["profiles"][profile]
    place = tree if own is None or ("tuned" in tree and "tuned" not in own) else own
    new = tuned.model_dump(mode="json", exclude_defaults=True)
    if keep and place.get("tuned"):
        new = _merged(place["tuned"], new)
    place["tuned"] = _laid_out(new)
    buffer = io.StringIO()
    yaml.dump(tree, buffer)
    write_atomically(path.resolve(), buffer.getvalue().encode())


def _merged(old: Any, new: dict[str, Any]) -> dict[str, Any]:
    """Stored choices with new ones put over them; flags of cells that were tuned again are the new ones."""
    again = {f"{task}/{label}" for task, chosen in new["step_size"].items() for label in chosen}
    for task, own in old.get("settings", {}).items():  # options of a step that is replaced
        for label in [label for label in own if f"{task}/{label}" in again]:
            del own[label]
    edges = [c for c in old.get("at_edge", ()) if c not in again]
    by_task = {
        key: {t: {**old.get(key, {}).get(t, {}), **own.get(t, {})} for t in {**old.get(key, {}), **own}}
        for key in ("step_size", "settings", "score_evaluations")
        if (own := new.get(key, {})) or key in old
    }
    return {**new, **by_task, "at_edge": sorted([*edges, *new.get("at_edge", ())])}


def _laid_out(values: dict[str, Any]) -> CommentedMap:
    """One line a task: outer mappings in block style, the innermost and lists in flow style."""
    laid = CommentedMap()
    for key, value in values.items():
        if isinstance(value, dict):
            laid[key] = _laid_out(value)
            inner = any(isinstance(v, dict) for v in value.values())
            (laid[key].fa.set_block_style if inner else laid[key].fa.set_flow_style)()
        elif isinstance(value, list):
            laid[key] = CommentedSeq(value)
            laid[key].fa.set_flow_style()
        else:
            laid[key] = value
    return laid

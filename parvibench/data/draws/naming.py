"""Names of columns matched to names that are wanted, in whatever style a program writes them.

Components of variables are written ``theta[1]``, ``theta.1``, ``theta(1)``, ``theta[0]``, ``theta_1`` or ``('theta', 1)``,
of matrices with two indices. Styles are tried from the exact one on, and the first in which every name wanted is
among those given decides. Nothing is guessed from places unless one side has no names.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence

#: A variable and the indices of one of its components: numbers, or labels.
Key = tuple[str, tuple[int | str, ...]]

_BRACKETS = re.compile(r"(.+?)((?:\[[^\[\]]*\])+|\([^()]*\))")
_POINTS = re.compile(r"([^\W\d][^.]*)((?:\.\d+)+)")
_UNDERSCORES = re.compile(r"(.+?)((?:_\d+)+)")
#: What programs write where there are no names, counted from 0 or 1.
_DEFAULT = re.compile(r"(|V|X|x|column ?|col|dim_?|param_?|\.\.\.)(\d+)")
#: Weights of draws, and densities at them: no coordinates, unless a task has one of that name.
_WEIGHT = re.compile(
    r"(log|ln|importance|sample|posterior|particle|normali[sz]ed|smoothed|psis|resampling|is)*(weights?|wts?|w|lw|mult|multiplicity)"
)
_DENSITY = re.compile(r"(?i)log_?(p|prob|prior|post|posterior|lik|likelihood|like|l|density)|lp|lprior|deviance")
BY_WEIGHTS = "resample the draws by them, say --weights {} (weights= in Python), or choose with --columns"
_SHOWN, _LONGEST = 6, 40


def match(found: Sequence[str], wanted: Sequence[str], of: str, to: str, count: int) -> tuple[list[int], str]:
    """Match the names of ``count`` columns of ``of`` (the samples) to those of ``to`` (the reference).

    The column for each name that is wanted, and the remark on the match; ``ValueError``, with both lists, where both have names and some that are wanted are missing.
    """
    if not wanted and (densities := [name for name in found if _DENSITY.fullmatch(name)]):
        raise ValueError(f"{of}: {listed(densities)} may be a density, no coordinate: choose with --columns")
    if by_place := _why_by_place(found, wanted, of, to):
        return list(range(count)), f"columns taken by place ({by_place}"
    for keys, targets, moved in _styles(found, wanted):
        place = {key: i for i, key in enumerate(keys)}
        if len(place) == len(keys) and set(targets) <= set(place):
            return (order := [place[t] for t in targets]), _said(found, wanted, order, of, to, moved)
    raise ValueError(_mismatch(found, wanted, of, to))


def _why_by_place(found: Sequence[str], wanted: Sequence[str], of: str, to: str) -> str:
    """The side that has no names, or a program's numbers where the other has names; empty without one."""
    for names, others, whose in ((found, wanted, of), (wanted, found, to)):
        if not names:
            return f"{whose} {_has(whose)} no names)" + (f": {listed(found)}" if found else "")
        if are_defaults(names) and not are_defaults(others):
            return f"{listed(names)} are no names)"
    return ""


def _mismatch(found: Sequence[str], wanted: Sequence[str], of: str, to: str) -> str:
    keys = [parse(name) for name in found]
    times = Counter(keys)
    if twice := [name for name, key in zip(found, keys, strict=True) if times[key] > 1]:
        return f"{of}: two columns of one name: {listed(twice)}"
    lost = [name for name in wanted if parse(name)[0] not in {base for base, _ in keys}]
    missing = f", {listed(lost)} missing" if lost else ""
    told = f"the names of columns do not match{missing}: {_lists(found, wanted, of, to)}"
    return f"{told}; rename them, or choose with --columns, in that order"


def plain_letters(name: str) -> str:
    """A name in small letters and digits alone."""
    return re.sub(r"[\W_]+", "", name.lower())


def is_weight(name: str) -> bool:
    """Whether this usually names weights of draws: ``weights``, ``.log_weight``, ``ln-weight``, ``weight__``."""
    return bool(_WEIGHT.fullmatch(plain_letters(name)))


def are_defaults(names: Sequence[str]) -> bool:
    """Whether these are no names but a program's numbers, in their order."""
    parts = [_DEFAULT.fullmatch(name) for name in names]
    if not all(parts) or len({p[1] for p in parts if p}) > 1:
        return False
    numbers = [int(p[2]) for p in parts if p]
    return numbers[0] in (0, 1) and numbers == list(range(numbers[0], numbers[0] + len(names)))


def listed(names: Sequence[str]) -> str:
    """The first names, each of at most 40 characters, and how many there are."""
    shown = [n if len(n) <= _LONGEST else n[:_LONGEST] + "..." for n in names[:_SHOWN]]
    return ", ".join([*shown, *([f"... ({len(names)})"] if len(names) > _SHOWN else [])])


def parse(name: str, *, underscores: bool = False) -> Key:
    """A name as a variable and indices: ``theta.1.2``, ``theta[1,2]``, ``theta[1][2]`` and ``('theta', 1, 2)`` are one."""
    name = name.strip()
    if name.startswith("(") and name.endswith(")"):
        return _of_tuple(name)
    if found := _BRACKETS.fullmatch(name):
        inside = re.split(r"\]\[|,", found[2][1:-1])
        return found[1].strip(), tuple(_index(part) for part in inside)
    found = _POINTS.fullmatch(name) or (_UNDERSCORES.fullmatch(name) if underscores else None)
    if found:
        return found[1], tuple(int(part) for part in re.split(r"[._]", found[2])[1:])
    return name, ()


def _of_tuple(name: str) -> Key:
    try:
        parts = ast.literal_eval(name)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return name, ()
    parts = [p for p in parts if p != ""] if isinstance(parts, tuple) else []
    if len(parts) > 1 and parts[0] == "posterior":  # ArviZ's groups
        parts = parts[1:]
    if not parts or not isinstance(parts[0], str):
        return name, ()
    base, indices = parse(parts[0])
    return base, (*indices, *(p if isinstance(p, int) else str(p) for p in parts[1:]))


def _index(text: str) -> int | str:
    text = text.strip().strip("'\"")
    return int(text) if text.isdecimal() else text


def _styles(found: Sequence[str], wanted: Sequence[str]) -> Iterator[tuple[list[Key], list[Key], int]]:
    """Keys of the names given and of those wanted, from the strictest way on, and by how much indices were moved."""
    yield [(name, ()) for name in found], [(name, ()) for name in wanted], 0
    for underscores in (False, True):
        keys, targets = ([parse(name, underscores=underscores) for name in names] for names in (found, wanted))
        yield keys, targets, 0
        for step, lowest in ((1, 1), (-1, 0)):
            if set(_lowest(targets).values()) == {lowest}:
                moved = [(b, tuple(i + step if isinstance(i, int) else i for i in index)) for b, index in keys]
                yield moved, targets, step
        yield _scalars(keys, targets), _scalars(targets, keys), 0


def _lowest(keys: Sequence[Key]) -> dict[tuple[str, int], int]:
    """The smallest index of every variable along every axis."""
    lowest: dict[tuple[str, int], int] = {}
    for base, index in keys:
        for axis, i in enumerate(index):
            if isinstance(i, int):
                lowest[base, axis] = min(i, lowest.get((base, axis), i))
    return lowest


def _scalars(keys: Sequence[Key], others: Sequence[Key]) -> list[Key]:
    """A variable's only component, the first, by the plain name that the others have."""
    times, plain = Counter(base for base, _ in keys), {base for base, index in others if not index}
    return [(b, ()) if b in plain and times[b] == 1 and set(i) <= {0, 1} else (b, i) for b, i in keys]


def _said(found: Sequence[str], wanted: Sequence[str], order: Sequence[int], of: str, to: str, moved: int) -> str:
    """What the match did; ``ValueError`` where it would leave out components of a variable that is wanted."""
    taken = set(order)
    rest = [found[i] for i in range(len(found)) if i not in taken]
    if twice := sorted({parse(name) for name in rest} & {parse(found[i]) for i in order}):
        raise ValueError(f"{of}: two columns of one name: {listed([n for n in found if parse(n) in twice])}")
    more = {parse(name)[0] for name in rest} & {parse(name)[0] for name in wanted}
    if more:
        raise ValueError(
            f"{of} hold more components of {listed(sorted(more))} than {to}: {_lists(found, wanted, of, to)}"
        )
    said = ["columns matched by name"]
    if list(order) != sorted(order):
        said.append(f"put into the order of {to}")
    if moved:
        said.append(f"indices counted from {int(moved < 0)} in {of} and from {int(moved > 0)} in {to}")
    if rest:
        said.append(f"left out: {listed(rest)}")
    return "; ".join(said)


def _lists(found: Sequence[str], wanted: Sequence[str], of: str, to: str) -> str:
    return f"{of} {_has(of)} {listed(found)}; {to} {_has(to)} {listed(wanted)}"


def _has(whose: str) -> str:
    return "have" if whose.partition(" (")[0].endswith("s") else "has"

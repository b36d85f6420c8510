"""Which questions can execute the code of a module, by the imports that its sources name."""

from functools import cache

from import_graph import imports, module_files

from parvibench.checks.past.option_laws import OptionLaws
from parvibench.checks.past.replicates import CellQuestion
from parvibench.checks.questions import Question
from parvibench.core import registry

#: Where a run and its measurement begin.
_RUN = "parvibench.harness.run.loop"


def depends_on(question: Question, module: str) -> bool:
    """Whether measuring a question can execute code of a module; of a task that is not registered, any."""
    task = registry.tasks().get(question.task)
    label = question.cell.algorithm if isinstance(question, CellQuestion) else question.algorithm
    algorithm = registry.algorithms().get(label)
    if task is None and not isinstance(question, OptionLaws):
        return True
    homes = {type(question).__module__, *([] if task is None else [_home(task.target)])}
    if algorithm is not None:
        homes.add(_home(algorithm.target))
    return (task is not None and module in _behind_every_run()) or any(module in modules_behind(home) for home in homes)


@cache
def modules_behind(module: str) -> frozenset[str]:
    """The module and all of the package that its imports lead to; names in the registry are not followed."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += imports(name) if name in module_files() else ()
    return frozenset(found)


@cache
def _behind_every_run() -> frozenset[str]:
    """Modules behind every run: the harness's and the metrics', which are resolved by name."""
    homes = {_RUN, *(_home(row.target) for row in registry.metrics().values())}
    return frozenset[str]().union(*map(modules_behind, homes))


def _home(target: str) -> str:
    """The module of ``module:attribute``."""
    return target.partition(":")[0]

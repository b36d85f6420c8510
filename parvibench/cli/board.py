"""Results of others on a board: ``submit``, ``accept``."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from parvibench.api.run import DEFAULT_STORE, DEFAULT_TIMEOUT_S

from .shared import Timeout, Workers, answer

app = typer.Typer()


@app.command(epilog='Example:\n\n`parvibench submit mine --name "Mine, step 0.1" --contact me@example.org`')
def submit(
    store: Annotated[Path, Argument(help="Folder of a result store; its latest run is packed.")] = DEFAULT_STORE,
    name: Annotated[str, Option(help="Name of the submission; its rows bear it.")] = ...,  # type: ignore[assignment]
    contact: Annotated[str, Option(help="Address for questions; it is published.")] = "",
    note: Annotated[str, Option(help="What else readers should know.")] = "",
    to: Annotated[Path | None, Option(help="File of the archive. Default: SUITE-NAME.zip.")] = None,
) -> None:
    """Pack a run for a public board: records and curves without samples, and the source of plug-ins.

    The archive is written here and sent nowhere.
    """
    from parvibench.api import stores as api

    path, manifest = api.submit(store, to, name=name, contact=contact, note=note)
    plugins = [n.removeprefix("plugins/") for n in manifest.files if n.startswith("plugins/")]
    answer(f"{path}: submission {manifest.id}, {path.stat().st_size / 1e6:.2g} MB")
    answer(f"suite {manifest.suite}{f', profile {manifest.profile}' if manifest.profile else ''}; "
           f"source of plug-ins: {', '.join(plugins) or 'none'}")  # fmt: skip


@app.command(
    epilog="Examples:\n\n`parvibench accept toy-mine.zip`\n\n`parvibench accept toy-mine.zip --run-plugins --branch`"
)
def accept(
    archive: Annotated[Path, Argument(help="A submission; untrusted.")],
    reports: Annotated[Path, Option(help="Folder with the published report of every suite.")] = Path("reports"),
    replicates: Annotated[int, Option(min=1, help="Number of randomly chosen replicates to run again.")] = 60,
    run_plugins: Annotated[bool, Option("--run-plugins", help="Run its plug-ins, too, in a sandbox without network (bubblewrap). Read their source first.")] = False,
    branch: Annotated[bool, Option("--branch", help="Commit the change on a new git branch.")] = False,
    workers: Workers = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:  # fmt: skip
    """Verify a submission by reruns and add its rows to the board of its suite. Exit code 1 if a cell differs.

    Rows of built-in methods become `verified`; those of plug-ins stay `unverified` without --run-plugins; samples from
    outside are `external`.
    """
    from parvibench.api import stores as api

    accepted = api.accept(
        archive, reports, replicates=replicates, run_plugins=run_plugins, workers=workers, timeout=timeout
    )
    marks = ", ".join(f"{n} {mark}" for mark, n in Counter(accepted.marks.values()).items())
    answer(f"accepted {accepted.manifest.id}, {accepted.manifest.name}: {marks}")
    chance = accepted.verification.chance_of_missing
    answer(f"{len(accepted.verification.checks)} comparisons; if 5% of the results were falsified, all would miss it "
           f"with probability {100 * chance:.2g}%")  # fmt: skip
    for path in accepted.files:
        answer(str(path))
    if branch:
        answer(f"branch {api.commit(accepted, reports)}")

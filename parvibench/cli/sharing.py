"""Runs for others: the MLflow mirror, ``sync`` and ``ui``; submissions to a board, ``submit`` and ``accept``."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from parvibench import api
from parvibench.api.listing import DEFAULT_STORE, DEFAULT_TIMEOUT_S

from . import shared
from .shared import EXIT_FAILED, Out, Timeout, Workers, answer, warn

app = typer.Typer()


@app.command(epilog="Example: `MLFLOW_TRACKING_URI=http://127.0.0.1:5000 parvibench sync`")
def sync(out: Out = DEFAULT_STORE) -> None:
    """Mirror to MLflow the runs of the store that it does not hold yet."""
    if not api.mirroring.sync(out, warn):
        raise typer.Exit(EXIT_FAILED)
    shared.note("all runs are mirrored")


@app.command(epilog="Example: `parvibench ui --port 5001`")
def ui(
    out: Out = DEFAULT_STORE,
    host: Annotated[str, Option(help="Address to listen on; any but the default lets other machines read all runs.")] = "127.0.0.1",
    port: Annotated[int, Option(min=1, max=65535, help="Port to listen on.")] = 5000,
) -> None:  # fmt: skip
    """Serve the MLflow pages of the store: one run per suite run, a child run per cell, tagged by task and method."""
    code = api.mirroring.serve(out, host, port, lambda page: shared.note(f"{page} (Ctrl-C stops the server)"))
    raise typer.Exit(code)


@app.command(epilog='Example:\n\n`parvibench submit mine --name "Mine, step 0.1" --contact me@example.org`')
def submit(
    store: Annotated[Path, Argument(help="Folder of a result store; its latest run is packed.")] = DEFAULT_STORE,
    name: Annotated[str, Option(help="Name of the submission; its rows bear it.")] = ...,  # type: ignore[assignment]
    contact: Annotated[str, Option(help="Address for questions; it is published.")] = "",
    note: Annotated[str, Option(help="What else readers should know.")] = "",
    to: Annotated[Path | None, Option(help="File of the archive. Default: SUITE-NAME.zip.")] = None,
) -> None:
    """Pack a run for a public board: records and curves without samples, and the source of plug-ins.

    The archive is written here and sent nowhere. Rows that the board will refuse are listed.
    """
    path, manifest = api.stores.submit(store, to, name=name, contact=contact, note=note, warn=warn)
    plugins = [n.removeprefix("plugins/") for n in manifest.files if n.startswith("plugins/")]
    answer(f"{path}: submission {manifest.id}, {path.stat().st_size / 1e6:.2g} MB")
    answer(f"suite {manifest.suite}{f', profile {manifest.profile}' if manifest.profile else ''}; "
           f"source of plug-ins: {', '.join(plugins) or 'none'}")  # fmt: skip


@app.command(
    epilog="Examples:\n\n`parvibench accept toy-mine.zip`\n\n`parvibench accept toy-mine.zip --container rerun.zip`"
)
def accept(
    archive: Annotated[Path, Argument(help="A submission; untrusted.")],
    reports: Annotated[Path, Option(help="Folder with the published report of every suite.")] = Path("reports"),
    out: Annotated[Path, Option(help="Store of the reruns; a repeated command resumes them.")] = DEFAULT_STORE / "accepted",
    container: Annotated[Path | None, Option(help="Archive of your own run of its plug-ins, made in a container.")] = None,
    workers: Workers = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:  # fmt: skip
    """Run the built-in methods of a submission again and add its rows to the board of its suite.

    Rows of built-in methods are those of the reruns, `verified`; those of plug-ins are as submitted, `unverified`: their
    code is never run. The same command completes an interrupted one.
    """
    accepted = api.stores.accept(archive, reports, out=out, container=container, workers=workers, timeout=timeout)
    counts = Counter(accepted.manifest.marks.values())
    answer(f"{accepted.path}: {accepted.manifest.name}, {', '.join(f'{n} {mark}' for mark, n in counts.items())}")

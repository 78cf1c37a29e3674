"""torchstone serve [DIR]: all reports of a folder in a browser."""

from contextlib import suppress
from pathlib import Path

import click

from torchstone.cli.options import Session, common_options

DEFAULT_PORT = 8765


@click.command()
@click.argument("folder", metavar="[DIR]", default=Path(), type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--port",
    default=DEFAULT_PORT,
    show_default=True,
    type=click.IntRange(1, 65_000),
    help="The first port to try; the next free one is taken.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen on; one that other machines can reach needs --token.",
)
@click.option("--token", is_flag=True, help="Ask for a token; it is part of the address that is printed.")
@click.option("--open", "open_page", is_flag=True, help="Open the index in the browser.")
@common_options
@click.pass_obj
def command(session: Session, folder: Path, *, port: int, host: str, token: bool, open_page: bool) -> None:
    """Show all reports below DIR (default: here) in a browser, until Ctrl-C.

    Only this machine can reach the server unless --host says otherwise, and only files of the folder are given.
    """
    from torchstone.report.server import new_token, open_server

    with (
        open_server(folder, host=host, port=port, token=new_token() if token else "") as server,
        suppress(KeyboardInterrupt),
    ):
        click.echo(server.url)
        if not session.quiet:
            tunnel = f"ssh -L {server.port}:127.0.0.1:{server.port} THIS-HOST"
            click.echo(f"From another machine: {tunnel}, then open the address. Ctrl-C ends it.", err=True)
        if open_page:
            click.launch(server.url)
        server.serve_forever()

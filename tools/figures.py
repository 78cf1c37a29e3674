"""Print the size of a source tree in figures, to see whether a restructuring made it smaller.

    python tools/figures.py [TREE] [--no-runs]

Tokens are those of Python's tokenizer without comments, line ends and indentation; a docstring is one token. `Any` is
counted where it is used, not where it is imported. The files that a command imports are counted by an audit hook in
the command's own process and in those that it starts; the hook sees every module whose code runs, by whatever way it
was imported.
"""

import argparse
import io
import os
import re
import statistics
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
COMMANDS = {
    "cost tiny:bert": ("cost", "tiny:bert"),
    "check tiny:bert": ("check", "tiny:bert", "--backend", "aot_eager", "--dir", "checked"),
}
LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip
RECORD_IMPORTS = """
import os, sys
def _note(event, arguments):
    if event != "exec" or arguments[0].co_name != "<module>":
        return
    path = arguments[0].co_filename
    if path.startswith(os.environ["FIGURES_PACKAGE"]) and path.endswith(".py"):
        file = os.open(os.environ["FIGURES_IMPORTS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, f"{os.getpid()} {path}\\n".encode())
        os.close(file)
sys.addaudithook(_note)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What can be counted without running anything."""

    file_lines: tuple[int, ...]
    tokens: int
    any_uses: int
    own_line_comments: int

    @property
    def lines(self) -> int:
        """All lines."""
        return sum(self.file_lines)

    def per_thousand_lines(self, number: int) -> float:
        """A density that does not change when files are merged."""
        return round(1000 * number / max(1, self.lines), 2)


def size_of(package: Path) -> Size:
    """Count every Python file below a folder."""
    lengths, tokens, any_uses, comments = [], 0, 0, 0
    for path in sorted(package.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        lengths.append(len(text.splitlines()))
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            tokens += token.type not in LAYOUT
            any_uses += token.type == tokenize.NAME and token.string == "Any" and not _is_import(token.line)
            comments += token.type == tokenize.COMMENT and token.line.lstrip().startswith("#")
    return Size(file_lines=tuple(lengths), tokens=tokens, any_uses=any_uses, own_line_comments=comments)


def main() -> int:
    """Print the figures of one tree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path, nargs="?", default=REPOSITORY)
    parser.add_argument("--no-runs", action="store_true", help="count only what needs no run: no commands, no tests")
    arguments = parser.parse_args()
    tree = arguments.tree.resolve()
    if not (tree / "src" / "torchstone").is_dir():
        sys.exit(f"figures: no src/torchstone in {tree}")
    for name, value in figures_of(tree, runs=not arguments.no_runs):
        print(f"{name:48} {value:>10}", flush=True)
    return 0


def figures_of(tree: Path, *, runs: bool) -> Iterator[tuple[str, str]]:
    """Each figure with its name."""
    size = size_of(tree / "src" / "torchstone")
    yield "source files", f"{len(size.file_lines):,}"
    yield "median lines of a file", f"{statistics.median(size.file_lines):g}"
    yield "p90 lines of a file", f"{statistics.quantiles(size.file_lines, n=10, method='inclusive')[-1]:.0f}"
    yield "longest file", f"{max(size.file_lines):,}"
    yield "lines", f"{size.lines:,}"
    yield "tokens", f"{size.tokens:,}"
    yield "Any per 1,000 lines", f"{size.per_thousand_lines(size.any_uses):g}"
    yield "own-line comments per 1,000 lines", f"{size.per_thousand_lines(size.own_line_comments):g}"
    if not runs:
        return
    python = tree / ".venv" / "bin" / "python"
    for name, command in COMMANDS.items():
        own, child = imported_by(python if python.exists() else Path(sys.executable), tree, command)
        yield f"files imported by {name}", f"{own:,}"
        yield "  in the processes that it starts", f"{child:,}"
    yield "tests", f"{tests_of(python if python.exists() else Path(sys.executable), tree):,}"


def imported_by(python: Path, tree: Path, command: tuple[str, ...]) -> tuple[int, int]:
    """How many files of the package a command imports itself, and how many the processes that it starts import."""
    with tempfile.TemporaryDirectory(prefix="figures-") as name:
        folder = Path(name)
        (folder / "sitecustomize.py").write_text(RECORD_IMPORTS)
        log = folder / "imports.txt"
        environment = os.environ | {
            "PYTHONPATH": f"{folder}:{tree / 'src'}",
            "FIGURES_IMPORTS": str(log),
            "FIGURES_PACKAGE": str(tree / "src" / "torchstone"),
        }
        process = subprocess.Popen(  # noqa: S603 - our own command
            [python, "-m", "torchstone", *command, "--quiet"],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
        )
        if process.wait() != 0:
            sys.exit(f"figures: torchstone {' '.join(command)} failed")
        lines = [line.split() for line in log.read_text().splitlines()]
    own = {path for number, path in lines if int(number) == process.pid}
    child = {path for number, path in lines if int(number) != process.pid}
    return len(own), len(child)


def tests_of(python: Path, tree: Path) -> int:
    """How many tests pytest collects."""
    done = subprocess.run(  # noqa: S603 - our own command
        [python, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"^(\d+)(?:/\d+)? tests? collected", done.stdout, re.MULTILINE)
    if not found:
        sys.exit(f"figures: pytest collects nothing in {tree}: {done.stdout[-500:]}")
    return int(found[-1])


def _is_import(line: str) -> bool:
    return line.lstrip().startswith(("from ", "import "))


if __name__ == "__main__":
    sys.exit(main())

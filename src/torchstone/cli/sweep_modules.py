"""The vectors of a sweep module, asked of the module itself in a process of its own."""

from pathlib import Path
from typing import Any

from torchstone.cli.db_options import database_variable
from torchstone.cli.sweep_options import opened_executor, unknown_name
from torchstone.errors import InputError
from torchstone.record.task import Ending, Limits, Task
from torchstone.record.vector import Validity, Vector

_ENTRY = "torchstone.sweep.child.module:describe"
_LIMITS = Limits(deadline_s=600.0)


def module_file(name: str, folder: Path) -> tuple[str, Path]:
    """The name of a module and its file: given as a file, or as a.b for FOLDER/a/b.py."""
    path = Path(name)
    if path.suffix == ".py":
        if not path.is_file():
            msg = f"there is no sweep module {path}; check the path"
            raise InputError(msg)
        inside = path.resolve().is_relative_to(folder.resolve())
        parts = path.resolve().relative_to(folder.resolve()).with_suffix("").parts if inside else (path.stem,)
        return ".".join(parts), path.resolve()
    below = folder.joinpath(*name.split(".")).with_suffix(".py")
    if below.is_file():
        return name, below.resolve()
    if not folder.is_dir():
        msg = f"there is no folder {folder} for the module {name!r}; name one with --modules, or give a file.py"
        raise InputError(msg)
    known = sorted(".".join(one.relative_to(folder).with_suffix("").parts) for one in folder.rglob("*.py"))
    raise unknown_name("module", name, known, str(folder))


def module_vectors(given: dict[str, Any]) -> list[Vector]:
    """All vectors of a sweep module, or those of one suite."""
    from torchstone.sweep.environments import module_environment

    name, path = module_file(given["module_name"], given["modules_folder"])
    environment = module_environment(path, variables=database_variable(given["database"]))
    with opened_executor(environment, jobs=1, limits=_LIMITS, given={}) as executor:
        executor.submit(Task(id="describe", entry=_ENTRY))
        (result,) = executor.results()
    if result.ending is not Ending.ANSWERED or result.answer is None:
        msg = f"{path} could not say which vectors it has: {result.evidence.error or result.ending.value}"
        raise InputError(msg)
    suites = {one["suite"] for one in result.answer["vectors"]}
    if given["suite"] and given["suite"] not in suites:
        raise unknown_name("suite", given["suite"], sorted(suites), str(path))
    return [
        _vector(name, path, one, result.answer["timeout_s"])
        for one in result.answer["vectors"]
        if not given["suite"] or one["suite"] == given["suite"]
    ]


def _vector(name: str, path: Path, told: dict[str, Any], timeout_s: float | None) -> Vector:
    parameters = told["parameters"]
    source = parameters.get("traced_source")
    models = [str(one) for one in source] if isinstance(source, list) else [str(source)] if source else []
    return Vector(
        id=told["id"],
        module=name,
        suite=told["suite"],
        op=name.rpartition(".")[2],
        path=str(path),
        validity=Validity.INVALID if told["reason"] else Validity.VALID,
        reason=told["reason"],
        parameters=parameters,
        cluster=f"{name}({', '.join(sorted(parameters))})",
        models=tuple(models),
        timeout_s=timeout_s,
    )

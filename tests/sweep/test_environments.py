from pathlib import Path

from torchstone.sweep.run import backend_environment, checking_environment, module_environment
from torchstone.workers.child import resolve


def test_what_processes_are_set_up_with_exists() -> None:
    environments = (checking_environment(), backend_environment("eager", {}), module_environment(Path("a.py")))

    assert all(callable(resolve(str(one.setup))) for one in environments)


def test_a_backend_that_must_not_be_forked_is_not() -> None:
    assert not backend_environment("xla", {}, python="/opt/xla/bin/python", forks=False).forks


def test_a_module_can_import_what_lies_beside_it() -> None:
    found = module_environment(Path("sweeps/eltwise/add.py"), variables={"TORCHSTONE_DB": "x.db"})

    assert found.extra_paths == ("sweeps/eltwise",)
    assert found.variables["TORCHSTONE_DB"] == "x.db"

"""A reference folder of a small model, made by the real command."""

from pathlib import Path

from torchstone.cli.main import run
from torchstone.errors import EXIT_FINE

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return {"logits": self.head(x)}

class Broken(Net):
    def forward(self, x):
        return self.head(x[:, :3])

class Random(Net):
    def forward(self, x):
        return super().forward(x + torch.rand(1).item() + id(object()) % 1000 + next(COUNT))

COUNT = iter(range(1000))
def load_model(): return Net().eval()
def broken(): return Broken().eval()
def random(): return Random().eval()
def get_inputs(): return torch.linspace(-1, 1, 12).reshape(2, 6)
"""


def write_net(folder: Path) -> str:
    """The file of the model; gives its path."""
    (folder / "net.py").write_text(NET)
    return str(folder / "net.py")


def make_reference(folder: Path, *options: str) -> Path:
    """Run `torchstone reference`; every box must be ticked."""
    net = write_net(folder)
    out = folder / "reference"
    assert run(["reference", f"{net}::load_model", "--dir", str(out), "--quiet", *options]) == EXIT_FINE
    return out

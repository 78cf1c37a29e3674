"""Builders of traces: a transformer of any depth, and the odd cases a report must survive."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torchstone.record.module import Module, ModuleCallTable, ModuleSignature, Parameter, Source
from torchstone.record.op import OpSignature, OpTable
from torchstone.record.tensor import ExternalTensor, TensorSpec, TensorTable
from torchstone.record.trace import Failure, Provenance, Trace
from torchstone.record.value import Argument, Value

HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    "\"quoted' & <b>bold</b>",
    "emoji 🦙🔥",
    "x" * 10_000,
    "\u202eright-to-left\u202c",
    "line\nbreak",
)


def spec(*shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(shape=shape, dtype=dtype)


@dataclass
class TraceBuilder:
    """Grows a trace the way a capture does: modules first, then calls and ops in order of execution."""

    model: str = "builder"
    modules: list[Module] = field(default_factory=list)
    specs: list[TensorSpec] = field(default_factory=list)
    spec_of: list[int] = field(default_factory=list)
    storage_of: list[int] = field(default_factory=list)
    external: list[ExternalTensor] = field(default_factory=list)
    op_signatures: list[OpSignature] = field(default_factory=list)
    op_rows: list[tuple[int, tuple[int, ...], tuple[int, ...], int]] = field(default_factory=list)
    call_signatures: list[ModuleSignature] = field(default_factory=list)
    call_rows: list[list[int]] = field(default_factory=list)  # signature, module, parent, first op, end op
    call_tensors: list[tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    _spec_number: dict[TensorSpec, int] = field(default_factory=dict)
    _op_number: dict[OpSignature, int] = field(default_factory=dict)
    _call_number: dict[ModuleSignature, int] = field(default_factory=dict)

    def tensor(self, of: TensorSpec, *, kind: str = "", name: str = "") -> int:
        if of not in self._spec_number:
            self._spec_number[of] = len(self.specs)
            self.specs.append(of)
        number = len(self.spec_of)
        self.spec_of.append(self._spec_number[of])
        self.storage_of.append(number)
        if kind:
            self.external.append(ExternalTensor(tensor=number, kind=kind, name=name))
        return number

    def module(
        self, path: str, class_name: str, *, parent: int = -1, weights: Sequence[tuple[str, TensorSpec | int]] = (),
        **more: object,
    ) -> int:  # fmt: skip
        held: list[Parameter] = []
        for name, weight in weights:
            full = f"{path}.{name}" if path else name
            number = weight if isinstance(weight, int) else self.tensor(weight, kind="parameter", name=full)
            held.append(Parameter(name=name, tensor=number, trainable=True))
        self.modules.append(
            Module(path=path, class_name=class_name, parent=parent, parameters=tuple(held), **more)  # type: ignore[arg-type]
        )
        return len(self.modules) - 1

    def enter(self, module: int, inputs: Sequence[int]) -> int:
        parent = self.running[-1] if self.running else -1
        self.call_rows.append([0, module, parent, len(self.op_rows), len(self.op_rows)])
        self.call_tensors.append((tuple(inputs), ()))
        self.running.append(len(self.call_rows) - 1)
        return self.running[-1]

    def leave(self, outputs: Sequence[int]) -> None:
        call = self.running.pop()
        inputs = self.call_tensors[call][0]
        signature = ModuleSignature(
            arguments=tuple(
                Argument(name=f"input_{place}", value=self.spec_of_tensor(number), position=place)
                for place, number in enumerate(inputs)
            ),
            output=self.spec_of_tensor(outputs[0]) if outputs else None,
        )
        if signature not in self._call_number:
            self._call_number[signature] = len(self.call_signatures)
            self.call_signatures.append(signature)
        self.call_rows[call][0] = self._call_number[signature]
        self.call_rows[call][4] = len(self.op_rows)
        self.call_tensors[call] = (inputs, tuple(outputs))

    def op(self, name: str, inputs: Sequence[int], result: TensorSpec, **arguments: Value) -> int:
        given = [
            Argument(name=f"self_{place}" if place else "self", value=self.spec_of_tensor(number), position=place)
            for place, number in enumerate(inputs)
        ]
        given += [Argument(name=key, value=value) for key, value in arguments.items()]
        signature = OpSignature(op=name, arguments=tuple(given), output=result)
        if signature not in self._op_number:
            self._op_number[signature] = len(self.op_signatures)
            self.op_signatures.append(signature)
        output = self.tensor(result)
        call = self.running[-1] if self.running else -1
        self.op_rows.append((self._op_number[signature], tuple(inputs), (output,), call))
        return output

    def spec_of_tensor(self, number: int) -> TensorSpec:
        return self.specs[self.spec_of[number]]

    def build(self, *, failure: Failure | None = None, notes: tuple[str, ...] = (), created: str = "") -> Trace:
        sources = {
            module.class_name: Source(file="/models/net.py", first_line=10, last_line=42) for module in self.modules
        }
        return Trace(
            provenance=Provenance(
                model=self.model,
                mode="fake",
                mode_reason="shapes are enough",
                inputs="generated: 1 x 16 token ids",
                versions={"torch": "2.13.0", "torchstone": "0.1.0"},
                command=f"torchstone inspect {self.model}",
                created=created,
            ),
            modules=tuple(self.modules),
            sources=sources,
            recorded_tensors=TensorTable(
                specs=tuple(self.specs),
                spec_of=tuple(self.spec_of),
                storage_of=tuple(self.storage_of),
                external=tuple(self.external),
            ),
            recorded_calls=ModuleCallTable(
                signatures=tuple(self.call_signatures),
                signature_of=tuple(row[0] for row in self.call_rows),
                modules=tuple(row[1] for row in self.call_rows),
                parents=tuple(row[2] for row in self.call_rows),
                inputs=tuple(inputs for inputs, _ in self.call_tensors),
                outputs=tuple(outputs for _, outputs in self.call_tensors),
                first_ops=tuple(row[3] for row in self.call_rows),
                end_ops=tuple(row[4] for row in self.call_rows),
            ),
            recorded_ops=OpTable(
                signatures=tuple(self.op_signatures),
                signature_of=tuple(row[0] for row in self.op_rows),
                inputs=tuple(row[1] for row in self.op_rows),
                outputs=tuple(row[2] for row in self.op_rows),
                module_calls=tuple(row[3] for row in self.op_rows),
                forward_calls=len(self.op_rows),
            ),
            failure=failure,
            notes=notes,
        )


def transformer(layers: int = 4, *, width: int = 64, tokens: int = 16, tied: bool = True, fails_in: int = -1) -> Trace:
    """A decoder with attention, a gated feed-forward part and residuals; fails_in ends the forward pass in a layer."""
    build = TraceBuilder(model=f"toy-transformer-{layers}")
    root = build.module("", "toy.CausalLM")
    body = build.module("model", "toy.Decoder", parent=root)
    embedding = build.module("model.embed", "torch.nn.Embedding", parent=body, weights=[("weight", spec(1000, width))])
    table = build.modules[embedding].parameters[0].tensor
    holder = build.module("model.layers", "torch.nn.ModuleList", parent=body, container=True)
    blocks = [_block(build, holder, number, width) for number in range(layers)]
    norm = build.module("model.norm", "toy.RMSNorm", parent=body, weights=[("weight", spec(width))])
    head_weight: TensorSpec | int = table if tied else spec(1000, width)
    head = build.module("lm_head", "torch.nn.Linear", parent=root, weights=[("weight", head_weight)])

    ids = build.tensor(spec(1, tokens, dtype="int64"), kind="input", name="input_ids")
    hidden = spec(1, tokens, width)
    build.enter(root, [ids])
    build.enter(body, [ids])
    build.enter(embedding, [ids])
    state = build.op("aten.embedding.default", [table, ids], hidden)
    build.leave([state])
    for number, block in enumerate(blocks):
        state = _run_block(build, block, state, hidden, stop=number == fails_in)
        if number == fails_in:
            _abandon(build)
            return build.build(failure=_failure(number), notes=("input_ids were generated",))
    state = _run_norm(build, norm, state, hidden)
    build.leave([state])
    build.enter(head, [state])
    logits = build.op("aten.mm.default", [state, table], spec(1, tokens, 1000))
    build.leave([logits])
    build.leave([logits])
    return build.build(notes=("input_ids were generated",), created="2026-01-02T03:04:05Z")


def _failure(number: int) -> Failure:
    return Failure(
        module=f"model.layers.{number}.attention.q_proj",
        op="aten.mm.default",
        arguments="float32[1, 16, 64], float32[65, 64]",
        error="RuntimeError: mat1 and mat2 shapes cannot be multiplied (16x64 and 65x64)",
        location="/models/net.py:31",
    )


def _abandon(build: TraceBuilder) -> None:
    while build.running:
        build.leave([])


def _block(build: TraceBuilder, holder: int, number: int, width: int) -> dict[str, int]:
    path = f"model.layers.{number}"
    found = {"block": build.module(path, "toy.DecoderLayer", parent=holder, attributes=(("layer_idx", number),))}
    found["norm_1"] = build.module(
        f"{path}.norm_1", "toy.RMSNorm", parent=found["block"], weights=[("weight", spec(width))]
    )
    found["attention"] = build.module(
        f"{path}.attention", "toy.Attention", parent=found["block"], attributes=(("heads", 4),)
    )
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        found[name] = build.module(
            f"{path}.attention.{name}", "torch.nn.Linear", parent=found["attention"],
            weights=[("weight", spec(width, width))], attributes=(("in_features", width), ("out_features", width)),
        )  # fmt: skip
    found["norm_2"] = build.module(
        f"{path}.norm_2", "toy.RMSNorm", parent=found["block"], weights=[("weight", spec(width))]
    )
    found["mlp"] = build.module(f"{path}.mlp", "toy.GatedMLP", parent=found["block"])
    for name, shape in (("gate", (4 * width, width)), ("up", (4 * width, width)), ("down", (width, 4 * width))):
        found[name] = build.module(
            f"{path}.mlp.{name}", "torch.nn.Linear", parent=found["mlp"], weights=[("weight", spec(*shape))]
        )
    return found


def _run_norm(build: TraceBuilder, module: int, state: int, hidden: TensorSpec) -> int:
    build.enter(module, [state])
    mean = build.op("aten.mean.dim", [state], spec(*hidden.shape[:-1], 1), dim=-1)
    scaled = build.op("aten.mul.Tensor", [state, mean], hidden)
    result = build.op("aten.mul.Tensor", [scaled, build.modules[module].parameters[0].tensor], hidden)
    build.leave([result])
    return result


def _run_linear(build: TraceBuilder, module: int, state: int, result: TensorSpec) -> int:
    build.enter(module, [state])
    output = build.op("aten.mm.default", [state, build.modules[module].parameters[0].tensor], result)
    build.leave([output])
    return output


def _run_block(build: TraceBuilder, found: dict[str, int], state: int, hidden: TensorSpec, *, stop: bool) -> int:
    build.enter(found["block"], [state])
    normed = _run_norm(build, found["norm_1"], state, hidden)
    build.enter(found["attention"], [normed])
    if stop:
        build.enter(found["q_proj"], [normed])
        return normed
    query, key, value = (_run_linear(build, found[name], normed, hidden) for name in ("q_proj", "k_proj", "v_proj"))
    mixed = build.op("aten.scaled_dot_product_attention.default", [query, key, value], hidden, is_causal=True)
    attended = _run_linear(build, found["o_proj"], mixed, hidden)
    build.leave([attended])
    state = build.op("aten.add.Tensor", [state, attended], hidden)
    normed = _run_norm(build, found["norm_2"], state, hidden)
    build.enter(found["mlp"], [normed])
    wide = spec(*hidden.shape[:-1], 4 * hidden.shape[-1])
    gate = build.op("aten.silu.default", [_run_linear(build, found["gate"], normed, wide)], wide)
    product = build.op("aten.mul.Tensor", [gate, _run_linear(build, found["up"], normed, wide)], wide)
    down = _run_linear(build, found["down"], product, hidden)
    build.leave([down])
    state = build.op("aten.add.Tensor", [state, down], hidden)
    build.leave([state])
    return state


def empty_model() -> Trace:
    """A root without children that calls nothing."""
    build = TraceBuilder(model="empty")
    root = build.module("", "toy.Empty")
    build.enter(root, [])
    build.leave([])
    return build.build()


def one_op() -> Trace:
    build = TraceBuilder(model="one-op")
    root = build.module("", "toy.Relu")
    given = build.tensor(spec(2, 3), kind="input", name="x")
    build.enter(root, [given])
    build.leave([build.op("aten.relu.default", [given], spec(2, 3))])
    return build.build()


def hostile_names() -> Trace:
    """Modules, classes and ops whose names try to break the page."""
    build = TraceBuilder(model=HOSTILE[0])
    root = build.module("", f"toy.{HOSTILE[0]}")
    given = build.tensor(spec(2, 3), kind="input", name=HOSTILE[1])
    children = [build.module(name.replace(".", "_"), f"toy.{name}", parent=root) for name in HOSTILE]
    build.enter(root, [given])
    state = given
    for name, child in zip(HOSTILE, children, strict=True):
        build.enter(child, [state])
        state = build.op(f"evil.{name}", [state], spec(2, 3), text=name)
        build.leave([state])
    build.leave([state])
    return build.build(notes=HOSTILE, created=HOSTILE[0])


def wide_tree(modules: int, ops: int, *, distinct: bool = False) -> Trace:
    """A tree of so many modules below the root, its leaves called in turn until the ops are used up."""
    build = TraceBuilder(model=f"wide-{modules}")
    root = build.module("", "toy.Wide")
    _grow(build, root, "", modules, distinct=distinct)
    state = build.tensor(spec(8, 8), kind="input", name="x")
    build.enter(root, [state])
    leaves = [index for index, module in enumerate(build.modules) if module.parameters]
    for number in range(ops):
        build.enter(leaves[number % len(leaves)], [state])
        state = build.op(f"aten.op_{number % 40}.default", [state], spec(8, 8))
        build.leave([state])
    build.leave([state])
    return build.build()


def _grow(build: TraceBuilder, parent: int, path: str, budget: int, *, distinct: bool) -> None:
    """Add so many modules below a parent, in pre-order, ten children each."""
    children = min(10, budget)
    for place in range(children):
        here = f"{path}.part{place}" if path else f"part{place}"
        share = (budget - children) // children + (place < (budget - children) % children)
        if share == 0:
            size = len(build.modules) if distinct else place + 1
            build.module(here, "torch.nn.Linear", parent=parent, weights=[("weight", spec(size, 8))])
        else:
            child = build.module(here, f"toy.Group{place}", parent=parent)
            _grow(build, child, here, share, distinct=distinct)

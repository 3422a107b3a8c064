"""Bytes of weights by storage format. Pure."""

from collections.abc import Collection
from dataclasses import dataclass

from gpudeck.estimate.shape import (
    Architecture,
    ParameterCount,
    attention_matrices,
    count,
    mlp_matrices,
)


def grouped(bits: int, group: int) -> float:
    """Return bytes per parameter of GPTQ and AWQ: its bits, and per group a scale of 16 bits and a
    zero point."""
    return (bits + (16 + bits) / group) / 8


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """A storage format. `linear`: bytes of a parameter of the layers' matrices; `rest`: of
    embedding, head, norms. `unties`: a head that shares the embedding is stored again. `unpacks`: a
    copy in 16 bits of the largest matrix while it is used."""

    linear: float
    rest: float
    words: str
    unties: bool = False
    unpacks: bool = False


FORMATS = {
    "fp32": WeightFormat(4.0, 4.0, "4 bytes per parameter"),
    "bf16": WeightFormat(2.0, 2.0, "2 bytes per parameter"),
    "fp16": WeightFormat(2.0, 2.0, "2 bytes per parameter"),
    "fp8": WeightFormat(1.0 + 4 / 16_384, 2.0, "1 byte per linear parameter in blocks of 128 x 128 "
                        "with a scale of 4; 2 for embedding, head, norms", unties=True),
    "gptq-int8": WeightFormat(grouped(8, 128), 2.0, "8.19 bits per linear parameter (group 128); 2 "
                              "bytes for embedding, head, norms"),
    "gptq-int4": WeightFormat(grouped(4, 128), 2.0, "4.16 bits per linear parameter (group 128); 2 "
                              "bytes for embedding, head, norms"),
    "awq": WeightFormat(grouped(4, 128), 2.0, "4.16 bits per linear parameter (group 128); 2 bytes "
                        "for embedding, head, norms"),
    "nf4": WeightFormat(0.5625, 2.0, "4.5 bits per linear parameter (block 64); 2 bytes for "
                        "embedding, head, norms", unpacks=True),
    "nf4-dq": WeightFormat(0.516, 2.0, "4.13 bits per linear parameter (double quantization); 2 "
                           "bytes for embedding, head, norms", unpacks=True),
}
KEPT = ("attention", "first", "last")


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """Bytes of stored weights. `layers`: of all layers; `embedding` and `head` apart, as they lie
    on the first and the last stage of a pipeline."""

    embedding: float
    layers: float
    head: float
    unpacked: float

    @property
    def total(self) -> float:
        return self.embedding + self.layers + self.head


def largest_matrix(model: Architecture, of: ParameterCount) -> int:
    widths = [block.mlp.width for block in model.blocks]
    return max(of.embedding, model.hidden * max(widths))


def stored(model: Architecture, form: WeightFormat, kept_16bit: Collection[str] = ()
           ) -> StoredWeights:
    """Compute the bytes of the weights. `kept_16bit`: of `KEPT`, what a quantized model leaves in
    16 bits."""
    of = count(model)
    blocks = list(model.all_layers)
    at = [position for name, position in (("first", 0), ("last", len(blocks) - 1))
          if name in kept_16bit]
    spared = sum(mlp_matrices(model.hidden, blocks[layer].mlp) for layer in set(at))
    if "attention" in kept_16bit:
        spared += of.attention
    else:
        spared += sum(attention_matrices(model.hidden, blocks[layer].attention)
                      for layer in set(at))
    layers = form.linear * (of.linear - spared) + 2.0 * spared + form.rest * of.other
    head = form.rest * (of.head or (of.embedding if form.unties else 0))
    return StoredWeights(form.rest * of.embedding, layers, head,
                         2.0 * largest_matrix(model, of) if form.unpacks else 0.0)

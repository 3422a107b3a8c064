"""The pipe between the reading process and the agent: what goes in comes out, and what lasts goes
through it once."""

import random

import msgspec
import pytest
from msgspec import structs

from agent.reader.messages import FactsDeltaCodec, ReaderMessage, ReaderMessageDecoder, pack
from agent.readings import Reading
from gpudeck.contract.wire import GpuFacts, GpuLink


def facts(power_limit_w: float) -> tuple[GpuFacts, ...]:
    return tuple(GpuFacts(uuid=f"GPU-{at}", index=at, name="a board", power_limit_w=power_limit_w,
                          missing={"fan_pct": "unsupported"}) for at in range(8))


def reading(taken_at: float, **what: object) -> Reading:
    return structs.replace(Reading(taken_at, 1.0, (), facts(700.0), None), **what)


def pieces(data: bytes) -> list[bytes]:
    cuts = sorted(random.choices(range(len(data)), k=5))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def test_what_lasts_is_told_when_it_changes() -> None:
    links = (GpuLink(0, 1, "board"),)
    originals = [reading(1.0), reading(2.0), reading(3.0, facts=facts(500.0)),
                 reading(4.0, facts=facts(500.0)), reading(5.0, facts=facts(500.0), links=links),
                 reading(6.0, facts=facts(500.0), links=links), reading(7.0), reading(8.0)]
    encoder, decoder = FactsDeltaCodec(), ReaderMessageDecoder()
    sizes, got = [], []
    for original in originals:
        data = pack(encoder.strip(ReaderMessage(original)))
        sizes.append(len(data))
        got += [answer.reading for piece in pieces(data) for answer in decoder.read(piece)]
    assert got == originals
    whole, same = sizes[::2], sizes[1::2]
    assert max(same) * 5 < min(whole)


def test_what_is_no_reading_goes_as_it_is() -> None:
    encoder, decoder = FactsDeltaCodec(), ReaderMessageDecoder()
    answers = [ReaderMessage(reading(1.0)), ReaderMessage(None, "failed", "why"),
               ReaderMessage(reading(2.0))]
    data = b"".join(pack(encoder.strip(answer)) for answer in answers)
    assert [(answer.reading, answer.state) for answer in decoder.read(data)] == [
        (answer.reading, answer.state) for answer in answers]


def test_a_reading_that_leaves_out_what_was_never_told_is_none() -> None:
    encoder = FactsDeltaCodec()
    encoder.strip(ReaderMessage(reading(1.0)))
    with pytest.raises(msgspec.ValidationError, match="never told"):
        list(ReaderMessageDecoder().read(pack(encoder.strip(ReaderMessage(reading(2.0))))))

"""Wiring of the recording of readings into the node."""

from ..capability import Capability, NodeObservation
from .recording import RecordingWriter


def build(recording: RecordingWriter | None) -> Capability:
    if recording is None:
        return Capability(name="recording")

    def observe(observation: NodeObservation) -> None:
        if observation.reading is None:
            recording.put_events(observation.events)
        else:
            recording.put(observation.reading, observation.events, observation.gpu_tasks)

    return Capability(name="recording", observe=observe, trouble=lambda: recording.trouble)

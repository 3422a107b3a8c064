"""The call to a kubelet, over a real socket: bytes as a gRPC server (grpcio 1.85) sends them, and
as one sends them that means no good."""

import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from agent.kubernetes import kubelet
from agent.kubernetes.core import KubernetesTextError
from agent.kubernetes.kubelet import KubeletSocket
from agent.kubernetes.pod_resources import pods_with_gpus
from agent.kubernetes.reading import read_kubelet
from gpudeck.contract.kubernetes import PodGpus, PodGpusNow

BEFORE = (
    "000018040000000000000400400000000500400000000600004000fe0300000001000004080000000000003f0001"
    "00000004010000000000000408000000000000000005000008060000000000eb8b0b46dd3553cc")
# A PING is in there, and two pods: one of two containers, one of a MIG instance. A third has none.
ANSWER = bytes.fromhex(
    f"{BEFORE}00004e01040000000188400c636f6e74656e742d74797065106170706c69636174696f6e2f677270634014"
    "677270632d6163636570742d656e636f64696e67176964656e746974792c206465666c6174652c20677a69700000e7"
    "00000000000100000000e20a90010a07747261696e2d30120872657365617263681a460a046d61696e12240a0e6e76"
    "696469612e636f6d2f67707512054750552d6212054750552d611a040a02080112120a0872646d612f68636112066d"
    "6c78355f301a040102ac021a330a0473696465122b0a156e76696469612e636f6d2f6770752e736861726564120847"
    "50552d633a3a3312084750552d633a3a340a350a056d69672d301206766973696f6e1a240a016d121f0a166e766964"
    "69612e636f6d2f6d69672d31672e3130676212054d49472d310a160a03776562120764656661756c741a060a016d1a"
    "010700001e010500000001400b677270632d7374617475730130000c677270632d6d65737361676500")
REFUSED = bytes.fromhex(
    f"{BEFORE}00005401050000000188400c636f6e74656e742d74797065106170706c69636174696f6e2f67727063400b"
    "677270632d7374617475730138000c677270632d6d6573736167651672656a65637465642062792072617465206c69"
    "6d6974")
PODS = (PodGpus("research", "train-0", ("GPU-a", "GPU-b", "GPU-c")),
        PodGpus("vision", "mig-0", ("MIG-1",)))
Ask = Callable[..., PodGpusNow]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """Return a query of a kubelet that answers with these bytes; `received` is what it was sent."""
    path = tmp_path / "kubelet.sock"

    def query(answer: bytes, stays: bool = False, how: int = 0) -> PodGpusNow:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
            server.listen()

            def serve() -> None:
                with suppress(OSError), server.accept()[0] as peer:
                    query.received = peer.recv(65_536, how)  # type: ignore[attr-defined]
                    peer.sendall(answer)
                    while stays and peer.recv(65_536):
                        pass

            Thread(target=serve, daemon=True).start()
            try:
                return read_kubelet(KubeletSocket(path))
            finally:
                path.unlink()

    return query


def frame(kind: int, flags: int, body: bytes, stream: int = 1) -> bytes:
    return len(body).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + body


def test_what_a_server_of_grpc_sends_is_read(ask: Ask) -> None:
    reply = ask(ANSWER, stays=True)
    assert (reply.trouble, reply.pods) == ("", PODS)
    received = ask.received  # type: ignore[attr-defined]
    assert received.startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert b"/v1.PodResourcesLister/List" in received


def test_one_that_closes_without_reading_ends_the_connection(ask: Ask) -> None:
    assert "ends the connection" in ask(b"", how=socket.MSG_PEEK).trouble


def test_a_refused_call_is_not_a_node_without_pods(ask: Ask) -> None:
    assert "refuses" in ask(REFUSED, stays=True).trouble


@pytest.mark.parametrize(("answer", "words"), [
    (b"", "ends the connection"), (ANSWER[:200], "ends the connection"),
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", "ends the connection"),
    (frame(7, 0, b"\0" * 8, stream=0), "ends the connection"),
    (frame(3, 0, b"\0" * 4), "ends the connection"),
    (frame(0, 1, b"\0\0\0\0\x09abc"), "not whole"), (frame(0, 1, b"\1\0\0\0\1a"), "not whole"),
    (frame(0, 1, b"\0\0\0\0\2\x0a\x7f"), "not understood")])
def test_what_is_no_answer_is_said(ask: Ask, answer: bytes, words: str) -> None:
    reply = ask(answer)
    assert (words in reply.trouble, reply.pods) == (True, ()), reply.trouble


def test_a_kubelet_that_is_slow_or_endless_is_left(ask: Ask, monkeypatch: pytest.MonkeyPatch
                                                   ) -> None:
    monkeypatch.setattr(kubelet, "WITHIN_S", 0.2)
    assert "timed out" in ask(ANSWER[:200], stays=True).trouble
    monkeypatch.undo()
    monkeypatch.setattr(kubelet, "MOST_BYTES", 100)
    assert "more than" in ask(ANSWER, stays=True).trouble


def test_padding_is_no_part_of_an_answer(ask: Ask) -> None:
    message = b"\0\0\0\0\0"
    assert ask(frame(0, 8 | 1, b"\2" + message + b"xx")).trouble == ""


def test_no_kubelet_is_said(tmp_path: Path) -> None:
    assert "cannot be asked" in read_kubelet(KubeletSocket(tmp_path / "nothing")).trouble


@pytest.mark.parametrize("answer", [b"\x0a", b"\x0a\xff", b"\xff" * 20, b"\x0b", b"\x0d\0",
                                    b"\x0a\x03\x1a\x09x"])
def test_what_is_cut_short_is_not_understood(answer: bytes) -> None:
    with pytest.raises(KubernetesTextError):
        pods_with_gpus(answer)


def test_numbers_of_every_kind_are_passed_over() -> None:
    assert pods_with_gpus(b"\x28\xac\x02" + b"\x31" + b"\0" * 8 + b"\x35" + b"\0" * 4) == ()


def test_more_than_a_node_can_have_is_left() -> None:
    with pytest.raises(KubernetesTextError, match="lists more than"):
        pods_with_gpus(b"\x0a\0" * 10_001)

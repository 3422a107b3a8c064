"""Engines that serve models: known by their command line, read in their own words, and bounded
whatever they answer."""

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from agent.hosts import serving_core, serving_fetch
from agent.hosts.serving_core import ENGINES, address_of, sample_of
from agent.hosts.serving_fetch import ServingUnreadableError, fetch
from agent.hosts.serving_watch import ServingWatch
from tests.ports import free_port

BY_NAME = {engine.name: engine for engine in ENGINES}
# As the engines write them (facts of their collectors), with what breaks reading by prefix.
TEXTS = {
    "vllm": """# HELP vllm:num_requests_running x
vllm:num_requests_running{{engine="0",model_name="m"}} {a}
vllm:num_requests_running{{engine="1",model_name="m"}} {b}
vllm:num_requests_waiting{{engine="0",model_name="m"}} {c}
vllm:num_requests_waiting_by_reason{{reason="capacity"}} 999
vllm:kv_cache_usage_perc{{engine="0"}} 0.25
vllm:kv_cache_usage_perc{{engine="1"}} 0.75
vllm:prompt_tokens_total{{engine="0"}} {p}
vllm:generation_tokens_total{{engine="0",model_name="a \\"b\\" }}x"}} {g}
vllm:generation_tokens_created{{engine="0"}} 1.7e9
vllm:iteration_tokens_total_sum 5
vllm:time_to_first_token_seconds_sum{{engine="0"}} {s}
vllm:time_to_first_token_seconds_count{{engine="0"}} {n}
""",
    "sglang": """sglang:num_running_reqs{{tp_rank="0",dp_rank="0"}} {a}
sglang:num_running_reqs{{tp_rank="1",dp_rank="0"}} {a}
sglang:num_running_reqs{{tp_rank="0",dp_rank="1"}} {b}
sglang:num_queue_reqs{{tp_rank="0"}} {c}
sglang:num_queue_reqs{{tp_rank="1"}} {c}
sglang:token_usage{{tp_rank="0"}} 0.5
sglang:token_usage{{tp_rank="1"}} 0.5
sglang:prompt_tokens_total {p}
sglang:realtime_tokens_total{{mode="decode"}} {g}
sglang:realtime_tokens_total{{mode="prefill_compute"}} 777
sglang:gen_throughput 4321
sglang:time_to_first_token_seconds_sum {s}
sglang:time_to_first_token_seconds_count {n}
""",
}


def text(engine: str, **numbers: float) -> str:
    return TEXTS[engine].format(**numbers)


@pytest.mark.parametrize("engine", TEXTS)
def test_an_engine_in_its_own_words(engine: str) -> None:
    lots = random.Random()
    a, b, c, p, g, n = (lots.randrange(1, 500) for _ in range(6))
    s, seconds = lots.uniform(1, 9), lots.uniform(1, 9)
    first, before = sample_of("t", BY_NAME[engine], text(
        engine, a=a, b=b, c=c, p=p, g=g, s=s, n=n), 10.0, None)
    assert (first.running, first.waiting) == (a + b, c)
    assert (first.prompt_tokens, first.generated_tokens, first.cache_pct) == (p, g, 50.0)
    assert first.generated_tokens_per_s is None  # nothing to compare with
    later, _ = sample_of("t", BY_NAME[engine], text(
        engine, a=0, b=0, c=0, p=p + 70, g=g + 900, s=s + 3.0, n=n + 6), 10.0 + seconds, before)
    assert later.generated_tokens_per_s == pytest.approx(900 / seconds)
    assert later.prompt_tokens_per_s == pytest.approx(70 / seconds)
    assert later.first_token_s == pytest.approx(0.5)
    assert (later.running, later.waiting) == (0, 0)
    restarted, _ = sample_of("t", BY_NAME[engine], text(
        engine, a=0, b=0, c=0, p=0, g=0, s=0.0, n=0), 20.0, before)
    assert restarted.generated_tokens_per_s is None  # it was started again: no negative rate
    assert restarted.first_token_s is None


@pytest.mark.parametrize(("engine", "lines", "numbers"), [
    ("triton", "nv_inference_pending_request_count{model=\"a\"} 3\n"
     "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\"} 0.5\n"
     "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"used\"} 900\n"
     "nv_trt_llm_request_metrics{request_type=\"scheduled\"} 2\n", (2, 3, 50, None)),
    ("tgi", "tgi_batch_current_size 4\ntgi_queue_size 5\n"
     "tgi_request_generated_tokens_sum 600\n", (4, 5, None, 600)),
    ("llama.cpp", "llamacpp:tokens_predicted_total 70\nllamacpp:requests_processing 1\n"
     "llamacpp:requests_deferred 0\n", (1, 0, None, 70)),
    ("trtllm", "trtllm_num_requests_running 6\ntrtllm_num_requests_waiting 7\n"
     "trtllm_kv_cache_utilization 0.1\ntrtllm_generation_tokens_total 8\n", (6, 7, 10, 8)),
    ("vllm", "vllm:gpu_cache_usage_perc 0.2\n", (None, None, 20, None)),  # of before 0.10
])
def test_the_others(engine: str, lines: str, numbers: tuple[float | None, ...]) -> None:
    sample, _ = sample_of("t", BY_NAME[engine], lines, 1.0, None)
    assert (sample.running, sample.waiting, sample.cache_pct, sample.generated_tokens) == numbers


@pytest.mark.parametrize(("line", "engine_and_port"), [
    ("/usr/bin/python3 /opt/bin/vllm serve meta/x --port 8123", ("vllm", 8123)),
    ("python -m vllm.entrypoints.openai.api_server --port=9000", ("vllm", 9000)),
    ("python -m sglang.launch_server --model-path x", ("sglang", 30_000)),
    ("tritonserver --model-repository=/m --metrics-port 8112 --http-port 1", ("triton", 8112)),
    ("text-generation-router --port 80", ("tgi", 80)),
    ("/app/llama-server -m x.gguf --port 8081 --metrics", ("llama.cpp", 8081)),
    ("vllm serve x --port 99999", ("vllm", 8000)), ("python train.py --vllm-serve", None),
    ("torchrun --master-port 29500 train.py", None), ("grep vllm", None), ("", None)])
def test_an_engine_is_known_by_its_command_line(
        line: str, engine_and_port: tuple[str, int] | None) -> None:
    address = address_of(line.split())
    assert engine_and_port == (None if address is None else (address.engine.name, address.port))


def test_lies_are_no_values() -> None:
    lies = "\n".join(f"vllm:num_requests_running {value}" for value in (
        "NaN", "+Inf", "-5", "1e300", "x", "", "0x10", "1 2 3 4")) + (
        "\nvllm:kv_cache_usage_perc 40\nvllm:generation_tokens_total{a=\"" + "x" * 9_000 + "\"} 1")
    sample, _ = sample_of("t", BY_NAME["vllm"], lies, 1.0, None)
    assert (sample.running, sample.cache_pct, sample.generated_tokens) == (None, None, None)
    assert sample.trouble == "" or "nothing" in sample.trouble


@contextmanager
def served(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    try:
                        connection.recv(4_096)
                        answer(connection)
                    except OSError:
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join(timeout=5)


OK = b"HTTP/1.1 200 OK\r\n"


def endless(connection: socket.socket) -> None:
    connection.sendall(OK + b"\r\n")
    while True:
        connection.sendall(b"vllm:num_requests_running 1\n" * 4_000)


def dripping(connection: socket.socket) -> None:
    connection.sendall(OK + b"\r\n")
    while True:
        connection.sendall(b"x")
        time.sleep(0.02)


def silent(connection: socket.socket) -> None:
    connection.recv(1)


def send(body: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(body)


HOSTILE: dict[str, tuple[Callable[[socket.socket], None], str]] = {
    "endless": (endless, "longer than"), "drips": (dripping, "within"),
    "says nothing": (silent, "within"), "no HTTP": (send(b"\x00" * 99), "not HTTP"),
    "a head without an end": (send(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 9_000), "not HTTP"),
    "redirects elsewhere": (send(b"HTTP/1.1 302 x\r\nLocation: http://10.0.0.1/admin\r\n\r\n"),
                            "redirects"),
    "redirects in a circle": (send(b"HTTP/1.1 307 x\r\nLocation: /metrics/\r\n\r\n"), "status 307"),
    "switched off": (send(b"HTTP/1.1 404 x\r\n\r\n"), "switched off"),
    "claims a terabyte": (send(OK + b"Content-Length: 999999999999\r\n\r\nx"), ""),
    "chunks": (send(OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"), "chunks"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_endpoint_is_bounded_and_its_neighbour_is_read(name: str) -> None:
    answer, why = HOSTILE[name]
    good = send(OK + b"Content-Length: 30\r\n\r\nvllm:num_requests_running 42\n\n")
    with served(answer) as port, served(good) as neighbour:
        began = time.monotonic()
        if why:
            with pytest.raises(ServingUnreadableError, match=why):
                fetch(port, "/metrics", 0.5)
        else:
            assert len(fetch(port, "/metrics", 0.5)) < 10
        assert time.monotonic() - began < 2 * 0.5 + 1.5
        sample, _ = sample_of("t", BY_NAME["vllm"], fetch(neighbour, "/metrics"), 1.0, None)
        assert sample.running == 42


def test_the_longest_answer_is_parsed_in_bounds() -> None:
    line = 'vllm:num_requests_running{engine="%d"} 1\n'
    many = "".join(line % at for at in range(serving_core.MOST_LINES + 5_000))
    began = time.process_time()
    sample, _ = sample_of("t", BY_NAME["vllm"], many[:serving_fetch.MOST_BYTES], 1.0, None)
    assert sample.running == serving_core.MOST_SERIES
    assert time.process_time() - began < 2.0


SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"vllm:num_requests_running 7\\n")
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[3])), Handler)
import subprocess
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(worker.pid, flush=True)
server.serve_forever()
"""


def test_a_worker_on_a_gpu_leads_to_the_server_of_its_job() -> None:
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", SERVER, "vllm serve", "--port", str(port)],
                               stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        watch = ServingWatch()
        watch._tasks = (("task", worker), ("self", os.getpid()))
        watch.step()
        assert [(row.task_id, row.engine, row.running, row.trouble) for row in watch.samples] == [
            ("task", "vllm", 7.0, "")]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout and process.stdout.close()


def test_a_port_that_another_process_listens_at_is_never_asked() -> None:
    """The port may be a rendezvous of somebody's collective. Its user is the only proof without
    privileges; here nobody listens for the engine at all."""
    ports = []
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "vllm serve",
                                "--port", str(free_port())])
    try:
        watch = ServingWatch(get=lambda port, path: ports.append(port) or "")  # type: ignore[func-returns-value]
        deadline = time.monotonic() + 5
        watch._tasks = (("task", process.pid),)
        while not watch.samples and time.monotonic() < deadline:
            watch.step()
        assert "does not listen" in watch.samples[0].trouble
        assert ports == []
    finally:
        process.kill()
        process.wait()

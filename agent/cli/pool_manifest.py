"""`gpudeck pool manifest -- COMMAND`: the same claim as a Job of Kubernetes."""

import os
import re
from collections.abc import Callable, Sequence

from gpudeck.command_parser import parsed
from gpudeck.errors import CommandError, ExitCode
from gpudeck.pool import manifest as jobs
from gpudeck.pool.manifest import JobRequest, resource_name, validated
from gpudeck.settings import Setting, parser, resolve

from .pool_request import add_gpu_flags, add_host_flags, models_of, split_command

KINDS = ("nvidia", "amd", "intel", "npu")
IMAGE = "pytorch/pytorch:latest"


def kind_or_name(raw: str) -> str:
    return raw if raw in KINDS else resource_name(raw)


# The section [pool] of the file; docs/kubernetes.md.
MANIFEST: tuple[Setting, ...] = (
    Setting("resource", kind_or_name, "nvidia", f"the resource to request: {', '.join(KINDS)}, or "
                                                "a resource by its name, such as gpu.intel.com/xe"),
    Setting("nvidia_resource", resource_name, jobs.NVIDIA, "what NVIDIA's plugin registers"),
    Setting("amd_resource", resource_name, "amd.com/gpu", "what AMD's plugin registers"),
    Setting("intel_resource", resource_name, "gpu.intel.com/i915",
            "what Intel's plugin registers; gpu.intel.com/xe with the newer driver"),
    Setting("npu_resource", resource_name, jobs.ASCEND, "what Ascend's plugin registers"),
)


def manifest(argv: Sequence[str]) -> int:
    words, command = split_command(argv)
    made = parser("pool manifest", MANIFEST, "Print a Kubernetes Job equivalent to a `gpudeck "
                                             "run`.")
    made.usage = "gpudeck pool manifest [options] -- COMMAND ..."
    add_gpu_flags(made)
    add_host_flags(made, "the container's limit of CPUs, and so its request",
                   "the container's limit of memory, such as 64G, and so its request")
    made.add_argument("--image", type=_named(jobs.IMAGE, "image"), default=IMAGE,
                      help=f"its container image; default: {IMAGE}")
    made.add_argument("--name", type=_named(jobs.NAME, "name of a job"), default="gpudeck-job",
                      help="its name")
    made.add_argument("--namespace", type=_named(jobs.NAME, "name of a namespace"),
                      help="its namespace")
    made.add_argument("--node-label", metavar="KEY=VALUE", type=parsed(_label), action="append",
                      default=[], help="an additional node label; may be repeated")
    asked = made.parse_args(words)
    if not command:
        raise CommandError("name the command after --, as in: gpudeck pool manifest --gpus 2 -- "
                           "python train.py", ExitCode.USAGE)
    settings = resolve("pool", MANIFEST, vars(asked), os.environ)
    resource = settings["resource"]
    request = JobRequest(
        name=asked.name, namespace=asked.namespace, image=asked.image, command=command,
        resource=settings[f"{resource}_resource"] if resource in KINDS else resource,
        gpus=asked.gpus or 1, share_pct=asked.share, mem_bytes=asked.mem,
        models=models_of(asked), term_s=asked.term_s, node_labels=dict(asked.node_label),
        cpus=asked.cpus, ram_bytes=asked.ram)
    try:
        text = jobs.yaml_text(jobs.job(request))
    except ValueError as error:
        raise CommandError(str(error), ExitCode.USAGE) from None
    said = [*jobs.node_pools(request), *(
        ["The image is a guess: name yours with --image."] if asked.image == IMAGE else [])]
    print("".join(f"# {line}\n" for line in said) + text, end="")
    return ExitCode.OK


def _named(kind: re.Pattern[str], what: str) -> Callable[[str], str]:
    return parsed(lambda text: validated(kind, what, text))


def _label(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    return (validated(jobs.LABEL_KEY, "key of a label", key),
            validated(jobs.LABEL_VALUE, "value of a label", value))


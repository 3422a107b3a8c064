"""`gpudeck pool manifest -- COMMAND`: the same claim as a Kubernetes Job."""

import os
import re
from collections.abc import Callable, Sequence

from gpudeck.cli.command_parser import parsed
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
    flags = parser("pool manifest", MANIFEST, "Print a Kubernetes Job equivalent to a `gpudeck "
                                              "run`.")
    flags.usage = "gpudeck pool manifest [options] -- COMMAND ..."
    add_gpu_flags(flags)
    add_host_flags(flags, "the container's limit of CPUs, and so its request",
                   "the container's limit of memory, such as 64G, and so its request")
    flags.add_argument("--image", type=_name_type(jobs.IMAGE, "image"), default=IMAGE,
                       help=f"its container image; default: {IMAGE}")
    flags.add_argument("--name", type=_name_type(jobs.NAME, "name of a job"), default="gpudeck-job",
                       help="its name")
    flags.add_argument("--namespace", type=_name_type(jobs.NAME, "name of a namespace"),
                       help="its namespace")
    flags.add_argument("--node-label", metavar="KEY=VALUE", type=parsed(_label), action="append",
                       default=[], help="an additional node label; may be repeated")
    args = flags.parse_args(words)
    if not command:
        raise CommandError("name the command after --, as in: gpudeck pool manifest --gpus 2 -- "
                           "python train.py", ExitCode.USAGE)
    settings = resolve("pool", MANIFEST, vars(args), os.environ)
    resource = settings["resource"]
    request = JobRequest(
        name=args.name, namespace=args.namespace, image=args.image, command=command,
        resource=settings[f"{resource}_resource"] if resource in KINDS else resource,
        gpus=args.gpus or 1, share_pct=args.share, mem_bytes=args.mem,
        models=models_of(args), term_s=args.term_s, node_labels=dict(args.node_label),
        cpus=args.cpus, ram_bytes=args.ram)
    try:
        text = jobs.yaml_text(jobs.job(request))
    except ValueError as error:
        raise CommandError(str(error), ExitCode.USAGE) from None
    notes = [*jobs.node_pools(request), *(
        ["The image is a guess: name yours with --image."] if args.image == IMAGE else [])]
    print("".join(f"# {line}\n" for line in notes) + text, end="")
    return ExitCode.OK


def _name_type(kind: re.Pattern[str], what: str) -> Callable[[str], str]:
    return parsed(lambda text: validated(kind, what, text))


def _label(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    return (validated(jobs.LABEL_KEY, "key of a label", key),
            validated(jobs.LABEL_VALUE, "value of a label", value))


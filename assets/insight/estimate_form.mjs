// The fields of the Estimate page, and the question that they make. What is left empty is not asked.

const pairs = (...words) => words.map((word) => [word, word]);
const WEIGHTS = [["", "from the config"], ...pairs("bf16", "fp16", "fp32", "fp8", "gptq-int8", "gptq-int4", "awq", "nf4", "nf4-dq")];

const PARALLEL = [
  { name: "tp", label: "Tensor parallel" },
  { name: "pp", label: "Pipeline parallel" },
];

export const FIELDS = {
  inference: [
    { name: "weights", label: "Weights", choices: WEIGHTS },
    { name: "kv", label: "KV cache", choices: pairs("bf16", "fp8", "fp32") },
    { name: "engine", label: "Engine", choices: pairs("vllm", "sglang", "transformers") },
    { name: "prompt", label: "Prompt, tokens" },
    { name: "output", label: "Output, tokens" },
    { name: "concurrency", label: "Concurrent sequences" },
    ...PARALLEL,
  ],
  training: [
    { name: "method", label: "Method", choices: [["full", "all parameters"], ["lora", "LoRA"], ["qlora", "QLoRA"]] },
    { name: "stack", label: "Framework", choices: pairs("other", "peft", "litgpt", "torchtune", "deepspeed", "fsdp", "megatron") },
    { name: "precision", label: "Precision", choices: [["", "the framework's default"], ...pairs("mixed", "mixed-fp32-grads", "bf16", "fp32")] },
    { name: "optimizer", label: "Optimizer", choices: pairs("adamw", "adamw-8bit", "sgd", "muon", "adafactor") },
    { name: "batch", label: "Sequences per GPU" },
    { name: "sequence", label: "Sequence, tokens" },
    { name: "recompute", label: "Recomputation", choices: pairs("none", "selective", "full") },
    { name: "lora_rank", label: "LoRA rank" },
    { name: "zero", label: "ZeRO or FSDP", choices: [["0", "none"], ["1", "stage 1"], ["2", "stage 2"], ["3", "stage 3, FSDP"]] },
    { name: "dp", label: "Data parallel" },
    ...PARALLEL,
    { name: "tokens", label: "Total tokens", hint: "Whole training, to estimate its length" },
  ],
};

export const USUAL = { kind: "inference", weights: "", kv: "bf16", engine: "vllm", prompt: "4096", output: "1024", concurrency: "1", tp: "1", pp: "1",
  method: "full", stack: "other", precision: "", optimizer: "adamw", batch: "1", sequence: "2048", recompute: "none", lora_rank: "16", zero: "0", dp: "1", tokens: "" };
const WORDS = new Set(["weights", "kv", "engine", "method", "stack", "precision", "optimizer", "recompute"]);

export function bodyOf(view, config) {
  const how = {};
  for (const { name, label } of FIELDS[view.kind]) {
    if (view[name] !== "") how[name] = WORDS.has(name) ? view[name] : numberOf(view[name], label);
  }
  return { config, [view.kind]: how };
}

/** `2e12` and `1 000` are numbers, too. */
function numberOf(text, label) {
  const number = Number(text.replaceAll(/[\s_,]/g, ""));
  if (!Number.isFinite(number) || text === "") throw new Error(`${label} is not a number`);
  return number;
}

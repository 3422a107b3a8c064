// The fleet without a Gpu: what to do next, said by the page itself.

import { getNodes } from "./api.mjs";
import { copyText, make, say } from "./dom.mjs";
import { plural } from "./format.mjs";

const READER_WORDS = {
  starting: "reading for the first time", hung: "the driver does not answer", failed: "reading fails",
  no_library: "no NVIDIA library", no_driver: "no NVIDIA driver", no_gpus: "no GPU",
};

/** Called with every picture; builds only when there is something new to say. */
export async function drawEmpty(place, nodeCount) {
  const nodes = nodeCount === 0 ? [] : await getNodes().then((answer) => answer.items, () => []);
  const told = JSON.stringify(nodes.map(({ host, reader }) => [host, reader?.state, reader?.detail]));
  if (place.dataset.told === told) return;
  place.dataset.told = told;
  place.replaceChildren(...(nodes.length === 0 ? noNode() : noGpu(nodes)));
}

function noNode() {
  const command = `gpudeck agent --hub ${location.origin} --token-file agent.token`;
  const button = make("button", { type: "button", class: "button" }, "Copy");
  button.addEventListener("click", async () => say(button, (await copyText(command)) ? "Copied" : "Select and copy"));
  return [
    make("h2", {}, "No node yet"),
    make("p", {}, "Run this on a machine with GPUs. It appears here within seconds."),
    make("div", { class: "command" }, make("code", {}, command), button),
    make("p", {}, "The hub keeps ", make("code", {}, "agent.token"), " in its data folder. No GPU at hand? ",
      make("code", {}, "gpudeck demo"), " shows a simulated fleet."),
  ];
}

function noGpu(nodes) {
  const rows = nodes.map(({ host, reader }) => make("li", {}, make("strong", {}, host), make("span", {}, nodeWords(reader))));
  return [
    make("h2", {}, "No GPU yet"),
    make("p", {}, `${plural(nodes.length, "node")} connected, but none reports a GPU.`),
    make("ul", { class: "empty-nodes" }, ...rows),
  ];
}

function nodeWords(reader) {
  if (reader === null || reader === undefined) return "nothing heard of its reader yet";
  return reader.detail === "" ? (READER_WORDS[reader.state] ?? reader.state) : reader.detail;
}

// The Kubernetes page: pods that hold GPUs or wait for some, and nodes, with what its API server can
// be asked.

import { textField } from "../parts/dialog.mjs";
import { make } from "../parts/dom.mjs";
import { age, secondsSince } from "../parts/format.mjs";
import { allocationTable, known, leftCell, nodeCell, softly } from "./allocation_tables.mjs";
import { SchedulerPage } from "./scheduler_page.mjs";

const MOST_GRACE_S = 3_600;
const RIGHTS = { delete: "delete pods", evict: "evict pods", cordon: "cordon nodes" };

export default class KubernetesPage extends SchedulerPage {
  constructor(root, live, _holds, store) {
    super(root, live, store, {
      key: "kubernetes", name: "Kubernetes", thing: "pod",
      none: "No agent reads an API server of Kubernetes here: start one with --kubernetes, and name its host in the setting kubernetes_nodes.",
    });
  }

  rows({ pods }) { return pods; }

  title({ server }) { return server; }

  notes({ rights, actions }) {
    const missing = rights === null || actions.length === 0 ? [] : Object.keys(RIGHTS).filter((right) => !rights.includes(right));
    return [missing.length === 0 ? "" : `The API server does not let the agent's credential ${missing.map((right) => RIGHTS[right]).join(", ")} in all namespaces.`];
  }

  tables(one, pods) {
    return [
      allocationTable("Pods", ["Pod", "Of", "Phase", "Node", "GPUs", "Without process", "Time", ""], pods.map((pod) => this.pod(one, pod))),
      allocationTable("Nodes", ["Node", "State", "Allocated", ""], one.nodes.map((node) => this.node(one, node)))];
  }

  pod(cluster, pod) {
    const { namespace, name, uid } = pod;
    return make("tr", { "data-pod": `${namespace}/${name}` },
      softly(name, namespace, "strong"), make("td", {}, pod.controller || "–"),
      softly(pod.is_leaving ? "Terminating" : pod.phase, pod.reason),
      pod.node === null ? make("td", {}, "–") : nodeCell(pod.node, pod.host), softly(known(pod.gpus), which(pod.given)), leftCell(pod),
      make("td", {}, pod.started_at === null ? "" : age(secondsSince(pod.started_at))),
      this.acts(cluster, pod.may, { namespace, pod: name, uid }, `pod ${namespace}/${name}`, [], graceField));
  }

  node(cluster, node) {
    return make("tr", { "data-kubernetes-node": node.name }, nodeCell(node.name, node.host),
      make("td", {}, [node.is_ready ? "Ready" : "NotReady", ...(node.is_cordoned ? ["SchedulingDisabled"] : [])].join(", ")),
      make("td", {}, `${known(node.allocated)} of ${node.gpus}`),
      this.acts(cluster, node.may, { node: node.name }, `node ${node.name}`));
  }
}

/** The GPUs that its kubelet says it was given, as the node's page numbers them. */
const which = (given) => (given === null || given.length === 0 ? "" : `GPU ${given.map(({ uuid, index }) => index ?? uuid).join(", ")}`);

/** Only to delete a pod takes another time of grace than the pod's own. */
function graceField(verb) {
  if (verb !== "delete") return [[], () => ({})];
  const field = textField("pod_grace_s", "Time of grace, in seconds (empty: the pod's own)", { type: "number", min: "1", max: String(MOST_GRACE_S), step: "1" });
  return [[field], ({ pod_grace_s: { value, validity } }) => {
    if (value === "" && !validity.badInput) return {};
    const seconds = Number(value);
    return value !== "" && Number.isInteger(seconds) && seconds >= 1 && seconds <= MOST_GRACE_S ? { grace_s: seconds } : null;
  }];
}

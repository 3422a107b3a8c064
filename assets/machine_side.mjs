// What stands beside the timelines: the Gpus of a node, tasks, health, facts.

export class MachineSide {
  constructor(page) {
    this.page = page;
    this.marks = [];
  }

  draw() {}
}

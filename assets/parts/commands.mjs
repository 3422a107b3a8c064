// How a command line is shown: from its script on. Pure; the whole line is for the hover.

const INTERPRETER = /^(?:python[\d.]*|pypy[\d.]*|node|ruby|perl|Rscript|julia|(?:ba|da|z)?sh)$/;
const WITH_VALUE = new Set(["-W", "-X"]);

/** @type {(word: string) => string} */
const base = (word) => word.replace(/^[\w.~@+-]*\/(?:[\w.~@+-]+\/)*(?=[^/]+$)/, "");

/**
 * "/opt/py/bin/python3 -u /home/a/train.py --lr 3" is "train.py --lr 3".
 * @type {(command: string | null | undefined) => string}
 */
export function shortCommand(command) {
  if (command === null || command === undefined) return "command unknown";
  const [program, ...rest] = command.split(" ");
  const at = INTERPRETER.test(base(program)) ? scriptAt(rest) : -1;
  return at === -1 ? [base(program), ...rest].join(" ") : [base(rest[at]), ...rest.slice(at + 1)].join(" ");
}

/**
 * For the hover: what runs, uncut, then how it was started.
 * @type {(command: string | null | undefined) => string}
 */
export function wholeCommand(command) {
  if (command === null || command === undefined) return "";
  const short = shortCommand(command);
  return short === command ? command : `${short}\n\nStarted as: ${command}`;
}

/**
 * -1: it runs no file, such as with `-c`.
 * @type {(words: string[]) => number}
 */
function scriptAt(words) {
  let at = 0;
  while (words[at]?.startsWith("-")) {
    if (words[at] === "-c") return -1;
    at += WITH_VALUE.has(words[at]) ? 2 : 1;
  }
  return at < words.length ? at : -1;
}

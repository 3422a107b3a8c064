// Command lines as they are shown: from the script on. Pure; the whole line is for the hover.
// gpudeck/words/command_lines.py does the same for terminals; one table tests both.

const INTERPRETER = /^(?:python|pypy|ruby|perl|bash|dash|zsh|sh|node|Rscript|julia)[\d.]*$/;
const NO_FILE = new Set(["-m", "-c", "-"]); // what is run is no file
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
  const at = INTERPRETER.test(base(program)) ? afterOptions(rest) : rest.length;
  if (at >= rest.length) return [base(program), ...rest].join(" ");
  return (
    NO_FILE.has(rest[at])
      ? [base(program), ...rest.slice(at)]
      : [base(rest[at]), ...rest.slice(at + 1)]
  ).join(" ");
}

/**
 * Returns the whole command for the hover: what runs, then how it was started.
 * @type {(command: string | null | undefined) => string}
 */
export function wholeCommand(command) {
  if (command === null || command === undefined) return "";
  const short = shortCommand(command);
  return short === command ? command : `${short}\n\nStarted as: ${command}`;
}

/**
 * Returns where an interpreter's own options end.
 * @type {(words: string[]) => number}
 */
function afterOptions(words) {
  let at = 0;
  while (words[at]?.startsWith("-") && !NO_FILE.has(words[at]))
    at += WITH_VALUE.has(words[at]) ? 2 : 1;
  return at;
}

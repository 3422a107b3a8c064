// Types of dialogs for actions. Not served: types are for `make lint`.

/** A form whose controls are found by their names. */
type NamedForm = HTMLFormElement & { elements: Record<string, HTMLInputElement> };

/** Fields of an action; what is read of them is what the API is told, null while some is missing. */
interface ActionForm {
  title?: string;
  /** Facts that name its target, as [name, value], and an amber line for as long as there is no preview. */
  about?: [string, string][];
  caution?: string;
  fields(changed: () => void): HTMLElement[];
  isFilled(root: NamedForm): boolean;
  read(root: NamedForm): object | null;
}

/** A place on the page. */
interface Spot {
  x: number;
  y: number;
}

/** What is done when a button is released; null: nothing was pressed. */
type PressedAct = (event: MouseEvent) => ((event: MouseEvent) => unknown) | null;

/** How what was looked at is ordered. */
type SendOrder = (order: object) => Promise<Hub.OrderResultView>;

/** A word, and what its button does with a command. */
type CommandAct = [string, (command: Hub.CommandView) => unknown];

/** What an action was aimed at, as commands and previews have it. */
interface Target {
  owner: string | null;
  command: string | null;
  host: string;
  action?: string;
  task_ids?: string[];
}

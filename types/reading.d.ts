// Types of what the hub writes for pages that are read. Not served: types are for `make lint`.

type Values = Record<string, any>;
type Attributes = Record<string, string>;

/** An element as the hub wrote it: tag, traits and what is in it; a text is a string. */
type WrittenElement = [string, Attributes, Written[]];
type Written = string | WrittenElement;

/** Nodes for a place; true or false shows or hides what is in it, null empties it. */
type WrittenNodes = Written[] | boolean | null;

/** A control of a page's view. */
type Control = HTMLInputElement & Partial<Pick<HTMLSelectElement, "selectedOptions">>;

/** A request to the API, with fields' values in its path and body. */
interface OrderRequest {
  method: Method;
  path: string;
  body?: any;
  only_of?: number | null;
}

/** What an answer has once, to be copied. */
interface Secret {
  title: string;
  lead?: string[];
  copy: string;
  what: string;
  after?: string[];
  code?: string;
  /** A place that the page fills while the dialog is open. */
  place?: string;
}

/** A field of a dialog, as the hub wrote it. */
interface OrderField {
  name: string;
  label: string;
  type?: string;
  value?: any;
  hint?: string | null;
  options?: [string, string][];
  traits?: Traits;
  user?: string;
  suggest?: string[] | null;
  as?: string;
  empty?: unknown;
  times?: string;
  only?: Record<string, string[]>;
  order?: Order | null;
}

/** An order on a button: what is asked, and what is then sent where. */
interface Order extends OrderRequest {
  title?: string;
  lead?: Written | Written[];
  verb: string;
  tone?: string;
  fields?: OrderField[];
  is_paired?: boolean;
  sends?: OrderRequest[];
  doing?: string;
  done?: string;
  undo?: OrderRequest;
  shows?: Secret;
  then?: string;
  /** Fields of the view that facts of the answer become. */
  sets?: Record<string, string>;
  /** The field of the view that the whole answer becomes, as JSON. */
  keeps?: string;
}

/** The answer of a page that is read: its parts by their places, and its view. */
interface ReadAnswer {
  parts: Record<string, WrittenNodes>;
  view: Values;
}
